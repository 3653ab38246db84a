"""Random words of the hardware's sources, for arrays of units and many steps at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from halfulp.hdl.formats.source import Lfsr, Plateau, Source, Stream, parse_source


def words(
    source: Source | str,
    steps: int,
    seeds: int | Sequence[int] = 1,
    *,
    bits: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The words that sources give, from their seeds on.

    Parameters
    ----------
    source : Lfsr, Plateau or str
        Such as ``lfsr16`` or ``plateau3``.
    steps : int
        Words of each unit.
    seeds : int, or sequence of int
        State of a unit before its first step, whose word is the first one; ``source.seeds(count)`` makes some for an
        array.
    bits : int, optional
        Lowest bits of each word that are wanted; all unless told otherwise. A word of 64 bits is the int64 of the same
        bits.
    device : torch.device or str, optional

    Returns
    -------
    Tensor of int64
        Of shape (steps,), or (units, steps) for a sequence of seeds.

    Raises
    ------
    TypeError, ValueError
        If the source is none, a seed is no state of it, or ``steps`` or ``bits`` are out of range.

    Notes
    -----
    The bits that a Fibonacci LFSR shifts in satisfy s[t] = xor of s[t - tap], and, because squaring a polynomial over
    GF(2) stretches it, s[t] = xor of s[t - tap * 2^j] too. So to double the length takes a constant number of
    operations on tensors.
    """
    source = parse_source(source)
    width = source.width
    wanted = width if bits is None else bits
    if not isinstance(steps, int) or isinstance(steps, bool):
        raise TypeError(f"steps is an int, not {type(steps).__name__}")
    if steps < 0:
        raise ValueError(f"steps is 0 or more, not {steps}")
    if not 1 <= wanted <= width:
        raise ValueError(f"{source} has words of {width} bits, of which 1 to {width} are given, not {wanted}")
    one_unit = isinstance(seeds, int)
    units = [seeds] if isinstance(seeds, int) else list(seeds)
    states = [source.check_seed(seed) for seed in units]
    history = [[state >> place & 1 for place in reversed(range(width))] for state in states]
    stream = _stream(torch.tensor(history, dtype=torch.bool, device=device).reshape(-1, width), source, width + steps)
    # The newest bit is the lowest: after step n the word holds the bits up to place width - 1 + n of the stream.
    result = torch.zeros(len(units), steps, dtype=torch.int64, device=device)
    for place in range(wanted):
        first = width - 1 - place
        result |= stream[:, first : first + steps].to(torch.int64) << place
    if isinstance(source, Plateau):
        result ^= _inversions(stream, states, source, steps).to(torch.int64) * ((1 << wanted) - 1)
    return result[0] if one_unit else result


def of_stream(stream: Stream, steps: int, bits: int) -> Tensor:
    """Words of ``bits`` bits, at most 62, as one rounder gets them from a source, which it may share.

    Returns
    -------
    Tensor of int64
        Of shape (steps,).
    """
    whole = words(stream.source, steps, stream.seed)
    zeros, places = stream.bits_of(bits)
    result = torch.zeros_like(whole)
    for index, place in enumerate(places):
        result |= (whole >> place & 1 ^ int(stream.complemented)) << (zeros + index)
    return result


def _stream(known: Tensor, source: Lfsr | Plateau, length: int) -> Tensor:
    """Bits shifted in, from the oldest in the seed on."""
    scale = 1
    while known.shape[1] < length:
        # As many as can be had from what is known, with the relation stretched as far as it reaches.
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


def _inversions(stream: Tensor, states: list[int], source: Plateau, steps: int) -> Tensor:
    """Where words are complemented: that changes with every step that makes the LFSR's word 1."""
    width = source.width
    is_one = stream[:, width - 1 : width - 1 + steps].clone()
    for place in range(1, width):
        is_one &= ~stream[:, width - 1 - place : width - 1 - place + steps]
    # The seed's own word is no step.
    is_one[:, :1] = False
    begins = torch.tensor([state >> width for state in states], device=stream.device).unsqueeze(1)
    return ((is_one.cumsum(1) + begins) & 1) != 0
