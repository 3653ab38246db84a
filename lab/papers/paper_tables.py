"""Published figures beside those of this library, as a page of the documentation made from the records."""

import csv
from collections.abc import Iterator

from halfulp.fpga.kernel.cost_model import MEMORY_LUTS
from halfulp.fpga.match.performance import Published, total
from halfulp.fpga.match.products import trace
from halfulp.fpga.match.published import PUBLISHED_LUT, TABLE_III, TABLE_IV
from halfulp.fpga.package.manifest import RECORDS
from halfulp.implementation import short

from . import accuracy, arbitor, blocks, esru, fase, sru
from .trainings import Figures

SOURCES = {
    "FPnew": "mach2021",
    "FloPoCo": "dinechin2011",
    "FloPoCo, own encoding": "dinechin2011",
    "PACoGen": "jaiswal2019",
    "Posit-HDL-Arithmetic": "jaiswal2018",
}
"""Designs of ``peers.csv``, with their keys in the bibliography."""


def page() -> Iterator[str]:
    """Lines of the page, in MyST."""
    yield from (
        "# Paper tables",
        "",
        "This page has published figures beside those of this library. Ours come from the records "
        "in `fpga/results`, which",
        "`make cost` measures, so the page changes with them. [Cost](../costs.md) describes the commands that measure.",
    )
    for part in (_peers, _sru, _arrays, _steps, _networks, _trainings):
        yield from ("", *part())


def _record(name: str) -> list[dict[str, str]]:
    """Rows of a record."""
    with (RECORDS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _table(rows: list[dict[str, object]]) -> Iterator[str]:
    """Rows as a table; columns of numbers are aligned right."""
    yield "| " + " | ".join(rows[0]) + " |"
    numbers = [any(str(row[name])[:1].isdigit() for row in rows) for name in rows[0]]
    yield "|---|" + "".join("---:|" if number else "---|" for number in numbers[1:])
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row.values()) + " |"


def _peers() -> Iterator[str]:
    """Multipliers, adders and fused multiply-adds beside other generators and libraries."""
    peers = [row for row in _record("peers") if row["target"] == "vu9p"]
    ours = {row["unit"]: row for row in _record("small")}
    rows: dict[str, dict[str, object]] = {}
    ratios: dict[str, list[float]] = {design: [] for design in SOURCES}
    for row in peers:
        own = ours[str(short(*row["unit"].split()))]
        fast = ours.get(f"{str(short(*row['unit'].split()))!r} --goal speed")
        cells = rows.setdefault(row["unit"], dict.fromkeys(("unit", "halfulp", "halfulp, speed", *SOURCES), ""))
        cells |= {"unit": f"`{row['unit']}`", "halfulp": f"{own['LUT']} ({own['path']})"}
        cells["halfulp, speed"] = f"{fast['LUT']} ({fast['path']})" if fast else ""
        cells[row["design"]] = f"{row['LUT']} ({row['path']})"
        ratios[row["design"]].append(int(row["LUT"]) / int(own["LUT"]))
    yield from (
        "## Multipliers, adders and fused multiply-adds",
        "",
        "Lookup tables on UltraScale+ without DSP blocks and, in parentheses, cells on the longest "
        "path. Every design was",
        "synthesised by the same version of Yosys with the same settings; all formats but "
        "FloPoCo's own have subnormal numbers.",
        "",
        *_table(list(rows.values())),
        "",
    )
    for design, source in SOURCES.items():
        times = f"{min(ratios[design]):.1f} to {max(ratios[design]):.1f} times"
        yield f"- {design} {{cite:p}}`{source}` takes {times} our lookup tables. {_PEER[design]}"


_PEER = {
    "FPnew": "Its rounding mode is an input with five modes, and it computes status flags; "
    "ours is fixed when the unit is "
    "generated, and flags are an option that is off here. Its path is shorter in wide products, "
    "except with `--goal speed`.",
    "FloPoCo": "`IEEEAdd` and `IEEEFMA` round to nearest and have no status flags, as ours here.",
    "FloPoCo, own encoding": "`FPMult` and `FPAdd` have no subnormal numbers, and two more "
    "bits in each number tell "
    "zeros, infinities and NaNs, so they need no decoding: they are smaller, but take and give other codes.",
    "PACoGen": "The products of posit8e0, the posits whose decoding is the simplest, are nearly equal.",
    "Posit-HDL-Arithmetic": "Only its multipliers were measured.",
}
"""Causes of the differences."""


def _sru() -> Iterator[str]:
    """Stochastic rounding units."""
    record = {row["source"]: row for row in _record("sru")}
    rows: list[dict[str, object]] = []
    for row in sru.ROWS:
        own = record[row.label]
        rows.append(
            {
                "source": row.label,
                "published LUT": row.published_lut // sru.UNITS,
                "published FF": row.published_ff // sru.UNITS,
                "LUT": own["LUT"],
                "FF": own["FF"],
                "LUT, with increment": own["LUT +1"],
                "LUT, shared source": f"{float(own['bank LUT']):.2f}",
            }
        )
    published, ours = ([int(str(row[name])) for row in rows] for name in ("published LUT", "LUT"))
    wide, narrow = (sru.ROWS.index(sru.row_of(source)) for source in ("lfsr24", "plateau3"))
    yield from (
        "## Stochastic rounding units",
        "",
        "A unit rounds a fixed-point number to 8 bits {cite:p}`chang2023`, Table IV. Published: "
        "4096 units on a VU9P after",
        "place and route, divided by 4096. Ours: one unit as Yosys maps it, source and carry decision; then with the",
        f"increment of the result; then one of {sru.LANES} units that share a source. `halfulp "
        "report sru` prints more.",
        "",
        *_table(rows),
        "",
        f"A 24-bit LFSR takes {published[wide] / published[narrow]:.1f} times the lookup tables of "
        "a 3-bit plateau source",
        f"in the publication, and {ours[wide] / ours[narrow]:.1f} times here: our units with long "
        "LFSRs are smaller. The",
        "published registers are about twice the bits of the source and ours as many, so the "
        "published units probably have",
        "registers for results too.",
    )


def _arrays() -> Iterator[str]:
    """Systolic arrays."""
    cost = {row["unit"]: int(row["LUT"]) + MEMORY_LUTS * int(row["memory"]) for row in _record("tiles")}
    rows: list[dict[str, object]] = []
    for row in TABLE_III:
        name = f"chain_{row.n}x{row.m}_e5m2_e5m2_e6m5_sr10_lfsr16_d32"
        macs = row.n * row.m
        each = [f"{cost[key] / macs:,.0f}" if key in cost else "" for key in (name, f"kernel_{name}")]
        published = row.lut / 100 * PUBLISHED_LUT / (macs * row.cores)
        rows.append(
            {"N x M": f"{row.n} x {row.m}", "published": f"{published:,.0f}", "array": each[0], "kernel": each[1]}
        )
    yield from (
        "## Systolic arrays",
        "",
        "Lookup tables for each multiply-accumulate of `e5m2*e5m2+e6m5.sr10` in arrays of N "
        "elements of M {cite:p}`benali2025`,",
        "Table III. Published: the whole design on an Alveo U55C, memory ports and shell included, "
        "after place and route, by",
        "high-level synthesis. Ours: the array alone, and the kernel with its memory ports, as "
        "Yosys maps them, with an LFSR",
        "of 16 bits; sizes without a figure are not in the records.",
        "",
        *_table(rows),
        "",
        f"The published share of the chip hardly grows from 1 x 1 ({TABLE_III[0].lut:.2f} %) to 2 x "
        f"2 ({TABLE_III[1].lut:.2f} %), so most",
        "lookup tables of small arrays are those of ports and shell. `halfulp report tiles` prints "
        "the ratio with extrapolated",
        "kernels.",
    )


def _steps() -> Iterator[str]:
    """Time of training steps by the published performance model."""
    import torch

    from halfulp.fpga.match.networks import lenet5, resnet20

    counts = {
        "lenet5": (trace(lenet5(), torch.zeros(64, 1, 28, 28)), 4),
        "resnet20": (trace(resnet20(), torch.zeros(128, 3, 32, 32)), 2),
    }
    rows: list[dict[str, object]] = []
    for row in TABLE_IV:
        cells: dict[str, object] = {"cores": row.cores, "MHz": row.mhz}
        for name, (products, places) in counts.items():
            seconds = total(Published(8, 8, row.cores, row.mhz), products).seconds
            cells |= {f"{name}, published": getattr(row, name), f"{name}, ours": f"{seconds:.{places}f}"}
        rows.append(cells)
    differ = sum(row[f"{name}, published"] != row[f"{name}, ours"] for row in rows for name in counts)
    yield from (
        "## Training steps on arrays of 8 x 8",
        "",
        "Seconds of a training step by the published performance model {cite:p}`benali2025`, Table "
        "IV, whose heading says ms",
        "by mistake, and by our implementation of it (`halfulp match NETWORK --model published`), "
        "from products that are",
        "traced in torch. Batches are of 64 and of 128 examples.",
        "",
        *_table(rows),
        "",
        f"{differ} of {len(rows) * len(counts)} figures differ, by one in the last place: the "
        "printed clocks are rounded.",
    )


def _networks() -> Iterator[str]:
    """Accuracy of trained networks, which is published only."""
    rows: list[dict[str, object]] = [
        {
            "multiplier": row.multiplier,
            "accumulator": row.accumulator,
            "text": f"`{row.mac}`",
            **{name: f"{getattr(row, name):.2f}" for name in ("lenet5", "resnet20", "vgg16", "resnet50")},
        }
        for row in accuracy.PUBLISHED
    ]
    yield from (
        "## Accuracy of trained networks",
        "",
        "Published test accuracy in % {cite:p}`benali2025`, Table II. The repository has no records of these "
        "trainings. `halfulp train`",
        "makes one of `lenet5` in less than a minute with the text of a row; `resnet20` needs the images of CIFAR-10, "
        "and the other two",
        "networks are no part of the program.",
        "`halfulp report accuracy` prints finished trainings beside these figures.",
        "",
        *_table(rows),
        "",
        "The counterpart of the published speed of emulation on processors and GPUs {cite:p}`arbitor2023` is `make "
        "bench`, which prints the",
        "time of training steps in emulated arithmetic relative to FP32 on the machine that runs it.",
    )


def _trainings() -> Iterator[str]:
    """Accuracy of small networks beside that of published emulators, from the records of `halfulp report`."""
    yield from (
        "## Training in emulated arithmetic",
        "",
        "The publications train networks on ImageNet, CIFAR and texts {cite:p}`arbitor2023,chang2023,osorio2022`. No "
        "package has these",
        "data, so ours are small networks on digits; differences between rows can be compared, and accuracies cannot. "
        "`halfulp report",
        "arbitor`, `esru` and `fase` train them; tables have empty cells where trainings were not finished.",
        "`halfulp report blocks` trains in block formats {cite:p}`ocpmx` and compares with FP32.",
    )
    for record in sorted(RECORDS.glob("*.json")):
        for table in _REPORTS[record.stem](Figures.load(record)).tables.values():
            yield from ("", *table.markdown().replace("## ", "### ", 1).splitlines())


_REPORTS = {"arbitor": arbitor.report, "blocks": blocks.report, "esru": esru.report, "fase": fase.report}
"""Functions from the records of trainings to reports."""
