"""Correctly rounded functions: values computed elsewhere, the three models against each other, and errors."""

import math
from fractions import Fraction as F

import mpmath
import pytest

from halfulp import golden
from halfulp.golden import exact, exact_functions
from halfulp.hdl.fit.polynomials import fit
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.function import FUNCTIONS
from halfulp.hdl.specs.polynomials import BINADES, LOGARITHM
from halfulp.units import Function
from tests.every_unit import exact_mismatches, rtl_mismatches

SMALL = ("e5m2", "e4m3fn", "e3m2-ftz", "e4m3fnuz", "fxp4.2", "ufxp2.4", "posit6", "takum8", "nf4")
"""Formats of at most 8 bits, whose results are a table."""


def described(function, fmt, rounding="rn", **more):
    return FunctionSpec.of(function=function, a=parse(fmt), rounding=rounding, **more)


# Values of https://oeis.org and of IEEE 754-2019, 9.2, computed by hand in fp16.
KNOWN = (
    ("exp", 1.0, 2.71875),
    ("exp", -1.0, 0.367919921875),
    ("exp2", -3.0, 0.125),
    ("log", 2.0, 0.693359375),
    ("log2", 8.0, 3.0),
    ("log2", 0.0, -math.inf),
    ("log", -1.0, math.nan),
    ("sin", 1.0, 0.84130859375),
    ("cos", 0.0, 1.0),
    ("cos", math.inf, math.nan),
    ("tanh", -math.inf, -1.0),
    ("tanh", 0.5, 0.462158203125),
    ("sigmoid", 0.0, 0.5),
    ("sigmoid", -math.inf, 0.0),
    ("gelu", 1.0, 0.84130859375),
    ("silu", 1.0, 0.73095703125),
    ("erf", 1.0, 0.8427734375),
    ("exp", math.inf, math.inf),
    ("exp", 12.0, math.inf),
)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("function", "x", "value"), KNOWN)
def test_known_values(function, x, value):
    code = golden.function(golden.encode([x], "fp16"), function=function, a="fp16")
    assert golden.decode(code, "fp16").tolist() == pytest.approx([value], rel=0, nan_ok=True)
    spec = described(function, "fp16")
    of_code = exact.function(int(golden.encode([x], "fp16")), function=function, a=spec.a, o=spec.o)
    assert of_code == int(code)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_odd_functions_keep_zero_and_its_sign(function):
    """The zeros of a function are exact, and those of both signs are distinct if it is odd near zero."""
    codes = golden.encode([0.0, -0.0], "bf16")
    values = golden.decode(golden.function(codes, function=function, a="bf16"), "bf16")
    if function in ("tanh", "sin", "erf", "gelu", "silu"):
        assert values.tolist() == [0, 0]
        assert values.signbit().tolist() == [False, True]
    else:
        assert values[0] == values[1]


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("fmt", SMALL)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_golden_matches_exact(function, fmt):
    for rounding in ("port", "sr3"):
        checks, failed = exact_mismatches(described(function, fmt, rounding), count=1 << 9)
        assert failed == []
        assert checks


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_golden_matches_exact_in_16_bits(function, fmt):
    checks, failed = exact_mismatches(described(function, fmt), most_bits=9, count=1 << 9)
    assert failed == []
    assert checks


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("fmt", SMALL)
def test_tables_match_golden(fmt):
    specs = [described(function, fmt, rounding) for function in FUNCTIONS for rounding in ("rn", "port", "sr2")]
    checks, failed = rtl_mismatches({spec: spec for spec in specs})
    assert failed == []
    assert checks >= len(specs) << parse(fmt).width


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rn", "rhu", "rd", "ru", "ro", "sr2"])
def test_results_below_normal_numbers_match_golden(mode):
    """Results without subnormal numbers, of operands in other formats, whose results are near the smallest number."""
    formats = ("e3m2-ftz", "e2m3-ftz", "e3m1fnuz-ftz")
    specs = [described(function, "e3m3", mode, o=parse(o)) for function in FUNCTIONS for o in formats]
    checks, failed = rtl_mismatches({spec: spec for spec in specs})
    assert failed == []
    assert checks >= len(specs) << 7


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("fmt", ["e4m4", "e5m3", "e4m4-ftz", "fxp4.5", "posit9", "takum9"])
def test_polynomials_match_golden(fmt):
    more = {"flags": True} if fmt[0] in "ef" else {}
    more |= {"o": parse("e3m5-ftz")} if fmt.endswith("-ftz") else {}
    specs = [described(function, fmt, "port", **more) for function in FUNCTIONS]
    checks, failed = rtl_mismatches({spec: spec for spec in specs})
    assert failed == []
    assert checks >= len(specs) << 12


@pytest.mark.sampled(5, 5)
@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_all_numbers_of_16_bits_match_golden(function, fmt):
    checks, failed = rtl_mismatches({(spec := described(function, fmt, "port")): spec})
    assert failed == []
    assert checks >= 1 << 19


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["function exp(fp16)>e4m3fn.rz", "function log(posit9)>fxp4.8.ru", "function sin(fxp4.5)>e5m2.sat"]
)
def test_mixed_formats_match_golden(text):
    spec = FunctionSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec})
    assert failed == []
    assert checks >= 1 << spec.a.width


MPMATH = {name: getattr(mpmath, name, None) for name in FUNCTIONS} | {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bounds_contain_values_of_mpmath(function):
    with mpmath.workprec(400):
        for x in (F(1, 3), F(5, 4), F(7), F(1, 1000), F(-9, 8), F(-6), F(333, 16)):
            if x < 0 and function.startswith("log"):
                continue
            value = MPMATH[function](mpmath.mpf(x.numerator) / x.denominator)
            for bits in (30, 64, 150):
                low, high = exact_functions.BOUNDS[function](x, bits)
                low, high = (mpmath.mpf(end.numerator) / end.denominator for end in (low, high))
                assert low <= value <= high
                assert high - low < mpmath.ldexp(max(abs(value), 1), 8 - bits)


def value_of(table, index, t):
    """Return v of a table, as its docstring defines it."""
    c0, c1, *c2 = table.rows[index]
    bend = c2[0] * (t >> (table.rest - table.inner[0])) >> table.inner[0] if c2 else 0
    return c0 + ((c1 + bend) * t >> table.rest)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["log", "log2", "tanh", "silu"])
def test_values_of_polynomials_are_in_their_intervals(function):
    spec = described(function, "e5m3")
    table = fit(spec)
    for x in (value for value in spec.a.values if isinstance(value, F) and value > 0):
        exponent = math.floor(math.log2(x))
        fraction = int(x / F(2) ** (exponent - 3)) - 8
        if table.reduction == LOGARITHM:
            index, t = fraction >> table.rest, fraction & ((1 << table.rest) - 1)
            v = value_of(table, index, t) + exponent * table.factor
            scale = table.value
        else:
            assert table.reduction == BINADES
            group = min(max(exponent, table.low - 1), table.high) - table.low + 1
            segments, first = table.groups[group]
            index, t = first + (fraction << segments >> 3), fraction << segments & 7
            v = value_of(table, index, t)
            scale = table.value - table.exponents[index][0] - exponent * table.exponents[index][1]
        # Values of larger numbers are nearer to them than 200 bits show.
        if x > 64:
            continue
        with mpmath.workprec(200):
            value = MPMATH[function](mpmath.mpf(x.numerator) / x.denominator)
            top = int(mpmath.floor(mpmath.log(abs(value), 2))) if value else 0
            # Both are in one interval of numbers and ties, so that they round alike.
            unit = mpmath.ldexp(1, max(top - spec.window + 1, spec.o.quantum - 1))
            assert mpmath.floor(mpmath.ldexp(v, -scale) / unit) == mpmath.floor(value / unit)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("function cbrt(fp16)", "unknown function 'cbrt'; expected one of exp, exp2, log"),
        ("function exp(fp32)", "a of function must have at most 16 bits, and fp32 has 32; convert it"),
        ("function exp(fp16)>fp32", "o of function must have at most 16 bits, and fp32 has 32; convert it"),
        ("function exp(fp16)>fxp4.4-wrap", "o of function must saturate, unlike fxp4.4-wrap"),
        ("function exp(fp16).exact", "rounding exact is not possible for function"),
        ("function exp(fp16).sr40", "random bits|expected"),
    ],
)
def test_invalid_functions_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        FunctionSpec.parse(text)


def test_stochastic_rounding_of_wide_operands_has_no_rtl():
    assert Function("function exp(e5m2).sr8").spec.rounding.bits == 8
    with pytest.raises(ValueError, match="rounds stochastically for operands of up to 8 bits, and fp16 has 16"):
        Function("function exp(fp16).sr8")


def test_units_of_a_function_have_no_port_of_it():
    unit = Function(function="tanh", a="bf16", o="fp16")
    assert set(unit.inputs) == {"a"}
    assert unit.name == "function_tanh_bf16__fp16_rn"
