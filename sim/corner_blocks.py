"""Blocks of numbers at which conversions and products of blocks differ from those of other blocks."""

from fractions import Fraction
from functools import lru_cache

import numpy as np

from halfulp.hdl.formats import Block, Format

from .corner_operands import targets, truncated
from .fields import Codes, Grid, Ints

COUNT = 1 << 6
"""Number of blocks of each kind."""

Lanes = list[Codes]
"""Codes of each element of some blocks."""


@lru_cache(maxsize=16)
def blocks_of_numbers(fmt: Format, to: Block) -> dict[str, Codes]:
    """Return the elements ``a0``, ``a1``, ... of blocks to convert.

    All numbers are zero, or just below a power of two, so that their elements saturate, or at one end of the format,
    where the scale is at its own end; one number is special; or each element is at a number or tie.
    """
    grid, rng, length = Grid.of(fmt), np.random.default_rng(0), to.length
    low = min(grid.quantum, grid.emin)
    anywhere = rng.integers(low, grid.emax + 1, COUNT)
    kinds = [_zeros(grid, rng, length), _with_special(grid, rng, length)]
    kinds += [_of_exponent(grid, rng, length, exponent, full=True) for exponent in (anywhere, anywhere * 0 + grid.emax)]
    kinds += [_of_exponent(grid, rng, length, anywhere * 0 + end, full=False) for end in (low, grid.emax)]
    kinds.append(_ties(fmt, to, rng))
    return _ports("a", kinds)


@lru_cache(maxsize=16)
def pairs_of_blocks(a: Format, b: Format, k: int) -> dict[str, Codes]:
    """Return the elements ``a0``, ``b0``, ``a1``, ... of blocks to multiply.

    One block is zero or has a special number, all products are the largest, with one sign or both, or the smallest.
    """
    grids, rng = (Grid.of(a), Grid.of(b)), np.random.default_rng(0)
    calm, special, zeros, largest, smallest = (
        [make(grid, rng, k) for grid in grids] for make in (_calm, _with_special, _zeros, _largest, _smallest)
    )
    pairs = [(zeros[0], calm[1]), (calm[0], zeros[1]), (zeros[0], special[1]), (special[0], calm[1])]
    pairs += [(special[0], special[1]), (largest[0], largest[1]), (smallest[0], smallest[1]), (largest[0], zeros[1])]
    positive = [[np.full(COUNT, grid.fmt.max_code, dtype=np.uint64)] * k for grid in grids]
    pairs.append((positive[0], positive[1]))
    return _ports("a", [left for left, _ in pairs]) | _ports("b", [right for _, right in pairs])


def _ports(name: str, kinds: list[Lanes]) -> dict[str, Codes]:
    return {f"{name}{lane}": np.concatenate(parts) for lane, parts in enumerate(zip(*kinds, strict=True))}


def _signs(rng: np.random.Generator) -> Ints:
    return rng.integers(0, 2, COUNT)


def _zeros(grid: Grid, rng: np.random.Generator, length: int) -> Lanes:
    return [grid.signed(_signs(rng), np.zeros(COUNT, dtype=np.uint64)) for _ in range(length)]


def _calm(grid: Grid, rng: np.random.Generator, length: int) -> Lanes:
    return [grid.middling(rng, COUNT) for _ in range(length)]


def _largest(grid: Grid, rng: np.random.Generator, length: int) -> Lanes:
    return [grid.signed(_signs(rng), np.full(COUNT, grid.max_code, dtype=np.uint64)) for _ in range(length)]


def _smallest(grid: Grid, rng: np.random.Generator, length: int) -> Lanes:
    return [grid.signed(_signs(rng), np.ones(COUNT, dtype=np.uint64)) for _ in range(length)]


def _with_special(grid: Grid, rng: np.random.Generator, length: int) -> Lanes:
    """Choose calm numbers, one of them at an end of the range, infinite or NaN."""
    place, special = rng.integers(0, length, COUNT), rng.choice(grid.extremes(), COUNT)
    return [np.where(place == lane, special, codes) for lane, codes in enumerate(_calm(grid, rng, length))]


def _of_exponent(grid: Grid, rng: np.random.Generator, length: int, exponent: Ints, *, full: bool) -> Lanes:
    """Choose numbers with one exponent in a block; with ``full``, the largest of that exponent."""
    ones = np.full(COUNT, (1 << grid.man) - 1, dtype=np.uint64)

    def mantissa() -> Codes:
        return ones if full else rng.integers(0, 1 << grid.man, COUNT, dtype=np.uint64)

    return [grid.compose(_signs(rng), exponent, mantissa()) for _ in range(length)]


def _ties(fmt: Format, to: Block, rng: np.random.Generator) -> Lanes:
    """Choose scales, and numbers that are elements or ties of elements times the scale."""
    element = Grid.of(to.element)
    first, last = fmt.smallest / to.element.smallest, fmt.largest / to.element.largest
    codes = [code for code in range(1 << min(to.scale.width, 12)) if _is_between(to.scale.decode(code), first, last)]
    scales = [Fraction(1)] * COUNT
    if codes:
        scales = [Fraction(to.scale.decode(code)) for code in rng.choice(codes, COUNT).tolist()]
    # The largest element sets the scale.
    lanes = [truncated(Grid.of(fmt), [scale * to.element.largest for scale in scales])]
    for _ in range(1, to.length):
        pairs = zip(scales, targets(element, rng, COUNT), strict=True)
        lanes.append(truncated(Grid.of(fmt), [scale * number for scale, number in pairs]))
    return [lanes[place] for place in rng.permutation(to.length)]


def _is_between(value: object, first: Fraction, last: Fraction) -> bool:
    return isinstance(value, Fraction) and first <= value <= last
