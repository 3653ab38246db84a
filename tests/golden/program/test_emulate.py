"""Emulation of whole programs: policies, contexts, random words and optimisers."""

import functools
import threading
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halfulp import golden
from halfulp.golden.nn import Policy, convert
from halfulp.golden.nn.draw import mix
from tests.emulated_programs import BF16


class Mixed(nn.Module):
    """Functional and einsum products, and many operations."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5))
        self.bilinear = nn.Bilinear(3, 3, 2)
        self.linear = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        y = self.norm(torch.einsum("bi,ij->bj", x, self.weight))
        y = F.silu(y) * torch.sigmoid(y) + y**3
        z = self.linear(y).tanh()
        parts = [self.bilinear(z, z).mean(), y.std(), torch.logsumexp(y, -1).sum(), F.softplus(y).prod(1).sum()]
        parts += [y.cumsum(0).var(), F.mse_loss(z, z * 0.5), F.hardswish(y).sum(), torch.outer(z[0], z[1]).norm()]
        parts += [F.max_pool1d(y.unsqueeze(0), 3, 1).sum(), F.embedding(torch.tensor([1, 1, 0]), self.weight).sum()]
        return torch.stack(parts).sum()


PROGRAMS = {
    "lstm": lambda: (nn.LSTM(4, 6, bidirectional=True), lambda m: m(torch.randn(3, 2, 4))[0].square().sum()),
    "gru": lambda: (nn.GRU(4, 6, 2), lambda m: m(torch.randn(3, 2, 4))[0].square().sum()),
    "mixed": lambda: (Mixed(), lambda m: m(torch.randn(6, 4))),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda m: m(torch.randn(2, 4, 8)).square().mean(),
    ),
}

OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "Adam with lists": functools.partial(torch.optim.Adam, foreach=True),
    "SGD": functools.partial(torch.optim.SGD, momentum=0.9),
}


@pytest.mark.sampled(15, 2)
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program_runs_strictly_to_the_same_bits(name, optimizer):
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        model, loss = PROGRAMS[name]()
        steps = OPTIMIZERS[optimizer](model.parameters(), lr=0.01)
        with golden.emulate(BF16, strict=True, values=True) as run:
            loss(model).backward()
            steps.step()
        found.append([one.detach().clone() for one in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    # Parameters after a step in bf16 are numbers of bf16.
    assert all(torch.equal(one, one.bfloat16().float()) for one in found[0])
    report = run.report()
    assert report.share == 1
    assert not report.in_torch
    assert {"forward", "input_gradient", "weight_gradient", "update"} <= {row.phase for row in report.rows}


@pytest.mark.parametrize("policy", ["fp32", "bf16*bf16+fp32.rn"])
def test_strict_refuses_torch_arithmetic(policy):
    with pytest.raises(RuntimeError, match=r"elementwise|forward"), golden.emulate(policy, strict=True):
        (torch.randn(2, 3) @ torch.randn(3, 4)).exp()


def test_policy_by_module_and_operation():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    rules = {"aten.mm": "fp32", "1": "e5m2*e5m2+e6m5.rn", "*": "bf16*bf16+fp32.rn"}
    with golden.emulate(rules) as run:
        model(torch.randn(2, 4)) @ torch.randn(4, 2)
    found = {(row.module, row.operation): row.arithmetic for row in run.report().rows}
    assert found["0", "addmm"] == "bf16*bf16+fp32.rn"
    assert found["1", "addmm"] == "e5m2*e5m2+e6m5.rn"
    assert found["", "mm"] == "fp32"


def test_stochastic_rounding_follows_seed():
    x = torch.rand(64)

    def run(seed):
        with golden.emulate("e5m2*e5m2+e6m5.sr8, elementwise=e5m2.sr4", seed=seed):
            return torch.stack([x + x, x * x, x.reshape(8, 8) @ x.reshape(8, 8)[:, :1].expand(8, 8)][:2])

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    with golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=e5m2.sr4"):
        x = golden.decode(golden.encode(x, "e5m2"), "e5m2").float()
        assert not torch.equal(x * x, x * x)


def test_emulation_ends_after_exception():
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    with pytest.raises(ZeroDivisionError), golden.emulate(BF16):
        1 / 0  # noqa: B018  # raises
    x = torch.full((3,), 1 + 2.0**-20)
    assert torch.equal(x * x, x.double().square().float())
    assert (torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()) == (fast, onednn)
    found = []
    with golden.emulate(BF16):
        thread = threading.Thread(target=lambda: found.append(x * x))
        thread.start()
        thread.join()
    assert torch.equal(found[0], x.double().square().float())


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_emulate_sees_compiled_and_inference_code(backend):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.randn(2, 4)
    compiled = torch.compile(model, backend=backend)
    compiled(x)
    with golden.emulate(BF16, strict=True) as run, torch.inference_mode():
        wanted = model(x)
        assert torch.equal(compiled(x), wanted)
    assert sum(row.calls for row in run.report().rows if row.operation == "addmm") == 2


def test_emulate_nests():
    x = torch.full((3,), 1 + 2.0**-7)
    rounded = (x * x).bfloat16().float()
    with golden.emulate(BF16) as run:
        with run:
            assert torch.equal(x * x, rounded)
        assert torch.equal(x * x, rounded)
    assert not torch.equal(x * x, rounded)


def test_inner_context_decides(monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    x = torch.full((3,), 1 + 2.0**-7)
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=e5m2.rn") as outer, golden.emulate(BF16) as inner:
        found = x * x
    assert torch.equal(found, (x * x).bfloat16().float())
    assert (len(outer.report().rows), len(inner.report().rows)) == (0, 1)


def test_contexts_of_threads_are_separate():
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4)
    with golden.emulate(BF16):
        wanted = model(x)
    found, run = [], golden.emulate(BF16)
    started = threading.Barrier(2)

    def thread():
        started.wait()
        with run:
            found.extend(model(x) for _ in range(20))

    threads = [threading.Thread(target=thread) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 40
    assert all(torch.equal(one, wanted) for one in found)
    assert sum(row.calls for row in run.report().rows if row.operation == "addmm") == 40
    assert (torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()) == (fast, onednn)


def test_optimizer_with_lists_has_the_bits_of_one_by_one():
    found = []
    for foreach in (False, True):
        weight = nn.Parameter(torch.linspace(-1, 1, 6))
        optimizer = torch.optim.AdamW([weight], amsgrad=True, foreach=foreach)
        with golden.emulate(BF16, strict=True):
            for _ in range(2):
                weight.square().sum().backward()
                optimizer.step()
        found.append(weight.detach())
    assert torch.equal(*found)


def test_random_words_continue_when_a_context_is_entered_again():
    x, run = torch.rand(64), golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=e5m2.sr4")
    found = []
    for _ in range(2):
        with run:
            found.append(x * x)
    assert not torch.equal(*found)


def test_step_that_raises_ends_the_update():
    class Failing(torch.optim.SGD):
        @torch.no_grad()
        def step(self):
            self.param_groups[0]["params"][0].mul_(2)
            raise ZeroDivisionError

    weight = nn.Parameter(torch.ones(3))
    with golden.emulate(BF16) as run:
        with pytest.raises(ZeroDivisionError):
            Failing([weight]).step()
        (weight + 1).sum()
    phases = {row.operation: row.phase for row in run.report().rows}
    assert phases == {"mul": "update", "add": "forward", "sum": "forward"}


def test_closure_of_optimizer_is_no_update():
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(x).sigmoid().square().mean()
        loss.backward()
        return loss

    with golden.emulate(BF16, strict=True) as run:
        optimizer.step(closure)
    phases = {(row.operation, row.phase) for row in run.report().rows}
    assert {("addmm", "forward"), ("sigmoid", "forward"), ("mm", "weight_gradient")} <= phases
    assert "update" in {phase for _, phase in phases}
    assert ("sigmoid", "update") not in phases


def test_emulate_refuses_to_decorate_generators_and_coroutines():
    def generator():
        yield

    async def coroutine():
        pass

    for one in (generator, coroutine):
        with pytest.raises(TypeError, match="decorates no"):
            golden.emulate(BF16)(one)


def test_policy_of_composition_reaches_its_parts():
    x = torch.randn(3, 5)
    with golden.emulate({"aten._softmax": BF16}) as run:
        x.softmax(-1)
        x.exp()
    found = {(row.operation, row.arithmetic) for row in run.report().rows}
    assert found >= {("sub", "bf16.rn"), ("exp", "e5m2.rn"), ("exp", "fp32"), ("div", "bf16.rn")}


def test_emulate_decorates_function():
    @golden.emulate(BF16)
    def square(x):
        return x * x

    x = torch.full((3,), 1 + 2.0**-7)
    assert torch.equal(square(x), (x * x).bfloat16().float())
    assert not torch.equal(square(x), x * x)


def test_emulate_differentiates_twice():
    x = torch.randn(4, 3, requires_grad=True)
    with golden.emulate(BF16, strict=True):
        (first,) = torch.autograd.grad((x @ x.T).square().sum(), x, create_graph=True)
        first.square().sum().backward()
    assert x.grad.isfinite().all()


def test_checkpoint_repeats_forward_arithmetic():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    with golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=bf16.rn") as run:
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    calls = Counter()
    for row in run.report().rows:
        calls[row.phase, row.operation] += row.calls
    # The last product need not run again.
    assert calls["forward", "addmm"] == 3
    assert calls["input_gradient", "mm"] == calls["weight_gradient", "mm"] == 2


class _Energy(nn.Module):
    """Model whose result is the gradient of a product with itself, as that of a force field."""

    def __init__(self, reentrant=None):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), reentrant

    def energy(self, x):
        return self.inner(x.exp()) * x

    def forward(self, x):
        if self.reentrant is None:
            return self.energy(x)
        return torch.utils.checkpoint.checkpoint(self.energy, x, use_reentrant=self.reentrant)


OUTER = {
    "name": {"0": "fp32*fp32+fp32.rn, elementwise=fp32.rn", "*": "e5m2*e5m2+e6m5.rn, elementwise=e6m5.rn"},
    "class": {_Energy: "fp32*fp32+fp32.rn, elementwise=fp32.rn", "*": "e5m2*e5m2+e6m5.rn, elementwise=e6m5.rn"},
}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("policy", OUTER)
def test_recomputed_region_has_the_modules_around_it(policy, reentrant):
    model = nn.Sequential(_Energy(), nn.Linear(4, 3))
    found = []
    for model[0].reentrant in (None, reentrant):
        x = torch.linspace(-2, 2, 8).reshape(2, 4).requires_grad_()
        model.zero_grad()
        with golden.emulate(OUTER[policy]) as run:
            model(x).sum().backward()
        found.append([x.grad, *(one.grad for one in model.parameters())])
        where = {(row.module, row.operation, row.arithmetic) for row in run.report().rows}
        found[-1].append(where)
    assert found[0][-1] == found[1][-1]
    assert all(torch.equal(one, other) for one, other in zip(found[0][:-1], found[1][:-1], strict=True))


def test_backward_pass_inside_a_module_is_the_phase_backward():
    class Force(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 1)

        def forward(self, x):
            return torch.autograd.grad(self.inner(x).square().sum(), x)[0]

    x = torch.randn(2, 4, requires_grad=True)
    with golden.emulate({"@backward": "bf16*bf16+fp32.rn, elementwise=bf16.rn"}) as run:
        Force()(x)
    found = {row.operation for row in run.report().rows if row.arithmetic.startswith("bf16")}
    assert found == {"pow", "mul", "mm"}


@pytest.mark.parametrize(
    "policy",
    [
        "bf16*bf16+fp32.rn, elementwise=rn",
        "bf16*bf16+fp32.rn, elementwise=posit32",
        "bf16*bf16+fp32.rn, reductions=backwards",
    ],
)
def test_emulate_refuses_invalid_policy(policy):
    with pytest.raises(ValueError, match=r"elementwise|reduction"):
        golden.emulate(policy)


def test_layers_refuse_arithmetic_of_programs():
    with pytest.raises(ValueError, match=r"golden\.emulate"):
        convert(nn.Linear(2, 2), BF16)


def test_policy_of_program_prints_and_parses():
    text = "bf16*bf16+fp32.rn, elementwise=bf16.rn, functions=fp16.rn, reductions=fp32.rn pairwise, optimizer=fp32.rn"
    assert str(Policy.parse(text)) == text
    assert mix(1) != mix(2)


def test_emulate_refuses_export():
    """The process stays alive, and a module that is exported before runs in the arithmetic of the policy."""
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    with golden.emulate("bf16*bf16+bf16.rn"):
        with pytest.raises(RuntimeError, match="export"):
            torch.export.export(model, (x,))
        expected = model(x)
    exported = torch.export.export(model, (x,)).module()
    with golden.emulate("bf16*bf16+bf16.rn"):
        assert torch.equal(exported(x), expected)
