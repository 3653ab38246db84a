"""Products, convolutions and sums of emulated programs against those of layers and of integers."""

import itertools
from collections import Counter
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halfulp import golden
from halfulp.golden.nn import convert
from halfulp.golden.program import products
from halfulp.hdl.formats import parse
from tests.emulated_programs import BF16, finite_numbers

FP32 = "fp32*fp32+fp32.rn, elementwise=fp32.rn, optimizer=fp32.rn"


def _step(model, x, gradient):
    x = x.clone().requires_grad_()
    y = model(x)
    y.backward(gradient)
    return [y.detach(), x.grad, *(one.grad for one in model.parameters())]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mac", ["bf16*bf16+fp32.rn", "e5m2*e4m3fn+e6m5.ro", "posit8*posit8+posit16.rn"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(9, 5, bias=False), (3, 9)),
        (lambda: nn.Conv2d(4, 6, 3, 2, 1, 1, 2, bias=False), (2, 4, 9, 8)),
    ],
)
def test_emulated_products_equal_those_of_layers(layer, shape, mac):
    torch.manual_seed(0)
    model = layer()
    x = torch.randn(shape)
    gradient = torch.randn_like(model(x))
    wanted = _step(convert(model, mac).model, x, gradient)
    with golden.emulate(mac):
        found = _step(model, x, gradient)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    ("kind", "shape", "parts"),
    [
        (nn.Conv1d, (2, 4, 11), {"kernel_size": 3, "stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
        (nn.Conv2d, (2, 2, 7, 6), {"kernel_size": (3, 2), "stride": (1, 2), "padding": (2, 0)}),
        (nn.Conv3d, (1, 2, 4, 5, 3), {"kernel_size": 2, "padding": 1}),
        (nn.ConvTranspose1d, (2, 4, 5), {"kernel_size": 4, "stride": 3, "padding": 2, "output_padding": 1}),
        (nn.ConvTranspose2d, (2, 4, 4, 5), {"kernel_size": 3, "stride": 2, "padding": 3, "groups": 2}),
        (nn.ConvTranspose3d, (1, 2, 3, 2, 3), {"kernel_size": 2, "stride": 2, "dilation": 2}),
    ],
)
def test_convolutions_of_integers_equal_torch(kind, shape, parts):
    generator = torch.Generator().manual_seed(0)
    layer = kind(shape[1], 6, **parts)
    with torch.no_grad():
        for one in layer.parameters():
            one.copy_(torch.randint(-8, 9, one.shape, generator=generator))
    x = torch.randint(-8, 9, shape, generator=generator).float()
    gradient = torch.randint(-8, 9, layer(x).shape, generator=generator).float()
    wanted = _step(layer, x, gradient)
    layer.zero_grad()
    with golden.emulate(FP32, strict=True):
        found = _step(layer, x, gradient)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("parts", list(itertools.product([2, (4, 2)], [None, 1, 3], [0, 1], [False, True])))
def test_average_pooling_of_integers_equals_torch(parts):
    kernel, stride, padding, ceil = parts
    x = torch.randint(-8, 9, (2, 3, 9, 7), generator=torch.Generator().manual_seed(0)).float().mul(64)

    def run():
        given = x.clone().requires_grad_()
        y = F.avg_pool2d(given, kernel, stride, padding, ceil, divisor_override=8)
        y.backward(torch.arange(float(y.numel())).reshape(y.shape))
        return y.detach(), given.grad, F.avg_pool2d(x, kernel, stride, padding, ceil, False)

    wanted = run()
    with golden.emulate(FP32, strict=True):
        found = run()
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("order", ["sequential", "pairwise", "exact"])
def test_sum_has_order_of_policy(order):
    fmt = parse("e5m2")
    x = finite_numbers(fmt, 37)
    with golden.emulate(f"e5m2*e5m2+e6m5.rz, elementwise=e5m2.rn, reductions={order}"):
        found = float(x.float().sum())
    acc = parse("e6m5")

    def add(a, b):
        return acc.decode(acc.encode(Fraction(a) + Fraction(b), "rz"))

    values = x.tolist()
    if order == "exact":
        wanted = acc.decode(acc.encode(sum(map(Fraction, values)), "rz"))
    elif order == "sequential":
        wanted = 0
        for value in values:
            wanted = add(wanted, value)
    else:
        while len(values) > 1:
            odd = values[len(values) // 2 * 2 :]
            values = [add(a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + odd
        wanted = values[0]
    assert found == wanted


def test_attention_products_equal_gemm_of_their_operands(monkeypatch):
    compared = []
    multiply = products.matmul

    def checked(call, phase, a, b, roles, start=None):
        found = multiply(call, phase, a, b, roles, start)
        mac = getattr(call.policy, phase)
        codes = golden.encode(a, mac.a), golden.encode(b, mac.b)
        begin = None if start is None else golden.encode(start, mac.o)
        wanted = golden.decode(golden.gemm(*codes, mac, start=begin), mac.o)
        compared.append(torch.equal(found[0].double(), wanted))
        return found

    monkeypatch.setattr(products, "matmul", checked)
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    with golden.emulate(BF16, strict=True):
        model(torch.randn(2, 4, 8), torch.randn(2, 3, 8)).square().mean().backward()
    assert len(compared) > 40
    assert all(compared)


def test_passes_round_an_operand_with_the_same_words():
    layer, x = nn.Linear(8, 6, bias=False), torch.eye(8, requires_grad=True)
    gradient = torch.randn(8, 6)
    with golden.emulate("e5m2*e5m2+fp32.rn, weights=e5m2.sr4, gradients=e5m2.sr4"):
        y = layer(x)
        y.backward(torch.eye(8, 6))
        rounded = y.detach().clone()
        assert torch.equal(x.grad[:6], rounded.T)
    weight, x = nn.Parameter(torch.eye(6, 8)), torch.eye(8, requires_grad=True)
    with golden.emulate("e5m2*e5m2+fp32.rn, gradients=e5m2.sr4"):
        (x @ weight.T).backward(gradient)
    assert torch.equal(x.grad[:, :6], weight.grad.T)


def test_slices_of_a_tensor_have_gradients_in_two_phases():
    x = torch.randn(4, 6, requires_grad=True)
    with golden.emulate(BF16) as run:
        q, k = x.chunk(2, -1)
        (q @ k.mT).sum().backward()
    phases = Counter(row.phase for row in run.report().rows if row.macs)
    assert phases == dict.fromkeys(["forward", "input_gradient", "weight_gradient"], 1)


def test_weight_first_and_bias_give_the_same_sums():
    torch.manual_seed(0)
    weight, x, bias = nn.Parameter(torch.randn(3, 4)), torch.randn(4, 5), torch.randn(5)
    policy = "e5m2*e4m3fn+e6m5.rn, elementwise=bf16.rn"
    with golden.emulate(policy):
        found = torch.addmm(bias, weight, x), torch.addmm(bias, weight.detach().clone(), x)
    # A parameter is operand b, wherever it stands.
    codes = golden.encode(x.T, "e5m2"), golden.encode(weight.detach().T, "e4m3fn")
    start = golden.encode(bias.detach().unsqueeze(1), "e6m5")
    wanted = golden.decode(golden.gemm(*codes, "e5m2*e4m3fn+e6m5.rn", start=start), "e6m5")
    assert torch.equal(found[0].detach().T.double(), wanted)
    assert not torch.equal(found[0], found[1])


def test_product_with_a_parameter_on_the_left_is_contiguous():
    weight = nn.Parameter(torch.randn(3, 4))
    with golden.emulate(BF16, strict=True):
        assert torch.equal((weight @ torch.ones(4, 2)).view(-1), (weight @ torch.ones(4, 2)).flatten())


@pytest.mark.slow
def test_emulate_takes_long_sums():
    x = torch.ones(1, 65536)
    with golden.emulate("bf16*bf16+bf16.rn, elementwise=bf16.rn", strict=True):
        # Sums of ones end at 2^8, at which the last place is 2.
        assert float(x @ x.T) == 256
        assert float(x.sum()) == 256
