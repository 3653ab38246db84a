"""Texts, names and parameters of formats."""

import itertools
import re
from fractions import Fraction

import pytest

from halfulp.hdl.formats import (
    BF16,
    BLOCKS,
    E3M2FN,
    E5M2,
    E6M5,
    EXACT,
    INT8,
    ML_DTYPES,
    NAMED,
    POSIT8,
    RN,
    Block,
    Fixed,
    Float,
    Posit,
    Rounding,
    parse,
    stochastic,
)
from halfulp.hdl.formats.block import parse_operand
from halfulp.hdl.formats.floating import OTHER_NAMES, SPECIALS
from halfulp.hdl.specs import MacSpec, UnitSpec
from tests.toy_formats import FIXED, POSITS

GRID = [
    Float(exp, man, bias, specials, subnormals)
    for exp, man, bias, specials, subnormals in itertools.product(
        (2, 3, 5, 11), (0, 1, 2, 7, 52), (None, -3, 0, 9, 1023), SPECIALS, (True, False)
    )
    if man > 0 or specials != "ieee"
]


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
        (lambda: MacSpec.parse("e5m2"), ValueError, "e5m2 is a format"),
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


@pytest.mark.parametrize(
    ("names", "fmt"),
    [("binary16 half float16", "fp16"), ("binary32 single float float32", "fp32"), ("binary64 double float64", "fp64")],
)
def test_names_of_ieee_and_c_parse(names, fmt):
    assert {str(parse(name)) for name in names.split()} == {fmt}
    assert {str(parse(f"{name}-ftz")) for name in names.split()} == {f"{fmt}-ftz"}


@pytest.mark.parametrize(
    ("names", "fmt"),
    [
        ("FP8 fp8_e4m3fn FP8_E4M3 F8_E4M3 f8_e4m3 torch.float8_e4m3fn FLOAT8_E4M3FN ml_dtypes.float8_e4m3fn", "e4m3fn"),
        ("FP8_E5M2 F8_E5M2 torch.float8_e5m2 jnp.float8_e5m2", "e5m2"),
        ("FP8_E4M3FNUZ torch.float8_e4m3fnuz", "e4m3fnuz"),
        ("FP6_E3M2 F6_E3M2", "e3m2fn"),
        ("FP6_E2M3 F6_E2M3", "e2m3fn"),
        ("FP4 F4 FP4_E2M1 torch.float4_e2m1fn_x2", "e2m1fn"),
        ("E8M0 F8_E8M0 UE8M0 E8M0FNU torch.float8_e8m0fnu", "e8m0fnu"),
        ("BF16 BFloat16 torch.bfloat16", "bf16"),
        ("FP16 F16 Half numpy.float16 torch.half", "fp16"),
        ("FP32 F32 np.float32", "fp32"),
        ("FP64 F64", "fp64"),
        ("TF32", "tf32"),
        ("INT8 torch.int8", "int8"),
        ("NF4", "nf4"),
        ("FP16-ftz", "fp16-ftz"),
        ("E4M3-ftz", "e4m3fn-ftz"),
        ("Posit8", "posit8"),
        ("BF16X2", "bf16x2"),
    ],
)
def test_common_names_parse(names, fmt):
    assert {name: str(parse(name)) for name in names.split()} == dict.fromkeys(names.split(), fmt)


def test_capital_letters_have_no_effect_but_in_names_of_ocp():
    others = {}
    for name in {*NAMED, *ML_DTYPES, *OTHER_NAMES, "int4", "ufxp0.8-wrap", "posit16e1", "takum12", "e5m2-ftz"}:
        try:
            if parse(name.upper()) != parse(name):
                others[name] = str(parse(name.upper()))
        except ValueError as error:
            others[name] = str(error)
    refused = others.pop("float8_e4m3")
    assert (
        refused
        == "unknown format 'FLOAT8_E4M3'; E4M3 of OCP is e4m3fn, and e4m3 is another format, so give one of them"
    )
    assert others == {"e4m3": "e4m3fn"}
    assert [str(parse(name)) for name in ("e3m2", "e2m3", "e2m1", "e8m0")] == ["e3m2", "e2m3", "e2m1", "e8m0"]


@pytest.mark.parametrize("name", ["fp6", "FP6", "mxfp8", "MXFP8", "mxfp6"])
def test_names_of_two_formats_are_refused_with_both(name):
    for read in (parse, Block.parse, parse_operand):
        with pytest.raises(ValueError, match=f"{name} names two formats; give {name.lower()}_e.m. or"):
            read(name)


def test_blocks_parse_in_capital_letters():
    for name, block in BLOCKS.items():
        assert Block.parse(name.upper()) == parse_operand(name.upper()) == block
        with pytest.raises(TypeError, match=f"{name.upper()} is a block of numbers"):
            parse(name.upper())
    assert str(MacSpec.parse("FP8*FP8+FP32")) == "mac e4m3fn*e4m3fn+fp32.rn"
    assert str(UnitSpec.parse("MXFP4*MXFP4+FP32")) == "blockmac mxfp4*mxfp4+fp32.rn"
    with pytest.raises(ValueError, match="did you mean mxfp4"):
        parse("mxfp5")
