"""Histories of the largest magnitudes of operands, for delayed scaling.

A history holds binary64 numbers as their bits in int64, so that conversions of a model to another type do not round it;
the newest is the first, and zeros stand for uses to come. A recomputation by `torch.utils.checkpoint` adds nothing, and
neither does evaluation. In distributed training, each use adds the largest magnitude over all processes.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .recompute import of_use
from .scaling import largest_magnitude

ROLES = ("x", "w", "gradient")
"""Operands that have histories, in the order of their amax in a tensor."""


class Delay(NamedTuple):
    """Histories of one product of a layer, in the order of `ROLES`; None for operands without delayed scaling."""

    histories: tuple[Tensor | None, ...]
    training: bool

    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the delayed amax of all operands, and the history that the backward pass reads instead."""
        of_x, of_w, of_gradient = self.histories
        amaxes = [
            x.new_zeros((), dtype=torch.float64) if history is None else delayed_amax(history, values, training)
            for history, values, training in (
                (of_x, x, self.training),
                (of_w, w, self.training),
                (of_gradient, x, False),
            )
        ]
        return torch.stack(amaxes), of_gradient if self.training else None


def delayed(history: Tensor, values: Tensor, training: bool) -> Tensor:
    """Return the largest number of a history, and add the amax of a tensor to it in training."""
    largest = history.view(torch.float64).amax()
    if training:
        newest = largest_magnitude(values, range(values.dim())).reshape(1).to(history.device)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(newest, dist.ReduceOp.MAX)
        history.copy_(torch.cat([newest.view(torch.int64), history[:-1]]))
    return largest


@torch.library.custom_op("halfulp::delayed_amax", mutates_args=("history",))
def delayed_amax(history: Tensor, values: Tensor, training: bool) -> Tensor:
    """Return the largest number of a history, and in training add the amax of an operand of a forward pass."""
    amax: Tensor = of_use(0, lambda: delayed(history, values, training))
    return amax.clone()


@torch.library.custom_op("halfulp::delayed_amax_of_gradient", mutates_args=("history",))
def delayed_amax_of_gradient(history: Tensor, gradient: Tensor) -> Tensor:
    """Return the largest number of a history, and add the amax of a gradient; backward passes are not recomputed."""
    return delayed(history, gradient, True)


@delayed_amax.register_fake
@delayed_amax_of_gradient.register_fake
def _(history: Tensor, *_: Any) -> Tensor:
    return history.new_empty((), dtype=torch.float64)


def _refused(*_: Any) -> Any:
    raise RuntimeError("vmap does not support delayed scaling, whose histories depend on the order of uses")


delayed_amax.register_vmap(_refused)
delayed_amax_of_gradient.register_vmap(_refused)
