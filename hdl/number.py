"""Stages of units for numbers of all families.

Fixed-point numbers are `FixedRaw`, numbers of other families are `Raw`. Units with only fixed-point formats contain no
floating-point hardware.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Value

from . import (
    codebook,
    eager,
    fixed,
    floating,
    posit,
    posit_as_fixed,
    raw,
    scale,
    shape,  # noqa: F401  # formats are shapes of signals, so it decides Verilog
    takum,
    unevaluated,
)
from .fixed import FixedRaw
from .formats import (
    EXACT,
    SATFINITE,
    Codebook,
    Compound,
    Fixed,
    Float,
    Format,
    Posit,
    Rounding,
    Saturation,
    Scale,
    Takum,
)
from .formats.tapered import Tapered
from .multiply import Use, can_be_subnormal
from .multiply import multiply as multiply_raw
from .posit_as_fixed import PositAsFixed
from .raw import LeadingZeros, OperationFlags, Raw
from .round import Flags
from .specs.build import EAGER
from .wire import NEVER

Number = Raw | FixedRaw


class Stages(NamedTuple):
    """Stages of a family of formats.

    ``unpack(m, bits, fmt, name)`` converts a code to a number. ``truncate(m, x, o, rounding)`` truncates a number at
    the last place of the result format. ``pack(m, x, o, rounding, saturating, random)`` rounds it to a code;
    ``pack_with_flags`` also returns the flags, in families with exception flags. Exact sums on a fixed-point scale are
    converted to raw numbers before ``truncate`` if it ``normalises``.
    """

    unpack: Callable[[Module, Value, Any, str], Number]
    truncate: Callable[[Module, Number, Any, Rounding], Any]
    pack: Callable[[Module, Any, Any, Rounding, Saturation, Value | None], Value]
    pack_with_flags: Callable[[Module, Any, Any, Rounding, Saturation, Value | None], tuple[Value, Flags]] | None = None
    normalises: bool = False


def unpack(m: Module, bits: Value, fmt: Format, name: str) -> Number:
    """Unpack a code to a number."""
    return _stages(fmt).unpack(m, bits, fmt, name)


def negate_if(x: Number, condition: Value) -> Number:
    """Negate a number if the condition holds."""
    if isinstance(x, FixedRaw):
        return fixed.negate_if(x, condition)
    if isinstance(x, PositAsFixed):
        return posit_as_fixed.negate_if(x, condition)
    return replace(x, sign=x.sign ^ condition)


def multiply(  # noqa: PLR0913 - what follows the product decides its structure
    m: Module,
    x: Number,
    y: Number,
    *,
    dsp: bool,
    to: Format | None = None,
    o: Format | None = None,
    rounding: Rounding = EXACT,
    fast: bool = False,
) -> Number:
    """Return the exact product, made of LUTs or DSP blocks.

    A number of the format ``to`` may be added to it. A product whose only use is its rounding has the format ``o`` and
    the rounding ``rounding``. ``fast`` chooses structures for speed, here and in `align` and `add`; it needs floats.

    Leading zeros are counted in the factors of a float if the product can be subnormal in ``o``: one shifter then
    normalises and denormalises it. Otherwise this takes more LUTs and a shorter path.
    """
    if isinstance(x, FixedRaw) and isinstance(y, FixedRaw):
        return fixed.multiply(m, x, y, dsp=dsp)
    floor = None if to is None else to.floor_exponent
    x, y, last = as_raw(m, x, "x"), as_raw(m, y, "y"), None
    # A product is shifted to the subnormal range with its leading zero if nothing is appended to it.
    if isinstance(o, Float) and o.subnormals and rounding.places <= 1:
        last = o.emin if len(x.significand) + len(y.significand) > o.precision else None
    has_subnormals = LeadingZeros.AT_FLOOR in (x.promises.leading, y.promises.leading)
    is_subnormal = has_subnormals and can_be_subnormal(x.quantum + y.quantum, o)
    counted = to is None and (fast or is_subnormal)
    # Packing a posit or takum replaces the code of a zero.
    use = Use(floor=floor, counted=counted, last=last, any_zero=isinstance(o, Tapered))
    return multiply_raw(m, x, y, dsp=dsp, fast=fast, use=use)


Aligned = raw.Aligned | fixed.Pair


def align(
    m: Module, x: Number, y: Number, o: Format, rounding: Rounding, *, fast: bool = False, loops: bool = False
) -> Aligned:
    """Bring two numbers to one scale: the first half of a sum that is rounded to ``o``; an accumulator y ``loops``."""
    if isinstance(o, Fixed):
        return fixed.Pair(*_on_scale_of(m, x, y, o, rounding))
    if isinstance(x, FixedRaw) and isinstance(y, FixedRaw):
        return fixed.Pair(x, y)
    if isinstance(x, PositAsFixed) and isinstance(y, PositAsFixed) and posit_as_fixed.adds(x, y, o, rounding):
        return posit_as_fixed.Pair(x.as_fixed, y.as_fixed)
    x, y = as_raw(m, x, "x"), as_raw(m, y, "y")
    return raw.align(m, x, y, o.window + rounding.places, o.floor_exponent, fast=fast, loops=loops)


def add(
    m: Module,
    z: Aligned,
    o: Format,
    rounding: Rounding,
    random: Value | None,
    stochastic: str,
    *,
    fast: bool = False,
) -> tuple[Number, Value | None]:
    """Add aligned numbers: the second half of a sum. Also return the random word if it is not used yet."""
    if stochastic == EAGER:
        assert isinstance(z, raw.Aligned)
        assert random is not None
        return eager.add(m, z, o, rounding, random, fast=fast), None
    if isinstance(z, posit_as_fixed.Pair):
        return posit_as_fixed.add(m, z, rounding), random
    if isinstance(z, fixed.Pair):
        return fixed.add(m, z.x, z.y, rounding), random
    return raw.add(m, z, rounding, fast=fast, floor=o.floor_exponent), random


def exact_sum(m: Module, x: Number, y: Number, rounding: Rounding) -> Number:
    """Return the sum of two numbers with all its bits; the rounding decides the sign of one that cancels."""
    if isinstance(x, FixedRaw) and isinstance(y, FixedRaw):
        return fixed.add(m, x, y, rounding)
    x, y = as_raw(m, x, "x"), as_raw(m, y, "y")
    return raw.exact_sum(m, x, y, rounding)


def truncate(m: Module, x: Number, o: Format, rounding: Rounding) -> Any:
    """Truncate a number at the last place of the result format."""
    return _stages(o).truncate(m, x, o, rounding)


def pack(m: Module, x: Any, o: Format, rounding: Rounding, saturating: Saturation, random: Value | None) -> Value:
    """Round a number once to a code."""
    return _stages(o).pack(m, x, o, rounding, saturating, random)


def pack_with_flags(
    m: Module, number: Number, o: Format, rounding: Rounding, saturating: Saturation, random: Value | None
) -> tuple[Value, Value]:
    """Round a number once to a code, and return its exception flags in the order of `halfulp.hdl.specs.unit.FLAGS`."""
    stages = _stages(o)
    assert stages.pack_with_flags is not None
    code, flags = stages.pack_with_flags(m, stages.truncate(m, number, o, rounding), o, rounding, saturating, random)
    before, lost_inf = raised(number), flags.lost_inf
    if saturating == SATFINITE and isinstance(number, Raw):
        lost_inf = number.inf & ~number.nan
    invalid = before.invalid | flags.lost_nan | (lost_inf & ~before.by_zero)
    inexact = flags.inexact | (before.inexact & ~invalid)
    return code, Cat(inexact, flags.underflow, flags.overflow, before.by_zero, invalid)


def raised(number: Number) -> OperationFlags:
    """Return the exception flags of the operation whose result is a number; a fixed-point number has none."""
    return number.flags if isinstance(number, Raw) else OperationFlags()


def signalling(number: Number, bits: Value, fmt: Format) -> Number:
    """Return an unpacked number that is invalid if its code is a signalling NaN."""
    if not isinstance(number, Raw):
        return number
    return replace(number, flags=OperationFlags(invalid=is_signalling(bits, fmt)))


def is_signalling(bits: Value, fmt: Format) -> Value:
    """Return True for the code of a signalling NaN."""
    return floating.is_signalling(bits, fmt) if isinstance(fmt, Float) else NEVER


def normalises(o: Format) -> bool:
    """Return True if exact sums that are rounded to a format are normalised before they are truncated."""
    return _stages(o).normalises


def _stages(fmt: Format) -> Stages:
    stages = STAGES.get(type(fmt))
    if stages is None:
        raise TypeError(f"{fmt} has no RTL; the golden model alone computes in it")
    return stages


def _of_raw(stage: Callable[[Module, Raw, Any, Rounding], Any]) -> Callable[[Module, Number, Any, Rounding], Any]:
    """Wrap a stage that truncates raw numbers so that it takes all numbers."""
    return lambda m, x, o, rounding: stage(m, as_raw(m, x, "result"), o, rounding)


def _unpack_posit(m: Module, bits: Value, fmt: Posit, name: str) -> Raw:
    number = posit.unpack(m, bits, fmt, name)
    return posit_as_fixed.unpack(m, bits, fmt, number, name) if posit_as_fixed.has_fixed_view(fmt) else number


def _truncate_posit(
    m: Module, x: Number, o: Posit, rounding: Rounding
) -> posit.TruncatedPosit | posit_as_fixed.TruncatedSum:
    if isinstance(x, posit_as_fixed.Sum):
        return posit_as_fixed.truncate(m, x, o)
    return posit.truncate(m, as_raw(m, x, "result"), o, rounding)


def _pack_posit(m: Module, x: Any, o: Posit, rounding: Rounding, saturating: Saturation, random: Value | None) -> Value:
    if isinstance(x, posit_as_fixed.TruncatedSum):
        return posit_as_fixed.pack(m, x, o, rounding, saturating, random)
    return posit.pack(m, x, o, rounding, saturating, random)


def as_raw(m: Module, x: Number, name: str) -> Raw:
    """Convert a number to a raw number."""
    return fixed.to_raw(m, x, name) if isinstance(x, FixedRaw) else x


def _truncate_fixed(m: Module, x: Number, o: Fixed, rounding: Rounding) -> fixed.TruncatedFixed:
    if not isinstance(x, FixedRaw):
        limit = None if o.wraps else o.quantum + o.width
        x = fixed.of_raw(m, x, max(x.quantum, fixed.last_discarded_place(rounding, o)), limit, "result")
    return fixed.truncate(m, x, o)


def _on_scale_of(m: Module, x: Number, y: Number, o: Fixed, rounding: Rounding) -> tuple[FixedRaw, FixedRaw]:
    """Convert two numbers to fixed point so that no bit is lost that rounding needs.

    At most one of them loses bits. If ``o`` saturates, the number of the larger range is clipped to values at which
    every sum is out of range.
    """
    quantum = min(fixed.last_discarded_place(rounding, o), max(x.quantum, y.quantum))
    limit = None
    if not o.wraps:
        limit = max(o.quantum + o.width, min(_top(x), _top(y)) + 2) + 1
    first, second = (
        fixed.truncate_below(m, z, quantum)
        if isinstance(z, FixedRaw)
        else fixed.of_raw(m, z, max(quantum, z.quantum), limit, name)
        for z, name in ((x, "x"), (y, "y"))
    )
    return first, second


def _top(x: Number) -> int:
    """Return an upper bound on the exponent."""
    return x.quantum + len(x.integer) - 1 if isinstance(x, FixedRaw) else x.promises.emax


STAGES: dict[type[Format], Stages] = {
    Float: Stages(floating.unpack, _of_raw(floating.truncate), floating.pack, floating.pack_with_flags, True),
    Fixed: Stages(fixed.unpack, _truncate_fixed, fixed.pack, fixed.pack_with_flags),
    Posit: Stages(_unpack_posit, _truncate_posit, _pack_posit, normalises=True),
    Takum: Stages(takum.unpack, _of_raw(takum.truncate), posit.pack),
    Codebook: Stages(codebook.unpack, codebook.truncate, codebook.pack),
    Scale: Stages(scale.unpack, _of_raw(floating.truncate), scale.pack),
    Compound: Stages(unevaluated.unpack, _of_raw(unevaluated.truncate), unevaluated.pack, normalises=True),
}
"""Hardware stages of each family of formats."""
