"""Coverage groups of a unit, and the bins of its vectors: operands by format, sums by stage."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from halfulp.golden.codec import unpack
from halfulp.golden.raw import Raw, multiply
from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.specs.dot import SEQUENTIAL
from halfulp.hdl.specs.formula import Formula, Role, Sum, term
from halfulp.sim.classes import NONE, Classes, Places, Regimes
from halfulp.sim.fields import Codes, Grid
from halfulp.sim.ports import MODE, Columns, Ports
from halfulp.sim.reference import row_of

from . import functions
from .bins import Axis, Group
from .stages import Stage
from .sums import Sums, Tensors, number, result_of

if TYPE_CHECKING:
    from halfulp.units import Unit

Event = tuple[Stage, list[Raw], Tensor | None, Codes]
"""Stage of a sum, its terms, the random word of its rounding, and the codes of its results."""


@dataclass(frozen=True)
class Alone:
    """Group whose axes have one port each, so that they are independent.

    Parameters
    ----------
    over : tuple of tuple of str
        Sets of ports, with one port per axis.
    places : tuple of callable
        Function of each axis from codes to label indices.
    """

    group: Group
    over: tuple[tuple[str, ...], ...]
    places: tuple[Callable[[Codes], Places], ...]

    def bins(self, inputs: Columns, outputs: Columns) -> Iterator[Places]:
        """Yield the bin indices of vectors, for each set of ports."""
        for ports in self.over:
            yield self.group.bins([place(inputs[port]) for place, port in zip(self.places, ports, strict=True)])


@dataclass(frozen=True)
class Joint:
    """Group whose bins depend on several ports together.

    Parameters
    ----------
    over : tuple of tuple of str
        Sets of ports.
    places : callable
        Function from the columns of a set and the outputs to label indices on each axis.
    """

    group: Group
    over: tuple[tuple[str, ...], ...]
    places: Callable[[Sequence[Codes], Columns], Sequence[Places]]

    def bins(self, inputs: Columns, outputs: Columns) -> Iterator[Places]:
        """Yield the bin indices of vectors, for each set of ports."""
        for ports in self.over:
            yield self.group.bins(self.places([inputs[port] for port in ports], outputs))


class Model:
    """Coverage groups of a unit.

    Parameters
    ----------
    unit : Unit
        Instance of a class in the catalogue, or of a class derived from one.

    Attributes
    ----------
    ports : list of Alone or Joint
        Groups of bins by ports.
    stages : list of Stage
        Rounded sums of the unit, for each mode if a port chooses the rounding.
    """

    def __init__(self, unit: "Unit") -> None:
        self.unit = unit
        self.inputs, sums = Ports.inputs_of(unit), Sums.of(unit, unit.spec)
        self.formats, self.widths = sums.formats, sums.widths
        # Units outside of the catalogue have no reference results.
        row_of(unit)
        self.ports = [*self._operands(), *self._products(), *self._controls(), *self._functions()]
        rounding = self.unit.spec.rounding
        modes = list(dict.fromkeys(rounding.choices)) or [rounding]
        self._stages_by_mode = {mode: self._stages(mode, f"{mode}" * rounding.is_port) for mode in modes}
        self.stages = [stage for stages in self._stages_by_mode.values() for stage in stages]

    @property
    def groups(self) -> list[Group]:
        """All groups, in the order of the report."""
        return [part.group for part in self.ports] + [group for stage in self.stages for group in stage.groups]

    def bins(self, inputs: Columns, outputs: Columns, *, chained: bool) -> Iterator[tuple[str, Places]]:
        """Yield the name of each group with the bin indices of vectors.

        Parameters
        ----------
        inputs, outputs : dict of str to array
            Codes by port, including random words of the unit's own source.
        chained : bool
            The vectors are consecutive steps from reset.
        """
        if self.inputs.picks:
            inputs = {**inputs, **self.inputs.select(inputs)}
        whole, states = inputs, self.inputs.having(Role.STATE)
        if chained:
            inputs, outputs = self._unchained(inputs, outputs)
        for part in self.ports:
            # State controls are also counted in steps whose state is unknown.
            controls = any(port in states for ports in part.over for port in ports)
            yield from ((part.group.name, places) for places in part.bins(whole if controls else inputs, outputs))
        for stage, raws, word, result in self._events(inputs, outputs):
            groups = zip(stage.groups, stage.bins(raws, word, result), strict=True)
            yield from ((group.name, places) for group, places in groups)

    def _unchained(self, inputs: Columns, outputs: Columns) -> tuple[dict[str, Codes], dict[str, Codes]]:
        """Convert steps to independent vectors; for a quire, whose state is no code, only the first step of each
        sum."""
        load, begins = inputs["load"] == 1, (inputs["load"] | inputs["clear"]) == 1
        before = np.concatenate([np.zeros(1, dtype=np.uint64), outputs["o"][:-1]])
        begins[0] = True
        before[(inputs["clear"] == 1) & ~load] = 0
        start = np.where(load, inputs["c"], before)
        known = begins if self.unit.spec.quire is not None else np.ones_like(begins)
        given = {**inputs, "c": start}
        vectors, results = ({name: column[known] for name, column in side.items()} for side in (given, outputs))
        return vectors, results

    # Groups of ports -------------------------------------------------------------------------------------------

    def _operands(self) -> Iterator[Alone | Joint]:
        for port, fmt in self.formats.items():
            classes = Classes(fmt)
            yield Alone(Group(port, (Axis(port, classes.signed),)), ((port,),), (classes.signed_places,))
            if fmt.floor_exponent is not None and fmt.precision > 1:
                zeros = Axis(port, tuple(f"subnormal, {count} down" for count in range(1, fmt.precision)))
                group = Group(f"normalisation of {port}", (zeros,))
                yield Alone(group, ((port,),), (partial(_subnormal, Grid.of(fmt)),))
            if fmt.regimes:
                regimes = Regimes(fmt)
                yield Alone(Group(f"regime of {port}", (Axis(port, regimes.signed),)), ((port,),), (regimes.places,))
        for name, over in self._pairs().items():
            kinds = [Classes(self.formats[port]) for port in over[0]]
            axes = tuple(Axis(port, kind.signed) for kind, port in zip(kinds, over[0], strict=True))
            yield Alone(Group(name, axes), over, tuple(kind.signed_places for kind in kinds))
        if len(self.formats) == 3:
            kinds = [Classes(fmt) for fmt in self.formats.values()]
            axes = tuple(Axis(port, kind.kinds) for kind, port in zip(kinds, self.formats, strict=True))
            group = Group(" x ".join(self.formats), axes)
            yield Alone(group, (tuple(self.formats),), tuple(kind.places for kind in kinds))

    def _pairs(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Return the combined pairs of operands: all pairs of up to three operands, else the factors of products."""
        if len(self.formats) <= 3:
            return {
                f"{first} x {second}": ((first, second),) for first, second in itertools.combinations(self.formats, 2)
            }
        factors = self._factors
        return {"a x b": factors} if factors else {}

    @cached_property
    def _factors(self) -> tuple[tuple[str, ...], ...]:
        """Pairs of operands that are multiplied, except in steps of blocks and of parts."""
        sums = self.unit.spec.formula.sums
        terms = [term for step in sums for term in step.terms if step.o is not None or not term.scales]
        factors = [term.names[:2] for term in terms if len(term.factors) == 2]
        return tuple(pair for pair in factors if all(name in self.formats for name in pair))

    def _products(self) -> Iterator[Joint]:
        formats = [self.formats[port] for factors in self._factors[:1] for port in factors]
        if formats and all(fmt.spacing != "uniform" for fmt in formats):
            axis = Axis("product of significands", ("below two", "two or more"))
            yield Joint(Group("carry of a * b", (axis,)), self._factors, partial(_carry, formats))

    def _controls(self) -> Iterator[Alone]:
        if "subtract" in self.widths:
            axis = Axis("subtract", ("add", "subtract"))
            yield Alone(Group("subtract", (axis,)), (("subtract",),), (_flag,))
        if choices := self.unit.spec.rounding.choices:
            axis = Axis(MODE, tuple(f"{code} {mode}" for code, mode in enumerate(choices)))
            yield Alone(Group(MODE, (axis,)), ((MODE,),), (_flag,))
        if "step" in self.widths:
            last = len(self.unit.spec.pairs) - 1
            axis = Axis("step", tuple(map(str, range(last + 1))))
            yield Alone(Group("step", (axis,)), (("step",),), (partial(_step, last),))
        if picks := self.inputs.picks:
            axis = Axis("index", tuple(map(str, range(1 << self.widths[picks[0].index]))))
            yield Alone(Group("index", (axis,)), tuple((pick.index,) for pick in picks), (_flag,))
        if self.unit.stateful:
            axes = Axis("load", ("no load", "load")), Axis("clear", ("no clear", "clear"))
            yield Alone(Group("load x clear", axes), (("load", "clear"),), (_flag, _flag))

    def _functions(self) -> Iterator[Joint]:
        for group, ports, places in functions.cases_of(self.unit.spec):
            yield Joint(group, (ports,), places)

    # Stages ---------------------------------------------------------------------------------------------------

    def _stages(self, rounding: Rounding, mode: str) -> list[Stage]:
        """Return the stages of the unit with one rounding; their names begin with the mode that a port chooses."""
        stages = self._stages_of(replace(self.unit.spec.without_source, rounding=rounding))
        return [replace(stage, name=": ".join(filter(None, (mode, stage.name)))) for stage in stages]

    def _stages_of(self, spec: Any) -> list[Stage]:
        """Return the rounded sums of a formula, with one stage for all lanes, and for all but the first sequential sum.

        Factors that depend on the step, products with scales that give several results, and sums of rounded sums of
        several terms have no stages.
        """
        sums, steps = Sums.of(self.unit, spec), _steps_of(spec)
        if self._sequential:
            first, *_ = steps
            product, *start = first.terms
            running = replace(first, terms=(product, term("total")), word=None)
            stages = [sums.stage("start", replace(first, word=None), {})] if start else []
            return [*stages, sums.stage("step", running, {"total": number("total", spec.o)})]
        if self._lanes:
            return [] if steps[0].terms[0].scales else [sums.stage("", steps[0], {})]
        earlier = [step for step in steps[:-1] if step.o is not None and len(step.terms) > 1]
        return [] if earlier or not sums.has(Formula(steps)) else sums.stages(Formula(steps))

    @cached_property
    def _sequential(self) -> bool:
        """True if a dot product rounds after each product."""
        return getattr(self.unit.spec, "order", None) == SEQUENTIAL

    @cached_property
    def _lanes(self) -> bool:
        """True if the formula has several results."""
        return len(Formula(_steps_of(self.unit.spec)).results) > 1

    def _events(self, inputs: Columns, outputs: Columns) -> Iterator[Event]:
        if not self.stages:
            return
        for mode, stages in self._stages_by_mode.items():
            if MODE not in inputs:
                yield from self._events_of(stages, inputs, outputs)
                continue
            codes = [code for code, choice in enumerate(self.unit.spec.rounding.choices) if choice == mode]
            here = np.isin(inputs[MODE], np.array(codes, dtype=np.uint64))
            if here.any():
                sides = ({name: column[here] for name, column in side.items()} for side in (inputs, outputs))
                yield from self._events_of(stages, *sides)

    def _events_of(self, stages: Sequence[Stage], inputs: Columns, outputs: Columns) -> Iterator[Event]:
        codes = {name: torch.from_numpy(column.view(np.int64)) for name, column in inputs.items()}
        if self._sequential:
            yield from self._running(stages, codes)
            return
        if self._lanes:
            for step in _steps_of(self.unit.spec):
                terms = Sums.of(self.unit, self.unit.spec).terms(step, {})
                yield stages[0], [term.make(codes) for term in terms], codes.get(step.word or ""), outputs[step.name]
            return
        for stage in stages:
            word = None if stage.word is None else codes[stage.word]
            raws = [term.make(codes) for term in stage.terms]
            last = stage is stages[-1]
            yield stage, raws, word, next(iter(outputs.values())) if last else result_of(stage, raws, word)

    def _running(self, stages: Sequence[Stage], codes: Tensors) -> Iterator[Event]:
        """Yield every rounding of a sequential dot product."""
        total, sums = torch.zeros_like(codes["a0"]), Sums.of(self.unit, self.unit.spec)
        for index, step in enumerate(_steps_of(self.unit.spec)):
            stage = stages[-1 if index else 0]
            (product,) = sums.terms(replace(step, terms=step.terms[:1]), {})
            raws = [product.make(codes), stage.terms[1].make({**codes, "total": total})]
            result = result_of(stage, raws, word := codes.get(f"random{index}"))
            yield stage, raws, word, result
            total = torch.from_numpy(result.view(np.int64))


def _steps_of(spec: Any) -> tuple[Sum, ...]:
    """Return the sums of a formula; floors with increments are rounded sums as well."""
    return (spec if getattr(spec, "increment", True) else replace(spec, increment=True)).formula.sums


def _subnormal(grid: Grid, codes: Codes) -> Places:
    """Return the number of leading zeros of subnormal significands, minus one; NONE for other numbers."""
    parts = grid.parts(codes)
    down = grid.emin - parts.exponent
    place: Places = np.where((down > 0) & ~parts.zero, down - 1, NONE)
    return place


def _carry(formats: Sequence[Format], columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return whether products of significands are below two (0) or not (1)."""
    x, y = (unpack(torch.from_numpy(codes.view(np.int64)), fmt) for codes, fmt in zip(columns, formats, strict=True))
    product = multiply(x, y)
    number = ~(product.zero | product.nan | product.inf)
    place: Places = torch.where(number, product.exponent - x.exponent - y.exponent, NONE).numpy()
    return [place]


def _flag(codes: Codes) -> Places:
    return codes.astype(np.int64)


def _step(last: int, codes: Codes) -> Places:
    """Return the step of a product; larger numbers are the last one."""
    return np.minimum(codes.astype(np.int64), last)
