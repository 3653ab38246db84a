"""Names of values that have none, from what they are and what uses them."""

import re
from collections.abc import Iterator

from .expressions import Expression, Operation, Ref, refs
from .passes import is_temporary
from .statements import Block, Instance, Module, Raw, Set, sets_in

_REDUCED = {"&": "{}_ones", "|": "{}_nonzero", "~|": "{}_zero", "^": "{}_parity", "~": "not_{}"}
"""Names of what a unary operator makes of a signal."""

_MADE = {"+": "sum", "-": "difference", "*": "product", "?": "choice"}
"""Last part of the name of an operator's result, after that of the signal that uses it."""

_PART = re.compile(r"(.*?)_part(?:[$_]\d+)?|(.*?)\$\d+")
"""Names of inner operators of a signal, and further signals of a name."""


def name_values(module: Module) -> None:
    """Give names to signals without one: those of what they are, or of the signal that uses them first."""
    module.rename(dict(_names(module)))


def _names(module: Module) -> Iterator[tuple[str, str]]:
    users, drivers = _users(module), _drivers(module)
    taken = {re.sub(r"\W", "_", name) for name in (*module.declarations, *_instances(module)) if not _PART.match(name)}
    given: dict[str, str] = {}
    for name, one in module.declarations.items():
        generated = is_temporary(name) or _PART.fullmatch(name)
        if not generated or one.direction:
            taken.add(name)
    for name, one in module.declarations.items():
        part = None if is_temporary(name) else _PART.fullmatch(name)
        if not (is_temporary(name) or part) or one.direction:
            continue
        value = drivers.get(name)
        stem = _of_operand(value, given) if is_temporary(name) or (part and part[1]) else None
        if stem is None and part:
            stem = part[2] if part[1] is None else f"{part[1]}_part"
            # The first signal of this name may be one that nothing reads.
            taken.add(stem)
        if stem is None:
            made = _MADE.get(value.symbol, "part") if isinstance(value, Operation) else "choice"
            stem = f"{_user(name, users)}_{made}"
        stem = re.sub(r"\W+", "_", stem).strip("_")
        number, new = 2, stem
        while new in taken:
            number, new = number + 1, f"{stem}_{number}"
        taken.add(new)
        given[name] = new
        if new != name:
            yield name, new


def _of_operand(value: Expression | None, given: dict[str, str]) -> str | None:
    """Return the name of a unary operator's result by that of its operand, if that has a name."""
    match value:
        case Operation(symbol, (Ref() as operand,)) if operand.is_whole and symbol in _REDUCED:
            name = given.get(operand.name, operand.name)
            if "$" not in name and "_part" not in name:
                return _REDUCED[symbol].format(name)
    return None


def _instances(module: Module) -> list[str]:
    return [one.name for one in module.statements if isinstance(one, Instance)]


def _drivers(module: Module) -> dict[str, Expression]:
    return {one.target.name: one.value for one in module.statements if isinstance(one, Set) and one.target.is_whole}


def _users(module: Module) -> dict[str, str]:
    """Return the signal, or port of an instance, that first uses each signal."""
    users: dict[str, str] = {}

    def use(user: str, value: Expression) -> None:
        for ref in refs(value):
            if ref.name != user:
                users.setdefault(ref.name, user)

    for statement in module.statements:
        match statement:
            case Set(target, value):
                use(target.name, value)
            case Instance():
                for port, value in statement.ports.items():
                    use(f"{statement.name}_{port}", value)
            case Raw(_, [first, *others]):
                for other in others:
                    users.setdefault(other, first)
            case Block():
                first = next(sets_in(statement.body)).target.name
                for one in sets_in(statement.body):
                    use(one.target.name, one.value)
                for value in Module("", [], {}, [statement]).expressions():
                    use(first, value)
    return users


def _user(name: str, users: dict[str, str]) -> str:
    passed: set[str] = set()
    while is_temporary(name) and name not in passed:
        passed.add(name)
        name = users.get(name, "value")
    if is_temporary(name):
        return "value"
    part = _PART.fullmatch(name)
    return (part[1] or part[2]) if part else name
