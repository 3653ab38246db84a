"""`halfulp report peers`: modules of other projects, measured with the settings of this library."""

import pandas as pd
import pytest
from click.testing import CliRunner

from halfulp.cli import report
from halfulp.lab.bench import fpnew, peers
from tests.settings import ROOT

AND = "module both(input clk, input [3:0] a, input [3:0] b, output [3:0] o);\nassign o = a & b;\nendmodule\n"
"""Four gates, each a lookup table of one cell."""


def recorded():
    return pd.read_csv(ROOT / "fpga" / "results" / "peers.csv").astype({"stages": int})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "both.v"
    path.write_text(AND)
    return path


@pytest.mark.slow
def test_peer_is_measured(file, tmp_path):
    answer = CliRunner().invoke(report, ["peers", str(file), "--top", "both", "-o", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    (row,) = pd.read_csv(tmp_path / "peers.csv").to_dict("records")
    assert row == {"module": "both", "target": "vu9p", "LUT": 4, "FF": 0, "path": 1}


@pytest.mark.slow
def test_peer_is_placed_and_routed_between_registers(file, tmp_path):
    words = ["--target", "ecp5-85k", "--route", "--clock-port", "clk", "-o", str(tmp_path)]
    answer = CliRunner().invoke(report, ["peers", str(file), "--top", "both", *words])
    assert answer.exit_code == 0, answer.output
    (row,) = pd.read_csv(tmp_path / "peers.csv").to_dict("records")
    assert (row["LUT"], row["FF"]) == (4, 0)
    assert row["MHz"] > 100


def test_ports_of_peer_are_those_of_its_top_module():
    assert peers.ports(AND, "both") == {"clk": ("input", 1), "a": ("input", 4), "b": ("input", 4), "o": ("output", 4)}


def test_system_verilog_is_elaborated(tmp_path):
    """The module comes before its package, and its width is in an included file."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "width.svh").write_text("localparam int WIDTH = 5;\n")
    top = "module top(input pairs::pair_t a, output logic [4:0] o);\nassign o = a.first ^ a.second;\nendmodule\n"
    (tmp_path / "top.sv").write_text(top)
    pair = "typedef struct packed { logic [WIDTH-1:0] first, second; } pair_t;"
    (tmp_path / "pairs.sv").write_text(f'package pairs;\n`include "width.svh"\n{pair}\nendpackage\n')
    files = [tmp_path / "top.sv", tmp_path / "pairs.sv"]
    verilog = peers.read(files, "top", [tmp_path / "include"])
    assert peers.ports(verilog, "top") == {"a": ("input", 10), "o": ("output", 5)}
    with pytest.raises(peers.ToolError, match=r"width\.svh"):
        peers.read(files, "top")


@pytest.mark.parametrize(
    ("names", "top", "keyword"),
    [(("a.v",), "other", "has no module other"), (("a.v", "b.vhd"), "both", "one language")],
)
def test_report_peers_refuses_wrong_sources(names, top, keyword, tmp_path):
    for name in names:
        (tmp_path / name).write_text(AND)
    files = [str(tmp_path / name) for name in names]
    answer = CliRunner().invoke(report, ["peers", *files, "--top", top, "-o", str(tmp_path / "out")])
    assert answer.exit_code == 2
    assert keyword in answer.output


def test_report_peers_names_missing_converter(file, tmp_path, monkeypatch):
    monkeypatch.setattr(peers.shutil, "which", lambda program: None)
    with pytest.raises(peers.ToolError, match="ghdl is not installed"):
        peers.read([file.rename(tmp_path / "both.vhd")], "both")


@pytest.mark.sampled(len(fpnew.ROWS), 4)
@pytest.mark.parametrize("row", fpnew.ROWS, ids=lambda row: f"{row.module}-{row.target}")
def test_recorded_units_of_fpnew_are_measured(row):
    cost = row.measured()
    kept = recorded()
    (line,) = kept[
        (kept["unit"] == row.unit)
        & (kept["design"] == "FPnew")
        & (kept["target"] == row.target)
        & (kept["stages"] == row.stages)
    ].to_dict("records")
    assert (line["LUT"], line["FF"], line["path"]) == (cost.lut, cost.ff, cost.path)
    assert line["configuration"] == row.configuration
    # The record has six digits.
    assert f"{line['MHz']:g}" == f"{cost.fmax or float('nan'):g}"


def test_rows_of_fpnew_with_a_version_are_those_that_are_measured():
    kept = recorded()
    measured = kept[kept["command"] == fpnew.COMMAND]
    asked = [(row.unit, row.target, row.stages) for row in fpnew.ROWS]
    assert sorted(zip(measured["unit"], measured["target"], measured["stages"], strict=True)) == sorted(asked)


@pytest.mark.parametrize("words", [["--route"], ["--target", "ecp5-85k"], ["--clock-port", "clk"], ["--top", "both"]])
def test_report_peers_without_files_takes_no_options_of_files(words):
    answer = CliRunner().invoke(report, ["peers", *words])
    assert answer.exit_code == 2
    assert "FILE" in answer.output


def test_report_peers_names_the_package_with_fpnew(monkeypatch):
    monkeypatch.setattr(fpnew, "PACKAGE", "pythondata-cpu-none")
    with pytest.raises(peers.ToolError, match="pip install pythondata-cpu-none"):
        fpnew.sources()
