"""Analysis of a graph of operations: places, phases, roles of products, and formats of results.

The graph is that of AOT autograd: forward pass, then backward pass, in operations of ATen.
"""

import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.fx import Graph, Node

from halfulp.golden.function_table import FUNCTIONS
from halfulp.golden.nn.cast import DTYPES, check_holds
from halfulp.golden.nn.policy import Policy
from halfulp.golden.nn.select import Candidate
from halfulp.golden.torch_internals import (
    CALL_OF_MODULE,
    OpOverload,
    is_compiled,
    is_gradient_of_output,
    modules_of_trace,
)
from halfulp.hdl.formats import Format

from . import products
from .dispatch import is_exact, name_of
from .operations import HANDLERS, IN_BINARY64
from .program import Program
from .site import is_broadcast, names_in, outside

KEY = "halfulp"
"""Entry of a node's ``meta`` that holds its `Operation`."""

KEYS = "halfulp_keys"
"""Argument of operations: keys of random words of the run, which the backward pass takes from the forward pass."""

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "vdot", "convolution", "_convolution"})
_SHAPES = frozenset({"view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "alias"})
"""Operations whose results have all elements of their operand."""

_ELEMENTS = frozenset({"add", "sub", "mul", "div", "true_divide", "rsub", "sqrt", "square", "reciprocal"})
_DIVIDED = frozenset({"mean", "var", "std", "var_mean", "std_mean", "avg_pool2d", "avg_pool3d"})
"""Operations whose last part is element-wise."""
_FUNCTIONS = (FUNCTIONS.keys() | set(IN_BINARY64) | {"gelu"}) - {"gelu_tanh", "softplus"}

_SELECTED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("clone", "_unsafe_view", "cat", "stack", "index", "gather", "index_select", "relu"), (0,)),
    **dict.fromkeys(("amax", "amin", "max", "min", "sort", "topk", "embedding", "max_pool2d_with_indices"), (0,)),
    **dict.fromkeys(("threshold_backward", "triu", "tril", "select_backward", "slice_backward", "_to_copy"), (0,)),
    **dict.fromkeys(("alias", "detach", "expand_copy", "repeat", "lift_fresh", "flip", "roll"), (0,)),
    **dict.fromkeys(("maximum", "minimum", "select_scatter", "slice_scatter", "as_strided_scatter"), (0, 1)),
    "masked_fill": (0, 2),
    "where": (1, 2),
    "scalar_tensor": (0,),
    "full": (1,),
    "full_like": (1,),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), ()),
}
"""Operations that select numbers, with the places of the arguments that have the numbers; others select zeros."""


class _Zeros:
    """Format of tensors of zeros, which every format holds."""


ZEROS = _Zeros()


@dataclass(frozen=True)
class Operation:
    """An operation of a graph.

    Attributes
    ----------
    module, source : str
        Place in the program; a backward operation has that of the forward one.
    kinds : tuple of type
        Classes of the modules around the operation.
    number, place : int
        Numbers of the operation and of its forward operation, which has the key of its random words.
    backward : bool
    sums : str
        Phase of sums.
    roles : tuple, optional
        Phase of a matrix product, roles of its operands, and if they are to be exchanged.
    paired : bool
        The operands of the product are two tensors of activations.
    composition : str
        Name of the composition that it is a part of.
    known : tuple of Format or None
        For each node among the arguments, the format whose numbers it is known to hold.
    """

    module: str
    kinds: tuple[type, ...]
    source: str
    number: int
    place: int
    backward: bool
    sums: str
    roles: tuple[str, tuple[str, str], bool] | None
    paired: bool
    composition: str
    known: tuple[Format | None, ...]


class Analysis:
    """Annotation of the operations of a graph, each with an `Operation` in its ``meta``.

    Attributes
    ----------
    casts, redundant : int
        Number of roundings of operands of element-wise operations and sums, and of those whose operands are numbers of
        the format already.
    """

    def __init__(self, graph: Graph, weights: set[int], program: Program, modules: "Modules") -> None:
        self.casts = self.redundant = 0
        self._program, self._weights, self._modules = program, weights, modules
        self._formats: dict[Node, Any] = {}
        self._tangents: set[Node] = set()
        self._forward: dict[int, list[Node]] = {}
        self._joint = any("partitioner_tag" in node.meta for node in graph.nodes)
        for number, node in enumerate(graph.nodes):
            if is_gradient_of_output(node) or any(source in self._tangents for source in node.all_input_nodes):
                self._tangents.add(node)
            if node.op == "call_function":
                node.meta[KEY] = self._operation(node, number)
                self._formats[node] = self._result(node)

    def _operation(self, node: Node, number: int) -> Operation:
        tag = node.meta.get("partitioner_tag")
        backward = tag == "is_backward" or (tag is None and self._joint)
        same = self._same(node, backward)
        computing = [member for member in same if _is_handled(member)]
        first = self._forward_operation(node, computing if backward else [])
        kinds = {_original(member) for member in same}
        sums = "forward"
        if backward:
            sums = "weight_gradient" if kinds & {"addmm", "convolution", "expand"} else "input_gradient"
        roles, paired = self._roles(node, computing, backward)
        original, own = _original(node), name_of(node.target)[0] if isinstance(node.target, OpOverload) else ""
        if first is not None:
            module, around = first.module, first.kinds
        else:
            # A running program knows no place of a backward operation without a forward one.
            module, around = ("", ()) if backward and not same else self._modules.around(node)
        return Operation(
            module=module,
            kinds=around,
            source=first.source if first else _source(node),
            number=number,
            place=first.place if first else number,
            backward=backward,
            sums=sums,
            roles=roles,
            paired=paired,
            composition="" if original == own else original,
            known=tuple(fmt if isinstance(fmt, Format) else None for fmt in map(self._format, node.all_input_nodes)),
        )

    def _same(self, node: Node, backward: bool) -> list[Node]:
        """Return the forward operations with autograd's number of an operation, after adding a forward one."""
        number = node.meta.get("seq_nr", -1)
        if backward and node.meta.get("partitioner_tag") is None:
            number = self._number_of_product(node)
        same = self._forward.setdefault(number, [])
        if not backward:
            same.append(node)
        elif not same:
            # An operation in place that needs its operand later clones it first; both have the number of the clone.
            following = self._forward.get(number + 1, [])
            same = following if following and _original(following[0]) == "clone" else same
        return same

    @staticmethod
    def _forward_operation(node: Node, forward: list[Node]) -> Operation | None:
        """Return the operation whose place an operation has, of the forward ones with autograd's number; or None."""
        first = forward[0].meta[KEY] if forward else None
        if node.meta.get("is_gradient_acc"):
            # A sum of gradients is at the place of its last summand; torch gives it that of another operation.
            made = [source.meta[KEY] for source in node.all_input_nodes if KEY in source.meta]
            first = max(made, key=lambda operation: operation.number, default=first)
        return first

    def _number_of_product(self, node: Node) -> int:
        """Return autograd's number of the forward product with a factor of a product; -1 without one.

        torch gives the operations in the backward pass of a `torch.autograd.Function` neither tags nor numbers.
        """
        roots = set(map(_root, node.all_input_nodes))
        for number, same in self._forward.items():
            for product in filter(_is_matrix_product, same):
                if _is_matrix_product(node) and roots & set(map(_root, product.all_input_nodes)):
                    return number
        return -1

    def _roles(self, node: Node, forward: Iterable[Node], backward: bool) -> tuple[Any, bool]:
        """Find the roles of the operands of a product, as `Site.roles` does, and if both are activations."""
        if not _is_matrix_product(node):
            return None, False
        a, b = (node.args[place] for place in products.MATRICES[name_of(node.target)[0]])
        weights = [self._is_weight(factor) for factor in (a, b)]
        if not backward:
            return ("forward", ("x", "w"), weights[0] and not weights[1]), not any(weights)
        behind = [factor in self._tangents for factor in (a, b)]
        product = next(filter(_is_matrix_product, forward), None)
        factors: list[Any] = []
        if product is not None:
            factors = [_root(product.args[place]) for place in products.MATRICES[name_of(product.target)[0]]]
        turns = [factors.index(root) if (root := _root(factor)) in factors else None for factor in (a, b)]
        swapped = behind[1] if behind[0] != behind[1] else turns[0] is not None and turns[1] is None
        other = 0 if swapped else 1
        if weights[other]:
            return ("input_gradient", ("gradient", "w"), swapped), False
        of_weight = product is not None and not product.meta[KEY].paired
        if turns[other] == 0 or of_weight:
            return ("weight_gradient", ("gradient", "x"), swapped), not of_weight
        return ("input_gradient", ("gradient", "w"), swapped), True

    def _is_weight(self, node: Any) -> bool:
        while isinstance(node, Node) and node.op == "call_function":
            if not (node.target is operator.getitem or _is_view(node)):
                return False
            node = node.args[0]
        return isinstance(node, Node) and _input(node) in self._weights

    def _format(self, value: Any) -> Any:
        """Return the format whose numbers an argument holds; ZEROS for zeros, None if it is unknown."""
        if isinstance(value, (list, tuple)):
            formats = [self._format(element) for element in value]
            return _common(formats)
        if isinstance(value, Node):
            return self._formats.get(value)
        return ZEROS if value == 0 else value if isinstance(value, (int, float)) else None

    def _result(self, node: Node) -> Any:
        """Return the format of the result of an operation, and count the roundings of its operands."""
        if node.target is operator.getitem:
            return self._format(node.args[0])
        if not isinstance(node.target, OpOverload):
            return None
        base = name_of(node.target)[0]
        if node.target.is_view or is_exact(node.target):
            return self._exact_result(node, base, is_view=node.target.is_view)
        policy = policy_of(node, self._program)
        if policy is None or not _is_real(node) or base not in HANDLERS:
            return None
        operation: Operation = node.meta[KEY]
        if base in PRODUCTS:
            mac = getattr(policy, operation.roles[0] if operation.roles else "forward")
            return mac.o if mac is not None and not node.kwargs else None
        if policy.replaces:
            # Operators have formats of their own.
            return None
        elementwise, functions = policy.rounding_of("add"), policy.rounding_of("exp")
        if base == "sum":
            return self._sum_result(node, policy, operation)
        if base in _ELEMENTS:
            self._count(node, elementwise)
        if base in _ELEMENTS | _DIVIDED:
            return None if elementwise is None else elementwise.fmt
        if base in _FUNCTIONS:
            self._count(node, functions)
            return None if functions is None else functions.fmt
        return None

    def _exact_result(self, node: Node, base: str, *, is_view: bool) -> Any:
        """Return the format of the result of an operation that selects values or changes their signs."""
        places = (0,) if is_view else _SELECTED.get(base)
        if places is None or max(places, default=-1) >= len(node.args):
            return _negated(self._format(node.args[0])) if base in ("neg", "abs") else None
        return _held(_common([self._format(node.args[place]) for place in places]), node)

    def _sum_result(self, node: Node, policy: Policy, operation: Operation) -> Any:
        """Return the format of a sum over dimensions, and count the roundings of its operand."""
        given = node.args[0].meta["val"].shape  # type: ignore[union-attr]  # an operand is a node
        dims = (node.args[1] if len(node.args) > 1 else None) or range(len(given))
        sizes = [given[axis] for axis in dims]  # type: ignore[union-attr]  # dimensions are integers
        if is_broadcast("backward" if operation.backward else "forward", operation.sums, sizes):
            return self._format(node.args[0])
        if not all(isinstance(size, int) for size in sizes):
            return None
        self._count(node, policy.rounding_of("add"))
        acc, _ = products.accumulator(policy, operation.sums)
        return None if acc is None else products.as_cast(acc).fmt

    def _count(self, node: Node, cast: Any) -> None:
        if cast is None:
            return
        known = node.meta[KEY].known
        self.casts += len(known)
        self.redundant += sum(map(cast.keeps, known))


def policy_of(node: Node, program: Program, place: tuple[str, tuple[type, ...]] | None = None) -> Policy | None:
    """Return the policy of an operation of an analysed graph, also as if it had another module and classes around."""
    operation: Operation | None = node.meta.get(KEY)
    if operation is None or not isinstance(node.target, OpOverload):
        return None
    module, kinds = place or (operation.module, operation.kinds)
    names = tuple(f"aten.{name}" for name in (name_of(node.target)[0], operation.composition) if name)
    phase = "backward" if operation.backward else "forward"
    return program.policy_for(Candidate((module,), kinds, names, phase))


def _is_handled(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and name_of(node.target)[0] in HANDLERS


def _is_matrix_product(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and name_of(node.target)[0] in products.MATRICES


def _is_view(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and (node.target.is_view or name_of(node.target)[0] in _SHAPES)


def _is_real(node: Node) -> bool:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) else value
    return isinstance(first, Tensor) and first.dtype in DTYPES


def _input(node: Node) -> Any:
    """Return the index of an input of the compiled function."""
    described = node.meta.get("desc")
    return getattr(described, "idx", None) if node.op == "placeholder" else None


def _root(node: Any) -> Any:
    """Return the node of which a node is a reshaped view."""
    while isinstance(node, Node) and isinstance(node.target, OpOverload) and name_of(node.target)[0] in _SHAPES:
        node = node.args[0]
    return node


def _original(node: Node) -> str:
    """Return the name of the operation before its decomposition."""
    target = node.meta.get("original_aten", node.target)
    return name_of(target)[0] if isinstance(target, OpOverload) else ""


def _common(formats: list[Any]) -> Any:
    """Return the format that holds the numbers of all given formats and all given numbers; None if it is unknown."""
    numbers = [number for number in formats if isinstance(number, (int, float))]
    held = {candidate for candidate in formats if candidate is not ZEROS and not isinstance(candidate, (int, float))}
    if not held and not numbers:
        return ZEROS
    if len(held) != 1 or not isinstance(fmt := held.pop(), Format):
        return numbers[0] if len(formats) == 1 and numbers else None
    return fmt if all(_has(fmt, number) for number in numbers) else None


def _has(fmt: Format, value: float) -> bool:
    return str(fmt.decode(fmt.encode(value, "rz"))) == str(fmt.decode(fmt.encode(value, "ru"))) == str(value)


def _negated(fmt: Any) -> Any:
    """Return the format of negated numbers; None unless each number has a negative."""
    return fmt if fmt is not None and fmt.is_floating_point and fmt.has_inf and fmt.has_negative_zero else None


def _held(fmt: Any, node: Node) -> Any:
    """Return a format if the type of the result holds its numbers, else None."""
    value = node.meta.get("val")
    if isinstance(fmt, Format) and isinstance(value, Tensor):
        try:
            check_holds(value.dtype, fmt)
        except (KeyError, ValueError):
            return None
    return fmt


class Modules:
    """Modules around the operations of a graph, with the names that a running program gives them.

    The outermost module is that of the running call in which torch.compile makes the graph; a graph of a function has
    that of each operation.
    """

    def __init__(self) -> None:
        self._running = running_modules()
        self._checked = {self._running}
        # torch.compile names a module by the expression of the compiled function, and by its id.
        self._known = modules_of_trace()
        self._names: dict[nn.Module, dict[int, str]] = {}

    def around(self, node: Node) -> tuple[str, tuple[type, ...]]:
        """Return the name of the innermost module around an operation, and the classes of all, the outermost first."""
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        inner = [int(key.partition("@")[0]) for key in stack]
        kinds = (*map(type, self._running), *(kind for _, kind in stack.values()))
        if not kinds:
            return "", ()
        root = self._running[0] if self._running else self._known[inner[0]].value
        if root not in self._names:
            self._names[root] = names_in(root)
        return self._names[root].get(inner[-1] if inner else id(self._running[-1]), kinds[-1].__name__), kinds

    def check(self, graph: Graph, program: Program) -> None:
        """Check a call of a graph: RuntimeError if torch.compile runs it in modules whose policies are others."""
        now = running_modules()
        if now in self._checked:
            return
        before, after = (names_in(modules[0])[id(modules[-1])] if modules else "" for modules in (self._running, now))
        for node in graph.nodes:
            operation: Operation | None = node.meta.get(KEY)
            if operation is None:
                continue
            name = operation.module
            if not before or name == before or name.startswith(f"{before}."):
                name = f"{after}.{name.removeprefix(before).lstrip('.')}".strip(".")
            kinds = (*map(type, now), *operation.kinds[len(self._running) :])
            if policy_of(node, program) != policy_of(node, program, (name, kinds)):
                raise RuntimeError(
                    f"torch.compile runs the graph of {operation.module or 'the model'} as {name or 'the model'}, for "
                    "which the policies select other arithmetic; compile the model as one graph (fullgraph=True)"
                )
        self._checked.add(now)


def running_modules() -> tuple[nn.Module, ...]:
    """Return the modules whose calls run in this thread, the outermost first."""
    modules: list[nn.Module] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is CALL_OF_MODULE:
            modules.append(frame.f_locals["self"])
        frame = frame.f_back
    return tuple(module for module in reversed(modules) if not is_compiled(module))


def _source(node: Node) -> str:
    """Return file and line of the program."""
    for line in reversed(str(node.meta.get("stack_trace") or "").splitlines()):
        words = line.strip().split('"')
        if len(words) == 3 and words[0] == "File " and outside(words[1]):
            return f"{Path(words[1]).name}:{words[2].split()[2].rstrip(',')}"
    return ""
