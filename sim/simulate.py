"""Simulator processes that run cocotb tests on a built model."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from cocotb_tools import config

from halfulp.tools.errors import ToolError
from halfulp.tools.paths import machine_errors
from halfulp.tools.processes import Command, failure, start, stop, uninterrupted

from .harness import TOP
from .ports import Columns, Ports

if TYPE_CHECKING:
    from halfulp.units import Unit

LOG = "simulator.log"
"""Log of the simulator and its tests, in the working folder."""

Tests = Mapping[str, tuple[Columns, Columns]]
"""Vectors and reference results of each test, by port."""


class Simulation:
    """Simulator process that runs the cocotb tests of a module.

    Parameters
    ----------
    model : Path
        Executable from `build.models`.
    top : str
        Top module of the Verilog.
    module : str
        Python module with the tests; the environment variable HALFULP_JOB is ``folder``.
    tests : iterable of str
    folder : Path
        Working folder of the simulator.
    wave : Path, optional
        File of the waveform, for a model of kind ``wave``.

    Raises
    ------
    ToolError
        If the simulator does not start.
    """

    def __init__(
        self, model: Path, top: str, module: str, tests: Iterable[str], folder: Path, *, wave: Path | None = None
    ) -> None:
        self._tests, self._folder, self._process = list(tests), folder, None
        reader, writer = os.pipe()
        self._progress = os.fdopen(reader)
        try:
            argv = [str(model), *(["--trace", "--trace-file", str(wave)] if wave else [])]
            environment = _environment(folder, self._tests, top, module) | {"HALFULP_PROGRESS": str(writer)}
            self._command = Command("the simulator", argv, folder / LOG, folder, environment)
            with uninterrupted():
                self._process = start(self._command, pass_fds=(writer,))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the simulator if it still runs."""
        if self._process is not None:
            stop(self._process)
        self._progress.close()

    def finish(self, progress: Callable[[int], None] = lambda count: None) -> dict[str, str]:
        """Wait for the end; return the error of each test, or an empty text.

        The exit code is 0 even if tests fail or none is found, so the results are read from a file.

        Parameters
        ----------
        progress : callable
            Called with the arguments of `protocol.report_progress`.

        Raises
        ------
        ToolError
            If not every test has run.
        """
        assert self._process is not None
        for line in self._progress:
            progress(int(line))
        code = self._process.wait()
        found: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError, ElementTree.ParseError):
            for case in ElementTree.parse(self._folder / "cocotb.xml").iter("testcase"):
                wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
                found[str(case.get("name")).rpartition(".")[2]] = "" if wrong is None else _reason(wrong)
        if sorted(found) != sorted(self._tests):
            raise ToolError(
                f"cocotb ran {', '.join(found) or 'no test'} instead of {', '.join(self._tests)}; "
                f"{failure(self._command, code)} (whole log: {self._command.log})"
            )
        return found


@dataclass(frozen=True)
class Outcome:
    """Outcome of a test of `protocol`.

    Attributes
    ----------
    test : str
        ``plain``, ``chain`` or ``stream``.
    checked, failed : int
        Numbers of compared results and of failures.
    failures : list of dict
        First failures: fields of `Fault`.
    cycles : dict
        Levels of the handshake signals of each side by name, in every clock cycle: ``en`` and ``valid`` of ``plain``,
        ``valid`` and ``ready`` of ``input`` and ``output``.
    """

    test: str
    checked: int
    failed: int
    failures: list[dict[str, Any]]
    cycles: dict[str, dict[str, npt.NDArray[np.uint8]]] = field(default_factory=dict)


class UnitSimulation(Simulation):
    """Simulator process that runs the tests of `protocol` on a unit.

    Parameters
    ----------
    model, folder, wave
        Parameters of `Simulation`.
    unit : Unit
    tests : mapping
    seed : int
        Seed of stalls, gaps and noise.

    Raises
    ------
    ToolError
        If the simulator does not start, or the disk is full.
    """

    def __init__(
        self, model: Path, unit: "Unit", tests: Tests, folder: Path, *, seed: int, wave: Path | None = None
    ) -> None:
        inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
        known = {
            "latency": unit.latency,
            "initiation": unit.initiation,
            "clocked": unit.clocked,
            "bubbles": unit.has_valid,
            "holds": unit.stateful,
            "seed": seed,
            "inputs": [port.width for port in inputs],
            "outputs": [port.width for port in outputs],
        }
        with machine_errors("the vectors of the simulation"):
            for test, sides in tests.items():
                for side, ports, codes in zip(("inputs", "outputs"), (inputs, outputs), sides, strict=True):
                    table = np.stack([codes[port.name].astype(np.uint64) for port in ports], axis=1)
                    np.save(folder / f"{test}-{side}.npy", table)
            (folder / "job.json").write_text(json.dumps(known))
        super().__init__(model, TOP, "halfulp.sim.protocol", tests, folder, wave=wave)

    def outcomes(self, progress: Callable[[int], None] = lambda count: None) -> list[Outcome]:
        """Wait for the end and return the outcomes; parameters and errors are those of `finish`."""
        found = []
        for test, reason in self.finish(progress).items():
            try:
                known = json.loads((self._folder / f"{test}-outcome.json").read_text())
            except (FileNotFoundError, json.JSONDecodeError) as error:
                log = self._command.log
                raise ToolError(f"the cocotb test {test} has no outcome: {reason} (whole log: {log})") from error
            files = {side: self._folder / f"{test}-{side}-cycles.npz" for side in ("plain", "input", "output")}
            cycles = {side: dict(np.load(file)) for side, file in files.items() if file.is_file()}
            found.append(Outcome(**known, cycles=cycles))
        return found


def _reason(wrong: ElementTree.Element) -> str:
    return str(wrong.get("error_msg") or wrong.get("message") or wrong.text or "no reason given")


def _environment(folder: Path, tests: Iterable[str], top: str, module: str) -> dict[str, str]:
    import find_libpython

    users = [os.environ.get("LIBPYTHON_LOC") or find_libpython.find_libpython(), config.pygpi_entry_point()]
    if users[0] is None:
        raise ToolError("cocotb needs a Python with the shared library libpython; this Python has none")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYGPI_PYTHON_BIN": sys.executable,
        "GPI_USERS": ";".join(map(str, users)),
        "COCOTB_TOPLEVEL": top,
        "TOPLEVEL_LANG": "verilog",
        "COCOTB_TEST_MODULES": module,
        "COCOTB_TEST_FILTER": f"({'|'.join(tests)})$",
        "COCOTB_RESULTS_FILE": str(folder / "cocotb.xml"),
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        "COCOTB_ANSI_OUTPUT": "0",
        # Otherwise pytest compiles every module again for its assertion messages, which takes ten seconds for torch.
        "COCOTB_REWRITE_ASSERTION_FILES": "",
        "HALFULP_JOB": str(folder),
    }
