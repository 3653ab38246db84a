"""Zero points of integer operands, which are subtracted before products."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Fixed, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec

from .check import broadcast, check_devices, codes_of
from .quantize import BlockTensor
from .raw import mask


def difference_format(fmt: Format) -> Fixed:
    """Return the format of differences of two numbers of a format: int9 for int8 and uint8.

    Raises
    ------
    ValueError
        If the format is not fixed point, or has 64 bits.
    """
    if not isinstance(fmt, Fixed):
        raise ValueError(f"zero points are for fixed point such as int8 or uint4, and {fmt} has none")
    if fmt.width == 64:
        raise ValueError(f"differences of {fmt} have 65 bits; operands with zero points have up to 63 bits")
    return Fixed(fmt.int_bits + 1, fmt.frac_bits)


def integers_of(codes: Tensor, fmt: Fixed) -> Tensor:
    """Return codes as integers, in units of the last place."""
    return codes - ((codes >> (fmt.width - 1)) << fmt.width) if fmt.signed else codes


def subtract_zeros(spec: Any, a: Any, b: Any, zeros: dict[str, Tensor | None]) -> tuple[Any, Any, Any]:
    """Return a description whose operands are differences, and these operands.

    Parameters
    ----------
    spec : MacSpec or BlockMacSpec
    a, b : Tensor or BlockTensor
        Checked operands.
    zeros : dict
        Codes of the zero points of ``a`` and ``b``; None: the operand has none. Those of numbers broadcast to the
        operand, those of blocks to its scales.

    Raises
    ------
    TypeError, ValueError
        If zero points are no codes of the operand format, have another shape or device, or the format has none.
    """
    operands = {"a": a, "b": b}
    for name, zero in zeros.items():
        if zero is None:
            continue
        if not isinstance(spec, MacSpec | BlockMacSpec):
            raise ValueError(f"{name}_zero is not possible for {spec}; give a mac such as int8*int4+int32")
        fmt, operand, label = getattr(spec, name), operands[name], f"{name}_zero"
        if isinstance(operand, BlockTensor):
            codes = _of_blocks(label, zero, operand, fmt.length, name, fmt.element)
            wide = difference_format(fmt.element)
            operands[name] = operand._replace(elements=_less(operand.elements, codes, fmt.element, wide))
            spec = replace(spec, **{name: replace(fmt, element=wide)})
        else:
            wide = difference_format(fmt)
            check_devices(**{name: operand, label: zero})
            codes = broadcast(label, codes_of(label, zero, fmt), tuple(operand.shape))
            operands[name] = _less(operand, codes, fmt, wide)
            spec = replace(spec, **{name: wide})
    return spec, operands["a"], operands["b"]


def _of_blocks(label: str, zero: Tensor, operand: BlockTensor, length: int, name: str, element: Format) -> Tensor:
    """Return the zero point of each element of an operand in blocks."""
    check_devices(**{name: operand.scale, label: zero})
    codes = broadcast(label, codes_of(label, zero, element), tuple(operand.scale.shape))
    dim = -1 if name == "a" else -2
    return codes.repeat_interleave(length, dim).narrow(dim, 0, operand.elements.shape[dim])


def _less(codes: Tensor, zero: Tensor, fmt: Fixed, wide: Fixed) -> Tensor:
    """Return codes of differences."""
    return (integers_of(codes, fmt) - integers_of(zero, fmt)) & mask(wide.width)


def corrected(sums: Tensor, a: Any, b: Any, spec: Any, zeros: dict[str, Tensor | None]) -> Tensor:
    """Add the terms of zero points to sums of an array, whose products are of codes without them.

    The sum of (a - za)(b - zb) over k is that of ab, minus za times the sum of b, minus zb times the sum of a, plus
    k za zb. The result is that of `halfulp.golden.gemm` with these zero points.

    Parameters
    ----------
    sums : Tensor
        Codes of the product without zero points.
    a, b : Tensor
        Codes of shapes (..., n, k) and (..., k, m).
    spec : MacSpec
        Multiply-accumulate of the array.
    zeros : dict
        Codes of the zero points ``a`` and ``b``, which broadcast to (..., n, 1) and (..., 1, m); None: there is none.

    Raises
    ------
    TypeError, ValueError
        If the array rounds or saturates some sum, or zero points are no such codes.
    """
    if all(zero is None for zero in zeros.values()):
        return sums
    if not isinstance(spec, MacSpec) or spec.product is not None:
        raise ValueError(f"zero points of arrays need a mac of integers without rounded product, not {spec}")
    o = _exact_result(spec, a.shape[-1], zeros)
    x, y = (
        integers_of(codes_of(name, operand, fmt), fmt) for name, operand, fmt in (("a", a, spec.a), ("b", b, spec.b))
    )
    za, zb = (
        torch.zeros((), dtype=torch.int64, device=sums.device)
        if zero is None
        else integers_of(codes_of(f"{name}_zero", zero, fmt), fmt)
        for (name, zero), fmt in zip(zeros.items(), (spec.a, spec.b), strict=True)
    )
    za = broadcast("a_zero", za, (*x.shape[:-1], 1))
    zb = broadcast("b_zero", zb, (*y.shape[:-2], 1, y.shape[-1]))
    terms = x.shape[-1] * za * zb - za * y.sum(-2, keepdim=True) - zb * x.sum(-1, keepdim=True)
    # The last place of the result may be finer than that of a product.
    terms = terms << (spec.a.quantum + spec.b.quantum - o.quantum)
    return (integers_of(sums, o) + terms) & mask(o.width)


def _exact_result(spec: MacSpec, k: int, zeros: dict[str, Tensor | None]) -> Fixed:
    """Return the format of sums; ValueError if sums of k products may be rounded or saturate, with or without zeros."""
    a, b, o = spec.a, spec.b, spec.o
    if not isinstance(a, Fixed) or not isinstance(b, Fixed) or not isinstance(o, Fixed):
        raise ValueError(f"zero points of arrays need operands and sums in fixed point, not {spec}")
    bits = (fmt.width - (fmt.signed and zero is None) for fmt, zero in zip((a, b), zeros.values(), strict=True))
    bound = k << sum(bits)
    shift = a.quantum + b.quantum - o.quantum
    if shift < 0 or (not o.wraps and bound << shift > o.largest_integer):
        raise ValueError(
            f"sums of {k} products of {a} and {b} with zero points need {bound.bit_length() + 1} bits and all places "
            f"of a product, more than {o}; use a wider accumulator, or one that wraps"
        )
    return o
