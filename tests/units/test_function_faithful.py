"""Faithfully rounded functions: golden model against mpmath and exact fractions, RTL against golden, and errors."""

from fractions import Fraction as F

import mpmath
import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.fit.functions import fraction_of
from halfulp.hdl.formats import RD, RU, Format, parse
from halfulp.hdl.specs import FunctionSpec, UnitSpec
from halfulp.hdl.specs.function import FUNCTIONS
from halfulp.sim.ports import Ports
from halfulp.sim.space import Space
from halfulp.units import Function
from tests.every_unit import rtl_mismatches
from tests.units.test_function import MPMATH

MIXED = (
    "function exp(fp16)>fp32.faithful",
    "function exp(e5m2)>fp32.faithful",
    "function log(e6m12-ftz).faithful",
    "function sigmoid(e5m12fn).faithful",
    "function sin(fxp6.14)>tf32.faithful",
    "function exp2(posit20).faithful",
    "function silu(takum18).faithful",
    "function cos(fp32)>fp16.faithful.sat",
)
"""Descriptions in formats of several families and widths."""

BOUNDED = {
    **dict.fromkeys(("exp", "exp2", "tanh", "sigmoid", "erf"), False),
    **dict.fromkeys(("gelu", "silu"), True),
}
"""Functions whose results far from 0 are those of a limit, and whether only those of negative numbers are."""


def described(function: str, fmt: str) -> FunctionSpec:
    return FunctionSpec.parse(f"function {function}({fmt}).faithful")


def codes_of(fmt: Format, count: int, seed: int = 1) -> np.ndarray:
    """Return codes of special values, of random numbers, and of numbers next to borders of polynomials."""
    rng = np.random.default_rng(seed)
    random = rng.integers(0, 1 << fmt.width, count, dtype=np.uint64)
    low = np.uint64((1 << rng.integers(1, fmt.width - 1)) - 1)
    # Sizes of which functions are neither constant nor beyond the range.
    sizes = rng.normal(size=count) * 2.0 ** rng.integers(-14, 7, count)
    # The logarithm is small near 1.
    usual = golden.encode(torch.tensor(np.where(rng.random(count) < 0.3, 1 + sizes / 256, sizes)), fmt)
    usual = usual.numpy().astype(np.uint64)
    ends = np.concatenate([usual | low, usual & ~low, usual + np.uint64(1)]) & np.uint64((1 << fmt.width) - 1)
    special = [code for end in (0, fmt.max_code, 1 << (fmt.width - 1)) for code in range(end - 2, end + 3)]
    special = np.array([code % (1 << fmt.width) for code in special], dtype=np.uint64)
    return np.concatenate([special, random, usual, ends])


def not_faithful(spec: FunctionSpec, codes: np.ndarray) -> list[str]:
    """Return the results of the golden model that are not next to the value that mpmath computes."""
    results = golden.function(torch.tensor(codes.astype(np.int64)), **spec.parameters)
    failed = []
    with mpmath.workprec(140):
        for code, result in zip(codes.tolist(), results.tolist(), strict=True):
            x = spec.a.decode(code)
            if not isinstance(x, F) or not x or (x < 0 and spec.function.startswith("log")):
                right = exact.neighbours(exact.function, code, **spec.parameters)
            else:
                # The results of farther numbers are those of the nearest one, and its value has fewer digits.
                if spec.function in BOUNDED:
                    x = max(x, F(-256))
                    x = x if BOUNDED[spec.function] else min(x, F(256))
                value = fraction_of(MPMATH[spec.function](mpmath.mpf(x.numerator) / x.denominator))
                negative = value < 0 or (value == 0 and x < 0)
                right = [
                    spec.result.encode_magnitude(abs(value), negative, mode, 0, spec.saturate) for mode in (RD, RU)
                ]
            if result not in right:
                failed.append(f"{spec.function}({x}): {result:#x} is not {right}")
    return failed


@pytest.mark.parametrize("function", ["exp", "log", "tanh", "cos"])
def test_results_are_next_to_values_of_mpmath(function):
    assert not_faithful(described(function, "e6m11"), codes_of(parse("e6m11"), 200)) == []


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_all_results_of_17_bits_are_next_to_values_of_mpmath(function):
    assert not_faithful(described(function, "e5m11"), np.arange(1 << 17, dtype=np.uint64)) == []


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["fp32", "e8m15"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_of_wide_formats_are_next_to_values_of_mpmath(function, fmt):
    assert not_faithful(described(function, fmt), codes_of(parse(fmt), 20000)) == []


@pytest.mark.parametrize("text", MIXED)
def test_results_are_next_to_exact_fractions(text):
    spec = FunctionSpec.parse(text)
    codes = torch.randint(0, 1 << spec.a.width, (40,), generator=torch.Generator().manual_seed(1))
    results = golden.function(codes, **spec.parameters)
    for code, result in zip(codes.tolist(), results.tolist(), strict=True):
        assert result in exact.neighbours(exact.function, code, **spec.parameters)


def test_values_that_are_numbers_are_results():
    def results(function, *values, fmt="fp32"):
        codes = golden.function(golden.encode(values, fmt), function=function, a=fmt, rounding="faithful")
        return golden.decode(codes, fmt).tolist()

    integers = [float(value) for value in range(-149, 128)]
    powers = [2.0**value for value in integers]
    assert results("exp2", *integers) == powers
    assert results("log2", *powers) == integers
    assert results("exp", 0.0, -0.0) == results("cos", 0.0, -0.0) == [1.0, 1.0]
    assert results("log", 1.0) == results("sin", 0.0) == [0.0]
    assert results("tanh", 0.0, fmt="e5m12") == results("gelu", 0.0, fmt="e5m12") == [0.0]
    assert results("sigmoid", 0.0, fmt="e5m12") == [0.5]


def inputs_of(spec: FunctionSpec, count: int):
    yield {"a": codes_of(spec.a, count)}


def test_rtl_matches_golden_for_all_codes():
    spec = described("tanh", "e5m11")
    checks, failed = rtl_mismatches({spec: spec})
    assert failed == []
    assert checks == 1 << 17


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_rtl_matches_golden_for_all_codes_of_tf32(function):
    spec = described(function, "tf32")
    checks, failed = rtl_mismatches({spec: spec})
    assert failed == []
    assert checks == 1 << 19


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_rtl_matches_golden_in_fp32(function):
    spec = described(function, "fp32")
    checks, failed = rtl_mismatches({spec: spec}, choose=lambda unit: inputs_of(spec, 1 << 15))
    assert failed == []
    assert checks > 1 << 17


@pytest.mark.slow
@pytest.mark.parametrize("text", MIXED)
def test_rtl_of_mixed_formats_matches_golden(text):
    spec = FunctionSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=20, count=1 << 16)
    assert failed == []
    assert checks >= 1 << min(Space.of(Ports.inputs_of(Function(spec))).bits, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "function exp(fp32)",
            "must have at most 16 bits, and fp32 has 32; convert it, or choose the rounding faithful",
        ),
        ("function exp(fp64).faithful", "a of function must have at most 32 bits, and fp64 has 64; convert it"),
        ("function exp(fp16).faithful", "rounding faithful has no effect in formats of up to 16 bits"),
        ("function exp(posit32).faithful", "precision of at most 24 bits, and that of posit32 is 28; convert it"),
        ("function exp(e11m12).faithful", "exponents of at most 600, unlike e11m12; convert it"),
        ("function exp(fp32).faithful flags", "function with the rounding faithful has no exception flags"),
        ("function exp(fp32).faithful.rz", "faithful and rz are two rounding modes"),
        ("mul fp32*fp32.faithful", "only results of function can have the rounding faithful"),
        ("mac fp16*fp16=fp16.faithful+fp32", "only results of function can have the rounding faithful"),
    ],
)
def test_invalid_faithful_units_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        UnitSpec.parse(text)


def test_operations_that_round_correctly_refuse_faithful():
    with pytest.raises(ValueError, match="only results of function can have the rounding faithful"):
        golden.encode([1.0], "fp16", rounding="faithful")
    with pytest.raises(ValueError, match="only results of function can have the rounding faithful"):
        golden.mul(torch.tensor([1]), torch.tensor([1]), a="fp32", b="fp32", rounding="faithful")
