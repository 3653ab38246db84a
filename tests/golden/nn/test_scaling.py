"""Scaling of operands in policies: factors in fractions, products as `golden.gemm` computes them on scaled operands."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.scaling import Scaling, divided, multiplied
from halfulp.hdl.formats import parse

MAC = "e4m3fn*e4m3fn+fp32.rn"
FP = "fp32*fp32+fp32.rn"
LIMITS = {"e4m3x2": 240, "e4m3fn": 448, "e5m2": 57344, "int8": 127, "bf16": Fraction(255, 128) * 2**127}


def is_binary32(value):
    return float(torch.tensor(float(value), dtype=torch.float32)) == value


@pytest.mark.parametrize("fmt", LIMITS)
@pytest.mark.parametrize("kind", ["pow2", "real"])
def test_factor_is_smallest_that_avoids_overflow(fmt, kind):
    generator = torch.Generator().manual_seed(0)
    for power in (-120, -20, 0, 20, 100):
        values = torch.randn(7, generator=generator) * 2.0**power
        found = Fraction(float(Scaling("tensor", kind).factor(values, [parse(fmt)], (0,))))
        amax, limit = Fraction(float(values.abs().max())), LIMITS[fmt]
        if found == Fraction(2) ** -126:
            assert amax <= found * limit
            continue
        below = found / 2
        if kind == "real":
            near = torch.tensor(float(found), dtype=torch.float32)
            below = Fraction(float(near.nextafter(torch.zeros(()))))
        assert found * limit >= amax > below * limit
        assert is_binary32(found)
        if kind == "pow2":
            assert math.frexp(float(found))[0] == 0.5
    # An exact power of two is not doubled.
    assert Scaling().factor(torch.tensor([448.0, -1]), [parse("e4m3fn")], (0,)) == 1
    assert Scaling(margin=3).factor(torch.tensor([448.0]), [parse("e4m3fn")], (0,)) == 8


@pytest.mark.parametrize("kind", ["pow2", "real"])
def test_factor_of_special_numbers(kind):
    scaling, fmt = Scaling("tensor", kind), [parse("e4m3fn")]
    assert scaling.factor(torch.zeros(3), fmt, (0,)).item() == 1
    assert scaling.factor(torch.zeros(0, 3), fmt, (1,)).tolist() == [[1]]
    assert scaling.factor(torch.full((2,), math.nan), fmt, (0,)).item() == 1
    assert scaling.factor(torch.tensor([math.inf, math.nan, 896, 1]), fmt, (0,)).item() == 2
    assert scaling.factor(torch.tensor([2.0**-149]), fmt, (0,)).item() == 2.0**-126
    assert scaling.factor(torch.tensor([3.4e38]), [parse("e2m1fn")], (0,)).item() * 6 >= 3.4e38
    rows = Scaling("channel", kind).factor(torch.tensor([[448.0, 1], [0, 0], [math.inf, 896]]), fmt, (1,))
    assert rows.tolist() == [[1], [1], [2]]
    assert Scaling("channel", kind).factor(torch.zeros(2, 0), fmt, (1,)).tolist() == [[1], [1]]


def test_quotients_and_results_are_rounded_once():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3000, generator=generator)
    factor = torch.rand(1, generator=generator).float().double() + 0.5
    for fmt in map(parse, ("e4m3fn", "int8", "bf16", "tf32")):
        codes = golden.encode(divided(x, factor), fmt)
        for value, code in zip(x[:300].tolist(), codes[:300].tolist(), strict=True):
            assert code == fmt.encode(Fraction(value) / Fraction(factor.item()), "rn")
    both = factor * torch.rand(3000, generator=generator).float().double()
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        fmt, given = parse(name), x.to(dtype)
        found = multiplied(given.double(), both, dtype)
        for value, by, one in zip(given[:500].tolist(), both[:500].tolist(), found[:500].tolist(), strict=True):
            assert one == fmt.decode(fmt.encode(Fraction(value) * Fraction(by), "rn"))


@pytest.mark.parametrize(("x", "a", "b", "divide"), [(9676402, 12185962, 15002427, 0), (8706787, 15714764, 9996001, 1)])
def test_results_beside_a_tie_are_not_rounded_twice(x, a, b, divide):
    """Results so close to a tie of binary32 that binary64 rounds them to it."""
    given, factor = torch.tensor([float(x)], dtype=torch.float64), torch.tensor([float(a * b)], dtype=torch.float64)
    exact = Fraction(x, a * b) if divide else Fraction(x * a * b)
    # Ties toward zero: the quotient is above its tie.
    fmt, rounding = parse("fp32"), "rh" if divide else "rn"
    if divide:
        codes = golden.encode(divided(given, factor), fmt, rounding)
    else:
        codes = golden.encode(multiplied(given, factor, torch.float32), fmt)
    twice = golden.encode(given / factor if divide else given * factor, fmt, rounding)
    assert codes.item() == fmt.encode(exact, rounding) != twice.item()


def run(layer, policy, x, gradient, emulated):
    x = x.clone().requires_grad_()
    layer.zero_grad()
    if emulated:
        with golden.emulate(policy):
            y = layer(x)
            y.backward(gradient)
    else:
        layer = nn.convert(layer, policy).model
        y = layer(x)
        y.backward(gradient)
    return y.detach(), x.grad, layer.weight.grad


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("scale", ["tensor.pow2", "tensor.real.margin1", "channel.pow2", "channel.real"])
def test_products_equal_gemm_of_scaled_operands(scale, emulated):
    torch.manual_seed(2)
    layer, x, gradient = tnn.Linear(11, 6), torch.randn(9, 11) * 1e-3, torch.randn(9, 6) * 1e-6
    x[2] = 0
    scaling = Scaling.parse(scale)
    policy = f"{MAC}, weights=rn scale={scale}, activations=e5m2.rn scale={scale}, gradients=rn scale={scale}"
    found = run(layer, policy, x, gradient, emulated)

    def factors(values, dim):
        amax = values.abs() if scaling.per == "channel" else values.abs().max().expand(values.shape)
        amax = amax.amax(dim, keepdim=True).double()
        found = amax / 448
        if scaling.kind == "pow2":
            found = 2 ** found.log2().ceil()
        else:
            near = found.float()
            found = torch.where(near.double() * 448 >= amax, near, near.nextafter(torch.tensor(9.0))).double()
        return torch.where(amax == 0, 1.0, found * 2**scaling.margin)

    def gemm(a, b, formats=("e4m3fn", "e4m3fn"), bias=None):
        left, right = factors(a, 1), factors(b, 0)
        codes = [
            golden.encode(golden.decode(golden.encode(one / by, fmt), fmt), "e4m3fn")
            for one, by, fmt in ((a.double(), left, formats[0]), (b.double(), right, formats[1]))
        ]
        found = golden.decode(golden.gemm(*codes, MAC), "fp32") * (left * right)
        return (found if bias is None else found + bias.double()).float()

    w = layer.weight.detach()
    assert torch.equal(found[0], gemm(x, w.T, ("e5m2", "e4m3fn"), layer.bias.detach()))
    assert torch.equal(found[1], gemm(gradient, w))
    assert torch.equal(found[2], gemm(gradient.T, x, ("e4m3fn", "e5m2")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:halfulp. all numbers")
@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("per", ["tensor", "channel"])
def test_scaled_convolution_is_as_exact_as_its_format(per, emulated):
    torch.manual_seed(3)
    x, gradient = torch.randn(3, 4, 7, 7) * 1e-9, torch.randn(3, 6, 4, 4) * 1e-9
    # Images, inputs and outputs differ by more than the formats hold.
    wide = per == "channel"
    images, outputs = (2.0 ** (12 * wide * torch.arange(count)) for count in (3, 6))
    cast = f"e5m9.rn scale={per}"
    policy = f"fp16*fp16+fp32.rn, weights={cast}, activations={cast}, gradients={cast}"
    for by_image in (True, False):
        layer = tnn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=by_image and not wide)
        if by_image:
            given = x * images.reshape(3, 1, 1, 1), gradient * images.reshape(3, 1, 1, 1)
            with torch.no_grad():
                layer.weight *= outputs.reshape(6, 1, 1, 1) * 2.0 ** torch.tensor([[[0]], [[24 * wide]]])
        else:
            given = x * outputs[:4].reshape(1, 4, 1, 1), gradient * outputs.reshape(1, 6, 1, 1)
        found, wanted = run(layer, policy, *given, emulated), run(layer, FP, *given, emulated)
        for one, other in list(zip(found, wanted, strict=True))[slice(2) if by_image else slice(2, 3)]:
            largest = other.abs().amax((2, 3) if wide else (0, 1, 2, 3), keepdim=True)
            assert ((one - other).abs() <= 0.01 * largest).all()
    rough = run(layer, "fp16*fp16+fp32.rn", *given, emulated)[2]
    assert ((rough - wanted[2]).abs() > 0.5 * wanted[2].abs().amax((2, 3), keepdim=True)).any()


def test_batched_products_have_factors_by_row():
    torch.manual_seed(4)
    a, b = torch.randn(2, 3, 5), torch.randn(2, 5, 4)
    policy = f"{MAC}, activations=rn scale=channel.pow2"
    with golden.emulate(policy):
        found = a @ b
    layer = nn.Bmm(policy=policy)
    assert torch.equal(found, layer(a, b))
    small = a * torch.tensor([[1.0], [2.0**-40], [2.0**40]])
    scaled = layer(small, b)
    assert torch.equal(scaled / torch.tensor([[1.0], [2.0**-40], [2.0**40]]), found)


def test_infinities_and_nan_stay():
    x = torch.tensor([[1.0, 2.0], [math.inf, 1.0], [math.nan, 0.0]])
    layer = nn.Linear(2, 1, bias=False, policy="e5m2*e5m2+fp32.rn, activations=rn scale=tensor.real")
    with torch.no_grad():
        layer.weight.fill_(1)
    found = layer(x).flatten().tolist()
    # Half an ulp of the factor and of the result.
    assert abs(found[0] - 3) <= 3 * 2.0**-23
    assert found[1] == math.inf
    assert math.isnan(found[2])


def test_products_in_torch_take_scaled_roundings():
    # Sums of products of these numbers, with factors that are powers of two, are exact in float32.
    w, x = torch.randn(5, 8) * 1e-9, torch.randint(-8, 9, (3, 8)).float()
    layer = tnn.Linear(8, 5, bias=False)
    with torch.no_grad():
        layer.weight.copy_(w)
    for per in ("tensor", "channel"):
        found = run(layer, f"fp32, weights=e4m3fn.rn scale={per}", x, torch.ones(3, 5), False)[0]
        factor = Scaling(per).factor(w, [parse("e4m3fn")], (1,))
        rounded = golden.decode(golden.encode(w / factor, "e4m3fn"), "e4m3fn") * factor
        assert torch.equal(found, x @ rounded.float().T)


def test_int8_gradients_round_as_the_unit_does():
    torch.manual_seed(5)
    layer, x, gradient = tnn.Linear(4, 3, bias=False), torch.randn(5, 4), torch.randn(5, 3)
    policy = f"{FP}, gradients=int8.sr3@plateau3 scale=tensor.pow2.current"
    found = run(layer, policy, x, gradient, False)[2]
    factor = Scaling().factor(gradient, [parse("int8")], (1,))
    # Integer gradients, whose products with x are sums of multiples of the factor.
    integers = torch.linalg.lstsq(x.T.double(), found.T.double() / factor).solution
    assert factor <= gradient.abs().max() / 63
    assert ((found / factor).abs() < 127 * x.abs().sum()).all()
    assert integers.shape == (5, 3)
    again = run(layer, policy, x, gradient, False)[2]
    assert torch.equal(found, again)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("rn scale=tensor", "rn scale=tensor.pow2.current"),
        ("scale = channel . real", "rn scale=channel.real.current"),
        ("e4m3fn.rn.sat 2:4 scale=tensor.margin2", "e4m3fn.rn.sat 2:4 scale=tensor.pow2.current.margin2"),
        ("scale=tensor.margin-1 int8.sr3", "int8.sr3 scale=tensor.pow2.current.margin-1"),
    ],
)
def test_cast_with_scale_parse_and_str_are_inverse(text, canonical):
    cast = nn.Cast.parse(text)
    assert str(cast) == canonical
    assert nn.Cast.parse(canonical) == cast
    policy = nn.Policy.parse(f"{MAC}, gradients={text}")
    assert nn.Policy.parse(str(policy)) == policy
    assert policy.gradients == cast


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: nn.Cast.parse("rn scale=row"), ValueError, "channel"),
        (lambda: nn.Cast.parse("rn scale=tensor.pow3"), ValueError, "pow2"),
        (lambda: nn.Cast.parse("rn scale=tensor.pow2.real"), ValueError, "invalid"),
        (lambda: nn.Cast.parse("rn scale=tensor scale=channel"), ValueError, "two"),
        (lambda: nn.Cast.parse("rn scale=tensor.margin999"), ValueError, "margin"),
        (lambda: Scaling(margin=1.5), TypeError, "margin"),
        (lambda: nn.Cast(scale="tensor"), TypeError, "Scaling"),
        (lambda: nn.Policy.parse(f"{MAC}, bias=rn scale=tensor"), ValueError, "bias"),
        (lambda: nn.Policy.parse(f"{MAC}, optimizer=bf16.rn scale=tensor"), ValueError, "optimizer"),
        (lambda: nn.Policy.parse(f"{MAC}, update=bf16.rn scale=tensor"), ValueError, "update"),
        (lambda: nn.Quantize("bf16.rn scale=tensor"), ValueError, "scale"),
    ],
)
def test_scaling_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error, match=keyword):
        make()
