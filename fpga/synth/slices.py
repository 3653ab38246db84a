"""Slices of a combinational netlist: registers between its cells, without regard to the description.

The clock of slices is a reference for register stages that are placed in a description.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from math import log2
from typing import Any

LUT, MUX, ENTRY, CARRY, LEAVE, NET, FANOUT = 240, 200, 450, 70, 440, 900, 60
"""Delays on ECP5 in picoseconds: cells as in nextpnr, speed grade 6; a net, and each doubling of its readers."""

STEP = 10
"""Accuracy of the largest delay of a slice in picoseconds."""

FF = "TRELLIS_FF"

OUTPUTS = {"LUT4": ("Z",), "PFUMX": ("Z",), "L6MUX21": ("Z",), "CCU2C": ("S0", "S1", "COUT")}
"""Output ports of the cells between registers."""

INSIDE = {"PFUMX": ("ALUT", "BLUT"), "L6MUX21": ("D0", "D1"), "CCU2C": ("CIN",)}
"""Inputs without a net of their own; the cell that drives one is in the same slice."""


def slice_netlist(netlist: dict[str, Any], top: str, registers: int) -> None:
    """Add registers to a netlist of Yosys for ECP5, so that each path between registers has as many more.

    The largest delay of a slice, by a model of cells and nets, is the smallest that is possible. Cells of a carry chain
    are in one slice, and so are wide multiplexers and the tables that they combine.

    Parameters
    ----------
    netlist : dict
        Netlist in Yosys' JSON format, which is changed. The module has registers at all ports, and no others.
    top : str
        Name of the module.
    registers : int
        Number of additional registers on each path.

    Raises
    ------
    ValueError
        If the module has memories, multiplier blocks, or registers between those of its ports, or cells that must be in
        one slice depend on each other through other cells.
    """
    Netlist(netlist["modules"][top]).divide(registers)


class Netlist:
    """Cells of a module between registers at its ports."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.all = module["cells"]
        self.names = module["netnames"]
        self.cells = {name: cell for name, cell in self.all.items() if cell["type"] in OUTPUTS}
        self.driver = {bit: name for name, cell in self.cells.items() for bit in _bits(cell, OUTPUTS[cell["type"]])}
        ports = {bit for port in module["ports"].values() if port["direction"] == "input" for bit in port["bits"]}
        registers = [name for name, cell in self.all.items() if cell["type"] == FF]
        self.first = [name for name in registers if set(_bits(self.all[name], ["DI"])) & ports]
        self.last = sorted({*registers} - {*self.first})
        known = {bit for name in self.first for bit in _bits(self.all[name], ["Q"])} | {*self.driver}
        self.readers: dict[int, list[tuple[str, str]]] = defaultdict(list)
        """Cells that read each bit, with the port."""
        for name in (*self.cells, *self.last):
            for port in _inputs(self.all[name]):
                for bit in {*_bits(self.all[name], [port])} - ports:
                    if bit not in known:
                        raise ValueError(
                            f"a netlist with registers or blocks between those of its ports cannot be sliced: {name}"
                        )
                    self.readers[bit].append((name, port))
        self.groups = list(self._groups())

    def _groups(self) -> Iterator[list[str]]:
        """Yield the cells that are in one slice; groups, and cells in each, are in dataflow order."""
        root = {name: name for name in self.cells}

        def find(name: str) -> str:
            while root[name] != name:
                root[name] = root[root[name]]
                name = root[name]
            return name

        for name, cell in self.cells.items():
            for bit in _bits(cell, INSIDE.get(cell["type"], ())):
                if bit in self.driver:
                    root[find(name)] = find(self.driver[bit])
        members: dict[str, list[str]] = defaultdict(list)
        for name in self.cells:
            members[find(name)].append(name)
        graph = {
            group: {find(driver) for name in names for driver in self._before(name)} - {group}
            for group, names in members.items()
        }
        for group in TopologicalSorter(graph).static_order():
            inner = {name: {*self._before(name)} & {*members[group]} for name in members[group]}
            yield list(TopologicalSorter(inner).static_order())

    def _before(self, name: str) -> list[str]:
        """Return the cells that drive a cell."""
        cell = self.cells[name]
        return [self.driver[bit] for bit in _bits(cell, _inputs(cell)) if bit in self.driver]

    def slots(self, limit: int, last: int) -> dict[str, int] | None:
        """Return the slice of each cell for a delay of slices, or None if that needs more slices."""
        slot: dict[str, int] = {}
        arrival: dict[int, int] = {}
        for group in self.groups:
            own = max((slot[before] for name in group for before in self._before(name) if before in slot), default=0)
            for place in (own, own + 1):
                arrivals = self._arrivals(group, slot, place, arrival)
                if max(arrivals.values()) <= limit:
                    break
            else:
                return None
            if place > last:
                return None
            slot |= dict.fromkeys(group, place)
            arrival |= arrivals
        return slot

    def _arrivals(
        self, group: Iterable[str], slot: Mapping[str, int], place: int, arrival: Mapping[int, int]
    ) -> dict[int, int]:
        """Return the arrival times of the outputs of a group in a slice, given those of the cells before."""
        arrivals: dict[int, int] = {}

        def at(bit: int) -> int:
            if bit in arrivals:
                return arrivals[bit]
            return arrival[bit] if slot.get(self.driver.get(bit, ""), -1) == place else 0

        for name in group:
            cell = self.cells[name]
            kind, inside = cell["type"], INSIDE.get(cell["type"], ())
            nets = _bits(cell, [port for port in _inputs(cell) if port not in inside])
            times = [at(bit) + self._net(bit) for bit in nets]
            inner = [arrivals[bit] for bit in _bits(cell, inside) if bit in arrivals]
            if kind == "CCU2C":
                carry = max([*(time + ENTRY for time in times), *inner], default=0) + CARRY
                arrivals |= dict.fromkeys(_bits(cell, ["S0", "S1"]), carry + LEAVE)
                arrivals |= dict.fromkeys(_bits(cell, ["COUT"]), carry)
            else:
                delay = LUT if kind == "LUT4" else MUX
                arrivals |= dict.fromkeys(_bits(cell, ["Z"]), max([*times, *inner], default=0) + delay)
        return arrivals

    def _net(self, bit: int) -> int:
        return NET + round(FANOUT * log2(max(len(self.readers.get(bit, ())), 1)))

    def divide(self, registers: int) -> None:
        """Place registers between slices."""
        low, high = 0, STEP
        while (slot := self.slots(high, registers)) is None:
            low, high = high, 2 * high
        while high - low > STEP:
            middle = (low + high) // 2
            tried = self.slots(middle, registers)
            low, high, slot = (middle, high, slot) if tried is None else (low, middle, tried)
        slot |= dict.fromkeys(self.last, registers)
        number = itertools.count(1 + max(bit for cell in self.all.values() for bit in _bits(cell, cell["connections"])))
        pattern = self.all[self.first[0]]
        for bit, readers in self.readers.items():
            place, held = slot.get(self.driver.get(bit, ""), 0), bit
            for after in range(place + 1, 1 + max(slot[name] for name, _ in readers)):
                new = next(number)
                name = f"slice{after}_{bit}"
                self.all[name] = pattern | {"connections": pattern["connections"] | {"DI": [held], "Q": [new]}}
                self.names[name] = {"hide_name": 0, "bits": [new], "attributes": {}}
                held = new
                for reader, port in readers:
                    if slot[reader] == after:
                        self.all[reader]["connections"][port] = [held]


def _inputs(cell: Mapping[str, Any]) -> list[str]:
    """Return the ports of a cell that have data."""
    if cell["type"] == FF:
        return ["DI", "LSR", "CE"]
    return [port for port in cell["connections"] if port not in OUTPUTS[cell["type"]]]


def _bits(cell: Mapping[str, Any], ports: Iterable[str]) -> list[int]:
    """Return the bits of ports that are not constant."""
    return [bit for port in ports for bit in cell["connections"].get(port, ()) if isinstance(bit, int)]
