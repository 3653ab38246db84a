"""A unit's inputs and outputs as one packed word each, the form in which the bench moves them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Format

Codes = npt.NDArray[np.uint64]

STATE = ("load", "clear")
"""Ports that control a unit's state."""


def is_random(name: str) -> bool:
    """True for ports of random words: ``random``, ``random_product``, or one of several."""
    return re.fullmatch("random(_product|[0-9]*)", name) is not None


@dataclass(frozen=True)
class Port:
    """One input or output of a unit.

    Parameters
    ----------
    fmt : Format, optional
        Format of its codes; None for plain bits.
    """

    name: str
    width: int
    fmt: Format | None = None


@dataclass(frozen=True)
class Ports:
    """Ports in order, the first in the least significant bits, as in the payload of a stream."""

    ports: tuple[Port, ...]

    @classmethod
    def of(cls, shapes: Mapping[str, Any]) -> "Ports":
        """From ``unit.inputs`` or ``unit.outputs``."""
        rows = shapes.items()
        return cls(tuple(Port(name, int(of.width), of if isinstance(of, Format) else None) for name, of in rows))

    def __iter__(self) -> Any:
        return iter(self.ports)

    def __len__(self) -> int:
        return len(self.ports)

    @property
    def names(self) -> list[str]:
        """Names in order."""
        return [port.name for port in self.ports]

    @property
    def width(self) -> int:
        """Bits of the packed word."""
        return sum(port.width for port in self.ports)

    @property
    def formats(self) -> dict[str, Format]:
        """Formats by port, of the ports that have one."""
        return {port.name: port.fmt for port in self.ports if port.fmt is not None}

    def slices(self) -> list[tuple[Port, int]]:
        """Each port with the position of its lowest bit."""
        rows, low = [], 0
        for port in self.ports:
            rows.append((port, low))
            low += port.width
        return rows

    def pack(self, codes: Sequence[int]) -> int:
        """Packed word of one code for each port."""
        return sum(
            (int(code) & ((1 << port.width) - 1)) << low for (port, low), code in zip(self.slices(), codes, strict=True)
        )

    def unpack(self, word: int) -> list[int]:
        """One code for each port."""
        return [(word >> low) & ((1 << port.width) - 1) for port, low in self.slices()]
