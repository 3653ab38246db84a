"""Published figures beside those of this library, as pages of the documentation made from the records."""

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd

from halfulp.boards.targets import TARGETS
from halfulp.fpga.kernel.cost_model import MEMORY_LUTS
from halfulp.fpga.match.published import PUBLISHED_LUT, TABLE_III
from halfulp.fpga.package.manifest import RECORDS
from halfulp.implementation import Implementation
from halfulp.tools.tables import Table

from . import accuracy, arbitor, blocks, commands, emulation, esru, fase, lowgen, mptorch, sru, steps
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
    parts: dict[str, list[Iterable[str]]] = {
        "esru": [_sru(), _trainings("esru")],
        "mptorch_fpga": [_arrays(), _steps(), _networks(), _commands(commands.of_mptorch())],
        "arbitor": [
            _trainings("arbitor"),
            _section(fase.check_table(_figures("fase"))),
            _emulation(emulation.formats_table),
        ],
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
    ratios: dict[str, list[float]] = {row["design"] + _PORT * (_PORT in row["unit"]): [] for row in peers}
    for row in peers:
        asked = str(Implementation.parse(row["unit"]))
        own, fast = ours[asked], ours.get(f"{asked!r} --goal speed")
        cells = rows.setdefault(row["unit"], dict.fromkeys(("unit", "halfulp", "halfulp, speed", *SOURCES), ""))
        cells |= {"unit": f"`{row['unit']}`", "halfulp": f"{own['LUT']} ({own['path']})"}
        cells["halfulp, speed"] = f"{fast['LUT']} ({fast['path']})" if fast else ""
        cells[row["design"]] = f"{row['LUT']} ({row['path']})"
        ratios[row["design"] + _PORT * (_PORT in row["unit"])].append(int(row["LUT"]) / int(own["LUT"]))
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
    times = {name: f"{min(each):.1f} to {max(each):.1f} times" for name, each in ratios.items()}
    for design, source in SOURCES.items():
        cause = _PEER[design].format(times.get(design + _PORT))
        yield f"- {design} {{cite:p}}`{source}` takes {times[design]} our lookup tables{cause}"


_PORT = ".port flags"
"""End of the units whose rounding mode is an input and which have flags, as those of FPnew."""

_PEER = {
    "FPnew": " in rows without `port`, in which its rounding mode is an input with five modes and ours is fixed, and "
    "its flags are not connected (e4m3: not recorded). In rows with `port flags` both have the mode as an input, and "
    "flags; it takes {}. Its path is shorter in multiply-adds of fp16, except with `--goal speed`.",
    "FloPoCo": ". `IEEEAdd` and `IEEEFMA` round to nearest and have no status flags, as ours here.",
    "FloPoCo, own encoding": ". `FPMult` and `FPAdd` have no subnormal numbers, and two more "
    "bits in each number tell "
    "zeros, infinities and NaNs, so they need no decoding: they are smaller, but take and give other codes.",
    "PACoGen": ". The products of posit8e0, the posits whose decoding is the simplest, are nearly equal.",
    "Posit-HDL-Arithmetic": ". Only its multipliers were measured.",
}
"""Causes of the differences."""


def _sru() -> Iterator[str]:
    """Stochastic rounding units."""
    record, cropped = ({row["source"]: row for row in _record(name)} for name in ("sru", "sru-cropped"))
    rows: list[dict[str, object]] = []
    for row in sru.CROPPED:
        own, bank = cropped[row.label], record.get(row.label, {}).get("bank LUT")
        rows.append(
            {
                "source": row.label,
                "published LUT": row.published_lut // sru.UNITS or "",
                "published FF": row.published_ff // sru.UNITS or "",
                "LUT": own["LUT"],
                "FF": own["FF"],
                "LUT, with adder": own["LUT +1"],
                "LUT, long word": record[row.label]["LUT"] if row.label in record else "",
                "LUT, shared source": "" if bank is None else f"{float(bank):.2f}",
                "mean error": f"{float(own['mean error']):+.4f}",
            }
        )
    luts = {row["source"]: row for row in rows}
    # The last row of a source has its longest word.
    labels = {row.source: row.label for row in sru.CROPPED}
    of = {name: luts[labels[source]] for name, source in _COMPARED.items()}

    def times(column: str, long: str, short: str) -> str:
        return f"{float(str(of[long][column])) / float(str(of[short][column])):.2f}"

    yield from (
        "## Stochastic rounding units",
        "",
        "A unit rounds a fixed-point number of 16 bits to 8 {cite:p}`chang2023`, Table IV. Published: 4096 units on a",
        "VU9P after place and route, divided by 4096. Ours: one unit as Yosys maps it, source and carry decision; then",
        "with the adder of the 8 bits; then, as the published LUT grow with the random word, a unit that discards as",
        f"many bits as the word has; then one of {sru.LANES} units that share a source. `halfulp report sru` measures",
        "them; it ties the enable `en` to 1, and `halfulp synth` leaves it a port, which takes one or two LUT more.",
        "Mean error: of the chance of rounding up over all discarded parts, in units of the last place.",
        "",
        *_table(rows),
        "",
        "- Published, a 24-bit LFSR takes "
        f"{times('published LUT', 'long', 'shift')} times the lookup tables of a 3-bit plateau source, and ours",
        f"  {times('LUT, long word', 'long', 'shift')} times with 24 discarded bits. From 16 bits to 8 ours takes "
        f"{of['long']['LUT']}/{of['shift']['LUT']} = {times('LUT', 'long', 'shift')} times, because 8 discarded",
        "  bits use 8 bits of a word, while the published LUT grow with its length.",
        f"- Published, words of levels i/7, by a table, take {times('published LUT', 'table', 'shift')} times the "
        "lookup tables of words of i/8;",
        f"  repeated words have these levels too and take {times('LUT', 'table', 'shift')} times here.",
        "- The published registers are about twice the bits of the source and ours as many, so the published units",
        "  probably have registers for results too. The publication has no row for naive words and short LFSRs.",
    )
    yield from ("", *_shares(record))


_COMPARED = {"long": "lfsr24", "shift": "plateau3", "table": "plateau3-rep"}
"""Sources whose lookup tables are compared."""


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
        f"{sru.UNITS} units that discard as many bits as their words have, and their shares of the "
        f"{sru.WHOLES['VU9P']:,} lookup tables of the device, and of the",
        f"{sru.WHOLES['DarkFPGA']:,} of DarkFPGA, the published accelerator that has so many units:",
        "",
        *_table(rows),
    )


def _arrays() -> Iterator[str]:
    """Systolic arrays."""
    record, device = {row["unit"]: row for row in _record("tiles")}, TARGETS["u55c"]
    rows: list[dict[str, object]] = []
    for row in TABLE_III:
        name = f"chain_{row.n}x{row.m}_e5m2_e5m2_e6m5_sr10_lfsr16_d32"
        array, kernel = (record.get(key) for key in (name, f"kernel_{name}"))
        published = {"MHz": row.mhz, "LUT %": row.lut, "BRAM %": row.bram, "DSP %": row.dsp}
        cells: dict[str, object] = {"N": row.n, "M": row.m, "C": row.cores}
        cells |= {f"{column}, published": f"{figure:.1f}" for column, figure in list(published.items())[:1]}
        cells |= {f"{column}, published": f"{figure:.2f}" for column, figure in list(published.items())[1:]}
        for column, whole in (("LUT", device.lut), ("BRAM", device.bram), ("DSP", device.dsp)):
            used = None if kernel is None else _luts(kernel) if column == "LUT" else int(kernel[column])
            cells[f"{column} %, ours"] = "" if used is None else f"{100 * row.cores * used / whole:.2f}"
        macs = row.n * row.m
        each = row.lut / 100 * PUBLISHED_LUT / (macs * row.cores)
        cells["LUT for a MAC, published"] = f"{each:,.0f}"
        cells |= {
            f"LUT for a MAC, {name}": f"{_luts(own) / macs:,.0f}" if own else ""
            for name, own in (("array", array), ("kernel", kernel))
        }
        rows.append(cells)
    yield from (
        "## Systolic arrays",
        "",
        "C arrays of N elements of M multiply-accumulates `e5m2*e5m2+e6m5.sr10` {cite:p}`benali2025`, Table III.",
        "Published: the whole design on an Alveo U55C, memory ports and shell included, after place and route, by",
        "high-level synthesis. Ours: C kernels with their memory ports, without shell, as Yosys maps them, with an",
        "LFSR of 16 bits; then the lookup tables for each multiply-accumulate, of the array alone and of the kernel.",
        "",
        *_table(rows),
        "",
        f"- The published share of the chip hardly grows from 1 x 1 ({TABLE_III[0].lut:.2f} %) to 2 x 2 "
        f"({TABLE_III[2].lut:.2f} %), so most",
        "  lookup tables of small arrays are those of ports and shell, which ours do not have.",
        "- Ours take no DSP blocks, because they are synthesised without, and nearly no block memory, because their",
        "  buffers are in distributed memory, whose lookup tables are counted.",
        "- Ours have no clock, because Yosys does not place; sizes without a figure are not in the records, and",
        "  `halfulp report tiles` prints their ratio with extrapolated kernels.",
    )


def _luts(row: dict[str, str]) -> int:
    """Lookup tables of a row of a record, with those of distributed memory."""
    return int(row["LUT"]) + MEMORY_LUTS * int(row["memory"])


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
        "No package has the other data, so the other columns and rows have no figures of ours. These commands train a",
        "cell of the table each, or a curve of the figure that they name, in the published networks, on a",
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
        f"{_CITED[name]} Ours are small networks on the data that the notes name, because the package has no other:",
        f"differences between rows can be compared, and accuracies cannot. `halfulp report {name}` trains them.",
    )
    for key, table in _REPORTS[name](_figures(name)).tables.items():
        if key not in _ELSEWHERE:
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


_ELSEWHERE = ("fase-check",)
"""Tables of reports that are on the page of another paper."""

_CITED = {
    "arbitor": "The publication trains networks on CIFAR-10, FordA, Cora and translations {cite:p}`arbitor2023`.",
    "esru": "The publication trains networks on ImageNet, VOC2012 and GLUE {cite:p}`chang2023`.",
    "fase": "The publication trains networks on CIFAR-100, ImageNet and texts {cite:p}`osorio2022`.",
    "blocks": "Block formats {cite:p}`ocpmx` are compared with FP32.",
}
"""Data of the publications."""


def _lowgen() -> Iterator[str]:
    """Number types from two casts."""
    yield from (
        "Lowgen {cite:p}`lowgen2020` makes the operators of a number type from its two casts, to and from float: 30",
        "lines for a type instead of 600, and vector code that is several times as fast as scalar code.",
        "",
        "## A type from two casts",
        "",
        "`golden.register_format` takes the two functions. [The example](../training.md#arithmetic-of-your-own) is a",
        "complete type for operands, results, casts and whole programs. Products of operands in it run in the kernels",
        f"of FP32. The type of the table below has {lowgen.LINES} lines.",
        "",
        "## Networks in a type from two casts",
        "",
        "`halfulp report lowgen` measures forward passes of networks of the published kinds with random parameters.",
        "Published: Tables 1 and 2 and Figure 7.",
    )
    for table in lowgen.report(_figures("lowgen")).tables.values():
        yield from ("", *_section(table))


_REPORTS: dict[str, Any] = {
    "arbitor": arbitor.report,
    "blocks": blocks.report,
    "esru": esru.report,
    "fase": fase.report,
}
"""Functions from the records of trainings to reports."""
