"""Layers as operators of torch: compiled, exported, on meta tensors, in torch.func."""

import pytest
import torch
from torch import nn as tnn
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

from halfulp.golden import nn
from halfulp.golden.nn import convolution, matmul
from tests.layers_by_hand import E5M2, POLICIES, RANDOM, SEED, SR, normal


class Small(tnn.Module):
    """Network with each kind of layer."""

    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.attention = tnn.MultiheadAttention(8, 2, batch_first=True)
        self.linear = tnn.Linear(8, 8)
        self.round = nn.Quantize("e5m2.sr3", "e5m2.sr4", seed=3)

    def forward(self, x):
        y = self.conv(x).flatten(2).mT.reshape(len(x), -1, 8)
        return self.round(self.linear(self.attention(y, y, y)[0] + y).relu())


def small(policy):
    torch.manual_seed(0)
    return nn.convert(Small(), policy, inplace=True).model


def steps(model, run, count=3):
    """Return results, gradients and state of some steps."""
    found = []
    for step in range(count):
        x = normal(2, 1, 8, 8, seed=step).requires_grad_()
        model.zero_grad()
        y = run(x)
        y.square().sum().backward()
        found += [y.detach(), x.grad, *(one.grad for one in model.parameters())]
    return found + [one.clone() for one in model.buffers()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", [E5M2, RANDOM])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_models_give_the_same_bits(policy, backend):
    torch._dynamo.reset()
    eager, compiled = small(policy), small(policy)
    found = steps(compiled, torch.compile(compiled, backend=backend, fullgraph=True))
    for one, wanted in zip(found, steps(eager, eager), strict=True):
        assert torch.equal(one, wanted)


def test_exported_models_give_the_same_bits():
    x = normal(2, 1, 8, 8)
    exported = torch.export.export(small(RANDOM), (x,)).module()
    model = small(RANDOM)
    for _ in range(2):
        assert torch.equal(exported(x), model(x))


def test_meta_and_fake_tensors_pass_through_models():
    x = normal(2, 1, 8, 8)
    assert small(RANDOM).to("meta")(x.to("meta")).shape == (2, 8, 8)
    model = small(RANDOM)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model(x).sum().backward()
    assert all(one.grad.shape == one.shape for one in model.parameters())


@pytest.mark.parametrize("policy", POLICIES)
def test_operators_pass_opcheck_of_torch(policy):
    """`torch.library.opcheck` compares shapes and strides with those of fake tensors, among others."""
    key, text = torch.tensor(5), str(nn.Policy.parse(policy))
    x, w, bias = (one.requires_grad_() for one in (normal(3, 4), normal(5, 4), normal(5)))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(matmul._MATMUL.operator, (x, w, bias, key, None, None, text, "", False), test_utils=checks)
    given = (normal(3, 5), x.detach(), w.detach(), key, None, text, "", False, [True, False, True])
    torch.library.opcheck(matmul._GRADIENTS_OF_MATMUL.operator, given, test_utils=checks)
    images, kernels = normal(2, 4, 6, 5), normal(6, 2, 3, 2)
    parts = (key, None, text, "", [2, 1, 1, 2, 2])
    forward = (images, kernels, normal(6), key, None, *parts[1:])
    torch.library.opcheck(convolution._CONVOLUTION.operator, forward, test_utils=checks)
    given = (normal(2, 6, 2, 3), images, kernels, *parts, [True, True, True])
    torch.library.opcheck(convolution._GRADIENTS_OF_CONVOLUTION.operator, given, test_utils=checks)


@pytest.mark.parametrize("make", [lambda: nn.Linear(6, 4, policy=E5M2), lambda: nn.Conv2d(2, 4, 3, policy=E5M2)])
def test_func_gives_gradients_of_each_sample(make):
    layer = make()
    x = normal(3, 5, 6) if isinstance(layer, tnn.Linear) else normal(3, 2, 5, 5)

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    parameters = {name: one.detach() for name, one in layer.named_parameters()}
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for place, sample in enumerate(x):
        layer.zero_grad()
        layer(sample).square().sum().backward()
        for name, one in layer.named_parameters():
            assert torch.equal(found[name][place], one.grad)


def test_forward_derivatives_are_refused():
    layer = nn.Linear(8, 8, policy=E5M2).requires_grad_(False)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        layer(forward_ad.make_dual(normal(2, 8), normal(2, 8)))


def test_vmap_gives_random_words_by_its_setting():
    x = normal(8).expand(5, 8)

    def mapped(randomness):
        return torch.func.vmap(nn.Linear(8, 8, policy=SR, seed=SEED), randomness=randomness)(x).detach()

    same_words, different = mapped("same"), mapped("different")
    assert (same_words == same_words[0]).all()
    assert not (different == different[0]).all()
    with pytest.raises(RuntimeError, match="randomness"):
        mapped("error")
