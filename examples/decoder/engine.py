# amaranth: UnusedElaboratable=no
"""The engine: a circuit that runs the microprogram of a model, with one instruction at a time.

    load  ->  vector memory  ->  units of elements  ->  vector memory  ->  logit
              vector memory  ->  rounding to operands  ->  operand memory, matrix memory
              operand memory, matrix memory  ->  lanes of multiply-accumulates  ->  vector memory

The vector memory has the numbers of torch: results are stored without rounding, and each unit rounds its operands. An
instruction is complete when its last result is written, so the order of all roundings is that of the program.
"""

from dataclasses import replace
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from halfulp.golden.nn.cast import Cast
from halfulp.hdl.formats import Fixed, Format
from halfulp.hdl.specs import BlockMacSpec
from halfulp.units import (
    Accumulate,
    Add,
    BlockMac,
    BlockQuantize,
    Build,
    Compare,
    Convert,
    Div,
    Mac,
    Mul,
    Pwl,
    Rsqrt,
    Scaleb,
)
from halfulp.units.shared import add_part

from .arithmetic import Arithmetic, Product
from .model import Shape, products
from .program import BINARY, REDUCTIONS, UNARY, Index, Number, Op, Program

EXPONENT = Fixed(8, 0)
"""Format of the power of two by which a sum is divided."""


class Lane(wiring.Component):
    """Multiply-accumulate of one lane.

    Parameters
    ----------
    mac : MacSpec or BlockMacSpec

    Members
    -------
    a, b : In
        Entries of both operands.
    begin : In(1)
        Begin a product of a vector and a matrix: the random source, if there is one, returns to its seed.
    valid, first : In(1)
        Entries are present, and are the first ones of a sum.
    o : Out
        Code of the sum.
    """

    def __init__(self, mac: Any) -> None:
        self.mac: Any = (BlockMac if isinstance(mac, BlockMacSpec) else Mac).of(mac)
        self.name = f"lane_{self.mac.name}"
        entries = {name: In(sum(fmt.width for fmt in mac.entries[name].values())) for name in "ab"}
        super().__init__({**entries, **dict.fromkeys(("begin", "valid", "first"), In(1)), "o": Out(mac.o.width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        mac = self.mac
        m.submodules.mac = ResetInserter(self.begin)(mac)
        for name, entry in (("a", self.a), ("b", self.b)):
            m.d.comb += Cat(*(Value.cast(getattr(mac, port)) for port in mac.spec.entries[name])).eq(entry)
        m.d.comb += [mac.valid.eq(self.valid), mac.clear.eq(self.first), self.o.eq(mac.o.as_value())]
        return m


class Engine(wiring.Component):
    """Decoder of one sequence: takes a token, and sends the logits of the next one.

    The attribute ``units`` has the units by name, once the engine is elaborated.

    Parameters
    ----------
    shape : Shape
        Sizes of the model; its width is a power of two.
    arithmetic : Arithmetic
        Formats and units, and the number of lanes: a power of two that divides the elements of a head.
    pipeline : int
        Register stages of the units of elements.

    Members
    -------
    load : In(stream)
        Words for the memories, accepted between tokens: ``data`` for ``address`` of the vector memory, or with
        ``matrix`` of the matrix memory of ``lane``.
    token : In(stream)
        The next token of the sequence; ``restart`` begins a new sequence. It has up to ``shape.context`` tokens.
    logit : Out(stream)
        Logits after each token, in the format of the vector memory, with ``last`` at the last of them.
    """

    def __init__(self, shape: Shape, arithmetic: Arithmetic, *, pipeline: int = 0) -> None:
        self.shape, self.arithmetic, self.lanes, self.pipeline = shape, arithmetic, arithmetic.lanes, pipeline
        modules = products(shape)
        self.program = Program(shape, self.lanes, arithmetic.operands(modules))
        self.products = arithmetic.products(modules)
        self.storage = arithmetic.storage
        self.name = "decoder"
        self.operand_bits, self.matrix_bits = (max(product.bits[side] for product in self.products) for side in (0, 1))
        self.addresses = unsigned(bits_for(max(self.program.vectors.size, self.program.matrices.size)))
        self.positions = unsigned(bits_for(shape.context))
        self.tokens = unsigned(bits_for(shape.vocabulary - 1))
        word = {
            "data": unsigned(max(self.storage.width, self.matrix_bits)),
            "address": self.addresses,
            "lane": unsigned(bits_for(self.lanes - 1)),
            "matrix": unsigned(1),
        }
        super().__init__(
            {
                "load": In(stream.Signature(data.StructLayout(word))),
                "token": In(stream.Signature(data.StructLayout({"token": self.tokens, "restart": unsigned(1)}))),
                "logit": Out(
                    stream.Signature(data.StructLayout({"code": unsigned(self.storage.width), "last": unsigned(1)}))
                ),
            }
        )

    # Memories and the instruction ------------------------------------------------------------------------------------

    def elaborate(self, platform: object) -> Module:
        m = self.m = Module()
        self.units: dict[str, Any] = {}
        self._memories()
        self._instruction()
        # A vector in the units of elements: an element arrives one cycle after its addresses.
        self.issue, self.issue_first, self.issue_last = (Signal(name=name) for name in ("issue", "first", "last"))
        self.arrived, self.arrived_first, self.arrived_last = (
            Signal(name=f"arrived{name}") for name in ("", "_first", "_last")
        )
        m.d.sync += [
            self.arrived.eq(self.issue),
            self.arrived_first.eq(self.issue_first),
            self.arrived_last.eq(self.issue_last),
        ]
        self.destination = Signal(self.addresses)
        self._elements()
        self._operands()
        self._lanes(platform)
        self._sequence()
        return m

    def _memory(self, name: str, width: int, depth: int, reads: int) -> tuple[Any, list[Any]]:
        """Add a memory; return its write port and its read ports, whose data come in the next cycle."""
        memory = Memory(shape=unsigned(width), depth=max(depth, 2), init=[])
        self.m.submodules[name] = memory
        return memory.write_port(), [memory.read_port() for _ in range(reads)]

    def _memories(self) -> None:
        program = self.program
        entries = max(program.entries(name, max(self.shape.hidden, self.shape.context)) for name in program.operands)
        self.vector_write, (self.x, self.y) = self._memory("vectors", self.storage.width, program.vectors.size, 2)
        self.operand_write, (self.operand,) = self._memory("operands", self.operand_bits, entries, 1)
        matrices = [
            self._memory(f"matrix{lane}", self.matrix_bits, program.matrices.size, 1) for lane in range(self.lanes)
        ]
        self.matrix_writes, self.matrices = [write for write, _ in matrices], [read for _, (read,) in matrices]

    def _instruction(self) -> None:
        """Add the program, and the fields of its current instruction with their indices added."""
        m, instructions = self.m, self.program.instructions
        self.current, self.position, self.number = (
            Signal(self.tokens),
            Signal(self.positions),
            Signal(range(len(instructions)), name="instruction"),
        )
        names = ("count", "rows", "x", "y", "to", "lane")
        numbers = [getattr(instruction, name) for instruction in instructions for name in names]
        indices = list(dict.fromkeys(number.index for number in numbers))
        values = Array(self._value(index) for index in indices)
        largest = max(number.base for number in numbers)
        constants = ("x_step", "y_step", "x_row", "to_row", "operands")
        widths = {name: max(getattr(each, name) for each in instructions) for name in constants}
        layout = data.StructLayout(
            {"op": range(len(Op) + 1)}
            | {name: data.StructLayout({"base": range(largest + 1), "index": range(len(indices))}) for name in names}
            | {name: unsigned(bits_for(width)) for name, width in widths.items()}
        )

        def packed(number: Number) -> dict[str, int]:
            return {"base": number.base, "index": indices.index(number.index)}

        m.submodules.program = memory = Memory(
            shape=layout,
            depth=len(instructions),
            init=[
                {"op": each.op.value}
                | {name: packed(getattr(each, name)) for name in names}
                | {name: getattr(each, name) for name in constants}
                for each in instructions
            ],
        )
        port = memory.read_port()
        m.d.comb += port.addr.eq(self.number)
        self.code: Any = port.data
        self.fields: dict[str, Signal] = {}
        for name in names:
            self.fields[name] = value = Signal(self.addresses, name=f"field_{name}")
            field = getattr(self.code, name)
            m.d.comb += value.eq(field.base + values[field.index])

    def _value(self, index: Index | None) -> Value:
        """Return the value of an index for the current token."""
        if index is None:
            return Const(0)
        source = self.current if index.source == "token" else self.position
        shifted = source >> (index.divisor.bit_length() - 1)
        return (shifted & (index.modulus - 1)) * index.factor

    def _of_product(self, values: list[Any]) -> Any:
        """Return that of some values that belongs to the operands of the current instruction."""
        return values[0] if len(values) == 1 else Array(values)[self.code.operands]

    def _is(self, *ops: Op) -> Value:
        """Return the condition that the current instruction is one of some operations."""
        return Cat(*(self.code.op == op.value for op in ops)).any()

    # Units of elements -----------------------------------------------------------------------------------------------

    @property
    def build(self) -> Build:
        """Structure of the units of elements."""
        return Build(pipeline=self.pipeline) if self.pipeline else Build()

    def _add(self, name: str, unit: Any, **operands: Value) -> Any:
        """Add a unit with its operands."""
        self.units[name] = self.m.submodules[name] = unit
        self.m.d.comb += [Value.cast(getattr(unit, port)).eq(value) for port, value in operands.items()]
        return unit

    def _convert(self, name: str, value: Value, a: Format, cast: Cast) -> Value:
        """Round a code to the format of a cast, in the same cycle; a code in its own format stays as it is."""
        if a == cast.fmt:
            return value
        unit = Convert(a=a, o=cast.fmt, rounding=cast.rounding, saturate=cast.saturate)
        return self._add(name, unit, a=value).o.as_value()

    def _stored(self, name: str, value: Value, a: Format) -> Value:
        """Convert a result to the format of the vector memory, which is exact."""
        return self._convert(f"store_{name}", value, a, Cast(self.storage))

    def _elements(self) -> None:
        """Add the units of elements; each arrives from the vector memory, and a result is written in order."""
        m, arithmetic, build = self.m, self.arithmetic, self.build
        element, function = arithmetic.element, arithmetic.function
        x, y = (
            self._convert(f"element_{name}", port.data, self.storage, element)
            for name, port in (("x", self.x), ("y", self.y))
        )
        rounding = {"rounding": element.rounding, "saturate": element.saturate}
        same = {"a": element.fmt, "b": element.fmt, "o": element.fmt, **rounding, "build": build}
        adder = self._add("add", Add(**same), a=x, b=y, subtract=self._is(Op.SUB))
        divide_by_width = Scaleb(a=self.storage, b=EXPONENT, o=element.fmt, **rounding, build=build)
        exponent = Const(-(self.shape.width.bit_length() - 1), EXPONENT.width)
        at_function = self._convert("function_x", self.x.data, self.storage, function)
        root = Rsqrt(a=function.fmt, rounding=function.rounding, saturate=function.saturate, build=build)
        units = {
            Op.ADD: adder,
            Op.SUB: adder,
            Op.MUL: self._add("mul", Mul(**same), a=x, b=y),
            Op.DIV: self._add("div", Div(**same), a=x, b=y),
            Op.MEAN: self._add("mean", divide_by_width, a=self.x.data, b=exponent),
            Op.RSQRT: self._add("rsqrt", root, a=at_function),
        }
        for op, name in ((Op.EXP, "exp"), (Op.GELU, "gelu")):
            spec = arithmetic.pwl[name]
            # Operands beyond the format of the table become its largest number.
            argument = self._convert(f"{name}_x", self.x.data, self.storage, Cast(spec.a, saturate=True))
            units[op] = self._add(name, Pwl.of(spec, build), a=argument)
        results = {
            op: (self._stored(op.name.lower(), unit.o.as_value(), unit.spec.result), unit.latency)
            for op, unit in units.items()
            if op is not Op.SUB
        }
        results[Op.SUB] = results[Op.ADD]
        self.latency = max(latency for _, latency in results.values())
        self.result, self.result_valid = Signal(self.storage.width), Signal()
        stages = [self.arrived]
        for stage in range(1, self.latency + 1):
            later = Signal(name=f"arrived_stage{stage}")
            m.d.sync += later.eq(stages[-1])
            stages.append(later)
        for op, (value, latency) in results.items():
            with m.If(self._is(op)):
                m.d.comb += [self.result.eq(value), self.result_valid.eq(stages[latency])]
        self._reductions(x)

    def _reductions(self, x: Value) -> None:
        """Add the sum and the maximum of a vector."""
        m, element, total = self.m, self.arithmetic.element, self.arithmetic.total
        here = Signal()
        m.d.comb += here.eq(self.arrived & self._is(*REDUCTIONS))
        accumulator = Accumulate(a=element.fmt, acc=total.fmt, rounding=total.rounding, saturate=total.saturate)
        self._add("sum", accumulator, a=x, clear=self.arrived_first, valid=here)
        best = Signal(element.fmt.width)
        compare = self._add("compare", Compare(a=element.fmt, b=element.fmt), a=best, b=x)
        with m.If(here):
            m.d.sync += best.eq(Mux(self.arrived_first, x, compare.maximum.as_value()))
        self.reduced = Mux(
            self._is(Op.SUM),
            self._stored("sum", accumulator.o.as_value(), total.fmt),
            self._stored("max", best, element.fmt),
        )

    # Operands and products -------------------------------------------------------------------------------------------

    def _operands(self) -> None:
        """Add the rounding of vectors to entries of both operands: numbers, or blocks that are collected first."""
        m, lengths = self.m, [product.block for product in self.products]
        length = max(lengths)
        collected = [Signal(self.storage.width, name=f"collected{place}") for place in range(length)]
        place, whole, row_ends = Signal(range(max(length, 2))), Signal(), Signal()
        m.d.sync += whole.eq(0)
        with m.If(self.arrived & self._is(Op.OPERAND, Op.STORE)):
            complete = self.arrived_last | (place == self._of_product([length - 1 for length in lengths]))
            m.d.sync += [whole.eq(complete), row_ends.eq(self.arrived_last), place.eq(Mux(complete, 0, place + 1))]
            for index, number in enumerate(collected):
                with m.If(place == index):
                    m.d.sync += number.eq(self.x.data)
                with m.Elif(place == 0):
                    # The last block of a vector is filled up with zeros.
                    m.d.sync += number.eq(0)
        entries = [self._entries(number, product, collected) for number, product in enumerate(self.products)]
        a, b = (self._of_product(list(some)) for some in zip(*entries, strict=True))
        self.entry = Signal.like(self.operand_write.addr)
        m.d.comb += [
            self.operand_write.addr.eq(self.entry),
            self.operand_write.data.eq(a),
            self.operand_write.en.eq(whole & self._is(Op.OPERAND)),
        ]
        with m.If(self.operand_write.en):
            m.d.sync += self.entry.eq(self.entry + 1)
        # Rows of the matrix memory lie in one lane; the next row is in the next lane.
        self.lane, self.row_start = Signal(range(self.lanes)), Signal(self.addresses)
        stored = whole & self._is(Op.STORE)
        for lane, port in enumerate(self.matrix_writes):
            load = self.load.valid & self.load.ready & self.load.p.matrix & (self.load.p.lane == lane)
            m.d.comb += [
                port.en.eq(load | (stored & (self.lane == lane))),
                port.addr.eq(Mux(load, self.load.p.address, self.destination)),
                port.data.eq(Mux(load, self.load.p.data, b)),
            ]
        with m.If(stored):
            m.d.sync += self.destination.eq(self.destination + 1)
            with m.If(row_ends):
                next_start = self.row_start + Mux(self.lane == self.lanes - 1, self.code.to_row, 0)
                m.d.sync += [
                    self.lane.eq(self.lane + 1),
                    self.row_start.eq(next_start),
                    self.destination.eq(next_start),
                ]

    def _entries(self, number: int, product: Product, collected: list[Signal]) -> list[Value]:
        """Return entries of both operands of a product; operands with the same format share a unit."""
        mac, cast = product.mac, product.rounding
        entries: dict[Format, Value] = {}
        for fmt in dict.fromkeys((mac.a, mac.b)):
            name = f"operand{number}_{len(entries)}"
            if isinstance(mac, BlockMacSpec):
                unit = BlockQuantize(a=self.storage, o=fmt, rounding=cast.rounding)
                self._add(name, unit, **{f"a{place}": code for place, code in enumerate(collected[: product.block])})
                entries[fmt] = Cat(*(o.as_value() for o in unit.o), unit.o_scale.as_value())
            else:
                rounding = Cast(fmt, cast.rounding, cast.saturate)
                entries[fmt] = self._convert(name, collected[0], self.storage, rounding)
        return [entries[mac.a], entries[mac.b]]

    def _lanes(self, platform: object) -> None:
        """Add the multiply-accumulates: all take the same entry of the operand, and each lane one of its own matrix."""
        m = self.m
        self.begin, self.multiply, self.multiply_first = Signal(), Signal(), Signal()
        valid, first = Signal(), Signal()
        m.d.sync += [valid.eq(self.multiply), first.eq(self.multiply_first)]
        self.read_lane = Signal(range(self.lanes))
        latencies, results = [], []
        for form, product in enumerate(self.products):
            mac, sums = product.mac, []
            seeds = [1] * self.lanes if mac.random is None else mac.random.seeds(self.lanes, mac.seed)
            for number, (seed, matrix) in enumerate(zip(seeds, self.matrices, strict=True)):
                lane = Lane(replace(mac, seed=seed))
                # Lanes with the same multiply-accumulate and seed are one module in Verilog.
                add_part(m, platform, f"lane{form}_{number}", lane, replace(mac, seed=seed))
                self.units[f"mac{form}_{number}"] = lane.mac
                here = valid if len(self.products) == 1 else valid & (self.code.operands == form)
                m.d.comb += [lane.a.eq(self.operand.data), lane.b.eq(matrix.data)]
                m.d.comb += [lane.begin.eq(self.begin), lane.valid.eq(here), lane.first.eq(first)]
                sums.append(lane.o)
            latencies.append(lane.mac.latency)
            results.append(self._stored(f"product{form}", Array(sums)[self.read_lane], mac.o))
        self.mac_latency, self.lane_sum = self._of_product(latencies), self._of_product(results)

    # Sequence --------------------------------------------------------------------------------------------------------

    def _sequence(self) -> None:
        """Add the state machine: fetch an instruction, run it, wait for its last result."""
        m, fields, code = self.m, self.fields, self.code
        x, y, group = Signal(self.addresses), Signal(self.addresses), Signal(self.addresses)
        element, row, wait = Signal(self.addresses), Signal(self.addresses), Signal(range(self.latency + 8))
        place = Signal(self.addresses)
        next_position = Signal(self.positions)
        vector = self.vector_write
        m.d.comb += [
            self.x.addr.eq(x),
            self.y.addr.eq(y),
            self.operand.addr.eq(place),
            *(port.addr.eq(x) for port in self.matrices),
            vector.addr.eq(self.destination),
            vector.data.eq(self.result),
            vector.en.eq(self.result_valid & self._is(*BINARY, *UNARY)),
            self.logit.p.code.eq(self.x.data),
            self.logit.p.last.eq(element == fields["count"] - 1),
            self.issue_first.eq(element == 0),
            self.issue_last.eq(element == fields["count"] - 1),
            self.multiply_first.eq(place == 0),
        ]
        with m.If(self.result_valid & self._is(*BINARY, *UNARY)):
            m.d.sync += self.destination.eq(self.destination + 1)

        def following() -> list[Any]:
            """Return the statements that go to the next instruction."""
            last = self.number == len(self.program.instructions) - 1
            return [self.number.eq(Mux(last, 0, self.number + 1))]

        with m.FSM():
            with m.State("fetch"):
                m.next = "decode"
            with m.State("decode"):
                m.d.sync += [
                    *(port.eq(fields[name]) for name, port in (("x", x), ("y", y))),
                    group.eq(fields["x"]),
                    self.destination.eq(fields["to"]),
                    self.row_start.eq(fields["to"]),
                    self.lane.eq(fields["lane"]),
                    *(counter.eq(0) for counter in (element, row, place, self.entry, self.read_lane)),
                ]
                with m.If(self._is(Op.TAKE)):
                    m.next = "take"
                with m.Elif(self._is(Op.PRODUCT)):
                    m.d.comb += self.begin.eq(1)
                    m.next = "product"
                with m.Elif(self._is(Op.SEND)):
                    m.next = "send"
                with m.Else():
                    m.next = "vector"
            with m.State("take"):
                m.d.comb += [self.load.ready.eq(1), self.token.ready.eq(~self.load.valid)]
                with m.If(self.load.valid):
                    m.d.comb += [
                        vector.en.eq(~self.load.p.matrix),
                        vector.addr.eq(self.load.p.address),
                        vector.data.eq(self.load.p.data),
                    ]
                with m.Elif(self.token.valid):
                    now = Mux(self.token.p.restart, 0, next_position)
                    m.d.sync += [self.current.eq(self.token.p.token), self.position.eq(now)]
                    m.d.sync += [next_position.eq(now + 1), *following()]
                    m.next = "fetch"
            with m.State("vector"):
                m.d.comb += self.issue.eq(1)
                m.d.sync += [x.eq(x + code.x_step), y.eq(y + code.y_step), element.eq(element + 1)]
                with m.If(self.issue_last):
                    m.d.sync += [element.eq(0), row.eq(row + 1), group.eq(group + code.x_row), x.eq(group + code.x_row)]
                    with m.If(row == fields["rows"] - 1):
                        m.d.sync += wait.eq(self.latency + 2)
                        m.next = "wait"
            with m.State("wait"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    with m.If(self._is(*REDUCTIONS)):
                        m.d.comb += [vector.en.eq(1), vector.data.eq(self.reduced)]
                    m.d.sync += following()
                    m.next = "fetch"
            with m.State("product"):
                m.d.comb += self.multiply.eq(1)
                m.d.sync += [x.eq(x + 1), place.eq(place + 1)]
                with m.If(place == fields["count"] - 1):
                    m.d.sync += [place.eq(0), wait.eq(self.mac_latency)]
                    m.next = "sum"
            with m.State("sum"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.next = "results"
            with m.State("results"):
                m.d.comb += [vector.en.eq(1), vector.data.eq(self.lane_sum)]
                m.d.sync += [self.destination.eq(self.destination + 1), self.read_lane.eq(self.read_lane + 1)]
                with m.If(self.read_lane == self.lanes - 1):
                    m.d.sync += [row.eq(row + 1), group.eq(group + code.x_row), x.eq(group + code.x_row)]
                    m.next = "product"
                    with m.If(row == fields["rows"] - 1):
                        m.d.sync += following()
                        m.next = "fetch"
            with m.State("send"):
                # The address is stable, so the next cycle has the data.
                m.next = "offer"
            with m.State("offer"):
                m.d.comb += self.logit.valid.eq(1)
                with m.If(self.logit.ready):
                    m.d.sync += [x.eq(x + 1), element.eq(element + 1)]
                    m.next = "send"
                    with m.If(self.logit.p.last):
                        m.d.sync += following()
                        m.next = "fetch"
