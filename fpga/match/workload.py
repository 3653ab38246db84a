"""Workloads of the search: the matrix products of a known network, or of a user's network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from halfulp.tools.imports import imported

from .networks import (
    BATCHES,
    NANO_BLOCK,
    SMALL_BLOCK,
    Rows,
    lenet5,
    nanogpt,
    resnet20,
    resnet50,
    smallgpt,
    vgg16,
)
from .products import Gemm, trace

LETTERS = 65
"""Size of the alphabet of transformers: the letters of the plays of Shakespeare, its usual training set."""

EXAMPLES: dict[str, Callable[[int], tuple[nn.Module, Tensor]]] = {
    "lenet5": lambda batch: (lenet5(), torch.zeros(batch, 1, 28, 28)),
    "vgg16": lambda batch: (vgg16(), torch.zeros(batch, 3, 32, 32)),
    "resnet20": lambda batch: (resnet20(), torch.zeros(batch, 3, 32, 32)),
    "resnet50": lambda batch: (resnet50(), torch.zeros(batch, 3, 224, 224)),
    "gru": lambda batch: (Rows(28, 10), torch.zeros(batch, 1, 28, 28)),
    "nanogpt": lambda batch: (nanogpt(LETTERS), torch.zeros(batch, NANO_BLOCK, dtype=torch.long)),
    "smallgpt": lambda batch: (smallgpt(LETTERS), torch.zeros(batch, SMALL_BLOCK, dtype=torch.long)),
}
"""Known networks, each with an input; only the shape of the input matters."""


@dataclass(frozen=True)
class Workload:
    """Matrix products of a step of a network.

    Attributes
    ----------
    name : str
    batch : int or None
        Examples per step; None for a user's network.
    training : bool
        True for a training step, False for inference.
    gemms : list of Gemm
    """

    name: str
    batch: int | None
    training: bool
    gemms: list[Gemm]

    @property
    def size(self) -> str:
        """Number of products and multiply-accumulates, as text."""
        products = sum(gemm.batch for gemm in self.gemms)
        return f"{products:,} products, {sum(gemm.macs for gemm in self.gemms) / 1e9:.3g} * 10^9 MACs"

    @property
    def text(self) -> str:
        """Name of the step, as text."""
        batch = "" if self.batch is None else f", batch {self.batch}"
        return f"{'a training step' if self.training else 'inference'} of {self.name}{batch}"


def workload(name: str, batch: int | None = None, training: bool = True) -> Workload:
    """Trace the products of a network; ValueError if it is unknown or cannot be traced.

    Parameters
    ----------
    name : str
        A network of `EXAMPLES`, or ``module:function`` for a function without parameters that returns a torch model and
        its inputs: one tensor, a tuple, or a dict by name.
    batch : int, optional
        Examples per step of a known network; default: its training batch.
    training : bool
    """
    if name in EXAMPLES:
        batch = BATCHES[name] if batch is None else batch
        if batch < 1:
            raise ValueError(f"batch is {batch}; expected 1 or more")
        # Shapes need no memory for values.
        with torch.device("meta"):
            model, example = EXAMPLES[name](batch)
        return Workload(name, batch, training, trace(model, example, training=training))
    if batch is not None:
        raise ValueError(f"the input of {name} determines its batch; --batch is for known networks")
    model, inputs, named = _made(name)
    return Workload(name, None, training, trace(model, *inputs, training=training, **named))


def _made(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Call a user's function; return its model, positional inputs and named inputs."""
    if ":" not in name:
        raise ValueError(f"unknown network {name!r}; expected {', '.join(EXAMPLES)}, or module:function of your own")
    function = imported(name)
    try:
        made = function() if callable(function) else None
    except Exception as error:  # the user's function may raise anything
        raise ValueError(f"{name} raised {type(error).__name__}: {error}") from error
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ValueError(f"{name} is not a function that returns a torch model and its input")
    model, inputs = made
    if isinstance(inputs, Mapping):
        return model, (), dict(inputs)
    return model, inputs if isinstance(inputs, tuple) else (inputs,), {}
