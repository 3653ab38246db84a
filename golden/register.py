"""Exact sums on tensors: two's-complement integers of any width, as digits of 31 bits with deferred carries."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfulp.hdl.formats import RD, Rounding
from halfulp.hdl.specs import QuireRegister, ValueRange
from halfulp.hdl.specs.dot import Alignment

from .raw import Raw, normalised
from .wide import DIGIT, DIGIT_MASK, carry, from_digits


@dataclass(frozen=True)
class Register:
    """Exact sums ``integer * 2^quantum``.

    Attributes
    ----------
    digits : tuple of Tensor
        Digits of the integer, least significant first, each 0 to 2^31 - 1.
    negative : Tensor of bool
        Sign of the two's-complement integer.
    nan, inf, inf_sign : Tensor of bool
        ``nan`` has priority over ``inf``, and both over the integer.
    """

    digits: tuple[Tensor, ...]
    negative: Tensor
    nan: Tensor
    inf: Tensor
    inf_sign: Tensor

    def __getitem__(self, index: Tensor) -> "Register":
        """Select sums by index or mask."""
        flags = {name: getattr(self, name)[index] for name in ("negative", "nan", "inf", "inf_sign")}
        return replace(self, digits=tuple(digit[index] for digit in self.digits), **flags)


def place(x: Raw, quantum: int | Tensor, width: int, *, floor: bool = False) -> Register:
    """Convert numbers to registers of ``width`` bits.

    Bits below 2^quantum are removed, from the magnitude or with ``floor`` from the two's complement.
    """
    precision = x.significand.width
    up = x.exponent - (precision - 1) - quantum + precision
    up = torch.where(x.zero | x.nan | x.inf, 0, up).clamp(min=0)
    shifted = x.significand.resized(width + precision).shift_left(up)
    magnitude = shifted.truncated(precision)
    digits = [torch.where(x.sign, -digit, digit) for digit in magnitude.resized(DIGIT * count_of(width)).digits()]
    if floor:
        number = ~(x.zero | x.nan | x.inf)
        digits[0] = digits[0] - (number & x.sign & shifted.any_below(precision)).to(torch.int64)
    return _settled(digits, x.nan, x.inf, x.sign)


def count_of(width: int) -> int:
    """Return the number of digits of a register of ``width`` bits, with room for the overflow of one step."""
    return width // DIGIT + 2


def add(x: Register, y: Register) -> Register:
    """Add registers."""
    digits = [p + q for p, q in zip(x.digits, y.digits, strict=True)]
    # The sign has the weight of the digit above the last one, and is negative.
    digits[-1] = digits[-1] - ((x.negative.to(torch.int64) + y.negative.to(torch.int64)) << DIGIT)
    nan = x.nan | y.nan | (x.inf & y.inf & (x.inf_sign ^ y.inf_sign))
    return _settled(digits, nan, x.inf | y.inf, torch.where(x.inf, x.inf_sign, y.inf_sign))


def total(x: Register) -> Register:
    """Sum registers along the last dimension."""
    digits = [digit.sum(-1) for digit in x.digits]
    digits[-1] = digits[-1] - (x.negative.sum(-1) << DIGIT)
    up, down = (x.inf & ~x.inf_sign).any(-1), (x.inf & x.inf_sign).any(-1)
    return _settled(digits, x.nan.any(-1) | (up & down), up | down, down)


def _settled(digits: list[Tensor], nan: Tensor, inf: Tensor, inf_sign: Tensor) -> Register:
    digits, carried = carry(digits)
    return Register(tuple(digits), carried < 0, nan, inf, inf_sign)


def guarded(x: Register, quire: QuireRegister) -> Register:
    """Make sums infinite that overflow the width of the quire."""
    index, within = divmod(quire.width - 1, DIGIT)
    ones = torch.where(x.negative, DIGIT_MASK, 0)
    beyond = (x.digits[index] >> within) != (ones >> within)
    for digit in x.digits[index + 1 :]:
        beyond = beyond | (digit != ones)
    beyond = beyond & ~x.inf
    return replace(x, inf=x.inf | beyond, inf_sign=torch.where(beyond, x.negative, x.inf_sign))


def aligned(groups: Sequence[Raw], alignment: Alignment, width: int) -> Raw:
    """Align terms with scales, remove their last bits, and add them along the last dimension.

    Each group has terms of one format; ``width`` is that of the register of the sum. The sign of a zero sum is +.
    """
    scales = [group.scale for group in groups if group.scale is not None]
    top = torch.stack([scale.amax(-1) for scale in scales]).amax(0)
    quantum = top - alignment.fraction
    sums = [total(place(group, quantum.unsqueeze(-1), width, floor=alignment.floor)) for group in groups]
    return as_raw(functools.reduce(add, sums), quantum)


def as_raw(x: Register, quantum: int | Tensor, zero_sign: Tensor | None = None) -> Raw:
    """Convert sums to raw numbers; ``zero_sign`` is the sign of zeros, which registers do not have."""
    sign = x.negative
    digits = [torch.where(sign, DIGIT_MASK - digit, digit) for digit in x.digits]
    digits[0] = digits[0] + sign.to(torch.int64)
    magnitude = from_digits(digits, DIGIT * len(digits))
    zero = magnitude.is_zero()
    sign = torch.where(x.inf, x.inf_sign, sign)
    if zero_sign is not None:
        sign = torch.where(zero & ~x.inf, zero_sign, sign)
    return Raw(
        sign=sign,
        exponent=torch.zeros_like(magnitude.low) + (quantum + magnitude.width - 1),
        significand=magnitude,
        nan=x.nan,
        inf=x.inf,
        zero=zero,
    )


def summed(terms: Raw, numbers: ValueRange, count: int, zero_sign: Tensor) -> Raw:
    """Return the exact sums of ``count`` terms along the last dimension, without leading zeros.

    ``numbers`` is the range of a term, and ``zero_sign`` the sign of a sum of zero.
    """
    quire = QuireRegister.of(numbers, None, max(count.bit_length(), 1))
    return normalised(as_raw(total(place(terms, quire.quantum, quire.width)), quire.quantum, zero_sign))


def cancelled_sign(signs: Tensor, rounding: Rounding) -> Tensor:
    """Return the sign of zero sums from the signs of their terms along the last dimension."""
    return signs.any(-1) if rounding == RD else signs.all(-1)


def step(base: Register, term: Raw, quire: QuireRegister) -> Register:
    """Add one term to a quire."""
    return guarded(add(base, place(term, quire.quantum, quire.width)), quire)
