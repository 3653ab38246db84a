"""Number of clock cycles of a kernel for a product, from those of its parts.

The model uses the constants of the kernel and of its chain. The tests compare it with the simulated kernel.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from halfulp.hdl.specs import Tiling
from halfulp.units.systolic import Chain

from .axi import BYTES, OUTSTANDING
from .kernel import Kernel
from .movers import power_below
from .reorder import BUFFERS

Time = int | Fraction
"""A number of clock cycles; an average of two steps if it is not an integer."""

REQUESTED = 5
"""Cycles from the start to the first request: three to begin the run, one to split off the burst, one to offer it."""

UNPACKED = 2
"""Cycles from a beat to its first element."""

REOPENED = 1
"""Cycles from the last beat of a burst to a request that waits for its end, without the beat's own."""

WRITTEN = 2
"""Cycles from the last element of a burst to the beat on the port."""

ENDED = 3
"""Cycles from the last answer of the memory to the end of the run, its own included."""

LATENCY = 100
"""Default latency of a memory, in cycles."""

OVERHEAD = 12
"""Cycles of a run without work of the array and without a wait for the memory."""


@dataclass(frozen=True)
class Memory:
    """Timing of a memory at the ports of a kernel.

    Parameters
    ----------
    read : int
        Cycles from an accepted request to its first beat.
    write : int
        Cycles from the last beat of a burst to its answer.
    rate : float
        Beats a cycle after the first one: 1, or less if the memory is slower than the port.
    """

    read: int
    write: int
    rate: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Timing of a kernel around a chain, from start to done.

    Rows of the three matrices begin at whole beats, and nothing else uses the memory.

    Parameters
    ----------
    tiling : Tiling
    chunk : int
        Columns of ``a`` in a chunk.
    pipeline, spacing, distance : int
        Of the chain: register stages, cycles between uses of an accumulator, and cycles from the request of a result
        to the result.
    sizes : tuple of int
        Bytes of an element of a, b and c.
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
        """The timing of a kernel; TypeError if its array is not a chain."""
        array = kernel.array
        if not isinstance(array, Chain):
            raise TypeError(f"the timing is of a kernel around a Chain, not around a {type(array).__name__}")
        return cls(
            array.tiling, kernel.chunk, array.build.pipeline, array.spacing, array._distance, kernel.bytes, memory
        )

    def resized(self, tiling: Tiling) -> "Timing":
        """The timing with another tiling."""
        return replace(self, tiling=tiling, distance=self.distance - self.tiling.n + tiling.n)

    @property
    def group(self) -> int:
        """Elements of the result in a packed group."""
        return power_below(self.tiling.m, BYTES // self.sizes[2])

    @property
    def parts(self) -> int:
        """Cycles to pack a vector of the result."""
        return self.tiling.m // self.group

    def step(self, vectors: int) -> Time:
        """Average cycles of a step of k in the middle of a tile: the largest of several limits.

        These are the vectors, each for all rows of an element, the first in as many cycles as it has parts in beats;
        the numbers of ``a``, one a cycle; the spacing of an accumulator; and the requests for rows of ``b``, of which
        `OUTSTANDING` may be under way.
        """
        b = self.tiling.m // power_below(self.tiling.m, BYTES // self.sizes[1])
        beats = math.ceil(-(-vectors * self.tiling.m * self.sizes[1] // BYTES) / self.memory.rate)
        own = max(vectors * (self.tiling.rows + b - 1), self.tiling.height, self.spacing, beats)
        window = self.memory.read + beats + REOPENED
        return own if OUTSTANDING * own >= window else Fraction(window, OUTSTANDING)

    def cycles(self, n: int, k: int, m: int) -> int:
        """Clock cycles of a product of (n, k) and (k, m), as the kernel counts them; ValueError for a size of 0."""
        if min(n, k, m) < 1:
            raise ValueError(f"a product of {n} x {k} x {m} has an empty matrix; sizes are 1 or more")
        rows = self.tiling.height
        # When the last number of a chunk was put into the memory, and of those before when the last was taken out.
        begin = REQUESTED + self.memory.read + UNPACKED - 1
        put: Time = begin
        taken: list[Time] = [begin] * BUFFERS
        requested = 0
        # The last two steps, and how far apart they have to be.
        before: Time = 0
        began: Time = 0
        apart: Time = 0
        free = packed = written = 0
        for columns, last, vectors, height in self._chunks(n, k, m):
            step = self.step(vectors)
            put = max(put, taken[-BUFFERS]) + rows * columns
            # The burst of a row is requested every second cycle while fewer than `OUTSTANDING` are under way; padding
            # comes after the rows of the tile.
            requested += height
            windows, place = divmod(requested - 1, OUTSTANDING)
            beats = math.ceil(-(-columns * self.sizes[0] // BYTES) / self.memory.rate)
            window = max(self.memory.read + beats + REOPENED, 2 * OUTSTANDING)
            put = max(put, begin + windows * window + 2 * place + columns * (1 + rows - height))
            # Two cycles later the first number is there, and rows of them are taken for each step, one step ahead.
            first = max(began + apart, max(put + 2, began) + rows)
            steps = [before, began, *(first + step * column for column in range(max(columns - 2, 0), columns))]
            if columns > 2:
                steps[1] = steps[2] - step
            if last:
                steps[-1] = max(steps[-1], free)
            # A number is taken out when the one before it goes to the array, which is in the step before its own.
            taken.append(steps[-2] + rows - 2 if rows > 1 else steps[-3])
            before, began, apart = steps[-2], steps[-1], step
            if last:
                free, packed, written = self._drain(vectors, height, math.ceil(began), packed)
        answered = written + WRITTEN + self.memory.write + 1
        return max(answered, packed + self.parts) + ENDED - 1

    def _chunks(self, n: int, k: int, m: int) -> Iterator[tuple[int, bool, int, int]]:
        """Chunks of ``a``: columns, if these are the last of a tile, its vectors, and its rows inside the result."""
        for tile in self.tiling.tiles(n, m):
            for first in range(0, k, self.chunk):
                columns = min(self.chunk, k - first)
                yield columns, first + columns == k, tile.vectors, min(self.tiling.height, n - tile.row)

    def _drain(self, vectors: int, rows: int, last: int, packed: int) -> tuple[int, int, int]:
        """Cycles in which a tile's results have been requested, the last one is packed, and the last inside the result.

        Results are requested one a cycle while there is room for them, and packed one after the other, with a cycle
        between rows.
        """
        parts = self.parts
        count, room = self.tiling.height * vectors, self.distance + 2
        requested = last + vectors * self.tiling.rows + self.pipeline + 1
        first = max(requested + self.distance + 1, packed + parts + 1 if packed else 0)

        def taken(index: int) -> int:
            return first + parts * index + index // vectors

        last_requested = requested + count - 1
        if count > room:
            last_requested = max(last_requested, taken(count - 1 - room) + 1)
        return last_requested + 1, taken(count - 1), taken(rows * vectors - 1) + parts - 1


def cycles(kernel: Kernel, n: int, k: int, m: int, *, read: int = LATENCY, write: int = LATENCY) -> int:
    """Clock cycles of a run, as the register ``cycles`` counts them.

    For a chain they are exact to a few cycles if rows begin at whole beats and the outstanding requests of a port hide
    the memory's latency; otherwise to three percent, unless four chunks of ``a`` take less time than that latency.

    Parameters
    ----------
    kernel : Kernel
    n, k, m : int
        Sizes of a product of (n, k) and (k, m).
    read, write : int
        Latencies of a `Memory` with a beat in every cycle.
    """
    array = kernel.array
    if isinstance(array, Chain):
        return Timing.of(kernel, Memory(read, write)).cycles(n, k, m)
    # Before the first step a chunk of every row has come, element by element.
    chunk = array.tiling.height * min(k, kernel.chunk)
    busy = array.cycles(n, k, m)
    # Elements of a come one by one, and those of b as many as a power of two is in m.
    parts = max(array.a_lanes, array.m // power_below(array.m, BYTES // kernel.bytes[1]))
    return OVERHEAD + read + chunk + max(busy, parts * array.tiling.steps(n, k, m)) + write
