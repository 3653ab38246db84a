"""Tables of line segments: exact coefficients, and the exact function that they stand for.

That function is rational. A unit, its golden model and the oracle give it rounded once, to the output format.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from halfulp.hdl.formats import Format, Rounding, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.checks import check_int, check_one_of
from halfulp.hdl.formats.rounding import MAX_RANDOM_BITS

from .pieces import Piece, PowerSum, ceiling, check_bits, check_holds, last_place
from .ranges import ValueRange

SYMMETRIES = ("odd", "even", "point", "linear")
"""Symmetries, by f(-x): -f(x), f(x), centre - f(x), f(x) - x."""

REDUCTIONS = ("exp2", "reciprocal", "rsqrt", "log2")
"""Reductions of f to a function g on a short interval, see `Segments`."""

DOMAINS = {"exp2": (0, 1), "reciprocal": (1, 2), "rsqrt": (1, 4), "log2": (1, 2)}
"""Intervals of reduced arguments: from the first number to below the second."""

MAX_POWER = 1 << 13
"""Powers of two of `exp2` are no more than this in magnitude: what is farther out is beyond every format anyway."""

MAX_PIECES, MAX_FRACTION = 1 << 12, 48
"""Most pieces, and bits behind the point of `exp2`."""

Special = Fraction | str
"""A value of its own: a fraction, ``inf``, ``-inf``, ``nan`` or ``-0``."""

_SPECIALS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "-0": -0.0}


@dataclass(frozen=True)
class Segments:
    """A function as line segments.

    Its value at x, a number of ``fmt``, is what ``specials`` say of x, if they do; else x is folded by the symmetry to
    t = abs(x), t is reduced, the last piece that starts at the argument or before (the first one, if none does) gives
    ``slope * argument + intercept``, and reduction and symmetry are undone; all that exactly. What a unit gives is
    this value, rounded once to ``out``. A value of zero is +0, and -0 at a negative x of an odd function.

    Parameters
    ----------
    name : str
        Of the function: letters, digits and underscores.
    fmt, out : Format
        Formats of argument and value.
    slope : Format or PowerSum
        Format of the slopes.
    intercept : Format
        Format of the intercepts.
    pieces : tuple of Piece
        By rising start. A saturated region is a piece of slope 0.
    symmetry : str, optional
        Pieces are for x >= 0, and f(-x) is: ``odd``: -f(x); ``even``: f(x); ``point``: centre - f(x), as the sigmoid's
        is with 1; ``linear``: f(x) - x, as that of softplus, SiLU and GELU is.
    centre : Fraction
        Of ``point``.
    reduction : str, optional
        ``exp2``: t * factor, floored to ``fraction`` bits behind the point, is k + r with an integer k and 0 <= r < 1,
        and f is g(r) * 2^k. ``reciprocal``: t is m * 2^e with 1 <= m < 2, and f is g(m) * 2^-e. ``rsqrt``: t is
        m * 4^h with 1 <= m < 4, and f is g(m) * 2^-h. ``log2``: t is m * 2^e with 1 <= m < 2, and f is e + g(m).
        The pieces are g's.
    factor : Fraction
        Of ``exp2``: log2(e) for the exponential function, in as many bits as are wanted.
    fraction : int
        Of ``exp2``.
    nan, inf, minus_inf, zero, minus_zero, negative : Fraction or str, optional
        Specials: the value at NaN, at the infinities, at the zeros, and at every finite x below zero; ``inf``,
        ``-inf``, ``nan`` and ``-0`` besides fractions. None leaves it to the pieces (an infinity's value is the limit
        of the piece that reaches it).

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind, out of range, or means nothing beside the others, or a coefficient is not
        held by its format.
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
            raise TypeError(f"the name of a function is a text, not {type(self.name).__name__}")
        if not self.name.replace("_", "a").isalnum() or not self.name.isascii():
            raise ValueError(f"the name of a function is of letters, digits and underscores, not {self.name!r}")
        kinds = dict.fromkeys(("fmt", "out", "intercept"), (Format,)) | {"slope": (Format, PowerSum)}
        for what, allowed in (kinds | dict.fromkeys(("centre", "factor"), (Fraction,))).items():
            if not isinstance(value := getattr(self, what), allowed):
                expected = " or a ".join(kind.__name__ for kind in allowed)
                raise TypeError(f"{what} of {self.name} is a {expected}, not {type(value).__name__}")
        check_int("fraction", self.fraction, "table of segments", 0, MAX_FRACTION)

    def _check_folding(self) -> None:
        if self.symmetry is not None:
            check_one_of("symmetry", self.symmetry, SYMMETRIES)
        if self.symmetry != "point" and self.centre != 1:
            raise ValueError(f"centre {self.centre} does nothing; only symmetry point has one")
        check_bits(self.centre)
        if self.symmetry is not None and self.negative is not None:
            raise ValueError(f"{self.name} is {self.symmetry}: below zero it has no value of its own")

    def _check_reduction(self) -> None:
        if self.reduction is not None:
            check_one_of("reduction", self.reduction, REDUCTIONS)
        if self.reduction != "exp2" and (self.factor != 1 or self.fraction != 0):
            raise ValueError("factor and fraction do nothing; only reduction exp2 has them")
        if self.reduction is not None and self.symmetry not in (None, "odd"):
            raise ValueError(f"{self.symmetry} symmetry is refused with a reduction; odd or none goes with it")
        if self.reduction == "exp2":
            if self.symmetry is not None:
                raise ValueError("symmetry odd is refused with exp2, which has values of one sign")
            if self.factor <= 0 or self.factor.denominator & (self.factor.denominator - 1):
                raise ValueError(f"factor {self.factor} of exp2 is no positive number of finitely many bits")
        elif self.reduction is not None:
            if self.zero is None or self.minus_zero is None:
                raise ValueError(f"{self.reduction} has no value at zero; name zero and minus_zero")
            if self.symmetry is None and self.negative is None:
                raise ValueError(f"{self.reduction} is of numbers above zero; name what it is below, or make it odd")

    def _check_pieces(self) -> None:
        if not isinstance(self.pieces, tuple) or not all(isinstance(piece, Piece) for piece in self.pieces):
            raise TypeError(f"pieces of {self.name} are a tuple of Piece")
        if not 1 <= len(self.pieces) <= MAX_PIECES:
            raise ValueError(f"{self.name} has {len(self.pieces)} pieces; there are 1 to {MAX_PIECES}")
        starts = [piece.start for piece in self.pieces]
        if any(after <= before for before, after in pairwise(starts)):
            raise ValueError(f"pieces of {self.name} do not start one after the other")
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
        """Raise ValueError unless large arguments end in saturation, or in results too small to be told apart."""
        if self.extremes[0] <= 0:
            raise ValueError("a line of exp2 reaches zero, and all values must be above it")
        if self.out.wraps:
            raise ValueError(f"exp2 in {self.out} is refused: it overflows by any number of bits; make it saturate")
        if self.unseen(MAX_RANDOM_BITS) > MAX_POWER:
            raise ValueError(f"exp2 in {self.out} is refused, which has powers of two near or beyond 2^{MAX_POWER}")

    def unseen(self, places: int) -> int:
        """Of ``exp2``, a k at which all values of g overflow, and at minus which none reaches ``places`` below a last
        place: no other is farther out for a result."""
        low, high = self.extremes
        up = floor_log2(self.out.largest) - floor_log2(low) + 2
        down = floor_log2(high) + 2 - self.out.quantum + places + 1
        return max(up, down, 1)

    def _check_specials(self) -> None:
        for what in ("nan", "inf", "minus_inf", "zero", "minus_zero", "negative"):
            special = getattr(self, what)
            if isinstance(special, str):
                if special not in _SPECIALS:
                    raise ValueError(f"{what} {special!r} is no value; there are fractions, {', '.join(_SPECIALS)}")
            elif isinstance(special, Fraction):
                check_bits(special)
            elif special is not None or what == "nan":
                raise TypeError(f"{what} of {self.name} is a Fraction or a text, not {type(special).__name__}")

    # Text -------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        """All of its fields, a line each; `read` is the inverse."""
        lines = []
        for item in fields(self):
            if item.name == "pieces":
                lines += [f"piece {piece.start} {piece.slope} {piece.intercept}" for piece in self.pieces]
            elif (value := getattr(self, item.name)) is not None:
                lines.append(f"{item.name} {value}")
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, text: str) -> "Segments":
        """The segments of a text."""
        found: dict[str, object] = {}
        pieces = []
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            if key == "piece":
                pieces.append(Piece(*map(Fraction, value.split())))
            elif key in ("fmt", "out", "intercept"):
                found[key] = parse(value)
            elif key == "slope":
                found[key] = PowerSum(int(value[5:])) if value.startswith("pow2x") else parse(value)
            elif key in ("name", "symmetry", "reduction") or value in _SPECIALS:
                found[key] = value
            else:
                found[key] = int(value) if key == "fraction" else Fraction(value)
        return cls(pieces=tuple(pieces), **found)  # type: ignore[arg-type]

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits that tell it from others."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    def __str__(self) -> str:
        return f"{self.name}{len(self.pieces)}-{self.digest}"

    # Values --------------------------------------------------------------------------------------------

    def piece_at(self, argument: Fraction) -> Piece:
        """The piece that an argument, folded and reduced, is on."""
        return self.pieces[max(bisect_right(self._starts, argument) - 1, 0)]

    @cached_property
    def _starts(self) -> list[Fraction]:
        return [piece.start for piece in self.pieces]

    @cached_property
    def reached(self) -> tuple[Fraction, ...]:
        """The first number of ``fmt`` that, folded, is on the second piece, on the third, and so on.

        Pieces that start beyond the last number are left out. Not for functions with a reduction.
        """
        # Folded, the lowest number of two's complement is more than the largest.
        last = max(self.fmt.largest, -self.fmt.lowest) if self.symmetry else self.fmt.largest
        starts = [start for start in self._starts[1:] if start <= last]
        numbers = (ceiling(self.fmt, start) for start in starts)
        return tuple(last if number is None else number for number in numbers)

    @property
    def by_code(self) -> bool:
        """True if only a table of all codes tells which piece a number is on: its codes are in no order."""
        return self.reduction is None and self.fmt.code_order == "table"

    @cached_property
    def places(self) -> list[int]:
        """Index of the piece that the number of each code of ``fmt`` is on, folded; that of NaN means nothing."""
        starts = self._starts[1 : len(self.reached) + 1]
        numbers: list[Any] = [abs(number) if self.symmetry else number for number in self.fmt.values]
        return [sum(start <= number for start in starts) for number in numbers]

    @cached_property
    def extremes(self) -> tuple[Fraction, Fraction]:
        """Bounds on what the lines give: with a reduction g's, without one the function's; specials aside."""
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
        """Raise ValueError unless the output format holds every value."""
        if self.reduction is not None:
            raise ValueError(f"rounding exact is refused: {self.reduction} scales values beyond any place; name a mode")
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
        """The exact value of the pieces at a number, specials aside.

        Raises
        ------
        ValueError
            If a logarithm or a power is to be taken of zero or of a number below it.
        """
        if self.symmetry is None or x >= 0:
            return self._value_of(x)
        value = self._value_of(-x)
        return {"odd": -value, "even": value, "point": self.centre - value, "linear": value + x}[self.symmetry]

    def _value_of(self, t: Fraction) -> Fraction:
        """Value at a folded number."""
        two = Fraction(2)
        if self.reduction is None:
            return self.piece_at(t).at(t)
        if self.reduction == "exp2":
            scaled = Fraction(math.floor(t * self.factor * (1 << self.fraction)), 1 << self.fraction)
            k = math.floor(scaled)
            return self.piece_at(scaled - k).at(scaled - k) * two ** min(max(k, -MAX_POWER), MAX_POWER)
        if t <= 0:
            raise ValueError(f"{self.reduction} of {t} is refused; only numbers above zero have one")
        e = floor_log2(t)
        if self.reduction == "rsqrt":
            half = e // 2
            m = t / two ** (2 * half)
            return self.piece_at(m).at(m) / two**half
        m = t / two**e
        g = self.piece_at(m).at(m)
        return g / two**e if self.reduction == "reciprocal" else e + g

    def number(self, x: Fraction | float, negative: bool) -> tuple[Fraction | float, bool]:
        """The exact value at a number or a special one: its magnitude, which may be infinite or NaN, and its sign.

        Parameters
        ----------
        x : Fraction or float
            With its sign; inf, -inf and nan as floats.
        negative : bool
            Sign of x, for zeros.
        """
        if (special := self._special(x, negative)) is not None:
            return _signed(special)
        if isinstance(x, float):
            return _signed(self.limit(negative))
        value = self.value(x)
        return abs(value), value < 0 or (value == 0 and negative and self.symmetry == "odd")

    def code(self, code: int, rounding: Rounding, saturate: bool, random: int = 0) -> int:
        """Code of the value at a code of ``fmt``, rounded once to ``out``."""
        magnitude, negative = self.number(self.fmt.decode(code), self.fmt.negative(code))
        if isinstance(magnitude, float):
            return self.out.nan_code if math.isnan(magnitude) else self.out.infinity(negative)
        return self.out.encode_magnitude(magnitude, negative, rounding, random, saturate)

    def _special(self, x: Fraction | float, negative: bool) -> Special | None:
        """Value of a number that is a special, if it is."""
        if isinstance(x, float):
            if math.isnan(x):
                return self.nan
            return self.minus_inf if negative else self.inf
        if x == 0:
            return self.minus_zero if negative else self.zero
        return self.negative if x < 0 else None

    def limit(self, negative: bool) -> Special:
        """Limit of the value as x goes to an infinity, where no special names it."""
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
        if negative and self.symmetry is None:
            assert self.negative is not None
            return self.negative
        return "inf" if self.reduction == "log2" else down

    def unfolded(self, negative: bool) -> tuple[Piece, ...]:
        """Lines whose value at x itself, not at abs(x), is the function's, for x of one sign; starts are abs(x)'s.

        To fold is no more than to choose other coefficients. Of pieces with a reduction they are as they are.
        """
        if not negative or self.symmetry is None or self.reduction is not None:
            return self.pieces
        return tuple(Piece(piece.start, *line) for piece, line in zip(self.pieces, self._mirrored(), strict=True))

    def _mirrored(self) -> Iterator[tuple[Fraction, Fraction]]:
        """Slopes and intercepts of the lines for x below zero."""
        for piece in self.pieces:
            a, b = piece.slope, piece.intercept
            # At x = -t: -(a t + b); a t + b; centre - (a t + b); (a t + b) - t.
            mirrored = {"odd": (a, -b), "even": (-a, b), "point": (a, self.centre - b), "linear": (1 - a, b)}
            yield mirrored[str(self.symmetry)]


def _signed(special: Special) -> tuple[Fraction | float, bool]:
    """Magnitude and sign of a special value."""
    if isinstance(special, Fraction):
        return abs(special), special < 0
    number = _SPECIALS[special]
    if number == 0:
        return Fraction(0), True
    return abs(number), number < 0
