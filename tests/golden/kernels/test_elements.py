"""Kernels of conversions between formats against tensor operations."""

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.codec import round_and_pack, unpack
from halfulp.golden.kernels import elements
from halfulp.hdl.formats import FP32, FP64, OFF, SAT, SATFINITE, Rounding, Saturation, parse
from tests.kernel_products import (
    MODES,
    _kernels,  # noqa: F401  # a fixture for every test
)
from tests.settings import EXHAUSTIVE

TARGETS = [
    "e5m2",
    "fp16",
    "bf16",
    "e4m3fn",
    "e4m3fnuz",
    "binary8p3",
    "e3m2fn",
    "e4m0",
    "fp16-ftz",
    "e8m23",
    "fxp4.4",
    "posit8",
    "posit16",
]


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("target", TARGETS if EXHAUSTIVE else TARGETS[:1] + TARGETS[5:6] + TARGETS[10:12])
@pytest.mark.parametrize("source", [torch.float32, torch.float64])
def test_encode_kernel_matches_tensors(target, source):
    """Arbitrary words, and numbers at and next to the codes and midpoints of the target format."""
    o, rng = parse(target), np.random.default_rng(3)
    integer = torch.int32 if source == torch.float32 else torch.int64
    bits = torch.iinfo(integer).bits
    words = torch.from_numpy(rng.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 3000)).to(integer).view(source)
    nearby = golden.decode(torch.from_numpy(rng.integers(0, 1 << o.width, 3000)), o)
    factors = [1, 1.5, 1 + 2.0**-o.precision, 1 + 2.0 ** -(o.precision + 1), 1 - 2.0**-20, 1 + 2.0**-20, 0.25, 2.0**-30]
    values = torch.cat([words, (nearby * torch.from_numpy(rng.choice(factors, 3000))).to(source)])
    raw = unpack(values.double().view(torch.int64), FP64)
    for mode in MODES if EXHAUSTIVE else ("rn", "ro", "sr10"):
        rounding = Rounding.parse(mode)
        noise = torch.from_numpy(rng.integers(0, 1 << rounding.bits, 6000)) if rounding.bits else None
        for saturate in Saturation:
            found = golden.encode(values, o, mode, noise, saturate)
            assert torch.equal(found, round_and_pack(raw, o, rounding, saturate, noise)), (target, mode, saturate)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["posit8", "e4m3fnuz", "binary8p4", "e3m2fn-ftz"])
def test_encode_by_upper_half_matches_tensors(target):
    """Numbers at, next to and between the codes; infinities, NaN with any payload, and subnormal numbers."""
    o, rng = parse(target), np.random.default_rng(4)
    words = torch.from_numpy(rng.integers(-(1 << 31), 1 << 31, elements.LONG)).to(torch.int32)
    payloads = torch.tensor([1, 0x7F800000, 0x7F800001, -0x7FFFFF, -0x80000000, -0x7FFFFFFF], dtype=torch.int32)
    nearby = golden.decode(torch.arange(1 << o.width), o).float()
    nearby = [nearby * factor for factor in (1, 1.5, 1 + 2.0**-o.precision, 1 - 2.0**-20, 1 + 2.0**-20, 0.25)]
    values = torch.cat([words.view(torch.float32), payloads.view(torch.float32), *nearby])
    raw = unpack(values.double().view(torch.int64), FP64)
    for mode, saturate in (("rn", OFF), ("ra", SAT), ("ru", OFF), ("ro", OFF), ("rn", SATFINITE)):
        expected = round_and_pack(raw, o, Rounding.parse(mode), saturate, None)
        assert torch.equal(golden.encode(values, o, mode, None, saturate), expected), mode


def test_convert_tables_match_tensors():
    every = torch.arange(1 << 8).repeat(3)
    for a, o in (("e5m2", "fp32"), ("posit8", "fxp4.4"), ("e4m3fn", "posit16")):
        expected = round_and_pack(unpack(every, parse(a)), parse(o), Rounding.parse("rd"), OFF, None)
        assert torch.equal(golden.convert(every, a=a, o=o, rounding="rd"), expected)
    wide = torch.arange(1000) * 4_000_037
    expected = round_and_pack(unpack(wide, FP32), parse("e5m2"), Rounding.parse("ru"), SAT, None)
    assert torch.equal(golden.convert(wide, a="fp32", o="e5m2", rounding="ru", saturate=True), expected)
