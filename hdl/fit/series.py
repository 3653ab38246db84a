"""Bounds of Taylor coefficients of functions on intervals, by arithmetic on intervals of arrays.

Recurrences: Griewank and Walther, Evaluating Derivatives, 2008, chapter 13.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

OWN, LIBRARY = 2.0**-50, 2.0**-40
"""Relative errors of an operation, and of a function of the C library, at most."""

LEAST = 2.0**-1000
"""Absolute error of an operation with a tiny result, at most."""


@dataclass(frozen=True)
class Interval:
    """Numbers between two bounds, element by element."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, *ends: Any, error: float = OWN) -> "Interval":
        """Return the interval of values with a relative error."""
        low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
        return cls(low - abs(low) * error - LEAST, high + abs(high) * error + LEAST)

    @property
    def size(self) -> Floats:
        """Largest magnitude."""
        return np.maximum(abs(self.low), abs(self.high))

    @property
    def has_zero(self) -> Any:
        """True where zero is between the bounds."""
        return (self.low <= 0) & (self.high >= 0)

    def __add__(self, other: "Interval | float") -> "Interval":
        other = _interval(other)
        return Interval.of(self.low + other.low, self.high + other.high)

    def __sub__(self, other: "Interval") -> "Interval":
        return Interval.of(self.low - other.high, self.high - other.low)

    def __mul__(self, other: "Interval | float") -> "Interval":
        other = _interval(other)
        return Interval.of(*(x * y for x in (self.low, self.high) for y in (other.low, other.high)))

    def __truediv__(self, other: "Interval") -> "Interval":
        """Return the quotient by positive numbers."""
        return Interval.of(*(x / y for x in (self.low, self.high) for y in (other.low, other.high)))


def _interval(x: Interval | float) -> Interval:
    return x if isinstance(x, Interval) else Interval(np.array(x, float), np.array(x, float))


Series = list[Interval]
"""Taylor coefficients from that of the power 0 on."""


def _product(x: Series, y: Series) -> Series:
    return [sum((x[j] * y[k - j] for j in range(1, k + 1)), x[0] * y[k]) for k in range(len(x))]


def _quotient(x: Series, y: Series) -> Series:
    result: Series = []
    for k, numerator in enumerate(x):
        for j in range(1, k + 1):
            numerator = numerator - y[j] * result[k - j]
        result.append(numerator / y[0])
    return result


def _exponential(x: Series) -> Series:
    result = [Interval.of(np.exp(x[0].low), np.exp(x[0].high), error=LIBRARY)]
    for k in range(1, len(x)):
        total = sum((x[j] * result[k - j] * float(j) for j in range(2, k + 1)), x[1] * result[k - 1])
        result.append(total * (1 / k))
    return result


def _scaled(x: Series, factor: float) -> Series:
    return [coefficient * factor for coefficient in x]


def _plus_one(x: Series) -> Series:
    return [x[0] + 1.0, *x[1:]]


def _integral(first: Interval, derivative: Series) -> Series:
    return [first, *(term * (1 / (k + 1)) for k, term in enumerate(derivative[:-1]))]


def _each(function: Callable[[float], float], x: Interval) -> Interval:
    """Return the values of a monotone function of the C library."""
    ends = (_of_library(function)(end) for end in (x.low, x.high))
    return Interval.of(*ends, error=LIBRARY)


def _sigmoid(x: Series) -> Series:
    zero = x[0] * 0.0
    return _quotient(_plus_one([zero] * len(x)), _plus_one(_exponential(_scaled(x, -1.0))))


def _tanh(x: Series) -> Series:
    falling = _exponential(_scaled(x, -2.0))
    return _quotient(_plus_one(_scaled(falling, -1.0)), _plus_one(falling))


def _erf(x: Series) -> Series:
    density = _scaled(_exponential(_scaled(_product(x, x), -1.0)), 2 / math.sqrt(math.pi))
    return _integral(_each(math.erf, x[0]), density)


def _gelu(x: Series) -> Series:
    density = _scaled(_exponential(_scaled(_product(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return _product(x, _integral(_each(_erfc_half, x[0]), density))


def _of_library(function: Callable[[float], float]) -> Callable[[Floats], Floats]:
    return lambda x: np.array([function(float(value)) for value in x])


def _erfc_half(x: float) -> float:
    return math.erfc(-x * math.sqrt(0.5)) / 2


VALUES: dict[str, Callable[[Floats], Floats]] = {
    "tanh": np.tanh,
    "erf": _of_library(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": _of_library(lambda x: x * _erfc_half(x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
"""Values of functions in binary64, with a few units of error in the last place."""

SERIES = {
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "gelu": _gelu,
    "silu": lambda x: _product(x, _sigmoid(x)),
}
"""Taylor coefficients of functions of a series."""


def taylor(name: str, low: Floats, high: Floats, count: int) -> Series:
    """Return bounds of the first Taylor coefficients of a function at all points of intervals."""
    one, zero = np.ones_like(low), np.zeros_like(low)
    number = [Interval(low, high), Interval(one, one), *[Interval(zero, zero)] * (count - 2)]
    return SERIES[name](number)
