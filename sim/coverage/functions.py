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
from halfulp.golden.integral import exponent_of, integral
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


NUMBERS: dict[str, Callable[..., Raw]] = {
    "div": lambda spec, codes, x, y: divide.divide(x, y, _window(spec)),
    "reciprocal": lambda spec, codes, x: divide.divide(_one(x), x, _window(spec)),
    "sqrt": lambda spec, codes, x: divide.square_root(x, _window(spec)),
    "rsqrt": lambda spec, codes, x: divide.inverse_square_root(x, _window(spec)),
    "remainder": lambda spec, codes, x, y: divide.remainder(x, y),
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


CASES: dict[str, Callable[[Any], Iterator[Bins]]] = {
    "div": _of_quotients,
    "sqrt": _of_roots,
    "rsqrt": _of_roots,
    "remainder": _of_remainders,
    "rint": _of_integers,
    "classify": _of_classes,
    "compare": _of_comparisons,
}
"""Functions that yield the groups of cases of a description."""


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


def _relation(columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    less, equal, unordered = (outputs[name] == 1 for name in ("less", "equal", "unordered"))
    return [np.select([unordered, less, equal], [3, 0, 1], 2).astype(np.int64)]


def _output(classes: Classes, port: str, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    return [classes.signed_places(outputs[port])]


def _places(place: Tensor, counted: Tensor) -> Places:
    places: Places = torch.where(counted, place, NONE).numpy()
    return places
