"""Vectors of a run: all inputs if they are few, else directed and random vectors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfulp.hdl.formats import Format
from halfulp.hdl.specs.formula import Role

from .directed import NO_CORNERS, Directed, sums_of
from .fields import Grid, words
from .ports import Codes, Columns, Ports
from .reference import reference
from .space import Space

if TYPE_CHECKING:
    from halfulp.units import Unit

EXHAUSTIVE_BITS = 16
"""Largest total width of operands that are enumerated."""

MOST_BITS = 20
"""Largest total width of operands, controls and random words for which random words are enumerated too."""

DEFAULT = 1 << 19
"""Default number of vectors of a run that is not exhaustive."""

CORNER_WORDS = 1 << 12
"""Number of vectors whose random word is at the threshold between rounding down and up."""

EXACT_ROWS, FEW_EXACT_ROWS = 1 << 11, 1 << 7
"""Number of vectors per strategy that are computed in fractions: in a run, and in each chunk of a sweep."""


@dataclass(frozen=True)
class Vectors:
    """Vectors of a run.

    Attributes
    ----------
    codes : dict
        Array of codes for each input.
    count : int
        Length of the arrays.
    what : str
        Description of the choice.
    exhaustive : bool
        True if the vectors are all inputs.
    """

    codes: dict[str, Codes]
    count: int
    what: str
    exhaustive: bool

    def take(self, index: "np.ndarray") -> dict[str, Codes]:
        """Select vectors by index."""
        return {name: column[index] for name, column in self.codes.items()}


def make(
    inputs: Ports, results: list[Format], *, seed: int, limit: int | None = None, corners: Columns = NO_CORNERS
) -> Vectors:
    """Choose the vectors for a unit.

    Parameters
    ----------
    inputs : Ports
        Inputs of the unit.
    results : list of Format
        Formats of the result and of a rounded product.
    seed : int
        Seed of all random choices.
    limit : int, optional
        Maximum number of vectors.
    corners : mapping of str to Codes
        Corner codes of operands, by port.
    """
    space = Space.of(inputs)
    rng = np.random.default_rng(seed)
    total = space.bits + space.random_bits
    if space.operand_bits <= EXHAUSTIVE_BITS and (limit is None or limit >= 1 << space.bits):
        if total <= MOST_BITS and (limit is None or limit >= 1 << total):
            what = "exhaustive" + (", with every random word" if space.random_bits else "")
            codes = _full(space.codes(0, 1 << total, with_random=True), 1 << total)
            return Vectors(codes, 1 << total, what, True)
        repeats = max(1, (limit or DEFAULT) >> space.bits)
        count = repeats << space.bits
        codes = _full(space.codes(0, count), count) | random_words(inputs, count, rng)
        return Vectors(codes, count, f"exhaustive, with {repeats} random word{'s' * (repeats > 1)} each", True)
    count = min(limit or DEFAULT, 1 << min(total, 62))
    codes = sampled(inputs, results, count, rng, EXACT_ROWS, corners)
    return Vectors(codes, count, "sampled, directed and random", False)


def sampled(
    inputs: Ports,
    results: list[Format],
    count: int,
    rng: np.random.Generator,
    exact_rows: int = FEW_EXACT_ROWS,
    corners: Columns = NO_CORNERS,
) -> dict[str, Codes]:
    """Choose directed and random vectors, in random order."""
    columns = inputs.place(
        Directed(inputs.operands, inputs.selected.pairs, results, rng, exact_rows, corners).rows(count), rng
    )
    controls = {
        port.name: rng.integers(0, 1 << port.width, count, dtype=np.uint64)
        for port in inputs
        if port.fmt is None and port.pick is None and port.role is not Role.RANDOM
    }
    if "load" in controls:
        # Every vector has its own start value; load has priority over clear.
        controls["load"] = np.ones(count, dtype=np.uint64)
    return columns | controls | random_words(inputs, count, rng)


def random_words(inputs: Ports, count: int, rng: np.random.Generator) -> dict[str, Codes]:
    """Choose words for random ports; one in eight is zero, one in eight is all ones."""
    rows = {}
    for port in inputs:
        if port.role is Role.RANDOM:
            anything, kind = words(rng, count, port.width), rng.integers(0, 8, count)
            ones = np.uint64((1 << port.width) - 1)
            rows[port.name] = np.where(kind == 0, np.uint64(0), np.where(kind == 1, ones, anything))
    return rows


def with_corner_words(unit: "Unit", codes: dict[str, Codes]) -> dict[str, Codes]:
    """Set the random words of the first vectors to the smallest word that rounds up, or to the one before.

    Long random words rarely hit this threshold. It is found by bisection with the golden model; if the word has no
    effect, any word is used.
    """
    bits = unit.spec.rounding.bits
    if not bits or "random" not in codes:
        return codes
    some = {name: column[:CORNER_WORDS] for name, column in codes.items()}
    count = len(some["random"])
    low, high = np.zeros(count, dtype=np.uint64), np.full(count, (1 << bits) - 1, dtype=np.uint64)
    top = _results(unit, some, high)
    for _ in range(bits):
        middle = low + (high - low) // np.uint64(2)
        reached = _results(unit, some, middle) == top
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + np.uint64(1), high))
    before = np.arange(count) % 2 == 1
    chosen = codes["random"].copy()
    chosen[:count] = np.where(before & (high > 0), high - np.uint64(1), high)
    return codes | {"random": chosen}


def _results(unit: "Unit", codes: dict[str, Codes], words: Codes) -> Codes:
    results = reference(unit, codes | {"random": words})
    return results["o" if "o" in results else "maximum"]


def chains(inputs: Ports, results: list[Format], count: int, seed: int, interleave: int = 1) -> dict[str, Codes]:
    """Choose chained steps for a unit with state: sums of several steps, ended by load or clear.

    The first steps add to the reset state. Most operands are around one, so that sums neither overflow nor underflow
    soon. Some steps subtract the previous product of their sum, which is ``interleave`` steps before, some operands are
    special values, and load often has a corner case.
    """
    rng = np.random.default_rng(seed)
    grids = {name: Grid.of(fmt) for name, fmt in inputs.formats.items()}
    codes = sampled(inputs, results, count, rng)
    calm = rng.random(count) < 0.85
    (start,) = inputs.having(Role.START)
    for name, grid in grids.items():
        if name == start:
            codes[name] = np.where(calm, codes[name], rng.choice(grid.corner_codes(), count))
        else:
            codes[name] = np.where(calm, grid.middling(rng, count), codes[name])
    undone = np.flatnonzero((rng.random(count) < 0.1) & (np.arange(count) >= interleave))
    for name, column in codes.items():
        if name not in inputs.having(Role.RANDOM, Role.STATE, Role.START):
            column[undone] = column[undone - interleave]
    # Subtract the last products: with the subtract control, or by negating one operand of each term.
    if "subtract" in codes:
        codes["subtract"][undone] ^= np.uint64(1)
    else:
        for factor, *_ in sums_of(inputs.having(Role.OPERAND), inputs.pairs)[0]:
            codes[factor][undone] = grids[factor].negated(codes[factor][undone])
    load = rng.random(count) < 0.03
    codes["load"] = load.astype(np.uint64)
    # If both are set, load has priority.
    codes["clear"] = (rng.random(count) < np.where(load, 0.3, 0.03)).astype(np.uint64)
    codes["load"][: 16 * interleave] = codes["clear"][: 16 * interleave] = 0
    return codes


def _full(codes: dict[str, Codes], count: int) -> dict[str, Codes]:
    return {
        name: np.broadcast_to(column, count).copy() if len(column) != count else column
        for name, column in codes.items()
    }
