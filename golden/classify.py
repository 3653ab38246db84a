"""Class of a number."""

import torch
from torch import Tensor

from halfulp.hdl.formats import Format
from halfulp.hdl.specs.classify import CLASSES, ClassifySpec

from .check import codes_of
from .codec import is_signalling, unpack


def classify(x: Tensor, /, *, a: Format | str) -> Tensor:
    """Return the class of x as an integer of ten bits, one of which is 1.

    Bits are those of `halfulp.hdl.specs.classify.CLASSES`: from bit 0 on negative infinity, normal, subnormal and zero,
    positive zero, subnormal, normal and infinity, signalling NaN, quiet NaN. See `halfulp.golden` for errors.
    """
    fmt = ClassifySpec.of(a=a).a
    codes = codes_of("x", x, fmt)
    number = unpack(codes, fmt)
    floor = fmt.floor_exponent
    subnormal = torch.zeros_like(number.nan) if floor is None else number.exponent < floor
    signalling = is_signalling(codes, fmt)
    # Later conditions have priority.
    size = torch.full_like(codes, 1)
    for bit, condition in ((2, subnormal), (3, number.zero), (0, number.inf)):
        size = torch.where(condition, bit, size)
    place = torch.where(number.sign, size, 7 - size)
    place = torch.where(number.nan, CLASSES.index("quiet NaN"), place)
    place = torch.where(signalling, CLASSES.index("signalling NaN"), place)
    return torch.ones_like(codes) << place
