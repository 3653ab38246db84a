"""Emulation as a backend of torch.compile: the bits of the context, and what the graph shows."""

import contextlib
import copy
import math

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from halfulp import golden
from halfulp.golden.nn import Policy
from halfulp.golden.program import compiled
from halfulp.golden.program.chains import GraphChain
from halfulp.golden.program.graph import KEY
from tests.golden.program.test_emulate_models import MODELS
from tests.settings import EXHAUSTIVE

POLICY = Policy.parse(
    "forward=bf16*e4m3fn+fp32.rn, input_gradient=e5m2*bf16+e6m9.rz, weight_gradient=fp16*bf16+e5m10.rn, "
    "elementwise=bf16.rn, functions=e5m8.rn, optimizer=bf16.rn"
)
"""A policy with different arithmetic for each phase."""

NOISY = "e5m2*e5m2+e6m5.sr8, weights=e5m2.sr4, elementwise=bf16.sr4"


class Attention(nn.Module):
    """Self-attention whose queries, keys and values are slices of one tensor."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.inner(x).chunk(3, -1)
        return self.outer((q @ k.mT * 8**-0.5).softmax(-1) @ v)


def _mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def _images():
    layers = [nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1, groups=2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


PROGRAMS = {
    "mlp": (_mlp, lambda model: F.cross_entropy(model(torch.randn(4, 6)), torch.tensor([0, 1, 2, 0]))),
    "images": (_images, lambda model: model(torch.randn(2, 3, 9, 9)).square().mean()),
    "attention": (Attention, lambda model: model(torch.randn(2, 5, 8)).square().mean()),
    **MODELS,
}


class _Functional(nn.Module):
    """Products by functions and einsum, a parameter in two products, and changes in place."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))

    def forward(self, x):
        y = torch.einsum("bi,ij->bj", F.linear(x, self.weight, self.bias).tanh(), self.weight)
        y[:, :4] *= 2
        y.addcmul_(x, x, value=0.3).addcdiv_(x, x.square() + 1, value=0.7)
        return F.silu(y + y.exp().sum(-1, keepdim=True).rsqrt())


class _Exp(torch.autograd.Function):
    """Exponential of a product; its backward pass computes the product again."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x @ w).exp()

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        gradient = gradient * (x @ w).exp()
        return gradient @ w.T, x.T @ gradient


class _Custom(nn.Module):
    """A function with a gradient of its own, and rows whose number depends on values."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        y = _Exp.apply(self.inner(x), self.outer.weight.T)
        return y + self.outer(x[x[:, 0] > 0]).sum(0)


class _Interpolated(nn.Module):
    """Images with two uses, one of them on a finer grid."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Conv2d(1, 2, 3, padding=1), nn.ConvTranspose2d(2, 2, 2, 2)

    def forward(self, x):
        y = self.inner(x)
        return self.outer(y) + F.interpolate(y, scale_factor=2, mode="bilinear")


class _Checkpointed(nn.Module):
    """Two regions, whose operations run again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.regions = nn.ModuleList(_mlp().append(nn.Linear(3, 6)) for _ in range(2))

    def forward(self, x):
        for region in self.regions:
            x = torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False)
        return x


STOCHASTIC = {
    "functional": (_Functional, lambda model: model(torch.randn(4, 8)).square().mean()),
    "custom": (_Custom, lambda model: model(torch.randn(6, 4)).square().mean()),
    "interpolated": (_Interpolated, lambda model: model(torch.randn(2, 1, 4, 5)).square().mean()),
    "checkpoint": (_Checkpointed, lambda model: model(torch.randn(4, 6)).square().mean()),
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


def _trained(run, model, context, update=POLICY):
    """Return losses, gradients, and parameters after two steps of an optimiser."""
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    torch.manual_seed(2)
    for _ in range(2):
        optimizer.zero_grad()
        with context:
            value = run(model)
            value.backward()
        found += [value.detach(), *(one.grad.clone() for one in model.parameters() if one.grad is not None)]
        with golden.emulate(update, strict=True):
            optimizer.step()
    return [*found, *model.parameters()]


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one != "mlp")) for one in PROGRAMS])
def test_compiled_program_has_the_bits_of_the_context(name):
    make, loss = PROGRAMS[name]
    torch.manual_seed(1)
    model = make()
    wanted = _trained(loss, copy.deepcopy(model), golden.emulate(POLICY, strict=True))
    backend = golden.emulate.backend(POLICY, strict=True)
    run = torch.compile(loss, backend=backend, fullgraph=True)
    found = _trained(run, model, contextlib.nullcontext())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    report = backend.report()
    assert report.share == 1
    assert not report.in_torch
    assert 0 < report.redundant < report.casts


@pytest.mark.parametrize("kernel", ["native", pytest.param("torch", marks=pytest.mark.slow)])
def test_chains_have_the_bits_of_single_operations(kernel, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", kernel)
    chained = []
    compute = GraphChain.compute

    def computed(self, *given):
        found = compute(self, *given)
        chained.append((len(self.links), found is not None))
        return found

    monkeypatch.setattr(GraphChain, "compute", computed)

    def loss(x, scale):
        y = (x * scale + x) * 0.5 - 1 / x
        z = F.gelu(y, approximate="tanh") * torch.sigmoid(x.T).T - scale.square()
        first = y[0].sum()
        return ((z / (z.square() + 1).sqrt()).tanh() + y.exp()).sum() + first + (1 - x).mean()

    given = torch.randn(5, 5)
    given[0, :3] = torch.tensor([math.inf, math.nan, 0])

    def run(function):
        x, scale = given.clone().requires_grad_(), torch.tensor([0.3, 1, 2, -7, 1e30], requires_grad=True)
        found = function(x, scale)
        found.backward()
        return found, x.grad, scale.grad

    with golden.emulate(POLICY, strict=True) as context:
        wanted = run(loss)
    backend = golden.emulate.backend(POLICY, strict=True)
    for one, other in zip(run(torch.compile(loss, backend=backend, fullgraph=True)), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert max(length for length, _ in chained) > 4
    assert all(found == (kernel == "native") for _, found in chained)
    counts = [
        {name: sum(row.elements for row in rows if row.operation == name) for name in {row.operation for row in rows}}
        for rows in (context.report().rows, backend.report().rows)
    ]
    assert counts[0] == counts[1]


@pytest.mark.slow
def test_context_around_backward_pass_of_graph_changes_nothing():
    make, loss = PROGRAMS["mlp"]
    model = make()
    backend = golden.emulate.backend(POLICY, strict=True)
    value = torch.compile(loss, backend=backend, fullgraph=True)(model)
    with golden.emulate("fp16*fp16+fp32.rn") as outer:
        value.backward()
    phases = {row.phase for row in backend.report().rows}
    assert phases == {"forward", "input_gradient", "weight_gradient"}
    assert not outer.report().rows


@pytest.mark.slow
def test_known_formats_hold(monkeypatch):
    make, loss = PROGRAMS["attention"]
    checked = []
    run_node = compiled._Run.run_node

    def run(self, n):
        for node, fmt in zip(n.all_input_nodes, n.meta[KEY].known if KEY in n.meta else (), strict=False):
            values = self.env[node]
            if fmt is not None and isinstance(values, torch.Tensor) and values.is_floating_point():
                held = golden.decode(golden.encode(values, fmt), fmt)
                torch.testing.assert_close(held, values.double(), rtol=0, atol=0, equal_nan=True)
                checked.append(node)
        return run_node(self, n)

    monkeypatch.setattr(compiled._Run, "run_node", run)
    backend = golden.emulate.backend(POLICY)
    torch.compile(loss, backend=backend, fullgraph=True)(make()).backward()
    assert len(checked) > 20
    assert backend.report().redundant > 10


def _noisy(seed):
    """Return two results of a layer and their gradients, whose backward passes follow both forward passes."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = nn.Linear(8, 8, bias=False)
    backend = golden.emulate.backend(NOISY, seed=seed)
    run = torch.compile(lambda x: layer(x) * 1.0, backend=backend, fullgraph=True)
    inputs = [torch.eye(8, requires_grad=True) for _ in range(2)]
    results = [run(x) for x in inputs]
    for result in results:
        result.backward(torch.eye(8))
    return results, [x.grad for x in inputs]


def test_stochastic_words_of_graph_follow_seed_and_run():
    results, gradients = _noisy(1)
    again, _ = _noisy(1)
    other, _ = _noisy(2)
    assert all(torch.equal(one, same) for one, same in zip(results, again, strict=True))
    assert not torch.equal(results[0], other[0])
    assert not torch.equal(*results)
    # The result is the rounded weights, and so is the gradient: both passes of a run have the same words.
    for result, gradient in zip(results, gradients, strict=True):
        assert torch.equal(result.detach().T, gradient)


NOISES = [
    "e5m2*e5m2+e6m5.sr10@lfsr16, weights=e5m2.sr3@plateau3, gradients=sr4, elementwise=bf16.sr8@lfsr16",
    "forward=e5m2*e5m2+e6m5.sr10, input_gradient=e5m2*bf16+e6m9.sr4, weight_gradient=fp16*bf16+e5m10.rn, "
    "activations=e5m2.sr4@lfsr16, elementwise=bf16.rn, reductions=bf16.sr4 pairwise",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(name, policy, marks=[pytest.mark.slow] * ((name, place) != ("functional", 0)))
        # Under torch.compile, Mamba runs another algorithm for its scan.
        for turn, name in enumerate([*STOCHASTIC, *PROGRAMS])
        if name != "mamba"
        for place, policy in enumerate(NOISES)
        if EXHAUSTIVE or place == turn % len(NOISES)
    ],
)
def test_compiled_program_has_the_random_words_of_the_context(name, policy):
    make, loss = (STOCHASTIC | PROGRAMS)[name]
    torch.manual_seed(1)
    model = make()
    twin = copy.deepcopy(model)
    backend, update = golden.emulate.backend(policy, strict=True), f"{policy}, optimizer=bf16.sr8"
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = _trained(
            torch.compile(loss, backend=backend, fullgraph=True), twin, contextlib.nullcontext(), update
        )
    eager = _trained(loss, model, golden.emulate(policy, strict=True), update)
    assert all(torch.equal(one, same) for one, same in zip(compiled, eager, strict=True))


@pytest.mark.slow
def test_compiled_program_takes_other_shapes_and_checkpoints():
    model = _mlp()
    backend = golden.emulate.backend(POLICY, strict=True)

    def loss(x):
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().mean()

    run = torch.compile(loss, backend=backend, fullgraph=True)
    for count in (3, 5, 7):
        x, other = (torch.randn(count, 6, requires_grad=True) for _ in range(2))
        other.data.copy_(x)
        run(x).backward()
        with golden.emulate(POLICY, strict=True):
            loss(other).backward()
        assert torch.equal(x.grad, other.grad)


def test_graph_break_is_reported_or_refused():
    def run(x):
        y = x * x
        torch._dynamo.graph_break()
        return y + 1

    backend = golden.emulate.backend(POLICY)
    assert "no graph" in backend.report().breaks[0]
    torch.compile(run, backend=backend)(torch.ones(3))
    assert len(backend.report().breaks) == 1
    assert "test_compiled.py" in backend.report().breaks[0]
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="breaks the graph"):
        torch.compile(run, backend=golden.emulate.backend(POLICY, strict=True))(torch.ones(3))


def test_compiled_inference_reports_and_refuses():
    x = torch.rand(4, 4)
    backend = golden.emulate.backend("bf16*bf16+fp32.rn")
    with torch.no_grad():
        found = torch.compile(lambda x: (x @ x).exp(), backend=backend, fullgraph=True)(x)
        with golden.emulate("bf16*bf16+fp32.rn"):
            assert torch.equal(found, (x @ x).exp())
    assert {(row.operation, row.arithmetic) for row in backend.report().rows} == {
        ("mm", "bf16*bf16+fp32.rn"),
        ("exp", "fp32"),
    }
    strict = golden.emulate.backend("bf16*bf16+fp32.rn", strict=True)
    with pytest.raises(RuntimeError, match="elementwise"), torch.no_grad():
        torch.compile(torch.exp, backend=strict)(x)


def test_graph_has_modules_places_and_compositions():
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1))
    backend = golden.emulate.backend(
        {"0": "e5m2*e5m2+e6m5.rn", "aten._softmax": "bf16*bf16+fp32.rn, elementwise=bf16.rn"}
    )
    torch.compile(model, backend=backend, fullgraph=True)(torch.randn(2, 4))
    found = {(row.module, row.operation): row.arithmetic for row in backend.report().rows}
    assert found["0", "addmm"] == "e5m2*e5m2+e6m5.rn"
    assert found["1", "exp"] == found["1", "div"] == "bf16.rn"
