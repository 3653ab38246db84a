"""Vectors of a packaged unit: operands with the results of the golden model, as lines of hexadecimal digits."""

from typing import TYPE_CHECKING

from halfulp.sim.bench import operations
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.reference import reference

if TYPE_CHECKING:
    from halfulp.units import Unit

COUNT = 1 << 10
"""Number of vectors of a unit."""

_HEAD = """\
// Vectors of {module}: {text}
// A line has the operands, then the results of the golden model. In each, the last port is first:
//   operands {inputs}
//   results  {outputs}
// {order}
"""

_ANY_ORDER = "Each line is an operation of its own."
_IN_ORDER = "The lines are consecutive steps from reset."


def vectors(unit: "Unit", module: str, count: int = COUNT) -> tuple[str, int]:
    """Return the vector file of a unit, which ``$readmemh`` reads, and its number of vectors.

    A line has two hexadecimal numbers, joined by ``_``. The vectors are those of `halfulp sim` with seed 0: directed
    and random, or all inputs if they are few; those of a unit with an accumulator are consecutive steps from reset.

    Parameters
    ----------
    unit : Unit
    module : str
        Name of its module.
    count : int
        Maximum number of vectors.
    """
    codes = operations(unit, count)
    results = reference(unit, codes, chained=unit.stateful)
    inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
    lines = [f"{a}_{b}" for a, b in zip(_words(inputs, codes), _words(outputs, results), strict=True)]
    order = _IN_ORDER if unit.stateful or unit.sources else _ANY_ORDER
    names = (" ".join(f"{port.name}[{port.width}]" for port in reversed(ports.ports)) for ports in (inputs, outputs))
    text, (first, second) = unit.spec.text, names
    head = _HEAD.format(module=module, text=text, inputs=first, outputs=second, order=order)
    return head + "".join(f"{line}\n" for line in lines), len(lines)


def _words(ports: Ports, codes: dict[str, Codes]) -> list[str]:
    """Return packed words in hexadecimal digits."""
    columns = (codes[name].tolist() for name in ports.names)
    return [f"{ports.pack(row):0{-(-ports.width // 4)}x}" for row in zip(*columns, strict=True)]
