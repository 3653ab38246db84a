"""Keys of random words in regions that `torch.utils.checkpoint` computes again in the backward pass.

A region remembers the keys that its layers took, in their order; a second pass takes the same. torch has no interface
that names a running region, so that it is found on the stack of calls.
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
"""Attribute of a region with its `_Keys`."""


class _Keys:
    """Keys of a region, each with the seed of the state that gave it."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []
        self.backward_pass = self.place = -1


def key_of_use(state: Tensor, evaluation: str) -> int:
    """A key that the state has not given before and which steps it, or in a recomputation that of the first pass.

    Raises
    ------
    RuntimeError
        If a backward pass calls a layer, and not in a region of `torch.utils.checkpoint` with as many calls before.
    """
    backward_pass = torch._C._current_graph_task_id()
    inner, repeated = _regions()
    if repeated is None and backward_pass != -1:
        raise RuntimeError(
            "a backward pass calls a layer that rounds at random outside torch.utils.checkpoint, so that its random "
            "words would not be those of the forward pass; checkpoint compiled functions, do not compile checkpoints"
        )
    key = next_key(state, evaluation, _rank()) if repeated is None else _repeated(repeated, state, backward_pass)
    for region in inner:
        if not hasattr(region, _KEYS):
            setattr(region, _KEYS, _Keys())
        getattr(region, _KEYS).given.append((key, int(state[0])))
    return key


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _repeated(region: Any, state: Tensor, backward_pass: int) -> int:
    """The next key of a region that is computed again, once in a backward pass."""
    keys = getattr(region, _KEYS, None) or _Keys()
    if keys.backward_pass != backward_pass:
        keys.backward_pass, keys.place = backward_pass, -1
    keys.place += 1
    if keys.place >= len(keys.given) or keys.given[keys.place][1] != int(state[0]):
        raise RuntimeError("a recomputation by torch.utils.checkpoint calls other layers than the forward pass did")
    return keys.given[keys.place][0]


def _regions() -> tuple[list[Any], Any]:
    """Regions that run for the first time, innermost first, up to the one that is computed again, and this."""
    inner: list[Any] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == _FILE:
            name, held = frame.f_code.co_name, frame.f_locals
            if name == "unpack_hook":
                return inner, held.get("frame")
            if name == "backward":
                return inner, held.get("ctx")
            # checkpoint_sequential has functions of this name too.
            if name == "forward" and "ctx" in held:
                inner.append(held["ctx"])
            elif name == "checkpoint" and getattr(held.get("gen"), "gi_frame", None):
                inner.append(held["gen"].gi_frame.f_locals["new_frame"])
        frame = frame.f_back
    return inner, None
