"""Sums of products of posits in the golden model against the quires of SoftPosit.

``q32_to_p32`` and ``qX2_to_pX2`` ignore bits after the 64th just above the last midpoint (`last_tail_lost`).
``q16_fdp_add`` does not set the lower 64 bits of products of 2^37 or more, and shifts those of 2^36 wrongly
(`unset_half`). ``quire8`` has 32 bits, which 128 products may overflow.
"""

import functools
import itertools
import random

import pytest
import softposit
import torch

from halfulp import golden
from halfulp.hdl.formats import POSIT64, RO, RZ, Posit
from tests.softposit_differences import (
    COUNT,
    TYPES,
    Strings,
    classify,
    codes_of,
    codes_of_integers,
    every_type,
    lost_exponent_bit,
    sample,
    signed,
    with_sign,
)


def last_middle(fmt):
    """Return the midpoint of the two largest posits, as a longer posit."""
    return Posit(fmt.width + 1, fmt.es).decode(2 * fmt.max_code - 1)


def dots(fmt, seed=1):
    """Return sums of up to 32 products; every second one subtracts some of its products again.

    The first two are just above the last midpoint of two posits, and just below its negative.
    """
    factor = fmt.encode(last_middle(fmt) / fmt.decode(fmt.max_code - 1))
    rows = [[(minus, fmt.max_code - 1, factor), (minus, 1, 1)] for minus in (False, True)]
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    products = list(zip(*(sample(fmt, generator, COUNT).tolist() for _ in range(2)), strict=True))
    while products:
        row = [(rng.random() < 0.5, *products.pop()) for _ in range(min(rng.randint(1, 32), len(products)))]
        if rng.random() < 0.5:
            row += [(not minus, x, y) for minus, x, y in row[: rng.randint(0, len(row))]]
            rng.shuffle(row)
        rows.append(row)
    return rows


def by_quire(kind, rows):
    """Compute sums of products by SoftPosit's quire, rounded once."""
    name = kind.name.replace("p", "q")
    clear, add, subtract = (getattr(softposit, name + what) for what in ("Clr", "_fdp_add", "_fdp_sub"))
    round_to_posit = getattr(softposit, f"{name}_to_{kind.name}")
    x, y, put = kind.number(), kind.number(), kind.number.v.fset
    numbers = []
    for row in rows:
        quire = clear()
        for minus, first, second in row:
            put(x, first << kind.shift)
            put(y, second << kind.shift)
            quire = (subtract if minus else add)(quire, x, y)
        numbers.append(round_to_posit(quire, *kind.wide))
    return codes_of(numbers, kind)


def exact_products(fmt, rows):
    """Return the exact products of each row, NaN if a factor is NaR."""
    value = functools.lru_cache(1 << 16)(fmt.decode)
    return [[-value(x) * value(y) if minus else value(x) * value(y) for minus, x, y in row] for row in rows]


def last_tail_lost(sums, fmt):
    """Lose bits after the 64th: after the second longest regime the sticky bit is overwritten."""
    middle = last_middle(fmt)
    at = torch.tensor([middle < abs(number) < middle + middle / 2**63 for number in sums])
    code = torch.full(at.shape, fmt.max_code - 1)
    return at, code, code


def unset_half(sums, fmt, products):
    """Allow any lower 64 bits of a product of 2^36 or more that is added to a sum up to 2^8."""
    count = [sum(abs(product) >= 2**36 for product in row) for row in products]
    first, last = (
        signed(torch.tensor([fmt.encode(number + 2**8 * many) for number, many in zip(sums, bounds, strict=True)]), fmt)
        for bounds in ([-many for many in count], count)
    )
    return first != last, first, last


def by_format(fmt, rows):
    """Codes of exact sums by the format itself."""
    return torch.tensor([fmt.encode(sum(row)) for row in exact_products(fmt, rows)])


def by_golden_quire(fmt, rows):
    """Compute sums by steps of the golden quire."""
    minus, first, second = (torch.tensor(column).long() for column in zip(*itertools.chain(*rows), strict=True))
    ends = torch.tensor([len(row) for row in rows]).cumsum(0)
    never = torch.zeros_like(minus)
    clear = never.clone()
    clear[ends[:-1]] = 1
    steps = golden.quire_sequence(first, second, never, minus, never, clear, a=fmt, b=fmt, o=fmt)
    return steps[ends - 1]


def by_golden_dot(fmt, rows):
    """Compute sums by golden dot products, padded with terms of 0."""
    most = max(map(len, rows))
    rows = [[*row, *[(False, 0, 0)] * (most - len(row))] for row in rows]
    minus, first, second = torch.tensor(rows).long().unbind(-1)
    first = torch.where(minus == 1, -first & ((1 << fmt.width) - 1), first)
    return golden.dot(first, second, a=fmt, b=fmt, o=fmt)


def compare_quires(kind, sum_up=by_format):
    """Compare sums; return their number and the result of `classify`."""
    fmt = kind.fmt
    rows = dots(fmt)
    theirs = signed(by_quire(kind, rows), fmt)
    products = exact_products(fmt, rows)
    sums = [sum(row) for row in products]
    ours = signed(sum_up(fmt, rows), fmt)
    departures = []
    if kind.name in ("p32", "pX2"):
        departures.append(with_sign(ours, last_tail_lost(sums, fmt)))
    if str(kind) == "pX2-posit32":
        strings = codes_of_integers([POSIT64.encode(number, RO) for number in sums], POSIT64)
        departures.append(with_sign(ours, lost_exponent_bit(Strings.of(strings, fmt), fmt, [])))
    if kind.name == "p16":
        departures.append(unset_half(sums, fmt, products))
    return len(rows), *classify(ours, theirs, departures)


@pytest.mark.sampled(24, 3)
@every_type
@pytest.mark.parametrize("sum_up", [by_format, by_golden_quire, by_golden_dot])
def test_sums_match_softposit(sum_up, kind, oracle):
    count, departed, wrong = compare_quires(kind, sum_up)
    assert count >= COUNT // 32
    assert all(departed)
    assert wrong == []
    if sum_up is not by_format:
        oracle("softposit", "quire" if sum_up is by_golden_quire else "dot", count - sum(departed), kind.fmt)


def test_quire32_of_softposit_overflows_as_documented():
    """The quire holds sums below 2^19, or 127 squares of the largest posit; 128 give 0, and more change the sign."""
    kind = TYPES[0]
    full = [[(minus, 0x7F, 0x7F)] * 127 for minus in (False, True)]
    beyond = [[(minus, 1, 1), *[(minus, 0x7F, 0x7F)] * 128] for minus in (False, True)]
    rows = [*full, *([*row, row[0]] for row in full), *beyond]
    assert by_quire(kind, rows).tolist() == [0x7F, 0x81, 0, 0, 0x81, 0x7F]
    assert [kind.fmt.encode(sum(row)) for row in exact_products(kind.fmt, rows)] == [0x7F, 0x81] * 3


def test_quire128_of_softposit_shifts_as_documented():
    """2^36 - 2^35 - 2^35 becomes the smallest posit: a shift by 64 bits has no effect and duplicates the product."""
    kind = TYPES[1]
    large, small = kind.fmt.encode(2**18), kind.fmt.encode(2**17)
    rows = [[(False, large, large), (True, large, small), (True, large, small)]]
    assert by_quire(kind, rows).tolist() == [1]
    assert sum(exact_products(kind.fmt, rows)[0]) == 0


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", TYPES[:2], ids=str)
def test_softposit_comparison_detects_wrong_mode(kind, monkeypatch):
    monkeypatch.setattr(Posit, "encode_magnitude", functools.partialmethod(truncated, Posit.encode_magnitude))
    assert len(compare_quires(kind)[-1]) > 10


def truncated(fmt, right, magnitude, negative, rounding, random, saturate):
    """Encode a magnitude by truncation, independent of the mode."""
    return right(fmt, magnitude, negative, RZ, random, saturate)
