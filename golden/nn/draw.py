"""Random words of layers: pure functions of a key; the state of a module gives a new key for each use."""

import hashlib

import torch
from torch import Tensor

from halfulp.golden.check import check_int
from halfulp.hdl.formats.source import Source

_MASK = (1 << 64) - 1
_GOLDEN_RATIO = 0x9E3779B97F4A7C15

STATE = "rounding_state"
"""Buffer of a module with stochastic rounding: seed, number of keys in training, number of keys in evaluation."""

REPEAT, FREEZE, CONTINUE = EVALUATIONS = ("repeat", "freeze", "continue")
"""Random words in evaluation: a sequence that ``eval()`` restarts, the same words for each use, or as in training."""


def mix(*parts: int) -> int:
    """Hash integers to 64 bits, with the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)."""
    state = 0
    for part in parts:
        state = (state + _GOLDEN_RATIO + part) & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def seed_of(seed: int, name: str) -> int:
    """Derive the seed of a module from a seed and the module's name; the result has 63 bits."""
    return mix(seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])) >> 1


def fresh_state(seed: int) -> Tensor:
    """Return the state of a module before its first key."""
    return torch.tensor([seed, 0, 0], dtype=torch.int64)


def next_key(state: Tensor, evaluation: str = CONTINUE, rank: int = 0) -> int:
    """Return the next key of a state and advance the state.

    ``evaluation`` is one of `EVALUATIONS`, and ``continue`` in training. ``rank`` is that of the process in distributed
    training: each process has words of its own.
    """
    seed, used, evaluated = state.tolist()
    if evaluation == CONTINUE:
        state[1] += 1
        return mix(seed, used, *[rank] * (rank > 0))
    if evaluation == REPEAT:
        state[2] += 1
    return mix(seed, evaluated, rank, 1)


def check_seed(seed: object) -> int:
    """Return a seed; TypeError or ValueError unless it is an int of 63 bits."""
    return check_int("seed", seed, 0, (1 << 63) - 1)


def words(key: int, bits: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the random words of a key; they are the same on every device and with any number of threads."""
    generator = torch.Generator().manual_seed(key)
    return torch.randint(1 << bits, shape, generator=generator).to(device)


def states(key: int, source: Source, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return random states of the sources of an array."""
    generator = torch.Generator().manual_seed(key)
    # Any state but zero; of a 64-bit source, only the lower half of the states.
    drawn = torch.randint(1, (1 << min(source.register, 63)) - 1, shape, generator=generator)
    if source.inverting:
        drawn |= torch.randint(2, shape, generator=generator) << source.register
    return drawn.to(device)
