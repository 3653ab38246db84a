"""Parts that a design contains several times, which share a module in Verilog."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Protocol, Self, runtime_checkable

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


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


class Logic(wiring.Component):
    """Combinational logic as a component.

    Parameters
    ----------
    name : str
        Name of its module.
    function : callable
        Adds the logic to a module: receives the module and signals by the names of ``operands``, and returns values by
        name.
    operands : mapping of str to Value
        Values of the shapes of the inputs.

    Attributes
    ----------
    results : dict of str to Value
        The output ports, and constants that ``function`` returned.
    """

    def __init__(self, name: str, function: Callable[..., Mapping[str, Value]], operands: Mapping[str, Value]) -> None:
        self.name, self._logic = name, Module()
        inputs = {port: Signal(value.shape(), name=port) for port, value in operands.items()}
        results = function(self._logic, **inputs)
        outputs = {
            port: Signal(value.shape(), name=port) for port, value in results.items() if not isinstance(value, Const)
        }
        self._logic.d.comb += [signal.eq(results[port]) for port, signal in outputs.items()]
        self.results: dict[str, Value] = {**results, **outputs}
        members = {port: In(signal.shape()) for port, signal in inputs.items()}
        super().__init__(members | {port: Out(signal.shape()) for port, signal in outputs.items()})
        # The logic exists before its ports, because it decides their shapes.
        for port, signal in (inputs | outputs).items():
            setattr(self, port, signal)

    def again(self) -> Self:
        """Return a component with other ports, which is not elaborated: an instance of the module of this one."""
        other = copy(self)
        for port in self.signature.members:
            setattr(other, port, Signal.like(getattr(self, port), name=port))
        other.results = {port: getattr(other, port, value) for port, value in self.results.items()}
        return other

    def elaborate(self, platform: object) -> Module:
        return self._logic
