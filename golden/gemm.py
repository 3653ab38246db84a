"""Matrix products in the arithmetic of a multiply-accumulate."""

from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from halfulp.hdl.formats import RN, Rounding, Saturation
from halfulp.hdl.specs import BlockMacSpec, MacSpec, SparseMacSpec, Tiling, UnitSpec
from halfulp.hdl.specs.mma import MmaSpec

from . import matrix_unit
from .check import broadcast, check_devices, check_int, codes_of, operand_of, product_shape, rounding_apart
from .entries import Operand, elements_of
from .kernels import MatrixProduct, Words
from .operators import operator
from .products import KINDS, compute, compute_tiled
from .products.approximate import check as check_operators
from .products.words import Drawing, words_of
from .random import Seeds
from .sparse import SparseTensor
from .uncompiled import uncompiled
from .zeros import subtract_zeros


@uncompiled
def gemm(  # noqa: PLR0913 - options of a public function, by name
    a: Operand,
    b: Operand,
    mac: MacSpec | BlockMacSpec | SparseMacSpec | MmaSpec | str,
    *,
    start: Tensor | None = None,
    seed: Seeds | None = None,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
    source: str | None = None,
    first_step: int = 0,
    tiling: Tiling | None = None,
    operand_rounding: Rounding | str = RN,
    operand_saturate: Saturation | bool | str = False,
    multiplier: str | None = None,
    adder: str | None = None,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
) -> Tensor:
    """Multiply matrices on an array of multiply-accumulates: one for each element of the result, or tile by tile.

    Parameters
    ----------
    a, b : Tensor or array
        Codes in the operand formats of ``mac``, of shapes (..., n, k) and (..., k, m) whose batches broadcast; or real
        numbers, which are encoded first. A type of one byte, such as ``torch.float8_e5m2``, has to be that of the
        operand format. For blocks: `BlockTensor` along k, as `quantize_blocks` returns it, of ``a`` with ``dim=-1`` and
        of ``b`` with ``dim=-2``; or real numbers, which are quantized without a tensor scale. With structured sparsity
        ``b`` is a `SparseTensor` along k, as `compress` returns it with ``dim=-2``.
    mac : MacSpec, BlockMacSpec, SparseMacSpec, MmaSpec or str
        Description of a step, such as ``e5m2*e5m2+e6m5.sr10@lfsr16``, ``mxfp8_e4m3*mxfp8_e4m3+fp32.rn`` or
        ``sparsemac e4m3fn*e4m3fn+fp32.rn sparsity=2:4``; or a matrix unit of an accelerator, such as
        ``h100.wgmma.e4m3``, whose steps are padded with +0.
    start : Tensor, optional
        Initial sums as codes in the result format, of a shape that broadcasts to (..., n, m); default: +0.
    seed : int, sequence of int, or Tensor, optional
        For a ``mac`` with a source: state of the first element's source (default: the one in the text), or states of
        all elements, of shape (..., n, m). With ``source``: key of the random words; default: 0.
    random, random_product : Tensor, optional
        For a ``mac`` without a source: random words for the sum and for the product, of shapes that broadcast to
        (..., n, m, k).
    source : str, optional
        ``philox``: counter-based random words, for a ``mac`` without a source.
    first_step : int
        First step of the counter; with ``tiling``: number of words already taken from each source.
    tiling : Tiling, optional
        For a ``mac`` with a source: tiles of the array that computes the result (`halfulp.units.systolic`). Elements
        share its multiply-accumulates and their sources; ``seed`` is the state of the first source.
    operand_rounding : Rounding or str
        Rounding of real numbers to the operand formats; not stochastic.
    operand_saturate : Saturation, bool or str
        Real numbers that overflow become the largest finite number.
    multiplier, adder : str, optional
        Names of operators of users (`register_operator`): the first multiplies the operands, and its results are added
        as exact products are; the second adds an accumulator and a product, and takes the place of the rounded sum.
        They need a ``mac`` of numbers, an adder one without source, and no ``tiling``.
    a_zero, b_zero : Tensor, optional
        Zero points of operands in fixed point, as codes of the operand format: one, or one for each row of ``a`` as
        (n, 1) and for each column of ``b`` as (m,). They broadcast to the operand, and for blocks to its scales.

    Returns
    -------
    Tensor of int64
        Codes in the result format, of shape (..., n, m).

    Raises
    ------
    TypeError, ValueError
        If ``mac`` is no valid description, a tensor holds values that are no codes, has a wrong shape or is on another
        device, a seed is no state of the source, or random words or seeds are missing or unused.

    Notes
    -----
    A sum adds its products in ascending k; each step is that of `mac`. An exact accumulator is rounded once, after the
    last step, with the random word of that step. A sum of no products is its start value.

    A product of blocks takes a step for each block, or as `BlockMacSpec` has them; a sum whose length is no multiple of
    the block's is padded with zeros. In the shapes of random words and in ``first_step``, k counts these steps. Scales
    of tensors multiply the finished sum, which is then rounded once more, to nearest, ties to even. A compiled kernel
    computes sums in floats and posits, with exact dot products of steps in binary32 or binary64; torch computes others.

    A product with structured sparsity takes a step for each group of weights, or as `SparseMacSpec` has them, padded
    with zeros; k counts these steps, as for blocks. Kernels are those of blocks.

    A product of compound numbers takes a step for each pair of their parts, in the order of `MacSpec.pairs`. In the
    shapes of random words, in ``first_step`` and in a ``tiling``, k counts these steps.

    Zero points are subtracted before the products, exactly: a step of ``int8*int4+int32`` with both is one of
    ``int9*int5+int32`` on the differences.

    Each element has a source of its own. The elements, in row-major order and with batches included, have the seeds
    ``source.seeds(count, seed)``. If product and sum are both stochastic, an element with seed s has the two sources of
    ``source.seeds(2, s)``: the first gives the words of the sum, the second those of the product, as in `Mac`.

    With a ``tiling``, multiply-accumulate i of the array has seed i of ``source.seeds(tiling.macs, seed)``. It takes a
    word in each step, also for padding, in the order of `Tiling`. Each product of a batch takes
    ``tiling.steps(n, k, m)`` words of every source; the products of a batch are computed one after the other.

    A sum that is rounded in each step may be split along k. After a first part of k' products, the second part has the
    result of the first as ``start``. Its seeds are ``random.jump(source, seeds, k')``, where ``seeds`` are those of the
    first part: ``random.seeds(source, count, seed)`` in the shape of the result. With counter-based words its
    ``first_step`` is larger by k' instead.

    Counter-based words are those of `philox.philox_words` for the indices of the elements in row-major order. They do
    not depend on the number of threads, and lack the correlations of short LFSRs.

    On the CPU a compiled kernel computes the result (`halfulp.golden.kernels`): in ``float`` or integer vector lanes
    if these are proved exact, else in 128-bit integers. On a GPU a Triton kernel computes descriptions that need up to
    64 bits. Torch operations compute all others, also without a compiler. They need memory for operands, results and
    given random words only.
    """
    rounding = rounding_apart("operand_rounding", operand_rounding, "operand_saturate")
    operand_saturate = Saturation.of(operand_saturate)
    if isinstance(mac, MmaSpec) or MmaSpec.is_mma_text(mac):
        words = {"seed": seed, "random": random, "random_product": random_product, "source": source}
        others: dict[str, object] = {**words, "tiling": tiling}
        others |= {"first_step": first_step or None, "multiplier": multiplier, "adder": adder}
        others |= {"a_zero": a_zero, "b_zero": b_zero}
        return _of_matrix_unit(MmaSpec.parse(mac), a, b, start, rounding, operand_saturate, others)
    check_int("first_step", first_step, 0, (1 << 32) - 1)
    spec: Any = UnitSpec.parse(cast("UnitSpec | str", mac))
    if type(spec) not in KINDS:
        spec = MacSpec.parse(spec)
    spec.check_one_sum()
    kind, a, b = KINDS[type(spec)], operand_of("a", a, spec.a), operand_of("b", b, spec.b)
    x, y = kind.checked(spec, a, b, rounding, operand_saturate)
    codes, columns = elements_of(x), elements_of(y)
    check_devices(a=codes, b=columns, start=start, seed=seed, random=random, random_product=random_product)
    shape = _shape(codes, columns, stored=isinstance(y, SparseTensor))
    begin = None if start is None else broadcast("start", codes_of("start", start, spec.o), shape)
    spec, x, y = kind.in_steps(*subtract_zeros(spec, x, y, {"a": a_zero, "b": b_zero}))
    texts = {"multiplier": multiplier, "adder": adder}
    own = [None if text is None else operator(text, name) for name, text in texts.items()]
    check_operators(spec, *own)
    if tiling is not None and any(own):
        raise ValueError("multiplier and adder are not in the arrays of a tiling; omit one of both")
    job = MatrixProduct(spec, x, y, begin, shape, Words(), multiplier=own[0], adder=own[1])
    drawing = Drawing(seed, random, random_product, source, first_step)
    if tiling is not None:
        return compute_tiled(job, tiling, drawing)
    return compute(replace(job, words=words_of(spec, drawing, shape, job.steps, codes.device)))


def _of_matrix_unit(
    spec: MmaSpec,
    a: Operand,
    b: Operand,
    start: Tensor | None,
    rounding: Rounding,
    saturate: Saturation,
    others: dict[str, object],
) -> Tensor:
    """Multiply matrices on a matrix unit; ``others`` are parameters that have no effect on it."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name} has no effect on the matrix unit {spec}; omit it")
    spec.check_one_sum()
    a, b = operand_of("a", a, spec.a), operand_of("b", b, spec.b)
    x, y = matrix_unit.checked(spec, a, b, rounding, saturate)
    codes, columns = elements_of(x), elements_of(y)
    check_devices(a=codes, b=columns, start=start)
    shape = _shape(codes, columns)
    begin = None if start is None else broadcast("start", codes_of("start", start, spec.o), shape)
    return matrix_unit.multiply(spec, x, y, begin, shape)


def _shape(a: Tensor, b: Tensor, *, stored: bool = False) -> tuple[int, ...]:
    """Return the shape of a matrix product; ValueError if the operands do not match.

    With ``stored``, ``b`` has some of its rows only, which are checked already.
    """
    if min(a.dim(), b.dim()) >= 2 and (stored or a.shape[-1] == b.shape[-2]):
        try:
            return product_shape(a, b)
        except RuntimeError:
            pass
    raise ValueError(
        f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; a matrix product needs (..., n, k) and (..., k, m)"
    )
