"""Quotients and square roots of raw numbers on tensors, one bit at a time: the schoolbook methods."""

from typing import Any

import torch
from torch import Tensor

from .raw import ZERO_EXPONENT, Raw, invalid_of, widen
from .wide import LIMB, Wide


def divide(x: Raw, y: Raw, window: int) -> Raw:
    """Return x / y with at least its first ``window`` bits; lower bits are merged into sticky.

    Ones below the last bit of x are merged into sticky, too; y has none. Division by powers of two is exact.
    """
    zero, inf = x.zero | y.inf, x.inf | y.zero
    # Quotients of zeros and by zero have neither a significand nor an exponent.
    regular = ~(zero | inf)
    flags: dict[str, Any] = {
        "sign": x.sign ^ y.sign,
        "nan": x.nan | y.nan | (x.zero & y.zero) | (x.inf & y.inf),
        "inf": inf,
        "zero": zero,
        "invalid": invalid_of(x, y, lambda: (x.zero & y.zero) | (x.inf & y.inf)),
        "by_zero": y.zero & ~(x.zero | x.inf | x.nan | y.nan),
    }
    if y.significand.width == 1:
        exponent = torch.where(regular, x.exponent - y.exponent, ZERO_EXPONENT)
        return Raw(exponent=exponent, significand=_if(regular, x.significand), sticky=x.sticky, **flags)
    width = max(x.significand.width, y.significand.width)
    rest, divisor = (widen(number, width).significand.resized(width + 1) for number in (x, y))
    bits = []
    # The quotient of two significands is more than 1/2 and less than 2.
    for _ in range(window + 1):
        fits = ~(rest < divisor)
        bits.append(fits)
        rest = rest.minus(_if(fits, divisor), torch.zeros_like(rest.low)).resized(width).pad(1)
    small = (~bits[0]).to(torch.int64)
    inexact = ~rest.is_zero() if x.sticky is None else ~rest.is_zero() | x.sticky
    return Raw(
        exponent=torch.where(regular, x.exponent - y.exponent - small, ZERO_EXPONENT),
        significand=_if(regular, _of_bits(bits).shift_left(torch.where(regular, small, 0))),
        sticky=regular & inexact,
        **flags,
    )


def remainder(x: Raw, y: Raw) -> Raw:
    """Return x - y * n for the integer n nearest to x / y, the even one of two."""
    width = max(x.significand.width, y.significand.width)
    x, y = widen(x, width), widen(y, width)
    x_significand, divisor = x.significand.resized(width + 1), y.significand.resized(width + 1)
    nan = x.nan | y.nan | x.inf | y.zero
    is_x = ~nan & (x.zero | y.inf | (x.exponent < y.exponent - 1))
    # Each row doubles the rest; x is added in the row of its last place, and in the row -1 if it is less than y.
    distance = torch.where(nan | is_x, -2, x.exponent - y.exponent)
    rest, odd = Wide.constant(0, width + 1, distance), torch.zeros_like(nan)
    for row in reversed(range(int(distance.max()) + 1 if distance.numel() else 0)):
        doubled = _doubled(rest, _if(distance == row, x_significand))
        odd = ~(doubled < divisor)
        rest = doubled.minus(_if(odd, divisor), torch.zeros_like(distance))
    # In halves of the last place: the rest is more than half of y, or half of it and n odd.
    halves = _doubled(rest, _if(distance == -1, x_significand))
    up = ~(halves < divisor) & (odd | ~halves.equals(divisor)) & ~is_x & ~nan
    nothing = Wide.constant(0, width + 1, distance)
    complement = _doubled(divisor, nothing).minus(_if(up, halves), torch.zeros_like(distance))
    limbs = zip(complement.limbs, halves.limbs, x_significand.limbs, strict=True)
    chosen = tuple(torch.where(is_x, whole, torch.where(up, less, half)) for less, half, whole in limbs)
    significand = Wide(chosen, width + 1).resized(width)
    zero = significand.is_zero()
    length = significand.bit_length()
    exponent = torch.where(is_x, x.exponent, y.exponent - 1) - (width - length)
    return Raw(
        sign=x.sign ^ up,
        exponent=torch.where(zero | nan, ZERO_EXPONENT, exponent),
        significand=significand.shift_left(torch.where(zero, 0, width - length)),
        nan=nan,
        inf=torch.zeros_like(nan),
        zero=zero,
        invalid=invalid_of(x, y, lambda: x.inf | y.zero),
    )


def _doubled(x: Wide, more: Wide) -> Wide:
    """Return 2 x + ``more`` in the same width, which must hold it."""
    return (x.shift_left(torch.ones_like(x.low)) + more).resized(x.width)


def square_root(x: Raw, window: int) -> Raw:
    """Return the square root with at least its first ``window`` bits; lower bits are merged into sticky."""
    width = x.significand.width
    count = max(window, width // 2 + 1)
    # The radicand is in [1, 4), with 2 bits before its point.
    radicand = x.significand.resized(width + 1).shift_left(x.exponent & 1).pad(2 * count - 1 - width)
    root = Wide.constant(0, count, radicand.low)
    for place in reversed(range(count)):
        trial = Wide(tuple(r | t for r, t in zip(root.limbs, _bit(place, root).limbs, strict=True)), count)
        too_large = radicand < trial * trial
        root = Wide(tuple(torch.where(too_large, r, t) for r, t in zip(root.limbs, trial.limbs, strict=True)), count)
    return Raw(
        sign=x.sign,
        exponent=torch.where(x.zero, ZERO_EXPONENT, x.exponent >> 1),
        significand=root,
        nan=x.nan | (x.sign & ~x.zero),
        inf=x.inf,
        zero=x.zero,
        sticky=~(root * root).equals(radicand),
        invalid=invalid_of(x, x, lambda: x.sign & ~x.zero),
    )


def inverse_square_root(x: Raw, window: int) -> Raw:
    """Return 1 / square root with at least its first ``window`` bits; lower bits are merged into sticky."""
    zero, inf = x.inf, x.zero
    width, count = x.significand.width, window + 1
    # The number is in [1, 4), with 2 bits before its point, and the root in (1/2, 1].
    number = x.significand.resized(width + 1).shift_left(x.exponent & 1)
    root = Wide.constant(0, count, number.low)
    dividend = Wide.constant(1 << (width - 1 + 2 * (count - 1)), 2 * count + width + 1, number.low)
    for place in reversed(range(count)):
        trial = Wide(tuple(r | t for r, t in zip(root.limbs, _bit(place, root).limbs, strict=True)), count)
        too_large = dividend < trial * trial * number
        root = Wide(tuple(torch.where(too_large, r, t) for r, t in zip(root.limbs, trial.limbs, strict=True)), count)
    small = (root.bit_length() < count).to(torch.int64)
    regular = ~(zero | inf)
    return Raw(
        sign=x.sign,
        exponent=torch.where(regular, -(x.exponent >> 1) - small, ZERO_EXPONENT),
        significand=_if(regular, _if(regular, root).shift_left(torch.where(regular, small, 0))),
        nan=x.nan | (x.sign & ~x.zero),
        inf=inf,
        zero=zero,
        sticky=regular & ~(root * root * number).equals(dividend),
        invalid=invalid_of(x, x, lambda: x.sign & ~x.zero),
        by_zero=x.zero & ~x.nan,
    )


def _if(condition: Tensor, x: Wide) -> Wide:
    """Return integers where a condition holds, zeros elsewhere."""
    return Wide(tuple(torch.where(condition, limb, 0) for limb in x.limbs), x.width)


def _bit(place: int, like: Wide) -> Wide:
    """Return 2^place."""
    return Wide.constant(1 << place, like.width, like.low)


def _of_bits(bits: list[Tensor]) -> Wide:
    """Return the integers of bits, the most significant one first."""
    low_first = [bit.to(torch.int64) for bit in reversed(bits)]
    limbs = []
    for start in range(0, len(bits), LIMB):
        limb = torch.zeros_like(low_first[0])
        for place, bit in enumerate(low_first[start : start + LIMB]):
            limb = limb | (bit << place)
        limbs.append(limb)
    return Wide(tuple(limbs), len(bits))
