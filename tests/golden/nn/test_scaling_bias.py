"""Bias of products with scaled operands, in fractions: added after the multiplication by the factors, rounded once."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.scaling import multiplied
from halfulp.hdl.formats import parse


def computed(layer, x, policy, emulated):
    if emulated:
        with golden.emulate(policy):
            return layer(x)
    return nn.convert(layer, policy).model(x)


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("mac", ["e4m3fn*e4m3fn+fp16.rn", "e4m3fn*e4m3fn+fp16.rn.sat", "e4m3fn*e4m3fn+e6m5.rn"])
def test_bias_of_small_operands_does_not_overflow(mac, emulated):
    """Bias 0.1372 of fp16 beside products of 2^-30: divided by the factors, 2^-19 and 2^-27, it would exceed fp16."""
    layer = tnn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0**-10, 2.0**-11]]))
        layer.bias.fill_(0.1372)
    x = torch.tensor([[2.0**-20, -(2.0**-19)], [2.0**-20, 2.0**-20]])
    policy = f"mac={mac}, weights=rn scale=tensor.pow2, activations=rn scale=tensor.pow2"
    found = computed(layer, x, policy, emulated)
    fmt = parse(mac.split("+")[1].split(".")[0])
    bias = Fraction(fmt.decode(fmt.encode(0.1372, "rn")))
    for value, product in zip(found.flatten().tolist(), (0, Fraction(3, 2) * Fraction(2) ** -30), strict=True):
        assert value == parse("fp32").decode(parse("fp32").encode(bias + product, "rn"))


@pytest.mark.parametrize("scale", ["tensor.pow2", "tensor.real", "channel.pow2", "channel.real"])
@pytest.mark.parametrize("emulated", [False, True])
def test_bias_of_scaled_convolution_stays(scale, emulated):
    torch.manual_seed(0)
    layer = tnn.Conv2d(4, 6, 3, groups=2)
    with torch.no_grad():
        layer.weight.mul_(1e-6)
        layer.bias.copy_(torch.arange(1, 7) / 8)
    policy = f"mac=e4m3fn*e4m3fn+fp16.rn, weights=rn scale={scale}.margin4, activations=rn scale={scale}.margin4"
    found = computed(layer, torch.randn(3, 4, 5, 5) * 1e-6, policy, emulated)
    # The products are below half of the last place of each bias.
    assert torch.equal(found, layer.bias[:, None, None].expand(found.shape))


def test_bias_of_blocks_with_a_scale_of_the_tensor_does_not_overflow():
    layer = tnn.Linear(16, 2)
    with torch.no_grad():
        layer.weight.fill_(2.0**-12)
        layer.bias.copy_(torch.tensor([0.5, -3.0]))
    found = computed(layer, torch.full((1, 16), 2.0**-20), "mac=nvfp4*nvfp4+e6m5.rn", False)
    assert torch.equal(found, layer.bias.expand(found.shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("real", [False, True])
def test_product_and_bias_are_rounded_once(dtype, real):
    generator = torch.Generator().manual_seed(1)
    name = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
    fmt, count = parse(name), 400
    sums = torch.randn(count, generator=generator).double()
    factor = 2.0 ** torch.randint(-9, 9, (count,), generator=generator).double()
    if real:
        factor = factor * (torch.rand(count, generator=generator) + 1).double() * torch.rand(count, generator=generator)
    # Some sums cancel, to nothing or to the error of the product.
    bias = torch.randn(count, generator=generator).double() * 2.0 ** torch.randint(
        -40, 12, (count,), generator=generator
    )
    bias = torch.where(torch.arange(count) % 3 == 0, -(sums * factor), bias)
    found = multiplied(sums, factor, dtype, bias).tolist()
    for s, f, b, one in zip(sums.tolist(), factor.tolist(), bias.tolist(), found, strict=True):
        assert one == fmt.decode(fmt.encode(Fraction(s) * Fraction(f) + Fraction(b), "rn"))


@pytest.mark.parametrize("factor", [2.0, 1.1])
def test_product_and_bias_of_special_numbers(factor):
    sums = torch.tensor([math.inf, 1, math.inf, -0.0, -0.0, math.nan, 0.0], dtype=torch.float64)
    bias = torch.tensor([1, math.inf, -math.inf, -0.0, 0.0, 1, -0.0], dtype=torch.float64)
    found = multiplied(sums, torch.tensor([factor], dtype=torch.float64), torch.float32, bias)
    assert [str(one) for one in found.tolist()] == ["inf", "inf", "nan", "-0.0", "0.0", "nan", "0.0"]
