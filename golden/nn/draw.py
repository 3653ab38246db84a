"""Random words of layers: pure functions of a key, of which a module's state gives a new one for each use."""

import hashlib

import torch
from torch import Tensor

from halfulp.golden.check import check_int
from halfulp.hdl.formats.source import Plateau, Source

_MASK = (1 << 64) - 1
_GOLDEN_RATIO = 0x9E3779B97F4A7C15

STATE = "rounding_state"
"""Buffer of a module that rounds at random: its seed, and how many keys it gave in training and in evaluation."""

REPEAT, FREEZE, CONTINUE = EVALUATIONS = ("repeat", "freeze", "continue")
"""Random words after ``eval()``: the same sequence after each call of it, the same for each use, or as in training."""


def mix(*parts: int) -> int:
    """One number of 64 bits from several: equal for equal ones, and otherwise as if drawn at random.

    Each part goes through the finaliser of SplitMix64 (Steele et al., OOPSLA 2014).
    """
    state = 0
    for part in parts:
        state = (state + _GOLDEN_RATIO + part) & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def seed_of(seed: int, name: str) -> int:
    """Seed of the module of a name, such that no two names share their words; it fits an int64."""
    return mix(seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])) >> 1


def fresh_state(seed: int) -> Tensor:
    """State that has given no key yet."""
    return torch.tensor([seed, 0, 0], dtype=torch.int64)


def next_key(state: Tensor, evaluation: str = CONTINUE, rank: int = 0) -> int:
    """A key that the state has not given before, or as `EVALUATIONS` say; the state is changed.

    ``rank`` is that of a process in distributed training, which has words of its own.
    """
    seed, used, evaluated = state.tolist()
    if evaluation == CONTINUE:
        state[1] += 1
        return mix(seed, used, *[rank] * (rank > 0))
    if evaluation == REPEAT:
        state[2] += 1
    return mix(seed, evaluated, rank, 1)


def check_seed(seed: object) -> int:
    """A seed; TypeError or ValueError unless it is an int of 63 bits."""
    return check_int("seed", seed, 0, (1 << 63) - 1)


def words(key: int, bits: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Random words of a key, the same on every device and with any number of threads."""
    generator = torch.Generator().manual_seed(key)
    return torch.randint(1 << bits, shape, generator=generator).to(device)


def states(key: int, source: Source, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """States of sources in an array, each drawn for itself."""
    generator = torch.Generator().manual_seed(key)
    # Every word of an LFSR but zero; a source of 64 bits has half of its states here.
    found = torch.randint(1, (1 << min(source.width, 63)) - 1, shape, generator=generator)
    if isinstance(source, Plateau):
        found |= torch.randint(2, shape, generator=generator) << source.width
    return found.to(device)
