"""Steps of matrix units."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Block, Float, Rounding
from halfulp.hdl.specs import MmaSpec
from halfulp.hdl.specs.formula import VALUES

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
    rows: int = 1,
    columns: int = 1,
) -> Any:
    """Compute steps of a matrix unit: the sum of an accumulator and products along the last dimension.

    Parameters
    ----------
    x, y : Tensor
        Codes of elements, of shapes (..., rows * k) and (..., columns * k): one row, or column, after the other.
    *more : Tensor
        With blocks, codes of the scales of ``x`` and of ``y``, of shape (...), or with groups or several rows
        (..., rows * k / length), with groups or several columns (..., columns * k / length); then codes of the
        accumulators in the format ``o``; default: +0. They and the results have the shape (...), or with several rows
        or columns (..., rows * columns), one row after the other.
    a, b, o, rounding, order, zero, through, group, halves, rows, columns
        Fields of `MmaSpec`.
    """
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise TypeError(f"x and y must be tensors of codes, not {type(x).__name__} and {type(y).__name__}")
    check_devices(x=x, y=y)
    fields = {"rounding": rounding, "order": order, "zero": zero, "through": through, "group": group, "halves": halves}
    lanes = {"rows": rows, "columns": columns}
    if x.dim() == 0 or y.dim() == 0 or x.shape[:-1] != y.shape[:-1] or x.shape[-1] * columns != y.shape[-1] * rows:
        expected = "one shape (..., k)" if rows == columns == 1 else f"(..., {rows} * k) and (..., {columns} * k)"
        raise ValueError(f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; they must have {expected}")
    spec = MmaSpec.of(k=x.shape[-1] // rows, a=a, b=b, o=o, **fields, **lanes)
    blocks = [getattr(spec, name) for name in spec.block_parts]
    if len(more) not in (len(blocks), len(blocks) + 1):
        raise TypeError(f"{spec} takes {len(blocks)} tensors of scales and an accumulator, not {len(more)} tensors")
    check_devices(x=x, y=y, **{f"operand {place}": given for place, given in enumerate(more)})
    names = ["x", "y", *(f"scale of {name}" for name in "xy"[: len(blocks)]), "start"]
    formats = [*spec.elements, *(block.scale for block in blocks), spec.o]
    codes = [codes_of(*each) for each in zip(names, (x, y, *more), formats, strict=False)]
    ports = spec.arguments(*VALUES)
    for name, given, argument in zip(names, codes, ports.values(), strict=False):
        wanted = (*x.shape[:-1], *([len(argument)] if isinstance(argument, list) else []))
        if given.shape != wanted:
            raise ValueError(f"{name} has shape {tuple(given.shape)}; with these x and y it must be {wanted}")
    shape, end = x.shape[:-1], [spec.lanes] if spec.lanes > 1 else []
    start = codes[-1] if len(more) > len(blocks) else codes[0].new_zeros(*shape, *end)
    counts = [spec.k, spec.k, *(spec.k // block.length for block in blocks)]
    sides = [(rows, 1), (1, columns)] * 2
    laid = [each.reshape(*shape, *side, n) for each, side, n in zip(codes, sides, counts, strict=False)]
    return step(spec, *laid[:2], start.reshape(*shape, rows, columns), *laid[2:]).reshape((*shape, *end))
