"""Matrix products tile by tile, in the order in which an array takes the words of its sources."""

import itertools
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.entries import elements_of, matrices_of, rows_of
from halfulp.golden.kernels import MatrixProduct, Words
from halfulp.golden.random import jump, of_stream
from halfulp.hdl.formats.source import Stream
from halfulp.hdl.specs import RunningSumSpec, Tiling

from .choice import compute
from .words import Drawing, seeds_of_array, split_states

WORDS = 1 << 22
"""Largest number of random words in memory; a single tile may need more."""


def compute_tiled(job: MatrixProduct, tiling: object, drawing: Drawing) -> Tensor:
    """Compute a product tile by tile, with the random words of an array's sources.

    Raises TypeError or ValueError if ``tiling`` is invalid or unused, or given with other random words.
    """
    spec, start, device, taken = job.spec, job.start, elements_of(job.a).device, drawing.first_step
    *batch, n, m = job.shape
    k = job.steps
    tiling, seed = _checked(spec, tiling, drawing)
    given = replace(spec, random=None, seed=1)
    result = torch.zeros(math.prod(batch), n, m, dtype=torch.int64, device=device)
    if start is not None:
        result = result + start.reshape(result.shape)
    lanes = seeds_of_array(spec.random, tiling.macs, seed, device)
    # Rows of tiles, or tiles of one row, whose random words fit into WORDS.
    tall = tiling.height * max(WORDS // max(tiling.height * m * k, 1), 1)
    wide = tiling.columns * max(WORDS // max(tiling.height * tiling.columns * k, 1), 1)
    for x, y, z in zip(matrices_of(job.a, batch), matrices_of(job.b, batch), result, strict=True):
        for row, column in itertools.product(range(0, n, tall), range(0, m, wide)):
            part = z[row : row + tall, column : column + wide]
            words = []
            for rows in part.split(tiling.height):
                states = split_states(spec, spec.random, jump(spec.random, lanes, taken))
                words.append(_tile_words(spec, states, tiling, (len(rows), k, rows.shape[1])))
                taken += tiling.steps(len(rows), k, rows.shape[1])
            of_sum, of_product = (
                None if blocks[0] is None else torch.cat(blocks) for blocks in zip(*words, strict=True)
            )
            x_rows, y_columns = rows_of(x, slice(row, row + tall)), rows_of(y.mT, slice(column, column + wide)).mT
            part[:] = compute(
                MatrixProduct(given, x_rows, y_columns, part, tuple(part.shape), Words((of_sum, of_product)))
            )
    return result.reshape(job.shape)


def _tile_words(
    spec: RunningSumSpec, states: tuple[Tensor | None, Tensor | None], tiling: Tiling, shape: tuple[int, int, int]
) -> list[Tensor | None]:
    """Return the random words of sum and product for one row of tiles, of ``shape`` (rows, k, columns)."""
    rows, k, columns = shape
    assert spec.random is not None
    count = -(-columns // tiling.m)
    vector = torch.arange(count)
    begin = vector // tiling.depth * tiling.depth
    # The steps of the vectors of a tile are interleaved.
    apart = (count - begin).clamp(max=tiling.depth)
    places = (begin * k + vector - begin).unsqueeze(1) + torch.arange(k) * apart.unsqueeze(1)
    places = places * tiling.rows + torch.arange(tiling.rows).reshape(-1, 1, 1)
    drawn: list[Tensor | None] = []
    for name, state in zip(("random", "random_product"), states, strict=True):
        if state is None:
            drawn.append(None)
            continue
        words = of_stream(Stream(spec.random, 1), tiling.steps(rows, k, columns), spec.words[name], state)
        # Before permute: element, lane, row of the element, vector, step of k.
        blocks = words.reshape(tiling.n, tiling.m, -1)[:, :, places.to(state.device)].permute(0, 2, 3, 1, 4)
        drawn.append(blocks.reshape(tiling.height, count * tiling.m, k)[:rows, :columns])
    return drawn


def _checked(spec: RunningSumSpec, tiling: object, drawing: Drawing) -> tuple[Tiling, int]:
    """Return the tiling and the first seed."""
    if not isinstance(tiling, Tiling):
        raise TypeError(f"tiling must be a Tiling, not {type(tiling).__name__}")
    if spec.random is None:
        raise ValueError(f"tiling has no effect, because {spec} has no source of random words, such as @lfsr16")
    if drawing.source is not None or any(words is not None for words in drawing.given):
        raise ValueError(f"a tiling takes its random words from {spec.random}; give no others")
    first: Any = spec.seed if drawing.seed is None else drawing.seed
    return tiling, spec.random.check_seed(first)
