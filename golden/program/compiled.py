"""Backend of torch.compile: the graph of a program, forward and backward, in the arithmetic of a policy."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Interpreter, Node

from halfulp.golden.nn.policy import Policy
from halfulp.golden.torch_internals import (
    VMAP_IN_GRAPH,
    OpOverload,
    aot_autograd,
    boxed,
    default_partition,
    trace_recurrent_layers,
)

from .chains import GraphChains, GraphLink
from .compositions import compositions, in_graphs
from .dispatch import Dispatch, composite, is_exact, name_of
from .graph import KEY, KEYS, Analysis, Modules, Operation, policy_of
from .operations import HANDLERS
from .program import Program
from .site import Place, Site

NO_GRAPH = "the whole program: torch.compile has made no graph of it, so that nothing was emulated"
"""Entry of ``Report.breaks`` until torch.compile calls the backend with its first graph."""


def _decompositions() -> dict[Any, Any]:
    """Return the parts of all operations without functions of their own."""

    def has_parts(func: Any) -> bool:
        return isinstance(func, OpOverload) and not is_exact(func) and name_of(func)[0] not in HANDLERS

    return {func: parts for func, parts in compositions().items() if has_parts(func)}


class Backend(Program):
    """Backend of `torch.compile` that computes every operation of a graph in the arithmetic of a policy.

    ``emulate.backend`` makes it; parameters as for `emulate`.
    """

    def __init__(self, policy: Any, *, strict: bool = False, seed: int = 0, values: bool = False) -> None:
        super().__init__(policy, strict=strict, seed=seed, values=values)
        if any(any(parsed.histories(False)) for parsed in self.policies.values()):
            raise ValueError("compiled programs have no histories for delayed scaling; use golden.emulate, or current")
        self._report.breaks.append(NO_GRAPH)
        trace_recurrent_layers(self)

    def __call__(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        """Compile a graph of torch.compile."""
        if NO_GRAPH in self._report.breaks:
            self._report.breaks.remove(NO_GRAPH)
        self._check_break(getattr(module, "compile_subgraph_reason", None))
        if any(VMAP_IN_GRAPH in str(node.target) for node in module.graph.nodes):
            raise RuntimeError(
                "compiled programs compute no torch.func.vmap, whose rules replace operations by others; "
                "use golden.emulate, or a loop"
            )
        modules = Modules()
        weights = {place for place, argument in enumerate(inputs) if isinstance(argument, nn.Parameter)}

        def analysed(graph: GraphModule) -> GraphModule:
            analysis = Analysis(graph.graph, weights, self, modules)
            self._report.casts += analysis.casts
            self._report.redundant += analysis.redundant
            if self.stochastic:
                _add_keys(graph)
            return graph

        def partition(joint: GraphModule, given: Any, **parts: Any) -> tuple[GraphModule, GraphModule]:
            return default_partition(analysed(joint), given, **parts)

        def compiled(graph: GraphModule, _: Any) -> Any:
            if not any(KEY in node.meta for node in graph.graph.nodes):
                analysed(graph)

            # Chains have no values of inner results to count.
            chains = GraphChains(graph.graph, lambda node: None if self.values else policy_of(node, self))
            self._report.chains += len(chains.last)
            is_forward = not any(node.meta[KEY].backward for node in graph.graph.nodes if KEY in node.meta)

            def run(given: list[Any]) -> Any:
                if is_forward:
                    modules.check(graph.graph, self)
                return _Run(graph, self, chains).boxed_run(given)

            return boxed(run)

        compile_graph = aot_autograd(
            fw_compiler=compiled,
            bw_compiler=compiled,
            partition_fn=partition,
            decompositions=_decompositions(),
        )
        with composite(), in_graphs():
            return compile_graph(module, inputs)

    def _check_break(self, reason: Any) -> None:
        """Note a break of the graph; refuse it if the program is strict."""
        if reason is None or not reason.graph_break:
            return
        text = reason.reason.strip().splitlines()[0]
        place = f"{reason.user_stack[-1].filename}:{reason.user_stack[-1].lineno}" if reason.user_stack else "the graph"
        if self.strict:
            raise RuntimeError(
                f"torch.compile breaks the graph at {place}, and code between graphs runs in torch's own arithmetic: "
                f"{reason.reason.strip()}"
            )
        self._report.breaks.append(f"{place}: {text}")


def _add_keys(module: GraphModule) -> None:
    """Give all operations the keys of a run as an argument, which the partition saves for the backward pass."""
    nodes = [node for node in module.graph.nodes if isinstance(node.target, OpOverload)]
    if not nodes:
        return
    fake = next(node.meta["val"] for node in nodes if isinstance(node.meta.get("val"), Tensor))
    count = 1 + max(node.meta[KEY].number for node in nodes)
    with module.graph.inserting_before(nodes[0]):
        keys = module.graph.call_function(keys_of_run, (count,))
    keys.meta |= {"val": fake.new_empty(count, dtype=torch.int64), "partitioner_tag": "is_forward"}
    for node in nodes:
        node.kwargs = {**node.kwargs, KEYS: keys}


def keys_of_run(count: int) -> Tensor:
    """Return a tensor for the keys of a run, by the numbers of its operations; 0 stands for a key not yet drawn."""
    return torch.zeros(count, dtype=torch.int64)


class _GraphSite(Site):
    """Operation of a graph, whose roles are known."""

    operation_of_graph: Operation

    def roles(self, a: Tensor, b: Tensor) -> tuple[str, tuple[str, str], bool]:
        """Return the phase of a matrix product, the roles of its operands, and if they are to be exchanged."""
        known = self.operation_of_graph
        self.paired = known.paired
        return known.roles or (known.sums, ("x", "w"), False)

    @property
    def sum_phase(self) -> str:
        """Phase of a sum."""
        return self.operation_of_graph.sums


class _Graph(Dispatch):
    """Dispatch of the operations of a graph."""

    current: Operation
    keys: Tensor | None = None
    """Keys of the forward operations of the run; None without stochastic rounding."""

    def place(self) -> Place:
        """Return the place of the running operation."""
        key = int(self.keys[self.current.place]) if self.current.backward and self.keys is not None else 0
        return Place(self.current.module, self.current.source, self.current.kinds, key or None)

    def phase(self) -> str:
        """Return ``forward`` or ``backward``."""
        return "backward" if self.current.backward else "forward"

    def draw(self, operation: str, operands: list[Tensor]) -> int:
        """Return a new key of random words; in a recomputed region, that of the first pass."""
        if self.current.backward or self.keys is None:
            return self.owner.keys.next(operation, operands)
        key = int(self.keys[self.current.number])
        if not key:
            key = self.owner.keys.next(operation, operands)
            self.keys[self.current.number] = key
        return key

    def site(self, policy: Policy, base: str, place: Place, draw: Callable[[], int]) -> Site:
        """Return the site of the running operation."""
        site = _GraphSite(policy, base, self.phase(), place, None, draw, self.owner.record, lambda _: False, {})
        site.operation_of_graph, site.note = self.current, self.owner.note_constant
        return site


def _sums_of_one(graph: Graph, tangents: Mapping[Node, bool]) -> dict[Node, Node]:
    """Return the sums of two gradients of which one is zero because it follows from outputs that nothing uses.

    Parameters
    ----------
    graph : Graph
        Graph of a backward pass, or of both passes.
    tangents : mapping of Node to bool
        Gradients of outputs; False for zeros, which torch gives to an output without a gradient.
    """
    defined, sums = dict(tangents), {}
    for node in graph.nodes:
        given = [source for source in node.all_input_nodes if source in defined]
        if node in defined or not given:
            continue
        defined[node] = any(defined[source] for source in given)
        is_sum = node.target is torch.ops.aten.add.Tensor and len(given) == 2
        if is_sum and not all(map(defined.get, given)) and defined[node]:
            sums[node] = next(source for source in given if defined[source])
    return sums


class _Run(Interpreter):
    """One run of a graph."""

    def __init__(self, module: GraphModule, owner: Backend, chains: GraphChains) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.garbage_collect_values, self.user_to_last_uses = True, chains.last_uses
        # Errors are one sentence.
        self.extra_traceback = False
        self.dispatch, self.chains = _Graph(owner), chains
        self.unchanged: dict[Node, Node] = {}
        """Sums of gradients with one term, which autograd does not compute, and that term."""
        self.unrounded: set[Node] = set()
        """Nodes with the elements of such a term, which may have another format than the sum."""

    def boxed_run(self, args_list: Any) -> Any:
        """Run the graph; a backward pass has the keys of its forward pass."""
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        tangents: dict[Node, bool] = {}
        for node, value in zip(inputs, args_list, strict=True):
            if node.name.startswith(keys_of_run.__name__):
                self.dispatch.keys = value
            elif node.name.startswith("tangents"):
                tangents[node] = isinstance(value, Tensor) and bool(value.any())
        if not all(tangents.values()):
            self.unchanged = _sums_of_one(self.graph, tangents)
            for node in self.graph.nodes:
                moved = not isinstance(node.target, OpOverload) or node.target.is_view or is_exact(node.target)
                if node in self.unchanged or (moved and not self.unrounded.isdisjoint(node.all_input_nodes)):
                    self.unrounded.add(node)
        return super().boxed_run(args_list)

    def run_node(self, n: Node) -> Any:
        """Run a node in the arithmetic of its policy."""
        if n in self.chains.inner:
            return None
        return self._run_chain(n) if n in self.chains.last else self._run_alone(n)

    def _run_alone(self, n: Node) -> Any:
        if n in self.unchanged:
            return self.env[self.unchanged[n]]
        self.dispatch.current = n.meta.get(KEY)  # type: ignore[assignment]  # only of operations
        return super().run_node(n)

    def _run_chain(self, n: Node) -> Any:
        """Compute the chain that ends with a node."""
        chain, started = self.chains.last[n], time.perf_counter()
        single = any(link.node in self.unchanged for link in chain.links)
        tensors = None if single else chain.compute(self.env, self.unrounded)
        if tensors is None:
            for link in chain.links:
                self.env[link.node] = self._run_alone(link.node)
            return self.env[n]
        chain.count(self._site, tensors, started)
        for link, result in zip(chain.results, tensors, strict=True):
            self.env[link.node] = result
        return self.env.get(n)

    def _site(self, link: GraphLink) -> Site:
        self.dispatch.current = link.node.meta[KEY]
        policy = policy_of(link.node, self.dispatch.owner)
        assert policy is not None
        return self.dispatch.site(policy, link.name, self.dispatch.place(), lambda: 0)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation."""
        kwargs = {name: value for name, value in kwargs.items() if name != KEYS}
        if target is keys_of_run:
            self.dispatch.keys = target(*args)
            return self.dispatch.keys
        if not isinstance(target, OpOverload):
            return target(*args, **kwargs)
        if target is torch.ops.aten.view.default:
            # Results here may have other strides than those of torch, which the graph expects.
            target = torch.ops.aten.reshape.default
        self.dispatch.composition = self.dispatch.current.composition
        return self.dispatch.__torch_dispatch__(target, (), args, kwargs)
