"""Table and plot of a search for arrays."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from halfulp.boards.board import Board
from halfulp.tools.pareto import undominated
from halfulp.tools.plots import Panel, plot_front
from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .search import Option, fastest
from .workload import Workload


def table(options: Sequence[Option], board: Board, load: Workload, notes: Sequence[str]) -> Table:
    """Return a table of the options, the fastest first."""
    rows = [
        {
            "N": option.n,
            "M": option.m,
            "C": option.cores,
            "MHz": option.mhz,
            "LUT %": option.lut,
            "step ms": 1e3 * option.total.seconds,
            "host ms": 1e3 * option.total.transfer,
            "GMAC/s": option.total.gmacs,
            "used %": option.used,
        }
        for option in sorted(options, key=lambda option: option.rank)
    ]
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    formats = {"MHz": ".1f", "LUT %": ".1f", "step ms": ".3f", "host ms": ".3f", "GMAC/s": ".1f", "used %": ".1f"}
    chosen = fastest(options)
    sentences = [
        f"Fastest: N = {chosen.n}, M = {chosen.m}, C = {chosen.cores} at {chosen.mhz:.1f} MHz, "
        f"{1e3 * chosen.total.seconds:.3f} ms for {load.text} ({load.size}).",
        "Each of C cores has N elements of M multiply-accumulates. Step: time on the arrays, each product or its "
        f"transpose on the best number of cores. Host: transfers between host and board at {board.pcie_gbps:g} GB/s, "
        "not included in step. Used: utilization of the multiply-accumulates.",
        *notes,
    ]
    return Table(
        f"Arrays for {load.name} on {board.name}",
        frame,
        {name: spec for name, spec in formats.items() if name in frame},
        sentences,
        best={"step ms": "lowest", "GMAC/s": "highest", "used %": "highest"},
    )


def report(
    options: Sequence[Option], board: Board, load: Workload, notes: Sequence[str], stem: str, command: str
) -> Report:
    """Return the report: the table, and a plot of time against size."""
    arrays = table(options, board, load, notes)
    return Report({stem: arrays}, {stem: partial(plot, options, board, load)}, title=arrays.title, made_by=command)


def plot(options: Sequence[Option], board: Board, load: Workload) -> Any:
    """Plot time against lookup tables, or against multiply-accumulates if an option has no number of tables."""
    ordered = sorted(options, key=lambda option: option.rank)
    luts = [option.lut for option in ordered if option.lut is not None]
    known = len(luts) == len(ordered)
    costs = luts if known else [float(option.macs) for option in ordered]
    points = [(option.total.seconds, cost) for option, cost in zip(ordered, costs, strict=True)]
    return plot_front(
        [f"{option.n} x {option.m} x {option.cores} at {option.mhz:.0f} MHz" for option in ordered],
        costs,
        [Panel(f"ms for {load.text}", [1e3 * option.total.seconds for option in ordered], "lowest")],
        undominated(points),
        xlabel=f"LUT, % of {board.name}" if known else "multiply-accumulates",
        caption=f"{load.size}.",
        title=f"Arrays on {board.name}",
    )
