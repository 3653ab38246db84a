"""Swapping the layers of any model of torch for those that compute in the arithmetic of a policy."""

import copy
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from halfulp.hdl.specs import MacSpec

from .attention import MultiheadAttention
from .draw import check_seed, seed_of
from .layers import Computed, Conv2d, Linear
from .policy import Policy

TWINS: dict[type[nn.Module], type[Computed]] = {
    nn.Linear: Linear,
    nn.Conv2d: Conv2d,
    nn.MultiheadAttention: MultiheadAttention,
}
"""Layers of torch, and what each is swapped for."""

Rules = Policy | MacSpec | str | Mapping[Any, Policy | MacSpec | str]
"""One policy for all layers, or policies by patterns of names (``fnmatch``) and by types, of which the first counts."""


@dataclass(frozen=True)
class Swap:
    """A layer that was swapped, or that could have been.

    Attributes
    ----------
    name : str
        Of the layer in the model; empty where it is the model.
    kind : str
        Type of torch's layer.
    policy : Policy, optional
        What it computes in now; None where it was left.
    why : str
        Why it was left.
    """

    name: str
    kind: str
    policy: Policy | None
    why: str = ""


@dataclass(frozen=True)
class Conversion:
    """A converted model, and what was swapped. As a text it is a table.

    Attributes
    ----------
    model : Module
    swaps : tuple of Swap
    """

    model: nn.Module
    swaps: tuple[Swap, ...]

    @property
    def swapped(self) -> tuple[Swap, ...]:
        """Those that were."""
        return tuple(swap for swap in self.swaps if swap.policy is not None)

    @property
    def left(self) -> tuple[Swap, ...]:
        """Those that were not."""
        return tuple(swap for swap in self.swaps if swap.policy is None)

    def __str__(self) -> str:
        rows = [("layer", "type", "computes in")]
        rows += [
            (swap.name or "(the model)", swap.kind, str(swap.policy or f"left: {swap.why}")) for swap in self.swaps
        ]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{name:{widths[0]}}  {kind:{widths[1]}}  {text}" for name, kind, text in rows)


def convert(model: nn.Module, policy: Rules, *, seed: int = 0, inplace: bool = False) -> Conversion:
    """Swap the layers of a model for those that compute in the arithmetic of a policy.

    Parameters
    ----------
    model : Module
        Any; of its layers `torch.nn.Linear`, `torch.nn.Conv2d` and `torch.nn.MultiheadAttention` can be swapped, and
        layers that are derived from them and have their forward function. Converted layers get the new policy.
    policy : Policy, MacSpec, str, or mapping
        For all of them, or by patterns of names such as ``"layers.*.linear1"`` and by types such as ``nn.Conv2d``: the
        first that matches counts, ``"fp32"`` leaves a layer as it is, and so does none.
    seed : int
        Of random words; each layer has its own from it and its name.
    inplace : bool
        Change the model itself, instead of a copy.

    Returns
    -------
    Conversion
        The model as ``model``, and all layers that were swapped or left; printed, it is a table.

    Raises
    ------
    TypeError, ValueError
        If a policy is none, a pattern or a type matches no layer that can be swapped, or torch cannot copy the model.

    Notes
    -----
    A swapped layer is the same object with another class, so that its parameters, hooks, parametrizations and whoever
    shares it stay. Where it is in torch's `TransformerEncoderLayer`, that one's fast path, which reads parameters and
    calls no layer, is turned off.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"a model is a Module of torch, not {type(model).__name__}")
    check_seed(seed)
    rules = _rules(policy)
    made = model if inplace else _copied(model)
    found = _layers(made)
    used = {pattern for names, layer in found for pattern in rules if _matches(pattern, names, layer)}
    for pattern in rules:
        if pattern not in used:
            what = pattern.__name__ if isinstance(pattern, type) else repr(pattern)
            known = ", ".join(names[0] or "(the model)" for names, _ in found) or "none"
            raise ValueError(f"{what} matches no layer that can be swapped; those are {known}")
    swaps = []
    for names, layer in found:
        chosen = next((rules[pattern] for pattern in rules if _matches(pattern, names, layer)), None)
        swaps.append(_swap(names[0], layer, chosen, seed))
    swapped = {id(layer) for (_, layer), swap in zip(found, swaps, strict=True) if swap.policy}
    _turn_off_fast_paths(made, swapped)
    return Conversion(made, tuple(swaps))


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:
        # torch copies no tensor that was computed from others, as a pruned weight is.
        raise ValueError(f"torch cannot copy the model, so convert it with inplace=True: {error}") from error


def _rules(policy: Rules) -> dict[str | type[nn.Module], Policy]:
    if not isinstance(policy, Mapping):
        return {"*": Policy.parse(policy)}
    for pattern in policy:
        if not (isinstance(pattern, str) or (isinstance(pattern, type) and issubclass(pattern, nn.Module))):
            raise TypeError(f"layers are named by a pattern or a type of Module, not by {pattern!r}")
    return {pattern: Policy.parse(one) for pattern, one in policy.items()}


def _layers(model: nn.Module) -> list[tuple[list[str], nn.Module]]:
    """Layers that have a twin, each once with all of its names; parts of attention belong to it."""
    found: dict[int, tuple[list[str], nn.Module]] = {}
    inside: set[int] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.MultiheadAttention):
            inside |= {id(part) for part in module.modules() if part is not module}
        if any(isinstance(module, base) for base in TWINS):
            found.setdefault(id(module), ([], module))[0].append(name)
    return [row for key, row in found.items() if key not in inside]


def _matches(pattern: str | type[nn.Module], names: list[str], layer: nn.Module) -> bool:
    if isinstance(pattern, type):
        return isinstance(layer, pattern)
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _swap(name: str, layer: nn.Module, policy: Policy | None, seed: int) -> Swap:
    base = next(base for base in TWINS if isinstance(layer, base))
    twin, kind = TWINS[base], base.__name__
    if policy is None:
        return Swap(name, kind, None, "no pattern names it")
    if isinstance(layer, LazyModuleMixin):
        return Swap(name, kind, None, "its sizes are not known before its first use")
    if not isinstance(layer, Computed):
        if policy.plain and policy.update is None:
            return Swap(name, kind, None, "fp32 is what it computes in")
        if type(layer).forward is not base.forward:
            return Swap(name, kind, None, f"{type(layer).__name__} has a forward function of its own")
        layer.__class__ = _class(twin, base, layer)
    assert isinstance(layer, Computed)
    layer.compute_with(policy, seed_of(seed, name))
    device = next((parameter.device for parameter in layer.parameters()), None)
    if device is not None:
        layer._buffers.update({key: value.to(device) for key, value in layer._buffers.items() if value is not None})
    return Swap(name, kind, policy)


def _class(twin: type[Computed], base: type[nn.Module], layer: nn.Module) -> type[nn.Module]:
    """Class of a swapped layer, in which all that its own class adds stays."""
    own = type(layer)
    inner = own.__bases__[0] if is_parametrized(layer) else own
    made = twin if inner is base else _derived(twin, inner)
    if inner is own:
        return made
    # torch gives a parametrized layer a class with a property, outermost, and takes it away again as such.
    kept = {name: value for name, value in vars(own).items() if name not in ("__dict__", "__weakref__")}
    return type(f"Parametrized{made.__name__}", (made,), kept)


_DERIVED: dict[tuple[type, ...], type[nn.Module]] = {}
"""Classes that are made here, by those that they are of."""


def _derived(*bases: type[nn.Module]) -> type[nn.Module]:
    """Class of a twin and what is derived from its base, one for all layers."""
    if bases not in _DERIVED:
        _DERIVED[bases] = type(bases[0].__name__, bases, {"__reduce_ex__": _reduced})
    return _DERIVED[bases]


def _reduced(layer: nn.Module, protocol: Any) -> tuple[Any, ...]:
    """What pickle and copy make a layer from whose class has no place to be found at: the classes that it is of."""
    parts: Any = object.__reduce_ex__(layer, protocol)
    return _blank, type(layer).__bases__, *parts[2:]


def _blank(*bases: type[nn.Module]) -> nn.Module:
    made = _derived(*bases)
    return made.__new__(made)


def _turn_off_fast_paths(model: nn.Module, swapped: set[int]) -> None:
    """Have torch's encoders call their layers, where some of these were swapped."""
    for module in model.modules():
        if not any(id(part) in swapped for part in module.modules()):
            continue
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
