"""Tensors of blocks in the layouts of torch and of checkpoints."""

import ml_dtypes
import pytest
import safetensors.torch
import torch

from halfulp import golden
from halfulp.golden import BlockTensor
from halfulp.hdl.formats import BLOCKS

FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
"""Numbers of E2M1 by their codes (OCP Microscaling Formats 1.0, table 5)."""


def every_code(name):
    """Return a tensor of blocks with every element in one row, and every scale in one column."""
    block = BLOCKS[name]
    count, length = 1 << block.element.width, block.length
    columns = -(-count // length) * length
    elements = (torch.arange(columns) % count).repeat(1 << block.scale.width, 1).to(torch.uint8)
    scale = torch.arange(1 << block.scale.width).unsqueeze(1).expand(-1, columns // length).to(torch.uint8)
    return BlockTensor(elements, scale.contiguous())


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", BLOCKS)
def test_export_and_import_keep_every_code(name, dim):
    given = every_code(name) if dim else every_code(name).mT
    elements, scale = golden.export_blocks(given, name, dim=dim)
    again = golden.import_blocks(elements, scale, name, dim=dim)
    assert again.elements.equal(given.elements)
    assert again.scale.equal(given.scale)
    halves = 2 if BLOCKS[name].element.width == 4 else 1
    assert elements.numel() * halves == given.elements.numel()


def test_packed_elements_have_the_first_one_in_the_low_bits():
    pairs = torch.tensor([[0x10, 0x32, 0xFE] + [0] * 13], dtype=torch.uint8)
    for stored in (pairs, pairs.view(torch.int8), pairs.view(torch.float4_e2m1fn_x2)):
        blocks = golden.import_blocks(stored, torch.tensor([[127]], dtype=torch.uint8), "mxfp4")
        assert golden.dequantize_blocks(blocks, "mxfp4")[0, :6].tolist() == [0, 0.5, 1, 1.5, -4, -6]


ARRAYS = {"mxfp8_e5m2": "float8_e5m2", "mxfp8_e4m3": "float8_e4m3fn", "mxfp6_e3m2": "float6_e3m2fn"}
ARRAYS |= {"mxfp6_e2m3": "float6_e2m3fn", "mxfp4": "float4_e2m1fn", "nvfp4": "float4_e2m1fn", "mxint8": "int8"}
"""Types of ml_dtypes and numpy for the elements of blocks."""


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize(("name", "dtype"), ARRAYS.items())
def test_import_takes_arrays(name, dtype, dim):
    given = every_code(name) if dim else every_code(name).mT
    scale_type = ml_dtypes.float8_e4m3fn if name == "nvfp4" else ml_dtypes.float8_e8m0fnu
    elements, scale = (part.numpy() for part in given[:2])
    typed = elements.view(getattr(ml_dtypes, dtype, dtype)), scale.view(scale_type)
    stored = golden.export_blocks(given, name, dim=dim)[0].view(torch.uint8).numpy()
    for arrays in (typed, (stored, scale), (elements, typed[1])):
        packed = False if arrays[0] is elements else None
        again = golden.import_blocks(*arrays, name, dim=dim, packed=packed)
        assert again.elements.equal(given.elements)
        assert again.scale.equal(given.scale)
    with pytest.raises(TypeError, match="elements must be a tensor or an array, not list"):
        golden.import_blocks(elements.tolist(), scale, name, dim=dim)


@pytest.mark.parametrize(("name", "dtype"), [("mxfp8_e4m3", "float8_e4m3fn"), ("mxfp8_e5m2", "float8_e5m2")])
def test_types_of_torch_have_the_numbers_of_blocks(name, dtype):
    elements, scale = golden.export_blocks(every_code(name), name)
    assert elements.dtype == getattr(torch, dtype)
    assert scale.dtype == torch.float8_e8m0fnu
    numbers = golden.dequantize_blocks(golden.import_blocks(elements, scale, name), name)
    wanted = elements.double() * scale.double().repeat_interleave(32, 1)
    assert numbers.nan_to_num(7).equal(wanted.float().nan_to_num(7))
    assert not numbers.isnan().all()


def test_nvfp4_has_the_numbers_of_its_parts():
    blocks = every_code("nvfp4")._replace(tensor=torch.tensor(0.75))
    elements, scale = golden.export_blocks(blocks, "nvfp4")
    assert (elements.dtype, scale.dtype) == (torch.float4_e2m1fn_x2, torch.float8_e4m3fn)
    again = golden.import_blocks(elements, scale, "nvfp4", tensor=blocks.tensor)
    wanted = FP4.double()[blocks.elements.long()] * scale.double() * 0.75
    assert golden.dequantize_blocks(again, "nvfp4").nan_to_num(7).equal(wanted.float().nan_to_num(7))


@pytest.mark.parametrize("name", ["mxfp4", "mxfp8_e4m3", "nvfp4"])
def test_save_and_load_blocks_keep_every_bit(name, tmp_path):
    weight = golden.quantize_blocks(torch.randn(8, 64), name, tensor="max" if name == "nvfp4" else None)
    golden.save_blocks(tmp_path / "model.safetensors", {"fc.weight": weight, "fc.bias": torch.ones(8)}, name)
    loaded = golden.load_blocks(tmp_path / "model.safetensors", name)
    assert loaded.keys() == {"fc.weight", "fc.bias"}
    assert golden.dequantize_blocks(loaded["fc.weight"], name).equal(golden.dequantize_blocks(weight, name))
    assert loaded["fc.weight"].scale.equal(weight.scale)
    assert loaded["fc.bias"].equal(torch.ones(8))


def test_load_blocks_reads_the_layouts_of_other_libraries(tmp_path):
    pairs, scale = torch.randint(0, 256, (4, 16), dtype=torch.uint8), torch.full((4, 1), 125, dtype=torch.uint8)
    wanted = torch.stack([FP4[(pairs & 15).long()], FP4[(pairs >> 4).long()]], -1).flatten(-2) / 4
    files = {
        "weight": {"weight_packed": pairs, "weight_scale": scale},
        "experts": {"experts_blocks": pairs.unsqueeze(1), "experts_scales": scale},
    }
    for name, tensors in files.items():
        safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
        loaded = golden.load_blocks(tmp_path / "model.safetensors", "mxfp4")
        assert golden.dequantize_blocks(loaded[name], "mxfp4").equal(wanted)
    # compressed-tensors divides by the scale of all numbers.
    scale = torch.full((4, 2), 1.5).to(torch.float8_e4m3fn)
    parts = {"weight_packed": pairs, "weight_scale": scale, "weight_global_scale": torch.tensor([8.0])}
    safetensors.torch.save_file(parts, tmp_path / "model.safetensors")
    loaded = golden.load_blocks(tmp_path / "model.safetensors", "nvfp4")
    assert golden.dequantize_blocks(loaded["weight"], "nvfp4").equal(wanted * 4 * 1.5 / 8)


def test_import_and_load_blocks_reject_other_parts(tmp_path):
    pairs, scale = torch.zeros(4, 16, dtype=torch.uint8), torch.zeros(4, 1, dtype=torch.uint8)
    with pytest.raises(ValueError, match="scales of the tensor"):
        golden.import_blocks(pairs, scale, "nvfp4")
    with pytest.raises(TypeError, match="two elements in a byte"):
        golden.import_blocks(pairs.float(), scale, "mxfp4")
    with pytest.raises(TypeError, match="two elements in a byte"):
        golden.import_blocks(pairs, scale, "mxfp8_e4m3", packed=True)
    with pytest.raises(ValueError, match="the number must be even"):
        golden.export_blocks(BlockTensor(pairs[:1, :3], scale[:1]), "mxfp4")
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"fc.weight": pairs, "fc.weight_scale": scale.float()}, file)
    with pytest.raises(ValueError, match=r"fc\.weight in model\.safetensors"):
        golden.load_blocks(file, "mxfp4")


def test_import_takes_signed_elements():
    stored = torch.arange(-128, 128, dtype=torch.int8).reshape(1, 256)
    blocks = golden.import_blocks(stored, torch.full((1, 8), 127, dtype=torch.uint8), "mxint8")
    assert golden.dequantize_blocks(blocks, "mxint8").equal(stored.float() / 64)
