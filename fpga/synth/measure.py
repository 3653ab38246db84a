"""Cost of a component on a device: out-of-context synthesis by Yosys, cached by content."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from halfulp.boards.targets import FAMILIES, Family, Target, target_of
from halfulp.implementation import Implementation
from halfulp.sim.build import generated, verilog
from halfulp.tools.cache import Entry
from halfulp.tools.digests import code, digest, version
from halfulp.tools.errors import ToolError
from halfulp.tools.instances import INSTANCE
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.paths import machine_errors, scratch, work_root, write_whole
from halfulp.tools.processes import Command, run_all
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import versions

from .memories import YOSYS


@dataclass(frozen=True)
class Cost:
    """Cells of a synthesised component.

    Attributes
    ----------
    lut : int
        Lookup tables. On AMD devices LUT1 to LUT6: two small tables that could share a LUT6_2 count as two; inverters,
        and tables that only feed a bit to a carry chain, are not counted. On ECP5 LUT4: the two tables of the adder in
        a CCU2C are not counted.
    luts : tuple of int
        Lookup tables by number of inputs, one to six.
    ff : int
        Flip-flops.
    carry : int
        CARRY8 (xcup; two CARRY4 count as one), CARRY4 (xc7), or CCU2C of two bits (ecp5).
    mux : int
        Wide multiplexers: MUXF7, MUXF8 and MUXF9; PFUMX and L6MUX21 on ECP5.
    dsp : int
        DSP48; MULT18X18D on ECP5. 0 for a module without ``dsp``.
    bram : int
        Block memories (two RAMB18 count as one); DP16KD on ECP5.
    uram : int
        UltraRAM blocks, on UltraScale+ only.
    memory : int
        Cells of distributed RAM or shift registers (SRL), of one to eight tables each. TRELLIS_DPR16X4 on ECP5, of two
        tables for data and those of the write port.
    path : int
        Cells on the longest path between ports and flip-flops.
    fmax : float, optional
        Clock in MHz between registers at all ports, after place and route; None without place and route. These
        registers are not counted above.
    """

    lut: int
    luts: tuple[int, ...]
    ff: int
    carry: int
    mux: int
    dsp: int
    bram: int
    uram: int
    memory: int
    path: int
    fmax: float | None = None

    @classmethod
    def of(cls, cells: Mapping[str, int], path: int, family: Family = FAMILIES["xcup"]) -> "Cost":
        """Return the cost for cell counts by type."""

        def count(pattern: str) -> int:
            return sum(number for cell, number in cells.items() if re.fullmatch(pattern, cell))

        luts = tuple(count(rf"(?={family.lut})LUT{inputs}") for inputs in range(1, 7))
        # An odd half of a cell occupies a whole one.
        return cls(
            lut=sum(luts),
            luts=luts,
            ff=count(family.ff),
            carry=count(family.carry) + -(-count(family.half_carry) // 2),
            mux=count(family.mux),
            dsp=count(family.dsp),
            bram=count(family.bram) + -(-count(family.half_bram) // 2),
            uram=count(family.uram),
            memory=count(family.memory),
            path=path,
        )

    def counts(self) -> dict[str, object]:
        """Return the cell counts as cells of a table."""
        kinds = {"LUT": "lut", "FF": "ff", "carry": "carry", "mux": "mux", "DSP": "dsp", "BRAM": "bram", "URAM": "uram"}
        return {column: getattr(self, kind) for column, kind in kinds.items()}

    @staticmethod
    def origin(target: Target, of: str = "each unit alone") -> str:
        """Return a note on the origin of costs, without a full stop."""
        return f"Yosys {version('pyosys')}, {target.family.recipe}, {of}, before place and route"

    def lut_with_carry(self, target: Target) -> int:
        """Return the number of lookup tables, with those that are part of a carry chain, as on ECP5."""
        return self.lut + target.family.carry_takes * self.carry

    def shares(self, target: Target) -> dict[str, float]:
        """Return the used fraction of each resource of a device."""
        return {
            "LUT": self.lut_with_carry(target) / target.lut,
            "FF": self.ff / target.ff,
            "carry": self.carry / target.carry,
            "DSP": self.dsp / target.dsp,
            "BRAM": self.bram / target.bram,
            "URAM": self.uram / target.uram if target.uram else 0.0,
        }


@dataclass(frozen=True)
class Module:
    """Verilog of a module for synthesis.

    Parameters
    ----------
    verilog : str
        Text of the module and its submodules.
    top : str
        Name of the module.
    tied : mapping of str to int
        Constant inputs of one bit.
    dsp : bool
        Multipliers may become DSP blocks.
    keep : tuple of str
        Modules that are synthesised once and counted for each instance; see `halfulp.fpga.synth.yosys.FpgaSynthesis`.
    mhz : float, optional
        Target clock of place and route.
    seeds : int
        Number of seeds of place and route, whose median clock is the result; each changes the clock by some percent.
    slices : int
        Registers that `halfulp.fpga.synth.slices` adds on each path of the netlist before place and route.
    stimulus : str
        Codes of inputs for `halfulp.fpga.synth.power`, as JSON.
    """

    verilog: str
    top: str
    tied: Mapping[str, int] = field(default_factory=dict)
    dsp: bool = False
    keep: tuple[str, ...] = ()
    mhz: float | None = None
    seeds: int = 1
    slices: int = 0
    stimulus: str = ""

    @classmethod
    def of(cls, component: Any, name: str | None = None, tied: Mapping[str, int] | None = None) -> "Module":
        """Emit the Verilog of a component; ``name`` is by default that of the component."""
        top = component.name if name is None else name
        return cls(verilog(component, top, netlist=True), top, tied or {})

    @classmethod
    def of_array(cls, component: Any) -> "Module":
        """Emit the Verilog of a component, and synthesise each module with several instances once.

        These instances have the default values of parameters, which are seeds and positions and do not change the cost.
        """
        text = verilog(component, component.name, netlist=True)
        instances = Counter(match[1] for match in INSTANCE.finditer(text))
        keep = tuple(module for module, count in instances.items() if count > 1)

        def without_values(match: re.Match[str]) -> str:
            return match[0].replace(f"#({match[2]}) ", "", 1) if match[1] in keep else match[0]

        return cls(INSTANCE.sub(without_values, text), component.name, keep=keep)

    @property
    def ties(self) -> list[str]:
        """Constant inputs in the form of `halfulp.fpga.synth.yosys.FpgaSynthesis`."""
        return [f"{port}=1'{value}" for port, value in sorted(self.tied.items())]


@dataclass(frozen=True)
class Program:
    """External program whose results for modules are cached.

    Parameters
    ----------
    what : str
        Beginning of error messages, before the name of the module.
    job : callable
        Returns the settings in ``job.json`` for a module with or without DSP blocks.
    modules : tuple of str
        Python modules that compute the result; their code is part of the cache key.
    versions : callable
        Returns the versions of the programs that the result depends on, on the machine that calls it.
    argv : callable
        Returns the command line for a folder with ``design.v`` and ``job.json``; it may write more files there.
    result : callable
        Reads the result from the folder, as a JSON value.
    env : callable
        Returns additional environment variables.
    tail : int
        Lines of the log in the error of a failed run; 0 discards the log.
    """

    what: str
    job: Callable[[bool], Mapping[str, Any]]
    modules: tuple[str, ...]
    versions: Callable[[], Mapping[str, str]]
    argv: Callable[[Path], Sequence[str]]
    result: Callable[[Path], Any]
    env: Callable[[], Mapping[str, str]] = dict
    tail: int = 0

    def text(self, module: Module) -> str:
        """Return the content of ``job.json`` for a module."""
        # Only fields that differ from their defaults are in the keys of the cache.
        options = {"keep": (), "mhz": None, "seeds": 1, "slices": 0, "stimulus": ""}
        more = {name: getattr(module, name) for name, usual in options.items() if getattr(module, name) != usual}
        return json.dumps({"top": module.top, "ties": module.ties, **self.job(module.dsp), **more})

    def entry(self, module: Module) -> Entry:
        """Return the cache entry of a result; its key has the Verilog, the job, our code and the tools."""
        own = code(*self.modules, imports=False)
        parts = (module.verilog, self.text(module), self.what, own, *self.versions().values())
        return Entry.of("synth", parts, module.top)

    def job_of(self, module: Module) -> Job:
        """Return the job that runs the program on a module."""
        name = f"{self.what} {module.top}"
        files = {"design.v": module.verilog, "job.json": self.text(module)}
        return Job(name, _run, (name, files, self.argv, self.env, self.result))


def _run(
    name: str,
    files: Mapping[str, str],
    argv: Callable[[Path], Sequence[str]],
    env: Callable[[], Mapping[str, str]],
    result: Callable[[Path], Any],
) -> Any:
    """Run a program on files in a temporary folder."""
    with scratch("synthesis") as folder, machine_errors(f"the files of {name}"):
        for file, text in files.items():
            (folder / file).write_text(text)
        # Temporary files of a killed program are deleted with the folder.
        environment = os.environ | env() | {"TMPDIR": str(folder)}
        log = folder / "tool.log"
        try:
            run_all([Command(name, argv(folder), log, cwd=folder, env=environment)])
            return result(folder)
        except ToolError as error:
            error.log = log.read_text(errors="replace") if log.is_file() else ""
            raise


def python(module: str, folder: Path) -> list[str]:
    """Return the command line of a Python module, with the interpreter of the machine that runs it."""
    return [sys.executable, "-m", module]


def module_of(asked: Implementation, tied: Mapping[str, int] | None = None, *, registered: bool = False) -> Module:
    """Return the Verilog of a unit, alone or between registers, from the cache."""
    unit = asked.component()
    top = f"{unit.name}_registered" if registered else unit.name

    def between_registers() -> str:
        from .registered import Registered

        return verilog(Registered(unit), top, netlist=True)

    if registered:
        text = generated(unit, "registered", between_registers, "halfulp.fpga.synth.registered")
    else:
        text = generated(unit, "netlist", partial(verilog, unit, netlist=True))
    return Module(text, top, tied=tied or {}, dsp=asked.build.dsp)


def yosys_job(target: Target, dsp: bool) -> dict[str, Any]:
    """Return the settings of a synthesis, with a netlist if the device can be placed and routed."""
    return {**target.family.job(dsp), **({"netlist": True} if target.nextpnr else {})}


def measure_modules(
    modules: Iterable[Module], target: Target | str, progress: Progress = silent, pool: JobPool = LOCAL
) -> list[Cost]:
    """Measure the costs of modules, each alone on the device; uncached ones are synthesised in parallel.

    Finished results are cached even if one module fails with ToolError.

    Parameters
    ----------
    modules : iterable of Module
        Consumed as processors become free.
    target : Target or str
    progress : Progress
        Advances with each module.
    pool : JobPool
        Runs the synthesis.
    """
    target = target_of(target)
    program = Program(
        "Yosys on",
        partial(yosys_job, target),
        modules=YOSYS,
        versions=partial(versions, "pyosys"),
        argv=partial(python, "halfulp.fpga.synth.yosys"),
        result=_result,
    )
    return [Cost.of(**cells, family=target.family) for cells in results(modules, program, progress, pool)]


def results(
    modules: Iterable[Module], program: Program, progress: Progress = silent, pool: JobPool = LOCAL
) -> list[Any]:
    """Return the results of a program for modules; `measure_modules` is an example."""
    entries: list[Entry] = []

    def jobs() -> Iterator[tuple[Entry, Job]]:
        for module in modules:
            entries.append(program.entry(module))
            yield entries[-1], program.job_of(module)

    try:
        measured = pool.results(jobs(), progress, versions=program.versions)
    except ToolError as error:
        if not (program.tail and error.log):
            raise
        log = work_root() / "logs" / f"{digest(error.log)}.log"
        write_whole(log, error.log)
        tail = error.log.splitlines()[-program.tail :]
        raise ToolError("\n".join([f"{error}; the end of {log}:", *(f"  {line}" for line in tail)])) from error
    return [measured[entry] for entry in entries]


def _result(folder: Path) -> dict[str, Any]:
    """Read cell counts by type and the longest path, which Yosys reports as -1 without cells."""
    statistics = json.loads((folder / "cells.json").read_text())
    lengths = re.findall(r"\(length=(-?\d+)\)", (folder / "path.txt").read_text())
    if not lengths:
        raise ToolError("the output of Yosys lacks the length of the longest path")
    return {"cells": statistics["design"]["num_cells_by_type"], "path": max(0, *map(int, lengths))}
