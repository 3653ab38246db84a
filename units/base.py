"""What all units have in common."""

import re
from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.number import Number, cut, pack, unpack
from halfulp.hdl.pipeline import Pipeline

Computed = tuple[Number, Value | None]
"""An exact result, with the random word that rounds it."""

MAX_PIPELINE = 64
"""Most register cuts of a unit; more only costs registers."""


class Unit(wiring.Component):
    """A unit of the library.

    Parameters
    ----------
    inputs, outputs : dict of str to shape
        Ports besides the clock enable.
    name : str
        Module name: the unit and the parameters that tell it from others.
    pipeline : int
        Register cuts, 0 to 64; they change `latency` and no result bit.
    stateful : bool
        Whether results depend on earlier operands.

    Members
    -------
    en : In(1, init=1)
        Clock enable of all registers, where the unit has any.

    Attributes
    ----------
    inputs, outputs : dict of str to shape
        Ports that carry operands (random words included) and results.
    parameters : dict
        What the golden function of the unit takes by keyword.
    """

    BOUNDARIES: Sequence[str] = ()
    stateful = False

    def __init__(
        self, *, inputs: dict[str, Any], outputs: dict[str, Any], name: str, pipeline: int, parameters: dict[str, Any]
    ) -> None:
        if not isinstance(pipeline, int) or isinstance(pipeline, bool):
            raise TypeError(f"pipeline is an int, not {type(pipeline).__name__}")
        if not 0 <= pipeline <= MAX_PIPELINE:
            raise ValueError(f"pipeline {pipeline} is out of range; a unit has 0 to {MAX_PIPELINE} register cuts")
        self.inputs = inputs
        self.outputs = outputs
        self.pipeline = pipeline
        self.parameters = parameters
        self.name = re.sub(r"\W", "_", name) + (f"_p{pipeline}" if pipeline else "")
        members: dict[str, Any] = {port: In(shape) for port, shape in inputs.items()}
        members |= {port: Out(shape) for port, shape in outputs.items()}
        if pipeline or self.stateful:
            members["en"] = In(1, init=1)
        if self.stateful:
            members["valid"] = In(1, init=1)
        super().__init__(members)

    @property
    def arguments(self) -> list[str | list[str]]:
        """Operands as the golden function takes them: names of ports, or lists of them for one vector operand."""
        return list(self.inputs)

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result; 0 for a combinational unit."""
        return self.pipeline + (1 if self.stateful else 0)

    def start_pipeline(self, m: Module) -> Pipeline:
        """The unit's register cuts, for ``elaborate``."""
        enable: Value = self.en if self.pipeline or self.stateful else Signal(init=1)
        return Pipeline(m, cuts=self.pipeline, boundaries=self.BOUNDARIES, enable=enable)


def random_input(rounding: Rounding, name: str = "random") -> dict[str, Any]:
    """The port of a rounding's random word, where it takes one."""
    return {name: unsigned(rounding.bits)} if rounding.bits else {}


def check_saturate(saturate: bool) -> bool:
    """``saturate`` of a unit, refused unless it is a bool."""
    if not isinstance(saturate, bool):
        raise TypeError(f"saturate is a bool, not {type(saturate).__name__}")
    return saturate


class Arithmetic(Unit):
    """A unit with one rounded result: unpack, compute, round, pack.

    Subclasses list their ``operands`` and say in ``compute`` what the exact result is.
    """

    def __init__(
        self,
        *,
        kind: str,
        operands: dict[str, Format],
        o: Format,
        rounding: Rounding,
        saturate: bool,
        pipeline: int,
        controls: Sequence[str] = (),
    ) -> None:
        self.operands = operands
        self.result = o
        self.rounding = rounding
        self.saturate = check_saturate(saturate)
        super().__init__(
            inputs={**operands, **{control: unsigned(1) for control in controls}, **random_input(rounding)},
            outputs={"o": o},
            name="_".join([kind, *map(str, operands.values()), str(o), str(rounding)]) + ("_sat" if saturate else ""),
            pipeline=pipeline,
            parameters={**operands, "o": o, "rounding": rounding, "saturate": saturate},
        )

    def compute(
        self, m: Module, pipe: Pipeline, random: Value | None, *operands: Number
    ) -> tuple[Number, Value | None]:
        """Exact result of unpacked operands, what lies below the places that rounding looks at merged into sticky.

        The random word travels beside them, and comes back as late as the result.
        """
        raise NotImplementedError

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = self.start_pipeline(m)
        operands = [unpack(m, getattr(self, name).as_value(), fmt, name) for name, fmt in self.operands.items()]
        result, random = self.compute(m, pipe, self.random if self.rounding.bits else None, *operands)
        ready, random = pipe.cut("normalised", cut(m, result, self.result, self.rounding), random)
        code = pack(m, ready, self.result, self.rounding, self.saturate, random)
        m.d.comb += self.o.as_value().eq(pipe.cut("packed", code))
        return m
