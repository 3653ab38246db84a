"""Model of a unit in C++ that needs no other part of the library: its formula, on the headers of the kernels."""

import functools
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.source import Stream
from halfulp.hdl.specs import RunningSumSpec, UnitSpec, ValueRange
from halfulp.hdl.specs.formula import Factor, Pick, Sum, Term
from halfulp.hdl.specs.ranges import window_of

from .plan import WINDOW
from .text import definitions, fits, format_text, saturation_text

HEADERS = ("number.h", "takum.h", "codebook.h", "scale.h", "register.h", "model.h")
"""Headers of a model, each after those that it includes."""

_WIDEST = 64
"""Widest port of a model, and widest significand of a factor, in bits."""


@dataclass(frozen=True)
class Model:
    """C++ function with the results of a unit.

    Its arguments are the inputs, then pointers to the state, then pointers to the results.

    Parameters
    ----------
    name : str
        Name of the function.
    spec : UnitSpec

    Raises
    ------
    ValueError
        If the kernels do not compute the unit's results from its formula.
    """

    name: str
    spec: UnitSpec

    def __post_init__(self) -> None:
        if reason := next(self._refusals(), None):
            raise ValueError(f"{self.spec.text} has no C++ model: {reason}")

    @cached_property
    def inputs(self) -> list[str]:
        """Inputs of the unit by name; an internal source replaces random words."""
        return [port.name for port in self.spec.ports if port.name not in self.spec.streams]

    @property
    def outputs(self) -> list[str]:
        """Results by name."""
        return list(self.spec.formula.results)

    @cached_property
    def state(self) -> dict[str, int]:
        """Values after reset by name: of the sum and of the internal random sources."""
        held = {"state_sum": 0} if self._accumulates else {}
        return held | {name: stream.seed for name, stream in self._registers.items()}

    @property
    def formats(self) -> list[Format]:
        """Formats of operands, sums and results."""
        sums = (step.o for step in self.spec.formula.sums)
        return list(dict.fromkeys(fmt for fmt in (*self._shapes.values(), *sums) if fmt is not None))

    def text(self) -> str:
        """Return the definition of the function, and of one that resets the state."""
        outputs = [f"unsigned long long* {name}" for name in self.outputs]
        state = [f"unsigned long long* {name}" for name in self.state]
        arguments = ", ".join([*(f"unsigned long long {name}" for name in self.inputs), *state, *outputs])
        lines = [f"// {self.spec.text}", f"void {self.name}({arguments}) {{", *self._body(), "}", ""]
        if state:
            resets = (f"*{name} = {value}ull;" for name, value in self.state.items())
            lines += [f"void {self.name}_reset({', '.join(state)}) {{ {' '.join(resets)} }}", ""]
        return "\n".join(lines)

    @property
    def _accumulates(self) -> bool:
        return isinstance(self.spec, RunningSumSpec)

    @cached_property
    def _shapes(self) -> dict[str, Format | None]:
        return {port.name: port.fmt for port in self.spec.ports}

    @cached_property
    def _registers(self) -> dict[str, Stream]:
        """Streams of internal sources by the name of their state; rounders that share a source have one state."""
        known = {_key(stream): stream for stream in self.spec.streams.values()}
        return {f"state_source{place}": stream for place, stream in enumerate(known.values())}

    def _refusals(self) -> Iterator[str]:
        """Yield reasons why the formula has no model."""
        spec = self.spec
        if spec.flags:
            yield "it gives no exception flags; omit flags"
        for call in spec.formula.calls:
            yield f"it has sums of products only, not the function {call.function}"
        if isinstance(spec, RunningSumSpec) and spec.interleave > 1:
            yield f"it has one sum, not interleave={spec.interleave}"
        if isinstance(spec, RunningSumSpec) and spec.quire is not None:
            yield "its accumulator has codes of a format, not an exact sum"
        for port in spec.ports:
            if port.fmt is not None and not fits(port.fmt):
                yield f"it has no format {port.fmt}"
            if port.width > _WIDEST:
                yield f"its arguments have at most {_WIDEST} bits, and {port.name} has {port.width}"
        for step in spec.formula.sums:
            yield from self._refusals_of(step)

    def _refusals_of(self, step: Sum) -> Iterator[str]:
        if step.alignment:
            yield "it has exact and rounded sums, not aligned ones"
        elif step.o is not None and not fits(step.o):
            yield f"it has no format {step.o}"
        elif step.o is not None:
            terms = self._terms(step)
            if any(isinstance(other, Sum) for term in terms for other in map(self._source_of, term.factors)):
                yield "it multiplies codes, not an exact sum"
                return
            spans = [self._span(term) for term in terms]
            most = self._total(spans).magnitude
            bits = [*(window_of(step.o, one, most) for one in _choices(step.rounding)), *(s.precision for s in spans)]
            before = [_product(self._spans(term)[:-1]) for term in terms if len(term.names) > 2]
            if max(bits) > WINDOW or any(span.precision > _WIDEST for span in before):
                yield f"its numbers have {WINDOW} bits, and those of {step.o} need more"

    # Formula ---------------------------------------------------------------------------------------------------------

    def _source_of(self, factor: Factor) -> Sum | None:
        """Return the exact sum of that name, or None."""
        return next((step for step in self.spec.formula.sums if step.name == factor and step.o is None), None)

    def _terms(self, step: Sum) -> list[Term]:
        """Return the terms of a sum, with those of exact sums that it adds."""
        terms: list[Term] = []
        for term in step.terms:
            inner = self._source_of(term.factors[0]) if len(term.names) == 1 else None
            if inner is None or term.negated_by:
                terms.append(term)
            else:
                terms += [-each if term.negative else each for each in self._terms(inner)]
        return terms

    def _format_of(self, factor: Factor | str) -> Format:
        if isinstance(factor, Pick):
            return self._format_of(factor.choices[0])
        sums = {step.name: step.o for step in self.spec.formula.sums}
        fmt = sums[factor] if factor in sums else self._shapes[str(factor)]
        assert fmt is not None, factor
        return fmt

    def _spans(self, term: Term) -> list[ValueRange]:
        """Return the ranges of the factors of a term."""
        return [ValueRange.of(self._format_of(factor)) for factor in (*term.factors, *term.scales)]

    def _span(self, term: Term) -> ValueRange:
        span = _product(self._spans(term))
        return span if term.negated_by is None and not term.negative else span | -span

    @staticmethod
    def _total(spans: list[ValueRange]) -> ValueRange:
        return functools.reduce(operator.add, spans)

    # Text ------------------------------------------------------------------------------------------------------------

    def _body(self) -> Iterator[str]:
        yield "    using namespace halfulp;"
        for name, stream in self.spec.streams.items():
            yield from self._word(name, stream)
        if self.spec.rounding.is_port:
            modes = _rounding(self.spec.rounding)
            yield f"    static const Rounding roundings[] = {{{modes}}};"
            yield f"    const Rounding rounding = roundings[mode & {len(self.spec.rounding.choices) - 1}];"
        if self._accumulates:
            yield "    const u64 start = load ? c : clear ? 0 : *state_sum;"
        for step in self.spec.formula.sums:
            if step.o is not None:
                yield self._rounded(step)
        if self._accumulates:
            (held,) = self.outputs
            yield f"    *state_sum = sum_{held};"
        for name in self.outputs:
            yield f"    *{name} = sum_{name};"
        for state, stream in self._registers.items():
            yield f"    *{state} = {_lfsr(stream)}.after(*{state});"

    def _word(self, name: str, stream: Stream) -> Iterator[str]:
        """Yield the random word of a port that an internal source replaces."""
        state = next(state for state, own in self._registers.items() if _key(own) == _key(stream))
        below, places = stream.bits_of(self.spec.words[name])
        bits = (f"(shown_{name} >> {place} & 1) << {up}" for up, place in enumerate(places, below))
        ones = ((1 << len(places)) - 1) << below if stream.complemented else 0
        yield f"    const u64 shown_{name} = {_lfsr(stream)}.shown(*{state});"
        yield f"    const u64 {name} = ({' | '.join(bits)}) ^ {ones}ull;"

    def _number(self, factor: Factor | str) -> str:
        """Return a factor, unpacked."""
        if isinstance(factor, Pick):
            *others, last = factor.choices
            code = "".join(f"{factor.index} == {place} ? {name} : " for place, name in enumerate(others)) + last
        elif factor in {step.name for step in self.spec.formula.sums}:
            code = f"sum_{factor}"
        else:
            code = "start" if factor == "c" and self._accumulates else str(factor)
        return f"{format_text(self._format_of(factor))}.unpack({code})"

    def _product(self, term: Term) -> str:
        text = functools.reduce(lambda x, y: f"multiply({x}, {y})", map(self._number, (*term.factors, *term.scales)))
        signs = ["true"] * term.negative + ([] if term.negated_by is None else [f"({term.negated_by} != 0)"])
        return f"negated({text}, {' != '.join(signs)})" if signs else text

    def _rounded(self, step: Sum) -> str:
        """Return the code of a rounded sum."""
        terms = self._terms(step)
        numbers = [*(["Raw{}"] if step.from_zero else []), *map(self._product, terms)]
        rounding, by_port = _rounding(step.rounding), step.rounding.is_port
        mode = "rounding.mode" if by_port else step.rounding.mode.upper()
        if step.register or len(numbers) > 2:
            span = self._total([self._span(term) for term in terms])
            width = floor_log2(span.magnitude) - span.quantum + 3
            signed = "false" if step.register else "true"
            exact = f"total({mode}, {signed}, {width}, {span.quantum}, {{{', '.join(numbers)}}})"
        else:
            exact = f"narrowed({numbers[0]})" if len(numbers) == 1 else f"add({mode}, {', '.join(numbers)})"
        assert step.o is not None
        arguments = ["rounding" if by_port else rounding, saturation_text(self.spec.saturate), step.word or "0"]
        return f"    const u64 sum_{step.name} = {format_text(step.o)}.pack({exact}, {', '.join(arguments)});"


def _key(stream: Stream) -> tuple[object, int]:
    """Return the source and its first state; streams that agree in both have one register."""
    return stream.source, stream.seed


def _product(spans: Sequence[ValueRange]) -> ValueRange:
    return functools.reduce(operator.mul, spans)


def _choices(rounding: Rounding) -> Sequence[Rounding]:
    return rounding.choices if rounding.is_port else [rounding]


def _rounding(rounding: Rounding) -> str:
    """Return the C++ object of a rounding; of a port, the table of its modes."""
    objects = (f"Rounding{{{one.mode.upper()}, {one.bits}, {one.places}}}" for one in _choices(rounding))
    return ", ".join(objects)


def _lfsr(stream: Stream) -> str:
    source = stream.source
    taps = sum(1 << (tap - 1) for tap in source.taps)
    return f"Lfsr{{{source.register}, {taps}ull, {str(source.inverting).lower()}}}"


def source(models: Iterable[Model]) -> str:
    """Return one C++17 file with the functions of models and all that they use."""
    models = list(models)
    folder = Path(__file__).parent
    headers = "\n".join((folder / name).read_text() for name in HEADERS)
    # All headers of the library are in the text, in order.
    library = re.sub(r'^#pragma once\n|^#include ".*\n', "", headers, flags=re.M)
    formats = [fmt for model in models for fmt in model.formats]
    objects = re.sub(r"^#include .*\n", "", definitions(*formats), flags=re.M)
    functions = "\n".join(model.text() for model in models)
    return f'{library}\n{objects}\nextern "C" {{\n\n{functions}\n}}\n'
