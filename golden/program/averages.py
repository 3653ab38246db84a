"""Compositions with means, as torch decomposes them but for the means: exact sums are divided by exact counts."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
MEAN = 1
"""Reduction of a loss to its mean, in torch's numbers."""


@torch.library.custom_op("halfulp::div", mutates_args=())
def _div(x: Tensor, y: Tensor, *, average: bool) -> Tensor:
    return x / y


@_div.register_fake
def _(x: Tensor, y: Tensor, *, average: bool) -> Tensor:
    return x / y


def average(sums: Tensor, count: Tensor | int) -> Tensor:
    """Divide sums by a count, neither of which is rounded before the quotient is."""
    divisor = count if isinstance(count, Tensor) else torch.full((), count, dtype=torch.float64, device=sums.device)
    # Two tensors without dimensions have the wider type.
    quotient: Tensor = torch.ops.halfulp.div(sums, divisor, average=True).to(sums.dtype)
    return quotient


def _nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Return the loss and the sum of weights, or their number."""
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"expected targets of type Long or Byte but found {target.dtype}")
    channels, used, target = int(x.dim() > 1), target != ignored, target.long()
    index = torch.where(used, target, 0).unsqueeze(channels)
    weights = None if weight is None else weight.view([-1 if dim == channels else 1 for dim in range(x.dim())])
    given = x if weights is None else x * weights
    losses = torch.where(used, -torch.gather(given, channels, index).squeeze(channels), 0)
    if reduction == 0 and x.dim() > 1:
        return losses, x.new_full((), 0.0)
    if weights is None:
        count = used.sum()
    else:
        count = torch.where(used, torch.gather(weights.expand(x.shape), channels, index).squeeze(channels), 0).sum()
    if reduction:
        losses = average(losses.sum(), count) if reduction == MEAN else losses.sum()
    return losses, count.to(x)


def _nll_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, total: Tensor
) -> Tensor:
    channels = int(x.dim() > 1)
    if reduction == MEAN:
        # The type of the total may hold no large count.
        gradient = average(gradient, (target != ignored).sum() if weight is None else total)
    target = (target[0] if x.dim() == 1 and target.dim() > 0 else target).unsqueeze(channels).long()
    chosen = torch.scatter(torch.zeros_like(x), channels, torch.where(target != ignored, target, 0), -1.0)
    if x.dim() > gradient.dim() > 0:
        gradient = gradient.unsqueeze(channels)
    if weight is not None:
        gradient = gradient * weight.reshape([-1 if dim == channels else 1 for dim in range(x.dim())])
    return chosen * torch.where(target != ignored, gradient, 0)


def _windows(x: Tensor, outputs: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the places of the numbers of each window of an adaptive pooling in the last dimensions, and their counts.

    Both have the windows as first dimensions. Places count from 1 in a flat tensor; 0 stands for none.
    """
    places = torch.ones([1] * 2 * len(outputs), dtype=torch.int64, device=x.device)
    counts = torch.ones([1] * len(outputs), dtype=torch.int64, device=x.device)
    inside = places > 0
    for dim, (size, output) in enumerate(zip(x.shape[-len(outputs) :], outputs, strict=True)):
        out = torch.arange(output, device=x.device)
        first, last = out * size // output, -((out + 1) * -size // output)
        along = first.unsqueeze(1) + torch.arange(-(-size // output) + 1, device=x.device)
        shape = [1] * 2 * len(outputs)
        shape[dim], shape[len(outputs) + dim] = along.shape
        inside = inside & (along < last.unsqueeze(1)).reshape(shape)
        places = (places - 1) * size + along.reshape(shape) + 1
        counts = counts * (last - first).reshape([-1 if place == dim else 1 for place in range(len(outputs))])
    return torch.where(inside, places, 0), counts


def _adaptive_pool(x: Tensor, outputs: Sequence[int]) -> Tensor:
    """Return means of windows of different sizes."""
    places, counts = _windows(x, outputs)
    # -0 added to a number is this number.
    rows = torch.nn.functional.pad(x.flatten(-len(outputs)), (1, 0), value=-0.0)
    numbers = rows[..., places.flatten(-len(outputs))]
    return average(numbers.sum(-1), counts)


def _adaptive_pool_backward(gradient: Tensor, x: Tensor, dims: int) -> Tensor:
    places, counts = _windows(x, gradient.shape[-dims:])
    places = places.flatten(-dims)
    shares = average(gradient, counts).unsqueeze(-1).expand(*gradient.shape, places.shape[-1])
    rows = shares.reshape(-1, places.numel())
    sums = rows.new_zeros(len(rows), 1 + math.prod(x.shape[-dims:])).index_add(1, places.flatten(), rows)
    return sums[:, 1:].reshape(x.shape).contiguous()


def _layer_norm_backward(
    gradient: Tensor,
    x: Tensor,
    shape: list[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    needs: list[bool],
) -> tuple[Tensor | None, ...]:
    axis = x.dim() - len(shape)
    inner, outer = list(range(axis, x.dim())), list(range(axis))
    if not x.numel():
        zeros = x.new_zeros(shape)
        return torch.zeros_like(x) if needs[0] else None, *(zeros.clone() if need else None for need in needs[1:])
    mean, rstd = (
        statistic.reshape([*statistic.shape, *[1] * (x.dim() - statistic.dim())]) for statistic in (mean, rstd)
    )
    normal = (x - mean) * rstd
    of_x = of_weight = of_bias = None
    if needs[0]:
        behind, count = gradient if weight is None else gradient * weight, math.prod(shape)
        along = average((behind * normal).sum(inner, True), count)
        of_x = rstd * (behind - average(behind.sum(inner, True), count) - normal * along)
    if needs[1] and weight is not None:
        of_weight = (gradient * normal).sum(outer) if outer else gradient * normal
    if needs[2] and bias is not None:
        of_bias = gradient.sum(outer) if outer else gradient.clone()
    return of_x, of_weight, of_bias


def _batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    saved_mean: Tensor | None,
    saved_invstd: Tensor | None,
    train: bool,
    eps: float,
    needs: list[bool],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    mean: Any = saved_mean if train else running_mean
    variance: Any = running_var
    invstd: Any = saved_invstd if train else torch.rsqrt(variance + eps)
    rest = [dim for dim in range(x.dim()) if dim != 1]

    def spread(per_channel: Tensor) -> Tensor:
        return per_channel.reshape([-1 if dim == 1 else 1 for dim in range(x.dim())])

    apart, sums = x - spread(mean), gradient.sum(rest)
    along = (gradient * apart).sum(rest)
    scale = spread(invstd * 1.0 if weight is None else invstd * weight)
    if train:
        count = x.numel() // x.shape[1]
        projected = apart * spread(average(along, count) * (invstd * invstd))
        of_x = ((gradient - projected) - spread(average(sums, count))) * scale
    else:
        of_x = gradient * scale
    return of_x, along * invstd if needs[1] else None, sums if needs[2] else None


def _group_norm_backward(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    n: int,
    channels: int,
    points: int,
    groups: int,
    needs: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    shape = (n, groups, channels // groups)
    along = (gradient * x).view(n, channels, points).sum(dim=[2])
    sums = gradient.view(n, channels, points).sum(dim=[2])
    of_x = of_weight = of_bias = None
    if needs[0]:
        of_group = torch.ones((1, *shape[1:]), device=x.device) if weight is None else weight.reshape(1, *shape[1:])
        scaled = (total if weight is None else total * weight.unsqueeze(0) for total in (along, sums))
        count = points * shape[2]
        mean_along, mean_sums = (average(total.reshape(shape).sum(2), count) for total in scaled)
        first = (rstd.unsqueeze(-1) * of_group).unsqueeze(-1)
        second = (mean_sums * mean - mean_along) * rstd * rstd * rstd
        third = (-second * mean - mean_sums * rstd)[:, :, None, None]
        given, of_given = x.reshape(*shape, points), gradient.reshape(*shape, points)
        of_x = (of_given * first + given * second[:, :, None, None] + third).reshape(x.shape)
    if needs[1]:
        apart = along.view(shape) - sums.view(shape) * mean.unsqueeze(-1)
        of_weight = (apart * rstd.unsqueeze(-1)).sum(dim=[0]).reshape(channels)
    if needs[2]:
        of_bias = sums.sum(dim=[0])
    return of_x, of_weight, of_bias


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the loss and a mask of the targets, which end before the first -1; torch's composition counts all."""
    if target.shape != x.shape:
        raise RuntimeError(f"inconsistent target size: {target.shape} for input of {x.shape}")
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    ended, places = (labels == -1).cumsum(-1) > 0, torch.arange(rows.shape[1], device=x.device)
    chosen = torch.gather(rows, -1, torch.where(ended, 0, labels))
    is_target = torch.any(places == torch.where(ended, -1, labels).unsqueeze(-1), 1)
    terms = ((1.0 - chosen.unsqueeze(-1)) + rows.unsqueeze(1)).clamp_min(0) / rows.shape[1]
    losses = torch.where(ended.unsqueeze(-1) | is_target.unsqueeze(1), 0, terms).sum((1, 2))
    if reduction:
        losses = average(losses.sum(), len(rows)) if reduction == MEAN else losses.sum()
    elif x.dim() < 2:
        losses = losses[0]
    return losses, is_target.to(x.dtype).reshape(target.shape)


def _mse_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    apart = 2.0 * (x - target)
    return (average(apart, x.numel()) if reduction == MEAN else apart) * gradient


def _shared(gradient: Tensor, x: Tensor, reduction: int) -> Tensor:
    """Return the gradient of each element of a loss."""
    return average(gradient, x.numel()) if reduction == MEAN else gradient


def _smooth_l1_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    apart, shared = x - target, _shared(gradient, x, reduction)
    return torch.where(torch.abs(apart) < beta, shared * apart / beta, shared * torch.sign(apart))


def _huber_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    apart, shared = x - target, _shared(gradient, x, reduction)
    end = shared * delta
    return torch.where(apart < -delta, -end, torch.where(apart > delta, end, apart * shared))


AVERAGES = {
    aten._adaptive_avg_pool2d.default: _adaptive_pool,
    aten._adaptive_avg_pool3d.default: _adaptive_pool,
    aten._adaptive_avg_pool2d_backward.default: lambda gradient, x: _adaptive_pool_backward(gradient, x, 2),
    aten._adaptive_avg_pool3d_backward.default: lambda gradient, x: _adaptive_pool_backward(gradient, x, 3),
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    aten.nll_loss_forward.default: _nll_loss,
    aten.nll_loss2d_forward.default: _nll_loss,
    aten.nll_loss_backward.default: _nll_loss_backward,
    aten.nll_loss2d_backward.default: _nll_loss_backward,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.mse_loss_backward.default: _mse_loss_backward,
    aten.smooth_l1_loss_backward.default: _smooth_l1_loss_backward,
    aten.huber_loss_backward.default: _huber_loss_backward,
}
"""Functions of compositions by operation."""
