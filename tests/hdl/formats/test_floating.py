"""Floats: decoding and encoding of single codes."""

import math
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from halfulp.hdl.formats import (
    E2M1FN,
    E4M3,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    EXACT,
    FP64,
    ML_DTYPES,
    RD,
    RN,
    RO,
    RU,
    RZ,
    Float,
    parse,
)
from tests.toy_formats import TOYS, finite_codes


@pytest.mark.parametrize("name", [name for name in ML_DTYPES if hasattr(ml_dtypes, name)])
def test_decode_matches_ml_dtypes(name):
    fmt = parse(name)
    dtype = np.dtype(getattr(ml_dtypes, name))
    with np.errstate(invalid="ignore"):
        values = np.arange(1 << fmt.width).astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)
    for code, value in enumerate(values.tolist()):
        number = fmt.decode(code)
        assert number == value or (math.isnan(number) and math.isnan(value))
        assert math.isnan(value) or fmt.negative(code) == (math.copysign(1, value) < 0)
    information = ml_dtypes.finfo(dtype)
    assert float(fmt.largest) == float(information.max)
    assert float(fmt.smallest) == float(information.smallest_subnormal)
    assert fmt.emin == information.minexp


@pytest.mark.parametrize("fmt", TOYS, ids=str)
def test_encode_inverts_decode(fmt):
    for code in range(1 << fmt.width):
        number = fmt.decode(code)
        if isinstance(number, float):
            again = fmt.encode(number)
            assert again == (fmt.nan_code if math.isnan(number) else code)
        else:
            again = fmt.encode_magnitude(abs(number), fmt.negative(code), EXACT)
            flushed = not fmt.subnormals and number == 0
            assert again == (code & fmt.sign_code if flushed and fmt.has_negative_zero else 0 if flushed else code)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("fmt", [fmt for fmt in TOYS if fmt.subnormals], ids=str)
def test_encode_rounds_floats_between_neighbours(fmt):
    """Directed modes give the lower or upper neighbour, nearest modes the nearer one, and ro the odd one."""
    numbers = sorted({fmt.decode(code) for code in finite_codes(fmt)})
    step = Fraction(2) ** (fmt.quantum - 3)
    value = -fmt.largest
    while value <= fmt.largest:
        below = max(number for number in numbers if number <= value)
        above = min(number for number in numbers if number >= value)
        down, up, zero, nearest, odd = (fmt.decode(fmt.encode(value, mode)) for mode in (RD, RU, RZ, RN, RO))
        assert (down, up) == (below, above)
        assert zero == (below if value > 0 else above)
        assert nearest in (below, above)
        assert abs(nearest - value) == min(value - below, above - value)
        if below != above and fmt.man > 0:
            assert fmt.encode(odd) % 2 == 1
        value += step


def test_encode_special_results_of_floats():
    assert E5M2.encode(1e9) == 0x7C
    assert E4M3FN.encode(1e9) == 0x7F
    assert E4M3FNUZ.encode(-1e9) == 0x80
    assert E2M1FN.encode(-1e9) == 0xF
    assert E5M2.encode(1e9, saturate=True) == 0x7B
    assert E5M2.encode(math.inf, saturate=True) == 0x7C
    assert E4M3FN.encode(math.inf, saturate=True) == 0x7F
    assert E2M1FN.encode(math.nan) == 0x8
    assert E4M3.encode(math.nan) == 0x7C
    assert E4M3FNUZ.encode(-0.0) == 0
    p3109 = parse("binary8p4")
    numbers = (1e9, -1e9, math.inf, -math.inf, math.nan, -0.0)
    assert [p3109.encode(number) for number in numbers] == [0x7F, 0xFF, 0x7F, 0xFF, 0x80, 0]
    assert [p3109.encode(number, saturate=True) for number in numbers[:3]] == [0x7E, 0xFE, 0x7F]
    assert E5M2.encode(-0.0) == 0x80
    assert [E5M2.encode(sign * 10**9, mode) for mode in (RU, RD) for sign in (1, -1)] == [0x7C, 0xFB, 0x7B, 0xFC]
    assert [E4M3FN.text(code) for code in (0x80, 0x7F, 0x01, 0x7E)] == ["-0", "nan", "0.001953125", "448"]
    assert FP64.text(1) == "4.94065646e-324"
    huge = Float(11, 52, bias=-4096)
    assert [huge.text(code) for code in (1, huge.max_code, huge.sign_code | 1)] == [
        "4.63801833e+1217",
        "1.68757609e+1849",
        "-4.63801833e+1217",
    ]


@pytest.mark.parametrize("name", ["e5m2", "posit8", "takum8", "fxp4.4", "e8m0fnu"])
def test_encode_takes_scalars_of_other_libraries(name):
    """Numbers of numpy and decimal numbers are exact; what is no number is refused in one sentence."""
    fmt = parse(name)
    for number in (np.int64(-(2**63)), np.uint64(2**64 - 1), np.float16(1.3), np.float32(-0.7), np.float64(2.1)):
        exact = Fraction(number.item())
        for mode in ("rn", "rz"):
            assert fmt.encode(number, mode) == fmt.encode(exact, mode)
    assert fmt.encode(Decimal("0.1"), "ru") == fmt.encode(Fraction(1, 10), "ru")
    code = fmt.encode(Fraction(3, 10), "sr8", random=np.int64(200))
    assert type(code) is int
    assert code == fmt.encode(Fraction(3, 10), "sr8", random=200)
    for special in (np.float32(-0.0), np.float16("inf"), np.float32("-inf"), np.float32("nan"), Decimal("-0")):
        assert fmt.encode(special) == fmt.encode(float(special))
    for wrong in ("1", None, 1j, np.bool_(True), np.array([1.5]), torch.tensor(1.5)):
        with pytest.raises(TypeError, match="must be an int, a float or a Fraction"):
            fmt.encode(wrong)


def test_encode_flushes_after_rounding():
    fmt = parse("e5m2-ftz")
    smallest = Fraction(2) ** fmt.emin
    assert fmt.encode(smallest * Fraction(15, 16)) == fmt.encode(smallest)
    assert fmt.encode(smallest * Fraction(14, 16)) == 0
    assert fmt.encode(-smallest * Fraction(14, 16)) == 0x80
    assert fmt.encode(smallest / 8, RU) == 0
