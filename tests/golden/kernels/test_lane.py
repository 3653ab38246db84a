"""Vector lanes: every rounding mode, and results from tables of few numbers."""

import itertools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.kernels import build, plan
from halfulp.golden.kernels.lane import BINARY64
from halfulp.golden.kernels.launch import call
from halfulp.golden.kernels.number_table import table_rounder
from halfulp.hdl.formats import Codebook, Rounding, Saturation, parse
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import MacSpec
from tests.kernel_products import (
    LISTED,
    _kernels,  # noqa: F401  # a fixture for every test
    case,
    codes,
    compare,
    sources_of,
)

NEAREST = ("e5m2*e5m2+e6m5.rh", "e5m2*e5m2+e6m5.rhu", "posit8*posit8+posit16.rhd")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", [*NEAREST, "fxp4.4*fxp4.4=fxp4.4.rhd+fxp8.8.rhu"])
def test_lanes_have_every_mode_to_nearest(text):
    assert sources_of(MacSpec.parse(text))
    assert compare(text, 10**4)[0] > 0


CUBES = Codebook.register("cubes", [n**3 / 64 for n in (*range(16), *range(-16, 0))], order="two's complement")
_ENDS = [*((1 + n / 4) * 2.0**e for e in range(-3, 4) for n in range(4)), math.inf, math.nan]
OVERFLOWING = Codebook.register(
    "overflowing", [0.0, 0.03125, *_ENDS, -0.0, -0.03125, *(-one for one in _ENDS)], overflow="infinity", threshold=16.0
)
TABULATED = [mode for mode in ROUNDING_MODES if mode not in ("sr", "ro", "exact")]
"""Modes with a table: those that change their result once between neighbours, without random words."""


@pytest.mark.parametrize("saturate", Saturation)
@pytest.mark.parametrize("fmt", [CUBES, OVERFLOWING, parse("nf4"), parse("takum4")], ids=str)
@pytest.mark.parametrize("mode", TABULATED)
def test_tables_of_lanes_round_as_formats(mode, fmt, saturate):
    """Around each number and middle, the entry of a word of binary64 has the number that the format rounds to."""
    made = table_rounder("sum", fmt, Rounding.parse(mode), saturate, BINARY64)
    boundaries, values, specials = made.tables.values()
    shift, first, count = map(int, made.text.split(", ")[1:4])
    numbers = sorted({abs(value) for value in fmt.values if isinstance(value, Fraction)})
    middles = [fmt.middle(*pair) for pair in itertools.pairwise(numbers)]
    ends = [2 * numbers[-1], Fraction(16), Fraction(31, 2), Fraction(1, 2**300)]
    near = {word + step for word in map(BINARY64.word, (*numbers, *middles, *ends)) for step in (-1, 0, 1)}
    infinite = [struct.unpack("d", struct.pack("Q", word))[0] for word in specials[:2]]
    expected = [fmt.decode(fmt.encode(sign * math.inf, saturate=saturate)) for sign in (1, -1)]
    assert list(map(repr, infinite)) == [repr(float(one)) for one in expected]
    for negative, word in itertools.product((False, True), near - {-1}):
        magnitude = Fraction(struct.unpack("d", struct.pack("Q", word))[0])
        place = min(max((word >> shift) - first, 0), count - 1) + negative * count
        found = values[2 * place + (word >= boundaries[place])]
        if ", true, " in made.text and not word:
            found = specials[2 + negative]
        code = fmt.encode_magnitude(magnitude, negative, Rounding.parse(mode), saturate=saturate)
        expected = math.copysign(abs(float(fmt.decode(code))), -1 if fmt.negative(code) else 1)
        found = struct.unpack("d", struct.pack("Q", found))[0]
        assert repr(found) == repr(expected) or math.isnan(found) == math.isnan(expected) is True, (word, negative)


ROUNDED_BY_TABLES = [f"{fmt}*{fmt}+{fmt}.{mode}" for mode in TABULATED for fmt in (CUBES, OVERFLOWING)]
ROUNDED_BY_TABLES += [
    f"e4m3*e4m3={OVERFLOWING}.rd+fp32.rn",
    f"e5m2*e5m2+{OVERFLOWING}.rn.sat",
    f"e5m2*e5m2+{OVERFLOWING}.rn.satfinite",
    "nf4*nf4=nf4.rn+fp32.rn",
]


@pytest.mark.slow
@pytest.mark.sampled(20, 5)
@pytest.mark.parametrize("text", ROUNDED_BY_TABLES)
def test_lanes_round_to_tables(text):
    spec = MacSpec.parse(text)
    assert sources_of(spec), plan.lane(spec, None, build.has_fma(), "Float", 64).refusal
    assert compare(text, 10**4)[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("text", [f"mxfp4*mxfp4+{OVERFLOWING}.rn", f"nvfp4*nvfp4+{OVERFLOWING}.ru"])
def test_lanes_of_blocks_round_to_tables(text, monkeypatch):
    a, b = torch.randn(33, 70, generator=torch.Generator().manual_seed(0)), torch.linspace(-3, 3, 630).reshape(70, 9)
    assert "lanes of floats" in golden.explain(text, 33, 70, 9).engine
    found = golden.gemm(a, b, text)
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    assert torch.equal(found, golden.gemm(a, b, text))


@pytest.mark.sampled(12, 2)
@pytest.mark.parametrize("text", LISTED[:-2])
def test_kernels_in_lanes_are_used(text):
    """For moderate operands the first kernel of a description, in vector lanes, does all the work."""
    spec = MacSpec.parse(text)
    fastest = sources_of(spec)[0]
    assert "Blocks<" in fastest
    rng = np.random.default_rng(1)
    a, b = codes(rng, spec.a, (4, 9), "real"), codes(rng, spec.b, (9, 5), "real")
    *_, words = case(spec, 4, 9, 5, 1)
    if text != "fp16*fp16=fp16.rn+fp16.rn":
        assert call(build.library("test", fastest), a, b, None, (4, 5), words) is not None
