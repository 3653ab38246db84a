"""Changes of a module that keep its logic: registers in one block, fewer aliases and temporary signals."""

import re
from collections.abc import Callable, Mapping

from .expressions import (
    COMPARISONS,
    KNOWN,
    REDUCTIONS,
    Const,
    Expression,
    Join,
    Operation,
    Ref,
    commutes,
    has_signed,
    is_wiring,
    joined,
    refs,
    replaced,
    sliced,
    text_of,
)
from .statements import Block, Body, Declaration, If, Module, Set, Statement, change_body, sets_in

LONGEST = 100
"""Maximum characters of an expression into which a temporary signal is written."""

_NUMBER = re.compile(r"\$\d+")
_GENERATED = re.compile(r"\$\d+|.*\..*|.*_part(?:[$_]\d+)?|.*\$\d+")
"""Names that are not worth more than the value that they stand for: without a name, fields of a layout, inner
operators of a signal (see `halfulp.hdl.dataflow`), and second signals of a name."""

_INNER = re.compile(r"\$\d+|.*_part(?:[$_]\d+)?")
"""Names of inner operators, which may be written where they are used."""


def is_temporary(name: str) -> bool:
    """Return True for a signal without a name."""
    return _NUMBER.fullmatch(name) is not None


def merge_registers(module: Module) -> None:
    """Write the next value of each register in the block of its clock, and registers of one condition together."""
    uses = module.uses()
    values: dict[str, Block] = {}
    for statement in module.statements:
        if isinstance(statement, Block) and not statement.clocked:
            targets = {one.target.name for one in sets_in(statement.body)}
            if len(targets) == 1:
                values[targets.pop()] = statement
    merged: set[int] = set()
    for statement in module.statements:
        if not isinstance(statement, Block) or not statement.clocked:
            continue
        last = _last_set(statement.body)
        if last is None or not isinstance(last.value, Ref) or not last.value.is_whole or not last.target.is_whole:
            continue
        name, register = last.value.name, last.target
        block = values.get(name)
        if block is None or uses.get(name) != 1 or not is_temporary(name) or _reads(block.body, name):
            continue
        merged.add(id(block))
        body = block.body
        if body and isinstance(body[0], Set) and body[0].value == register and body[0].target.is_whole:
            body = body[1:]
        for one in sets_in(body):
            one.target = Ref(register.name, one.target.high, one.target.low, one.target.size)
        if isinstance(statement.body[0], If):
            statement.body[0].otherwise = body
        else:
            statement.body = _reset_first(body)
        del module.declarations[name]
    module.statements = [one for one in module.statements if id(one) not in merged]
    _group(module)


def _reads(body: Body, name: str) -> bool:
    found: list[bool] = []

    def look(value: Expression, _: int) -> Expression:
        found.append(any(ref.name == name for ref in refs(value)))
        return value

    change_body(body, look)
    return any(found)


def _last_set(body: Body) -> Set | None:
    """Return the assignment of a register's next value: alone, or after that of an asynchronous reset."""
    match body:
        case [Set() as one]:
            return one
        case [If([(_, [Set()])], [Set() as one])]:
            return one
    return None


def _reset_first(body: Body) -> Body:
    """Return statements with a reset at their end as the first condition, which excludes the others."""
    match body:
        case [*rest, If([(Ref() as condition, [Set(target, Const())])], []) as reset] if rest and target.is_whole:
            if condition.name == "rst":
                return [If(reset.branches, rest)]
    return body


def _group(module: Module) -> None:
    """Join the blocks of registers with the same event, reset and enable."""
    groups: dict[tuple[object, ...], Block] = {}
    statements: list[Statement] = []
    for statement in module.statements:
        if isinstance(statement, Block) and statement.clocked and (key := _shape(statement.body)) is not None:
            first = groups.setdefault((statement.event, *key), statement)
            if first is not statement:
                _append(first.body, statement.body)
                continue
        statements.append(statement)
    module.statements = statements


def _shape(body: Body) -> tuple[object, ...] | None:
    """Return the conditions of a block whose statements assign registers and nothing else."""
    match body:
        case [Set()]:
            return ()
        case [If([(condition, [Set()])], otherwise)]:
            rest = _shape(otherwise) if otherwise else ("",)
            return None if rest is None else (text_of(condition), *rest)
    return None


def _append(body: Body, more: Body) -> None:
    match body, more:
        case [If() as one], [If() as other]:
            one.branches[0][1].extend(other.branches[0][1])
            if one.otherwise:
                _append(one.otherwise, other.otherwise)
        case _:
            body.extend(more)


def resolve_aliases(module: Module, fields: Mapping[str, list[tuple[str, int, int]]]) -> None:
    """Use one name for each value: that of a signal of the design, before its bits and before unnamed signals.

    Parameters
    ----------
    module : Module
    fields : mapping of str to list of tuple
        Fields of number formats in ports: name, highest and lowest bit.
    """
    plain = _wiring(module)
    values = _other_names(module, plain)
    pieces = _pieces(plain, values, fields)
    known: dict[str, Expression] = {}

    def resolved(ref: Ref) -> Expression:
        if ref.name not in values:
            return ref
        if ref.name not in known:
            known[ref.name] = replaced(values[ref.name], resolved)
        return sliced(known[ref.name], ref.high, ref.low)

    def piece(ref: Ref) -> Expression:
        for high, low, whole in pieces.get(ref.name, ()):
            if low <= ref.low and ref.high <= high:
                return Ref(whole.name, ref.high - low, ref.low - low, whole.size)
        return ref

    own = {whole.name for parts in pieces.values() for _, _, whole in parts}
    module.statements = [
        one
        for one in module.statements
        if not isinstance(one, Set)
        or not one.target.is_whole
        or not (
            (one.target.name in values and one.target.name in plain)
            or (isinstance(one.value, Ref) and values.get(one.value.name) == one.target)
        )
    ]
    first = [(one, one.value) for one in module.statements if isinstance(one, Set) and one.target.name in own]
    module.change(lambda ref: replaced(resolved(ref), piece))
    for one, value in first:
        one.value = value
    _rename_targets(module, {old: new.name for old, new in values.items() if isinstance(new, Ref) and old not in plain})
    _declare_fields(module, fields)


def _wiring(module: Module) -> dict[str, Expression]:
    """Return the values of signals that are bits of other ones, by name."""
    found: dict[str, Expression] = {}
    several: set[str] = set()
    for one in module.statements:
        if isinstance(one, Set):
            name = one.target.name
            if name in found or not one.target.is_whole or not is_wiring(one.value):
                several.add(name)
            found[name] = one.value
    return {
        name: value
        for name, value in found.items()
        if name not in several and not module.declarations[name].attributes
    }


def _other_names(module: Module, plain: Mapping[str, Expression]) -> dict[str, Expression]:
    """Return the signals that are not needed, with what stands for them."""
    pinned = module.pinned()
    values = {
        name: value
        for name, value in plain.items()
        if not module.declarations[name].direction
        and name not in pinned
        and (_GENERATED.fullmatch(name) or isinstance(value, Const) or (isinstance(value, Ref) and value.is_whole))
    }

    def rank(name: str) -> tuple[bool, bool]:
        return _GENERATED.fullmatch(name) is not None, module.declarations[name].direction != ""

    # Of two names of a signal, that of the design stays.
    for name in sorted(plain, key=rank):
        value = plain[name]
        if isinstance(value, Ref) and value.is_whole and is_temporary(value.name) and not is_temporary(name):
            if value.name not in values and value.name not in pinned and value.name not in plain:
                values.pop(name, None)
                values[value.name] = Ref(name, value.high, value.low, value.size)
    return values


def _pieces(
    plain: Mapping[str, Expression],
    values: Mapping[str, Expression],
    fields: Mapping[str, list[tuple[str, int, int]]],
) -> dict[str, list[tuple[int, int, Ref]]]:
    """Return names of some bits of signals: highest bit, lowest bit, and the signal of that name."""
    pieces: dict[str, list[tuple[int, int, Ref]]] = {}
    for name, value in plain.items():
        if isinstance(value, Ref) and not value.is_whole and name not in values and value.name not in values:
            if not _GENERATED.fullmatch(name):
                whole = Ref(name, value.width - 1, 0, value.width)
                pieces.setdefault(value.name, []).append((value.high, value.low, whole))
    for port, parts in fields.items():
        for name, high, low in parts:
            if not any((high, low) == piece[:2] for piece in pieces.get(port, ())):
                size = high - low + 1
                pieces.setdefault(port, []).append((high, low, Ref(name, size - 1, 0, size)))
    return pieces


def _rename_targets(module: Module, names: Mapping[str, str]) -> None:
    """Let other signals have the values that some signals without names are assigned."""
    for statement in module.statements:
        match statement:
            case Set():
                targets = [statement]
            case Block():
                targets = list(sets_in(statement.body))
            case _:
                continue
        for one in targets:
            if one.target.name in names:
                new = names[one.target.name]
                module.declarations[new].is_reg |= module.declarations[one.target.name].is_reg
                one.target = Ref(new, one.target.high, one.target.low, one.target.size)


def _declare_fields(module: Module, fields: Mapping[str, list[tuple[str, int, int]]]) -> None:
    uses = module.uses()
    added: list[Statement] = []
    for port, parts in fields.items():
        size = module.declarations[port].size
        for name, high, low in parts:
            if name in uses and name not in module.declarations:
                width = high - low + 1
                module.declarations[name] = Declaration(size=width)
                added.append(Set(Ref(name, width - 1, 0, width), Ref(port, high, low, size)))
    module.statements[:0] = added


def fold_joins(module: Module) -> None:
    """Use the name of a concatenation in place of its parts."""
    names: dict[tuple[Expression, ...], Ref] = {}
    own: dict[int, Expression] = {}
    for one in module.statements:
        if isinstance(one, Set) and one.target.is_whole and isinstance(one.value, Join):
            if not isinstance(one.value.parts[0], Const) and not module.declarations[one.target.name].direction:
                if names.setdefault(one.value.parts, one.target) is one.target:
                    own[id(one)] = one.value
    if not names:
        return
    longest = max(map(len, names))
    starts = {parts[0] for parts in names}

    def folded(value: Expression) -> Expression:
        match value:
            case Operation(symbol, operands, width):
                return Operation(symbol, tuple(map(folded, operands)), width)
            case Join(parts) if starts.intersection(parts):
                found: list[Expression] = []
                place = 0
                while place < len(parts):
                    for count in range(min(longest, len(parts) - place), 1, -1):
                        if name := names.get(parts[place : place + count]):
                            found.append(name)
                            break
                    else:
                        count = 1
                        found.append(parts[place])
                    place += count
                return joined(found)
        return value

    for statement in module.statements:
        if isinstance(statement, Set) and id(statement) not in own:
            statement.value = folded(statement.value)
        elif isinstance(statement, Block):
            change_body(statement.body, lambda value, _: folded(value))


def inline_temporaries(module: Module) -> None:
    """Write values without a name where they are used, if they are used once and short, or inverted signals."""
    uses = module.uses()
    drivers = {
        one.target.name: one
        for one in module.statements
        if isinstance(one, Set)
        and one.target.is_whole
        and isinstance(one.value, Operation)
        and _INNER.fullmatch(one.target.name)
        and not module.declarations[one.target.name].direction
        and not module.declarations[one.target.name].attributes
    }
    pinned = module.pinned()
    done: set[str] = set()

    def value_of(name: str) -> Expression:
        one = drivers[name]
        if name not in done:
            done.add(name)
            one.value = embedded(one.value, one.target.width)
        return one.value

    def fits(ref: Ref, context: int) -> Expression | None:
        if not ref.is_whole or ref.name not in drivers or ref.name in pinned:
            return None
        value = value_of(ref.name)
        if not isinstance(value, Operation) or value.width != ref.size:
            return None
        inverted = value.symbol == "~" and isinstance(value.operands[0], Ref)
        if not inverted and uses.get(ref.name) != 1:
            return None
        if context and (has_signed(value) or not (context == value.width or commutes(value))):
            return None
        return value

    def embedded(value: Expression, context: int) -> Expression:
        """Return a value with others in it; the context extends it to a width, or is 0."""
        match value:
            case Ref():
                return fits(value, context) or value
            case Join(parts):
                return within(value, lambda: joined([embedded(part, 0) for part in parts]))
            case Operation(symbol, operands, width):
                whole = max(width, context)
                inner = _contexts(symbol, operands, whole)
                if inner is None:
                    return value
                return within(value, lambda: _operation(symbol, tuple(map(embedded, operands, inner)), width, whole))
        return value

    def within(value: Expression, make: Callable[[], Expression]) -> Expression:
        made = make()
        return made if made == value or len(text_of(made)) <= LONGEST else value

    for statement in module.statements:
        match statement:
            case Set():
                if statement.target.name in drivers:
                    value_of(statement.target.name)
                else:
                    statement.value = embedded(statement.value, statement.target.width)
            case Block():
                change_body(statement.body, embedded)


def _operation(symbol: str, operands: tuple[Expression, ...], width: int, context: int) -> Operation:
    """Return an operator in a context of a width; the inverse of a reduction of one bit is one operator."""
    match symbol, operands:
        case "~", (Operation("&" | "|" as inner, (operand,)),) if context == 1:
            return Operation(f"~{inner}", (operand,), 1)
    return Operation(symbol, operands, width)


def _contexts(symbol: str, operands: tuple[Expression, ...], width: int) -> tuple[int, ...] | None:
    """Return the width to which each operand is extended, 0 for none; None for an operator that is not known."""
    if symbol == "$signed" or (len(operands) == 1 and symbol in REDUCTIONS) or symbol in ("&&", "||"):
        return (0,) * len(operands)
    if symbol == "?":
        return 0, width, width
    if symbol in COMPARISONS:
        return (max(operand.width for operand in operands),) * 2
    if symbol in KNOWN or (len(operands) == 1 and symbol in ("~", "-")):
        return (width,) * len(operands)
    return None


def prune(module: Module) -> None:
    """Remove wires that nothing reads."""
    pinned = module.pinned()
    while True:
        uses = module.uses()

        def unread(name: str, uses: Mapping[str, int] = uses) -> bool:
            one = module.declarations[name]
            return not (one.direction or one.attributes or name in uses or name in pinned)

        kept: list[Statement] = []
        for statement in module.statements:
            match statement:
                case Set(target) if unread(target.name):
                    continue
                case Block(_, body) if not statement.clocked and all(unread(one.target.name) for one in sets_in(body)):
                    continue
            kept.append(statement)
        if len(kept) == len(module.statements):
            break
        module.statements = kept
    live = {*uses, *_targets(module), *pinned, *module.ports}
    module.declarations = {name: one for name, one in module.declarations.items() if name in live or one.attributes}


def _targets(module: Module) -> set[str]:
    """Return the signals that statements assign."""
    found: set[str] = set()
    for statement in module.statements:
        if isinstance(statement, Set):
            found.add(statement.target.name)
        elif isinstance(statement, Block):
            found |= {one.target.name for one in sets_in(statement.body)}
    return found


def without_reset(module: Module) -> list[str]:
    """Return the registers and memories without a reset."""
    found = [name for name, one in module.declarations.items() if one.memory]
    for statement in module.statements:
        if isinstance(statement, Block) and statement.clocked:
            match statement.body:
                case [If([(Ref() as condition, resets)])] if condition.name == "rst":
                    reset = {one.target.name for one in sets_in(resets)}
                case _:
                    reset = set()
            found += [one.target.name for one in sets_in(statement.body) if one.target.name not in reset]
    return found
