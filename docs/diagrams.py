"""Block diagrams of units as SVG, made from their formulas and ports, in the colours of the page.

Elements of a vector are one wire, and equal steps or products of elements are one operator with their number.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from halfulp.hdl.formats import Format
from halfulp.hdl.specs.formula import Call, Factor, Function, Pick, Role, Sum, Term
from halfulp.units.base import Unit

ROW, GAP, LETTER = 34, 44, 7.3
"""Height of a row, width between two columns, and width of a letter, in pixels."""

SVG = (
    '<div class="diagram"><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
    'width="{width:.0f}" role="img" fill="none" stroke="currentColor" font-family="monospace" font-size="12">'
)


@dataclass(eq=False)
class Node:
    """Port, operator or box, with the nodes that it takes and the marks at their wires; its place is in rows."""

    text: str
    kind: str
    inputs: list[tuple["Node", str]]
    column: int = 0
    row: float = 0

    @property
    def width(self) -> float:
        """Width in pixels."""
        return 24 if self.kind == "operator" else LETTER * max(map(len, self.text.split("\n"))) + 14


class DataPath:
    """Nodes of the data path of a unit, in the order of computation.

    Parameters
    ----------
    unit : Unit
    """

    def __init__(self, unit: Unit) -> None:
        spec = unit.spec
        self.nodes: list[Node] = []
        self._values: dict[str, Node] = {}
        self._vectors = {port.name: port.argument or port.name for port in spec.ports}
        held = [port.name for port in spec.ports if port.role is Role.STATE]
        self.start = self._start(unit, held) if held else None
        self.register: Node | None = None
        done: dict[str, Node] = {}
        for step in spec.formula.steps:
            names = step.names if isinstance(step, Function) else (step.name,)
            key = self._key(step)
            count = sum(self._key(other) == key for other in spec.formula.steps)
            node = done[key] = done.get(key) or self._step(unit, step, count)
            self._values |= dict.fromkeys(names, node)
        if self.start is not None and self.register is None:
            node = self.register = self._add("register", "box", [node])
        for text in _grouped(unit, unit.outputs):
            self._add(text, "output", [node])
        self._place()

    def _key(self, step: Sum | Function) -> str:
        """Text of a step, equal for the elements of a vector."""
        return self._vector(str(step).partition(" = ")[2])

    def _vector(self, text: str) -> str:
        """Replace the names of elements by those of their vectors."""
        return re.sub(r"\w+", lambda match: self._vectors.get(match[0], match[0]), text)

    def _add(self, text: str, kind: str, inputs: Iterable["Node | tuple[Node, str]"]) -> Node:
        wires = [wire if isinstance(wire, tuple) else (wire, "") for wire in inputs]
        self.nodes.append(Node(text, kind, list({id(node): (node, mark) for node, mark in wires}.values())))
        return self.nodes[-1]

    def _input(self, unit: Unit, name: str) -> Node:
        vector = self._vectors.get(name, name)
        if vector not in self._values:
            names = [port for port, argument in self._vectors.items() if argument == vector] or [name]
            (text,) = _grouped(unit, names)
            self._values[vector] = self._add(text, "input", [])
        return self._values[vector]

    def _value(self, unit: Unit, name: str) -> Node:
        return self._values[name] if name in self._values else self._input(unit, name)

    def _start(self, unit: Unit, held: list[str]) -> Node:
        """Selection of the sum that a step of an accumulator begins with."""
        starts = [port.name for port in unit.spec.ports if port.role is Role.START]
        node = self._add("start", "box", [self._input(unit, name) for name in (*starts, *held)])
        self._values |= dict.fromkeys(starts, node)
        return node

    def _step(self, unit: Unit, step: Sum | Function, count: int) -> Node:
        if isinstance(step, Function):
            names = [*step.call.operands, *(["mode"] if unit.spec.rounding.is_port else [])]
            return self._add(step.call.function, "box", [self._value(unit, name) for name in names])
        groups = {self._vector(str(term)): term for term in step.terms}
        counts = [sum(self._vector(str(other)) == key for other in step.terms) * count for key in groups]
        wires = [self._term(unit, term, number) for term, number in zip(groups.values(), counts, strict=True)]
        node, mark = wires[0]
        if len(step.terms) > 1 or mark:
            node = self._add("+", "operator", wires)
        if step.register is not None and self.start is not None:
            node = self.register = self._add("exact register", "box", [node])
        if step.o is None:
            return node
        words = (
            [self._input(unit, step.word)] if step.word in unit.inputs or step.word in unit.signature.members else []
        )
        number = f"{count} × " if count > 1 and node.kind != "operator" else ""
        return self._add(f"{number}round {step.rounding}\n{step.o}", "box", [node, *words])

    def _term(self, unit: Unit, term: Term, number: int) -> tuple[Node, str]:
        factors = [self._factor(unit, factor) for factor in term.factors]
        factors += [self._value(unit, name) for name in term.scales]
        node = factors[0]
        if len(factors) > 1:
            node = self._add(f"{number} ×" if number > 1 else "×", "box" if number > 1 else "operator", factors)
        mark = "−" if term.negative else ""
        if term.negated_by is not None:
            node, mark = self._add("±", "operator", [node, self._input(unit, term.negated_by)]), ""
        return node, mark

    def _factor(self, unit: Unit, factor: Factor) -> Node:
        if isinstance(factor, Call):
            return self._add(factor.function, "box", [self._value(unit, name) for name in factor.operands])
        if isinstance(factor, Pick):
            return self._add("select", "box", [self._input(unit, name) for name in (*factor.choices, factor.index)])
        return self._value(unit, factor)

    def _place(self) -> None:
        """Choose columns by depth, and rows in which no wire passes through a node."""
        inputs = [node for node in self.nodes if node.kind == "input"]
        others = [node for node in self.nodes if node.kind != "input"]
        for row, node in enumerate(inputs):
            node.row = row
        for node in others:
            node.column = 1 + max(taken.column for taken, _ in node.inputs)
        end = max(node.column for node in others)
        outputs = [node for node in others if node.kind == "output"]
        for node in outputs:
            node.column = end
        placed: list[Node] = []
        for node in sorted(others, key=lambda node: node.column):
            taken = [(other.row, 1.0) for other in placed if other.column == node.column]
            # Wires of other nodes that pass by.
            passing = [other for other in (*inputs, *placed) if other.column < node.column < self._last(other)]
            taken += [(other.row, 0.7) for other in passing]
            wanted = sum(other.row for other, _ in node.inputs) / len(node.inputs)
            if node in outputs:
                wanted += outputs.index(node) - (len(outputs) - 1) / 2
            rows = [row for step in range(-40, 40) if (row := wanted + step / 4) >= 0]
            node.row = min(
                (row for row in rows if all(abs(row - other) >= room for other, room in taken)),
                key=lambda row: abs(row - wanted),
            )
            placed.append(node)

    def _last(self, node: Node) -> int:
        """Column of the last node that takes a value."""
        return max((other.column for other in self.nodes if any(node is taken for taken, _ in other.inputs)), default=0)

    def svg(self, title: str) -> str:
        """Return the diagram as one line of SVG."""
        columns = range(1 + max(node.column for node in self.nodes))
        widths = [max(node.width for node in self.nodes if node.column == column) for column in columns]
        left = [8 + sum(widths[:column]) + column * GAP for column in columns]
        top = 4 if self.register is None else 16
        height = (max(node.row for node in self.nodes) + 1) * ROW + top + 4
        parts = [f"<title>{escape(title)}</title>"]
        for node in self.nodes:
            x, y = left[node.column], (node.row + 0.5) * ROW + top
            for place, (taken, mark) in enumerate(sorted(node.inputs, key=lambda wire: wire[0].row)):
                # Wires turn next to their end: outer ones first, so that none crosses another.
                target = y + (place - (len(node.inputs) - 1) / 2) * min(8, 22 / len(node.inputs))
                begin = left[taken.column] + (widths[0] if taken.kind == "input" else taken.width)
                source, turn = (taken.row + 0.5) * ROW + top, x - 10 - 5 * min(place, len(node.inputs) - 1 - place)
                parts.append(f'<path d="M{begin:.1f} {source:.1f}H{turn:.1f}V{target:.1f}H{x:.1f}"/>')
                if node.column < self._last(taken):
                    parts.append(_dot(turn, source))
                if mark:
                    parts.append(text(x - 1, target + (10 if target > y else -3), mark, "end"))
            parts.append(_shape(node, x, y, widths[0]))
        if self.start is not None and self.register is not None:
            # Above all others, so that it passes through no node.
            x, y = left[self.register.column] + self.register.width + 10, (self.register.row + 0.5) * ROW + top
            back, end = left[self.start.column] + self.start.width / 2, (self.start.row + 0.5) * ROW + top - 13
            parts.append(f'<path d="M{x:.1f} {y:.1f}V6H{back:.1f}V{end:.1f}"/>{_dot(x, y)}')
        return SVG.format(width=left[-1] + widths[-1] + 8, height=height) + "".join(parts) + "</svg></div>"


def _dot(x: float, y: float) -> str:
    """Place at which a wire branches."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="currentColor"/>'


def _grouped(unit: Unit, names: Iterable[str]) -> list[str]:
    """Names of ports with their formats; the elements of a vector are one."""
    members, texts = unit.signature.members, {}
    for name in names:
        shape = members[name].shape if name in members else ""
        texts.setdefault(re.sub(r"\d+$", "", name), []).append((name, str(shape) if isinstance(shape, Format) else ""))
    return [
        f"{ports[0][0]}{f' … {ports[-1][0]}' if len(ports) > 1 else ''} {ports[0][1]}".strip()
        for ports in texts.values()
    ]


def _shape(node: Node, x: float, y: float, width: float) -> str:
    if node.kind == "input":
        return text(x + width - 4, y + 4, node.text, "end")
    if node.kind == "output":
        return text(x + 4, y + 4, node.text, "start")
    if node.kind == "operator":
        return f'<circle cx="{x + 12:.1f}" cy="{y:.1f}" r="12"/>' + text(x + 12, y + 4, node.text, "middle")
    lines = node.text.split("\n")
    texts = [
        text(x + node.width / 2, y + 4 + 13 * (place - (len(lines) - 1) / 2), line, "middle")
        for place, line in enumerate(lines)
    ]
    half = 13 if len(lines) == 1 else math.ceil(ROW / 2)
    return f'<rect x="{x:.1f}" y="{y - half:.1f}" width="{node.width:.1f}" height="{2 * half}" rx="3"/>' + "".join(
        texts
    )


def text(x: float, y: float, words: str, anchor: str) -> str:
    """Return words in the colour of the page; ``anchor`` is start, middle or end."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" stroke="none">{escape(words)}</text>'
    )
