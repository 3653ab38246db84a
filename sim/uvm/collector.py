"""Coverage collector: counts compared operations and handshakes in the bins of the unit."""

from pyuvm import uvm_subscriber

from halfulp.sim.coverage.collect import Coverage
from halfulp.sim.ports import Codes

from .scoreboard import Compared, export


class CoverageCollector(uvm_subscriber):
    """Subscriber that counts in the bins of `halfulp coverage`.

    Members
    -------
    analysis_export
        Receives `Compared` operations.
    handshakes
        Receives the name of a side and the levels of its signals in each cycle.

    Attributes
    ----------
    coverage : Coverage
    """

    def build_phase(self) -> None:
        self.unit = self.cdb_get("unit")
        self.coverage = Coverage(self.unit)
        self.handshakes = export("handshakes", self, self._count_cycles)

    def write(self, compared: Compared) -> None:
        self.coverage.sample(compared.codes, compared.got, chained=compared.chained)

    def _count_cycles(self, handshake: tuple[str, dict[str, Codes]]) -> None:
        side, cycles = handshake
        # A unit without registers has no stalls.
        if side != "plain" or self.unit.clocked:
            self.coverage.stalls(side, cycles)
