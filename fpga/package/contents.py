"""Contents of a package: units with their ports, names and Verilog, and the files that templates make of them."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2

from halfulp.hdl.formats import Format, Saturation
from halfulp.hdl.formats.rounding import MODE_BITS, MODE_CODES, MODE_TEXT
from halfulp.hdl.specs.unit import FLAGS
from halfulp.implementation import Implementation
from halfulp.sim.build import verilog
from halfulp.sim.ports import MODE
from halfulp.sim.reference import row_of
from halfulp.sim.signals import agents
from halfulp.tools.digests import version
from halfulp.tools.progress import Progress, silent
from halfulp.units.keywords import KEYWORDS
from halfulp.units.meanings import control, meanings
from halfulp.units.verilog import ASYNC, HIGH, LOW, ROLES, SYNC, check_name, default_name, emit, verilog_ports

from .bindings import binding_files
from .models import UnitModel, bench_argument, model_files
from .modules import ASIC_CLOCK, module_files
from .netlists import Netlists, share
from .streams import PackagedStream, options_of
from .vectors import vectors

_VHDL_WORDS = """
abs access after alias all and architecture array assert attribute begin block body buffer bus case component
configuration constant disconnect downto else elsif end entity exit file for function generate generic group guarded if
impure in inertial inout is label library linkage literal loop map mod nand new next nor not null of on open or others
out package port postponed procedure process pure range record register reject rem report return rol ror select
severity shared signal sla sll sra srl subtype then to transport type unaffected units until use variable wait when
while with xnor xor
"""

VHDL_KEYWORDS = frozenset(_VHDL_WORDS.split())
"""Reserved words of VHDL-93."""

TYPED_INSTANCE = "unit"
"""Name of the unit in its typed wrapper."""

WAIVERS = Path(inspect.getfile(emit)).with_name("verilator.vlt")
"""Warnings of Verilator about emitted Verilog that do not apply."""

_WAIVERS = """\
// The package of types has codes and latencies that a design need not use.
lint_off -rule UNUSEDPARAM
"""

TEMPLATES = Path(__file__).parent / "templates"
"""Templates of Jinja, and files that are equal in all packages."""

SIGNALS = Path(inspect.getfile(agents)).parent
"""Python package of the cocotb test, which needs no other part of the library."""

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    undefined=jinja2.StrictUndefined,
    autoescape=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class Controls:
    """Clock, reset and clock enable of all units of a package, as `halfulp.units.verilog.emit` takes them.

    Parameters
    ----------
    reset : str
    enable : str
    ports : mapping of str to str
    initial : bool
    """

    reset: str = SYNC
    enable: str = HIGH
    ports: Mapping[str, str] = field(default_factory=dict)
    initial: bool = True

    def of(self, present: Sequence[str]) -> dict[str, Any]:
        """Return the options for a unit with these ports, which may lack some of them."""
        options: dict[str, Any] = {"ports": {role: name for role, name in self.ports.items() if role in present}}
        if "rst" in present:
            options["reset"] = self.reset
        if "en" in present:
            options["enable"] = self.enable
        if "clk" in present:
            options["initial"] = self.initial
        return options

    def check(self, present: Sequence[str]) -> None:
        """Raise ValueError if an option has no effect on units with these ports."""
        for role in self.ports:
            if role not in ROLES:
                raise ValueError(f"unknown control port {role!r}; the control ports are {', '.join(ROLES)}")
        wanted = ["rst"] * (self.reset != SYNC) + ["en"] * (self.enable != HIGH)
        for role in (*wanted, *self.ports):
            if role not in present:
                raise ValueError(f"no unit of the package has the port {role}; omit its options")
        if not self.initial and "clk" not in present:
            raise ValueError("no unit of the package has registers; omit the option --no-initial")


_TYPES = {MODE: "rounding_t", "flags": "flags_t"}
"""Types of ports without a format in the typed wrapper."""


@dataclass(frozen=True)
class PackagedPort:
    """Port of a packaged unit.

    Attributes
    ----------
    name : str
    direction : str
        ``input`` or ``output``.
    width : int
    role : str
        ``clk``, ``rst``, ``en``, ``valid`` or ``ready``, or ``data``.
    fmt : Format or None
        Number format; None for plain bits.
    active_low : bool
        True for a reset or a clock enable that is active low.
    """

    name: str
    direction: str
    width: int
    role: str = "data"
    fmt: Format | None = None
    active_low: bool = False

    @property
    def range(self) -> str:
        """Range of a declaration in Verilog, with a blank behind it; empty for one bit."""
        return f"[{self.width - 1}:0] " if self.width > 1 else ""

    @property
    def is_bit(self) -> bool:
        """True for one bit that is no number."""
        return self.width == 1 and self.fmt is None

    @property
    def type(self) -> str:
        """Type of the port in the typed wrapper, with a blank behind it."""
        return f"{self.typedef} " if self.typedef else self.range

    @property
    def typedef(self) -> str:
        """Type of the package that the port has in the typed wrapper; empty for plain bits."""
        if self.fmt is not None:
            return type_name(self.fmt)
        return _TYPES.get(self.name, "")


def contents(unit: "PackagedUnit", port: PackagedPort) -> str:
    """Return the contents of a port in words."""
    if port.role != "data":
        return control(port.role, asynchronous=unit.async_reset, low=port.active_low)
    return str(port.fmt) if port.fmt is not None else meanings(unit.component).get(port.name) or "plain bits"


def type_name(fmt: Format) -> str:
    """Return the name of the SystemVerilog type of a format."""
    return f"{identifier(str(fmt))}_t"


def identifier(text: str) -> str:
    """Return a text as an identifier of SystemVerilog and C."""
    name = re.sub(r"\W", "_", text).strip("_")
    return name if name[:1].isalpha() else f"f{name}"


def vhdl_name(name: str) -> str:
    """Return a name of Verilog as an identifier of VHDL: an extended one if VHDL does not allow it as it is."""
    plain = re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", name) and name.lower() not in VHDL_KEYWORDS
    return name if plain else f"\\{name}\\"


def format_fields(fmt: Format) -> list[tuple[str, int, int]]:
    """Return name, lowest bit and width of the fields of a format, from the most significant one."""
    fields, low = [], 0
    for name, width in fmt.fields().items():
        if width:
            fields.append((f"{name}_part" if name in KEYWORDS else name, low, width))
        low += width
    return fields[::-1]


def codes_of(fmt: Format) -> dict[str, int]:
    """Return codes of a format that users need: zero, one, the largest number, infinity and NaN, if it has them."""
    codes = {"zero": fmt.encode(0)} if fmt.has_zero else {}
    if fmt.lowest <= 1 <= fmt.largest and fmt.decode(code := fmt.encode(1)) == 1:
        codes["one"] = code
    codes["largest"] = fmt.max_code
    if fmt.has_inf:
        codes["infinity"] = fmt.infinity(False)
    if fmt.has_nan:
        codes["nan"] = fmt.nan_code
    return codes


@dataclass(frozen=True)
class PackagedUnit:
    """Unit of a package.

    Attributes
    ----------
    component : Unit
    module : str
        Name of the Verilog module.
    ports : tuple of PackagedPort
        Ports in the order of the module.
    async_reset : bool
        The reset is asynchronous.
    initial : bool
        Registers have initial values.
    streams : mapping of str to int
        Parameters of its AXI4-Stream wrapper.
    """

    component: Any
    module: str
    ports: tuple[PackagedPort, ...]
    async_reset: bool
    initial: bool
    streams: Mapping[str, int]

    @property
    def text(self) -> str:
        """Text of the unit."""
        text: str = self.component.spec.text
        return text

    @property
    def command(self) -> str:
        """Text and options of the build, as arguments of a command."""
        return str(Implementation.of(self.component))

    @property
    def summary(self) -> str:
        """One-line summary of the computation."""
        summary: str = row_of(self.component).summary
        return summary

    @property
    def rounding(self) -> str:
        """Rounding mode."""
        return str(self.component.spec.rounding)

    @property
    def about_rounding(self) -> str:
        """Sentence about the rounding of results; empty for units that do not round."""
        spec = self.component.spec
        if not spec.ROUNDS:
            return ""
        replaced = {Saturation.OFF: "", Saturation.SAT: "overflows", Saturation.SATFINITE: "overflows and infinities"}
        largest = f", and {what} give the largest number" if (what := replaced[self.component.saturate]) else ""
        if spec.rounding.is_port:
            return f"The port `{MODE}` chooses the rounding of results{largest}."
        if spec.rounding.mode == "exact":
            return "Results are exact."
        random = f"at random, with {spec.rounding.bits} random bits"
        return f"Results are rounded {MODE_TEXT.get(spec.rounding.mode, random)}{largest}."

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result."""
        latency: int = self.component.latency
        return latency

    @property
    def initiation_interval(self) -> int:
        """Clock cycles from operands to the next operands."""
        interval: int = self.component.initiation
        return interval

    @property
    def stateful(self) -> bool:
        """True if results depend on earlier operands, or on the steps of a random source."""
        return bool(self.component.stateful or self.component.sources)

    def control(self, role: str) -> PackagedPort | None:
        """Return the port of a role, or None."""
        return next((port for port in self.ports if port.role == role), None)

    @property
    def inputs(self) -> list[PackagedPort]:
        """Operands, controls of the state and random words."""
        return [port for port in self.ports if port.role == "data" and port.direction == "input"]

    @property
    def outputs(self) -> list[PackagedPort]:
        """Results."""
        return [port for port in self.ports if port.role == "data" and port.direction == "output"]

    @property
    def formats(self) -> list[Format]:
        """Formats of the ports, each once."""
        return list(dict.fromkeys(port.fmt for port in self.ports if port.fmt is not None))

    @property
    def typedefs(self) -> list[str]:
        """Types of the ports in the typed wrapper, each once."""
        return list(dict.fromkeys(port.typedef for port in self.ports if port.typedef))

    @property
    def input_bits(self) -> int:
        """Bits of all inputs together."""
        return sum(port.width for port in self.inputs)

    @property
    def input_words(self) -> int:
        """Words of 32 bits that hold all inputs."""
        return -(-self.input_bits // 32)

    @property
    def output_bits(self) -> int:
        """Bits of all outputs together."""
        return sum(port.width for port in self.outputs)

    @property
    def output_digits(self) -> int:
        """Hexadecimal digits of all outputs together."""
        return -(-self.output_bits // 4)

    def low(self, port: PackagedPort) -> int:
        """Return the lowest bit of an input or output among all of them; the first port is lowest."""
        ports = self.outputs if port.direction == "output" else self.inputs
        return sum(other.width for other in ports[: ports.index(port)])

    def slice(self, port: PackagedPort) -> str:
        """Return the range of an input or output among all of them, in Verilog."""
        low = self.low(port)
        return f"[{low + port.width - 1}:{low}]"

    def bench_signal(self, port: PackagedPort) -> str:
        """Return the signal of the test bench that a port is connected to."""
        if port.role == "data":
            return ("outputs" if port.direction == "output" else "inputs") + self.slice(port)
        signal = {"clk": "clock", "rst": "reset", "en": "enable"}.get(port.role, port.role)
        return f"~{signal}" if port.active_low else signal

    @cached_property
    def model(self) -> UnitModel:
        """C++ model."""
        return UnitModel.of(self.component.spec, f"{self.module}_model")

    @cached_property
    def stream(self) -> PackagedStream:
        """AXI4-Stream wrapper."""
        return PackagedStream(self, **self.streams)


@dataclass(frozen=True)
class Package:
    """Units for people who do not write Python.

    Parameters
    ----------
    name : str
        Name of the package: of its files, its SystemVerilog package and its FuseSoC core.
    units : tuple of PackagedUnit
    netlists : Netlists
    """

    name: str
    units: tuple[PackagedUnit, ...]
    netlists: Netlists

    @classmethod
    def of(
        cls,
        components: Sequence[Any],
        name: str,
        *,
        prefix: str = "",
        controls: Controls = Controls(),
        streams: Mapping[str, int] = MappingProxyType({}),
        progress: Progress = silent,
    ) -> "Package":
        """Generate the Verilog of components.

        Parameters
        ----------
        components : sequence of Unit
        name : str
            Name of the package; also that of its module if there is one component.
        prefix : str
            Prefix of the names of modules and of the package.
        controls : Controls
        streams : mapping of str to int
            Parameters of `halfulp.units.AxiStream`, for the units on which they have an effect.
        progress : Progress

        Raises
        ------
        TypeError, ValueError
            If two modules have one name, Verilog does not allow a name, no component has a port that ``controls``
            describe, or an option of streams has no effect.
        ToolError
            If Yosys fails.
        """
        name = check_name(prefix + name)
        if "$" in name:
            raise ValueError(
                f"invalid name {name!r} of a package: make and FuseSoC read a $ as the start of a variable"
            )
        progress.total("Verilog", len(components))
        tops = [name if len(components) == 1 else check_name(prefix + component.name) for component in components]
        for top, component in zip(tops, components, strict=True):
            if tops.count(top) > 1:
                raise ValueError(f"the package has two modules {top}; each unit is given once: {component.title}")
        units, texts, seen = [], {}, set[str]()
        for top, component, own in zip(tops, components, options_of(components, streams), strict=True):
            text = verilog(component, top)
            plain = [port.name for port in verilog_ports(text, top)]
            seen |= set(plain)
            options = controls.of(plain)
            top = top if len(components) == 1 else check_name(prefix + default_name(component, **options))
            if options != Controls().of(plain):
                text = verilog(component, top, **options)
            texts[top] = text
            ports, is_async = _ports(component, text, top, options), controls.reset.startswith(ASYNC)
            units.append(PackagedUnit(component, top, ports, is_async, controls.initial, own))
            progress.advance(1)
            taken = {TYPED_INSTANCE, *units[-1].typedefs}
            if both := taken.intersection(controls.ports.values()):
                raise ValueError(f"{top}_typed already has {min(both)}; choose another name of the port")
        controls.check(sorted(seen))
        return cls(name, tuple(units), share(texts, f"{name}_shared"))

    @cached_property
    def formats(self) -> list[Format]:
        """Formats of all ports, each once."""
        return list(dict.fromkeys(fmt for unit in self.units for fmt in unit.formats))

    @property
    def modelled(self) -> list[PackagedUnit]:
        """Units with a C++ model."""
        return [unit for unit in self.units if unit.model.function]

    def files(self) -> dict[str, str]:
        """Return the files of the package by path: RTL, wrappers and documentation."""
        files = {f"rtl/{module}.v": text for module, text in self.netlists.units.items()}
        if self.netlists.shared:
            files[f"rtl/{self.name}_shared.v"] = self.netlists.shared
        files[f"rtl/{self.name}_pkg.sv"] = self.render("package.sv.j2")
        for unit in self.units:
            files[f"rtl/{unit.module}_typed.sv"] = self.render("typed.sv.j2", unit=unit)
            files[f"rtl/{unit.stream.name}.v"] = unit.stream.text
        for unit in self.units:
            path = self.vector_file(unit)
            files[path], count = vectors(unit.component, unit.module)
            for bench, top in (("tb", unit.module), ("axis_tb", unit.stream.name)):
                files[f"tb/{top}_tb.v"] = self.render(f"{bench}.v.j2", unit=unit, vectors=path, count=count)
        files |= model_files(self) | binding_files(self)
        for name in ("tb/test_units.py", "tb/run_cocotb.py", "LICENSE"):
            files[name] = (TEMPLATES / Path(name).name).read_text()
        files |= {f"tb/{SIGNALS.name}/{file.name}": file.read_text() for file in sorted(SIGNALS.glob("*.py"))}
        files |= module_files(self, files)
        files[f"rtl/{self.name}_components.vhd"] = self.render("components.vhd.j2")
        files[f"{self.name}.core"] = self.render("package.core.j2")
        files["Makefile"] = self.render("Makefile.j2")
        files["lint/verilator.vlt"] = WAIVERS.read_text() + _WAIVERS
        return files | {"README.md": self.render("README.md.j2")}

    @property
    def sources(self) -> list[str]:
        """Paths of all RTL; the package of types is first."""
        shared = [f"rtl/{self.name}_shared.v"] if self.netlists.shared else []
        names = [(f"{unit.module}.v", f"{unit.module}_typed.sv", f"{unit.stream.name}.v") for unit in self.units]
        units = [f"rtl/{name}" for each in names for name in each]
        return [f"rtl/{self.name}_pkg.sv", *shared, *units]

    @staticmethod
    def vector_file(unit: PackagedUnit) -> str:
        """Return the path of the vectors of a unit."""
        return f"vectors/{unit.module}.hex"

    def netlist_files(self, unit: PackagedUnit) -> list[str]:
        """Return the paths of the Verilog of a unit."""
        shared = unit.module in self.netlists.users
        return [f"rtl/{unit.module}.v", *([f"rtl/{self.name}_shared.v"] if shared else [])]

    def render(self, template: str, **more: Any) -> str:
        """Return the text of a template."""
        functions = {
            "type_name": type_name,
            "identifier": identifier,
            "format_fields": format_fields,
            "codes_of": codes_of,
            "contents": contents,
            "vhdl_name": vhdl_name,
            "bench_argument": bench_argument,
        }
        known = {
            "package": self,
            "modes": MODE_CODES,
            "flags": FLAGS,
            "mode_bits": MODE_BITS,
            "asic_clock": ASIC_CLOCK,
            "version": version("halfulp"),
            **functions,
        }
        return _TEMPLATES.get_template(template).render(**known, **more)


def _ports(component: Any, text: str, top: str, options: Mapping[str, Any]) -> tuple[PackagedPort, ...]:
    """Return the ports of a module in order; raise ValueError if its latency varies."""
    component.check_one_latency("a package")
    shapes = component.inputs | component.outputs
    low = {"rst": options.get("reset", SYNC).endswith(LOW), "en": options.get("enable", HIGH) == LOW}
    roles = {"ready": "ready"}
    for role in ROLES:
        default = f"{role}_n" if low.get(role) else role
        roles[options["ports"].get(role, default)] = role
    ports = []
    for port in verilog_ports(text, top):
        role = "data" if port.name in shapes else roles[port.name]
        shape = shapes.get(port.name)
        fmt = shape if isinstance(shape, Format) else None
        ports.append(PackagedPort(port.name, port.direction, port.width, role, fmt, low.get(role, False)))
    order = [*ROLES, "ready", *shapes]
    return tuple(sorted(ports, key=lambda port: order.index(port.name if port.role == "data" else port.role)))
