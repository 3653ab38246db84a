"""A number type from two casts: time, casts left out, memory and kernels of forward passes (Lowgen, MAPL 2020)."""

import inspect
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd

from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from .arbitor import everything
from .emulation import kernels
from .trainings import Figures, number_formats

if TYPE_CHECKING:
    from torch import Tensor, nn

THREADS, REPEATS, SIDE = 1, 2, 128
"""Threads, repetitions of a measurement, and pixels on each side of the image."""

PUBLISHED = {
    "ResNet-v1-50": (624.61, 17517.8, 2312.38),
    "ResNet-v1-101": (1143.13, 37500.1, 4923.54),
    "ResNet-v2-50": (990.51, 32049.4, 3425.27),
    "Inception-v4": (1267.38, 44277.0, 5913.06),
    "YOLO-v3-Tiny": (525.66, 14557.6, 1780.26),
    "YOLO-v3": (3813.83, 164261.0, 14834.2),
    "SSD": (301.66, 7671.72, 928.24),
    "SSD-FPN": (5976.73, 301022.0, 29243.9),
    "Faster-RCNN": (52013.3, 1244230.0, 134392.0),
    "DeepLab-v3": (10329.9, 468629.0, 41503.9),
    "U-Net": (64139.4, 65217.4, 59886.1),
}
"""Table 1: time of a forward pass in ms, in float, in bfloat16 in scalar code, and in bfloat16 in generated code."""

COUNTERPARTS = {"ResNet-v1-50": "ResNet-50", "Inception-v4": "Inception", "SSD": "SSD", "U-Net": "U-Net"}
"""Networks of the same kinds."""

OWN = "lab_bf16"
"""Name of the format of two functions."""

LEVELS = {
    "float": None,
    "scalar": ("bf16", "scalar"),
    "vector": ("bf16", "native"),
    "own": (f"custom:{OWN}", "native"),
}
"""Format of each column of times, and its kernels (a value of ``HALFULP_KERNEL``); None for FP32 of torch."""

CASTS = {"SSD": (12, 89.6, 88.9), "Inception-v4": (93, 578.4, 572.9)}
"""Table 2: casts that are removed, and megabytes at the peak with and without them."""

MEMORY = {"FP32": None, "each operation": False, "graphs": True}
"""Runs whose memory is measured: BF16 in compiled graphs, which leave out roundings, or not; None for FP32."""

SIZES = dict(zip(MEMORY, ("MB, FP32", "MB, with all casts", "MB, casts left out"), strict=True))
"""Columns of these runs."""


def from_real(x: "Tensor") -> "Tensor":
    """Return the code of BF16 of each number in binary64."""
    import torch

    # BF16 has 7 bits below the leading one, whose exponent is that of frexp minus 1; subnormal numbers share the last
    # place 2^-133.
    place = torch.frexp(x).exponent.clamp(min=-125) - 8
    rounded = torch.ldexp(torch.ldexp(x, -place).round(), place).float()
    return rounded.view(torch.int32) >> 16 & 0xFFFF


def to_real(codes: "Tensor") -> "Tensor":
    """Return the number of each code of BF16."""
    import torch

    return (codes << 16).to(torch.int32).view(torch.float32)


def register() -> None:
    """Register the format of the two functions."""
    from halfulp import golden

    golden.register_format(OWN, 16, from_real, to_real)


LINES = sum(len(inspect.getsource(part).splitlines()) for part in (from_real, to_real, register))
"""Lines of the type, with its two casts and its registration."""


def networks(quick: bool = False) -> "dict[str, Callable[[], nn.Module]]":
    """Return functions that build networks of the published kinds; the smallest alone if quick."""
    from halfulp.fpga.match.networks import resnet50

    from .forward import SmallDetector, SmallUnet, small_inception

    if quick:
        return {"SSD": SmallDetector}
    return {"ResNet-50": resnet50, "Inception": small_inception, "SSD": SmallDetector, "U-Net": SmallUnet}


def measured(*, quick: bool, progress: Progress = silent) -> dict[str, Any]:
    """Return times, roundings, kernels and memory of a forward pass of each network."""
    register()
    found: dict[str, Any] = {}
    every = networks(quick)
    progress.total("networks", len(every))
    for name, build in every.items():
        for kind, figures in _measured(build, 1 if quick else REPEATS).items():
            found.setdefault(kind, {})[name] = figures
        progress.advance(1)
    return found


@threads(THREADS)
def _measured(build: "Callable[[], nn.Module]", repeats: int) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    model, x = build().eval(), torch.randn(1, 3, SIDE, SIDE)

    def forward() -> "Tensor":
        result: Tensor = model(x)
        return result

    with torch.no_grad():
        memory = {way: peak(_emulated(forward, in_graphs)) for way, in_graphs in MEMORY.items()}
        return {"times": times(forward, repeats), "graphs": graphs(forward), "memory": memory}


def times(forward: "Callable[[], Tensor]", repeats: int) -> dict[str, float]:
    """Return the seconds of the processor for a forward pass in each way; the ways in BF16 give the same bits."""
    import torch

    from halfulp import golden
    from halfulp.tools.timing import in_turns

    def run(fmt: str, level: str) -> "Tensor":
        with kernels(level), golden.emulate(f"{fmt}*{fmt}+fp32.rn, elementwise={fmt}.rn"):
            return forward()

    runs = {way: forward if how is None else partial(run, *how) for way, how in LEVELS.items()}
    results = [run() for way, run in runs.items() if way != "float"]
    if not all(torch.equal(result, results[0]) for result in results):
        raise AssertionError("formats with the numbers of BF16 give other results")
    return dict(zip(runs, in_turns(*runs.values(), repeats=repeats, clock=time.process_time), strict=True))


def graphs(forward: "Callable[[], Tensor]") -> dict[str, int]:
    """Return roundings of operands in a compiled pass, those that are left out, and number and size of its kernels."""
    import torch

    from halfulp import golden
    from halfulp.golden.kernels import build

    backend = golden.emulate.backend(everything("bf16"))
    torch.compiler.reset()
    with kernels("auto"), TemporaryDirectory() as folder, build.in_folder(folder):
        torch.compile(forward, backend=backend)()
        sizes = [path.stat().st_size for path in Path(folder).rglob("*.so")]
    report = backend.report()
    size = sum(sizes) // 1024
    return {"roundings": report.casts, "left out": report.redundant, "kernels": len(sizes), "KiB": size}


def _emulated(forward: "Callable[[], Tensor]", in_graphs: bool | None) -> Callable[[], Any]:
    """Return a pass in BF16, in compiled graphs or one operation after the other; in FP32 for None."""
    import torch

    from halfulp import golden

    if in_graphs is None:
        return forward
    if not in_graphs:
        return golden.emulate(everything("bf16"))(forward)
    torch.compiler.reset()
    return torch.compile(forward, backend=golden.emulate.backend(everything("bf16")))


def peak(run: Callable[[], Any]) -> int:
    """Return the largest number of bytes that torch has allocated on the CPU in a second run, and not yet freed."""
    import torch

    # The first run compiles.
    run()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        run()
    changes = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in changes), initial=0))


def report(figures: Figures) -> Report:
    """Return the report: its tables and the record."""
    tables = {"lowgen-times": _times(figures), "lowgen-casts": _casts(figures), "lowgen-kernels": _kernels(figures)}
    return Report(tables, records={"lowgen.json": figures.json()})


def _times(figures: Figures) -> Table:
    rows: list[dict[str, Any]] = []
    for model, (plain, scalar, generated) in PUBLISHED.items():
        cells: dict[str, Any] = {"network": model, "float, ms, published": plain}
        cells |= {"scalar / float, published": scalar / plain, "generated / float, published": generated / plain}
        ours = COUNTERPARTS.get(model, "")
        seconds = figures.more["times"].get(ours)
        cells |= {"ours": ours if seconds else "", "float, ms": seconds and 1e3 * seconds["float"]}
        cells |= {f"{way} / float": seconds and seconds[way] / seconds["float"] for way in list(LEVELS)[1:]}
        rows.append(cells)
    notes = [
        "Time of a forward pass of one sample: in float in ms, and in bfloat16 as a multiple of it. Published: scalar "
        "code, and vector code (8 threads, SSE) that is generated from two casts. Ours: float is FP32 of torch; scalar "
        "and vector are the built-in format in kernels that are compiled without and with vector instructions; own is "
        f"a format from two functions in Python, {LINES} lines in all (`halfulp.lab.papers.lowgen`). All three give "
        "the same bits.",
        f"Ours are processor time of {THREADS} thread, for an image of {SIDE} x {SIDE} pixels: ResNet-50 of `halfulp "
        "train`, and a smaller network of each other kind, with blocks of concatenated branches, heads at several "
        "resolutions, and an encoder whose levels are concatenated with those of a decoder.",
        "Scalar is closer to vector than published, probably because a pass on a small image spends a part of its "
        "time in the calls of operations, which are the same in both.",
        "Own is slower than vector, because the two functions are operations of torch that run for each element-wise "
        "operation, and are not compiled into its kernel as in the publication; products run in the kernels of FP32.",
        "The published U-Net takes nearly the same time in each type, which we cannot explain; our U-Net is slower in "
        "BF16, as the other networks are.",
        figures.notes[-1],
    ]
    return Table("Time of a forward pass", pd.DataFrame(rows), number_formats(rows, digits=1), notes)


def _casts(figures: Figures) -> Table:
    rows: list[dict[str, Any]] = [
        {"network": f"{name}, published", "casts": None, "left out": casts}
        | dict(zip(SIZES.values(), (None, before, after), strict=True))
        for name, (casts, before, after) in CASTS.items()
    ]
    for name, sizes in figures.more["memory"].items():
        counts = figures.more["graphs"][name]
        cells: dict[str, Any] = {"network": name, "casts": counts["roundings"], "left out": counts["left out"]}
        rows.append(cells | {SIZES[way]: size / 1e6 for way, size in sizes.items()})
    notes = [
        "Casts of a forward pass in BF16, and megabytes at its peak. Published: casts that are removed from the graph "
        "around reshapes and concatenations. Ours: roundings of operands of a compiled pass, and those that are left "
        "out because the number has the format already, which holds around reshapes and concatenations and in chains "
        "of other operations too; memory beyond parameters, in FP32, with each operation computed alone (all casts), "
        "and in compiled graphs (casts left out).",
        "A cast of the publication makes a tensor of another type, so that leaving it out saves memory; a rounding of "
        "ours is a part of an operation and has no tensor of its own, so leaving it out saves time, and graphs save "
        "memory because element-wise operations in a chain have no tensors between them.",
        figures.notes[-1],
    ]
    formats = {"casts": ".0f"} | dict.fromkeys(SIZES.values(), ".2f")
    return Table("Casts left out, and memory", pd.DataFrame(rows), formats, notes)


def _kernels(figures: Figures) -> Table:
    rows = [
        {"network": name, "kernels": counts["kernels"], "KiB": counts["KiB"]}
        for name, counts in figures.more["graphs"].items()
    ]
    notes = [
        "Number and size of the compiled kernels of a forward pass in BF16. As in the publication (Figure 7), only the "
        "operators that a network uses are compiled; ours are compiled for a format and serve all shapes.",
        figures.notes[-1],
    ]
    return Table("Compiled operators", pd.DataFrame(rows), {}, notes)
