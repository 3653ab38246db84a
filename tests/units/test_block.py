"""Units of blocks in RTL: exhaustive toy blocks, OCP blocks, vectors of the test bench, and refused parameters."""

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.hdl.specs import UnitSpec
from halfulp.sim.bench import run
from halfulp.sim.corner_cases import corner_cases
from halfulp.sim.ports import Ports
from halfulp.sim.vectors import sampled
from halfulp.units import BlockDequantize, BlockDot, BlockMac, BlockQuantize
from halfulp.units.catalogue import component
from tests.every_unit import exact_mismatches, rtl_mismatches
from tests.settings import EXHAUSTIVE

TOY = "block(e2m1fn,2,e2m0fnu,floor)"
SCALED = "block(e3m2,2,e5m2,nearest)*block(fxp2.2,2,e4m3fnuz,nearest)"
"""Blocks whose scales have signs, zeros, infinities and significands."""

TOYS = (
    f"blockdot2 block(fxp1.1,2,e2m0fnu,floor)*{TOY}=e3m2.rd",
    "blockmac block(fxp1.1,2,e2m0fnu,floor)*block(fxp1.1,2,e2m0fnu,floor)+e3m1.sr2",
    f"blockdequantize {TOY}>e3m1.sr2",
    "blockquantize e3m1>block(fxp1.1,2,e3m0fnu,floor)",
    "blockquantize e3m2-finite>block(e2m1fn,2,e3m0fnu,ceil).ru",
    "blockquantize posit6>block(e2m0fn,2,e3m0fnu,even).rz",
    "blockquantize e4m3>block(e2m1fn,2,e2m3,nearest)",
    "blockquantize e4m2-finite>block(fxp1.2,2,e3m2,nearest).ru",
    "blockquantize fxp4.4>block(e2m1fn,2,e2m2,ceil).sr2",
    f"blockdot1 {SCALED}+e4m3.rn",
)
"""Units whose inputs are all tested, or many of them."""

_SMALL = "block(e2m0fn,2,e2m0fnu,floor)*block(fxp1.1,2,e2m0fnu,floor)+e2m0fn"
_LONG = "block(fxp1.1,4,e2m0fnu,floor)*block(ufxp0.1,4,e2m0fnu,floor)"

EVERY = (
    "blockquantize e4m2-finite>block(e2m1fn,2,e3m0fnu,even)",
    "blockquantize fxp2.2>block(e2m0fn,4,e3m0fnu,floor)",
    "blockquantize e2m1>block(fxp1.1,4,e2m2,nearest).ra",
    f"blockdot2 {_SMALL}",
    f"blockdot4 {_LONG}=e3m2.rd",
    f"blockmac {_SMALL}.ro",
    f"blockmac {_LONG}+e2m0fn.ru",
    f"blockmac {_LONG}+e2m0fn.sr1 step=2",
)
"""Units whose inputs are all computed in fractions too: blocks of 2 and 4 elements."""

OCP = (
    "blockdot8 mxfp8_e4m3*mxfp8_e5m2+fp32.rn",
    "blockdot4 mxfp6_e3m2*mxfp6_e2m3=bf16.sr4",
    "blockdot16 mxint8*mxfp4+fp16.rz.sat",
    "blockdot8 nvfp4*nvfp4+fp32.rn",
    "blockmac mxfp4*mxfp4+fp32.rn step=8",
    "blockmac nvfp4*block(e4m3fn,16,e8m0fnu,floor)+bf16.rd step=4",
    "blockmac block(e2m1fn,4,e3m0fnu,floor)*block(e2m3fn,4,e3m0fnu,floor)+exact=fp16.rn carry=5",
    "blockquantize bf16>mxfp8_e4m3.sr3",
    "blockquantize fp32>mxint8.rn",
    "blockquantize fxp4.4>mxfp6_e2m3.ra",
    "blockquantize fp16>msfp12.rn",
    "blockquantize bf16>nvfp4.rn",
    "blockquantize fp32>nvfp4.sr8",
    "blockquantize fp16>nvfp4.rn",
    "blockdequantize mxfp6_e3m2>fp16.sr2",
    "blockdequantize nvfp4>bf16.rn",
)


@pytest.mark.slow
@pytest.mark.parametrize("text", TOYS)
def test_rtl_of_toy_blocks_matches_golden(text):
    spec = UnitSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=18, count=1 << 17)
    assert not failed
    assert checks


@pytest.mark.parametrize("text", TOYS)
def test_golden_of_toy_blocks_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=8, count=256)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.sampled(9, 9)
@pytest.mark.parametrize("text", EVERY)
def test_models_of_toy_blocks_agree_on_every_input(text):
    spec = UnitSpec.parse(text)
    for checks, failed in (exact_mismatches(spec, most_bits=20), rtl_mismatches({spec: spec}, most_bits=20)):
        assert not failed
        assert checks >= 1 << 13


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize("text", OCP)
def test_rtl_of_blocks_matches_golden(text):
    spec = UnitSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=4, count=10**6 if EXHAUSTIVE else 1 << 15)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.parametrize("text", OCP)
def test_golden_of_blocks_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=4, count=512)
    assert not failed
    assert checks


@pytest.mark.slow
def test_steps_of_block_mac_match_golden_in_turns():
    unit = BlockMac(a=TOY, b=TOY, acc="e4m3", step=1, interleave=2, rounding="sr2", random="lfsr8")
    assert not run(unit, limit=1 << 10).failed


@pytest.mark.slow
@pytest.mark.parametrize("unit", [BlockQuantize(a="e3m1", o=TOY), BlockDequantize(a=TOY, o="e3m1", rounding="sr2")])
def test_bench_checks_conversions_of_blocks(unit):
    assert not run(unit, limit=1 << 10).failed


@pytest.mark.slow
def test_bench_detects_ignored_scale():
    class Unscaled(BlockDot):
        """Takes one scale for both blocks."""

        def elaborate(self, platform):
            self.b_scale = self.a_scale
            return super().elaborate(platform)

    assert run(Unscaled(k=2, a=TOY, b=TOY, c="e4m3"), limit=1 << 10).failed


def test_vectors_of_scales_have_products_near_one_and_specials():
    unit = BlockDot(k=2, a="mxfp8_e4m3", b="mxfp8_e5m2", c="fp32")
    inputs, rng = Ports.inputs_of(unit), np.random.default_rng(0)
    assert list(inputs.operands) == ["a0", "a1", "b0", "b1", "c"]
    codes = inputs.place({name: np.zeros(1 << 12, dtype=np.uint64) for name in inputs.operands}, rng)
    product = codes["a_scale"].astype(int) + codes["b_scale"].astype(int) - 254
    assert 0.25 < (product == 0).mean() < 0.7
    assert len(np.unique(codes["a_scale"])) > 200
    assert {0, 255} <= set(codes["b_scale"].tolist())


def test_vectors_of_conversions_have_blocks_of_zeros_specials_and_ties():
    text = "blockquantize bf16>block(e2m1fn,4,e8m0fnu,floor)"
    unit = component(UnitSpec.parse(text))
    corners = corner_cases(unit)
    codes = sampled(Ports.inputs_of(unit), [unit.spec.o.element], 1 << 12, np.random.default_rng(0), 1, corners)
    numbers = np.stack([codes[name] for name in unit.inputs], -1)
    elements, scales = golden.blockquantize(torch.from_numpy(numbers.astype(np.int64)), a="bf16", o=unit.spec.o)
    magnitudes = elements.numpy() & 7
    assert ((numbers & 0x7FFF) == 0).all(-1).sum() > 16
    assert (scales == 255).sum() > 16
    assert (scales == 0).sum() > 16
    assert (magnitudes == 7).all(-1).sum() > 32
    values = np.abs((numbers << np.uint64(16)).astype(np.uint32).view(np.float32))
    ties = np.ldexp(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]), scales.numpy()[:, np.newaxis] - 127)
    assert (values[:, :, np.newaxis] == ties[:, np.newaxis]).any((1, 2)).sum() > 128


def test_vectors_of_block_dots_have_blocks_of_zeros_and_of_largest_products():
    unit = BlockDot(k=4, a="mxfp8_e5m2", b="mxfp4", c="fp32")
    rows = sampled(Ports.inputs_of(unit), [unit.spec.o], 1 << 12, np.random.default_rng(0), 1, corner_cases(unit))
    first, second = (np.stack([rows[f"{name}{place}"] for place in range(4)], -1) for name in "ab")
    assert ((first & 0x7F) == 0).all(-1).sum() > 16
    assert ((second & 7) == 0).all(-1).sum() > 16
    assert (((first & 0x7F) == 0x7B).all(-1) & ((second & 7) == 7).all(-1)).sum() > 16


def test_block_units_have_documented_ports():
    dot = BlockDot(k=2, a="mxfp4", b="mxint8", c="bf16")
    assert list(map(str, dot.inputs.values())) == [*["e2m1fn"] * 2, *["fxp2.6"] * 2, "e8m0fnu", "e8m0fnu", "bf16"]
    assert list(dot.inputs) == ["a0", "a1", "b0", "b1", "a_scale", "b_scale", "c"]
    mac = BlockMac(a="mxfp4", b="mxfp4", acc="fp32")
    assert (mac.spec.k, len(mac.a), mac.latency) == (32, 32, 1)
    quantize = BlockQuantize(a="bf16", o="mxfp4")
    assert (len(quantize.a), len(quantize.o), list(quantize.outputs)[-1]) == (32, 32, "o_scale")
    assert len(BlockDequantize(a="nvfp4", o="fp32").o) == 16


@pytest.mark.parametrize(
    ("make", "kind", "word"),
    [
        (lambda: BlockQuantize(a="bf16", o="mxfp4", saturate=True), ValueError, "saturate"),
        (lambda: BlockQuantize(a="bf16", o="bf16"), ValueError, "block"),
        (lambda: BlockDot(k=3, a="mxfp4", b="mxfp4"), ValueError, "divide"),
        (lambda: BlockDot(k=4, a="mxfp4", b="nvfp4"), ValueError, "length"),
        (lambda: BlockMac(a="mxfp4", b="mxfp4", acc="fp32", step=5), ValueError, "divide"),
    ],
)
def test_block_units_reject_parameters(make, kind, word):
    with pytest.raises(kind, match=word):
        make()
