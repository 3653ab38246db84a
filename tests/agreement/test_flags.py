"""Exception flags: RTL, golden model and exact results agree."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from halfulp import golden, unit
from halfulp.golden import exact
from halfulp.hdl.formats import Float, Rounding, parse
from halfulp.hdl.specs import UNITS, Build, UnitSpec
from halfulp.sim.bench import run
from halfulp.sim.compare import compare
from halfulp.sim.model import CompiledModel
from halfulp.sim.reference import reference
from halfulp.units import Add, Mul
from halfulp.units.catalogue import component
from tests.every_unit import MODES, exact_mismatches, rtl_mismatches
from tests.settings import EXHAUSTIVE

NV, DZ, OF, UF, NX = 16, 8, 4, 2, 1

TEXTS = (
    "mul {0}*{0}",
    "mul {0}*{0}=e3m2-ftz",
    "mul {0}*{0}=e2m1fn",
    "add {0}+{0}",
    "add {0}+{0}=e2m3fnuz",
    "fma {0}*{0}+{0}=e3m2-fn",
    "fma {0}*{0}+{0}=e4m3",
    "convert {0}>e2m1fnuz",
    "convert {0}>fxp3.1",
    "convert {0}>ufxp2.0-wrap",
    "div {0}/{0}",
    "div {0}/{0}=fxp3.2",
    "sqrt {0}",
    "reciprocal {0}",
    "rsqrt {0}",
    "compare {0},{0}=e2m1",
    "rint {0}",
    "rint {0}>e2m1fn",
    "rint {0}>fxp2.1",
    "logb {0}",
    "logb {0}>fxp3.0",
    "mac {0}*{0}+{0}",
    "mac {0}*{0}={0}.ru+e3m2",
    "accumulate {0}+e2m1",
    "dot2 {0}*{0}+{0}",
    "dot3 {0}*{0}=fxp3.2",
    "dot2 {0}*{0}+{0} order=sequential",
    "sparsedot2 {0}*{0}+{0} sparsity=1:2",
    "sparsemac {0}*{0}+{0} sparsity=1:2 step=2",
    "dotmac2 {0}*{0}+{0}",
)
"""Units whose operands have one format, because they share the inputs of a test."""

FLOATS = ("dot2 {0}*{0}+{0} order=aligned3.trunc", "dot2 {0}*{0}=e2m1fn order=aligned2.floor")
"""Units of floats only."""

FORMATS = ("e3m2", "e2m3", "e3m2-ftz", "e3m1fnuz", "e2m2-fn", "fxp2.3")


def with_flags(text, fmt, rounding, flags):
    return replace(UnitSpec.parse(text.format(fmt)), rounding=Rounding.parse(rounding), flags=flags)


def check(specs, most_bits, count, exact_count):
    for spec in specs:
        checks, failed = exact_mismatches(spec, most_bits=0, count=exact_count)
        assert checks
        assert not failed
    for stateful in (False, True):
        same = [spec for spec in specs if component(spec).stateful == stateful]
        if same:
            checks, failed = rtl_mismatches(dict(zip(same, same, strict=True)), most_bits=most_bits, count=count)
            assert checks
            assert not failed


def test_flags_of_golden_match_exact_and_rtl():
    modes = ("rn", "ru", "rd", "sr3")
    chosen = [TEXTS[place] for place in (0, 5, 8, 10)]
    check([with_flags(text, "e2m2", mode, "after") for text, mode in zip(chosen, modes, strict=True)], 15, 1 << 12, 64)


TININESS = ("after", "before")


def cases():
    """Return formats, roundings and tininess: the port in all formats, each fixed mode and tininess in one format.

    HALFULP_EXHAUSTIVE=1 takes all combinations, in an hour and a half.
    """
    if EXHAUSTIVE:
        return list(itertools.product(FORMATS, (*MODES, "port_ro_sr2"), TININESS))
    fixed = itertools.product(MODES, TININESS)
    return [
        *itertools.product(FORMATS, ["port_ro_sr2"], TININESS),
        *((FORMATS[place % len(FORMATS)], *case) for place, case in enumerate(fixed)),
    ]


@pytest.mark.slow
@pytest.mark.sampled(25, 25)
@pytest.mark.parametrize(("fmt", "rounding", "flags"), cases())
def test_flags_match_in_all_formats_and_modes(fmt, rounding, flags):
    texts = [text for text in TEXTS if "sqrt" not in text or fmt != "fxp2.3"]
    texts += FLOATS if isinstance(parse(fmt), Float) else ()
    check([with_flags(text, fmt, rounding, flags) for text in texts], 14, 1 << 14, 300)


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize(
    "text",
    [
        "fma fp16*fp16+fp16.port flags",
        "mul bf16*bf16.rn flags=before",
        "div fp16/fp16.rz flags",
        "mac e5m2*e5m2+e6m5.rn flags",
        "mac e5m2*e5m2=e5m2.rz+fp16.ru flags=before",
        "accumulate e5m2+e6m5.sr4@lfsr16 flags interleave=2",
        "dot4 e4m3*e4m3+fp16.port flags",
        "dot4 e4m3*e4m3+fp16.rn flags order=sequential",
        "rint fp16.port flags",
        "logb fp16.rn flags",
    ],
)
def test_bench_tests_flags(text):
    assert run(unit(text).component()).failed == 0


@pytest.mark.slow
@pytest.mark.sampled(8, 8)
@pytest.mark.parametrize("build", [{"goal": "speed"}, {"dsp": True}, {"pipeline": 3}], ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "fma e3m2*e3m2+e3m2.rn flags",
        "mul e5m7*e5m8.ru flags",
        "add e4m3+e3m2.ra flags",
        "mac e3m2*e3m2+e4m3.rn flags",
        "mac e3m2*e3m2+e4m3.sr7@lfsr8 flags",
        "dot3 e3m2*e3m2+e4m3.rn flags",
    ],
)
def test_structures_have_the_same_flags(text, build):
    if "dsp" in build and "add" in text:
        pytest.skip("additions use no DSP blocks")
    assert run(unit(text).component(Build(**build))).failed == 0


CASES = {
    # One, the largest and the smallest numbers of fp16.
    "exact": ("mul", 0x3C00, 0x3C00, 0x3C00, 0),
    "inexact": ("div", 0x3C00, 0x4200, 0x3555, NX),
    "overflow": ("mul", 0x7BFF, 0x4000, 0x7C00, OF | NX),
    "infinity": ("mul", 0x7C00, 0x4000, 0x7C00, 0),
    "subnormal": ("mul", 0x0400, 0x3800, 0x0200, 0),
    "underflow": ("mul", 0x0001, 0x3800, 0x0000, UF | NX),
    # The product rounds to the smallest normal number, but not with an unbounded exponent, which has one more bit.
    "underflow to the smallest normal number": ("mul", 0x0400, 0x3BFF, 0x0400, UF | NX),
    "zero times infinity": ("mul", 0x0000, 0x7C00, 0x7E00, NV),
    "quiet NaN": ("mul", 0x7E01, 0x7C00, 0x7E00, 0),
    "signalling NaN": ("mul", 0x7C01, 0x3C00, 0x7E00, NV),
    "division by zero": ("div", 0x3C00, 0x8000, 0xFC00, DZ),
    "zero by zero": ("div", 0x0000, 0x8000, 0x7E00, NV),
    "infinity by zero": ("div", 0x7C00, 0x0000, 0x7C00, 0),
    "difference of infinities": ("add", 0x7C00, 0xFC00, 0x7E00, NV),
}


@pytest.mark.parametrize("case", CASES)
def test_flags_of_known_cases(case):
    name, x, y, code, flags = CASES[case]
    found = getattr(golden, name)(torch.tensor(x), torch.tensor(y), a="fp16", b="fp16", flags=True)
    assert (int(found.o), int(found.flags)) == (code, flags)
    fmt = parse("fp16")
    assert getattr(exact, name)(x, y, a=fmt, b=fmt, o=fmt, flags="after") == (code, flags)


def test_tininess_before_and_after_rounding_differ():
    """1449 * 1447 is less than 2^21 by 449, and rounds to 2^21 with 11 bits, that is in units of 1024."""
    x, y = torch.tensor(0x21A9), torch.tensor(0x1DA7)
    found = {
        tininess: int(golden.mul(x, y, a="fp16", b="fp16", flags=tininess).flags) for tininess in ("after", "before")
    }
    assert found == {"after": NX, "before": UF | NX}


def test_invalid_product_of_fma_stays_invalid_with_a_quiet_nan():
    inf, zero, nan = (torch.tensor(code) for code in (0x7C00, 0, 0x7E00))
    assert int(golden.fma(inf, zero, nan, a="fp16", b="fp16", c="fp16", flags=True).flags) == NV


STEPS = {
    # Flags of a step with a rounded product are those of the product and of the sum.
    "exact": ("mac fp16*fp16+fp16.rn flags", (0x3C00, 0x3C00, 0x3C00), 0x4000, 0),
    "inexact": ("mac fp16*fp16+fp16.rn flags", (0x3C00, 0x3C00, 0x1000), 0x3C00, NX),
    "inexact product": ("mac fp16*fp16=fp16.rn+fp16.rn flags", (0x3C01, 0x3C01, 0xBC02), 0, NX),
    "exact product": ("mac fp16*fp16+fp16.rn flags", (0x3C01, 0x3C01, 0xBC02), 0x0010, 0),
    "signalling start value": ("accumulate fp16+fp16.rn flags", (0x3C00, 0x7C01), 0x7E00, NV),
    "overflow": ("accumulate fp16+fp16.rn flags", (0x7BFF, 0x7BFF), 0x7C00, OF | NX),
    "difference of infinities": ("accumulate fp16+fp16.rn flags", (0x7C00, 0xFC00), 0x7E00, NV),
    "integer": ("rint fp16.rn flags", (0x4200,), 0x4200, 0),
    "half": ("rint fp16.rn flags", (0x3800,), 0, NX),
    "beyond an integer": ("rint fp16>uint1.rn flags", (0x4100,), 1, NV),
    "exponent of zero": ("logb fp16.rn flags", (0x8000,), 0xFC00, DZ),
    "exponent of zero as an integer": ("logb fp16>int8.rn flags", (0x8000,), 0x80, NV),
    "exponent of a signalling NaN": ("logb fp16.rn flags", (0x7D00,), 0x7E00, NV),
}


@pytest.mark.parametrize("case", STEPS)
def test_flags_of_known_steps(case):
    text, codes, code, flags = STEPS[case]
    spec = UnitSpec.parse(text)
    name = spec.form.unit
    found = getattr(golden, name)(*map(torch.tensor, codes), **spec.parameters)
    assert (int(found.o), int(found.flags)) == (code, flags)
    assert getattr(exact, name)(*codes, **spec.parameters) == (code, flags)


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "text",
    [
        "dot2 fp16*fp16+fp16.rn flags",
        "dot2 fp16*fp16+fp16.rn order=sequential flags",
        "dot2 fp16*fp16+fp16.rn order=aligned11.trunc flags",
        "sparsemac fp16*fp16+fp16.rn flags",
        "accumulate fp16+fp16.rn flags",
    ],
)
def test_signalling_start_value_of_a_sum_is_invalid_in_rtl(text):
    made = unit(text).component()
    with CompiledModel.of_unit(made) as model:
        codes = {name: np.array([0x7C01 if name == "c" else name == "load"], np.uint64) for name in made.inputs}
        found = model.run(codes, 1)
    assert (int(found["o"][0]), int(found["flags"][0])) == (0x7E00, NV)


def test_infinities_of_a_dot_product_are_invalid_in_any_order():
    inf, minus_inf, nan, one = 0x7C00, 0xFC00, 0x7E00, 0x3C00
    for terms, flags in (((inf, one, minus_inf), NV), ((inf, nan, minus_inf), 0), ((nan, inf, minus_inf), 0)):
        x, y = torch.tensor(terms), torch.full((3,), one)
        assert tuple(map(int, golden.dot(x, y, a="fp16", b="fp16", flags=True))) == (nan, flags)
        given = {"a": parse("fp16"), "b": parse("fp16"), "o": parse("fp16"), "flags": "after"}
        assert exact.dot(terms, [one] * 3, **given) == (nan, flags)


def test_conversions_beyond_an_integer_are_invalid():
    codes = torch.tensor([0x5BF8, 0x5C00, 0x3800, 0x7C00, 0x7E00, 0x3C00])
    found = golden.convert(codes, a="fp16", o="uint8", flags=True)
    assert found.o.tolist() == [255, 255, 0, 255, 0, 1]
    assert found.flags.tolist() == [0, NV, NX, NV, NV, 0]


def test_wrong_flags_of_a_step_are_reported():
    component = unit("accumulate e3m2+e3m2.rn flags").component()
    codes = {name: np.array(column, np.uint64) for name, column in {"a": [1, 1], "c": [0, 0], "load": [0, 0]}.items()}
    codes["clear"] = np.array([1, 0], np.uint64)
    want = reference(component, codes, chained=True)
    got = want | {"flags": want["flags"] ^ np.array([0, OF], np.uint64)}
    failed, (failure,) = compare(component, codes, want, got, 1, chained=True)
    assert failed == 1
    assert (failure.expected["flags"], failure.got["flags"]) == (0, OF)
    assert "wrong golden model" not in failure.text


def test_flags_are_a_word_of_the_text():
    spec = UnitSpec.parse("mul fp16*fp16.rn flags")
    assert (spec.flags, spec.text) == ("after", "mul fp16*fp16.rn flags")
    assert UnitSpec.parse("mul fp16*fp16.rn flags=before").text == "mul fp16*fp16.rn flags=before"
    assert Mul(a="fp16", b="fp16", o="fp16", flags=True).spec == spec
    assert "flags" not in Mul(a="fp16", b="fp16", o="fp16").outputs
    codes = {"a": np.array([0x7C00], np.uint64), "b": np.array([0], np.uint64)}
    assert reference(unit(spec).component(), codes)["flags"].tolist() == [NV]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("mul posit8*posit8.rn flags", "posit8"),
        ("add takum8+fp16=fp16.rn flags", "takum8"),
        ("convert fp16>e8m0fnu.rn flags", "e8m0fnu"),
        ("quire fp16*fp16.rn flags", "do not round"),
        ("mac fp16*fp16+exact=fp16.rn flags", "exact"),
        ("mac fp16*fp16=posit16.rn+fp16.rn flags", "posit16"),
        ("partmac bf16x2*bf16x2+fp32.rn flags", "unevaluated"),
        ("split fp32>bf16x2.rn flags", "unevaluated"),
        ("join bf16x2>fp32.rn flags", "unevaluated"),
        ("mac bf16x2*bf16x2+fp32.rn flags", "bf16x2"),
        ("blockquantize fp32>mxfp4.rn flags", "shared scale"),
        ("blockdequantize mxfp4>fp16.rn flags", "shared scale"),
        ("blockdot4 mxfp4*mxfp4=fp32.rn flags", "shared scale"),
        ("blockmac mxfp4*mxfp4+fp32.rn flags", "shared scale"),
        ("sru fxp4.4>fxp2.2.sr2 flags", "convert"),
        ("pwl tanh(fxp2.2) flags", "approximate"),
        ("classify fp16 flags", "classes"),
        ("dot2 fp16*fp16+posit16.rn flags", "posit16"),
        ("mul fp16*fp16.rn flags=after-rounding", "flags"),
        ("mul fp16*fp16.rn flags=yes", "flags"),
    ],
)
def test_flags_are_refused_where_there_are_none(text, word):
    with pytest.raises(ValueError, match=word):
        unit(text)


def test_eager_rounding_refuses_flags():
    with pytest.raises(ValueError, match="lazy"):
        Add(a="e5m2", b="e5m2", o="e5m2", rounding="sr4", flags=True, build=Build(stochastic="eager"))


def test_each_unit_has_flags_or_refuses_them_with_a_reason():
    for name, spec in UNITS.items():
        refused = spec.refusal_of_flags()
        assert refused.startswith(f"{name} has no exception flags: ")
        assert spec.FLAGS or spec.NO_FLAGS != UnitSpec.NO_FLAGS, refused


def test_units_without_flags_have_no_such_keyword():
    assert {name for name, spec in UNITS.items() if spec.FLAGS} >= {"mul", "add", "fma", "convert", "div", "compare"}
    with pytest.raises(TypeError, match="flags"):
        golden.sru(torch.zeros(2), a="fxp4.4", o="fxp2.2", flags=True)


def test_products_of_matrices_refuse_flags():
    x = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="matrices"):
        golden.gemm(x, x, "fp16*fp16+fp16.rn flags")
