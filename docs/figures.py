"""Check the figures on the pages against the records, or renew them: ``python docs/figures.py [--renew]``.

A comment names the source of the figures behind it, as a Python expression over the records:

- ``<!--= cost("mul fp16") -->223 LUT and 28 cells`` in a sentence or a cell: the next numbers are those of the
  expression, a number or a tuple.
- Alone on the line above a table: the expression is evaluated for each row, and gives the figures of the cells behind
  the first one. ``c`` has the texts of the cells, ``p`` those of the first one between commas, ``h`` the header. A cell
  without digits has no figures, and neither has None. A row with comments of its own is left to these.
- ``<!--: published -->`` in either place: no record has the table, or the numbers up to the next comment or the end of
  the paragraph, for the reason that it gives.

Each number keeps its number of decimals. A number beside a unit of area, clock, time or energy, and a table of
numbers, need a comment.
"""

import builtins
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import pandas as pd

from halfulp.boards.targets import TARGETS
from halfulp.fpga.kernel.arrays import cores_cost_model
from halfulp.fpga.match.published import PUBLISHED_LUT, TABLE_III
from halfulp.hdl.specs import MacSpec, MmaSpec
from halfulp.implementation import Implementation, implementation
from halfulp.lab.bench.records import MATRIX_STEPS, ROUTED_STEPS
from halfulp.lab.papers import blocks
from halfulp.lab.papers.trainings import Case, Figures
from halfulp.options import unit_options
from halfulp.sim import signoff

ROOT = Path(__file__).resolve().parent.parent

RESULTS = ROOT / "fpga" / "results"

PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))

NUMBER = r"(?<![\w.^*-])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[+-]?\d+)?(?![\w^*])"

UNIT = r"(?:LUTs?|LUT4|FF|MHz|cells|ps|ns|pJ|fJ|GE|lookup tables|times|%|points|ms|seconds?|minutes?|hours?)"
"""Units of figures that need a comment, in words that no other unit begins with."""

BUILTINS = ("abs", "enumerate", "float", "int", "len", "max", "min", "next", "sum")
"""Functions in expressions."""

COMMENT = r"<!--([=:])\s*(.*?)\s*-->"

TILE = "e5m2*e5m2+e6m5.sr10@lfsr16"
"""Multiply-accumulate of the arrays that are compared with published ones."""


class Records(dict[str, Any]):
    """Names in expressions: each CSV file of a folder as a DataFrame, such as ``block_dots``, and functions of them."""

    def __init__(self, folder: Path = RESULTS) -> None:
        self.folder = folder
        files = [*sorted(folder.glob("*.csv")), *sorted(signoff.RESULTS.glob("signoff.csv"))]
        super().__init__({path.stem.replace("-", "_"): pd.read_csv(path) for path in files})
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        for name, frame in list(self.items()):
            if {"unit", "target", "LUT", "path"} <= set(frame) and name != "peers":
                for row in frame.to_dict("records"):
                    self._add(name, {column: value for column, value in row.items() if not pd.isna(value)})
        functions = (
            self.text,
            self.row,
            self.cost,
            self.mhz,
            self.step,
            self.one,
            self.peer,
            self.dsp,
            self.gain,
            self.more,
            self.spread,
            self.tile,
            self.estimate,
            self.decoder,
        )
        self |= {function.__name__: function for function in functions}

    def _add(self, name: str, row: dict[str, Any]) -> None:
        """Join the rows of one unit on one device in several files; ValueError if they differ."""
        kept = self.rows.setdefault((row["unit"], row["target"]), {})
        for column, value in row.items():
            if kept.setdefault(column, value) != value:
                raise ValueError(f"{name}.csv has another {column} of {row['unit']} than the files before it")

    def row(self, unit: str, target: str = "vu9p") -> dict[str, Any]:
        """Return the record of a unit, written as on the command line, or of an array by its name."""
        key = self.text(unit) if " " in unit or MmaSpec.is_mma_text(unit) else unit
        if (key, target) not in self.rows:
            raise ValueError(f"no record has {key} on {target}; add it to lab/bench/records.py, and run `make cost`")
        return self.rows[key, target]

    def text(self, unit: str) -> str:
        """Return the name of a unit in the records."""
        return str(_asked.main(_words(unit), standalone_mode=False))

    def cost(self, unit: str, target: str = "vu9p") -> tuple[float, float]:
        """Return LUT and cells on the longest path."""
        row = self.row(unit, target)
        return row["LUT"], row["path"]

    def mhz(self, unit: str) -> float:
        """Return the clock on ECP5."""
        return float(self.row(unit, "ecp5-85k")["MHz"])

    def step(self, name: str) -> list[Any]:
        """Return cost and clock of a step of a matrix unit and of each dot product beside it; None for no clock."""
        return [
            figure
            for unit in MATRIX_STEPS[name]
            for figure in (self.cost(str(unit)), self.mhz(str(unit)) if unit in ROUTED_STEPS else None)
        ]

    def one(self, name: str, **columns: Any) -> dict[str, Any]:
        """Return the only row of a file that has these values; a column of several words is written with ``_``."""
        frame = self[name]
        for column, value in columns.items():
            cells = frame[column.replace("_", " ")]
            frame = frame[cells.isna() if value is None else cells == value]
        if len(frame) != 1:
            raise ValueError(f"{name}.csv has {len(frame)} rows with {columns}; expected one")
        return dict(frame.iloc[0])

    def peer(self, unit: str, design: str, stages: int | None = None) -> Any:
        """Return LUT and path of a peer, if they were measured, or its clock on ECP5 for a number of stages."""
        if stages is None:
            peers = self["peers"]
            rows = peers[(peers["unit"] == unit) & (peers["design"] == design) & (peers["target"] == "vu9p")]
            return tuple(int(number) for column in ("LUT", "path") for number in rows[column])
        return self.one("peers", unit=unit, design=design, target="ecp5-85k", stages=stages)["MHz"]

    def gain(self, network: str, arithmetic: str) -> float:
        """Return the accuracy of a training in blocks minus that in FP32, in points."""
        gain = Figures.load(self.folder / "blocks.json").gain(blocks.case(network, arithmetic), Case(network))
        if gain is None:
            raise ValueError(f"blocks.json has no training of {network} in {arithmetic}")
        return gain

    def more(self, network: str, arithmetic: str) -> float:
        """Return the loss of a model of transformers in an arithmetic minus that in FP32."""
        own, plain = (self.one("models", network=network, arithmetic=name)["loss"] for name in (arithmetic, "fp32"))
        return float(own - plain)

    def dsp(self, column: str) -> dict[tuple[str, int], float]:
        """Return the figures of dot products of blocks on ECP5 with DSP blocks, relative to those without them."""
        ratios = {}
        for (unit, target), row in self.rows.items():
            dot = re.fullmatch(r"'(blockdot(\d+) (\w+)\*.*)' --dsp", unit)
            if dot and target == "ecp5-85k":
                ratios[dot[3], int(dot[2])] = row[column] / self.rows[dot[1], target][column]
        return ratios

    def spread(self, network: str, arithmetic: str) -> float:
        """Return the largest difference between the accuracies of seeds, in points."""
        accuracies = Figures.load(self.folder / "blocks.json").values[blocks.case(network, arithmetic)]
        return max(accuracies) - min(accuracies)

    def tile(self, size: str, kind: str) -> float:
        """Return LUT for each multiply-accumulate of an array, its kernel, or the published one of a size ``n x m``."""
        n, m = map(int, size.split(" x "))
        if kind == "published":
            (array,) = (row for row in TABLE_III if (row.n, row.m) == (n, m))
            return float(array.lut / 100 * PUBLISHED_LUT / (n * m * array.cores))
        name = f"{kind}_{n}x{m}_e5m2_e5m2_e6m5_sr10_lfsr16_d32"
        if (name, "vu9p") not in self.rows:
            return float(Fraction(self.estimate(n, m), n * m))
        array = self.rows[name, "vu9p"]
        return float((array["LUT"] + 8 * array["memory"]) / (n * m))

    def decoder(self, policy: str, *columns: str) -> list[float]:
        """Return figures of the decoder under a policy, by the fields of its row and of its cost, and ``fp32``."""
        record = json.loads((self.folder / "decoder.json").read_text())
        rows = {row["policy"]: row | row["cost"] | {"fp32": record["fp32"]} for row in record["rows"]}
        if policy not in rows:
            raise ValueError(f"decoder.json has no policy {policy}; run `python -m examples.decoder.report`")
        return [rows[policy][column] for column in columns]

    def estimate(self, n: int, m: int) -> int:
        """Return LUT of a kernel by the cost model, whose small kernels are recorded."""
        return int(cores_cost_model(MacSpec.parse(TILE), TARGETS["u55c"]).cells(n, m).lut)


@click.command()
@unit_options
def _asked(unit: str, fmt: str | None, **options: Any) -> Implementation:
    return implementation(unit, fmt, **options)


def _words(unit: str) -> list[str]:
    """Split a unit with options into arguments; its text needs no quotes."""
    text, dashes, options = unit.partition(" --")
    return [*(text.split() if re.fullmatch(r"\w+ [\w.]+", text) else [text]), *shlex.split(dashes + options)]


def renewed(page: str, records: Records, report: Callable[[int, str], None]) -> str:
    """Return a page with the figures of the records, and report lines whose figures differ or have no source."""
    lines = page.split("\n")
    open_fence, table, header, prose = "", "", "", []
    for number, line in enumerate([*lines, ""]):
        before = lines[number - 1] if number else ""
        fence = re.match(r"(`{3,}|:{3,})(\S*)", line)
        if fence and (not open_fence or fence[0] == open_fence):
            open_fence = "" if open_fence else fence[1]
            table = (_comment(before) or table) if open_fence and fence[2] in ("", "shell-session") else ""
        elif line.startswith("|"):
            if not open_fence and not before.startswith("|"):
                table = _comment(before)
            header = header if before.startswith("|") else line
            if not open_fence or table:
                lines[number] = _row(line, header, table, records, lambda text, at=number: report(at + 1, text))
        if not open_fence and not fence and _is_prose(line):
            prose.append(number)
        elif prose:
            start = prose[0]
            text = "\n".join(lines[start : prose[-1] + 1])
            lines[start : prose[-1] + 1] = _sentences(
                text, records, lambda at, text, start=start: report(start + 1 + at, text)
            ).split("\n")
            prose = []
    return "\n".join(lines)


def _is_prose(line: str) -> bool:
    return bool(line) and not line.startswith("|") and not _comment(line)


def _comment(line: str) -> str:
    """Return a line that is a comment with the source of figures; an empty text for other lines."""
    return line if re.fullmatch(COMMENT, line) else ""


def evaluated(expression: str, records: Records, **names: Any) -> Any:
    """Evaluate an expression; ValueError if it fails."""
    functions = {name: getattr(builtins, name) for name in BUILTINS}
    try:
        # Comprehensions see global names only.
        return eval(f"({expression})", {"__builtins__": functions, **records, **names})
    except (LookupError, NameError, TypeError, SyntaxError, AttributeError) as error:
        raise ValueError(f"{expression} cannot be evaluated: {error}") from error


def _flat(values: Any) -> list[float]:
    return [number for value in values for number in _flat(value)] if isinstance(values, (tuple, list)) else [values]


def _written(value: float, like: str) -> str:
    """Write a number with the decimals of another one, and commas between thousands."""
    digits, e, _ = like.partition("e")
    decimals = len(digits.partition(".")[2])
    text = f"{value:.{decimals}e}" if e else f"{value:,.{decimals}f}"
    return text if text.strip("-0.,") or e else text.lstrip("-")


def _replaced(text: str, values: list[float], report: Callable[[str], None]) -> str:
    """Replace the first numbers of a text, beside code, by values."""
    rest = iter(values)
    left = len(values)

    def number(match: re.Match[str]) -> str:
        nonlocal left
        if match[0].startswith(("`", "<")) or not left:
            return match[0]
        left -= 1
        now = _written(next(rest), match[0])
        if now != match[0]:
            report(f"{match[0]} on the page, {now} in the record")
        return now

    changed = re.sub(rf"`[^`]*`|<!--.*?-->|{NUMBER}", number, text, flags=re.DOTALL)
    if left:
        report(f"the record has {len(values)} figures, and the page {len(values) - left}")
    return changed


def _row(line: str, header: str, comment: str, records: Records, report: Callable[[str], None]) -> str:
    """Return a row of a table with the figures of the records."""
    if re.search(COMMENT, line):
        return _sentences(line, records, lambda _, text: report(text))
    cells, texts = _cells(line), _texts(line)
    figures = [bool(re.fullmatch(rf"[ ~*]*{NUMBER}(?:[ ,(*]+{NUMBER}[)*]*)* *", cell)) for cell in cells]
    # Words may stand before a figure, if the table has a source.
    marked = bool(comment) and line != header and any(any(_numbers(cell)) for cell in cells[1:])
    if not any(figures[1:]) and not marked:
        return line
    match = re.fullmatch(COMMENT, comment)
    if not match:
        report(f"the table with {texts[0]!r} names no source of its figures")
        return line
    if match[1] == ":":
        return line
    try:
        values = evaluated(match[2], records, c=texts, p=texts[0].split(", "), h=_texts(header))
    except ValueError as error:
        report(str(error))
        return line
    for place, (cell, value) in enumerate(zip(cells[1:], values, strict=False), 1):
        if value is not None and any(_numbers(cell)):
            wanted = _flat(value)
            if len(wanted) < len(list(_numbers(cell))):
                report(f"{cell.strip()} on the page; the record has {len(wanted)} figures")
            now = _replaced(cell, wanted, report)
            cells[place] = now.strip().rjust(len(cell) - 1) + " " if len(cell) > len(cell.strip()) + 2 else now
    return f"|{'|'.join(cells)}|"


def _cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


def _texts(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in _cells(line)]


def _sentences(text: str, records: Records, report: Callable[[int, str], None]) -> str:
    """Return a paragraph with the figures of the records."""
    parts = re.split(rf"({COMMENT})", text, flags=re.DOTALL)
    changed = parts[0]
    _unmarked(parts[0], 0, report)
    for comment, kind, source, rest in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True):
        at = changed.count("\n")
        if not changed.split("\n")[-1].strip():
            report(at, "a comment at the start of a line makes this line HTML; move it behind a word")
        values: list[float] = []
        if kind == "=":
            try:
                values = _flat(evaluated(source, records))
            except ValueError as error:
                report(at, str(error))
        now = _replaced(rest, values, lambda text, at=at: report(at, text))
        if kind == "=":
            _unmarked(now, at, report, len(values))
        changed += comment + now
    return changed


def _unmarked(text: str, at: int, report: Callable[[int, str], None], marked: int = 0) -> None:
    """Report figures with a unit, beside the first numbers, which are marked."""
    for place, match in enumerate(_numbers(text)):
        unit = re.match(rf"[- \n]{UNIT}(?!\w)|\s?%", text[match.end() :])
        if place >= marked and unit:
            line = at + text[: match.start()].count("\n")
            report(line, f"{match[0]} {unit[0].strip()} names no record; see docs/figures.py")


def _numbers(text: str) -> Iterator[re.Match[str]]:
    """Yield the numbers beside code and comments."""
    matches = re.finditer(rf"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|{NUMBER}", text)
    return (match for match in matches if match[0][0] not in "`$]")


def problems(renew: bool = False, root: Path = ROOT, records: Records | None = None) -> list[str]:
    """Return a line for each figure on the pages that differs from its record or names none; write renewed pages."""
    lines: list[str] = []
    records = Records() if records is None else records
    for name in PAGES:
        page = (root / name).read_text()
        now = renewed(page, records, lambda line, text, name=name: lines.append(f"{name}:{line}: {text}"))
        if renew and now != page:
            (root / name).write_text(now)
    return lines


if __name__ == "__main__":
    lines = problems("--renew" in sys.argv[1:])
    print("\n".join(lines))
    sys.exit(bool(lines))
