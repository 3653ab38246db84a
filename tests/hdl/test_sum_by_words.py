"""Sums of wide terms by words: carries between words, signs, and the dot products that use them."""

import random

import pytest
from amaranth.hdl import Cat, Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from halfulp.hdl import sum_by_words
from halfulp.hdl.specs import DotSpec
from halfulp.hdl.tree import Term
from halfulp.hdl.wire import NEVER, wire
from tests.every_unit import rounded, rtl_mismatches


class Sum(wiring.Component):
    """Component with the sum of terms, given as magnitudes and signs."""

    def __init__(self, count, width, *, chained):
        self.count, self.width, self.chained = count, width, chained
        ports = {f"x{index}": In(width) for index in range(count)}
        super().__init__({**ports, "signs": In(count), "o": Out(signed(width + count.bit_length() + 1))})

    def elaborate(self, platform):
        m = Module()
        terms = []
        for index, sign in enumerate(self.signs):
            x, inverted = getattr(self, f"x{index}"), sign ^ self.signs[0]
            integer = Cat(x ^ inverted.replicate(self.width), inverted).as_signed() if index else x
            integer = wire(m, integer, f"integer{index}")
            terms.append(Term(integer, sign, sign, NEVER, NEVER, inverted=inverted if index else NEVER))
        found = sum_by_words.total(m, terms, chained=self.chained)
        m.d.comb += self.o.eq(found.integer)
        return m


def operands(count, width):
    """Return magnitudes and signs whose carries pass through all words, stop in any, or come from every adder."""
    ones, source = (1 << width) - 1, random.Random(width * count)
    found = [
        ([ones] * count, [bool(signs >> index & 1) for index in range(count)]) for signs in (0, 1, 2, (1 << count) - 2)
    ]
    for bit in range(0, width, 9):
        found.append(([1 << bit] * count, [False, *[True] * (count - 1)]))
        found.append(([ones, 1 << bit, *[0] * (count - 2)], [False] * count))
        found.append(([1 << bit, 1, *[1] * (count - 2)], [False, *[True] * (count - 1)]))
    for _ in range(40):
        magnitudes = [source.getrandbits(width) >> source.randrange(width) for _ in range(count)]
        found.append((magnitudes, [source.random() < 0.5 for _ in range(count)]))
    return found


def wrong(count, width, *, chained):
    """Return the operands whose sum, relative to the first term, is wrong."""
    dut, found = Sum(count, width, chained=chained), []

    async def drive(context):
        for magnitudes, signs in operands(count, width):
            for index, magnitude in enumerate(magnitudes):
                context.set(getattr(dut, f"x{index}"), magnitude)
            context.set(dut.signs, sum(sign << index for index, sign in enumerate(signs)))
            expected = sum(-x if sign != signs[0] else x for x, sign in zip(magnitudes, signs, strict=True))
            if context.get(dut.o) != expected:
                found.append((magnitudes, signs))

    simulator = Simulator(dut)
    simulator.add_testbench(drive)
    simulator.run()
    return found


@pytest.mark.parametrize(("count", "chained"), [(2, False), (5, True), pytest.param(8, False, marks=pytest.mark.slow)])
def test_sum_by_words_is_exact(count, chained):
    assert wrong(count, 97 - count, chained=chained) == []


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("width", [61, 75, 94])
def test_sum_of_many_terms_is_exact(width, chained):
    for count in (3, 4, 7, 9):
        assert wrong(count, width, chained=chained) == [], count


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dropped", ["incremented", "counted"])
def test_comparison_detects_dropped_carries_between_words(monkeypatch, dropped):
    """Without the carry from all lower words, or without those counted of the next lower one, sums are wrong."""
    broken = {"incremented": lambda m, value, up, name: value, "counted": lambda m, conditions, name: Cat(NEVER)}
    monkeypatch.setattr(sum_by_words, dropped, broken[dropped])
    assert wrong(5, 80, chained=True)


TEXTS = (
    "dot5 e5m2*e5m2=bf16",
    "dot5 e5m2fnuz*e5m2+e5m2=fp16",
    "dot6 e5m2*fp16+int16=fp16",
    "dot7 posit8*e5m2=posit8",
    "dot5 posit8*e5m2+posit6e1=e4m3fn",
)


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize("text", [TEXTS[0], *(pytest.param(text, marks=pytest.mark.slow) for text in TEXTS[1:])])
def test_dot_by_words_matches_golden(text):
    """Terms of several families, and start values of other widths; modes of all kinds in the slow cases."""
    modes = ("rn",) if text == TEXTS[0] else ("rn", "rz", "rd", "ro", "sr3")
    specs = [rounded(DotSpec.parse(text), mode) for mode in modes]
    checks, failed = rtl_mismatches({spec: spec for spec in specs}, most_bits=16, count=1 << 14)
    assert not failed
    assert checks
