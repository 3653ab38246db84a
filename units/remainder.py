"""Remainder of a division."""

from amaranth.hdl import Module

from halfulp.hdl.divide import remainder
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import Build
from halfulp.hdl.specs.remainder import RemainderSpec

from .division import Endless

MAX_ROWS = 64
"""Largest number of rows that are laid out one after the other."""


class Remainder(Endless):
    """Remainder of the division to the nearest integer quotient, rounded once.

    Formula
    -------
    ``o = round(a - b * n)``, where ``n`` is the integer nearest to ``a / b``, the even one of two; a zero has the sign
    of ``a``. The remainder of operands of one floating-point format is a number of the format.
    ``a`` is the result for infinite ``b``; it is NaN for infinite ``a`` or for ``b = 0``.

    The number of rows of the division is the largest difference of exponents: 40 for fp16, 277 for fp32. More than 64
    rows need the iterative form.

    Raises
    ------
    ValueError
        If the division has more than 64 rows and ``build`` no iterations.

    Source
    ------
    Operation: IEEE 754, 2019, 5.3.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = RemainderSpec

    def check(self) -> None:
        spec = self.spec
        if spec.digits > MAX_ROWS and not self.build.iterations:
            raise ValueError(
                f"remainder of {spec.a} and {spec.b} has {spec.digits} rows of subtractors, more than {MAX_ROWS}; "
                "use the iterative form, such as iterations=1, on the command line --iterations 1"
            )

    @classmethod
    def default_build(cls, spec: RemainderSpec) -> Build:
        """Return the build with one row, if the division has too many rows for the combinational form."""
        return Build(iterations=1) if spec.digits > MAX_ROWS else Build()

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the remainder."""
        a, b = operands
        return remainder(m, a, b, rows)
