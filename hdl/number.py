"""Numbers of any family: the stages of a unit, for raw numbers and for fixed point alike.

Floating-point and posit numbers are `Raw`, fixed-point ones `Point`; the two meet here. What only ever is fixed point
stays it, and so leaves no floating-point hardware behind.
"""

from dataclasses import dataclass, replace
from typing import Any

from amaranth.hdl import Module, Value

from . import eager, fixed, floating, posit, raw
from . import posit_as_fixed as posit_linear
from .fixed import FixedRaw
from .formats import Fixed, Float, Format, Posit, Rounding
from .multiply import multiply as multiply_raw
from .posit_as_fixed import PositAsFixed
from .raw import Raw
from .round import places

Number = Raw | FixedRaw
Truncated = fixed.Truncated | floating.Truncated | posit.Truncated | posit_linear.Truncated


def unpack(m: Module, bits: Value, fmt: Format, name: str) -> Number:
    """Number of a code."""
    match fmt:
        case Float():
            return floating.unpack(m, bits, fmt, name)
        case Posit():
            number = posit.unpack(m, bits, fmt, name)
            return posit_linear.unpack(m, bits, fmt, number, name) if posit_linear.has_fixed_view(fmt) else number
        case Fixed():
            return fixed.unpack(m, bits, fmt, name)
    raise TypeError(f"there is no hardware for formats like {fmt}")


def negate_if(x: Number, condition: Value) -> Number:
    """Minus a number where the condition holds."""
    if isinstance(x, FixedRaw):
        return fixed.negate_if(x, condition)
    if isinstance(x, PositAsFixed):
        return posit_linear.negate_if(x, condition)
    return replace(x, sign=x.sign ^ condition)


def multiply(m: Module, x: Number, y: Number, *, dsp: bool, to: Format | None = None) -> Number:
    """Exact product, of lookup tables or for DSP blocks; a number of the format ``to`` may be added to it."""
    if isinstance(x, FixedRaw) and isinstance(y, FixedRaw):
        return fixed.multiply(m, x, y, dsp=dsp)
    floor = to.emin if isinstance(to, Float) and to.subnormals else None
    return multiply_raw(m, as_raw(m, x, "x"), as_raw(m, y, "y"), dsp=dsp, floor=floor)


@dataclass(frozen=True)
class FixedPair:
    """Two numbers on fixed scales, ready to be added."""

    x: FixedRaw
    y: FixedRaw


Aligned = raw.Aligned | FixedPair | posit_linear.Pair


def align(m: Module, x: Number, y: Number, o: Format, rounding: Rounding) -> Aligned:
    """First half of a sum that is rounded to ``o``: both numbers on one scale."""
    if isinstance(o, Fixed):
        return FixedPair(*_on_scale_of(m, x, y, o, rounding))
    if isinstance(x, FixedRaw) and isinstance(y, FixedRaw):
        return FixedPair(x, y)
    if isinstance(x, PositAsFixed) and isinstance(y, PositAsFixed) and posit_linear.adds(x, y, o, rounding):
        return posit_linear.Pair(x.as_fixed, y.as_fixed)
    x, y = as_raw(m, x, "x"), as_raw(m, y, "y")
    floor = o.emin if isinstance(o, Float) and o.subnormals else None
    return raw.align(m, x, y, o.precision + places(rounding), floor)


def add(
    m: Module, z: Aligned, o: Format, rounding: Rounding, random: Value | None, stochastic: str
) -> tuple[Number, Value | None]:
    """Second half of a sum, and its random word if that is still to be used.

    Raises
    ------
    ValueError
        If stochastic rounding is to be ``eager``, and the sum is none that can be.
    """
    if stochastic == "eager":
        if not isinstance(z, raw.Aligned) or not isinstance(o, Float):
            raise ValueError(f"a sum in {o} has no eager stochastic rounding; only that of a floating-point adder has")
        assert random is not None
        return eager.add(m, z, o, rounding, random), None
    if isinstance(z, FixedPair):
        return fixed.add(m, z.x, z.y, rounding), random
    if isinstance(z, posit_linear.Pair):
        return posit_linear.add(m, z, rounding), random
    return raw.add(m, z, rounding), random


def truncate(m: Module, x: Number, o: Format, rounding: Rounding) -> Truncated:
    """Cut a number at the last place of the result format."""
    match o:
        case Float():
            return floating.truncate(m, as_raw(m, x, "result"), o, rounding)
        case Posit() if isinstance(x, posit_linear.Sum):
            return posit_linear.truncate(m, x, o)
        case Posit():
            return posit.truncate(m, as_raw(m, x, "result"), o, rounding)
        case Fixed():
            return fixed.truncate(m, _as_fixed_raw(m, x, o, rounding), o)
    raise TypeError(f"there is no hardware for formats like {o}")


def pack(m: Module, x: Truncated, o: Format, rounding: Rounding, saturating: bool, random: Value | None) -> Value:
    """Code of a number, rounded once."""
    packs: dict[type, Any] = {
        floating.Truncated: floating.pack,
        posit.Truncated: posit.pack,
        posit_linear.Truncated: posit_linear.pack,
        fixed.Truncated: fixed.pack,
    }
    code: Value = packs[type(x)](m, x, o, rounding, saturating, random)
    return code


def as_raw(m: Module, x: Number, name: str) -> Raw:
    """A number as a raw number."""
    return fixed.to_raw(m, x, name) if isinstance(x, FixedRaw) else x


def _as_fixed_raw(m: Module, x: Number, o: Fixed, rounding: Rounding) -> FixedRaw:
    if isinstance(x, FixedRaw):
        return x
    limit = None if o.overflow == "wrap" else o.quantum + o.width
    quantum = max(x.quantum, fixed.looks_at(rounding, o))
    return fixed.of_raw(m, x, quantum, limit, "result")


def _on_scale_of(m: Module, x: Number, y: Number, o: Fixed, rounding: Rounding) -> tuple[FixedRaw, FixedRaw]:
    """Two numbers on scales fine enough that only one of them loses anything, below all that rounding looks at.

    Where ``o`` saturates, the one that reaches further is clipped where its sum with the other is beyond the range
    whatever the other is.
    """
    quantum = min(fixed.looks_at(rounding, o), max(x.quantum, y.quantum))
    limit = None
    if o.overflow == "saturate":
        limit = max(o.quantum + o.width, min(_top(x), _top(y)) + 2) + 1
    first, second = (
        fixed.truncate_below(m, z, quantum)
        if isinstance(z, FixedRaw)
        else fixed.of_raw(m, z, max(quantum, z.quantum), limit, name)
        for z, name in ((x, "x"), (y, "y"))
    )
    return first, second


def _top(x: Number) -> int:
    """Exponent that no number exceeds."""
    return x.quantum + len(x.integer) - 1 if isinstance(x, FixedRaw) else x.emax
