"""Constraints of the timing of a module, in commands that SDC and Vivado's XDC have in common."""

from collections.abc import Iterable
from typing import Any

DEFAULT_CLOCK = 500
"""Default requested clock in MHz."""


def port_group(ports: Iterable[Any]) -> str:
    """Return the command that selects ports, which have a name and a width."""
    names = [f"{port.name}[*]" if port.width > 1 else port.name for port in ports]
    return f"[get_ports {{{' '.join(names)}}}]"


def constraints(ports: Iterable[Any], clock: str | None, false_path: str | None, mhz: float) -> str:
    """Return constraints: a clock, delays outside of the module, and no timing of an asynchronous reset.

    The delays are 0, for registers at the ports. Without them, only paths between registers would be timed.

    Parameters
    ----------
    ports : iterable of VerilogPort or PackagedPort
    clock : str or None
        Port of the clock; None for a module without registers, which has a virtual clock.
    false_path : str or None
        Port of an asynchronous reset.
    mhz : float
        Requested clock.
    """
    name, source = ("virtual", "") if clock is None else (clock, f" [get_ports {{{clock}}}]")
    lines = [f"create_clock -name {{{name}}} -period {1000 / mhz:.3f}{source}"]
    ports = [port for port in ports if port.name not in (clock, false_path)]
    for direction in ("input", "output"):
        if group := [port for port in ports if port.direction == direction]:
            lines.append(f"set_{direction}_delay -clock {{{name}}} 0.000 {port_group(group)}")
    if false_path is not None:
        lines.append(f"set_false_path -from [get_ports {{{false_path}}}]")
    return "\n".join(lines) + "\n"
