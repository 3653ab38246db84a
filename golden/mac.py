"""Multiply-accumulate."""

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, MacSpec, Rounding

from .check import codes_of, float_format, random_of
from .raw import add, align, multiply, unpack
from .round import places, round_and_pack


def mac(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    /,
    *,
    a: Format,
    b: Format,
    acc: Format,
    product: Format | None = None,
    product_rounding: Rounding = EXACT,
    rounding: Rounding = RN,
    saturate: bool = False,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
) -> Tensor:
    """One step of an accumulator: start + x * y.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``.
    start : Tensor
        Codes in the format ``acc``. Shapes broadcast; what depends on x and y only is computed on their own shape.
    a, b, acc : Format
        Formats of operands and accumulator.
    product : Format, optional
        Format that the product is rounded to before it is added; None keeps it exact.
    product_rounding, rounding : Rounding
        Rounding of the product and of the sum.
    saturate : bool
        Overflow gives the largest finite number, in product and accumulator; an infinite operand stays infinite.
    random, random_product : Tensor, optional
        Random words of stochastic rounding, of the sum and of the product.

    Returns
    -------
    Tensor of int64
        Codes in ``acc``.

    Raises
    ------
    TypeError, ValueError
        If tensors hold no such codes, random words are missing or of no use, or the description is none that
        `MacSpec` accepts.
    """
    spec = MacSpec(a, b, acc, rounding, product, product_rounding, saturate)
    a, b, acc = float_format("a", a), float_format("b", b), float_format("acc", acc)
    random = random_of("random", random, rounding)
    random_product = random_of("random_product", random_product, spec.product_rounding)
    term = multiply(unpack(codes_of("x", x, a.width), a), unpack(codes_of("y", y, b.width), b))
    if product is not None:
        product = float_format("product", product)
        term = unpack(round_and_pack(term, product, product_rounding, saturate, random_product), product)
    base = unpack(codes_of("start", start, acc.width), acc)
    total = add(align(term, base, acc.precision + places(rounding)), rounding)
    return round_and_pack(total, acc, rounding, saturate, random)


def mac_sequence(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    load: Tensor,
    clear: Tensor,
    /,
    *,
    a: Format,
    b: Format,
    acc: Format,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
    **parameters: object,
) -> Tensor:
    """The accumulator after each of many steps, from reset on.

    Parameters
    ----------
    x, y, start, load, clear : Tensor
        One-dimensional, in order of time. A step adds x * y to ``start`` where ``load``, else to +0 where ``clear``,
        else to the accumulator, which is +0 at first.
    random, random_product : Tensor, optional
        A random word for each step.
    a, b, acc, parameters
        As `mac` takes them.

    Returns
    -------
    Tensor of int64
        Codes in ``acc``, one for each step.

    Raises
    ------
    TypeError, ValueError
        As `mac`, and if the tensors are not one-dimensional and of one length.
    """
    columns = {"x": x, "y": y, "start": start, "load": load, "clear": clear}
    for name, column in columns.items():
        if not isinstance(column, Tensor) or column.shape != x.shape or column.dim() != 1:
            raise ValueError(f"{name} is a one-dimensional tensor with a code for each step, like all operands")
    steps = len(x)
    fresh = (load != 0) | (clear != 0)
    begins = fresh.clone()
    begins[:1] = True
    first = torch.nonzero(begins).flatten()
    length = torch.diff(first, append=torch.tensor([steps], device=first.device))
    result = torch.zeros(steps, dtype=torch.int64, device=x.device)
    accumulator = torch.where(load[first] != 0, start[first].to(torch.int64), 0)
    # Sums that do not depend on each other take their n-th steps together.
    for n in range(int(length.max()) if steps else 0):
        running = length > n
        first, length, accumulator = first[running], length[running], accumulator[running]
        at = first + n
        accumulator = mac(
            x[at],
            y[at],
            accumulator,
            a=a,
            b=b,
            acc=acc,
            random=None if random is None else random[at],
            random_product=None if random_product is None else random_product[at],
            **parameters,  # type: ignore[arg-type]
        )
        result[at] = accumulator
    return result
