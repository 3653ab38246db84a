"""Random words of emulated programs: words that do not follow the signs of zeros, in running code and in graphs."""

import contextlib
import math

import pytest
import torch
from torch import nn

from halfulp import golden
from halfulp.golden.program.keys import Keys

POLICY = "bf16*bf16+e6m5.sr8, elementwise=e6m5.sr8, reductions=e6m5.sr8"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_keys_follow_values(dtype):
    x = torch.tensor([0.0, 1.0, math.nan, math.inf, -math.inf], dtype=dtype)
    same = torch.tensor([-0.0, 1.0, -math.nan, math.inf, -math.inf], dtype=dtype)
    others = [x.neg(), x.nan_to_num(0), x * 2, x + 1]
    key = Keys(1).next("add", [x])
    assert Keys(1).next("add", [same]) == key
    assert all(Keys(1).next("add", [other]) != key for other in others)
    # The operands themselves stay as they are.
    assert same[0].signbit()
    assert x[2].isnan()


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("compute", [lambda a, b: a @ b, lambda a, b: a.sum(0), lambda a, b: a * 1.3 + b.mT])
def test_sign_of_a_zero_changes_no_word(compute):
    torch.manual_seed(0)
    a, b = torch.randn(96, 40), torch.randn(40, 96)
    a[5, 7] = 0
    other = a.clone()
    other[5, 7] = -0.0
    found = []
    for given in (a, other):
        with golden.emulate(POLICY):
            found.append(compute(given, b))
    assert torch.equal(*found)


class Branches(nn.Module):
    """Network with a second output, which a loss may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.first(x)
        other = self.second(hidden)
        return self.third(other * torch.tanh(hidden) + hidden), other.reshape(-1) * 0.7, hidden.mT


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "policy",
    [
        "bf16*bf16+fp32.rn, elementwise=bf16.sr8",
        "bf16*bf16+bf16.sr8, elementwise=bf16.sr8",
        "e4m3fn*e4m3fn+fp32.rn, elementwise=bf16.rn",
    ],
)
@pytest.mark.parametrize("used", [(0,), (0, 1), (0, 1, 2)])
def test_unused_outputs_change_no_gradient_of_a_graph(policy, used):
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, x = Branches(), torch.randn(6, 8)
    backend = golden.emulate.backend(policy, strict=True)
    graph, gradients = torch.compile(model, backend=backend, fullgraph=True), []
    ramps = [torch.linspace(-1, 1, one.numel()).reshape(one.shape) for one in model(x)]
    for run, context in ((model, golden.emulate(policy, strict=True)), (graph, contextlib.nullcontext())):
        model.zero_grad()
        with context:
            outputs = run(x)
            torch.autograd.backward([outputs[place] for place in used], [ramps[place] for place in used])
        gradients.append([one.grad.clone() for one in model.parameters() if one.grad is not None])
    for eager, compiled in zip(*gradients, strict=True):
        assert torch.equal(eager, compiled)
