"""Faults of other units are found by their results: each planted fault is computed without the golden model."""

import bisect
import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from halfulp.hdl.formats import E4M3FN, FP16, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.implementation import Implementation
from halfulp.sim.causes import causes
from halfulp.sim.ports import Ports
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


def products_first(codes: dict[str, Codes], right: Codes) -> Codes:
    a, b, c, d = (floats(codes[name]).astype(np.float16) for name in ("a0", "b0", "a1", "b1"))
    with np.errstate(all="ignore"):
        found = halves(0.0 + floats(halves(a * b)) + floats(halves(c * d)))
    return changed(found & 0x7FFF > 0x7C00, right, found)


def operands_flushed(codes: dict[str, Codes], right: Codes) -> Codes:
    a, b = (floats(flushed(codes[name])) for name in "ab")
    with np.errstate(all="ignore"):
        return changed(right & 0x7C00 == 0x7C00, right, halves(a * b))


def truncated(codes: dict[str, Codes], right: Codes) -> Codes:
    """Round products of halves, exact in binary64, toward zero, and those of 2^16 and more to infinity."""
    with np.errstate(all="ignore"):
        exact = floats(codes["a"]) * floats(codes["b"])
        nearest = exact.astype(np.float16)
        toward = np.where(abs(nearest.astype(np.float64)) > abs(exact), np.nextafter(nearest, np.float16(0)), nearest)
    toward = np.where(abs(exact) >= 65536, exact, np.clip(toward, -65504, 65504))
    return changed(np.isnan(exact), right, halves(toward) | (halves(exact) & 0x8000))


def truncated_to_nan(codes: dict[str, Codes], right: Codes) -> Codes:
    """Round products of e4m3fn toward zero, and those of 480 and more, beyond 448, to NaN."""
    numbers = np.array([E4M3FN.decode(code) for code in range(256)], dtype=np.float64)
    exact = numbers[codes["a"]] * numbers[codes["b"]]
    towards = reference(Implementation.parse("mul e4m3fn*e4m3fn.rz").component(), codes)["o"]
    return changed(abs(exact) >= 480, 0x7F, towards)


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
    "rounded products": ("dot2 fp16*fp16", products_first, "it rounds the product before the sum"),
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
    "saturation of infinities": (
        "mul fp16*fp16",
        lambda _, right: changed(right & 0x7FFF == 0x7C00, right - 1, right),
        "it saturates infinities: it gives the largest number for them",
    ),
    "truncation": (
        "mul fp16*fp16",
        truncated,
        "it rounds toward zero, not to nearest, ties to even, and gives infinity for overflows",
    ),
    "truncation without infinity": (
        "mul e4m3fn*e4m3fn.rn.sat",
        truncated_to_nan,
        "it rounds toward zero, not to nearest, ties to even, and gives NaN for overflows",
    ),
    "subnormal": ("mul fp16*fp16", off_by_one, "its subnormal results are off by one ulp"),
}


@pytest.mark.sampled(4)
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


def test_negative_zeros_of_exact_differences_are_no_rounding() -> None:
    """Vectors whose results are all exact have no evidence of a rounding; x - x is -0 under rd."""
    unit = Implementation.parse("add fp16+fp16").component()
    a = np.array([0x3C00, 0x4000, 0x4400, 0x3C00, 0x4000], dtype=np.uint64)
    codes = {"a": a, "b": np.roll(a, 1) ^ 0x8000, "subtract": np.zeros_like(a)}
    codes["b"][:3] = a[:3] ^ 0x8000
    right = reference(unit, codes)
    got = changed(right["o"] == 0, 0x8000, right["o"])
    (cause,) = causes(unit, codes, right, {"o": got})
    assert cause.fault == "it gives a zero with the wrong sign"
    assert cause.at.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "other", "fault"),
    [
        ("mul e4m3*e4m3", "mul e4m3-ftz*e4m3-ftz", "it computes with a e4m3-ftz, b e4m3-ftz, o e4m3-ftz"),
        ("mul e4m3*e4m3=e5m2", "mul e4m3*e4m3=e5m2-ftz", "it computes with o e5m2-ftz"),
        ("mac e4m3*e4m3+e6m5-ftz.rn", "mac e4m3*e4m3+e6m5.rn", "it computes with acc e6m5, o e6m5"),
    ],
)
def test_formats_without_subnormals_are_the_cause(text: str, other: str, fault: str) -> None:
    """Results just below the smallest normal number round as in full precision, unlike flushed results."""
    unit = Implementation.parse(text).component()
    table = Table.of(unit, limit=1 << 16)
    got = reference(Implementation.parse(other).component(), table.codes)
    (cause,) = causes(unit, table.codes, table.results, got)
    assert cause.fault == fault
    assert len(cause.at) == cause.visible == int((got["o"] != table.results["o"]).sum()) > 5


def test_two_faults_are_told_apart() -> None:
    unit = Implementation.parse("mul fp16*fp16").component()
    table = Table.of(unit, seed=2, limit=4000)
    right = table.results["o"]
    got = changed(right == FP16.nan_code, 0x7FFF, flushed(right))
    found = causes(unit, table.codes, table.results, {"o": got})
    assert {cause.fault for cause in found} == {"it gives zero for subnormal results", "it gives another code of NaN"}
    assert sum(len(cause.at) for cause in found) == (got != right).sum()


@pytest.mark.sampled(4)
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


def test_exchanged_codes_of_port_are_the_causes() -> None:
    unit = Implementation.parse("mul e4m3*e4m3.port").component()
    table = Table.of(unit, seed=1, limit=2000)
    mode = table.codes["mode"]
    exchanged = changed(mode == 2, 3, changed(mode == 3, 2, mode))
    got = reference(unit, {**table.codes, "mode": exchanged})
    found = causes(unit, table.codes, table.results, got)
    assert {cause.fault for cause in found} == {
        "it rounds up for code 2 of its port, not down",
        "it rounds down for code 3 of its port, not up",
    }
    assert sum(len(cause.at) for cause in found) == (got["o"] != table.results["o"]).sum() > 100


def test_double_rounding_in_modes_of_port_is_the_cause() -> None:
    first, second = (
        Implementation.parse(text).component() for text in ("mul e4m3*e4m3=e11m5.port", "convert e11m5>e4m3.port")
    )
    unit = Implementation.parse("mul e4m3*e4m3.port").component()
    table = Table.of(unit, seed=1, limit=4000)
    long = reference(first, table.codes)["o"]
    got = reference(second, {"a": long, "mode": table.codes["mode"]})
    (cause,) = causes(unit, table.codes, table.results, got)
    assert cause.fault == "it rounds twice, first to 6 bits"
    assert len(cause.at) == (got["o"] != table.results["o"]).sum() > 50


@pytest.mark.parametrize(
    ("text", "first", "second", "fault"),
    [
        (
            "mac e4m3*e4m3+e5m2.port",
            "mul e4m3*e4m3=e5m2.port",
            "add e5m2+e5m2.port",
            "it rounds the product before the sum",
        ),
        (
            "sparsemac e4m3*e4m3+e4m3",
            "dot2 e4m3*e4m3",
            "add e4m3+e4m3",
            "it rounds the exact sum sum = a0[i0] * b0 + a1[i1] * b1",
        ),
    ],
)
def test_sooner_rounding_is_the_cause(text: str, first: str, second: str, fault: str) -> None:
    unit, one, other = (Implementation.parse(each).component() for each in (text, first, second))
    table = Table.of(unit, seed=1, limit=1000)
    codes = {**table.codes, **Ports.inputs_of(unit).select(table.codes)}
    terms = {"a": reference(one, codes)["o"], "b": codes["c"], "subtract": np.zeros(1, dtype=np.uint64)}
    got = reference(other, {**codes, **terms})["o"]
    found = {cause.fault: len(cause.at) for cause in causes(unit, table.codes, table.results, {"o": got})}
    # A sum of zeros has another sign in a few vectors.
    assert found[fault] > 0.9 * (got != table.results["o"]).sum() > 20


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


class Numbers:
    """Positive numbers of a format in order, and rounding among them by fractions."""

    def __init__(self, text: str) -> None:
        self.fmt = parse(text)
        values = {code: self.fmt.decode(code) for code in range(1 << self.fmt.width)}
        self.codes = {value: code for code, value in values.items() if isinstance(value, Fraction) and value > 0}
        self.ordered = sorted(self.codes)

    def number(self, code: int) -> Fraction | None:
        value = self.fmt.decode(int(code))
        return value if isinstance(value, Fraction) else None

    def rounded(self, exact: Fraction, *, away: bool) -> Fraction | None:
        """Round to nearest, ties away from zero or to even; None for overflows."""
        size = abs(exact)
        place = bisect.bisect_right(self.ordered, size)
        if place == len(self.ordered):
            return None if size > self.ordered[-1] else exact
        low, high = (self.ordered[place - 1] if place else Fraction(0)), self.ordered[place]
        middle = (low + high) / 2
        odd = bool(low) and self.codes[low] % 2
        found = high if size > middle or (size == middle and (away or odd)) else low
        return found if exact > 0 else -found


numbers_of = functools.cache(Numbers)


def shortened(exact: Fraction, bits: int) -> Fraction:
    """Round to a number of significand bits, ties to even, without limits of range."""
    if not exact:
        return exact
    unit = Fraction(2) ** (floor_log2(abs(exact)) - bits + 1)
    return round(exact / unit) * unit


def faulty(fault: str, result: Numbers, exact: Fraction, right: Fraction | None) -> Fraction | None:
    """Return the result of a unit with a fault; None if it is infinite or NaN, or the fault has no effect on it."""
    if fault == "saturated":
        largest = result.ordered[-1] if exact > 0 else -result.ordered[-1]
        return largest if right is None else None
    if right is None:
        return None
    if fault == "flushed":
        relative = result.fmt.spacing == "relative"
        return right if not relative or abs(right) >= Fraction(2) ** (result.fmt.floor_exponent or 0) else Fraction(0)
    other = exact if fault == "ties" else shortened(exact, result.fmt.precision + 2)
    return result.rounded(other, away=fault == "ties")


OPERATIONS: dict[str, Callable[..., Fraction | None]] = {
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "fma": lambda a, b, c: a * b + c,
    "convert": lambda a: a,
    "div": lambda a, b: a / b if b else None,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["ties", "twice", "flushed", "saturated"])
@pytest.mark.parametrize(
    "text",
    [
        *("mul e4m3fn*e4m3fn", "add e5m2+e5m2", "fma e4m3fn*e4m3fn+e4m3fn", "convert fp16>e4m3fn", "div fp16/fp16"),
        *("mul bf16*bf16", "add fxp4.4+fxp4.4=fxp5.3", "mul fxp4.4*fxp4.4"),
    ],
)
def test_faults_by_fractions_are_the_causes(text: str, fault: str) -> None:
    parsed = Implementation.parse(text)
    unit, table = parsed.component(), Table.of(parsed.component(), seed=6, limit=2000)
    operands = {name: numbers_of(str(fmt)) for name, fmt in parsed.spec.operands.items()}
    result = numbers_of(str(parsed.spec.o))
    right, got = table.results["o"], table.results["o"].copy()
    for index, code in enumerate(right.tolist()):
        given = [numbers.number(table.codes[name][index]) for name, numbers in operands.items()]
        if table.codes.get("subtract", right * 0)[index] and given[1]:
            given[1] = -given[1]
        exact = None if None in given else OPERATIONS[parsed.spec.form.unit](*given)
        if not exact:
            continue
        found = result.number(code)
        changed_to = faulty(fault, result, exact, found)
        if changed_to is not None and changed_to != found:
            zero = result.fmt.encode(0) | (exact < 0 and result.fmt.spacing == "relative") << result.fmt.width - 1
            got[index] = result.fmt.encode(changed_to) if changed_to else zero
    wrong = np.flatnonzero(got != right)
    if not len(wrong):
        assert (fault in ("flushed", "saturated")) == text.endswith(("fxp4.4", "fxp5.3")) or fault == "twice"
        return
    expected = {
        "ties": "it rounds to nearest, ties away from zero, not to nearest, ties to even",
        "twice": f"it rounds twice, first to {result.fmt.precision + 2} bits",
        "flushed": "it gives zero for subnormal results",
        "saturated": "it saturates: it gives the largest number for overflows",
    }[fault]
    (cause,) = causes(unit, table.codes, table.results, {"o": got})
    assert cause.fault == expected
    assert np.array_equal(cause.at, wrong)
