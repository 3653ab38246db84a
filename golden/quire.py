"""Multiply-accumulate that rounds nothing until it is read."""

from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding, parse
from halfulp.hdl.specs import QuireSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .check import check_call, codes_of, flags_of, random_of
from .codec import unpack
from .raw import Raw, multiply
from .sequence import Accumulator, accumulated


def quire(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    subtract: Tensor | int = 0,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str,
    carry: int = CARRY_BITS,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """A quire that holds start + x * y, or start - x * y, when it is read.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``, of shapes that broadcast.
    start : Tensor
        Codes in the format ``o``.
    subtract : Tensor, or int
        1, or true, where the product is subtracted.
    a, b, o : Format or str
        Formats of operands and result.
    carry : int
        Carry guard, in bits. What overflows it is infinite.
    rounding : Rounding or str
    saturate : bool
        Overflow of ``o`` gives its largest finite number; what is infinite stays so.
    random : Tensor, optional
        Random words of stochastic rounding.

    Returns
    -------
    Tensor of int64
        Codes in ``o``.

    Raises
    ------
    TypeError, ValueError
        If tensors hold no such codes or are on several devices, random words are missing or of no use, or
        ``rounding`` is ``exact`` and ``o`` cannot hold every sum.
    """
    check_call(saturate, x=x, y=y, start=start, subtract=subtract, random=random)
    spec = _spec(a, b, o, carry, rounding, saturate)
    random = random_of("random", random, spec.rounding)
    start = codes_of("start", start, spec.o.width)
    if isinstance(subtract, int):
        subtract = torch.tensor(subtract, device=start.device)
    term = _term(spec, x, y, flags_of("subtract", subtract))
    return Accumulator.of(spec, saturate).stepped(start, term, random)


def quire_sequence(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    subtract: Tensor,
    load: Tensor,
    clear: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str,
    carry: int = CARRY_BITS,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """What a quire reads after each of many steps, from reset on.

    Parameters
    ----------
    x, y, start, subtract : Tensor
        As `quire` takes them; one-dimensional, in order of time.
    load, clear : Tensor
        Bools, or codes of one bit. A step adds to ``start`` where ``load``, else to zero where ``clear``, else to what
        the quire holds, which is zero at first.
    random : Tensor, optional
        A random word for each step.
    a, b, o, carry, rounding, saturate
        As `quire` takes them.

    Returns
    -------
    Tensor of int64
        Codes in ``o``, one for each step.

    Raises
    ------
    TypeError, ValueError
        As `quire`, and if the tensors are not one-dimensional and of one length.
    """
    check_call(saturate)
    spec = _spec(a, b, o, carry, rounding, saturate)

    def term(at: Tensor) -> Raw:
        return _term(spec, x[at], y[at], flags_of("subtract", subtract)[at])

    columns = {"x": x, "y": y, "start": start, "subtract": subtract, "random": random}
    return accumulated(columns, load, clear, term, Accumulator.of(spec, saturate))


def _spec(
    a: Format | str, b: Format | str, o: Format | str, carry: int, rounding: Rounding | str, saturate: bool
) -> QuireSpec:
    return QuireSpec(parse(a), parse(b), parse(o), carry, rounding=Rounding.parse(rounding), saturate=saturate)


def _term(spec: QuireSpec, x: Tensor, y: Tensor, minus: Tensor) -> Raw:
    product = multiply(unpack(codes_of("x", x, spec.a.width), spec.a), unpack(codes_of("y", y, spec.b.width), spec.b))
    return replace(product, sign=product.sign ^ minus)
