"""Dot products and multiply-accumulates of blocks of numbers with a shared scale."""

from functools import partial
from typing import Any, Literal, Unpack

from amaranth.hdl import Module

from halfulp.hdl import block, tree
from halfulp.hdl.formats import Block, Float, Format, Posit
from halfulp.hdl.number import Number, add, align, unpack
from halfulp.hdl.raw import Raw
from halfulp.hdl.specs import BlockDotSpec, BlockMacSpec, Build
from halfulp.hdl.specs.quire import CARRY_BITS

from .accumulating import Accumulating, Term
from .base import Options, Unit, numbered


def _ports(spec: Any) -> dict[str, Format]:
    """Return the ports of elements and scales."""
    elements = {port: spec.operands[name] for name in "ab" for port in numbered(name, spec.k)}
    return elements | {name: spec.operands[name] for name in ("a_scale", "b_scale")}


def _scaled_sum(unit: Any, m: Module, *, from_zero: bool) -> Raw:
    """Return the exact sum of the products of elements times the scales."""
    x, y = unit.spec.a, unit.spec.b
    scale = block.factor(m, unit.a_scale.as_value(), unit.b_scale.as_value(), x, y)
    flags = {"infinite": scale.inf} if x.scale.has_inf or y.scale.has_inf else {}
    product = partial(block.product, x=x, y=y, dsp=unit.build.dsp)
    terms = [
        tree.Term(**unit.part(m, f"term{index}", "term", product, a=a.as_value(), b=b.as_value(), **flags))
        for index, (a, b) in enumerate(zip(unit.a, unit.b, strict=True))
    ]
    return block.scaled_sum(m, terms, scale, x, y, unit.rounding, from_zero=from_zero, fast=unit.fast)


class BlockDot(Unit):
    """Dot product of two blocks, or of parts of them, with a start value: one per cycle.

    Formula
    -------
    ``o = round(c + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...))``

    Parameters
    ----------
    k, a, b, o, c
        Fields of `BlockDotSpec`; formats and roundings may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

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

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockDotSpec

    def __init__(
        self,
        *,
        k: int,
        a: Block | str,
        b: Block | str,
        o: Format | str | None = None,
        c: Format | str | None = None,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = BlockDotSpec.of(k=k, a=a, b=b, o=o, c=c, **options)
        inputs = _ports(spec) | ({"c": spec.c} if spec.c else {})
        super().__init__(spec, inputs=inputs, outputs={"o": spec.o}, build=build, multiplies=True)
        self.k = k
        self._add_vectors(**{name: numbered(name, k) for name in "ab"})

    def logic(self, m: Module) -> None:
        spec, random = self.spec, self.word(m)
        found = _scaled_sum(self, m, from_zero=spec.c is None)
        if spec.c is not None or not isinstance(spec.o, (Float, Posit)):
            found = tree.without_complement(m, found)
        total: Number = found
        if spec.c is not None:
            start = unpack(m, self.c.as_value(), spec.c, "start")
            aligned = align(m, total, start, spec.o, spec.rounding)
            total, random = add(m, aligned, spec.o, spec.rounding, random, self.stochastic)
        m.d.comb += self.o.as_value().eq(self.rounded(m, total, random))


class BlockMac(Accumulating):
    """Multiply-accumulate of blocks, with all pairs of elements or some of them in a step.

    Formula
    -------
    ``acc = round(start + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...))``, where ``start`` is ``c`` if ``load`` is set,
    +0 if ``clear`` is set, and ``acc`` otherwise. ``o = acc``; if the accumulator is exact, ``o = round(acc)``.

    Parameters
    ----------
    a, b, acc, o, carry, interleave, step
        Fields of `BlockMacSpec`; formats and roundings may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

    Members
    -------
    a0, a1, ... : In(a.element)
        Elements of a step. Also as the list ``a``.
    b0, b1, ... : In(b.element)
        Also as the list ``b``.
    a_scale : In(a.scale)
    b_scale : In(b.scale)
    c, load, clear, o
        Start value, start of a sum, and result; see `Accumulating`.

    Latency
    -------
    ``stages + 1`` cycles from operands to result; one step per cycle.

    Source
    ------
    Blocks: Rouhani et al., 2023.
    """

    SPEC = BlockMacSpec

    def __init__(
        self,
        *,
        a: Block | str,
        b: Block | str,
        acc: Format | Literal["exact"] | str,
        o: Format | str | None = None,
        carry: int = CARRY_BITS,
        interleave: int = 1,
        step: int = 0,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = BlockMacSpec.of(a=a, b=b, acc=acc, o=o, carry=carry, interleave=interleave, step=step, **options)
        super().__init__(spec, operands=_ports(spec), build=build, multiplies=True)
        self.k = spec.k
        self._add_vectors(**{name: numbered(name, spec.k) for name in "ab"})

    def term(self, m: Module) -> Term:
        """Return the product of the scales and the exact sum of the products of elements."""
        return tree.without_complement(m, _scaled_sum(self, m, from_zero=False)), None
