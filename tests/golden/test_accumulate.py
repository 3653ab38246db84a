"""Accumulators and quires against the exact model and sums of fractions."""

import itertools
import random

import pytest

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import (
    RN,
    Rounding,
    parse,
    stochastic,
)
from halfulp.hdl.specs import AccumulateSpec, MacSpec
from tests.golden_against_exact import (
    FEW,
    MODES,
    STEPS,
    WIDE_FAMILIES,
    aimed,
    columns_of,
    differences,
    every,
    overflows_by,
    parameters_of,
    random_words,
    read_register,
    steps,
    tensor,
    times,
)

SUMS = [
    ("quire", {"a": "posit3e0", "b": "posit3e0", "o": "posit4e0", "carry": 1}),
    ("quire", {"a": "fxp1.2", "b": "posit3e0", "o": "fxp3.1-wrap", "carry": 2}),
    ("quire", {"a": "e2m0", "b": "e2m1", "o": "e2m1", "carry": 31}),
    ("quire", {"a": "ufxp1.2", "b": "uint3", "o": "posit4", "carry": 3}),
    ("accumulate", {"a": "posit4e1", "acc": "posit4e1"}),
    ("accumulate", {"a": "fxp2.2", "acc": "fxp3.1-wrap"}),
    ("accumulate", {"a": "e2m1", "acc": "exact", "o": "e2m1fnuz", "carry": 1}),
    ("accumulate", {"a": "posit4e0", "acc": "exact", "o": "posit4e0", "carry": 1}),
    ("accumulate", {"a": "ufxp2.2-wrap", "acc": "exact"}),
    ("mac", {"a": "posit3e0", "b": "fxp1.2", "acc": "posit5e1"}),
    ("mac", {"a": "int2", "b": "e2m0", "acc": "fxp3.1-wrap"}),
    ("mac", {"a": "posit3", "b": "posit3", "acc": "exact", "o": "e2m1", "carry": 1}),
]


def operands_of(parameters):
    """Return the formats of the operands of a step, the start value last."""
    o = parameters.get("o") or (parameters["a"] if parameters["acc"] == "exact" else parameters["acc"])
    return [*(parameters[letter] for letter in "ab" if letter in parameters), o]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "texts"), SUMS, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values()))
)
def test_accumulators_match_exact_on_toy_formats(name, texts):
    """Every operand with rounding to nearest, and some with every other mode."""
    parameters = {key: text if text == "exact" or key == "carry" else parse(text) for key, text in texts.items()}
    formats = operands_of(parameters)
    rng = random.Random(f"{name}{texts}")
    for rounding, saturate in itertools.product(FEW, overflows_by(formats[-1])):
        columns, words = every(formats, rounding, subtract=name == "quire")
        if rounding != RN or saturate:
            chosen = rng.sample(range(len(columns[0])), min(len(columns[0]), 150))
            columns = [[column[index] for index in chosen] for column in columns]
            words = words and [words[index] for index in chosen]
        _, wrong = differences(name, columns, words, **parameters, rounding=rounding, saturate=saturate)
        assert wrong == []


@pytest.mark.parametrize("seed", range(40))
def test_accumulators_match_exact_on_wide_and_mixed_formats(seed):
    rng = random.Random(seed)
    name = ("quire", "mac", "accumulate")[seed % 3]
    a, b, o = (rng.choice(WIDE_FAMILIES) for _ in "abo")
    rounding = rng.choice([*MODES, stochastic(32)])
    parameters = {"a": a, "b": b, "o": o, "carry": rng.choice((1, 2, 31, 64))}
    if name != "quire":
        parameters["acc"] = "exact"
        if rng.random() < 0.4:
            parameters = {"a": a, "b": b, "acc": o}
    if name == "accumulate":
        del parameters["b"]
    near, count = rng.randint(-5, 5), 100
    formats = operands_of(parameters)
    columns = [aimed(rng, fmt, count, near * (1 + (index == 2))) for index, fmt in enumerate(formats)]
    if name == "quire":
        columns.append([rng.getrandbits(1) for _ in range(count)])
    words = random_words(rng, rounding, count)
    done, wrong = differences(name, columns, words, **parameters, rounding=rounding, saturate=rng.random() < 0.3)
    assert done == count
    assert wrong == []


SEQUENCES = [
    "posit8*posit8+exact=posit8.rn",
    "posit8*posit8+exact=posit8.rz carry=1",
    "posit16*posit8e0+exact=posit16.sr5 carry=3",
    "posit64*posit64+exact=posit64.rn",
    "e5m2*e5m2+exact=e5m2.rn carry=1",
    "e5m2*e4m3fn+exact=e5m2.rd.sat carry=31",
    "e4m3*e4m3+exact=fxp8.8-wrap.ro",
    "fxp4.4*fxp4.4+exact=fxp4.4-wrap.sr3 carry=2",
    "fxp1.7-wrap*ufxp0.8+exact=int4.ra.sat carry=1",
    "int64*uint64-wrap+exact=int64.ru carry=64",
    "fp64*fp64+exact=fp64.rn",
    "posit8*fxp4.4+exact=e8m23.ru",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", SEQUENCES)
def test_quire_sequence_matches_fractions(text):
    spec = MacSpec.parse(text)
    rng = random.Random(text)
    xs, ys, starts, loads, clears = steps(rng, spec.a, spec.b, spec.o)
    minus = [rng.getrandbits(1) & (index not in range(100, 140)) for index in range(STEPS)]
    words = random_words(rng, spec.rounding, STEPS)
    products = [times(spec.a.decode(x), spec.b.decode(y)) for x, y in zip(xs, ys, strict=True)]
    more = {"rounding": spec.rounding, "saturate": spec.saturate, "random": words and tensor(words)}
    formats = {"a": spec.a, "b": spec.b, "o": spec.o, "carry": spec.carry}
    columns = map(tensor, (xs, ys, starts, minus, loads, clears))
    expected, overflows = read_register(
        spec, [-x if m else x for x, m in zip(products, minus, strict=True)], starts, loads, clears, words
    )
    assert columns_of(golden.quire_sequence(*columns, **formats, **more)) == [expected]
    assert overflows > 0 or spec.carry > 3
    expected, _ = read_register(spec, products, starts, loads, clears, words)
    columns = map(tensor, (xs, ys, starts, loads, clears))
    assert columns_of(golden.mac_sequence(*columns, acc="exact", **formats, **more)) == [expected]


@pytest.mark.parametrize(
    ("a", "o", "rounding", "carry"),
    [
        ("posit8", "posit8", "rn", 1),
        ("posit64", "posit32", "ru", 31),
        ("e5m2", "e5m2", "rd", 1),
        ("fxp4.4-wrap", "fxp8.4", "sr4", 31),
        ("uint64", "fxp40.-10", "ro", 2),
        ("fp64", "posit64", "rn", 31),
    ],
)
def test_exact_accumulator_sequence_matches_fractions(a, o, rounding, carry):
    spec = AccumulateSpec(parse(a), "exact", parse(o), carry, rounding=Rounding.parse(rounding))
    rng = random.Random(a + o)
    xs, starts, loads, clears = steps(rng, spec.a, spec.o)
    words = random_words(rng, spec.rounding, STEPS)
    expected, overflows = read_register(spec, [spec.a.decode(x) for x in xs], starts, loads, clears, words)
    parameters = {"a": a, "acc": "exact", "o": o, "carry": carry, "rounding": rounding}
    found = golden.accumulate_sequence(
        *map(tensor, (xs, starts, loads, clears)), **parameters, random=words and tensor(words)
    )
    assert columns_of(found) == [expected]
    assert overflows > 0 or carry > 3


def test_exact_mac_of_rounded_products_matches_fractions():
    spec = MacSpec.parse("posit8*fxp4.4=fxp3.2-wrap.sr3+exact=e5m10.rn.sat")
    rng = random.Random(2)
    xs, ys, starts, loads, clears = steps(rng, spec.a, spec.b, spec.o)
    words = random_words(rng, spec.product_rounding, STEPS)
    terms = [
        spec.product.decode(spec.product.encode(times(spec.a.decode(x), spec.b.decode(y)), "sr3", word, True))
        for x, y, word in zip(xs, ys, words, strict=True)
    ]
    expected, _ = read_register(spec, terms, starts, loads, clears, None)
    parameters = parameters_of(spec)
    columns = map(tensor, (xs, ys, starts, loads, clears))
    assert golden.mac_sequence(*columns, **parameters, random_product=tensor(words)).tolist() == expected


@pytest.mark.parametrize(
    ("a", "acc", "rounding"), [("posit8", "posit16", "rn"), ("fxp4.4", "fxp8.4-wrap", "sr3"), ("e5m2", "posit8", "ro")]
)
def test_accumulate_sequence_matches_steps(a, acc, rounding):
    rng, rounding = random.Random(acc), Rounding.parse(rounding)
    parameters = {"a": parse(a), "acc": parse(acc), "rounding": rounding}
    xs, starts, loads, clears = steps(rng, parse(a), parse(acc))
    words = random_words(rng, rounding, STEPS)
    found = golden.accumulate_sequence(
        *map(tensor, (xs, starts, loads, clears)), **parameters, random=words and tensor(words)
    )
    code, expected = 0, []
    for index in range(STEPS):
        base = starts[index] if loads[index] else 0 if clears[index] else code
        code = exact.accumulate(xs[index], base, **parameters, random=words[index] if words else 0)
        expected.append(code)
    assert columns_of(found) == [expected]
