"""Multiply-accumulate of compound numbers, one product of parts per step."""

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import PartMacSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .check import check_shapes, codes_of, random_of
from .codec import unpack
from .mac import term_of
from .parts import parts_of
from .raw import Raw
from .sequence import sequence_of
from .sequence import step as one_step


def partmac(
    x: Tensor,
    y: Tensor,
    step: Tensor | int,
    start: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    acc: Format | str,
    o: Format | str | None = None,
    carry: int = CARRY_BITS,
    product: Format | str | None = None,
    product_rounding: Rounding | str | None = None,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
) -> Tensor:
    """Compute one step of a product of compound numbers: start + x_i * y_j, with the pair ``step`` of `MacSpec.pairs`.

    A larger step, in as many bits, is the last one. The other parameters are those of `mac`.
    """
    spec = PartMacSpec.of(
        a=a,
        b=b,
        acc=acc,
        o=o,
        carry=carry,
        product=product,
        product_rounding=product_rounding,
        rounding=rounding,
        saturate=saturate,
    )
    if isinstance(step, int) and isinstance(x, Tensor):
        step = torch.tensor(step, device=x.device)
    check_shapes(x=x, y=y, step=step, start=start, mode=mode, random=random, random_product=random_product)
    return one_step(
        spec, _term, start=start, mode=mode, random=random, x=x, y=y, step=step, random_product=random_product
    )


def _term(spec: PartMacSpec, x: Tensor, y: Tensor, step: Tensor, random_product: Tensor | None) -> Raw:
    word = random_of("random_product", random_product, spec.product_rounding)
    given = (codes_of("x", x, spec.a.width), codes_of("y", y, spec.b.width), codes_of("step", step, spec.step_bits))
    x, y, step = torch.broadcast_tensors(*given)
    places = torch.tensor(spec.pairs, device=x.device)
    pair = places[step.clamp(max=len(places) - 1)]
    one, other = (
        unpack(torch.take_along_dim(parts_of(codes, fmt), place, -1).squeeze(-1), part)
        for codes, fmt, part, place in (
            (x, spec.a, spec.of_parts.a, pair[..., :1]),
            (y, spec.b, spec.of_parts.b, pair[..., 1:]),
        )
    )
    return term_of(spec, one, other, word)


partmac_sequence = sequence_of(partmac, PartMacSpec, _term)
