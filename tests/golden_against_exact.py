"""Comparison of the golden model on tensors with the exact model in fractions."""

import functools
import itertools
import math
from fractions import Fraction

import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import (
    INT8,
    POSIT8,
    POSIT16,
    POSIT32,
    POSIT64,
    RZ,
    Float,
    Rounding,
    Saturation,
    parse,
    stochastic,
)
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES

MODES = [Rounding.parse(text) for text in (*ROUNDING_MODES, "sr1", "sr3")]


def tensor(codes):
    """Convert codes to int64; 64-bit codes keep their bits."""
    return torch.tensor([code - (1 << 64) if code >> 63 else code for code in codes], dtype=torch.int64)


def columns_of(result):
    """Return the columns of a result as lists of ints."""
    columns = result if isinstance(result, tuple) else (result,)
    return [[code & ((1 << 64) - 1) for code in column.tolist()] for column in columns]


def differences(name, columns, words=None, **parameters):
    """Return the number of compared vectors, and those in which tensors and fractions differ."""
    more = {} if words is None else {"random": tensor(words)}
    results = columns_of(getattr(golden, name)(*map(tensor, columns), **parameters, **more))
    wrong = []
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = {} if words is None else {"random": words[index]}
        wanted = getattr(exact, name)(*codes, **parameters, **word)
        wanted = [code & ((1 << 64) - 1) for code in (wanted if isinstance(wanted, tuple) else (wanted,))]
        # A tensor holds 64-bit codes as negative numbers; the mask makes both equal.
        found = [column[index] for column in results]
        if found != wanted:
            wrong.append((codes, word, [hex(code) for code in wanted], [hex(code) for code in found]))
    return len(columns[0]), wrong


def every(formats, rounding, subtract=False):
    """Return all operands with all random words."""
    ranges = [range(1 << fmt.width) for fmt in formats] + [range(2)] * subtract + [range(1 << rounding.bits)]
    *columns, words = zip(*itertools.product(*ranges), strict=True)
    return [list(column) for column in columns], list(words) if rounding.bits else None


def aimed(rng, fmt, count, near):
    """Return codes with many special ones, exponents around ``near`` and mantissas at the ends."""
    if not isinstance(fmt, Float):
        return aimed_by_number(rng, fmt, count, near)
    codes = []
    for _ in range(count):
        choice = rng.random()
        if choice < 0.2:
            code = rng.getrandbits(fmt.width)
        elif choice < 0.35:
            special = (0, 1, 2, fmt.max_code, fmt.max_code + 1, (1 << fmt.man) - 1, 1 << fmt.man, fmt.nan_code)
            code = rng.choice(special) ^ (fmt.sign_code * rng.getrandbits(1))
        else:
            field = min(max(fmt.bias + near + rng.randint(-3, 3), 0), (1 << fmt.exp) - 1)
            mantissa = rng.choice((rng.getrandbits(fmt.man), 0, 1, (1 << fmt.man) - 1, 1 << max(fmt.man - 1, 0)))
            code = (rng.getrandbits(1) << (fmt.exp + fmt.man)) | (field << fmt.man) | (mantissa & ((1 << fmt.man) - 1))
        codes.append(code & ((1 << fmt.width) - 1))
    return codes


def aimed_by_number(rng, fmt, count, near):
    """Return codes as `aimed` does, for fixed point and posits, whose fields have no fixed position."""
    ones, half = (1 << fmt.width) - 1, 1 << (fmt.width - 1)
    codes = []
    for _ in range(count):
        choice = rng.random()
        if choice < 0.2:
            code = rng.getrandbits(fmt.width)
        elif choice < 0.35:
            # Zero, NaR or the smallest number, minpos, maxpos and their neighbours.
            code = rng.choice((0, half, 1, half - 1, ones, half + 1, 2, half - 2))
        else:
            fraction = rng.choice((Fraction(0), Fraction(rng.getrandbits(64), 1 << 64), 1 - Fraction(1, 1 << 70)))
            number = (1 + fraction) * Fraction(2) ** (near + rng.randint(-3, 3))
            code = fmt.encode(number if rng.getrandbits(1) else -number, RZ, saturate=True)
        codes.append(code & ones)
    return codes


FEW = [*MODES[:6], stochastic(2)]

TOY_FAMILIES = [parse(name) for name in ("posit5e1", "posit4", "fxp2.3", "ufxp2.2", "fxp3.1-wrap", "uint3-wrap")]


def overflows_by(fmt):
    """Return the values of ``saturate`` that make a difference."""
    return (
        tuple(Saturation) if isinstance(fmt, Float) or getattr(fmt, "overflow", None) == "wrap" else (Saturation.OFF,)
    )


WIDE_FAMILIES = [
    *(POSIT8, POSIT16, POSIT32, POSIT64, INT8),
    *map(parse, ("posit64e0", "posit31e4", "posit40e1", "int64", "uint64-wrap", "fxp30.34", "ufxp-20.70", "fxp70.-10")),
    *map(parse, ("fxp4.4", "fxp-3.40-wrap", "fp64", "fp32", "bf16-ftz", "e5m2", "e11m52-finite")),
]


def random_words(rng, rounding, count):
    """Return the random words of a rounding, if it takes any."""
    return [rng.getrandbits(rounding.bits) for _ in range(count)] if rounding.bits else None


def parameters_of(spec):
    """Return the arguments of golden functions for a description, with the words of its source."""
    return spec.parameters


INT8_WRAP = parse("int8-wrap")


def plus(x, y):
    """Add fractions exactly, or infinities and NaN as floats."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x + y
    return sum(float((z > 0) - (z < 0)) if isinstance(z, Fraction) else z for z in (x, y))


def times(x, y):
    """Multiply fractions exactly, or infinities and NaN as floats."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    return math.prod(float((z > 0) - (z < 0)) if isinstance(z, Fraction) else z for z in (x, y))


def read_register(spec, terms, starts, loads, clears, words):
    """Return the reading of an exact accumulator after each step, and its number of guard overflows."""
    end = Fraction(2) ** (spec.quire.top + spec.quire.carry)
    total, codes, overflows = Fraction(0), [], 0
    for index, term in enumerate(terms):
        base = spec.o.decode(starts[index]) if loads[index] else Fraction(0) if clears[index] else total
        total = plus(base, term)
        if isinstance(total, Fraction) and not -end <= total < end:
            total = math.copysign(math.inf, total)
            overflows += 1
        codes.append(
            spec.o.encode(total, spec.rounding, words[index] if words else 0, getattr(spec, "saturate", False))
        )
    return codes, overflows


STEPS = 200


def steps(rng, *formats):
    """Return the operands of a sequence with occasional new sums, the start values last."""
    columns = [aimed(rng, fmt, STEPS, 0) for fmt in formats]
    # NaN persists, so sums restart often enough that most have none.
    loads, clears = ([int(rng.random() < 0.05) for _ in range(STEPS)] for _ in range(2))
    # A sum of products of the largest numbers overflows a narrow carry guard.
    for column, fmt in zip(columns, formats, strict=True):
        column[100:140] = [fmt.encode(max(fmt.lowest, fmt.largest, key=abs))] * 40
    loads[100:140], clears[100:140] = [0] * 40, [1] + [0] * 39
    return *columns, loads, clears


def dots(xs, ys, starts=None, words=None, **parameters):
    """Compare rows of dot products in tensors and in fractions; return the rows that differ."""
    unsigned = functools.partial(map, lambda code: code & ((1 << 64) - 1))
    start = [] if starts is None else [tensor(starts)]
    rows = [torch.stack([tensor(row) for row in column]) for column in (xs, ys)]
    more = {}
    if words is not None:
        more = {"random": tensor(words) if isinstance(words[0], int) else torch.stack([tensor(row) for row in words])}
    found = golden.dot(*rows, *start, **parameters, **more).tolist()
    expected = []
    for index, row in enumerate(zip(xs, ys, strict=True)):
        start = [] if starts is None else [starts[index]]
        word = {} if words is None else {"random": words[index]}
        expected.append(exact.dot(*row, *start, **parameters, **word))
    pairs = zip(unsigned(found), unsigned(expected), strict=True)
    return [(xs[i], ys[i], hex(q), hex(p)) for i, (p, q) in enumerate(pairs) if p != q]
