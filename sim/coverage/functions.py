"""Results of quotients, roots and other functions before rounding, and bins of their computation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.golden import divide
from halfulp.golden.codec import unpack
from halfulp.golden.function import value_of as function_value
from halfulp.golden.integral import exponent_of, integral
from halfulp.golden.matrix_unit import Aligned, aligned_terms
from halfulp.golden.pwl import value_of
from halfulp.golden.raw import Raw, in_units, widen
from halfulp.golden.requantize import scaled
from halfulp.golden.scaleb import scaled_by
from halfulp.hdl.formats import RN, Fixed
from halfulp.hdl.specs import UnitSpec, ValueRange
from halfulp.hdl.specs.classify import CLASSES
from halfulp.hdl.specs.formula import Call
from halfulp.sim.classes import NONE, Classes, Places
from halfulp.sim.fields import Codes
from halfulp.sim.ports import Columns

from .bins import Axis, Group
from .stages import RESTS, SIGNS, Term, is_number

FAR = 1 << 20
"""Exponent beyond those of all results."""

EVERY = ValueRange(-FAR, -(Fraction(2) ** FAR), Fraction(2) ** FAR, Fraction(2) ** -FAR, 2 * FAR, inf=True, nan=True)
"""Bounds without a claim."""

QUOTIENTS = ("a, far below b", "zero", "rounded down", "rounded up", "tie, rounded down", "tie, rounded up")
"""Cases of the integer quotient of a remainder."""


LARGEST = ("of a product", "of the accumulator", "of a zero term")
"""Terms with the largest exponent in a step of a matrix unit."""

NUMBERS: dict[str, Callable[..., Raw]] = {
    "div": lambda spec, codes, x, y: divide.divide(x, y, _window(spec)),
    "reciprocal": lambda spec, codes, x: divide.divide(_one(x), x, _window(spec)),
    "sqrt": lambda spec, codes, x: divide.square_root(x, _window(spec)),
    "rsqrt": lambda spec, codes, x: divide.inverse_square_root(x, _window(spec)),
    "remainder": lambda spec, codes, x, y: divide.remainder(x, y),
    "function": lambda spec, codes, x: function_value(spec, x, codes["a"]),
    "logb": lambda spec, codes, x: exponent_of(x, spec),
    "scaleb": lambda spec, codes, x, y: scaled_by(x, codes["b"], spec),
    "requantize": lambda spec, codes, *_: scaled(spec, codes["a"], codes["multiplier"], codes["shift"]),
    "rint": lambda spec, codes, x: integral(x, spec, codes.get("random")),
}
"""Functions that give the number before its rounding, from the description, the codes, and the operands."""


def term_of(call: Call, spec: Any, widths: Mapping[str, int], parameters: Mapping[str, Any]) -> Term:
    """Return the number that a unit of one function rounds.

    Parameters
    ----------
    call : Call
    spec : UnitSpec
        Description of the unit, with one rounding mode.
    widths : mapping of str to int
        Widths of the inputs.
    parameters : mapping
        Keyword arguments of the golden function.
    """
    if call.function == "pwl":
        table = parameters["table"]
        # The bins need single discarded bits, which a rounding mode without random bits does not provide; ``rn`` does.
        seen = spec.rounding if spec.rounding.bits else RN
        span = ValueRange.of(table.out)
        return Term({"a": table.fmt.width}, lambda codes: value_of(codes["a"], table, seen), span, fixed=False)
    # An integral value is rounded before by the same mode and word.
    words = ["random"] if call.function == "rint" and spec.rounding.bits else []

    def make(codes: Mapping[str, Tensor]) -> Raw:
        operands = (unpack(codes[name], spec.operands[name]) for name in call.operands)
        return NUMBERS[call.function](spec, codes, *operands)

    ports = {name: widths[name] for name in (*call.operands, *words)}
    return Term(ports, make, EVERY, fixed=False, words=tuple(words))


def _window(spec: Any) -> int:
    """Return a number of bits from which each rounding and its bins follow, with a sticky bit."""
    return max(replace(spec, rounding=mode).window for mode in (RN, spec.rounding)) + 1


def _one(x: Raw) -> Raw:
    """Return the number 1, in the shape of other numbers."""
    return unpack(torch.ones_like(x.exponent), Fixed(2, 0))


# Bins of the computation ---------------------------------------------------------------------------------------------

Cases = Callable[[Sequence[Codes], Columns], list[Places]]
"""Function from the codes of operands and the results to label indices on each axis."""


Bins = tuple[Group, tuple[str, ...], Cases]
"""Group of cases, with its operands."""


def cases_of(spec: UnitSpec) -> Iterator[Bins]:
    """Yield the groups of the cases that the computation of a function tells apart."""
    for call in spec.formula.calls:
        if call.function in CASES:
            yield from CASES[call.function](spec)


def _of_quotients(spec: Any) -> Iterator[Bins]:
    axis = Axis("quotient of significands", ("one or more", "below one"))
    yield Group("first digit of a / b", (axis,)), ("a", "b"), partial(_first_digit, spec)


def _of_roots(spec: Any) -> Iterator[Bins]:
    yield Group("exponent of a", (Axis("exponent", ("even", "odd")),)), ("a",), partial(_parity, spec)


def _of_remainders(spec: Any) -> Iterator[Bins]:
    group = Group("integer quotient", (Axis("integer quotient", QUOTIENTS), Axis("sign of a", SIGNS)))
    yield group, ("a", "b"), partial(_quotient, spec)


def _of_integers(spec: Any) -> Iterator[Bins]:
    last = Axis("last bit of the integer", ("even", "odd"))
    yield Group("fraction of a", (last, Axis("fraction", RESTS), Axis("sign", SIGNS))), ("a",), partial(_fraction, spec)


def _of_classes(spec: Any) -> Iterator[Bins]:
    axis = Axis("class", tuple(CLASSES[place] for place in spec.classes))
    yield Group("class", (axis,)), ("a",), partial(_class, spec.classes)


def _of_comparisons(spec: Any) -> Iterator[Bins]:
    relations = Axis("order", ("less", "equal", "greater", "unordered"))
    yield Group("order", (relations,)), ("a", "b"), _relation
    classes = Classes(spec.o)
    for port in ("minimum", "maximum"):
        yield Group(port, (Axis(port, classes.signed),)), ("a", "b"), partial(_output, classes, port)


def _of_steps(spec: Any) -> Iterator[Bins]:
    # All rows and columns have the same logic; the cases are those of the first ones.
    ports, result = spec.lane_ports(0, 0), spec.formula.steps[0].names[0]
    tops, rests = Axis("largest exponent", LARGEST), Axis("truncation", ("exact", "inexact"))
    if spec.kind == "aligned":
        yield Group("largest exponent", (tops,)), ports, partial(_largest, spec.one_lane)
        yield Group("truncation", (rests,)), ports, partial(_truncation, spec.one_lane)
    classes = Classes(spec.o)
    yield Group("o", (Axis("o", classes.kinds),)), ports, partial(_result, classes, result)


def _of_operations(spec: Any) -> Iterator[Bins]:
    yield Group("operation", (Axis("operation", spec.operations),)), ("op",), partial(_operation, spec)


CASES: dict[str, Callable[[Any], Iterator[Bins]]] = {
    "div": _of_quotients,
    "sqrt": _of_roots,
    "rsqrt": _of_roots,
    "remainder": _of_remainders,
    "rint": _of_integers,
    "classify": _of_classes,
    "compare": _of_comparisons,
    "mma": _of_steps,
    "fpu": _of_operations,
}
"""Functions that yield the groups of cases of a description."""


def _operation(spec: Any, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return the operations; a code beyond the last one selects it."""
    return [np.minimum(columns[0], np.uint64(len(spec.operations) - 1)).astype(np.int64)]


def _numbers(spec: UnitSpec, columns: Sequence[Codes]) -> list[Raw]:
    formats = spec.operands.values()
    return [unpack(torch.from_numpy(codes.view(np.int64)), fmt) for codes, fmt in zip(columns, formats, strict=True)]


def _first_digit(spec: Any, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return whether quotients of significands are one or more (0) or less (1)."""
    x, y = _numbers(spec, columns)
    quotient = divide.divide(x, y, 1)
    return [_places(x.exponent - y.exponent - quotient.exponent, is_number(x) & is_number(y))]


def _parity(spec: UnitSpec, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return whether exponents of positive numbers are even (0) or odd (1)."""
    (x,) = _numbers(spec, columns)
    return [_places(x.exponent & 1, is_number(x) & ~x.sign)]


def _quotient(spec: Any, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return the place in `QUOTIENTS` and the sign of a."""
    x, y = _numbers(spec, columns)
    rest = divide.remainder(x, y)
    width = max(rest.significand.width, y.significand.width)
    # A tie leaves half of b.
    half = widen(rest, width).significand.equals(widen(y, width).significand) & (rest.exponent == y.exponent - 1)
    up = (rest.sign ^ x.sign).to(torch.int64)
    place = torch.where(rest.zero, 1, torch.where(half, 4, 2) + up)
    place = torch.where(x.exponent < y.exponent - 1, 0, place)
    number = is_number(x) & is_number(y)
    return [_places(place, number), _places(x.sign.to(torch.int64), number)]


def _fraction(spec: Any, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return the last bit of the integer part of magnitudes, the class of their fractions, and the sign."""
    (x,) = _numbers(spec, columns)
    units, sticky = in_units(x, -1, 1)
    even = x.exponent > x.significand.width - 1
    last = torch.where(even, 0, units.bits(1, 1))
    rest = torch.where(even, 0, 2 * units.bits(0, 1) + sticky.to(torch.int64))
    return [_places(place, is_number(x)) for place in (last, rest, x.sign.to(torch.int64))]


def _class(classes: Sequence[int], columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return the place of the class of each result, in the list of those of a format."""
    places: Places = np.full(len(outputs["o"]), NONE)
    for place, bit in enumerate(classes):
        places[outputs["o"] == np.uint64(1 << bit)] = place
    return [places]


def _steps(spec: Any, columns: Sequence[Codes]) -> tuple[Aligned, Tensor]:
    """Return the terms of steps of a matrix unit, and True for those without infinity and NaN."""
    codes = [torch.from_numpy(column.view(np.int64)) for column in columns]
    x, y = (torch.stack(codes[first : first + spec.k], -1) for first in (0, spec.k))
    scales, rest = [], codes[2 * spec.k : -1]
    for name in spec.block_parts:
        count = spec.k // getattr(spec, name).length
        scales.append(torch.stack(rest[:count], -1))
        rest = rest[count:]
    terms = aligned_terms(spec, x, y, codes[-1], *scales)
    return terms, terms.terms.real.isfinite().all(-1) & terms.acc.real.isfinite()


def _largest(spec: Any, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return the place in `LARGEST` of the term with the largest exponent; the first of several counts."""
    terms, finite = _steps(spec, columns)
    top = terms.top
    of_product = ((terms.exponent == top.unsqueeze(-1)) & (terms.terms.significand != 0)).any(-1)
    of_acc = (terms.own == top) & (terms.acc.significand != 0)
    return [_places(torch.where(of_product, 0, torch.where(of_acc, 1, 2)), finite)]


def _truncation(spec: Any, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return whether truncated sums are equal to the exact ones (0) or not (1)."""
    terms, finite = _steps(spec, columns)
    places = (terms.top.unsqueeze(-1) - terms.exponent + terms.terms.fraction - spec.fraction).clamp(0, 62)
    lost = (terms.terms.significand.abs() & ((1 << places) - 1)) != 0
    own = (terms.top - terms.own + terms.acc.fraction - spec.fraction).clamp(0, 62)
    inexact = lost.any(-1) | ((terms.acc.significand.abs() & ((1 << own) - 1)) != 0)
    return [_places(inexact.to(torch.int64), finite)]


def _result(classes: Classes, port: str, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    return [classes.places(outputs[port])]


def _relation(columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    less, equal, unordered = (outputs[name] == 1 for name in ("less", "equal", "unordered"))
    return [np.select([unordered, less, equal], [3, 0, 1], 2).astype(np.int64)]


def _output(classes: Classes, port: str, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    return [classes.signed_places(outputs[port])]


def _places(place: Tensor, counted: Tensor) -> Places:
    places: Places = torch.where(counted, place, NONE).numpy()
    return places
