"""Wide integers on tensors against Python's integers, around limb boundaries."""

import random

import pytest
import torch

from halfulp.golden.wide import DIGIT, LIMB, MASK, Wide, carry, from_digits, limbs_of

WIDTHS = [1, 8, 31, 53, 60, 61, 62, 63, 64, 106, 123, 124, 125, 154, 185, 186, 187, 249, 512, 1024]


def wide(numbers, width):
    """Convert Python ints to a Wide."""
    limbs = [
        torch.tensor([(number >> (LIMB * index)) & MASK for number in numbers]) for index in range(limbs_of(width))
    ]
    return Wide(tuple(limbs), width)


def ints(value):
    """Convert a Wide to Python ints."""
    return [
        sum(limb << (LIMB * index) for index, limb in enumerate(row))
        for row in zip(*(limb.tolist() for limb in value.limbs), strict=True)
    ]


def samples(width, seed=0, count=200):
    """Return numbers with runs of ones and zeros, edge cases first."""
    rng = random.Random(f"{width}.{seed}")
    top = (1 << width) - 1
    numbers = [0, 1, top, top >> 1, top ^ 1, 1 << (width - 1)]
    # Limbs of only ones or only zeros propagate a carry or a borrow.
    numbers += [number for at in range(LIMB, width, LIMB) for number in (1 << at, (1 << at) - 1, top ^ ((1 << at) - 1))]
    while len(numbers) < count:
        numbers.append(rng.choice((rng.getrandbits(width), top >> rng.randrange(width), 1 << rng.randrange(width))))
    return [number & top for number in numbers]


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_compares_and_counts_bits(width):
    xs, ys = samples(width), samples(width, seed=1)
    x, y = wide(xs, width), wide(ys, width)
    assert ints(x) == xs
    assert (x < y).tolist() == [p < q for p, q in zip(xs, ys, strict=True)]
    assert x.equals(y).tolist() == [p == q for p, q in zip(xs, ys, strict=True)]
    assert x.is_zero().tolist() == [p == 0 for p in xs]
    assert x.bit_length().tolist() == [p.bit_length() for p in xs]


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_adds_and_subtracts(width):
    xs, ys = samples(width), samples(width, seed=1)
    assert ints(wide(xs, width) + wide(ys, width)) == [p + q for p, q in zip(xs, ys, strict=True)]
    big = [max(p, q) for p, q in zip(xs, ys, strict=True)]
    small = [min(p, q) for p, q in zip(xs, ys, strict=True)]
    borrow = [int(p > q) for p, q in zip(big, small, strict=True)]
    found = wide(big, width).minus(wide(small, width), torch.tensor(borrow))
    assert ints(found) == [p - q - b for p, q, b in zip(big, small, borrow, strict=True)]


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_shifts(width):
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
def test_wide_reads_bits(width):
    xs = samples(width)
    x = wide(xs, width)
    rng = random.Random(width)
    for _ in range(60):
        low = rng.randrange(width)
        count = rng.randint(0, min(width - low, LIMB))
        assert x.bits(low, count).tolist() == [(p >> low) & ((1 << count) - 1) for p in xs]
        assert x.any_below(low).tolist() == [p & ((1 << low) - 1) != 0 for p in xs]


@pytest.mark.parametrize(
    ("width", "places"),
    [(8, 3), (53, 9), (53, 10), (61, 60), (62, 62), (64, 60), (1, 123), (1, 124), (62, 124), (100, 200), (250, 1)],
)
def test_wide_pads(width, places):
    xs = samples(width)
    padded = wide(xs, width).pad(places)
    assert padded.width == width + places
    assert ints(padded) == [x << places for x in xs]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 1),
        (11, 53),
        (31, 31),
        (31, 32),
        (53, 53),
        (62, 62),
        (64, 64),
        (62, 63),
        (124, 124),
        (125, 61),
        (187, 130),
        (248, 249),
        (1, 300),
    ],
)
def test_wide_multiplies(first, second):
    xs, ys = samples(first), samples(second, seed=1)
    assert ints(wide(xs, first) * wide(ys, second)) == [p * q for p, q in zip(xs, ys, strict=True)]


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_splits_into_digits(width):
    xs = samples(width)
    digits = wide(xs, width).digits()
    assert len(digits) == -(-width // DIGIT)
    for index, digit in enumerate(digits):
        assert digit.tolist() == [(x >> (DIGIT * index)) & ((1 << DIGIT) - 1) for x in xs]
    assert ints(from_digits(digits, width)) == xs


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 33])
def test_wide_of_digits_carries(count):
    """Digits may have any sign; the last carry is negative if the number is."""
    rng = random.Random(count)
    rows = [
        [rng.randint(-(1 << bits), 1 << bits) for _ in range(count)] for bits in (1, 30, 31, 45, 60) for _ in range(40)
    ]
    rows += [[-1] + [0] * (count - 1), [(1 << DIGIT)] + [(1 << DIGIT) - 1] * (count - 1), [0] * count]
    numbers = [sum(digit << (DIGIT * index) for index, digit in enumerate(row)) for row in rows]
    digits = [torch.tensor(column) for column in zip(*rows, strict=True)]
    settled, carried = carry(digits)
    assert all(((digit >= 0) & (digit < 1 << DIGIT)).all() for digit in settled)
    found = [
        sum(digit << (DIGIT * index) for index, digit in enumerate(row))
        for row in zip(*(digit.tolist() for digit in (*settled, carried)), strict=True)
    ]
    assert found == numbers
    kept = [number for number in numbers if number >= 0]
    positive = [digit[torch.tensor([number >= 0 for number in numbers])] for digit in digits]
    # The last digit of a number that fits does not grow, independent of the lower digits.
    width = max(number.bit_length() for number in kept)
    assert ints(from_digits([*positive, *[torch.zeros_like(positive[0])] * 2], width)) == kept


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_truncates(width):
    xs = samples(width)
    x = wide(xs, width)
    for low in {0, 1, DIGIT, LIMB - 1, LIMB, LIMB + 1, 2 * LIMB, width // 2, width - 1, width, width + 70}:
        cut = x.truncated(low)
        assert cut.width == max(width - low, 1)
        assert ints(cut) == [p >> low for p in xs]
        assert x.any_below(low).tolist() == [p & ((1 << low) - 1) != 0 for p in xs]
    for more in (0, 1, 61, 62, 200):
        assert ints(x.resized(width + more)) == xs
        assert ints(x.resized(width + more).resized(width)) == xs
    assert [code & ((1 << 64) - 1) for code in x.low64().tolist()] == [p & ((1 << 64) - 1) for p in xs]


@pytest.mark.parametrize("width", [1, 61, 62, 63, 64, 100, 300])
def test_wide_of_integers(width):
    codes = [0, 1, (1 << min(width, LIMB)) - 1, 1 << (min(width, LIMB) - 1)]
    codes += [-1, -(1 << 63), (1 << 63) - 1, -2] if width >= 64 else []
    made = Wide.of(torch.tensor(codes), width)
    assert made.width == width
    assert ints(made) == [code & ((1 << 64) - 1) for code in codes]
    for number in (0, 1, (1 << width) - 1, 1 << (width - 1), (1 << width) // 3):
        assert ints(Wide.constant(number, width, torch.zeros(3, dtype=torch.int64))) == [number] * 3


@pytest.mark.parametrize("width", [40, 100, 187, 400])
def test_wide_shifts_broadcast(width):
    xs = samples(width, count=20)
    x = Wide(tuple(limb[:, None] for limb in wide(xs, width).limbs), width)
    amounts = torch.tensor([0, 1, 31, 61, 62, 63, 124, 186, 300, 5000])
    down, lost = x.shift_right(amounts)
    for row, number in enumerate(xs):
        for column, amount in enumerate(amounts.tolist()):
            found = sum(int(limb[row, column]) << (LIMB * index) for index, limb in enumerate(down.limbs))
            assert found == number >> amount
            assert lost[row, column] == (number & ((1 << amount) - 1) != 0)
    ups = torch.tensor([0, 1, 30, width - 2, width - 1])
    up = wide([1] * 3, width)
    shifted = Wide(tuple(limb[:, None] for limb in up.limbs), width).shift_left(ups)
    for column, amount in enumerate(ups.tolist()):
        found = {sum(int(limb[row, column]) << (LIMB * i) for i, limb in enumerate(shifted.limbs)) for row in range(3)}
        assert found == {1 << amount}
