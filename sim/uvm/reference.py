"""Reference model: results of the golden model for observed operations."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyuvm import uvm_analysis_port, uvm_subscriber

from halfulp.sim.ports import Codes, Ports
from halfulp.sim.reference import CHUNK, reference

from .items import Operation

if TYPE_CHECKING:
    from halfulp.units import Unit


class Prediction(NamedTuple):
    """Expected results of consecutive operations.

    Attributes
    ----------
    epoch, first : int
        Number of resets before them, and index of the first operation since the reset.
    codes, want : dict
        Array of codes for each input and each output.
    cycles : list of int
        Clock cycles in which the operands were accepted.
    chained : bool
        True for consecutive steps of a unit with state, from reset.
    """

    epoch: int
    first: int
    codes: dict[str, Codes]
    want: dict[str, Codes]
    cycles: list[int]
    chained: bool


def columns(ports: Ports, items: list[Operation]) -> dict[str, Codes]:
    """Return the codes of items, one array per port."""
    return {port.name: np.array([item.operands[port.name].code for item in items], dtype=np.uint64) for port in ports}


class Reference(uvm_subscriber):
    """Model that computes the results of observed operands with the golden model.

    For a unit with state or a random source, operations between two resets are one sequence; others are computed in
    chunks.

    ConfigDB: ``unit``.

    Members
    -------
    analysis_export
        Receives operands.
    ap : uvm_analysis_port
        Publishes predictions.
    """

    def build_phase(self) -> None:
        self.ap = uvm_analysis_port("ap", self)
        self.unit: Unit = self.cdb_get("unit")
        self.inputs = Ports.inputs_of(self.unit)
        self.in_sequence = self.unit.stateful or bool(self.unit.sources)
        self._items: list[Operation] = []
        self._epoch = self._first = 0

    def write(self, item: Operation) -> None:
        if item.epoch != self._epoch:
            self.predict()
            self._epoch, self._first = item.epoch, 0
        self._items.append(item)
        if not self.in_sequence and len(self._items) == CHUNK:
            self.predict()

    def extract_phase(self) -> None:
        self.predict()

    def predict(self) -> None:
        """Publish the prediction for the operations since the last call."""
        if not self._items:
            return
        items, self._items = self._items, []
        codes = columns(self.inputs, items)
        want = self.results(codes)
        self.ap.write(
            Prediction(items[0].epoch, self._first, codes, want, [item.cycle for item in items], self.unit.stateful)
        )
        self._first += len(items)

    def results(self, codes: dict[str, Codes]) -> dict[str, Codes]:
        """Compute results with the golden model; override it for another model."""
        return reference(self.unit, codes, chained=self.unit.stateful)
