"""The scoreboard: observed results against predicted ones, by the comparison of the plain bench."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyuvm import uvm_analysis_port, uvm_component, uvm_scoreboard, uvm_subscriber

from halfulp.sim.compare import compare
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.report import Check, Failure
from halfulp.sim.rules import SHOWN, Broken

from .items import Operation
from .reference import Prediction, columns


class Compared(NamedTuple):
    """Compared operations, with codes of inputs and outputs; ``chained`` ones are steps in time, from reset."""

    codes: dict[str, Codes]
    got: dict[str, Codes]
    chained: bool


def export(name: str, parent: uvm_component, write: Callable[[Any], None]) -> Any:
    """An analysis export that calls a function."""
    return uvm_subscriber.uvm_AnalysisImp(name, parent, write)


class Scoreboard(uvm_scoreboard):
    """Compares results with predictions, one for one and in order, epoch by epoch.

    Operations under way at a reset are lost; at the end they are a failure.

    ConfigDB: ``unit``, and ``channel``, the name of the check.

    Members
    -------
    predictions, results, broken
        Analysis exports for `Prediction`, `Operation` and `Broken` rules.
    compared : uvm_analysis_port
        `Compared`.

    Attributes
    ----------
    explain : callable
        Cause of wrong results, from all that were expected since the last reset, as packed words.
    check : Check
        After the check phase.
    """

    def build_phase(self) -> None:
        self.unit: Any = self.cdb_get("unit")
        self.outputs = self.outputs_of(self.unit)
        self._due: list[Prediction] = []
        self.predictions = export("predictions", self, self._due.append)
        self.results = export("results", self, self._add_result)
        self.broken = export("broken", self, self._fail)
        self.compared = uvm_analysis_port("compared", self)
        self.explain: Callable[[Sequence[int]], Broken | None] = lambda expected: None
        self._seen: dict[int, list[Operation]] = {}
        self._failures: list[Failure] = []
        self._broken = 0

    def outputs_of(self, unit: Any) -> Ports:
        """Ports of a result."""
        return Ports.of(unit.outputs)

    def compare_part(self, part: Prediction, got: dict[str, Codes], most: int) -> tuple[int, list[Failure]]:
        """Number of wrong results among the first of a prediction, and the first of them in full."""
        count = len(next(iter(got.values())))
        codes = {name: column[:count] for name, column in part.codes.items()}
        want = {name: column[:count] for name, column in part.want.items()}
        self.compared.write(Compared(codes, got, part.chained))
        return compare(self.unit, codes, want, got, most, chained=part.chained)

    def _add_result(self, item: Operation) -> None:
        self._seen.setdefault(item.epoch, []).append(item)

    def _fail(self, broken: Broken) -> None:
        self._broken += 1
        if self._broken <= SHOWN:
            self._failures.append(Failure(*broken))

    def check_phase(self) -> None:
        checked = failed = 0
        last = max((part.epoch for part in self._due), default=0)
        taken: dict[int, int] = {}
        for part in self._due:
            found = self._seen.get(part.epoch, [])[part.first : part.first + len(part.cycles)]
            taken[part.epoch] = part.first + len(part.cycles)
            if any(item.cycle < cycle for item, cycle in zip(found, part.cycles, strict=False)):
                self._fail(("count", "a result was given before its operands were taken"))
            if found:
                checked += len(found)
                wrong, failures = self.compare_part(part, columns(self.outputs, found), SHOWN - len(self._failures))
                failed += wrong
                self._failures += failures
            if len(found) < len(part.cycles) and part.epoch == last:
                given = part.first + len(found)
                text = f"{taken[last]} operations were taken and {given} results given, then nothing more"
                self._fail(("count", text))
        for epoch, items in self._seen.items():
            if len(items) > taken.get(epoch, 0):
                self._fail(("count", "there are more results than operations were taken"))
        if failed:
            self._add_cause(last)
        self.check = Check("pyuvm", self.cdb_get("channel"), checked, failed + self._broken, self._failures)

    def _add_cause(self, epoch: int) -> None:
        """Put a cause of wrong results other than arithmetic before them."""
        words = [
            self.outputs.pack(row)
            for part in self._due
            if part.epoch == epoch
            for row in zip(*(part.want[port.name].tolist() for port in self.outputs), strict=True)
        ]
        if (cause := self.explain(words)) is not None:
            self._failures.insert(0, Failure(*cause))
