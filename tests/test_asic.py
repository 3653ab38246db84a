"""Costs in standard cells, with the library of `tests/cells.lib`, whose figures are made up."""

import os
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from halfulp.fpga.report.asic import sweep
from halfulp.fpga.synth.asic import CellCost, measure_cells
from halfulp.fpga.synth.liberty import OSU018, Function, Group, Library
from halfulp.sim.implementation import short
from halfulp.tools.errors import ToolError

CELLS = Path(__file__).with_name("cells.lib")


@pytest.fixture(scope="module")
def library():
    return Library.read(CELLS)


def test_library_has_cells_with_units(library):
    assert (library.name, len(library.cells), library.voltage) == ("made_up", 16, 1.2)
    assert (library.nand.name, library.nand.area, library.inverter.name) == ("NAND2X1", 4, "INVX1")
    assert library.cells["XOR2X1"].capacitances == {"A": pytest.approx(3e-15), "B": pytest.approx(3e-15)}
    registers = {name for name, cell in library.cells.items() if cell.is_register}
    assert registers == {name for name, cell in library.cells.items() if not cell.is_gate} == {"DFFX1"}


@pytest.mark.parametrize(
    ("text", "pins", "table"),
    [
        ("!(A B)", "AB", 0b0111),
        ("A' + B*C", "ABC", 0b11010101),
        ("(A ^ B)'", "AB", 0b1001),
        # An exclusive or binds tighter than a product, and a product tighter than a sum.
        ("A ^ B & C | D", "ABCD", 0b1111111101100000),
        ("!A'", "A", 0b10),
        ("1", "", 0b1),
    ],
)
def test_function_has_truth_table(text, pins, table):
    function = Function.parse(text)
    assert ("".join(function.pins), function.table()) == (pins, table)


@pytest.mark.parametrize("text", ["(A", "A +", "A ) B", "+ A", "A !"])
def test_function_rejects_invalid_text(text):
    with pytest.raises(ValueError, match="invalid function"):
        Function.parse(text)


def test_group_reads_attributes_and_comments():
    group = Group.parse('library(x) { /* } */ a : "b c"; d("1, \\\n 2", 3); cell(y) { area : 2.5; }; e : 4; }')
    assert group.values == {"a": "b c", "e": "4"}
    assert group.lists == {"d": ["1, 2", "3"]}
    (cell,) = group.of("cell")
    assert (cell.names, cell.number("area"), cell.number("none", 7)) == (["y"], 2.5, 7)


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("library(x) {", "no end"),
        ("library(x) { } }", "closing brace"),
        ("library(x) { a b; }", "expected a colon"),
        ("cell(x) { }", "library"),
        ("library(x) { }", "no inverter"),
        ("library(x) { cell(i) { area : two; } }", "not a number"),
    ],
)
def test_library_rejects_invalid_file(text, keyword):
    with pytest.raises(ValueError, match=f"(?s)^cells.lib: .*{keyword}"):
        Library(text, "cells.lib")


def test_library_is_missing_without_file(monkeypatch, tmp_path):
    monkeypatch.setattr("halfulp.fpga.synth.liberty.OSU018", tmp_path / "none.lib")
    with pytest.raises(ValueError, match="--liberty FILE, or install Debian's package qflow-tech-osu018"):
        Library.read()


def test_cell_cost_counts_gates_and_registers(library):
    found = {"cells": {"NAND2X1": 3, "DFFX1": 2}, "area": 48.0, "delay": 1.5}
    assert CellCost.of(found, library) == CellCost(cells=5, registers=2, area=48.0, gates=12.0, delay=1.5)


def test_cost_of_unit_in_cells_is_printed(halfulp):
    code, out, err = halfulp("synth", "mul", "e2m0fn", "--target", "asic", "--liberty", str(CELLS))
    assert code == 0, err
    assert out.startswith("## Cost in the cells of made_up\n")
    (row,) = [line for line in out.splitlines() if line.startswith("| mul ")]
    _, _, cells, registers, area, gates, delay, *_ = (cell.strip() for cell in row.split("|"))
    assert (int(cells) > 5, int(registers), Fraction(area) / 4 - Fraction(gates) < 1) == (True, 0, True)
    assert 0.05 < float(delay) < 1


@pytest.mark.slow
def test_cost_follows_figures_of_library(library):
    """ABC chooses cells by ratios of areas; register stages add flip-flops and shorten paths."""
    (plain,), (staged,) = measure_cells([short("mul", "e5m2"), short("mul", "e5m2", pipeline=2)], library)
    assert (plain.registers, staged.registers > 15, staged.delay < plain.delay) == (0, True, True)
    tenfold = Library(re.sub(r"(\barea : \d+)", r"\g<1>0", library.text), "tenfold.lib")
    ((large,),) = measure_cells([short("mul", "e5m2")], tenfold)
    assert large == replace(plain, area=10 * plain.area)
    slower = Library(re.sub('time_unit : "1ns"', 'time_unit : "10ps"', library.text), "slower.lib")
    ((fast,),) = measure_cells([short("mul", "e5m2")], slower)
    assert fast.delay == pytest.approx(plain.delay / 100, rel=0.01)


@pytest.mark.slow
def test_delay_targets_trade_area_for_delay(library):
    """A target that a netlist meets has no smaller delay than needed; ABC and OpenSTA agree on paths of gates."""
    unit = short("add", "fp16")
    (found,) = measure_cells([unit], library, targets=[0.1, 3.0, 20.0])
    fast, _, small = found
    assert (fast.delay < small.delay, fast.area > small.area) == (True, True)
    assert all(cost.opensta is None or cost.opensta == pytest.approx(cost.delay, abs=0.002) for cost in found)
    report = sweep(unit, [0.1, 3.0, 20.0], found, library)
    frame = report.tables["delays"].frame
    assert frame["met"].tolist()[::2] == ["no", "yes"]
    assert report.plots["delays"]() is not None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sta") is None and os.environ.get("CI") != "true", reason="OpenSTA is not installed")
def test_opensta_adds_times_of_flip_flops(library):
    """A flip-flop has a setup time of 0.05 ns, and takes at least 0.09 ns from its clock to its output."""
    ((cost,),) = measure_cells([short("mul", "e5m2", pipeline=2)], library)
    assert cost.delay + 0.05 < cost.opensta < cost.delay + 0.4


def test_units_of_library_are_read(library):
    text = library.text.replace('"1ns"', '"10ps"').replace("(1, ff)", "(2, pf)").replace('"1nW"', '"1uW"')
    other = Library(text.replace('"1V"', '"100mV"'))
    found = other.second, other.farad, other.watt, other.voltage
    assert found == pytest.approx((1e-11, 2e-12, 1e-6, 0.12))


@pytest.mark.slow
def test_missing_flip_flop_raises_tool_error(library):
    text = library.text
    gates = Library(text[: text.index("  cell(DFFX1)")] + "}\n", "gates.lib")
    with pytest.raises(ToolError, match="D flip-flops are not supported"):
        measure_cells([short("mac", "e2m1fn", acc="e3m2fn")], gates)


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        (["--target", "asic", "--route"], "none of --route"),
        (["--target", "asic", "--clock", "100"], "--clock"),
        (["--liberty", str(CELLS)], "--target asic"),
        (["--delays", "2,3"], "--target asic"),
        (["--target", "asic", "--delays", "2,x"], "invalid --delays"),
        (["--target", "asic", "--liberty", str(CELLS), "--dsp"], "DSP blocks"),
    ],
)
def test_synth_rejects_options_without_effect(halfulp, words, keyword):
    code, _, err = halfulp("synth", "mul", "fp16", *words)
    assert (code, keyword in err) == (2, True)


def test_targets_without_device_are_rejected(halfulp):
    code, _, err = halfulp("emit", "mul", "--target", "asic", "--clock", "100")
    assert (code, "asic is no device" in err) == (2, True)


@pytest.mark.skipif(not OSU018.is_file(), reason="qflow-tech-osu018 is not installed")
def test_osu_library_is_read():
    library = Library.read()
    assert (library.nand.name, library.nand.area, library.voltage) == ("NAND2X1", 24, 1.8)
    assert library.cells["INVX1"].capacitances == {"A": pytest.approx(9.32456e-15)}
