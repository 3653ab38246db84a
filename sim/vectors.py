"""The vectors of a run: all there are if they are few, else directed and random ones."""

from dataclasses import dataclass

import numpy as np

from halfulp.hdl.formats import Float, Format

from .directed import Directed
from .fields import landmarks
from .loop import Codes
from .ports import RANDOM, Ports
from .space import Space

EXHAUSTIVE_BITS = 16
"""Operands of so many bits in all are run through completely."""

MOST_BITS = 20
"""Random words are run through completely, too, while operands, controls and words are no more bits than this."""

DEFAULT = 1 << 19
"""Vectors of a run that is not exhaustive, unless told otherwise."""

EXACT_ROWS, FEW_EXACT_ROWS = 1 << 11, 1 << 7
"""Vectors of one strategy that are worked out with exact fractions, of which a processor does some ten thousand a
second: in a run, and in each of many parts of one."""


@dataclass(frozen=True)
class Vectors:
    """Vectors of a run.

    Attributes
    ----------
    codes : dict
        For each input an array of codes.
    count : int
        Length of the arrays.
    what : str
        How they were chosen, in words.
    exhaustive : bool
        Whether they are all there are.
    """

    codes: dict[str, Codes]
    count: int
    what: str
    exhaustive: bool

    def take(self, index: "np.ndarray") -> dict[str, Codes]:
        """Some of the vectors."""
        return {name: column[index] for name, column in self.codes.items()}


def make(inputs: Ports, results: list[Format], *, seed: int, limit: int | None = None) -> Vectors:
    """Vectors for a unit.

    Parameters
    ----------
    inputs : Ports
        Of the unit.
    results : list of Format
        What it rounds to: the result format first, then that of a rounded product.
    seed : int
        Of everything random.
    limit : int, optional
        Largest number of vectors.
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
        plural = "" if repeats == 1 else "s"
        return Vectors(codes, count, f"exhaustive, with {repeats} random word{plural} each", True)
    count = min(limit or DEFAULT, 1 << min(total, 62))
    codes = sampled(inputs, results, count, rng, EXACT_ROWS)
    return Vectors(codes, count, "sampled, directed and random", False)


def sampled(
    inputs: Ports, results: list[Format], count: int, rng: np.random.Generator, exact_rows: int = FEW_EXACT_ROWS
) -> dict[str, Codes]:
    """Directed and random vectors in random order, as many as asked for."""
    operands = {port.name: port.fmt for port in inputs if isinstance(port.fmt, Float)}
    directed = Directed(operands, [fmt for fmt in results if isinstance(fmt, Float)], rng, exact_rows)
    strategies = directed.strategies()
    total = sum(weight for weight, _ in strategies)
    parts = [maker(max(count * weight // total, 64)) for weight, maker in strategies]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in operands}
    missing = count - len(columns["a"])
    if missing > 0:
        more = directed.aligned_products(missing) if len(operands) > 1 else directed.cuts(missing)
        columns = {name: np.concatenate([column, more[name]]) for name, column in columns.items()}
    order = rng.permutation(len(columns["a"]))[:count]
    columns = {name: column[order] for name, column in columns.items()}
    controls = {
        port.name: rng.integers(0, 1 << port.width, count, dtype=np.uint64)
        for port in inputs
        if port.name not in operands and port.name not in RANDOM
    }
    if "load" in controls:
        # Every vector brings its own start value; load goes before clear, whatever clear says.
        controls["load"] = np.ones(count, dtype=np.uint64)
    return columns | controls | random_words(inputs, count, rng)


def random_words(inputs: Ports, count: int, rng: np.random.Generator) -> dict[str, Codes]:
    """Random words for the ports that take some: one in eight all zeros, one in eight all ones."""
    rows = {}
    for port in inputs:
        if port.name in RANDOM:
            words = rng.integers(0, (1 << port.width) - 1, count, dtype=np.uint64, endpoint=True)
            kind = rng.integers(0, 8, count)
            ones = np.uint64((1 << port.width) - 1)
            rows[port.name] = np.where(kind == 0, np.uint64(0), np.where(kind == 1, ones, words))
    return rows


def chains(inputs: Ports, results: list[Format], count: int, seed: int) -> dict[str, Codes]:
    """Steps that build on each other, for a unit with state: sums of some length, ended by load or clear.

    The first steps add to what reset leaves. Most operands are of middling size, so that sums neither overflow at once
    nor drown; some repeat the last ones with the other sign, some are specials, and load often brings a boundary.
    """
    rng = np.random.default_rng(seed)
    operands = {port.name: port.fmt for port in inputs if isinstance(port.fmt, Float)}
    codes = sampled(inputs, results, count, rng)
    calm = rng.random(count) < 0.85
    for name, fmt in operands.items():
        if name == "c":
            marks = landmarks(fmt)
            codes[name] = np.where(calm, codes[name], rng.choice(marks, count))
            continue
        # Around one, or as near to it as the format comes.
        middle = min(max(fmt.bias, 1), fmt.max_code >> fmt.man)
        low, high = max(middle - 4, 0) << fmt.man, min((middle + 4) << fmt.man, fmt.max_code)
        magnitude = rng.integers(low, high, count, dtype=np.uint64, endpoint=True)
        sign = rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(fmt.width - 1)
        codes[name] = np.where(calm, magnitude | sign, codes[name])
    undone = np.flatnonzero((rng.random(count) < 0.1) & (np.arange(count) > 0))
    codes["a"][undone] = codes["a"][undone - 1] ^ np.uint64(operands["a"].sign_code)
    codes["b"][undone] = codes["b"][undone - 1]
    load = rng.random(count) < 0.03
    codes["load"] = load.astype(np.uint64)
    # Where both are asked for, load goes first.
    codes["clear"] = (rng.random(count) < np.where(load, 0.3, 0.03)).astype(np.uint64)
    codes["load"][:16] = codes["clear"][:16] = 0
    return codes


def _full(codes: dict[str, Codes], count: int) -> dict[str, Codes]:
    return {
        name: np.broadcast_to(column, count).copy() if len(column) != count else column
        for name, column in codes.items()
    }
