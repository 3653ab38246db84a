"""Parameters of units and descriptions: defaults, and errors for bad ones."""

import re
from dataclasses import replace

import pytest

from halfulp.hdl.formats import E5M2, E6M5
from halfulp.hdl.specs import UNITS, Build, MacSpec, MulSpec, UnitSpec
from halfulp.units import Accumulate, Add, Compare, Convert, Dot, Fma, Mac, Mul, Quire, SoftMax, Streamed
from tests.short_form import BLOCK, build


def binary(**changes):
    return Mul(**{"a": E5M2, "b": E5M2, "o": E5M2, **changes})


def mac(**changes):
    return Mac(**{"a": E5M2, "b": E5M2, "acc": E6M5, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "e5m2*e5m2+e6m5.rn",
        "e5m2*e4m3=e5m2.sr3+e6m5.sr10.sat@lfsr16",
        "fxp4.4*fxp4.4+fxp8.8.sr3@plateau3",
        "posit8*int8=fxp4.4-wrap.rz+exact=posit16.sr7 carry=3",
    ],
)
def test_mac_of_description(text):
    spec = MacSpec.parse(text)
    unit = Mac.of(text, build=Build(pipeline=2))
    assert (unit.spec, unit.build.pipeline, list(unit.words)) == (spec, 2, list(spec.words))
    if spec.random:
        seeded = Mac.of(f"{spec}:5")
        assert seeded.spec == replace(spec, seed=5)
        assert [stream.seed for stream in seeded.sources.values()] == spec.random.seeds(len(spec.words), 5)
    else:
        assert list(unit.words) == list(spec.words)
        assert unit.sources == {}
    same = Mac(
        a=spec.a,
        b=spec.b,
        acc=spec.acc,
        o=spec.o,
        carry=spec.carry,
        product=spec.product,
        product_rounding=spec.product_rounding,
        rounding=spec.rounding,
        random=spec.random or "port",
        saturate=spec.saturate,
        build=Build(pipeline=2),
    )
    assert (unit.name, unit.parameters) == (same.name, same.parameters)


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: Mac.of("e5m2"), ValueError, "e5m2 is a format"),
        (lambda: binary(c="e5m2"), TypeError, "mul has no parameter c; its parameters are a, b, o, rounding, saturate"),
        (lambda: binary(pipeline=2), TypeError, "write build=Build(pipeline=2)"),
        (lambda: Mul(E5M2, E5M2), TypeError, "by name, such as Mul(a=e5m2, b=e5m2)"),
        (lambda: Mac(E5M2), TypeError, "by name, such as Mac(a=e5m2)"),
        (lambda: SoftMax(E5M2, E5M2), TypeError, "by name, such as SoftMax(a=e5m2"),
        (lambda: Mul(a="e5m2"), TypeError, "b of mul is missing; its parameters are a, b, o, rounding, saturate"),
        (lambda: Mul(MulSpec.parse("e5m2*e5m2"), o="fp16"), TypeError, "not both"),
        (lambda: mac(rounding="sr10", seed=2), ValueError, "does nothing"),
        (
            lambda: mac(random="lfsr16"),
            ValueError,
            "does nothing",
        ),
        (
            lambda: mac(rounding="sr10", random="lfsr8"),
            ValueError,
            "lfsr8",
        ),
        (lambda: binary(a="e1m2"), ValueError, "1 exponent bit"),
        (lambda: binary(a=8), TypeError, "Format"),
        (lambda: binary(rounding="up"), ValueError, "up"),
        (lambda: binary(rounding="sr0"), ValueError, "0 random bits"),
        (lambda: binary(rounding=3), TypeError, "Rounding"),
        (lambda: binary(saturate=1), TypeError, "saturate"),
        (lambda: binary(build=Build(pipeline=-1)), ValueError, "pipeline -1"),
        (lambda: binary(build=Build(pipeline=1.0)), TypeError, "pipeline"),
        (
            lambda: binary(rounding="exact"),
            ValueError,
            "result of mul",
        ),
        (
            lambda: Convert(a="e4m3", o="e4m3fn", rounding="exact"),
            ValueError,
            "no infinity",
        ),
        (
            lambda: Convert(a="e5m2", o="e5m2-ftz", rounding="exact"),
            ValueError,
            "smallest",
        ),
        (lambda: Add(a=E5M2, b=E5M2, o=E6M5, rounding="exact"), ValueError, "result of add"),
        (
            lambda: Compare(a=E5M2, b=E6M5, o=E5M2, rounding="exact"),
            ValueError,
            "number",
        ),
        (
            lambda: Fma(a=E5M2, b=E5M2, c=E5M2, o=E6M5, rounding="exact"),
            ValueError,
            "e6m5",
        ),
        (lambda: mac(rounding="exact"), ValueError, "product"),
        (
            lambda: mac(product_rounding="rz"),
            ValueError,
            "does nothing",
        ),
        (lambda: mac(product=E5M2, product_rounding="exact"), ValueError, "product"),
        (
            lambda: mac(build=Build(stochastic="eager")),
            ValueError,
            "no effect",
        ),
        (
            lambda: mac(rounding="sr3", acc="exact", build=Build(stochastic="eager")),
            ValueError,
            "no effect",
        ),
        (
            lambda: build("dot", "e5m2", rounding="sr3", stochastic="eager"),
            ValueError,
            "no effect",
        ),
        (
            lambda: mac(a="e4m3", b="e4m3", rounding="sr3", build=Build(stochastic="eager")),
            ValueError,
            "eager",
        ),
        (
            lambda: Fma(a="e5m2", b="e5m2", c="fp16", o="fp16", rounding="sr3", build=Build(stochastic="eager")),
            ValueError,
            "eager",
        ),
        (
            lambda: Add(a="posit8", b="posit8", o="posit8", rounding="sr3", build=Build(stochastic="eager")),
            ValueError,
            "no effect",
        ),
        (
            lambda: mac(rounding="sr3", build=Build(stochastic="soon")),
            ValueError,
            "eager",
        ),
        (lambda: mac(rounding="sr3", build=Build(stochastic=1)), TypeError, "stochastic"),
        (lambda: mac(build=Build(dsp="yes")), TypeError, "dsp"),
        (lambda: Mul(a="fp16", b="fp16", o="fp16", build=Build(goal="size")), ValueError, "goal"),
        (lambda: Mul(a="fp16", b="fp16", o="fp16", build=Build(goal=None)), TypeError, "goal"),
        (lambda: Mul(a="e5m2", b="e5m2", o="e5m2", build=Build(goal="speed")), ValueError, "no effect"),
        (lambda: Mul(a="e6m5", b="e6m5", o="e6m5", build=Build(goal="speed")), ValueError, "no effect"),
        (lambda: Mul(a="fp16", b="fp16", o="fp16", build=Build(goal="speed", dsp=True)), ValueError, "no effect"),
        (lambda: Mul(a="fp16", b="fp16", o="posit8", build=Build(goal="speed")), ValueError, "no effect"),
        (lambda: build("compare", "fp16", goal="speed"), ValueError, "no effect"),
        (
            lambda: build("mul", "e5m2", stochastic="lazy"),
            ValueError,
            "no effect",
        ),
        (lambda: Streamed("mul"), TypeError, "Streamed"),
        (
            lambda: build("divide", "e5m2"),
            ValueError,
            "divide",
        ),
        (lambda: build("mul", "e5m2", acc="e6m5"), ValueError, "no --acc"),
        (
            lambda: build("mac", "e5m2", product="e5m2.up"),
            ValueError,
            "up",
        ),
    ],
)
def test_units_reject_bad_parameters(make, error, keyword):
    with pytest.raises(error, match=re.escape(keyword)):
        make()


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_descriptions_reject_missing_and_wrong_parts(unit):
    """No part that a text must have is None, and no format or rounding is a text."""
    cls = UNITS[unit]
    texts = [BLOCK] if "a" in cls.BLOCKS else ["e5m2", "fxp4.4", "bf16x2"]
    spec = cls.filled(a=next(fmt for fmt in (cls.read_part("a", text) for text in texts) if cls.takes(fmt, None)))
    needed = {part for optional, parts in spec.form.groups if not optional for part in parts}
    names = sorted(needed & spec.__dataclass_fields__.keys())
    assert names
    for name in names:
        with pytest.raises(TypeError, match=f"{name} of {unit} is missing"):
            replace(spec, **{name: None})
    formats = [name for name in (*spec.operands, "o") if name in spec.__dataclass_fields__]
    for name in formats:
        with pytest.raises(TypeError, match=f"{name} of {unit} must be"):
            replace(spec, **{name: "e5m2"})
    with pytest.raises(TypeError, match=f"rounding of {unit} must be a Rounding, not str"):
        replace(spec, rounding="rn")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Mul(a="e5m2", b="e5m2"), "mul e5m2*e5m2.rn"),
        (lambda: Fma(a="e5m2", b="e5m2", c="e6m5"), "fma e5m2*e5m2+e6m5.rn"),
        (lambda: Dot(k=4, a="e5m2", b="e5m2", c="fp32"), "dot4 e5m2*e5m2+fp32.rn"),
        (lambda: Mac(a="e5m2", b="e5m2", acc="e6m5", product="e5m2"), "mac e5m2*e5m2=e5m2.rn+e6m5.rn"),
    ],
)
def test_units_have_the_defaults_of_texts(make, text):
    unit = make()
    assert str(unit.spec) == text
    assert unit.spec == UnitSpec.parse(text)


def quire(**changes):
    return Quire(**{"a": "posit8", "b": "posit8", "o": "posit8", **changes})


def dot(**changes):
    return Dot(**{"k": 3, "a": "posit8", "b": "posit8", "o": "posit8", **changes})


def accumulate(**changes):
    return Accumulate(**{"a": "posit8", "acc": "posit16", **changes})


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: binary(a="posit8e5"), ValueError, "es 5"),
        (lambda: binary(b="fxp4.-4"), ValueError, "0 bits"),
        (
            lambda: binary(a="int8", b="int8", o="int15", rounding="exact"),
            ValueError,
            "result of mul",
        ),
        (
            lambda: Convert(a="posit8", o="fxp32.32", rounding="exact"),
            ValueError,
            "no NaN",
        ),
        (lambda: quire(carry=0), ValueError, "carry"),
        (lambda: quire(carry=65), ValueError, "carry"),
        (lambda: quire(carry="3"), TypeError, "carry"),
        (lambda: quire(o="posit2"), ValueError, "width 2 "),
        (lambda: quire(rounding="up"), ValueError, "up"),
        (
            lambda: quire(o="posit64", rounding="exact"),
            ValueError,
            "exact",
        ),
        (lambda: quire(saturate="yes"), ValueError, "unknown saturate"),
        (lambda: quire(build=Build(pipeline=65)), ValueError, "pipeline 65"),
        (lambda: dot(k=0), ValueError, "k 0"),
        (lambda: dot(k=257), ValueError, "k 257"),
        (lambda: dot(k=2.0), TypeError, "k"),
        (
            lambda: dot(order="best"),
            ValueError,
            "best",
        ),
        (
            lambda: dot(rounding="exact"),
            ValueError,
            "products",
        ),
        (lambda: dot(c="banana"), ValueError, "unknown format 'banana'"),
        (lambda: dot(saturate=0), TypeError, "saturate"),
        (
            lambda: accumulate(o="posit8"),
            ValueError,
            "accumulator exact",
        ),
        (
            lambda: accumulate(carry=7),
            ValueError,
            "no carry",
        ),
        (
            lambda: accumulate(acc="exact", carry=-1),
            ValueError,
            "carry",
        ),
        (lambda: accumulate(acc="exakt"), ValueError, "unknown format 'exakt'"),
        (
            lambda: accumulate(rounding="exact"),
            ValueError,
            "sum",
        ),
        (
            lambda: mac(o="e5m2"),
            ValueError,
            "accumulator exact",
        ),
        (
            lambda: mac(acc="exact", carry=99),
            ValueError,
            "carry",
        ),
        (
            lambda: mac(acc="exact", rounding="exact"),
            ValueError,
            "exact",
        ),
        (lambda: build("dot", "posit8", carry=3), ValueError, "no --carry"),
        (lambda: build("quire", "posit8", acc="posit16"), ValueError, "no --acc"),
        (lambda: build("mul", "posit8", k=3), ValueError, "no --k"),
        (
            lambda: build("mac", "posit8", carry=3),
            ValueError,
            "no carry",
        ),
        (
            lambda: build("accumulate", "int8", to="int16"),
            ValueError,
            "accumulator in int32",
        ),
    ],
)
def test_sum_units_reject_bad_parameters(make, error, keyword):
    with pytest.raises(error, match=re.escape(keyword)):
        make()


def test_units_accept_exact_if_result_holds():
    assert Add(a="e2m1fn", b="e2m1fn", o="e4m3", rounding="exact").latency == 0
    assert Mul(a="e5m2", b="e5m2", o="e7m5", rounding="exact").latency == 0
    assert Convert(a="e5m2", o="fp16", rounding="exact").latency == 0
    assert Fma(a="e2m1fn", b="e2m1fn", c="e2m1fn", o="fp32", rounding="exact").latency == 0
    assert Mul(a="int8", b="uint8", o="int17", rounding="exact").latency == 0
    assert Mul(a="posit8", b="posit8", o="posit32", rounding="exact").latency == 0
    assert Convert(a="posit8", o="posit16", rounding="exact").latency == 0
    assert Convert(a="posit8", o="e8m4", rounding="exact").latency == 0
    assert Convert(a="fxp4.4", o="posit16", rounding="exact").latency == 0
    assert Mac(a="int8", b="int8", acc="int64", product="int16", product_rounding="exact").latency == 1
    assert Dot(k=4, a="int8", b="int8", o="int18", rounding="exact").latency == 0


def test_unit_is_printed_as_its_text_and_build():
    assert repr(mac(build=Build(pipeline=2))) == "<Mac mac e5m2*e5m2+e6m5.rn --pipeline 2>"
