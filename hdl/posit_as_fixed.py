"""Fixed-point view of narrow posits without exponent bits, used by their adder.

Between -1 and 1 the code of such a posit is its value in two's complement, in units of minpos. Beyond, a run of k + 1
bits precedes a fraction, which moves up by 2k + 1 places. A narrow posit has few of these placements. Multiplexers
before and after an adder as wide as the range are then cheaper than alignment and normalisation of significands.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import fixed
from .fixed import FixedRaw
from .formats import Format, Posit, Rounding, Saturation
from .raw import Raw
from .round import RoundingBits, round_up
from .wire import NEVER, leading_zeros, wire

LONGEST = 8
"""Maximum width; wider posits have more placements than shift distances of the significand."""


@dataclass(frozen=True)
class PositAsFixed(Raw):
    """Raw number of a narrow posit with its fixed-point view."""

    as_fixed: FixedRaw
    fmt: Posit


def has_fixed_view(fmt: Posit) -> bool:
    """Return True if codes of a format are unpacked to fixed point too."""
    return fmt.es == 0 and 4 <= fmt.width <= LONGEST


def unpack(m: Module, bits: Value, fmt: Posit, x: Raw, name: str) -> PositAsFixed:
    """Combine the raw number of a code with its fixed-point view."""
    sign, body = bits[-1], bits[:-1]
    largest = fmt.max_scale
    width = 2 * largest + 2
    run = leading_zeros(m, body[:-1] ^ body[-1].replicate(largest), f"{name}_run")

    def placed(scale: int) -> Value:
        """Return 01.f or 10.f, placed for a regime run of this scale."""
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
    """Select ``choice(index)`` with a tree of multiplexers."""

    def among(first: int, level: int) -> Value:
        if level < 0:
            return choice(first)
        second = first + (1 << level)
        if second > last:
            return among(first, level - 1)
        return Mux(index[level], among(second, level - 1), among(first, level - 1))

    return among(0, len(index) - 1)


def negate_if(x: PositAsFixed, condition: Value) -> PositAsFixed:
    """Negate a number if the condition holds."""
    return replace(x, sign=x.sign ^ condition, as_fixed=fixed.negate_if(x.as_fixed, condition))


def adds(x: PositAsFixed, y: PositAsFixed, o: Format, rounding: Rounding) -> bool:
    """Return True if a sum uses the fixed-point view; stochastic rounding needs more discarded bits than it has."""
    return x.fmt == y.fmt == o and not rounding.bits


@dataclass(frozen=True)
class Pair(fixed.Pair):
    """Fixed-point views of two posits, ready for addition."""


@dataclass(frozen=True)
class Sum(FixedRaw):
    """Exact sum of two posits; a type of its own, because other fixed-point numbers have more placements."""


def add(m: Module, z: Pair, rounding: Rounding) -> Sum:
    """Return the exact sum."""
    return Sum(**vars(fixed.add(m, z.x, z.y, rounding)))


@dataclass(frozen=True)
class TruncatedSum:
    """Code of a posit in two's complement before rounding, truncated to its width; ``kept`` is the floor.

    If ``beyond`` is true, the number lies beyond the last code, and ``kept`` is that code.
    """

    sign: Value
    kept: Value
    first_discarded: Value
    sticky: Value
    beyond: Value
    nan: Value


def truncate(m: Module, x: Sum, o: Posit) -> TruncatedSum:
    """Write a sum as a code string and truncate it to the code's width."""
    total = x.integer
    sign = total[-1]
    largest = o.max_scale
    length = o.width + 1
    # The highest bit that differs from the sign gives the scale.
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
    return TruncatedSum(
        sign=sign,
        kept=wire(m, Mux(beyond, end, string[2:]), "kept"),
        first_discarded=string[1],
        sticky=string[0],
        beyond=beyond,
        nan=x.nan,
    )


def pack(
    m: Module, x: TruncatedSum, o: Posit, rounding: Rounding, saturating: Saturation, random: Value | None
) -> Value:
    """Round a number once to a code. A nonzero sum is at least minpos, and posits always saturate."""
    up = round_up(rounding, RoundingBits(x.sign, x.kept[0], x.first_discarded, x.sticky, twos_complement=True), random)
    body = wire(m, (x.kept + wire(m, up & ~x.beyond, "round_up"))[: o.width - 1], "rounded")
    return Cat(body & (~x.nan).replicate(o.width - 1), x.sign | x.nan)
