"""Recurrent layers in `golden.emulate`: the bits and the report of the operations of which torch composes them."""

import dataclasses
import importlib

import pytest
import torch
from torch import nn

from halfulp import golden
from halfulp.golden.program import recurrent

context = importlib.import_module("halfulp.golden.program.emulate")
POLICY = "bf16*bf16+fp32.rn, elementwise=bf16.rn"


@pytest.fixture
def whole(monkeypatch):
    """Return a list of the layers that are computed as a whole, and a function that turns that off."""
    calls = []
    run = recurrent.Layer.forward
    monkeypatch.setattr(recurrent.Layer, "forward", lambda *given: calls.append(1) or run(*given))
    return calls, lambda: monkeypatch.setattr(context, "layers", lambda *_: NotImplemented)


def gradients_of(model, *inputs):
    return [one.grad for one in (*model.parameters(), *inputs) if one.requires_grad]


def step(policy, kind, shape, options, loss, first=False):
    """Return results, gradients and rows of a training step."""
    torch.manual_seed(1)
    features, width, layers, length, rows = shape
    model = getattr(nn, kind)(features, width, layers, **options)
    x = torch.randn(length, rows, features, requires_grad=True)
    states = [torch.randn(layers * (1 + model.bidirectional), rows, width, requires_grad=True) for _ in "hc"]
    given = None if not first else tuple(states) if kind == "LSTM" else states[0]
    with golden.emulate(policy) as run:
        outputs, last = model(x, given)
        ends = last if isinstance(last, tuple) else (last,)
        loss(outputs, *ends).backward()
    rows = [dataclasses.replace(row, seconds=0.0) for row in run.report().rows]
    found = [outputs, *ends, *gradients_of(model, x), *(one.grad for one in states)]
    return [None if one is None else one.detach() for one in found], sorted(rows, key=str)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.shape == other.shape
            assert torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


LOSSES = {
    "outputs": lambda y, *ends: y.square().sum(),
    "all": lambda y, *ends: y.square().sum() + sum(3 * one.square().sum() for one in ends),
    "ends": lambda y, *ends: sum(one.square().sum() for one in ends),
}
CASES = [
    ("LSTM", POLICY, (33, 40, 2, 5, 6), {}, "outputs", False),
    ("LSTM", "bf16*bf16+bf16.rn, elementwise=bf16.rn", (5, 34, 2, 3, 2), {"bias": False}, "all", True),
    ("LSTM", "fp16*fp16+fp16.rd, elementwise=fp16.rd", (5, 7, 1, 1, 2), {"bidirectional": True}, "all", True),
    ("GRU", POLICY, (5, 7, 2, 4, 3), {"bidirectional": True}, "all", True),
    ("GRU", "e4m3fn*e4m3fn+fp16.rn, elementwise=bf16.rz, functions=fp16.rn", (6, 5, 2, 4, 3), {}, "outputs", False),
    ("RNN", POLICY, (6, 5, 1, 3, 3), {"batch_first": True}, "all", True),
    ("GRU", POLICY, (6, 5, 1, 4, 3), {}, "ends", True),
    ("LSTM", POLICY, (3, 4, 2, 3, 2), {"dropout": 0.3}, "all", True),
]


@pytest.mark.sampled(9, 8)
@pytest.mark.parametrize(("kernel", "case"), [*(("native", case) for case in CASES), ("torch", CASES[2])])
def test_recurrent_layers_have_bits_and_rows_of_their_operations(case, kernel, whole, monkeypatch):
    kind, policy, shape, options, loss, first = case
    monkeypatch.setenv("HALFULP_KERNEL", kernel)
    calls, turn_off = whole
    found, rows = step(policy, kind, shape, options, LOSSES[loss], first)
    assert calls
    turn_off()
    expected, expected_rows = step(policy, kind, shape, options, LOSSES[loss], first)
    assert_same(found, expected)
    assert rows == expected_rows


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_have_gradients_of_other_contexts(kind, whole):
    calls, turn_off = whole

    def gradients():
        torch.manual_seed(2)
        model, x = getattr(nn, kind)(3, 4), torch.randn(3, 2, 3, requires_grad=True)
        with golden.emulate(POLICY) as run:
            y = model(x)[0]
            run.set_policy("bf16*bf16+fp32.rn, elementwise=e8m5.rn")
            of_policy = torch.autograd.grad(y.sum(), [x, *model.parameters()])
            y = model(x)[0]
        outside = torch.autograd.grad(y.sum(), [x, *model.parameters()])
        with torch.no_grad(), golden.emulate(POLICY):
            return [*of_policy, *outside, model(x)[0]]

    found = gradients()
    assert len(calls) == 3
    turn_off()
    assert_same(found, gradients())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_have_second_derivatives(kind, whole):
    """Second derivatives sum their terms in another order, so operands are chosen for which no sum is rounded."""
    calls, turn_off = whole

    def derivatives(fmt):
        torch.manual_seed(0)
        model, x = getattr(nn, kind)(2, 2), torch.randint(-1, 2, (2, 2, 2)).float().requires_grad_()
        for one in model.parameters():
            one.data = torch.randint(-1, 2, one.shape).float()
        # Functions are powers of two.
        with golden.emulate(f"fp32*fp32+fp32.rn, elementwise={fmt}.rn, functions=e3m0.rn"):
            (first,) = torch.autograd.grad(model(x)[0].sum(), x, create_graph=True)
            first.sum().backward()
        return [first.detach(), *gradients_of(model)]

    found = derivatives("e8m22")
    assert len(calls) == 1
    assert all(one.any() for one in found)
    turn_off()
    # Sums that were rounded would differ with one bit less.
    assert_same(derivatives("e8m21"), found)


def test_recurrent_layers_stay_separate_operations_where_the_policy_needs_it(whole):
    calls, _ = whole
    x = torch.randn(3, 2, 4)
    frozen = nn.LSTM(4, 4)
    frozen.weight_ih_l0.requires_grad_(False)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]))
    for policy, model, given in (
        ("bf16*bf16+fp32.sr8, elementwise=bf16.rn", nn.LSTM(4, 4), x),
        ({"aten.mm": POLICY}, nn.LSTM(4, 4), x),
        ("bf16*bf16+fp32.rn", nn.LSTM(4, 4), x),
        (POLICY, nn.LSTM(4, 4, proj_size=2), x),
        (POLICY, nn.LSTM(4, 4), packed),
        (POLICY, nn.RNN(4, 4, nonlinearity="relu"), x),
        (POLICY, frozen, x),
        (POLICY, nn.LSTM(4, 4).double(), x.double()),
    ):
        with golden.emulate(policy):
            model(given)
    assert not calls
    assert "lstm" not in vars(torch._VF)
