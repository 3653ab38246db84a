"""Floor plan of a systolic array as SVG, read from its RTL, in the colours of the page."""

import re
from collections.abc import Iterator
from html import escape

from amaranth.back import rtlil
from diagrams import SVG, text

from halfulp.units.systolic import Grid

CELL, PITCH, REGISTER, TOP, LEFT = 52, 84, 12, 62, 92
"""Width of a multiply-accumulate, distance of two, size of a register, and margins of the ports, in pixels."""


class FloorPlan:
    """Parts of a grid, found in its RTL.

    Parameters
    ----------
    grid : Grid

    Attributes
    ----------
    rows, columns : int
        Numbers of multiply-accumulates.
    registers : dict of (str, int) to int
        Register stages outside of the multiply-accumulates, by stream and by row or column; 0 where there are none.
    """

    def __init__(self, grid: Grid) -> None:
        netlist = rtlil.convert(grid)
        self.grid = grid
        self.rows = len(set(re.findall(r"^  cell \S+ \\row(\d+)$", netlist, re.MULTILINE)))
        self.columns = len(set(re.findall(r"^  cell \S+ \\element(\d+)$", netlist, re.MULTILINE)))
        found = re.findall(r"^  wire width \d+ \\([abc])(\d+)_after_(\d+)$", netlist, re.MULTILINE)
        lengths = {"a": self.rows, "b": self.columns, "c": self.columns}
        self.registers = {(stream, place): 0 for stream, count in lengths.items() for place in range(count)}
        self.registers |= {(stream, int(place)): int(stages) for stream, place, stages in found}

    def _most(self, stream: str) -> int:
        return max(stages for (name, _), stages in self.registers.items() if name == stream)

    def svg(self, title: str) -> str:
        """Return the plan as one line of SVG."""
        left, top = LEFT + (self._most("a") + 1) * REGISTER + 12, TOP + (self._most("b") + 1) * REGISTER + 12
        right, bottom = left + (self.columns - 1) * PITCH + CELL, top + (self.rows - 1) * PITCH + CELL
        end = bottom + 24 + (self._most("c") + 1) * REGISTER
        parts = [f"<title>{escape(title)}</title>"]
        parts += _port(8, (top + bottom) / 2, "a", f"{self.rows} × {self.grid.mac.a}", LEFT - 16, bottom - top)
        parts += _port(left, TOP / 2, "b", f"{self.columns} × {self.grid.mac.b}", right - left, 34)
        results = f"c: {self.columns} × {self.grid.mac.o}"
        parts += _port(left, end + 29, "drain: queue of finished rows", results, right - left, 34)
        for row in range(self.rows):
            y = top + row * PITCH + CELL / 2
            parts += _line(LEFT - 8, y, left, y, self.registers["a", row])
        for column in range(self.columns):
            x = left + column * PITCH + CELL / 2
            parts += _line(x, TOP / 2 + 17, x, top, self.registers["b", column])
            parts += _line(x, bottom, x, end + 12, self.registers["c", column])
        for row in range(self.rows):
            for column in range(self.columns):
                parts += self._cell(left + column * PITCH, top + row * PITCH, row, column)
        return SVG.format(width=right + 12, height=end + 54) + "".join(parts) + "</svg></div>"

    def _cell(self, x: float, y: float, row: int, column: int) -> Iterator[str]:
        """Multiply-accumulate with its wires to the right and down."""
        middle, depth = CELL / 2, self.grid.depth
        yield f'<rect class="mac" x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="3"/>'
        yield text(x + middle, y + middle + (4 if depth == 1 else -2), f"{row},{column}", "middle")
        if depth > 1:
            yield text(x + middle, y + middle + 14, f"{depth} sums", "middle")
        if column < self.columns - 1:
            yield from _line(x + CELL, y + middle, x + PITCH, y + middle, 0)
        if row < self.rows - 1:
            yield from _line(x + middle, y + CELL, x + middle, y + PITCH, 0)


def _port(x: float, y: float, name: str, shape: str, width: float, height: float) -> Iterator[str]:
    """Port with a stream, its left end at x and its middle at y."""
    box = f'x="{x}" y="{y - height / 2}" width="{width}" height="{height}"'
    yield f'<rect {box} rx="3" stroke-dasharray="4 3"/>'
    yield text(x + width / 2, y - 3, name, "middle")
    yield text(x + width / 2, y + 12, shape, "middle")


def _line(x: float, y: float, to_x: float, to_y: float, stages: int) -> Iterator[str]:
    """Wire to the right or down, with an arrow at its end and register stages at its start."""
    across = y == to_y
    yield f'<path d="M{x} {y}{"H" if across else "V"}{to_x if across else to_y}"/>'
    tip = "m-5 -3l5 3l-5 3" if across else "m-3 -5l3 5l3 -5"
    yield f'<path d="M{to_x} {to_y}{tip}"/>'
    for stage in range(stages):
        along = 6 + stage * REGISTER
        at_x, at_y = (x + along, y - 5) if across else (x - 5, y + along)
        place = f'x="{at_x}" y="{at_y}" width="9" height="10"'
        yield f'<rect class="register" {place} fill="currentColor" fill-opacity="0.3"/>'


def page() -> str:
    """Return the plan of the array on the page of arrays, with its explanation."""
    grid = Grid(mac="e5m2*e5m2+e6m5.rn", n=3, m=4, depth=2)
    plan = FloorPlan(grid)
    skew = sum(plan.registers.values())
    sentence = (
        f"Floor plan of `{grid.name}`, read from its RTL. A filled square is a register stage outside of the "
        f"{plan.rows * plan.columns} multiply-accumulates, {skew} in all: row i of `a` and column j of `b` enter "
        "i and j cycles late, so that the operands of a step meet; results of the first columns wait for the last one."
    )
    return f"{plan.svg(f'Floor plan of {grid.name}')}\n\n{sentence}\n"
