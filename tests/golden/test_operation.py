"""Golden model on tensors against the exact model in fractions."""

import dataclasses
import functools
import itertools
import math
import random
import re
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact, operation
from halfulp.hdl.formats import (
    BF16,
    E2M1FN,
    E4M3FN,
    E5M2,
    E6M5,
    EXACT,
    FP16,
    FP32,
    FP64,
    INT8,
    POSIT8,
    POSIT16,
    POSIT32,
    POSIT64,
    RD,
    RN,
    RO,
    RZ,
    Float,
    Rounding,
    parse,
    stochastic,
)
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import AccumulateSpec, MacSpec
from tests.settings import EXHAUSTIVE

MODES = [Rounding.parse(text) for text in (*ROUNDING_MODES, "sr1", "sr3")]

TOYS = [
    Float(exp, man, specials=specials, subnormals=subnormals)
    for exp, man in ((2, 0), (2, 1), (3, 1))
    for specials in ("ieee", "fn", "fnuz", "finite")
    for subnormals in (True, False)
    if not (man == 0 and specials == "ieee")
]

ARITY = {"mul": "ab", "add": "ab", "fma": "abc", "convert": "a", "compare": "ab"}


def tensor(codes):
    """Convert codes to int64; 64-bit codes keep their bits."""
    return torch.tensor([code - (1 << 64) if code >> 63 else code for code in codes], dtype=torch.int64)


def columns_of(result):
    """Return the columns of a result as lists of ints."""
    columns = result if isinstance(result, tuple) else (result,)
    return [[code & ((1 << 64) - 1) for code in column.tolist()] for column in columns]


def differences(name, columns, words=None, **parameters):
    """Return the number of compared vectors, and those in which tensors and fractions differ."""
    more = {} if words is None else {"random": tensor(words)}
    results = columns_of(getattr(golden, name)(*map(tensor, columns), **parameters, **more))
    wrong = []
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = {} if words is None else {"random": words[index]}
        wanted = getattr(exact, name)(*codes, **parameters, **word)
        wanted = [code & ((1 << 64) - 1) for code in (wanted if isinstance(wanted, tuple) else (wanted,))]
        # A tensor holds 64-bit codes as negative numbers; the mask makes both equal.
        found = [column[index] for column in results]
        if found != wanted:
            wrong.append((codes, word, [hex(code) for code in wanted], [hex(code) for code in found]))
    return len(columns[0]), wrong


def every(formats, rounding, subtract=False):
    """Return all operands with all random words."""
    ranges = [range(1 << fmt.width) for fmt in formats] + [range(2)] * subtract + [range(1 << rounding.bits)]
    *columns, words = zip(*itertools.product(*ranges), strict=True)
    return [list(column) for column in columns], list(words) if rounding.bits else None


@pytest.mark.sampled(30)
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


@pytest.mark.sampled(6)
@pytest.mark.parametrize("source", TOYS, ids=str)
def test_convert_matches_exact_on_toy_floats(source):
    for target, rounding in itertools.product(TOYS, MODES):
        columns, words = every([source], rounding)
        _, wrong = differences("convert", columns, words, a=source, o=target, rounding=rounding)
        assert wrong == []


@pytest.mark.sampled(12)
@pytest.mark.parametrize("fmt", [fmt for fmt in TOYS if fmt.width <= 4], ids=str)
def test_fma_matches_exact_on_toy_floats(fmt):
    for rounding in MODES[:7]:
        columns, words = every([fmt] * 3, rounding)
        _, wrong = differences("fma", columns, words, a=fmt, b=fmt, c=fmt, o=fmt, rounding=rounding)
        assert wrong == []


def aimed(rng, fmt, count, near):
    """Return codes with many special ones, exponents around ``near`` and mantissas at the ends."""
    if not isinstance(fmt, Float):
        return aimed_by_number(rng, fmt, count, near)
    codes = []
    for _ in range(count):
        choice = rng.random()
        if choice < 0.2:
            code = rng.getrandbits(fmt.width)
        elif choice < 0.35:
            special = (0, 1, 2, fmt.max_code, fmt.max_code + 1, (1 << fmt.man) - 1, 1 << fmt.man, fmt.nan_code)
            code = rng.choice(special) ^ (fmt.sign_code * rng.getrandbits(1))
        else:
            field = min(max(fmt.bias + near + rng.randint(-3, 3), 0), (1 << fmt.exp) - 1)
            mantissa = rng.choice((rng.getrandbits(fmt.man), 0, 1, (1 << fmt.man) - 1, 1 << max(fmt.man - 1, 0)))
            code = (rng.getrandbits(1) << (fmt.exp + fmt.man)) | (field << fmt.man) | (mantissa & ((1 << fmt.man) - 1))
        codes.append(code & ((1 << fmt.width) - 1))
    return codes


def aimed_by_number(rng, fmt, count, near):
    """Return codes as `aimed` does, for fixed point and posits, whose fields have no fixed position."""
    ones, half = (1 << fmt.width) - 1, 1 << (fmt.width - 1)
    codes = []
    for _ in range(count):
        choice = rng.random()
        if choice < 0.2:
            code = rng.getrandbits(fmt.width)
        elif choice < 0.35:
            # Zero, NaR or the smallest number, minpos, maxpos and their neighbours.
            code = rng.choice((0, half, 1, half - 1, ones, half + 1, 2, half - 2))
        else:
            fraction = rng.choice((Fraction(0), Fraction(rng.getrandbits(64), 1 << 64), 1 - Fraction(1, 1 << 70)))
            number = (1 + fraction) * Fraction(2) ** (near + rng.randint(-3, 3))
            code = fmt.encode(number if rng.getrandbits(1) else -number, RZ, saturate=True)
        codes.append(code & ones)
    return codes


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


@pytest.mark.sampled(4)
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("product", [None, "e5m2.rz", "e2m0.ro", "e4m3fnuz.sr4", "e2m1fn.rn", "e6m5-ftz.ru"])
@pytest.mark.parametrize("acc", ["e6m5", "e3m2fn", "fp32", "e5m3fnuz-ftz"])
@pytest.mark.parametrize("saturate", [False, True], ids=["", "sat"])
def test_mac_with_rounded_product_matches_exact(product, acc, saturate):
    rng = random.Random(f"{product}{acc}")
    acc = parse(acc)
    parameters = {"a": E5M2, "b": E4M3FN, "acc": acc, "rounding": RN, "saturate": saturate}
    if product is not None:
        text, _, mode = product.rpartition(".")
        parameters |= {"product": parse(text), "product_rounding": Rounding.parse(mode)}
    count = 1000
    columns = [aimed(rng, fmt, count, 0) for fmt in (E5M2, E4M3FN, acc)]
    words = [rng.getrandbits(4) for _ in range(count)]
    stochastic_product = bool(parameters.get("product_rounding", EXACT).bits)
    more = {"random_product": tensor(words)} if stochastic_product else {}
    found = golden.mac(*map(tensor, columns), **parameters, **more).tolist()
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = words[index] if stochastic_product else 0
        assert found[index] == exact.mac(*codes, **parameters, random_product=word), [hex(code) for code in codes]


def test_mac_sequence_matches_steps():
    rng = random.Random(1)
    count, rounding = 3000, stochastic(5)
    xs, ys, starts = aimed(rng, E5M2, count, 0), aimed(rng, E5M2, count, 0), aimed(rng, E6M5, count, 0)
    loads, clears = ([int(rng.random() < 0.05) for _ in range(count)] for _ in range(2))
    words = [rng.getrandbits(5) for _ in range(count)]
    parameters = {"a": E5M2, "b": E5M2, "acc": E6M5, "rounding": rounding}
    found = golden.mac_sequence(
        *map(tensor, (xs, ys, starts, loads, clears)), **parameters, random=tensor(words)
    ).tolist()
    accumulator = 0
    for index in range(count):
        base = starts[index] if loads[index] else 0 if clears[index] else accumulator
        accumulator = exact.mac(xs[index], ys[index], base, **parameters, random=words[index])
        assert found[index] == accumulator
    assert golden.mac_sequence(*[torch.zeros(0, dtype=torch.int64)] * 5, a=E5M2, b=E5M2, acc=E6M5).tolist() == []


# Fixed point and posits ----------------------------------------------------------------------------------------------

FEW = [*MODES[:6], stochastic(2)]

TOY_FAMILIES = [parse(name) for name in ("posit5e1", "posit4", "fxp2.3", "ufxp2.2", "fxp3.1-wrap", "uint3-wrap")]

PAIRS = [
    *((str(fmt),) * 3 for fmt in TOY_FAMILIES),
    ("posit4", "fxp2.2", "e2m2"),
    ("e2m1", "ufxp1.2", "posit5e1"),
    ("posit4e1", "e2m1fnuz", "fxp2.1-wrap"),
    ("fxp1.2", "posit4", "ufxp2.1"),
    ("int1", "ufxp-2.5", "fxp1.2"),
]


def overflows_by(fmt):
    """Return the values of ``saturate`` that make a difference."""
    return (False, True) if isinstance(fmt, Float) or getattr(fmt, "overflow", None) == "wrap" else (False,)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("formats", PAIRS, ids=" ".join)
@pytest.mark.parametrize("name", [name for name, operands in ARITY.items() if operands == "ab"])
def test_golden_matches_exact_on_toy_families(name, formats):
    a, b, o = map(parse, formats)
    modes = FEW[::3] if name == "compare" else FEW
    for rounding, saturate in itertools.product(modes, overflows_by(o)):
        columns, words = every([a, b], rounding, subtract=name == "add")
        _, wrong = differences(name, columns, words, a=a, b=b, o=o, rounding=rounding, saturate=saturate)
        assert wrong == []


@pytest.mark.parametrize("source", [*TOY_FAMILIES, *map(parse, ("e2m1", "e3m1fnuz-ftz", "posit7e0"))], ids=str)
def test_convert_matches_exact_on_toy_families(source):
    for target, rounding in itertools.product([*TOY_FAMILIES, *map(parse, ("e2m1", "e2m0", "fxp1.1", "posit3"))], FEW):
        columns, words = every([source], rounding)
        _, wrong = differences("convert", columns, words, a=source, o=target, rounding=rounding)
        assert wrong == []


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


WIDE_FAMILIES = [
    *(POSIT8, POSIT16, POSIT32, POSIT64, INT8),
    *map(parse, ("posit64e0", "posit31e4", "posit40e1", "int64", "uint64-wrap", "fxp30.34", "ufxp-20.70", "fxp70.-10")),
    *map(parse, ("fxp4.4", "fxp-3.40-wrap", "fp64", "fp32", "bf16-ftz", "e5m2", "e11m52-finite")),
]


def random_words(rng, rounding, count):
    """Return the random words of a rounding, if it takes any."""
    return [rng.getrandbits(rounding.bits) for _ in range(count)] if rounding.bits else None


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


# Sums ----------------------------------------------------------------------------------------------------------------


def parameters_of(spec):
    """Return the arguments of golden functions for a description, with the words of its source."""
    return spec.parameters


@pytest.mark.parametrize("product", ["int4-wrap.rz", "posit6e1.rn", "e2m1fn.ro", "fxp3.2-wrap.sr4", "e4m3.rn"])
@pytest.mark.parametrize("acc", ["fxp8.8-wrap", "posit16", "e5m10", "exact=posit8", "exact=fxp4.4-wrap carry=2"])
@pytest.mark.parametrize("saturate", [False, True], ids=["", "sat"])
def test_mac_across_families_with_rounded_product_matches_exact(product, acc, saturate):
    rng = random.Random(f"{product}{acc}")
    fmt, _, carry = acc.partition(" ")
    spec = MacSpec.parse(f"posit8*fxp4.4={product}+{fmt}.rn{'.sat' if saturate else ''} {carry}")
    count = 120
    columns = [aimed(rng, fmt, count, 2) for fmt in (spec.a, spec.b, spec.o)]
    parameters = parameters_of(spec)
    words = random_words(rng, spec.product_rounding, count)
    more = {"random_product": tensor(words)} if words else {}
    found = golden.mac(*map(tensor, columns), **parameters, **more).tolist()
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = words[index] if words else 0
        assert found[index] == exact.mac(*codes, **parameters, random_product=word), [hex(code) for code in codes]


INT8_WRAP = parse("int8-wrap")


@pytest.mark.parametrize(
    ("fmt", "product", "acc", "operands", "held", "saturated"),
    [
        (E5M2, E5M2, FP32, (57344, 4), math.inf, 57344),
        (E5M2, E5M2, FP32, (57344, -57344), -math.inf, -57344),
        (E5M2, E4M3FN, FP32, (57344, 1), math.nan, 448),
        (INT8, INT8_WRAP, parse("int32"), (100, 100), 10000 - 39 * 256, 127),
        (INT8, INT8_WRAP, parse("int32"), (100, -100), -10000 + 39 * 256, -128),
        (INT8, parse("uint6-wrap"), POSIT64, (-5, 9), 64 - 45, 0),
        (POSIT8, parse("fxp4.4-wrap"), FP32, (20, 2), 8 - 16, Fraction(127, 16)),
        (POSIT8, POSIT8, POSIT64, (16777216, 16777216), 16777216, 16777216),
    ],
    ids=str,
)
def test_saturate_applies_to_rounded_product(fmt, product, acc, operands, held, saturated):
    """A rounded product that overflows is infinite, wraps, or saturates, as ``saturate`` requires."""
    codes = [fmt.encode(number, EXACT) for number in operands]
    parameters = {"a": fmt, "b": fmt, "acc": acc, "product": product, "product_rounding": RN}
    for saturate, number in ((False, held), (True, saturated)):
        found = int(golden.mac(*(torch.tensor(code) for code in (*codes, 0)), **parameters, saturate=saturate))
        assert found == exact.mac(*codes, 0, **parameters, saturate=saturate)
        assert acc.text(found) == acc.text(acc.encode(number))
    found = golden.mac_sequence(*(torch.tensor([code]) for code in (*codes, 0, 0, 0)), **parameters, saturate=True)
    assert found.tolist() == [acc.encode(saturated)]


SUMS = [
    ("quire", {"a": "posit3e0", "b": "posit3e0", "o": "posit4e0", "carry": 1}),
    ("quire", {"a": "fxp1.2", "b": "posit3e0", "o": "fxp3.1-wrap", "carry": 2}),
    ("quire", {"a": "e2m0", "b": "e2m1", "o": "e2m1", "carry": 31}),
    ("quire", {"a": "ufxp1.2", "b": "uint3", "o": "posit4", "carry": 3}),
    ("accumulate", {"a": "posit4e1", "acc": "posit4e1"}),
    ("accumulate", {"a": "fxp2.2", "acc": "fxp3.1-wrap"}),
    ("accumulate", {"a": "e2m1", "acc": "exact", "o": "e2m1fnuz", "carry": 1}),
    ("accumulate", {"a": "posit4e0", "acc": "exact", "o": "posit4e0", "carry": 1}),
    ("accumulate", {"a": "ufxp2.2-wrap", "acc": "exact"}),
    ("mac", {"a": "posit3e0", "b": "fxp1.2", "acc": "posit5e1"}),
    ("mac", {"a": "int2", "b": "e2m0", "acc": "fxp3.1-wrap"}),
    ("mac", {"a": "posit3", "b": "posit3", "acc": "exact", "o": "e2m1", "carry": 1}),
]


def operands_of(parameters):
    """Return the formats of the operands of a step, the start value last."""
    o = parameters.get("o") or (parameters["a"] if parameters["acc"] == "exact" else parameters["acc"])
    return [*(parameters[letter] for letter in "ab" if letter in parameters), o]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "texts"), SUMS, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values()))
)
def test_accumulators_match_exact_on_toy_formats(name, texts):
    """Every operand with rounding to nearest, and some with every other mode."""
    parameters = {key: text if text == "exact" or key == "carry" else parse(text) for key, text in texts.items()}
    formats = operands_of(parameters)
    rng = random.Random(f"{name}{texts}")
    for rounding, saturate in itertools.product(FEW, overflows_by(formats[-1])):
        columns, words = every(formats, rounding, subtract=name == "quire")
        if rounding != RN or saturate:
            chosen = rng.sample(range(len(columns[0])), min(len(columns[0]), 150))
            columns = [[column[index] for index in chosen] for column in columns]
            words = words and [words[index] for index in chosen]
        _, wrong = differences(name, columns, words, **parameters, rounding=rounding, saturate=saturate)
        assert wrong == []


@pytest.mark.parametrize("seed", range(40))
def test_accumulators_match_exact_on_wide_and_mixed_formats(seed):
    rng = random.Random(seed)
    name = ("quire", "mac", "accumulate")[seed % 3]
    a, b, o = (rng.choice(WIDE_FAMILIES) for _ in "abo")
    rounding = rng.choice([*MODES, stochastic(32)])
    parameters = {"a": a, "b": b, "o": o, "carry": rng.choice((1, 2, 31, 64))}
    if name != "quire":
        parameters["acc"] = "exact"
        if rng.random() < 0.4:
            parameters = {"a": a, "b": b, "acc": o}
    if name == "accumulate":
        del parameters["b"]
    near, count = rng.randint(-5, 5), 100
    formats = operands_of(parameters)
    columns = [aimed(rng, fmt, count, near * (1 + (index == 2))) for index, fmt in enumerate(formats)]
    if name == "quire":
        columns.append([rng.getrandbits(1) for _ in range(count)])
    words = random_words(rng, rounding, count)
    done, wrong = differences(name, columns, words, **parameters, rounding=rounding, saturate=rng.random() < 0.3)
    assert done == count
    assert wrong == []


def plus(x, y):
    """Add fractions exactly, or infinities and NaN as floats."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x + y
    return sum(float((z > 0) - (z < 0)) if isinstance(z, Fraction) else z for z in (x, y))


def times(x, y):
    """Multiply fractions exactly, or infinities and NaN as floats."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    return math.prod(float((z > 0) - (z < 0)) if isinstance(z, Fraction) else z for z in (x, y))


def read_register(spec, terms, starts, loads, clears, words):
    """Return the reading of an exact accumulator after each step, and its number of guard overflows."""
    end = Fraction(2) ** (spec.quire.top + spec.quire.carry)
    total, codes, overflows = Fraction(0), [], 0
    for index, term in enumerate(terms):
        base = spec.o.decode(starts[index]) if loads[index] else Fraction(0) if clears[index] else total
        total = plus(base, term)
        if isinstance(total, Fraction) and not -end <= total < end:
            total = math.copysign(math.inf, total)
            overflows += 1
        codes.append(
            spec.o.encode(total, spec.rounding, words[index] if words else 0, getattr(spec, "saturate", False))
        )
    return codes, overflows


STEPS = 200


def steps(rng, *formats):
    """Return the operands of a sequence with occasional new sums, the start values last."""
    columns = [aimed(rng, fmt, STEPS, 0) for fmt in formats]
    # NaN persists, so sums restart often enough that most have none.
    loads, clears = ([int(rng.random() < 0.05) for _ in range(STEPS)] for _ in range(2))
    # A sum of products of the largest numbers overflows a narrow carry guard.
    for column, fmt in zip(columns, formats, strict=True):
        column[100:140] = [fmt.encode(max(fmt.lowest, fmt.largest, key=abs))] * 40
    loads[100:140], clears[100:140] = [0] * 40, [1] + [0] * 39
    return *columns, loads, clears


SEQUENCES = [
    "posit8*posit8+exact=posit8.rn",
    "posit8*posit8+exact=posit8.rz carry=1",
    "posit16*posit8e0+exact=posit16.sr5 carry=3",
    "posit64*posit64+exact=posit64.rn",
    "e5m2*e5m2+exact=e5m2.rn carry=1",
    "e5m2*e4m3fn+exact=e5m2.rd.sat carry=31",
    "e4m3*e4m3+exact=fxp8.8-wrap.ro",
    "fxp4.4*fxp4.4+exact=fxp4.4-wrap.sr3 carry=2",
    "fxp1.7-wrap*ufxp0.8+exact=int4.ra.sat carry=1",
    "int64*uint64-wrap+exact=int64.ru carry=64",
    "fp64*fp64+exact=fp64.rn",
    "posit8*fxp4.4+exact=e8m23.ru",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", SEQUENCES)
def test_quire_sequence_matches_fractions(text):
    spec = MacSpec.parse(text)
    rng = random.Random(text)
    xs, ys, starts, loads, clears = steps(rng, spec.a, spec.b, spec.o)
    minus = [rng.getrandbits(1) & (index not in range(100, 140)) for index in range(STEPS)]
    words = random_words(rng, spec.rounding, STEPS)
    products = [times(spec.a.decode(x), spec.b.decode(y)) for x, y in zip(xs, ys, strict=True)]
    more = {"rounding": spec.rounding, "saturate": spec.saturate, "random": words and tensor(words)}
    formats = {"a": spec.a, "b": spec.b, "o": spec.o, "carry": spec.carry}
    columns = map(tensor, (xs, ys, starts, minus, loads, clears))
    expected, overflows = read_register(
        spec, [-x if m else x for x, m in zip(products, minus, strict=True)], starts, loads, clears, words
    )
    assert columns_of(golden.quire_sequence(*columns, **formats, **more)) == [expected]
    assert overflows > 0 or spec.carry > 3
    expected, _ = read_register(spec, products, starts, loads, clears, words)
    columns = map(tensor, (xs, ys, starts, loads, clears))
    assert columns_of(golden.mac_sequence(*columns, acc="exact", **formats, **more)) == [expected]


@pytest.mark.parametrize(
    ("a", "o", "rounding", "carry"),
    [
        ("posit8", "posit8", "rn", 1),
        ("posit64", "posit32", "ru", 31),
        ("e5m2", "e5m2", "rd", 1),
        ("fxp4.4-wrap", "fxp8.4", "sr4", 31),
        ("uint64", "fxp40.-10", "ro", 2),
        ("fp64", "posit64", "rn", 31),
    ],
)
def test_exact_accumulator_sequence_matches_fractions(a, o, rounding, carry):
    spec = AccumulateSpec(parse(a), "exact", parse(o), carry, rounding=Rounding.parse(rounding))
    rng = random.Random(a + o)
    xs, starts, loads, clears = steps(rng, spec.a, spec.o)
    words = random_words(rng, spec.rounding, STEPS)
    expected, overflows = read_register(spec, [spec.a.decode(x) for x in xs], starts, loads, clears, words)
    parameters = {"a": a, "acc": "exact", "o": o, "carry": carry, "rounding": rounding}
    found = golden.accumulate_sequence(
        *map(tensor, (xs, starts, loads, clears)), **parameters, random=words and tensor(words)
    )
    assert columns_of(found) == [expected]
    assert overflows > 0 or carry > 3


def test_exact_mac_of_rounded_products_matches_fractions():
    spec = MacSpec.parse("posit8*fxp4.4=fxp3.2-wrap.sr3+exact=e5m10.rn.sat")
    rng = random.Random(2)
    xs, ys, starts, loads, clears = steps(rng, spec.a, spec.b, spec.o)
    words = random_words(rng, spec.product_rounding, STEPS)
    terms = [
        spec.product.decode(spec.product.encode(times(spec.a.decode(x), spec.b.decode(y)), "sr3", word, True))
        for x, y, word in zip(xs, ys, words, strict=True)
    ]
    expected, _ = read_register(spec, terms, starts, loads, clears, None)
    parameters = parameters_of(spec)
    columns = map(tensor, (xs, ys, starts, loads, clears))
    assert golden.mac_sequence(*columns, **parameters, random_product=tensor(words)).tolist() == expected


@pytest.mark.parametrize(
    ("a", "acc", "rounding"), [("posit8", "posit16", "rn"), ("fxp4.4", "fxp8.4-wrap", "sr3"), ("e5m2", "posit8", "ro")]
)
def test_accumulate_sequence_matches_steps(a, acc, rounding):
    rng, rounding = random.Random(acc), Rounding.parse(rounding)
    parameters = {"a": parse(a), "acc": parse(acc), "rounding": rounding}
    xs, starts, loads, clears = steps(rng, parse(a), parse(acc))
    words = random_words(rng, rounding, STEPS)
    found = golden.accumulate_sequence(
        *map(tensor, (xs, starts, loads, clears)), **parameters, random=words and tensor(words)
    )
    code, expected = 0, []
    for index in range(STEPS):
        base = starts[index] if loads[index] else 0 if clears[index] else code
        code = exact.accumulate(xs[index], base, **parameters, random=words[index] if words else 0)
        expected.append(code)
    assert columns_of(found) == [expected]


def dots(xs, ys, starts=None, words=None, **parameters):
    """Compare rows of dot products in tensors and in fractions; return the rows that differ."""
    unsigned = functools.partial(map, lambda code: code & ((1 << 64) - 1))
    start = [] if starts is None else [tensor(starts)]
    rows = [torch.stack([tensor(row) for row in column]) for column in (xs, ys)]
    more = {}
    if words is not None:
        more = {"random": tensor(words) if isinstance(words[0], int) else torch.stack([tensor(row) for row in words])}
    found = golden.dot(*rows, *start, **parameters, **more).tolist()
    expected = []
    for index, row in enumerate(zip(xs, ys, strict=True)):
        start = [] if starts is None else [starts[index]]
        word = {} if words is None else {"random": words[index]}
        expected.append(exact.dot(*row, *start, **parameters, **word))
    pairs = zip(unsigned(found), unsigned(expected), strict=True)
    return [(xs[i], ys[i], hex(q), hex(p)) for i, (p, q) in enumerate(pairs) if p != q]


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


# Tensors -------------------------------------------------------------------------------------------------------------


def test_operands_broadcast():
    x, y = torch.arange(256), torch.arange(0, 256, 7)
    grid = golden.mul(x[:, None], y[None, :], a=E5M2, b=E5M2, o=E5M2)
    assert grid.shape == (256, 37)
    flat = golden.mul(x.repeat_interleave(37), y.repeat(256), a=E5M2, b=E5M2, o=E5M2)
    assert torch.equal(grid.flatten(), flat)
    start = torch.arange(4096).reshape(64, 64)
    step = golden.mac(x[:3, None, None], y[0], start, a=E5M2, b=E5M2, acc=E6M5)
    assert step.shape == (3, 64, 64)
    assert golden.convert(torch.tensor(0x3C), a=E5M2, o=FP32).item() == 0x3F800000
    assert golden.convert(torch.zeros(0, 3, dtype=torch.uint8), a=E5M2, o=FP32).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integer_dtypes_are_accepted(dtype):
    codes = torch.arange(128).to(dtype)
    found = golden.add(codes, codes.flip(0), a=E5M2, b=E5M2, o=FP16)
    assert found.dtype == torch.int64
    assert torch.equal(found, golden.add(torch.arange(128), torch.arange(127, -1, -1), a=E5M2, b=E5M2, o=FP16))


def test_flags_accept_bools_and_bits():
    x, y = torch.arange(64, 128), torch.arange(128, 64, -1)
    formats = {"a": E5M2, "b": E5M2, "o": E6M5}
    difference = golden.add(x, y, 1, **formats)
    assert not torch.equal(difference, golden.add(x, y, **formats))
    for subtract in (True, torch.ones(64, dtype=torch.bool), torch.ones(1, dtype=torch.uint8)):
        assert torch.equal(golden.add(x, y, subtract, **formats), difference)
    load, clear = x % 7 == 0, x % 5 == 0
    formats = {"a": E5M2, "b": E5M2, "acc": E6M5}
    bits = golden.mac_sequence(x, y, x * 16, load.to(torch.int64), clear.to(torch.int8), **formats)
    assert torch.equal(golden.mac_sequence(x, y, x * 16, load, clear, **formats), bits)


def test_strided_operands_are_accepted():
    codes = torch.arange(512).reshape(2, 256)[:, ::2].T
    assert torch.equal(
        golden.convert(codes % 256, a=E5M2, o=FP16),
        golden.convert((codes % 256).contiguous(), a=E5M2, o=FP16),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_encode_and_decode_real_floats(dtype):
    values = torch.tensor([0.0, -0.0, 1.5, -0.3, 1e-7, float("inf"), -float("inf"), float("nan"), 6e4], dtype=dtype)
    codes = golden.encode(values, FP64)
    assert torch.equal(golden.decode(codes, FP64).nan_to_num(), values.to(torch.float64).nan_to_num())
    assert golden.encode(values, E5M2)[:3].tolist() == [0, 0x80, 0x3E]
    assert golden.encode(torch.tensor([448.0, 500.0]), E4M3FN, RN, saturate=True).tolist() == [0x7E, 0x7E]
    assert golden.encode(torch.tensor([3, -1]), E5M2, RO).tolist() == [0x42, 0xBC]
    words = torch.tensor([0, 1])
    assert golden.encode(torch.tensor([1.125, 1.125]), E5M2, stochastic(1), random=words).tolist() == [0x3C, 0x3D]


@pytest.mark.parametrize(
    "values",
    [
        1.5,
        [1.5, -2],
        3,
        np.float32(1.5),
        np.array([[1.5, 2.0]], dtype=np.float16),
        np.arange(4)[::-2],
        np.array([1.5], dtype=">f8"),
        (1.5, 0.1),
    ],
)
def test_encode_takes_numbers_and_arrays(values):
    expected = golden.encode(torch.from_numpy(np.array(values, dtype=np.float64)), FP16)
    assert torch.equal(golden.encode(values, FP16), expected)


@pytest.mark.parametrize("values", [[[1, 2], [3]], [[1, 2], 3]])
def test_encode_rejects_ragged_sequences(values):
    with pytest.raises(ValueError, match="one length"):
        golden.encode(values, "fp16")


@pytest.mark.filterwarnings("error:Dynamo")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_encode_and_gemm_match_eager_bits_in_compiled_functions(backend):
    """Graphs break at these functions, so that compilers trace no kernel and no cache."""

    def run(x, y):
        codes = golden.encode(1.5 * x, "e5m2", "sr4", torch.full(x.shape, 5))
        sums = golden.gemm(codes, golden.encode(y, "e5m2"), "e5m2*e5m2+e6m5.sr10@lfsr16")
        return golden.decode(golden.convert(sums, a="e6m5", o="fp16"), "fp16") + 1

    torch._dynamo.reset()
    compiled = torch.compile(run, backend=backend)
    for size in (8, 8, 64, 64):
        x, y = torch.randn(2, size, size, generator=torch.Generator().manual_seed(size))
        for _ in range(2):
            assert torch.equal(compiled(x, y), run(x, y))


@pytest.mark.parametrize("values", [True, "1.5", None, 1j, [1.5, "x"], np.array([True]), np.array(["a"]), 2**70])
def test_encode_rejects_other_values(values):
    with pytest.raises(TypeError, match="real numbers"):
        golden.encode(values, FP16)


@pytest.mark.parametrize("fmt", ["posit8", "posit16", "posit32", "int8", "fxp4.4", "uint32-wrap", "fxp-20.70"])
def test_encode_and_decode_real_fixed_and_posits(fmt):
    fmt = parse(fmt)
    rng = random.Random(str(fmt))
    codes = aimed(rng, fmt, 300, 0)
    real = golden.decode(torch.tensor(codes), fmt)
    for code, number in zip(codes, real.tolist(), strict=True):
        assert number == fmt.decode(code) or (math.isnan(number) and code == fmt.nan_code)
    assert golden.encode(real, fmt).tolist() == codes
    values = torch.tensor([0.3, -1.5, math.nan, math.inf, -math.inf, -0.0, 1e30, -1e30, 1e-30], dtype=torch.float64)
    for saturate in (False, True):
        found = golden.encode(values, fmt, "ru", saturate=saturate)
        assert found.tolist() == [fmt.encode(value, "ru", saturate=saturate) for value in values.tolist()]


def test_texts_equal_format_and_rounding_objects():
    codes = torch.arange(128)
    texts = golden.mac(
        codes, codes, codes, a="e5m2", b="e4m3fn", acc="e6m5", product="fp16", product_rounding="rz", rounding="rd"
    )
    named = {"a": E5M2, "b": E4M3FN, "acc": E6M5, "product": FP16, "product_rounding": RZ}
    assert torch.equal(texts, golden.mac(codes, codes, codes, **named, rounding=Rounding("rd")))
    assert torch.equal(
        golden.encode(golden.decode(codes, "e5m2"), "e4m3fn", "ro"),
        golden.convert(codes, a=E5M2, o=E4M3FN, rounding=RO),
    )
    assert E5M2.encode(0.3, "rz") == E5M2.encode(0.3, RZ)


MUL = {"a": E5M2, "b": E5M2, "o": E5M2}
MAC = {"a": E5M2, "b": E5M2, "acc": E6M5}
POSITS = {"a": POSIT8, "b": POSIT8, "o": POSIT8}
CODES = torch.arange(4)


@pytest.mark.parametrize(
    ("call", "error", "keyword"),
    [
        (
            lambda: golden.mul(CODES.float(), CODES, **MUL),
            TypeError,
            "integer",
        ),
        (lambda: golden.mul([1], CODES, **MUL), TypeError, "tensor"),
        (
            lambda: golden.mul(CODES + 256, CODES, **MUL),
            ValueError,
            "259",
        ),
        (lambda: golden.mul(CODES, CODES - 1, **MUL), ValueError, "-1"),
        (
            lambda: golden.mul(CODES, CODES, **MUL, random=CODES),
            ValueError,
            "random",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding=stochastic(3)),
            ValueError,
            "random",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding=stochastic(1), random=CODES),
            ValueError,
            "random",
        ),
        (lambda: golden.mul(CODES, CODES, **MUL, rounding=EXACT), ValueError, "e5m2"),
        (
            lambda: golden.mul(CODES, CODES, a=5, b=E5M2, o=E5M2),
            TypeError,
            "Format",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding="up"),
            ValueError,
            "up",
        ),
        (
            lambda: golden.mac(CODES, CODES, CODES, a=E5M2, b=E5M2, acc=E6M5, product_rounding=RZ),
            ValueError,
            "product",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES[:3], CODES, CODES, a=E5M2, b=E5M2, acc=E6M5),
            ValueError,
            "one-dimensional",
        ),
        (lambda: golden.encode(CODES > 1, E5M2), TypeError, "numbers"),
        (
            lambda: golden.encode(torch.tensor([1, -(1 << 53)]), FP64),
            ValueError,
            "integers",
        ),
        (
            lambda: golden.decode(CODES, Float(11, 52, bias=0)),
            ValueError,
            "number",
        ),
        (lambda: golden.decode(CODES + 253, E5M2), ValueError, "codes"),
        (lambda: golden.mul(CODES, CODES, **MUL, saturate=1), TypeError, "saturate"),
        (lambda: golden.add(CODES, CODES, 2, **MUL), ValueError, "subtract"),
        (lambda: golden.add(CODES, CODES, 1.0, **MUL), TypeError, "subtract"),
        (
            lambda: golden.mul(CODES, CODES.to("meta"), **MUL),
            ValueError,
            "tensors",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES + 4093, CODES * 0, CODES * 0, **MAC),
            ValueError,
            "start",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES, CODES, CODES, **MAC),
            ValueError,
            "load",
        ),
        (
            lambda: golden.mac_sequence(*[CODES > 9] * 5, **MAC, rounding=stochastic(3), random=CODES[:3]),
            ValueError,
            "one-dimensional",
        ),
        (
            lambda: golden.mac_sequence(*[CODES[:0]] * 5, **MAC, rounding=EXACT),
            ValueError,
            "sum",
        ),
        (
            lambda: golden.dot(CODES[0], CODES[0], **POSITS),
            ValueError,
            "shape",
        ),
        (lambda: golden.dot(CODES, CODES[0], **POSITS), ValueError, "shape"),
        (
            lambda: golden.dot(CODES, CODES[:3], **POSITS),
            ValueError,
            "shape",
        ),
        (
            lambda: golden.dot(CODES, CODES, CODES[0], **POSITS),
            ValueError,
            "both",
        ),
        (
            lambda: golden.dot(CODES, CODES, c="int8", **POSITS),
            ValueError,
            "both",
        ),
        (
            lambda: golden.dot(CODES[:0], CODES[:0], **POSITS),
            ValueError,
            "k 0",
        ),
        (
            lambda: golden.dot(torch.zeros(2, 257).long(), torch.zeros(2, 257).long(), **POSITS),
            ValueError,
            "k 257",
        ),
        (
            lambda: golden.dot(CODES, CODES, order="best", **POSITS),
            ValueError,
            "best",
        ),
        (
            lambda: golden.dot(CODES, CODES, rounding="exact", **POSITS),
            ValueError,
            "products",
        ),
        (
            lambda: golden.dot(CODES, CODES, rounding="sr2", **POSITS),
            ValueError,
            "random",
        ),
        (
            lambda: golden.dot(CODES, CODES, rounding="sr2", order="sequential", **POSITS),
            ValueError,
            "random",
        ),
        (
            lambda: golden.dot(CODES, CODES, random=CODES[0], **POSITS),
            ValueError,
            "random",
        ),
        (lambda: golden.dot(CODES + 253, CODES, **POSITS), ValueError, "256"),
        (lambda: golden.dot(CODES, CODES, [1], c="int8", **POSITS), TypeError, "tensor"),
        (lambda: golden.dot(CODES, CODES, saturate=1, **POSITS), TypeError, "saturate"),
        (
            lambda: golden.dot(CODES, CODES.to("meta"), **POSITS),
            ValueError,
            "tensors",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, 2, **POSITS),
            ValueError,
            "subtract",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES + 253, **POSITS),
            ValueError,
            "start",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, carry=0, **POSITS),
            ValueError,
            "carry",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, carry=7.0, **POSITS),
            TypeError,
            "carry",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, rounding="sr9", **POSITS),
            ValueError,
            "random",
        ),
        (
            lambda: golden.quire_sequence(CODES, CODES, CODES, 0, CODES > 1, CODES > 1, **POSITS),
            ValueError,
            "one-dimensional",
        ),
        (
            lambda: golden.quire_sequence(*[CODES[:0]] * 6, carry=65, **POSITS),
            ValueError,
            "carry",
        ),
        (
            lambda: golden.quire_sequence(*[CODES[:0]] * 6, rounding="exact", **POSITS),
            ValueError,
            "exact",
        ),
        (
            lambda: golden.mac(CODES, CODES, CODES, a="posit8", b="int8", acc="posit16", o="posit8"),
            ValueError,
            "accumulator exact",
        ),
        (
            lambda: golden.accumulate(CODES, CODES, a="posit8", acc="posit16", carry=7),
            ValueError,
            "no carry",
        ),
        (
            lambda: golden.accumulate(CODES, CODES, a="posit8", acc="exakt"),
            ValueError,
            "exakt",
        ),
        (
            lambda: golden.accumulate_sequence(CODES, CODES, CODES > 1, CODES[:3] > 1, a="posit8", acc="exact"),
            ValueError,
            "one-dimensional",
        ),
        (
            lambda: golden.accumulate_sequence(*[CODES] * 2, *[CODES > 1] * 2, a="int8", acc="int32", rounding="sr1"),
            ValueError,
            "random",
        ),
        (
            lambda: golden.decode(CODES, "posit64"),
            ValueError,
            "number",
        ),
        (lambda: golden.decode(CODES, "fxp4.52"), ValueError, "number"),
        (lambda: golden.mul(CODES, CODES[:2], a="int8", b="int8"), ValueError, "broadcast: x (4,), y (2,)"),
        (lambda: golden.add(CODES, CODES, CODES[:3], a="int8", b="int8"), ValueError, "subtract (3,)"),
        (lambda: golden.mac(CODES, CODES, CODES[:3], a="int8", b="int8", acc="int32"), ValueError, "start (3,)"),
        (lambda: golden.convert(CODES, a="int8", o="int4", rounding="sr1", random=CODES[:3]), ValueError, "random"),
        (lambda: golden.quire(CODES, CODES[:3], CODES, a="posit8", b="posit8"), ValueError, "y (3,)"),
        (lambda: golden.encode([1.0], "e5m2", "port"), ValueError, "choose one mode"),
        (lambda: golden.quantize_blocks(torch.ones(4), "mxfp4", "port"), ValueError, "choose one mode"),
        (lambda: golden.compress(CODES, 3), TypeError, "format"),
        (lambda: golden.mac_sequence(*[CODES] * 3, 0, 0, a="int8", b="int8", acc="int32"), ValueError, "load"),
    ],
)
def test_golden_rejects_bad_arguments(call, error, keyword):
    with pytest.raises(error, match=re.escape(keyword)):
        call()


# The comparison itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "rounding"),
    [
        (lambda decision: decision | {"sticky": torch.zeros_like(decision["sticky"])}, "rn"),
        (lambda decision: decision | {"last": torch.ones_like(decision["last"])}, "rn"),
        (lambda decision: decision | {"negative": ~decision["negative"]}, "rd"),
        (lambda decision: decision | {"seen": decision["seen"] ^ 1}, "sr3"),
        (lambda decision: decision | {"last": decision["last"] ^ 1}, "ro"),
    ],
    ids=["lost sticky", "ties up", "sign", "random bit", "odd"],
)
@pytest.mark.parametrize("family", ["floating", "fixed", "posit"])
def test_wrong_rounding_decision_is_detected(family, damage, rounding, monkeypatch):
    rounding = Rounding.parse(rounding)
    if family == "fixed" and rounding == RD:
        # The floor is already rounded down; of the directed modes only toward zero depends on the sign.
        rounding = RZ
    module = golden.round if family == "posit" else getattr(golden, family)
    right = module.round_up
    monkeypatch.setattr(module, "round_up", lambda mode, **decision: right(mode, **damage(decision)))
    o = {"floating": parse("e2m0"), "fixed": parse("fxp6.-1"), "posit": parse("posit5e1")}[family]
    columns, words = every([E2M1FN, E2M1FN], rounding)
    _, wrong = differences("mul", columns, words, a=E2M1FN, b=E2M1FN, o=o, rounding=rounding)
    assert wrong


def test_lost_carry_guard_is_detected(monkeypatch):
    monkeypatch.setattr(golden.register, "guarded", lambda held, quire: held)
    a, o = parse("posit3e0"), parse("posit4e0")
    columns, _ = every([a, a, o], RN, subtract=True)
    _, wrong = differences("quire", columns, a=a, b=a, o=o, carry=1)
    assert wrong


def test_lost_sign_of_zero_is_detected(monkeypatch):
    monkeypatch.setattr(golden.register, "cancelled_sign", lambda signs, rounding: signs.all(-1))
    one, minus_one = E5M2.encode(1), E5M2.encode(-1)
    assert dots([[one, minus_one]], [[one, one]], a=E5M2, b=E5M2, o=E5M2, rounding=RD)


def test_lost_nan_of_register_is_detected(monkeypatch):
    right = golden.register.add

    def forgetful(x, y):
        return dataclasses.replace(right(x, y), nan=x.nan & y.nan)

    monkeypatch.setattr(golden.register, "add", forgetful)
    columns, _ = every([parse("posit3"), parse("posit4")], RN)
    parameters = {"a": parse("posit3"), "acc": "exact", "o": parse("posit4")}
    assert differences("accumulate", columns, **parameters)[1]


def test_register_rounded_every_step_is_detected():
    """A quire that continued from its rounded reading would be an accumulator in the result format."""
    spec = MacSpec.parse("posit8*posit8+exact=posit8.rn")
    xs, ys, starts, loads, clears = steps(random.Random(5), spec.a, spec.b, spec.o)
    products = [times(spec.a.decode(x), spec.b.decode(y)) for x, y in zip(xs, ys, strict=True)]
    expected, _ = read_register(spec, products, starts, loads, clears, None)
    code, rounded = 0, []
    for index in range(STEPS):
        base = starts[index] if loads[index] else 0 if clears[index] else code
        code = exact.mac(xs[index], ys[index], base, a=POSIT8, b=POSIT8, acc="exact")
        rounded.append(code)
    assert rounded != expected


def test_unsaturated_product_is_detected(monkeypatch):
    module = sys.modules["halfulp.golden.mac"]
    right = module.rounded

    def wrong(spec, term, word, rounding, o):
        return right(dataclasses.replace(spec, saturate=False), term, word, rounding, o)

    monkeypatch.setattr(module, "rounded", wrong)
    codes = [torch.tensor(code) for code in (100, 100, 0)]
    parameters = {"a": INT8, "b": INT8, "acc": FP32, "product": INT8_WRAP, "product_rounding": RN, "saturate": True}
    assert int(golden.mac(*codes, **parameters)) != exact.mac(100, 100, 0, **parameters)


def test_lost_borrow_is_detected(monkeypatch):
    """Without a borrow for the dropped tail, a difference is too large by one last place."""
    right = golden.wide.Wide.minus
    monkeypatch.setattr(golden.wide.Wide, "minus", lambda x, y, borrow: right(x, y, torch.zeros_like(borrow)))
    fmt, rounding = parse("e3m1-finite"), Rounding.parse("sr3")
    columns, words = every([fmt, fmt], rounding, subtract=True)
    _, wrong = differences("add", columns, words, a=fmt, b=fmt, o=fmt, rounding=rounding)
    assert wrong


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: {"sign": raw.sign & ~raw.zero},
        lambda raw: {"exponent": raw.exponent + 1},
        lambda raw: {"nan": raw.nan & ~raw.inf},
        lambda raw: {"inf": raw.inf & raw.sign},
    ],
    ids=["sign of zero", "exponent", "nan of inf - inf", "inf"],
)
def test_wrong_raw_number_is_detected(damage, monkeypatch):
    fmt = parse("e2m1")
    right = operation.rounded
    monkeypatch.setattr(
        operation, "rounded", lambda spec, raw, random: right(spec, dataclasses.replace(raw, **damage(raw)), random)
    )
    columns, _ = every([fmt, fmt], RN, subtract=True)
    _, wrong = differences("add", columns, a=fmt, b=fmt, o=fmt)
    assert wrong


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
