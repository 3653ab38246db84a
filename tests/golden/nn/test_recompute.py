"""Recomputed regions of checkpoints repeat their random words."""

import pytest
import torch
from torch import nn as tnn
from torch.utils.checkpoint import checkpoint_sequential

from halfulp.golden import nn
from tests.layers_by_hand import RANDOM, SR, normal


class Repeated(tnn.Module):
    """Regions that torch recomputes: nested ones, and one layer in several regions."""

    def __init__(self):
        super().__init__()
        self.parts = tnn.ModuleList(tnn.Sequential(tnn.Linear(8, 8), tnn.Tanh(), tnn.Linear(8, 8)) for _ in range(2))
        self.reentrant = None

    def forward(self, x):
        x = self.run(self.nested, x)
        x = self.run(self.parts[1], x)
        return self.run(self.parts[0], x)

    def nested(self, x):
        return self.parts[1](self.run(self.parts[0], self.run(self.parts[0], x)))

    def run(self, part, x):
        if self.reentrant is None:
            return part(x)
        return torch.utils.checkpoint.checkpoint(part, x, use_reentrant=self.reentrant)


def repeated(reentrant, **options):
    torch.manual_seed(0)
    model = nn.convert(Repeated(), RANDOM, inplace=True).model
    model.reentrant = reentrant
    x = normal(4, 8).requires_grad_()
    for _ in range(2):
        losses = model(x).square().sum() + model(2 * x).square().sum()
        for _ in options:
            losses.backward(**options)
        losses.backward()
    return [x.grad, *(one.grad for one in model.parameters()), *model.buffers()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("options", [{}, {"retain_graph": True}], ids=str)
def test_checkpointing_repeats_random_words(reentrant, options):
    for one, wanted in zip(repeated(reentrant, **options), repeated(None, **options), strict=True):
        assert torch.equal(one, wanted)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_sequential_repeats_random_words(reentrant):
    found = []
    for run in (
        lambda model, x: model(x),
        lambda model, x: checkpoint_sequential(model, 2, x, use_reentrant=reentrant),
    ):
        torch.manual_seed(0)
        model = nn.convert(tnn.Sequential(*(tnn.Linear(8, 8) for _ in range(4))), RANDOM, inplace=True).model
        x = normal(4, 8).requires_grad_()
        run(model, x).square().sum().backward()
        found.append([x.grad, *(one.grad for one in model.parameters()), *model.buffers()])
    for one, wanted in zip(*found, strict=True):
        assert torch.equal(one, wanted)


def test_unknown_recomputation_is_refused():
    layer = nn.Linear(4, 4, policy=SR)
    x = normal(3, 4).requires_grad_()
    x.register_hook(lambda gradient: gradient + layer(gradient).detach())
    with pytest.raises(RuntimeError, match="checkpoint"):
        x.square().sum().backward()
    assert layer.rounding_state[1] == 0
