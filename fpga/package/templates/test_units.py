"""Cocotb tests of all units of the package and of their AXI4-Stream wrappers: the vectors, with gaps and stalls.

The manifest describes the ports; the vectors are in ``vectors/``. Needs cocotb 2.
"""

import json
import random
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

ROOT = Path(__file__).resolve().parents[1]


def vectors_of(unit: Any) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return the operands and results of each vector, by port."""
    lines = (ROOT / unit["vectors"]["file"]).read_text().splitlines()
    words = [line.split("_") for line in lines if line and not line.startswith("//")]
    data = [port for port in unit["ports"] if port["role"] == "data"]
    ports = [[port for port in data if port["direction"] == side] for side in ("input", "output")]
    return [(unpack(int(first, 16), ports[0]), unpack(int(second, 16), ports[1])) for first, second in words]


def unpack(word: int, ports: Any) -> dict[str, int]:
    """Return the values of ports from a word that has the first port in its lowest bits."""
    found = {}
    for port in ports:
        found[port["name"]] = word & ((1 << port["width"]) - 1)
        word >>= port["width"]
    return found


def drive(dut: Any, values: dict[str, int]) -> None:
    """Set ports."""
    for name, value in values.items():
        getattr(dut, name).value = value


def set_control(dut: Any, control: Any, active: bool) -> None:
    """Set the reset, the clock enable or ``valid``, if the unit has it."""
    if control is not None:
        getattr(dut, control["port"]).value = int(active == (control["active"] == "high"))


@cocotb.test()
async def test_vectors(dut: Any) -> None:
    """Send the vectors to the top module, which is a unit or its wrapper."""
    units = json.loads((ROOT / "manifest.json").read_text())["units"]
    tests = {unit["module"]: (check_unit, unit) for unit in units}
    tests |= {unit["axi_stream"]["module"]: (check_stream, unit) for unit in units}
    check, unit = tests[dut._name]
    await check(dut, unit)


async def check_unit(dut: Any, unit: Any) -> None:
    """Send the vectors to a unit with gaps and stalls; results come after the latency and hold in stalls."""
    vectors, noise, latency = vectors_of(unit), random.Random(1), unit["latency"]
    if unit["clock"] is None:
        for operands, results in vectors:
            drive(dut, operands)
            await Timer(1, "ns")
            assert {name: int(getattr(dut, name).value) for name in results} == results, operands
        return
    clock = getattr(dut, unit["clock"]["port"])
    Clock(clock, 10, "ns").start()
    drive(dut, dict.fromkeys(vectors[0][0], 0))
    set_control(dut, unit["enable"], False)
    set_control(dut, unit["valid"], False)
    set_control(dut, unit["reset"], True)
    for _ in range(3):
        await FallingEdge(clock)
    set_control(dut, unit["reset"], False)
    sent, shown, stages = 0, -1, [False] * latency
    while sent < len(vectors) or any(stages):
        enable = noise.random() < 0.75 or unit["enable"] is None
        valid = sent < len(vectors) and noise.random() < 0.85
        set_control(dut, unit["enable"], enable)
        set_control(dut, unit["valid"], valid)
        taken = valid and (enable or latency == 0)
        drive(dut, vectors[sent][0] if taken else {name: noise.getrandbits(1) for name in vectors[0][0]})
        await Timer(2, "ns")
        accepted = enable and valid and (unit["ready"] is None or getattr(dut, unit["ready"]["port"]).value == 1)
        if latency == 0 and valid:
            results = vectors[sent][1]
            assert {name: int(getattr(dut, name).value) for name in results} == results, vectors[sent]
        await FallingEdge(clock)
        sent += accepted
        if latency and enable:
            stages = [accepted, *stages[:-1]]
            shown += stages[-1]
        if latency and stages[-1]:
            results = vectors[shown][1]
            assert {name: int(getattr(dut, name).value) for name in results} == results, vectors[shown]
    assert sent == len(vectors)


async def check_stream(dut: Any, unit: Any) -> None:
    """Send the vectors to the AXI4-Stream wrapper of a unit with gaps, and receive results with back-pressure."""
    vectors, noise = vectors_of(unit), random.Random(1)
    fields = unit["axi_stream"]
    payloads = [
        tuple(
            sum(values[field["port"]] << field["low"] for field in fields[side]["fields"])
            for values, side in zip(vector, ("input", "output"), strict=True)
        )
        for vector in vectors
    ]
    Clock(dut.aclk, 10, "ns").start()
    drive(dut, {"aresetn": 0, "s_axis_tvalid": 0, "s_axis_tdata": 0, "m_axis_tready": 0})
    for _ in range(3):
        await FallingEdge(dut.aclk)
    dut.aresetn.value = 1
    sent, received, offered = 0, 0, False
    for _ in range(16 * len(vectors) * unit["initiation_interval"]):
        offered = offered or (sent < len(payloads) and noise.random() < 0.75)
        drive(dut, {"s_axis_tvalid": int(offered), "m_axis_tready": int(noise.random() < 0.75)})
        dut.s_axis_tdata.value = payloads[sent][0] if offered else 0
        await Timer(2, "ns")
        if int(dut.m_axis_tvalid.value):
            assert int(dut.m_axis_tdata.value) == payloads[received][1], vectors[received]
            received += int(dut.m_axis_tready.value)
        if offered and int(dut.s_axis_tready.value):
            sent, offered = sent + 1, False
        if received == len(payloads):
            return
        await FallingEdge(dut.aclk)
    raise AssertionError(f"{received} of {len(payloads)} results received")
