"""Vectors in which operands interact: aligned, cancelling, halfway between two results, or a sticky bit beside it."""

import random
from collections.abc import Callable

import numpy as np

from halfulp.hdl.formats import RZ, Float

from . import aim
from .fields import Codes, Ints, compose, exponents, landmarks, neighbour, patterns

Rows = dict[str, Codes]


class Directed:
    """Maker of directed vectors for one unit.

    Parameters
    ----------
    operands : dict of str to Float
        The unit's format-shaped inputs: ``a``; ``a`` and ``b``; or ``a``, ``b`` and ``c`` for a * b + c.
    results : list of Float
        What is rounded to: the result format, and that of a rounded product.
    rng : numpy.random.Generator
    exact_rows : int
        Most rows of one strategy that are computed one at a time in fractions, which takes 0.1 ms each.
    """

    def __init__(
        self, operands: dict[str, Float], results: list[Float], rng: np.random.Generator, exact_rows: int
    ) -> None:
        self.operands, self.results, self.rng, self.exact_rows = operands, results, rng, exact_rows
        self.result = results[0]

    def strategies(self) -> list[tuple[int, Callable[[int], Rows]]]:
        """Weights and makers; each maker takes the number of vectors wanted."""
        always = [(2, self.uniform), (3, self.boundaries)]
        if len(self.operands) == 1:
            return [*always, (6, self.cuts), (4, self.aimed)]
        pairs = [(4, self.aligned_products), (3, self.tied_products)]
        if len(self.operands) == 2:
            return [
                *always,
                *pairs,
                (4, self.aligned_sums),
                (2, self.cancelling_sums),
                (3, self.halves),
                (3, self.aimed),
            ]
        return [
            *always,
            *pairs,
            (6, self.aligned_addends),
            (3, self.cancelling_products),
            (4, self.halves),
            (3, self.aimed),
        ]

    # Without interaction ---------------------------------------------------------------------------------------

    def uniform(self, n: int) -> Rows:
        """Any code in any place."""
        return {name: self._any(fmt, n) for name, fmt in self.operands.items()}

    def boundaries(self, n: int) -> Rows:
        """Specials and boundaries against each other: all combinations where ``n`` has room, else some."""
        marks = {name: landmarks(fmt) for name, fmt in self.operands.items()}
        total = int(np.prod([len(codes) for codes in marks.values()]))
        index = np.arange(total) if total <= n else self.rng.integers(0, total, n)
        rows = {}
        for name, codes in marks.items():
            rows[name] = codes[index % len(codes)]
            index = index // len(codes)
        return rows

    # One operand -----------------------------------------------------------------------------------------------

    def cuts(self, n: int) -> Rows:
        """Numbers whose bits below the result's last place, subnormal places included, are at or beside a tie."""
        a, o = self.operands["a"], self.result
        exponent = self._exponent(n, o.emin - o.man - 2, o.emax + 1, a)
        below = a.man - o.man + np.maximum(o.emin - exponent, 0)
        return {"a": compose(a, self._sign(n), exponent, patterns(self.rng, a, below))}

    # Products --------------------------------------------------------------------------------------------------

    def aligned_products(self, n: int) -> Rows:
        """Products around the ends of a result's range and anywhere in it, with long and short significands."""
        rows = self._products(
            n,
            self._exponent(
                n, self._some_result().emin - self._some_result().man - 3, self._some_result().emax + 1, None
            ),
        )
        return self._with_addend(rows, n)

    def tied_products(self, n: int) -> Rows:
        """Products exactly between two neighbours of a result format, or one place of the exact product beside it.

        With ma * mb = 2^(k-1) modulo 2^k, k bits discarded leave exactly a half: split the k - 1 trailing zeros between
        the factors; or let ma be odd and mb = (2^(k-1) + step) / ma modulo 2^k.
        """
        a, b = self.operands["a"], self.operands["b"]
        o = self._some_result()
        pa, pb = a.precision, b.precision
        natural = max(pa + pb - o.precision, 1)
        k = np.clip(natural - self.rng.integers(-4, 2, n) * (self.rng.random(n) < 0.4), 1, min(pa + pb - 1, 62))
        k = np.where(self.rng.random(n) < 0.5, np.maximum(k - 1, 1), k).astype(np.int64)
        lowest, highest = np.maximum(0, k - pb), np.minimum(k - 1, pa - 1)
        zeros_a = lowest + (self.rng.random(n) * (highest - lowest + 1)).astype(np.int64)
        ma, mb = self._odd_multiple(pa, zeros_a), self._odd_multiple(pb, np.clip(k - 1 - zeros_a, 0, pb - 1))
        beside = (self.rng.random(n) < 0.5) & (k < pb)
        odd = self._odd_multiple(pa, np.zeros(n, dtype=np.int64))
        step = self.rng.choice(np.array([-2, -1, 1, 2]), n)
        modulus = (np.uint64(1) << k.astype(np.uint64)) - np.uint64(1)
        wanted = ((np.int64(1) << (k - 1)) + step).astype(np.uint64)
        low = (wanted * _inverse(odd.astype(np.uint64)) & modulus).astype(np.int64)
        high = (np.int64(1) << (pb - 1)) | (self.rng.integers(0, 1 << pb, n) & ((1 << pb) - 1))
        solved = (high >> k << k) | low
        ma, mb = np.where(beside, odd, ma), np.where(beside, solved, mb)
        # Either any exponent, or the one at which the k discarded bits end at the subnormal last place.
        last_place = np.where(
            self.rng.random(n) < 0.5, o.quantum - k, self._exponent(n, o.quantum - k.max(), o.emax - pa - pb, None)
        )
        last_a = self._split(last_place, a.quantum, a.emax - a.man, b.quantum, b.emax - b.man)
        rows = {
            "a": compose(a, self._sign(n), last_a + a.man, ma),
            "b": compose(b, self._sign(n), last_place - last_a + b.man, mb),
        }
        return self._with_addend(rows, n)

    def _products(self, n: int, exponent: Ints) -> Rows:
        a, b = self.operands["a"], self.operands["b"]
        first = self._split(exponent, a.quantum, a.emax, b.quantum, b.emax)
        return {
            "a": compose(a, self._sign(n), first, self._mantissa(a, n)),
            "b": compose(b, self._sign(n), exponent - first, self._mantissa(b, n)),
        }

    def _with_addend(self, rows: Rows, n: int) -> Rows:
        """A third operand, where the unit has one, that is mostly nothing but a sign or a sticky bit."""
        if (c := self.operands.get("c")) is not None:
            tiny = np.array([0, c.sign_code, 1, c.sign_code | 1], dtype=np.uint64)
            rows["c"] = np.where(self.rng.random(n) < 0.8, self.rng.choice(tiny, n), self._any(c, n))
        return rows

    # Sums ------------------------------------------------------------------------------------------------------

    def aligned_sums(self, n: int) -> Rows:
        """Two addends, aligned so that the window's edges, the guard places and the sticky bit all matter."""
        a, b = self.operands["a"], self.operands["b"]
        exponent = self._exponent(n, min(a.emin, b.emin) - 2, max(a.emax, b.emax), None)
        distance = self._distance(n, max(a.precision, b.precision, self.result.precision))
        return {
            "a": compose(a, self._sign(n), exponent, self._mantissa(a, n)),
            "b": compose(b, self._sign(n), exponent + distance, self._mantissa(b, n)),
        }

    def cancelling_sums(self, n: int) -> Rows:
        """An addend and, in either sign, the same number or one of its neighbours."""
        a, b = self.operands["a"], self.operands["b"]
        x = compose(a, self._sign(n), self._exponent(n, a.emin - a.man, a.emax, a), self._mantissa(a, n))
        mantissa = (x & np.uint64((1 << a.man) - 1)).astype(np.int64)
        shifted = mantissa << max(b.man - a.man, 0) >> max(a.man - b.man, 0)
        y = compose(b, self._sign(n), exponents(a, x), shifted)
        if a == b:
            y = np.where(self.rng.random(n) < 0.8, x ^ np.uint64(a.sign_code) * self._sign(n).astype(np.uint64), y)
        return {"a": x, "b": neighbour(b, y, self._few(n))}

    def aligned_addends(self, n: int) -> Rows:
        """A product and an addend, aligned so that the window's edges, the guard places and the sticky bit matter."""
        c, o = self.operands["c"], self.result
        exponent = self._exponent(n, o.emin - o.man - 3, o.emax + 1, None)
        rows = self._products(n, exponent)
        span = max(self.operands["a"].precision + self.operands["b"].precision, c.precision + o.precision)
        rows["c"] = compose(c, self._sign(n), exponent + self._distance(n, span), self._mantissa(c, n))
        return rows

    def cancelling_products(self, n: int) -> Rows:
        """An addend that is minus the product, cut off to the addend's format, or one of its neighbours."""
        a, b, c = self.operands["a"], self.operands["b"], self.operands["c"]
        few = min(n, self.exact_rows)
        rows = self._products(few, self._exponent(few, c.emin - c.man, c.emax, None))
        codes = []
        for x, y in zip(rows["a"].tolist(), rows["b"].tolist(), strict=True):
            codes.append(_minus_product(a, b, c, x, y))
        rows["c"] = neighbour(c, np.array(codes, dtype=np.uint64), self._few(few))
        repeat = -(-n // few)
        tiled = {name: np.tile(column, repeat)[:n] for name, column in rows.items()}
        # A repeated row is worth another only if its addend moves.
        tiled["c"][few:] = neighbour(c, tiled["c"][few:], self.rng.integers(-8, 9, n - few))
        return tiled

    def halves(self, n: int) -> Rows:
        """A large number plus or minus half its last place, or a sticky bit more or less than that half."""
        o = self.result
        large = self.operands["c" if "c" in self.operands else "a"]
        exponent = self._exponent(n, max(large.emin, o.emin) - 2, min(large.emax, o.emax), large)
        below = np.full(n, large.man - o.man) + np.maximum(o.emin - exponent, 0)
        anchor = compose(large, self._sign(n), exponent, patterns(self.rng, large, np.maximum(below, 0)))
        half = np.maximum(exponent, o.emin) - o.precision + self.rng.integers(-2, 2, n)
        if "c" in self.operands:
            a, b = self.operands["a"], self.operands["b"]
            first = self._split(half, a.quantum, a.emax, b.quantum, b.emax)
            return {
                "a": neighbour(a, compose(a, self._sign(n), first, np.zeros(n, dtype=np.int64)), self._few(n)),
                "b": neighbour(b, compose(b, self._sign(n), half - first, np.zeros(n, dtype=np.int64)), self._few(n)),
                "c": anchor,
            }
        b = self.operands["b"]
        return {
            "a": anchor,
            "b": neighbour(b, compose(b, self._sign(n), half, np.zeros(n, dtype=np.int64)), self._few(n)),
        }

    # From the result backwards ---------------------------------------------------------------------------------

    def aimed(self, n: int) -> Rows:
        """At most ``exact_rows``, each computed exactly; see `aim`."""
        few = min(n, self.exact_rows)
        maker = random.Random(int(self.rng.integers(1 << 62)))
        formats = self.operands
        rows: list[aim.Operands] = []
        if len(formats) == 1:
            rows = aim.conversions(formats["a"], self.result, maker, few)
        elif len(formats) == 2:
            rows = aim.products(formats["a"], formats["b"], self.result, maker, few // 2)
            rows += aim.sums(formats["a"], formats["b"], self.result, maker, few - few // 2)
        else:
            rows = aim.fused(formats["a"], formats["b"], formats["c"], self.result, maker, few - few // 4)
            zeros = (0, formats["c"].sign_code, 1, formats["c"].sign_code + 1)
            for result in self.results:
                pairs = aim.products(formats["a"], formats["b"], result, maker, few // 4 // len(self.results))
                rows += [pair | {"c": maker.choice(zeros)} for pair in pairs]
        return {name: np.array([row[name] for row in rows], dtype=np.uint64) for name in formats}

    # Pieces ----------------------------------------------------------------------------------------------------

    def _any(self, fmt: Float, n: int) -> Codes:
        return self.rng.integers(0, (1 << fmt.width) - 1, n, dtype=np.uint64, endpoint=True)

    def _sign(self, n: int) -> Ints:
        return self.rng.integers(0, 2, n)

    def _few(self, n: int) -> Ints:
        return self.rng.choice(np.array([0, 0, 0, 1, -1, 1, -1, 2, -2]), n)

    def _mantissa(self, fmt: Float, n: int) -> Ints:
        return patterns(self.rng, fmt, self.rng.integers(0, fmt.man + 1, n))

    def _some_result(self) -> Float:
        return self.results[int(self.rng.integers(len(self.results)))]

    def _distance(self, n: int, span: int) -> Ints:
        """Differences of exponents: mostly where two significands overlap, often at 0 and at the window's edges."""
        edges = np.array([-span - 2, -span - 1, -span, 1 - span, -1, 0, 0, 1, span - 1, span, span + 1, span + 2])
        return np.where(self.rng.random(n) < 0.5, self.rng.choice(edges, n), self.rng.integers(-span - 3, span + 4, n))

    def _exponent(self, n: int, low: int, high: int, fmt: Float | None) -> Ints:
        """Exponents from low to high, one in two of them near an end, and within a format if there is one."""
        if fmt is not None:
            low, high = max(low, fmt.emin - fmt.man), min(high, fmt.emax)
        high = max(high, low)
        anywhere = self.rng.integers(low, high + 1, n)
        near = self.rng.integers(0, min(6, high - low + 1), n)
        return np.choose(self.rng.integers(0, 4, n), [anywhere, anywhere, low + near, high - near])

    def _split(self, total: Ints, low_a: int, high_a: int, low_b: int, high_b: int) -> Ints:
        """First part of a sum of two exponents, so that both stay in range where that is possible."""
        low, high = np.maximum(low_a, total - high_b), np.minimum(high_a, total - low_b)
        return low + (self.rng.random(len(total)) * (np.maximum(high - low, 0) + 1)).astype(np.int64)

    def _odd_multiple(self, precision: int, zeros: Ints) -> Ints:
        """Significands of full length with exactly ``zeros`` trailing zeros."""
        length = precision - zeros
        odd = (
            (self.rng.integers(0, 1 << 53, len(zeros)) & ((np.int64(1) << length) - 1))
            | (np.int64(1) << (length - 1))
            | 1
        )
        return odd << zeros


def _inverse(odd: Codes) -> Codes:
    """Inverses modulo 2^64 of odd numbers, by Newton's iteration: each step doubles the right bits, from 3."""
    inverse = odd.copy()
    with np.errstate(over="ignore"):
        for _ in range(5):
            inverse *= np.uint64(2) - odd * inverse
    return inverse


def _minus_product(a: Float, b: Float, c: Float, x: int, y: int) -> int:
    first, second = a.decode(x), b.decode(y)
    if isinstance(first, float) or isinstance(second, float):
        return 0
    return c.encode(-first * second, RZ, saturate=True)
