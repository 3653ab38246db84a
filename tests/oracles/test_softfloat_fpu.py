"""Floating-point unit of a processor against Berkeley SoftFloat: results and flags of each operation and format."""

import numpy as np
import pytest

from halfulp import golden
from halfulp.hdl.formats import BF16, FP16, FP32, FP64
from halfulp.hdl.formats.rounding import MODE_CODES
from halfulp.hdl.specs.fpu import OPERATIONS, FpuSpec
from halfulp.sim.corner_registers import OPERANDS, of_format
from tests.oracles import test_softfloat
from tests.oracles.test_softfloat import (
    INTEGERS,
    MODES,
    TYPES,
    differences,
    golden_codes,
    near_integers,
    softfloat_results,
    tensor,
)

rounding = test_softfloat.rounding

SPEC = FpuSpec.parse("fpu fp64,fp32,fp16,bf16 width=64 divide")

SUMS = {"fmadd": "mulAdd", "add": "add", "sub": "sub", "mul": "mul", "div": "div", "sqrt": "sqrt"}
RELATIONS = {"feq": "eq", "flt": "lt", "fle": "le"}

COUNT, FEW = 100_000, 1 << 11
"""Vectors of an operation, format and mode, and in `make test`."""


def computed(operation, rounding, columns, **ports):
    """Return registers of results and flags of the golden model for scalars."""
    given = [*columns, *[np.zeros_like(columns[0])] * (3 - len(columns))]
    choice = [ports.get(name, 0) for name in ("src", "dst", "integer")]
    codes = [np.full_like(columns[0], code) for code in (OPERATIONS.index(operation), *choice, 0)]
    mode = np.full_like(columns[0], MODE_CODES[str(rounding)])
    found = golden.fpu(*map(tensor, (*given, *codes)), mode=tensor(mode), **SPEC.parameters)
    return golden_codes(found.o), found.flags.numpy()


def boxed(codes, fmt):
    """Return registers with numbers of a format."""
    return codes | np.uint64((1 << SPEC.width) - (1 << fmt.width))


def operands_of(fmt, count, places):
    """Return directed operands of a format; one first operand in sixteen is a signalling NaN."""
    rng = np.random.default_rng(fmt.width)
    mask = np.uint64((1 << fmt.width) - 1)
    columns = [of_format(fmt, fmt.width, count, rng)[name] & mask for name in OPERANDS[:places]]
    columns[0] = np.where(rng.random(count) < 1 / 16, np.uint64(fmt.inf_code + 1), columns[0])
    return columns


def sums_differ(operation, fmt, rounding, count):
    """Return the positions where a sum, product, quotient or root and its flags differ."""
    columns = operands_of(fmt, count, {"fmadd": 3, "sqrt": 1}.get(operation, 2))
    results, flags = softfloat_results(f"{TYPES[fmt]}_{SUMS[operation]}", columns, fmt)
    place = SPEC.formats.index(fmt)
    found, raised = computed(operation, rounding, [boxed(codes, fmt) for codes in columns], src=place, dst=place)
    wrong = differences(found, boxed(results, fmt), fmt).tolist()
    return sorted({*wrong, *np.flatnonzero(raised != flags).tolist()})


def relations_differ(operation, fmt, rounding, count):
    """Return the positions where a relation and its flags differ; half of the operands are equal or opposite."""
    x, y = operands_of(fmt, count, 2)
    rng = np.random.default_rng(7)
    same = x ^ (np.uint64(fmt.sign_code) * rng.integers(0, 2, count, dtype=np.uint64))
    columns = [x, np.where(rng.random(count) < 0.5, same, y)]
    results, flags = softfloat_results(f"{TYPES[fmt]}_{RELATIONS[operation]}", columns, fmt)
    found, raised = computed(operation, rounding, [boxed(codes, fmt) for codes in columns], src=SPEC.formats.index(fmt))
    return np.flatnonzero((found != results & np.uint64(1)) | (raised != flags)).tolist()


def conversions_differ(integer, fmt, rounding, count):
    """Return the positions where conversions to and from an integer, and their flags, differ."""
    unsigned, bits = integer.startswith("u"), int(integer[-2:])
    code, place = SPEC.integers.index(bits), SPEC.formats.index(fmt)
    codes = near_integers(fmt, bits, count)
    mode = np.full_like(codes, MODES[str(rounding)])
    results, flags = softfloat_results(
        f"{TYPES[fmt]}_to_{integer}", [codes, mode, np.ones_like(codes)], test_softfloat.parse(INTEGERS[integer])
    )
    name = "f2u" if unsigned else "f2i"
    found, raised = computed(name, rounding, [boxed(codes, fmt)], src=place, integer=code)
    if bits == 32:
        # All integers of 32 bits are sign-extended, as in RISC-V.
        results = results.astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)
    wrong = np.flatnonzero((found != results) | (raised != flags)).tolist()

    rng = np.random.default_rng(bits)
    integers = rng.integers(0, 1 << 63, count, dtype=np.uint64) >> rng.integers(0, 63, count, dtype=np.uint64)
    integers = np.where(rng.random(count) < 0.5, -integers, integers) & np.uint64((1 << bits) - 1)
    results, flags = softfloat_results(f"{integer}_to_{TYPES[fmt]}", [integers], fmt)
    name = "u2f" if unsigned else "i2f"
    found, raised = computed(name, rounding, [integers], dst=place, integer=code)
    return wrong + np.flatnonzero((found != boxed(results, fmt)) | (raised != flags)).tolist()


def casts_differ(source, target, rounding, count):
    """Return the positions where a conversion between floats and its flags differ."""
    (codes,) = operands_of(source, count, 1)
    results, flags = softfloat_results(f"{TYPES[source]}_to_{TYPES[target]}", [codes], target)
    places = {"src": SPEC.formats.index(source), "dst": SPEC.formats.index(target)}
    found, raised = computed("f2f", rounding, [boxed(codes, source)], **places)
    wrong = differences(found, boxed(results, target), target).tolist()
    return sorted({*wrong, *np.flatnonzero(raised != flags).tolist()})


CASTS = [(FP64, FP32), (FP64, FP16), (FP32, FP16), (FP32, BF16), (FP16, FP32), (FP16, FP64), (FP32, FP64), (BF16, FP32)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rounding", ["rn", "rd"], indirect=True)
def test_some_results_match_softfloat(rounding):
    assert sums_differ("fmadd", FP32, rounding, FEW) == []
    assert sums_differ("sub", FP16, rounding, FEW) == []
    assert sums_differ("div", FP64, rounding, FEW) == []
    assert sums_differ("sqrt", FP32, rounding, FEW) == []
    assert relations_differ("flt", FP32, rounding, FEW) == []
    assert conversions_differ("i32", FP32, rounding, FEW) == []
    assert conversions_differ("ui64", FP16, rounding, FEW) == []
    assert casts_differ(FP32, FP16, rounding, FEW) == []


@pytest.mark.sampled(12, 12)
@pytest.mark.slow
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=str)
@pytest.mark.parametrize("operation", [*SUMS, *RELATIONS, *INTEGERS])
def test_operations_match_softfloat(operation, fmt, rounding, oracle):
    compare = sums_differ if operation in SUMS else relations_differ if operation in RELATIONS else conversions_differ
    assert compare(operation, fmt, rounding, COUNT) == []
    oracle("SoftFloat", "fpu", COUNT, fmt)


@pytest.mark.slow
@pytest.mark.parametrize("rounding", MODES, indirect=True)
@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
def test_casts_match_softfloat(source, target, rounding, oracle):
    assert casts_differ(source, target, rounding, COUNT) == []
    oracle("SoftFloat", "fpu", COUNT, source, target)


@pytest.mark.parametrize("rounding", ["rn"], indirect=True)
def test_comparison_with_softfloat_can_fail(rounding):
    assert len(sums_differ("mul", FP32, "rz", FEW)) > FEW // 100
    assert conversions_differ("i32", FP32, "ru", FEW)
