"""Accuracy of LeNet5 in ten arithmetics, compared with MPTorch-FPGA (Ben Ali et al., DATE 2025, Table II)."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from halfulp.tools.jobs import JobPool
from halfulp.tools.plots import plot_bars
from halfulp.tools.report import Report, provenance
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from .accuracy import PUBLISHED, Published
from .commands import CURVES
from .trainings import LOSS, QUICK, Case, Effort, Figures, number_formats, trained
from .trainings import NETWORKS as SETTINGS

if TYPE_CHECKING:
    from torch import Tensor

NETWORK = "lenet5"
"""Network of the table that a package has data for."""


ROUNDINGS = ("rz", "ro", "rn", "sr10")
"""Roundings of sums in e6m5 whose gradients are compared with exact ones."""

TRUNCATED, FASTER = "e5m2*e5m2+e6m5.rz", 3
"""Arithmetic whose sums are truncated, and the factor of the learning rate of one more training in it."""

SCALE, IMAGES = 256, 64
"""Loss scale and images of the measured step."""

ONE_SEED = Effort(seeds=(0,))
"""Effort of the losses of Figure 6."""

PHASES = ("forward", "input gradient", "weight gradient")


def case(row: Published) -> Case:
    """Return the case of a row of the published table."""
    return Case(NETWORK, (("*", row.mac),))


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    yield from map(case, PUBLISHED)
    yield faster()
    yield from (normal(row) for row in PUBLISHED if row.mac.startswith("fxp"))


def faster() -> Case:
    """Return the case of truncated sums with a larger learning rate."""
    from halfulp.lab.train.networks import NETWORKS

    return Case(NETWORK, (("*", TRUNCATED),), settings=(("rate", FASTER * NETWORKS[NETWORK].rate),))


def normal(row: Published) -> Case:
    """Return the case of a row with initial weights that are normal and larger."""
    return Case("lenet5_normal", (("*", row.mac),))


def measured(*, quick: bool, pool: JobPool) -> dict[str, Callable[[], Any]]:
    """Return the functions that measure the figures of the report that are no accuracies, by name."""
    return {"first step": first_step, "losses": partial(losses, quick, pool)}


def losses(quick: bool, pool: JobPool) -> dict[str, float]:
    """Return the loss of a transformer after training in each arithmetic of the published figure."""
    found = trained({curve(mac): QUICK if quick else ONE_SEED for mac in CURVES}, LOSS, pool=pool)
    return {mac: found[curve(mac)][0] for mac in CURVES}


@threads(1)
def first_step() -> list[dict[str, Any]]:
    """Return figures of the products of a first step, by layer and phase.

    They are the terms of a sum; the share of products that become zero in fxp4.4, in percent; and for each rounding
    of sums in e6m5 the length of the result along the exact one.
    """
    from halfulp import golden

    rows = []
    for layer, phase, a, b in _products():
        row: dict[str, Any] = {"layer": layer, "phase": phase, "terms": a.shape[1], "zero": _zeros(a, b)}
        exact = golden.quantize(a, "e5m2").double() @ golden.quantize(b, "e5m2").double()
        for rounding in ROUNDINGS:
            mac = f"e5m2*e5m2+e6m5.{rounding}"
            codes = golden.gemm(a, b, mac, source="philox" if rounding.startswith("sr") else None)
            row[rounding] = ((golden.decode(codes, "e6m5") * exact).sum() / exact.square().sum()).item()
        rows.append(row)
    return rows


def curve(mac: str) -> Case:
    """Return the case of a transformer that predicts words, the counterpart of Nano-GPT."""
    return Case("gpt", (("*", mac),))


def _products() -> "Iterator[tuple[str, str, Tensor, Tensor]]":
    """Yield the matrices of the products of a first step in FP32, with the names of their layers and phases."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    from halfulp.lab.train.networks import NETWORKS

    network = NETWORKS[NETWORK]
    data = network.load(None)
    order = torch.randperm(len(data.train[0]), generator=torch.Generator().manual_seed(0))[:IMAGES]
    inputs, classes = data.prepare(*(part[order] for part in data.train))
    calls: list[tuple[Any, torch.Tensor, torch.Tensor]] = []

    def keep(layer: Any, given: "tuple[Tensor]", result: "Tensor") -> None:
        result.retain_grad()
        calls.append((layer, given[0].detach(), result))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = network.build(data)
    for layer in model.children():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(keep)
    (SCALE * network.loss(model(inputs), classes)).backward()
    for place, (layer, x, result) in enumerate(calls):
        w, gradient = layer.weight.detach().flatten(1), result.grad
        assert gradient is not None
        name = f"linear {w.shape[1]}-{w.shape[0]}"
        if isinstance(layer, nn.Conv2d):
            name = f"convolution {layer.in_channels}-{layer.out_channels}"
            x = F.unfold(x, layer.kernel_size, padding=int(layer.padding[0])).transpose(1, 2).flatten(0, 1)
            gradient = gradient.flatten(2).transpose(1, 2).flatten(0, 1)
        yield name, PHASES[0], x, w.T
        yield name, PHASES[2], gradient.T, x
        # The first layer has no gradient of its input.
        if place:
            yield name, PHASES[1], gradient, w


def _zeros(a: "Tensor", b: "Tensor") -> float:
    """Return the percentage of the products of numbers other than zero that become zero in fxp4.4."""
    from halfulp import golden

    zero = count = 0
    codes = [golden.quantize(matrix, "fxp4.4") for matrix in (a, b)]
    for place in range(b.shape[1]):
        given = (a != 0) & (b[:, place] != 0)
        products = golden.quantize(codes[0] * codes[1][:, place], "fxp4.4")
        zero += int((given & (products == 0)).sum())
        count += int(given.sum())
    return 100 * zero / count


def most_seeds(case: Case) -> int | None:
    """Return 1 for trainings with another rate or other weights; None for those of the published table."""
    return 1 if case.settings or case.network != NETWORK else None


def report(figures: Figures) -> Report:
    """Return the report: its table and the record."""
    return Report(
        {"mptorch-accuracy": _accuracy(figures), "mptorch-step": _step(figures), "mptorch-losses": _losses(figures)},
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
            "ours, normal weights": figures.cell(normal(row)),
            "rank, published": rank,
            "rank, ours": own,
        }
        for row, rank, own in zip(PUBLISHED, ranks(published), ranks(ours), strict=True)
    ]
    notes = [
        "Published: Ben Ali et al., DATE 2025, Table II, LeNet5 trained on all of MNIST. Forward products and both "
        "gradients are in the arithmetic of the row; weights are FP32 and rounded to the operands of each product. "
        f"Rank: 1 is the highest accuracy. Ours are trained for {_steps()} steps, so all are lower than the published "
        "ones; sr10 and fp16 change places within their deviations.",
        *_reasons(figures),
        *figures.notes,
    ]
    return Table("Accuracy of LeNet5 in ten arithmetics", pd.DataFrame(rows), number_formats(rows), notes)


def ranks(accuracies: Sequence[float | None]) -> list[int | None]:
    """Return the rank of each accuracy, 1 for the highest; equal ones share the lowest number."""
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return [None if accuracy is None else 1 + sum(other > accuracy for other in known) for accuracy in accuracies]


def _steps() -> int:
    """Return the steps of a training of ours: 4,000 images in each epoch."""
    _, epochs, batch = SETTINGS[NETWORK]
    return epochs * math.ceil(4000 / batch)


def _reasons(figures: Figures) -> Iterator[str]:
    """Yield the causes of the differences, with figures of the next table."""
    rows = figures.more.get("first step", [])
    if not rows:
        return
    longest = max(rows, key=lambda row: row["terms"])
    other = f"; with {FASTER} times the learning rate it reaches {figures.mean(faster()):.2f} (one seed)"
    yield (
        f"{TRUNCATED}: a truncated sum ignores every product of its sign below its last place, so it is too short: the "
        f"first gradient of the {longest['layer']}, of {longest['terms']:,} terms, has {100 * longest['rz']:.0f} % of "
        f"its exact length, and with rn {100 * longest['rn']:.0f} %. Short gradients make training slow{other}, so our "
        "low accuracy is that of few steps, and the published one that of many."
    )
    last = [row["zero"] for row in rows if row["phase"] == PHASES[0]][-2:]
    larger = {row.multiplier.split()[1]: figures.mean(normal(row)) for row in PUBLISHED if row.mac.startswith("fxp")}
    yield (
        f"fxp4.4: initial weights decide, which the publication does not give. With torch's, {min(last):.0f} % or more "
        "of the forward products of the last two layers round to zero in the first step (column 'zero' of the next "
        "table); rounding toward zero makes at least as many zero, and stochastic rounding keeps them on average. With "
        "the larger weights of He et al. (ICCV 2015; column normal weights, one seed) the accuracies have the "
        f"published order: {', '.join(f'{rounding} {mean:.2f}' for rounding, mean in larger.items())}."
    )


def _step(figures: Figures) -> Table:
    rows = [{**row, **{rounding: 100 * row[rounding] for rounding in ROUNDINGS}} for row in figures.more["first step"]]
    notes = [
        f"Products of the first step of LeNet5 on {IMAGES} images with a loss scale of {SCALE}, of operands that are "
        "computed in FP32. Terms: products in each sum. Zero: percent of the products of numbers other than zero that "
        "become zero in fxp4.4. Others: length of the sums in e6m5 along the exact ones, in percent, by rounding.",
        figures.notes[-1],
    ]
    frame = pd.DataFrame(rows, columns=["layer", "phase", "terms", "zero", *ROUNDINGS])
    return Table("Products of a first step", frame, dict.fromkeys(("zero", *ROUNDINGS), ".1f"), notes)


def _losses(figures: Figures) -> Table:
    rows = [{"MAC": mac, "ours": loss} for mac, loss in figures.more["losses"].items()]
    notes = [
        "Loss on the test set after the last step, with one seed: counterpart of Figure 6, whose curves are those of "
        "Nano-GPT on the plays of Shakespeare over 5,000 steps. Ours is a transformer with two layers, 32 wide, on the "
        "sentences of a small language, because Nano-GPT takes a GPU; the commands below train it.",
        figures.notes[-1],
    ]
    return Table("Loss of a transformer", pd.DataFrame(rows), {"ours": ".4f"}, notes)
