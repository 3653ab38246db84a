"""Golden model against Berkeley SoftFloat, in its five rounding modes, on vectors at ties and boundaries.

SoftFloat keeps NaN payloads and halfulp has one canonical NaN, so NaN is compared as a class. Every other bit must be
equal. Tininess detection changes flags of SoftFloat and no result.
"""

import ctypes
import functools
import subprocess

import numpy as np
import pytest
import softfloatpy as softfloat
import torch

from halfulp import golden
from halfulp.hdl.formats import BF16, FP16, FP32, FP64, Rounding, parse
from halfulp.sim.corner_cases import corner_cases
from halfulp.sim.corner_middles import middles
from halfulp.sim.fields import Grid
from halfulp.sim.ports import Ports
from halfulp.sim.toolchain import compiler, compiler_version
from halfulp.sim.vectors import make
from halfulp.tools.cache import cached
from tests.settings import EXHAUSTIVE
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

TYPES = {FP16: "f16", FP32: "f32", FP64: "f64", BF16: "bf16"}

LOOP = """
#include <cstdint>
using Operation = uint64_t (*)(uint64_t, uint64_t, uint64_t);

extern "C" void loop(Operation operation, volatile uint8_t *flags, int64_t count, const uint64_t *x, const uint64_t *y,
                     const uint64_t *z, uint64_t mask, uint64_t *results, int64_t *raised) {
    for (int64_t i = 0; i < count; ++i) {
        *flags = 0;
        results[i] = operation(x[i], y[i], z[i]) & mask;
        raised[i] = *flags;
    }
}
"""
"""Calls of a function of SoftFloat, whose numbers are structures of one integer and so passed as integers."""


@functools.cache
def library():
    """Return the C functions of SoftFloat in the extension module of softfloatpy."""
    return ctypes.CDLL(softfloat._core.__file__)


@functools.cache
def loop():
    """Return the compiled loop."""

    def make(folder):
        (folder / "loop.cpp").write_text(LOOP)
        command = [*compiler(), "-O2", "-shared", "-fPIC", "-o", folder / "loop.so", folder / "loop.cpp"]
        subprocess.run(command, check=True)

    return ctypes.CDLL(cached("softfloat", (LOOP, compiler_version()), make) / "loop.so").loop


def softfloat_results(name, columns, fmt):
    """Return the codes of a function of SoftFloat and its flags, whose bits are in the order of the golden model."""
    count = len(columns[0])
    given = [np.ascontiguousarray(column, dtype=np.uint64) for column in columns]
    given += [np.zeros(count, dtype=np.uint64)] * (3 - len(given))
    results, raised = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.int64)
    loop()(
        ctypes.cast(getattr(library(), name), ctypes.c_void_p),
        ctypes.byref(ctypes.c_uint8.in_dll(library(), "softfloat_exceptionFlags")),
        ctypes.c_int64(count),
        *(ctypes.c_void_p(column.ctypes.data) for column in given),
        ctypes.c_uint64((1 << fmt.width) - 1),
        *(ctypes.c_void_p(column.ctypes.data) for column in (results, raised)),
    )
    return results, raised


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


OPERATIONS = {
    "mul": "mul",
    "add": "add",
    "sub": "sub",
    "fma": "mulAdd",
    "div": "div",
    "sqrt": "sqrt",
    "rint": "roundToInt",
    "remainder": "rem",
}


def expected(operation, columns, fmt):
    """Return codes and flags of an operation of SoftFloat."""
    if operation == "rint":
        mode = ctypes.c_uint8.in_dll(library(), "softfloat_roundingMode").value
        # Its other arguments: the mode, and that an integer which is not the operand is inexact.
        columns = [columns[0], np.full_like(columns[0], mode), np.ones_like(columns[0])]
    return softfloat_results(f"{TYPES[fmt]}_{OPERATIONS[operation]}", columns, fmt)


def compare(operation, fmt, rounding):
    """Return the vectors, and the positions where golden model and SoftFloat differ."""
    unit = build({"sub": "add"}.get(operation, operation), fmt, rounding=rounding)
    ports = Ports(tuple(port for port in Ports.inputs_of(unit) if port.fmt is not None))
    names, corners = list(ports.formats), corner_cases(unit)
    vectors = make(ports, [fmt], seed=len(str(rounding)), limit=COUNT, corners=corners)
    columns = [vectors.codes[name] for name in names]
    wanted, _ = expected(operation, columns, fmt)
    extra = {"sub": [1], "add": [0]}.get(operation, [])
    found = getattr(golden, {"sub": "add"}.get(operation, operation))(
        *map(tensor, columns), *extra, **{**unit.parameters, "rounding": rounding}
    )
    return vectors, differences(golden_codes(found), wanted, fmt)


@pytest.mark.sampled(72, 6)
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_match_softfloat(operation, fmt, rounding, oracle):
    vectors, wrong = compare(operation, fmt, rounding)
    assert vectors.exhaustive or vectors.count >= 100_000
    assert wrong.tolist() == []
    oracle("SoftFloat", {"sub": "add"}.get(operation, operation), vectors.count, fmt)


@pytest.mark.sampled(5)
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
    wanted, _ = softfloat_results(f"{TYPES[source]}_to_{TYPES[target]}", [codes], target)
    found = golden_codes(golden.convert(tensor(codes), a=source, o=target, rounding=rounding))
    assert len(codes) >= 1 << 16
    assert differences(found, wanted, target).tolist() == []
    oracle("SoftFloat", "convert", len(codes), source, target)


FLAG_COUNT = 1_000_000
"""Vectors per operation, format, mode and tininess whose flags are compared in `make test-all`."""

FEW = 1 << 11
"""Such vectors in `make test`."""


def flag_differences(operation, fmt, rounding, tininess, count):
    """Return the number of vectors, and the positions where codes or flags of golden model and SoftFloat differ."""
    name = {"sub": "add"}.get(operation, operation)
    unit = build(name, fmt, rounding=rounding)
    ports = Ports(tuple(port for port in Ports.inputs_of(unit) if port.fmt is not None))
    names = list(ports.formats)
    vectors = make(ports, [fmt], seed=len(operation), limit=count, corners=corner_cases(unit))
    columns = [vectors.codes[name][:count] for name in names]
    # One operand in sixteen is a signalling NaN.
    rng = np.random.default_rng(5)
    signalling = rng.random(len(columns[0])) < 1 / 16
    columns[0] = np.where(signalling, np.uint64(fmt.inf_code + 1), columns[0])
    softfloat.set_tininess_mode(TININESS[tininess])
    results, wanted = expected(operation, columns, fmt)
    softfloat.set_tininess_mode(TININESS["after"])
    extra = {"sub": [1], "add": [0]}.get(operation, [])
    parameters = unit.parameters | {"rounding": rounding, "flags": tininess}
    found = getattr(golden, name)(*map(tensor, columns), *extra, **parameters)
    wrong = differences(golden_codes(found.o), results, fmt)
    return len(results), sorted({*wrong.tolist(), *np.flatnonzero(found.flags.numpy() != wanted).tolist()})


TININESS = {"after": softfloat.TininessMode.AFTER_ROUNDING, "before": softfloat.TininessMode.BEFORE_ROUNDING}


@pytest.mark.parametrize(
    ("operation", "fmt", "rounding", "tininess"),
    [
        ("mul", FP16, "rn", "after"),
        ("fma", FP16, "ru", "before"),
        ("add", FP32, "rd", "after"),
        ("div", FP16, "rz", "before"),
        ("sqrt", FP16, "ra", "after"),
        ("rint", FP32, "ra", "after"),
        ("remainder", FP16, "rn", "after"),
    ],
    indirect=["rounding"],
    ids=str,
)
def test_some_flags_match_softfloat(operation, fmt, rounding, tininess):
    count, wrong = flag_differences(operation, fmt, rounding, tininess, FEW)
    assert count == FEW
    assert wrong == []


def count_of(tininess):
    """Return the number of vectors: fewer of the tininess that is not the default."""
    return FLAG_COUNT if tininess == "after" or EXHAUSTIVE else FLAG_COUNT // 10


@pytest.mark.slow
@pytest.mark.sampled(12, 12)
@pytest.mark.parametrize("tininess", TININESS)
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_flags_match_softfloat(operation, fmt, rounding, tininess):
    # A remainder of fp64 has up to 2,098 rows.
    most = FLAG_COUNT // 10 if operation == "remainder" and fmt == FP64 and not EXHAUSTIVE else count_of(tininess)
    count, wrong = flag_differences(operation, fmt, rounding, tininess, most)
    assert count >= (1 << 16 if operation in ("sqrt", "rint") and fmt == FP16 else most)
    assert wrong == []


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("tininess", TININESS)
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize(
    ("source", "target"), [(FP64, FP32), (FP64, FP16), (FP32, FP16), (FP16, FP32), (FP32, FP64)], ids=str
)
def test_flags_of_conversions_match_softfloat(source, target, rounding, tininess):
    if source.width == 16:
        codes = np.arange(1 << 16, dtype=np.uint64)
    else:
        codes = make(Ports.of({"a": source}), [target], seed=7, limit=FLAG_COUNT).codes["a"]
    softfloat.set_tininess_mode(TININESS[tininess])
    results, wanted = softfloat_results(f"{TYPES[source]}_to_{TYPES[target]}", [codes], target)
    softfloat.set_tininess_mode(TININESS["after"])
    found = golden.convert(tensor(codes), a=source, o=target, rounding=rounding, flags=tininess)
    assert differences(golden_codes(found.o), results, target).tolist() == []
    assert np.flatnonzero(found.flags.numpy() != wanted).tolist() == []


INVALID = 16
"""Flag of a conversion beyond the range of an integer."""

INTEGERS = {"i32": "int32", "ui32": "uint32", "i64": "int64", "ui64": "uint64"}
"""Formats of the integers of SoftFloat."""


def near_integers(source, width, count):
    """Return codes of floats: directed ones, and as many in the range of an integer, at and next to middles."""
    rng = np.random.default_rng(width)
    directed = make(Ports.of({"a": source}), [source], seed=7, limit=count // 2).codes["a"]
    rest, grid = count - len(directed), Grid.of(source)
    exponent = rng.integers(-3, min(width + 1, grid.emax), rest, endpoint=True)
    patterns = grid.patterns(rng, exponent, np.zeros(rest, dtype=np.int64))
    # Few negative numbers, because they are beyond the range of an unsigned integer.
    sign = (rng.random(rest) < 1 / 4).astype(np.int64)
    return np.concatenate([directed, grid.compose(sign, exponent, patterns)])


def integer_differences(source, integer, rounding, count):
    """Return conversions to an integer: their number, that of invalid ones, and the positions that differ.

    A NaN gives 0 in halfulp, and the largest integer in SoftFloat as compiled for RISC-V.
    """
    target = parse(INTEGERS[integer])
    codes = np.arange(1 << 16, dtype=np.uint64) if source.width == 16 else near_integers(source, target.width, count)
    mode = np.full(len(codes), MODES[str(rounding)], dtype=np.uint64)
    results, flags = softfloat_results(f"{TYPES[source]}_to_{integer}", [codes, mode, np.ones_like(codes)], target)
    found = golden.convert(tensor(codes), a=source, o=target, rounding=rounding, flags=True)
    codes_of_nan = np.uint64((1 << target.width - target.signed) - 1), np.uint64(0)
    wanted = np.where(is_nan(codes, source) & (results == codes_of_nan[0]), codes_of_nan[1], results)
    wrong = golden_codes(found.o) != wanted
    return len(codes), int((flags == INVALID).sum()), np.flatnonzero(wrong | (found.flags.numpy() != flags)).tolist()


def float_differences(integer, target, rounding, count):
    """Return conversions of integers to floats: their number, and the positions that differ."""
    source = parse(INTEGERS[integer])
    rng = np.random.default_rng(source.width)
    # Integers of all lengths, with bits at and next to a middle of the float.
    exponent = rng.integers(0, source.width, count)
    place = np.maximum(exponent - target.man, 0)
    grid = Grid.of(source)
    codes = grid.compose(rng.integers(0, 2, count), exponent, grid.patterns(rng, exponent, place))
    results, flags = softfloat_results(f"{integer}_to_{TYPES[target]}", [codes], target)
    found = golden.convert(tensor(codes), a=source, o=target, rounding=rounding, flags=True)
    wrong = (golden_codes(found.o) != results) | (found.flags.numpy() != flags)
    return len(np.unique(codes)), np.flatnonzero(wrong).tolist()


@pytest.mark.parametrize(
    ("fmt", "integer", "rounding"), [(FP32, "i32", "rn"), (FP64, "ui64", "rd")], indirect=["rounding"], ids=str
)
def test_some_conversions_of_integers_match_softfloat(fmt, integer, rounding):
    count, invalid, wrong = integer_differences(fmt, integer, rounding, FEW)
    assert (count, wrong) == (FEW, [])
    assert FEW // 100 < invalid < 3 * FEW // 4
    assert float_differences(integer, fmt, rounding, FEW)[1] == []


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=str)
@pytest.mark.parametrize("integer", INTEGERS)
def test_conversions_of_integers_match_softfloat(integer, fmt, rounding, oracle):
    count, invalid, wrong = integer_differences(fmt, integer, rounding, FLAG_COUNT)
    assert wrong == []
    assert invalid < 3 * count // 4
    more, wrong = float_differences(integer, fmt, rounding, FLAG_COUNT)
    assert wrong == []
    assert more > 10_000
    oracle("SoftFloat", "convert", count + FLAG_COUNT, fmt, parse(INTEGERS[integer]))


def middle_differences(operation, fmt, rounding, tininess, count):
    """Return divisions or roots next to middles: their number, and the positions where codes or flags differ."""
    unit = build(operation, fmt, rounding=rounding)
    columns = list(middles(unit.spec, count, seed=len(str(rounding))).values())
    softfloat.set_tininess_mode(TININESS[tininess])
    results, flags = expected(operation, columns, fmt)
    softfloat.set_tininess_mode(TININESS["after"])
    parameters = unit.parameters | {"rounding": rounding, "flags": tininess}
    found = getattr(golden, operation)(*map(tensor, columns), **parameters)
    wrong = (golden_codes(found.o) != results) | (found.flags.numpy() != flags)
    return len(results), np.flatnonzero(wrong).tolist()


@pytest.mark.slow
@pytest.mark.sampled(36, 36)
@pytest.mark.parametrize("tininess", TININESS)
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=str)
@pytest.mark.parametrize("operation", ["div", "sqrt"])
def test_middles_match_softfloat(operation, fmt, rounding, tininess, oracle):
    count, wrong = middle_differences(operation, fmt, rounding, tininess, count_of(tininess))
    assert (count, wrong) == (count_of(tininess), [])
    oracle("SoftFloat", operation, count, fmt)


@pytest.mark.parametrize("rounding", ["rn"], indirect=True)
def test_comparison_of_middles_can_fail(rounding):
    """Nearly all quotients that are next to a middle are wrong in another mode."""
    for operation in ("div", "sqrt"):
        assert middle_differences(operation, FP32, rounding, "after", FEW) == (FEW, [])
        assert len(middle_differences(operation, FP32, Rounding.parse("rz"), "after", FEW)[1]) > FEW // 4


@pytest.mark.parametrize("rounding", ["rn"], indirect=True)
def test_comparison_of_flags_can_fail(rounding, monkeypatch):
    """The vectors distinguish tininess before and after rounding, if SoftFloat detects it the other way."""
    monkeypatch.setitem(TININESS, "after", softfloat.TininessMode.BEFORE_ROUNDING)
    _, wrong = flag_differences("mul", FP16, rounding, "after", 1 << 14)
    softfloat.set_tininess_mode(softfloat.TininessMode.AFTER_ROUNDING)
    assert wrong


@pytest.mark.parametrize("rounding", ["rn"], indirect=True)
def test_softfloat_comparison_can_fail(rounding):
    """The vectors distinguish ties away from zero and ties to even."""
    _, wrong = compare("fma", FP64, Rounding.parse("ra"))
    assert len(wrong) > 100
