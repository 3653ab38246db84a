"""Symmetry, reduction and interval of a fit."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from mpmath import mp

from halfulp.hdl.formats import Format
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.specs.pieces import check_holds
from halfulp.hdl.specs.segments import SYMMETRIES

from .functions import ALL, Function
from .rounding_table import check_width, numbers_of


@dataclass(frozen=True)
class Folding:
    """Symmetry, reduction and interval that map an argument to that of the pieces, as in `Segments`.

    Attributes
    ----------
    symmetry : str, optional
    centre : Fraction
    reduction : str, optional
    factor : Fraction
    fraction : int
    interval : (Fraction, Fraction), optional
        Interval of the fit; numbers outside are replaced by the nearer end.
    """

    symmetry: str | None = None
    centre: Fraction = Fraction(1)
    reduction: str | None = None
    factor: Fraction = Fraction(1)
    fraction: int = 0
    interval: tuple[Fraction, Fraction] | None = None


def power_factor(out: Format) -> tuple[Fraction, int]:
    """Return factor and fraction bits of ``exp2`` for exp; they lose at most 1/8 ulp of a result."""
    fraction = out.precision + 3
    scale = max(abs(floor_log2(out.largest)), abs(floor_log2(out.smallest))) + 2
    places = fraction + scale.bit_length()
    with mp.workprec(places + 64):
        return Fraction(int(mp.nint(mpmath.ldexp(1 / mp.ln2, places))), 1 << places), fraction


def folding_of(
    function: Function,
    fmt: Format,
    out: Format,
    interval: Any,
    symmetry: str | None,
    reduction: str | None,
    measure: str | None,
) -> Folding:
    """Return the folding of a function between two formats."""
    check_width(fmt)
    check_width(out)
    ends = None if interval is None else _interval(interval, fmt, function)
    both_fixed = fmt.spacing == out.spacing == "uniform"
    if reduction == "auto":
        wanted = ends is None and not (function.reduction == "exp2" and both_fixed)
        reduction = function.reduction if wanted else None
    elif reduction is not None:
        if reduction != function.reduction:
            raise ValueError(f"{function.name} has no reduction {reduction!r}; expected {function.reduction or 'none'}")
        if ends is not None:
            raise ValueError("a reduction cannot be combined with an interval; omit one of them")
    if reduction is None and function.domain != ALL and ends is None:
        raise ValueError(
            f"{function.name} has a pole at zero, which {fmt} holds; give an interval without zero, or a reduction"
        )
    chosen = _symmetry(function, fmt, ends, symmetry, both_fixed or (measure != "ulp" and out.spacing != "uniform"))
    factor, fraction = power_factor(out) if reduction == "exp2" else (Fraction(1), 0)
    centre = 2 * Fraction(_half(function)) if chosen == "point" else Fraction(1)
    return Folding(chosen, centre, reduction, factor, fraction, ends)


def _half(function: Function) -> Fraction:
    """Return the value at zero."""
    value = function.at(Fraction(0))
    return value if isinstance(value, Fraction) else Fraction(float(value))


def _interval(interval: Any, fmt: Format, function: Function) -> tuple[Fraction, Fraction]:
    if not isinstance(interval, tuple | list) or len(interval) != 2:
        raise TypeError("an interval must be a pair of numbers")
    try:
        low, high = (Fraction(end) for end in interval)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"an interval must be a pair of finite numbers, not {interval}") from None
    if low >= high:
        raise ValueError(f"the interval from {float(low):g} to {float(high):g} is empty")
    for end in (low, high):
        check_holds(fmt, end, "end of the interval")
    inside = numbers_of(fmt)
    inside = inside[(inside >= float(low)) & (inside <= float(high))]
    for number in (float(low), 0.0, float(high)):
        if number in inside and not function.defined(Fraction(number)):
            raise ValueError(
                f"{function.name} has a pole or no value at {number:g}, inside the interval from {float(low):g} to "
                f"{float(high):g}"
            )
    return low, high


def _symmetry(
    function: Function, fmt: Format, ends: tuple[Fraction, Fraction] | None, asked: str | None, sums_hold: bool
) -> str | None:
    """Return the symmetry for the fit: for ``auto`` one that helps, else the requested one."""
    usable = fmt.lowest < 0 and (ends is None or ends[0] == -ends[1])
    if asked == "auto":
        # Floats lose precision if a small result is a difference of large numbers.
        fits = function.symmetry in ("odd", "even") or (
            sums_hold and (function.symmetry == "point" or fmt.spacing == "uniform")
        )
        return function.symmetry if usable and fits and (ends is None or function.symmetry != "linear") else None
    if asked is None:
        return None
    check_one_of("symmetry", asked, SYMMETRIES)
    if not usable:
        raise ValueError(f"symmetry {asked} needs negative numbers, and an interval around zero")
    if asked == "linear" and not (fmt.spacing == "uniform" and ends is None):
        raise ValueError("symmetry linear needs arguments in fixed point and no interval")
    _check_symmetry(function, fmt, ends, asked)
    return asked


def _check_symmetry(function: Function, fmt: Format, ends: tuple[Fraction, Fraction] | None, symmetry: str) -> None:
    """Raise ValueError unless a function has a symmetry, checked in double precision."""
    centre = 2 * float(function.at(Fraction(0)))
    numbers = np.unique(numbers_of(fmt))
    top = float(fmt.largest if ends is None else ends[1])
    for x in numbers[(numbers > 0) & (numbers <= top)][::97]:
        above, below = (float(function.at(Fraction(float(side)))) for side in (x, -x))
        expected = {"odd": -above, "even": above, "point": centre - above, "linear": above - x}[symmetry]
        if abs(below - expected) > 1e-12 * (abs(above) + abs(below) + abs(centre)):
            raise ValueError(f"{function.name} is not {symmetry}: at {-x:g} it is {below:g} instead of {expected:g}")
