"""Slices of netlists: each path has as many registers more, and nothing else changes."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import module_of
from halfulp.fpga.synth.route import _result
from halfulp.fpga.synth.slices import FF, INSIDE, OUTPUTS, slice_netlist
from halfulp.implementation import Implementation

CLOCK = 2


def register(d: int, q: int) -> dict[str, Any]:
    return {"type": FF, "connections": {"CLK": [CLOCK], "DI": [d], "Q": [q], "LSR": ["0"], "CE": ["1"]}}


def chain(tables: int) -> dict[str, Any]:
    """Return a netlist of lookup tables in a row, between registers; each also reads the operand."""
    cells = {"first": register(3, 10), "last": register(10 + tables, 4)}
    for place in range(tables):
        wires = {"A": [10 + place], "B": [10], "C": ["0"], "D": ["0"], "Z": [11 + place]}
        cells[f"table{place}"] = {"type": "LUT4", "connections": wires}
    ports = {name: {"direction": "input", "bits": [bit]} for name, bit in (("clk", CLOCK), ("a", 3))}
    return {"modules": {"top": {"ports": ports, "cells": cells, "netnames": {}}}}


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Netlist of a unit between registers, and the name of its module."""
    folder = tmp_path_factory.mktemp("netlist")
    module = module_of(Implementation.parse("add e4m3+e4m3"), registered=True)
    job = {"top": module.top, "ties": [], **TARGETS["ecp5-85k"].family.job(False), "netlist": True}
    (folder / "design.v").write_text(module.verilog)
    (folder / "job.json").write_text(json.dumps(job))
    argv = [sys.executable, "-m", "halfulp.fpga.synth.yosys"]
    subprocess.run(argv, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "netlist.json").read_text()), module.top


def bits_read(cell: dict[str, Any]) -> set[int]:
    outputs = OUTPUTS.get(cell["type"], ("Q",))
    ports = (bits for port, bits in cell["connections"].items() if port not in outputs)
    return {bit for bits in ports for bit in bits if isinstance(bit, int)}


def depths(module: dict[str, Any], added: set[str]) -> dict[int, int | None]:
    """Return the number of added registers before each bit, which must be the same on all paths; None for constants."""
    inputs = {bit for port in module["ports"].values() if port["direction"] == "input" for bit in port["bits"]}
    drivers = {}
    for name, cell in module["cells"].items():
        for port in OUTPUTS.get(cell["type"], ("Q",)):
            drivers |= {bit: name for bit in cell["connections"].get(port, ()) if isinstance(bit, int)}
    found: dict[int, int | None] = dict.fromkeys(inputs, -1)
    waiting = list(drivers)
    while waiting:
        bit = waiting[-1]
        cell = module["cells"][drivers[bit]]
        read = bits_read(cell) - inputs
        if bit in found:
            waiting.pop()
        elif missing := [other for other in read if other not in found]:
            waiting += missing
        else:
            before = {found[other] for other in read} - {None}
            if cell["type"] == FF:
                before = before or {0}
            assert len(before) <= 1, drivers[bit]
            found[bit] = max(before) + (drivers[bit] in added) if before else None
    return found


def test_slices_have_equal_delays() -> None:
    row = chain(6)
    slice_netlist(row, "top", 2)
    module = row["modules"]["top"]
    found = depths(module, {name for name in module["cells"] if name.startswith("slice")})
    assert [found[11 + place] for place in range(6)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("registers", [1, 3])
def test_slices_change_nothing_but_registers(registers: int, netlist: tuple[dict[str, Any], str]) -> None:
    whole, top = netlist
    before = whole["modules"][top]
    sliced = copy.deepcopy(whole)
    slice_netlist(sliced, top, registers)
    after = sliced["modules"][top]
    added = {name: after["cells"][name]["connections"] for name in after["cells"].keys() - before["cells"].keys()}
    assert {after["cells"][name]["type"] for name in added} == {FF}
    found = depths(after, set(added))
    ends = {
        found[bit]
        for name, one in before["cells"].items()
        for port in ("DI", "LSR")
        if one["type"] == FF
        for bit in after["cells"][name]["connections"][port]
        if isinstance(bit, int)
    }
    assert ends == {-1, registers}
    # Without the added registers, the netlist is that before.
    origin = {wires["Q"][0]: wires["DI"][0] for wires in added.values()}
    for name, cell in before["cells"].items():
        for port, bits in after["cells"][name]["connections"].items():
            inside = port in INSIDE.get(cell["type"], ())
            assert not (inside and {*bits} & {*origin}), "a register inside a wide table or a carry chain"
            for place, bit in enumerate(bits):
                while bit in origin:
                    bit = origin[bit]
                assert bit == cell["connections"][port][place]
    kinds = {cell["type"] for cell in before["cells"].values()}
    assert {"LUT4", "CCU2C", "PFUMX"} <= kinds


def test_slices_reject_registers_between_ports() -> None:
    row = chain(1)
    row["modules"]["top"]["cells"] |= {"inner": register(11, 20), "after": register(20, 21)}
    with pytest.raises(ValueError, match="registers"):
        slice_netlist(row, "top", 1)


def test_clock_is_the_median_of_seeds(tmp_path: Path) -> None:
    for seed, mhz in enumerate((90.0, 120.0, 100.0), start=1):
        (tmp_path / f"report{seed}.json").write_text(json.dumps({"fmax": {"clk": {"achieved": mhz}}}))
    assert _result(tmp_path) == 100
