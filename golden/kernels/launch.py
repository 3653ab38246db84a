"""Calls of compiled kernels on tensors."""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

I64 = ctypes.c_int64
POINTER = ctypes.c_void_p


class View(ctypes.Structure):
    """Struct ``View`` of call.h: a tensor."""

    _fields_ = (("data", POINTER), ("batches", POINTER), ("row", I64), ("column", I64), ("step", I64))


class Call(ctypes.Structure):
    """Struct ``Call`` of call.h: arguments of a kernel."""

    _fields_ = (
        *((name, I64) for name in ("batches", "n", "m", "k", "threads", "packs")),
        *((name, POINTER) for name in ("pack_of", "pack_batch")),
        *((name, View) for name in ("a", "b", "start", "sum_words", "product_words")),
        *((name, POINTER) for name in ("sum_states", "product_states")),
        ("key", ctypes.c_uint64),
        ("first_step", I64),
        ("out", POINTER),
        *((name, I64) for name in ("down", "across")),
    )


@dataclass(frozen=True)
class Words:
    """Random words of a matrix product: given, from sources, counter-based, or none.

    Attributes
    ----------
    given : tuple of Tensor, optional
        Words for the sum and for the product, for every step.
    states : tuple of Tensor, optional
        States of the sources for the sum and for the product, in the shape of the result.
    key, first_step : int
        Key and first step of counter-based words.
    """

    given: tuple[Tensor | None, Tensor | None] = (None, None)
    states: tuple[Tensor | None, Tensor | None] = (None, None)
    key: int | None = None
    first_step: int = 0


def call(
    library: ctypes.CDLL,
    a: Tensor,
    b: Tensor,
    start: Tensor | None,
    shape: tuple[int, ...],
    words: Words,
    transposed: bool = False,
    step: ctypes.Structure | None = None,
) -> Tensor | None:
    """Call a kernel; None if it refuses these operands because it is not exact for them.

    Parameters
    ----------
    a, b, start : Tensor
        Codes, on the CPU; ``start`` has the shape of the result.
    shape : tuple of int
        Shape of the result.
    transposed : bool
        The kernel computes the transposed product: it is that of the description with exchanged operand formats.
    step : Step, optional
        Parameters of the general kernel.
    """
    batch, k = shape[:-2], a.shape[-1]
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    given = [None if column is None else column.expand(*shape, k) for column in words.given]
    n, m = shape[-2:]
    down, across = m, 1
    if transposed:
        a, b, n, m, down, across = b.mT, a.mT, m, n, 1, m
        start = None if start is None else start.mT
        given = [None if column is None else column.transpose(-3, -2) for column in given]
    out = torch.empty(shape, dtype=torch.int64)
    alive: list[Tensor] = []

    def pointer(tensor: Tensor) -> int:
        alive.append(tensor)
        return tensor.data_ptr()

    def view(tensor: Tensor | None, inner: int) -> View:
        if tensor is None:
            return View()
        strides = tensor.stride()
        begins = _begins(tensor, tensor.dim() - inner)
        return View(pointer(tensor), pointer(begins), *strides[-inner:], *[0] * (3 - inner))

    begins = _begins(b, b.dim() - 2)
    # Batches of b that share memory are packed once.
    _, pack_of = torch.unique(begins, return_inverse=True)
    packs = int(pack_of.max()) + 1 if len(pack_of) else 0
    pack_batch = torch.zeros(packs, dtype=torch.int64)
    pack_batch[pack_of] = torch.arange(len(pack_of))
    states = [None if column is None else pointer(column.contiguous()) for column in words.states]
    arguments = Call(
        batches=torch.Size(batch).numel(),
        n=n,
        m=m,
        k=k,
        threads=torch.get_num_threads(),
        packs=packs,
        pack_of=pointer(pack_of),
        pack_batch=pointer(pack_batch),
        a=view(a, 2),
        b=view(b, 2),
        start=view(start, 2),
        sum_words=view(given[0], 3),
        product_words=view(given[1], 3),
        sum_states=states[0],
        product_states=states[1],
        key=(words.key or 0) & (1 << 64) - 1,
        first_step=words.first_step,
        out=pointer(out),
        down=down,
        across=across,
    )
    more = () if step is None else (ctypes.byref(step),)
    return out if library.halfulp_gemm(ctypes.byref(arguments), *more) == 0 else None


def _begins(tensor: Tensor, dims: int) -> Tensor:
    """Return the offset of each batch in memory; the first ``dims`` dimensions are batches."""
    begins = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape[:dims], tensor.stride()[:dims], strict=True):
        begins = begins.unsqueeze(-1) + torch.arange(size) * stride
    return begins.flatten()
