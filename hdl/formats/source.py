"""Descriptions of random sources for stochastic rounding."""

import functools
import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from .checks import check_int, check_one_of

SHARINGS = ("own", "rotated")
"""Ways in which lanes share a source; see `lanes`."""

_TAPS = """
    2 1, 3 2, 4 3, 5 3, 6 5, 7 6, 8 6 5 4, 9 5, 10 7, 11 9, 12 6 4 1, 13 4 3 1, 14 5 3 1, 15 14, 16 15 13 4, 17 14,
    18 11, 19 6 2 1, 20 17, 21 19, 22 21, 23 18, 24 23 22 17, 25 22, 26 6 2 1, 27 5 2 1, 28 25, 29 27, 30 6 4 1,
    31 28, 32 22 2 1, 33 20, 34 27 2 1, 35 33, 36 25, 37 5 4 3 2 1, 38 6 5 1, 39 35, 40 38 21 19, 41 38,
    42 41 20 19, 43 42 38 37, 44 43 18 17, 45 44 42 41, 46 45 26 25, 47 42, 48 47 21 20, 49 40, 50 49 24 23,
    51 50 36 35, 52 49, 53 52 38 37, 54 53 18 17, 55 31, 56 55 35 34, 57 50, 58 39, 59 58 38 37, 60 59,
    61 60 46 45, 62 61 6 5, 63 62, 64 63 61 60
"""
TAPS: dict[int, tuple[int, ...]] = {row[0]: row for row in (tuple(map(int, text.split())) for text in _TAPS.split(","))}
"""Feedback taps by LFSR width, counted from 1 (Alfke, Xilinx XAPP 052, 1996). The sum of 1 and x to these powers
is a primitive polynomial, so that the period is maximal.
"""


@dataclass(frozen=True)
class _Source:
    """Base class of random sources, which contain a maximal-length LFSR.

    Parameters
    ----------
    width : int
        Width of the LFSR and of a random word.

    Raises
    ------
    TypeError, ValueError
        If the width has the wrong type or is out of range.
    """

    width: int

    KIND: ClassVar[str]
    WIDTHS: ClassVar[range]

    def __post_init__(self) -> None:
        check_int("width", self.width, f"{self.KIND} source", self.WIDTHS[0], self.WIDTHS[-1])

    def __str__(self) -> str:
        return f"{self.KIND}{self.width}"

    @property
    def taps(self) -> tuple[int, ...]:
        """Feedback taps of the LFSR, counted from 1."""
        return TAPS[self.width]

    @property
    def state_bits(self) -> int:
        """Width of the state."""
        return self.width

    @property
    @abstractmethod
    def period(self) -> int:
        """Number of steps after which the words repeat."""

    def check_seed(self, seed: int) -> int:
        """Return ``seed`` if it is a valid state, with at least one bit of the LFSR set; else raise an error."""
        check_int("seed", seed, str(self))
        if not 0 <= seed < 1 << self.state_bits:
            raise ValueError(f"seed {seed:#x} does not fit the {self.state_bits} bits of a state of {self}")
        if seed & ((1 << self.width) - 1) == 0:
            raise ValueError(
                f"seed {seed:#x} would hold {self} at zero; the lower {self.width} bits must not all be zero"
            )
        return seed

    @abstractmethod
    def jump(self, seed: int, steps: int) -> int:
        """Return the state after ``steps`` steps."""

    def spacing(self, count: int) -> int:
        """Return the maximum number of steps between the seeds of neighbouring units in an array."""
        check_int("count", count, "array of units", 1)
        return max(self.period // count, 1)

    def seeds(self, count: int, first: int = 1) -> list[int]:
        """Return seeds for an array of units, evenly spaced over the period.

        Unit i starts with the state of unit 0 after i * floor(period / count) steps. More units than steps share seeds.
        """
        apart = self.spacing(count)
        self.check_seed(first)
        return [self.jump(first, unit * apart) for unit in range(count)]


class Lfsr(_Source):
    """Maximal-length Fibonacci LFSR of 2 to 64 bits.

    Each step shifts the word up by one bit and shifts in the parity of its taps. Every nonzero word appears once in a
    period of 2^width - 1 steps.
    """

    KIND, WIDTHS = "lfsr", range(2, 65)

    @property
    def period(self) -> int:
        return (1 << self.width) - 1

    def jump(self, seed: int, steps: int) -> int:
        self.check_seed(seed)
        return _jump(self.width, seed, steps % self.period)


class Plateau(_Source):
    """LFSR of 2 to 16 bits whose words are complemented in every second period (Chang et al., DATE 2023).

    In a period of 2 (2^width - 1) steps the words 1 to 2^width - 2 appear twice, 0 and 2^width - 1 once.

    Notes
    -----
    The state is the LFSR and, as the next higher bit, the complement flag. The flag toggles in the step that sets the
    LFSR to 1.
    """

    KIND, WIDTHS = "plateau", range(2, 17)

    @property
    def state_bits(self) -> int:
        return self.width + 1

    @property
    def period(self) -> int:
        return 2 * ((1 << self.width) - 1)

    def jump(self, seed: int, steps: int) -> int:
        self.check_seed(seed)
        words, places = _orbit(self.width)
        half = len(words)
        place = places[seed & ((1 << self.width) - 1)] + (half if seed >> self.width else 0)
        inverted, place = divmod((place + steps) % self.period, half)
        return words[place] | (inverted << self.width)


Source = Lfsr | Plateau
SOURCES = (Lfsr, Plateau)


@dataclass(frozen=True)
class Stream:
    """Random words of one rounder, from a source that several rounders may share.

    Parameters
    ----------
    source : Lfsr or Plateau
    seed : int
        State of the source at the first word.
    rotation : int
        Number of places by which each word is rotated up.
    complemented : bool
        True if each word is complemented. All words of a plateau source stay equally frequent, as after a rotation.
    others : tuple of int
        States of further sources of the same kind. All sources give words in turn, the one with ``seed`` first.

    Rounders that share a source with different rotations and complements get different words of the same distribution
    in each step, at the cost of inverters only.
    """

    source: Source
    seed: int
    rotation: int = 0
    complemented: bool = False
    others: tuple[int, ...] = ()

    def bits_of(self, bits: int) -> tuple[int, list[int]]:
        """Return the parts of a word of ``bits`` bits: the number of zeros below, and positions in the source's word.

        An LFSR provides its low bits. A plateau source provides all bits, aligned to the first discarded bits.
        """
        width = self.source.width
        places = [(place - self.rotation) % width for place in range(width)]
        if isinstance(self.source, Plateau):
            return bits - width, places
        return 0, places[:bits]

    def steps(self, bits: int) -> int:
        """Return the number n of discarded fractions that words of ``bits`` bits resolve: 0, 1/n, 2/n, ...

        Raises
        ------
        TypeError, ValueError
            If the source cannot provide words of this width.
        """
        check_int("width", bits, "random word", 1)
        check_source(self.source, [bits])
        return 1 << len(self.bits_of(bits)[1])

    def chance_of_up(self, fraction: Fraction | float, bits: int) -> Fraction:
        """Return the probability of rounding up with words of this stream, over a whole period of the source.

        Parameters
        ----------
        fraction : Fraction or float
            Discarded part, in units of the last place of the result: 0 or more and less than 1. Only its first ``bits``
            bits count, and with a narrower plateau source its first ``width`` bits.
        bits : int
            Width of the random word.

        Returns
        -------
        Fraction
            Share of the period's words R with t + R >= 2^bits, where t = floor(fraction * 2^bits). For an LFSR of M
            bits it is t * 2^(M - bits) / (2^M - 1), because the missing word, zero, never rounds up. For a plateau
            source it is (2 u - 1) / (2 (2^M - 1)) with u = floor(fraction * 2^M), because the largest word appears once
            and the others twice, and 0 if u is 0.

        Raises
        ------
        TypeError, ValueError
            If the fraction is out of range, or the source cannot provide words of this width.
        """
        steps = self.steps(bits)
        if not isinstance(fraction, (Fraction, float, int)) or isinstance(fraction, bool):
            raise TypeError(f"a discarded fraction must be a Fraction or a float, not {type(fraction).__name__}")
        if not 0 <= fraction < 1:
            raise ValueError(f"a discarded fraction must be at least 0 and less than 1, not {fraction}")
        # The largest words round up; their number is the fraction of all values of the used bits.
        largest = int(Fraction(fraction) * steps)
        if largest == 0:
            return Fraction(0)
        if isinstance(self.source, Plateau):
            return Fraction(2 * largest - 1, self.source.period)
        # One word appears less often than the others: zero, or with complements the largest.
        return Fraction((largest << (self.source.width - bits)) - int(self.complemented), self.source.period)

    def mean_chance_of_up(self, bits: int) -> Fraction:
        """Return the mean of `chance_of_up` over all fractions; it is one half without bias."""
        steps = self.steps(bits)
        # The probability is 0 in the first step and grows linearly from the second to the last.
        ends = self.chance_of_up(Fraction(1, steps), bits) + self.chance_of_up(Fraction(steps - 1, steps), bits)
        return Fraction(steps - 1, steps) * ends / 2


def lanes(source: Source, count: int, seed: int, sharing: str) -> list[Stream]:
    """Return the streams of ``count`` lanes.

    Parameters
    ----------
    source : Lfsr or Plateau
    count : int
    seed : int
        Seed of the first lane.
    sharing : str
        ``own``: one source per lane, evenly spaced over the period. ``rotated``: one source for all; lane i rotates
        its words by i places, and every second full rotation of a plateau source also complements them.
    """
    check_one_of("sharing", sharing, SHARINGS)
    if sharing == "own":
        return [Stream(source, first) for first in source.seeds(count, seed)]
    source.check_seed(seed)
    return [
        Stream(source, seed, lane % source.width, isinstance(source, Plateau) and lane // source.width % 2 == 1)
        for lane in range(count)
    ]


def parse_source(text: str | Source) -> Source:
    """Parse the name of a source, such as ``lfsr16`` or ``plateau3``."""
    if isinstance(text, (Lfsr, Plateau)):
        return text
    if not isinstance(text, str):
        raise TypeError(f"a source must be an Lfsr, a Plateau or a string such as 'lfsr16', not {type(text).__name__}")
    for kind in SOURCES:
        if match := re.fullmatch(rf"{kind.KIND}([0-9]+)", text):
            return kind(int(match[1]))
    known = " and ".join(f"{kind.KIND}{kind.WIDTHS[0]} to {kind.KIND}{kind.WIDTHS[-1]}" for kind in SOURCES)
    raise ValueError(f"unknown source {text!r}; the sources are {known}")


def check_source(source: Source, words: Iterable[int]) -> Source:
    """Return ``source`` if it can provide words of the given widths, at least one; else raise an error.

    Raises
    ------
    TypeError, ValueError
        If ``source`` is not a source, no rounding is stochastic, or words are too narrow (LFSR) or too wide (plateau).
    """
    if not isinstance(source, (Lfsr, Plateau)):
        raise TypeError(f"a source must be an Lfsr or a Plateau, not {type(source).__name__}")
    widths = list(words)
    if not widths:
        raise ValueError(f"random source {source} does nothing without stochastic rounding, such as sr8")
    for bits in widths:
        if isinstance(source, Lfsr) and source.width < bits:
            raise ValueError(f"{source} gives words of {source.width} bits, but the rounding needs {bits}")
        if isinstance(source, Plateau) and source.width > bits:
            raise ValueError(f"{source} gives words of {source.width} bits, but the rounding uses only {bits}")
    return source


def _step(width: int, state: int) -> int:
    parity = 0
    for tap in TAPS[width]:
        parity ^= state >> (tap - 1)
    return ((state << 1) | (parity & 1)) & ((1 << width) - 1)


def _jump(width: int, state: int, steps: int) -> int:
    """Return the state after ``steps`` steps; x^steps modulo the characteristic polynomial selects states to add."""
    factor = _power(width, steps)
    total = 0
    for place in range(width):
        if factor >> place & 1:
            total ^= state
        state = _step(width, state)
    return total


@functools.lru_cache
def _power(width: int, steps: int) -> int:
    """Return x^steps modulo the characteristic polynomial; cached, because all units of an array jump equally far."""
    # One step multiplies by x. Tap t reads bit t - 1, which is bit width - t of the reversed word.
    modulus = (1 << width) | sum(1 << (width - tap) for tap in TAPS[width])
    factor, square = 1, 2
    while steps:
        if steps & 1:
            factor = _product(factor, square, modulus, width)
        square = _product(square, square, modulus, width)
        steps >>= 1
    return factor


def _product(x: int, y: int, modulus: int, width: int) -> int:
    """Multiply two polynomials over GF(2)."""
    product = 0
    while y:
        if y & 1:
            product ^= x
        x <<= 1
        if x >> width & 1:
            x ^= modulus
        y >>= 1
    return product


@functools.cache
def _orbit(width: int) -> tuple[list[int], dict[int, int]]:
    """Return the words of a narrow LFSR in order, starting with 1, and the position of each."""
    words = [1]
    while (word := _step(width, words[-1])) != 1:
        words.append(word)
    return words, {word: place for place, word in enumerate(words)}
