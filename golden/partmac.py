"""Multiply-accumulate of compound numbers, one product of parts per step."""

import torch
from torch import Tensor

from halfulp.hdl.specs import PartMacSpec

from .check import codes_of, random_of
from .codec import unpack
from .mac import term_of
from .parts import parts_of
from .raw import Raw
from .sequence import accumulator


def _term(spec: PartMacSpec, x: Tensor, y: Tensor, step: Tensor | int, *, random_product: Tensor | None) -> Raw:
    """Compute one step of a product of compound numbers: start + x_i * y_j, with the pair ``step`` of `MacSpec.pairs`.

    A larger step, in as many bits, is the last one. The other parameters are those of `mac`.
    """
    word = random_of("random_product", random_product, spec.product_rounding)
    x, y = codes_of("x", x, spec.a), codes_of("y", y, spec.b)
    steps = codes_of("step", torch.as_tensor(step, device=x.device), spec.step_bits)
    x, y, steps = torch.broadcast_tensors(x, y, steps)
    places = torch.tensor(spec.pairs, device=x.device)
    pair = places[steps.clamp(max=len(places) - 1)]
    left, right = (
        unpack(torch.take_along_dim(parts_of(codes, fmt), place, -1).squeeze(-1), part)
        for codes, fmt, part, place in (
            (x, spec.a, spec.of_parts.a, pair[..., :1]),
            (y, spec.b, spec.of_parts.b, pair[..., 1:]),
        )
    )
    return term_of(spec, left, right, word)


partmac, partmac_sequence = accumulator(PartMacSpec, "x", "y", "step", "start")(_term)
