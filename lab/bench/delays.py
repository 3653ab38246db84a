# amaranth: UnusedElaboratable=no
"""Delays of operators after place and route, and the constants of the delay model that fit them best."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import Module as Source
from halfulp.fpga.synth.measure import module_of
from halfulp.fpga.synth.registered import Registered
from halfulp.fpga.synth.route import frequencies
from halfulp.hdl.dataflow import Dataflow
from halfulp.hdl.delay import ECP5, DelayModel
from halfulp.hdl.product import product
from halfulp.hdl.wire import leading_zeros, lookup, shift_left, shift_right_sticky
from halfulp.implementation import Implementation
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

TARGET = TARGETS["ecp5-85k"]

FITTED = ("level", "apart", "chain", "fanout")
"""Constants of the model that are fitted: those with nets. The others are nextpnr's delays of cells; that of a register
includes an allowance, because the slowest of many paths has longer nets."""

Logic = Callable[[Module, Value, Value, Value], Value]
"""Returns the result of an operator for two operands and a control word."""

OPERATORS: dict[str, tuple[Logic, tuple[int, ...]]] = {
    "add": (lambda m, a, b, by: a + b, (8, 16, 32, 64)),
    "add twice": (lambda m, a, b, by: (a + b) + Mux(by[0], a, ~a), (8, 16, 32)),
    "select": (lambda m, a, b, by: Mux(by[0], a, b), (8, 32)),
    "select sum": (lambda m, a, b, by: Mux(by[1], Mux(by[0], a, b) + b, a ^ b), (8, 16, 32)),
    "shift left": (lambda m, a, b, by: shift_left(m, a, by, "shifted"), (8, 16, 32, 64)),
    "shift right": (lambda m, a, b, by: shift_right_sticky(m, a, by, "shifted")[0], (8, 16, 32)),
    "sticky bit": (lambda m, a, b, by: shift_right_sticky(m, a, by, "shifted")[1], (8, 16, 32)),
    "leading zeros": (lambda m, a, b, by: leading_zeros(m, a, "zeros"), (8, 16, 32, 64)),
    "normalise": (lambda m, a, b, by: shift_left(m, a, leading_zeros(m, a, "zeros"), "shifted"), (8, 16, 32)),
    "compare": (lambda m, a, b, by: a < b, (8, 16, 32)),
    "larger": (lambda m, a, b, by: Mux(a < b, b, a), (8, 16, 32)),
    "equal": (lambda m, a, b, by: a == b, (8, 16, 32)),
    "table": (lambda m, a, b, by: lookup(a, [pow(3, code, 257) for code in range(1 << len(a))]), (4, 5, 6, 7)),
    "multiply": (lambda m, a, b, by: product(m, a, b, "product", dsp=False), (4, 8, 12, 16)),
}
"""Operators, and the widths of their operands that are measured."""

UNITS = ("fma fp16*fp16+fp16.rn", "add fp32+fp32.rn", "mul bf16*bf16.rn", "mul posit16*posit16.rn")
"""Units that are measured with `STAGES`."""

STAGES = (2, 4, 6, 8)


class Operator(wiring.Component):
    """Combinational module of one operator."""

    def __init__(self, kind: str, width: int) -> None:
        self.logic, self.name = OPERATORS[kind][0], f"{kind.replace(' ', '_')}_{width}"
        ports = {"a": width, "b": width, "by": (width - 1).bit_length()}
        result = self.logic(Module(), *(Signal(bits) for bits in ports.values()))
        super().__init__({**{name: In(bits) for name, bits in ports.items()}, "o": Out(len(result))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.o.eq(self.logic(m, self.a, self.b, self.by))
        return m


def measure(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Place and route operators of several widths and units with stages; return their delays in picoseconds.

    The column ``size`` has the width of an operator, or the register stages of a unit.
    """
    cases = [(kind, width) for kind, (_, widths) in OPERATORS.items() for width in widths]
    modules = [Source.of(Registered(Operator(*case))) for case in cases]
    staged = [(text, stages) for text in UNITS for stages in STAGES]
    modules += [module_of(Implementation.parse(text, pipeline=stages), registered=True) for text, stages in staged]
    progress.total("place and route", len(modules))
    clocks = frequencies(modules, TARGET, progress, pool)
    rows = [(*case, round(1e6 / clock)) for case, clock in zip((*cases, *staged), clocks, strict=True)]
    return pd.DataFrame(rows, columns=["operator", "size", "ps"])


def modelled(frame: pd.DataFrame, model: DelayModel) -> pd.Series:
    """Return the delays of measured operators and units by a model."""
    return frame.apply(lambda row: _modelled(row["operator"], row["size"], model), axis=1)


def _modelled(kind: str, size: int, model: DelayModel) -> int:
    if kind in OPERATORS:
        operator = Operator(kind, size)
        return Dataflow(
            operator.elaborate(None), outputs=[operator.o], enable=Const(1, 1), latency=0, model=model
        ).schedule()[1]
    return Implementation.parse(kind, pipeline=size).component().dataflow(size, model).schedule()[1]


def error(frame: pd.DataFrame, model: DelayModel) -> float:
    """Return the root mean square of the relative error of a model."""
    return float(np.sqrt(np.mean((modelled(frame, model) / frame["ps"] - 1) ** 2)))


def fit(frame: pd.DataFrame, model: DelayModel = ECP5, step: int = 40) -> DelayModel:
    """Return a model with the constants of least error, found in steps of some ps from those of a model."""
    least = error(frame, model)
    moves = [(name, change) for name in FITTED for change in (step, -step)]
    tried = 0
    while tried < len(moves):
        name, change = moves[0]
        other = replace(model, **{name: max(getattr(model, name) + change, 0)})
        loss = error(frame, other)
        if loss < least:
            model, least, tried = other, loss, 0
        else:
            moves, tried = moves[1:] + moves[:1], tried + 1
    return model


def table(frame: pd.DataFrame, model: DelayModel = ECP5) -> Table:
    """Return a table of measured delays and those of a model."""
    modelled_delays = modelled(frame, model)
    is_operator = frame["operator"].isin(OPERATORS)
    units = frame[~is_operator]
    best = fit(units, model)
    constants = ", ".join(f"{name} {getattr(best, name)}" for name in FITTED)
    notes = [
        f"{TARGET.name}, picoseconds: nextpnr, after place and route between registers at all ports; model: that of "
        "halfulp/hdl/delay.py. Size: width of an operator, or register stages of a unit.",
        f"Root mean square of the error: {error(units, model):.1%} of units, {error(frame[is_operator], model):.1%} of "
        f"operators, whose nets are shorter alone than in a unit. Constants of least error of units: {constants} "
        f"({error(units, best):.1%}).",
    ]
    rows = frame.assign(model=modelled_delays, error=modelled_delays / frame["ps"] - 1)
    return Table(f"Delays on {TARGET.name}", rows, {"error": "+.1%"}, notes)
