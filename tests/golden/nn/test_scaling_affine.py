"""Zero points and factors of groups in policies, computed in fractions."""

from fractions import Fraction

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.scaling import Scaling
from halfulp.hdl.formats import parse

EXACT = "uint8*int8+exact=fp32.rn"


def affine(values, fmt, kind="real"):
    """Return differences from the zero point and the factor of a list of numbers."""
    fmt = parse(fmt)
    low, high = fmt.least_integer, fmt.largest_integer
    values = [Fraction(value) for value in values]
    least, most = min(0, *values), max(0, *values)
    factor = Fraction(1)
    if most > least:
        factor = Fraction(float(torch.tensor(float((most - least) / (high - low)))))
        if kind == "pow2":
            factor = Fraction(2) ** -200
            while factor * (high - low) < most - least:
                factor *= 2
        elif factor * (high - low) < most - least:
            factor = Fraction(float(torch.tensor(float(factor)).nextafter(torch.tensor(9.0))))
    zero = min(low - round(least / factor), high)
    return [min(max(round(value / factor) + zero, low), high) - zero for value in values], factor, zero


def rows(values, fmt, per, kind):
    """Return differences and factors of the rows of a matrix."""
    if per == "tensor":
        flat, factor, _ = affine(values.flatten().tolist(), fmt, kind)
        return torch.tensor(flat).reshape(values.shape), [factor] * len(values)
    made = [affine(row.tolist(), fmt, kind) for row in values]
    return torch.tensor([row for row, _, _ in made]), [factor for _, factor, _ in made]


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize(("per", "kind"), [("tensor", "real"), ("tensor", "pow2"), ("channel", "real")])
def test_products_of_differences(per, kind, emulated):
    torch.manual_seed(1)
    layer, x = tnn.Linear(7, 4), torch.randn(5, 7) + 0.7
    scale = f"scale={per}.{kind}.affine"
    policy = f"{EXACT}, activations=rn {scale}, weights=rn {scale}"
    if emulated:
        with golden.emulate(policy):
            found = layer(x)
    else:
        found = nn.convert(layer, policy).model(x)
    w, bias = layer.weight.detach(), layer.bias.detach()
    (a, left), (b, right) = rows(x, "uint8", per, kind), rows(w, "int8", per, kind)
    sums, fp32 = a @ b.T, parse("fp32")
    for i, by in enumerate(left):
        for j, other in enumerate(right):
            exact = int(sums[i, j]) * by * other + Fraction(float(bias[j]))
            assert found[i, j].item() == fp32.decode(fp32.encode(exact))


def test_convolution_pads_with_the_zero_point():
    torch.manual_seed(2)
    layer, x = tnn.Conv2d(2, 3, 3, padding=1, bias=False), torch.rand(1, 2, 4, 4)
    policy = f"{EXACT}, activations=rn scale=tensor.pow2.affine, weights=rn scale=tensor.pow2.affine"
    found = nn.convert(layer, policy).model(x)
    (a, left, _), (b, right, _) = (
        affine(values.flatten().tolist(), fmt, "pow2")
        for values, fmt in ((x, "uint8"), (layer.weight.detach(), "int8"))
    )
    a, b = torch.tensor(a, dtype=torch.float64).reshape(x.shape), torch.tensor(b).double().reshape(layer.weight.shape)
    expected = torch.nn.functional.conv2d(a, b, padding=1) * float(left * right)
    assert found.double().equal(expected)


@pytest.mark.parametrize(("word", "end"), [("real", ""), ("pow2", ".affine"), ("real", ".affine")])
def test_groups_of_weights(word, end):
    torch.manual_seed(3)
    layer, x = tnn.Linear(10, 3, bias=False), torch.randn(4, 10)
    made = torch.zeros(3, 10)
    for row in range(3):
        for first in (0, 4, 8):
            group = layer.weight.detach()[row, first : first + 4]
            if end:
                numbers, factor, _ = affine(group.tolist(), "int4", word)
            else:
                factor = Fraction(float(Scaling(kind=word).factor(group, [parse("int4")], (0,))))
                numbers = [max(min(round(Fraction(value) / factor), 7), -8) for value in group.tolist()]
            for place, number in enumerate(numbers):
                made[row, first + place] = float(parse("bf16").decode(parse("bf16").encode(number * factor)))
    policy = f"bf16*bf16+fp32.rn, weights=int4.rn scale=group4.{word}{end}"
    by_hand = tnn.Linear(10, 3, bias=False)
    by_hand.weight.data = made
    converted = nn.convert(layer, policy).model
    assert converted(x).equal(nn.convert(by_hand, "bf16*bf16+fp32.rn").model(x))
    x.requires_grad_()
    # The input gradient has the weights of the forward product.
    (gradient,) = torch.autograd.grad(converted(x).sum(), x)
    (expected,) = torch.autograd.grad(nn.convert(by_hand, "bf16*bf16+fp32.rn").model(x).sum(), x)
    assert gradient.equal(expected)


def test_groups_of_channels_in_a_convolution():
    torch.manual_seed(4)
    policy = "forward=fp32, weights=int4.rn scale=group2.pow2"
    layer = tnn.Conv2d(3, 2, 2, bias=False)
    made, limit = layer.weight.detach().clone(), 7
    for channels in (slice(0, 2), slice(2, 3)):
        part = made[:, channels]
        factor = 2.0 ** (part.abs().amax(1, keepdim=True) / limit).log2().ceil()
        made[:, channels] = (part / factor).round() * factor
    # Integers, whose sums are exact in any order.
    x = torch.randint(-9, 10, (1, 3, 4, 4)).float()
    assert nn.convert(layer, policy).model(x).equal(torch.nn.functional.conv2d(x, made))


@pytest.mark.parametrize(
    "policy",
    ["bf16*bf16+fp32, weights=int4.rn scale=group4.real.affine", f"{EXACT}, activations=rn scale=tensor.affine"],
)
def test_empty_operands(policy):
    for rows, inputs in ((0, 6), (2, 0)):
        layer = nn.convert(tnn.Linear(inputs, 3, bias=False), policy).model
        assert layer(torch.ones(rows, inputs)).equal(torch.zeros(rows, 3))


def test_zero_is_exact_in_a_tensor_of_one_sign():
    scaling, fmt = Scaling("tensor", "real", affine=True), parse("uint8")
    for values in (torch.tensor([0.0, 3, 5]), torch.tensor([2.0, 3]), torch.tensor([-2.0, -3]), torch.zeros(2)):
        quotients, factor, (low, high) = scaling.quotients(values, fmt, (0,), ((0,), 1))
        assert high - low == 255
        assert low <= 0 <= high
        assert quotients.min() >= low - 0.5
        assert quotients.max() <= high + 0.5
        assert factor > 0


@pytest.mark.parametrize(
    "text", ["tensor.real.affine.current", "group128.pow2.current", "group32.real.affine.current.margin1"]
)
def test_texts_of_scales(text):
    assert str(Scaling.parse(text)) == text


REFUSED = [
    ("tensor.affine.affine", "invalid scale 'tensor.affine.affine': expected tensor, channel or group128"),
    ("group0.real", "per of a scale must be tensor, channel or, for example, group128, not 'group0'"),
    ("tensor.affine.delayed", "histories have no least element for a zero point; use current in place of delayed"),
    ("group4.delayed", "delayed scaling has one factor for a tensor"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_scales_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Scaling.parse(text)


POLICIES = [
    (
        "e4m3fn*int8+fp32, activations=rn scale=tensor.affine",
        "activations have zero points in forward, .*not for e4m3fn",
    ),
    ("int8*int8-wrap+int32, weights=rn scale=tensor.affine", "weights have zero points in forward.* not for int8-wrap"),
    (
        "int8*int4+int32, weights=int4.rn scale=group32.real",
        "these must be in floats, such as bf16, not in int4; blocks",
    ),
    (
        "bf16*bf16+fp32, weights=rn scale=group32.real",
        "weights have scales of groups, which need a format, such as int4",
    ),
    (
        "bf16*bf16+fp32, weights=int32.rn scale=group32.real",
        "groups, which multiply numbers of up to 28 bits, not int32",
    ),
    (
        "int64*int8+int64, activations=rn scale=tensor.affine",
        "fixed point of up to 52 bits that saturates, .* not for int64",
    ),
    ("mxfp8_e4m3*mxfp8_e4m3+fp32, weights=rn scale=tensor.affine", "weights have a scale, but blocks"),
]


@pytest.mark.parametrize(("policy", "message"), POLICIES)
def test_policies_that_are_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        nn.Policy.parse(policy)


def test_elements_saturate_at_the_ends_of_the_range():
    layer = tnn.Linear(2, 1, bias=False)
    # Both ends are ties that round away from zero, 256 apart.
    layer.weight.data = torch.tensor([[-127.5, 127.5]])
    converted = nn.convert(layer, "forward=fp32, weights=int8.rn scale=tensor.real.affine").model
    assert converted(torch.eye(2)).flatten().tolist() == [-128, 127]
    narrow = nn.convert(layer, "forward=fp32, weights=int8.rn scale=tensor.pow2.affine.margin-1").model
    assert narrow(torch.eye(2)).flatten().tolist() == [-127.5, 0]
