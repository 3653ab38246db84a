"""Timing model of a kernel: clock cycles of a matrix product.

The model uses the constants of the kernel and of its chain. The tests compare it with the simulated kernel.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from halfulp.hdl.specs import Tiling
from halfulp.hdl.specs.tiling import Tile
from halfulp.units.systolic import Chain

from .axi import BYTES, OUTSTANDING
from .kernel import Kernel
from .movers import group_of
from .reorder import BUFFERS

Time = int | Fraction
"""Number of clock cycles; an average over steps may be a fraction."""

REQUESTED = 5
"""Cycles from the start to the first request: three to begin the run, one to split off the burst, one to issue it."""

UNPACKED = 2
"""Cycles from a beat to its first element."""

REOPENED = 1
"""Cycles from the last beat of a burst to a request that waited for it, excluding that of the beat."""

WRITTEN = 2
"""Cycles from the last element of a burst to its beat at the port."""

ENDED = 3
"""Cycles from the last response of the memory to the end of the run, including that of the response."""

LATENCY = 100
"""Default latency of a memory, in cycles."""

OVERHEAD = 12
"""Cycles of a run besides those of the array and the memory latency."""


@dataclass(frozen=True)
class Memory:
    """Latency and throughput of a memory at the ports of a kernel.

    Parameters
    ----------
    read : int
        Cycles from an accepted request to its first beat.
    write : int
        Cycles from the last beat of a burst to its response.
    rate : float
        Beats per cycle after the first one: 1, or less if the memory is slower than the port.
    """

    read: int
    write: int
    rate: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Timing model of a kernel around a chain, from start to done.

    It assumes that rows of the three matrices begin at whole beats and that nothing else uses the memory.

    Parameters
    ----------
    tiling : Tiling
    chunk : int
        Columns of ``a`` per chunk.
    pipeline, spacing, distance : int
        Constants of the chain: register stages, cycles between uses of an accumulator, and cycles from the request of
        a result to the result.
    sizes : tuple of int
        Bytes per entry of a and b, and per element of c.
    memory : Memory
    """

    tiling: Tiling
    chunk: int
    pipeline: int
    spacing: int
    distance: int
    sizes: tuple[int, int, int]
    memory: Memory

    @classmethod
    def of(cls, kernel: Kernel, memory: Memory) -> "Timing":
        """Return the timing model of a kernel; TypeError if its array is not a chain."""
        array = kernel.array
        if not isinstance(array, Chain):
            raise TypeError(f"a timing model needs a kernel around a Chain, not a {type(array).__name__}")
        return cls(array.tiling, kernel.chunk, array.stages, array.spacing, array._distance, kernel.bytes, memory)

    def resized(self, tiling: Tiling) -> "Timing":
        """Return the timing model with another tiling."""
        return replace(self, tiling=tiling, distance=self.distance - self.tiling.n + tiling.n)

    @property
    def periods(self) -> tuple[int, int, int]:
        """Rows, k and columns after which tiles and chunks begin at the same byte of a beat."""

        def whole(count: int, size: int) -> int:
            return count * (BYTES // math.gcd(BYTES, count * size)) if size & (size - 1) else count

        return self.tiling.height, whole(self.chunk, self.sizes[0]), whole(self.tiling.columns, self.sizes[1])

    @property
    def group(self) -> int:
        """Elements of the result per packed group."""
        return group_of(self.tiling.m, self.sizes[2])

    @property
    def parts(self) -> int:
        """Cycles to pack a vector of the result."""
        return self.tiling.m // self.group

    @property
    def parts_of_b(self) -> int:
        """Cycles to unpack a vector of ``b``."""
        return self.tiling.m // group_of(self.tiling.m, self.sizes[1])

    def issue(self, vectors: int) -> int:
        """Return the cycles from the first vector of a step to the last, for all rows of an element, both included."""
        return (vectors - 1) * (self.tiling.rows + self.parts_of_b - 1) + self.tiling.rows

    def step(self, vectors: int, columns: int | None = None, first: int = 0) -> Time:
        """Return the average cycles of a step along k in the middle of a tile, the largest of these limits.

        The array takes each vector of ``b`` for all rows of an element, and the first one in parts of a beat. ``a``
        arrives one entry per cycle. An accumulator can be used again after ``spacing`` cycles. At most
        `OUTSTANDING` requests for rows of ``b`` are outstanding.

        Parameters
        ----------
        vectors : int
            Vectors of the tile.
        columns : int, optional
            Columns of the tile inside the result; default: all of its vectors.
        first : int
            First column of the tile.
        """
        total, size = vectors * self.tiling.m, self.sizes[1]
        beats = math.ceil(-(-total * size // BYTES) / self.memory.rate)
        taken = vectors * (self.tiling.rows + self.parts_of_b - 1)
        # A vector in parts is complete before the last row of an element takes it, which leaves time to wait.
        if self.tiling.rows == 1 or self.parts_of_b == 1:
            taken += waits(first, columns or total, total, size, group_of(self.tiling.m, size))
        # The array rests after the last vector of a step, as if a vector had come in each cycle.
        rested = self.issue(vectors) + max(self.spacing - vectors * self.tiling.rows, 0)
        own = max(taken, self.tiling.height, rested, beats)
        window = self.memory.read + beats + REOPENED
        return own if OUTSTANDING * own >= window else Fraction(window, OUTSTANDING)

    def cycles(self, n: int, k: int, m: int) -> int:
        """Compute the value of the register ``cycles`` after a product of (n, k) and (k, m); sizes are 1 or more."""
        if min(n, k, m) < 1:
            raise ValueError(f"a product of {n} x {k} x {m} has an empty matrix; sizes are 1 or more")
        rows = self.tiling.height
        # Cycles of the last write of this chunk to its memory, and of the last reads of earlier chunks.
        begin = REQUESTED + self.memory.read + UNPACKED - 1
        put: Time = begin
        taken: list[Time] = [begin] * BUFFERS
        requested = 0
        # Start of the last two steps, and their minimum distance.
        before: Time = 0
        began: Time = 0
        apart: Time = 0
        free = packed = written = wait = 0
        for tile, done, columns in self._chunks(n, k, m):
            vectors, last = tile.vectors, done + columns == k
            height, width = min(rows, n - tile.row), min(self.tiling.columns, m - tile.column)
            step = self.step(vectors, width, tile.column)
            put = max(put + wait, taken[-BUFFERS]) + rows * columns
            # Rows of the tile are loaded one after the other, padding without waiting for memory.
            wait = waits(done, columns, columns, self.sizes[0], 1)
            put += wait * (height - 1)
            wait *= height == rows
            # The burst of a row is requested every second cycle, up to `OUTSTANDING` bursts; padding follows the rows
            # of the tile.
            requested += height
            windows, place = divmod(requested - 1, OUTSTANDING)
            beats = math.ceil(-(-columns * self.sizes[0] // BYTES) / self.memory.rate)
            window = max(self.memory.read + beats + REOPENED, 2 * OUTSTANDING)
            put = max(put, begin + windows * window + 2 * place + columns * (1 + rows - height))
            # The first element is available two cycles later; each step takes ``rows`` elements, one step ahead.
            first = max(began + apart, max(put + 2, began) + rows)
            steps = [before, began, *(first + step * column for column in range(max(columns - 2, 0), columns))]
            if columns > 2:
                steps[1] = steps[2] - step
            if last:
                steps[-1] = max(steps[-1], free)
            # An element is read when its predecessor goes to the array, one step before its own.
            taken.append(steps[-2] + rows - 2 if rows > 1 else steps[-3])
            before, began, apart = steps[-2], steps[-1], step
            if last:
                free, packed, written = self._drain(vectors, height, width, math.ceil(began), packed)
        answered = written + WRITTEN + self.memory.write + 1
        # A vector in parts waits one cycle for its first part to be packed.
        return max(answered, packed + self.parts) + ENDED - 1 + (self.parts > 1)

    def _chunks(self, n: int, k: int, m: int) -> Iterator[tuple[Tile, int, int]]:
        """Yield the chunks of ``a``: the tile, and the first column and the number of columns of the chunk."""
        for tile in self.tiling.tiles(n, m):
            for first in range(0, k, self.chunk):
                yield tile, first, min(self.chunk, k - first)

    def _drain(self, vectors: int, rows: int, columns: int, last: int, packed: int) -> tuple[int, int, int]:
        """Return the cycles after a tile's last request, of its last packing, and of the last inside the result.

        ``rows`` and ``columns`` of the tile are inside the result.

        Results are requested one per cycle while there is room for them. They are packed in order, with a cycle
        between rows.
        """
        parts = self.parts
        count, room = self.tiling.height * vectors, self.distance + 2
        requested = last + self.issue(vectors) + self.pipeline + 1
        first = max(requested + self.distance + 1, packed + parts + 1 if packed else 0)

        def taken(index: int) -> int:
            return first + parts * index + index // vectors

        last_requested = requested + count - 1
        if count > room:
            last_requested = max(last_requested, taken(count - 1 - room) + 1)
        # Parts of the last vector that are inside the result.
        inside = -(-(columns - (vectors - 1) * self.tiling.m) // self.group)
        return last_requested + 1, taken(count - 1), taken(rows * vectors - 1) + inside - 1


def waits(first: int, count: int, total: int, size: int, group: int) -> int:
    """Return the cycles, 0 or 1, that part of a row takes in addition to one for each group of its entries.

    If the last group lies in two beats, and no padding follows, `packing.Unpack` takes both beats at once, and the
    first beat of the next row one cycle later.

    Parameters
    ----------
    first, count, total : int
        First entry, number of entries, and number with padding.
    size : int
        Bytes per entry.
    group : int
        Entries per group.
    """
    last = (count - 1) // group * group
    if last + group < total:
        return 0
    return int((first + last) * size % BYTES + (count - last) * size > BYTES)


def cycles(kernel: Kernel, n: int, k: int, m: int, *, read: int = LATENCY, write: int = LATENCY) -> int:
    """Estimate the value of the register ``cycles`` after a run.

    For a chain the estimate is exact to a few cycles if rows begin at whole beats and the outstanding requests of a
    port hide the memory latency. Otherwise its error is up to three percent, or more if four chunks of ``a`` take less
    time than that latency.

    Parameters
    ----------
    kernel : Kernel
    n, k, m : int
        Sizes of a product of (n, k) and (k, m).
    read, write : int
        Latencies of a `Memory` with one beat per cycle.
    """
    array = kernel.array
    if isinstance(array, Chain):
        return Timing.of(kernel, Memory(read, write)).cycles(n, k, m)
    # Before the first step, a chunk of every row is loaded one element per cycle.
    chunk = array.tiling.height * min(k, kernel.chunk)
    busy = array.cycles(n, k, m)
    # A cycle brings one element of a, or as many of b as the largest power of two in m.
    parts = max(array.a_lanes, array.m // group_of(array.m, kernel.bytes[1]))
    return OVERHEAD + read + chunk + max(busy, parts * array.tiling.steps(n, k, m)) + write
