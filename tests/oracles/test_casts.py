"""Conversions of the golden model against casts of ml_dtypes and torch, from every 8- and 16-bit code.

Casts keep NaN signs and payloads and halfulp has one canonical NaN, so NaN is compared as a class. The tests list all
other differences. The type e8m0fnu is in `test_scale.py`.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import ML_DTYPES, Float, parse
from halfulp.sim.ports import Ports
from halfulp.sim.vectors import make

FORMATS = {name: parse(name) for name in ML_DTYPES}

TORCH = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dtype_of(name):
    """Return the type of numpy or ml_dtypes with a name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def is_nan(codes, fmt):
    """Return a mask of the codes that are NaN."""
    magnitude = codes & np.uint64(fmt.sign_code - 1)
    if fmt.specials == "fnuz":
        return codes == np.uint64(fmt.sign_code)
    return magnitude > np.uint64(fmt.max_code + fmt.has_inf) if fmt.has_nan else np.zeros(codes.shape, bool)


def by_ml_dtypes(codes, source, target):
    """Cast codes between types of ml_dtypes and numpy."""
    size, out = dtype_of(source).itemsize, dtype_of(target)
    values = codes.astype(f"u{size}").view(dtype_of(source))
    with np.errstate(all="ignore"):
        return values.astype(out).view(f"u{out.itemsize}").astype(np.uint64)


def by_torch(codes, source, target):
    """Cast codes between types of torch."""
    size, out = TORCH[source].itemsize, TORCH[target].itemsize
    raw = torch.from_numpy(codes.view(np.int64)).to(BITS[size]).view(TORCH[source]).to(TORCH[target]).view(BITS[out])
    return raw.to(torch.int64).numpy().view(np.uint64) & np.uint64((1 << 8 * out) - 1)


def by_golden(codes, source, target, saturate=False):
    """Convert codes by the golden model."""
    tensor = torch.from_numpy(codes.view(np.int64))
    found = golden.convert(tensor, a=FORMATS[source], o=FORMATS[target], saturate=saturate)
    return found.numpy().view(np.uint64)


def rounded_first(codes, source, target, own):
    """Return the operands of the last step of a cast: codes and the name of their format.

    Casts from float64 to a narrow type in ``own`` go by way of float32 and round twice.
    """
    if source == "float64" and target in own:
        return by_golden(codes, source, "float32"), "float32"
    return codes, source


def assert_same(found, wanted, fmt: Float):
    """Check that every code is equal or both are NaN."""
    differ = (found != wanted) & ~(is_nan(found, fmt) & is_nan(wanted, fmt))
    assert np.flatnonzero(differ).tolist() == []


def every_code(source):
    """Return all codes of an 8- or 16-bit format, or codes at ties, boundaries and random ones."""
    fmt = FORMATS[source]
    if fmt.width <= 16:
        return np.arange(1 << fmt.width, dtype=np.uint64)
    narrow = [parse(name) for name in ("bf16", "fp16", "e4m3fn", "e5m2", "e2m1fn")]
    return np.concatenate([make(Ports.of({"a": fmt}), [target], seed=3, limit=1 << 16).codes["a"] for target in narrow])


@pytest.mark.sampled(30, 3)
@pytest.mark.parametrize(("source", "target"), list(itertools.product(FORMATS, FORMATS)))
def test_convert_matches_ml_dtypes(source, target, oracle):
    codes, fmt = every_code(source), FORMATS[target]
    wanted = by_ml_dtypes(codes, source, target)
    nan = is_nan(codes, FORMATS[source])
    negative = (codes & np.uint64(FORMATS[source].sign_code)) != 0
    codes, source = rounded_first(codes, source, target, own=[name for name in FORMATS if hasattr(ml_dtypes, name)])
    found = by_golden(codes, source, target)
    if not fmt.has_nan:
        # For a format without NaN, ml_dtypes converts NaN to the zero of the opposite sign. The canonical NaN of
        # halfulp has no sign, and always gives -0.
        assert (found[nan] == fmt.nan_code).all()
        assert (wanted[nan & ~negative] == fmt.nan_code).all()
        codes, wanted, found = codes[~nan], wanted[~nan], found[~nan]
    assert_same(found, wanted, fmt)
    assert len(codes) >= (1 << FORMATS[source].width) - 2 * (1 << FORMATS[source].man) or len(codes) > 10**5
    oracle("ml_dtypes", "convert", len(codes), fmt)


@pytest.mark.sampled(12, 3)
@pytest.mark.parametrize(("source", "target"), list(itertools.product(TORCH, TORCH)))
def test_convert_matches_torch(source, target, oracle):
    codes, fmt = every_code(source), FORMATS[target]
    wanted = by_torch(codes, source, target)
    codes, source = rounded_first(codes, source, target, own=[name for name in TORCH if FORMATS[name].width <= 16])
    # torch saturates overflows and infinities to e4m3fn, as halfulp does on request.
    found = by_golden(codes, source, target, saturate="satfinite" if target == "float8_e4m3fn" else False)
    assert_same(found, wanted, fmt)
    assert len(codes) >= 254
    oracle("PyTorch", "convert", len(codes), fmt)


@pytest.mark.parametrize("name", TORCH)
def test_decode_matches_torch(name):
    codes = every_code(name)
    size = TORCH[name].itemsize
    values = torch.from_numpy(codes.view(np.int64)).to(BITS[size]).view(TORCH[name]).to(torch.float64)
    decoded = golden.decode(torch.from_numpy(codes.view(np.int64)), FORMATS[name])
    assert torch.equal(decoded.isnan(), values.isnan())
    assert torch.equal(decoded.nan_to_num().view(torch.int64), values.nan_to_num().view(torch.int64))


def test_casts_comparison_can_fail():
    codes = every_code("float32")
    wanted = by_ml_dtypes(codes, "float32", "float8_e5m2")
    one_bit = wanted.copy()
    one_bit[len(codes) // 2] ^= np.uint64(1)
    with pytest.raises(AssertionError):
        assert_same(one_bit, wanted, FORMATS["float8_e5m2"])


def test_casts_comparison_detects_double_rounding():
    """Without its float32 step, the cast of float64 by ml_dtypes is not correctly rounded."""
    codes = every_code("float64")
    wanted = by_ml_dtypes(codes, "float64", "bfloat16")
    assert (by_golden(codes, "float64", "bfloat16") != wanted).sum() > 1000
