"""Formats, rounding modes, value ranges and MAC descriptions as plain data."""

import bisect
import functools
import itertools
import math
import re
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from amaranth.hdl import Const, Module

from halfulp.golden import codec
from halfulp.golden.kernels import text as kernels
from halfulp.hdl import formats
from halfulp.hdl import number as rtl
from halfulp.hdl.formats import (
    BF16,
    BLOCKS,
    E2M1FN,
    E3M2FN,
    E4M3,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    E6M5,
    EXACT,
    FAMILIES,
    FP64,
    INT8,
    INT32,
    ML_DTYPES,
    NAMED,
    POSIT8,
    POSIT16,
    POSIT32,
    POSIT64,
    RA,
    RD,
    RN,
    RO,
    RU,
    RZ,
    Fixed,
    Float,
    Format,
    Posit,
    Rounding,
    parse,
    stochastic,
)
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.block import parse_operand
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.formats.source import Lfsr, Plateau
from halfulp.hdl.specs import AccumulateSpec, DotSpec, MacSpec, ValueRange

KINDS = ("ieee", "fn", "fnuz", "finite")

GRID = [
    Float(exp, man, bias, specials, subnormals)
    for exp, man, bias, specials, subnormals in itertools.product(
        (2, 3, 5, 11), (0, 1, 2, 7, 52), (None, -3, 0, 9, 1023), KINDS, (True, False)
    )
    if man > 0 or specials != "ieee"
]

TOYS = [
    Float(exp, man, bias, specials, subnormals)
    for exp, man, bias, specials, subnormals in itertools.product((2, 3), (0, 1, 2), (None, 3), KINDS, (True, False))
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


# Text and value ------------------------------------------------------------------------------------------------------


def test_parse_and_str_are_inverse_for_floats():
    texts = {str(fmt) for fmt in GRID}
    assert len(texts) == len(set(GRID))
    for fmt in GRID:
        assert parse(str(fmt)) == fmt
        assert hash(parse(str(fmt))) == hash(fmt)


@pytest.mark.parametrize("grid", [FIXED, POSITS], ids=["fixed", "posit"])
def test_parse_and_str_are_inverse_for_fixed_and_posits(grid):
    assert len({str(fmt) for fmt in grid}) == len(set(grid)) > 150
    for fmt in grid:
        assert parse(str(fmt)) == fmt
        assert hash(parse(str(fmt))) == hash(fmt)
        assert parse(fmt) is fmt
        assert sum(fmt.fields().values()) == fmt.width


def test_parse_accepts_named_formats():
    for name, fmt in NAMED.items():
        assert parse(name) == fmt
        assert parse(str(fmt)) == fmt


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("e5m2", Float(5, 2)),
        ("fp16", Float(5, 10)),
        ("bfloat16", BF16),
        ("float8_e4m3b11fnuz", Float(4, 3, 11, "fnuz")),
        ("e4m3fnuz", Float(4, 3, 8, "fnuz")),
        ("e3m2fn", Float(3, 2, specials="finite")),
        ("e3m2-finite", E3M2FN),
        ("e3m2-fn", Float(3, 2, specials="fn")),
        ("e2m0", Float(2, 0, specials="fn")),
        ("e8m0fn", Float(8, 0, specials="fn")),
        ("e5m2-ftz", Float(5, 2, subnormals=False)),
        ("bf16-ftz", Float(8, 7, subnormals=False)),
        ("e4m3b-3fn-ftz", Float(4, 3, -3, "fn", False)),
        ("fxp4.4", Fixed(4, 4)),
        ("fxp-2.10", Fixed(-2, 10)),
        ("ufxp10.-3-wrap", Fixed(10, -3, False, "wrap")),
        ("fxp8.0", INT8),
        ("int8", INT8),
        ("int12-wrap", Fixed(12, 0, overflow="wrap")),
        ("uint1", Fixed(1, 0, signed=False)),
        ("posit8", Posit(8, 2)),
        ("posit8e2", POSIT8),
        ("posit16e0", Posit(16, 0)),
        ("posit3", Posit(3)),
        ("posit64e4", Posit(64, 4)),
    ],
)
def test_parse_accepts_texts(text, fmt):
    assert parse(text) == fmt
    assert parse(fmt) is fmt


def test_str_is_canonical():
    assert [
        str(parse(name)) for name in ("bf16", "e4m3fn", "e3m2fn", "e3m2-fn", "e2m0", "e4m3b11fnuz", "fp64-ftz")
    ] == [
        "bf16",
        "e4m3fn",
        "e3m2fn",
        "e3m2-fn",
        "e2m0",
        "e4m3b11fnuz",
        "fp64-ftz",
    ]
    assert [str(parse(name)) for name in ("posit8e2", "posit8e1", "fxp8.0", "ufxp0.8-wrap", "fxp0.4", "fxp5.-1")] == [
        "posit8",
        "posit8e1",
        "int8",
        "ufxp0.8-wrap",
        "fxp0.4",
        "fxp5.-1",
    ]


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: Float(1, 2), ValueError, "1 exponent bit"),
        (lambda: Float(12, 2), ValueError, "12 exponent bits"),
        (lambda: Float(5, 53), ValueError, "53 mantissa bits"),
        (lambda: Float(5, -1), ValueError, "-1 mantissa bits"),
        (lambda: Float(5.0, 2), TypeError, "exp"),
        (lambda: Float(5, True), TypeError, "man"),
        (lambda: Float(5, 2, 4097), ValueError, "bias 4097"),
        (lambda: Float(5, 2, 1.5), TypeError, "bias"),
        (
            lambda: Float(5, 2, specials="nan"),
            ValueError,
            "nan",
        ),
        (lambda: Float(5, 2, subnormals=1), TypeError, "subnormals"),
        (
            lambda: Float(5, 0),
            ValueError,
            "no mantissa bit",
        ),
        (
            lambda: parse("banana"),
            ValueError,
            "banana",
        ),
        (lambda: parse("bf61"), ValueError, "bf61"),
        (lambda: parse("E5M2 "), ValueError, "E5M2 "),
        (lambda: parse("e9m0fnu"), ValueError, "2 to 8"),
        (lambda: parse(5), TypeError, "Format"),
        (lambda: E5M2.decode(256), ValueError, "code 0x100"),
        (lambda: E5M2.decode(-1), ValueError, "code -0x1"),
        (lambda: E5M2.decode(1.0), TypeError, "code"),
        (lambda: E5M2.encode(Fraction(1, 3), EXACT), ValueError, "unit"),
        (lambda: E5M2.encode(65536, EXACT), ValueError, "at most"),
        (lambda: Rounding("rx"), ValueError, "rx"),
        (lambda: Rounding.parse("sr"), ValueError, "sr"),
        (lambda: Rounding.parse("sr33"), ValueError, "33 random bits"),
        (lambda: Rounding("rn", 3), ValueError, "no random bits"),
        (lambda: Rounding("sr", "3"), TypeError, "bits"),
        (lambda: Rounding(5), TypeError, "mode of a rounding"),
        (lambda: Rounding("rn", guard="1"), TypeError, "guard"),
        (lambda: Rounding("rn", guard=2), ValueError, "guard 2"),
        (lambda: RN.round(1.5), TypeError, "a Fraction or int, not float"),
        (lambda: E5M2.encode(1.25, "sr3", random="1"), TypeError, "random word must be an int"),
        (
            lambda: stochastic(3).round(Fraction(1), random=8),
            ValueError,
            "random word",
        ),
        (lambda: RN.round(Fraction(-1)), ValueError, "magnitude"),
        (lambda: MacSpec.parse("e5m2"), ValueError, "expected '*' here"),
        (
            lambda: MacSpec(E5M2, E5M2, E6M5, rounding=EXACT),
            ValueError,
            "sum",
        ),
        (lambda: Fixed(4.0, 4), TypeError, "int_bits"),
        (lambda: Fixed(4, True), TypeError, "frac_bits"),
        (lambda: Fixed(4, 4, signed=1), TypeError, "signed"),
        (
            lambda: Fixed(4, 4, overflow="drop"),
            ValueError,
            "drop",
        ),
        (lambda: parse("fxp4.-4"), ValueError, "0 bits"),
        (lambda: parse("ufxp-9.4-wrap"), ValueError, "-5 bits"),
        (lambda: parse("int65"), ValueError, "65 bits"),
        (
            lambda: parse("fxp4097.-4090"),
            ValueError,
            "point",
        ),
        (lambda: parse("int-8"), ValueError, "int-8"),
        (lambda: parse("posit2"), ValueError, "width 2 "),
        (lambda: parse("posit1e0"), ValueError, "width 1 "),
        (lambda: parse("posit65"), ValueError, "width 65"),
        (lambda: parse("posit8e5"), ValueError, "es 5"),
        (lambda: Posit(8, -1), ValueError, "es -1"),
        (
            lambda: parse("posit4e3"),
            ValueError,
            "3 exponent bits",
        ),
        (lambda: Posit("8"), TypeError, "width"),
        (lambda: Posit(8, 1.0), TypeError, "es"),
        (lambda: parse("posit8-wrap"), ValueError, "posit8-wrap"),
        (lambda: POSIT8.decode(256), ValueError, "code 0x100"),
        (lambda: INT8.decode(-1), ValueError, "code -0x1"),
        (lambda: INT8.decode(True), TypeError, "code"),
        (lambda: INT8.encode(Fraction(1, 2), EXACT), ValueError, "unit"),
        (lambda: INT8.encode(-129, EXACT), ValueError, "int8"),
        (
            lambda: parse("uint2-wrap").encode(4, EXACT),
            ValueError,
            "uint2-wrap",
        ),
        (
            lambda: parse("posit4e1").encode(17, EXACT),
            ValueError,
            "posit4e1",
        ),
        (
            lambda: POSIT8.encode(Fraction(1, 3), EXACT),
            ValueError,
            "unit",
        ),
        (
            lambda: stochastic(3).round_signed(Fraction(-1), 8),
            ValueError,
            "random word",
        ),
        (
            lambda: EXACT.round_signed(Fraction(-3, 4)),
            ValueError,
            "place",
        ),
    ],
)
def test_formats_reject_bad_parameters(make, error, keyword):
    with pytest.raises(error, match=re.escape(keyword)):
        make()


def test_formats_are_immutable_and_hashable():
    with pytest.raises(AttributeError):
        E5M2.man = 3
    assert Float(4, 3) != Float(4, 3, specials="fn")
    assert len({Float(5, 2), parse("e5m2"), E5M2, NAMED["e5m2"]}) == 1


# Codes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "fmt"),
    [("binary16 half float16", "fp16"), ("binary32 single float float32", "fp32"), ("binary64 double float64", "fp64")],
)
def test_names_of_ieee_and_c_parse(names, fmt):
    assert {str(parse(name)) for name in names.split()} == {fmt}
    assert {str(parse(f"{name}-ftz")) for name in names.split()} == {f"{fmt}-ftz"}


@pytest.mark.parametrize("name", [name for name in ML_DTYPES if hasattr(ml_dtypes, name)])
def test_decode_matches_ml_dtypes(name):
    fmt = parse(name)
    dtype = np.dtype(getattr(ml_dtypes, name))
    with np.errstate(invalid="ignore"):
        values = np.arange(1 << fmt.width).astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)
    for code, value in enumerate(values.tolist()):
        number = fmt.decode(code)
        assert number == value or (math.isnan(number) and math.isnan(value))
        assert math.isnan(value) or fmt.negative(code) == (math.copysign(1, value) < 0)
    information = ml_dtypes.finfo(dtype)
    assert float(fmt.largest) == float(information.max)
    assert float(fmt.smallest) == float(information.smallest_subnormal)
    assert fmt.emin == information.minexp


@pytest.mark.parametrize("fmt", TOYS, ids=str)
def test_encode_inverts_decode(fmt):
    for code in range(1 << fmt.width):
        number = fmt.decode(code)
        if isinstance(number, float):
            again = fmt.encode(number)
            assert again == (fmt.nan_code if math.isnan(number) else code)
        else:
            again = fmt.encode_magnitude(abs(number), fmt.negative(code), EXACT)
            flushed = not fmt.subnormals and number == 0
            assert again == (code & fmt.sign_code if flushed and fmt.has_negative_zero else 0 if flushed else code)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("fmt", [fmt for fmt in TOYS if fmt.subnormals], ids=str)
def test_encode_rounds_floats_between_neighbours(fmt):
    """Directed modes give the lower or upper neighbour, nearest modes the nearer one, and ro the odd one."""
    numbers = sorted({fmt.decode(code) for code in finite_codes(fmt)})
    step = Fraction(2) ** (fmt.quantum - 3)
    value = -fmt.largest
    while value <= fmt.largest:
        below = max(number for number in numbers if number <= value)
        above = min(number for number in numbers if number >= value)
        down, up, zero, nearest, odd = (fmt.decode(fmt.encode(value, mode)) for mode in (RD, RU, RZ, RN, RO))
        assert (down, up) == (below, above)
        assert zero == (below if value > 0 else above)
        assert nearest in (below, above)
        assert abs(nearest - value) == min(value - below, above - value)
        if below != above and fmt.man > 0:
            assert fmt.encode(odd) % 2 == 1
        value += step


def test_encode_special_results_of_floats():
    assert E5M2.encode(1e9) == 0x7C
    assert E4M3FN.encode(1e9) == 0x7F
    assert E4M3FNUZ.encode(-1e9) == 0x80
    assert E2M1FN.encode(-1e9) == 0xF
    assert E5M2.encode(1e9, saturate=True) == 0x7B
    assert E5M2.encode(math.inf, saturate=True) == 0x7C
    assert E4M3FN.encode(math.inf, saturate=True) == 0x7F
    assert E2M1FN.encode(math.nan) == 0x8
    assert E4M3.encode(math.nan) == 0x7C
    assert E4M3FNUZ.encode(-0.0) == 0
    assert E5M2.encode(-0.0) == 0x80
    assert [E5M2.encode(sign * 10**9, mode) for mode in (RU, RD) for sign in (1, -1)] == [0x7C, 0xFB, 0x7B, 0xFC]
    assert [E4M3FN.text(code) for code in (0x80, 0x7F, 0x01, 0x7E)] == ["-0", "nan", "0.001953125", "448"]
    assert FP64.text(1) == "4.94065646e-324"
    huge = Float(11, 52, bias=-4096)
    assert [huge.text(code) for code in (1, huge.max_code, huge.sign_code | 1)] == [
        "4.63801833e+1217",
        "1.68757609e+1849",
        "-4.63801833e+1217",
    ]


@pytest.mark.parametrize("name", ["e5m2", "posit8", "takum8", "fxp4.4", "e8m0fnu"])
def test_encode_takes_scalars_of_other_libraries(name):
    """Numbers of numpy and decimal numbers are exact; what is no number is refused in one sentence."""
    fmt = parse(name)
    for number in (np.int64(-(2**63)), np.uint64(2**64 - 1), np.float16(1.3), np.float32(-0.7), np.float64(2.1)):
        exact = Fraction(number.item())
        for mode in ("rn", "rz"):
            assert fmt.encode(number, mode) == fmt.encode(exact, mode)
    assert fmt.encode(Decimal("0.1"), "ru") == fmt.encode(Fraction(1, 10), "ru")
    code = fmt.encode(Fraction(3, 10), "sr8", random=np.int64(200))
    assert type(code) is int
    assert code == fmt.encode(Fraction(3, 10), "sr8", random=200)
    for special in (np.float32(-0.0), np.float16("inf"), np.float32("-inf"), np.float32("nan"), Decimal("-0")):
        assert fmt.encode(special) == fmt.encode(float(special))
    for wrong in ("1", None, 1j, np.bool_(True), np.array([1.5]), torch.tensor(1.5)):
        with pytest.raises(TypeError, match="must be an int, a float or a Fraction"):
            fmt.encode(wrong)


def test_encode_flushes_after_rounding():
    fmt = parse("e5m2-ftz")
    smallest = Fraction(2) ** fmt.emin
    assert fmt.encode(smallest * Fraction(15, 16)) == fmt.encode(smallest)
    assert fmt.encode(smallest * Fraction(14, 16)) == 0
    assert fmt.encode(-smallest * Fraction(14, 16)) == 0x80
    assert fmt.encode(smallest / 8, RU) == 0


# Fixed point and posits ----------------------------------------------------------------------------------------------


def standard_posit(code, width, es):
    """Decode a code by the formula of the Standard for Posit Arithmetic (2022, 3.3), which negates no code."""
    bits = f"{code:0{width}b}"
    sign, first, rest = int(bits[0]), bits[1], bits[1:]
    run = len(rest) - len(rest.lstrip(first))
    r = run - 1 if first == "1" else -run
    tail = rest[run + 1 :].ljust(es, "0")
    e, fraction = int(tail[:es] or "0", 2), tail[es:]
    f = Fraction(int(fraction or "0", 2), 1 << len(fraction))
    return (1 - 3 * sign + f) * Fraction(2) ** ((1 - 2 * sign) * ((r << es) + e + sign))


@pytest.mark.parametrize("fmt", SMALL_POSITS, ids=str)
def test_decode_posits_matches_standard(fmt):
    for code in range(1, 1 << fmt.width):
        if code != fmt.nan_code:
            assert fmt.decode(code) == standard_posit(code, fmt.width, fmt.es)
    assert fmt.decode(0) == 0
    assert math.isnan(fmt.decode(1 << (fmt.width - 1)))
    assert fmt.decode(1) == fmt.smallest == 1 / fmt.largest
    assert fmt.decode(fmt.max_code) == fmt.largest == -fmt.lowest


@pytest.mark.parametrize("fmt", [POSIT16, POSIT32, POSIT64, Posit(64, 0), Posit(33, 4)], ids=str)
def test_decode_wide_posits_matches_standard(fmt):
    ones = (1 << fmt.width) - 1
    codes = [*range(1, ones, ones // 997), *range(70), *(1 << shift for shift in range(fmt.width - 1))]
    for code in {code ^ flip for code in codes for flip in (0, ones)} - {0, fmt.nan_code}:
        number = fmt.decode(code)
        assert number == standard_posit(code, fmt.width, fmt.es)
        assert fmt.encode(number, EXACT) == code


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


def around(fmt):
    """Return magnitudes at and between the numbers of a posit with three more bits."""
    finer = Posit(fmt.width + 3, fmt.es)
    marks = [finer.decode(code) for code in range(finer.nan_code)]
    return [*marks, *((x + y) / 2 for x, y in itertools.pairwise(marks)), 2 * finer.largest]


@pytest.mark.sampled(4, 3)
@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL_POSITS if fmt.width <= 7], ids=str)
def test_encode_rounds_posits_between_neighbours(fmt):
    """The posit of one more bit between two neighbours decides which is nearest (2022, 4.1)."""
    finer = Posit(fmt.width + 1, fmt.es)
    numbers = [fmt.decode(code) for code in range(fmt.nan_code)]
    for magnitude, sign in itertools.product(around(fmt), (1, -1)):
        if magnitude <= fmt.smallest or magnitude >= fmt.largest:
            # A nonzero value rounds neither to zero nor to NaR.
            end = min(max(magnitude, fmt.smallest), fmt.largest) if magnitude else Fraction(0)
            expected = dict.fromkeys(MODES, sign * end)
        else:
            code = bisect.bisect(numbers, magnitude) - 1
            near, middle, far = sign * numbers[code], sign * finer.decode(2 * code + 1), sign * numbers[code + 1]
            below, above = sorted((near, far))
            odd = near if code % 2 else far
            expected = {mode: chosen(mode, sign * magnitude, below, middle, above, odd) for mode in MODES}
        for mode, number in expected.items():
            found = fmt.encode(sign * magnitude, mode)
            assert fmt.decode(found) == number, f"{sign * magnitude} {mode}"
            assert fmt.encode(sign * magnitude, mode, saturate=True) == found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL_POSITS if fmt.width <= 7], ids=str)
def test_encode_rounds_posits_stochastically(fmt):
    """Random words are added to the code of a posit that is longer by the width of the word."""
    finer = Posit(fmt.width + 2, fmt.es)
    numbers = [finer.decode(code) for code in range(finer.nan_code)]
    for magnitude, sign, word in itertools.product(around(fmt), (1, -1), range(4)):
        code = (bisect.bisect(numbers, magnitude) - 1 + word) >> 2
        if magnitude:
            code = min(max(code, 1), fmt.max_code)
        if magnitude <= fmt.smallest:
            code = min(code, 1)
        found = fmt.encode(sign * magnitude, stochastic(2), word)
        assert fmt.decode(found) == sign * fmt.decode(code), f"{sign * magnitude} {word}"


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
@pytest.mark.parametrize("overflow", ["saturate", "wrap"])
@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL_FIXED if fmt.width in (1, 2, 5)], ids=str)
def test_encode_fixed_rounds_before_overflow(fmt, overflow):
    fmt = Fixed(fmt.int_bits, fmt.frac_bits, fmt.signed, overflow)
    least, most = (0, 2**fmt.width - 1) if not fmt.signed else (-(2 ** (fmt.width - 1)), 2 ** (fmt.width - 1) - 1)
    for eighths in range(8 * (least - 2**fmt.width - 3), 8 * (most + 2**fmt.width + 3), 1):
        units = Fraction(eighths, 8)
        for mode in (*MODES, stochastic(2)):
            word = eighths % 4 if mode.bits else 0
            integer = mode.round_signed(units, word)
            clamped = min(max(integer, least), most)
            wrapped = (integer - least) % 2**fmt.width + least
            value = units / Fraction(2) ** fmt.frac_bits
            for saturate in (False, True):
                expected = clamped if saturate or overflow == "saturate" else wrapped
                found = fmt.integer(fmt.encode(value, mode, word, saturate))
                assert found == expected, f"{value} {mode}"


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


@pytest.mark.parametrize("fmt", SMALL_POSITS, ids=str)
def test_posit_precision_at_every_scale(fmt):
    numbers = sorted(numbers_of(fmt))
    for scale in range(-fmt.max_scale - 3, fmt.max_scale + 4):
        first, last = Fraction(2) ** scale, Fraction(2) ** (scale + 1)
        there = numbers[bisect.bisect_left(numbers, first) : bisect.bisect_left(numbers, last)]
        precision = fmt.precision_at(scale)
        assert there == [first + index * first / len(there) for index in range(len(there))]
        assert len(there) == (1 << (precision - 1) if precision else 0)
    assert max(fmt.precision_at(scale) for scale in range(-fmt.max_scale, fmt.max_scale + 1)) == fmt.precision


# Value ranges ---------------------------------------------------------------------------------------------------

FINITE_TOYS = [fmt for fmt in TOYS if fmt.specials == "finite" and fmt.bias != 3]


@functools.cache
def numbers_of(fmt):
    """Return the finite numbers of a format."""
    return frozenset(fmt.decode(code) for code in finite_codes(fmt))


def holds(fmt, numbers):
    """Return True if a format has every number, by trial."""
    return numbers <= numbers_of(fmt)


def accepted(span, fmt):
    """Return True if `ValueRange.check_fits` accepts the format."""
    try:
        span.check_fits(fmt, "result")
    except ValueError:
        return False
    return True


RESULTS = [
    Float(exp, man, bias, "finite", subnormals)
    for exp, man, bias, subnormals in itertools.product((2, 3, 4), range(6), (None, 3, 6), (True, False))
]


@pytest.mark.parametrize("a", FINITE_TOYS, ids=str)
def test_exact_is_accepted_only_if_result_holds(a):
    for b in FINITE_TOYS:
        xs, ys = numbers_of(a), numbers_of(b)
        for name, span, numbers in (
            ("product", ValueRange.of(a) * ValueRange.of(b), {x * y for x in xs for y in ys}),
            ("sum", ValueRange.of(a) + ValueRange.of(b), {x + y for x in xs for y in ys}),
            ("either", ValueRange.of(a) | ValueRange.of(b), xs | ys),
        ):
            for fmt in RESULTS:
                assert accepted(span, fmt) == holds(fmt, numbers), f"{name} of {a} and {b} in {fmt}"


def test_exact_rejects_sums_that_do_not_fit():
    small = [Float(2, man, None, "finite", subnormals) for man in (0, 1) for subnormals in (True, False)]
    grants = 0
    for a, b, c in itertools.product(small, small, small):
        xs, ys, zs = numbers_of(a), numbers_of(b), numbers_of(c)
        numbers = {x * y + z for x in xs for y in ys for z in zs}
        for fmt in (*RESULTS, Float(4, 6, None, "finite"), Float(4, 7, None, "finite")):
            if accepted(ValueRange.of(a) * ValueRange.of(b) + ValueRange.of(c), fmt):
                grants += 1
                assert holds(fmt, numbers)
    assert grants > 50


def test_exact_needs_specials_of_result():
    assert not accepted(ValueRange.of(E5M2), Float(6, 5, specials="fn"))
    assert not accepted(ValueRange.of(E4M3FN), Float(6, 5, specials="finite"))
    assert accepted(ValueRange.of(E5M2), E6M5)


INT2 = parse("int2")

MIXED = [
    *map(parse, ("fxp2.1", "ufxp1.2", "fxp3.-1", "int1", "ufxp0.2-wrap", "fxp-1.3")),
    *map(parse, ("posit3e0", "posit4e0", "posit4e1", "posit5", "posit5e1")),
    *map(parse, ("e2m1fn", "e3m0-finite", "e2m1-ftz", "e2m2fnuz", "e2m1")),
]
"""Operands of every family, with and without NaN and infinity."""

MIXED_RESULTS = [
    *(Fixed(*bits) for bits in itertools.product(range(8), range(-1, 8), (True, False)) if sum(bits[:2]) > 0),
    *(Posit(width, es) for width, es in itertools.product((6, 7, 8, 9, 10, 12, 15, 20, 40, 64), (0, 1, 2))),
    *(
        Float(exp, man, None, specials, subnormals)
        for exp, man, subnormals in itertools.product((2, 3, 4, 6), (2, 3, 5, 8, 23), (True, False))
        for specials in ("ieee", "fn", "finite")
    ),
]


@functools.cache
def holds_number(fmt, number):
    """Return True if a format of any size has a number, by trial."""
    return fmt.decode(fmt.encode(number)) == number


def holds_all(fmt, numbers, inf, nan):
    """Return True if a format has every number and every special value."""
    return fmt.has_inf >= inf and fmt.has_nan >= nan and all(holds_number(fmt, number) for number in numbers)


def places(number):
    """Return the number of bits from the first to the last one."""
    return len(f"{abs(number.numerator):b}".rstrip("0"))


def check_bounds(span, numbers):
    """Check that a value range bounds all numbers, and that its ends and quantum occur."""
    assert (span.lowest, span.largest) == (min(numbers), max(numbers))
    in_quanta = [number / Fraction(2) ** span.quantum for number in numbers]
    assert all(number.denominator == 1 for number in in_quanta)
    assert any(number % 2 for number in in_quanta)
    assert span.smallest <= min(abs(number) for number in numbers if number)
    assert span.precision >= max(map(places, numbers))


def check_accepted(span, numbers, inf, nan):
    """Check that formats accepted by the range hold all numbers, and that some others are refused.

    Fixed point is accepted if and only if it holds the numbers; for other formats the range is a bound.
    """
    check_bounds(span, numbers)
    assert (span.inf, span.nan) == (inf, nan)
    grants = refusals = 0
    for fmt in MIXED_RESULTS:
        if accepted(span, fmt):
            grants += 1
            assert holds_all(fmt, numbers, inf, nan), fmt
        elif holds_all(fmt, numbers, inf, nan):
            refusals += 1
            assert not isinstance(fmt, Fixed), fmt
    return grants, refusals


@pytest.mark.sampled(12, 3)
@pytest.mark.parametrize("a", MIXED, ids=str)
def test_exact_across_families_is_accepted_if_result_holds(a):
    counts = []
    for b in MIXED:
        xs, ys, inf, nan = numbers_of(a), numbers_of(b), a.has_inf or b.has_inf, a.has_nan or b.has_nan
        counts.append(check_accepted(ValueRange.of(a) * ValueRange.of(b), {x * y for x in xs for y in ys}, inf, nan))
        counts.append(check_accepted(ValueRange.of(a) | ValueRange.of(b), xs | ys, inf, nan))
        sums = {x + y for x in xs for y in ys}
        counts.append(check_accepted(ValueRange.of(a) + ValueRange.of(b), sums, inf, nan))
        differences = {x - y for x in xs for y in ys}
        counts.append(check_accepted(ValueRange.of(a).plus_or_minus(ValueRange.of(b)), sums | differences, inf, nan))
    grants, refusals = map(sum, zip(*counts, strict=True))
    assert grants > 500
    assert refusals < grants / 10


@pytest.mark.slow
def test_exact_sums_across_families_are_accepted_if_result_holds():
    formats = [parse(name) for name in ("fxp2.1", "ufxp0.2", "int1", "posit4e1", "e2m1fn")]
    counts = []
    for a, b, c in itertools.product(formats, repeat=3):
        products = {x * y for x in numbers_of(a) for y in numbers_of(b)}
        numbers = {product + z for product in products for z in numbers_of(c)}
        nan = a.has_nan or b.has_nan or c.has_nan
        counts.append(check_accepted(ValueRange.of(a) * ValueRange.of(b) + ValueRange.of(c), numbers, False, nan))
    grants, refusals = map(sum, zip(*counts, strict=True))
    assert grants > 2000
    assert refusals < grants / 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fmt", [fmt for fmt in MIXED if fmt.width <= 4], ids=str)
def test_value_range_of_long_sums_is_exact(fmt):
    """Sums of a few numbers of a format, and of a few products."""
    for span, terms in (
        (ValueRange.of(fmt), numbers_of(fmt)),
        (ValueRange.of(fmt) * ValueRange.of(INT2), {x * y for x in numbers_of(fmt) for y in numbers_of(INT2)}),
    ):
        numbers = {Fraction(0)}
        for count in range(1, 4):
            numbers = {number + term for number in numbers for term in terms}
            check_accepted(span.times(count), numbers, fmt.has_inf, fmt.has_nan)


def test_exact_posit_widening_is_accepted():
    for narrow, wide in itertools.product([fmt for fmt in POSITS if fmt.width <= 7 and fmt.es <= 2], repeat=2):
        held = holds_all(wide, numbers_of(narrow), False, True)
        assert held or not accepted(ValueRange.of(narrow), wide), f"{narrow} {wide}"
        if narrow.es == wide.es:
            assert held == accepted(ValueRange.of(narrow), wide) == (narrow.width <= wide.width)
    assert accepted(ValueRange.of(POSIT32), POSIT64)
    assert not accepted(ValueRange.of(POSIT64), POSIT32)


# Descriptions --------------------------------------------------------------------------------------------------------


def test_mac_spec_parse_and_str_are_inverse():
    formats = [E5M2, parse("e4m3b-3fnuz-ftz"), E3M2FN, parse("e3m2-fn")]
    count = 0
    for a, acc, product, rounding, saturate in itertools.product(
        formats, [E6M5, parse("e8m23-ftz")], [None, *formats], [RN, stochastic(10)], [False, True]
    ):
        spec = MacSpec(a, E5M2, acc, product, EXACT if product is None else RZ, rounding=rounding, saturate=saturate)
        assert MacSpec.parse(str(spec)) == spec
        count += 1
    assert count == 160
    assert str(MacSpec(E5M2, E5M2, E6M5, rounding=stochastic(10))) == "mac e5m2*e5m2+e6m5.sr10"
    assert str(MacSpec(E5M2, E5M2, E6M5, E5M2, RZ, saturate=True)) == "mac e5m2*e5m2=e5m2.rz+e6m5.rn.sat"


def test_mac_spec_names_random_source():
    """The text names every source that serves the rounding; other sources are refused."""
    served = refused = 0
    sources = [Lfsr(2), Lfsr(10), Lfsr(64), Plateau(2), Plateau(3), Plateau(16)]
    for source, rounding, product_rounding, acc, saturate in itertools.product(
        sources, (RN, stochastic(3), stochastic(16)), (None, RZ, stochastic(2)), (E6M5, POSIT8, "exact"), (False, True)
    ):
        product = None if product_rounding is None else E5M2
        words = [mode.bits for mode in (rounding, product_rounding) if mode is not None and mode.bits]
        fits = (
            source.width >= max(words, default=65)
            if isinstance(source, Lfsr)
            else source.width <= min(words, default=0)
        )
        given = (E4M3, E4M3FN, acc, product, product_rounding or EXACT)
        more = {"rounding": rounding, "saturate": saturate}
        if not fits:
            with pytest.raises(ValueError, match=f"{source} (gives words|does nothing)"):
                MacSpec(*given, **more, random=source)
            refused += 1
            continue
        spec = MacSpec(*given, **more, random=source)
        assert str(spec) == f"{MacSpec(*given, **more)}@{source}"
        assert MacSpec.parse(str(spec)) == spec != MacSpec(*given, **more)
        assert list(spec.words.values()) == words
        served += 1
    assert (served, refused) == (150, 174)
    for text in (
        "e5m2*e5m2+e6m5.sr10@lfsr16",
        "e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat@lfsr16",
        "posit8*fxp4.4=posit16.sr5+exact=fp32.rn@plateau4 carry=7",
    ):
        assert str(MacSpec.parse(text)) == f"mac {text}"
        assert MacSpec.parse(MacSpec.parse(text)) == MacSpec.parse(text)


def test_rounding_modes_have_constants():
    assert [getattr(formats, mode.upper()) for mode in ROUNDING_MODES] == [*map(Rounding, ROUNDING_MODES)]
    assert {mode.upper() for mode in ROUNDING_MODES} <= set(formats.__all__)


def test_default_accumulators_of_floats():
    assert E5M2.default_accumulator() == E6M5
    assert parse("e2m1fn").default_accumulator() == Float(3, 4)
    assert FP64.default_accumulator() == FP64
    assert parse("e5m2-ftz").default_accumulator() == parse("e6m5-ftz")
    named = {name: str(fmt.default_accumulator()) for name, fmt in NAMED.items() if fmt.family == "float"}
    assert named == dict.fromkeys(("e4m3", "e4m3fn", "e4m3fnuz", "e4m3b11fnuz"), "e5m6") | {
        **dict.fromkeys(("e5m2", "e5m2fnuz"), "e6m5"),
        "fp64": "fp64",
        "fp32": "e9m26",
        "tf32": "e9m13",
        "bf16": "e9m10",
        "fp16": "e6m13",
        "e3m4": "e4m7",
        "e6m5": "e7m8",
        "e3m2fn": "e4m5",
        "e2m3fn": "e3m6",
        "e2m1fn": "e3m4",
    }
    # The bias shifts as that of the products does.
    for text, acc in (("e4m3b30fn", "e5m6b61"), ("e11m4b2000", "e11m7b2977"), ("e4m3b8", "e5m6")):
        assert str(parse(text).default_accumulator()) == acc


@pytest.mark.parametrize("text", ["e3m4b9", "e3m4b-9", "e4m3b30", "e5m2b-20-ftz"])
def test_default_accumulators_of_biased_floats_hold_products(text):
    fmt = parse(text)
    acc = fmt.default_accumulator()
    for ends in (Fraction(2) ** (2 * fmt.emin), Fraction(2) ** (2 * fmt.emax)):
        assert acc.decode(acc.encode(ends)) == ends


def test_default_accumulators_of_extreme_biases_are_refused():
    with pytest.raises(ValueError, match="accumulator"):
        parse("e3m4b4096").default_accumulator()


@pytest.mark.parametrize(
    ("fmt", "acc"),
    [
        ("fxp4.4", "fxp8.8"),
        ("ufxp0.8-wrap", "ufxp0.16-wrap"),
        ("fxp-2.10", "fxp-4.20"),
        ("fxp16.16", "fxp32.32"),
        ("fxp16.17", "fxp47.17"),
        ("fxp40.-6", "fxp70.-6"),
        ("int8", "int32"),
        ("int4", "int16"),
        ("uint5-wrap", "uint20-wrap"),
        ("int16", "int64"),
        ("int17", "int64"),
        ("int64", "int64"),
        ("posit8", "posit16"),
        ("posit8e0", "posit16e0"),
        ("posit32", "posit64"),
        ("posit33", "posit64"),
        ("posit64", "posit64"),
    ],
)
def test_default_accumulators_of_fixed_and_posits(fmt, acc):
    assert parse(fmt).default_accumulator() == parse(acc)


def test_default_accumulators_have_at_most_64_bits():
    for fmt in (*POSITS, *(fmt for fmt in FIXED if max(map(abs, (fmt.int_bits, fmt.frac_bits))) <= 1024)):
        acc = fmt.default_accumulator()
        assert type(acc) is type(fmt)
        assert fmt.width <= acc.width <= 64
        if isinstance(fmt, Posit) or (fmt.int_bits >= 0 and fmt.frac_bits >= 0):
            # Doubling a negative number of bits decreases it.
            assert holds_all(acc, {fmt.lowest, fmt.largest}, fmt.has_inf, fmt.has_nan)
            assert acc.quantum <= fmt.quantum


EXACT_MACS = [
    MacSpec(a, b, "exact", product, EXACT if product is None else RZ, o, carry, rounding=rounding, saturate=saturate)
    for a, b, o in itertools.product(
        (POSIT8, parse("ufxp-1.9-wrap"), E5M2), (POSIT16, INT8, E4M3FN), (None, POSIT8, E6M5)
    )
    for product, rounding, saturate, carry in ((None, RN, False, 31), (parse("fxp4.-2"), stochastic(3), True, 7))
]


def test_exact_mac_specs_parse_and_str_are_inverse():
    assert len({str(spec) for spec in EXACT_MACS}) == len(set(EXACT_MACS)) == 48
    for spec in EXACT_MACS:
        assert MacSpec.parse(str(spec)) == spec
    for text in (
        "posit8*posit8+exact=posit8.rn",
        "e5m2*e5m2=e5m2.rz+exact=e6m5.sr3.sat carry=7",
        "fxp4.4*ufxp0.8-wrap=fxp8.8.ro+exact=fxp8.-2-wrap.ru",
        "int8*int8+int32.rn",
        "posit8*posit8=posit8.rn+posit16.rn",
    ):
        assert str(MacSpec.parse(text)) == f"mac {text}"
    assert MacSpec.parse("posit8*posit8+exact=posit8.rn") == MacSpec(POSIT8, POSIT8, "exact")
    assert MacSpec(E5M2, E5M2, E6M5) == MacSpec(E5M2, E5M2, E6M5, o=E6M5)
    assert AccumulateSpec(E5M2, E6M5).o == E6M5
    assert AccumulateSpec(POSIT8, "exact").o == POSIT8
    assert str(AccumulateSpec(POSIT8, "exact", carry=3)) == "accumulate posit8+exact=posit8.rn carry=3"
    assert (AccumulateSpec(POSIT8, POSIT16).quire, AccumulateSpec(INT8, "exact").quire.width) == (None, 1 + 31 + 7)


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (
            lambda: MacSpec(E5M2, E5M2, E6M5, o=E5M2),
            ValueError,
            "accumulator exact",
        ),
        (
            lambda: AccumulateSpec(POSIT8, POSIT16, o=POSIT8),
            ValueError,
            "accumulator exact",
        ),
        (
            lambda: MacSpec(E5M2, E5M2, E6M5, carry=7),
            ValueError,
            "no carry",
        ),
        (
            lambda: AccumulateSpec(INT8, INT32, carry=30),
            ValueError,
            "no carry",
        ),
        (
            lambda: MacSpec(E5M2, E5M2, "exact", carry=0).quire,
            ValueError,
            "carry",
        ),
        (
            lambda: AccumulateSpec(E5M2, "exact", carry=65).quire,
            ValueError,
            "carry",
        ),
        (lambda: AccumulateSpec(E5M2, "exact", carry="3").quire, TypeError, "carry"),
        (lambda: MacSpec(E5M2, E5M2, "exakt"), TypeError, "exact"),
        (
            lambda: AccumulateSpec(POSIT8, POSIT64, rounding=EXACT),
            ValueError,
            "sum",
        ),
        (
            lambda: MacSpec.parse("e5m2*e5m2+e6m5.rn@lfsr16"),
            ValueError,
            "does nothing",
        ),
        (
            lambda: MacSpec.parse("e4m3*e4m3=e5m2.sr3+e6m5.sr10@lfsr8"),
            ValueError,
            "lfsr8",
        ),
        (
            lambda: MacSpec.parse("e4m3*e4m3=e5m2.sr3+e6m5.sr10@plateau8"),
            ValueError,
            "plateau8",
        ),
        (lambda: MacSpec.parse("e5m2*e5m2+e6m5.sr10@noise"), ValueError, "noise"),
        (
            lambda: MacSpec(E5M2, E5M2, E6M5, rounding=stochastic(10), random="lfsr16"),
            TypeError,
            "Plateau",
        ),
        (
            lambda: MacSpec.parse(E5M2),
            TypeError,
            "text of a unit",
        ),
        (lambda: AccumulateSpec(E5M2, None), TypeError, "acc of accumulate is missing"),
        (
            lambda: MacSpec(INT8, INT8, "exact", rounding=EXACT, o=INT32),
            ValueError,
            "exact",
        ),
        (
            lambda: AccumulateSpec(INT8, INT8, rounding=EXACT),
            ValueError,
            "sum",
        ),
        (
            lambda: MacSpec(INT8, INT8, "exact", product=INT8, product_rounding=EXACT),
            ValueError,
            "product",
        ),
        (
            lambda: MacSpec(INT8, INT8, "exact", product_rounding=RZ),
            ValueError,
            "does nothing",
        ),
        (lambda: MacSpec.parse("posit8*posit8"), ValueError, "="),
        (
            lambda: MacSpec.parse("posit8*posit8+exact=posit8.rn carry=65"),
            ValueError,
            "carry",
        ),
        (
            lambda: DotSpec(0, E5M2, E5M2, E5M2),
            ValueError,
            "k 0",
        ),
        (
            lambda: DotSpec(257, INT8, INT8, INT32),
            ValueError,
            "k 257",
        ),
        (lambda: DotSpec(True, E5M2, E5M2, E5M2), TypeError, "k"),
        (lambda: DotSpec("4", E5M2, E5M2, E5M2), TypeError, "k"),
        (
            lambda: DotSpec(4, E5M2, E5M2, E5M2, order="best"),
            ValueError,
            "best",
        ),
        (
            lambda: DotSpec(4, INT8, INT8, parse("int17"), rounding=EXACT),
            ValueError,
            "products",
        ),
        (
            lambda: DotSpec(2, POSIT8, POSIT8, POSIT64, rounding=EXACT),
            ValueError,
            "products",
        ),
    ],
)
def test_sum_specs_reject_bad_parameters(make, error, keyword):
    with pytest.raises(error, match=re.escape(keyword)):
        make()


@pytest.mark.parametrize("k", [1, 2, 3, 7, 256])
def test_exact_dot_products_are_accepted_if_result_holds(k):
    most = k * 2**14
    for start, end in ((None, most), (INT32, most + 2**31 - 1)):
        for o in (Fixed(width, 0) for width in range(14, 35)):
            fits = end <= o.largest
            specs = [{"order": order, "rounding": EXACT} for order in ("exact", "sequential")]
            for more in specs:
                try:
                    DotSpec(k, INT8, INT8, o, start, **more)
                except ValueError:
                    assert not fits
                else:
                    assert fits


PROTOCOL = [*TOYS, *(fmt for fmt in SMALL_POSITS if fmt.width <= 8), *(fmt for fmt in SMALL_FIXED if fmt.width <= 6)]


@pytest.mark.parametrize("fmt", PROTOCOL, ids=str)
def test_precision_at_matches_table(fmt):
    low, high = (floor_log2(number) for number in (fmt.smallest, fmt.largest))
    for scale in (*range(low - 2, high), high + 1, high + 2):
        assert fmt.precision_at(scale) == Format.precision_at(fmt, scale), scale
    # Above the last power of two there may be few numbers.
    assert fmt.precision_at(high) >= Format.precision_at(fmt, high) >= bool(fmt.largest)


@pytest.mark.parametrize("fmt", PROTOCOL, ids=str)
def test_rank_rises_with_the_number(fmt):
    ranked = sorted((fmt.rank(code), fmt.decode(code)) for code in range(1 << fmt.width) if fmt.rank(code) is not None)
    for (rank, number), (next_rank, next_number) in itertools.pairwise(ranked):
        assert (rank < next_rank) >= (number < next_number)
        assert (rank == next_rank) <= (number == next_number)
    assert all((fmt.rank(code) is None) == (value != value) for code, value in enumerate(fmt.values))


@pytest.mark.parametrize("fmt", PROTOCOL, ids=str)
def test_negated_changes_sign_if_number_has_opposite(fmt):
    for code, value in enumerate(fmt.values):
        if value != value:
            assert fmt.negated(code) == code
        elif -value in fmt.values:
            other = fmt.negated(code)
            assert fmt.decode(other) == -value
            assert fmt.negative(other) != fmt.negative(code) or (value == 0 and not fmt.has_negative_zero)
        else:
            with pytest.raises(ValueError, match="opposite"):
                fmt.negated(code)


def test_families_are_registered_with_names_and_syntax():
    for family in FAMILIES:
        assert family.family
        assert family.syntax
        for name, text in family.names.items():
            assert isinstance(parse_operand(text), family)
            assert (BLOCKS if family.shares_scale else NAMED)[name] == parse_operand(name)
            assert parse_operand(name).describe()


def test_family_without_accumulator_rejects_default():
    class Bare(Posit):
        default_accumulator = Format.default_accumulator

    for default in (Bare(8).default_accumulator, Bare(8).default_sum):
        with pytest.raises(TypeError, match="accumulator"):
            default()


def test_backends_reject_unregistered_family():
    class Other(Posit):
        pass

    fmt = Other(8)
    codes = torch.zeros(1, dtype=torch.int64)
    for call in (
        lambda: codec.unpack(codes, fmt),
        lambda: codec.round_and_pack(codec.unpack(codes, POSIT8), fmt, RN, False, None),
        lambda: rtl.unpack(Module(), Const(0, 8), fmt, "x"),
        lambda: kernels.format_text(fmt),
    ):
        with pytest.raises(TypeError, match="posit8 has no"):
            call()


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
