"""Accumulators: single steps, and sequences of steps."""

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Rounding
from halfulp.hdl.specs import RunningSumSpec
from halfulp.hdl.specs.formula import VALUES
from halfulp.hdl.specs.ranges import window_of

from . import register
from .check import check_dense, check_devices, check_shapes, codes_of, flags_of, random_of
from .chosen import evaluate, mode_of
from .codec import rounded, unpack, unpack_operand
from .exact import Flagged
from .raw import Raw, add, align
from .register import Register

Contents = Tensor | Register
"""Contents of accumulators: codes of the result format, or exact sums."""

Term = Callable[..., Raw]
"""Function from the description of a unit and its operands to the terms of a step."""


class Accumulation:
    """Arithmetic of an accumulator: exact sums are rounded when they are read, other sums in each step."""

    def __init__(self, spec: RunningSumSpec) -> None:
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
        rounded = self._rounded(lambda rounding: add(aligned, rounding), random, mode)
        if not isinstance(rounded, Flagged):
            return rounded, None
        return rounded.o, rounded.flags if term.raised is None else rounded.flags | term.raised

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
    spec: RunningSumSpec,
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
    sums = Accumulation(spec)
    held = sums.load(codes_of("start", start, spec.o))
    terms = term(spec, **operands)
    check_shapes(operands=terms.sign, start=start, random=random, mode=mode)
    held, flags = sums.step(held, terms, word, mode)
    codes = sums.read(held, word, mode)
    return codes if flags is None else Flagged(codes, flags)


def steps(  # noqa: PLR0913 - operands of a unit, by name
    spec: RunningSumSpec,
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
    spec : RunningSumSpec
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
    start = codes_of("start", start, spec.o)
    random, mode = random_of("random", random, spec.rounding), mode_of(mode, spec.rounding)
    # The steps of each accumulator are consecutive in this order.
    order = torch.argsort(torch.arange(len(load), device=load.device) % spec.interleave, stable=True)
    begins = (load | clear)[order] | (order < spec.interleave)
    first = torch.nonzero(begins).flatten()
    length = torch.diff(first, append=torch.tensor([len(load)], device=first.device))
    result, raised = torch.zeros(2, len(load), dtype=torch.int64, device=load.device)
    sums = Accumulation(spec)
    held = sums.load(torch.where(load[order[first]], start[order[first]], 0))
    # An empty sequence computes one empty step, which checks the operands.
    for n in range(int(length.max()) if len(load) else 1):
        running = length > n
        first, length, held = first[running], length[running], held[running]
        at = order[first + n]
        word, chosen = (None if column is None else column[at] for column in (random, mode))
        terms = term(spec, **{name: None if column is None else column[at] for name, column in operands.items()})
        held, flags = sums.step(held, terms, word, chosen)
        result[at] = sums.read(held, word, chosen)
        if flags is not None:
            raised[at] = flags
    return Flagged(result, raised) if spec.flags else result


def accumulator(cls: type[RunningSumSpec], *positions: str) -> Callable[[Term], tuple[Callable[..., Any], ...]]:
    """Make the operations of an accumulator, one step and a sequence of steps, from the function of the terms of steps.

    Parameters
    ----------
    cls : type of RunningSumSpec
        Class of the descriptions, whose fields are parameters of both operations.
    *positions : str
        Names of the operands: ``start`` holds codes of the result format, the others are those of the function. Ports
        that negate a term are 0 by default in a step. A sequence also takes ``load`` and ``clear``; see `steps`.

    The function takes the description and the operands; by keyword, if it has such parameters, also random words of the
    product as ``random_product``, and the modes as ``chosen``. Its docstring is that of a step.
    """
    accepted, optional, length = len(positions), len(cls.CONTROLS), cls.form.count

    def made_of(term: Term) -> tuple[Callable[..., Any], ...]:
        taken = inspect.signature(term).parameters
        further = [name for name in ("random_product",) if name in taken]
        name = cls.form.unit

        def described(operands: Sequence[Any], parameters: dict[str, Any], *more: str) -> tuple[Any, dict[str, Any]]:
            """Return the description, of fields of a step and more, and the words and modes of a call."""
            if length is not None:
                parameters, more = parameters | {length: _length(positions[0], operands[0])}, (*more, length)
            words = {name: parameters.pop(name, None) for name in ("mode", "random", *further)}
            if "chosen" in taken:
                words["chosen"] = words["mode"]
            known = cls.operation_parameters() | {name: cls.keywords()[name] for name in more}
            return cls.of_keywords(parameters, known), words

        def one_step(*operands: Any, **parameters: Any) -> Any:
            if not accepted - optional <= len(operands) <= accepted:
                raise TypeError(f"{name} takes {', '.join(positions)}, not {len(operands)} operands")
            spec, words = described(operands, parameters)
            given = dict.fromkeys(positions, 0) | dict(zip(positions, operands, strict=False))
            if not spec.vectors:
                check_shapes(**given, **words)
            return step(spec, term, **given, **words)

        def sequence(*operands: Tensor, **parameters: Any) -> Any:
            if len(operands) != accepted + 2:
                raise TypeError(
                    f"{name}_sequence takes {', '.join(positions)}, load and clear, not {len(operands)} operands"
                )
            spec, words = described(operands, parameters, "interleave")
            arguments = zip(positions, spec.arguments(*VALUES), strict=True)
            vectors = [position for position, argument in arguments if argument in spec.vectors]
            *columns, load, clear = operands
            return steps(
                spec, term, load, clear, vectors=vectors, **dict(zip(positions, columns, strict=True)), **words
            )

        text = f"Return the accumulator after each step of a sequence; see `steps`, and `{name}`."
        for function, own, doc in ((one_step, name, term.__doc__), (sequence, f"{name}_sequence", text)):
            function.__name__ = function.__qualname__ = own
            function.__module__, function.__doc__ = term.__module__, doc
        words = ["mode"] * cls.PORT + ["random", *further]
        inputs = [Parameter(name, Parameter.POSITIONAL_ONLY, annotation=Tensor) for name in positions]
        keywords = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Tensor | None) for name in words]
        keywords = [*cls.operation_parameters().values(), *keywords]
        one_step.__signature__ = Signature([*inputs, *keywords])  # type: ignore[attr-defined]
        return one_step, sequence

    return made_of


def _length(name: str, operand: object) -> int:
    """Return the length of the vector operand of a step; TypeError or ValueError if it is none."""
    if not isinstance(operand, Tensor):
        raise TypeError(f"{name} must be a tensor of codes, not {type(operand).__name__}")
    check_dense(name, operand)
    if not operand.dim():
        raise ValueError(f"{name} must have a last dimension, of the elements of a step")
    return operand.shape[-1]
