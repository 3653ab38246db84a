"""Layers of `golden.nn` on hardware: their matrix products are made by a Verilated systolic array.

To import this module lets policies say ``device=rtl``. It is for few and small products: a layer that is right there is
right on a card.
"""

import functools

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.nn.product import register
from halfulp.hdl.formats import MacSpec
from halfulp.units.systolic import Chain

from .systolic import Systolic

DEVICE = "rtl"
N, M, DEPTH = 2, 2, 8
"""Of the arrays: small, for what takes longest is to build their models."""


def product(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor | None) -> Tensor:
    """Matrix product of codes on an array, to the bits of `golden.gemm`.

    Sums of an array start from +0. What they are to start from is a row of b, by which a column of ones is multiplied
    first.

    Raises
    ------
    ValueError
        If words are random, or sums cannot start so.
    """
    if mac.words:
        raise ValueError(
            f"{mac} rounds at random, and multiply-accumulates of an array have sources of their own; layers on device "
            f"{DEVICE} do not (golden.gemm does, with a tiling)"
        )
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    result = torch.zeros(shape, dtype=torch.int64)
    if start is not None and result.numel():
        a, b = _with_start(a, b, mac, start.expand(shape))
    if result.numel() == 0 or a.shape[-1] == 0:
        return result.to(a.device)
    a, b = a.expand(*shape[:-2], *a.shape[-2:]), b.expand(*shape[:-2], *b.shape[-2:])
    flat = zip(*(codes.reshape(-1, *codes.shape[-2:]) for codes in (a.cpu(), b.cpu(), result)), strict=True)
    for x, y, z in flat:
        z[:] = _array(mac).run(x, y)[0]
    return result.to(a.device)


def _with_start(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor) -> tuple[Tensor, Tensor]:
    one, first = mac.a.encode(1, "rz"), start[..., :1, :]
    row = golden.encode(golden.decode(first, mac.o), mac.b)
    ones = torch.full((*start.shape[:-1], 1), one, dtype=torch.int64, device=a.device)
    begun = golden.gemm(ones, row, mac)
    if not torch.equal(begun, start):
        raise ValueError(
            f"sums on device {DEVICE} start from products with 1, and not all biases are such in {mac}; round them to "
            f"its operands, as bias={mac.b}.rn does, or take a layer without bias"
        )
    return (
        torch.cat([ones, a.expand(*start.shape[:-2], *a.shape[-2:])], -1),
        torch.cat([row, b.expand(*start.shape[:-2], *b.shape[-2:])], -2),
    )


@functools.cache
def _array(mac: MacSpec) -> Systolic:
    return Systolic(Chain(mac=mac, n=N, m=M, depth=DEPTH))


register(DEVICE, product)
