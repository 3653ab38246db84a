"""Verilog for readers, from that of Yosys: the same values with fewer temporary signals, which have names."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from .expressions import (
    COMPARISONS,
    REDUCTIONS,
    Node,
    Unreadable,
    joined,
    read,
    replaced,
    sliced,
    spelled,
    stem_of,
    text_of,
)
from .keywords import KEYWORDS

LONGEST, SHORT = 60, 10
"""Numbers of characters up to which the value of a temporary signal is written in place of its only use, or of each."""

CHOICES = 4
"""Number of assignments up to which a block becomes a conditional expression."""

START = "at_start"
"""Register on which every combinational block depends, so that simulators run it at the start.

Icarus assigns initial values before it starts the blocks, so it needs a change.
"""

_FIRST = ("clk", "rst", "en", "valid")
"""Ports that come first."""

_NAME = r"(\\\S+ |[A-Za-z_][\w$]*)"
_MODULE = re.compile(r"^module .*?^endmodule", re.M | re.S)
_HEAD = re.compile(r"^module \\?([^ (]+)")
_DECLARED = re.compile(rf"  (input|output|wire|reg) (?:\[(\d+):0\] )?{_NAME}(?: = (\S+))?;")
_SET = re.compile(r"(\{.*?\}|[^={]+?) <?= (.*);")
_INSTANCE = re.compile(rf"  ({_NAME} (?:#\(.*\) )?{_NAME}) \($")
_CONNECTION = re.compile(rf"    \.{_NAME}\((.*)\),?")
_WORD = re.compile(rf'"(?:[^"\\]|\\.)*"|\d*\'s?[bdho][0-9a-fxz?_]+|[.$]{_NAME}|{_NAME}')
"""Names in a statement that stays text, and what looks like one: texts, numbers, ports and system tasks."""

_ENDS = re.compile(r"end(?:case$|$| else )|default:|\d+'")
_TEMPORARY = re.compile(r"\\(port)?\$[\d$]+|_\d+_|\S*_part(?:\$\d+)?")

_WORDS = COMPARISONS | {
    "&": "and",
    "|": "or",
    "^": "xor",
    "~": "inverted",
    "?": "chosen",
    "+": "sum",
    "-": "difference",
}
_WORDS |= {"*": "product", "<<": "shifted", ">>": "shifted", ">>>": "shifted", "{}": "bits"}
"""Words for the operators of temporary signals."""


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
        names = (name.strip() for name in re.findall(_NAME, self.items[0][0] if self.is_clocked else ""))
        return [name for name in names if name not in ("posedge", "negedge", "or")]

    @property
    def is_combinational(self) -> bool:
        """True for an ``always`` block without a clock."""
        return self.head == "always" and self.items[0][0] == "*"


class Instance(NamedTuple):
    """Instance: module, parameters and name; and its connections by port."""

    head: str
    ports: dict[str, Node]


class _Module:
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
        self.name = _HEAD.findall(text)[0]
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
            dict.fromkeys(name.strip() for chunk in chunks for name in re.findall(_NAME, "\n".join(chunk)))
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
            elif match := re.fullmatch(rf"if \({_NAME}\) (.*;)", line):
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


def readable(text: str, members: Mapping[str, Mapping[str, bool]], *, initial: bool = True) -> str:
    """Return a text of Yosys for readers.

    Parameters
    ----------
    text : str
    members : mapping
        Ports of components in their order, with True for inputs, by the names of modules.
    initial : bool
        Registers have initial values.

    Raises
    ------
    ValueError
        If registers without initial values have no reset.
    """
    modules = {_HEAD.findall(module)[0]: _Module(module) for module in _MODULE.findall(text)}
    _restore_ports(modules, members)
    for module in modules.values():
        for step in (_merge_registers, _replace_choices, _resolve_aliases, _sweep, _inline, _use_views, _sweep):
            step(module)
        if not initial:
            _check_resets(module)
        _name_signals(module)
    return _MODULE.sub(lambda match: "\n".join(_lines(modules[_HEAD.findall(match[0])[0]], initial)), text)


def _sets(statement: Any) -> Iterator[Set]:
    """Yield the assignments in a statement."""
    if isinstance(statement, Set):
        yield statement
    elif isinstance(statement, Choice):
        yield from (assignment for _, body in statement.items for inner in body for assignment in _sets(inner))


def _targets(statement: Any) -> list[str]:
    """Return the names of the signals that a statement assigns."""
    return list(dict.fromkeys(name for assignment in _sets(statement) for name in assignment.target.names()))


def _values(statement: Any, user: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the expressions that a statement reads, each with the name of a signal that depends on it."""
    if isinstance(statement, Instance):
        name = re.split(r"\W+", statement.head.strip())[-1]
        yield from ((f"{name}_{port}", value) for port, value in statement.ports.items())
    elif not isinstance(statement, str):
        user = next(iter(_targets(statement)), user)
        yield user, statement[1]
        if isinstance(statement, Choice):
            yield from (
                expression for _, body in statement.items for inner in body for expression in _values(inner, user)
            )


def _reads(statements: Sequence[Any]) -> Iterator[str]:
    """Yield the name of a signal for each use; statements that are texts use all their words."""
    for statement in statements:
        if isinstance(statement, str):
            yield from (name.strip() for name in re.findall(_NAME, statement))
        else:
            yield from statement.clocks if isinstance(statement, Choice) else ()
            yield from (name for _, value in _values(statement) for name in value.names())


def _changed(statement: Any, change: Callable[[Node, int], Node], target: Node | None = None) -> Any:
    """Return a statement with other expressions, and other targets; ``change`` also gets the width of the context."""
    match statement:
        case Set(old, value):
            new = old if target is None else old._replace(args=(target.args[0], old.args[1]))
            return Set(new, change(value, old.width))
        case Choice(head, selector, items):
            items = [(label, [_changed(inner, change, target) for inner in body]) for label, body in items]
            return Choice(head, change(selector, selector.width), items)
        case Instance(head, ports):
            return Instance(head, {port: change(value, value.width) for port, value in ports.items()})
    return statement


def _fixed(module: _Module) -> set[str]:
    """Return the names of signals that stay: with attributes, in statements that are texts, or clocks."""
    texts = _reads([statement for statement in module.statements if isinstance(statement, str)])
    clocks = (name for statement in module.statements if isinstance(statement, Choice) for name in statement.clocks)
    return {*texts, *clocks, *module.attributes}


def _whole(module: _Module, name: str) -> Node:
    return Node("bits", (name, 0), module.sizes[name])


def _restore_ports(modules: Mapping[str, _Module], members: Mapping[str, Mapping[str, bool]]) -> None:
    """Give inner modules the ports of their components.

    Amaranth joins the bits that cross the border of a module, and does not name a port after a signal with other bits.
    """
    for parent in modules.values():
        for place, statement in enumerate(parent.statements):
            if isinstance(statement, Instance) and (name := statement.head.strip("\\").split()[0]) in modules:
                parent.statements[place] = _restored(statement, modules[name], parent, members.get(name, {}))
    for name, module in modules.items():
        places = {port: place for place, port in enumerate(dict.fromkeys([*_FIRST, *members.get(name, {})]))}
        module.ports.sort(key=lambda port: places.get(port, -1))


def _restored(instance: Instance, module: _Module, parent: _Module, members: Mapping[str, bool]) -> Instance:
    """Return an instance whose ports are the members of its component, and give its module these ports."""
    ports = dict(instance.ports)
    sets = {
        assignment.target: assignment.value
        for assignment in module.statements
        if isinstance(assignment, Set) and assignment.value.is_wiring
    }
    covered: dict[tuple[str, int], Node] = {}
    for name, is_input in members.items():
        if module.kinds.get(name) != "wire" or (own := _whole(module, name)) not in sets:
            continue
        value = sets[own]
        if is_input:
            if not _are_inputs(value, ports, module):
                continue
            ports[name] = replaced(value, lambda node: sliced(ports[node.args[0]], node.args[1], node.width), 0)
            module.statements.remove(Set(own, value))
        else:
            ports[name] = _new_wire(parent, f"{stem_of(instance.head.split()[-1])}__{name}", own.width)
        _add_port(module, name, is_input)
        covered = _by_source(value, own if is_input else ports[name]) | covered
    for name in [name for name in ports if name not in members]:
        is_input, own = module.kinds[name] == "input", _whole(module, name)
        sources = list(_bits(own if is_input else sets.get(own, own)))
        if all(source in covered for source in sources):
            target, user = (own, module) if is_input else (ports[name], parent)
            user.statements.append(Set(target, joined([covered[source] for source in sources])))
            _remove_port(module, name)
            del ports[name]
    return Instance(instance.head, _with_plain_names(ports, module))


def _by_source(value: Node, port: Node) -> dict[tuple[str, int], Node]:
    """Return the bit of a port that holds each bit of the signals of its value."""
    bits: dict[tuple[str, int], Node] = {}
    for source, bit in zip(_bits(value), _bits(port), strict=True):
        if source[0]:
            bits.setdefault(source, Node("bits", bit, 1))
    return bits


def _are_inputs(node: Node, ports: Collection[str], module: _Module) -> bool:
    """Return True if an expression reads only inputs of a module that are ports."""
    return all(name in ports and module.kinds[name] == "input" for name in node.names())


def _with_plain_names(ports: dict[str, Node], module: _Module) -> dict[str, Node]:
    """Give ports with generated names others, after all other ports."""
    for name in [name for name in ports if "$" in name]:
        module.names[name] = _unused("port", {*module.sizes, *ports}, first=1)
        ports[module.names[name]] = ports.pop(name)
    return ports


def _add_port(module: _Module, name: str, is_input: bool) -> None:
    """Make a wire a port."""
    module.kinds[name] = "input" if is_input else "output"
    module.ports.append(name)


def _remove_port(module: _Module, name: str) -> None:
    """Make a port a wire or a register."""
    module.kinds[name] = "reg" if module.kinds[name] == "output reg" else "wire"
    module.ports.remove(name)


def _new_wire(module: _Module, stem: str, width: int) -> Node:
    """Add a wire to a module."""
    wire = _unused(stem, module.sizes)
    module.sizes[wire], module.kinds[wire] = width, "wire"
    return _whole(module, wire)


def _unused(stem: str, taken: Collection[str], first: int = 2) -> str:
    """Return a name that is not taken: the stem, or with a number from ``first`` on."""
    numbered = (f"{stem}_{n}" for n in count(first))
    names = numbered if first == 1 else chain([stem], numbered)
    return next(name for name in names if name not in taken)


def _bits(node: Node) -> Iterator[tuple[str, int]]:
    """Yield the signal and place of each bit of constants and signals, the highest first."""
    for part in node.args if node.kind == "{}" else (node,):
        name, low = part.args if part.kind == "bits" else ("", 0)
        yield from ((name, low + bit) for bit in reversed(range(part.width)))


def _merge_registers(module: _Module) -> None:
    """Replace a register and the block of its next value by one block."""
    reads = Counter(_reads(module.statements))
    nexts = _blocks_of_one(module)
    for place, statement in enumerate(module.statements):
        if (parts := _as_register(statement)) is None:
            continue
        event, register, value, reset = parts
        block = nexts.get(value.args[0]) if value.kind == "bits" and reads[value.args[0]] == 1 else None
        if block is None or value.args[0] in _reads([block]) or value != _whole(module, value.args[0]):
            continue
        if register.kind != "bits" or register != _whole(module, register.args[0]):
            continue
        body = block.items[0][1]
        body = body[1:] if len(body) > 1 and body[0] == Set(value, register) else body
        body = _reset_first([_changed(inner, lambda node, _: node, register) for inner in body])
        if reset is not None:
            body = [Choice("if", reset[0], [reset[1], ("else", body)])]
        module.statements[place] = Choice("always", block.selector, [(event, body)])
        module.statements[next(n for n, other in enumerate(module.statements) if other is block)] = ""


def _blocks_of_one(module: _Module) -> dict[str, Choice]:
    """Return the combinational blocks of one signal that nothing else assigns, by its name."""
    makers = Counter(name for statement in module.statements for name in _targets(statement))
    return {
        targets[0]: statement
        for statement in module.statements
        if isinstance(statement, Choice) and statement.is_combinational and len(targets := _targets(statement)) == 1
        if makers[targets[0]] == 1 and all(assignment.target.kind == "bits" for assignment in _sets(statement))
    }


def _as_register(statement: Any) -> tuple[str, Node, Node, tuple[Node, Any] | None] | None:
    """Return event, register, next value and asynchronous reset of the block of a register; None for other blocks."""
    match statement:
        case Choice("always", _, [(event, [Choice("if", reset, [on, (_, [Set(register, value)])])])]) if (
            statement.is_clocked
        ):
            return event, register, value, (reset, on)
        case Choice("always", _, [(event, [Set(register, value)])]) if statement.is_clocked:
            return event, register, value, None
    return None


def _reset_first(body: list[Any]) -> list[Any]:
    """Return statements for one register with those that come last, and override the others, first."""
    match body:
        case [_, *_, Choice("if", reset, [(_, [Set(target)] as on), (_, [])])]:
            if all(_covers(target, assignment.target) for statement in body for assignment in _sets(statement)):
                return [Choice("if", reset, [("", on), ("else", body[:-1])])]
    return body


def _covers(target: Node, other: Node) -> bool:
    """Return True if bits of a signal include others."""
    if target.kind != "bits" or other.kind != "bits" or target.args[0] != other.args[0]:
        return False
    low = other.args[1] - target.args[1]
    return bool(0 <= low <= target.width - other.width)


def _folded(body: list[Any], target: Node, value: Node | None) -> Node | None:
    """Return the value that statements give a target, as an expression; None if they are no conditions and values."""
    for statement in body:
        match statement:
            case Set(bits, new) if bits == target:
                value = new
            case Choice("if", condition, items):
                first, second = (_folded(inner, target, value) for _, inner in items)
                if first is None or second is None:
                    return None
                value = Node("?", (condition, first, second), first.width)
            case _:
                return None
    return value


def _replace_choices(module: _Module) -> None:
    """Replace blocks of a few conditions by conditional expressions."""
    for place, statement in enumerate(module.statements):
        if (
            isinstance(statement, Choice)
            and statement.is_combinational
            and len(assignments := list(_sets(statement))) <= CHOICES
        ):
            value = _folded(statement.items[0][1], assignments[0].target, None)
            if value is not None and not {*_targets(statement)} & {*_reads([statement])}:
                module.statements[place] = Set(assignments[0].target, value)
    driven = {name for statement in module.statements if isinstance(statement, Choice) for name in _targets(statement)}
    for name in {
        name for statement in module.statements if isinstance(statement, Set) for name in _targets(statement)
    } - driven:
        module.kinds[name] = {"reg": "wire", "output reg": "output"}.get(module.kinds[name], module.kinds[name])


def _resolve_aliases(module: _Module) -> None:
    """Replace signals that are only other names of bits by these bits; name temporary signals like them."""
    fixed = _fixed(module) | {name for name, kind in module.kinds.items() if kind != "wire"}
    aliases: dict[str, list[tuple[int, Node]]] = {}
    others: list[Any] = []
    for statement in module.statements:
        match statement:
            case Set(Node("bits", (name, low)), value) if value.is_wiring and name not in fixed:
                aliases.setdefault(name, []).append((low, value))
            case _:
                others.append(statement)

    def resolved(node: Node) -> Node:
        name, low = node.args
        parts, top = list[Node](), low + node.width
        for start, value in sorted(aliases.get(name, ()), key=lambda alias: -alias[0]):
            first, last = max(start, low), min(start + value.width, top)
            if first < last:
                parts += [Node("bits", (name, last), top - last)] * (last < top)
                parts.append(replaced(sliced(value, first - start, last - first), resolved, 0))
                top = first
        return joined([*parts, *[Node("bits", (name, low), top - low)] * (low < top)])

    module.statements = [
        _changed(statement, lambda value, width: replaced(value, resolved, width)) for statement in others
    ]
    for name in aliases:
        same = resolved(_whole(module, name))
        if not _TEMPORARY.fullmatch(name) and any(same.names()):
            if same.kind == "{}" or same.width < module.sizes[same.args[0]]:
                module.views.setdefault(same.args if same.kind == "{}" else (same,), name)
            elif _TEMPORARY.fullmatch(same.args[0]):
                module.names.setdefault(same.args[0], name)


def _sweep(module: _Module) -> None:
    """Remove statements that no output, instance or attribute needs."""
    makers: dict[str, list[Any]] = {}
    for statement in module.statements:
        for name in _targets(statement):
            makers.setdefault(name, []).append(statement)
    roots = [statement for statement in module.statements if isinstance(statement, Instance | str)]
    needed = [*_reads(roots), *module.attributes, *module.ports]
    seen, live = set(needed), set(map(id, roots))
    while needed:
        for statement in makers.get(needed.pop(), ()):
            if id(statement) not in live:
                live.add(id(statement))
                new = set(_reads([statement])) - seen
                seen |= new
                needed += new
    module.statements = [statement for statement in module.statements if statement and id(statement) in live]
    module.used = seen


def _inline(module: _Module) -> None:
    """Write the values of temporary signals with one use in place of them."""
    fixed = _fixed(module) | set(module.names)
    made = Counter(
        name for statement in module.statements for assignment in _sets(statement) for name in assignment.target.names()
    )
    uses = Counter(_reads(module.statements))
    values: dict[str, Node] = {}
    for statement in module.statements:
        match statement:
            case Set(Node("bits", (name, _)) as target, value) if (
                target == _whole(module, name) and value.width == target.width and made[name] == 1
            ):
                is_temporary = _TEMPORARY.fullmatch(name) and name not in fixed
                if is_temporary and (uses[name] == 1 or len(text_of(value, module.sizes)) <= SHORT):
                    values[name] = value
    done: dict[str, Node] = {}

    def inlined(node: Node) -> Node:
        name = node.args[0]
        if name not in values or node.width != module.sizes[name]:
            return node
        if name not in done:
            done[name] = node
            value = replaced(values[name], inlined, node.width)
            done[name] = value if len(text_of(value, module.sizes)) <= LONGEST else node
        return done[name]

    module.statements = [
        _changed(statement, lambda value, width: replaced(value, inlined, width)) for statement in module.statements
    ]


def _use_views(module: _Module) -> None:
    """Write the names of bits and concatenations in place of them."""
    views = sorted(module.views.items(), key=lambda view: -len(view[0]))
    used: dict[str, Set] = {}

    def viewed(node: Node, _: int = 0) -> Node:
        if node.kind not in ("{}", "bits"):
            return node._replace(args=tuple(map(viewed, node.nodes)) or node.args)
        parts = list(node.args) if node.kind == "{}" else [node]
        parts = [part if part.is_wiring else viewed(part) for part in parts]
        for value, name in views:
            for place in range(len(parts) - len(value), -1, -1):
                if tuple(parts[place : place + len(value)]) == value:
                    parts[place : place + len(value)] = [_whole(module, name)]
                    used[name] = Set(_whole(module, name), joined(value))
        return parts[0] if len(parts) == 1 and parts[0].is_wiring else Node("{}", tuple(parts), node.width)

    statements = [_changed(statement, viewed) for statement in module.statements]
    module.statements = [*used.values(), *statements]


def _check_resets(module: _Module) -> None:
    """Raise ValueError if a register has no reset."""
    resets = {name for name, kind in module.kinds.items() if kind == "input" and re.fullmatch(r"(\w+_)?rst", name)}
    for statement in module.statements:
        match statement:
            case Set() | Instance() | Choice("always", _, [("*", _)]):
                continue
            case Choice("always", _, [(_, [Choice("if", Node("bits", (name, 0), 1), [(_, first), _])])]) if (
                name in resets
            ):
                constants = [
                    assignment.target
                    for assignment in first
                    if isinstance(assignment, Set) and not any(assignment.value.names())
                ]
                if all(
                    any(_covers(target, assignment.target) for target in constants) for assignment in _sets(statement)
                ):
                    continue
        name = next(iter(_targets(statement)), "a memory")
        raise ValueError(f"{module.name} has no reset of {name}: keep the initial values, which --no-initial omits")


def _name_signals(module: _Module) -> None:
    """Name temporary signals after the signal that uses them and the operator; other names become plain words."""
    users, words = _users_and_operators(module)
    final = {name: module.names.get(name, name) for name in module.sizes}
    special = re.compile(rf".*[\\$].*|.*_part|_\d+_|{START}")
    plain = {name for name, new in final.items() if name in module.ports or not special.fullmatch(new)}
    taken = {re.sub(r"\W", "_", final[name]) for name in plain} | KEYWORDS | {START, _start_of(module)}
    others = [
        name
        for name in dict.fromkeys([*module.order, *module.sizes])
        if name in final and name not in {*plain, *module.names}
    ]
    owners = {name: temporary for temporary, name in module.names.items()}
    # Numbers count signals that were removed, too, so that registers have the names of the netlist.
    for name in sorted(others, key=lambda name: bool(_TEMPORARY.fullmatch(name))):
        if name not in module.used and _TEMPORARY.fullmatch(name):
            continue
        stem, passed = final[name], set[str]()
        while _TEMPORARY.fullmatch(stem) and stem not in passed:
            passed.add(stem)
            stem = final.get(user := users.get(stem, "value"), user)
        stem = stem_of(re.sub(r"\$\d+$", "", stem)) or "value"
        stem += f"_{words.get(name, 'value')}" * bool(passed)
        new = _unused(stem, taken)
        module.names[owners.get(name, name)] = new
        taken.add(new)


def _users_and_operators(module: _Module) -> tuple[dict[str, str], dict[str, str]]:
    """Return a signal that uses each signal, and the word for the operator that computes it."""
    users: dict[str, str] = {}
    words: dict[str, str] = {}
    for statement in module.statements:
        for user, value in _values(statement):
            users = dict.fromkeys(value.names(), user) | users
        if isinstance(statement, Set) and statement.target.kind == "bits":
            kinds = REDUCTIONS if len(statement.value.args) == 1 and statement.value.kind in REDUCTIONS else _WORDS
            words[statement.target.args[0]] = kinds.get(statement.value.kind, "value")
    return users, words


def _start_of(module: _Module) -> str:
    """Return the name of `START` in a module, which may have a port of this name."""
    return _unused(START, module.ports)


def _grouped(module: _Module) -> list[Any]:
    """Return the statements in the order of their dependencies, with registers of one clock and reset in one block."""
    groups: dict[str, list[Any]] = {}
    makers: dict[str, list[int]] = {}
    rest: list[Any] = []
    for statement in module.statements:
        if isinstance(statement, Choice) and statement.is_clocked:
            ((event, body),) = statement.items
            groups[event] = _united(groups.get(event, []), body)
        else:
            for name in _targets(statement):
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
            stack += [(maker, False) for name in [*_reads([rest[place]])][::-1] for maker in makers.get(name, ())]
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


def _lines(module: _Module, initial: bool) -> Iterator[str]:
    """Yield the lines of a module."""
    statements = _grouped(module)
    inside = _declared_by_value(module, statements)
    start_name = _start_of(module)
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


def _declared_by_value(module: _Module, statements: Sequence[Any]) -> set[str]:
    """Return the wires that are declared where they get their value: once, as a whole, before they are read."""
    made = Counter(
        name for statement in statements for assignment in _sets(statement) for name in assignment.target.names()
    )
    inside, known = set[str](), set[str]()
    for statement in statements:
        known |= {name for name in _reads([statement]) if name not in inside}
        if (
            isinstance(statement, Set)
            and statement.target.kind == "bits"
            and module.kinds[name := statement.target.args[0]] == "wire"
        ):
            if statement.target == _whole(module, name) and made[name] == 1 and name not in known:
                inside.add(name)
    return inside


def _declared(module: _Module, kind: str, name: str, value: str = "") -> str:
    """Return the declaration of a signal."""
    size = f"[{module.sizes[name] - 1}:0] " if module.sizes[name] > 1 else ""
    return f"  {kind} {size}{spelled(module.names.get(name, name))}{value};"


def _declarations(module: _Module, inside: Collection[str], initial: bool) -> Iterator[str]:
    """Yield the declarations of ports and of signals that are not declared by their values."""
    for name in [*module.ports, *(name for name in module.sizes if name in module.used and name not in module.ports)]:
        if name in module.attributes:
            yield module.attributes[name]
        if name in module.ports:
            yield _declared(module, module.kinds[name].split()[0], name)
        if name not in inside and module.kinds[name] not in ("input", "output"):
            start = f" = {module.initial[name]}" if initial and name in module.initial else ""
            yield _declared(module, module.kinds[name].split()[-1], name, start)


def _statement_lines(module: _Module, statement: Any, start_name: str | None) -> Iterator[str]:
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
                    same = merged and merged[-1][1] == inner and len(merged[-1][0] + label) < LONGEST
                    merged.append((f"{merged.pop()[0]}, {label}" if same and label != "default" else label, inner))
                for label, inner in merged:
                    lines = list(_body_lines(inner, f"{indent}    ", mark, text))
                    if len(lines) > 1:
                        yield from (f"{indent}  {label}: begin", *lines, f"{indent}  end")
                    else:
                        yield f"{indent}  {label}: {lines[0].strip() if lines else ';'}"
                yield f"{indent}endcase"
