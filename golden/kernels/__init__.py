"""Compiled kernels with the same results as the golden model in torch.

The general kernel (`exact`) computes every description that fits 128-bit integers; it is compiled once. `plan` writes
faster kernels that are specialised for one description, and proves them exact. The C++ headers implement the kernels,
`build` compiles and caches them, `launch` calls them. On a GPU, `triton_gemm` computes most descriptions. `engines`
says which of them compute a product.

The environment variable ``HALFULP_KERNEL`` selects the instructions: ``native`` (those of this machine), ``avx2``,
``portable``, ``scalar`` (without vectors), or ``torch`` for no kernels. The default ``auto`` is like ``native``, but
small products do not compile a kernel: they use the general one, or torch.
"""

import functools
import math
from fractions import Fraction

import torch
from torch import Tensor

from halfulp.hdl.formats import FP32, Format
from halfulp.hdl.specs import MacSpec

from . import build, exact, plan
from .engines import KERNELS
from .job import Engine, MatrixProduct, first
from .lane import Refused
from .launch import Matrices, Patches, Words, call, gathered
from .text import PHILOX

__all__ = [
    "KERNELS",
    "PHILOX",
    "Engine",
    "Matrices",
    "MatrixProduct",
    "Patches",
    "Refused",
    "Words",
    "first",
    "gathered",
    "gemm",
]
__all__ += ["reads", "rounded_sums"]


def gemm(  # noqa: PLR0913 - arguments of a kernel
    spec: MacSpec,
    a: Matrices,
    b: Matrices,
    start: Tensor | None,
    shape: tuple[int, ...],
    words: Words,
    out: Patches | None = None,
    dtype: torch.dtype = torch.int64,
    parts: tuple[int, int] = (0, 0),
) -> Matrices | None:
    """Multiply matrices of checked codes; ``start`` has the result's ``shape``; None if no kernel supports the call.

    The result is ``out``, if it is given, with its elements set. Matrices in float32 are real numbers, which are
    rounded to nearest, ties to even, to formats that `reads` accepts. The result is codes, or real numbers if ``dtype``
    is float32; real results may be rounded sums of ``parts``, as `launch.Call` describes them.
    """
    return first(KERNELS, MatrixProduct(spec, a, b, start, shape, words, out, dtype, parts))


def reads(fmt: Format, x: Tensor) -> bool:
    """Return True if kernels round real numbers to a format, which then needs no codes."""
    return (
        fmt.is_floating_point
        and (_begins_fp32(fmt) or _is_narrow(fmt))
        and x.dtype == torch.float32
        and not x.is_neg()
        and x.device.type == "cpu"
    )


def dropped(fmt: Format | None) -> int | None:
    """Return the bits of FP32 that a format lacks, if kernels add ``parts`` in it; None if they do not."""
    if fmt is None or not _begins_fp32(fmt) or 2 * fmt.precision + 2 > FP32.precision:
        return None
    return FP32.precision - fmt.precision


@functools.lru_cache(maxsize=256)
def _begins_fp32(fmt: Format) -> bool:
    """Return True if codes of a format are the leading bits of FP32."""
    same = fmt.is_floating_point and fmt.has_inf and fmt.has_negative_zero and fmt.floor_exponent == FP32.floor_exponent
    return same and fmt.width - fmt.precision == FP32.exp and fmt.precision <= FP32.precision


@functools.lru_cache(maxsize=256)
def _is_narrow(fmt: Format) -> bool:
    """Return True if a format has NaN and subnormals, and its numbers are normal in FP32, below 2^127."""
    inside = FP32.emin <= fmt.quantum <= FP32.emax - FP32.man and fmt.largest < Fraction(2) ** FP32.emax
    return inside and fmt.has_nan and fmt.has_subnormals and fmt.precision < FP32.precision


def rounded_sums(
    spec: MacSpec,
    sums: list[Tensor],
    exponents: list[int],
    start: Tensor | None,
    shape: tuple[int, ...],
    words: Words,
    out: Patches | None,
) -> Matrices | None:
    """Add partial sums, which are integers in float64 times powers of two, and round once; None without a kernel.

    Sums may not overflow the exact accumulator of ``spec``; ``words`` are those of the rounding.
    """
    library = None if build.level() == "torch" or not plan.fits_exact(spec) else exact.library(math.inf)
    if library is None:
        return None
    parts = torch.stack(sums).view(torch.int64).flatten(-2).movedim(0, -1)
    places = torch.tensor(exponents).unsqueeze(-1)
    parameters = exact.step(spec, None if words.key is None else PHILOX)
    return call(library, parts, places, start, shape, words, False, out, parameters, "halfulp_round_sums")
