"""Matrix products with torch operations: the reference of the kernels, and the engine of what they refuse."""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from halfulp.golden import blockgemm, kernels, sparse
from halfulp.golden.codec import unpack
from halfulp.golden.kernels import Job
from halfulp.golden.kernels.engines import CODES_ONLY
from halfulp.golden.mac import term_of
from halfulp.golden.philox import philox_words
from halfulp.golden.random import jump, of_stream
from halfulp.golden.raw import Raw
from halfulp.golden.sequence import Accumulation
from halfulp.hdl.formats.source import Stream
from halfulp.hdl.specs import BlockMacSpec, MacSpec, RunningSumSpec

BLOCK = 32
"""Number of steps whose random words are computed at once, which limits their memory."""


class InTorch:
    """All products, on every device."""

    name = "torch"

    def refuses(self, job: Job) -> str | None:
        """See `Engine`."""
        return CODES_ONLY if job.is_real else None

    def run(self, job: Job) -> Tensor:
        """See `Engine`."""
        spec, start, shape = job.spec, job.start, job.shape
        if isinstance(spec, MacSpec):
            operands = kernels.gathered(job.a), kernels.gathered(job.b)
            return computed(spec, *operands, start, shape, job.words)
        steps = (blockgemm if isinstance(spec, BlockMacSpec) else sparse).Steps(spec, job.a, job.b)
        device = kernels.gathered(job.elements).device
        return _accumulated(spec, lambda step, _: steps.term(step), job.steps, start, shape, job.words, device)


def computed(
    spec: MacSpec, a: Tensor, b: Tensor, start: Tensor | None, shape: tuple[int, ...], words: kernels.Words
) -> Tensor:
    """Compute a product in steps of one product."""
    # Step i takes column i of a and row i of b.
    x, y = unpack(a.unsqueeze(-2), spec.a), unpack(b.mT.unsqueeze(-3), spec.b)

    def term(step: int, word: Tensor | None) -> Raw:
        return term_of(spec, x.at(step), y.at(step), word)

    return _accumulated(spec, term, a.shape[-1], start, shape, words, a.device)


def _accumulated(
    spec: RunningSumSpec,
    term: Callable[[int, Tensor | None], Raw],
    k: int,
    start: Tensor | None,
    shape: tuple[int, ...],
    words: kernels.Words,
    device: torch.device,
) -> Tensor:
    """Add the terms of k steps, functions of the step and of a random word of the product."""
    begin = torch.zeros(shape, dtype=torch.int64, device=device)
    if start is not None:
        begin = begin + start
    bits = [spec.words.get(name, 0) for name in ("random", "random_product")]
    columns = [_steps(spec, words, index, (*shape, k), bits[index], device) for index in range(2)]
    accumulator = Accumulation(spec)
    held, word = accumulator.load(begin), None
    for step, (word, word_product) in enumerate(zip(*columns, strict=True)):
        held, _ = accumulator.step(held, term(step, word_product), word)
    return accumulator.read(held, word) if k else begin


def _steps(
    spec: RunningSumSpec, words: kernels.Words, index: int, shape: tuple[int, ...], bits: int, device: torch.device
) -> Iterator[Tensor | None]:
    """Yield the random words of each step, for the sum or for the product; computed in blocks if not given."""
    given, states, k = words.given[index], words.states[index], shape[-1]
    if given is not None:
        yield from given.unbind(-1)
        return
    if states is None and (words.key is None or not bits):
        yield from itertools.repeat(None, k)
        return
    elements = torch.arange(torch.Size(shape[:-1]).numel(), device=device).reshape(shape[:-1])
    for first in range(0, k, BLOCK):
        steps = min(BLOCK, k - first)
        if states is not None and spec.random is not None:
            block = of_stream(Stream(spec.random, 1), steps, bits, states)
            states = jump(spec.random, states, steps)
        else:
            assert words.key is not None
            block = philox_words(words.key, elements, steps, bits, first=words.first_step + first, stream=index)
        yield from block.unbind(-1)
