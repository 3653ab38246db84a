"""Black boxes of Chisel and SpinalHDL and modules of LiteX, against the ports of the Verilog and the manifest."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from halfulp.fpga.package import files
from halfulp.fpga.package.bindings import python_name, scala_name
from halfulp.hdl.specs import Build
from halfulp.sim.toolchain import verilator
from halfulp.units.catalogue import component
from halfulp.units.verilog import verilog_ports

TEXTS = ("mac e2m1fn*e2m1fn+e3m2.sr3@lfsr8", "dot2 e2m1fn*e2m1fn=e3m2.sr2", "mul fxp2.2*fxp2.2")
CONTROLS: dict[str, Any] = {"reset": "async-low", "ports": {"clk": "val", "rst": "resetn"}}
STREAMS: dict[str, Any] = {"tuser": 3, "tlast": True}

VERILOG = {"Input": "input", "Output": "output", "in": "input", "out": "output"}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return files([component(text, Build()) for text in TEXTS], "numbers", streams=STREAMS, **CONTROLS)


@pytest.fixture(scope="module")
def units(texts: dict[str, str]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(texts["manifest.json"])["units"]
    return listed


def boxes(text: str, port: str) -> dict[str, list[tuple[str, str, int, str]]]:
    """Return name, direction, width and text of the ports of each black box."""
    return {
        match[1].strip("`"): [
            (found["name"].strip("`"), VERILOG[found["way"]], int(found["bits"] or 1), found[0])
            for found in re.finditer(port, match[0])
        ]
        for match in re.finditer(r"^class (\S+) extends BlackBox .*?^}$", text, re.M | re.S)
    }


@pytest.mark.parametrize(
    ("path", "port", "clock"),
    [
        (
            "bindings/numbers_chisel.scala",
            r"val (?P<name>\S+) = (?P<way>Input|Output)\((?:UInt\((?P<bits>\d+)\.W\)|Clock\(\)|Bool\(\))\)\n",
            "Clock()",
        ),
        (
            "bindings/numbers_spinal.scala",
            r"val (?P<name>\S+) = (?P<way>in|out) (?:Bits\((?P<bits>\d+) bits\)|Bool\(\))\n",
            "Bool()",
        ),
    ],
    ids=["chisel", "spinal"],
)
def test_black_boxes_have_ports_of_manifest(
    texts: dict[str, str], units: list[dict[str, Any]], path: str, port: str, clock: str
) -> None:
    found = boxes(texts[path], port)
    assert list(found) == [unit["module"] for unit in units]
    for unit in units:
        expected = [(port["name"], port["direction"], port["width"]) for port in unit["ports"]]
        assert [each[:3] for each in found[unit["module"]]] == expected
        for name, _, _, text in found[unit["module"]]:
            bits = [port["name"] for port in unit["ports"] if port["width"] == 1 and port["format"] is None]
            assert (clock in text) == (name in {"Clock()": ["val"], "Bool()": bits}[clock])
    # `val` is a word of Scala.
    assert "val `val` = " in texts[path]


def test_spinal_maps_clock_and_reads_verilog_of_package(texts: dict[str, str], units: list[dict[str, Any]]) -> None:
    text = texts["bindings/numbers_spinal.scala"]
    assert text.count("mapClockDomain(clock = io.`val`, reset = io.resetn, resetActiveLevel = LOW)") == 1
    assert re.findall(r'addRTLPath\("(.*)"\)', text) == [path for unit in units for path in unit["netlist"]["files"]]


@pytest.mark.parametrize(("name", "scala", "python"), [("a", "a", "a"), ("val", "`val`", "val"), ("_x", "`_x`", "_x")])
def test_names_are_identifiers(name: str, scala: str, python: str) -> None:
    assert (scala_name(name), python_name(name)) == (scala, python)
    assert python_name("lambda") == "lambda_"


class Platform:
    """Platform of LiteX that collects its sources."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def add_source(self, path: str) -> None:
        self.sources.append(path)


class Anything:
    """Object whose attributes, items and operators are such objects, with the names of LiteX and migen."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __iadd__(self, _: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __getitem__(self, place: Any) -> Any:
        return Anything()

    def __invert__(self) -> Any:
        return Anything()

    def eq(self, other: Any) -> Any:
        return other


def test_litex_connects_all_ports_of_streams(
    texts: dict[str, str], units: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With classes in place of those of LiteX."""
    made: list[tuple[str, set[str]]] = []

    def instance(module: str, **ports: Any) -> list[Any]:
        made.append((module, set(ports)))
        return []

    for name in ("litex", "litex.gen", "litex.soc", "litex.soc.interconnect", "litex.soc.interconnect.stream", "migen"):
        fake = ModuleType(name)
        for word in ("LiteXModule", "Endpoint", "Cat", "ClockSignal", "Constant", "ResetSignal", "Signal"):
            setattr(fake, word, Anything)
        fake.Instance = instance  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, fake)
    space: dict[str, Any] = {"__file__": "/package/bindings/numbers_litex.py"}
    exec(compile(texts["bindings/numbers_litex.py"], "numbers_litex.py", "exec"), space)
    for unit in units:
        platform = Platform()
        space[unit["module"]](platform)
        stream = unit["axi_stream"]
        ports = verilog_ports(texts[stream["file"]], stream["module"])
        assert made.pop() == (stream["module"], {f"{port.direction[0]}_{port.name}" for port in ports})
        assert platform.sources == [f"/package/{path}" for path in (*unit["netlist"]["files"], stream["file"])]


def test_litex_elaborates_modules(texts: dict[str, str], units: list[dict[str, Any]], tmp_path: Path) -> None:
    """With LiteX itself, and the lint of Verilator."""
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for unit in units:
        program = f"""
import sys
sys.path.insert(0, "bindings")
from migen.fhdl.verilog import convert
import numbers_litex

class Platform:
    sources = []
    def add_source(self, path): self.sources.append(path)

platform = Platform()
module = numbers_litex.{unit["module"]}(platform)
ends = [module.sink, module.source]
convert(module, {{signal for end in ends for signal in end.flatten()}}, name="top").write("top.v")
print(*platform.sources)
"""
        answer = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        tool = verilator()
        # Of the text that migen writes.
        waived = ["-Wno-TIMESCALEMOD", "-Wno-INITIALDLY"]
        lint = [str(tool.program), "--lint-only", "--quiet", *waived, "--top-module", "top"]
        files = ["top.v", *answer.stdout.split()]
        env = os.environ | tool.environment
        done = subprocess.run([*lint, *files], cwd=tmp_path, capture_output=True, text=True, env=env)
        assert (done.returncode, done.stderr) == (0, "")
