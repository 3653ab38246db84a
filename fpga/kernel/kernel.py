"""Accelerator kernel: a systolic array with memory ports and control registers."""

from typing import Any

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    DomainRenamer,
    Module,
    ResetInserter,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from halfulp.units.systolic import Array
from halfulp.units.verilog import check_name

from . import layout as kernelmap
from . import movers, packing, reorder
from .axi import (
    BYTES,
    READ_CHANNELS,
    WRITE_CHANNELS,
    Burst,
    ReadMaster,
    Split,
    WriteBeat,
    WriteMaster,
    flat_ports,
    join_ports,
)
from .control import CHANNELS, Control
from .layout import ADDRESS_BITS, DATA_BITS, ERRORS, MASTERS, element_bytes, entry_bytes

CHUNK = 32
"""Default number of columns of ``a`` per read."""

READ_AHEAD = 16
"""Depth of the queue behind each read port, in beats."""


class Kernel(wiring.Component):
    """Systolic array with memory ports: c = a * b for row-major matrices of any size.

    Control registers (`layout`) hold the arguments of a run and start it. An element takes 1, 2, 4 or 8 bytes, the
    smallest size that holds its code in the low bits. Rows begin at multiples of that size, with the given strides.
    Entries of several numbers have no gaps: the elements of a step of a block are followed by its scale, and weights by
    their indices, up to a whole byte, and k counts steps (`layout.entry_bytes`). They may begin at any byte.
    Result bits equal those of ``golden.gemm`` with the array's tiling for random words. A run starts its random
    sources from the seeds, or with flag `CONTINUE` from the end of the previous run. The kernel pads tiles on chip and
    writes nothing but ``c``.

    Parameters
    ----------
    array : Array
        The array; it becomes a submodule.
    chunk : int
        Columns of ``a`` per read, a power of two. Four chunks of each row of a tile are stored on chip.
    name : str, optional
        Name of the module; default: ``kernel_`` and the name of the array.

    Members
    -------
    ap_clk, ap_rst_n : In(1)
        Clock, and reset, synchronous and active low.
    interrupt : Out(1)
    s_axi_control_* : AXI4-Lite
    m_axi_a_*, m_axi_b_*, m_axi_c_* : AXI4
        Two read ports and one write port. Bursts have whole beats in ascending order and cross no 4 KiB page; writes
        have strobes.

    Attributes
    ----------
    bytes : tuple of int
        Bytes per entry of a and b, and per element of c.

    Raises
    ------
    TypeError, ValueError
        If the array is of another type, the chunk is not a power of two, the name is invalid in Verilog, or an entry is
        longer than a beat.

    Notes
    -----
    If a size is 0, or an address or stride is not a multiple of the element size, the run neither reads nor writes.
    After a memory error the kernel starts no further bursts, and the run ends when the outstanding ones end. The
    register ``error`` reports both cases.

    A vector of ``b`` or of the result takes one cycle if ``m`` of the array is a power of two, and otherwise
    ``m / p`` cycles, with p the largest power of two that divides ``m``.
    """

    def __init__(self, *, array: Array, chunk: int = CHUNK, name: str | None = None) -> None:
        if not isinstance(array, Array):
            raise TypeError(f"array must be a systolic Array, not {type(array).__name__}")
        if not isinstance(chunk, int) or isinstance(chunk, bool):
            raise TypeError(f"chunk must be an int, not {type(chunk).__name__}")
        if chunk < 1 or chunk & (chunk - 1):
            raise ValueError(f"chunk must be a power of two, not {chunk}")
        self.array = array
        self.chunk = chunk
        mac = array.mac
        self.bytes = entry_bytes(mac, "a"), entry_bytes(mac, "b"), element_bytes(mac.o.width)
        self.name = f"kernel_{array.name}" if name is None else name
        check_name(self.name)
        super().__init__(
            {
                kernelmap.CLOCK: In(1),
                kernelmap.RESET: In(1),
                kernelmap.INTERRUPT: Out(1),
                **flat_ports(CHANNELS, f"{kernelmap.CONTROL}_"),
                **flat_ports(READ_CHANNELS, f"{MASTERS[0]}_"),
                **flat_ports(READ_CHANNELS, f"{MASTERS[1]}_"),
                **flat_ports(WRITE_CHANNELS, f"{MASTERS[2]}_"),
            }
        )

    @property
    def title(self) -> str:
        """Size of the array and text of its multiply-accumulates."""
        return self.array.title

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = ClockDomain(local=True)
        m.d.comb += [
            ClockSignal().eq(getattr(self, kernelmap.CLOCK)),
            ResetSignal().eq(~getattr(self, kernelmap.RESET)),
        ]
        m.submodules.control = control = Control()
        m.d.comb += getattr(self, kernelmap.INTERRUPT).eq(control.interrupt)
        join_ports(m, self, kernelmap.CONTROL, control.bus, CHANNELS)
        m.submodules.read_a, m.submodules.read_b = readers = ReadMaster(), ReadMaster()
        m.submodules.write_c = writer = WriteMaster()
        for prefix, reader in zip(MASTERS, readers, strict=False):
            join_ports(m, self, prefix, reader.bus, READ_CHANNELS)
        join_ports(m, self, MASTERS[2], writer.bus, WRITE_CHANNELS)
        flush = Signal()
        path = Datapath(self.array, self.bytes, self.chunk)
        m.submodules.path = ResetInserter({"sync": flush})(path)
        for name in ("n", "k", "m", "a", "b", "c", "a_stride", "b_stride", "c_stride"):
            m.d.comb += getattr(path, name).eq(getattr(control, name))
        for operand, reader in zip(("a", "b"), readers, strict=True):
            movers.connect(m, getattr(path, f"{operand}_request"), reader.request)
            movers.connect(m, reader.beats, getattr(path, f"{operand}_beats"))
        movers.connect(m, path.c_request, writer.request)
        movers.connect(m, path.c_beats, writer.beats)
        self._run(m, control, path, [*readers, writer], flush)
        return m

    def _run(self, m: Module, control: Control, path: "Datapath", masters: Any, flush: Signal) -> None:
        """Add the state machine of a run."""
        error, cycles = Signal(len(ERRORS)), Signal(32)
        resting, failing, calm = Signal(), Signal(3), Signal()
        stop = Signal()
        wrong = self._wrong(control)
        m.d.comb += [
            control.error.eq(error),
            control.cycles.eq(cycles),
            control.resting.eq(resting),
            failing.eq(Cat(*(master.error for master in masters))),
            calm.eq(Cat(*(master.idle for master in masters)).all()),
            *(master.stop.eq(stop) for master in masters),
        ]
        with m.If(~resting):
            # The bits for memory errors follow those for wrong arguments.
            m.d.sync += [cycles.eq(cycles + 1), error.eq(error | (failing << len(wrong)))]
        with m.FSM():
            with m.State("rest"):
                m.d.comb += resting.eq(1)
                with m.If(control.start):
                    m.d.sync += [error.eq(wrong), cycles.eq(1)]
                    m.next = "prepare"
            with m.State("prepare"):
                with m.If(error.any()):
                    m.next = "finish"
                with m.Else():
                    m.d.comb += path.seeds.eq(~control.flags[kernelmap.CONTINUE])
                    m.next = "begin"
            with m.State("begin"):
                m.d.comb += path.start.eq(1)
                m.next = "run"
            with m.State("run"):
                with m.If(failing.any()):
                    m.next = "stop"
                with m.Elif(path.idle & calm):
                    m.next = "finish"
            with m.State("stop"):
                m.d.comb += stop.eq(1)
                with m.If(calm):
                    m.next = "flush"
            with m.State("flush"):
                m.d.comb += [stop.eq(1), flush.eq(1), path.seeds.eq(1)]
                m.next = "finish"
            with m.State("finish"):
                m.d.comb += control.finished.eq(1)
                m.next = "rest"

    def _wrong(self, control: Control) -> Value:
        """Return the error bits of the arguments: a size of 0, or a misaligned address or stride."""
        misplaced = []
        for name, size in zip(("a", "b", "c"), self.bytes, strict=True):
            for register in (getattr(control, name), getattr(control, f"{name}_stride")):
                misplaced.append(register[: movers.power_below(size, BYTES).bit_length() - 1].any())
        empty = [size == 0 for size in (control.n, control.k, control.m)]
        return Cat(Cat(*empty).any(), Cat(*misplaced).any())


class Datapath(wiring.Component):
    """Array with its streams from and to memory; ``sizes`` are the bytes per element of a, b and c."""

    def __init__(self, array: Array, sizes: tuple[int, int, int], chunk: int) -> None:
        self.array, self.sizes, self.chunk = array, sizes, chunk
        super().__init__(
            {
                "start": In(1),
                "seeds": In(1),
                "idle": Out(1),
                **{name: In(movers.SIZE_BITS) for name in ("n", "k", "m", "a_stride", "b_stride", "c_stride")},
                **{name: In(ADDRESS_BITS) for name in ("a", "b", "c")},
                **{f"{name}_request": Out(stream.Signature(Burst)) for name in ("a", "b", "c")},
                "a_beats": In(stream.Signature(DATA_BITS)),
                "b_beats": In(stream.Signature(DATA_BITS)),
                "c_beats": Out(stream.Signature(WriteBeat)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A ResetInserter does not reach the modules that elements share.
        m.domains.array = ClockDomain(local=True)
        m.d.comb += [ClockSignal("array").eq(ClockSignal()), ResetSignal("array").eq(ResetSignal() | self.seeds)]
        m.submodules.array = DomainRenamer("array")(self.array)
        tiles = self._tiles(m, "array_tiles", along=0, down=False)
        payload = self.array.tile.payload
        m.d.comb += [
            payload.k.eq(self.k),
            self.array.tile.valid.eq(tiles.o.valid),
            tiles.o.ready.eq(self.array.tile.ready),
        ]
        if self.array.tiling.depth > 1:
            m.d.comb += payload.vectors.eq(tiles.o.payload.vectors)
        self._feed_a(m)
        self._feed_b(m)
        m.d.comb += self.idle.eq(self._take_c(m))
        return m

    def _tiles(self, m: Module, name: str, *, along: int, down: bool, operand: str | None = None) -> movers.Tiles:
        m.submodules[name] = tiles = movers.Tiles(tiling=self.array.tiling, along=along, down=down)
        m.d.comb += [tiles.start.eq(self.start), tiles.n.eq(self.n), tiles.m.eq(self.m)]
        if operand is not None:
            m.d.comb += [tiles.base.eq(getattr(self, operand)), tiles.stride.eq(getattr(self, f"{operand}_stride"))]
        return tiles

    def _segments(self, m: Module, operand: str, blocks: Any, most: int, size: int) -> tuple[movers.Fork, Split]:
        """Split blocks into rows and request their bursts."""
        rows = movers.Rows(most=most)
        fork = movers.Fork(most=most, size=size)
        split = Split(most_bytes=most * size)
        m.submodules += [rows, fork, split]
        m.d.comb += rows.stride.eq(getattr(self, f"{operand}_stride"))
        movers.connect(m, blocks, rows.i)
        movers.connect(m, rows.o, fork.i)
        movers.connect(m, fork.runs, split.i)
        movers.connect(m, split.o, getattr(self, f"{operand}_request"))
        return fork, split

    def _elements(self, m: Module, operand: str, fork: movers.Fork, most: int, size: int, group: int) -> Any:
        """Unpack beats into the elements of segments."""
        m.submodules[f"beats_{operand}"] = queue = SyncFIFO(width=DATA_BITS, depth=READ_AHEAD)
        m.submodules[f"unpack_{operand}"] = unpack = packing.Unpack(most=most, size=size, group=group)
        movers.connect(m, getattr(self, f"{operand}_beats"), queue.w_stream)
        movers.connect(m, queue.r_stream, unpack.beats)
        movers.connect(m, fork.places, unpack.places)
        return unpack.o

    def _feed_a(self, m: Module) -> None:
        """Feed ``a`` to the array by columns of each tile, transposed in a memory of chunks."""
        array, size, bits = self.array, self.sizes[0], self.array.mac.entry_bits("a")
        tiles = self._tiles(m, "tiles_a", along=0, down=True, operand="a")
        m.submodules.chunks = chunks = movers.Chunks(tiling=array.tiling, size=size, chunk=self.chunk)
        movers.connect(m, tiles.o, chunks.i)
        m.d.comb += chunks.k.eq(self.k)
        fork, _ = self._segments(m, "a", chunks.o, self.chunk, size)
        elements = self._elements(m, "a", fork, self.chunk, size, 1)
        m.submodules.transpose = turn = reorder.Transpose(rows=array.tiling.height, chunk=self.chunk, bits=bits)
        m.d.comb += turn.k.eq(self.k)
        movers.connect(m, elements, turn.i)
        m.submodules.join_a = join = reorder.Regroup(bits=bits, ratio=array.a_lanes, joins=True)
        movers.connect(m, turn.o, join.i)
        movers.connect(m, join.o, array.a)

    def _feed_b(self, m: Module) -> None:
        """Feed ``b`` to the array by rows of each tile."""
        array, size, bits = self.array, self.sizes[1], self.array.mac.entry_bits("b")
        most = array.tiling.columns
        tiles = self._tiles(m, "tiles_b", along=size, down=False, operand="b")
        fork, _ = self._segments(m, "b", self._blocks(m, tiles, rows=self.k, wanted=self.k), most, size)
        group = movers.group_of(array.m, size)
        elements = self._elements(m, "b", fork, most, size, group)
        m.submodules.join_b = join = reorder.Regroup(bits=group * bits, ratio=array.m // group, joins=True)
        codes = Cat(*(elements.payload.word_select(lane, 8 * size)[:bits] for lane in range(group)))
        movers.connect(m, elements, join.i, codes)
        movers.connect(m, join.o, array.b)

    def _take_c(self, m: Module) -> Value:
        """Write the rows of tiles that are inside the result; return a signal that is 1 when all are written."""
        array, size, bits = self.array, self.sizes[2], self.array.mac.o.width
        most = array.tiling.columns
        tiles = self._tiles(m, "tiles_c", along=size, down=True, operand="c")
        blocks = self._blocks(m, tiles, rows=Value.cast(array.tiling.height), wanted=tiles.o.payload.rows)
        fork, split = self._segments(m, "c", blocks, most, size)
        group = movers.group_of(array.m, size)
        m.submodules.part_c = part = reorder.Regroup(bits=group * bits, ratio=array.m // group, joins=False)
        movers.connect(m, array.c, part.i)
        m.submodules.pack = pack = packing.Pack(most=most, size=size, group=group)
        above = Const(0, 8 * size - bits)
        padded = [Cat(part.o.payload.word_select(lane, bits), above) for lane in range(group)]
        movers.connect(m, part.o, pack.i, Cat(*padded))
        movers.connect(m, fork.places, pack.places)
        movers.connect(m, pack.o, self.c_beats)
        return tiles.idle & fork.idle & split.idle & pack.idle

    def _blocks(self, m: Module, tiles: movers.Tiles, *, rows: Value, wanted: Value) -> Any:
        """Convert a stream of tiles to a stream of blocks."""
        blocks = stream.Signature(movers.block_layout(self.array.tiling.columns)).create()
        tile = tiles.o.payload
        m.d.comb += [
            blocks.payload.address.eq(tile.address),
            blocks.payload.rows.eq(rows),
            blocks.payload.wanted.eq(wanted),
            blocks.payload.count.eq(tile.columns),
            blocks.payload.total.eq(tile.vectors * self.array.m),
            blocks.valid.eq(tiles.o.valid),
            tiles.o.ready.eq(blocks.ready),
        ]
        return blocks
