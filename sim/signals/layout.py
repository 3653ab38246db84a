"""Ports that are packed into one word."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Field(NamedTuple):
    """Port of a unit: its name, and its width in bits."""

    name: str
    width: int


@dataclass(frozen=True)
class Layout:
    """Ports in order; the first is in the least significant bits of the packed word, as in the payload of a stream.

    Parameters
    ----------
    ports : tuple
        Ports with ``name`` and ``width``.
    """

    ports: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
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

    def slices(self, align: int = 1) -> list[tuple[Any, int]]:
        """Return each port with the position of its lowest bit, a multiple of ``align``."""
        sizes = (-(-port.width // align) * align for port in self.ports)
        return list(zip(self.ports, itertools.accumulate(sizes, initial=0), strict=False))

    def pack(self, codes: Sequence[int]) -> int:
        """Pack one code per port into a word."""
        return sum(
            (int(code) & ((1 << port.width) - 1)) << low for (port, low), code in zip(self.slices(), codes, strict=True)
        )

    def unpack(self, word: int) -> list[int]:
        """Unpack a word into one code per port."""
        return [(word >> low) & ((1 << port.width) - 1) for port, low in self.slices()]
