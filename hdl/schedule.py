"""Placement of register stages in a dataflow graph.

Nodes of the graph are operators on words, with arrival times by bit. A schedule gives each node a slot, the number of
register stages between the operands and the node. Its largest delay between registers is the smallest that the latency
allows. Among such schedules, a minimum cut for each boundary between slots chooses one with few register bits, as the
scheduler of Google's XLS does.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import add, itemgetter
from typing import Any

INPUT, STATE, AFTER, LOGIC, CHAIN, SINK, NEXT = range(7)
"""Kinds of nodes: operand; register of the unit, before and after its step; logic; carry chain; result; next value of
a register."""

STEP = 5
"""Accuracy of the smallest delay, in picoseconds. Delays are integers, because sums of floats depend on their order."""

FAR = 1 << 32
"""Picoseconds between the starts of slots, more than any delay: the latest of several times is in their last slot."""

Bit = int
"""Number of a bit: of a node's output, or below zero a constant."""

Times = Callable[[Sequence[int]], Sequence[int]]
"""Choice of the times of some bits from those of all."""


@dataclass(eq=False)
class Node:
    """Operator of a dataflow graph.

    Attributes
    ----------
    kind : int
    first, width : int
        Number of its first output bit, and the number of bits. A `CHAIN` has a bit for each place, and the carry out
        or not; if it has fewer bits, it has the carry out alone.
    local : list of list of Bit
        Inputs at each place.
    common : list of Bit
        Other inputs; of a `CHAIN`, the carry in.
    leaves : list of list of Bit
        For each bit of `LOGIC`, inputs of its lookup table, which may include operators before.
    delays : list of int
        Delay of each bit from ``leaves``. Of a `CHAIN`: the delay of the carry by one bit, and of both ends together.
    ends : list of int
        Delay of each bit of `LOGIC` to a register behind it; of `NEXT`, that of all bits.
    slot : int
        Slot of an operand.
    group : int
        Number of the statement that assigns the register, for `STATE`, `AFTER` and `NEXT`.
    slack : int
        Largest number of slots by which the next value of a `STATE` may be later.
    """

    kind: int
    first: int
    width: int
    local: list[list[Bit]] = field(default_factory=list)
    common: list[Bit] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    leaves: list[list[Bit]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    slot: int = 0
    group: int = -1
    slack: int = 0

    @property
    def bits(self) -> list[Bit]:
        """Its output bits."""
        return list(range(self.first, self.first + self.width))

    @property
    def key(self) -> tuple[Any, ...]:
        """Fields that decide the schedule before lookup tables are chosen."""
        local, common = tuple(map(tuple, self.local)), tuple(self.common)
        return self.kind, self.width, local, common, self.slot, self.group, self.slack

    @property
    def inputs(self) -> set[Bit]:
        """Bits that the node reads."""
        return {bit for bits in (*self.local, self.common) for bit in bits if bit >= 0}


class Graph:
    """Nodes in dataflow order."""

    def __init__(self, nodes: Sequence[Node], latency: int, net: Callable[[int], int]) -> None:
        self.nodes, self.latency = nodes, latency
        self.bits = max((node.first + node.width for node in nodes), default=0)
        self.owner = [0] * self.bits
        for place, node in enumerate(nodes):
            self.owner[node.first : node.first + node.width] = [place] * node.width
        self.read = [sorted(node.inputs) for node in nodes]
        self.operands = [sorted({self.owner[bit] for bit in read}) for read in self.read]
        self.buses = self._buses()
        """For each node, the number of bits with the same users."""
        self.net = [net(count) for count in self._readers()]
        """Additional delay of the net of each bit."""
        self.ends = [0] * self.bits
        """Delay of each bit to a register behind it, which is at most that of an operator."""
        for node in nodes:
            if node.kind == LOGIC and node.ends:
                self.ends[node.first : node.first + node.width] = node.ends
        self.groups = 1 + max((node.group for node in nodes), default=-1)
        self._after = [self.ends[node.first : node.first + node.width] for node in nodes]
        self._nets = [self.net[node.first : node.first + node.width] for node in nodes]
        self._inputs = [
            [self._times(bits) for bits in (node.leaves if node.kind == LOGIC else [*node.local, node.common])]
            for node in nodes
        ]

    def _buses(self) -> list[dict[tuple[int, ...], int]]:
        users: list[list[int]] = [[] for _ in range(self.bits)]
        for place, read in enumerate(self.read):
            for bit in read:
                users[bit].append(place)
        buses: list[dict[tuple[int, ...], int]] = [defaultdict(int) for _ in self.nodes]
        for bit, places in enumerate(users):
            if places:
                buses[self.owner[bit]][tuple(places)] += 1
        return buses

    def _readers(self) -> list[int]:
        """Return the number of inputs of operators that read each bit."""
        readers = [0] * self.bits
        for node in self.nodes:
            for bits in (*(node.leaves or node.local), node.common if node.kind != LOGIC else []):
                for bit in bits:
                    readers[bit] += 1
        return readers

    def _times(self, bits: Iterable[Bit]) -> tuple[Times, int]:
        """Return the choice of the times of bits, and the longest delay of their nets.

        The last time of all is that of constants, which is chosen too, so that there are at least two.
        """
        read = list(bits)
        return itemgetter(*(read or [-1]), -1), max([self.net[bit] for bit in read], default=CONSTANT)

    def earliest(self, limit: int, low: Sequence[int]) -> list[int] | None:
        """Return the earliest slots for a delay between registers, or None if they exceed the latency."""
        steps = [0] * self.groups
        for place, node in enumerate(self.nodes):
            if node.group >= 0:
                steps[node.group] = max(steps[node.group], low[place] - (node.kind == AFTER))
        while True:
            slots = self._earliest(limit, low, steps)
            if slots is None:
                return None
            later = steps[:]
            for place, node in enumerate(self.nodes):
                if node.kind == NEXT:
                    later[node.group] = max(later[node.group], slots[place])
            if later == steps:
                return slots
            steps = later

    def _earliest(self, limit: int, low: Sequence[int], steps: Sequence[int]) -> list[int] | None:
        slots, time = [0] * len(self.nodes), [*repeat(0, self.bits), CONSTANT]
        for place, node in enumerate(self.nodes):
            if node.kind in (STATE, AFTER):
                slot = max(low[place], steps[node.group] + (node.kind == AFTER) - node.slack)
                arrivals = [0] * node.width
            elif node.kind == INPUT:
                slot, arrivals = node.slot, [0] * node.width
            else:
                slot = max([low[place], *map(slots.__getitem__, self.operands[place])])
                if node.kind == NEXT:
                    slot = max(slot, steps[node.group])
                arrivals = self._arrivals(place, slot, time)
                if self._end(place, arrivals) > limit:
                    slot += 1
                    arrivals = self._arrivals(place, slot, time)
                    if self._end(place, arrivals) > limit:
                        return None
            if slot > self.latency:
                return None
            slots[place] = slot
            self._arrive(place, slot, arrivals, time)
        return slots

    def _arrivals(self, place: int, slot: int, time: Sequence[int]) -> list[int]:
        """Return the arrival time of each output bit of a node in a slot; of a sink, that of its input.

        ``time`` has that of each bit at the end of its net, and that of constants; slot s begins at ``s * FAR``.
        """
        node, start = self.nodes[place], slot * FAR
        # A bit from a register has the delay of its net alone.
        inputs = [max(max(times(time)) - start, net) for times, net in self._inputs[place]]
        if node.kind == LOGIC:
            return [max(arrival, 0) + delay for arrival, delay in zip(inputs, node.delays, strict=True)]
        if node.kind == CHAIN:
            here = [time[bit] >= start for bit in node.common]
            carry = chain_entry(node, [max(time[bit] - start, self.net[bit]) for bit in node.common], here)
            return chain_arrivals(node, inputs[:-1], carry)
        return [max(inputs[-1], 0) + sum(node.ends)]

    def _arrive(self, place: int, slot: int, arrivals: Sequence[int], time: list[int]) -> None:
        """Write the times of the output bits of a node."""
        node = self.nodes[place]
        start = slot * FAR
        bits = zip(arrivals, self._nets[place], strict=False)
        time[node.first : node.first + node.width] = [start + arrival + net for arrival, net in bits]

    def _end(self, place: int, arrivals: Sequence[int]) -> int:
        """Return the largest delay up to registers behind a node, given the arrival times of its bits."""
        if self.nodes[place].kind == LOGIC:
            return max(map(add, arrivals, self._after[place]), default=0)
        return max(arrivals, default=0)

    def latest(self, limit: int, high: Sequence[int]) -> list[int]:
        """Return the latest slots for a delay between registers, which must suffice."""
        steps = [self.latency] * self.groups
        for place, node in enumerate(self.nodes):
            if node.group >= 0:
                steps[node.group] = min(steps[node.group], high[place] - (node.kind == AFTER) + node.slack)
        while True:
            slots = self._latest(limit, high, steps)
            sooner = steps[:]
            for place, node in enumerate(self.nodes):
                if node.kind in (STATE, AFTER):
                    sooner[node.group] = min(sooner[node.group], slots[place] - (node.kind == AFTER) + node.slack)
            if sooner == steps:
                for place, node in enumerate(self.nodes):
                    if node.group >= 0 and not node.slack:
                        slots[place] = steps[node.group] + (node.kind == AFTER)
                return slots
            steps = sooner

    def _latest(self, limit: int, high: Sequence[int], steps: Sequence[int]) -> list[int]:
        count = len(self.nodes)
        slots, least = [0] * count, [self.latency] * count
        # Time from each bit to the end of the slot of its first reader; times of earlier slots are larger.
        tail = [-self.latency * FAR] * self.bits
        for place in reversed(range(count)):
            node = self.nodes[place]
            if node.kind == INPUT:
                slots[place] = node.slot
                continue
            slot = min(least[place], high[place])
            if node.kind == NEXT:
                slot = min(slot, steps[node.group])
            slots[place] = slot
            if node.kind in (STATE, AFTER):
                continue
            after, start = self._after[place], slot * FAR
            bits = tail[node.first : node.first + node.width]
            own = [max(time + start, end) for time, end in zip(bits, after, strict=True)]
            tails = self._tails(node, own)
            if self._longest(place, tails) > limit:
                slots[place] = slot = slot - 1
                tails, start = self._tails(node, after), slot * FAR
            for operand in self.operands[place]:
                least[operand] = min(least[operand], slot)
            inputs = node.leaves if node.kind == LOGIC else [*node.local, node.common]
            for bits, time in zip(inputs, tails, strict=True):
                for bit in bits:
                    whole = time + self.net[bit] - start
                    if whole > tail[bit]:
                        tail[bit] = whole
        return slots

    def _longest(self, place: int, tails: Sequence[int]) -> int:
        """Return the longest time from an input of a node to the end of the slot."""
        node = self.nodes[place]
        longest = max((time + net for time, (_, net) in zip(tails, self._inputs[place], strict=True)), default=0)
        if node.kind == CHAIN and node.common:
            # The carry in is from a register.
            return max(longest, tails[-1] + node.delays[1])
        return max(longest, 0)

    def _tails(self, node: Node, own: Sequence[int]) -> list[int]:
        """Return the time from the end of each net to the end of the slot, given those from each output bit.

        There is one for each table of `LOGIC`. Other nodes have one for each place, and one for the other inputs.
        """
        if node.kind == LOGIC:
            return list(map(add, node.delays, own))
        if node.kind != CHAIN:
            return [*repeat(0, len(node.local)), sum(node.ends)]
        carry, entry = node.delays
        leave, count = entry // 2, len(node.local)
        sums = own if node.width >= count else [0] * count
        # Time from the carry into a place to the end of the slot.
        after = max(own[-1] + leave, 0) if node.width != count else 0
        tails = []
        for place in reversed(range(count)):
            tails.append(max(sums[place] + entry, after + entry - leave + carry))
            after = max(sums[place] + leave, after + carry)
        return [*reversed(tails), after - leave]

    def delay(self, slots: Sequence[int]) -> int:
        """Return the largest delay between registers of a schedule."""
        time, most = [*repeat(0, self.bits), CONSTANT], 0
        for place, (node, slot) in enumerate(zip(self.nodes, slots, strict=True)):
            arrivals = [0] * node.width
            if node.kind not in (INPUT, STATE, AFTER):
                arrivals = self._arrivals(place, slot, time)
                most = max(most, self._end(place, arrivals))
            self._arrive(place, slot, arrivals, time)
        return most

    def schedule(self) -> tuple[list[int], int]:
        """Return the slot of each node and the largest delay between registers."""
        _, delay = self.smallest_delay(self.least())
        return self._fewest_registers(delay), delay

    def smallest_delay(self, least: Sequence[int]) -> tuple[list[int], int]:
        """Return the earliest slots for the smallest delay between registers, and that delay."""
        low, high = 0, STEP
        while (schedule := self.earliest(high, least)) is None:
            low, high = high, 2 * high
        high = min(high, self.delay(schedule))
        while high - low > STEP:
            middle = (low + high) // 2
            slots = self.earliest(middle, least)
            if slots is None:
                low = middle
            else:
                high, schedule = middle, slots
        return schedule, high

    def least(self) -> list[int]:
        """Return the lower bounds of all slots; results are in the last one."""
        return [self.latency if node.kind == SINK else 0 for node in self.nodes]

    def _fewest_registers(self, limit: int) -> list[int]:
        """Return the slots of a schedule with few register bits for a delay between registers."""
        low, high = self.least(), [self.latency] * len(self.nodes)
        loops = {node.group for node in self.nodes if node.slack}
        steps = [place for place, node in enumerate(self.nodes) if node.kind == NEXT and node.group in loops]
        if not steps:
            return self._cuts(limit, low, high)
        # A cut knows no distance between a register and its next value, so the slots of next values are given.
        early, late = self.earliest(limit, low), self.latest(limit, high)
        assert early is not None
        candidates = []
        for more in range(max(late[place] - early[place] for place in steps) + 1):
            low, high = self.least(), [self.latency] * len(self.nodes)
            for place in steps:
                low[place] = high[place] = min(early[place] + more, late[place])
            candidates.append(self._cuts(limit, low, high))
        return min(candidates, key=self.register_bits)

    def register_bits(self, slots: Sequence[int]) -> int:
        """Return the number of register bits of a schedule."""
        return sum(
            bits * (max(slots[user] for user in users) - slot)
            for buses, slot in zip(self.buses, slots, strict=True)
            for users, bits in buses.items()
        )

    def _cuts(self, limit: int, low: list[int], high: list[int]) -> list[int]:
        """Return the slots of a schedule with few register bits, between bounds that are narrowed."""
        for boundary in range(1, self.latency + 1):
            early = self.earliest(limit, low)
            assert early is not None
            late = self.latest(limit, high)
            before = self._cut(boundary, early, late)
            for place, is_before in enumerate(before):
                if is_before:
                    high[place] = min(high[place], boundary - 1)
                else:
                    low[place] = max(low[place], boundary)
        return high

    def _cut(self, boundary: int, early: Sequence[int], late: Sequence[int]) -> list[bool]:
        """Return the nodes before a boundary, such that the fewest bits cross it."""
        flow = Flow()
        vertex = self._vertices(flow, boundary, early, late)
        for place, operands in enumerate(self.operands):
            for operand in operands:
                own, other = vertex[place], vertex[operand]
                if own != other and other != flow.source and own != flow.sink:
                    flow.edge(own, other, FOREVER)
        for own, buses in zip(vertex, self.buses, strict=True):
            for users, bits in buses.items():
                if own != flow.sink:
                    flow.bus(own, {vertex[user] for user in users}, bits)
        reached = flow.minimum_cut()
        return [reached[own] for own in vertex]

    def _vertices(self, flow: "Flow", boundary: int, early: Sequence[int], late: Sequence[int]) -> list[int]:
        """Return the vertex of each node: the source before the boundary, the sink after it, else one to decide."""
        vertex: list[int] = []
        groups: dict[int, int] = {}
        for place, node in enumerate(self.nodes):
            if node.kind == INPUT:
                own = flow.source if node.slot < boundary else flow.sink
            elif late[place] < boundary:
                own = flow.source
            elif early[place] >= boundary:
                own = flow.sink
            elif node.group >= 0 and node.kind != AFTER and not node.slack:
                # Registers and their next states are in one slot.
                if node.group not in groups:
                    groups[node.group] = flow.node()
                own = groups[node.group]
            else:
                own = flow.node()
            vertex.append(own)
        return vertex


def chain_entry(node: Node, arrivals: Iterable[int], are_here: Iterable[bool]) -> int:
    """Return the time of the carry into a chain, given the arrival times of its inputs.

    A carry in from the same slot does not leave the chain before; one from a register enters it.
    """
    entry = node.delays[1]
    inputs = zip(arrivals, are_here, strict=True)
    return max((time - entry // 2 + (0 if is_here else entry) for time, is_here in inputs), default=CONSTANT)


def chain_arrivals(node: Node, inputs: Sequence[int], chain: int) -> list[int]:
    """Return the arrival time of each output bit of a carry chain, given those of each place and the carry into it."""
    carry, entry = node.delays
    leave = entry // 2
    arrivals = []
    for time in inputs:
        own = time + entry
        arrivals.append(max(own, chain + leave, 0))
        chain = max(chain, own - leave) + carry
    arrivals.append(max(chain + leave, 0))
    return arrivals[: node.width] if node.width >= len(node.local) else arrivals[-node.width :]


CONSTANT = -(1 << 40)
"""Arrival time of a constant."""

FOREVER = 1 << 40


class Flow:
    """Flow network (Dinic, Soviet Math. Doklady 11, 1970)."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = []
        self.to: list[int] = []
        self.room: list[int] = []
        self.source, self.sink = self.node(), self.node()

    def node(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, start: int, end: int, room: int) -> None:
        for tail, head, space in ((start, end, room), (end, start, 0)):
            self.edges[tail].append(len(self.to))
            self.to.append(head)
            self.room.append(space)

    def bus(self, own: int, users: set[int], bits: int) -> None:
        """Add the edges of bits that cross a cut once, although several vertices use them."""
        ends = users - {own, self.source}
        if ends == {self.sink}:
            self.edge(own, self.sink, bits)
        elif ends:
            bus = self.node()
            self.edge(own, bus, bits)
            for end in ends:
                self.edge(bus, end, FOREVER)

    def minimum_cut(self) -> list[bool]:
        """Return the nodes on the side of the source of a minimum cut."""
        while True:
            level = self._levels(self.source)
            if level[self.sink] < 0:
                return [place >= 0 for place in level]
            self._augment(self.source, self.sink, level)

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.edges)
        level[source] = 0
        queue = [source]
        for node in queue:
            for edge in self.edges[node]:
                end = self.to[edge]
                if self.room[edge] and level[end] < 0:
                    level[end] = level[node] + 1
                    queue.append(end)
        return level

    def _augment(self, source: int, sink: int, level: list[int]) -> None:
        """Saturate the paths of a level graph."""
        tried = [0] * len(self.edges)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                room = min(self.room[edge] for edge in path)
                for edge in path:
                    self.room[edge] -= room
                    self.room[edge ^ 1] += room
                full = next(place for place, edge in enumerate(path) if not self.room[edge])
                node = self.to[path[full] ^ 1]
                del path[full:]
                continue
            while tried[node] < len(self.edges[node]):
                edge = self.edges[node][tried[node]]
                if self.room[edge] and level[self.to[edge]] == level[node] + 1:
                    path.append(edge)
                    node = self.to[edge]
                    break
                tried[node] += 1
            else:
                if not path:
                    return
                level[node] = -1
                node = self.to[path.pop() ^ 1]
