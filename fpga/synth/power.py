"""Power of a unit in standard cells, in a separate process: ``python -m halfulp.fpga.synth.power``.

The process does the work of `halfulp.fpga.synth.cells`, simulates each netlist with the vectors in ``job.json``, and
adds energy and leakage to ``costs.json``. The simulation has no delays, so that glitches are not counted.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
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
        place = max(0, min(sum(x >= one for one in index) - 1, len(index) - 2))
        low, high = (self._at(given, dimension + 1, start + (place + side) * step, step) for side in (0, 1))
        return low + (high - low) * (x - index[place]) / (index[place + 1] - index[place])


def _numbers(texts: Iterable[str]) -> tuple[float, ...]:
    return tuple(float(word) for text in texts for word in text.replace(",", " ").split())


class Tables:
    """Tables of a library in its own units."""

    def __init__(self, library: Library) -> None:
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
                found = group.lists.get(f"index_{number}") or (template and template.lists.get(f"index_{number}"))
                if variable and found:
                    slew = "slew" if "transition" in variable else variable
                    kinds.append("load" if "capacitance" in variable else slew)
                    index.append(_numbers(found))
            self._known[id(group)] = Table(tuple(kinds), tuple(index), _numbers(group.lists["values"]))
        return self._known[id(group)]

    def mean(self, groups: Iterable[Group], names: Sequence[str], load: float, slew: Mapping[str, float]) -> float:
        """Return the mean over groups, such as arcs of a pin, and over their tables of some names; 0 without any."""
        found = [
            self.of(inner).at(load, slew.get(group.values.get("related_pin", ""), slew.get("", 0.0)))
            for group in groups
            for inner in group.groups
            if inner.kind in names
        ]
        return fmean(found) if found else 0.0


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

    def run(self, stimulus: Stimulus) -> tuple[dict[Any, int], dict[str, list[list[int]]]]:
        """Simulate runs side by side, all after a reset; return the toggles of each net and the codes of the outputs.

        Toggles are counted between the cycles of the stimulus, not from the reset to the first one.
        """
        cycles, lanes = len(next(iter(stimulus.values()))), len(next(iter(stimulus.values()))[0])
        mask = (1 << lanes) - 1
        values: dict[Any, int] = {"0": 0, "1": mask, "x": 0, "z": 0}
        state = [0] * len(self.registers)
        toggles: dict[Any, int] = defaultdict(int)
        results: dict[str, list[list[int]]] = defaultdict(list)
        for cycle in range(-1, cycles):
            before = dict(values)
            for name, port in self.ports.items():
                if port["direction"] == "input":
                    for place, net in enumerate(port["bits"]):
                        values[net] = self._input(name, place, cycle, stimulus, lanes)
            self._settle(values, state, mask)
            if cycle > 0:
                for net, value in values.items():
                    toggles[net] += (value ^ before[net]).bit_count()
            if cycle >= 0:
                for name, port in self.ports.items():
                    if port["direction"] == "output":
                        results[name].append(_codes([values[net] for net in port["bits"]], lanes))
            state = [self._next(node, values, own, mask) for node, own in zip(self.registers, state, strict=True)]
        return toggles, results

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

    def energy(self, toggles: Mapping[Any, int], cycles: int, load: float) -> float:
        """Return the dynamic energy in joule of the toggles: of nets that cells drive, and inside the cells.

        Parameters
        ----------
        toggles : mapping
            Toggles of each net in all runs; those of clocks are not counted.
        cycles : int
            Clock cycles of all runs.
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
        clocks = {net for port in [self.ports.get("clk")] if port for net in port["bits"]}
        counts = dict(toggles) | dict.fromkeys(clocks, 2 * cycles)
        assert library.inverter is not None
        (edge,) = library.inverter.functions
        driver = Node(library.inverter, {})
        slews: dict[Any, float] = {
            net: self._slew(tables, driver, edge, loads[net], {})
            for port in self.ports.values()
            for net in (port["bits"] if port["direction"] == "input" else ())
        }
        slews |= dict.fromkeys(clocks, 0.0)
        switched = inside = 0.0
        for node in (*self.registers, *self.gates):
            slew = {pin: slews.get(net, 0.0) for pin, net in node.nets.items()}
            for pin, net, _ in node.outputs:
                slews[net] = self._slew(tables, node, pin, loads[net], slew)
                switched += counts.get(net, 0) * loads[net] * library.voltage**2 / 2
                inside += counts.get(net, 0) * self._inside(tables, node.pin(pin), loads[net], slew)
            for pin in node.cell.capacitances:
                inside += counts.get(node.nets.get(pin), 0) * self._inside(
                    tables, node.pin(pin), 0.0, {"": slew.get(pin, 0.0)}
                )
        return switched + inside * library.farad

    def _slew(self, tables: Tables, node: Node, pin: str, load: float, slew: Mapping[str, float]) -> float:
        arcs = node.pin(pin).of("timing")
        return tables.mean(arcs, ("rise_transition", "fall_transition"), load / self.library.farad, slew)

    def _inside(self, tables: Tables, pin: Group, load: float, slew: Mapping[str, float]) -> float:
        arcs = pin.of("internal_power")
        return tables.mean(arcs, ("rise_power", "fall_power", "power"), load / self.library.farad, slew)

    def leakage(self) -> float | None:
        """Return the sum of the leakage powers of all cells in watt; None if the library has none."""
        group = self.library.group
        if "default_cell_leakage_power" not in group.values and not any(
            "cell_leakage_power" in cell.group.values for cell in self.library.cells.values()
        ):
            return None
        default = group.number("default_cell_leakage_power")
        nodes = (*self.registers, *self.gates)
        return sum(node.cell.group.number("cell_leakage_power", default) for node in nodes) * self.library.watt


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
    for one in costs:
        (module,) = json.loads(Path(f"{one['netlist']}.json").read_text())["modules"].values()
        netlist = Netlist(module, library)
        toggles, _ = netlist.run(stimulus)
        rows = next(iter(stimulus.values()))
        cycles = (len(rows) - 1) * len(rows[0])
        one["energy"] = netlist.energy(toggles, cycles, job["load"] * 1e-15) / cycles
        one["leakage"] = netlist.leakage()
    Path("costs.json").write_text(json.dumps(costs))


if __name__ == "__main__":
    main()
