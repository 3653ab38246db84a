"""Element-wise operations in Triton, on a GPU or in Triton's interpreter: conversions, chains of arithmetic, and sums.

Import it only if Triton is installed. Numbers are those of `triton_number`; the registers of a chain hold codes of the
formats of their numbers.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from halfulp.hdl.formats import BF16, FP16, FP32, FP64, OFF, RN, Float, Format, Rounding, Saturation
from halfulp.hdl.specs import ValueRange

from .triton_number import (
    FloatConstants,
    FormatConstants,
    RoundingConstants,
    add,
    fits,
    format_constants,
    multiply,
    pack,
    rounding_constants,
    top,
    unpack,
)

BLOCK = 256
"""Number of elements of a program."""

DTYPES = {torch.float32: FP32, torch.float64: FP64, torch.bfloat16: BF16, torch.float16: FP16}
"""Formats of the types of operands."""

WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types of codes by the bytes of a type."""

QUOTIENT, RADICAND = tl.constexpr(57), tl.constexpr(60)
"""Leading bit of a dividend, and lower one of both leading bits of a radicand."""


class Conversion(NamedTuple):
    """Constants of a conversion; ``mask`` has ones in the bits of a result."""

    bits: int
    a: FormatConstants
    o: FormatConstants
    rounding: RoundingConstants
    mask: int


@functools.lru_cache(maxsize=1024)
def conversion(a: Format, o: Format, rounding: Rounding, saturate: Saturation) -> Conversion | None:
    """Return the constants of a conversion for the narrowest integers that hold its numbers; None without one."""
    for bits in (32, 64):
        before, after = format_constants(a, bits), format_constants(o, bits)
        if (
            before is not None
            and after is not None
            and a.precision <= bits - 6
            and a.width <= (bits if isinstance(before, FloatConstants) else bits - 2)
            and fits(o, rounding, ValueRange.of(a), bits)
        ):
            mask = (1 << o.width) - 1 if o.width < 64 else -1
            return Conversion(bits, before, after, rounding_constants(rounding, saturate), mask)
    return None


@triton.jit
def _convert(x, random, out, count,  # noqa: PLR0913 - arguments of a kernel
             WIDTH: tl.constexpr, HAS_WORDS: tl.constexpr, P: tl.constexpr, INT: tl.constexpr,
             BLOCK: tl.constexpr):  # fmt: skip
    BEFORE: tl.constexpr = P.a
    AFTER: tl.constexpr = P.o
    ROUNDING: tl.constexpr = P.rounding
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    code = tl.load(x + place, mask=there, other=0).to(INT)
    if P.bits > WIDTH:
        # Wider integers have zeros above a code.
        code = code & ((1 << WIDTH) - 1)
    word = code
    if HAS_WORDS:
        word = tl.load(random + place, mask=there, other=0).to(INT)
    result = pack(unpack(code, BEFORE), there != there, word, ROUNDING, AFTER)
    tl.store(out + place, result.to(tl.int64) & P.mask, mask=there)


def convert(
    x: Tensor, a: Format, o: Format, rounding: Rounding, saturate: Saturation, random: Tensor | None, out: Tensor
) -> bool:
    """Convert as `elements.convert`, to codes in ``out``; tensors are contiguous. False without a kernel."""
    constants = conversion(a, o, rounding, saturate)
    if constants is None:
        return False
    given = _words_of(x) if x.dtype.is_floating_point else x
    with torch.cuda.device_of(out):
        _convert[(triton.cdiv(x.numel(), BLOCK),)](
            given,
            given if random is None else random,
            out,
            x.numel(),
            WIDTH=8 * given.element_size(),
            HAS_WORDS=random is not None,
            P=constants,
            INT=tl.int32 if constants.bits == 32 else tl.int64,
            BLOCK=BLOCK,
        )
    return True


def _words_of(x: Tensor) -> Tensor:
    return x.view(WORDS[x.element_size()])


@dataclass(frozen=True)
class StepConstants:
    """Constants of a step: operation, registers, their formats, and format and rounding of the result.

    ``words`` is a register and ``table`` the place of a table, or -1. Triton takes elements of a constant tuple as
    variables if they are tuples too, so that this is none.
    """

    operation: str
    x: int
    y: int
    words: int
    table: int
    x_format: FormatConstants
    y_format: FormatConstants
    o: FormatConstants
    rounding: RoundingConstants


@triton.jit
def _quotient(x, y):
    """Divide; return the quotient truncated to at least 34 bits for divisors of 24 bits, and a sticky bit."""
    s0, e0, f0, nan0, inf0 = x
    s1, e1, f1, nan1, inf1 = y
    zero0, zero1 = f0 == 0, f1 == 0
    up = QUOTIENT - top(f0 | zero0.to(f0.dtype))
    dividend, divisor = f0 << up, f1 | zero1.to(f1.dtype)
    quotient = dividend // divisor
    ends = inf0 | inf1 | zero1
    nan = nan0 | nan1 | (inf0 & inf1) | (zero0 & zero1)
    inf = (inf0 | zero1) & (inf1 == 0)
    return (s0 ^ s1, e0 - up - e1, tl.where(ends, 0, quotient), nan, inf), (quotient * divisor != dividend) & (
        ends == 0
    )


@triton.jit
def _root(x):
    """Return the square root, truncated to 31 bits, and a sticky bit."""
    sign, exponent, significand, nan, inf = x
    zero = significand == 0
    up = RADICAND - top(significand | zero.to(significand.dtype))
    # The exponent of the radicand is even.
    up = up + ((exponent - up) & 1)
    radicand = significand << up
    root = tl.sqrt(radicand.to(tl.float64)).to(tl.int64)
    root = root - (root * root > radicand).to(tl.int64)
    root = root + ((root + 1) * (root + 1) <= radicand).to(tl.int64)
    return (sign, (exponent - up) >> 1, root, nan | (sign & (zero == 0)), inf), root * root != radicand


@triton.jit
def _step(codes, tables, place, S: tl.constexpr):
    """Compute a step and return the code of its result."""
    BEFORE: tl.constexpr = S.x_format
    OTHER: tl.constexpr = S.y_format
    AFTER: tl.constexpr = S.o
    ROUNDING: tl.constexpr = S.rounding
    OPERATION: tl.constexpr = S.operation
    x = unpack(codes[S.x], BEFORE)
    never = place < 0
    sticky = never
    word = codes[S.x]
    if S.words >= 0:
        word = codes[S.words]
    if OPERATION == "mul":
        x = multiply(x, unpack(codes[S.y], OTHER))
    elif OPERATION == "div":
        x, sticky = _quotient(x, unpack(codes[S.y], OTHER))
    elif OPERATION == "sqrt":
        x, sticky = _root(x)
    elif OPERATION == "table":
        x = unpack(tl.load(tables[S.table] + codes[S.x]), OTHER)
    elif OPERATION != "round":
        sign, exponent, significand, nan, inf = unpack(codes[S.y], OTHER)
        if OPERATION == "sub":
            sign = sign == 0
        x, sticky = add(x, (sign, exponent, significand, nan, inf), ROUNDING, None)
    return pack(x, sticky, word, ROUNDING, AFTER)


@triton.jit
def _step_at(codes, tables, place, STEPS: tl.constexpr, AT: tl.constexpr):
    # Triton passes an element of a constant on as a constant only under a name of its own.
    STEP: tl.constexpr = STEPS[AT]
    return _step(codes, tables, place, STEP)


@triton.jit
def _loaded(pointer, there, WIDTH: tl.constexpr):
    """Load the codes of an operand."""
    code = tl.load(pointer, mask=there, other=0).to(tl.int64)
    return code & ((1 << WIDTH) - 1) if WIDTH < 64 else code


@triton.jit
def _chain(operands, tables, results, count,  # noqa: PLR0913 - arguments of a kernel
           STRIDES: tl.constexpr, WIDTHS: tl.constexpr, STEPS: tl.constexpr, STORES: tl.constexpr,
           BLOCK: tl.constexpr):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    codes = ()
    for index in tl.static_range(len(STRIDES)):
        codes = codes + (_loaded(operands[index] + place * STRIDES[index], there, WIDTHS[index]),)  # type: ignore[assignment]
    for index in tl.static_range(len(STEPS)):
        codes = codes + (_step_at(codes, tables, place, STEPS, index),)  # type: ignore[assignment]
    for index in tl.static_range(len(STORES)):
        tl.store(results[index] + place, _step_at(codes, tables, place, STORES, index), mask=there)


class Step(NamedTuple):
    """Step of a chain: operation, registers of operands and of random words or -1, table, format and rounding."""

    operation: str
    x: int
    y: int
    words: int
    table: Tensor | None
    fmt: Float
    rounding: Rounding
    saturate: Saturation


def chain(operands: Sequence[Tensor], steps: Sequence[Step], results: Sequence[tuple[int, Tensor]]) -> bool:
    """Compute a chain as `elementwise.KernelChain`; False if the kernel does not support a step."""
    (_, first), *_ = results
    operands = [_narrowed(operand) for operand in operands]
    formats: list[Format] = [DTYPES.get(operand.dtype, FP64) for operand in operands]
    tables: list[Tensor] = []
    constants = []
    for step in steps:
        if not _supports(step, formats[step.x], formats[step.y]):
            return False
        second = formats[step.y] if step.table is None else FP64
        at = -1 if step.table is None else len(tables)
        if step.table is not None:
            tables.append(_words_of(step.table.to(first.device)))
        constants.append(_constants(step.operation, step.x, step.y, step.words, at, formats[step.x], second, *step[5:]))
        formats.append(step.fmt)
    stores = tuple(
        _constants("round", at, at, -1, -1, formats[at], formats[at], DTYPES[out.dtype], RN, OFF) for at, out in results
    )
    given = [_operand(operand, first) for operand in operands]
    written = [out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
               for _, out in results]  # fmt: skip
    with torch.cuda.device_of(first):
        _chain[(triton.cdiv(first.numel(), BLOCK),)](
            tuple(given),
            tuple(tables),
            tuple(map(_words_of, written)),
            first.numel(),
            STRIDES=tuple(int(operand.numel() != 1) for operand in given),
            WIDTHS=tuple(8 * operand.element_size() for operand in given),
            STEPS=tuple(constants),
            STORES=stores,
            BLOCK=BLOCK,
        )
    for made, (_, out) in zip(written, results, strict=True):
        if made is not out:
            out.copy_(made)
    return True


def _narrowed(operand: Tensor) -> Tensor:
    """Return a number of the CPU in binary32 if it is one of it, because divisors have up to 24 bits."""
    if operand.device.type != "cpu" or operand.numel() != 1 or operand.dtype != torch.float64:
        return operand
    narrow = operand.to(torch.float32)
    return narrow if torch.equal(narrow.to(torch.float64), operand) else operand


def _operand(operand: Tensor, like: Tensor) -> Tensor:
    """Return the codes of an operand: one for all elements, or one for each in row-major order."""
    here = operand.to(like.device)
    here = here.reshape(1) if here.numel() == 1 else here.expand(like.shape).contiguous()
    return _words_of(here)


def _supports(step: Step, x: Format, y: Format) -> bool:
    """Return True if integers of 64 bits hold the exact result of a step, or the leading bits that its rounding needs.

    Results are numbers of floats, whose leading bits are below all others that matter.
    """
    needed = step.fmt.window + step.rounding.places
    match step.operation:
        case "mul":
            held = x.precision + y.precision <= 58
        case "div":
            held = needed <= QUOTIENT.value - y.precision
        case "sqrt":
            held = needed <= 30 and x.precision <= 58
        case _:
            held = max(x.precision, y.precision) <= 58
    return held and needed <= 58


@functools.lru_cache(maxsize=1024)
def _constants(  # noqa: PLR0913 - fields of a step
    operation: str,
    x: int,
    y: int,
    words: int,
    table: int,
    x_format: Format,
    y_format: Format,
    o: Format,
    rounding: Rounding,
    saturate: Saturation,
) -> StepConstants:
    formats = (format_constants(fmt, 64) for fmt in (x_format, y_format, o))
    a, b, c = (fmt for fmt in formats if fmt is not None)
    return StepConstants(operation, x, y, words, table, a, b, c, rounding_constants(rounding, saturate))


@triton.jit
def _sums(x, out, kept, summed, strides,  # noqa: PLR0913 - arguments of a kernel
          ROUND: tl.constexpr, SUM: tl.constexpr, STORE: tl.constexpr,
          WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < kept
    total, x = tl.zeros((BLOCK,), tl.int64), x + place * strides[0]
    for _ in range(summed):
        code = _loaded(x, there, WIDTH)
        if ROUND is not None:
            code = _step((code,), (), place, ROUND)
        total = _step((total, code), (), place, SUM)
        x += strides[1]
    tl.store(out + place, _step((total,), (), place, STORE), mask=there)


def total(
    x: Tensor, number: tuple[Float, Rounding, Saturation] | None, to: tuple[Float, Rounding, Saturation]
) -> Tensor | None:
    """Sum a matrix over its rows as `elementwise.total`, in the order of its columns; None without a kernel.

    ``number`` and ``to`` are formats and roundings of elements and of sums.
    """
    source = DTYPES[x.dtype]
    element = source if number is None else number[0]
    adds = Step("add", 0, 1, -1, None, *to)
    if not _supports(adds, to[0], element):
        return None
    out = x.new_empty(x.shape[0])
    with torch.cuda.device_of(out):
        _sums[(triton.cdiv(len(out), BLOCK),)](
            _words_of(x),
            _words_of(out),
            *x.shape,
            x.stride(),
            ROUND=None if number is None else _constants("round", 0, 0, -1, -1, source, source, *number),
            SUM=_constants("add", 0, 1, -1, -1, to[0], element, *to),
            STORE=_constants("round", 0, 0, -1, -1, to[0], to[0], source, RN, OFF),
            WIDTH=8 * x.element_size(),
            BLOCK=BLOCK,
        )
    return out
