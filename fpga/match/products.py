"""Trace of the matrix products of a torch model.

The model runs forward and backward on torch's device ``meta``, which computes shapes without values, or on values if
its control flow depends on them. Every product is recorded. Convolutions are products of patches (im2col).
"""

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from halfulp.golden.nn import PiecewiseLinear, Quantize
from halfulp.golden.nn.layers import Computed
from halfulp.golden.torch_internals import TorchDispatchMode, tree_leaves, tree_map

Phase = Literal["forward", "backward"]


@dataclass(frozen=True)
class Gemm:
    """Matrix products (n x k) times (k x m), of the forward or the backward pass; a ``batch`` of independent ones."""

    n: int
    k: int
    m: int
    phase: Phase = "forward"
    batch: int = 1

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates of all products."""
        return self.n * self.k * self.m * self.batch


def trace(model: nn.Module, *inputs: Any, training: bool = True, **named: Any) -> list[Gemm]:
    """Trace the products of one step, in order of computation.

    A model whose control flow depends on values, such as an attention mask, is copied and run on values. ValueError if
    the model cannot be run, has no products, or has no gradient.

    Parameters
    ----------
    model : nn.Module
        The model; it is not changed. Gradients are of the sum of its outputs. Converted layers are traced as layers of
        torch, because their products have the same shapes.
    inputs, named : Tensor
        One batch of examples, as arguments of the model.
    training : bool
        True for the forward and backward pass, False for the forward pass. Inputs have no gradient.
    """
    with _in_torch(model):
        try:
            try:
                gemms = _on_shapes(model, inputs, named, training)
            except Exception:
                gemms = _on_values(model, inputs, named, training)
        except Exception as error:  # a user's model may raise anything
            lines = str(error).splitlines() or [type(error).__name__]
            raise ValueError(f"{type(model).__name__} cannot be traced: {lines[0]}") from error
    if not gemms:
        raise ValueError(f"{type(model).__name__} computes no matrix product")
    return gemms


def _on_shapes(model: nn.Module, inputs: Any, named: Any, training: bool) -> list[Gemm]:
    """Trace a step on torch's device ``meta``."""
    # The same parameter gives the same tensor, so that shared parameters remain shared.
    shapes: dict[int, Tensor] = {}

    def shape_of(tensor: Tensor) -> Tensor:
        if id(tensor) not in shapes:
            meta = tensor.detach().to("meta")
            kind = nn.Parameter if isinstance(tensor, nn.Parameter) else lambda x, requires_grad: x
            shapes[id(tensor)] = kind(meta, requires_grad=tensor.requires_grad)
        return shapes[id(tensor)]

    tensors = itertools.chain(
        model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    )
    state = {name: shape_of(tensor) for name, tensor in tensors}
    given, words = tree_map(lambda x: x.detach().to("meta") if isinstance(x, Tensor) else x, (inputs, named))
    was = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        with torch.device("meta"):
            return _recorded(
                lambda: torch.func.functional_call(model, state, given, words, tie_weights=False), training
            )
    finally:
        for module, mode in was.items():
            module.training = mode


def _on_values(model: nn.Module, inputs: Any, named: Any, training: bool) -> list[Gemm]:
    """Trace a step of a copy of the model on values."""
    made = copy.deepcopy(model).train(training)
    given, words = tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, (inputs, named))
    # Fused layers would hide their products from the recorder.
    fused, fast = torch.backends.mkldnn.set_flags(False)[0], torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.random.fork_rng(devices=[]):
            return _recorded(lambda: made(*given, **words), training)
    finally:
        torch.backends.mkldnn.set_flags(fused)
        torch.backends.mha.set_fastpath_enabled(fast)


def _recorded(run: Callable[[], Any], training: bool) -> list[Gemm]:
    recorder = _Recorder()
    with sdpa_kernel(SDPBackend.MATH), torch.set_grad_enabled(training), recorder:
        out = run()
        if training:
            recorder.phase = "backward"
            sums = [x.sum() for x in tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad]
            if not sums:
                raise ValueError("the model has no parameter with a gradient, so there is no backward pass to trace")
            torch.autograd.backward(sums)
    return recorder.gemms


@contextlib.contextmanager
def _in_torch(model: nn.Module) -> Iterator[None]:
    """Let the converted layers of a model compute in torch's arithmetic within the context."""
    layers = {module: module._plain for module in model.modules() if isinstance(module, Computed)}
    elements = [module for module in model.modules() if isinstance(module, (Quantize, PiecewiseLinear))]
    for layer in layers:
        layer._plain = True
    for module in elements:
        vars(module)["forward"] = lambda x: x
    try:
        yield
    finally:
        for layer, plain in layers.items():
            layer._plain = plain
        for module in elements:
            del vars(module)["forward"]


class _Recorder(TorchDispatchMode):
    """Recorder of every product that torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.gemms: list[Gemm] = []
        self.phase: Phase = "forward"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        count = PRODUCTS.get(func.overloadpacket)
        if count is not None:
            shapes = count(*args, **(kwargs or {}))
            self.gemms += [Gemm(n, k, m, self.phase, batch) for n, k, m, batch in shapes if batch]
        return func(*args, **(kwargs or {}))


Shapes = Iterator[tuple[int, int, int, int]]
"""Sizes n, k and m of batches of products, and their number in the batch."""


def _product(a: Tensor, b: Tensor, **_: Any) -> Shapes:
    """Yield the shapes of the products of matrices, of a matrix and a vector, or of batches of matrices."""
    *batch, n, k = a.shape
    yield n, k, b.shape[-1] if b.dim() > 1 else 1, math.prod(batch)


def _after_sum(count: Callable[..., Shapes]) -> Callable[..., Shapes]:
    """Adapt a function of two operands to an operator whose first argument is an addend."""
    return lambda added, a, b, **rest: count(a, b, **rest)


def _convolution(  # noqa: PLR0913 - arguments of torch's operation
    x: Tensor, weight: Tensor, bias: Any, stride: Any, pad: Any, dilation: Any, transposed: bool, out: Any, groups: int
) -> Shapes:
    places = x.shape[2:] if transposed else _places(x, weight, stride, pad, dilation)
    n, k, m = _patches(x, weight, places, groups)
    yield (n, m, k, groups) if transposed else (n, k, m, groups)


def _convolution_backward(  # noqa: PLR0913 - arguments of torch's operation
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    biases: Any,
    stride: Any,
    pad: Any,
    dilation: Any,
    transposed: bool,
    out: Any,
    groups: int,
    wanted: Sequence[bool],
) -> Shapes:
    places = x.shape[2:] if transposed else gradient.shape[2:]
    n, k, m = _patches(x, weight, places, groups)
    if wanted[0]:
        yield (n, k, m, groups) if transposed else (n, m, k, groups)
    if wanted[1]:
        yield (m, n, k, groups) if transposed else (k, n, m, groups)


def _patches(x: Tensor, weight: Tensor, places: Sequence[int], groups: int) -> tuple[int, int, int]:
    """Return the number of patches of a batch, their elements and the output channels of one group.

    A transposed convolution maps channels to patches: its input has the shape of the output of the other.
    """
    return x.shape[0] * math.prod(places), math.prod(weight.shape[1:]), weight.shape[0] // groups


def _places(x: Tensor, weight: Tensor, stride: Any, pad: Any, dilation: Any) -> list[int]:
    sizes = zip(x.shape[2:], weight.shape[2:], stride, pad, dilation, strict=True)
    return [(size + 2 * p - d * (kernel - 1) - 1) // s + 1 for size, kernel, s, p, d in sizes]


_aten = torch.ops.aten

PRODUCTS: dict[Any, Callable[..., Shapes]] = {
    _aten.mm: _product,
    _aten.addmm: _after_sum(_product),
    _aten.bmm: _product,
    _aten.baddbmm: _after_sum(_product),
    _aten.mv: _product,
    _aten.addmv: _after_sum(_product),
    _aten.convolution: _convolution,
    _aten.convolution_backward: _convolution_backward,
}
"""Operators to which torch reduces all products, with functions that yield the shapes of their products."""
