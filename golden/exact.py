"""The operations on single codes, in exact fractions: a slow and simple implementation of the rounding contract.

Tests compare the tensor functions of this package with these, and these with independent libraries. Parameters are the
same, but codes are Python ints, and formats and roundings are objects, not texts.
"""

import functools
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, Required, TypedDict, TypeVar, Unpack

from halfulp.hdl.formats import RD, RN, Block, Compound, Fixed, Float, Format, Rounding
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import (
    AccumulatorSpec,
    BlockMacSpec,
    MacSpec,
    PartMacSpec,
    QuireSpec,
    SparseMacSpec,
    SumSpec,
)
from halfulp.hdl.specs.classify import CLASSES
from halfulp.hdl.specs.dot import Alignment
from halfulp.hdl.specs.segments import Segments
from halfulp.hdl.specs.unit import BEFORE, FLAGS

R = TypeVar("R")


@dataclass(frozen=True)
class Number:
    """Exact result: a magnitude, which is a float for infinity and NaN, and a sign; zeros are signed.

    ``invalid`` and ``by_zero`` are flags of the operation; a signalling NaN is invalid as an operand.
    """

    magnitude: Fraction | float
    negative: bool
    invalid: bool = False
    by_zero: bool = False

    @property
    def value(self) -> Fraction | float:
        """Value with its sign."""
        return -self.magnitude if self.negative else self.magnitude

    @property
    def is_nan(self) -> bool:
        """True for NaN."""
        return isinstance(self.magnitude, float) and math.isnan(self.magnitude)

    @property
    def is_inf(self) -> bool:
        """True for infinities."""
        return isinstance(self.magnitude, float) and math.isinf(self.magnitude)


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
    saturate: bool
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
    saturate: bool = False,
    random: int = 0,
    flags: bool | str = False,
) -> Any:
    """Return the code of a number, or with flags the code and its flags."""
    if (collected := _unrounded.get()) is not None:
        collected.append(number)
    if number.is_nan:
        code = o.nan_code
    elif number.is_inf:
        code = o.infinity(number.negative)
    else:
        assert isinstance(number.magnitude, Fraction)
        code = o.encode_magnitude(number.magnitude, number.negative, rounding, random, saturate)
    if not flags:
        return code
    if number.is_nan or number.is_inf:
        lost = not (o.has_nan if number.is_nan else o.has_inf or number.by_zero)
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


def _flag_bits(**raised: bool) -> int:
    """Return the flags that are raised as an integer."""
    return sum(1 << FLAGS.index(name) for name, value in raised.items() if value)


def _rounding_flags(number: Number, code: int, o: Format, rounding: Rounding, random: int, before: bool) -> int:
    """Return the flags of rounding a finite number to a code (IEEE 754-2019, 7.4 to 7.6)."""
    magnitude = Fraction(number.magnitude)
    if isinstance(o, Fixed):
        rounded = rounding.round_signed(Fraction(number.value) / o.smallest, random)
        if not o.lowest_integer <= rounded <= o.largest_integer:
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


def _negated(number: Number, negate: int) -> Number:
    return replace(number, negative=number.negative != bool(negate))


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


@_by_mode
def mul(x: int, y: int, /, *, a: Format, b: Format, **result: Unpack[Result]) -> int:
    """Return the code of x * y in ``o``."""
    return _encode(_product(_decode(x, a), _decode(y, b)), **result)


@_by_mode
def add(x: int, y: int, subtract: int = 0, /, *, a: Format, b: Format, **result: Unpack[Result]) -> int:
    """Return the code of x + y, or of x - y if ``subtract`` is 1, in ``o``."""
    return _encode(_sum(_decode(x, a), _negated(_decode(y, b), subtract), result.get("rounding", RN)), **result)


@_by_mode
def fma(x: int, y: int, z: int, /, *, a: Format, b: Format, c: Format, **result: Unpack[Result]) -> int:
    """Return the code of x * y + z in ``o``, rounded once."""
    product = _product(_decode(x, a), _decode(y, b))
    return _encode(_sum(product, _decode(z, c), result.get("rounding", RN)), **result)


@_by_mode
def mac(x: int, y: int, start: int, /, *, random: int = 0, random_product: int = 0, **parameters: Any) -> Any:
    """Return the code of start + x * y; parameters are those of `MacSpec`.

    The flags of a step are those of its sum and of its rounded product.
    """
    spec = MacSpec(**parameters)
    spec.check_one_step()
    term = _product(_decode(x, spec.a), _decode(y, spec.b))
    if (o := spec.product) is None:
        return _step(spec, term, start, random)
    found = _encode(
        term,
        o=o,
        rounding=spec.product_rounding,
        saturate=spec.saturate,
        random=random_product,
        flags=spec.flags,
    )
    if not spec.flags:
        return _step(spec, _decode(found, o), start, random)
    total = _step(spec, _decode(found.o, o), start, random)
    return Flagged(total.o, total.flags | found.flags)


@_by_mode
def partmac(x: int, y: int, step: int, start: int, /, **parameters: Any) -> int:
    """Return the code of start + x_i * y_j for the pair ``step`` of parts; parameters are those of `mac`."""
    words = {name: parameters.pop(name) for name in ("random", "random_product") if name in parameters}
    spec = PartMacSpec(**parameters)
    i, j = spec.pairs[min(step, len(spec.pairs) - 1)]
    x, y = (
        fmt.codes_of(code)[place] if isinstance(fmt, Compound) else code
        for fmt, code, place in ((spec.a, x, i), (spec.b, y, j))
    )
    return mac(x, y, start, **words, **spec.of_parts.parameters)


@_by_mode
def accumulate(x: int, start: int, /, *, random: int = 0, **parameters: Any) -> Any:
    """Return the code of start + x; parameters are those of `SumSpec`."""
    spec = SumSpec(**parameters)
    return _step(spec, _decode(x, spec.a), start, random)


@_by_mode
def quire(x: int, y: int, start: int, subtract: int = 0, /, *, random: int = 0, **parameters: Any) -> int:
    """Return the code of start + x * y, or start - x * y if ``subtract`` is 1; parameters are those of `QuireSpec`."""
    spec = QuireSpec(**parameters)
    return _step(spec, _negated(_product(_decode(x, spec.a), _decode(y, spec.b)), subtract), start, random)


def _step(spec: AccumulatorSpec, term: Number, start: int, random: int) -> Any:
    total = _sum(term, _decode(start, spec.o), spec.rounding)
    if spec.quire is not None and isinstance(total.magnitude, Fraction):
        sums = spec.quire.sums
        # The register has no -0; a sum that overflows it becomes infinite.
        fits = sums.lowest <= total.value <= sums.largest
        total = Number(total.magnitude if fits else math.inf, total.negative and total.magnitude != 0)
    return _encode(total, o=spec.o, rounding=spec.rounding, saturate=spec.saturate, random=random, flags=spec.flags)


@_by_mode
def dot(
    x: Sequence[int],
    y: Sequence[int],
    start: int = 0,
    /,
    *,
    a: Format,
    b: Format,
    o: Format,
    c: Format | None = None,
    order: str = "exact",
    rounding: Rounding = RN,
    saturate: bool = False,
    random: int | Sequence[int] = 0,
    flags: bool | str = False,
) -> Any:
    """Return the code of start plus all products in ``o``, rounded once or after each product."""
    encode = functools.partial(_encode, o=o, rounding=rounding, saturate=saturate, flags=flags)
    total = _decode(start, c) if c is not None else Number(Fraction(0), False)
    products = [_product(_decode(p, a), _decode(q, b)) for p, q in zip(x, y, strict=True)]
    if (alignment := Alignment.parse(order)) is not None:
        assert isinstance(random, int)
        scales = [_scale(p, a) + _scale(q, b) for p, q in zip(x, y, strict=True)]
        terms = [*zip(products, scales, strict=True), *([(total, _scale(start, c))] if c is not None else [])]
        return encode(_aligned(terms, alignment, rounding), random=random)
    if order == "exact":
        assert isinstance(random, int)
        return encode(_total([total, *products], rounding), random=random)
    words = [0] * len(products) if isinstance(random, int) else random
    raised = 0
    for product, word in zip(products, words, strict=True):
        code = encode(_sum(total, product, rounding), random=word)
        if flags:
            code, raised = code.o, raised | code.flags
        total = _decode(code, o)
    return Flagged(code, raised) if flags else code


def _total(terms: Sequence[Number], rounding: Rounding) -> Number:
    """Return the sum of numbers; infinities of both signs are invalid in any order, and only without a NaN."""
    total = functools.reduce(lambda one, other: _sum(one, other, rounding), terms)
    invalid = any(term.invalid for term in terms)
    opposite = len({term.negative for term in terms if term.is_inf}) > 1
    return replace(total, invalid=invalid or (opposite and not any(term.is_nan for term in terms)))


def _scale(code: int, fmt: Format) -> int:
    """Return the exponent of a float, not below that of the smallest normal number; that of zero is not defined."""
    assert isinstance(fmt, Float)
    number = _decode(code, fmt)
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


@_by_mode
def sparsedot(
    x: Sequence[int], y: Sequence[int], index: Sequence[int], start: int = 0, /, *, sparsity: str, **parameters: Any
) -> Any:
    """Return the code of start plus the products of each y with one x of its group; other parameters as for `dot`."""
    chosen = _selected(x, index, sparsity)
    return dot(chosen, y, start, **parameters)


@_by_mode
def sparsemac(
    x: Sequence[int], y: Sequence[int], index: Sequence[int], start: int, /, *, random: int = 0, **parameters: Any
) -> Any:
    """Return the code of start plus the products of each y with one x of its group.

    Parameters are those of `SparseMacSpec`.
    """
    spec = SparseMacSpec(**parameters)
    pairs = zip(_selected(x, index, spec.sparsity), y, strict=True)
    terms = [_product(_decode(p, spec.a), _decode(q, spec.b)) for p, q in pairs]
    return _step(spec, functools.reduce(lambda p, q: _sum(p, q, spec.rounding), terms), start, random)


def _selected(x: Sequence[int], index: Sequence[int], sparsity: str) -> list[int]:
    """Return the x of each weight."""
    n, m = map(int, sparsity.split(":"))
    return [x[place // n * m + min(offset, m - 1)] for place, offset in enumerate(index)]


@_by_mode
def div(x: int, y: int, /, *, a: Format, b: Format, **result: Unpack[Result]) -> int:
    """Return the code of x / y in ``o``."""
    return _encode(_quotient(_decode(x, a), _decode(y, b)), **result)


@_by_mode
def reciprocal(x: int, /, *, a: Format, **result: Unpack[Result]) -> int:
    """Return the code of 1 / x in ``o``."""
    return _encode(_quotient(Number(Fraction(1), False), _decode(x, a)), **result)


def _quotient(x: Number, y: Number) -> Number:
    if x.is_nan or y.is_nan:
        return _nan(x, y)
    if (x.is_inf and y.is_inf) or (x.magnitude == 0 and y.magnitude == 0):
        return _nan(invalid=True)
    negative = x.negative != y.negative
    if x.is_inf or y.magnitude == 0:
        return Number(math.inf, negative, by_zero=not x.is_inf)
    return Number(Fraction(0) if y.is_inf else Fraction(x.magnitude) / Fraction(y.magnitude), negative)


@_by_mode
def remainder(x: int, y: int, /, *, a: Format, b: Format, **result: Unpack[Result]) -> int:
    """Return the code in ``o`` of x - y * n for the integer n nearest to x / y, the even one of two."""
    first, second = _decode(x, a), _decode(y, b)
    if first.is_nan or second.is_nan:
        return _encode(_nan(first, second), **result)
    if first.is_inf or second.magnitude == 0:
        return _encode(_nan(invalid=True), **result)
    if second.is_inf:
        return _encode(first, **result)
    dividend, divisor = Fraction(first.value), Fraction(second.value)
    rest = dividend - divisor * round(dividend / divisor)
    return _encode(Number(abs(rest), rest < 0 if rest else first.negative), **result)


@_by_mode
def sqrt(x: int, /, *, a: Format, **result: Unpack[Result]) -> int:
    """Return the code of the square root of x in ``o``."""
    number = _decode(x, a)
    if number.magnitude == 0:
        return _encode(number, **result)
    return _encode(_root(number, a, **result), **result)


@_by_mode
def rsqrt(x: int, /, *, a: Format, **result: Unpack[Result]) -> int:
    """Return the code of the reciprocal of the square root of x in ``o``."""
    number = _decode(x, a)
    if number.magnitude == 0:
        return _encode(Number(math.inf, number.negative, by_zero=True), **result)
    if number.is_inf and not number.negative:
        return _encode(Number(Fraction(0), False), **result)
    reciprocal = number if number.is_nan or number.is_inf else Number(1 / Fraction(number.magnitude), number.negative)
    return _encode(_root(reciprocal, a, **result), **result)


def _root(number: Number, a: Format, **result: Unpack[Result]) -> Number:
    """Return a number that rounds as the square root of a nonzero number, for an operand in ``a``."""
    if number.is_nan or number.negative:
        return _nan(number, invalid=not number.is_nan)
    if number.is_inf:
        return number
    o, bits = result["o"], result.get("rounding", RN).bits
    # More bits than any rounding tells from others, then a half of the last one if there are more.
    radicand = Fraction(number.magnitude)
    places = 2 * (a.width + o.width + bits + abs(a.quantum) + abs(o.quantum))
    root = Fraction(math.isqrt(math.floor(radicand * 4**places)))
    if root * root != radicand * 4**places:
        root += Fraction(1, 2)
    return Number(root / 2**places, False)


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
    found = _encode(Number(Fraction(integer), number.negative), **result)
    if not result.get("flags") or integer == number.magnitude or found.flags & _flag_bits(invalid=True):
        return found
    return Flagged(found.o, found.flags | _flag_bits(inexact=True))


@_by_mode
def logb(x: int, /, *, a: Format, **result: Unpack[Result]) -> int:
    """Return the code in ``o`` of the exponent of x, floor(log2(abs(x)))."""
    number = _decode(x, a)
    if number.is_nan:
        return _encode(_nan(number), **result)
    if number.is_inf or number.magnitude == 0:
        # IEEE 754-2019, 5.3.3: the exponent of a zero is a division by zero in floats, and invalid in integers.
        zero = number.magnitude == 0
        return _encode(Number(math.inf, zero, by_zero=zero and isinstance(result["o"], Float)), **result)
    exponent = floor_log2(Fraction(number.magnitude))
    return _encode(Number(Fraction(abs(exponent)), exponent < 0), **result)


@_by_mode
def scaleb(x: int, y: int, /, *, a: Format, b: Fixed, **result: Unpack[Result]) -> int:
    """Return the code in ``o`` of x * 2^y for an integer y."""
    number = _decode(x, a)
    if isinstance(number.magnitude, Fraction):
        # From these powers on, the results of a number are beyond the range, or far below a tie at the smallest number.
        o = result["o"]
        sizes = number.magnitude, o.smallest, max(o.largest, -o.lowest)
        most = sum(abs(floor_log2(size)) for size in sizes if size) + o.width + 128
        power = max(-most, min(int(b.decode(y)), most))
        number = replace(number, magnitude=number.magnitude * Fraction(2) ** power)
    return _encode(number, **result)


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


@_by_mode
def convert(x: int, /, *, a: Format, **result: Unpack[Result]) -> int:
    """Return the code of x in ``o``."""
    return _encode(_decode(x, a), **result)


def split(x: int, /, *, a: Format, **result: Unpack[Result]) -> int:
    """Return the code of x in the compound format ``o``."""
    return _encode(_decode(x, a), **result)


def join(
    x: int,
    /,
    *,
    a: Compound,
    o: Format,
    rounding: Rounding = RN,
    saturate: bool = False,
    random: Sequence[int] | None = None,
) -> int:
    """Return the code in ``o`` of the sum of the parts of x, rounded after each addition."""
    *parts, total = (_decode(part, a.part) for part in a.codes_of(x))
    for part, word in zip(reversed(parts), random or [0] * len(parts), strict=True):
        code = _encode(_sum(part, total, rounding), o=o, rounding=rounding, saturate=saturate, random=word)
        total = _decode(code, o)
    return code


class Carried(NamedTuple):
    """Result of `sru` with ``increment=False``: floors, and the increment of each, 0 or 1."""

    floor: Any
    up: Any


def sru(
    x: Sequence[int],
    /,
    *,
    a: Format,
    o: Fixed,
    rounding: Rounding,
    saturate: bool = False,
    increment: bool = True,
    random: Sequence[int],
) -> list[int] | Carried:
    """Return the codes of all x in ``o``, each rounded with its own random word; or floors and increments."""
    lanes = list(zip(x, random, strict=True))
    if increment:
        return [convert(code, a=a, o=o, rounding=rounding, saturate=saturate, random=word) for code, word in lanes]
    floors, ups = [], []
    for code, word in lanes:
        places = Fraction(a.decode(code)) / o.smallest
        floors.append(math.floor(places) & ((1 << o.width) - 1))
        ups.append(rounding.round_signed(places, word) - math.floor(places))
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
        found = Comparison(0, 0, 1, nan.o, nan.o)
        return FlaggedComparison(*found, nan.flags) if flags else found
    less, equal = first.value < second.value, first.value == second.value
    ordered = (first, second) if less or (equal and first.negative) else (second, first)
    one, other = (_encode(number, **result) for number in ordered)
    if not flags:
        return Comparison(int(less), int(equal), 0, one, other)
    return FlaggedComparison(int(less), int(equal), 0, one.o, other.o, one.flags | other.flags)


def pwl(x: int, /, *, table: Segments, rounding: Rounding = RN, saturate: bool = False, random: int = 0) -> int:
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


def blockdequantize(
    x: Sequence[int],
    scale: int,
    /,
    *,
    a: Block,
    o: Format,
    rounding: Rounding = RN,
    saturate: bool = False,
    random: Sequence[int] | None = None,
) -> list[int]:
    """Return the codes in ``o`` of the elements x times the scale."""
    factor = _decode(scale, a.scale)
    return [
        _encode(_product(_decode(code, a.element), factor), o=o, rounding=rounding, saturate=saturate, random=word)
        for code, word in zip(x, random or [0] * len(x), strict=True)
    ]


def _block_terms(x: Sequence[int], y: Sequence[int], x_scale: int, y_scale: int, a: Block, b: Block) -> list[Number]:
    """Return the products of elements and scales."""
    factor = _product(_decode(x_scale, a.scale), _decode(y_scale, b.scale))
    pairs = zip(x, y, strict=True)
    return [_product(_product(_decode(p, a.element), _decode(q, b.element)), factor) for p, q in pairs]


def blockdot(
    x: Sequence[int],
    y: Sequence[int],
    x_scale: int,
    y_scale: int,
    start: int = 0,
    /,
    *,
    a: Block,
    b: Block,
    c: Format | None = None,
    **result: Unpack[Result],
) -> int:
    """Return the code of start plus the products of all elements and scales, rounded once."""
    total = _decode(start, c) if c is not None else Number(Fraction(0), False)
    for term in _block_terms(x, y, x_scale, y_scale, a, b):
        total = _sum(total, term, result.get("rounding", RN))
    return _encode(total, **result)


def blockmac(
    x: Sequence[int], y: Sequence[int], x_scale: int, y_scale: int, start: int, /, *, random: int = 0, **parameters: Any
) -> int:
    """Return the code of start plus the products of the elements of a step; parameters are those of `BlockMacSpec`."""
    spec = BlockMacSpec(**parameters)
    terms = _block_terms(x, y, x_scale, y_scale, spec.a, spec.b)
    return _step(spec, functools.reduce(lambda p, q: _sum(p, q, spec.rounding), terms), start, random)
