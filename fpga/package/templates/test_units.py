"""Cocotb tests of all units of the package and of their AXI4-Stream wrappers: the vectors, with gaps and stalls.

The manifest describes the ports; the vectors are in ``vectors/``. Needs cocotb 2.
"""

import json
import random
from pathlib import Path
from typing import Any

import cocotb
from signals.agents import Bench, Scoreboard, chance, paced, settle
from signals.interfaces import ActiveLow, Aligned, Pins, Sink, Source, Streams, Wires
from signals.layout import Field, Layout

ROOT = Path(__file__).resolve().parents[1]


def vectors_of(unit: dict[str, Any]) -> list[list[int]]:
    """Return the packed operands and the packed results of all vectors."""
    lines = (ROOT / unit["vectors"]["file"]).read_text().splitlines()
    words = [line.split("_") for line in lines if line and not line.startswith("//")]
    return [[int(word, 16) for word in side] for side in zip(*words, strict=True)]


def layout_of(unit: dict[str, Any], direction: str) -> Layout:
    """Return the ports of a direction; the first one is in the lowest bits of a packed word."""
    data = [port for port in unit["ports"] if port["role"] == "data"]
    return Layout(tuple(Field(port["name"], port["width"]) for port in data if port["direction"] == direction))


def handle_of(dut: Any, control: Any) -> Any:
    """Return the handle of a control port, or None if the unit lacks it."""
    if control is None:
        return None
    handle = getattr(dut, control["port"])
    return ActiveLow(handle) if control.get("active") == "low" else handle


@cocotb.test()
async def test_vectors(dut: Any) -> None:
    """Send the vectors to the top module, which is a unit or its wrapper."""
    units = json.loads((ROOT / "manifest.json").read_text())["units"]
    tests = {unit["module"]: (check_unit, unit) for unit in units}
    tests |= {unit["axi_stream"]["module"]: (check_stream, unit) for unit in units}
    check, unit = tests[dut._name]
    await check(dut, unit)


async def check_unit(dut: Any, unit: dict[str, Any]) -> None:
    """Send the vectors to a unit with gaps and stalls; results come after the latency and hold in stalls."""
    words, expected = vectors_of(unit)
    board, noise = Scoreboard(expected), random.Random(1)
    layouts = [layout_of(unit, direction) for direction in ("input", "output")]
    inputs, outputs = (Wires({name: getattr(dut, name) for name in ports.names}, ports) for ports in layouts)
    if unit["clock"] is None:
        await settle(inputs, outputs, words, board)
        board.check()
        return
    roles = {"clk": "clock", "rst": "reset", "en": "enable", "valid": "valid", "ready": "ready"}
    handles = {name: handle_of(dut, unit[role]) for name, role in roles.items()}
    pins = Pins(**handles, inputs=inputs, outputs=outputs, latency=unit["latency"])
    bench = Bench(pins.clk, pins.rst)
    bench.drive(pins, words, gaps=chance(0.15, noise), stalls=chance(0.25, noise))
    bench.watch(pins, board)
    async with bench:
        """The context sends all vectors and waits for their results."""


async def check_stream(dut: Any, unit: dict[str, Any]) -> None:
    """Send the vectors to the AXI4-Stream wrapper of a unit with gaps, and receive results with back-pressure."""
    words, expected = vectors_of(unit)
    clock = {"clk": dut.aclk, "rst": ActiveLow(dut.aresetn)}
    operands = Aligned(dut.s_axis_tdata, layout_of(unit, "input"))
    results = Aligned(dut.m_axis_tdata, layout_of(unit, "output"))
    source = Source(**clock, inputs=operands, valid=dut.s_axis_tvalid, ready=dut.s_axis_tready)
    sink = Sink(**clock, outputs=results, valid=dut.m_axis_tvalid, ready=dut.m_axis_tready)
    gaps, stalls = paced(random.Random(1))
    bench, streams = Bench(dut.aclk, clock["rst"]), Streams(source, sink)
    bench.drive(streams, words, gaps=gaps, stalls=stalls)
    bench.watch(streams, Scoreboard(expected))
    async with bench:
        """The context sends all vectors and waits for their results."""
