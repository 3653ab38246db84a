"""Operands with results that are hard to round, computed backwards from the exact result, one vector at a time."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from halfulp.hdl.formats import RZ

from .fields import Codes, Grid, Ints, words

Columns = list[Codes]
"""Codes of each operand, in the order of their grids."""


def targets(o: Grid, rng: np.random.Generator, n: int) -> list[Fraction]:
    """Choose exact values where rounding changes: numbers, ties between neighbours, and quarter steps between them.

    Two fifths of the values are at the edges of the range, the others anywhere.
    """
    edge_values = o.values_near_edges(0), o.values_near_edges(1)
    codes = rng.integers(0, max(o.max_code, 1), n, dtype=np.uint64).tolist()
    quarters = rng.choice(np.array([0, 2, 2, 1, 3]), n).tolist()
    edges = rng.random(n).tolist()
    kinds = rng.random(n).tolist()
    signs = rng.choice(np.array([-1, 1]), n).tolist() if o.negatives else [1] * n
    sides = [edge_values[sign < 0] for sign in signs]
    return [
        sign * (side[int(edge * len(side))] if kind < 0.4 else o.between(code, quarter, int(sign < 0)))
        for sign, side, kind, edge, code, quarter in zip(signs, sides, kinds, edges, codes, quarters, strict=True)
    ]


def sums(terms: Sequence[tuple[Grid, ...]], o: Grid, rng: np.random.Generator, n: int) -> Columns:
    """Choose operands whose sum of terms, each an operand or a product of two, is next to a target, on either side.

    The last operand is computed from the target and the others. Terms before the last are at most as large as the
    result.
    """
    rest = targets(o, rng, n)
    size = exponents(rest)
    columns = Columns()
    for term in terms[:-1]:
        made = _sized(term, size - rng.integers(-3, o.man + 4, n), rng)
        decoded = (values(grid, codes) for grid, codes in zip(term, made, strict=True))
        rest = [left - math.prod(factors) for left, *factors in zip(rest, *decoded, strict=True)]
        columns += made
    *factors, last = terms[-1]
    for a in factors:
        anywhere = rng.integers(a.quantum, a.emax + 1, n)
        x = numbers(a, np.where(rng.random(n) < 0.5, exponents(rest) // 2, anywhere), rng)
        rest = [left / value if value else Fraction(1) for left, value in zip(rest, values(a, x), strict=True)]
        columns.append(x)
        if not last.negatives:
            # The nearest number to a negative quotient would always be zero.
            rest = [abs(left) for left in rest]
    # Choose the truncated number or a neighbour of it.
    return [*columns, last.neighbour(truncated(last, rest), rng.choice(np.array([0, 0, 1, 1, -1, 2]), n))]


def values(grid: Grid, codes: Codes) -> list[Fraction]:
    """Decode codes to fractions; NaN and infinities become zero."""
    numbers = [grid.fmt.decode(code) for code in codes.tolist()]
    return [number if isinstance(number, Fraction) else Fraction(0) for number in numbers]


def truncated(grid: Grid, numbers: Sequence[Fraction]) -> Codes:
    """Encode numbers, truncated to the format."""
    return np.array([grid.fmt.encode(number, RZ, saturate=True) for number in numbers], dtype=np.uint64)


def _sized(term: tuple[Grid, ...], exponent: Ints, rng: np.random.Generator) -> Columns:
    """Choose operands of a term with magnitude about 2^exponent."""
    if len(term) == 1:
        return [numbers(term[0], exponent, rng)]
    a, b = term
    low, high = np.maximum(a.quantum, exponent - b.emax), np.minimum(a.emax, exponent - b.quantum)
    first = rng.integers(np.minimum(low, high), np.maximum(low, high) + 1)
    return [numbers(a, first, rng), numbers(b, exponent - first, rng)]


def numbers(grid: Grid, exponent: Ints, rng: np.random.Generator) -> Codes:
    """Choose numbers with these exponents, clipped to the format; mantissas are random, all zeros or all ones."""
    n = len(exponent)
    zero = np.zeros(n, dtype=np.uint64)
    mantissa = np.choose(rng.integers(0, 5, n), [words(rng, n), zero, zero + np.uint64(1), ~zero, words(rng, n)])
    return grid.compose(rng.integers(0, 2, n), np.clip(exponent, grid.quantum, grid.emax), mantissa)


def exponents(numbers: Sequence[Fraction]) -> Ints:
    lengths = [(number.numerator.bit_length(), number.denominator.bit_length()) for number in numbers]
    return np.array([above - below if above else 0 for above, below in lengths], dtype=np.int64)
