"""Two-dimensional systolic array with one accumulator per multiply-accumulate."""

from dataclasses import replace
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl.specs import Build, MacSpec, Tiling
from halfulp.units.mac import Mac

from .array import K_BITS, Array, Drain, delayed, index_shape


class Grid(Array):
    """Two-dimensional output-stationary systolic array: one multiply-accumulate per element of a tile.

    Numbers of ``a`` move right along the rows, numbers of ``b`` down the columns. Each row and column is delayed by one
    cycle more than the previous one, so that operands of one step of k meet in each multiply-accumulate. Finished sums
    move to a second register and are drained down the columns while the next tile is computed.

    Parameters
    ----------
    mac : MacSpec or str
        Step of each multiply-accumulate, with a source if it is stochastic; see `Array`.
    n, m : int
        Rows and columns.
    build : Build
        Register stages and structure of each multiply-accumulate; changes no result bit.

    Members
    -------
    tile : In(stream.Signature(StructLayout({"k": 32})))
        Request of a tile with k products per result, at least 1.
    a : In(stream.Signature(ArrayLayout(mac.a, n)))
        For each tile and step of k: the numbers of all rows.
    b : In(stream.Signature(ArrayLayout(mac.b, m)))
        For each tile and step of k: the numbers of all columns.
    c : Out(stream.Signature(ArrayLayout(mac.o, m)))
        For each tile: its rows.

    Latency
    -------
    `cycles` returns the cycles of a product. A step of k takes one cycle.

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
        mac: MacSpec | str,
        n: int,
        m: int,
        build: Build = Build(),
    ) -> None:
        super().__init__(mac=mac, tiling=Tiling(n, m), a_lanes=n, name="grid", build=build)

    @property
    def _latency(self) -> int:
        return self.build.pipeline + 1

    @property
    def _distance(self) -> int:
        return self.n + self.m - 1

    def _cycles(self, n: int, k: int, m: int) -> int:
        first, free = 1, 0
        for _ in self.tiling.tiles(n, m):
            # A tile overwrites the results of the previous one, which must have been drained.
            last = max(first + k - 1, free)
            free = last + self._latency + 1 + self.n
            first = last + 1
        return free + self._distance + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.drain = drain = Drain(
            tiling=self.tiling, width=self.m * self.mac.o.width, distance=self._distance, delay=self._latency + 1
        )
        go, flags = self._issue(m, drain)
        right = [
            delayed(m, Cat(code, go, flags), row, f"a{row}")
            for row, code in enumerate(Value.cast(code) for code in self.a.payload)
        ]
        ask = Cat(drain.ask, drain.row)
        down = [
            delayed(m, Cat(code, ask), column, f"b{column}")
            for column, code in enumerate(Value.cast(code) for code in self.b.payload)
        ]
        passed: list[Value] = [Signal(self.mac.o.width, name=f"top{column}") for column in range(self.m)]
        for row in range(self.n):
            for column in range(self.m):
                seed = self.seeds[row * self.m + column]
                element = Element(self, row, Mac.of(replace(self.mac, seed=seed), self.build))
                m.submodules[f"element{row}_{column}"] = element
                m.d.comb += [
                    Value.cast(element.left).eq(right[row]),
                    Value.cast(element.above).eq(down[column]),
                    element.result_above.eq(passed[column]),
                ]
                right[row], down[column] = Value.cast(element.right), Value.cast(element.below)
                passed[column] = element.result_below
        # The first column finishes first, so it is delayed most.
        straight = [delayed(m, code, self.m - 1 - column, f"c{column}") for column, code in enumerate(passed)]
        m.d.comb += [
            drain.arriving.eq(Cat(*straight)),
            drain.arrived.eq(delayed(m, drain.ask, self._distance, "arrived")),
            Value.cast(self.c.payload).eq(drain.o.payload),
            self.c.valid.eq(drain.o.valid),
            drain.o.ready.eq(self.c.ready),
        ]
        return m

    def _issue(self, m: Module, drain: Drain) -> tuple[Value, Value]:
        """Return the control bits of a step: valid, and first and last step of its tile."""
        busy, first, last, may_go, go = (Signal(name=name) for name in ("busy", "first", "last", "may_go", "go"))
        steps_left = Signal(K_BITS)
        m.d.comb += [
            last.eq(steps_left == 1),
            may_go.eq(busy & (drain.free | ~last)),
            go.eq(may_go & self.a.valid & self.b.valid),
            self.a.ready.eq(may_go & self.b.valid),
            self.b.ready.eq(may_go & self.a.valid),
            drain.claim.eq(go & last),
            drain.finish.eq(go & last),
            drain.vectors.eq(1),
            self.tile.ready.eq(~busy | drain.finish),
        ]
        with m.If(go):
            m.d.sync += [first.eq(0), steps_left.eq(steps_left - 1)]
            with m.If(last):
                m.d.sync += busy.eq(0)
        with m.If(self.tile.valid & self.tile.ready):
            m.d.sync += [busy.eq(1), first.eq(1), steps_left.eq(self.tile.payload.k)]
        return go, Cat(first, last)


class Element(wiring.Component):
    """Element of a grid: one multiply-accumulate, and a register for its last finished result.

    Parameters
    ----------
    grid : Grid
    row : int
    mac : Mac

    Members
    -------
    left, right
        Number of ``a``, and the flags valid, first and last step of its tile; delayed by one cycle.
    above, below
        Number of ``b``, and the row whose result is requested; delayed by one cycle.
    result_above, result_below
        Result of the requested row, or of a row above.
    """

    def __init__(self, grid: Grid, row: int, mac: Mac) -> None:
        self.row, self.mac = row, mac
        right = data.StructLayout({"a": grid.mac.a.width, "valid": 1, "first": 1, "last": 1})
        down = data.StructLayout({"b": grid.mac.b.width, "ask": 1, "ask_row": index_shape(grid.n)})
        width = grid.mac.o.width
        super().__init__(
            {
                "left": In(right),
                "right": Out(right),
                "above": In(down),
                "below": Out(down),
                "result_above": In(width),
                "result_below": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.mac = mac = self.mac
        m.d.sync += [self.right.eq(self.left), self.below.eq(self.above)]
        m.d.comb += [
            mac.a.as_value().eq(self.left.a),
            mac.b.as_value().eq(self.above.b),
            mac.clear.eq(self.left.first),
            mac.valid.eq(self.left.valid),
        ]
        finished: Any = delayed(m, self.left.valid & self.left.last, mac.latency, "finished")
        result = Signal.like(self.result_below)
        with m.If(finished):
            m.d.sync += result.eq(mac.o.as_value())
        mine = self.above.ask & (self.above.ask_row == self.row)
        m.d.sync += self.result_below.eq(Mux(mine, result, self.result_above))
        return m
