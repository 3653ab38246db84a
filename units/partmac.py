"""Multiply-accumulate of compound numbers."""

from amaranth.hdl import Array, Module, Value

from halfulp.hdl.specs import PartMacSpec
from halfulp.hdl.specs.partmac import ports_of
from halfulp.hdl.wire import wire

from .mac import product_term
from .running_sum import RunningSum, Term


class PartMac(RunningSum):
    """Multiply-accumulate of compound numbers on one multiplier for their parts: a product takes several steps.

    Formula
    -------
    ``acc = round(start + ai * bj)`` with the pair (i, j) of ``step``: for two parts (1, 0), (0, 1), (0, 0); for three
    parts (2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0). ``start`` and ``o`` are those of `Mac`.

    Members
    -------
    a0, a1, ... : In(a.part)
        Parts, the largest first; ``a`` if the format is not compound. Several ones also as the list ``a``.
    b0, b1, ... : In(b.part)
        As ``a``.
    step : In(unsigned(spec.step_bits))
        Step of the product; larger numbers are the last step. Steps in ascending order compute what `golden.gemm` does.
    random_product : In(product_rounding.bits)
        Random word of the product's stochastic rounding. Absent if the product is not rounded stochastically.

    Source
    ------
    Order of the products: Henry, Tang and Heinecke, ARITH 2019.
    """

    SPEC = PartMacSpec

    def term(self, m: Module) -> Term:
        """Return the product of the two parts of this step, rounded if ``product`` is given."""
        pairs = self.spec.pairs
        pairs += pairs[-1:] * ((1 << self.spec.step_bits) - len(pairs))
        factors = (
            wire(m, Array(parts[pair[side]] for pair in pairs)[self.step], f"{name}_part")
            for side, (name, fmt) in enumerate(self.spec.operands.items())
            for parts in [[Value.cast(getattr(self, port)) for port in ports_of(name, fmt)]]
        )
        return product_term(self, m, *factors)
