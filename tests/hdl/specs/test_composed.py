"""Descriptions of composed units: texts, steps and refusals."""

import re

import pytest

from halfulp.hdl.formats import parse
from halfulp.hdl.specs import SoftmaxSpec, UnitSpec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("softmax bf16", "softmax bf16.rn"),
        ("softmax bf16>bf16.rn elementwise=bf16.rn reductions=bf16 length=64", "softmax bf16.rn"),
        ("softmax e4m3fn>bf16.rz functions=fp16.rn.sat", "softmax e4m3fn>bf16.rz functions=fp16.rn.sat"),
        ("softmax fxp4.12 pieces=16 argument=fxp5.8", "softmax fxp4.12.rn argument=fxp5.8 pieces=16"),
        ("rmsnorm e4m3fn * bf16 > bf16 length=8", "rmsnorm e4m3fn*bf16>bf16.rn length=8"),
        (
            "layernorm bf16*bf16+fp16 reductions=fp32 eps=1e-6",
            "layernorm bf16*bf16+fp16.rn reductions=fp32.rn eps=1e-06",
        ),
        ("layernorm posit16+posit8", "layernorm posit16+posit8.rn"),
    ],
)
def test_text_of_a_composed_unit(text, canonical):
    spec = UnitSpec.parse(text)
    assert str(spec) == canonical
    assert UnitSpec.parse(canonical) == spec
    assert hash(UnitSpec.parse(canonical)) == hash(spec)


def test_fields_may_be_texts():
    spec = SoftmaxSpec.of(a="bf16", o="fp16", rounding="rz", elementwise="fp32.rn", functions="fp16", argument=None)
    assert spec == UnitSpec.parse("softmax bf16>fp16.rz elementwise=fp32 functions=fp16")


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("softmax bf16", "m = max(a); d = round(a - m); e = round(exp(d)); s = sum(e); q = round(div(e, s))"),
        (
            "rmsnorm bf16*e4m3fn",
            "q = round(a * a); s = sum(q); v = round(div(s, n)); w = round(v + eps); r = round(rsqrt(w)); "
            "y = round(a * r); z = round(y * gain)",
        ),
        (
            "layernorm bf16+bf16",
            "t = sum(a); m = round(div(t, n)); d = round(a - m); q = round(d * d); s = sum(q); v = round(div(s, n)); "
            "w = round(v + eps); r = round(rsqrt(w)); y = round(d * r); b = round(y + bias)",
        ),
        # A conversion stands only where a format does not hold the numbers of another one.
        (
            "softmax bf16>e4m3 elementwise=fp32 functions=fp16 reductions=bf16",
            "m = max(a); d = round(a - m); d_function = round(d); e = round(exp(d_function)); s = sum(e); "
            "q = round(div(e, s)); q_result = round(q)",
        ),
        ("softmax fp32 functions=bf16 elementwise=e5m2 reductions=fp32", None),
    ],
)
def test_formula_has_the_steps_of_the_unit(text, formula):
    found = str(UnitSpec.parse(text).formula)
    if formula is None:
        assert "a_element = round(a)" in found
        assert "s_element = round(s)" in found
    else:
        assert found == formula


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("softmax fp32", "the exponential of softmax has at most 16 bits, and fp32 has 32; add functions=bf16"),
        ("softmax bf16.sr8", "softmax rounds in several steps without random words; choose a mode, not sr8"),
        ("softmax bf16 elementwise=bf16.sr8", "softmax rounds in several steps without random words"),
        ("rmsnorm bf16.exact", "rmsnorm rounds in several steps without random words; choose a mode, not exact"),
        ("softmax bf16.port", "the rounding port is not possible for softmax; choose one mode"),
        ("softmax bf16@lfsr8", "softmax takes no random words; omit the source lfsr8"),
        ("softmax bf16 flags", "softmax has no exception flags: it rounds several times; omit flags"),
        ("softmax bf16 length=0", "length 0 of a softmax is out of range; expected 1 to 65536"),
        ("softmax bf16 pieces=4", "line segments of softmax need pieces and argument"),
        ("softmax bf16 elementwise=foo", "unknown format 'foo'"),
        ("softmax bf16 functions=bf16x2", "steps of softmax have no format bf16x2"),
        ("softmax bf16x2", "a of softmax must not be the compound format bf16x2"),
        ("softmax ufxp4.4", "steps of softmax have negative numbers, and ufxp4.4 has none"),
        ("rmsnorm e4m3fn", "eps=1e-05 becomes zero in e4m3fn; choose a larger one, or another elementwise="),
        ("rmsnorm bf16 eps=-1", "eps of rmsnorm must be a number of at least 0, not -1.0"),
        ("layernorm bf16 eps=nan", "eps of layernorm must be a number of at least 0, not nan"),
        ("rmsnorm bf16+bf16", "expected"),
    ],
)
def test_composed_unit_refuses(text, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        UnitSpec.parse(text)


def test_composed_unit_refuses_values_of_other_types():
    with pytest.raises(TypeError, match=r"^elementwise of softmax must be a StepCast, not int$"):
        SoftmaxSpec.of(a="bf16", elementwise=3)
    with pytest.raises(TypeError, match="a of softmax is missing"):
        SoftmaxSpec(a=None)
    assert SoftmaxSpec(a=parse("bf16")).operands == {"a": parse("bf16")}
