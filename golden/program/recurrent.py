"""Recurrent layers of an emulated program: each step is a product and one chain of element-wise operations.

Bits and rows of the report are those of the operations of which torch composes the layers, forward and backward.
"""

import functools
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from halfulp.golden import kernels
from halfulp.golden.kernels import elementwise
from halfulp.golden.nn.cast import Cast
from halfulp.golden.nn.counts import is_quiet
from halfulp.golden.nn.functional import Call
from halfulp.golden.nn.policy import Policy
from halfulp.hdl.formats import FP32

from . import products, report
from .arithmetic import ARITHMETIC, Steps, compute, number
from .cells import CELLS, HERE, INPUT, THERE, WEIGHT, Cell, Link, Row, gradients, saved_names, shares
from .functions import TABLE_WIDTH
from .site import Place, Site


def suits(policy: Policy) -> bool:
    """Return True if layers may be computed as a whole in a policy without stochastic rounding."""
    element, function = policy.elementwise, policy.functions or policy.elementwise
    sums, _ = products.accumulator(policy, WEIGHT)
    casts = (policy.weights, policy.activations, policy.gradients, policy.bias)
    if element is None or function is None or function.fmt is None or sums is None or None in policy.macs:
        return False
    return (
        policy.device is None
        and not any(one.sparsity or one.scale for one in casts)
        and FP32 not in (element.fmt, function.fmt)
        and function.fmt.width <= TABLE_WIDTH
    )


def cast_of(policy: Policy, operation: str) -> Cast:
    """Return format and rounding of an operation."""
    found = policy.elementwise if operation in ARITHMETIC else policy.functions or policy.elementwise
    assert found is not None
    return found


class _Chain:
    """Operations of a step on tensors by name, computed for each step in one call of the kernel if it supports them."""

    def __init__(self, policy: Policy, links: Sequence[Link], operands: Sequence[str], results: Sequence[str]) -> None:
        self._policy, self.links, self.operands, self._results = policy, links, operands, results
        self._numbers = [number((1.0).hex(), cast_of(policy, "sub"))]
        self._prepared: elementwise.Prepared | None = None
        self._tried = False

    def __call__(self, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Compute results; those of all calls have one shape and strides."""
        if not self._tried:
            self._tried, self._prepared = True, self._prepare(operands, results)
        if self._prepared is not None:
            return self._prepared([one.data_ptr() for one in (*operands, *self._numbers, *results)])
        found = dict(zip(self.operands, operands, strict=True))
        for link in self.links:
            given = tuple(found.get(one, 1.0) for one in link.operands)
            found[link.result] = compute(link.computed, given, cast_of(self._policy, link.name), 0, torch.float32)
        for name, result in zip(self._results, results, strict=True):
            result.copy_(found[name])
        return None

    def _prepare(self, operands: Sequence[Tensor], results: Sequence[Tensor]) -> elementwise.Prepared | None:
        given = [*operands, *self._numbers]
        names = [cast_of(self._policy, link.name) for link in self.links]
        if not elementwise.takes(*given) or any(one.target is None for one in names):
            return None
        steps = Steps(given, {len(operands): cast_of(self._policy, "sub").fmt})
        registers = {name: place for place, name in enumerate([*self.operands, "1"])}
        for link, one in zip(self.links, names, strict=True):
            at = [registers[operand] for operand in link.operands]
            registers[link.result] = steps.add(link.computed, one, *at)
        made = ((registers[name], result) for name, result in zip(self._results, results, strict=True))
        return steps.chain.prepared(*made)


@dataclass
class Layer:
    """Recurrent layer in one direction, in a forward pass and its backward pass."""

    mode: Any
    cell: Cell
    policy: Policy
    place: Place

    def call(self) -> Call:
        """Return the arithmetic of the products."""
        return Call(self.policy, 0, self.place.module, False)

    def record(
        self, row: Row, operation: str, kind: str, arithmetic: str, calls: int, seconds: float, **counts: int
    ) -> None:
        """Add calls to the report, which together have these counts."""
        place = self.mode.here() if row[1] else self.place
        where = {"module": place.module, "source": place.source, "phase": row[0], "operation": operation}
        where |= {"kind": kind, "arithmetic": arithmetic}
        self.mode.owner.record(where, counts, None, seconds, calls)

    def count(self, links: Counter[Link], elements: int, seconds: float) -> None:
        """Count element-wise operations, given with their numbers, on tensors of so many elements."""
        rows: dict[tuple[Row, str], list[int]] = {}
        for link, times in links.items():
            row = rows.setdefault((link.row, link.name), [0, 0])
            row[0] += times * (not link.is_part)
            row[1] += times
        share = seconds / max(sum(links.values()), 1)
        for (where, name), (calls, times) in rows.items():
            if not times:
                continue
            kind = report.ELEMENTWISE if name in ARITHMETIC else report.FUNCTION
            arithmetic = str(cast_of(self.policy, name))
            self.record(where, name, kind, arithmetic, calls, share * times, elements=elements * times)

    def count_products(self, phase: str, operation: str, calls: int, elements: int, steps: int, seconds: float) -> None:
        """Count products of so many results, which are sums of so many steps."""
        if calls:
            counts = {"elements": calls * elements, "macs": calls * elements * steps, "pruned": 0}
            row = phase, False
            self.record(row, operation, report.PRODUCT, self.policy.product(phase), calls, seconds, **counts)

    def forward(self, gates: Tensor, w: Tensor, b: Tensor | None, states: Sequence[Tensor]) -> dict[str, Tensor]:
        """Compute all steps; return the states, beginning with the first ones, and other results, by name."""
        cell, call, (steps, rows, _), width = self.cell, self.call(), gates.shape, w.shape[1]
        found = {name: gates.new_empty(steps + 1, rows, width) for name in cell.states}
        for name, one in zip(cell.states, states, strict=True):
            found[name][0] = one
        saved = saved_names(cell)
        found |= {name: gates.new_empty(steps, rows, width) for name in saved}
        at = {name: one.unbind() for name, one in found.items()}
        parts = [f"{part}{gate}" for part in "hx" for gate in range(cell.gates)]
        chain = _Chain(self.policy, cell.links, [*parts, *cell.states], [*(f"{one}'" for one in cell.states), *saved])
        given, clock = self._by_gate(gates), _Clock()
        for step in range(steps):
            product = products.matmul(call, "forward", at["h"][step], w.t(), ("x", "w"), b).contiguous()
            clock.lap(0)
            of_product = product.unflatten(1, (cell.gates, width)).unbind(1)
            operands = [*of_product, *(one[step] for one in given), *(at[name][step] for name in cell.states)]
            chain(operands, [*(at[name][step + 1] for name in cell.states), *(at[name][step] for name in saved)])
            clock.lap(1)
        operation = "mm" if b is None else "addmm"
        self.count_products("forward", operation, steps, rows * cell.gates * width, width, clock.laps[0])
        self.count(Counter(dict.fromkeys(cell.links, steps)), rows * width, clock.laps[1])
        return found

    def _by_gate(self, x: Tensor) -> list[Sequence[Tensor]]:
        """Return views of a tensor by gate and step."""
        return [one.unbind() for one in x.unflatten(2, (self.cell.gates, -1)).unbind(2)]

    def backward(
        self,
        found: dict[str, Tensor],
        w: Tensor,
        biased: bool,
        behind: Tensor,
        last: Sequence[Tensor | None],
        needed: Sequence[bool],
    ) -> list[Tensor | None]:
        """Return the gradients of gates, weights, bias and first states from those of outputs and last states."""
        cell, call, (steps, rows, width) = self.cell, self.call(), behind.shape
        size, phase = rows * width, WEIGHT if biased else INPUT
        inside = behind.new_empty(steps, rows, cell.gates * width)
        outside = inside if shares(cell) else torch.empty_like(inside)
        into = {"h": self._by_gate(inside)} | ({} if outside is inside else {"x": self._by_gate(outside)})
        at = {name: one.unbind() for name, one in found.items()} | {"out": behind.unbind()}
        carried = {f"{name}>": one for name, one in zip(cell.states, last, strict=True) if one is not None}
        chains: dict[Any, tuple[_Chain, list[str]]] = {}
        links: Counter[Link] = Counter()
        clock, of_inputs = _Clock(), 0
        for step in reversed(range(steps)):
            wanted = frozenset(name for name, need in zip(cell.states, needed, strict=True) if step or need)
            key = (*carried, wanted)
            if key not in chains:
                order = [("h>", HERE), ("out", HERE)]
                if step < steps - 1:
                    order = [("out", HERE), ("h>", THERE), ("product", (phase, False))]
                begins = [("h'", tuple(one for one in order if one[0] in carried or one[0] == "out"))]
                begins += [(f"{name}'", ((f"{name}>", HERE),)) for name in cell.states[1:] if f"{name}>" in carried]
                made = gradients(cell, tuple(begins), wanted)
                results = [made.names[f"{part}{gate}"] for part in into for gate in range(cell.gates)]
                states = [name for name in cell.states if name in made.names]
                results += [made.names[name] for name in states]
                read = {*results, *(one for link in made.links for one in link.operands)}
                operands = [name for name in (*at, *carried) if name in read]
                chains[key] = _Chain(self.policy, made.links, operands, results), states
            chain, states = chains[key]
            links.update(chain.links)
            given = [at[name][step] if name in at else carried[name] for name in chain.operands]
            carried = {f"{name}>": behind.new_empty(rows, width) for name in states}
            chain(given, [*(one[step] for by_gate in into.values() for one in by_gate), *carried.values()])
            clock.lap(1)
            if "h" in wanted:
                product = products.matmul(call, INPUT, inside[step], w, ("gradient", "w"))
                carried["product"] = product.contiguous()
                of_inputs += 1
                clock.lap(0)
        self.count_products(INPUT, "mm", of_inputs, size, cell.gates * width, clock.laps[0])
        first: list[Tensor | None] = [carried.get(f"{name}>") for name in cell.states]
        if needed[0] and (gradient := carried["product"]) is not None:
            if first[0] is not None:
                links[Link("", "add", (), (phase, False))] += 1
                gradient = self._sum([first[0], gradient])
            first[0] = gradient
        self.count(links, size, clock.laps[1])
        return [outside, self._of_weights(call, found["h"][:-1], inside), self._of_bias(inside, biased), *first]

    def _of_weights(self, call: Call, h: Tensor, inside: Tensor) -> Tensor:
        """Return the gradient of the weights: a product for each step, and their sum from the last one on."""
        started, (steps, rows, wide), width = time.perf_counter(), inside.shape, h.shape[2]
        found = self._of_weights_at_once(h, inside)
        if found is None:
            parts = (
                products.matmul(call, WEIGHT, inside[step].t(), h[step], ("gradient", "x"))
                for step in reversed(range(steps))
            )
            found = self._sum(parts)
        seconds = time.perf_counter() - started
        self.count_products(WEIGHT, "mm", steps, wide * width, rows, seconds)
        self.count(Counter({Link("", "add", (), (INPUT, True)): steps - 1}), wide * width, 0.0)
        return found

    def _of_weights_at_once(self, h: Tensor, inside: Tensor) -> Tensor | None:
        """Compute `_of_weights` in one call of a kernel; None if none supports it."""
        (steps, rows, wide), width = inside.shape, h.shape[2]
        element, mac = cast_of(self.policy, "add"), self.policy.weight_gradient
        assert mac is not None
        plain = self.policy.gradients == Cast() == self.policy.activations
        drop = kernels.dropped(element.fmt) if element == Cast(element.fmt) and plain else None
        if drop is None or not (kernels.reads(mac.a, inside) and kernels.reads(mac.b, h)):
            return None
        if not (is_quiet(inside, mac.a) and is_quiet(h, mac.b)):
            return None
        at = (torch.arange(steps).flip(0).unsqueeze(1) * rows + torch.arange(rows)).flatten()
        none = torch.zeros(1, dtype=torch.int64)
        a = kernels.Patches(inside, none, torch.arange(wide), at * wide)
        b = kernels.Patches(h.contiguous(), none, at * width, torch.arange(width))
        parts = rows, drop
        made = kernels.gemm(mac, a, b, None, (1, wide, width), kernels.Words(), None, torch.float32, parts)
        return made[0] if isinstance(made, Tensor) and is_quiet(made, mac.o) else None

    def _of_bias(self, inside: Tensor, biased: bool) -> Tensor | None:
        """Return the gradient of the bias: a sum over the rows for each step, and their sum from the last one on."""
        if not biased:
            return None
        steps, started = len(inside), time.perf_counter()

        def record(where: dict[str, str], counts: dict[str, int], result: Tensor, seconds: float) -> None:
            self.mode.owner.record(where, counts, None, seconds, steps)

        site = Site(self.policy, "sum", WEIGHT, self.place, None, lambda: 0, record, lambda _: False, {})
        found = self._sum(reversed(site.sum(inside, 1, False).unbind()))
        links = Counter({Link("", "add", (), (WEIGHT, False)): steps - 1})
        self.count(links, inside.shape[2], time.perf_counter() - started)
        return found

    def _sum(self, parts: Iterable[Tensor]) -> Tensor:
        """Add tensors in turn."""
        return functools.reduce(
            lambda x, y: compute("add", (x, y), cast_of(self.policy, "add"), 0, torch.float32), parts
        )


class _Clock:
    """Seconds of two kinds of work that alternate."""

    def __init__(self) -> None:
        self.laps, self._last = [0.0, 0.0], time.perf_counter()

    def lap(self, kind: int) -> None:
        """Count the time since the last call."""
        now = time.perf_counter()
        self.laps[kind] += now - self._last
        self._last = now


class _Recurrence(torch.autograd.Function):
    """All steps of a layer in one direction, from the products of its input."""

    @staticmethod
    def forward(ctx: Any, layer: Layer, gates: Tensor, w: Tensor, b: Tensor | None, *states: Tensor) -> Any:
        """Return the outputs of all steps, and the last states."""
        with torch._C._DisableTorchDispatch():
            found = layer.forward(gates, w, b, states)
            results = found["h"][1:].clone(), *(found[name][-1].clone() for name in layer.cell.states)
        ctx.layer, ctx.names, ctx.policies = layer, list(found), layer.mode.owner.policies
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gates, w, b, *states, *found.values())
        return results

    @staticmethod
    def backward(ctx: Any, behind: Tensor | None, *last: Tensor | None) -> Any:
        """Return the gradients of all inputs."""
        layer, owner, needed = ctx.layer, ctx.layer.mode.owner, ctx.needs_input_grad[4:]
        gates, w, b, *rest = ctx.saved_tensors
        states, values = rest[: len(last)], rest[len(last) :]
        given = [one for one in (behind, *last) if one is not None]
        plain = behind is not None and all(type(one) is Tensor and elementwise.takes(one) for one in given)
        mode: Any = _get_current_dispatch_mode()
        same = mode is layer.mode and not mode.modules and ctx.policies is owner.policies
        if same and plain and not torch.is_grad_enabled() and not _transforms():
            with torch._C._DisableTorchDispatch():
                found = dict(zip(ctx.names, values, strict=True))
                return None, *layer.backward(found, w, b is not None, behind, last, needed)
        # Torch differentiates its own operations once more.
        with torch.enable_grad():
            # Each input has a node of its own, at which this backward pass ends.
            inputs: list[Any] = [None if one is None else one.view_as(one) for one in (gates, w, b, *states)]
            with owner, layer.mode.repeated_at(layer.place, ctx.policies):
                results = _in_torch(layer.cell, *inputs)
        pairs = [
            (one, gradient) for one, gradient in zip(results, (behind, *last), strict=True) if gradient is not None
        ]
        wanted = [one for one, need in zip(inputs, ctx.needs_input_grad[1:], strict=True) if need]
        outputs, gradients_of = zip(*pairs, strict=True)
        made = iter(
            torch.autograd.grad(outputs, wanted, gradients_of, create_graph=torch.is_grad_enabled(), allow_unused=True)
        )
        return None, *(next(made) if need else None for need in ctx.needs_input_grad[1:])


def _in_torch(cell: Cell, gates: Tensor, w: Tensor, b: Tensor | None, *states: Tensor) -> list[Tensor]:
    """Compute all steps in the operations of torch, which autograd records."""
    state, outputs = dict(zip(cell.states, states, strict=True)), []
    for given in gates.unbind():
        found = dict(state)
        for part, one in (("h", F.linear(state["h"], w, b)), ("x", given)):
            found |= {f"{part}{gate}": chunk for gate, chunk in enumerate(one.unsafe_chunk(cell.gates, 1))}
        for link in cell.links:
            x, *others = (found[one] for one in link.operands)
            found[link.result] = getattr(x, link.operation.strip("+"))(*others)
        state = {name: found[f"{name}'"] for name in cell.states}
        outputs.append(state["h"])
    return [torch.stack(outputs), *state.values()]


def _transforms() -> bool:
    """Return True inside of `torch.func` and of forward differentiation."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def layers(mode: Any, name: str, given: Sequence[Any]) -> Any:
    """Compute a function of torch for recurrent layers; NotImplemented if its operations have to be separate.

    Parameters
    ----------
    mode : Dispatch
        Dispatch of the running program.
    name : str
        Of `CELLS`.
    given : sequence
        Arguments of the function for inputs of one length.
    """
    # In packed sequences, the second argument has the sizes of batches.
    if len(given) != 9 or not isinstance(given[2], (tuple, list)) or isinstance(given[1], Tensor) != (name != "lstm"):
        return NotImplemented
    x, first, weights, biased, count, dropout, training, both, batch_first = given
    cell, owner = CELLS[name], mode.owner
    states = [first] if isinstance(first, Tensor) else list(first)
    mode.note_operands(weights)
    if owner.values or owner.stochastic or owner.policies.keys() != {"*"} or mode.phase() != "forward":
        return NotImplemented
    policy = owner.policies["*"]
    if not suits(policy):
        return NotImplemented
    ways, each = 2 if both else 1, 4 if biased else 2
    plain = all(type(one) is Tensor for one in (x, *states)) and all(type(one) is nn.Parameter for one in weights)
    tensors = [x, *states, *weights]
    if not plain or len(weights) != count * ways * each or not elementwise.takes(*tensors) or _transforms():
        return NotImplemented
    if any(one.dtype != torch.float32 or not one.numel() for one in tensors) or torch.is_autocast_enabled("cpu"):
        return NotImplemented
    if any(not one.requires_grad for one in weights) and torch.is_grad_enabled():
        return NotImplemented
    if any(not one.is_contiguous() for one in weights) or any(mode._is_weight(one) for one in (x, *states)):
        return NotImplemented
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return NotImplemented
    x = x.transpose(0, 1) if batch_first else x
    by_layer, last = [one.unbind() for one in states], []
    for index in range(count):
        outputs = []
        for way in range(ways):
            number_of = index * ways + way
            w_x, w_h, *biases = weights[number_of * each : (number_of + 1) * each]
            b_x, b_h = biases or (None, None)
            gates = F.linear(x, w_x, b_x)
            layer = Layer(mode, cell, policy, mode.here())
            given_states = [one[number_of] for one in by_layer]
            out, *ends = _Recurrence.apply(layer, gates.flip(0) if way else gates, w_h, b_h, *given_states)
            last.append(ends)
            outputs.append(out.flip(0) if way else out)
        x = torch.cat(outputs, -1) if both else outputs[0]
        if dropout and training and index < count - 1:
            x = torch.dropout(x, dropout, True)
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(ends) for ends in zip(*last, strict=True))
