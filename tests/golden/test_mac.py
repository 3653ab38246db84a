"""Multiply-accumulates with a rounded product against the exact model in fractions."""

import math
import random
from fractions import Fraction

import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import (
    E4M3FN,
    E5M2,
    E6M5,
    EXACT,
    FP32,
    INT8,
    POSIT8,
    POSIT64,
    RN,
    Rounding,
    parse,
    stochastic,
)
from halfulp.hdl.specs import MacSpec
from tests.golden_against_exact import INT8_WRAP, aimed, parameters_of, random_words, tensor


@pytest.mark.sampled(8)
@pytest.mark.parametrize("product", [None, "e5m2.rz", "e2m0.ro", "e4m3fnuz.sr4", "e2m1fn.rn", "e6m5-ftz.ru"])
@pytest.mark.parametrize("acc", ["e6m5", "e3m2fn", "fp32", "e5m3fnuz-ftz"])
@pytest.mark.parametrize("saturate", [False, True], ids=["", "sat"])
def test_mac_with_rounded_product_matches_exact(product, acc, saturate):
    rng = random.Random(f"{product}{acc}")
    acc = parse(acc)
    parameters = {"a": E5M2, "b": E4M3FN, "acc": acc, "rounding": RN, "saturate": saturate}
    if product is not None:
        text, _, mode = product.rpartition(".")
        parameters |= {"product": parse(text), "product_rounding": Rounding.parse(mode)}
    count = 1000
    columns = [aimed(rng, fmt, count, 0) for fmt in (E5M2, E4M3FN, acc)]
    words = [rng.getrandbits(4) for _ in range(count)]
    stochastic_product = bool(parameters.get("product_rounding", EXACT).bits)
    more = {"random_product": tensor(words)} if stochastic_product else {}
    found = golden.mac(*map(tensor, columns), **parameters, **more).tolist()
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = words[index] if stochastic_product else 0
        assert found[index] == exact.mac(*codes, **parameters, random_product=word), [hex(code) for code in codes]


def test_mac_sequence_matches_steps():
    rng = random.Random(1)
    count, rounding = 3000, stochastic(5)
    xs, ys, starts = aimed(rng, E5M2, count, 0), aimed(rng, E5M2, count, 0), aimed(rng, E6M5, count, 0)
    loads, clears = ([int(rng.random() < 0.05) for _ in range(count)] for _ in range(2))
    words = [rng.getrandbits(5) for _ in range(count)]
    parameters = {"a": E5M2, "b": E5M2, "acc": E6M5, "rounding": rounding}
    found = golden.mac_sequence(
        *map(tensor, (xs, ys, starts, loads, clears)), **parameters, random=tensor(words)
    ).tolist()
    accumulator = 0
    for index in range(count):
        base = starts[index] if loads[index] else 0 if clears[index] else accumulator
        accumulator = exact.mac(xs[index], ys[index], base, **parameters, random=words[index])
        assert found[index] == accumulator
    assert golden.mac_sequence(*[torch.zeros(0, dtype=torch.int64)] * 5, a=E5M2, b=E5M2, acc=E6M5).tolist() == []


@pytest.mark.parametrize("product", ["int4-wrap.rz", "posit6e1.rn", "e2m1fn.ro", "fxp3.2-wrap.sr4", "e4m3.rn"])
@pytest.mark.parametrize("acc", ["fxp8.8-wrap", "posit16", "e5m10", "exact=posit8", "exact=fxp4.4-wrap carry=2"])
@pytest.mark.parametrize("saturate", [False, True], ids=["", "sat"])
def test_mac_across_families_with_rounded_product_matches_exact(product, acc, saturate):
    rng = random.Random(f"{product}{acc}")
    fmt, _, carry = acc.partition(" ")
    spec = MacSpec.parse(f"posit8*fxp4.4={product}+{fmt}.rn{'.sat' if saturate else ''} {carry}")
    count = 120
    columns = [aimed(rng, fmt, count, 2) for fmt in (spec.a, spec.b, spec.o)]
    parameters = parameters_of(spec)
    words = random_words(rng, spec.product_rounding, count)
    more = {"random_product": tensor(words)} if words else {}
    found = golden.mac(*map(tensor, columns), **parameters, **more).tolist()
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = words[index] if words else 0
        assert found[index] == exact.mac(*codes, **parameters, random_product=word), [hex(code) for code in codes]


@pytest.mark.parametrize(
    ("fmt", "product", "acc", "operands", "held", "saturated"),
    [
        (E5M2, E5M2, FP32, (57344, 4), math.inf, 57344),
        (E5M2, E5M2, FP32, (57344, -57344), -math.inf, -57344),
        (E5M2, E4M3FN, FP32, (57344, 1), math.nan, 448),
        (INT8, INT8_WRAP, parse("int32"), (100, 100), 10000 - 39 * 256, 127),
        (INT8, INT8_WRAP, parse("int32"), (100, -100), -10000 + 39 * 256, -128),
        (INT8, parse("uint6-wrap"), POSIT64, (-5, 9), 64 - 45, 0),
        (POSIT8, parse("fxp4.4-wrap"), FP32, (20, 2), 8 - 16, Fraction(127, 16)),
        (POSIT8, POSIT8, POSIT64, (16777216, 16777216), 16777216, 16777216),
    ],
    ids=str,
)
def test_saturate_applies_to_rounded_product(fmt, product, acc, operands, held, saturated):
    """A rounded product that overflows is infinite, wraps, or saturates, as ``saturate`` requires."""
    codes = [fmt.encode(number, EXACT) for number in operands]
    parameters = {"a": fmt, "b": fmt, "acc": acc, "product": product, "product_rounding": RN}
    for saturate, number in ((False, held), (True, saturated)):
        found = int(golden.mac(*(torch.tensor(code) for code in (*codes, 0)), **parameters, saturate=saturate))
        assert found == exact.mac(*codes, 0, **parameters, saturate=saturate)
        assert acc.text(found) == acc.text(acc.encode(number))
    found = golden.mac_sequence(*(torch.tensor([code]) for code in (*codes, 0, 0, 0)), **parameters, saturate=True)
    assert found.tolist() == [acc.encode(saturated)]
