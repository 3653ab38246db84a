"""Inputs and outputs of a unit, packed into words for the bench, and as text."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Format

Codes = npt.NDArray[np.uint64]
Columns = Mapping[str, Codes]
"""Codes by port: one per vector, or one for all vectors."""

STATE = ("load", "clear")
"""Ports that control the state of a unit."""


def is_random(name: str) -> bool:
    """Return True for ports of random words: ``random``, ``random_product``, ``random0`` and so on."""
    return re.fullmatch("random(_product|[0-9]*)", name) is not None


@dataclass(frozen=True)
class Port:
    """One input or output of a unit.

    Parameters
    ----------
    fmt : Format, optional
        Format of its codes; default: plain bits.
    """

    name: str
    width: int
    fmt: Format | None = None


@dataclass(frozen=True)
class Ports:
    """Ports in order; the first is in the least significant bits of the packed word, as in the payload of a stream."""

    ports: tuple[Port, ...]

    @classmethod
    def of(cls, shapes: Mapping[str, Any]) -> "Ports":
        """Create from ``unit.inputs`` or ``unit.outputs``."""
        rows = shapes.items()
        return cls(tuple(Port(name, int(of.width), of if isinstance(of, Format) else None) for name, of in rows))

    def __iter__(self) -> Any:
        return iter(self.ports)

    def __len__(self) -> int:
        return len(self.ports)

    @property
    def names(self) -> list[str]:
        """Names of the ports, in order."""
        return [port.name for port in self.ports]

    @property
    def width(self) -> int:
        """Width of the packed word in bits."""
        return sum(port.width for port in self.ports)

    @property
    def formats(self) -> dict[str, Format]:
        """Formats by port name, of ports with a format."""
        return {port.name: port.fmt for port in self.ports if port.fmt is not None}

    def slices(self) -> list[tuple[Port, int]]:
        """Return each port with the position of its lowest bit."""
        lows = itertools.accumulate((port.width for port in self.ports), initial=0)
        return list(zip(self.ports, lows, strict=False))

    def pack(self, codes: Sequence[int]) -> int:
        """Pack one code per port into a word."""
        return sum(
            (int(code) & ((1 << port.width) - 1)) << low for (port, low), code in zip(self.slices(), codes, strict=True)
        )

    def unpack(self, word: int) -> list[int]:
        """Unpack a word into one code per port."""
        return [(word >> low) & ((1 << port.width) - 1) for port, low in self.slices()]

    @property
    def stateless(self) -> "Ports":
        """All ports except the state controls, for independent vectors."""
        return Ports(tuple(port for port in self.ports if port.name not in STATE))

    def read_vector(self, text: str) -> dict[str, int]:
        """Parse an independent vector: codes of the `stateless` ports; the state loads its start value."""
        return {name: int(name == "load") for name in self.names} | self.stateless.read(text)

    def read(self, text: str) -> dict[str, int]:
        """Parse codes of all ports such as ``0x3c,0x40,0x001``; raises ValueError if the text is invalid."""
        words = text.split(",")
        numbers = [_number(word) for word in words]
        if len(words) != len(self):
            raise ValueError(f"a vector of this unit has {len(self)} codes ({', '.join(self.names)}), not {len(words)}")
        for port, word, number in zip(self, words, numbers, strict=True):
            if not 0 <= number < 1 << port.width:
                raise ValueError(f"code {word} does not fit the {port.width} bits of {port.name}")
        return dict(zip(self.names, numbers, strict=True))

    def write(self, codes: Mapping[str, int]) -> str:
        """Format codes as `read` parses them."""
        return ",".join(f"0x{codes[port.name]:0{-(-port.width // 4)}x}" for port in self)


def _number(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        raise ValueError(f"code {word!r} is not a number such as 0x3c") from None
