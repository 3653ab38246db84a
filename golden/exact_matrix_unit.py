"""Steps of matrix units on single codes in fractions: plainly right, slow, and without code shared with the tensors."""

import math
from collections.abc import Sequence
from fractions import Fraction

from halfulp.hdl.formats import RN, Block, Float
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.mma import MmaSpec

Number = tuple[Fraction, int]
"""Value, and exponent of its significand."""


def lanes(spec: MmaSpec, operands: Sequence[Sequence[int]], starts: Sequence[int]) -> list[int]:
    """Return the codes of the accumulators of all rows and columns, one row after the other.

    ``operands`` are those of `step`, for all rows or columns one after the other, and ``starts`` the accumulators.
    """

    def part(codes: Sequence[int], place: int, parts: int) -> Sequence[int]:
        size = len(codes) // parts
        return codes[place * size : (place + 1) * size]

    codes = []
    for lane, start in enumerate(starts):
        places = [(lane // spec.columns, spec.rows), (lane % spec.columns, spec.columns)] * 2
        a, b, *scales = (part(each, *place) for each, place in zip(operands, places, strict=False))
        codes.append(step(spec, a, b, start, *scales))
    return codes


def step(
    spec: MmaSpec,
    x: Sequence[int],
    y: Sequence[int],
    start: int,
    x_scales: Sequence[int] = (),
    y_scales: Sequence[int] = (),
) -> int:
    """Return the code of the accumulator after a step; parameters as for `halfulp.golden.matrix_unit.step`."""
    if spec.kind == "pairwise":
        return _pairwise(spec, x, y, start)
    a, b = spec.elements
    ones: list[Fraction | float] = [Fraction(1)] * spec.k
    scales = ones, ones
    if isinstance(spec.a, Block) and isinstance(spec.b, Block):
        scales = _scales(spec.a, x_scales), _scales(spec.b, y_scales)
    reals: list[list[Fraction | float]] = [
        [_times(float_of(fmt, code), scale) for code, scale in zip(codes, of_codes, strict=True)]
        for fmt, codes, of_codes in zip((a, b), (x, y), scales, strict=True)
    ]
    acc = float_of(spec.o, start)
    products = [_times(p, q) for p, q in zip(reals[0], reals[1], strict=True)]
    if spec.kind == "staged":
        over = Fraction(2) ** (spec.o.emax + 1)
        products = [_infinite(p) if isinstance(p, Fraction) and abs(p) >= over else p for p in products]
    special = [term for term in (*products, acc) if isinstance(term, float)]
    if special:
        total = sum(special)
        return _special(spec, total)
    assert isinstance(acc, Fraction)
    values = [Fraction(product) for product in products]
    if spec.kind == "exact":
        exact = sum(values, acc)
        return _code(spec, exact, exact < 0)
    if spec.kind == "staged":
        return _staged(spec, x, y, acc)
    terms: list[Number] = []
    for first in range(0, spec.k, spec.group):
        at = range(first, first + spec.group)
        exponent = _exponent(scales[0][first]) + _exponent(scales[1][first])
        if isinstance(spec.a, Block) and spec.group > 1:
            assert isinstance(spec.b, Block)
            # A scale has the exponent of its significand, as a number has.
            exponent = sum(
                max(_exponent(scale[first]), _lowest(block.scale))
                for scale, block in zip(scales, (spec.a, spec.b), strict=True)
            )
        else:
            exponent += _exponent_of(a, x[first]) + _exponent_of(b, y[first])
        assert spec.zero is not None
        lost = not any(values[place] for place in at)
        terms.append((sum((values[place] for place in at), Fraction(0)), spec.zero if lost else exponent))
    assert spec.zero is not None
    terms.append((acc, spec.zero if acc == 0 else _exponent_of(spec.o, start)))
    assert spec.fraction is not None
    unit = Fraction(2) ** (max(exponent for _, exponent in terms) - spec.fraction)
    aligned = sum(int(value / unit) for value, _ in terms) * unit
    code = _code(spec, aligned, aligned < 0)
    return 0 if code == spec.o.sign_code else code


def float_of(fmt: Float, code: int) -> Fraction | float:
    """Return the number of a code: a fraction, or an infinity or NaN."""
    return fmt.decode(code)


def _scales(block: Block, codes: Sequence[int]) -> list[Fraction | float]:
    """Return the scale of each element; the sign of a scale is ignored."""
    values = [block.scale.decode(code) for code in codes]
    magnitudes = [abs(value) if isinstance(value, Fraction) else math.nan for value in values]
    return [value for value in magnitudes for _ in range(block.length)]


def _times(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    """Return a product; one of an infinity or NaN as a float."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    signs = [math.copysign(1, value) if value else 0.0 for value in (x, y)]
    if any(value != value for value in (x, y)) or 0.0 in signs:
        return math.nan
    return math.copysign(math.inf, signs[0] * signs[1])


def _special(spec: MmaSpec, value: float) -> int:
    """Return the code of an infinity or NaN."""
    return spec.nan_code if math.isnan(value) else spec.o.infinity(value < 0)


def _infinite(x: Fraction | float) -> float:
    return math.copysign(math.inf, x)


def _exponent(value: Fraction | float) -> int:
    return floor_log2(value) if isinstance(value, Fraction) and value else 0


def _lowest(fmt: object) -> int:
    return fmt.emin if isinstance(fmt, Float) else -1000


def _exponent_of(fmt: Float, code: int) -> int:
    """Return the exponent of a significand: that of the number, but at least the lowest one of the format."""
    value = fmt.decode(code)
    return max(floor_log2(abs(value)), fmt.emin) if isinstance(value, Fraction) and value else fmt.emin


def _code(spec: MmaSpec, value: Fraction, negative: bool) -> int:
    """Round a sum to the result; beyond the largest number it is infinite."""
    o = spec.o if spec.through is None else spec.through
    if abs(value) >= Fraction(2) ** (o.emax + 1):
        return spec.o.infinity(negative)
    return o.encode_magnitude(abs(value), negative, spec.rounding) << spec.o.man - o.man


def _down(value: Fraction, exponent: int) -> Fraction:
    """Round down to a multiple of a power of two."""
    unit = Fraction(2) ** exponent
    return (value / unit).__floor__() * unit


def _staged(spec: MmaSpec, x: Sequence[int], y: Sequence[int], acc: Fraction) -> int:
    a, b = spec.elements
    assert spec.fraction is not None
    own = max(_exponent(abs(acc)) if acc else spec.o.emin, spec.o.emin)
    sums: list[Number] = []
    for half in range(spec.halves):
        terms = [
            (Fraction(a.decode(p)) * Fraction(b.decode(q)), _exponent_of(a, p) + _exponent_of(b, q))
            for p, q in zip(x[half :: spec.halves], y[half :: spec.halves], strict=True)
        ]
        top = max((exponent for value, exponent in terms if value), default=-999)
        unit = Fraction(2) ** (top - spec.fraction)
        sums.append((sum(int(value / unit) for value, _ in terms) * unit, top))
    top = max(exponent for _, exponent in sums)
    if spec.halves == 2:
        total = sum((_down(value, top - spec.fraction) for value, _ in sums), Fraction(0))
    else:
        total = sums[0][0]
    largest = max(top, own)
    held = _down(acc, largest - spec.fraction)
    if spec.halves == 2 and own < largest - spec.fraction - 1:
        held = Fraction(0)
    value = _down(total, largest - 32) + held
    value = _down(value, max(_exponent(abs(value)), spec.o.emin) - 31) if value else value
    return _code(spec, value, value < 0)


def _pairwise(spec: MmaSpec, x: Sequence[int], y: Sequence[int], start: int) -> int:
    """Add pairs; numbers are (value, sign), because a sum of two zeros of one sign has that sign."""
    o = spec.o

    def flushed(fmt: Float, code: int) -> Fraction | float:
        value = float_of(fmt, code)
        return Fraction(0) if isinstance(value, Fraction) and abs(value) < Fraction(2) ** fmt.emin else value

    def rounded(value: Fraction | float, negative: bool) -> int:
        if isinstance(value, float):
            return _special(spec, value)
        code = o.encode_magnitude(abs(value), negative, RN)
        held = o.decode(code)
        return o.sign_code * negative if isinstance(held, Fraction) and abs(held) < Fraction(2) ** o.emin else code

    def added(p: int, q: int) -> int:
        value = o.decode(p) + o.decode(q)
        return rounded(value, value < 0 if value else bool(p & q & o.sign_code))

    a, b = spec.elements
    terms = []
    for p, q in zip(x, y, strict=True):
        left, right = flushed(a, p), flushed(b, q)
        terms.append(rounded(_times(left, right), (left < 0) != (right < 0)))
    value = flushed(o, start)
    total = rounded(value, value < 0)
    assert spec.fraction is not None
    for first in range(0, spec.k, spec.fraction):
        level = terms[first : first + spec.fraction]
        while len(level) > 1:
            level = [added(level[place], level[place + 1]) for place in range(0, len(level), 2)]
        total = added(total, level[0])
    return total
