"""Steps of matrix units in RTL against the golden model, which is compared with fractions and with mmasim."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from halfulp.hdl import staged_sum
from halfulp.hdl.formats import Rounding
from halfulp.hdl.round import OfFloor
from halfulp.hdl.specs import UnitSpec
from halfulp.hdl.wire import NEVER
from halfulp.sim.reference import reference
from halfulp.units import Mma, mma
from halfulp.units.catalogue import component
from halfulp.units.verilog import emit
from tests.every_unit import exact_mismatches, rtl_mismatches, vectors
from tests.settings import EXHAUSTIVE

SAME = (
    "mma2 e2m1*e2m1+e3m2.rz order=aligned3 zero=-2",
    "mma2 e2m1*e2m1+e3m2.rn order=aligned2 zero=1",
    "mma2 e2m1*e2m1+e3m2.rz order=aligned5 zero=-3 through=e3m1",
    "mma2 e2m1*e2m1+e3m2.rn order=exact",
    "mma2 e2m1*e2m1+e3m2.rn order=pairwise2",
    "mma2 e2m1*e2m1+e3m2.rn order=staged2",
    "mma2 e2m1*e2m1+e3m2.rn order=staged2 halves=2",
)
"""Small descriptions with the same ports."""

TOYS = (
    *SAME,
    "mma2 e2m1*e2m1fn+e3m3.rz order=aligned4 zero=-3 through=e3m1",
    "mma1 e3m2fn*e2m1-ftz+e4m3.rz order=aligned2 zero=-9",
    "mma1 block(e2m1fn,1,e3m0fnu,floor)*block(e2m1,1,e3m0fnu,floor)+e3m2.rz order=aligned3 zero=-4",
    "mma2 e3m0fn*e3m1+e3m1.rn order=pairwise2",
    "mma2 e2m1*e2m1fn+e5m2.rn order=staged3",
    "mma2 e2m1*e2m1+e5m2.rn order=staged3 halves=2",
    "mma1 e5m2*e5m2+e5m2.rn order=staged4",
    "mma2 block(e2m1fn,2,e3m0fnu,floor)*block(e2m1,2,e2m1fn,nearest)+e3m2.rz order=aligned3 zero=-4 group=2",
)

NAMES = (
    "v100.mma.fp16",
    "v100.mma.fp16.fp16",
    "a100.mma.bf16",
    "a100.mma.tf32",
    "l40s.mma.e4m3",
    "h100.wgmma: e5m2*e4m3fn+fp16",
    "h100.wgmma.e4m3",
    "b200.tcgen05.e2m1",
    "b200.tcgen05.mxfp8_e4m3",
    "b200.tcgen05.mxfp4",
    "b200.tcgen05.nvfp4",
    "mi100.mfma.fp16",
    "mi250.mfma.fp16",
    "mi250.mfma.bf16",
    "mi250.mfma_1k.bf16",
    "mi300.mfma.fp16",
    "mi300.mfma.bf16",
    "mi300.mfma.tf32",
    "mi300.mfma.e4m3",
    "mi300.mfma: e5m2fnuz*e4m3fnuz+fp32",
)
"""Instructions of all architectures, with products of all orders."""

MORE = (
    "mma3 fp16*bf16+fp32.rz order=aligned2 zero=-500",
    "mma5 bf16*bf16+fp32.rn order=aligned40 zero=100 through=e8m9",
    "mma1 bf16*bf16+fp32.rz order=aligned25 zero=-140",
    "mma3 e5m2*e4m3fn+fp16.rn order=aligned7 zero=-9",
    "mma4 block(e2m1fn,2,e4m3fn,nearest)*block(e3m2fn,4,e8m0fnu,floor)+fp32.rz order=aligned30 zero=-139 group=2",
    "mma3 e5m2*bf16+bf16.rn order=exact",
    "mma4 e2m1*bf16+bf16.rn order=pairwise2",
    "mma4 e2m16*tf32+fp32.rn order=pairwise4",
    "mma2 bf16*bf16+bf16.rn order=staged9 halves=2",
    "mma3 fp16*e5m10+fp32.rn order=staged31",
    "mma3 e4m10*e4m10+e5m23.rn order=staged24",
    "mma4 e4m3*e4m3+e5m23.rn order=staged24 halves=2",
    "mma2 e2m16*tf32+fp32.rn order=staged24",
    "mma4 block(e5m2,4,e8m0fnu,floor)*block(e3m2fn,4,e8m0fnu,floor)+fp32.rz order=aligned25 zero=-133",
)
"""Descriptions of no device: large exponents of zeros, sums that round to zero, scales of 8 bits, wide products."""


LANES = (
    "mma2 e2m1*e2m1+e3m2.rz order=aligned3 zero=-2 rows=2 columns=2",
    "mma2 e2m1*e2m1+e3m2.rn order=pairwise2 rows=2 columns=2",
    "mma2 e2m1*e2m1+e3m2.rn order=staged2 halves=2 rows=2 columns=2",
    "mma2 e2m1*e2m1+e3m2.rn order=exact rows=2 columns=2",
    "mma2 block(e2m1fn,2,e3m0fnu,floor)*block(e2m1,2,e2m1fn,nearest)+e3m2.rz order=aligned3 zero=-4 group=2 rows=3",
    "mma2 block(e2m1fn,2,e3m0fnu,floor)*block(e2m1,2,e3m0fnu,floor)+e3m2.rz order=aligned3 zero=-4 columns=2",
    "v100.mma.fp16 rows=2 columns=3",
)
"""Steps of several rows and columns; the first four have the same ports."""


def kinds(unit, count=1 << 12) -> Iterator[dict[str, np.ndarray]]:
    """Yield directed and random operands, then wide, subnormal, cancelling, zero and special ones."""
    yield from vectors(unit, 0, count)
    rng = np.random.default_rng(5)
    shapes = {port.name: port for port in unit.spec.ports}
    for kind in ("any", "subnormal", "zero", "special", "cancelling"):
        codes = {}
        for name, port in shapes.items():
            width, fmt = port.width, port.fmt
            code = rng.integers(0, 1 << width, count, dtype=np.uint64)
            magnitude = np.uint64((1 << width - 1) - 1)
            few = rng.random(count) < (0.7 if kind in ("subnormal", "zero") else 0.08)
            if kind == "subnormal" and getattr(fmt, "man", 0):
                code = np.where(few, code & ~(magnitude >> np.uint64(fmt.man) << np.uint64(fmt.man)), code)
            elif kind == "zero" and fmt.has_zero:
                code = np.where(few, code & ~magnitude, code)
            elif kind == "special":
                code = np.where(few, code | magnitude, code)
            codes[name] = code
        if kind == "cancelling" and unit.spec.k > 1:
            sign = np.uint64(1 << shapes["a0"].width - 1)
            codes["a1"], codes["b1"] = codes["a0"] ^ sign, codes["b0"]
        yield codes


def mismatches(*texts, choose=kinds):
    """Compare the RTL of texts with the same ports with the golden model."""
    specs = [UnitSpec.parse(text) for text in texts]
    return rtl_mismatches(dict(zip(specs, specs, strict=True)), most_bits=24, count=1 << 14, choose=choose)


@pytest.mark.slow
def test_rtl_of_toys_matches_golden_on_samples():
    checks, failed = mismatches(*SAME)
    assert not failed
    assert checks >= 6 * len(SAME) << 12


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize("text", [text for text in TOYS if "group" not in text])
def test_rtl_of_toys_matches_golden_on_all_inputs(text):
    checks, failed = mismatches(text, choose=None)
    assert not failed
    assert checks >= 1 << 18


@pytest.mark.slow
@pytest.mark.sampled(5, 5)
@pytest.mark.parametrize("text", [*NAMES, *MORE, TOYS[-1]])
def test_rtl_of_instructions_matches_golden_on_all_kinds_of_operands(text):
    checks, failed = mismatches(text, choose=lambda unit: kinds(unit, 1 << 20 if EXHAUSTIVE else 1 << 12))
    assert not failed
    assert checks >= 6 << 12


@pytest.mark.slow
def test_rtl_of_rows_and_columns_matches_golden():
    checks, failed = mismatches(*LANES[:4])
    assert not failed
    assert checks >= 4 * 4 * 6 << 12


@pytest.mark.slow
@pytest.mark.parametrize("text", LANES[4:])
def test_rtl_of_rows_and_columns_of_blocks_and_wide_numbers_matches_golden(text):
    _, failed = mismatches(text)
    assert not failed


@pytest.mark.parametrize("text", LANES)
def test_rows_and_columns_are_steps_of_their_own(text):
    spec = UnitSpec.parse(text)
    unit, one = component(spec), component(spec.one_lane)
    codes = next(vectors(unit, 0, 200))
    made = reference(unit, codes)
    names = [port.name for port in spec.one_lane.operand_ports]
    for lane in range(spec.lanes):
        own = spec.lane_ports(*divmod(lane, spec.columns))
        alone = reference(one, {name: codes[port] for name, port in zip(names, own, strict=True)})
        assert (made[f"o{lane}"] == alone["o"]).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", LANES[:4])
def test_operands_of_several_lanes_are_decoded_once(text):
    unit = component(UnitSpec.parse(text))
    decoded = set(re.findall(r"\b([ab]\d*)_hidden\b", emit(unit, unit.name)))
    assert decoded == {f"{name}{index}" for name in "ab" for index in range(4)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", [*TOYS, *NAMES[:2], *MORE, *LANES])
def test_golden_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), choose=lambda unit: kinds(unit, 64))
    assert not failed
    assert checks >= 6 * 64


TOY = TOYS[0]


def broken(monkeypatch, name):
    """Break the datapath of the unit."""
    sums, alignment, start, flushed = mma.aligned_sum, mma.Alignment, staged_sum.with_start, Mma._flushed
    if name == "bits":
        monkeypatch.setattr(mma, "Alignment", lambda fraction, floor, integer: alignment(fraction - 1, floor, integer))
    elif name == "zero":
        monkeypatch.setattr(mma, "aligned_sum", lambda *given: sums(*given[:-1]))
    elif name == "floor":
        monkeypatch.setattr(mma, "Alignment", lambda fraction, floor, integer: alignment(fraction, True, integer))
    elif name == "overflow":
        monkeypatch.setattr(mma, "ToInfinity", Rounding)
    elif name == "product_format":
        monkeypatch.setattr(Mma, "_product_format", property(lambda unit: replace(unit.spec.o, subnormals=False)))
    elif name == "zero_sign":
        monkeypatch.setattr(Mma, "_flushed", lambda *given, signed_zero=False: flushed(*given, signed_zero=True))
    elif name == "exceeds":
        monkeypatch.setattr(staged_sum, "exceeds", lambda *given: NEVER)
    elif name == "stages":
        monkeypatch.setattr(staged_sum, "STAGES", staged_sum.STAGES - 1)
    elif name == "sticky":
        monkeypatch.setattr(mma, "OfFloor", lambda mode, kept: OfFloor(mode, kept=kept - 1))
    else:
        monkeypatch.setattr(staged_sum, "with_start", lambda *given, **more: start(*given, **more | {name: False}))


STAGED = "mma2 e4m10*e4m10+e5m23.rn order=staged24"
"""Products and accumulators whose exponents often differ by as many places as the sum has below its rounding."""

BROKEN = {
    "bits": TOY,
    "zero": "mma2 e2m1*e2m1+e3m2.rz order=aligned2 zero=1",
    "floor": TOY,
    "overflow": TOY,
    "product_format": "mma2 e3m0fn*e3m1+e3m1.rn order=pairwise2",
    "zero_sign": "mma2 e2m1*e2m1+e3m2.rn order=pairwise2",
    "exceeds": "mma2 e2m1*e2m1+e2m2.rn order=staged2",
    "stages": STAGED,
    "sticky": STAGED,
    "drops": "mma2 e2m1*e2m1+e5m2.rn order=staged3 halves=2",
}
"""Faults of the datapath, and a description that shows each of them."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_datapath_is_found(fault, monkeypatch):
    broken(monkeypatch, fault)
    _, failed = mismatches(BROKEN[fault])
    assert failed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h100.wgmma.e4m3 every=128", "chains of steps"),
        ("mi300.mfma.fp16 every=128", "chains of steps"),
        ("mi300.mfma.fp16 rows=0", "rows"),
        ("mi300.mfma.fp16 columns=65", "columns"),
    ],
)
def test_mma_rejects_chains(text, message):
    with pytest.raises(ValueError, match=message):
        Mma(text)
