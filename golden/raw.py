"""Raw numbers on tensors: the stages multiply, align and add, with the names of the hardware's stages.

A raw number is ``(-1)^sign * significand * 2^(exponent - (width - 1))``. Unlike in hardware, its first bit is always
one, except for zero, whose exponent is below every other.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfulp.hdl.formats import RD, Rounding

from .wide import Wide

ZERO_EXPONENT = -(1 << 20)
"""Exponent of zero: zero is less than any other magnitude."""


@dataclass(frozen=True)
class Raw:
    """Numbers unpacked.

    Attributes
    ----------
    sign, nan, inf, zero : Tensor of bool
        ``nan`` overrules ``inf``, and both overrule the number.
    exponent : Tensor of int64
        Weight of the significand's first bit.
    significand : Wide
    sticky : Tensor of bool
        Ones below the last bit of the significand were dropped.
    """

    sign: Tensor
    exponent: Tensor
    significand: Wide
    nan: Tensor
    inf: Tensor
    zero: Tensor
    sticky: Tensor | None = None

    def at(self, index: int) -> "Raw":
        """One place along the last dimension."""
        limbs = tuple(limb[..., index] for limb in self.significand.limbs)
        return Raw(
            sign=self.sign[..., index],
            exponent=self.exponent[..., index],
            significand=Wide(limbs, self.significand.width),
            nan=self.nan[..., index],
            inf=self.inf[..., index],
            zero=self.zero[..., index],
        )

    @property
    def leading_zeros(self) -> Tensor:
        """Zeros before the first one of the significand; only sums have any."""
        return self.significand.width - self.significand.bit_length()


def int64(code: int) -> int:
    """A code of up to 64 bits as the int64 of the same bits."""
    return code - (1 << 64) if code >= 1 << 63 else code


def mask(width: int) -> int:
    """The lowest ``width`` bits, up to 64, as an int64."""
    return int64((1 << width) - 1)


def multiply(x: Raw, y: Raw) -> Raw:
    """Exact product: significands multiply, exponents add, nothing is lost."""
    significand = x.significand * y.significand
    # Factors from 1 to below 2 give a product from 1 to below 4; the first bit counts the latter.
    below_two = (significand.width - significand.bit_length()).clamp(max=1)
    return Raw(
        sign=x.sign ^ y.sign,
        # The exponent of zero stays far below all others.
        exponent=x.exponent + y.exponent + 1 - below_two,
        significand=significand.shift_left(below_two),
        nan=x.nan | y.nan | (x.inf & y.zero) | (x.zero & y.inf),
        inf=x.inf | y.inf,
        zero=x.zero | y.zero,
    )


def negate(x: Raw, where: Tensor) -> Raw:
    """Numbers with the other sign where a flag is set."""
    return replace(x, sign=x.sign ^ where)


def in_units(x: Raw, scale: int, most: int) -> tuple[Wide, Tensor]:
    """Magnitudes in units of 2^scale, and a flag for ones below; they move up by ``most`` places at most."""
    width = x.significand.width
    up = x.exponent - (width - 1) - scale
    units = x.significand.resized(width + most + 1).shift_left(up.clamp(0, most))
    return units.shift_right((-up).clamp(min=0))


def order(x: Raw, y: Raw) -> Tensor:
    """True where x is less than y in magnitude, for significands of one width."""
    distance = x.exponent - y.exponent
    return (distance < 0) | ((distance == 0) & (x.significand < y.significand))


def widen(x: Raw, width: int) -> Raw:
    """The same numbers with zeros below."""
    return replace(x, significand=x.significand.pad(width - x.significand.width))


@dataclass(frozen=True)
class Aligned:
    """Larger and smaller magnitude on one grid; ``sticky`` is set where the smaller one lost ones below it."""

    sign: Tensor
    subtract: Tensor
    exponent: Tensor
    big: Wide
    small: Wide
    sticky: Tensor
    nan: Tensor
    inf: Tensor
    inf_sign: Tensor
    both_negative: Tensor


def align(x: Raw, y: Raw, window: int) -> Aligned:
    """First half of a sum: order the magnitudes and shift the smaller one.

    ``window`` is the number of leading bits of the sum that its rounding depends on one by one.
    """
    # One more place: a difference of numbers far apart can lose its first place.
    width = max(x.significand.width, y.significand.width, window) + 1
    x, y = widen(x, width), widen(y, width)
    x_less = order(x, y)
    big, small = _select(x_less, y.significand, x.significand), _select(x_less, x.significand, y.significand)
    small, sticky = small.shift_right((x.exponent - y.exponent).abs_())
    return Aligned(
        sign=torch.where(x_less, y.sign, x.sign),
        subtract=x.sign ^ y.sign,
        exponent=torch.maximum(x.exponent, y.exponent),
        big=big,
        small=small,
        sticky=sticky,
        nan=x.nan | y.nan | (x.inf & y.inf & (x.sign ^ y.sign)),
        inf=x.inf | y.inf,
        inf_sign=torch.where(x.inf, x.sign, y.sign),
        both_negative=x.sign & y.sign,
    )


def _select(condition: Tensor, x: Wide, y: Wide) -> Wide:
    return Wide(tuple(torch.where(condition, p, q) for p, q in zip(x.limbs, y.limbs, strict=True)), x.width)


def add(z: Aligned, rounding: Rounding) -> Raw:
    """Second half of a sum. An exactly cancelled one is -0 under ``rd`` and +0 under any other rounding.

    The significand of a difference is its floor, and sticky stands for the rest.
    """
    difference = z.big.minus(z.small, z.sticky.to(torch.int64))
    total = _select(z.subtract, difference.resized(z.big.width + 1), z.big + z.small)
    zero = total.is_zero()
    cancelled_sign = z.both_negative | z.subtract if rounding == RD else z.both_negative
    return Raw(
        sign=torch.where(z.inf, z.inf_sign, torch.where(zero, cancelled_sign, z.sign)),
        exponent=z.exponent + 1,
        significand=total,
        nan=z.nan,
        inf=z.inf,
        zero=zero,
        sticky=z.sticky,
    )
