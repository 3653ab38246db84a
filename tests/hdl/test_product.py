"""Multiplication in rows: every pair of short factors, and long random and extreme factors."""

import itertools
import random

import pytest
from amaranth.hdl import Cat, Const, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from halfulp.hdl.product import plus_is_smaller, product, product_plus


class Product(wiring.Component):
    """Component with one product."""

    def __init__(self, x, y, *, table=False):
        self.table = table
        super().__init__({"x": In(x), "y": In(y), "o": Out(Shape(x.width + y.width, x.signed or y.signed))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(product(m, self.x, self.y, "row", dsp=False, table=self.table))
        return m


class Sum(wiring.Component):
    """Component with the sum of a product and an addend, modulo a power of two."""

    def __init__(self, x, y, width):
        super().__init__({"x": In(x), "y": In(y), "addend": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(product_plus(m, self.x, self.y, self.addend, "row"))
        return m


def wrong_sums(x, y, width):
    """Return the operands whose sum is wrong: all factors, each with the least, a middle and the largest addend."""
    dut, found = Sum(x, y, width), []
    addends = [0, (1 << width) // 3, (1 << width) - 1]

    async def drive(context):
        for operands in itertools.product(numbers(x), numbers(y), addends):
            for port, number in zip((dut.x, dut.y, dut.addend), operands, strict=True):
                context.set(port, number)
            p, q, r = operands
            if context.get(dut.o) != (p * q + r) % (1 << width):
                found.append(operands)

    simulator = Simulator(dut)
    simulator.add_testbench(drive)
    simulator.run()
    return found


def wrong(x, y, pairs, **options):
    """Return the pairs whose product is wrong."""
    dut, found = Product(x, y, **options), []

    async def drive(context):
        for p, q in pairs:
            context.set(dut.x, p)
            context.set(dut.y, q)
            if context.get(dut.o) != p * q:
                found.append((p, q))

    simulator = Simulator(dut)
    simulator.add_testbench(drive)
    simulator.run()
    return found


def numbers(shape):
    return range(-(1 << shape.width - 1) if shape.signed else 0, 1 << shape.width - shape.signed)


@pytest.mark.parametrize("x_signed", [False, True])
@pytest.mark.parametrize("y_signed", [False, True])
def test_product_of_short_factors_is_exact(x_signed, y_signed):
    for widths in ((4, 3), (4, 4), (3, 5), (5, 5), (6, 4), (5, 6), (2, 5), (4, 2)):
        x, y = Shape(widths[0], x_signed), Shape(widths[1], y_signed)
        assert wrong(x, y, [(p, q) for p in numbers(x) for q in numbers(y)]) == [], widths


def test_product_from_a_table_is_exact():
    for widths in ((4, 3), (3, 4), (4, 4), (5, 4)):
        x, y = Shape(widths[0]), Shape(widths[1])
        assert wrong(x, y, [(p, q) for p in numbers(x) for q in numbers(y)], table=True) == [], widths


@pytest.mark.slow
@pytest.mark.sampled(5, 5)
@pytest.mark.parametrize("x_signed", [False, True])
@pytest.mark.parametrize("y_signed", [False, True])
@pytest.mark.parametrize("widths", [(8, 8), (16, 16), (13, 9), (9, 16), (17, 5), (24, 24), (60, 33)])
def test_product_of_long_factors_is_exact(x_signed, y_signed, widths):
    rng = random.Random(1)
    x, y = Shape(widths[0], x_signed), Shape(widths[1], y_signed)
    ends = [(p, q) for p in (*numbers(x)[:3], *numbers(x)[-3:], 0) for q in (*numbers(y)[:3], *numbers(y)[-3:], 0)]
    some = [(rng.choice(numbers(x)), rng.choice(numbers(y))) for _ in range(300)]
    assert wrong(x, y, ends + some) == []


@pytest.mark.parametrize("signs", itertools.product([False, True], repeat=2))
def test_sum_of_product_and_addend_is_exact(signs):
    for widths, width in (((4, 3), 9), ((3, 4), 8), ((5, 5), 6), ((5, 4), 2), ((4, 3), 12)):
        assert wrong_sums(*map(Shape, widths, signs), width) == [], widths


def test_addend_enters_rows_where_these_have_fewer_adder_bits():
    assert plus_is_smaller(Const(0, 9), Const(0, 16), 22, 8)
    assert not plus_is_smaller(Const(0, 9), Const(0, 16), 24, 22)
    assert not plus_is_smaller(Const(0, 9), Const(0, 4), 24, 8)
    assert not plus_is_smaller(Const(0, 16), Const(0, 2), 4, 0)


def test_sum_comparison_detects_missing_sign_extension(monkeypatch):
    monkeypatch.setattr("halfulp.hdl.product.extended", lambda value, width: Cat(value, Const(0, width))[:width])
    assert wrong_sums(Shape(4, True), Shape(3), 9) != []


def test_product_comparison_detects_wrong_row(monkeypatch):
    monkeypatch.setattr("halfulp.hdl.product.shifted_up", lambda value, places: value)
    x = y = Shape(4, True)
    assert wrong(x, y, [(p, q) for p in numbers(x) for q in numbers(y)]) != []
