"""Dot products of vectors of fixed length."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding, Saturation
from halfulp.hdl.specs import DotSpec
from halfulp.hdl.specs.dot import SEQUENTIAL
from halfulp.hdl.specs.ranges import window_of

from . import register
from .check import check_devices
from .chosen import by_mode
from .codec import operands, rounded, unpack_operand
from .exact import Flagged
from .raw import Raw, add, align, multiply, scaled, scaled_product


@by_mode
def dot(  # noqa: PLR0913 - tensors, and the fields of a description by name
    x: Tensor,
    y: Tensor,
    start: Tensor | None = None,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str | None = None,
    c: Format | str | None = None,
    order: str = "exact",
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Any:
    """Compute dot products along the last dimension.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``, of one shape (..., k).
    start : Tensor, optional
        Codes in the format ``c``, of shape (...): initial values of the sums; default: +0.
    order : str
        Order of the summation, as for `DotSpec`.
    random : Tensor, optional
        Random words of shape (...), or (..., k) if the order is sequential.
    a, b, c, o, rounding, saturate, flags
        As for all operations, see `halfulp.golden`.
    """
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise TypeError(f"x and y must be tensors of codes, not {type(x).__name__} and {type(y).__name__}")
    check_devices(x=x, y=y)
    if x.shape != y.shape or x.dim() == 0:
        raise ValueError(f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; both must have one shape (..., k)")
    spec = DotSpec.of(k=x.shape[-1], a=a, b=b, o=o, c=c, order=order, rounding=rounding, saturate=saturate, flags=flags)
    if (start is None) != (spec.c is None):
        raise ValueError("start and its format c need each other; give both or neither")
    codes = {"x": x, "y": y} if start is None else {"x": x, "y": y, "start": start}
    (first, second, *addends), random = operands(spec, random, vectors=True, **codes)
    words_shape = x.shape if spec.order == SEQUENTIAL else x.shape[:-1]
    for name, given, shape in (("start", start, x.shape[:-1]), ("random", random, words_shape)):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} has shape {tuple(given.shape)}; with these x and y it must have {tuple(shape)}")
    products, base = multiply(first, second), addends[0] if addends else None
    if spec.order == SEQUENTIAL:
        return _sequential(spec, products, base, random)
    total = _exact(spec, products, base) if spec.alignment is None else _aligned(spec, first, second, addends)
    return rounded(spec, replace(total, invalid=invalid_sum(total, products, base)), random)


def invalid_sum(total: Raw, products: Raw, base: Raw | None) -> Tensor | None:
    """Return True where a term is invalid, or infinities of both signs are added and no NaN; None without flags."""
    if products.invalid is None:
        return None
    nan, invalid = products.nan.any(-1), products.invalid.any(-1)
    if base is not None:
        assert base.invalid is not None
        nan, invalid = nan | base.nan, invalid | base.invalid
    # A sum that is NaN without a NaN among its terms has infinities of both signs.
    return invalid | (total.nan & ~nan)


def _exact(spec: DotSpec, products: Raw, base: Raw | None) -> Raw:
    quire = spec.quire
    total = register.total(register.place(products, quire.quantum, quire.width))
    first = torch.zeros_like(products.sign[..., 0]) if base is None else base.sign
    if base is not None:
        total = register.add(total, register.place(base, quire.quantum, quire.width))
    signs = torch.cat([products.sign, first.expand(products.sign.shape[:-1]).unsqueeze(-1)], -1)
    return register.as_raw(total, quire.quantum, register.cancelled_sign(signs, spec.rounding))


def _aligned(spec: DotSpec, first: Raw, second: Raw, addends: list[Raw]) -> Raw:
    """Add products that are truncated on the scale of the largest exponent."""
    assert spec.alignment is not None
    left, right, *rest = map(scaled, (first, second, *addends), spec.operands.values())
    # A start value is a group of one term.
    starts = [start.at(None) for start in rest]
    return register.aligned([scaled_product(left, right), *starts], spec.alignment, spec.aligned_sums.width)


def _sequential(spec: DotSpec, products: Raw, base: Raw | None, random: Tensor | None) -> Any:
    """Add the products one by one and round each sum; the start value has a format of its own."""
    total, raised = base, torch.zeros_like(products.exponent[..., 0])
    if total is None:
        total = unpack_operand(spec, torch.full_like(raised, spec.o.encode(0)), spec.o)
    for index in range(spec.k):
        window = window_of(spec.o, spec.unit_rounding, spec.sums_of(index).magnitude)
        exact = add(align(products.at(index), total, window), spec.rounding)
        codes = rounded(spec, exact, None if random is None else random[..., index])
        if isinstance(codes, Flagged):
            codes, flags = codes
            raised = raised | flags
        total = unpack_operand(spec, codes, spec.o)
    return Flagged(codes, raised) if spec.flags else codes
