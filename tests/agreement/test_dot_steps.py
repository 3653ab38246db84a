"""Accumulators that add several products in a step, dense and sparse: golden model against exact fractions, and RTL."""

import pytest

from halfulp.hdl.specs import UnitSpec
from halfulp.sim.bench import run
from halfulp.sim.ports import Ports
from halfulp.sim.space import Space
from halfulp.units.catalogue import component
from tests.every_unit import built, exact_mismatches, rtl_mismatches

TOYS = (
    "dotmac2 e2m0*e2m0+e2m1.rd",
    "dotmac2 e2m0*fxp1.0+e2m1.ro.satfinite",
    "dotmac2 fxp1.1*fxp1.1+fxp2.1.sr1",
    "dotmac2 e2m0fn*fxp1.1+e3m0.port_sr1",
    "dotmac2 posit3*posit3+exact=posit4.ro carry=2",
    "sparsemac e2m0*e2m0+e2m1.rd sparsity=1:2",
    "sparsemac e2m0*fxp1.0+e2m1.ro sparsity=2:3",
    "sparsemac fxp1.1*fxp1.1+fxp2.1.sr1 sparsity=2:3",
    "sparsemac e2m1fn*fxp1.1+e3m0.port_sr1 sparsity=1:2",
    "sparsemac posit3*posit3+exact=posit4.ro sparsity=1:2 carry=2",
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
    "sparsemac e4m3fn*e4m3fn+fp32.rn",
    "sparsemac e4m3*e5m2+fp16.port_sr3 sparsity=1:4 step=2 flags",
    "sparsemac posit8*posit8+exact=posit8.rn step=4",
    "sparsemac int8*int8+int32.rn sparsity=2:4",
    "sparsemac e5m2*e5m2+e6m5.sr10 sparsity=3:5 flags=before",
    "sparsemac e3m2fn*fxp2.2+posit8.sr3.sat sparsity=1:2",
    "sparsemac fxp2.2*fxp2.2+e5m2.rd",
    "sparsemac e5m2*e4m3fn+fxp8.8.rz sparsity=2:3",
    "sparsemac nf4*e4m3fn+takum12.ro",
    "sparsemac e4m3fn*e4m3fn+exact=fp16.rn sparsity=1:4 step=3",
)
"""Units in all families, whose inputs are sampled."""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("text", TOYS)
def test_golden_of_toys_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=10, count=1 << 9)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.sampled(10, 10)
@pytest.mark.parametrize("text", TOYS)
def test_golden_of_toys_matches_exact_for_all_inputs(text):
    spec = UnitSpec.parse(text)
    checks, failed = exact_mismatches(spec, most_bits=20)
    assert not failed
    assert checks >= 1 << Space.of(Ports.inputs_of(built(spec))).bits


@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", TEXTS)
def test_golden_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=4, count=256)
    assert not failed
    assert checks


@pytest.mark.sampled(30, 5)
@pytest.mark.parametrize("text", [*TOYS, *TEXTS])
def test_rtl_matches_golden(text):
    spec = UnitSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=16, count=1 << 14)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "dotmac2 e2m1*e2m1+e4m3.sr3@lfsr8 interleave=2 flags",
        "dotmac2 int4*int4+exact=int8",
        "sparsemac e2m1*e2m1+e4m3.sr3@lfsr8 interleave=2 flags",
        "sparsemac int4*int4+exact=int8 sparsity=1:2",
    ],
)
def test_bench_runs_steps(text):
    report = run(component(text), limit=1 << 11)
    assert report.checks
    assert not report.failed
