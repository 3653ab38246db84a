"""Exact matrix products by slices: products of integers in binary64, whose sums are exact in any order.

Operands are split into integers of a few bits each, so that no sum of products of two slices exceeds 2^53 (Ozaki,
Ogita, Oishi, Rump, Numerical Algorithms 59(1), 2012). The partial sums are added and rounded once per element.
"""

import functools
import itertools
import math

import torch
from torch import Tensor

from halfulp.golden import kernels
from halfulp.golden.kernels import MatrixProduct
from halfulp.golden.kernels.engines import CODES_ONLY, CPU_ONLY
from halfulp.golden.random import jump
from halfulp.golden.values import decoded
from halfulp.hdl.formats import FP64, Format
from halfulp.hdl.specs import MacSpec, ValueRange

PRODUCTS = 100
"""Largest number of products of slices; more take longer than the general kernel."""

WORTHWHILE = 1 << 16
"""Smallest number of multiply-accumulates for which slices are faster than the general kernel."""


class Slices:
    """Exact accumulators on the CPU, in products of matrices of binary64."""

    name = "slices of binary64"

    def refuses(self, job: MatrixProduct) -> str | None:
        """See `Engine`."""
        spec = job.spec
        if not isinstance(spec, MacSpec) or spec.quire is None or spec.product is not None:
            return "it takes exact accumulators of exact products only"
        if job.device != "cpu":
            return CPU_ONLY
        if job.is_real:
            return CODES_ONLY
        if job.work < WORTHWHILE:
            return "it is slower for a product of this size"
        if not all(map(_in_binary64, (spec.a, spec.b, spec.o))):
            return "binary64 does not hold all numbers of the formats"
        return None

    def run(self, job: MatrixProduct) -> kernels.Matrices:
        """See `Engine`; operands need a small range, and neither infinities nor NaN."""
        spec, k = job.spec, job.steps
        operands = (job.a, spec.a), (job.b, spec.b)
        x, y = (decoded(kernels.gathered(matrix), fmt, torch.float64) for matrix, fmt in operands)
        low_x, high_x = _places(x, spec.a)
        low_y, high_y = _places(y, spec.b)
        high = high_x + high_y + k.bit_length()
        if job.start is not None:
            high = max(high, _places(decoded(job.start, spec.o, torch.float64), spec.o)[1])
        # A sum of both stays below the limit of the accumulator, and powers of two below that of binary64.
        if not high < spec.quire.quantum + spec.quire.width - 2 or min(low_x, low_y) < -1000:
            raise kernels.Refused("a sum may overflow the accumulator")
        split = _split(int(high_x - low_x), int(high_y - low_y), k)
        if split is None:
            raise kernels.Refused("the magnitudes of the operands are too different")
        sums: dict[int, Tensor] = {}
        right = _sliced(y, int(low_y), int(high_y), split[1])
        for place, left in _sliced(x, int(low_x), int(high_x), split[0]).items():
            for other, columns in right.items():
                product = left @ columns
                sums[place + other] = sums[place + other].add_(product) if place + other in sums else product
        words = _last(spec, job.words, k)
        result = kernels.rounded_sums(spec, list(sums.values()), list(sums), job.start, job.shape, words, job.out)
        if result is None:
            raise kernels.Refused("no kernel rounds the sums")
        return result


@functools.lru_cache(maxsize=256)
def _in_binary64(fmt: Format) -> bool:
    try:
        ValueRange.of(fmt).check_fits(FP64, f"number of {fmt}")
    except ValueError:
        return False
    return True


def _places(x: Tensor, fmt: Format) -> tuple[float, float]:
    """Return exponents between which all bits of numbers of a format are: multiples of 2^low, and below 2^high.

    The upper one is infinite if a number is infinite or NaN.
    """
    if not x.numel():
        return 0, 0
    magnitude = x.abs()
    most = float(magnitude.max())
    if most == 0:
        return 0, 0
    if not math.isfinite(most):
        return 0, math.inf
    least = float(torch.where(magnitude == 0, most, magnitude).min())
    return max(math.frexp(least)[1] - fmt.precision, fmt.quantum), math.frexp(most)[1]


@functools.lru_cache(maxsize=1024)
def _split(x: int, y: int, k: int) -> tuple[int, int] | None:
    """Return the bits of slices for operands of x and y bits and sums of k products; None if there are too many slices.

    Slices of p and q bits have products below 2^(p + q); at most the smaller number of slices meets in one sum.
    """
    splits = []
    for p, q in itertools.product(range(1, 52), repeat=2):
        left, right = -(-x // p), -(-y // q)
        if k * max(min(left, right), 1) << p + q <= 1 << 53 and left * right <= PRODUCTS:
            splits.append((left * right, abs(p - q), p, q))
    return min(splits)[2:] if splits else None


def _sliced(x: Tensor, low: int, high: int, bits: int) -> dict[int, Tensor]:
    """Split multiples of 2^low, below 2^high, into integers of ``bits`` bits; keys are their exponents."""
    slices = {}
    for place in range(low + (high - low - 1) // bits * bits, low, -bits):
        slices[place] = (x * 2.0**-place).trunc_()
        x = x - slices[place] * 2.0**place
    slices[low] = x * 2.0**-low
    return slices


def _last(spec: MacSpec, words: kernels.Words, k: int) -> kernels.Words:
    """Return the random words of the last step, with which sums are rounded."""
    given, states = words.given[0], words.states[0]
    if states is not None:
        assert spec.random is not None
        states = jump(spec.random, states, k - 1)
    last = None if given is None else given[..., -1:]
    return kernels.Words((last, None), (states, None), words.key, words.first_step + k - 1)
