"""Dot products of k pairs."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from amaranth.hdl import Const, Module, Value

from halfulp.hdl import aligned, sum_by_words, tree
from halfulp.hdl.eager import Sum
from halfulp.hdl.formats import Float, Format
from halfulp.hdl.number import Number, add, align, as_raw, multiply, normalises
from halfulp.hdl.raw import Raw
from halfulp.hdl.round import chosen_by
from halfulp.hdl.specs import DotSpec, ValueRange
from halfulp.hdl.specs.build import SPEED
from halfulp.hdl.specs.dot import EXACT, SEQUENTIAL, Alignment
from halfulp.hdl.wire import NEVER

from .base import Unit
from .described import Described

Rounded = tuple[Value, Value | None]
"""The code of a result, and its exception flags."""

NARROW = 8
"""Maximum width of formats whose aligned products are placed on a grid of even exponents."""


class Dot(Described):
    """Dot product c + a0 * b0 + a1 * b1 + ... of k pairs, one per cycle.

    Formula
    -------
    Order ``exact``: ``o = round(c + a0 * b0 + a1 * b1 + ...)``. Order ``sequential``:
    ``o = round(... round(round(c + a0 * b0) + a1 * b1) ...)``. Orders ``alignedF.trunc`` and ``alignedF.floor``:
    ``o = round(t(c) + t(a0 * b0) + t(a1 * b1) + ...)``, where ``t`` removes bits below those of the largest exponent.

    Members
    -------
    a0, a1, ... : In(a)
        Also as the list ``a``.
    b0, b1, ... : In(b)
        Also as the list ``b``.
    c : In(c)
        Start value. Absent without ``c``.
    o : Out(o)
    flags : Out(5)
        Exception flags; in order ``sequential`` those of all steps together. Absent without ``flags``.

    Source
    ------
    Rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = DotSpec
    multiplies = True

    @property
    def sums(self) -> list[Sum]:
        """Sums of sequential order: the first adds to the start value, later ones to the previous sum."""
        spec = self.spec
        bases = [spec.c or spec.o, *([spec.o] if spec.k > 1 else [])] if spec.order == SEQUENTIAL else []
        return [Sum(((spec.a, spec.b), (base,)), spec.o, spec.rounding) for base in bases]

    @property
    def goals(self) -> tuple[str, ...]:
        return (SPEED,) if self.spec.order != SEQUENTIAL and self.spec.o.is_floating_point else ()

    def factors(self, m: Module) -> list[tuple[Value, Value]]:
        """Return the codes of each pair of factors."""
        return [(a.as_value(), b.as_value()) for a, b in zip(self.a, self.b, strict=True)]

    def logic(self, m: Module) -> None:
        spec = self.spec
        start = Const(spec.o.encode(0), spec.o.width) if spec.c is None else self.c.as_value()
        compute = {EXACT: self._exact, SEQUENTIAL: self._sequential}.get(spec.order, self._aligned)
        code, flags = compute(m, start)
        m.d.comb += self.o.as_value().eq(code)
        if flags is not None:
            m.d.comb += self.flags.eq(flags)

    def _pair(self, m: Module, a: Value, b: Value) -> tuple[Number, Number]:
        return self.number_of(m, a, self.spec.a, "a"), self.number_of(m, b, self.spec.b, "b")

    @property
    def _by_words(self) -> bool:
        """True if an exact sum is split into words.

        Sums into fixed point are not: they need the signed sum and not its magnitude.
        Products of two fixed-point numbers are signed, and not shifted: a longer adder is a small part of their path.
        Words save two cells of the path of ``dot4 e5m2*e5m2``, for 7% more LUTs. A start value in a format as wide as
        fp32 takes more words than the products have: ``dot8 e5m2*e5m2+fp32`` would take 20% more LUTs.
        """
        spec = self.spec
        many = spec.k > tree.CHAIN
        placed = not spec.a.spacing == spec.b.spacing == "uniform"
        ranges = [spec.terms] if spec.c is None else [spec.terms, ValueRange.of(spec.c)]
        wide = max(tree.bits_of(each, spec.quire.quantum) for each in ranges) in sum_by_words.WIDTHS
        return many and placed and wide and normalises(spec.o)

    def _exact(self, m: Module, start: Value) -> Rounded:
        """Add all products exactly on one fixed-point scale, then round once."""
        spec, quantum = self.spec, self.spec.quire.quantum
        random, by_words = self.word(m), self._by_words
        terms = product_terms(self, m, self.factors(m), quantum, spec.terms, by_words=by_words)
        if spec.c is not None:
            c, first = self.number_of(m, start, spec.c, "start"), terms[0].sign if by_words else None
            terms.append(tree.Term(**tree.of_number(m, c, quantum, ValueRange.of(spec.c), first)))
        zero_sign = tree.sign_of_zero([term.sign for term in terms], self.rounding, from_zero=spec.c is None)
        if not normalises(spec.o) and not isinstance(terms[0].negative, Const):
            # Fixed point needs the sum itself, not one that is to be negated.
            terms.insert(0, tree.Term(Const(0, 1), NEVER, NEVER, NEVER, NEVER))
        total = sum_by_words.total(m, terms, chained=not self.fast) if by_words else tree.total(m, terms)
        if not normalises(spec.o):
            return self.rounded_with_flags(m, tree.as_fixed(m, total, quantum, zero_sign), random)
        bits = tree.bits_of(spec.sums, quantum)
        # The rounding to a posit ends with an adder, which is also on the path that words shorten.
        fast = self.fast or (by_words and spec.o.rounds == "string")
        return self.rounded_with_flags(m, tree.as_raw(m, total, quantum, bits, zero_sign, fast=fast), random)

    def _aligned(self, m: Module, start: Value) -> Rounded:
        """Truncate all terms on the scale of the largest exponent, add them and round once."""
        spec, random = self.spec, self.word(m)
        groups = [aligned_products(self, m, self.factors(m), (spec.a, spec.b))]
        if spec.c is not None:
            groups.append([aligned_start(self, m, start, spec.c)])
        if self._on_grid:
            second = tree.are_second(spec.k, chained=not self.fast)
            return self.rounded_with_flags(m, self._summed_on_grid(m, groups[0], second), random)
        return self.rounded_with_flags(m, aligned_sum(self, m, groups, spec.alignment), random)

    @property
    def _on_grid(self) -> bool:
        """True if the terms of an aligned sum are placed on a grid of even exponents.

        For 5 to 32 products of formats of up to 8 bits, that saves three cells of the path in the mean, for 4% more
        LUTs. Four products gain nothing in the mean, and wider formats have a longer path.
        """
        spec = self.spec
        narrow = max(spec.a.width, spec.b.width) <= NARROW and spec.k > tree.CHAIN
        return self.fast and narrow and spec.c is None and not spec.alignment.floor

    def _summed_on_grid(self, m: Module, terms: Sequence[aligned.Term], second: Sequence[bool]) -> Raw:
        alignment = self.spec.alignment
        distances, top, odd = aligned.scale_on_grid(m, terms)
        placed = []
        for index, (term, distance, is_second) in enumerate(zip(terms, distances, second, strict=True)):
            place = partial(aligned.place_on_grid, alignment=alignment, fraction=term.fraction, is_second=is_second)
            operands = {"significand": term.significand, "odd": term.exponent[0], "distance": distance}
            operands["largest_is_odd"] = odd
            kind = "second_term" if is_second else "term"
            placed.append(self.part(m, f"term{index}", kind, place, **operands)["integer"])
        # The sum is scaled by the odd number above the largest even exponent, which can be above the largest exponent.
        groups = [[replace(term, emax=term.emax + 1) for term in terms]]
        on_grid = replace(alignment, fraction=alignment.fraction + 1)
        return aligned.summed(m, groups, placed, top, terms[0].base + 1, on_grid, fast=self.fast)

    def _sequential(self, m: Module, start: Value) -> Rounded:
        """Multiply and add one pair after the other, rounding after each; a flag of one sum is one of the result."""
        spec = self.spec
        words = [self.word(m, f"random{index}") for index in range(spec.k)]
        code, fmt, flags = start, spec.c or spec.o, None

        def step(
            m: Module, a: Value, b: Value, base: Value, random: Value | None = None, mode: Value | None = None
        ) -> dict[str, Value]:
            rounding = chosen_by(spec.unit_rounding, mode)
            product = multiply(m, *self._pair(m, a, b), dsp=self.build.dsp, to=fmt)
            aligned = align(m, product, self.number_of(m, base, fmt, "base"), spec.o, rounding)
            total, random = add(m, aligned, spec.o, rounding, random, self.stochastic)
            code, flags = self.rounded_with_flags(m, total, random, rounding)
            return {"o": code} | ({} if flags is None else {"flags": flags})

        for index, ((a, b), word) in enumerate(zip(self.factors(m), words, strict=True)):
            operands = {"a": a, "b": b, "base": code}
            operands |= {} if word is None else {"random": word}
            operands |= {} if self.mode is None else {"mode": self.mode}
            results = self.part(m, f"step{index}", "step" if fmt == spec.o else "first_step", step, **operands)
            if spec.flags:
                flags = results["flags"] if flags is None else flags | results["flags"]
            # From the second step on, the base has the result format.
            code, fmt = results["o"], spec.o
        return code, flags


def _raw(unit: Unit, m: Module, code: Value, fmt: Format, name: str) -> Raw:
    return as_raw(m, unit.number_of(m, code, fmt, name), name)


def aligned_products(
    unit: Unit, m: Module, factors: Sequence[tuple[Value, Value]], formats: tuple[Float, Float]
) -> list[aligned.Term]:
    """Return the products of pairs of codes as terms of an aligned sum."""
    first, second = formats

    def product(m: Module, a: Value, b: Value) -> dict[str, Value]:
        x, y = _raw(unit, m, a, first, "a"), _raw(unit, m, b, second, "b")
        return aligned.multiply(m, x, y, dsp=unit.build.dsp, flags=bool(unit.spec.flags))

    products = [unit.part(m, f"product{index}", "product", product, a=a, b=b) for index, (a, b) in enumerate(factors)]
    return [aligned.Term.of(first, second, **product) for product in products]


def aligned_start(unit: Unit, m: Module, code: Value, fmt: Float) -> aligned.Term:
    """Return the start value of an aligned sum from its code."""
    return aligned.Term.of(fmt, **aligned.single(_raw(unit, m, code, fmt, "start")))


def aligned_sum(
    unit: Unit, m: Module, groups: Sequence[Sequence[aligned.Term]], alignment: Alignment, zero: int | None = None
) -> Raw:
    """Return the sum of products and of a start value, truncated on the scale of the largest exponent.

    Terms that are zero have the exponent ``zero``, or none.
    """
    second = tree.are_second(sum(map(len, groups)), chained=not unit.fast)
    distances, top, base = aligned.scale(m, groups, zero)
    placed: list[Value] = []
    for group, of_group, name in zip(groups, distances, ("term", "start"), strict=False):
        of_second = second[len(placed) :][: len(group)]
        placed += aligned_placed(unit, m, group, of_group, alignment, of_second, name)
    return aligned.summed(m, groups, placed, top, base, alignment, fast=unit.fast, zero=zero)


def aligned_placed(
    unit: Unit,
    m: Module,
    terms: Sequence[aligned.Term],
    distances: Sequence[Value],
    alignment: Alignment,
    second: Sequence[bool],
    name: str,
) -> list[Value]:
    """Return terms of one format that are shifted down by their distances and truncated; see `aligned.place`."""
    placed = []
    for index, (term, distance, is_second) in enumerate(zip(terms, distances, second, strict=True)):
        is_second = is_second and not alignment.floor
        place = partial(aligned.place, alignment=alignment, fraction=terms[0].fraction, is_second=is_second)
        kind = f"second_{name}" if is_second else name
        operands = {"sign": term.sign, "significand": term.significand, "distance": distance}
        placed.append(unit.part(m, f"{name}{index}", kind, place, **operands)["integer"])
    return placed


def product_terms(
    unit: Unit,
    m: Module,
    factors: Sequence[tuple[Value, Value]],
    quantum: int,
    products: ValueRange,
    *,
    by_words: bool = False,
) -> list[tree.Term]:
    """Return the products of codes of ``a`` and ``b`` of a unit as terms in units of ``2^quantum``.

    ``products`` is the range of them all. With ``by_words``, they are terms of a sum by words.
    """
    spec = unit.spec

    def product(m: Module, a: Value, b: Value, first: Value | None = None) -> dict[str, Value]:
        pair = unit.number_of(m, a, spec.a, "a"), unit.number_of(m, b, spec.b, "b")
        return tree.of_product(m, *pair, quantum, products, dsp=unit.build.dsp, flags=bool(spec.flags), first=first)

    terms: list[tree.Term] = []
    for index, (a, b) in enumerate(factors):
        first = {"first": terms[0].sign} if by_words and terms else {}
        kind = "later_term" if first else "term"
        terms.append(tree.Term(**unit.part(m, f"term{index}", kind, product, a=a, b=b, **first)))
    return terms
