"""Private names of Amaranth: what register stages and Verilog need of them."""

import re
from types import SimpleNamespace

import pytest
from amaranth.hdl import Cat, Const, Mux, Signal

from halfulp.hdl import internals
from halfulp.hdl.internals import Assign, Concat, Operator, PortDirection, Slice, SwitchValue, ValueTransformer
from tests.settings import ROOT

ROOMS = [ROOT / room for room in ("hdl", "units", "golden", "sim", "fpga", "lab", "halfulp")]


@pytest.fixture
def a():
    return Signal(4)


@pytest.fixture
def b():
    return Signal(4)


def test_operators_have_words_and_operands(a, b):
    total = a + b
    assert isinstance(total, Operator)
    assert (total.operator, [*total.operands]) == ("+", [a, b])


def test_slices_and_concatenations_have_parts(a, b):
    part = a[1:3]
    assert isinstance(part, Slice)
    assert (part.value is a, part.start, part.stop) == (True, 1, 3)
    joined = Cat(a, b)
    assert isinstance(joined, Concat)
    assert [*joined.parts] == [a, b]


def test_choices_are_switches_with_patterns(a, b):
    choice = Mux(a[0], a, b)
    assert isinstance(choice, SwitchValue)
    assert len(choice.test) == 1
    assert [value is b for _, value in choice.cases] == [True, False]


def test_statements_name_their_signals(a, b):
    statement = a[1].eq(b[0] & b[1])
    assert isinstance(statement, Assign)
    assert [*internals.assigned_signals(statement)] == [a]
    assert [*internals.read_signals(statement.rhs)] == [b]


def test_transformers_replace_signals(a, b):
    class Replaced(ValueTransformer):
        def on_Signal(self, value):
            return b if value is a else value

    assert [*internals.read_signals(Replaced().on_value(a + Const(1)))] == [b]


def test_values_are_evaluated(a):
    state = SimpleNamespace(get_signal=lambda signal: 0, slots=[SimpleNamespace(curr=5)])
    assert internals.eval_value(state, a + 3) == 8


def test_directions_of_ports():
    assert {one.name for one in (PortDirection.Input, PortDirection.Output)} == {"Input", "Output"}


def test_no_other_module_imports_private_names():
    private = re.compile(r"^\s*(?:from|import) amaranth[\w.]*(?:\._| import _)", re.MULTILINE)
    files = [path for room in ROOMS for path in room.rglob("*.py")]
    assert [path.name for path in files if private.search(path.read_text())] == ["internals.py"]
