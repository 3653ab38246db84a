"""Accuracy of small networks in many arithmetics, for the reports of emulators: cases, their runs and their record."""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from halfulp.fpga.report.coreport import Accuracy
from halfulp.tools.cache import Entry
from halfulp.tools.digests import code, version
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.paths import scratch
from halfulp.tools.progress import Progress, silent
from halfulp.tools.records import read_records
from halfulp.tools.report import provenance, versions
from halfulp.tools.threads import threads

if TYPE_CHECKING:
    from halfulp.lab.train.loop import Run

SMALL, SYNTHETIC, BRIEF, MODELS = (f"halfulp.lab.train.{name}" for name in ("small", "synthetic", "quick", "models"))
"""Modules of small networks; `halfulp train` trains them too."""

NETWORKS = {
    "resnet": (SMALL, 5, 128),
    "transformer": (SMALL, 8, 64),
    "recurrent": (SMALL, 6, 64),
    "graph": (SYNTHETIC, 60, 140),
    "translation": (SYNTHETIC, 8, 64),
    "words": (SYNTHETIC, 10, 32),
    "gpt": (BRIEF, 4, 64),
    "lenet": (BRIEF, 3, 64),
    "gpt2": (MODELS, 8, 8),
    "llama": (MODELS, 8, 8),
    "lenet5": ("", 3, 64),
    "lenet5_normal": (BRIEF, 3, 64),
}
"""Networks of these modules and of `halfulp train`, with their modules, epochs and batches."""

OWN_DATA = {
    "lenet5": "MNIST (4,000 images of 28 x 28 pixels, 1,000 test images)",
    "lenet5_normal": "the same, with other initial weights",
    "graph": "a citation graph drawn with the sizes of Cora (140 training papers, 1000 test papers)",
    "translation": "the 2048 sentences of a small language (1638 for training; words that are right)",
    "words": "a text of a language drawn at random (1,000 sequences of 10 of its 512 words, 200 in the test)",
    "gpt": "the sentences of a small language, which a transformer continues with their translations",
    "lenet": "digits of 8 x 8 pixels, in a LeNet-5 with padded convolutions",
    "gpt2": (POEMS := "poems of 5,921 letters, which are read in sequences of 64"),
    "llama": POEMS,
}
"""Data of networks that are not trained on digits of 8 x 8 pixels."""

DIGITS = "of small networks on digits (1,437 training images of 8 x 8 pixels, 360 test images)"
"""Data of the other networks."""

FLOAT = "fp32"

ACCURACY, LOSS, IN_FP32, CHANGED = "accuracy", "loss", "loss-fp32", "changed"
"""Figures of an epoch: on the test set, in percent, and as the mean loss, in the arithmetic of the case or in FP32."""

PACKAGES = ("torch",)
"""Packages that decide the accuracies."""


@dataclass(frozen=True)
class Case:
    """Training of a network in one arithmetic.

    Attributes
    ----------
    network : str
        Name in `NETWORKS`.
    policies : tuple of (str, str)
        Patterns of modules, and the texts of their policies.
    emulate : bool
        Compute the whole program in the policies; False converts layers only.
    activations : tuple of (str, str)
        Functions, and the texts of the line segments that replace them.
    later : tuple of (int, tuple)
        Numbers of finished epochs after which other policies hold.
    settings : tuple of (str, float)
        Other parameters of the run, such as its ``rate``.
    """

    network: str
    policies: tuple[tuple[str, str], ...] = (("*", FLOAT),)
    emulate: bool = False
    activations: tuple[tuple[str, str], ...] = ()
    later: tuple[tuple[int, tuple[tuple[str, str], ...]], ...] = ()
    settings: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Effort:
    """Seeds of each case, and limits on training examples and epochs; None for no limit."""

    seeds: tuple[int, ...] = (0, 1, 2)
    limit: int | None = None
    epochs: int | None = None


QUICK = Effort(seeds=(0,), limit=64, epochs=1)
"""Effort that shows that a report works; its accuracies mean nothing."""


@dataclass(frozen=True)
class Figures:
    """Record of a report.

    Attributes
    ----------
    command, date : str
        Command that measured the figures, and the day.
    tools : dict of str to str
        Versions of the tools.
    effort : Effort
    values : dict of Case to list of float
        Accuracies in percent, one for each seed; fewer, and fewer cases, if a measurement was stopped.
    more : dict of str to object
        Other figures of the report, as JSON values.
    """

    command: str
    date: str
    tools: dict[str, str]
    effort: Effort
    values: dict[Case, list[float]]
    more: dict[str, Any] = field(default_factory=dict)

    def mean(self, case: Case) -> float:
        """Mean accuracy."""
        return self._accuracy(case).mean

    def cell(self, case: Case) -> float | None:
        """Mean accuracy as a cell of a table; None if the case was not trained."""
        return self.mean(case) if case in self.values else None

    def cells(self, case: Case, name: str) -> dict[str, float | None]:
        """Mean and deviation as cells of a table."""
        deviation = self._accuracy(case).deviation if case in self.values else None
        return {name: self.cell(case), f"{name}, s.d.": deviation}

    def gain(self, case: Case, other: Case) -> float | None:
        """Mean of the accuracies of a case minus those of another with the same seeds; None if one was not trained."""
        pairs = list(zip(self.values.get(case, []), self.values.get(other, []), strict=False))
        return statistics.fmean(a - b for a, b in pairs) if pairs else None

    def seeds(self, cases: Sequence[Case]) -> str:
        """Numbers of seeds of the trained cases of a row, as a cell of a table."""
        counts = [len(self.values[case]) for case in cases if case in self.values]
        return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""

    def _accuracy(self, case: Case) -> Accuracy:
        return Accuracy.of(case.network, self.values[case])

    @property
    def notes(self) -> list[str]:
        """Notes of all tables: setting and origin."""
        effort = self.effort
        count = f"{len(effort.seeds)} seeds" if len(effort.seeds) > 1 else "one seed"
        fewer = sum(len(accuracies) < len(effort.seeds) for accuracies in self.values.values())
        missing = f"; {fewer} of {len(self.values)} accuracies with fewer" if fewer else ""
        limits = f"; a test with {effort.limit} examples and {effort.epochs} epochs" if effort.limit else ""
        names = {case.network for case in self.values}
        data = [DIGITS] if names - set(OWN_DATA) else []
        data += [f"of {name} on {own}" for name, own in OWN_DATA.items() if name in names]
        return [
            f"Ours: test accuracy in % {'; '.join(data)}; mean over {count}{missing}{limits}. Empty cells of ours were "
            "not trained.",
            f"Made by {provenance(self.command, self.tools)}, on {self.date}."
            + (f" {later}." if (later := self.more.get("added")) else ""),
        ]

    def json(self) -> str:
        """Return the record as JSON."""
        values = [{"case": asdict(case), "accuracy": accuracies} for case, accuracies in self.values.items()]
        content = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        return json.dumps(content | {"effort": asdict(self.effort), "values": values}, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record."""
        content = json.loads(path.read_text())
        values = {}
        for entry in content["values"]:
            values[Case(**{name: _tuples(part) for name, part in entry["case"].items()})] = entry["accuracy"]
        effort = content["effort"] | {"seeds": tuple(content["effort"]["seeds"])}
        return cls(**(content | {"values": values, "effort": Effort(**effort)}))


def added(known: Figures, found: Figures) -> Figures:
    """Return a record with the cases and figures that a later run added, and a note on it."""
    count = len(found.values.keys() - known.values.keys())
    what = f"{count} accuracies" if count else "Figures other than accuracies"
    new = count or any(known.more.get(name) != figures for name, figures in found.more.items())
    note = {"added": f"{what} were added by {found.command}, on {found.date}"} if new else {}
    return replace(known, values=known.values | found.values, more=known.more | found.more | note)


def measure(
    cases: Iterable[Case],
    effort: Effort,
    command: str,
    date: str,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    most_seeds: Callable[[Case], int | None] = lambda _: None,
    **more: Any,
) -> Figures:
    """Train all cases; finished ones are cached, so that a report that was stopped continues.

    ``most_seeds`` limits the seeds of a case that takes long.
    """
    efforts = {case: replace(effort, seeds=effort.seeds[: most_seeds(case)]) for case in dict.fromkeys(cases)}
    values = trained(efforts, ACCURACY, progress, pool)
    return Figures(command, date, versions("halfulp", "torch"), effort, values, more)


def trained(
    efforts: dict[Case, Effort], figure: str, progress: Progress = silent, pool: JobPool = LOCAL
) -> dict[Case, list[float]]:
    """Train cases, or read the results of earlier trainings; return a figure of the last epoch for each seed."""
    entries = {case: _entry(case, effort, figure) for case, effort in efforts.items()}
    progress.total("training runs", len(entries))
    jobs = (
        (entry, Job(f"training of {case}", train, (case, efforts[case], figure))) for case, entry in entries.items()
    )
    # Few short runs take less time than the start of processes.
    results = pool.results(
        jobs,
        progress,
        versions=partial(versions, *PACKAGES),
        here="call" if QUICK in efforts.values() else "process",
    )
    return {case: results[entry] for case, entry in entries.items()}


def _entry(case: Case, effort: Effort, figure: str) -> Entry:
    """Return the place in the cache of the figures of a case."""
    return Entry.of("trainings" if figure == ACCURACY else f"trainings-{figure}", key(case, effort))


def key(case: Case, effort: Effort) -> tuple[object, ...]:
    """Return everything that decides the figures of a case."""
    module, epochs, batch = NETWORKS[case.network]
    sources = code("halfulp.lab.train.loop", "halfulp.lab.train.user", *([module] if module else []))
    return case, (epochs, batch), effort, sources, *map(version, PACKAGES)


@threads(1)
def train(case: Case, effort: Effort, figure: str = ACCURACY) -> list[float]:
    """Train a case with each seed; return the accuracies, or another figure of the last epochs."""
    if figure == CHANGED:
        return [changed(case, effort)]
    figures = []
    for seed in effort.seeds:
        with scratch("trainings") as folder:
            training = run(case, effort, seed, folder)
            epoch = training.train()
            figures.append(training.loss_in_fp32() if figure == IN_FP32 else getattr(epoch, figure))
    return figures


@threads(1)
def changed(case: Case, effort: Effort = Effort()) -> float:
    """Train a case with the first seed; return the share of the parameters that the last step changes."""
    import torch

    shares = [0.0]
    before: list[torch.Tensor] = []

    def flat(optimizer: torch.optim.Optimizer) -> torch.Tensor:
        return torch.cat([one.detach().flatten() for group in optimizer.param_groups for one in group["params"]])

    def keep(optimizer: torch.optim.Optimizer, *_: object) -> None:
        before[:] = [flat(optimizer)]

    def compare(optimizer: torch.optim.Optimizer, *_: object) -> None:
        shares.append((flat(optimizer) != before[0]).double().mean().item())

    with scratch("trainings") as folder:
        training = run(case, effort, effort.seeds[0], folder)
        training.optimizer.register_step_pre_hook(keep)
        training.optimizer.register_step_post_hook(compare)
        training.train()
    return shares[-1]


def run(case: Case, effort: Effort, seed: int, folder: Path) -> "Run":
    """Return the run of a case with a seed, with its checkpoints in a folder."""
    from halfulp.lab.train.loop import Plan, Run
    from halfulp.lab.train.networks import NETWORKS as KNOWN
    from halfulp.lab.train.user import network

    module, epochs, batch = NETWORKS[case.network]
    own = network(f"{module}:{case.network}") if module else KNOWN[case.network]
    plan = Plan(
        network=case.network,
        policies=case.policies,
        seed=seed,
        epochs=effort.epochs or epochs,
        batch=batch,
        rate=own.rate,
        activations=case.activations,
        emulate=case.emulate,
        later=case.later,
    )
    settings: dict[str, Any] = dict(case.settings)
    plan = replace(plan, **settings)
    return Run(plan, own.load(None).limited(effort.limit), folder, network=own)


def read_losses(
    path: Path, columns: Mapping[str, Callable[[str], Any]], known: Mapping[str, Iterable[str]]
) -> list[dict[str, Any]]:
    """Read rows from a CSV file; ValueError if one has other names in a column than the known ones."""
    rows = read_records(path, columns)
    for row in rows:
        if any(row[column] not in names for column, names in known.items()):
            network, other = (row[column] for column in known)
            raise ValueError(f"{path.name} has {other!r} on {network!r}, which this report does not train")
    return rows


def segments(name: str, pieces: int) -> tuple[str, str]:
    """Return a function and its line segments in fxp4.12, for `Case.activations`."""
    from halfulp.hdl.fit.store import segments_of

    return name, segments_of(name, fmt="fxp4.12", pieces=pieces).text


def _tuples(part: Any) -> Any:
    """Convert the lists of JSON to tuples."""
    return tuple(map(_tuples, part)) if isinstance(part, list) else part


def lowest(figures: Figures, cases: Sequence[tuple[str, Case]], reference: Case) -> str:
    """Return the name of the first trained case whose mean accuracy is within one point of the reference."""
    trained = [(name, gain) for name, case in cases if (gain := figures.gain(case, reference)) is not None]
    return next((name for name, gain in trained if gain >= -1), "none of these" if trained else "")


def number_formats(rows: Sequence[dict[str, Any]], *, digits: int = 2) -> dict[str, str]:
    """Return the formats of the columns of numbers, with so many digits after the point."""
    return {name: f".{digits}f" for row in rows for name, cell in row.items() if isinstance(cell, float)}
