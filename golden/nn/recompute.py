"""Values of state, such as random keys, in regions that `torch.utils.checkpoint` recomputes in the backward pass.

A region stores the values that its layers used in order, and the modules around it; the recomputation takes the same
ones.
"""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor

from halfulp.golden.torch_internals import backward_pass, checkpoint_regions

from .draw import next_key

_USED = "halfulp_used"
"""Attribute of a region that holds its `_Used`."""

_AROUND = "halfulp_around"
"""Attribute of a region that holds what was around it in the first pass."""


class _Used:
    """Values that a region used, each with a number of its owner."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, int]] = []
        self.backward_pass = self.place = -1


def key_of_use(state: Tensor, evaluation: str) -> int:
    """Return the next key of a state; in a recomputation, the key of the first pass."""
    key: int = of_use(int(state[0]), lambda: next_key(state, evaluation, _rank()))
    return key


def of_use(owner: int, make: Callable[[], Any]) -> Any:
    """Return a new value for one use of a state; in a recomputation, the value of the first pass.

    ``owner`` is a number of the layer, such as its seed.

    Raises
    ------
    RuntimeError
        If a backward pass calls a layer outside `torch.utils.checkpoint`, or one that the first pass did not call.
    """
    running = backward_pass()
    inner, repeated = checkpoint_regions()
    if repeated is None and running != -1:
        raise RuntimeError(
            "a backward pass calls a layer with stochastic rounding or delayed scaling outside torch.utils.checkpoint, "
            "so that its random words or factors would differ from those of the forward pass; apply checkpoint to "
            "compiled functions, not the reverse"
        )
    value = make() if repeated is None else _repeated(repeated, owner, running)
    for region in inner:
        if not hasattr(region, _USED):
            setattr(region, _USED, _Used())
        getattr(region, _USED).given.append((value, owner))
    return value


def repeats() -> bool:
    """Return True inside a region that a backward pass recomputes."""
    return checkpoint_regions()[1] is not None


def around(make: Callable[[Any], Any]) -> Any:
    """Return what was around the region that is recomputed, or None outside of such regions.

    ``make`` returns, in the first pass, what is now around a region inside the one that is recomputed, if any.
    """
    inner, repeated = checkpoint_regions()
    outer = getattr(repeated, _AROUND, None)
    for region in inner:
        if not hasattr(region, _AROUND):
            setattr(region, _AROUND, make(outer))
    return outer


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _repeated(region: Any, owner: int, running: int) -> Any:
    """Return the next stored value of a region that is recomputed."""
    used = getattr(region, _USED, None) or _Used()
    if used.backward_pass != running:
        used.backward_pass, used.place = running, -1
    used.place += 1
    if used.place >= len(used.given) or used.given[used.place][1] != owner:
        raise RuntimeError(
            "a recomputation by torch.utils.checkpoint must call the layers of the forward pass in order"
        )
    return used.given[used.place][0]
