"""Random words of the hardware's sources, for arrays of units and many steps at once.

Functions raise TypeError or ValueError if a source, a state or a number is invalid or out of range.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats.source import Lfsr, Plateau, Source, Stream, parse_source

from .check import check_int, codes_of
from .kernels import elements
from .raw import int64, mask

Seeds = int | Sequence[Any] | Tensor
"""States of sources: one, nested sequences of them, or a tensor."""


def words(
    source: Source | str,
    steps: int,
    seeds: Seeds = 1,
    *,
    bits: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Words of sources from their seeds on.

    Parameters
    ----------
    source : Lfsr, Plateau or str
        Such as ``lfsr16`` or ``plateau3``.
    steps : int
        Number of words for each unit.
    seeds : int, sequence of int, or Tensor
        State of a unit before its first step, whose word is the first one; `seeds`, or ``source.seeds(count)``, makes
        some for an array.
    bits : int, optional
        Number of low bits of each word; default: all. A word of 64 bits is the int64 of the same bits.
    device : torch.device or str, optional
        Device of the words; default: that of a tensor of seeds.

    Returns
    -------
    Tensor of int64
        Words of shape (steps,), (units, steps) for a sequence of seeds, or (..., steps) for seeds of shape (...).

    Notes
    -----
    The bits that a Fibonacci LFSR shifts in satisfy s[t] = xor of s[t - tap], and, because squaring a polynomial over
    GF(2) stretches it, s[t] = xor of s[t - tap * 2^j] too. So to double the length takes a constant number of
    operations on tensors.
    """
    source = parse_source(source)
    wanted = source.width if bits is None else bits
    check_int("steps", steps, 0)
    check_int(f"number of bits of {source}", wanted, 1, source.width)
    return _words(source, states_of(source, seeds, device), steps, 0, range(wanted))


def of_stream(stream: Stream, steps: int, bits: int, states: Tensor | None = None) -> Tensor:
    """Words of ``bits`` bits, at most 32, for one rounder, which may share its source.

    ``states`` replace the seed of the stream by those of many sources of its kind. The shape is (steps,), or (...,
    steps) for states of shape (...).
    """
    if states is None:
        states = states_of(stream.source, stream.seed)
    zeros, places = stream.bits_of(bits)
    return _words(stream.source, states, steps, zeros, places, complemented=stream.complemented)


def seeds(source: Source | str, count: int, first: Seeds = 1, *, device: torch.device | str | None = None) -> Tensor:
    """Seeds ``source.seeds(count, first)`` of the units of an array, on tensors.

    The shape is (count,), or (..., count) for the first seeds of many arrays, of shape (...).
    """
    source = parse_source(source)
    apart = source.spacing(count)
    dealt = states_of(source, first, device).unsqueeze(-1)
    while (known := dealt.shape[-1]) < count:
        dealt = torch.cat([dealt, jump(source, dealt[..., : count - known], known * apart)], -1)
    return dealt


def jump(source: Source | str, states: Seeds, steps: int) -> Tensor:
    """States after a number of steps, as ``source.jump`` computes them, on tensors."""
    source = parse_source(source)
    states = states_of(source, states)
    if isinstance(source, Plateau):
        return _jump_on_orbit(source, states, steps)
    # A step is linear over GF(2): the images of the single ones of a state give the image of the state.
    columns = [int64(source.jump(1 << place, steps)) for place in range(source.width)]
    result = elements.jump(states, columns)
    if result is None:
        result = torch.zeros_like(states)
        for place, column in enumerate(columns):
            result ^= -(states >> place & 1) & column
    return result


def states_of(source: Source, seeds: Seeds, device: torch.device | str | None = None) -> Tensor:
    """Seeds as a tensor of int64."""
    if not isinstance(seeds, Tensor):
        return torch.tensor(_nested(source, seeds), dtype=torch.int64, device=device)
    states = codes_of("seeds", seeds, source.state_bits)
    stuck = states[states & mask(source.width) == 0]
    if len(stuck):
        source.check_seed(int(stuck[0]))
    return states.to(device)


def _nested(source: Source, seeds: object) -> Any:
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        return [_nested(source, entry) for entry in seeds]
    return int64(source.check_seed(seeds))  # type: ignore[arg-type]  # which is what it checks


def _words(
    source: Source, states: Tensor, steps: int, zeros: int, places: Sequence[int], *, complemented: bool = False
) -> Tensor:
    """Words of zeros, and above them the bits of the source's words at some places."""
    width = source.width
    flat = states.reshape(-1, 1)
    history = flat >> torch.arange(width - 1, -1, -1, device=flat.device) & 1 != 0
    stream = _stream(history, source, width + steps)
    # The newest bit is the lowest: after step n the word holds the bits up to place width - 1 + n of the stream.
    result = torch.zeros(len(flat), steps, dtype=torch.int64, device=flat.device)
    for index, place in enumerate(places, zeros):
        begin = width - 1 - place
        result |= stream[:, begin : begin + steps].to(torch.int64) << index
    ones = mask(len(places)) << zeros
    if isinstance(source, Plateau):
        result ^= _inversions(stream, flat >> width, source, steps).to(torch.int64) * ones
    if complemented:
        result ^= ones
    return result.reshape(*states.shape, steps)


def _stream(known: Tensor, source: Lfsr | Plateau, length: int) -> Tensor:
    """Bits shifted in, from the oldest in the seed on."""
    scale = 1
    while known.shape[1] < length:
        # As many as the known bits allow, with the relation stretched as far as it reaches.
        while 2 * scale * source.width <= known.shape[1]:
            scale *= 2
        count = min(scale * min(source.taps), length - known.shape[1])
        end = known.shape[1]
        more = torch.zeros_like(known[:, :count])
        for tap in source.taps:
            start = end - tap * scale
            more = more ^ known[:, start : start + count]
        known = torch.cat([known, more], 1)
    return known[:, :length]


def _inversions(stream: Tensor, begins: Tensor, source: Plateau, steps: int) -> Tensor:
    """Flags of complemented words: they toggle with every step that makes the LFSR's word 1."""
    width = source.width
    is_one = stream[:, width - 1 : width - 1 + steps].clone()
    for place in range(1, width):
        is_one &= ~stream[:, width - 1 - place : width - 1 - place + steps]
    # The seed's own word is no step.
    is_one[:, :1] = False
    return ((is_one.cumsum(1) + begins) & 1) != 0


def _jump_on_orbit(source: Plateau, states: Tensor, steps: int) -> Tensor:
    """States of a plateau source, by the place of their words in the period of its LFSR, after which words flip."""
    width, half = source.width, source.period // 2
    orbit = words(Lfsr(width), half, device=states.device)
    places = torch.zeros(half + 1, dtype=torch.int64, device=states.device)
    places[orbit] = torch.arange(half, device=states.device)
    place = places[states & half] + steps % source.period
    turned = (states >> width) + place // half
    return orbit[place % half] | (turned & 1) << width
