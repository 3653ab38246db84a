"""Matrix products in the arithmetic of a multiply-accumulate."""

import functools
import itertools
import math
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.formats.source import Source, Stream
from halfulp.hdl.specs import BlockMacSpec, MacSpec, RunningSumSpec, SparseMacSpec, Tiling, UnitSpec

from . import blockgemm, kernels, sparse
from .check import check_devices, check_int, codes_of, random_of
from .entries import Operand, elements_of, matrices_of, rows_of
from .kernels import Job
from .parts import by_parts
from .products import compute
from .quantize import BlockTensor
from .random import Seeds, jump, of_stream, seeds, states_of
from .uncompiled import uncompiled
from .values import encode

OTHER_OPERANDS: dict[type, str] = {
    BlockTensor: "a product of blocks is mxfp4*mxfp4+fp32",
    sparse.SparseTensor: "a product with structured sparsity is sparsemac e4m3fn*e4m3fn+fp32",
}
"""Types of operands that products of numbers do not take, with the end of the error."""

WORDS = 1 << 22
"""Largest number of random words in memory for a tiled product; a single tile may need more."""


@uncompiled
def gemm(  # noqa: PLR0913 - options of a public function, by name
    a: Operand,
    b: Operand,
    mac: MacSpec | BlockMacSpec | SparseMacSpec | str,
    *,
    start: Tensor | None = None,
    seed: Seeds | None = None,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
    source: str | None = None,
    first_step: int = 0,
    tiling: Tiling | None = None,
    operand_rounding: Rounding | str = RN,
    operand_saturate: bool = False,
) -> Tensor:
    """Multiply matrices on an array of multiply-accumulates: one for each element of the result, or tile by tile.

    Parameters
    ----------
    a, b : Tensor
        Codes in the operand formats of ``mac``, of shapes (..., n, k) and (..., k, m) whose batches broadcast; or real
        numbers, which are encoded first. For blocks: `BlockTensor` along k, as `quantize_blocks` returns it, of ``a``
        with ``dim=-1`` and of ``b`` with ``dim=-2``; or real numbers, which are quantized without a tensor scale. With
        structured sparsity ``b`` is a `SparseTensor` along k, as `compress` returns it with ``dim=-2``.
    mac : MacSpec, BlockMacSpec, SparseMacSpec or str
        Description of a step, such as ``e5m2*e5m2+e6m5.sr10@lfsr16``, ``mxfp8_e4m3*mxfp8_e4m3+fp32.rn`` or
        ``sparsemac e4m3fn*e4m3fn+fp32.rn sparsity=2:4``.
    start : Tensor, optional
        Initial sums as codes in the result format, of a shape that broadcasts to (..., n, m); default: +0.
    seed : int, sequence of int, or Tensor, optional
        For a ``mac`` with a source: state of the first element's source (default: the one in the text), or states of
        all elements, of shape (..., n, m). With ``source``: key of the random words; default: 0.
    random, random_product : Tensor, optional
        For a ``mac`` without a source: random words for the sum and for the product, of shapes that broadcast to
        (..., n, m, k).
    source : str, optional
        ``philox``: counter-based random words, for a ``mac`` without a source.
    first_step : int
        First step of the counter; with ``tiling``: number of words already taken from each source.
    tiling : Tiling, optional
        For a ``mac`` with a source: tiles of the array that computes the result (`halfulp.units.systolic`). Elements
        share its multiply-accumulates and their sources; ``seed`` is the state of the first source.
    operand_rounding : Rounding or str
        Rounding of real numbers to the operand formats; not stochastic.
    operand_saturate : bool
        Real numbers that overflow become the largest finite number.

    Returns
    -------
    Tensor of int64
        Codes in the result format, of shape (..., n, m).

    Raises
    ------
    TypeError, ValueError
        If ``mac`` is no valid description, a tensor holds values that are no codes, has a wrong shape or is on another
        device, a seed is no state of the source, or random words or seeds are missing or unused.

    Notes
    -----
    A sum adds its products in ascending k; each step is that of `mac`. An exact accumulator is rounded once, after the
    last step, with the random word of that step. A sum of no products is its start value.

    A product of blocks takes a step for each block, or as `BlockMacSpec` has them; a sum whose length is no multiple of
    the block's is padded with zeros. In the shapes of random words and in ``first_step``, k counts these steps. Scales
    of tensors multiply the finished sum, which is then rounded once more, to nearest, ties to even. A compiled kernel
    computes sums in floats and posits, with exact dot products of steps in binary32 or binary64; torch computes others.

    A product with structured sparsity takes a step for each group of weights, or as `SparseMacSpec` has them, padded
    with zeros; k counts these steps, as for blocks. Kernels are those of blocks.

    A product of compound numbers takes a step for each pair of their parts, in the order of `MacSpec.pairs`. In the
    shapes of random words, in ``first_step`` and in a ``tiling``, k counts these steps.

    Each element has a source of its own. The elements, in row-major order and with batches included, have the seeds
    ``source.seeds(count, seed)``. If product and sum are both stochastic, an element with seed s has the two sources of
    ``source.seeds(2, s)``: the first gives the words of the sum, the second those of the product, as in `Mac`.

    With a ``tiling``, multiply-accumulate i of the array has seed i of ``source.seeds(tiling.macs, seed)``. It takes a
    word in each step, also for padding, in the order of `Tiling`. Each product of a batch takes
    ``tiling.steps(n, k, m)`` words of every source; the products of a batch are computed one after the other.

    A sum that is rounded in each step may be split along k. After a first part of k' products, the second part has the
    result of the first as ``start``. Its seeds are ``random.jump(source, seeds, k')``, where ``seeds`` are those of the
    first part: ``random.seeds(source, count, seed)`` in the shape of the result. With counter-based words its
    ``first_step`` is larger by k' instead.

    Counter-based words are those of `philox.philox_words` for the indices of the elements in row-major order. They do
    not depend on the number of threads, and lack the correlations of short LFSRs.

    On the CPU a compiled kernel computes the result (`halfulp.golden.kernels`): in ``float`` or integer vector lanes
    if these are proved exact, else in 128-bit integers. On a GPU a Triton kernel computes descriptions that need up to
    64 bits. Torch operations compute all others, also without a compiler. They need memory for operands, results and
    given random words only.
    """
    rounding = Rounding.parse(operand_rounding)
    check_int("first_step", first_step, 0, (1 << 32) - 1)
    if isinstance(by_steps := UnitSpec.parse(cast("UnitSpec | str", mac)), BlockMacSpec | SparseMacSpec):
        by_steps.check_one_sum()
        if random_product is not None:
            raise ValueError(f"random_product has no effect on {by_steps}, which rounds no product; omit it")
        x, y, shape = _operands(by_steps, a, b, rounding, operand_saturate)
        codes = elements_of(x)
        check_devices(a=codes, b=elements_of(y), start=start, seed=seed, random=random)
        begin = None if start is None else _broadcast("start", codes_of("start", start, by_steps.o.width), shape)
        if tiling is not None:
            state = _check_tiling(by_steps, tiling, seed, source, random)
            return _tiled(x, y, by_steps, begin, tiling, state, first_step, shape)
        count = by_steps.steps(codes.shape[-1])
        words = _words(by_steps, shape, count, seed, random, None, source, first_step, codes.device)
        return compute(Job(by_steps, x, y, begin, shape, words))
    spec = MacSpec.parse(by_steps)
    spec.check_one_sum()
    for name, given in (("a", a), ("b", b)):
        if not isinstance(given, Tensor) and (other := OTHER_OPERANDS.get(type(given))):
            raise TypeError(f"{name} is a {type(given).__name__}, but {spec} takes codes; {other}")
    first, second = _encoded([a, b], [spec.a, spec.b], rounding, operand_saturate)
    check_devices(a=first, b=second, start=start, seed=seed, random=random, random_product=random_product)
    first, second = codes_of("a", first, spec.a.width), codes_of("b", second, spec.b.width)
    shape = _shape(first, second)
    spec, first, second = by_parts(spec, first, second)
    k = first.shape[-1]
    begin = None if start is None else _broadcast("start", codes_of("start", start, spec.o.width), shape)
    if tiling is not None:
        state = _check_tiling(spec, tiling, seed, source, random, random_product)
        return _tiled(first, second, spec, begin, tiling, state, first_step, shape)
    words = _words(spec, shape, k, seed, random, random_product, source, first_step, first.device)
    return compute(Job(spec, first, second, begin, shape, words))


def _words(  # noqa: PLR0913 - options of `gemm`
    spec: RunningSumSpec,
    shape: tuple[int, ...],
    k: int,
    seed: Seeds | None,
    random: Tensor | None,
    random_product: Tensor | None,
    source: str | None,
    first_step: int,
    device: torch.device,
) -> kernels.Words:
    """Check the parameters of random words, and return the words of k steps."""
    if source is None and first_step:
        raise ValueError("first_step has no effect without source='philox' or a tiling")
    if source is not None:
        _check_counter(spec, source, random, random_product)
        key = check_int(f"seed of {kernels.PHILOX}", 0 if seed is None else seed, 0, (1 << 64) - 1)
        return kernels.Words(key=key, first_step=first_step)
    if spec.random is None:
        if seed is not None:
            raise ValueError(f"seed has no effect, because {spec} has no source of random words, such as @lfsr16")
        given = (
            _given("random", random, spec.rounding, (*shape, k)),
            _given_product(spec, random_product, (*shape, k)) if isinstance(spec, MacSpec) else None,
        )
        return kernels.Words(given=given)
    for name, column in (("random", random), ("random_product", random_product)):
        if column is not None:
            raise ValueError(f"{name} has no effect, because {spec} has a source of random words")
    states = _states(spec.random, spec.seed if seed is None else seed, shape, device)
    return kernels.Words(states=split_states(spec, spec.random, states))


def _operands(
    spec: BlockMacSpec | SparseMacSpec, a: Any, b: Any, rounding: Rounding, saturate: bool
) -> tuple[Operand, Operand, tuple[int, ...]]:
    """Return the checked operands of a product in steps of several products, and its shape."""
    if isinstance(spec, BlockMacSpec):
        x, y = (
            blockgemm.operand(name, one, block, dim, rounding, saturate)
            for name, one, block, dim in (("a", a, spec.a, -1), ("b", b, spec.b, -2))
        )
        return x, y, _shape(x.elements, y.elements)
    (a,) = _encoded([a], [spec.a], rounding, saturate)
    a = codes_of("a", a, spec.a.width)
    b = sparse.check_weights(b, spec, a.shape[-1] if a.dim() else 0)
    return a, b, _shape(a, b.values, stored=True)


def _encoded(operands: list[Any], formats: list[Format], rounding: Rounding, saturate: bool) -> list[Any]:
    """Encode operands that are real numbers; ValueError if a rounding or saturation has no effect."""
    if all(isinstance(given, Tensor) and given.dtype.is_floating_point for given in operands):
        if rounding.bits:
            raise ValueError(f"operand_rounding must not be stochastic, as {rounding} is; round operands with encode()")
        return [encode(x, fmt, rounding, saturate=saturate) for x, fmt in zip(operands, formats, strict=True)]
    if rounding != RN or saturate:
        name = "operand_saturate" if rounding == RN else "operand_rounding"
        raise ValueError(f"{name} has no effect on codes; give real numbers as a and b")
    return operands


def _tiled(  # noqa: PLR0913 - options of `gemm`
    a: Operand,
    b: Operand,
    spec: MacSpec | BlockMacSpec | SparseMacSpec,
    start: Tensor | None,
    tiling: Tiling,
    seed: int,
    first_step: int,
    shape: tuple[int, ...],
) -> Tensor:
    """Compute the product tile by tile, with the random words of an array's sources."""
    device, taken = elements_of(a).device, first_step
    *batch, n, m = shape
    k = spec.steps(elements_of(a).shape[-1])
    given = replace(spec, random=None, seed=1)
    result = torch.zeros(math.prod(batch), n, m, dtype=torch.int64, device=device)
    if start is not None:
        result = result + start.reshape(result.shape)
    assert spec.random is not None
    lanes = _seeds(spec.random, tiling.macs, seed, device)
    # Rows of tiles, or tiles of one row, whose random words fit into WORDS.
    tall = tiling.height * max(WORDS // max(tiling.height * m * k, 1), 1)
    wide = tiling.columns * max(WORDS // max(tiling.height * tiling.columns * k, 1), 1)
    for x, y, z in zip(matrices_of(a, batch), matrices_of(b, batch), result, strict=True):
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
            part[:] = gemm(x_rows, y_columns, given, start=part, random=of_sum, random_product=of_product)
    return result.reshape(shape)


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
    found: list[Tensor | None] = []
    for name, state in zip(("random", "random_product"), states, strict=True):
        if state is None:
            found.append(None)
            continue
        words = of_stream(Stream(spec.random, 1), tiling.steps(rows, k, columns), spec.words[name], state)
        # Before permute: element, lane, row of the element, vector, step of k.
        blocks = words.reshape(tiling.n, tiling.m, -1)[:, :, places.to(state.device)].permute(0, 2, 3, 1, 4)
        found.append(blocks.reshape(tiling.height, count * tiling.m, k)[:rows, :columns])
    return found


def _check_tiling(spec: RunningSumSpec, tiling: object, seed: Seeds | None, source: object, *given: object) -> int:
    """Return the first seed; TypeError or ValueError if the tiling is invalid, unused, or given with random words."""
    if not isinstance(tiling, Tiling):
        raise TypeError(f"tiling must be a Tiling, not {type(tiling).__name__}")
    if spec.random is None:
        raise ValueError(f"tiling has no effect, because {spec} has no source of random words, such as @lfsr16")
    if source is not None or any(words is not None for words in given):
        raise ValueError(f"a tiling takes its random words from {spec.random}; give no others")
    first: Any = spec.seed if seed is None else seed
    return spec.random.check_seed(first)


def _shape(a: Tensor, b: Tensor, *, stored: bool = False) -> tuple[int, ...]:
    """Return the shape of a matrix product; ValueError if the operands do not match.

    With ``stored``, ``b`` has some of its rows only, which are checked already.
    """
    if min(a.dim(), b.dim()) >= 2 and (stored or a.shape[-1] == b.shape[-2]):
        try:
            return (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        except RuntimeError:
            pass
    raise ValueError(
        f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; a matrix product needs (..., n, k) and (..., k, m)"
    )


def _check_counter(spec: RunningSumSpec, source: str, *given: Tensor | None) -> None:
    """Check that a counter-based source exists and is used; ValueError otherwise."""
    if source != kernels.PHILOX:
        raise ValueError(f"unknown source {source!r}: expected {kernels.PHILOX}; hardware sources are part of mac")
    if not spec.words:
        raise ValueError(f"source {source} has no effect, because no rounding of {spec} is stochastic")
    if spec.random is not None or any(words is not None for words in given):
        raise ValueError(f"source {source} is given together with other random words for {spec}; give one of them")


def _broadcast(name: str, given: Tensor, shape: tuple[int, ...]) -> Tensor:
    try:
        return given.expand(shape)
    except RuntimeError as error:
        raise ValueError(f"{name} has shape {tuple(given.shape)}, which does not broadcast to {shape}") from error


def _given(name: str, words: Tensor | None, rounding: Rounding, shape: tuple[int, ...]) -> Tensor | None:
    """Check random words and broadcast them to all steps."""
    words = random_of(name, words, rounding)
    return None if words is None else _broadcast(name, words, shape)


def _given_product(spec: MacSpec, words: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    return _given("random_product", words, spec.product_rounding, shape)


def _states(source: Source, seed: Seeds, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the states of the sources of all elements before the first step."""
    if isinstance(seed, int):
        count = torch.Size(shape).numel()
        # The cache of _seeds does not distinguish True from 1.
        source.check_seed(seed)
        # At least one seed, so that it is checked even for an empty result.
        return _seeds(source, max(count, 1), seed, device)[:count].reshape(shape)
    states = states_of(source, seed, device)
    if states.shape != shape:
        raise ValueError(f"seed has shape {tuple(states.shape)}; the result has {shape} and needs a seed for each sum")
    return states


@functools.lru_cache(maxsize=4)
def _seeds(source: Source, count: int, seed: int, device: torch.device) -> Tensor:
    """Return the seeds of an array; cached, because computing them takes longer than a small product."""
    return seeds(source, count, seed, device=device)


def split_states(spec: RunningSumSpec, source: Source, states: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the states of the sources of sum and product for all elements; None if one is not stochastic."""
    if len(spec.words) == 1:
        return (states, None) if "random" in spec.words else (None, states)
    columns = dict(zip(spec.words, seeds(source, len(spec.words), states).unbind(-1), strict=True))
    return columns.get("random"), columns.get("random_product")
