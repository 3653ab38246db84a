"""Policies by path, class and phase: a compiled model has the bits of the same model in the context."""

import contextlib
import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from halfulp import golden


class _Net(nn.Module):
    """Module of a user: ``run`` is its forward function."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.run(self, x)


class _Block(nn.Module):
    """Residual block with parameters of its own, used by an operation outside of its layers."""

    def __init__(self, width=6):
        super().__init__()
        self.norm, self.inner, self.head = nn.LayerNorm(width), nn.Linear(width, 8), nn.Linear(8, width)
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x * self.scale + self.head(F.gelu(self.inner(self.norm(x))))


class _Broken(_Block):
    """Block in whose middle torch.compile ends a graph."""

    def forward(self, x):
        y = self.inner(self.norm(x))
        torch._dynamo.graph_break()
        # Without x, whose gradients from two graphs torch adds outside of both.
        return self.head(F.gelu(y)) * self.scale


class _Subclass(nn.Linear):
    """Layer with a forward function of its own."""

    def forward(self, input):  # noqa: A002  # torch's name
        return super().forward(input).tanh() * self.weight.sum()


def _head(run, **parts):
    return _Net(run, body=nn.Linear(6, 6), head=nn.Linear(6, 3), **parts)


def _each(model, x):
    for block in model.blocks:
        x = block(x)
    return model.head(x)


def _one_by_one(model, x):
    # torch.compile leaves a loop with a graph break to Python.
    return model.head(model.blocks[2](model.blocks[1](model.blocks[0](x))))


def _shared(model, x):
    return model.head(model.again(model.body(x)).relu())


def _tied():
    model = _head(_shared)
    model.again = model.body
    return model


def _tied_weights():
    model = _Net(lambda m, x: m.head(m.body(x).tanh()), body=nn.Linear(6, 6), head=nn.Linear(6, 6))
    model.head.weight = model.body.weight
    return model


def _blocks(*kinds, run=_each):
    return _Net(run, blocks=nn.ModuleList(kind() for kind in kinds), head=nn.Linear(6, 3))


def _hooked():
    model = _head(lambda m, x: m.head(m.body(x)))
    model.head.register_forward_pre_hook(lambda module, given: given[0] * given[0].sum())
    model.register_forward_pre_hook(lambda module, given: given[0] + given[0].square())
    return model


def _images(*layers):
    return nn.Sequential(nn.Unflatten(1, (1, 6)), *layers, nn.Flatten())


def _recomputed(model, x):
    """Recompute a layer, operations beside it, and a block with a recomputed part in the backward pass."""
    x = checkpoint(lambda x: model.body(x.exp()) * model.body.weight.sum(), x, use_reentrant=False)
    return model.head(
        checkpoint(lambda x: checkpoint(model.block, x, use_reentrant=False).tanh(), x, use_reentrant=False)
    )


MODELS = {
    "ordinary": lambda: _head(lambda m, x: m.head(m.body(x).relu())),
    "sequential": lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)),
    "nested sequential": lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 3)),
    "single layer": lambda: nn.Linear(6, 3),
    "block": _Block,
    "list": lambda: _blocks(_Block, _Block, _Block),
    "dictionary": lambda: _head(
        lambda m, x: m.head(m.parts["a-b"](m.parts["c"](x))),
        parts=nn.ModuleDict({"a-b": nn.Linear(6, 6), "c": _Block()}),
    ),
    "deep": lambda: _Net(lambda m, x: m.outer(x), outer=_Net(lambda m, x: m.inner(x) + x, inner=_Block())),
    "own parameter": lambda: _head(lambda m, x: m.head(m.body(x) @ m.raw), raw=nn.Parameter(torch.rand(6, 6))),
    "functions": lambda: _head(lambda m, x: F.linear(torch.exp(m.body(x)), m.head.weight, m.head.bias).sigmoid()),
    "tied layers": _tied,
    "tied weights": _tied_weights,
    "used twice": lambda: _head(lambda m, x: m.head(m.body(m.body(x).tanh()))),
    "forward called": lambda: _head(lambda m, x: m.head.forward(m.body(x))),
    "unused layer": lambda: _head(lambda m, x: m.body(x) * 2),
    "two results": lambda: _head(lambda m, x: torch.cat((m.head(x), m.body(x)), 1)),
    "subclass": lambda: _head(lambda m, x: m.head(m.own(m.body(x))), own=_Subclass(6, 6)),
    "hooks": _hooked,
    "attention": lambda: _Net(
        lambda m, x: m.head(m.attention(x[None], x[None], x[None], need_weights=False)[0][0]),
        attention=nn.MultiheadAttention(6, 2),
        head=nn.Linear(6, 3),
    ),
    "transformer": lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True),
    "convolution": lambda: _images(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.ReLU(), nn.Conv1d(2, 1, 2)),
    "image": lambda: _Net(
        lambda m, x: m.head(m.body(x[None, None])).flatten(), body=nn.Conv2d(1, 2, 2), head=nn.Conv2d(2, 1, 1)
    ),
    "norms": lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.RMSNorm(6), nn.GroupNorm(2, 6)),
    "embedding": lambda: _Net(
        lambda m, x: m.head(m.body((x > 0).long()).mean(1)), body=nn.Embedding(2, 6), head=nn.Linear(6, 3)
    ),
    "lstm": lambda: _Net(lambda m, x: m.head(m.body(x)[0]), body=nn.LSTM(6, 4), head=nn.Linear(4, 3)),
    "in place": lambda: _head(lambda m, x: m.head(m.body(x).mul_(x.sigmoid()).pow_(2).sub_(x))),
    "gru cell": lambda: _Net(lambda m, x: m.head(m.body(x)), body=nn.GRUCell(6, 4), head=nn.Linear(4, 3)),
    "bilinear": lambda: _Net(lambda m, x: m.head(m.body(x, x)), body=nn.Bilinear(6, 6, 4), head=nn.Linear(4, 3)),
    "recomputed": lambda: _Net(
        lambda m, x: m.inner(x), inner=_Net(_recomputed, body=nn.Linear(6, 6), block=_Block(), head=nn.Linear(6, 3))
    ),
    "graph break": lambda: _head(
        lambda m, x: (y := m.body(x), torch._dynamo.graph_break(), m.head(y.exp()))[-1],
    ),
    "broken block": _Broken,
    "broken blocks": lambda: _blocks(_Broken, _Broken, _Broken, run=_one_by_one),
    "one broken block": lambda: _blocks(_Block, _Broken, _Block, run=_one_by_one),
}
"""Functions that make a model of 5 rows of 6 numbers."""

FINE, COARSE = "fp32*fp32+fp32.rn, elementwise=fp32.rn", "e5m2*e5m2+e6m5.rn, elementwise=e6m5.rn"
HALF = "bf16*bf16+bf16.rn, elementwise=bf16.rn"

POLICIES = {
    "path": {"head": FINE, "*.inner blocks.1 0": HALF, "*": COARSE},
    "deep path": {"blocks.1.* *": HALF, "blocks.0.head": FINE, "outer.*": FINE, "*.0 !blocks.*": "fp32", "*": COARSE},
    "the model itself": {"": FINE, "body": HALF, "*": COARSE},
    "class": {nn.LayerNorm: FINE, nn.Linear: HALF, _Block: COARSE, "*": "fp16*fp16+fp16.rn, elementwise=fp16.rn"},
    "class of the model": {_Net: HALF, nn.Sequential: FINE, "*": COARSE},
    "phase": {"head @backward": FINE, "@backward": COARSE, "body @forward": FINE, "*": HALF},
    "operation": {"aten.addmm head": FINE, "aten.mul": COARSE, "aten.gelu aten.exp": FINE, "*": HALF},
    "function": {(lambda one: one.names[0].endswith("d") and one.kinds[-1:] == (nn.Linear,)): FINE, "*": HALF},
}


def _results(model, run, forward, backward):
    """Return the result of a model and all gradients."""
    torch.manual_seed(2)
    x = torch.randn(5, 6, requires_grad=True)
    with forward:
        found = run(x)
    with backward:
        found.backward(torch.linspace(-2, 3, found.numel()).reshape(found.shape))
    named = {name: one.grad for name, one in model.named_parameters()}
    return {"result": found.detach(), "input": x.grad, **named}


def _check(make, policy, compiled=torch.compile):
    """Compare results and gradients of a compiled model and of a copy in the context, bit for bit."""
    torch.manual_seed(1)
    model = make()
    other = copy.deepcopy(model)
    context = golden.emulate(policy)
    wanted = _results(model, model, context, context)
    run = compiled(other, backend=golden.emulate.backend(policy))
    # Sums of gradients of several graphs are outside of the graphs.
    found = _results(other, run, contextlib.nullcontext(), golden.emulate(policy))
    assert found.keys() == wanted.keys()
    different = [name for name, one in wanted.items() if not _same(one, found[name])]
    assert not different


def _same(one, other):
    return one is other if one is None or other is None else torch.equal(one, other)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


QUICK = {
    *(("ordinary", "path"), ("ordinary", "phase"), ("list", "class"), ("tied layers", "function")),
    *(
        ("in place", "class of the model"),
        ("used twice", "phase"),
        ("embedding", "class of the model"),
        ("graph break", "path"),
        ("broken block", "path"),
    ),
}
"""Cases of `make test`: ordinary modules, sums of gradients, backward operations of exact operations, broken graphs."""

REFUSED = {("broken blocks", "deep path")}
"""Cases in which torch.compile runs the graph of one block for another one with other policies."""

CASES = [case for case in itertools.product(MODELS, POLICIES) if case not in REFUSED]


@pytest.mark.sampled(18, 7)
@pytest.mark.parametrize(
    ("model", "policy"), [pytest.param(*case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in CASES]
)
def test_compiled_model_has_the_policies_of_the_context(model, policy):
    _check(MODELS[model], POLICIES[policy])


def test_compiled_layers_have_their_own_policies():
    model = _Net(lambda m, x: m.head(m.body(x)), body=nn.Linear(6, 6), head=nn.Linear(6, 3))
    backend = golden.emulate.backend({"head": "fp32*fp32+fp32.rn", "*": "e5m2*e5m2+e6m5.rn"})
    torch.compile(model, backend=backend)(torch.randn(5, 6))
    found = {row.module: row.arithmetic for row in backend.report().rows}
    assert found == {"body": "e5m2*e5m2+e6m5.rn", "head": "fp32*fp32+fp32.rn"}


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(REFUSED))
def test_graph_of_a_module_with_other_policies_is_refused(case):
    model, policy = case
    with pytest.raises(RuntimeError, match=r"blocks\.0\.norm as blocks\.1\.norm.*fullgraph"):
        _check(MODELS[model], POLICIES[policy])
