"""Regressions: saved vectors, one per line of a file, which run before all others.

A file contains the vectors of one description without random source, and is used for every build of it. A line contains
the codes of the inputs, those of the outputs, and the reason for the vector::

    unit fma e3m1*e3m1+e3m4=e3m1.rn
    0x05,0x11,0x33 -> 0x0b  # lost bits of the addend decided the rounding

Codes are in the order of the unit's ports, without ``load`` and ``clear``. A line with these two is a sequence of steps
from reset, separated by semicolons.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfulp.implementation import Implementation
from halfulp.tools.errors import CheckError
from halfulp.tools.paths import write_whole

from .model import CompiledModel
from .ports import Codes, Columns, Ports
from .reference import reference
from .report import Check, Failure, exact_codes, mismatch

if TYPE_CHECKING:
    from halfulp.units import Unit

StepCodes = dict[str, int]


@dataclass(frozen=True)
class Regression:
    """One vector, or a sequence of steps from reset, with the results.

    Attributes
    ----------
    steps, results : tuple of dict
        Codes by port, for each step.
    why : str
        Reason for the vector, in one line.
    """

    steps: tuple[StepCodes, ...]
    results: tuple[StepCodes, ...]
    why: str

    @property
    def chained(self) -> bool:
        """True for a sequence of steps from reset."""
        return len(self.steps) > 1 or any(step.get("load", 1) != 1 or step.get("clear") for step in self.steps)

    def columns(self) -> dict[str, Codes]:
        """Return the steps as one array of codes per port."""
        return {name: np.array([step[name] for step in self.steps], dtype=np.uint64) for name in self.steps[0]}

    def text(self, unit: "Unit") -> str:
        """Format the line that `read` parses."""
        inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
        steps = "; ".join(map((inputs if self.chained else inputs.stateless).write, self.steps))
        return f"{steps} -> {'; '.join(map(outputs.write, self.results))}  # {self.why}"


def folder() -> Path:
    """Return the folder of regressions: ``$HALFULP_REGRESSIONS``, or ``tests/regressions`` of the checkout."""
    if given := os.environ.get("HALFULP_REGRESSIONS"):
        return Path(given).absolute()
    checkout = Path(__file__).resolve().parents[1]
    return (checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()) / "tests" / "regressions"


def place(unit: "Unit") -> Path:
    """Return the path of a unit's file."""
    return folder() / f"{unit.spec.without_source.name}.txt"


def parse_steps(text: str, inputs: Ports) -> tuple[StepCodes, ...]:
    """Parse a vector such as ``0x3c,0x40,0x001``, or steps from reset; raises ValueError if the text is invalid."""
    parts = text.split(";")
    stateful = len(inputs.stateless) < len(inputs)
    if stateful and (len(parts) > 1 or parts[0].count(",") + 1 == len(inputs)):
        return tuple(inputs.read(part.strip()) for part in parts)
    if len(parts) > 1:
        raise ValueError("expected one vector, because the unit has no state")
    return (inputs.read_vector(parts[0].strip()),)


def with_results(unit: "Unit", steps: tuple[StepCodes, ...], why: str) -> Regression:
    """Create a regression with the results of the golden model.

    Raises CheckError if exact arithmetic gives another result for a vector, and ValueError if the reason is not one
    line.
    """
    why = why.strip()
    if not why or "\n" in why:
        raise ValueError("a regression needs a reason of one line")
    vectors = Regression(steps, steps, why)
    want = reference(unit, vectors.columns(), chained=vectors.chained)
    results = _results(want, len(steps))
    if not vectors.chained and (exact := exact_codes(unit, steps[0], results[0])) != results[0]:
        raise CheckError(f"wrong golden model: it gives {results[0]}, but exact arithmetic gives {exact}")
    return replace(vectors, results=results)


def save(unit: "Unit", row: Regression) -> tuple[Path, bool]:
    """Add a vector to the file of its unit; return the file, and True if the vector is new."""
    path, computed = place(unit), Implementation(unit.spec.without_source).component()
    already = read(path)[1] if path.is_file() else []
    if any(other.steps == row.steps for other in already):
        return path, False
    lines = [
        "# Written by `halfulp save`; these vectors run before all others.",
        f"unit {computed.spec.text}",
        f"# {','.join(Ports.inputs_of(computed).stateless.names)} -> {','.join(computed.outputs)}",
        *(each.text(computed) for each in [*already, row]),
    ]
    write_whole(path, "\n".join(lines) + "\n", "the regressions")
    return path, True


def read(path: Path) -> tuple[Any, list[Regression]]:
    """Parse a file into its unit and vectors; raises ValueError with the line number if a line is invalid."""
    unit: Unit | None = None
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            if unit is None and line.startswith("unit "):
                unit = Implementation.parse(line.removeprefix("unit ")).component()
            elif line.strip() and not line.startswith("#"):
                rows.append(_row(line, unit))
        except ValueError as error:
            raise ValueError(f"{path.name}, line {number}: {error}") from None
    if unit is None:
        raise ValueError(f"{path.name} names no unit: expected a line such as unit mul e4m3fn*e4m3fn.rn")
    return unit, rows


def _row(line: str, unit: "Unit | None") -> Regression:
    if unit is None:
        raise ValueError("expected the line of the unit before the first vector")
    codes, hash_, why = line.partition("#")
    before, arrow, after = codes.partition("->")
    if not (arrow and hash_ and why.strip()):
        raise ValueError("invalid vector: expected CODES -> CODES  # reason")
    steps = parse_steps(before, Ports.inputs_of(unit))
    results = tuple(Ports.of(unit.outputs).read(part.strip()) for part in after.split(";"))
    if len(results) != len(steps):
        raise ValueError(f"{len(steps)} steps with {len(results)} results: expected one result per step")
    return Regression(steps, results, why.strip())


def of(unit: "Unit") -> list[Regression]:
    """Return the regressions of a unit; empty for a unit with its own random source."""
    path = place(unit)
    return read(path)[1] if not unit.sources and path.is_file() else []


def replay(unit: "Unit", loop: CompiledModel, rows: list[Regression]) -> Check:
    """Run regressions in the compiled loop and the golden model, and compare both with the saved results."""
    failures: list[Failure] = []
    for row in rows:
        codes = row.columns()
        loop.reset()
        got = _results(loop.run(codes, len(row.steps)), len(row.steps))
        model = _results(reference(unit, codes, chained=row.chained), len(row.steps))
        if model != row.results:
            failures.append(
                Failure("golden", f"the golden model gives {model}, but the saved results are {row.results}: {row.why}")
            )
        if got != row.results:
            failures.append(_wrong(unit, row, got))
    return Check("compiled loop", "regressions", len(rows), len(failures), failures)


def _results(columns: Columns, count: int) -> tuple[StepCodes, ...]:
    return tuple({name: int(codes[n]) for name, codes in columns.items()} for n in range(count))


def _wrong(unit: "Unit", row: Regression, got: tuple[StepCodes, ...]) -> Failure:
    if row.chained:
        return Failure("mismatch", f"{row.text(unit)}\nthe steps from reset gave {got}")
    failure = mismatch(unit, row.steps[0], row.results[0], got[0])
    return replace(failure, text=f"{row.why}\n{failure.text}")
