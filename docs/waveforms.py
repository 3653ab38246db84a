"""Waveforms of units in Amaranth's simulator as SVG, in the colours of the page."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from html import escape
from itertools import groupby
from typing import Any

from amaranth.hdl import Value
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator
from diagrams import SVG, text

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import Build
from halfulp.units import Div, Mac, Mul, Streamed

CYCLE, LANE, MARGIN, LETTER = 46, 26, 70, 7.3
"""Width of a cycle, height of a lane, width of the names, and width of a letter, in pixels."""

Lanes = dict[str, list[Any]]
"""Values of signals in each cycle: None, 0 and 1 of a bit, and texts of others."""


def record(dut: Component, signals: Mapping[str, Any], inputs: Mapping[str, Sequence[Any]]) -> Lanes:
    """Simulate a design; its signals are read at the end of each cycle, where registers sample them.

    ``signals`` holds the signals of the design by the name of their lanes, ``inputs`` the numbers of some of them.
    """
    lanes: Lanes = {"clk": list(range(len(next(iter(inputs.values())))))} | {name: [] for name in signals}

    async def drive(context: Any) -> None:
        for cycle in lanes["clk"]:
            for name, values in inputs.items():
                context.set(Value.cast(signals[name]), _code(signals[name], values[cycle]))
            await context.delay(0.9e-6)
            for name, signal in signals.items():
                lanes[name].append(_shown(signal, context.get(Value.cast(signal))))
            await context.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6, phase=1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    return lanes


def _format(signal: Any) -> Format | None:
    shape = signal.shape() if hasattr(signal, "shape") else None
    return shape if isinstance(shape, Format) else None


def _code(signal: Any, value: Any) -> int:
    fmt = _format(signal)
    return int(value) if fmt is None else int(fmt.encode(Fraction(value)))


def _shown(signal: Any, code: int) -> Any:
    fmt = _format(signal)
    if fmt is None:
        return code
    number = fmt.decode(code)
    return f"{float(number):.4g}" if isinstance(number, Fraction | int | float) else str(number)


def svg(lanes: Lanes, title: str) -> str:
    """Return lanes below each other, with a line at each rising edge, as one line of SVG."""
    cycles = len(lanes["clk"])
    width, height = MARGIN + cycles * CYCLE + 8, len(lanes) * LANE + 8
    parts = [f"<title>{escape(title)}</title>"]
    for cycle in range(cycles + 1):
        x = MARGIN + cycle * CYCLE
        parts.append(f'<path d="M{x} 4V{height - 4}" stroke-opacity="0.25"/>')
    for lane, (name, values) in enumerate(lanes.items()):
        low, high = (lane + 1) * LANE, (lane + 1) * LANE - 17
        parts.append(text(MARGIN - 8, low - 4, name, "end"))
        if name == "clk":
            halves = "".join(f"V{high}h{CYCLE / 2:g}V{low}h{CYCLE / 2:g}" for _ in values)
            parts.append(f'<path d="M{MARGIN} {low}{halves}"/>')
        elif all(isinstance(value, int) for value in values):
            levels = "".join(f"V{high if value else low}h{CYCLE}" for value in values)
            parts.append(f'<path d="M{MARGIN} {high if values[0] else low}{levels}"/>')
        else:
            parts += _bus(values, low, high)
    return SVG.format(width=width, height=height) + "".join(parts) + "</svg></div>"


def _bus(values: Sequence[Any], low: int, high: int) -> Iterator[str]:
    """Boxes with pointed ends, one for each value."""
    x, middle = MARGIN, (low + high) / 2
    for value, some in groupby(values):
        end = x + CYCLE * len(list(some))
        yield f'<path d="M{x} {middle}L{x + 4} {high}H{end - 4}L{end} {middle}L{end - 4} {low}H{x + 4}Z"/>'
        yield text((x + end) / 2, low - 4, value, "middle")
        x = end


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Waveforms", "")
    yield "For designers who connect units: three simulations show when units take operands and give results."
    yield "A signal has the value that the rising edge at the end of a cycle samples. Numbers are decoded."
    yield ""
    for title, sentence, lanes in (_steps(), _stream(), _iterations()):
        yield from (f"## {title}", "", sentence, "", svg(lanes, title), "")


def _steps() -> tuple[str, str, Lanes]:
    mac = Mac("mac e5m2*e5m2+e6m5.rn")
    inputs = {
        "en": (1, 1, 1, 1, 0, 1, 1, 1),
        "valid": (1, 1, 0, 1, 1, 1, 1, 1),
        "clear": (1, 0, 0, 0, 0, 0, 0, 1),
        "load": (0, 0, 0, 0, 0, 1, 0, 0),
        "a": (1, 2, 3, 3, 4, 4, 1, 2),
        "b": (1, 1, 1, 1, 1, 1, 1, 2),
        "c": (0, 0, 0, 0, 0, 10, 0, 0),
    }
    sentence = (
        f"`{mac.spec}` takes operands in each cycle in which `en` and `valid` are 1. `clear` starts a sum from +0 and "
        "`load` one from `c`, without an idle cycle; the sum is in `o` one cycle later."
    )
    return (
        "Steps of an accumulator",
        sentence,
        record(mac, {name: getattr(mac, name) for name in (*inputs, "o")}, inputs),
    )


def _stream() -> tuple[str, str, Lanes]:
    stream = Streamed(Mul("mul e5m2*e5m2.rn", build=Build(pipeline=2)))
    i, o = stream.i, stream.o
    signals = {"i.valid": i.valid, "i.ready": i.ready, "i.a": i.payload.a, "i.b": i.payload.b}
    signals |= {"o.valid": o.valid, "o.ready": o.ready, "o.o": o.payload.o}
    inputs = {
        "i.valid": (1, 1, 0, 1, 1, 1, 0, 0, 0),
        "i.a": (1, 2, 0, 3, 3, 4, 0, 0, 0),
        "i.b": (2, 2, 0, 2, 2, 2, 0, 0, 0),
        "o.ready": (1, 1, 1, 0, 1, 1, 1, 1, 1),
    }
    sentence = (
        "`Streamed` of a product with two register stages. A transfer happens where `valid` and `ready` are 1. A "
        "result waits while `o.ready` is 0, and so do the stages before it: `i.ready` is 0, and the operands stay."
    )
    return "Stream with back-pressure", sentence, record(stream, signals, inputs)


def _iterations() -> tuple[str, str, Lanes]:
    div = Div("div e5m2/e5m2.rn", build=Build(iterations=2))
    inputs = {
        "valid": (1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0),
        "a": (3, 5, 5, 5, 5, 5, 5, 0, 0, 0, 0, 0),
        "b": (2, 4, 4, 4, 4, 4, 4, 1, 1, 1, 1, 1),
    }
    signals = {"ready": div.ready, **{name: getattr(div, name) for name in inputs}, "o": div.o}
    sentence = (
        f"`{div.spec}` with two bits in a cycle takes operands where `ready` and `valid` are 1. The result is in `o` "
        f"{div.latency} cycles later, where `ready` is 1 again, until the next operands are taken."
    )
    lanes = record(div, signals, inputs)
    lanes["o"] = [
        # Digits of a division that is not complete are no result.
        value if ready and cycle else ""
        for cycle, ready, value in zip(lanes["clk"], lanes["ready"], lanes["o"], strict=True)
    ]
    return "Iterative unit", sentence, lanes
