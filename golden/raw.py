"""Raw numbers on tensors: the stages multiply, align and add, named as in hardware.

A raw number is ``(-1)^sign * significand * 2^(exponent - (width - 1))``. Unlike in hardware, the leading bit of an
operand is always one, except for zero, whose exponent is below all others.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfulp.hdl.formats import RD, Float, Format, Rounding

from .wide import Wide

ZERO_EXPONENT = -(1 << 20)
"""Exponent of zero, below that of every other number."""


@dataclass(frozen=True)
class Raw:
    """Unpacked numbers.

    Attributes
    ----------
    sign, nan, inf, zero : Tensor of bool
        ``nan`` has priority over ``inf``, and both over the value.
    exponent : Tensor of int64
        Exponent of the significand's leading bit.
    significand : Wide
        Unsigned significand.
    sticky : Tensor of bool, optional
        Ones below the last bit of the significand were discarded.
    invalid : Tensor of bool, optional
        The number is the NaN of an invalid operation, or a signalling NaN; None without exception flags.
    by_zero : Tensor of bool, optional
        The number is the quotient of a finite number and zero.
    raised : Tensor of int64, optional
        Exception flags of an earlier rounding of the number.
    scale : Tensor of int64, optional
        Exponent of an operand that is not normalised, or the sum of those of the factors of a product; in terms of an
        aligned sum only. That of zero is below all others.
    """

    sign: Tensor
    exponent: Tensor
    significand: Wide
    nan: Tensor
    inf: Tensor
    zero: Tensor
    sticky: Tensor | None = None
    scale: Tensor | None = None
    invalid: Tensor | None = None
    by_zero: Tensor | None = None
    raised: Tensor | None = None

    def at(self, index: int | None) -> "Raw":
        """Return the numbers at one index of the last dimension; None adds a last dimension of length 1."""
        limbs = tuple(limb[..., index] for limb in self.significand.limbs)
        return Raw(
            sign=self.sign[..., index],
            exponent=self.exponent[..., index],
            significand=Wide(limbs, self.significand.width),
            nan=self.nan[..., index],
            inf=self.inf[..., index],
            zero=self.zero[..., index],
            scale=None if self.scale is None else self.scale[..., index],
            invalid=None if self.invalid is None else self.invalid[..., index],
        )

    @property
    def leading_zeros(self) -> Tensor:
        """Leading zeros of the significand; only sums have any."""
        return self.significand.width - self.significand.bit_length()


def int64(code: int) -> int:
    """Convert a code of up to 64 bits to the int64 with the same bits."""
    return code - (1 << 64) if code >= 1 << 63 else code


def mask(width: int) -> int:
    """Return an int64 with the lowest ``width`` bits set."""
    return int64((1 << width) - 1)


def multiply(x: Raw, y: Raw) -> Raw:
    """Multiply exactly: significands multiply, exponents add."""
    significand = x.significand * y.significand
    # 1 <= significand < 4; the leading bit is 0 below 2.
    below_two = (significand.width - significand.bit_length()).clamp(max=1)
    return Raw(
        sign=x.sign ^ y.sign,
        # Sums with ZERO_EXPONENT remain far below all other exponents.
        exponent=x.exponent + y.exponent + 1 - below_two,
        significand=significand.shift_left(below_two),
        nan=x.nan | y.nan | (x.inf & y.zero) | (x.zero & y.inf),
        inf=x.inf | y.inf,
        zero=x.zero | y.zero,
        invalid=invalid_of(x, y, lambda: (x.inf & y.zero) | (x.zero & y.inf)),
    )


def invalid_of(x: Raw, y: Raw, of_numbers: Callable[[], Tensor]) -> Tensor | None:
    """Return True where an operation is invalid: an operand is, or the operands are numbers for which it has no result.

    None if the operands have no flags.
    """
    if x.invalid is None or y.invalid is None:
        return None
    return x.invalid | y.invalid | (of_numbers() & ~x.nan & ~y.nan)


def normalised(x: Raw) -> Raw:
    """Return numbers without leading zeros."""
    zeros = x.leading_zeros
    significand = x.significand.shift_left(zeros.clamp(max=x.significand.width - 1))
    return replace(x, exponent=torch.where(x.zero, ZERO_EXPONENT, x.exponent - zeros), significand=significand)


def scaled(x: Raw, fmt: Format) -> Raw:
    """Add the exponent before normalisation to operands of a floating-point format."""
    assert isinstance(fmt, Float)
    return replace(x, scale=torch.where(x.zero, ZERO_EXPONENT, x.exponent.clamp(min=fmt.emin)))


def scaled_product(x: Raw, y: Raw) -> Raw:
    """Multiply operands with scales exactly; the scale of the product is their sum."""
    assert x.scale is not None
    assert y.scale is not None
    product = multiply(x, y)
    return replace(product, scale=torch.where(product.zero, ZERO_EXPONENT, x.scale + y.scale))


def negate(x: Raw, where: Tensor) -> Raw:
    """Invert the sign where a flag is set."""
    return replace(x, sign=x.sign ^ where)


def in_units(x: Raw, scale: int, most: int) -> tuple[Wide, Tensor]:
    """Return magnitudes in units of 2^scale, and True where ones were shifted out; left shifts are at most ``most``."""
    width = x.significand.width
    up = x.exponent - (width - 1) - scale
    units = x.significand.resized(width + most + 1).shift_left(up.clamp(0, most))
    return units.shift_right((-up).clamp(min=0))


def order(x: Raw, y: Raw) -> Tensor:
    """Return True where the magnitude of x is less than that of y; significands have one width."""
    distance = x.exponent - y.exponent
    return (distance < 0) | ((distance == 0) & (x.significand < y.significand))


def widen(x: Raw, width: int) -> Raw:
    """Append zeros to the significand up to a width."""
    return replace(x, significand=x.significand.pad(width - x.significand.width))


@dataclass(frozen=True)
class Aligned:
    """Operands of an addition with a common last place; ``sticky`` is set if ``small`` lost ones in its shift."""

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
    invalid: Tensor | None


def align(x: Raw, y: Raw, window: int) -> Aligned:
    """Order two numbers by magnitude and shift the smaller one right to a common last place.

    ``window`` is the number of leading bits of the sum that must be exact; bits below are sticky.
    """
    # One more bit, because a difference of numbers with distant exponents may lose its leading bit.
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
        invalid=invalid_of(x, y, lambda: x.inf & y.inf & (x.sign ^ y.sign)),
    )


def _select(condition: Tensor, x: Wide, y: Wide) -> Wide:
    return Wide(tuple(torch.where(condition, p, q) for p, q in zip(x.limbs, y.limbs, strict=True)), x.width)


def add(z: Aligned, rounding: Rounding) -> Raw:
    """Add or subtract aligned numbers; an exactly cancelled sum is -0 under ``rd``, else +0.

    The significand of a difference is its floor; ``sticky`` is set if the difference is larger.
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
        invalid=z.invalid,
    )
