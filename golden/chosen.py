"""Rounding modes that are chosen at run time: each operation is evaluated once for each mode that occurs."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Rounding
from halfulp.hdl.formats.rounding import MODE_BITS

from .check import check_devices, codes_of, random_of

P = ParamSpec("P")
R = TypeVar("R")


def mode_of(mode: Tensor | None, rounding: Rounding) -> Tensor | None:
    """Return codes of modes as int64; ValueError if the rounding needs them and they are missing, or the reverse."""
    if not rounding.is_port:
        if mode is not None:
            raise ValueError(
                f"mode has no effect, because the rounding {rounding} is one mode; choose the rounding port"
            )
        return None
    if mode is None:
        raise ValueError(f"the rounding {rounding} needs a tensor of codes of modes; pass it as mode")
    return codes_of("mode", mode, MODE_BITS)


def evaluate(rounding: Rounding, mode: Tensor, function: Callable[[Rounding], Any]) -> Any:
    """Return the results of a function of the rounding, each for the mode of its element; tuples element by element."""
    results: Any = None
    for code in torch.unique(mode).tolist() or [0]:
        result = function(rounding.choices[code])
        results = _where(mode == code, result, result if results is None else results)
    return results


def _where(condition: Tensor, x: Any, y: Any) -> Any:
    """Select between tensors, or between the members of named tuples of tensors."""
    if isinstance(x, tuple):
        return type(x)(*(torch.where(condition, p, q) for p, q in zip(x, y, strict=True)))
    return torch.where(condition, x, y)


def by_mode(function: Callable[P, R]) -> Callable[P, R]:
    """Add the rounding ``port`` to an operation with the keywords ``rounding``, ``mode`` and ``random``.

    ``mode`` holds the code of the mode of each operation (`Rounding.choices`). The operation itself has one mode.
    """

    @functools.wraps(function)
    def operation(*operands: Any, **parameters: Any) -> Any:
        rounding = Rounding.parse(parameters.get("rounding", RN), faithful=True)
        mode = mode_of(parameters.pop("mode", None), rounding)
        if mode is None:
            return function(*operands, **parameters)
        check_devices(mode=mode, **{f"operand {place}": operand for place, operand in enumerate(operands)})
        random = random_of("random", parameters.pop("random", None), rounding)

        def of_mode(chosen: Rounding) -> Any:
            words = {"random": random} if chosen.bits else {}
            return function(*operands, **(parameters | {"rounding": chosen} | words))

        return evaluate(rounding, mode, of_mode)

    return operation
