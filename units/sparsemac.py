"""Multiply-accumulate with structured sparsity."""

from amaranth.hdl import Module

from halfulp.hdl.specs import SparseMacSpec

from .dotmac import DotMac, sum_of_products
from .running_sum import Term
from .sparsedot import selected_factors


class SparseMac(DotMac):
    """Multiply-accumulate of N weights of each M activations, selected by indices, with all or some groups in a step.

    Formula
    -------
    ``acc = round(start + a[i0] * b0 + a[i1] * b1 + ...)``, where ``a[ij]`` is activation ``M * (j // N) + ij``, and
    ``start`` is ``c`` if ``load`` is set, +0 if ``clear`` is set, and ``acc`` otherwise. ``o = acc``; if the
    accumulator is exact, ``o = round(acc)``.

    Members
    -------
    a0, a1, ... : In(a)
        Activations of a step, M for each group. Also as the list ``a``.
    b0, b1, ... : In(b)
        Weights, N for each group. Also as the list ``b``.
    i0, i1, ... : In(unsigned(spec.index_bits))
        Index of each weight in its group, as in `SparseDot`. Also as the list ``i``.

    Source
    ------
    Storage of N:M weights: Mishra et al., 2021.
    """

    SPEC = SparseMacSpec

    def term(self, m: Module) -> Term:
        return sum_of_products(self, m, selected_factors(self, m))
