"""Accumulators: one step, and many steps in time."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.specs import AccumulatorSpec

from . import register
from .check import check_devices, codes_of, flags_of, random_of
from .codec import rounded, unpack
from .raw import Raw, add, align
from .register import Register
from .round import looked_at

Held = Tensor | Register
"""Contents of accumulators: codes of the result format, or exact sums."""

Term = Callable[..., Raw]
"""Terms of steps, from the description of the unit and the tensors that it names."""


class Accumulator:
    """Accumulators of a description. Exact sums are rounded when they are read, all others in every step.

    Parameters
    ----------
    spec : AccumulatorSpec
    """

    def __init__(self, spec: AccumulatorSpec) -> None:
        self.spec, self.quire = spec, spec.quire
        self.window = looked_at(spec.o, spec.rounding, spec.sums)

    def holding(self, codes: Tensor) -> Held:
        """Accumulators that begin with these codes."""
        if self.quire is None:
            return codes
        return register.place(unpack(codes, self.spec.o), self.quire.quantum, self.quire.width)

    def step(self, held: Held, term: Raw, random: Tensor | None) -> Held:
        """Contents after one more term."""
        if isinstance(held, Register):
            assert self.quire is not None
            return register.step(held, term, self.quire)
        total = add(align(term, unpack(held, self.spec.o), self.window), self.spec.rounding)
        return rounded(self.spec, total, random)

    def read(self, held: Held, random: Tensor | None) -> Tensor:
        """Codes of the contents; the random words are those of the last step."""
        if not isinstance(held, Register):
            return held
        assert self.quire is not None
        return rounded(self.spec, register.as_raw(held, self.quire.quantum), random)


def step(spec: AccumulatorSpec, term: Term, *, start: Tensor, random: Tensor | None, **operands: Any) -> Tensor:
    """Codes of accumulators after one step from ``start``.

    Parameters
    ----------
    spec : AccumulatorSpec
    term : callable
        Takes ``spec`` and the operands.
    start, random, **operands : Tensor
    """
    check_devices(start=start, random=random, **operands)
    word = random_of("random", random, spec.rounding)
    accumulator = Accumulator(spec)
    held = accumulator.holding(codes_of("start", start, spec.o.width))
    return accumulator.read(accumulator.step(held, term(spec, **operands), word), word)


def steps(
    spec: AccumulatorSpec,
    term: Term,
    load: Tensor,
    clear: Tensor,
    *,
    start: Tensor,
    random: Tensor | None,
    **operands: Tensor | None,
) -> Tensor:
    """Codes of one accumulator after each of many steps, from reset on.

    Sums that do not depend on each other take their n-th steps together.

    Parameters
    ----------
    spec : AccumulatorSpec
    term : callable
        Takes ``spec`` and the operands of some steps.
    load, clear : Tensor of bool, or codes of one bit
        A step begins a new sum from ``start`` where ``load``, else from +0 where ``clear``; else it adds to the
        accumulator, which is +0 at first.
    start, random, **operands : Tensor
        One-dimensional, with an entry for each step.

    Raises
    ------
    TypeError, ValueError
        If the tensors are not one-dimensional and of one length, or as a single step.
    """
    given = {"load": load, "clear": clear, "start": start, "random": random} | operands
    for name, column in given.items():
        if column is not None and not (isinstance(column, Tensor) and column.dim() == 1 and len(column) == len(load)):
            raise ValueError(f"{name} is a one-dimensional tensor with a code for each step, like all operands")
    check_devices(**given)
    load, clear = flags_of("load", load), flags_of("clear", clear)
    # Checked as a whole, for not every start value reaches a step.
    start = codes_of("start", start, spec.o.width)
    random = random_of("random", random, spec.rounding)
    begins = load | clear
    begins[:1] = True
    first = torch.nonzero(begins).flatten()
    length = torch.diff(first, append=torch.tensor([len(load)], device=first.device))
    result = torch.zeros(len(load), dtype=torch.int64, device=load.device)
    accumulator = Accumulator(spec)
    held = accumulator.holding(torch.where(load[first], start[first], 0))
    # Even a run of no steps computes one step of no sums, which checks the operands.
    for n in range(int(length.max()) if len(load) else 1):
        running = length > n
        first, length, held = first[running], length[running], held[running]
        at = first + n
        word = None if random is None else random[at]
        terms = term(spec, **{name: None if column is None else column[at] for name, column in operands.items()})
        held = accumulator.step(held, terms, word)
        result[at] = accumulator.read(held, word)
    return result
