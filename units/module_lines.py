"""Lines of Verilog of a module, with its statements in the order of their dependencies."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from .expressions import (
    Node,
    joined,
    spelled,
    text_of,
)
from .modules import NAME, Choice, Instance, Module, Set, reads_of, sets_of, targets_of, unused, whole

LABELS = 60
"""Number of characters up to which labels of one case stand in a line."""

START = "at_start"
"""Register on which every combinational block depends, so that simulators run it at the start.

Icarus assigns initial values before it starts the blocks, so it needs a change.
"""

_WORD = re.compile(rf'"(?:[^"\\]|\\.)*"|\d*\'s?[bdho][0-9a-fxz?_]+|[.$]{NAME}|{NAME}')
"""Names in a statement that stays text, and what looks like one: texts, numbers, ports and system tasks."""


def start_of(module: Module) -> str:
    """Return the name of `START` in a module, which may have a port of this name."""
    return unused(START, module.ports)


def _grouped(module: Module) -> list[Any]:
    """Return the statements in the order of their dependencies, with registers of one clock and reset in one block."""
    groups: dict[str, list[Any]] = {}
    makers: dict[str, list[int]] = {}
    rest: list[Any] = []
    for statement in module.statements:
        if isinstance(statement, Choice) and statement.is_clocked:
            ((event, body),) = statement.items
            groups[event] = _united(groups.get(event, []), body)
        else:
            for name in targets_of(statement):
                makers.setdefault(name, []).append(len(rest))
            rest.append(statement)
    order: dict[int, None] = {}
    seen = set[int]()
    stack = [(place, False) for place in reversed(range(len(rest)))]
    while stack:
        place, is_ready = stack.pop()
        if is_ready:
            order[place] = None
        elif place not in seen:
            seen.add(place)
            stack.append((place, True))
            stack += [(maker, False) for name in [*reads_of([rest[place]])][::-1] for maker in makers.get(name, ())]
    return [rest[place] for place in order] + [
        Choice("always", joined([]), [(event, body)]) for event, body in groups.items()
    ]


def _united(first: list[Any], second: list[Any]) -> list[Any]:
    """Return statements for different registers as one list, in which those of one condition are together."""
    united, start = list(first), 0
    for statement in second:
        is_if = isinstance(statement, Choice) and statement.head == "if"
        for place in range(start, len(united) * is_if):
            if isinstance(united[place], Choice) and united[place][:2] == statement[:2]:
                both = zip(united[place].items, statement.items, strict=True)
                united[place] = statement._replace(items=[(label, _united(a, b)) for (label, a), (_, b) in both])
                start = place + 1
                break
        else:
            united.append(statement)
            start = len(united)
    return united


def lines_of(module: Module, initial: bool) -> Iterator[str]:
    """Yield the lines of a module."""
    statements = _grouped(module)
    inside = _declared_by_value(module, statements)
    start_name = start_of(module)
    name = module.name if re.fullmatch(r"\w+", module.name) else f"\\{module.name} "
    yield f"module {name}({', '.join(spelled(module.names.get(port, port)) for port in module.ports)});"
    if initial and any(isinstance(statement, Choice) and statement.is_combinational for statement in statements):
        yield f"  reg {start_name} = 0;\n`ifdef __ICARUS__\n  initial #0 {start_name} = 1;\n`endif"
    yield from _declarations(module, inside, initial)
    for statement in statements:
        if isinstance(statement, Set) and statement.target.args[0] in inside:
            value = text_of(statement.value, module.sizes, module.names)
            yield _declared(module, "wire", statement.target.args[0], f" = {value}")
        else:
            yield from _statement_lines(module, statement, start_name if initial else None)
    yield "endmodule"


def _declared_by_value(module: Module, statements: Sequence[Any]) -> set[str]:
    """Return the wires that are declared where they get their value: once, as a whole, before they are read."""
    made = Counter(
        name for statement in statements for assignment in sets_of(statement) for name in assignment.target.names()
    )
    inside, known = set[str](), set[str]()
    for statement in statements:
        known |= {name for name in reads_of([statement]) if name not in inside}
        if (
            isinstance(statement, Set)
            and statement.target.kind == "bits"
            and module.kinds[name := statement.target.args[0]] == "wire"
        ):
            if statement.target == whole(module, name) and made[name] == 1 and name not in known:
                inside.add(name)
    return inside


def _declared(module: Module, kind: str, name: str, value: str = "") -> str:
    """Return the declaration of a signal."""
    size = f"[{module.sizes[name] - 1}:0] " if module.sizes[name] > 1 else ""
    return f"  {kind} {size}{spelled(module.names.get(name, name))}{value};"


def _declarations(module: Module, inside: Collection[str], initial: bool) -> Iterator[str]:
    """Yield the declarations of ports and of signals that are not declared by their values."""
    for name in [*module.ports, *(name for name in module.sizes if name in module.used and name not in module.ports)]:
        if name in module.attributes:
            yield module.attributes[name]
        if name in module.ports:
            yield _declared(module, module.kinds[name].split()[0], name)
        if name not in inside and module.kinds[name] not in ("input", "output"):
            start = f" = {module.initial[name]}" if initial and name in module.initial else ""
            yield _declared(module, module.kinds[name].split()[-1], name, start)


def _statement_lines(module: Module, statement: Any, start_name: str | None) -> Iterator[str]:
    """Yield the lines of a statement; ``start_name`` is that of `START` if signals have initial values."""

    def renamed(text: str) -> str:
        def new(match: re.Match[str]) -> str:
            name = match[0].strip()
            return spelled(module.names[name]) if name in module.names else match[0]

        return _WORD.sub(new, text)

    def text(node: Node) -> str:
        return text_of(node, module.sizes, module.names)

    match statement:
        case Set(target, value):
            yield f"  assign {text(target)} = {text(value)};"
        case Choice(_, _, [("*", body)]):
            yield "  always @* begin"
            yield from [] if start_name is None else [f"    if ({start_name}) begin end"]
            yield from (*_body_lines(body, "    ", "=", text), "  end")
        case Choice(_, _, [(event, body)]):
            yield f"  always @({renamed(event)}) begin"
            yield from (*_body_lines(body, "    ", "<=", text), "  end")
        case Instance(head, ports):
            yield f"  {head} ("
            yield ",\n".join(f"    .{spelled(port)}({text(value)})" for port, value in ports.items())
            yield "  );"
        case _:
            yield renamed(statement)


def _body_lines(body: list[Any], indent: str, mark: str, text: Callable[[Node], str]) -> Iterator[str]:
    """Yield the lines of statements in a block."""
    for statement in body:
        match statement:
            case Set(target, value):
                yield f"{indent}{text(target)} {mark} {text(value)};"
            case Choice("if", selector, [(_, first), (_, second)]):
                yield f"{indent}if ({text(selector)}) begin"
                yield from _body_lines(first, f"{indent}  ", mark, text)
                if len(second) == 1 and isinstance(second[0], Choice) and second[0].head == "if":
                    lines = list(_body_lines(second, indent, mark, text))
                    yield from (f"{indent}end else {lines[0].strip()}", *lines[1:])
                    continue
                if second:
                    yield f"{indent}end else begin"
                    yield from _body_lines(second, f"{indent}  ", mark, text)
                yield f"{indent}end"
            case Choice(head, selector, items):
                yield from (indent + line for line in f"{head} ({text(selector)})".split("\n"))
                merged: list[tuple[str, list[Any]]] = []
                for label, inner in items:
                    same = merged and merged[-1][1] == inner and len(merged[-1][0] + label) < LABELS
                    merged.append((f"{merged.pop()[0]}, {label}" if same and label != "default" else label, inner))
                for label, inner in merged:
                    lines = list(_body_lines(inner, f"{indent}    ", mark, text))
                    if len(lines) > 1:
                        yield from (f"{indent}  {label}: begin", *lines, f"{indent}  end")
                    else:
                        yield f"{indent}  {label}: {lines[0].strip() if lines else ';'}"
                yield f"{indent}endcase"
