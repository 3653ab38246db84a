"""Dot products added to an accumulator: steps and sequences against exact fractions, other units, and the RTL."""

import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import DotMacSpec, UnitSpec
from halfulp.sim.bench import run
from halfulp.units import DotMac
from tests.every_unit import exact_mismatches, rtl_mismatches

TOYS = (
    "dotmac2 e2m0*e2m0+e2m1.rd",
    "dotmac2 e2m0*fxp1.0+e2m1.ro.satfinite",
    "dotmac2 fxp1.1*fxp1.1+fxp2.1.sr1",
    "dotmac2 e2m0fn*fxp1.1+e3m0.port_sr1",
    "dotmac2 posit3*posit3+exact=posit4.ro carry=2",
)
"""Units of which all inputs are tested."""

TEXTS = (
    "dotmac4 e4m3fn*e4m3fn+fp32.rn",
    "dotmac4 e4m3*e5m2+fp16.port_sr3 flags",
    "dotmac3 posit8*posit8+exact=posit8.rn",
    "dotmac4 int8*int8+int32.rn",
    "dotmac3 e5m2*e5m2+e6m5.sr10 flags=before",
    "dotmac1 e3m2fn*fxp2.2+posit8.sr3.sat",
    "dotmac5 fxp2.2*fxp2.2+e5m2.rd",
    "dotmac2 e5m2*e4m3fn+fxp8.8-wrap.rz",
    "dotmac2 nf4*e4m3fn+takum12.ro",
    "dotmac8 e2m1fn*e2m1fn+exact=fp16.rn",
)
"""Units in all families, whose inputs are sampled."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", TOYS)
def test_golden_of_toys_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=10, count=1 << 9)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.parametrize("text", TOYS)
def test_golden_of_toys_matches_exact_for_all_inputs(text):
    spec = UnitSpec.parse(text)
    checks, failed = exact_mismatches(spec, most_bits=20)
    assert not failed
    assert checks >= 1 << 2 * (spec.a.width + spec.b.width) + spec.o.width


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", TEXTS)
def test_golden_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=4, count=256)
    assert not failed
    assert checks


@pytest.mark.sampled(15, 5)
@pytest.mark.parametrize("text", [*TOYS, *TEXTS])
def test_rtl_matches_golden(text):
    spec = UnitSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=20, count=1 << 16)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["dotmac2 e2m1*e2m1+e4m3.sr3@lfsr8 interleave=2 flags", "dotmac2 int4*int4+exact=int8"]
)
def test_bench_runs_steps(text):
    report = run(DotMac.of(text), limit=1 << 11)
    assert report.checks
    assert not report.failed


@pytest.mark.slow
def test_bench_detects_missing_product():
    class Short(DotMac):
        """Multiplies all pairs but the last one."""

        def factors(self, m):
            return super().factors(m)[:-1]

    assert run(Short(a="e2m1", b="e2m1", acc="e5m2", k=3), limit=1 << 10).failed


@pytest.mark.parametrize("k", [1, 2, 7])
def test_steps_are_dot_products_with_a_start_value(k):
    generator = torch.Generator().manual_seed(k)
    formats = {"a": "e4m3fn", "b": "e5m2"}
    x, y = (golden.encode(torch.randn(60, k, generator=generator), fmt) for fmt in formats.values())
    start = golden.encode(torch.randn(60, generator=generator), "fp32")
    steps = golden.dotmac(x, y, start, **formats, acc="fp32")
    assert torch.equal(steps, golden.dot(x, y, start, **formats, c="fp32", o="fp32"))
    if k == 1:
        assert torch.equal(steps, golden.mac(x[:, 0], y[:, 0], start, **formats, acc="fp32"))
    load = torch.arange(60) % 20 == 0
    sums, held = golden.dotmac_sequence(x, y, start, load, load & False, **formats, acc="fp32"), torch.tensor(0)
    for at in range(60):
        held = golden.dotmac(x[at], y[at], start[at] if load[at] else held, **formats, acc="fp32")
        assert int(sums[at]) == int(held)


def test_description_has_documented_defaults():
    spec = DotMacSpec.filled(parse("e5m2"))
    assert str(spec) == "dotmac4 e5m2*e5m2+e6m5.rn"
    assert UnitSpec.parse(spec.expression) == spec
    assert [spec.steps(k) for k in (0, 1, 4, 5)] == [0, 1, 1, 2]
    unit = DotMac.of(spec)
    assert list(unit.inputs) == [*(f"{name}{place}" for name in "ab" for place in range(4)), "c", "load", "clear"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("dotmac0 e4m3fn*e4m3fn+fp32", "1 to 256"),
        ("dotmac257 e4m3fn*e4m3fn+fp32", "1 to 256"),
        ("dotmac2 e4m3fn*e4m3fn+fp16.exact", "2 products"),
        ("dotmac2 e4m3fn*e4m3fn+fp16=fp32", "must be fp16"),
        ("dotmac2 bf16x2*e4m3fn+fp32", "compound"),
        ("dotmac e4m3fn*e4m3fn+fp32", "number after dotmac"),
    ],
)
def test_dotmac_rejects_description(text, word):
    with pytest.raises(ValueError, match=word):
        UnitSpec.parse(text)


def test_golden_dotmac_rejects_operands():
    x, start = torch.zeros(4, dtype=torch.int64), torch.tensor(0)
    how = {"a": "e4m3fn", "b": "e4m3fn", "acc": "fp16"}
    with pytest.raises(ValueError, match="one shape"):
        golden.dotmac(x, x[:3], start, **how)
    with pytest.raises(ValueError, match="last dimension"):
        golden.dotmac(start, start, start, **how)
    with pytest.raises(TypeError, match="tensor of codes"):
        golden.dotmac([0], x, start, **how)
    with pytest.raises(TypeError, match="not 2 operands"):
        golden.dotmac(x, x, **how)
