"""Intervals that the approximations of a function must hit so that every rounding of every result is correct.

A result lies in an interval between two neighbours of a grid, on which all numbers and ties of its format are; an
approximation in the same interval is rounded as the result itself (Lim and Nagarakatte, POPL 2022).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp

from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.function import FUNCTIONS as NAMES
from halfulp.hdl.specs.polynomials import ODD, Result

from .functions import FUNCTIONS, GUARD, Function, fraction_of

Integers = np.ndarray[Any, np.dtype[np.int64]]

DOUBLE = 53
"""Precision at which a value is approximated first."""

MOST_BITS = 1 << 14
"""Precision at which a value that is on no side of a number is an error."""

FAR = 1 << 12
"""Exponent beyond those of all results."""


def _power(x: Fraction) -> Fraction | None:
    return Fraction(2) ** int(x) if x.denominator == 1 and abs(x) < FAR else None


ROWS: dict[str, Function] = {
    **{name: FUNCTIONS[name] for name in NAMES if name in FUNCTIONS},
    "exp2": Function("exp2", lambda x: mp.power(2, x), _power),
    "log": Function("log", mp.log, lambda x: Fraction(0) if x == 1 else None, domain=FUNCTIONS["log2"].domain),
    "sin": Function("sin", mp.sin, lambda x: None if x else x),
    "cos": Function("cos", mp.cos, lambda x: None if x else x + 1),
}
"""Functions that units round correctly."""


LIBM: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "exp2": math.exp2,
    "log": math.log,
    "log2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "erf": math.erf,
}
"""Functions of the C library, whose relative errors are below 2^-40 where values are above 2^-1000."""


class Cell(NamedTuple):
    """Interval of a result; see `Cells`."""

    floor: int
    unit: int
    exact: bool
    free: bool
    below: bool


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers of a format and the intervals of their results, as integers.

    A number is ``(-1)^negative * significand * 2^(exponent - precision + 1)``. The magnitude of its result is in the
    open interval from ``floor`` to ``floor + 1`` in units of 2^``unit``, or if ``exact``, is ``floor`` of them.
    ``free`` are results beyond the range of the format, for which each large approximation does.

    Attributes
    ----------
    precision : int
    negative, exact, free : array of bool
    exponent, significand, floor, unit : array of int64
    below : array of bool
        The result is negative.
    """

    precision: int
    negative: Any
    exponent: Integers
    significand: Integers
    floor: Integers
    unit: Integers
    exact: Any
    free: Any
    below: Any

    def at(self, chosen: Any) -> "Cells":
        """Return some of the numbers, by their places or by a flag for each."""
        return Cells(self.precision, *(getattr(self, item.name)[chosen] for item in fields(self)[1:]))


def cells_of(spec: FunctionSpec) -> Cells:
    """Return the cells of a description for all finite numbers other than zero in the domain of the function.

    Numbers below zero are omitted if the function is odd or even.
    """
    function, fmt = ROWS[spec.function], spec.a
    symmetric = spec.function in (*ODD, "cos")
    numbers = sorted(
        {value for value in fmt.values if isinstance(value, Fraction) and value and function.defined(value)}
    )
    if symmetric:
        numbers = sorted({abs(value) for value in numbers})
    precision = fmt.precision
    rows = []
    for x in numbers:
        exponent = floor_log2(abs(x))
        significand = abs(x) / Fraction(2) ** (exponent - precision + 1)
        assert significand.denominator == 1, f"{x} has more than {precision} bits"
        rows.append((x < 0, exponent, int(significand), *_cell(function, x, spec)))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Cells(precision, *columns)


def _cell(function: Function, x: Fraction, spec: FunctionSpec) -> Cell:
    """Return the cell of the result at a number."""
    o, places = spec.result, spec.unit_rounding.places
    # Formats without subnormal numbers round those below the smallest number first, with one place more.
    window, lowest = o.window + places, o.quantum - places - o.flushes
    beyond = floor_log2(max(o.largest, -o.lowest)) + 2
    exact = function.exact(x)
    if exact is not None:
        return _on_grid(abs(exact), 0, window, lowest, beyond)._replace(below=exact < 0)
    neighbour = _neighbour(function, x, max(window, spec.a.precision) + 2)
    if neighbour is not None:
        base, side = neighbour
        return _on_grid(abs(base), side, window, lowest, beyond)._replace(below=base < 0)
    bits = DOUBLE
    while bits <= MOST_BITS:
        value, reach = _value(function, x, bits)
        magnitude = abs(value)
        if magnitude < Fraction(2) ** (lowest - 2) or magnitude >= Fraction(2) ** (beyond + 1):
            large = magnitude >= 1
            return Cell(int(large), beyond if large else lowest, False, large, value < 0)
        low, high = magnitude * (1 - reach), magnitude * (1 + reach)
        unit = Fraction(2) ** max(floor_log2(low) - window + 1, lowest)
        if low // unit == high // unit:
            return _on_grid(low, 1, window, lowest, beyond)._replace(below=value < 0)
        bits *= 2
    raise ValueError(f"{function.name} at {float(x):g} is too near a number of {o} to be rounded")


def _on_grid(magnitude: Fraction, side: int, window: int, lowest: int, beyond: int) -> Cell:
    """Return the cell of a magnitude, or of a number just above (1) or below it (-1)."""
    if magnitude == 0:
        return Cell(0, lowest, True, False, False)
    top = floor_log2(magnitude)
    if side < 0 and magnitude == Fraction(2) ** top:
        top -= 1
    unit = max(top - window + 1, lowest)
    places = magnitude / Fraction(2) ** unit
    whole = places.denominator == 1
    floor = int(places) - (side < 0 and whole)
    return Cell(floor, unit, side == 0 and whole, top > beyond, False)


def _neighbour(function: Function, x: Fraction, bits: int) -> tuple[Fraction, int] | None:
    """Return a number beside the value, and 1 if the value's magnitude is just above it, -1 if below.

    The value differs from it by less than a 2^-bits part. None if there is none.
    """
    limit = function.limit(x)
    if limit is not None and abs(x) > bits:
        return limit[0], 1 if (limit[1] > 0) == (limit[0] > 0) else -1
    if abs(x) >= Fraction(1, 1 << bits):
        return None
    upward = 1 if x > 0 else -1
    return {
        "exp": (Fraction(1), upward),
        "exp2": (Fraction(1), upward),
        "sigmoid": (Fraction(1, 2), upward),
        "cos": (Fraction(1), -1),
        "sin": (x, -1),
        "tanh": (x, -1),
        "gelu": (x / 2, upward),
        "silu": (x / 2, upward),
    }.get(function.name)


def _value(function: Function, x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Return an approximation of a value, and a bound on its relative error; that of the first precision is libm's."""
    if function.name in ("exp", "exp2") and abs(x) > FAR:
        return Fraction(2) ** (FAR if x > 0 else -FAR), Fraction(0)
    if bits == DOUBLE:
        try:
            number = LIBM[function.name](float(x))
        except OverflowError:
            number = 0.0
        if abs(number) > 2.0**-1000 and math.isfinite(number):
            return Fraction(number), Fraction(1, 1 << 40)
        bits = 2 * DOUBLE
    with mp.workprec(bits):
        value = function.at(x, bits)
        top = value.man_exp[1] + value.man_exp[0].bit_length()
        if abs(top) > FAR:
            return (-1 if value < 0 else 1) * Fraction(2) ** (FAR if top > 0 else -FAR), Fraction(0)
        return fraction_of(value), Fraction(1, 1 << (bits - GUARD))


def results_of(spec: FunctionSpec) -> list[Result]:
    """Return the results of a description for all codes of the operand."""
    return [_result(ROWS[spec.function], code, spec) for code in range(1 << spec.a.width)]


def _result(function: Function, code: int, spec: FunctionSpec) -> Result:
    x, negative = spec.a.decode(code), spec.a.negative(code)
    if x != x:
        return Result(math.nan, False, invalid=spec.a.is_signalling(code))
    if x == 0 or not isinstance(x, Fraction):
        magnitude, below = _special(function, x == 0, negative)
        return Result(magnitude, below, math.isnan(magnitude), x == 0 and math.isinf(magnitude))
    if not function.defined(x):
        return Result(math.nan, False, invalid=True)
    cell = _cell(function, x, spec)
    if cell.exact:
        return Result(Fraction(2) ** cell.unit * cell.floor, cell.below)
    # The smallest cell begins at zero.
    middle = Fraction(1, 2) if cell.floor else Fraction(1, 4)
    return Result(Fraction(2) ** cell.unit * (cell.floor + middle), cell.below)


def _special(function: Function, zero: bool, negative: bool) -> tuple[Fraction | float, bool]:
    """Return magnitude and sign of the value at a zero or an infinity of a sign."""
    name = function.name
    if name in ("log", "log2"):
        return (math.inf, True) if zero else (math.nan, False) if negative else (math.inf, False)
    if zero:
        value = abs(function.exact(Fraction(0)) or Fraction(0))
        return value, negative and not value
    if name in ("sin", "cos"):
        return math.nan, False
    if name in ("exp", "exp2", "sigmoid"):
        return (Fraction(0), False) if negative else (Fraction(1) if name == "sigmoid" else math.inf, False)
    if name in ("tanh", "erf"):
        return Fraction(1), negative
    return (Fraction(0), True) if negative else (math.inf, False)
