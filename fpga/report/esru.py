"""Accuracy with gradients of 8 bits and cheap random sources, compared with Chang et al. (DATE 2023, Table I)."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .trainings import Case, Figures, number_formats

SCALE = " scale=tensor.pow2.current"
"""Scale of each tensor, a power of two that follows its largest magnitude."""

ROUNDINGS = {
    "float": None,
    "nearest": "rn",
    "LFSR, 24 bits": "sr24@lfsr24",
    "uniform, 3 bits": "sr3",
    "naive, 3 bits": "sr3@lfsr3",
    "plateau, 3 bits": "sr3@plateau3",
}
"""Roundings of the gradients."""

PUBLISHED = {
    "ResNet-18": {"float": 71.10, "naive, 3 bits": 69.07, "plateau, 3 bits": 70.91},
    "ResNet-50": {"float": 77.59, "naive, 3 bits": 76.03, "plateau, 3 bits": 77.56},
}
"""Published top-1 accuracy on ImageNet."""

NETWORKS = ("resnet", "transformer")


def case(network: str, name: str) -> Case:
    """Return the case of a cell: tensors of 8 bits, and gradients rounded by a source."""
    rounding = ROUNDINGS[name]
    if rounding is None:
        return Case(network)
    casts = f"weights=int8.rn{SCALE}, activations=int8.rn{SCALE}, gradients=int8.{rounding}{SCALE}"
    return Case(network, (("*", f"int8*int8+fp32.rn, {casts}"),))


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    yield from (case(network, name) for network in NETWORKS for name in ROUNDINGS)


def report(figures: Figures) -> Report:
    """Return the report: its table and the record."""
    rows = []
    for name in ROUNDINGS:
        cells: dict[str, Any] = {"gradients": name}
        cells |= {f"{model}, published": found.get(name) for model, found in PUBLISHED.items()}
        for network in NETWORKS:
            cells |= figures.cells(case(network, name), network)
        rows.append(cells)
    notes = [
        "Weights, activations and gradients are integers of 8 bits with a scale for each tensor, and sums are in FP32; "
        "gradients are rounded with random words of the source, by one unit for each tensor. Float: all in FP32. "
        "Published: ImageNet, 8-bit integers with a scale of their own.",
        *figures.notes,
    ]
    table = Table("Accuracy with gradients of 8 bits", pd.DataFrame(rows), number_formats(rows), notes)
    return Report(tables={"esru-accuracy": table}, records={"esru.json": figures.json()})
