"""Proofs of faithful rounding: bounds of Taylor coefficients, of angles, and of whole tables against mpmath."""

import mpmath
import numpy as np
import pytest

from halfulp.hdl.fit import faithful
from halfulp.hdl.fit.functions import fraction_of
from halfulp.hdl.fit.series import SERIES, VALUES, taylor
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.function import FUNCTIONS

MPMATH = {
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
}


def described(function, fmt="e6m11"):
    return FunctionSpec.parse(f"function {function}({fmt}).faithful")


@pytest.mark.parametrize("function", SERIES)
def test_bounds_contain_taylor_coefficients_of_mpmath(function):
    low = np.array([-9.0, -3.0, -0.5, 2.0**-9, 0.25, 1.0, 6.0])
    step = np.ldexp(abs(low), -5)
    bounds = taylor(function, low, low + step, 6)
    with mpmath.workprec(200):
        for part in (0.0, 0.37, 1.0):
            for place, x in enumerate(low + part * step):
                for order, value in enumerate(mpmath.taylor(MPMATH[function], mpmath.mpf(x), 5)):
                    assert bounds[order].low[place] <= value <= bounds[order].high[place]
                    width = bounds[order].high[place] - bounds[order].low[place]
                    assert width < 4 * max(abs(bounds[k].low[place]) for k in range(6))


@pytest.mark.parametrize("function", VALUES)
def test_values_have_the_errors_that_the_margin_allows(function):
    x = np.concatenate([np.linspace(-13.0, 8.0, 200) + 1 / 3, 2.0 ** np.arange(-30.0, 0.0)])
    with mpmath.workprec(120):
        right = [MPMATH[function](mpmath.mpf(value)) for value in x.tolist()]
        errors = [abs(got / want - 1) for got, want in zip(VALUES[function](x).tolist(), right, strict=True)]
    assert max(errors) < 2.0**-43


@pytest.mark.parametrize("exponent", [-3, -1, 0, 2, 5, 9])
def test_distance_of_angles_is_below_that_of_all_significands(exponent):
    precision = 9
    with mpmath.workprec(2000):
        turn = mpmath.ldexp(2 / mpmath.pi, exponent - precision + 1)
        bound = faithful._distance(exponent, turn, precision)
        products = (fraction_of(turn) * significand for significand in range(1 << (precision - 1), 1 << precision))
        least = min(abs(product - round(product)) for product in products)
    assert 0 < bound <= least
    assert bound > least / 16


def errors_of(spec, table):
    """Return the errors of v at all numbers of a power's table, in ulp of a result."""
    scale = 1 << table.fraction
    found = []
    for argument in range(0, scale, 97):
        index, t = argument >> table.rest, argument & ((1 << table.rest) - 1)
        total = 0
        for place, count in reversed(list(enumerate((table.rest, *table.inner)))):
            total = total if place < len(table.inner) else table.rows[index][-1]
            total = table.rows[index][place] + (total * (t >> (table.rest - count)) >> count)
        found.append((total / 2.0**table.value - 2.0 ** (argument / scale)) * 2.0 ** (spec.result.precision - 1))
    return np.array(found)


def test_bound_of_a_table_holds_and_is_no_excess():
    spec = described("exp2")
    table = faithful.fit(spec)
    errors = abs(errors_of(spec, table))
    # The argument loses less than its last place, and rounding to nearest adds a half.
    most = errors.max() + 0.5
    assert table.bound / 1.25 < most < table.bound < 0.75


def test_bounds_of_all_functions_are_below_one_place():
    for function in FUNCTIONS:
        assert 0.5 < faithful.fit(described(function)).bound < 0.75


@pytest.mark.parametrize("function", ["exp2", "log", "tanh", "sin"])
def test_too_few_fraction_bits_are_refused(function, monkeypatch):
    monkeypatch.setattr(faithful, "MORE_BITS", (1, 2))
    with pytest.raises(ValueError, match="no table of polynomials of up to 4096 segments is faithful for function"):
        faithful.fit(described(function))


def test_wrong_coefficients_have_no_bound():
    spec = described("tanh")
    binades = faithful.Binades(spec, faithful.Demand.of(spec.result))
    bits, width, group = spec.result.precision + 5, spec.a.precision - 1, -binades.ends[0]
    pieces = binades.pieces(group, 5)
    lines = pieces.lines(2)
    inner = faithful._inner([pieces], bits, 2, width)
    assert pieces.rows(lines, bits, width, inner)[1] < 1
    # A coarser interval has a larger error of interpolation.
    assert binades.pieces(group, 1).rows(binades.lines(group, 1, 2), bits, width, inner)[1] > 1
    # Fewer bits of t lose more of a product.
    assert pieces.rows(lines, bits, width, (1,))[1] > 1


def test_quarter_of_a_last_place():
    demand = faithful.Demand.of(parse("fp32"))
    quarters = demand.quarter(np.array([1.0, 1.5, 2.0, 2.0**-126, 2.0**-140, 0.0]))
    assert quarters.tolist() == [2.0**-25, 2.0**-25, 2.0**-24, 2.0**-151, 2.0**-151, 2.0**-151]
    assert faithful.Demand.of(parse("e6m12-ftz")).quarter(np.array([0.0])) == 2.0 ** -(30 + 12 + 2)
