"""Small formats of each family, and their codes."""

import functools
import itertools
from fractions import Fraction

from halfulp.hdl.formats import (
    RA,
    RD,
    RN,
    RO,
    RU,
    RZ,
    Fixed,
    Float,
    Posit,
    Rounding,
    parse,
)
from halfulp.hdl.formats.floating import SPECIALS
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES

TOYS = [
    Float(exp, man, bias, specials, subnormals)
    for exp, man, bias, specials, subnormals in itertools.product((2, 3), (0, 1, 2), (None, 3), SPECIALS, (True, False))
    if man > 0 or specials != "ieee"
]

POSITS = [Posit(width, es) for width in range(3, 65) for es in range(5) if es <= max(width - 3, 2)]

FIXED = [
    Fixed(int_bits, frac_bits, signed, overflow)
    for int_bits, frac_bits, signed, overflow in itertools.product(
        (-4096, -60, -3, -1, 0, 1, 2, 4, 8, 33, 64, 4096),
        (-4095, -32, -4, -1, 0, 1, 3, 7, 12, 31, 64, 4096),
        (True, False),
        ("saturate", "wrap"),
    )
    if 1 <= int_bits + frac_bits <= 64
]

SMALL_POSITS = [fmt for fmt in POSITS if fmt.width <= 10]

SMALL_FIXED = [
    *(Fixed(width - frac, frac, signed) for width in range(1, 8) for frac in (-2, 0, 3, 9) for signed in (True, False)),
    *map(parse, ("int10", "uint10-wrap", "fxp4.6-wrap", "fxp-2.12", "ufxp14.-4")),
]


def finite_codes(fmt):
    """Return the codes of finite numbers."""
    return [code for code in range(1 << fmt.width) if isinstance(fmt.decode(code), Fraction)]


RH, RHU, RHD = map(Rounding, ("rh", "rhu", "rhd"))
MODES = tuple(map(Rounding, ROUNDING_MODES))


def chosen(mode, value, below, middle, above, odd):
    """Return the neighbour that a mode selects, by the definition of the mode."""
    toward_zero, away = sorted((below, above), key=abs)
    if value in (below, above):
        return value
    if mode.is_nearest and value != middle:
        return below if value < middle else above
    even = above if odd == below else below
    ties = {RN: even, RA: away, RH: toward_zero, RHU: above, RHD: below}
    return (ties | {RZ: toward_zero, RU: above, RD: below, RO: odd})[mode]


@functools.cache
def numbers_of(fmt):
    """Return the finite numbers of a format."""
    return frozenset(fmt.decode(code) for code in finite_codes(fmt))


@functools.cache
def holds_number(fmt, number):
    """Return True if a format of any size has a number, by trial."""
    return fmt.decode(fmt.encode(number)) == number


def holds_all(fmt, numbers, inf, nan):
    """Return True if a format has every number and every special value."""
    return fmt.has_inf >= inf and fmt.has_nan >= nan and all(holds_number(fmt, number) for number in numbers)
