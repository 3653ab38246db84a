"""Zero points of integer operands, which are subtracted before products."""

from dataclasses import replace
from typing import Any

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
