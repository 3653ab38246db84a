"""Parts of cocotb test benches for designs that contain units.

The parts are those of `halfulp sim`: drivers with gaps and stalls, monitors that check the rules of the protocol, and a
scoreboard with the golden model. A `Bench` starts the clock, resets, and steps them in each clock cycle.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib.data import Layout

from halfulp.hdl.formats import Format

from .bench import operations
from .build import component_design, models
from .compare import full_reports
from .coverage.collect import Coverage, hits
from .ports import Ports
from .reference import reference
from .signals.agents import Bench, Driver, Explanation, Monitor, Scoreboard, Throttle, chance, paced
from .signals.interfaces import ActiveLow, Aligned, Packed, Pins, Sink, Source, Streams, Wires
from .simulate import LOG, Simulation

if TYPE_CHECKING:
    from halfulp.units import Unit

__all__ = [
    "ActiveLow",
    "Aligned",
    "Bench",
    "Driver",
    "Expected",
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


class Expected(Scoreboard):
    """Scoreboard that computes the results of a design from its operands with a function, and compares them in order.

    A design may have fewer results than operands, or more. The function gets all operands from one reset to the next;
    results that a reset interrupts are not missing. Results are compared and counted by `check`.

    Parameters
    ----------
    function : callable
        Function from the packed operands since a reset, in order, to the packed results, in order.
    """

    nothing = "no result was observed"

    def __init__(self, function: Callable[[list[int]], Sequence[int]]) -> None:
        super().__init__([], paired=False)
        self.function = function
        self._parts: list[tuple[list[int], list[int]]] = [([], [])]
        self._computed = (0, 0)

    @property
    def missing(self) -> int:
        """Number of results since the last reset that have not been observed."""
        words, results = self._parts[-1]
        if len(words) != self._computed[0]:
            self._computed = len(words), len(self.function(words))
        return max(self._computed[1] - len(results), 0)

    def operands(self, word: int) -> None:
        self._parts[-1][0].append(word)

    def result(self, word: int) -> None:
        self._parts[-1][1].append(word)

    def reset(self) -> None:
        self._parts.append(([], []))
        self._computed = (0, 0)

    def check(self, explain: Explanation = lambda expected: None, expected: Sequence[int] = ()) -> None:
        for words, results in self._parts:
            if words or results:
                self._compare(words, results)
        super().check(explain)

    def _compare(self, words: list[int], results: list[int]) -> None:
        """Compare the results from one reset to the next."""
        self.compare_all(self.function(words), results)


class Reference(Expected):
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
    coverage : Coverage or None
    """

    def __init__(self, unit: "Unit", *, coverage: bool = False) -> None:
        super().__init__(self._results)
        self.unit, self.paired = unit, True
        self.coverage = Coverage(unit) if coverage else None
        self._inputs, self._outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
        self.nothing = f"no operation of {unit.name} was observed"

    @property
    def missing(self) -> int:
        """Number of operations since the last reset without a result."""
        words, results = self._parts[-1]
        return max(len(words) - len(results), 0)

    def _results(self, words: list[int]) -> list[int]:
        if not words:
            return []
        want = reference(self.unit, self._inputs.columns(words), chained=self.unit.stateful)
        return self._outputs.words(want)

    def _compare(self, words: list[int], results: list[int]) -> None:
        first, chained = len(self.shown), self.unit.stateful
        super()._compare(words, results)
        count = min(len(words), len(results))
        codes = self._inputs.columns(words[:count])
        want = self._outputs.columns(self.expected[:count])
        self.shown[first:] = full_reports(self.unit, self.shown[first:], codes, want, chained=chained)
        if self.coverage is not None and count:
            # A result may have unknown bits, which no code has.
            got = self._outputs.columns([max(word, 0) for word in results[:count]])
            self.coverage.sample(codes, got, chained=chained)

    @property
    def report(self) -> str:
        """Number of compared operations and hit bins, after `check`."""
        counted = f"{self.checked:,} operations of {self.unit.name} compared"
        return counted if self.coverage is None else f"{counted}, {hits([self.coverage])}"


def vectors(unit: "Unit", count: int = 1000, seed: int = 0) -> list[int]:
    """Return packed operands for a unit: directed and random, or all inputs if they are few.

    Parameters
    ----------
    unit : Unit
    count : int
        Maximum number of operations; those of a unit with an accumulator are consecutive steps from reset.
    seed : int
    """
    ports, codes = Ports.inputs_of(unit), operations(unit, count, seed)
    return ports.words(codes)


def pins(unit: "Unit", handle: Any, *, clk: Any = None, rst: Any = None, en: Any = None, valid: Any = None) -> Pins:
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
        inputs=_wires(handle, Ports.inputs_of(unit)),
        outputs=_wires(handle, Ports.of(unit.outputs)),
        latency=unit.latency,
        holds=unit.stateful,
        initiation=unit.initiation,
    )


def _wires(handle: Any, ports: Ports) -> Wires:
    return Wires({name: getattr(handle, name) for name in ports.names}, ports)


def _fields(shapes: Any) -> Ports:
    """Return the fields of a payload as ports."""

    def known(shape: Any) -> Any:
        return shape if hasattr(shape, "width") else Shape.cast(shape)

    if isinstance(shapes, Mapping):
        return Ports.of({name: known(shape) for name, shape in shapes.items()})
    if isinstance(shapes, Format):
        return Ports.of({"payload": shapes})
    cast = shapes
    while isinstance(cast, ShapeCastable) and not isinstance(cast, Layout):
        cast = cast.as_shape()
    if not isinstance(cast, Layout):
        return Ports.of({"payload": Shape.cast(cast)})
    ports, end = {}, 0
    for key, field in cast:
        if field.offset != end:
            raise ValueError(
                f"field {key} of {cast} begins at bit {field.offset}; expected adjacent fields, from {end}"
            )
        ports[str(key)] = known(field.shape)
        end += field.width
    if end != cast.size:
        raise ValueError(f"the fields of {cast} have {end} of its {cast.size} bits; expected adjacent fields")
    return Ports.of(ports)


def source(handle: Any, name: str, shapes: Any) -> Source:
    """Return the interface of a stream of operands of an Amaranth design.

    Parameters
    ----------
    handle
        Handle of the design, with ports ``clk``, ``rst``, ``<name>__payload``, ``<name>__valid`` and ``<name>__ready``.
    name : str
    shapes : mapping, Layout or shape
        Format, or shape of Amaranth, of each field of the payload, the first of which is lowest; the layout of a
        structure or an array, or a subclass of ``Struct``; or the shape of a payload without fields.

    Raises
    ------
    ValueError
        If fields overlap or leave bits unused.
    """
    payload, valid, ready = (getattr(handle, f"{name}__{part}") for part in ("payload", "valid", "ready"))
    word = Packed(payload, _fields(shapes))
    return Source(clk=handle.clk, rst=handle.rst, inputs=word, valid=valid, ready=ready)


def sink(handle: Any, name: str, shapes: Any) -> Sink:
    """Return the interface of a stream of results; parameters are those of `source`."""
    payload, valid, ready = (getattr(handle, f"{name}__{part}") for part in ("payload", "valid", "ready"))
    word = Packed(payload, _fields(shapes))
    return Sink(clk=handle.clk, rst=handle.rst, outputs=word, valid=valid, ready=ready)


def streams(unit: "Unit", handle: Any) -> Streams:
    """Return the interface of a `Streamed` unit, whose streams are ``i`` and ``o``."""
    return Streams(source(handle, "i", unit.inputs), sink(handle, "o", unit.outputs))


def axi_stream(unit: "Unit", handle: Any) -> Streams:
    """Return the interface of the AXI4-Stream wrapper of a unit in a package of `halfulp emit --package`."""
    clock = {"clk": handle.aclk, "rst": ActiveLow(handle.aresetn)}
    operands = Aligned(handle.s_axis_tdata, Ports.inputs_of(unit))
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
