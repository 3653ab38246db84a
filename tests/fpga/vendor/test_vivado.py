"""Vivado flow without Vivado: scripts run in Tcl against a recorder that refuses unknown commands.

The recorder and its reports are in `vivado/` in this folder; the figures are invented, the layout is that of Vivado.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from click.testing import CliRunner

from halfulp.boards.targets import TARGETS
from halfulp.fpga.cli import synth
from halfulp.fpga.synth.measure import Cost, module_of
from halfulp.fpga.synth.measure import Module as Unit
from halfulp.fpga.vendor import vivado
from halfulp.fpga.vendor.cli import emit
from halfulp.fpga.vendor.vivado import Power, Routed, Timing, implement, knows, power, scripts, timing, utilization
from halfulp.hdl.formats import parse
from halfulp.implementation import short
from halfulp.tools.errors import ToolError
from halfulp.units.catalogue import CATALOGUE
from tests.short_form import BLOCK

HERE = Path(__file__).resolve().parent / "vivado"
VU9P = TARGETS["vu9p"]

MUL = short("mul", "e2m1fn")

DEVICES = ", ".join(name for name, target in TARGETS.items() if knows(target))

REPORTED = Routed(
    cost=Cost(
        lut=222, luts=(0, 0, 0, 0, 0, 98), ff=28, carry=5, mux=7, dsp=2, bram=1, uram=1, memory=3, path=12, fmax=400.0
    ),
    timing=Timing(period=2.0, slack=-0.5, path=12),
    power=Power(total=2.461, dynamic=0.013, static=2.448),
)

FLOW = (
    *("read_verilog", "read_xdc", "synth_design", "opt_design", "place_design", "phys_opt_design", "route_design"),
    *("report_utilization", "report_timing_summary", "report_power", "write_checkpoint"),
)


IN_PYTHON = """
import os, sys, tkinter

tcl = tkinter.Tcl()
tcl.call("set", "argv", tuple(sys.argv[1:]))
# tkinter takes this command away.
tcl.createcommand("leave", lambda code: os._exit(int(code)))
tcl.eval("proc exit {{code 0}} {flush stdout; flush stderr; leave $code}")
tcl.call("source", recorder)
"""


class Counter(wiring.Component):
    """Component outside the library that has no input."""

    count: Out(8)

    def elaborate(self, platform):
        m = Module()
        state = Signal(8, reset_less=True)
        m.d.sync += state.eq(state + 1)
        m.d.comb += self.count.eq(state)
        return m


class Wire(wiring.Component):
    """Component of one gate."""

    bit: In(1)
    inverse: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.inverse.eq(~self.bit)
        return m


def program(folder, text):
    """Return a program named vivado, alone on PATH with the tools of a shell."""
    folder.mkdir(exist_ok=True)
    path = folder / "vivado"
    path.write_text(text)
    path.chmod(0o755)
    return f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """Install the recorder as vivado in any Tcl; return the file with its log."""
    recorder = HERE / "recorder.tcl"
    if importlib.util.find_spec("_tkinter"):
        text = f"#!{sys.executable}\nrecorder = {str(recorder)!r}\n{IN_PYTHON}"
    elif tclsh := shutil.which("tclsh"):
        text = f'#!/bin/sh\nexec {tclsh} {recorder} "$@"\n'
    else:
        pytest.skip("this Python has no tkinter, and there is no tclsh: nothing here speaks Tcl")
    monkeypatch.setenv("PATH", program(tmp_path / "bin", text))
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    return tmp_path / "record"


def written(folder, texts):
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def run(folder):
    """Run the scripts of a folder by the command in their first lines, and read the reports."""
    argv = ["vivado", "-mode", "batch", "-source", "flow.tcl"]
    answer = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    if answer.returncode:
        raise ToolError(answer.stderr)
    return vivado.read(folder)


def scripted(folder, request=MUL, **options):
    return written(folder, scripts(request.component(), VU9P, **{"clock_mhz": 500} | options))


# Scripts -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(45, 2)
@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
def test_scripts_of_every_unit_run(row, pipeline, tmp_path, recorder):
    fmt = next((fmt for fmt in ("e2m1fn", "fxp4.3", "e3m2") if row.spec.takes(parse(fmt), None)), BLOCK)
    folder = scripted(tmp_path / "out", short(row.name, fmt, pipeline=pipeline))
    assert run(folder) == REPORTED
    commands = [line.split()[0] for line in recorder.read_text().splitlines()]
    assert [command for command in commands if command in FLOW] == list(FLOW)
    clocked = bool(pipeline or row.stateful)
    assert commands.count("create_clock") == 1
    assert commands.count("set_max_delay") == 1 + clocked
    assert ("[get_ports clk]" in next(folder.glob("*.xdc")).read_text()) == clocked
    assert {path.suffix for path in folder.iterdir()} == {".dcp", ".rpt", ".tcl", ".v", ".xdc"}


def test_constraints_time_every_port(tmp_path):
    texts = scripts(short("mac", "e5m2").component(), VU9P, clock_mhz=300)
    assert texts["mac_e5m2_e5m2_e6m5_rn.xdc"] == (
        "create_clock -name clk -period 3.333 [get_ports clk]\n"
        "set_max_delay -datapath_only -from [get_ports {rst en valid a[*] b[*] c[*] load clear}] 3.333\n"
        "set_max_delay -datapath_only -from [get_clocks clk] -to [get_ports {o[*]}] 3.333\n"
    )
    texts = scripts(Wire(), VU9P, clock_mhz=500, name="inverter")
    assert texts["inverter.xdc"] == (
        "create_clock -name virtual -period 2.000\n"
        "set_max_delay -from [get_ports {bit}] -to [get_ports {inverse}] 2.000\n"
    )


def test_scripts_can_forbid_dsp_blocks(tmp_path, recorder):
    run(scripted(tmp_path / "with"))
    assert "-max_dsp" not in recorder.read_text()
    run(scripted(tmp_path / "without", dsp=False))
    (synth,) = [line for line in recorder.read_text().splitlines() if "-max_dsp" in line]
    assert synth == (
        "synth_design -top mul_e2m1fn_e2m1fn_e2m1fn_rn -part xcvu9p-flga2104-2L-e -mode out_of_context "
        "-flatten_hierarchy rebuilt -max_dsp 0"
    )


def test_scripts_quote_names(tmp_path, recorder):
    folder = tmp_path / 'a [b] $c {d; "e'
    written(folder, scripts(Counter(), VU9P, clock_mhz=250, name="count$8"))
    assert sorted(path.name for path in folder.iterdir()) == ["count_8.v", "count_8.xdc", "flow.tcl"]
    assert run(folder) == REPORTED
    assert "synth_design -top {count$8} " in recorder.read_text()


def test_scripts_quote_part(tmp_path, recorder):
    unit = short("mul", "e2m1fn").component()
    run(written(tmp_path / "out", scripts(unit, replace(VU9P, part="xc7 [x]\\ $y {z"), clock_mhz=500)))
    assert "-part xc7\\ \\[x\\]\\\\\\ \\$y\\ \\{z -mode" in recorder.read_text()


@pytest.mark.parametrize("clock", [0, -1, 0.5, 2001, float("nan"), float("inf")])
def test_scripts_reject_bad_clock(clock):
    with pytest.raises(ValueError, match=r"a clock of .* MHz is out of range"):
        scripts(Wire(), VU9P, clock_mhz=clock, name="wire")


def test_scripts_reject_device_of_another_vendor():
    other = replace(VU9P, name="ecp5", part="LFE5U-85F-6BG381C")
    with pytest.raises(ValueError, match="not support ecp5"):
        scripts(Wire(), other, clock_mhz=100, name="wire")


# Program -------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("file", "right", "wrong", "sentence"),
    [
        ("flow.tcl", "place_design\n", "palce_design\n", 'invalid command name "palce_design"'),
        ("flow.tcl", "-flatten_hierarchy", "-flatten", "synth_design has no option '-flatten'"),
        ("flow.tcl", "rebuilt", "rebuild", "synth_design -flatten_hierarchy cannot be 'rebuild'"),
        ("flow.tcl", "write_checkpoint -force", "write_checkpoint -froce", "write_checkpoint has no option '-froce'"),
        ("flow.tcl", "    place_design\n", "", "phys_opt_design comes after place_design"),
        ("flow.tcl", "-top mul", "-top mule", "there is no module 'mule_e2m1fn"),
        ("flow.tcl", "rn.xdc", "ra.xdc", "does not exist"),
        ("mul_e2m1fn_e2m1fn_e2m1fn_rn.xdc", "create_clock", "creat_clock", 'invalid command name "creat_clock"'),
        ("mul_e2m1fn_e2m1fn_e2m1fn_rn.xdc", "a[*]", "z[*]", "no ports matched 'z[*]'; there are"),
        ("mul_e2m1fn_e2m1fn_e2m1fn_rn.xdc", "-period", "-frequency", "create_clock has no option '-frequency'"),
        ("mul_e2m1fn_e2m1fn_e2m1fn_rn.v", None, None, "mul_e2m1fn_e2m1fn_e2m1fn_rn.v' does not exist"),
    ],
)
def test_run_fails_on_broken_script(file, right, wrong, sentence, tmp_path, recorder):
    folder = scripted(tmp_path / "out")
    path = folder / file
    if right is None:
        path.unlink()
    else:
        assert right in path.read_text()
        path.write_text(path.read_text().replace(right, wrong))
    with pytest.raises(ToolError, match=re.escape(sentence)):
        run(folder)


# Reports -----------------------------------------------------------------------------------------------------------


def report(name):
    return (HERE / name).read_text()


def test_reports_parse():
    assert utilization(report("utilization.rpt")) | {"path": 12, "fmax": 400.0} == vars(REPORTED.cost)
    assert timing(report("timing.rpt")) == REPORTED.timing
    assert power(report("power.rpt")) == REPORTED.power
    assert REPORTED.cost.fmax == REPORTED.timing.fmax == 400
    assert Timing(period=2.0, slack=0.4, path=3).fmax == pytest.approx(625)
    # Between ports, for a unit without a clock.
    between = report("timing.rpt").replace("Setup (Max at Slow Process Corner)", "Max at Slow Process Corner")
    assert timing(between) == REPORTED.timing
    assert power(report("power.rpt").replace("| 0.013 ", "| <0.001")).dynamic == 0.001


def test_reports_of_older_families_parse():
    unplaced = report("utilization.rpt").replace("| CLB LUTs                   |", "| CLB LUTs*                  |")
    assert utilization(unplaced) == utilization(report("utilization.rpt"))
    # Without the column of prohibited sites.
    older = re.sub(r"(?m)^(\|[^|]*\|[^|]*\|[^|]*)\|[^|]*(\|[^|]*\|[^|]*\|)$", r"\1\2", unplaced)
    assert "Prohibited" not in older
    assert utilization(older) == utilization(unplaced)
    assert utilization(report("utilization_7.rpt")) == {
        "lut": 240, "luts": (0, 0, 0, 0, 0, 110), "ff": 28, "carry": 5, "mux": 6, "dsp": 0, "bram": 1, "uram": 0,
        "memory": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("read", "file", "line"),
    [
        *[
            (utilization, "utilization.rpt", line)
            for line in (
                "CLB LUTs", "LUT as Logic", "LUT as Memory", "CLB Registers", "CARRY8", "F7 Muxes", "F8 Muxes",
                "F9 Muxes", "DSPs", "Block RAM Tile", "URAM",
            )
        ],
        *[
            (utilization, "utilization_7.rpt", line)
            for line in ("LUT as Logic", "LUT as Memory", "Slice Registers", "F7 Muxes", "DSPs", "Block RAM Tile")
        ],
        *[(timing, "timing.rpt", line) for line in ("WNS(ns)", "Clock  Waveform(ns)", "Slack", "Logic Levels")],
        *[
            (power, "power.rpt", line)
            for line in ("Total On-Chip Power (W)", "Dynamic (W)", "Device Static (W)")
        ],
    ],
)  # fmt: skip
def test_reports_reject_missing_line(read, file, line):
    lines = [text for text in report(file).splitlines() if not text.strip("| ").startswith(line)]
    assert len(lines) < len(report(file).splitlines())
    with pytest.raises(ToolError) as caught:
        read("\n".join(lines))
    assert f" has no line {line!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("read", "file", "right", "wrong", "sentence"),
    [
        (
            utilization,
            "utilization.rpt",
            "| URAM              |    1 ",
            "| URAM |  ",
            "has '' in the line 'URAM'",
        ),
        (
            utilization,
            "utilization_7.rpt",
            "Ref Name",
            "Name",
            "has no table of primitives",
        ),
        (timing, "timing.rpt", "     -0.500  ", "         NA  ", "has 'NA' in the line 'WNS"),
        (timing, "timing.rpt", "     -0.500  ", "      2.000  ", "has a slack of 2.0 ns below 'WNS(ns)'"),
        (timing, "timing.rpt", "clk    {0", "clk {0.0 1.0} 2.0 1\ntwo  {0", "has 2 clocks"),
        (power, "power.rpt", "2.461", "     ", "has '' in the line 'Total On-Chip Power (W)'"),
    ],
)
def test_reports_reject_missing_number(read, file, right, wrong, sentence):
    assert right in report(file)
    with pytest.raises(ToolError, match=rf"\.rpt {re.escape(sentence)}"):
        read(report(file).replace(right, wrong))


@pytest.mark.parametrize("read", [utilization, timing, power])
def test_reports_reject_empty_text(read):
    with pytest.raises(ToolError, match=r"\.rpt has no line"):
        read("")


# Command -------------------------------------------------------------------------------------------------------------


def emitted(*words):
    answer = CliRunner().invoke(emit, [*map(str, words)])
    return answer.exit_code, answer.output


def test_emit_writes_flow_that_runs(tmp_path, recorder):
    out = tmp_path / "deep" / "out"
    words = ("mac", "e5m2", "--target", "vu9p", "--flow", "vivado", "--clock", 400, "--pipeline", 0, "-o", out)
    assert emitted(*words) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == [
        "flow.tcl", "mac_e5m2_e5m2_e6m5_rn.v", "mac_e5m2_e5m2_e6m5_rn.xdc",
    ]  # fmt: skip
    assert (out / "mac_e5m2_e5m2_e6m5_rn.v").read_text() == emitted("mac", "e5m2")[1]
    assert "-max_dsp 0" in (out / "flow.tcl").read_text()
    assert "-period 2.500 " in (out / "mac_e5m2_e5m2_e6m5_rn.xdc").read_text()
    # By the command in its first lines, from any working folder.
    subprocess.run(
        ["vivado", "-mode", "batch", "-source", out / "flow.tcl"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL
    )
    assert vivado.read(out) == REPORTED
    (out / "flow.tcl").unlink()
    code, said = emitted(*words)
    assert code == 2
    assert "is not empty" in said
    assert not (out / "flow.tcl").exists()


@pytest.mark.parametrize(("slack", "code"), [("0.0", 0), ("-0.125", 1)])
def test_emitted_flow_fails_if_the_clock_is_missed(tmp_path, recorder, slack, code):
    out = tmp_path / "out"
    assert emitted("mul", "e2m1fn", "--target", "vu9p", "--flow", "vivado", "-o", out) == (0, "")
    answer = subprocess.run(
        ["vivado", "-mode", "batch", "-source", out / "flow.tcl"],
        env=os.environ | {"SLACK": slack},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == code
    assert ("the requested clock is missed by 0.125 ns" in answer.stderr) == (code == 1)
    # Reports are there in both cases.
    assert vivado.read(out) == REPORTED


def test_emit_fills_empty_folder(tmp_path):
    assert emitted("mul", "e2m1fn", "--target", "vu9p", "--flow", "vivado", "-o", tmp_path) == (0, "")
    assert len(list(tmp_path.iterdir())) == 3
    assert "-period 2.000\n" in next(tmp_path.glob("*.xdc")).read_text()


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ("--target vu9p", "--target"),
        ("--clock 9000", "9000 MHz"),
        ("--clock 100 --pipeline 1", "pipeline"),
        ("--flow vivado -o new", DEVICES),
        ("--flow vivado -o new --target ecp5-85k", "not ecp5-85k"),
        ("--flow vivado --target vu9p", "-o"),
        ("--flow vivado --target vu9p -o file", "file is a file"),
        ("--flow vivado --target vu9p -o .", "is not empty"),
        ("--flow vivado --target vu9p -o new --clock 0 --pipeline 0", "out of range"),
        ("--flow vivado --target vu9p -o new --k 3", "no --k"),
    ],
)
def test_emit_rejects_bad_requests(words, keyword, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept")
    code, said = emitted("mul", "e2m1fn", *words.split())
    assert code == 2
    assert keyword in said
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# `halfulp synth` ----------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a vivado that writes the reports of these tests; return its recorded arguments."""
    text = f"""#!/bin/sh
echo "$@" >>{tmp_path}/calls
[ "$1" = -version ] && {{ echo "vivado v2023.1 (64-bit)"; echo "SW Build 1"; exit 0; }}
cat flow.tcl *.xdc >>{tmp_path}/scripts
grep -q max_dsp flow.tcl || {{ seq 20; echo "ERROR: [Synth 8-1] no room"; exit 1; }}
cp {HERE}/*.rpt .
"""
    monkeypatch.setenv("PATH", program(tmp_path / "bin", text))
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    return tmp_path / "calls"


def synthesised(*words):
    """Run the command in the program, so that the output includes that of tools, without lines about the progress."""
    command, without_lines = [sys.executable, "-m", "halfulp", "synth", *words], os.environ | {"HALFULP_QUIET": "0"}
    answer = subprocess.run(command, capture_output=True, text=True, env=without_lines)
    return answer.returncode, answer.stdout, answer.stderr


def test_synth_prints_vivado_figures(tmp_path, installed):
    words = ("mul", "e2m1fn", "--flow", "vivado", "--clock", "400", "--pipeline", "0", "-o", str(tmp_path / "out"))
    code, out, err = synthesised(*words)
    assert code == 0, err
    assert out.startswith("## Cost on vu9p\n")
    (row,) = [line.split("|") for line in out.splitlines() if line.startswith("| mul e2m1fn")]
    assert [cell.strip() for cell in row[2:-1]] == [
        "222", "28", "5", "7", "2", "1", "1", "12", "0.1 % URAM", "400.0",
    ]  # fmt: skip
    assert "- Vivado 2023.1, " in out
    assert "400 MHz" in out
    assert "Yosys" not in out
    assert err.splitlines() == [f"halfulp: wrote {tmp_path / 'out' / 'synth'}.{end}" for end in ("md", "csv", "tex")]
    assert (tmp_path / "out" / "synth.md").read_text() == out
    scripts = (tmp_path / "scripts").read_text()
    assert "-max_dsp 0" in scripts
    assert "-period 2.500\n" in scripts
    assert "-part xcvu9p-flga2104-2L-e " in scripts
    calls = ["-version", "-mode batch -nolog -nojournal -source flow.tcl"]
    assert installed.read_text().splitlines() == calls
    # The second run asks only for the version.
    assert synthesised(*words)[:2] == (0, out)
    assert installed.read_text().splitlines() == [*calls, "-version"]


@pytest.mark.slow
def test_synth_fails_if_vivado_misses_the_clock(installed):
    """The reports of the stub have 400 MHz."""
    code, out, err = synthesised("mul", "e2m1fn", "--flow", "vivado", "--clock", "450", "--pipeline", "0")
    assert (code, "| mul e2m1fn" in out) == (1, True)
    assert (
        "clock of 450 MHz is missed after place and route: mul e2m1fn*e2m1fn.rn reaches 400.00 MHz; give more stages"
        in err
    )
    # The default clock is no request.
    assert synthesised("mul", "e2m1fn", "--flow", "vivado", "--pipeline", "0")[0] == 0


def test_implement_caches_by_clock_and_version(tmp_path, installed):
    module = module_of(MUL)
    assert implement([module, module], VU9P, clock_mhz=500) == [REPORTED] * 2
    assert implement([module], VU9P, clock_mhz=500) == [REPORTED]
    runs = [line for line in installed.read_text().splitlines() if "batch" in line]
    assert len(runs) == 1
    path = tmp_path / "bin" / "vivado"
    for change in ({"clock_mhz": 400}, {"target": TARGETS["u55c"]}, {}):
        if not change:
            path.write_text(path.read_text().replace("v2023.1", "v2024.2"))
        assert implement([module], **{"target": VU9P, "clock_mhz": 500} | change) == [REPORTED]
    assert installed.read_text().count("batch") == 4
    with pytest.raises(ValueError, match="door has constant inputs"):
        implement([Unit("", "door", {"en": 1})], VU9P, clock_mhz=500)


def test_synth_saves_log_of_failed_vivado(tmp_path, installed):
    code, out, err = synthesised("mul", "e2m1fn", "--flow", "vivado", "--dsp")
    (log,) = (tmp_path / "build" / "logs").iterdir()
    said = [*map(str, range(1, 21)), "ERROR: [Synth 8-1] no room"]
    assert log.read_text().splitlines() == said
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        "halfulp: Vivado on mul_e2m1fn_e2m1fn_e2m1fn_rn_dsp failed with exit code 1: ERROR: [Synth 8-1] no room; the "
        f"end of {log}:",
        *(f"  {line}" for line in said[-12:]),
    ]
    assert list((tmp_path / "build" / "runs").iterdir()) == []


def test_implement_rejects_vivado_without_version(tmp_path, installed):
    path = tmp_path / "bin" / "vivado"
    path.write_text("#!/bin/sh\nexit 2\n")
    with pytest.raises(ToolError, match="no version"):
        implement([module_of(MUL)], VU9P, clock_mhz=500)


def test_synth_reports_missing_vivado(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = synthesised("mul", "e2m1fn", "--flow", "vivado")
    assert (code, out) == (3, "")
    assert "no vivado on PATH" in err


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ("vivado --route --target ecp5-85k", "--route"),
        ("vivado --target ecp5-85k", "not support ecp5-85k"),
        ("vivado --clock 0 --pipeline 0", "out of range"),
        ("yosys --clock 100 --pipeline 2", "pipeline"),
        ("yosys --clock 100 --explore 0..2 --target ecp5-85k", "--clock"),
        ("yosys --scheduler here", "scheduler"),
    ],
)
def test_synth_rejects_bad_requests(words, keyword):
    answer = CliRunner().invoke(synth, ["mul", "e2m1fn", "--flow", *words.split()])
    assert answer.exit_code == 2
    assert keyword in answer.output


def test_emit_writes_whole_folder_or_none(tmp_path, monkeypatch):
    monkeypatch.setattr(vivado, "scripts", lambda *_, **__: {"flow.tcl": "", "flow.tcl/below": ""})
    with pytest.raises(ToolError, match="could not be written: File exists"):
        CliRunner().invoke(
            emit,
            ["mul", "e2m1fn", "--target", "vu9p", "--flow", "vivado", "-o", str(tmp_path / "out")],
            catch_exceptions=False,
        )
    assert list(tmp_path.iterdir()) == []
