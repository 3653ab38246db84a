"""Accuracy with operands in blocks: MX formats (OCP, 2023) and NVFP4 (NVIDIA, arXiv 2509.25149)."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .trainings import FLOAT, Case, Figures, number_formats

NETWORKS = ("lenet5", "transformer")

ARITHMETICS = {
    "FP32": FLOAT,
    "e4m3fn": "e4m3fn*e4m3fn+fp32.rn",
    "mxfp8_e4m3": "mxfp8_e4m3*mxfp8_e4m3+fp32.rn",
    "mxfp6_e2m3": "mxfp6_e2m3*mxfp6_e2m3+fp32.rn",
    "mxfp4": "mxfp4*mxfp4+fp32.rn",
    "mxfp4, random, rotated": "mxfp4*mxfp4+fp32.rn, gradients=sr8, hadamard=32",
    "nvfp4, random, rotated": "nvfp4*nvfp4+fp32.rn, gradients=sr8, hadamard=16 weight_gradient",
}
"""Arithmetics of all products of a network, by the names of their rows."""

VARIANTS = {
    "e4m3fn, gradients e5m2": (
        "forward=e4m3fn*e4m3fn+fp32.rn, input_gradient=e5m2*e4m3fn+fp32.rn, weight_gradient=e5m2*e4m3fn+fp32.rn"
    ),
    "mxfp8_e4m3, gradients mxfp8_e5m2": (
        "forward=mxfp8_e4m3*mxfp8_e4m3+fp32.rn, input_gradient=mxfp8_e5m2*mxfp8_e4m3+fp32.rn, "
        "weight_gradient=mxfp8_e5m2*mxfp8_e4m3+fp32.rn"
    ),
    "mxfp4, random": "mxfp4*mxfp4+fp32.rn, gradients=sr8",
    "mxfp4, rotated": "mxfp4*mxfp4+fp32.rn, hadamard=32",
    "nvfp4": "nvfp4*nvfp4+fp32.rn",
}
"""Variants, which show the effect of wider gradients, of stochastic rounding and of rotation."""


def case(network: str, policy: str) -> Case:
    """Return the case of a cell."""
    return Case(network, (("*", policy),))


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    for policies in (ARITHMETICS, VARIANTS):
        yield from (case(network, policy) for network in reversed(NETWORKS) for policy in policies.values())


def report(figures: Figures) -> Report:
    """Return the report: its table and the record."""
    return Report(tables={"blocks-accuracy": _accuracy(figures)}, records={"blocks.json": figures.json()})


def _accuracy(figures: Figures) -> Table:
    rows: list[dict[str, Any]] = []
    for name, policy in (ARITHMETICS | VARIANTS).items():
        cells: dict[str, Any] = {"arithmetic": name}
        for network in NETWORKS:
            own = case(network, policy)
            cells |= figures.cells(own, network)
            cells[f"{network}, minus FP32"] = figures.gain(own, Case(network))
        rows.append(cells | {"policy": policy})
    notes = [*figures.notes]
    return Table("Accuracy with operands in blocks", pd.DataFrame(rows), number_formats(rows), notes)
