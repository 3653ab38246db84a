"""Operations of torch in the arithmetic of a policy, by their names in ATen."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.function_table import FUNCTIONS
from halfulp.golden.nn.cast import DTYPES

from . import products
from .products import Geometry
from .site import Site

Handler = Callable[..., Any]

HANDLERS: dict[str, Handler] = {}
"""Functions of a site and of the arguments of an operation."""

EXACT = {
    "moves numbers": """
        alias as_strided as_strided_scatter broadcast_in_dim broadcast_tensors cat channel_shuffle clone
        contiguous copy copy_.Tensor detach diag diag_embed diagonal_backward diagonal_copy diagonal_scatter
        embedding expand_copy flip gather im2col index.Tensor index.Tensor_hacked_twin index_copy
        index_fill.int_Tensor index_select lift lift_fresh lift_fresh_copy masked_fill.Tensor masked_scatter
        meshgrid meshgrid.indexing _pack_padded_sequence _pad_packed_sequence permute_copy pixel_shuffle
        pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat
        repeat_interleave.self_Tensor repeat_interleave.self_int replication_pad1d replication_pad2d
        replication_pad3d _reshape_alias _reshape_copy resize resize_ resize_as resize_as_ roll rot90
        scatter.src select_backward select_scatter set set.source_Storage set.source_Storage_storage_offset
        set.source_Tensor set_.source_Tensor_storage_offset slice_backward slice_scatter split_copy.Tensor
        split_with_sizes_copy squeeze_copy squeeze_copy.dim squeeze_copy.dims stack t_copy take take_along_dim
        tile transpose_copy.int tril triu unbind_copy.int unfold_copy unsafe_chunk _unsafe_index.Tensor
        _unsafe_index.Tensor_hacked_twin unsafe_split.Tensor unsafe_split_with_sizes _unsafe_view
        unsqueeze_copy upsample_nearest1d upsample_nearest1d.vec upsample_nearest2d upsample_nearest2d.vec
        upsample_nearest3d upsample_nearest3d.vec view_as_complex view_as_real view_copy view_copy.dtype
        view_of""",
    "selects some of the numbers": """
        adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax clamp.Tensor clamp_max.Tensor
        clamp_min.Tensor cummax cummin fmax fmin fractional_max_pool2d fractional_max_pool3d
        hardshrink_backward hardtanh_backward kthvalue masked_select max max.dim max.other
        max_pool2d_with_indices max_pool3d_with_indices maximum median median.dim min min.dim min.other
        minimum mode nanmedian nanmedian.dim relu relu6 softshrink_backward sort sort.stable
        threshold_backward topk _unique2 unique_consecutive unique_dim where.self""",
    "fills in a constant, which the operation that uses it rounds": """
        clamp clamp_max clamp_min constant_pad_nd copy_.float copy_.int _efficientzerotensor empty
        empty.memory_format empty_like empty_permuted empty_strided eye eye.m fill fill.Scalar fill.Tensor
        full full_like hardtanh index_fill.int_Scalar masked_fill.Scalar new_empty new_empty_strided new_full
        new_ones new_zeros _new_zeros_with_same_feature_meta ones ones_like scalar_tensor scatter.value threshold
        where where.Scalar where.ScalarOther where.ScalarSelf zero zeros zeros_like""",
    "has results that are numbers of every format of the operand": """
        abs ceil copysign.Scalar copysign.Tensor floor frac frexp frexp.Tensor neg round sgn sign trunc""",
    "compares, counts or finds places": """
        all all.dim all.dims allclose any any.dim any.dims argmax argmin bucketize.Scalar bucketize.Tensor
        count_nonzero count_nonzero.dim_IntList eq eq.Scalar eq.Tensor equal ge ge.Scalar ge.Tensor gt
        gt.Scalar gt.Tensor _has_same_storage_numel histc is_same_size isclose isfinite isin.Scalar_Tensor
        isin.Tensor_Scalar isin.Tensor_Tensor isinf isnan isneginf isposinf le le.Scalar le.Tensor logical_and
        logical_not logical_or logical_xor lt lt.Scalar lt.Tensor ne ne.Scalar ne.Tensor nonzero
        nonzero_static repeat_interleave.Tensor searchsorted.Scalar searchsorted.Tensor signbit tril_indices""",
    "draws random numbers": """
        bernoulli bernoulli.Tensor bernoulli.p cauchy exponential geometric log_normal multinomial normal
        normal_ normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal.float_float rand
        rand.generator rand_like rand_like.generator randint_like randint_like.Tensor
        randint_like.Tensor_generator randint_like.generator randint_like.low_dtype
        randint_like.low_generator_dtype randn randn.generator randn_like randn_like.generator random
        random.from random.to uniform""",
    "converts between the types of torch": """
        convert_element_type item _local_scalar_dense _to_copy""",
}
"""Operations that round nothing, by reason: overloads without arguments for results, ``default`` left out."""


FILLS = frozenset(
    [
        *("clamp", "clamp_max", "clamp_min", "constant_pad_nd", "fill", "full", "full_like", "index_fill"),
        *("masked_fill", "new_full", "scalar_tensor", "where"),
    ]
)
"""Exact operations that put numbers of the program into tensors."""


def handler(*names: str) -> Callable[[Handler], Handler]:
    """Register a function for operations of these names."""

    def register(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return register


@handler("mm", "bmm")
def _product(site: Site, a: Tensor, b: Tensor) -> Any:
    return _matmul(site, a, b, None)


def _matmul(site: Site, a: Tensor, b: Tensor, start: Tensor | None) -> Tensor:
    """Multiply two matrices, each a weight, an activation or a gradient."""
    phase, roles, swapped = site.roles(a, b)
    macs = math.prod(a.shape) * b.shape[-1]
    where = site.product(phase, macs)
    if swapped:
        begin = None if start is None else start.expand(*a.shape[:-1], b.shape[-1]).mT
        call = where.call({roles[0]: b, roles[1]: a})
        sums, pruned = products.matmul(call, phase, b.mT, a.mT, roles, begin)
        return where.done(sums.mT.contiguous(), pruned)
    call = where.call({roles[0]: a, roles[1]: b})
    return where.done(*products.matmul(call, phase, a, b, roles, start))


@handler("addmm", "baddbmm")
def _product_and_sum(site: Site, start: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Start the sums from a tensor, as layers start them from a bias."""
    if alpha == 1 and beta == 1:
        return _matmul(site, a, b, start)
    made = _matmul(site, a, b, None)
    if alpha != 1:
        made = site.element("mul", made, alpha)
    if beta == 0:
        return made
    return site.element("add", made, start if beta == 1 else site.element("mul", start, beta))


@handler("mv")
def _matrix_vector(site: Site, a: Tensor, x: Tensor) -> Any:
    return _matmul(site, a, x.unsqueeze(-1), None).squeeze(-1)


@handler("dot", "vdot")
def _dot(site: Site, x: Tensor, y: Tensor) -> Any:
    return _matmul(site, x.unsqueeze(0), y.unsqueeze(-1), None).reshape(())


@handler("convolution", "_convolution")
def _convolution(site: Site, x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    shape = Geometry.of(w, geometry[:6])
    where = site.product("forward", 0)
    images, pruned = products.convolution(where.call({"x": x, "w": w}), x, w, bias, shape)
    where.macs = shape.macs(x, w, images)
    return where.done(images, pruned)


@handler("convolution_backward")
def _convolution_backward(site: Site, gradient: Tensor, x: Tensor, w: Tensor, bias_sizes: Any, *parts: Any) -> Any:
    *geometry, needs = parts
    shape = Geometry.of(w, geometry)
    macs = shape.macs(x, w, gradient)
    gradients: list[Tensor | None] = [None, None, None]
    # One row of the report for each product.
    for phase, places in (("input_gradient", [0]), ("weight_gradient", [1, 2])):
        asked = [place in places and needs[place] for place in range(3)]
        if any(asked):
            where = site.product(phase, macs * (asked[0] or asked[1]))
            call = where.call({"x": x, "w": w, "gradient": gradient})
            made, pruned = products.convolution_gradients(call, gradient, x, w, shape, asked)
            where.done(next(gradient for gradient in made if gradient is not None), pruned)
            gradients = [old if new is None else new for old, new in zip(gradients, made, strict=True)]
    return tuple(gradients)


def _binary(name: str) -> Handler:
    def run(
        site: Site, x: Any, y: Any, *, alpha: float = 1, rounding_mode: str | None = None, average: bool = False
    ) -> Any:
        if rounding_mode is not None:
            return NotImplemented
        if average:
            return site.average(x, y)
        if alpha != 1:
            y = site.element("mul", y, alpha) if isinstance(y, Tensor) else y * alpha
        return site.element(name, x, y)

    return run


for _name in ("add", "sub", "mul", "div"):
    HANDLERS[_name] = _binary(_name)
HANDLERS["true_divide"] = HANDLERS["div"]


@handler("remainder")
def _remainder(site: Site, x: Any, y: Any) -> Any:
    left = site.element("fmod", x, y)
    return torch.where((left != 0) & ((left < 0) != (torch.as_tensor(y) < 0)), site.element("add", left, y), left)


@handler("rsub")
def _rsub(site: Site, x: Tensor, y: Any, alpha: float = 1) -> Any:
    return site.element("sub", y, site.element("mul", x, alpha) if alpha != 1 else x)


@handler("sqrt")
def _sqrt(site: Site, x: Tensor) -> Any:
    return site.element("sqrt", x)


@handler("square")
def _square(site: Site, x: Tensor) -> Any:
    return site.element("mul", x, x)


@handler("reciprocal")
def _reciprocal(site: Site, x: Tensor) -> Any:
    return site.element("div", 1, x)


@handler("pow")
def _pow(site: Site, x: Any, y: Any) -> Any:
    if isinstance(x, Tensor) and not x.is_floating_point():
        x = x.to(torch.result_type(x, y))
    if not isinstance(y, Tensor):
        if y == 2:
            return site.element("mul", x, x)
        if y == 3:
            return site.element("mul", site.element("mul", x, x), x)
        simple = {0.5: "sqrt", -0.5: "rsqrt"}
        if y in simple:
            return site.element(simple[y], x)
        if y == -1:
            return site.element("div", 1, x)
    return site.element("pow", x, y)


def _function(name: str) -> Handler:
    return lambda site, *operands: site.element(name, *operands)


IN_BINARY64 = (
    *("acos", "acosh", "asin", "asinh", "atanh", "cosh", "digamma", "erfinv", "i0", "lgamma", "sinh", "tan"),
    *("atan2", "fmod", "hypot"),
)
"""Functions without tables: results of torch in binary64, exact for fmod and else a few ulp off, are rounded."""

for _name in (*FUNCTIONS, *IN_BINARY64):
    HANDLERS[_name] = _function(_name)
del HANDLERS["gelu_tanh"]


@handler("gelu")
def _gelu(site: Site, x: Tensor, *, approximate: str = "none") -> Any:
    return site.element("gelu_tanh" if approximate == "tanh" else "gelu", x)


@handler("softplus")
def _softplus(site: Site, x: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    return site.element("softplus", x) if beta == 1 and threshold == 20 else NotImplemented


@handler("sum")
def _sum(site: Site, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return site.sum(x if dtype is None else x.to(dtype), dim, keepdim)


@handler("mean")
def _mean(site: Site, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    sums = site.sum(x if dtype is None else x.to(dtype), dim, keepdim)
    return site.average(sums, max(x.numel(), 1) // max(sums.numel(), 1) if x.numel() else 0)


@handler("var_mean")
def _var_mean(
    site: Site, x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """Compute variance and mean in two passes."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    mean = _mean(site, x, dim, True)
    apart = site.element("sub", x, mean)
    sums = site.sum(site.element("mul", apart, apart), dim, keepdim)
    count = x.numel() // max(sums.numel(), 1)
    free = max(count - (int(unbiased) if correction is None else correction), 0)
    return site.average(sums, free), mean if keepdim else mean.reshape(sums.shape)


@handler("var")
def _var(site: Site, *given: Any, **named: Any) -> Any:
    return _var_mean(site, *given, **named)[0]


@handler("std")
def _std(site: Site, *given: Any, **named: Any) -> Any:
    return site.element("sqrt", _var(site, *given, **named))


@handler("std_mean")
def _std_mean(site: Site, *given: Any, **named: Any) -> Any:
    variance, mean = _var_mean(site, *given, **named)
    return site.element("sqrt", variance), mean


@handler("linalg_vector_norm")
def _norm(site: Site, x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    x = x if dtype is None else x.to(dtype)
    if order == 2:
        return site.element("sqrt", site.sum(site.element("mul", x, x), dim, keepdim))
    if order == 1:
        return site.sum(x.abs(), dim, keepdim)
    return x.abs().amax(dim if dim is not None else (), keepdim) if order == math.inf else NotImplemented


SEQUENCES = frozenset({"arange", "linspace"})
"""Sequences of numbers, which are constants if all of them are integers."""


@handler("arange")
def _arange(site: Site, *bounds: Any, dtype: Any = None, **_: Any) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return site.rounded("arange", torch.arange(*bounds, dtype=torch.float64), dtype)


@handler("linspace")
def _linspace(site: Site, start: Any, end: Any, steps: int, *, dtype: Any = None, **_: Any) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return site.rounded("linspace", torch.linspace(start, end, steps, dtype=torch.float64), dtype)


@handler("round")
def _round(site: Site, x: Tensor, *, decimals: int) -> Any:
    """Round to decimals by a power of ten, as torch does."""
    power = 10.0 ** abs(decimals)
    first, last = ("mul", "div") if decimals >= 0 else ("div", "mul")
    return site.element(last, site.element(first, x, power).round(), power)


@handler("nan_to_num")
def _nan_to_num(
    site: Site, x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Replace NaN by zero and infinities by the largest numbers of the format, if no other numbers are given."""
    cast, given = site.arithmetic("add"), x
    if cast is not None and x.dtype in DTYPES:
        assert cast.fmt is not None
        # An operand beyond the format is infinite in it.
        given = cast.real(x.double(), site.next_key(cast))
        posinf = float(cast.fmt.largest) if posinf is None else posinf
        neginf = float(cast.fmt.lowest_result) if neginf is None else neginf
    return site.rounded("nan_to_num", torch.nan_to_num(given, nan, posinf, neginf), x.dtype)


def _running(name: str) -> Handler:
    def run(site: Site, x: Tensor, dim: int, *, dtype: Any = None) -> Any:
        given = _rows(x, dim, dtype)
        results = site.running(name, given)
        return results.movedim(0, dim).contiguous() if x.dim() else results.reshape(())

    return run


HANDLERS |= {"cumsum": _running("add"), "cumprod": _running("mul")}


def _rows(x: Tensor, dim: int, dtype: Any) -> Tensor:
    """Return a tensor of at least one dimension, with ``dim`` first."""
    given = x if dtype is None else x.to(dtype)
    return given.movedim(dim, 0) if x.dim() else given.reshape(1)


@handler("prod")
def _prod(site: Site, x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    flat = _rows(x.reshape(-1) if dim is None else x, dim or 0, dtype)
    product = site.running("mul", flat, last=True)[0] if len(flat) else torch.ones_like(flat.sum(0))
    return product.unsqueeze(dim) if keepdim and dim is not None and x.dim() else product


@handler("embedding_dense_backward")
def _embedding_backward(site: Site, gradient: Tensor, index: Tensor, count: int, padding: int, by_count: bool) -> Any:
    if by_count:
        return NotImplemented
    rows, places = gradient.reshape(-1, gradient.shape[-1]), index.reshape(-1)
    kept = places != padding
    return site.scattered(rows.new_zeros(count, rows.shape[-1]), places[kept], rows[kept])


def _inside(index: Tensor, rows: Tensor) -> bool:
    """Return True if all indices are rows."""
    return not index.numel() or bool((index >= 0).all() & (index < len(rows)).all())


@handler("index_add")
def _index_add(site: Site, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    if alpha != 1:
        source = site.element("mul", source, alpha)
    if not _inside(index, _rows(x, dim, None)):
        return torch.index_add(x, dim, index, source)  # raises torch's error
    sums = site.scattered(_rows(x, dim, None), index.reshape(-1), _rows(source, dim, None))
    return sums.movedim(0, dim).contiguous() if x.dim() else sums.reshape(())


@handler("scatter_add")
def _scatter_add(site: Site, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    if not index.numel():
        return x.clone()
    into, index, source = (torch.atleast_1d(tensor) for tensor in (x, index, source))
    if not _inside(index, into.movedim(dim, 0)):
        return torch.scatter_add(into, dim, index, source)  # raises torch's error
    grid = torch.meshgrid(*(torch.arange(size, device=x.device) for size in index.shape), indexing="ij")
    places = [index if place == dim % into.dim() else coordinates for place, coordinates in enumerate(grid)]
    taken = source[tuple(slice(size) for size in index.shape)]
    return _added_at(site, into, places, taken).reshape(x.shape)


@handler("scatter")
def _scatter(site: Site, x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Any:
    if reduce != "add":
        return NotImplemented
    rows = source if isinstance(source, Tensor) else torch.full_like(index, source, dtype=x.dtype)
    return _scatter_add(site, x, dim, index, rows)


@handler("index_put", "_unsafe_index_put", "_index_put_impl")
def _index_put(
    site: Site, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Any:
    if not accumulate:
        return torch.ops.aten.index_put(x, indices, values, False)
    numbers = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    places = torch.ops.aten.index(numbers, indices)
    flat = site.scattered(x.reshape(-1), places.reshape(-1), values.expand(places.shape).reshape(-1))
    return flat.reshape(x.shape)


def _added_at(site: Site, x: Tensor, places: list[Tensor], values: Tensor) -> Tensor:
    flat = torch.zeros_like(places[0])
    for size, place in zip(x.shape, places, strict=True):
        flat = flat * size + place
    return site.scattered(x.reshape(-1), flat.reshape(-1), values.reshape(-1)).reshape(x.shape)


@handler("_trilinear")
def _trilinear(
    site: Site,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand_x: list[int],
    expand_y: list[int],
    expand_z: list[int],
    sums: list[int],
    unroll: int = 1,
) -> Any:
    """Multiply three tensors element by element, and sum over dimensions; `torch.nn.Bilinear` and its gradients."""
    for place in range(x.dim() + len(expand_x)):
        x = x.unsqueeze(place) if place in expand_x else x
        y = y.unsqueeze(place) if place in expand_y else y
        z = z.unsqueeze(place) if place in expand_z else z
    return site.sum(site.element("mul", site.element("mul", x, y), z), sums, False)


class _Pool:
    """Windows of an average pooling over the last dimensions of a tensor, and the numbers by which sums are divided."""

    def __init__(self, x: Tensor, given: Sequence[Any]) -> None:
        missing: tuple[Any, ...] = (None, 0, False, True, None)
        kernel, stride, padding, ceil, count_padding, divisor = (*given, *missing[len(given) - 1 :])
        dims = len(kernel)
        self.kernel, self.stride = list(kernel), list(stride or kernel)
        edges = [padding] * dims if isinstance(padding, int) else list(padding) * (dims if len(padding) == 1 else 1)
        sizes = x.shape[-dims:]
        self.outputs = [
            _pooled(*dimension, ceil) for dimension in zip(sizes, self.kernel, self.stride, edges, strict=True)
        ]
        last = [
            (out - 1) * step + length for out, step, length in zip(self.outputs, self.stride, self.kernel, strict=True)
        ]
        after = [max(end - size - edge, 0) for end, size, edge in zip(last, sizes, edges, strict=True)]
        self.borders = [border for pair in zip(reversed(edges), reversed(after), strict=True) for border in pair]
        self.dims = list(range(-dims, 0))
        inside = torch.ones(sizes, dtype=torch.int64, device=x.device)
        if count_padding:
            inside = F.pad(inside, [edge for edge in reversed(edges) for _ in range(2)], value=1.0)
            rest = [end - edge for end, edge in zip(self.borders[1::2], reversed(edges), strict=True)]
            inside = F.pad(inside, [border for end in rest for border in (0, end)])
        else:
            inside = F.pad(inside, self.borders)
        counts = self._windows(inside).sum(self.dims)
        self.divisor: Any = divisor or counts

    def windows(self, x: Tensor, value: float = 0) -> Tensor:
        """Return the windows of a tensor in its last dimensions, with a value beyond its borders."""
        return self._windows(F.pad(x, self.borders, value=value))

    def _windows(self, x: Tensor) -> Tensor:
        first = x.dim() - len(self.kernel)
        for place, (out, length, step) in enumerate(zip(self.outputs, self.kernel, self.stride, strict=True)):
            x = x.unfold(first + place, length, step).narrow(first + place, 0, out)
        return x


def _pooled(size: int, length: int, step: int, edge: int, ceil: bool) -> int:
    """Return the number of windows along a dimension, none of which begins beyond the input and its first border."""
    room = size + 2 * edge - length
    count = (-(-room // step) if ceil else room // step) + 1
    return count - 1 if ceil and (count - 1) * step >= size + edge else count


@handler("avg_pool2d", "avg_pool3d")
def _avg_pool(site: Site, x: Tensor, *given: Any) -> Any:
    pool = _Pool(x, given)
    return site.average(site.sum(pool.windows(x), pool.dims, False), pool.divisor)


@handler("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool_backward(site: Site, gradient: Tensor, x: Tensor, *given: Any) -> Any:
    pool = _Pool(x, given)
    shares = site.element("div", gradient, pool.divisor, exact=(1,))
    # 0 is a place beyond the borders.
    numbers = pool.windows((torch.arange(x.numel(), device=x.device) + 1).reshape(x.shape))
    values = shares.reshape(*shares.shape, *[1] * len(pool.dims)).expand(numbers.shape)
    sums = site.scattered(shares.new_zeros(x.numel() + 1), numbers.reshape(-1), values.reshape(-1))
    return sums[1:].reshape(x.shape)
