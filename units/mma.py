"""Steps of the matrix units of accelerators."""

from dataclasses import replace
from functools import partial

from amaranth.hdl import Cat, Const, Module, Value

from halfulp.hdl import aligned, block, tree
from halfulp.hdl.number import as_raw, unpack
from halfulp.hdl.product import product as multiply_integers
from halfulp.hdl.raw import Raw
from halfulp.hdl.round import ToInfinity
from halfulp.hdl.specs import DotSpec, MmaSpec, ValueRange
from halfulp.hdl.specs.build import SPEED
from halfulp.hdl.specs.dot import Alignment
from halfulp.hdl.wire import NEVER, wire

from .described import Described
from .dot import aligned_products, aligned_start, aligned_sum, product_terms


class Mma(Described):
    """Step of a matrix unit of an accelerator, o = c + a0 * b0 + a1 * b1 + ..., one per cycle.

    Formula
    -------
    Order ``aligned25``: ``o = round(t(c) + t(a0 * b0) + t(a1 * b1) + ...)``, where ``t`` removes the bits below 25
    places of the largest exponent, and terms that are zero have the exponent ``zero``. Scales of blocks add to the
    exponents of products, or multiply exact sums of groups. With ``through``, the sum is rounded to that format first.
    Order ``exact``: ``o = round(c + a0 * b0 + a1 * b1 + ...)``.

    Members
    -------
    a0, a1, ... : In(a)
        Elements. Also as the list ``a``.
    b0, b1, ... : In(b)
        Also as the list ``b``.
    a_scale : In(a.scale)
        Scale of a block; with groups, the ports ``a_scale0, a_scale1, ...`` of several. Absent without blocks.
    b_scale : In(b.scale)
    c : In(o)
        Accumulator.
    o : Out(o)

    Source
    ------
    Xie et al., 2025; Khattak and Mikaitis, 2025.
    """

    SPEC = MmaSpec
    multiplies = True
    goals = (SPEED,)

    def check(self) -> None:
        spec = self.spec
        if spec.every is not None:
            raise ValueError(f"every={spec.every} concerns chains of steps, and the RTL of mma is one step; omit it")
        if spec.kind not in ("aligned", "exact"):
            raise ValueError(
                f"mma has RTL for aligned and exact sums, not for order {spec.order}; golden.gemm computes with it"
            )

    def logic(self, m: Module) -> None:
        spec = self.spec
        start = self.c.as_value()
        if spec.kind == "exact":
            code = self.rounded(m, self._exact(m, start), None)
        else:
            products = self._groups(m) if spec.group > 1 else aligned_products(self, m, self._factors, spec.elements)
            if spec.block_parts and spec.group == 1:
                products = self._scaled(m, products)
            terms = [products, [aligned_start(self, m, start, spec.o)]]
            # A term has the integer bits of its significand above the point.
            integer = max(len(products[0].significand) - products[0].fraction, 2)
            alignment = Alignment(spec.fraction, floor=False, integer=integer)
            code = self._code(m, aligned_sum(self, m, terms, alignment, spec.zero))
        m.d.comb += self.o.as_value().eq(code)

    @property
    def _factors(self) -> list[tuple[Value, Value]]:
        return [(a.as_value(), b.as_value()) for a, b in zip(self.a, self.b, strict=True)]

    def _exact(self, m: Module, start: Value) -> Raw:
        """Return the exact sum of all terms; one of zero is +0."""
        spec = self.spec
        dot = DotSpec(k=spec.k, a=spec.a, b=spec.b, c=spec.o)
        quantum = dot.quire.quantum
        terms = product_terms(self, m, self._factors, quantum, dot.terms)
        number = self.number_of(m, start, spec.o, "start")
        terms.append(tree.Term(**tree.of_number(m, number, quantum, ValueRange.of(spec.o))))
        total = tree.total(m, terms, chained=not self.fast)
        return tree.as_raw(m, total, quantum, tree.bits_of(dot.sums, quantum), NEVER, fast=self.fast)

    def _scale(self, m: Module, name: str, index: int) -> Raw:
        """Return the magnitude of a scale of the block ``a`` or ``b``."""
        fmt, ports = getattr(self.spec, name).scale, getattr(self, f"{name}_scale")
        code = (ports[index] if isinstance(ports, list) else ports).as_value()
        scale = as_raw(m, unpack(m, code, fmt, f"{name}_scale"), name)
        return replace(scale, sign=NEVER)

    def _groups(self, m: Module) -> list[aligned.Term]:
        """Return exact sums of products times their scales; the exponent is that of the scales."""
        spec, factors = self.spec, self._factors
        a, b = spec.a, spec.b
        quantum, products = block.quantum_of(a, b), block.products_of(a, b)
        product = partial(block.product, x=a, y=b, dsp=self.build.dsp)
        bits = tree.bits_of(products.times(spec.group), quantum)
        terms = []
        for first in range(0, spec.k, spec.group):
            parts = [
                tree.Term(**self.part(m, f"product{index}", "product", product, a=x, b=y))
                for index, (x, y) in enumerate(factors[first : first + spec.group], first)
            ]
            x, y = (self._scale(m, name, first // getattr(spec, name).length) for name in ("a", "b"))
            total = tree.total(m, parts, chained=not self.fast)
            group = tree.without_complement(m, tree.as_raw(m, total, quantum, bits, NEVER, fast=self.fast))
            scaled = multiply_integers(m, group.significand, x.significand, "of_a", dsp=False)
            scaled = multiply_integers(m, wire(m, scaled, "scaled_by_a"), y.significand, "of_b", dsp=False)
            empty = wire(m, ~Cat(*(part.integer.any() for part in parts)).any(), "group_empty")
            scale_zero = wire(m, x.zero | y.zero, "scale_zero")
            terms.append(
                aligned.Term(
                    sign=group.sign,
                    # More than zero, also for the smallest scales.
                    exponent=wire(m, x.exponent + y.exponent + 1, "scale_exponent"),
                    significand=wire(m, scaled, "scaled_group"),
                    zero=wire(m, empty | scale_zero, "group_zero"),
                    nan=wire(m, group.nan | x.nan | y.nan | (group.inf & scale_zero), "group_nan"),
                    inf=group.inf,
                    base=sum(-fmt.bias for fmt in (a.scale, b.scale)) - 1,
                    emin=a.scale.emin + b.scale.emin,
                    emax=a.scale.emax + b.scale.emax,
                    fraction=a.scale.man + b.scale.man - quantum,
                )
            )
        return terms

    def _scaled(self, m: Module, products: list[aligned.Term]) -> list[aligned.Term]:
        """Return products of elements with the scales of their blocks, which are powers of two."""
        scales = [self._scale(m, name, 0) for name in ("a", "b")]
        nan = wire(m, scales[0].nan | scales[1].nan, "scale_nan")
        shift = wire(m, scales[0].exponent + scales[1].exponent, "scale_exponent")
        base, emin, emax = (
            sum(of_scale)
            for of_scale in zip(*((x.base, x.promises.emin, x.promises.emax) for x in scales), strict=True)
        )
        return [
            replace(
                term,
                nan=wire(m, term.nan | nan, "scaled_nan"),
                shift=shift,
                base=term.base + base,
                emin=term.emin + emin,
                emax=term.emax + emax,
            )
            for term in products
        ]

    def _code(self, m: Module, total: Raw) -> Value:
        """Return the code of a sum: an overflow is infinite, NaN has all ones, and a result of zero is +0."""
        spec = self.spec
        o = spec.o if spec.through is None else spec.through
        code = self.rounded(m, total, None, ToInfinity(spec.rounding.mode), o)
        magnitude, sign = code[:-1], code[-1]
        nan = total.nan.replicate(spec.o.width - 1)
        if total.promises.emin - len(total.significand) + 1 < o.quantum:
            sign = sign & magnitude.any()
        return Cat(Cat(Const(0, spec.o.man - o.man), magnitude) | nan, sign)
