"""Sums of a formula on tensors: their terms, exact sums of operands, and the stages that round."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from halfulp.golden.codec import round_and_pack, unpack
from halfulp.golden.raw import Raw, multiply, negate, normalised, scaled, scaled_product
from halfulp.golden.register import cancelled_sign
from halfulp.hdl.formats import Format
from halfulp.hdl.specs import QuireRegister, ValueRange, formula
from halfulp.hdl.specs.formula import Call, Formula, Sum
from halfulp.sim.fields import Codes
from halfulp.sim.ports import MODE, Columns, Ports

from . import functions
from .stages import Stage, Term, in_register

if TYPE_CHECKING:
    from halfulp.units import Unit

Tensors = Mapping[str, Tensor]

ALWAYS = torch.tensor(True)


@dataclass(frozen=True)
class Sums:
    """Sums of formulas of the operands of a description.

    Parameters
    ----------
    spec : UnitSpec
        Description with one rounding mode, without a random source.
    formats : mapping of str to Format
        Formats of the operands.
    widths : mapping of str to int
        Widths of all ports.
    parameters : mapping
        Keyword arguments of the golden function of the unit.
    """

    spec: Any
    formats: Mapping[str, Format]
    widths: Mapping[str, int]
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, unit: "Unit", spec: Any) -> Self:
        """Return the sums of a unit, or of another description with the same operands."""
        inputs = Ports.inputs_of(unit)
        formats = inputs.operands | inputs.scales
        widths = {port.name: port.width for port in inputs} | unit.words
        return cls(spec, formats, widths | {name: fmt.width for name, fmt in formats.items()}, unit.parameters)

    def has(self, steps: Formula) -> bool:
        """Return True if all factors of a formula are operands, functions of these, or earlier sums."""
        known = {*self.formats, *(step.name for step in steps.sums), *map(str, steps.calls)}
        return all(name in known for step in steps.sums for term in step.terms for name in term.names)

    def stages(self, steps: Formula) -> list[Stage]:
        """Return the stages of a formula in order; the last one gives the result."""
        known, stages = dict[str, Term](), list[Stage]()
        exact = any(step.o is None for step in steps.sums)
        for step in steps.sums:
            if step.o is None:
                known[step.name] = self._exact(step, known)
            else:
                name = step.name if step.name not in steps.results else "sum" if stages else ""
                stages.append(self.stage(name, step, known, **self._bounds(step, known, exact)))
                known[step.name] = self._rounded(stages[-1])
        return stages

    def stage(self, name: str, step: Sum, known: Mapping[str, Term], **more: Any) -> Stage:
        """Return the stage that rounds a sum; that of a compound result gives its first part."""
        o, rounding, spec = step.o, step.rounding, self.spec
        assert o is not None
        if o.parts > 1:
            name, rounding, o = "first part", o.leading(rounding), o.part_format
        more |= {"flags": spec.flags, "word": step.word if rounding.bits else None}
        return Stage(name, self.terms(step, known), o, rounding, spec.saturate, **more)

    def terms(self, step: Sum, known: Mapping[str, Term]) -> tuple[Term, ...]:
        """Return the terms of a sum, given those of earlier sums."""
        return tuple(self._term(term, known, aligned=step.alignment is not None) for term in step.terms)

    def _term(
        self, term: formula.Term, known: Mapping[str, Term], *, aligned: bool = False, with_scales: bool = True
    ) -> Term:
        if isinstance(call := term.factors[0], Call):
            return functions.term_of(call, self.spec, self.widths, self.parameters)
        names = term.names[: None if with_scales else len(term.factors)]
        product = functools.reduce(_times, [known.get(name) or number(name, self.formats[name]) for name in names])
        if aligned:
            product = replace(product, make=partial(self._scaled, names))
        if term.negative:
            product = _negated(product)
        return product if term.negated_by is None else _negated_by(product, term.negated_by)

    def _exact(self, step: Sum, known: Mapping[str, Term]) -> Term:
        """Return the term of a sum that is not rounded."""
        terms, signs = self.terms(step, known), partial(sign_of_sum, step.rounding, step.from_zero)
        quire = _register(terms)

        def make(codes: Tensors) -> Raw:
            return normalised(in_register([term.make(codes) for term in terms], quire, signs))

        fixed = all(term.fixed for term in terms)
        return Term(_ports(terms), make, self._range(step, known), fixed, _words(terms))

    def _rounded(self, stage: Stage) -> Term:
        """Return the result of a stage as a term of a later sum."""
        word = {} if stage.word is None else {stage.word: self.widths[stage.word]}

        def make(codes: Tensors) -> Raw:
            random = codes[stage.word] if stage.word is not None else None
            return unpack(rounded(stage, [term.make(codes) for term in stage.terms], random), stage.o)

        fixed, words = stage.o.spacing == "uniform", (*_words(stage.terms), *word)
        return Term({**_ports(stage.terms), **word}, make, ValueRange.of(stage.o), fixed, words)

    def _scaled(self, ports: tuple[str, ...], codes: Tensors) -> Raw:
        """Return a term of an aligned sum: an operand or a product of two."""
        formats = [self.formats[port] for port in ports]
        operands = [scaled(unpack(codes[port], fmt), fmt) for port, fmt in zip(ports, formats, strict=True)]
        return functools.reduce(scaled_product, operands)

    # Ranges ----------------------------------------------------------------------------------------------------

    def _bounds(self, step: Sum, known: Mapping[str, Term], exact: bool) -> dict[str, Any]:
        """Return the register and the bounds of the sum of a result; ``exact`` is set if it has exact sums as terms."""
        if step.alignment is not None:
            return {"quire": step.alignment.quire(len(step.terms)), "alignment": step.alignment, "signs": _positive}
        if step.register is not None:
            return {"quire": step.register} | ({"sums": step.register.sums} if exact else {})
        bounds: dict[str, Any] = {}
        if step.from_zero or len(step.terms) > 2:
            signs = partial(sign_of_sum, step.rounding, step.from_zero)
            bounds |= {"quire": _register(self.terms(step, known)), "signs": signs}
            if (scales := step.terms[0].scales) and all(term.scales == scales for term in step.terms):
                factors = self._term(step.terms[0], known, with_scales=False).span
                bounds["common"] = factors, self._term(formula.Term(scales), known).span
        return bounds | ({"sums": self._range(step, known)} if bounds or exact else {})

    def _range(self, step: Sum, known: Mapping[str, Term]) -> ValueRange:
        """Return the range of a sum; equal terms count together, and so do terms with the same scales."""
        parts = []
        for scales, terms in itertools.groupby(step.terms, lambda term: term.scales):
            spans = [self._term(term, known, with_scales=False).span for term in terms]
            total = functools.reduce(
                operator.add, (span.times(len([*same])) for span, same in itertools.groupby(spans))
            )
            parts.append(self._term(formula.Term(scales), known).span * total if scales else total)
        return functools.reduce(operator.add, parts)


def evaluate(unit: "Unit", spec: Any, change: Callable[[Formula], Formula], codes: Columns) -> Codes:
    """Return the results of a unit with another description and a changed formula.

    Parameters
    ----------
    unit : Unit
        Unit with one result and without a random source.
    spec : UnitSpec
        Description with the same operands.
    change : callable
        Function from the formula of each rounding mode to the one that is computed.
    codes : mapping
        Codes of each input, of one length.
    """
    inputs, choices = Ports.inputs_of(unit), spec.rounding.choices
    codes = {**codes, **inputs.select(codes)} if inputs.picks else codes
    results = np.zeros(max(map(len, codes.values())), dtype=np.uint64)
    for mode in dict.fromkeys(choices or (spec.rounding,)):
        own = replace(spec, rounding=mode)
        here = [choice == mode for choice in choices]
        where = np.array(here)[codes[MODE].astype(np.int64)] if here else np.ones(len(results), dtype=np.bool_)
        values = {name: torch.from_numpy(column[where].view(np.int64)) for name, column in codes.items()}
        *_, last = Sums.of(unit, own).stages(change(own.formula))
        word = None if last.word is None else values[last.word]
        results[where] = result_of(last, [term.make(values) for term in last.terms], word)
    return results


def rounded(stage: Stage, raws: Sequence[Raw], word: Tensor | None) -> Tensor:
    """Return the results of a stage as a tensor of codes."""
    return round_and_pack(stage.total(raws), stage.o, stage.rounding, stage.saturate, word)


def result_of(stage: Stage, raws: Sequence[Raw], word: Tensor | None) -> Codes:
    """Return the result codes of a stage."""
    codes: Codes = rounded(stage, raws, word).numpy().view(np.uint64)
    return codes


def number(port: str, fmt: Format) -> Term:
    """Create the term of one port."""
    fixed = fmt.spacing == "uniform"
    return Term({port: fmt.width}, lambda codes: unpack(codes[port], fmt), ValueRange.of(fmt), fixed)


def _times(first: Term, second: Term) -> Term:
    """Return the product of two terms."""

    def make(codes: Tensors) -> Raw:
        return multiply(first.make(codes), second.make(codes))

    both, fixed = (first, second), first.fixed and second.fixed
    return Term(_ports(both), make, first.span * second.span, fixed, _words(both))


def _negated(term: Term) -> Term:
    """Return the negative of a term."""
    return replace(term, make=lambda codes: negate(term.make(codes), ALWAYS), span=-term.span)


def _negated_by(term: Term, control: str) -> Term:
    """Negate a term where a control is 1."""

    def make(codes: Tensors) -> Raw:
        return negate(term.make(codes), codes[control] == 1)

    return replace(term, ports={**term.ports, control: 1}, make=make, span=term.span | -term.span)


def _ports(terms: Iterable[Term]) -> dict[str, int]:
    return {port: width for term in terms for port, width in term.ports.items()}


def _words(terms: Iterable[Term]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for term in terms for word in term.words))


def _register(terms: Sequence[Term]) -> QuireRegister:
    """Return a register that holds every sum of the terms."""
    return QuireRegister.of(
        functools.reduce(operator.or_, (term.span for term in terms)), None, len(terms).bit_length()
    )


def _positive(signs: Tensor) -> Tensor:
    """Return the sign of a zero sum of aligned terms, which is +."""
    return torch.zeros_like(signs[..., 0])


def sign_of_sum(rounding: Any, from_zero: bool, signs: Tensor) -> Tensor:
    """Return the sign of a zero sum; without a start value the sum starts from +0."""
    if from_zero:
        signs = torch.cat([signs, torch.zeros_like(signs[..., :1])], -1)
    return cancelled_sign(signs, rounding)
