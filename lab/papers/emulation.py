"""Time of emulated training steps with parts of the emulator left out, and by format.

Counterparts of Table 2 of FASE (Osorio, ECML-PKDD 2022) and Figure 8 of Arbitor (Jiang et al., USENIX ATC 2023).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from .arbitor import POLICIES, everything
from .trainings import Figures, number_formats

if TYPE_CHECKING:
    from torch import Tensor

    from halfulp.lab.train.steps import TrainingStep

THREADS, REPEATS, BATCH = 1, 3, 32
"""Threads, repetitions of a measurement, and images in a batch."""

SIDE = 128
"""Size of the square matrices of a product."""

BF16 = everything("bf16")
"""Policy with every operation in BF16."""

SWITCHES = {
    "interception only": ("fp32", True, False),
    "no kernels, no graphs": (BF16, False, False),
    "graphs only": (BF16, False, True),
    "kernels only": (BF16, True, False),
    "kernels and graphs": (BF16, True, True),
}
"""Policy of each column of the table, and whether it has compiled kernels and compiled graphs."""

PUBLISHED = {
    "SGEMM": (15, 1809, 880, 82, 39),
    "ResNet50": (11, 1131, 553, 76, 30),
    "3DGAN": (7, 714, 340, 66, 28),
    "LSTM": (18, 1096, 551, 70, 29),
    "Transformer": (8, 818, 423, 36, 17),
}
"""Table 2 of FASE: instrumentation alone, naive, without redundant roundings, vectorised, and both."""

UNROLLED = ("lstm",)
"""Steps whose layers a graph unrolls."""

LITTLE = 0.2
"""Share of the time below which a saving is far from the published half."""

COUNTERPARTS = {"product": "SGEMM", "resnet": "ResNet50", "lstm": "LSTM", "transformer": "Transformer"}
"""Published rows of our steps."""

FORMATS = ("e8m7", "e8m3", "e6m6", "e6m2", "e4m3", "posit8e1", "posit13e3", "posit16e1")
"""Formats of Figure 8, in both ways of Arbitor."""


def measured(*, progress: Progress = silent) -> dict[str, Any]:
    """Return all figures of the report."""
    progress.total("tables", 2)
    found = by_network()
    progress.advance(1)
    found["formats"] = by_format()
    progress.advance(1)
    return found


def report(figures: Figures) -> Report:
    """Return the report: its tables and the record."""
    tables = {"emulation-ways": ways_table(figures), "emulation-formats": formats_table(figures)}
    return Report(tables, records={"emulation.json": figures.json()})


def by_network() -> dict[str, Any]:
    """Return times of a step of each network relative to FP32."""
    import torch

    torch.manual_seed(0)
    with threads(THREADS):
        ways = {
            name: {way: _ratio(step, *setting) for way, setting in SWITCHES.items()}
            for name, step in _networks().items()
        }
    return {"ways": ways}


def by_format() -> dict[str, dict[str, float]]:
    """Return times of a training step of the residual network relative to FP32, for each format and way of Arbitor."""
    step = _networks()["resnet"]
    with threads(THREADS):
        return {fmt: {way: _ratio(step, make(fmt), True, False) for way, make in POLICIES.items()} for fmt in FORMATS}


def _networks() -> "dict[str, TrainingStep | None]":
    """Return steps of small networks; None for a product of matrices."""
    from halfulp.lab.train import small
    from halfulp.lab.train.language import Lstm
    from halfulp.lab.train.steps import TrainingStep

    images, letters = (BATCH, 1, 8, 8), (BATCH, 8)
    return {
        "product": None,
        "resnet": TrainingStep("resnet", "", lambda: small.resnet()[0], images, 10, ()),
        "lstm": TrainingStep("lstm", "", lambda: Lstm(64, 32), letters, 64, ()),
        "transformer": TrainingStep("transformer", "", lambda: small.transformer()[0], images, 10, ()),
    }


def _ratio(step: "TrainingStep | None", policy: str, compiled: bool, graph: bool) -> float:
    """Return the time of a step in a policy relative to FP32."""
    from halfulp.lab.train.steps import compiled_step, emulated
    from halfulp.tools.timing import in_turns

    with kernels("auto" if compiled else "torch"):
        runs = _product(policy, graph) if step is None else (compiled_step if graph else emulated)(step, policy)
        ours, plain = in_turns(*runs, repeats=REPEATS)
    return ours / plain


def _product(policy: str, graph: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return an emulated product of matrices, and one in FP32."""
    import torch

    from halfulp import golden

    a, b = (torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(seed)) for seed in range(2))

    def plain() -> "Tensor":
        return a @ b

    if not graph:
        return golden.emulate(policy)(plain), plain
    torch.compiler.reset()
    return torch.compile(plain, backend=golden.emulate.backend(policy)), plain


@contextmanager
def kernels(level: str) -> Iterator[None]:
    """Choose the kernels, by a value of ``HALFULP_KERNEL``, while the body runs."""
    from halfulp.golden.kernels.build import SETTING

    before = os.environ.get(SETTING)
    os.environ[SETTING] = level
    try:
        yield
    finally:
        if before is None:
            del os.environ[SETTING]
        else:
            os.environ[SETTING] = before


_SETTING = (
    f"Times relative to FP32 of the same run, in one thread; a product of {SIDE} x {SIDE} numbers, and training "
    f"steps of small networks with batches of {BATCH}. Small operations cost calls rather than arithmetic."
)
"""Note of the tables."""


def _reasons(ratios: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the causes of the differences that the times have."""
    from halfulp.golden.program.chains import LONGEST

    saved = max(1 - own["graphs only"] / own["no kernels, no graphs"] for own in ratios.values())
    if saved < LITTLE:
        yield (
            f"Without kernels, graphs make no step more than {max(saved, 0):.0%} faster, while published they halve "
            "the time: only the kernels of chains use the formats that a graph knows. Without them each operation "
            "rounds all of its operands again, and a graph adds its own cost: a call in Python for each node, and the "
            "parts of operations that torch composes. A product is one operation in both."
        )
    for name, own in ratios.items():
        if name in UNROLLED and own["kernels and graphs"] > own["kernels only"]:
            yield (
                f"{name} takes {own['kernels and graphs']:.1f} times the time of FP32 with kernels and graphs and "
                f"{own['kernels only']:.1f} times with kernels only, while published both together are the fastest: "
                "without graphs a step of a recurrent layer is one product and one chain of all of its element-wise "
                "operations, and a graph unrolls the layer into single products, views and chains of at most "
                f"{LONGEST} operations."
            )


def ways_table(figures: Figures) -> Table:
    """Return the counterpart of Table 2 of FASE."""
    rows: list[dict[str, Any]] = []
    ours = {published: name for name, published in COUNTERPARTS.items()}
    for model, published in PUBLISHED.items():
        name = ours.get(model, "")
        row: dict[str, Any] = {"published": model, "step": name}
        for way, theirs in zip(SWITCHES, published, strict=True):
            row |= {f"{way}, published": theirs, way: figures.more["ways"].get(name, {}).get(way)}
        rows.append(row)
    notes = [
        "Published: instrumentation of programs alone, naive, without redundant roundings, vectorised, and both. Ours: "
        "interception only: calls are intercepted and computed by torch in FP32. The others have every operation in "
        "BF16: in operations of torch without and with compiled graphs, which leave out redundant roundings, and in "
        "compiled vector kernels without and with graphs.",
        _SETTING,
        "3DGAN: the project has no such network and no data of it.",
        *_reasons(figures.more["ways"]),
        figures.notes[-1],
    ]
    return Table("Time of emulation in BF16", pd.DataFrame(rows), number_formats(rows, digits=1), notes)


def formats_table(figures: Figures) -> Table:
    """Return the counterpart of Figure 8 of Arbitor."""
    rows = [{"format": fmt} | ratios for fmt, ratios in figures.more["formats"].items()]
    notes = [
        f"A training step of the residual network with a batch of {BATCH}, in one thread, relative to FP32 of the same "
        "run. Published, on a GPU: 3.59 times for formats with 8 exponent bits and reductions in FP32, to 164.7 times "
        "for posits. Ours takes more in floats, because calls cost more than arithmetic in a step this small, and "
        "about as many times in posits.",
        figures.notes[-1],
    ]
    return Table("Time of emulation by format", pd.DataFrame(rows), number_formats(rows, digits=1), notes)
