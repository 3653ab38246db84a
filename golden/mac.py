"""Multiply-accumulate."""

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, MacSpec, Rounding, parse

from .check import check_call, codes_of, flags_of, random_of
from .codec import round_and_pack, unpack
from .raw import add, align, multiply
from .round import looked_at


def mac(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    acc: Format | str,
    product: Format | str | None = None,
    product_rounding: Rounding | str = EXACT,
    rounding: Rounding | str = RN,
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
    a, b, acc : Format or str
        Formats of operands and accumulator.
    product : Format or str, optional
        Format that the product is rounded to before it is added; None keeps it exact.
    product_rounding, rounding : Rounding or str
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
        If tensors hold no such codes or are on several devices, random words are missing or of no use, or the
        description is none that `MacSpec` accepts.
    """
    check_call(saturate, x=x, y=y, start=start, random=random, random_product=random_product)
    a, b, acc = parse(a), parse(b), parse(acc)
    product = None if product is None else parse(product)
    rounding, product_rounding = Rounding.parse(rounding), Rounding.parse(product_rounding)
    spec = MacSpec(a, b, acc, rounding, product, product_rounding, saturate)
    random = random_of("random", random, rounding)
    random_product = random_of("random_product", random_product, product_rounding)
    term = multiply(unpack(codes_of("x", x, a.width), a), unpack(codes_of("y", y, b.width), b))
    if product is not None:
        term = unpack(round_and_pack(term, product, product_rounding, saturate, random_product), product)
    base = unpack(codes_of("start", start, acc.width), acc)
    total = add(align(term, base, looked_at(acc, rounding, spec.sums)), rounding)
    return round_and_pack(total, acc, rounding, saturate, random)


def mac_sequence(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    load: Tensor,
    clear: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    acc: Format | str,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
    **parameters: object,
) -> Tensor:
    """The accumulator after each of many steps, from reset on.

    Parameters
    ----------
    x, y, start : Tensor
        Codes, as `mac` takes them; one-dimensional, in order of time.
    load, clear : Tensor
        Bools, or codes of one bit. A step adds x * y to ``start`` where ``load``, else to +0 where ``clear``,
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
    words = {"random": random, "random_product": random_product}
    columns |= {name: column for name, column in words.items() if column is not None}
    for name, column in columns.items():
        if not isinstance(column, Tensor) or column.shape != x.shape or column.dim() != 1:
            raise ValueError(f"{name} is a one-dimensional tensor with a code for each step, like all operands")
    check_call(False, **columns)
    steps = len(x)
    load, clear = flags_of("load", load), flags_of("clear", clear)
    # In whole, for not every start value reaches a step.
    start = codes_of("start", start, parse(acc).width)
    begins = load | clear
    begins[:1] = True
    first = torch.nonzero(begins).flatten()
    length = torch.diff(first, append=torch.tensor([steps], device=first.device))
    result = torch.zeros(steps, dtype=torch.int64, device=x.device)
    accumulator = torch.where(load[first], start[first], 0)
    # Sums that do not depend on each other take their n-th steps together. Even of no steps one is taken, of no sums,
    # so that what `mac` refuses is refused.
    for n in range(int(length.max()) if steps else 1):
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
