"""Inputs and outputs of a unit, packed into words for the test bench, and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Format
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.formula import Pick, Port, Role

from .signals.layout import Layout

if TYPE_CHECKING:
    from halfulp.units import Unit

Codes = npt.NDArray[np.uint64]
Columns = Mapping[str, Codes]
"""Codes by port: one per vector, or one for all vectors."""

MODE = "mode"
"""Port that chooses the rounding mode of an operation."""

LARGEST_DISTANCE = 160
"""Largest exponent of the product of two scales that vectors have often; sums then leave the range of binary32."""


@dataclass(frozen=True)
class Ports(Layout):
    """Ports in order, with the formats and roles of the operands."""

    ports: tuple[Port, ...]

    @classmethod
    def of(cls, shapes: Mapping[str, Any]) -> "Ports":
        """Create from names and shapes, such as ``unit.outputs``; the ports have no roles."""
        formats = {name: of if isinstance(of, Format) else int(of.width) for name, of in shapes.items()}
        return cls(tuple(Port(name, of) for name, of in formats.items()))

    @classmethod
    def inputs_of(cls, unit: "Unit") -> "Ports":
        """Create from the inputs of a unit, with their roles in its formula."""
        known = {port.name: port for port in unit.spec.ports}
        return cls(tuple(known[name] for name in unit.inputs))

    def words(self, codes: Columns) -> list[int]:
        """Pack the codes of vectors, one array per port, into one word per vector."""
        return [self.pack(row) for row in zip(*(codes[name].tolist() for name in self.names), strict=True)]

    def columns(self, words: Sequence[int]) -> dict[str, Codes]:
        """Unpack words into codes, one array per port: the reverse of `words`."""
        rows = np.array([self.unpack(word) for word in words], dtype=np.uint64).reshape(len(words), len(self))
        return dict(zip(self.names, rows.T, strict=True))

    @property
    def formats(self) -> dict[str, Format]:
        """Formats by port name, of ports with a format."""
        return {port.name: port.fmt for port in self.ports if port.fmt is not None}

    def having(self, *roles: Role) -> list[str]:
        """Return the names of the ports with some roles."""
        return [port.name for port in self.ports if port.role in roles]

    # Operands of the formula -------------------------------------------------------------------------------------

    @property
    def scales(self) -> dict[str, Format]:
        """Formats of the scales of blocks, which multiply all elements."""
        return {name: self.formats[name] for name in self.having(Role.SCALE)}

    @property
    def picks(self) -> list[Pick]:
        """Operands that indices select."""
        return [port.pick for port in self.ports if port.pick is not None]

    @property
    def selected(self) -> "Ports":
        """The ports, with selected operands instead of the ports that they are from."""
        known = {port.name: port for port in self.ports}
        chosen = {name for pick in self.picks for name in pick.choices}
        picked = (replace(known[pick.choices[0]], name=pick.operand) for pick in self.picks)
        return Ports((*picked, *(port for port in self.ports if port.name not in chosen)))

    @property
    def operands(self) -> dict[str, Format]:
        """Formats of the operands that are added or multiplied: without scales, and with selected operands."""
        return {name: fmt for name, fmt in self.selected.formats.items() if name not in self.scales}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Elements of the first two operands, which are multiplied, or arguments of one function."""
        arguments: dict[str, list[Port]] = {}
        for port in (port for port in self.ports if port.role is Role.OPERAND):
            arguments.setdefault(port.argument or port.name, []).append(port)
        first, second = [*arguments.values(), [], []][:2]
        pairs = zip(first, second, strict=False)
        return [(left.name, right.name) for left, right in pairs if bool(left.argument) == bool(right.argument)]

    def select(self, codes: Columns) -> dict[str, Codes]:
        """Return the codes of the operands in the formula, from those of the ports."""
        picked = {}
        for port in self.ports:
            if (pick := port.pick) is not None:
                places = np.minimum(codes[port.name], np.uint64(len(pick.choices) - 1)).astype(np.int64)
                columns = np.broadcast_arrays(places, *(codes[name] for name in pick.choices))
                picked[pick.operand] = np.take_along_axis(np.stack(columns[1:]), columns[0][np.newaxis], 0)[0]
        return {name: picked[name] if name in picked else codes[name] for name in self.operands}

    def place(self, operands: Columns, rng: np.random.Generator) -> dict[str, Codes]:
        """Return codes of the ports, indices and scales included, that select these operands: the reverse of `select`.

        The product of two scales is one or near one in most vectors.
        Half of the vectors have different indices for all operands of a group, the others any, so that an operand may
        replace another one. Ports that no index selects have any codes.
        """
        formats, given = self.formats, dict(operands)
        count = len(next(iter(given.values())))
        groups: dict[tuple[str, ...], list[Pick]] = {}
        for pick in self.picks:
            groups.setdefault(pick.choices, []).append(pick)
        widths = {port.name: port.width for port in self.ports}
        placed: dict[str, Codes] = {}
        for choices, members in groups.items():
            slots = rng.integers(0, 1 << widths[members[0].index], (count, len(members)), dtype=np.uint64)
            order = rng.random((count, len(choices))).argsort(1)[:, : len(members)].astype(np.uint64)
            apart = rng.random(count) < 0.5
            slots[apart, : order.shape[1]] = order[apart]
            codes = rng.integers(
                0, (1 << formats[choices[0]].width) - 1, (count, len(choices)), dtype=np.uint64, endpoint=True
            )
            for member, slot in zip(members, slots.T, strict=True):
                codes[np.arange(count), np.minimum(slot, np.uint64(len(choices) - 1)).astype(np.int64)] = given.pop(
                    member.operand
                )
                placed[member.index] = slot.copy()
            placed |= {name: column.copy() for name, column in zip(choices, codes.T, strict=True)}
        return given | placed | _scale_codes(self.scales, count, rng)

    @property
    def stateless(self) -> "Ports":
        """All ports except the state controls, for independent vectors."""
        return Ports(tuple(port for port in self.ports if port.role is not Role.STATE))

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


def _scale_codes(scales: Mapping[str, Format], count: int, rng: np.random.Generator) -> dict[str, Codes]:
    """Choose scales: a third of their products are one, most others are small, and some reach the ends of ranges."""
    powers = {}
    for name, fmt in scales.items():
        low, high = floor_log2(fmt.smallest), floor_log2(fmt.largest)
        codes = np.array([fmt.encode(Fraction(2) ** power) for power in range(low, high + 1)], dtype=np.uint64)
        powers[name] = low, codes
    codes_of_scales: dict[str, Codes] = {}
    near = rng.choice(np.array([0, 0, 0, 0, 0, 0, 1, -1, 4, -9, 23, -24]), count)
    far = rng.integers(-LARGEST_DISTANCE, LARGEST_DISTANCE, count)
    rest = np.where(rng.random(count) < 1 / 8, far, near)
    for name, (low, codes) in powers.items():
        end = low + len(codes) - 1
        # The last scale completes the product.
        wanted = rest if len(codes_of_scales) == len(powers) - 1 else rng.integers(low, end + 1, count)
        exponent = np.clip(wanted, low, end)
        rest = rest - exponent
        anything = rng.integers(0, 1 << scales[name].width, count, dtype=np.uint64)
        ends = rng.choice(np.array([0, (1 << scales[name].width) - 1, codes[0], codes[-1]], dtype=np.uint64), count)
        kind = rng.random(count)
        codes_of_scales[name] = np.where(kind < 1 / 8, anything, np.where(kind < 3 / 16, ends, codes[exponent - low]))
    return codes_of_scales
