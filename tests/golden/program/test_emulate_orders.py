"""Words of a policy for programs change the bits of each kind of operation, or the report says that they do not."""

import itertools
from fractions import Fraction

import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import parse

MAC = "mac=bf16*bf16+fp32.rn"
PLACES = torch.tensor([0, 2, 0, 0, 2, 1, 0, 0] * 4)

SUMS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "var": lambda x: x.var(0),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=0),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum of an inner dimension": lambda x: x.mT.cumsum(1),
    "index_add": lambda x: torch.ones(3, x.shape[1]).index_add(0, PLACES, x),
    "index_put": lambda x: torch.ones(3, x.shape[1]).index_put((PLACES,), x, accumulate=True),
    "scatter_add": lambda x: torch.ones(3, x.shape[1]).scatter_add(0, PLACES[:, None].expand(x.shape), x),
    "embedding": lambda x: torch.func.grad(lambda w: (torch.nn.functional.embedding(PLACES, w) * x).sum())(x[:3]),
    "avg_pool2d": lambda x: torch.nn.functional.avg_pool2d(x[None], (32, 1)),
    "softmax": lambda x: x.softmax(0),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x.mT, (32,)),
}
PRODUCTS = {"prod": lambda x: (x + 1).prod(0), "cumprod": lambda x: (x + 1).cumprod(0)}
OTHERS = {
    "add": lambda x: x + x.flip(0),
    "mul": lambda x: x * x.flip(0),
    "div": lambda x: x / x.flip(0),
    "sqrt": lambda x: x.abs().sqrt(),
    "exp": lambda x: x.exp(),
    "gelu": torch.nn.functional.gelu,
}
CASES = [
    *((name, "reductions=bf16.rn") for name in SUMS | PRODUCTS),
    *((name, "reductions=fp32.rn pairwise") for name in SUMS | PRODUCTS),
    *((name, "reductions=fp32.rn exact") for name in SUMS),
    *((name, "elementwise=bf16.rn") for name in (SUMS.keys() | OTHERS.keys()) - {"exp", "gelu"}),
    *((name, "functions=bf16.rn") for name in ("softmax", "exp", "gelu")),
]


def computed(name, policy):
    torch.manual_seed(0)
    with golden.emulate(policy, strict=True) as run:
        found = (SUMS | PRODUCTS | OTHERS)[name](torch.randn(32, 2))
    return found, run.report()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "word"), sorted(CASES))
def test_word_of_policy_changes_bits(name, word):
    base = {"elementwise": "elementwise=fp32.rn", "functions": "functions=fp32.rn", "reductions": "reductions=fp32.rn"}
    usual = computed(name, ", ".join([MAC, *base.values()]))[0]
    changed = computed(name, ", ".join([MAC, *(base | {word.split("=")[0]: word}).values()]))[0]
    assert not torch.equal(usual, changed)


@pytest.mark.parametrize("name", PRODUCTS)
def test_report_says_that_products_have_no_exact_order(name):
    found, report = computed(name, f"{MAC}, elementwise=fp32.rn, reductions=bf16.rn exact")
    assert torch.equal(found, computed(name, f"{MAC}, elementwise=fp32.rn, reductions=bf16.rn")[0])
    row = next(row for row in report.rows if row.operation == name)
    assert row.arithmetic == "bf16.rn sequential"
    assert "exact is an order of sums" in row.reason


@pytest.mark.parametrize("name", ["logcumsumexp"])
def test_report_and_strict_name_cumulative_functions_without_arithmetic(name):
    with golden.emulate(f"{MAC}, elementwise=bf16.rn, reductions=bf16.rn exact") as run:
        getattr(torch, name)(torch.ones(4), 0)
    assert [row.reason for row in run.report().in_torch] == [f"halfulp does not emulate aten.{name}"]
    with golden.emulate(MAC, strict=True), pytest.raises(RuntimeError, match=name):
        getattr(torch, name)(torch.ones(4), 0)


@pytest.mark.parametrize("order", ["sequential", "pairwise", "exact"])
@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "index_add"])
def test_cumulative_and_scattered_results_have_order_of_policy(name, order, rounding):
    """Results in fractions; with an exact order, of sums only."""
    acc = parse("e6m5")
    torch.manual_seed(1)
    x = torch.randn(11, 2)
    policy = f"{MAC}, reductions=e6m5.{rounding} {order}"
    into, places = torch.randn(2, 2), torch.tensor([0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1])
    with golden.emulate(policy):
        found = into.index_add(0, places, x) if name == "index_add" else getattr(x, name)(0)

    def rounded(value):
        return Fraction(acc.decode(acc.encode(value, rounding)))

    def step(a, b):
        return rounded(a * b if name == "cumprod" else a + b)

    def total(values):
        if order == "exact" and name != "cumprod":
            return rounded(sum(values))
        values = list(map(rounded, values))
        if order != "pairwise":
            return list(itertools.accumulate(values, step))[-1]
        while len(values) > 1:
            rest = values[len(values) // 2 * 2 :]
            values = [step(a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + rest
        return values[0]

    for column in range(2):
        given = [Fraction(one) for one in x[:, column].tolist()]
        if name == "index_add":
            begins = [Fraction(one) for one in into[:, column].tolist()]
            chosen = [
                [begins[row], *(one for one, at in zip(given, places, strict=True) if at == row)] for row in (0, 1)
            ]
        else:
            chosen = [given[: length + 1] for length in range(len(given))]
        assert [Fraction(one) for one in found[:, column].tolist()] == list(map(total, chosen))


def test_cumulative_sums_of_empty_and_scalar_tensors_have_shapes_of_torch():
    for order in ("sequential", "pairwise", "exact"):
        with golden.emulate(f"{MAC}, reductions=bf16.rn {order}"):
            for x in (torch.ones(0, 3), torch.ones(2, 0), torch.tensor(1.5)):
                assert x.cumsum(0).shape == x.cumprod(-1).shape == x.shape
            assert torch.ones(3, 0).prod(1).tolist() == [1, 1, 1]
            assert torch.ones(3).index_add(0, torch.zeros(0, dtype=torch.int64), torch.ones(0)).tolist() == [1, 1, 1]
