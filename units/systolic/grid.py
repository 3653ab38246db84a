"""Two-dimensional systolic array with one or several sums per multiply-accumulate."""

from dataclasses import replace
from typing import Any

from amaranth.hdl import Array as Choice
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl.specs import Build, Tiling, UnitSpec
from halfulp.hdl.wire import modulo_counter, wire
from halfulp.units.base import Unit
from halfulp.units.shared import add_part

from .array import K_BITS, Array, Drain, Sources, connect_entry, delayed, index_shape
from .step import UNITS


class Grid(Array):
    """Two-dimensional output-stationary systolic array: ``depth`` elements of a tile per multiply-accumulate.

    Numbers of ``a`` move right along the rows, numbers of ``b`` down the columns. Each row and column is delayed by one
    cycle more than the previous one, so that operands of one step of k meet in each multiply-accumulate. Finished sums
    move to second registers and are drained down the columns while the next tile is computed. The sums of a
    multiply-accumulate take turns, so up to ``depth - 1`` register stages are in the loop of its accumulator.

    Parameters
    ----------
    mac : MacSpec, BlockMacSpec, SparseMacSpec or str
        Step of each multiply-accumulate, with a source if it is stochastic; see `Array`.
    n, m : int
        Rows, and columns of multiply-accumulates.
    depth : int
        Maximum number of vectors per row of a tile; a tile has n rows and m * depth columns.
    build : Build
        Register stages and structure of each multiply-accumulate; changes no result bit.

    Members
    -------
    tile : In(stream.Signature(StructLayout({"k": 32, "vectors": range(depth + 1)})))
        Request of a tile: k products per result, at least 1, and the number of vectors per row, 1 to ``depth``.
        ``vectors`` is absent if the depth is 1.
    a : In(stream.Signature(ArrayLayout(entry, n)))
        For each tile and step of k: the entries of all rows; see `entry_shape`.
    b : In(stream.Signature(ArrayLayout(entry, m)))
        For each tile and step of k: the vectors of the row of ``b``.
    c : Out(stream.Signature(ArrayLayout(mac.o, m)))
        For each tile: its rows, each as its vectors in order.

    Latency
    -------
    `cycles` returns the cycles of a product. A step of k takes ``depth`` cycles, also in a tile of fewer vectors.

    Notes
    -----
    As in a `Chain`, nothing stalls inside the array. Results equal those of ``golden.gemm`` with ``tiling``.

    Source
    ------
    Kung, Leiserson: Systolic Arrays (for VLSI), 1978.
    """

    def __init__(
        self,
        *,
        mac: UnitSpec | str,
        n: int,
        m: int,
        depth: int = 1,
        build: Build = Build(),
    ) -> None:
        shape = f"_d{depth}" if depth != 1 else ""
        super().__init__(mac=mac, tiling=Tiling(n, m, depth), a_lanes=n, name="grid", shape=shape, build=build)
        self.depth = depth

    def _part(self, build: Build) -> Unit:
        return UNITS[type(self.mac)].of(replace(self.mac.without_source, interleave=self.depth), build)

    @property
    def _latency(self) -> int:
        return self.stages + 1

    @property
    def _distance(self) -> int:
        return self.n + self.m - 1

    def _cycles(self, n: int, k: int, m: int) -> int:
        first, free = 1, 0
        for tile in self.tiling.tiles(n, m):
            # A tile overwrites the results of the previous one, which must have been drained.
            last = max(first + (k - 1) * self.depth, free) + self.depth - 1
            free = last + self._latency + 1 + self.n * tile.vectors
            first = last + 1
        return free + self._distance + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.drain = drain = Drain(
            tiling=self.tiling, width=self.m * self.mac.o.width, distance=self._distance, delay=self._latency + 1
        )
        go, flags = self._issue(m, drain)
        ask = Cat(drain.ask, drain.row, *([drain.address] if self.depth > 1 else []))
        down: Value = Cat(
            delayed(m, Cat(Value.cast(code), ask), column, f"b{column}") for column, code in enumerate(self.b.payload)
        )
        passed: Value = Const(0, self.m * self.mac.o.width)
        for row, code in enumerate(self.a.payload):
            line = GridRow(self, self.seeds[row * self.m : (row + 1) * self.m])
            constants = {"row": Const(row, index_shape(self.n)), **line.sources.ports}
            add_part(m, platform, f"row{row}", line, self.key, **constants)
            m.d.comb += [
                line.left.eq(delayed(m, Cat(Value.cast(code), go, flags), row, f"a{row}")),
                line.above.eq(down),
                line.result_above.eq(passed),
            ]
            down, passed = line.below, line.result_below
        # The first column finishes first, so it is delayed most.
        straight = [
            delayed(m, passed.word_select(column, self.mac.o.width), self.m - 1 - column, f"c{column}")
            for column in range(self.m)
        ]
        m.d.comb += [
            drain.arriving.eq(Cat(*straight)),
            drain.arrived.eq(delayed(m, drain.ask, self._distance, "arrived")),
            Value.cast(self.c.payload).eq(drain.o.payload),
            self.c.valid.eq(drain.o.valid),
            drain.o.ready.eq(self.c.ready),
        ]
        return m

    def _issue(self, m: Module, drain: Drain) -> tuple[Value, Value]:
        """Return the control bits of a step: valid, and first and last step of its tile, and a vector as padding."""
        busy, first, last, may_go, go = (Signal(name=name) for name in ("busy", "first", "last", "may_go", "go"))
        steps_left = Signal(K_BITS)
        vector, last_vector = modulo_counter(m, self.depth, go)
        begins, padding, vectors = Const(1, 1), Const(0, 1), Const(1, 1)
        if self.depth > 1:
            vectors = Signal(range(self.depth + 1), name="vectors")
            begins, padding = wire(m, vector == 0, "begins"), wire(m, vector >= vectors, "padding")
        m.d.comb += [
            last.eq(steps_left == 1),
            may_go.eq(busy & (drain.free | ~last | ~begins)),
            go.eq(may_go & self.a.valid & (self.b.valid | padding)),
            self.a.ready.eq(may_go & (self.b.valid | padding) & last_vector),
            self.b.ready.eq(may_go & self.a.valid & ~padding),
            drain.claim.eq(go & last & begins),
            drain.finish.eq(go & last & last_vector),
            drain.vectors.eq(vectors),
            self.tile.ready.eq(~busy | drain.finish),
        ]
        with m.If(go & last_vector):
            m.d.sync += [first.eq(0), steps_left.eq(steps_left - 1)]
            with m.If(last):
                m.d.sync += busy.eq(0)
        with m.If(self.tile.valid & self.tile.ready):
            m.d.sync += [busy.eq(1), first.eq(1), steps_left.eq(self.tile.payload.k)]
            if self.depth > 1:
                m.d.sync += vectors.eq(self.tile.payload.vectors)
        return go, Cat(first, last, *([padding] if self.depth > 1 else []))


def _layouts(grid: Grid) -> tuple[data.StructLayout, data.StructLayout, int]:
    """Return the layouts of the signals to the right and down, and the bits of a result."""
    flags = ("valid", "first", "last", *(["padding"] if grid.depth > 1 else []))
    address = {"ask_vector": index_shape(grid.depth)} if grid.depth > 1 else {}
    right = data.StructLayout({"a": grid.mac.entry_bits("a"), **dict.fromkeys(flags, 1)})
    down = data.StructLayout({"b": grid.mac.entry_bits("b"), "ask": 1, "ask_row": index_shape(grid.n), **address})
    return right, down, grid.mac.o.width


class GridRow(wiring.Component):
    """Row of a grid.

    Parameters
    ----------
    grid : Grid
    seeds : list of int
        Seeds of the multiply-accumulates of the row.

    Members
    -------
    row : In
        Position of the row in the grid, a constant.
    seeds : In
        The constant of `Sources.ports`, if there is one.
    left : In
        Port ``left`` of the first element.
    above, below, result_above, result_below
        Ports of all elements, first column in the low bits.
    """

    def __init__(self, grid: Grid, seeds: list[int]) -> None:
        self.name = f"row_{grid.name}"
        self.grid, self.sources = grid, Sources(grid.mac, seeds)
        right, down, result = _layouts(grid)
        states = {name: In(len(value)) for name, value in self.sources.ports.items()}
        columns = {"above": In(down.size * grid.m), "result_above": In(result * grid.m)}
        columns |= {"below": Out(down.size * grid.m), "result_below": Out(result * grid.m)}
        super().__init__({"row": In(index_shape(grid.n)), "left": In(right.size), **columns, **states})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left: Value = self.left
        elements = [Element(self.grid) for _ in range(self.grid.m)]
        for column, element in enumerate(elements):
            add_part(m, platform, f"element{column}", element, self.grid.key, row=self.row)
            if self.grid.mac.words:
                flags = data.View(_layouts(self.grid)[0], left)
                step = flags.valid & ~flags.padding if self.grid.depth > 1 else flags.valid
                name = f"element{column}"
                self.sources.connect(m, platform, name, column, element, seeds=self.seeds, step=step)
            m.d.comb += element.left.eq(left)
            left = element.right
            for name in ("above", "result_above"):
                port = getattr(element, name)
                m.d.comb += port.eq(getattr(self, name).word_select(column, len(port)))
        for name in ("below", "result_below"):
            m.d.comb += getattr(self, name).eq(Cat(getattr(element, name) for element in elements))
        return m


class Element(wiring.Component):
    """Element of a grid: one multiply-accumulate, and registers for the last finished results of its sums.

    Parameters
    ----------
    grid : Grid

    Members
    -------
    row : In
        Position of the element's row in the grid, a constant.
    left, right
        Number of ``a``, and the flags valid, first and last step of its tile, and padding; delayed by one cycle.
    above, below
        Number of ``b``, and the row and vector whose result is requested; delayed by one cycle.
    result_above, result_below
        Result of the requested row, or of a row above.
    random, random_product
        Random words of the operands that arrive. Absent if the multiply-accumulate takes none.
    """

    def __init__(self, grid: Grid) -> None:
        self.name = f"element_{grid.name}"
        self.grid = grid
        right, down, result = _layouts(grid)
        super().__init__(
            {
                "row": In(index_shape(grid.n)),
                "left": In(right.size),
                "right": Out(right.size),
                "above": In(down.size),
                "below": Out(down.size),
                "result_above": In(result),
                "result_below": Out(result),
                **{port: In(bits) for port, bits in grid.mac.words.items()},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        mac: Any = self.grid._part(self.grid.part_build)
        add_part(m, platform, "mac", mac, mac.spec, mac.build)
        right, down, _ = _layouts(self.grid)
        left, above = data.View(right, self.left), data.View(down, self.above)
        m.d.sync += [self.right.eq(self.left), self.below.eq(self.above)]
        connect_entry(m, mac, "a", left.a)
        connect_entry(m, mac, "b", above.b)
        m.d.comb += [
            mac.clear.eq(left.first),
            mac.valid.eq(left.valid),
            *(getattr(mac, port).eq(getattr(self, port)) for port in mac.words),
        ]
        finished: Any = delayed(m, left.valid & left.last, mac.latency, "finished")
        depth = self.grid.depth
        results = [Signal.like(self.result_below, name=f"result_{number}") for number in range(depth)]
        place, _ = modulo_counter(m, depth, finished)
        for number, register in enumerate(results):
            with m.If(finished & (place == number) if depth > 1 else finished):
                m.d.sync += register.eq(mac.o.as_value())
        result = Choice(results)[above.ask_vector] if depth > 1 else results[0]
        mine = above.ask & (above.ask_row == self.row)
        m.d.sync += self.result_below.eq(Mux(mine, result, self.result_above))
        return m
