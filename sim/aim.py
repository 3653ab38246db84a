"""Operands made backwards: from a result that is hard to round to operands that come closest to it.

Plain exact arithmetic, one vector at a time; a few thousand of these say more than millions of random ones.
"""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction

from halfulp.hdl.formats import RZ, Float

Operands = dict[str, int]


def targets(fmt: Float, rng: random.Random) -> Iterator[Fraction]:
    """Exact values at which a rounding to ``fmt`` turns: the ends of the range first, then random ones, for ever."""
    quantum = fmt.smallest if fmt.subnormals else Fraction(2) ** fmt.emin
    top_place = Fraction(2) ** (fmt.emax - fmt.man)
    fixed = [
        *(fmt.largest + step * top_place for step in (0, Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), 1)),
        fmt.largest - top_place / 2,
        *(step * quantum for step in (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), 1, Fraction(3, 2), 2)),
        *(
            Fraction(2) ** fmt.emin - step * Fraction(2) ** fmt.quantum
            for step in (Fraction(1, 2), Fraction(1, 4), 1, 0)
        ),
    ]
    while True:
        if rng.random() < 0.4:
            yield rng.choice(fixed)
            continue
        low = fmt.decode(rng.randint(0, max(fmt.max_code - 1, 0)))
        assert isinstance(low, Fraction)
        place = Fraction(2) ** max(_exponent(low) - fmt.man, fmt.quantum)
        yield low + place * rng.choice((0, Fraction(1, 2), Fraction(1, 2), Fraction(1, 4), Fraction(3, 4)))


def products(a: Float, b: Float, o: Float, rng: random.Random, count: int) -> list[Operands]:
    """Pairs whose product comes closest to a target, from either side."""
    rows = []
    for _, target in zip(range(count), targets(o, rng), strict=False):
        x = _random_code(a, rng, _exponent(target) // 2 if rng.random() < 0.5 else None)
        value = _value(a, x)
        quotient = abs(target / value) if value else Fraction(1)
        rows.append({"a": x, "b": _near(b, quotient, rng)})
    return rows


def sums(a: Float, b: Float, o: Float, rng: random.Random, count: int) -> list[Operands]:
    """Pairs whose sum comes closest to a target, from either side."""
    rows = []
    for _, target in zip(range(count), targets(o, rng), strict=False):
        x = _random_code(a, rng, _exponent(target) - rng.randint(-2, o.man + 3))
        rows.append({"a": x, "b": _near(b, target - _value(a, x), rng)})
    return rows


def fused(a: Float, b: Float, c: Float, o: Float, rng: random.Random, count: int) -> list[Operands]:
    """Triples for which a * b + c comes closest to a target, from either side."""
    rows = []
    for _, target in zip(range(count), targets(o, rng), strict=False):
        wanted = _exponent(target) - rng.randint(-3, o.man + 3)
        low, high = max(a.emin, wanted - b.emax), min(a.emax, wanted - b.emin)
        first = rng.randint(min(low, high), max(low, high))
        x, y = _random_code(a, rng, first), _random_code(b, rng, wanted - first)
        rows.append({"a": x, "b": y, "c": _near(c, target - _value(a, x) * _value(b, y), rng)})
    return rows


def conversions(a: Float, o: Float, rng: random.Random, count: int) -> list[Operands]:
    """Numbers closest to a target."""
    return [{"a": _near(a, target, rng)} for _, target in zip(range(count), targets(o, rng), strict=False)]


Maker = Callable[..., list[Operands]]


def _random_code(fmt: Float, rng: random.Random, exponent: int | None) -> int:
    """A finite code, near a given exponent if there is one."""
    sign = rng.getrandbits(1) * fmt.sign_code
    if exponent is None:
        return min(rng.randint(0, fmt.max_code), fmt.max_code) | sign
    field = min(max(exponent + fmt.bias, 0), fmt.max_code >> fmt.man)
    mantissa = rng.choice((rng.getrandbits(53), 0, 1, -1, rng.getrandbits(53))) & ((1 << fmt.man) - 1)
    return min((field << fmt.man) | mantissa, fmt.max_code) | sign


def _near(fmt: Float, value: Fraction, rng: random.Random) -> int:
    """Code just below a value in magnitude, or a place or two beside it."""
    code = fmt.encode(value, RZ, saturate=True)
    sign, magnitude = code & fmt.sign_code, code & (fmt.sign_code - 1)
    return min(max(magnitude + rng.choice((0, 0, 1, 1, -1, 2)), 0), fmt.sign_code - 1) | sign


def _value(fmt: Float, code: int) -> Fraction:
    value = fmt.decode(code)
    return value if isinstance(value, Fraction) else Fraction(0)


def _exponent(value: Fraction) -> int:
    return abs(value).numerator.bit_length() - value.denominator.bit_length() if value else 0
