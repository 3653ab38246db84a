"""Codes in the types of torch, numpy and ml_dtypes: all codes of each type, as operands, results and real numbers."""

import re

import ml_dtypes
import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.dtypes import PACKED, TORCH_TYPES
from halfulp.hdl.formats import Float, parse

OF_ML_DTYPES = [name for name, kind in vars(ml_dtypes).items() if re.fullmatch(r"(b?float|u?int)\d.*", name)]
"""Names of all types of real numbers and of integers of ml_dtypes."""

SAME = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float16", "bfloat16")
"""Types in which torch, and numpy or ml_dtypes, round numbers."""

SIGNED = ("int8", "int16", *(name for name in OF_ML_DTYPES if name.startswith("int")))


def all_codes(name):
    """All codes of a type, as int64; those of types of 32 and 64 bits are random."""
    width = parse(name).width
    return torch.arange(1 << width) if width <= 16 else torch.randint(-(1 << width - 1), (1 << width - 1) - 1, (4096,))


def tensor_in(name, codes):
    """Codes in the type of torch with this name; pairs have the first one in the low bits."""
    dtype = getattr(torch, name)
    if dtype == PACKED:
        return (codes[0::2] | codes[1::2] << 4).to(torch.uint8).view(dtype)
    return codes.to({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]).view(dtype)


def array_in(name, codes):
    """Codes in the type of numpy or ml_dtypes with this name."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return codes.numpy().astype(f"u{dtype.itemsize}").view(dtype)


GIVEN = [("torch", name) for name in TORCH_TYPES.values()]
GIVEN += [("numpy", name) for name in ("float16", "float32", "float64", ">f2", ">f8")]
GIVEN += [("ml_dtypes", name) for name in OF_ML_DTYPES if "float" in name]


def in_every_type(package, name):
    """Format, codes, the same in a type, and their numbers by the library of this type."""
    fmt = parse({">f2": "fp16", ">f8": "fp64"}.get(name, name))
    codes = all_codes(fmt) & ((1 << fmt.width) - 1 if fmt.width < 64 else -1)
    if package == "torch":
        given = tensor_in(name, codes)
        return fmt, codes, given, FP4 if given.dtype == PACKED else given.double()
    own = {">f2": "float16", ">f8": "float64"}.get(name, name)
    given = array_in(own, codes)
    given = given.astype(name) if name != own else given
    with np.errstate(invalid="ignore"):
        return fmt, codes, given, torch.tensor(given.astype(np.float64))


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
"""Numbers of E2M1 by their codes (OCP Microscaling Formats 1.0, table 5)."""


def assert_same(found, wanted):
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found.nan_to_num(3), wanted.nan_to_num(3))
    assert torch.equal(found.signbit() & ~found.isnan(), wanted.signbit() & ~wanted.isnan())


@pytest.mark.parametrize(("package", "name"), GIVEN)
def test_codes_are_taken_in_all_types(package, name):
    fmt, codes, given, numbers = in_every_type(package, name)
    assert_same(golden.decode(given), numbers)
    assert_same(golden.decode(given, fmt), golden.decode(codes, fmt))
    assert golden.table_of(given).rows == golden.table_of(codes, fmt).rows
    finite = numbers.isfinite()
    assert torch.equal(golden.encode(given, fmt)[finite], codes[finite])
    if fmt == parse("e8m0fnu"):
        return
    assert torch.equal(golden.mul(given, given, a=fmt, b=fmt), golden.mul(codes, codes, a=fmt, b=fmt))
    assert torch.equal(golden.convert(given, a=fmt, o="e3m4"), golden.convert(codes, a=fmt, o="e3m4"))
    rows, columns = codes[-64:].reshape(-1, 8), codes[:64].reshape(8, -1)
    narrow = given[-64:].reshape(-1, 4 if name == "float4_e2m1fn_x2" else 8), given[:64].reshape(8, -1)
    mac = f"{fmt}*{fmt}+fp32.rn"
    assert torch.equal(golden.gemm(*narrow, mac), golden.gemm(rows, columns, mac))


@pytest.mark.parametrize("name", SIGNED)
def test_negative_integers_are_codes_in_twos_complement(name):
    fmt = parse(name)
    codes = torch.arange(1 << fmt.width)
    array = array_in(name, codes)
    assert (array.astype(np.int64) < 0).any()
    given = [array] if hasattr(ml_dtypes, name) else [array, torch.tensor(array), array.astype(f">i{array.itemsize}")]
    others = [fmt, *(Float(2, fmt.width - 3) for _ in range(fmt.width > 3))]
    for x in given:
        assert golden.decode(x, name).tolist() == array.astype(np.int64).tolist()
        for own in others:
            assert torch.equal(golden.decode(x, own).nan_to_num(3), golden.decode(codes, own).nan_to_num(3))
        assert torch.equal(golden.mul(x, x, a=name, b=name), golden.mul(codes, codes, a=name, b=name))
        mac = f"{name}*{name}+int32"
        found = golden.gemm(x[-64:].reshape(-1, 1), x[:64].reshape(1, -1), mac)
        assert torch.equal(found, golden.gemm(codes[-64:].reshape(-1, 1), codes[:64].reshape(1, -1), mac))
    for wider in (torch.tensor([-1]), torch.tensor([-1], dtype=torch.int32), np.array([-1])):
        with pytest.raises(ValueError, match="contains -1; codes of"):
            golden.decode(wider, name)


@pytest.mark.parametrize("name", [*TORCH_TYPES.values(), "int8", "uint8", "int16", "int32", "int64"])
def test_codes_become_tensors_of_torch(name):
    codes = all_codes(name)
    made = golden.to_torch(codes.to(torch.int32) if name.endswith("32") else codes, name)
    assert made.dtype == getattr(torch, name)
    assert torch.equal(made.view(torch.uint8), tensor_in(name, codes).view(torch.uint8))
    assert torch.equal(golden.to_torch(made, name).view(torch.uint8), made.view(torch.uint8))


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
    for made in (golden.quantize_blocks, golden.quantize_tiles):
        assert made(a.numpy().astype(">f4"), "mxfp4").elements.equal(made(a, "mxfp4").elements)
        assert made(a.numpy().astype(ml_dtypes.bfloat16), "mxfp4").scale.equal(made(a.bfloat16(), "mxfp4").scale)
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
        (lambda: golden.to_torch(torch.tensor([1, 2, 3]), "e2m1fn"), "dimension -1 has 3 codes of 4 bits"),
        (lambda: golden.to_torch(torch.tensor(1), "e2m1fn"), "1 codes of 4 bits; two of them share a byte"),
        (lambda: golden.decode(torch.tensor(1, dtype=torch.uint8).view(PACKED)), "at least one dimension"),
        (lambda: golden.decode(torch.tensor([1])), "decode needs the format .* because torch.int64 names no format"),
        (lambda: golden.table_of(np.array([1], np.int8)), "table_of needs the format .* because int8 names no format"),
        (lambda: golden.decode([1]), "decode needs the format .* because it is a list"),
        (lambda: golden.decode(np.array([1], ml_dtypes.float6_e3m2fn), "e2m3fn"), "name the format e3m2fn, or give"),
        (lambda: golden.decode(np.array([1], np.complex64), "fp32"), "not torch.complex64"),
        (lambda: golden.decode(np.array([1], ml_dtypes.bcomplex32), "fp32"), "not torch.complex64"),
        (lambda: golden.encode(np.array([1], ml_dtypes.complex32), "fp32"), "real numbers, not torch.complex64"),
        (lambda: golden.decode(torch.tensor([1], dtype=torch.uint8).view(torch.int4), "int4"), "not torch.int4"),
    ],
)
def test_other_types_of_codes_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize(
    ("a", "mac", "message"),
    [
        (torch.ones(2, 2).to(torch.float8_e5m2), "e4m3fn*e4m3fn+fp32", r"operand is e4m3fn; a\.float\(\) gives real"),
        (torch.ones(2, 2).to(torch.float8_e5m2), "h100.wgmma.e4m3", r"operand is e4m3fn; a\.float\(\)"),
        (
            torch.ones(2, 2).to(torch.float8_e4m3fn),
            "mxfp8_e4m3*mxfp8_e4m3+fp32",
            r"operand is mxfp8_e4m3; a\.float\(\)",
        ),
        (tensor_in("float4_e2m1fn_x2", torch.arange(16)).reshape(2, 4), "bf16*bf16+fp32", r"golden\.decode\(a\)"),
        (np.ones((2, 2), ml_dtypes.float6_e2m3fn), "e3m2fn*e3m2fn+fp32", r"operand is e3m2fn; golden\.decode\(a\)"),
    ],
)
def test_products_refuse_narrow_types_of_other_formats(a, mac, message):
    b = torch.ones(8 if "bf16" in mac else 2, 2)
    with pytest.raises(TypeError, match=message):
        golden.gemm(a, b, mac)
    with pytest.raises(TypeError, match=message.replace("(a", "(b").replace("a\\.f", "b\\.f")):
        golden.gemm(b.mT, a, mac)


def test_products_round_numbers_in_wide_types():
    a, b = torch.randn(3, 8), torch.randn(8, 2)
    wanted = golden.gemm(*(golden.encode(x, "e4m3fn") for x in (a.half(), b.bfloat16())), "e4m3fn*e4m3fn+fp32")
    assert golden.gemm(a.half(), b.bfloat16(), "e4m3fn*e4m3fn+fp32").equal(wanted)
    assert golden.gemm(a.half().double().numpy(), b.bfloat16(), "e4m3fn*e4m3fn+fp32").equal(wanted)


@pytest.mark.parametrize("name", SAME)
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
