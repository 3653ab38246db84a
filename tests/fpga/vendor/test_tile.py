"""`halfulp tile`: a folder of kernels for a card; each file is run or parsed as its tool would."""

import re
import runpy
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from halfulp.boards.board import KINDS, Resources
from halfulp.boards.catalogue import BOARDS
from halfulp.boards.targets import TARGETS
from halfulp.fpga.kernel import cost_model as tilecost
from halfulp.fpga.kernel.arrays import KERNEL, array, cores_cost_model, kernel, with_source
from halfulp.fpga.kernel.cost_model import SMALL, CostModel, cost_model, recorded
from halfulp.fpga.kernel.layout import ARGUMENTS, MASTERS
from halfulp.fpga.match.cli import tile
from halfulp.fpga.synth.measure import Cost
from halfulp.fpga.vendor.tile import Design
from halfulp.hdl.specs import Build, MacSpec, parse_cell
from halfulp.tools.errors import CheckError
from halfulp.units.verilog import emit
from tests.fpga.kernel.test_host import pyxrt
from tests.fpga.vendor.test_vivado import REPORTED, recorder, run  # noqa: F401  # a fixture
from tests.fpga.vendor.test_xrt import linked
from tests.settings import ROOT

MAC = "e5m2*e5m2+e6m5.sr10"
SPEC = with_source(MacSpec.parse(MAC))
BUILD = Build(clock=300, target="xcup")
"""Build by the default clock of the boards of these tests."""

VU9P = TARGETS["vu9p"]

COST_MODEL = CostModel(
    {(n, m): Resources(lut=9_000 + 20_000 * n * m, ff=99, dsp=0, bram=1, uram=0) for n, m in SMALL}, "the test"
)


def written(*words):
    """Run the command with given costs instead of synthesis."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halfulp.fpga.vendor.tile.recorded_cost_model", lambda *_, **__: COST_MODEL)
        patch.setattr("halfulp.fpga.vendor.tile.cores_cost_model", lambda *_, **__: COST_MODEL)
        answer = CliRunner().invoke(tile, [*map(str, words)])
    return answer.exit_code, answer.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run the command for three small cores."""
    made = tmp_path_factory.mktemp("tile") / "a folder" / "out"
    words = ("--mac", MAC, "--n", 2, "--m", 3, "--depth", 4, "--cores", 3, "--board", "u55c", "-o", made)
    code, said = written(*words)
    assert code == 0
    assert said.startswith(f"3 x 2 x 3 multiply-accumulates of {SPEC.expression} for AMD Alveo U55C")
    assert "387,000 LUT by records of small kernels, 29.7 %" in said
    assert "a requested clock of 300 MHz, with 4 register stages (" in said
    return made


@pytest.mark.slow
def test_tile_writes_all_files(folder):
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    bare = array(SPEC, 2, 3, 4, BUILD).name
    assert files == {
        "halfulp_gemm.v", "kernel.xml", "package.tcl", "link.cfg", "host.py", "host.cpp", "tile.h", "Makefile",
        "tile/flow.tcl", f"tile/{bare}.v", f"tile/{bare}.xdc",
    }  # fmt: skip
    # Another call does not change the files.
    code, said = written("-o", folder)
    assert code == 2
    assert "is not empty" in said


@pytest.mark.slow
def test_tile_of_board_without_platform_has_flow_only(tmp_path):
    code, said = written("--mac", MAC, "--n", 1, "--m", 1, "--depth", 4, "--board", "vcu118", "-o", tmp_path / "out")
    assert code == 0
    assert "no XRT platform" in said
    bare = array(SPEC, 1, 1, 4, BUILD).name
    assert {path.name for path in (tmp_path / "out").rglob("*.*")} == {"flow.tcl", f"{bare}.v", f"{bare}.xdc"}


@pytest.mark.slow
@pytest.mark.parametrize("mac", ["mxfp8_e4m3*mxfp4+fp32.rn step=4", "sparsemac e4m3fn*e4m3fn+bf16.rn sparsity=1:2"])
def test_tile_takes_blocks_and_sparse_weights(mac, tmp_path):
    code, said = written("--mac", mac, "--n", 1, "--m", 1, "--depth", 2, "--clock", 25, "-o", tmp_path / "out")
    assert (code, said.partition(" for ")[0]) == (0, f"1 x 1 x 1 multiply-accumulates of {mac}")
    assert runpy.run_path(str(tmp_path / "out" / "host.py"))["TILE"].spec == parse_cell(mac)
    assert KERNEL in (tmp_path / "out" / f"{KERNEL}.v").read_text()


def test_tile_rejects_blocks_longer_than_a_beat(tmp_path):
    mac = "block(e5m2,64,e8m0fnu,floor)*block(e5m2,64,e8m0fnu,floor)+fp32.rn"
    code, said = written("--mac", mac, "--n", 1, "--m", 1, "--depth", 2, "--board", "u55c", "-o", tmp_path / "out")
    assert code == 2
    assert "choose a smaller step=" in said


def ports(folder):
    """Return the ports of the kernel's module and their widths."""
    text = (folder / f"{KERNEL}.v").read_text()
    module = re.search(rf"^module {KERNEL}\(.*?\);(.*?)^endmodule", text, re.M | re.S)[1]
    found = re.findall(r"^\s*(?:input|output)\s+(?:\[(\d+):0\]\s+)?(\w+)\s*;", module, re.M)
    return {name: int(high or 0) + 1 for high, name in found}


def test_tile_kernel_xml_matches_verilog(folder):
    (described,) = ElementTree.parse(folder / "kernel.xml").getroot()
    there = ports(folder)
    assert described.get("name") == KERNEL
    for port in described.find("ports"):
        data = "wdata" if f"{port.get('name')}_wdata" in there else "rdata"
        assert there[f"{port.get('name')}_{data}"] == int(port.get("dataWidth"))
    args = list(described.find("args"))
    assert [arg.get("name") for arg in args] == [argument.name for argument in ARGUMENTS]
    assert [int(arg.get("offset"), 16) for arg in args] == [argument.offset for argument in ARGUMENTS]
    assert {arg.get("port") for arg in args} == {"s_axi_control", *MASTERS}
    # No two registers overlap.
    ends = [argument.offset + argument.bits // 8 for argument in ARGUMENTS]
    assert all(end <= argument.offset for end, argument in zip(ends, ARGUMENTS[1:], strict=False))


def test_tile_packages_kernel(folder, recorder, tmp_path):  # noqa: F811  # a fixture
    """All ports of the module belong to interfaces, and the packaged core is a kernel."""
    answer = subprocess.run(
        ["vivado", "-mode", "batch", "-nojournal", "-nolog", "-source", folder / "package.tcl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    (folder / f"{KERNEL}.xo").unlink()
    assert "package_xo -force -kernel_name halfulp_gemm" in recorder.read_text()


def test_tile_bare_array_has_vivado_flow(folder, recorder):  # noqa: F811  # a fixture
    assert run(folder / "tile") == REPORTED
    text = recorder.read_text()
    assert f"-top {array(SPEC, 2, 3, 4, BUILD).name} -part xcvu9p-flga2104-2L-e -mode out_of_context" in text
    assert "-max_dsp 0" in text
    assert "-period 3.333" in text


def test_tile_link_configuration_matches_board(folder):
    found = linked((folder / "link.cfg").read_text())
    names = [f"{KERNEL}_{core}" for core in (1, 2, 3)]
    assert found["connectivity"]["nk"] == [f"{KERNEL}:3:{'.'.join(names)}"]
    assert [line.partition(":")[0] for line in found["connectivity"]["sp"]] == [
        f"{name}.{port}" for name in names for port in MASTERS
    ]
    assert found["clock"]["freqHz"] == [f"300000000:{name}.ap_clk" for name in names]
    # XRT limits the names of a kernel and its instance to 63 letters together.
    assert len(f"{KERNEL}:{KERNEL}_31") < 64


@pytest.mark.parametrize("flip", [False, True])
def test_tile_host_program_runs(folder, flip, monkeypatch, capsys):
    """The program runs with a card that computes like the kernels, and detects a wrong bit."""
    name = str(folder / "host.py")
    card = runpy.run_path(name)["TILE"]
    assert (card.tiling, card.cores, card.spec) == (array(SPEC, 2, 3, 4).tiling, 3, SPEC)
    monkeypatch.setitem(sys.modules, "pyxrt", pyxrt(card, flip=flip))
    xclbin = folder / "Makefile"
    monkeypatch.setattr(sys, "argv", [name, str(xclbin), "--n", "9", "--k", "4", "--m", "14"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(name, run_name="__main__")
    assert end.value.code == flip
    sentence = "3 of 126 elements are wrong" if flip else "all 126 elements match the golden model"
    assert capsys.readouterr().out.count(sentence) == (1 if flip else 2)


def test_tile_makefile_is_complete(folder):
    answer = subprocess.run(["make", "-n", "run", "tile"], cwd=folder, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert "v++ --link" in answer.stdout
    assert "-source tile/flow.tcl" in answer.stdout


def design(**changes):
    return Design(**{"board": BOARDS["u55c"], "mac": SPEC, "n": 8, "m": 8, "cores": 10, "depth": 32} | changes)


def test_tile_accepts_clocks_and_devices(monkeypatch):
    assert design().clock == 300
    assert design(board=BOARDS["aws_f1"]).clock == 250
    monkeypatch.setattr("halfulp.fpga.vendor.tile.verilog", lambda *_: "")
    monkeypatch.setattr(
        "halfulp.fpga.vendor.vivado.verilog", lambda component, name, **_: f"module {component.name}();\nendmodule"
    )
    files = design(n=1, m=1, depth=2, cores=1, mhz=123.4, bare=TARGETS["u250"]).files()
    assert "freqHz=123400000:" in files["link.cfg"]
    assert "xcu250-figd2104-2L-e" in files["tile/flow.tcl"]
    assert "-period 8.104" in next(text for name, text in files.items() if name.endswith(".xdc"))


@pytest.mark.slow
def test_tile_without_record_says_how_to_estimate_its_size(tmp_path):
    words = ("--mac", "e2m1fn*e2m1fn+e3m2.rn", "--n", 1, "--m", 1, "--depth", 2, "--clock", 25, "-o", tmp_path / "out")
    words = tuple(map(str, words))
    answer = CliRunner().invoke(tile, words)
    assert answer.exit_code == 0
    assert "of unknown size, because its costs are not recorded (add --estimate or --synth), at" in answer.output


@pytest.mark.slow
def test_tile_estimate_shows_its_progress(tmp_path, monkeypatch):
    phases = []
    monkeypatch.setattr("halfulp.tools.progress.Bar.total", lambda bar, text, count=None: phases.append((text, count)))
    cost = Cost.of({"LUT6": 9_000}, 0)
    monkeypatch.setattr("halfulp.fpga.kernel.cost_model.measure_modules", lambda *_: [cost] * 4)
    words = ("--mac", "e2m1fn*e2m1fn+e3m2.rn", "--n", 1, "--m", 1, "--depth", 2, "--estimate", "--clock", 25)
    answer = CliRunner().invoke(tile, [*map(str, words), "-o", str(tmp_path / "out")])
    assert answer.exit_code == 0
    assert "about 9,000 LUT by synthesis of small kernels, 0.7 %" in answer.output
    assert phases == [("register stages", None), ("synthesis", 4), ("Verilog", None)]


def test_tile_clock_is_limited_by_block_memories(tmp_path):
    """Kernels of the cost model have one block memory."""
    words = (
        "--mac",
        "e2m1fn*e2m1fn+e3m2.rn",
        "--n",
        1,
        "--m",
        1,
        "--depth",
        2,
        "--pipeline",
        30,
        "-o",
        tmp_path / "out",
    )
    code, said = written(*words, "--clock", 739)
    assert (code, "the block RAM of u55c supports 1 to 738 MHz (AMD, DS923" in said) == (2, True)
    assert not (tmp_path / "out").exists()


def test_tile_estimates_its_size_from_records_without_register_stages():
    small = CostModel(dict(zip(SMALL, recorded([kernel(SPEC, *size).name for size in SMALL], VU9P), strict=True)), "")
    assert design(build=BUILD).recorded() == small.cells(8, 8)


@pytest.mark.slow
def test_tile_that_misses_its_clock_ends_with_one(tmp_path):
    words = ("--mac", "e5m2*e5m2+e6m5.rn", "--n", 1, "--m", 1, "--depth", 2, "--pipeline", 0)
    with pytest.raises(CheckError) as caught:
        CliRunner().invoke(tile, [*map(str, words), "-o", str(tmp_path / "out")], catch_exceptions=False)
    assert re.fullmatch(
        "multiply-accumulates with 0 register stages miss the clock of 300 MHz by the delay model, which gives "
        r"\d+\.\d MHz; omit --pipeline, or lower --clock",
        str(caught.value),
    )
    assert (tmp_path / "out" / "kernel.xml").is_file()


@pytest.mark.slow
def test_tile_has_structures_of_its_goal(tmp_path):
    words = ("--mac", "e5m2*e5m2+e6m5.rn", "--n", 1, "--m", 1, "--depth", 4, "--board", "vcu118", "--clock", 25)
    found = {}
    for goal in ("area", "speed"):
        code, said = written(*words, "--goal", goal, "-o", tmp_path / goal)
        assert code == 0, said
        (path,) = (tmp_path / goal / "tile").glob("*.v")
        found[goal] = path
    assert "speed" in found["speed"].stem
    assert "speed" not in found["area"].stem
    bodies = [path.read_text().replace(path.stem, "top").replace("_speed", "") for path in found.values()]
    assert bodies[0] != bodies[1]


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ("--goal fast", "goal"),
        ("--mac int8*int8+int16.rn --goal speed", "goal"),
        ("--cores 11", "at most 10 cores"),
        ("--cores 0", "0 cores cannot"),
        ("--board vcu118 --cores 2", "vcu118 has no XRT platform"),
        ("--board u50", "unknown board 'u50'"),
        ("--n 0", "n 0"),
        ("--depth 0", "depth 0"),
        ("--rows 0", "rows 0"),
        ("--pipeline -1", "pipeline -1"),
        ("--clock 900", "900 MHz is out of range"),
        ("--mac e5m2", "e5m2 is a format"),
        ("--target ecp5-85k", "not support ecp5-85k"),
        ("--target vu0", "unknown target 'vu0'"),
        ("--n 4 --m 4 --cores 4", "101 % of the LUT of u55c; 3 fit"),
        ("--n 8 --m 8 --board u200", "109 % of"),
        ("--n 8 --m 4", "a die of u55c"),
        ("--n 100000 --m 100000", "% of the LUT"),
        ("--depth 100000000", "% of the LUT"),
    ],
)
def test_tile_rejects_bad_requests(words, keyword, tmp_path):
    code, said = written(*words.split(), "-o", tmp_path / "out")
    assert code == 2
    assert keyword in said
    assert not (tmp_path / "out").exists()


def test_tile_rejects_design_that_does_not_fit():
    small = design()
    small.check(Resources(lut=130_368, ff=0, dsp=0, bram=0, uram=0))
    with pytest.raises(ValueError, match="100 % of the LUT of u55c; 9 fit"):
        small.check(Resources(lut=130_369, ff=0, dsp=0, bram=0, uram=0))
    with pytest.raises(ValueError, match="1984 % of the BRAM of u55c"):
        small.check(Resources(lut=1, ff=0, dsp=0, bram=4_000, uram=0))
    with pytest.raises(ValueError, match="439,681 LUT, and a die"):
        replace(small, cores=1).check(Resources(lut=439_681, ff=0, dsp=0, bram=0, uram=0))


@pytest.mark.slow
def test_tile_page_has_lines_of_kernels():
    text = (ROOT / "docs" / "arrays.md").read_text()
    rows = re.findall(r"^\| (\d+) x (\d+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert [(int(n), int(m)) for n, m, _ in rows] == [(8, 8), (16, 16), (32, 32), (64, 32)]
    for n, m, lines in rows:
        assert lines == f"{emit(kernel(SPEC, int(n), int(m)), netlist=True).count(chr(10)):,}"


# Cost model -----------------------------------------------------------------------------------------------------------


def test_cost_model_is_exact_for_bilinear_costs():
    def cells(n, m):
        return Resources(lut=7 + 3 * n + 5 * m + 11 * n * m, ff=2 * n, dsp=n * m, bram=0, uram=1)

    found = CostModel({size: cells(*size) for size in SMALL}, "the test")
    for n, m in ((1, 1), (2, 2), (5, 3), (64, 64)):
        assert found.cells(n, m) == cells(n, m)


def test_cost_model_from_records_predicts_larger_arrays():
    """Records of small kernels predict the smallest and a large one within a few percent."""
    predicted = cores_cost_model(SPEC, TARGETS["u55c"])
    assert predicted.source == "the records of this version"
    for size in ((1, 1), (64, 32)):
        (found,) = recorded([kernel(SPEC, *size).name], TARGETS["u55c"])
        assert predicted.cells(*size).lut == pytest.approx(found.lut, rel=0.03)
        assert predicted.cells(*size).ff == pytest.approx(found.ff, rel=0.03)
    assert recorded([kernel(SPEC, 1, 1).name], TARGETS["artix100t"]) is None
    assert recorded(["chain_of_nothing"], TARGETS["u55c"]) is None


def test_cost_model_synthesises_missing_records(monkeypatch):
    asked = []

    def measure_modules(modules, target, progress, pool):
        asked.extend(module.top for module in modules)
        return [
            Cost(lut=count, luts=(), ff=1, carry=0, mux=0, dsp=0, bram=0, uram=0, memory=1, path=1)
            for count in (1, 2, 3, 5)
        ]

    monkeypatch.setattr(tilecost, "measure_modules", measure_modules)
    monkeypatch.setattr("halfulp.fpga.synth.measure.verilog", lambda component, top, **options: "")
    found = cost_model(lambda n, m: array(MacSpec.parse("e2m1fn*e2m1fn+e4m3.rn"), n, m, 2), TARGETS["u250"])
    assert asked == [f"chain_{n}x{m}_e2m1fn_e2m1fn_e4m3_rn_d2" for n, m in SMALL]
    # A memory made of lookup tables counts as eight of them.
    assert found.cells(2, 2).lut == 9
    assert found.cells(8, 8).lut == 13
    # Two steps of six elements, and of six multiply-accumulates per element, from the smallest array.
    assert found.cells(14, 14).lut == 9 + 2 * 1 + 2 * 2 + 4 * 1
    assert found.source.startswith("Yosys ")


def test_cells_share_of_device():
    cells = Resources(lut=1_000, ff=0, dsp=0, bram=0, uram=1)
    shares = cells.share(TARGETS["artix100t"], 2)
    assert set(shares) == {kind.upper() for kind in KINDS}
    assert shares["LUT"] == pytest.approx(200_000 / 63_400)
    assert shares["URAM"] == float("inf")


def test_kernel_name_contains_array_name_by_default():
    assert kernel(SPEC, 1, 1).name == f"kernel_{array(SPEC, 1, 1).name}"
    assert kernel(SPEC, 1, 1, name=KERNEL).name == KERNEL
