"""Unpacking and packing of compound codes, the unevaluated sums of floats.

Source: Henry, Tang and Heinecke, ARITH 2019.
"""

from dataclasses import replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import floating, raw
from .formats import RN, SATFINITE, Compound, Rounding, Saturation
from .raw import Anticipated, Raw
from .wire import NEVER, wire


def unpack(m: Module, bits: Value, fmt: Compound, name: str) -> Raw:
    """Unpack a code to the exact sum of its parts."""
    width = fmt.part.width
    codes = [bits[place * width : (place + 1) * width] for place in range(fmt.parts)]
    total, *larger = (
        floating.unpack(m, code, fmt.part, f"{name}{fmt.parts - 1 - place}") for place, code in enumerate(codes)
    )
    for part in larger:
        total = raw.exact_sum(m, part, total, RN)
    return total


def truncate(m: Module, x: Raw, o: Compound, rounding: Rounding) -> Raw:
    """Return the number with its sticky bit, which no rounding tells from the bits below, as the last bit.

    Each part is truncated after the rounding of the part before, so `pack` truncates.
    """
    if x.sticky is NEVER:
        return x
    return replace(
        x,
        significand=wire(m, Cat(x.sticky, x.significand), "with_sticky"),
        sticky=NEVER,
        promises=replace(x.promises, tail=0),
        anticipated=Anticipated(),
    )


def pack(m: Module, x: Raw, o: Compound, rounding: Rounding, saturate: Saturation, random: Value | None) -> Value:
    """Round a number to a part, and what it leaves to the next one; the parts after infinities and NaN are +0."""
    return Cat(*reversed(parts(m, x, o, rounding, saturate, random)))


def parts(
    m: Module, x: Raw, o: Compound, rounding: Rounding, saturate: Saturation, random: Value | None
) -> list[Value]:
    """Return the codes of the parts of a rounded number, the largest first."""
    part, rest = o.part, x
    # The bits of the number, and ``part.precision`` bits, hold a remainder exactly. If the part saturates at its
    # largest number, the remainder is longer; ``far`` more bits suffice then, because later parts saturate too.
    far = o.parts.bit_length() + 2 if x.promises.emax > part.emax else 0
    ended: Value = Const(0, 1)
    codes: list[Value] = []
    for place in range(o.parts):
        last = place == o.parts - 1
        mode = rounding if last else o.leading(rounding)
        ready = floating.truncate(m, rest, part, mode)
        code = floating.pack(m, ready, part, mode, saturate, random if last else None)
        code = wire(m, code, f"code{place}")
        codes.append(Mux(ended, 0, code))
        if not last:
            taken = floating.unpack(m, code, part, f"part{place}")
            ends = rest.nan if saturate == SATFINITE else rest.nan | rest.inf
            ended = wire(m, ended | ends | taken.nan | taken.inf, f"ended{place}")
            aligned = raw.align(m, rest, replace(taken, sign=~taken.sign), part.precision + far)
            rest = raw.add(m, aligned, rounding)
    return codes
