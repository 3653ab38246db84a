"""Wide integers on tensors against Python's, around the limb boundaries."""

import random

import pytest
import torch

from halfulp.golden.wide import LIMB, MASK, Wide, limbs_of

WIDTHS = [1, 8, 31, 53, 60, 61, 62, 63, 64, 106, 123, 124]


def wide(numbers, width):
    """Python ints as a Wide."""
    limbs = [
        torch.tensor([(number >> (LIMB * index)) & MASK for number in numbers]) for index in range(limbs_of(width))
    ]
    return Wide(tuple(limbs), width)


def ints(value):
    """A Wide as Python ints."""
    return [
        sum(limb << (LIMB * index) for index, limb in enumerate(row))
        for row in zip(*(limb.tolist() for limb in value.limbs), strict=True)
    ]


def samples(width, seed=0, count=200):
    """Numbers with runs of ones and zeros, edges first."""
    rng = random.Random(f"{width}.{seed}")
    top = (1 << width) - 1
    numbers = [0, 1, top, top >> 1, top ^ 1, 1 << (width - 1)]
    while len(numbers) < count:
        numbers.append(rng.choice((rng.getrandbits(width), top >> rng.randrange(width), 1 << rng.randrange(width))))
    return [number & top for number in numbers]


@pytest.mark.parametrize("width", WIDTHS)
def test_compare_and_count(width):
    xs, ys = samples(width), samples(width, seed=1)
    x, y = wide(xs, width), wide(ys, width)
    assert ints(x) == xs
    assert (x < y).tolist() == [p < q for p, q in zip(xs, ys, strict=True)]
    assert x.equals(y).tolist() == [p == q for p, q in zip(xs, ys, strict=True)]
    assert x.is_zero().tolist() == [p == 0 for p in xs]
    assert x.bit_length().tolist() == [p.bit_length() for p in xs]


@pytest.mark.parametrize("width", WIDTHS[:-1])
def test_sums_and_differences(width):
    xs, ys = samples(width), samples(width, seed=1)
    assert ints(wide(xs, width) + wide(ys, width)) == [p + q for p, q in zip(xs, ys, strict=True)]
    big = [max(p, q) for p, q in zip(xs, ys, strict=True)]
    small = [min(p, q) for p, q in zip(xs, ys, strict=True)]
    borrow = [int(p > q) for p, q in zip(big, small, strict=True)]
    found = wide(big, width).minus(wide(small, width), torch.tensor(borrow))
    assert ints(found) == [p - q - b for p, q, b in zip(big, small, borrow, strict=True)]


@pytest.mark.parametrize("width", WIDTHS)
def test_shifts(width):
    xs = samples(width)
    rng = random.Random(width)
    down = [rng.randrange(width + 5) for _ in xs]
    shifted, lost = wide(xs, width).shift_right(torch.tensor(down))
    assert ints(shifted) == [x >> n for x, n in zip(xs, down, strict=True)]
    assert lost.tolist() == [x != x >> n << n for x, n in zip(xs, down, strict=True)]
    room = [width - x.bit_length() for x in xs]
    up = [rng.randint(0, n) for n in room]
    assert ints(wide(xs, width).shift_left(torch.tensor(up))) == [x << n for x, n in zip(xs, up, strict=True)]


@pytest.mark.parametrize("width", WIDTHS)
def test_bits(width):
    xs = samples(width)
    x = wide(xs, width)
    rng = random.Random(width)
    for _ in range(60):
        low = rng.randrange(width)
        count = rng.randint(0, min(width - low, LIMB))
        assert x.bits(low, count).tolist() == [(p >> low) & ((1 << count) - 1) for p in xs]
        assert x.any_below(low).tolist() == [p & ((1 << low) - 1) != 0 for p in xs]


@pytest.mark.parametrize(("width", "places"), [(8, 3), (53, 9), (53, 10), (61, 60), (62, 62), (64, 60), (1, 123)])
def test_padding(width, places):
    xs = samples(width)
    padded = wide(xs, width).pad(places)
    assert padded.width == width + places
    assert ints(padded) == [x << places for x in xs]


@pytest.mark.parametrize(("first", "second"), [(1, 1), (11, 53), (31, 31), (31, 32), (53, 53), (62, 62)])
def test_products(first, second):
    xs, ys = samples(first), samples(second, seed=1)
    assert ints(wide(xs, first) * wide(ys, second)) == [p * q for p, q in zip(xs, ys, strict=True)]
