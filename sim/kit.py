"""Parts of cocotb test benches for designs that contain units.

The parts are those of `halfulp sim`: drivers with gaps and stalls, monitors that check the rules of the protocol, and a
scoreboard with the golden model. A `Bench` starts the clock, resets, and steps them in each clock cycle.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .bench import operations
from .build import component_design, models
from .compare import compare
from .coverage.collect import Coverage, hits
from .ports import Codes, Ports
from .reference import reference
from .report import Failure
from .signals.agents import Bench, Driver, Explanation, Monitor, Scoreboard, Throttle, chance, paced
from .signals.interfaces import ActiveLow, Aligned, Packed, Pins, Sink, Source, Streams, Wires
from .signals.rules import SHOWN
from .simulate import LOG, Simulation

__all__ = [
    "ActiveLow",
    "Aligned",
    "Bench",
    "Driver",
    "Monitor",
    "Packed",
    "Pins",
    "Reference",
    "Scoreboard",
    "Sink",
    "Source",
    "Streams",
    "Throttle",
    "Wires",
    "axi_stream",
    "chance",
    "paced",
    "pins",
    "simulate",
    "sink",
    "source",
    "streams",
    "vectors",
]


class Reference:
    """Scoreboard that computes the results of observed operands with the golden model, and compares them.

    Operations from one reset to the next are a sequence of their own; those that a reset interrupts are not compared.

    Parameters
    ----------
    unit : Unit
        Unit of the design, with its formats, rounding and latency.
    coverage : bool
        Count the operations in the bins of `halfulp coverage`.

    Attributes
    ----------
    checked, failed : int
        Numbers of compared results and of failures, after `check`.
    coverage : Coverage or None
    """

    def __init__(self, unit: Any, *, coverage: bool = False) -> None:
        self.unit, self.checked, self.failed = unit, 0, 0
        self.coverage = Coverage(unit) if coverage else None
        self._inputs, self._outputs = Ports.of(unit.inputs), Ports.of(unit.outputs)
        self._parts: list[tuple[list[int], list[int]]] = [([], [])]
        self._failures: list[Failure] = []

    def operands(self, word: int) -> None:
        """Take packed operands that the unit accepts."""
        self._parts[-1][0].append(word)

    def result(self, word: int) -> None:
        """Take a packed result."""
        self._parts[-1][1].append(word)

    def broken(self, kind: str, text: str) -> None:
        """Take a violated rule of the protocol."""
        self.failed += 1
        self._failures.append(Failure(kind, text))

    def reset(self) -> None:
        """Begin a sequence."""
        self._parts.append(([], []))

    def check(self, explain: Explanation = lambda expected: None) -> None:
        """Compare all results.

        Parameters
        ----------
        explain : callable
            Function from all expected words since the last reset to a cause of wrong results other than arithmetic.

        Raises
        ------
        AssertionError
            If nothing was compared, a result is wrong, or a rule of the protocol is violated.
        """
        expected: list[int] = []
        for words, results in self._parts:
            count = min(len(words), len(results))
            if len(results) > count:
                self.broken("count", "there are more results than accepted operations")
            # A result may have unknown bits, which no code has.
            if unknown := sum(word < 0 for word in results):
                self.broken("mismatch", f"{unknown} results have unknown bits")
            if not count:
                continue
            got = _columns(self._outputs, [max(word, 0) for word in results[:count]])
            codes = _columns(self._inputs, words[:count])
            want = reference(self.unit, codes, chained=self.unit.stateful)
            expected = [self._outputs.pack(row) for row in zip(*(want[name].tolist() for name in want), strict=True)]
            most = SHOWN - len(self._failures)
            failed, failures = compare(self.unit, codes, want, got, most, chained=self.unit.stateful)
            self.checked, self.failed = self.checked + count, self.failed + failed
            self._failures += failures
            if self.coverage is not None:
                self.coverage.sample(codes, got, chained=self.unit.stateful)
        assert self.checked > 0, f"no operation of {self.unit.name} was observed"
        if self.failed:
            cause = explain(expected)
            texts = [text for _, text in [cause] if cause] if cause else []
            raise AssertionError("\n".join([f"{self.failed} failures", *texts, *(one.text for one in self._failures)]))

    @property
    def report(self) -> str:
        """Number of compared operations and hit bins, after `check`."""
        counted = f"{self.checked:,} operations of {self.unit.name} compared"
        return counted if self.coverage is None else f"{counted}, {hits([self.coverage])}"


def _columns(ports: Ports, words: list[int]) -> dict[str, Codes]:
    """Return the codes of packed words, one array per port."""
    rows = zip(*map(ports.unpack, words), strict=True)
    return {name: np.array(row, dtype=np.uint64) for name, row in zip(ports.names, rows, strict=True)}


def vectors(unit: Any, count: int = 1000, seed: int = 0) -> list[int]:
    """Return packed operands for a unit: directed and random, or all inputs if they are few.

    Parameters
    ----------
    unit : Unit
    count : int
        Maximum number of operations; those of a unit with an accumulator are consecutive steps from reset.
    seed : int
    """
    ports, codes = Ports.of(unit.inputs), operations(unit, count, seed)
    return [ports.pack(row) for row in zip(*(codes[name].tolist() for name in ports.names), strict=True)]


def pins(unit: Any, handle: Any, *, clk: Any = None, rst: Any = None, en: Any = None, valid: Any = None) -> Pins:
    """Return the interface of a unit by the names of its ports.

    Parameters
    ----------
    unit : Unit
    handle
        Handle of the instance of its module.
    clk, rst, en, valid
        Handles of control ports; default: those of the instance with these names, if it has them. A reset or clock
        enable that is active low is an `ActiveLow` handle.
    """
    given = {"clk": clk, "rst": rst, "en": en, "valid": valid}
    found = {name: one if one is not None else getattr(handle, name, None) for name, one in given.items()}
    if found["clk"] is None:
        raise ValueError(f"{unit.name} has no port clk; give the clock of the design with clk=")
    return Pins(
        **found,
        ready=getattr(handle, "ready", None),
        inputs=_wires(handle, Ports.of(unit.inputs)),
        outputs=_wires(handle, Ports.of(unit.outputs)),
        latency=unit.latency,
        holds=unit.stateful,
        initiation=unit.initiation,
    )


def _wires(handle: Any, ports: Ports) -> Wires:
    return Wires({name: getattr(handle, name) for name in ports.names}, ports)


def source(handle: Any, name: str, shapes: Mapping[str, Any]) -> Source:
    """Return the interface of a stream of operands of an Amaranth design.

    Parameters
    ----------
    handle
        Handle of the design, with ports ``clk``, ``rst``, ``<name>__payload``, ``<name>__valid`` and ``<name>__ready``.
    name : str
    shapes : mapping
        Format, or shape of Amaranth, of each field of the payload; the first is lowest.
    """
    payload, valid, ready = (getattr(handle, f"{name}__{part}") for part in ("payload", "valid", "ready"))
    word = Packed(payload, Ports.of(shapes))
    return Source(clk=handle.clk, rst=handle.rst, inputs=word, valid=valid, ready=ready)


def sink(handle: Any, name: str, shapes: Mapping[str, Any]) -> Sink:
    """Return the interface of a stream of results; parameters are those of `source`."""
    payload, valid, ready = (getattr(handle, f"{name}__{part}") for part in ("payload", "valid", "ready"))
    word = Packed(payload, Ports.of(shapes))
    return Sink(clk=handle.clk, rst=handle.rst, outputs=word, valid=valid, ready=ready)


def streams(unit: Any, handle: Any) -> Streams:
    """Return the interface of a `Streamed` unit, whose streams are ``i`` and ``o``."""
    return Streams(source(handle, "i", unit.inputs), sink(handle, "o", unit.outputs))


def axi_stream(unit: Any, handle: Any) -> Streams:
    """Return the interface of the AXI4-Stream wrapper of a unit in a package of `halfulp emit --package`."""
    clock = {"clk": handle.aclk, "rst": ActiveLow(handle.aresetn)}
    operands = Aligned(handle.s_axis_tdata, Ports.of(unit.inputs))
    results = Aligned(handle.m_axis_tdata, Ports.of(unit.outputs))
    return Streams(
        Source(**clock, inputs=operands, valid=handle.s_axis_tvalid, ready=handle.s_axis_tready),
        Sink(**clock, outputs=results, valid=handle.m_axis_tvalid, ready=handle.m_axis_tready),
    )


def simulate(component: Any, file: str | Path) -> list[str]:
    """Run the cocotb tests of a Python file on an Amaranth design in Verilator; return their names.

    Parameters
    ----------
    component : wiring.Component
        Unit or design. Tests reach its ports and those of its direct submodules.
    file : str or Path
        File with functions that are decorated with ``@cocotb.test()``.

    Raises
    ------
    AssertionError
        If a test fails; with the text of its failure.
    ValueError
        If the file has no test.
    ToolError
        If a tool fails.
    """
    from halfulp.tools.imports import module_of
    from halfulp.tools.paths import saved_on_failure

    module = module_of(str(file))
    # Decorated functions are generators of tests.
    tests = [name for name, value in vars(module).items() if hasattr(value, "generate_tests")]
    if not tests:
        raise ValueError(f"{file} has no cocotb test")
    made = component_design(component)
    model = models(made, ("inside",))["inside"]
    with saved_on_failure(made.name) as folder:
        with Simulation(model, made.top, Path(file).stem, tests, folder) as simulation:
            found = simulation.finish()
        for name, reason in found.items():
            if reason:
                raise AssertionError(f"{name}: {reason} (whole log: {folder / LOG})")
    return tests
