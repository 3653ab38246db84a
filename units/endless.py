"""Common base of units whose exact results have endless digits."""

from typing import Any, Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Iterated, Rows, cycles_of
from halfulp.hdl.specs import Build, UnitSpec

from .base import Arithmetic, Computed, Options


class Endless(Arithmetic):
    """Unit whose exact results a digit recurrence computes, with all rows laid out or iterated.

    Subclasses implement the recurrence in ``recur``.
    """

    def __init__(self, spec: UnitSpec, **more: Any) -> None:
        super().__init__(spec, iterates=True, **more)

    def _latency_of(self, stages: int) -> int:
        iterations = self.build.iterations
        # The cycle after the operands is the first one of the rows.
        return 1 + cycles_of(self.spec.digits, iterations) if iterations else super()._latency_of(stages)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the result of the recurrence, with bits below the rounding position merged into sticky."""
        raws = [as_raw(m, number, name) for number, name in zip(operands, self.operands, strict=True)]
        rows = Rows(self.spec.digits)
        if self.build.iterations:
            rows = Iterated(self.spec.digits, self.build.iterations, m, self.valid, self.en)
            m.d.comb += self.ready.eq(rows.ready)
            random = None if random is None else rows.held(m, random, "random_word")
        return self.recur(m, rows, *raws), random

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the exact result of operands, by the rows of a recurrence."""
        raise NotImplementedError


class Function(Endless):
    """Function of one number, by a digit recurrence; parameters as of `Sqrt`."""

    def __init__(
        self, *, a: Format | str, o: Format | str | None = None, build: Build = Build(), **options: Unpack[Options]
    ) -> None:
        super().__init__(self.SPEC.of(a=a, o=o, **options), build=build)
