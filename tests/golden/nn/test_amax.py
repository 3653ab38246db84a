"""Delayed scaling: factors from the histories of earlier uses, in layers and in emulated programs."""

import copy
import io
import subprocess
import sys

import pytest
import torch
from torch import nn as tnn
from torch.utils.checkpoint import checkpoint

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.amax import delayed
from halfulp.golden.nn.scaling import HISTORY, Scaling
from halfulp.hdl.formats import parse

MAC = "e4m3fn*e4m3fn+fp32.rn"


def policy_of(scale):
    cast = f"rn.sat scale={scale}"
    return f"{MAC}, weights={cast}, activations={cast}, gradients={cast}"


class Mean:
    """Factors of delayed scaling as a program without histories computes them, by operand."""

    def __init__(self, scale):
        self.scaling, self.seen = Scaling.parse(scale), {}

    def codes(self, role, values):
        seen = self.seen.setdefault(role, [])
        amax = max(seen[-self.scaling.history :], default=0.0)
        seen.append(values.abs().max().item())
        factor = 1.0
        if amax:
            current = Scaling(kind=self.scaling.kind, margin=self.scaling.margin)
            factor = current.factor(torch.tensor([amax]), [parse("e4m3fn")], (0,)).item()
        return golden.encode(values.double() / factor, "e4m3fn", saturate=True), factor


def expected(scale, layer, steps):
    """Result and gradients of each step, from `golden.gemm`."""
    mean, found = Mean(scale), []
    for x, gradient in steps:
        w = layer.weight.detach()
        (a, by_x), (b, by_w) = mean.codes("x", x), mean.codes("w", w)
        g, by_g = mean.codes("gradient", gradient)

        def product(left, right, factor):
            return (golden.decode(golden.gemm(left, right, MAC), "fp32") * factor).float()

        found.append((product(a, b.T, by_x * by_w), product(g, b, by_g * by_w), product(g.T, a, by_g * by_x)))
    return found


def passes(layer, x, gradient, run=None):
    """Result and gradients of one forward and backward pass."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    if run is None:
        y = layer(x)
        y.backward(gradient)
    else:
        with run:
            y = layer(x)
            y.backward(gradient)
    return y.detach(), x.grad, layer.weight.grad.clone()


def start(scale, emulated, size=(5, 3)):
    torch.manual_seed(0)
    layer = tnn.Linear(*size, bias=False)
    if emulated:
        return layer, golden.emulate(policy_of(scale), strict=True)
    return nn.convert(layer, policy_of(scale)).model, None


def steps(count, size=(5, 3)):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(4, size[0], generator=generator) * 4.0 ** (place % 3),
            torch.randn(4, size[1], generator=generator) * 2.0 ** -(8 * (place % 2)),
        )
        for place in range(count)
    ]


def equal(found, wanted):
    return all(torch.equal(a, b) for one, two in zip(found, wanted, strict=True) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("scale", ["tensor.pow2.delayed2", "tensor.real.delayed1.margin1", "tensor.pow2.delayed"])
def test_factors_are_those_of_earlier_uses(scale, emulated):
    layer, run = start(scale, emulated)
    assert equal([passes(layer, *one, run) for one in steps(5)], expected(scale, layer, steps(5)))


@pytest.mark.parametrize("emulated", [False, True])
def test_gradients_alone_have_histories(emulated):
    policy, given = f"{MAC}, gradients=rn.sat scale=tensor.real.delayed2", steps(4)
    torch.manual_seed(0)
    layer = tnn.Linear(5, 3, bias=False)
    layer, run = (layer, golden.emulate(policy)) if emulated else (nn.convert(layer, policy).model, None)
    mean, w = Mean("tensor.real.delayed2"), golden.encode(layer.weight.detach(), "e4m3fn")
    for x, gradient in given:
        codes, factor = mean.codes("gradient", gradient)
        wanted = (golden.decode(golden.gemm(codes, w, MAC), "fp32") * factor).float()
        assert torch.equal(passes(layer, x, gradient, run)[1], wanted)


@pytest.mark.parametrize("emulated", [False, True])
def test_resumed_run_continues_histories(emulated):
    given, (layer, run) = steps(6), start("tensor.pow2.delayed3", emulated)
    whole = [passes(layer, *one, run) for one in given]
    layer, run = start("tensor.pow2.delayed3", emulated)
    found = [passes(layer, *one, run) for one in given[:3]]
    written = io.BytesIO()
    torch.save((layer.state_dict(), run and run.state_dict()), written)
    written.seek(0)
    of_layer, of_run = torch.load(written, weights_only=True)
    layer, run = start("tensor.pow2.delayed3", emulated)
    layer.load_state_dict(of_layer)
    if run:
        run.load_state_dict(of_run)
    assert equal(found + [passes(layer, *one, run) for one in given[3:]], whole)


@pytest.mark.parametrize("emulated", [False, True])
def test_evaluation_reads_histories_only(emulated):
    given, (layer, run) = steps(4), start("tensor.pow2.delayed3", emulated)
    wanted = expected("tensor.pow2.delayed3", layer, given)
    passes(layer, *given[0], run)
    layer.eval()
    found = passes(layer, *given[1], run)
    assert torch.equal(found[0], wanted[1][0])
    assert equal([passes(layer, *given[1], run)], [found])
    layer.train()
    assert equal([passes(layer, *one, run) for one in given[1:]], wanted[1:])


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_regions_add_to_histories_once(reentrant, emulated):
    scale = "tensor.pow2.delayed2"

    class Model(tnn.Module):
        def __init__(self, recomputed):
            super().__init__()
            torch.manual_seed(3)
            self.body, self.head, self.recomputed = (
                tnn.Sequential(tnn.Linear(4, 4), tnn.Linear(4, 4)),
                tnn.Linear(4, 2),
                recomputed,
            )

        def forward(self, x):
            if self.recomputed:
                return self.head(checkpoint(self.body, x, use_reentrant=reentrant))
            return self.head(self.body(x))

    found = []
    for recomputed in (False, True):
        model = Model(recomputed)
        run = golden.emulate(policy_of(scale)) if emulated else None
        if run is None:
            nn.convert(model, policy_of(scale), inplace=True)
        for power in range(2):
            x = torch.full((3, 4), 3.0**power, requires_grad=True)
            if run is None:
                model(x).sum().backward()
            else:
                with run:
                    model(x).sum().backward()
        histories = (
            run.state_dict() if run else {name: one for name, one in model.state_dict().items() if "amax" in name}
        )
        found.append(
            ([one.grad for one in model.parameters()], [x.grad], [histories[name] for name in sorted(histories)])
        )
    assert found[0][2]
    assert equal(found[0], found[1])


def test_emulated_attention_has_a_history_for_each_operand():
    layer, run = tnn.MultiheadAttention(4, 2), golden.emulate(policy_of("tensor.pow2.delayed2"), strict=False)
    x = torch.randn(3, 1, 4)
    with run:
        layer(x, x, x)[0].sum().backward()
    names = set(run.state_dict())
    # The projection of queries, keys and values together, two products of them, and the projection of the result.
    roles = ("x", "w", "gradient")
    assert names == {f"MultiheadAttention. {number} {role}" for number in (1, 2, 3, 4) for role in roles}


def test_attention_layer_has_a_history_for_each_product():
    layer = nn.convert(tnn.MultiheadAttention(4, 2), policy_of("tensor.pow2.delayed2")).model
    x = torch.randn(3, 1, 4)
    layer(x, x, x)[0].sum().backward()
    histories = layer.amax_history.view(torch.float64)
    assert histories.shape == (6, 3, 2)
    assert (histories[..., 0] > 0).all()
    assert (histories[..., 1] == 0).all()
    assert torch.equal(histories[0, 0, 0], x.abs().max().double())


@pytest.mark.filterwarnings("ignore:halfulp. all numbers")
@pytest.mark.parametrize("emulated", [False, True])
def test_convolution_scales_by_histories(emulated):
    torch.manual_seed(4)
    layer, policy = tnn.Conv2d(2, 3, 2, padding=1), policy_of("tensor.pow2.delayed1")
    plain = policy.replace("delayed1", "current")
    x, found = torch.randn(1, 2, 4, 4) * 2.0**-12, []
    for text in (policy, plain):
        model = copy.deepcopy(layer) if emulated else nn.convert(layer, text).model
        run = golden.emulate(text) if emulated else None
        for _ in range(2):
            found.append(passes(model, x, torch.ones(1, 3, 5, 5), run))
    # The second use of the same tensors has the factors of the first one.
    assert not equal(found[:1], found[2:3])
    assert equal(found[1:2], found[3:4])


def test_converted_layers_in_emulation_have_own_histories():
    given, (layer, _) = steps(2), start("tensor.pow2.delayed2", False)
    run = golden.emulate(policy_of("tensor.pow2.delayed2"), strict=True)
    wanted = expected("tensor.pow2.delayed2", layer, given)
    assert equal([passes(layer, *one, run) for one in given], wanted)
    assert run.state_dict() == {}


def test_histories_of_unnamed_code_belong_to_lines_and_operations():
    run = golden.emulate(policy_of("tensor.pow2.delayed4"))
    a = torch.randn(2, 2, requires_grad=True)
    with run:
        for _ in range(2):
            y = a @ a
        with torch.no_grad():
            a @ a
        y.sum().backward()
    state = run.state_dict()
    lines = {name.split()[0] for name in state}
    assert len(lines) == 2
    filled = {int(one.count_nonzero()) for name, one in state.items() if name.endswith("x")}
    assert filled == {2, 0}


def test_second_model_of_a_class_has_its_own_histories():
    run = golden.emulate(policy_of("tensor.pow2.delayed4"))
    for model in (tnn.Linear(3, 2), tnn.Linear(3, 2)):
        with run:
            model(torch.randn(1, 3))
    assert {name.split()[0] for name in run.state_dict()} == {"Linear.", "Linear:2."}


def test_histories_survive_conversion_to_another_type():
    layer, _ = start("tensor.pow2.delayed2", False)
    passes(layer, *steps(1)[0])
    before = layer.amax_history.clone()
    assert torch.equal(layer.half().amax_history, before)
    # A new policy with a history of the same length continues it.
    assert torch.equal(nn.convert(layer, policy_of("tensor.real.delayed2")).model.amax_history, before)
    with pytest.warns(RuntimeWarning, match="delayed"):
        nn.convert(tnn.Linear(5, 3, bias=False), MAC).model.load_state_dict(layer.state_dict())


@pytest.mark.slow
def test_compiled_layers_give_bits_of_eager_ones():
    given, (layer, _) = steps(3), start("tensor.pow2.delayed2", False)
    wanted = [passes(layer, *one) for one in given]
    layer, _ = start("tensor.pow2.delayed2", False)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found = []
    for x, gradient in given:
        x = x.clone().requires_grad_()
        layer.zero_grad()
        y = compiled(x)
        y.backward(gradient)
        found.append((y.detach(), x.grad, layer.weight.grad.clone()))
    assert equal(found, wanted)


def test_largest_of_processes_enters_history(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda x, _: x.copy_(torch.tensor([7.0]).maximum(x)))
    history = torch.zeros(2, dtype=torch.int64)
    delayed(history, torch.tensor([-3.0]), True)
    delayed(history, torch.tensor([9.0]), True)
    assert history.view(torch.float64).tolist() == [9, 7]


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: Scaling.parse("channel.pow2.delayed"), ValueError, "delayed"),
        (lambda: Scaling.parse("tensor.delayed0"), ValueError, "invalid"),
        (lambda: Scaling.parse("tensor.delayed4.current"), ValueError, "invalid"),
        (lambda: Scaling(history=-1), ValueError, "history"),
        (lambda: golden.emulate.backend(policy_of("tensor.delayed")), ValueError, "delayed"),
        (
            lambda: torch.vmap(start("tensor.delayed", False)[0])(torch.randn(2, 5)),
            RuntimeError,
            "vmap does not support delayed",
        ),
    ],
)
def test_delayed_scaling_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error, match=keyword):
        make()


def test_text_of_delayed_scaling_round_trips():
    for text in ("tensor.pow2.delayed", "tensor.real.delayed1.margin2", "tensor.pow2.delayed16"):
        assert str(Scaling.parse(text)) == text
    assert Scaling.parse("tensor.delayed1024") == Scaling.parse("tensor.delayed") == Scaling(history=HISTORY)


RANK = """
import sys
import torch
from halfulp.golden import nn

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(nn.convert(torch.nn.Linear(4, 2), sys.argv[3]).model)
for step in range(2):
    model(torch.full((1, 4), 2.0 ** (rank + step))).sum().mul(3 ** rank).backward()
torch.save(model.module.amax_history.view(torch.float64), f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_share_histories(tmp_path):
    policy = policy_of("tensor.pow2.delayed2")
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, rank, str(tmp_path), policy]) for rank in "01"]
    assert [rank.wait() for rank in ranks] == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in "01")
    assert torch.equal(first, second)
    assert first[0, 0].tolist() == [4, 2]
    assert first[0, 2].tolist() == [3, 3]
