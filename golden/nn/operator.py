"""Operators of torch for layers: opaque to compilers, with shapes for fake tensors, derivatives, and loops for vmap.

A random key is an operator too, because it steps the state of a layer.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .recompute import key_of_use

ONCE = "products in the arithmetic of a multiply-accumulate are differentiated once; their gradients have no derivative"


def operator(run: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    """Operator of a function on tensors, numbers and texts; ``shape`` gives empty tensors like its results."""
    made = torch.library.custom_op(f"halfulp::{run.__name__.strip('_')}", run, mutates_args=())
    made.register_fake(shape)
    made.register_vmap(lambda info, dims, *arguments: _looped(made, info.batch_size, dims, arguments))
    return made


def differentiable(
    run: Callable[..., Any], shape: Callable[..., Any], save: Callable[..., None], backward: Callable[..., Any]
) -> Any:
    """Call of an operator, its attribute ``operator``, with a derivative as of `torch.library.register_autograd`."""
    made = operator(run, shape)
    made.register_autograd(backward, setup_context=save)

    def forward(*arguments: Any) -> Any:
        found = made(*arguments)
        return found if isinstance(found, Tensor) else tuple(found)

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(save),
        "backward": staticmethod(backward),
        "generate_vmap_rule": True,
    }
    function: Any = type(run.__name__, (torch.autograd.Function,), members)

    def call(*arguments: Any) -> Any:
        # torch.func does not see the derivative of an operator, and compilers do not see into a function.
        if torch.compiler.is_compiling() or not transformed():
            return made(*arguments)
        return function.apply(*arguments)

    call.operator = made  # type: ignore[attr-defined]  # functions have no declared attributes
    return call


def transformed() -> bool:
    """True in transforms of `torch.func`, in forward derivatives, and in compilers, which may trace them."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        # An operator without parameters to train would drop a forward derivative; a function refuses it.
        or forward_ad._current_level >= 0
    )


def gradients(run: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    """Operator of a derivative, which has none itself."""
    return differentiable(run, shape, lambda ctx, inputs, output: None, _refused)


def _refused(ctx: Any, *_: Any) -> None:
    raise RuntimeError(ONCE)


def _looped(made: Any, count: int, dims: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, Any]:
    """Results for each place of a batch, with the bits of calls one by one."""
    found = [
        made(
            *(one.select(dim, place) if isinstance(dim, int) else one for one, dim in zip(arguments, dims, strict=True))
        )
        for place in range(count)
    ]
    if isinstance(found[0], Tensor):
        return torch.stack(found), 0
    return [torch.stack(parts) for parts in zip(*found, strict=True)], [0] * len(found[0])


@torch.library.custom_op("halfulp::random_key", mutates_args=("state",))
def random_key(state: Tensor, x: Tensor, evaluation: str) -> Tensor:
    """Key of the random words of one use, on a tensor; the state is changed."""
    key = key_of_use(state, evaluation)
    # Signed, as int64 holds it.
    return torch.tensor(key - (key >> 63 << 64), dtype=torch.int64)


@random_key.register_fake
def _(state: Tensor, x: Tensor, evaluation: str) -> Tensor:
    return torch.empty((), dtype=torch.int64, device="meta" if state.device.type == "meta" else "cpu")


@random_key.register_vmap
def _(info: Any, dims: tuple[int | None, ...], state: Tensor, x: Tensor, evaluation: str) -> tuple[Tensor, int | None]:
    if dims[0] is None and info.randomness == "error":
        raise RuntimeError("a layer that rounds at random has vmap's argument randomness='different' or 'same'")
    if dims[0] is None and info.randomness == "same":
        return random_key(state, x, evaluation), None
    states = [state if dims[0] is None else state.select(dims[0], place) for place in range(info.batch_size)]
    return torch.stack([random_key(one, x, evaluation) for one in states]), 0
