"""Steps of matrix units."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Block, Float, Rounding
from halfulp.hdl.specs import MmaSpec

from .check import check_devices, codes_of
from .matrix_unit import step


def mma(  # noqa: PLR0913 - tensors, and the fields of a description by name
    x: Tensor,
    y: Tensor,
    /,
    *more: Tensor,
    a: Float | Block | str,
    b: Float | Block | str,
    o: Float | str,
    rounding: Rounding | str = RN,
    order: str = "exact",
    zero: int | None = None,
    through: Float | str | None = None,
    group: int = 1,
    halves: int = 1,
) -> Any:
    """Compute steps of a matrix unit: the sum of an accumulator and products along the last dimension.

    Parameters
    ----------
    x, y : Tensor
        Codes of elements, of one shape (..., k).
    *more : Tensor
        With blocks, codes of the scales of ``x`` and of ``y``, of shape (...), or with groups (..., k / length); then
        codes of the accumulator in the format ``o``, of shape (...); default: +0.
    a, b, o, rounding, order, zero, through, group, halves
        Fields of `MmaSpec`.
    """
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise TypeError(f"x and y must be tensors of codes, not {type(x).__name__} and {type(y).__name__}")
    if x.shape != y.shape or x.dim() == 0:
        raise ValueError(f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; both must have one shape (..., k)")
    fields = {"rounding": rounding, "order": order, "zero": zero, "through": through, "group": group, "halves": halves}
    spec = MmaSpec.of(k=x.shape[-1], a=a, b=b, o=o, **fields)
    blocks = [getattr(spec, name) for name in spec.block_parts]
    if len(more) not in (len(blocks), len(blocks) + 1):
        raise TypeError(f"{spec} takes {len(blocks)} tensors of scales and an accumulator, not {len(more)} tensors")
    check_devices(x=x, y=y, **{f"operand {place}": given for place, given in enumerate(more)})
    codes = [codes_of(name, given, fmt) for name, given, fmt in zip("xy", (x, y), spec.elements, strict=True)]
    scales = [codes_of("scale", given, block.scale) for given, block in zip(more, blocks, strict=False)]
    shape = x.shape[:-1]
    for given, block in zip(scales, blocks, strict=True):
        expected = shape if spec.group == 1 else (*shape, spec.k // block.length)
        if given.shape != expected:
            raise ValueError(f"scales have shape {tuple(given.shape)}; with these x and y it must be {tuple(expected)}")
    start = codes_of("start", more[-1], spec.o) if len(more) > len(blocks) else codes[0].new_zeros(shape)
    if start.shape != shape:
        raise ValueError(f"start has shape {tuple(start.shape)}; with these x and y it must have {tuple(shape)}")
    return step(spec, *codes, start, *(given if spec.group > 1 else given.unsqueeze(-1) for given in scales))
