"""Dataflow graph of a module: its combinational statements as operators."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from amaranth.hdl import Const, Fragment, Module, Shape, Signal, Value

from .delay import DelayModel
from .internals import Assign, Concat, Operator, Slice, SwitchValue, assigned_signals, read_signals
from .operators import Operation, Operators
from .schedule import (
    AFTER,
    CHAIN,
    INPUT,
    LOGIC,
    NEXT,
    SINK,
    STATE,
    Bit,
    Node,
)

PIECE = 8
"""Bits of an adder that are in one stage; an adder of more can be divided between stages."""

ZERO, ONE = -1, -2
"""Constant bits."""

_IDENTITIES = {"&": ONE, "|": ZERO, "^": ZERO}
"""For each bitwise operator, the constant that leaves the other operand as it is."""


class Dataflow(Operators):
    """Dataflow graph of a module without register stages.

    Parameters
    ----------
    m : Module
        Its combinational statements assign whole signals, in dataflow order.
    outputs : iterable of Signal
    enable : Signal
        Clock enable, which all stages read in the same cycle.
    latency : int
        Cycles from operands to outputs.
    arrivals : mapping of str to int
        Cycles after the operands at which some inputs arrive; default: 0.
    is_result : callable
        True for the name of a register whose next value, not its present one, is read by the outputs.
    model : DelayModel
    interval : callable
        Number of operands from one use of a register to the next, by its name: its next value may be up to
        ``interval(name) - 1`` stages later. Default: 1.
    dsp : bool
        Products use multiplier blocks.
    """

    def __init__(  # noqa: PLR0913 - options by name
        self,
        m: Module,
        *,
        outputs: Iterable[Any],
        enable: Value,
        latency: int,
        model: DelayModel,
        arrivals: Mapping[str, int] | None = None,
        is_result: Callable[[str], bool] = lambda name: False,
        interval: Callable[[str], int] = lambda name: 1,
        dsp: bool = False,
    ) -> None:
        super().__init__(latency, model)
        self.enable, self.dsp = enable, dsp
        self.arrivals, self.is_result, self.interval = arrivals or {}, is_result, interval
        fragment = Fragment.get(m, None)
        self.steps = [(step, list(assigned_signals(step))) for step in fragment.statements.get("sync", ())]
        self._group = {id(signal): group for group, (_, signals) in enumerate(self.steps) for signal in signals}
        self._drivers: dict[int, Assign] = {}
        self._names: dict[int, str] = {}
        for path, inner in _fragments(fragment):
            for item in _assignments(inner.statements.get("comb", ())):
                self._drivers[id(item.lhs)] = item
                self._names[id(item.lhs)] = "_".join((*path, item.lhs.name))
        self._of_result: set[int] = set()
        for _, signals in self.steps:
            self._of_result |= {id(signal) for signal in signals if is_result(signal.name)}
        for item in self._drivers.values():
            if any(id(signal) in self._of_result for signal in read_signals(item.rhs)):
                self._of_result.add(id(item.lhs))
        self._known: dict[tuple[int, bool], tuple[Any, list[Bit]]] = {}
        self._after, self._name = False, ""
        # In the order of statements, so that definitions do not recur deeply.
        for item in self._drivers.values():
            self.bits_of(item.lhs)
        for group, (step, _) in enumerate(self.steps):
            self._name = next(iter(self.steps[group][1])).name + "_part"
            self._add(NEXT, 0, self._read_by(step), group=group, ends=self._ends_of(step))
        self._after = True
        for output in outputs:
            bits = self.bits_of(output)
            place = self._add(SINK, 0, [bits])
            place.value = output
        self._prune()

    def _add(
        self, kind: int, width: int, rows: Sequence[list[Bit]] = (), *, name: str = "", **options: Any
    ) -> Operation:
        if kind in (NEXT, SINK):
            options["common"] = _unique(bit for row in rows for bit in row)
        added = Operation(Node(kind, self.bits, width, **options), name or self._name, rows=list(rows))
        self.operations.append(added)
        self.bits += width
        return added

    def _ends_of(self, statement: Any) -> list[int]:
        """Return the delay to registers of one value, of which only one can be a cell with the logic before it."""
        values = [id(item.rhs) for item in _assignments([statement])]
        return [self.model.apart] if len(set(values)) < len(values) else []

    def _read_by(self, statement: Any) -> list[list[Bit]]:
        """Return the bits that a statement that assigns registers reads."""
        if isinstance(statement, Assign):
            return [self.bits_of(statement.rhs)]
        read = [self.bits_of(signal) for signal in read_signals(statement.test) if signal is not self.enable]
        for _, statements, _ in statement.cases:
            for inner in statements:
                read += self._read_by(inner)
        return read

    def bits_before(self, value: Value) -> list[Bit]:
        """Return the bits of a value that `_read_by` has found."""
        return self._known[id(value), False][1]

    def bits_of(self, value: Value) -> list[Bit]:
        """Return the bits of a value, and add its operators to the graph."""
        after = self._after and (not isinstance(value, Signal) or id(value) in self._of_result)
        key = id(value), after
        if key not in self._known:
            # The value is stored too, so that no other one gets its identity.
            self._known[key] = value, self._bits_of(value)
        return self._known[key][1]

    def _bits_of(self, value: Value) -> list[Bit]:
        match value:
            case Const():
                return [ONE if value.value >> place & 1 else ZERO for place in range(len(value))]
            case Signal():
                return self._signal(value)
            case Slice():
                return self.bits_of(value.value)[value.start : value.stop]
            case Concat():
                return [bit for part in value.parts for bit in self.bits_of(part)]
            case SwitchValue():
                return self._switch(value)
            case Operator():
                return self._operator(value)
        raise TypeError(f"{type(value).__name__} cannot be divided into register stages")

    def _signal(self, signal: Signal) -> list[Bit]:
        if id(signal) in self._drivers:
            rhs = self._drivers[id(signal)].rhs
            name = self._names[id(signal)]
            outer, self._name = self._name, f"{name}_part"
            bits = _extended(self.bits_of(rhs), rhs.shape(), len(signal))
            self._name = outer
            self._give_name(name, bits)
            return bits
        if id(signal) in self._group:
            kind = AFTER if self._after and self.is_result(signal.name) else STATE
            slack = self.interval(signal.name) - 1 if kind == STATE else 0
            added = self._add(kind, len(signal), name=signal.name, group=self._group[id(signal)], slack=slack)
        else:
            added = self._add(INPUT, len(signal), name=signal.name, slot=self.arrivals.get(signal.name, 0))
        added.value, added.named = signal, True
        return added.node.bits

    def _give_name(self, name: str, bits: Sequence[Bit]) -> None:
        """Give the name of a signal to the operator that computes its bits, if there is one."""
        places = {bit for bit in bits if bit >= 0}
        last = self.operations[-1] if self.operations else None
        if last is not None and not last.named and places:
            first = last.adder[0] if last.adder else last
            if min(places) >= first.node.first:
                for operation in last.adder or [last]:
                    operation.name, operation.named = name, True

    def _switch(self, value: SwitchValue) -> list[Bit]:
        test, shape = self.bits_of(value.test), value.shape()
        if not _unique(test):
            # The other cases are no inputs.
            chosen = _case_of("".join("01"[bit == ONE] for bit in reversed(test)), value)
            return _extended(self.bits_of(chosen), chosen.shape(), shape.width)
        cases = [(patterns, self.bits_of(case), case.shape()) for patterns, case in value.cases]
        columns = list(zip(*(_extended(bits, of, shape.width) for _, bits, of in cases), strict=True))

        def build(read: Any) -> Value:
            values = [(patterns, read(bits, of)) for patterns, bits, of in cases]
            return SwitchValue(read(test, value.test.shape()), values)

        is_table = not any(bit >= 0 for column in columns for bit in column)
        wide = self.model.table(len(_unique(test))) if is_table else None
        rows = [test, *(bits for _, bits, _ in cases)]
        added = self._logic([_unique((*column, *test)) for column in columns], rows, build, wide)
        return [
            column[0] if len(set(column)) == 1 else bit for column, bit in zip(columns, added.node.bits, strict=True)
        ]

    def _logic(
        self, columns: list[list[Bit]], rows: Sequence[list[Bit]], build: Any, wide: int | None = None
    ) -> Operation:
        """Add logic with the input bits of each output bit; ``wide`` is the delay of bits with many inputs."""
        added = self._add(LOGIC, len(columns), rows, local=columns)
        added.build = build
        model = self.model
        added.wide = [
            None if len(column) <= model.widest else model.logic(len(column)) if wide is None else wide
            for column in columns
        ]
        return added

    def _operator(self, value: Operator) -> list[Bit]:
        operands = [(self.bits_of(operand), operand.shape()) for operand in value.operands]
        (first, first_shape), (second, _) = operands[0], operands[-1]
        word, width = value.operator, len(value)
        if word in ("u", "s"):
            return first

        def build(read: Any) -> Value:
            return Operator(word, [read(bits, shape) for bits, shape in operands])

        if word in ("<<", ">>") and not _unique(second):
            return _shifted_by_constant(word, operands, width)
        if word in _IDENTITIES:
            return self._bitwise(word, [_extended(bits, shape, width) for bits, shape in operands], build)
        if word in ("+", "-"):
            return self._adder(value, operands, build)
        if word == "<" and first_shape.signed and set(second) <= {ZERO}:
            return first[-1:]
        if word in ("<", "<=", ">", ">=") and len(_unique((*first, *second))) > self.model.widest:
            return self._comparison(word, operands, build)
        rows = [bits for bits, _ in operands]
        if word == "~":
            return self._logic([_unique([bit]) for bit in first], rows, build).node.bits
        read = _unique(bit for bits in rows for bit in bits)
        return self._logic([read] * width, rows, build, self._delay(word, read, first, second)).node.bits

    def _adder(self, value: Operator, operands: Sequence[tuple[list[Bit], Shape]], build: Any) -> list[Bit]:
        """Add a sum or a difference."""
        word, width, inner = value.operator, len(value), value.operands[0]
        rows = [_extended(bits, shape, width) for bits, shape in operands]
        if len(rows) == 1:
            rows.insert(0, [ZERO] * width)
        if set(rows[1]) <= {ZERO}:
            return rows[0]
        carry, carry_shape = operands[-1]
        if word == "+" and len(carry) == 1 and isinstance(inner, Operator) and inner.operator == "+":
            # A third summand of one bit is the carry in.
            x, y = ((self.bits_of(part), part.shape()) for part in inner.operands)

            def build_of_three(read: Any) -> Value:
                total: Value = read(*x) + read(*y) + read(carry, carry_shape)
                return total

            return self._sum(_extended(*x, width), _extended(*y, width), False, build_of_three, carry)
        return self._sum(rows[0], rows[1], word == "-", build)

    def _comparison(self, word: str, operands: Sequence[tuple[list[Bit], Shape]], build: Any) -> list[Bit]:
        """Add a comparison by a carry chain."""
        longest = max(len(bits) for bits, _ in operands)
        rows = [_extended(bits, shape, longest) for bits, shape in operands]
        less, more = rows if word == "<" else reversed(rows)

        def build_of_difference(read: Any) -> Value:
            # Written as a comparison, the carry out would be inverted by a lookup table in front of a register.
            return (read(less) - read(more))[-1]

        is_plain = "=" in word or any(shape.signed for _, shape in operands)
        local = [_unique(pair) for pair in zip(*rows, strict=True)]
        added = self._add(CHAIN, 1, rows, local=local, delays=[self.model.carry, self.model.chain])
        added.build = build if is_plain else build_of_difference
        return added.node.bits

    def _delay(self, word: str, read: Sequence[Bit], first: Sequence[Bit], second: Sequence[Bit]) -> int | None:
        """Return the delay of an operator whose bits depend on all operands, unless it is plain logic."""
        model = self.model
        if word in ("b", "r|", "r&", "r^", "==", "!="):
            return None
        if len(read) <= model.widest:
            return None
        if word == "*":
            return model.product(len(first), len(second), dsp=self.dsp)
        if word in ("<<", ">>"):
            return model.logic(3) * len(second)
        raise TypeError(f"the operator {word} cannot be divided into register stages")

    def _bitwise(self, word: str, rows: list[list[Bit]], build: Any) -> list[Bit]:
        same = _IDENTITIES[word]
        columns = list(zip(*rows, strict=True))
        local = [_unique(column) for column in columns]
        added = self._logic(local, rows, build)
        bits = []
        for (left, right), bit in zip(columns, added.node.bits, strict=True):
            if right == same:
                bit = left
            elif left == same:
                bit = right
            elif word != "^" and {ZERO: ONE, ONE: ZERO}[same] in (left, right):
                bit = {ZERO: ONE, ONE: ZERO}[same]
            bits.append(bit)
        return bits

    def _sum(self, x: list[Bit], y: list[Bit], subtracts: bool, build: Any, carry: Sequence[Bit] = ()) -> list[Bit]:
        """Add an adder, in pieces if it is long."""
        width = len(x)
        size = PIECE if width > PIECE + PIECE // 2 else width
        pieces: list[Operation] = []
        bits: list[Bit] = []
        for low in range(0, width, size):
            high = min(low + size, width)
            is_last = high == width
            local = [_unique(column) for column in zip(x[low:high], y[low:high], strict=True)]
            common = [pieces[-1].node.first + size] if pieces else []
            if not pieces:
                local[0] = _unique((*local[0], *carry))
            added = self._add(
                CHAIN,
                high - low + (not is_last),
                [] if pieces else [x, y, list(carry)],
                local=local,
                common=common,
                delays=[self.model.carry, self.model.chain],
            )
            added.summands, added.carry, added.subtracts = (x[low:high], y[low:high]), common or carry, subtracts
            pieces.append(added)
            bits += added.node.bits[: high - low]
        for piece in pieces:
            piece.build, piece.adder = build, pieces
        return bits

    def _prune(self) -> None:
        """Omit operators that nothing reads."""
        owner = [operation for operation in self.operations for _ in range(operation.node.width)]
        live: set[int] = set()
        for operation in reversed(self.operations):
            if id(operation) in live or operation.node.kind in (NEXT, SINK):
                live |= {id(operation), *(id(owner[bit]) for bit in operation.node.inputs)}
        self.operations = [operation for operation in self.operations if id(operation) in live]

    def slots_of_registers(self, slots: Sequence[int]) -> dict[str, int]:
        """Return the slot in which each register of the module is read, or else written, by its name."""
        slot_of: dict[str, int] = {}
        for kind in (NEXT, STATE):
            for operation, slot in zip(self.operations, slots, strict=True):
                if operation.node.kind == kind:
                    signals = self.steps[operation.node.group][1] if kind == NEXT else [operation]
                    slot_of |= dict.fromkeys((signal.name for signal in signals), slot)
        return slot_of


def _fragments(fragment: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a fragment and all of its submodules, each after its path of names."""
    yield path, fragment
    for inner, name, _ in fragment.subfragments:
        yield from _fragments(inner, (*path, name))


def _assignments(statements: Iterable[Any]) -> Iterator[Assign]:
    """Yield all assignments; those under a condition are only read by registers under the same condition."""
    for statement in statements:
        if isinstance(statement, Assign):
            yield statement
        else:
            for _, inner, _ in statement.cases:
                yield from _assignments(inner)


def _case_of(code: str, switch: SwitchValue) -> Value:
    """Return the value of the case that a code in binary selects."""
    for patterns, case in switch.cases:
        for pattern in (code,) if patterns is None else patterns:
            if all(bit in (own, "-") for own, bit in zip(code, pattern, strict=True)):
                return case
    return Const(0, 0)


def _unique(bits: Iterable[Bit]) -> list[Bit]:
    """Return the bits that are not constant, each once."""
    return [bit for bit in dict.fromkeys(bits) if bit >= 0]


def _shifted_by_constant(word: str, operands: Sequence[tuple[list[Bit], Shape]], width: int) -> list[Bit]:
    """Return the bits of a shift by a constant, which is no logic."""
    (bits, shape), (amount, _) = operands
    places = sum((bit == ONE) << place for place, bit in enumerate(amount))
    if word == "<<":
        return _extended([*[ZERO] * places, *bits], shape, width)
    return _extended(bits, shape, width + places)[places:]


def _extended(bits: list[Bit], shape: Shape, width: int) -> list[Bit]:
    """Return the bits of a value of a shape, extended or truncated to a width."""
    filling = bits[-1] if shape.signed and bits else ZERO
    return [*bits, *[filling] * (width - len(bits))][:width]
