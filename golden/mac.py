"""Multiply-accumulate."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .check import check_shapes, codes_of, random_of
from .codec import rounded, unpack, unpack_operand
from .exact import Flagged
from .raw import Raw, multiply
from .sequence import sequence_of, step


def mac(
    x: Tensor,
    y: Tensor,
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
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
) -> Any:
    """Compute one step of an accumulator: start + x * y.

    ``start`` holds codes of the result format, and ``random_product`` random words for the product. Formats, roundings
    and ``carry`` are those of `MacSpec`; see `halfulp.golden` for the other parameters. Products are computed in the
    shape of x and y, before start broadcasts.
    """
    spec = MacSpec.of(
        a=a,
        b=b,
        acc=acc,
        o=o,
        carry=carry,
        product=product,
        product_rounding=product_rounding,
        rounding=rounding,
        saturate=saturate,
        flags=flags,
    )
    check_shapes(x=x, y=y, start=start, mode=mode, random=random, random_product=random_product)
    return step(spec, _term, start=start, mode=mode, random=random, x=x, y=y, random_product=random_product)


def _term(spec: MacSpec, x: Tensor, y: Tensor, random_product: Tensor | None) -> Raw:
    spec.check_one_step()
    word = random_of("random_product", random_product, spec.product_rounding)
    x, y = codes_of("x", x, spec.a.width), codes_of("y", y, spec.b.width)
    return term_of(spec, unpack_operand(spec, x, spec.a), unpack_operand(spec, y, spec.b), word)


def term_of(spec: MacSpec, x: Raw, y: Raw, word: Tensor | None) -> Raw:
    """Return the term of a step: the product, rounded if the description has a product format."""
    term = multiply(x, y)
    if spec.product is None:
        return term
    found = rounded(spec, term, word, spec.product_rounding, spec.product)
    if not isinstance(found, Flagged):
        return unpack(found, spec.product)
    return replace(unpack_operand(spec, found.o, spec.product), raised=found.flags)


mac_sequence = sequence_of(mac, MacSpec, _term)
