"""Element-wise operations and functions of emulated programs against exact results."""

import dataclasses
import math
from fractions import Fraction

import mpmath
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halfulp import golden
from halfulp.golden.function_table import ABOVE_LIMIT, BELOW_LIMIT, FUNCTIONS
from halfulp.golden.nn import Cast
from halfulp.golden.nn.draw import words
from halfulp.golden.program import dispatch
from halfulp.golden.program.arithmetic import chained, compute
from halfulp.hdl.formats import parse
from tests.emulated_programs import BF16, finite_numbers

LIMITS = BELOW_LIMIT | ABOVE_LIMIT

EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rounding", ["rn", "ra", "rz", "ru", "rd", "ro", "sr4"])
@pytest.mark.parametrize("text", ["e5m2", "e4m3fn", "bf16", "fp16", "fp32", "tf32", "posit8", "fxp4.4"])
def test_elementwise_rounds_exact_result_once(text, rounding):
    fmt = parse(text)
    cast = Cast.parse(f"{text}.{rounding}")
    x, y = finite_numbers(fmt, 150), finite_numbers(fmt, 150, 1)
    for name, exact in EXACT.items():
        found = compute(name, (x, y), cast, 5, torch.float64)
        random = words(5, 4, tuple(x.shape), x.device) if cast.rounding.bits else torch.zeros(len(x), dtype=torch.int64)
        for a, b, z, word in zip(x.tolist(), y.tolist(), found.tolist(), random.tolist(), strict=True):
            if name == "div" and b == 0:
                continue
            value = exact(Fraction(a), Fraction(b))
            wanted = fmt.decode(fmt.encode(value, cast.rounding, random=word))
            assert z == wanted or (math.isnan(z) and str(wanted) == "nan"), (name, a, b, z, wanted)


@pytest.mark.parametrize("rounding", ["rn", "rz", "ru", "ro"])
@pytest.mark.parametrize("text", ["e5m2", "bf16", "fp32", "posit16e1"])
def test_square_root_rounds_exact_result_once(text, rounding):
    fmt, cast = parse(text), Cast.parse(f"{text}.{rounding}")
    x = finite_numbers(fmt, 200).abs()
    for a, z in zip(x.tolist(), compute("sqrt", (x,), cast, 5, torch.float64).tolist(), strict=True):
        # Truncated far below the last place, with a bit for the rest.
        scaled = Fraction(a) * 4**300
        root = math.isqrt(int(scaled))
        value = Fraction(2 * root + (root * root != scaled), 2**301)
        assert z == fmt.decode(fmt.encode(value, cast.rounding))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("text", [pytest.param("e4m3fn", marks=pytest.mark.slow), "e5m2"])
def test_function_rounds_correctly_for_all_codes(text, name):
    fmt = parse(text)
    x = finite_numbers(fmt, 1 << 12).unique()
    roundings = ["rn", "rz", "ru", "ro"]
    found = [compute(name, (x,), Cast.parse(f"{text}.{one}"), 0, torch.float64).tolist() for one in roundings]
    for place, a in enumerate(x.tolist()):
        with mpmath.workprec(1500):
            try:
                value = FUNCTIONS[name][0](mpmath.mpf(a))
            except (ValueError, ZeroDivisionError):
                continue
            if isinstance(value, mpmath.mpc) or mpmath.isnan(value) or mpmath.isinf(value) or a == 0:
                continue
            significand, exponent = value.man_exp
            # Far beyond the range of the formats, whose results do not depend on the number.
            exponent = max(min(exponent, 1000), -10000)
            exact = int(mpmath.sign(value)) * significand * Fraction(2) ** exponent
        if name in LIMITS and exact.numerator.bit_length() < 60:
            # As close to its limit as 1,500 bits show; the next test is about these.
            continue
        for rounding, results in zip(roundings, found, strict=True):
            wanted, z = fmt.decode(fmt.encode(exact, rounding)), results[place]
            assert z == wanted or (math.isnan(z) and str(wanted) == "nan"), (name, a, rounding)


def test_function_does_not_reach_its_limit():
    x = torch.tensor([60000.0, 3e38], dtype=torch.float64)
    below = torch.tensor([1 - 2.0**-8] * 2, dtype=torch.float64)
    assert torch.equal(compute("tanh", (x,), Cast.parse("bf16.rz"), 0, torch.float64), below)
    assert torch.equal(
        compute("tanh", (x,), Cast.parse("bf16.rn"), 0, torch.float64), torch.ones(2, dtype=torch.float64)
    )


def test_interpolation_finds_places_in_narrow_formats():
    x = torch.zeros(1, 1, 40, requires_grad=True)
    x.data[0, 0, 33] = 1
    wanted = F.interpolate(x, 100, mode="linear")
    with golden.emulate("e5m2*e5m2+fp32.rn, elementwise=e5m2.rn", strict=True):
        found = F.interpolate(x, 100, mode="linear")
        found.sum().backward()
    assert torch.equal(found != 0, wanted != 0)
    assert (x.grad > 0).all()


def test_gradient_of_weight_norm_has_the_value_of_torch():
    layer, x = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), torch.randn(5, 4)
    layer(x).square().sum().backward()
    wanted = [one.grad.clone() for one in layer.parameters()]
    layer.zero_grad()
    with golden.emulate("fp32*fp32+fp32.rn, elementwise=fp32.rn", strict=True):
        layer(x).square().sum().backward()
    for found, gradient in zip(layer.parameters(), wanted, strict=True):
        torch.testing.assert_close(found.grad, gradient)


def test_remainder_has_the_sign_of_the_divisor():
    x = torch.tensor([-5.0, -0.5, 0.0, 0.5, 5.0])
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=bf16.rn", strict=True):
        assert torch.equal(x % 3, torch.remainder(x, 3))
        assert torch.equal(torch.remainder(x, -3.0), torch.tensor([-2, -0.5, 0, -2.5, -1]))


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
        torch.empty(0, 3),
        torch.tensor(1.3),
        torch.randn(4, 6)[::2, ::3].T,
        torch.randn(5, dtype=torch.float64),
        torch.randn(5, dtype=torch.bfloat16),
    ],
)
def test_elementwise_takes_tensors_of_all_kinds(x):
    # The exact result in binary64, rounded once; torch gives it for numbers of bf16.
    rounded = x.bfloat16()
    with golden.emulate(BF16, strict=True):
        product, total = x * x, x.clone().add_(1)
    assert product.dtype == x.dtype
    assert product.stride() == (x * x).stride()
    torch.testing.assert_close(product, (rounded * rounded).to(x.dtype), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(total, (rounded + 1).to(x.dtype), rtol=0, atol=0, equal_nan=True)


def test_real_results_of_integers_are_rounded():
    x = torch.arange(1, 5)
    with golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=e5m2.rn", strict=True) as run:
        found = x / 3, x * 0.3
        assert (x + x).tolist() == [2, 4, 6, 8]
    for numbers, exact in zip(
        found, (x.double() / 3, x * float(golden.decode(golden.encode(0.3, "e5m2"), "e5m2"))), strict=True
    ):
        assert torch.equal(numbers.double(), golden.decode(golden.encode(exact, "e5m2"), "e5m2"))
    assert len(run.report().rows) == 2


@pytest.mark.parametrize(
    ("dtype", "policy"),
    [
        (torch.float16, BF16),
        (torch.float64, "bf16*bf16+fp64.rn, elementwise=bf16.rn, reductions=fp64.rn pairwise"),
    ],
)
def test_emulate_rejects_formats_that_would_round_twice(dtype, policy):
    x = torch.ones(3, dtype=dtype)
    with pytest.raises(ValueError, match="hold"), golden.emulate(policy):
        (x + x).sum()


@pytest.mark.slow
@pytest.mark.parametrize("number", ["bf16.rn", "fp16-ftz.rz", "bf16.sr8", "fp32.rn"])
def test_gradients_of_gates_in_one_call_have_bits_and_rows_of_their_parts(number, monkeypatch):
    def step():
        torch.manual_seed(3)
        cells, x = nn.LSTMCell(6, 8), torch.randn(2, 3, 6)
        cells.weight_hh.data[0] *= 1e30
        with golden.emulate(f"bf16*bf16+fp32.rn, elementwise={number}") as run:
            cells(x[1], cells(x[0]))[0].square().sum().backward()
        rows = [dataclasses.replace(row, seconds=0.0) for row in run.report().rows]
        return [one.grad for one in cells.parameters()], sorted(rows, key=str)

    monkeypatch.setenv("HALFULP_KERNEL", "native")
    calls = []
    monkeypatch.setattr(dispatch, "chained", lambda *given: calls.append(chained(*given)) or calls[-1])
    found, rows = step()
    assert all((one is not None) == (number in ("bf16.rn", "fp16-ftz.rz")) for one in calls)
    assert calls
    monkeypatch.setattr(dispatch, "CHAINS", {})
    wanted, wanted_rows = step()
    assert all(
        torch.equal(one.view(torch.int32), other.view(torch.int32)) for one, other in zip(found, wanted, strict=True)
    )
    assert rows == wanted_rows
