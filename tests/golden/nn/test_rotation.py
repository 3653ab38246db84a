"""Random Hadamard rotation of the operands of products."""

import pytest
import torch
import torch.nn.functional as F

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn import Rotation

EXACT = "fp32*fp32+e11m52.rn"
"""Arithmetic in which products of small integers and of their rotations are exact."""


def hadamard(length):
    """Return the Hadamard matrix of Sylvester, by its definition."""
    return torch.tensor(
        [[(-1) ** (row & column).bit_count() for column in range(length)] for row in range(length)], dtype=torch.float64
    )


def integers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=generator).to(torch.float64)


@pytest.mark.parametrize("length", [4, 16, 64])
def test_rotation_multiplies_groups_by_signs_and_hadamard_matrix(length):
    x = integers(3, 2 * length)
    turned = Rotation(length).of(x, -1, 1, 77)
    identity = torch.eye(2 * length, dtype=torch.float64)
    matrix = Rotation(length).of(identity, -1, 1, 77)
    signs = matrix[:length, 0] * length**0.5
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert torch.equal(matrix[:length, :length], signs[:, None] * hadamard(length) / length**0.5)
    assert torch.equal(matrix[length:, length:], matrix[:length, :length])
    assert torch.equal(turned, x @ matrix)
    assert not torch.equal(turned, Rotation(length).of(x, -1, 1, 78))


@pytest.mark.parametrize(("size", "groups"), [(1, 1), (13, 1), (16, 1), (42, 3), (100, 2)])
def test_rotation_of_both_operands_keeps_products(size, groups):
    x, y = integers(5, size), integers(size, 7, seed=1)
    a, b = Rotation().of(x, 1, groups, 5), Rotation().of(y, 0, groups, 5)
    torch.testing.assert_close(a @ b, x @ y, rtol=1e-13, atol=1e-11)
    torch.testing.assert_close(a.norm(), x.norm(), rtol=1e-14, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("products", ["", " forward", " input_gradient weight_gradient"])
def test_exact_layers_with_rotation_match_torch(products):
    """All three products and the gradient of the bias, in convolutions in groups and in linear layers."""
    policy = f"{EXACT}, hadamard=4{products}"
    for layer, shape in (
        (nn.Conv2d(8, 10, 3, groups=2, stride=2, padding=1, policy=policy), (5, 8, 5, 4)),
        (nn.Linear(9, 8, policy=policy), (2, 4, 9)),
    ):
        layer = layer.to(torch.float64)
        for number, parameter in enumerate(layer.parameters()):
            parameter.data = integers(*parameter.shape, seed=number)
        x = integers(*shape, seed=5).requires_grad_()
        y = layer(x)
        plain = (
            F.linear(x, layer.weight, layer.bias)
            if isinstance(layer, nn.Linear)
            else F.conv2d(x, layer.weight, layer.bias, 2, 1, 1, 2)
        )
        assert torch.equal(y, plain)
        gradient = integers(*y.shape, seed=6)
        inputs = (x, layer.weight, layer.bias)
        for ours, torchs in zip(
            torch.autograd.grad(y, inputs, gradient), torch.autograd.grad(plain, inputs, gradient), strict=True
        ):
            assert torch.equal(ours, torchs)


def test_blocks_are_quantized_after_rotation():
    """The weight gradient is the product of rotated blocks, and the bias gradient that of the values themselves."""
    mac = "nvfp4*nvfp4+fp32.rn"
    torch.manual_seed(1)
    x, gradient = torch.randn(32, 40), torch.randn(32, 12)
    found = {}
    for text in (mac, f"{mac}, hadamard=16 weight_gradient"):
        layer = nn.Linear(40, 12, policy=text, seed=3)
        layer.weight.data, layer.bias.data = torch.linspace(-1, 1, 480).reshape(12, 40), torch.zeros(12)
        y = layer(x)
        found[text] = (y, *torch.autograd.grad(y, (layer.weight, layer.bias), gradient))
    (y, plain, bias), (same_y, turned, same_bias) = found.values()
    assert torch.equal(y, same_y)
    assert torch.equal(bias, same_bias)
    assert not torch.equal(plain, turned)
    exact = gradient.mT.double() @ x.double()
    for one in (plain, turned):
        assert (one - exact).norm() / exact.norm() < 0.2


def test_rotation_spreads_outliers():
    """With an outlier in each block of msfp12, the rotation halves the error of the block."""
    torch.manual_seed(2)
    x = torch.randn(64, 128)
    x[:, 5::16] *= 16

    def error(values):
        found = golden.dequantize_blocks(golden.quantize_blocks(values, "msfp12"), "msfp12")
        return float((found - values).norm())

    assert error(Rotation(16).of(x, -1, 1, 9)) < error(x) / 2


def test_emulated_programs_rotate():
    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 96).reshape(32, 3))

        def forward(self, x):
            return x @ self.weight

    x, program, made = torch.randn(4, 32), Program(), []
    for text in ("", ", hadamard=16", ", hadamard=16", ", hadamard=16 weight_gradient"):
        with golden.emulate(f"mxfp4*mxfp4+fp32.rn{text}", seed=7):
            made.append(program(x))
    assert not torch.equal(made[0], made[1])
    assert torch.equal(made[1], made[2])
    assert torch.equal(made[0], made[3])


def test_rotation_ignores_operands_of_other_products():
    """Sparse weights are no operand of the weight gradient, and gradients none of the forward product."""
    for text in (
        f"{EXACT}, weights=2:4, hadamard=16 weight_gradient",
        "int8*int8+fp32.rn, gradients=rn scale=tensor.pow2.delayed4, hadamard=16 forward",
    ):
        assert str(nn.Policy.parse(text).hadamard) in text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nvfp4*nvfp4+fp32.rn, hadamard=12", "power of two, not 12"),
        ("nvfp4*nvfp4+fp32.rn, hadamard=1", "2 to 1024, not 1"),
        ("nvfp4*nvfp4+fp32.rn, hadamard=", "expected 16"),
        ("nvfp4*nvfp4+fp32.rn, hadamard=weight_gradient", "expected 16"),
        ("nvfp4*nvfp4+fp32.rn, hadamard=16 backward", "unknown product of a rotation 'backward'"),
        ("nvfp4*nvfp4+fp32.rn, hadamard=16 forward forward", "twice"),
        ("fp32, hadamard=16", "torch's own arithmetic"),
        ("e5m2*e5m2+fp32.rn, weights=2:4, hadamard=16", "sparsity 2:4"),
        ("int8*int8+fp32.rn, weights=rn scale=tensor.pow2.delayed4, hadamard=16", "delayed"),
    ],
)
def test_rotations_refuse(text, word):
    with pytest.raises(ValueError, match=word):
        nn.Policy.parse(text)


def test_rotations_refuse_other_types():
    with pytest.raises(TypeError, match="expected a length"):
        nn.Policy.of(EXACT, hadamard=1.5)
    with pytest.raises(TypeError, match="not bool"):
        Rotation.parse(True)
    with pytest.raises(TypeError, match="tuple"):
        Rotation(16, ())


def test_texts_of_rotations_round_trip():
    for text in ("nvfp4*nvfp4+fp32.rn, gradients=sr8, hadamard=16 weight_gradient", f"{EXACT}, hadamard=32"):
        assert nn.Policy.parse(str(nn.Policy.parse(text))) == nn.Policy.parse(text)
    policy = nn.Policy.of("mxfp4*mxfp4+fp32.rn", hadamard=8)
    assert str(policy) == "mxfp4*mxfp4+fp32.rn, hadamard=8"
    assert policy.stochastic
    assert policy.product("forward") == "mxfp4*mxfp4+fp32.rn, hadamard=8"
