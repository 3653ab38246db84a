"""Errors of fitted functions: measured against mpmath over every code, in units defined here independently."""

import itertools
from dataclasses import replace
from fractions import Fraction

import mpmath
import pytest
import torch
from click.testing import CliRunner
from mpmath import mp

from halfulp.cli import cli
from halfulp.golden import pwl
from halfulp.hdl.fit import points
from halfulp.hdl.fit.fit import fit
from halfulp.hdl.fit.functions import FUNCTIONS
from halfulp.hdl.fit.store import segments_of
from halfulp.hdl.formats import RN, Fixed, Float, parse
from halfulp.hdl.specs import UnitSpec
from halfulp.sim.build import verilog
from halfulp.sim.report import fit_lines
from halfulp.tools import progress
from halfulp.units import Pwl

VALUES = {
    "tanh": mp.tanh,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "erf": mp.erf,
    "exp": mp.exp,
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "elu": lambda x: x if x >= 0 else mp.expm1(x),
    "relu": lambda x: max(x, mp.zero),
    "leaky_relu": lambda x: x if x >= 0 else x / 100,
    "hard_sigmoid": lambda x: min(max(x / 6 + mp.mpf(1) / 2, mp.zero), mp.one),
    "hard_swish": lambda x: x * min(max(x / 6 + mp.mpf(1) / 2, mp.zero), mp.one),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "log2": lambda x: mp.log(x, 2),
}
"""Functions by their definition in mpmath, without code of the fit."""

UNSYMMETRIC = ("exp", "gelu", "silu", "softplus", "elu", "relu", "leaky_relu", "hard_swish", "rsqrt", "log2")


def ulp(value, out):
    """Return the spacing of a format at a value: of its binade, and of subnormal numbers near zero."""
    if isinstance(out, Fixed):
        return mp.mpf(2) ** -out.frac_bits
    assert isinstance(out, Float)
    exponent = out.quantum + out.man
    if value:
        exponent = max(exponent, int(mp.floor(mp.log(abs(value), 2))))
    return mp.mpf(2) ** (exponent - out.man)


def defined(name, x):
    return not (name == "reciprocal" and x == 0) and not (name in ("rsqrt", "log2") and x <= 0)


def results(name, table):
    """Yield number, result and function value in 300 bits for every finite number where the function is defined."""
    for code in range(1 << table.fmt.width):
        x = table.fmt.decode(code)
        if isinstance(x, Fraction) and defined(name, x):
            got = table.out.decode(table.code(code, RN, False))
            yield x, got, VALUES[name](mp.mpf(x.numerator) / x.denominator)


def rounded(value, out):
    """Return a correctly rounded value; magnitudes other than zero are limited to 2^-300 and 2^1000."""
    bounded = max(min(value, mp.mpf(2) ** 1000), -(mp.mpf(2) ** 1000))
    scaled = int(bounded * mp.mpf(2) ** 300) or int(mp.sign(value))
    return out.decode(out.encode(Fraction(scaled) / 2**300))


def largest_error(name, table):
    """Return the largest error in ulp; a result out of range must be the correctly rounded one."""
    largest, out = mp.zero, table.out
    with mp.workprec(400):
        top = mp.mpf(out.largest.numerator) / out.largest.denominator
        for x, got, value in results(name, table):
            expected = rounded(value, out) if abs(value) > top else got
            if isinstance(got, float) or isinstance(expected, float):
                assert str(got) == str(expected), (name, x)
                continue
            # A format that saturates holds the end of its range in place of the value.
            value = max(min(value, top), mp.mpf(out.lowest.numerator) / out.lowest.denominator)
            largest = max(largest, abs(mp.mpf(got.numerator) / got.denominator - value) / ulp(value, out))
    return largest


QUICK = [*itertools.product(FUNCTIONS, ("e4m3fn", "e5m2")), ("gelu", "e6m3"), ("sigmoid", "e6m3"), ("tanh", "bf16")]
LONG = [*itertools.product(FUNCTIONS, ("bf16", "fp16", "fxp4.12"))]


def check_error(name, fmt, bound):
    table = segments_of(name, fmt=fmt, error=bound)
    # Values are rounded to 53 bits in the fit.
    assert largest_error(name, table) <= bound * (1 + mp.mpf(2) ** -40)


@pytest.mark.sampled(64, 2)
@pytest.mark.parametrize(("name", "fmt"), QUICK)
def test_error_is_met_in_ulp_of_the_result_format(name, fmt):
    check_error(name, fmt, 1)


@pytest.mark.slow
@pytest.mark.sampled(24, 24)
@pytest.mark.parametrize(("name", "fmt"), LONG)
def test_error_is_met_in_ulp_of_16_bit_formats(name, fmt):
    check_error(name, fmt, 2)


@pytest.mark.slow
def test_gelu_of_bf16_within_one_ulp():
    """It was -1.14 at -1.14, because the error was absolute; gelu(-1.140625) is -0.1447."""
    table = segments_of("gelu", fmt="bf16", error=1)
    assert abs(table.code(0xBF92, RN, False) - 0xBE14) <= 1


def test_error_of_tanh_in_bf16_is_not_absolute():
    """One as an absolute error allows the constant 0."""
    table = segments_of("tanh", fmt="bf16", error=1)
    for code in (0x3F80, 0x3C00, 0x0080, 0xBF80):
        x = float(parse("bf16").decode(code))
        got = float(parse("bf16").decode(table.code(code, RN, False)))
        assert got == pytest.approx(float(mpmath.tanh(x)), rel=2.0**-7)


def test_absolute_error_is_named():
    """The description with a name allows what the number alone does not."""
    found = fit("tanh", "bf16", error=0.05, measure="absolute")
    assert found.measure == "absolute"
    assert found.errors.absolute.max() <= 0.05
    assert found.errors.ulp.max() > 1
    spec = UnitSpec.parse("pwl tanh(bf16) error=0.05 measure=absolute")
    assert UnitSpec.parse(spec.text) == spec
    assert spec.text == "pwl tanh(bf16).rn error=0.05 measure=absolute"
    assert spec.budget == {"error": 0.05, "measure": "absolute"}
    with pytest.raises(ValueError, match="unknown measure 'relative'"):
        UnitSpec.parse("pwl tanh(bf16) error=1 measure=relative")


def test_pieces_alone_may_minimise_the_error_in_ulp():
    by_ulp, absolute = (fit("tanh", "e4m3fn", pieces=2, measure=measure) for measure in ("ulp", None))
    assert by_ulp.errors.ulp.max() < absolute.errors.ulp.max()
    assert by_ulp.errors.absolute.max() >= absolute.errors.absolute.max()


def test_unreachable_error_names_the_reachable_one():
    with pytest.raises(
        ValueError, match=r"error of 1 is not possible with 3 pieces, whose smallest error is about"
    ) as e:
        fit("gelu", "e6m3", error=1, pieces=3)
    reachable = float(str(e.value).rpartition("about ")[2].partition(";")[0])
    assert fit("gelu", "e6m3", error=reachable, pieces=3).error <= reachable


# Shape ---------------------------------------------------------------------------------------------------------------


def check_shape(name, table):
    """Check sign, f(0), symmetry and asymptotes over every code."""
    found = {x: (got, value) for x, got, value in results(name, table)}
    for x, (got, value) in found.items():
        sign = (got > 0) - (got < 0)
        assert sign in (0, int(mp.sign(value))), (name, table.fmt, x, got)
    out = table.out
    at_zero = {"sigmoid": Fraction(1, 2), "hard_sigmoid": Fraction(1, 2), "exp": Fraction(1)}
    if 0 in found and name not in ("softplus", "reciprocal"):
        assert found[0][0] == out.decode(out.encode(at_zero.get(name, Fraction(0))))
    if name in ("tanh", "erf", "reciprocal"):
        finite = {x: got for x, (got, _) in found.items() if isinstance(got, Fraction)}
        ends = {out.lowest, out.largest}
        pairs = [(got, finite[-x]) for x, got in finite.items() if -x in finite]
        assert all(-got == other or {got, other} == ends for got, other in pairs)
    limits = {"tanh": (-1, 1), "erf": (-1, 1), "sigmoid": (0, 1), "hard_sigmoid": (0, 1), "elu": (-1, None)}
    limits |= dict.fromkeys(("exp", "gelu", "silu", "softplus", "relu", "hard_swish"), (0, None))
    for x, limit in zip((min(found), max(found)), limits.get(name, (None, None)), strict=True):
        if limit is None and x > 0 and name in ("gelu", "silu", "softplus", "elu", "relu", "hard_swish"):
            limit = x
        if limit is not None:
            bounds = out.decode(out.encode(Fraction(limit)))
            with mp.workprec(400):
                reached = rounded(VALUES[name](mp.mpf(x.numerator) / x.denominator), out) == bounds
            assert not reached or found[x][0] == bounds, (name, table.fmt, x, found[x][0])


SHAPES = [
    *itertools.product(FUNCTIONS, ("e4m3fn", "e5m2", "fxp4.4", "fxp4.8"), ({"pieces": 4},)),
    *itertools.product(FUNCTIONS, ("e4m3fn", "posit8", "e5m2"), ({"pieces": 2},)),
    *itertools.product(
        ("tanh", "gelu", "sigmoid", "softplus"), ("fxp4.8",), ({"pieces": 3, "breakpoints": "uniform"},)
    ),
]


COSTLY = {
    *itertools.product(
        ("tanh", "sigmoid", "erf", "exp", "gelu", "silu", "softplus", "elu", "hard_swish"), ("fxp4.8",), (4,)
    ),
    ("exp", "fxp4.4", 4),
    *itertools.product(("gelu", "hard_swish"), ("e4m3fn", "posit8"), (2,)),
    ("silu", "e4m3fn", 2),
    *itertools.product(("tanh", "gelu", "sigmoid", "softplus"), ("fxp4.8",), (3,)),
}
"""Functions, formats and numbers of pieces for which the smallest error has another sign, f(0) or asymptote."""


@pytest.mark.sampled(60, 4)
@pytest.mark.parametrize(("name", "fmt", "options"), SHAPES)
def test_fit_keeps_sign_zero_symmetry_and_asymptotes(name, fmt, options, monkeypatch):
    """They cost no error; where all of them would, the smallest error comes first."""
    found, free = (fit(one, fmt, **options) for one in (name, replace(FUNCTIONS[name], shaped=False)))
    assert found.error <= free.error
    if (name, fmt, options["pieces"]) not in COSTLY:
        check_shape(name, found.segments)
        return
    with pytest.raises(AssertionError):
        check_shape(name, found.segments)
    shapes = points._shapes
    # The first shape is all of the function's shape, and the last one, from which a fit begins, none.
    monkeypatch.setattr(points, "_shapes", lambda *given: shapes(*given)[:1])
    kept = fit(name, fmt, **options)
    check_shape(name, kept.segments)
    assert kept.error > found.error


@pytest.mark.parametrize(
    ("name", "fmt", "x"), [("tanh", "e4m3fn", 0), ("gelu", "e4m3fn", -448), ("softplus", "e5m2", -57344)]
)
def test_fit_of_four_pieces_has_zeros_of_the_function(name, fmt, x):
    """These were 0.03125, -0.03125 and 0.125."""
    table = segments_of(name, fmt=fmt, pieces=4)
    assert table.out.decode(table.code(table.fmt.encode(Fraction(x)), RN, False)) == 0


# Formats -------------------------------------------------------------------------------------------------------------

PAIRS = (
    *("fxp4.4", "ufxp4.4", "ufxp0.8", "int6", "uint6", "e4m3fn", "e5m2", "e4m3fnuz", "e3m4-ftz", "e2m1fn"),
    *("e3m2-finite", "posit8", "posit8e0", "takum8", "nf4", "fxp2.4-wrap", "ufxp2.4-wrap", "int1", "uint1"),
    *("fxp4.4>ufxp2.6", "ufxp4.4>fxp2.6", "e4m3fn>fxp4.4", "fxp4.4>e4m3fn", "ufxp4.4>e5m2", "e5m2>ufxp4.4"),
    *("posit8>e4m3fn", "nf4>fxp2.6", "fxp2.6>nf4", "ufxp2.6>posit8", "takum8>bf16", "fp32", "e8m0fnu", "bf16x2"),
)
"""Formats of argument and result, of every family."""

REFUSED = ("wraps and cannot hold", "is defined at none of the numbers", "has 32 bits", "must not be")
"""Parts of the sentences that refuse a pair."""


def check_pair(name, pair, budget):
    """Check that a unit is right over every code, or refused in a sentence."""
    a, _, o = pair.partition(">")
    try:
        unit = Pwl.of(f"pwl {name}({a}){f'>{o}' if o else ''} {budget}")
    except ValueError as error:
        if not any(part in str(error) for part in REFUSED):
            raise
        return False
    table, count = unit.table, 1 << unit.table.fmt.width
    expected = [table.code(code, unit.rounding, False) for code in range(count)]
    assert pwl(torch.arange(count), table=table).tolist() == expected
    assert "largest error" in fit_lines(unit)[0]
    assert unit.name in verilog(unit)
    return True


@pytest.mark.sampled(432, 27)
@pytest.mark.parametrize("budget", ["pieces=3", "error=2"])
@pytest.mark.parametrize(("name", "pair"), [*itertools.product(FUNCTIONS, PAIRS)])
def test_function_between_formats_works_or_is_refused(name, pair, budget):
    check_pair(name, pair, budget)


@pytest.mark.parametrize("pair", ["ufxp4.4", "ufxp0.8", "ufxp4.4>e5m2", "ufxp2.6>posit8"])
def test_reciprocal_of_unsigned_numbers(pair):
    """It was refused, because the table had no values below zero."""
    assert check_pair("reciprocal", pair, "error=2")


def test_refused_function_has_exit_code_2():
    answer = CliRunner().invoke(cli, ["sim", "pwl exp(fxp2.4-wrap)"])
    assert answer.exit_code == 2
    assert "wraps and cannot hold all values of exp" in answer.output
    assert "Traceback" not in answer.output


def test_long_fit_has_progress_lines(own_build, capsys, monkeypatch):
    monkeypatch.setenv("HALFULP_QUIET", "0.01")
    monkeypatch.setattr(progress, "LONGEST", 0.01)
    with progress.heartbeat("synth"):
        segments_of("tanh", fmt="fxp3.5", error=1.5)
    assert (
        "halfulp: fitting tanh from fxp3.5 to fxp3.5 with error=1.5; this is done once, 0 s" in capsys.readouterr().err
    )
