"""Training steps of networks on published arrays, by the published performance model.

Published: Ben Ali et al., MPTorch-FPGA, DATE 2025, Tables III and IV.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from halfulp.boards.catalogue import BOARDS
from halfulp.fpga.match.cli import MAC
from halfulp.fpga.match.performance import Published, total
from halfulp.fpga.match.products import Gemm
from halfulp.fpga.match.published import TABLE_III, TABLE_IV, clocks
from halfulp.fpga.match.workload import Workload, workload
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report, provenance, versions
from halfulp.tools.tables import Table

PLACES = {"lenet5": 4, "vgg16": 2, "resnet20": 2, "resnet50": 2, "nanogpt": 2}
"""Networks of Table IV, with the printed digits after the point."""

BY_TEXT = "nanogpt, by text"
"""Name of Nano-GPT with the products of each text."""

SETTINGS = (
    "Steps of LeNet5 on MNIST (batch 64), VGG16 with classifier layers of 4,096 and ResNet20 on CIFAR10 (128), "
    "ResNet50 on images of 224 x 224 in ten classes (16), and Nano-GPT on 64 texts of 256 letters. The batches of "
    "LeNet5 and ResNet20 are published; those of the others are the ones that give the published figures."
)

_CLOCKS = "the printed clocks are rounded, and a clock within 0.2 % of the printed one gives the printed figures"

REASONS = {
    "lenet5": _CLOCKS,
    "vgg16": _CLOCKS,
    "resnet20": _CLOCKS,
    "nanogpt": "torch computes the gradient of a weight as one product for all texts, and attention as one batch for "
    "all texts and heads, which divide among other numbers of cores",
    BY_TEXT: "with a gradient of a weight for each text, attention head by head and whole products for each core, all "
    "figures are within 0.15 % of the published ones, so these seem to be computed so, with clocks before rounding",
}
"""Cause of the differences of each column."""


def rows(names: Sequence[str] = tuple(PLACES), progress: Progress = silent) -> Iterator[dict[str, object]]:
    """Yield a row for each network and each published array: the time of a training step in seconds."""
    progress.total("networks", len(names))
    board = BOARDS["u55c"]
    for name in names:
        load = workload(name)
        products = {name: load.gemms} | ({BY_TEXT: list(by_text(load))} if name == "nanogpt" else {})
        for label, gemms in products.items():
            for (n, m, cores), mhz in clocks().items():
                seconds = total(Published(n, m, cores, mhz, pcie_gbps=board.pcie_gbps), gemms).seconds
                yield {"network": label, "N": n, "M": m, "C": cores, "MHz": mhz, "seconds": f"{seconds:.6g}"}
        progress.advance(1)


def by_text(load: Workload) -> Iterator[Gemm]:
    """Yield the products of a transformer with a gradient of weights for each text, and attention head by head."""
    assert load.batch is not None
    letters = {gemm.n for gemm in load.gemms if gemm.phase == "forward" and gemm.batch == 1}
    for gemm in load.gemms:
        if gemm.batch > 1:
            yield from [replace(gemm, batch=load.batch)] * (gemm.batch // load.batch)
        elif gemm.phase == "backward" and gemm.k in letters:
            yield replace(gemm, k=gemm.k // load.batch, batch=load.batch)
        else:
            yield gemm


def report(found: Sequence[Mapping[str, object]]) -> Report:
    """Return the tables of rows, and the rows as the record."""
    frame = pd.DataFrame(found)
    made_by = provenance("halfulp report steps", versions("halfulp", "torch"))
    return Report(
        {"steps-cores": table_iv(frame, [f"Made by {made_by}."]), "steps-sizes": sizes(frame, [f"Made by {made_by}."])},
        records={"steps.csv": frame.to_csv(index=False, lineterminator="\n")},
        title="Training steps on arrays of 8 x 8",
        made_by=made_by,
    )


def _seconds(frame: pd.DataFrame) -> dict[tuple[str, int, int, int], float]:
    keys = zip(frame["network"], *(frame[name].astype(int) for name in ("N", "M", "C")), strict=True)
    return dict(zip(keys, frame["seconds"].astype(float), strict=True))


def _names(frame: pd.DataFrame) -> list[str]:
    return [name for name in (*PLACES, BY_TEXT) if name in set(frame["network"])]


def table_iv(frame: pd.DataFrame, notes: Sequence[str] = ()) -> Table:
    """Return the published Table IV beside ours, with a note for the differences of each column."""
    seconds, names = _seconds(frame), _names(frame)
    cells: list[dict[str, object]] = []
    differ = dict.fromkeys(names, 0)
    for row in TABLE_IV:
        one: dict[str, object] = {"C": row.cores, "MHz": f"{row.mhz:.1f}"}
        for name in names:
            printed = getattr(row, name.partition(",")[0])
            ours = f"{seconds[name, 8, 8, row.cores]:.{PLACES[name.partition(',')[0]]}f}"
            differ[name] += ours != printed
            one |= ({f"{name}, published": printed} if name in PLACES else {}) | {f"{name}, ours": ours}
        cells.append(one)
    causes = [
        f"{name}: {count} of {len(TABLE_IV)} figures differ{f': {REASONS[name]}' if count else ''}."
        for name, count in differ.items()
    ]
    return Table(
        "Training steps on arrays of 8 x 8",
        pd.DataFrame(cells),
        {},
        [
            "Seconds of a training step on C arrays of 8 x 8, by the published performance model. Published: Ben Ali "
            "et al., DATE 2025, Table IV, whose heading says ms by mistake. Ours: `halfulp match NETWORK --model "
            "published`, from the products that torch computes on tensors with shapes only.",
            SETTINGS,
            *causes,
            *notes,
        ],
    )


def sizes(frame: pd.DataFrame, notes: Sequence[str] = ()) -> Table:
    """Return the time on every size of Table III, and the fastest arrays of each network."""
    seconds, names = _seconds(frame), _names(frame)
    cells: list[dict[str, object]] = [
        {
            "N": row.n,
            "M": row.m,
            "C": row.cores,
            "MHz": row.mhz,
            **{name: seconds[name, row.n, row.m, row.cores] for name in names},
        }
        for row in TABLE_III
    ]
    fastest = {
        name: min((key[1:] for key in seconds if key[0] == name), key=lambda key: seconds[name, *key]) for name in names
    }
    chosen = ", ".join(f"{name} <{n}, {m}, {cores}>" for name, (n, m, cores) in fastest.items())
    return Table(
        "Training steps on every published array",
        pd.DataFrame(cells),
        {"MHz": ".1f"} | dict.fromkeys(names, ".4f"),
        [
            f"Seconds of a training step by the published performance model, of arrays of {MAC} with the largest "
            "number of cores that fits (Ben Ali et al., DATE 2025, Table III).",
            f"Fastest <N, M, C>, with all numbers of cores of 8 x 8: {chosen}. Published for Nano-GPT: <32, 16, 4>.",
            *notes,
        ],
        best=dict.fromkeys(names, "lowest"),
    )
