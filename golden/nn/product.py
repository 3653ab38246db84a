"""Matrix products of layers, in the golden model or on a device."""

from collections.abc import Callable

import torch
from torch import Tensor

from halfulp.golden.gemm import computed, split_states
from halfulp.golden.kernels import Matrices, Patches, Words, gathered
from halfulp.golden.parts import by_parts
from halfulp.hdl.specs import MacSpec

from .draw import states

Device = Callable[[Tensor, Tensor, MacSpec, Tensor | None, int], Tensor]
"""Function of a device: matrix product from operands, description, start values of the sums, and key."""

_DEVICES: dict[str, Device] = {}


def register(name: str, device: Device) -> None:
    """Register a device for policies; its function returns the results of `golden.gemm` or raises ValueError."""
    _DEVICES[name] = device


def product(
    a: Matrices,
    b: Matrices,
    mac: MacSpec,
    *,
    key: int,
    start: Tensor | None = None,
    device: str | None = None,
    out: Patches | None = None,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Multiply matrices of codes in the golden model or on a device.

    With ``out``, the result is its tensor, with the product as its elements. Matrices in float32 are real numbers, and
    with ``dtype`` float32 the result is; devices take codes only. ``key`` decides all random words. If ``mac`` has a
    source, each sum has a source with a random state; otherwise ``key`` is that of counter-based words.

    Raises
    ------
    ValueError
        If the device is unknown or cannot compute the product.
    """
    mac, a, b = by_parts(mac, a, b)
    if device is not None:
        if device not in _DEVICES:
            raise ValueError(f"unknown device {device}; import halfulp.fpga.kernel.layers first")
        found = _DEVICES[device](gathered(a), gathered(b), mac, start, key)
        if out is None:
            return found
        out.scatter(found)
        return out.data
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    words = Words()
    if mac.random is not None:
        words = Words(states=split_states(mac, mac.random, states(key, mac.random, shape, a.device)))
    elif mac.words:
        words = Words(key=key)
    return computed(mac, a, b, None if start is None else start.expand(shape), shape, words, out, dtype)
