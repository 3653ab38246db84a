"""Comparison of results with reference results, for the compiled loop, cocotb and pyuvm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .ports import Columns, Ports
from .reference import own_words
from .report import Failure, mismatch, unexplained
from .signals.rules import Fault

if TYPE_CHECKING:
    from halfulp.units import Unit


def compare(
    unit: "Unit", codes: Columns, want: Columns, got: Columns, most: int, *, chained: bool = False
) -> tuple[int, list[Failure]]:
    """Count wrong results and report the first ones in full.

    Parameters
    ----------
    unit : Unit
    codes : mapping
        Codes of each input, one per result or one for all.
    want, got : mapping
        Codes of each output.
    most : int
        Maximum number of full reports.
    chained : bool
        The vectors are consecutive steps from reset.
    """
    wrong = np.any([column != want[name] for name, column in got.items()], axis=0)
    at = np.flatnonzero(wrong)[: max(most, 0)].tolist()
    found = [{name: int(column[index]) for name, column in got.items()} for index in at]
    return int(wrong.sum()), full_failures(unit, at, codes, want, found, chained=chained)


def full_reports(
    unit: "Unit", faults: Iterable[Fault], codes: Columns, want: Columns, *, chained: bool
) -> list[Failure]:
    """Return the faults of a scoreboard as failures, those of known results with operands and bits."""
    outputs = Ports.of(unit.outputs)
    failures = []
    for fault in faults:
        if fault.index is None or fault.got < 0:
            failures.append(Failure(fault.kind, fault.text))
        else:
            got = dict(zip(outputs.names, outputs.unpack(fault.got), strict=True))
            failures += full_failures(unit, [fault.index], codes, want, [got], chained=chained)
    return failures


def full_failures(
    unit: "Unit",
    at: Sequence[int],
    codes: Columns,
    want: Columns,
    got: Sequence[Mapping[str, int]],
    *,
    chained: bool,
    commands: bool = True,
) -> list[Failure]:
    """Return the full reports of the mismatches ``got`` at vector indices ``at``, with `mismatch`'s commands or not."""
    if not at:
        return []
    shown = {**codes, **own_words(unit, max(at) + 1)}
    rows = zip(at, map(dict, got), strict=True)
    if chained:
        return [_step(unit, index, shown, want, result) for index, result in rows]
    return [mismatch(unit, _row(index, shown), _row(index, want), result, commands) for index, result in rows]


def _step(unit: "Unit", index: int, codes: Columns, want: Columns, got: dict[str, int]) -> Failure:
    """Convert a failed step of a chain to an independent vector, with the state before it as start value."""
    row, expected = _row(index, codes), _row(index, want)
    if unit.spec.quire is not None and not row["load"]:
        # The state of a quire is no start value: the failure depends on all previous steps.
        return unexplained(unit, row, expected, got, f"step {index} of the chain")
    if not row["load"]:
        before = int(want["o"][index - 1]) if index else 0
        row["c"] = 0 if row["clear"] else before
    row |= {"load": 1, "clear": 0}
    found = mismatch(unit, row, expected, got)
    return replace(found, text=f"step {index} of the chain; its start value is written as c\n{found.text}")


def _row(index: int, table: Columns) -> dict[str, int]:
    return {name: int(column[index if len(column) > 1 else 0]) for name, column in table.items()}
