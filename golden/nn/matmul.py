"""Matrix products in the arithmetic of a policy, forward and backward.

They raise TypeError or ValueError if tensors have wrong types or shapes, or if their dtype does not hold the results.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import broadcast_shape

from .amax import delayed_amax_of_gradient
from .cast import check_real
from .operands import Call, Codes, Use
from .operator import differentiable, gradients


def _matmul(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    key: Tensor | None,
    amax: Tensor | None,
    history: Tensor | None,
    policy: str,
    layer: str,
    paired: bool,
) -> Tensor:
    """Compute x @ w.mT + bias for shapes (..., n, k), (..., m, k) and (m,); ``history`` is for the gradient."""
    call = Call.of(policy, key, amax, layer, paired)
    a = call.operand("x", x).codes("forward", "a", (-1,), (-1,))
    b = call.operand("w", w).codes("forward", "b", (-1,), (-1,), turned)
    return call.product("forward", a, b.mT, x.dtype, call.start(bias)).contiguous()


def turned(factors: Tensor) -> Tensor:
    """Exchange rows and columns of factors."""
    return factors.mT


def _matmul_gradients(
    gradient: Tensor,
    x: Tensor,
    w: Tensor,
    key: Tensor | None,
    amax: Tensor | None,
    policy: str,
    layer: str,
    paired: bool,
    needs: list[bool],
) -> list[Tensor]:
    call = Call.of(policy, key, amax, layer, paired)
    behind = call.operand("gradient", gradient)

    def of_input() -> tuple[Tensor, int]:
        weights = call.operand("w", w).codes("input_gradient", "b", (-1,), (-2,))
        rows = behind.codes("input_gradient", "a", (-1,), (-1,))
        return call.product("input_gradient", rows, weights, x.dtype), rows.pruned + weights.pruned

    def rows(rotate: bool = True) -> Codes:
        return behind.codes("weight_gradient", "a", (-2,), (-2,), turned, rotate=rotate).mT

    def columns() -> Codes:
        return call.operand("x", x).codes("weight_gradient", "b", (-1,), (-2,))

    return gradients_of_operands(call, x, w, needs, of_input, rows, columns)[0]


def gradients_of_operands(
    call: Call,
    x: Tensor,
    w: Tensor,
    needs: list[bool],
    of_input: Callable[[], tuple[Tensor, int]],
    rows: Callable[..., Codes],
    columns: Callable[[], Codes],
) -> tuple[list[Tensor], int]:
    """Return the gradients of x, w and bias, empty ones where they are not needed, and the number of pruned elements.

    The gradient of the weights is the product of ``rows()``, codes of the gradient, and ``columns()``, codes of x. That
    of the bias is the sum of ``rows(rotate=False)``.
    """
    gradients, pruned = [x.new_empty(0) for _ in needs], 0
    if needs[0]:
        gradients[0], pruned = of_input()
    if needs[1] or needs[2]:
        left = rows()
        pruned += left.pruned
    if needs[1]:
        right = columns()
        pruned += right.pruned
        gradients[1] = call.product("weight_gradient", left, right, w.dtype).reshape(w.shape)
    rotation = call.policy.hadamard
    if needs[2] and rotation is not None and "weight_gradient" in rotation.products:
        left = rows(rotate=False)
        pruned += left.pruned
    if needs[2]:
        gradients[2] = call.bias_gradient(left, x.dtype).reshape(w.shape[0])
    return [gradient.contiguous() for gradient in gradients], pruned


def with_gradients(run: Callable[..., Tensor], shape: Callable[..., Any], run_gradients: Callable[..., Any]) -> Any:
    """Make a torch operator of x, weights, bias, key, amax, history and others, and the operator of its gradients."""

    def shapes(gradient: Tensor, x: Tensor, w: Tensor, *parts: Any) -> list[Tensor]:
        wanted = (x.shape, w.shape, w.shape[:1])
        return [x.new_empty(shape if needed else 0) for shape, needed in zip(wanted, parts[-1], strict=True)]

    def save(ctx: Any, inputs: Any, output: Tensor) -> None:
        # Later uses change the history before the backward pass, which torch refuses for saved tensors.
        x, w, _, key, amax, ctx.history, *ctx.parts = inputs
        ctx.save_for_backward(x, w, key, amax)

    def backward(ctx: Any, gradient: Tensor) -> Any:
        needs = list(ctx.needs_input_grad[:3])
        x, w, key, amax = ctx.saved_tensors
        if ctx.history is not None:
            amax = torch.cat([amax[:2], delayed_amax_of_gradient(ctx.history, gradient.detach()).reshape(1)])
        gradients = of_gradients(gradient, x, w, key, amax, *ctx.parts, needs)
        given = (result if needed else None for needed, result in zip(needs, gradients, strict=True))
        return *given, *[None] * (3 + len(ctx.parts))

    of_gradients = gradients(run_gradients, shapes)
    return differentiable(run, shape, save, backward), of_gradients


_MATMUL, _GRADIENTS_OF_MATMUL = with_gradients(
    _matmul, lambda x, w, *_: x.new_empty((*x.shape[:-1], w.shape[-2])), _matmul_gradients
)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, use: Use) -> Tensor:
    """Compute ``x @ weight.T + bias`` for shapes (..., k), (m, k) and (m,); sums start from the bias."""
    dtype = check_real(x, "the input")
    if x.dim() < 1 or x.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"the input has shape {tuple(x.shape)}; a layer with {weight.shape[-1]} inputs needs (..., "
            f"{weight.shape[-1]})"
        )
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    given = None if bias is None else bias.to(dtype)
    w = weight.to(dtype)
    sums: Tensor = _MATMUL(rows, w, given, use.key, *use.amax(rows, w), use.policy, use.layer, False)
    return sums.reshape(*x.shape[:-1], weight.shape[0])


def bmm(a: Tensor, b: Tensor, use: Use) -> Tensor:
    """Compute ``a @ b`` of activations, for shapes (..., n, k) and (..., k, m) whose batches broadcast.

    In the policy, ``b`` takes the role of the weights. torch sums the gradients of broadcast batches.
    """
    if check_real(a, "a") != check_real(b, "b"):
        raise TypeError(f"a has dtype {a.dtype} and b {b.dtype}; both must have one dtype")
    if min(a.dim(), b.dim()) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; a matrix product needs (..., n, k) and (..., k, m)"
        )
    try:
        batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"batches of shapes {tuple(a.shape[:-2])} and {tuple(b.shape[:-2])} do not broadcast"
        ) from error
    x, w = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    product: Tensor = _MATMUL(x, w.mT, None, use.key, *use.amax(x, w), use.policy, use.layer, True)
    return product
