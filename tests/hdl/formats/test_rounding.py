"""Rounding modes as data: names, constants and rules."""

import itertools
from fractions import Fraction

import pytest

from halfulp.hdl import formats
from halfulp.hdl.formats import (
    RA,
    RD,
    RN,
    RO,
    RU,
    RZ,
    Rounding,
    parse,
)
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import MacSpec
from tests.toy_formats import RH, RHD, RHU


def test_rounding_modes_have_constants():
    assert [getattr(formats, mode.upper()) for mode in ROUNDING_MODES] == [*map(Rounding, ROUNDING_MODES)]
    assert {mode.upper() for mode in ROUNDING_MODES} <= set(formats.__all__)


@pytest.mark.parametrize(
    ("name", "mode"), [("rne", RN), ("rna", RA), ("rtz", RZ), ("rup", RU), ("rdn", RD), ("rto", RO)]
)
def test_rounding_parses_ieee_names_and_prints_short_names(name, mode):
    assert Rounding.parse(name) == mode
    assert str(Rounding.parse(name)) == mode.mode
    assert MacSpec.parse(f"e5m2*e5m2+e6m5.{name}").rounding == mode


def test_rh_differs_from_other_nearest_modes_at_ties_only():
    fmt = parse("e4m3")
    for code, word in itertools.product(range(fmt.max_code), range(8)):
        low, high = (fmt.decode(place) for place in (code, code + 1))
        number = low + (high - low) * Fraction(word, 8)
        assert fmt.encode(number, RH) == (code + 1 if word > 4 else code), number
        assert fmt.encode(-number, RH) & (fmt.sign_code - 1) == (code + 1 if word > 4 else code), number
        assert (fmt.encode(number, RH) != fmt.encode(number, RA)) == (word == 4)
    half = Fraction(1, 2)
    assert [RH.round_signed(n + half) for n in (-3, -2, -1, 0, 1, 2)] == [-2, -1, 0, 0, 1, 2]
    largest = fmt.largest + Fraction(2) ** (fmt.emax - fmt.man - 1)
    assert fmt.encode(largest, RH) == fmt.max_code
    assert fmt.encode(largest + 1, RH) == fmt.inf_code


def test_ties_of_rhu_and_rhd_follow_the_sign():
    """Values by hand; the modes are AP_RND and AP_RND_MIN_INF of fixed point in high-level synthesis."""
    ties = [Fraction(n, 2) for n in (-5, -3, -1, 1, 3, 5)]
    assert [RHU.round_signed(tie) for tie in ties] == [-2, -1, 0, 1, 2, 3]
    assert [RHD.round_signed(tie) for tie in ties] == [-3, -2, -1, 0, 1, 2]
    fmt = parse("fxp4.1")
    assert [fmt.decode(fmt.encode(number, RHU)) for number in (-1.25, 1.25, -1.26, 1.24)] == [-1, 1.5, -1.5, 1]
    assert [fmt.decode(fmt.encode(number, RHD)) for number in (-1.25, 1.25, -1.24, 1.26)] == [-1.5, 1, -1, 1.5]
    fmt = parse("e4m3")
    beyond = fmt.largest + Fraction(2) ** (fmt.emax - fmt.man - 1)
    assert [fmt.encode(sign * beyond, RHU) for sign in (1, -1)] == [fmt.inf_code, fmt.max_code | fmt.sign_code]
    assert [fmt.encode(sign * beyond, RHD) for sign in (1, -1)] == [fmt.max_code, fmt.inf_code | fmt.sign_code]
