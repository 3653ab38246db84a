"""Verilog of any component."""

from typing import Any

from amaranth.back import verilog


def emit(component: Any, name: str | None = None) -> str:
    """Plain Verilog text of a component and what is in it.

    Parameters
    ----------
    component : wiring.Component
        A unit, a `Streamed` one, or a component of your own.
    name : str, optional
        Name of the top module; by default the component's ``name``, which carries its parameters.
    """
    text: str = verilog.convert(
        component, name=component.name if name is None else name, emit_src=False, strip_internal_attrs=True
    )
    return text
