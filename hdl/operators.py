"""Operators of a dataflow graph with lookup tables, and the search for their fastest schedule.

`halfulp.hdl.schedule` divides a graph into stages for given lookup tables. The tables of a schedule depend on its
stages, so several are tried.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from amaranth.hdl import Value

from .delay import DelayModel
from .schedule import (
    CHAIN,
    CONSTANT,
    FAR,
    INPUT,
    LOGIC,
    SINK,
    Bit,
    Graph,
    Node,
    chain_arrivals,
    chain_entry,
)

COVERS = 4
"""Sets of inputs that are tried for each lookup table."""

ROUNDS = 4
"""Schedules that are tried at most from each start, each with the lookup tables of the one before."""

STARTS = ((1, 1), (1, 0.75), (1, 1.25), (0.8, 1))
"""Factors of the delays of lookup tables and of wide multiplexers with which starts of the search choose tables.

Tables with fewer and with more inputs lead to other schedules: of 70 units with 2 to 8 stages, these starts, and the
tables of one stage fewer, make 20 faster by 1 to 9 %.
"""

GAIN = 1.005
"""Least factor of the clock by which a stage must make it faster; a stage that does not is an output register."""

_FOUND: dict[Any, tuple[list[int], int]] = {}
"""Schedules of graphs that this process has computed."""


@dataclass(eq=False)
class Operation:
    """Hardware of a node of the graph.

    Attributes
    ----------
    node : Node
    name : str
        Name of the signal with the value; of an inner operator, that of the signal whose value needs it, and ``_part``.
    build : callable, optional
        Function that builds an operator. Its argument is a function that returns the value of bits with a shape.
    rows : list of list of Bit
        Bits of each operand of ``build``; of a statement or an output, the bits that it reads.
    value : Value, optional
        Value in the node's own slot.
    named : bool
        True if a signal of the unit has the value.
    adder : list of Operation
        All pieces of the adder that it is a piece of.
    summands, carry, subtracts
        Of a piece: bits of both operands, carry in, and True for a difference.
    reads_result : bool
        True if the value depends on an accumulator after its step.
    wide : list
        Delay of each bit of logic with more inputs than a lookup table takes; None for other bits.
    delayed : dict of int to tuple
        Registers by slot, each with the places of the bits that it holds.
    """

    node: Node
    name: str
    build: Callable[[Any], Value] | None = None
    rows: list[list[Bit]] = field(default_factory=list)
    value: Value | None = None
    named: bool = False
    reads_result: bool = False
    wide: list[int | None] = field(default_factory=list)
    adder: list["Operation"] = field(default_factory=list)
    summands: tuple[Sequence[Bit], Sequence[Bit]] = (), ()
    carry: Sequence[Bit] = ()
    subtracts: bool = False
    delayed: dict[int, tuple[Value, dict[Bit, int]]] = field(default_factory=dict)


class Operators:
    """Operators of a graph in dataflow order, with the lookup tables of a schedule.

    Parameters
    ----------
    latency : int
        Cycles from operands to outputs.
    model : DelayModel
    """

    def __init__(self, latency: int, model: DelayModel) -> None:
        self.latency, self.model = latency, model
        self.operations: list[Operation] = []
        self.bits = 0

    # Lookup tables -----------------------------------------------------------------------------------------------

    def cover(self, slots: Sequence[int], level: float = 1, wide: float = 1) -> None:
        """Choose the inputs of the lookup tables of all logic, for a schedule.

        A table includes operators before it in its slot. The choice is that of mappers with priority cuts
        (Mishchenko, Cho, Chatterjee, Brayton, ICCAD 2007). ``level`` and ``wide`` scale the delays of tables and of
        wide multiplexers.
        """
        model = replace(self.model, level=round(level * self.model.level), wide=round(wide * self.model.wide))
        time = [0] * self.bits
        covers: list[list[frozenset[Bit]]] = [[]] * self.bits
        for operation, slot in zip(self.operations, slots, strict=True):
            node, start = operation.node, slot * FAR
            arrivals = [0] * node.width
            if node.kind == CHAIN:
                inputs = [max([CONSTANT, *(max(time[bit] - start, 0) for bit in bits)]) for bits in node.local]
                here = [time[bit] >= start for bit in node.common]
                carry = chain_entry(node, [max(time[bit] - start, 0) for bit in node.common], here)
                arrivals = chain_arrivals(node, inputs, carry)
            elif node.kind == LOGIC:
                node.leaves, node.delays, node.ends, arrivals = [], [], [], []
                for bit, column, own in zip(node.bits, node.local, operation.wide, strict=True):
                    if own is None:
                        inside = [covers[other] if time[other] >= start else [] for other in column]
                        covers[bit] = _covers(model, column, inside, time, start)
                        leaves, delay = sorted(covers[bit][0]), model.logic(len(covers[bit][0]))
                    else:
                        leaves, delay = column, own
                    node.leaves.append(leaves)
                    node.delays.append(delay)
                    node.ends.append(self.model.end(len(leaves)))
                    arrivals.append(max([0, *(time[leaf] - start for leaf in leaves)]) + delay)
            time[node.first : node.first + node.width] = [start + arrival for arrival in arrivals]

    # Schedule ----------------------------------------------------------------------------------------------------

    def schedule(self) -> tuple[list[int], int]:
        """Return the slot of each operation and the largest delay between registers in picoseconds."""
        slots, delay = self._schedule(self.latency)
        return slots, delay + self.model.register

    def _schedule(self, latency: int) -> tuple[list[int], int]:
        """Return the slots for a latency, and their delay without that of registers.

        Where a stage gains less than `GAIN`, the schedule is that of one stage fewer with a register at each output,
        because the error of the model may be larger than the gain.
        """
        nodes = [operation.node for operation in self.operations]
        graph = tuple((operation.node.key, tuple(operation.wide)) for operation in self.operations)
        key = latency, self.model, graph
        if key not in _FOUND:
            slots, delay = self._fastest(latency)
            limit = int((delay + self.model.register) * GAIN) - self.model.register
            # As many slots as one stage fewer has must hold the longest path; most stages gain too much for that.
            if (
                latency > 1
                and latency * limit >= self._longest_path()
                and not any(node.group >= 0 or (node.kind == INPUT and node.slot) for node in nodes)
            ):
                before, slower = self._schedule(latency - 1)
                if slower <= limit:
                    delay, slots = slower, before[:]
                    for place, node in enumerate(nodes):
                        if node.kind == SINK:
                            slots[place] = latency
            _FOUND[key] = slots, delay
        return _FOUND[key]

    def _longest_path(self) -> int:
        """Return the delay without register stages."""
        slots = [0] * len(self.operations)
        self.cover(slots)
        return Graph([operation.node for operation in self.operations], 0, self.model.net).delay(slots)

    def _fastest(self, latency: int) -> tuple[list[int], int]:
        """Return the fastest schedule that is tried, and its delay without that of registers."""
        nodes = [operation.node for operation in self.operations]
        # Tables depend on stages and stages on tables: the delay of a schedule is that with its own tables.
        delays: dict[tuple[int, ...], int] = {}
        tried: set[tuple[tuple[tuple[Bit, ...], ...], ...]] = set()

        def graph(slots: Sequence[int], level: float = 1, wide: float = 1) -> Graph:
            self.cover(slots, level, wide)
            return Graph(nodes, latency, self.model.net)

        def follow(start: Graph) -> None:
            for _ in range(ROUNDS):
                tables = tuple(tuple(map(tuple, node.leaves)) for node in nodes)
                if tables in tried:
                    break
                tried.add(tables)
                slots, _ = start.schedule()
                if tuple(slots) in delays:
                    break
                start = graph(slots)
                delays[tuple(slots)] = start.delay(slots)

        none = [0] * len(nodes)
        for level, wide in STARTS if latency > 1 else STARTS[:1]:
            follow(graph(none, level, wide))
        if latency > 1:
            self.cover(none)
            fewer, _ = Graph(nodes, latency - 1, self.model.net).schedule()
            follow(graph(fewer))
            # Tables of schedules with the earliest and the latest slots often lead to a faster one.
            for fast in sorted(delays, key=lambda slots: delays[slots])[:2]:
                best = graph(fast)
                early, delay = best.smallest_delay(best.least())
                late = best.latest(delay, [latency] * len(nodes))
                for start in (early, late):
                    follow(graph(start))
        fastest = min(delays, key=lambda slots: delays[slots])
        return list(fastest), delays[fastest]

    def earliest_result(self, limit: int) -> tuple[int | None, int]:
        """Return the latency of the results for a delay between registers, and a delay that is possible.

        The latency is an estimate, because lookup tables depend on the places of registers; it is None if no latency up
        to that of the graph suffices.
        """
        nodes = [operation.node for operation in self.operations]
        slots, best = [0] * len(nodes), 0
        for _ in range(ROUNDS):
            self.cover(slots)
            graph = Graph(nodes, self.latency, self.model.net)
            free = [0] * len(nodes)
            early = graph.earliest(limit - self.model.register, free)
            if early is not None:
                return max(slot for node, slot in zip(nodes, early, strict=True) if node.kind == SINK), limit
            slots, delay = graph.smallest_delay(free)
            best = min(best or delay, delay)
        return None, best + self.model.register


def _covers(
    model: DelayModel,
    inputs: Sequence[Bit],
    inside: Sequence[list[frozenset[Bit]]],
    time: Sequence[int],
    start: int,
) -> list[frozenset[Bit]]:
    """Return the best sets of inputs of a table, each input a bit or the inputs of its own table.

    ``start`` is the time at which the slot begins.
    """
    at, logic = time.__getitem__, model.logic

    def rank(cover: frozenset[Bit]) -> tuple[int, int, list[Bit]]:
        return max(max(map(at, cover), default=0), start) + logic(len(cover)), len(cover), sorted(cover)

    kept, plain = {frozenset[Bit]()}, frozenset[Bit]()
    for bit, covers in zip(inputs, inside, strict=True):
        plain |= {bit}
        options = [frozenset((bit,)), *covers]
        merged = {cover | option for cover in kept for option in options}
        kept = {cover for cover in merged if len(cover) <= model.widest}
        if len(kept) > 4 * COVERS:
            kept = {plain, *sorted(kept, key=rank)[: 4 * COVERS]}
    return sorted(kept, key=rank)[:COVERS]
