"""Directed vectors for interacting operands: alignment, cancellation, ties, and sticky bits next to a tie."""

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from halfulp.hdl.formats import Format

from . import corner_operands
from .classes import Classes
from .fields import Codes, Grid, Ints, words
from .ports import Columns

Rows = dict[str, Codes]
Term = tuple[str, ...]
"""Port names of a term: one operand, or two that are multiplied."""

NO_CORNERS: Columns = MappingProxyType({})

CROSSED = 3
"""Largest number of operands whose classes are all combined."""

CHUNKS = 8
"""Number of parts of a strategy's vectors, each with a different order of terms."""


def sums_of(names: Sequence[str], pairs: Sequence[Term]) -> list[list[Term]]:
    """Return the sums of terms that a unit with these operands may compute, products first.

    The operands of a pair are multiplied; every other operand is a term. The only two operands may be added as well.
    """
    multiplied = {name for pair in pairs for name in pair}
    terms: list[Term] = [*pairs, *((name,) for name in names if name not in multiplied)]
    return [terms, [(name,) for name in terms[0]]] if len(terms) == 1 and len(terms[0]) == 2 else [terms]


class Directed:
    """Generator of directed vectors for one unit.

    Parameters
    ----------
    operands : dict of str to Format
        Inputs of the unit that have a format.
    pairs : list of pairs of str
        Operands that are multiplied, see `sums_of`.
    results : list of Format
        Formats of the result and of a rounded product.
    rng : numpy.random.Generator
    exact_rows : int
        Maximum number of vectors per strategy that are computed in fractions, at 0.1 ms each.
    corners : mapping of str to Codes
        Corner codes of some operands, in columns of one length; all rows are included if the number of vectors allows.
    """

    def __init__(
        self,
        operands: dict[str, Format],
        pairs: Sequence[Term],
        results: list[Format],
        rng: np.random.Generator,
        exact_rows: int,
        corners: Columns = NO_CORNERS,
    ) -> None:
        self.grids = {name: Grid.of(fmt) for name, fmt in operands.items()}
        self.pairs = pairs
        self.results = [Grid.of(fmt) for fmt in results]
        self.rng, self.exact_rows, self.corners = rng, exact_rows, corners

    def rows(self, count: int) -> Rows:
        """Return vectors of all strategies in random order."""
        strategies = self.strategies()
        total = sum(weight for weight, _ in strategies)
        parts = [maker(max(count * weight // total, 64)) for weight, maker in strategies]
        rows = _joined(parts)
        missing = count - len(next(iter(rows.values())))
        if missing > 0:
            # Fill up with the strategy of the largest weight.
            rows = _joined([rows, max(strategies, key=lambda strategy: strategy[0])[1](missing)])
        order = self.rng.permutation(len(next(iter(rows.values()))))[:count]
        return {name: codes[order] for name, codes in rows.items()}

    def strategies(self) -> list[tuple[int, Callable[[int], Rows]]]:
        """Return pairs of a weight and a strategy, which makes a given number of vectors."""
        weighted: list[tuple[int, Callable[[int], Rows]]] = [(2, self.uniform), (3, self.boundaries)]
        if len(self.grids) > 1:
            weighted.append((2, self.classes))
        if self.corners:
            weighted.append((4, self.cornered))
        for terms in sums_of(list(self.grids), self.pairs):
            weighted += [
                (4, self._with_random_order(terms, self.lone)),
                (3, self._with_random_order(terms, self.backwards, 1)),
            ]
            if len(terms[0]) == 2:
                weighted.append((3, self._with_random_order(terms, self.tied)))
            if len(terms) >= 2:
                weighted.append((5, self._with_random_order(terms, self.aligned)))
                weighted.append((3, self._with_random_order(terms, self.cancelling, 1 if len(terms) == 2 else CHUNKS)))
                weighted.append((4, self._with_random_order(terms, self.halves)))
            if len(terms) >= 3:
                weighted.append((3, self.middling))
        return weighted

    # Without interaction ---------------------------------------------------------------------------------------

    def uniform(self, n: int) -> Rows:
        """Choose uniformly random codes."""
        return {name: self._any(grid, n) for name, grid in self.grids.items()}

    def middling(self, n: int) -> Rows:
        """Choose numbers around one."""
        return {name: grid.middling(self.rng, n) for name, grid in self.grids.items()}

    def boundaries(self, n: int) -> Rows:
        """Choose combinations of special values and boundaries: all if ``n`` allows, else a random selection."""
        corner_codes = {name: grid.corner_codes() for name, grid in self.grids.items()}
        total = math.prod(len(codes) for codes in corner_codes.values())
        if total > n:
            # Use about three special operands per vector, because most sums would be NaN otherwise.
            rows = self.middling(n)
            for name, codes in corner_codes.items():
                ends = self.rng.choice(self.grids[name].extremes(), n)
                special = np.where(self.rng.random(n) < 1 / 4, ends, self.rng.choice(codes, n))
                rows[name] = np.where(self.rng.random(n) < 3 / len(corner_codes), special, rows[name])
            return rows
        rows, index = {}, np.arange(total)
        for name, codes in corner_codes.items():
            rows[name] = codes[index % len(codes)]
            index = index // len(codes)
        return rows

    def cornered(self, n: int) -> Rows:
        """Choose corner cases in equal numbers, or a random subset if ``n`` is smaller."""
        order = self.rng.permutation(len(next(iter(self.corners.values()))))
        return self.uniform(n) | {name: np.resize(codes[order], n) for name, codes in self.corners.items()}

    def classes(self, n: int) -> Rows:
        """Choose combinations of all number classes in equal numbers; with many operands, only within each term."""
        if len(self.grids) <= CROSSED:
            return self._crossed(list(self.grids), n)
        terms, parts = sums_of(list(self.grids), self.pairs)[0], []
        for index, term in enumerate(terms):
            count = len(range(index, n, len(terms)))
            parts.append(self.middling(count) | self._crossed(list(term), count))
        return _joined(parts)

    def _crossed(self, names: list[str], n: int) -> Rows:
        """Choose codes of all combinations of classes, repeated."""
        kinds = {name: Classes(self.grids[name].fmt).examples() for name in names}
        # A random subset if there are more combinations than vectors.
        index, rows = self.rng.permutation(max(n, math.prod(len(examples) for examples in kinds.values())))[:n], {}
        for name, examples in kinds.items():
            codes, lengths = np.concatenate(examples), np.array([len(kind) for kind in examples])
            own = index % len(examples)
            index = index // len(examples)
            rows[name] = codes[(np.cumsum(lengths) - lengths)[own] + self.rng.integers(0, lengths[own])]
        return rows

    # One term --------------------------------------------------------------------------------------------------

    def lone(self, n: int, terms: list[Term]) -> Rows:
        """Vary one term over the range of a result and its ends; the other terms are mostly zero.

        The bits of a single operand below the last place of the result are at or next to a tie, also in the subnormal
        range. A product has long and short factors.
        """
        term, rest = _first_product(terms)
        o = self._some_result(term)
        exponent = self._exponent(n, o, term)
        rows = self._term(term, exponent, o.last_place(exponent) if len(term) == 1 else None)
        return rows | self._near_zero(rest, n)

    def tied(self, n: int, terms: list[Term]) -> Rows:
        """Choose products exactly halfway between two neighbours of a result format, or next to the tie by one place.

        If ma * mb = 2^(k-1) modulo 2^k, the k discarded bits are exactly a half: distribute the k - 1 trailing zeros
        over the factors, or choose ma odd and mb = (2^(k-1) + step) / ma modulo 2^k.
        """
        term, rest = _first_product(terms)
        a, b = (self.grids[name] for name in term)
        o = self._some_result(term)
        exponent = self._exponent(n, o, term)
        first, second = self._split(exponent, a, b)
        pa, pb = a.room(first), b.room(second)
        # The product of two significands in [1, 2) may reach [2, 4).
        last_place = o.last_place(first + second + self.rng.integers(0, 2, n))
        k = last_place - (first + second - (pa - 1) - (pb - 1)) + self._few(n) * (self.rng.random(n) < 0.2)
        k = np.clip(k, 1, pa + pb - 1)
        lowest, highest = np.maximum(0, k - pb), np.minimum(k - 1, pa - 1)
        zeros = self.rng.integers(lowest, highest + 1)
        ma, mb = self._odd_multiple(pa, zeros), self._odd_multiple(pb, np.clip(k - 1 - zeros, 0, pb - 1))
        beside = (self.rng.random(n) < 0.5) & (k < pb)
        odd = self._odd_multiple(pa, np.zeros_like(pa))
        step = self.rng.choice(np.array([-2, -1, 1, 2]), n).astype(np.uint64)
        half = np.uint64(1) << np.minimum(k - 1, 63).astype(np.uint64)
        below = half | (half - np.uint64(1))
        solved = (self._odd_multiple(pb, np.zeros_like(pb)) & ~below) | ((half + step) * _inverse(odd) & below)
        rows = {
            term[0]: a.significands(self._sign(n), first, np.where(beside, odd, ma)),
            term[1]: b.significands(self._sign(n), second, np.where(beside, solved, mb)),
        }
        return rows | self._near_zero(rest, n)

    # Several terms ---------------------------------------------------------------------------------------------

    def aligned(self, n: int, terms: list[Term]) -> Rows:
        """Align terms so that window edges, guard bits and the sticky bit affect the result."""
        o = self.results[0]
        exponent = self._exponent(n, o, terms[0])
        rows = self._term(terms[0], exponent)
        for term in terms[1:]:
            rows |= self._term(term, exponent + self._distance(n, self._span(terms[0], term)))
        return self._sparse(rows, terms[2:], n)

    def cancelling(self, n: int, terms: list[Term]) -> Rows:
        """Subtract nearly equal terms: the second is the first one truncated to its format, or a neighbour of it."""
        larger, smaller = sorted(terms[:2], key=len, reverse=True)
        few = n if len(larger) == len(smaller) else min(n, self._exact_rows())
        exponent = self._exponent(few, self.results[0], smaller)
        rows = self._term(larger, exponent)
        if len(larger) == len(smaller):
            for name, twin in zip(larger, smaller, strict=True):
                rows[twin] = self._converted(rows[name], self.grids[name], self.grids[twin])
            minus = self._sign(few) == 1
            rows[smaller[0]] = np.where(minus, rows[smaller[0]], self.grids[smaller[0]].negated(rows[smaller[0]]))
        else:
            factors = [corner_operands.values(self.grids[name], rows[name]) for name in larger]
            product = [-x * y for x, y in zip(*factors, strict=True)]
            rows[smaller[0]] = corner_operands.truncated(self.grids[smaller[0]], product)
            # Repeated rows need a different addend to be useful.
            rows = {name: np.resize(codes, n) for name, codes in rows.items()}
        moved = self._few(n)
        moved[few:] = self.rng.integers(-8, 9, n - few)
        rows[smaller[0]] = self.grids[smaller[0]].neighbour(rows[smaller[0]], moved)
        exponent = np.resize(exponent, n)
        for term in terms[2:]:
            rows |= self._term(term, exponent - self.rng.integers(1, 2 * self._span(larger, term), n))
        return self._sparse(rows, terms[2:], n)

    def halves(self, n: int, terms: list[Term]) -> Rows:
        """Add half a last place of the result to a large term, exactly or next to the tie."""
        o = self.results[0]
        large, small = terms[:2]
        exponent = self._exponent(n, o, large)
        place = o.last_place(exponent)
        half = place - 1 + self.rng.choice(np.array([0, 0, 0, 0, -1, -2, 1]), n)
        rows = self._power(large, exponent) | self._power(small, half)
        # The first operand has the whole mantissa of the large term; the other one is a power of two.
        grid = self.grids[large[0]]
        own = grid.parts(rows[large[0]]).exponent
        mantissa = grid.patterns(self.rng, own, place - (exponent - own))
        short = self.rng.random(n) < 0.5
        dropped = np.clip(place - exponent + grid.man, 0, grid.man).astype(np.uint64)
        mantissa = np.where(short, mantissa >> dropped << dropped, mantissa)
        rows[large[0]] = grid.compose(self._sign(n), own, mantissa)
        for name in small:
            rows[name] = self.grids[name].neighbour(rows[name], self._few(n))
        return rows | self._near_zero(terms[2:], n)

    # From the result backwards ---------------------------------------------------------------------------------

    def backwards(self, n: int, terms: list[Term]) -> Rows:
        """Choose operands with results that are hard to round, computed one at a time; see `corner_operands`."""
        few = min(n, self._exact_rows())
        # Single operands approximate a target better than products, so they are last.
        parts = [self._backwards(few, sorted(terms, key=len, reverse=True), self.results[0])]
        term, rest = _first_product(terms)
        if len(term) == 2 and rest:
            for o in self.results:
                part = max(few // 4 // len(self.results), 1)
                parts.append(self._backwards(part, [term], o) | self._near_zero(rest, part))
        return _joined(parts)

    def _backwards(self, n: int, terms: list[Term], o: Grid) -> Rows:
        columns = corner_operands.sums([tuple(self.grids[name] for name in term) for term in terms], o, self.rng, n)
        return dict(zip((name for term in terms for name in term), columns, strict=True))

    # Helpers ---------------------------------------------------------------------------------------------------

    def _with_random_order(
        self, terms: list[Term], strategy: Callable[[int, list[Term]], Rows], chunks: int = CHUNKS
    ) -> Callable[[int], Rows]:
        """Return a strategy with a random order of terms in each chunk."""

        def made(n: int) -> Rows:
            parts = []
            for start in range(chunks):
                order = [terms[i] for i in self.rng.permutation(len(terms))]
                parts.append(strategy(len(range(start, n, chunks)), order))
            return _joined(parts)

        return made

    def _term(self, term: Term, exponent: Ints, place: Ints | None = None) -> Rows:
        """Choose a term of about 2^exponent; bits below 2^place, or a random place, are near a rounding boundary."""
        rows = {}
        for name, own in zip(term, self._shares(term, exponent), strict=True):
            grid = self.grids[name]
            last = own - self.rng.integers(0, grid.man + 1, len(own)) if place is None else place
            rows[name] = grid.compose(self._sign(len(own)), own, grid.patterns(self.rng, own, last))
        return rows

    def _power(self, term: Term, exponent: Ints) -> Rows:
        """Choose a term of 2^exponent or -2^exponent, within the formats."""
        zero = np.zeros(len(exponent), dtype=np.uint64)
        shares = zip(term, self._shares(term, exponent), strict=True)
        return {name: self.grids[name].compose(self._sign(len(own)), own, zero) for name, own in shares}

    def _near_zero(self, terms: Sequence[Term], n: int) -> Rows:
        """Choose terms that are mostly zero or the smallest number, in both signs."""
        rows = {}
        silent = self.rng.random(n) < 0.5
        for name in (name for term in terms for name in term):
            grid = self.grids[name]
            bits = np.where(silent, 0, self.rng.integers(0, 2, n)).astype(np.uint64)
            # In short sums one term in five is random; long sums have as many random terms.
            anything = ~silent & (self.rng.random(n) < 0.4 / len(terms))
            rows[name] = np.where(anything, self._any(grid, n), grid.signed(self._sign(n), bits))
        return rows

    def _sparse(self, rows: Rows, terms: Sequence[Term], n: int) -> Rows:
        """Replace some terms by zero or the smallest number in half of the vectors."""
        thin = self.rng.random(n) < 0.5
        return rows | {name: np.where(thin, tiny, rows[name]) for name, tiny in self._near_zero(terms, n).items()}

    def _converted(self, codes: Codes, old: Grid, new: Grid) -> Codes:
        """Convert codes to another format by truncation."""
        if old.fmt == new.fmt:
            return codes
        sign, exponent, mantissa, *_ = old.parts(codes)
        shift = np.uint64(abs(new.man - old.man))
        return new.compose(sign, exponent, mantissa << shift if new.man > old.man else mantissa >> shift)

    def _any(self, grid: Grid, n: int) -> Codes:
        return words(self.rng, n) & np.uint64((1 << grid.width) - 1)

    def _sign(self, n: int) -> Ints:
        return self.rng.integers(0, 2, n)

    def _few(self, n: int) -> Ints:
        return self.rng.choice(np.array([0, 0, 0, 1, -1, 1, -1, 2, -2]), n)

    def _exact_rows(self) -> int:
        return max(3 * self.exact_rows // max(len(self.grids), 3), 1)

    def _some_result(self, term: Term) -> Grid:
        """Choose a format to which the term is rounded: the result format, or that of a rounded product."""
        return self.results[int(self.rng.integers(len(self.results)))] if len(term) == 2 else self.results[0]

    def _span(self, first: Term, second: Term) -> int:
        """Return the maximum distance between the first bit of a term and the last bit of another or of the result."""
        lengths = (sum(self.grids[name].precision for name in term) for term in (first, second))
        return max(*lengths, self.results[0].precision) + self.results[0].precision * (len(first) != len(second))

    def _distance(self, n: int, span: int) -> Ints:
        """Choose exponent differences: mostly with overlapping significands, often 0 or at the edges of the window."""
        edges = np.array([-span - 2, -span - 1, -span, 1 - span, -1, 0, 0, 1, span - 1, span, span + 1, span + 2])
        return np.where(self.rng.random(n) < 0.5, self.rng.choice(edges, n), self.rng.integers(-span - 3, span + 4, n))

    def _exponent(self, n: int, o: Grid, term: Term) -> Ints:
        """Choose exponents of a term and a result; half of them near an end, near the first normal, or near one."""
        grids = [self.grids[name] for name in term]
        low = max(o.quantum - 3, sum(grid.quantum for grid in grids))
        high = max(min(o.emax + 1, sum(grid.emax for grid in grids)), low)
        anywhere = self.rng.integers(low, high + 1, n)
        near = np.minimum(self.rng.integers(0, 6, n), self.rng.integers(0, 6, n))
        centred = [low + near, high - near, o.emin - 2 + near, near - 3]
        chosen = np.choose(self.rng.integers(0, 8, n), [*[anywhere] * 4, *centred])
        return np.clip(chosen, low, high)

    def _shares(self, term: Term, exponent: Ints) -> tuple[Ints, ...]:
        """Split an exponent between the operands of a term."""
        return (exponent,) if len(term) == 1 else self._split(exponent, *(self.grids[name] for name in term))

    def _split(self, total: Ints, a: Grid, b: Grid) -> tuple[Ints, Ints]:
        """Split a sum of two exponents so that both are in range if possible."""
        low, high = np.maximum(a.quantum, total - b.emax), np.minimum(a.emax, total - b.quantum)
        first = self.rng.integers(low, np.maximum(high, low) + 1)
        return first, total - first

    def _odd_multiple(self, precision: Ints, zeros: Ints) -> Codes:
        """Choose random significands of full length with exactly ``zeros`` trailing zeros."""
        length = (precision - zeros).astype(np.uint64)
        odd = words(self.rng, len(zeros)) >> (np.uint64(64) - length) | np.uint64(1) << (length - np.uint64(1))
        return (odd | np.uint64(1)) << zeros.astype(np.uint64)


def _first_product(terms: list[Term]) -> tuple[Term, list[Term]]:
    """Return the first product, or else the first term, and all other terms."""
    first = max(range(len(terms)), key=lambda i: len(terms[i]))
    return terms[first], terms[:first] + terms[first + 1 :]


def _joined(parts: Sequence[Rows]) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _inverse(odd: Codes) -> Codes:
    """Invert odd numbers modulo 2^64 by Newton's iteration, which doubles the number of correct bits from 3."""
    inverse = odd.copy()
    with np.errstate(over="ignore"):
        for _ in range(5):
            inverse *= np.uint64(2) - odd * inverse
    return inverse
