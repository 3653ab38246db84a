"""Formulas of descriptions: results computed by hand for each of them, and the ports of their units."""

from fractions import Fraction

import numpy as np
import pytest

import halfulp
from halfulp.hdl.formats import FP16, RN
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import UNITS, UnitSpec
from halfulp.hdl.specs.formula import VALUES, Formula, Role, Sum, Term, term
from halfulp.sim.corner_sums import of_formula
from halfulp.sim.coverage.sums import evaluate
from halfulp.units.catalogue import CATALOGUE, component

MINUS_8, ONE, TWO, THREE, EIGHT = 0xC8, 0x3C, 0x40, 0x42, 0x48
"""Codes of e5m2."""

BLOCK = "block(e2m1fn,2,e8m0fnu,floor)"
"""Codes of its elements: 2 is 1, 5 is 3, 7 is 6; code 127 of a scale is 1."""

BY_HAND = [
    # 1.25 * 1.25 = 1.5625, below the tie 1.625.
    ("mul e5m2*e5m2", "o = round(a * b)", (0x3D, 0x3D), 0x3E),
    # 8 + 1 = 9 is a tie between 8 and 10; 8 - 1 = 7.
    ("add e5m2+e5m2", "o = round(a + (-1)^subtract * b)", (EIGHT, ONE, 0), EIGHT),
    ("add e5m2+e5m2", "o = round(a + (-1)^subtract * b)", (EIGHT, ONE, 1), 0x47),
    # 3 * 3 - 8 = 1; a rounded product is 8, and 8 - 8 = 0.
    ("fma e5m2*e5m2+e5m2", "o = round(a * b + c)", (THREE, THREE, MINUS_8), ONE),
    # 8 - -1 = 9, and -1 + 9 = 8; a rounded difference is 8. For t = 1.25 the sum is 10.25; a rounded product is 12.
    ("lerp e5m2,e5m2,e5m2", "d = b - a; o = round(a + t * d)", (0xBC, EIGHT, ONE), EIGHT),
    ("lerp e5m2,e5m2,e5m2", "d = b - a; o = round(a + t * d)", (0xBC, EIGHT, 0x3D), 0x49),
    # The difference of equal numbers is +0, and -0 + 1 * 0 = +0.
    ("lerp e5m2,e5m2,e5m2", "d = b - a; o = round(a + t * d)", (0x80, 0x80, ONE), 0),
    ("mac e5m2*e5m2+e5m2", "o = round(a * b + c)", (THREE, THREE, MINUS_8), ONE),
    ("mac e5m2*e5m2=e5m2+e5m2", "product = round(a * b); o = round(product + c)", (THREE, THREE, MINUS_8), 0),
    ("accumulate e5m2+e5m2", "o = round(a + c)", (ONE, 0x49), 0x4A),
    ("quire e5m2*e5m2", "o = round((-1)^subtract * a * b + c)", (THREE, THREE, EIGHT, 1), 0xBC),
    ("dot2 e5m2*e5m2", "o = round(0 + a0 * b0 + a1 * b1)", ([THREE, ONE], [THREE, MINUS_8]), ONE),
    ("dot1 e5m2*e5m2+e5m2", "o = round(a0 * b0 + c)", ([THREE], [THREE], MINUS_8), ONE),
    (
        "dot2 e5m2*e5m2 order=sequential",
        "sum0 = round(0 + a0 * b0); o = round(a1 * b1 + sum0)",
        ([THREE, ONE], [THREE, MINUS_8]),
        0,
    ),
    # The largest exponent is 1 + 1, so the last place is 1: 9 + 0.75 becomes 9, a tie; 7 - 0.75 becomes 7 - 1.
    (
        "dot2 e5m2*e5m2 order=aligned2.trunc",
        "o = round(0 + align(a0 * b0) + align(a1 * b1))",
        ([THREE, 0x3A], [THREE, ONE]),
        EIGHT,
    ),
    (
        "dot2 e5m2*e5m2 order=aligned2.floor",
        "o = round(0 + align(a0 * b0) + align(a1 * b1))",
        ([0x43, 0xBA], [TWO, ONE]),
        0x46,
    ),
    # Indices 2 and 3 of the numbers 1 to 4: 3 + 4 = 7.
    (
        "sparsedot2 e5m2*e5m2",
        "o = round(0 + a0[i0] * b0 + a1[i1] * b1)",
        ([ONE, TWO, THREE, 0x44], [ONE, ONE], [2, 3]),
        0x47,
    ),
    # 3 * 3 + 1 = 10; 9 alone would become 8.
    ("dotmac2 e5m2*e5m2+e5m2", "sum = a0 * b0 + a1 * b1; o = round(sum + c)", ([THREE, ONE], [THREE, 0], ONE), 0x49),
    (
        "sparsemac e5m2*e5m2+e5m2",
        "sum = a0[i0] * b0 + a1[i1] * b1; o = round(sum + c)",
        ([ONE, TWO, THREE, 0x44], [ONE, ONE], [2, 3], ONE),
        EIGHT,
    ),
    # (1 + 2^-9) * 2: the first step multiplies 2^-9, the last one 1.
    ("partmac bf16x2*bf16+fp32", "o = round(a[step] * b + c)", (0x3F803B00, 0x4000, 0, 0), 0x3B800000),
    ("partmac bf16x2*bf16+fp32", "o = round(a[step] * b + c)", (0x3F803B00, 0x4000, 1, 0), 0x40000000),
    ("join bf16x2>fp16", "o = round(a0 + a1)", (0x3F803B00,), 0x3C02),
    ("join bf16x3>fp16", "sum0 = round(a1 + a2); o = round(a0 + sum0)", (0x3F803B000000,), 0x3C02),
    ("split fp32>bf16x2", "o = round(a)", (0x3F804000,), 0x3F803B00),
    # 1.125 is a tie between 1 and 1.25.
    ("convert fp16>e5m2", "o = round(a)", (0x3C80,), ONE),
    ("div e5m2/e5m2", "o = round(div(a, b))", (ONE, THREE), 0x35),
    ("reciprocal e5m2", "o = round(reciprocal(a))", (THREE,), 0x35),
    ("sqrt e5m2", "o = round(sqrt(a))", (TWO,), 0x3E),
    ("rsqrt e5m2", "o = round(rsqrt(a))", (TWO,), 0x3A),
    # e = 2.718.
    ("function exp(e5m2)", "o = round(function(a))", (ONE,), 0x41),
    # 7 - 2.5 * 3 = -0.5.
    ("remainder e5m2,e5m2", "o = round(remainder(a, b))", (0x47, 0x41), 0xB8),
    # 1 + 2 = 3 in rs1 and rs2; no flags.
    (
        "fpu e5m2.rn",
        "o = fpu(rs1, rs2, rs3, op, src_fmt, dst_fmt, int_fmt, vectorial)",
        (ONE, TWO, 0, 4, 0, 0, 0, 0),
        (THREE, 0),
    ),
    ("logb e5m2", "o = round(logb(a))", (0x49,), THREE),
    ("scaleb e5m2,int8", "o = round(scaleb(a, b))", (THREE, 2), 0x4A),
    ("rint e5m2", "o = round(rint(a))", (0x41,), TWO),
    # 10 * 0.5 / 4 = 1.25 becomes 1; 1 + 5 = 6. -10 * 0.5 / 2 = -2.5 becomes -2, before the zero point of 5.
    (
        "requantize int8*fxp1.7,uint3>int8",
        "scaled = round(requantize(a, multiplier, shift)); o = round(scaled + zero)",
        (10, 64, 2, 5),
        6,
    ),
    (
        "requantize int8*fxp1.7,uint3>int8",
        "scaled = round(requantize(a, multiplier, shift)); o = round(scaled + zero)",
        (246, 64, 1, 5),
        3,
    ),
    # 1.25 becomes 2 as a multiple of 2, and 1 after the shift.
    (
        "requantize int8*fxp1.7=int8.ru,uint3>int8.rz",
        "scaled = round(requantize(a, multiplier, shift)); o = round(scaled + zero)",
        (5, 32, 1, 0),
        1,
    ),
    # In units of 2, a quarter of the largest exponent's power: 8 + 0 + 2.
    (
        "mma2 e5m2*e5m2+e5m2.rn order=aligned2 zero=-32",
        "o = mma(a0, a1, b0, b1, c)",
        ([ONE, THREE], [ONE, ONE], EIGHT),
        0x49,
    ),
    ("compare e5m2,e5m2", "less, equal, unordered, minimum, maximum = compare(a, b)", (ONE, TWO), (1, 0, 0, ONE, TWO)),
    ("classify e5m2", "o = classify(a)", (0xBC,), 2),
    ("pwl relu(e5m2)", "o = round(pwl(a))", (0xBC,), 0),
    ("pwl relu(e5m2)", "o = round(pwl(a))", (TWO,), TWO),
    (f"blockquantize e5m2>{BLOCK}", "o0, o1, o_scale = blockquantize(a0, a1)", ([0x46, THREE],), ([7, 5], 127)),
    (
        f"blockdequantize {BLOCK}>e5m2",
        "o0 = round(a0 * a_scale); o1 = round(a1 * a_scale)",
        ([7, 5], 128),
        [0x4A, 0x46],
    ),
    # 2 * (6 + 3) - 16 = 2; without the start value, 18 is below the tie between 16 and 20.
    (
        f"blockdot2 {BLOCK}*{BLOCK}+e5m2",
        "o = round(a0 * b0 * a_scale * b_scale + a1 * b1 * a_scale * b_scale + c)",
        ([7, 5], [2, 2], 127, 128, 0xCC),
        TWO,
    ),
    (
        f"blockdot2 {BLOCK}*{BLOCK}=e5m2",
        "o = round(0 + a0 * b0 * a_scale * b_scale + a1 * b1 * a_scale * b_scale)",
        ([7, 5], [2, 2], 127, 128),
        0x4C,
    ),
    (
        f"blockmac {BLOCK}*{BLOCK}+e5m2",
        "sum = a0 * b0 * a_scale * b_scale + a1 * b1 * a_scale * b_scale; o = round(sum + c)",
        ([7, 5], [2, 2], 127, 128, 0xCC),
        TWO,
    ),
]


@pytest.mark.parametrize(("text", "formula", "operands", "result"), BY_HAND)
def test_formulas_give_results_computed_by_hand(text, formula, operands, result):
    assert str(UnitSpec.parse(text).formula) == formula
    assert halfulp.unit(text).exact(*operands) == result


SUMS = [
    (text, operands, result)
    for text, formula, operands, result in BY_HAND
    if formula.rpartition("; ")[2].startswith("o = round") and not text.startswith(("partmac", "join", "split"))
]


@pytest.mark.parametrize(("text", "operands", "result"), SUMS)
def test_sums_on_tensors_give_results_computed_by_hand(text, operands, result):
    unit = component(text)
    codes = {port.name: np.zeros(1, dtype=np.uint64) for port in unit.spec.ports}
    for ports, given in zip(unit.spec.arguments(*VALUES).values(), operands, strict=False):
        pairs = {ports: given} if isinstance(ports, str) else dict(zip(ports, given, strict=True))
        codes |= {name: np.array([code], dtype=np.uint64) for name, code in pairs.items()}
    assert evaluate(unit, unit.spec, lambda formula: formula, codes).tolist() == [result]


def test_negative_terms_have_a_sign_in_the_text():
    assert str(Term(("a",), negative=True)) == "-a"
    assert str(Term(("a", "b"), negated_by="subtract", negative=True)) == "-(-1)^subtract * a * b"


def test_operands_of_products_with_exact_sums_reach_ties_and_cancel():
    """Most vectors of a + t * (b - a) are exactly at numbers or middles of the result, or have sums that cancel."""
    difference = Sum("d", (term("b"), Term(("a",), negative=True)), RN)
    formula = Formula((difference, Sum("o", (term("a"), term("t", "d")), RN, FP16)))
    found = of_formula(formula, tuple((name, FP16) for name in "abt"), 400)
    a, b, t = ([FP16.decode(code) for code in found[name].tolist()] for name in "abt")
    rows = [row for row in zip(a, b, t, strict=True) if all(isinstance(number, Fraction) for number in row)]
    results = [x + z * (y - x) for x, y, z in rows]
    inner = [abs(y - x) <= abs(x) / 500 for x, y, _ in rows]
    last = [abs(one) <= abs(x) / 200 for one, (x, *_) in zip(results, rows, strict=True)]
    # Next to a middle or a number: the sum and a number of one more bit differ by less than 2^-8 of the last place.
    unit = [Fraction(2) ** (max(floor_log2(abs(one)), -14) - 10) if one else Fraction(1) for one in results]
    near = [
        abs(2 * one / last_place - round(2 * one / last_place)) < 2**-8
        for one, last_place in zip(results, unit, strict=True)
    ]
    assert len(rows) > 350
    assert sum(inner) > 60
    assert sum(last) > 60
    assert sum(near) > 120


def test_random_words_reach_their_roundings():
    rounder = halfulp.unit("sru fxp4.4>fxp4.0.sr1 lanes=2")
    assert str(rounder.spec.formula) == "o0 = round(a0); o1 = round(a1)"
    # 1.5 has the discarded bit 1, which only the word 1 carries.
    assert rounder.exact([24, 24], random=[1, 0]) == [2, 1]
    mac = halfulp.unit("mac e5m2*e5m2=e5m2.sr1+e5m2.sr1")
    # 3 * 3 = 9 becomes 8 or 10; 8 + 1 = 9 becomes 8 or 10, and 10 + 1 = 11 becomes 10 or 12.
    found = [mac.exact(THREE, THREE, ONE, random=word, random_product=other) for other in (0, 1) for word in (0, 1)]
    assert found == [EIGHT, 0x49, 0x49, 0x4A]
    dot = halfulp.unit("dot2 e5m2*e5m2.sr1 order=sequential")
    assert dot.exact([THREE, ONE], [THREE, ONE], random=[1, 0]) == 0x49


def test_flags_of_a_sum_do_not_depend_on_the_order_of_its_terms():
    spec = "sparsemac e5m2*e5m2+e5m2 sparsity=1:2 step=3 flags"
    # Infinities of both signs are invalid only without a quiet NaN, in any order.
    for terms in ([0x7C, 0xFC, 0x7E], [0x7E, 0x7C, 0xFC]):
        activations = [code for term in terms for code in (term, 0)]
        assert halfulp.unit(spec).exact(activations, [ONE] * 3, [0] * 3, 0) == (0x7E, 0)


def test_every_unit_has_a_formula_with_a_result_by_hand():
    assert {UnitSpec.parse(text).form.unit for text, *_ in BY_HAND} | {"sru"} == set(UNITS)


@pytest.mark.parametrize(
    "text",
    [text for text, *_ in BY_HAND]
    + ["sru int16>int8.sr3 lanes=2", "mac e5m2*e5m2=e5m2.sr2+e5m2.port_sr4", "mul fp16*fp16.sr8@lfsr16"],
)
def test_ports_of_descriptions_are_those_of_units(text):
    spec = UnitSpec.parse(text)
    unit = component(spec, CATALOGUE[spec.form.unit].unit.default_build(spec))
    own = [(port.name, port.width) for port in spec.ports if port.name not in unit.sources]
    assert own == [(name, shape.width) for name, shape in unit.inputs.items()]
    assert {port.name for port in spec.ports if port.role is Role.RANDOM} == set(unit.words)


def test_wrong_numbers_of_operands_are_refused():
    with pytest.raises(TypeError, match=r"mul takes the operands a, b, not 1 operands"):
        halfulp.unit("mul e5m2*e5m2").exact(ONE)
