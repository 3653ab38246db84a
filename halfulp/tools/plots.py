"""Plots for papers: small multiples, and the same bytes for the same figures."""

import io
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from .pareto import undominated
from .paths import write_whole

COLUMNS = 5
"""Panels side by side on the width of a page."""

_PANEL, _BAND, _MARGIN, _LEAST = 1.33, 2.7, 0.5, 3.5  # inches

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
    # Text that can be edited, instead of outlines.
    "pdf.fonttype": 42,
}


_TRADE_WIDTH, _TRADE_PANEL, _KEY_LINE, _CURVES, _FITTED, _HEAT = 7.0, 2.6, 0.17, 1.9, 3.25, 0.95  # inches
_CAPTION = 150  # letters in a line
_LOGARITHMIC = 4  # times the least cost
_NEAR = 8  # greatest distance in points between marks that share a label
_HEATS = 4  # panels side by side
_MARK: dict[str, Any] = {"color": "#1f4e8c", "linestyle": "", "marker": "o", "markersize": 4.5}
_SHADES = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1, 256)))

# Distinct without colour too (Okabe and Ito, 2008, and marks).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MARKS = "osD^v<>"

_styled = matplotlib.style.context(["default", _STYLE])
"""Decorator for the style of plots, independent of the user's settings of matplotlib."""


def _panels(width: float, height: float, rows: int, columns: int, **shared: Any) -> tuple[Figure, Any]:
    """Figure of a size in inches, and its panels in rows and columns."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def _legend(figure: Figure, lines: Mapping[str, dict[str, Any]], columns: int, **more: Any) -> None:
    """Legend of named styles above the panels."""
    keys = [Line2D([], [], **line) for line in lines.values()]
    figure.legend(keys, list(lines), loc="outside upper center", ncols=columns, frameon=False, **more)


def _positive(values: Iterable[float | None]) -> list[float]:
    """Values on a logarithmic scale: NaN for missing, zero and infinite ones."""
    return [math.nan if value is None or not 0 < value < math.inf else value for value in values]


@dataclass(frozen=True)
class Chances:
    """One panel of `plot_chances`.

    Attributes
    ----------
    title : str
    fractions : sequence of float
        Discarded fractions, in units of the last place.
    measured, errors : sequence of float
        Share of results that were rounded up, for each fraction, and its difference from the ideal share.
    dotted : int, optional
        Step between fractions that are marked by a dot; default: no dots.
    """

    title: str
    fractions: Sequence[float]
    measured: Sequence[float]
    errors: Sequence[float]
    dotted: int | None = None


@_styled
def plot_chances(counts: Sequence[Chances]) -> Figure:
    """P(up) against the fraction for each rounder and, below it, the error against the ideal, on equal axes."""
    columns = min(len(counts), COLUMNS)
    bands = -(-len(counts) // columns)
    largest = max(abs(error) for count in counts for error in count.errors)
    width, height = max(_PANEL * columns + _MARGIN, _LEAST), _BAND * bands + _MARGIN
    figure, axes = _panels(width, height, 2 * bands, columns, height_ratios=[1.5, 1] * bands)
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
    _legend(figure, {"ideal": _IDEAL, "measured": _MEASURED, "nothing dropped": _DOTS}, 3)
    figure.supxlabel("discarded fraction, in units of the last place")
    return figure


def _draw(above: Axes, below: Axes, count: Chances) -> None:
    """One panel of `plot_chances`."""
    above.set_title(count.title)
    above.plot([0, 1], [0, 1], **_IDEAL)
    below.axhline(0, **_IDEAL)
    largest = f"largest {max(count.errors, key=abs):.3g}".replace("-", "\N{MINUS SIGN}")
    below.text(0.03, 0.97, largest, transform=below.transAxes, va="top", fontsize=7)
    for panel, values in ((above, count.measured), (below, count.errors)):
        panel.plot(count.fractions, values, **_MEASURED)
        if count.dotted:
            panel.plot(count.fractions[:: count.dotted], values[:: count.dotted], **_DOTS)


@dataclass(frozen=True)
class Panel:
    """Values against costs; None is a gap. The scale is logarithmic if the lowest value is the ``best``."""

    label: str
    values: Sequence[float | None]
    best: Literal["lowest", "highest"]


@_styled
def plot_front(
    names: Sequence[str],
    costs: Sequence[float],
    panels: Sequence[Panel],
    chosen: Sequence[bool],
    *,
    xlabel: str,
    caption: str,
) -> Figure:
    """Values against costs, with the Pareto front of each panel.

    Parameters
    ----------
    names : sequence of str
        Names for a numbered list beside the plot.
    costs : sequence of float
    panels : sequence of Panel
        Panels one above the other.
    chosen : sequence of bool
        True for filled marks.
    xlabel, caption : str
        Texts below the cost axis, and below the whole plot.
    """
    height = max(_TRADE_PANEL * len(panels), _KEY_LINE * (len(names) + 2)) + 2 * _MARGIN
    figure, grid = _panels(_TRADE_WIDTH, height, len(panels), 1, sharex=True)
    axes = grid[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        _scatter(axis, costs, panel, chosen)
    if max(costs) > _LOGARITHMIC * min(costs) > 0:
        axes[-1].set_xscale("log")
        axes[-1].xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        axes[-1].xaxis.set_major_formatter("{x:g}")
        axes[-1].xaxis.set_minor_locator(NullLocator())
    axes[-1].set_xlabel(xlabel)
    # matplotlib wraps a caption only where a constrained layout does not see it.
    figure.supxlabel("\n".join(textwrap.wrap(caption, _CAPTION)), fontsize=6, color="#606060", x=0.01, ha="left")
    keys = [Line2D([], [], **_MARK, markerfacecolor=_filled(flag)) for flag in chosen]
    texts = [f"{number}  {name}" for number, name in enumerate(names, 1)]
    figure.legend(
        [*keys, Line2D([], [], **_MARK), Line2D([], [], **_IDEAL)],
        [*texts, "filled: no other beats it", "best at that cost or less"],
        loc="outside right upper",
        frameon=False,
        fontsize=7,
    )
    # The layout fixes the places of the marks.
    figure.draw_without_rendering()
    for axis, panel in zip(axes, panels, strict=True):
        _number(axis, costs, panel)
    return figure


def _filled(flag: bool) -> str:
    return str(_MARK["color"]) if flag else "white"


@dataclass(frozen=True)
class Curve:
    """Values drawn as a line, in the same colour in all panels; None is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]


@_styled
def plot_curves(
    panels: Sequence[Sequence[tuple[str, Sequence[Curve]]]], *, xlabel: str, labels: Sequence[str]
) -> Figure:
    """Small multiples of curves on logarithmic scales.

    Parameters
    ----------
    panels : sequence of sequence of (str, sequence of Curve)
        Rows of panels, each with its title.
    xlabel : str
    labels : sequence of str
        Label of each row.
    """
    names = dict.fromkeys(curve.name for row in panels for _, found in row for curve in found)
    styles = {name: _curve(place) for place, name in enumerate(names)}
    height = _CURVES * len(panels) + _KEY_LINE * math.ceil(len(names) / 2) + _MARGIN
    figure, axes = _panels(_TRADE_WIDTH, height, len(panels), len(panels[0]), sharex=True, sharey="row")
    for row, found in enumerate(panels):
        for column, (title, lines) in enumerate(found):
            axis = axes[row, column]
            axis.set(xscale="log", yscale="log", title=title if row == 0 else "")
            axis.xaxis.set_minor_locator(NullLocator())
            ticks = sorted({x for curve in lines for x in curve.x})
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.set_ylabel(labels[row] if column == 0 else "")
            for curve in lines:
                axis.plot(curve.x, _positive(curve.y), **styles[curve.name])
    figure.supxlabel(xlabel)
    _legend(figure, styles, 2, fontsize=7)
    return figure


def _curve(place: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "marker": _MARKS[(place + place // len(_COLOURS)) % len(_MARKS)],
        "linestyle": "-" if place < len(_COLOURS) else "--",
        "markersize": 3,
        "linewidth": 0.9,
    }


@dataclass(frozen=True)
class Approximation:
    """An approximation of a function: its values and errors for all arguments; NaN is a gap."""

    name: str
    values: Sequence[float]
    errors: Sequence[float]


@_styled
def plot_approximations(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[Approximation]]], *, label: str
) -> Figure:
    """Functions with approximations and, below, their errors.

    Parameters
    ----------
    panels : mapping of str to (sequence of float, sequence of float, sequence of Approximation)
        Arguments, values and approximations by the names of functions.
    label : str
        Label of the errors.
    """
    names = dict.fromkeys(one.name for _, _, lines in panels.values() for one in lines)
    styles = {name: _curve(place) | {"marker": "", "linewidth": 0.7} for place, name in enumerate(names)}
    function = _IDEAL | {"linewidth": 2.5}
    width = max(_FITTED * len(panels) + _MARGIN, _LEAST)
    height = 2 * _CURVES + _KEY_LINE * math.ceil(len(names) / 3) + _MARGIN
    figure, axes = _panels(width, height, 2, len(panels), sharex="col")
    for column, (name, (x, values, lines)) in enumerate(panels.items()):
        above, below = axes[:, column]
        above.plot(x, values, **function)
        for one in lines:
            above.plot(x, one.values, **styles[one.name])
            below.plot(x, _positive(one.errors), **styles[one.name])
        largest = [max((error for error in one.errors if error < math.inf), default=0.0) for one in lines]
        above.set(title=name)
        below.set(yscale="log", xlabel="argument")
        if min(largest) > 0:
            # Errors that pass through zero would stretch the axis.
            below.set_ylim(bottom=min(largest) / 30)
    axes[0, 0].set_ylabel("value")
    axes[1, 0].set_ylabel(label)
    _legend(figure, {"function": function, **styles}, 4, fontsize=7)
    return figure


def _points(costs: Sequence[float], panel: Panel) -> list[tuple[int, float, float]]:
    """Index, cost and value of each finite value."""
    return [
        (index, cost, value)
        for index, (cost, value) in enumerate(zip(costs, panel.values, strict=True))
        if value is not None and math.isfinite(value)
    ]


def _scatter(axis: Axes, costs: Sequence[float], panel: Panel, chosen: Sequence[bool]) -> None:
    """Marks, and the line of the Pareto front."""
    points = _points(costs, panel)
    axis.set_ylabel(panel.label)
    if panel.best == "lowest":
        above_zero = [value for _, _, value in points if value > 0]
        if len(above_zero) == len(points):
            axis.set_yscale("log")
        else:
            # An error of zero has no place on a logarithmic scale.
            axis.set_yscale("symlog", linthresh=min(above_zero, default=1.0))
    sign = 1 if panel.best == "lowest" else -1
    flags = undominated([(cost, sign * value) for _, cost, value in points])
    front = sorted({(cost, value) for (_, cost, value), best in zip(points, flags, strict=True) if best})
    axis.step([cost for cost, _ in front], [value for _, value in front], where="post", zorder=1, **_IDEAL)
    for index, cost, value in points:
        axis.plot([cost], [value], **_MARK, markerfacecolor=_filled(chosen[index]))
    axis.margins(0.08, 0.12)


def _number(axis: Axes, costs: Sequence[float], panel: Panel) -> None:
    """Numbers at the marks; near marks share one label."""
    groups: list[tuple[tuple[float, float], tuple[float, float], list[int]]] = []
    for index, cost, value in _points(costs, panel):
        place = tuple(axis.transData.transform((cost, value)) * 72 / axis.figure.dpi)
        for other, _, members in groups:
            if math.dist(place, other) < _NEAR:
                members.append(index)
                break
        else:
            groups.append((place, (cost, value), [index]))
    for _, at, members in groups:
        text = ", ".join(str(index + 1) for index in members)
        axis.annotate(text, at, xytext=(3.5, 3.5), textcoords="offset points", fontsize=7)


@_styled
def plot_harms(kinds: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """For each kind of fault its nets: percentage of wrong results, and their median error in ulp; 0 is not drawn."""
    figure, axes = _panels(
        _PANEL * 2.2 * len(kinds) + _MARGIN, _BAND + _MARGIN, 1, len(kinds), sharex=True, sharey=True
    )
    for axis, (kind, nets) in zip(axes[0], kinds.items(), strict=True):
        drawn = [(share, error) for share, error in nets if share > 0 and error > 0]
        axis.set_title(kind)
        axis.plot(*zip(*drawn, strict=True) if drawn else ((), ()), **_DOTS)
        axis.set(xscale="log", yscale="log")
    axes[0, 0].set_ylabel("median error, ulp")
    figure.supxlabel("wrong results, %")
    return figure


@dataclass(frozen=True)
class Heat:
    """Counts in rows and columns, drawn as colours; ``out`` and ``wrong`` mark cells out of reach and open ones."""

    title: str
    counts: npt.NDArray[np.int64]
    out: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_]


@_styled
def plot_heats(panels: Sequence[Heat]) -> Figure:
    """Counts on one logarithmic scale of colours; cells out of reach are grey, open ones red."""
    largest = max((int(panel.counts.max()) for panel in panels), default=1)
    colours = LogNorm(1, max(largest, 2))
    columns = min(len(panels), _HEATS)
    rows = -(-len(panels) // columns)
    figure, axes = _panels(_TRADE_WIDTH, _HEAT * rows + 2 * _MARGIN, rows, columns)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        cells = colormaps["Blues"](0.25 + 0.75 * np.asarray(colours(np.maximum(panel.counts, 1))))
        cells[panel.out] = to_rgba("#d0d0d0")
        cells[panel.wrong] = to_rgba("#d55e00")
        axis.imshow(cells, aspect="auto", interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        axis.set_title(panel.title, fontsize=6)
    scale = figure.colorbar(ScalarMappable(colours, _SHADES), ax=list(axes.flat[: len(panels)]), shrink=0.5)
    scale.set_label("hits")
    square: dict[str, Any] = {"marker": "s", "linestyle": ""}
    lines = {"out of reach": square | {"color": "#d0d0d0"}, "open": square | {"color": "#d55e00"}}
    _legend(figure, lines, 2, fontsize=7)
    return figure


@_styled
def write(
    figure: Figure,
    folder: Path,
    stem: str,
    *,
    endings: Sequence[str] = ("png", "svg"),
    about: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a figure to a folder as ``stem.png``, ``stem.svg`` or ``stem.pdf``; returns the paths.

    ``about`` has a ``title`` and a ``description`` for the metadata of the files.
    """
    paths = []
    for ending in endings:
        drawn = io.BytesIO()
        figure.savefig(drawn, format=ending, metadata=_metadata(ending, about or {}))
        paths.append(folder / f"{stem}.{ending}")
        write_whole(paths[-1], drawn.getvalue())
    return paths


def _metadata(ending: str, about: Mapping[str, str]) -> dict[str, str | None]:
    """Metadata of a file, by the names of its kind, without a date."""
    names = {"title": "Title", "description": "Subject" if ending == "pdf" else "Description"}
    dates: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    return {names[key]: text for key, text in about.items()} | dates.get(ending, {})
