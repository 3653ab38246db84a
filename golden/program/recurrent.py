"""Recurrent layers of an emulated program: each step is a product and one chain of element-wise operations.

Bits and rows of the report are those of the operations of which torch composes the layers, forward and backward.
"""

import functools
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.golden import kernels
from halfulp.golden.function_table import TABLE_WIDTH
from halfulp.golden.kernels import elementwise
from halfulp.golden.nn.cast import Cast
from halfulp.golden.nn.counts import is_quiet
from halfulp.golden.nn.operands import Call
from halfulp.golden.nn.policy import Policy
from halfulp.golden.torch_internals import current_dispatch_mode, is_transformed, without_dispatch
from halfulp.hdl.formats import FP32
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.mma import MmaSpec

from . import products, report
from .arithmetic import ARITHMETIC, RoundingChain, compute, is_tabled, number
from .cells import (
    CELLS,
    INPUT,
    WEIGHT,
    Begin,
    Cell,
    CellLink,
    gradients,
    saved_names,
    shares_gradients,
)
from .site import Place, Site


def _supports(policy: Policy) -> bool:
    """Return True if kernels have the arithmetic of layers in a policy without stochastic rounding."""
    element, function = policy.rounding_of("add"), policy.rounding_of("tanh")
    sums, _ = products.accumulator(policy, WEIGHT)
    casts = (policy.weights, policy.activations, policy.gradients, policy.bias)
    if element is None or function is None or sums is None or None in policy.macs or policy.replaces:
        return False
    if any(isinstance(mac, MmaSpec) for mac in policy.macs):
        return False
    return (
        policy.device is None
        and not any(cast.is_for_operands for cast in casts)
        and function.fmt is not None
        and FP32 not in (element.fmt, function.fmt)
        and function.fmt.width <= TABLE_WIDTH
    )


def _cast_of(policy: Policy, operation: str) -> Cast:
    """Return format and rounding of an operation."""
    cast = policy.rounding_of(operation)
    assert cast is not None
    return cast


class _CellChain:
    """Element-wise operations of a step: one call of the kernel if it supports them, else one after the other.

    Parameters
    ----------
    policy : Policy
    links : sequence of CellLink
    operands, results : sequence of str
        Names of the operands and results of a call.
    """

    def __init__(
        self, policy: Policy, links: Sequence[CellLink], operands: Sequence[str], results: Sequence[str]
    ) -> None:
        self._policy, self.links, self.operands, self._results = policy, links, operands, results
        self._numbers = [number((1.0).hex(), _cast_of(policy, "sub"))]
        self._prepared: elementwise.Prepared | None = None
        self._tried = False

    def __call__(self, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Compute results; operands and results have the same shapes and strides in all calls."""
        if not self._tried:
            self._tried, self._prepared = True, self._prepare(operands, results)
        if self._prepared is not None:
            return self._prepared([tensor.data_ptr() for tensor in (*operands, *self._numbers, *results)])
        values = dict(zip(self.operands, operands, strict=True))
        for link in self.links:
            given = tuple(values.get(operand, 1.0) for operand in link.operands)
            values[link.result] = compute(link.computed, given, _cast_of(self._policy, link.name), 0, torch.float32)
        for name, result in zip(self._results, results, strict=True):
            result.copy_(values[name])
        return None

    def _prepare(self, operands: Sequence[Tensor], results: Sequence[Tensor]) -> elementwise.Prepared | None:
        given = [*operands, *self._numbers]
        casts = [_cast_of(self._policy, link.name) for link in self.links]
        if not elementwise.takes_on_cpu(*given) or any(cast.target is None for cast in casts):
            return None
        links = list(zip(self.links, casts, strict=True))
        if not all(link.computed in ARITHMETIC or is_tabled(link.computed, cast) for link, cast in links):
            return None
        steps = RoundingChain(given, {len(operands): _cast_of(self._policy, "sub").fmt})
        registers = {name: place for place, name in enumerate([*self.operands, "1"])}
        for link, cast in links:
            registers[link.result] = steps.add(link.computed, cast, *(registers[operand] for operand in link.operands))
        made = ((registers[name], result) for name, result in zip(self._results, results, strict=True))
        return steps.chain.prepared(*made)


@dataclass
class Layer:
    """Recurrent layer in one direction, in a forward pass and its backward pass.

    Attributes
    ----------
    mode : Dispatch
        Dispatch of the running program.
    cell : Cell
    policy : Policy
    place : Place
        Place of the layer in the program.
    """

    mode: Any
    cell: Cell
    policy: Policy
    place: Place
    dropped: bool
    """True if dropout follows, under whose place the report has additions to the gradient of the outputs."""

    def call(self) -> Call:
        """Return the arithmetic of the products; they need no random words."""
        return Call(self.policy, 0, self.place.module, False)

    def record(
        self, phase: str, operation: str, kind: str, arithmetic: str, calls: int, seconds: float, **counts: int
    ) -> None:
        """Add calls to the report; time and counts are those of all calls together."""
        where = {"module": self.place.module, "source": self.place.source, "phase": phase, "operation": operation}
        where |= {"kind": kind, "arithmetic": arithmetic}
        self.mode.owner.record(where, counts, None, seconds, calls)

    def count(self, links: Counter[CellLink], elements: int, seconds: float) -> None:
        """Count element-wise operations, as often as ``links`` counts them, on tensors of ``elements`` elements."""
        calls: Counter[tuple[str, str]] = Counter()
        tensors: Counter[tuple[str, str]] = Counter()
        for link, times in links.items():
            calls[link.phase, link.name] += times * (not link.is_part)
            tensors[link.phase, link.name] += times
        share = seconds / max(tensors.total(), 1)
        for (phase, name), times in (+tensors).items():
            kind = report.ELEMENTWISE if name in ARITHMETIC else report.FUNCTION
            arithmetic, own = str(_cast_of(self.policy, name)), calls[phase, name]
            self.record(phase, name, kind, arithmetic, own, share * times, elements=elements * times)

    def count_products(self, phase: str, operation: str, calls: int, elements: int, steps: int, seconds: float) -> None:
        """Count products, each of ``elements`` results that are sums of ``steps`` products of numbers."""
        if calls:
            counts = {"elements": calls * elements, "macs": calls * elements * steps, "pruned": 0}
            arithmetic = self.policy.product(phase)
            self.record(phase, operation, report.PRODUCT, arithmetic, calls, seconds, **counts)

    def forward(self, gates: Tensor, w: Tensor, b: Tensor | None, states: Sequence[Tensor]) -> dict[str, Tensor]:
        """Compute all steps.

        Parameters
        ----------
        gates : Tensor
            Products of the input, of shape (steps, rows, gates * width).
        w, b : Tensor
            Weights of shape (gates * width, width), and bias of the states.
        states : sequence of Tensor
            First states, of shape (rows, width).

        Returns
        -------
        dict of str to Tensor
            By name, the states of all steps, beginning with the first ones, and the results that `backward` reads.
        """
        cell, call, (steps, rows, _), width = self.cell, self.call(), gates.shape, w.shape[1]
        sequences = {name: gates.new_empty(steps + 1, rows, width) for name in cell.states}
        for name, state in zip(cell.states, states, strict=True):
            sequences[name][0] = state
        saved = saved_names(cell)
        sequences |= {name: gates.new_empty(steps, rows, width) for name in saved}
        at = {name: sequence.unbind() for name, sequence in sequences.items()}
        parts = [f"{part}{gate}" for part in "hx" for gate in range(cell.gates)]
        chain = _CellChain(
            self.policy, cell.links, [*parts, *cell.states], [*(f"{name}'" for name in cell.states), *saved]
        )
        given, clock = self._by_gate(gates), _Clock()
        for step in range(steps):
            product = products.matmul(call, "forward", at["h"][step], w.t(), ("x", "w"), b)[0].contiguous()
            clock.lap(0)
            of_product = product.unflatten(1, (cell.gates, width)).unbind(1)
            operands = [*of_product, *(part[step] for part in given), *(at[name][step] for name in cell.states)]
            chain(operands, [*(at[name][step + 1] for name in cell.states), *(at[name][step] for name in saved)])
            clock.lap(1)
        operation = "mm" if b is None else "addmm"
        self.count_products("forward", operation, steps, rows * cell.gates * width, width, clock.laps[0])
        self.count(Counter(dict.fromkeys(cell.links, steps)), rows * width, clock.laps[1])
        return sequences

    def _by_gate(self, x: Tensor) -> list[Sequence[Tensor]]:
        """Return views of a tensor by gate and step."""
        return [gate.unbind() for gate in x.unflatten(2, (self.cell.gates, -1)).unbind(2)]

    def backward(
        self,
        sequences: dict[str, Tensor],
        w: Tensor,
        biased: bool,
        of_outputs: Tensor,
        of_last: Sequence[Tensor | None],
        needed: Sequence[bool],
    ) -> list[Tensor | None]:
        """Compute the backward pass of all steps.

        Parameters
        ----------
        sequences : dict of str to Tensor
            Result of `forward`.
        w : Tensor
            Weights of the states.
        biased : bool
            The layer has a bias of the states.
        of_outputs : Tensor
            Gradient of the outputs, of shape (steps, rows, width).
        of_last : sequence of Tensor
            Gradients of the last states; None for a state without one.
        needed : sequence of bool
            True for each first state that needs a gradient.

        Returns
        -------
        list of Tensor
            Gradients of gates, weights, bias and first states; None where there is no bias or no gradient.
        """
        cell, call, (steps, rows, width) = self.cell, self.call(), of_outputs.shape
        # Gradients of the products of states and of inputs, of all gates and steps; both are equal in some cells.
        of_h = of_outputs.new_empty(steps, rows, cell.gates * width)
        of_x = of_h if shares_gradients(cell) else torch.empty_like(of_h)
        of_gates = {"h": self._by_gate(of_h)} | ({} if of_x is of_h else {"x": self._by_gate(of_x)})
        parts = [f"{part}{gate}" for part in of_gates for gate in range(cell.gates)]
        at = {name: sequence.unbind() for name, sequence in sequences.items()} | {"out": of_outputs.unbind()}
        # Gradients that a step adds to those of its states: ``h>`` and ``c>`` of the next step, and its product.
        carried = {
            f"{name}>": gradient for name, gradient in zip(cell.states, of_last, strict=True) if gradient is not None
        }
        chains: dict[Any, tuple[_CellChain, list[str]]] = {}
        links: Counter[CellLink] = Counter()
        clock, of_inputs = _Clock(), 0
        for step in reversed(range(steps)):
            wanted = frozenset(name for name, need in zip(cell.states, needed, strict=True) if step or need)
            key = (*carried, wanted)
            if key not in chains:
                begins = self._begins(carried, step == steps - 1, biased)
                chains[key] = self._chain_of_gradients(begins, wanted, parts, (*at, *carried))
            chain, states = chains[key]
            links.update(chain.links)
            given = [at[name][step] if name in at else carried[name] for name in chain.operands]
            carried = {f"{name}>": of_outputs.new_empty(rows, width) for name in states}
            chain(given, [*(gate[step] for by_gate in of_gates.values() for gate in by_gate), *carried.values()])
            clock.lap(1)
            if "h" in wanted:
                product, _ = products.matmul(call, INPUT, of_h[step], w, ("gradient", "w"))
                carried["product"] = product.contiguous()
                of_inputs += 1
                clock.lap(0)
        self.count_products(INPUT, "mm", of_inputs, rows * width, cell.gates * width, clock.laps[0])
        first = self._of_first(carried, needed[0], biased, links)
        self.count(links, rows * width, clock.laps[1])
        return [of_x, self._of_weights(call, sequences["h"][:-1], of_h), self._of_bias(of_h, biased), *first]

    def _of_first(
        self, carried: dict[str, Tensor], h_needed: bool, biased: bool, links: Counter[CellLink]
    ) -> list[Tensor | None]:
        """Return the gradients of the first states from those that the first step carries, and count an addition."""
        first: list[Tensor | None] = [carried.get(f"{name}>") for name in self.cell.states]
        if h_needed:
            gradient = carried["product"]
            if first[0] is not None:
                links[CellLink("", "add", (), self._of_product(biased))] += 1
                gradient = self._sum([first[0], gradient])
            first[0] = gradient
        return first

    @staticmethod
    def _of_product(biased: bool) -> str:
        """Return the phase of the addition of the gradient by the product to the other one of ``h``."""
        return WEIGHT if biased else INPUT

    def _begins(self, carried: Collection[str], is_last: bool, biased: bool) -> tuple[Begin, ...]:
        """Return the gradients of the results of a step, in the order in which autograd adds them."""
        of_h = [("out", INPUT), ("h>", INPUT), ("product", self._of_product(biased))]
        if is_last:
            of_h = [("h>", INPUT), ("out", INPUT)]
        others = (name for name in self.cell.states[1:] if f"{name}>" in carried)
        return (
            ("h'", tuple(part for part in of_h if part[0] in {*carried, "out"})),
            *((f"{name}'", ((f"{name}>", INPUT),)) for name in others),
        )

    def _chain_of_gradients(
        self, begins: tuple[Begin, ...], wanted: frozenset[str], parts: Iterable[str], names: Iterable[str]
    ) -> tuple[_CellChain, list[str]]:
        """Return the chain of a step, which reads some of ``names``, and the states whose gradients it computes.

        Its results are the gradients of ``parts``, and then those of these states.
        """
        made = gradients(self.cell, begins, wanted)
        states = [name for name in self.cell.states if name in made.names]
        results = [made.names[name] for name in (*parts, *states)]
        read = {*results, *(operand for link in made.links for operand in link.operands)}
        return _CellChain(self.policy, made.links, [name for name in names if name in read], results), states

    def _of_weights(self, call: Call, h: Tensor, of_h: Tensor) -> Tensor:
        """Return the gradient of the weights: the sum of the products of all steps, beginning with the last one."""
        started, (steps, rows, wide), width = time.perf_counter(), of_h.shape, h.shape[2]
        gradient = self._of_weights_at_once(h, of_h)
        if gradient is None:
            parts = (
                products.matmul(call, WEIGHT, of_h[step].t(), h[step], ("gradient", "x"))[0]
                for step in reversed(range(steps))
            )
            gradient = self._sum(parts)
        seconds = time.perf_counter() - started
        self.count_products(WEIGHT, "mm", steps, wide * width, rows, seconds)
        self.count(Counter({CellLink("", "add", (), INPUT): steps - 1}), wide * width, 0.0)
        return gradient

    def _of_weights_at_once(self, h: Tensor, of_h: Tensor) -> Tensor | None:
        """Compute the gradient of the weights in one call of a kernel; None if none supports it."""
        (steps, rows, wide), width = of_h.shape, h.shape[2]
        element, mac = _cast_of(self.policy, "add"), self.policy.weight_gradient
        if not isinstance(mac, MacSpec):
            return None
        # The kernel rounds operands and sums to nearest.
        nearest = element == Cast(element.fmt) and self.policy.gradients == self.policy.activations == Cast()
        drop = kernels.dropped(element.fmt) if nearest else None
        if drop is None or not (kernels.reads(mac.a, of_h) and kernels.reads(mac.b, h)):
            return None
        if not (is_quiet(of_h, mac.a) and is_quiet(h, mac.b)):
            return None
        # Rows of all steps, beginning with those of the last step.
        at = (torch.arange(steps).flip(0).unsqueeze(1) * rows + torch.arange(rows)).flatten()
        single = torch.zeros(1, dtype=torch.int64)
        a = kernels.Patches(of_h, single, torch.arange(wide), at * wide)
        b = kernels.Patches(h.contiguous(), single, at * width, torch.arange(width))
        shape = (1, wide, width)
        made = kernels.gemm(mac, a, b, None, shape, kernels.Words(), dtype=torch.float32, parts=(rows, drop))
        return made[0] if isinstance(made, Tensor) and is_quiet(made, mac.o) else None

    def _of_bias(self, of_h: Tensor, biased: bool) -> Tensor | None:
        """Return the gradient of the bias: the sum of the sums over rows of all steps, beginning with the last one."""
        if not biased:
            return None
        steps, started = len(of_h), time.perf_counter()

        def record(where: dict[str, str], counts: dict[str, int], result: Tensor, seconds: float) -> None:
            self.mode.owner.record(where, counts, None, seconds, steps)

        site = Site(self.policy, "sum", WEIGHT, self.place, None, lambda: 0, record, lambda _: False, {})
        gradient = self._sum(reversed(site.sum(of_h, 1, False).unbind()))
        links = Counter({CellLink("", "add", (), WEIGHT): steps - 1})
        self.count(links, of_h.shape[2], time.perf_counter() - started)
        return gradient

    def _sum(self, parts: Iterable[Tensor]) -> Tensor:
        """Add tensors one after the other."""
        return functools.reduce(
            lambda x, y: compute("add", (x, y), _cast_of(self.policy, "add"), 0, torch.float32), parts
        )


class _Clock:
    """Seconds of two alternating kinds of work: products (0) and element-wise operations (1)."""

    def __init__(self) -> None:
        self.laps, self._last = [0.0, 0.0], time.perf_counter()

    def lap(self, kind: int) -> None:
        """Count the time since the last call for a kind of work."""
        now = time.perf_counter()
        self.laps[kind] += now - self._last
        self._last = now


class _Recurrence(torch.autograd.Function):
    """All steps of a layer in one direction, from the products of its input."""

    @staticmethod
    def forward(ctx: Any, layer: Layer, gates: Tensor, w: Tensor, b: Tensor | None, *states: Tensor) -> Any:
        """Return the outputs of all steps, and the last states."""
        with without_dispatch():
            sequences = layer.forward(gates, w, b, states)
            results = sequences["h"][1:].clone(), *(sequences[name][-1].clone() for name in layer.cell.states)
        ctx.layer, ctx.names, ctx.policies = layer, list(sequences), layer.mode.owner.policies
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gates, w, b, *states, *sequences.values())
        return results

    @staticmethod
    def backward(ctx: Any, of_outputs: Tensor | None, *of_last: Tensor | None) -> Any:
        """Return the gradients of all inputs."""
        layer, owner, needed = ctx.layer, ctx.layer.mode.owner, ctx.needs_input_grad[4:]
        _, w, b, *rest = ctx.saved_tensors
        given = [gradient for gradient in (of_outputs, *of_last) if gradient is not None]
        plain = of_outputs is not None and all(
            type(gradient) is Tensor and elementwise.takes_on_cpu(gradient) for gradient in given
        )
        mode = current_dispatch_mode()
        same = mode is layer.mode and not mode.calls and ctx.policies is owner.policies
        if same and plain and not torch.is_grad_enabled() and not is_transformed():
            with without_dispatch():
                sequences = dict(zip(ctx.names, rest[len(of_last) :], strict=True))
                return None, *layer.backward(sequences, w, b is not None, of_outputs, of_last, needed)
        return _Recurrence._separate(ctx, of_outputs, *of_last)

    @staticmethod
    def _separate(ctx: Any, *of_results: Tensor | None) -> Any:
        """Return the gradients of all inputs by autograd, from separate operations that are computed again."""
        layer, needed = ctx.layer, ctx.needs_input_grad[1:]
        with torch.enable_grad():
            # Each input has a node of its own, at which this backward pass ends.
            given = ctx.saved_tensors[: len(needed)]
            inputs: list[Any] = [None if tensor is None else tensor.view_as(tensor) for tensor in given]
            with layer.mode.owner, layer.mode.repeated_at(layer.place, ctx.policies):
                results = _in_torch(layer.cell, *inputs)
        pairs = [(result, own) for result, own in zip(results, of_results, strict=True) if own is not None]
        wanted = [tensor for tensor, need in zip(inputs, needed, strict=True) if need]
        again = torch.is_grad_enabled()
        outputs, own = zip(*pairs, strict=True)
        gradients = iter(torch.autograd.grad(outputs, wanted, own, create_graph=again, allow_unused=True))
        return None, *(next(gradients) if need else None for need in needed)


def _in_torch(cell: Cell, gates: Tensor, w: Tensor, b: Tensor | None, *states: Tensor) -> list[Tensor]:
    """Compute all steps in the operations of torch, which autograd records."""
    state, outputs = dict(zip(cell.states, states, strict=True)), []
    for given in gates.unbind():
        values = dict(state)
        for part, preactivations in (("h", F.linear(state["h"], w, b)), ("x", given)):
            values |= {f"{part}{gate}": chunk for gate, chunk in enumerate(preactivations.unsafe_chunk(cell.gates, 1))}
        for link in cell.links:
            x, *others = (values[name] for name in link.operands)
            values[link.result] = getattr(x, link.operation.strip("+"))(*others)
        state = {name: values[f"{name}'"] for name in cell.states}
        outputs.append(state["h"])
    return [torch.stack(outputs), *state.values()]


def _is_whole(mode: Any, name: str, given: Sequence[Any]) -> bool:
    """Return True for a call of recurrent layers that `layers` computes as a whole."""
    # In the call for packed sequences, the second argument has the sizes of batches.
    if len(given) != 9 or not isinstance(given[2], (tuple, list)) or isinstance(given[1], Tensor) != (name != "lstm"):
        return False
    if is_transformed():
        return False
    x, first, weights, biased, count, _, _, both, _ = given
    values, owner = [x, *_states(first)], mode.owner
    mode.note_operands(weights)
    one_policy = owner.policies.keys() == {"*"} and not owner.stochastic and _supports(owner.policies["*"])
    in_forward = mode.phase() == "forward" and not owner.values
    plain_values = all(type(value) is Tensor and not mode._is_weight(value) for value in values)
    plain_weights = _are_plain(weights, count * (2 if both else 1) * (4 if biased else 2))
    real = all(tensor.dtype == torch.float32 and tensor.numel() for tensor in (*values, *weights))
    return (
        one_policy
        and in_forward
        and _is_eager()
        and plain_values
        and plain_weights
        and real
        and elementwise.takes_on_cpu(*values, *weights)
    )


def _is_eager() -> bool:
    """Return False under compilers, transforms and autocast, which see separate operations."""
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]  # torch has no type of it
    return not (torch.compiler.is_compiling() or tracing or torch.is_autocast_enabled("cpu"))


def _are_plain(weights: Sequence[Tensor], number: int) -> bool:
    """Return True for this number of contiguous parameters, none of them frozen in training."""
    # Layers with projections have more weights. Gradients of frozen weights would be computed and counted.
    return len(weights) == number and all(
        type(weight) is nn.Parameter
        and weight.is_contiguous()
        and (weight.requires_grad or not torch.is_grad_enabled())
        for weight in weights
    )


def _states(first: Any) -> list[Tensor]:
    """Return the first states of layers: a tensor, or a sequence of them."""
    return [first] if isinstance(first, Tensor) else list(first)


def layers(mode: Any, name: str, given: Sequence[Any]) -> Any:
    """Compute a function of torch for recurrent layers; NotImplemented if its operations have to be separate.

    Parameters
    ----------
    mode : Dispatch
        Dispatch of the running program.
    name : str
        Name of the function, a key of `CELLS`.
    given : sequence
        Arguments of the function for inputs of one length.

    Returns
    -------
    tuple of Tensor
        Outputs and last states, as of the function.
    """
    if not _is_whole(mode, name, given):
        return NotImplemented
    x, first, weights, biased, count, dropout, training, both, batch_first = given
    ways, each = 2 if both else 1, 4 if biased else 2
    x = x.transpose(0, 1) if batch_first else x
    by_layer, last = [state.unbind() for state in _states(first)], []
    for index in range(count):
        outputs, drops = [], bool(dropout and training and index < count - 1)
        for way in range(ways):
            place = index * ways + way
            w_x, w_h, *biases = weights[place * each : (place + 1) * each]
            b_x, b_h = biases or (None, None)
            gates = F.linear(x, w_x, b_x)
            layer = Layer(mode, CELLS[name], mode.owner.policies["*"], mode.here(), drops and not both)
            states = [state[place] for state in by_layer]
            out, *ends = _Recurrence.apply(layer, gates.flip(0) if way else gates, w_h, b_h, *states)
            last.append(ends)
            outputs.append(out.flip(0) if way else out)
        x = torch.cat(outputs, -1) if both else outputs[0]
        if drops:
            # The mask takes the place of the node before it, which therefore is none of the layer.
            x = torch.dropout(x.view_as(x), dropout, True)
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(ends) for ends in zip(*last, strict=True))
