"""Modules of Verilog as Yosys writes them: signals, and statements of expressions."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from .expressions import (
    Node,
    Unreadable,
    joined,
    read,
)

NAME = r"(\\\S+ |[A-Za-z_][\w$]*)"
HEAD = re.compile(r"^module \\?([^ (]+)")
_DECLARED = re.compile(rf"  (input|output|wire|reg) (?:\[(\d+):0\] )?{NAME}(?: = (\S+))?;")
_SET = re.compile(r"(\{.*?\}|[^={]+?) <?= (.*);")
_INSTANCE = re.compile(rf"  ({NAME} (?:#\(.*\) )?{NAME}) \($")
_CONNECTION = re.compile(rf"    \.{NAME}\((.*)\),?")

_ENDS = re.compile(r"end(?:case$|$| else )|default:|\d+'")


class Set(NamedTuple):
    """Assignment."""

    target: Node
    value: Node


class Choice(NamedTuple):
    """Statement with others: ``if`` with those of both cases, ``case`` with labels, or ``always`` with its event."""

    head: str
    selector: Node
    items: list[tuple[str, list[Any]]]

    @property
    def is_clocked(self) -> bool:
        """True for registers."""
        return self.head == "always" and self.items[0][0] != "*"

    @property
    def clocks(self) -> list[str]:
        """Names of the signals in the event of registers."""
        names = (name.strip() for name in re.findall(NAME, self.items[0][0] if self.is_clocked else ""))
        return [name for name in names if name not in ("posedge", "negedge", "or")]

    @property
    def is_combinational(self) -> bool:
        """True for an ``always`` block without a clock."""
        return self.head == "always" and self.items[0][0] == "*"


class Instance(NamedTuple):
    """Instance: module, parameters and name; and its connections by port."""

    head: str
    ports: dict[str, Node]


class Module:
    """Module of Yosys, read from its text.

    Attributes
    ----------
    sizes, kinds, initial, attributes, names : dict
        Width, kind, initial value, attributes, and new name of signals, by name.
    views : dict
        Names of signals that are only a concatenation of bits of others, by its parts.
    statements : list
        Assignments, blocks, instances, and other statements as texts.
    used : set
        Names of ports and of the signals in statements.
    order : list
        Names in the order of their uses in the text.
    """

    def __init__(self, text: str) -> None:
        self.name = HEAD.findall(text)[0]
        self.sizes: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.initial: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.views: dict[tuple[Node, ...], str] = {}
        pending: list[str] = []
        chunks: list[list[str]] = []
        for line in text[text.index(";\n") + 2 :].split("\n")[:-1]:
            if line.startswith("  (*"):
                pending.append(line)
            elif declared := _DECLARED.fullmatch(line):
                kind, high, name, initial = declared.groups()
                name = name.strip()
                self.sizes[name] = int(high or 0) + 1
                self.kinds[name] = {"input wire": "input", "output wire": "output"}.get(
                    declaration := f"{self.kinds.get(name, '')} {kind}".strip(), declaration
                )
                self.initial |= {name: initial} if initial else {}
                if kept := [attribute for attribute in pending if not attribute.startswith("  (* init =")]:
                    self.attributes[name] = "\n".join(kept)
                pending = []
            elif re.match(r"  (?!end\b|\))\S", line):
                chunks.append([*pending, line])
                pending = []
            else:
                chunks[-1].append(line)
        self.ports = [name for name, kind in self.kinds.items() if kind.startswith(("input", "output"))]
        self.used: set[str] = set()
        self.order = list(
            dict.fromkeys(name.strip() for chunk in chunks for name in re.findall(NAME, "\n".join(chunk)))
        )
        self.statements = [self._statement(chunk) for chunk in chunks]

    def _statement(self, lines: list[str]) -> Any:
        try:
            if lines[0].startswith("  assign "):
                return self._set(lines[0].removeprefix("  assign "))
            if event := re.fullmatch(r"  always @\(?(.*?)\)?( begin)?", lines[0]):
                rest = [line.strip() for line in lines[1 : -1 if event[2] else None]][::-1]
                block = Choice("always", joined([]), [(event[1], self._body(rest))])
                if not rest:
                    return block
            elif instance := _INSTANCE.match(lines[0]):
                matches = [_CONNECTION.fullmatch(line) for line in lines[1:-1]]
                return Instance(
                    instance[1], {match[1].strip(): read(match[2], self.sizes) for match in matches if match}
                )
        except Unreadable:
            pass
        return "\n".join(lines)

    def _set(self, text: str) -> Set:
        if (match := _SET.fullmatch(text)) is None:
            raise Unreadable(text)
        return Set(read(match[1], self.sizes), read(match[2], self.sizes))

    def _body(self, rest: list[str]) -> list[Any]:
        """Read statements up to the end of their block or the next label, from the end of reversed lines."""
        body: list[Any] = []
        attributes = ""
        while rest and not _ENDS.match(rest[-1]):
            line = rest.pop()
            if line.startswith("(*"):
                attributes += f"{line}\n"
            elif "dump_module$" in line or line == "/* empty */;":
                continue
            elif match := re.fullmatch(r"(casez?) \((.*)\)", line):
                body.append(Choice(attributes + match[1], read(match[2], self.sizes), self._items(rest)))
                attributes = ""
            elif line.startswith("if (") and line.endswith(" begin"):
                body.append(self._if(line, rest))
            elif match := re.fullmatch(rf"if \({NAME}\) (.*;)", line):
                # A register with an asynchronous reset.
                other = self._set(rest.pop().removeprefix("else "))
                body.append(Choice("if", read(match[1], self.sizes), [("", [self._set(match[2])]), ("else", [other])]))
            else:
                body.append(self._set(line))
        return body

    def _items(self, rest: list[str]) -> list[tuple[str, list[Any]]]:
        items = []
        while (label := rest.pop()) != "endcase":
            while not label.endswith(":"):
                label += f" {rest.pop()}"
            end = rest.pop() if rest[-1] == "begin" else ""
            items.append((label[:-1].rstrip(), self._body(rest)))
            if end:
                rest.pop()
        return items

    def _if(self, line: str, rest: list[str]) -> Choice:
        selector = read(line[line.index("(") + 1 : -len(") begin")], self.sizes)
        body, other = self._body(rest), list[Any]()
        line = rest.pop()
        if line == "end else begin":
            other = self._body(rest)
            rest.pop()
        elif line != "end":
            other = [self._if(line, rest)]
        return Choice("if", selector, [("", body), ("else", other)])


def sets_of(statement: Any) -> Iterator[Set]:
    """Yield the assignments in a statement."""
    if isinstance(statement, Set):
        yield statement
    elif isinstance(statement, Choice):
        yield from (assignment for _, body in statement.items for inner in body for assignment in sets_of(inner))


def targets_of(statement: Any) -> list[str]:
    """Return the names of the signals that a statement assigns."""
    return list(dict.fromkeys(name for assignment in sets_of(statement) for name in assignment.target.names()))


def values_of(statement: Any, user: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the expressions that a statement reads, each with the name of a signal that depends on it."""
    if isinstance(statement, Instance):
        name = re.split(r"\W+", statement.head.strip())[-1]
        yield from ((f"{name}_{port}", value) for port, value in statement.ports.items())
    elif not isinstance(statement, str):
        user = next(iter(targets_of(statement)), user)
        yield user, statement[1]
        if isinstance(statement, Choice):
            yield from (
                expression for _, body in statement.items for inner in body for expression in values_of(inner, user)
            )


def reads_of(statements: Sequence[Any]) -> Iterator[str]:
    """Yield the name of a signal for each use; statements that are texts use all their words."""
    for statement in statements:
        if isinstance(statement, str):
            yield from (name.strip() for name in re.findall(NAME, statement))
        else:
            yield from statement.clocks if isinstance(statement, Choice) else ()
            yield from (name for _, value in values_of(statement) for name in value.names())


def changed(statement: Any, change: Callable[[Node, int], Node], target: Node | None = None) -> Any:
    """Return a statement with other expressions, and other targets; ``change`` also gets the width of the context."""
    match statement:
        case Set(old, value):
            new = old if target is None else old._replace(args=(target.args[0], old.args[1]))
            return Set(new, change(value, old.width))
        case Choice(head, selector, items):
            items = [(label, [changed(inner, change, target) for inner in body]) for label, body in items]
            return Choice(head, change(selector, selector.width), items)
        case Instance(head, ports):
            return Instance(head, {port: change(value, value.width) for port, value in ports.items()})
    return statement


def fixed_names(module: Module) -> set[str]:
    """Return the names of signals that stay: with attributes, in statements that are texts, or clocks."""
    texts = reads_of([statement for statement in module.statements if isinstance(statement, str)])
    clocks = (name for statement in module.statements if isinstance(statement, Choice) for name in statement.clocks)
    return {*texts, *clocks, *module.attributes}


def whole(module: Module, name: str) -> Node:
    return Node("bits", (name, 0), module.sizes[name])


def unused(stem: str, taken: Collection[str], first: int = 2) -> str:
    """Return a name that is not taken: the stem, or the stem with the first free number from ``first`` up."""
    numbered = (f"{stem}_{n}" for n in count(first))
    names = numbered if first == 1 else chain([stem], numbered)
    return next(name for name in names if name not in taken)
