"""Rounding modes, and their decisions on exact numbers."""

import functools
import re
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Rational

from .checks import check_int

MAX_RANDOM_BITS = 32
"""Maximum width of the random word of a stochastic mode."""

MODES = ("rn", "ra", "rh", "rhu", "rhd", "rz", "ru", "rd", "ro")
"""Modes without random words."""

_NEAREST = MODES[:5]

ALL_MODES = (*MODES, "sr", "exact")
"""Modes of results, in the order of ``golden/kernels/number.h``."""

PORTS = ("port", "port_ro")
"""Modes of roundings that a port chooses for each operation: the five of RISC-V, and those with ``ro``."""

MODE_TEXT = {
    "rn": "to nearest, ties to even",
    "ra": "to nearest, ties away from zero",
    "rh": "to nearest, ties toward zero",
    "rhu": "to nearest, ties up",
    "rhd": "to nearest, ties down",
    "rz": "toward zero",
    "ru": "up",
    "rd": "down",
    "ro": "to odd",
}
"""Modes without random words, in words."""

MODE_BITS = 3
"""Width of the port ``mode``."""

MODE_CODES = {"rn": 0, "rz": 1, "rd": 2, "ru": 3, "ra": 4, "ro": 5, "sr": 6}
"""Codes of the modes at the port ``mode``. Those up to ``ra`` are the rounding modes of RISC-V (Unprivileged ISA, "F"
extension, field ``rm``); ``ro`` and ``sr`` have the codes that CVFPU gives to its modes ROD and RSR."""

_IEEE_NAMES = {"rne": "rn", "rna": "ra", "rtz": "rz", "rup": "ru", "rdn": "rd", "rto": "ro"}
"""Alternative names of modes; parsed but never printed."""


@dataclass(frozen=True)
class Rounding:
    """Rounding mode.

    Parameters
    ----------
    mode : str
        ``rn`` nearest, ties to even; ``ra`` nearest, ties away from zero; ``rh`` nearest, ties toward zero (IEEE
        754-2019 roundTiesToZero); ``rhu`` and ``rhd`` nearest, ties up and down (AP_RND and AP_RND_MIN_INF of fixed
        point in C++); ``rz`` toward zero; ``ru`` up; ``rd`` down; ``ro`` to odd; ``sr`` stochastic;
        ``exact`` without rounding, which is an error if the result is inexact; ``port`` one of ``rn rz rd ru ra``,
        which an input chooses for each operation; ``port_ro`` one of these or ``ro``.
    bits : int
        Width of the random word of ``sr``, 1 to 32; 0 for every other mode. With ``port``, the input can also choose
        ``sr`` if there are random bits.
    guard : int
        Number of further discarded bits that are not merged into a sticky bit, 0 or 1. It changes no result.
    faithful : bool
        The result is one of the two numbers next to the exact one, or is the exact one: the number that is rounded, by
        ``rn``, is an approximation with an error of less than a quarter of the last place. Its text is ``faithful``.

    Raises
    ------
    TypeError
        If ``mode`` is not a string, or ``bits`` or ``guard`` is not an integer.
    ValueError
        If the mode is unknown, does not allow this number of bits, ``guard`` is neither 0 nor 1, or a mode other than
        ``rn`` is faithful.
    """

    mode: str
    bits: int = 0
    guard: int = 0
    faithful: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str):
            raise TypeError(f"mode of a rounding must be a string such as 'rn', not {type(self.mode).__name__}")
        if self.mode not in (*ALL_MODES, *PORTS):
            raise ValueError(f"unknown rounding mode {self.mode!r}; the modes are {_SPELLINGS}")
        check_int("bits", self.bits, "rounding mode")
        check_int("guard", self.guard, "rounding mode", 0, 1)
        if self.mode == "sr" or (self.is_port and self.bits):
            if not 1 <= self.bits <= MAX_RANDOM_BITS:
                raise ValueError(f"{self} has {self.bits} random bits; sr takes 1 to {MAX_RANDOM_BITS}")
        elif self.bits:
            raise ValueError(f"rounding mode {self.mode} takes no random bits; only sr does")
        if self.faithful and self.mode != "rn":
            raise ValueError(f"rounding mode {self.mode} cannot be faithful; only rn can")

    def __str__(self) -> str:
        if self.faithful:
            return FAITHFUL_TEXT
        stochastic = f"sr{self.bits}" if self.bits or self.mode == "sr" else ""
        return stochastic if self.mode == "sr" else "_".join(filter(None, (self.mode, stochastic)))

    @classmethod
    def parse(cls, text: "str | Rounding", *, faithful: bool = False) -> "Rounding":
        """Parse a rounding mode such as ``rn``, ``sr10``, ``port`` or ``port_ro_sr10``.

        The names ``rne rna rtz rup rdn rto`` are accepted too. ``faithful`` allows the text of that name.
        """
        if not faithful and str(text) == FAITHFUL_TEXT:
            raise ValueError(NOT_FAITHFUL)
        if isinstance(text, Rounding):
            return text
        if text == FAITHFUL_TEXT:
            return FAITHFUL
        if not isinstance(text, str):
            raise TypeError(f"a rounding mode must be a Rounding or a string such as 'rn', not {type(text).__name__}")
        if match := re.fullmatch(r"sr([0-9]+)", text):
            return cls("sr", int(match[1]))
        if match := re.fullmatch(_PORT, text):
            return cls("port_ro" if match[1] else "port", int(match[2] or 0))
        mode = _IEEE_NAMES.get(text, text)
        if mode in ALL_MODES and mode != "sr":
            return cls(mode)
        raise ValueError(f"unknown rounding mode {text!r}; the modes are {_SPELLINGS}")

    @property
    def is_port(self) -> bool:
        """True if a port chooses the mode of each operation."""
        return self.mode in PORTS

    @property
    def choices(self) -> tuple["Rounding", ...]:
        """Rounding of each code at the port ``mode``: ``ra`` for codes from 4 that no mode has. Empty without port."""
        return _choices(self) if self.is_port else ()

    @property
    def overflows_to_largest(self) -> tuple[bool, bool]:
        """For a positive and a negative overflow, True if the result is the largest finite magnitude."""
        self._check_fixed()
        return self.mode in ("rz", "ro", "rd"), self.mode in ("rz", "ro", "ru")

    @property
    def places(self) -> int:
        """Number of discarded bits that the mode needs; lower ones are merged into a sticky bit."""
        if self.is_port:
            return max(1, self.bits) + self.guard
        return (1 if self.is_nearest else self.bits) + self.guard

    @property
    def is_nearest(self) -> bool:
        """True if a result is always one of the nearest numbers."""
        return self.mode in _NEAREST

    def round(self, magnitude: Fraction, negative: bool = False, random: int = 0) -> int:
        """Round a magnitude, given in units of the last place, to an integer.

        Parameters
        ----------
        magnitude : Fraction
            Magnitude, 0 or more.
        negative : bool
            Sign of the number, used by directed modes.
        random : int
            Random word of ``sr``.

        Raises
        ------
        TypeError
            If ``magnitude`` is no fraction or integer, or the random word is not an integer.
        ValueError
            If ``magnitude`` is negative, the random word does not fit the mode, or the mode is ``exact`` and the number
            is not an integer.
        """
        if isinstance(magnitude, Rational) and magnitude < 0:
            raise ValueError(f"a magnitude must be 0 or more, not {magnitude}")
        return self._rounded(magnitude, random, away=True, plus=not negative)

    def round_signed(self, value: Fraction, random: int = 0) -> int:
        """Round a two's-complement number, given in units of the last place, to an integer.

        In contrast to `round`, the code is rounded rather than the magnitude: ``sr`` takes the floor, then adds one if
        t + R >= 2^N, and ``ro`` takes the neighbour whose last bit is 1. Parameters and errors are those of `round`.
        """
        return self._rounded(value, random, away=value > 0, plus=True)

    def _rounded(self, value: Fraction, random: int, *, away: bool, plus: bool) -> int:
        """Return the floor or the floor plus one; ``away`` and ``plus`` state the direction of rounding up."""
        self._check_fixed()
        if not isinstance(value, Rational):
            raise TypeError(f"a number to round must be a Fraction or int, not {type(value).__name__}")
        if not isinstance(random, Integral):
            raise TypeError(f"a random word must be an int, not {type(random).__name__}")
        if not 0 <= random < 1 << self.bits:
            raise ValueError(f"random word {random} does not fit the {self.bits} random bits of {self}")
        unit = value.denominator
        floor, rest = divmod(value.numerator, unit)
        if self.mode == "exact" and rest:
            lost = Fraction(rest, unit)
            raise ValueError(f"rounding exact would lose {lost} of a unit in the last place; choose another mode")
        inexact, tie, above_half, odd = rest > 0, 2 * rest == unit, 2 * rest > unit, floor % 2 == 1
        up = {
            "rn": above_half or (tie and odd),
            "ra": above_half or (tie and away),
            "rh": above_half or (tie and not away),
            "rhu": above_half or (tie and plus),
            "rhd": above_half or (tie and not plus),
            "rz": inexact and not away,
            "ru": inexact and plus,
            "rd": inexact and not plus,
            "ro": inexact and not odd,
            "sr": (rest << self.bits) // unit + random >= 1 << self.bits,
            "exact": False,
        }[self.mode]
        # Scalars of numpy give numbers of Python, which codes are.
        return int(floor + up)

    def _check_fixed(self) -> None:
        """Raise ValueError if a port chooses the mode: only units and their models have one."""
        if self.is_port:
            raise ValueError(f"the rounding {self} is chosen by a port of a unit; choose one mode here, such as rn")


@functools.lru_cache(maxsize=64)
def _choices(port: Rounding) -> tuple[Rounding, ...]:
    named = {code: Rounding(mode) for mode, code in MODE_CODES.items() if mode in MODES}
    if port.mode == "port":
        del named[MODE_CODES["ro"]]
    if port.bits:
        named[MODE_CODES["sr"]] = Rounding("sr", port.bits)
    return tuple(named.get(code, RA) for code in range(1 << MODE_BITS))


_PORT = re.compile(r"port(_ro)?(?:_sr([0-9]+))?")

FAITHFUL_TEXT = "faithful"

NOT_FAITHFUL = "only results of function can have the rounding faithful; choose another mode, such as rn"
"""Error where results are rounded correctly."""

_SPELLINGS = f"{', '.join(mode for mode in ALL_MODES if mode != 'sr')}, sr1 to sr{MAX_RANDOM_BITS} and port"

PATTERN = f"(?:{'|'.join(mode for mode in (*ALL_MODES, *_IEEE_NAMES) if mode != 'sr')}|sr[0-9]+)"
"""Regular expression of the text of a rounding mode."""

RN, RA, RH, RHU, RHD, RZ, RU, RD, RO = map(Rounding, MODES)
EXACT = Rounding("exact")
FAITHFUL = Rounding("rn", faithful=True)


def stochastic(bits: int) -> Rounding:
    """Return stochastic rounding with a random word of ``bits`` bits."""
    return Rounding("sr", bits)
