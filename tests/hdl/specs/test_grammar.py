"""Texts of units: parsing and printing are inverse, and an error names its position."""

import itertools
import re

import pytest

from halfulp.hdl.formats import BLOCKS, NAMED, RN, Fixed, Rounding, parse, stochastic
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.formats.source import Lfsr, Plateau
from halfulp.hdl.specs import UNITS, MacSpec, TextError, UnitSpec
from halfulp.hdl.specs.grammar import page

ROUNDINGS = [*map(Rounding.parse, ROUNDING_MODES), stochastic(1), stochastic(8), stochastic(32)]


WITHOUT_OTHER_RESULT = (
    *(
        "mac",
        "mma",
        "requantize",
        "partmac",
        "accumulate",
        "sru",
        "split",
        "blockquantize",
        "blockmac",
        "sparsemac",
        "dotmac",
        "fpu",
    ),
    *(name for name, cls in UNITS.items() if not cls.ROUNDS),
)
"""Units whose result has no format of its own, or only some formats."""


def described(unit: str) -> list[UnitSpec]:
    """Return descriptions of a unit in every named format with every rounding, with options in turn."""
    cls = UNITS[unit]
    found = []
    others = itertools.cycle(fmt for fmt in NAMED.values() if fmt.has_zero)
    for number, (fmt, rounding) in enumerate(itertools.product((*NAMED.values(), *BLOCKS.values()), ROUNDINGS)):
        if not cls.takes(fmt, rounding):
            continue
        saturate = number % 2 == 1 and cls.has_effect("saturate")
        given = {"rounding": rounding, "saturate": saturate}
        if number % 3 == 0 and rounding.bits:
            given |= {"random": Lfsr(32), "seed": 1 + number}
        if number % 3 == 1 and rounding.bits > 1 and unit != "sru":
            given["random"] = Plateau(min(rounding.bits, 16))
        found.append(cls.filled(fmt, **given))
        if number % 2 and unit not in WITHOUT_OTHER_RESULT:
            other = next(other for other in others if cls.gives(other, rounding))
            found.append(cls.filled(fmt, **given, o=other))
    return found


@pytest.mark.sampled(7)
@pytest.mark.parametrize("unit", UNITS)
def test_text_of_every_unit_format_and_rounding_round_trips(unit):
    found = described(unit)
    modes = {"mma": 2}.get(unit, 3) if UNITS[unit].ROUNDS else 1
    assert len(found) >= modes * len([fmt for fmt in NAMED.values() if UNITS[unit].takes(fmt, None)])
    for spec in found:
        for text in (str(spec), spec.text, re.sub(r"([*+=>,@])", r" \1 ", spec.text.partition(" carry")[0])):
            read = UnitSpec.parse(text)
            assert read == spec, text
            assert hash(read) == hash(spec)
        assert spec.text == UnitSpec.parse(spec.text).text
        assert re.fullmatch(r"[a-z]\w*", spec.name)
    different = {str(spec) for spec in found}
    assert len(different) == len(set(found)) == len({spec.name for spec in set(found)})


@pytest.mark.parametrize(
    ("text", "printed", "name"),
    [
        ("mul e4m3fn*e4m3fn=e6m5", "mul e4m3fn*e4m3fn=e6m5.rn", "mul_e4m3fn_e4m3fn_e6m5_rn"),
        ("mul e5m2*e5m2=e5m2", "mul e5m2*e5m2.rn", "mul_e5m2_e5m2_e5m2_rn"),
        ("fma e5m2*e5m2+e6m5=e6m5.rz", "fma e5m2*e5m2+e6m5.rz", "fma_e5m2_e5m2_e6m5_e6m5_rz"),
        (
            "mac e5m2*e5m2+e6m5.sr10@lfsr16:1",
            "mac e5m2*e5m2+e6m5.sr10@lfsr16",
            "mac_e5m2_e5m2_e6m5_sr10_lfsr16",
        ),
        ("e5m2 * e5m2 + e6m5", "mac e5m2*e5m2+e6m5.rn", "mac_e5m2_e5m2_e6m5_rn"),
        ("mac e5m2*e5m2=e5m2+e6m5.rn", "mac e5m2*e5m2=e5m2.rn+e6m5.rn", "mac_e5m2_e5m2_e5m2_rn_e6m5_rn"),
        ("mac posit8*posit8+exact=posit16", "mac posit8*posit8+exact=posit16.rn", "mac_posit8_posit8_exact_posit16_rn"),
        ("accumulate e5m2+e6m5", "accumulate e5m2+e6m5.rn", "accumulate_e5m2_e6m5_rn"),
        ("quire posit8*posit8=posit16 carry=31", "quire posit8*posit8=posit16.rn", "quire_posit8_posit8_posit16_rn"),
        ("dot8 e5m2*e5m2+e6m5 order=exact", "dot8 e5m2*e5m2+e6m5.rn", "dot8_e5m2_e5m2_e6m5_e6m5_rn"),
        ("dot8 e5m2*e5m2=e6m5", "dot8 e5m2*e5m2=e6m5.rn", "dot8_e5m2_e5m2_e6m5_rn"),
        ("convert e6m5>e4m3fn.sr8 .sat", "convert e6m5>e4m3fn.sr8.sat", "convert_e6m5_e4m3fn_sr8_sat"),
        ("compare e5m2,e6m5", "compare e5m2,e6m5.rn", "compare_e5m2_e6m5_e5m2_rn"),
        (
            "sru fxp8.8 > fxp4.4 . sr4 @ plateau3-rep : 5  lanes = 64",
            "sru fxp8.8>fxp4.4.sr4@plateau3-rep:5 lanes=64",
            "sru_fxp8_8_fxp4_4_sr4_plateau3_rep_5_lanes_64",
        ),
        (
            "pwl tanh(fxp4.12)>fxp1.15",
            "pwl tanh(fxp4.12)>fxp1.15.rn pieces=8",
            "pwl_tanh_fxp4_12__fxp1_15_rn_pieces_8",
        ),
        ("pwl gelu6-1f0c33a9(fxp4.4)", "pwl gelu6-1f0c33a9(fxp4.4).rn", "pwl_gelu6_1f0c33a9_fxp4_4__fxp4_4_rn"),
    ],
)
def test_text_omits_defaults(text, printed, name):
    spec = UnitSpec.parse(text)
    assert (spec.text, spec.name) == (printed, name)
    assert UnitSpec.parse(printed) == spec


def test_text_of_mac_needs_no_name():
    spec = MacSpec.parse("mac e5m2*e5m2+e6m5.rn")
    assert str(spec) == "mac e5m2*e5m2+e6m5.rn"
    assert MacSpec.parse(spec.expression) == UnitSpec.parse(spec.text) == spec
    with pytest.raises(ValueError, match="unit mul, expected mac"):
        MacSpec.parse("mul e5m2*e5m2")


@pytest.mark.parametrize(
    "text", ["mul e5m2*e5m2.rz", "add e5m2+e4m3.rn", "convert fp32>e4m3fn.sr8", "mac e5m2*e5m2+e6m5.rn"]
)
def test_unit_class_parses_formula_without_name(text):
    spec = UnitSpec.parse(text)
    assert type(spec).parse(spec.expression) == spec


def test_description_includes_source_state():
    one, five = (MacSpec.parse(f"e5m2*e5m2+e6m5.sr10@lfsr16{state}") for state in ("", ":5"))
    assert (one.seed, five.seed, one == five) == (1, 5, False)
    assert MacSpec.parse("e5m2*e5m2+e6m5.sr10@lfsr16:0x5") == five
    with pytest.raises(ValueError, match="without a random source"):
        MacSpec(one.a, one.b, one.acc, seed=5)


@pytest.mark.parametrize(
    ("text", "place", "keyword"),
    [
        ("mul e5m2 ^e5m2", "^", r"expected '\*'"),
        ("mul e5m2*^", "^", "format of b"),
        ("mul e5m2*^e5n2", "^", "did you mean e5m2"),
        ("mul e5m2*^binary_16", "^", "did you mean binary16"),
        ("^foo e5m2*e5m2", "^", "unknown unit 'foo'; the units are"),
        ("^mull e5m2*e5m2", "^", r"unknown unit 'mull'; did you mean mul\?"),
        ("mac e5m2*e5m2+e6m5.sr10.^port", "^", r"sr10 and port are two rounding modes; .* as \.port_sr10"),
        ("mac e5m2*e5m2+e6m5.port_sr4.^ro", "^", r"a port chooses between them as \.port_ro_sr4"),
        ("mac e5m2*e5m2+e6m5.rn.^rz", "^", "rn and rz are two rounding modes; write one of them"),
        ("^Mac", "^", "did you mean mac"),
        ("^bf16", "^", r"bf16 is a format; a multiply-accumulate has three, such as bf16\*bf16\+fp32"),
        ("^FP8", "^", "FP8 is a format"),
        ("^mxfp4", "^", "mxfp4 is a format"),
        ("mul ^E4M3FM*e4m3fn", "^", "did you mean e4m3fn"),
        ("dot^ e5m2*e5m2", "^", "number after dot"),
        ("mac e5m2*e5m2^", "^", r"'=' or '\+'"),
        ("e5m2*e5m2+e6m5.^rx", "^", "rounding mode 'rx'"),
        ("e5m2*e5m2+e6m5.rn^.foo", "^", ".sat"),
        ("e5m2*e5m2+e6m5.sr10@^lfsr99", "^", "lfsr99"),
        ("e5m2*e5m2+e6m5.sr10@^lfsr8", "^", "needs 10"),
        ("e5m2*e5m2+e6m5.sr10@lfsr16:^x", "^", "state of a source"),
        ("mul e5m2*e5m2.^exact", "^", "cannot hold every result"),
        ("sru int16>int8 lanes=^x", "^", "number after lanes"),
        ("sru int16>int8 ^lanes", "^", "value after lanes"),
        ("sru int16>int8 lanes=3 ^lanes=3", "^", "twice"),
        ("sru int16>int8 ^carry=3", "^", "no option 'carry'"),
        ("sru int16>^e5m2", "^", "fixed point"),
        ("sru int16>int8 increment=^maybe", "^", "increment=yes"),
        ("dot8 e5m2*e5m2 order=^best", "^", "order 'best'"),
        ("quire posit8*posit8 carry=^65", "^", "carry"),
        ("pwl ^tanhh(fxp4.4)", "^", "unknown function"),
        ("pwl ^tanh:2(fxp4.4)", "^", "have a parameter"),
        ("pwl ^elu:x(fxp4.4)", "^", "must be a number"),
        ("pwl tanh(fxp4.4) breakpoints=^some", "^", "unknown breakpoints"),
        ("pwl tanh(fxp4.4) slopes=^some", "^", "unknown slopes"),
        ("pwl tanh(fxp4.4) slopes=pow2 terms=^9", "^", "terms"),
        ("pwl tanh(fxp4.4) pieces=^0", "^", "pieces"),
        ("pwl tanh(fxp4.4) error=^-1", "^", "error"),
        ("pwl tanh(fxp4.4) error=0.1 breakpoints=^uniform", "^", "uniform"),
        ("pwl tanh ^fxp4.4", "^", r"expected '\('"),
        ("convert e5m2^.rz", "^", "expected '>'"),
        ("pwl gelu6-1f0c33a9(fxp4.4) pieces=^8", "^", "saved table"),
        ("quire posit8*posit8 carry=^3٣", "^", "number after carry"),
        ("quire posit8*posit8 carry=^1_0", "^", "number after carry"),
        ("sru int16>int8 lanes=^٣4", "^", "number after lanes"),
        ("e5m2*e5m2+e6m5.sr10@lfsr16:^1_05", "^", "state of a source"),
        ("e5m2*e5m2+e6m5.sr10@lfsr16:^1٣", "^", "state of a source"),
        ("^dot٣ e5m2*e5m2", "^", "format"),
        ("pwl ^leaky_relu:1_0(fxp4.4)", "^", "must be a number"),
        ("pwl ^leaky_relu:٣(fxp4.4)", "^", "must be a number"),
        ("pwl tanh(fxp4.4) error=^1_0", "^", "number after error"),
        ("sru int8>int4.sr3@lfsr16 sharing=^rotated", "^", "one lane"),
    ],
)
def test_parse_error_names_position_in_text(text, place, keyword):
    with pytest.raises(TextError, match=keyword) as caught:
        UnitSpec.parse(text.replace(place, "", 1))
    sentence, shown, caret = str(caught.value).split("\n")
    assert "\n" not in sentence
    assert shown.strip() == text.replace(place, "", 1)
    assert caret.index("^") == text.index(place) + 2
    assert caught.value.position == text.index(place)


def test_text_of_other_kind_is_rejected():
    with pytest.raises(TypeError, match="text"):
        UnitSpec.parse(parse("e5m2"))


def test_dot_of_one_pair_accepts_both_orders():
    # A sweep over k starts at 1, and the order names the ports of the random words.
    exact, sequential = (UnitSpec.parse(f"dot1 e5m2*e5m2.sr3 order={order}") for order in ("exact", "sequential"))
    assert (list(exact.words), list(sequential.words)) == (["random"], ["random0"])


def test_grammar_page_has_every_unit_and_word():
    text = "\n".join(page(UNITS))
    for cls in UNITS.values():
        assert f"`{cls.form.text}`" in text
        assert all(re.search(f"`{word}[=`]", text) for word in cls.form.words(cls))
    assert isinstance(UNITS["sru"].filled(parse("fxp8.8")).result, Fixed)
    assert UNITS["mul"].filled(parse("e5m2")).rounding == RN
