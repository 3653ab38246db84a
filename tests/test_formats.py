"""Formats, rounding modes, spans and MAC descriptions as data."""

import functools
import itertools
import math
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from halfulp.hdl.formats import (
    BF16,
    E2M1FN,
    E3M2FN,
    E4M3,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    E6M5,
    EXACT,
    FP64,
    ML_DTYPES,
    NAMED,
    RD,
    RN,
    RO,
    RU,
    RZ,
    Float,
    MacSpec,
    Rounding,
    Span,
    default_accumulator,
    parse,
    stochastic,
)

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


def finite_codes(fmt):
    """Codes of finite numbers."""
    return [code for code in range(1 << fmt.width) if isinstance(fmt.decode(code), Fraction)]


# Text and value ------------------------------------------------------------------------------------------------------


def test_parse_and_str_are_inverse():
    texts = {str(fmt) for fmt in GRID}
    assert len(texts) == len(set(GRID))
    for fmt in GRID:
        assert parse(str(fmt)) == fmt
        assert hash(parse(str(fmt))) == hash(fmt)


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
    ],
)
def test_texts(text, fmt):
    assert parse(text) == fmt
    assert parse(fmt) is fmt


def test_canonical_texts():
    assert [
        str(parse(name)) for name in ("bf16", "e4m3fn", "e3m2fn", "e3m2-fn", "e2m0", "e4m3b11fnuz", "fp64-ftz")
    ] == [
        "e8m7",
        "e4m3fn",
        "e3m2fn",
        "e3m2-fn",
        "e2m0",
        "e4m3b11fnuz",
        "e11m52-ftz",
    ]


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Float(1, 2), ValueError, "e1m2 has 1 exponent bit; a float needs 2 to 11"),
        (lambda: Float(12, 2), ValueError, "e12m2 has 12 exponent bits; a float needs 2 to 11"),
        (lambda: Float(5, 53), ValueError, "e5m53 has 53 mantissa bits; a float needs 0 to 52"),
        (lambda: Float(5, -1), ValueError, "e5m-1 has -1 mantissa bits; a float needs 0 to 52"),
        (lambda: Float(5.0, 2), TypeError, "exp of a float is an int, not float"),
        (lambda: Float(5, True), TypeError, "man of a float is an int, not bool"),
        (lambda: Float(5, 2, 4097), ValueError, "bias 4097 is out of range; a float needs -4096 to 4096"),
        (lambda: Float(5, 2, 1.5), TypeError, "bias of a float is an int, not float"),
        (
            lambda: Float(5, 2, specials="nan"),
            ValueError,
            "unknown specials 'nan'; a float has one of ieee, fn, fnuz, finite",
        ),
        (lambda: Float(5, 2, subnormals=1), TypeError, "subnormals of a float is a bool, not int"),
        (
            lambda: Float(5, 0),
            ValueError,
            "e5m0 has no mantissa bit to tell inf from NaN; a float without mantissa is fn, fnuz or finite",
        ),
        (
            lambda: parse("banana"),
            ValueError,
            "unknown format 'banana'; formats are written like e5m2, bf16, e6m5-ftz, fxp4.4, int8 or posit8",
        ),
        (lambda: parse("bf61"), ValueError, "unknown format 'bf61'; did you mean bf16?"),
        (lambda: parse("E5M2 "), ValueError, "unknown format 'E5M2 '; formats are written like e5m2"),
        (
            lambda: parse("e8m0fnu"),
            ValueError,
            "e8m0fnu is a scale of blocks, without sign and zero, and no operand; e8m0 is the nearest float",
        ),
        (lambda: parse(5), TypeError, "a format is a Format or a text such as 'e5m2', not int"),
        (lambda: E5M2.decode(256), ValueError, "code 0x100 does not fit the 8 bits of e5m2"),
        (lambda: E5M2.decode(-1), ValueError, "code -0x1 does not fit the 8 bits of e5m2"),
        (lambda: E5M2.decode(1.0), TypeError, "a code of e5m2 is an int, not float"),
        (lambda: E5M2.encode(Fraction(1, 3), EXACT), ValueError, "exact was asked for, but 1/3 of a unit in the last"),
        (lambda: E5M2.encode(65536, EXACT), ValueError, "exact was asked for, but e5m2 ends at 57344"),
        (lambda: Rounding("rx"), ValueError, "unknown rounding mode 'rx'; the modes are rn, ra, rz, ru, rd, ro, exact"),
        (lambda: Rounding.parse("sr"), ValueError, "unknown rounding mode 'sr'; the modes are"),
        (lambda: Rounding.parse("sr33"), ValueError, "sr33 has 33 random bits; stochastic rounding takes 1 to 32"),
        (lambda: Rounding("rn", 3), ValueError, "rn takes no random bits; only sr does"),
        (lambda: Rounding("sr", "3"), TypeError, "the random bits of a rounding mode are an int, not str"),
        (
            lambda: stochastic(3).round(Fraction(1), random=8),
            ValueError,
            "random word 8 does not fit the 3 random bits",
        ),
        (lambda: RN.round(Fraction(-1)), ValueError, "a magnitude is not negative, but -1 is"),
        (lambda: MacSpec.parse("e5m2"), ValueError, "'e5m2' is no multiply-accumulate; one is written like e5m2*e5m2"),
        (lambda: MacSpec(E5M2, E5M2, E6M5, EXACT), ValueError, "rounding exact is refused: e6m5 cannot hold every sum"),
    ],
)
def test_wrong_parameters_are_refused_with_a_sentence(make, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        make()


def test_formats_do_not_change():
    with pytest.raises(AttributeError):
        E5M2.man = 3
    assert Float(4, 3) != Float(4, 3, specials="fn")
    assert len({Float(5, 2), parse("e5m2"), E5M2, NAMED["e5m2"]}) == 1


# Codes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ML_DTYPES if hasattr(ml_dtypes, name)])
def test_every_code_is_ml_dtypes(name):
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
def test_encode_gives_back_every_code(fmt):
    for code in range(1 << fmt.width):
        number = fmt.decode(code)
        if isinstance(number, float):
            again = fmt.encode(number)
            assert again == (fmt.nan_code if math.isnan(number) else code)
        else:
            again = fmt.encode_magnitude(abs(number), fmt.negative(code), EXACT)
            flushed = not fmt.subnormals and number == 0
            assert again == (code & fmt.sign_code if flushed and fmt.has_negative_zero else 0 if flushed else code)


@pytest.mark.parametrize("fmt", [fmt for fmt in TOYS if fmt.subnormals], ids=str)
def test_rounding_is_between_neighbours(fmt):
    """Directed modes bracket, nearest is nearest, odd is odd: by the definition, over all numbers of the format."""
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


def test_special_results():
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


def test_flushing_follows_rounding():
    fmt = parse("e5m2-ftz")
    smallest = Fraction(2) ** fmt.emin
    assert fmt.encode(smallest * Fraction(15, 16)) == fmt.encode(smallest)
    assert fmt.encode(smallest * Fraction(14, 16)) == 0
    assert fmt.encode(-smallest * Fraction(14, 16)) == 0x80
    assert fmt.encode(smallest / 8, RU) == 0


# Spans ---------------------------------------------------------------------------------------------------------------

FINITE_TOYS = [fmt for fmt in TOYS if fmt.specials == "finite" and fmt.bias != 3]


@functools.cache
def numbers_of(fmt):
    """The finite numbers of a format."""
    return frozenset(fmt.decode(code) for code in finite_codes(fmt))


def holds(fmt, numbers):
    """Whether a format has every number, by trying."""
    return numbers <= numbers_of(fmt)


def granted(span, fmt):
    """Whether `Span.check_fits` says that a format holds everything."""
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
def test_exact_is_granted_exactly_where_it_holds(a):
    for b in FINITE_TOYS:
        xs, ys = numbers_of(a), numbers_of(b)
        for name, span, numbers in (
            ("product", Span.of(a) * Span.of(b), {x * y for x in xs for y in ys}),
            ("sum", Span.of(a) + Span.of(b), {x + y for x in xs for y in ys}),
            ("either", Span.of(a) | Span.of(b), xs | ys),
        ):
            for fmt in RESULTS:
                assert granted(span, fmt) == holds(fmt, numbers), f"{name} of {a} and {b} in {fmt}"


def test_exact_is_never_granted_to_a_sum_of_products_that_does_not_fit():
    small = [Float(2, man, None, "finite", subnormals) for man in (0, 1) for subnormals in (True, False)]
    grants = 0
    for a, b, c in itertools.product(small, small, small):
        xs, ys, zs = numbers_of(a), numbers_of(b), numbers_of(c)
        numbers = {x * y + z for x in xs for y in ys for z in zs}
        for fmt in (*RESULTS, Float(4, 6, None, "finite"), Float(4, 7, None, "finite")):
            if granted(Span.of(a) * Span.of(b) + Span.of(c), fmt):
                grants += 1
                assert holds(fmt, numbers)
    assert grants > 50


def test_exact_needs_the_specials():
    assert not granted(Span.of(E5M2), Float(6, 5, specials="fn"))
    assert not granted(Span.of(E4M3FN), Float(6, 5, specials="finite"))
    assert granted(Span.of(E5M2), E6M5)


# Descriptions --------------------------------------------------------------------------------------------------------


def test_mac_descriptions_parse():
    formats = [E5M2, parse("e4m3b-3fnuz-ftz"), E3M2FN, parse("e3m2-fn")]
    count = 0
    for a, acc, product, rounding, saturate in itertools.product(
        formats, [E6M5, parse("e8m23-ftz")], [None, *formats], [RN, stochastic(10)], [False, True]
    ):
        spec = MacSpec(a, E5M2, acc, rounding, product, EXACT if product is None else RZ, saturate)
        assert MacSpec.parse(str(spec)) == spec
        count += 1
    assert count == 160
    assert str(MacSpec(E5M2, E5M2, E6M5, stochastic(10))) == "e5m2*e5m2+e6m5.sr10"
    assert str(MacSpec(E5M2, E5M2, E6M5, RN, E5M2, RZ, True)) == "e5m2*e5m2=e5m2.rz+e6m5.rn.sat"


def test_default_accumulators():
    assert default_accumulator(E5M2) == E6M5
    assert default_accumulator(parse("e2m1fn")) == Float(3, 4)
    assert default_accumulator(FP64) == FP64
    assert default_accumulator(parse("e5m2-ftz")) == parse("e6m5-ftz")
