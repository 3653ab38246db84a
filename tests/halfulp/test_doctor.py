"""Check of the machine: its extras are those of the project, and missing programs are named."""

import tomllib

from click.testing import CliRunner

from halfulp import doctor
from halfulp.cli import cli
from tests.settings import ROOT


def test_extras_are_those_of_the_project():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    with_packages = {name for name, lines in extras.items() if any(not line.startswith("halfulp") for line in lines)}
    assert doctor.EXTRAS.keys() == with_packages - {"docs", "dev"}
    for extra, packages in doctor.EXTRAS.items():
        own = {line.split(">")[0].split("=")[0] for line in extras[extra] if not line.startswith("halfulp")}
        assert set(packages) <= own | {"distributed"}
        assert own <= {*packages, "distributed"}


def test_doctor_finds_what_is_here():
    run = CliRunner().invoke(cli, ["doctor"])
    assert run.exit_code == 0, run.output
    names = [line.split()[1] for line in run.output.splitlines()]
    assert names == ["halfulp", *doctor.EXTRAS, *doctor.PROGRAMS, "build"]
    assert "torch 2" in run.output


def test_doctor_names_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "EXTRAS", {**doctor.EXTRAS, "uvm": ("no-such-package",)})
    monkeypatch.setenv("CXX", "no-such-compiler")
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("HALFULP_BUILD", str(file / "folder"))
    run = CliRunner().invoke(cli, ["doctor"])
    assert run.exit_code == 1
    lines = {line.split()[1]: line for line in run.output.splitlines()}
    assert lines["uvm"].startswith("ok")
    assert "without no-such-package; run: pip install 'halfulp[uvm]'" in lines["uvm"]
    assert lines["c++"].startswith("needed")
    assert "no no-such-compiler" in lines["c++"]
    assert lines["build"].startswith("needed")
