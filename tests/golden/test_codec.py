"""Codes on tensors: shapes, types and strides of operands, and conversions from and to real numbers."""

import math
import random

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import (
    E4M3FN,
    E5M2,
    E6M5,
    FP16,
    FP32,
    FP64,
    RN,
    RO,
    RZ,
    Rounding,
    parse,
    stochastic,
)
from tests.golden_against_exact import aimed


def test_operands_broadcast():
    x, y = torch.arange(256), torch.arange(0, 256, 7)
    grid = golden.mul(x[:, None], y[None, :], a=E5M2, b=E5M2, o=E5M2)
    assert grid.shape == (256, 37)
    flat = golden.mul(x.repeat_interleave(37), y.repeat(256), a=E5M2, b=E5M2, o=E5M2)
    assert torch.equal(grid.flatten(), flat)
    start = torch.arange(4096).reshape(64, 64)
    step = golden.mac(x[:3, None, None], y[0], start, a=E5M2, b=E5M2, acc=E6M5)
    assert step.shape == (3, 64, 64)
    assert golden.convert(torch.tensor(0x3C), a=E5M2, o=FP32).item() == 0x3F800000
    assert golden.convert(torch.zeros(0, 3, dtype=torch.uint8), a=E5M2, o=FP32).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integer_dtypes_are_accepted(dtype):
    codes = torch.arange(128).to(dtype)
    found = golden.add(codes, codes.flip(0), a=E5M2, b=E5M2, o=FP16)
    assert found.dtype == torch.int64
    assert torch.equal(found, golden.add(torch.arange(128), torch.arange(127, -1, -1), a=E5M2, b=E5M2, o=FP16))


def test_flags_accept_bools_and_bits():
    x, y = torch.arange(64, 128), torch.arange(128, 64, -1)
    formats = {"a": E5M2, "b": E5M2, "o": E6M5}
    difference = golden.add(x, y, 1, **formats)
    assert not torch.equal(difference, golden.add(x, y, **formats))
    for subtract in (True, torch.ones(64, dtype=torch.bool), torch.ones(1, dtype=torch.uint8)):
        assert torch.equal(golden.add(x, y, subtract, **formats), difference)
    load, clear = x % 7 == 0, x % 5 == 0
    formats = {"a": E5M2, "b": E5M2, "acc": E6M5}
    bits = golden.mac_sequence(x, y, x * 16, load.to(torch.int64), clear.to(torch.int8), **formats)
    assert torch.equal(golden.mac_sequence(x, y, x * 16, load, clear, **formats), bits)


def test_strided_operands_are_accepted():
    codes = torch.arange(512).reshape(2, 256)[:, ::2].T
    assert torch.equal(
        golden.convert(codes % 256, a=E5M2, o=FP16),
        golden.convert((codes % 256).contiguous(), a=E5M2, o=FP16),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_encode_and_decode_real_floats(dtype):
    values = torch.tensor([0.0, -0.0, 1.5, -0.3, 1e-7, float("inf"), -float("inf"), float("nan"), 6e4], dtype=dtype)
    codes = golden.encode(values, FP64)
    assert torch.equal(golden.decode(codes, FP64).nan_to_num(), values.to(torch.float64).nan_to_num())
    assert golden.encode(values, E5M2)[:3].tolist() == [0, 0x80, 0x3E]
    assert golden.encode(torch.tensor([448.0, 500.0]), E4M3FN, RN, saturate=True).tolist() == [0x7E, 0x7E]
    assert golden.encode(torch.tensor([3, -1]), E5M2, RO).tolist() == [0x42, 0xBC]
    words = torch.tensor([0, 1])
    assert golden.encode(torch.tensor([1.125, 1.125]), E5M2, stochastic(1), random=words).tolist() == [0x3C, 0x3D]


@pytest.mark.parametrize(
    "values",
    [
        1.5,
        [1.5, -2],
        3,
        np.float32(1.5),
        np.array([[1.5, 2.0]], dtype=np.float16),
        np.arange(4)[::-2],
        np.array([1.5], dtype=">f8"),
        (1.5, 0.1),
    ],
)
def test_encode_takes_numbers_and_arrays(values):
    expected = golden.encode(torch.from_numpy(np.array(values, dtype=np.float64)), FP16)
    assert torch.equal(golden.encode(values, FP16), expected)


@pytest.mark.parametrize("values", [[[1, 2], [3]], [[1, 2], 3]])
def test_encode_rejects_ragged_sequences(values):
    with pytest.raises(ValueError, match="one length"):
        golden.encode(values, "fp16")


@pytest.mark.slow
@pytest.mark.filterwarnings("error:Dynamo")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_encode_and_gemm_match_eager_bits_in_compiled_functions(backend):
    """Graphs break at these functions, so that compilers trace no kernel and no cache."""

    def run(x, y):
        codes = golden.encode(1.5 * x, "e5m2", "sr4", torch.full(x.shape, 5))
        sums = golden.gemm(codes, golden.encode(y, "e5m2"), "e5m2*e5m2+e6m5.sr10@lfsr16")
        return golden.decode(golden.convert(sums, a="e6m5", o="fp16"), "fp16") + 1

    torch._dynamo.reset()
    compiled = torch.compile(run, backend=backend)
    for size in (8, 8, 64, 64):
        x, y = torch.randn(2, size, size, generator=torch.Generator().manual_seed(size))
        for _ in range(2):
            assert torch.equal(compiled(x, y), run(x, y))


@pytest.mark.parametrize("values", [True, "1.5", None, 1j, [1.5, "x"], np.array([True]), np.array(["a"]), 2**70])
def test_encode_rejects_other_values(values):
    with pytest.raises(TypeError, match="real numbers"):
        golden.encode(values, FP16)


@pytest.mark.parametrize("fmt", ["posit8", "posit16", "posit32", "int8", "fxp4.4", "uint32-wrap", "fxp-20.70"])
def test_encode_and_decode_real_fixed_and_posits(fmt):
    fmt = parse(fmt)
    rng = random.Random(str(fmt))
    codes = aimed(rng, fmt, 300, 0)
    real = golden.decode(torch.tensor(codes), fmt)
    for code, number in zip(codes, real.tolist(), strict=True):
        assert number == fmt.decode(code) or (math.isnan(number) and code == fmt.nan_code)
    assert golden.encode(real, fmt).tolist() == codes
    values = torch.tensor([0.3, -1.5, math.nan, math.inf, -math.inf, -0.0, 1e30, -1e30, 1e-30], dtype=torch.float64)
    for saturate in (False, True):
        found = golden.encode(values, fmt, "ru", saturate=saturate)
        assert found.tolist() == [fmt.encode(value, "ru", saturate=saturate) for value in values.tolist()]


def test_texts_equal_format_and_rounding_objects():
    codes = torch.arange(128)
    texts = golden.mac(
        codes, codes, codes, a="e5m2", b="e4m3fn", acc="e6m5", product="fp16", product_rounding="rz", rounding="rd"
    )
    named = {"a": E5M2, "b": E4M3FN, "acc": E6M5, "product": FP16, "product_rounding": RZ}
    assert torch.equal(texts, golden.mac(codes, codes, codes, **named, rounding=Rounding("rd")))
    assert torch.equal(
        golden.encode(golden.decode(codes, "e5m2"), "e4m3fn", "ro"),
        golden.convert(codes, a=E5M2, o=E4M3FN, rounding=RO),
    )
    assert E5M2.encode(0.3, "rz") == E5M2.encode(0.3, RZ)
