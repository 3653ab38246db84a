"""Multiply-accumulate of compound numbers."""

from typing import Unpack

from amaranth.hdl import Array, Module, Value, unsigned

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.specs import Build, PartMacSpec
from halfulp.hdl.specs.mac import ports_of
from halfulp.hdl.specs.quire import CARRY_BITS
from halfulp.hdl.wire import wire

from .accumulating import Accumulating, Term
from .base import Options
from .mac import product_term


class PartMac(Accumulating):
    """Multiply-accumulate of compound numbers on one multiplier for their parts: a product takes several steps.

    Formula
    -------
    ``acc = round(start + ai * bj)`` with the pair (i, j) of ``step``: for two parts (1, 0), (0, 1), (0, 0); for three
    parts (2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0). ``start`` and ``o`` are those of `Mac`.

    Parameters
    ----------
    a, b, acc, o, carry, interleave, product, product_rounding
        Fields of `PartMacSpec`; formats and roundings may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

    Members
    -------
    a0, a1, ... : In(a.part)
        Parts, the largest first; ``a`` if the format is not compound. Also as the list ``a_parts``.
    b0, b1, ... : In(b.part)
        As ``a``.
    step : In(unsigned(spec.step_bits))
        Step of the product; larger numbers are the last step. Steps in ascending order compute what `golden.gemm` does.
    c, load, clear, o
        Start value, start of a sum, and result; see `Accumulating`.
    random_product : In(product_rounding.bits)
        Random word of the product's stochastic rounding. Absent if the product is not rounded stochastically.

    Latency
    -------
    ``stages + 1`` cycles from operands to result; one step per cycle.

    Source
    ------
    Order of the products: Henry, Tang and Heinecke, ARITH 2019.
    """

    SPEC = PartMacSpec

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
        spec = PartMacSpec.of(
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
        self.factors = [ports_of(name, fmt) for name, fmt in spec.operands.items()]
        operands = {name: fmt for ports in self.factors for name, fmt in ports.items()}
        super().__init__(spec, operands=operands | {"step": unsigned(spec.step_bits)}, build=build, multiplies=True)
        self.a_parts, self.b_parts = ([getattr(self, name) for name in ports] for ports in self.factors)

    @property
    def arguments(self) -> list[str | list[str]]:
        """Operands in the order of the golden function: the ports of the parts of both, then the others."""
        vectors = [list(ports) if len(ports) > 1 else name for ports in self.factors for name in [*ports][:1]]
        return [*vectors, *(name for name in self.inputs if not any(name in ports for ports in self.factors))]

    def term(self, m: Module) -> Term:
        """Return the product of the two parts of this step, rounded if ``product`` is given."""
        pairs = self.spec.pairs
        pairs += pairs[-1:] * ((1 << self.spec.step_bits) - len(pairs))
        factors = (
            wire(m, Array(Value.cast(ports[pair[side]]) for pair in pairs)[self.step], f"{name}_part")
            for side, (name, ports) in enumerate((("a", self.a_parts), ("b", self.b_parts)))
        )
        return product_term(self, m, *factors)
