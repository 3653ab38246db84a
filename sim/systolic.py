"""Payloads of matrix products on a systolic array."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .model import Words, pack, unpack
from .ports import Codes


class Product:
    """Payloads of the streams of a systolic array for one matrix product.

    Parameters
    ----------
    array : Array
    a, b : Tensor
        Codes of shapes (n, k) and (k, m), without zero sizes.
    filling : int
        Code for padding of tiles.

    Attributes
    ----------
    payloads : dict of str to array
        Payloads of the streams ``tile``, ``a`` and ``b``.
    count : int
        Number of transfers of ``c``.
    """

    def __init__(self, array: Any, a: Tensor, b: Tensor, filling: int = 0) -> None:
        self.array = array
        self.shape = (n, m) = a.shape[0], b.shape[1]
        k = a.shape[1]
        self.tiles = list(array.tiling.tiles(n, m))
        rows, columns = -n % array.tiling.height, -m % array.tiling.columns
        x = np.pad(_codes(a), ((0, rows), (0, 0)), constant_values=filling)
        y = np.pad(_codes(b), ((0, 0), (0, columns)), constant_values=filling)
        sent_a, sent_b = [], []
        for tile in self.tiles:
            sent_a.append(x[tile.row : tile.row + array.tiling.height].T.reshape(-1, array.a_lanes))
            sent_b.append(y[:, tile.column : tile.column + tile.vectors * array.m].reshape(-1, array.m))
        widths = {name: field.width for name, field in array.tile.payload.shape()}
        jobs = np.array([[k, tile.vectors][: len(widths)] for tile in self.tiles], dtype=np.uint64)
        self.payloads: dict[str, Words] = {
            "tile": pack(jobs, list(widths.values())),
            "a": pack(np.concatenate(sent_a), [array.mac.a.width] * array.a_lanes),
            "b": pack(np.concatenate(sent_b), [array.mac.b.width] * array.m),
        }
        self.count = sum(array.tiling.height * tile.vectors for tile in self.tiles)

    def result(self, words: Words) -> Tensor:
        """Assemble the product from the payloads of ``c``."""
        array, (n, m), rows = self.array, self.shape, self.array.tiling.height
        codes = unpack(words, [array.mac.o.width] * array.m)
        result = np.zeros((-(-n // rows) * rows, -(-m // array.m) * array.m), dtype=np.uint64)
        at = 0
        for tile in self.tiles:
            columns, size = tile.vectors * array.m, rows * tile.vectors
            part = codes[at : at + size].reshape(rows, columns)
            result[tile.row : tile.row + rows, tile.column : tile.column + columns] = part
            at += size
        return torch.from_numpy(result[:n, :m].astype(np.int64))


def _codes(codes: Tensor) -> Codes:
    return codes.cpu().numpy().astype(np.uint64)
