"""Functions that ``torch.compile`` leaves as they are."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from halfulp.golden.torch_internals import is_compiler_loaded

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that a compiled program calls without compiling it.

    `torch.compiler.disable` does the same, but loads the compiler, which takes longer than to load torch.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not is_compiler_loaded():
            return function(*args, **kwargs)
        return _disabled(function)(*args, **kwargs)

    return call


_disabled = functools.cache(torch.compiler.disable)
