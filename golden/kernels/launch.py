"""Calls of compiled kernels on tensors."""

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor

I64 = ctypes.c_int64
POINTER = ctypes.c_void_p


class View(ctypes.Structure):
    """Struct ``View`` of call.h: a tensor of codes, or of real numbers in float32."""

    _fields_ = (
        *((name, POINTER) for name in ("data", "batches")),
        *((name, I64) for name in ("row", "column", "step")),
        *((name, POINTER) for name in ("rows", "columns")),
        *((name, I64) for name in ("size", "real")),
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
        *((name, I64) for name in ("down", "across", "part", "drop")),
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
    def dtype(self) -> torch.dtype:
        """Type of the elements."""
        return self.data.dtype

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


def call(  # noqa: PLR0913 - arguments of a kernel
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
    dtype: torch.dtype = torch.int64,
    parts: tuple[int, int] = (0, 0),
) -> Matrices | None:
    """Call a kernel; None if it refuses these operands because it is not exact for them.

    Parameters
    ----------
    a, b, start : Tensor or Patches
        Codes or real numbers, on the CPU; ``start`` has the shape of the result.
    shape : tuple of int
        Shape of the result.
    transposed : bool
        The kernel computes the transposed product: it is that of the description with exchanged operand formats.
    out : Tensor or Patches, optional
        Elements to which the result is written; default: those of a new tensor.
    step : MacStep, optional
        Parameters of the general kernel.
    function : str
        Function of the kernel.
    dtype : torch.dtype
        Type of a new result: int64 for codes, or float32.
    parts : tuple of int
        ``part`` and ``drop`` of `Call`.
    """
    batch, k = shape[:-2], a.shape[-1]
    result = torch.empty(shape, dtype=dtype) if out is None else out
    if batch:
        a, b = _expanded(a, batch), _expanded(b, batch)
    given = [None if column is None else column.expand(*shape, k) for column in words.given]
    n, m = shape[-2:]
    down, across = m, 1
    if transposed:
        a, b, n, m, down, across = b.mT, a.mT, m, n, 1, m
        start = None if start is None else start.mT
        given = [None if column is None else column.transpose(-3, -2) for column in given]
    into = result.mT if transposed else result
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
            made = View(pointer(tensor.data), begins, 0, 0, 0, *tables, tensor.data.numel())
        else:
            made = View(pointer(tensor), begins, *tensor.stride()[-inner:])
        made.real = tensor.dtype == torch.float32
        return made

    pack_of, pack_batch = _packs(b)
    packs = len(pack_batch)
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
        part=parts[0],
        drop=parts[1],
    )
    more = () if step is None else (ctypes.byref(step),)
    return result if library[function](ctypes.byref(arguments), *more) == 0 else None


def _packs(b: Matrices) -> tuple[Tensor, Tensor]:
    """Return the distinct batch of b for each batch, and one batch for each distinct one: these are packed once."""
    begins = _begins(b)
    if len(begins) == 1:
        return _FIRST, _FIRST
    _, pack_of = torch.unique(begins, return_inverse=True)
    pack_batch = torch.zeros(int(pack_of.max()) + 1 if len(pack_of) else 0, dtype=torch.int64)
    pack_batch[pack_of] = torch.arange(len(pack_of))
    return pack_of, pack_batch


_FIRST = torch.zeros(1, dtype=torch.int64)


def _expanded(x: Matrices, batch: tuple[int, ...]) -> Matrices:
    if isinstance(x, Patches):
        return replace(x, batches=x.batches.expand(*batch))
    return x.expand(*batch, *x.shape[-2:])


def _begins(x: Matrices, inner: int = 2) -> Tensor:
    """Return the offset of each batch in memory; all dimensions but the last ``inner`` are batches."""
    if isinstance(x, Patches):
        return x.batches.contiguous()
    dims = x.dim() - inner
    if all(size == 1 for size in x.shape[:dims]):
        return _FIRST
    begins = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(x.shape[:dims], x.stride()[:dims], strict=True):
        begins = begins.unsqueeze(-1) + torch.arange(size) * stride
    return begins.flatten()
