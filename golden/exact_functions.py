"""Functions of one number in exact fractions: bounds from series in integers, refined until both round equally.

An interval is a pair of integers in units of 2^-bits. Series are those of Taylor, with the first omitted term as the
bound of the remainder; pi is Machin's formula (1706).
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from halfulp.hdl.formats.base import floor_log2

Interval = tuple[Fraction, Fraction]
"""Lower and upper bound of a number."""

FAR = 1 << 12
"""Magnitude of exponents of two that are beyond all results."""

TINY = Fraction(1, 1 << FAR)
"""Distance that is smaller than all distances of a result from a number or tie."""


def _outward(low: Fraction, high: Fraction, bits: int) -> Interval:
    """Return an interval with bounds of at most ``bits`` significant bits that contains another one."""
    return _floor(low, bits), -_floor(-high, bits)


def _floor(x: Fraction, bits: int) -> Fraction:
    """Return the largest number of ``bits`` significant bits that is at most x."""
    if x == 0:
        return x
    unit = Fraction(2) ** (floor_log2(abs(x)) - bits + 1)
    return math.floor(x / unit) * unit


def _quotient(low: Fraction, high: Fraction, by: Interval, bits: int) -> Interval:
    """Return the quotient of an interval and one of positive numbers."""
    least, most = by
    return _outward(low / (most if low >= 0 else least), high / (least if high >= 0 else most), bits)


def _series(first: Fraction, ratio: Callable[[int], Fraction], bits: int) -> Interval:
    """Return bounds of a sum of terms ``t[n] = t[n-1] * ratio(n)``, whose ratios stay below 1/2 once they are."""
    unit = 1 << bits
    term, error, place = math.floor(first * unit), 1, 0
    total = slack = 0
    while True:
        total, slack, place = total + term, slack + error, place + 1
        following = ratio(place)
        if abs(term) <= 1 and abs(following) < Fraction(1, 2):
            # The rest is at most twice the next term.
            slack += abs(term) + error
            return Fraction(total - slack, unit), Fraction(total + slack, unit)
        term = term * following.numerator // following.denominator
        error = 1 - (-error * abs(following.numerator) // following.denominator)


def exp(x: Fraction, bits: int) -> Interval:
    """Return bounds of e^x with about ``bits`` significant bits."""
    halvings = max(floor_log2(abs(x)) + 2, 0) if x else 0
    bits += 2 * halvings + 8
    reduced = x / (1 << halvings)
    low, high = _series(Fraction(1), lambda n: reduced / n, bits)
    for _ in range(halvings):
        low, high = _outward(low * low, high * high, bits)
    return low, high


@lru_cache(maxsize=64)
def _arctangent(inverse: int, bits: int, sign: int = -1) -> Interval:
    """Return bounds of the arc tangent of 1 / ``inverse``, or with ``sign`` 1, of its hyperbolic one."""
    first = Fraction(1, inverse)
    return _series(first, lambda n: Fraction(sign * (2 * n - 1), (2 * n + 1) * inverse**2), bits + 16)


@lru_cache(maxsize=64)
def pi(bits: int) -> Interval:
    """Return bounds of pi."""
    (a, b), (c, d) = _arctangent(5, bits), _arctangent(239, bits)
    return 16 * a - 4 * d, 16 * b - 4 * c


@lru_cache(maxsize=64)
def _log_of_two(bits: int) -> Interval:
    low, high = _arctangent(3, bits, 1)
    return 2 * low, 2 * high


def log(x: Fraction, bits: int) -> Interval:
    """Return bounds of the natural logarithm of a positive number, with an error of about 2^-bits."""
    if x == 1:
        return x - 1, x - 1
    exponent = floor_log2(x * 4 / 3)
    z = x / Fraction(2) ** exponent
    z = (z - 1) / (z + 1)
    low, high = _series(z, lambda n: z * z * Fraction(2 * n - 1, 2 * n + 1), bits + 8)
    ends = [exponent * end for end in _log_of_two(bits + 16)]
    return 2 * low + min(ends), 2 * high + max(ends)


def _log2(x: Fraction, bits: int) -> Interval:
    low, high = log(x, bits)
    return _quotient(low, high, _log_of_two(bits + 16), bits + 16)


def _sine(x: Fraction, bits: int, quarters: int) -> Interval:
    """Return bounds of ``sin(x + quarters * pi / 2)``."""
    bits += 8
    low, high = pi(bits + max(floor_log2(abs(x)), 0) + 8)
    turns = round(2 * x / low)
    # The rest is in [-pi/4, pi/4], with little error; sine and cosine change by no more than it does.
    ends = x - turns * low / 2, x - turns * high / 2
    rest = _floor(ends[0], bits)
    error = max(abs(end - rest) for end in ends)
    quarter = (turns + quarters) % 4
    first, offset = (Fraction(1), 0) if quarter % 2 else (rest, 1)
    square = rest * rest
    low, high = _series(first, lambda n: -square / ((2 * n + offset) * (2 * n + offset - 1)), bits)
    return (low - error, high + error) if quarter < 2 else (-high - error, -low + error)


def _tanh(x: Fraction, bits: int) -> Interval:
    low, high = exp(2 * x, bits)
    return _quotient(low - 1, high - 1, (low + 1, high + 1), bits)


def _sigmoid(x: Fraction, bits: int) -> Interval:
    low, high = exp(-x, bits)
    return _quotient(Fraction(1), Fraction(1), (1 + low, 1 + high), bits)


def _silu(x: Fraction, bits: int) -> Interval:
    low, high = sorted(x * end for end in _sigmoid(x, bits))
    return low, high


def _error_function(square: Fraction, x: Fraction, bits: int) -> Interval:
    """Return bounds of ``x * (1 - s/3 + s^2/(2! 5) - ...)`` for s = ``square``."""
    # Terms grow up to e^s before they fall.
    bits += 2 * math.ceil(square) + 8
    return _series(x, lambda n: -square * Fraction(2 * n - 1, n * (2 * n + 1)), bits)


def _root(x: Fraction, bits: int) -> Fraction:
    """Return the floor of a square root, in units of 2^-bits."""
    return Fraction(math.isqrt(math.floor(x * 4**bits)), 1 << bits)


def _erf(x: Fraction, bits: int) -> Interval:
    low, high = _error_function(x * x, 2 * abs(x), bits)
    circle = pi(bits + 8)
    low, high = _quotient(
        low, high, (_root(circle[0], bits + 8), _root(circle[1], bits + 8) + Fraction(1, 1 << bits)), bits
    )
    return (low, high) if x > 0 else (-high, -low)


def _gelu(x: Fraction, bits: int) -> Interval:
    # erf(x / sqrt(2)) = x * sqrt(2 / pi) * (1 - s/3 + ...) with s = x^2 / 2, an odd function.
    low, high = _error_function(x * x / 2, x, bits)
    circle = tuple(end / 2 for end in pi(bits + 8))
    roots = (_root(circle[0], bits + 8), _root(circle[1], bits + 8) + Fraction(1, 1 << bits))
    low, high = _quotient(low, high, roots, bits + 8)
    ends = sorted((x * (1 + low) / 2, x * (1 + high) / 2))
    return ends[0], ends[1]


BOUNDS: dict[str, Callable[[Fraction, int], Interval]] = {
    "exp": exp,
    "exp2": lambda x, bits: (Fraction(2) ** int(x),) * 2 if x.denominator == 1 else _power_of_two(x, bits),
    "log": log,
    "log2": lambda x, bits: (Fraction(floor_log2(x)),) * 2 if x == Fraction(2) ** floor_log2(x) else _log2(x, bits),
    "sin": lambda x, bits: _sine(x, bits, 0),
    "cos": lambda x, bits: _sine(x, bits, 1),
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "erf": _erf,
    "gelu": _gelu,
}
"""Bounds of functions at a number other than zero, with an absolute error that falls with the number of bits."""


def _power_of_two(x: Fraction, bits: int) -> Interval:
    whole = math.floor(x)
    rest, scale = x - whole, Fraction(2) ** whole
    low, high = _log_of_two(bits + 16)
    return exp(rest * low, bits)[0] * scale, exp(rest * high, bits)[1] * scale


AT_ZERO = {"exp": Fraction(1), "exp2": Fraction(1), "cos": Fraction(1), "sigmoid": Fraction(1, 2)}
"""Values at zero; the others are zero, or for logarithms a pole."""


@lru_cache(maxsize=1 << 12)
def value(name: str, x: Fraction, window: int, smallest: Fraction) -> Fraction:
    """Return a number that rounds as the function of x, another number than zero.

    Parameters
    ----------
    name : str
    x : Fraction
    window : int
        Number of leading bits on which a rounding depends.
    smallest : Fraction
        Smallest number of the result format.
    """
    limit = _limit(name, x, window, smallest)
    if limit is not None:
        return limit
    bits = window + 16
    while True:
        low, high = BOUNDS[name](x, bits)
        if low == high:
            return low
        if low * high > 0:
            unit = Fraction(2) ** (floor_log2(min(abs(low), abs(high))) - window)
            if math.floor(low / unit) == math.floor(high / unit) and low % unit:
                return (low + high) / 2
        bits *= 2


def special(name: str, x: Fraction | float, negative: bool) -> tuple[Fraction | float, bool] | None:
    """Return magnitude and sign of a function at zeros, infinities and outside of its domain; None elsewhere."""
    if x == 0:
        if name in ("log", "log2"):
            return math.inf, True
        return AT_ZERO.get(name, Fraction(0)), negative and name not in AT_ZERO
    if name in ("log", "log2") and negative:
        return math.nan, False
    if isinstance(x, Fraction):
        return None
    if name in ("sin", "cos"):
        return math.nan, False
    if name in ("tanh", "erf"):
        return Fraction(1), negative
    if name == "sigmoid":
        return Fraction(not negative), False
    if negative:
        return Fraction(0), name in ("gelu", "silu")
    return math.inf, False


def _limit(name: str, x: Fraction, window: int, smallest: Fraction) -> Fraction | None:
    """Return a number that rounds as the function of x where it is next to a limit, beyond the range, or tiny."""
    depth = window + max(-floor_log2(smallest), 0) + 8
    far = abs(x) >= depth
    if name in ("exp", "exp2") and abs(x) > FAR:
        return Fraction(2) ** (FAR if x > 0 else -FAR)
    # Next to zero, these are a number plus or minus less than its last place.
    if name in ("exp", "exp2", "cos", "sigmoid") and abs(x) < Fraction(1, 1 << (2 * window)):
        start = AT_ZERO[name]
        return start * (1 + TINY * (-1 if x < 0 or name == "cos" else 1))
    if name in ("tanh", "sin") and abs(x) < Fraction(1, 1 << (2 * window)):
        return x * (1 - TINY)
    if not far or name not in ("tanh", "sigmoid", "erf", "silu", "gelu"):
        return None
    if name in ("tanh", "erf"):
        return (1 if x > 0 else -1) * (1 - TINY)
    if name == "sigmoid":
        return 1 - TINY if x > 0 else TINY
    return x * (1 - TINY) if x > 0 else -TINY
