"""Compound formats: parts, products by parts, and the units that split, join and multiply them."""

import random
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from halfulp import golden
from halfulp.golden import exact
from halfulp.golden.nn import Policy, convert
from halfulp.golden.nn.product import product
from halfulp.golden.raw import int64
from halfulp.hdl.formats import BF16, FP32, Compound, Posit, Rounding, parse
from halfulp.hdl.formats.rounding import MODES
from halfulp.hdl.specs import Build, JoinSpec, MacSpec, PartMacSpec, SplitSpec, Tiling, UnitSpec
from halfulp.sim.fields import Grid
from halfulp.sim.formal.claims import claims
from halfulp.sim.ports import Ports
from halfulp.units.catalogue import component
from halfulp.units.systolic import Grid as Array
from tests.every_unit import exact_mismatches, rounded, rtl_mismatches
from tests.golden_against_exact import aimed

ROUNDINGS = [*map(Rounding, MODES), Rounding("sr", 3)]

SUMS = [
    "bf16x2*bf16x2+fp32.rn",
    "bf16x3*bf16x3+fp32.rz",
    "bf16*bf16x2+bf16.rn",
    "e5m2x2*e4m3x3=fp16.rz+fp16.ru.sat",
    "e4m3fnx3*e4m3fnx2+exact=fp32.rn",
    "fp16x2*fxp4.4+posit16.rn",
]


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("text", ["bf16x2", "bf16x3", "e4m3fnx5", "fp16-ftzx2", "e3m4b9x8", "fp32x2"])
def test_compound_text_round_trips(text):
    fmt = parse(text)
    assert str(fmt) == text
    assert fmt == Compound(fmt.part, fmt.parts)
    assert fmt.width == fmt.parts * fmt.part.width == sum(fmt.fields().values())


@pytest.mark.parametrize(
    ("make", "kind", "word"),
    [
        (lambda: parse("bf16x1"), ValueError, "parts"),
        (lambda: parse("fp32x3"), ValueError, "96 bits"),
        (lambda: parse("posit8x2"), ValueError, "unknown"),
        (lambda: Compound(Posit(8), 2), TypeError, "Float"),
        (lambda: UnitSpec.parse("div bf16x2/bf16"), ValueError, "compound"),
        (lambda: UnitSpec.parse("compare bf16,bf16=bf16x2"), ValueError, "split"),
        (lambda: UnitSpec.parse("bf16*bf16=bf16x2.rn+bf16x2"), ValueError, "product of mac"),
        (lambda: UnitSpec.parse("bf16*bf16+bf16x2.port"), ValueError, "results in bf16x2"),
        (lambda: UnitSpec.parse("add bf16x2+bf16x2.rn flags"), ValueError, "bf16x2 has no exception flags"),
        (lambda: UnitSpec.parse("dot4 bf16*bf16+bf16x2"), ValueError, "o of dot"),
        (lambda: UnitSpec.parse("mul bf16*bf16=bf16x2.exact"), ValueError, "exact is not possible"),
        (lambda: component("mac bf16*bf16+bf16x2.sr8", Build(stochastic="eager")), ValueError, "stochastic"),
        (lambda: component("mac bf16*bf16+bf16x2", Build(goal="loop")), ValueError, "goal"),
        (lambda: component("add bf16x2+bf16x2", Build(goal="speed")), ValueError, "goal"),
        (lambda: UnitSpec.parse("split fp32>bf16"), ValueError, "compound"),
        (lambda: UnitSpec.parse("split int8>bf16x2"), ValueError, "float"),
        (lambda: UnitSpec.parse("join bf16>fp32"), ValueError, "compound"),
        (lambda: UnitSpec.parse("partmac bf16*bf16+fp32"), ValueError, "one part"),
        (lambda: UnitSpec.parse("split fp32>bf16x3.exact"), ValueError, "smallest"),
        (lambda: component("bf16x2*bf16x2+fp32"), ValueError, "partmac"),
        (lambda: Array(mac="bf16x2*bf16x2+fp32.rn", n=2, m=2), ValueError, "3 steps"),
        (lambda: golden.mac(*torch.zeros(3, 1, dtype=int), a="bf16x2", b="bf16", acc="fp32"), ValueError, "2 steps"),
        (lambda: golden.encode([1.0], "bf16x2", "exact"), ValueError, "exact"),
        (lambda: golden.join(torch.zeros(2, dtype=int), a="bf16x2", o="fp32", rounding="sr2"), ValueError, "random"),
    ],
)
def test_compound_misuse_is_refused(make, kind, word):
    with pytest.raises(kind, match=word):
        make()


def test_partmac_takes_one_step_for_all_operands():
    x, y, start = torch.arange(3 * 2000, dtype=torch.int64).view(3, -1) * 700_001 % (1 << 32)
    for step in range(3):
        one, each = (
            golden.partmac(x, y, given, start, a="bf16x2", b="bf16x2", acc="fp32")
            for given in (step, torch.full_like(x, step))
        )
        assert torch.equal(one, each)


def test_parts_match_repeated_casts_of_torch():
    """bfloat16 casts of torch round to nearest, and differences in float32 are exact."""
    words = torch.randint(-(1 << 31), 1 << 31, (1 << 14,), generator=torch.Generator().manual_seed(1))
    values = words.to(torch.int32).view(torch.float32)
    values = values[values.abs() < 3e38]
    for parts in (2, 3):
        rest, expected = values, 0
        for _ in range(parts):
            part = rest.bfloat16()
            expected = (expected << 16) | (part.view(torch.int16).to(torch.int64) & 0xFFFF)
            rest = rest - part.float()
        assert torch.equal(golden.encode(values, f"bf16x{parts}"), expected)


@pytest.mark.parametrize(
    ("a", "o"),
    [
        ("e5m2", "e2m1x2"),
        *(
            pytest.param(*formats, marks=pytest.mark.slow)
            for formats in (("fp32", "bf16x3"), ("e8m3", "fp16x2"), ("fp16", "e4m3fnuzx3"), ("e8m1", "e5m4-ftzx3"))
        ),
    ],
)
def test_split_matches_exact_remainders(a, o):
    source, fmt, rng = parse(a), parse(o), random.Random(0)
    ends = [
        fmt.part.largest,
        fmt.part.largest * Fraction(3, 2),
        fmt.part.smallest / 2,
        fmt.part.smallest * Fraction(5, 4),
    ]
    corners = [source.nan_code, source.infinity(False), source.infinity(True), 1, source.encode(Fraction(0)) | 1 << 7]
    codes = [rng.getrandbits(source.width) for _ in range(40)] + [source.encode(end, "rz") for end in ends] + corners
    for rounding in ROUNDINGS:
        words = [rng.getrandbits(rounding.bits) if rounding.bits else 0 for _ in codes]
        given = torch.tensor(words) if rounding.bits else None
        for saturate in (False, True):
            how = {"a": source, "o": fmt, "rounding": rounding, "saturate": saturate}
            found = golden.split(torch.tensor(codes), random=given, **how).tolist()
            for code, word, result in zip(codes, words, found, strict=True):
                assert int64(exact.split(code, random=word, **how)) == result, (rounding, saturate, hex(code))


@pytest.mark.parametrize("rounding", ["rz", "ru", "rd"])
def test_split_rounds_sum_in_the_named_direction(rounding):
    fmt, numbers = parse("e4m1x2"), [Fraction(step, 1 << 9) for step in range(-4000, 4000, 71)]
    for number in numbers:
        found = fmt.decode(fmt.encode(number, rounding))
        least = number if rounding == "ru" or (rounding == "rz" and number < 0) else found
        most = number if least is found else found
        assert least <= most
        assert abs(found - number) <= abs(number) / 8 + fmt.smallest


def test_encode_keeps_precision_of_parts():
    values = normal(4096)
    for text, bits in (("bf16x2", 17), ("tf32x2", 23), ("bf16x3", 100)):
        error = (golden.decode(golden.encode(values, text), text) - values).abs() / values.abs()
        assert error.max() <= 2.0**-bits, text


@pytest.mark.parametrize("text", ["bf16x2", "bf16x3", "e4m3x3"])
def test_join_of_split_is_decode(text):
    fmt = parse(text)
    codes = golden.split(normal(512).view(torch.int32).to(torch.int64) & 0xFFFFFFFF, a=FP32, o=fmt)
    joined = golden.join(codes, a=fmt, o=FP32)
    assert torch.equal(golden.decode(joined, FP32), golden.decode(codes, fmt))


def test_products_of_parts_are_in_ascending_significance():
    assert MacSpec.parse("bf16x2*bf16x2+fp32").pairs == ((1, 0), (0, 1), (0, 0))
    assert MacSpec.parse("bf16x3*bf16x3+fp32").pairs == ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
    assert MacSpec.parse("bf16x3*bf16+fp32").pairs == ((2, 0), (1, 0), (0, 0))
    assert MacSpec.parse("bf16*bf16+fp32").pairs == ((0, 0),)


@pytest.mark.sampled(2, 3)
@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        (SUMS[0], "torch"),
        (SUMS[0], "native"),
        *(pytest.param(text, kernel, marks=pytest.mark.slow) for text in SUMS for kernel in ("torch", "portable")),
    ],
)
def test_gemm_adds_products_of_parts_in_order(text, kernel, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", kernel)
    spec = MacSpec.parse(text)
    one = PartMacSpec(**vars(spec))
    a, b = golden.encode(normal(2, 3), spec.a), golden.encode(normal(3, 2, 1)[..., 0], spec.b)
    found = golden.gemm(a, b, text)
    for row in range(2):
        for column in range(2):
            terms = [
                spec.of_parts.a.decode(_part(spec.a, a[row, k], i))
                * spec.of_parts.b.decode(_part(spec.b, b[k, column], j))
                for k in range(3)
                for i, j in spec.pairs
            ]
            if spec.quire is not None:
                total = spec.o.encode(sum(terms), spec.rounding)
            else:
                total = 0
                for k in range(3):
                    for step in range(len(spec.pairs)):
                        x, y = a[row, k].item(), b[k, column].item()
                        total = exact.partmac(x, y, step, total, **one.parameters)
            assert total == found[row, column].item()


def _part(fmt, code, place):
    return fmt.codes_of(code.item())[place]


def test_partmac_sequence_computes_gemm():
    text = "bf16x2*bf16x2+fp32.rn"
    spec = PartMacSpec.parse(f"partmac {text}")
    a, b = golden.encode(normal(1, 20), spec.a), golden.encode(normal(20, 1), spec.b)
    x, y = (operand.flatten().repeat_interleave(3) for operand in (a, b))
    zero = torch.zeros_like(x)
    sums = golden.partmac_sequence(x, y, torch.arange(3).repeat(20), zero, zero, zero, **spec.parameters)
    assert sums[-1] == golden.gemm(a, b, text).item()


def test_gemm_takes_words_for_each_product_of_parts():
    a, b = normal(3, 4), normal(4, 5)
    text, source = "bf16x2*bf16x2+bf16.sr8", "@lfsr16"
    by_source = golden.gemm(a, b, text + source, seed=3)
    assert not torch.equal(by_source, golden.gemm(a, b, text + source, seed=4))
    given = torch.zeros(3, 5, 12, dtype=torch.int64)
    truncated = golden.gemm(a, b, text, random=given)
    assert not torch.equal(truncated, golden.gemm(a, b, text, random=given + 255))
    with pytest.raises(ValueError, match="broadcast"):
        golden.gemm(a, b, text, random=given[..., :4])
    tiled = golden.gemm(a, b, text + source, tiling=Tiling(n=3, m=5))
    assert torch.equal(tiled, golden.gemm(a, b, text + source))


@pytest.mark.slow
def test_gemm_error_shrinks_with_parts():
    a, b = normal(32, 64), normal(64, 32)
    reference = a.double() @ b.double()
    limits = {"bf16": -8, "bf16x2": -16, "bf16x3": -20}
    for text, limit in limits.items():
        found = golden.decode(golden.gemm(a, b, f"{text}*{text}+fp32.rn"), FP32)
        assert ((found - reference).norm() / reference.norm()).log2() < limit


def test_converted_layer_and_emulation_multiply_by_parts():
    text = "bf16x2*bf16x2+fp32.rn"
    x, layer = normal(5, 16).requires_grad_(), nn.Linear(16, 7, bias=False)
    spec = MacSpec.parse(text)
    expected = golden.decode(golden.gemm(x.detach(), layer.weight.detach().T, spec), FP32).float()
    assert torch.equal(convert(layer, text).model(x), expected)
    with golden.emulate(f"{text}, elementwise=bf16.rn"):
        found = layer(x)
        found.sum().backward()
    assert torch.equal(found, expected)
    ones = golden.encode(torch.ones(5, 7), spec.a)
    gradient = product(ones, golden.encode(layer.weight.detach(), spec.b), spec, key=0)
    assert torch.equal(x.grad, golden.decode(gradient, FP32).float())
    assert Policy.parse(str(Policy.parse(text))) == Policy.parse(text)


def test_convolution_multiplies_windows_by_parts():
    text = "bf16x3*bf16x2+fp32.rn"
    x, layer = normal(2, 3, 6, 6), nn.Conv2d(3, 4, 3, stride=2, bias=False)
    found = convert(layer, text).model(x)
    windows, kernels = nn.functional.unfold(x, 3, stride=2), layer.weight.detach().reshape(4, -1)
    for image, columns in zip(found, windows, strict=True):
        expected = golden.decode(golden.gemm(columns.T, kernels.T, text), FP32).T
        assert torch.equal(image.flatten(1), expected.float())


def test_claims_of_units_of_parts_hold_for_structures():
    kinds = {claim.kind for claim in claims("partmac e2m1x2*e2m1x2+e4m3.sr2")}
    assert {"pipelined", "stalls", "lazy is eager", "DSP is LUT"} <= kinds


RESULTS = {
    "add e2m1x2+e2m1x2": "e3m1-ftzx2",
    "mul e2m1x2*e2m1=e2m1fnuzx2": "e2m1x3",
    "fma e2m0x2*e2m0+e2m0x2": "e2m1fnx2",
    "convert e4m2>e3m2x2": "e2m1x3",
    "accumulate e2m1+e2m1x2": "e3m1-ftzx2",
    "mac e2m1*e2m1+e2m1x2": "e2m1x3",
    "partmac e2m0x2*e2m0x2+e2m0x2": "e2m1fnx2",
}
"""Units with a compound result, and another format for it."""


@pytest.mark.parametrize(
    ("text", "codes", "expected"),
    [
        # 1 + 2^-9 is 1 and a rest of 2^-9; 1 + 2^-8 is a tie, 1 is even; 1 + 3 * 2^-8 rounds up, the rest is negative.
        ("add bf16+bf16=bf16x2", (0x3F80, 0x3B00), 0x3F80_3B00),
        ("add bf16+bf16=bf16x2", (0x3F80, 0x3B80), 0x3F80_3B80),
        ("add bf16+bf16=bf16x2", (0x3F80, 0x3C40), 0x3F82_BB80),
        # A rest at any distance stays: 1 + 2^-126. The largest number plus less than half a last place is no overflow.
        ("add bf16+bf16=bf16x2", (0x3F80, 0x0080), 0x3F80_0080),
        ("add bf16+bf16=bf16x2", (0x7F7F, 0x7A80), 0x7F7F_7A80),
        # Half a last place more rounds to infinity, which has no rest; truncation keeps the rest.
        ("add bf16+bf16=bf16x2", (0x7F7F, 0x7B00), 0x7F80_0000),
        ("add bf16+bf16=bf16x2.rz", (0x7F7F, 0x7B00), 0x7F7F_7B00),
        ("add bf16+bf16=bf16x2.rn.sat", (0x7F7F, 0x7F7F), 0x7F7F_7F7F),
        # inf - inf; -0 + -0; 1 - 1, which is -0 under rd.
        ("add bf16+bf16=bf16x2", (0x7F80, 0xFF80), 0x7FC0_0000),
        ("add bf16+bf16=bf16x2", (0xFF80, 0x3F80), 0xFF80_0000),
        ("add bf16+bf16=bf16x2", (0x8000, 0x8000), 0x8000_0000),
        ("add bf16+bf16=bf16x2", (0x3F80, 0xBF80), 0x0000_0000),
        ("add bf16+bf16=bf16x2.rd", (0x3F80, 0xBF80), 0x8000_8000),
        # (1 + 2^-9)^2 = 1 + 2^-8 + 2^-18: above the tie, so 1 + 2^-7, and the rest -(2^-8 - 2^-18) has 10 bits.
        ("mul bf16x2*bf16x2", (0x3F80_3B00, 0x3F80_3B00), 0x3F81_BB80),
        # Three parts: 1 + 2^-9 + 2^-20.
        ("fma bf16*bf16+bf16x3", (0x3F80, 0x3580, 0x3F80_3B00_0000), 0x3F80_3B00_3580),
        # A subnormal rest: (1 + 2^-7) 2^-126 / 2 is 2^-127 + 2^-134, and 2^-134 is half the smallest number, a tie.
        ("mul bf16*bf16=bf16x2", (0x0081, 0x3F00), 0x0040_0000),
        ("mul bf16*bf16=bf16x2.ru", (0x0081, 0x3F00), 0x0040_0001),
        ("mac bf16*bf16+bf16x2", (0x3F80, 0x3B00, 0x3F80_0000), 0x3F80_3B00),
        ("convert fp32>bf16x2", (0x3F80_4000,), 0x3F80_3B00),
    ],
)
def test_compound_result_matches_hand_computed_parts(text, codes, expected):
    spec = UnitSpec.parse(text)
    found = getattr(golden, spec.form.unit)(*map(torch.tensor, codes), **spec.parameters)
    assert found.item() == expected, f"{found.item():#x}"
    assert getattr(exact, spec.form.unit)(*codes, **spec.parameters) == expected


def test_random_word_rounds_last_part_alone():
    """1 + 2^-9 + 2^-18 has the rest 2^-9 (1 + 2^-9), which is 1/4 of a last place of the second part above it."""
    x, y = torch.tensor(0x3F80_3B00), torch.tensor(0x3680)
    for word in range(4):
        found = golden.add(x, y, a="bf16x2", b="bf16", o="bf16x2", rounding="sr2", random=torch.tensor(word))
        assert found.item() == (0x3F80_3B01 if word == 3 else 0x3F80_3B00)


def _with_result(text, rounding, saturate, result):
    """Return a description with another result format, or accumulator."""
    spec = rounded(UnitSpec.parse(text), str(rounding), saturate)
    fields = {"acc": parse(result), "o": None} if "acc" in spec.__dataclass_fields__ else {"o": parse(result)}
    return replace(spec, **fields)


def test_unit_with_compound_result_takes_every_rounding():
    for place, rounding in enumerate(ROUNDINGS):
        text, result = list(RESULTS.items())[place % len(RESULTS)]
        checks, failed = exact_mismatches(_with_result(text, rounding, place % 2 == 1, result), most_bits=4, count=12)
        assert not failed
        assert checks


@pytest.mark.slow
@pytest.mark.sampled(28, 28)
@pytest.mark.parametrize("text", RESULTS)
def test_unit_with_compound_result_matches_exact_and_rtl(text):
    spec = UnitSpec.parse(text)
    some = [rounded(spec, str(mode), saturate) for mode in ROUNDINGS for saturate in (False, True)]
    other = [_with_result(text, mode, place % 2 == 0, RESULTS[text]) for place, mode in enumerate(ROUNDINGS)]
    for one in some + other:
        checks, failed = exact_mismatches(one, most_bits=12, count=400)
        assert not failed
        assert checks
    for group in (some, other):
        checks, failed = rtl_mismatches(dict(zip(group, group, strict=True)), most_bits=14, count=1 << 13)
        assert not failed
        assert checks


def parts_near_one(unit, count=100):
    """Yield codes whose parts are special, near one, or near the last place of the part before."""
    rng, codes = random.Random(0), {}
    for port in Ports.inputs_of(unit):
        if port.fmt is None:
            # Each vector starts its sum; load has priority over clear.
            codes[port.name] = [1 if port.name == "load" else rng.getrandbits(port.width) for _ in range(count)]
            continue
        part = port.fmt.part_format
        columns = [aimed(rng, part, count, -place * (part.precision + 1)) for place in range(port.fmt.parts)]
        rows = zip(*columns, strict=True)
        codes[port.name] = [port.fmt.code_of(row) if port.fmt.parts > 1 else row[0] for row in rows]
    yield {name: np.array(column, dtype=np.uint64) for name, column in codes.items()}


WIDE_RESULTS = ["add bf16x2+bf16x2", "mul bf16x2*bf16x3=bf16x2", "fma fp32*fp32+bf16x3", "convert fp64>fp32x2"]
WIDE_RESULTS += ["mac bf16*bf16=bf16.rn+bf16x2", "partmac bf16x2*bf16x2+bf16x2", "accumulate posit16+fp16x3"]
WIDE_RESULTS += ["mac fxp4.4*e4m3fn+e4m3fnuzx4", "convert fp32x2>bf16x3", "mac e5m2*e5m2+exact=bf16x2"]


@pytest.mark.parametrize(
    "text", [WIDE_RESULTS[0], *(pytest.param(t, marks=pytest.mark.slow) for t in WIDE_RESULTS[1:])]
)
def test_wide_compound_result_matches_exact(text):
    for rounding, saturate in (("rn", False), ("rd", True), ("ro", False), ("sr5", True)):
        spec = rounded(UnitSpec.parse(text), rounding, saturate)
        checks, failed = exact_mismatches(spec, choose=parts_near_one)
        assert not failed
        assert checks


@pytest.mark.slow
def test_rtl_of_wide_compound_result_matches_golden():
    some = [UnitSpec.parse(text) for text in ("add bf16x2+bf16x2.rn", "mac bf16*bf16+bf16x2.sr5")]
    for spec in some:
        checks, failed = rtl_mismatches({spec: spec}, choose=partial(parts_near_one, count=1 << 14))
        assert not failed
        assert checks


def test_bench_refuses_wide_compound_operands():
    with pytest.raises(ValueError, match="bf16x2 has 32 bits"):
        Grid.of(parse("bf16x2"))


TOYS = ("split e5m2>e2m1x6", "join e2m1x2>e3m2", "partmac e2m0x2*e2m0x2+e3m2")


@pytest.mark.parametrize("text", TOYS)
def test_golden_of_toy_unit_matches_exact(text):
    spec = UnitSpec.parse(text)
    for place, rounding in enumerate(ROUNDINGS):
        checks, failed = exact_mismatches(rounded(spec, str(rounding), place % 2 == 1), most_bits=4, count=16)
        assert not failed
        assert checks


@pytest.mark.slow
@pytest.mark.parametrize("texts", [TOYS[:2], TOYS[2:]], ids=["conversions", "partmac"])
def test_rtl_of_toy_unit_matches_golden(texts):
    modes = ("rn", "rz", "sr3")
    some = [rounded(UnitSpec.parse(text), mode, mode == "sr3") for text in texts for mode in modes]
    checks, failed = rtl_mismatches(dict(zip(some, some, strict=True)), most_bits=12, count=1 << 12)
    assert not failed
    assert checks


UNITS = ["split fp32>bf16x2", "split fp32>bf16x3", "split fp16>e2m1fnx3", "split fp16>e4m3fnuzx2"]
UNITS += ["split e5m4>e4m1-ftzx3", "split e8m3>fp16x2", "split e8m1>e5m4x3", "split e5m2-ftz>e3m2x2"]
UNITS += ["split fp64>fp32x2", "join bf16x2>fp32", "join bf16x3>fp32", "join e5m2x3>e4m3fn", "join e4m3fnx2>posit8"]
UNITS += ["join e2m1x2>fxp4.4", "join e5m2-ftzx2>fp16", "partmac bf16x2*bf16x2+fp32", "partmac bf16x3*bf16x3+fp32"]
UNITS += ["partmac e5m2x2*e4m3=fp16.rn+fp16", "partmac e5m2x2*e4m3x3+exact=fp32", "partmac e2m1*e2m1x3+e5m4"]
UNITS += ["partmac e2m1fnx2*e3m2fnx2+posit8"]


@pytest.mark.slow
@pytest.mark.sampled(14, 14)
@pytest.mark.parametrize("text", UNITS)
def test_unit_matches_golden_and_exact_in_all_modes(text):
    spec = UnitSpec.parse(text)
    every = [rounded(spec, str(mode), saturate) for mode in ROUNDINGS for saturate in (False, True)]
    for one in every:
        checks, failed = exact_mismatches(one, most_bits=8, count=400)
        assert not failed
        assert checks
    checks, failed = rtl_mismatches(dict(zip(every, every, strict=True)), most_bits=12, count=1 << 13)
    assert not failed
    assert checks


def test_default_formats_of_short_forms_are_bf16_and_fp32():
    texts = [str(spec.filled(fmt)) for spec, fmt in ((SplitSpec, FP32), (JoinSpec, BF16), (PartMacSpec, BF16))]
    assert texts == ["split fp32>bf16x2.rn", "join bf16x2>fp32.rn", "partmac bf16x2*bf16x2+fp32.rn"]
