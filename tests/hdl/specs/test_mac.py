"""Descriptions of multiply-accumulates and sums: texts, default accumulators, and refused parameters."""

import itertools
import re
from fractions import Fraction

import pytest

from halfulp.hdl.formats import (
    E3M2FN,
    E4M3,
    E4M3FN,
    E5M2,
    E6M5,
    EXACT,
    FP64,
    INT8,
    INT32,
    NAMED,
    POSIT8,
    POSIT16,
    POSIT64,
    RN,
    RZ,
    Float,
    Posit,
    parse,
    stochastic,
)
from halfulp.hdl.formats.source import Lfsr, Plateau
from halfulp.hdl.specs import AccumulateSpec, DotSpec, MacSpec
from tests.toy_formats import FIXED, POSITS, holds_all


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
        **{f"binary8p{p}": f"e{9 - p}m{p + 2}" for p in range(1, 8)},
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
            "Source",
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
