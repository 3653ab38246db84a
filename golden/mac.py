"""Multiply-accumulate."""

from dataclasses import replace

from torch import Tensor

from halfulp.hdl.specs import MacSpec

from .check import codes_of, random_of
from .codec import rounded, unpack, unpack_operand
from .exact import Flagged
from .raw import Raw, multiply
from .sequence import accumulator


def _term(spec: MacSpec, x: Tensor, y: Tensor, *, random_product: Tensor | None) -> Raw:
    """Compute one step of an accumulator: start + x * y.

    ``start`` holds codes of the result format, and ``random_product`` random words for the product. Formats, roundings
    and ``carry`` are those of `MacSpec`; see `halfulp.golden` for the other parameters. Products are computed in the
    shape of x and y, before start broadcasts.
    """
    spec.check_one_step()
    word = random_of("random_product", random_product, spec.product_rounding)
    x, y = codes_of("x", x, spec.a), codes_of("y", y, spec.b)
    return term_of(spec, unpack_operand(spec, x, spec.a), unpack_operand(spec, y, spec.b), word)


def term_of(spec: MacSpec, x: Raw, y: Raw, word: Tensor | None) -> Raw:
    """Return the term of a step: the product, rounded if the description has a product format."""
    term = multiply(x, y)
    if spec.product is None:
        return term
    product = rounded(spec, term, word, spec.product_rounding, spec.product)
    if not isinstance(product, Flagged):
        return unpack(product, spec.product)
    return replace(unpack_operand(spec, product.o, spec.product), raised=product.flags)


mac, mac_sequence = accumulator(MacSpec, "x", "y", "start")(_term)
