"""Dot products of aligned and truncated terms against a scalar model of the contract, written without the library."""

import functools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import Rounding, parse
from halfulp.hdl.specs import Build, DotSpec
from halfulp.sim.model import CompiledModel
from halfulp.sim.reference import reference
from halfulp.units.catalogue import component
from tests.agreement.test_exhaustive import Bundle
from tests.every_unit import rounded, rtl_mismatches, vectors
from tests.settings import EXHAUSTIVE

FORMATS = {
    "fp32": (8, 23, "ieee"),
    "bf16": (8, 7, "ieee"),
    "fp16": (5, 10, "ieee"),
    "e5m2": (5, 2, "ieee"),
    "e4m3fn": (4, 3, "fn"),
    "e3m2": (3, 2, "ieee"),
    "e2m1fn": (2, 1, "finite"),
}
"""Exponent bits, mantissa bits and special values; `e2m1fn` has none, like the format of that name in OCP MX."""

MODES = ("rn", "ra", "rh", "rhu", "rhd", "rz", "ru", "rd", "ro", "sr3")
NAN, INF = "nan", "inf"


def emin_of(exp):
    """Return the exponent of the smallest normal number."""
    return 2 - (1 << (exp - 1))


@functools.cache
def decoded(name, code):
    """Return sign, kind or magnitude, and exponent of a code, from its bits."""
    exp, man, specials = FORMATS[name]
    sign, field, mantissa = code >> (exp + man), code >> man & ((1 << exp) - 1), code & ((1 << man) - 1)
    if specials == "ieee" and field == (1 << exp) - 1:
        return sign, NAN if mantissa else INF, 0
    if specials == "fn" and field == (1 << exp) - 1 and mantissa == (1 << man) - 1:
        return sign, NAN, 0
    exponent = max(field, 1) - 1 + emin_of(exp)
    return sign, (Fraction(mantissa, 1 << man) + (field > 0)) * Fraction(2) ** exponent, exponent


@functools.cache
def multiplied(a, b, x, y):
    """Return sign, kind or magnitude, and exponent of a product."""
    (x_sign, x, x_exponent), (y_sign, y, y_exponent) = decoded(a, x), decoded(b, y)
    sign = x_sign ^ y_sign
    if NAN in (x, y) or (INF in (x, y) and 0 in (x, y)):
        return sign, NAN, 0
    return sign, INF if INF in (x, y) else x * y, x_exponent + y_exponent


def rounds_up(mode, sign, floor, rest, word):
    half = Fraction(1, 2)
    if mode.startswith("sr"):
        bits = int(mode[2:])
        return math.floor(rest * (1 << bits)) + word >= 1 << bits
    return {
        "rn": rest > half or (rest == half and floor % 2 == 1),
        "ra": rest >= half,
        "rh": rest > half,
        "rhu": rest > half or (rest == half and not sign),
        "rhd": rest > half or (rest == half and sign),
        "rz": False,
        "ru": rest > 0 and not sign,
        "rd": rest > 0 and sign,
        "ro": rest > 0 and floor % 2 == 0,
    }[mode]


def encoded(name, total, unit, mode, word):
    """Round ``total * 2^unit`` to a format, as if the exponent were unbounded, and return its code."""
    exp, man, specials = FORMATS[name]
    sign, magnitude = total < 0, abs(total)
    top = (1 << exp) - 1 if specials == "ieee" else 1 << exp
    largest = (top << man) - (2 if specials == "fn" else 1)
    exponent = max(magnitude.bit_length() - 1 + unit, emin_of(exp))
    places = Fraction(magnitude) * Fraction(2) ** (unit - exponent + man)
    floor = places.numerator // places.denominator
    rest = places - floor
    code = ((exponent - emin_of(exp)) << man) + floor + rounds_up(mode, sign, floor, rest, word)
    if code > largest:
        stays = mode in ("rz", "ro") or (mode == "ru" and sign) or (mode == "rd" and not sign)
        code = largest if stays or specials == "finite" else largest + 1
    return (sign << (exp + man)) | code if code <= largest else special(name, INF, sign)


def special(name, kind, sign):
    """Return the code of NaN or of an infinity."""
    exp, man, specials = FORMATS[name]
    ones = (1 << (exp + man)) - 1
    if specials == "fn":
        return ones
    assert specials == "ieee"
    infinity = ones >> man << man
    return infinity | (1 << (man - 1)) if kind == NAN else (sign << (exp + man)) | infinity


def scalar(formats, fraction, kind, mode, xs, ys, start=None, word=0):
    """Return the code of an aligned dot product, from the contract alone."""
    a, b, c, o = formats
    terms = [multiplied(a, b, x, y) for x, y in zip(xs, ys, strict=True)]
    terms += [] if start is None else [decoded(c, start)]
    values = [value for _, value, _ in terms]
    infinite = {sign for sign, value, _ in terms if value == INF}
    if NAN in values or len(infinite) == 2:
        return special(o, NAN, 0)
    if infinite:
        return special(o, INF, infinite.pop())
    exponents = [exponent for _, value, exponent in terms if value]
    if not exponents:
        return 0
    unit = max(exponents) - fraction
    total = 0
    for sign, value, _ in terms:
        # Numerator and denominator of the term in places of 2^unit.
        numerator, denominator = value.numerator << max(-unit, 0), value.denominator << max(unit, 0)
        total += -numerator // denominator if sign and kind == "floor" else (-1) ** sign * (numerator // denominator)
    return encoded(o, total, unit, mode, word) if total else 0


def drawn(rng, name, count):
    """Draw codes; half of them near each other in exponent, so that sums cancel and overlap."""
    exp, man, _ = FORMATS[name]
    middle = 1 << (exp - 1)
    found = []
    for _ in range(count):
        code = rng.getrandbits(1 + exp + man)
        if rng.random() < 0.5:
            field = min(max(middle + rng.randint(-4, 4), 0), (1 << exp) - 2)
            code = (code >> (exp + man) << (exp + man)) | (field << man) | (code & ((1 << man) - 1))
        found.append(code)
    return found


def compare(formats, fraction, kind, mode, k, count, seed):
    """Compare golden results of random dot products with the scalar model; return the rows that differ."""
    rng = random.Random(seed)
    a, b, c, o = formats
    xs, ys = ([drawn(rng, name, k) for _ in range(count)] for name in (a, b))
    for row in range(0, count, 3):
        # A product that cancels another one.
        if k > 1:
            xs[row][-1], ys[row][-1] = xs[row][0] ^ (1 << sum(FORMATS[a][:2])), ys[row][0]
    starts = None if c is None else drawn(rng, c, count)
    bits = int(mode[2:]) if mode.startswith("sr") else 0
    words = [rng.getrandbits(bits) if bits else 0 for _ in range(count)]
    operands = [torch.tensor(xs), torch.tensor(ys), *([] if starts is None else [torch.tensor(starts)])]
    random_words = {"random": torch.tensor(words)} if bits else {}
    how = {"a": a, "b": b, "c": c, "o": o, "order": f"aligned{fraction}.{kind}", "rounding": mode}
    found = golden.dot(*operands, **how, **random_words).tolist()
    starts = [None] * count if starts is None else starts
    rows = zip(xs, ys, starts, words, strict=True)
    expected = [scalar(formats, fraction, kind, mode, *row) for row in rows]
    return [(xs[i], ys[i], starts[i], hex(found[i]), hex(expected[i])) for i in range(count) if found[i] != expected[i]]


CASES = (
    ("e4m3fn", "e4m3fn", None, "fp32"),
    ("e5m2", "e5m2", None, "fp32"),
    ("e4m3fn", "e5m2", "fp32", "bf16"),
    ("fp16", "fp16", "fp32", "fp32"),
    ("e5m2", "e4m3fn", "fp16", "fp16"),
    ("bf16", "e2m1fn", "e5m2", "e4m3fn"),
)

COUNT = 9_000 if EXHAUSTIVE else 200
"""Cases per test; with 9,000 all tests together have more than 10^7."""


@pytest.mark.sampled(48, 2)
@pytest.mark.parametrize("kind", ["trunc", "floor"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [4, 8, 16])
@pytest.mark.parametrize("fraction", [13, 23, 24, 25])
@pytest.mark.parametrize("formats", CASES, ids=lambda formats: "-".join(filter(None, formats)))
def test_golden_matches_scalar_model(formats, fraction, k, mode, kind):
    assert compare(formats, fraction, kind, mode, k, COUNT, f"{formats}{fraction}{k}{mode}{kind}") == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["trunc", "floor"])
@pytest.mark.parametrize("mode", MODES)
def test_golden_and_exact_match_scalar_model_on_short_windows(mode, kind):
    rng = random.Random(f"{mode}{kind}")
    for formats in (("e2m1fn", "e3m2", "e3m2", "e3m2"), ("e5m2", "e2m1fn", "e5m2", "e4m3fn")):
        for fraction in (1, 2, 5, 64):
            assert compare(formats, fraction, kind, mode, 3, 60, f"{mode}{kind}{fraction}") == []
            a, b, c, o = map(parse, formats)
            for _ in range(20):
                xs, ys, (start,) = (drawn(rng, *given) for given in zip(formats[:3], (3, 3, 1), strict=True))
                word = rng.getrandbits(3) if mode == "sr3" else 0
                how = {"order": f"aligned{fraction}.{kind}", "rounding": Rounding.parse(mode)}
                found = exact.dot(xs, ys, start, a=a, b=b, c=c, o=o, random=word, **how)
                assert found == scalar(formats, fraction, kind, mode, xs, ys, start, word)


def test_sums_of_zero_are_positive():
    for order in ("aligned8.trunc", "aligned8.floor"):
        for x in ([0x80, 0x80], [0x3C, 0xBC]):
            operands = torch.tensor(x), torch.tensor([0x3C, 0x3C])
            assert int(golden.dot(*operands, a="e5m2", b="e5m2", o="e5m2", order=order, rounding="rd")) == 0
    # A term below the scale of the largest one is removed, and rounded down to a place of that scale.
    operands = torch.tensor([0x3C, 0x81]), torch.tensor([0x3C, 0x3C])
    one, less = (golden.encode([value], "fp16").item() for value in (1.0, 1 - 2**-8))
    for order, expected in (("aligned8.trunc", one), ("aligned8.floor", less)):
        assert int(golden.dot(*operands, a="e5m2", b="e5m2", o="fp16", order=order)) == expected


def errors(fraction, kind, x, y):
    """Return the errors of sums of products of e4m3fn before rounding, in places of 2^-F of the largest exponent."""
    formats = {"a": "e4m3fn", "b": "e4m3fn", "o": "fp64"}
    exponents = [(codes >> 3 & 15).clamp(min=1) - 7 for codes in (x, y)]
    present = (x & 0x7F != 0) & (y & 0x7F != 0)
    largest = torch.where(present, exponents[0] + exponents[1], -99).amax(-1)
    # fp64 holds all sums of these products.
    found, exact_sums = (
        golden.decode(golden.dot(x, y, **formats, order=order), "fp64")
        for order in (f"aligned{fraction}.{kind}", "exact")
    )
    return torch.ldexp(found - exact_sums, fraction - largest)


@pytest.mark.parametrize("k", [1, 4, 16])
@pytest.mark.parametrize("fraction", [6, 13, 25])
def test_error_is_within_the_documented_bound(fraction, k):
    """Error of less than k - 1 places: the term of the largest exponent is exact, if it has at most F fraction bits."""
    generator = torch.Generator().manual_seed(fraction * k)
    x, y = (torch.randint(256, (2000, k), generator=generator) for _ in range(2))
    numbers = ((x & 0x7F != 0x7F) & (y & 0x7F != 0x7F)).all(-1)
    # One number of the largest exponent, and products that end 8 places below its last one.
    split = (14 - fraction) // 2
    pairs = [(2.0**8, 2.0**8), *[(1.875 * 2.0**split, 1.875 * 2.0 ** (14 - fraction - split))] * (k - 1)]
    worst = [golden.encode(list(column), "e4m3fn").unsqueeze(0) for column in zip(*pairs, strict=True)]
    for kind in ("trunc", "floor"):
        found = errors(fraction, kind, x[numbers], y[numbers])
        assert (found == 0).all() if k == 1 else (found.abs() < k - 1).all()
        assert (found <= 0).all() or kind == "trunc"
        assert errors(fraction, kind, *worst).item() == -(k - 1) * 225 / 256


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("dot4 e5m2*e5m2 order=aligned25", "aligned25.trunc"),
        ("dot4 e5m2*e5m2 order=aligned0.trunc", "aligned0.trunc"),
        ("dot4 e5m2*e5m2 order=aligned65.trunc", "1 to 64"),
        ("dot4 posit8*posit8 order=aligned25.floor", "posit8"),
        ("dot4 e5m2*e5m2=int8 order=aligned25.floor", "int8"),
        ("dot4 e5m2*e5m2+fxp4.4=e5m2 order=aligned25.floor", "fxp4.4"),
        ("dot4 e5m2*e5m2=fp32.exact order=aligned25.trunc", "exact"),
    ],
)
def test_orders_that_do_not_exist_are_refused(text, keyword):
    with pytest.raises(ValueError, match=keyword):
        DotSpec.parse(text)


def test_exact_rounding_is_taken_where_it_is_possible():
    """Truncated terms have fewer bits than exact ones."""
    assert str(DotSpec.parse("dot4 e5m2*e5m2=fp32.exact order=aligned12.trunc"))
    with pytest.raises(ValueError, match="exact"):
        DotSpec.parse("dot4 e5m2*e5m2=fp32.exact")


UNITS = (
    "dot2 e2m1*e2m1=e3m2 order=aligned3.trunc",
    "dot2 e2m1fn*e2m1fn+e3m2 order=aligned2.floor",
    "dot4 e5m2*e4m3+bf16=e4m3fn order=aligned5.floor",
    "dot3 e5m2-ftz*e3m0+e5m2=fp16 order=aligned8.trunc",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        UNITS[0],
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in (*UNITS[1:], "dot8 e4m3fn*e4m3fn=fp32 order=aligned25.trunc")
        ),
    ],
)
def test_rtl_matches_golden(text):
    spec = DotSpec.parse(text)
    few = [rounded(spec, mode, saturate) for mode in MODES for saturate in (False, True)][
        :: 9 if text == UNITS[0] else 1
    ]
    checks, failed = rtl_mismatches({one: one for one in few}, most_bits=16, count=1 << 15)
    assert not failed
    assert checks


STRUCTURES = ("dot2 e2m1*e2m1+e3m2=e2m1fn", UNITS[0], UNITS[2], "dot6 e5m2*e6m1=bf16 order=aligned5.trunc")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("dot5 e2m1*e2m1=e3m3 order=aligned1.trunc", ("rn", "sr3")),
        *((text, MODES) for text in STRUCTURES),
    ],
)
def test_structures_for_speed_change_no_bit(text, modes):
    """Overflow, subnormal results and sums of both signs."""
    fast = [component(rounded(DotSpec.parse(text), mode), Build(goal="speed")) for mode in modes]
    bundle = Bundle({f"u{place}": unit for place, unit in enumerate(fast)})
    codes = next(vectors(fast[-1], 16, 1 << 14))
    with CompiledModel.of_unit(bundle) as loop:
        found = loop.run(codes, max(map(len, codes.values())))
    for place, unit in enumerate(fast):
        own = {name: column for name, column in codes.items() if name in unit.inputs}
        assert np.array_equal(found[f"u{place}_o"], reference(unit, own)["o"])


@pytest.mark.parametrize("text", ["dot4 e5m2*e5m2 order=sequential", "dot4 e5m2*e5m2=posit8", "dot4 int8*int8"])
def test_goal_without_effect_is_refused(text):
    with pytest.raises(ValueError, match="no effect"):
        component(text, Build(goal="speed"))
