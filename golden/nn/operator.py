"""Torch operators for layers: opaque to torch.compile, with shapes for fake tensors, derivatives and vmap rules.

The random key of a layer is an operator too, because it advances the state of the layer.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.torch_internals import is_transformed

from .recompute import key_of_use

ONCE = "gradients of products in the arithmetic of a multiply-accumulate cannot be differentiated again"


def operator(run: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    """Make a torch operator of a function; ``shape`` returns empty tensors with the shapes of its results."""
    made = torch.library.custom_op(f"halfulp::{run.__name__.strip('_')}", run, mutates_args=())
    made.register_fake(shape)
    made.register_vmap(lambda info, dims, *arguments: _looped(made, info.batch_size, dims, arguments))
    return made


def differentiable(
    run: Callable[..., Any], shape: Callable[..., Any], save: Callable[..., None], backward: Callable[..., Any]
) -> Any:
    """Make a differentiable operator; return a function that calls it, with the operator as attribute ``operator``."""
    made = operator(run, shape)
    made.register_autograd(backward, setup_context=save)

    def forward(*arguments: Any) -> Any:
        result = made(*arguments)
        return result if isinstance(result, Tensor) else tuple(result)

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(save),
        "backward": staticmethod(backward),
        "jvp": staticmethod(_no_jvp),
        "generate_vmap_rule": True,
    }
    function: Any = type(run.__name__, (torch.autograd.Function,), members)

    def call(*arguments: Any) -> Any:
        # torch.func ignores the derivative of an operator; torch.compile cannot trace an autograd function.
        if torch.compiler.is_compiling() or not transformed():
            return made(*arguments)
        return function.apply(*arguments)

    call.operator = made  # type: ignore[attr-defined]  # functions have no declared attributes
    return call


def transformed() -> bool:
    """Return True in transforms of `torch.func`, in forward-mode differentiation, and in torch.compile."""
    # An operator would silently drop a forward-mode derivative; an autograd function raises an error.
    return torch.compiler.is_compiling() or is_transformed()


def gradients(run: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    """Make an operator of gradients, which cannot be differentiated again."""
    return differentiable(run, shape, lambda ctx, inputs, output: None, _refused)


def _no_jvp(ctx: Any, *_: Any) -> None:
    raise NotImplementedError(
        "layers in the arithmetic of a policy have no forward-mode derivatives (jvp); use backward, vjp or jacrev"
    )


def _refused(ctx: Any, *_: Any) -> None:
    raise RuntimeError(ONCE)


def _looped(made: Any, count: int, dims: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, Any]:
    """Call an operator for each index of a vmap dimension."""
    results = [
        made(
            *(
                argument.select(dim, place) if isinstance(dim, int) else argument
                for argument, dim in zip(arguments, dims, strict=True)
            )
        )
        for place in range(count)
    ]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return [torch.stack(parts) for parts in zip(*results, strict=True)], [0] * len(results[0])


@torch.library.custom_op("halfulp::random_key", mutates_args=("state",))
def random_key(state: Tensor, x: Tensor, evaluation: str) -> Tensor:
    """Return the key of the random words of one use on a tensor, and advance the state."""
    key = key_of_use(state, evaluation)
    # The int64 with the same bits.
    return torch.tensor(key - (key >> 63 << 64), dtype=torch.int64)


@random_key.register_fake
def _(state: Tensor, x: Tensor, evaluation: str) -> Tensor:
    return torch.empty((), dtype=torch.int64, device="meta" if state.device.type == "meta" else "cpu")


@random_key.register_vmap
def _(info: Any, dims: tuple[int | None, ...], state: Tensor, x: Tensor, evaluation: str) -> tuple[Tensor, int | None]:
    if dims[0] is None and info.randomness == "error":
        raise RuntimeError("a layer with stochastic rounding needs randomness='different' or 'same' in vmap")
    if dims[0] is None and info.randomness == "same":
        return random_key(state, x, evaluation), None
    states = [state if dims[0] is None else state.select(dims[0], place) for place in range(info.batch_size)]
    return torch.stack([random_key(own_state, x, evaluation) for own_state in states]), 0
