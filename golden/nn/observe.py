"""Report of a step: operations in torch's own arithmetic, and converted layers that nothing called."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.module_tracker import ModuleTracker

from .layers import Computed

_PRODUCTS = {str(one) for one in flop_registry} | {
    f"aten.{name}"
    for name in ("mv", "addmv", "dot", "vdot", "addr", "addbmm", "mkldnn_rnn_layer", "_cudnn_rnn", "mkldnn_linear")
}
"""Matrix products and convolutions of torch."""

_MOVES = {f"aten.{name}" for name in ("clone", "copy_", "_to_copy", "cat", "stack", "_unsafe_view", "fill_", "zero_")}
"""Operations that compute nothing."""


@dataclass(frozen=True)
class Observation:
    """Work of a step outside described arithmetic; its text is a table.

    Attributes
    ----------
    products : mapping
        Counts of matrix products and convolutions in torch's own arithmetic, by module and name of the operation.
    others : mapping
        The same for other operations on real numbers, such as normalisations.
    uncalled : tuple of str
        Converted layers that were not called, for example because a module reads their weights itself.
    """

    products: Mapping[tuple[str, str], int]
    others: Mapping[tuple[str, str], int]
    uncalled: tuple[str, ...]

    def __str__(self) -> str:
        rows = [("module", "in torch's own arithmetic", "kind")]
        rows += [(name, f"{one} x {count}", "product") for (name, one), count in self.products.items()]
        rows += [(name, f"{one} x {count}", "other") for (name, one), count in self.others.items()]
        rows += [(name, "never called", "converted layer") for name in self.uncalled]
        return tabulate(rows, tablefmt="plain", disable_numparse=True)


class _Recorder(TorchDispatchMode):
    def __init__(self, tracker: ModuleTracker) -> None:
        super().__init__()
        self.tracker = tracker
        self.products: Counter[tuple[str, str]] = Counter()
        self.others: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket)
        if name.startswith("aten.") and not func.is_view and name not in _MOVES and _real(args) and _real(found):
            deepest = max(self.tracker.parents - {"Global"}, key=len, default="")
            place = deepest.partition(".")[2] or "(the model)"
            (self.products if name in _PRODUCTS else self.others)[place, name.removeprefix("aten.")] += 1
        return found


def _real(parts: Any) -> bool:
    return any(isinstance(one, Tensor) and one.dtype.is_floating_point for one in tree_leaves(parts))


def observe(model: nn.Module, step: Callable[[], object]) -> Observation:
    """Run a step of a model, forward and backward for example, and report what torch's own arithmetic computed."""
    layers = {name: one for name, one in model.named_modules() if isinstance(one, Computed)}
    before = {name: one.called for name, one in layers.items()}
    for layer in layers.values():
        layer.called = False
    with ModuleTracker() as tracker, _Recorder(tracker) as recorder:
        step()
    uncalled = tuple(name or "(the model)" for name, one in layers.items() if not one.called)
    for name, layer in layers.items():
        layer.called = layer.called or before[name]
    return Observation(dict(recorder.products), dict(recorder.others), uncalled)


def report_uncalled(model: nn.Module, arguments: object, output: object) -> None:
    """Warn of converted layers that the first call of a model, or each one that is compiled, did not call; a hook."""
    if not torch.compiler.is_compiling():
        for key, hook in list(model._forward_hooks.items()):
            if hook is report_uncalled:
                del model._forward_hooks[key]
    names = [name for name, one in model.named_modules() if isinstance(one, Computed) and not one.called]
    if names:
        _warn_uncalled(", ".join(names[:8]) + (f" and {len(names) - 8} others" if len(names) > 8 else ""))


@torch.compiler.assume_constant_result  # so that compilers call it while they trace a model
def _warn_uncalled(names: str) -> None:
    warnings.warn(
        f"halfulp: the model did not call the converted layers {names}; if it reads their weights itself, it computes "
        "with them in torch's own arithmetic (see Conversion.observe)",
        RuntimeWarning,
        stacklevel=3,
    )
