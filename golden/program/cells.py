"""Recurrent cells as lists of element-wise operations, and the operations of their gradients."""

import functools
from typing import Any, NamedTuple

from .arithmetic import CHAINS

INPUT, WEIGHT = "input_gradient", "weight_gradient"
"""Phases of operations in a backward pass."""


class CellLink(NamedTuple):
    """Element-wise operation: names of its result, of the operation with its marks, and of its operands.

    The mark ``+`` stands for a part of the operation before it, and ``-add`` for the addition of a negated gradient.
    The report counts an operation in its ``phase``.
    """

    result: str
    operation: str
    operands: tuple[str, ...]
    phase: str = "forward"

    @property
    def name(self) -> str:
        """Name in torch, without marks."""
        return self.operation.strip("+-")

    @property
    def computed(self) -> str:
        """Name of the operation in the kernel."""
        return "sub" if self.operation == "-add" else self.name

    @property
    def is_part(self) -> bool:
        """True for a part of the operation before it, which the report counts as one call."""
        return self.operation.startswith("+")


class Cell(NamedTuple):
    """Recurrent cell: names of its states, number of gates, and operations in the order of torch.

    Operands are the states, such as ``h`` and ``c``, and for each gate its part of the product of ``h`` with the
    weights (``h0``, ``h1``, ...) and of the product of the input (``x0``, ``x1``, ...). Results named ``h'`` and ``c'``
    are the next states.
    """

    states: tuple[str, ...]
    gates: int
    links: tuple[CellLink, ...]


def _cell(states: str, gates: int, text: str) -> Cell:
    words = [line.split() for line in text.strip().splitlines()]
    return Cell(tuple(states), gates, tuple(CellLink(line[0], line[2], tuple(line[3:])) for line in words))


CELLS = {
    "rnn_tanh": _cell(
        "h",
        1,
        """
        a = add h0 x0
        h' = tanh a
        """,
    ),
    "gru": _cell(
        "h",
        3,
        """
        a = add h0 x0
        r = sigmoid a
        b = add h1 x1
        z = sigmoid b
        m = mul h2 r
        d = add x2 m
        n = tanh d
        e = sub h n
        s = mul e z
        h' = add s n
        """,
    ),
    "lstm": _cell(
        "hc",
        4,
        """
        p = add h0 x0
        q = +add h1 x1
        r = +add h2 x2
        s = +add h3 x3
        i = sigmoid p
        f = sigmoid q
        g = tanh r
        o = sigmoid s
        u = mul f c
        v = mul i g
        c' = add u v
        t = tanh c'
        h' = mul o t
        """,
    ),
}
"""Cells by the name of the function of torch that computes their layers."""


class Gradients(NamedTuple):
    """Operations of a step of a backward pass, and the names of the gradients of states and gates."""

    links: tuple[CellLink, ...]
    names: dict[str, str]


Begin = tuple[str, tuple[tuple[str, str], ...]]
"""Result of a cell, and the gradients whose sum is its gradient, each with the phase of its addition."""


@functools.lru_cache(maxsize=256)
def gradients(cell: Cell, begins: tuple[Begin, ...], wanted: frozenset[str]) -> Gradients:
    """Return the operations of a step of a backward pass, in the order of autograd.

    Parameters
    ----------
    cell : Cell
    begins : tuple of Begin
        Results of the cell that have gradients.
    wanted : frozenset of str
        States that need gradients.
    """
    links: list[CellLink] = []
    known: dict[str, tuple[str, bool]] = {}
    """Gradients by the name of their value; True for those that are still to be negated."""

    def add(operation: str, operands: tuple[str, ...], phase: str = INPUT) -> str:
        links.append(CellLink(f"d{len(links)}", operation, operands, phase))
        return links[-1].result

    def give(name: str, gradient: str, phase: str = INPUT, negated: bool = False) -> None:
        if name in cell.states and name not in wanted:
            return
        if name in known:
            gradient, negated = add("-add" if negated else "add", (known[name][0], gradient), phase), False
        known[name] = gradient, negated

    for name, parts in begins:
        for gradient, phase in parts:
            give(name, gradient, phase)
    for link in reversed(cell.links):
        gradient, negated = known.pop(link.result)
        # Autograd negates the gradient of a subtracted operand; here it is subtracted from an earlier gradient.
        assert not negated
        name, x, y = link.name, link.operands[0], link.operands[-1]
        if name in ("add", "sub"):
            give(x, gradient)
            give(y, gradient, negated=name == "sub")
        elif name == "mul":
            for operand, other in ((x, y), (y, x)):
                if operand not in cell.states or operand in wanted:
                    give(operand, add("mul", (gradient, other)))
        else:
            names: dict[Any, str] = {"gradient": gradient, "y": link.result, "1": "1"}
            for place, (operation, *operands) in enumerate(CHAINS[f"{name}_backward"]):
                names[place] = add(operation, tuple(names[operand] for operand in operands))
            give(x, names[place])
    return Gradients(tuple(links), {name: gradient for name, (gradient, _) in known.items()})


def saved_names(cell: Cell) -> list[str]:
    """Return the names of the values, other than states, that the backward pass reads from a forward step."""
    begins = tuple((f"{name}'", (("", INPUT),)) for name in cell.states)
    made = {link.result for link in cell.links} | {f"h{gate}" for gate in range(cell.gates)}
    return sorted(
        made & {name for link in gradients(cell, begins, frozenset(cell.states)).links for name in link.operands}
    )


def shares_gradients(cell: Cell) -> bool:
    """Return True if the parts of both products in a gate have the same gradient."""
    names = gradients(cell, (("h'", (("", INPUT),)),), frozenset(cell.states)).names
    return all(names[f"h{gate}"] == names[f"x{gate}"] for gate in range(cell.gates))
