"""Scoreboard: compares observed results with predictions, with the comparison of the test bench."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyuvm import uvm_analysis_port, uvm_component, uvm_scoreboard, uvm_subscriber

from halfulp.sim.compare import full_reports
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.report import Check, Failure
from halfulp.sim.signals import agents
from halfulp.sim.signals.agents import Explanation
from halfulp.sim.signals.rules import SHOWN, Broken, Fault

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

    The comparison is that of the test bench. Operations pending at a reset are dropped; at the end of the test they are
    a failure.

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
        self._due: dict[int, list[Prediction]] = {}
        self._seen: dict[int, list[Operation]] = {}
        self.predictions = export("predictions", self, self._add_prediction)
        self.results = export("results", self, self._add_result)
        self.broken = export("broken", self, self._fail)
        self.compared = uvm_analysis_port("compared", self)
        self.explain: Explanation = lambda expected: None
        self.board = agents.Scoreboard([])

    def outputs_of(self, unit: "Unit") -> Ports:
        """Return the ports of a result."""
        return Ports.of(unit.outputs)

    def full_reports(self, part: Prediction, fault: Fault) -> list[Failure]:
        """Return a mismatch at an index of a prediction with its operands."""
        return full_reports(self.unit, [fault], part.codes, part.want, chained=part.chained)

    def _add_prediction(self, part: Prediction) -> None:
        self._due.setdefault(part.epoch, []).append(part)

    def _add_result(self, item: Operation) -> None:
        self._seen.setdefault(item.epoch, []).append(item)

    def _fail(self, broken: Broken) -> None:
        self.board.fail(Failure(*broken))

    def check_phase(self) -> None:
        board, last = self.board, max(self._due, default=0)
        expected: dict[int, list[int]] = {}
        for epoch in sorted({*self._due, *self._seen}):
            parts, found = self._due.get(epoch, []), self._seen.get(epoch, [])
            expected[epoch] = [word for part in parts for word in self.outputs.words(part.want)]
            first = len(board.shown)
            board.compare_all(expected[epoch], [item.word for item in found])
            reports = [failure for fault in board.shown[first:] for failure in self._reports(parts, fault)]
            board.shown[first:] = reports[: SHOWN - first]
            if any(item.cycle < cycle for item, cycle in zip(found, _cycles(parts), strict=False)):
                self._fail(("count", "a result appeared before its operands were accepted"))
            if board.missing and epoch == last:
                text = f"the unit stopped after {len(board.expected)} operations and {len(found)} results"
                self._fail(("count", text))
            self._publish(parts, found)
        if board.first is not None and (cause := self.explain(expected.get(last, []))) is not None:
            board.shown.insert(0, Failure(*cause))
        self.check = Check("pyuvm", self.cdb_get("channel"), board.checked, board.failed, board.shown)

    def _reports(self, parts: list[Prediction], fault: Fault) -> list[Failure]:
        """Return a fault of an epoch as failures."""
        if fault.index is None:
            return [Failure(fault.kind, fault.text)]
        part = next(part for part in reversed(parts) if part.first <= fault.index)
        return self.full_reports(part, replace(fault, index=fault.index - part.first))

    def _publish(self, parts: list[Prediction], found: list[Operation]) -> None:
        """Publish the compared operations of an epoch."""
        for part in parts:
            items = found[part.first : part.first + len(part.cycles)]
            if items:
                codes = {name: column[: len(items)] for name, column in part.codes.items()}
                self.compared.write(Compared(codes, columns(self.outputs, items), part.chained))


def _cycles(parts: list[Prediction]) -> Iterator[int]:
    return itertools.chain.from_iterable(part.cycles for part in parts)
