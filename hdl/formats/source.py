"""Sources of random words for stochastic rounding, as plain data."""

import functools
import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from .checks import check_int

_TAPS = """
    2 1, 3 2, 4 3, 5 3, 6 5, 7 6, 8 6 5 4, 9 5, 10 7, 11 9, 12 6 4 1, 13 4 3 1, 14 5 3 1, 15 14, 16 15 13 4, 17 14,
    18 11, 19 6 2 1, 20 17, 21 19, 22 21, 23 18, 24 23 22 17, 25 22, 26 6 2 1, 27 5 2 1, 28 25, 29 27, 30 6 4 1,
    31 28, 32 22 2 1, 33 20, 34 27 2 1, 35 33, 36 25, 37 5 4 3 2 1, 38 6 5 1, 39 35, 40 38 21 19, 41 38,
    42 41 20 19, 43 42 38 37, 44 43 18 17, 45 44 42 41, 46 45 26 25, 47 42, 48 47 21 20, 49 40, 50 49 24 23,
    51 50 36 35, 52 49, 53 52 38 37, 54 53 18 17, 55 31, 56 55 35 34, 57 50, 58 39, 59 58 38 37, 60 59,
    61 60 46 45, 62 61 6 5, 63 62, 64 63 61 60
"""
TAPS: dict[int, tuple[int, ...]] = {row[0]: row for row in (tuple(map(int, text.split())) for text in _TAPS.split(","))}
"""Places, counted from 1, whose exclusive or is shifted in, by width of the LFSR (Alfke, Xilinx XAPP 052, 1996). The
sum of x to these powers and 1 is a primitive polynomial, so that the period is full."""


@dataclass(frozen=True)
class _Source:
    """Source of random words, around a maximal-length LFSR.

    Parameters
    ----------
    width : int
        Bits of the LFSR and of a word.

    Raises
    ------
    TypeError, ValueError
        If the width is of the wrong kind, or out of range.
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
        """Places, counted from 1, whose exclusive or comes in."""
        return TAPS[self.width]

    @property
    def state_bits(self) -> int:
        """Bits of a state."""
        return self.width

    @property
    @abstractmethod
    def period(self) -> int:
        """Steps after which the words repeat."""

    def check_seed(self, seed: int) -> int:
        """A seed, refused unless it is a state of the source: any whose lower bits, the LFSR's, are not zero."""
        check_int("seed", seed, str(self))
        if not 0 <= seed < 1 << self.state_bits:
            raise ValueError(f"seed {seed:#x} does not fit the {self.state_bits} bits of a state of {self}")
        if seed & ((1 << self.width) - 1) == 0:
            raise ValueError(
                f"seed {seed:#x} would leave {self} at zero for ever; take one whose lower {self.width} bits are not"
            )
        return seed

    @abstractmethod
    def jump(self, seed: int, steps: int) -> int:
        """State after so many steps."""

    def spacing(self, count: int) -> int:
        """Steps from the seed of one unit of an array to that of the next: as far as can be."""
        check_int("count", count, "array of units", 1)
        return max(self.period // count, 1)

    def seeds(self, count: int, first: int = 1) -> list[int]:
        """Seeds for an array of units, as far apart in the period as can be.

        Unit i starts where unit 0 is after i * floor(period / count) steps; more units than the period has steps share
        them.
        """
        apart = self.spacing(count)
        self.check_seed(first)
        return [self.jump(first, unit * apart) for unit in range(count)]


class Lfsr(_Source):
    """A maximal-length Fibonacci LFSR of 2 to 64 bits.

    In each step its word moves up one place, and a parity of it comes in below. Every word but zero appears once in a
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
    """The words of an LFSR of 2 to 16 bits for one period, then their complements for one period, and so on (Chang et
    al., DATE 2023).

    In a period of 2 (2^width - 1) steps the words 1 to 2^width - 2 appear twice, 0 and 2^width - 1 once.

    Notes
    -----
    A state is that of the LFSR and, as the bit above it, whether its word is complemented. It changes with the step
    that makes the LFSR's word 1.
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
    """Random words as one rounder gets them: of a source, which several may share.

    Parameters
    ----------
    source : Lfsr or Plateau
    seed : int
        State of the source before its first word.
    rotation : int
        Places that each word is rotated upward.
    complemented : bool
        Each word is complemented. Of a plateau source that, like a rotation, changes no frequency of any word.

    Rounders that share a source by rotations and complements get different words of the same law in each step, at no
    cost in hardware but inverters.
    """

    source: Source
    seed: int
    rotation: int = 0
    complemented: bool = False

    def bits_of(self, bits: int) -> tuple[int, list[int]]:
        """Parts of a word of ``bits`` bits: zeros below, then these places of the source's word.

        The low bits of an LFSR's word, but all bits of a plateau's, which are aligned to the first bits discarded.
        """
        width = self.source.width
        places = [(place - self.rotation) % width for place in range(width)]
        if isinstance(self.source, Plateau):
            return bits - width, places
        return 0, places[:bits]

    def steps(self, bits: int) -> int:
        """Discarded fractions that random words of ``bits`` bits tell apart: 0, 1/n, 2/n ... of which there are n.

        Raises
        ------
        TypeError, ValueError
            If the source has no words of so many bits.
        """
        check_int("width", bits, "random word", 1)
        check_source(self.source, [bits])
        return 1 << len(self.bits_of(bits)[1])

    def chance_of_up(self, fraction: Fraction | float, bits: int) -> Fraction:
        """Share of a whole period of the source in which stochastic rounding goes up with words of this stream.

        Parameters
        ----------
        fraction : Fraction or float
            Discarded part, in units of the last place of the result: 0 or more and less than 1. Its bits below the
            first ``bits`` are dropped, and below the first ``width`` with a narrower plateau source.
        bits : int
            Width of the random word.

        Returns
        -------
        Fraction
            With t = floor(fraction * 2^bits), the share of the period's words R for which t + R >= 2^bits. Of an LFSR
            of M bits that is t * 2^(M - bits) / (2^M - 1), for zero, the one word that it lacks, never goes up. Of a
            plateau source it is (2 u - 1) / (2 (2^M - 1)), with u = floor(fraction * 2^M), for the largest word comes
            once and the others twice; and 0 where u is.

        Raises
        ------
        TypeError, ValueError
            If the fraction is out of range, or the source has no words of so many bits.
        """
        steps = self.steps(bits)
        if not isinstance(fraction, (Fraction, float, int)) or isinstance(fraction, bool):
            raise TypeError(f"a discarded fraction is a Fraction or a float, not {type(fraction).__name__}")
        if not 0 <= fraction < 1:
            raise ValueError(f"a discarded fraction is 0 or more and less than 1, not {fraction}")
        # Up go the largest words: so many of all that the places in use can hold.
        largest = int(Fraction(fraction) * steps)
        if largest == 0:
            return Fraction(0)
        if isinstance(self.source, Plateau):
            return Fraction(2 * largest - 1, self.source.period)
        # The word that comes once less is zero, but the largest among complements.
        return Fraction((largest << (self.source.width - bits)) - int(self.complemented), self.source.period)

    def mean_chance_of_up(self, bits: int) -> Fraction:
        """`chance_of_up` on average over all fractions; one half would be without bias."""
        steps = self.steps(bits)
        # The chance is 0 on the first step and rises evenly from the second to the last.
        ends = self.chance_of_up(Fraction(1, steps), bits) + self.chance_of_up(Fraction(steps - 1, steps), bits)
        return Fraction(steps - 1, steps) * ends / 2


def lanes(source: Source, count: int, seed: int, sharing: str) -> list[Stream]:
    """Streams for so many lanes.

    Parameters
    ----------
    source : Lfsr or Plateau
    count : int
    seed : int
        Of the first lane.
    sharing : str
        ``own``: each lane has a source, and they are as far apart as can be. ``rotated``: all share one; lane i has its
        words rotated by i places, and those of a plateau source complemented too in every second turn.
    """
    if sharing == "own":
        return [Stream(source, first) for first in source.seeds(count, seed)]
    if sharing != "rotated":
        raise ValueError(f"unknown sharing {sharing!r}; lanes have a source of their own each, or one rotated")
    source.check_seed(seed)
    return [
        Stream(source, seed, lane % source.width, isinstance(source, Plateau) and lane // source.width % 2 == 1)
        for lane in range(count)
    ]


def parse_source(text: str | Source) -> Source:
    """Source named by a text such as ``lfsr16`` or ``plateau3``."""
    if isinstance(text, (Lfsr, Plateau)):
        return text
    if not isinstance(text, str):
        raise TypeError(f"a source is an Lfsr, a Plateau or a text such as 'lfsr16', not {type(text).__name__}")
    for kind in SOURCES:
        if match := re.fullmatch(rf"{kind.KIND}([0-9]+)", text):
            return kind(int(match[1]))
    known = " and ".join(f"{kind.KIND}{kind.WIDTHS[0]} to {kind.KIND}{kind.WIDTHS[-1]}" for kind in SOURCES)
    raise ValueError(f"unknown source {text!r}; the sources are {known}")


def check_source(source: Source, words: Iterable[int]) -> Source:
    """A source, refused unless it can give random words of these numbers of bits, at least one of them.

    Raises
    ------
    TypeError, ValueError
        If it is no source, there is nothing stochastic, or its words are too narrow (LFSR) or too wide (plateau).
    """
    if not isinstance(source, (Lfsr, Plateau)):
        raise TypeError(f"a source is an Lfsr or a Plateau, not {type(source).__name__}")
    widths = list(words)
    if not widths:
        raise ValueError(f"random {source} does nothing, for no rounding is stochastic; only sr is")
    for bits in widths:
        if isinstance(source, Lfsr) and source.width < bits:
            raise ValueError(f"{source} gives words of {source.width} bits and {bits} are needed; take a wider source")
        if isinstance(source, Plateau) and source.width > bits:
            raise ValueError(f"{source} gives words of {source.width} bits, more than the {bits} that are looked at")
    return source


def _step(width: int, state: int) -> int:
    parity = 0
    for tap in TAPS[width]:
        parity ^= state >> (tap - 1)
    return ((state << 1) | (parity & 1)) & ((1 << width) - 1)


def _jump(width: int, state: int, steps: int) -> int:
    """State after so many steps: x^steps modulo the characteristic polynomial says which of the next states add up."""
    factor = _power(width, steps)
    total = 0
    for place in range(width):
        if factor >> place & 1:
            total ^= state
        state = _step(width, state)
    return total


@functools.lru_cache
def _power(width: int, steps: int) -> int:
    """x^steps modulo the characteristic polynomial; kept, for arrays jump all units by as much."""
    # One step multiplies by x; the place that tap t reads is t - 1, and comes in as 2^(width - t) of the reversed word.
    modulus = (1 << width) | sum(1 << (width - tap) for tap in TAPS[width])
    factor, square = 1, 2
    while steps:
        if steps & 1:
            factor = _product(factor, square, modulus, width)
        square = _product(square, square, modulus, width)
        steps >>= 1
    return factor


def _product(x: int, y: int, modulus: int, width: int) -> int:
    """Product of two polynomials over GF(2)."""
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
    """Words of a narrow LFSR in order, from 1 on, and the place of each."""
    words = [1]
    while (word := _step(width, words[-1])) != 1:
        words.append(word)
    return words, {word: place for place, word in enumerate(words)}
