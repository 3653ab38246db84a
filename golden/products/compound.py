"""Accumulators in compound formats, computed in binary64: sums of numbers without loss, and their parts.

A sum is an expansion: numbers of binary64 in ascending magnitude whose bits do not overlap and whose exact sum it is
(Shewchuk, Discrete and Computational Geometry 18, 1997).
"""

from typing import Any

import torch
from torch import Tensor

from halfulp.golden.errorfree import sum_and_error, to_odd
from halfulp.golden.parts import code_of, parts_of
from halfulp.golden.raw import Raw
from halfulp.golden.values import encoded, of_part
from halfulp.hdl.formats import OFF, RD
from halfulp.hdl.specs import RunningSumSpec

Parts = list[Tensor]
"""Numbers of the parts of accumulators in binary64, the largest first."""


class CompoundSums:
    """Arithmetic of accumulators in compound formats that `halfulp.golden.kernels.plan.fits_compound` accepts.

    Methods are those of `halfulp.golden.sequence.Accumulation`.
    """

    def __init__(self, spec: RunningSumSpec) -> None:
        self.spec: Any = spec
        self.fmt: Any = spec.o
        self.part = self.fmt.part_format

    def load(self, codes: Tensor) -> Parts:
        """Return the numbers of accumulators that hold these codes."""
        return [self._number(part) for part in parts_of(codes, self.fmt).unbind(-1)]

    def step(self, held: Parts, term: Raw, random: Tensor | None) -> tuple[Parts, None]:
        """Add one term, and return the new numbers."""
        down = self.spec.rounding == RD
        expansion, plain = [held[-1]], sum(reversed(held[:-1]), held[-1])
        added = _number_of(term)
        for number in (*reversed(held[:-1]), added):
            expansion = _grown(expansion, number)
        # Infinities, NaN and sums of zeros are those of the plain sum; another exactly cancelled sum is +0, or -0.
        total, cancelled = plain + added, -0.0 if down else 0.0
        ended, rest = ~total.isfinite(), _odd(expansion)
        zero = torch.where(total == 0, total, cancelled)
        if down:
            zero = torch.where(plain.signbit() | added.signbit(), -0.0, zero)
        rest = torch.where(ended, total, torch.where(rest == 0, zero, rest))
        numbers: Parts = []
        for place in range(self.fmt.parts):
            last = place == self.fmt.parts - 1
            mode = self.spec.rounding if last else self.fmt.leading(self.spec.rounding)
            code = encoded(rest, self.part, mode, random if last else None, self.spec.saturate)
            number = self._number(code)
            numbers.append(torch.where(ended, 0.0, number) if place else number)
            if not last:
                ended = ended | ~number.isfinite()
                expansion = _grown(expansion, -number)
                rest = _odd(expansion)
                # An exact remainder of zero is +0, and -0 if it is rounded down.
                rest = torch.where(ended, 0.0, torch.where(rest == 0, cancelled, rest))
        return numbers, None

    def read(self, held: Parts, random: Tensor | None) -> Tensor:
        """Return the codes of the numbers."""
        codes = [encoded(number, self.part, self.fmt.leading(self.spec.rounding), None, OFF) for number in held]
        return code_of(torch.stack(torch.broadcast_tensors(*codes), -1), self.fmt)

    def _number(self, codes: Tensor) -> Tensor:
        return of_part(codes, self.part, torch.float64)


def _grown(expansion: Parts, number: Tensor) -> Parts:
    """Return the expansion of the sum of an expansion and a number."""
    errors: Parts = []
    for part in expansion:
        number, error = sum_and_error(number, part)
        errors.append(error)
    return [*errors, number]


def _odd(expansion: Parts) -> Tensor:
    """Return the number of an expansion, rounded to odd in binary64."""
    total, *larger = expansion
    for part in larger:
        total = to_odd(*sum_and_error(part, total))
    return total


def _number_of(x: Raw) -> Tensor:
    """Return raw numbers, which binary64 holds, as real numbers."""
    magnitude = torch.ldexp(x.significand.low.to(torch.float64), x.exponent - (x.significand.width - 1))
    magnitude = torch.where(x.zero, 0.0, magnitude)
    magnitude = torch.where(x.inf, torch.inf, magnitude)
    return torch.where(x.nan, torch.nan, torch.where(x.sign, -magnitude, magnitude))
