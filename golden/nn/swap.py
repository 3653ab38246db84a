"""Conversion of torch models: replace layers by layers that compute in the arithmetic of a policy."""

import copy
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from halfulp.golden.torch_internals import FORWARD, buffers_of, forward_hooks_of
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.specs import MacSpec
from halfulp.tools import html

from .activation import PiecewiseLinear
from .attention import MultiheadAttention
from .counts import warned
from .draw import EVALUATIONS, REPEAT, check_seed, seed_of
from .layers import Computed, Conv2d, Linear, Stateful
from .observe import Observation, listed, observe, report_uncalled
from .policy import Policy
from .select import Candidate, Pattern, check_pattern, matches
from .update import expect_update

TWINS: dict[type[nn.Module], type[Computed]] = {
    nn.Linear: Linear,
    nn.Conv2d: Conv2d,
    nn.MultiheadAttention: MultiheadAttention,
}
"""Torch layers and their replacements."""

_UNKNOWN = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.RNNBase, nn.RNNCellBase, nn.Bilinear),
)
"""Torch layers with matrix products that have no replacement."""

Rules = Policy | MacSpec | str | Mapping[Any, Policy | MacSpec | str]
"""One policy for all layers or operations, or policies by `select.Pattern`; the first match counts."""


@dataclass(frozen=True)
class Swap:
    """Layer with matrix products in a converted model.

    Attributes
    ----------
    name : str
        Name of the layer in the model; empty for the model itself.
    kind : str
        Name of the torch layer.
    policy : Policy, optional
        Arithmetic after the conversion; None if the layer was not swapped.
    why : str
        Reason for which the layer was not swapped.
    """

    name: str
    kind: str
    policy: Policy | None
    why: str = ""


@dataclass(frozen=True)
class Conversion:
    """Converted model; ``str()`` returns a table of its layers.

    Attributes
    ----------
    model : Module
        Converted model.
    swaps : tuple of Swap
        Layers with matrix products, swapped or not.
    """

    model: nn.Module
    swaps: tuple[Swap, ...]

    @property
    def swapped(self) -> tuple[Swap, ...]:
        """Layers that were swapped."""
        return tuple(swap for swap in self.swaps if swap.policy is not None)

    @property
    def left(self) -> tuple[Swap, ...]:
        """Layers that were not swapped."""
        return tuple(swap for swap in self.swaps if swap.policy is None)

    def observe(self, step: Callable[[], object]) -> Observation:
        """Run a step, such as a forward and backward pass, and report the operations in torch's own arithmetic."""
        return observe(self.model, step)

    @property
    def _table(self) -> list[tuple[str, str, str]]:
        rows = [("layer", "type", "computes in")]
        return rows + [
            (swap.name or "(the model)", swap.kind, str(swap.policy or f"not swapped: {swap.why}"))
            for swap in self.swaps
        ]

    def __str__(self) -> str:
        return tabulate(self._table, tablefmt="plain", disable_numparse=True)

    def _repr_html_(self) -> str:
        """Return the table of layers for notebooks."""
        header, *rows = self._table
        return html.table("Layers with matrix products", rows, header)


def convert(
    model: nn.Module, policy: Rules, *, seed: int = 0, inplace: bool = False, evaluation: str = REPEAT
) -> Conversion:
    """Convert a model: its layers then compute in the arithmetic of a policy.

    Parameters
    ----------
    model : Module
        Model with layers `torch.nn.Linear`, `torch.nn.Conv2d` or `torch.nn.MultiheadAttention`, or subclasses with the
        same forward function. Layers that were converted before get the new policy.
    policy : Policy, MacSpec, str, or mapping
        Policy of all layers, or policies by name pattern such as ``"layers.*.linear1"`` or ``"layers.* !*.linear1"``,
        which excludes, by type such as ``nn.Conv2d``, or by a function of a `Candidate`. The first match counts; layers
        without a match, or with ``"fp32"``, do not change.
    seed : int
        Seed of the random words; each layer derives its own seed from it and from its name.
    inplace : bool
        Change the model itself instead of a copy.
    evaluation : str
        Random words in evaluation: ``repeat`` restarts the same sequence at each ``eval()``, ``freeze`` gives each use
        the same words, ``continue`` continues with those of training.

    Returns
    -------
    Conversion
        Converted model and its layers.

    Raises
    ------
    TypeError, ValueError
        If a policy is invalid, a pattern or type matches no layer that can be swapped, torch cannot copy the model, or
        a model that is itself a layer would have to be replaced in place.

    Notes
    -----
    A swapped layer is a new module in the place of the old one, with its parameters, hooks, parametrizations and other
    attributes; code that calls the old layer by a reference of its own stays in torch's arithmetic. Layers with matrix
    products that the policy covers but that have no replacement, such as `torch.nn.LSTM`, stay in torch's arithmetic,
    and a warning names them. The first call of the model, and each compilation, warns of swapped layers that were not
    called. In torch's `TransformerEncoderLayer` the fast path, which reads parameters without calling layers, is
    disabled. The ``update`` of a policy takes effect only through a `WeightUpdate`; the first step of an optimiser
    without one warns.
    """
    check_seed(seed)
    warned.clear()
    check_one_of("evaluation", evaluation, EVALUATIONS)
    if not isinstance(policy, Mapping):
        policy = {"*": policy}
    made = _copied(model, inplace)
    layers = _layers(made, tuple(TWINS))
    if not layers:
        known = ", ".join(kind.__name__ for kind in TWINS)
        raise ValueError(f"{type(model).__name__} has no layer that can be swapped: expected {known}, or subclasses")
    rules = {pattern: Policy.parse(text) for pattern, text in policy.items()}
    left = [(names, layer, _first_name(policy, names, layer)) for names, layer in _layers(made, _UNKNOWN, TWINS)]
    excluding = {pattern for *_, pattern in left if pattern is not None and rules[pattern].plain}
    chosen = _chosen(policy, layers, "layer that can be swapped", excluding)
    swaps, swapped = [], set()
    for (names, layer), pattern in zip(layers, chosen, strict=True):
        swap, twin = _swap(names[0], layer, None if pattern is None else rules[pattern], seed, fixed=layer is model)
        swaps.append(swap)
        if swap.policy:
            swapped.add(id(twin))
        for name in names if twin is not layer else ():
            if name:
                made.set_submodule(name, twin)
            else:
                made = twin
    for module in made.modules():
        if isinstance(module, Stateful):
            module.evaluation = evaluation
    if swapped and report_uncalled not in forward_hooks_of(made).values():
        made.register_forward_hook(report_uncalled)
    _turn_off_fast_paths(made, swapped)
    for names, layer, pattern in left:
        swaps.append(Swap(names[0], type(layer).__name__, None, "halfulp does not implement this layer"))
        chosen.append(pattern)
    covering = {pattern for pattern, rule in rules.items() if not rule.plain}
    every = [*(layer for _, layer in layers), *(layer for _, layer, _ in left)]
    found = zip(every, swaps, chosen, strict=True)
    _warn_of_unswapped({layer: swap for layer, swap, pattern in found if swap.policy is None and pattern in covering})
    return Conversion(made, tuple(swaps))


_NAMED = "_halfulp_named"
"""Attribute of layers that a warning has named, which copies of the layer have too."""


def _warn_of_unswapped(left: Mapping[nn.Module, Swap]) -> None:
    """Warn once of each layer that a policy covers and that stays in torch's own arithmetic."""
    new = [swap for layer, swap in left.items() if not getattr(layer, _NAMED, False)]
    for layer in left:
        setattr(layer, _NAMED, True)
    if new:
        layers = listed([_shown(swap.name, swap.kind) for swap in new])
        warnings.warn(
            "halfulp: the policy covers layers that convert does not swap, and which stay in torch's own arithmetic: "
            f"{layers}; golden.emulate computes them, and ' !{new[0].name or 'NAME'}' behind a pattern excludes one",
            RuntimeWarning,
            stacklevel=3,
        )


def _shown(name: str, kind: str) -> str:
    return f"{repr(name) if name else 'the model'} ({kind})"


def swap_activations(model: nn.Module, swaps: Mapping[Any, PiecewiseLinear], *, inplace: bool = False) -> nn.Module:
    """Replace modules such as `torch.nn.Tanh` by piecewise linear functions.

    Parameters
    ----------
    model : Module
        Model with the modules to replace.
    swaps : mapping
        Functions by name pattern such as ``"cell.*"`` or by type such as ``nn.Tanh``; the first match counts.
    inplace : bool
        Change the model itself instead of a copy.

    Returns
    -------
    Module
        Changed model.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type, or a pattern or a type matches no module.
    """
    for twin in swaps.values():
        if not isinstance(twin, PiecewiseLinear):
            raise TypeError(f"values of swaps must be PiecewiseLinear modules, not {type(twin).__name__}")
    made = _copied(model, inplace)
    places = [
        ([f"{prefix}.{name}" if prefix else name], module, parent, name)
        for prefix, parent in list(made.named_modules())
        for name, module in list(parent.named_children())
    ]
    chosen = _chosen(swaps, [(names, module) for names, module, _, _ in places], "module")
    for (_, _, parent, name), pattern in zip(places, chosen, strict=True):
        if pattern is not None:
            setattr(parent, name, copy.deepcopy(swaps[pattern]))
    return made


def _copied(model: nn.Module, inplace: bool) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, not {type(model).__name__}")
    try:
        return model if inplace else copy.deepcopy(model)
    except RuntimeError as error:
        # torch cannot copy tensors that were computed from others, such as pruned weights.
        raise ValueError(f"torch cannot copy the model; convert it with inplace=True ({error})") from error


def _chosen(
    patterns: Iterable[Any],
    modules: Sequence[tuple[list[str], nn.Module]],
    what: str,
    excluding: Collection[Any] = (),
) -> list[Any]:
    """Return the first matching pattern or type of each module.

    ValueError if a pattern or type matches none, unless it is one of ``excluding``, which match other modules.
    """
    for pattern in patterns:
        check_pattern(pattern, operations=False)
        if pattern not in excluding and not any(_matches(pattern, names, module) for names, module in modules):
            shown = repr(pattern) if isinstance(pattern, str) else getattr(pattern, "__name__", repr(pattern))
            known = [_shown(names[0], type(module).__name__) for names, module in modules]
            typed = any(type(module).__name__ == pattern for _, module in modules)
            hint = f"; for the type, give the class {pattern} and not its name" if typed else ""
            there = f"the {what.split(maxsplit=1)[0]}s are {', '.join(known)}" if known else "there are none"
            raise ValueError(f"{shown} matches no {what}{hint}; {there}")
    return [_first(patterns, names, module) for names, module in modules]


def _first(patterns: Iterable[Any], names: list[str], module: nn.Module) -> Any:
    """Return the first pattern or type that matches a module; None if none does."""
    return next((pattern for pattern in patterns if _matches(pattern, names, module)), None)


def _first_name(patterns: Iterable[Any], names: list[str], layer: nn.Module) -> Any:
    """Return the first text or type that matches a layer that cannot be swapped; functions are for those that can."""
    named = [pattern for pattern in patterns if isinstance(pattern, (str, type))]
    for pattern in named:
        check_pattern(pattern, operations=False)
    return _first(named, names, layer)


def _layers(
    model: nn.Module, kinds: tuple[type[nn.Module], ...], others: Iterable[type] = ()
) -> list[tuple[list[str], nn.Module]]:
    """Return the layers of kinds, each once with all its names, without other kinds and parts of attention layers."""
    layers: dict[int, tuple[list[str], nn.Module]] = {}
    inside: set[int] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.MultiheadAttention):
            inside |= {id(part) for part in module.modules() if part is not module}
        if isinstance(module, kinds) and not isinstance(module, tuple(others)):
            layers.setdefault(id(module), ([], module))[0].append(name)
    return [row for key, row in layers.items() if key not in inside]


def _matches(pattern: Pattern, names: list[str], layer: nn.Module) -> bool:
    return matches(pattern, Candidate(tuple(names), (type(layer),)))


def _swap(name: str, layer: nn.Module, policy: Policy | None, seed: int, fixed: bool) -> tuple[Swap, nn.Module]:
    """Return a layer in the arithmetic of a policy: itself, if it is one of `Computed` or is not swapped.

    ValueError for a layer that is ``fixed`` and would have to be replaced.
    """
    base = next(base for base in TWINS if isinstance(layer, base))
    twin, kind = TWINS[base], base.__name__
    if policy is None:
        return Swap(name, kind, getattr(layer, "policy", None), "no pattern matches it"), layer
    if isinstance(layer, LazyModuleMixin):
        return Swap(name, kind, None, "its sizes are unknown before its first use"), layer
    if not isinstance(layer, Computed):
        if policy.plain and policy.update is None:
            return Swap(name, kind, None, "its policy is fp32"), layer
        if any(_is_own(layer, base, method) for method in FORWARD):
            return Swap(name, kind, None, f"{type(layer).__name__} has its own forward function"), layer
        if fixed:
            raise ValueError(f"the model is itself a {kind}, which cannot be replaced in place; use inplace=False")
        layer = _with_state(_class(twin, base, layer), layer)
    assert isinstance(layer, Computed)
    layer.compute_with(policy, seed_of(seed, name))
    expect_update(layer.parameters(), policy.update)
    layer.layer = name or kind
    device = next((parameter.device for parameter in layer.parameters()), None)
    if device is not None:
        buffers = buffers_of(layer)
        buffers.update({key: value.to(device) for key, value in buffers.items() if value is not None})
    return Swap(name, kind, policy), layer


def _with_state(kind: type[nn.Module], layer: nn.Module) -> nn.Module:
    """Return a module of a class with the state of a layer, as pickle restores one."""
    made = kind.__new__(kind)
    made.__setstate__(vars(layer))
    return made


def _is_own(layer: nn.Module, base: type[nn.Module], method: str) -> bool:
    """Return True if a layer, or its class, has a method in place of that of its base."""
    return method in vars(layer) or getattr(type(layer), method, None) is not getattr(base, method, None)


def _class(twin: type[Computed], base: type[nn.Module], layer: nn.Module) -> type[nn.Module]:
    """Return the class of a swapped layer; it inherits from the twin and from the layer's own class."""
    own = type(layer)
    inner = own.__bases__[0] if is_parametrized(layer) else own
    made = twin if inner is base else _derived(twin, inner)
    if inner is own:
        return made
    # The outermost class of a parametrized layer is made by torch, which also removes it again.
    members = {name: value for name, value in vars(own).items() if name not in ("__dict__", "__weakref__")}
    return type(f"Parametrized{made.__name__}", (made,), members)


_DERIVED: dict[tuple[type, ...], type[nn.Module]] = {}
"""Classes of `_derived`, by their bases."""


def _derived(*bases: type[nn.Module]) -> type[nn.Module]:
    """Return a class with these bases, the same one in each call."""
    if bases not in _DERIVED:
        _DERIVED[bases] = type(bases[0].__name__, bases, {"__reduce_ex__": _reduced})
    return _DERIVED[bases]


def _reduced(layer: nn.Module, protocol: Any) -> tuple[Any, ...]:
    """Reduce a layer for pickle and copy; its class is not in a module and is restored from its bases."""
    parts: Any = object.__reduce_ex__(layer, protocol)
    return _blank, type(layer).__bases__, *parts[2:]


def _blank(*bases: type[nn.Module]) -> nn.Module:
    made = _derived(*bases)
    return made.__new__(made)


def _turn_off_fast_paths(model: nn.Module, swapped: set[int]) -> None:
    """Disable the fast paths of torch's encoders, which do not call their layers, if a layer was swapped."""
    for module in model.modules():
        if not any(id(part) in swapped for part in module.modules()):
            continue
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
