"""Coverage groups of a unit, and the bins of its vectors: operands by format, sums by stage."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.golden.activation import value_of
from halfulp.golden.blocks import step_term
from halfulp.golden.codec import round_and_pack, unpack
from halfulp.golden.raw import Raw, multiply, scaled, scaled_product
from halfulp.golden.register import cancelled_sign
from halfulp.golden.sparsemac import sum_of
from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import BlockDotSpec, DotSpec, ValueRange, formula
from halfulp.hdl.specs.block import factors_of
from halfulp.hdl.specs.classify import CLASSES
from halfulp.hdl.specs.dot import SEQUENTIAL
from halfulp.hdl.specs.formula import Call, Factor, Pick, Role, Sum
from halfulp.sim.classes import NONE, Classes, Places, Regimes
from halfulp.sim.fields import Codes, Grid
from halfulp.sim.ports import MODE, Columns, Ports
from halfulp.sim.reference import row_of

from . import functions
from .bins import Axis, Group
from .stages import Stage, Term

Tensors = Mapping[str, Tensor]
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

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        self.inputs = Ports.inputs_of(unit)
        self.formats = self.inputs.operands | self.inputs.scales
        self.widths = {port.name: port.width for port in self.inputs} | unit.words
        self.widths |= {name: fmt.width for name, fmt in self.formats.items()}
        self.kind = row_of(unit).name
        self.ports = [*self._operands(), *self._products(), *self._controls()]
        self.ports += [*self._classes(), *self._orders(), *self._functions()]
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
            yield from ((part.group.name, found) for found in part.bins(whole if controls else inputs, outputs))
        for stage, raws, word, result in self._events(inputs, outputs):
            groups = zip(stage.groups, stage.bins(raws, word, result), strict=True)
            yield from ((group.name, found) for group, found in groups)

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
            return {f"{one} x {other}": ((one, other),) for one, other in itertools.combinations(self.formats, 2)}
        factors = self._factors
        return {"a x b": factors} if factors else {}

    @cached_property
    def _factors(self) -> tuple[tuple[str, ...], ...]:
        """Pairs of operands that are multiplied, except in steps of blocks and of parts."""
        sums = self.unit.spec.formula.sums
        terms = [term for step in sums for term in step.terms if step.o is not None or not term.scales]
        factors = [tuple(map(_name, term.factors)) for term in terms if len(term.factors) == 2]
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

    def _classes(self) -> Iterator[Joint]:
        if self.kind != "classify":
            return
        axis = Axis("class", tuple(CLASSES[place] for place in self.unit.spec.classes))
        yield Joint(Group("class", (axis,)), (("a",),), partial(_class, self.unit.spec.classes))

    def _orders(self) -> Iterator[Joint]:
        if self.kind != "compare":
            return
        relations = Axis("order", ("less", "equal", "greater", "unordered"))
        yield Joint(Group("order", (relations,)), (("a", "b"),), _relation)
        for port in ("minimum", "maximum"):
            classes = Classes(self.unit.parameters["o"])
            yield Joint(Group(port, (Axis(port, classes.signed),)), (("a", "b"),), partial(_output, classes, port))

    def _functions(self) -> Iterator[Joint]:
        for group, ports, places in functions.cases_of(self.unit.spec):
            yield Joint(group, (ports,), places)

    # Stages ---------------------------------------------------------------------------------------------------

    def _product(self, *ports: str) -> Term:
        """Return the product of operands, or one operand."""
        formats = {port: self.formats[port] for port in ports}

        def make(codes: Tensors) -> Raw:
            return functools.reduce(multiply, (unpack(codes[port], fmt) for port, fmt in formats.items()))

        fixed = all(fmt.spacing == "uniform" for fmt in formats.values())
        span = functools.reduce(operator.mul, map(ValueRange.of, formats.values()))
        return Term({port: fmt.width for port, fmt in formats.items()}, make, span, fixed)

    def _exact(self, step: Sum, spec: Any) -> Term:
        """Return the term of a sum that is not rounded: of the products of elements and scales, or of selected ones."""
        factors = [list(map(_name, column)) for column in zip(*(term.factors for term in step.terms), strict=True)]
        scales, names = step.terms[0].scales, [port for ports in factors for port in ports]
        # A sum has no exception flags before its rounding.
        of = partial(step_term if scales else sum_of, replace(spec, flags=False))

        def make(codes: Tensors) -> Raw:
            return of(*(stacked(codes, ports) for ports in factors), *(codes[port] for port in scales))

        fixed = not scales and all(fmt.spacing == "uniform" for fmt in spec.operands.values())
        return Term({port: self.widths[port] for port in (*names, *scales)}, make, spec.terms, fixed)

    def _scaled(self, ports: tuple[str, ...], codes: Tensors) -> Raw:
        """Return a term of an aligned sum: an operand or a product of two."""
        formats = [self.formats[port] for port in ports]
        operands = [scaled(unpack(codes[port], fmt), fmt) for port, fmt in zip(ports, formats, strict=True)]
        return functools.reduce(scaled_product, operands)

    def _negated(self, term: Term, control: str) -> Term:
        """Negate a term where a control is 1."""

        def make(codes: Tensors) -> Raw:
            raw = term.make(codes)
            return replace(raw, sign=raw.sign ^ (codes[control] == 1))

        return replace(term, ports={**term.ports, control: 1}, make=make, span=term.span | -term.span)

    def _rounded(self, stage: Stage) -> Term:
        """Return the result of a stage of one term."""
        (term,), o = stage.terms, stage.o
        word = {} if stage.word is None else {stage.word: self.widths[stage.word]}

        def make(codes: Tensors) -> Raw:
            random = codes[stage.word] if stage.word is not None else None
            return unpack(round_and_pack(term.make(codes), o, stage.rounding, stage.saturate, random), o)

        return Term({**term.ports, **word}, make, ValueRange.of(o), o.spacing == "uniform", tuple(word))

    def _stages(self, rounding: Rounding, mode: str) -> list[Stage]:
        """Return the stages of the unit with one rounding; their names begin with the mode that a port chooses."""
        stages = self._stages_of(replace(self.unit.spec.without_source, rounding=rounding))
        return [replace(stage, name=": ".join(filter(None, (mode, stage.name)))) for stage in stages]

    def _stages_of(self, spec: Any) -> list[Stage]:
        """Return the rounded sums of a formula; all but the first of a sequential sum are one stage."""
        sums = spec.formula.sums
        rounded = [step for step in sums if step.o is not None]
        stage = partial(Stage, saturate=spec.saturate, flags=spec.flags)
        if self.kind == "split":
            return [stage("first part", (self._product("a"),), spec.o.part, spec.o.leading(spec.rounding))]
        if self.kind == "sru":
            return [stage("", (self._product("a0"),), spec.o, spec.rounding)]
        if self.kind in ("partmac", "blockdequantize") or (self.kind == "join" and len(sums) > 1):
            return []
        if getattr(spec, "order", None) == SEQUENTIAL:
            product, *start = self._terms(sums[0], {}, spec)
            first = [stage("start", (product, *start), spec.o, spec.rounding)] if start else []
            return [*first, stage("step", (product, _number("total", spec.o)), spec.o, spec.rounding)]
        known, found = dict[str, Term](), list[Stage]()
        for step in sums:
            if step.o is None:
                known[step.name] = self._exact(step, spec)
            else:
                last, terms = step is rounded[-1], self._terms(step, known, spec)
                name = ("sum" if found else "") if last else step.name
                more = self._sum_of(step, spec) if last else {}
                found.append(stage(name, terms, step.o, step.rounding, word=step.word, **more))
                known |= {} if last else {step.name: self._rounded(found[-1])}
        return found

    def _terms(self, step: Sum, known: Mapping[str, Term], spec: Any) -> tuple[Term, ...]:
        """Return the terms of a sum, given those of earlier sums."""

        def of(term: formula.Term) -> Term:
            if isinstance(call := term.factors[0], Call):
                return self._function() if call.function == "pwl" else functions.term_of(spec, self.widths)
            names = tuple(map(_name, (*term.factors, *term.scales)))
            found = known[names[0]] if names[0] in known else self._product(*names)
            if step.alignment is not None:
                found = replace(found, make=partial(self._scaled, names))
            return found if term.negated_by is None else self._negated(found, term.negated_by)

        return tuple(map(of, step.terms))

    def _sum_of(self, step: Sum, spec: Any) -> dict[str, Any]:
        """Return the register and the bounds of the sum of a result."""
        if step.alignment is not None:
            return {"quire": spec.aligned_sums, "alignment": step.alignment, "signs": _positive}
        found: dict[str, Any] = {"quire": getattr(spec, "quire", None)}
        if isinstance(spec, DotSpec | BlockDotSpec):
            found["signs"] = partial(_sign_of_sum, step.rounding, step.from_zero)
        if isinstance(spec, BlockDotSpec) and step.from_zero:
            found["common"] = factors_of(spec.a, spec.b)
        if "signs" in found or any(one.o is None for one in spec.formula.sums):
            found["sums"] = spec.sums
        return found

    def _function(self) -> Term:
        table, rounding = self.unit.parameters["table"], self.unit.parameters["rounding"]
        # The bins need single discarded bits, which a rounding mode without random bits does not provide; ``rn`` does.
        seen = rounding if rounding.bits else RN
        return Term(
            {"a": table.fmt.width}, lambda codes: value_of(codes["a"], table, seen), ValueRange.of(table.out), False
        )

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
        if self.kind == "sru":
            for lane in range(self.unit.spec.lanes):
                own = {"a0": codes[f"a{lane}"]}
                stage = stages[0]
                yield stage, [stage.terms[0].make(own)], codes[f"random{lane}"], outputs[f"o{lane}"]
        elif getattr(self.unit.spec, "order", None) == SEQUENTIAL:
            yield from self._steps(stages, codes)
        else:
            for stage in stages:
                last = stage is stages[-1]
                word = None if stage.word is None else codes[stage.word]
                result = next(iter(outputs.values())) if last else result_of(stage, [stage.terms[0].make(codes)], word)
                yield stage, [term.make(codes) for term in stage.terms], word, result

    def _steps(self, stages: Sequence[Stage], codes: Tensors) -> Iterator[Event]:
        """Yield every rounding of a sequential dot product."""
        *_, step = stages
        total = torch.zeros_like(codes["a0"])
        for index, (one, other) in enumerate(self._factors):
            stage = stages[0] if index == 0 else step
            raws = [self._product(one, other).make(codes)]
            raws.append(stage.terms[1].make({**codes, "total": total}))
            result = result_of(stage, raws, word := codes.get(f"random{index}"))
            yield stage, raws, word, result
            total = torch.from_numpy(result.view(np.int64))


def result_of(stage: Stage, raws: Sequence[Raw], word: Tensor | None) -> Codes:
    """Return the result codes of a stage."""
    found = round_and_pack(stage.total(raws), stage.o, stage.rounding, stage.saturate, word)
    codes: Codes = found.numpy().view(np.uint64)
    return codes


def stacked(codes: Tensors, ports: Sequence[str]) -> Tensor:
    """Return the codes of the ports of a vector along a new last dimension."""
    return torch.stack(torch.broadcast_tensors(*(codes[port] for port in ports)), -1)


def _name(factor: Factor) -> str:
    """Return the operand or sum that is a factor."""
    return factor.operand if isinstance(factor, Pick) else str(factor)


def _number(port: str, fmt: Format) -> Term:
    """Create the term of one port."""
    fixed = fmt.spacing == "uniform"
    return Term({port: fmt.width}, lambda codes: unpack(codes[port], fmt), ValueRange.of(fmt), fixed)


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


def _class(classes: Sequence[int], columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return the place of the class of each result, in the list of those of a format."""
    places: Places = np.full(len(outputs["o"]), NONE)
    for place, bit in enumerate(classes):
        places[outputs["o"] == np.uint64(1 << bit)] = place
    return [places]


def _flag(codes: Codes) -> Places:
    return codes.astype(np.int64)


def _step(last: int, codes: Codes) -> Places:
    """Return the step of a product; larger numbers are the last one."""
    return np.minimum(codes.astype(np.int64), last)


def _relation(columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    less, equal, unordered = (outputs[name] == 1 for name in ("less", "equal", "unordered"))
    return [np.select([unordered, less, equal], [3, 0, 1], 2).astype(np.int64)]


def _output(classes: Classes, port: str, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    return [classes.signed_places(outputs[port])]


def _positive(signs: Tensor) -> Tensor:
    """Return the sign of a zero sum of aligned terms, which is +."""
    return torch.zeros_like(signs[..., 0])


def _sign_of_sum(rounding: Any, from_zero: bool, signs: Tensor) -> Tensor:
    """Return the sign of a zero sum; without a start value the sum starts from +0."""
    if from_zero:
        signs = torch.cat([signs, torch.zeros_like(signs[..., :1])], -1)
    return cancelled_sign(signs, rounding)
