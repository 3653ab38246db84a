"""Register stages between the parts of a unit."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from amaranth.hdl import Const, Module, Signal, Value

T = TypeVar("T")


def stage_places(stages: int, boundaries: int) -> list[int]:
    """Boundaries at which register stages are placed, counted from 0."""
    return [(2 * stage + 1) * boundaries // (2 * stages) for stage in range(stages)]


class Pipeline:
    """Registers at some of the boundaries between the parts of a unit.

    Parameters
    ----------
    m : Module
        Module that the registers are added to, in the domain ``sync``.
    stages : int
        Number of register stages. They spread evenly; if there are more than boundaries, some boundaries get several,
        which a synthesis tool can retime.
    boundaries : sequence of str
        Names of the boundaries, in order of the data.
    enable : Value
        Clock enable of every register.
    reset_less : bool
        Registers have no reset, but for those of ``control``.
    control : Value, optional
        One of the values, whose registers always have a reset.
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
        """Values as they leave a boundary; all that is used after it has to pass through here.

        Values are Amaranth values or dataclasses of them, and anything else passes as it is. Boundaries come in the
        order that they were declared in.
        """
        expected = self._left.pop(0)
        if boundary != expected:
            raise ValueError(f"boundary {boundary!r} came where {expected!r} was declared")
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
