"""Units of general operations of IEEE 754: class of a number, and product with a power of two."""

import numpy as np
import pytest
import torch

from halfulp import golden, unit
from halfulp.golden import exact
from halfulp.hdl.formats import parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.classify import CLASSES, ClassifySpec
from tests.every_unit import exact_mismatches, rtl_mismatches

FORMATS = ("e5m2", "e4m3fn", "e4m3fnuz", "e3m0", "e5m2-ftz", "posit8", "takum8", "fxp4.4", "ufxp4.4", "nf4")


@pytest.mark.parametrize("fmt", FORMATS)
def test_classify_gives_every_class_of_format(fmt):
    codes = range(1 << parse(fmt).width)
    found = golden.classify(torch.tensor(codes), a=fmt).tolist()
    assert found == [exact.classify(code, a=parse(fmt)) for code in codes]
    assert {bits.bit_length() - 1 for bits in found} == set(ClassifySpec(a=parse(fmt)).classes)


def test_classify_has_order_of_riscv():
    codes = [0xFC00, 0xBC00, 0x8001, 0x8000, 0x0000, 0x0001, 0x3C00, 0x7C00, 0x7C01, 0x7E00]
    found = golden.classify(torch.tensor(codes), a="fp16")
    assert found.tolist() == [1 << bit for bit in range(len(CLASSES))]


@pytest.mark.parametrize("suffix", [".rz", ".sat", ".port"])
def test_classify_rejects_rounding(suffix):
    with pytest.raises(ValueError, match="rounds nothing"):
        unit(f"classify fp16{suffix}")


@pytest.mark.parametrize(("fmt", "dtype"), [("fp32", np.uint32), ("fp64", np.uint64)])
def test_scaleb_matches_ldexp(fmt, dtype):
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, np.iinfo(dtype).max, 1 << 12, dtype=dtype)
    powers = rng.integers(-300, 300, 1 << 12)
    wide = torch.tensor(numbers.astype(np.uint64).view(np.int64))
    found = golden.scaleb(wide, torch.tensor(powers & 0xFFF), a=fmt, b="int12").numpy().view(np.uint64).astype(dtype)
    real = np.float32 if fmt == "fp32" else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.ldexp(numbers.view(real), powers.astype(np.int32))
    is_number = ~np.isnan(expected)
    assert np.array_equal(found[is_number], expected.view(dtype)[is_number])
    assert is_number.sum() > 4000


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("rounding", ["rn", "ra", "rz", "ru", "rd", "rh", "ro", "sr5"])
@pytest.mark.parametrize(
    "text", ["e5m2,int8", "e4m3fn,uint4=e5m2", "fp64,int32", "takum16,int12=bf16", "fxp4.4-wrap,int8"]
)
def test_scaleb_golden_matches_exact(text, rounding):
    for suffix in (".sat", " flags=before") if "fp64" in text else ("", ".sat"):
        checks, failed = exact_mismatches(unit(f"scaleb {text}.{rounding}{suffix}").spec, most_bits=12, count=1 << 11)
        assert not failed
        assert checks


FAR = (
    "fxp4096.-4088,int32=fxp-4088.4096",
    "posit16e4,int32=takum16",
    "takum12,int32=fxp-4088.4096",
    "fxp-4088.4096,int32=fxp4096.-4088-wrap",
    "fxp4096.-4088-wrap,int32=takum8",
    "posit16e4,uint32=e11m4",
)
"""Operands and results with large exponents."""


def powers_at_limits(made):
    """Yield numbers at the ends of the format, and powers that move them to the ends of the result format."""
    a, o = made.spec.a, made.spec.o
    half = 1 << (a.width - 1)
    ends = [*range(6), *range(half - 4, half + 4), *range(2 * half - 4, 2 * half)]
    sizes = [floor_log2(size) for fmt in (a, o) for size in (fmt.smallest, max(fmt.largest, -fmt.lowest))]
    near = {x - y + more for x in sizes for y in sizes for more in range(-3, 4)}
    near |= {1 << 13, 1 << 14, (1 << 31) - 1, 1 << 31}
    powers = sorted({sign * power & 0xFFFF_FFFF for power in near for sign in (1, -1)})
    columns = np.meshgrid(np.array(ends, dtype=np.uint64), np.array(powers, dtype=np.uint64), indexing="ij")
    yield dict(zip("ab", (column.ravel() for column in columns), strict=True))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", FAR)
def test_scaleb_of_large_exponents_matches_exact(text):
    checks, failed = exact_mismatches(unit(f"scaleb {text}.ra").spec, choose=powers_at_limits)
    assert not failed
    assert checks > 1000


# Verilator does not read a shift of 16,000 bits.
@pytest.mark.slow
@pytest.mark.parametrize("text", [text for text in FAR if not text.endswith("-wrap")])
def test_scaleb_of_large_exponents_has_bits_of_golden_model(text):
    found = [unit(f"scaleb {text}.{rounding}").spec for rounding in ("rn", "ra", "ru", "ro")]
    checks, failed = rtl_mismatches(dict(zip(found, found, strict=True)), choose=powers_at_limits)
    assert not failed
    assert checks > 4000


@pytest.mark.parametrize(
    ("text", "error"),
    [("fp16,fp16", "integer"), ("fp16,fxp4.4", "integer"), ("fp16,int40", "32 bits"), ("fp16,int8.exact", "exact")],
)
def test_scaleb_rejects_invalid_powers_and_exact_rounding(text, error):
    with pytest.raises(ValueError, match=error):
        unit(f"scaleb {text}")
