"""The host's side of kernels on a card: matrix products through XRT's Python module, and the check of them.

It needs XRT (https://xilinx.github.io/XRT), whose module ``pyxrt`` it imports when it runs.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor

from halfulp import golden
from halfulp.hdl.formats import MacSpec, Tiling

PATIENCE = 60_000
"""Milliseconds that a product may take before the card counts as stuck."""


@dataclass(frozen=True)
class Tile:
    """What a host has to know of the kernels on a card.

    Parameters
    ----------
    kernel : str
        Name of the kernel; its instances are this name with _1, _2 and so on.
    cores : int
        How many there are.
    mac : str
        What a multiply-accumulate does.
    tiling : Tiling
        Of the array in each of them.
    seed : int
        State of the source of the first multiply-accumulate of each, after the card was programmed.
    """

    kernel: str
    cores: int
    mac: str
    tiling: Tiling
    seed: int = 1

    @property
    def spec(self) -> MacSpec:
        """The description of a multiply-accumulate."""
        return MacSpec.parse(self.mac)

    def shares(self, rows: int) -> list[slice]:
        """The rows of each core, in whole tiles but for the last, of those cores that have any."""
        tiles = -(-rows // self.tiling.n)
        share = -(-tiles // self.cores) * self.tiling.n
        return [slice(first, min(first + share, rows)) for first in range(0, rows, share)]


def bytes_of(width: int) -> int:
    """Bytes of an element in memory."""
    return next(size for size in (1, 2, 4, 8) if 8 * size >= width)


def to_memory(codes: Tensor, width: int) -> bytes:
    """Codes as they are in memory: row by row, each in whole bytes, the lowest first."""
    return codes.cpu().numpy().astype(np.uint64).astype(f"<u{bytes_of(width)}").tobytes()


def from_memory(data: bytes, width: int, shape: tuple[int, int]) -> Tensor:
    """Codes that were in memory."""
    return torch.from_numpy(np.frombuffer(data, f"<u{bytes_of(width)}").reshape(shape).astype(np.int64))
