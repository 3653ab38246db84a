"""Text of a module: ports, registers, then each value before its uses."""

from collections.abc import Iterator

from .cases import complete, patterns_of
from .expressions import refs, spelled, text_of
from .statements import Block, Body, Case, Declaration, If, Instance, Module, Raw, Set, Statement, sets_in

START = "at_start"
"""Register on whose change combinational blocks run at the beginning of a simulation."""


def text_of_module(module: Module, *, initial: bool = True) -> str:
    """Return the Verilog of a module; without ``initial``, registers have no initial values."""
    order, early = _ordered(module)
    inside = {
        one.target.name
        for one in order
        if isinstance(one, Set) and one.target.is_whole and _is_wire(module.declarations[one.target.name])
    } - early
    lines = [f"module {spelled(module.name)}({', '.join(map(spelled, module.ports))});"]
    has_blocks = any(isinstance(one, Block) and not one.clocked for one in order)
    if has_blocks and initial:
        lines += [f"  reg {START} = 0;", "`ifdef __ICARUS__", f"  initial #0 {START} = 1;", "`endif"]
    names = [*module.ports, *(name for name in module.declarations if name not in module.ports)]
    for name in names:
        if name not in inside:
            lines += _declared(name, module.declarations[name], initial)
    for statement in order:
        match statement:
            case Set(target, value):
                if target.name in inside:
                    one = module.declarations[target.name]
                    kind, target_text = f"wire {_range(one.size)}", spelled(target.name)
                else:
                    kind, target_text = "assign ", text_of(target)
                lines.append(f"  {kind}{target_text} = {text_of(value)};")
            case Instance():
                ports = [f"    .{spelled(port)}({text_of(value)})" for port, value in statement.ports.items()]
                lines += [f"  {statement.kind}{spelled(statement.name)} (", ",\n".join(ports), "  );"]
            case Block():
                event = f"({statement.event})" if statement.clocked else "*"
                if statement.clocked:
                    lines += [f"  always @{event}" + " begin" * (len(statement.body) > 1)]
                    lines += _body(statement.body, 4, "<=")
                    lines += ["  end"] * (len(statement.body) > 1)
                else:
                    lines += ["  always @* begin"]
                    lines += [f"    if ({START}) begin end"] * initial
                    lines += [*_body(statement.body, 4, "="), "  end"]
            case Raw():
                if initial or not statement.text.startswith("  initial"):
                    lines.append(statement.text)
    return "\n".join([*lines, "endmodule"])


def _is_wire(one: Declaration) -> bool:
    return not (one.direction or one.is_reg or one.memory or one.attributes)


def _range(size: int) -> str:
    return f"[{size - 1}:0] " if size > 1 else ""


def _declared(name: str, one: Declaration, initial: bool) -> Iterator[str]:
    yield from (f"  {text}" for text in one.attributes)
    if one.direction:
        yield f"  {one.direction} {_range(one.size)}{spelled(name)};"
    if one.is_reg or not one.direction:
        value = f" = {one.initial}" if one.initial and initial else ""
        words = f" {one.memory}" if one.memory else ""
        yield f"  {'reg' if one.is_reg else 'wire'} {_range(one.size)}{spelled(name)}{words}{value};"


def _ordered(module: Module) -> tuple[list[Statement], set[str]]:
    """Return the statements, each value before its uses, and the values in loops of statements."""
    makers: dict[str, list[int]] = {}
    needs: list[list[str]] = []
    for number, statement in enumerate(module.statements):
        inner = Module("", [], {}, [statement])
        needs.append(list(dict.fromkeys(ref.name for value in inner.expressions() for ref in refs(value))))
        for name in _made_by(statement, module):
            makers.setdefault(name, []).append(number)
        if isinstance(statement, Raw):
            needs[-1] = statement.names
    done: dict[int, bool] = {}
    order: list[int] = []
    early: set[str] = set()
    last = [number for number, one in enumerate(module.statements) if isinstance(one, Block) and one.clocked]
    first = [number for number in range(len(needs)) if number not in set(last)]
    for start in [*first, *last]:
        if start in done:
            continue
        stack = [(start, iter(needs[start]))]
        done[start] = False
        while stack:
            number, rest = stack[-1]
            for name in rest:
                for maker in makers.get(name, ()):
                    if maker not in done:
                        done[maker] = False
                        stack.append((maker, iter(needs[maker])))
                    elif not done[maker]:
                        early.add(name)
                if stack[-1][0] != number:
                    break
            else:
                done[number] = True
                order.append(number)
                stack.pop()
    place = {number: index for index, number in enumerate(order)}
    # A name with several makers may be used before the last of them.
    for number, names in enumerate(needs):
        early |= {name for name in names if any(place[maker] > place[number] for maker in makers.get(name, ()))}
    return [module.statements[number] for number in order], early


def _made_by(statement: Statement, module: Module) -> list[str]:
    """Return the wires that a statement makes."""
    match statement:
        case Set(target):
            return [target.name]
        case Block() if not statement.clocked:
            return list({one.target.name for one in sets_in(statement.body)})
    return []


def _body(body: Body, indent: int, mark: str) -> Iterator[str]:
    space = " " * indent
    for item in body:
        match item:
            case Set(target, value):
                yield f"{space}{text_of(target)} {mark} {text_of(value)};"
            case If():
                yield from _if(item, indent, mark)
            case Case():
                items = _merged(item)
                patterns = [pattern for labels, _ in item.items for pattern in patterns_of(labels)]
                if item.full and not complete(patterns):
                    yield f"{space}(* full_case = 32'd1 *)"
                yield f"{space}{item.word} ({text_of(item.selector)})"
                for labels, inner in items:
                    lines = list(_body(inner, indent + 4, mark))
                    if len(inner) == 1 and isinstance(inner[0], Set):
                        yield f"{space}  {labels}: {lines[0].lstrip()}"
                    elif not inner:
                        yield f"{space}  {labels}: ;"
                    else:
                        yield from (f"{space}  {labels}: begin", *lines, f"{space}  end")
                yield f"{space}endcase"


def _merged(choice: Case) -> list[tuple[str, Body]]:
    """Return the items of a choice, with neighbours of one result as one item."""
    items: list[tuple[str, Body]] = []
    for labels, inner in choice.items:
        before = items[-1] if items else None
        if before and before[1] == inner and "default" not in labels and len(before[0]) + len(labels) < 60:
            items[-1] = f"{before[0]}, {labels}", inner
        else:
            items.append((labels, inner))
    return items


def _if(item: If, indent: int, mark: str) -> Iterator[str]:
    space = " " * indent
    word = f"{space}if"
    for condition, inner in item.branches:
        yield f"{word} ({text_of(condition)}) begin"
        yield from _body(inner, indent + 2, mark)
        word = f"{space}end else if"
    rest = item.otherwise
    while len(rest) == 1 and isinstance(rest[0], If):
        for condition, inner in rest[0].branches:
            yield f"{word} ({text_of(condition)}) begin"
            yield from _body(inner, indent + 2, mark)
        rest = rest[0].otherwise
    if rest:
        yield f"{space}end else begin"
        yield from _body(rest, indent + 2, mark)
    yield f"{space}end"
