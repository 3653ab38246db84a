"""Dot products against the exact model in fractions."""

import functools
import itertools
import math
import random

import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import (
    E5M2,
    RD,
    RN,
    RZ,
    parse,
    stochastic,
)
from tests.golden_against_exact import FEW, MODES, TOY_FAMILIES, WIDE_FAMILIES, aimed, dots, random_words


@pytest.mark.parametrize("seed", range(40))
def test_dot_matches_exact_on_wide_and_mixed_formats(seed):
    rng = random.Random(seed)
    formats = {letter: rng.choice([*WIDE_FAMILIES, *TOY_FAMILIES]) for letter in "abo"}
    if seed % 4 == 0:
        formats = dict.fromkeys("abo", formats["o"])
    starts, order = None, ("exact", "sequential")[seed % 2]
    k, count, near = rng.choice((1, 2, 3, 8, 17)), 40, rng.randint(-3, 3)
    if rng.random() < 0.5:
        formats["c"] = rng.choice(WIDE_FAMILIES)
        starts = aimed(rng, formats["c"], count, 2 * near)
    xs, ys = ([aimed(rng, formats[letter], k, near) for _ in range(count)] for letter in "ab")
    for row in range(0, count, 2):
        # Half of the rows cancel except for one product.
        xs[row][k // 2 :] = xs[row][: k - k // 2]
        ys[row][k // 2 :] = [
            exact.mul(y, formats["b"].encode(-1), a=formats["b"], b=formats["b"], o=formats["b"])
            for y in ys[row][: k - k // 2]
        ]
    rounding = rng.choice([*MODES, stochastic(32)])
    words = None
    if rounding.bits:
        words = [rng.getrandbits(rounding.bits) for _ in range(count)]
        if order == "sequential":
            words = [random_words(rng, rounding, k) for _ in range(count)]
    saturate = rng.random() < 0.3
    assert dots(xs, ys, starts, words, **formats, order=order, rounding=rounding, saturate=saturate) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", ["exact", "sequential"])
@pytest.mark.parametrize("rounding", FEW, ids=str)
def test_dot_matches_exact_on_toy_formats(rounding, order):
    """Different formats per pair, some with start values."""
    rng = random.Random(f"{rounding}{order}")
    for a, b, c, o in (
        ("posit5e1", "posit5e1", None, "posit5e1"),
        ("fxp2.3", "ufxp2.2", "posit4", "fxp3.1-wrap"),
        ("e2m1", "posit4", "fxp1.1", "e2m2"),
        ("uint3-wrap", "fxp2.3", None, "ufxp2.2"),
        ("e3m1", "e2m1fnuz", "e2m1", "e3m1"),
    ):
        formats = {"a": parse(a), "b": parse(b), "o": parse(o)} | ({"c": parse(c)} if c else {})
        for k in (2, 3):
            xs, ys = ([[rng.getrandbits(parse(f).width) for _ in range(k)] for _ in range(60)] for f in (a, b))
            starts = [rng.getrandbits(parse(c).width) for _ in range(60)] if c else None
            words = random_words(rng, rounding, 60)
            if words and order == "sequential":
                words = [random_words(rng, rounding, k) for _ in range(60)]
            assert dots(xs, ys, starts, words, **formats, order=order, rounding=rounding) == []


@pytest.mark.parametrize("order", ["exact", "sequential"])
@pytest.mark.parametrize("rounding", [RN, RD, RZ], ids=str)
def test_dot_signs_of_zero_match_exact(rounding, order):
    """Zeros of both signs, cancellation, infinities and NaN, with every start value."""
    zeros = [E5M2.encode(number) for number in (0.0, -0.0, 1.0, -1.0)]
    specials = [E5M2.encode(number) for number in (0.0, -1.0, math.inf, -math.inf, math.nan)]
    for codes in (zeros, specials):
        rows = list(itertools.product(codes, repeat=4))
        xs, ys = [list(row[:2]) for row in rows], [list(row[2:]) for row in rows]
        parameters = {"a": E5M2, "b": E5M2, "o": E5M2, "order": order, "rounding": rounding}
        assert dots(xs, ys, **parameters) == []
        for start in codes[: 4 if codes is zeros else 0]:
            assert dots(xs, ys, [start] * len(rows), c=E5M2, **parameters) == []


def test_dot_signs_of_zero_match_contract():
    zero, minus_zero, one, minus_one = (E5M2.encode(number) for number in (0.0, -0.0, 1.0, -1.0))
    for x, start, rounding, expected in (
        # Without a start value, a sum starts at +0.
        ([zero, zero], None, RN, zero),
        ([minus_zero, minus_zero], None, RN, zero),
        ([minus_zero, minus_zero], None, RD, minus_zero),
        ([zero, zero], None, RD, zero),
        ([minus_zero, minus_zero], minus_zero, RN, minus_zero),
        ([minus_zero, zero], minus_zero, RN, zero),
        ([one, minus_one], zero, RN, zero),
        ([one, minus_one], zero, RD, minus_zero),
        ([zero, zero], minus_zero, RD, minus_zero),
        ([one, zero], minus_one, RD, minus_zero),
    ):
        operands = [torch.tensor(x), torch.tensor([one, one]), *([] if start is None else [torch.tensor(start)])]
        formats = {"a": E5M2, "b": E5M2, "o": E5M2, "c": None if start is None else E5M2}
        for order in ("exact", "sequential"):
            found = golden.dot(*operands, **formats, rounding=rounding, order=order)
            assert int(found) == expected, (x, start, rounding, order)


def test_dot_and_sequence_shapes():
    x, y = torch.arange(24).reshape(2, 3, 4), torch.arange(24, 48).reshape(2, 3, 4)
    dot = functools.partial(golden.dot, a="posit8", b="int8", o="posit16")
    for order in ("exact", "sequential"):
        found = dot(x, y, order=order)
        assert found.shape == (2, 3)
        assert found.dtype == torch.int64
        for row in itertools.product(range(2), range(3)):
            assert int(dot(x[row], y[row], order=order)) == int(found[row])
        assert dot(x[:0], y[:0], order=order).shape == (0, 3)
        assert torch.equal(dot(x.to(torch.uint8), y.to(torch.int16), order=order), found)
        start = torch.arange(6).reshape(2, 3)
        assert torch.equal(dot(x, y, start, c="e5m2", order=order)[1], dot(x[1], y[1], start[1], c="e5m2", order=order))
    grid = golden.quire(x[0, :, None], y[0, 0], torch.tensor(5), torch.tensor(True), a="posit8", b="int8", o="fxp4.4")
    assert grid.shape == (3, 1, 4)
    assert golden.accumulate(x, torch.tensor(5), a="posit8", acc="exact").shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("change", "error", "keyword"),
    [
        ({"x": [[1, 2]]}, TypeError, "tensor"),
        ({"y": torch.zeros(2, 4, dtype=torch.int64)}, ValueError, "shape"),
        ({"start": torch.zeros(3, 1, dtype=torch.int64)}, ValueError, "start"),
        ({"random": torch.zeros(3, dtype=torch.int64)}, ValueError, "random"),
        ({"random": None}, ValueError, "random"),
    ],
)
def test_dot_rejects_other_shapes(change, error, keyword):
    zeros = torch.zeros(3, 4, dtype=torch.int64)
    given = {"x": zeros, "y": zeros, "start": zeros[:, 0], "random": zeros, **change}
    with pytest.raises(error) as caught:
        golden.dot(
            given["x"],
            given["y"],
            given["start"],
            random=given["random"],
            a="posit8",
            b="posit8",
            o="posit8",
            c="posit8",
            order="sequential",
            rounding="sr2",
        )
    assert keyword in str(caught.value)
