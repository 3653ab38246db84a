"""Functions as line segments: fits are optimal, errors are exact, and impossible requests are refused."""

import math
import pickle
from fractions import Fraction
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest
from mpmath import mp

from halfulp.hdl.fit.fit import SHARE, fit
from halfulp.hdl.fit.functions import FUNCTIONS, Function, function_of
from halfulp.hdl.fit.grid import Grid
from halfulp.hdl.fit.points import nearest_to
from halfulp.hdl.fit.rounding_table import rounding_table_of
from halfulp.hdl.fit.store import segments_of
from halfulp.hdl.formats import RN, Codebook, Fixed, Posit, Rounding, parse
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs.pieces import Piece
from tests.settings import EXHAUSTIVE

# Rounding -----------------------------------------------------------------------------------------------------------


def between(fmt):
    """Return numbers of a format, its thresholds for any rounding, and numbers next to them."""
    held = sorted({x for code in range(1 << fmt.width) if isinstance(x := fmt.decode(code), Fraction)})
    numbers = {a + (b - a) * Fraction(place, 8) for a, b in pairwise(held) for place in range(9)}
    step = held[-1] - held[-2]
    numbers |= {held[-1] + step * Fraction(place, 8) for place in range(20)}
    numbers |= {held[0] - step * Fraction(place, 8) for place in range(20)}
    if isinstance(fmt, Posit):
        finer = Posit(fmt.width + 1, fmt.es)
        edges = [x for code in range(1 << finer.width) if isinstance(x := finer.decode(code), Fraction)]
        numbers |= {x * side for x in edges for side in (1, 1 + Fraction(1, 1 << 20), 1 - Fraction(1, 1 << 20))}
    return sorted(x for x in numbers if Fraction(float(x)) == x)


@pytest.mark.parametrize("name", ["e3m2", "e3m2fn", "e2m3fnuz", "e4m2fn", "e3m0fn-ftz", "e2m3-ftz", "posit6", "fxp3.2"])
def test_rounding_table_matches_encode(name):
    fmt = parse(name)
    numbers = between(fmt)
    for mode in ROUNDING_MODES:
        rounding_table = rounding_table_of(fmt, Rounding(mode))
        for x, place in zip(numbers, rounding_table.round(np.array([float(x) for x in numbers])), strict=True):
            expected = fmt.decode(fmt.encode(x, mode))
            got = float(rounding_table.values[place])
            if isinstance(expected, float):
                assert got == math.copysign(math.inf, x)
            else:
                assert got == expected


@pytest.mark.parametrize("name", ["fxp2.3-wrap", "ufxp2.2-wrap"])
def test_rounding_table_rejects_wrapping_values(name):
    fmt = parse(name)
    for mode in ROUNDING_MODES:
        rounding_table = rounding_table_of(fmt, Rounding(mode))
        for x in between(fmt):
            rounded = Rounding(mode).round_signed(x / fmt.smallest) * fmt.smallest
            held = fmt.lowest <= rounded <= fmt.largest
            got = float(rounding_table.values[rounding_table.round(np.array([float(x)]))[0]])
            assert got == (rounded if held else math.copysign(math.inf, x))


def test_rounding_table_uses_low_order_part():
    rounding_table = rounding_table_of(parse("int4"), RN)
    half, rest = np.array([0.5, 0.5, 0.5, 1.5]), np.array([0.0, 2.0**-80, -(2.0**-80), -(2.0**-80)])
    assert rounding_table.values[rounding_table.round(half, rest)].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_correctly_rounded_values_match_high_precision(name):
    """Compare with values of 400 bits, which are not close to a threshold unless they are rational."""
    function, fmt, out = FUNCTIONS[name], parse("fxp4.3"), parse("fxp5.6")
    rounding_table = rounding_table_of(out, RN)
    for code in range(1 << fmt.width):
        x = fmt.decode(code)
        if not function.defined(x):
            continue
        exact = function.exact(x)
        value = exact if exact is not None else Fraction(str(mpmath.nstr(function.at(x, 400), 100)))
        assert rounding_table.values[nearest_to(function, x, rounding_table)] == out.decode(out.encode(value))


def test_correctly_rounded_values_near_threshold():
    """2^-150 above half a last place, which no double can distinguish."""
    out = parse("fxp2.4")
    for side in (1, -1):
        function = function_of(lambda x, side=side: x + mpmath.mpf(2) ** -5 + side * mpmath.mpf(2) ** -150 * mp.exp(x))
        x = Fraction(1, 2)
        assert rounding_table_of(out, RN).values[nearest_to(function, x, rounding_table_of(out, RN))] == 0.5 + (
            2.0**-4 if side > 0 else 0
        )


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "erf", "gelu", "silu", "softplus", "elu"])
def test_correctly_rounded_values_near_limit(name):
    """exp(-30000) next to the limit, with directed rounding, so that a bit depends on the side of the limit."""
    function, x = FUNCTIONS[name], Fraction(30720)
    out = parse("fp16")
    for x in (Fraction(30720), Fraction(-30720)):
        limit = {"tanh": 1 if x > 0 else -1, "erf": 1 if x > 0 else -1, "sigmoid": 1, "elu": -1}.get(name, x)
        if (name == "elu") == (x > 0) or (x < 0 and name not in ("tanh", "erf", "elu")):
            continue
        above = (name == "softplus") != (x < 0)
        for mode in ("ru", "rd", "rz"):
            rounded = out.decode(out.encode(limit + Fraction(1 if above else -1, 1 << 40), mode))
            rounding_table = rounding_table_of(out, Rounding(mode))
            assert rounding_table.values[nearest_to(function, x, rounding_table)] == rounded


def test_fit_of_one_bit_format_is_exact():
    found = fit("relu", "int1", pieces=1)
    assert (found.error, found.errors.ulp.max()) == (0, 0)


# After rounding ------------------------------------------------------------------------------------------------------


def results(segments, codes, piece):
    """Return integer results for integer arguments above zero, by integer arithmetic, rounded to nearest."""
    places = segments.slope.frac_bits + segments.fmt.frac_bits
    assert segments.intercept.frac_bits <= 40
    shift = max(places, segments.intercept.frac_bits)
    slope = int(piece[0] / segments.slope.smallest) << (shift - places)
    total = codes * slope + (int(piece[1] / segments.intercept.smallest) << (shift - segments.intercept.frac_bits))
    cut = shift - segments.out.frac_bits
    floor = total >> cut
    rest = total - (floor << cut)
    half = 1 << (cut - 1)
    rounded = floor + ((rest > half) | ((rest == half) & (floor % 2 == 1)))
    return np.clip(rounded, segments.out.lowest_integer, segments.out.largest_integer)


def near(number, fmt):
    """Return a coefficient and its neighbours."""
    return [x for x in (number - fmt.smallest, number, number + fmt.smallest) if fmt.lowest <= x <= fmt.largest]


def best_of_neighbours(found, value):
    """Return the smallest maximum error of tables with every coefficient and breakpoint within one place."""
    segments = found.segments
    scale = int(1 / segments.fmt.smallest)
    starts = [int(piece.start * scale) for piece in segments.pieces] + [1 << (segments.fmt.width - 1)]
    reach = {}
    for index, piece in enumerate(segments.pieces):
        lines = list(product(near(piece.slope, segments.slope), near(piece.intercept, segments.intercept)))
        moves = [
            [0] if index in (0, len(segments.pieces)) else [-1, 0, 1],
            [0] if index + 1 == len(segments.pieces) else [-1, 0, 1],
        ]
        low, high = starts[index] + moves[0][0], starts[index + 1] + moves[1][-1]
        codes = np.arange(low, high)
        errors = [np.abs(results(segments, codes, line) / scale - value[codes]) * scale for line in lines]
        for first, last in product(*moves):
            cut = slice(starts[index] + first - low, starts[index + 1] + last - low)
            reach[index, first, last] = min(error[cut].max(initial=0) for error in errors)
    best = {0: 0.0}
    for index in range(len(segments.pieces)):
        following = {}
        for (at, first, last), error in reach.items():
            if at == index and first in best:
                following[last] = min(following.get(last, math.inf), max(best[first], error))
        best = following
    return best[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "fmt", "pieces"), [("tanh", "fxp4.8", 5), ("sigmoid", "fxp4.8", 4), ("tanh", "fxp4.12", 8)]
)
def test_fit_is_locally_optimal(name, fmt, pieces):
    """Vary every coefficient and breakpoint by one place."""
    found = fit(name, fmt, pieces=pieces)
    codes = np.arange((1 << (parse(fmt).width - 1)) + 1) / float(1 / parse(fmt).smallest)
    value = np.tanh(codes) if name == "tanh" else 1 / (1 + np.exp(-codes))
    assert found.pieces == pieces
    assert found.errors.ulp.max() == found.error
    assert best_of_neighbours(found, value) == pytest.approx(found.error, rel=1e-9)
    # The check is not trivial: another line has another error.
    wrong = found.segments.pieces[1]
    other = np.abs(results(found.segments, np.arange(len(codes)), (wrong.slope, wrong.intercept)) - value * codes[-1])
    assert other.max() > found.error


@pytest.mark.slow
@pytest.mark.parametrize("against", ["real", "rounded"] if EXHAUSTIVE else ["real"])
def test_fit_of_tanh16_within_one_ulp_has_known_pieces(against):
    found = fit("tanh", "fxp4.12", error=1, against=against)
    errors = found.errors
    assert found.pieces == {"real": 36, "rounded": 26}[against]
    assert errors.off.max() == 1
    assert len(errors.x) == 1 << 16
    if against == "real":
        # Faithful: each result is one of the two numbers around the value.
        assert np.all(np.abs(errors.got - errors.value) < 2.0**-12 + 1e-18)
    if EXHAUSTIVE:
        assert fit("tanh", "fxp4.12", pieces=found.pieces - 1, against=against).error > 1


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_free_breakpoints_beat_uniform(name):
    """Free breakpoints win if the error is well above that of rounding."""
    reduced = FUNCTIONS[name].reduction and name != "exp"
    fmt = ("fp16" if reduced else "fxp4.12") if EXHAUSTIVE else ("e5m5" if reduced else "fxp4.8")
    for pieces in (4, 8, 16) if EXHAUSTIVE else (8,):
        free, even = (fit(name, fmt, pieces=pieces, breakpoints=kind) for kind in ("free", "uniform"))
        assert free.error < even.error or free.error <= 0.5 * (1 + SHARE)
        assert free.errors.ulp.max() == free.error


# Errors are exact ---------------------------------------------------------------------------------------------------

TABLES = [
    ("tanh", "fxp3.5", {}),
    ("tanh", "e4m3", {}),
    ("tanh", "e4m3fn", {"measure": "ulp"}),
    ("sigmoid", "posit8", {}),
    ("gelu", "fxp4.4", {"slopes": "pow2"}),
    ("silu", "e4m3", {"breakpoints": "power"}),
    ("exp", "e5m3", {}),
    ("exp", "fxp3.5", {"rounding": "rd"}),
    pytest.param("reciprocal", "e4m3", {"rounding": "rz"}, marks=pytest.mark.slow),
    ("rsqrt", "fxp4.4", {}),
    ("log2", "posit8", {}),
    ("softplus", "fxp3.4-wrap", {"interval": (-2, 2)}),
    (np.cos, "fxp3.5", {"symmetry": "even", "against": "rounded"}),
]


@pytest.mark.sampled(8, 16)
@pytest.mark.parametrize(("name", "fmt", "options"), TABLES)
def test_fit_errors_match_exact_table(name, fmt, options):
    found = fit(name, fmt, pieces=4, **options)
    segments, errors = found.segments, found.errors
    rounding = options.get("rounding", "rn")
    for x, got, rounded in zip(errors.x, errors.got, errors.rounded, strict=True):
        exact = segments.out.decode(segments.out.encode(segments.value(Fraction(x)), rounding))
        assert got == (float(exact) if isinstance(exact, Fraction) else math.copysign(math.inf, rounded))
    assert (errors.off.max() == 0) == bool(np.array_equal(errors.got, errors.rounded))
    assert errors.ulp.mean() <= errors.ulp.max()
    assert errors.ulp[errors.x == errors.at] == errors.ulp.max()
    measured = {"ulp": errors.ulp.max(), "absolute": errors.absolute.max()}[found.measure]
    if "against" not in options:
        assert measured == found.error


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["tanh", "silu"])
def test_lean_fit_meets_its_error_bound(name):
    """The bound is halfway between free and uniform breakpoints; the fit has shorter coefficients and breakpoints."""
    free, even = (fit(name, "fxp4.8", pieces=8, breakpoints=kind) for kind in ("free", "uniform"))
    bound = (free.error + even.error) / 2
    small = fit(name, "fxp4.8", pieces=8, error=bound)
    assert small.pieces <= 8
    assert free.error < small.error <= bound < even.error
    assert small.errors.ulp.max() == small.error
    bits = [one.segments.slope.width + one.segments.intercept.width for one in (small, free, even)]
    assert bits[0] < min(bits[1:])
    # Seven leading bits of twelve select its pieces; the other fit needs more.
    leading = [all(piece.start % Fraction(1, 8) == 0 for piece in one.segments.pieces) for one in (small, free, even)]
    assert leading == [True, False, False]


def test_fit_reaches_zero_error_where_possible():
    found = fit("relu", "fxp4.4", pieces=8, error=0)
    assert (found.error, found.segments.pieces) == (0, (Piece(Fraction(0), Fraction(1), Fraction(0)),))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["tanh", "silu"])
def test_fit_ignores_unreachable_exponents(name):
    """All arguments are near zero; a range up to 2^128 or 2^16 makes no difference."""
    near, far, flushed = (fit(name, fmt, pieces=6) for fmt in ("e5m3", "e8m3", "e8m3-ftz"))
    assert 2.0**-6 < near.error < 2.0**-3
    assert near.error == far.error == flushed.error
    assert near.segments.pieces[1:] == far.segments.pieces[1:] == flushed.segments.pieces[1:]


def test_fit_uses_given_coefficient_formats():
    found = fit("tanh", "fxp4.8", pieces=3, slope="fxp2.3", intercept="e5m4")
    assert (found.segments.slope, found.segments.intercept) == (Fixed(2, 3), parse("e5m4"))
    wide = fit("tanh", "fxp4.8", pieces=3)
    assert found.error > wide.error


@pytest.mark.slow
def test_power_of_two_slopes_have_few_terms():
    one, two = (fit("sigmoid", "fxp4.6", pieces=4, slopes="pow2", terms=terms) for terms in (1, 2))
    assert one.error > two.error > fit("sigmoid", "fxp4.6", pieces=4).error
    assert all(len(one.segments.slope.powers(piece.slope)) <= 1 for piece in one.segments.pieces)


def test_power_breakpoints_are_multiples_of_piece_length():
    found = fit("tanh", "fxp4.8", pieces=6, breakpoints="power")
    starts = [int(piece.start * 256) for piece in found.segments.pieces]
    for first, last in pairwise(starts[:-1]):
        length = last - first
        assert length & (length - 1) == 0
        assert first % length == 0


def test_fit_clamps_outside_interval():
    found = fit("exp", "fxp4.6", pieces=3, interval=(-1, 1))
    errors = found.errors
    assert errors.value[0] == math.exp(-1)
    assert errors.value[-1] == math.e
    assert errors.got[0] == errors.got[errors.x == -1]


# Errors of requests ---------------------------------------------------------------------------------------------------


def raising(x):
    raise KeyError("no")


@pytest.mark.parametrize(
    ("function", "options", "kind", "sentence"),
    [
        ("tanh", {"pieces": 0}, ValueError, "pieces 0"),
        ("tanh", {"pieces": 2.0}, TypeError, "pieces of a fit must be an int"),
        ("tanh", {"pieces": True}, TypeError, "pieces of a fit must be an int"),
        ("tanh", {}, ValueError, "a number of pieces, an error, or both"),
        (
            "tanh",
            {"pieces": 1, "error": 0.6},
            ValueError,
            "tanh cannot be fitted: an error of 0.6 is not possible with 1 p",
        ),
        ("tanh", {"error": -1}, ValueError, "at least 0, not -1"),
        ("tanh", {"error": 0}, ValueError, "has an error of 0.49"),
        ("tanh", {"error": "1"}, TypeError, "error must be a number"),
        ("tanh", {"error": 0.25}, ValueError, "has an error of 0.49"),
        ("tan", {"pieces": 2}, ValueError, "unknown function 'tan'"),
        ("tanh:2", {"pieces": 2}, ValueError, "have a parameter"),
        ("elu:x", {"pieces": 2}, ValueError, "parameter 'x' must be a number"),
        (3, {"pieces": 2}, TypeError, "a function must be a name"),
        (
            "reciprocal",
            {"pieces": 2, "reduction": None},
            ValueError,
            "reciprocal has a pole at zero, which fxp4.4 holds",
        ),
        ("reciprocal", {"pieces": 2, "interval": (-1, 2)}, ValueError, "a pole or no value at 0, inside the interval"),
        ("log2", {"pieces": 2, "interval": (-1, 2)}, ValueError, "log2 has a pole or no value at -1"),
        ("tanh", {"pieces": 2, "interval": (1, 1)}, ValueError, "the interval from 1 to 1 is empty"),
        ("tanh", {"pieces": 2, "interval": (0, math.inf)}, ValueError, "must be a pair of finite numbers"),
        ("tanh", {"pieces": 2, "interval": 3}, TypeError, "must be a pair of numbers"),
        ("tanh", {"pieces": 2, "interval": (0, 9)}, ValueError, "fxp4.4 cannot hold the end of the interval 9"),
        (
            "tanh",
            {"pieces": 2, "slope": "fxp-2.6"},
            ValueError,
            "tanh cannot be fitted with slopes in fxp-2.6: fxp-2.6 cannot hold a slope of 0.",
        ),
        (
            "tanh",
            {"pieces": 2, "slope": "fxp4.45"},
            ValueError,
            "fxp4.45 has 48 significand bits",
        ),
        (
            "tanh",
            {"pieces": 2, "intercept": "fxp4.50"},
            ValueError,
            "fxp4.50 has 53 significand bits",
        ),
        ("tanh", {"pieces": 2, "reduction": "exp2"}, ValueError, "tanh has no reduction 'exp2'"),
        ("exp", {"pieces": 2, "symmetry": "odd"}, ValueError, "exp is not odd"),
        ("exp", {"pieces": 2, "interval": (0, 1), "symmetry": "odd"}, ValueError, "needs negative numbers"),
        (
            "tanh",
            {"pieces": 2, "breakpoints": "some"},
            ValueError,
            "unknown breakpoints 'some'",
        ),
        ("tanh", {"error": 1, "breakpoints": "uniform"}, ValueError, "uniform breakpoints need a number of pieces"),
        ("tanh", {"pieces": 2, "slopes": "pow2", "slope": "int8"}, ValueError, "slope does nothing"),
        ("tanh", {"pieces": 2, "slopes": "pow2", "terms": 0}, ValueError, "terms 0"),
        ("tanh", {"pieces": 2, "rounding": "sr4"}, ValueError, "rounding sr4"),
        ("tanh", {"pieces": 2, "out": "fp32"}, ValueError, "fp32 has 32 bits"),
        ("exp", {"pieces": 2, "out": "fxp2.4-wrap"}, ValueError, "fxp2.4-wrap wraps"),
        (lambda x: math.nan, {"pieces": 2}, ValueError, "lambda is NaN at -8"),
        (lambda x: math.inf, {"pieces": 2}, ValueError, "lambda is infinite at -8"),
        (lambda x: "1", {"pieces": 2}, ValueError, "lambda gives '1' at -8"),
        (mp.sqrt, {"pieces": 2}, ValueError, "is complex at -8"),
        (lambda x: 1 / (x - 1), {"pieces": 2}, ValueError, "lambda fails at 1: "),
        (raising, {"pieces": 2}, ValueError, "raising fails at -8: KeyError: 'no'"),
    ],
)
def test_fit_rejects_bad_requests(function, options, kind, sentence):
    with pytest.raises(kind) as caught:
        fit(function, "fxp4.4", **options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_grid_has_no_numbers_near_infinity():
    assert not len(Grid(-1.0, 1.0, 2.0**-4).near(math.inf))
    assert Grid(-1.0, 1.0, 2.0**-4).near(1.03).tolist() == [1.0]


def test_fit_rejects_format_outside_domain():
    below = Codebook("below", tuple(map(Fraction, (-4, -2, -1, 0))))
    with pytest.raises(ValueError, match="none of the numbers"):
        fit("rsqrt", below, "posit8", pieces=1)


def test_fit_rejects_rounding_with_zero_results():
    with pytest.raises(ValueError, match="rounding ru"):
        fit("exp", "e2m1fn", pieces=4, rounding="ru")


@pytest.mark.parametrize("rounding", ["rz", "ru"])
def test_fit_against_rounded_values_accepts_finite_roundings(rounding):
    found = fit("reciprocal", "e4m3", pieces=2, measure="absolute", against="rounded", rounding=rounding)
    assert math.isfinite(found.error)


def test_segments_of_rejects_unknown_options_and_ignores_none():
    with pytest.raises(TypeError, match="against"):
        segments_of("tanh", fmt="fxp3.3", pieces=2, against="rounded")
    assert segments_of("relu", fmt="fxp3.3", pieces=None) == segments_of("relu", fmt="fxp3.3", pieces=8)


def test_function_of_a_user_can_be_pickled():
    function = Function("mine", math.sqrt)
    assert pickle.loads(pickle.dumps(function)) == function
