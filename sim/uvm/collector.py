"""The coverage collector: what was compared and how the handshakes went, counted into the bins of the unit."""

from pyuvm import uvm_subscriber

from halfulp.sim.coverage import Coverage
from halfulp.sim.ports import Codes

from .scoreboard import Compared, export


class CoverageCollector(uvm_subscriber):
    """A face of `Coverage`: its bins are those of `halfulp coverage`.

    ConfigDB: ``unit``.

    Members
    -------
    analysis_export
        Takes what a scoreboard compared.
    handshakes
        Takes what the signals of a side were, cycle by cycle.

    Attributes
    ----------
    coverage : Coverage
    """

    def build_phase(self) -> None:
        """Nothing is hit yet."""
        super().build_phase()
        self.unit = self.cdb_get("unit")
        self.coverage = Coverage.of(self.unit)
        self.handshakes = export("handshakes", self, self._cycles)

    def write(self, compared: Compared) -> None:
        """Operations were compared."""
        self.coverage.sample(compared.codes, compared.got, chained=compared.chained)

    def _cycles(self, told: tuple[str, dict[str, Codes]]) -> None:
        side, cycles = told
        # Nothing ever waits for a unit without registers.
        if side != "plain" or self.unit.clocked:
            self.coverage.stalls(side, cycles)


def hits(coverages: list[Coverage]) -> str:
    """How many bins of a unit were hit, by all of some coverages together."""
    total = coverages[0]
    for other in coverages[1:]:
        total.merge(other)
    hit = sum(int((counts > 0).sum()) for counts in total.counts.values())
    return (
        f"coverage    {hit:,} of {sum(group.size for group in total.groups.values()):,} bins, whether in reach or not"
    )
