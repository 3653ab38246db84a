"""Accumulation without multiplier."""

from amaranth.hdl import Module

from halfulp.hdl.specs import AccumulateSpec

from .running_sum import RunningSum, Term


class Accumulate(RunningSum):
    """Accumulator with one number per step: acc <- round(acc + a).

    Formula
    -------
    ``acc = round(start + a)``; ``start`` is ``c`` if ``load`` is set, +0 if ``clear`` is set, and ``acc`` otherwise.
    ``o = acc``; if the accumulator is exact, ``o = round(acc)``.

    Source
    ------
    Exact accumulator: Kulisch, Computer Arithmetic and Validity, 2013.
    """

    SPEC = AccumulateSpec
    multiplies = False

    def term(self, m: Module) -> Term:
        """Return the operand."""
        return self.unpacked(m, "a"), None
