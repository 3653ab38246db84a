"""Fixed point: decoding and encoding of single codes, and what it shares with posits."""

import math
from fractions import Fraction

import pytest

from halfulp.hdl.formats import (
    EXACT,
    INT8,
    POSIT8,
    Fixed,
    parse,
    stochastic,
)
from halfulp.hdl.specs import UnitSpec
from tests.toy_formats import MODES, SMALL_FIXED, SMALL_POSITS, chosen


@pytest.mark.parametrize("fmt", SMALL_FIXED, ids=str)
def test_decode_fixed_is_integer_times_ulp(fmt):
    numbers = [fmt.decode(code) for code in range(1 << fmt.width)]
    for code, number in enumerate(numbers):
        sign_place = (code >> (fmt.width - 1)) << fmt.width if fmt.signed else 0
        assert number == (code - sign_place) / Fraction(2) ** fmt.frac_bits
    assert (fmt.lowest, fmt.largest) == (min(numbers), max(numbers))
    assert fmt.smallest == min(abs(number) for number in numbers if number)


@pytest.mark.parametrize("fmt", [*SMALL_POSITS, *SMALL_FIXED], ids=str)
def test_encode_inverts_decode_and_codes_ascend(fmt):
    half, numbers = 1 << (fmt.width - 1), []
    # Codes in two's complement ascend from NaR or the smallest number; unsigned codes ascend from 0.
    for code in (
        range(2 * half) if isinstance(fmt, Fixed) and not fmt.signed else [*range(half, 2 * half), *range(half)]
    ):
        number = fmt.decode(code)
        if isinstance(number, Fraction):
            numbers.append(number)
            assert fmt.encode(number, EXACT) == code
        else:
            assert fmt.encode(number) == code == fmt.nan_code
        assert fmt.negative(code) == (number < 0)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 2 * half - fmt.has_nan


def test_encode_rounds_fixed_between_integers():
    sr3 = stochastic(3)
    for sixteenths in range(-70, 71):
        value = Fraction(sixteenths, 16)
        below, above = math.floor(value), math.ceil(value)
        middle = (below + above) / Fraction(2)
        odd = below if below % 2 else above
        for mode in MODES:
            assert mode.round_signed(value) == chosen(mode, value, below, middle, above, odd), f"{value} {mode}"
        if value == below:
            assert EXACT.round_signed(value) == below
        # Of eight words, those that carry round up: on average the number, truncated to eighths.
        ups = [sr3.round_signed(value, word) - below for word in range(8)]
        assert ups == [int(word >= 8 - (sixteenths // 2) % 8) for word in range(8)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("overflow", ["saturate", "narrow", "wrap"])
@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL_FIXED if fmt.width in (1, 2, 5)], ids=str)
def test_encode_fixed_rounds_before_overflow(fmt, overflow):
    narrow = overflow == "narrow"
    if narrow and (fmt.width == 1 or not fmt.signed):
        with pytest.raises(ValueError, match="has no narrow range; signed formats of 2 bits"):
            Fixed(fmt.int_bits, fmt.frac_bits, fmt.signed, overflow)
        return
    fmt = Fixed(fmt.int_bits, fmt.frac_bits, fmt.signed, overflow)
    assert parse(str(fmt)) == fmt
    least, most = (0, 2**fmt.width - 1) if not fmt.signed else (-(2 ** (fmt.width - 1)), 2 ** (fmt.width - 1) - 1)
    for eighths in range(8 * (least - 2**fmt.width - 3), 8 * (most + 2**fmt.width + 3), 1):
        units = Fraction(eighths, 8)
        for mode in (*MODES, stochastic(2)):
            word = eighths % 4 if mode.bits else 0
            integer = mode.round_signed(units, word)
            clamped = min(max(integer, least + narrow), most)
            wrapped = (integer - least) % 2**fmt.width + least
            value = units / Fraction(2) ** fmt.frac_bits
            for saturate in (False, True):
                expected = clamped if saturate or overflow != "wrap" else wrapped
                found = fmt.integer(fmt.encode(value, mode, word, saturate))
                assert found == expected, f"{value} {mode}"


def test_narrow_range_leaves_out_the_lowest_result_only():
    fmt = parse("int8-narrow")
    assert [fmt.encode(value) for value in (-126.5, -127.5, -128, -1e9, -math.inf)] == [0x82, *[0x81] * 4]
    assert [fmt.decode(code) for code in (0x80, 0x81, 0x7F)] == [-128, -127, 127]
    assert (fmt.lowest, fmt.lowest_result, fmt.largest) == (-128, -127, 127)
    for text in ("convert int8>int8-narrow.exact", "convert int8-narrow>int8-narrow.exact"):
        with pytest.raises(ValueError, match="it starts at -127 and the results at -128"):
            UnitSpec.parse(text)


def test_encode_special_results_of_fixed_and_posits():
    for fmt in (INT8, parse("int8-wrap")):
        ends = [fmt.encode(value, mode, saturate=True) for value in (math.inf, -math.inf) for mode in MODES]
        assert ends == [0x7F] * len(MODES) + [0x80] * len(MODES)
        assert [fmt.encode(value) for value in (math.inf, -math.inf, math.nan, -0.0)] == [0x7F, 0x80, 0, 0]
    assert [INT8.encode(value) for value in (127.5, -128.5, 1e9, -1e9)] == [0x7F, 0x80, 0x7F, 0x80]
    assert [parse("int8-wrap").encode(value) for value in (127.5, -129, 256, -257)] == [0x80, 0x7F, 0, 0xFF]
    for name in ("uint4", "uint4-wrap"):
        assert [parse(name).encode(value) for value in (math.inf, -math.inf, math.nan)] == [15, 0, 0]
    assert [parse("uint4").encode(value) for value in (-1, -0.5, -0.75, 15.5, 16)] == [0, 0, 0, 15, 15]
    assert [parse("uint4-wrap").encode(value) for value in (-1, -0.5, -0.75, 15.5, 16)] == [15, 0, 15, 0, 0]
    for mode in MODES:
        for saturate in (False, True):
            codes = [
                POSIT8.encode(value, mode, saturate=saturate)
                for value in (math.inf, -math.inf, math.nan, 1e300, -1e300, 1e-300, -1e-300, 0.0, -0.0)
            ]
            assert codes == [0x80, 0x80, 0x80, 0x7F, 0x81, 0x01, 0xFF, 0, 0]
    assert [POSIT8.text(code) for code in (0, 0x80, 0x40, 0xC0, 0x7F, 0x01)] == [
        "0",
        "nan",
        "1",
        "-1",
        "16777216",
        "5.96046448e-08",
    ]
    assert [parse("fxp4.4").text(code) for code in (0, 0x18, 0xFF, 0x80)] == ["0", "1.5", "-0.0625", "-8"]
