"""Codes in the types of torch, numpy and ml_dtypes: all codes of each type, as operands, results and real numbers."""

import ml_dtypes
import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.check import TORCH_TYPES
from halfulp.hdl.formats import parse

FLOATS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float16", "bfloat16")
"""Types that torch, and numpy or ml_dtypes, have under one name."""


def all_codes(name):
    """Codes of a format, as int64, as a tensor of torch's type and as an array."""
    width = parse(name).width
    codes = torch.arange(1 << width)
    words = codes.to(torch.uint8 if width == 8 else torch.int16)
    bits = codes.numpy().astype(f"u{width // 8}")
    dtype = np.float16 if name == "float16" else getattr(ml_dtypes, name)
    return codes, words.view(getattr(torch, name)), bits.view(dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_codes_are_taken_in_the_types_of_other_libraries(name):
    codes, tensor, array = all_codes(name)
    numbers = golden.decode(codes, name)
    finite = numbers.isfinite()
    for given in (tensor, array):
        assert torch.equal(golden.decode(given, name).nan_to_num(3), numbers.nan_to_num(3))
        assert torch.equal(golden.encode(given, name)[finite], codes[finite])
        assert torch.equal(golden.mul(given, given, a=name, b=name), golden.mul(codes, codes, a=name, b=name))
        assert torch.equal(golden.convert(given, a=name, o="e3m4"), golden.convert(codes, a=name, o="e3m4"))


@pytest.mark.parametrize("name", [*TORCH_TYPES.values(), "int8", "uint8", "int16", "int32"])
def test_codes_become_tensors_of_torch(name):
    fmt = parse(name)
    codes = torch.arange(1 << fmt.width) if fmt.width <= 16 else torch.randint(0, 1 << min(fmt.width, 62), (1000,))
    made = golden.to_torch(codes, fmt)
    assert made.dtype == getattr(torch, name)
    if made.dtype.is_floating_point:
        assert torch.equal(made.double().nan_to_num(5), golden.decode(codes, fmt).nan_to_num(5))
        assert torch.equal(golden.decode(made, fmt).nan_to_num(5), golden.decode(codes, fmt).nan_to_num(5))
    else:
        assert torch.equal(made.double(), golden.decode(codes, fmt))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (torch.float8_e4m3fn, "e4m3fn"),
        (torch.bfloat16, "bf16"),
        (torch.half, "fp16"),
        (torch.int8, "int8"),
        (torch.float8_e8m0fnu, "e8m0fnu"),
        (np.float32, "fp32"),
        (np.dtype("float16"), "fp16"),
        (np.uint8, "uint8"),
        (ml_dtypes.float8_e5m2, "e5m2"),
        (np.dtype(ml_dtypes.float8_e4m3b11fnuz), "e4m3b11fnuz"),
        (ml_dtypes.int4, "int4"),
        (ml_dtypes.float4_e2m1fn, "e2m1fn"),
        ("fp8", "e4m3fn"),
        ("fp8_e5m2", "e5m2"),
        ("fp4", "e2m1fn"),
        ("E4M3", "e4m3fn"),
        ("E3M2", "e3m2fn"),
        ("half", "fp16"),
        ("binary16", "fp16"),
    ],
)
def test_types_and_common_names_are_formats(given, name):
    assert str(parse(given)) == name


@pytest.mark.parametrize("given", [torch.complex64, np.bool_, 3, None, list])
def test_other_types_are_no_formats(given):
    with pytest.raises((TypeError, ValueError), match="format"):
        parse(given)


def test_products_of_arrays_are_those_of_tensors():
    torch.manual_seed(0)
    a, b = torch.randn(5, 9), torch.randn(9, 4)
    for mac in ("e4m3fn*e4m3fn+fp32", "mxfp8_e4m3*mxfp8_e4m3+fp32", "h100.wgmma.e4m3"):
        assert torch.equal(golden.gemm(a.numpy(), b.numpy(), mac), golden.gemm(a, b, mac))
    narrow = a.to(torch.float8_e4m3fn), b.numpy().astype(ml_dtypes.float8_e4m3fn)
    assert torch.equal(golden.gemm(*narrow, "e4m3fn*e4m3fn+fp32"), golden.gemm(a, b, "e4m3fn*e4m3fn+fp32"))
    codes = golden.encode(a, "e4m3fn"), golden.encode(b, "e4m3fn")
    arrays = [x.numpy().astype(np.uint8) for x in codes]
    assert torch.equal(golden.gemm(*arrays, "e4m3fn*e4m3fn+fp32"), golden.gemm(*codes, "e4m3fn*e4m3fn+fp32"))
    for values, fmt in ((np.array([-8, 7], dtype=ml_dtypes.int4), "int4"), (np.array([0.5, -6]), "e2m1fn")):
        numbers = golden.decode(golden.encode(values, fmt), fmt)
        assert numbers.tolist() == values.astype(np.float64).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: golden.decode(torch.ones(2), "e4m3fn"), "encode\\(\\) converts real numbers"),
        (lambda: golden.mul(*[torch.ones(2, dtype=torch.bfloat16)] * 2, a="fp16", b="fp16"), "not torch.bfloat16"),
        (lambda: golden.to_torch(torch.tensor([1]), "e3m4"), "torch has no type for e3m4"),
        (lambda: golden.to_torch(torch.tensor([300]), "e4m3fn"), "codes of 8 bits"),
    ],
)
def test_other_types_of_codes_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("name", FLOATS)
def test_quantize_rounds_as_types_of_torch(name):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    rounded = golden.quantize(x, name)
    assert rounded.dtype == torch.float32
    assert rounded.equal(x.to(getattr(torch, name)).float())


def test_quantize_returns_numbers_of_encode_and_of_blocks():
    x = torch.linspace(-300, 300, 192, dtype=torch.float64).reshape(3, 64).requires_grad_()
    words = torch.arange(64) * 4
    stochastic = golden.quantize(x, "e4m3", "sr8", words, saturate=True)
    assert stochastic.equal(golden.decode(golden.encode(x, "e4m3", "sr8", words, True), "e4m3").float())
    assert stochastic.abs().max() == 240
    assert golden.quantize([1 + 2.0**-52], "fp64").tolist() == [1 + 2.0**-52]
    for dim in (0, 1):
        blocks = golden.dequantize_blocks(golden.quantize_blocks(x.detach(), "mxfp4", dim=dim), "mxfp4", dim=dim)
        assert golden.quantize(x, "mxfp4", dim=dim).equal(blocks)
    assert golden.quantize(x.detach().numpy(), "mxfp4").equal(golden.quantize(x, "mxfp4"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fmt": "mxfp4", "saturate": True}, "elements of mxfp4 saturate by definition"),
        ({"fmt": "e5m2", "dim": 0}, "e5m2 is a format of single numbers"),
        ({"fmt": "e5n2"}, "did you mean e5m2"),
        ({"fmt": "e5m2", "rounding": "sr4"}, "random"),
    ],
)
def test_quantize_rejects_options_without_effect(options, message):
    with pytest.raises(ValueError, match=message):
        golden.quantize(torch.ones(2), **options)
