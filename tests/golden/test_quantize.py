"""Tensors in blocks: kernels against torch operations, and both against exact fractions."""

from fractions import Fraction

import pytest
import torch

from halfulp import golden
from halfulp.golden.kernels import quantize as kernels
from halfulp.golden.quantize import _in_torch
from halfulp.hdl.formats import BLOCKS, Block, Rounding

KERNELS = [
    *BLOCKS,
    "block(e2m1fn,2,e4m0fnu,ceil)",
    "block(fxp3.4,5,e8m0fnu,even)",
    "block(e4m3fnuz,7,e5m2,even)",
    "block(binary8p4,6,binary8p3,floor)",
    "block(ufxp2.3,4,bf16,ceil)",
]
"""Blocks with a kernel."""

OTHERS = ["block(nf4,4,bf16,nearest)", "block(posit6,3,e8m0fnu,ceil)", "block(e5m10,6,e8m0fnu,floor)"]


def numbers(dtype=torch.float32, shape=(2, 45, 19)):
    """Return numbers of many magnitudes, with ties, zeros and special values."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator) * torch.exp2(torch.randint(-12, 12, shape, generator=generator).float())
    x[0, :, 0] = 0
    x[0, 3, 1], x[1, 4, 3] = float("nan"), float("-inf")
    x[1, :, 2] = -0.0
    x[1, :, 5] *= 2.0**-130
    x[1, :, 6] *= 2.0**110
    x[1, :, 7] = torch.arange(45) / 8 - 2.5
    return x.to(dtype)


@pytest.mark.sampled(96, 17)
@pytest.mark.parametrize("text", KERNELS)
@pytest.mark.parametrize("mode", ["rn", "ra", "rz", "ru", "ro", "sr5"])
def test_kernel_matches_torch(text, mode, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    block, rounding = Block.parse(text), Rounding.parse(mode)
    for dtype, dim, factor in ((torch.float32, 1, None), (torch.float32, 2, 0.3), (torch.float64, 2, None)):
        x = numbers(dtype)
        x = x * 2.0**900 if dtype == torch.float64 else x
        words = torch.randint(0, 32, x.shape, generator=torch.Generator().manual_seed(2)) if rounding.bits else None
        tensor = None if factor is None else torch.tensor(factor)
        found = kernels.quantize(x, dim, block, rounding, words, 1.0 if factor is None else float(tensor))
        assert found is not None
        want = _in_torch(x, dim, block, rounding, words, tensor)
        assert [one.dtype for one in found] == [one.dtype for one in want]
        assert all(one.equal(other) for one, other in zip(found, want, strict=True))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", [*KERNELS, *OTHERS])
def test_blocks_of_tensor_match_fractions(text):
    block = Block.parse(text)
    x = numbers(shape=(2, 45, 8))[..., :4]
    tensor = Fraction(3, 8)
    found = golden.quantize_blocks(x, block, dim=-2, tensor=0.375)
    assert found.scale.shape == (2, -(-45 // block.length), 4)
    for row, column in ((0, 0), (0, 1), (1, 2), (1, 3)):
        values = [value if value - value or value == 0 else Fraction(value) for value in x[row, :, column].tolist()]
        for index, first in enumerate(range(0, 45, block.length)):
            elements, scale = block.quantize(values[first : first + block.length], tensor=tensor)
            assert found.elements[row, first : first + block.length, column].tolist() == elements
            assert int(found.scale[row, index, column]) == scale


def test_dequantized_tensor_has_its_numbers():
    for text in ("mxfp8_e5m2", "nvfp4", "mxint8"):
        block = Block.parse(text)
        x = golden.quantize_blocks(torch.randn(3, 50), text, tensor="max" if text == "nvfp4" else None)
        tensor = 1 if x.tensor is None else Fraction(float(x.tensor))
        back = golden.dequantize_blocks(x, text, dtype=torch.float64)
        for row in range(3):
            for at in range(50):
                scale = Fraction(block.scale.decode(int(x.scale[row, at // block.length])))
                want = Fraction(block.element.decode(int(x.elements[row, at]))) * scale * tensor
                assert Fraction(float(back[row, at])) == want


def test_layout_and_dtype_do_not_change_blocks():
    x = numbers().to(torch.bfloat16)
    want = golden.quantize_blocks(x.float(), "mxfp4", dim=1)
    assert want.elements.dtype == want.scale.dtype == torch.uint8
    for found in (
        golden.quantize_blocks(x, "mxfp4", dim=1),
        golden.quantize_blocks(x.mT, "mxfp4").mT,
        golden.quantize_blocks(x.mT.contiguous().mT, "mxfp4", dim=-2),
        golden.quantize_blocks(x.double(), "mxfp4", dim=-2),
    ):
        assert found.elements.equal(want.elements)
        assert found.scale.equal(want.scale)


def test_tensor_scale_of_largest_magnitude():
    x = torch.randn(4, 64)
    found = golden.quantize_blocks(x, "nvfp4", tensor="max")
    assert float(found.tensor) == float((x.abs().max().double() / (6 * 448)).float())
    assert int(found.scale.max()) == 0x7E
    assert float(golden.quantize_blocks(x * 0, "nvfp4", tensor="max").tensor) == 1


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"x": torch.zeros(4, dtype=torch.int64)}, TypeError, "real numbers"),
        ({"dim": 1}, ValueError, "dimensions"),
        ({"dim": 0.5}, TypeError, "dim"),
        ({"tensor": "amax"}, ValueError, "max"),
        ({"tensor": -1.0}, ValueError, "positive"),
        ({"tensor": 0.1}, ValueError, "float32"),
        ({"tensor": torch.ones(2)}, ValueError, "one number"),
        ({"rounding": "sr4"}, ValueError, "random"),
        ({"random": torch.zeros(4, dtype=torch.int64)}, ValueError, "random"),
        ({"rounding": "sr4", "random": torch.zeros(3, dtype=torch.int64)}, ValueError, "broadcast"),
        ({"block": "e5m2"}, ValueError, "block"),
    ],
)
def test_quantize_blocks_refuses(change, error, word):
    given = {"x": torch.ones(4), "block": "mxfp4"} | change
    with pytest.raises(error, match=word):
        golden.quantize_blocks(given.pop("x"), given.pop("block"), **given)


def test_dequantize_blocks_refuses():
    x = golden.quantize_blocks(torch.ones(2, 64), "mxfp4")
    with pytest.raises(TypeError, match="BlockTensor"):
        golden.dequantize_blocks(x.elements, "mxfp4")
    with pytest.raises(ValueError, match="scales of x"):
        golden.dequantize_blocks(x, "nvfp4")
    with pytest.raises(TypeError, match="floating-point"):
        golden.dequantize_blocks(x, "mxfp4", dtype=torch.int8)
