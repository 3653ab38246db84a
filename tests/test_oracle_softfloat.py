"""Golden model against Berkeley SoftFloat, in its five rounding modes, on vectors at ties and boundaries.

SoftFloat keeps NaN payloads and halfulp has one canonical NaN, so NaN is compared as a class. Every other bit must be
equal. Tininess detection changes flags of SoftFloat and no result.
"""

import numpy as np
import pytest
import softfloatpy as softfloat
import torch

from halfulp import golden
from halfulp.hdl.formats import BF16, FP16, FP32, FP64, Rounding
from halfulp.sim.corner_cases import corner_cases
from halfulp.sim.ports import Ports
from halfulp.sim.vectors import make
from tests.short_form import build

COUNT = 1 << 17
"""Vectors per operation, format and mode."""

MODES = {
    "rn": softfloat.RoundingMode.NEAR_EVEN,
    "ra": softfloat.RoundingMode.NEAR_MAX_MAG,
    "rz": softfloat.RoundingMode.MIN_MAG,
    "ru": softfloat.RoundingMode.MAX,
    "rd": softfloat.RoundingMode.MIN,
}

TYPES = {
    FP16: ("f16", softfloat.Float16),
    FP32: ("f32", softfloat.Float32),
    FP64: ("f64", softfloat.Float64),
    BF16: ("bf16", softfloat.BFloat16),
}


def numbers(codes, fmt):
    """Convert codes to numbers of SoftFloat."""
    size = fmt.width // 8
    raw = codes.astype(f">u{size}").tobytes()
    make_number = TYPES[fmt][1].from_bytes
    return [make_number(raw[start : start + size]) for start in range(0, len(raw), size)]


def codes_of(results, fmt):
    """Convert numbers of SoftFloat to codes."""
    return np.frombuffer(b"".join(number.to_bytes() for number in results), dtype=f">u{fmt.width // 8}").astype(
        np.uint64
    )


def tensor(codes):
    """Convert codes to tensors for the golden model."""
    return torch.from_numpy(codes.astype(np.uint64).view(np.int64))


def is_nan(codes, fmt):
    """Return a mask of the codes that are NaN."""
    return (codes & np.uint64(fmt.sign_code - 1)) > np.uint64(fmt.inf_code)


def differences(found, wanted, fmt):
    """Return the positions of codes that differ and are not both NaN."""
    both_nan = is_nan(found, fmt) & is_nan(wanted, fmt)
    return np.flatnonzero((found != wanted) & ~both_nan)


def golden_codes(result):
    """Convert codes of the golden model to unsigned ones."""
    return result.numpy().view(np.uint64)


@pytest.fixture
def rounding(request):
    """Set the rounding mode of SoftFloat within the context, and yield its name."""
    softfloat.set_rounding_mode(MODES[request.param])
    yield Rounding.parse(request.param)
    softfloat.set_rounding_mode(softfloat.RoundingMode.NEAR_EVEN)


OPERATIONS = {"mul": "mul", "add": "add", "sub": "sub", "fma": "mul_add", "div": "div", "sqrt": "sqrt"}


def compare(operation, fmt, rounding):
    """Return the vectors, and the positions where golden model and SoftFloat differ."""
    unit = build({"sub": "add"}.get(operation, operation), fmt, rounding=rounding)
    names = [name for name in unit.inputs if name != "subtract"]
    corners = corner_cases(unit)
    vectors = make(Ports.of(dict.fromkeys(names, fmt)), [fmt], seed=len(str(rounding)), limit=COUNT, corners=corners)
    columns = [vectors.codes[name] for name in names]
    function = getattr(softfloat, f"{TYPES[fmt][0]}_{OPERATIONS[operation]}")
    wanted = codes_of(map(function, *(numbers(column, fmt) for column in columns)), fmt)
    extra = {"sub": [1], "add": [0]}.get(operation, [])
    found = getattr(golden, {"sub": "add"}.get(operation, operation))(
        *map(tensor, columns), *extra, **{**unit.parameters, "rounding": rounding}
    )
    return vectors, differences(golden_codes(found), wanted, fmt)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_match_softfloat(operation, fmt, rounding, oracle):
    vectors, wrong = compare(operation, fmt, rounding)
    assert vectors.exhaustive or vectors.count >= 100_000
    assert wrong.tolist() == []
    oracle("SoftFloat", {"sub": "add"}.get(operation, operation), vectors.count, fmt)


@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize(
    ("source", "target"),
    [(FP64, FP32), (FP64, FP16), (FP32, FP16), (FP32, BF16), (FP16, FP32), (FP16, FP64), (FP32, FP64), (BF16, FP32)],
    ids=str,
)
def test_convert_matches_softfloat(source, target, rounding, oracle):
    if source.width == 16:
        codes = np.arange(1 << 16, dtype=np.uint64)
    else:
        codes = make(Ports.of({"a": source}), [target], seed=7, limit=COUNT).codes["a"]
    function = getattr(softfloat, f"{TYPES[source][0]}_to_{TYPES[target][0]}")
    wanted = codes_of(map(function, numbers(codes, source)), target)
    found = golden_codes(golden.convert(tensor(codes), a=source, o=target, rounding=rounding))
    assert len(codes) >= 1 << 16
    assert differences(found, wanted, target).tolist() == []
    oracle("SoftFloat", "convert", len(codes), source, target)


@pytest.mark.parametrize("rounding", ["rn"], indirect=True)
def test_softfloat_comparison_can_fail(rounding):
    """The vectors distinguish ties away from zero and ties to even."""
    _, wrong = compare("fma", FP64, Rounding.parse("ra"))
    assert len(wrong) > 100
