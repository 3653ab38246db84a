"""Cost of a component on a device: out-of-context synthesis by Yosys, cached by content."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from halfulp.boards.targets import FAMILIES, Family, Target
from halfulp.sim.build import generated, verilog
from halfulp.sim.implementation import Implementation
from halfulp.tools.cache import Entry
from halfulp.tools.digests import code, digest, version
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import Job, JobPool
from halfulp.tools.paths import machine_errors, scratch, work_root, write_whole
from halfulp.tools.processes import Command, run_all
from halfulp.tools.progress import Progress, silent


@dataclass(frozen=True)
class Cost:
    """Cells that Yosys makes of a component.

    Attributes
    ----------
    lut : int
        Lookup tables, each as one: LUT1 to LUT6, of which two small ones that would share the two outputs of a table on
        the device (LUT6_2) are two, an inverter that the device has no cell for is none, and neither are the tables
        that a bit passes on its way into a carry chain; LUT4 on ECP5, where the two tables of the adder in a CCU2C are
        not among them.
    luts : tuple of int
        How many of these use one input, two, and so on up to six.
    ff : int
        Flip-flops.
    carry : int
        CARRY8 (xcup), of which two CARRY4 make one; CARRY4 (xc7); CCU2C (ecp5), of two bits.
    mux : int
        Multiplexers behind tables: MUXF7, MUXF8 and MUXF9; PFUMX and L6MUX21 on ECP5.
    dsp : int
        DSP48; MULT18X18D on ECP5. None unless asked for.
    bram : int
        Block memories, of which two halves make one (RAMB18); DP16KD on ECP5.
    uram : int
        Large memories, which UltraScale+ has.
    memory : int
        Cells of tables used as memories or shift registers: SRL and distributed RAM, of one to eight tables each;
        TRELLIS_DPR16X4 on ECP5, of two and those that write.
    path : int
        Cells on the longest path between ports and flip-flops.
    fmax : float, optional
        Clock in MHz, between registers at all ports, after place and route; None where there was none. The registers
        are not counted above.
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
        """From how many cells there are of which type."""

        def count(pattern: str) -> int:
            return sum(number for cell, number in cells.items() if re.fullmatch(pattern, cell))

        luts = tuple(count(rf"(?={family.lut})LUT{inputs}") for inputs in range(1, 7))
        # Half a cell is not to be had.
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

    def shares(self, target: Target) -> dict[str, float]:
        """Share of each resource of a device, from 0 to 1 where it fits.

        Tables that a carry chain takes away, as on ECP5, count as tables.
        """
        return {
            "LUT": (self.lut + target.family.carry_takes * self.carry) / target.lut,
            "FF": self.ff / target.ff,
            "carry": self.carry / target.carry,
            "DSP": self.dsp / target.dsp,
            "BRAM": self.bram / target.bram,
            "URAM": self.uram / target.uram if target.uram else 0.0,
        }


@dataclass(frozen=True)
class Module:
    """A module to be synthesised, as Verilog.

    Parameters
    ----------
    verilog : str
        Text of it, and of what it is made of.
    top : str
        Its name.
    tied : mapping of str to int
        Inputs of one bit that are constant, and so may cost nothing.
    dsp : bool
        Multipliers may become DSP blocks.
    """

    verilog: str
    top: str
    tied: Mapping[str, int] = field(default_factory=dict)
    dsp: bool = False

    @property
    def ties(self) -> list[str]:
        """The constant inputs, as `halfulp.fpga.synth.yosys` takes them."""
        return [f"{port}=1'{value}" for port, value in sorted(self.tied.items())]


@dataclass(frozen=True)
class Program:
    """A program that makes something of modules, which is remembered.

    Parameters
    ----------
    what : str
        Error sentences begin with it and the name of the module.
    job : callable
        What it has to know beside the module, of whether that has DSP blocks; JSON.
    modules : tuple of str
        Modules of this folder that make the result.
    versions : callable
        Programs on which it depends, and in which versions they are there where this is called.
    argv : callable
        What is run, of a folder with ``design.v`` and ``job.json``; it may leave more files there.
    result : callable
        Makes the result, as JSON has it, of the folder.
    env : callable
        What its environment has beside ours.
    tail : int
        Where it fails, so many lines of its log are shown, and the log is kept.
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
        """The ``job.json`` of a module."""
        return json.dumps({"top": module.top, "ties": module.ties, **self.job(module.dsp)})

    def entry(self, module: Module) -> Entry:
        """Place of the result in the cache: by the Verilog, the job, the code that does it, and the tools."""
        own = code(*self.modules, imports=False)
        parts = (module.verilog, self.text(module), self.what, own, *self.versions().values())
        return Entry.of("synth", parts, module.top)

    def job_of(self, module: Module) -> Job:
        """The run on a module whose result is not known."""
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
    """Run a program on some files, in a folder that is deleted at its end."""
    with scratch("synthesis") as folder, machine_errors(f"the files of {name}"):
        for file, text in files.items():
            (folder / file).write_text(text)
        # Temporary files of a program that is ended go with its folder.
        environment = os.environ | env() | {"TMPDIR": str(folder)}
        log = folder / "tool.log"
        try:
            run_all([Command(name, argv(folder), log, cwd=folder, env=environment)])
            return result(folder)
        except ToolError as error:
            error.log = log.read_text(errors="replace") if log.is_file() else ""
            raise


def python(module: str, folder: Path) -> list[str]:
    """Command line of one of our programs, which knows its folder as its working folder."""
    return [sys.executable, "-m", module]


def versions(*distributions: str) -> dict[str, str]:
    """Those of Python packages."""
    return {name: version(name) for name in distributions}


def measure(
    component: Any,
    target: Target,
    *,
    name: str | None = None,
    tied: Mapping[str, int] | None = None,
    dsp: bool = False,
) -> Cost:
    """Cost of a component alone, without buffers at its ports.

    The recipe is ``synth_xilinx -flatten -noiopad -noclkbuf -nodsp`` or ``synth_ecp5 -nodsp``, as the family of the
    device has it. Yosys maps with ABC9 with and without ``-abc9``, so there is no better of the two to be
    taken.

    Parameters
    ----------
    component : wiring.Component
        Anything that has Verilog.
    target : Target
    name : str, optional
        Name of the top module; by default the component's ``name``.
    tied : mapping of str to int, optional
        Inputs of one bit that are constant around it.
    dsp : bool
        Multipliers may become DSP blocks.

    Returns
    -------
    Cost

    Raises
    ------
    ToolError
        If Yosys or the machine fails.
    """
    top = component.name if name is None else name
    (cost,) = measure_modules([Module(verilog(component, top), top, tied or {}, dsp)], target)
    return cost


def module_of(asked: Implementation, tied: Mapping[str, int] | None = None, *, registered: bool = False) -> Module:
    """Verilog of a unit, alone or between registers, from the cache if it was made before.

    Its multipliers may become DSP blocks where its products are meant for them.
    """
    unit = asked.component()
    top = f"{unit.name}_registered" if registered else unit.name

    def between_registers() -> str:
        from .registered import Registered

        return verilog(Registered(unit), top)

    if registered:
        text = generated(unit, "registered", between_registers, "halfulp.fpga.synth.registered")
    else:
        text = generated(unit, "verilog", partial(verilog, unit))
    return Module(text, top, tied=tied or {}, dsp=asked.build.dsp)


def measure_modules(
    modules: Iterable[Module],
    target: Target,
    progress: Progress = silent,
    pool: JobPool | None = None,
) -> list[Cost]:
    """Costs of several modules, of which those that are not known are synthesised side by side.

    Parameters
    ----------
    modules : iterable of Module
        Asked for the next one when there is a processor for it.
    target : Target
    progress : Progress
        Advances with each module that is done.
    pool : JobPool, optional
        Runs the synthesis; default: this machine.

    Raises
    ------
    ToolError
        If Yosys or the machine fails. What was found until then is kept.
    """
    program = Program(
        "Yosys on",
        target.family.job,
        modules=("halfulp.fpga.synth.yosys",),
        versions=partial(versions, "pyosys"),
        argv=partial(python, "halfulp.fpga.synth.yosys"),
        result=_result,
    )
    return [Cost.of(**cells, family=target.family) for cells in results(modules, program, progress, pool)]


def results(
    modules: Iterable[Module], program: Program, progress: Progress = silent, pool: JobPool | None = None
) -> list[Any]:
    """Results of a program for several modules; it runs side by side on those that are not known.

    Raises
    ------
    ToolError
        If the program or the machine fails. What was found until then is kept.
    """
    if pool is None:
        with JobPool() as pool:
            return results(modules, program, progress, pool)
    entries: list[Entry] = []
    found: dict[Entry, Any] = {}
    missing: dict[Job, Entry] = {}

    def jobs() -> Iterator[Job]:
        for module in modules:
            entry = program.entry(module)
            entries.append(entry)
            if entry not in found and entry not in missing.values():
                result = entry.value()
                if result is None:
                    job = program.job_of(module)
                    missing[job] = entry
                    yield job
                    continue
                found[entry] = result
            progress.advance(1)

    try:
        for job, result in pool.run(jobs(), versions=program.versions):
            missing[job].store(result)
            found[missing[job]] = result
            progress.advance(1)
    except ToolError as error:
        if not (program.tail and error.log):
            raise
        log = work_root() / "logs" / f"{digest(error.log)}.log"
        write_whole(log, error.log)
        tail = error.log.splitlines()[-program.tail :]
        raise ToolError("\n".join([f"{error}; the end of {log}:", *(f"  {line}" for line in tail)])) from error
    return [found[entry] for entry in entries]


def _result(folder: Path) -> dict[str, Any]:
    """Result of Yosys in a folder: cells by type, and the longest path, which without cells has a length of -1."""
    statistics = json.loads((folder / "cells.json").read_text())
    found = re.search(r"\(length=(-?\d+)\)", (folder / "path.txt").read_text())
    if found is None:
        raise ToolError("Yosys does not say how long the longest path is")
    return {"cells": statistics["design"]["num_cells_by_type"], "path": max(int(found[1]), 0)}
