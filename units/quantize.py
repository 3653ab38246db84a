"""Conversions between numbers and blocks with a shared scale."""

from dataclasses import replace
from typing import NamedTuple, Unpack

from amaranth.hdl import Cat, Const, Module, Mux, Value

from halfulp.hdl import block
from halfulp.hdl.formats import Block, Format
from halfulp.hdl.number import as_raw, multiply, pack, truncate, unpack
from halfulp.hdl.rows import Iterated, Rows
from halfulp.hdl.specs import BlockDequantizeSpec, BlockQuantizeSpec, Build
from halfulp.hdl.wire import word_at

from .base import Options, Unit, numbered


class Elements(NamedTuple):
    """State of a quantisation between two elements; the last element is in the lowest bits of ``elements``.

    ``numbers`` and ``words`` are the operands and random words of the elements that follow.
    """

    numbers: Value
    words: Value
    elements: Value


class BlockQuantize(Unit):
    """Conversion of numbers to a block, with a scale from the largest magnitude.

    Formula
    -------
    ``o_scale = scale(max(|a0|, |a1|, ...))`` by the rule of the block; ``oi = round(ai / o_scale)``, which saturates.

    Parameters
    ----------
    a, o
        Fields of `BlockQuantizeSpec`; formats and roundings may be texts.
    build : Build
        Register stages or iterations; changes ``latency`` and no result bit. ``iterations=n`` rounds n elements in a
        cycle, in the cycles after the one that finds the scale.
    **options
        Rounding and random source; see `Options`. ``saturate`` must be false, because elements saturate in any case.

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
    ``stages`` cycles, one block per cycle; with ``build.iterations``, one cycle and those of the iterations per block.

    Source
    ------
    Rules of scales: Rouhani et al., 2023. Division: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = BlockQuantizeSpec

    def __init__(self, *, a: Format | str, o: Block | str, build: Build = Build(), **options: Unpack[Options]) -> None:
        spec = BlockQuantizeSpec.of(a=a, o=o, **options)
        length = spec.o.length
        super().__init__(
            spec,
            inputs=dict.fromkeys(numbered("a", length), spec.a),
            outputs=dict.fromkeys(numbered("o", length), spec.o.element) | {"o_scale": spec.o.scale},
            build=build,
            steps=length,
        )
        self._add_vectors(**{name: numbered(name, length) for name in "ao"})

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
                m, truncate(m, quotient, result.element, spec.rounding), result.element, spec.rounding, True, random
            )
            return {"o": Mux(special, Const(element_code, result.element.width), code)[: result.element.width]}

        def row(m: Module, state: Elements, place: int) -> Elements:
            operands = {"a": state.numbers[: spec.a.width], "special": special} | of_scale
            operands |= {"random": state.words[: spec.rounding.bits]} if spec.rounding.bits else {}
            found = self.part(m, f"lane{place}", "lane", lane, **operands)["o"]
            return Elements(
                state.numbers.shift_right(spec.a.width),
                state.words.shift_right(spec.rounding.bits),
                Cat(found, state.elements)[: len(state.elements)],
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


class BlockDequantize(Unit):
    """Conversion of a block to numbers: each element times the scale, rounded once; one block per cycle.

    Formula
    -------
    ``oi = round(ai * a_scale)``

    Parameters
    ----------
    a, o
        Fields of `BlockDequantizeSpec`; formats and roundings may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

    Members
    -------
    a0, a1, ... : In(a.element)
        Also as the list ``a``.
    a_scale : In(a.scale)
    random0, random1, ... : In(rounding.bits)
        Random words of the results.
    o0, o1, ... : Out(o)
        Also as the list ``o``.

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockDequantizeSpec

    def __init__(self, *, a: Block | str, o: Format | str, build: Build = Build(), **options: Unpack[Options]) -> None:
        spec = BlockDequantizeSpec.of(a=a, o=o, **options)
        length = spec.a.length
        super().__init__(
            spec,
            inputs=dict.fromkeys(numbered("a", length), spec.a.element) | {"a_scale": spec.a.scale},
            outputs=dict.fromkeys(numbered("o", length), spec.o),
            build=build,
            multiplies=True,
        )
        self._add_vectors(**{name: numbered(name, length) for name in "ao"})

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
            found = self.part(m, f"lane{index}", "lane", lane, **operands)
            m.d.comb += self.o[index].as_value().eq(found["o"])
