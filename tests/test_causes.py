"""Faults of other units are found by their results: each planted fault is computed without the golden model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from halfulp.hdl.formats import FP16
from halfulp.sim.causes import causes
from halfulp.sim.implementation import Implementation
from halfulp.sim.reference import reference
from halfulp.sim.vector_files import Table

Codes = np.ndarray


def floats(codes: Codes) -> Codes:
    return codes.astype(np.uint16).view(np.float16).astype(np.float64)


def halves(numbers: Codes) -> Codes:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16).view(np.uint16).astype(np.uint64)


def is_subnormal(codes: Codes) -> Codes:
    return (codes & 0x7C00 == 0) & (codes & 0x3FF != 0)


def flushed(codes: Codes) -> Codes:
    return np.where(is_subnormal(codes), codes & 0x8000, codes).astype(np.uint64)


def changed(mask: Codes, new: Codes | int, old: Codes) -> Codes:
    return np.where(mask, new, old).astype(np.uint64)


def twice(codes: dict[str, Codes], right: Codes) -> Codes:
    with np.errstate(all="ignore"):
        a, b, c = (floats(codes[name]).astype(np.float32) for name in "abc")
        return changed(right & 0x7C00 == 0x7C00, right, halves(a * b + c))


def product_first(codes: dict[str, Codes], right: Codes) -> Codes:
    a, b, c = (floats(codes[name]).astype(np.float16) for name in "abc")
    with np.errstate(all="ignore"):
        found = halves(a * b + c)
    return changed(found & 0x7FFF > 0x7C00, right, found)


def operands_flushed(codes: dict[str, Codes], right: Codes) -> Codes:
    a, b = (floats(flushed(codes[name])) for name in "ab")
    with np.errstate(all="ignore"):
        return changed(right & 0x7C00 == 0x7C00, right, halves(a * b))


def ties(codes: dict[str, Codes], right: Codes, *, to_even: bool) -> Codes:
    """Round products of halves, exact in binary64, at ties away from zero, or to odd."""
    a, b = (floats(codes[name]) for name in "ab")
    with np.errstate(all="ignore"):
        exact = a * b
        below, above = floats(right - 1), floats(right + 1)
        here = floats(right)
        tie_below = exact == (below + here) / 2
        tie_above = exact == (above + here) / 2
    number = (right & 0x7FFF < 0x7BFF) & (right & 0x7FFF > 0)
    if not to_even:
        return changed(number & tie_below, right - 1, changed(number & tie_above, right + 1, right))
    return changed(number & tie_above, right + 1, right)


def off_by_one(codes: dict[str, Codes], right: Codes) -> Codes:
    some = np.random.default_rng(5).random(len(right)) < 0.4
    return changed(is_subnormal(right) & some, right + 1, right)


PLANTED: dict[str, tuple[str, Callable[[dict[str, Codes], Codes], Codes], str]] = {
    "double rounding": ("fma fp16*fp16+fp16", twice, "it rounds twice, first to fp32"),
    "rounded product": ("fma fp16*fp16+fp16", product_first, "it rounds the product before the sum"),
    "flushed operands": ("mul fp16*fp16", operands_flushed, "it reads subnormal operands as zero"),
    "flushed results": ("mul fp16*fp16", lambda _, right: flushed(right), "it gives zero for subnormal results"),
    "ties away": (
        "mul fp16*fp16",
        lambda codes, right: ties(codes, right, to_even=True),
        "it rounds to nearest, ties away from zero, not to nearest, ties to even",
    ),
    "ties to odd": (
        "mul fp16*fp16",
        lambda codes, right: ties(codes, right, to_even=False),
        "it rounds to nearest, ties to odd",
    ),
    "sign of zero": (
        "mul fp16*fp16",
        lambda _, right: changed(right & 0x7FFF == 0, 0, right),
        "it gives a zero with the wrong sign",
    ),
    "NaN": ("mul fp16*fp16", lambda _, right: changed(right == 0x7E00, 0xFFFF, right), "it gives another code of NaN"),
    "saturation": (
        "add fp16+fp16",
        lambda codes, right: changed(
            (right & 0x7FFF == 0x7C00) & (codes["a"] & 0x7FFF < 0x7C00) & (codes["b"] & 0x7FFF < 0x7C00),
            right - 1,
            right,
        ),
        "it saturates: it gives the largest number for overflows",
    ),
    "subnormal": ("mul fp16*fp16", off_by_one, "its subnormal results are off by one ulp"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_the_cause(name: str) -> None:
    text, plant, fault = PLANTED[name]
    unit = Implementation.parse(text).component()
    table = Table.of(unit, seed=1, limit=4000)
    right = table.results["o"]
    got = plant(dict(table.codes), right)
    wrong = np.flatnonzero(got != right)
    assert len(wrong) >= 5
    found = causes(unit, table.codes, table.results, {"o": got})
    assert [cause.fault for cause in found] == [fault]
    assert np.array_equal(found[0].at, wrong)


def test_two_faults_are_told_apart() -> None:
    unit = Implementation.parse("mul fp16*fp16").component()
    table = Table.of(unit, seed=2, limit=4000)
    right = table.results["o"]
    got = changed(right == FP16.nan_code, 0x7FFF, flushed(right))
    found = causes(unit, table.codes, table.results, {"o": got})
    assert {cause.fault for cause in found} == {"it gives zero for subnormal results", "it gives another code of NaN"}
    assert sum(len(cause.at) for cause in found) == (got != right).sum()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text",
    [
        "mac posit8*posit8+posit16.rn",
        "mul fxp4.4*fxp4.4.ra",
        "dot2 e5m2*e5m2=e5m2.rn",
        "sqrt bf16.rn",
        "mul e5m2*e5m2.port",
    ],
)
def test_wrong_mode_is_the_cause_in_every_family(text: str) -> None:
    unit, other = (
        Implementation.parse(text).component(),
        Implementation.parse(text.rpartition(".")[0] + ".rz").component(),
    )
    table = Table.of(unit, seed=3, limit=2000)
    got = reference(other, {name: table.codes[name] for name in other.inputs})
    found = causes(unit, table.codes, table.results, got)
    assert [cause.fault.split(",")[0] for cause in found] == ["it rounds toward zero"]


def test_other_outputs_are_named() -> None:
    unit = Implementation.parse("compare e5m2,e5m2").component()
    table = Table.of(unit, limit=1000)
    got: dict[str, Any] = {name: column.copy() for name, column in table.results.items()}
    got["less"][:3] ^= np.uint64(1)
    (cause,) = causes(unit, table.codes, table.results, got)
    assert (cause.fault, len(cause.at)) == ("less: the bits are wrong", 3)


def test_wrong_flags_are_named() -> None:
    """A unit with flags that gives zero for subnormal results, without underflow, and raises inexact for NaN."""
    unit = Implementation.parse("mul fp16*fp16 flags").component()
    table = Table.of(unit, seed=4, limit=4000)
    right = table.results
    flags = changed(right["flags"] & 2 > 0, right["flags"] - 2, right["flags"])
    flags = changed(right["o"] == FP16.nan_code, flags | 1, flags)
    found = causes(unit, table.codes, right, {"o": flushed(right["o"]), "flags": flags})
    assert {cause.fault for cause in found} == {
        "o: it gives zero for subnormal results",
        "flags: underflow is not raised",
        "flags: inexact is raised without cause",
    }
    assert sum(len(cause.at) for cause in found[1:]) > 100


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mul fxp4.4*fxp4.4=fxp4.4", "it wraps around: it gives the lower bits of overflows"),
        ("mul fxp4.4*fxp4.4=fxp4.4-wrap", "it saturates: it gives the nearest number for overflows"),
    ],
)
def test_wrong_overflow_of_fixed_point_is_the_cause(text: str, fault: str) -> None:
    unit = Implementation.parse(text).component()
    table = Table.of(unit, seed=5, limit=2000)
    a, b = (table.codes[name].astype(np.uint8).view(np.int8).astype(np.int64) for name in "ab")
    near = np.rint(a * b / 16).astype(np.int64)
    near = near if "wraps" in fault else np.clip(near, -128, 127)
    (cause,) = causes(unit, table.codes, table.results, {"o": (near & 255).astype(np.uint64)})
    assert cause.fault == fault
