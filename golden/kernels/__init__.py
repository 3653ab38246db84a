"""Kernels compiled for one description each, which give the same bits as the golden model in torch.

`plan` says which kernels a description has and why they are exact, the headers are the kernels, `build` compiles and
keeps them, and `launch` calls them. The setting ``HALFULP_KERNEL`` in the environment is ``auto`` (all instructions of
this machine), ``avx2``, ``portable`` or ``torch`` (no kernels).
"""

from torch import Tensor

from halfulp.hdl.formats import MacSpec

from . import build, plan
from .launch import Words, call

__all__ = ["Words", "gemm"]


def gemm(
    spec: MacSpec, a: Tensor, b: Tensor, start: Tensor | None, shape: tuple[int, ...], words: Words
) -> Tensor | None:
    """The matrix product of checked operands, or None where it is not for kernels.

    Parameters
    ----------
    spec : MacSpec
    a, b : Tensor of int64
        Codes of shapes that broadcast.
    start : Tensor of int64, optional
        In the shape of the result.
    shape : tuple of int
        Of the result.
    words : Words
    """
    if a.device.type != "cpu" or build.level() == "torch":
        return None
    philox = words.key is not None
    for source in plan.sources(spec, "philox" if philox else None, build.has_fma()):
        library = build.library(f"gemm_{plan.file_name(spec)}", source)
        if library is not None:
            found = call(library, a, b, start, shape, words)
            if found is not None:
                return found
    return None
