"""Tensors of blocks in the bytes of GGUF files, against the formulas of llama.cpp in numpy."""

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import BlockTensor
from halfulp.golden.gguf import GGUF_LAYOUTS

SIZES = {"q4_0": 18, "q8_0": 34, "iq4_nl": 18, "mxfp4": 17}

NONLINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
"""Integers of the codes of 4 bits in llama.cpp; those of mxfp4 are doubled."""


def dequantized(data, layout):
    """Return the numbers of rows of bytes by the formulas of llama.cpp, in binary32."""
    blocks = data.reshape(*data.shape[:-1], -1, SIZES[layout])
    if layout == "mxfp4":
        # Half of the scale, because the integers are doubled; the two smallest are subnormal.
        exponent, body = blocks[..., 0].astype(np.uint32), blocks[..., 1:]
        scale = np.where(exponent < 2, 0x00200000 << exponent, (exponent - 1) << 23).astype(np.uint32).view(np.float32)
    else:
        scale, body = blocks[..., :2].copy().view("<f2")[..., 0].astype(np.float32), blocks[..., 2:]
    if layout == "q8_0":
        integers = body.view(np.int8).astype(np.float32)
    else:
        nibbles = np.concatenate([body & 15, body >> 4], -1)
        values = {"iq4_nl": NONLINEAR, "mxfp4": DOUBLED, "q4_0": np.arange(-8, 8, dtype=np.float32)}[layout]
        integers = values[nibbles]
    with np.errstate(all="ignore"):
        return (integers * scale[..., None]).reshape(*data.shape[:-1], -1)


def every_code(layout, step=1):
    """Return rows of bytes with every element, a row for each scale or for each of ``step`` scales."""
    head = 1 if layout == "mxfp4" else 2
    scales = np.arange(0, 255 if layout == "mxfp4" else 1 << 16, step, np.uint32)
    half = np.arange(16, dtype=np.uint8)
    body = np.arange(256, dtype=np.uint8).reshape(8, 32) if layout == "q8_0" else (half | (15 - half) << 4)[None]
    data = np.zeros((len(scales), len(body), SIZES[layout]), np.uint8)
    for place in range(head):
        data[:, :, place] = (scales >> 8 * place & 255)[:, None]
    data[:, :, head:] = body
    return data.reshape(len(scales), -1)


def bits(numbers):
    """Return the bits of numbers, with one NaN."""
    numbers = np.asarray(numbers, np.float32)
    return np.where(np.isnan(numbers), np.uint32(0x7FC00000), numbers.view(np.uint32))


# A prime step reaches all signs and exponents, and the codes 0x7C00 and 0xFC00 of infinities follow.
CASES = [(layout, step) for layout in SIZES for step in ((1,) if layout == "mxfp4" else (61,))]
CASES += [pytest.param(layout, 1, marks=pytest.mark.slow) for layout in SIZES if layout != "mxfp4"]


@pytest.mark.parametrize(("layout", "step"), CASES)
def test_import_gguf_has_the_numbers_of_llama_cpp(layout, step):
    data = every_code(layout, step)
    if layout != "mxfp4":
        infinite = data[:2].copy()
        infinite.reshape(2, -1, SIZES[layout])[..., :2] = np.array([[0, 0x7C], [0, 0xFC]], np.uint8)[:, None]
        data = np.concatenate([data, infinite])
    numbers = golden.dequantize_blocks(golden.import_gguf(data, layout), GGUF_LAYOUTS[layout].block).numpy()
    wanted = dequantized(data, layout)
    if layout == "mxfp4":
        # The code of -0 is a zero without a sign in llama.cpp.
        assert ((numbers == 0) == (wanted == 0)).all()
        numbers, wanted = numbers + np.float32(0), wanted + np.float32(0)
    assert np.isinf(wanted).any()
    assert numbers.shape == wanted.shape
    assert (bits(numbers) != bits(wanted)).sum() == 0


@pytest.mark.parametrize("layout", SIZES)
def test_export_gguf_returns_the_imported_bytes(layout):
    data = torch.from_numpy(every_code(layout, 1 if layout == "mxfp4" else 7)).unflatten(0, (1, -1))
    blocks = golden.import_gguf(data, layout)
    assert blocks.elements.shape == (*data.shape[:2], data.shape[2] // SIZES[layout] * 32)
    assert golden.export_gguf(blocks, layout).equal(data)


def test_gguf_has_the_first_half_of_a_block_in_the_low_bits():
    # 0x3800 is 0.5 in binary16; the low bits of byte 1 are element 1, and the high ones element 17.
    q4_0 = golden.import_gguf(torch.tensor([0x00, 0x38, 0x88, 0x0F, *[0x88] * 14], dtype=torch.uint8), "q4_0")
    wanted = [0.0] * 32
    wanted[1], wanted[17] = 3.5, -4.0
    assert golden.dequantize_blocks(q4_0, "block(int4,32,fp16,nearest)").tolist() == wanted
    mxfp4 = golden.import_gguf(torch.tensor([126, 0x00, 0xF7, *[0] * 14], dtype=torch.uint8), "mxfp4")
    wanted[1], wanted[17] = 3.0, -3.0
    assert golden.dequantize_blocks(mxfp4, "mxfp4").tolist() == wanted


def test_quantized_blocks_are_exported_to_gguf():
    numbers = torch.randn(4, 96, generator=torch.Generator().manual_seed(1))
    for layout in ("q4_0", "q8_0", "mxfp4"):
        block = GGUF_LAYOUTS[layout].block
        blocks = golden.quantize_blocks(numbers, block)
        data = golden.export_gguf(blocks, layout)
        assert data.shape == (4, 3 * SIZES[layout])
        assert dequantized(data.numpy(), layout).tolist() == golden.dequantize_blocks(blocks, block).tolist()


@pytest.mark.parametrize("layout", ["q4_0", "q8_0", "iq4_nl"])
def test_products_of_gguf_blocks_have_signed_scales(layout):
    rng = np.random.default_rng(2)
    data = rng.integers(0, 256, (3, SIZES[layout]), np.uint8)
    data[:, :2] = np.array([[-0.5], [2.0], [-8.0]], "<f2").view(np.uint8)
    block = GGUF_LAYOUTS[layout].block
    x = torch.randint(-8, 9, (32, 5), generator=torch.Generator().manual_seed(3)).float()
    product = golden.gemm(
        golden.import_gguf(data, layout), golden.quantize_blocks(x, "mxint8", dim=0), f"{block}*mxint8+fp32.rn"
    )
    # All products and sums are integers of few bits, so every order of the sum gives the same.
    assert (
        golden.decode(product, "fp32").tolist()
        == (dequantized(data, layout).astype(np.float64) @ x.double().numpy()).tolist()
    )


def test_import_gguf_rejects_other_data():
    data = torch.zeros(2, 18, dtype=torch.uint8)
    with pytest.raises(ValueError, match="unknown layout 'q4_1'"):
        golden.import_gguf(data, "q4_1")
    with pytest.raises(ValueError, match="a multiple of 34 bytes"):
        golden.import_gguf(data, "q8_0")
    with pytest.raises(TypeError, match=r"not torch\.float32"):
        golden.import_gguf(data.float(), "q4_0")
    with pytest.raises(TypeError, match="not bytes"):
        golden.import_gguf(b"", "q4_0")
    with pytest.raises(ValueError, match="NaN in the OCP standard"):
        golden.import_gguf(torch.full((17,), 255, dtype=torch.uint8), "mxfp4")


def test_export_gguf_rejects_blocks_that_a_file_cannot_have():
    elements, scale = torch.zeros(2, 32, dtype=torch.uint8), torch.zeros(2, 1, dtype=torch.int32)
    with pytest.raises(ValueError, match="has the element 0; those of iq4_nl are -127, "):
        golden.export_gguf(BlockTensor(elements, scale), "iq4_nl")
    with pytest.raises(ValueError, match=r"has the scale 2\.0 of all numbers"):
        golden.export_gguf(BlockTensor(elements, scale, torch.tensor(2.0)), "q8_0")
    with pytest.raises(ValueError, match="a multiple of 32"):
        golden.export_gguf(BlockTensor(elements[:, :30], scale), "q8_0")
    with pytest.raises(ValueError, match="NaN in the OCP standard"):
        golden.export_gguf(BlockTensor(elements, scale + 255), "mxfp4")
    with pytest.raises(ValueError, match="codes of 4 bits"):
        golden.export_gguf(BlockTensor(elements + 16, scale), "q4_0")
