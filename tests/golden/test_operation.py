"""Operations with one rounded result against the exact model in fractions."""

import itertools
import random

import pytest

from halfulp.golden import exact
from halfulp.hdl.formats import (
    BF16,
    E4M3FN,
    E5M2,
    E6M5,
    FP16,
    FP32,
    FP64,
    Float,
    parse,
    stochastic,
)
from halfulp.hdl.formats.floating import SPECIALS
from tests.golden_against_exact import (
    FEW,
    MODES,
    TOY_FAMILIES,
    WIDE_FAMILIES,
    aimed,
    differences,
    every,
    overflows_by,
    random_words,
)
from tests.settings import EXHAUSTIVE

TOYS = [
    Float(exp, man, specials=specials, subnormals=subnormals)
    for exp, man in ((2, 0), (2, 1), (3, 1))
    for specials in SPECIALS
    for subnormals in (True, False)
    if not (man == 0 and specials == "ieee")
]

ARITY = {"mul": "ab", "add": "ab", "fma": "abc", "convert": "a", "compare": "ab"}


@pytest.mark.sampled(90, 3)
@pytest.mark.parametrize("fmt", TOYS, ids=str)
@pytest.mark.parametrize("name", [name for name, operands in ARITY.items() if operands == "ab"])
def test_golden_matches_exact_on_toy_floats(name, fmt):
    # By default half of the modes for each format, in turn.
    modes = MODES if EXHAUSTIVE else MODES[TOYS.index(fmt) % 2 :: 2]
    for rounding, saturate in itertools.product(modes, (False, True)):
        columns, words = every([fmt, fmt], rounding, subtract=name == "add")
        count, wrong = differences(name, columns, words, a=fmt, b=fmt, o=fmt, rounding=rounding, saturate=saturate)
        assert wrong == []
        assert count >= 4**fmt.width


@pytest.mark.sampled(18)
@pytest.mark.parametrize("source", TOYS, ids=str)
def test_convert_matches_exact_on_toy_floats(source):
    for target, rounding in itertools.product(TOYS, MODES):
        columns, words = every([source], rounding)
        _, wrong = differences("convert", columns, words, a=source, o=target, rounding=rounding)
        assert wrong == []


@pytest.mark.sampled(24)
@pytest.mark.parametrize("fmt", [fmt for fmt in TOYS if fmt.width <= 4], ids=str)
def test_fma_matches_exact_on_toy_floats(fmt):
    for rounding in MODES[:7]:
        columns, words = every([fmt] * 3, rounding)
        _, wrong = differences("fma", columns, words, a=fmt, b=fmt, c=fmt, o=fmt, rounding=rounding)
        assert wrong == []


WIDE = [
    *(FP16, BF16, FP32, FP64, E6M5),
    *map(parse, ("fp64-ftz", "e11m52-finite", "e11m0", "e8m23b-700fn")),
    *map(parse, ("e5m30b4096fnuz", "e4m3b-4096-ftz", "e3m4b9fn")),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_golden_matches_exact_on_wide_and_mixed_floats(seed):
    """Formats, mode and operands are random; every second run has a single format, which gives more collisions."""
    rng = random.Random(seed)
    name = rng.choice(list(ARITY))
    one = rng.choice(WIDE)
    pick = (lambda: one) if seed % 2 else (lambda: rng.choice([*WIDE, *TOYS]))
    formats = {letter: pick() for letter in (*ARITY[name], "o")}
    rounding = rng.choice([*MODES, stochastic(32)])
    near, count = rng.randint(-5, 5), 400
    columns = [aimed(rng, formats[letter], count, 2 * near if letter == "c" else near) for letter in ARITY[name]]
    if name == "add":
        columns.append([rng.getrandbits(1) for _ in range(count)])
    words = [rng.getrandbits(rounding.bits) for _ in range(count)] if rounding.bits else None
    saturate = rng.random() < 0.3
    done, wrong = differences(name, columns, words, **formats, rounding=rounding, saturate=saturate)
    assert done == count
    assert wrong == []


@pytest.mark.sampled(12)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64, E5M2], ids=str)
@pytest.mark.parametrize("rounding", MODES, ids=str)
def test_fma_matches_exact_near_cancellation(fmt, rounding):
    """c is -(a * b), its neighbour, or so small that only the sticky bit depends on it."""
    rng = random.Random(str(rounding))
    xs, ys = aimed(rng, fmt, 600, 0), aimed(rng, fmt, 600, 0)
    negated = [exact.mul(x, y, a=fmt, b=fmt, o=fmt) ^ fmt.sign_code for x, y in zip(xs, ys, strict=True)]
    zs = [(z + rng.choice((-1, 0, 1))) % (1 << fmt.width) for z in negated]
    tiny = [rng.choice((1, fmt.sign_code | 1, 1 << fmt.man)) for _ in xs]
    words = [rng.getrandbits(rounding.bits) for _ in xs] if rounding.bits else None
    for third in (negated, zs, tiny):
        _, wrong = differences("fma", [xs, ys, third], words, a=fmt, b=fmt, c=fmt, o=fmt, rounding=rounding)
        assert wrong == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rounding", MODES, ids=str)
def test_fma_matches_exact_in_three_formats(rounding):
    """Operands, addend and result have different formats; the addend is close to the product."""
    rng = random.Random(str(rounding))
    formats = {"a": E5M2, "b": E4M3FN, "c": FP32, "o": BF16}
    columns = [aimed(rng, formats[letter], 2000, 0) for letter in "abc"]
    words = [rng.getrandbits(rounding.bits) for _ in range(2000)] if rounding.bits else None
    _, wrong = differences("fma", columns, words, **formats, rounding=rounding)
    assert wrong == []


@pytest.mark.parametrize("target", ["e5m2", "e4m3fn-ftz", "e3m2fn", "e2m0", "fp64", "e4m3fnuz"])
def test_cancelled_sums_are_zero_at_all_exponents(target):
    """x - x and x * 1 - x, with x beyond the largest number of the result or below its smallest."""
    target = parse(target)
    numbers = [code | sign for code in (1, 0x00800000, 0x3F800001, 0x7F7FFFFF, 0x7E812345) for sign in (0, 1 << 31)]
    ones, negated = [0x3F800000] * len(numbers), [code ^ (1 << 31) for code in numbers]
    for rounding, saturate in itertools.product(MODES, (False, True)):
        words = [(1 << rounding.bits) - 1] * len(numbers) if rounding.bits else None
        more = {"o": target, "rounding": rounding, "saturate": saturate}
        sums = {"a": FP32, "b": FP32, **more}
        assert differences("add", [numbers, numbers, [1] * len(numbers)], words, **sums)[1] == []
        assert differences("fma", [numbers, ones, negated], words, c=FP32, **sums)[1] == []


PAIRS = [
    *((str(fmt),) * 3 for fmt in TOY_FAMILIES),
    ("posit4", "fxp2.2", "e2m2"),
    ("e2m1", "ufxp1.2", "posit5e1"),
    ("posit4e1", "e2m1fnuz", "fxp2.1-wrap"),
    ("fxp1.2", "posit4", "ufxp2.1"),
    ("int1", "ufxp-2.5", "fxp1.2"),
]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("formats", PAIRS, ids=" ".join)
@pytest.mark.parametrize("name", [name for name, operands in ARITY.items() if operands == "ab"])
def test_golden_matches_exact_on_toy_families(name, formats):
    a, b, o = map(parse, formats)
    modes = FEW[::3] if name == "compare" else FEW
    for rounding, saturate in itertools.product(modes, overflows_by(o)):
        columns, words = every([a, b], rounding, subtract=name == "add")
        _, wrong = differences(name, columns, words, a=a, b=b, o=o, rounding=rounding, saturate=saturate)
        assert wrong == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", [*TOY_FAMILIES, *map(parse, ("e2m1", "e3m1fnuz-ftz", "posit7e0"))], ids=str)
def test_convert_matches_exact_on_toy_families(source):
    for target, rounding in itertools.product([*TOY_FAMILIES, *map(parse, ("e2m1", "e2m0", "fxp1.1", "posit3"))], FEW):
        columns, words = every([source], rounding)
        _, wrong = differences("convert", columns, words, a=source, o=target, rounding=rounding)
        assert wrong == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "formats",
    [
        ("posit4e1", "fxp1.2", "e2m0fnuz", "posit5e1"),
        ("posit3e0", "posit4", "ufxp1.2", "fxp3.1-wrap"),
        ("fxp2.1", "fxp2.1", "fxp2.1", "fxp3.2-wrap"),
        ("ufxp1.2", "uint2", "fxp2.1", "ufxp2.2"),
        ("e2m0", "posit3", "fxp2.1", "e2m2"),
    ],
    ids=" ".join,
)
def test_fma_matches_exact_on_toy_families(formats):
    a, b, c, o = map(parse, formats)
    for rounding in FEW:
        columns, words = every([a, b, c], rounding)
        _, wrong = differences("fma", columns, words, a=a, b=b, c=c, o=o, rounding=rounding)
        assert wrong == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_golden_matches_exact_on_wide_and_mixed_families(seed):
    """Formats, mode and operands are random; every second run has a single format, which gives more collisions."""
    rng = random.Random(seed)
    name = rng.choice(list(ARITY))
    one = rng.choice(WIDE_FAMILIES[:15])
    formats = {letter: one if seed % 2 else rng.choice(WIDE_FAMILIES) for letter in (*ARITY[name], "o")}
    rounding = rng.choice([*MODES, stochastic(32)])
    near, count = rng.randint(-5, 5), 250
    columns = [aimed(rng, formats[letter], count, 2 * near if letter == "c" else near) for letter in ARITY[name]]
    if name == "add":
        columns.append([rng.getrandbits(1) for _ in range(count)])
    words = random_words(rng, rounding, count)
    done, wrong = differences(name, columns, words, **formats, rounding=rounding, saturate=rng.random() < 0.3)
    assert done == count
    assert wrong == []


@pytest.mark.parametrize("fmt", ["posit16", "posit64", "fxp8.8", "int64", "fxp20.44-wrap"])
def test_fma_matches_exact_near_cancellation_in_all_families(fmt):
    """c is -(a * b) in the same format, or its neighbour."""
    fmt = parse(fmt)
    rng = random.Random(str(fmt))
    for rounding in FEW:
        xs, ys = aimed(rng, fmt, 80, 0), aimed(rng, fmt, 80, 0)
        zs = [-exact.mul(x, y, a=fmt, b=fmt, o=fmt) + rng.choice((-1, 0, 1)) for x, y in zip(xs, ys, strict=True)]
        zs = [z & ((1 << fmt.width) - 1) for z in zs]
        words = random_words(rng, rounding, 80)
        assert differences("fma", [xs, ys, zs], words, a=fmt, b=fmt, c=fmt, o=fmt, rounding=rounding)[1] == []
        difference = {"a": fmt, "b": fmt, "o": fmt, "rounding": rounding}
        assert differences("add", [xs, xs, [1] * 80], words, **difference)[1] == []
