"""Report of an emulated program: rows, arithmetic of their operations, and share of products."""

import json
import math
from collections import Counter

import pytest
import torch
from torch import nn

from halfulp import golden
from halfulp.golden.nn import Policy, convert
from halfulp.golden.program.report import USES
from tests.emulated_programs import BF16


def test_report_names_operations_in_torch():
    with golden.emulate("bf16*bf16+fp32.rn") as run:
        torch.fft.rfft(torch.randn(8)).abs()
        torch.randn(2, 3) @ torch.randn(3, 4)
        torch.randn(3).exp()
    report = run.report()
    assert {row.operation for row in report.in_torch} >= {"_fft_r2c", "exp"}
    assert next(row.macs for row in report.rows if row.operation == "mm") == 24
    assert report.share == 1
    assert json.loads(report.json())["share"] == 1
    assert "test_report.py" in str(report)
    calls = sum(row.calls for row in report.rows)
    assert report.summary.endswith(f"; {calls - 1} of {calls} operations are in torch's own")
    assert (
        str(report).splitlines()[-1].startswith("seconds: the first call of an operation includes the time to compile")
    )


def test_report_plots_its_rows(tmp_path):
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with golden.emulate({"linear1": BF16, "self_attn*": BF16}) as run:
        model(torch.randn(2, 4, 8)).sum().backward()
    run.report().plot(tmp_path / "operations.svg")
    drawn = (tmp_path / "operations.svg").read_text()
    assert "of the multiply-accumulates are in the arithmetic" in drawn
    with pytest.raises(ValueError, match="ending"):
        run.report().plot(tmp_path / "operations.txt")


def test_report_has_a_row_for_each_gradient_of_a_convolution():
    layer, x = nn.Conv2d(2, 3, 3), torch.randn(1, 2, 5, 5, requires_grad=True)
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=bf16.rn", values=True) as run:
        layer(x).sum().backward()
    rows = {row.phase: row.macs for row in run.report().rows if row.kind == "product"}
    assert rows == dict.fromkeys(["forward", "input_gradient", "weight_gradient"], 3 * 9 * 2 * 9)
    policy = Policy.of("bf16*bf16+fp32.rn", input_gradient="fp32", elementwise="bf16.rn")
    with pytest.raises(RuntimeError, match="input_gradient"), golden.emulate(policy, strict=True):
        layer(x).sum().backward()


def test_products_without_a_policy_count_against_the_share():
    layers = nn.ModuleList([nn.Linear(4, 3), nn.Conv2d(2, 3, 3, groups=1)])
    with golden.emulate({"1": "bf16*bf16+fp32.rn"}) as run:
        layers[0](torch.ones(2, 4)).sum().backward()
        layers[1](torch.ones(1, 2, 5, 5)).sum().backward()
    macs = Counter()
    for row in run.report().rows:
        macs[row.operation, row.arithmetic == "fp32"] += row.macs
    assert macs["addmm", True] == macs["mm", True] == 2 * 4 * 3
    assert sum(macs.values()) == 2 * 2 * 4 * 3 + 2 * 9 * 3 * 2 * 9
    assert run.report().share < 1


def test_converted_layers_report_their_own_arithmetic():
    model = convert(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), "e5m2*e5m2+e6m5.sr4").model
    with golden.emulate(BF16, strict=True) as run:
        model(torch.randn(2, 4, requires_grad=True)).sum().backward()
    rows = {row.operation: (row.arithmetic, row.macs) for row in run.report().rows if row.macs}
    assert rows == {
        "matmul": ("e5m2*e5m2+e6m5.sr4", 2 * 4 * 3),
        "matmul_gradients": ("e5m2*e5m2+e6m5.sr4", 2 * 2 * 4 * 3),
    }


NUMBERS = {
    "decimals": lambda: torch.tensor([0.123, -2.345, 7.0]).round(decimals=2),
    "decimals in place": lambda: torch.tensor([0.123, -2.345, 7.0]).round_(decimals=2),
    "real steps": lambda: torch.arange(0, 1, 0.1),
    "points": lambda: torch.linspace(0, 1, 7),
    "largest numbers": lambda: torch.tensor([math.nan, math.inf, -math.inf, 0.3]).nan_to_num(),
    "sums at places": lambda: torch.full((2,), 0.3).scatter_(0, torch.tensor([0]), torch.tensor([0.3]), reduce="add"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_new_numbers_are_rounded_and_reported(name):
    policy = "bf16*bf16+bf16.rn, elementwise=bf16.rn"
    with golden.emulate(policy, strict=True) as run:
        found = NUMBERS[name]()
    rows = [row for row in run.report().rows if row.arithmetic.startswith("bf16")]
    assert rows
    # Numbers at which nothing was added stay as they are.
    numbers = found[:1] if name == "sums at places" else found
    assert torch.equal(numbers, numbers.bfloat16().float())
    torch.testing.assert_close(found.clamp(-3e38, 3e38), NUMBERS[name]().clamp(-3e38, 3e38), rtol=3 * 2**-8, atol=0)
    with pytest.raises(RuntimeError, match=r"elementwise|forward"), golden.emulate("fp32", strict=True):
        NUMBERS[name]()


def test_sequences_of_integers_are_constants():
    with golden.emulate("fp32", strict=True) as run:
        assert torch.arange(0, 4, dtype=torch.float32).tolist() == torch.linspace(0, 3, 4).tolist() == [0, 1, 2, 3]
    assert not run.report().rows


def test_report_has_columns_of_values_only_if_they_are_counted():
    for values in (False, True):
        with golden.emulate("bf16*bf16+fp32.rn, elementwise=bf16.rn", values=values) as run:
            torch.zeros(3) / torch.zeros(3)
        report = run.report()
        (row,) = json.loads(report.json())["rows"]
        assert str(report).startswith(f"{report.summary}\nmodule ")
        assert [name in row for name in ("zeros", "infinities", "nans")] == [values] * 3
        assert ("nans" in str(report), "nans" in report._repr_html_()) == (values, values)
    assert row["nans"] == 3


POLICY = "bf16*bf16+fp32.rn"


def ran(policy):
    """Report of one call of a layer and a function."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    with golden.emulate(policy) as run:
        model(torch.ones(2, 4))
    return run.report()


@pytest.mark.filterwarnings("ignore:halfulp. the pattern")
def test_report_names_patterns_that_selected_nothing():
    patterns = {"fc*": POLICY, "1 aten.exp": POLICY, nn.Conv2d: POLICY, "0": POLICY, "!0 @forward": "fp32", "*": "fp32"}
    report = ran(patterns)
    assert report.unused == [
        f"the pattern {name} selected no operation" for name in ("'fc*'", "'1 aten.exp'", "Conv2d")
    ]
    assert str(report).splitlines()[-3:] == report.unused
    assert json.loads(report.json())["unused"] == report.unused
    # A pattern behind one that selects all operations has no effect either.
    assert ran({"*": POLICY, "0": POLICY}).unused == ["the pattern '0' selected no operation"]


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        (["update=e5m2.rn", "master=true"], "step of an optimizer with a WeightUpdate"),
        (["optimizer=fp32.rn"], "step of an optimizer"),
        (["gradients=e5m2.rn"], "gradient of a product"),
        (["normalisation=fp32.rn"], "normalisation"),
        (["reductions=fp32.rn pairwise"], "sum of elements"),
    ],
)
def test_report_names_parts_of_policies_without_effect(parts, missing):
    policy = ", ".join([POLICY, "weights=e5m2.rn", "functions=fp32.rn", *parts])
    assert ran(policy).unused == [f"{part} had no effect, because the program has no {missing}" for part in parts]
    # Nothing is missing in a program that computed nothing.
    with golden.emulate(policy) as run:
        torch.ones(2).reshape(1, 2)
    assert not run.report().unused


def test_every_part_of_a_policy_has_its_operations():
    given = {name for name in vars(Policy.parse("fp32")) if not name.startswith("_")}
    assert given == {"forward", "input_gradient", "weight_gradient", *USES}


def test_parts_with_an_effect_are_not_named():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = Policy.parse(
        f"{POLICY}, weights=e5m2.rn, gradients=e5m2.rn, update=bf16.rn, master=true, optimizer=fp32.rn, "
        "elementwise=bf16.rn, functions=bf16.rn, reductions=fp32.rn, normalisation=fp32.rn"
    )
    golden.nn.WeightUpdate(optimizer, policy.update, master=policy.master)
    with golden.emulate(policy) as run:
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()
        optimizer.step()
    assert not run.report().unused


def test_report_counts_numbers_that_leave_torch():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    before = torch.Tensor.item, torch.Tensor.__float__
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=bf16.rn, optimizer=fp32.rn", strict=True) as run:
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()  # reads the number of its steps by item()
        assert loss.item() == float(loss)
        assert f"{loss:.3f}".count(".") == 1
        rows = model(torch.ones(2, 4)).tolist()
        assert bytes(loss.detach().untyped_storage())
        assert torch.arange(3).tolist() == [0, torch.tensor(1).item(), 2]
        assert math.sqrt(loss.detach().abs()) >= 0
    assert len(rows) == 2
    assert (torch.Tensor.item, torch.Tensor.__float__) == before
    report = run.report()
    assert list(report.numbers.values()) == [2, 6, 1]
    assert list(report.arrays.values()) == [1]
    place = next(iter(report.numbers))
    assert f"{place}: 2 numbers left torch; arithmetic on numbers of Python is not emulated" in str(report)
    assert json.loads(report.json())["numbers"] == report.numbers
