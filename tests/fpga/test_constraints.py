"""Constraints of packages: clock, delays of all ports and the false path of a reset, in Tcl and in OpenSTA."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from halfulp.fpga.package import files
from halfulp.hdl.specs import Build
from halfulp.units.catalogue import component
from halfulp.units.verilog import verilog_ports
from tests.fpga.package.test_package import CONTROLS, SMALL

SUFFIXES = ("sdc", "xdc")


def package(text: str, build: Build = Build(), **options: Any) -> dict[str, str]:
    """Return the files of a package ``numbers`` with one unit."""
    return files([component(text, build)], "numbers", **options)


def executed(text: str) -> list[list[str]]:
    """Execute constraints in Tcl; return the commands with their words, in which ``get_ports`` is its argument."""
    tcl = pytest.importorskip("tkinter", reason="no tkinter (Debian: apt install python3-tk)").Tcl()
    calls: list[list[str]] = []
    for name in ("create_clock", "set_input_delay", "set_output_delay", "set_false_path"):
        tcl.createcommand(name, lambda *words, name=name: calls.append([name, *words]))
    tcl.createcommand("get_ports", lambda names: names)
    tcl.eval(text)
    return calls


def modules(texts: dict[str, str]) -> dict[str, list[Any]]:
    """Return the ports of a unit and of its stream by module."""
    unit = json.loads(texts["manifest.json"])["units"][0]
    named = {unit["module"]: f"rtl/{unit['module']}.v", unit["axi_stream"]["module"]: unit["axi_stream"]["file"]}
    return {module: verilog_ports(texts[path], module) for module, path in named.items()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "build", "options", "clocks", "period"),
    [
        (SMALL[0], Build(), CONTROLS, ("aclk", "aclk"), "2.000"),
        ("mul e2m1fn*e2m1fn", Build(clock=300), {}, ("clk", "aclk"), "3.333"),
        ("mul e2m1fn*e2m1fn", Build(), {}, ("virtual", "virtual"), "2.000"),
        ("mul e2m1fn*e2m1fn", Build(), {"streams": {"registered": True}}, ("virtual", "aclk"), "2.000"),
    ],
)
def test_package_constraints_have_clock_delays_and_reset(
    text: str, build: Build, options: Any, clocks: tuple[str, str], period: str
) -> None:
    texts = package(text, build, **options)
    for (module, ports), clock in zip(modules(texts).items(), clocks, strict=True):
        sdc, xdc = (texts[f"constraints/{module}.{suffix}"] for suffix in SUFFIXES)
        assert sdc == xdc
        first, *others = executed(sdc)
        assert first[:5] == ["create_clock", "-name", clock, "-period", period]
        assert first[5:] == ([] if clock == "virtual" else [clock])
        timed = {(call[0], name) for call in others if call[0] != "set_false_path" for name in call[-1].split()}
        delayed = {clock} | ({"aresetn"} if options is CONTROLS else set())
        names = [
            (f"set_{port.direction}_delay", port.name + "[*]" * (port.width > 1))
            for port in ports
            if port.name not in delayed
        ]
        assert timed == set(names)
        resets = [call[1:] for call in others if call[0] == "set_false_path"]
        assert resets == ([["-from", "aresetn"]] if options is CONTROLS else [])


def test_manifest_lists_constraints() -> None:
    listed = json.loads(package("mul e2m1fn*e2m1fn")["manifest.json"])["files"]
    assert sum(file["kind"] == "constraints" for file in listed) == 6


@pytest.mark.skipif(shutil.which("sta") is None and os.environ.get("CI") != "true", reason="OpenSTA is not installed")
@pytest.mark.parametrize("renamed", [False, True])
def test_opensta_finds_all_ports_of_constraints(renamed: bool, tmp_path: Path) -> None:
    """OpenSTA reads gates only, so the modules have their ports and nothing else."""
    texts = package(SMALL[0], **CONTROLS)
    for module in modules(texts):
        path = f"rtl/{module}.v"
        declared = re.search(rf"^module {module}\(.*?\);", texts[path], re.M | re.S)
        ports = re.findall(r"^ +(?:input|output) [^;]*;", texts[path].partition("endmodule")[0], re.M)
        assert declared is not None
        (tmp_path / "top.v").write_text("\n".join([declared[0], *ports, "endmodule", ""]))
        text = texts[f"constraints/{module}.sdc"]
        (tmp_path / "top.sdc").write_text(text.replace("aresetn", "nreset") if renamed else text)
        script = f"read_verilog top.v\nlink_design {module}\nread_sdc top.sdc\nputs found\n"
        (tmp_path / "top.tcl").write_text(script)
        done = subprocess.run(
            ["sta", "-no_splash", "-exit", "top.tcl"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        complaints = re.findall(r"(?:Warning|Error): top\.sdc.*", done.stdout + done.stderr)
        assert bool(complaints) is renamed, done.stdout + done.stderr
        assert "found" in done.stdout
