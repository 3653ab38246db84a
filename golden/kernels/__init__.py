"""Compiled kernels, which give the same bits as the golden model in torch.

The kernel of `exact` computes every description that 128-bit integers hold: it is compiled once. `plan` chooses faster
kernels of one description and proves them exact, the headers are the kernels, `build` compiles and caches them, and
`launch` calls them. On a GPU with Triton `triton_gemm` computes some descriptions. The environment
variable ``HALFULP_KERNEL`` is ``native`` (all instructions of this machine), ``avx2``, ``portable``, ``torch`` (no
kernels), or ``auto``: as ``native``, but a kernel is compiled only after enough work for it, and till then that of all
descriptions serves.
"""

import importlib.util
from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.specs import MacSpec

from . import build, exact, plan
from .launch import Words, call
from .text import PHILOX

IN_TORCH, STEP_IN_TORCH, IN_EXACT = 0.5e-6, 0.3e-3, 0.1e-6
"""Seconds for a product and its sum in torch, for a step of all sums there, and in the kernel of all descriptions."""

__all__ = ["PHILOX", "Words", "gemm"]


def gemm(
    spec: MacSpec, a: Tensor, b: Tensor, start: Tensor | None, shape: tuple[int, ...], words: Words
) -> Tensor | None:
    """Matrix product of checked codes, of ``shape`` like ``start``; None if no kernel computes it."""
    # Sums of no products are their start values.
    if a.shape[-1] == 0 or build.level() == "torch":
        return None
    if a.device.type == "cuda":
        return _on_gpu(spec, a, b, start, shape, words)
    if a.device.type != "cpu":
        return None
    turned = plan.is_turned(*shape[-2:])
    if turned:
        spec = replace(spec, a=spec.b, b=spec.a)
    counted = None if words.key is None else PHILOX
    steps = torch.Size(shape).numel() * a.shape[-1]
    for source in plan.sources(spec, counted, build.has_fma()):
        library = build.library(f"gemm_{plan.file_name(spec)}", source, steps * IN_EXACT)
        if library is None:
            break
        found = call(library, a, b, start, shape, words, turned)
        if found is not None:
            return found
    if not plan.fits_exact(spec):
        return None
    library = exact.library(steps * IN_TORCH + a.shape[-1] * STEP_IN_TORCH)
    if library is None:
        return None
    return call(library, a, b, start, shape, words, turned, exact.step(spec, counted))


def _on_gpu(
    spec: MacSpec, a: Tensor, b: Tensor, start: Tensor | None, shape: tuple[int, ...], words: Words
) -> Tensor | None:
    """Product in Triton, batch by batch; None if its kernel does not take the description."""
    if words.key is not None or importlib.util.find_spec("triton") is None:
        return None
    from . import triton_gemm

    if not triton_gemm.takes(spec):
        return None
    batch, (n, m), k = shape[:-2], shape[-2:], a.shape[-1]
    a, b = a.expand(*batch, n, k).reshape(-1, n, k), b.expand(*batch, k, m).reshape(-1, k, m)
    begins = None if start is None else start.reshape(-1, n, m)
    given = None if words.given[0] is None else words.given[0].expand(*shape, k).reshape(-1, n, m, k)
    parts = [
        triton_gemm.gemm(
            spec, a[at], b[at], None if begins is None else begins[at], None if given is None else given[at]
        )
        for at in range(len(a))
    ]
    return torch.stack(parts).reshape(shape) if parts else None
