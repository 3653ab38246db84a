"""Functions to approximate: values at any precision, symmetries, limits and domains.

Each function lists its rational values. Rounding is decided by raising the precision until the value is on one side of
a threshold, which never happens if the value is the threshold. At other arguments exp, tanh, sigmoid, softplus, SiLU
and ELU are transcendental (Lindemann and Weierstrass, 1885), as are erf and GELU (Siegel, 1929), and the logarithm of a
rational number is irrational unless the number is a power of two.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import mpmath
from mpmath import mp

from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.pwl import FUNCTIONS as NAMES
from halfulp.hdl.specs.pwl import read_function
from halfulp.hdl.specs.segments import Special

ALL, NONZERO, POSITIVE = "all numbers", "numbers other than zero", "numbers above zero"
"""Domains of functions."""

GUARD = 16
"""Number of low bits of a value that may be wrong at a working precision."""


def _never(x: Fraction) -> None:
    """Return None: no value is rational. A named function, because lambdas cannot be pickled."""


@dataclass(frozen=True)
class Function:
    """Real function of one number.

    Parameters
    ----------
    name : str
    value : callable
        Function of an mpmath number, accurate to a few units of the last place at the working precision.
    exact : callable
        Function of a fraction that returns the value if it is rational, else None.
    symmetry : str, optional
        Symmetry, as in `Segments`.
    domain : str
        Domain: ``ALL``, ``NONZERO`` or ``POSITIVE``.
    reduction : str, optional
        Reduction that `Segments` can use.
    left, right : Fraction, optional
        Slopes of the asymptotes at -inf and at inf.
    scales : bool
        True if f(c x) = c f(x) for all c above zero.
    shaped : bool
        True if fits keep sign, f(0) and asymptotes where that costs no error; false for a callable, whose sign may
        change often.
    beyond : bool
        True if values are farther from zero than the asymptotes, false if they are nearer. Rational values of `exact`
        may equal the asymptotes.
    nan, inf, minus_inf, zero, minus_zero, negative : Fraction or str, optional
        Special values, as in `Segments`.
    """

    name: str
    value: Callable[[Any], Any]
    exact: Callable[[Fraction], Fraction | None] = _never
    symmetry: str | None = None
    domain: str = ALL
    reduction: str | None = None
    left: Fraction | None = None
    right: Fraction | None = None
    scales: bool = False
    shaped: bool = True
    beyond: bool = False
    nan: Special = "nan"
    inf: Special | None = None
    minus_inf: Special | None = None
    zero: Special | None = None
    minus_zero: Special | None = None
    negative: Special | None = None

    def defined(self, x: Fraction) -> bool:
        """Return True if the function is defined at a number."""
        return self.domain == ALL or x > 0 or (self.domain == NONZERO and x != 0)

    def asymptote(self, above: bool) -> tuple[float, float] | None:
        """Return slope and intercept of the asymptote above or below zero, or None."""
        slope, special = (self.right, self.inf) if above else (self.left, self.minus_inf)
        if slope is None:
            return None
        return float(slope), float(special) if isinstance(special, Fraction) else 0.0

    def limit(self, x: Fraction) -> tuple[Fraction, int] | None:
        """Return the asymptote's value at x, and 1 if the function is above it, -1 if below.

        Return None if there is no asymptote, or if it is zero.
        """
        slope, special = (self.right, self.inf) if x > 0 else (self.left, self.minus_inf)
        if slope is None or (slope == 0 and not isinstance(special, Fraction)):
            return None
        line = slope * x + (special if isinstance(special, Fraction) else 0)
        return (line, 1 if (line > 0) == self.beyond else -1) if line else None

    def at(self, x: Fraction, bits: int = 80) -> Any:
        """Return the value at a number: a Fraction if it is rational, else an mpmath number of ``bits`` bits.

        The last `GUARD` bits of the mpmath number may be wrong.

        Raises
        ------
        ValueError
            If the function is not defined at this number.
        """
        if not self.defined(x):
            raise ValueError(f"{self.name} has no value at {float(x):g}; its domain is {self.domain}")
        if (exact := self.exact(x)) is not None:
            return exact
        if bits == mp.prec:
            return self.value(mpmath.mpf(x.numerator) / x.denominator)
        with mp.workprec(bits):
            return self.at(x, bits)


# Values -------------------------------------------------------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: Any) -> Any:
    return max(x, 0) + mp.log1p(mp.exp(-abs(x)))


def _gelu(x: Any) -> Any:
    # erfc avoids cancellation for negative x.
    return x * mp.erfc(-x / mp.sqrt(2)) / 2


def _at_zero(value: Fraction | int) -> Callable[[Fraction], Fraction | None]:
    return lambda x: Fraction(value) if x == 0 else None


def _root(x: int) -> int | None:
    root = math.isqrt(x)
    return root if root * root == x else None


def _exact_rsqrt(x: Fraction) -> Fraction | None:
    above, below = _root(x.numerator), _root(x.denominator)
    return None if above is None or below is None else Fraction(below, above)


def _exact_log2(x: Fraction) -> Fraction | None:
    power = floor_log2(x)
    return Fraction(power) if x == Fraction(2) ** power else None


def _hard_sigmoid(x: Fraction) -> Fraction:
    return min(max(x / 6 + Fraction(1, 2), Fraction(0)), Fraction(1))


def _rational(exact: Callable[[Fraction], Fraction]) -> dict[str, Any]:
    """Return the fields of a function that is rational everywhere."""

    def value(x: Any) -> Any:
        fraction = exact(fraction_of(x))
        return mpmath.mpf(fraction.numerator) / fraction.denominator

    return {"value": value, "exact": exact}


def fraction_of(x: Any) -> Fraction:
    """Convert an mpmath number exactly."""
    # A new mpf would be rounded to the working precision.
    sign, mantissa, exponent, _ = (x if isinstance(x, mpmath.mpf) else mpmath.mpf(x))._mpf_
    return (-1 if sign else 1) * int(mantissa) * Fraction(2) ** int(exponent)


def elu(alpha: Fraction) -> Function:
    """Return ELU: x for x >= 0, else alpha * (exp(x) - 1)."""
    return Function(
        "elu",
        lambda x: alpha.numerator * mp.expm1(x) / alpha.denominator if x < 0 else +x,
        exact=lambda x: x if x >= 0 else None,
        left=ZERO,
        right=ONE,
        minus_inf=-alpha,
        inf="inf",
    )


def leaky_relu(slope: Fraction) -> Function:
    """Return leaky ReLU: x for x >= 0, else slope * x."""
    return Function("leaky_relu", **_rational(lambda x: max(x, ZERO) + slope * min(x, ZERO)), scales=True)


ZERO, HALF, ONE = Fraction(0), Fraction(1, 2), Fraction(1)
_LINEAR: dict[str, Any] = {"symmetry": "linear", "left": ZERO, "right": ONE, "minus_inf": ZERO, "inf": "inf"}
_SIGMOIDAL: dict[str, Any] = {"left": ZERO, "right": ZERO, "inf": ONE}
_POSITIVE: dict[str, Any] = {"domain": POSITIVE, "minus_inf": "nan", "minus_zero": "-inf", "negative": "nan"}
_RECIPROCAL: dict[str, Any] = {"right": ZERO, "inf": ZERO, "zero": "inf"}
_ODD_POLE: dict[str, Any] = {"symmetry": "odd", "left": ZERO, "minus_inf": "-0", "minus_zero": "-inf", **_RECIPROCAL}

ROWS = (
    Function("tanh", mp.tanh, _at_zero(0), **_SIGMOIDAL, symmetry="odd", minus_inf=-ONE),
    Function("sigmoid", _sigmoid, _at_zero(HALF), **_SIGMOIDAL, symmetry="point", minus_inf=ZERO),
    Function("erf", mp.erf, _at_zero(0), **_SIGMOIDAL, symmetry="odd", minus_inf=-ONE),
    Function("exp", mp.exp, _at_zero(1), reduction="exp2", left=ZERO, inf="inf", minus_inf=ZERO),
    Function("gelu", _gelu, _at_zero(0), **_LINEAR),
    Function("silu", lambda x: x * _sigmoid(x), _at_zero(0), **_LINEAR),
    Function("softplus", _softplus, **_LINEAR, beyond=True),
    elu(ONE),
    Function("relu", **_rational(lambda x: max(x, ZERO)), **_LINEAR, scales=True),
    leaky_relu(Fraction(1, 100)),
    Function("hard_sigmoid", **_rational(_hard_sigmoid), **_SIGMOIDAL, symmetry="point", minus_inf=ZERO),
    Function("hard_swish", **_rational(lambda x: x * _hard_sigmoid(x)), **_LINEAR),
    Function("reciprocal", **_rational(lambda x: 1 / x), **_ODD_POLE, domain=NONZERO, reduction="reciprocal"),
    Function("rsqrt", lambda x: 1 / mp.sqrt(x), _exact_rsqrt, **_POSITIVE, reduction="rsqrt", **_RECIPROCAL),
    Function("log2", lambda x: mp.log(x, 2), _exact_log2, **_POSITIVE, reduction="log2", inf="inf", zero="-inf"),
)
"""Values at zeros and infinities follow IEEE 754-2019, 9.2, for functions of the standard."""

_ROWS = {row.name: row for row in ROWS}
FUNCTIONS = {name: _ROWS[name] for name in NAMES}


def function_of(given: "str | Function | Callable[[Any], Any]") -> Function:
    """Return the function of a name, such as ``tanh`` or ``leaky_relu:0.2``, or of a callable.

    A callable takes an mpmath number or, if that fails, a float, and returns a number.

    Raises
    ------
    TypeError, ValueError
        If ``given`` is neither, or the name is unknown.
    """
    if isinstance(given, Function):
        return given
    if isinstance(given, str):
        return _named(given)
    if not callable(given):
        raise TypeError(f"a function must be a name such as 'tanh' or a callable, not {type(given).__name__}")
    return _called(given)


def _named(text: str) -> Function:
    name, value = read_function(text)
    if value is None:
        return FUNCTIONS[name]
    made = {"elu": elu, "leaky_relu": leaky_relu}[name](value)
    # Names consist of letters, digits and underscores, as names of modules do.
    suffix = str(value).replace("-", "minus_").replace("/", "_")
    return made if value == Fraction(1) and name == "elu" else replace(made, name=f"{name}_{suffix}")


def _called(function: Callable[[Any], Any]) -> Function:
    """Wrap a callable of the user."""
    named = getattr(function, "__name__", type(function).__name__)
    name = (
        "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in named).strip("_") or "function"
    )

    def value(x: Any) -> Any:
        return _checked(_apply(function, x, name), x, name)

    def exact(x: Fraction) -> Fraction | None:
        # A value that is equal at two precisions is taken as exact.
        values = [_value_of(value, x, bits) for bits in (80, 200)]
        return values[0] if values[0] == values[1] else None

    return Function(name, value, exact, shaped=False)


def _value_of(value: Callable[[Any], Any], x: Fraction, bits: int) -> Fraction:
    with mp.workprec(bits):
        return fraction_of(value(mpmath.mpf(x.numerator) / x.denominator))


def _apply(function: Callable[[Any], Any], x: Any, name: str) -> Any:
    try:
        return function(x)
    except Exception:
        # Some functions take only floats, for example those of numpy.
        try:
            return function(float(x))
        except Exception as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise ValueError(f"{name} fails at {float(x):g}: {what}") from None


def _checked(result: Any, x: Any, name: str) -> Any:
    """Return the result of a callable as an mpmath number; raise ValueError if it is not a finite real number."""
    if isinstance(result, complex | mpmath.mpc):
        raise ValueError(f"{name} is complex at {float(x):g}; expected a real number")
    try:
        if isinstance(result, str):
            raise TypeError
        number = (
            mpmath.mpf(result.numerator) / result.denominator if isinstance(result, Fraction) else mpmath.mpf(result)
        )
    except (TypeError, ValueError):
        raise ValueError(f"{name} gives {result!r} at {float(x):g}, expected a number") from None
    if mpmath.isnan(number):
        raise ValueError(f"{name} is NaN at {float(x):g}; expected a number")
    if mpmath.isinf(number):
        raise ValueError(f"{name} is infinite at {float(x):g}; choose an interval without the pole")
    return number
