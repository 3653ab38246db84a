"""The quire: exact sums of products."""

from amaranth.hdl import Module

from halfulp.hdl.number import multiply, negate_if, unpack
from halfulp.hdl.specs import QuireSpec

from .running_sum import RunningSum, Term


class Quire(RunningSum):
    """Register that holds a sum of products exactly and rounds it when it is read.

    For posits of n bits it is the quire of the posit standard (2022, 3.4) with 16 n bits; for other formats it is a
    Kulisch accumulator.

    Formula
    -------
    ``acc = start + a * b``, and ``acc = start - a * b`` if ``subtract`` is set, without rounding; ``start`` is ``c`` if
    ``load`` is set, 0 if ``clear`` is set, and ``acc`` otherwise. ``o = round(acc)``.

    Members
    -------
    subtract : In(1)
        Subtract the product instead of adding it.

    Source
    ------
    Kulisch, Computer Arithmetic and Validity, 2013; Posit Working Group, 2022, 3.4.
    """

    SPEC = QuireSpec

    def term(self, m: Module) -> Term:
        """Return the product, negated if ``subtract`` is 1."""
        a = unpack(m, self.a.as_value(), self.spec.a, "a")
        b = unpack(m, self.b.as_value(), self.spec.b, "b")
        return negate_if(multiply(m, a, b, dsp=self.build.dsp), self.subtract), None
