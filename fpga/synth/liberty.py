"""Reader of Liberty files: the cells of a standard-cell library, with the data that area, delay and power need.

Liberty is the format of Synopsys' Library Compiler (User Guide, "Library Group Description and Syntax"). The reader
accepts every attribute and group, and interprets a few of them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Self

from halfulp.tools.digests import digest

OSU018 = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
"""Library of Oklahoma State University for 0.18 um, from Debian's package qflow-tech-osu018."""

_TOKEN = re.compile(r'/\*.*?\*/|"(?:[^"\\]|\\.)*"|[{}():;,]|[^\s{}():;,"\\]+', re.DOTALL)

Values = Mapping[str, int]
"""Bits of pins by name; each integer has one bit per case."""


@dataclass
class Group:
    """Group of a Liberty file: ``kind(names) { ... }``.

    Attributes
    ----------
    kind : str
    names : list of str
        Texts in the parentheses.
    values : dict of str to str
        Simple attributes, ``name : value;``, without quotation marks.
    lists : dict of str to list of str
        Complex attributes, ``name(value, ...);``; the last one of a name.
    groups : list of Group
    """

    kind: str
    names: list[str]
    values: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)

    @classmethod
    def parse(cls, text: str) -> "Group":
        """Parse the text of a file, which is one group; ValueError if it is not."""
        if "\0" in text:
            raise ValueError("the file is not a text")
        outer = Group("", [])
        open_groups = [outer]
        tokens = (token for token in _TOKEN.findall(text) if not token.startswith("/*"))
        for name in tokens:
            if name == ";":
                continue
            if name == "}":
                open_groups.pop()
                if not open_groups:
                    raise ValueError("a closing brace has no opening one")
                continue
            mark = next(tokens, "")
            if mark == ":":
                open_groups[-1].values[name] = " ".join(_until(tokens, ";"))
            elif mark == "(":
                inner = list(_until(tokens, ")"))
                end = next(tokens, ";")
                if end == "{":
                    group = Group(name, inner)
                    open_groups[-1].groups.append(group)
                    open_groups.append(group)
                else:
                    open_groups[-1].lists[name] = inner
                    if end == "}":
                        open_groups.pop()
                    elif end != ";":
                        raise ValueError(f"expected a semicolon or a brace after {name[:40]}(...), not {end[:40]!r}")
            else:
                raise ValueError(f"expected a colon or a parenthesis after {name[:40]!r}, not {mark[:40]!r}")
        if len(open_groups) > 1:
            raise ValueError(f"the group {open_groups[-1].kind!r} has no end")
        if [group.kind for group in outer.groups] != ["library"]:
            raise ValueError("expected one group `library`")
        return outer.groups[0]

    def of(self, kind: str) -> Iterator["Group"]:
        """Yield the inner groups of a kind."""
        return (group for group in self.groups if group.kind == kind)

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a simple attribute as a number; ValueError if it is none."""
        text = self.values.get(name)
        try:
            return default if text is None else float(text)
        except ValueError:
            raise ValueError(f"{name} of {self.kind} {' '.join(self.names)} is not a number: {text}") from None


def _unit(text: str, of: str) -> float:
    """Return the value of a unit such as ``1ns``."""
    match = re.fullmatch(rf"([\d.]+)([munpf]?){of}", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"unknown unit {text!r}")
    return float(match[1]) * {"": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}[match[2].lower()]


def _until(tokens: Iterator[str], end: str) -> Iterator[str]:
    """Yield the values before a token, without commas and quotation marks."""
    for token in tokens:
        if token == end:
            return
        if token != ",":
            yield re.sub(r"\\\s*\n\s*", "", token[1:-1]) if token.startswith('"') else token
    raise ValueError(f"the file ends before {end!r}")


class _Function:
    """Parser of the Boolean expressions of Liberty, with operators in the order of their precedence.

    ``!A`` or ``A'``, then ``A ^ B``, then ``A * B``, ``A & B`` or ``A B``, then ``A + B`` or ``A | B``.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = re.findall(r"[\w.\[\]]+|[!'^*&+|()]", text)
        self.pins = list(dict.fromkeys(token for token in self.tokens if re.match(r"[A-Za-z_]", token)))

    def parse(self) -> str:
        """Return the expression in Python, over integers ``v[...]`` and the mask ``m``."""
        expression = self._or()
        if self.tokens:
            raise ValueError(f"invalid function {self.text!r} in the Liberty file")
        return expression

    def _next(self, *which: str) -> bool:
        if self.tokens and self.tokens[0] in which:
            del self.tokens[0]
            return True
        return False

    def _or(self) -> str:
        terms = [self._and()]
        while self._next("+", "|"):
            terms.append(self._and())
        return f"({' | '.join(terms)})"

    def _and(self) -> str:
        terms = [self._xor()]
        while self._next("*", "&") or (self.tokens and self.tokens[0] not in ("+", "|", ")", "^", "'")):
            terms.append(self._xor())
        return f"({' & '.join(terms)})"

    def _xor(self) -> str:
        terms = [self._not()]
        while self._next("^"):
            terms.append(self._not())
        return f"({' ^ '.join(terms)})"

    def _not(self) -> str:
        if self._next("!"):
            return f"({self._not()} ^ m)"
        if self._next("("):
            operand = self._or()
            closed = self._next(")")
        else:
            operand, closed = self._name(), True
        while self._next("'"):
            operand = f"({operand} ^ m)"
        if not closed:
            raise ValueError(f"invalid function {self.text!r} in the Liberty file")
        return operand

    def _name(self) -> str:
        name = self.tokens.pop(0) if self.tokens else ""
        if name in ("0", "1"):
            return "0" if name == "0" else "m"
        if name not in self.pins:
            raise ValueError(f"invalid function {self.text!r} in the Liberty file")
        return f"v[{name!r}]"


@dataclass(frozen=True)
class Function:
    """Boolean function of pins.

    Attributes
    ----------
    text : str
        Expression in Liberty.
    pins : tuple of str
        Names in the expression, in order of first use.
    evaluate : callable
        Returns the bits of the result for the bits of the pins and a mask with a bit for each case.
    """

    text: str
    pins: tuple[str, ...]
    evaluate: Callable[[Values, int], int] = field(compare=False, repr=False)

    @classmethod
    @lru_cache(None)
    def parse(cls, text: str) -> Self:
        """Parse an expression; ValueError if it is invalid."""
        parser = _Function(text)
        pins = tuple(parser.pins)
        # The parser composes this expression from names and operators only.
        return cls(text, pins, eval(f"lambda v, m: {parser.parse()}"))

    def table(self) -> int:
        """Return the truth table: bit i is the result if pin k has the value of bit k of i."""
        count = 1 << len(self.pins)
        values = {
            pin: sum(1 << case for case in range(count) if case >> place & 1) for place, pin in enumerate(self.pins)
        }
        return self.evaluate(values, (1 << count) - 1)


@dataclass(frozen=True)
class Cell:
    """Cell of a library.

    Attributes
    ----------
    name : str
    area : float
        In the unit of the library, which is by convention a square micrometre.
    capacitances : dict of str to float
        Input pins with their capacitances in farad.
    functions : dict of str to Function
        Output pins with their functions, of pins and of the states of a flip-flop.
    group : Group
        All attributes.
    """

    name: str
    area: float
    capacitances: Mapping[str, float]
    functions: Mapping[str, Function]
    group: Group = field(compare=False, repr=False)

    @classmethod
    def of(cls, group: Group, farad: float) -> Self:
        """Read a group ``cell``; ``farad`` is the unit of capacitances."""
        if not group.names:
            raise ValueError("a cell has no name")
        pins = [*group.of("pin"), *(pin for bus in (*group.of("bus"), *group.of("bundle")) for pin in bus.of("pin"))]
        inputs = {
            pin.names[0]: pin.number("capacitance") * farad for pin in pins if pin.values.get("direction") == "input"
        }
        outputs = {pin.names[0]: pin.values["function"] for pin in pins if "function" in pin.values}
        three_state = any("three_state" in pin.values for pin in pins)
        functions = {} if three_state else {name: Function.parse(text) for name, text in outputs.items()}
        return cls(group.names[0], group.number("area"), inputs, functions, group)

    @property
    def is_gate(self) -> bool:
        """True if the cell is combinational and may be used."""
        state = self.is_register or any(group.kind == "statetable" for group in self.group.groups)
        return bool(self.functions) and not state and self.group.values.get("dont_use") != "true"

    @property
    def is_register(self) -> bool:
        """True if the cell is a flip-flop or a latch."""
        return any(group.kind in ("ff", "latch", "ff_bank", "latch_bank") for group in self.group.groups)


@dataclass(frozen=True)
class Library:
    """Standard-cell library.

    Parameters
    ----------
    text : str
        Content of the Liberty file.
    file : str
        Name of the file, for messages.
    path : Path, optional
        Path of the file, for commands; None for the default library.

    Raises
    ------
    ValueError
        If the text is no Liberty file, its units are missing or unknown, or the library has no inverter or no NAND of
        two inputs.
    """

    text: str = field(repr=False)
    file: str = "the Liberty file"
    path: Path | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            self._check()
        except ValueError as error:
            raise ValueError(f"{self.file}: {error}") from None

    def _check(self) -> None:
        # Their errors are those of the file.
        _ = self.second, self.farad, self.watt, self.voltage
        for what, gate in (("inverter", self.inverter), ("NAND of two inputs", self.nand)):
            if gate is None:
                raise ValueError(f"the library {self.name} has no {what}")

    @classmethod
    def read(cls, path: Path | None = None) -> Self:
        """Read a file; default: `OSU018`. ValueError if it cannot be read."""
        if path is None and not OSU018.is_file():
            raise ValueError("no standard cells: add --liberty FILE, or install Debian's package qflow-tech-osu018")
        file = path or OSU018
        try:
            return cls(file.read_text(errors="replace"), file.name, path)
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror or error}") from error

    @property
    def options(self) -> list[str]:
        """Options of `halfulp synth` for units in these cells."""
        return ["--target", "asic", *(["--liberty", str(self.path)] if self.path else [])]

    @cached_property
    def group(self) -> Group:
        """The whole file."""
        return Group.parse(self.text)

    @property
    def name(self) -> str:
        """Name of the library."""
        return " ".join(self.group.names)

    @property
    def digest(self) -> str:
        """Digest of the file."""
        return digest(self.text)

    @property
    def conditions(self) -> str:
        """Voltage and temperature of the figures."""
        return f"{self.voltage:g} V, {self.group.number('nom_temperature', 25):g} degrees Celsius"

    @property
    def voltage(self) -> float:
        """Supply in volt."""
        return self.group.number("nom_voltage") * _unit(self.group.values.get("voltage_unit", "1V"), "v")

    @property
    def watt(self) -> float:
        """Unit of leakage powers in watt."""
        return _unit(self.group.values.get("leakage_power_unit", "1nW"), "w")

    @cached_property
    def second(self) -> float:
        """Unit of time in seconds."""
        return _unit(self.group.values.get("time_unit", "1ns"), "s")

    @cached_property
    def farad(self) -> float:
        """Unit of capacitances in farad."""
        unit = self.group.lists.get("capacitive_load_unit")
        if unit is None:
            raise ValueError("the library has no capacitive_load_unit")
        return _unit("".join(unit), "f")

    @property
    def joule(self) -> float:
        """Unit of internal energies in joule: that of capacitances times the square of that of voltages."""
        return self.farad * _unit(self.group.values.get("voltage_unit", "1V"), "v") ** 2

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Cells by name."""
        return {cell.name: cell for cell in (Cell.of(group, self.farad) for group in self.group.of("cell"))}

    def _smallest(self, inputs: int, table: int) -> Cell | None:
        """Return the smallest gate of a function; None if there is none."""
        gates = [
            cell
            for cell in self.cells.values()
            if cell.is_gate and len(cell.capacitances) == inputs and len(cell.functions) == 1
            for function in cell.functions.values()
            if len(function.pins) == inputs and function.table() == table
        ]
        return min(gates, key=lambda cell: (cell.area, cell.name), default=None)

    @cached_property
    def nand(self) -> Cell | None:
        """Smallest NAND of two inputs, whose area is a gate equivalent."""
        return self._smallest(2, 0b0111)

    @cached_property
    def inverter(self) -> Cell | None:
        """Smallest inverter."""
        return self._smallest(1, 0b01)
