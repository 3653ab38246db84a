"""Verilator: that of the system is taken if it is new enough, else that of the Python package."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halfulp import doctor
from halfulp.sim import toolchain
from halfulp.sim.toolchain import tools, verilator
from halfulp.tools.digests import NONE, version
from halfulp.tools.errors import ToolError

PACKAGE = version("verilator")

System = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    verilator.cache_clear()
    yield
    verilator.cache_clear()


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    """Return a function that puts a program on PATH that answers as Verilator of a version."""

    def installed(number: str, ending: str = "") -> Path:
        (tmp_path / "include").mkdir(exist_ok=True)
        (tmp_path / "include" / "verilated.h").touch()
        program = tmp_path / f"verilator{ending}"
        answers = f'case "$1" in --version) echo "Verilator {number} 2025-04-27";; --getenv) echo "{tmp_path}";; esac'
        program.write_text(f"#!/bin/sh\n{answers}\n")
        program.chmod(0o755)
        return program

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return installed


@pytest.mark.parametrize("number", ["5.036", "5.048", "6.002"])
def test_new_verilator_of_the_system_is_taken(system: System, number: str, tmp_path: Path) -> None:
    program = system(number)
    assert verilator() == (program, tmp_path, f"Verilator {number} 2025-04-27", {})
    assert f"verilator Verilator {number} 2025-04-27 cocotb " in tools()
    assert toolchain.verilate([], "top", tmp_path / "cpp").argv[0] == str(program)
    found = {line.name: line for line in doctor.findings()}
    assert found["verilator"] == ("verilator", f"Verilator {number} 2025-04-27, {program}", "ok")


@pytest.mark.parametrize("number", ["5.006", "4.228", "devel"])
def test_old_verilator_of_the_system_is_not_taken(system: System, number: str) -> None:
    program = system(number)
    tool = verilator()
    assert (tool.version, tool.program.name) == (PACKAGE, "verilator_bin")
    assert tool.environment == {"VERILATOR_ROOT": str(tool.root)}
    assert program != tool.program


def test_program_of_the_package_does_not_find_itself(system: System) -> None:
    own = system("5.048", "-cli")
    own.with_name("verilator").symlink_to(own)
    assert verilator().version == PACKAGE


@pytest.mark.parametrize(
    ("number", "reason"),
    [(None, " was not found; install"), ("5.006", " was not found, because {} is Verilator 5.006 2025-04-27; install")],
)
def test_missing_verilator_names_both_ways(
    system: System, number: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = system(number) if number else ""
    monkeypatch.setattr(toolchain, "version", lambda name: NONE)
    with pytest.raises(ToolError) as error:
        verilator()
    assert str(error.value).startswith(f"Verilator 5.036 or newer{reason.format(program)} it so that it is on PATH")
    assert "apt install verilator" in str(error.value)
    assert str(error.value).endswith("run: pip install 'halfulp[sim]' (not on arm64 Linux)")


def test_extra_is_there_with_a_verilator_of_the_system(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> dict[str, tuple[str, str]]:
        verilator.cache_clear()
        return {line.name: (line.state, line.text) for line in doctor.findings()}

    for module in (doctor, toolchain):
        monkeypatch.setattr(module, "version", lambda name: NONE if name == "verilator" else version(name))
    assert found()["sim"][0] == "absent"
    assert found()["verilator"][0] == "absent"
    system("5.040")
    assert found()["sim"][0] == found()["verilator"][0] == "ok"
    assert "none" not in found()["sim"][1]
