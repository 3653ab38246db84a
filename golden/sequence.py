"""Accumulators: single steps, and sequences of steps."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Rounding
from halfulp.hdl.specs import AccumulatorSpec
from halfulp.hdl.specs.formula import VALUES
from halfulp.hdl.specs.ranges import window_of

from . import register
from .check import check_devices, codes_of, flags_of, random_of
from .chosen import evaluate, mode_of
from .codec import rounded, unpack, unpack_operand
from .exact import Flagged
from .raw import Raw, add, align
from .register import Register

Contents = Tensor | Register
"""Contents of accumulators: codes of the result format, or exact sums."""

Term = Callable[..., Raw]
"""Function from the description of a unit and its operands to the terms of a step."""


class Accumulator:
    """Arithmetic of an accumulator: exact sums are rounded when they are read, other sums in each step."""

    def __init__(self, spec: AccumulatorSpec) -> None:
        self.spec, self.quire = spec, spec.quire
        self.window = window_of(spec.o, spec.unit_rounding, spec.sums.magnitude)

    def load(self, codes: Tensor) -> Contents:
        """Return the contents of accumulators that hold these codes."""
        if self.quire is None:
            return codes
        return register.place(unpack(codes, self.spec.o), self.quire.quantum, self.quire.width)

    def step(
        self, held: Contents, term: Raw, random: Tensor | None, mode: Tensor | None = None
    ) -> tuple[Contents, Tensor | None]:
        """Add one term, and return the new contents and the exception flags of the step if the unit has any."""
        if isinstance(held, Register):
            assert self.quire is not None
            return register.step(held, term, self.quire), None
        aligned = align(term, unpack_operand(self.spec, held, self.spec.o), self.window)
        found = self._rounded(lambda rounding: add(aligned, rounding), random, mode)
        if not isinstance(found, Flagged):
            return found, None
        return found.o, found.flags if term.raised is None else found.flags | term.raised

    def read(self, held: Contents, random: Tensor | None, mode: Tensor | None = None) -> Tensor:
        """Return the codes of the contents; ``random`` and ``mode`` are those of the last step."""
        if not isinstance(held, Register):
            return held
        assert self.quire is not None
        total = register.as_raw(held, self.quire.quantum)
        codes: Tensor = self._rounded(lambda _: total, random, mode)
        return codes

    def _rounded(self, sum_of: Callable[[Rounding], Raw], random: Tensor | None, mode: Tensor | None) -> Any:
        """Round sums, which depend on the rounding, to codes, with flags as `Flagged`."""
        spec = self.spec

        def of(rounding: Rounding) -> Any:
            return rounded(spec, sum_of(rounding), random if rounding.bits else None, rounding)

        return of(spec.rounding) if mode is None else evaluate(spec.rounding, mode, of)


def step(
    spec: AccumulatorSpec,
    term: Term,
    *,
    start: Tensor,
    random: Tensor | None,
    mode: Tensor | None = None,
    **operands: Any,
) -> Any:
    """Return the codes of accumulators after one step from ``start``; ``term`` computes terms from the operands.

    The result of a unit with exception flags is `Flagged`.
    """
    check_devices(start=start, random=random, mode=mode, **operands)
    word, mode = random_of("random", random, spec.rounding), mode_of(mode, spec.rounding)
    accumulator = Accumulator(spec)
    held = accumulator.load(codes_of("start", start, spec.o.width))
    held, flags = accumulator.step(held, term(spec, **operands), word, mode)
    codes = accumulator.read(held, word, mode)
    return codes if flags is None else Flagged(codes, flags)


def steps(
    spec: AccumulatorSpec,
    term: Term,
    load: Tensor,
    clear: Tensor,
    *,
    start: Tensor,
    random: Tensor | None,
    mode: Tensor | None = None,
    vectors: Sequence[str] = (),
    **operands: Tensor | None,
) -> Any:
    """Return the codes of one accumulator after each of its steps since reset, with exception flags as `Flagged`.

    Independent sums are computed in parallel: the n-th steps of all sums together. With ``spec.interleave`` n, step k
    belongs to the accumulator k mod n of n.

    Parameters
    ----------
    spec : AccumulatorSpec
        Description of the unit.
    term : callable
        Function from ``spec`` and the operands to the terms.
    load, clear : Tensor of bool, or codes of one bit
        A step starts from ``start`` if ``load`` is set, from +0 if only ``clear`` is set, and otherwise from the
        accumulator, which is +0 after reset.
    start, random, mode, **operands : Tensor
        One-dimensional tensors with an entry for each step.
    vectors : sequence of str
        Operands that have a second dimension, of the elements of a step.

    Raises
    ------
    TypeError, ValueError
        If a tensor has another number of dimensions or length, or as for a single step.
    """
    if not isinstance(load, Tensor) or load.dim() != 1:
        raise ValueError("load must be a one-dimensional tensor of codes, one for each step")
    given = {"load": load, "clear": clear, "start": start, "random": random, "mode": mode} | operands
    for name, column in given.items():
        count = 1 + (name in vectors)
        if column is not None and not (
            isinstance(column, Tensor) and column.dim() == count and len(column) == len(load)
        ):
            kind = "two-dimensional tensor of {} rows" if count == 2 else "one-dimensional tensor of {} codes"
            raise ValueError(f"{name} must be a {kind.format(len(load))}, one for each step")
    check_devices(**given)
    load, clear = flags_of("load", load), flags_of("clear", clear)
    # All start values are checked here, because steps use only some of them.
    start = codes_of("start", start, spec.o.width)
    random, mode = random_of("random", random, spec.rounding), mode_of(mode, spec.rounding)
    # The steps of each accumulator are consecutive in this order.
    order = torch.argsort(torch.arange(len(load), device=load.device) % spec.interleave, stable=True)
    begins = (load | clear)[order] | (order < spec.interleave)
    first = torch.nonzero(begins).flatten()
    length = torch.diff(first, append=torch.tensor([len(load)], device=first.device))
    result, raised = torch.zeros(2, len(load), dtype=torch.int64, device=load.device)
    accumulator = Accumulator(spec)
    held = accumulator.load(torch.where(load[order[first]], start[order[first]], 0))
    # An empty sequence computes one empty step, which checks the operands.
    for n in range(int(length.max()) if len(load) else 1):
        running = length > n
        first, length, held = first[running], length[running], held[running]
        at = order[first + n]
        word, chosen = (None if column is None else column[at] for column in (random, mode))
        terms = term(spec, **{name: None if column is None else column[at] for name, column in operands.items()})
        held, flags = accumulator.step(held, terms, word, chosen)
        result[at] = accumulator.read(held, word, chosen)
        if flags is not None:
            raised[at] = flags
    return Flagged(result, raised) if spec.flags else result


def sequence_of(function: Callable[..., Any], cls: type[AccumulatorSpec], term: Term) -> Callable[..., Any]:
    """Return the function that computes the sequence of steps of an accumulator, each of which ``function`` computes.

    Its operands are those of ``function``, then ``load`` and ``clear``; see `steps`. Vectors have a row for each step.
    """
    taken = inspect.signature(function).parameters
    names = [name for name, one in taken.items() if one.kind is inspect.Parameter.POSITIONAL_ONLY]

    def sequence(*operands: Tensor, **parameters: Any) -> Any:
        if len(operands) != len(names) + 2:
            raise TypeError(
                f"{sequence.__name__} takes {', '.join(names)}, load and clear, not {len(operands)} operands"
            )
        words = {name: parameters.pop(name, None) for name in ("mode", "random", "random_product") if name in taken}
        if "chosen" in inspect.signature(term).parameters:
            words["chosen"] = words.get("mode")
        spec = cls.of(**parameters)
        arguments = zip(names, spec.arguments(*VALUES), strict=True)
        vectors = [name for name, argument in arguments if argument in spec.vectors]
        *columns, load, clear = operands
        return steps(spec, term, load, clear, vectors=vectors, **dict(zip(names, columns, strict=True)), **words)

    sequence.__name__ = sequence.__qualname__ = f"{function.__name__}_sequence"
    sequence.__doc__ = f"Return the accumulator after each step of a sequence; see `steps`, and `{function.__name__}`."
    return sequence
