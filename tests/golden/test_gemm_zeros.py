"""Matrix products of integers with zero points."""

import pytest
import torch

from halfulp import golden
from halfulp.golden.zeros import corrected
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import MacSpec, Tiling


def integers(codes, fmt):
    """Decode integers without the library's own helper."""
    return torch.tensor([parse(fmt).integer(int(code)) for code in codes.flatten()]).reshape(codes.shape)


def codes(fmt, *shape):
    return torch.randint(1 << parse(fmt).width, shape)


def by_steps(x, y, low, high):
    """Sum products in ascending order, saturating in each step."""
    total = torch.zeros(x.shape[0], y.shape[1], dtype=torch.int64)
    for k in range(x.shape[1]):
        total = (total + x[:, k, None] * y[k]).clamp(low, high)
    return total


@pytest.mark.parametrize("a", ["int8", "uint8"])
@pytest.mark.parametrize("b", ["int4", "uint4", "int8-narrow"])
@pytest.mark.parametrize("width", [14, 32])
def test_sums_of_differences(a, b, width):
    torch.manual_seed(width)
    x, y = codes(a, 3, 9), codes(b, 9, 4)
    zx, zy = codes(a, 3, 1), codes(b, 4)
    got = golden.gemm(x, y, f"{a}*{b}+int{width}", a_zero=zx, b_zero=zy)
    left, right = integers(x, a) - integers(zx, a), integers(y, b) - integers(zy, b)
    expected = by_steps(left, right, -(1 << (width - 1)), (1 << (width - 1)) - 1)
    assert integers(got, f"int{width}").equal(expected)
    if width == 14 and b == "int8-narrow":
        assert not expected.equal(left @ right)


def test_one_zero_point_with_start_batch_and_tiling():
    torch.manual_seed(1)
    x, y, start = codes("uint8", 2, 3, 5), codes("int4", 5, 4), codes("int32", 4)
    got = golden.gemm(x, y, "uint8*int4+int32-wrap", start=start, a_zero=torch.tensor(128))
    expected = (integers(x, "uint8") - 128) @ integers(y, "int4") + start & 0xFFFFFFFF
    assert got.equal(expected)
    # The sources of an array are those of the operands without zero points.
    tiling, mac = Tiling(n=2, m=2, depth=1), "uint8*int4+fxp12.-4.sr4@lfsr8"
    zero = torch.tensor(0)
    plain = golden.gemm(x[0], y, mac, tiling=tiling)
    assert plain.equal(golden.gemm(x[0], y, mac, tiling=tiling, a_zero=zero, b_zero=zero))


def test_weights_of_four_bits_with_activations_in_floats():
    torch.manual_seed(2)
    x, w, zero = torch.randint(-8, 8, (3, 6)).double(), codes("uint4", 6, 2), codes("uint4", 2)
    got = golden.gemm(golden.encode(x, "bf16"), w, "bf16*uint4+fp32", b_zero=zero)
    assert golden.decode(got, "fp32").equal(x @ (w - zero).double())


def test_groups_of_weights_are_blocks_with_a_scale_and_a_zero_point_each():
    torch.manual_seed(3)
    x = golden.quantize_blocks(torch.randn(3, 10), "block(int8,4,fp16,nearest)", dim=-1)
    w = golden.quantize_blocks(torch.randn(10, 2), "block(uint4,4,fp16,nearest)", dim=-2)
    zero, x_zero = codes("uint4", 3, 2), codes("int8", 3, 3)
    mac = "block(int8,4,fp16,nearest)*block(uint4,4,fp16,nearest)+fp64"
    got = golden.decode(golden.gemm(x, w, mac, a_zero=x_zero, b_zero=zero), "fp64")
    numbers = integers(x.elements, "int8") - integers(x_zero, "int8").repeat_interleave(4, 1)[:, :10]
    left = numbers.double() * golden.decode(x.scale, "fp16").repeat_interleave(4, 1)[:, :10]
    scale = golden.decode(w.scale, "fp16").repeat_interleave(4, 0)[:10]
    right = (w.elements.long() - zero.repeat_interleave(4, 0)[:10]).double() * scale
    torch.testing.assert_close(got, left @ right, rtol=1e-14, atol=1e-14)


REFUSED = [
    ("e5m2*int8+fp32", {"a_zero": torch.tensor(0)}, "zero points are for fixed point such as int8 or uint4, and e5m2"),
    ("int64*int8+int64", {"a_zero": torch.tensor(0)}, "differences of int64 have 65 bits"),
    ("int8*int8+int32", {"b_zero": torch.tensor(256)}, "b_zero contains 256; codes of 8 bits are 0 to 255"),
    ("int8*int8+int32", {"b_zero": torch.zeros(3)}, "b_zero must be a tensor of integer codes"),
    ("int8*int8+int32", {"b_zero": codes("int8", 3)}, r"b_zero has shape \(3,\), which does not broadcast to \(2, 2\)"),
    ("h100.wgmma.e4m3", {"a_zero": torch.tensor(0)}, "a_zero has no effect on the matrix unit"),
]


@pytest.mark.parametrize(("mac", "zeros", "message"), REFUSED)
def test_zero_points_that_are_refused(mac, zeros, message):
    x = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises((ValueError, TypeError), match=message):
        golden.gemm(x, x, mac, **zeros)


def test_sparse_weights_have_no_zero_points():
    x, w = codes("int8", 2, 4), golden.compress(torch.zeros(4, 2, dtype=torch.int64), "int8", "2:4", dim=-2)
    with pytest.raises(ValueError, match=r"b_zero is not possible for .*; give a mac such as int8\*int4\+int32"):
        golden.gemm(x, w, "sparsemac int8*int8+int32.rn sparsity=2:4", b_zero=torch.tensor(1))


@pytest.mark.parametrize("mac", ["uint8*int4+int32", "int8*uint8+int12-wrap", "ufxp2.2*fxp3.1+fxp12.6"])
@pytest.mark.parametrize("given", ["a", "b", "ab"])
def test_terms_of_zero_points_correct_sums_of_arrays(mac, given):
    torch.manual_seed(4)
    spec = MacSpec.parse(mac)
    x, y = codes(str(spec.a), 2, 3, 7), codes(str(spec.b), 7, 4)
    zeros = {
        "a": codes(str(spec.a), 3, 1) if "a" in given else None,
        "b": codes(str(spec.b), 4) if "b" in given else None,
    }
    expected = golden.gemm(x, y, mac, a_zero=zeros["a"], b_zero=zeros["b"])
    assert corrected(golden.gemm(x, y, mac), x, y, spec, zeros).equal(expected)


INEXACT = [
    ("int8*int8+int20", 17, r"sums of 17 products of int8 and int8 with zero points need 22 bits .* more than int20"),
    ("uint8*int8+fxp32.-1", 1, "all places of a product, more than fxp32.-1"),
    ("int8*int8=int8.rn+int32", 1, "zero points of arrays need a mac of integers without rounded product"),
    ("int8*int8+fp32", 1, "zero points of arrays need operands and sums in fixed point"),
]


@pytest.mark.parametrize(("mac", "k", "message"), INEXACT)
def test_terms_need_exact_sums(mac, k, message):
    x, y = torch.zeros(2, k, dtype=torch.int64), torch.zeros(k, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        corrected(x @ y, x, y, MacSpec.parse(mac), {"a": torch.tensor(1), "b": torch.tensor(1)})
    assert corrected(x @ y, x, y, MacSpec.parse(mac), {"a": None, "b": None}).equal(x @ y)


def test_largest_sums_are_exact_at_the_limit():
    # 8 products of -255 * 255 need 20 bits and a sign.
    x, y = torch.full((1, 7), 128), torch.full((7, 1), 127)
    zeros = {"a": torch.tensor(127), "b": torch.tensor(128)}
    mac = MacSpec.parse("int8*int8+int20")
    found = corrected(golden.gemm(x, y, mac), x, y, mac, zeros)
    assert integers(found, "int20").item() == -7 * 255 * 255
