"""Narrow posits without exponent bits as fixed-point numbers, for sums.

Between -1 and 1 the code of such a posit is the number, in two's complement and in units of the smallest one. Beyond,
a run of k + 1 bits unlike the sign stands above a fraction that moves up by 2k + 1 places. A sum of short ones is
cheaper by choosing among these few placements, before an adder as wide as the range and after it, than by alignment
and normalisation of significands.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import fixed
from .fixed import FixedRaw
from .formats import Format, Posit, Rounding
from .raw import Raw
from .round import round_up
from .wire import NEVER, leading_zeros, wire

LONGEST = 8
"""Longer posits have more placements than their significands have places to move."""


@dataclass(frozen=True)
class PositAsFixed(Raw):
    """Raw number of a narrow posit, with its fixed-point view for the adder."""

    as_fixed: FixedRaw
    fmt: Posit


def has_fixed_view(fmt: Posit) -> bool:
    """True if numbers of a format are unpacked to fixed point too."""
    return fmt.es == 0 and 4 <= fmt.width <= LONGEST


def unpack(m: Module, bits: Value, fmt: Posit, x: Raw, name: str) -> PositAsFixed:
    """A code's raw number, with its fixed-point view."""
    sign, body = bits[-1], bits[:-1]
    largest = fmt.max_scale
    width = 2 * largest + 2
    run = leading_zeros(m, body[:-1] ^ body[-1].replicate(largest), f"{name}_run")

    def placed(scale: int) -> Value:
        """01.f or 10.f, where the run is as long as this scale makes it."""
        scale = min(scale, largest)
        fraction = body[: max(largest - 1 - scale, 0)]
        missing = largest + scale - len(fraction)
        below = min(2 * scale + 1, missing)
        return Cat(Const(0, below), fraction, Const(0, missing - below), ~sign, sign.replicate(width))[:width]

    beyond_one = _choose(run, placed, largest)
    within_one = Cat(bits, sign.replicate(width))[:width]
    integer = wire(m, Mux(sign ^ body[-1], beyond_one, within_one), f"{name}_in_fixed_point")
    as_fixed = FixedRaw(integer.as_signed(), sign, -largest, nan=x.nan)
    return PositAsFixed(**vars(x), as_fixed=as_fixed, fmt=fmt)


def _choose(index: Value, choice: Callable[[int], Value], last: int) -> Value:
    """The choice of that index, by a tree."""

    def among(first: int, level: int) -> Value:
        if level < 0:
            return choice(first)
        second = first + (1 << level)
        if second > last:
            return among(first, level - 1)
        return Mux(index[level], among(second, level - 1), among(first, level - 1))

    return among(0, len(index) - 1)


def negate_if(x: PositAsFixed, condition: Value) -> PositAsFixed:
    """Minus a number where the condition holds."""
    return replace(x, sign=x.sign ^ condition, as_fixed=fixed.negate_if(x.as_fixed, condition))


def adds(x: PositAsFixed, y: PositAsFixed, o: Format, rounding: Rounding) -> bool:
    """True if a sum is taken in fixed point; stochastic rounding looks too far down for that."""
    return x.fmt == y.fmt == o and rounding.mode != "sr"


@dataclass(frozen=True)
class Pair(fixed.Pair):
    """Fixed-point views of two posits, ready to be added."""


@dataclass(frozen=True)
class Sum(FixedRaw):
    """Exact sum of two posits, which is the only fixed-point number that has few placements in a posit."""


def add(m: Module, z: Pair, rounding: Rounding) -> Sum:
    """Exact sum."""
    return Sum(**vars(fixed.add(m, z.x, z.y, rounding)))


@dataclass(frozen=True)
class Truncated:
    """The string of a posit in two's complement, truncated where its code ends; ``kept`` is a floor.

    ``beyond``: the number lies beyond the last code, which ``kept`` then is.
    """

    sign: Value
    kept: Value
    first_discarded: Value
    sticky: Value
    beyond: Value
    nan: Value


def truncate(m: Module, x: Sum, o: Posit) -> Truncated:
    """Write the code of a sum as a string, and truncate it where the code ends."""
    total = x.integer
    sign = total[-1]
    largest = o.max_scale
    length = o.width + 1
    # The first place unlike the sign is the scale.
    unlike = wire(m, total[largest:-1] ^ sign.replicate(len(total) - largest - 1), "unlike_sign")
    string = Cat(Const(0, 2), total[: o.width - 1])
    for scale in range(largest):
        below = min(2 * scale, largest + scale)
        tail = total[below : largest + scale]
        fraction, first = tail[1:], tail[:1] if len(tail) else NEVER
        written = Cat(total[:below].any(), first, fraction, sign, (~sign).replicate(length))[:length]
        string = Mux(unlike[scale], written, string)
    string = wire(m, string, "string")
    beyond = wire(m, unlike[largest:].any(), "beyond")
    end = Cat(Const(1, 1), (~sign).replicate(o.width - 2))
    return Truncated(
        sign=sign,
        kept=wire(m, Mux(beyond, end, string[2:]), "kept"),
        first_discarded=string[1],
        sticky=string[0],
        beyond=beyond,
        nan=x.nan,
    )


def pack(m: Module, x: Truncated, o: Posit, rounding: Rounding, saturating: bool, random: Value | None) -> Value:
    """Code of a number, rounded once. A sum is never between zero and the first code, and posits saturate anyway."""
    up = round_up(
        rounding,
        negative=x.sign,
        last=x.kept[0],
        discarded=x.first_discarded,
        sticky=x.sticky,
        random=random,
        twos_complement=True,
    )
    body = wire(m, (x.kept + wire(m, up & ~x.beyond, "round_up"))[: o.width - 1], "rounded")
    return Cat(body & (~x.nan).replicate(o.width - 1), x.sign | x.nan)
