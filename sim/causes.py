"""Causes of wrong results of a unit that is not ours, in words: which rule of arithmetic its results break.

A suspect is a complete unit with one known fault, computed with the golden model. It is a cause if it gives the wrong
results, and the right ones where the unit is right. Results that no suspect gives are described one by one.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import FP64, RO, Fixed, Float, Format, Rounding, Saturation, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.rounding import MODE_TEXT, MODES
from halfulp.hdl.specs import ConvertSpec, UnitSpec
from halfulp.hdl.specs.formula import Formula, Sum, Term
from halfulp.hdl.specs.unit import FLAGS
from halfulp.implementation import Implementation

from .coverage.sums import Sums, evaluate
from .fields import Grid
from .ports import MODE, Codes, Columns, Ports
from .reference import own_words, reference

if TYPE_CHECKING:
    from halfulp.units import Unit

Mask = npt.NDArray[np.bool_]

INTERMEDIATE = ("fp32", "tf32", "fp16", "bf16")
"""Formats to which another unit may round first, before those of unlimited range."""

WIDER = 3
"""Number of bits by which an intermediate result must be longer than a result, to have its ties."""

_OVERFLOWS = {
    "wrap": "it wraps around: it gives the lower bits of overflows",
    "saturate": "it saturates: it gives the nearest number for overflows",
    "narrow": "its range is narrow: it gives the negative of the largest number for lower ones",
}
"""Faults of units whose fixed-point results overflow in another way, by that way."""


@dataclass(frozen=True)
class Suspect:
    """Unit with one fault.

    Attributes
    ----------
    fault : str
        Sentence about it.
    results : callable
        Function from the codes of all inputs to those of its results.
    """

    fault: str
    results: Callable[[Columns], Codes]


@dataclass(frozen=True)
class Cause:
    """Cause of wrong results.

    Attributes
    ----------
    fault : str
        Sentence about it.
    at : array of int
        Indices of the vectors that it explains.
    visible : int, optional
        Number of vectors in which a unit with this fault has wrong results; None if there is no such unit.
    """

    fault: str
    at: npt.NDArray[np.int64]
    visible: int | None = None


def causes(unit: "Unit", codes: Columns, want: Columns, got: Columns) -> list[Cause]:
    """Explain the wrong results of all outputs, those of the most vectors first.

    Parameters
    ----------
    unit : Unit
    codes : mapping
        Codes of each input.
    want, got : mapping
        Codes of each output: of the golden model, and of the unit that is checked.
    """
    outputs = Ports.of(unit.outputs)
    if unit.sources:
        codes = {**codes, **own_words(unit, len(next(iter(codes.values()))))}
        unit = Implementation(unit.spec.without_source).component()
    if unit.spec.flags:
        unit = Implementation(replace(unit.spec, flags=False)).component()
    explanations: list[Cause] = []
    numbers = len(Ports.of(unit.outputs))
    for port in outputs:
        wrong = want[port.name] != got[port.name]
        if not wrong.any():
            continue
        if port.name == "flags":
            own = list(_flags(want[port.name], got[port.name]))
        elif port.fmt is None:
            own = [Cause("the bits are wrong", np.flatnonzero(wrong))]
        else:
            guilty = list(_guilty(unit, codes, want[port.name], got[port.name])) if numbers == 1 else []
            rest = wrong.copy()
            for cause in guilty:
                rest[cause.at] = False
            described = _described(port.fmt, want[port.name], got[port.name], rest)
            own = [*guilty, *described]
        prefix = f"{port.name}: " if len(outputs) > 1 else ""
        explanations += [replace(cause, fault=prefix + cause.fault) for cause in own]
    return sorted(explanations, key=lambda cause: -len(cause.at))


def _guilty(unit: "Unit", codes: Columns, want: Codes, got: Codes) -> Iterator[Cause]:
    """Yield suspects that explain more wrong results than they have wrong results of their own, the best one first."""
    rest = want != got
    right = ~rest
    # Zeros with the wrong sign alone are no evidence of a rounding: an exact difference is -0 in one that rounds down.
    other = ~_wrong_zeros(next(iter(Ports.of(unit.outputs).formats.values())), want, got)
    at = np.flatnonzero(rest & other)
    some = {name: column[at] for name, column in codes.items()}
    known = []
    for suspect in Suspects(unit, codes, want).all():
        # Most suspects explain nothing; only the others run all vectors.
        if (suspect.results(some) == got[at]).any():
            known.append((suspect, suspect.results(codes)))
    while known and rest.any():
        scores = [
            int(((predicted == got) & rest).sum()) - int(((predicted != want) & right).sum())
            if ((predicted == got) & rest & other).any()
            else 0
            for _, predicted in known
        ]
        best = int(np.argmax(scores))
        if scores[best] <= 0:
            return
        suspect, results = known.pop(best)
        explained = (results == got) & rest
        rest &= ~explained
        yield Cause(suspect.fault, np.flatnonzero(explained), int((results != want).sum()))


class Suspects:
    """Units like another one with one fault each.

    Parameters
    ----------
    unit : Unit
        Unit with one result and without a random source of its own.
    codes : mapping
        Codes of each input.
    want : Codes
        Right results.
    """

    def __init__(self, unit: "Unit", codes: Columns, want: Codes) -> None:
        self.unit, self.codes, self.want = unit, codes, want
        self.spec: UnitSpec = unit.spec
        self.o: Format = next(iter(Ports.of(unit.outputs).formats.values()))
        self._exact: dict[int, tuple[Columns, Codes]] = {}

    def all(self) -> Iterator[Suspect]:
        """Yield all suspects, the simplest first."""
        yield from self._flushed()
        yield from self._without_subnormals()
        yield from self._range()
        yield from self._modes()
        yield from self._sooner()
        if self._has_long:
            if isinstance(self.o, Float) and self.o.has_nan:
                yield from self._to_infinity()
            yield from self._ties()
            yield from self._twice()

    # Units of other descriptions ---------------------------------------------------------------------------------

    def _of(self, fault: str, spec: UnitSpec) -> Suspect:
        return Suspect(fault, lambda codes: _results(spec, codes))

    def _modes(self) -> Iterator[Suspect]:
        own = self.spec.rounding
        for mode in MODES:
            if mode != own.mode:
                fault = f"it rounds {MODE_TEXT[mode]}, not {_in_words(own)}"
                yield self._of(fault, replace(self.spec, rounding=Rounding(mode)))
        # Two codes may also be exchanged, or reserved codes have another mode.
        for code, asked in enumerate(own.choices):
            for other in dict.fromkeys(own.choices):
                if other != asked:
                    fault = f"it rounds {_in_words(other)} for code {code} of its port, not {_in_words(asked)}"
                    yield self._of_code(fault, code, own.choices.index(other))

    def _of_code(self, fault: str, code: int, other: int) -> Suspect:
        """Return the unit that takes one code of the mode for another one."""

        def results(codes: Columns) -> Codes:
            mode = np.where(codes[MODE] == code, other, codes[MODE]).astype(np.uint64)
            return _results(self.spec, {**codes, MODE: mode})

        return Suspect(fault, results)

    def _range(self) -> Iterator[Suspect]:
        if isinstance(self.o, Fixed):
            for overflow, fault in _OVERFLOWS.items():
                if overflow == self.o.overflow or (overflow == "narrow" and (not self.o.signed or self.o.width < 2)):
                    continue
                other = replace(self.o, overflow=overflow)
                results: dict[str, Any] = {
                    name: other for name in ("o", "acc") if getattr(self.spec, name, None) == self.o
                }
                yield self._of(fault, replace(self.spec, **results))
            return
        faults = {
            Saturation.OFF: "it gives infinity for overflows, not the largest number",
            Saturation.SAT: "it saturates: it gives the largest number for overflows",
            Saturation.SATFINITE: "it saturates infinities: it gives the largest number for them",
        }
        if self.spec.saturate == Saturation.SATFINITE:
            faults[Saturation.SAT] = "it gives infinity for infinities, not the largest number"
        for saturate, fault in faults.items():
            if saturate != self.spec.saturate:
                try:
                    yield self._of(fault, replace(self.spec, saturate=saturate))
                except ValueError:
                    # Units whose results always saturate, or never overflow, refuse the field.
                    return

    def _sooner(self) -> Iterator[Suspect]:
        """Yield units that round products, or exact sums that are factors, before the last sum."""
        steps = self.spec.formula
        if not Sums.of(self.unit, self.spec).has(steps) or any(step.alignment for step in steps.sums):
            return
        products = any(map(_products_of, steps.sums))
        exact = [step for step in steps.sums if step.o is None]
        if products:
            yield self._changed("it rounds the product before the sum", _with_products)
        for step in exact:
            yield self._changed(f"it rounds the exact sum {step}", partial(_with_sums, (step.name,)))
        if products and exact:
            every = partial(_with_sums, tuple(step.name for step in exact))
            yield self._changed("it rounds after each operation", lambda formula: _with_products(every(formula)))

    def _changed(self, fault: str, change: Callable[[Formula], Formula]) -> Suspect:
        return Suspect(fault, lambda codes: evaluate(self.unit, self.spec, change, codes))

    # Subnormal numbers -------------------------------------------------------------------------------------------

    def _flushed(self) -> Iterator[Suspect]:
        inputs = Ports.inputs_of(self.unit).formats

        def flushed(codes: Columns) -> dict[str, Codes]:
            return {name: _flush(inputs[name], column) if name in inputs else column for name, column in codes.items()}

        def own(codes: Columns) -> Codes:
            return _results(self.spec, codes)

        if any(fmt.has_subnormals for fmt in inputs.values()):
            yield Suspect("it reads subnormal operands as zero", lambda codes: own(flushed(codes)))
        if self.o.has_subnormals:
            yield Suspect("it gives zero for subnormal results", lambda codes: _flush(self.o, own(codes)))
            yield Suspect(
                "it gives +0 for subnormal results", lambda codes: _flush(self.o, own(codes), with_sign=False)
            )
            yield Suspect(
                "it reads subnormal operands as zero, and gives zero for subnormal results",
                lambda codes: _flush(self.o, own(flushed(codes))),
            )

    def _without_subnormals(self) -> Iterator[Suspect]:
        """Yield units whose formats, or only those of sums and results, are the ones with or without ``-ftz``."""
        others: dict[str, Any] = {
            item.name: replace(fmt, subnormals=not fmt.subnormals)
            for item in dataclass_fields(self.spec)
            if isinstance(fmt := getattr(self.spec, item.name), Float) and (fmt.has_subnormals or fmt.flushes)
        }
        results = {name: fmt for name, fmt in others.items() if name in ("o", "acc", "product")}
        specs: list[tuple[str, UnitSpec]] = []
        for changes in (others, results)[: 1 + (0 < len(results) < len(others))]:
            names = ", ".join(f"{name} {fmt}" for name, fmt in changes.items())
            if changes:
                # A unit may refuse results without subnormal numbers.
                with suppress(ValueError):
                    specs.append((names, replace(self.spec, **changes)))
        yield from (self._of(f"it computes with {names}", spec) for names, spec in specs)

    # Roundings of an intermediate result -------------------------------------------------------------------------

    @cached_property
    def _long(self) -> UnitSpec | None:
        """Description with results so long that a second rounding of them is the only one; None if there is none."""
        o, spec = self.o, self.spec
        reach = floor_log2(o.largest) < FP64.emax and floor_log2(o.smallest) > FP64.emin
        if o.window + WIDER > FP64.precision or not reach or "table" in self.unit.parameters:
            return None
        if len(spec.formula.results) != 1 or not Sums.of(self.unit, spec).has(spec.formula):
            return None
        # The number of digits of a function follows from the result format.
        digits: dict[str, Any] = {"o": FP64} if spec.formula.calls else {}
        try:
            return replace(spec, rounding=RO, saturate=Saturation.OFF, **digits)
        except (TypeError, ValueError):
            return None

    @cached_property
    def _has_long(self) -> bool:
        """True if long results are known; those of operations that round twice, and of some differences, are not."""
        if self._long is None:
            return False
        return np.array_equal(self._converted(self._wide(self.codes), self.spec.rounding, self.codes), self.want)

    def _wide(self, codes: Columns) -> Codes:
        """Return the long results for some codes; suspects share those of the same codes."""
        if id(codes) not in self._exact:
            self._exact[id(codes)] = codes, evaluate(self.unit, self._long, _to_long, codes)
        return self._exact[id(codes)][1]

    def _converted(self, wide: Codes, rounding: Rounding, codes: Columns) -> Codes:
        spec = ConvertSpec(a=FP64, o=self.o, rounding=rounding, saturate=self.spec.saturate)
        return _results(spec, {**codes, "a": wide})

    def _to_infinity(self) -> Iterator[Suspect]:
        """Yield units that give infinity for overflows in the rounding modes that give the largest number."""
        grid = Grid.of(FP64)
        last = Fraction(2) ** (floor_log2(self.o.largest) - self.o.precision + 1)
        beyond = np.uint64(grid.code_of(self.o.largest + last))
        given = "infinity" if self.o.has_inf else "NaN"
        for rounding in filter(lambda rounding: any(rounding.overflows_to_largest), map(Rounding, MODES)):

            def results(codes: Columns, rounding: Rounding = rounding) -> Codes:
                exact = self._wide(codes)
                sign, magnitude = grid.unsigned(exact)
                infinite = grid.signed(sign, np.full_like(exact, FP64.encode(math.inf)))
                over = (magnitude >= beyond) & ~grid.parts(exact).nan
                spec = ConvertSpec(a=FP64, o=self.o, rounding=rounding)
                return _results(spec, {**codes, "a": np.where(over, infinite, exact)})

            other = "" if rounding == self.spec.rounding else f", not {_in_words(self.spec.rounding)}"
            yield Suspect(f"it rounds {_in_words(rounding)}{other}, and gives {given} for overflows", results)

    def _ties(self) -> Iterator[Suspect]:
        rounding = self.spec.rounding
        if not rounding.is_nearest:
            return

        def sides(codes: Columns) -> tuple[Codes, Codes, Codes, Mask]:
            """Return right results, those of neighbouring exact results, and whether the exact result is a tie."""
            exact = self._wide(codes)
            parts = Grid.of(FP64).parts(exact)
            # The last bits of an inexact number are not all zero; those of a tie are.
            number = ~(parts.zero | parts.infinite | parts.nan) & (exact % np.uint64(1 << (WIDER - 1)) == 0)
            near = [self._converted(np.where(number, exact + step, exact), rounding, codes) for step in (_LESS, _MORE)]
            return self._converted(exact, rounding, codes), *near, number & (near[0] != near[1])

        def to_odd(codes: Columns) -> Codes:
            right, low, high, tie = sides(codes)
            return np.where(tie, np.where(right == low, high, low), right)

        yield Suspect("it rounds to nearest, ties to odd", to_odd)

    def _twice(self) -> Iterator[Suspect]:
        o, rounding = self.o, self.spec.rounding
        if rounding.bits:
            return
        steps = [(f"first to {name}", parse(name)) for name in INTERMEDIATE]
        steps = [(text, fmt) for text, fmt in steps if fmt.precision > o.precision and fmt.largest >= o.largest]
        # Numbers with a rounded significand but unlimited range; o's own precision rounds subnormal numbers twice.
        for bits in range(max(o.precision, 1), FP64.precision):
            subnormal = o.has_subnormals and bits <= o.precision
            text = f"first to {bits} bits" + ", subnormal results too" * subnormal
            steps.append((text, Float(FP64.exp, bits - 1) if bits > 1 else Float(FP64.exp, 0, specials="fn")))
        for text, fmt in steps:
            first = ConvertSpec(a=FP64, o=fmt, rounding=rounding)
            second = ConvertSpec(a=fmt, o=o, rounding=rounding, saturate=self.spec.saturate)

            def results(codes: Columns, first: UnitSpec = first, second: UnitSpec = second) -> Codes:
                return _results(second, {**codes, "a": _results(first, {**codes, "a": self._wide(codes)})})

            yield Suspect(f"it rounds twice, {text}", results)


def _to_long(formula: Formula) -> Formula:
    """Return the formula with a long result."""
    *earlier, last = formula.sums
    return Formula((*earlier, replace(last, o=FP64, rounding=RO)))


def _products_of(step: Sum) -> tuple[Term, ...]:
    """Return the products that a sum adds to other terms."""
    several = len(step.terms) > 1 or step.from_zero
    return tuple(term for term in step.terms if several and len(term.factors) > 1)


def _with_products(formula: Formula) -> Formula:
    """Return the formula that rounds each product before it is added."""
    steps, last = list[Sum](), formula.sums[-1]
    for step in formula.sums:
        terms = list(step.terms)
        for product in _products_of(step):
            place = terms.index(product)
            name, plain = f"{step.name} product {place}", replace(product, negated_by=None, negative=False)
            steps.append(Sum(name, (plain,), step.rounding, step.o or last.o, step.word or last.word))
            terms[place] = replace(product, factors=(name,), scales=())
        register = None if _products_of(step) else step.register
        steps.append(replace(step, terms=tuple(terms), register=register))
    return Formula(tuple(steps))


def _with_sums(names: Sequence[str], formula: Formula) -> Formula:
    """Return the formula that rounds some exact sums."""
    *earlier, last = formula.sums
    steps = [replace(step, o=last.o, word=last.word) if step.name in names else step for step in earlier]
    return Formula((*steps, replace(last, register=None)))


_MORE = np.uint64(1)
_LESS = np.uint64((1 << 64) - 1)
"""Steps between neighbours, added to codes of 64 bits."""


@functools.cache
def _component(spec: UnitSpec) -> Any:
    return Implementation(spec).component()


def _results(spec: UnitSpec, codes: Columns) -> Codes:
    """Return the results of a description's golden model."""
    unit = _component(spec)
    count = max(len(column) for column in codes.values())
    given = {name: codes[name] if name in codes else np.zeros(count, dtype=np.uint64) for name in unit.inputs}
    return next(iter(reference(unit, given).values()))


def _in_words(rounding: Rounding) -> str:
    others = {"sr": f"at random with {rounding.bits} bits", "exact": "exactly"}
    return MODE_TEXT.get(rounding.mode) or others.get(rounding.mode, "as its port says")


def _subnormal(fmt: Format, codes: Codes) -> Mask:
    """Return True for subnormal numbers."""
    if not fmt.has_subnormals:
        return np.zeros(len(codes), dtype=np.bool_)
    grid = Grid.of(fmt)
    parts, magnitude = grid.parts(codes), grid.unsigned(codes)[1]
    special = parts.zero | parts.infinite | parts.nan
    assert fmt.floor_exponent is not None
    subnormal: Mask = ~special & (magnitude < np.uint64(grid.code_of(Fraction(2) ** fmt.floor_exponent)))
    return subnormal


def _flush(fmt: Format, codes: Codes, with_sign: bool = True) -> Codes:
    """Return zero for subnormal numbers, other codes unchanged."""
    grid = Grid.of(fmt)
    sign = grid.unsigned(codes)[0] if with_sign else np.zeros(len(codes), dtype=np.int64)
    return np.where(_subnormal(fmt, codes), grid.signed(sign, np.zeros_like(codes)), codes)


def _wrong_zeros(fmt: Format, want: Codes, got: Codes) -> Mask:
    """Return True for zeros with the wrong sign."""
    grid = Grid.of(fmt)
    wrong: Mask = grid.parts(want).zero & grid.parts(got).zero & (want != got)
    return wrong


def _flags(want: Codes, got: Codes) -> Iterator[Cause]:
    """Yield descriptions of wrong exception flags."""
    for bit, name in enumerate(FLAGS):
        has, wants = (codes >> np.uint64(bit) & np.uint64(1) for codes in (got, want))
        for fault, wrong in ((f"{name} is not raised", wants > has), (f"{name} is raised without cause", has > wants)):
            if wrong.any():
                yield Cause(fault, np.flatnonzero(wrong))


def _described(fmt: Format, want: Codes, got: Codes, rest: Mask) -> Iterator[Cause]:
    """Yield descriptions of wrong results of one format, each for the vectors that no earlier one has."""
    grid = Grid.of(fmt)
    right, got_parts = grid.parts(want), grid.parts(got)
    (right_sign, right_rank), (got_sign, got_rank) = grid.unsigned(want), grid.unsigned(got)
    apart = np.where(got_rank > right_rank, got_rank - right_rank, right_rank - got_rank)
    near = (right_sign == got_sign) & ~got_parts.infinite & ~right.infinite
    descriptions = [
        ("it gives another code of NaN", right.nan & got_parts.nan),
        ("it gives a number for NaN", right.nan),
        ("it gives NaN for a number", got_parts.nan),
        ("it gives a zero with the wrong sign", _wrong_zeros(fmt, want, got)),
        ("it gives the largest number for infinity", right.infinite & (got_rank == grid.max_code)),
        ("it gives another number for infinity", right.infinite),
        ("it gives infinity for a number", got_parts.infinite),
        ("its subnormal results are off by one ulp", near & (apart == 1) & _subnormal(fmt, want)),
        ("its results are off by one ulp", near & (apart == 1)),
        ("its results have the wrong sign", (right_rank == got_rank) & (right_sign != got_sign)),
        ("its results are off by more than one ulp", np.ones(len(want), dtype=np.bool_)),
    ]
    rest = rest.copy()
    for fault, mask in descriptions:
        if (own := rest & mask).any():
            yield Cause(fault, np.flatnonzero(own))
            rest &= ~own
