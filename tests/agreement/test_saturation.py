"""Saturation of overflows and of infinities in every unit: RTL, golden model and exact results agree."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import SAT, SATFINITE, parse
from halfulp.hdl.specs import UNITS, UnitSpec
from halfulp.sim.reference import reference
from tests import every_unit
from tests.every_unit import MODES, built, exact_mismatches, rounded, rtl_mismatches, vectors

OPERANDS = ("e3m1", "e2m2fn", "e3m1fnuz-ftz", "e2m1-finite")
"""Formats of all operands and results: floats with and without infinities, NaN and subnormal numbers."""

RESULTS = ("e3m2-ftz", "e3m1fn", "e2m2fnuz", "e2m1fn", "posit5e1", "posit6", "takum6", "nf4", "fxp3.2", "fxp2.2-wrap")
"""Results of operands in e3m1, which has infinities."""

EIGHT_BITS = ("e4m3", "e5m2", "e4m3fn", "e5m2fnuz", "e4m3b11fnuz", "e3m4", "posit8", "takum8", "int8", "ufxp2.6-wrap")


COMPOUND = tuple(
    f"{text}.rn.satfinite"
    for text in (
        "split e4m2>e3m1x2",
        "split e3m3>e3m1x3",
        "join e3m1x2>e3m1",
        "join e2m1x3>e3m2",
        "convert e4m3>e5m0fnu",
    )
)


def specs(fmt, name):
    """Return the descriptions of a unit with all operands in a format; those of compound numbers are in `COMPOUND`."""
    return [] if name in ("split", "join", "partmac") else every_unit.specs(fmt, name)


def converted(o, name):
    """Return descriptions of a unit with operands in e3m1 and the result in another format."""
    found = []
    for spec in specs(parse("e3m1"), name):
        if "o" in spec.form.parts and "acc" not in spec.form.parts and spec.result == parse("e3m1"):
            try:
                found.append(replace(spec, o=parse(o)))
            except (TypeError, ValueError):
                continue
    return found


def saturating(chosen, place):
    """Return a description that saturates infinities, rounded by one of the modes in turn; None if it is refused."""
    try:
        return rounded(chosen, MODES[place % len(MODES)], SATFINITE)
    except ValueError:
        return None


@functools.cache
def every(text):
    """Return descriptions of all units with operands in a format that saturate infinities."""
    found = [spec for name in UNITS for spec in specs(parse(text), name)]
    if text == OPERANDS[0]:
        found += [spec for o in RESULTS for name in UNITS for spec in converted(o, name)]
    return [*filter(None, (saturating(spec, place) for place, spec in enumerate(found) if spec.ROUNDS))]


@pytest.mark.sampled(12, 3)
@pytest.mark.parametrize("turn", range(12))
def test_golden_that_saturates_infinities_matches_exact(turn):
    found = [*(spec for text in OPERANDS for spec in every(text)), *map(UnitSpec.parse, COMPOUND)]
    for spec in found[turn::12]:
        checks, failed = exact_mismatches(spec, most_bits=9, count=100)
        assert not failed
        assert checks


@pytest.mark.slow
@pytest.mark.sampled(24, 24)
@pytest.mark.parametrize("text", OPERANDS)
@pytest.mark.parametrize("turn", range(4))
def test_rtl_that_saturates_infinities_matches_golden(text, turn):
    for latency in (0, 1):
        found = [spec for spec in every(text)[turn::4] if built(spec).latency == latency]
        checks, failed = rtl_mismatches(dict(zip(found, found, strict=True)), most_bits=12, count=1 << 12)
        assert not failed
        assert checks


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "texts",
    [
        [
            f"convert e4m3>{o}.rn.satfinite"
            for o in ("e3m2", "e5m0fnu", "e3m2fn-ftz", "posit6", "takum6", "nf4", "fxp2.2-wrap")
        ],
        ["div e3m1/e3m1=e4m2.rn.satfinite flags", "div e3m1/e3m1=posit6.rz.satfinite"],
        ["rsqrt e3m2>takum8.rn.satfinite", "rsqrt e3m2>e4m3fn.ro.satfinite", "rsqrt e3m2.rn.satfinite flags"],
        [
            "compare e3m1,e3m1.rn.satfinite",
            "compare e3m1,e3m1=posit6.rn.satfinite",
            "compare e3m1,e3m1.ru.satfinite flags",
        ],
        ["split e4m2>e3m1x2.rn.satfinite"],
    ],
)
def test_rtl_of_infinities_matches_golden(texts):
    found = [*map(UnitSpec.parse, texts)]
    checks, failed = rtl_mismatches(dict(zip(found, found, strict=True)), most_bits=12, count=1 << 12)
    assert not failed
    assert checks


@pytest.mark.parametrize("name", ["mul", "add", "div", "rsqrt", "convert"])
def test_results_differ_from_sat_only_in_infinities(name):
    """The largest number of its sign takes the place of an infinity, and all else is as with ``sat``."""
    for spec in specs(parse("e3m2"), name):
        sat, both = (built(rounded(spec, "rn", saturate)) for saturate in (SAT, SATFINITE))
        infinite = 0
        for codes in vectors(sat, 14, 1000):
            before, after = (reference(unit, codes)["o"] for unit in (sat, both))
            signs = before & np.uint64(spec.result.sign_code)
            where = (before ^ signs) == spec.result.inf_code
            assert np.array_equal(after, np.where(where, signs | np.uint64(spec.result.max_code), before))
            infinite += where.sum()
        assert infinite


@pytest.mark.parametrize("target", EIGHT_BITS)
def test_every_code_of_fp16_saturates_by_value(target):
    """An infinity and a number beyond the range give the last number of their sign, NaN that of the format."""
    o, codes = parse(target), torch.arange(1 << 16)
    values, found = golden.decode(codes, "fp16"), golden.convert(codes, a="fp16", o=target, saturate="satfinite")
    decoded = golden.decode(found, target)
    assert (found[values.isnan()] == o.nan_code).all()
    assert decoded[values == torch.inf].tolist() == [float(o.largest)]
    assert decoded[values == -torch.inf].tolist() == [float(o.lowest)]
    number = values.isfinite()
    assert decoded[number].isfinite().all()
    assert torch.equal(found[number], golden.convert(codes[number], a="fp16", o=target, saturate=True))


def test_division_by_zero_saturates_with_its_flag():
    one, zero, largest = golden.encode([1.0, -1.0], "fp16"), torch.tensor(0), 0x7BFF
    quotient = golden.div(one, zero, a="fp16", b="fp16", saturate="satfinite", flags=True)
    assert quotient.o.tolist() == [largest, largest | 0x8000]
    assert quotient.flags.tolist() == [0b01000] * 2
    infinity = torch.tensor(0x7C00)
    kept = golden.convert(infinity, a="fp16", o="fp16", saturate=True, flags=True)
    lost = golden.convert(infinity, a="fp16", o="fp16", saturate="satfinite", flags=True)
    assert (int(kept.o), int(kept.flags)) == (0x7C00, 0)
    assert (int(lost.o), int(lost.flags)) == (largest, 0b10000)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["mul e3m2uz*e3m2uz.port_ro flags", "convert e3m5>e3m2fn.port_ro"])
def test_largest_even_number_stays_if_a_port_chooses_rounding_to_odd(text):
    """The code after the largest number is odd, and infinity or NaN."""
    spec = UnitSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=16)
    assert not failed
    assert checks
