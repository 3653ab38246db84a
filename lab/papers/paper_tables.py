"""Published figures beside those of this library, as pages of the documentation made from the records."""

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd

from halfulp.fpga.kernel.cost_model import MEMORY_LUTS
from halfulp.fpga.match.published import PUBLISHED_LUT, TABLE_III
from halfulp.fpga.package.manifest import RECORDS
from halfulp.implementation import Implementation
from halfulp.tools.tables import Table

from . import accuracy, arbitor, blocks, commands, emulation, esru, fase, mptorch, sru, steps
from .trainings import Figures

SOURCES = {
    "FPnew": "mach2021",
    "FloPoCo": "dinechin2011",
    "FloPoCo, own encoding": "dinechin2011",
    "PACoGen": "jaiswal2019",
    "Posit-HDL-Arithmetic": "jaiswal2018",
}
"""Designs of ``peers.csv``, with their keys in the bibliography."""


def pages() -> dict[str, list[str]]:
    """Lines of the pages, in MyST, by the names of their files: an overview, and one for each paper."""
    parts = {
        "esru": [_sru(), _trainings("esru")],
        "mptorch_fpga": [_arrays(), _steps(), _networks(), _commands(commands.of_mptorch())],
        "arbitor": [_trainings("arbitor"), _emulation(emulation.formats_table)],
        "fase": [_trainings("fase"), _commands(commands.of_fase()), _emulation(emulation.ways_table)],
        "lowgen": [_lowgen()],
    }
    made = {"papers": list(_overview())}
    for name, sections in parts.items():
        lines = [f"# {TITLES[name]}", "", "Published figures beside ours, from the records in `fpga/results`."]
        for section in sections:
            lines += ["", *section]
        made[f"paper_{name}"] = lines
    return made


TITLES = {
    "esru": "ESRU: stochastic rounding with few random bits",
    "mptorch_fpga": "MPTorch-FPGA: training on systolic arrays",
    "arbitor": "Arbitor: training in emulated formats",
    "fase": "FASE: training in BF16",
    "lowgen": "Lowgen: number types from two casts",
}
"""Titles of the pages of papers, by the ends of their names."""


def _overview() -> Iterator[str]:
    """Peers, block formats, and links to the pages of papers."""
    yield from (
        "# Paper tables",
        "",
        "These pages have published figures beside those of this library. Ours come from the records in",
        "`fpga/results`, which `make cost` and `halfulp report` measure, so the pages change with them.",
        "[Cost](../costs.md) describes the commands.",
        "",
        *(f"- [{title}](paper_{name}.md)" for name, title in TITLES.items()),
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *(f"paper_{name}" for name in TITLES),
        "```",
        "",
        *_peers(),
        "",
        *_trainings("blocks"),
    )


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
    peers = [row for row in _record("peers") if row["target"] == "vu9p" and not row["unit"].startswith("fpu")]
    ours = {row["unit"]: row for name in ("small", "others") for row in _record(name)}
    rows: dict[str, dict[str, object]] = {}
    ratios: dict[str, list[float]] = {design: [] for design in SOURCES}
    for row in peers:
        asked = str(Implementation.parse(row["unit"]))
        own, fast = ours[asked], ours.get(f"{asked!r} --goal speed")
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
    "FPnew": "Its rounding mode is an input with five modes; ours is fixed when the unit is "
    "generated. Flags are not connected, and an option that is off here. Its path is shorter in wide products, "
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
    yield from ("", *_shares(record))


def _shares(record: dict[str, dict[str, str]]) -> Iterator[str]:
    """Shares of 4096 units of the device, and of the published accelerator."""
    rows: list[dict[str, object]] = []
    for row in sru.ROWS:
        own = record[row.label]
        luts = {
            "published LUT": row.published_lut,
            "LUT": int(own["LUT"]) * sru.UNITS,
            "LUT, shared source": round(float(own["bank LUT"]) * sru.UNITS),
        }
        cells: dict[str, object] = {"source": row.label}
        for name, lut in luts.items():
            cells[name] = f"{lut:,}"
            cells |= {f"{name}, % of {whole}": f"{100 * lut / count:.2f}" for whole, count in sru.WHOLES.items()}
        rows.append(cells)
    yield from (
        f"{sru.UNITS} units and their shares of the {sru.WHOLES['VU9P']:,} lookup tables of the device, and of the",
        f"{sru.WHOLES['DarkFPGA']:,} of DarkFPGA, the published accelerator that has so many units:",
        "",
        *_table(rows),
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
        f"2 ({TABLE_III[2].lut:.2f} %), so most",
        "lookup tables of small arrays are those of ports and shell. `halfulp report tiles` prints "
        "the ratio with extrapolated",
        "kernels.",
    )


def _steps() -> Iterator[str]:
    """Time of training steps by the published performance model."""
    frame = pd.DataFrame(_record("steps"))
    for table in (steps.table_iv(frame), steps.sizes(frame)):
        yield from ("", *table.markdown().splitlines())


def _networks() -> Iterator[str]:
    """Accuracy of trained networks: published for four, and ours for LeNet5."""
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
        "Published test accuracy in % {cite:p}`benali2025`, Table II:",
        "",
        *_table(rows),
        "",
        "`halfulp report mptorch` trains LeNet5 in its arithmetics on 4,000 of the 5,000 images of MNIST that come",
        "with the package:",
    )
    for table in mptorch.report(_figures("mptorch")).tables.values():
        yield from ("", *_section(table))


def _commands(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Commands that train the published networks on the published data."""
    yield from (
        "## The published networks and data",
        "",
        "No package has the other data. These commands train a cell of the table each, in the published networks, on a",
        "machine with a GPU and the data, in folders that [training](../training.md#training-runs) describes. The",
        "schedules are those of the networks' own publications where this one gives none.",
    )
    for name, pairs in itertools.groupby(found, key=lambda pair: pair[0]):
        yield from ("", f"{name}:", "", "```text", *(command for _, command in pairs), "```")


def _trainings(name: str) -> Iterator[str]:
    """Accuracy of small networks beside published ones, from the record of `halfulp report NAME`."""
    yield from (
        "## Training in emulated arithmetic",
        "",
        f"{_CITED[name]} Ours are small networks on images of digits, because the package has no other data:",
        f"differences between rows can be compared, and accuracies cannot. `halfulp report {name}` trains them;",
        "cells are empty where trainings were not finished.",
    )
    for table in _REPORTS[name](_figures(name)).tables.values():
        yield from ("", *_section(table))


def _emulation(table: Callable[[Figures], Table]) -> Iterator[str]:
    """Time of emulation, which `halfulp report emulation` measures."""
    yield from table(_figures("emulation")).markdown().splitlines()


def _figures(name: str) -> Figures:
    """Record of the trainings of a report."""
    return Figures.load(RECORDS / f"{name}.json")


def _section(table: Table) -> list[str]:
    """Lines of a table below a heading of its page."""
    return table.markdown().replace("## ", "### ", 1).splitlines()


_CITED = {
    "arbitor": "The publication trains networks on CIFAR-10, FordA, Cora and translations {cite:p}`arbitor2023`.",
    "esru": "The publication trains networks on ImageNet, VOC2012 and GLUE {cite:p}`chang2023`.",
    "fase": "The publication trains networks on CIFAR-100, ImageNet and texts {cite:p}`osorio2022`.",
    "blocks": "Block formats {cite:p}`ocpmx` are compared with FP32.",
}
"""Data of the publications."""

LOWGEN = (
    ("ResNet-v1-50", 624.61, 17517.8, 2312.38),
    ("ResNet-v1-101", 1143.13, 37500.1, 4923.54),
    ("ResNet-v2-50", 990.51, 32049.4, 3425.27),
    ("Inception-v4", 1267.38, 44277.0, 5913.06),
    ("YOLO-v3-Tiny", 525.66, 14557.6, 1780.26),
    ("YOLO-v3", 3813.83, 164261.0, 14834.2),
    ("SSD", 301.66, 7671.72, 928.24),
    ("SSD-FPN", 5976.73, 301022.0, 29243.9),
    ("Faster-RCNN", 52013.3, 1244230.0, 134392.0),
    ("DeepLab-v3", 10329.9, 468629.0, 41503.9),
    ("U-Net", 64139.4, 65217.4, 59886.1),
)
"""Published times of a forward pass in ms: float, bfloat16 in scalar code, bfloat16 in generated code."""


def _lowgen() -> Iterator[str]:
    """Number types from two casts."""
    rows: list[dict[str, object]] = [
        {
            "network": name,
            "float": f"{plain:,.0f}",
            "bfloat16, scalar": f"{scalar:,.0f}",
            "bfloat16, generated": f"{generated:,.0f}",
            "generated / float": f"{generated / plain:.1f}",
            "scalar / generated": f"{scalar / generated:.1f}",
        }
        for name, plain, scalar, generated in LOWGEN
    ]
    record = _figures("emulation")
    yield from (
        "Lowgen {cite:p}`lowgen2020` makes the operators of a number type from its two casts, to and from float: 30",
        "lines for a type instead of 600, and vector code that is several times as fast as scalar code.",
        "",
        "## A type from two casts",
        "",
        "`golden.register_format` takes the two functions. [The example](../training.md#arithmetic-of-your-own) is a",
        "complete type for operands, results, casts and whole programs. Products of operands in it run in the kernels",
        "of FP32.",
        "",
        "## Time of a forward pass",
        "",
        "Published times of a sample in ms, with 8 threads {cite:p}`lowgen2020`, Table 1:",
        "",
        *_table(rows),
        "",
        "The published networks and their weights are not part of the project, so ours are the small ones of the other",
        "pages. `halfulp report emulation` measures them.",
        "",
        *_section(emulation.own_table(record)),
        "",
        "## Casts left out, and compiled operators",
        "",
        "The publication removes casts around operators that move data (Table 2), which saves up to one percent of",
        "memory, and compiles only the operators that a model uses (Figure 7). `golden.emulate.backend` leaves out the",
        "rounding of a number that has the format already, so casts around reshapes and concatenations cost nothing.",
        "",
        *_section(emulation.roundings_table(record)),
        "",
        *_section(emulation.memory_table(record)),
    )


_REPORTS: dict[str, Any] = {
    "arbitor": arbitor.report,
    "blocks": blocks.report,
    "esru": esru.report,
    "fase": fase.report,
}
"""Functions from the records of trainings to reports."""
