"""Matrix products with torch operations: the reference of the kernels, and the engine of what they refuse."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.kernels import MatrixProduct, Words, gathered
from halfulp.golden.kernels.engines import CODES_ONLY
from halfulp.golden.kernels.plan import fits_compound
from halfulp.golden.philox import philox_words
from halfulp.golden.random import jump, of_stream
from halfulp.golden.sequence import Accumulation
from halfulp.hdl.formats.source import Stream
from halfulp.hdl.specs import RunningSumSpec

from .compound import CompoundSums
from .kinds import KINDS

BLOCK = 32
"""Number of steps whose random words are computed at once, which limits their memory."""


class InTorch:
    """All products, on every device."""

    name = "torch"

    def refuses(self, job: MatrixProduct) -> str | None:
        """See `Engine`."""
        return CODES_ONLY if job.is_real else None

    def run(self, job: MatrixProduct) -> Tensor:
        """See `Engine`."""
        term = KINDS[type(job.spec)].terms(job)
        spec, shape, k, device = job.spec, job.shape, job.steps, gathered(job.elements).device
        begin = torch.zeros(shape, dtype=torch.int64, device=device)
        if job.start is not None:
            begin = begin + job.start
        bits = [spec.words.get(name, 0) for name in ("random", "random_product")]
        columns = [_steps(spec, job.words, index, (*shape, k), bits[index], device) for index in range(2)]
        accumulator: Any = CompoundSums(spec) if fits_compound(spec) else Accumulation(spec)
        held, word = accumulator.load(begin), None
        for step, (word, word_product) in enumerate(zip(*columns, strict=True)):
            held, _ = accumulator.step(held, term(step, word_product), word)
        return accumulator.read(held, word) if k else begin


def _steps(
    spec: RunningSumSpec, words: Words, index: int, shape: tuple[int, ...], bits: int, device: torch.device
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
