"""Multiply-accumulate with a registered accumulator."""

from amaranth.hdl import Module, Value

from halfulp.hdl.number import multiply, unpack
from halfulp.hdl.specs import MacSpec

from .base import Unit
from .running_sum import RunningSum, Term


class Mac(RunningSum):
    """Multiply-accumulate with one product per step: acc <- round(acc + a * b).

    Formula
    -------
    ``acc = round(start + a * b)``, with a rounded product ``acc = round(start + round(a * b))``; ``start`` is ``c`` if
    ``load`` is set, +0 if ``clear`` is set, and ``acc`` otherwise. ``o = acc``; if the accumulator is exact,
    ``o = round(acc)``.

    Members
    -------
    random_product : In(product_rounding.bits)
        Random word of the product's stochastic rounding. Absent if the product is not rounded stochastically.

    Source
    ------
    Stochastic rounding: Ben Ali, Filip and Sentieys, DATE 2024. Exact accumulator: Kulisch, Computer Arithmetic and
    Validity, 2013.
    """

    SPEC = MacSpec

    def check(self) -> None:
        self.spec.check_one_step()

    def term(self, m: Module) -> Term:
        """Return the product, rounded if ``product`` is given."""
        return product_term(self, m, Value.cast(self.a), Value.cast(self.b))


def product_term(unit: Unit, m: Module, a_code: Value, b_code: Value) -> Term:
    """Return the product of two factors in a multiply-accumulate, and the flags of its rounding."""
    spec = unit.spec
    a = unit.number_of(m, a_code, spec.a.part_format, "a")
    b = unit.number_of(m, b_code, spec.b.part_format, "b")
    word = unit.word(m, "random_product")
    to = None if spec.product or spec.quire else spec.o
    rounding = spec.flagged(spec.product_rounding)
    product = multiply(m, a, b, dsp=unit.build.dsp, to=to, o=spec.product, rounding=rounding, fast=unit.fast)
    if spec.product is None:
        return product, None
    code, flags = unit.rounded_with_flags(m, product, word, rounding, spec.product)
    return unpack(m, code, spec.product, "rounded_product"), flags
