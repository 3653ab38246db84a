"""Register stages between the parts of a unit."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from amaranth.hdl import Const, Module, Signal, Value

T = TypeVar("T")


def stage_places(stages: int, boundaries: int) -> list[int]:
    """Return the boundaries at which register stages are placed, counted from 0."""
    return [(2 * stage + 1) * boundaries // (2 * stages) for stage in range(stages)]


class Pipeline:
    """Register stages at some of the boundaries between parts of a unit.

    Parameters
    ----------
    m : Module
        Module for the registers, in the domain ``sync``.
    stages : int
        Number of register stages, spread evenly. With more stages than boundaries, some boundaries get several, which a
        synthesis tool can retime.
    boundaries : sequence of str
        Names of the boundaries, in dataflow order.
    enable : Value
        Clock enable of all registers.
    reset_less : bool
        Omit the reset of all registers except those of ``control``.
    control : Value, optional
        Value whose registers always have a reset.
    """

    def __init__(
        self,
        m: Module,
        *,
        stages: int,
        boundaries: Sequence[str],
        enable: Value,
        reset_less: bool = False,
        control: Value | None = None,
    ) -> None:
        self._m = m
        self._enable = enable
        self._reset_less, self._control = reset_less, control
        self._left = list(boundaries)
        places = stage_places(stages, len(boundaries))
        self._depth = {name: places.count(index) for index, name in enumerate(boundaries)}

    def stage(self, boundary: str, *values: T) -> Any:
        """Pass values through the registers of a boundary; later stages must only use the results.

        Values are Amaranth values or dataclasses of them; other objects pass unchanged. Boundaries must come in their
        declared order.
        """
        expected = self._left.pop(0)
        if boundary != expected:
            raise ValueError(f"expected boundary {expected!r} next, not {boundary!r}")
        for level in range(self._depth[boundary]):
            values = tuple(self._register(value, f"{boundary}_{level}") for value in values)
        return values[0] if len(values) == 1 else values

    def _register(self, value: Any, name: str) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value,
                **{
                    field.name: self._register(getattr(value, field.name), f"{name}_{field.name}")
                    for field in fields(value)
                },
            )
        if not isinstance(value, Value) or isinstance(value, Const) or len(value) == 0:
            return value
        controls = value is self._control
        register = Signal(value.shape(), name=f"{name}_register", reset_less=self._reset_less and not controls)
        with self._m.If(self._enable):
            self._m.d.sync += register.eq(value)
        if controls:
            self._control = register
        return register
