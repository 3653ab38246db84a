"""Calls of compiled kernels on tensors."""

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor

I64 = ctypes.c_int64
POINTER = ctypes.c_void_p


class View(ctypes.Structure):
    """Struct ``View`` of call.h: a tensor."""

    _fields_ = (
        *((name, POINTER) for name in ("data", "batches")),
        *((name, I64) for name in ("row", "column", "step")),
        *((name, POINTER) for name in ("rows", "columns")),
        ("size", I64),
    )


class Call(ctypes.Structure):
    """Struct ``Call`` of call.h: arguments of a kernel."""

    _fields_ = (
        *((name, I64) for name in ("batches", "n", "m", "k", "threads", "packs")),
        *((name, POINTER) for name in ("pack_of", "pack_batch")),
        *((name, View) for name in ("a", "b", "start", "sum_words", "product_words")),
        *((name, POINTER) for name in ("sum_states", "product_states")),
        ("key", ctypes.c_uint64),
        ("first_step", I64),
        ("out", View),
        *((name, I64) for name in ("down", "across")),
    )


@dataclass(frozen=True, eq=False)
class Patches:
    """Matrices whose elements are scattered over a tensor, such as the windows of a convolution, without a copy.

    Attributes
    ----------
    data : Tensor
        Contiguous tensor of the elements.
    batches, rows, columns : Tensor
        Offsets; element (batch, i, j) is at their sum in memory.
    """

    data: Tensor
    batches: Tensor
    rows: Tensor
    columns: Tensor

    @property
    def shape(self) -> torch.Size:
        """Shape (batches, rows, columns)."""
        return torch.Size((len(self.batches), len(self.rows), len(self.columns)))

    @property
    def device(self) -> torch.device:
        """Device of the elements."""
        return self.data.device

    @property
    def mT(self) -> "Patches":
        """The transposed matrices."""
        return replace(self, rows=self.columns, columns=self.rows)

    def gathered(self) -> Tensor:
        """Copy the elements to a tensor."""
        return self.data.reshape(-1)[self._places()]

    def scatter(self, values: Tensor) -> None:
        """Set the elements."""
        self.data.view(-1)[self._places()] = values

    def _places(self) -> Tensor:
        return self.batches[:, None, None] + self.rows[:, None] + self.columns


Matrices = Tensor | Patches


def gathered(x: Matrices) -> Tensor:
    """Return matrices as a tensor."""
    return x.gathered() if isinstance(x, Patches) else x


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
    a: Matrices,
    b: Matrices,
    start: Tensor | None,
    shape: tuple[int, ...],
    words: Words,
    transposed: bool = False,
    out: Matrices | None = None,
    step: ctypes.Structure | None = None,
    function: str = "halfulp_gemm",
) -> Matrices | None:
    """Call a kernel; None if it refuses these operands because it is not exact for them.

    Parameters
    ----------
    a, b, start : Tensor or Patches
        Codes, on the CPU; ``start`` has the shape of the result.
    shape : tuple of int
        Shape of the result.
    transposed : bool
        The kernel computes the transposed product: it is that of the description with exchanged operand formats.
    out : Tensor or Patches, optional
        Elements to which the result is written; default: those of a new tensor.
    step : Step, optional
        Parameters of the general kernel.
    function : str
        Function of the kernel.
    """
    batch, k = shape[:-2], a.shape[-1]
    found = torch.empty(shape, dtype=torch.int64) if out is None else out
    a, b = _expanded(a, batch), _expanded(b, batch)
    given = [None if column is None else column.expand(*shape, k) for column in words.given]
    n, m = shape[-2:]
    down, across = m, 1
    if transposed:
        a, b, n, m, down, across = b.mT, a.mT, m, n, 1, m
        start = None if start is None else start.mT
        given = [None if column is None else column.transpose(-3, -2) for column in given]
    into = found.mT if transposed else found
    alive: list[Tensor] = []

    def pointer(tensor: Tensor) -> int:
        alive.append(tensor)
        return tensor.data_ptr()

    def view(tensor: Matrices | None, inner: int = 2) -> View:
        if tensor is None:
            return View()
        begins = pointer(_begins(tensor, inner))
        if isinstance(tensor, Patches):
            tables = pointer(tensor.rows.contiguous()), pointer(tensor.columns.contiguous())
            return View(pointer(tensor.data), begins, 0, 0, 0, *tables, tensor.data.numel())
        return View(pointer(tensor), begins, *tensor.stride()[-inner:])

    begins = _begins(b)
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
        a=view(a),
        b=view(b),
        start=view(start),
        sum_words=view(given[0], 3),
        product_words=view(given[1], 3),
        sum_states=states[0],
        product_states=states[1],
        key=(words.key or 0) & (1 << 64) - 1,
        first_step=words.first_step,
        out=view(into),
        down=down,
        across=across,
    )
    more = () if step is None else (ctypes.byref(step),)
    return found if library[function](ctypes.byref(arguments), *more) == 0 else None


def _expanded(x: Matrices, batch: tuple[int, ...]) -> Matrices:
    if isinstance(x, Patches):
        return replace(x, batches=x.batches.expand(*batch))
    return x.expand(*batch, *x.shape[-2:])


def _begins(x: Matrices, inner: int = 2) -> Tensor:
    """Return the offset of each batch in memory; all dimensions but the last ``inner`` are batches."""
    if isinstance(x, Patches):
        return x.batches.contiguous()
    begins = torch.zeros((), dtype=torch.int64)
    dims = x.dim() - inner
    for size, stride in zip(x.shape[:dims], x.stride()[:dims], strict=True):
        begins = begins.unsqueeze(-1) + torch.arange(size) * stride
    return begins.flatten()
