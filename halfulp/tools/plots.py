"""Plots for papers and pages: small multiples in colours and marks that print in black and white.

The same figures have the same bytes. An SVG has no background, and its text has the colour of light or dark pages.
"""

import io
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator, SymmetricalLogLocator

from .labels import LABEL_SIZE, place_labels
from .pareto import undominated
from .paths import write_whole

COLUMNS = 5
"""Panels side by side on the width of a page."""

_PANEL, _BAND, _MARGIN, _LEAST = 1.33, 2.7, 0.5, 3.5  # inches

# Distinct without colour too (Okabe and Ito, 2008, and marks).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_GREY = "#797979"  # legible on light and dark pages
_MARKS = "osD^vP*X<>pd"
_LINES = ("-", "--", "-.", ":")
_HATCHES = ("", "////", "....", "xxxx", "----", "++++", "oooo")

_IDEAL: dict[str, Any] = {"color": "#8a8a8a", "linewidth": 0.9, "linestyle": "--"}
_MEASURED: dict[str, Any] = {"color": _COLOURS[0], "linewidth": 0.9}
_DOTS: dict[str, Any] = {"color": _COLOURS[0], "linestyle": "", "marker": "o", "markersize": 2.6}

_STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "figure.labelsize": 8,
    "legend.fontsize": 8,
    "legend.title_fontsize": 9,
    "figure.titlesize": 9,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # The resolution of the file, so that texts are measured as they are drawn.
    "figure.dpi": 300,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
    "hatch.linewidth": 0.4,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    # The names inside an SVG are random otherwise.
    "svg.hashsalt": "halfulp",
    # Text that can be edited, instead of outlines.
    "pdf.fonttype": 42,
}


_TRADE_WIDTH, _TRADE_PANEL, _KEY_LINE, _CURVES, _FITTED, _HEAT = 7.0, 2.6, 0.17, 1.9, 3.25, 0.95  # inches
_BAR = 0.19  # inches
_CAPTION = 150  # letters in a line
_LOGARITHMIC = 4  # largest over least number of an axis that is logarithmic
_HEATS = 4  # panels side by side
_PLAIN = 3  # decades of an axis with plain numbers
_STEP = 48  # points of a curve between marks
_NAMED = 12  # most harmful nets, whose names are drawn where there is room
_MARK: dict[str, Any] = {"linestyle": "", "markersize": 4.5}
_OPEN: dict[str, Any] = {"markerfacecolor": "none"}
_CELLS: dict[str, dict[str, Any]] = {
    "unreachable": {"facecolor": "none", "edgecolor": "#909090", "hatch": "//////"},
    "open": {"facecolor": _COLOURS[1], "edgecolor": "black", "hatch": "xxxxxx"},
}
_SQUARE = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
_SHADES = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1, 256)))

Kind = tuple[str, str]
"""Family of formats, and rounding."""

_styled = matplotlib.style.context(["default", _STYLE])
"""Decorator for the style of plots, independent of the user's settings of matplotlib."""


def _panels(width: float, height: float, rows: int, columns: int, **shared: Any) -> tuple[Figure, Any]:
    """Figure of a size in inches, and its panels in rows and columns."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def _legend(
    figure: Figure,
    lines: Mapping[str, dict[str, Any]],
    columns: int,
    loc: Any = "outside upper center",
    title: str | None = None,
) -> None:
    """Legend of named styles outside of the panels, below the title of the plot."""
    keys: list[Artist] = [Patch(**line) if "hatch" in line else Line2D([], [], **line) for line in lines.values()]
    figure.legend(keys, list(lines), loc=loc, ncols=columns, frameon=False, fontsize=LABEL_SIZE, title=title)


def _styles(kinds: Iterable[Kind]) -> list[dict[str, Any]]:
    """Style of each line: a colour for each rounding, dashes for each family, and a mark of its own."""
    kinds = list(kinds)
    families, roundings = (list(dict.fromkeys(part)) for part in zip(*kinds, strict=True))
    return [
        {
            "color": _COLOURS[roundings.index(rounding) % len(_COLOURS)],
            "linestyle": _LINES[families.index(family) % len(_LINES)],
            "marker": _MARKS[place % len(_MARKS)],
            "markersize": 3,
            "linewidth": 0.9,
        }
        for place, (family, rounding) in enumerate(kinds)
    ]


def _plain_ticks(axis: Axis) -> None:
    """Set ticks in plain numbers, such as 0, 1, 2, 5 and 10, if a logarithmic axis has few decades."""
    positive = [abs(limit) for limit in axis.get_view_interval() if limit]
    linear = getattr(axis.get_transform(), "linthresh", math.inf)
    decades = math.log10(max(positive, default=1.0) / min([*positive, linear]))
    if axis.get_scale() == "linear" or not decades <= _PLAIN:
        return
    subs = (1, 2, 3, 5, 7) if decades <= 1.5 else (1, 2, 5)
    locator = LogLocator(subs=subs) if linear == math.inf else SymmetricalLogLocator(axis.get_transform(), subs=subs)
    axis.set_major_locator(locator)
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


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
def plot_chances(counts: Sequence[Chances], *, title: str) -> Figure:
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
        for panel, label in ((above, "P(up)"), (below, "error of P(up)")):
            panel.set(xlim=(-0.02, 1.02), xticks=[0, 0.5, 1], ylabel=label if column == 0 else "")
            panel.tick_params(labelleft=column == 0)
    for index in range(len(counts), bands * columns):
        axes[-2, index % columns].remove()
        axes[-1, index % columns].remove()
    _legend(figure, {"ideal": _IDEAL, "measured": _MEASURED, "nothing dropped": _DOTS}, 3, title=title)
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
    """Values against costs; None is a gap. A wide range of values whose ``best`` is the lowest is logarithmic."""

    label: str
    values: Sequence[float | None]
    best: Literal["lowest", "highest"]


@_styled
def plot_front(  # noqa: PLR0913 - texts and styles of a plot
    names: Sequence[str],
    costs: Sequence[float],
    panels: Sequence[Panel],
    chosen: Sequence[bool],
    *,
    xlabel: str,
    caption: str,
    title: str,
    kinds: Sequence[Kind] = (),
) -> Figure:
    """Values against costs, with the Pareto front of each panel.

    Names are beside their points if there is room for all, else in a numbered list beside the plot.

    Parameters
    ----------
    names : sequence of str
        Names of the points.
    costs : sequence of float
    panels : sequence of Panel
        Panels one above the other.
    chosen : sequence of bool
        True for filled marks.
    xlabel, caption, title : str
        Texts below the cost axis, below the whole plot, and above the first panel.
    kinds : sequence of Kind, optional
        Kind of each point, for its colour and mark; default: all are of one kind.
    """
    parts = names, costs, panels, chosen, list(kinds) or [("", "")] * len(names), xlabel, caption, title
    figure, whole = _front(*parts, numbered=False)
    return figure if whole else _front(*parts, numbered=True)[0]


def _front(  # noqa: PLR0913 - options of `plot_front`
    names: Sequence[str],
    costs: Sequence[float],
    panels: Sequence[Panel],
    chosen: Sequence[bool],
    kinds: Sequence[Kind],
    xlabel: str,
    caption: str,
    title: str,
    *,
    numbered: bool,
) -> tuple[Figure, bool]:
    """Figure of `plot_front`, and True if all labels have room."""
    distinct = dict.fromkeys(kinds)
    marks = {kind: style | _MARK for kind, style in zip(distinct, _styles(distinct), strict=True)}
    styles = [marks[kind] | ({} if flag else _OPEN) for kind, flag in zip(kinds, chosen, strict=True)]
    height = max(_TRADE_PANEL * len(panels), _KEY_LINE * (len(names) + 2)) + 2 * _MARGIN
    figure, grid = _panels(_TRADE_WIDTH, height, len(panels), 1, sharex=True)
    axes = grid[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        _scatter(axis, costs, panel, styles)
    if max(costs) > _LOGARITHMIC * min(costs) > 0:
        axes[-1].set_xscale("log")
        _plain_ticks(axes[-1].xaxis)
    axes[0].set_title(title)
    axes[-1].set_xlabel(xlabel)
    # matplotlib wraps a caption only where a constrained layout does not see it.
    figure.supxlabel("\n".join(textwrap.wrap(caption, _CAPTION)), fontsize=6, color=_GREY, x=0.01, ha="left")
    any_mark = _MARK | {"marker": "o", "color": _GREY}
    notes = {"filled: Pareto-optimal": any_mark, "open: dominated": any_mark | _OPEN}
    notes["best at this cost or less"] = _IDEAL
    if numbered:
        listed = {f"{number}  {name}": style for number, (name, style) in enumerate(zip(names, styles, strict=True), 1)}
        _legend(figure, listed | notes, 1, "outside right upper")
    else:
        _legend(figure, {", ".join(kind): mark for kind, mark in marks.items() if any(kind)} | notes, 3)
    texts = [str(number) for number in range(1, len(names) + 1)] if numbered else names
    # The layout fixes the places of the marks.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    placed = [
        place_labels(axis, [(texts[index], cost, value) for index, cost, value in _points(costs, panel)])
        for axis, panel in zip(axes, panels, strict=True)
    ]
    return figure, all(placed)


@dataclass(frozen=True)
class Curve:
    """Values drawn as a line, in the same style in all panels; None is a gap."""

    name: str
    kind: Kind
    x: Sequence[float]
    y: Sequence[float | None]


@_styled
def plot_curves(
    panels: Sequence[Sequence[tuple[str, Sequence[Curve]]]], *, title: str, xlabel: str, labels: Sequence[str]
) -> Figure:
    """Small multiples of curves on logarithmic scales.

    Parameters
    ----------
    panels : sequence of sequence of (str, sequence of Curve)
        Rows of panels, each with its title.
    title, xlabel : str
    labels : sequence of str
        Label of each row.
    """
    kinds = {curve.name: curve.kind for row in panels for _, curves in row for curve in curves}
    styles = dict(zip(kinds, _styles(kinds.values()), strict=True))
    height = _CURVES * len(panels) + _KEY_LINE * math.ceil(len(kinds) / 2) + _MARGIN
    figure, axes = _panels(_TRADE_WIDTH, height, len(panels), len(panels[0]), sharex=True, sharey="row")
    for row, panels_of_row in enumerate(panels):
        for column, (name, lines) in enumerate(panels_of_row):
            axis = axes[row, column]
            axis.set(xscale="log", yscale="log", title=name if row == 0 else "")
            axis.xaxis.set_minor_locator(NullLocator())
            ticks = sorted({x for curve in lines for x in curve.x})
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.set_ylabel(labels[row] if column == 0 else "")
            for curve in lines:
                axis.plot(curve.x, _positive(curve.y), **styles[curve.name])
            _plain_ticks(axis.yaxis)
    figure.supxlabel(xlabel)
    _legend(figure, styles, 2, title=title)
    return figure


@dataclass(frozen=True)
class Approximation:
    """An approximation of a function: its values and errors for all arguments; NaN is a gap."""

    name: str
    values: Sequence[float]
    errors: Sequence[float]


@_styled
def plot_approximations(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[Approximation]]], *, title: str, label: str
) -> Figure:
    """Functions with approximations and, below, their errors.

    Parameters
    ----------
    panels : mapping of str to (sequence of float, sequence of float, sequence of Approximation)
        Arguments, values and approximations by the names of functions.
    title, label : str
        Title, and label of the errors.
    """
    names = dict.fromkeys(line.name for _, _, lines in panels.values() for line in lines)
    styles = {
        name: style | {"markevery": (_STEP * place // len(names), _STEP)}
        for place, (name, style) in enumerate(zip(names, _styles(("", name) for name in names), strict=True))
    }
    function = _IDEAL | {"linewidth": 2.5, "linestyle": "-", "color": "#c0c0c0"}
    width = max(_FITTED * len(panels) + _MARGIN, _LEAST)
    height = 2 * _CURVES + _KEY_LINE * math.ceil(len(names) / 3) + _MARGIN
    figure, axes = _panels(width, height, 2, len(panels), sharex="col")
    for column, (name, (x, values, lines)) in enumerate(panels.items()):
        above, below = axes[:, column]
        above.plot(x, values, **function)
        for line in lines:
            above.plot(x, line.values, **styles[line.name])
            below.plot(x, _positive(line.errors), **styles[line.name])
        largest = [max((error for error in line.errors if error < math.inf), default=0.0) for line in lines]
        above.set(title=name)
        below.set(yscale="log", xlabel="argument")
        if min(largest) > 0:
            # Errors that pass through zero would stretch the axis.
            below.set_ylim(bottom=min(largest) / 30)
        _plain_ticks(below.yaxis)
    axes[0, 0].set_ylabel("value")
    axes[1, 0].set_ylabel(label)
    _legend(figure, {"function": function, **styles}, 3 if len(panels) == 1 else 5, title=title)
    return figure


def _points(costs: Sequence[float], panel: Panel) -> list[tuple[int, float, float]]:
    """Index, cost and value of each finite value."""
    return [
        (index, cost, value)
        for index, (cost, value) in enumerate(zip(costs, panel.values, strict=True))
        if value is not None and math.isfinite(value)
    ]


def _scatter(axis: Axes, costs: Sequence[float], panel: Panel, styles: Sequence[dict[str, Any]]) -> None:
    """Marks, and the line of the Pareto front."""
    points = _points(costs, panel)
    axis.set_ylabel(panel.label)
    if panel.best == "lowest":
        above_zero = [value for _, _, value in points if value > 0]
        if above_zero and max(above_zero) > _LOGARITHMIC * min(above_zero):
            # An error of zero has no place on a logarithmic scale.
            zero = {"linthresh": min(above_zero)} if len(above_zero) < len(points) else {}
            axis.set_yscale("symlog" if zero else "log", **zero)
    sign = 1 if panel.best == "lowest" else -1
    flags = undominated([(cost, sign * value) for _, cost, value in points])
    front = sorted({(cost, value) for (_, cost, value), best in zip(points, flags, strict=True) if best})
    axis.step([cost for cost, _ in front], [value for _, value in front], where="post", zorder=1, **_IDEAL)
    for index, cost, value in points:
        axis.plot([cost], [value], **styles[index])
    axis.margins(0.08, 0.12)
    _plain_ticks(axis.yaxis)


@_styled
def plot_harms(kinds: Mapping[str, Sequence[tuple[str, float, float]]], *, title: str) -> Figure:
    """For each kind of fault its nets: name, percentage of wrong results and median error in ulp; 0 is not drawn.

    The labels of the most harmful nets have no folders.
    """
    figure, axes = _panels(
        _PANEL * 2.2 * len(kinds) + _MARGIN, _BAND + _MARGIN, 1, len(kinds), sharex=True, sharey=True
    )
    drawn = [
        sorted((net for net in nets if min(net[1:]) > 0), key=lambda net: -net[1] * net[2]) for nets in kinds.values()
    ]
    for axis, kind, nets, style in zip(axes[0], kinds, drawn, _styles(("", kind) for kind in kinds), strict=True):
        axis.plot([share for _, share, _ in nets], [error for *_, error in nets], **style | _MARK | {"markersize": 3})
        axis.set(title=kind, xscale="log", yscale="log")
        axis.margins(0.08)
    for axis in axes.flat:
        _plain_ticks(axis.xaxis)
        _plain_ticks(axis.yaxis)
    axes[0, 0].set_ylabel("median error of wrong results, ulp")
    figure.suptitle(title)
    figure.supxlabel("wrong results, %")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axis, nets in zip(axes[0], drawn, strict=True):
        place_labels(axis, [(re.sub(r"\w+/", "", name), share, error) for name, share, error in nets[:_NAMED]])
    return figure


@_styled
def plot_bars(panels: Mapping[str, Mapping[str, Mapping[str, float]]], *, title: str) -> Figure:
    """For each panel bars of stacked parts: label of the bar, name of the part, and length."""
    labels = list(dict.fromkeys(label for bars in panels.values() for label in bars))
    parts = list(dict.fromkeys(part for bars in panels.values() for bar in bars.values() for part in bar))
    styles: dict[str, dict[str, Any]] = {
        part: {
            "facecolor": _COLOURS[place % len(_COLOURS)],
            "edgecolor": "white",
            "hatch": _HATCHES[place % len(_HATCHES)],
        }
        for place, part in enumerate(parts)
    }
    height = _BAR * (len(labels) + 1) + _KEY_LINE * (len(parts) + 1) + _MARGIN
    figure, axes = _panels(_TRADE_WIDTH, height, 1, len(panels), sharey=True)
    for axis, (name, bars) in zip(axes[0], panels.items(), strict=True):
        for part, style in styles.items():
            before = [
                sum(bars.get(label, {}).get(lower, 0) for lower in parts[: parts.index(part)]) for label in labels
            ]
            axis.barh(labels, [bars.get(label, {}).get(part, 0) for label in labels], left=before, **style)
        axis.set_title(name)
        axis.xaxis.set_major_locator(MaxNLocator(3))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.tick_params(axis="y", length=0)
    axes[0, 0].invert_yaxis()
    _legend(figure, styles, 2, title=title)
    return figure


@dataclass(frozen=True)
class Heat:
    """Counts in rows and columns, drawn as colours; ``out`` and ``wrong`` are unreachable and open cells."""

    title: str
    counts: npt.NDArray[np.int64]
    out: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_]


@_styled
def plot_heats(panels: Sequence[Heat], *, title: str) -> Figure:
    """Counts on one logarithmic scale of colours; unreachable and open cells are hatched."""
    largest = max((int(panel.counts.max()) for panel in panels), default=1)
    colours = LogNorm(1, max(largest, 2))
    columns = min(len(panels), _HEATS)
    rows = -(-len(panels) // columns)
    figure, axes = _panels(_TRADE_WIDTH, _HEAT * rows + 2 * _MARGIN, rows, columns)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        cells = colormaps["Blues"](0.25 + 0.75 * np.asarray(colours(np.maximum(panel.counts, 1))))
        axis.imshow(cells, aspect="auto", interpolation="nearest")
        for style, marked in zip(_CELLS.values(), (panel.out, panel.wrong), strict=True):
            corners = np.argwhere(marked)[:, None, ::-1] + _SQUARE
            axis.add_collection(PolyCollection(corners, linewidth=0, **style), autolim=False)
        axis.set(xticks=[], yticks=[])
        axis.set_title(panel.title, fontsize=6)
    scale = figure.colorbar(ScalarMappable(colours, _SHADES), ax=list(axes.flat[: len(panels)]), shrink=0.5)
    scale.set_label("hits")
    _legend(figure, _CELLS, 2, title=title)
    return figure


_PAGE = (
    "svg{color:#000000;fill:currentColor}@media(prefers-color-scheme:dark){svg{color:#e0e0e0}}"
    "*{stroke-linejoin:round;stroke-linecap:butt}"
)
"""Style of an SVG, whose black is the colour of text."""


@_styled
def write(figure: Figure, path: Path, *, about: Mapping[str, str] | None = None) -> None:
    """Write a figure as SVG, PDF or PNG, by the ending of the file.

    ``about`` has a ``title`` and a ``description`` for the metadata of the file.
    """
    ending, drawn = path.suffix.removeprefix("."), io.BytesIO()
    background = "none" if ending == "svg" else "white"
    figure.savefig(drawn, format=ending, facecolor=background, metadata=_metadata(ending, about or {}))
    content = drawn.getvalue()
    if ending == "svg":
        text = content.decode().replace("#000000", "currentColor")
        content = re.sub(r"(?<=<style type=\"text/css\">)[^<]*", _PAGE, text).encode()
    write_whole(path, content)


def _metadata(ending: str, about: Mapping[str, str]) -> dict[str, str | None]:
    """Metadata of a file, by the names of its kind, without a date."""
    names = {"title": "Title", "description": "Subject" if ending == "pdf" else "Description"}
    dates: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    return {names[key]: text for key, text in about.items()} | dates.get(ending, {})
