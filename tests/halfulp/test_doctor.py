"""Check of the machine: it has a line for each extra, and missing packages and programs are named."""

import tomllib

import pytest
from click.testing import CliRunner

from halfulp import doctor
from halfulp.cli import cli
from halfulp.tools import extras
from tests.settings import ROOT


def test_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.extras().keys() == project.keys()
    assert extras.extras()["report"] == ("halfulp[golden]", "halfulp[tables]")
    assert set(extras.extras()["golden"]) == {"torch", "tabulate"}
    assert extras.packages("fpga") > extras.packages("sim") | extras.packages("golden")


def test_doctor_finds_what_is_here():
    run = CliRunner().invoke(cli, ["doctor"])
    assert run.exit_code == 0, run.output
    names = [line.split()[1] for line in run.output.splitlines()]
    shown = [name for name in extras.extras() if name not in ("docs", "dev")]
    assert names == ["halfulp", *shown, "verilator", *doctor.PROGRAMS, "build"]
    assert {"golden", "fpga", "report", "all"} <= {*shown}
    assert "torch 2" in run.output


def test_doctor_names_what_is_missing(monkeypatch, tmp_path):
    known = {**extras.extras(), "uvm": ("halfulp[sim]", "no-such-package"), "all": ("halfulp[sim]", "halfulp[uvm]")}
    for module in (doctor, extras):
        monkeypatch.setattr(module, "extras", lambda: known)
    monkeypatch.setenv("CXX", "no-such-compiler")
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("HALFULP_BUILD", str(file / "folder"))
    run = CliRunner().invoke(cli, ["doctor"])
    assert run.exit_code == 1
    lines = {line.split()[1]: line.split(maxsplit=2) for line in run.output.splitlines()}
    assert lines["sim"][0] == "ok"
    assert lines["uvm"] == ["absent", "uvm", "without no-such-package; run: pip install 'halfulp[uvm]'"]
    assert lines["all"] == ["absent", "all", "without uvm; run: pip install 'halfulp[all]'"]
    assert lines["c++"][0] == "needed"
    assert "no no-such-compiler" in lines["c++"][2]
    assert lines["build"][0] == "needed"


@pytest.mark.parametrize(("extra", "state"), [("sim", "needed"), ("no-such-package", "absent")])
def test_compiler_is_needed_by_the_extra_that_compiles(extra, state, monkeypatch):
    monkeypatch.setattr(doctor, "extras", lambda: {"sim": (extra,) if state == "absent" else ("torch",)})
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert {found.name: found.state for found in doctor.findings()}["c++"] == state
