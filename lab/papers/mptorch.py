"""Accuracy of LeNet5 in ten arithmetics, compared with MPTorch-FPGA (Ben Ali et al., DATE 2025, Table II)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd

from halfulp.tools.plots import plot_bars
from halfulp.tools.report import Report, provenance
from halfulp.tools.tables import Table

from .accuracy import PUBLISHED, Published
from .trainings import Case, Figures, number_formats

NETWORK = "lenet5"
"""Network of the table that a package has data for."""


FIXED = (
    "In fixed point a small accuracy of ours is a matter of the setting, because initial weights and loss scale "
    "decide how many products are zero: with torch's initial weights and a scale of 256, at least 98 % of the forward "
    "products of the last two layers and 72 % of those of their input gradients round to zero in fxp4.4 at the first "
    "step, with a scale of 4096 at most 8 % of the latter, and no weight gradient of these layers saturates; "
    "the published initial weights are not known."
)
"""Cause of the differences in fixed point."""


def case(row: Published) -> Case:
    """Return the case of a row of the published table."""
    return Case(NETWORK, (("*", row.mac),))


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    yield from map(case, PUBLISHED)


def report(figures: Figures) -> Report:
    """Return the report: its table and the record."""
    return Report(
        {"mptorch-accuracy": _accuracy(figures)},
        {"mptorch-accuracy": partial(_plot, figures)},
        records={"mptorch.json": figures.json()},
        title="Accuracy of LeNet5 in ten arithmetics",
        made_by=provenance(figures.command, figures.tools),
    )


def _plot(figures: Figures) -> object:
    """Plot the accuracies of the trained arithmetics beside the published ones, by family of formats."""
    bars: dict[str, dict[str, dict[str, float]]] = {"ours": {}, "published": {}}
    for row in PUBLISHED:
        if (mean := figures.cell(case(row))) is not None:
            family = "fixed point" if row.mac.startswith("fxp") else "floating point"
            bars["ours"][row.mac], bars["published"][row.mac] = {family: mean}, {family: row.lenet5}
    return plot_bars(bars, title="Test accuracy of LeNet5 on MNIST after training in each arithmetic, %")


def _accuracy(figures: Figures) -> Table:
    ours = [figures.cell(case(row)) for row in PUBLISHED]
    published = [row.lenet5 for row in PUBLISHED]
    rows: list[dict[str, Any]] = [
        {
            "multiplier": row.multiplier,
            "accumulator": row.accumulator,
            "MAC": row.mac,
            "published": row.lenet5,
            **figures.cells(case(row), "ours"),
            "rank, published": rank,
            "rank, ours": own,
        }
        for row, rank, own in zip(PUBLISHED, ranks(published), ranks(ours), strict=True)
    ]
    notes = [
        "Published: Ben Ali et al., DATE 2025, Table II, LeNet5 trained on all of MNIST. Forward products and both "
        "gradients are in the arithmetic of the row; weights are FP32 and rounded to the operands of each product. "
        "Rank: 1 is the highest accuracy.",
        FIXED,
        *figures.notes,
    ]
    return Table("Accuracy of LeNet5 in ten arithmetics", pd.DataFrame(rows), number_formats(rows), notes)


def ranks(accuracies: Sequence[float | None]) -> list[int | None]:
    """Return the rank of each accuracy, 1 for the highest; equal ones share the lowest number."""
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return [None if accuracy is None else 1 + sum(other > accuracy for other in known) for accuracy in accuracies]
