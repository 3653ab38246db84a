"""Accuracy in BF16 and mixed precision, and error of coarse rounding, compared with FASE (Osorio, ECML-PKDD 2022)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd

from halfulp.tools.jobs import JobPool
from halfulp.tools.plots import Curve, plot_curves
from halfulp.tools.report import Report, provenance
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from . import coarse, parts
from .arbitor import everything
from .trainings import FLOAT, Case, Figures, number_formats

BF16 = (("*", everything("bf16")),)
MIXED = (("*norm*", FLOAT), ("*", "bf16*bf16+fp32.rn, elementwise=bf16.rn, reductions=fp32.rn, optimizer=fp32.rn"))
"""Every operation in BF16; and operands in BF16 with sums, normalisations and updates in FP32."""

BF16X2 = (("*", "bf16x2*bf16x2+bf16x2.rn, elementwise=bf16x2.rn, reductions=bf16x2.rn, optimizer=bf16x2.rn"),)
"""Operands, sums and results of all operations as sums of two numbers in BF16."""

NORMS = "aten.*batch_norm*"
"""Operations of batch normalisation, which are in FP32 in mixed precision."""

PRECISIONS = {"FP32": None, "BF16": BF16, "MP": MIXED, "BF16x2": BF16X2, "dynamic": BF16}
"""Columns of the published table, and precision that changes during a run."""

SWITCH = 3
"""Epochs in BF16 before those in MP."""

PUBLISHED: dict[str, tuple[float | None, ...]] = {
    "ResNet18": (71.91, 71.46, 71.89, 71.95),
    "ResNet34": (73.21, 72.83, 73.86, 72.66),
    "ResNet50": (74.78, 69.24, 74.25, 72.57),
    "ResNet101": (75.93, 67.10, 75.65, 76.00),
    "MobileNetV2": (75.04, 73.92, 75.16, 74.82),
    "AlexNet": (60.79, 57.80, 60.18, None),
    "Inception": (74.01, 72.03, 73.73, None),
    "LSTMx2 (perplexity)": (86.86, 137.69, 87.09, 86.90),
    "Transformer (BLEU)": (34.53, 34.86, 34.66, 34.65),
}
"""Published Table 3: CIFAR100 (ResNets and MobileNetV2), ImageNet (AlexNet and Inception), PTB and IWSLT16."""

LSTM = "LSTMx2"
"""Published language model."""

LOST, PERPLEXITY = "Updates and additions that BF16 loses", "Perplexity of a small LSTM"
GRADIENTS = "Gradients of deep networks before training"
"""Titles of tables to which notes refer."""

COUNTERPARTS = {"ResNet18": "resnet", "LSTMx2 (perplexity)": "recurrent", "Transformer (BLEU)": "transformer"}
"""Small networks of the same kinds."""


def case(network: str, way: str) -> Case:
    """Return the case of a cell of the table."""
    policies = PRECISIONS[way]
    later = ((SWITCH, MIXED),) if way == "dynamic" else ()
    return Case(network) if policies is None else Case(network, policies, emulate=True, later=later)


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    yield from (case(network, way) for network in COUNTERPARTS.values() for way in PRECISIONS)


def most_seeds(case: Case) -> int | None:
    """Return 1 for trainings in sums of parts, which take a hundred times as long as others; None for others."""
    return 1 if case.policies == BF16X2 else None


def measured(*, quick: bool, pool: JobPool) -> dict[str, Callable[[], Any]]:
    """Return the functions that measure the figures of the report that are no accuracies, by name."""
    from . import lost

    return {
        "errors": coarse.errors,
        "check": coarse.check,
        "parts": parts.errors,
        "depth": depth,
        "lost": partial(lost.shares, quick),
        "perplexity": partial(lost.perplexities, quick, pool),
    }


@threads(1)
def depth() -> dict[str, dict[str, float]]:
    """Return the cosine of first gradients in BF16 and MP with those in FP32, for published networks of 32 x 32.

    Weights are random, and the gradients are those of two random images.
    """
    import torch
    import torch.nn.functional as F

    from halfulp import golden
    from halfulp.lab.train.vision import RESNETS, resnet

    def gradient(model: torch.nn.Module, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        F.cross_entropy(model(x), classes).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])

    cosines: dict[str, dict[str, float]] = {}
    for layers in RESNETS:
        torch.manual_seed(0)
        given = resnet(layers, 100), torch.randn(2, 3, 32, 32), torch.randint(100, (2,))
        exact = gradient(*given).double()
        for way, policies in (("BF16", dict(BF16)), ("MP", {NORMS: FLOAT, "*": MIXED[-1][1]})):
            own = golden.emulate(policies)(gradient)(*given).double()
            cosines.setdefault(f"ResNet{layers}", {})[way] = float(F.cosine_similarity(own, exact, 0))
    return cosines


def report(figures: Figures) -> Report:
    """Return the report: its tables, the plot of errors and the record."""
    tables = {
        "fase-accuracy": _accuracy(figures),
        "fase-rounding": _rounding(figures),
        "fase-check": check_table(figures),
        "fase-depth": _depth(figures),
        "fase-parts": _parts(figures),
        "fase-lost": _lost(figures),
        "fase-perplexity": _perplexity(figures),
    }
    return Report(
        tables=tables,
        plots={"fase-rounding": partial(plot, figures)},
        records={"fase.json": figures.json()},
        title="Error of coarse rounding",
        made_by=provenance(figures.command, figures.tools),
    )


def _accuracy(figures: Figures) -> Table:
    rows = []
    for model, published in PUBLISHED.items():
        network = COUNTERPARTS.get(model)
        cells: dict[str, Any] = {"model": model}
        cells |= {f"{way}, published": figure for way, figure in zip(PRECISIONS, published, strict=False)}
        cells["ours"] = network or ""
        for way in PRECISIONS:
            cells |= figures.cells(case(network, way), way) if network else {way: None, f"{way}, s.d.": None}
        rows.append(cells)
    notes = [
        "BF16: every operation is rounded to BF16, those of the optimiser too. MP: operands in BF16, sums in FP32; "
        "batch normalisation and weight update in FP32. Published accuracies in % but for LSTMx2 and Transformer.",
        "BF16x2: a value is a sum of two numbers in BF16. Ours: the exact result of each operation is split into two "
        "parts once; one seed. Published: sequences of operations in BF16, whose errors the table of sums of parts "
        "compares with ours.",
        f"Dynamic: {SWITCH} epochs in BF16, and the others in MP.",
        f"The published losses of ResNet50 ({_in_bf16('ResNet50'):.2f} points) and ResNet101 "
        f"({_in_bf16('ResNet101'):.2f}) in BF16 belong to deep networks; ours have few layers and cannot show them. "
        f"The table '{GRADIENTS}' has one possible cause. Rows without a network of ours take "
        "a GPU and the data; their commands are below. The publication does not name its version of Inception; the "
        "command has that of Ioffe and Szegedy (2015). All images are read into memory, about 260 GB for ImageNet.",
        _cause(figures),
        *figures.notes,
    ]
    return Table("Accuracy in BF16 and mixed precision", pd.DataFrame(rows), number_formats(rows), notes)


def _in_bf16(model: str) -> float:
    """Return the published loss of accuracy by BF16, in points."""
    fp32, bf16 = PUBLISHED[model][:2]
    assert fp32 is not None
    assert bf16 is not None
    return fp32 - bf16


def _rounding(figures: Figures) -> Table:
    rows = []
    for name, errors in figures.more["errors"].items():
        rows.append({"rounded": name} | {f"K = {k}": error for k, error in zip(coarse.LENGTHS, errors, strict=True)})
    steps, once = (figures.more["errors"][name] for name in (coarse.STEPS, coarse.ONCE))
    ratios = [of_steps / of_once for of_steps, of_once in zip(steps, once, strict=True)]
    notes = [
        f"Relative error (Frobenius norm) of products of normal matrices, {coarse.SIZE} x K by K x {coarse.SIZE}, in "
        "which BF16 rounds at these places, against binary64.",
        "An emulator that rounds the result of a layer underestimates the error of hardware that rounds each operation "
        f"by {ratios[0]:.1f} (K = {coarse.LENGTHS[0]}) to {ratios[-1]:.0f} times (K = {coarse.LENGTHS[-1]}); published "
        "(figure 3): about ten times, for a K that we do not know.",
        figures.notes[-1],
    ]
    formats = {f"K = {k}": ".1e" for k in coarse.LENGTHS}
    return Table("Error of coarse rounding", pd.DataFrame(rows), formats, notes)


def check_table(figures: Figures) -> Table:
    """Return the counterpart of Figure 2 of Arbitor."""
    rows = [{"operands, rounded": name} | difference for name, difference in figures.more["check"].items()]
    low, high = coarse.PUBLISHED_RANGE
    notes = [
        f"Products of matrices in FP16 of {coarse.PUBLISHED_SIZE} x {coarse.PUBLISHED_SIZE} numbers in [{low:g}, "
        f"{high:g}], and convolutions of {coarse.CHANNELS} channels of {coarse.IMAGE} x {coarse.IMAGE} pixels with 3 x "
        "3 kernels, against steps of numpy.float16, one operation at a time. Published (Arbitor, USENIX ATC 2023, "
        "Figure 2): "
        "rounding once differs by up to 15.74 %, rounding each operation by 0. The difference depends on the "
        "distribution of the operands, which is not published: with logarithms that are uniform it is larger, because "
        "small products are subnormal numbers or zeros.",
        figures.notes[-1],
    ]
    return Table("Products in FP16 against scalar steps", pd.DataFrame(rows), {"largest difference": ".2%"}, notes)


def _depth(figures: Figures) -> Table:
    rows: list[dict[str, Any]] = [
        {"model": name, "lost in BF16, published": _in_bf16(name)} | cosines
        for name, cosines in figures.more["depth"].items()
    ]
    notes = [
        "Cosine of the gradient with that in FP32, of random weights and two random images of 32 x 32. The gradient "
        "agrees less with that in FP32 in deeper networks; in BF16 it is uncorrelated from 50 layers on. MP has a "
        "larger cosine in every row. The cosine does not predict the accuracy alone: the publication trains ResNet101 "
        "in MP to nearly the accuracy of FP32. Published loss: points from FP32 to BF16 after training.",
        figures.notes[-1],
    ]
    return Table(GRADIENTS, pd.DataFrame(rows), number_formats(rows), notes)


def _parts(figures: Figures) -> Table:
    columns = [f"{count} part{'s' * (count > 1)}" for count in parts.PARTS]
    rows = [{"result": name} | dict(zip(columns, row, strict=True)) for name, row in figures.more["parts"].items()]
    notes = [
        f"Relative error (Frobenius norm) against binary64 of {parts.COUNT} sums and products of normal numbers of "
        f"binary32, and of products of matrices, {parts.SIZE} x {parts.LENGTH} by {parts.LENGTH} x {parts.SIZE}. "
        "Operands have as many parts in BF16 as results.",
        "Operations in BF16: AccurateDWPlusDW in 20 and DWTimesDW3 in 9 operations (Joldes, Muller and Popescu, 2017).",
        figures.notes[-1],
    ]
    return Table("Error of sums of parts in BF16", pd.DataFrame(rows), dict.fromkeys(columns, ".1e"), notes)


def _cause(figures: Figures) -> str:
    """Return the sentence on the published loss of an LSTM in BF16, which the small network does not show."""
    published, ours = (figures.more["lost"][name]["softmax"] for name in (LSTM, "recurrent"))
    way = figures.more["perplexity"]
    return (
        f"{LSTM}: the softmax of `recurrent` is too small to lose accuracy in BF16. In an LSTM of the published size "
        f"BF16 loses {published:.0%} of the additions of its softmax over 10,000 words ({ours:.0%} in "
        f"`recurrent`). In a small LSTM over 512 words the sums decide: its perplexity is {way['BF16']:.1f} in BF16, "
        f"{way['BF16, updates in FP32']:.1f} with updates in FP32, {way['BF16, sums in FP32']:.1f} with sums in FP32 "
        f"and {way['FP32']:.1f} in FP32 (tables '{LOST}' and '{PERPLEXITY}')."
    )


def _lost(figures: Figures) -> Table:
    rows = [{"network": name} | shares for name, shares in figures.more["lost"].items()]
    notes = [
        "Shares of weight updates other than 0 that leave a weight in BF16 unchanged, with the gradients of a step in "
        "FP32 and the learning rates of these parts of a training; and of additions of numbers other than 0 that leave "
        "a sum in BF16 unchanged, in products of matrices of a step and in the denominators of its softmax.",
        "Sums have one term after the other; partial sums in the lanes of vector code lose fewer additions.",
        f"{LSTM}: two layers of 650, 10,000 words, batch and dropout of the publication, clipped gradients and rates "
        "of Zaremba et al. (2014), and a text that is drawn at random. `words`: two layers of 32 and 512 words. "
        "`recurrent`: the network of the first table.",
        figures.notes[-1],
    ]
    return Table(LOST, pd.DataFrame(rows), dict.fromkeys(list(rows[0])[1:], ".1%"), notes)


def _perplexity(figures: Figures) -> Table:
    published = dict(zip(PRECISIONS, PUBLISHED[f"{LSTM} (perplexity)"], strict=False))
    rows = [
        {"arithmetic": way, "published": published.get(way), "ours": found}
        for way, found in figures.more["perplexity"].items()
    ]
    notes = [
        "Published: LSTMx2 on PTB. Ours: `words`, trained for ten epochs with one seed by plain gradient descent; the "
        "perplexity is computed in FP32, because sums in BF16 make the loss itself wrong.",
        "FP32 in the updates does not lower the perplexity here and FP32 in the sums removes the loss, so the sums "
        "cause it. Ours has one seed and plain gradient descent; the publication's network and text are larger, and "
        "its updates may matter too.",
        figures.notes[-1],
    ]
    return Table(PERPLEXITY, pd.DataFrame(rows), number_formats(rows), notes)


def plot(figures: Figures) -> Any:
    """Plot the error of each place of rounding against the length of the sums."""
    errors_by_way = figures.more["errors"]
    curves = [Curve(name, ("bf16", name), coarse.LENGTHS, errors) for name, errors in errors_by_way.items()]
    return plot_curves(
        [[("products of normal matrices", curves)]],
        title="Sums in BF16, by the place where they are rounded",
        xlabel="products in each sum",
        labels=["relative error"],
    )
