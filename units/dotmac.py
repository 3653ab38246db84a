"""Multiply-accumulate of k pairs in a step."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from halfulp.hdl import tree
from halfulp.hdl.number import multiply, normalises
from halfulp.hdl.specs import DotMacSpec
from halfulp.hdl.specs.dotmac import DotSteps

from .dot import product_terms
from .running_sum import Placed, RunningSum, Term


class DotMac(RunningSum):
    """Dot product of k pairs that is added to an accumulator, rounded once in each step.

    Formula
    -------
    ``acc = round(start + a0 * b0 + a1 * b1 + ...)``, where ``start`` is ``c`` if ``load`` is set, +0 if ``clear`` is
    set, and ``acc`` otherwise. ``o = acc``; if the accumulator is exact, ``o = round(acc)``.

    Members
    -------
    a0, a1, ... : In(a)
        Also as the list ``a``.
    b0, b1, ... : In(b)
        Also as the list ``b``.

    Source
    ------
    Rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC: type[DotSteps] = DotMacSpec

    def term(self, m: Module) -> Term:
        """Return the exact sum of the products of a step."""
        return sum_of_products(self, m, [(a.as_value(), b.as_value()) for a, b in zip(self.a, self.b, strict=True)])


def sum_of_products(unit: Any, m: Module, factors: list[tuple[Value, Value]]) -> Term:
    """Return the exact sum of the products of pairs of codes, in a unit with a description of steps."""
    spec = unit.spec
    if len(factors) == 1:
        a, b = (unit.number_of(m, code, spec.operands[name], name) for code, name in zip(*factors, "ab", strict=True))
        return multiply(m, a, b, dsp=unit.build.dsp, to=None if spec.quire else spec.o, fast=unit.fast), None
    placed, quantum = _is_placed(spec), spec.products.quantum
    if placed:
        quantum = min(quantum, spec.o.quantum)
    terms = product_terms(unit, m, factors, quantum, spec.products)
    exact_sum, signs = tree.total(m, terms), [term.sign for term in terms]
    if placed:
        return Placed(exact_sum, signs, quantum), None
    zero_sign = tree.sign_of_zero(signs, unit.rounding, from_zero=False)
    if isinstance(exact_sum.negative, Const):
        return tree.as_fixed(m, exact_sum, quantum, zero_sign), None
    total = tree.as_raw(m, exact_sum, quantum, tree.bits_of(spec.terms, quantum), zero_sign, fast=unit.fast)
    return tree.without_complement(m, total), None


def _is_placed(spec: DotSteps) -> bool:
    """Return True if the accumulator is added on the scale of the products, which is then at most twice as long.

    This takes one normalisation; otherwise the sum of the products has one of its own.
    """
    if spec.quire is not None or not normalises(spec.o) or spec.a.spacing == spec.b.spacing == "uniform":
        return False
    quantum = min(spec.products.quantum, spec.o.quantum)
    return tree.bits_of(spec.sums, quantum) <= 2 * tree.bits_of(spec.terms, spec.products.quantum)
