"""Chains of element-wise operations of a graph, each computed by one call of the element-wise kernel."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from halfulp.golden.check import broadcast_shape
from halfulp.golden.function_table import FUNCTIONS
from halfulp.golden.kernels import elementwise
from halfulp.golden.nn.cast import DTYPES, Cast, check_holds
from halfulp.golden.nn.policy import Policy
from halfulp.golden.torch_internals import OpOverload

from .arithmetic import ARITHMETIC, RoundingChain, is_tabled, number
from .dispatch import name_of
from .graph import KEY, KEYS
from .site import Site, is_exact_count

LONGEST = 8
"""Largest number of operations of a chain."""


@dataclass(frozen=True)
class GraphLink:
    """Element-wise operation of a chain: name, operands (nodes and numbers), cast, and operands that need no cast."""

    node: Node
    name: str
    operands: tuple[Any, ...]
    cast: Cast
    known: frozenset[Node]

    @property
    def sources(self) -> list[Any]:
        """Operands: nodes, and numbers with the cast."""
        return [
            operand if isinstance(operand, Node) else (float(operand).hex(), self.cast) for operand in self.operands
        ]


@dataclass
class GraphChain:
    """Chain of operations on tensors of one shape; it is computed at the place of the last one.

    Attributes
    ----------
    links : list of GraphLink
    results : list of GraphLink
        Operations whose results are used outside the chain.
    """

    links: list[GraphLink]
    results: list[GraphLink] = field(default_factory=list)

    def inputs(self) -> list[Any]:
        """Return the operands that come from outside: nodes, and numbers with their casts."""
        made = {link.node for link in self.links}
        sources = dict.fromkeys(source for link in self.links for source in link.sources)
        return [source for source in sources if source not in made]

    def fits(self) -> bool:
        """Return True if the kernel takes the chain with all its results."""
        count, steps = len(self.inputs()), sum(1 + len(link.operands) for link in self.links)
        return count + len(self.links) <= elementwise.OPERANDS and count + steps <= elementwise.REGISTERS

    def compute(self, env: Mapping[Node, Any], unrounded: Collection[Node]) -> list[Tensor] | None:
        """Compute the results from the values of nodes; None if no kernel supports it.

        Operands that are ``unrounded`` are rounded even if the graph knows their format.
        """
        inputs = self.inputs()
        tensors = [env[source] if isinstance(source, Node) else number(*source) for source in inputs]
        if not elementwise.takes(*tensors):
            return None
        shape = broadcast_shape(*(tensor.shape for tensor in tensors))
        numbers = {place: source[1].fmt for place, source in enumerate(inputs) if not isinstance(source, Node)}
        steps = RoundingChain(tensors, numbers)
        registers: dict[Any, int] = {source: place for place, source in enumerate(inputs)}
        for link in self.links:
            known = {registers[operand] for operand in link.known if operand in registers and operand not in unrounded}
            given = (registers[source] for source in link.sources)
            registers[link.node] = steps.add(link.name, link.cast, *given, known=known)
        of_shape = [tensor for tensor in tensors if tensor.shape == shape] or [tensors[0].expand(shape)]
        outs = [elementwise.empty_result(shape, of_shape, link.node.meta["val"].dtype) for link in self.results]
        done = steps.chain.run(*((registers[link.node], out) for link, out in zip(self.results, outs, strict=True)))
        return outs if done else None

    def count(self, site_of: Callable[[GraphLink], Site], results: list[Tensor], started: float) -> None:
        """Count all operations in the report, each with an equal share of the time."""
        share = (time.perf_counter() - started) / len(self.links)
        for link in self.links:
            site = site_of(link)
            site.note_constants(link.name, link.cast, link.operands)
            site.count_element(link.name, str(link.cast), results[0], time.perf_counter() - share)


class GraphChains:
    """Chains of a graph.

    Attributes
    ----------
    last : dict
        Chains by the nodes of their last operations.
    inner : set of Node
        Nodes of other operations of chains.
    last_uses : dict
        For each node that runs, the nodes whose values are not used after it.
    """

    def __init__(self, graph: Graph, policy_of: Callable[[Node], Policy | None]) -> None:
        self._places = {node: place for place, node in enumerate(graph.nodes)}
        self._of: dict[Node, GraphChain] = {}
        for node in graph.nodes:
            link = _link(node, policy_of)
            if link is not None:
                self._add(link)
        chains = {id(chain): chain for chain in self._of.values()}.values()
        self.last = {chain.links[-1].node: chain for chain in chains}
        self.inner = self._of.keys() - self.last.keys()
        for chain in chains:
            made = {link.node for link in chain.links}
            chain.results = [link for link in chain.links if set(link.node.users) - made]
        self.last_uses: dict[Node, list[Node]] = {}
        for node in graph.nodes:
            users = [self._of[user].links[-1].node if user in self._of else user for user in node.users]
            if users:
                self.last_uses.setdefault(max(users, key=self._places.__getitem__), []).append(node)

    def _add(self, link: GraphLink) -> None:
        """Add an operation to the chain of one of its operands, or begin a new one."""
        for operand in link.operands:
            chain = self._of.get(operand) if isinstance(operand, Node) else None
            if chain is not None and self._takes(chain, link):
                chain.links.append(link)
                self._of[link.node] = chain
                return
        self._of[link.node] = GraphChain([link])

    def _takes(self, chain: GraphChain, link: GraphLink) -> bool:
        longer = GraphChain([*chain.links, link])
        made = {member.node for member in longer.links}
        users: Iterable[Node] = (user for member in chain.links for user in member.node.users if user not in made)
        # An earlier operation that uses a result cannot wait for the end of the chain.
        return (
            len(chain.links) < LONGEST
            and link.node.meta["val"].shape == chain.links[0].node.meta["val"].shape
            and longer.fits()
            and all(self._places[user] > self._places[link.node] for user in users)
        )


_FUNCTIONS = frozenset(FUNCTIONS) - {"gelu_tanh", "softplus"}


def _link(node: Node, policy_of: Callable[[Node], Policy | None]) -> GraphLink | None:
    """Return an operation as part of a chain; None if the kernel does not support it."""
    value = node.meta.get("val")
    if not isinstance(node.target, OpOverload) or not all(map(_is_operand, node.args)):
        return None
    if not isinstance(value, Tensor) or not _is_tensor(value):
        return None
    step = _step(node)
    if step is None:
        return None
    name, operands = step
    cast = _cast(name, policy_of(node))
    if cast is None or cast.fmt is None or any(is_exact_count(name, operand, cast.fmt) for operand in operands):
        return None
    try:
        for dtype in (torch.float32, value.dtype):
            check_holds(dtype, cast.fmt)
    except ValueError:
        # The operation raises it when it runs.
        return None
    known = zip(node.all_input_nodes, node.meta[KEY].known, strict=False)
    return GraphLink(node, name, operands, cast, frozenset(operand for operand, fmt in known if cast.keeps(fmt)))


def _step(node: Node) -> tuple[str, tuple[Any, ...]] | None:
    """Return the name and the operands of an operation in the kernel; None if it has none."""
    base, named = name_of(node.target)[0], {name: value for name, value in node.kwargs.items() if name != KEYS}
    x = node.args[0] if node.args else None
    if base == "gelu" and named.keys() <= {"approximate"}:
        return "gelu_tanh" if named.get("approximate") == "tanh" else "gelu", node.args[:1]
    if named:
        return None
    if base in _FUNCTIONS and len(node.args) == 1:
        return base, node.args
    if base in ("add", "sub", "mul", "div", "true_divide") and len(node.args) == 2:
        return base if base in ARITHMETIC else "div", node.args
    if base == "rsub" and len(node.args) == 2:
        return "sub", (node.args[1], x)
    return {"sqrt": ("sqrt", (x,)), "square": ("mul", (x, x)), "reciprocal": ("div", (1, x))}.get(base)


def _cast(name: str, policy: Policy | None) -> Cast | None:
    """Return the rounding of an operation; None if the kernel does not have it."""
    if policy is None:
        return None
    cast = policy.rounding_of(name)
    if (
        policy.operator_of(name) is not None
        or cast is None
        or cast.fmt is None
        or cast.target is None
        or cast.rounding.bits
    ):
        return None
    return cast if name in ARITHMETIC or is_tabled(name, cast) else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in DTYPES and all(isinstance(size, int) for size in value.shape)


def _is_operand(value: Any) -> bool:
    if isinstance(value, Node):
        return _is_tensor(value.meta.get("val"))
    return isinstance(value, (int, float)) and not isinstance(value, bool)
