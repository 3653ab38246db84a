"""Verilog of any component."""

import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, Shape
from amaranth.lib import data

from halfulp.hdl.formats import Format

from .base import Unit, module_name

SYNC, *_ = RESETS = ("sync", "async", "sync-low", "async-low")
"""Styles of reset: synchronous or asynchronous, by the port ``rst``, or by ``rst_n``, which is active low."""

_PRAGMAS = """\
// Operands are written as wide as they are, and Verilog's own rules extend them.
/* verilator lint_off WIDTHEXPAND */
// Ports have the names of their protocol, even if C++ has such a word.
/* verilator lint_off SYMRSVDWORD */
`timescale 1ns / 1ps
"""

_CONTROLS = {
    "clk": "clock, rising edge",
    "rst": "reset, {}, active high",
    "rst_n": "reset, {}, active low",
    "en": "clock enable of all registers",
    "valid": "operands in this cycle",
}
"""Ports that stand first, and what they are."""


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


def emit(component: Any, name: str | None = None, *, reset: str = SYNC) -> str:
    """Plain Verilog of a component and its submodules, with a comment about its ports.

    Parameters
    ----------
    component : wiring.Component
        A unit, a `Streamed` one, or a component of your own.
    name : str, optional
        Name of the top module, with which the names of submodules begin; default: the component's ``name``, which
        carries its parameters, or the name of its class.
    reset : str
        Style of the reset, of `RESETS`.

    Raises
    ------
    TypeError
        If ``component`` is no component, or ``name`` no text.
    ValueError
        If the name is none that Verilog takes, the style is unknown, or the component has no reset.
    """
    if not hasattr(component, "signature"):
        raise TypeError(f"Verilog is made of a wiring.Component, not of {type(component).__name__}")
    if reset not in RESETS:
        raise ValueError(f"unknown reset {reset!r}; the styles are {', '.join(RESETS)}")
    top = check_name(getattr(component, "name", type(component).__name__) if name is None else name)
    text = verilog.convert(
        component,
        name=top,
        emit_src=False,
        strip_internal_attrs=True,
        missing_domain=lambda domain: ClockDomain(domain, async_reset=reset.startswith("async")),
    )
    if reset.endswith("low"):
        low = r"rst_n\1input rst_n;\n  wire rst = ~rst_n;"
        text = re.sub(r"\brst\b(.*?)\binput rst;\n  wire rst;", low, text, count=1, flags=re.S)
    ports = {port.name: port for port in verilog_ports(text, top)}
    if reset != SYNC and not {"rst", "rst_n"} & set(ports):
        raise ValueError(f"{top} has no reset, which {reset} could be the style of")
    shapes = {"__".join(map(str, path)): member.shape for path, member, _ in component.signature.flatten(component)}
    places = {port: place for place, port in enumerate(dict.fromkeys([*_CONTROLS, *shapes]))}
    ports = dict(sorted(ports.items(), key=lambda item: places.get(item[0], -1)))
    text = _reordered(text, top, list(ports))
    text = re.sub(r"^module .*?^endmodule", _named, text, flags=re.M | re.S)
    options = ["--name", name] if name is not None else []
    options += ["--reset", reset] if reset != SYNC else []
    lines = [*_about(component, top, options, "clk" in ports), *_table(component, ports, shapes, reset)]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines) + "\n" + _PRAGMAS + _lint_clean(text)


def check_name(name: object) -> str:
    """A name of a Verilog module.

    Raises
    ------
    TypeError, ValueError
        If it is no text, or none that Verilog takes.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a module is a text, not {type(name).__name__}")
    if not re.fullmatch(r"[A-Za-z_][\w$]*", name, re.ASCII):
        raise ValueError(f"invalid module name {name!r}: expected letters, digits, _ and $, a letter or _ first")
    return name


def verilog_ports(text: str, top: str) -> list[VerilogPort]:
    r"""Ports of a module, in order of their names, from its Verilog; a keyword as a name is ``\bit`` there.

    Raises
    ------
    ValueError
        If the text has no module of that name.
    """
    module = re.search(rf"^module \\?{re.escape(top)}\s*\(.*?\);(.*?)^endmodule", text, re.M | re.S)
    if module is None:
        raise ValueError(f"the Verilog has no module {top}")
    found = re.findall(r"^\s*(input|output)\s+(?:\[(\d+):0\]\s+)?\\?([^\s;]+)\s*;", module[1], re.M)
    return [VerilogPort(name, direction, int(high or 0) + 1) for direction, high, name in found]


def _reordered(text: str, top: str, order: list[str]) -> str:
    """Verilog with the ports of a module in this order."""
    head = re.search(rf"^module \\?{re.escape(top)}\s*\((.*?)\);", text, re.M | re.S)
    assert head is not None
    # A keyword as a name ends with a blank.
    written = {port.strip().removeprefix("\\"): port.lstrip() for port in head[1].split(",")}
    return text[: head.start(1)] + ", ".join(written[port] for port in order) + text[head.end(1) :]


# In Verilog of Yosys: names with numbers of its own, those that are nothing else, the signal that a statement assigns
# first, a signal that is another or bits of it, ports of instances, and ports with names of Yosys.
_NUMBERED = re.compile(r"\\((?!\$auto)\S*\$\S*) ")
_UNNAMED = re.compile(r"\$\d+")
_ASSIGNED = re.compile(r"^(?:assign)? *(?:{ )?\\?([\w$][^\s\[,;]*)[^;=\n]* <?= ", re.M)
_RENAMED = re.compile(r"^assign \\?(\S+) += \\(\$\d+)  ?(?:\[[\d:]+\])?;")
_CONNECTED = re.compile(r"^ *\.\\?([^ (]+) ?\((.*)\)", re.M)
_PORT = re.compile(r"^(?: *\.|  (?:input|output) (?:\[\d+:0\] )?)\\(\S+) ", re.M)


def _named(module: re.Match[str]) -> str:
    """A module of Yosys with names instead of numbers.

    An unnamed value, such as ``$60``, is a part of the signal that it is, or that it is first used for:
    ``sum_zero_part1``. Of several signals of one name, as ``x`` and ``x$7``, the others are ``x_2``, ``x_3`` and so on.
    """
    users: dict[str, str] = {}
    found: dict[str, None] = {}
    for statement in re.split(r"^  (?=\S)", module[0], flags=re.M):
        kind, *words = statement.split(maxsplit=2)
        if kind in ("assign", "always"):
            uses = [(target[1] if (target := _ASSIGNED.search(statement)) else "", statement)]
        else:
            uses = [(f"{words[0]}_{port}", value) for port, value in _CONNECTED.findall(statement)]
        for user, value in uses:
            names = _NUMBERED.findall(value)
            found |= dict.fromkeys(names)
            users |= {name: user for name in names if name != user and name not in users}
        if (same := _RENAMED.match(statement)) and not _UNNAMED.fullmatch(same[1]):
            users[same[2]] = same[1]
    for name in _PORT.findall(module[0]):
        # Another module has the same name.
        found.pop(name, None)
    taken = set(re.findall(r"\w+", module[0]))
    numbers: dict[str, Iterator[int]] = {}
    renamed: dict[str, str] = {}
    for name in found:
        user, passed = name, set[str]()
        while _UNNAMED.fullmatch(user) and user not in passed:
            passed.add(user)
            user = users.get(user, "unused")
        stem = re.sub(r"\W+", "_", re.sub(r"\$\d+$", "", user)).strip("_")
        stem, first = (f"{stem}_part", 1) if _UNNAMED.fullmatch(name) else (f"{stem}_", 2)
        places = numbers.setdefault(stem, count(first))
        renamed[name] = next(new for place in places if (new := f"{stem}{place}") not in taken)
    return _NUMBERED.sub(lambda name: renamed.get(name[1], name[0]), module[0])


def _lint_clean(text: str) -> str:
    """Verilog of Yosys in the words that simulators do not warn of.

    ``~|`` is ``!`` of several bits. A case that does nothing for other values than it names says so.
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
            values = re.findall(r"(\d+)'([bh])([0-9a-f?]+)(?=[:,])", line)
            cases[-1] += [code if base == "b" else f"{int(code, 16):0{width}b}" for width, base, code in values]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _complete(patterns: list[str]) -> bool:
    """True if some pattern matches each value; ``?`` is any bit, and no pattern is longer than the first."""
    if any(not pattern.strip("?") for pattern in patterns):
        return True
    halves = ([pattern[1:] for pattern in patterns if pattern[0] in (bit, "?")] for bit in "01")
    return bool(patterns) and all(map(_complete, halves))


def _about(component: Any, top: str, options: list[str], clocked: bool) -> Iterator[str]:
    """Lines about a component: name, description, command, latency."""
    title = getattr(component, "title", None)
    yield f"{top}: {title}" if isinstance(title, str) else top
    # An import statement would make all of the package part of the keys of cached Verilog.
    written = f"Written by halfulp {importlib.import_module('halfulp').__version__}"
    # A unit of a user's own may have no text.
    has_text = isinstance(component, Unit) and hasattr(component.spec, "form")
    if has_text and component.name == module_name(component.spec.name, component.build):
        options = [component.spec.text, *component.build.options, *options]
        written += f": {shlex.join(['halfulp', 'emit', *options])}"
    yield written
    latency = getattr(component, "latency", None)
    if isinstance(latency, int):
        yield f"Latency: {latency} cycle{'s' * (latency != 1)}" if clocked else "Combinational, without clock and reset"
    yield ""


def _table(component: Any, ports: Mapping[str, VerilogPort], shapes: Mapping[str, Any], reset: str) -> Iterator[str]:
    """Lines about the ports of a component, and about the formats of these."""
    timing = "asynchronous" if reset.startswith("async") else "synchronous"
    for name, port in ports.items():
        control = name in _CONTROLS and (name not in shapes or isinstance(component, Unit))
        meaning = _CONTROLS[name].format(timing) if control else _shape_text(shapes.get(name))
        yield f"{port.direction:6}  {name:{max(map(len, ports))}}  {port.width:4}  {meaning}"
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
    """A format's name, or the places of fields; nothing of plain bits."""
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
