"""Shapes beside number formats: indices that select a port, and connections that reject other formats."""

from typing import Any

from amaranth.hdl import Module, Shape
from amaranth.lib import wiring

from .formats import Format


class Choice(Shape):
    """Shape of an index that selects one of several ports, which the bench reads to choose operands.

    Parameters
    ----------
    operand : str
        Name of the selected number in the formula of the unit, such as ``a0``, which is multiplied by ``b0``.
    ports : tuple of str
        Ports of the unit; a larger index selects the last one.
    """

    def __init__(self, operand: str, ports: tuple[str, ...]) -> None:
        super().__init__((len(ports) - 1).bit_length())
        self.operand, self.ports = operand, ports


def connect(m: Module, *args: Any, **kwargs: Any) -> None:
    """Connect interfaces as ``wiring.connect`` does, but reject different formats of equal width.

    Raises
    ------
    amaranth.lib.wiring.ConnectionError
        If two members at one path have different formats, or for any reason of ``wiring.connect``.
    """
    first: dict[tuple[str | int, ...], tuple[str, Format]] = {}
    for label, interface in [*enumerate(args), *kwargs.items()]:
        for path, member in interface.signature.members.flatten() if hasattr(interface, "signature") else ():
            name = ".".join(map(str, (label, *path)))
            if isinstance(member.shape, Format):
                other, fmt = first.setdefault(path, (name, member.shape))
                if fmt != member.shape:
                    raise wiring.ConnectionError(f"cannot connect {other} of {fmt} to {name} of {member.shape}")
    wiring.connect(m, *args, **kwargs)
