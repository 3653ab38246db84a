"""Verilog for readers, from that of Yosys: the same values with fewer temporary signals, which have names."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .expressions import (
    COMPARISONS,
    REDUCTIONS,
    Node,
    joined,
    replaced,
    sliced,
    stem_of,
    text_of,
)
from .keywords import KEYWORDS
from .module_lines import START, lines_of, start_of
from .modules import (
    HEAD,
    Choice,
    Instance,
    Module,
    Set,
    changed,
    fixed_names,
    reads_of,
    sets_of,
    targets_of,
    unused,
    values_of,
    whole,
)

LONGEST, SHORT = 60, 10
"""Numbers of characters up to which the value of a temporary signal is written in place of its only use, or of each."""

CHOICES = 4
"""Number of assignments up to which a block becomes a conditional expression."""

_FIRST = ("clk", "rst", "en", "valid")
"""Ports that come first."""

_MODULE = re.compile(r"^module .*?^endmodule", re.M | re.S)
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
    modules = {HEAD.findall(module)[0]: Module(module) for module in _MODULE.findall(text)}
    _restore_ports(modules, members)
    for module in modules.values():
        for step in (_merge_registers, _replace_choices, _resolve_aliases, _sweep, _inline, _use_views, _sweep):
            step(module)
        if not initial:
            _check_resets(module)
        _name_signals(module)
    return _MODULE.sub(lambda match: "\n".join(lines_of(modules[HEAD.findall(match[0])[0]], initial)), text)


def _restore_ports(modules: Mapping[str, Module], members: Mapping[str, Mapping[str, bool]]) -> None:
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


def _restored(instance: Instance, module: Module, parent: Module, members: Mapping[str, bool]) -> Instance:
    """Return an instance whose ports are the members of its component, and give its module these ports."""
    ports = dict(instance.ports)
    sets = {
        assignment.target: assignment.value
        for assignment in module.statements
        if isinstance(assignment, Set) and assignment.value.is_wiring
    }
    covered: dict[tuple[str, int], Node] = {}
    for name, is_input in members.items():
        if module.kinds.get(name) != "wire" or (own := whole(module, name)) not in sets:
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
        is_input, own = module.kinds[name] == "input", whole(module, name)
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


def _are_inputs(node: Node, ports: Collection[str], module: Module) -> bool:
    """Return True if an expression reads only inputs of a module that are ports."""
    return all(name in ports and module.kinds[name] == "input" for name in node.names())


def _with_plain_names(ports: dict[str, Node], module: Module) -> dict[str, Node]:
    """Give ports with generated names others, after all other ports."""
    for name in [name for name in ports if "$" in name]:
        module.names[name] = unused("port", {*module.sizes, *ports}, first=1)
        ports[module.names[name]] = ports.pop(name)
    return ports


def _add_port(module: Module, name: str, is_input: bool) -> None:
    """Make a wire a port."""
    module.kinds[name] = "input" if is_input else "output"
    module.ports.append(name)


def _remove_port(module: Module, name: str) -> None:
    """Make a port a wire or a register."""
    module.kinds[name] = "reg" if module.kinds[name] == "output reg" else "wire"
    module.ports.remove(name)


def _new_wire(module: Module, stem: str, width: int) -> Node:
    """Add a wire to a module."""
    wire = unused(stem, module.sizes)
    module.sizes[wire], module.kinds[wire] = width, "wire"
    return whole(module, wire)


def _bits(node: Node) -> Iterator[tuple[str, int]]:
    """Yield the signal and place of each bit of constants and signals, the highest first."""
    for part in node.args if node.kind == "{}" else (node,):
        name, low = part.args if part.kind == "bits" else ("", 0)
        yield from ((name, low + bit) for bit in reversed(range(part.width)))


def _merge_registers(module: Module) -> None:
    """Replace a register and the block of its next value by one block."""
    reads = Counter(reads_of(module.statements))
    nexts = _blocks_of_one(module)
    for place, statement in enumerate(module.statements):
        if (parts := _as_register(statement)) is None:
            continue
        event, register, value, reset = parts
        block = nexts.get(value.args[0]) if value.kind == "bits" and reads[value.args[0]] == 1 else None
        if block is None or value.args[0] in reads_of([block]) or value != whole(module, value.args[0]):
            continue
        if register.kind != "bits" or register != whole(module, register.args[0]):
            continue
        body = block.items[0][1]
        body = body[1:] if len(body) > 1 and body[0] == Set(value, register) else body
        body = _reset_first([changed(inner, lambda node, _: node, register) for inner in body])
        if reset is not None:
            body = [Choice("if", reset[0], [reset[1], ("else", body)])]
        module.statements[place] = Choice("always", block.selector, [(event, body)])
        module.statements[next(n for n, other in enumerate(module.statements) if other is block)] = ""


def _blocks_of_one(module: Module) -> dict[str, Choice]:
    """Return the combinational blocks of one signal that nothing else assigns, by its name."""
    makers = Counter(name for statement in module.statements for name in targets_of(statement))
    return {
        targets[0]: statement
        for statement in module.statements
        if isinstance(statement, Choice) and statement.is_combinational and len(targets := targets_of(statement)) == 1
        if makers[targets[0]] == 1 and all(assignment.target.kind == "bits" for assignment in sets_of(statement))
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
            if all(_covers(target, assignment.target) for statement in body for assignment in sets_of(statement)):
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


def _replace_choices(module: Module) -> None:
    """Replace blocks of a few conditions by conditional expressions."""
    for place, statement in enumerate(module.statements):
        if (
            isinstance(statement, Choice)
            and statement.is_combinational
            and len(assignments := list(sets_of(statement))) <= CHOICES
        ):
            value = _folded(statement.items[0][1], assignments[0].target, None)
            if value is not None and not {*targets_of(statement)} & {*reads_of([statement])}:
                module.statements[place] = Set(assignments[0].target, value)
    driven = {
        name for statement in module.statements if isinstance(statement, Choice) for name in targets_of(statement)
    }
    for name in {
        name for statement in module.statements if isinstance(statement, Set) for name in targets_of(statement)
    } - driven:
        module.kinds[name] = {"reg": "wire", "output reg": "output"}.get(module.kinds[name], module.kinds[name])


def _resolve_aliases(module: Module) -> None:
    """Replace signals that are only other names of bits by these bits; name temporary signals like them."""
    fixed = fixed_names(module) | {name for name, kind in module.kinds.items() if kind != "wire"}
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
        changed(statement, lambda value, width: replaced(value, resolved, width)) for statement in others
    ]
    for name in aliases:
        same = resolved(whole(module, name))
        if not _TEMPORARY.fullmatch(name) and any(same.names()):
            if same.kind == "{}" or same.width < module.sizes[same.args[0]]:
                module.views.setdefault(same.args if same.kind == "{}" else (same,), name)
            elif _TEMPORARY.fullmatch(same.args[0]):
                module.names.setdefault(same.args[0], name)


def _sweep(module: Module) -> None:
    """Remove statements that no output, instance or attribute needs."""
    makers: dict[str, list[Any]] = {}
    for statement in module.statements:
        for name in targets_of(statement):
            makers.setdefault(name, []).append(statement)
    roots = [statement for statement in module.statements if isinstance(statement, Instance | str)]
    needed = [*reads_of(roots), *module.attributes, *module.ports]
    seen, live = set(needed), set(map(id, roots))
    while needed:
        for statement in makers.get(needed.pop(), ()):
            if id(statement) not in live:
                live.add(id(statement))
                new = set(reads_of([statement])) - seen
                seen |= new
                needed += new
    module.statements = [statement for statement in module.statements if statement and id(statement) in live]
    module.used = seen


def _inline(module: Module) -> None:
    """Write the values of temporary signals with one use in place of them."""
    fixed = fixed_names(module) | set(module.names)
    made = Counter(
        name
        for statement in module.statements
        for assignment in sets_of(statement)
        for name in assignment.target.names()
    )
    uses = Counter(reads_of(module.statements))
    values: dict[str, Node] = {}
    for statement in module.statements:
        match statement:
            case Set(Node("bits", (name, _)) as target, value) if (
                target == whole(module, name) and value.width == target.width and made[name] == 1
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
        changed(statement, lambda value, width: replaced(value, inlined, width)) for statement in module.statements
    ]


def _use_views(module: Module) -> None:
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
                    parts[place : place + len(value)] = [whole(module, name)]
                    used[name] = Set(whole(module, name), joined(value))
        return parts[0] if len(parts) == 1 and parts[0].is_wiring else Node("{}", tuple(parts), node.width)

    statements = [changed(statement, viewed) for statement in module.statements]
    module.statements = [*used.values(), *statements]


def _check_resets(module: Module) -> None:
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
                    any(_covers(target, assignment.target) for target in constants) for assignment in sets_of(statement)
                ):
                    continue
        name = next(iter(targets_of(statement)), "a memory")
        raise ValueError(f"{module.name} has no reset of {name}: keep the initial values, which --no-initial omits")


def _name_signals(module: Module) -> None:
    """Name temporary signals after the signal that uses them and the operator; other names become plain words."""
    users, words = _users_and_operators(module)
    final = {name: module.names.get(name, name) for name in module.sizes}
    special = re.compile(rf".*[\\$].*|.*_part|_\d+_|{START}")
    plain = {name for name, new in final.items() if name in module.ports or not special.fullmatch(new)}
    taken = {re.sub(r"\W", "_", final[name]) for name in plain} | KEYWORDS | {START, start_of(module)}
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
        new = unused(stem, taken)
        module.names[owners.get(name, name)] = new
        taken.add(new)


def _users_and_operators(module: Module) -> tuple[dict[str, str], dict[str, str]]:
    """Return a signal that uses each signal, and the word for the operator that computes it."""
    users: dict[str, str] = {}
    words: dict[str, str] = {}
    for statement in module.statements:
        for user, value in values_of(statement):
            users = dict.fromkeys(value.names(), user) | users
        if isinstance(statement, Set) and statement.target.kind == "bits":
            kinds = REDUCTIONS if len(statement.value.args) == 1 and statement.value.kind in REDUCTIONS else _WORDS
            words[statement.target.args[0]] = kinds.get(statement.value.kind, "value")
    return users, words
