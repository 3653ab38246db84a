"""Operands whose quotient or root is next to the middle between two numbers, from congruences of integers.

With the middle as an odd integer m, a quotient n / d has the remainder r if n 2^k = d m + r. The divisor that gives a
chosen r is -r / m modulo 2^k (D. S. Parks, Number-theoretic test generation for directed rounding, ARITH 14, 1999). A
square root is next to m if m^2 = c modulo 2^k for a small c, which is 1 modulo 8 (W. Kahan, A test for correctly
rounded SQRT, 1996). The remainders are the smallest there are: a few units of 2^-2p of the result at a precision of p
bits. Reciprocals and reciprocal roots are computed from the middle.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .fields import Codes, Grid, Ints, words

FARTHEST = 4
"""Largest distance of the exponents of dividend and divisor from the middle of their range, with tapered precision."""


class Middle(NamedTuple):
    """Middles between numbers ``significand * 2^exponent``, both arrays; significands are odd."""

    significand: list[int]
    exponent: Ints

    @classmethod
    def of(cls, o: Grid, exponent: Ints, rng: np.random.Generator) -> "Middle":
        """Choose random middles between numbers with these exponents, with the precision of the format there."""
        room = o.room(exponent)
        top = (np.uint64(1) << (room - 1).astype(np.uint64)).tolist()
        low = words(rng, len(exponent)).tolist()
        return cls([2 * (t | (w & (t - 1))) + 1 for t, w in zip(top, low, strict=True)], exponent - room)


def quotients(a: Grid, b: Grid, o: Grid, n: int, seed: int = 0) -> dict[str, Codes]:
    """Return n dividends and divisors.

    Operands have two bits more than the result, or fewer; other results are only near middles.
    """
    rng = np.random.default_rng(seed)
    lowest, highest = max(o.quantum, a.quantum - b.emax), min(o.emax, a.emax - b.quantum)
    # Results may all be beyond the range of their format.
    exponent = rng.integers(min(lowest, o.emax), max(min(lowest, o.emax), highest) + 1, n)
    middle = Middle.of(o, exponent, rng)
    # Exponents of divisors for which the dividend is in the range of its format too.
    low = np.maximum(b.first_normal, a.first_normal - exponent)
    high = np.maximum(np.minimum(b.emax, a.emax - exponent), low)
    if "tapered" in (a.fmt.spacing, b.fmt.spacing):
        low, high = np.maximum(low, -exponent // 2 - FARTHEST), np.minimum(high, -exponent // 2 + FARTHEST)
    of_divisor = rng.integers(low, np.maximum(low, high) + 1)
    precision = b.room(of_divisor).tolist()
    remainders = (rng.geometric(0.5, n) * 2 - 1) * rng.choice(np.array([-1, 1]), n)
    dividends, divisors = [], []
    for m, k, r in zip(middle.significand, precision, remainders.tolist(), strict=True):
        modulus = 1 << k
        d = -r * pow(m, -1, modulus) % modulus
        # The smaller one of both signs, so that the dividend has no bit more than half the middle.
        d, r = (d, r) if 2 * d < modulus else (modulus - d, -r)
        dividends.append(max((d * m + r) >> k, 1))
        divisors.append(d)
    scale = of_divisor - _exponents(divisors)
    signs = rng.integers(0, 2, (2, n))
    x = _composed(a, dividends, scale + np.array(precision) + middle.exponent, signs[0])
    return {"a": x, "b": _composed(b, divisors, scale, signs[1])}


def roots(a: Grid, o: Grid, n: int, seed: int = 0) -> dict[str, Codes]:
    """Return n radicands; roots have one bit less than the radicand, or more, if they are as close as stated."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(a.quantum, a.emax + 1, n)
    precision = a.room(exponent).tolist()
    length = (o.room(exponent >> 1) + 1).tolist()
    odd = (exponent & 1).tolist()
    start = rng.integers(0, 2 * n, n).tolist()
    fill = words(rng, n).tolist()
    radicands = []
    for size, bits, more, first, word in zip(precision, length, odd, start, fill, strict=True):
        k = 2 * bits - 1 + more - size
        lowest, highest = math.isqrt((1 << (2 * bits - 2 + more)) - 1) + 1, math.isqrt((1 << (2 * bits - 1 + more)) - 1)
        # Both signs, and less than a unit of the radicand.
        span = min(2 * n, 1 << max(k - 4, 1))
        radicands.append(_radicand(k, lowest, highest, 1 + 8 * (first % span - span // 2), word))
    return {"a": _composed(a, radicands, exponent - np.array(precision) + 1)}


TRIES = 8
"""Number of remainders that are tried for a radicand; one in about two has a root."""


def _radicand(k: int, lowest: int, highest: int, c: int, word: int) -> int:
    """Return n, where n 2^k = m^2 - c with m from lowest to highest."""
    middle = lowest + word % (highest - lowest + 1) | 1
    if not 3 <= k <= highest.bit_length() + 1:
        # Middles whose squares are radicands, or which are so long that no small c has a root.
        shifted = middle * middle >> k if k >= 0 else middle * middle << -k
        return max(shifted + word % 3 - 1, 1)
    for _ in range(TRIES):
        s = 1
        for place in range(3, k):
            # s^2 = c modulo 2^place; the next bit of s corrects the next bit of its square.
            s |= (s * s - c >> place & 1) << (place - 1)
        for root in (s, -s, s + (1 << (k - 1)), (1 << (k - 1)) - s):
            first = lowest + (root - lowest) % (1 << k)
            if first <= highest:
                # Higher bits do not change the congruence.
                m = first + (word % ((highest - first >> k) + 1) << k)
                return (m * m - c) >> k
        c += 8
    return max(middle * middle >> k, 1)


def reciprocals(a: Grid, o: Grid, n: int, seed: int = 0) -> dict[str, Codes]:
    """Return n operands: the inverse of a middle, truncated, or the number after it."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(a.quantum, a.emax + 1, n)
    return {"a": _inverses(a, exponent, Middle.of(o, np.clip(-exponent, o.quantum, o.emax), rng).significand, rng)}


def reciprocal_roots(a: Grid, o: Grid, n: int, seed: int = 0) -> dict[str, Codes]:
    """Return n operands: the inverse of the square of a middle, truncated, or the number after it."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(a.quantum, a.emax + 1, n)
    middle = Middle.of(o, np.clip(-exponent >> 1, o.quantum, o.emax), rng)
    # Odd exponents have squares of twice a middle.
    squares = [m * m << more for m, more in zip(middle.significand, (exponent & 1).tolist(), strict=True)]
    return {"a": _inverses(a, exponent, squares, rng, signed=False)}


def _inverses(a: Grid, exponent: Ints, divisors: list[int], rng: np.random.Generator, signed: bool = True) -> Codes:
    """Encode the significands of 1 / divisors, or their successors, with these exponents."""
    room = a.room(exponent)
    after = rng.integers(0, 2, len(divisors)).tolist()
    numbers = [
        (1 << (divisor.bit_length() - 1 + size)) // divisor + up
        for divisor, size, up in zip(divisors, room.tolist(), after, strict=True)
    ]
    return _composed(a, numbers, exponent - room + 1, rng.integers(0, 2, len(numbers)) * signed)


def _exponents(numbers: list[int]) -> Ints:
    return np.array([number.bit_length() - 1 for number in numbers], dtype=np.int64)


def _composed(grid: Grid, numbers: list[int], scale: Ints, sign: Ints | None = None) -> Codes:
    """Encode numbers times 2^scale, which are positive without ``sign``."""
    places = [grid.man + 1 - number.bit_length() for number in numbers]
    mantissas = [n << place if place >= 0 else n >> -place for n, place in zip(numbers, places, strict=True)]
    sign = np.zeros(len(numbers), dtype=np.int64) if sign is None else sign
    return grid.compose(sign, _exponents(numbers) + scale, np.array(mantissas, dtype=np.uint64))


MIDDLES: dict[str, Callable[..., dict[str, Codes]]] = {
    "div": quotients,
    "reciprocal": reciprocals,
    "sqrt": roots,
    "rsqrt": reciprocal_roots,
}
"""Functions of the formats of operands and result, a number of vectors, and a seed, by the function of a formula."""


def middles(spec: Any, n: int, seed: int = 0) -> dict[str, Codes]:
    """Return n operands of a division or root, by port; other units have none."""
    operands: dict[str, Codes] = {}
    for call in spec.formula.calls:
        if call.function in MIDDLES:
            grids = [Grid.of(fmt) for fmt in (*(spec.operands[name] for name in call.operands), spec.o)]
            operands = MIDDLES[call.function](*grids, n, seed)
    return operands
