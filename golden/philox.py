"""Counter-based random words for long runs in software: Philox4x32-10.

Source: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011. No unit of hardware has it.
"""

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_ROUNDS = 10


def philox(counter: Tensor, key: int) -> Tensor:
    """Map a counter of four 32-bit words (last dimension, lowest first) and a 64-bit key to four 32-bit words."""
    c0, c1, c2, c3 = counter.unbind(-1)
    k0, k1 = key & _LOW, key >> 32 & _LOW
    for _ in range(_ROUNDS):
        # Products wrap modulo 2^64, which does not change their two 32-bit halves.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & _LOW) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32 & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return torch.stack([c0, c1, c2, c3], -1)


def philox_words(key: int, elements: Tensor, steps: int, bits: int, *, first: int = 0, stream: int = 0) -> Tensor:
    """Return the random words of elements, of shape (..., steps) for elements of shape (...).

    Parameters
    ----------
    key : int
        Key of 64 bits.
    elements : Tensor of int64
        Indices of the elements.
    steps : int
        Number of words for each element.
    bits : int
        Bits of a word, 1 to 32. A counter gives 4 words, or 8 of up to 16 bits: the lower half of each 32 bits first.
    first : int
        Step of the first word.
    stream : int
        0 for words of sums, 1 for words of products.
    """
    per_block = 8 if bits <= 16 else 4
    begin, end = first // per_block, -(-(first + steps) // per_block)
    blocks = torch.arange(begin, end, device=elements.device)
    index = elements.unsqueeze(-1).expand(*elements.shape, len(blocks))
    counter = torch.stack(
        [(blocks & _LOW).expand_as(index), index & _LOW, index >> 32, torch.full_like(index, stream)], -1
    )
    words = philox(counter, key)
    if per_block == 8:
        words = torch.stack([words & 0xFFFF, words >> 16], -1).flatten(-2)
    return words.flatten(-2)[..., first - begin * per_block :][..., :steps] & ((1 << bits) - 1)
