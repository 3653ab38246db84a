"""Random words of the hardware sources, for arrays of units and many steps at once.

Functions raise TypeError or ValueError if a source, a state or a number is invalid.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats.source import Lfsr, Source, Stream, parse_source

from .check import check_int, codes_of
from .kernels import elements
from .raw import int64, mask

Seeds = int | Sequence[Any] | Tensor
"""States of sources: an int, nested sequences of ints, or a tensor."""


def words(
    source: Source | str,
    steps: int,
    seeds: Seeds = 1,
    *,
    bits: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the random words of sources, beginning with those of their seeds.

    Parameters
    ----------
    source : Source or str
        Source of each unit, such as ``lfsr16`` or ``plateau3``.
    steps : int
        Number of words for each unit.
    seeds : int, sequence of int, or Tensor
        States of the units before the first step; `seeds` or ``source.seeds(count)`` makes those of an array.
    bits : int, optional
        Number of low bits of each word; default: all. A 64-bit word is the int64 with the same bits.
    device : torch.device or str, optional
        Device of the words; default: that of a tensor of seeds.

    Returns
    -------
    Tensor of int64
        Words of shape (steps,), (units, steps) for a sequence of seeds, or (..., steps) for seeds of shape (...).

    Notes
    -----
    The bits that a Fibonacci LFSR shifts in satisfy s[t] = xor of s[t - tap] over its taps. Squaring a polynomial over
    GF(2) doubles its exponents, so that s[t] = xor of s[t - tap * 2^j] holds too. With this recurrence a constant
    number of tensor operations doubles the length of the sequence.
    """
    source = parse_source(source)
    wanted = source.width if bits is None else bits
    check_int("steps", steps, 0)
    check_int(f"number of bits of {source}", wanted, 1, source.width)
    lowest = source.register - source.width
    return _words(source, states_of(source, seeds, device), steps, 0, range(lowest, lowest + wanted))


def of_stream(stream: Stream, steps: int, bits: int, states: Tensor | None = None) -> Tensor:
    """Return the random words of one rounder, which may share its source with others.

    ``bits`` is at most 32. ``states`` are those of many sources, in place of the stream's seeds. The result has shape
    (steps,), or (..., steps) for states of shape (...).
    """
    if states is None and stream.others:
        states = states_of(stream.source, (stream.seed, *stream.others))
        in_turn = of_stream(stream, -(-steps // len(states)), bits, states)
        return in_turn.mT.flatten()[:steps]
    if states is None:
        states = states_of(stream.source, stream.seed)
    zeros, places = stream.bits_of(bits)
    return _words(stream.source, states, steps, zeros, places, complemented=stream.complemented)


def seeds(source: Source | str, count: int, first: Seeds = 1, *, device: torch.device | str | None = None) -> Tensor:
    """Return the seeds ``source.seeds(count, first)`` of the units of an array as a tensor.

    The result has shape (count,), or (..., count) if ``first`` has the first seeds of many arrays, of shape (...).
    """
    source = parse_source(source)
    spacing = source.spacing(count)
    states = states_of(source, first, device).unsqueeze(-1)
    while (known := states.shape[-1]) < count:
        states = torch.cat([states, jump(source, states[..., : count - known], known * spacing)], -1)
    return states


def jump(source: Source | str, states: Seeds, steps: int) -> Tensor:
    """Advance states by a number of steps, as ``source.jump`` does."""
    source = parse_source(source)
    states = states_of(source, states)
    if source.inverting:
        return _jump_on_orbit(source, states, steps)
    # Steps are linear over GF(2): the image of a state is the sum of the images of its ones.
    columns = [int64(source.jump(1 << place, steps)) for place in range(source.register)]
    result = elements.jump(states, columns)
    if result is None:
        result = torch.zeros_like(states)
        for place, column in enumerate(columns):
            result ^= -(states >> place & 1) & column
    return result


def states_of(source: Source, seeds: Seeds, device: torch.device | str | None = None) -> Tensor:
    """Check seeds and return them as a tensor of int64."""
    if not isinstance(seeds, Tensor):
        return torch.tensor(_nested(source, seeds), dtype=torch.int64, device=device)
    states = codes_of("seeds", seeds, source.state_bits)
    stuck = states[states & mask(source.register) == 0]
    if len(stuck):
        source.check_seed(int(stuck[0]))
    return states.to(device)


def _nested(source: Source, seeds: object) -> Any:
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        return [_nested(source, entry) for entry in seeds]
    return int64(source.check_seed(seeds))  # type: ignore[arg-type]  # check_seed() checks the type


def _words(
    source: Source, states: Tensor, steps: int, zeros: int, places: Sequence[int], *, complemented: bool = False
) -> Tensor:
    """Return words with ``zeros`` zeros as lowest bits, and above them the given bits of the register."""
    width = source.register
    flat = states.reshape(-1, 1)
    history = flat >> torch.arange(width - 1, -1, -1, device=flat.device) & 1 != 0
    stream = _stream(history, source, width + steps)
    # The newest bit is the lowest: the word after n steps ends with bit width - 1 + n of the stream.
    result = torch.zeros(len(flat), steps, dtype=torch.int64, device=flat.device)
    for index, place in enumerate(places, zeros):
        begin = width - 1 - place
        result |= stream[:, begin : begin + steps].to(torch.int64) << index
    ones = mask(len(places)) << zeros
    if source.inverting:
        result ^= _inversions(stream, flat >> width, source, steps).to(torch.int64) * ones
    if complemented:
        result ^= ones
    return result.reshape(*states.shape, steps)


def _stream(known: Tensor, source: Source, length: int) -> Tensor:
    """Extend the bits of the seeds (oldest first) by the bits that are shifted in."""
    scale = 1
    while known.shape[1] < length:
        # The largest distance of the recurrence that the known bits allow.
        while 2 * scale * source.register <= known.shape[1]:
            scale *= 2
        count = min(scale * min(source.taps), length - known.shape[1])
        end = known.shape[1]
        more = torch.zeros_like(known[:, :count])
        for tap in source.taps:
            start = end - tap * scale
            more = more ^ known[:, start : start + count]
        known = torch.cat([known, more], 1)
    return known[:, :length]


def _inversions(stream: Tensor, begins: Tensor, source: Source, steps: int) -> Tensor:
    """Return flags of complemented words; they toggle with every step to the state 1 of the LFSR."""
    width = source.register
    is_one = stream[:, width - 1 : width - 1 + steps].clone()
    for place in range(1, width):
        is_one &= ~stream[:, width - 1 - place : width - 1 - place + steps]
    # The first word is the seed, before any step.
    is_one[:, :1] = False
    return ((is_one.cumsum(1) + begins) & 1) != 0


def _jump_on_orbit(source: Source, states: Tensor, steps: int) -> Tensor:
    """Advance states of a plateau source with a table of the period of its LFSR; words flip after each period."""
    width, half = source.register, source.period // 2
    orbit = words(Lfsr(width), half, device=states.device)
    places = torch.zeros(half + 1, dtype=torch.int64, device=states.device)
    places[orbit] = torch.arange(half, device=states.device)
    place = places[states & half] + steps % source.period
    periods = (states >> width) + place // half
    return orbit[place % half] | (periods & 1) << width
