"""Verilog of any component."""

from typing import Any

from amaranth.back import verilog

_HEADER = """\
// Operands are written as wide as they are, and Verilog's own rules extend them.
/* verilator lint_off WIDTHEXPAND */
"""


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
    return _HEADER + text
