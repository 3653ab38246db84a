"""Report of the operations of a step in torch's own arithmetic, and of converted layers that were not called."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry
from torch.utils.module_tracker import ModuleTracker

from halfulp.golden.torch_internals import TorchDispatchMode, constant_in_graphs, forward_hooks_of, tree_leaves

from .layers import Computed

_PRODUCTS = {str(operator) for operator in flop_registry} | {
    f"aten.{name}"
    for name in ("mv", "addmv", "dot", "vdot", "addr", "addbmm", "mkldnn_rnn_layer", "_cudnn_rnn", "mkldnn_linear")
}
"""Torch operations that are matrix products or convolutions."""

_MOVES = {f"aten.{name}" for name in ("clone", "copy_", "_to_copy", "cat", "stack", "_unsafe_view", "fill_", "zero_")}
"""Torch operations that only copy or fill."""


@dataclass(frozen=True)
class Observation:
    """Operations of a step in torch's own arithmetic; ``str()`` returns a table.

    Attributes
    ----------
    products : mapping
        Number of matrix products and convolutions by module and operation.
    others : mapping
        Number of other operations on real numbers, such as normalisations, by module and operation.
    uncalled : tuple of str
        Converted layers that were not called, for example because a module reads their weights directly.
    """

    products: Mapping[tuple[str, str], int]
    others: Mapping[tuple[str, str], int]
    uncalled: tuple[str, ...]

    def __str__(self) -> str:
        rows = [("module", "in torch's own arithmetic", "kind")]
        rows += [(name, f"{operation} x {count}", "product") for (name, operation), count in self.products.items()]
        rows += [(name, f"{operation} x {count}", "other") for (name, operation), count in self.others.items()]
        rows += [(name, "never called", "converted layer") for name in self.uncalled]
        return tabulate(rows, tablefmt="plain", disable_numparse=True)


class _Recorder(TorchDispatchMode):
    def __init__(self, tracker: ModuleTracker) -> None:
        super().__init__()
        self.tracker = tracker
        self.products: Counter[tuple[str, str]] = Counter()
        self.others: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket)
        if name.startswith("aten.") and not func.is_view and name not in _MOVES and _real(args) and _real(result):
            deepest = max(self.tracker.parents - {"Global"}, key=len, default="")
            place = deepest.partition(".")[2] or "(the model)"
            (self.products if name in _PRODUCTS else self.others)[place, name.removeprefix("aten.")] += 1
        return result


def _real(parts: Any) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.dtype.is_floating_point for leaf in tree_leaves(parts))


def observe(model: nn.Module, step: Callable[[], object]) -> Observation:
    """Run a step, such as a forward and backward pass, and report the operations in torch's own arithmetic."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Computed)}
    before = {name: layer.called for name, layer in layers.items()}
    for layer in layers.values():
        layer.called = False
    with ModuleTracker() as tracker, _Recorder(tracker) as recorder:
        step()
    uncalled = tuple(name or "(the model)" for name, layer in layers.items() if not layer.called)
    for name, layer in layers.items():
        layer.called = layer.called or before[name]
    return Observation(dict(recorder.products), dict(recorder.others), uncalled)


def report_uncalled(model: nn.Module, arguments: object, output: object) -> None:
    """Warn of converted layers that were not called, as a forward hook that runs once, or at each compilation."""
    if not torch.compiler.is_compiling():
        hooks = forward_hooks_of(model)
        for key in [key for key, hook in hooks.items() if hook is report_uncalled]:
            del hooks[key]
    names = [name for name, module in model.named_modules() if isinstance(module, Computed) and not module.called]
    if names:
        _warn_uncalled(listed(names))


def listed(names: Sequence[str]) -> str:
    """Return the first names of layers, and the number of others, for a warning."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} others" if len(names) > 8 else "")


@constant_in_graphs
def _warn_uncalled(names: str) -> None:
    warnings.warn(
        f"halfulp: the model did not call the converted layers {names}; if it reads their weights directly, it uses "
        "them in torch's own arithmetic (see Conversion.observe)",
        RuntimeWarning,
        stacklevel=3,
    )
