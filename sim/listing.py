"""Lists of formats and units, as lines."""

import textwrap

from halfulp.hdl.formats import BLOCKS, FAMILIES, NAMED, decimal_text, parse
from halfulp.hdl.formats.codebook import data_files


def formats() -> list[str]:
    """Return the lines of named formats, codebooks of data files, and the syntax of each family."""
    lines = [f"{'name':13}{'description':40}{'bits':>4}{'largest':>14}  {'smallest above 0'}"]
    for name in (*NAMED, *dict.fromkeys(f"codebook:{path.stem}" for path in data_files())):
        try:
            fmt = parse(name)
        except ValueError as error:
            lines.append(f"{name:12} {error}")
            continue
        ends = f"{decimal_text(fmt.largest, 6):>14}  {decimal_text(fmt.smallest, 6)}"
        lines.append(f"{name:12} {fmt.describe():40}{fmt.width:4}{ends}")
    lines += ["", "Blocks, operands of units of blocks and of matrix products:"]
    lines += [f"{name:12} {block.describe()}" for name, block in BLOCKS.items()]
    lines += ["", "Syntax of other formats:"]
    for family in FAMILIES:
        lines += textwrap.wrap(f"  {family.family:13}{family.syntax}", 110, subsequent_indent=" " * 15)
    return lines


def units() -> list[str]:
    """Return the lines of the catalogue of units."""
    from halfulp.units.catalogue import CATALOGUE

    rows = [("unit", "computes", "text"), *((row.name, row.summary, row.spec.form.text) for row in CATALOGUE.values())]
    names, summaries, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [f"{name:{names}}  {summary:{summaries}}  {text}" for name, summary, text in rows]


def grammar() -> list[str]:
    """Return the grammar of unit texts, as a page of Markdown."""
    from halfulp.hdl.specs import UNITS
    from halfulp.hdl.specs.grammar import page

    return list(page(UNITS))
