"""Matrix products of layers, in the golden model or on a device."""

from collections.abc import Callable

import torch
from torch import Tensor

from halfulp.golden.entries import Operand
from halfulp.golden.kernels import Job, Matrices, Patches, Words, gathered
from halfulp.golden.parts import by_parts
from halfulp.golden.products import compute
from halfulp.golden.products.words import split_states
from halfulp.golden.quantize import BlockTensor
from halfulp.hdl.specs import BlockMacSpec, MacSpec, RunningSumSpec

from .draw import states

PRODUCTS = ("forward", "input_gradient", "weight_gradient")
"""The three matrix products of a layer."""

Device = Callable[[Operand, Operand, MacSpec | BlockMacSpec, Tensor | None, int], Tensor]
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
        found = _device(device)(gathered(a), gathered(b), mac, start, key)
        if out is None:
            return found
        out.scatter(found)
        return out.data
    shape = _shape(a, b)
    given = None if start is None else start.expand(shape)
    return compute(Job(mac, a, b, given, shape, _words(mac, shape, key, a.device), out, dtype))


def product_of_blocks(
    a: BlockTensor, b: BlockTensor, mac: BlockMacSpec, *, key: int, start: Tensor | None, device: str | None = None
) -> Tensor:
    """Multiply matrices of blocks as `product`; elements, scales and results are int64 codes."""
    if device is not None:
        return _device(device)(a, b, mac, start, key)
    shape = _shape(a.elements, b.elements)
    given = None if start is None else start.expand(shape)
    return compute(Job(mac, a, b, given, shape, _words(mac, shape, key, a.elements.device)))


def _device(name: str) -> Device:
    """Return the function of a device."""
    if name not in _DEVICES:
        raise ValueError(f"unknown device {name}; import halfulp.fpga.kernel.layers first")
    return _DEVICES[name]


def _shape(a: Matrices, b: Matrices) -> tuple[int, ...]:
    return (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def _words(mac: RunningSumSpec, shape: tuple[int, ...], key: int, device: torch.device) -> Words:
    if mac.random is not None:
        return Words(states=split_states(mac, mac.random, states(key, mac.random, shape, device)))
    return Words(key=key) if mac.words else Words()
