"""The operations on single codes, in exact fractions: a slow and simple implementation of the rounding contract.

Rounded sums are computed from the formulas of the descriptions. Tests compare the tensor functions of this package with
these functions, and these with independent libraries. Parameters are the same, but codes are Python ints, and formats
and roundings are objects, not texts.
"""

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, Required, TypedDict, TypeVar, Unpack

from halfulp.hdl.formats import OFF, RD, RN, SATFINITE, Block, Compound, Fixed, Float, Format, Rounding, Saturation
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.rounding import RU
from halfulp.hdl.specs import COMPOSED, UNITS, MmaSpec
from halfulp.hdl.specs.classify import CLASSES
from halfulp.hdl.specs.dot import Alignment
from halfulp.hdl.specs.formula import VALUES, Call, Factor, Formula, Pick, Role, Sum, Term
from halfulp.hdl.specs.fpu import FpuSpec
from halfulp.hdl.specs.segments import Segments
from halfulp.hdl.specs.unit import BEFORE, FLAGS

from . import exact_composed, exact_fpu, exact_functions, exact_matrix_unit
from .exact_number import Number

R = TypeVar("R")

LENGTHS = {"k": 1, "lanes": 0}
"""Fields of descriptions that are the length of an operand, with its position."""


_unrounded: ContextVar[list[Number] | None] = ContextVar("_unrounded", default=None)
"""List to which `unrounded` adds exact results."""


def _decode(code: int, fmt: Format) -> Number:
    value = fmt.decode(code)
    negative = fmt.negative(code)
    return Number(-value if value < 0 else value, negative, invalid=fmt.is_signalling(code))


def _nan(*operands: Number, invalid: bool = False) -> Number:
    """Return the NaN of operands; ``invalid`` if they are numbers without a result."""
    return Number(math.nan, False, invalid=invalid or any(number.invalid for number in operands))


class Flagged(NamedTuple):
    """Result of an operation with flags: codes, and flags of 5 bits (bits 0 to 4 as in `FLAGS`)."""

    o: Any
    flags: Any


class Result(TypedDict, total=False):
    """Keyword arguments of operations: result format, rounding, random word and saturation."""

    o: Required[Format]
    rounding: Rounding
    saturate: Saturation
    random: int
    flags: bool | str


def _by_mode(operation: Callable[..., R]) -> Callable[..., R]:
    """Add the rounding ``port`` to an operation: the keyword ``mode`` is the code of the mode."""

    @functools.wraps(operation)
    def of_mode(*operands: Any, **parameters: Any) -> R:
        rounding, mode = parameters.get("rounding", RN), parameters.pop("mode", None)
        if rounding.is_port != (mode is not None):
            raise ValueError(f"mode is the code of a mode of the rounding port; the rounding is {rounding}")
        if mode is not None:
            parameters["rounding"] = rounding.choices[mode]
            if not parameters["rounding"].bits:
                parameters.pop("random", None)
        return operation(*operands, **parameters)

    return of_mode


def _encode(
    number: Number,
    *,
    o: Format,
    rounding: Rounding = RN,
    saturate: Saturation = OFF,
    random: int = 0,
    flags: bool | str = False,
) -> Any:
    """Return the code of a number, or with flags the code and its flags."""
    if (collected := _unrounded.get()) is not None:
        collected.append(number)
    if number.is_nan:
        code = o.nan_code
    elif number.is_inf:
        code = o.infinite(number.negative, saturate)
    else:
        assert isinstance(number.magnitude, Fraction)
        code = o.encode_magnitude(number.magnitude, number.negative, rounding, random, saturate)
    if not flags:
        return code
    if number.is_nan or number.is_inf:
        has_inf = o.has_inf and saturate != SATFINITE
        lost = not (o.has_nan if number.is_nan else has_inf or number.by_zero)
        return Flagged(code, _flag_bits(invalid=number.invalid or lost, by_zero=number.by_zero))
    return Flagged(code, _rounding_flags(number, code, o, rounding, random, flags == BEFORE))


def unrounded(operation: Callable[..., Any], *operands: Any, **parameters: Any) -> list[Number]:
    """Return the exact results that an operation of this module rounds, in order."""
    collected: list[Number] = []
    token = _unrounded.set(collected)
    try:
        operation(*operands, **parameters)
    finally:
        _unrounded.reset(token)
    return collected


def neighbours(operation: Callable[..., Any], *operands: Any, **parameters: Any) -> tuple[int, int]:
    """Return the codes of the numbers next to the exact result of an operation; both are its own if it is a number."""
    *_, number = unrounded(operation, *operands, **parameters)
    below, above = (
        _encode(number, o=parameters["o"], rounding=mode, saturate=parameters.get("saturate", OFF)) for mode in (RD, RU)
    )
    return below, above


def _flag_bits(**raised: bool) -> int:
    """Return the flags that are raised as an integer."""
    return sum(1 << FLAGS.index(name) for name, value in raised.items() if value)


def _rounding_flags(number: Number, code: int, o: Format, rounding: Rounding, random: int, before: bool) -> int:
    """Return the flags of rounding a finite number to a code (IEEE 754-2019, 7.4 to 7.6)."""
    magnitude = Fraction(number.magnitude)
    if isinstance(o, Fixed):
        rounded = rounding.round_signed(Fraction(number.value) / o.smallest, random)
        if not o.least_integer <= rounded <= o.largest_integer:
            return _flag_bits(invalid=True)
        return _flag_bits(inexact=rounded * o.smallest != number.value)
    assert isinstance(o, Float)
    if magnitude == 0:
        return 0
    last_place = Fraction(2) ** (floor_log2(magnitude) - o.man)
    unbounded = rounding.round(magnitude / last_place, number.negative, random) * last_place
    tiny = (magnitude if before else unbounded) < Fraction(2) ** o.emin
    inexact = o.decode(code) != number.value
    overflow = unbounded > o.largest
    return _flag_bits(inexact=inexact or overflow, overflow=overflow, underflow=tiny and inexact)


def _product(x: Number, y: Number) -> Number:
    if x.is_nan or y.is_nan:
        return _nan(x, y)
    negative = x.negative != y.negative
    if x.is_inf or y.is_inf:
        return _nan(invalid=True) if x.magnitude == 0 or y.magnitude == 0 else Number(math.inf, negative)
    return Number(Fraction(x.magnitude) * Fraction(y.magnitude), negative)


def _sum(x: Number, y: Number, rounding: Rounding) -> Number:
    if x.is_nan or y.is_nan:
        return _nan(x, y)
    if x.is_inf and y.is_inf and x.negative != y.negative:
        return _nan(invalid=True)
    if x.is_inf or y.is_inf:
        return x if x.is_inf else y
    value = Fraction(x.value) + Fraction(y.value)
    if value == 0:
        # Two zeros of one sign keep it; an exactly cancelled sum is +0, or -0 under rd.
        return Number(Fraction(0), x.negative if x.negative == y.negative else rounding == RD)
    return Number(abs(value), value < 0)


def _total(terms: Sequence[Number], rounding: Rounding) -> Number:
    """Return the sum of numbers; infinities of both signs are invalid in any order, and only without a NaN."""
    total = functools.reduce(lambda subtotal, other: _sum(subtotal, other, rounding), terms)
    invalid = any(term.invalid for term in terms)
    opposite = len({term.negative for term in terms if term.is_inf}) > 1
    return replace(total, invalid=invalid or (opposite and not any(term.is_nan for term in terms)))


def _scale(number: Number, fmt: Format | None) -> int:
    """Return the exponent of a float, not below that of the smallest normal number; that of zero is not defined."""
    assert isinstance(fmt, Float)
    is_number = isinstance(number.magnitude, Fraction) and number.magnitude
    return max(floor_log2(Fraction(number.magnitude)), fmt.emin) if is_number else fmt.emin


def _aligned(terms: Sequence[tuple[Number, int]], alignment: Alignment, rounding: Rounding) -> Number:
    """Return the sum of terms, each with an exponent, without bits below those of the alignment."""
    special = [term for term, _ in terms if term.is_nan or term.is_inf]
    if special:
        return _total(special, rounding)
    present = [(Fraction(term.value), scale) for term, scale in terms if term.value]
    unit = Fraction(2) ** (max((scale for _, scale in present), default=0) - alignment.fraction)
    rounded = math.floor if alignment.floor else math.trunc
    value = unit * sum(rounded(value / unit) for value, _ in present)
    return Number(abs(value), value < 0)


# Functions of numbers -----------------------------------------------------------------------------------------------


def _quotient(x: Number, y: Number) -> Number:
    if x.is_nan or y.is_nan:
        return _nan(x, y)
    if (x.is_inf and y.is_inf) or (x.magnitude == 0 and y.magnitude == 0):
        return _nan(invalid=True)
    negative = x.negative != y.negative
    if x.is_inf or y.magnitude == 0:
        return Number(math.inf, negative, by_zero=not x.is_inf)
    return Number(Fraction(0) if y.is_inf else Fraction(x.magnitude) / Fraction(y.magnitude), negative)


def _remainder(x: Number, y: Number) -> Number:
    """Return x - y * n for the integer n nearest to x / y, the even one of two."""
    if x.is_nan or y.is_nan:
        return _nan(x, y)
    if x.is_inf or y.magnitude == 0:
        return _nan(invalid=True)
    if y.is_inf:
        return x
    dividend, divisor = Fraction(x.value), Fraction(y.value)
    rest = dividend - divisor * round(dividend / divisor)
    return Number(abs(rest), rest < 0 if rest else x.negative)


def _root(x: Number, spec: Any) -> Number:
    """Return a number that rounds as the square root of x."""
    if x.is_nan or (x.negative and x.magnitude):
        return _nan(x, invalid=not x.is_nan)
    if x.is_inf or x.magnitude == 0:
        return x
    # More bits than any rounding tells from others, then a half of the last one if there are more.
    radicand, bits = Fraction(x.magnitude), spec.rounding.bits
    places = 2 * (spec.a.width + spec.o.width + bits + abs(spec.a.quantum) + abs(spec.o.quantum))
    root = Fraction(math.isqrt(math.floor(radicand * 4**places)))
    if root * root != radicand * 4**places:
        root += Fraction(1, 2)
    return Number(root / 2**places, False)


def _reciprocal_root(x: Number, spec: Any) -> Number:
    if x.magnitude == 0:
        return Number(math.inf, x.negative, by_zero=True)
    if x.is_inf and not x.negative:
        return Number(Fraction(0), False)
    return _root(x if x.is_nan or x.is_inf else Number(1 / Fraction(x.magnitude), x.negative), spec)


def _function(x: Number, spec: Any) -> Number:
    """Return a number that rounds as a function of x."""
    if x.is_nan:
        return _nan(x)
    special = exact_functions.special(spec.function, x.value, x.negative)
    if special is not None:
        nan, pole = special[0] != special[0], special[0] == math.inf and not x.is_inf
        return Number(*special, invalid=nan or x.invalid, by_zero=pole)
    window = spec.o.window + spec.unit_rounding.places
    number = exact_functions.value(spec.function, Fraction(x.value), window, spec.o.smallest)
    return Number(abs(number), number < 0)


def _exponent(x: Number, spec: Any) -> Number:
    """Return floor(log2(abs(x)))."""
    if x.is_nan:
        return _nan(x)
    if x.is_inf or x.magnitude == 0:
        # IEEE 754-2019, 5.3.3: the exponent of a zero is a division by zero in floats, and invalid in integers.
        zero = x.magnitude == 0
        return Number(math.inf, zero, by_zero=zero and isinstance(spec.o, Float))
    exponent = floor_log2(Fraction(x.magnitude))
    return Number(Fraction(abs(exponent)), exponent < 0)


def _scaled(x: Number, y: Number, o: Format) -> Number:
    """Return x * 2^y for an integer y."""
    if not isinstance(x.magnitude, Fraction):
        return x
    # From these powers on, the results of a number are beyond the range, or far below a tie at the smallest number.
    sizes = x.magnitude, o.smallest, max(o.largest, -o.lowest)
    most = sum(abs(floor_log2(size)) for size in sizes if size) + o.width + 128
    return replace(x, magnitude=x.magnitude * Fraction(2) ** max(-most, min(int(y.value), most)))


def _shifted(spec: Any, x: Number, places: int) -> Number:
    """Return a product, rounded if it has a format, divided by 2^places."""
    if spec.product is not None:
        code = spec.product.encode_magnitude(Fraction(x.magnitude), x.negative, spec.product_rounding)
        x = _decode(code, spec.product)
    return replace(x, magnitude=Fraction(x.magnitude) / Fraction(2) ** places)


REALS: dict[str, Callable[..., Number]] = {
    "div": lambda spec, x, y: _quotient(x, y),
    "reciprocal": lambda spec, x: _quotient(Number(Fraction(1), False), x),
    "remainder": lambda spec, x, y: _remainder(x, y),
    "sqrt": lambda spec, x: _root(x, spec),
    "rsqrt": lambda spec, x: _reciprocal_root(x, spec),
    "function": lambda spec, x: _function(x, spec),
    "logb": lambda spec, x: _exponent(x, spec),
    "scaleb": lambda spec, x, y: _scaled(x, y, spec.o),
    "requantize": lambda spec, x, y, places: _shifted(spec, _product(x, y), int(places.value)),
}
"""Functions of formulas, of the description and of the numbers of their operands."""


# Formulas of descriptions -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 10)
def _described(unit: str, given: frozenset[tuple[str, Any]]) -> tuple[Any, Formula, dict[str, Format | None]]:
    """Return the description of a unit with some fields, its formula, and the formats of its ports."""
    spec = UNITS[unit](**dict(given))
    return spec, spec.formula, {port.name: port.fmt for port in spec.ports}


def _codes_of(spec: Any, operands: Sequence[Any]) -> dict[str, int]:
    """Return the codes of the ports; the last operands may be omitted if they are a start value or controls."""
    arguments = spec.arguments(*VALUES)
    optional = spec.arguments(Role.START, Role.CONTROL)
    if not len(arguments) - len(optional) <= len(operands) <= len(arguments):
        raise TypeError(f"{spec.form.unit} takes the operands {', '.join(arguments)}, not {len(operands)} operands")
    given: dict[str, Any] = dict(zip(arguments, operands, strict=False))
    for name, fmt in spec.operands.items():
        if isinstance(fmt, Compound) and isinstance(arguments[name], list):
            given[name] = fmt.codes_of(given[name])
    return _by_port(arguments, given)


def _by_port(arguments: Mapping[str, str | list[str]], given: Mapping[str, Any]) -> dict[str, int]:
    """Return the codes of ports from those of arguments, which are zero if they are not given."""
    by_port: dict[str, int] = {}
    for name, ports in arguments.items():
        codes = given.get(name, 0)
        if isinstance(ports, str):
            by_port[ports] = codes
        else:
            by_port |= zip(ports, codes or [0] * len(ports), strict=True)
    return by_port


@dataclass(frozen=True)
class _Values:
    """Values of the operands and earlier sums of a formula by name."""

    spec: Any
    formats: dict[str, Format | None]
    codes: dict[str, int]
    numbers: dict[str, Number]

    def name(self, factor: str | Pick) -> str:
        """Return the operand or sum that is a factor."""
        if isinstance(factor, str):
            return factor
        return factor.choices[min(self.codes[factor.index], len(factor.choices) - 1)]

    def value(self, factor: Factor) -> Number:
        """Return the value of a factor."""
        if isinstance(factor, Call):
            return REALS[factor.function](self.spec, *map(self.value, factor.operands))
        return self.numbers[self.name(factor)]

    def term(self, term: Term) -> Number:
        """Return the value of a term."""
        product = functools.reduce(_product, map(self.value, (*term.factors, *term.scales)))
        minus = term.negative != (term.negated_by is not None and self.codes[term.negated_by] == 1)
        return replace(product, negative=product.negative != minus)

    def scale(self, term: Term) -> int:
        """Return the sum of the exponents of the factors of a term, for an aligned sum."""
        names = [self.name(factor) for factor in term.factors if not isinstance(factor, Call)]
        return sum(_scale(self.numbers[name], self.formats[name]) for name in names)

    def total(self, step: Sum) -> Number:
        """Return the exact value of a sum."""
        terms = [self.term(term) for term in step.terms]
        if step.alignment is not None:
            scales = map(self.scale, step.terms)
            return _aligned([*zip(terms, scales, strict=True)], step.alignment, step.rounding)
        total = _total([Number(Fraction(0), False)] * step.from_zero + terms, step.rounding)
        if step.register is not None and isinstance(total.magnitude, Fraction):
            sums = step.register.sums
            # The register has no -0; a sum that overflows it becomes infinite.
            fits = sums.lowest <= total.value <= sums.largest
            total = Number(total.magnitude if fits else math.inf, total.negative and total.magnitude != 0)
        return total

    def results(self, formula: Formula, words: Mapping[str, int]) -> Any:
        """Return the code of the result, or with flags the code and its flags; a list for several results."""
        spec, codes, raised = self.spec, [], 0
        for step in formula.sums:
            total = self.total(step)
            if step.o is not None:
                word = words[step.word] if step.word is not None else 0
                how = {"rounding": step.rounding, "saturate": spec.saturate, "random": word, "flags": spec.flags}
                code = _encode(total, o=step.o, **how)
                if spec.flags:
                    code, raised = code.o, raised | code.flags
                if step.name in formula.results:
                    codes.append(code)
                    continue
                total = _decode(code, step.o)
            self.numbers[step.name] = total
        if formula.results != ("o",):
            return codes
        return Flagged(codes[0], raised) if spec.flags else codes[0]


def _of_unit(unit: str) -> Callable[..., Any]:
    """Return the function that computes the rounded sums of a unit from its formula."""
    cls = UNITS[unit]

    def computed(*operands: Any, **parameters: Any) -> Any:
        words = {name: parameters.pop(name, 0) for name in ("random", "random_product")}
        lengths = {name: len(operands[at]) for name, at in LENGTHS.items() if name in cls.__dataclass_fields__}
        spec, formula, formats = _described(unit, frozenset((parameters | lengths).items()))
        codes = _codes_of(spec, operands)
        numbers = {name: _decode(code, fmt) for name, code in codes.items() if (fmt := formats[name]) is not None}
        return _Values(spec, formats, codes, numbers).results(formula, _by_port(spec.arguments(Role.RANDOM), words))

    computed.__name__ = computed.__qualname__ = unit
    computed.__doc__ = f"Return the code of the result of ``{unit}``; parameters are those of `{cls.__name__}`."
    return _by_mode(computed)


def __getattr__(name: str) -> Any:
    """Return the function of a unit whose formula consists of rounded sums."""
    if name in COMPOSED:
        return lambda *vectors, **given: exact_composed.vector(name, sys.modules[__name__], vectors, given)
    if name not in UNITS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    function = globals()[name] = _of_unit(name)
    return function


# Functions that round their results ---------------------------------------------------------------------------------


@_by_mode
def rint(x: int, /, *, a: Format, **result: Unpack[Result]) -> Any:
    """Return the code in ``o`` of x, rounded to an integer.

    The result is inexact if the integer is not x, except beyond the range of an integer format, where it is invalid.
    """
    number = _decode(x, a)
    if not isinstance(number.magnitude, Fraction):
        return _encode(number, **result)
    rounding, word = result.get("rounding", RN), result.get("random", 0)
    if result["o"].rounds == "floor":
        integer = abs(rounding.round_signed(Fraction(number.value), word))
    else:
        integer = rounding.round(number.magnitude, number.negative, word)
    rounded = _encode(Number(Fraction(integer), number.negative), **result)
    if not result.get("flags") or integer == number.magnitude or rounded.flags & _flag_bits(invalid=True):
        return rounded
    return Flagged(rounded.o, rounded.flags | _flag_bits(inexact=True))


def classify(x: int, /, *, a: Format) -> int:
    """Return the class of x as an integer, one bit of which is 1 (`CLASSES`)."""
    number = _decode(x, a)
    sign = "negative" if number.negative else "positive"
    if number.is_nan:
        name = "signalling NaN" if number.invalid else "quiet NaN"
    elif number.is_inf:
        name = f"{sign} infinity"
    elif number.magnitude == 0:
        name = f"{sign} zero"
    elif isinstance(a, Float) and number.magnitude < Fraction(2) ** a.emin:
        name = f"{sign} subnormal"
    else:
        name = f"{sign} normal"
    return 1 << CLASSES.index(name)


class Carried(NamedTuple):
    """Result of `sru` with ``increment=False``: floors, and the increment of each, 0 or 1."""

    floor: Any
    up: Any


def sru(
    x: Sequence[int], /, *, a: Format, o: Fixed, increment: bool = True, random: Sequence[int], **result: Any
) -> list[int] | Carried:
    """Return the codes of all x in ``o``, each rounded with its own random word; or floors and increments."""
    if increment:
        results: list[int] = _of_unit("sru")(x, a=a, o=o, random=random, **result)
        return results
    floors, ups = [], []
    for code, word in zip(x, random, strict=True):
        places = Fraction(a.decode(code)) / o.smallest
        floors.append(math.floor(places) & ((1 << o.width) - 1))
        ups.append(result["rounding"].round_signed(places, word) - math.floor(places))
    return Carried(floors, ups)


class FlaggedComparison(NamedTuple):
    """Result of `compare` with flags."""

    less: Any
    equal: Any
    unordered: Any
    minimum: Any
    maximum: Any
    flags: Any


class Comparison(NamedTuple):
    """Result of `compare`: three flags, 0 or 1, and the codes of minimum and maximum."""

    less: Any
    equal: Any
    unordered: Any
    minimum: Any
    maximum: Any


@_by_mode
def compare(x: int, y: int, /, *, a: Format, b: Format, **result: Unpack[Result]) -> Comparison | FlaggedComparison:
    """Compare x and y, and return their minimum and maximum as codes in ``o`` (IEEE 754-2019, 9.6).

    The flags are those of both results; a comparison is invalid if an operand is a signalling NaN.
    """
    first, second = _decode(x, a), _decode(y, b)
    flags = result.get("flags", False)
    if first.is_nan or second.is_nan:
        nan = _encode(_nan(first, second), **(result | {"flags": True}))
        if a.nan_is_ordered and b.nan_is_ordered:
            # NaR is less than every number and equals itself (Standard for Posit Arithmetic, 2022, 5.3).
            less, equal = first.is_nan and not second.is_nan, first.is_nan and second.is_nan
            return Comparison(int(less), int(equal), 0, nan.o, nan.o)
        unordered = Comparison(0, 0, 1, nan.o, nan.o)
        return FlaggedComparison(*unordered, nan.flags) if flags else unordered
    less, equal = first.value < second.value, first.value == second.value
    ordered = (first, second) if less or (equal and first.negative) else (second, first)
    minimum, maximum = (_encode(number, **result) for number in ordered)
    if not flags:
        return Comparison(int(less), int(equal), 0, minimum, maximum)
    return FlaggedComparison(int(less), int(equal), 0, minimum.o, maximum.o, minimum.flags | maximum.flags)


def mma(x: Sequence[int], y: Sequence[int], /, *more: Any, **given: Any) -> Any:
    """Return the codes of the accumulators after a step of a matrix unit; see `halfulp.golden.mma`."""
    spec = MmaSpec(k=len(x) // given.get("rows", 1), **given)
    count = len(spec.block_parts)
    operands = [codes if isinstance(codes, Sequence) else [codes] for codes in (x, y, *more)]
    starts = operands.pop() if len(more) > count else [0] * spec.lanes
    codes = exact_matrix_unit.lanes(spec, operands, starts)
    return codes if spec.lanes > 1 else codes[0]


@_by_mode
def fpu(*registers: int, rounding: Rounding = RN, **fields: Any) -> Flagged:
    """Return the register of the result of an operation, and its flags; see `halfulp.golden.fpu`."""
    spec = FpuSpec(rounding=rounding, **fields)
    names = [port.name for port in spec.operand_ports]
    this = sys.modules[__name__]
    return Flagged(*exact_fpu.instruction(spec, rounding, this, dict(zip(names, registers, strict=True))))


def pwl(x: int, /, *, table: Segments, rounding: Rounding = RN, saturate: Saturation = OFF, random: int = 0) -> int:
    """Return the code of the value of a piecewise linear function at x."""
    value = table.number(table.fmt.decode(x), table.fmt.negative(x))
    return _encode(Number(*value), o=table.out, rounding=rounding, saturate=saturate, random=random)


def blockquantize(
    x: Sequence[int],
    /,
    *,
    a: Format,
    o: Block,
    rounding: Rounding = RN,
    random: Sequence[int] | None = None,
) -> "Blocks":
    """Return the codes of elements and scale of a block of codes x."""
    numbers = [-0.0 if (value := a.decode(code)) == 0 and a.negative(code) else value for code in x]
    return Blocks(*o.quantize(numbers, rounding, None if random is None else list(random)))


class Blocks(NamedTuple):
    """Codes of elements, and of the scale of each block."""

    elements: Any
    scale: Any
