"""Matrix products and convolutions in the arithmetic of a policy, forward and backward.

They raise TypeError or ValueError if tensors have wrong types or shapes, or if their dtype does not hold the results.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.kernels import Matrices, Patches, gathered, reads
from halfulp.golden.quantize import MAX, BlockTensor, quantize_blocks, tensor_scale
from halfulp.golden.values import decode, decoded, encode
from halfulp.hdl.formats import RN, Block, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec

from .amax import ROLES, Delay, delayed_amax_of_gradient
from .cast import Cast, check_holds, check_real, real
from .counts import PRUNED, counting, is_quiet, note
from .draw import mix
from .operator import differentiable, gradients
from .policy import Policy, Product
from .product import PRODUCTS, product, product_of_blocks
from .scaling import divided, multiplied

_ROLES = ("x", "w", "bias", "gradient", "forward", "input_gradient", "weight_gradient", "bias_gradient")


class Use(NamedTuple):
    """Arguments of torch operators for one use of a layer: policy as text, key of the random words, layer name.

    ``delay`` has the histories of scaled operands.
    """

    policy: str
    key: Tensor | None = None
    layer: str = ""
    delay: Delay | None = None

    def amax(self, x: Tensor, w: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the delayed amax of the operands and the history of the gradient, as operators take them."""
        return (None, None) if self.delay is None else self.delay.forward(x.detach(), w.detach())


@dataclass(frozen=True)
class Call:
    """Arithmetic of one use of a layer.

    A tensor is rounded to a format with the same words in the forward and backward pass, which therefore use the same
    codes. ``paired`` products have two tensors of activations as operands.
    """

    policy: Policy
    key: int
    layer: str
    paired: bool
    amax: Tensor | None = None
    """Largest magnitudes of histories, in the order of `ROLES`."""
    factors: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    """Factors of scaled operands, by phase and operand, in shapes that broadcast to the result or its images."""
    blocks: dict[tuple[str, str], "Quantizer"] = field(default_factory=dict)
    """Quantizers of operands in blocks, by phase and operand."""

    @classmethod
    def of(cls, policy: str, key: Tensor | None, amax: Tensor | None, layer: str, paired: bool = False) -> "Call":
        """Make a call from the arguments of an operator."""
        return cls(policy_of(policy), 0 if key is None else int(key), layer, paired, amax)

    def key_of(self, role: str) -> int:
        """Return the key of the random words of a role."""
        return mix(self.key, _ROLES.index(role))

    def operand(self, role: str, values: Tensor) -> "Operand":
        """Make the operand of a role: ``x``, ``w``, ``bias`` or ``gradient``."""
        casts = {
            "x": self.policy.activations,
            "w": self.policy.activations if self.paired else self.policy.weights,
            "bias": self.policy.bias,
            "gradient": self.policy.gradients,
        }
        return Operand(self, role, values, casts[role])

    def product(
        self,
        role: str,
        a: Matrices,
        b: Matrices,
        dtype: torch.dtype,
        start: Tensor | None = None,
        out: Patches | None = None,
    ) -> Tensor:
        """Multiply matrices of codes, or of values if the policy of the role is torch's own arithmetic.

        Sums begin from ``start``; with factors, it is added after the multiplication by them. With ``out``, the result
        is its tensor, with the product as its elements.
        """
        mac = self.mac("weight_gradient" if role == "bias_gradient" else role)

        def summed(x: Tensor, y: Tensor, begin: Tensor | None) -> Tensor:
            return _placed(x @ y if begin is None else x @ y + begin, out)

        if mac is None:
            return summed(gathered(a), gathered(b), start)
        factor = self.factors.get(("weight_gradient", "a")) if role == "bias_gradient" else self.factor(role)
        bias = None
        if factor is not None and start is not None:
            codes = encode(start, mac.o) if start.is_floating_point() else start
            bias, start = decoded(codes, mac.o, torch.float64), None
        if isinstance(mac, BlockMacSpec):
            made = self._of_blocks(role, mac, gathered(a), gathered(b), start)
            note((self.layer, role, "result"), made, lambda: gathered(a) @ gathered(b), mac.o)
            check_holds(dtype, mac.o)
            if factor is not None:
                found = multiplied(decoded(made, mac.o, torch.float64), factor, dtype, bias)
            else:
                found = real(made, mac.o, dtype)
            return _placed(found, out)
        reals = factor is None and dtype == torch.float32 and self.policy.device is None and not counting()
        if reals:
            check_holds(dtype, mac.o)
        kind = dtype if reals else torch.int64
        if out is not None and out.dtype != kind:
            out = replace(out, data=torch.empty_like(out.data, dtype=kind))
        made = product(a, b, mac, key=self.key_of(role), start=start, device=self.policy.device, out=out, dtype=kind)

        def exact() -> Tensor:
            x, y = _reals(a, mac.a), _reals(b, mac.b)
            both = _data(x), _data(y)
            if start is None and not all(map(torch.any, both)) and all(one.isfinite().all() for one in both):
                return made.new_zeros(made.shape, dtype=dtype)
            return summed(gathered(x), gathered(y), None if start is None else gathered(_reals(start, mac.o)))

        if reals and is_quiet(made, mac.o):
            return made
        note((self.layer, role, "result"), encode(made, mac.o) if reals else made, exact, mac.o)
        if reals:
            return made
        if factor is None:
            return real(made, mac.o, dtype)
        check_holds(dtype, mac.o)
        if bias is not None and out is not None:
            filled = replace(out, data=torch.empty_like(out.data, dtype=torch.float64))
            filled.scatter(bias.expand(out.shape))
            bias = filled.data
        return multiplied(decoded(made, mac.o, torch.float64), factor, dtype, bias)

    def _of_blocks(self, role: str, mac: BlockMacSpec, a: Tensor, b: Tensor, start: Tensor | None) -> Tensor:
        """Quantize the values of operands along the sums, and return the codes of their product."""
        if role == "bias_gradient":
            x, y = self.blocks["weight_gradient", "a"](a, -1), ones_in_blocks(mac.b, b)
        else:
            x, y = self.blocks[role, "a"](a, -1), self.blocks[role, "b"](b, -2)
        if start is not None and start.is_floating_point():
            start = encode(start, mac.o)
        return product_of_blocks(x, y, mac, key=self.key_of(role), start=start, device=self.policy.device)

    def factor(self, phase: str) -> Tensor | None:
        """Return the product of the factors of a phase's operands, which is exact; None without scaling."""
        found = [self.factors[key] for key in ((phase, "a"), (phase, "b")) if key in self.factors]
        return math.prod(found[1:], start=found[0]) if found else None

    def mac(self, phase: str) -> Product | None:
        """Return the multiply-accumulate of a phase."""
        found: Product | None = getattr(self.policy, phase)
        return found

    def start(self, bias: Tensor | None) -> Tensor | None:
        """Return the start values of the forward sums."""
        if bias is None:
            return None
        if isinstance(self.policy.weight_gradient, MacSpec):
            check_one(self.policy.weight_gradient)
        return self.operand("bias", bias).codes("forward", "o")

    def bias_gradient(self, columns: Matrices, dtype: torch.dtype) -> Tensor:
        """Sum gradients of shape (..., m, n) over n, as products with 1."""
        mac = self.policy.weight_gradient
        ones = _data(columns).new_ones((*columns.shape[:-2], columns.shape[-1], 1))
        if isinstance(mac, MacSpec):
            one = check_one(mac)
            ones.fill_(1 if ones.is_floating_point() else one)
        return self.product("bias_gradient", columns, ones, dtype).squeeze(-1)


@dataclass(frozen=True)
class Quantizer:
    """Conversion of an operand to blocks, with the rounding and the random words of a cast."""

    block: Block
    cast: Cast
    key: int
    tensor: Tensor | None

    def __call__(self, values: Tensor, dim: int) -> BlockTensor:
        """Convert values to blocks along a dimension; the scale of the tensor is that of the results."""
        rounding = self.cast.rounding
        random = self.cast.words(self.key, values.shape, values.device) if rounding.bits else None
        found = quantize_blocks(values, self.block, rounding, dim=dim, tensor=self.tensor, random=random)
        return BlockTensor(found.elements.to(torch.int64), found.scale.to(torch.int64))


def ones_in_blocks(block: Block, like: Tensor) -> BlockTensor:
    """Return a matrix of ones in blocks along its second last dimension, in the shape of ``like``."""
    elements = torch.full_like(like, block.element.encode(Fraction(2) ** block.emax), dtype=torch.int64)
    shape = (*like.shape[:-2], -(-like.shape[-2] // block.length), like.shape[-1])
    return BlockTensor(elements, elements.new_full(shape, block.scale.encode(Fraction(2) ** -block.emax)))


class Operand:
    """Tensor of a layer: pruned, scaled, rounded to the format of its cast, if it has one, and to an operand format."""

    def __init__(self, call: Call, role: str, values: Tensor, cast: Cast) -> None:
        self._call, self._role, self._cast, self._key = call, role, cast, call.key_of(role)
        self._given, self._pruned = values, values
        self._values = values
        self._rounded: Tensor | None = None
        self._rotation: str | None = None
        self._along: tuple[int, ...] = ()
        self._zeros = 0

    def codes(
        self,
        phase: str,
        part: str,
        along: tuple[int, ...] = (),
        summed: tuple[int, ...] = (),
        lay: Callable[[Tensor], Tensor] = lambda factor: factor,
        groups: int = 1,
        rotate: bool = True,
    ) -> Tensor:
        """Return the codes for ``a``, ``b`` or ``o`` of a phase's multiply-accumulate; without one, the values.

        Values in float32 stand for the codes to which the product rounds them, if its kernels do so.

        Parameters
        ----------
        along : tuple of int
            Dimensions of the tensor along which sparsity runs, with channels in ``groups``, as in `Sparsity.mask`.
        summed : tuple of int
            Dimensions of the sums, which have one factor in scaling by channel. Rotation runs along the first.
        lay : callable
            Shapes these factors for the result of the product.
        rotate : bool
            Rotate values if the policy does.
        """
        mac = self._call.mac(phase)
        fmt = None if mac is None else getattr(mac, part)
        self._prune(along, groups)
        self._rotate(phase if rotate and summed else None, summed, groups)
        if fmt is not None and fmt.shares_scale:
            return self._for_blocks(phase, part, fmt)
        formats = dict.fromkeys(one for one in (self._cast.fmt, fmt) if one is not None)
        values, factor = self._scaled(phase, part, formats, summed)
        if self._cast.fmt is not None:
            if self._rounded is None or self._cast.scale is not None:
                self._rounded = self._cast.real(values, self._key)
        if fmt is None:
            PRUNED.total += self._zeros
            found = values if self._rounded is None else self._rounded
            return found if factor is None else multiplied(found, factor, self._given.dtype)
        if factor is not None:
            self._call.factors[phase, part] = factor.reshape(()) if factor.numel() == 1 else lay(factor)
        if factor is None and self._is_rounded_in_product(values, fmt):
            PRUNED.total += self._zeros
            return values
        if self._rounded is None:
            found = self._cast.codes(values, fmt, self._key)
        else:
            found = encode(self._rounded, fmt, saturate=self._cast.saturate)
        note((self._call.layer, phase, self._role), found, lambda: values, *formats, pruned=self._zeros)
        return found

    def _for_blocks(self, phase: str, part: str, block: Block) -> Tensor:
        """Return values for a product of blocks, which quantizes them along its sums."""
        PRUNED.total += self._zeros
        if self._cast.fmt is not None and self._rounded is None:
            self._rounded = self._cast.real(self._values, self._key)
        values = self._values if self._rounded is None else self._rounded
        tensor = None
        if block.has_tensor_scale:
            tensor = tensor_scale(MAX, values, block)
            self._call.factors[phase, part] = tensor.to(torch.float64)
        key = mix(self._key, 1 + PRODUCTS.index(phase))
        self._call.blocks[phase, part] = Quantizer(block, self._cast, key, tensor)
        return values

    def _is_rounded_in_product(self, values: Tensor, fmt: Format) -> bool:
        """Return True if the kernels of products round the values, and there is nothing to note."""
        plain = self._cast.fmt is None and self._cast.rounding == RN and not self._cast.saturate
        return plain and self._call.policy.device is None and reads(fmt, values) and is_quiet(values, fmt)

    def _prune(self, along: tuple[int, ...], groups: int) -> None:
        sparsity = self._cast.sparsity
        if sparsity is not None and along != self._along:
            mask = sparsity.mask(self._given, along, groups)
            self._pruned, self._zeros = self._given.masked_fill(~mask, 0), mask.numel() - int(mask.sum())
            self._along, self._rounded = along, None

    def _rotate(self, phase: str | None, summed: tuple[int, ...], groups: int) -> None:
        """Set the values for a phase: rotated along the first summed dimension, or as they are."""
        rotation = self._call.policy.hadamard
        if rotation is None or phase not in rotation.products:
            rotation, phase = None, None
        if phase != self._rotation:
            self._rotation, self._rounded = phase, None
        self._values = self._pruned
        if rotation is not None and phase is not None:
            dim = summed[0]
            key = mix(self._call.key, len(_ROLES) + PRODUCTS.index(phase))
            # Dimension 1 of an image has the channels of all groups.
            self._values = rotation.of(self._pruned, dim, groups if dim == 1 else 1, key)

    def _scaled(
        self, phase: str, part: str, formats: dict[Format, None], summed: tuple[int, ...]
    ) -> tuple[Tensor, Tensor | None]:
        """Return divided values and their factor; start values have none."""
        values, scale = self._values, self._cast.scale
        if part == "o" or scale is None or not formats:
            return values, None
        delayed = None
        if scale.history:
            if self._call.amax is None:
                raise RuntimeError("delayed scaling needs the histories of a layer or of golden.emulate")
            delayed = self._call.amax[ROLES.index(self._role)]
        factor = scale.factor(values, formats, summed, delayed)
        return divided(values, factor), factor


def _placed(values: Tensor, out: Patches | None) -> Tensor:
    """Return a product, or the tensor of ``out`` with the product as its elements."""
    if out is None:
        return values
    filled = replace(out, data=torch.empty_like(out.data, dtype=values.dtype))
    filled.scatter(values)
    return filled.data


def _data(x: Matrices) -> Tensor:
    """Return the tensor that holds the elements of matrices."""
    return x.data if isinstance(x, Patches) else x


def _reals(given: Matrices, fmt: Format) -> Matrices:
    """Return the numbers of codes, or real numbers rounded to the format."""
    codes = _data(given)
    found = decode(encode(codes, fmt) if codes.is_floating_point() else codes, fmt)
    return replace(given, data=found) if isinstance(given, Patches) else found


policy_of = functools.lru_cache(maxsize=256)(Policy.parse)


@functools.lru_cache(maxsize=256)
def check_one(mac: MacSpec) -> int:
    """Return the code of 1 in the second operand's format; ValueError if the format has no 1."""
    code = mac.b.encode(1, "rz")
    if mac.b.decode(code) != 1:
        raise ValueError(
            f"{mac.b} has no 1, which the gradient of a bias needs as a factor; use a layer without bias, or another "
            "weight_gradient"
        )
    return code


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

    def of_input() -> Tensor:
        weights = call.operand("w", w).codes("input_gradient", "b", (-1,), (-2,))
        rows = behind.codes("input_gradient", "a", (-1,), (-1,))
        return call.product("input_gradient", rows, weights, x.dtype)

    def rows(rotate: bool = True) -> Tensor:
        return behind.codes("weight_gradient", "a", (-2,), (-2,), turned, rotate=rotate).mT

    def columns() -> Tensor:
        return call.operand("x", x).codes("weight_gradient", "b", (-1,), (-2,))

    return _gradients(call, x, w, needs, of_input, rows, columns)


def _gradients(
    call: Call,
    x: Tensor,
    w: Tensor,
    needs: list[bool],
    of_input: Callable[[], Tensor],
    rows: Callable[..., Matrices],
    columns: Callable[[], Matrices],
) -> list[Tensor]:
    """Return the gradients of x, w and bias; those that are not needed are empty.

    The gradient of the weights is the product of ``rows()``, codes of the gradient, and ``columns()``, codes of x. That
    of the bias is the sum of ``rows(rotate=False)``.
    """
    found = [x.new_empty(0) for _ in needs]
    if needs[0]:
        found[0] = of_input()
    if needs[1] or needs[2]:
        left = rows()
    if needs[1]:
        found[1] = call.product("weight_gradient", left, columns(), w.dtype).reshape(w.shape)
    rotation = call.policy.hadamard
    if needs[2] and rotation is not None and "weight_gradient" in rotation.products:
        left = rows(rotate=False)
    if needs[2]:
        found[2] = call.bias_gradient(left, x.dtype).reshape(w.shape[0])
    return [one.contiguous() for one in found]


def _with_gradients(run: Callable[..., Tensor], shape: Callable[..., Any], run_gradients: Callable[..., Any]) -> Any:
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
        found = of_gradients(gradient, x, w, key, amax, *ctx.parts, needs)
        given = (one if needed else None for needed, one in zip(needs, found, strict=True))
        return *given, *[None] * (3 + len(ctx.parts))

    of_gradients = gradients(run_gradients, shapes)
    return differentiable(run, shape, save, backward), of_gradients


_MATMUL, _GRADIENTS_OF_MATMUL = _with_gradients(
    _matmul, lambda x, w, *_: x.new_empty((*x.shape[:-1], w.shape[-2])), _matmul_gradients
)


def _offsets(sizes: Sequence[int], strides: Sequence[int]) -> Tensor:
    """Return the offsets in memory of the elements of a tensor, in row-major order."""
    found = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(sizes, strides, strict=True):
        found = found.unsqueeze(-1) + torch.arange(size) * stride
    return found.flatten()


def _windows(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> tuple[Patches, list[int]]:
    """Return the windows of a convolution, of shape (groups, N * output, C / groups * kernel), and the output's size.

    Rows are in the order of (image, place in the output), columns in that of (channel, place in the kernel).
    """
    x = x.contiguous()
    n, c, *size = x.shape
    of_image, of_channel, *of_place = x.stride()
    output = _output(size, kernel, stride, dilation)
    of_output, of_kernel = ([one * by for one, by in zip(of_place, step, strict=True)] for step in (stride, dilation))
    return Patches(
        x,
        _offsets([groups], [c // groups * of_channel]),
        _offsets([n, *output], [of_image, *of_output]),
        _offsets([c // groups, *kernel], [of_channel, *of_kernel]),
    ), output


def _output(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return the size of the result of a convolution."""
    return [
        (length - step * (reach - 1) - 1) // hop + 1
        for length, reach, hop, step in zip(size, kernel, stride, dilation, strict=True)
    ]


def _images(x: Tensor, groups: int) -> Patches:
    """Return the matrices of shape (groups, N * points, C / groups) of the points of images (N, C, *size)."""
    n, c, *size = x.shape
    points = math.prod(size)
    each = c // groups
    return Patches(
        x, _offsets([groups], [each * points]), _offsets([n, points], [c * points, 1]), _offsets([each], [points])
    )


def spread(x: Tensor, stride: Sequence[int], before: Sequence[int], size: Sequence[int]) -> Tensor:
    """Insert zeros between the pixels of images (stride - 1) and around them, up to a size."""
    # Code 0 is zero in every format.
    wide = x.new_zeros((*x.shape[:2], *size))
    wide[spread_places(stride, before, x.shape[2:])] = x
    return wide


def spread_places(stride: Sequence[int], before: Sequence[int], count: Sequence[int]) -> tuple[Any, ...]:
    """Return the places of the points in a result of `spread`."""
    places = zip(before, stride, count, strict=True)
    return (..., *(slice(first, first + step * number, step) for first, step, number in places))


def _convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    key: Tensor | None,
    amax: Tensor | None,
    history: Tensor | None,
    policy: str,
    layer: str,
    geometry: list[int],
) -> Tensor:
    """Convolve padded images as matrix products (im2col); ``history`` is for the gradient."""
    call = Call.of(policy, key, amax, layer)
    stride, dilation, groups = _geometry(geometry)
    m, rest = w.shape[0], _rest(x, 0)
    codes = call.operand("x", x).codes("forward", "a", (1,), rest, groups=groups)
    windows, output = _windows(codes, w.shape[2:], stride, dilation, groups)
    codes = call.operand("w", w).codes("forward", "b", (1,), rest, lambda found: found.transpose(0, 1))
    kernels = codes.reshape(groups, m // groups, math.prod(w.shape[1:]))
    start = call.start(bias)
    if start is not None:
        start = start.reshape(groups, 1, m // groups)
    images = _images(x.new_empty((x.shape[0], m, *output)), groups)
    return call.product("forward", windows, kernels.mT, x.dtype, start, images)


def _geometry(geometry: list[int]) -> tuple[list[int], list[int], int]:
    """Split the geometry of a convolution into stride, dilation and groups."""
    dims = len(geometry) // 2
    return geometry[:dims], geometry[dims : 2 * dims], geometry[-1]


def _convolution_shape(x: Tensor, w: Tensor, *parts: Any) -> Tensor:
    stride, dilation, _ = _geometry(parts[-1])
    return x.new_empty((x.shape[0], w.shape[0], *_output(x.shape[2:], w.shape[2:], stride, dilation)))


def _rest(x: Tensor, dim: int) -> tuple[int, ...]:
    """Return all dimensions but one."""
    return tuple(one for one in range(x.dim()) if one != dim)


def _convolution_gradients(
    gradient: Tensor,
    x: Tensor,
    w: Tensor,
    key: Tensor | None,
    amax: Tensor | None,
    policy: str,
    layer: str,
    geometry: list[int],
    needs: list[bool],
) -> list[Tensor]:
    call = Call.of(policy, key, amax, layer)
    stride, dilation, groups = _geometry(geometry)
    behind = call.operand("gradient", gradient)
    m, c, *kernel = w.shape
    n, _, *size = x.shape

    def of_input() -> Tensor:
        """Convolve the spread gradient with the flipped kernels; each element is one sum."""
        reach = [step * (length - 1) for step, length in zip(dilation, kernel, strict=True)]
        wide = spread(
            behind.codes("input_gradient", "a", (1,), _rest(x, 0), groups=groups),
            stride,
            reach,
            [length + more for length, more in zip(size, reach, strict=True)],
        )
        windows, _ = _windows(wide, kernel, [1] * len(kernel), dilation, groups)

        def by_channel(factors: Tensor) -> Tensor:
            return factors.reshape(1, groups * c, *[1] * len(kernel))

        parts = call.operand("w", w.reshape(groups, m // groups, c, *kernel))
        codes = parts.codes("input_gradient", "b", (2,), (1, *range(3, 3 + len(kernel))), by_channel)
        kernels = turned_kernels(codes).flatten(2)
        images = _images(x.new_empty((n, groups * c, *size)), groups)
        return call.product("input_gradient", windows, kernels.mT, x.dtype, None, images)

    def rows(rotate: bool = True) -> Patches:
        along = _rest(x, 1)
        codes = behind.codes(
            "weight_gradient", "a", along, along, lambda found: found.reshape(groups, -1, 1), rotate=rotate
        )
        return _images(codes.contiguous(), groups).mT

    def columns() -> Patches:
        def by_channel(factors: Tensor) -> Tensor:
            return factors.reshape(groups, 1, -1).repeat_interleave(math.prod(kernel), 2)

        codes = call.operand("x", x).codes("weight_gradient", "b", (1,), _rest(x, 1), by_channel, groups)
        return _windows(codes, kernel, stride, dilation, groups)[0]

    return _gradients(call, x, w, needs, of_input, rows, columns)


def turned_kernels(kernels: Tensor) -> Tensor:
    """Exchange inputs and outputs of kernels of shape (groups, M / groups, C / groups, *kernel), and flip them."""
    return kernels.transpose(1, 2).flip(*range(3, kernels.dim()))


_CONVOLUTION, _GRADIENTS_OF_CONVOLUTION = _with_gradients(_convolution, _convolution_shape, _convolution_gradients)


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
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"batches of shapes {tuple(a.shape[:-2])} and {tuple(b.shape[:-2])} do not broadcast"
        ) from error
    x, w = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    product: Tensor = _MATMUL(x, w.mT, None, use.key, *use.amax(x, w), use.policy, use.layer, True)
    return product


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    use: Use,
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """Convolve without padding, for shapes (N, C, H, W) or (C, H, W), (M, C / groups, kh, kw) and (M,).

    Each element is one sum in ascending index order. The sum of a result runs over (channel, row, column) of the kernel
    and starts from the bias; that of an input gradient runs over (kernel, row, column) of the flipped kernels; that of
    a weight gradient runs over (image, row, column). Sums have products with the zeros of a padding, and those of input
    gradients with zeros at the edges and for a stride above 1; with infinity or NaN in a kernel they are NaN.
    """
    dtype = check_real(x, "the input")
    images = x if x.dim() == 4 else x.unsqueeze(0)
    channels = weight.shape[1] * groups
    if images.dim() != 4 or images.shape[1] != channels:
        raise ValueError(
            f"the input has shape {tuple(x.shape)}; a convolution of {channels} channels needs (N, {channels}, H, W)"
        )
    reach = [dilation[place] * (weight.shape[2 + place] - 1) + 1 for place in (0, 1)]
    if any(images.shape[2 + place] < reach[place] for place in (0, 1)):
        raise ValueError(
            f"the input has {images.shape[2]} x {images.shape[3]} pixels with its padding; the kernel needs "
            f"{reach[0]} x {reach[1]}"
        )
    given = None if bias is None else bias.to(dtype)
    geometry = [*stride, *dilation, groups]
    w = weight.to(dtype)
    found: Tensor = _CONVOLUTION(images, w, given, use.key, *use.amax(images, w), use.policy, use.layer, geometry)
    return found if x.dim() == 4 else found.squeeze(0)


def _quantize(x: Tensor, key: Tensor | None, forward: str, backward: str, layer: str) -> Tensor:
    """Round values by the forward cast; an empty text rounds nothing."""
    return _rounded(x, key, forward, 0, layer)


def _quantize_gradients(gradient: Tensor, key: Tensor | None, backward: str, layer: str) -> Tensor:
    """Round gradients by the backward cast; an empty text rounds nothing."""
    return _rounded(gradient, key, backward, 1, layer)


def _rounded(x: Tensor, key: Tensor | None, text: str, role: int, layer: str) -> Tensor:
    cast = cast_of(text) if text else None
    if cast is None or cast.fmt is None:
        return x.clone()
    codes = cast.codes(x, cast.fmt, mix(0 if key is None else int(key), role))
    where = (layer, "backward", "gradient") if role else (layer, "forward", "x")
    note(where, codes, lambda: x, cast.fmt)
    return real(codes, cast.fmt, x.dtype).contiguous()


cast_of = functools.lru_cache(maxsize=256)(Cast.parse)


def _save_quantize(ctx: Any, inputs: Any, output: Tensor) -> None:
    _, key, _, *ctx.parts = inputs
    ctx.save_for_backward(key)


def _quantize_backward(ctx: Any, gradient: Tensor) -> Any:
    return _GRADIENTS_OF_QUANTIZE(gradient, *ctx.saved_tensors, *ctx.parts), *[None] * 4


_GRADIENTS_OF_QUANTIZE = gradients(_quantize_gradients, lambda x, *_: x.new_empty(x.shape))
_QUANTIZE = differentiable(_quantize, lambda x, *_: x.new_empty(x.shape), _save_quantize, _quantize_backward)


def quantize(x: Tensor, forward: str, backward: str, use: Use) -> Tensor:
    """Round values in the forward pass and their gradients in the backward pass; an empty text rounds nothing."""
    rounded: Tensor = _QUANTIZE(x, use.key, forward, backward, use.layer)
    return rounded


def padded(x: Tensor, padding: Sequence[int], mode: str) -> Tensor:
    """Pad images left, right, above and below, as `torch.nn.Conv2d` does."""
    if not any(padding):
        return x
    return F.pad(x, list(padding), mode="constant" if mode == "zeros" else mode)
