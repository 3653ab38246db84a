"""Codes of a float made from sign, exponent and mantissa, for arrays of them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Float

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint64]


def compose(fmt: Float, sign: Ints, exponent: Ints, mantissa: Ints) -> Codes:
    """Codes of finite numbers (-1)^sign * 1.mantissa * 2^exponent.

    Below the format's range the significand shifts right, as a subnormal number's does; above it, the exponent stops
    at the largest. The specials that share the largest exponent may come out of large mantissas; a bench likes those.
    """
    significand = (np.int64(1) << fmt.man) | (mantissa & ((1 << fmt.man) - 1))
    depth = np.clip(fmt.emin - exponent, 0, fmt.man + 1)
    field = np.clip(exponent + fmt.bias, 1, fmt.max_code >> fmt.man)
    # A normal significand carries its hidden bit into the exponent field, which therefore starts one lower.
    magnitude = ((field - 1) << fmt.man) + (significand >> depth)
    magnitude = np.where(depth > 0, significand >> depth, magnitude)
    return _signed(fmt, sign, magnitude)


def neighbour(fmt: Float, codes: Codes, steps: Ints) -> Codes:
    """Codes ``steps`` places further from zero, or nearer, of the same sign."""
    magnitude = (codes & np.uint64(fmt.sign_code - 1)).astype(np.int64)
    sign = (codes >> np.uint64(fmt.width - 1)).astype(np.int64)
    return _signed(fmt, sign, np.clip(magnitude + steps, 0, fmt.sign_code - 1))


def exponents(fmt: Float, codes: Codes) -> Ints:
    """Exponents of the numbers, that of the smallest normal one for subnormal numbers."""
    field = ((codes & np.uint64(fmt.sign_code - 1)) >> np.uint64(fmt.man)).astype(np.int64)
    return np.maximum(field, 1) - fmt.bias


def _signed(fmt: Float, sign: Ints, magnitude: Ints) -> Codes:
    return ((sign & 1).astype(np.uint64) << np.uint64(fmt.width - 1)) | magnitude.astype(np.uint64)


def patterns(rng: np.random.Generator, fmt: Float, cut: Ints) -> Ints:
    """Mantissas whose bits below position ``cut`` sit at, just above or just below a rounding boundary.

    The bits from ``cut`` up are random, all zeros or all ones.
    """
    n = len(cut)
    cut = np.clip(cut, 0, fmt.man)
    unit, half = np.int64(1) << cut, (np.int64(1) << cut) >> 1
    low = np.choose(
        rng.integers(0, 8, n),
        [0 * unit, 0 * unit + 1, half, half + 1, half - 1, unit - 1, half | (half >> 1), rng.integers(0, 1 << 53, n)],
    )
    high = np.choose(
        rng.integers(0, 4, n),
        [rng.integers(0, 1 << 53, n)] * 2 + [np.zeros(n, dtype=np.int64), ~np.zeros(n, dtype=np.int64)],
    )
    mantissa: Ints = ((high << cut) | (low & (unit - 1))) & ((1 << fmt.man) - 1)
    return mantissa


def landmarks(fmt: Float) -> Codes:
    """Codes of every special and of both sides of every boundary, in both signs; of a tiny format, all codes."""
    if fmt.width <= 5:
        return np.arange(1 << fmt.width, dtype=np.uint64)
    one = fmt.bias << fmt.man
    smallest_normal, half_mantissa = 1 << fmt.man, (1 << fmt.man) >> 1
    centres: Sequence[int] = (
        *(0, 1, 2, 3, half_mantissa, smallest_normal, 2 * smallest_normal),
        *(one, one - smallest_normal, one + smallest_normal, one + half_mantissa),
        *(fmt.max_code, fmt.max_code >> fmt.man << fmt.man, fmt.nan_code, fmt.sign_code - 1),
        *(() if fmt.inf_code is None else (fmt.inf_code,)),
    )
    magnitudes = {centre + step for centre in centres for step in (-1, 0, 1)}
    kept = sorted(code for code in magnitudes if 0 <= code < fmt.sign_code)
    return np.array([code | sign for code in kept for sign in (0, fmt.sign_code)], dtype=np.uint64)
