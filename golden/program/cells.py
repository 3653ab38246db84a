"""Recurrent cells as lists of element-wise operations, and the operations of their gradients."""

import functools
from typing import Any, NamedTuple

from .arithmetic import CHAINS

INPUT, WEIGHT = "input_gradient", "weight_gradient"
"""Phases of operations in a backward pass."""

Row = tuple[str, bool]
"""Phase of an operation, and True if the report has it at the place of the backward pass."""

THERE, HERE = (INPUT, False), (INPUT, True)
"""Rows of operations of a backward pass at the places of the layer and of the backward pass."""


class Link(NamedTuple):
    """Element-wise operation: names of its result, of the operation and of its operands, and its row in the report."""

    result: str
    operation: str
    operands: tuple[str, ...]
    row: Row = ("forward", False)

    @property
    def name(self) -> str:
        """Name in torch, without marks."""
        return self.operation.strip("+-_")

    @property
    def computed(self) -> str:
        """Name of the operation that computes it."""
        return "sub" if self.operation == "-add" else self.name

    @property
    def is_part(self) -> bool:
        """True for a part of the operation of the former link."""
        return self.operation.startswith("+")


class Cell(NamedTuple):
    """Recurrent cell: names of its states, number of gates, and operations in the order of torch.

    Operands are the state, such as ``h`` and ``c``, parts ``h0``, ``h1``, ... of its product with the weights, and
    ``x0``, ``x1``, ... of that of the input. Results named ``h'`` and ``c'`` are the next state. An operation with the
    mark ``_`` is in place, and the report has its gradients at the place of the backward pass; ``+`` marks a part of
    the operation before it.
    """

    states: tuple[str, ...]
    gates: int
    links: tuple[Link, ...]


def _cell(states: str, gates: int, text: str) -> Cell:
    words = [line.split() for line in text.strip().splitlines()]
    return Cell(tuple(states), gates, tuple(Link(line[0], line[2], tuple(line[3:])) for line in words))


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
        m = mul_ h2 r
        d = add x2 m
        n = tanh d
        e = sub h n
        s = mul_ e z
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
"""Cells by the functions of torch that compute their layers."""


class Gradients(NamedTuple):
    """Operations of a step of a backward pass, and the names of the gradients of states and gates."""

    links: tuple[Link, ...]
    names: dict[str, str]


Begin = tuple[str, tuple[tuple[str, Row], ...]]
"""Result of a cell, and the gradients that are summed to its own, each with the row of its addition."""


@functools.lru_cache(maxsize=256)
def gradients(cell: Cell, begins: tuple[Begin, ...], wanted: frozenset[str]) -> Gradients:
    """Return the operations of a step in the order of autograd; ``wanted`` are the states that need gradients."""
    links: list[Link] = []
    known: dict[str, tuple[str, bool]] = {}
    """Gradients of values, and True for those that are to be negated."""

    def add(operation: str, operands: tuple[str, ...], row: Row) -> str:
        links.append(Link(f"d{len(links)}", operation, operands, row))
        return links[-1].result

    def give(name: str, gradient: str, row: Row = THERE, negated: bool = False) -> None:
        if name in cell.states and name not in wanted:
            return
        if name in known:
            gradient, negated = add("-add" if negated else "add", (known[name][0], gradient), row), False
        known[name] = gradient, negated

    for name, parts in begins:
        for gradient, row in parts:
            give(name, gradient, row)
    for link in reversed(cell.links):
        gradient, _ = known.pop(link.result)
        row, name = (INPUT, link.operation.endswith("_")), link.name
        x, y = link.operands[0], link.operands[-1]
        if name in ("add", "sub"):
            give(x, gradient)
            give(y, gradient, negated=name == "sub")
        elif name == "mul":
            for one, other in ((x, y), (y, x)):
                if one not in cell.states or one in wanted:
                    give(one, add("mul", (gradient, other), row))
        else:
            found: dict[Any, str] = {"gradient": gradient, "y": link.result, "1": "1"}
            for place, (operation, *operands) in enumerate(CHAINS[f"{name}_backward"]):
                found[place] = add(operation, tuple(found[one] for one in operands), row)
            give(x, found[place])
    return Gradients(tuple(links), {name: gradient for name, (gradient, _) in known.items()})


def saved_names(cell: Cell) -> list[str]:
    """Return the values of a forward step that the backward pass reads, apart from states."""
    begins = tuple((f"{name}'", (("", THERE),)) for name in cell.states)
    made = {link.result for link in cell.links} | {f"h{gate}" for gate in range(cell.gates)}
    return sorted(
        made & {one for link in gradients(cell, begins, frozenset(cell.states)).links for one in link.operands}
    )


def shares(cell: Cell) -> bool:
    """Return True if both products of a gate have one gradient."""
    names = gradients(cell, (("h'", (("", THERE),)),), frozenset(cell.states)).names
    return all(names[f"h{gate}"] == names[f"x{gate}"] for gate in range(cell.gates))
