"""Error of matrix products on the matrix units of accelerators, and on sums with other numbers of bits."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from halfulp import golden
from halfulp.tools.plots import Curve, plot_curves
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from . import matrix_trainings

UNITS = (
    "l40s.mma.e4m3",
    "h100.wgmma.e4m3",
    "h100.wgmma.e4m3 every=128",
    "b200.tcgen05.e4m3",
    "mi300.mfma.e4m3",
    "e4m3fn*e4m3fn+exact=fp32",
    "e4m3fn*e4m3fn+fp32.rn",
    "e4m3fn*e4m3fn+bf16.rn",
    "e4m3fn*e4m3fn+e6m9.sr10",
)
"""Units and multiply-accumulates of 8-bit floats."""

BITS = (7, 9, 11, 13, 15, 17, 19, 21, 23, 25)
"""Bits of aligned sums after the point of the largest exponent."""

LENGTHS = (64, 256, 1024, 4096, 16384)
"""Numbers of products in a sum."""

SIDE = 32
"""Rows and columns of results."""

Drawn = Callable[[torch.Generator, tuple[int, int]], Tensor]

DISTRIBUTIONS: dict[str, Drawn] = {
    "normal": lambda generator, shape: torch.randn(shape, generator=generator),
    "positive": lambda generator, shape: torch.rand(shape, generator=generator),
    "log-normal": lambda generator, shape: (
        torch.exp(2 * torch.randn(shape, generator=generator)) * torch.randn(shape, generator=generator).sign()
    ),
}
"""Distributions of operands, which are rounded to e4m3fn and saturate at `LARGEST`."""

LARGEST = 240
"""Largest number of e4m3fnuz, which has all numbers of e4m3fn up to it."""


def aligned(bits: int) -> str:
    """Return a unit of Hopper's form, with another number of bits and without a narrow result."""
    return f"mma32 e4m3fn*e4m3fn+fp32.rz order=aligned{bits} zero=-133"


def errors(progress: Progress = silent) -> Iterator[dict[str, object]]:
    """Yield a row for each text, distribution and length: the error against the exact product."""
    texts = (*UNITS, *map(aligned, BITS))
    progress.total("products", len(texts) * len(DISTRIBUTIONS) * len(LENGTHS))
    for distribution, draw in DISTRIBUTIONS.items():
        for length in LENGTHS:
            generator = torch.Generator().manual_seed(length)
            shapes = (SIDE, length), (length, SIDE)
            codes = [golden.encode(draw(generator, shape).clamp(-LARGEST, LARGEST), "e4m3fn") for shape in shapes]
            a, b = (golden.decode(operand, "e4m3fn") for operand in codes)
            exact = a @ b
            for text in texts:
                yield {
                    "text": text,
                    "distribution": distribution,
                    "length": length,
                    "error": float((_product(text, a, b) - exact).norm() / exact.norm()),
                }
                progress.advance(1)


def _product(text: str, a: Tensor, b: Tensor) -> Tensor:
    codes = golden.gemm(a.float(), b.float(), text, source="philox" if ".sr" in text else None)
    narrow = {"e4m3fn*e4m3fn+bf16.rn": "bf16", "e4m3fn*e4m3fn+e6m9.sr10": "e6m9"}
    return golden.decode(codes, narrow.get(text, "fp32"))


def report(rows: list[dict[str, object]], losses: list[dict[str, Any]]) -> Report:
    """Return tables by unit and by number of bits with their plot, and the table and the plot of trainings."""
    frame = pd.DataFrame(rows)
    names = {aligned(bits): bits for bits in BITS}
    notes = [
        f"Norm of the error over the norm of the exact product of e4m3fn matrices, {SIDE} x {SIDE} results.",
        "Normal numbers; positive: uniform between 0 and 1; log-normal: exp(2 x) of normal x, with random signs.",
    ]
    of_units = frame[~frame["text"].isin(list(names))]
    of_bits = frame[frame["text"].isin(list(names))].assign(bits=lambda some: some["text"].map(names))
    tables = {
        "units": _table("Error of matrix units", of_units, "text", notes),
        "bits": _table(
            "Error by bits of aligned sums",
            of_bits,
            "bits",
            [*notes, "Bits after the point of the largest exponent of 32 products and the sum, truncated."],
        ),
        "matrix-losses": matrix_trainings.table(losses),
    }
    return Report(
        tables,
        {"matrix-units": lambda: _plot(of_bits), "matrix-trainings": partial(_plot_losses, losses)},
        {
            "matrix-units.csv": frame.to_csv(index=False, lineterminator="\n", float_format="%.4g"),
            "matrix-trainings.csv": pd.DataFrame(losses).to_csv(index=False, lineterminator="\n", float_format="%.4f"),
        },
        title="Error of products in aligned sums",
        made_by="halfulp report matrix-units",
    )


def _table(title: str, frame: pd.DataFrame, first: str, notes: list[str]) -> Table:
    columns = frame.pivot(index=first, columns=["distribution", "length"], values="error")
    columns = columns.loc[list(dict.fromkeys(frame[first]))]
    columns.columns = [" ".join(map(str, column)) for column in columns.columns]
    shown = columns.reset_index()
    return Table(title, shown, dict.fromkeys(shown.columns[1:], ".1e"), notes)


def _plot(frame: pd.DataFrame) -> object:
    panels = []
    for distribution, rows in frame.groupby("distribution", sort=False):
        curves = [
            Curve(f"{length} products", ("float", str(length)), list(some["bits"]), list(some["error"]))
            for length, some in rows.groupby("length")
        ]
        panels.append((str(distribution), curves))
    title = "Products of FP8 matrices in aligned sums"
    return plot_curves([panels], title=title, xlabel="bits after the point of a sum", labels=["relative error"])


def _plot_losses(rows: list[dict[str, Any]]) -> object:
    """Plot losses by the bits of aligned sums, and that of exact sums."""
    bits = {name: count for name in matrix_trainings.POLICIES if (count := matrix_trainings.bits_of(name)) is not None}
    ordered = sorted(bits, key=bits.__getitem__)
    x = [bits[name] for name in ordered]
    panels = []
    for network in matrix_trainings.NETWORKS:
        by_unit = {row["unit"]: row["loss"] for row in rows if row["network"] == network}
        curves = [
            Curve("aligned sums", ("float", "aligned"), x, [by_unit.get(name) for name in ordered]),
            Curve("exact sums", ("float", "exact"), x, [by_unit.get("exact, FP8")] * len(x)),
        ]
        panels.append((network, curves))
    title = "Loss of trainings in FP8 with aligned sums"
    return plot_curves([panels], title=title, xlabel="bits after the point of a sum", labels=["loss"])
