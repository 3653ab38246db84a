"""Placement of register stages in a dataflow graph.

Nodes of the graph are operators on words, with arrival times by bit. A schedule gives each node a slot, the number of
register stages between the operands and the node. Its largest delay between registers is the smallest that the latency
allows. Among such schedules, a minimum cut for each boundary between slots chooses one with few register bits, as the
scheduler of Google's XLS does.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

INPUT, STATE, AFTER, LOGIC, CHAIN, SINK, NEXT = range(7)
"""Kinds of nodes: operand; register of the unit, before and after its step; logic; carry chain; result; next value of
a register."""

STEP = 5
"""Accuracy of the smallest delay, in picoseconds. Delays are integers, because sums of floats depend on their order."""

Bit = int
"""Number of a bit: of a node's output, or below zero a constant."""


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
        users: list[list[int]] = [[] for _ in range(self.bits)]
        for place, read in enumerate(self.read):
            for bit in read:
                users[bit].append(place)
        self.buses: list[dict[tuple[int, ...], int]] = [defaultdict(int) for _ in nodes]
        """For each node, the number of bits with the same users."""
        for bit, readers in enumerate(users):
            if readers:
                self.buses[self.owner[bit]][tuple(readers)] += 1
        readers = [0] * self.bits
        for node in nodes:
            for bits in (*(node.leaves or node.local), node.common if node.kind != LOGIC else []):
                for bit in bits:
                    readers[bit] += 1
        self.net = [net(count) for count in readers]
        """Additional delay of the net of each bit."""
        self.ends = [0] * self.bits
        """Delay of each bit to a register behind it, which is at most that of an operator."""
        for node in nodes:
            if node.kind == LOGIC and node.ends:
                self.ends[node.first : node.first + node.width] = node.ends
        self.groups = 1 + max((node.group for node in nodes), default=-1)

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
        slots, arrival = [0] * len(self.nodes), [0] * self.bits
        for place, node in enumerate(self.nodes):
            if node.kind in (STATE, AFTER):
                slots[place] = max(low[place], steps[node.group] + (node.kind == AFTER) - node.slack)
            elif node.kind == INPUT:
                slots[place] = node.slot
            else:
                slot = max([low[place], *(slots[operand] for operand in self.operands[place])])
                if node.kind == NEXT:
                    slot = max(slot, steps[node.group])
                found = self.arrivals(node, slot, slots, arrival)
                if self._end(node, found) > limit:
                    slot += 1
                    found = self.arrivals(node, slot, slots, arrival)
                    if self._end(node, found) > limit:
                        return None
                slots[place] = slot
                arrival[node.first : node.first + node.width] = found[: node.width]
            if slots[place] > self.latency:
                return None
        return slots

    def arrivals(self, node: Node, slot: int, slots: Sequence[int], arrival: Sequence[int]) -> list[int]:
        """Return the arrival time of each output bit of a node in a slot; of a sink, that of its input."""
        owner, net = self.owner, self.net

        def at(bit: Bit) -> int:
            return arrival[bit] + net[bit] if slots[owner[bit]] == slot else net[bit]

        if node.kind == LOGIC:
            tables = zip(node.leaves, node.delays, strict=True)
            return [max(map(at, leaves), default=0) + delay for leaves, delay in tables]
        if node.kind == CHAIN:
            return chain_arrivals(node, at, lambda bit: slots[owner[bit]] == slot)
        return [max(map(at, node.common), default=0) + sum(node.ends)]

    def _end(self, node: Node, arrivals: Sequence[int]) -> int:
        """Return the largest delay up to registers behind a node, given the arrival times of its bits."""
        if node.kind == LOGIC:
            arrivals = list(map(int.__add__, arrivals, self.ends[node.first : node.first + node.width]))
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
        tail = self.ends[:]
        for place in reversed(range(count)):
            node = self.nodes[place]
            if node.kind == INPUT:
                slots[place] = node.slot
                continue
            slot = min(least[place], high[place])
            if node.kind == NEXT:
                slot = min(slot, steps[node.group])
            now = slice(node.first, node.first + node.width)
            if slot < least[place]:
                tail[now] = self.ends[now]
            if node.kind in (STATE, AFTER):
                slots[place] = slot
                continue
            found, longest = self.tails(node, tail[now])
            if longest > limit:
                slot -= 1
                found, _ = self.tails(node, self.ends[now])
            slots[place] = slot
            for bit, time in found:
                if bit < 0:
                    continue
                operand = self.owner[bit]
                if slot < least[operand]:
                    least[operand] = slot
                    before = slice(self.nodes[operand].first, self.nodes[operand].first + self.nodes[operand].width)
                    tail[before] = self.ends[before]
                if slot == least[operand]:
                    tail[bit] = max(tail[bit], time)
        return slots

    def tails(self, node: Node, tail: Sequence[int]) -> tuple[list[tuple[Bit, int]], int]:
        """Return the time from each input bit to the end of the slot, given those of the output bits, and the longest.

        The longest assumes a carry in from a register.
        """
        net = self.net
        if node.kind == CHAIN:
            carry, entry = node.delays
            leave, count = entry // 2, len(node.local)
            sums = tail if node.width >= count else [0] * count
            # Time from the carry into a place to the end of the slot.
            after = max(tail[-1] + leave, 0) if node.width != count else 0
            found = []
            for place in reversed(range(count)):
                own = max(sums[place] + entry, after + entry - leave + carry)
                found += [(bit, own + net[bit]) for bit in node.local[place]]
                after = max(sums[place] + leave, after + carry)
            longest = after + entry - leave if node.common else 0
            found += [(bit, after - leave) for bit in node.common]
            return found, max([longest, *(time for _, time in found)])
        if node.kind == LOGIC:
            found = [(bit, 0) for bit in node.inputs]
            local = zip(node.leaves, node.delays, tail, strict=True)
            found += [(bit, net[bit] + delay + time) for bits, delay, time in local for bit in bits]
        else:
            found = [(bit, net[bit] + sum(node.ends)) for bit in node.common]
        return found, max((time for _, time in found), default=0)

    def delay(self, slots: Sequence[int]) -> int:
        """Return the largest delay between registers of a schedule."""
        arrival, most = [0] * self.bits, 0
        for node, slot in zip(self.nodes, slots, strict=True):
            if node.kind not in (INPUT, STATE, AFTER):
                found = self.arrivals(node, slot, slots, arrival)
                arrival[node.first : node.first + node.width] = found[: node.width]
                most = max(most, self._end(node, found))
        return most

    def schedule(self) -> tuple[list[int], int]:
        """Return the slot of each node and the largest delay between registers."""
        _, delay = self.smallest_delay(self.least())
        return self._fewest_registers(delay), delay

    def smallest_delay(self, least: Sequence[int]) -> tuple[list[int], int]:
        """Return the earliest slots for the smallest delay between registers, and that delay."""
        low, high = 0, STEP
        while (found := self.earliest(high, least)) is None:
            low, high = high, 2 * high
        high = min(high, self.delay(found))
        while high - low > STEP:
            middle = (low + high) // 2
            slots = self.earliest(middle, least)
            if slots is None:
                low = middle
            else:
                high, found = middle, slots
        return found, high

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
        found = []
        for more in range(max(late[place] - early[place] for place in steps) + 1):
            low, high = self.least(), [self.latency] * len(self.nodes)
            for place in steps:
                low[place] = high[place] = min(early[place] + more, late[place])
            found.append(self._cuts(limit, low, high))
        return min(found, key=self.register_bits)

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
        count = len(self.nodes)
        flow = Flow()
        source, sink = flow.node(), flow.node()
        vertex = [0] * count
        groups: dict[int, int] = {}
        for place, node in enumerate(self.nodes):
            if node.kind == INPUT:
                vertex[place] = source if node.slot < boundary else sink
            elif late[place] < boundary:
                vertex[place] = source
            elif early[place] >= boundary:
                vertex[place] = sink
            elif node.group >= 0 and node.kind != AFTER and not node.slack:
                # Registers and their next states are in one slot.
                vertex[place] = groups.setdefault(node.group, -1)
                if vertex[place] < 0:
                    vertex[place] = groups[node.group] = flow.node()
            else:
                vertex[place] = flow.node()
        for place in range(count):
            for operand in self.operands[place]:
                if vertex[place] != vertex[operand] and vertex[operand] != source and vertex[place] != sink:
                    flow.edge(vertex[place], vertex[operand], FOREVER)
        for place in range(count):
            own = vertex[place]
            if own == sink:
                continue
            for users, bits in self.buses[place].items():
                ends = {vertex[user] for user in users} - {own, source}
                if ends == {sink}:
                    flow.edge(own, sink, bits)
                elif ends:
                    bus = flow.node()
                    flow.edge(own, bus, bits)
                    for end in ends:
                        flow.edge(bus, end, FOREVER)
        reached = flow.minimum_cut(source, sink)
        return [reached[own] for own in vertex]


def chain_arrivals(node: Node, at: Callable[[Bit], int], is_here: Callable[[Bit], bool]) -> list[int]:
    """Return the arrival time of each output bit of a carry chain, given those of its inputs and their slot.

    A carry in from the same slot does not leave the chain before; one from a register enters it.
    """
    carry, entry = node.delays
    leave = entry // 2
    # Constant bits have no delay.
    chain = max((at(bit) - leave + (0 if is_here(bit) else entry) for bit in node.common), default=CONSTANT)
    found = []
    for bits in node.local:
        own = max(map(at, bits), default=CONSTANT) + entry
        found.append(max(own, chain + leave, 0))
        chain = max(chain, own - leave) + carry
    found.append(max(chain + leave, 0))
    return found[: node.width] if node.width >= len(node.local) else found[-node.width :]


CONSTANT = -(1 << 40)
"""Arrival time of a constant."""

FOREVER = 1 << 40


class Flow:
    """Flow network (Dinic, Soviet Math. Doklady 11, 1970)."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = []
        self.to: list[int] = []
        self.room: list[int] = []

    def node(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, start: int, end: int, room: int) -> None:
        for tail, head, space in ((start, end, room), (end, start, 0)):
            self.edges[tail].append(len(self.to))
            self.to.append(head)
            self.room.append(space)

    def minimum_cut(self, source: int, sink: int) -> list[bool]:
        """Return the nodes on the side of the source of a minimum cut."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return [place >= 0 for place in level]
            self._augment(source, sink, level)

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
