"""Requantization against exact fractions, the published formulas of TensorFlow Lite, torch, and the RTL.

TensorFlow Lite 2.17: ``MultiplyByQuantizedMultiplier`` in ``tensorflow/lite/kernels/internal/common.cc``, with one
rounding and with that of gemmlowp (``fixedpoint/fixedpoint.h``), written here on integers.
"""

import random

import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import RequantizeSpec, UnitSpec
from halfulp.sim.bench import run
from halfulp.units import Requantize
from tests.every_unit import exact_mismatches, rtl_mismatches

SINGLE = "requantize int32*fxp1.31,uint5>int8.rhu"
GEMMLOWP = "requantize int32*fxp1.31=int32.rhu,uint5>int8.ra"

TOYS = (
    "requantize int4*fxp1.2,uint2>int3.rn",
    "requantize int4*fxp1.3=int4.rhu,uint2>int3.ra",
    "requantize uint4*ufxp1.2,int3>uint3.ra",
    "requantize fxp2.3*fxp1.2,uint2>fxp2.1.sr2",
    "requantize int4*int3=fxp3.-1-wrap.rn,uint2>fxp3.1.ro",
    "requantize int3*uint2,int2>uint2.rd",
)
"""Units of which all inputs are tested."""

TEXTS = (SINGLE, GEMMLOWP, "requantize int32*int16,uint6>int16.rn", "requantize uint16*fxp1.15,int4>uint8.sr8")


@pytest.mark.parametrize("text", [*TOYS, *TEXTS])
def test_golden_matches_exact(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=8, count=256)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.parametrize("text", TOYS)
def test_golden_of_toys_matches_exact_for_all_inputs(text):
    spec = UnitSpec.parse(text)
    checks, failed = exact_mismatches(spec, most_bits=17)
    assert not failed
    assert checks == 1 << sum(port.shape.width for port in spec.operand_ports) + spec.rounding.bits


@pytest.mark.sampled(10)
@pytest.mark.parametrize("text", [*TOYS, SINGLE, GEMMLOWP, "requantize int32*int16,uint6>int16.rn"])
def test_rtl_matches_golden(text):
    spec = UnitSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=17, count=1 << 14)
    assert not failed
    assert checks


def single_rounding(x, multiplier, right_shift, zero, low, high):
    """Return the result of TensorFlow Lite with TFLITE_SINGLE_ROUNDING."""
    total_shift = 31 + right_shift
    result = (x * multiplier + (1 << (total_shift - 1))) >> total_shift
    return min(max(result + zero, low), high)


def truncated(x, y):
    """Return x / y without its fraction, as the division of C++."""
    return abs(x) // y * (1 if x >= 0 else -1)


def double_rounding(x, multiplier, right_shift, zero, low, high):
    """Return the result of gemmlowp: SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT."""
    product = x * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    doubled = (1 << 31) - 1 if x == multiplier == -(1 << 31) else truncated(product + nudge, 1 << 31)
    mask = (1 << right_shift) - 1
    remainder, threshold = doubled & mask, (mask >> 1) + (doubled < 0)
    result = (doubled >> right_shift) + (remainder > threshold)
    return min(max(result + zero, low), high)


def operands(count):
    """Return accumulators, multipliers, shifts and zero points: ends, ties and any."""
    rng, ends = random.Random(1), (-(1 << 31), -(1 << 31) + 1, -1, 0, 1, (1 << 31) - 1)
    rows = [(x, y, s, z) for x in ends for y in ends for s in (0, 1, 7, 31) for z in (-128, 0, 5, 127)]
    while len(rows) < count:
        shift = rng.randrange(32)
        multiplier = rng.choice((1 << 30, rng.randrange(1 << 30, 1 << 31), rng.randrange(ends[0], 1 << 31)))
        # Halves of the result's last place, and their neighbours, for multipliers that are powers of two.
        tie = (2 * rng.randrange(-300, 300) + 1 << shift) + rng.randrange(-1, 2)
        x = rng.choice((rng.randrange(ends[0], 1 << 31), tie))
        rows.append((min(max(x, ends[0]), ends[-1]), multiplier, shift, rng.randrange(-128, 128)))
    return rows


@pytest.mark.parametrize(("text", "model"), [(SINGLE, single_rounding), (GEMMLOWP, double_rounding)])
def test_requantize_has_the_bits_of_tensorflow_lite(text, model):
    rows = operands(20_000)
    codes = [
        torch.tensor(column) & (1 << width) - 1
        for column, width in zip(zip(*rows, strict=True), (32, 32, 5, 8), strict=True)
    ]
    found = golden.requantize(*codes, **UnitSpec.parse(text).parameters)
    wanted = [model(*row, -128, 127) & 0xFF for row in rows]
    assert found.tolist() == wanted


def test_single_and_double_rounding_differ():
    """(2^30 - 1/2) / 2^31 is below a half; gemmlowp rounds the product to 2^30, whose quotient is a tie."""
    row = ((1 << 31) - 1, 1 << 30, 31, 0, -128, 127)
    assert (single_rounding(*row), double_rounding(*row)) == (0, 1)


@pytest.mark.parametrize("o", ["int8", "uint8"])
def test_requantize_of_channels_matches_torch(o):
    """Accumulators divided by powers of two.

    torch rounds to nearest, ties to even, before or after it adds the zero point, which makes no difference if that is
    even. ONNX rounds before, as this unit does.
    """
    x = torch.randint(-(1 << 13), 1 << 13, (500, 6), generator=torch.Generator().manual_seed(2))
    shifts, zeros, fmt = torch.arange(1, 7), torch.tensor([0, 4, 18, 64, 2, 126]), parse(o)
    ends = fmt.lowest_integer, fmt.largest_integer
    values = torch.fake_quantize_per_channel_affine(x.float(), 2.0**shifts, zeros.int(), 1, *ends)
    how = {"a": "int16", "multiplier": "int2", "shift": "uint3", "o": o}
    found = golden.requantize(x & 0xFFFF, torch.tensor(1), shifts, zeros, **how)
    assert torch.equal(found, (values / 2.0**shifts + zeros).long() & 0xFF)


@pytest.mark.slow
def test_bench_runs_requantize_and_detects_faults():
    class Biased(Requantize):
        """Shifts by one place less if the shift is odd."""

        def _shifted(self, m, x, shift):
            return super()._shifted(m, x, type(shift)(shift.integer & ~1, shift.sign, shift.quantum))

    report = run(Requantize.of(f"{TOYS[0]}"), limit=1 << 11)
    assert report.checks
    assert not report.failed
    assert run(Biased(a="int4", multiplier="fxp1.2", shift="uint2", o="int3"), limit=1 << 11).failed


def test_description_has_documented_defaults():
    assert str(RequantizeSpec.filled(parse("int32"))) == "requantize int32*fxp1.31,uint5>int8.rn"
    spec = UnitSpec.parse(GEMMLOWP)
    assert spec.scaled == parse("int10")
    assert list(Requantize.of(spec).inputs) == ["a", "multiplier", "shift", "zero"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("requantize e5m2*fxp1.31,uint5>int8", "fixed point"),
        ("requantize int32*fxp1.31,uint9>int8", "up to 8 bits"),
        ("requantize int32*fxp1.31,fxp4.1>int8", "integer"),
        ("requantize int32*fxp1.31,uint5>int8-wrap", "saturate"),
        ("requantize int32*fxp1.31,uint5>int63", "up to 62 bits"),
        ("requantize int32*fxp1.31,uint5>int8.rn.sat", "omit .sat"),
        ("requantize int32*fxp1.31,uint5>int8.exact", "exact"),
        ("requantize int32*fxp1.31=int32.sr3,uint5>int8", "product"),
        ("requantize int32*fxp1.31=int32.rn,int5>int8", "unsigned"),
        ("requantize int32*fxp1.31,uint5>int8 flags", "flags"),
    ],
)
def test_requantize_rejects_description(text, word):
    with pytest.raises((ValueError, TypeError), match=word):
        UnitSpec.parse(text)
