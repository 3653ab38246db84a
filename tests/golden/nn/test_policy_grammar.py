"""The tables of the grammar of policies in the documentation, and policies of casts with sources."""

from dataclasses import fields

import pytest
import torch

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.product import PRODUCTS
from tests.settings import ROOT

PAGE = ROOT / "docs/training.md"
KEYS = [field.name for field in fields(nn.Policy)]
CASTS = [name for name in KEYS if name not in (*PRODUCTS, "hadamard", "master", "device", "multiplier", "adder")]


@pytest.fixture(autouse=True)
def registered():
    """Register the operators of the examples."""
    golden.register_operator("truncated", lambda x, y: x & y, "e4m3fn", "e4m3fn")
    golden.register_operator("added", lambda x, y: x & y, "bf16", "bf16")


def table(heading):
    """Rows of the table whose first column has a heading, without code marks."""
    lines = iter(PAGE.read_text().splitlines())
    names = next(line for line in lines if line.startswith(f"| {heading} |")).strip("| ").split(" | ")
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            return found
        found.append(dict(zip(names, [cell.strip(" `") for cell in line.strip("|").split("|")], strict=True)))
    return found


def accepted(make, *arguments, **named):
    try:
        make(*arguments, **named)
    except ValueError:
        return False
    return True


def test_table_of_keys_is_complete():
    rows = table("key")
    assert [row["key"] for row in rows] == ["mac", *KEYS]
    plain = nn.Policy()
    for row in rows:
        if row["default"] == "none":
            assert getattr(plain, row["key"]) is None
        else:
            assert nn.Policy.parse(f"{row['key']}={row['default']}") == plain


@pytest.mark.parametrize("row", table("key"), ids=lambda row: row["key"])
def test_example_of_key_round_trips_where_it_applies(row, tmp_path):
    key, text = row["key"], row["example"]
    policy = nn.Policy.parse(text)
    assert nn.Policy.parse(str(policy)) == policy
    for name in PRODUCTS if key == "mac" else [key]:
        assert getattr(policy, name) != getattr(nn.Policy(), name)
    path = tmp_path / "policy.toml"
    pairs = [pair.split("=", 1) for pair in text.split(", ")]
    path.write_text("".join(f"{name} = {value if name == 'master' else repr(value)}\n" for name, value in pairs))
    assert nn.rules(path) == {"*": policy}
    assert accepted(nn.Linear, 2, 2, policy=policy) == (row["layers"] == "yes")
    assert accepted(golden.emulate, policy) == (row["emulate"] == "yes")
    assert (row["layers"] == "yes") == (row["train"] == "yes")


@pytest.mark.parametrize("row", table("part of a cast"), ids=lambda row: row["part of a cast"])
def test_parts_of_casts_belong_to_keys(row):
    keys = CASTS if row["keys"] == "all" else [name.strip(" `") for name in row["keys"].split(",")]
    for name in CASTS:
        blocks = "nvfp4*nvfp4+fp32.rn, " if row["part of a cast"] == "tiles" else ""
        text = f"{blocks}{name}={row['example']}"
        assert accepted(nn.Policy.parse, text) == (name in keys), text
        if name in keys:
            policy = nn.Policy.parse(text)
            assert nn.Policy.parse(str(policy)) == policy
            assert row["example"] in str(policy)


@pytest.mark.parametrize("master", [False, True])
@pytest.mark.parametrize("emulated", [False, True])
def test_update_rounds_parameters_of_layers_and_programs(emulated, master):
    """Parameters after each step are roundings of the step that the policy computes, with the words of its seed."""
    policy = nn.Policy.parse(f"bf16*bf16+fp32.rn, update=bf16.sr8, master={str(master).lower()}")

    def start(policy):
        torch.manual_seed(0)
        layer = torch.nn.Linear(6, 5, bias=False)
        context = golden.emulate(policy) if emulated else None
        return layer if emulated else nn.convert(layer, policy).model, context

    layer, context = start(policy)
    twin, plain = start("bf16*bf16+fp32.rn")
    optimizers = [torch.optim.SGD(one.parameters(), 0.1, momentum=0.9) for one in (layer, twin)]
    nn.WeightUpdate(optimizers[0], policy.update, master=policy.master, seed=3)
    cast, x = nn.Cast.parse("bf16.sr8"), torch.randn(4, 6)
    for step in range(3):
        exact = twin.weight.detach().clone()
        wanted = cast.real(exact, nn.draw.mix(nn.draw.mix(3, step), 0))
        assert torch.equal(layer.weight, wanted)
        assert not torch.equal(layer.weight, exact)
        with torch.no_grad():
            twin.weight.copy_(wanted)
        for one, run in ((layer, context), (twin, plain)):
            one.zero_grad()
            if run is None:
                one(x).square().sum().backward()
            else:
                with run:
                    one(x).square().sum().backward()
        if master:
            with torch.no_grad():
                twin.weight.copy_(exact)
        for optimizer, run in zip(optimizers, (context, plain), strict=True):
            if run is None:
                optimizer.step()
            else:
                with run:
                    optimizer.step()


@pytest.mark.parametrize(("key", "near"), [("optimiser", "optimizer"), ("normalization", "normalisation")])
def test_unknown_key_gets_a_near_one(key, near):
    with pytest.raises(ValueError, match=rf"unknown key '{key}' of a policy: did you mean {near}\?"):
        nn.Policy.parse(f"fp32, {key}=fp32.rn")


def test_parts_of_programs_are_refused_by_layers_with_both_remedies():
    with pytest.raises(ValueError, match=r"use golden\.emulate, or halfulp train --emulate"):
        nn.Linear(2, 2, policy="fp32, elementwise=bf16.rn")
