"""Charts of costs as SVG, made from the records, in the colours of the page.

Designs differ by fill and marks, not by colour: the first one is filled, the second outlined, the third dotted.
"""

from collections.abc import Iterator, Mapping, Sequence

from diagrams import SVG, text
from figures import Records

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 320, 56, 44, 60
"""Size of a chart and of its margins, in pixels."""

FORMATS = ("e5m2", "fp16")

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points of each design."""

_FILLS = ('fill="currentColor"', 'fill="none"', 'fill="currentColor" fill-opacity="0.25" stroke-dasharray="3 2"')
_DASHES = ("", ' stroke-dasharray="7 4"', ' stroke-dasharray="2 3"')


def pages(records: Records) -> dict[str, list[str]]:
    """Return the lines of each chart, with its sentence, by the name of its file."""
    return {"chart_luts": list(_luts(records)), "chart_clocks": list(_clocks(records))}


def _luts(records: Records) -> Iterator[str]:
    names = [f"{unit} {fmt}" for unit in ("mul", "add", "fma") for fmt in FORMATS]
    asked = [records.text(f"{name} --round port --flags") for name in names]
    values = {
        "halfulp": [records.row(text)["LUT"] for text in asked],
        "FPnew": [records.peer(text, "FPnew")[0] for text in asked],
    }
    ratios = {name: own / peer for name, own, peer in zip(names, *values.values(), strict=True)}
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    yield (
        f"With the rounding mode as an input and with flags, halfulp takes {100 * ratios[least]:.0f} % (`{least}`) to "
        f"{100 * ratios[most]:.0f} % (`{most}`) of the lookup tables of FPnew."
    )
    yield from (
        "",
        bars("Lookup tables of UltraScale+ (vu9p) with rounding mode as an input and flags", "LUT", names, values),
    )


def _clocks(records: Records) -> Iterator[str]:
    unit = "fma fp16"
    own = records["clocks_stages"]
    own = own[own["unit"] == records.text(unit)]
    series = {"halfulp": list(zip(own["stages"], own["MHz"], strict=True))}
    peers = records["peers"]
    for design in ("FPnew", "FloPoCo"):
        rows = peers[(peers["unit"] == unit) & (peers["design"] == design) & (peers["target"] == "ecp5-85k")]
        series[design] = list(zip(rows["stages"], rows["MHz"], strict=True))
    shared = max(set.intersection(*({stage for stage, _ in points} for points in series.values())))
    at = {design: dict(points)[shared] for design, points in series.items()}
    most = max(stage for design in ("FPnew", "FloPoCo") for stage, _ in series[design])
    best = max(value for design in ("FPnew", "FloPoCo") for _, value in series[design])
    yield (
        f"With {shared:.0f} register stages `{unit}` reaches {at['halfulp']:.0f} MHz, that of FloPoCo "
        f"{at['FloPoCo']:.0f} and that of FPnew, with its rounding mode as an input, {at['FPnew']:.0f}. Measured up to "
        f"{series['halfulp'][-1][0]:.0f} stages, halfulp reaches {series['halfulp'][-1][1]:.0f} MHz; the others, up to "
        f"{most:.0f} stages, at most {best:.0f}."
    )
    yield from ("", lines(f"Clock of {unit} on ECP5 (ecp5-85k), after place and route", "MHz", "stages", series))


def _axis(highest: float, unit: str) -> tuple[list[str], float]:
    """Return the horizontal lines and their numbers, and the number at the top."""
    step = next(size * 10**power for power in range(9) for size in (1, 2, 5) if highest / (size * 10**power) <= 6)
    count = int(-(-highest // step))
    parts = [text(LEFT - 8, TOP - 14, unit, "end")]
    for place in range(count + 1):
        y = _y(place / count)
        parts += [f'<path d="M{LEFT} {y:.1f}H{WIDTH - 8}" stroke-opacity="0.25"/>']
        parts += [text(LEFT - 8, y + 4, f"{place * step:g}", "end")]
    return parts, count * step


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _frame(title: str, designs: Sequence[str], marks: Sequence[str], parts: list[str]) -> str:
    """Return the picture with its title, and the name of each design beside its mark."""
    head, x = [f"<title>{title}</title>", text(LEFT, 14, title, "start")], WIDTH - 100 * len(designs)
    for place, (design, mark) in enumerate(zip(designs, marks, strict=True)):
        head += [mark.format(x=x + 100 * place, y=TOP - 32), text(x + 100 * place + 16, TOP - 28, design, "start")]
    return SVG.format(width=WIDTH, height=HEIGHT) + "".join([*head, *parts]) + "</svg></div>"


def bars(title: str, unit: str, names: Sequence[str], values: Mapping[str, Sequence[float]]) -> str:
    """Return groups of bars, one for each name, with a bar and its number for each design, as one line of SVG."""
    parts, top = _axis(max(map(max, values.values())), unit)
    room = (WIDTH - 8 - LEFT) / len(names)
    size = 0.8 * room / len(values)
    for group, name in enumerate(names):
        for place, numbers in enumerate(values.values()):
            x, y = LEFT + room * (group + 0.1) + place * size, _y(numbers[group] / top)
            parts.append(f'<path d="M{x:.1f} {_y(0):.1f}V{y:.1f}h{size:.1f}V{_y(0):.1f}Z" {_FILLS[place]}/>')
            parts.append(text(x + size / 2, y - 4, f"{numbers[group]:.0f}", "middle"))
        for line, word in enumerate(name.split()[::-1]):
            parts.append(text(LEFT + room * (group + 0.5), HEIGHT - BOTTOM + 16 + 15 * line, word, "middle"))
    marks = [f'<path d="M{{x}} {{y}}v-10h10v10Z" transform="translate(0 4)" {fill}/>' for fill in _FILLS]
    return _frame(title, list(values), marks[: len(values)], parts)


def lines(title: str, unit: str, across: str, series: Series) -> str:
    """Return a line with marks for each design, with the numbers of the first one, as one line of SVG."""
    parts, top = _axis(max(value for points in series.values() for _, value in points), unit)
    last = max(at for points in series.values() for at, _ in points)
    width = WIDTH - 60 - LEFT
    for at in range(int(last) + 1):
        parts.append(text(LEFT + 16 + width * at / last, HEIGHT - BOTTOM + 16, str(at), "middle"))
    parts.append(text(LEFT + 16 + width / 2, HEIGHT - BOTTOM + 32, across, "middle"))
    for points, fill, dash in zip(series.values(), _FILLS, _DASHES, strict=False):
        places = [(LEFT + 16 + width * at / last, _y(value / top)) for at, value in points]
        parts.append(f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {fill}/>' for x, y in places]
        # Numbers of other points would lie upon each other where lines meet.
        shown = places if points is next(iter(series.values())) else places[-1:]
        parts += [
            text(x, y - 8, f"{value:.0f}", "middle")
            for (x, y), (_, value) in zip(shown, points[-len(shown) :], strict=True)
        ]
    marks = [f'<circle cx="{{x}}" cy="{{y}}" r="4" {fill}/>' for fill in _FILLS]
    return _frame(title, list(series), marks[: len(series)], parts)
