"""Takums, narrow integers and codebooks in every unit of the catalogue: RTL, golden model and exact results agree.

HALFULP_EXHAUSTIVE=1 tests all inputs if there are at most 2^24, and a million otherwise.
"""

import functools
import math
import statistics
from fractions import Fraction

import numpy as np
import pytest

from halfulp.hdl.formats import Codebook, Rounding, Takum, parse
from halfulp.hdl.specs import UNITS
from halfulp.sim.reference import reference
from tests.every_unit import MODES, built, exact_mismatches, rounded, rtl_mismatches, specs, vectors
from tests.hdl.formats.test_codebook import BUILT_IN, as_codebook
from tests.settings import EXHAUSTIVE


@functools.cache
def quantiles(width):
    """Return a codebook with the quantiles of the normal distribution in ascending order, asymmetric like NF4."""
    count = 1 << width
    cuts = [round(statistics.NormalDist().inv_cdf((code + 1) / (count + 1)) * 512) for code in range(count)]
    zero = cuts[count // 2 - 1]
    return Codebook.register(f"quantiles{width}", [Fraction(cut - zero, 1024) for cut in cuts])


@functools.cache
def skewed(width):
    """Return a codebook with -0, infinities, NaN, and larger negative numbers than positive ones."""
    sizes = [Fraction(round(1.07**step * 64), 64) + step for step in range((1 << (width - 1)) - 2)]
    sizes[0] = Fraction(0)
    negative = [-3 * size / 2 for size in sizes[1:]]
    values = [*sizes, math.inf, math.nan, -0.0, *negative, -math.inf, math.nan]
    return Codebook.register(f"skewed{width}", values, overflow="infinity", threshold=2 * sizes[-1])


@functools.cache
def curved(width):
    """Return a codebook in two's complement with NaN and increasing distances of neighbours."""
    steps = [Fraction(step * (step + 6), 64) for step in range(1 << (width - 1))]
    values = [*steps, math.nan, *(-step - Fraction(1, 8) for step in reversed(steps[1:]))]
    return Codebook.register(f"curved{width}", values, order="two's complement")


OWN = (quantiles, skewed, curved)


SMALL = (lambda: Takum(5), lambda: parse("fxp2.2-narrow"), *(functools.partial(make, 4) for make in OWN))
WIDE = (lambda: Takum(8), lambda: parse("int8-narrow"), *(functools.partial(make, 8) for make in OWN))
NAMES = ("takum", "narrow", *(make.__name__ for make in OWN))


def few(fmt, latency, modes=MODES):
    """Return units with latency in a format, each with another rounding."""
    found = [spec for name in UNITS for spec in specs(fmt, name) if built(spec).latency == latency]
    return [rounded(spec, modes[place % len(modes)]) for place, spec in enumerate(found)]


@pytest.mark.sampled(4, 2)
@pytest.mark.parametrize("make", SMALL, ids=NAMES)
def test_golden_of_every_unit_matches_exact(make):
    for spec in (*few(make(), 0), *few(make(), 1)):
        checks, failed = exact_mismatches(spec, most_bits=4, count=32)
        assert not failed
        assert checks


def units_in(makes, names):
    """Return test parameters: each maker of a format with each unit that accepts the format."""
    return [
        pytest.param(make, unit, id=f"{name}-{unit}")
        for make, name in zip(makes, names, strict=True)
        for unit in UNITS
        if specs(make(), unit)
    ]


@pytest.mark.slow
@pytest.mark.sampled(26, 26)
@pytest.mark.parametrize(("make", "name"), units_in(WIDE, NAMES))
def test_golden_with_8_bits_matches_exact_in_all_modes(make, name):
    for spec in specs(make(), name):
        for mode in MODES:
            checks, failed = exact_mismatches(rounded(spec, mode), most_bits=17 if EXHAUSTIVE else 8, count=1 << 10)
            assert not failed
            assert checks


FAST = (("skewed", 0),)
"""Small formats and latencies whose RTL `make test` tests: one with infinities and two zeros."""


@pytest.mark.sampled(6, 3)
@pytest.mark.parametrize(
    ("make", "latency"),
    [
        pytest.param(make, latency, id=f"{name}-{latency}", marks=() if (name, latency) in FAST else pytest.mark.slow)
        for make, name in zip(SMALL, NAMES, strict=True)
        for latency in (0, 1)
    ],
)
def test_rtl_of_every_unit_matches_golden(make, latency):
    found = few(make(), latency, ("sr3",))
    checks, failed = rtl_mismatches(dict(zip(found, found, strict=True)), most_bits=12, count=1 << 12)
    assert not failed
    assert checks


MANY = {"most_bits": 24, "count": 1 << 17} if EXHAUSTIVE else {"most_bits": 9, "count": 1 << 12}
"""Vectors per rounding in slow tests."""

OF_SUMS = MANY if EXHAUSTIVE else {"most_bits": 9, "count": 1 << 9}
"""Vectors of exact sums; these have hundreds of bits, which are slow in the golden model."""


@pytest.mark.slow
@pytest.mark.sampled(172, 172)
@pytest.mark.parametrize(
    ("make", "name"),
    units_in([*WIDE, lambda: Takum(16), lambda: Takum(32)], [*(f"{name}8" for name in NAMES), "takum16", "takum32"]),
)
def test_rtl_in_all_modes_matches_golden(make, name):
    for place, spec in enumerate(specs(make(), name)):
        is_exact = getattr(spec, "order", "exact") == "exact" and getattr(spec, "quire", None) is not None
        # Modes take turns in exact sums, whose hundreds of bits take minutes to compile.
        modes = MODES[(place + len(name)) % 3 :: 3] if is_exact and not EXHAUSTIVE else MODES
        same = [rounded(spec, mode) for mode in modes]
        checks, failed = rtl_mismatches(dict(zip(same, same, strict=True)), **(OF_SUMS if is_exact else MANY))
        assert not failed
        assert checks


NO_CODEBOOK = {"sru", "requantize", "split", "join", "mma", "partmac", "blockdequantize", "blockdot", "blockmac"}


def pairs(text, name, modes):
    """Return pairs of equal descriptions: in a codebook with the values of a built-in format, and in that format.

    The units of fixed point and those of compound numbers and of blocks accept no codebook.
    """
    book, fmt = as_codebook(text), parse(text)
    if name in ("classify", "fpu"):
        # Numbers of a codebook are neither normal nor subnormal, and an fpu takes floats only.
        return
    takes_book = name not in NO_CODEBOOK
    assert bool(specs(book, name)) == takes_book
    if not takes_book:
        return
    # Aligned sums are of floats only.
    others = [spec for spec in specs(fmt, name) if getattr(spec, "alignment", None) is None]
    for one, other in zip(specs(book, name), others, strict=True):
        # Elements of blocks always saturate.
        choices = (False, True) if "saturate" in one.parameters else (False,)
        yield {rounded(one, mode, saturate): rounded(other, mode, saturate) for mode in modes for saturate in choices}


@pytest.mark.slow
@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize("text", BUILT_IN)
def test_golden_codebooks_match_built_in_formats_in_every_unit(text):
    for name in UNITS:
        for found in pairs(text, name, MODES):
            for place, (one, other) in enumerate(found.items()):
                if EXHAUSTIVE or place % len(MODES) == len(name) % len(MODES):
                    book, built_in = built(one), built(other)
                    for codes in vectors(built_in, 8, 1 << 17 if EXHAUSTIVE else 1 << 8):
                        expected = reference(built_in, codes)
                        for port, found_codes in reference(book, codes).items():
                            assert np.array_equal(found_codes, expected[port]), one.text


@pytest.mark.slow
@pytest.mark.sampled(104, 104)
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("text", BUILT_IN)
def test_rtl_codebooks_match_built_in_formats_in_all_modes(text, name):
    for found in pairs(text, name, MODES):
        checks, failed = rtl_mismatches(found, **MANY)
        assert not failed
        assert checks


FOUR_BITS = ("fxp2.2", "fxp1.3-wrap", "ufxp2.2", "e2m1fn", "e2m1-ftz", "posit4", "takum4")
"""Formats of all families except codebooks."""


@pytest.mark.slow
@pytest.mark.sampled(len(UNITS), 7)
@pytest.mark.parametrize("name", [name for name, spec in UNITS.items() if spec.takes(parse("fxp2.2"), Rounding("rh"))])
def test_rh_of_all_families_matches_golden_and_exact(name):
    formats = [*map(parse, FOUR_BITS), *(make(4) for make in OWN)]
    found = [rounded(spec, "rh") for fmt in formats for spec in specs(fmt, name)]
    for spec in found:
        checks, failed = exact_mismatches(spec, most_bits=12, count=256)
        assert not failed
        assert checks
    checks, failed = rtl_mismatches(dict(zip(found, found, strict=True)), most_bits=12, count=1 << 12)
    assert not failed
    assert checks
