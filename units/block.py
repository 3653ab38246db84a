"""Blocks of numbers with a shared scale: conversions, dot products and multiply-accumulates."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Value

from halfulp.hdl import block, tree
from halfulp.hdl.formats import SAT
from halfulp.hdl.number import Number, add, align, as_raw, multiply, normalises, pack, truncate, unpack
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Iterated, Rows
from halfulp.hdl.specs import BlockDequantizeSpec, BlockDotSpec, BlockMacSpec, BlockQuantizeSpec
from halfulp.hdl.wire import word_at

from .base import Unit
from .described import Described, vector
from .running_sum import RunningSum, Term


class Elements(NamedTuple):
    """State of a quantisation between two elements; the last element is in the lowest bits of ``elements``.

    ``numbers`` and ``words`` are the operands and random words of the elements that follow.
    """

    numbers: Value
    words: Value
    elements: Value


class BlockQuantize(Described):
    """Conversion of numbers to a block, with a scale from the largest magnitude.

    Formula
    -------
    ``o_scale = scale(max(|a0|, |a1|, ...))`` by the rule of the block; ``oi = round(ai / o_scale)``, which saturates.

    Members
    -------
    a0, a1, ... : In(a)
        Also as the list ``a``.
    random0, random1, ... : In(rounding.bits)
        Random words of the elements.
    o0, o1, ... : Out(o.element)
        Also as the list ``o``.
    o_scale : Out(o.scale)

    Latency
    -------
    ``stages`` cycles; with ``build.iterations``, one cycle and those of the iterations.

    Source
    ------
    Rules of scales: Rouhani et al., 2023. Division: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = BlockQuantizeSpec

    @property
    def results(self) -> dict[str, Any]:
        o = self.spec.o
        return {"o": vector("o", o.length, o.element), "o_scale": o.scale}

    @property
    def steps(self) -> int:
        return int(self.spec.o.length)

    def logic(self, m: Module) -> None:
        spec, result = self.spec, self.spec.o
        numbers = [as_raw(m, unpack(m, a.as_value(), spec.a, f"a{i}"), f"a{i}") for i, a in enumerate(self.a)]
        largest, any_special = block.largest(m, numbers)
        element_code, scale_code = result.nan_codes
        rows = Rows(result.length)
        if self.build.iterations:
            rows = Iterated(result.length, self.build.iterations, m, self.valid, self.en)
            m.d.comb += self.ready.eq(rows.ready)
        scale = block.scale_code(m, largest, result)
        scale = rows.held(m, Mux(any_special, scale_code, scale)[: result.scale.width], "scale")
        special = rows.held(m, any_special, "special")
        m.d.comb += self.o_scale.as_value().eq(scale)
        divisor = block.divisor(m, scale, result.scale)
        of_scale = {"exponent": divisor.exponent}
        of_scale |= {} if isinstance(divisor.significand, Const) else {"significand": divisor.significand}

        def lane(
            m: Module, a: Value, special: Value, random: Value | None = None, **of_scale: Value
        ) -> dict[str, Value]:
            number = as_raw(m, unpack(m, a, spec.a, "a"), "a")
            quotient = block.quotient(m, number, replace(divisor, **of_scale), result.element, spec.rounding)
            code = pack(
                m, truncate(m, quotient, result.element, spec.rounding), result.element, spec.rounding, SAT, random
            )
            return {"o": Mux(special, Const(element_code, result.element.width), code)[: result.element.width]}

        def row(m: Module, state: Elements, place: int) -> Elements:
            operands = {"a": state.numbers[: spec.a.width], "special": special} | of_scale
            operands |= {"random": state.words[: spec.rounding.bits]} if spec.rounding.bits else {}
            code = self.part(m, f"lane{place}", "lane", lane, **operands)["o"]
            return Elements(
                state.numbers.shift_right(spec.a.width),
                state.words.shift_right(spec.rounding.bits),
                Cat(code, state.elements)[: len(state.elements)],
            )

        words = [self.word(m, f"random{index}") for index in range(result.length)]
        start = Elements(
            Cat(*(a.as_value() for a in self.a)),
            Cat(*(word for word in words if word is not None)),
            # The last cycle of an iterative form may have steps after the last element.
            Const(0, rows.count * result.element.width),
        )
        elements = rows.run(m, start, row, grows=False).elements
        for index, o in enumerate(self.o):
            m.d.comb += o.as_value().eq(word_at(elements, rows.count - 1 - index, result.element.width))


class BlockDequantize(Described):
    """Conversion of a block to numbers: each element times the scale, rounded once; one block per cycle.

    Formula
    -------
    ``oi = round(ai * a_scale)``

    Members
    -------
    a0, a1, ... : In(a.element)
        Also as the list ``a``.
    a_scale : In(a.scale)
    random0, random1, ... : In(rounding.bits)
        Random words of the results.
    o0, o1, ... : Out(o)
        Also as the list ``o``.

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockDequantizeSpec
    multiplies = True

    @property
    def results(self) -> dict[str, Any]:
        return {"o": vector("o", self.spec.a.length, self.spec.o)}

    def logic(self, m: Module) -> None:
        spec = self.spec

        def lane(m: Module, a: Value, scale: Value, random: Value | None = None) -> dict[str, Value]:
            element, factor = unpack(m, a, spec.a.element, "a"), unpack(m, scale, spec.a.scale, "scale")
            product = multiply(m, element, factor, dsp=self.build.dsp, o=spec.o, rounding=spec.rounding)
            ready = truncate(m, product, spec.o, spec.rounding)
            return {"o": pack(m, ready, spec.o, spec.rounding, spec.saturate, random)}

        for index, a in enumerate(self.a):
            word = self.word(m, f"random{index}")
            operands = {"a": a.as_value(), "scale": self.a_scale.as_value()}
            operands |= {} if word is None else {"random": word}
            results = self.part(m, f"lane{index}", "lane", lane, **operands)
            m.d.comb += self.o[index].as_value().eq(results["o"])


def _scaled_sum(unit: Unit, m: Module, *, from_zero: bool) -> Raw:
    """Return the exact sum of the products of elements times the scales."""
    x, y = unit.spec.a, unit.spec.b
    scale = block.factor(m, unit.a_scale.as_value(), unit.b_scale.as_value(), x, y)
    flags = {"infinite": scale.inf} if x.scale.has_inf or y.scale.has_inf else {}
    product = partial(block.product, x=x, y=y, dsp=unit.build.dsp)
    terms = [
        tree.Term(**unit.part(m, f"term{index}", "term", product, a=a.as_value(), b=b.as_value(), **flags))
        for index, (a, b) in enumerate(zip(unit.a, unit.b, strict=True))
    ]
    return block.scaled_sum(m, terms, scale, (x, y), unit.rounding, from_zero=from_zero, fast=unit.fast)


class BlockDot(Described):
    """Dot product of two blocks, or of parts of them, with a start value: one per cycle.

    Formula
    -------
    ``o = round(c + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...))``

    Members
    -------
    a0, a1, ... : In(a.element)
        Also as the list ``a``.
    b0, b1, ... : In(b.element)
        Also as the list ``b``.
    a_scale : In(a.scale)
    b_scale : In(b.scale)
    c : In(c)
        Start value. Absent without ``c``.
    o : Out(o)

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockDotSpec
    multiplies = True

    def logic(self, m: Module) -> None:
        spec, random = self.spec, self.word(m)
        scaled = _scaled_sum(self, m, from_zero=spec.c is None)
        if spec.c is not None or not normalises(spec.o):
            scaled = tree.without_complement(m, scaled)
        total: Number = scaled
        if spec.c is not None:
            start = unpack(m, self.c.as_value(), spec.c, "start")
            aligned = align(m, total, start, spec.o, spec.rounding)
            total, random = add(m, aligned, spec.o, spec.rounding, random, self.stochastic)
        m.d.comb += self.o.as_value().eq(self.rounded(m, total, random))


class BlockMac(RunningSum):
    """Multiply-accumulate of blocks, with all pairs of elements or some of them in a step.

    Formula
    -------
    ``acc = round(start + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...))``, where ``start`` is ``c`` if ``load`` is set,
    +0 if ``clear`` is set, and ``acc`` otherwise. ``o = acc``; if the accumulator is exact, ``o = round(acc)``.

    Members
    -------
    a0, a1, ... : In(a.element)
        Elements of a step. Also as the list ``a``.
    b0, b1, ... : In(b.element)
        Also as the list ``b``.
    a_scale : In(a.scale)
    b_scale : In(b.scale)

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockMacSpec

    def term(self, m: Module) -> Term:
        """Return the product of the scales and the exact sum of the products of elements."""
        return tree.without_complement(m, _scaled_sum(self, m, from_zero=False)), None
