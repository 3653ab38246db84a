"""Random keys in regions that `torch.utils.checkpoint` recomputes in the backward pass.

A region stores the keys of its layers in order, and the recomputation takes the same keys. torch has no interface to
the running region; it is found on the call stack.
"""

import sys
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import Tensor

from .draw import next_key

_FILE = torch.utils.checkpoint.__file__
_KEYS = "halfulp_keys"
"""Attribute of a region that holds its `_Keys`."""


class _Keys:
    """Keys of a region, each with the seed of its layer."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []
        self.backward_pass = self.place = -1


def key_of_use(state: Tensor, evaluation: str) -> int:
    """Return the next key of a state; in a recomputation, the key of the first pass.

    Raises
    ------
    RuntimeError
        If a backward pass calls a layer outside `torch.utils.checkpoint`, or one that the first pass did not call.
    """
    backward_pass = torch._C._current_graph_task_id()
    inner, repeated = _regions()
    if repeated is None and backward_pass != -1:
        raise RuntimeError(
            "a backward pass calls a layer with stochastic rounding outside torch.utils.checkpoint, so that its random "
            "words would differ from those of the forward pass; apply checkpoint to compiled functions, not the reverse"
        )
    key = next_key(state, evaluation, _rank()) if repeated is None else _repeated(repeated, state, backward_pass)
    for region in inner:
        if not hasattr(region, _KEYS):
            setattr(region, _KEYS, _Keys())
        getattr(region, _KEYS).given.append((key, int(state[0])))
    return key


def repeats() -> bool:
    """Return True inside a region that a backward pass recomputes."""
    return _regions()[1] is not None


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _repeated(region: Any, state: Tensor, backward_pass: int) -> int:
    """Return the next stored key of a region that is recomputed."""
    keys = getattr(region, _KEYS, None) or _Keys()
    if keys.backward_pass != backward_pass:
        keys.backward_pass, keys.place = backward_pass, -1
    keys.place += 1
    if keys.place >= len(keys.given) or keys.given[keys.place][1] != int(state[0]):
        raise RuntimeError(
            "a recomputation by torch.utils.checkpoint must call the layers of the forward pass in order"
        )
    return keys.given[keys.place][0]


def _regions() -> tuple[list[Any], Any]:
    """Return the regions in their first pass, innermost first, and the enclosing region that is recomputed, if any."""
    inner: list[Any] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
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
