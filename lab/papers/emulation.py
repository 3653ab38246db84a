"""Time of emulated training steps with parts of the emulator left out, by format, and for a format of two functions.

Counterparts of Table 2 of FASE (Osorio, ECML-PKDD 2022), Figure 8 of Arbitor (Jiang et al., USENIX ATC 2023) and
Tables 1 and 2 of Lowgen (MAPL 2020), with the memory of a step.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd

from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from .arbitor import WAYS as POLICIES
from .trainings import Figures, number_formats

if TYPE_CHECKING:
    from torch import Tensor

    from halfulp.lab.train.steps import TrainingStep

THREADS, REPEATS, BATCH = 1, 3, 32
"""Threads, repetitions of a measurement, and images in a batch."""

SIDE = 128
"""Size of the square matrices of a product."""

BF16 = "bf16*bf16=bf16.rn+bf16.rn, elementwise=bf16.rn, optimizer=bf16.rn"
"""Policy with every operation in BF16."""

WAYS = {
    "calls only": ("fp32", True, False),
    "without both": (BF16, False, False),
    "without kernels": (BF16, False, True),
    "without graphs": (BF16, True, False),
    "both": (BF16, True, True),
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

COUNTERPARTS = {"product": "SGEMM", "resnet": "ResNet50", "lstm": "LSTM", "transformer": "Transformer"}
"""Published rows of our steps."""

FORMATS = ("e8m7", "e8m3", "e6m6", "e6m2", "e4m3", "posit8e1", "posit13e3", "posit16e1")
"""Formats of Figure 8, in both ways of Arbitor."""

MEMORY = {"FP32": None, "each operation": False, "graphs": True}
"""Columns of the table of memory: if BF16 is emulated in compiled graphs, which leave out roundings; None for FP32."""

CASTS = {"SSD": (12, 89.6, 88.9), "Inception-v4": (93, 578.4, 572.9)}
"""Table 2 of Lowgen: casts that are removed, and megabytes at the peak with and without them."""

OWN = "lab_bf16"
"""Name of the format of two functions."""


def measured(progress: Progress = silent) -> dict[str, Any]:
    """Return all figures of the report."""
    progress.total("tables", 3)
    found = by_network()
    progress.advance(1)
    found["formats"] = by_format()
    progress.advance(1)
    found["memory"] = memory()
    progress.advance(1)
    return found


def report(figures: Figures) -> Report:
    """Return the report: its tables and the record."""
    tables = {
        "emulation-ways": ways_table(figures),
        "emulation-formats": formats_table(figures),
        "emulation-own": own_table(figures),
        "emulation-roundings": roundings_table(figures),
        "emulation-memory": memory_table(figures),
    }
    return Report(tables, records={"emulation.json": figures.json()})


def by_network() -> dict[str, Any]:
    """Return times relative to FP32, and roundings, of a step of each network."""
    import torch

    networks = _networks()
    found: dict[str, Any] = {"ways": {}, "roundings": {}, "own": {}}
    torch.manual_seed(0)
    with threads(THREADS):
        for name, step in networks.items():
            found["ways"][name] = {way: _ratio(step, *setting) for way, setting in WAYS.items()}
            if step is not None:
                found["roundings"][name] = _roundings(step)
                found["own"][name] = _own(step)
    return found


def by_format() -> dict[str, dict[str, float]]:
    """Return times of a training step of the residual network relative to FP32, for each format and way of Arbitor."""
    step = _networks()["resnet"]
    with threads(THREADS):
        return {fmt: {way: _ratio(step, make(fmt), True, False) for way, make in POLICIES.items()} for fmt in FORMATS}


def memory() -> dict[str, dict[str, int]]:
    """Return the bytes that a training step of each network takes at its peak, beyond those before the step."""
    import torch

    from halfulp.lab.train.steps import compiled_step, emulated

    found: dict[str, dict[str, int]] = {}
    with threads(THREADS), _level("auto"):
        for name, step in _networks().items():
            if step is None:
                continue
            found[name] = {}
            for way, in_graphs in MEMORY.items():
                torch.manual_seed(0)
                ours, plain = (compiled_step if in_graphs else emulated)(step, BF16)
                found[name][way] = peak(plain if in_graphs is None else ours)
    return found


def peak(run: Callable[[], Any]) -> int:
    """Return the largest number of bytes that torch has allocated on the CPU in a second run, and not yet freed."""
    import torch

    # The first run compiles, and makes the state of an optimiser.
    run()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        run()
    changes = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in changes), initial=0))


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


def _ratio(step: "TrainingStep | None", policy: str, kernels: bool, graph: bool) -> float:
    """Return the time of a step in a policy relative to FP32."""
    from halfulp.lab.train.steps import compiled_step, emulated
    from halfulp.tools.timing import in_turns

    with _level("auto" if kernels else "torch"):
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


def _roundings(step: "TrainingStep") -> dict[str, int]:
    """Return roundings of operands in a compiled step, those that are left out, and the size of its kernels."""
    from halfulp import golden
    from halfulp.golden.kernels import build
    from halfulp.lab.train.steps import compiled_step

    backend = golden.emulate.backend(BF16)
    with TemporaryDirectory() as folder, build.in_folder(folder):
        compiled_step(step, BF16, backend)[0]()
        files = list(Path(folder).rglob("*.so"))
        size = sum(path.stat().st_size for path in files)
    report = backend.report()
    return {"roundings": report.casts, "left out": report.redundant, "kernels": len(files), "KiB": size // 1024}


def _own(step: "TrainingStep") -> dict[str, float]:
    """Return the time of a forward pass in BF16, as a built-in format and as one of two functions, relative to FP32."""
    import torch

    from halfulp import golden
    from halfulp.tools.timing import in_turns

    model = step.build()
    x = torch.randn(step.shape) if len(step.shape) == 4 else torch.randint(step.classes, step.shape)
    golden.register_format(OWN, 16, from_real, to_real)

    def forward() -> "Tensor":
        with torch.no_grad():
            result: Tensor = model(x)
        return result

    ways = {"built-in": ("bf16", True), "built-in, without kernels": ("bf16", False), "own": (f"custom:{OWN}", True)}
    found = {}
    results = []
    for way, (fmt, kernels) in ways.items():
        with _level("auto" if kernels else "torch"):
            emulated = golden.emulate(f"{fmt}*{fmt}+fp32.rn, elementwise={fmt}.rn")(forward)
            results.append(emulated())
            ours, plain = in_turns(emulated, forward, repeats=REPEATS)
        found[way] = ours / plain
    if not all(torch.equal(result, results[0]) for result in results):
        raise AssertionError("formats with the numbers of BF16 give other results")
    return found


def from_real(x: "Tensor") -> "Tensor":
    """Return the code of BF16 of each number in binary64."""
    import torch

    # The last place is 8 bits below the leading one, and that of subnormal numbers.
    place = torch.frexp(x).exponent.clamp(min=-125) - 8
    rounded = torch.ldexp(torch.ldexp(x, -place).round(), place).float()
    return rounded.view(torch.int32) >> 16 & 0xFFFF


def to_real(codes: "Tensor") -> "Tensor":
    """Return the number of each code of BF16."""
    import torch

    return (codes << 16).to(torch.int32).view(torch.float32)


@contextmanager
def _level(level: str) -> Iterator[None]:
    """Choose compiled kernels or operations of torch while the body runs."""
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


def _reasons() -> Iterator[str]:
    """Yield the causes of the differences."""
    from halfulp.golden.program.chains import LONGEST

    yield (
        "Without kernels, graphs save nothing here, while published they halve the time: only the kernels of chains "
        "use the formats that a graph knows. Without them each operation rounds all of its operands again, and a graph "
        "adds its own cost: a call in Python for each node, and the parts of operations that torch composes. A product "
        "is one operation in both."
    )
    yield (
        "lstm is slower in graphs with kernels than without graphs, while published both together are the fastest: "
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
        for way, theirs in zip(WAYS, published, strict=True):
            row |= {f"{way}, published": theirs, way: figures.more["ways"].get(name, {}).get(way)}
        rows.append(row)
    notes = [
        "Published: instrumentation of programs alone, naive, without redundant roundings, vectorised, and both. Ours: "
        "calls are intercepted and computed by torch; every operation in BF16, in operations of torch without and with "
        "compiled graphs, which leave out redundant roundings; compiled vector kernels without and with graphs.",
        _SETTING,
        "3DGAN: the project has no such network and no data of it.",
        *_reasons(),
        figures.notes[-1],
    ]
    return Table("Time of emulation in BF16", pd.DataFrame(rows), number_formats(rows, digits=1), notes)


def roundings_table(figures: Figures) -> Table:
    """Return the counterpart of Table 2 and Figure 7 of Lowgen."""
    rows = [{"step": name} | counts for name, counts in figures.more["roundings"].items()]
    notes = [
        "A training step in BF16, compiled: roundings of operands of element-wise operations and sums, those that are "
        "left out because the number has the format already, and number and size of the compiled kernels, which are "
        "those that the step uses. Published: 12 casts left out in SSD and 93 in Inception-v4.",
        figures.notes[-1],
    ]
    return Table("Roundings and kernels of a step", pd.DataFrame(rows), {}, notes)


def memory_table(figures: Figures) -> Table:
    """Return the counterpart of the memory in Table 2 of Lowgen."""
    rows: list[dict[str, Any]] = [
        {"network": f"{name}, published", "left out": casts, "FP32": None, "each operation": before, "graphs": after}
        for name, (casts, before, after) in CASTS.items()
    ]
    for name, sizes in figures.more["memory"].items():
        left_out = figures.more["roundings"][name]["left out"]
        rows.append({"network": name, "left out": left_out} | {way: size / 1e6 for way, size in sizes.items()})
    notes = [
        "Megabytes at the peak. Published: a forward pass with the casts of the graph, and without those around "
        "operators that move data. Ours: a training step beyond parameters and state, in FP32, in BF16 with each "
        "operation computed alone and its result rounded, and in compiled graphs. A rounding of ours is a part of an "
        "operation and has no tensor of its own, so leaving it out saves time and no memory; graphs also keep other "
        "results for the backward pass than single operations do.",
        figures.notes[-1],
    ]
    formats = dict.fromkeys(MEMORY, ".2f")
    return Table("Memory of a step", pd.DataFrame(rows), formats, notes)


def own_table(figures: Figures) -> Table:
    """Return the counterpart of Table 1 of Lowgen."""
    rows = [{"network": name} | ratios for name, ratios in figures.more["own"].items()]
    notes = [
        "Forward pass in BF16, relative to FP32: the built-in format in compiled kernels and in operations of torch, "
        "and a format that two functions of four lines in all register (`halfulp.lab.papers.emulation`), whose "
        "results have the same bits.",
        _SETTING,
        figures.notes[-1],
    ]
    return Table("A format of two functions", pd.DataFrame(rows), number_formats(rows, digits=1), notes)


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
