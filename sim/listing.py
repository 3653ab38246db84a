"""Lists of formats and units, as lines."""

import textwrap
from collections.abc import Sequence

from halfulp.hdl.formats import BLOCKS, FAMILIES, NAMED, decimal_text, parse
from halfulp.hdl.formats.codebook import data_files


def columns(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """Return rows of texts as lines, in columns as wide as their widest text; those in ``right`` end in line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        texts = (f"{text:>{width}}" if place in right else f"{text:{width}}" for place, (text, width) in cells)
        lines.append("  ".join(texts).rstrip())
    return lines


def format_rows() -> list[dict[str, object]]:
    """Return named formats and blocks, and codebooks of data files; those that cannot be read have an error."""
    rows: list[dict[str, object]] = []
    for name in (*NAMED, *dict.fromkeys(f"codebook:{path.stem}" for path in data_files())):
        try:
            fmt = parse(name)
        except ValueError as error:
            rows.append({"name": name, "error": str(error)})
            continue
        ends = {"largest": decimal_text(fmt.largest, 6), "smallest": decimal_text(fmt.smallest, 6)}
        rows.append({"name": name, "description": fmt.describe(), "bits": fmt.width} | ends)
    return rows + [{"name": name, "description": block.describe()} for name, block in BLOCKS.items()]


def formats() -> list[str]:
    """Return the lines of named formats, codebooks of data files, and the syntax of each family."""
    rows = format_rows()
    table: list[tuple[str, ...]] = [("name", "description", "bits", "largest", "smallest above 0")]
    table += [tuple(str(cell) for cell in row.values()) for row in rows if "bits" in row]
    lines = columns(table, right=(2, 3))
    lines += [f"{row['name']}  {row['error']}" for row in rows if "error" in row]
    lines += ["", "Blocks, operands of units of blocks and of matrix products:"]
    lines += columns([(name, block.describe()) for name, block in BLOCKS.items()])
    lines += ["", "Syntax of other formats:"]
    for family in FAMILIES:
        lines += textwrap.wrap(f"  {family.family:13}{family.syntax}", 110, subsequent_indent=" " * 15)
    return lines


def unit_rows() -> list[dict[str, object]]:
    """Return the catalogue of units, then composed units."""
    from halfulp.hdl.specs import COMPOSED
    from halfulp.units.catalogue import CATALOGUE

    specs = [*(row.spec for row in CATALOGUE.values()), *COMPOSED.values()]
    return [{"unit": spec.form.unit, "computes": spec.SUMMARY, "text": spec.form.text} for spec in specs]


def units() -> list[str]:
    """Return the lines of the catalogue of units."""
    rows = unit_rows()
    return columns([tuple(rows[0]), *(tuple(str(cell) for cell in row.values()) for row in rows)])


def grammar() -> list[str]:
    """Return the grammar of unit texts, as a page of Markdown."""
    from halfulp.hdl.specs import COMPOSED, UNITS
    from halfulp.hdl.specs.grammar import page

    return list(page(UNITS | COMPOSED))
