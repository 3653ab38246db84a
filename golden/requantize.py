"""Requantization of accumulators."""

from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.formats import OFF, RN, Fixed, Rounding
from halfulp.hdl.specs import RequantizeSpec

from .check import check_devices, check_shapes, codes_of, random_of
from .codec import round_and_pack, unpack
from .raw import ZERO_EXPONENT, Raw, mask, multiply
from .zeros import integers_of


def requantize(  # noqa: PLR0913 - tensors, and the fields of a description by name
    x: Tensor,
    y: Tensor,
    places: Tensor,
    zero: Tensor,
    /,
    *,
    a: Fixed | str,
    multiplier: Fixed | str,
    shift: Fixed | str,
    o: Fixed | str,
    product: Fixed | str | None = None,
    product_rounding: Rounding | str | None = None,
    rounding: Rounding | str = RN,
    random: Tensor | None = None,
) -> Tensor:
    """Return zero + round(x * y / 2^places), which saturates; operands broadcast.

    Parameters
    ----------
    x, y, places, zero : Tensor
        Codes of accumulators, multipliers, shifts and zero points, in the formats ``a``, ``multiplier``, ``shift`` and
        ``o``; those of channels have the shape that broadcasts along the channels.
    a, multiplier, shift, o, product, product_rounding
        As for `RequantizeSpec`; see `halfulp.golden` for the other parameters.
    """
    more = {"product": product, "product_rounding": product_rounding, "rounding": rounding}
    spec = RequantizeSpec.of(a=a, multiplier=multiplier, shift=shift, o=o, **more)
    given = {"x": x, "y": y, "places": places, "zero": zero}
    check_devices(**given, random=random)
    formats = (spec.a, spec.multiplier, spec.shift, spec.o)
    codes = [codes_of(name, one, fmt) for (name, one), fmt in zip(given.items(), formats, strict=True)]
    check_shapes(**dict(zip(given, codes, strict=True)), random=random)
    word = random_of("random", random, spec.rounding)
    exact = scaled(spec, *codes[:3])
    rounded = round_and_pack(exact, spec.scaled, spec.rounding, OFF, word)
    total = integers_of(rounded, spec.scaled) + integers_of(codes[3], spec.o)
    return total.clamp(spec.o.least_integer, spec.o.largest_integer) & mask(spec.o.width)


def scaled(spec: RequantizeSpec, x: Tensor, y: Tensor, places: Tensor) -> Raw:
    """Return x * y / 2^places before its rounding, from the codes of the operands."""
    x, y, places = torch.broadcast_tensors(x, y, places)
    number = multiply(unpack(x, spec.a), unpack(y, spec.multiplier))
    if spec.product is not None:
        number = unpack(round_and_pack(number, spec.product, spec.product_rounding, OFF, None), spec.product)
    exponent = number.exponent - integers_of(places, spec.shift)
    return replace(number, exponent=torch.where(number.zero, ZERO_EXPONENT, exponent))
