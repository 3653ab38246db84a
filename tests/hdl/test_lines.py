"""Selection of line segments: searches and tables on every key."""

from bisect import bisect_right
from random import Random

import pytest
from amaranth.hdl import Const, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from halfulp.hdl import lines


class Lookup(wiring.Component):
    """Component with a function of a key."""

    def __init__(self, key, function, width):
        self.function = function
        super().__init__({"key": In(key), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.function(m, self.key))
        return m


def results(key, function, width):
    """Return the results for all keys in ascending order."""
    dut, found = Lookup(key, function, width), []
    numbers = range(-(1 << key.width - 1), 1 << key.width - 1) if key.signed else range(1 << key.width)

    async def drive(context):
        for number in numbers:
            context.set(dut.key, number)
            found.append(context.get(dut.o))

    simulator = Simulator(dut)
    simulator.add_testbench(drive)
    simulator.run()
    return dict(zip(numbers, found, strict=True))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9])
def test_search_counts_thresholds_at_most_the_key(count, signed, fast):
    key, random = Shape(9, signed), Random(f"{count} {signed}")
    thresholds = sorted(random.sample(range(-200 if signed else 1, 250), count))
    found = results(key, lambda m, value: lines.search(m, value, thresholds, "piece", fast=fast), 5)
    for number, index in found.items():
        reached = bisect_right(thresholds, number)
        assert index == reached or (reached == count and index > count), (number, thresholds)


def test_fast_search_compares_with_both_thresholds_of_the_last_step(monkeypatch):
    compared = []
    reaches = lines._reaches

    def counted(key, index, thresholds):
        compared.append(len(index))
        return reaches(key, index, thresholds)

    monkeypatch.setattr(lines, "_reaches", counted)
    for fast, indexes in ((False, [0, 1, 2]), (True, [0, 1, 1, 1])):
        compared.clear()
        lines.search(Module(), Const(0, 9), range(10, 80, 10), "piece", fast=fast)
        assert compared == indexes, fast


@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize("width", range(1, 8))
def test_table_gives_the_value_of_every_index(width, searched):
    random = Random(width)
    values = [random.randrange(-50, 50) for _ in range(1 << width)]
    found = results(Shape(width), lambda m, index: lines.table(index, values, searched=searched), Shape(8, signed=True))
    assert list(found.values()) == values
