"""Keys of the random words of operations, equal in a running program and in its graph."""

import math
import zlib
from collections.abc import Iterable

import torch
from torch import Tensor

from halfulp.golden.nn.draw import mix

REMEMBERED = 1 << 18
"""Largest number of pairs of operation and operands whose uses are counted."""


class Keys:
    """Keys from a seed, the operation, its operands, and the number of earlier uses of the operation on equal operands.

    Neither the place of an operation nor the order of different operations changes its key. Operands are equal if their
    values are: -0 equals +0, and NaN equals NaN. A graph may add a gradient of zeros that autograd leaves out, and the
    sum of -0 and +0 is +0.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._uses: dict[int, int] = {}

    def next(self, operation: str, operands: Iterable[Tensor]) -> int:
        """Return the key of the next use of an operation on real operands; it has 63 bits."""
        checksum = zlib.crc32(operation.encode())
        for x in operands:
            # The sum with +0 has no -0.
            real = (x.detach() if x.dtype == torch.float64 else x.detach().float()) + 0.0
            real.nan_to_num_(math.nan, math.inf, -math.inf)
            checksum = zlib.crc32(real.contiguous().cpu().numpy().data, checksum)
        uses = self._uses.pop(checksum, 0)
        self._uses[checksum] = uses + 1
        if len(self._uses) > REMEMBERED:
            # The first entry is the one whose last use is the oldest.
            del self._uses[next(iter(self._uses))]
        return mix(self.seed, checksum, uses) >> 1
