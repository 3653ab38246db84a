"""Scoreboard: compares observed results with predictions, with the comparison of the test bench."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyuvm import uvm_analysis_port, uvm_component, uvm_scoreboard, uvm_subscriber

from halfulp.sim.compare import compare
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.report import Check, Failure
from halfulp.sim.signals.agents import Board
from halfulp.sim.signals.rules import SHOWN, Broken

from .items import Operation
from .reference import Prediction, columns

if TYPE_CHECKING:
    from halfulp.units import Unit


class Compared(NamedTuple):
    """Compared operations, with codes of inputs and outputs; ``chained`` marks consecutive steps from reset."""

    codes: dict[str, Codes]
    got: dict[str, Codes]
    chained: bool


def export(name: str, parent: uvm_component, write: Callable[[Any], None]) -> Any:
    """Return an analysis export that calls a function."""
    return uvm_subscriber.uvm_AnalysisImp(name, parent, write)


class Scoreboard(uvm_scoreboard):
    """Scoreboard that compares results with predictions in order, for each epoch between resets.

    Operations pending at a reset are dropped; at the end of the test they are a failure.

    ConfigDB: ``unit``, and ``channel``, the name of the check.

    Members
    -------
    predictions, results, broken
        Analysis exports for `Prediction`, `Operation` and `Broken` rules.
    compared : uvm_analysis_port
        Publishes `Compared` operations.

    Attributes
    ----------
    explain : callable
        Function from all expected words since the last reset to a cause of wrong results.
    check : Check
        Result, after the check phase.
    """

    def build_phase(self) -> None:
        self.unit: Unit = self.cdb_get("unit")
        self.outputs = self.outputs_of(self.unit)
        self._due: list[Prediction] = []
        self.predictions = export("predictions", self, self._due.append)
        self.results = export("results", self, self._add_result)
        self.broken = export("broken", self, self._fail)
        self.compared = uvm_analysis_port("compared", self)
        self.explain: Callable[[Sequence[int]], Broken | None] = lambda expected: None
        self._seen: dict[int, list[Operation]] = {}
        self.board = Board()

    def outputs_of(self, unit: "Unit") -> Ports:
        """Return the ports of a result."""
        return Ports.of(unit.outputs)

    def compare_part(self, part: Prediction, got: dict[str, Codes], most: int) -> tuple[int, list[Failure]]:
        """Count wrong results in the first part of a prediction, and report the first ones in full."""
        count = len(next(iter(got.values())))
        codes = {name: column[:count] for name, column in part.codes.items()}
        want = {name: column[:count] for name, column in part.want.items()}
        self.compared.write(Compared(codes, got, part.chained))
        return compare(self.unit, codes, want, got, most, chained=part.chained)

    def _add_result(self, item: Operation) -> None:
        self._seen.setdefault(item.epoch, []).append(item)

    def _fail(self, broken: Broken) -> None:
        self.board.fail(Failure(*broken))

    def check_phase(self) -> None:
        board, wrong = self.board, 0
        last = max((part.epoch for part in self._due), default=0)
        taken: dict[int, int] = {}
        for part in self._due:
            found = self._seen.get(part.epoch, [])[part.first : part.first + len(part.cycles)]
            taken[part.epoch] = part.first + len(part.cycles)
            if any(item.cycle < cycle for item, cycle in zip(found, part.cycles, strict=False)):
                self._fail(("count", "a result appeared before its operands were accepted"))
            if found:
                count, failures = self.compare_part(part, columns(self.outputs, found), SHOWN - len(board.shown))
                board.checked, wrong = board.checked + len(found), wrong + count
                board.fail(*failures, count=count)
            if len(found) < len(part.cycles) and part.epoch == last:
                given = part.first + len(found)
                text = f"the unit stopped after {taken[last]} operations and {given} results"
                self._fail(("count", text))
        for epoch, items in self._seen.items():
            if len(items) > taken.get(epoch, 0):
                self._fail(("count", "there are more results than accepted operations"))
        if wrong:
            self._add_cause(last)
        self.check = Check("pyuvm", self.cdb_get("channel"), board.checked, board.failed, board.shown)

    def _add_cause(self, epoch: int) -> None:
        """Insert a cause of wrong results other than arithmetic before them."""
        words = [
            self.outputs.pack(row)
            for part in self._due
            if part.epoch == epoch
            for row in zip(*(part.want[port.name].tolist() for port in self.outputs), strict=True)
        ]
        if (cause := self.explain(words)) is not None:
            self.board.shown.insert(0, Failure(*cause))
