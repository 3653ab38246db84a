"""Classes of operands and results: where a code lies in its format."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Fixed, Float, Format, Posit

from .fields import Codes, Grid

Places = npt.NDArray[np.int64]

NONE = -1
"""Place of a code that is of no class."""

ALL_BITS = 16
"""Of a format of so many bits all codes are looked at."""

SOME = 1 << 17
"""Codes of a wider one that are."""

KINDS = (
    *("zero", "smallest subnormal", "subnormal", "largest subnormal", "smallest normal", "smallest"),
    *("power of two", "other", "largest", "infinite", "NaN"),
)
"""Classes of magnitudes, of which a format has some."""

_PLACE = {kind: place for place, kind in enumerate(KINDS)}
_UNSIGNED = ("NaN",)


@dataclass(frozen=True)
class Classes:
    """Classes of the codes of a format.

    Parameters
    ----------
    fmt : Format

    Attributes
    ----------
    kinds : tuple of str
        Of `KINDS`, those that the format has.
    signed : tuple of str
        The same with signs, where there are such codes.
    """

    fmt: Format

    @cached_property
    def grid(self) -> Grid:
        """Of the format."""
        return Grid.of(self.fmt)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        match self.fmt:
            case Float(man=man, subnormals=subnormals, has_inf=has_inf, has_nan=has_nan):
                tiny = ("smallest subnormal",) * (man >= 1) + ("subnormal", "largest subnormal") * (man >= 2)
                tiny = tuple(kind for kind in KINDS if kind in tiny) if subnormals else ()
                # Beside powers of two there are numbers only where there is a mantissa.
                usual = ("smallest normal", "power of two", *(("other",) if man >= 1 else ()), "largest")
                return ("zero", *tiny, *usual, *(("infinite",) * has_inf), *(("NaN",) * has_nan))
            case Posit():
                return ("zero", "smallest", "power of two", "other", "largest", "NaN")
        return ("zero", "smallest", "power of two", "other", "largest")

    @cached_property
    def signed(self) -> tuple[str, ...]:
        fmt = self.fmt
        zeros = ("+zero", "-zero") if isinstance(fmt, Float) and fmt.has_negative_zero else ("zero",)
        signs = "+-" if self.grid.negatives else "+"
        usual = tuple(f"{sign}{kind}" for kind in self.kinds if kind not in ("zero", *_UNSIGNED) for sign in signs)
        return (*zeros, *usual, *(kind for kind in self.kinds if kind in _UNSIGNED))

    def places(self, codes: Codes) -> Places:
        """Places of codes among the classes without signs."""
        return self._own[self._of(codes)[1]]

    def signed_places(self, codes: Codes) -> Places:
        """Places of codes among the classes with signs."""
        sign, kind = self._of(codes)
        return self._with_sign[sign, kind]

    def examples(self) -> list[Codes]:
        """Codes of each class with sign: all that a narrow format has, and some of a wide one's."""
        codes = some_codes(self.fmt)
        place = self.signed_places(codes)
        found = [codes[place == own] for own in range(len(self.signed))]
        return [kind for kind in found if len(kind)]

    @cached_property
    def _own(self) -> Places:
        return np.array([self.kinds.index(kind) if kind in self.kinds else NONE for kind in KINDS])

    @cached_property
    def _with_sign(self) -> Places:
        def place(sign: str, kind: str) -> int:
            return next((self.signed.index(text) for text in (f"{sign}{kind}", kind) if text in self.signed), NONE)

        return np.array([[place(sign, kind) for kind in KINDS] for sign in "+-"])

    def _of(self, codes: Codes) -> tuple[Places, Places]:
        """Signs, and places among all kinds."""
        sign, magnitude = self.grid.unsigned(codes)
        kind = np.full(len(codes), _PLACE["other"], dtype=np.int64)
        mantissa = self.grid.parts(np.where(magnitude == 0, np.uint64(1), codes))[2]
        kind[mantissa == 0] = _PLACE["power of two"]
        for name, where in self._landmarks(codes, magnitude):
            kind[where] = _PLACE[name]
        return sign, kind

    def _landmarks(self, codes: Codes, magnitude: Codes) -> list[tuple[str, "np.ndarray"]]:
        """Kinds that are told by magnitude codes, the later ones going first."""
        fmt = self.fmt
        if isinstance(fmt, Float):
            normal = 1 << fmt.man
            tiny = (magnitude > 0) & (magnitude < normal)
            specials = magnitude > fmt.max_code
            infinite = specials & (magnitude == fmt.max_code + 1) if fmt.has_inf else np.zeros_like(specials)
            nan = codes == fmt.nan_code if fmt.specials == "fnuz" else specials & ~infinite
            return [
                ("smallest normal", magnitude == normal),
                ("largest", magnitude == fmt.max_code),
                ("subnormal", tiny),
                ("largest subnormal", tiny & (magnitude == normal - 1)),
                ("smallest subnormal", tiny & (magnitude == 1)),
                ("zero", (magnitude == 0) | tiny if not fmt.subnormals else magnitude == 0),
                ("infinite", infinite),
                ("NaN", nan),
            ]
        found = [("largest", magnitude == self.grid.max_code), ("smallest", magnitude == 1), ("zero", magnitude == 0)]
        if isinstance(fmt, Fixed):
            # The end of the range below zero is one further out.
            return [*found, ("largest", (magnitude == self.grid.top) & (self.grid.unsigned(codes)[0] == 1))]
        return [*found, ("NaN", codes == fmt.nan_code)]


@dataclass(frozen=True)
class Regimes:
    """Regimes of the codes of a posit format: what each run of bits counts, with the number's sign.

    Parameters
    ----------
    fmt : Posit
    """

    fmt: Posit

    @cached_property
    def counts(self) -> range:
        """What runs count: of zeros below, of ones from 0 up."""
        return range(-(self.fmt.width - 2), self.fmt.width - 1)

    @cached_property
    def signed(self) -> tuple[str, ...]:
        """Regimes with signs."""
        return tuple(f"{sign} regime {k}" for sign in "+-" for k in self.counts)

    def places(self, codes: Codes) -> Places:
        """Places of codes among these; zero and NaR have no regime."""
        sign, exponent, _ = Grid.of(self.fmt).parts(codes)
        place = sign * len(self.counts) + (exponent >> self.fmt.es) - self.counts[0]
        return np.where((codes == 0) | (codes == self.fmt.nan_code), NONE, place)


def some_codes(fmt: Format) -> Codes:
    """All codes of a narrow format; of a wide one some, every boundary and power of two among them."""
    if fmt.width <= ALL_BITS:
        return np.arange(1 << fmt.width, dtype=np.uint64)
    grid, rng = Grid.of(fmt), np.random.default_rng(0)
    anywhere = rng.integers(0, (1 << fmt.width) - 1, SOME, dtype=np.uint64, endpoint=True)
    powers = np.arange(grid.quantum, grid.emax + 1)
    zero = np.zeros(len(powers), dtype=np.uint64)
    signs = [grid.compose(np.full_like(powers, sign), powers, zero) for sign in (0, 1)]
    return np.concatenate([grid.landmarks(), anywhere, *signs])
