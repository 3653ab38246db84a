"""Payloads of matrix products on a systolic array."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.golden.entries import entries

from .model import Words, pack, unpack


class Product:
    """Payloads of the streams of a systolic array for one matrix product.

    Parameters
    ----------
    array : Array
    a, b : Tensor, BlockTensor or SparseTensor
        Codes of shapes (n, k) and (k, m), without zero sizes, or blocks or groups of weights along k; see `entries`.
    filling : int
        Code for padding of tiles.

    Attributes
    ----------
    payloads : dict of str to array
        Payloads of the streams ``tile``, ``a`` and ``b``.
    count : int
        Number of transfers of ``c``.
    """

    def __init__(self, array: Any, a: Any, b: Any, filling: int = 0) -> None:
        self.array = array
        spec = array.mac
        x, y = (entries(codes, spec, name).cpu().numpy().astype(np.uint64) for name, codes in (("a", a), ("b", b)))
        self.shape = (n, m) = len(x), y.shape[1]
        k = len(y)
        self.tiles = list(array.tiling.tiles(n, m))
        rows, columns = -n % array.tiling.height, -m % array.tiling.columns
        x = np.pad(x, ((0, rows), (0, 0), (0, 0)), constant_values=filling)
        y = np.pad(y, ((0, 0), (0, columns), (0, 0)), constant_values=filling)
        sent_a, sent_b = [], []
        for tile in self.tiles:
            own_x, own_y = x[tile.row :][: array.tiling.height], y[:, tile.column :][:, : tile.vectors * array.m]
            sent_a.append(own_x.swapaxes(0, 1).reshape(-1, array.a_lanes * x.shape[2]))
            sent_b.append(own_y.reshape(-1, array.m * y.shape[2]))
        widths = {name: field.width for name, field in array.tile.payload.shape()}
        jobs = np.array([[k, tile.vectors][: len(widths)] for tile in self.tiles], dtype=np.uint64)
        self.payloads: dict[str, Words] = {
            "tile": pack(jobs, list(widths.values())),
            "a": pack(np.concatenate(sent_a), [fmt.width for fmt in spec.entries["a"].values()] * array.a_lanes),
            "b": pack(np.concatenate(sent_b), [fmt.width for fmt in spec.entries["b"].values()] * array.m),
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
