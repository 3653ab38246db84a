"""Plots for papers: small multiples, and the same bytes for the same figures."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from .paths import write_whole
from .stats import Count

COLUMNS = 5
"""Panels side by side, which fill the width of a page; the least width is that of a column."""

_PANEL, _BAND, _MARGIN, _LEAST = 1.33, 2.7, 0.5, 3.5  # inches
_DOTTED = 16  # fractions that a rounder tells apart, up to which each has a dot

_IDEAL: dict[str, Any] = {"color": "#9a9a9a", "linewidth": 0.9}
_MEASURED: dict[str, Any] = {"color": "#1f4e8c", "linewidth": 0.9}
_DOTS: dict[str, Any] = {"color": "#1f4e8c", "linestyle": "", "marker": "o", "markersize": 2.6}

_STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "figure.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.dpi": 300,
    # The names inside an SVG are random otherwise.
    "svg.hashsalt": "halfulp",
}


def chances(counts: Sequence[Count]) -> Figure:
    """P(up) against the fraction for each rounder and, below it, the error against the ideal.

    Panels of a kind have the same axes, so that sources compare at a glance. Where a rounder tells few fractions apart,
    those have dots.
    """
    columns = min(len(counts), COLUMNS)
    bands = -(-len(counts) // columns)
    largest = max(abs(float(error)) for count in counts for error in count.errors)
    with _style():
        size = max(_PANEL * columns + _MARGIN, _LEAST), _BAND * bands + _MARGIN
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(2 * bands, columns, squeeze=False, height_ratios=[1.5, 1] * bands)
        for index, count in enumerate(counts):
            band, column = divmod(index, columns)
            above, below = axes[2 * band, column], axes[2 * band + 1, column]
            _draw(above, below, count)
            above.set(ylim=(-0.04, 1.04), yticks=[0, 0.5, 1])
            above.tick_params(labelbottom=False)
            # There is room for a line of text above the curve.
            below.set_ylim(-1.15 * largest, 1.75 * largest)
            below.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            for panel, label in ((above, "P(up)"), (below, "error")):
                panel.set(xlim=(-0.02, 1.02), xticks=[0, 0.5, 1], ylabel=label if column == 0 else "")
                panel.tick_params(labelleft=column == 0)
        for index in range(len(counts), bands * columns):
            axes[-2, index % columns].remove()
            axes[-1, index % columns].remove()
        lines = {"ideal": _IDEAL, "measured": _MEASURED, "nothing dropped": _DOTS}
        figure.legend(
            [Line2D([], [], **line) for line in lines.values()],
            list(lines),
            loc="outside upper center",
            ncols=len(lines),
            frameon=False,
        )
        figure.supxlabel("discarded fraction, in units of the last place")
    return figure


def _draw(above: Axes, below: Axes, count: Count) -> None:
    """What was measured of one rounder."""
    fractions, errors = [float(fraction) for fraction in count.fractions], [float(error) for error in count.errors]
    above.set_title(f"{count.rounder.name}, {count.rounder.rounding}")
    above.plot([0, 1], [0, 1], **_IDEAL)
    below.axhline(0, **_IDEAL)
    largest = f"largest {max(errors, key=abs):.3g}".replace("-", "\N{MINUS SIGN}")
    below.text(0.03, 0.97, largest, transform=below.transAxes, va="top", fontsize=7)
    for panel, values in ((above, [float(share) for share in count.measured]), (below, errors)):
        panel.plot(fractions, values, **_MEASURED)
        if count.rounder.steps <= _DOTTED:
            every = len(fractions) // count.rounder.steps
            panel.plot(fractions[::every], values[::every], **_DOTS)


def write(figure: Figure, folder: Path, stem: str) -> list[Path]:
    """Leave a figure in a folder as ``stem.png`` and ``stem.svg``; says which files these are.

    Raises
    ------
    ToolError
        If a file cannot be written.
    """
    paths = []
    with _style():
        for ending, metadata in (("png", {}), ("svg", {"Date": None})):
            drawn = io.BytesIO()
            figure.savefig(drawn, format=ending, metadata=metadata)
            paths.append(folder / f"{stem}.{ending}")
            write_whole(paths[-1], drawn.getvalue())
    return paths


@contextmanager
def _style() -> Iterator[None]:
    """The look of a plot, whatever the user's own settings of matplotlib are."""
    with matplotlib.style.context(["default", _STYLE]):
        yield
