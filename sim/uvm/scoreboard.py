"""The scoreboard: observed results against predicted ones, by the comparison of the plain bench."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyuvm import uvm_analysis_port, uvm_component, uvm_scoreboard, uvm_subscriber

from halfulp.sim.compare import judge
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.report import Check, Failure
from halfulp.sim.rules import SHOWN, Broken

from .items import Operation
from .reference import Prediction, columns

TOOL = "pyuvm"
"""What a `Check` of a scoreboard is by."""


class Compared(NamedTuple):
    """Operations whose results were compared: for each input, and for each output, an array of codes.

    Attributes
    ----------
    codes, got : dict
    chained : bool
        Whether these are steps in time of a unit with state, from reset.
    """

    codes: dict[str, Codes]
    got: dict[str, Codes]
    chained: bool


def export(name: str, parent: uvm_component, write: Callable[[Any], None]) -> Any:
    """An analysis export that calls a function."""
    return uvm_subscriber.uvm_AnalysisImp(name, parent, write)


class Scoreboard(uvm_scoreboard):
    """Compares results with predictions, one for one and in order, epoch by epoch.

    What was under way when a reset came is lost; what is under way at the end is a failure.

    ConfigDB: ``unit``, and ``channel``, the name of what is checked.

    Members
    -------
    predictions, results, broken
        Analysis exports: what is due, what was seen, and what must not be.
    compared : uvm_analysis_port
        `Compared`.

    Attributes
    ----------
    explain : callable
        Asked why results are wrong, with all that were expected since the last reset, as packed words.
    check : Check
        After the check phase.
    """

    def build_phase(self) -> None:
        """Take the unit."""
        super().build_phase()
        self.unit: Any = self.cdb_get("unit")
        self.outputs = self.outputs_of(self.unit)
        self.predictions = export("predictions", self, self._expect)
        self.results = export("results", self, self._see)
        self.broken = export("broken", self, self._complain)
        self.compared = uvm_analysis_port("compared", self)
        self.explain: Callable[[Sequence[int]], Broken | None] = lambda expected: None
        self._due: list[Prediction] = []
        self._seen: dict[int, list[Operation]] = {}
        self._failures: list[Failure] = []
        self._broken = 0

    def outputs_of(self, unit: Any) -> Ports:
        """What a result consists of."""
        return Ports.of(unit.outputs)

    def judged(self, part: Prediction, got: dict[str, Codes], most: int) -> tuple[int, list[Failure]]:
        """Number of wrong results among the first of a prediction, and the first of them in full."""
        count = len(next(iter(got.values())))
        codes = {name: column[:count] for name, column in part.codes.items()}
        want = {name: column[:count] for name, column in part.want.items()}
        self.compared.write(Compared(codes, got, part.chained))
        return judge(self.unit, codes, want, got, most, chained=part.chained)

    def _expect(self, prediction: Prediction) -> None:
        self._due.append(prediction)

    def _see(self, item: Operation) -> None:
        self._seen.setdefault(item.epoch, []).append(item)

    def _complain(self, broken: Broken) -> None:
        self._broken += 1
        if self._broken <= SHOWN:
            self._failures.append(Failure(*broken))

    def check_phase(self) -> None:
        """Compare."""
        super().check_phase()
        checked = failed = 0
        last = max((part.epoch for part in self._due), default=0)
        taken: dict[int, int] = {}
        for part in self._due:
            found = self._seen.get(part.epoch, [])[part.first : part.first + len(part.cycles)]
            taken[part.epoch] = part.first + len(part.cycles)
            if any(item.cycle < cycle for item, cycle in zip(found, part.cycles, strict=False)):
                self._complain(("count", "a result was given before its operands were taken"))
            if found:
                checked += len(found)
                wrong, failures = self.judged(part, columns(self.outputs, found), SHOWN - len(self._failures))
                failed += wrong
                self._failures += failures
            if len(found) < len(part.cycles) and part.epoch == last:
                given = part.first + len(found)
                text = f"{taken[last]} operations were taken and {given} results given, then nothing more"
                self._complain(("count", text))
        for epoch, items in self._seen.items():
            if len(items) > taken.get(epoch, 0):
                self._complain(("count", "there are more results than operations were taken"))
        if failed:
            self._ask_why(last)
        self.check = Check(TOOL, self.cdb_get("channel"), checked, failed + self._broken, self._failures)

    def _ask_why(self, epoch: int) -> None:
        """Put the cause of wrong results before them, where it is another than arithmetic."""
        words = [
            self.outputs.pack(row)
            for part in self._due
            if part.epoch == epoch
            for row in zip(*(part.want[port.name].tolist() for port in self.outputs), strict=True)
        ]
        if (cause := self.explain(words)) is not None:
            self._failures.insert(0, Failure(*cause))
