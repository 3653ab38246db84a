"""Tables of line segments with exact coefficients.

A table defines a piecewise rational function. The unit, the golden model and the exact model round its value once, to
the output format.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from halfulp.hdl.formats import Format, Rounding, Saturation, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.checks import check_int, check_one_of
from halfulp.hdl.formats.rounding import MAX_RANDOM_BITS

from .pieces import Piece, PowerSum, ceiling, check_bits, check_holds, last_place
from .ranges import ValueRange

SYMMETRIES = ("odd", "even", "point", "linear")
"""Symmetries; f(-x) is -f(x), f(x), centre - f(x) or f(x) - x."""

REDUCTIONS = ("exp2", "reciprocal", "rsqrt", "log2")
"""Reductions of f to a function g on a short interval; see `Segments`."""

DOMAINS = {"exp2": (0, 1), "reciprocal": (1, 2), "rsqrt": (1, 4), "log2": (1, 2)}
"""Half-open intervals [low, high) of reduced arguments."""

MAX_POWER = 1 << 13
"""Bound on the magnitude of exponents of `exp2`; results beyond it exceed the range of every format."""

MAX_PIECES, MAX_FRACTION = 1 << 12, 48
"""Maximum number of pieces, and of fraction bits of `exp2`."""

Special = Fraction | str
"""Value of a special case: a fraction, ``inf``, ``-inf``, ``nan`` or ``-0``."""

_SPECIALS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "-0": -0.0}


def _coefficients(text: str) -> list[Fraction]:
    """Parse start, slope and intercept of a piece."""
    coefficients = [Fraction(number) for number in text.split()]
    if len(coefficients) != 3:
        raise ValueError(f"a piece has a start, a slope and an intercept, not {len(coefficients)} numbers")
    return coefficients


@dataclass(frozen=True)
class Segments:
    """Piecewise linear function with exact coefficients.

    The value at a number x of ``fmt`` is computed exactly in these steps. A matching special value is the result.
    Otherwise the symmetry folds x to t = abs(x), and the reduction maps t to the argument. The last piece that
    starts at or below the argument (the first piece if there is none) gives ``slope * argument + intercept``.
    Reduction and symmetry are then undone. A unit rounds this value once, to ``out``. A zero is +0, or -0 at a
    negative x of an odd function.

    Parameters
    ----------
    name : str
        Name of the function: letters, digits and underscores.
    fmt, out : Format
        Formats of the argument and of the value.
    slope : Format or PowerSum
        Format of the slopes.
    intercept : Format
        Format of the intercepts.
    pieces : tuple of Piece
        Pieces by ascending start. A saturated region is a piece of slope 0.
    symmetry : str, optional
        Definition of f(-x) by pieces for x >= 0. ``odd``: -f(x); ``even``: f(x); ``point``: centre - f(x), as the
        sigmoid has with centre 1; ``linear``: f(x) - x, as softplus, SiLU and GELU have.
    centre : Fraction
        Centre of symmetry ``point``.
    reduction : str, optional
        Reduction to a function g, which the pieces approximate. ``exp2``: t * factor, floored to ``fraction`` fraction
        bits, is k + r with an integer k and 0 <= r < 1, and f is g(r) * 2^k. ``reciprocal``: t is m * 2^e with 1 <= m <
        2, and f is g(m) * 2^-e. ``rsqrt``: t is m * 4^h with 1 <= m < 4, and f is g(m) * 2^-h. ``log2``: t is m * 2^e
        with 1 <= m < 2, and f is e + g(m).
    factor : Fraction
        Factor of ``exp2``; for the exponential function log2(e), rounded to finitely many bits.
    fraction : int
        Fraction bits of ``exp2``.
    nan, inf, minus_inf, zero, minus_zero, negative : Fraction or str, optional
        Special values at NaN, the infinities, the zeros, and every finite x below zero: a fraction, ``inf``, ``-inf``,
        ``nan`` or ``-0``. With None the pieces give the value, and at an infinity the limit of the outermost piece.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type, is out of range or has no effect with the others, or if a format does not
        hold a coefficient.
    """

    name: str
    fmt: Format
    out: Format
    slope: Format | PowerSum
    intercept: Format
    pieces: tuple[Piece, ...]
    symmetry: str | None = None
    centre: Fraction = Fraction(1)
    reduction: str | None = None
    factor: Fraction = Fraction(1)
    fraction: int = 0
    nan: Special = "nan"
    inf: Special | None = None
    minus_inf: Special | None = None
    zero: Special | None = None
    minus_zero: Special | None = None
    negative: Special | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_folding()
        self._check_reduction()
        self._check_pieces()
        self._check_specials()

    def __hash__(self) -> int:
        return hash(self.text)

    # Checks -------------------------------------------------------------------------------------------

    def _check_kinds(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"the name of a function must be a string, not {type(self.name).__name__}")
        if not self.name.replace("_", "a").isalnum() or not self.name.isascii():
            raise ValueError(f"invalid function name {self.name!r}: expected letters, digits and underscores")
        kinds = dict.fromkeys(("fmt", "out", "intercept"), (Format,)) | {"slope": (Format, PowerSum)}
        for what, allowed in (kinds | dict.fromkeys(("centre", "factor"), (Fraction,))).items():
            if not isinstance(value := getattr(self, what), allowed):
                expected = " or a ".join(kind.__name__ for kind in allowed)
                raise TypeError(f"{what} of {self.name} must be a {expected}, not {type(value).__name__}")
        check_int("fraction", self.fraction, "table of segments", 0, MAX_FRACTION)

    def _check_folding(self) -> None:
        if self.symmetry is not None:
            check_one_of("symmetry", self.symmetry, SYMMETRIES)
        if self.symmetry != "point" and self.centre != 1:
            raise ValueError(f"centre {self.centre} does nothing without symmetry point")
        check_bits(self.centre)
        if self.symmetry is not None and self.negative is not None:
            raise ValueError(
                f"{self.name} has symmetry {self.symmetry}, which gives the values below zero: omit negative"
            )

    def _check_reduction(self) -> None:
        if self.reduction is not None:
            check_one_of("reduction", self.reduction, REDUCTIONS)
        if self.reduction != "exp2" and (self.factor != 1 or self.fraction != 0):
            raise ValueError("factor and fraction do nothing without reduction exp2")
        if self.reduction is not None and self.symmetry not in (None, "odd"):
            raise ValueError(f"symmetry {self.symmetry} cannot be combined with a reduction; use odd or none")
        if self.reduction == "exp2":
            if self.symmetry is not None:
                raise ValueError("symmetry odd cannot be combined with exp2, whose values are positive")
            if self.factor <= 0 or self.factor.denominator & (self.factor.denominator - 1):
                raise ValueError(
                    f"factor of exp2 must be positive with a power of two as denominator, not {self.factor}"
                )
        elif self.reduction is not None:
            if self.zero is None or self.minus_zero is None:
                raise ValueError(f"{self.reduction} has no value at zero; give zero and minus_zero")
            if self.symmetry is None and self.negative is None and self.fmt.lowest < 0:
                raise ValueError(f"{self.reduction} has no value below zero; give negative, or symmetry odd")

    def _check_pieces(self) -> None:
        if not isinstance(self.pieces, tuple) or not all(isinstance(piece, Piece) for piece in self.pieces):
            raise TypeError(f"pieces of {self.name} must be a tuple of Piece")
        if not 1 <= len(self.pieces) <= MAX_PIECES:
            raise ValueError(f"{self.name} must have 1 to {MAX_PIECES} pieces, not {len(self.pieces)}")
        starts = [piece.start for piece in self.pieces]
        if any(after <= before for before, after in pairwise(starts)):
            raise ValueError(f"starts of the pieces of {self.name} must be in ascending order")
        for piece in self.pieces:
            if isinstance(self.slope, PowerSum):
                self.slope.check(piece.slope)
            else:
                check_holds(self.slope, piece.slope, "slope")
            check_holds(self.intercept, piece.intercept, "intercept")
        for negative in (False, True):
            for piece in self.unfolded(negative):
                for value in (piece.slope, piece.intercept):
                    check_bits(value)
        if self.reduction == "exp2":
            self._check_exp2()

    def _check_exp2(self) -> None:
        """Check that all values of exp2 are positive and that large arguments saturate or underflow."""
        if self.extremes[0] <= 0:
            raise ValueError("the pieces of exp2 must be above zero")
        if self.out.wraps:
            raise ValueError(f"exp2 needs a result format that saturates, and {self.out} wraps")
        if self.exponent_limit(MAX_RANDOM_BITS) > MAX_POWER:
            raise ValueError(f"exp2 cannot use {self.out}, whose range is near or beyond 2^{MAX_POWER}")

    def exponent_limit(self, places: int) -> int:
        """Return an exponent k of ``exp2`` beyond which results do not change.

        All values of g overflow at k; at -k all are more than ``places`` bits below the last place.
        """
        low, high = self.extremes
        up = floor_log2(self.out.largest) - floor_log2(low) + 2
        down = floor_log2(high) + 2 - self.out.quantum + places + 1
        return max(up, down, 1)

    def _check_specials(self) -> None:
        for what in ("nan", "inf", "minus_inf", "zero", "minus_zero", "negative"):
            special = getattr(self, what)
            if isinstance(special, str):
                if special not in _SPECIALS:
                    raise ValueError(
                        f"invalid value {special!r} of {what}: expected a fraction or one of {', '.join(_SPECIALS)}"
                    )
            elif isinstance(special, Fraction):
                check_bits(special)
            elif special is not None or what == "nan":
                raise TypeError(f"{what} of {self.name} must be a Fraction or a string, not {type(special).__name__}")

    # Text -------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        """Text with one line per field; `read` is the inverse."""
        lines = []
        for item in fields(self):
            if item.name == "pieces":
                lines += [f"piece {piece.start} {piece.slope} {piece.intercept}" for piece in self.pieces]
            elif (value := getattr(self, item.name)) is not None:
                lines.append(f"{item.name} {value}")
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, text: str) -> "Segments":
        """Parse the text of a table.

        Raises
        ------
        TypeError, ValueError
            If a line is invalid, a field is missing, or as for the constructor.
        """
        values: dict[str, object] = {}
        pieces = []
        known = {item.name: item for item in fields(cls) if item.name != "pieces"}
        for number, line in enumerate(text.splitlines(), 1):
            key, _, value = line.partition(" ")
            if key != "piece" and key not in known:
                raise ValueError(f"line {number} has the unknown field {key!r}; expected piece, {', '.join(known)}")
            try:
                if key == "piece":
                    pieces.append(Piece(*_coefficients(value)))
                else:
                    values[key] = cls._parsed(key, value)
            except (ValueError, ZeroDivisionError) as error:
                raise ValueError(f"line {number}: {error}") from None
        missing = [name for name, item in known.items() if item.default is MISSING and name not in values]
        if missing:
            raise ValueError(f"the table has no {', '.join(missing)}")
        return cls(pieces=tuple(pieces), **values)  # type: ignore[arg-type]  # the constructor checks them

    @staticmethod
    def _parsed(key: str, value: str) -> object:
        if key in ("fmt", "out", "intercept"):
            return parse(value)
        if key == "slope":
            return PowerSum(int(value[5:])) if value.startswith("pow2x") else parse(value)
        if key in ("name", "symmetry", "reduction") or value in _SPECIALS:
            return value
        return int(value) if key == "fraction" else Fraction(value)

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits of the SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    def __str__(self) -> str:
        return f"{self.name}{len(self.pieces)}-{self.digest}"

    # Values --------------------------------------------------------------------------------------------

    def piece_at(self, argument: Fraction) -> Piece:
        """Return the piece of an argument that is folded and reduced."""
        return self.pieces[max(bisect_right(self._starts, argument) - 1, 0)]

    @cached_property
    def _starts(self) -> list[Fraction]:
        return [piece.start for piece in self.pieces]

    @cached_property
    def reached(self) -> tuple[Fraction, ...]:
        """First number of ``fmt``, folded, on the second piece, on the third, and so on.

        Pieces beyond the last number are omitted. Undefined for tables with a reduction.
        """
        # The lowest number of two's complement has a larger magnitude than the largest.
        last = max(self.fmt.largest, -self.fmt.lowest) if self.symmetry else self.fmt.largest
        starts = [start for start in self._starts[1:] if start <= last]
        numbers = (ceiling(self.fmt, start) for start in starts)
        return tuple(last if number is None else number for number in numbers)

    @property
    def by_code(self) -> bool:
        """True if the codes of ``fmt`` are unordered, so that only a table by code finds the piece of a number."""
        return self.reduction is None and self.fmt.code_order == "table"

    @cached_property
    def places(self) -> list[int]:
        """Index of the piece of each code of ``fmt``, folded; the entry of NaN is arbitrary."""
        starts = self._starts[1 : len(self.reached) + 1]
        numbers: list[Any] = [abs(number) if self.symmetry else number for number in self.fmt.values]
        return [sum(start <= number for start in starts) for number in numbers]

    @cached_property
    def extremes(self) -> tuple[Fraction, Fraction]:
        """Bounds on the values of the lines, of g with a reduction; special values are not included."""
        if self.reduction is not None:
            low, high = (Fraction(end) for end in DOMAINS[self.reduction])
            sides = [(self.pieces, 1, low, high)]
        elif self.symmetry is None:
            sides = [(self.pieces, 1, self.fmt.lowest, self.fmt.largest)]
        else:
            sides = [
                (self.unfolded(negative), sign, Fraction(0), end)
                for negative, sign, end in ((False, 1, self.fmt.largest), (True, -1, -self.fmt.lowest))
            ]
        values = []
        for pieces, sign, low, high in sides:
            starts = [low, *self._starts[1:], high]
            for piece, start, end in zip(pieces, starts, starts[1:], strict=False):
                start, end = max(start, low), min(end, high)
                if start <= end:
                    values += [piece.at(sign * start), piece.at(sign * end)]
        return min(values), max(values)

    def check_exact(self) -> None:
        """Raise ValueError unless the output format holds every value exactly."""
        if self.reduction is not None:
            raise ValueError(f"rounding exact is not possible with {self.reduction}: choose a rounding mode")
        lines = [piece for negative in (False, True) for piece in self.unfolded(negative)]
        specials = [value for value in (self.zero, self.minus_zero, self.negative) if isinstance(value, Fraction)]
        terms = [piece.slope * self.fmt.smallest for piece in lines] + [piece.intercept for piece in lines] + specials
        quantum = min((last_place(term) for term in terms if term), default=0)
        values = [Fraction(0), *self.extremes, *specials]
        low, high = min(values), max(values)
        smallest = Fraction(2) ** quantum
        span = ValueRange(
            quantum=quantum,
            lowest=low,
            largest=high,
            smallest=smallest,
            precision=floor_log2(max(-low, high, smallest)) - quantum + 1,
            inf=self.fmt.has_inf,
            nan=self.fmt.has_nan,
        )
        span.check_fits(self.out, f"value of {self}")

    def value(self, x: Fraction) -> Fraction:
        """Return the exact value at a number; special values are not applied.

        Raises
        ------
        ValueError
            If the reduction is a logarithm or a power, and the number is not positive.
        """
        if self.symmetry is None or x >= 0:
            return self._value_of(x)
        value = self._value_of(-x)
        return {"odd": -value, "even": value, "point": self.centre - value, "linear": value + x}[self.symmetry]

    def _value_of(self, t: Fraction) -> Fraction:
        """Return the value at a folded number."""
        two = Fraction(2)
        if self.reduction is None:
            return self.piece_at(t).at(t)
        if self.reduction == "exp2":
            scaled = Fraction(math.floor(t * self.factor * (1 << self.fraction)), 1 << self.fraction)
            k = math.floor(scaled)
            return self.piece_at(scaled - k).at(scaled - k) * two ** min(max(k, -MAX_POWER), MAX_POWER)
        if t <= 0:
            raise ValueError(f"{self.reduction} of {t} does not exist; the number must be above zero")
        e = floor_log2(t)
        if self.reduction == "rsqrt":
            half = e // 2
            m = t / two ** (2 * half)
            return self.piece_at(m).at(m) / two**half
        m = t / two**e
        g = self.piece_at(m).at(m)
        return g / two**e if self.reduction == "reciprocal" else e + g

    def number(self, x: Fraction | float, negative: bool) -> tuple[Fraction | float, bool]:
        """Return the exact value at a finite or special number: magnitude, possibly infinite or NaN, and sign.

        Parameters
        ----------
        x : Fraction or float
            Signed number; inf, -inf and nan are floats.
        negative : bool
            Sign of x, needed for zeros.
        """
        if (special := self._special(x, negative)) is not None:
            return _signed(special)
        if isinstance(x, float):
            return _signed(self.limit(negative))
        value = self.value(x)
        return abs(value), value < 0 or (value == 0 and negative and self.symmetry == "odd")

    def code(self, code: int, rounding: Rounding, saturate: Saturation, random: int = 0) -> int:
        """Return the code of the value at a code of ``fmt``, rounded once to ``out``."""
        magnitude, negative = self.number(self.fmt.decode(code), self.fmt.negative(code))
        if isinstance(magnitude, float):
            return self.out.nan_code if math.isnan(magnitude) else self.out.infinite(negative, saturate)
        return self.out.encode_magnitude(magnitude, negative, rounding, random, saturate)

    def _special(self, x: Fraction | float, negative: bool) -> Special | None:
        """Return the special value at a number, or None."""
        if isinstance(x, float):
            if math.isnan(x):
                return self.nan
            return self.minus_inf if negative else self.inf
        if x == 0:
            return self.minus_zero if negative else self.zero
        return self.negative if x < 0 else None

    def limit(self, negative: bool) -> Special:
        """Return the limit of the pieces as x goes to an infinity."""
        if self.reduction is not None:
            return self._reduced_limit(negative)
        piece = self.unfolded(negative)[0 if negative and self.symmetry is None else -1]
        if piece.slope == 0:
            return "-0" if piece.intercept == 0 and negative and self.symmetry == "odd" else piece.intercept
        return "-inf" if (piece.slope < 0) != negative else "inf"

    def _reduced_limit(self, negative: bool) -> Special:
        down = Fraction(0) if not (negative and self.symmetry == "odd") else "-0"
        if self.reduction == "exp2":
            return Fraction(0) if negative else "inf"
        if negative and self.symmetry is None and self.negative is not None:
            return self.negative
        return "inf" if self.reduction == "log2" else down

    def unfolded(self, negative: bool) -> tuple[Piece, ...]:
        """Return lines in x, not abs(x), for x of one sign; starts are those of abs(x).

        Folding only selects other coefficients. Pieces with a reduction are returned unchanged.
        """
        if not negative or self.symmetry is None or self.reduction is not None:
            return self.pieces
        return tuple(Piece(piece.start, *line) for piece, line in zip(self.pieces, self._mirrored(), strict=True))

    def _mirrored(self) -> Iterator[tuple[Fraction, Fraction]]:
        """Yield slopes and intercepts of the lines for x below zero."""
        for piece in self.pieces:
            a, b = piece.slope, piece.intercept
            # At x = -t: -(a t + b); a t + b; centre - (a t + b); (a t + b) - t.
            mirrored = {"odd": (a, -b), "even": (-a, b), "point": (a, self.centre - b), "linear": (1 - a, b)}
            yield mirrored[str(self.symmetry)]


def _signed(special: Special) -> tuple[Fraction | float, bool]:
    """Return magnitude and sign of a special value."""
    if isinstance(special, Fraction):
        return abs(special), special < 0
    number = _SPECIALS[special]
    if number == 0:
        return Fraction(0), True
    return abs(number), number < 0
