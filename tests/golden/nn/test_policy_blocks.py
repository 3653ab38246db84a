"""Layers, convolutions and programs whose operands are in blocks."""

import pytest
import torch
import torch.nn.functional as F

from halfulp import golden
from halfulp.golden import nn

MIXED = (
    "forward=mxfp8_e4m3*mxfp8_e4m3+fp32, input_gradient=mxfp8_e5m2*mxfp8_e4m3+fp32, weight_gradient=mxint8*mxfp4+fp32"
)


def multiplied(x, y, a, b):
    """Return the product of matrices in blocks along the sums."""
    return golden.decode(golden.gemm(x, y, f"{a}*{b}+fp32.rn"), "fp32").float()


@pytest.mark.slow
def test_linear_layer_quantizes_along_the_sums_of_each_product():
    torch.manual_seed(0)
    layer = nn.Linear(40, 12, bias=False, policy=MIXED)
    x, gradient = torch.randn(50, 40, requires_grad=True), torch.randn(50, 12)
    found = layer(x)
    found.backward(gradient)
    w, given = layer.weight.detach(), x.detach()
    assert found.equal(multiplied(given, w.mT, "mxfp8_e4m3", "mxfp8_e4m3"))
    assert x.grad.equal(multiplied(gradient, w, "mxfp8_e5m2", "mxfp8_e4m3"))
    assert layer.weight.grad.equal(multiplied(gradient.mT, given, "mxint8", "mxfp4"))


@pytest.mark.slow
def test_convolution_quantizes_along_channels_and_kernel():
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 6, 3, padding=1, bias=False, policy="mxfp4*mxfp4+fp32.rn")
    x = torch.randn(2, 4, 5, 5)
    columns = F.unfold(x, 3, padding=1).mT.reshape(50, 36)
    want = multiplied(columns, layer.weight.detach().flatten(1).mT, "mxfp4", "mxfp4")
    assert layer(x).equal(want.reshape(2, 25, 6).mT.reshape(2, 6, 5, 5))


def test_bias_and_tensor_scales_of_nvfp4():
    torch.manual_seed(0)
    layer = nn.Linear(40, 12, policy="nvfp4*nvfp4+fp32.rn")
    x, gradient = torch.randn(50, 40) * 1e-6, torch.randn(50, 12)
    exact = F.linear(x, layer.weight, layer.bias)
    found = layer(x)
    assert torch.allclose(found, exact, rtol=1e-5, atol=1e-5)
    near = F.linear(x, layer.weight)
    assert 0 < float(((found - layer.bias - near).norm() / near.norm()).detach()) < 0.3
    found.backward(gradient)
    want = golden.dequantize_blocks(golden.quantize_blocks(gradient, "nvfp4", dim=0, tensor="max"), "nvfp4", dim=0)
    assert torch.allclose(layer.bias.grad, want.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", ["fp32", "bf16"])
def test_scales_with_the_range_of_binary32_need_none_of_the_tensor(scale):
    """A scale of the tensor made the scales of blocks so large that every product was infinite."""
    torch.manual_seed(0)
    block = f"block(e4m3fn,128,{scale},nearest)"
    layer = nn.Linear(200, 12, bias=False, policy=f"{block}*{block}+fp32.rn, weights=rn tiles=128")
    x = torch.randn(5, 200)
    tiles = golden.quantize_tiles(layer.weight.detach().mT, block, rows=128, dim=0)
    assert layer(x).equal(multiplied(golden.quantize_blocks(x, block), tiles, block, block))
    assert layer(x).isfinite().all()


@pytest.mark.parametrize("tiles", ["16", "16.4over6", "1.4over6"])
def test_weights_in_tiles(tiles):
    torch.manual_seed(0)
    layer = nn.Linear(40, 36, bias=False, policy=f"nvfp4*nvfp4+fp32.rn, weights=rn tiles={tiles}")
    x, gradient = torch.randn(50, 40, requires_grad=True), torch.randn(50, 36)
    found = layer(x)
    found.backward(gradient)
    w, rows, adaptive = layer.weight.detach(), int(tiles.split(".")[0]), "4over6" in tiles
    most = 6 * 256 if adaptive else 6 * 448
    own = {"rows": rows, "four_over_six": adaptive, "tensor": (w.abs().max().double() / most).float()}
    for result, operand, matrix in ((found, x.detach(), w.mT), (x.grad, gradient, w)):
        left = golden.quantize_blocks(operand, "nvfp4", tensor="max")
        right = golden.quantize_tiles(matrix, "nvfp4", dim=0, **own)
        product = multiplied(left._replace(tensor=None), right._replace(tensor=None), "nvfp4", "nvfp4")
        scaled = product.double() * left.tensor.double() * right.tensor.double()
        assert result.equal(scaled.float())
    plain = nn.Linear(40, 36, bias=False, policy="nvfp4*nvfp4+fp32.rn")
    plain.load_state_dict(layer.state_dict())
    assert not plain(x).equal(found)


def test_gradients_round_stochastically():
    x, gradient = torch.randn(64, 32, requires_grad=True), torch.randn(64, 8)
    found = []
    for seed in (1, 1, 2):
        layer = nn.Linear(32, 8, policy="nvfp4*nvfp4+fp32.rn, gradients=sr8", seed=seed)
        torch.nn.init.ones_(layer.weight)
        x.grad = None
        layer(x).backward(gradient)
        found.append(x.grad)
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])


@pytest.mark.slow
def test_attention_and_emulated_program_take_blocks():
    torch.manual_seed(0)
    policy = "mxfp8_e4m3*mxfp8_e4m3+fp32.rn"
    model = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(2, 6, 16)
    exact = model(x, x, x, need_weights=False)[0]
    converted = nn.convert(model, policy).model(x, x, x, need_weights=False)[0]
    with golden.emulate(policy):
        emulated = model(x, x, x, need_weights=False)[0]
    for found in (converted, emulated):
        assert 0 < float(((found - exact).norm() / exact.norm()).detach()) < 0.2


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("mxfp4*mxfp4+fp32, weights=rn scale=tensor.pow2.current", "scale"),
        ("mxfp4*nvfp4+fp32", "length"),
        ("nvfp4*nvfp4+fp32, weights=rn tiles=1", "omit tiles=1"),
        ("nvfp4*nvfp4+fp32, weights=rn tiles=16.5over6", "expected 16 or 16.4over6"),
        ("nvfp4*nvfp4+fp32, weights=rn tiles=16 tiles=8", "two values of tiles"),
        ("mxfp4*mxfp4+fp32, weights=rn tiles=8.4over6", "as nvfp4 has"),
        ("e5m2*e5m2+fp32, gradients=rn tiles=16", "not for e5m2 in input_gradient"),
        ("mac=fp32, weights=rn tiles=16", "not for fp32 in forward"),
        ("nvfp4*nvfp4+fp32, bias=rn tiles=16", "tiles, which are for weights"),
        ("nvfp4*nvfp4+fp32, update=bf16.rn tiles=16", "an update has no scale and no tiles"),
        ("mxfp4*mxfp4+fp32 interleave=2", "interleave"),
    ],
)
def test_policies_of_blocks_refuse(text, word):
    with pytest.raises(ValueError, match=word):
        nn.Policy.parse(text)


def test_policy_of_blocks_round_trips():
    for text in (
        MIXED,
        "block(e2m1fn,32,e4m3fn,nearest)*mxfp4+fp32, weights=sr4",
        "nvfp4*nvfp4+fp32.rn, weights=rn tiles=16.4over6, activations=rn tiles=1.4over6, gradients=sr8 tiles=2",
    ):
        policy = nn.Policy.parse(text)
        assert nn.Policy.parse(str(policy)) == policy
