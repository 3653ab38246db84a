"""Products of a program on multiply-accumulates, and sums of elements in their accumulators."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.kernels import elementwise
from halfulp.golden.nn.cast import DTYPES, Cast, check_holds, check_holds_results, real
from halfulp.golden.nn.convolution import convolved, gradients_of_convolution, spread, spread_places, turned_kernels
from halfulp.golden.nn.draw import mix
from halfulp.golden.nn.matmul import turned
from halfulp.golden.nn.operands import Call, check_one
from halfulp.golden.nn.policy import Policy, Product
from halfulp.golden.nn.product import product
from halfulp.golden.nn.reduction import Reduction
from halfulp.golden.values import encoded
from halfulp.hdl.formats import EXACT, OFF, RN, Fixed, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec
from halfulp.hdl.specs.mma import MmaSpec

from .arithmetic import compute, operand

UFXP1_0 = Fixed(1, 0, signed=False)
"""Format of the factor 1 of fixed-point numbers."""

MATRICES = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "mv": (0, 1),
    "dot": (0, 1),
    "vdot": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
}
"""Products of two matrices, with the places of these among the arguments."""


def matmul(
    call: Call, phase: str, a: Tensor, b: Tensor, roles: tuple[str, str], start: Tensor | None = None
) -> tuple[Tensor, int]:
    """Multiply matrices of real values in the roles of `Call.operand`; return the number of pruned elements too.

    Sums begin from ``start``.
    """
    # A tensor has one orientation in all phases, that of layers, so that its random words are the same.
    if phase == "weight_gradient":
        left = call.operand(roles[0], a.mT).codes(phase, "a", (-2,), (-2,), turned).mT
    else:
        left = call.operand(roles[0], a).codes(phase, "a", (-1,), (-1,))
    if phase == "forward":
        right = call.operand(roles[1], b.mT).codes(phase, "b", (-1,), (-1,), turned).mT
    else:
        right = call.operand(roles[1], b).codes(phase, "b", (-1,), (-2,))
    begin = None if start is None else call.operand("bias", start).codes(phase, "o").tensor
    return call.product(phase, left, right, torch.result_type(a, b), begin), left.pruned + right.pruned


@dataclass(frozen=True)
class Geometry:
    """Geometry of a convolution, one number for each spatial dimension.

    A transposed one is the convolution of the spread images with turned kernels.
    """

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @classmethod
    def of(cls, w: Tensor, given: Sequence[Any]) -> "Geometry":
        """Return the geometry of the arguments of torch's operation; one number may stand for all dimensions."""
        stride, padding, dilation, transposed, output_padding, groups = given
        dims = w.dim() - 2
        each = [
            list(parameter) * dims if len(parameter) == 1 else list(parameter)
            for parameter in (stride, padding, dilation, output_padding)
        ]
        return cls(each[0], each[1], each[2], transposed, each[3], groups)

    @property
    def plain(self) -> list[int]:
        """Geometry of the convolution of prepared operands: stride, dilation and groups."""
        return [*([1] * len(self.stride) if self.transposed else self.stride), *self.dilation, self.groups]

    def macs(self, x: Tensor, w: Tensor, y: Tensor) -> int:
        """Return the number of multiply-accumulates of images, kernels and result; spread zeros do not count."""
        return math.prod((x if self.transposed else y).shape) * math.prod(w.shape[1:])

    def prepared(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return images and kernels of an equal convolution without padding."""
        if not self.transposed:
            return F.pad(x, self._borders(1)), w
        reach = self._reach(w)
        sizes = [
            (length - 1) * step + 1 + 2 * more + after
            for length, step, more, after in zip(x.shape[2:], self.stride, reach, self.output_padding, strict=True)
        ]
        return F.pad(spread(x, self.stride, reach, sizes), self._borders(-1)), self._turned(w, w.shape[0])

    def input_gradient(self, gradient: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """Return the gradient of the images from that of the prepared ones."""
        if not self.transposed:
            return F.pad(gradient, self._borders(-1))
        places = spread_places(self.stride, self._reach(w), x.shape[2:])
        return F.pad(gradient, self._borders(1))[places].contiguous()

    def weight_gradient(self, gradient: Tensor, w: Tensor) -> Tensor:
        """Return the gradient of the kernels from that of the prepared ones."""
        if not self.transposed:
            return gradient
        return self._turned(gradient, w.shape[1] * self.groups).reshape(w.shape).contiguous()

    def _borders(self, sign: int) -> list[int]:
        return [sign * width for width in reversed(self.padding) for _ in range(2)]

    def _reach(self, w: Tensor) -> list[int]:
        return [step * (length - 1) for step, length in zip(self.dilation, w.shape[2:], strict=True)]

    def _turned(self, w: Tensor, rows: int) -> Tensor:
        by_group = w.reshape(self.groups, rows // self.groups, *w.shape[1:])
        return turned_kernels(by_group).flatten(0, 1)


def macs(operation: str, args: Sequence[Any], result: Tensor) -> int:
    """Return the number of multiply-accumulates of an operation; 0 unless it is a product."""
    if operation in MATRICES:
        return result.numel() * int(args[MATRICES[operation][0]].shape[-1])
    if operation in ("convolution", "_convolution"):
        return Geometry.of(args[1], args[3:9]).macs(args[0], args[1], result)
    if operation == "convolution_backward":
        gradient, x, w, _, *geometry, needs = args
        return Geometry.of(w, geometry).macs(x, w, gradient) * sum(needs[:2])
    return 0


def layer_macs(base: str, args: Sequence[Any], result: Tensor) -> int:
    """Return the multiply-accumulates of an operation of a converted layer, both gradients together."""
    if base in ("matmul", "convolution"):
        return result.numel() * math.prod(args[1].shape[1:] if base == "convolution" else args[0].shape[-1:])
    if base in ("matmul_gradients", "convolution_gradients"):
        gradient, x, w, *_, needs = args
        each = math.prod(w.shape[1:] if base == "convolution_gradients" else x.shape[-1:])
        return gradient.numel() * each * (needs[0] + needs[1])
    return 0


def convolution(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> tuple[Tensor, int]:
    """Convolve images, as `halfulp.golden.nn.Conv2d` does, in any number of dimensions; count pruned elements."""
    return convolved(call, *geometry.prepared(x, w), bias, geometry.plain)


def convolution_gradients(
    call: Call, gradient: Tensor, x: Tensor, w: Tensor, geometry: Geometry, needs: list[bool]
) -> tuple[list[Tensor | None], int]:
    """Return the gradients of images, kernels and bias, None where they are not needed, and count pruned elements."""
    gradients, pruned = gradients_of_convolution(call, gradient, *geometry.prepared(x, w), geometry.plain, needs)
    return [
        geometry.input_gradient(gradients[0], x, w) if needs[0] else None,
        geometry.weight_gradient(gradients[1], w) if needs[1] else None,
        gradients[2] if needs[2] else None,
    ], pruned


def accumulator(policy: Policy, phase: str) -> tuple[Cast | MacSpec | None, str]:
    """Return accumulator and order of sums in a phase; no accumulator for torch's own arithmetic."""
    given = policy.reductions or Reduction()
    mac: Product | None = getattr(policy, phase)
    if given.accumulator is not None or mac is None:
        return given.accumulator, given.order
    if isinstance(mac, MmaSpec):
        return Cast(mac.o), given.order
    if isinstance(mac, BlockMacSpec):
        return Cast(mac.o, mac.rounding, mac.saturate), "exact" if mac.acc == "exact" else given.order
    return mac, "exact" if mac.acc == "exact" else given.order


def total(x: Tensor, fmt: Format, acc: Cast | MacSpec, order: str, key: int) -> Tensor:
    """Sum the last dimension of numbers of a format."""
    if order == "pairwise":
        return pairwise(x, as_cast(acc), key)
    unit_format = UFXP1_0 if fmt.spacing == "uniform" else fmt
    if isinstance(acc, MacSpec):
        spec = replace(acc, a=fmt, b=unit_format, product=None, product_rounding=EXACT)
    else:
        assert acc.fmt is not None
        spec = MacSpec(a=fmt, b=unit_format, acc=acc.fmt, rounding=acc.rounding, saturate=acc.saturate)
    if order == "exact":
        spec = replace(spec, acc="exact", o=spec.o)
    codes = encoded(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), fmt, RN, None, OFF)
    ones = codes.new_full((x.shape[-1], 1), check_one(spec))
    sums = product(codes, ones, spec, key=key)
    check_holds_results(x.dtype, spec.o)
    return real(sums, spec.o, x.dtype).reshape(x.shape[:-1])


def total_in_kernel(x: Tensor, dims: list[int], number: Cast | None, acc: Cast | MacSpec) -> Tensor | None:
    """Sum over dimensions one element after the other, in a compiled kernel; None if it does not support the sum."""
    cast = as_cast(acc)
    parts = (cast,) if number is None else (cast, number)
    if x.numel() == 0 or any(part.target is None or part.rounding.bits for part in parts):
        return None
    assert cast.fmt is not None
    assert cast.target is not None
    check_holds(x.dtype, cast.fmt)
    native = elementwise.is_native(cast.fmt, cast.rounding, cast.saturate)
    narrow = number is not None or x.dtype != torch.float64
    return elementwise.total(x, dims, None if number is None else number.target, cast.target, native and narrow)


def as_cast(acc: Cast | MacSpec) -> Cast:
    """Return format and rounding of an accumulator."""
    return Cast(acc.o, acc.rounding, acc.saturate) if isinstance(acc, MacSpec) else acc


def pairwise(x: Tensor, cast: Cast, key: int, name: str = "add") -> Tensor:
    """Add, or multiply with ``mul``, the numbers of the last dimension in a balanced tree of neighbours."""
    if x.shape[-1] == 0:
        return x.new_zeros(x.shape[:-1])
    x = operand(x, cast, key).to(x.dtype)
    level = 0
    while (length := x.shape[-1]) > 1:
        level += 1
        even = length - length % 2
        sums = compute(name, (x[..., 0:even:2], x[..., 1:even:2]), cast, mix(key, level), x.dtype)
        x = torch.cat([sums, x[..., even:]], -1)
    return x.squeeze(-1)


def scattered(
    into: Tensor,
    places: Tensor,
    x: Tensor,
    number: Cast | None,
    acc: Cast | MacSpec,
    order: str,
    keys: tuple[int, int],
) -> Tensor:
    """Add the rows of x, in their order, to rows ``places`` of a copy of ``into``.

    ``number`` is the format of the elements of x, and ``keys`` are those of the random words of elements and of sums.
    In an order that is not sequential, each sum is that of the row of ``into`` and of the rows of x.
    """
    cast, sums, places = as_cast(acc), into.clone(memory_format=torch.contiguous_format), places.to(torch.int64)
    assert cast.fmt is not None
    for needed in (torch.float32, into.dtype):
        check_holds_results(needed, cast.fmt)
    parts = (cast,) if number is None else (cast, number)
    if order == "sequential" and all(part.target is not None and not part.rounding.bits for part in parts):
        assert cast.target is not None
        if elementwise.scatter(sums, places, x, None if number is None else number.target, cast.target):
            return sums
    if number is not None:
        x = number.real(x, keys[0])
    by_place = places.argsort(stable=True)
    starts = places[by_place]
    first = torch.searchsorted(starts, starts)
    if order != "sequential":
        lengths = torch.searchsorted(starts, starts, right=True) - first
        for length in lengths.unique().tolist():
            begins = ((lengths == length) & (first == torch.arange(len(starts), device=places.device))).nonzero()
            rows = by_place[begins + torch.arange(length, device=places.device)]
            at = places[rows[:, 0]]
            terms = torch.cat([sums[at].unsqueeze(1), x[rows]], 1).movedim(1, -1)
            sums[at] = total(terms, DTYPES[into.dtype], acc, order, mix(keys[1], length))
        return sums
    turn = torch.arange(len(by_place), device=places.device) - first
    for step in range(int(turn.max()) + 1 if len(turn) else 0):
        rows = by_place[turn == step]
        at = places[rows]
        sums[at] = compute("add", (sums[at], x[rows]), cast, mix(keys[1], step), into.dtype)
    return sums
