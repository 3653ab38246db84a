"""Common base of units with an accumulator."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from halfulp.hdl import late, quire, tree
from halfulp.hdl.eager import Sum
from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, add, align, unpack
from halfulp.hdl.raw import Raw
from halfulp.hdl.round import chosen_by
from halfulp.hdl.specs import AccumulateSpec, MacSpec, QuireRegister, RunningSumSpec, ValueRange
from halfulp.hdl.specs.build import LOOP, SPEED
from halfulp.hdl.wire import extended, wire

from .base import Unit
from .builds import Choices
from .described import Described
from .sources import is_source


@dataclass(frozen=True)
class Placed:
    """Exact sum of products that is added to an accumulator on its own scale.

    Attributes
    ----------
    total : tree.Sum
        Sum in units of ``2^quantum``, which divides all numbers of the accumulator.
    signs : list of Value
        Signs of its terms.
    quantum : int
    """

    total: tree.Sum
    signs: list[Value]
    quantum: int


Term = tuple[Number | Placed, Value | None]
"""A number to add, and the exception flags of its rounding."""

PIECE = 32
"""Bits of an exact sum that are in one register. With register stages, a piece can be added one stage after the piece
below it, so that the loop of the accumulator is as short as the carry chain of one piece."""

TURN = "turn"
"""Name of the register that counts the sums that take turns."""


def rounded_sums(spec: RunningSumSpec) -> list[Sum]:
    """Return the sums of two numbers that an accumulator rounds in each step.

    There are none if it is exact or compound, or adds a sum.
    """
    if not isinstance(spec.acc, Format) or spec.acc.parts > 1:
        return []
    if isinstance(spec, MacSpec):
        factors = (spec.a.part_format, spec.b.part_format) if spec.product is None else (spec.product,)
    elif isinstance(spec, AccumulateSpec):
        factors = (spec.a,)
    else:
        return []
    return [Sum((factors, (spec.acc,)), spec.acc, spec.rounding)]


def add_term(
    unit: Unit, m: Module, term: Number | Placed, base: Number, random: Value | None
) -> tuple[Number, Value | None]:
    """Add a term to the number of a rounded accumulator. Also return the random word if it is not used yet."""
    spec, rounding = unit.spec, unit.rounding
    if not isinstance(term, Placed):
        aligned = align(m, term, base, spec.o, rounding, fast=unit.fast, loops=True)
        return add(m, aligned, spec.o, rounding, random, unit.stochastic, fast=unit.fast)
    term_sum = term.total
    flags = {"sign": term_sum.inf_sign, "nan": term_sum.nan, "inf": term_sum.inf, "invalid": term_sum.invalid}
    start = tree.Term(**tree.of_number(m, base, term.quantum, ValueRange.of(spec.o)))
    total = tree.total(m, [start, tree.Term(term_sum.integer, term_sum.negative, **flags)])
    zero_sign = tree.sign_of_zero([start.sign, *term.signs], rounding, from_zero=False)
    bits = tree.bits_of(spec.sums, term.quantum)
    return tree.as_raw(m, total, term.quantum, bits, zero_sign, fast=unit.fast), random


class Structures(Choices):
    """Base class of components with the structures of an accumulator."""

    multiplies = True

    @property
    def sums(self) -> list[Sum]:
        return rounded_sums(self.spec)

    @property
    def goals(self) -> tuple[str, ...]:
        """``speed`` if floats and exact products are added, ``loop`` if a step rounds a sum of two numbers."""
        formats = (*(fmt.part_format for fmt in self.spec.operands.values()), self.spec.acc)
        product = getattr(self.spec, "product", None)
        is_float = (isinstance(fmt, Format) and fmt.is_floating_point for fmt in formats)
        return (SPEED,) * (product is None and all(is_float)) + (LOOP,) * bool(self.sums)


class RunningSum(Described, Structures):
    """Unit with an accumulator: a format rounded in every step, or a quire rounded when it is read.

    Subclasses compute the number to add in ``term``.

    Members
    -------
    c : In(o)
        Start value.
    load : In(1)
        Start this step from ``c`` instead of the accumulator; a new sum needs no idle cycle.
    clear : In(1)
        Start this step from +0; ``load`` has priority.
    o : Out(o)
        Accumulator, +0 after reset. An exact accumulator is rounded to it and has no -0.
    flags : Out(5)
        Exception flags of the last step, 0 after reset. Absent without ``flags``.

    Notes
    -----
    With ``interleave`` n, n sums take turns: the k-th accepted operand since the reset belongs to sum k mod n. ``load``
    and ``clear`` start the sum in turn, and ``o`` is its result. A sum is used again n operands later, so its loop may
    take up to n cycles, with up to n - 1 of the register stages.

    Latency
    -------
    ``stages + 1`` cycles from operands to result; one step per cycle.
    """

    stateful = True

    def interval(self, register: str) -> int:
        return 1 if is_source(register) or register == TURN else int(self.spec.interleave)

    @abstractmethod
    def term(self, m: Module) -> Term:
        """Return the number to add, and the exception flags of its rounding if it has any."""

    def logic(self, m: Module) -> None:
        random = self.word(m)
        term, flags = self.term(m)
        if self.spec.quire is None:
            code = self._rounded(m, term, flags, random)
        else:
            assert not isinstance(term, Placed)
            code = self._exact(m, term, random, self.spec.quire)
        m.d.comb += self.o.as_value().eq(code)

    def _rounded(self, m: Module, term: Number | Placed, flags: Value | None, random: Value | None) -> Value:
        """Add to the accumulator and round; the flags of the sum and those of the term are those of the step."""
        fmt = self.spec.o
        sums = _Sums(m, self)
        if self.build.goal == LOOP:
            assert isinstance(term, Raw)
            return self._late(m, sums, term, random)
        accumulator = sums.register(Signal(fmt.width, name="accumulator"))
        base = Signal(fmt.width)
        m.d.comb += base.eq(sums.start(self.c.as_value(), accumulator))
        total, random = add_term(self, m, term, self.number_of(m, base, fmt, "base"), random)
        code, of_sum = self.rounded_with_flags(m, total, random)
        results = [(accumulator, code)]
        if of_sum is not None:
            raised = Signal(len(of_sum), name="raised")
            results.append((raised, of_sum if flags is None else of_sum | flags))
            m.d.comb += self.flags.eq(raised)
        sums.step(results)
        return accumulator

    def _late(self, m: Module, sums: "_Sums", term: Raw, random: Value | None) -> Value:
        """Add to the accumulator and round, with late normalisation."""
        fmt = self.spec.o
        loop = late.Loop(*rounded_sums(self.spec))
        start = unpack(m, self.c.as_value(), fmt, "start")
        assert isinstance(start, Raw)
        begin = loop.start(m, start)
        widths = loop.registers
        held = late.Held(*(sums.register(Signal(bits, name=f"held_{name}")) for name, bits in widths.items()))
        last = in_turn = loop.normalised(m, held)
        if self.spec.interleave > 1:
            in_turn = loop.normalised(m, late.Held(*map(sums.in_turn, held)))
        base = late.Start(*(sums.begin(*pair) for pair in zip(begin, in_turn, strict=True)))
        sums.step(list(zip(held, loop.step(m, base, term, random), strict=True)))
        return loop.code(m, last)

    def _exact(self, m: Module, term: Number, random: Value | None, register: QuireRegister) -> Value:
        """Add to the quire, and round its value for the output."""
        placed = quire.place(m, term, register.quantum, "term")
        begin = quire.place(m, unpack(m, self.c.as_value(), self.spec.o, "start"), register.quantum, "start")

        sums = _Sums(m, self)
        pieces, kept = _held(register, sums)
        flags = {name: sums.start(getattr(begin, name), getattr(kept, name)) for name in ("nan", "inf", "sign")}
        base = FixedRaw(Signal(signed(register.width), name="base"), quantum=register.quantum, **flags)
        loaded = extended(begin.integer, register.width)
        starts = [sums.start(loaded[low : low + len(piece)], piece) for low, piece in pieces.items()]
        m.d.comb += base.integer.eq(Cat(*starts))
        after = quire.step(m, base, placed, register)
        # Each piece of the sum has its own stage; the carry into the next one is registered with it.
        for low, piece in pieces.items():
            sums.step([(piece, after.integer[low : low + len(piece)])])
        sums.step([(getattr(kept, name), getattr(after, name)) for name in ("sign", "nan", "inf")])
        if random is not None:
            # A step that is not valid changes nothing, including the random word that rounds the last one.
            held_random = Signal(len(random))
            sums.step([(held_random, random)])
            random = held_random
        rounding = self.rounding
        if self.mode is not None:
            held_mode = Signal(len(self.mode))
            sums.step([(held_mode, self.mode)])
            rounding = chosen_by(self.spec.rounding, held_mode)
        return self.rounded(m, quire.read(kept), random, rounding)


def _held(register: QuireRegister, sums: "_Sums") -> tuple[dict[int, Signal], FixedRaw]:
    """Create the registers of a quire, zero after reset: pieces of the sum by first place, and their number.

    The sign is that of an infinity.
    """
    names = {"nan": "held_nan_register", "inf": "held_inf_register", "sign": "held_inf_sign"}
    flags = {flag: sums.register(Signal(name=name)) for flag, name in names.items()}
    pieces = {
        low: sums.register(Signal(min(PIECE, register.width - low), name=f"held_from_{low}"))
        for low in range(0, register.width, PIECE)
    }
    return pieces, FixedRaw(Cat(*pieces.values()).as_signed(), quantum=register.quantum, **flags)


class _Sums:
    """Registers of the sums that take turns on an accumulator: those of each sum, and those of the last result.

    One sum is in the registers of the last result.

    Parameters
    ----------
    m : Module
    unit : RunningSum
    """

    def __init__(self, m: Module, unit: RunningSum) -> None:
        self.m, self.load, self.clear, self.count = m, unit.load, unit.clear, unit.spec.interleave
        self.accepted = unit.en & unit.valid
        self._of_each: dict[str, list[Signal]] = {}
        if self.count > 1:
            # One bit for each sum, because the loop of the accumulator begins behind it.
            self._turn = Signal(self.count, name=TURN, init=1)
            with m.If(self.accepted):
                m.d.sync += self._turn.eq(self._turn.rotate_left(1))
            same_sum = ~(self.load | self.clear)
            self._continues = wire(m, self._turn & same_sum.replicate(self.count), "continues")

    def register(self, result: Signal) -> Signal:
        """Add the registers of each sum to one of the last result, which is returned."""
        if self.count > 1:
            self._of_each[result.name] = [
                Signal.like(result, name=f"{result.name}_{turn}") for turn in range(self.count)
            ]
        return result

    def start(self, loaded: Value, result: Signal) -> Value:
        """Return the value from which a step starts: that of ``load``, zero, or the sum in turn."""
        return self.begin(loaded, self.in_turn(result))

    def in_turn(self, result: Signal) -> Value:
        """Return the sum in turn; of several sums, zero if a new sum starts."""
        if self.count == 1:
            return result
        value: Value = Const(0, 1)
        # Few tables follow the registers, because the loop of the accumulator begins here.
        for continues, register in zip(self._continues, self._of_each[result.name], strict=True):
            value = value | Mux(continues, register, 0)
        return value

    def begin(self, loaded: Value, value: Value) -> Value:
        """Return the value of ``load``, zero, or that of the sum in turn."""
        if self.count == 1:
            return Mux(self.load, loaded, Mux(self.clear, 0, value))
        return Mux(self.load, loaded, 0) | value

    def step(self, next_values: Sequence[tuple[Any, Value]]) -> None:
        """Write the results of a step to the registers, and to those of the sum in turn."""
        with self.m.If(self.accepted):
            self.m.d.sync += [register.eq(value) for register, value in next_values]
            if self.count > 1:
                for turn in range(self.count):
                    with self.m.If(self._turn[turn]):
                        self.m.d.sync += [
                            self._of_each[register.name][turn].eq(value)
                            for register, value in next_values
                            if register.name in self._of_each
                        ]
