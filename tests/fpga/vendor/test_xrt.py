"""Inputs of the vendor tools: parsed, run against a recorder, and refused if they cannot be linked."""

import configparser
import itertools
import shutil
import subprocess
from collections import Counter
from xml.etree import ElementTree

import pytest

from halfulp.boards.catalogue import BOARDS
from halfulp.fpga.kernel.layout import CONTROL, MASTERS
from halfulp.fpga.vendor.xrt import kernel_xml, link_cfg, makefile, package_tcl, places
from tests.fpga.vendor.test_vivado import recorder  # noqa: F401  # a fixture

NAME = "gemm"

READS, WRITES = ("araddr", "rdata"), ("awaddr", "wdata")
SIGNALS = {CONTROL: READS + WRITES, "m_axi_a": READS, "m_axi_b": READS, "m_axi_c": WRITES}


def linked(text):
    """Parse a configuration like the linker, which allows repeated keys."""

    class Several(dict):
        def __setitem__(self, key, value):
            if isinstance(value, list) and key in self:
                self[key].extend(value)
            else:
                super().__setitem__(key, value)

    parser = configparser.RawConfigParser(dict_type=Several, strict=False, empty_lines_in_values=False)
    parser.optionxform = str
    parser.read_string(text)
    return {section: {key: value.split("\n") for key, value in parser.items(section)} for section in parser.sections()}


def test_kernel_xml_follows_layout():
    """Layout of UG1702, table RTL Kernel XML File Content."""
    root = ElementTree.fromstring(kernel_xml(NAME))
    assert (root.tag, root.attrib) == ("root", {"versionMajor": "1", "versionMinor": "6"})
    (kernel,) = root
    assert kernel.attrib == {
        "name": "gemm",
        "language": "ip_c",
        "vlnv": "halfulp:kernel:gemm:1.0",
        "attributes": "",
        "preferredWorkGroupSizeMultiple": "0",
        "workGroupSize": "1",
        "interrupt": "true",
        "hwControlProtocol": "ap_ctrl_hs",
    }
    ports, args = kernel
    assert (ports.tag, args.tag) == ("ports", "args")
    common = {"portType": "addressable", "base": "0x0"}
    assert [port.attrib for port in ports] == [
        {"name": "s_axi_control", "mode": "slave", "range": "0x1000", "dataWidth": "32"} | common,
        *(
            {"name": name, "mode": "master", "range": "0xFFFFFFFFFFFFFFFF", "dataWidth": "512"} | common
            for name in MASTERS
        ),
    ]
    keys = ("name", "addressQualifier", "id", "port", "size", "offset", "type", "hostOffset", "hostSize")
    rows = [[arg.attrib[key] for key in keys] for arg in args]
    assert rows[0] == ["n", "0", "0", "s_axi_control", "0x4", "0x10", "uint", "0x0", "0x4"]
    assert rows[3] == ["a", "1", "3", "m_axi_a", "0x8", "0x28", "void*", "0x0", "0x8"]
    assert len(rows) == 10
    assert all(set(arg.attrib) == set(keys) for arg in args)


def test_link_cfg_spreads_ten_cores_on_hbm():
    """As published: three ports per core on separate banks, and cores spread over the dies."""
    found = linked(link_cfg(NAME, BOARDS["u55c"], 10, 300))
    names = [f"gemm_{number}" for number in range(1, 11)]
    assert found["connectivity"]["nk"] == [f"gemm:10:{'.'.join(names)}"]
    ports = [f"{name}.{port}" for name in names for port in MASTERS]
    assert found["connectivity"]["sp"] == [f"{port}:HBM[{bank}]" for bank, port in enumerate(ports)]
    slrs = Counter(line.partition(":")[2] for line in found["connectivity"]["slr"])
    assert sorted(slrs) == ["SLR0", "SLR1", "SLR2"]
    assert sorted(slrs.values()) == [3, 3, 4]
    assert found["clock"]["freqHz"] == [f"300000000:{name}.ap_clk" for name in names]


@pytest.mark.parametrize(("name", "cores"), [("u250", 8), ("u200", 6), ("vcu1525", 20), ("aws_f1", 20), ("u280", 10)])
def test_placement_respects_memory_masters(name, cores):
    board = BOARDS[name]
    found = places(NAME, board, cores)
    assert max(Counter(itertools.chain(*(place.banks for place in found))).values()) <= board.memory.masters
    assert all(len(place.banks) == 3 for place in found)
    on_die = Counter(place.slr for place in found)
    assert max(on_die.values()) - min(on_die.values()) <= 1
    if name in ("u250", "u200"):
        # Memory next to the die of the core.
        assert all(board.memory.slrs[bank] == place.slr for place in found for bank in place.banks)
        # On a die with two banks, ports use both.
        assert len({bank for place in found for bank in place.banks}) == 4


@pytest.mark.parametrize(
    ("board", "cores", "sentence"),
    [
        ("u55c", 11, "at most 10 cores"),
        ("u250", 21, "at most 20 cores"),
        ("u55c", 0, "0 cores cannot"),
    ],
)
def test_link_cfg_rejects_missing_ports(board, cores, sentence):
    with pytest.raises(ValueError, match=sentence):
        link_cfg(NAME, BOARDS[board], cores, 300)


# Packaging script -----------------------------------------------------------------------------------------------------


def verilog(kernel):
    """Return a module with the ports of a kernel and no content."""
    ports = [f"{bus}_{signal}" for bus in (CONTROL, *MASTERS) for signal in SIGNALS[bus]]
    names = ["ap_clk", "ap_rst_n", *ports, "interrupt"]
    lines = [f"  {'output' if name == 'interrupt' else 'input'} {name};" for name in names]
    return "\n".join([f"module {kernel}({', '.join(names)});", *lines, "endmodule", ""])


@pytest.fixture
def packaged(tmp_path):
    """Return a folder with all inputs of the script."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "gemm.v").write_text(verilog(NAME))
    (folder / "kernel.xml").write_text(kernel_xml(NAME))
    (folder / "package.tcl").write_text(package_tcl(NAME, "gemm.v", BOARDS["u55c"].target.part))
    return folder


def run(folder):
    return subprocess.run(
        ["vivado", "-mode", "batch", "-nojournal", "-nolog", "-source", folder / "package.tcl"],
        cwd=folder.parent,
        capture_output=True,
        text=True,
    )


def test_package_script_builds_kernel(packaged, recorder):  # noqa: F811  # a fixture
    answer = run(packaged)
    assert answer.returncode == 0, answer.stderr
    assert (packaged / "gemm.xo").is_file()
    lines = recorder.read_text().splitlines()
    assert [line.split()[0] for line in lines if "current_" not in line] == [
        "create_project", "add_files", "set_property", "update_compile_order", "ipx::package_project",
        *["set_property"] * 4, *["ipx::associate_bus_interfaces"] * 4,
        "ipx::create_xgui_files", "ipx::update_checksums", "ipx::save_core", "close_project", "package_xo",
    ]  # fmt: skip
    buses = [line.split()[2] for line in lines if line.startswith("ipx::associate")]
    assert buses == ["s_axi_control", "m_axi_a", "m_axi_b", "m_axi_c"]
    assert f"-part {BOARDS['u55c'].target.part} " in lines[0]


@pytest.mark.parametrize(
    ("file", "right", "wrong", "sentence"),
    [
        ("package.tcl", "package_xo -force", "package_xo -overwrite", "package_xo has no option '-overwrite'"),
        ("package.tcl", "    ipx::save_core [ipx::current_core]\n", "", "close_project comes after ipx::save_core"),
        ("package.tcl", "sdx_kernel true", "sdx_kernel false", "the core is no kernel: sdx_kernel is not true"),
        ("package.tcl", "-busif m_axi_b", "-busif m_axi_d", "bus interface 'm_axi_d' has no channel of its own"),
        ("package.tcl", "-clock ap_clk", "-clock clk", "there is no clock 'clk'"),
        ("package.tcl", "set_property top gemm", "set_property top gem", "there is no module 'gem' with ports"),
        ("gemm.v", "interrupt", "irq", "pins that are not part of an interface are not supported: irq"),
        ("kernel.xml", 'name="gemm"', 'name="other"', "the description is of another kernel"),
        ("gemm.v", None, None, "gemm.v' does not exist"),
    ],
)
def test_broken_package_script_fails(file, right, wrong, sentence, packaged, recorder):  # noqa: F811  # a fixture
    path = packaged / file
    if right is None:
        path.unlink()
    else:
        assert right in path.read_text()
        path.write_text(path.read_text().replace(right, wrong))
    answer = run(packaged)
    assert answer.returncode == 1
    assert sentence in answer.stderr
    assert not (packaged / "gemm.xo").exists()


def test_makefile_runs_tools_in_order(packaged, tmp_path, monkeypatch):
    """Run the rules in order, with programs that record their arguments."""
    (packaged / "link.cfg").write_text(link_cfg(NAME, BOARDS["u55c"], 2, 300))
    (packaged / "Makefile").write_text(makefile(NAME, BOARDS["u55c"], "gemm.v"))
    (tmp_path / "bin").mkdir()
    for program, makes in (("vivado", "gemm.xo"), ("v++", "gemm.hw.xclbin"), ("python3", "ran")):
        path = tmp_path / "bin" / program
        path.write_text(f'#!/bin/sh\necho "{program} $@" >>{tmp_path}/calls\n>{makes}\n')
        path.chmod(0o755)
    make = shutil.which("make")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    for _ in range(2):
        subprocess.run([make, "run", "ARGS=--n 5"], cwd=packaged, env=environment, check=True, capture_output=True)
    package, link, host, again = (tmp_path / "calls").read_text().splitlines()
    assert package == "vivado -mode batch -nojournal -log package.log -source package.tcl"
    assert link == (
        "v++ --link --target hw --platform xilinx_u55c_gen3x16_xdma_3_202210_1 --config link.cfg --temp_dir linked "
        "-o gemm.hw.xclbin gemm.xo"
    )
    assert host == again == "python3 host.py gemm.hw.xclbin --n 5"
