"""Coverage of a unit: hit counts of its bins."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halfulp.sim.reference import own_words
from halfulp.tools.threads import threads

from . import stalls
from .bins import Counts, Group
from .model import Model

if TYPE_CHECKING:
    from halfulp.units import Unit

CHUNK = 1 << 15
"""Number of vectors per call; larger batches exceed the processor's caches."""

Integers = npt.NDArray[np.integer[Any]]
Batch = Mapping[str, Integers]


class Coverage:
    """Hit counts of the bins of a unit.

    Parameters
    ----------
    unit : Unit
        Instance of a class in the catalogue, or of a class derived from one.

    Attributes
    ----------
    groups : dict of str to Group
        Groups of bins, by name.
    counts : dict of str to array
        Hit counts of the bins of each group.
    vectors, cycles : int
        Numbers of counted vectors and clock cycles.

    Raises
    ------
    ValueError
        If the unit is not in the catalogue.
    """

    def __init__(self, unit: "Unit") -> None:
        self.unit, self.model = unit, Model(unit)
        self._handshakes = stalls.groups(unit)
        watched = (*self.model.groups, *(group for side in self._handshakes.values() for group in side))
        self.groups: dict[str, Group] = {group.name: group for group in watched}
        assert len(self.groups) == len(watched), f"two groups of {unit.name} have one name"
        self.counts: dict[str, Counts] = {name: np.zeros(group.size, np.int64) for name, group in self.groups.items()}
        self.vectors = self.cycles = 0

    def sample(self, inputs: Batch, outputs: Batch, *, chained: bool = False) -> None:
        """Count a batch of vectors.

        Parameters
        ----------
        inputs, outputs : mapping
            Array of codes for each port, all of the same length or of length 1.
        chained : bool
            The vectors are consecutive steps of a unit with state, from reset. Otherwise each vector has its own state.
            The unit's random source steps from reset in both cases.

        Raises
        ------
        ValueError
            If a port has no codes, or lengths differ.
        """
        length = max((len(column) for column in inputs.values()), default=0)
        given = own_words(self.unit, length) | self._columns(inputs, self.unit.inputs, length)
        results = self._columns(outputs, self.unit.outputs, length)
        # Chained steps are not divisible, because each depends on the previous ones.
        step = max(length if chained else CHUNK, 1)
        with threads(1):
            for start in range(0, length, step):
                part = slice(start, start + step)
                columns = ({name: column[part] for name, column in side.items()} for side in (given, results))
                for name, bins in self.model.bins(*columns, chained=chained):
                    self.counts[name] += self.groups[name].count(bins)
        self.vectors += length

    def stalls(self, side: str, cycles: Batch) -> None:
        """Count the clock cycles of a handshake.

        Parameters
        ----------
        side : str
            ``plain`` for the unit, with signals ``en`` and ``valid``; ``input`` or ``output`` for streams, with signals
            ``valid`` and ``ready``.
        cycles : mapping
            Level of each signal at each rising clock edge, as an array of 0 and 1.

        Raises
        ------
        ValueError
            If the side is unknown, or signals are missing.
        """
        bins = stalls.bins(self.unit, side, cycles)
        for group, numbers in zip(self._handshakes[side], bins, strict=True):
            self.counts[group.name] += group.count(numbers)
        self.cycles += max(len(column) for column in cycles.values())

    def merge(self, other: "Coverage") -> None:
        """Add the counts of another coverage; raises ValueError if it belongs to another unit."""
        if self.groups != other.groups or self.unit.parameters != other.unit.parameters:
            raise ValueError(
                f"cannot merge coverage of {other.unit.name} into coverage of {self.unit.name}: expected the same unit"
            )
        for name, counts in other.counts.items():
            self.counts[name] += counts
        self.vectors += other.vectors
        self.cycles += other.cycles

    def _columns(self, given: Batch, ports: Mapping[str, Any], length: int) -> dict[str, npt.NDArray[np.uint64]]:
        missing = [name for name in ports if name not in given]
        if missing:
            raise ValueError(f"missing codes of {', '.join(missing)} of {self.unit.name}")
        odd = [name for name in ports if len(given[name]) not in (1, length)]
        if odd:
            raise ValueError(f"{odd[0]} has {len(given[odd[0]])} codes for {length} vectors: expected 1 or {length}")
        return {name: np.ascontiguousarray(np.broadcast_to(given[name], length)).astype(np.uint64) for name in ports}


def hits(coverages: list[Coverage]) -> str:
    """Format the number of bins that coverages of one unit hit together."""
    total, *others = coverages
    for other in others:
        total.merge(other)
    hit = sum(int((counts > 0).sum()) for counts in total.counts.values())
    bins = sum(group.size for group in total.groups.values())
    return f"coverage    {hit:,} of {bins:,} bins, reachable or not"
