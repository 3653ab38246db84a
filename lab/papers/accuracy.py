"""Accuracy of networks, compared with Ben Ali et al. (DATE 2025, Table II), and of dot products."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from halfulp.fpga.report.coreport import Accuracy
from halfulp.fpga.report.coreport_tables import kind_of
from halfulp.fpga.report.dots import Error, errors, layer_of
from halfulp.fpga.report.study import TRAINED, Dots, Layer
from halfulp.hdl.specs import MacSpec
from halfulp.tools.cache import cached
from halfulp.tools.digests import code, digest, version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.paths import work_root
from halfulp.tools.plots import Curve, plot_curves
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report, provenance, versions
from halfulp.tools.tables import Table

LENGTHS = (16, 64, 256, 1024, 4096)
"""Lengths of dot products."""

NETWORKS = {
    "lenet5": "LeNet5/MNIST",
    "resnet20": "ResNet20/CIFAR10",
    "vgg16": "VGG16/CIFAR10",
    "resnet50-224": "ResNet50/Imagewoof",
}
"""Published networks, with their published names."""

EXACT_PRODUCT, FLOAT = "e5m2, exact product", "fp32"


@dataclass(frozen=True)
class Published:
    """Row of the published table.

    Attributes
    ----------
    multiplier, accumulator : str
        Published names.
    mac : str
        Text of the multiply-accumulate; ``fp32`` is torch's arithmetic.
    lenet5, resnet20, vgg16, resnet50 : float
        Test accuracy in percent, on MNIST, CIFAR10, CIFAR10 and Imagewoof.
    """

    multiplier: str
    accumulator: str
    mac: str
    lenet5: float
    resnet20: float
    vgg16: float
    resnet50: float


PUBLISHED = (
    Published(EXACT_PRODUCT, "e6m5 rz", "e5m2*e5m2+e6m5.rz", 97.10, 10.00, 10.00, 10.00),
    Published(EXACT_PRODUCT, "e6m5 ro", "e5m2*e5m2+e6m5.ro", 98.00, 10.00, 10.00, 10.00),
    Published(EXACT_PRODUCT, "e6m5 rn", "e5m2*e5m2+e6m5.rn", 98.61, 10.00, 10.00, 10.00),
    Published(EXACT_PRODUCT, "e6m5 sr (10 bits)", "e5m2*e5m2+e6m5.sr10", 99.00, 90.55, 88.99, 80.88),
    Published(EXACT_PRODUCT, "fp16 rn", "e5m2*e5m2+fp16.rn", 99.05, 91.24, 89.81, 82.97),
    Published("fp32", "fp32 rn", FLOAT, 99.18, 91.91, 90.67, 82.92),
    Published("fxp4.4 rn", "fxp8.8", "fxp4.4*fxp4.4=fxp4.4.rn+fxp8.8.rn", 99.06, 10.00, 10.00, 10.00),
    Published("fxp4.4 sr", "fxp8.8", "fxp4.4*fxp4.4=fxp4.4.sr4+fxp8.8.rn", 99.14, 10.00, 10.00, 10.00),
    Published("fxp4.4 rz", "fxp8.8", "fxp4.4*fxp4.4=fxp4.4.rz+fxp8.8.rn", 98.85, 10.00, 10.00, 10.00),
    Published("fxp4.4 ro", "fxp8.8", "fxp4.4*fxp4.4=fxp4.4.ro+fxp8.8.rn", 10.00, 10.00, 10.00, 10.00),
)
"""Published table. fxp8.8 holds every product of fxp4.4, so the published rounding is that of the product."""

MACS = tuple(MacSpec.parse(row.mac) for row in PUBLISHED if row.mac != FLOAT)

SETTING = ("data", "train", "test", "epochs", "batch", "rate")
"""Columns of a table of runs that are equal in the runs of one mean."""


@dataclass(frozen=True)
class Ours(Accuracy):
    """Accuracy, in percent, of a network trained with one multiply-accumulate."""

    mac: str


@dataclass(frozen=True)
class Figures:
    """All figures of the report.

    Attributes
    ----------
    command : str
        Command that measured the figures.
    tools : dict of str to str
        Versions of the tools.
    ours : list of Ours
    settings : dict of str to str
        Note on the training of each network.
    others : int
        Number of runs with other settings.
    dots : Dots
    trained : str
        Origin of the operands from a layer.
    errors : dict of str to list of Error
        Errors of dot products, by multiply-accumulate.
    """

    command: str
    tools: dict[str, str]
    ours: list[Ours]
    settings: dict[str, str]
    others: int
    dots: Dots
    trained: str
    errors: dict[str, list[Error]]

    @property
    def made_by(self) -> str:
        """Command and versions, in one line."""
        return provenance(self.command, self.tools)


def trained_layer(path: Path | None, progress: Progress = silent) -> tuple[Layer, str]:
    """Return operands of a trained layer and its description.

    Parameters
    ----------
    path : Path, optional
        File of two tensors as in `Layer`, or of a run of ``halfulp train lenet5``. ValueError if it is neither.
        Default: a LeNet5 is trained in torch's arithmetic and cached.
    """
    import torch

    from halfulp.lab.train.loop import Plan, Run, read
    from halfulp.lab.train.networks import NETWORKS as KNOWN

    if path is not None:
        try:
            layer_of(path)
            return Layer.of(path), f"the layer in {path.name}"
        except ValueError as error:
            try:
                state = read(path)
                plan = Plan(**(state["plan"] | {"policies": tuple(map(tuple, state["plan"]["policies"]))}))
                if plan.network != "lenet5":
                    raise ValueError(f"{path} is a run of {plan.network}; expected a run of lenet5")
            except ValueError as other:
                raise ValueError(f"{error}; as a run of lenet5: {other}") from other
    else:
        plan = Plan("lenet5", (("*", FLOAT),), 0, 5, 64, KNOWN["lenet5"].rate)
    data = KNOWN["lenet5"].load(None)
    text = "fp32" if path is None else ", ".join(text for _, text in plan.policies)
    name = f"the first fully connected layer of a LeNet5 (400 inputs), trained in {text}"
    parts = (
        plan.key(data),
        code("halfulp.lab.train.loop"),
        version("torch"),
        "" if path is None else digest(path.read_bytes()),
    )

    def make(folder: Path) -> None:
        run = Run(plan, data, work_root() / "train" / f"layer-{digest(*parts)}")
        if path is None:
            run.train(progress)
        else:
            run.model.load_state_dict(state["model"])
        torch.save(_operands(run.model, data.test[0]), folder / "layer.pt")

    return Layer.of(cached("layers", parts, make) / "layer.pt"), name


def _operands(model: Any, inputs: Any) -> dict[str, Any]:
    """Return the inputs and weights of the first fully connected layer."""
    import torch
    from torch import nn

    layer = next(module for module in model if isinstance(module, nn.Linear))
    seen: list[Any] = []
    handle = layer.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    with torch.no_grad():
        model.eval()(inputs)
    handle.remove()
    return {"activations": torch.cat(seen), "weights": layer.weight.detach().clone()}


def measure(
    macs: Sequence[MacSpec],
    runs: Sequence[Mapping[str, str]],
    dots: Dots,
    trained: str,
    command: str,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> Figures:
    """Measure errors of dot products, and collect accuracies from the rows of a table of training runs.

    ``trained`` is the origin of the operands from a layer, and ``command`` that of the figures.
    """
    ours, settings, others = trained_with(runs)
    errors_of_macs = errors(macs, dots, progress, pool)
    return Figures(
        command=command,
        tools=versions("halfulp", "torch"),
        ours=ours,
        settings=settings,
        others=others,
        dots=dots,
        trained=trained,
        errors={mac.expression: row for mac, row in zip(macs, errors_of_macs, strict=True)},
    )


def trained_with(runs: Sequence[Mapping[str, str]]) -> tuple[list[Ours], dict[str, str], int]:
    """Return mean accuracies over seeds, a note on the training of each network, and the number of other runs.

    A mean is over the runs with the settings of the network's last run and one multiply-accumulate for all layers.
    """
    ours, settings, counted = [], {}, 0
    for network, name in NETWORKS.items():
        own = [run for run in runs if run["network"] == network and run.get("policy", run["mac"]) == run["mac"]]
        if not own:
            continue
        last = [own[-1].get(column, "") for column in SETTING]
        # Runs in torch's arithmetic have no loss scale.
        scale = next((run["scale"] for run in reversed(own) if run.get("scale")), "")
        alike = [run for run in own if _setting(run, scale) == (last, scale)]
        counted += len(alike)
        data, train, test, epochs, batch, rate = last
        settings[network] = (
            f"{name}: ours trained on {train} and tested on {test} examples ({data}), {epochs} epochs, batch {batch}, "
            f"rate {rate}{f', loss scale from {scale}' if scale else ''}."
        )
        for mac in dict.fromkeys(run["mac"] for run in alike):
            values = [float(run["accuracy"]) for run in alike if run["mac"] == mac]
            ours.append(Ours.of(network, values, mac=mac))
    return ours, settings, len(runs) - counted


def _setting(run: Mapping[str, str], scale: str) -> tuple[list[str], str]:
    """Return the settings of a training run; ``scale`` replaces a missing loss scale."""
    return [run.get(column, "") for column in SETTING], run.get("scale") or scale


def tables(figures: Figures) -> dict[str, Table]:
    """Return Table II and the table of dot products, by file names."""
    return {"accuracy-networks": _networks(figures), "accuracy-dots": _dots(figures)}


def _networks(figures: Figures) -> Table:
    accuracy_of = {(accuracy.mac, accuracy.network): accuracy for accuracy in figures.ours}
    networks = list(figures.settings) or ["lenet5"]
    rows = []
    for row in PUBLISHED:
        cells: dict[str, Any] = {"multiplier": row.multiplier, "accumulator": row.accumulator, "MAC": row.mac}
        for network in networks:
            accuracy = accuracy_of.get((row.mac, network))
            cells |= {
                f"{network} published": getattr(row, network.removesuffix("-224")),
                f"{network} ours": accuracy and accuracy.mean,
                f"{network} s.d.": accuracy and accuracy.deviation,
                f"{network} runs": accuracy and accuracy.runs,
            }
        rows.append(cells)
    frame = pd.DataFrame(rows)
    columns = [str(name) for name in frame if str(name) not in ("multiplier", "accumulator", "MAC")]
    frame[columns] = frame[columns].astype(float)
    others = f"Training runs with other settings, not shown: {figures.others}."
    notes = [
        "Test accuracy in %. Published: Ben Ali et al., DATE 2025, Table II, trained on all of MNIST and CIFAR10. "
        "Ours: mean over runs with different seeds; s.d.: their standard deviation, if there are several.",
        "All layers, forward and backward, are computed in the MAC; fp32 is torch's arithmetic.",
        *(figures.settings.values() or ["There are no training runs yet; halfulp train adds some."]),
        *([others] if figures.others else []),
        f"Made by {figures.made_by}.",
    ]
    formats = {name: ".0f" if name.endswith("runs") else ".2f" for name in columns}
    return Table("Accuracy of networks, published and ours", frame, formats, notes)


def _dots(figures: Figures) -> Table:
    rows = [{"MAC": mac} | error.cells() for mac, errors_of_mac in figures.errors.items() for error in errors_of_mac]
    dots = figures.dots
    notes = [
        f"Error of {dots.count:,} dot products of each kind, in the arithmetic of the MAC, against exact sums of the "
        "same operands, rounded to the operand formats: root mean square, relative to that of the exact sums, and in "
        f"units of the last place of the accumulator at that magnitude (ulp). Seed {dots.seed}.",
        "Operands: normal of standard deviation 1; positive: uniform between 0 and 1; trained: activations and weights "
        f"of {figures.trained}, in the order of its sums; a longer dot product continues with further sums.",
        "Not finite: number of sums that are infinite or NaN, which make the error infinite.",
        f"Made by {figures.made_by}.",
    ]
    return Table("Accuracy of dot products", pd.DataFrame(rows), {"error": ".2e", "ulp": ".2f"}, notes)


def report(figures: Figures) -> Report:
    """Return the report: the record, all tables and the plot."""
    content = asdict(figures) | {"dots": {name: str(value) for name, value in asdict(figures.dots).items()}}
    record = json.dumps(content | {"published": [asdict(row) for row in PUBLISHED]}, indent=1) + "\n"
    return Report(
        tables=tables(figures),
        plots={"accuracy-dots": partial(plot, figures)},
        records={"accuracy.json": record},
        title="Accuracy of dot products",
        made_by=figures.made_by,
    )


def plot(figures: Figures) -> Any:
    """Plot errors against length, relative and in ulp, for each kind of operands."""
    panels = []
    for measure_ in ("relative", "ulp"):
        row = []
        for distribution in figures.dots.distributions:
            lines = []
            for mac, errors_of_mac in figures.errors.items():
                own = [error for error in errors_of_mac if error.distribution == distribution]
                kind, lengths = kind_of(MacSpec.parse(mac)), [error.length for error in own]
                lines.append(Curve(mac, kind, lengths, [getattr(error, measure_) for error in own]))
            row.append((distribution, lines))
        panels.append(row)
    title = "Error of dot products, by distribution of the operands"
    return plot_curves(panels, title=title, xlabel="products in each sum", labels=["relative error", "error, ulp"])


def default_dots(count: int, layer: Layer) -> Dots:
    """Return the settings of the dot products of the report."""
    return Dots(lengths=LENGTHS, distributions=("normal", "positive", TRAINED), count=count, trained=layer)
