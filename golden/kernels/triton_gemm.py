"""Triton kernel for matrix products of floating-point formats on a GPU, in integer arithmetic.

Import it only if Triton is installed. The stages of a step are those of the golden model: exact product, sum truncated
to 62 bits and a sticky bit, one rounding. Torch operations compute the descriptions that the kernel does not support.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from halfulp.golden.round import window_of
from halfulp.hdl.formats import Float
from halfulp.hdl.specs import MacSpec

PLACE = 58
"""Bit of the larger term's leading one: enough bits below for rounding, and room above for a carry."""

MODES = {"rn": 0, "ra": 1, "rz": 2, "ru": 3, "rd": 4, "ro": 5, "sr": 6, "rh": 7, "exact": 2}


def takes(spec: MacSpec) -> bool:
    """Return True if the kernel supports a description."""
    floats = all(isinstance(fmt, Float) for fmt in (spec.a, spec.b, spec.o))
    return (
        floats
        and spec.rounding.mode in MODES
        and spec.quire is None
        and spec.product is None
        and spec.random is None
        and spec.a.precision + spec.b.precision <= PLACE - 2
        and window_of(spec.o, spec.rounding, spec.sums) <= PLACE - 2
    )


@triton.jit
def _top(x):
    """Return the bit of the leading one of numbers above zero and below 2^62."""
    # At most 31 bits are converted to float64, so that the conversion is exact.
    high = x >> 31
    exact = tl.where(high > 0, high, x).to(tl.float64)
    return (exact.to(tl.int64, bitcast=True) >> 52) - 1023 + tl.where(high > 0, 31, 0)


@triton.jit
def _unpack(code, MAN: tl.constexpr, BIAS: tl.constexpr, SIGN: tl.constexpr, SPECIALS: tl.constexpr,
            MAX: tl.constexpr, NAN: tl.constexpr, SUBNORMALS: tl.constexpr):  # fmt: skip
    """Unpack codes to sign, exponent of the last place, significand, NaN flag and infinity flag."""
    magnitude = code & (SIGN - 1)
    field = magnitude >> MAN
    fraction = magnitude & ((1 << MAN) - 1)
    significand = tl.where(field > 0, fraction | (1 << MAN), fraction if SUBNORMALS else fraction * 0)
    exponent = tl.maximum(field, 1) - BIAS - MAN
    nan, inf = magnitude < 0, magnitude < 0
    if SPECIALS == "ieee":
        nan, inf = magnitude > MAX + 1, magnitude == MAX + 1
    if SPECIALS == "fn":
        nan = magnitude == NAN
    if SPECIALS == "fnuz":
        nan = code == SIGN
    return (code & SIGN) != 0, exponent, significand, nan, inf


@triton.jit
def _pack(sign, exponent, significand, sticky, nan, inf, word, MODE: tl.constexpr, BITS: tl.constexpr,
          SATURATE: tl.constexpr, MAN: tl.constexpr, BIAS: tl.constexpr, SIGN: tl.constexpr, SPECIALS: tl.constexpr,
          MAX: tl.constexpr, NAN: tl.constexpr, SUBNORMALS: tl.constexpr):  # fmt: skip
    """Round numbers once and encode them."""
    zero = significand == 0
    safe = tl.where(zero, 1, significand)
    last = exponent + _top(safe) - MAN
    least = 1 - BIAS - MAN
    if SUBNORMALS:
        last = tl.maximum(last, least)
    # Append zeros, so that at least PLACES bits are discarded.
    PLACES: tl.constexpr = BITS if MODE == 6 else 1
    shift = last - exponent
    up = tl.minimum(tl.maximum(PLACES - shift, 0), 62)
    shift = shift + up
    wide = safe << up
    below = tl.minimum(shift - PLACES, 62)
    shifted = wide >> below
    sticky = sticky | (wide != (shifted << below))
    truncated, seen = shifted >> PLACES, shifted & ((1 << PLACES) - 1)
    odd = truncated & 1
    rest = (seen != 0) | sticky
    if MODE == 0:
        more = seen & (odd | sticky.to(tl.int64))
    elif MODE == 1:
        more = seen
    elif MODE == 7:
        more = seen & sticky.to(tl.int64)
    elif MODE == 3:
        more = (rest & (sign == 0)).to(tl.int64)
    elif MODE == 4:
        more = (rest & (sign != 0)).to(tl.int64)
    elif MODE == 5:
        more = rest.to(tl.int64) & (odd ^ 1)
    elif MODE == 6:
        more = (seen + word) >> BITS
    else:
        more = seen * 0
    truncated = truncated + more
    carry = truncated >> (MAN + 1)
    field = last - least + carry
    truncated = truncated >> carry
    largest = (MAX & ((1 << MAN) - 1)) | (1 << MAN)
    top = (MAX >> MAN) - 1
    over = ((field > top) | ((field == top) & (truncated > largest))) & (zero == 0)
    magnitude = (tl.minimum(tl.maximum(field, 0), top) << MAN) + truncated
    magnitude = tl.where(zero | ((field < 0) & (not SUBNORMALS)), 0, magnitude)
    stays = sign != sign
    if SATURATE or MODE == 2 or MODE == 5:
        stays = sign == sign
    elif MODE == 3:
        stays = sign != 0
    elif MODE == 4:
        stays = sign == 0
    magnitude = tl.where(over, MAX, magnitude)
    infinite = inf | (over & (stays == 0))
    if SPECIALS == "ieee":
        magnitude = tl.where(infinite, MAX + 1, magnitude)
    elif SPECIALS == "finite":
        magnitude = tl.where(infinite, MAX, magnitude)
    else:
        nan = nan | infinite
    negative = sign
    if SPECIALS == "fnuz":
        negative = sign & (magnitude != 0)
    return tl.where(nan, NAN, tl.where(negative, magnitude | SIGN, magnitude))


@triton.jit
def _kernel(a, b, start, words, out, n, m, k, word_n, word_m, word_k, HAS_START: tl.constexpr, MODE: tl.constexpr,
            BITS: tl.constexpr, SATURATE: tl.constexpr, PLACE: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
            O: tl.constexpr, N: tl.constexpr, M: tl.constexpr):  # fmt: skip  # noqa: E741
    rows = tl.program_id(0) * N + tl.arange(0, N)[:, None]
    columns = tl.program_id(1) * M + tl.arange(0, M)[None, :]
    there = (rows < n) & (columns < m)
    element = rows.to(tl.int64) * m + columns
    held = tl.zeros((N, M), tl.int64)
    if HAS_START:
        held = tl.load(start + element, mask=there, other=0)
    word = tl.zeros((N, M), tl.int64)
    for step in range(k):
        x = tl.load(a + rows.to(tl.int64) * k + step, mask=rows < n, other=0)
        y = tl.load(b + columns.to(tl.int64) + step * m, mask=columns < m, other=0)
        if MODE == 6:
            word = tl.load(words + rows.to(tl.int64) * word_n + columns * word_m + step * word_k, mask=there, other=0)
        s0, e0, f0, nan0, inf0 = _unpack(x, A[0], A[1], A[2], A[3], A[4], A[5], A[6])
        s1, e1, f1, nan1, inf1 = _unpack(y, B[0], B[1], B[2], B[3], B[4], B[5], B[6])
        s3, e3, f3, nan3, inf3 = _unpack(held, O[0], O[1], O[2], O[3], O[4], O[5], O[6])
        f2, s2 = f0 * f1, s0 ^ s1
        nan2, inf2 = nan0 | nan1 | (inf0 & (f1 == 0)) | (inf1 & (f0 == 0)), inf0 | inf1
        e2 = e0 + e1 + tl.zeros((N, M), tl.int64)
        # Both leading ones at bit PLACE; the exponent of zero is below all others.
        up2, up3 = PLACE - _top(tl.where(f2 == 0, 1, f2)), PLACE - _top(tl.where(f3 == 0, 1, f3))
        f2, e2 = f2 << up2, tl.where(f2 == 0, -(1 << 20), e2 - up2)
        f3, e3 = f3 << up3, tl.where(f3 == 0, -(1 << 20), e3 - up3)
        less = (e2 < e3) | ((e2 == e3) & (f2 < f3))
        big, small = tl.where(less, f3, f2), tl.where(less, f2, f3)
        distance = tl.minimum(tl.maximum(e2, e3) - tl.minimum(e2, e3), 62)
        moved = small >> distance
        sticky = (moved << distance) != small
        subtract = s2 ^ s3
        total = tl.where(subtract, big - moved - sticky.to(tl.int64), big + moved)
        cancelled = (s2 & s3) | (subtract & (MODE == 4))
        sign = tl.where(total == 0, cancelled, tl.where(less, s3, s2))
        nan = nan2 | nan3 | (inf2 & inf3 & subtract)
        inf = inf2 | inf3
        sign = tl.where(inf, tl.where(inf2, s2, s3), sign)
        held = _pack(sign, tl.maximum(e2, e3), total, sticky, nan, inf, word, MODE, BITS, SATURATE,
                     O[0], O[1], O[2], O[3], O[4], O[5], O[6])  # fmt: skip
    tl.store(out + element, held, mask=there)


def _constants(fmt: Any) -> tuple[int, int, int, str, int, int, bool]:
    return fmt.man, fmt.bias, fmt.sign_code, fmt.specials, fmt.max_code, fmt.nan_code, fmt.subnormals


def gemm(spec: MacSpec, a: Tensor, b: Tensor, start: Tensor | None, words: Tensor | None) -> Tensor:
    """Multiply matrices of checked codes, of shapes (n, k) and (k, m); random words have shape (n, m, k)."""
    (n, k), m = a.shape, b.shape[-1]
    out = torch.empty((n, m), dtype=torch.int64, device=a.device)
    if not (n and m):
        return out
    side = 16
    strides = (0, 0, 0) if words is None else words.stride()
    _kernel[(triton.cdiv(n, side), triton.cdiv(m, side))](
        a.contiguous(),
        b.contiguous(),
        out if start is None else start.contiguous(),
        out if words is None else words,
        out,
        n,
        m,
        k,
        *strides,
        HAS_START=start is not None,
        MODE=MODES[spec.rounding.mode],
        BITS=spec.rounding.bits,
        SATURATE=spec.saturate,
        PLACE=PLACE,
        A=_constants(spec.a),
        B=_constants(spec.b),
        O=_constants(spec.o),
        N=side,
        M=side,
    )
    return out
