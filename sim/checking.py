"""Check of results that another unit or library computed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from . import vector_files
from .causes import Cause, causes
from .compare import full_failures
from .reference import reference

if TYPE_CHECKING:
    from halfulp.units import Unit


@dataclass(frozen=True)
class Checked:
    """Results of another unit, with the causes of wrong ones.

    Attributes
    ----------
    given : Table
        Vectors and results of the other unit.
    want : dict
        Results of the golden model.
    wrong : int
        Number of vectors with a wrong result.
    causes : list of Cause
    """

    given: vector_files.Table
    want: dict[str, Any]
    wrong: int
    causes: list[Cause]


def check(unit: "Unit", path: Path) -> Checked:
    """Compare the results in a file with the golden model; raises ValueError if the file does not fit the unit."""
    given = vector_files.read(path, unit)
    want = reference(unit, given.codes)
    wrong = np.any([column != want[name] for name, column in given.results.items()], axis=0)
    found = causes(unit, given.codes, want, given.results) if wrong.any() else []
    return Checked(given, want, int(wrong.sum()), found)


def report(checked: Checked) -> Report:
    """Return the table of causes; there is none if all results are right."""
    if not checked.wrong:
        return Report({})
    rows = [
        {
            "cause": cause.fault,
            "wrong results": len(cause.at),
            "of": "" if cause.visible is None else f"{cause.visible:,}",
        }
        for cause in checked.causes
    ]
    notes = [
        f"{checked.wrong:,} of {checked.given.count:,} results are wrong",
        "of: number of wrong results of a unit with only this fault",
    ]
    title = f"Wrong results of {checked.given.unit.spec.text}"
    return Report({"causes": Table(title, pd.DataFrame(rows), {"wrong results": ",.0f"}, notes)})


def examples(checked: Checked) -> list[str]:
    """Return the lines of the first vector of each cause, with its exact result."""
    given = checked.given
    if not checked.wrong:
        return [f"All {given.count:,} results of {given.unit.spec.text} are right."]
    lines = []
    for cause in checked.causes:
        index = int(cause.at[0])
        got = {name: int(column[index]) for name, column in given.results.items()}
        (failure,) = full_failures(given.unit, [index], given.codes, checked.want, [got], chained=False, commands=False)
        lines += ["", f"{cause.fault}:", *(f"  {line}" for line in failure.text.splitlines())]
    return lines
