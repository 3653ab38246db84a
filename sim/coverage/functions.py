"""Results of quotients, roots and other functions before rounding, and bins of their computation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import torch
from torch import Tensor

from halfulp.golden import divide
from halfulp.golden.codec import unpack
from halfulp.golden.integral import exponent_of, integral
from halfulp.golden.raw import Raw, in_units, widen
from halfulp.golden.scaleb import scaled_by
from halfulp.hdl.formats import RN, Fixed
from halfulp.hdl.specs import DivSpec, ReciprocalSpec, RsqrtSpec, SqrtSpec, UnitSpec, ValueRange
from halfulp.hdl.specs.division import EndlessSpec
from halfulp.hdl.specs.integral import LogbSpec, RintSpec
from halfulp.hdl.specs.remainder import RemainderSpec
from halfulp.hdl.specs.scaleb import ScalebSpec
from halfulp.sim.classes import NONE, Places
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


def term_of(spec: UnitSpec, widths: Mapping[str, int]) -> Term:
    """Return the number that a unit of one function rounds.

    Parameters
    ----------
    spec : UnitSpec
        Description of the unit, with one rounding mode.
    widths : mapping of str to int
        Widths of the inputs.
    """
    # An integral value is rounded before by the same mode and word.
    words = ["random"] if isinstance(spec, RintSpec) and spec.rounding.bits else []
    ports = {name: widths[name] for name in (*spec.operands, *words)}
    return Term(ports, partial(_before_rounding, spec), EVERY, fixed=False, words=tuple(words))


def _before_rounding(spec: UnitSpec, codes: Mapping[str, Tensor]) -> Raw:
    """Return the result of a function before it is rounded to the result format."""
    x, *rest = (unpack(codes[name], fmt) for name, fmt in spec.operands.items())
    match spec:
        case DivSpec():
            return divide.divide(x, rest[0], _window(spec))
        case ReciprocalSpec():
            return divide.divide(_one(x), x, _window(spec))
        case SqrtSpec():
            return divide.square_root(x, _window(spec))
        case RsqrtSpec():
            return divide.inverse_square_root(x, _window(spec))
        case RemainderSpec():
            return divide.remainder(x, rest[0])
        case ScalebSpec():
            return scaled_by(x, codes["b"], spec)
        case RintSpec():
            return integral(x, spec, codes.get("random"))
        case LogbSpec():
            return exponent_of(x, spec)
    raise AssertionError(spec)


def _window(spec: EndlessSpec) -> int:
    """Return a number of bits from which each rounding and its bins follow, with a sticky bit."""
    return max(replace(spec, rounding=mode).window for mode in (RN, spec.rounding)) + 1


def _one(x: Raw) -> Raw:
    """Return the number 1, in the shape of other numbers."""
    return unpack(torch.ones_like(x.exponent), Fixed(2, 0))


# Bins of the computation ---------------------------------------------------------------------------------------------

Cases = Callable[[Sequence[Codes], Columns], list[Places]]
"""Function from the codes of operands and the results to label indices on each axis."""


def cases_of(spec: UnitSpec) -> Iterator[tuple[Group, tuple[str, ...], Cases]]:
    """Yield groups of the cases that the computation of a function tells apart, with their operands."""
    match spec:
        case DivSpec():
            axis = Axis("quotient of significands", ("one or more", "below one"))
            yield Group("first digit of a / b", (axis,)), ("a", "b"), partial(_first_digit, spec)
        case SqrtSpec() | RsqrtSpec():
            axis = Axis("exponent", ("even", "odd"))
            yield Group("exponent of a", (axis,)), ("a",), partial(_parity, spec)
        case RemainderSpec():
            group = Group("integer quotient", (Axis("integer quotient", QUOTIENTS), Axis("sign of a", SIGNS)))
            yield group, ("a", "b"), partial(_quotient, spec)
        case RintSpec():
            last = Axis("last bit of the integer", ("even", "odd"))
            group = Group("fraction of a", (last, Axis("fraction", RESTS), Axis("sign", SIGNS)))
            yield group, ("a",), partial(_fraction, spec)


def _numbers(spec: UnitSpec, columns: Sequence[Codes]) -> list[Raw]:
    formats = spec.operands.values()
    return [unpack(torch.from_numpy(codes.view(np.int64)), fmt) for codes, fmt in zip(columns, formats, strict=True)]


def _first_digit(spec: DivSpec, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return whether quotients of significands are one or more (0) or less (1)."""
    x, y = _numbers(spec, columns)
    quotient = divide.divide(x, y, 1)
    return [_places(x.exponent - y.exponent - quotient.exponent, is_number(x) & is_number(y))]


def _parity(spec: UnitSpec, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return whether exponents of positive numbers are even (0) or odd (1)."""
    (x,) = _numbers(spec, columns)
    return [_places(x.exponent & 1, is_number(x) & ~x.sign)]


def _quotient(spec: RemainderSpec, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
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


def _fraction(spec: RintSpec, columns: Sequence[Codes], outputs: Columns) -> list[Places]:
    """Return the last bit of the integer part of magnitudes, the class of their fractions, and the sign."""
    (x,) = _numbers(spec, columns)
    units, sticky = in_units(x, -1, 1)
    even = x.exponent > x.significand.width - 1
    last = torch.where(even, 0, units.bits(1, 1))
    rest = torch.where(even, 0, 2 * units.bits(0, 1) + sticky.to(torch.int64))
    return [_places(place, is_number(x)) for place in (last, rest, x.sign.to(torch.int64))]


def _places(place: Tensor, counted: Tensor) -> Places:
    found: Places = torch.where(counted, place, NONE).numpy()
    return found
