"""Unsigned integers of up to 124 bits on tensors.

A `Wide` is a tuple of limbs of 62 bits in int64, least significant first: one limb where its width allows, which is
then computed on like any tensor, else two. Two are enough for every format there is: the product of two 53-bit
significands, with the places that rounding looks at and a carry.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LIMB = 62
"""Bits of a limb: sums of two, and a borrow, stay within int64."""

MASK = (1 << LIMB) - 1
_HALF = LIMB // 2
_HALF_MASK = (1 << _HALF) - 1


@dataclass(frozen=True)
class Wide:
    """Unsigned integers below 2^width."""

    limbs: tuple[Tensor, ...]
    width: int

    def __post_init__(self) -> None:
        assert len(self.limbs) == limbs_of(self.width), f"{len(self.limbs)} limbs for {self.width} bits"

    @classmethod
    def of(cls, value: Tensor, width: int) -> "Wide":
        """From int64 values below 2^62."""
        return cls((value, torch.zeros_like(value))[: limbs_of(width)], width)

    def resized(self, width: int) -> "Wide":
        """The same numbers, which fit, in another width."""
        if limbs_of(width) == len(self.limbs):
            return Wide(self.limbs, width)
        if len(self.limbs) == 1:
            return Wide.of(self.limbs[0], width)
        return Wide(self.limbs[:1], width)

    @property
    def low(self) -> Tensor:
        """The least significant 62 bits."""
        return self.limbs[0]

    def __add__(self, other: "Wide") -> "Wide":
        """Sum of numbers of one width, one bit wider."""
        width = self.width + 1
        if limbs_of(width) == 1:
            return Wide((self.low + other.low,), width)
        x, y = self.resized(width).limbs, other.resized(width).limbs
        low = x[0] + y[0]
        return Wide((low & MASK, x[1] + y[1] + (low >> LIMB)), width)

    def minus(self, other: "Wide", borrow: Tensor) -> "Wide":
        """Difference of numbers of one width, less a borrow of 0 or 1; it is not negative."""
        low = self.low - other.low - borrow
        if len(self.limbs) == 1:
            return Wide((low,), self.width)
        # An arithmetic shift of a negative limb is the borrow from the next one.
        return Wide((low & MASK, self.limbs[1] - other.limbs[1] + (low >> LIMB)), self.width)

    def __mul__(self, other: "Wide") -> "Wide":
        """Product of numbers of one limb each."""
        width = self.width + other.width
        if limbs_of(width) == 1:
            return Wide((self.low * other.low,), width)
        (x_high, x_low), (y_high, y_low) = (((v.low >> _HALF), v.low & _HALF_MASK) for v in (self, other))
        middle = x_high * y_low + x_low * y_high
        low = x_low * y_low + ((middle & _HALF_MASK) << _HALF)
        high = x_high * y_high + (middle >> _HALF) + (low >> LIMB)
        return Wide((low & MASK, high), width)

    def __lt__(self, other: "Wide") -> Tensor:
        if len(self.limbs) == 1:
            return self.low < other.low
        (x_low, x_high), (y_low, y_high) = self.limbs, other.limbs
        return (x_high < y_high) | ((x_high == y_high) & (x_low < y_low))

    def equals(self, other: "Wide") -> Tensor:
        """Element-wise equality of numbers of one width."""
        equal = self.low == other.low
        return equal if len(self.limbs) == 1 else equal & (self.limbs[1] == other.limbs[1])

    def is_zero(self) -> Tensor:
        """Where the number is zero."""
        zero = self.low == 0
        return zero if len(self.limbs) == 1 else zero & (self.limbs[1] == 0)

    def bit_length(self) -> Tensor:
        """Bits up to the first one; 0 of zero."""
        low = _bit_length(self.low, min(self.width, LIMB))
        if len(self.limbs) == 1:
            return low
        return torch.where(self.limbs[1] == 0, low, _bit_length(self.limbs[1], self.width - LIMB) + LIMB)

    def pad(self, places: int) -> "Wide":
        """Zeros appended below."""
        if places == 0:
            return self
        width = self.width + places
        if limbs_of(width) == 1:
            return Wide((self.low << places,), width)
        return self.resized(width).shift_left(torch.full_like(self.low, places))

    def shift_left(self, amount: Tensor) -> "Wide":
        """Shifted up by less than the width; no one is lost."""
        if len(self.limbs) == 1:
            return Wide((self.low << amount,), self.width)
        low, high = self.limbs
        within = amount.clamp(max=LIMB - 1)
        beyond = (amount - LIMB).clamp(min=0)
        # From a limb moved by less than its length, what leaves it enters the next one.
        carried = (low >> 1) >> (LIMB - 1 - within)
        near = ((low << within) & MASK, ((high << within) & MASK) | carried)
        far = (torch.zeros_like(low), (low << beyond) & MASK)
        is_far = amount >= LIMB
        return Wide(tuple(torch.where(is_far, f, n) for f, n in zip(far, near, strict=True)), self.width)

    def shift_right(self, amount: Tensor) -> tuple["Wide", Tensor]:
        """Shifted down by any amount, and where ones were lost."""
        amount = amount.clamp(max=self.width)
        if len(self.limbs) == 1:
            shifted = Wide((self.low >> amount,), self.width)
            return shifted, (shifted.low << amount) != self.low
        low, high = self.limbs
        within = amount.clamp(max=LIMB - 1)
        beyond = (amount - LIMB).clamp(min=0)
        near = ((low >> within) | ((high << 1 << (LIMB - 1 - within)) & MASK), high >> within)
        far = (high >> beyond, torch.zeros_like(high))
        is_far = amount >= LIMB
        shifted = Wide(tuple(torch.where(is_far, f, n) for f, n in zip(far, near, strict=True)), self.width)
        kept = torch.where(is_far, torch.zeros_like(low), (low >> within) << within)
        kept_high = torch.where(is_far, (high >> beyond) << beyond, high)
        return shifted, (kept != low) | (kept_high != high)

    def bits(self, low: int, count: int) -> Tensor:
        """``count`` bits, at most 62, from position ``low`` up."""
        if low >= LIMB:
            return (self.limbs[1] >> (low - LIMB)) & ((1 << count) - 1)
        value = self.low >> low
        above = low + count - LIMB
        if above > 0 and len(self.limbs) > 1:
            value = value | ((self.limbs[1] & ((1 << above) - 1)) << (LIMB - low))
        return value & ((1 << count) - 1)

    def any_below(self, count: int) -> Tensor:
        """Whether one of the lowest ``count`` bits is set."""
        if count <= LIMB:
            return (self.low & ((1 << count) - 1)) != 0
        return (self.low != 0) | ((self.limbs[1] & ((1 << (count - LIMB)) - 1)) != 0)


def limbs_of(width: int) -> int:
    """Limbs of an integer of ``width`` bits."""
    assert width <= 2 * LIMB, f"{width} bits do not fit two limbs"
    return 1 if width <= LIMB else 2


def _bit_length(value: Tensor, width: int) -> Tensor:
    """Bits up to the first one of int64 values below 2^width, by the exponent of the float64 that holds them."""
    if width > 53:
        # Clearing every one that follows a one keeps the first and lets the conversion not round up to the next power.
        value = value & ~(value >> 1)
    return (value.to(torch.float64).view(torch.int64) >> 52).sub_(1022).clamp_(min=0)
