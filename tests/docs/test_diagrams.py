"""Block diagrams and waveforms on pages: they show every port, and what formulas and simulations give."""

import re
from xml.etree import ElementTree

import pytest

from halfulp.units.catalogue import CATALOGUE
from halfulp.units.systolic import Grid
from halfulp.units.verilog import emit
from tests.docs.test_pages import page_module

generate = page_module("generate")
diagrams = page_module("diagrams")
floorplans = page_module("floorplans")
waveforms = page_module("waveforms")

NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(svg):
    """Return the words of a picture, whose XML is valid and has no colour of its own."""
    root = ElementTree.fromstring(svg)
    assert "\n" not in svg
    assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', svg)) <= {"none", "currentColor"}
    return [element.text for element in root.iter(f"{NAMESPACE}text")]


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
def test_block_diagram_shows_ports_and_roundings(row):
    unit = generate._example(row)
    path = diagrams.DataPath(unit)
    shown = " ".join(texts(path.svg(str(unit.spec))))
    for name in (*unit.inputs, *unit.outputs):
        vector = re.escape(re.sub(r"\d+$", "", name))
        assert re.search(rf"\b{vector}(\d+)?\b", shown), name
    for step in unit.spec.formula.sums:
        assert step.o is None or f"round {step.rounding} {step.o}" in shown
    assert ("register" in shown) == ("clear" in unit.inputs)


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
def test_wires_of_block_diagram_pass_through_no_node(row):
    path = diagrams.DataPath(generate._example(row))
    for node in path.nodes:
        for other in path.nodes:
            if other is not node and other.column == node.column:
                assert abs(node.row - other.row) >= 1
            if node.kind != "input" and other.column < node.column < path._last(other):
                assert abs(node.row - other.row) >= 0.7


def test_block_diagram_follows_the_formula():
    lerp = diagrams.DataPath(generate.component("lerp e5m2,e5m2,e5m2"))
    assert [node.text for node in lerp.nodes] == [
        *("b e5m2", "a e5m2", "+", "t e5m2", "×", "+", "round rn\ne5m2", "o e5m2")
    ]
    difference, product, last = (lerp.nodes[place] for place in (2, 4, 5))
    assert [(node.text, mark) for node, mark in difference.inputs] == [("b e5m2", ""), ("a e5m2", "−")]
    assert difference in [node for node, _ in product.inputs]
    assert [node.text for node, _ in last.inputs] == ["a e5m2", "×"]
    exact = diagrams.DataPath(generate.component("quire e5m2*e5m2"))
    assert [node.text for node in exact.nodes][-3:] == ["exact register", "round rn\ne5m2", "o e5m2"]


@pytest.mark.parametrize("name", ["mac", "mul", "compare"])
def test_instance_on_a_page_has_the_ports_of_the_module(name):
    unit = generate._example(CATALOGUE[name])
    instance = " ".join(generate._instance(unit))
    module, ports = re.search(r"^module (\w+)\(([^)]*)\)", emit(unit), re.MULTILINE).groups()
    assert instance.startswith(f"{module} unit (")
    assert sorted(re.findall(r"\.(\w+)\(", instance)) == sorted(re.findall(r"\w+", ports))


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
def test_port_on_a_page_has_a_meaning(row):
    lines = list(generate._ports(generate._example(row)))
    assert lines
    assert [line for line in lines if not re.search(r" \| [^|]+\. \|$", line)] == []
    assert [line for line in lines if "| input |" in line and "Result." in line] == []


def test_waveform_of_an_accumulator_has_its_sums():
    """By hand: 1, 1 + 2, no operands, + 3, disabled, 10 + 4, + 1, and 2 * 2 from zero."""
    _, _, lanes = waveforms._steps()
    assert lanes["o"] == ["0", "1", "3", "3", "6", "6", "14", "15"]


def test_waveform_of_a_stream_transfers_products_in_order():
    _, _, lanes = waveforms._stream()

    def transfers(side, *names):
        valid, ready = (lanes[f"{side}.{name}"] for name in ("valid", "ready"))
        rows = zip(*(lanes[f"{side}.{name}"] for name in names), strict=True)
        return [tuple(map(float, row)) for v, r, row in zip(valid, ready, rows, strict=True) if v and r]

    assert [(a * b,) for a, b in transfers("i", "a", "b")] == transfers("o", "o") == [(2,), (4,), (6,), (8,)]
    assert 0 in lanes["i.ready"]


def test_waveform_of_a_division_has_results_where_it_is_ready():
    _, _, lanes = waveforms._iterations()
    assert [text for text in dict.fromkeys(lanes["o"]) if text] == ["1.5", "1.25"]


def test_page_of_waveforms_has_valid_pictures():
    pictures = [line for line in waveforms.page() if line.startswith('<div class="diagram"><svg ')]
    assert len(pictures) == 3
    assert {"clk", "i.ready", "14"} <= {text for picture in pictures for text in texts(picture)}


@pytest.mark.parametrize(("n", "m", "depth"), [(2, 3, 1), (3, 2, 2), (1, 1, 1)])
def test_floor_plan_has_the_cells_and_skew_of_the_array(n, m, depth):
    """Row i of ``a`` and column j of ``b`` wait i and j cycles, and results of column j wait m - 1 - j."""
    plan = floorplans.FloorPlan(Grid(mac="e2m1*e2m1+e3m2.rn", n=n, m=m, depth=depth))
    wanted = {("a", row): row for row in range(n)} | {("b", column): column for column in range(m)}
    assert plan.registers == wanted | {("c", column): m - 1 - column for column in range(m)}
    picture = plan.svg("plan")
    assert picture.count('class="mac"') == n * m
    assert picture.count('class="register"') == sum(plan.registers.values())
    shown = texts(picture)
    assert [f"{row},{column}" for row in range(n) for column in range(m)] == [text for text in shown if "," in text]
    assert shown.count(f"{depth} sums") == n * m * (depth > 1)
    assert {f"{n} × e2m1", f"{m} × e2m1", f"c: {m} × e3m2"} <= set(shown)
