"""Power of a unit in standard cells, in a separate process: ``python -m halfulp.fpga.synth.power``.

The process does the work of `halfulp.fpga.synth.cells`, simulates each netlist with the vectors in ``job.json``, and
adds energy and leakage to ``costs.json``. The simulation has no delays, so that glitches are not counted.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from graphlib import TopologicalSorter
from math import prod
from operator import or_
from pathlib import Path
from statistics import fmean
from typing import Any

from .liberty import Cell, Function, Group, Library

Stimulus = Mapping[str, Sequence[Sequence[int]]]
"""Codes of inputs: for each port and clock cycle, one for each of several independent runs."""

CONTROLS = {"rst": 0, "en": 1, "valid": 1}
"""Values of the control inputs after reset."""


@dataclass(frozen=True)
class Table:
    """Table of a Liberty file by load and transition time.

    Attributes
    ----------
    kinds : tuple of str
        Variable of each dimension: ``load``, ``slew``, or anything else, whose first value is taken.
    index : tuple of tuple of float
    values : tuple of float
        In the order of the file, the last dimension first.
    """

    kinds: tuple[str, ...]
    index: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]

    def at(self, load: float, slew: float) -> float:
        """Interpolate linearly between the values of the table; outside, extend it linearly."""
        return self._at({"load": load, "slew": slew}, 0, 0, len(self.values))

    def _at(self, given: Mapping[str, float], dimension: int, start: int, count: int) -> float:
        if dimension == len(self.index):
            return self.values[start]
        index = self.index[dimension]
        step = count // len(index)
        if len(index) == 1 or self.kinds[dimension] not in given:
            return self._at(given, dimension + 1, start, step)
        x = given[self.kinds[dimension]]
        place = max(0, min(sum(x >= point for point in index) - 1, len(index) - 2))
        low, high = (self._at(given, dimension + 1, start + (place + side) * step, step) for side in (0, 1))
        return low + (high - low) * (x - index[place]) / (index[place + 1] - index[place])


def _numbers(texts: Iterable[str]) -> tuple[float, ...]:
    words = [word for text in texts for word in text.replace(",", " ").split()]
    try:
        return tuple(map(float, words))
    except ValueError:
        raise ValueError(f"a table has a value that is not a number: {', '.join(words)[:60]}") from None


def _related(group: Group) -> list[str]:
    """Return the pins that cause the transitions of a group; none if it is of its own pin."""
    return group.values.get("related_pin", "").split()


class Tables:
    """Tables of a library in its own units."""

    def __init__(self, library: Library) -> None:
        self.library = library
        kinds = ("lu_table_template", "power_lut_template")
        self.templates = {group.names[0]: group for kind in kinds for group in library.group.of(kind)}
        self._known: dict[int, Table] = {}

    def of(self, group: Group) -> Table:
        """Read a table such as ``rise_power(template) { ... }``."""
        if id(group) not in self._known:
            template = self.templates.get(" ".join(group.names))
            kinds: list[str] = []
            index: list[tuple[float, ...]] = []
            for number in ("1", "2", "3") if template else ():
                variable = template.values.get(f"variable_{number}", "") if template else ""
                points = group.lists.get(f"index_{number}") or (template and template.lists.get(f"index_{number}"))
                if variable and points:
                    slew = "slew" if "transition" in variable else variable
                    kinds.append("load" if "capacitance" in variable else slew)
                    index.append(_numbers(points))
            values = _numbers(group.lists["values"])
            if (expected := prod(map(len, index))) > len(values):
                raise ValueError(f"a table has {len(values)} values, but expected {expected}")
            self._known[id(group)] = Table(tuple(kinds), tuple(index), values)
        return self._known[id(group)]

    def check(self, *, power: bool) -> None:
        """Read all tables; with ``power`` also what energies need. ValueError if one is invalid."""
        for cell in self.library.cells.values():
            for pin in cell.group.of("pin"):
                for group in pin.groups:
                    if group.kind in ("timing", "internal_power"):
                        self._check(group, f"the pin {pin.names[0]} of the cell {cell.name}")
            for group in cell.group.of("leakage_power"):
                self._check(group, f"the cell {cell.name}")
        if power and not self.library.voltage:
            raise ValueError(f"{self.library.file}: the library has no nom_voltage, which the energy needs")

    def _check(self, group: Group, place: str) -> None:
        try:
            group.number("value")
            if "when" in group.values:
                Function.parse(group.values["when"])
            for inner in group.groups:
                if "values" not in inner.lists:
                    raise ValueError("a table has no values")
                self.of(inner)
        except ValueError as error:
            raise ValueError(f"{self.library.file}: {group.kind} of {place}: {error}") from None

    def at(self, group: Group, names: Sequence[str], load: float, slew: Mapping[str, float]) -> list[float]:
        """Return the values of the tables of some names in a group, such as an arc, which are often one or none.

        Parameters
        ----------
        group : Group
        names : sequence of str
        load : float
        slew : mapping
            Transition times of the pins; that of ``""`` is for a group without ``related_pin``.
        """
        times = [slew.get(pin, 0.0) for pin in _related(group) or ("",)]
        return [self.of(inner).at(load, fmean(times)) for inner in group.groups if inner.kind in names]


@dataclass(frozen=True)
class Node:
    """Cell of a netlist with the nets of its pins."""

    cell: Cell
    nets: Mapping[str, Any]

    @property
    def inputs(self) -> Iterator[Any]:
        """Nets of the input pins."""
        return (self.nets[pin] for pin in self.cell.capacitances if pin in self.nets)

    @property
    def outputs(self) -> Iterator[tuple[str, Any, Function]]:
        """Output pins with their nets and functions."""
        return ((pin, self.nets[pin], of) for pin, of in self.cell.functions.items() if pin in self.nets)

    @cached_property
    def register(self) -> Group | None:
        """Group of a flip-flop."""
        return next(self.cell.group.of("ff"), None)

    def pin(self, name: str) -> Group:
        """Return the attributes of a pin."""
        return next(group for group in self.cell.group.of("pin") if group.names == [name])


@dataclass(frozen=True)
class Waves:
    """Values of nets in the clock cycles of a simulation.

    Attributes
    ----------
    values : dict of net to int
        Bits of a net: those of all runs in the first cycle, which are the lowest, then in the next ones.
    clocks : frozenset of nets
        Nets that rise and fall in each cycle.
    runs : int
        Runs side by side.
    cycles : int
        Clock cycles of each run.
    """

    values: Mapping[Any, int]
    clocks: frozenset[Any]
    runs: int
    cycles: int

    @property
    def transitions(self) -> int:
        """Number of steps from a cycle to the next one, in all runs."""
        return self.runs * (self.cycles - 1)

    def edges(self, net: Any) -> dict[str, int]:
        """Return a bit for each step and run that is 1 if the net changes, for ``rise`` and ``fall``."""
        every = (1 << self.transitions) - 1
        if net in self.clocks:
            return {"rise": every, "fall": every}
        before, after = self.values[net] & every, self.values[net] >> self.runs
        return {"rise": after & ~before, "fall": before & ~after}

    def cause(self, node: Node, group: Group) -> int:
        """Return a bit for each step and run that is 1 if a related pin changes and the condition ``when`` holds.

        The condition is that after the step, with clocks high.
        """
        cycles = (1 << self.transitions) - 1
        if related := _related(group):
            nets = [node.nets[pin] for pin in related if pin in node.nets]
            cycles = reduce(or_, (edges for net in nets for edges in self.edges(net).values()), 0)
        if when := group.values.get("when"):
            # The first cycle has no step before it.
            cycles &= self.holds(node, when, clock=True) >> self.runs
        return cycles

    def holds(self, node: Node, when: str, *, clock: bool = False) -> int:
        """Return a bit for each cycle and run that is 1 if a condition holds, with clocks high or low."""
        function = Function.parse(when)
        every = (1 << self.runs * self.cycles) - 1
        nets = {pin: node.nets.get(pin) for pin in function.pins}
        level = every if clock else 0
        values = {pin: level if net in self.clocks else self.values.get(net, 0) for pin, net in nets.items()}
        return function.evaluate(values, every)


class Netlist:
    """Netlist of standard cells, which is simulated without delays.

    Parameters
    ----------
    module : mapping
        Module in the JSON format of Yosys.
    library : Library
    """

    def __init__(self, module: Mapping[str, Any], library: Library) -> None:
        self.library = library
        self.ports: dict[str, Any] = module["ports"]
        nodes = [
            Node(library.cells[cell["type"]], {pin: bits[0] for pin, bits in cell["connections"].items()})
            for cell in module["cells"].values()
            if not cell["type"].startswith("$")
        ]
        self.registers = [node for node in nodes if node.register]
        gates = [node for node in nodes if not node.register]
        driver = {net: place for place, node in enumerate(gates) for _, net, _ in node.outputs}
        before = {place: [driver[net] for net in node.inputs if net in driver] for place, node in enumerate(gates)}
        self.gates = [gates[place] for place in TopologicalSorter(before).static_order()]

    def run(self, stimulus: Stimulus) -> tuple[Waves, dict[str, list[list[int]]]]:
        """Simulate runs side by side, all after a reset; return the values of the nets and the codes of the outputs.

        The values are those of the cycles of the stimulus, without the reset.
        """
        cycles, lanes = len(next(iter(stimulus.values()))), len(next(iter(stimulus.values()))[0])
        mask = (1 << lanes) - 1
        values: dict[Any, int] = {"0": 0, "1": mask, "x": 0, "z": 0}
        state = [0] * len(self.registers)
        waves: dict[Any, int] = defaultdict(int)
        results: dict[str, list[list[int]]] = defaultdict(list)
        for cycle in range(-1, cycles):
            for name, port in self.ports.items():
                if port["direction"] == "input":
                    for place, net in enumerate(port["bits"]):
                        values[net] = self._input(name, place, cycle, stimulus, lanes)
            self._settle(values, state, mask)
            if cycle >= 0:
                for net, value in values.items():
                    waves[net] |= value << cycle * lanes
                for name, port in self.ports.items():
                    if port["direction"] == "output":
                        results[name].append(_codes([values[net] for net in port["bits"]], lanes))
            state = [self._next(node, values, own, mask) for node, own in zip(self.registers, state, strict=True)]
        clocks = {net for port in [self.ports.get("clk")] if port for net in port["bits"]}
        return Waves(waves, frozenset(clocks), lanes, cycles), results

    def _input(self, name: str, place: int, cycle: int, stimulus: Stimulus, lanes: int) -> int:
        if name in stimulus:
            codes = stimulus[name][max(cycle, 0)]
            return sum(1 << lane for lane, code in enumerate(codes) if code >> place & 1)
        level = CONTROLS.get(name, 0) if cycle >= 0 else name != "valid"
        return ((1 << lanes) - 1) * bool(level)

    def _settle(self, values: dict[Any, int], state: Sequence[int], mask: int) -> None:
        """Compute all nets from inputs and states."""
        for node, own in zip(self.registers, state, strict=True):
            assert node.register is not None
            known = dict(zip(node.register.names, (own, own ^ mask), strict=False))
            for _, net, function in node.outputs:
                values[net] = function.evaluate(known, mask)
        for node in self.gates:
            pins = {pin: values[net] for pin, net in node.nets.items() if pin in node.cell.capacitances}
            for _, net, function in node.outputs:
                values[net] = function.evaluate(pins, mask)

    def _next(self, node: Node, values: Mapping[Any, int], own: int, mask: int) -> int:
        """Return the state of a flip-flop after the edge of its clock."""
        assert node.register is not None
        known = dict(zip(node.register.names, (own, own ^ mask), strict=False))
        known |= {pin: values[net] for pin, net in node.nets.items() if pin in node.cell.capacitances}

        def of(name: str) -> int:
            text = node.register.values.get(name) if node.register else None
            return Function.parse(text).evaluate(known, mask) if text else 0

        return (of("next_state") & (of("clear") ^ mask)) | of("preset")

    def energy(self, waves: Waves, load: float) -> float:
        """Return the dynamic energy in joule of all transitions: of nets that cells drive, and inside the cells.

        Parameters
        ----------
        waves : Waves
        load : float
            Capacitance at each output in farad.
        """
        library, tables = self.library, Tables(self.library)
        loads: dict[Any, float] = defaultdict(float)
        for node in (*self.registers, *self.gates):
            for pin, capacitance in node.cell.capacitances.items():
                loads[node.nets.get(pin)] += capacitance
        for port in self.ports.values():
            for net in port["bits"] if port["direction"] == "output" else ():
                loads[net] += load
        assert library.inverter is not None
        (edge,) = library.inverter.functions
        driver = Node(library.inverter, {})
        slews: dict[Any, float] = {
            net: self._slew(tables, driver, edge, loads[net], {})
            for port in self.ports.values()
            for net in (port["bits"] if port["direction"] == "input" else ())
        }
        slews |= dict.fromkeys(waves.clocks, 0.0)
        switched = inside = 0.0
        for node in (*self.registers, *self.gates):
            slew = {pin: slews.get(net, 0.0) for pin, net in node.nets.items()}
            for pin, net, _ in node.outputs:
                slews[net] = self._slew(tables, node, pin, loads[net], slew)
                toggles = sum(edges.bit_count() for edges in waves.edges(net).values())
                switched += toggles * loads[net] * library.voltage**2 / 2
                inside += self._inside(tables, node, pin, waves, loads[net], slew)
            for pin in node.cell.capacitances:
                if pin in node.nets:
                    inside += self._inside(tables, node, pin, waves, 0.0, {"": slew[pin]})
        return switched + inside * library.joule

    def _slew(self, tables: Tables, node: Node, pin: str, load: float, slew: Mapping[str, float]) -> float:
        """Return the mean transition time of an output over its arcs, or 0 without any."""
        edges = ("rise_transition", "fall_transition")
        arcs = node.pin(pin).of("timing")
        times = [time for arc in arcs for time in tables.at(arc, edges, load / self.library.farad, slew)]
        return fmean(times) if times else 0.0

    def _inside(
        self, tables: Tables, node: Node, pin: str, waves: Waves, load: float, slew: Mapping[str, float]
    ) -> float:
        """Return the internal energy of all transitions of a pin, in the unit of the library.

        A transition takes the energy of the group ``internal_power`` whose related pin changes and whose condition
        ``when`` holds, from the table of its direction. If several inputs change in the same cycle, the transition
        takes the mean over their groups, as the simulation has no delays.
        """
        groups = list(node.pin(pin).of("internal_power"))
        output = pin in node.cell.functions
        energy = 0.0
        # Groups of different supplies add up.
        for supply in dict.fromkeys(group.values.get("related_pg_pin", "") for group in groups):
            own = [group for group in groups if group.values.get("related_pg_pin", "") == supply]
            for edge, transitions in waves.edges(node.nets[pin]).items():
                causes = [transitions & waves.cause(node, group) for group in own]
                counts = _shares(transitions, causes) if output else [cause.bit_count() for cause in causes]
                for group, count in zip(own, counts, strict=True):
                    names = (f"{edge}_power", "power")
                    energy += count * sum(tables.at(group, names, load / self.library.farad, slew))
        return energy

    def leakage(self, waves: Waves) -> float | None:
        """Return the mean of the leakage powers of all cells in watt; None if the library has none.

        A cell has the power of the group ``leakage_power`` whose condition ``when`` holds, for clocks that are low. If
        none holds, it has that without a condition, or else ``cell_leakage_power``.
        """
        group = self.library.group
        cells = [cell.group for cell in self.library.cells.values()]
        if "default_cell_leakage_power" not in group.values and not any(
            "cell_leakage_power" in cell.values or any(True for _ in cell.of("leakage_power")) for cell in cells
        ):
            return None
        default = group.number("default_cell_leakage_power")
        nodes = (*self.registers, *self.gates)
        return sum(self._leakage(node, waves, default) for node in nodes) * self.library.watt

    def _leakage(self, node: Node, waves: Waves, default: float) -> float:
        groups = list(node.cell.group.of("leakage_power"))
        plain = [group.number("value") for group in groups if "when" not in group.values]
        count = waves.runs * waves.cycles
        rest, power = (1 << count) - 1, 0.0
        for group in groups:
            if when := group.values.get("when"):
                held = waves.holds(node, when)
                power += group.number("value") * held.bit_count() / count
                rest &= ~held
        other = sum(plain) if plain else node.cell.group.number("cell_leakage_power", default)
        return power + other * rest.bit_count() / count


def _shares(events: int, causes: Sequence[int]) -> list[float]:
    """Return the number of events of each cause, where an event of several or no causes is shared equally.

    Each bit is an event; those of a cause are among ``events``.
    """
    of_count = [events]
    for cause in causes:
        of_count = [
            (cycles & ~cause) | (less & cause) for cycles, less in zip([*of_count, 0], [0, *of_count], strict=True)
        ]
    none, *some = of_count
    shared = none.bit_count() / len(causes)
    return [
        shared + sum((cause & cycles).bit_count() / count for count, cycles in enumerate(some, 1)) for cause in causes
    ]


def _codes(bits: Sequence[int], lanes: int) -> list[int]:
    return [sum((bit >> lane & 1) << place for place, bit in enumerate(bits)) for lane in range(lanes)]


def main() -> None:
    """Run the job of the working folder."""
    from . import cells

    cells.main()
    job = json.loads(Path("job.json").read_text())
    stimulus = json.loads(job["stimulus"])
    library = Library.read(Path("cells.lib"))
    costs = json.loads(Path("costs.json").read_text())
    for cost in costs:
        (module,) = json.loads(Path(f"{cost['netlist']}.json").read_text())["modules"].values()
        netlist = Netlist(module, library)
        waves, _ = netlist.run(stimulus)
        cost["energy"] = netlist.energy(waves, job["load"] * 1e-15) / waves.transitions
        cost["leakage"] = netlist.leakage(waves)
    Path("costs.json").write_text(json.dumps(costs))


if __name__ == "__main__":
    main()
