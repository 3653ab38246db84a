"""Pictures of the README, made from records and from the output of commands: ``python docs/pictures.py``.

Each has the colours of light or dark pages.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import RESULTS, Records

from halfulp.lab.papers import mptorch
from halfulp.lab.papers.accuracy import PUBLISHED
from halfulp.lab.papers.trainings import Figures
from halfulp.tools.paths import write_whole

HERE = Path(__file__).resolve().parent

WIDTH, ROW, BAR, LETTER = 640, 24, 16, 7.3
"""Width of a picture of bars, height of its rows and bars, and width of a letter, in pixels."""

SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" \
font-family="monospace" font-size="12">
  <title>{title}</title>
  <style>
    .ground {{ fill: #ffffff }} text {{ fill: #222222 }} .title {{ font-family: sans-serif; font-size: 15px }}
    .first {{ fill: #0072b2 }} .other {{ fill: #b5b5b5 }} .good {{ fill: #00714f }} .bad {{ fill: #b34700 }}
    @media (prefers-color-scheme: dark) {{
      .ground {{ fill: #131416 }} text {{ fill: #e6e6e6 }}
      .first {{ fill: #56b4e9 }} .other {{ fill: #5c5c5c }} .good {{ fill: #2bc59a }} .bad {{ fill: #e69f00 }}
    }}
  </style>
  <rect class="ground" width="{width}" height="{height}"/>
{parts}
</svg>
"""


def bars(title: str, keys: Mapping[str, str], rows: Iterable[tuple[str, str, float, str]]) -> str:
    """Return horizontal bars below a title: label, class, length and text of each; ``keys`` names the classes."""
    rows = list(rows)
    left = 16 + LETTER * max(len(label) for label, *_ in rows)
    scale = (WIDTH - left - 60) / max(length for _, _, length, _ in rows)
    parts, x = [f'<text class="title" x="8" y="22">{escape(title)}</text>'], 8.0
    for name, words in keys.items():
        parts += [f'<rect class="{name}" x="{x:.0f}" y="34" width="12" height="12"/>']
        parts += [f'<text x="{x + 18:.0f}" y="44">{escape(words)}</text>']
        x += 42 + LETTER * len(words)
    for number, (label, name, length, words) in enumerate(rows):
        y = 58 + number * ROW
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 12}" text-anchor="end">{escape(label)}</text>')
        parts.append(f'<rect class="{name}" x="{left:.0f}" y="{y}" width="{scale * length:.1f}" height="{BAR}"/>')
        parts.append(f'<text x="{left + scale * length + 6:.1f}" y="{y + 12}">{escape(words)}</text>')
    return _svg(title, WIDTH, 66 + ROW * len(rows), parts)


def _svg(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    lines = "\n".join(f"  {part}" for part in parts)
    return SVG.format(width=round(width), height=round(height), title=escape(title), parts=lines)


def area() -> str:
    """Lookup tables of units beside those of FPnew, with what both have: a rounding mode at run time, and flags."""
    records, rows = Records(), []
    for unit in ("mul e5m2", "add e5m2", "mul fp16", "add fp16", "fma fp16"):
        text = records.text(f"{unit} --round port --flags")
        own, other = records.row(text)["LUT"], records.peer(text, "FPnew")[0]
        rows += [(unit, "first", own, f"{own:g}"), ("", "other", other, f"{other:g}")]
    title = "Lookup tables of UltraScale+, with rounding mode as an input and flags"
    return bars(title, {"first": "halfulp", "other": "FPnew"}, rows)


def training() -> str:
    """Accuracy of LeNet5 after a training in each arithmetic."""
    figures = Figures.load(RESULTS / "mptorch.json")
    known = [(row.mac, figures.cell(mptorch.case(row))) for row in PUBLISHED]
    rows = [(mac, "first" if ".sr" in mac else "other", mean, f"{mean:.1f}") for mac, mean in known if mean is not None]
    keys = {"first": "stochastic rounding", "other": "other roundings"}
    return bars("LeNet5 after 189 steps from torch's initial weights: test accuracy, %", keys, rows)


def mismatch() -> str:
    """Report of `halfulp check` on a product that rounds toward zero."""
    check = ["check", "mul e5m2*e5m2", "--results", "mul.txt"]
    with TemporaryDirectory() as folder:
        vectors = _output(["vectors", "mul e5m2*e5m2.rz", "--vectors", "4000"], folder, 0)
        # Without its first lines, which name the unit.
        Path(folder, "mul.txt").write_text("".join(line for line in vectors.splitlines(True) if line[0] != "#"))
        report = _output(check, folder, 1)
    lines = [f'$ halfulp check "{check[1]}" --results {check[3]}', *report.rstrip().splitlines()]
    classes = {"$": "first", "expected": "good", "got": "bad"}
    parts = [
        f'<text class="{classes.get((line.split() or [""])[0], "")}" x="12" y="{24 + 16 * number}" '
        f'xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    return _svg(
        "Wrong bits of a unit, and their cause", 24 + LETTER * max(map(len, lines)), 28 + 16 * len(lines), parts
    )


def _output(words: list[str], folder: str, code: int) -> str:
    run = subprocess.run([sys.executable, "-m", "halfulp", *words], cwd=folder, capture_output=True, text=True)
    if run.returncode != code:
        raise RuntimeError(f"halfulp {' '.join(words)} failed: {run.stderr}")
    return run.stdout


PICTURES: dict[str, Callable[[], str]] = {"area.svg": area, "training.svg": training, "mismatch.svg": mismatch}
"""Functions that draw the pictures, by file."""


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        write_whole(HERE / name, draw())
