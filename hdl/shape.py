"""Connections that reject other number formats."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring

from .formats import Format


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
