"""Coverage bins, in groups: all combinations of the labels of some axes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from halfulp.sim.classes import NONE, Places

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """Property of a vector, with one of the labels or none."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Named group of bins: all combinations of the labels of its axes."""

    name: str
    axes: tuple[Axis, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of labels of each axis."""
        return tuple(len(axis.labels) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of bins."""
        return math.prod(self.shape)

    def label(self, index: int) -> str:
        """Return the name of a bin by its index."""
        places = np.unravel_index(index, self.shape)
        return ", ".join(axis.labels[int(place)] for axis, place in zip(self.axes, places, strict=True))

    def labels(self) -> Iterator[str]:
        """Iterate over the names of all bins."""
        return map(self.label, range(self.size))

    def bins(self, places: Sequence[Places]) -> Places:
        """Return the bin index of each vector, from its indices on the axes."""
        assert len(places) == len(self.axes), f"{len(places)} places for {len(self.axes)} axes of {self.name}"
        index = np.zeros(1, dtype=np.int64)
        valid = np.ones(1, dtype=bool)
        for place, length in zip(places, self.shape, strict=True):
            index = index * length + place
            valid = valid & (place >= 0)
        return np.where(valid, index, NONE)

    def count(self, bins: Places) -> Counts:
        """Count the vectors in each bin."""
        return np.bincount(bins[bins >= 0], minlength=self.size).astype(np.int64)
