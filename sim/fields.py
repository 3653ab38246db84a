"""How the numbers of a format lie: codes made from sign, exponent and mantissa, for arrays of them."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import RZ, Fixed, Float, Format, Posit
from halfulp.hdl.formats.base import floor_log2

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint64]

TINY_BITS = 5
"""Of a format of so many bits, every code is a landmark."""


class Grid:
    """Where the numbers of a format lie, in the words that suit every family.

    A number is (-1)^sign * 1.mantissa * 2^exponent, a code is a sign and a magnitude code; magnitude codes grow with
    the magnitude. Mantissas have ``man`` bits, as many as the format's longest have, and what a number has no room for
    is cut off.

    Parameters
    ----------
    fmt : Format

    Attributes
    ----------
    width, precision : int
        As the format has them.
    negatives : bool
        Whether there are numbers below zero.
    man : int
        Mantissa bits of the longest number, 0 to 63.
    quantum, emax : int
        Exponents of the smallest and of the largest number.
    emin : int
        Exponent from which on numbers have mantissas of full length, or else the first one at all.
    max_code : int
        Code of the largest number.
    top : int
        Largest magnitude code, specials included.
    calm : tuple of int
        First and last exponent of middling numbers, which lie around one or as near to it as the format comes.
    edges : tuple of int
        Magnitude codes beside which the density of the numbers changes, or their range ends.
    """

    man: int
    emin: int
    emax: int
    max_code: int
    top: int
    calm: tuple[int, int]
    edges: tuple[int, ...]

    def __init__(self, fmt: Format) -> None:
        self.fmt, self.width, self.precision, self.quantum = fmt, fmt.width, fmt.precision, fmt.quantum
        self.negatives = fmt.lowest < 0

    @staticmethod
    def of(fmt: Format) -> "Grid":
        """Grid of a format of any family."""
        match fmt:
            case Float():
                return FloatGrid(fmt)
            case Fixed():
                return FixedGrid(fmt)
            case Posit():
                return PositGrid(fmt)
        raise TypeError(f"{fmt} is of no family that vectors can be made for")

    # What a family says for itself -----------------------------------------------------------------------------

    @abstractmethod
    def signed(self, sign: Ints, magnitude: Codes) -> Codes:
        """Codes of magnitude codes with signs, of which only the lowest bit counts."""

    @abstractmethod
    def unsigned(self, codes: Codes) -> tuple[Ints, Codes]:
        """Signs and magnitude codes; what `signed` is made from."""

    @abstractmethod
    def compose(self, sign: Ints, exponent: Ints, mantissa: Ints | Codes) -> Codes:
        """Codes of numbers (-1)^sign * 1.mantissa * 2^exponent, cut off to the format.

        Beyond the largest exponent the codes stay at it. The specials that share a float's largest exponent may come
        out of large mantissas; a bench likes those.
        """

    @abstractmethod
    def parts(self, codes: Codes) -> tuple[Ints, Ints, Codes]:
        """Signs, exponents and mantissas of numbers other than zero; what `compose` is made from."""

    @abstractmethod
    def last_place(self, exponent: Ints) -> Ints:
        """Exponents of the last place that numbers of such exponents have."""

    @abstractmethod
    def _centres(self) -> Iterable[int]:
        """Magnitude codes that make landmarks, together with their neighbours."""

    def value(self, magnitude: int) -> Fraction:
        """Number of a magnitude code."""
        value = self.fmt.decode(magnitude)
        assert isinstance(value, Fraction)
        return value

    def between(self, magnitude: int, quarters: int) -> Fraction:
        """So many quarters of the way from a finite magnitude to the next one, as rounding sees it."""
        value = self.value(magnitude)
        exponent = np.array([floor_log2(value) if value else self.quantum])
        return value + quarters * Fraction(2) ** (int(self.last_place(exponent)[0]) - 2)

    def turns(self) -> list[Fraction]:
        """Magnitudes around the edges at which rounding turns, and both sides of them."""
        return [self.between(magnitude, quarters) for magnitude in self.edges for quarters in range(5)]

    # What follows from it --------------------------------------------------------------------------------------

    def exponents(self, codes: Codes) -> Ints:
        """Exponents of the numbers."""
        return self.parts(codes)[1]

    def negated(self, codes: Codes) -> Codes:
        """Codes of the numbers with the other sign, where there is one."""
        sign, magnitude = self.unsigned(codes)
        return self.signed(1 - sign, magnitude)

    def neighbour(self, codes: Codes, steps: Ints) -> Codes:
        """Codes ``steps`` places further from zero, or nearer, of the same sign."""
        sign, magnitude = self.unsigned(codes)
        raised = magnitude + np.minimum(np.maximum(steps, 0).astype(np.uint64), np.uint64(self.top) - magnitude)
        return self.signed(sign, raised - np.minimum(np.maximum(-steps, 0).astype(np.uint64), raised))

    def landmarks(self) -> Codes:
        """Codes of every special and of both sides of every boundary, in both signs; of a tiny format, all codes."""
        if self.width <= TINY_BITS:
            return np.arange(1 << self.width, dtype=np.uint64)
        magnitudes = {centre + step for centre in self._centres() for step in (-1, 0, 1)}
        kept = np.array([code for code in magnitudes if 0 <= code <= self.top], dtype=np.uint64)
        sign = np.ones(len(kept), dtype=np.int64)
        return np.unique(np.concatenate([self.signed(sign - 1, kept), self.signed(sign, kept)]))

    def extremes(self) -> Codes:
        """Codes of the ends of the range and of what lies beyond them."""
        fmt = self.fmt
        ends = {fmt.encode(fmt.lowest, RZ), fmt.encode(fmt.largest, RZ)}
        beyond = {fmt.infinity(negative=False), fmt.infinity(negative=True), fmt.nan_code}
        return np.array(sorted(ends | beyond), dtype=np.uint64)

    def room(self, exponent: Ints) -> Ints:
        """Bits of the significands of such exponents, at least the hidden one."""
        return np.clip(exponent - self.last_place(exponent) + 1, 1, self.man + 1)

    def significands(self, sign: Ints, exponent: Ints, significand: Codes) -> Codes:
        """Codes of (-1)^sign * significand * 2^exponent / 2^(room - 1): significands as long as there is room for."""
        mantissa = significand << (self.man + 1 - self.room(exponent)).astype(np.uint64)
        return self.compose(sign, exponent, mantissa)

    def patterns(self, rng: np.random.Generator, exponent: Ints, place: Ints) -> Codes:
        """Mantissas for such exponents whose bits below 2^place sit at, just above or just below a rounding boundary.

        The bits from there up are random, all zeros or all ones.
        """
        n = len(exponent)
        cut = np.clip(place - exponent + self.man, 0, self.man).astype(np.uint64)
        last = np.clip(self.last_place(exponent) - exponent + self.man, 0, self.man).astype(np.uint64)
        unit, one, zero = np.uint64(1) << cut, np.uint64(1) << last, np.zeros(n, dtype=np.uint64)
        half = unit >> np.uint64(1)
        low = np.choose(
            rng.integers(0, 8, n),
            [zero, one, half, half + one, half - one, unit - one, half | (half >> np.uint64(1)), words(rng, n)],
        )
        high = np.choose(rng.integers(0, 4, n), [words(rng, n), words(rng, n), zero, ~zero])
        below = unit - np.uint64(1)
        return ((high & ~below) | (low & below)) & np.uint64((1 << self.man) - 1)

    def middling(self, rng: np.random.Generator, n: int) -> Codes:
        """Numbers that neither overflow nor drown as soon as some of them are multiplied and summed up."""
        exponent = rng.integers(self.calm[0], self.calm[1] + 1, n)
        return self.compose(rng.integers(0, 2, n), exponent, words(rng, n))


class FloatGrid(Grid):
    """Signs and magnitudes apart; below the smallest normal number the last place stays where it is."""

    def __init__(self, fmt: Float) -> None:
        super().__init__(fmt)
        self.man, self.emin, self.emax, self.bias = fmt.man, fmt.emin, fmt.emax, fmt.bias
        self.max_code, self.top = fmt.max_code, fmt.sign_code - 1
        self.subnormals, self._with_subnormals = fmt.subnormals, replace(fmt, subnormals=True)
        one = min(max(0, fmt.emin), fmt.emax)
        self.calm = max(one - 4, fmt.emin), min(one + 4, fmt.emax)
        smallest_normal = 1 << fmt.man
        edges = {0, 1, smallest_normal - 1, smallest_normal, fmt.max_code - 1, fmt.max_code}
        self.edges = tuple(sorted(code for code in edges if 0 <= code <= fmt.max_code))

    def signed(self, sign: Ints, magnitude: Codes) -> Codes:
        return ((sign & 1).astype(np.uint64) << np.uint64(self.width - 1)) | magnitude

    def unsigned(self, codes: Codes) -> tuple[Ints, Codes]:
        return (codes >> np.uint64(self.width - 1)).astype(np.int64), codes & np.uint64(self.top)

    def compose(self, sign: Ints, exponent: Ints, mantissa: Ints | Codes) -> Codes:
        significand = _with_hidden_bit(mantissa, self.man)
        depth = np.clip(self.emin - exponent, 0, self.man + 1)
        field = np.clip(exponent + self.bias, 1, self.max_code >> self.man)
        # A normal significand carries its hidden bit into the exponent field, which therefore starts one lower.
        below = np.where(depth > 0, 0, field - 1).astype(np.uint64) << np.uint64(self.man)
        return self.signed(sign, below + (significand >> depth.astype(np.uint64)))

    def parts(self, codes: Codes) -> tuple[Ints, Ints, Codes]:
        sign, magnitude = self.unsigned(codes)
        field, mantissa = magnitude >> np.uint64(self.man), magnitude & np.uint64((1 << self.man) - 1)
        up = np.where(field > 0, 0, self.man + 1 - bit_lengths(mantissa))
        exponent = np.maximum(field.astype(np.int64), 1) - self.bias - up
        return sign, exponent, (mantissa << up.astype(np.uint64)) & np.uint64((1 << self.man) - 1)

    def last_place(self, exponent: Ints) -> Ints:
        # Without subnormals a result is rounded as if the exponent were unbounded, then flushed.
        return np.maximum(exponent - self.man, self.quantum) if self.subnormals else exponent - self.man

    def value(self, magnitude: int) -> Fraction:
        value = self._with_subnormals.decode(magnitude)
        assert isinstance(value, Fraction)
        return value

    def turns(self) -> list[Fraction]:
        # Without subnormals the ties below the smallest normal number lie closer to it.
        unit = Fraction(2) ** self.quantum
        return super().turns() + [Fraction(2) ** self.emin - unit * Fraction(step, 8) for step in (1, 2, 3, 4)]

    def _centres(self) -> Iterable[int]:
        smallest_normal = 1 << self.man
        half, one = smallest_normal >> 1, self.bias << self.man
        yield from (0, 1, 2, 3, half, smallest_normal, 2 * smallest_normal)
        yield from (one, one - smallest_normal, one + smallest_normal, one + half)
        # Behind the largest number come the specials, if any; the canonical NaN has the first mantissa bit.
        yield from (self.max_code, self.max_code >> self.man << self.man, self.max_code + 1 + half, self.top)


class FixedGrid(Grid):
    """Like a float whose numbers are all subnormal, except that minus is a complement, or not there at all."""

    def __init__(self, fmt: Fixed) -> None:
        super().__init__(fmt)
        self.man = fmt.precision - 1
        self.emin = self.emax = self.man + fmt.quantum
        self.max_code = fmt.largest_integer
        self.top = -fmt.lowest_integer if fmt.signed else fmt.largest_integer
        one = min(max(0, fmt.quantum), self.emax)
        # The wider, the more products of middling numbers can be summed up.
        self.calm = max(one - 4, fmt.quantum), min(one + max(self.man // 4, 1), self.emax)
        self.edges = tuple(sorted({0, min(1, self.top), max(self.max_code - 1, 0), self.max_code, self.top}))

    def signed(self, sign: Ints, magnitude: Codes) -> Codes:
        negative = (sign & 1 == 1) & self.negatives
        return np.where(negative, _complement(magnitude, self.width), np.minimum(magnitude, np.uint64(self.max_code)))

    def unsigned(self, codes: Codes) -> tuple[Ints, Codes]:
        sign = (codes >> np.uint64(self.width - 1)).astype(np.int64) * self.negatives
        return sign, np.where(sign == 1, _complement(codes, self.width), codes)

    def compose(self, sign: Ints, exponent: Ints, mantissa: Ints | Codes) -> Codes:
        depth = np.clip(self.emin - exponent, 0, self.man + 1)
        significand = _with_hidden_bit(mantissa, self.man)
        # One power of two more there is: the least number.
        least = (exponent == self.emax + 1) & (significand == np.uint64(1 << self.man))
        return self.signed(sign, np.where(least, np.uint64(self.top), _shifted(significand, depth)))

    def parts(self, codes: Codes) -> tuple[Ints, Ints, Codes]:
        sign, magnitude = self.unsigned(codes)
        length = bit_lengths(magnitude)
        # The least number is one bit longer than the others, and that bit is its only one.
        mantissa = magnitude << np.clip(self.man + 1 - length, 0, 63).astype(np.uint64)
        return sign, length - 1 + self.quantum, mantissa & np.uint64((1 << self.man) - 1)

    def last_place(self, exponent: Ints) -> Ints:
        return np.full_like(exponent, self.quantum)

    def value(self, magnitude: int) -> Fraction:
        # The least number has a magnitude code that is no code of a positive number.
        return magnitude * self.fmt.smallest

    def _centres(self) -> Iterable[int]:
        one = 1 << max(-self.quantum, 0)
        return (0, 1, 2, 1 << self.man, 1 << self.man >> 1, one if self.quantum <= 0 else 0, self.max_code, self.top)


class PositGrid(Grid):
    """Mantissas of any length, the longest around one; minus is a complement."""

    def __init__(self, fmt: Posit) -> None:
        super().__init__(fmt)
        self.man, self.es = fmt.fraction_bits, fmt.es
        self.emin, self.emax = -fmt.max_scale, fmt.max_scale
        self.max_code, self.top = fmt.max_code, fmt.nan_code
        # Regimes of three bits at most, and of few exponents even where es makes them long.
        spread = min(2 << fmt.es, 8, fmt.max_scale)
        self.calm = -spread, spread - 1
        one = 1 << (self.width - 2)
        self.edges = tuple(sorted({0, 1, 2, one - 1, one, self.max_code - 1, self.max_code}))

    def signed(self, sign: Ints, magnitude: Codes) -> Codes:
        return np.where(sign & 1 == 1, _complement(magnitude, self.width), magnitude)

    def unsigned(self, codes: Codes) -> tuple[Ints, Codes]:
        sign = (codes >> np.uint64(self.width - 1)).astype(np.int64)
        return sign, np.where(sign == 1, _complement(codes, self.width), codes)

    def compose(self, sign: Ints, exponent: Ints, mantissa: Ints | Codes) -> Codes:
        exponent = np.clip(exponent, self.emin, self.emax)
        k, rest = self._regime(exponent)
        large = k >= 0
        ones = (np.uint64(1) << np.where(large, k + 1, 0).astype(np.uint64)) - np.uint64(1)
        # Of maxpos even the bit that would end the regime is cut off: there rest is -1.
        regime = np.where(
            large,
            ones << np.maximum(rest + 1, 0).astype(np.uint64),
            np.uint64(1) << np.maximum(rest, 0).astype(np.uint64),
        )
        low: Codes = (exponent & ((1 << self.es) - 1)).astype(np.uint64) << np.uint64(self.man)
        tail: Codes = low | (mantissa.astype(np.uint64) & np.uint64((1 << self.man) - 1))
        return self.signed(sign, regime | (tail >> (self.es + self.man - rest).astype(np.uint64)))

    def parts(self, codes: Codes) -> tuple[Ints, Ints, Codes]:
        sign, magnitude = self.unsigned(codes)
        body = self.width - 1
        ones = (magnitude >> np.uint64(body - 1)) & np.uint64(1) == 1
        run = body - bit_lengths((np.where(ones, ~magnitude, magnitude)) & np.uint64((1 << body) - 1))
        rest = np.maximum(body - run - 1, 0)
        kept: Codes = magnitude & ((np.uint64(1) << rest.astype(np.uint64)) - np.uint64(1))
        # As long as exponent and fraction together are where there is most room: what the end cuts off are zeros.
        tail: Codes = kept << (self.es + self.man - rest).astype(np.uint64)
        exponent = (np.where(ones, run - 1, -run) << self.es) + (tail >> np.uint64(self.man)).astype(np.int64)
        return sign, exponent, tail & np.uint64((1 << self.man) - 1)

    def last_place(self, exponent: Ints) -> Ints:
        # Where the end of the code cuts exponent bits off, this lies above the number itself.
        exponent = np.clip(exponent, self.emin, self.emax)
        return exponent - (self._regime(exponent)[1] - self.es)

    def between(self, magnitude: int, quarters: int) -> Fraction:
        low = self.value(magnitude)
        high = self.value(magnitude + 1) if magnitude < self.max_code else low * 2 ** (1 << self.es)
        if quarters in (0, 4):
            return high if quarters else low
        half = _halfway(low, high)
        return half if quarters == 2 else _halfway(low, half) if quarters == 1 else _halfway(half, high)

    def _regime(self, exponent: Ints) -> tuple[Ints, Ints]:
        """What the regime counts, and the bits that it leaves to exponent and fraction."""
        k = exponent >> self.es
        return k, self.width - 1 - np.where(k >= 0, k + 2, 1 - k)

    def _centres(self) -> Iterable[int]:
        """Where the regime grows by a bit, up or down; of a wide format, some of these places."""
        body = self.width - 1
        yield from (0, 1, 2, 1 << (body - 1), self.max_code, self.top)
        for place in range(body):
            if self.width <= 16 or place % 8 == 0 or not 6 <= place <= body - 4:
                yield from (1 << place, (1 << body) - (1 << place))


def words(rng: np.random.Generator, n: int) -> Codes:
    """Random words of 64 bits."""
    return rng.integers(0, (1 << 64) - 1, n, dtype=np.uint64, endpoint=True)


def bit_lengths(numbers: Codes) -> Ints:
    """Bits of each number without leading zeros."""
    high = numbers >> np.uint64(32)
    # Floats count the bits of halves, which they hold exactly.
    halves = np.where(high > 0, high, numbers).astype(np.float64)
    return np.frexp(halves)[1].astype(np.int64) + np.where(high > 0, 32, 0)


def _with_hidden_bit(mantissa: Ints | Codes, man: int) -> Codes:
    return np.uint64(1 << man) | (mantissa.astype(np.uint64) & np.uint64((1 << man) - 1))


def _shifted(numbers: Codes, right: Ints) -> Codes:
    """Shifts of 0 to 64 places."""
    return np.where(right > 63, np.uint64(0), numbers >> np.minimum(right, 63).astype(np.uint64))


def _complement(codes: Codes, width: int) -> Codes:
    return (~codes + np.uint64(1)) & np.uint64((1 << width) - 1)


def _halfway(low: Fraction, high: Fraction) -> Fraction:
    """The posit of one more bit between two posits: powers of two that lie far apart are missing exponent bits."""
    if 0 < 4 * low <= high:
        return Fraction(2) ** ((floor_log2(low) + floor_log2(high)) // 2)
    return (low + high) / 2
