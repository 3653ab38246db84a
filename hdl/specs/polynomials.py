"""Table of polynomials that computes a function of one number, as integers.

A table reduces the significand and the exponent of a number to an index and a distance t of ``rest`` bits, and computes
``v = c0 + floor((c1 + floor((c2 + ...) * u / 2^w)) * t / 2^rest)`` with the coefficients of the index, where u are the
w upper bits of t, and ``inner`` has w for c2 and each further coefficient. In tables for correct rounding, the true
value of the function is in the open interval from v to v + 1, or is v for the results that are exact; in those for
faithful rounding, `halfulp.hdl.fit.faithful` bounds its distance from v.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, NamedTuple, Self

POWER, LOGARITHM, ANGLE, BINADES, RATIO, TURN = REDUCTIONS = (
    "power",
    "logarithm",
    "angle",
    "binades",
    "ratio",
    "turn",
)
"""Reductions of the argument.

``power``: x * factor = n + f with an integer n and 0 <= f < 1; the value is 2^n * v. ``logarithm``: x = 2^e * m with
1 <= m < 2, and the value e * factor + v. ``angle``: abs(x) * 2 / pi = n + f, where n is the quadrant. ``binades``: each
binade of the argument has polynomials of its own. ``ratio``: x = 2^e * m with 3/4 <= m < 3/2, and the value
e * factor + (m - 1) * v. ``turn``: n and f as for ``angle``, and the value f * v.
"""

KINDS = {
    "exp": POWER,
    "exp2": POWER,
    "log": LOGARITHM,
    "log2": LOGARITHM,
    "sin": ANGLE,
    "cos": ANGLE,
} | dict.fromkeys(("tanh", "sigmoid", "gelu", "silu", "erf"), BINADES)
"""Reduction of each function."""

ODD = ("tanh", "erf", "sin")
"""Odd functions."""


class Result(NamedTuple):
    """Number that rounds as the value of a function at a code; ``math.inf`` and ``math.nan`` are themselves.

    ``invalid`` and ``pole`` are exception flags: NaN without an operand that is NaN, and an infinity of a number.
    """

    magnitude: Fraction | float
    negative: bool
    invalid: bool = False
    pole: bool = False


@dataclass(frozen=True)
class Polynomials:
    """Polynomials of a function for all numbers of a format.

    Parameters
    ----------
    reduction : str
        One of `REDUCTIONS`.
    precision : int
        Bits of the significand.
    segments : int
        Number of leading bits of the reduced argument that select a polynomial; 0 for ``binades``.
    rest : int
        Bits of t.
    inner : tuple of int
        Bits of the upper parts of t that the coefficients from c2 on multiply; see above.
    value : int
        Fraction bits of v.
    rows : tuple of tuples of int
        Coefficients c0, c1, ... by index.
    factor : int
        Constant of the reductions ``power``, ``logarithm`` and ``ratio``.
    places : int
        Fraction bits of ``factor``.
    fraction : int
        Fraction bits of the reduced argument of ``power``, ``angle`` and ``turn``.
    low, high : int
        For ``binades``, arguments below 2^low share polynomials, and so do those from 2^high on. For ``angle`` and
        ``turn``, arguments below 2^low need none. For ``power``, exponent from which on results are out of range.
    groups : tuple of (int, int)
        For ``binades``, by sign and binade: the number of leading bits of the fraction that select a polynomial, and
        the index of the first one. The other bits, with zeros below, are t.
    exponents : tuple of (int, bool)
        For ``binades``, exponent of v by index, and true if the exponent of the argument is added.
    multiples : tuple of int
        For ``angle`` and ``turn``, the last place of an argument times 2 / pi modulo 4, by exponent from ``low`` on.
    leading : int
        For ``turn``, number of leading bits of f that v multiplies.
    bound : float
        Largest error of a result in ulp, in tables for faithful rounding.
    """

    reduction: str
    precision: int
    segments: int
    rest: int
    inner: tuple[int, ...]
    value: int
    rows: tuple[tuple[int, ...], ...]
    factor: int = 0
    places: int = 0
    fraction: int = 0
    low: int = 0
    high: int = 0
    groups: tuple[tuple[int, int], ...] = ()
    exponents: tuple[tuple[int, bool], ...] = ()
    multiples: tuple[int, ...] = ()
    leading: int = 0
    bound: float = 0.0

    @property
    def text(self) -> str:
        """Table as JSON."""
        return json.dumps({item.name: getattr(self, item.name) for item in fields(self)})

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a table from JSON."""
        given: Mapping[str, Any] = json.loads(text)
        tuples = {name: tuple(map(tuple, given[name])) for name in ("rows", "groups", "exponents")}
        return cls(**{**given, **tuples, **{name: tuple(given[name]) for name in ("inner", "multiples")}})
