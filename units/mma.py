"""Steps of the matrix units of accelerators."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from amaranth.hdl import Cat, Const, Module, Value

from halfulp.hdl import aligned, block, staged_sum, tree
from halfulp.hdl.formats import OFF, RN, Float, Format
from halfulp.hdl.number import Number, add, align, as_raw, multiply, pack, truncate, unpack
from halfulp.hdl.product import product as multiply_integers
from halfulp.hdl.raw import Anticipated, Raw
from halfulp.hdl.round import OfFloor, ToInfinity
from halfulp.hdl.specs import DotSpec, MmaSpec, ValueRange
from halfulp.hdl.specs.build import SPEED
from halfulp.hdl.specs.dot import Alignment
from halfulp.hdl.wire import NEVER, wire

from .described import Described, vector
from .dot import aligned_placed, aligned_products, aligned_start, aligned_sum, product_terms

Factors = Sequence[tuple[Value, Value]]
"""Codes of the factors of products, or their fields."""

FIELDS = ("sign", "nan", "inf", "zero", "exponent", "significand")
"""Fields of an operand that several lanes read."""


class Mma(Described):
    """Step of a matrix unit of an accelerator, o = c + a0 * b0 + a1 * b1 + ..., one per cycle.

    Formula
    -------
    Order ``aligned25``: ``o = round(t(c) + t(a0 * b0) + t(a1 * b1) + ...)``, where ``t`` removes the bits below 25
    places of the largest exponent, and terms that are zero have the exponent ``zero``. Scales of blocks add to the
    exponents of products, or multiply exact sums of groups. With ``through``, the sum is rounded to that format first.
    Order ``exact``: ``o = round(c + a0 * b0 + a1 * b1 + ...)``. Order ``pairwise4``:
    ``o = round(c + round(round(p0 + p1) + round(p2 + p3)))`` with ``p0 = round(a0 * b0)``, and so on for each four
    products; subnormal numbers are zeros. Order ``staged24``: ``o = round(f(u(t(a0 * b0) + t(a1 * b1) + ...) + v(c)))``
    where ``u``, ``v`` and ``f`` round down to 32, 24 and 31 bits; see ``order``.

    Members
    -------
    a0, a1, ... : In(a)
        Elements. Also as the list ``a``.
    b0, b1, ... : In(b)
        Also as the list ``b``.
    a_scale : In(a.scale)
        Scale of a block; with groups or rows, the ports ``a_scale0, a_scale1, ...`` of several. Absent without blocks.
    b_scale : In(b.scale)
    c : In(o)
        Accumulator. With several rows or columns there are ``c0, c1, ...``, one row after the other, and the list
        ``c``; ``a0, a1, ...`` are then one row after the other, and ``b0, b1, ...`` one column after the other.
    o : Out(o)
        With several rows or columns ``o0, o1, ...``, and the list ``o``.

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

    @property
    def results(self) -> dict[str, Any]:
        spec = self.spec
        return {"o": vector("o", spec.lanes, spec.o)} if spec.lanes > 1 else {"o": spec.o}

    def logic(self, m: Module) -> None:
        """Decode the operands of several lanes once, and add the lanes."""
        spec = self.spec
        codes = {name: getattr(self, name).as_value() for name in self.inputs}
        if spec.lanes == 1:
            m.d.comb += self.o.as_value().eq(self._step(m, codes)["o"])
            return
        if spec.group == 1:
            counts = zip("ab", (self.a, self.b), spec.elements, strict=True)
            codes |= {
                f"{name}{index}": self._decoded(m, codes[f"{name}{index}"], fmt, f"{name}{index}")
                for name, ports, fmt in counts
                for index in range(len(ports))
            }
        own = [port.name for port in spec.one_lane.operand_ports]
        for lane, o in enumerate(self.o):
            row, column = divmod(lane, spec.columns)
            operands = dict(zip(own, (codes[name] for name in spec.lane_ports(row, column)), strict=True))
            code = self.part(m, f"lane{lane}", "lane", lambda m, **given: self._step(m, given), **operands)["o"]
            m.d.comb += o.as_value().eq(code)

    @cached_property
    def _fields(self) -> dict[Format, Raw]:
        """Decoded numbers by format, which have the properties of all decoded operands of their formats."""
        return {}

    def _decoded(self, m: Module, code: Value, fmt: Float, name: str) -> Value:
        """Return the fields of an operand that several lanes read; `number_of` makes a number of them."""
        fmt = self._read_as(fmt)
        number = as_raw(m, super().number_of(m, code, fmt, name), name)
        self._fields[fmt] = number
        return wire(m, Cat(*(getattr(number, field) for field in FIELDS)), f"{name}_decoded")

    def number_of(self, m: Module, bits: Value, fmt: Format, name: str) -> Number:
        """Return the number of a code, or of the fields of `_decoded`."""
        if len(bits) == fmt.width:
            return super().number_of(m, bits, fmt, name)
        number, fields, first = self._fields[fmt], {}, 0
        for field in FIELDS:
            last = first + len(getattr(number, field))
            fields[field], first = bits[first:last], last
        return replace(number, anticipated=Anticipated(), **fields)

    def _read_as(self, fmt: Float) -> Float:
        """Return the format as which an operand is read: pairwise sums take subnormal numbers as zeros."""
        return replace(fmt, subnormals=False) if self.spec.kind == "pairwise" else fmt

    def _step(self, m: Module, codes: Mapping[str, Value]) -> dict[str, Value]:
        """Return the result of one row and one column; ``codes`` are by the names of the ports of a single lane."""
        spec, start = self.spec, codes["c"]
        factors = [(codes[f"a{index}"], codes[f"b{index}"]) for index in range(spec.k)]
        if spec.kind == "exact":
            code = self.rounded(m, self._exact(m, factors, start), None)
        elif spec.kind == "pairwise":
            code = self._pairwise(m, factors, start)
        elif spec.kind == "staged":
            code = self._staged(m, factors, start)
        else:
            if spec.group > 1:
                products = self._groups(m, factors, codes)
            else:
                products = aligned_products(self, m, factors, spec.elements)
            if spec.block_parts and spec.group == 1:
                products = self._scaled(m, products, codes)
            terms = [products, [aligned_start(self, m, start, spec.o)]]
            # A term has the integer bits of its significand above the point.
            integer = max(len(products[0].significand) - products[0].fraction, 2)
            alignment = Alignment(spec.fraction, floor=False, integer=integer)
            code = self._code(m, aligned_sum(self, m, terms, alignment, spec.zero))
        return {"o": code}

    def _exact(self, m: Module, factors: Factors, start: Value) -> Raw:
        """Return the exact sum of all terms; one of zero is +0."""
        spec = self.spec
        dot = DotSpec(k=spec.k, a=spec.a, b=spec.b, c=spec.o)
        quantum = dot.quire.quantum
        terms = product_terms(self, m, factors, quantum, dot.terms)
        number = self.number_of(m, start, spec.o, "start")
        terms.append(tree.Term(**tree.of_number(m, number, quantum, ValueRange.of(spec.o))))
        total = tree.total(m, terms, chained=not self.fast)
        return tree.as_raw(m, total, quantum, tree.bits_of(dot.sums, quantum), NEVER, fast=self.fast)

    def _pairwise(self, m: Module, factors: Factors, start: Value) -> Value:
        """Return the code of the accumulator after the sums of all groups of products."""
        codes = [
            self.part(m, f"product{index}", "product", self._flushed_product, a=a, b=b)["code"]
            for index, (a, b) in enumerate(factors)
        ]
        terms = 1
        while terms < self.spec.fraction:
            terms *= 2
            pairs = zip(codes[::2], codes[1::2], strict=True)
            codes = [
                self.part(m, f"sum{index}_of_{terms}", "sum", self._flushed_sum, x=x, y=y)["code"]
                for index, (x, y) in enumerate(pairs)
            ]
        first = partial(self._flushed_sum, from_start=True)
        acc = self.part(m, "with_start", "with_start", first, x=start, y=codes[0])["code"]
        for index, code in enumerate(codes[1:], 1):
            acc = self.part(m, f"with_group{index}", "sum", self._flushed_sum, x=acc, y=code)["code"]
        return acc

    def _flushed(self, m: Module, code: Value, fmt: Float, name: str, *, signed_zero: bool = False) -> Raw:
        """Return the number of a code; a subnormal one is zero, without a sign unless it is the result of a sum."""
        number = as_raw(m, self.number_of(m, code, self._read_as(fmt), name), name)
        return number if signed_zero else replace(number, sign=wire(m, number.sign & ~number.zero, f"{name}_sign"))

    def _flushed_product(self, m: Module, a: Value, b: Value) -> dict[str, Value]:
        (x_format, y_format), o = self.spec.elements, self._product_format
        x, y = self._flushed(m, a, x_format, "a"), self._flushed(m, b, y_format, "b")
        exact = multiply(m, x, y, dsp=self.build.dsp, o=o, rounding=RN, fast=self.fast)
        return {"code": self.rounded(m, exact, None, RN, o)}

    def _flushed_sum(self, m: Module, x: Value, y: Value, *, from_start: bool = False) -> dict[str, Value]:
        o, fast = replace(self.spec.o, subnormals=False), self.fast
        first = self._flushed(m, x, o, "x", signed_zero=not from_start)
        both = align(m, first, self._flushed(m, y, o, "y", signed_zero=True), o, RN, fast=fast)
        return {"code": self.rounded(m, add(m, both, o, RN, None, self.stochastic, fast=fast)[0], None, RN, o)}

    @property
    def _product_format(self) -> Float:
        """Format to which products of pairwise sums are rounded.

        Without subnormal numbers it needs no shift down. Both differ for a product just below the smallest normal
        number, which rounds up to it only on the grid of subnormals: its first bits, as many as the format has, are
        all ones. No product of that many bits or fewer is so large.
        """
        o = self.spec.o
        is_exact = sum(fmt.precision for fmt in self.spec.elements) <= o.precision
        return replace(o, subnormals=False) if is_exact else o

    def _staged(self, m: Module, factors: Factors, start: Value) -> Value:
        """Return the code of the rounded floor of a sum of two stages."""
        spec, o = self.spec, self.spec.o
        products = [
            replace(term, inf=wire(m, term.inf | staged_sum.exceeds(term, spec.elements, o), "product_infinite"))
            for term in aligned_products(self, m, factors, spec.elements)
        ]
        alignment, halves = Alignment(spec.fraction, floor=False), []
        names = ("term",) if spec.halves == 1 else ("even", "odd")
        for half, name in enumerate(names):
            terms = products[half :: spec.halves]
            (distances,), top, _ = aligned.scale(m, [terms])
            # The first operand of the sum is zero.
            second = tree.are_second(len(terms) + 1, chained=not self.fast)[1:]
            placed = aligned_placed(self, m, terms, distances, alignment, second, name)
            bits = alignment.fraction + alignment.integer
            halves.append(staged_sum.of_terms(m, terms, placed, top, bits, fast=self.fast))
        total = halves[0] if spec.halves == 1 else staged_sum.joined(m, *halves)
        acc = aligned_start(self, m, start, o)
        drops = spec.halves == 2
        number = staged_sum.with_start(m, total, products, acc, spec.fraction, drops=drops, fast=self.fast)
        kept = staged_sum.STAGES - 1 - o.man
        truncated = truncate(m, number, o, OfFloor("rn", kept=kept))
        truncated = replace(truncated, discarded=truncated.discarded[-kept:], sticky=NEVER)
        code = pack(m, truncated, o, RN, OFF, None)
        return code | Cat(number.nan.replicate(o.width - 1), NEVER)

    def _scale(self, m: Module, code: Value, name: str) -> Raw:
        """Return the magnitude of a scale of the block ``a`` or ``b``."""
        scale = as_raw(m, unpack(m, code, getattr(self.spec, name).scale, f"{name}_scale"), name)
        return replace(scale, sign=NEVER)

    def _groups(self, m: Module, factors: Factors, codes: Mapping[str, Value]) -> list[aligned.Term]:
        """Return exact sums of products times their scales; the exponent is that of the scales."""
        spec = self.spec
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
            x, y = (
                self._scale(m, codes[f"{name}_scale{first // fmt.length}"], name) for name, fmt in (("a", a), ("b", b))
            )
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

    def _scaled(self, m: Module, products: list[aligned.Term], codes: Mapping[str, Value]) -> list[aligned.Term]:
        """Return products of elements with the scales of their blocks, which are powers of two."""
        scales = [self._scale(m, codes[f"{name}_scale"], name) for name in ("a", "b")]
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
