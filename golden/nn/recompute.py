"""Values of state, such as random keys, in regions that `torch.utils.checkpoint` recomputes in the backward pass.

A region stores the values that its layers used in order, and the modules around it; the recomputation takes the same
ones. torch has no interface to the running region; it is found on the call stack.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import Tensor

from .draw import next_key

_FILE = torch.utils.checkpoint.__file__
_BACKWARD = torch.autograd.graph._engine_run_backward.__code__
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
    backward_pass = torch._C._current_graph_task_id()
    inner, repeated = _regions()
    if repeated is None and backward_pass != -1:
        raise RuntimeError(
            "a backward pass calls a layer with stochastic rounding or delayed scaling outside torch.utils.checkpoint, "
            "so that its random words or factors would differ from those of the forward pass; apply checkpoint to "
            "compiled functions, not the reverse"
        )
    value = make() if repeated is None else _repeated(repeated, owner, backward_pass)
    for region in inner:
        if not hasattr(region, _USED):
            setattr(region, _USED, _Used())
        getattr(region, _USED).given.append((value, owner))
    return value


def repeats() -> bool:
    """Return True inside a region that a backward pass recomputes."""
    return _regions()[1] is not None


def around(make: Callable[[Any], Any]) -> Any:
    """Return what was around the region that is recomputed, or None outside of such regions.

    ``make`` returns, in the first pass, what is now around a region inside the one that is recomputed, if any.
    """
    inner, repeated = _regions()
    found = getattr(repeated, _AROUND, None)
    for region in inner:
        if not hasattr(region, _AROUND):
            setattr(region, _AROUND, make(found))
    return found


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _repeated(region: Any, owner: int, backward_pass: int) -> Any:
    """Return the next stored value of a region that is recomputed."""
    used = getattr(region, _USED, None) or _Used()
    if used.backward_pass != backward_pass:
        used.backward_pass, used.place = backward_pass, -1
    used.place += 1
    if used.place >= len(used.given) or used.given[used.place][1] != owner:
        raise RuntimeError(
            "a recomputation by torch.utils.checkpoint must call the layers of the forward pass in order"
        )
    return used.given[used.place][0]


def _regions() -> tuple[list[Any], Any]:
    """Return the regions in their first pass, innermost first, and the enclosing region that is recomputed, if any."""
    inner: list[Any] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _BACKWARD:
            # A backward pass inside of a region that calls it after its recomputation.
            return inner, None
        if frame.f_code.co_filename == _FILE:
            name, held = frame.f_code.co_name, frame.f_locals
            if name == "unpack_hook":
                return inner, held.get("frame")
            if name == "backward":
                return inner, held.get("ctx")
            # checkpoint_sequential also has functions named forward.
            if name == "forward" and "ctx" in held:
                inner.append(held["ctx"])
            elif name == "checkpoint" and getattr(held.get("gen"), "gi_frame", None):
                inner.append(held["gen"].gi_frame.f_locals["new_frame"])
        frame = frame.f_back
    return inner, None
