"""Selection of policies by module, operation, phase, class and function, alone and together."""

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.select import Candidate, matches

BF16 = "bf16*bf16+fp32.rn, elementwise=bf16.rn, optimizer=bf16.rn"


class Block(tnn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = tnn.Linear(4, 4), tnn.LayerNorm(4)

    def forward(self, x):
        return torch.tanh(self.norm(self.fc(x)) * 1.5)


def model():
    torch.manual_seed(0)
    return tnn.Sequential(Block(), Block())


def computed(policy, optimise=False):
    """Module, operation and phase of the operations in the arithmetic of a policy."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with golden.emulate(policy) as run:
        net(torch.randn(3, 4)).sum().backward()
        if optimise:
            optimizer.step()
    return {(row.module, row.operation, row.phase) for row in run.report().rows if row.arithmetic != "fp32"}


def test_words_of_a_pattern_hold_together():
    candidate = Candidate(("0.fc",), (Block, tnn.Linear), ("aten.mm", "aten.linear"), "backward")
    for pattern, wanted in (
        ("*", True),
        ("0.* aten.mm @backward", True),
        ("aten.lin*", True),
        ("0.* aten.mm @forward", False),
        ("1.* aten.mm", False),
        ("!1.*", True),
        ("0.* !*.fc", False),
        ("* !aten.mul !@forward", True),
        ("* !@backward", False),
        (tnn.Linear, True),
        (Block, True),
        (tnn.LayerNorm, False),
        (lambda one: one.phase == "backward" and "aten.mm" in one.operations, True),
    ):
        assert matches(pattern, candidate) == wanted, pattern
    assert matches("", Candidate(("",)))
    assert not matches("", Candidate(("0",)))


def test_emulation_selects_by_module_operation_and_phase():
    everything = computed(BF16)
    assert {"forward", "input_gradient", "weight_gradient"} <= {phase for *_, phase in everything}
    assert computed({"0 aten.mul @forward": BF16}) == {("0", "mul", "forward")}
    backward = computed({"1.fc @backward": BF16})
    assert {module for module, *_ in backward} == {"1.fc"}
    assert {phase for *_, phase in backward} == {"input_gradient", "weight_gradient"}
    without = computed({"* !*.norm !aten.tanh": BF16})
    assert without == {row for row in everything if not row[0].endswith("norm") and "tanh" not in row[1]}
    updates = computed({"@update": BF16}, optimise=True)
    assert {phase for *_, phase in updates} == {"update"}


def test_emulation_selects_by_class_and_function():
    everything = computed(BF16)
    assert computed({tnn.LayerNorm: BF16}) == {row for row in everything if row[0].endswith("norm")}
    # Blocks are around all of their parts.
    assert computed({Block: BF16}) == {row for row in everything if row[0]}
    assert computed({lambda one: one.names == ("0.fc",): BF16}) == {row for row in everything if row[0] == "0.fc"}


def test_first_match_counts():
    with golden.emulate({"0 !aten.mul": "fp32", "0": BF16, "*": "e5m2*e5m2+e6m5.rn"}) as run:
        model()(torch.randn(3, 4))
    found = {(row.module, row.operation): row.arithmetic for row in run.report().rows}
    assert found["0", "mul"] == "bf16.rn"
    assert found["1.fc", "addmm"] == "e5m2*e5m2+e6m5.rn"
    assert found["0.fc", "addmm"] == "e5m2*e5m2+e6m5.rn"


@pytest.mark.slow
def test_compiled_programs_select_as_eager_ones():
    net, x = model(), torch.randn(3, 4)
    for rules in ({"0 aten.mul": BF16, "*": "fp32"}, {tnn.LayerNorm: BF16}, {"* !@backward": BF16}):
        with golden.emulate(rules):
            wanted = net(x)
        found = torch.compile(net, backend=golden.emulate.backend(rules))(x)
        assert torch.equal(found, wanted)
        torch.compiler.reset()


def test_conversion_excludes_layers():
    mac = "bf16*bf16+fp32.rn"
    for rules in ({"* !0.*": mac}, {lambda one: one.names == ("1.fc",): mac}):
        swaps = nn.convert(model(), rules).swaps
        assert {swap.name for swap in swaps if swap.policy is not None} == {"1.fc"}


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: golden.emulate({"@backwards": BF16}), ValueError, "@backward, @update$"),
        (
            lambda: golden.emulate({"@input_gradient": BF16}),
            ValueError,
            "operations that a report counts as input_gradient are in @backward$",
        ),
        (lambda: golden.emulate({3: BF16}), TypeError, "pattern"),
        (lambda: golden.emulate({int: BF16}), TypeError, "Module"),
        (lambda: nn.convert(model(), {"* aten.mm": BF16}), ValueError, "emulate"),
        (lambda: nn.convert(model(), {"!@forward": BF16}), ValueError, "emulate"),
        (lambda: nn.convert(model(), {"* !*.fc": "bf16*bf16+fp32.rn"}), ValueError, "matches"),
    ],
)
def test_selection_rejects_bad_patterns(make, error, keyword):
    with pytest.raises(error, match=keyword):
        make()
