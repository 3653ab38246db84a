"""Costs in standard cells, with the library of `cells.lib` in this folder, whose figures are made up."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from halfulp.fpga.report import coreport
from halfulp.fpga.report.asic import sweep
from halfulp.fpga.report.coreport_tables import plot, tables
from halfulp.fpga.report.study import read
from halfulp.fpga.synth import asic
from halfulp.fpga.synth.asic import CellCost, measure_cells
from halfulp.fpga.synth.cells import structure
from halfulp.fpga.synth.liberty import OSU018, Function, Group, Library
from halfulp.fpga.synth.measure import module_of
from halfulp.fpga.synth.power import Netlist
from halfulp.fpga.synth.power import Table as PowerTable
from halfulp.implementation import Implementation, short
from halfulp.sim.reference import reference

CELLS = Path(__file__).with_name("cells.lib")

needs_opensta = pytest.mark.skipif(
    shutil.which("sta") is None and os.environ.get("CI") != "true", reason="OpenSTA is not installed"
)
"""Mark of tests with OpenSTA, which users need not have; `.ci/setup` installs it, so that they must run there."""


@pytest.fixture(scope="module")
def library():
    return Library.read(CELLS)


def test_library_has_cells_with_units(library):
    assert (library.name, len(library.cells), library.voltage) == ("made_up", 16, 1.2)
    assert (library.nand.name, library.nand.area, library.inverter.name) == ("NAND2X1", 4, "INVX1")
    assert library.cells["XOR2X1"].capacitances == {
        "A": pytest.approx(3e-15, rel=1e-9, abs=0),
        "B": pytest.approx(3e-15, rel=1e-9, abs=0),
    }
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
        ("C & A ^ B", "CAB", 0b101000),
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
        ("\0\1binary", "not a text"),
        ("library(x) { }", "no capacitive_load_unit"),
        ("library(x) { capacitive_load_unit(pf); }", "unknown unit 'pf'"),
        ('library(x) { capacitive_load_unit(1, pf); time_unit : "1xs"; }', "unknown unit '1xs'"),
        ("library(x) { capacitive_load_unit(1, pf); }", "no inverter"),
        ("library(x) { capacitive_load_unit(1, pf); cell() { } }", "no name"),
        ("library(x) { capacitive_load_unit(1, pf); cell(i) { area : two; } }", "not a number"),
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
    assert (int(cells) > 5, int(registers)) == (True, 0)
    # A NAND2 has an area of 4, and both figures are rounded to integers.
    assert abs(Fraction(area) / 4 - Fraction(gates)) <= Fraction(5, 8)
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
    assert f"--target asic --liberty {CELLS} --delays 0.1,3,20" in report.made_by
    frame = report.tables["delays"].frame
    assert frame["met"].tolist()[::2] == ["no", "yes"]
    assert report.plots["delays"]() is not None


@pytest.mark.slow
@needs_opensta
def test_opensta_adds_times_of_flip_flops(library):
    """The loop of an accumulator ends at flip-flops, whose setup time of 0.05 ns counts; ABC adds delays of gates."""
    unit = short("mac", "e5m2", pipeline=1)
    ((cost,),) = measure_cells([unit], library)
    ((later,),) = measure_cells([unit], Library(library.text.replace("0.05, 0.05", "0.35, 0.35"), "late.lib"))
    assert later.delay == cost.delay < cost.opensta < cost.delay + 0.4
    assert later.opensta == pytest.approx(cost.opensta + 0.3, abs=0.002)


def test_units_of_library_are_read(library):
    text = library.text.replace('"1ns"', '"10ps"').replace("(1, ff)", "(2, pf)").replace('"1nW"', '"1uW"')
    other = Library(text.replace('"1V"', '"100mV"'))
    found = other.second, other.farad, other.watt, other.voltage, other.joule
    assert found == pytest.approx((1e-11, 2e-12, 1e-6, 0.12, 2e-14), rel=1e-9, abs=0)


def chain(*cells):
    """Return the netlist of cells one after the other, from the input `a` to the output `o`."""
    ports = {
        "a": {"direction": "input", "bits": [2]},
        "o": {"direction": "output", "bits": [2 + len(cells)]},
        "clk": {"direction": "input", "bits": [99]},
    }
    pins = {"INVX1": "AY", "DFFX1": "DQ"}
    found = {
        f"c{place}": {
            "type": cell,
            "connections": {pins[cell][0]: [2 + place], pins[cell][1]: [3 + place]}
            | ({"C": [99]} if cell == "DFFX1" else {}),
        }
        for place, cell in enumerate(cells)
    }
    return {"ports": ports, "cells": found}


def test_netlist_counts_transitions_and_energy(library):
    netlist = Netlist(chain("INVX1", "INVX1"), library)
    waves, results = netlist.run({"a": [[0, 1, 0], [1, 1, 0], [0, 1, 1]]})
    assert results["o"] == [[0, 1, 0], [1, 1, 0], [0, 1, 1]]
    # The lowest bits are of the step from the first to the second cycle.
    assert waves.edges(2) == {"rise": 0b100_001, "fall": 0b001_000}
    assert waves.edges(3) == {"rise": 0b001_000, "fall": 0b100_001}
    # The library's own formulas: loads of 1.5 and 2 fF, and transition times that grow along the path. An inverter
    # takes 1 for an output that rises, and 0.6 for one that falls.
    first = 0.0072 + 0.0048 * 1.5
    second = first + 0.1 * first
    inside = 0.8 * ((1 + 2 * 0.6) * (1 + 0.002 * 1.5 + first) + (2 + 0.6) * (1 + 0.002 * 2 + second))
    switched = 3 * 1.2**2 / 2 * (1.5 + 2)
    assert netlist.energy(waves, 2e-15) == pytest.approx((inside + switched) * 1e-15, rel=2e-3, abs=0)
    assert netlist.leakage(waves) == pytest.approx(1.8e-9, rel=1e-9, abs=0)


def test_netlist_delays_by_flip_flops(library):
    netlist = Netlist(chain("INVX1", "DFFX1", "DFFX1"), library)
    waves, results = netlist.run({"a": [[1], [0], [0], [1]]})
    # Before them, the reset holds the first code for a cycle.
    assert [code for (code,) in results["o"][2:]] == [0, 1]
    idle, _ = netlist.run({"a": [[1], [1], [1], [1]]})
    # Clock pins take energy without data: a mean of 2.65 fJ for each of two edges.
    assert netlist.energy(idle, 0) == pytest.approx(3 * 2 * 2 * 2.65e-15, rel=1e-9, abs=0)
    assert netlist.energy(waves, 0) > netlist.energy(idle, 0)


def gate(library, arcs):
    """Return the library with one gate, and its netlist; ``arcs`` are the groups of its output, of constant energy."""
    groups = ""
    for at, *of in arcs:
        tables = " ".join(f'{edge}_power(scalar) {{ values("{value}"); }}' for edge, value in of)
        groups += f"internal_power() {{ {at} {tables} }}"
    text = f"""cell(AND2X1) {{ area : 1;
        pin(A) {{ direction : input; capacitance : 1; }} pin(B) {{ direction : input; capacitance : 1; }}
        pin(Y) {{ direction : output; function : "A B"; {groups} }} }}"""
    found = Library(library.text.rstrip().removesuffix("}") + text + "}", "gate.lib")
    ports = {name: {"direction": "input", "bits": [place]} for place, name in enumerate("ab", 2)}
    cell = {"type": "AND2X1", "connections": {"A": [2], "B": [3], "Y": [4]}}
    return Netlist({"ports": ports, "cells": {"c": cell}}, found)


@pytest.mark.parametrize(
    ("arcs", "energy"),
    [
        # The output rises by a, falls by b, rises by both, and falls by both.
        ([('related_pin : "A";', ("rise", 1), ("fall", 10)), ('related_pin : "B";', ("rise", 3), ("fall", 30))], 53),
        ([('related_pin : "A B";', ("rise", 1), ("fall", 10))], 22),
        # Supplies add up.
        ([('related_pg_pin : "VDD";', ("rise", 1)), ('related_pg_pin : "VSS";', ("rise", 4), ("fall", 2))], 14),
        # Conditions hold after the step: b is high for the rises, and low for the falls.
        ([('when : "B";', ("rise", 1), ("fall", 10)), ('when : "!B";', ("rise", 3), ("fall", 30))], 62),
    ],
)
def test_internal_energy_follows_causes(arcs, energy, library):
    netlist = gate(library, arcs)
    waves, _ = netlist.run({"a": [[0], [1], [1], [0], [1], [0]], "b": [[1], [1], [0], [0], [1], [0]]})
    # No load: only the cell itself takes energy.
    assert netlist.energy(waves, 0) == pytest.approx(energy * 1e-15, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("groups", "leakage"),
    [
        ("", 0.9),
        ("leakage_power() { value : 4; }", 4),
        # The input is 1 in two of the six cycles.
        ('leakage_power() { when : "A"; value : 3; } leakage_power() { when : "!A"; value : 6; }', 5),
        ('leakage_power() { when : "A & !Y"; value : 3; } leakage_power() { value : 12; }', 9),
        ('leakage_power() { when : "A"; value : 3.3; }', (3.3 + 2 * 0.9) / 3),
    ],
)
def test_leakage_follows_states(groups, leakage, library):
    text = library.text.replace("cell_leakage_power : 0.9;", f"cell_leakage_power : 0.9; {groups}", 1)
    netlist = Netlist(chain("INVX1"), Library(text, "states.lib"))
    waves, _ = netlist.run({"a": [[0, 0], [1, 0], [0, 1]]})
    assert netlist.leakage(waves) == pytest.approx(leakage * 1e-9, rel=1e-9, abs=0)


@pytest.mark.slow
@needs_opensta
def test_energy_is_that_of_opensta(library, tmp_path):
    """OpenSTA 2.0.17 adds the energies of a rise and of a fall for each transition; later versions take the mean."""
    netlist = Netlist(chain("INVX1", "INVX1", "INVX1"), library)
    waves, _ = netlist.run({"a": [[0], [1], [0]]})
    expected = netlist.energy(waves, 2e-15) / waves.transitions
    (tmp_path / "chain.v").write_text(structure("chain", chain("INVX1", "INVX1", "INVX1")))
    (tmp_path / "sta.tcl").write_text(
        f"read_liberty {CELLS}\nread_verilog chain.v\nlink_design chain\ncreate_clock -name clock -period 1\n"
        "set_input_delay 0 -clock clock [get_ports a]\nset_output_delay 0 -clock clock [all_outputs]\n"
        "set_driving_cell -lib_cell INVX1 [all_inputs]\nset_load 2 [all_outputs]\n"
        "set_power_activity -global -activity 1\nreport_power -digits 6\n"
    )
    argv = ["sta", "-no_splash", "-exit", "sta.tcl"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    inside, switched, leakage, _ = (
        float(word) for word in re.search(r"^Total +(.*) +100", done.stdout, re.M)[1].split()
    )
    inside /= 2 if asic.opensta() == "2.0.17" else 1
    # A transition in each cycle of 1 ns.
    assert (inside + switched) * 1e-9 == pytest.approx(expected, rel=1e-3, abs=0)
    assert leakage == pytest.approx(netlist.leakage(waves), rel=1e-5, abs=0)


def test_table_interpolates_between_values():
    table = PowerTable(("load", "slew"), ((1.0, 3.0), (0.0, 10.0)), (0.0, 1.0, 4.0, 7.0))
    assert [table.at(1, 10), table.at(3, 0), table.at(2, 5), table.at(5, 0)] == [1, 4, 3, 8]
    assert PowerTable((), (), (2.5,)).at(1, 1) == 2.5


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["mul e5m2*e5m2.rn", "add fp16+fp16.rn", "fma e5m2*e5m2+e5m2.rn"])
def test_mapped_netlist_matches_golden_model(unit, library, tmp_path):
    asked = Implementation.parse(unit)
    module = module_of(asked)
    (tmp_path / "design.v").write_text(module.verilog)
    (tmp_path / "cells.lib").write_text(library.text)
    (tmp_path / "job.json").write_text(json.dumps({"top": module.top, **asic.job_of(library), "opensta": False}))
    subprocess.run([sys.executable, "-m", "halfulp.fpga.synth.cells"], cwd=tmp_path, check=True, capture_output=True)
    (mapped,) = json.loads((tmp_path / "plain.json").read_text())["modules"].values()
    stimulus = json.loads(asic.stimulus(asked))
    _, results = Netlist(mapped, library).run(stimulus)
    codes = {name: np.array(rows, dtype=np.uint64).reshape(-1) for name, rows in stimulus.items()}
    expected = reference(asked.component(), codes)["o"]
    assert np.array_equal(np.array(results["o"], dtype=np.uint64).reshape(-1), expected)
    assert len(np.unique(expected)) > 100


@pytest.mark.slow
def test_energy_follows_activity(library):
    """A stage adds flip-flops, whose clock takes energy."""
    units = [short("mul", "e5m2"), short("mul", "e5m2", pipeline=2), short("mac", "e5m2")]
    (plain,), (staged,), (mac,) = measure_cells(units, library, power=True)
    assert 0.1 < plain.energy < staged.energy < 2
    assert 0.1 < mac.energy < 3
    assert 0 < plain.leakage < staged.leakage
    with pytest.raises(ValueError, match="--iterations"):
        measure_cells([short("div", "e5m2", iterations=1)], library, power=True)


STUDY = 'title = "Cells"\nmacs = ["e2m1fn*e2m1fn+e3m2fn.rn"]\n'


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ('liberty = "cells.lib"', "add asic to targets"),
        ('targets = ["asic"]\nliberty = "none.lib"', "liberty: .*cannot be read"),
        (f'targets = ["asic"]\nliberty = "{CELLS}"\nroute = true', "asic is none"),
    ],
)
def test_study_rejects_wrong_cells(text, keyword, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY + text)
    with pytest.raises(ValueError, match=keyword):
        read(tmp_path / "study.toml")


@pytest.mark.slow
def test_study_compares_macs_in_cells(library, tmp_path):
    text = f'{STUDY}targets = ["asic", "vu9p"]\nliberty = "{CELLS}"\n[dots]\ncount = 4\nlengths = [4]'
    (tmp_path / "study.toml").write_text(text)
    study = read(tmp_path / "study.toml")
    record = coreport.measure(study, "halfulp report study.toml")
    ((cost,),) = measure_cells([Implementation(study.macs[0])], library)
    found = tables(record)
    (row,) = found["asic"].frame.to_dict("records")
    assert (row["um^2"], row["GE"], row["ns"], row["FF"]) == (cost.area, cost.gates, cost.delay, cost.registers)
    assert 0.01 < row["pJ"] < 10
    # The command finds the library from the folder in which the study was started.
    assert f"--target asic --liberty {CELLS} --power" in row["command"]
    assert ("OpenSTA ns" in row) == ("OpenSTA" in record.tools) == (asic.opensta() is not None)
    assert {"LUT", "MHz"}.isdisjoint(row)
    assert {"GE", "ns"}.isdisjoint(found["vu9p"].frame)
    (tmp_path / "study.json").write_text(record.text())
    assert coreport.load(tmp_path / "study.json") == record
    assert plot(record, "asic") is not None
    # Another library is another study.
    other = replace(study, library=Library(library.text.replace("area : 18", "area : 19"), library.file))
    assert coreport.key_of(other) != coreport.key_of(study)


def test_missing_flip_flop_is_rejected(library):
    text = library.text
    gates = Library(text[: text.index("  cell(DFFX1)")] + "}\n", "gates.lib")
    with pytest.raises(ValueError, match=r"gates.lib has no flip-flop, which mac e2m1fn.* needs"):
        measure_cells([short("mac", "e2m1fn", acc="e3m2fn")], gates)


@pytest.mark.parametrize(
    ("old", "new", "keyword"),
    [
        (
            'values ("0.8096, 0.8816"',
            'values ("0.8096, x"',
            "internal_power of the pin Y of the cell INVX1: .*0.8096, x",
        ),
        (
            'values ("0.8096, 0.8816", "0.84, 0.912")',
            'values ("0.8096")',
            "INVX1: a table has 1 values, but expected 4",
        ),
        ('values ("0.8096, 0.8816", "0.84, 0.912");', "", "INVX1: a table has no values"),
        ("internal_power() {", 'internal_power() { when : "!(A";', "invalid function"),
        ("cell_leakage_power : 0.9;", 'leakage_power() { value : "x"; }', "leakage_power of the cell INVX1: .*number"),
        ("nom_voltage : 1.2;", "", "no nom_voltage, which the energy needs"),
    ],
)
def test_invalid_tables_are_rejected(old, new, keyword, library):
    other = Library(library.text.replace(old, new, 1), "other.lib")
    with pytest.raises(ValueError, match=f"^other.lib: .*{keyword}"):
        measure_cells([short("mul", "e2m0fn")], other, power=True)


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        (["--target", "asic", "--route"], "none of --route"),
        (["--target", "asic", "--clock", "100"], "--clock"),
        (["--liberty", str(CELLS)], "--target asic"),
        (["--delays", "2,3"], "--target asic"),
        (["--power"], "--target asic"),
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
    assert library.cells["INVX1"].capacitances == {"A": pytest.approx(9.32456e-15, rel=1e-9, abs=0)}
