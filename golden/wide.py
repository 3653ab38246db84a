"""Unsigned integers of any width on tensors.

A `Wide` is a tuple of limbs of 62 bits in int64, least significant first. Most formats need one limb; wide posits, fp64
and wide fixed-point formats need more.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LIMB = 62
"""Bits of a limb; sums and differences of two limbs and a carry fit int64."""

MASK = (1 << LIMB) - 1
DIGIT = LIMB // 2
"""Bits of half a limb; products of two digits fit int64."""

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
        """Make integers from int64 values: below 2^62 if ``width`` is up to 62, else any, read as unsigned."""
        if width <= LIMB:
            return cls((value,), width)
        limbs = [value & MASK, (value >> LIMB) & 3]
        limbs += [torch.zeros_like(value)] * (limbs_of(width) - 2)
        return cls(tuple(limbs), width)

    @classmethod
    def constant(cls, value: int, width: int, like: Tensor) -> "Wide":
        """Repeat one integer in the shape of ``like``."""
        limbs = [torch.full_like(like, (value >> (LIMB * index)) & MASK) for index in range(limbs_of(width))]
        return cls(tuple(limbs), width)

    def resized(self, width: int) -> "Wide":
        """Return the same integers in another width, which must hold them."""
        count = limbs_of(width)
        more = [torch.zeros_like(self.low)] * (count - len(self.limbs))
        return Wide((*self.limbs[:count], *more), width)

    @property
    def low(self) -> Tensor:
        """Least significant 62 bits."""
        return self.limbs[0]

    def low64(self) -> Tensor:
        """Return the least significant 64 bits, as the int64 with the same bits."""
        return self.low if len(self.limbs) == 1 else self.low | (self.limbs[1] << LIMB)

    def __add__(self, other: "Wide") -> "Wide":
        """Return the sum of integers of one width, one bit wider."""
        width = self.width + 1
        if limbs_of(width) == 1:
            return Wide((self.low + other.low,), width)
        pairs = zip(self.resized(width).limbs, other.resized(width).limbs, strict=True)
        return Wide(_carried([x + y for x, y in pairs]), width)

    def minus(self, other: "Wide", borrow: Tensor) -> "Wide":
        """Return self - other - borrow for integers of one width; the result must not be negative."""
        first = self.low - other.low - borrow
        if len(self.limbs) == 1:
            return Wide((first,), self.width)
        rest = [x - y for x, y in zip(self.limbs[1:], other.limbs[1:], strict=True)]
        return Wide(_carried([first, *rest]), self.width)

    def __mul__(self, other: "Wide") -> "Wide":
        """Return the exact product."""
        width = self.width + other.width
        if limbs_of(width) == 1:
            return Wide((self.low * other.low,), width)
        x, y = self.digits(), other.digits()
        columns: list[Tensor | int] = [0] * (2 * limbs_of(width) + 2)
        for i, p in enumerate(x):
            for j, q in enumerate(y):
                product = p * q
                # Sums of 31-bit digits fit int64.
                columns[i + j] = columns[i + j] + (product & DIGIT_MASK)
                columns[i + j + 1] = columns[i + j + 1] + (product >> DIGIT)
        zero = torch.zeros_like(product)
        return from_digits([zero + column for column in columns], width)

    def digits(self) -> list[Tensor]:
        """Split into 31-bit digits, least significant first."""
        halves = [half for limb in self.limbs for half in (limb & DIGIT_MASK, limb >> DIGIT)]
        return halves[: -(-self.width // DIGIT)]

    def __lt__(self, other: "Wide") -> Tensor:
        less = self.low < other.low
        for x, y in zip(self.limbs[1:], other.limbs[1:], strict=True):
            less = (x < y) | ((x == y) & less)
        return less

    def equals(self, other: "Wide") -> Tensor:
        """Return True where integers of one width are equal."""
        equal = self.low == other.low
        for x, y in zip(self.limbs[1:], other.limbs[1:], strict=True):
            equal = equal & (x == y)
        return equal

    def is_zero(self) -> Tensor:
        """Return True where the integer is zero."""
        zero = self.low == 0
        for limb in self.limbs[1:]:
            zero = zero & (limb == 0)
        return zero

    def bit_length(self) -> Tensor:
        """Return the position of the leading one, counted from 1; 0 for zero."""
        length = bit_length(self.low, min(self.width, LIMB))
        for index, limb in enumerate(self.limbs[1:], 1):
            above = bit_length(limb, min(self.width - LIMB * index, LIMB)) + LIMB * index
            length = torch.where(limb == 0, length, above)
        return length

    def pad(self, places: int) -> "Wide":
        """Append ``places`` zeros below the lowest bit."""
        if places == 0:
            return self
        width = self.width + places
        if limbs_of(width) == 1:
            return Wide((self.low << places,), width)
        return self.resized(width).shift_left(torch.full_like(self.low, places))

    def shift_left(self, amount: Tensor) -> "Wide":
        """Shift left in the same width, by less than the width; no one may be shifted out."""
        if len(self.limbs) == 1:
            return Wide((self.low << amount,), self.width)
        limbs, amount = self._broadcast(amount)
        steps, within = amount // LIMB, amount % LIMB
        count = len(self.limbs)
        # Two zero limbs below the lowest one, because each result limb reads two neighbouring limbs.
        stack = torch.cat([torch.zeros_like(limbs[:1])] * 2 + [limbs])
        shifted = []
        for index in range(count):
            at = (index + 2 - steps).clamp(min=1)
            here, below = _gather(stack, at), _gather(stack, at - 1)
            # The upper bits of the limb below enter this limb.
            shifted.append(((here << within) & MASK) | ((below >> 1) >> (LIMB - 1 - within)))
        return Wide(tuple(shifted), self.width)

    def shift_right(self, amount: Tensor) -> tuple["Wide", Tensor]:
        """Shift right by any amount; also return True where a one was shifted out."""
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
        """Return ``count`` bits (at most 62) from position ``low`` upwards."""
        index, within = divmod(low, LIMB)
        if index >= len(self.limbs):
            return torch.zeros_like(self.low)
        value = self.limbs[index] >> within
        above = within + count - LIMB
        if above > 0 and len(self.limbs) > index + 1:
            value = value | ((self.limbs[index + 1] & ((1 << above) - 1)) << (LIMB - within))
        return value & ((1 << count) - 1)

    def truncated(self, low: int) -> "Wide":
        """Remove the lowest ``low`` bits."""
        width = max(self.width - low, 1)
        if len(self.limbs) == 1:
            return Wide((self.low >> min(low, LIMB),), width)
        limbs = [self.bits(low + LIMB * index, LIMB) for index in range(limbs_of(width))]
        return Wide(tuple(limbs), width)

    def with_first(self, value: Tensor, bits: int) -> "Wide":
        """Replace the most significant bit by an integer of ``bits`` bits."""
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
        """Return True where one of the lowest ``count`` bits is set."""
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
    """Return the number of limbs of an integer of ``width`` bits."""
    return max(-(-width // LIMB), 1)


def from_digits(digits: list[Tensor], width: int) -> Wide:
    """Make integers below 2^width from digits, which may exceed 31 bits before carries."""
    digits, _ = carry(digits)
    count = limbs_of(width)
    digits = (digits + [torch.zeros_like(digits[0])] * (2 * count))[: 2 * count]
    return Wide(tuple(low | (high << DIGIT) for low, high in zip(digits[::2], digits[1::2], strict=True)), width)


def carry(digits: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Propagate carries: return 31-bit digits and the carry out of the last one, which is -1 for negative integers."""
    settled, carried = [], torch.zeros_like(digits[0])
    for digit in digits:
        total = digit + carried
        settled.append(total & DIGIT_MASK)
        carried = total >> DIGIT
    return settled, carried


def _carried(limbs: list[Tensor]) -> tuple[Tensor, ...]:
    """Propagate carries between limbs; the arithmetic shift of a negative limb is a borrow."""
    for index in range(len(limbs) - 1):
        limbs[index + 1] = limbs[index + 1] + (limbs[index] >> LIMB)
        limbs[index] = limbs[index] & MASK
    return tuple(limbs)


def _gather(stack: Tensor, at: Tensor) -> Tensor:
    return stack.gather(0, at.unsqueeze(0)).squeeze(0)


def bit_length(value: Tensor, width: int) -> Tensor:
    """Return the bit length of int64 values below 2^width, from their exponents in float64."""
    if width > 53:
        # Values without adjacent ones do not round up to a power of two in the conversion.
        value = value & ~(value >> 1)
    return (value.to(torch.float64).view(torch.int64) >> 52).sub_(1022).clamp_(min=0)
