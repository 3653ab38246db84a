"""Accuracy with operands in blocks: the MX formats of OCP, and nvfp4 as NVIDIA trains with it (arXiv 2509.25149)."""

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
    "mxfp4, sr8, rotated": "mxfp4*mxfp4+fp32.rn, gradients=sr8, hadamard=32",
    "nvfp4, sr8, rotated": "nvfp4*nvfp4+fp32.rn, gradients=sr8, hadamard=16 weight_gradient",
}
"""Policies of all layers, by the names of their rows."""

VARIANTS = {
    "e4m3fn, gradients e5m2": (
        "forward=e4m3fn*e4m3fn+fp32.rn, input_gradient=e5m2*e4m3fn+fp32.rn, weight_gradient=e5m2*e4m3fn+fp32.rn"
    ),
    "mxfp8_e4m3, gradients mxfp8_e5m2": (
        "forward=mxfp8_e4m3*mxfp8_e4m3+fp32.rn, input_gradient=mxfp8_e5m2*mxfp8_e4m3+fp32.rn, "
        "weight_gradient=mxfp8_e5m2*mxfp8_e4m3+fp32.rn"
    ),
    "mxfp8_e4m3, ceil": "block(e4m3fn,32,e8m0fnu,ceil)*block(e4m3fn,32,e8m0fnu,ceil)+fp32.rn",
    "mxfp4, ceil": "block(e2m1fn,32,e8m0fnu,ceil)*block(e2m1fn,32,e8m0fnu,ceil)+fp32.rn",
    "mxfp4, sr8": "mxfp4*mxfp4+fp32.rn, gradients=sr8",
    "mxfp4, rotated": "mxfp4*mxfp4+fp32.rn, hadamard=32",
    "nvfp4": "nvfp4*nvfp4+fp32.rn",
}
"""Other policies, of the transformer alone: gradients of a wider range, larger scales, and the parts of a recipe."""


def case(network: str, name: str) -> Case:
    """Return the case of a row."""
    return Case(network, (("*", (ARITHMETICS | VARIANTS)[name]),))


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    for network in NETWORKS:
        yield from (case(network, name) for name in ARITHMETICS)
    yield from (case("transformer", name) for name in VARIANTS)


def report(figures: Figures) -> Report:
    """Return the report: its table and the record."""
    return Report(tables={"blocks-accuracy": _accuracy(figures)}, records={"blocks.json": figures.json()})


def _accuracy(figures: Figures) -> Table:
    rows: list[dict[str, Any]] = []
    for name, policy in (ARITHMETICS | VARIANTS).items():
        cells: dict[str, Any] = {"arithmetic": name}
        for network in NETWORKS:
            own = case(network, name)
            cells |= figures.cells(own, network)
            cells[f"{network}, minus FP32"] = figures.gain(own, Case(network))
        rows.append(cells | {"policy": policy})
    notes = [
        "Operands of all products, forward and backward, are in the format; sums and all other operations are in FP32. "
        "Blocks run along the sums, and nvfp4 has a scale for each tensor too; e4m3fn has only the scale of the loss.",
        "sr8: gradients are rounded stochastically, other operands to nearest. Rotated: random Hadamard matrices of 32 "
        "elements rotate the operands of all products, with nvfp4 of 16 elements those of the weight gradient only.",
        *figures.notes,
    ]
    return Table(
        "Accuracy with operands in blocks", pd.DataFrame(rows), number_formats(rows), notes, only_csv=["policy"]
    )
