"""Counts of emulated programs stay exact, and the report lists the constants that a format replaces."""

import json
import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halfulp import golden
from halfulp.hdl.formats import parse

NARROW = "mac=e4m3fn*e4m3fn+fp32.rn, elementwise=e4m3fn.rn"
HALF = "mac=fp16*fp16+fp32.rn, elementwise=fp16.rn, reductions=fp32.rn exact"


def nearest(fmt, value):
    return float(parse(fmt).decode(parse(fmt).encode(value, "rn")))


@pytest.fixture(params=["native", "torch"])
def kernel(request, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", request.param)


@pytest.mark.parametrize(
    ("fmt", "count"), [("e4m3fn", 512), ("e4m3fn", 1000), ("fp16", 65536), ("fp16", 70001), ("bf16", 257)]
)
def test_mean_is_the_exact_quotient_rounded_once(fmt, count):
    x = (torch.arange(count) % 7 - 2).float().requires_grad_()
    with golden.emulate(f"mac={fmt}*{fmt}+fp32.rn, elementwise={fmt}.rn", strict=True):
        mean, variance = x.mean(), x.var(correction=0)
        mean.backward()
    total = int(x.sum())
    assert mean.item() == nearest(fmt, Fraction(total, count))
    assert torch.equal(x.grad, torch.full((count,), nearest(fmt, Fraction(1, count))))
    apart = [Fraction(nearest(fmt, one - Fraction(mean.item()))) for one in range(-2, 5)]
    squares = sum(Fraction(nearest(fmt, one * one)) * len(range(place, count, 7)) for place, one in enumerate(apart))
    assert variance.item() == nearest(fmt, squares / count)


@pytest.mark.parametrize("ignored", [0, 100])
def test_cross_entropy_of_many_tokens_has_its_value_and_gradients(ignored):
    count = 65536 + ignored
    x, target = torch.zeros(count, 2).requires_grad_(), torch.zeros(count, dtype=torch.int64)
    target[:ignored] = -100
    with golden.emulate(HALF, strict=True):
        loss = F.cross_entropy(x, target)
        loss.backward()
    assert loss.item() == nearest("fp16", math.log(2))
    assert torch.equal(x.grad[ignored:], torch.tensor([-(2.0**-17), 2.0**-17]).expand(65536, 2))
    assert not x.grad[:ignored].any()


def test_weighted_loss_of_pixels_has_its_value():
    x, target = torch.zeros(2, 2, 300, 300).requires_grad_(), torch.zeros(2, 300, 300, dtype=torch.int64)
    target[1] = 1
    with golden.emulate(HALF, strict=True):
        loss = F.cross_entropy(x, target, weight=torch.tensor([1.0, 3.0]))
        loss.backward()
    # log 2 * 3 is rounded to fp16 in the products with weights.
    log = Fraction(nearest("fp16", math.log(2)))
    assert loss.item() == nearest("fp16", (log + Fraction(nearest("fp16", 3 * log))) / 4)
    share = Fraction(nearest("fp16", Fraction(1, 360000)))
    assert x.grad[0, 1, 0, 0].item() == nearest("fp16", share / 2)
    assert x.grad[1, 1, 0, 0].item() == -3 * share + Fraction(nearest("fp16", 3 * share / 2))


NORMS = {
    "layer": lambda x: F.layer_norm(x.reshape(2, 1024), (1024,)),
    "group": lambda x: F.group_norm(x.reshape(2, 4, 256), 1),
    "batch": lambda x: F.batch_norm(x.reshape(1024, 2).mT.reshape(1, 2, 1024), None, None, training=True),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_normalisation_of_many_elements_has_value_and_gradients(name, compiled):
    """Alternating +1 and -1 are normal; a gradient that neither they nor ones have a part of stays."""
    torch._dynamo.reset()
    signs, turns = torch.tensor([1.0, -1.0]).repeat(1024), torch.tensor([1.0, 1, -1, -1]).repeat(512)
    if name == "batch":
        signs, turns = signs.reshape(2, 1024).T.reshape(-1), turns.reshape(2, 1024).T.reshape(-1)
    x = signs.clone().requires_grad_()

    def run(gradient):
        x.grad = None

        def loss():
            return (NORMS[name](x).reshape(gradient.shape) * gradient).sum()

        if compiled:
            torch.compile(loss, backend=golden.emulate.backend(NARROW, strict=True), fullgraph=True)().backward()
        else:
            with golden.emulate(NARROW, strict=True):
                loss().backward()
        return x.grad

    with golden.emulate(NARROW, strict=True):
        found = NORMS[name](x)
    wanted = NORMS[name](x.detach())
    torch.testing.assert_close(found, wanted, rtol=0, atol=2.0**-16)
    with torch.no_grad():
        ones = torch.ones_like(wanted)
    by_place = torch.where(torch.arange(1024) % 4 < 2, 1.0, -1.0).expand(2, 1024)
    assert torch.equal(run(by_place.reshape(wanted.shape)), turns.reshape(x.shape))
    assert not run(wanted.round()).any()
    assert not run(ones).any()


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        (F.mse_loss, 2 * 24 / 4096 * 4),
        (F.smooth_l1_loss, 64 / 4096),
        (F.huber_loss, 64 / 4096),
        (F.l1_loss, 64 / 4096),
    ],
)
def test_gradients_of_means_of_losses_do_not_vanish(loss, wanted):
    x = torch.full((4096,), 24.0).requires_grad_()
    with golden.emulate(NARROW, strict=True):
        (loss(x, torch.zeros(4096)) * (4 if loss is F.mse_loss else 64)).backward()
    assert torch.equal(x.grad, torch.full((4096,), wanted))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("count", [512, 3, 65537, 2**24 + 1, 2**31 - 1])
@pytest.mark.parametrize("fmt", ["e4m3fn", "fp16", "fp32"])
def test_integers_that_multiply_and_divide_are_exact(fmt, count):
    x = torch.tensor([0.25, 1.0, 13.0, 448.0, 2.0**-9])
    with golden.emulate(f"mac={fmt}*{fmt}+fp32.rn, elementwise={fmt}.rn", strict=True) as run:
        found = (x / count).tolist(), (count * x).tolist()
    for place, one in enumerate(map(Fraction, x.tolist())):
        assert str(found[0][place]) == str(nearest(fmt, one / count))
        assert str(found[1][place]) == str(nearest(fmt, one * count))
    assert not run.report().constants


def test_average_pooling_of_large_windows_has_value_and_gradients():
    x = torch.full((1, 1, 32, 32), 0.5).requires_grad_()
    with golden.emulate(NARROW, strict=True):
        found = F.avg_pool2d(x, 32)
        (found * 64).backward()
    assert found.item() == 0.5
    assert torch.equal(x.grad, torch.full_like(x, 2.0**-4))


def step(policy, **parts):
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    with golden.emulate(policy) as run:
        torch.optim.AdamW([parameter], foreach=False, **parts).step()
    return {(one.operation, one.value, str(one.became)) for one in run.report().constants}


def test_report_lists_constants_of_optimizers():
    policy = "mac=bf16*bf16+fp32.rn, optimizer="
    assert ("add", 1e-8, "0.0") in step(policy + "fp16.rn")
    assert ("mul", 1 - 1e-3 * 1e-2, "1.0") in step(policy + "bf16.rn")
    assert ("add", 1e-8, "0.0") not in step(policy + "bf16.rn")
    assert not step(policy + "fp32.rn", eps=1e-6, weight_decay=0.1)


@pytest.mark.parametrize("compiled", [False, True])
def test_report_lists_constants_of_programs(compiled):
    torch._dynamo.reset()
    mask = torch.tensor([True, False, False])

    def function(x):
        masked = x.masked_fill(mask, torch.finfo(torch.float32).min) + 1e6
        return (masked * 0.5 - 1.0001) / x.clamp_min(1e-12), torch.full((3,), -torch.inf), x + 1, x * 0

    policy = "mac=fp16*fp16+fp32.rn, elementwise=fp16.rn"
    run = golden.emulate.backend(policy) if compiled else golden.emulate(policy)
    x = torch.tensor([1.0, 2, 3])
    if compiled:
        torch.compile(function, backend=run, fullgraph=True)(x)
    else:
        with run:
            function(x)
    report = run.report()
    found = {(one.operation, round(one.value, 6), str(one.became)) for one in report.constants}
    assert found >= {("add", 1e6, "inf"), ("sub", 1.0001, "1.0"), ("clamp_min", 0.0, "0.0")}
    # torch.compile makes masked_fill of a full tensor.
    assert [str(one.became) for one in report.constants if one.value < -1e38] == ["-inf"]
    assert len(report.constants) == 4
    assert "add at test_report_counts.py" in str(report)
    assert "1e+06 became inf in fp16.rn" in str(report)
    saved = json.loads(report.json())["constants"]
    assert {"inf", "-inf", "0.0", "1.0"} == {one["became"] for one in saved}
