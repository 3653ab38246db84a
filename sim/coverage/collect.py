"""Bins of a unit, and how often each was hit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer[Any]]
Batch = Mapping[str, Integers]


class Coverage:
    """How often each bin of a unit was hit.

    Parameters
    ----------
    unit : Unit
        One whose class, or a base of it, is in the catalogue.
    """

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        self.vectors = 0

    @classmethod
    def of(cls, unit: Any) -> "Coverage":
        """Nothing hit yet.

        Raises
        ------
        ValueError
            If the unit is not in the catalogue.
        """
        return cls(unit)

    def sample(self, inputs: Batch, outputs: Batch, *, chained: bool = False) -> None:
        """Count a batch of vectors.

        Parameters
        ----------
        inputs, outputs : mapping
            For each input, and for each output, of the unit an array of codes, all of one length or of length 1.
        chained : bool
            Whether the vectors are steps in time of a unit with state, from reset. Otherwise each brings its state
            along.
        """
        self.vectors += max(len(column) for column in inputs.values())

    def stalls(self, side: str, cycles: Batch) -> None:
        """Count what the clock cycles of a handshake show.

        Parameters
        ----------
        side : str
            ``plain`` for the unit itself, whose signals are ``en`` and ``valid``; ``input`` and ``output`` for streams,
            whose signals are ``valid`` and ``ready``.
        cycles : mapping
            For each of these signals an array of 0 and 1, one for each clock cycle in order, as they were at the
            clock edge that ended it.
        """

    def merge(self, other: "Coverage") -> None:
        """Add what another coverage of the same unit has counted.

        Raises
        ------
        ValueError
            If it is of another unit.
        """
        if other.unit.name != self.unit.name:
            raise ValueError(f"coverage of {other.unit.name} does not merge into that of {self.unit.name}")
        self.vectors += other.vectors

    def report(self) -> Any:
        """What was hit, what is proved to be out of reach, and what is open."""
        raise NotImplementedError
