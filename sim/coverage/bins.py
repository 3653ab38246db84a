"""Bins, in groups: all combinations of the labels of some axes."""

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
    """Property of vectors: each has one of the labels, or none."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Every combination of the labels of some axes, under a name of its own in the unit."""

    name: str
    axes: tuple[Axis, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Labels of each axis."""
        return tuple(len(axis.labels) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of bins."""
        return math.prod(self.shape)

    def label(self, index: int) -> str:
        """Name of the bin of a number."""
        places = np.unravel_index(index, self.shape)
        return ", ".join(axis.labels[int(place)] for axis, place in zip(self.axes, places, strict=True))

    def labels(self) -> Iterator[str]:
        """Names of all bins."""
        return map(self.label, range(self.size))

    def bins(self, places: Sequence[Places]) -> Places:
        """Numbers of the bins that vectors fall into, from their places on each axis."""
        assert len(places) == len(self.axes), f"{len(places)} places for {len(self.axes)} axes of {self.name}"
        found = np.zeros(1, dtype=np.int64)
        valid = np.ones(1, dtype=bool)
        for place, length in zip(places, self.shape, strict=True):
            found = found * length + place
            valid = valid & (place >= 0)
        return np.where(valid, found, NONE)

    def count(self, bins: Places) -> Counts:
        """Number of vectors in each bin."""
        return np.bincount(bins[bins >= 0], minlength=self.size).astype(np.int64)
