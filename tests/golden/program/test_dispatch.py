"""Operations of emulated programs behave as in torch: views, memory, edge cases and errors."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from halfulp import golden
from halfulp.golden.program import dispatch
from halfulp.golden.program.operations import EXACT as EXACT_OVERLOADS
from tests.emulated_programs import BF16

EDGES = {
    "product of no terms": lambda: torch.ones(2, 0) @ torch.ones(0, 3),
    "product of no rows": lambda: torch.bmm(torch.empty(0, 2, 3), torch.empty(0, 3, 2)),
    "start values of no terms": lambda: torch.addmm(torch.ones(3), torch.ones(2, 0), torch.ones(0, 3)),
    "convolution of no images": lambda: F.conv2d(torch.empty(0, 3, 5, 5), torch.ones(2, 3, 3, 3)),
    "gradient of no rows": lambda: torch.func.grad(lambda w: F.linear(torch.empty(0, 3), w, torch.ones(2)).sum())(
        torch.ones(2, 3)
    ),
    "sums of nothing": lambda: torch.cat(
        [torch.empty(0, 3).sum(0), torch.empty(3, 0).sum(1), torch.empty(0, 2).mean(0)]
    ),
    "products of nothing": lambda: torch.cat([torch.empty(0, 3).prod(0), torch.empty(0).cumsum(0)]),
    "0 dimensions": lambda: torch.stack(
        [one(torch.tensor(2.0), 0) for one in (torch.sum, torch.prod, torch.cumsum, torch.cumprod, torch.softmax)]
    ),
    "NaN and infinities": lambda: (
        torch.tensor([[math.nan, math.inf], [math.inf, 0]]) @ torch.tensor([[1, 0], [0, math.inf]])
    ),
    "transposition in place": lambda: torch.arange(4.0).reshape(2, 2).mul(2).t_().add_(1).unsqueeze_(0),
    "forward derivative": lambda: torch.stack(
        torch.func.jvp(lambda x: (x @ x).square(), (torch.ones(3),), (torch.ones(3),))
    ),
    "jacobian": lambda: torch.func.jacfwd(lambda x: (x @ x).square())(torch.ones(3)),
    "vmap": lambda: torch.func.vmap(lambda a, b: (a @ b) * 2)(torch.ones(2, 3), torch.ones(2, 3)),
}


@pytest.mark.parametrize("name", EDGES)
def test_emulate_takes_edge_cases_of_torch(name):
    with golden.emulate(BF16, strict=True):
        found = EDGES[name]()
    torch.testing.assert_close(found, EDGES[name](), rtol=0, atol=0, equal_nan=True)


def test_views_and_operations_in_place_share_memory():
    with golden.emulate(BF16, strict=True):
        x = torch.ones(2, 3)
        x[0].mul_(3)
        x.T[1].add_(1)
        out = torch.empty(2, 3)
        torch.add(x, 1, out=out)
    assert x.tolist() == [[3, 4, 3], [1, 2, 1]]
    assert torch.equal(out, x + 1)


@pytest.mark.parametrize("part", ["elementwise=bf16.rn", "elementwise=fp32.rn"])
def test_emulate_in_place_operands_share_memory(part):
    """Operations in place whose other operand is the changed tensor, or that have several parts."""
    changes = {
        "sub_": (lambda x: (x,), {"alpha": 0.3}),
        "div_": (lambda x: (torch.arange(1.0, 6),), {}),
        "pow_": (lambda x: (3,), {}),
    }
    for name, (operands, named) in changes.items():
        x = torch.randn(5, 5)
        with golden.emulate(f"bf16*bf16+fp32.rn, {part}"):
            expected = getattr(x, name.removesuffix("_"))(*operands(x), **named)
            found = getattr(x, name)(*operands(x), **named)
        assert found is x
        assert torch.equal(x, expected)


REFUSED_WRITES = {
    "overlapping view": lambda t: t[1:].add_(t[:-1]),
    "transposed view": lambda t: t.reshape(2, 2).mul_(t.reshape(2, 2).t()),
    "broadcast view": lambda t: t.reshape(2, 2).mul_(t[:2]),
    "expanded tensor": lambda t: t[:1].expand(4).add_(torch.ones(4)),
    "integers in place": lambda t: t.long().add_(t),
    "integers for results": lambda t: torch.add(t, 1, out=t.long()),
    "results in an operand": lambda t: torch.add(t[1:], 1, out=t[:-1]),
    "larger result": lambda t: t[:1].add_(t.clone()),
}


@pytest.mark.parametrize("name", REFUSED_WRITES)
def test_emulate_refuses_writes_that_torch_refuses(name):
    with pytest.raises(RuntimeError) as wanted:
        REFUSED_WRITES[name](torch.ones(4))
    with golden.emulate(BF16, strict=True), pytest.raises(RuntimeError) as found:
        REFUSED_WRITES[name](torch.ones(4))
    assert str(found.value) == str(wanted.value)


REFUSED_ARGUMENTS = {
    "vectors of other lengths": lambda t: torch.dot(t, t[:2]),
    "dilation of zero": lambda t: F.conv1d(t.reshape(1, 1, 4), t[:2].reshape(1, 1, 2), dilation=0),
    "rows of another shape": lambda t: t.reshape(2, 2).index_add(0, torch.tensor([0]), t[:2]),
    "index out of bounds": lambda t: t.scatter_add(0, torch.tensor([4]), t[:1]),
    "row out of bounds": lambda t: t.index_add(0, torch.tensor([7]), t[:1]),
    "divisor of zero": lambda t: F.avg_pool2d(t.reshape(1, 2, 2), 2, divisor_override=0),
    "approximation without a name": lambda t: F.gelu(t, approximate="exact"),
}


@pytest.mark.parametrize("name", REFUSED_ARGUMENTS)
def test_emulate_raises_errors_of_torch(name):
    with pytest.raises((RuntimeError, IndexError)) as wanted:
        REFUSED_ARGUMENTS[name](torch.ones(4))
    with golden.emulate(BF16, strict=True), pytest.raises(type(wanted.value)) as found:
        REFUSED_ARGUMENTS[name](torch.ones(4))
    assert str(found.value) == str(wanted.value)


OTHER_OVERLOADS = {
    "round.decimals": "multiplies and divides by a power of ten",
    "scatter.reduce": "adds or multiplies",
    "scatter.value_reduce": "adds or multiplies",
    "index.list_Tensor": "selects from a list in TorchScript, and no tensor reaches it",
}
"""Overloads without a place in the table of operations that round nothing, and the reasons."""


def test_every_overload_of_exact_operations_is_classified():
    """A new overload in torch, or a new operation of the table without its overloads, needs a decision."""
    exact = {name for names in EXACT_OVERLOADS.values() for name in names.split()}
    packets = {name.partition(".")[0] for name in exact}
    found = set()
    for name, namespace in itertools.product(sorted(packets | {f"{one}_" for one in packets}), ("aten", "prims")):
        packet = getattr(getattr(torch.ops, namespace), name, None)
        for overload in () if packet is None else packet.overloads():
            func = getattr(packet, overload)
            tensors = [one for one in (*func._schema.arguments, *func._schema.returns) if str(one.type) == "Tensor"]
            # Overloads without tensors, and those of lists and dictionaries, belong to TorchScript.
            if tensors and not any(str(one.type).startswith("Dict") for one in func._schema.arguments):
                key = str(dispatch.functional(func)).removeprefix(f"{namespace}.").removesuffix(".default")
                if not dispatch.is_exact(func):
                    found.add(key)
    assert found == set(OTHER_OVERLOADS)


class Recurrent(torch.nn.Module):
    """A recurrent layer and a linear one: the functions of torch that emulation replaces."""

    def __init__(self, kind: type):
        super().__init__()
        self.layer, self.last = kind(4, 3), torch.nn.Linear(3, 2)

    def forward(self, x):
        y, _ = self.layer(x)
        return self.last(y) * 2


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_script_has_the_bits_of_the_module(kind):
    torch.manual_seed(0)
    model, x = Recurrent(kind), torch.randn(5, 2, 4)
    parameters = list(model.parameters())
    with golden.emulate(BF16, strict=True):
        expected = model(x)
        scripted = torch.jit.script(model)
        # TorchScript changes its graph after the first calls.
        found = [scripted(x) for _ in range(3)]
        assert all(torch.equal(y, expected) for y in found)
        gradients = [torch.autograd.grad(y.sum(), parameters) for y in (expected, found[-1])]
    assert all(map(torch.equal, *gradients))
    assert not torch.equal(scripted(x), expected)


@pytest.mark.parametrize("traced", [torch.nn.Linear(3, 2), lambda x: x * 2])
def test_emulate_refuses_traces(traced):
    with golden.emulate(BF16), pytest.raises(RuntimeError, match=r"torch\.jit\.trace has no meaning in golden"):
        torch.jit.trace(traced, torch.ones(1, 3))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_emulate_refuses_nested_tensors(layout):
    x = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)
    with golden.emulate(BF16), pytest.raises(ValueError, match="nested"):
        _ = x * 2
