"""Unsigned integers of any width on tensors.

A `Wide` is a tuple of limbs of 62 bits in int64, least significant first. Most formats need one limb, whose operations
are those of tensors; wide posits, fp64 and long fixed point need more.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LIMB = 62
"""Bits of a limb: sums of two, and a borrow, stay within int64."""

MASK = (1 << LIMB) - 1
DIGIT = LIMB // 2
"""Bits of half a limb: products of two of them stay within int64."""

DIGIT_MASK = (1 << DIGIT) - 1


@dataclass(frozen=True)
class Wide:
    """Unsigned integers below 2^width."""

    limbs: tuple[Tensor, ...]
    width: int

    def __post_init__(self) -> None:
        assert len(self.limbs) == limbs_of(self.width), f"{len(self.limbs)} limbs for {self.width} bits"

    @classmethod
    def of(cls, value: Tensor, width: int) -> "Wide":
        """Integers from int64 values read as unsigned: below 2^62 if ``width`` is up to 62, else of up to 64 bits."""
        if width <= LIMB:
            return cls((value,), width)
        limbs = [value & MASK, (value >> LIMB) & 3]
        limbs += [torch.zeros_like(value)] * (limbs_of(width) - 2)
        return cls(tuple(limbs), width)

    @classmethod
    def constant(cls, value: int, width: int, like: Tensor) -> "Wide":
        """One integer everywhere."""
        limbs = [torch.full_like(like, (value >> (LIMB * index)) & MASK) for index in range(limbs_of(width))]
        return cls(tuple(limbs), width)

    def resized(self, width: int) -> "Wide":
        """The same numbers in another width that holds them."""
        count = limbs_of(width)
        more = [torch.zeros_like(self.low)] * (count - len(self.limbs))
        return Wide((*self.limbs[:count], *more), width)

    @property
    def low(self) -> Tensor:
        """The least significant 62 bits."""
        return self.limbs[0]

    def low64(self) -> Tensor:
        """The least significant 64 bits, as int64 of the same bits."""
        return self.low if len(self.limbs) == 1 else self.low | (self.limbs[1] << LIMB)

    def __add__(self, other: "Wide") -> "Wide":
        """Sum of numbers of one width, one bit wider."""
        width = self.width + 1
        if limbs_of(width) == 1:
            return Wide((self.low + other.low,), width)
        pairs = zip(self.resized(width).limbs, other.resized(width).limbs, strict=True)
        return Wide(_carried([x + y for x, y in pairs]), width)

    def minus(self, other: "Wide", borrow: Tensor) -> "Wide":
        """Difference of numbers of one width, less a borrow of 0 or 1; it is not negative."""
        first = self.low - other.low - borrow
        if len(self.limbs) == 1:
            return Wide((first,), self.width)
        rest = [x - y for x, y in zip(self.limbs[1:], other.limbs[1:], strict=True)]
        return Wide(_carried([first, *rest]), self.width)

    def __mul__(self, other: "Wide") -> "Wide":
        """Product."""
        width = self.width + other.width
        if limbs_of(width) == 1:
            return Wide((self.low * other.low,), width)
        x, y = self.digits(), other.digits()
        columns: list[Tensor | int] = [0] * (2 * limbs_of(width) + 2)
        for i, p in enumerate(x):
            for j, q in enumerate(y):
                product = p * q
                # Digits of 31 bits leave room in int64 for the sums.
                columns[i + j] = columns[i + j] + (product & DIGIT_MASK)
                columns[i + j + 1] = columns[i + j + 1] + (product >> DIGIT)
        zero = torch.zeros_like(product)
        return from_digits([zero + column for column in columns], width)

    def digits(self) -> list[Tensor]:
        """Digits of 31 bits, least significant first, as many as the width has."""
        halves = [half for limb in self.limbs for half in (limb & DIGIT_MASK, limb >> DIGIT)]
        return halves[: -(-self.width // DIGIT)]

    def __lt__(self, other: "Wide") -> Tensor:
        less = self.low < other.low
        for x, y in zip(self.limbs[1:], other.limbs[1:], strict=True):
            less = (x < y) | ((x == y) & less)
        return less

    def equals(self, other: "Wide") -> Tensor:
        """Element-wise equality of numbers of one width."""
        equal = self.low == other.low
        for x, y in zip(self.limbs[1:], other.limbs[1:], strict=True):
            equal = equal & (x == y)
        return equal

    def is_zero(self) -> Tensor:
        """True where the number is zero."""
        zero = self.low == 0
        for limb in self.limbs[1:]:
            zero = zero & (limb == 0)
        return zero

    def bit_length(self) -> Tensor:
        """Bits up to the first one; 0 of zero."""
        length = bit_length(self.low, min(self.width, LIMB))
        for index, limb in enumerate(self.limbs[1:], 1):
            above = bit_length(limb, min(self.width - LIMB * index, LIMB)) + LIMB * index
            length = torch.where(limb == 0, length, above)
        return length

    def pad(self, places: int) -> "Wide":
        """Numbers with zeros appended below."""
        if places == 0:
            return self
        width = self.width + places
        if limbs_of(width) == 1:
            return Wide((self.low << places,), width)
        return self.resized(width).shift_left(torch.full_like(self.low, places))

    def shift_left(self, amount: Tensor) -> "Wide":
        """Numbers shifted up by less than the width, without losing a one."""
        if len(self.limbs) == 1:
            return Wide((self.low << amount,), self.width)
        limbs, amount = self._broadcast(amount)
        steps, within = amount // LIMB, amount % LIMB
        count = len(self.limbs)
        # Two zeros below the lowest limb: one for the upper bits of a result, and one for its lower bits.
        stack = torch.cat([torch.zeros_like(limbs[:1])] * 2 + [limbs])
        shifted = []
        for index in range(count):
            at = (index + 2 - steps).clamp(min=1)
            here, below = _gather(stack, at), _gather(stack, at - 1)
            # Bits shifted out of a limb enter the next one.
            shifted.append(((here << within) & MASK) | ((below >> 1) >> (LIMB - 1 - within)))
        return Wide(tuple(shifted), self.width)

    def shift_right(self, amount: Tensor) -> tuple["Wide", Tensor]:
        """Numbers shifted down by any amount, and a flag where ones were lost."""
        amount = amount.clamp(max=self.width)
        if len(self.limbs) == 1:
            shifted = Wide((self.low >> amount,), self.width)
            return shifted, (shifted.low << amount) != self.low
        limbs, amount = self._broadcast(amount)
        steps, within = amount // LIMB, amount % LIMB
        stack = torch.cat([limbs] + [torch.zeros_like(limbs[:1])] * 2)
        result = []
        for index in range(len(self.limbs)):
            at = (index + steps).clamp(max=len(self.limbs))
            here, above = _gather(stack, at), _gather(stack, at + 1)
            result.append((here >> within) | ((above << 1 << (LIMB - 1 - within)) & MASK))
        ones_below = torch.cat([torch.zeros_like(limbs[:1]), (limbs != 0).cumsum(0)])
        dropped = _gather(stack, steps) & ((torch.ones_like(within) << within) - 1)
        return Wide(tuple(result), self.width), (_gather(ones_below, steps) + dropped) != 0

    def _broadcast(self, amount: Tensor) -> tuple[Tensor, Tensor]:
        *limbs, amount = torch.broadcast_tensors(*self.limbs, amount)
        return torch.stack(limbs), amount

    def bits(self, low: int, count: int) -> Tensor:
        """``count`` bits, at most 62, from position ``low`` up."""
        index, within = divmod(low, LIMB)
        if index >= len(self.limbs):
            return torch.zeros_like(self.low)
        value = self.limbs[index] >> within
        above = within + count - LIMB
        if above > 0 and len(self.limbs) > index + 1:
            value = value | ((self.limbs[index + 1] & ((1 << above) - 1)) << (LIMB - within))
        return value & ((1 << count) - 1)

    def truncated(self, low: int) -> "Wide":
        """Numbers without their lowest bits."""
        width = max(self.width - low, 1)
        if len(self.limbs) == 1:
            return Wide((self.low >> min(low, LIMB),), width)
        limbs = [self.bits(low + LIMB * index, LIMB) for index in range(limbs_of(width))]
        return Wide(tuple(limbs), width)

    def with_first(self, value: Tensor, bits: int) -> "Wide":
        """The first bit replaced by an integer of ``bits`` bits."""
        below = self.width - 1
        if below == 0:
            return Wide.of(value, bits)
        limbs, within = list(self.limbs[: limbs_of(below)]), below % LIMB
        if within:
            limbs[-1] = limbs[-1] & ((1 << within) - 1)
        rest = Wide(tuple(limbs), below).resized(below + bits)
        first = Wide.of(value, below + bits).shift_left(torch.full_like(value, below))
        return Wide(tuple(x | y for x, y in zip(first.limbs, rest.limbs, strict=True)), below + bits)

    def any_below(self, count: int) -> Tensor:
        """True where one of the lowest ``count`` bits is set."""
        index, within = divmod(count, LIMB)
        below = (
            torch.zeros_like(self.low, dtype=torch.bool)
            if index >= len(self.limbs)
            else (self.limbs[index] & ((1 << within) - 1)) != 0
        )
        for limb in self.limbs[:index]:
            below = below | (limb != 0)
        return below


def limbs_of(width: int) -> int:
    """Limbs of an integer of ``width`` bits."""
    return max(-(-width // LIMB), 1)


def from_digits(digits: list[Tensor], width: int) -> Wide:
    """Integers below 2^width from digits of 31 bits, which may exceed them before carries."""
    digits, _ = carry(digits)
    count = limbs_of(width)
    digits = (digits + [torch.zeros_like(digits[0])] * (2 * count))[: 2 * count]
    return Wide(tuple(low | (high << DIGIT) for low, high in zip(digits[::2], digits[1::2], strict=True)), width)


def carry(digits: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Digits of 31 bits, none of them negative, and the carry out of the last: -1 for a negative number."""
    settled, carried = [], torch.zeros_like(digits[0])
    for digit in digits:
        total = digit + carried
        settled.append(total & DIGIT_MASK)
        carried = total >> DIGIT
    return settled, carried


def _carried(limbs: list[Tensor]) -> tuple[Tensor, ...]:
    """Limbs of a sum or difference; an arithmetic shift of a negative limb is the borrow from the next one."""
    for index in range(len(limbs) - 1):
        limbs[index + 1] = limbs[index + 1] + (limbs[index] >> LIMB)
        limbs[index] = limbs[index] & MASK
    return tuple(limbs)


def _gather(stack: Tensor, at: Tensor) -> Tensor:
    return stack.gather(0, at.unsqueeze(0)).squeeze(0)


def bit_length(value: Tensor, width: int) -> Tensor:
    """Bits up to the first one of int64 values below 2^width, by the exponent of the float64 that holds them."""
    if width > 53:
        # If no two adjacent bits are one, the conversion does not round up to a power of two.
        value = value & ~(value >> 1)
    return (value.to(torch.float64).view(torch.int64) >> 52).sub_(1022).clamp_(min=0)
