"""Unsigned powers of two against ml_dtypes, and all models of them against each other."""

import ml_dtypes
import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import ML_DTYPES, Rounding, Scale, parse
from halfulp.hdl.formats.rounding import MODES
from halfulp.hdl.specs import UNITS
from tests.agreement.test_exhaustive import mismatches

E8M0FNU = parse("e8m0fnu")


def test_every_code_decodes_as_ml_dtypes():
    assert Scale(8) == E8M0FNU == parse("float8_e8m0fnu")
    reals = np.arange(256).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    assert np.array_equal(reals, [float(value) for value in E8M0FNU.values], equal_nan=True)
    assert np.array_equal(reals, golden.decode(torch.arange(256), E8M0FNU).numpy(), equal_nan=True)


@pytest.mark.parametrize("source", [name for name in ML_DTYPES if name != "float64"])
def test_casts_to_scale_match_ml_dtypes(source):
    dtype, fmt = np.dtype(getattr(ml_dtypes, source, source)), parse(source)
    codes = np.arange(1 << min(fmt.width, 16)).astype(f"u{dtype.itemsize}")
    if fmt.width == 32:
        codes = np.concatenate([codes << 16 | low for low in (0, 1, 0x8000, 0xFFFF)])
    with np.errstate(all="ignore"):
        reals = codes.view(dtype)
        # Not all of its types have a direct cast.
        want = reals.astype(np.float32).astype(ml_dtypes.float8_e8m0fnu).view(np.uint8).astype(np.int64)
    got = golden.convert(torch.from_numpy(codes.astype(np.int64)), a=fmt, o=E8M0FNU).numpy()
    # ml_dtypes rounds subnormal numbers above 2^-127 up, also those below the midpoint 1.5 * 2^-127.
    with np.errstate(all="ignore"):
        wide = reals.astype(np.float64)
    up = (wide > 2.0**-127) & (wide < 1.5 * 2.0**-127)
    assert np.array_equal(np.where(up, got + 1, got), want)
    assert (got[up] == 0).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", [*MODES, "sr1", "sr3"])
def test_conversions_match_exact(mode):
    rounding, target = Rounding.parse(mode), parse("e3m0fnu")
    for source in map(parse, ("e4m3", "fxp5.4", "posit8", "nf4", "e4m0fnu")):
        codes = torch.arange(256) % (1 << source.width)
        for words in range(1 << rounding.bits) if rounding.bits else [0]:
            for saturate in (False, True):
                random = torch.full_like(codes, words) if rounding.bits else None
                given = {"a": source, "o": target, "rounding": rounding, "saturate": saturate}
                want = [exact.convert(code, **given, random=words) for code in codes.tolist()]
                # The kernel computes many codes, and torch computes few.
                assert golden.convert(codes, **given, random=random).tolist() == want
                short = slice(None, 1 << min(source.width, 6))
                few = None if random is None else random[short]
                assert golden.convert(codes[short], **given, random=few).tolist() == want[short]


def test_scale_has_no_exact_code_of_other_numbers():
    assert E8M0FNU.encode(0.25, "exact") == 125
    for value in (0.0, -1.0, 2.0**-128, 3.0):
        with pytest.raises(ValueError, match="exact"):
            E8M0FNU.encode(value, "exact")


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("operand", "targets"), [("e4m3", ["e3m0fnu"]), ("e4m0fnu", ["e4m3", "e3m0fnu", "fxp4.4"]), ("fxp3.3", ["e3m0fnu"])]
)
@pytest.mark.parametrize("saturate", [False, True])
def test_rtl_of_conversions_matches_golden_on_every_input(operand, targets, saturate):
    checks, failed = mismatches("convert", operand, targets, [*MODES, "sr3"], saturate=saturate)
    assert checks > 0
    assert not failed


@pytest.mark.parametrize("unit", [name for name, cls in UNITS.items() if cls.form.parts[0] == "a"])
def test_only_conversions_take_scales(unit):
    cls = UNITS[unit]
    assert cls.takes(E8M0FNU, None) == (unit == "convert")
    if unit in ("mul", "add", "fma", "compare", "dot"):
        with pytest.raises(ValueError, match="scale of blocks"):
            cls.filled(E8M0FNU)
