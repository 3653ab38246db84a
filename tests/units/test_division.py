"""Divisions and roots: exhaustive in small formats, and at the middles between two results in wide ones.

The exact model, the golden model and the RTL are compared in all rounding modes: those that a port chooses, and ``rh``.
The golden model is compared with the RTL on all operands and modes, and with the exact one on up to 2^15 of them.
HALFULP_ORACLE_COUNT=1000000 sets the number of vectors per unit and format, where these are not all.
"""

import functools
import math
import os
import random
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from halfulp.golden import exact
from halfulp.hdl.formats import NAMED, Fixed, Float, Rounding, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import UnitSpec
from halfulp.sim.corner_middles import middles
from halfulp.sim.fields import Grid
from tests.every_unit import exact_mismatches, near_middles, rtl_mismatches
from tests.settings import EXHAUSTIVE

COUNT = int(os.environ.get("HALFULP_ORACLE_COUNT", "25000"))
"""Vectors per unit and format, if not all."""

EXACT_BITS = 20 if EXHAUSTIVE else 15
"""Most bits of operands and modes of which the exact model takes all."""

TEXTS = ("div {0}/{0}", "reciprocal {0}", "sqrt {0}", "rsqrt {0}")

MODES = ("port_ro_sr2", "rh")
"""Roundings that have all modes together."""

SMALL = (
    *(name for name, fmt in NAMED.items() if fmt.width <= 8 and name != "e8m0fnu"),
    *("e3m2-ftz", "e3m2fn-ftz", "e3m1-finite", "e5m0fn", "e2m3", "posit6e0", "posit6e1", "posit7e4", "posit7e3"),
    *("fxp4.1", "fxp1.5-wrap", "fxp-2.7", "ufxp8.-3", "ufxp0.5-wrap", "int1", "uint3"),
)
"""All named formats of at most 8 bits that a division accepts, and narrow ones with other properties."""

HALVES = ("fp16", "bf16", "posit16", "takum16", "uint16")

WIDE = ("fp16", "bf16", "fp32", "fp64", "posit16", "posit32")


def described(text, fmt, rounding):
    """Return the description of a unit, with flags in formats of floats and integers."""
    fmt = parse(fmt)
    flags = "after" if isinstance(fmt, Float | Fixed) else False
    return replace(UnitSpec.parse(text.format(fmt)), rounding=Rounding.parse(rounding), flags=flags)


@pytest.fixture
def remembered(monkeypatch):
    """Let the exact model remember numbers and their codes: operands of few bits have few quotients."""
    for name in ("_decode", "_encode"):
        monkeypatch.setattr(exact, name, functools.cache(getattr(exact, name)))


def check_exact(spec, **options):
    checks, failed = exact_mismatches(spec, **options)
    assert failed == []
    return checks


def check_rtl(specs, **options):
    checks, failed = rtl_mismatches(dict(zip(specs, specs, strict=True)), **options)
    assert failed == []
    return checks


@pytest.mark.slow
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("fmt", SMALL)
@pytest.mark.parametrize("text", TEXTS)
def test_operands_of_small_formats_match_exact(text, fmt):
    for rounding in MODES:
        spec = described(text, fmt, rounding)
        operands = (1 + text.startswith("div")) * spec.a.width
        assert check_exact(spec, most_bits=EXACT_BITS, count=1 << 15) >= 1 << min(operands, EXACT_BITS)


@pytest.mark.slow
@pytest.mark.sampled(5, 5)
@pytest.mark.parametrize("fmt", SMALL)
def test_all_operands_of_small_formats_match_rtl(fmt):
    specs = [described(text, fmt, rounding) for text in TEXTS for rounding in MODES]
    # Two operands, three bits of the mode and two random bits.
    assert check_rtl(specs, most_bits=21) >= 1 << (2 * specs[0].a.width + 5)


MIXED = (
    # The root of infinity is zero, far below the numbers of the result.
    ("rsqrt e5m0fn>e3m2", "rsqrt e4m1>e2m1b-5", "rsqrt e4m1>e3m1fnuz", "reciprocal e4m1>e2m2", "sqrt e4m1>e2m2b9"),
    # Without mantissa bits, the hidden bit decides ties.
    (
        "div e2m1/e2m1=e2m0fn",
        "div e2m1fn/e2m1=e2m0-finite",
        "div e2m1fn/fxp2.2=e3m0fnuz",
        "div nf4/nf4=e2m0-finite-ftz",
    ),
    (
        "div fxp2.2/ufxp-2.6=e3m2",
        "div posit4/e2m1=fxp3.3-wrap",
        "div e2m1-ftz/takum4=posit6",
        "div int4-wrap/e3m0fn=takum7",
    ),
    ("div e2m1/e3m0fnuz=ufxp1.5", "div posit4e1/nf4=e4m3fn", "div ufxp-2.6/posit4=posit9e3", "div takum4/int4=fxp9.7"),
)
"""Units in mixed formats whose operands have one width in each row."""


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize("texts", MIXED, ids=" ".join)
@pytest.mark.parametrize("saturate", [False, True], ids=["", "sat"])
def test_mixed_formats_match_exact_and_rtl(texts, saturate):
    found = [UnitSpec.parse(f"{text}.{mode}{'.sat' * saturate}") for text in texts for mode in MODES]
    found += [
        replace(spec, flags="after")
        for spec in found
        if all(fmt.has_flags for fmt in (*spec.operands.values(), spec.o))
    ]
    for spec in found:
        check_exact(spec, most_bits=10, count=1 << 11)
    check_rtl(found, most_bits=15)


OPERANDS = {
    3: ("e2m0fn", "e2m0-finite", "int3", "uint3", "posit3e0", "fxp1.2", "takum3"),
    4: (
        "e2m1",
        "e2m1fn",
        "e3m0fnuz",
        "nf4",
        "posit4",
        "e2m1-ftz",
        "fxp2.2",
        "ufxp-2.6",
        "int4-wrap",
        "takum4",
        "posit4e1",
    ),
    5: ("e2m2-ftz", "e3m1fnuz-ftz", "e2m2fn", "posit5e1", "takum5", "fxp-2.7", "ufxp8.-3", "fxp7.-2-wrap", "e2m2b-5"),
    6: ("e3m2b9", "e2m3fnuz", "posit6e2", "fxp3.3", "ufxp0.6-wrap", "e3m2fn", "e4m1-finite", "takum6", "e5m0fn"),
}
"""Formats of operands by width."""

RESULTS = (*sum(OPERANDS.values(), ()), "fp16", "posit9e3", "fxp9.7", "e11m0fn", "posit12e4", "takum12", "e3m4b9fn")


def drawn(seed, count):
    """Return quotients and roots in formats, roundings and flags at random, whose operands have one width."""
    rng = random.Random(seed)
    operands = rng.choice(list(OPERANDS.values()))
    stochastic = rng.choice(("sr1", "sr3", "port_ro_sr2"))
    found = []
    for _ in range(count):
        a, b, o = rng.choice(operands), rng.choice(operands), rng.choice((*operands, *RESULTS))
        text = rng.choice((f"div {a}/{b}={o}", *(f"{name} {a}>{o}" for name in ("reciprocal", "sqrt", "rsqrt"))))
        mode = rng.choice(("rn", "ra", "rh", "rz", "ru", "rd", "ro", "port", stochastic))
        spec = UnitSpec.parse(f"{text}.{mode}{rng.choice(('', '.sat'))}")
        has_flags = all(fmt.has_flags for fmt in (*spec.operands.values(), spec.o))
        found.append(replace(spec, flags=rng.choice((False, "after", "before"))) if has_flags else spec)
    return found


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("seed", range(16 if EXHAUSTIVE else 4))
def test_random_units_match_exact_and_rtl(seed):
    specs = drawn(seed, 24)
    for spec in specs:
        assert check_exact(spec, most_bits=10, count=1 << 9) >= 1 << spec.a.width
    assert check_rtl(specs, most_bits=13, count=1 << 13) >= len(specs) << specs[0].a.width


@pytest.mark.slow
@pytest.mark.parametrize("fmt", HALVES)
def test_16_bit_roots_match_exact(fmt):
    for rounding in MODES:
        assert check_exact(described("sqrt {0}", fmt, rounding), most_bits=EXACT_BITS, count=1 << 15) >= 1 << 15


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("fmt", HALVES)
def test_all_16_bit_functions_match_rtl(fmt):
    specs = [described(text, fmt, rounding) for text in TEXTS[1:] for rounding in MODES]
    assert check_rtl(specs, most_bits=21) >= 3 << 21


def check_middles(text, fmt, count):
    assert check_exact(described(text, fmt, "port_ro_sr4"), choose=partial(near_middles, count=count)) == count
    eighth = max(count // 8, 1)
    assert check_exact(described(text, fmt, "rh"), choose=partial(near_middles, count=eighth, seed=2)) == eighth


@pytest.mark.slow
@pytest.mark.sampled(8, 8)
@pytest.mark.parametrize("fmt", WIDE)
@pytest.mark.parametrize("text", TEXTS)
def test_middles_match_exact(text, fmt):
    check_middles(text, fmt, COUNT)


@pytest.mark.parametrize(("text", "fmt"), [("div {0}/{0}", "fp64"), ("sqrt {0}", "fp32"), ("rsqrt {0}", "posit32")])
def test_some_middles_match_exact(text, fmt):
    check_middles(text, fmt, 200)


@pytest.mark.slow
@pytest.mark.sampled(8, 8)
@pytest.mark.parametrize("fmt", WIDE)
@pytest.mark.parametrize("text", TEXTS)
def test_middles_match_rtl(text, fmt):
    checks = check_rtl([described(text, fmt, "port_ro_sr4")], choose=partial(near_middles, count=COUNT))
    assert checks >= COUNT
    assert check_rtl([described(text, fmt, "rh")], choose=partial(near_middles, count=COUNT // 8)) >= COUNT // 8


def distances(spec, count):
    """Return the distances of exact results from the nearest middle, in units of the last place, as logarithms."""
    codes, grid, found = middles(spec, count), Grid.of(spec.o), []
    for row in zip(*(column.tolist() for column in codes.values()), strict=True):
        numbers = [abs(spec.a.decode(code)) for code in row]
        if spec.form.unit in ("div", "reciprocal"):
            result = numbers[0] / numbers[1] if len(numbers) == 2 else 1 / numbers[0]
        else:
            number = numbers[0] if spec.form.unit == "sqrt" else 1 / numbers[0]
            result = Fraction(math.isqrt(math.floor(number * 4**1200)), 2**1200)
        exponent = floor_log2(result)
        if grid.quantum <= exponent <= grid.emax:
            places = result / Fraction(2) ** int(grid.last_place(np.array([exponent]))[0])
            distance = abs(places - math.floor(places) - Fraction(1, 2))
            found.append(floor_log2(distance) if distance else -math.inf)
    return found


@pytest.mark.parametrize(
    ("text", "fmt", "bits"),
    [
        ("div {0}/{0}", "fp64", 47),
        ("div {0}/{0}", "fp32", 18),
        ("div {0}/{0}", "fp16", 5),
        ("div {0}/{0}", "posit32", 10),
        ("sqrt {0}", "fp64", 42),
        ("sqrt {0}", "fp32", 13),
        ("sqrt {0}", "fp16", 2),
        ("rsqrt {0}", "fp32", 1),
        ("reciprocal {0}", "fp32", 1),
    ],
)
def test_results_are_next_to_middles(text, fmt, bits):
    """Four results in five are at most 2^-bits of the last place from a middle; random ones are half a place away."""
    found = distances(described(text, fmt, "rn"), 300)
    assert len(found) > 250
    assert np.percentile(found, 80) <= -bits


@pytest.mark.parametrize("text", ["div e3m2b9/e2m2fn-ftz=e2m0fn", "div e2m2b-5/e2m2b-5=e2m2b-5", "rsqrt int1>e2m1b9"])
def test_formats_with_distant_ranges_have_middles(text):
    """No quotient or root is in the range of the result."""
    spec = UnitSpec.parse(text)
    codes = middles(spec, 16)
    assert set(codes) == set(spec.operands)
    assert all(column.max() < 1 << spec.operands[name].width for name, column in codes.items())
