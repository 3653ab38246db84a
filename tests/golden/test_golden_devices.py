"""Golden operations, layers and emulated programs run on other devices than the CPU, without kernels for the CPU."""

import pytest
import torch

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.kernels import build
from halfulp.golden.program import dispatch
from tests.elsewhere import DEVICE, Device, Elsewhere

X, W = torch.randn(2, 20, 16, generator=torch.Generator().manual_seed(0))


def conversions(device):
    x = X.to(device)
    codes = golden.encode(x, "e4m3fn")
    words = torch.arange(16).to(device)
    return [codes, golden.encode(x, "e5m2", "sr5", random=words), golden.convert(codes, a="e4m3fn", o="posit8")]


def products(device):
    x, w = X.to(device), W.to(device).mT
    macs = ("bf16*bf16+fp32.rn", "e5m2*e5m2=e5m2.sr3+e6m5.sr10@lfsr16", "posit8*posit8+exact=posit8.rn")
    found = [golden.gemm(x, w, mac) for mac in macs]
    return [*found, golden.gemm(x, w, "int8*int8+int16.sr4", source="philox", seed=3)]


def model(device):
    torch.manual_seed(1)
    made = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
    for layer in made:
        for name, one in layer.named_parameters():
            setattr(layer, name, torch.nn.Parameter(one.detach().to(device)))
    return made


def layers(device):
    converted = nn.convert(model(device), "e5m2*e5m2+e6m5.sr10@lfsr16, gradients=int8.sr3@plateau3").model
    y = converted(X.to(device))
    (y * y).mean().backward()
    return [y, *(one.grad for one in converted.parameters())]


def program(device):
    emulated = model(device)
    optimizer = torch.optim.SGD(emulated.parameters(), lr=0.1, momentum=0.9, foreach=False)
    policy = "e5m2*e5m2+e6m5.sr10@lfsr16, elementwise=fp16.sr5, functions=bf16.rn, optimizer=fp32.rn"
    with golden.emulate(policy):
        y = emulated(X.to(device))
        (y * y).mean().backward()
        optimizer.step()
    return [y, *emulated.parameters()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("run", [conversions, products, layers, pytest.param(program, marks=pytest.mark.slow)])
def test_results_of_other_devices_match_cpu(run, monkeypatch):
    expected = run(torch.device("cpu"))
    # Every kernel for the CPU is loaded by this function.
    monkeypatch.setattr(build, "library", lambda name, *_: pytest.fail(f"kernel {name} for the CPU is called"))
    # The tensors stand for those of a device, which wrap none and have memory.
    monkeypatch.setattr(dispatch, "wraps", lambda kind: False)
    monkeypatch.setattr(dispatch, "overlaps", lambda operands: False)
    with Device():
        found = run(DEVICE)
        assert all(isinstance(one.data if one.requires_grad else one, Elsewhere) for one in found)
        assert all(torch.equal(one.cpu(), other) for one, other in zip(found, expected, strict=True))
