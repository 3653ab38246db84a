"""Dot products and multiply-accumulates of blocks of numbers with a shared scale."""

from functools import partial
from typing import Any

from amaranth.hdl import Module

from halfulp.hdl import block, tree
from halfulp.hdl.number import Number, add, align, normalises, unpack
from halfulp.hdl.raw import Raw
from halfulp.hdl.specs import BlockDotSpec, BlockMacSpec

from .accumulating import Accumulating, Term
from .described import Described


def _scaled_sum(unit: Any, m: Module, *, from_zero: bool) -> Raw:
    """Return the exact sum of the products of elements times the scales."""
    x, y = unit.spec.a, unit.spec.b
    scale = block.factor(m, unit.a_scale.as_value(), unit.b_scale.as_value(), x, y)
    flags = {"infinite": scale.inf} if x.scale.has_inf or y.scale.has_inf else {}
    product = partial(block.product, x=x, y=y, dsp=unit.build.dsp)
    terms = [
        tree.Term(**unit.part(m, f"term{index}", "term", product, a=a.as_value(), b=b.as_value(), **flags))
        for index, (a, b) in enumerate(zip(unit.a, unit.b, strict=True))
    ]
    return block.scaled_sum(m, terms, scale, x, y, unit.rounding, from_zero=from_zero, fast=unit.fast)


class BlockDot(Described):
    """Dot product of two blocks, or of parts of them, with a start value: one per cycle.

    Formula
    -------
    ``o = round(c + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...))``

    Members
    -------
    a0, a1, ... : In(a.element)
        Also as the list ``a``.
    b0, b1, ... : In(b.element)
        Also as the list ``b``.
    a_scale : In(a.scale)
    b_scale : In(b.scale)
    c : In(c)
        Start value. Absent without ``c``.
    o : Out(o)

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockDotSpec
    multiplies = True

    def logic(self, m: Module) -> None:
        spec, random = self.spec, self.word(m)
        found = _scaled_sum(self, m, from_zero=spec.c is None)
        if spec.c is not None or not normalises(spec.o):
            found = tree.without_complement(m, found)
        total: Number = found
        if spec.c is not None:
            start = unpack(m, self.c.as_value(), spec.c, "start")
            aligned = align(m, total, start, spec.o, spec.rounding)
            total, random = add(m, aligned, spec.o, spec.rounding, random, self.stochastic)
        m.d.comb += self.o.as_value().eq(self.rounded(m, total, random))


class BlockMac(Accumulating):
    """Multiply-accumulate of blocks, with all pairs of elements or some of them in a step.

    Formula
    -------
    ``acc = round(start + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...))``, where ``start`` is ``c`` if ``load`` is set,
    +0 if ``clear`` is set, and ``acc`` otherwise. ``o = acc``; if the accumulator is exact, ``o = round(acc)``.

    Members
    -------
    a0, a1, ... : In(a.element)
        Elements of a step. Also as the list ``a``.
    b0, b1, ... : In(b.element)
        Also as the list ``b``.
    a_scale : In(a.scale)
    b_scale : In(b.scale)

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockMacSpec

    def term(self, m: Module) -> Term:
        """Return the product of the scales and the exact sum of the products of elements."""
        return tree.without_complement(m, _scaled_sum(self, m, from_zero=False)), None
