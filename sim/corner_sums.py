"""Operands of formulas that multiply exact sums: results that are hard to round, and sums that cancel."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from halfulp.hdl.formats import Format
from halfulp.hdl.specs.formula import Formula, Sum

from .corner_operands import exponents, numbers, targets, truncated, values
from .fields import Codes, Grid, Ints

Rows = dict[str, Codes]


@lru_cache(maxsize=16)
def of_formula(formula: Formula, operands: tuple[tuple[str, Format], ...], n: int) -> Rows:
    """Return n vectors of operands, in equal parts for each of them: it is computed from the others and a result.

    Half of the results are numbers, ties, or next to these; a quarter of the sums cancel, and in the last quarter an
    exact sum before them. A sum is linear in each operand, so that two values of it give the operand.
    """
    rng, grids = np.random.default_rng(0), {name: Grid.of(fmt) for name, fmt in operands}
    sums, last = formula.sums, formula.sums[-1]
    assert last.o is not None
    o = Grid.of(last.o)
    goals, kind = targets(o, rng, n), rng.integers(0, 4, n)
    size, zero = exponents(goals), [Fraction(0)] * n
    rows = {}
    for name, grid in grids.items():
        choices = [
            size - rng.integers(-3, o.man + 4, n),
            rng.integers(grid.quantum, grid.emax + 1, n),
            rng.integers(-3, 4, n),
        ]
        rows[name] = numbers(grid, np.choose(rng.integers(0, 3, n), choices), rng)
    solved = rng.integers(0, len(grids), n)
    for place, step in enumerate(sums[:-1]):
        alone = [term.names[0] for term in step.terms if len(term.names) == 1 and term.names[0] in grids]
        if step.o is None and alone:
            _solve(rows, grids, sums[: place + 1], str(rng.choice(alone)), np.flatnonzero(kind == 0), zero, rng)
            # The result follows from an operand that keeps the sum.
            free = [index for index, name in enumerate(grids) if all(name not in term.names for term in step.terms)]
            solved = np.where(kind == 0, rng.choice(free or [len(grids)], n), solved)
    goals = [Fraction(0) if drawn_kind == 1 else goal for drawn_kind, goal in zip(kind.tolist(), goals, strict=True)]
    for index, name in enumerate(grids):
        _solve(rows, grids, sums, name, np.flatnonzero(solved == index), goals, rng)
    return rows


def _solve(
    rows: Rows,
    grids: Mapping[str, Grid],
    sums: Sequence[Sum],
    name: str,
    at: Ints,
    goals: Sequence[Fraction],
    rng: np.random.Generator,
) -> None:
    """Choose an operand of some vectors so that the last sum is its goal, or as near as the format allows."""
    columns = {other: values(grid, rows[other][at]) for other, grid in grids.items()}
    solutions = []
    for place, index in enumerate(at.tolist()):
        given = {other: column[place] for other, column in columns.items()}
        low, high = (_value(sums, given | {name: Fraction(x)}) for x in (0, 1))
        exact = (goals[index] - low) / (high - low) if high != low else given[name]
        solutions.append(exact if grids[name].negatives else abs(exact))
    moved = rng.choice(np.array([0, 0, 1, 1, -1, 2]), len(at))
    rows[name][at] = grids[name].neighbour(truncated(grids[name], solutions), moved)


def _value(sums: Sequence[Sum], given: Mapping[str, Fraction]) -> Fraction:
    """Return the exact value of the last sum, without roundings and controls."""
    known, total = dict(given), Fraction(0)
    for step in sums:
        total = Fraction(0)
        for term in step.terms:
            total += math.prod(known[name] for name in term.names) * (-1 if term.negative else 1)
        known[step.name] = total
    return total
