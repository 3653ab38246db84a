"""Dot products of vectors of fixed length."""

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import DotSpec

from . import register
from .check import check_devices, codes_of, random_of
from .codec import rounded, unpack
from .raw import Raw, add, align, multiply
from .round import looked_at


def dot(
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
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """Sums of products along the last dimension.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``, of one shape (..., k).
    start : Tensor, optional
        Codes in the format ``c``, of shape (...): initial values of the sums; default: +0.
    order : str
        Order of the summation, as of `DotSpec`.
    random : Tensor, optional
        Random words of shape (...), or (..., k) where the order is sequential.
    a, b, c, o, rounding, saturate
        As for all operations, see `halfulp.golden`.
    """
    check_devices(x=x, y=y, start=start, random=random)
    for name, codes in (("x", x), ("y", y)):
        if not isinstance(codes, Tensor):
            raise TypeError(f"{name} is a tensor of codes, not {type(codes).__name__}")
        if codes.dim() == 0:
            raise ValueError(f"{name} has no dimension to sum along; a dot product takes codes of shape (..., k)")
    if x.shape != y.shape:
        raise ValueError(f"x is of shape {tuple(x.shape)} and y of {tuple(y.shape)}; a dot product pairs their codes")
    spec = DotSpec.of(k=x.shape[-1], a=a, b=b, o=o, c=c, order=order, rounding=rounding, saturate=saturate)
    if (start is None) != (spec.c is None):
        raise ValueError("start values and their format c go together; give both or neither")
    random = random_of("random", random, spec.rounding)
    words_shape = x.shape if spec.order == "sequential" else x.shape[:-1]
    for name, given, shape in (("start", start, x.shape[:-1]), ("random", random, words_shape)):
        if given is not None and not isinstance(given, Tensor):
            raise TypeError(f"{name} is a tensor of codes, not {type(given).__name__}")
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} is of shape {tuple(given.shape)}, and {tuple(shape)} goes with x and y")
    products = multiply(unpack(codes_of("x", x, spec.a.width), spec.a), unpack(codes_of("y", y, spec.b.width), spec.b))
    base = None
    if start is not None and spec.c is not None:
        base = unpack(codes_of("start", start, spec.c.width), spec.c)
    if spec.order == "sequential":
        return _sequential(spec, products, base, random)
    return rounded(spec, _exact(spec, products, base), random)


def _exact(spec: DotSpec, products: Raw, base: Raw | None) -> Raw:
    quire = spec.quire
    total = register.total(register.place(products, quire.quantum, quire.width))
    first = torch.zeros_like(products.sign[..., 0]) if base is None else base.sign
    if base is not None:
        total = register.add(total, register.place(base, quire.quantum, quire.width))
    signs = torch.cat([products.sign, first.expand(products.sign.shape[:-1]).unsqueeze(-1)], -1)
    return register.as_raw(total, quire.quantum, register.cancelled_sign(signs, spec.rounding))


def _sequential(spec: DotSpec, products: Raw, base: Raw | None, random: Tensor | None) -> Tensor:
    """Round after every product; the first is added to the start value, which has a format of its own."""
    total = base
    if total is None:
        total = unpack(torch.full_like(products.exponent[..., 0], spec.o.encode(0)), spec.o)
    for index in range(spec.k):
        sums = spec.sums_of(index)
        exact = add(align(products.at(index), total, looked_at(spec.o, spec.rounding, sums)), spec.rounding)
        codes = rounded(spec, exact, None if random is None else random[..., index])
        total = unpack(codes, spec.o)
    return codes
