"""Plots: texts do not overlap each other or marks, and lines differ without colour."""

import itertools
import re
from contextlib import contextmanager

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from halfulp.tools import plots
from halfulp.tools.plots import (
    Approximation,
    Chances,
    Curve,
    Heat,
    Panel,
    plot_approximations,
    plot_bars,
    plot_chances,
    plot_curves,
    plot_front,
    plot_harms,
    plot_heats,
    write,
)

NUMBERS = np.random.default_rng(0)
START = NUMBERS.bit_generator.state
MACS = [
    f"{operands}.{rounding}"
    for operands in ("e5m2*e5m2+e6m5", "posit8*posit8+posit16", "fxp4.4*fxp4.4+fxp8.8")
    for rounding in ("rn", "rz", "sr4@lfsr16", "sr10@lfsr16")
]
KINDS = [(family, rounding) for family in ("float", "posit", "fixed") for rounding in ("rn", "rz", "sr4", "sr10")]


@pytest.fixture(autouse=True)
def same_numbers():
    """Draw the same numbers in any order of the tests; whether labels have room depends on them."""
    NUMBERS.bit_generator.state = START


def front(count, spread):
    """Two panels with points that are as close to one another as ``spread`` says."""
    names = list(itertools.islice(itertools.cycle(MACS), count))
    kinds = list(itertools.islice(itertools.cycle(KINDS), count))
    costs = 100 * np.exp(NUMBERS.normal(0, spread, count))
    errors = [Panel(label, np.exp(NUMBERS.normal(0, spread, count)), "lowest") for label in ("error", "time")]
    chosen = [place % 3 == 0 for place in range(count)]
    return plot_front(names, costs, errors, chosen, xlabel="LUT", caption="caption " * 40, title="title", kinds=kinds)


def curves():
    lengths = [16, 64, 256, 1024, 4096]
    row = [
        (title, [Curve(mac, kind, lengths, 1.1 ** NUMBERS.random(5)) for mac, kind in zip(MACS, KINDS, strict=True)])
        for title in ("normal", "uniform", "trained")
    ]
    return plot_curves([row, row], title="Errors", xlabel="length", labels=["relative error", "error in ulp"])


def approximations():
    x = np.linspace(-8, 8, 512)
    lines = [Approximation(f"{count} segments", np.tanh(x), np.abs(np.sin(count * x))) for count in (2, 4, 8, 16)]
    return plot_approximations({name: (x, np.tanh(x), lines) for name in ("tanh", "sigmoid")}, title="f", label="ulp")


def harms():
    nets = [(f"accumulator[{bit}]", 40 + 5 * NUMBERS.random(), 2.0**bit) for bit in range(24)]
    return plot_harms(dict.fromkeys(("bit flip", "stuck at 0", "stuck at 1"), nets), title="Faults in mul")


def heats():
    counts = NUMBERS.integers(0, 1000, (5, 9))
    return plot_heats(
        [Heat(f"output stream: {n} in a row", counts, counts < 200, counts > 900) for n in range(11)], title="Bins"
    )


def bars():
    parts = {mac: 1e4 * NUMBERS.random() for mac in MACS[:5]}
    return plot_bars(
        {title: {f"operation_{n}": parts for n in range(13)} for title in ("products", "results", "seconds")},
        title="Operations",
    )


def chances():
    x = np.linspace(0, 1, 64)
    return plot_chances(
        [Chances(f"plateau{n}, sr{n}", x, x, 0.1 * np.sin(9 * x), 8) for n in range(3, 10)], title="P(up)"
    )


FIGURES = {
    "plot_front": lambda: front(8, 0.8),
    "plot_front, crowded": lambda: front(30, 0.1),
    "plot_front, at one place": lambda: front(12, 0),
    "plot_curves": curves,
    "plot_approximations": approximations,
    "plot_harms": harms,
    "plot_bars": bars,
    "plot_heats": heats,
    "plot_chances": chances,
}


@contextmanager
def drawing():
    """List of the texts that are drawn, with their boxes in pixels."""
    found, draw = [], Text.draw

    def record(text, renderer, *arguments, **options):
        if text.get_visible() and text.get_text().strip():
            found.append((text, Text.get_window_extent(text, renderer)))
        draw(text, renderer, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", record)
        yield found


def texts_of(figure):
    with drawing() as found:
        FigureCanvasAgg(figure).draw()
    # A layout draws some texts before the figure does.
    return list({text: (text, box) for text, box in found}.values())


def intersects(one, other, dpi):
    """True if boxes share more than half a point in both directions."""
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.size) > dpi / 72 / 2


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", FIGURES)
def test_plot_texts_do_not_overlap(kind):
    figure = FIGURES[kind]()
    texts = texts_of(figure)
    assert len(texts) > 5
    pairs = itertools.combinations(texts, 2)
    assert [(a.get_text(), b.get_text()) for (a, one), (b, other) in pairs if intersects(one, other, figure.dpi)] == []
    outside = [text.get_text() for text, box in texts if np.any(box.min < 0) or np.any(box.max > figure.bbox.max)]
    assert outside == []
    assert to_rgba(figure.get_facecolor())[3] == 0
    for axis in figure.axes:
        marked = [line for line in axis.lines if line.get_marker() not in ("", "None")]
        for line in marked:
            half = line.get_markersize() / 2 * figure.dpi / 72
            for spot in axis.transData.transform(line.get_xydata()):
                mark = Bbox([spot - half, spot + half])
                covered = [
                    text.get_text() for text, box in texts if text in axis.texts and intersects(mark, box, figure.dpi)
                ]
                assert covered == []


def test_plot_texts_cover_every_kind_of_plot():
    assert {name.partition(",")[0] for name in FIGURES} == {name for name in vars(plots) if name.startswith("plot_")}


def test_plot_front_is_logarithmic_for_wide_ranges_only():
    """A narrow range on a logarithmic scale would have ticks such as 1.4 x 10^0."""
    scales = [{axis.get_yscale() for axis in front(8, spread).axes} for spread in (0.1, 2)]
    assert scales == [{"linear"}, {"log"}]


@pytest.mark.slow
def test_plot_front_names_points_beside_them_where_there_is_room():
    figure = front(8, 0.8)
    assert [{text.get_text() for text in axis.texts} for axis in figure.axes] == [set(MACS[:8])] * 2
    crowded = front(30, 0.1)
    assert all({text.get_text() for text in axis.texts} <= {str(n) for n in range(1, 31)} for axis in crowded.axes)
    listed = [text.get_text() for text in crowded.legends[0].get_texts()]
    assert listed[:12] == [f"{number}  {mac}" for number, mac in enumerate(MACS, 1)]


def test_plot_front_labels_points_at_one_place():
    assert [len(axis.texts) for axis in front(6, 0).axes] == [6, 6]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 18, 60, 80], "0 10 20 50 100"),
        ([0, 1, 20], "0 1 2 5 10 20"),
        ([1, 6], "1 2 3 5 7"),
        ([1, 1e5], "10^0 10^1 10^2 10^3 10^4 10^5"),
    ],
)
def test_ticks_of_few_decades_are_plain_numbers(values, ticks):
    panel = Panel("p", values, "lowest")
    figure = plot_front("abcd", range(len(values)), [panel], [True] * 4, xlabel="x", caption="c", title="t")
    FigureCanvasAgg(figure).draw()
    (axis,) = figure.axes
    low, high = axis.get_ylim()
    shown = [label.get_text() for label in axis.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert re.sub(r"\$\\mathdefault|[{}$]", "", " ".join(shown)) == ticks


def test_svg_takes_the_colour_of_the_page(tmp_path):
    write(harms(), tmp_path / "harms.svg")
    text = (tmp_path / "harms.svg").read_text()
    assert "prefers-color-scheme:dark" in text
    assert text.count("#000000") == 1
    assert "#ffffff" not in text


def test_plot_styles_differ_without_colour():
    for figure in (curves(), approximations()):
        for axis in figure.axes:
            lines = [line for line in axis.lines if line.get_marker() not in ("", "None")]
            assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == len(lines) > 3
    (legend,) = front(12, 0.8).legends
    kinds = [key for key, text in zip(legend.legend_handles, legend.get_texts(), strict=True) if "," in text.get_text()]
    assert len({key.get_marker() for key in kinds}) == len({key.get_color() for key in kinds}) * 3 == 12
    # Unreachable and open cells are hatched in two ways.
    assert len({cells.get_hatch() for cells in heats().axes[0].collections}) == 2
