"""Common base of units whose exact results have endless digits."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import Build

from .base import Arithmetic, Computed, Options


class Endless(Arithmetic):
    """Unit whose exact results a digit recurrence computes.

    Subclasses implement the recurrence in ``recur``.
    """

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the result of the recurrence, with bits below the rounding position merged into sticky."""
        raws = [as_raw(m, number, name) for number, name in zip(operands, self.operands, strict=True)]
        return self.recur(m, Rows(self.spec.digits), *raws), random

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the exact result of operands, by the rows of a recurrence."""
        raise NotImplementedError


class Function(Endless):
    """Function of one number, by a digit recurrence; parameters as of `Sqrt`."""

    def __init__(
        self, *, a: Format | str, o: Format | str | None = None, build: Build = Build(), **options: Unpack[Options]
    ) -> None:
        super().__init__(self.SPEC.of(a=a, o=o, **options), build=build)
