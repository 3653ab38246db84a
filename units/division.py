"""Quotients and roots: units whose exact results have endless digits."""

from collections.abc import Sequence
from dataclasses import replace

from amaranth.hdl import Module, Value

from halfulp.hdl.divide import ONE, divide, inverse_square_root, square_root
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.raw import OperationFlags, Raw
from halfulp.hdl.round import chosen_by
from halfulp.hdl.rows import Iterated, Rows
from halfulp.hdl.specs import DivSpec, ReciprocalSpec, RsqrtSpec, SqrtSpec

from .arithmetic import Arithmetic, Computed


class Endless(Arithmetic):
    """Unit whose exact results a digit recurrence computes, with all rows laid out or iterated.

    Subclasses implement the recurrence in ``recur``.

    Latency
    -------
    ``stages`` cycles; with ``build.iterations``, one cycle and those of the iterations.
    """

    @property
    def steps(self) -> int:
        return int(self.spec.digits)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the result of the recurrence, with bits below the rounding position merged into sticky."""
        return self._result(m, Rows(self.spec.digits), operands), random

    def logic(self, m: Module) -> None:
        if not self.build.iterations:
            super().logic(m)
            return
        rows = Iterated(self.spec.digits, self.build.iterations, m, self.valid, self.en)
        m.d.comb += self.ready.eq(rows.ready)
        operands = [self.unpacked(m, name) for name in self.spec.operands]
        result = self._result(m, rows, operands)
        # The rounding follows the rows, so its mode and word are held with the operands.
        late = {"mode": self.mode, "random": self.word(m)}
        mode, word = (None if value is None else rows.held(m, value, f"{name}_held") for name, value in late.items())
        self.connect_results(m, result, word, chosen_by(self.spec.unit_rounding, mode))

    def _result(self, m: Module, rows: Rows, operands: Sequence[Number]) -> Raw:
        raws = [as_raw(m, number, name) for number, name in zip(operands, self.spec.operands, strict=True)]
        number = self.recur(m, rows, *raws)
        if self.spec.flags:
            raised = {name: rows.held(m, getattr(number.flags, name), name) for name in ("invalid", "by_zero")}
            number = replace(number, flags=OperationFlags(**raised))
        return number

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the exact result of operands, by the rows of a recurrence."""
        raise NotImplementedError


class Div(Endless):
    """Quotient of two numbers, rounded once.

    Formula
    -------
    ``o = round(a / b)``; ``x / 0`` is an infinity that only ``.satfinite`` makes finite, ``0 / 0`` and
    ``inf / inf`` are NaN.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = DivSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the quotient."""
        a, b = operands
        return divide(m, a, b, rows)


class Reciprocal(Endless):
    """Reciprocal of a number, rounded once.

    Formula
    -------
    ``o = round(1 / a)``; the reciprocal of zero is an infinity of its sign.

    Source
    ------
    Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = ReciprocalSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the reciprocal."""
        (a,) = operands
        return divide(m, ONE, a, rows)


class Sqrt(Endless):
    """Square root of a number, rounded once.

    Formula
    -------
    ``o = round(sqrt(a))``; the root of -0 is -0, that of another negative number is NaN.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 6.
    """

    SPEC = SqrtSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the root."""
        (a,) = operands
        return square_root(m, a, rows)


class Rsqrt(Endless):
    """Reciprocal of the square root of a number, rounded once.

    Formula
    -------
    ``o = round(1 / sqrt(a))``; the result for a zero is an infinity of its sign, that for a negative number is NaN.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 9.2. Recurrences: Ercegovac and Lang, Digital Arithmetic, 2004, chapters 5
    and 6.
    """

    SPEC = RsqrtSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the reciprocal of the root."""
        (a,) = operands
        return inverse_square_root(m, a, rows)
