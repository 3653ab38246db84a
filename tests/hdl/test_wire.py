"""Operators on words, for all values of narrow operands."""

from collections.abc import Callable

import pytest
from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.sim import Simulator

from halfulp.hdl.lines import SHORT_KEY, search
from halfulp.hdl.wire import bounds, narrowed, reaches


def results(shape: Shape, make: Callable[[Module, Value], dict[object, Value]]) -> list[tuple[int, dict[object, int]]]:
    """Return each number of a shape, with the numbers that are made of it."""
    m, operand = Module(), Signal(shape)
    made = make(m, operand)
    signals = {key: Signal(value.shape()) for key, value in made.items()}
    m.d.comb += [signal.eq(made[key]) for key, signal in signals.items()]
    found = []

    async def drive(context):
        low, high = bounds(operand)
        for number in range(low, high + 1):
            context.set(operand, number)
            found.append((number, {key: context.get(signal) for key, signal in signals.items()}))

    simulator = Simulator(m)
    simulator.add_testbench(drive)
    simulator.run()
    return found


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_constant_is_reached_by_numbers_from_it(width, signed):
    constants = range(-(1 << width) - 1, (1 << width) + 2)
    made = results(Shape(width, signed), lambda _, x: {constant: reaches(x, constant) for constant in constants})
    assert len(made) == 1 << width
    for number, found in made:
        assert found == {constant: number >= constant for constant in constants}


def test_constants_of_one_run_of_ones_need_no_comparison():
    operand = Signal(9)
    assert "(>=" not in repr([reaches(operand, least) for least in (1, 2, 0xFF, 0xFE, 0x100, 0x1FF)])
    assert "(>=" in repr(reaches(operand, 0xFD))


@pytest.mark.parametrize("signed", [False, True])
def test_narrowed_numbers_keep_their_value(signed):
    """A sum of a number and a constant has more bits than its bounds need."""

    def make(_, x):
        low, high = bounds(x)
        return {more: narrowed(x + more, low + more, high + more) for more in range(-9, 10) if signed or more >= 0}

    for number, found in results(Shape(4, signed), make):
        assert found == {more: number + more for more in found}
    made = make(None, Signal(Shape(4, signed)))
    widths = {more: len(value) for more, value in made.items()}
    assert (widths[0], widths[1]) == (4, 5)
    assert all(width <= len(Signal(Shape(4, signed)) + more) for more, width in widths.items())


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("count", range(1, 10))
def test_search_counts_reached_thresholds(count, signed):
    """Keys that reach all thresholds may have any larger number."""
    shape = Shape(SHORT_KEY + 2, signed)
    low, high = bounds(Signal(shape))
    step = (high - low) // (count + 1)
    choices = {
        "far apart": [low + step * (place + 1) | 1 for place in range(count)],
        "at the end": [high - 2 * place for place in reversed(range(count))],
        "at the start": [low + 3 * place + 1 for place in range(count)],
        "beyond": [*[low + 5 * place + 3 for place in range(count - 1)], high + 1],
    }
    made = results(shape, lambda m, x: {name: search(m, x, given, "place") for name, given in choices.items()})
    for key, found in made:
        for name, given in choices.items():
            expected = sum(threshold <= key for threshold in given)
            assert found[name] == expected or min(found[name], expected) == count
