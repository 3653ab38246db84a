"""Running the cocotb tests on a built model."""

import contextlib
import json
import os
import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from cocotb_tools import config

from halfulp.tools.errors import ToolError
from halfulp.tools.paths import machine_errors
from halfulp.tools.processes import Command, failure, start, stop, uninterrupted

from .harness import TOP
from .ports import Codes, Ports

LOG = "simulator.log"
"""What the simulator and the tests in it say, in the folder of their files."""

Tests = Mapping[str, tuple[Mapping[str, Codes], Mapping[str, Codes]]]


@dataclass(frozen=True)
class Outcome:
    """What one cocotb test found.

    Attributes
    ----------
    test : str
        ``plain``, ``chain`` or ``stream``.
    checked, failed : int
        Results compared, and failures of any kind.
    failures : list of dict
        The first of them: ``kind``, ``text``, ``index`` of the vector or None, ``got`` as hexadecimal text.
    cycles : dict of str to array
        For each side the two signals of its handshake in every clock cycle: of ``plain`` clock enable and valid, of
        ``input`` and ``output`` valid and ready.
    """

    test: str
    checked: int
    failed: int
    failures: list[dict[str, Any]]
    cycles: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)


@dataclass(frozen=True)
class Interface:
    """What the tests have to know of a unit.

    Attributes
    ----------
    inputs, outputs : Ports
    latency : int
    clocked : bool
        Whether there are registers.
    bubbles : bool
        Whether there may be cycles without operands.
    holds : bool
        Whether the result stays what it was in such a cycle.
    """

    inputs: Ports
    outputs: Ports
    latency: int
    clocked: bool
    bubbles: bool
    holds: bool


class Simulation:
    """A simulator at work on cocotb tests, beside whatever this process does meanwhile.

    Parameters
    ----------
    model : Path
        Executable of `build.models`.
    interface : Interface
    tests : mapping
        For each test its vectors and the expected results, by port.
    folder : Path
        Where the tests' files go.
    seed : int
        Of stalls, gaps and noise.
    wave : Path, optional
        Where the waveform goes; the model must be one with a trace.

    Raises
    ------
    ToolError
        If the simulator does not start, or the disk is full.
    """

    def __init__(
        self, model: Path, interface: Interface, tests: Tests, folder: Path, *, seed: int, wave: Path | None = None
    ) -> None:
        self._tests, self._folder = list(tests), folder
        self._reader, writer = os.pipe()
        self._process = None
        try:
            with machine_errors("the vectors of the simulation"):
                _write_job(folder, interface, tests, seed, writer)
            trace = ["--trace", "--trace-file", str(wave)] if wave else []
            argv = [str(model), *trace]
            self._command = Command("the simulator", argv, folder / LOG, folder, _environment(folder, tests))
            with uninterrupted():
                self._process = start(self._command, pass_fds=(writer,))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(writer)

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulator if it still runs."""
        if self._process is not None:
            stop(self._process)
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1

    def finish(self, progress: Callable[[int], None] = lambda count: None) -> list[Outcome]:
        """Wait for the end and read what the tests found.

        Parameters
        ----------
        progress
            Called with the number of results checked since the last call.

        Raises
        ------
        ToolError
            If the simulator failed, or did not run every test.
        """
        assert self._process is not None
        _follow(self._reader, progress)
        return _outcomes(self._folder, self._tests, self._command, self._process.wait())


def run_module(
    model: Path,
    top: str,
    module: str,
    tests: Sequence[str],
    folder: Path,
    *,
    wave: Path | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, str]:
    """Run the cocotb tests of a module.

    Parameters
    ----------
    model : Path
        Executable of `build.models`.
    top : str
        Module of the Verilog.
    module : str
        Python module with the tests, which finds ``folder`` in the environment as HALFULP_JOB.
    tests : sequence of str
    folder : Path
        Working folder of the simulator.
    wave : Path, optional
        Where the waveform goes; the model must be one with a trace.
    progress : callable
        Called with the numbers that a test passes to `tell`.

    Returns
    -------
    dict of str to str
        For each test why it failed, or nothing.

    Raises
    ------
    ToolError
        If the simulator does not start, or did not run every test.
    """
    reader, writer = os.pipe()
    command = Command(
        "the simulator",
        [str(model), *(["--trace", "--trace-file", str(wave)] if wave else [])],
        folder / LOG,
        folder,
        _environment(folder, tests, top=top, module=module) | {"HALFULP_PROGRESS": str(writer)},
    )
    process = None
    try:
        try:
            with uninterrupted():
                process = start(command, pass_fds=(writer,))
        finally:
            os.close(writer)
        _follow(reader, progress)
        code = process.wait()
    finally:
        os.close(reader)
        if process is not None:
            stop(process)
    found: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError, ElementTree.ParseError):
        for case in ElementTree.parse(folder / "cocotb.xml").iter("testcase"):
            wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
            found[str(case.get("name")).rpartition(".")[2]] = "" if wrong is None else _reason(wrong)
    if sorted(found) != sorted(tests):
        raise ToolError(
            f"cocotb ran {', '.join(found) or 'no test'} where {', '.join(tests)} were asked for; "
            f"{failure(command, code)} (whole log: {command.log})"
        )
    return found


def tell(count: int) -> None:
    """Tell the process that runs the test, from within it, that ``count`` more are through."""
    os.write(int(os.environ["HALFULP_PROGRESS"]), b"%d\n" % count)


def _reason(wrong: ElementTree.Element) -> str:
    return str(wrong.get("error_msg") or wrong.get("message") or wrong.text or "it failed")


def _write_job(folder: Path, interface: Interface, tests: Tests, seed: int, writer: int) -> None:
    for test, (vectors, expected) in tests.items():
        np.save(folder / f"{test}-inputs.npy", _table(vectors, interface.inputs))
        np.save(folder / f"{test}-outputs.npy", _table(expected, interface.outputs))
    known = {
        "latency": interface.latency,
        "clocked": interface.clocked,
        "bubbles": interface.bubbles,
        "holds": interface.holds,
        "seed": seed,
        "inputs": [port.width for port in interface.inputs],
        "outputs": [port.width for port in interface.outputs],
        "progress": writer,
    }
    (folder / "job.json").write_text(json.dumps(known))


def _table(codes: Mapping[str, Codes], ports: Ports) -> Codes:
    return np.stack([codes[port.name].astype(np.uint64) for port in ports], axis=1)


def _environment(
    folder: Path, tests: Iterable[str], *, top: str = TOP, module: str = "halfulp.sim.protocol"
) -> dict[str, str]:
    import find_libpython

    users = [os.environ.get("LIBPYTHON_LOC") or find_libpython.find_libpython(), config.pygpi_entry_point()]
    if users[0] is None:
        raise ToolError("cocotb needs the shared library of Python (libpython), and this Python has none")
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
        # cocotb would have pytest compile every module anew, for asserts that tell more: ten seconds of torch alone.
        "COCOTB_REWRITE_ASSERTION_FILES": "",
        "HALFULP_JOB": str(folder),
    }


def _follow(reader: int, progress: Callable[[int], None]) -> None:
    """Pass progress on until the simulator closes its end."""
    rest = b""
    while True:
        select.select([reader], [], [])
        block = os.read(reader, 4096)
        if not block:
            return
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            progress(sum(map(int, lines)))


def _outcomes(folder: Path, tests: list[str], command: Command, code: int) -> list[Outcome]:
    """Read the results. A simulator exits 0 when tests fail and when none is found, so its word is not enough."""
    ran = []
    with contextlib.suppress(FileNotFoundError, ElementTree.ParseError):
        ran = [case.get("name") for case in ElementTree.parse(folder / "cocotb.xml").iter("testcase")]
    outcomes = []
    for test in tests:
        try:
            known = json.loads((folder / f"{test}-outcome.json").read_text())
            files = {side: folder / f"{test}-{side}-cycles.npy" for side in ("plain", "input", "output")}
            cycles = {side: np.load(file) for side, file in files.items() if file.is_file()}
            outcomes.append(Outcome(**known, cycles=cycles))
        except (FileNotFoundError, json.JSONDecodeError) as error:
            raise ToolError(
                f"the cocotb test {test} came to no result; {failure(command, code)} (whole log: {command.log})"
            ) from error
    if sorted(str(name).rpartition(".")[2] for name in ran) != sorted(tests):
        raise ToolError(
            f"cocotb ran {ran or 'no test'} where {', '.join(tests)} were asked for; {failure(command, code)}"
        )
    return outcomes
