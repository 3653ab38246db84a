"""Conversions to and from compound formats."""

from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, Saturation
from halfulp.hdl.specs import JoinSpec, SplitSpec
from halfulp.hdl.specs.ranges import window_of

from .check import check_devices, check_shapes, codes_of, random_of
from .codec import rounded, unpack
from .parts import parts_of
from .raw import add, align
from .values import decode, encoded


def split(
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    random: Tensor | None = None,
) -> Tensor:
    """Convert floats to compound numbers, such as fp32 to bf16x2, rounded part by part as `Compound` says.

    See `halfulp.golden` for parameters and errors.
    """
    spec = SplitSpec.of(a=a, o=o, rounding=rounding, saturate=saturate)
    check_devices(x=x, random=random)
    check_shapes(x=x, random=random)
    word = random_of("random", random, spec.rounding)
    # Rounding to nearest changes no number that the format holds.
    mode = RN if spec.rounding == EXACT else spec.rounding
    return encoded(decode(x, spec.a), spec.o, mode, word, spec.saturate)


def join(
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    random: Tensor | None = None,
) -> Tensor:
    """Add the parts of compound numbers, such as bf16x2 to fp32, from the smallest part up, rounding each sum.

    ``random`` has a last dimension with a word for each addition. See `halfulp.golden` for the other parameters and
    errors.
    """
    spec = JoinSpec.of(a=a, o=o, rounding=rounding, saturate=saturate)
    check_devices(x=x, random=random)
    words = random_of("random", random, spec.rounding)
    parts = unpack(parts_of(codes_of("x", x, spec.a), spec.a), spec.a.part)
    if words is not None and words.shape[-1:] != (spec.a.parts - 1,):
        raise ValueError(f"random has shape {tuple(words.shape)}; the last size must be {spec.a.parts - 1}")
    check_shapes(x=x, **{} if words is None else {"random[..., 0]": words[..., 0]})
    total = parts.at(-1)
    for place in range(spec.a.parts - 1):
        window = window_of(spec.o, spec.rounding, spec.sums_of(place).magnitude)
        exact = add(align(parts.at(-2 - place), total, window), spec.rounding)
        codes = rounded(spec, exact, None if words is None else words[..., place])
        total = unpack(codes, spec.o)
    return codes
