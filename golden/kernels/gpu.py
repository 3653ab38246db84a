"""The choice of Triton kernels for tensors on a GPU."""

import functools
import importlib.util
from typing import Any

from torch import Tensor

from . import build

TYPE = "cuda"
"""Type of the devices with Triton kernels."""

MISSING = "Triton is not installed"


def refusal() -> str | None:
    """Return the reason why no Triton kernel runs on a GPU."""
    if build.level() == "torch":
        return f"{build.SETTING}=torch disables kernels"
    return None if _has_triton() else MISSING


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def is_gpu(*tensors: Tensor) -> bool:
    """Return True if all tensors, but for single numbers, are on a GPU; one at least is."""
    here = [tensor.device.type == TYPE for tensor in tensors if tensor.numel() != 1 or tensor.device.type == TYPE]
    return bool(here) and all(here)


def elements(*tensors: Tensor) -> Any:
    """Return the module of element-wise Triton kernels for tensors; None if no kernel takes them."""
    if not is_gpu(*tensors) or refusal() is not None:
        return None
    from . import triton_elements

    return triton_elements
