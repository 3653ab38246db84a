"""Steps of matrix units against mmasim, whose authors compared it with ten GPUs bit for bit."""

import pytest
import torch
from mmasim.arithmetic import fdpa
from mmasim.arithmetic.ftz_mul_add import MMA_FTZ_MUL_ADD

from halfulp import golden
from halfulp.golden import matrix_unit
from halfulp.golden.values import decoded
from halfulp.hdl.specs.mma import MATRIX_UNITS
from tests.settings import EXHAUSTIVE

COUNT = 100_000 if EXHAUSTIVE else 1_000

TYPES = {
    "fp16": torch.float16,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "e8m0fnu": torch.float8_e8m0fnu,
}

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

UNITS = {str(spec): spec for spec in MATRIX_UNITS.values()}


def in_torch(codes, fmt):
    """Codes as a tensor of torch's type; tf32 as binary32, and floats of 4 and 6 bits as numbers in fp16."""
    if str(fmt) == "tf32":
        return (codes << 13).to(torch.int32).view(torch.float32)
    if str(fmt) not in TYPES:
        return decoded(codes, fmt, torch.float64).half()
    dtype = TYPES[str(fmt)]
    return codes.to(INTEGERS[dtype.itemsize]).view(dtype)


def oracle(spec, x, y, start, scales):
    """Codes of mmasim."""
    a, b, c = (in_torch(codes, fmt) for codes, fmt in zip((x, y, start), (*spec.elements, spec.o), strict=True))
    lowest = [None if str(fmt) in TYPES or str(fmt) == "tf32" else fmt.emin for fmt in spec.elements]
    rounding = "RNE-FP16" if str(spec.o) == "fp16" else "RZ-E8M13" if spec.through else "RZ-FP32"
    if spec.kind == "exact":
        made = fdpa.e_fdpa(a, b, c)
    elif spec.kind == "pairwise":
        made = MMA_FTZ_MUL_ADD(spec.fraction).dpa(a, b, c)
    elif spec.kind == "staged":
        made = (fdpa.gtr_fdpa if spec.halves == 2 else fdpa.tr_fdpa)(a, b, c, 24, 31, "RNE-FP32")
    elif not scales:
        made = fdpa.t_fdpa(a, b, c, spec.fraction, rounding, spec.zero, *lowest)
    else:
        signed = str(spec.a.scale) != "e8m0fnu"
        factors = [in_torch(codes & 127 if signed else codes, spec.a.scale) for codes in scales]
        if spec.group > 1:
            made = fdpa.gst_fdpa(a, b, c, *factors, spec.group, spec.fraction, rounding, spec.zero)
        else:
            made = fdpa.st_fdpa(a, b, c, *factors, spec.fraction, rounding, spec.zero, *lowest)
    words = made.view(INTEGERS[made.itemsize]).to(torch.int64)
    return words & ((1 << spec.o.width) - 1)


def codes_of(fmt, shape, kind, generator):
    """Random codes of a kind."""
    codes = torch.randint(0, 1 << fmt.width, shape, generator=generator)
    if kind == "normal":
        codes = golden.encode(torch.randn(shape, generator=generator), fmt)
    if kind == "zeros":
        zero = torch.randint(0, 2, shape, generator=generator) * (1 << fmt.width - 1) * fmt.has_negative_zero
        codes = torch.where(torch.rand(shape, generator=generator) < 0.7, zero, codes)
    if kind == "subnormal":
        codes = codes & ((1 << fmt.width - 1) | (1 << fmt.man + 1) - 1)
    if kind == "special":
        return codes
    return torch.where(decoded(codes, fmt, torch.float64).isfinite(), codes, 0)


def scales_of(block, count, kind, generator):
    if str(block.scale) != "e8m0fnu":
        codes = torch.randint(0, 256, count, generator=generator)
        return codes if kind == "special" else torch.where(codes & 127 == 127, 0, codes)
    low, high = {"special": (0, 256), "wide": (0, 255), "cancelling": (0, 255)}.get(kind, (110, 140))
    return torch.randint(low, high, count, generator=generator)


@pytest.mark.sampled(28, 2)
@pytest.mark.parametrize("kind", ["normal", "wide", "subnormal", "zeros", "cancelling", "special"])
@pytest.mark.parametrize("text", UNITS)
def test_step_matches_mmasim(text, kind, monkeypatch):
    spec, generator = UNITS[text], torch.Generator().manual_seed(len(text))
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    x, y = (codes_of(fmt, (COUNT, spec.k), kind, generator) for fmt in spec.elements)
    start = codes_of(spec.o, (COUNT,), kind, generator)
    if kind == "cancelling":
        # Pairs of opposite products, and one that is left over.
        negative = x[:, 0::2] ^ 1 << spec.elements[0].width - 1
        finite = decoded(negative, spec.elements[0], torch.float64).isfinite()
        x[:, 1::2], y[:, 1::2] = torch.where(finite, negative, 0), y[:, 0::2]
        x[:, 0] = 1
    scales = []
    if spec.a.shares_scale:
        scales = [scales_of(block, (COUNT, spec.k // block.length), kind, generator) for block in (spec.a, spec.b)]
    wanted = oracle(spec, x, y, start, scales)
    rows, columns = ([part.unsqueeze(1) for part in (codes, *scales[at : at + 1])] for at, codes in enumerate((x, y)))
    own = {
        "torch": matrix_unit.step(spec, x, y, start, *scales),
        "kernel": matrix_unit._chain(spec, rows, columns, start.reshape(-1, 1, 1)).reshape(-1),
    }
    # No NaN code is published for exact and pairwise sums. With two halves mmasim drops an accumulator that is infinite
    # or NaN as if it were small.
    lost = torch.zeros_like(start, dtype=torch.bool)
    if spec.kind in ("exact", "pairwise"):
        lost = decoded(wanted, spec.o, torch.float64).isnan() & decoded(own["torch"], spec.o, torch.float64).isnan()
    elif spec.halves == 2:
        lost = ~decoded(start, spec.o, torch.float64).isfinite()
    for name, codes in own.items():
        assert torch.equal(codes[~lost], wanted[~lost]), name
        assert bool(decoded(codes[lost], spec.o, torch.float64).isfinite().any()) is False
