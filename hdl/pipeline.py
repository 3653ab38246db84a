"""Register stages in a unit that is described without them.

`halfulp.hdl.dataflow` makes a graph of operators of the combinational statements of a module, and divides it into
stages. The module is written again with registers between them. The name of a register is that of its value, with the
stage.
"""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Cat, Const, Module, Shape, Signal, Value

from .dataflow import ONE, PIECE, ZERO, Dataflow
from .internals import Assign, ValueTransformer, eval_value
from .operators import Operation
from .schedule import AFTER, NEXT, SINK, Bit


class Stages:
    """Module with register stages, made from a dataflow graph and its schedule.

    Parameters
    ----------
    flow : Dataflow
    slots : sequence of int
        Slot of each operation.
    enable : Value
        Clock enable of the registers.
    reset_less : bool
        Omit the reset of all registers except those of ``control`` and of values that depend on an accumulator.
    control : Signal, optional
        Input whose registers always have a reset.

    Notes
    -----
    A register of a value that depends on an accumulator has after reset what that value is for an accumulator after
    reset, so that outputs are +0 until the first result is due. All other registers are 0 after reset.
    """

    def __init__(
        self,
        flow: Dataflow,
        slots: Sequence[int],
        *,
        enable: Value,
        reset_less: bool = False,
        control: Value | None = None,
    ) -> None:
        self.m = Module()
        self._enable, self._reset_less, self._control = enable, reset_less, control
        self._flow_enable = flow.enable
        self._slots = {id(operation): slot for operation, slot in zip(flow.operations, slots, strict=True)}
        self._owner = {bit: operation for operation in flow.operations for bit in operation.node.bits}
        self._reset = _Reset()
        self._last: dict[Bit, int] = {}
        self._reads: dict[int, int] = {}
        for operation, slot in zip(flow.operations, slots, strict=True):
            for bit in operation.node.inputs:
                self._last[bit] = max(self._last.get(bit, 0), slot)
            for row in operation.rows:
                for before, bit in itertools.pairwise((ZERO, *row)):
                    owner = self._owner.get(bit)
                    if owner and (bit != before + 1 or owner is not self._owner.get(before)):
                        self._reads[id(owner)] = self._reads.get(id(owner), 0) + 1
        for operation, slot in zip(flow.operations, slots, strict=True):
            if operation.node.kind == SINK:
                assert operation.value is not None
                self.m.d.comb += operation.value.eq(self.read(operation.rows[0], slot))
            elif operation.node.kind == NEXT:
                # Registers of the values that the statement reads must not be under its condition.
                self.read(operation.node.common, slot)
                self._step(flow, flow.steps[operation.node.group][0], slot)
            else:
                if operation.node.kind == AFTER or any(self._owner[bit].reads_result for bit in operation.node.inputs):
                    operation.reads_result = True
                if operation.value is None:
                    self._build(operation, slot)

    def read(self, bits: Sequence[Bit], slot: int, shape: Shape | None = None) -> Value:
        """Return the value of bits in a slot, as that of a shape."""
        parts: list[Value] = []
        place = 0
        while place < len(bits):
            end = place + 1
            if bits[place] < 0:
                while end < len(bits) and bits[end] < 0:
                    end += 1
                number = sum((bit == ONE) << index for index, bit in enumerate(bits[place:end]))
                parts.append(Const(number, end - place))
            else:
                value, places = self._in_slot(self._owner[bits[place]], slot)
                first = places[bits[place]]
                while end < len(bits) and places.get(bits[end]) == first + end - place:
                    end += 1
                parts.append(value if end - place == len(value) else value[first : first + end - place])
            place = end
        whole = parts[0] if len(parts) == 1 else Cat(*parts)
        if shape is None or shape.signed == whole.shape().signed:
            return whole
        return whole.as_signed() if shape.signed else whole.as_unsigned()

    def _in_slot(self, operation: Operation, slot: int) -> tuple[Value, dict[Bit, int]]:
        """Return a value in a slot, and the place of each of its bits."""
        if slot == self._slots[id(operation)]:
            assert operation.value is not None
            return operation.value, {bit: place for place, bit in enumerate(operation.node.bits)}
        if slot not in operation.delayed:
            _, places = self._in_slot(operation, slot - 1)
            held = [bit for bit in places if self._last.get(bit, -1) >= slot]
            register = self._register(self.read(held, slot - 1), operation, slot)
            operation.delayed[slot] = register, {bit: place for place, bit in enumerate(held)}
        return operation.delayed[slot]

    def _register(self, value: Value, operation: Operation, slot: int) -> Value:
        controls = operation.value is self._control
        name = f"{operation.name}_stage{slot}"
        reset_less = self._reset_less and not controls and not operation.reads_result
        init = self._reset.value(value) if operation.reads_result else 0
        register = Signal(len(value), name=name, init=init, reset_less=reset_less)
        with self.m.If(self._enable):
            self.m.d.sync += register.eq(value)
        return register

    def _build(self, operation: Operation, slot: int) -> None:
        """Build an operator in its slot; pieces of an adder in one slot are built as one."""
        assert operation.build is not None
        run = [operation]
        for piece in operation.adder[operation.adder.index(operation) + 1 :] if operation.adder else ():
            if self._slots.get(id(piece)) != slot:
                break
            run.append(piece)
        bits = [bit for piece in run for bit in piece.node.bits]
        name = operation.name
        if len(run) < len(operation.adder):
            value = self._piece(run, slot)
            name = f"{name}_from_{PIECE * operation.adder.index(operation)}"
        else:
            value = operation.build(lambda bits, shape=None: self.read(bits, slot, shape))
        is_read_again = self._reads.get(id(operation), 0) > 1 or any(self._last.get(bit, 0) > slot for bit in bits)
        if operation.named or len(run) > 1 or is_read_again:
            signal = Signal(len(value), name=name)
            self.m.d.comb += signal.eq(value)
            self._reset.drivers[id(signal)] = value
            value = signal
        first = 0
        for piece in run:
            count = len(piece.node.local) if piece is not run[-1] else piece.node.width
            piece.value = value[first : first + count] if operation.adder else value
            first += count

    def _piece(self, run: Sequence[Operation], slot: int) -> Value:
        """Return the sum of some pieces of an adder, with the carry out."""
        x, y = (self.read([bit for piece in run for bit in piece.summands[side]], slot) for side in (0, 1))
        subtracts = run[0].subtracts
        carry = self.read(run[0].carry, slot) if run[0].carry else Const(int(subtracts), 1)
        total = Cat(Const(1, 1), x) + Cat(carry, ~y if subtracts else y)
        return total[1 : len(x) + 2]

    def _step(self, flow: Dataflow, statement: Any, slot: int) -> None:
        """Write a statement about registers in its slot."""
        if isinstance(statement, Assign):
            rhs = statement.rhs
            self.m.d.sync += statement.lhs.eq(self.read(flow.bits_before(rhs), slot, rhs.shape()))
            return
        with self.m.Switch(_Delayed(self, flow, slot).on_value(statement.test)):
            for patterns, statements, _ in statement.cases:
                with self.m.Default() if patterns is None else self.m.Case(*patterns):
                    for inner in statements:
                        self._step(flow, inner, slot)


class _Reset:
    """Signals after a reset, as Amaranth's simulator reads them; operands are 0.

    Attributes
    ----------
    drivers : dict of int to Value
        Expressions of combinational signals, by the identity of the signal.
    """

    def __init__(self) -> None:
        self.drivers: dict[int, Value] = {}
        self.slots: dict[int, SimpleNamespace] = {}

    def get_signal(self, signal: Signal) -> int:
        """Return the key of a signal in ``slots``."""
        key = id(signal)
        if key not in self.slots:
            driver = self.drivers.get(key)
            self.slots[key] = SimpleNamespace(curr=signal.init if driver is None else self.value(driver))
        return key

    def value(self, value: Value) -> int:
        """Return the bits of an expression after a reset."""
        bits: int = eval_value(self, value)
        return bits & (1 << len(value)) - 1


class _Delayed(ValueTransformer):
    """Condition of a register, with its signals in a slot; the clock enable is the same in all slots."""

    def __init__(self, stages: Stages, flow: Dataflow, slot: int) -> None:
        self.stages, self.flow, self.slot = stages, flow, slot

    def on_Signal(self, value: Signal) -> Value:
        if value is self.flow.enable:
            return value
        return self.stages.read(self.flow.bits_before(value), self.slot, value.shape())
