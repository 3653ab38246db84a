"""Which arrays a network trains fastest on: a search over their size, their number, and the clock that they reach."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from halfulp.hdl.formats import MacSpec
from halfulp.sim.plots import Panel, front, write
from halfulp.sim.tables import Table
from halfulp.sim.train.data import BLOCK
from halfulp.sim.train.networks import NETWORKS, NanoGpt, lenet5, resnet20

from .board import Board
from .gemms import Gemm, counted, trace
from .perfmodel import Published, Total, total
from .published import TABLE_III, clocks

PORTS = 3
"""Ports of a core to memory: for each of the operands, and for the result."""

LETTERS = 65
"""Letters of the transformer's alphabet, as the plays of Shakespeare have them that it is usually trained on."""

EXAMPLES: dict[str, Callable[[int], tuple[nn.Module, Tensor]]] = {
    "lenet5": lambda batch: (lenet5(), torch.zeros(batch, 1, 28, 28)),
    "resnet20": lambda batch: (resnet20(), torch.zeros(batch, 3, 32, 32)),
    "nanogpt": lambda batch: (NanoGpt(LETTERS), torch.zeros(batch, BLOCK, dtype=torch.long)),
}
"""Networks that are known by name, and what each takes; the values are of no importance."""


@dataclass(frozen=True)
class Workload:
    """What is to be computed.

    Attributes
    ----------
    name : str
    batch : int or None
        Examples in a step, of a network that is known by name.
    training : bool
        Whether a step is one of training, or of inference.
    gemms : list of Gemm
    """

    name: str
    batch: int | None
    training: bool
    gemms: list[Gemm]

    @property
    def text(self) -> str:
        """In words."""
        batch = "" if self.batch is None else f", batch {self.batch}"
        return f"{'a training step' if self.training else 'inference'} of {self.name}{batch}"


def workload(name: str, batch: int | None = None, training: bool = True) -> Workload:
    """The products of a network.

    Parameters
    ----------
    name : str
        ``lenet5``, ``resnet20``, ``nanogpt``, or ``module:function`` of a function without parameters that returns a
        torch model and its input, or a tuple of its inputs.
    batch : int, optional
        Of a network that is known by name; by default as it is trained.
    training : bool

    Raises
    ------
    ValueError
        If there is no such network or function, or the model cannot be traced.
    """
    if name in EXAMPLES:
        batch = NETWORKS[name].batch if batch is None else batch
        if batch < 1:
            raise ValueError(f"a batch has 1 example or more, not {batch}")
        model, example = EXAMPLES[name](batch)
        return Workload(name, batch, training, trace(model, example, training=training))
    if batch is not None:
        raise ValueError(f"the batch of {name} is that of the input that it returns; leave --batch out")
    model, inputs = _made(name)
    return Workload(name, None, training, trace(model, *inputs, training=training))


def _made(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """What a function of the user's returns."""
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        raise ValueError(f"unknown network {name!r}; there are {', '.join(EXAMPLES)}, or module:function of your own")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} cannot be imported: {error}") from error
    finally:
        sys.path.remove(here)
    made = found() if callable(found) else None
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ValueError(f"{name} has to be a function that returns a torch model and its input")
    model, inputs = made
    return model, inputs if isinstance(inputs, tuple) else (inputs,)


@dataclass(frozen=True)
class Option:
    """Arrays that could be built.

    Attributes
    ----------
    n, m, cores : int
        Elements of an array, multiply-accumulates of each, and arrays.
    mhz : float
    lut : float or None
        Lookup tables, in percent of the device; None where nobody says.
    total : Total
        How long the step takes.
    """

    n: int
    m: int
    cores: int
    mhz: float
    lut: float | None
    total: Total

    @property
    def macs(self) -> int:
        """Multiply-accumulates in all."""
        return self.n * self.m * self.cores

    @property
    def used(self) -> float:
        """How many of these do something that is wanted, on average, in percent."""
        return 100 * self.total.macs / (self.total.seconds * self.mhz * 1e6 * self.macs)


def storage(mac: MacSpec) -> int:
    """Bits of an element in memory: those of the wider operand, in whole bytes, of which there are 1, 2, 4 or 8."""
    width = max(mac.a.width, mac.b.width)
    return next(bits for bits in (8, 16, 32, 64) if bits >= width)


def published(board: Board, load: Workload, mac: MacSpec) -> list[Option]:
    """Those that were published, with their clocks, as far as the board has room and ports for them.

    Raises
    ------
    ValueError
        If there is room for none.
    """
    counts = counted(load.gemms)
    luts = {(row.n, row.m, row.cores): row.lut * _PUBLISHED_LUT / board.target.lut for row in TABLE_III}
    found = [
        Option(n, m, cores, mhz, luts.get((n, m, cores)), total(_model(n, m, cores, mhz, board, mac), counts))
        for (n, m, cores), mhz in clocks().items()
        if cores <= board.cores(PORTS) and luts.get((n, m, cores), 0) <= 100
    ]
    if not found:
        raise ValueError(f"{board.name} has ports for {board.cores(PORTS)} cores, and the published arrays need more")
    return found


_PUBLISHED_LUT = 1_303_680
"""Lookup tables of the device that the published shares are of."""


def _model(n: int, m: int, cores: int, mhz: float, board: Board, mac: MacSpec) -> Published:
    return Published(n, m, cores, mhz, storage(mac), board.pcie_gbps)


def fastest(options: Sequence[Option]) -> Option:
    """The one that takes least time; of those that take as long, the smallest."""
    return min(options, key=lambda option: (option.total.seconds, option.macs))


def table(options: Sequence[Option], board: Board, load: Workload, notes: Sequence[str]) -> Table:
    """The options, the fastest first."""
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
        for option in sorted(options, key=lambda option: (option.total.seconds, option.macs))
    ]
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    formats = {"MHz": ".1f", "LUT %": ".1f", "step ms": ".3f", "host ms": ".3f", "GMAC/s": ".1f", "used %": ".1f"}
    chosen = fastest(options)
    sentences = [
        f"The fastest: N = {chosen.n}, M = {chosen.m}, C = {chosen.cores} at {chosen.mhz:.1f} MHz, "
        f"{1e3 * chosen.total.seconds:.3f} ms for {load.text} ({load_size(load)}).",
        "N elements of M multiply-accumulates in each of C cores; step: on the arrays, each product or its transpose "
        f"on as many cores as is best; host: between the host and the board at {board.pcie_gbps:g} GB/s, which is not "
        "in it; used: multiply-accumulates that do something that is wanted, on average.",
        *notes,
    ]
    return Table(
        f"Arrays for {load.name} on {board.name}",
        frame,
        {name: spec for name, spec in formats.items() if name in frame},
        sentences,
        best={"step ms": "lowest", "GMAC/s": "highest", "used %": "highest"},
    )


def load_size(load: Workload) -> str:
    """How much there is to compute, in words."""
    return f"{len(load.gemms):,} products, {sum(gemm.macs for gemm in load.gemms) / 1e9:.3g} * 10^9 MACs"


def leave(
    options: Sequence[Option], board: Board, load: Workload, notes: Sequence[str], folder: Path, stem: str
) -> list[Path]:
    """Write the table and a plot of time against size to a folder; says which files these are.

    Raises
    ------
    ToolError
        If a file cannot be written.
    """
    found = table(options, board, load, notes)
    about = {"title": found.title, "description": found.notes[0]}
    return [
        *found.write(folder, stem),
        *write(plot(options, board, load), folder, stem, endings=("png", "pdf"), about=about),
    ]


def plot(options: Sequence[Option], board: Board, load: Workload) -> Any:
    """Time against lookup tables, or against multiply-accumulates where those are not known of all."""
    ordered = sorted(options, key=lambda option: (option.total.seconds, option.macs))
    luts = [option.lut for option in ordered if option.lut is not None]
    known = len(luts) == len(ordered)
    costs = luts if known else [float(option.macs) for option in ordered]
    return front(
        [f"{option.n} x {option.m} x {option.cores} at {option.mhz:.0f} MHz" for option in ordered],
        costs,
        [Panel(f"ms for {load.text}", [1e3 * option.total.seconds for option in ordered], "lowest")],
        [
            not any(
                cost <= own and other.total.seconds <= option.total.seconds and (cost, other) != (own, option)
                for cost, other in zip(costs, ordered, strict=True)
            )
            for own, option in zip(costs, ordered, strict=True)
        ],
        xlabel=f"LUT, % of {board.name}" if known else "multiply-accumulates",
        caption=f"{load_size(load)}.",
    )
