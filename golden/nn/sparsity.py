"""N:M sparsity: N of each M consecutive elements along the sums of a product stay, the others become zero."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.check import check_int

MAGNITUDE = "magnitude"
"""Name of the default score, the magnitude."""

_SCORES: dict[str, Callable[[Tensor], Tensor]] = {MAGNITUDE: torch.abs}

_TEXT = re.compile(r"([0-9]+):([0-9]+)(?:\.([A-Za-z_]\w*))?")


def register_score(name: str, score: Callable[[Tensor], Tensor]) -> None:
    """Register a score for policies, such as ``weights=2:4.name``.

    Parameters
    ----------
    name : str
        Python identifier; a second registration replaces the first.
    score : callable
        Function of the tensor before rounding; it returns a tensor of real numbers of the same shape, and elements with
        high scores stay.

    Raises
    ------
    TypeError, ValueError
        If ``score`` cannot be called, or the name is invalid or that of the default.
    """
    if not callable(score):
        raise TypeError(f"score must be a function of a tensor, not {type(score).__name__}")
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or name == MAGNITUDE:
        raise ValueError(f"invalid name of a score {name!r}: expected an identifier other than {MAGNITUDE}")
    _SCORES[name] = score


@dataclass(frozen=True)
class Sparsity:
    """N:M sparsity of a tensor: of M consecutive elements the N with the highest scores stay.

    Parameters
    ----------
    n, m : int
        Numbers of elements that stay, and of elements in a group; 1 <= n <= m.
    score : str
        ``magnitude``, or a name given to `register_score`.

    Raises
    ------
    TypeError, ValueError
        If a number has the wrong type or is out of range, or the score is unknown.

    Notes
    -----
    Of equal scores the first stays; NaN is the highest score. The last group is padded with zeros, which an array adds
    at the end of a sum, and these stay last. ``str()`` gives ``2:4`` or ``2:4.score``, and `Sparsity.parse` reads it.
    """

    n: int
    m: int
    score: str = MAGNITUDE

    def __post_init__(self) -> None:
        check_int("M of N:M sparsity", self.m, 1)
        check_int("N of N:M sparsity", self.n, 1, self.m)
        if self.score not in _SCORES:
            raise ValueError(f"unknown score {self.score!r}: expected {', '.join(_SCORES)}; see nn.register_score")

    def __str__(self) -> str:
        return f"{self.n}:{self.m}{'' if self.score == MAGNITUDE else f'.{self.score}'}"

    @classmethod
    def parse(cls, text: str) -> "Sparsity | None":
        """Parse the text of a sparsity; None for other texts."""
        match = _TEXT.fullmatch(text)
        return match and cls(int(match[1]), int(match[2]), match[3] or MAGNITUDE)

    def mask(self, values: Tensor, along: Sequence[int], groups: int = 1) -> Tensor:
        """Return a mask of the elements that stay.

        Parameters
        ----------
        values : Tensor
        along : sequence of int
            Dimensions that are summed; consecutive elements follow each other in the last one.
        groups : int
            Number of parts into which dimension 1, that of channels, is divided first.

        Raises
        ------
        TypeError, ValueError
            If the score returns no real numbers, or another shape.
        """
        scores: Any = _SCORES[self.score](values.detach())
        if not isinstance(scores, Tensor) or scores.is_complex():
            raise TypeError(f"score {self.score} must return a tensor of real numbers, not {type(scores).__name__}")
        if scores.shape != values.shape:
            raise ValueError(
                f"score {self.score} returns a tensor of shape {tuple(scores.shape)} for one of {tuple(values.shape)}"
            )
        if not scores.numel():
            return torch.ones_like(scores, dtype=torch.bool)
        runs, restore = runs_of(scores.to(torch.float64), along, groups, self.m, -math.inf)
        order = runs.sort(stable=True, descending=True).indices
        return restore(torch.zeros_like(order, dtype=torch.bool).scatter_(-1, order[..., : self.n], True))


def runs_of(
    values: Tensor, along: Sequence[int], groups: int, length: int, fill: float
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return runs of consecutive elements of a tensor, of shape (..., count, length), and the inverse function.

    Parameters are those of `Sparsity.mask`; the last run is filled up.
    """
    shape = values.shape
    if groups > 1:
        # Channels follow their group, so that all later dimensions are one further.
        values = values.unflatten(1, (groups, values.shape[1] // groups))
        along = [dim + (dim > 0) for dim in along]
    last = list(range(-len(along), 0))
    rows = values.movedim(list(along), last)
    total = math.prod(rows.shape[-len(along) :])
    count = -(-total // length)
    flat = F.pad(rows.reshape(-1, total), (0, count * length - total), value=fill)

    def restore(runs: Tensor) -> Tensor:
        return runs.flatten(-2)[:, :total].reshape(rows.shape).movedim(last, list(along)).reshape(shape)

    return flat.unflatten(-1, (count, length)), restore
