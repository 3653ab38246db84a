"""Sums in time: what an accumulator holds after each of many steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.specs import AccumulatorSpec, Quire

from . import register
from .check import check_call, codes_of, flags_of, random_of
from .codec import round_and_pack, unpack
from .raw import Raw, add, align
from .register import Register
from .round import looked_at

Held = Tensor | Register
"""What accumulators hold: codes of the result format, or exact sums."""


@dataclass(frozen=True)
class Accumulator:
    """How the accumulators of a description add and are read.

    Attributes
    ----------
    quire : Quire, optional
        What holds the sums, if they are exact. They are then rounded when they are read, else in every step.
    keep : int
        Bits of a sum that its rounding looks at one by one.
    o, rounding, saturate
        Of the result.
    """

    quire: Quire | None
    keep: int
    o: Format
    rounding: Rounding
    saturate: bool

    @classmethod
    def of(cls, spec: AccumulatorSpec, saturate: bool) -> "Accumulator":
        """From a description."""
        return cls(spec.quire, looked_at(spec.o, spec.rounding, spec.sums), spec.o, spec.rounding, saturate)

    def holding(self, codes: Tensor) -> Held:
        """Accumulators that begin with these codes."""
        if self.quire is None:
            return codes
        return register.place(unpack(codes, self.o), self.quire.quantum, self.quire.width)

    def step(self, held: Held, term: Raw, random: Tensor | None) -> Held:
        """What they hold after one more term."""
        if isinstance(held, Register):
            assert self.quire is not None
            return register.step(held, term, self.quire)
        total = add(align(term, unpack(held, self.o), self.keep), self.rounding)
        return round_and_pack(total, self.o, self.rounding, self.saturate, random)

    def read(self, held: Held, random: Tensor | None) -> Tensor:
        """Codes of what they hold, the random words being those of the last step."""
        if not isinstance(held, Register):
            return held
        assert self.quire is not None
        return round_and_pack(register.as_raw(held, self.quire.quantum), self.o, self.rounding, self.saturate, random)

    def stepped(self, start: Tensor, term: Raw, random: Tensor | None) -> Tensor:
        """Codes of start + term."""
        return self.read(self.step(self.holding(start), term, random), random)


def accumulated(
    columns: dict[str, Any],
    load: Tensor,
    clear: Tensor,
    term: Callable[[Tensor], Raw],
    accumulator: Accumulator,
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
    accumulator : Accumulator

    Sums that do not depend on each other take their n-th steps together.
    """
    given = {name: column for name, column in columns.items() if column is not None} | {"load": load, "clear": clear}
    shape = getattr(next(iter(given.values())), "shape", None)
    for name, column in given.items():
        if not isinstance(column, Tensor) or column.shape != shape or column.dim() != 1:
            raise ValueError(f"{name} is a one-dimensional tensor with a code for each step, like all operands")
    check_call(accumulator.saturate, **given)
    load, clear = flags_of("load", load), flags_of("clear", clear)
    # In whole, for not every start value reaches a step.
    start = codes_of("start", columns["start"], accumulator.o.width)
    random = random_of("random", columns["random"], accumulator.rounding)
    begins = load | clear
    begins[:1] = True
    first = torch.nonzero(begins).flatten()
    length = torch.diff(first, append=torch.tensor([len(load)], device=first.device))
    result = torch.zeros(len(load), dtype=torch.int64, device=load.device)
    held = accumulator.holding(torch.where(load[first], start[first], 0))
    # Even of no steps one is taken, of no sums, so that what a step refuses is refused.
    for n in range(int(length.max()) if len(load) else 1):
        running = length > n
        first, length, held = first[running], length[running], held[running]
        at = first + n
        word = None if random is None else random[at]
        held = accumulator.step(held, term(at), word)
        result[at] = accumulator.read(held, word)
    return result
