"""Selection of layers and of operations of programs by patterns, classes and functions."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from halfulp.golden.torch_internals import all_operations
from halfulp.hdl.formats.checks import did_you_mean

PHASES = ("forward", "backward", "update")
"""Phases of operations in patterns, with ``@`` before them."""

GRADIENTS = ("input_gradient", "weight_gradient")
"""Phases of reports and of products, both of which are in the phase ``backward`` of patterns."""


@dataclass(frozen=True)
class Candidate:
    """Layer or operation for which a policy is selected.

    Attributes
    ----------
    names : tuple of str
        Names of the module in its model; a shared layer has several.
    kinds : tuple of type
        Class of the module; of an operation, those of the modules around it too, the outermost one first.
    operations : tuple of str
        Names of an operation, such as ``aten.exp``, and of the composition that it is a part of; none for a layer.
    phase : str
        ``forward``, ``backward`` or ``update``; empty for a layer.
    """

    names: tuple[str, ...]
    kinds: tuple[type, ...] = ()
    operations: tuple[str, ...] = ()
    phase: str = ""


Pattern = str | type[nn.Module] | Callable[[Candidate], object]
"""Words of which all hold, a class of modules, or a function that returns True.

A word is a pattern (``fnmatch``) of module names, a pattern of operations that begins with ``aten.``, or a phase such
as ``@backward``; an exclamation mark before it excludes.
"""


def check_pattern(pattern: object, operations: bool) -> None:
    """Check a pattern; TypeError or ValueError if it is invalid, or names operations or phases where there are none."""
    if not isinstance(pattern, str):
        if not callable(pattern) or (isinstance(pattern, type) and not issubclass(pattern, nn.Module)):
            raise TypeError(f"policies are for a pattern, a class of Module or a function, not for {pattern!r}")
        return
    for word in _words(pattern):
        part = word.removeprefix("!")
        if part.startswith("@") and part[1:] not in PHASES:
            hint = f"; operations that a report counts as {part[1:]} are in @backward" if part[1:] in GRADIENTS else ""
            raise ValueError(f"unknown phase {part!r} in {pattern!r}: expected @{', @'.join(PHASES)}{hint}")
        if not operations and part.startswith(("@", "aten.")):
            raise ValueError(f"{pattern!r} names an operation or a phase, but layers have none; use golden.emulate")
        if part.startswith("aten.") and not any(fnmatchcase(name, part) for name in _operations()):
            hint = did_you_mean(part, _operations(), "import a library that registers it first")
            raise ValueError(f"{part!r} in {pattern!r} matches no operation of torch: {hint}")


def _operations() -> set[str]:
    """Return the names of the operations that exist now; those in place have no mark of their own."""
    names = {name.partition("::")[2].partition(".")[0] for name in all_operations()}
    return {f"aten.{name if name.endswith('__') else name.removesuffix('_')}" for name in names}


def of_modules(pattern: Pattern) -> bool:
    """Return True for a pattern that names modules, and neither operations nor a phase."""
    if not isinstance(pattern, str):
        return isinstance(pattern, type)
    return not any(word.removeprefix("!").startswith(("@", "aten.")) for word in _words(pattern))


def matches(pattern: Pattern, candidate: Candidate) -> bool:
    """Return True if a pattern selects a candidate."""
    if isinstance(pattern, str):
        return all(_holds(word.removeprefix("!"), candidate) != word.startswith("!") for word in _words(pattern))
    if isinstance(pattern, type):
        return any(issubclass(kind, pattern) for kind in candidate.kinds)
    return bool(pattern(candidate))


@functools.lru_cache(maxsize=1024)
def _words(pattern: str) -> list[str]:
    # The model itself has an empty name.
    return pattern.split() or [""]


def _holds(word: str, candidate: Candidate) -> bool:
    if word.startswith("@"):
        return candidate.phase == word[1:]
    names = candidate.operations if word.startswith("aten.") else candidate.names
    return any(fnmatchcase(name, word) for name in names)
