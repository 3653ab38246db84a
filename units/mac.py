"""Multiply-accumulate with a registered accumulator."""

from typing import Any, Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.number import multiply, unpack
from halfulp.hdl.specs import Build, MacSpec
from halfulp.hdl.specs.mac import part_of
from halfulp.hdl.specs.quire import CARRY_BITS

from .accumulating import Accumulating, Term
from .base import Options


class Mac(Accumulating):
    """Multiply-accumulate with one product per step: acc <- round(acc + a * b).

    Formula
    -------
    ``acc = round(start + a * b)``, with a rounded product ``acc = round(start + round(a * b))``; ``start`` is ``c`` if
    ``load`` is set, +0 if ``clear`` is set, and ``acc`` otherwise. ``o = acc``; if the accumulator is exact,
    ``o = round(acc)``.

    Parameters
    ----------
    a, b, acc, o, carry, interleave, product, product_rounding
        Fields of `MacSpec`; formats and roundings may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    b : In(b)
    c, load, clear, o, flags
        Start value, start of a sum, and results; see `Accumulating`.
    random_product : In(product_rounding.bits)
        Random word of the product's stochastic rounding. Absent if the product is not rounded stochastically.

    Latency
    -------
    ``stages + 1`` cycles from operands to result; one step per cycle.

    Source
    ------
    Stochastic rounding: Ben Ali, Filip and Sentieys, DATE 2024. Exact accumulator: Kulisch, Computer Arithmetic and
    Validity, 2013.
    """

    SPEC = MacSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        acc: Format | str,
        o: Format | str | None = None,
        carry: int = CARRY_BITS,
        interleave: int = 1,
        product: Format | str | None = None,
        product_rounding: Rounding | str | None = None,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = MacSpec.of(
            a=a,
            b=b,
            acc=acc,
            o=o,
            carry=carry,
            interleave=interleave,
            product=product,
            product_rounding=product_rounding,
            **options,
        )
        spec.check_one_step()
        super().__init__(spec, operands={"a": spec.a, "b": spec.b}, build=build, multiplies=True)

    def term(self, m: Module) -> Term:
        """Return the product, rounded if ``product`` is given."""
        return product_term(self, m, Value.cast(self.a), Value.cast(self.b))


def product_term(unit: Any, m: Module, a_code: Value, b_code: Value) -> Term:
    """Return the product of two factors in a multiply-accumulate, and the flags of its rounding."""
    spec = unit.spec
    a = unit.number_of(m, a_code, part_of(spec.a), "a")
    b = unit.number_of(m, b_code, part_of(spec.b), "b")
    word = unit.word(m, "random_product")
    to = None if spec.product or spec.quire else spec.o
    rounding = spec.flagged(spec.product_rounding)
    product = multiply(m, a, b, dsp=unit.build.dsp, to=to, o=spec.product, rounding=rounding, fast=unit.fast)
    if spec.product is None:
        return product, None
    code, flags = unit.rounded_with_flags(m, product, word, rounding, spec.product)
    return unpack(m, code, spec.product, "rounded_product"), flags
