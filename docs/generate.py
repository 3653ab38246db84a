"""Pages that are made from the catalogue and the records: the grammar, paper tables, and a page for each unit."""

import csv
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from textwrap import wrap
from typing import Any

import charts
import command_reference
import figures
import floorplans
import unit_examples
import waveforms
from amaranth.hdl import Shape
from amaranth.lib.wiring import In
from diagrams import DataPath

from halfulp.hdl.formats import Format, parse
from halfulp.hdl.specs import COMPOSED as COMPOSED_SPECS
from halfulp.hdl.specs import UNITS, UnitSpec
from halfulp.hdl.specs.formula import Role
from halfulp.hdl.specs.grammar import page
from halfulp.lab.papers import paper_tables
from halfulp.sim import signoff, signoff_page
from halfulp.tools.paths import write_whole
from halfulp.units.base import Unit
from halfulp.units.catalogue import CATALOGUE, COMPOSED, CatalogueRow, component
from halfulp.units.composed import Composed

RESULTS = Path(__file__).resolve().parent.parent / "fpga" / "results"

BIBLIOGRAPHY = Path(__file__).resolve().parent / "references.bib"

ERRORS = (
    "Line segments in fxp4.12 whose breakpoints give the smallest error, over every code, on vu9p. "
    "[Functions as line segments](../../line_segments.md) has the other kinds of segments."
)

COMPOSED_STEPS = (
    "Each step rounds its operands to its own format, then its result, as the operations of a policy do: "
    "`elementwise`, `functions` and `reductions` are the fields of a policy with these names."
)

COMPOSED_ERRORS = (
    "Total error of all steps against the real function of the same operands, on 256 random vectors of each length "
    "(`halfulp report composed`). ulp: last place of the result format at the real value; of the largest: at the "
    "largest value of the vector. Elements are normally distributed, with standard deviation 3 for softmax, else 1."
)

COSTS = (
    "All [records](../../costs.md#programs-and-machines) of the unit, synthesised by Yosys for UltraScale+ (vu9p), 7 "
    "series (artix100t) and ECP5 (ecp5-85k). Cells are those on the longest path; MHz are those after place and route. "
    "Columns of other projects have their LUT and, in parentheses, cells."
)

MEASURE = '`halfulp synth "{}"` measures another spec string, and `--target ecp5-85k --route` the clock.'

COMPOSED_COSTS = (
    "On vu9p before place and route, with as few register stages as a clock needs by the delay model. Sums in binary32 "
    "take one element in each cycle, and limit the clock."
)

COST_COLUMNS = {
    "LUT (vu9p)": ("vu9p", "LUT"),
    "FF": ("vu9p", "FF"),
    "DSP": ("vu9p", "DSP"),
    "BRAM": ("vu9p", "BRAM"),
    "cells": ("vu9p", "path"),
    "LUT (artix100t)": ("artix100t", "LUT"),
    "LUT (ecp5-85k)": ("ecp5-85k", "LUT"),
    "MHz": ("ecp5-85k", "MHz"),
}
"""Device and column of the records, by the title in the table of a unit; columns without figures are left out."""

UNIT_GROUPS = {
    "Products and sums": ("mul", "add", "fma", "lerp"),
    "Accumulation": ("mac", "accumulate", "partmac", "quire"),
    "Dot products": ("dot", "dotmac", "sparsedot", "sparsemac", "mma"),
    "Division and roots": ("div", "reciprocal", "sqrt", "rsqrt", "remainder"),
    "Functions": ("function", "pwl", "softmax", "rmsnorm", "layernorm"),
    "Conversion and rounding": ("convert", "rint", "requantize", "sru", "split", "join"),
    "Blocks": ("blockquantize", "blockdequantize", "blockdot", "blockmac"),
    "Comparison and exponents": ("compare", "classify", "logb", "scaleb"),
    "Processors": ("fpu",),
}
"""Units by group, in the order of the page of units and of the sidebar."""

EXAMPLES = {
    "sru": "sru fxp4.4>int4",
    "requantize": "requantize int32*fxp1.31,uint5>int8",
    "mma": "v100.mma.fp16",
    "pwl": "pwl tanh(fxp4.4) pieces=4",
    "blockquantize": "blockquantize bf16>block(e2m1fn,4,e8m0fnu,floor)",
    "blockdequantize": "blockdequantize block(e2m1fn,4,e8m0fnu,floor)>bf16",
    "blockdot": "blockdot4 mxfp4*mxfp4+fp32",
    "blockmac": "blockmac mxfp4*mxfp4+fp32 step=4",
}
"""Spec strings of units that do not take e5m2 alone."""

OTHERS = {"convert": "convert bf16>e4m3fn.rn"}
"""Spec strings of units whose short form shows little in another format."""

CLOCK = "| `clk`, `rst` | input | 1 bit | Clock; synchronous reset, active high. |"

ROLES = {
    Role.OPERAND: "Operand.",
    Role.SCALE: "Scale of a block.",
    Role.INDEX: "Number of the selected operand.",
    Role.START: "Start value.",
    Role.RANDOM: "Random word, sampled with the operands.",
}
"""Meanings of ports that no docstring describes."""


def write(folder: Path, quick: bool = False) -> None:
    """Write all pages; quick ones do not compare the behaviour of units whose sources changed since their checks."""
    (folder / "units").mkdir(parents=True, exist_ok=True)
    state = signoff.states(signoff.read("signoff"), compare=not quick)
    write_whole(folder / "grammar.md", "\n".join(page(UNITS | COMPOSED_SPECS)) + "\n")
    for name, lines in paper_tables.pages().items():
        write_whole(folder / f"{name}.md", "\n".join(lines) + "\n")
    write_whole(folder / "signoff.md", "\n".join(signoff_page.page(state)) + "\n")
    write_whole(folder / "commands.md", "\n".join(command_reference.page()) + "\n")
    write_whole(folder / "waveforms.md", "\n".join(waveforms.page()) + "\n")
    write_whole(folder / "floorplan.txt", floorplans.page())
    table, groups = unit_groups()
    write_whole(folder / "units_table.txt", "\n".join(table) + "\n")
    (folder / "unit_groups").mkdir(exist_ok=True)
    for name, lines in groups.items():
        write_whole(folder / "unit_groups" / f"{name}.md", "\n".join(lines) + "\n")
    for name, lines in charts.pages(_all_records()).items():
        write_whole(folder / f"{name}.txt", "\n".join(lines) + "\n")
    for row in CATALOGUE.values():
        write_whole(folder / "units" / f"{row.name}.md", "\n".join(_unit(row, state)) + "\n")
    for spec, unit in COMPOSED.items():
        write_whole(folder / "units" / f"{spec.form.unit}.md", "\n".join(_composed(unit)) + "\n")


def units_table(units: Iterable[str], folder: str) -> list[str]:
    """Table of some units: result, spec string and ports, with links to their pages in a folder."""
    lines = ["| unit | result | spec string | ports |", "|---|---|---|---|"]
    composed = {spec.form.unit: (spec, cls) for spec, cls in COMPOSED.items()}
    for name in units:
        spec, cls = composed.get(name) or (CATALOGUE[name].spec, CATALOGUE[name].unit)
        summary, ports = cleandoc(cls.__doc__ or "").splitlines()[0].rstrip("."), "streams `i` → `o`"
        if name in CATALOGUE:
            unit = _example(CATALOGUE[name])
            ports = " → ".join(", ".join(f"`{name}`" for name in side) for side in (unit.inputs, unit.outputs))
        lines.append(f"| [{cls.__name__}]({folder}{name}.md) | {summary} | `{spec.form.text}` | {ports} |")
    return lines


def unit_groups() -> tuple[list[str], dict[str, list[str]]]:
    """Return the lines of the page of units, tables by group, and the page of each group by the name of its file."""
    lines, pages = [], {}
    for title, units in UNIT_GROUPS.items():
        file = title.lower().replace(" ", "_")
        lines += [f"**{title}**", "", *units_table(units, "generated/units/"), ""]
        entries = [f"../units/{name}" for name in units]
        pages[file] = [f"# {title}", "", *units_table(units, "../units/"), "", *_toctree(entries)]
    return [*lines, *_toctree(f"generated/unit_groups/{file}" for file in pages)], pages


def _toctree(entries: Iterable[str]) -> list[str]:
    return ["```{toctree}", ":hidden:", "", *entries, "```"]


def _composed(cls: type[Composed]) -> Iterator[str]:
    """Page of a composed unit, which has no data path of its own and no sign-off."""
    unit, document = cls(cls.SPEC.filled(a=parse("bf16"))), cleandoc(cls.__doc__ or "")
    name = cls.SPEC.form.unit
    yield from (f"# {cls.__name__}", "", document.splitlines()[0], "", section(document, "Formula"), "")
    yield from (f"The spec string is `{cls.SPEC.form.text}`. {COMPOSED_STEPS}", "", section(document, "Notes"), "")
    yield from (f"Steps of `{unit.spec}`:", "")
    yield from (f"- `{step.formula}`: `{step.spec}`" for step in unit.spec.steps)
    yield from ("", *unit_examples.section(unit.spec), "")
    yield from ("## Ports and latency", "", f"Ports of `{unit.spec}`:", "")
    yield from ("| port | direction | format | meaning |", "|---|---|---|---|", CLOCK, *_stream_ports(unit))
    yield from ("", f"Latency: {section(document, 'Latency')}", "", "In Verilog:", "", "```verilog", *_instance(unit))
    yield from ("```", "")
    yield f"`{unit.spec}` takes {unit.cycles(64)} cycles for 64 elements, in {unit.passes} passes."
    columns = ("unit", "length", "max ulp", "mean ulp", "max ulp of the largest")
    rows = [row for row in _records("composed") if row["unit"].split()[0] == name]
    yield from ("", "## Area and clock", "", f"{COMPOSED_COSTS} {MEASURE.format(unit.spec)}", "", *_costs(cls.SPEC))
    yield from ("", "## Error", "", COMPOSED_ERRORS, "", *_table(rows, dict(zip(columns, columns, strict=True))))
    yield from ("", "## Class", "", "```{eval-rst}", f".. autoclass:: halfulp.units.{cls.__name__}", "```")
    yield from ("", "## Golden model", "", "```{eval-rst}", f".. autofunction:: halfulp.golden.{name}", "```")
    source = section(document, "Source")
    yield from ("", "## References", "", f"{source} {{cite:p}}`{','.join(references(source))}`")


def _example(row: CatalogueRow) -> Unit:
    return component(EXAMPLES.get(row.name) or row.spec.filled(a=parse("e5m2")))


def _unit(row: CatalogueRow, state: Mapping[signoff.Key, str] | None = None) -> Iterator[str]:
    unit = _example(row)
    document = cleandoc(row.unit.__doc__ or "")
    yield from (f"# {row.unit.__name__}", "", document.splitlines()[0], "")
    yield from (section(document, "Formula"), "")
    yield from (
        f"The spec string is `{row.spec.form.text}`. "
        "`round` is [rounding](../../rounding.md) to the format of the result.",
        "",
    )
    yield from (*unit_examples.section(unit.spec), "")
    yield from ("## Data path", "", f"`{unit.spec}`, without register stages and their controls:", "")
    yield from (DataPath(unit).svg(f"Data path of {unit.spec}"), "")
    yield from ("## Ports and latency", "", f"Ports of `{unit.spec}`:", "")
    yield from ("| port | direction | format | meaning |", "|---|---|---|---|")
    yield from _ports(unit)
    yield from ("", f"Latency: {section(document, 'Latency')}", "", "In Verilog:", "", "```verilog")
    yield from (*_instance(unit), "```")
    for title, text, table in (
        ("Area and clock", f"{COSTS}\n\n{MEASURE.format(other_text(row.spec))}", _costs(row.spec)),
        ("Error", ERRORS, _errors(row.name)),
    ):
        if table:
            yield from ("", f"## {title}", "", text, "", *table)
    yield from (
        "",
        "## Verification",
        "",
        "Rows of the [sign-off table](../signoff.md):",
        "",
        *signoff_page.table([row.name], state=state),
    )
    yield from ("", "## Class", "", "```{eval-rst}")
    yield from (f".. autoclass:: halfulp.units.{row.unit.__name__}", "```", "", "## Golden model", "", "```{eval-rst}")
    yield from (f".. autofunction:: halfulp.golden.{row.name}", "```")
    source = section(document, "Source")
    if source:
        yield from ("", "## References", "", f"{source} {{cite:p}}`{','.join(references(source))}`")


def section(document: str, title: str) -> str:
    """Text of a section of a docstring, as Markdown."""
    text = re.search(rf"^{title}\n-+\n(.*?)(?=\n\n|\Z)", document, re.DOTALL | re.MULTILINE)
    return text[1].replace("``", "`") if text else ""


def references(source: str) -> list[str]:
    """Keys of the bibliography whose first author and year are in a text."""
    entries = re.findall(
        r"@\w+\{(\w+),\n  author = \{\{?([^,}]+).*?  year = \{(\d+)\}", BIBLIOGRAPHY.read_text(), re.DOTALL
    )
    return [key for key, author, year in entries if author in source and year in source]


def _ports(unit: Unit) -> Iterator[str]:
    if "en" in unit.signature.members:
        yield CLOCK
    described, rows = meanings(unit), dict[str, list[str]]()
    roles = {port.name: ROLES.get(port.role, "") for port in unit.spec.ports if port.role}
    for name, member in unit.signature.members.items():
        shape, is_input = member.shape, member.flow is In
        what = f"`{shape}`" if isinstance(shape, Format) else f"{Shape.cast(shape).width} bit"
        meaning = described.get(name) or described.get(re.sub(r"\d+$", "", name)) or roles.get(name) or "Result."
        rows.setdefault(f"{'input' if is_input else 'output'} | {what} | {meaning}", []).append(name)
    for row, names in rows.items():
        vector = len(names) > 2 and len({re.sub(r"\d+$", "", name) for name in names}) == 1
        yield f"| {f'`{names[0]}` … `{names[-1]}`' if vector else ', '.join(f'`{name}`' for name in names)} | {row} |"


def _stream_ports(unit: Composed) -> Iterator[str]:
    """Rows of the ports of a composed unit, with the bits of the fields of its streams."""
    for (name, part), member, _ in unit.signature.flatten(unit):
        shape, thing = member.shape, {"i": "an element", "o": "a result"}[name]
        words = {"valid": f"1 if `{name}__payload` holds {thing}.", "ready": f"1 if {thing} is taken."}
        if part == "payload":
            fields = (
                f"`{key}`{f' (`{field.shape}`)' if isinstance(field.shape, Format) else ''} from bit {field.offset}"
                for key, field in shape
            )
            words[part] = f"{thing.split()[1].capitalize()}: {', '.join(fields)}."
        flow = "input" if member.flow is In else "output"
        yield f"| `{name}__{part}` | {flow} | {Shape.cast(shape).width} bit | {words[part]} |"


def meanings(unit: Unit) -> dict[str, str]:
    """Descriptions of ports in the docstrings of a unit and of its base classes, by name or name of the vector."""
    found: dict[str, str] = {}
    for base in type(unit).__mro__:
        members = re.search(r"^Members\n-+\n(.*?)(?=\n\n|\Z)", cleandoc(base.__doc__ or ""), re.DOTALL | re.MULTILINE)
        for names, text in re.findall(r"^(\w[^:\n]*) :.*((?:\n    .*)*)", members[1] if members else "", re.MULTILINE):
            for name in re.split(r",\s*", names) if text else []:
                found.setdefault(name, " ".join(text.split()).replace("``", "`"))
    return {re.sub(r"\d+$", "", name): text for name, text in found.items()} | found


def _instance(unit: Unit | Composed) -> list[str]:
    """Instance of the module in Verilog, with wires of the names of its ports."""
    clocked = isinstance(unit, Composed) or "en" in unit.signature.members
    ports = ["clk", "rst"] * clocked + ["__".join(map(str, path)) for path, _, _ in unit.signature.flatten(unit)]
    wires = ", ".join(f".{name}({name})" for name in ports)
    return [f"{unit.name} unit (", *wrap(wires, 100, initial_indent="  ", subsequent_indent="  "), ");"]


def _costs(cls: type[UnitSpec]) -> list[str]:
    """Table of all records of a unit, with a row for each spec string and build, and those of other projects beside."""
    units: dict[str, dict[str, Any]] = {}
    for (text, target), record in _all_records().rows.items():
        if re.match(rf"'?{cls.form.unit}\d* ", text):
            units.setdefault(text, {}).update({f"{target} {name}": value for name, value in record.items()})
    peers = [row for row in _records("peers") if row["target"] == "vu9p" and row["unit"].split()[0] == cls.form.unit]
    for peer in peers:
        if (text := _all_records().text(peer["unit"])) in units:
            units[text][peer["design"]] = f"{peer['LUT']} ({peer['path']})"
    titles = {title: f"{target} {name}" for title, (target, name) in COST_COLUMNS.items()}
    titles |= {f"{peer['design']} (vu9p)": peer["design"] for peer in peers}
    rows = [
        {"unit": text} | {title: _figure(record.get(key)) for title, key in titles.items()}
        for text, record in sorted(units.items(), key=lambda item: (" --" in item[0], item[0]))
    ]
    used = ["unit", *(title for title in titles if any(row[title] not in ("", "0") for row in rows))]
    return _table(rows, dict(zip(used, used, strict=True)))


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) and value % 1 else "" if value is None else str(value)


def other_text(cls: type[UnitSpec]) -> str:
    """Spec string of a unit in another format than that of the catalogue."""
    fmt = next((fmt for fmt in ("e4m3fn", "int8") if cls.takes(parse(fmt), None)), None)
    return OTHERS.get(cls.form.unit) or (EXAMPLES[cls.form.unit] if fmt is None else str(cls.filled(a=parse(fmt))))


@functools.cache
def _all_records() -> figures.Records:
    return figures.Records(RESULTS)


def _errors(name: str) -> list[str]:
    """Table of the errors of a unit; only functions have errors beyond rounding."""
    if not (RESULTS / f"{name}.csv").exists():
        return []
    columns = ("function", "pieces", "max ulp", "mean ulp", "LUT", "path")
    return _table([row for row in _records(name) if "max ulp" in row], dict(zip(columns, columns, strict=True)))


def _records(name: str) -> list[dict[str, str]]:
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _table(rows: list[dict[str, str]], columns: dict[str, str]) -> list[str]:
    """Markdown table of some columns, under other titles; empty without rows."""
    if not rows:
        return []
    lines = [
        [f"`{row[first]}`", *(_cell(row[column]) for column in others)] for row in rows for first, *others in [columns]
    ]
    rules = ["---:" if all(re.fullmatch(r"[\d.]*", line[i]) for line in lines) else "---" for i in range(len(columns))]
    return [f"| {' | '.join(line)} |" for line in (columns.values(), rules, *lines)]


def _cell(text: str) -> str:
    """Text of a cell; numbers with a fraction have four digits."""
    return f"{float(text):.4g}" if re.fullmatch(r"\d+\.\d+", text) else text
