"""Descriptions of random sources for stochastic rounding."""

import functools
import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
class Part:
    """Bits of a register that make a random word.

    Parameters
    ----------
    dropped : int
        Number of lowest bits that are left out.
    taken : int
        Number of bits above them, which become the upper bits of the word.
    repeated : bool
        True if the same bits fill the word below, from its upper bits down; otherwise zeros do.
    """

    dropped: int
    taken: int
    repeated: bool = False

    def word(self, taken: int, bits: int) -> int:
        """Return the word of ``bits`` bits with the value ``taken`` of the taken bits."""
        copies = -(-bits // self.taken) if self.repeated else 1
        many = taken * sum(1 << (self.taken * copy) for copy in range(copies))
        return many << bits >> copies * self.taken


@dataclass(frozen=True)
class Source:
    """Base class of random sources, which contain a maximal-length Fibonacci LFSR.

    Each step shifts the register up by one bit and shifts in the parity of its taps.

    Parameters
    ----------
    width : int
        Width of a random word of the source.

    Raises
    ------
    TypeError, ValueError
        If the width has the wrong type or is out of range.
    """

    width: int

    KIND: ClassVar[str]
    SUFFIX: ClassVar[str] = ""
    WIDTHS: ClassVar[range]

    inverting: ClassVar[bool] = False
    """True if the words are complemented in every second period of the LFSR."""

    def __post_init__(self) -> None:
        check_int("width", self.width, f"{self.KIND} source", self.WIDTHS[0], self.WIDTHS[-1])

    def __str__(self) -> str:
        return f"{self.KIND}{self.width}{self.SUFFIX}"

    @property
    def register(self) -> int:
        """Width of the LFSR."""
        return self.width

    @property
    def full_bits(self) -> int:
        """Width of the random words that use all that the source gives."""
        return self.width

    @property
    def taps(self) -> tuple[int, ...]:
        """Feedback taps of the LFSR, counted from 1."""
        return TAPS[self.register]

    @property
    def state_bits(self) -> int:
        """Width of the state: the LFSR and, as the next higher bit, the complement flag if there is one.

        The flag toggles in the step that sets the LFSR to 1.
        """
        return self.register + self.inverting

    @property
    def period(self) -> int:
        """Number of steps after which the words repeat."""
        return ((1 << self.register) - 1) << self.inverting

    @abstractmethod
    def part(self, bits: int) -> Part:
        """Return the bits that make a random word of ``bits`` bits; ValueError if the source cannot provide it."""

    def check_seed(self, seed: int) -> int:
        """Return ``seed`` if it is a valid state, with at least one bit of the LFSR set; else raise an error."""
        check_int("seed", seed, str(self))
        if not 0 <= seed < 1 << self.state_bits:
            raise ValueError(f"seed {seed:#x} does not fit the {self.state_bits} bits of a state of {self}")
        if seed & ((1 << self.register) - 1) == 0:
            raise ValueError(
                f"seed {seed:#x} would hold {self} at zero; the lower {self.register} bits must not all be zero"
            )
        return seed

    def jump(self, seed: int, steps: int) -> int:
        """Return the state after ``steps`` steps."""
        self.check_seed(seed)
        if not self.inverting:
            return _jump(self.register, seed, steps % self.period)
        words, places = _orbit(self.register)
        half = len(words)
        place = places[seed & half] + (half if seed >> self.register else 0)
        inverted, place = divmod((place + steps) % self.period, half)
        return words[place] | (inverted << self.register)

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


class Lfsr(Source):
    """LFSR of 2 to 64 bits, whose low bits are the random word.

    Every nonzero state appears once in a period of 2^width - 1 steps.
    """

    KIND, WIDTHS = "lfsr", range(2, 65)

    def part(self, bits: int) -> Part:
        if self.width < bits:
            raise ValueError(f"{self} gives words of {self.width} bits, but the rounding needs {bits}")
        return Part(0, bits)


class _Upper(Source):
    """Base class of sources that give the upper bits of a random word."""

    def part(self, bits: int) -> Part:
        if self.width > bits:
            raise ValueError(f"{self} gives words of {self.width} bits, but the rounding uses only {bits}")
        return Part(self.register - self.width, self.width)


class Naive(_Upper):
    """Upper 2 to 16 bits of an LFSR that is one bit wider (Chang et al., DATE 2023, equation 4).

    The words are those of a uniform number that is rounded to a multiple of 2^-width and is not rounded up to 1: in a
    period of 2^(width + 1) - 1 steps 0 appears once, and each other word twice.
    """

    KIND, WIDTHS = "naive", range(2, 17)

    @property
    def register(self) -> int:
        return self.width + 1


class Plateau(_Upper):
    """LFSR of 2 to 16 bits whose words are complemented in every second period (Chang et al., DATE 2023).

    In a period of 2 (2^width - 1) steps the words 1 to 2^width - 2 appear twice, 0 and 2^width - 1 once. They are the
    upper bits of a random word, above zeros, so that word i stands for i / 2^width.
    """

    KIND, WIDTHS = "plateau", range(2, 17)
    inverting = True


class RepeatedPlateau(Plateau):
    """`Plateau` whose words are repeated to fill a random word, such as 101 to 10110110.

    Word i stands for i / (2^width - 1), rounded down to the last place of the random word, and the largest word for 1
    less one such place. The levels of equation 5 of Chang et al. (DATE 2023), which are published as a table, are so
    made by wires, and numbers without a discarded part stay as they are.
    """

    SUFFIX = "-rep"

    @property
    def full_bits(self) -> int:
        return 2 * self.width

    def part(self, bits: int) -> Part:
        if self.width == bits:
            raise ValueError(
                f"{self} fills words of more than {bits} bits, but the rounding uses {bits}; use plateau{bits}, or a "
                f"rounding such as sr{self.full_bits}"
            )
        return replace(super().part(bits), repeated=True)


SOURCES: tuple[type[Source], ...] = (Lfsr, Plateau, RepeatedPlateau, Naive)


@dataclass(frozen=True)
class Stream:
    """Random words of one rounder, from a source that several rounders may share.

    Parameters
    ----------
    source : Source
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
        """Return the parts of a word of ``bits`` bits: the number of zeros below, and positions in the register.

        An LFSR provides its low bits. The other sources provide all bits of their words, aligned to the first discarded
        bits, and repeated ones fill the bits below.
        """
        part, register = self.source.part(bits), self.source.register
        places = [(part.dropped + place - self.rotation) % register for place in range(part.taken)]
        below = bits - part.taken
        if part.repeated:
            return 0, [places[(place - below) % part.taken] for place in range(bits)]
        return below, places

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
            bits count, and with words above zeros only the bits at those.
        bits : int
            Width of the random word.

        Returns
        -------
        Fraction
            Share of the period's words R with t + R >= 2^bits, where t = floor(fraction * 2^bits). For an LFSR of M
            bits it is t * 2^(M - bits) / (2^M - 1), because the missing word, zero, never rounds up. For a plateau
            source it is (2 u - 1) / (2 (2^M - 1)) with the number u of words that round up, because the largest word
            appears once and the others twice, and 0 if u is 0; without repetition u is floor(fraction * 2^M). For a
            naive source it is 2 u / (2^(M + 1) - 1) with the same u.

        Raises
        ------
        TypeError, ValueError
            If the fraction is out of range, or the source cannot provide words of this width.
        """
        self.steps(bits)
        if not isinstance(fraction, (Fraction, float, int)) or isinstance(fraction, bool):
            raise TypeError(f"a discarded fraction must be a Fraction or a float, not {type(fraction).__name__}")
        if not 0 <= fraction < 1:
            raise ValueError(f"a discarded fraction must be at least 0 and less than 1, not {fraction}")
        part, source = self.source.part(bits), self.source
        # Words grow with their taken bits, so the largest ones round up, from the first that reaches `least` on.
        least = (1 << bits) - int(Fraction(fraction) * (1 << bits))
        first = least >> (bits - part.taken)
        if first >> part.taken:
            return Fraction(0)
        ups = (1 << part.taken) - first - (part.word(first, bits) < least)
        each = 1 << (source.register - part.taken + source.inverting)
        # The state zero is missing: the word zero, or with complements the largest word, appears once less.
        missing = ups > 0 and (source.inverting or self.complemented)
        return Fraction(ups * each - missing, source.period)

    def mean_chance_of_up(self, bits: int) -> Fraction:
        """Return the mean of `chance_of_up` over all fractions; it is one half without bias.

        It is the mean of R / 2^bits. A bit of R is 1 in half of the states and the missing one, which is zero.
        """
        self.steps(bits)
        zeros, _ = self.bits_of(bits)
        period = self.source.period
        ones = (period + 1) // 2
        share = Fraction(period - ones if self.complemented else ones, period)
        return share * ((1 << bits) - (1 << zeros)) / (1 << bits)


def lanes(source: Source, count: int, seed: int, sharing: str) -> list[Stream]:
    """Return the streams of ``count`` lanes.

    Parameters
    ----------
    source : Source
    count : int
    seed : int
        Seed of the first lane.
    sharing : str
        ``own``: one source per lane, evenly spaced over the period. ``rotated``: one source for all; lane i rotates
        its register by i places, and every second full rotation of a plateau source also complements the words.
    """
    check_one_of("sharing", sharing, SHARINGS)
    if sharing == "own":
        return [Stream(source, first) for first in source.seeds(count, seed)]
    source.check_seed(seed)
    return [
        Stream(source, seed, lane % source.register, source.inverting and lane // source.register % 2 == 1)
        for lane in range(count)
    ]


def parse_source(text: str | Source) -> Source:
    """Parse the name of a source, such as ``lfsr16``, ``plateau3``, ``plateau3-rep`` or ``naive3``."""
    if isinstance(text, Source):
        return text
    if not isinstance(text, str):
        raise TypeError(f"a source must be a Source or a string such as 'lfsr16', not {type(text).__name__}")
    for kind in SOURCES:
        if match := re.fullmatch(rf"{kind.KIND}([0-9]+){kind.SUFFIX}", text):
            return kind(int(match[1]))
    spans = [
        f"{kind.KIND}{kind.WIDTHS[0]}{kind.SUFFIX} to {kind.KIND}{kind.WIDTHS[-1]}{kind.SUFFIX}" for kind in SOURCES
    ]
    raise ValueError(f"unknown source {text!r}; the sources are {', '.join(spans[:-1])} and {spans[-1]}")


def check_source(source: Source, words: Iterable[int]) -> Source:
    """Return ``source`` if it can provide words of the given widths, at least one; else raise an error.

    Raises
    ------
    TypeError, ValueError
        If ``source`` is not a source, no rounding is stochastic, or a width does not suit the source.
    """
    if not isinstance(source, Source):
        raise TypeError(f"a source must be a Source, such as Lfsr(16), not {type(source).__name__}")
    widths = list(words)
    if not widths:
        raise ValueError(f"random source {source} does nothing without stochastic rounding, such as sr8")
    for bits in widths:
        source.part(bits)
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
