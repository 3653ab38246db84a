"""Matrix products in Triton, on a GPU or in Triton's interpreter.

Import it only if Triton is installed. Torch operations unpack the operands once. Each lane of the kernel computes a sum
step by step, with random words of its own source. Torch operations compute what `constants_of` refuses.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from halfulp.golden.codec import unpack as unpack_operands
from halfulp.hdl.formats import Format
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import MacSpec, ValueRange

from .launch import Words
from .text import PHILOX
from .triton_number import (
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

TILE = 16
"""Rows and columns of a block of sums."""

DIGITS = 32
"""Largest number of digits of an exact accumulator."""

DIGIT = tl.constexpr(32)
"""Bits of a digit of an exact accumulator; sums of digits fit 64 bits, so that carries wait for the end."""

LOW = tl.constexpr((1 << 32) - 1)
"""A digit of ones."""

META = 16
"""Lowest bits of an unpacked operand: exponent of the last place, NaN, infinity and sign."""


class Source(NamedTuple):
    """Constants of a source of random words, of which sums have stream 0 and products stream 1."""

    kind: str = "none"
    stream: int = 0
    bits: int = 0
    width: int = 0
    taps: tuple[int, ...] = ()
    dropped: int = 0
    taken: int = 0
    repeated: bool = False
    per_block: int = 8


class StepConstants(NamedTuple):
    """Constants of a description.

    Attributes
    ----------
    bits : int
        Bits of integers.
    o, product : FormatConstants
        Formats of sums and of rounded products.
    up : tuple of int, optional
        Left shifts of terms and sums that are integers (`triton_number.add`).
    mask : int
        Ones in the bits of a result.
    digits, quantum : int
        Number of digits and unit of exact accumulators.
    """

    bits: int
    o: FormatConstants
    rounding: RoundingConstants
    product: FormatConstants | None
    product_rounding: RoundingConstants
    sum_words: Source
    product_words: Source
    up: tuple[int, int] | None
    sums_exactly: bool
    digits: int
    quantum: int
    mask: int


@functools.lru_cache(maxsize=1024)
def constants_of(spec: MacSpec, counted: bool) -> StepConstants | None:
    """Return the constants of a description for the narrowest integers that hold all bits that its results depend on.

    Sums have their leading one 3 bits below the width of an integer, and lose bits below its lowest one; rounding
    depends on fewer bits. ``counted`` is set for counter-based words.
    """
    terms = ValueRange.of(spec.a) * ValueRange.of(spec.b)
    quire = spec.quire
    digits = 1 if quire is None else 1 << (-(-quire.width // DIGIT.value) - 1).bit_length()
    for bits in (32, 64):
        room, o = bits - 6, format_constants(spec.o, bits)
        product = None if spec.product is None else format_constants(spec.product, bits)
        rounded = [(spec.o, spec.rounding, spec.sums)]
        if spec.product is not None:
            rounded.append((spec.product, spec.product_rounding, terms))
        if (
            o is not None
            and (product is None) == (spec.product is None)
            and all(_is_operand(fmt, bits) for fmt in (spec.a, spec.b))
            and terms.precision <= room
            and all(fits(*case, bits) for case in rounded)
            and (quire is None or (bits == 64 and digits <= DIGITS))
        ):
            return StepConstants(
                bits,
                o,
                rounding_constants(spec.rounding, spec.saturate),
                product,
                rounding_constants(spec.product_rounding, spec.saturate),
                _source(spec, counted, "random", 0),
                _source(spec, counted, "random_product", 1),
                _shifts(spec, room),
                quire is not None,
                digits,
                quire.quantum if quire else 0,
                (1 << spec.o.width) - 1 if spec.o.width < 64 else -1,
            )
    return None


def _is_operand(fmt: Format, bits: int) -> bool:
    """Return True if `_unpacked` has room for the numbers of a format."""
    ends = floor_log2(ValueRange.of(fmt).magnitude), fmt.quantum
    return fmt.precision < bits - META and max(map(abs, ends)) < 1 << META - 4


def _shifts(spec: MacSpec, room: int) -> tuple[int, int] | None:
    """Return the left shifts of terms and sums to a common unit, if all numbers are integers that are narrow enough."""
    if spec.quire or not all(fmt.spacing == "uniform" for fmt in (spec.a, spec.b, spec.product or spec.o, spec.o)):
        return None
    quantum = spec.sums.quantum
    if spec.sums.magnitude and floor_log2(spec.sums.magnitude) - quantum >= room:
        return None
    return spec.terms.quantum - quantum, spec.o.quantum - quantum


def _source(spec: MacSpec, counted: bool, name: str, stream: int) -> Source:
    bits, register = spec.words.get(name, 0), spec.random
    if not bits:
        return Source()
    if counted:
        return Source(PHILOX, stream, bits, per_block=8 if bits <= 16 else 4)
    if register is None:
        return Source("given", stream, bits)
    kind, part = "inverting" if register.inverting else "register", register.part(bits)
    return Source(kind, stream, bits, register.register, register.taps, part.dropped, part.taken, part.repeated)


@triton.jit
def _operand(pointer, mask):
    """Load numbers that `_unpacked` wrote."""
    number = tl.load(pointer, mask=mask, other=0)
    meta = number.to(tl.int32)
    return (meta & 1) != 0, (meta << 16) >> 19, number >> 16, (meta & 4) != 0, (meta & 2) != 0


@triton.jit
def _states(pointer, element, there, S: tl.constexpr):
    """Load the states of register sources."""
    if S.kind == "register" or S.kind == "inverting":
        state = tl.load(pointer + element, mask=there, other=1)
        return state.to(tl.int32) if S.width < 31 else state
    else:
        return there


@triton.jit
def _block(key, element, step, S: tl.constexpr):
    """Return the counter-based words of a block of steps."""
    if S.kind == "philox":
        number = (step // S.per_block + element * 0).to(tl.uint32)
        stream = (S.stream + element * 0).to(tl.uint32)
        return tl.philox(key, number, element.to(tl.uint32), (element >> 32).to(tl.uint32), stream)
    else:
        return element, element, element, element


@triton.jit
def _word(pointer, there, state, block, step, S: tl.constexpr, INT: tl.constexpr):
    """Return the random words of a step, and the next states."""
    word = state
    if S.kind == "given":
        word = tl.load(pointer, mask=there, other=0)
    elif S.kind == "philox":
        place = step % S.per_block
        if S.per_block == 8:
            half = (place % 2) * 16
            place = place // 2
        else:
            half = 0
        b0, b1, b2, b3 = block
        word = tl.where(place < 2, tl.where(place == 0, b0, b1), tl.where(place == 2, b2, b3))
        word = (word >> half).to(tl.int64) & ((1 << S.bits) - 1)
    elif S.kind == "register" or S.kind == "inverting":
        ONES: tl.constexpr = (1 << S.width) - 1 if S.width < 64 else -1
        low = state & ONES
        parity = low >> (S.taps[0] - 1)
        for index in tl.static_range(1, len(S.taps)):
            parity = parity ^ (low >> (S.taps[index] - 1))
        state_after = ((low << 1) | (parity & 1)) & ONES
        if S.kind == "inverting":
            inverted = (state >> S.width) & 1
            low = low ^ (-inverted & ONES)
            state = state_after | ((inverted ^ (state_after == 1).to(state.dtype)) << S.width)
        else:
            state = state_after
        taken = (low >> S.dropped) & ((1 << S.taken) - 1)
        word = taken << (S.bits - S.taken)
        if S.repeated:
            for copy in tl.static_range(2, S.bits // S.taken + 1):
                word = word | (taken << (S.bits - copy * S.taken))
            word = word | (taken >> (S.taken - S.bits % S.taken))
    return word.to(INT), state


@triton.jit
def _add_exactly(digits, x, index, QUANTUM: tl.constexpr):
    """Add numbers to exact accumulators, in units of 2^QUANTUM, without carries."""
    sign, exponent, significand, nan, inf = x
    place = (exponent - QUANTUM)[:, :, None] - index * DIGIT
    wide = tl.where(nan | inf, 0, significand)[:, :, None]
    # Bits below the unit are zeros. Left shifts of at least a digit, and right shifts of all bits, leave nothing.
    moved = tl.where(place < 0, wide >> tl.minimum(-place, 63), wide << tl.minimum(tl.maximum(place, 0), 63))
    moved = tl.where(place < DIGIT, moved & LOW, 0)
    return digits + tl.where(sign[:, :, None], -moved, moved)


@triton.jit
def _specials(x):
    """Return the flags of NaN and of both infinities."""
    sign, _, _, nan, inf = x
    return nan, inf & (sign == 0), inf & sign


@triton.jit
def _digit(digits, index, at):
    return tl.sum(tl.where(index == at, digits, 0), 2)


@triton.jit
def _exact_sum(digits, index, LENGTH: tl.constexpr, QUANTUM: tl.constexpr):
    """Return the sign, exponent, significand and sticky bit of exact accumulators."""
    carry = _digit(digits, index, 0) * 0
    for at in range(LENGTH):
        carry = (_digit(digits, index, at) + carry) >> DIGIT
    sign = carry < 0
    digits = tl.where(sign[:, :, None], -digits, digits)
    carry = carry * 0
    for at in range(LENGTH):
        total = _digit(digits, index, at) + carry
        digits = tl.where(index == at, (total & LOW)[:, :, None], digits)
        carry = total >> DIGIT
    # Take the bits from the leading one downwards until 60 bits are full; the others are sticky.
    significand, sticky = carry * 0, sign != sign
    exponent = (significand + (LENGTH * DIGIT + QUANTUM)).to(tl.int32)
    for at in range(LENGTH):
        digit = _digit(digits, index, LENGTH - 1 - at)
        room = 60 - tl.where(significand == 0, 0, top(significand | 1) + 1)
        taken = tl.minimum(room, DIGIT)
        significand = (significand << taken) | (digit >> (32 - taken))
        sticky = sticky | (((digit << taken) & LOW) != 0)
        exponent -= taken
    return sign, exponent, significand, sticky


@triton.jit(do_not_specialize=["key", "first"])
def _kernel(a, b, start, given, states, out, shape, key, first,  # noqa: PLR0913 - arguments of a kernel
            a_strides, b_strides, sum_strides, product_strides,
            HAS_START: tl.constexpr, P: tl.constexpr, INT: tl.constexpr, CHUNK: tl.constexpr,
            N: tl.constexpr, M: tl.constexpr):  # fmt: skip
    # Triton 3.6 passes attributes of constants on as constants only under names of their own.
    RESULT: tl.constexpr = P.o
    ROUNDING: tl.constexpr = P.rounding
    PRODUCT: tl.constexpr = P.product
    PRODUCT_ROUNDING: tl.constexpr = P.product_rounding
    SUM_WORDS: tl.constexpr = P.sum_words
    PRODUCT_WORDS: tl.constexpr = P.product_words
    UP: tl.constexpr = P.up
    QUANTUM: tl.constexpr = P.quantum
    n, m, k = shape
    tiles_down, tiles_across = tl.cdiv(n, N), tl.cdiv(m, M)
    tile = tl.program_id(0)
    batch = (tile // (tiles_down * tiles_across)).to(tl.int64)
    row = ((tile // tiles_across) % tiles_down * N + tl.arange(0, N)[:, None]).to(tl.int64)
    column = (tile % tiles_across * M + tl.arange(0, M)[None, :]).to(tl.int64)
    there = (row < n) & (column < m)
    element = (batch * n + row) * m + column
    a += batch * a_strides[0] + row * a_strides[1]
    b += batch * b_strides[0] + column * b_strides[2]
    sum_given = given[0] + batch * sum_strides[0] + row * sum_strides[1] + column * sum_strides[2]
    product_given = given[1] + batch * product_strides[0] + row * product_strides[1] + column * product_strides[2]
    sum_state = _states(states[0], element, there, SUM_WORDS)
    product_state = _states(states[1], element, there, PRODUCT_WORDS)
    word, code, never = tl.zeros((N, M), INT), tl.zeros((N, M), INT), there != there
    if HAS_START:
        code = tl.load(start + element, mask=there, other=0).to(INT)
    DIGITS: tl.constexpr = P.digits
    index, digits = tl.arange(0, DIGITS)[None, None, :], tl.zeros((N, M, DIGITS), tl.int64)
    nan, plus, minus = never, never, never
    if P.sums_exactly:
        begin = unpack(code, RESULT)
        digits = _add_exactly(digits, begin, index, QUANTUM)
        nan, plus, minus = _specials(begin)
    # Counter-based words of a chunk of steps are computed at once. Offsets of steps may have more than 32 bits.
    first = first.to(tl.int64)
    for chunk in range(first // CHUNK, (first + k + CHUNK - 1) // CHUNK):
        sum_block = _block(key, element, chunk * CHUNK, SUM_WORDS)
        product_block = _block(key, element, chunk * CHUNK, PRODUCT_WORDS)
        for count in range(max(first, chunk * CHUNK), min(first + k, (chunk + 1) * CHUNK)):
            step = count - first
            words = sum_given + step * sum_strides[3]
            word, sum_state = _word(words, there, sum_state, sum_block, count, SUM_WORDS, INT)
            x = _operand(a + step * a_strides[2], row < n)
            y = _operand(b + step * b_strides[1], column < m)
            term = multiply(x, y)
            if PRODUCT is not None:
                words = product_given + step * product_strides[3]
                product_word, product_state = _word(
                    words, there, product_state, product_block, count, PRODUCT_WORDS, INT
                )
                term = unpack(pack(term, never, product_word, PRODUCT_ROUNDING, PRODUCT), PRODUCT)
            if P.sums_exactly:
                digits = _add_exactly(digits, term, index, QUANTUM)
                more = _specials(term)
                nan, plus, minus = nan | more[0], plus | more[1], minus | more[2]
            else:
                total, sticky = add(term, unpack(code, RESULT), ROUNDING, UP)
                code = pack(total, sticky, word, ROUNDING, RESULT)
    if P.sums_exactly:
        sign, exponent, significand, inexact = _exact_sum(digits, index, DIGITS, QUANTUM)
        inf = plus | minus
        exact = tl.where(inf, minus, sign), exponent, significand, nan | (plus & minus), inf
        code = pack(exact, inexact, word, ROUNDING, RESULT)
    tl.store(out + element, code.to(tl.int64) & P.mask, mask=there)


def _unpacked(codes: Tensor, fmt: Format, bits: int) -> Tensor:
    """Unpack codes to integers: significand, and in the lowest bits the exponent of the last place and flags."""
    x = unpack_operands(codes, fmt)
    special = x.nan | x.inf
    exponent = torch.where(special | x.zero, fmt.quantum, x.exponent - (x.significand.width - 1))
    # The bits below the last place of the format are zeros: fixed-point numbers become integers.
    below = (fmt.quantum - exponent).clamp(min=0)
    significand, exponent = torch.where(special, 1, x.significand.low >> below), exponent + below
    number = significand << META | (exponent << 3 | x.nan.long() << 2 | x.inf.long() << 1 | x.sign.long()) & 0xFFFF
    return number.to(torch.int32 if bits == 32 else torch.int64)


def arguments(
    spec: MacSpec, a: Tensor, b: Tensor, start: Tensor | None, shape: tuple[int, ...], words: Words
) -> dict[str, Any] | None:
    """Return the arguments of the kernel; None if it does not support the call."""
    constants = constants_of(spec, words.key is not None)
    batch, (n, m), k = shape[:-2], shape[-2:], a.shape[-1]
    if constants is None or (spec.quire is not None and k + 1 >= 1 << spec.quire.carry):
        return None
    count = torch.Size(batch).numel()
    x = _unpacked(a, spec.a, constants.bits).expand(*batch, n, k).reshape(count, n, k)
    y = _unpacked(b, spec.b, constants.bits).expand(*batch, k, m).reshape(count, k, m)
    out = torch.empty(shape, dtype=torch.int64, device=a.device)
    unused = out.new_empty(1, 1, 1, 1)
    given = [unused if column is None else column.expand(*shape, k).reshape(count, n, m, k) for column in words.given]
    sources = constants.sum_words, constants.product_words
    blocks = [source.per_block for source in sources if source.kind == PHILOX]
    return {
        "a": x,
        "b": y,
        "start": out if start is None else start.contiguous(),
        "given": tuple(given),
        "states": tuple(unused if state is None else state.contiguous() for state in words.states),
        "out": out,
        "shape": (n, m, k),
        "key": words.key or 0,
        "first": words.first_step,
        "a_strides": x.stride(),
        "b_strides": y.stride(),
        "sum_strides": given[0].stride(),
        "product_strides": given[1].stride(),
        "HAS_START": start is not None,
        "P": constants,
        "INT": tl.int32 if constants.bits == 32 else tl.int64,
        "CHUNK": min(blocks, default=1 << 30),
        "N": TILE,
        "M": TILE if constants.digits <= 4 else 4,
    }


def gemm(
    spec: MacSpec, a: Tensor, b: Tensor, start: Tensor | None, shape: tuple[int, ...], words: Words
) -> Tensor | None:
    """Multiply matrices as `kernels.gemm`; None if the kernel does not support the description."""
    given = arguments(spec, a, b, start, shape, words)
    if given is None:
        return None
    out: Tensor = given["out"]
    if out.numel():
        n, m = shape[-2:]
        tiles = out.numel() // (n * m) * triton.cdiv(n, given["N"]) * triton.cdiv(m, given["M"])
        with torch.cuda.device_of(out):
            _kernel[(tiles,)](**given)
    return out
