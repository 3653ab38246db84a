"""Classes of operands and results, by the position of a code in its format."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Format

from .fields import Codes, Grid, words

Places = npt.NDArray[np.int64]

NONE = -1
"""Index of a code without a class."""

ALL_BITS = 16
"""Largest width of a format whose codes are all examined."""

SOME = 1 << 17
"""Number of examined codes of a wider format."""

KINDS = (
    *("zero", "smallest subnormal", "subnormal", "largest subnormal", "smallest normal", "smallest"),
    *("power of two", "other", "largest", "infinite", "NaN"),
)
"""Classes of magnitudes; not every format has all of them."""

_PLACE = {kind: place for place, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class Classes:
    """Classes of the codes of a format.

    Attributes
    ----------
    kinds : tuple of str
        Classes of `KINDS` that the format has.
    signed : tuple of str
        The same classes with signs.
    """

    fmt: Format

    @cached_property
    def grid(self) -> Grid:
        """Grid of the format."""
        return Grid.of(self.fmt)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        fmt = self.fmt
        possible = {"zero", "smallest", "power of two", "other", "largest"}
        if fmt.spacing == "relative":
            # Other numbers than powers of two need mantissa bits.
            subnormals = self.grid.man if fmt.floor_exponent is not None else 0
            possible = {"zero", "smallest normal", "power of two", "largest"}
            possible |= {kind for kind in ("other",) if self.grid.man >= 1}
            possible |= {kind for kind in ("smallest subnormal",) if subnormals >= 1}
            possible |= {kind for kind in ("subnormal", "largest subnormal") if subnormals >= 2}
        possible -= set() if fmt.has_zero else {"zero"}
        specials = {"infinite": fmt.has_inf, "NaN": fmt.has_nan}
        return tuple(kind for kind in KINDS if kind in possible or specials.get(kind))

    @cached_property
    def signed(self) -> tuple[str, ...]:
        zeros = ("+zero", "-zero") if self.fmt.has_negative_zero else ("zero",) * self.fmt.has_zero
        signs = "+-" if self.grid.negatives else "+"
        usual = tuple(f"{sign}{kind}" for kind in self.kinds if kind not in ("zero", "NaN") for sign in signs)
        return (*zeros, *usual, *(["NaN"] if "NaN" in self.kinds else []))

    def places(self, codes: Codes) -> Places:
        """Return the index of each code's class without sign."""
        return self._own[self._of(codes)[1]]

    def signed_places(self, codes: Codes) -> Places:
        """Return the index of each code's class with sign."""
        sign, kind = self._of(codes)
        return self._with_sign[sign, kind]

    def examples(self) -> list[Codes]:
        """Return codes of each class with sign: all codes of a narrow format, some of a wide one."""
        codes = some_codes(self.fmt)
        place = self.signed_places(codes)
        by_kind = [codes[place == own] for own in range(len(self.signed))]
        return [kind for kind in by_kind if len(kind)]

    @cached_property
    def _own(self) -> Places:
        return np.array([self.kinds.index(kind) if kind in self.kinds else NONE for kind in KINDS])

    @cached_property
    def _with_sign(self) -> Places:
        def place(sign: str, kind: str) -> int:
            return next((self.signed.index(text) for text in (f"{sign}{kind}", kind) if text in self.signed), NONE)

        return np.array([[place(sign, kind) for kind in KINDS] for sign in "+-"])

    def _of(self, codes: Codes) -> tuple[Places, Places]:
        """Return the sign of each code and its index in `KINDS`; later assignments override earlier ones."""
        grid, fmt = self.grid, self.fmt
        parts, (sign, magnitude) = grid.parts(codes), grid.unsigned(codes)
        kind = np.full(len(codes), _PLACE["other"], dtype=np.int64)
        kind[parts.mantissa == 0] = _PLACE["power of two"]
        # The lowest number may have a larger magnitude than the largest number.
        ends = (magnitude == grid.max_code) | ((sign == 1) & (magnitude == self._least))
        if fmt.spacing == "relative":
            normal = grid.code_of(Fraction(2) ** grid.first_normal)
            kind[magnitude == normal] = _PLACE["smallest normal"]
            kind[ends] = _PLACE["largest"]
            kind[(magnitude > 0) & (magnitude < normal)] = _PLACE["subnormal"]
            kind[(magnitude > 0) & (magnitude == normal - 1)] = _PLACE["largest subnormal"]
            kind[(magnitude == 1) & (normal > 1)] = _PLACE["smallest subnormal"]
        else:
            kind[ends] = _PLACE["largest"]
            kind[magnitude == 1] = _PLACE["smallest"]
            kind[(sign == 1) & (magnitude == self._least)] = _PLACE["largest"]
        kind[parts.zero] = _PLACE["zero"]
        kind[parts.infinite] = _PLACE["infinite"]
        kind[parts.nan] = _PLACE["NaN"]
        return sign, kind

    @cached_property
    def _least(self) -> int:
        """Magnitude code of the lowest number."""
        return self.grid.code_of(self.fmt.lowest)


@dataclass(frozen=True)
class Regimes:
    """Regimes of a format's codes: prefixes of variable length, with the sign of the number.

    Parameters
    ----------
    fmt : Format
        Posit or takum format.
    """

    fmt: Format

    @cached_property
    def signed(self) -> tuple[str, ...]:
        """Regimes with signs."""
        return tuple(f"{sign} regime {k}" for sign in "+-" for k in self.fmt.regimes)

    @cached_property
    def _of_exponent(self) -> Places:
        fmt, grid = self.fmt, Grid.of(self.fmt)
        exponents = range(grid.first_normal, grid.emax + 1)
        return np.array([fmt.regimes.index(fmt.regime_at(exponent)) for exponent in exponents])

    def places(self, codes: Codes) -> Places:
        """Return the index of each code's signed regime; zero, infinities and NaN have none."""
        grid = Grid.of(self.fmt)
        parts = grid.parts(codes)
        number = ~(parts.zero | parts.infinite | parts.nan)
        place = self._of_exponent[np.where(number, parts.exponent - grid.first_normal, 0)]
        return np.where(number, parts.sign * len(self.fmt.regimes) + place, NONE)


def some_codes(fmt: Format) -> Codes:
    """Return all codes of a narrow format, or random codes, corner codes and powers of two of a wide one."""
    if fmt.width <= ALL_BITS:
        return np.arange(1 << fmt.width, dtype=np.uint64)
    grid, rng = Grid.of(fmt), np.random.default_rng(0)
    anywhere = words(rng, SOME, fmt.width)
    powers = np.arange(grid.quantum, grid.emax + 1)
    zero = np.zeros(len(powers), dtype=np.uint64)
    signs = [grid.compose(np.full_like(powers, sign), powers, zero) for sign in (0, 1)]
    return np.concatenate([grid.corner_codes(), anywhere, *signs])
