"""Random words of matrix products: given ones, those of sources, and counter-based ones."""

import functools
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from halfulp.golden.check import broadcast, check_int, random_of
from halfulp.golden.kernels import PHILOX, Words
from halfulp.golden.random import Seeds, seeds, states_of
from halfulp.hdl.formats import Rounding
from halfulp.hdl.formats.source import Source, parse_source
from halfulp.hdl.specs import MacSpec, RunningSumSpec

LFSR16 = 16
"""Largest number of bits that the source ``lfsr16`` gives in a step."""


class Drawing(NamedTuple):
    """Parameters of `golden.gemm` that decide the random words of a product."""

    seed: Seeds | None = None
    random: Tensor | None = None
    random_product: Tensor | None = None
    source: str | None = None
    first_step: int = 0

    @property
    def given(self) -> tuple[Tensor | None, Tensor | None]:
        """Given words, of the sum and of the product."""
        return self.random, self.random_product


def words_of(spec: RunningSumSpec, drawing: Drawing, shape: tuple[int, ...], k: int, device: torch.device) -> Words:
    """Return the words of k steps of a product; TypeError or ValueError if some are missing, invalid or unused."""
    seed, random, random_product, source, first_step = drawing
    if random_product is not None and not isinstance(spec, MacSpec):
        raise ValueError(f"random_product has no effect on {spec}, which rounds no product; omit it")
    if source is None and first_step:
        raise ValueError("first_step has no effect without source='philox' or a tiling")
    if source is not None:
        _check_counter(spec, source, *drawing.given)
        key = check_int(f"seed of {PHILOX}", 0 if seed is None else seed, 0, (1 << 64) - 1)
        return Words(key=key, first_step=first_step)
    if spec.random is None:
        if seed is not None:
            raise ValueError(f"seed has no effect, because {spec} has no source of random words, such as @lfsr16")
        of_product = None
        _check_given(spec, drawing)
        if isinstance(spec, MacSpec):
            of_product = _given("random_product", random_product, spec.product_rounding, (*shape, k))
        return Words(given=(_given("random", random, spec.rounding, (*shape, k)), of_product))
    for name, column in (("random", random), ("random_product", random_product)):
        if column is not None:
            raise ValueError(f"{name} has no effect, because {spec} has a source of random words")
    states = states_of_sums(spec.random, spec.seed if seed is None else seed, shape, device)
    return Words(states=split_states(spec, spec.random, states))


def _check_counter(spec: RunningSumSpec, source: str, *given: Tensor | None) -> None:
    """Check that a counter-based source exists and is used; ValueError otherwise."""
    if source != PHILOX:
        raise ValueError(f"unknown source {source!r}: expected {PHILOX}; hardware sources are part of mac")
    if not spec.words:
        raise ValueError(f"source {source} has no effect, because no rounding of {spec} is stochastic")
    if spec.random is not None or any(words is not None for words in given):
        raise ValueError(f"source {source} is given together with other random words for {spec}; give one of them")


def _check_given(spec: RunningSumSpec, drawing: Drawing) -> None:
    """Raise ValueError if the random words of a description without source are missing."""
    missing = [name for name in spec.words if getattr(drawing, name) is None]
    if missing:
        bits = spec.words[missing[0]]
        source = parse_source("lfsr16" if max(spec.words.values()) <= LFSR16 else "lfsr32")
        raise ValueError(
            f"{spec} needs random words of {bits} bits: give source='philox' and seed=1, a description with a source "
            f"of hardware such as {replace(spec, random=source).expression!r}, or the words as {missing[0]}="
        )


def _given(name: str, words: Tensor | None, rounding: Rounding, shape: tuple[int, ...]) -> Tensor | None:
    """Check random words and broadcast them to all steps."""
    words = random_of(name, words, rounding)
    return None if words is None else broadcast(name, words, shape)


def states_of_sums(source: Source, seed: Seeds, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the states of the sources of all elements before the first step."""
    if isinstance(seed, int):
        count = torch.Size(shape).numel()
        # The cache of seeds does not distinguish True from 1.
        source.check_seed(seed)
        # At least one seed, so that it is checked even for an empty result.
        return seeds_of_array(source, max(count, 1), seed, device)[:count].reshape(shape)
    states = states_of(source, seed, device)
    if states.shape != shape:
        raise ValueError(f"seed has shape {tuple(states.shape)}; the result has {shape} and needs a seed for each sum")
    return states


@functools.lru_cache(maxsize=4)
def seeds_of_array(source: Source, count: int, seed: int, device: torch.device) -> Tensor:
    """Return the seeds of an array; cached, because computing them takes longer than a small product."""
    return seeds(source, count, seed, device=device)


def split_states(spec: RunningSumSpec, source: Source, states: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the states of the sources of sum and product for all elements; None if one is not stochastic."""
    if len(spec.words) == 1:
        return (states, None) if "random" in spec.words else (None, states)
    columns = dict(zip(spec.words, seeds(source, len(spec.words), states).unbind(-1), strict=True))
    return columns.get("random"), columns.get("random_product")
