"""Sums in time: what an accumulator holds after each of many steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Format, Quire, Rounding, Span

from . import register
from .check import check_call, codes_of, flags_of, random_of
from .codec import round_and_pack, unpack
from .raw import Raw, add, align
from .register import Register
from .round import looked_at


@dataclass(frozen=True)
class _Codes:
    """Accumulators that hold codes of a format."""

    codes: Tensor

    def take(self, index: Tensor) -> "_Codes":
        return _Codes(self.codes[index])


def stepped(
    term: Raw,
    base: Raw,
    *,
    quire: Quire | None,
    sums: Span,
    o: Format,
    rounding: Rounding,
    saturate: bool,
    random: Tensor | None,
) -> Tensor:
    """Codes of base + term: rounded, or held by a quire and then rounded."""
    if quire is None:
        total = add(align(term, base, looked_at(o, rounding, sums)), rounding)
    else:
        held = register.place(base, quire.quantum, quire.width)
        total = register.as_raw(register.step(held, term, quire), quire.quantum)
    return round_and_pack(total, o, rounding, saturate, random)


def accumulated(
    columns: dict[str, Any],
    load: Tensor,
    clear: Tensor,
    term: Callable[[Tensor], Raw],
    *,
    quire: Quire | None,
    sums: Span,
    o: Format,
    rounding: Rounding,
    saturate: bool,
) -> Tensor:
    """The accumulator after each step, from reset on.

    Parameters
    ----------
    columns : dict
        All tensors that have one entry for each step; ``start`` and ``random`` among them.
    load, clear : Tensor
        Where a sum begins anew, from ``start`` or from +0, ``load`` going first.
    term : callable
        Makes the terms of the steps of given indices.
    quire : Quire, optional
        What holds the sum, if it is exact. It is then rounded when it is read, else in every step.
    sums : Span
        What is rounded.
    o, rounding, saturate
        Of the result.

    Sums that do not depend on each other take their n-th steps together.
    """
    given = {name: column for name, column in columns.items() if column is not None} | {"load": load, "clear": clear}
    shape = getattr(next(iter(given.values())), "shape", None)
    for name, column in given.items():
        if not isinstance(column, Tensor) or column.shape != shape or column.dim() != 1:
            raise ValueError(f"{name} is a one-dimensional tensor with a code for each step, like all operands")
    check_call(saturate, **given)
    load, clear = flags_of("load", load), flags_of("clear", clear)
    # In whole, for not every start value reaches a step.
    start = codes_of("start", columns["start"], o.width)
    random = random_of("random", columns["random"], rounding)
    begins = load | clear
    begins[:1] = True
    first = torch.nonzero(begins).flatten()
    length = torch.diff(first, append=torch.tensor([len(load)], device=first.device))
    result = torch.zeros(len(load), dtype=torch.int64, device=load.device)
    codes = torch.where(load[first], start[first], 0)
    held: _Codes | Register = _Codes(codes)
    if quire is not None:
        held = register.place(unpack(codes, o), quire.quantum, quire.width)
    keep = looked_at(o, rounding, sums)
    # Even of no steps one is taken, of no sums, so that what a step refuses is refused.
    for n in range(int(length.max()) if len(load) else 1):
        running = length > n
        first, length, held = first[running], length[running], held.take(running)
        at = first + n
        if quire is not None:
            assert isinstance(held, Register)
            held = register.step(held, term(at), quire)
            total = register.as_raw(held, quire.quantum)
        else:
            assert isinstance(held, _Codes)
            total = add(align(term(at), unpack(held.codes, o), keep), rounding)
        result[at] = round_and_pack(total, o, rounding, saturate, None if random is None else random[at])
        if quire is None:
            held = _Codes(result[at])
    return result
