"""Blocks of numbers with a shared scale: the units of blocks on tensors of codes."""

from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, SAT, Block, Format, Rounding, Saturation, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import (
    BlockDequantizeSpec,
    BlockDotSpec,
    BlockMacSpec,
    BlockQuantizeSpec,
)
from halfulp.hdl.specs.block import terms_of
from halfulp.hdl.specs.ranges import window_of

from . import register
from .check import check_devices, check_shapes, codes_of, random_of
from .codec import round_and_pack, rounded, unpack
from .divide import divide
from .exact import Blocks
from .raw import Raw, multiply, normalised, order
from .sequence import accumulator
from .wide import Wide


def blockquantize(
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Block | str,
    rounding: Rounding | str = RN,
    random: Tensor | None = None,
) -> Blocks:
    """Convert blocks of numbers along the last dimension.

    Parameters
    ----------
    x : Tensor
        Codes of shape (..., length).
    random : Tensor, optional
        Random words of the shape of ``x``.
    a, o, rounding
        Fields of `BlockQuantizeSpec`.

    Returns
    -------
    Blocks
        Codes of the elements, of the shape of ``x``, and of the scales, of shape (...).
    """
    spec = BlockQuantizeSpec.of(a=a, o=o, rounding=rounding)
    check_devices(x=x, random=random)
    codes, words = codes_of("x", x, spec.a), random_of("random", random, spec.rounding)
    _check_length("x", codes, spec.o.length)
    check_shapes(x=x, random=random)
    return quantized(unpack(codes, spec.a), spec.o, spec.rounding, words)


def blockdequantize(
    x: Tensor,
    scale: Tensor,
    /,
    *,
    a: Block | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    random: Tensor | None = None,
) -> Tensor:
    """Multiply elements by the scale of their block, rounded once.

    Parameters
    ----------
    x, scale : Tensor
        Codes of elements, of shape (..., length), and of scales, of shape (...).
    random : Tensor, optional
        Random words of the shape of ``x``.
    a, o, rounding, saturate
        Fields of `BlockDequantizeSpec`.
    """
    spec = BlockDequantizeSpec.of(a=a, o=o, rounding=rounding, saturate=saturate)
    check_devices(x=x, scale=scale, random=random)
    words = random_of("random", random, spec.rounding)
    elements, factor = _unpacked("x", x, scale, spec.a, spec.a.length)
    check_shapes(x=x, random=random)
    return round_and_pack(multiply(elements, factor), spec.o, spec.rounding, spec.saturate, words)


def blockdot(  # noqa: PLR0913 - tensors, and the fields of a description by name
    x: Tensor,
    y: Tensor,
    x_scale: Tensor,
    y_scale: Tensor,
    start: Tensor | None = None,
    /,
    *,
    a: Block | str,
    b: Block | str,
    o: Format | str | None = None,
    c: Format | str | None = None,
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    random: Tensor | None = None,
) -> Tensor:
    """Compute dot products of blocks along the last dimension, rounded once.

    Parameters
    ----------
    x, y : Tensor
        Codes of elements, of one shape (..., k).
    x_scale, y_scale : Tensor
        Codes of the scales, of shape (...).
    start : Tensor, optional
        Codes in the format ``c``, of shape (...): initial values of the sums; default: +0.
    random : Tensor, optional
        Random words of shape (...).
    a, b, c, o, rounding, saturate
        Fields of `BlockDotSpec`.
    """
    given = {name: value for name, value in (("o", o), ("c", c)) if value is not None}
    spec = BlockDotSpec.of(k=_length(x, y), a=a, b=b, rounding=rounding, saturate=saturate, **given)
    if (start is None) != (spec.c is None):
        raise ValueError("start and its format c need each other; give both or neither")
    check_devices(x=x, y=y, x_scale=x_scale, y_scale=y_scale, start=start, random=random)
    words, quire = random_of("random", random, spec.rounding), spec.quire
    check_shapes(x_scale=x_scale, y_scale=y_scale, start=start, random=random)
    terms = _terms(x, y, x_scale, y_scale, spec.a, spec.b)
    total = register.total(register.place(terms, quire.quantum, quire.width))
    signs = terms.sign
    if start is None:
        first = torch.zeros_like(signs[..., 0])
    else:
        assert spec.c is not None
        base = unpack(codes_of("start", start, spec.c), spec.c)
        total, first = register.add(total, register.place(base, quire.quantum, quire.width)), base.sign
    signs = torch.cat([signs, first.expand(signs.shape[:-1]).unsqueeze(-1)], -1)
    return rounded(spec, register.as_raw(total, quire.quantum, register.cancelled_sign(signs, spec.rounding)), words)


def _term(spec: BlockMacSpec, x: Tensor, y: Tensor, x_scale: Tensor, y_scale: Tensor) -> Raw:
    """Compute one step of an accumulator: start + x_scale * y_scale * (x0 * y0 + x1 * y1 + ...), rounded once.

    Parameters
    ----------
    x, y : Tensor
        Codes of the elements of a step, of shape (..., k).
    x_scale, y_scale, start : Tensor
        Codes of the scales and of the accumulator, of shape (...).
    random : Tensor, optional
        Random words of shape (...).
    **parameters
        Fields of `BlockMacSpec`.
    """
    _check_length("x", x, spec.k)
    _check_length("y", y, spec.k)
    return step_term(spec, x, y, x_scale, y_scale)


blockmac, blockmac_sequence = accumulator(BlockMacSpec, "x", "y", "x_scale", "y_scale", "start")(_term)


def step_term(spec: BlockMacSpec, x: Tensor, y: Tensor, x_scale: Tensor, y_scale: Tensor) -> Raw:
    """Return terms of `blockmac` for codes whose last dimension has the elements of a step."""
    terms = _terms(x, y, x_scale, y_scale, spec.a, spec.b)
    zero_sign = register.cancelled_sign(terms.sign, spec.rounding)
    return register.summed(terms, terms_of(spec.a, spec.b, 1), spec.k, zero_sign)


def _terms(x: Tensor, y: Tensor, x_scale: Tensor, y_scale: Tensor, a: Block, b: Block) -> Raw:
    """Return the products of elements and scales."""
    k = _length(x, y)
    first, first_scale = _unpacked("x", x, x_scale, a, k)
    second, second_scale = _unpacked("y", y, y_scale, b, k)
    return multiply(multiply(first, second), multiply(first_scale, second_scale))


def _unpacked(name: str, x: Tensor, scale: Tensor, block: Block, length: int) -> tuple[Raw, Raw]:
    """Check and unpack elements and scales; scales get a last dimension of 1."""
    x, scale = codes_of(name, x, block.element), codes_of(f"{name}_scale", scale, block.scale)
    _check_length(name, x, length)
    return unpack(x, block.element), unpack(scale.unsqueeze(-1), block.scale)


def _length(x: object, y: object) -> int:
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise TypeError(f"x and y must be tensors of codes, not {type(x).__name__} and {type(y).__name__}")
    check_devices(x=x, y=y)
    if x.dim() == 0 or y.dim() == 0 or x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; their last dimensions must be equal")
    return x.shape[-1]


def _check_length(name: str, x: Tensor, length: int) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor of codes, not {type(x).__name__}")
    if x.dim() == 0 or x.shape[-1] != length:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; its last dimension must be {length}, one block")


# Quantization --------------------------------------------------------------------------------------------------------


def quantized(x: Raw, block: Block, rounding: Rounding, random: Tensor | None, tensor: Tensor | None = None) -> Blocks:
    """Quantize numbers in blocks along the last dimension; ``tensor`` is the scale of all blocks, in binary32."""
    factor = None if tensor is None else unpack(tensor.view(torch.int32).to(torch.int64) & 0xFFFFFFFF, parse("fp32"))
    scale = scale_of(_largest(x), block, factor)
    special = (x.nan | x.inf).any(-1)
    element_code, scale_code = block.nan_codes
    scale = torch.where(special, scale_code, scale)
    step = unpack(scale.unsqueeze(-1), block.scale)
    quotient = divide(x, step if factor is None else multiply(step, factor), _window(block.element, rounding))
    # Blocks with a special scale are overwritten; without it their elements are finite.
    there = special.unsqueeze(-1)
    quotient = replace(quotient, nan=quotient.nan & ~there, inf=quotient.inf & ~there)
    elements = round_and_pack(quotient, block.element, rounding, SAT, random)
    return Blocks(torch.where(there, element_code, elements), scale)


def _largest(x: Raw) -> Raw:
    """Return the largest magnitude along the last dimension."""
    held = replace(x.at(0), sign=torch.zeros_like(x.sign[..., 0]))
    for index in range(1, x.sign.shape[-1]):
        other = x.at(index)
        more = order(held, other)
        limbs = zip(held.significand.limbs, other.significand.limbs, strict=True)
        held = replace(
            held,
            exponent=torch.where(more, other.exponent, held.exponent),
            significand=Wide(tuple(torch.where(more, q, p) for p, q in limbs), held.significand.width),
            zero=held.zero & other.zero,
        )
    never = torch.zeros_like(held.sign)
    return replace(held, nan=never, inf=never)


def scale_of(largest: Raw, block: Block, factor: Raw | None) -> Tensor:
    """Return the codes of the scales of blocks from their largest magnitudes; see `Block`."""
    element, zero = block.element, largest.zero
    top = _constant(element, largest.exponent)
    if block.rule == "nearest":
        wanted = divide(largest, top if factor is None else multiply(top, factor), _window(block.scale, RN))
    else:
        if factor is not None:
            largest = normalised(divide(largest, factor, element.precision + 1))
        width = largest.significand.width
        unit = Wide.of(torch.ones_like(largest.exponent), 1)
        exponent = largest.exponent - block.emax
        if block.rule == "even" and width > element.precision:
            # Rounding carries into the next power of two if all bits of the precision and the next bit are ones.
            leading = largest.significand.bits(width - element.precision - 1, element.precision + 1)
            exponent = exponent + (leading == (1 << (element.precision + 1)) - 1)
        elif block.rule == "ceil":
            bits = max(width, element.precision)
            significand = largest.significand.pad(bits - width)
            above = top.significand.pad(bits - top.significand.width) < significand
            if largest.sticky is not None:
                above = above | (largest.sticky & ~(significand < top.significand.pad(bits - top.significand.width)))
            exponent = exponent + above
        wanted = replace(largest, exponent=exponent, significand=unit, sticky=None)
    codes = round_and_pack(wanted, block.scale, RN, SAT, None)
    if block.scale.has_zero:
        codes = torch.where(codes == 0, block.scale.encode(block.scale.smallest), codes)
    return torch.where(zero, block.zero_scale, codes)


def _window(o: Format, rounding: Rounding) -> int:
    """Return the number of leading bits of quotients that their rounding to ``o`` needs; larger ones saturate."""
    return max(window_of(o, rounding, Fraction(2) ** (o.quantum + o.width)), 1)


def _constant(fmt: Format, like: Tensor) -> Raw:
    """Return the largest number of a format in the shape of ``like``."""
    exponent = floor_log2(fmt.largest)
    significand = int(fmt.largest / 2 ** (exponent - fmt.precision + 1)) if exponent >= fmt.precision - 1 else None
    if significand is None:
        significand = int(fmt.largest * 2 ** (fmt.precision - 1 - exponent))
    never = torch.zeros_like(like, dtype=torch.bool)
    return Raw(
        sign=never,
        exponent=torch.full_like(like, exponent),
        significand=Wide.constant(significand, fmt.precision, like),
        nan=never,
        inf=never,
        zero=never,
    )


__all__ = ["Blocks", "blockdequantize", "blockdot", "blockmac", "blockmac_sequence", "blockquantize"]
