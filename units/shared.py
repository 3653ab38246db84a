"""Parts that a design contains several times, which share a module in Verilog."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from amaranth.hdl import Module, Value


@runtime_checkable
class Sharing(Protocol):
    """Platform of elaboration that writes equal parts as one module."""

    def instance(self, part: Any, key: tuple[object, ...], constants: Mapping[str, Value]) -> Any:
        """Return an instance of the module of a part, connected to the part's ports."""


def add_part(m: Module, platform: object, name: str, part: Any, *key: object, **constants: Value) -> None:
    """Add a submodule that shares a module in Verilog with all parts of its class and key.

    Parameters
    ----------
    m : Module
    platform : object
        Platform that ``elaborate`` received. Without sharing, as in simulation, ``part`` itself is the submodule.
    name : str
        Name of the submodule.
    part : wiring.Component
        Its ``name`` is that of the module. If it has registers whose initial values are constants, ``initial`` has the
        values in Verilog by register name.
    key : object
        Hashable parameters that determine the module.
    constants : Value
        Inputs that are constant in each part, and may differ between parts; in Verilog they are parameters.
    """
    if isinstance(platform, Sharing):
        m.submodules[name] = platform.instance(part, (type(part), *key), constants)
    else:
        m.submodules[name] = part
        m.d.comb += [getattr(part, port).eq(value) for port, value in constants.items()]
