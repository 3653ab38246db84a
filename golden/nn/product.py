"""Matrix products of layers, in the golden model or on a device."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfulp.golden import matrix_unit
from halfulp.golden.check import product_shape
from halfulp.golden.entries import Operand, elements_of
from halfulp.golden.kernels import MatrixProduct, Patches, Words, gathered
from halfulp.golden.operators import Operator
from halfulp.golden.products import KINDS, compute
from halfulp.golden.products.approximate import check as check_operators
from halfulp.golden.products.words import split_states
from halfulp.golden.quantize import BlockTensor
from halfulp.golden.values import decoded
from halfulp.hdl.specs import BlockMacSpec, MacSpec, RunningSumSpec
from halfulp.hdl.specs.mma import MmaSpec

from .cast import PolicyError
from .draw import states

PRODUCTS = ("forward", "input_gradient", "weight_gradient")
"""The three matrix products of a layer."""

Device = Callable[[Operand, Operand, MacSpec | BlockMacSpec, Tensor | None, int], Tensor]
"""Function of a device: matrix product from operands, description, start values of the sums, and key."""

MODULES = {"rtl": "halfulp.fpga.kernel.layers", "card": "halfulp.fpga.kernel.card"}
"""Modules that register the functions of devices when they are imported."""

DEVICES: dict[str, Device | None] = dict.fromkeys(MODULES)
"""Devices that policies may name."""


def register_device(name: str, device: Device) -> None:
    """Register a device for policies, such as ``device=NAME``, in place of one with this name.

    Parameters
    ----------
    name : str
        Identifier.
    device : callable
        Function of the operands, which are codes of shapes (..., n, k) and (..., k, m) or blocks along k, of the
        description, of start values of the sums or None, and of a key of random words. It returns codes of shape
        (..., n, m), those of `golden.gemm` but for its random words, or raises ValueError.

    Raises
    ------
    ValueError
        If the name is no identifier.
    """
    if not name.isidentifier():
        raise ValueError(f"the name of a device is an identifier, not {name!r}")
    DEVICES[name] = device


def product(
    a: Any,
    b: Any,
    mac: MacSpec | BlockMacSpec | MmaSpec,
    *,
    key: int,
    start: Tensor | None = None,
    device: str | None = None,
    out: Patches | None = None,
    dtype: torch.dtype = torch.int64,
    operators: tuple[Operator | None, Operator | None] = (None, None),
) -> Tensor:
    """Multiply matrices of codes, or of blocks, in the golden model or on a device.

    With ``out``, the result is its tensor, with the product as its elements. Matrices in float32 are real numbers, and
    with ``dtype`` float32 the result is; devices take codes only. ``key`` decides all random words. If ``mac`` has a
    source, each sum has a source with a random state; otherwise ``key`` is that of counter-based words. ``operators``
    are a multiplier and an adder of the user.

    Raises
    ------
    ValueError
        If the device is unknown or cannot compute the product.
    """
    if isinstance(mac, MmaSpec):
        return _on_matrix_unit(a, b, mac, start, out, dtype)
    spec, a, b = KINDS[type(mac)].in_steps(mac, a, b)
    if device is not None:
        result = _device(device)(gathered(a), gathered(b), spec, start, key)
        if out is None:
            return result
        out.scatter(result)
        return out.data
    x, y = (operand.elements if isinstance(operand, BlockTensor) else operand for operand in (a, b))
    shape = product_shape(x, y)
    given = None if start is None else start.expand(shape)
    check_operators(spec, *operators)
    words, (multiplier, adder) = _words(spec, shape, key, x.device), operators
    return compute(MatrixProduct(spec, a, b, given, shape, words, out, dtype, multiplier=multiplier, adder=adder))


def _on_matrix_unit(
    a: Any, b: Any, spec: MmaSpec, start: Tensor | None, out: Patches | None, dtype: torch.dtype
) -> Tensor:
    x, y = (
        operand if isinstance(operand, BlockTensor) else matrix_unit.in_codes(operand, fmt)
        for operand, fmt in ((a, spec.a), (b, spec.b))
    )
    left, right = elements_of(x), elements_of(y)
    shape = product_shape(left, right)
    begin = None if start is None else matrix_unit.in_codes(start, spec.o).expand(shape)
    codes = matrix_unit.multiply(spec, x, y, begin, shape)
    result = codes if dtype == torch.int64 else decoded(codes, spec.o, dtype)
    if out is None:
        return result
    out.scatter(result)
    return out.data


def _device(name: str) -> Device:
    """Return the function of a device."""
    device = DEVICES.get(name)
    if device is None:
        raise PolicyError(f"unknown device {name}; import {MODULES.get(name, 'the module that registers it')} first")
    return device


def _words(mac: RunningSumSpec, shape: tuple[int, ...], key: int, device: torch.device) -> Words:
    if mac.random is not None:
        return Words(states=split_states(mac, mac.random, states(key, mac.random, shape, device)))
    return Words(key=key) if mac.words else Words()
