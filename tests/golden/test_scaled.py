"""Weights of checkpoints with scales of a tensor, of rows and of groups."""

import json

import pytest
import safetensors.torch
import torch

from halfulp import golden

ROWS, COLUMNS = 6, 24


def save(tmp_path, tensors, metadata=None):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({name: x.contiguous() for name, x in tensors.items()}, path, metadata)
    return path


def words_of(integers, bits):
    """Integers of a matrix in words of 32 bits along the rows, one by one, from the lowest bits on."""
    words = []
    for row in integers.tolist():
        each = [0] * -(-len(row) * bits // 32)
        for place, value in enumerate(row):
            each[place * bits // 32] |= (value + (1 << bits - 1)) << place * bits % 32
        words.append([word - (1 << 32) if word >> 31 else word for word in each])
    return torch.tensor(words, dtype=torch.int32)


def products(integers, scale, per):
    """Numbers of a weight, element by element; ``per(i, j)`` is the place of its scale."""
    made = torch.empty(integers.shape, dtype=scale.dtype)
    for i in range(integers.shape[0]):
        for j in range(integers.shape[1]):
            made[i, j] = integers[i, j].to(scale.dtype) * scale[per(i, j)]
    return made


PLACES = {
    "tensor": ((1,), lambda i, j: 0),
    "scalar": ((), lambda i, j: ()),
    "row": ((ROWS, 1), lambda i, j: (i, 0)),
    "rows": ((ROWS,), lambda i, j: i),
    "group": ((ROWS, 3), lambda i, j: (i, j // 8)),
}
"""Shapes of scales, and the place of the scale of an element."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
@pytest.mark.parametrize("per", PLACES)
def test_elements_of_a_byte_are_multiplied_by_their_scale(per, kind, dtype, tmp_path):
    shape, place = PLACES[per]
    elements = (torch.randn(ROWS, COLUMNS) * 40).to(kind)
    scale = (torch.rand(shape) / 100 + 0.001).to(dtype)
    wanted = products(elements, scale, place)
    compressed = {"fc.weight": elements, "fc.weight_scale": scale, "fc.bias": torch.ones(ROWS)}
    loaded = golden.load_blocks(save(tmp_path, compressed))
    assert loaded.keys() == {"fc.weight", "fc.bias"}
    assert loaded["fc.weight"].dtype == dtype
    assert loaded["fc.weight"].equal(wanted)
    assert loaded["fc.bias"].equal(torch.ones(ROWS))
    torchao = {"fc._weight_qdata": elements, "fc._weight_scale": scale, "fc.bias": torch.ones(ROWS)}
    data = {"_type": "Float8Tensor", "_data": {"dtype": {"_type": "torch.dtype", "_data": "bfloat16"}}}
    metadata = {"fc.weight": json.dumps(data), "fc.bias": json.dumps({"_type": "Tensor"})}
    loaded = golden.load_blocks(save(tmp_path, torchao, metadata))
    assert loaded.keys() == {"fc.weight", "fc.bias"}
    assert loaded["fc.weight"].dtype == torch.bfloat16
    assert loaded["fc.weight"].equal(wanted.to(torch.bfloat16))
    assert golden.load_blocks(save(tmp_path, torchao))["fc.weight"].equal(wanted)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("per", "columns"), [("row", COLUMNS), ("row", 21), ("group", COLUMNS)])
def test_integers_in_words_are_multiplied_by_their_scale(per, columns, bits, tmp_path):
    shape, place = PLACES[per]
    integers = torch.randint(-(1 << bits - 1), 1 << bits - 1, (ROWS, columns))
    integers[0, :2] = torch.tensor([-(1 << bits - 1), (1 << bits - 1) - 1])
    scale = (torch.rand(shape) / 100 + 0.001).to(torch.bfloat16)
    words = {
        "fc.weight_packed": words_of(integers, bits),
        "fc.weight_scale": scale,
        "fc.weight_shape": torch.tensor([ROWS, columns]),
    }
    loaded = golden.load_blocks(save(tmp_path, words))
    assert loaded.keys() == {"fc.weight"}
    assert loaded["fc.weight"].equal(products(integers, scale, place))
    zeros = torch.randint(-3, 4, shape)
    packed_zeros = words_of(zeros.T, bits).T
    shifted = integers - zeros.repeat_interleave(columns // shape[1], 1)
    for zero in (packed_zeros, zeros.to(torch.int8)):
        loaded = golden.load_blocks(save(tmp_path, words | {"fc.weight_zero_point": zero}))
        assert loaded["fc.weight"].equal(products(shifted, scale, place))
    if per == "group":
        order = torch.randperm(columns) % 3
        loaded = golden.load_blocks(save(tmp_path, words | {"fc.weight_g_idx": order.to(torch.int32)}))
        assert loaded["fc.weight"].equal(products(integers, scale, lambda i, j: (i, int(order[j]))))
        unset = {"fc.weight_g_idx": torch.full((columns,), -1, dtype=torch.int32)}
        assert golden.load_blocks(save(tmp_path, words | unset))["fc.weight"].equal(products(integers, scale, place))
        block = f"block(int{bits},8,bf16,nearest)"
        blocks = golden.load_blocks(save(tmp_path, words), block)
        assert blocks.keys() == {"fc.weight"}
        exact = golden.dequantize_blocks(blocks["fc.weight"], block)
        assert exact.equal(integers * scale.float().repeat_interleave(8, 1))
        with pytest.raises(ValueError, match="a block has no zero points and no order of columns"):
            golden.load_blocks(save(tmp_path, words | {"fc.weight_zero_point": packed_zeros}), block)


WEIGHT = torch.ones(ROWS, COLUMNS)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"w": WEIGHT.to(torch.uint8), "w_scale": torch.ones(1)},
            "elements have dtype torch.uint8",
        ),
        (
            {"w": WEIGHT.to(torch.uint8).view(torch.float4_e2m1fn_x2), "w_scale": torch.ones(1)},
            "torch.float4_e2m1fn_x2",
        ),
        ({"w": WEIGHT, "w_scale": torch.ones(1)}, "elements have dtype torch.float32"),
        ({"w": WEIGHT.to(torch.int8), "w_scale": WEIGHT.to(torch.uint8)}, "scales have the type torch.uint8, which is"),
        ({"w": WEIGHT.to(torch.int8), "w_scale": torch.ones(3, 2)}, r"shape \(3, 2\) for weights of shape \(6, 24\)"),
        ({"w": WEIGHT.to(torch.int8), "w_scale": torch.ones(ROWS, 5)}, "one for each group of a row"),
        (
            {"w_packed": WEIGHT.int(), "w_scale": torch.ones(ROWS, 1), "w_shape": torch.tensor([ROWS, COLUMNS])},
            "not 24 of torch.int32 for 24 columns",
        ),
        (
            {"w_packed": WEIGHT[:, :1].int(), "w_scale": torch.ones(ROWS, 1), "w_shape": torch.tensor([ROWS, 4])},
            "not 1 of torch.int32 for 4 columns",
        ),
    ],
)
def test_other_parts_are_refused(tensors, message, tmp_path):
    with pytest.raises(ValueError, match=f"w in model.safetensors has no scaled weights: .*{message}"):
        golden.load_blocks(save(tmp_path, tensors))


WORDS = {
    "w_packed": torch.zeros(1, 4, dtype=torch.int32),
    "w_scale": torch.ones(1, 2),
    "w_shape": torch.tensor([1, 32]),
}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"w_scale": torch.ones(1), "w_shape": torch.tensor([7, 32])}, r"no weight of shape \(7, 32\)"),
        ({"w_shape": torch.zeros(0, dtype=torch.int64)}, r"no weight of shape \(\)"),
        ({"w_g_idx": torch.full((32,), 5)}, "g_idx has no group below 2 for each of 32 columns"),
        ({"w_g_idx": torch.zeros(30, dtype=torch.int32)}, "g_idx has no group below 2 for each of 32 columns"),
        ({"w_scale": torch.ones(1, 0)}, r"scales have shape \(1, 0\)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, message, tmp_path):
    safetensors.torch.save_file(WORDS | parts, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=message):
        golden.load_blocks(tmp_path / "w.safetensors")


@pytest.mark.parametrize("element", ["int8", "e2m1fn"])
def test_words_of_other_elements_are_no_blocks(element, tmp_path):
    words = WORDS | {"w_scale": torch.ones(1, 1, dtype=torch.bfloat16)}
    safetensors.torch.save_file(words, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=f"the words have elements int4, not {element}"):
        golden.load_blocks(tmp_path / "w.safetensors", f"block({element},32,bf16,nearest)")
