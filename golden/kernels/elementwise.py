"""Element-wise kernel: chains of arithmetic on real numbers, and sums, rounded to floating-point formats.

The kernel is compiled once; formats and roundings are parameters.
"""

import ctypes
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.torch_internals import result_strides
from halfulp.hdl.formats import EXACT, FP32, RN, SATFINITE, Compound, Float, Format, Rounding, Saturation
from halfulp.hdl.formats.rounding import ALL_MODES

from . import build, gpu
from .launch import I64, POINTER

IN_TORCH, CALL_IN_TORCH = 0.1e-6, 0.5e-3
"""Seconds for an element in torch, and for a call."""

OPERATIONS = ("round", "add", "sub", "mul", "div", "sqrt", "table")
"""Operations of steps, in the order of `run_step` in elementwise.h."""

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3, torch.int64: 4}
"""Types of operands, in the order of elementwise.h; int64 is that of random words."""

DIMS, OPERANDS, REGISTERS, STEPS = 8, 20, 48, 48
"""Limits of a chain."""

SHARED = 1 << 17
"""Number of results of steps from which a chain is worth the start of threads."""

_SOURCE = '#include "elementwise.h"\n'


class Target(ctypes.Structure):
    """Struct ``Target`` of elementwise.h: a format and a rounding, which are in ``source`` too."""

    source: tuple[Format, Rounding, Saturation]
    _fields_ = (
        *((name, I64) for name in ("mode", "bits", "drop", "subnormals", "signed_zero", "parts")),
        *((name, ctypes.c_double) for name in ("smallest", "largest", "nan", "plus_inf", "minus_inf")),
        *((name, ctypes.c_double) for name in ("plus_over", "minus_over")),
        *((name, I64) for name in ("nan_code", "inf_code", "sign_code")),
    )


class _Operand(ctypes.Structure):
    _fields_ = (("data", POINTER), ("type", I64), ("strides", I64 * DIMS))


class _Step(ctypes.Structure):
    _fields_ = (*((name, I64) for name in ("operation", "target", "x", "y", "words", "to")), ("table", POINTER))


class _ChainCall(ctypes.Structure):
    _fields_ = (
        ("dims", I64),
        ("sizes", I64 * DIMS),
        *((name, I64) for name in ("operands", "results", "steps", "threads")),
        ("operand", _Operand * OPERANDS),
        ("result", I64 * OPERANDS),
        ("targets", POINTER),
        ("step", _Step * STEPS),
    )


class _Reduction(ctypes.Structure):
    _fields_ = (
        ("kept", I64),
        ("kept_sizes", I64 * DIMS),
        ("kept_strides", I64 * DIMS),
        ("summed", I64),
        ("summed_sizes", I64 * DIMS),
        ("summed_strides", I64 * DIMS),
        *((name, POINTER) for name in ("x", "out")),
        *((name, I64) for name in ("type", "threads")),
        *((name, POINTER) for name in ("number", "sum")),
        ("native", I64),
    )


class _Scatter(ctypes.Structure):
    _fields_ = (
        *((name, I64) for name in ("rows", "columns", "type", "threads")),
        *((name, POINTER) for name in ("into", "x", "places", "number", "sum")),
    )


@functools.lru_cache(maxsize=256)
def target(fmt: Format | None, rounding: Rounding, saturate: Saturation) -> Target | None:
    """Return the parameters of a rounding; None if the kernel does not support it."""
    source, parts = fmt, 1
    if isinstance(fmt, Compound) and not saturate and not rounding.bits:
        fmt, parts = fmt.part, fmt.parts
    if not isinstance(fmt, Float) or not 1 <= fmt.man <= FP32.man or fmt.emin < -1000 or rounding == EXACT:
        return None
    drop = 52 - fmt.man
    if drop <= rounding.bits:
        return None
    largest = float(fmt.largest)
    replaced = saturate == SATFINITE or not (fmt.has_inf or fmt.has_nan)
    infinite = largest if replaced else math.inf if fmt.has_inf else math.nan
    finite = saturate or replaced
    # The sign of NaN is that of +1.
    infinities = infinite, math.nan if math.isnan(infinite) else -infinite
    ends, stays = (largest, -largest), rounding.overflows_to_largest
    over = [end if finite or stay else other for end, stay, other in zip(ends, stays, infinities, strict=True)]
    made = Target(
        mode=ALL_MODES.index(rounding.mode),
        bits=rounding.bits,
        drop=drop,
        subnormals=fmt.subnormals,
        signed_zero=fmt.has_negative_zero,
        parts=parts,
        smallest=2.0**fmt.emin,
        largest=largest,
        # A format without NaN has the code of -0 instead.
        nan=math.nan if fmt.has_nan else -0.0,
        plus_inf=infinities[0],
        minus_inf=infinities[1],
        plus_over=over[0],
        minus_over=over[1],
        nan_code=fmt.nan_code,
        inf_code=fmt.infinity(False),
        sign_code=fmt.sign_code,
    )
    assert source is not None
    made.source = source, rounding, saturate
    return made


def library(elements: int) -> ctypes.CDLL | None:
    """Compile or load the kernel; None if it cannot be compiled, or is not worth it yet (see `build.library`)."""
    return build.library("elementwise", _SOURCE, elements * IN_TORCH + CALL_IN_TORCH)


def takes(*operands: Tensor) -> bool:
    """Return True if a kernel can read and write tensors, on the CPU or on a GPU."""
    return takes_on_cpu(*operands) or (gpu.elements(*operands) is not None and _are_typed(operands))


def takes_on_cpu(*operands: Tensor) -> bool:
    """Return True if the kernel of the CPU can read and write tensors."""
    return all(operand.device.type == "cpu" for operand in operands) and _are_typed(operands)


def _are_typed(operands: Sequence[Tensor]) -> bool:
    return all(operand.dtype in TYPES and not operand.is_neg() for operand in operands)


class KernelChain:
    """Chain of element-wise operations on registers, of which the first hold the operands.

    Parameters
    ----------
    operands : sequence of Tensor
        Tensors that broadcast to one shape; int64 ones are random words.
    """

    def __init__(self, operands: Sequence[Tensor]) -> None:
        self.operands = operands
        self._steps: list[tuple[int, Target, int, int, int, Tensor | None]] = []

    def step(
        self, operation: str, to: Target, x: int, y: int = 0, words: int | None = None, table: Tensor | None = None
    ) -> int:
        """Add an operation, and return the register of its result.

        Parameters
        ----------
        operation : str
            Of `OPERATIONS`.
        to : Target
            Format and rounding of the result.
        x, y : int
            Registers of the operands.
        words : int, optional
            Register of the random words.
        table : Tensor, optional
            Results of a function, rounded to odd, by the codes of the format.
        """
        self._steps.append((OPERATIONS.index(operation), to, x, y, -1 if words is None else words, table))
        return len(self.operands) + len(self._steps) - 1

    def run(self, *results: tuple[int, Tensor]) -> bool:
        """Write registers to tensors of one shape, which may be operands too; False if no kernel supports it."""
        on_gpu = gpu.elements(*self.operands, *(out for _, out in results))
        if on_gpu is not None:
            if any(step[1].parts > 1 for step in self._steps):
                return False
            steps = [
                on_gpu.Step(OPERATIONS[number], x, y, words, table, *to.source)
                for number, to, x, y, words, table in self._steps
            ]
            return bool(on_gpu.chain(self.operands, steps, results))
        prepared = self.prepared(*results)
        if prepared is not None:
            prepared()
        return prepared is not None

    def prepared(self, *results: tuple[int, Tensor]) -> "Prepared | None":
        """Return a call on the CPU that can be repeated; parameters as for `run`; None if no kernel supports it."""
        if results[0][1].device.type != "cpu":
            return None
        shape, first = results[0][1].shape, len(self.operands)
        tensors = [*self.operands, *(tensor for _, tensor in results)]
        if len(tensors) > OPERANDS or len(self._steps) > STEPS or first + len(self._steps) > REGISTERS:
            return None
        sizes, strides = _iteration(shape, tensors)
        compiled = None if len(sizes) > DIMS else library(shape.numel() * len(self._steps))
        if compiled is None:
            return None
        targets = list(dict.fromkeys(id(step[1]) for step in self._steps))
        parameters = (Target * len(targets))(*({id(step[1]): step[1] for step in self._steps}.values()))
        threads = torch.get_num_threads() if shape.numel() * len(self._steps) >= SHARED else 1
        call = _ChainCall(len(sizes), (*sizes,), len(tensors), len(results), len(self._steps), threads)
        for index, (tensor, column) in enumerate(zip(tensors, strides, strict=True)):
            call.operand[index] = _Operand(tensor.data_ptr(), TYPES[tensor.dtype], (*column,))
        for index, (operation, to, x, y, words, table) in enumerate(self._steps):
            pointer = None if table is None else table.data_ptr()
            call.step[index] = _Step(operation, targets.index(id(to)), x, y, words, first + index, pointer)
        for index, (register, _) in enumerate(results):
            call.result[index] = register
        call.targets = ctypes.addressof(parameters)
        return Prepared(compiled.halfulp_chain, call, (parameters, self, tensors))


class Prepared:
    """Call of a chain, which may be repeated on other tensors of the same shapes and strides.

    Parameters
    ----------
    function : callable
        Function of the compiled kernel.
    call : _ChainCall
        Its arguments.
    alive : object
        Objects to whose memory the arguments point.
    """

    def __init__(self, function: Any, call: _ChainCall, alive: Any) -> None:
        self._function, self._call, self._alive = function, call, alive
        self._operands = [call.operand[index] for index in range(call.operands)]

    def __call__(self, addresses: Sequence[int] = ()) -> None:
        """Compute the results; ``addresses`` are those of all operands and results, if they differ from the first."""
        for operand, address in zip(self._operands, addresses, strict=False):
            operand.data = address
        self._function(ctypes.byref(self._call))


def _iteration(shape: torch.Size, tensors: Sequence[Tensor]) -> tuple[list[int], list[list[int]]]:
    """Return sizes of an iteration and the strides of each tensor; the last tensor is in order of memory."""
    if all(tensor.numel() == 1 or (tensor.shape == shape and tensor.is_contiguous()) for tensor in tensors):
        return [shape.numel()], [[int(tensor.numel() != 1)] for tensor in tensors]
    columns = [
        [0] * (len(shape) - tensor.dim())
        + [0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
        for tensor in tensors
    ]
    order = sorted((dim for dim in range(len(shape)) if shape[dim] != 1), key=lambda dim: -columns[-1][dim])
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in tensors]
    for dim in order:
        size = shape[dim]
        if sizes and all(kept[-1] == column[dim] * size for kept, column in zip(strides, columns, strict=True)):
            sizes[-1] *= size
            for kept, column in zip(strides, columns, strict=True):
                kept[-1] = column[dim]
        else:
            sizes.append(size)
            for kept, column in zip(strides, columns, strict=True):
                kept.append(column[dim])
    return sizes or [1], strides if sizes else [[0]] * len(tensors)


def _descends(x: Tensor) -> bool:
    """Return True if dimensions of more than one element are in the order of memory."""
    steps = [step for size, step in zip(x.shape, x.stride(), strict=True) if size != 1]
    return all(step > after > 0 for step, after in itertools.pairwise(steps))


def empty_result(shape: torch.Size, operands: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return a tensor for the result of an element-wise operation, with the strides that torch gives to it."""
    # The first operand that is no number decides, unless the order of its dimensions in memory is ambiguous.
    first = next((operand for operand in operands if operand.numel() != 1), operands[0])
    device = next((operand.device for operand in operands if operand.device.type != "cpu"), first.device)
    if first.shape == shape and (first.is_contiguous() or _descends(first)):
        return torch.empty(shape, dtype=dtype, device=device)
    strides = result_strides(*(operand.expand(shape) for operand in operands))
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def total(x: Tensor, dims: Sequence[int], number: Target | None, to: Target, native: bool) -> Tensor | None:
    """Sum over dimensions, element by element from +0; None if no kernel supports it.

    Parameters
    ----------
    x : Tensor
    dims : sequence of int
        Dimensions in ascending order.
    number : Target, optional
        Format to which elements are rounded first.
    to : Target
        Format of the sums.
    native : bool
        ``to`` is FP32 to nearest, and all elements are numbers of FP32.
    """
    if to.parts > 1 or (number is not None and number.parts > 1):
        return None
    kept = [dim for dim in range(x.dim()) if dim not in dims]
    on_gpu = gpu.elements(x)
    if on_gpu is not None and takes(x):
        rows = x.permute(*kept, *dims).reshape(torch.Size(x.shape[dim] for dim in kept).numel(), -1)
        sums: Tensor | None = on_gpu.total(rows, None if number is None else number.source, to.source)
        return None if sums is None else sums.reshape([x.shape[dim] for dim in kept])
    compiled = library(x.numel()) if takes(x) and max(len(kept), len(dims)) <= DIMS else None
    if compiled is None:
        return None
    out = torch.empty([x.shape[dim] for dim in kept], dtype=x.dtype)
    call = _Reduction(kept=len(kept), summed=len(dims), x=x.data_ptr(), out=out.data_ptr(), type=TYPES[x.dtype])
    for part, sizes, strides in (
        (kept, call.kept_sizes, call.kept_strides),
        (dims, call.summed_sizes, call.summed_strides),
    ):
        sizes[: len(part)] = [x.shape[dim] for dim in part]
        strides[: len(part)] = [x.stride(dim) for dim in part]
    call.threads, call.native = torch.get_num_threads(), native
    call.number, call.sum = None if number is None else ctypes.addressof(number), ctypes.addressof(to)
    compiled.halfulp_reduce(ctypes.byref(call))
    return out


def scatter(into: Tensor, places: Tensor, x: Tensor, number: Target | None, to: Target) -> bool:
    """Add rows to rows ``places`` of a contiguous tensor, in their order; False if no kernel supports it.

    Elements of ``x`` are rounded to ``number``, if it is given, and all to the format of the sums.
    """
    is_taken = takes_on_cpu(into, x) and into.dtype == x.dtype and places.dtype == torch.int64
    compiled = library(x.numel()) if is_taken else None
    if compiled is None:
        return False
    x, places = x.contiguous(), places.contiguous()
    columns = into[:1].numel() if len(into) else 0
    call = _Scatter(len(places), columns, TYPES[x.dtype], torch.get_num_threads(), into.data_ptr(), x.data_ptr())
    call.places, call.sum = places.data_ptr(), ctypes.addressof(to)
    call.number = None if number is None else ctypes.addressof(number)
    compiled.halfulp_scatter(ctypes.byref(call))
    return True


def is_native(fmt: Format, rounding: Rounding, saturate: Saturation) -> bool:
    """Return True for the processor's own arithmetic of FP32."""
    return fmt == FP32 and rounding == RN and not saturate
