"""Generation of Verilog from components."""

import hashlib
import importlib
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, ClockSignal, Fragment, Instance, ResetSignal, Shape, Value
from amaranth.lib import data, wiring

from halfulp.hdl.formats import Format
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.internals import PortDirection

from .base import Unit
from .builds import module_name
from .expressions import stem_of
from .keywords import KEYWORDS
from .meanings import control, meanings
from .readable import readable

SYNC, ASYNC, *_ = RESETS = ("sync", "async", "sync-low", "async-low")
"""Reset styles: synchronous or asynchronous, on the port ``rst``, or on ``rst_n``, which is active low."""

HIGH, LOW = ENABLES = ("high", "low")
"""Polarities of the clock enable: on the port ``en``, or on ``en_n``, which is active low."""

_PRAGMAS = """\
// Operands of different width are extended by the rules of Verilog.
/* verilator lint_off WIDTHEXPAND */
// Ports keep the names of their protocol even if C++ reserves them.
/* verilator lint_off SYMRSVDWORD */
`timescale 1ns / 1ps
"""

_CONTROLS = {"clk": "clk", "rst": "rst", "rst_n": "rst", "en": "en", "en_n": "en", "valid": "valid"}
"""Roles of the control ports, which come first, by their default names."""

ROLES = ("clk", "rst", "en", "valid")
"""Control ports, by the names that they have by default if they are active high."""


@dataclass(frozen=True)
class VerilogPort:
    """A port of a Verilog module.

    Attributes
    ----------
    name : str
    direction : str
        ``input`` or ``output``.
    width : int
    """

    name: str
    direction: str
    width: int


def emit(
    component: Any,
    name: str | None = None,
    *,
    reset: str = SYNC,
    enable: str = HIGH,
    ports: Mapping[str, str] = MappingProxyType({}),
    initial: bool = True,
    netlist: bool = False,
) -> str:
    """Return plain Verilog of a component and its submodules, with a header comment about the ports.

    Parameters
    ----------
    component : wiring.Component
        A unit, a `Streamed` unit, or a component of your own.
    name : str, optional
        Name of the top module and prefix of the names of submodules; default: `default_name`.
    reset : str
        Reset style, one of `RESETS`.
    enable : str
        Polarity of the clock enable, one of `ENABLES`.
    ports : mapping of str to str
        Names of control ports in place of ``clk``, ``rst``, ``en`` and ``valid``; those of a reset and of a clock
        enable that are active low are ``rst_n`` and ``en_n`` by default.
    initial : bool
        Registers have initial values, which FPGAs load; without them, for ASICs, each register needs a reset.
    netlist : bool
        Return the Verilog of Yosys with a signal for each operator, which synthesis reads.

    Raises
    ------
    TypeError
        If ``component`` is not a component, or a name, style or polarity is not a string.
    ValueError
        If Verilog does not allow a name or the module has it already, the style or polarity is unknown, the component
        has no such port, or a register without an initial value has no reset.
    """
    if not hasattr(component, "signature"):
        raise TypeError(f"cannot emit Verilog of {type(component).__name__}: expected a wiring.Component")
    check_one_of("style of reset", reset, RESETS)
    check_one_of("polarity of a clock enable", enable, ENABLES)
    default = default_name(component, reset=reset, enable=enable, ports=ports, initial=initial)
    top = check_name(default if name is None else name)
    shapes = _shapes_of(component, top)
    if netlist and not initial:
        raise ValueError("a netlist has initial values; omit one of the options")
    text = _Modules(top, reset.startswith("async"), initial, netlist).convert(component)
    if not initial and "always @(" not in text:
        raise ValueError(f"{top} has no registers: omit the option --no-initial")
    text = _active_low(text, top, reset, enable)
    declared = {port.name: port for port in verilog_ports(text, top)}
    if clash := next((port.partition("$")[0] for port in declared if "$" in port), None):
        raise ValueError(f"{top} has a port {clash} and a clock or reset {clash}; choose another name of the port")
    names = _port_names(top, declared, ports)
    places = {port: place for place, port in enumerate(dict.fromkeys([*_CONTROLS, *shapes]))}
    declared = dict(sorted(declared.items(), key=lambda item: places.get(item[0], -1)))
    text = _with_names(_reordered(text, top, list(declared)), top, names)
    # The command line of a wrapper has other styles and names than its module.
    asked = component.asked(reset, ports) if hasattr(component, "asked") else {"reset": reset, "ports": ports}
    usual = default_name(component, **asked, enable=enable, initial=initial)
    options = ["--name", top] if top != usual else []
    options += _options(**asked, enable=enable, initial=initial)
    lines = [*_about(component, top, options, "clk" in declared), *_table(component, declared, names, shapes, reset)]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines) + "\n" + _PRAGMAS + _lint_clean(text)


def _shapes_of(component: Any, top: str) -> dict[str, Any]:
    """Return the shapes of the ports of a component by name; raise ValueError if two ports have one name."""
    members = list(_flat(component))
    shapes = {path: member.shape for path, member, _ in members}
    if len(shapes) < len(members):
        paths = [path for path, _, _ in members]
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"{top} has two ports {twice}; choose another name of one of them")
    return shapes


def _options(*, reset: str, enable: str, ports: Mapping[str, str], initial: bool) -> list[str]:
    """Return the options of the command line that choose the ports and the registers of a module."""
    options = ["--reset", reset] if reset != SYNC else []
    options += ["--enable", enable] if enable != HIGH else []
    options += [] if initial else ["--no-initial"]
    return options + (["--ports", ",".join(f"{role}={port}" for role, port in ports.items())] if ports else [])


def default_name(
    component: Any,
    *,
    reset: str = SYNC,
    enable: str = HIGH,
    ports: Mapping[str, str] = MappingProxyType({}),
    initial: bool = True,
) -> str:
    """Return the default name of a component's module, which differs for different Verilog.

    It is the component's ``name``, which contains its parameters, or the name of its class, and the options of `emit`
    that differ from their defaults: ``_async_low``, ``_en_low``, ``_no_initial``, and a digest of other names of
    ports.
    """
    low = {"rst": reset.endswith("low"), "en": enable == LOW}
    named = sorted((role, name) for role, name in ports.items() if name != (f"{role}_n" if low.get(role) else role))
    parts = [getattr(component, "name", type(component).__name__)]
    parts += [reset.replace("-", "_")] if reset != SYNC else []
    parts += [f"en_{enable}"] if enable != HIGH else []
    parts += [] if initial else ["no_initial"]
    parts += [f"ports_{hashlib.sha256(repr(named).encode()).hexdigest()[:6]}"] if named else []
    return "_".join(parts)


def _active_low(text: str, top: str, reset: str, enable: str) -> str:
    """Return the Verilog with active-low ports for the reset and the clock enable, as their styles ask for."""
    declared = {port.name for port in verilog_ports(text, top)}
    if reset != SYNC and "rst" not in declared:
        raise ValueError(f"{top} has no reset: omit the reset style {reset}")
    if enable != HIGH and "en" not in declared:
        raise ValueError(f"{top} has no clock enable: omit its polarity {enable}")
    for port, inverted in (("rst", reset.endswith("low")), ("en", enable == LOW)):
        if inverted:
            low = rf"{port}_n\1input {port}_n;\n  wire {port} = ~{port}_n;"
            text = re.sub(
                rf"(?:(?<=\()|(?<=, )){port}\b(.*?)\binput {port};(?:\n  wire {port};)?", low, text, count=1, flags=re.S
            )
    return text


def _port_names(top: str, declared: Collection[str], ports: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the ports of a module that differ from their default, by default name."""
    known = {_CONTROLS[port]: port for port in declared if port in _CONTROLS}
    if unknown := [role for role in ports if role not in known]:
        raise ValueError(f"{top} has no port {unknown[0]} to name; its control ports are {', '.join(known) or 'none'}")
    names = {known[role]: check_name(name) for role, name in ports.items() if known[role] != name}
    final = [names.get(port, port) for port in declared]
    for name in names.values():
        if final.count(name) > 1:
            raise ValueError(f"{top} has two ports {name}")
    return names


def _with_names(text: str, top: str, names: Mapping[str, str]) -> str:
    """Return the Verilog with other names of ports of a module; ports of instances in it keep theirs."""
    if not names:
        return text
    head, module, rest = re.split(
        rf"(^module {re.escape(top)}\s*\(.*?^endmodule\n)", text, maxsplit=1, flags=re.M | re.S
    )

    def words(known: Iterable[str]) -> str:
        # The name of a port of an instance follows a period.
        return rf"(?<![\w.$\\])(?:{'|'.join(map(re.escape, known))})(?![\w$])"

    for name in names.values():
        if name not in names and re.search(words([name]), module):
            raise ValueError(f"{top} already has a signal {name}; choose another name of the port")
    return head + re.sub(words(names), lambda match: names[match[0]], module) + rest


class _Modules:
    """Platform of elaboration that writes each kind of part as one module, with parameters for its constants.

    Parameters
    ----------
    top : str
        Name of the top module, and prefix of the names of all others.
    async_reset : bool
        Reset registers asynchronously.
    initial, netlist : bool
        See `emit`.
    """

    def __init__(self, top: str, async_reset: bool, initial: bool, netlist: bool) -> None:
        self._top, self._async_reset = top, async_reset
        self._initial, self._netlist = initial, netlist
        self._names: dict[tuple[object, ...], str] = {}
        self._controls: dict[str, set[str]] = {}
        self._constants: dict[str, set[str]] = {}
        self._texts: list[str] = []

    def convert(self, component: Any) -> str:
        """Return Verilog of a component: its modules, and those of its parts."""
        return "".join([self._written(component, self._top), *reversed(self._texts)])

    def instance(self, part: Any, key: tuple[object, ...], constants: Mapping[str, Value]) -> Instance:
        """Return an instance of the module of a part, connected to the part's ports."""
        # Amaranth warns of components that are never elaborated.
        part._MustUse__used = True
        if key not in self._names:
            self._names[key] = self._add(part, constants)
        name = self._names[key]
        controls = {"clk": ClockSignal(), "rst": ResetSignal(allow_reset_less=True)}
        values = {f"i_{port}": value for port, value in controls.items() if port in self._controls[name]}
        for port, member, value in _flat(part):
            values["io"[member.flow == wiring.Out] + f"_{port}"] = constants.get(port, value)
        return Instance(name, **values)

    def _add(self, part: Any, constants: Mapping[str, Value]) -> str:
        """Write the module of a part and return its name."""
        stems = (f"{self._top}.{part.name}{suffix}" for suffix in ("", *(f"_{n}" for n in range(2, 99))))
        name = next(stem for stem in stems if stem not in self._controls)
        text = self._written(part, name)
        ports = {port.name: port for port in verilog_ports(text, name)}
        self._controls[name] = {"clk", "rst"} & set(ports)
        self._constants[name] = set(constants)
        if constants:
            text = _reordered(text, name, [port for port in ports if port not in constants])
            text = re.sub(rf"^  (?:input|wire) (?:\[\d+:0\] )?(?:{'|'.join(constants)});\n", "", text, flags=re.M)
            declared = (f"parameter [{ports[port].width - 1}:0] {port} = {ports[port].width}'d1" for port in constants)
            text = text.replace(f"module \\{name} ", f"module \\{name} #({', '.join(declared)}) ", 1)
        if initial := getattr(part, "initial", {}):
            # Other names of the registers have their initial values as attributes.
            text = re.sub(r"^  \(\* init = .*\n", "", text, flags=re.M)
        for register, value in initial.items():
            text, replaced = re.subn(rf"\b({register}(?:_part\d+)? <?= )\d+'h[0-9a-f]+;", rf"\g<1>{value};", text)
            if replaced != 1 + self._initial:
                raise ValueError(f"{name} sets the value of {register} after a reset {replaced} times")
        self._texts.append(text[text.index("module ") :])
        return name

    def _written(self, component: Any, name: str) -> str:
        """Return Verilog of a component and its submodules; parts are instances of their modules."""
        # A description may give its ports other names for its own use.
        ports = {path: (Value.cast(value), _DIRECTIONS[member.flow]) for path, member, value in _flat(component)}
        fragment = Fragment.get(component, self)
        text = verilog.convert(
            fragment,
            ports=ports,
            name=name,
            emit_src=False,
            strip_internal_attrs=True,
            missing_domain=lambda domain: ClockDomain(domain, async_reset=self._async_reset),
        )
        if self._netlist:
            text = re.sub(r"^module .*?^endmodule", _named, text, flags=re.M | re.S)
        else:
            text = readable(text, dict(_members(fragment, component, name)), initial=self._initial)
        text = re.sub(
            r"^  initial begin\n(    (\S+)\[0\] = (\S+);\n(?:    \2\[\d+\] = \3;\n)+)  end\n", _looped, text, flags=re.M
        )
        text = re.sub(r"^  reg (\\\S+dump_module\S+ ) = 0;\n", _awoken, text, flags=re.M)
        return re.sub(r"^  \\(\S+)  (\S+ \(\n)(.*?)^  \);", self._with_parameters, text, flags=re.M | re.S)

    def _with_parameters(self, instance: re.Match[str]) -> str:
        """Return an instance whose connections to constants are values of parameters."""
        name, start, body = instance.groups()
        if not (constants := self._constants.get(name)):
            return instance[0]
        lines = [line.strip().removesuffix(",") for line in body.splitlines()]
        values = [line for line in lines if line[1 : line.index("(")] in constants]
        ports = ",\n".join(f"    {line}" for line in lines if line not in values)
        return f"  \\{name}  #({', '.join(values)}) {start}{ports}\n  );"


_DIRECTIONS = {wiring.In: PortDirection.Input, wiring.Out: PortDirection.Output}


def _flat(component: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the ports of a component: name, member of the signature, and value."""
    for path, member, value in component.signature.flatten(component):
        yield "__".join(map(str, path)), member, value


def _members(fragment: Fragment, component: Any, name: str) -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield the module of each component in a fragment, with its ports; True for inputs."""
    if hasattr(component, "signature"):
        yield name, {port: member.flow == wiring.In for port, member, _ in _flat(component)}
    for place, (inner, part, _) in enumerate(fragment.subfragments):
        components = [origin for origin in inner.origins or () if hasattr(origin, "signature")]
        yield from _members(inner, components[0] if components else None, f"{name}.{part or f'U${place}'}")


def _awoken(declared: re.Match[str]) -> str:
    """Return the register on which every ``always @*`` depends, with a change of it that Icarus sees.

    Icarus assigns the initial values of declarations before it starts the blocks, which would not run before their
    first operand changes. No block depends on the value.
    """
    return f"{declared[0]}`ifdef __ICARUS__\n  initial #0 {declared[1]}= 1;\n`endif\n"


def check_name(name: object) -> str:
    """Return ``name`` if it is a valid name of a Verilog module or port.

    Raises
    ------
    TypeError, ValueError
        If it is not a string, or Verilog does not allow it.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a module or port must be a string, not {type(name).__name__}")
    if not re.fullmatch(r"[A-Za-z_][\w$]*", name, re.ASCII):
        raise ValueError(f"invalid name {name!r}: expected letters, digits, _ and $, a letter or _ first")
    if name in KEYWORDS:
        raise ValueError(f"invalid name {name!r}: it is a reserved word of SystemVerilog; choose another name")
    return name


def verilog_ports(text: str, top: str) -> list[VerilogPort]:
    r"""Return the ports of a module, sorted by name, from its Verilog; a keyword ``bit`` as a name is written ``\bit``.

    Raises
    ------
    ValueError
        If the text has no module of that name.
    """
    module = re.search(rf"^module \\?{re.escape(top)}\s*\(.*?\);(.*?)^endmodule", text, re.M | re.S)
    if module is None:
        raise ValueError(f"the Verilog has no module {top}")
    ports = re.findall(r"^\s*(input|output)\s+(?:\[(\d+):0\]\s+)?\\?([^\s;]+)\s*;", module[1], re.M)
    return [VerilogPort(name, direction, int(high or 0) + 1) for direction, high, name in ports]


def _reordered(text: str, top: str, order: list[str]) -> str:
    """Return the Verilog with the ports of a module in the given order."""
    head = re.search(rf"^module \\?{re.escape(top)}\s*\((.*?)\);", text, re.M | re.S)
    assert head is not None
    # An escaped name ends with a blank.
    written = {port.strip().removeprefix("\\"): port.lstrip() for port in head[1].split(",")}
    return text[: head.start(1)] + ", ".join(written[port] for port in order) + text[head.end(1) :]


# Patterns in the Verilog of Yosys: names with a generated number or a last index, names that are only a number, the
# first signal that a statement assigns, aliases of a signal or of its bits, ports of instances, and ports with
# generated names.
_NUMBERED = re.compile(r"\\((?!\$auto)\S*(?:\$\S*|\])) ")
_UNNAMED = re.compile(r"\$\d+")
_ASSIGNED = re.compile(r"^(?:assign)? *(?:{ )?\\?([\w$][^\s\[,;]*)[^;=\n]* <?= ", re.M)
_RENAMED = re.compile(r"^assign \\?(\S+) += \\(\$\d+)  ?(?:\[[\d:]+\])?;")
_CONNECTED = re.compile(r"^ *\.\\?([^ (]+) ?\((.*)\)", re.M)
_PORT = re.compile(r"^(?: *\.|  (?:input|output) (?:\[\d+:0\] )?)\\(\S+) ", re.M)


def _numbered(text: str) -> tuple[dict[str, None], dict[str, str]]:
    """Return the signals with generated numbers in the text of a module, and a signal that uses each."""
    users: dict[str, str] = {}
    numbered: dict[str, None] = {}
    for statement in re.split(r"^  (?=\S)", text, flags=re.M):
        kind, *words = statement.split(maxsplit=2)
        if kind in ("assign", "always"):
            uses = [(target[1] if (target := _ASSIGNED.search(statement)) else "", statement)]
        else:
            uses = [(f"{words[0]}_{port}", value) for port, value in _CONNECTED.findall(statement)]
        for user, value in uses:
            names = _NUMBERED.findall(value)
            numbered |= dict.fromkeys(names)
            users |= {name: user for name in names if name != user and name not in users}
        if (same := _RENAMED.match(statement)) and not _UNNAMED.fullmatch(same[1]):
            users[same[2]] = same[1]
    return numbered, users


def _named(module: re.Match[str]) -> str:
    """Return a module of Yosys with names in place of generated numbers.

    An unnamed value, such as ``$60``, becomes a part of the signal that first uses it: ``sum_zero_part1``. Further
    signals of one name, such as ``x$7`` next to ``x``, become ``x_2``, ``x_3`` and so on. An element of an array, such
    as ``x[0]``, becomes ``x_0``, because Yosys gives the name ``x[0]`` to bit 0 of ``x`` when it maps to tables.
    """
    numbered, users = _numbered(module[0])
    for name in _PORT.findall(module[0]):
        # The parent module refers to ports by name, so ports are not renamed.
        numbered.pop(name, None)
    taken = set(re.findall(r"\w+", module[0]))
    numbers: dict[str, Iterator[int]] = {}
    renamed: dict[str, str] = {}
    for name in numbered:
        user, passed = name, set[str]()
        while _UNNAMED.fullmatch(user) and user not in passed:
            passed.add(user)
            user = users.get(user, "unused")
        stem = stem_of(re.sub(r"\$\d+$", "", user))
        if name.endswith("]") and stem not in taken:
            renamed[name] = stem
            taken.add(stem)
            continue
        stem, first = (f"{stem}_part", 1) if _UNNAMED.fullmatch(name) else (f"{stem}_", 2)
        places = numbers.setdefault(stem, count(first))
        new = renamed[name] = next(new for place in places if (new := f"{stem}{place}") not in taken)
        taken.add(new)
    return _NUMBERED.sub(lambda name: renamed.get(name[1], name[0]), module[0])


def _looped(filling: re.Match[str]) -> str:
    """Return a loop that sets all words of a memory to one value."""
    words, memory, value = filling.groups()
    index, depth = f"{memory}_index", words.count("\n")
    loop = f"for ({index} = 0; {index} < {depth}; {index} = {index} + 1) {memory}[{index}] = {value};"
    return f"  integer {index};\n  initial begin\n    {loop}\n  end\n"


def _lint_clean(text: str) -> str:
    """Rewrite Verilog of Yosys so that linters do not warn.

    A ``!`` of several bits becomes ``~|``. An incomplete case gets an empty default.
    """
    lines: list[str] = []
    cases: list[list[str]] = []
    for line in text.replace(" = ! ", " = ~| ").splitlines():
        first = line.lstrip().partition(" ")[0]
        if first in ("case", "casez"):
            cases.append([])
        elif first == "default:":
            cases[-1].append("")
        elif first == "endcase" and not _complete(cases.pop()):
            lines.append(f"{line[: -len(first)]}  default: ;")
        elif cases and first.endswith((":", ",")):
            values = re.findall(r"(\d+)'([bh])([0-9a-f?]+)(?=[:,])", f"{line.partition(': ')[0]}:")
            cases[-1] += [
                code if base == "b" else "?" * int(width) if "?" in code else f"{int(code, 16):0{width}b}"
                for width, base, code in values
            ]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _complete(patterns: list[str]) -> bool:
    """Return True if the patterns match every value; ``?`` matches any bit, and no pattern is longer than the first."""
    if any(not pattern.strip("?") for pattern in patterns):
        return True
    halves = ([pattern[1:] for pattern in patterns if pattern[0] in (bit, "?")] for bit in "01")
    return bool(patterns) and all(map(_complete, halves))


def _about(component: Any, top: str, options: list[str], clocked: bool) -> Iterator[str]:
    """Yield header lines about a component: name, description, command, latency."""
    title = getattr(component, "title", None)
    yield f"{top}: {title}" if isinstance(title, str) else top
    # An import statement would make the digest of cached Verilog depend on the whole package.
    written = f"Written by halfulp {importlib.import_module('halfulp').__version__}"
    # A component of a user may have no text.
    unit, words = (component, []) if isinstance(component, Unit) else _wrapped(component)
    if hasattr(getattr(unit, "spec", None), "form") and unit.name == module_name(unit.spec.name, unit.build):
        options = [unit.spec.text, *unit.build.options, *words, *options]
        written += f": {shlex.join(['halfulp', 'emit', *options])}"
    yield written
    latency = getattr(component, "latency", None)
    if isinstance(latency, int):
        yield f"Latency: {latency} cycle{'s' * (latency != 1)}" if clocked else "Combinational, without clock and reset"
    yield ""


def _wrapped(component: Any) -> tuple[Any, list[str]]:
    """Return the unit of a wrapper and its options of the command line; None if they are not all."""
    words = getattr(component, "words", None)
    return (None, []) if words is None else (component.unit, words)


def _table(
    component: Any,
    ports: Mapping[str, VerilogPort],
    names: Mapping[str, str],
    shapes: Mapping[str, Any],
    reset: str,
) -> Iterator[str]:
    """Yield header lines about the ports of a component and their formats."""
    known = meanings(component)
    longest = max(len(names.get(port, port)) for port in ports)
    for name, port in ports.items():
        is_control = name in _CONTROLS and (
            name not in shapes or isinstance(component, Unit) or hasattr(component, "words")
        )
        if is_control:
            meaning = control(_CONTROLS[name], asynchronous=reset.startswith(ASYNC), low=_CONTROLS[name] != name)
        else:
            meaning = _shape_text(shapes.get(name)) or known.get(name, "")
        yield f"{port.direction:6}  {names.get(name, name):{longest}}  {port.width:4}  {meaning}"
    inner = [
        str(name)
        for shape in shapes.values()
        if isinstance(shape, data.StructLayout | data.FlexibleLayout)
        for name, _ in shape
    ]
    if plain := [name for name in dict.fromkeys(inner) if known.get(name)]:
        yield ""
        yield from (f"{name}: {known[name]}" for name in plain)
    formats = dict.fromkeys(fmt for shape in shapes.values() for fmt in _formats(shape))
    if formats:
        yield ""
    for fmt in formats:
        parts, high = [], fmt.width
        for field, width in reversed(fmt.fields().items()):
            high -= width
            parts += [f"{field} {_range(high, width)}"] * (width > 0)
        yield f"{fmt}: {fmt.describe()}" + (f"; {', '.join(parts)}" if len(parts) > 1 else "")


def _range(low: int, width: int) -> str:
    return f"[{low + width - 1}:{low}]" if width > 1 else f"[{low}]"


def _shape_text(shape: Any) -> str:
    """Return the name of a format, or the fields of a layout; empty for plain bits."""
    if isinstance(shape, Format):
        return str(shape)
    if isinstance(shape, data.ArrayLayout):
        return f"{shape.length} x {_shape_text(shape.elem_shape) or Shape.cast(shape.elem_shape).width}"
    if isinstance(shape, data.Layout):
        parts = [(name, _shape_text(field.shape), _range(field.offset, field.width)) for name, field in shape]
        return ", ".join(" ".join(filter(None, (str(name), *texts))) for name, *texts in parts)
    return ""


def _formats(shape: Any) -> list[Format]:
    if isinstance(shape, Format):
        return [shape]
    if isinstance(shape, data.Layout):
        return [fmt for _, field in shape for fmt in _formats(field.shape)]
    return []
