"""Report of an emulated program: every operation that ran, its arithmetic, and its results."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate
from torch import Tensor

from halfulp.golden.nn.select import GRADIENTS
from halfulp.tools import html
from halfulp.tools.paths import write_whole

PRODUCT, ELEMENTWISE, FUNCTION, REDUCTION = "product", "elementwise", "function", "reduction"
"""Kinds of operations that compute; others move or select numbers and change none."""

BARS, PLOTS = 12, ("png", "svg", "pdf")
"""Number of operations in a plot, and endings of its file."""

UPDATE = "update"
"""Phase of the step of an optimiser."""

IN_TORCH = "fp32"
"""Arithmetic of operations that torch computes."""

HAS_FP32 = f"the policy has {IN_TORCH} for "
"""Reason of a product whose phase is in torch's own arithmetic, without the phase."""

NO_PATTERN = "no pattern of the policies names it"
"""Reason of an operation without a policy."""


FIRST_CALLS = "seconds: the first call of an operation includes the time to compile its kernel and to make its tables"
"""Note below the table."""


def names_no(part: str) -> str:
    """Return the reason of an operation whose part a policy lacks."""
    return f"the policy has no key {part}"


_CURES = {
    names_no("elementwise"): "add elementwise=bf16.rn, for example",
    names_no("optimizer"): "add optimizer=fp32.rn, for example",
    NO_PATTERN: 'add a policy with the pattern "*", for example',
}


def cure(reason: str) -> str:
    """Return the part of a policy that takes an operation out of torch's own arithmetic."""
    phase = reason.removeprefix(HAS_FP32)
    of_product = f"add {phase}=bf16*bf16+fp32.rn, for example" if phase != reason else ""
    return of_product or _CURES.get(reason, "without strict it runs, and the report lists it")


@dataclass
class OperationCounts:
    """An operation at a place of the program, counted over all of its calls.

    Attributes
    ----------
    module, source : str
        Path of the module that called it, and file and line of the program.
    phase : str
        ``forward``, ``input_gradient``, ``weight_gradient`` or ``update``.
    operation, kind : str
        Name in torch, and kind: product, elementwise, function or reduction.
    arithmetic, reason : str
        Description of the arithmetic; for ``fp32``, torch's own, the reason.
    calls, macs, elements, pruned : int
        Number of calls, of multiply-accumulates, of results, and of operands' elements that sparsity made zero.
    seconds : float
        Time of the calls; the first call of an operation includes the compilation of its kernel and its tables.
    zeros, infinities, nans : int
        Numbers of such results; counted with ``values=True``.
    """

    module: str
    source: str
    phase: str
    operation: str
    kind: str
    arithmetic: str
    reason: str = ""
    calls: int = 0
    macs: int = 0
    elements: int = 0
    pruned: int = 0
    seconds: float = 0.0
    zeros: int = 0
    infinities: int = 0
    nans: int = 0


COLUMNS = tuple(column.name for column in fields(OperationCounts))
VALUES = COLUMNS[COLUMNS.index("zeros") :]
"""Columns of the values of results."""

_KEY = COLUMNS[: COLUMNS.index("calls")]


class Use(NamedTuple):
    """Operations on which a part of a policy has an effect."""

    what: str
    shows: Callable[[OperationCounts], bool] = lambda _: False
    """True for a row of such an operation."""


_PRODUCTS = Use("product of matrices", lambda row: row.kind == PRODUCT)

_STEPS = Use("step of an optimizer with a WeightUpdate")

USES = {
    **dict.fromkeys(("weights", "activations", "bias", "hadamard", "device", "multiplier", "adder"), _PRODUCTS),
    "gradients": Use("gradient of a product", lambda row: row.kind == PRODUCT and row.phase in GRADIENTS),
    **dict.fromkeys(("update", "master"), _STEPS),
    "elementwise": Use(
        "element-wise operation or function", lambda row: row.kind in (ELEMENTWISE, FUNCTION) and row.phase != UPDATE
    ),
    "functions": Use("function", lambda row: row.kind == FUNCTION and row.phase != UPDATE),
    "reductions": Use("sum of elements", lambda row: row.kind == REDUCTION and row.phase != UPDATE),
    "normalisation": Use("normalisation"),
    "optimizer": Use("step of an optimizer", lambda row: row.phase == UPDATE),
}
"""Operations by the name of the part of a policy."""


@dataclass
class Constant:
    """A finite number of the program that a format replaced by 0, 1, -1, an infinity or NaN.

    Attributes
    ----------
    module, source, phase, operation, arithmetic : str
        As for `OperationCounts`; operations that fill a tensor have the arithmetic of later operations on it.
    value, became : float
        Value, the first of those that became the same at this place, and what it became.
    calls : int
    """

    module: str
    source: str
    phase: str
    operation: str
    arithmetic: str
    value: float
    became: float
    calls: int = 0

    def __str__(self) -> str:
        place = f" in {self.module}" if self.module else ""
        return f"{self.operation} at {self.source}{place}: {self.value:.6g} became {self.became:g} in {self.arithmetic}"


@dataclass
class Report:
    """Operations of a program; its text is a table in descending order of multiply-accumulates.

    Attributes
    ----------
    rows : list of OperationCounts
    casts, redundant : int
        In compiled graphs, number of roundings of operands of element-wise operations and sums, and of those whose
        operands are numbers of the format already.
    chains : int
        In compiled graphs, number of chains of element-wise operations, each computed at once.
    constants : list of Constant
        Numbers of the program that a format replaced by 0, 1, an infinity or NaN, such as the ``eps`` of an optimiser.
    breaks : list of str
        Places at which `torch.compile` broke the graph, with the reason; code between graphs is not emulated.
    arrays : dict of str to int
        Places at which real numbers left torch as arrays of numpy or of another library, or as bytes of a storage, and
        the number of arrays; arithmetic on these is not emulated.
    numbers : dict of str to int
        Places at which real numbers left torch as numbers of Python, by ``item()``, ``float()`` or ``tolist()``, and
        their number.
    unused : list of str
        Patterns, and parts of policies, that had no effect, each with the reason.
    """

    rows: list[OperationCounts] = field(default_factory=list)
    casts: int = 0
    redundant: int = 0
    chains: int = 0
    constants: list[Constant] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    arrays: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    _counts_values: bool = field(default=False, repr=False, compare=False)
    _constants: dict[tuple[str, ...], Constant] = field(default_factory=dict, repr=False, compare=False)
    _index: dict[tuple[str, ...], OperationCounts] = field(default_factory=dict, repr=False, compare=False)

    def add(
        self, where: Mapping[str, str], counts: Mapping[str, int], result: Tensor | None, seconds: float, calls: int = 1
    ) -> None:
        """Count calls; with ``result``, also its zeros, infinities and NaN."""
        key = tuple(where.get(name, "") for name in _KEY)
        row = self._index.get(key)
        if row is None:
            row = self._index[key] = OperationCounts(**dict(zip(_KEY, key, strict=True)))  # type: ignore[arg-type]  # texts
            self.rows.append(row)
        row.calls += calls
        row.seconds += seconds
        for name, count in counts.items():
            setattr(row, name, getattr(row, name) + count)
        if result is not None:
            self._counts_values = True
            row.zeros += int((result == 0).sum())
            row.infinities += int(result.isinf().sum())
            row.nans += int(result.isnan().sum())

    def add_constant(self, where: Mapping[str, str], value: float, became: float) -> None:
        """Count a use of a constant that a format replaced by 0, 1, an infinity or NaN."""
        names = where["module"], where["source"], where["phase"], where["operation"], where["arithmetic"]
        key = (*names, str(became))
        if key not in self._constants:
            self._constants[key] = Constant(*names, value, became)
            self.constants.append(self._constants[key])
        self._constants[key].calls += 1

    def add_array(self, source: str) -> None:
        """Count an array of another library that was made from a tensor."""
        self.arrays[source] = self.arrays.get(source, 0) + 1

    def add_numbers(self, source: str, count: int) -> None:
        """Count numbers of Python that were made from a tensor."""
        self.numbers[source] = self.numbers.get(source, 0) + count

    @property
    def in_torch(self) -> list[OperationCounts]:
        """Operations in torch's own arithmetic."""
        return [row for row in self.rows if row.arithmetic == IN_TORCH]

    @property
    def share(self) -> float:
        """Share of the multiply-accumulates in the arithmetic of the policy; 1 without any."""
        everything = sum(row.macs for row in self.rows)
        return 1 - sum(row.macs for row in self.in_torch) / everything if everything else 1.0

    def sorted(self) -> list[OperationCounts]:
        """Return the rows in descending order of multiply-accumulates, then of results."""
        return sorted(self.rows, key=lambda row: (-row.macs, -row.elements))

    def json(self) -> str:
        """Return share, counts and rows as JSON."""
        totals: dict[str, Any] = {
            "share": self.share,
            "casts": self.casts,
            "redundant": self.redundant,
            "chains": self.chains,
        }
        totals |= {"constants": [{**asdict(constant), "became": str(constant.became)} for constant in self.constants]}
        totals |= {"breaks": self.breaks, "arrays": self.arrays, "numbers": self.numbers, "unused": self.unused}
        return json.dumps(totals | {"rows": [self._row(row) for row in self.sorted()]}, indent=1)

    def write(self, path: Path | str) -> None:
        """Write the JSON to a file."""
        write_whole(Path(path), self.json() + "\n")

    def plot(self, path: Path | str) -> None:
        """Draw the operations with most time, stacked by arithmetic, to a PNG, SVG or PDF file."""
        from halfulp.tools import plots

        path = Path(path)
        if path.suffix.removeprefix(".") not in PLOTS:
            raise ValueError(f"unknown ending of a plot {path.name!r}: expected .{', .'.join(PLOTS)}")
        seconds: dict[str, float] = {}
        for row in self.rows:
            seconds[row.operation] = seconds.get(row.operation, 0.0) + row.seconds
        named = sorted(seconds, key=lambda name: -seconds[name])[:BARS]
        labels = [*named, *["others"] * (len(seconds) > BARS)]
        panels: dict[str, dict[str, dict[str, float]]] = {}
        for title, column in (("multiply-accumulates", "macs"), ("results", "elements"), ("seconds", "seconds")):
            bars: dict[str, dict[str, float]] = {label: {} for label in labels}
            for row in self.sorted():
                bar = bars[row.operation if row.operation in named else "others"]
                bar[row.arithmetic] = bar.get(row.arithmetic, 0.0) + getattr(row, column)
            panels[title] = bars
        title = "Operations of an emulated program"
        plots.write(plots.plot_bars(panels, title=title), path, about={"title": title, "description": self.summary})

    @property
    def summary(self) -> str:
        """Share of the arithmetic of the policy, and number of calls in torch's own, in one line."""
        share = f"{self.share:.1%} of the multiply-accumulates are in the arithmetic of the policy"
        in_torch, calls = (sum(row.calls for row in rows) for rows in (self.in_torch, self.rows))
        return f"{share}; {in_torch:,} of {calls:,} operations are in torch's own"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; those of values only if these were counted."""
        return COLUMNS if self._counts_values else COLUMNS[: -len(VALUES)]

    def _row(self, row: OperationCounts) -> dict[str, Any]:
        return {name: getattr(row, name) for name in self.columns}

    @property
    def _table(self) -> list[list[str]]:
        return [list(map(_cell, self._row(row).values())) for row in self.sorted()]

    @property
    def _notes(self) -> list[str]:
        left = [
            f"{source}: {count:,} {what}{'s' * (count > 1)} left torch; arithmetic on {where} is not emulated"
            for places, what, where in ((self.arrays, "array", "arrays"), (self.numbers, "number", "numbers of Python"))
            for source, count in places.items()
        ]
        return [*[FIRST_CALLS] * bool(self.rows), *map(str, self.constants), *left, *self.unused]

    def __str__(self) -> str:
        return "\n".join([self.summary, tabulate(self._table, self.columns, disable_numparse=True), *self._notes])

    def _repr_html_(self) -> str:
        """Return the table and its notes for notebooks."""
        return html.table("Operations", self._table, self.columns, [*self._notes, self.summary])


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value


def is_real(value: object) -> bool:
    """Return True for a tensor of real or complex numbers."""
    return isinstance(value, Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)
