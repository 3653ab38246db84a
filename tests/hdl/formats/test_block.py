"""Blocks: texts, refused parameters, and scales and elements against gfloat and the definitions of the rules."""

import math
import random
from fractions import Fraction

import gfloat
import gfloat.formats
import numpy as np
import pytest

from halfulp.golden import exact
from halfulp.hdl.formats import BLOCKS, RN, Block, Rounding, parse
from halfulp.hdl.specs import BlockMacSpec, MacSpec, TextError, UnitSpec

TOYS = [f"block({element},2,{scale},{rule})" for element, scale, rule in (
    ("e2m1fn", "e4m0fnu", "floor"),
    ("e2m1fn", "e3m2", "nearest"),
    ("fxp2.2", "e4m0fnu", "ceil"),
    ("e3m0", "e3m0fnu", "even"),
    ("e1m2b2-finite", "e4m0fnu", "floor"),
    ("e2m2", "e3m1-finite", "nearest"),
)]  # fmt: skip


@pytest.mark.parametrize("text", [*BLOCKS, *TOYS, "block(nf4,64,bf16,nearest)"])
def test_block_text_round_trips(text):
    block = Block.parse(text)
    assert Block.parse(str(block)) == block
    assert hash(Block.parse(str(block))) == hash(block)
    assert str(block) == (text if text != "bfp16" else "msfp16")
    assert Block.parse(Block.names.get(text, text).replace(",", " , ")) == block


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (lambda: parse("mxfp4"), TypeError, "block"),
        (lambda: parse("block(e2m1fn,4,e8m0fnu,floor)"), TypeError, "block"),
        (lambda: parse(BLOCKS["mxfp4"]), TypeError, "not Block"),
        (lambda: Block.parse("e5m2"), ValueError, "mxfp4"),
        (lambda: Block.parse("block(e2m1fn,4,e8m0fnu)"), ValueError, "unknown block"),
        (lambda: Block.parse("block(e2m1fn,0,e8m0fnu,floor)"), ValueError, "length"),
        (lambda: Block.parse("block(e2m1fn,4,e8m0fnu,round)"), ValueError, "rule"),
        (lambda: Block.parse("block(e8m0fnu,4,e8m0fnu,floor)"), ValueError, "element"),
        (lambda: Block.parse("block(fp32,4,e8m0fnu,floor)"), ValueError, "16 bits"),
        (lambda: Block.parse("block(bf16x2,4,e8m0fnu,floor)"), ValueError, "element"),
        (lambda: Block.parse("block(e2m1fn,4,posit8,floor)"), TypeError, "scale"),
        (lambda: Block.parse("block(e2m1fn,4,fp64,floor)"), ValueError, "32 bits"),
        (lambda: Block.parse("block(e2m1fn,4,e4m3-finite,floor)"), ValueError, "NaN"),
        (lambda: Block.parse("block(e2m1fn,4,e3m2b20fn,nearest)"), ValueError, "no code for it"),
        (lambda: Block.parse("block(e2m1fn,4,e3m2b-20fn,nearest)"), ValueError, "no code for it"),
        (lambda: Block.parse(5), TypeError, "int"),
        (lambda: UnitSpec.parse("mac mxfp4*mxfp4+fp32"), TextError, "block"),
        (lambda: MacSpec.parse("mxfp4*mxfp4+fp32"), ValueError, "blockmac"),
        (lambda: MacSpec(a=BLOCKS["mxfp4"], b=parse("e5m2"), acc=parse("fp32")), TypeError, "not Block"),
        (lambda: BlockMacSpec(a=parse("e5m2"), b=parse("e5m2"), acc=parse("fp32")), TypeError, "block"),
        (lambda: UnitSpec.parse("mxfp4*nvfp4+fp32"), TextError, "length"),
        (lambda: UnitSpec.parse("mxfp4*mxfp4+fp32 step=5"), TextError, "divide"),
        (lambda: UnitSpec.parse("blockdot5 mxfp4*mxfp4"), TextError, "divide"),
        (lambda: UnitSpec.parse("blockquantize fp32>mxfp4.rn.sat"), TextError, "saturate"),
        (lambda: UnitSpec.parse("blockdequantize mxfp4>bf16.exact"), TextError, "exact"),
    ],
)
def test_blocks_refuse(make, error, word):
    with pytest.raises(error, match=word):
        make()


def test_formula_of_blocks_is_a_blockmac():
    spec = UnitSpec.parse("mxfp8_e4m3*mxfp8_e5m2+fp32.sr8")
    assert spec == UnitSpec.parse("blockmac mxfp8_e4m3*mxfp8_e5m2+fp32.sr8")
    assert (spec.form.unit, spec.k, spec.words) == ("blockmac", 32, {"random": 8})
    assert UnitSpec.parse("mxfp4*mxfp4+exact.rz step=8").k == 8
    assert str(UnitSpec.parse("mxfp4*mxfp4+exact").o) == "fp32"


GFLOAT = {
    "mxfp8_e5m2": gfloat.formats.format_info_mxfp8_e5m2,
    "mxfp8_e4m3": gfloat.formats.format_info_mxfp8_e4m3,
    "mxfp6_e3m2": gfloat.formats.format_info_mxfp6_e3m2,
    "mxfp6_e2m3": gfloat.formats.format_info_mxfp6_e2m3,
    "mxfp4": gfloat.formats.format_info_mxfp4_e2m1,
}


def numbers(rng, count, spread):
    """Return binary32 numbers of many magnitudes, with zeros and powers of two."""
    found = [rng.uniform(-2, 2) * 2.0 ** rng.randint(-spread, spread) for _ in range(count)]
    found = [
        rng.choice((0.0, -0.0, math.copysign(2.0 ** math.frexp(x)[1], x))) if rng.random() < 0.2 else x for x in found
    ]
    return np.array(found, dtype=np.float32).astype(np.float64)


@pytest.mark.parametrize("name", GFLOAT)
def test_blocks_match_gfloat(name):
    block, info, rng = BLOCKS[name], GFLOAT[name], random.Random(name)
    assert (info.k, info.etype.emax) == (block.length, block.emax)
    for spread in (0, 1, 3, 8, 20) * 4:
        values = numbers(rng, block.length, spread)
        if not values.any():
            continue
        elements, scale = block.quantize([Fraction(x) if x else x for x in values.tolist()])
        theirs = gfloat.compute_scale_amax(info.etype.emax, values)
        assert float(block.scale.decode(scale)) == theirs
        # gfloat encodes scaled numbers, rounded to nearest even and saturated.
        want = list(gfloat.encode_block(info, theirs, values / theirs, round=gfloat.RoundMode.TiesToEven))
        assert [scale, *elements] == [int(code) for code in want]


def test_scale_follows_the_definition_of_its_rule():
    rng = random.Random(1)
    for text in TOYS:
        block = Block.parse(text)
        powers = [value for value in block.scale.values if isinstance(value, Fraction) and value > 0]
        for _ in range(300):
            largest = Fraction(rng.randint(1, 255)) * Fraction(2) ** rng.randint(-12, 6)
            found = block.scale.decode(block.scale_of(largest))
            assert found in powers
            if found in (min(powers), max(powers)):
                continue
            ratio = largest / found
            if block.rule == "floor":
                assert Fraction(2) ** block.emax <= ratio < Fraction(2) ** (block.emax + 1)
            elif block.rule == "ceil":
                assert block.element.largest / 2 < ratio <= block.element.largest
            elif block.rule == "even":
                # Half a last place below the next power of two rounds up to it.
                half = Fraction(1, 1 << block.element.precision)
                assert (1 - half / 2) * Fraction(2) ** block.emax <= ratio < (2 - half) * Fraction(2) ** block.emax
            else:
                wanted = largest / block.element.largest
                assert all(abs(wanted - found) <= abs(wanted - other) for other in powers)


@pytest.mark.parametrize("text", [*BLOCKS, *TOYS])
def test_blocks_of_zeros_and_specials(text):
    block = Block.parse(text)
    zeros = [0.0, -0.0] * (block.length // 2)
    elements, scale = block.quantize(zeros)
    assert [block.element.decode(code) for code in elements] == [0] * block.length
    assert block.scale.decode(scale) == (block.scale.smallest if str(block.scale).endswith("m0fnu") else 1)
    assert [block.element.negative(code) for code in elements[:2]] == [False, block.element.has_negative_zero]
    for special in (math.nan, math.inf, -math.inf):
        elements, scale = block.quantize([1.0] * (block.length - 1) + [special])
        fp32 = parse("fp32")
        back = exact.blockdequantize(elements, scale, a=block, o=fp32)
        assert all(math.isnan(fp32.decode(code)) for code in back)


def test_elements_saturate_and_scales_are_clamped():
    block = BLOCKS["mxfp4"]
    # 7.5 / 1 rounds beyond 6, the largest element.
    assert block.quantize([Fraction(15, 2)])[0] == [7]
    for mode in ("ru", "sr4"):
        assert block.quantize([Fraction(15, 2)], Rounding.parse(mode), [15 if mode == "sr4" else 0])[0] == [7]
    assert block.quantize([Fraction(2) ** 300]) == ([7], 254)
    assert block.quantize([-(Fraction(2) ** -127)]) == ([8 | 2], 0)
    assert block.quantize([Fraction(2) ** -129]) == ([0], 0)
    nvfp4 = BLOCKS["nvfp4"]
    assert nvfp4.quantize([Fraction(1, 10**6)])[1] == 1
    assert nvfp4.quantize([Fraction(6 * 448)]) == ([7], 0x7E)
    assert nvfp4.quantize([Fraction(6 * 448)], RN, None, Fraction(448)) == ([7], parse("e4m3fn").encode(1))


def test_exact_dot_rounds_once_and_counts_every_term():
    mxfp4 = BLOCKS["mxfp4"]
    one, fp32 = 2, parse("fp32")
    block = Block.parse("block(e2m1fn,17,e8m0fnu,floor)")
    given = {"a": block, "b": block, "o": parse("e4m3fn"), "c": fp32}
    start = fp32.encode(Fraction(1, 64))
    # 16 + 1/64 is above the tie between 16 and 18 only with 1 more.
    assert parse("e4m3fn").decode(exact.blockdot([one] * 17, [one] * 17, 127, 127, start, **given)) == 18
    assert parse("e4m3fn").decode(exact.blockdot([one] * 17, [one] * 17, 127, 127, 0, **given)) == 16
    mac = {"a": mxfp4, "b": mxfp4, "acc": fp32, "step": 2}
    assert fp32.decode(exact.blockmac([one, 9], [one, one], 128, 126, start, **mac)) == Fraction(1, 2) + Fraction(1, 64)
    assert math.isnan(fp32.decode(exact.blockmac([one, one], [one, one], 255, 127, start, **mac)))
