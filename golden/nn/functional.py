"""Matrix products and convolutions on multiply-accumulates, forward and backward.

They take the policy of their arithmetic and a key of their random words, and raise TypeError or ValueError if tensors
are of other kinds or shapes, or their dtype does not hold the results.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.hdl.specs import MacSpec

from .cast import Cast, Operand, check_real, real
from .draw import mix
from .policy import Policy
from .product import product

_ROLES = ("x", "w", "bias", "gradient", "forward", "input_gradient", "weight_gradient", "bias_gradient")


@dataclass(frozen=True)
class Call:
    """One use of a layer: its arithmetic and the key of its random words.

    Each tensor is rounded once for a format, so that forward and backward pass have the same codes of it. ``weights``
    is the rounding of the second operand.
    """

    policy: Policy
    key: int
    weights: Cast

    def key_of(self, role: str) -> int:
        """Key of the random words of a role."""
        return mix(self.key, _ROLES.index(role))

    def x(self, values: Tensor) -> Operand:
        """The first operand, activations."""
        return Operand(values, self.policy.activations, self.key_of("x"))

    def w(self, values: Tensor) -> Operand:
        """The second operand, weights, or activations too."""
        return Operand(values, self.weights, self.key_of("w"))

    def gradient(self, values: Tensor) -> Operand:
        """Gradient of the result."""
        return Operand(values, self.policy.gradients, self.key_of("gradient"))

    def product(self, role: str, a: Tensor, b: Tensor, dtype: torch.dtype, start: Tensor | None = None) -> Tensor:
        """Matrix product of codes, or of values if the role is computed in torch's own arithmetic."""
        mac = getattr(self.policy, "weight_gradient" if role == "bias_gradient" else role)
        if mac is None:
            return a @ b if start is None else a @ b + start
        made = product(a, b, mac, key=self.key_of(role), start=start, device=self.policy.device)
        return real(made, mac.o, dtype)

    def start(self, bias: Tensor | None) -> Tensor | None:
        """Start values of the forward sums."""
        if bias is None:
            return None
        return Operand(bias, self.policy.bias, self.key_of("bias")).codes(self.policy.forward, "o")

    def bias_gradient(self, columns: Tensor, dtype: torch.dtype) -> Tensor:
        """Sums over n of gradients of shape (..., m, n), as products with 1."""
        mac = self.policy.weight_gradient
        ones = columns.new_ones((*columns.shape[:-2], columns.shape[-1], 1))
        if mac is not None:
            ones.fill_(check_one(mac))
        return self.product("bias_gradient", columns, ones, dtype).squeeze(-1)


def check_one(mac: MacSpec) -> int:
    """Code of 1 in the second operand's format.

    Raises
    ------
    ValueError
        If the format has no 1: the gradient of a bias is a sum of products with it.
    """
    code = mac.b.encode(1, "rz")
    if mac.b.decode(code) != 1:
        raise ValueError(
            f"{mac.b} has no 1, and the gradient of a bias is a sum of products with 1; take a layer without bias, or "
            "another weight_gradient"
        )
    return code


def _refuse_second() -> None:
    # Gradients are enabled in a backward pass only by create_graph.
    if torch.is_grad_enabled():
        raise RuntimeError(
            "products in the arithmetic of a multiply-accumulate are differentiated once; call backward without "
            "create_graph"
        )


class _Matmul(torch.autograd.Function):
    """x @ w.mT + bias, of shapes (..., n, k), (..., m, k) and (m,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, call: Call) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.call = call
        mac = call.policy.forward
        a, b = call.x(x).codes(mac, "a"), call.w(w).codes(mac, "b")
        return call.product("forward", a, b.mT, x.dtype, call.start(bias))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        _refuse_second()
        x, w = ctx.saved_tensors
        call: Call = ctx.call
        behind = call.gradient(gradient)
        for_x = for_w = for_bias = None
        if ctx.needs_input_grad[0]:
            mac = call.policy.input_gradient
            for_x = call.product("input_gradient", behind.codes(mac, "a"), call.w(w).codes(mac, "b"), x.dtype)
        mac = call.policy.weight_gradient
        if ctx.needs_input_grad[1]:
            for_w = call.product("weight_gradient", behind.codes(mac, "a").mT, call.x(x).codes(mac, "b"), w.dtype)
        if ctx.needs_input_grad[2]:
            for_bias = call.bias_gradient(behind.codes(mac, "a").mT, x.dtype)
        return for_x, for_w, for_bias, None


def _windows(x: Tensor, size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> Tensor:
    """Windows of a kernel, of shape (N, C, H', W', kh, kw), without copies."""
    for place in (0, 1):
        x = x.unfold(2 + place, dilation[place] * (size[place] - 1) + 1, stride[place])
    return x[..., :: dilation[0], :: dilation[1]]


def _columns(windows: Tensor, groups: int) -> Tensor:
    """Windows as matrices of shape (groups, N * H' * W', C / groups * kh * kw); products are in that order."""
    n, c, h, w, kh, kw = windows.shape
    grouped = windows.reshape(n, groups, c // groups, h, w, kh, kw)
    return grouped.permute(1, 0, 3, 4, 2, 5, 6).reshape(groups, n * h * w, c // groups * kh * kw)


def _images(rows: Tensor, n: int, h: int, w: int) -> Tensor:
    """Matrices of shape (groups, N * H * W, M) as images of shape (N, groups * M, H, W)."""
    groups, _, m = rows.shape
    return rows.reshape(groups, n, h, w, m).permute(1, 0, 4, 2, 3).reshape(n, groups * m, h, w)


def _spread(x: Tensor, stride: tuple[int, int], before: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Images with zeros between their points, and around them up to a size."""
    n, c, h, w = x.shape
    # Code 0 is the number zero in every format.
    wide = x.new_zeros((n, c, *size))
    ends = [first + step * count for first, step, count in zip(before, stride, (h, w), strict=True)]
    wide[:, :, before[0] : ends[0] : stride[0], before[1] : ends[1] : stride[1]] = x
    return wide


class _Conv2d(torch.autograd.Function):
    """Convolution of images that are padded already, as matrix products (im2col)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        call: Call,
        stride: tuple[int, int],
        dilation: tuple[int, int],
        groups: int,
    ) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.call, ctx.stride, ctx.dilation, ctx.groups = call, stride, dilation, groups
        mac = call.policy.forward
        m, _, kh, kw = w.shape
        windows = _windows(call.x(x).codes(mac, "a"), (kh, kw), stride, dilation)
        kernels = call.w(w).codes(mac, "b").reshape(groups, m // groups, math.prod(w.shape[1:]))
        start = call.start(bias)
        if start is not None:
            start = start.reshape(groups, 1, m // groups)
        rows = call.product("forward", _columns(windows, groups), kernels.mT, x.dtype, start)
        return _images(rows, x.shape[0], *windows.shape[2:4])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        _refuse_second()
        x, w = ctx.saved_tensors
        call: Call = ctx.call
        behind = call.gradient(gradient)
        for_x = for_w = for_bias = None
        if ctx.needs_input_grad[0]:
            for_x = _input_gradient(ctx, behind, x, w)
        mac = call.policy.weight_gradient
        n, m, h, wide = gradient.shape
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            by_kernel = behind.codes(mac, "a").reshape(n, ctx.groups, m // ctx.groups, h * wide)
            by_kernel = by_kernel.permute(1, 2, 0, 3).reshape(ctx.groups, m // ctx.groups, n * h * wide)
        if ctx.needs_input_grad[1]:
            windows = _windows(call.x(x).codes(mac, "b"), tuple(w.shape[2:]), ctx.stride, ctx.dilation)
            columns = _columns(windows, ctx.groups)
            for_w = call.product("weight_gradient", by_kernel, columns, w.dtype).reshape(w.shape)
        if ctx.needs_input_grad[2]:
            for_bias = call.bias_gradient(by_kernel, x.dtype).reshape(m)
        return for_x, for_w, for_bias, None, None, None, None


def _input_gradient(ctx: Any, behind: Operand, x: Tensor, w: Tensor) -> Tensor:
    """Convolution of the spread gradient with the flipped kernels, so that each point is one sum."""
    call: Call = ctx.call
    mac = call.policy.input_gradient
    m, c, kh, kw = w.shape
    n, _, h, wide = x.shape
    reach = ctx.dilation[0] * (kh - 1), ctx.dilation[1] * (kw - 1)
    spread = _spread(behind.codes(mac, "a"), ctx.stride, reach, (h + reach[0], wide + reach[1]))
    columns = _columns(_windows(spread, (kh, kw), (1, 1), ctx.dilation), ctx.groups)
    kernels = call.w(w).codes(mac, "b").reshape(ctx.groups, m // ctx.groups, c, kh, kw).flip(-2, -1)
    kernels = kernels.permute(0, 1, 3, 4, 2).reshape(ctx.groups, m // ctx.groups * kh * kw, c)
    return _images(call.product("input_gradient", columns, kernels, x.dtype), n, h, wide)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, policy: Policy, key: int) -> Tensor:
    """``x @ weight.T + bias``, for shapes (..., k), (m, k) and (m,); sums start from the bias."""
    dtype = check_real(x, "the input")
    if x.dim() < 1 or x.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"the input is of shape {tuple(x.shape)}; a layer of {weight.shape[-1]} inputs takes (..., "
            f"{weight.shape[-1]})"
        )
    if bias is not None and policy.weight_gradient is not None:
        check_one(policy.weight_gradient)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    call = Call(policy, key, policy.weights)
    sums: Tensor = _Matmul.apply(rows, weight.to(dtype), None if bias is None else bias.to(dtype), call)
    return sums.reshape(*x.shape[:-1], weight.shape[0])


def bmm(a: Tensor, b: Tensor, policy: Policy, key: int) -> Tensor:
    """``a @ b`` of activations, for shapes (..., n, k) and (..., k, m) whose batches broadcast.

    Of the policy, ``b`` has the place of weights. torch adds up the gradients of broadcast batches.
    """
    if check_real(a, "a") != check_real(b, "b"):
        raise TypeError(f"a is of {a.dtype} and b of {b.dtype}; both are of one dtype")
    if min(a.dim(), b.dim()) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"a is of shape {tuple(a.shape)} and b of {tuple(b.shape)}; a matrix product takes (..., n, k) and "
            "(..., k, m)"
        )
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"batches of shapes {tuple(a.shape[:-2])} and {tuple(b.shape[:-2])} do not broadcast"
        ) from error
    x, w = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    product: Tensor = _Matmul.apply(x, w.mT, None, Call(policy, key, policy.activations))
    return product


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    policy: Policy,
    key: int,
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """Convolution without padding, for shapes (N, C, H, W) or (C, H, W), (M, C / groups, kh, kw) and (M,).

    A point of the result is one sum over (channel, row, column) of the kernel, ascending, from the bias. A point of the
    input's gradient is a sum over (kernel, row, column) of the flipped kernels, one of the weights' gradient over
    (image, row, column). A stride above 1 adds products with zero to the input's gradient.
    """
    dtype = check_real(x, "the input")
    images = x if x.dim() == 4 else x.unsqueeze(0)
    channels = weight.shape[1] * groups
    if images.dim() != 4 or images.shape[1] != channels:
        raise ValueError(
            f"the input is of shape {tuple(x.shape)}; a convolution of {channels} channels takes (N, {channels}, H, W)"
        )
    reach = [dilation[place] * (weight.shape[2 + place] - 1) + 1 for place in (0, 1)]
    if any(images.shape[2 + place] < reach[place] for place in (0, 1)):
        raise ValueError(
            f"the input is {images.shape[2]} x {images.shape[3]} with its padding, less than the kernel's "
            f"{reach[0]} x {reach[1]}"
        )
    if bias is not None and policy.weight_gradient is not None:
        check_one(policy.weight_gradient)
    given = None if bias is None else bias.to(dtype)
    call = Call(policy, key, policy.weights)
    found: Tensor = _Conv2d.apply(images, weight.to(dtype), given, call, stride, dilation, groups)
    return found if x.dim() == 4 else found.squeeze(0)


class _Quantize(torch.autograd.Function):
    """Rounding forward, and of the gradient backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Cast | None, backward: Cast | None, key: int) -> Tensor:
        ctx.cast, ctx.key = backward, key
        return x.clone() if forward is None else forward.real(x, mix(key, 0))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        _refuse_second()
        return (gradient if ctx.cast is None else ctx.cast.real(gradient, mix(ctx.key, 1))), None, None, None


def quantize(x: Tensor, forward: Cast | None, backward: Cast | None, key: int) -> Tensor:
    """Values rounded element by element, and their gradient on its way back; None rounds nothing."""
    check_real(x, "the input")
    rounded: Tensor = _Quantize.apply(x, forward, backward, key)
    return rounded


def padded(x: Tensor, padding: tuple[int, int, int, int], mode: str) -> Tensor:
    """Images with borders left, right, above and below, as `torch.nn.Conv2d` pads them."""
    if not any(padding):
        return x
    return F.pad(x, padding, mode="constant" if mode == "zeros" else mode)
