"""The choice of the engine of a matrix product, and its explanation."""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from halfulp.golden.check import check_int
from halfulp.golden.kernels import KERNELS, Engine, Matrices, MatrixProduct, Patches, Words, build, first, gathered
from halfulp.golden.kernels.engines import Compiled
from halfulp.golden.values import decoded, encoded
from halfulp.hdl.formats import OFF, RN, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec, SparseMacSpec, UnitSpec

from .approximate import approximate
from .folds import Folds
from .in_torch import InTorch
from .kinds import KINDS
from .slices import Slices

ENGINES: tuple[Engine, ...] = (Slices(), *KERNELS, Folds(), InTorch())
"""All engines; the first one that does not refuse a product computes it."""


def compute(job: MatrixProduct) -> Tensor:
    """Return the result of a product as codes in int64, or real numbers in float32, or the tensor of ``out``."""
    own = job.multiplier or job.adder
    result = first(KERNELS, job) if job.is_real and not own else None
    if own:
        codes = _in_codes(job) if job.is_real else job
        result = approximate(codes, compute)
        result = result if job.dtype == torch.int64 else decoded(result, job.spec.o, job.dtype)
    elif result is None:
        result = first(ENGINES, _in_codes(job) if job.is_real else job)
        assert result is not None
        if job.dtype != torch.int64:
            result = decoded(gathered(result), job.spec.o, job.dtype)
    result = KINDS[type(job.spec)].finished(result, job)
    if job.out is None:
        return gathered(result)
    if result is not job.out:
        job.out.scatter(gathered(result))
    return job.out.data


def _in_codes(job: MatrixProduct) -> MatrixProduct:
    """Encode the real numbers of a product, whose result is then codes."""
    start = None if job.start is None else gathered(_codes(job.start, job.spec.o))
    a, b = _codes(job.a, job.spec.a), _codes(job.b, job.spec.b)
    return replace(job, a=a, b=b, start=start, out=job.out if job.dtype == torch.int64 else None, dtype=torch.int64)


def _codes(x: Matrices, fmt: Format) -> Matrices:
    if x.dtype == torch.int64:
        return x
    if isinstance(x, Patches):
        return replace(x, data=encoded(x.data, fmt, RN, None, OFF))
    return encoded(x, fmt, RN, None, OFF)


@dataclass(frozen=True, repr=False)
class Explanation:
    """Reasons for the engine of a matrix product; ``str()`` gives a table.

    Attributes
    ----------
    product : str
        Description and shape of the product.
    engine : str
        Name of the engine that computes it.
    refusals : dict of str to str
        Reasons of the engines before it, by name.
    kernel : str
        Name of the compiled kernel, and whether it is compiled; empty without one.
    """

    product: str
    engine: str
    refusals: dict[str, str]
    kernel: str

    def __str__(self) -> str:
        width = max(map(len, (self.engine, *self.refusals)))
        lines = [f"  {name:{width}}  no: {reason}" for name, reason in self.refusals.items()]
        kernel = f" by the kernel {self.kernel}" if self.kernel else ""
        return "\n".join([self.product, *lines, f"  {self.engine:{width}}  computes it{kernel}"])

    __repr__ = __str__


def explain(
    mac: MacSpec | BlockMacSpec | SparseMacSpec | str, n: int, k: int, m: int, *, device: str = "cpu"
) -> Explanation:
    """Explain which engine computes the product of n x k and k x m matrices of codes, and why those before it do not.

    Parameters
    ----------
    mac : MacSpec, BlockMacSpec, SparseMacSpec or str
        Description of a step, as for `gemm`. Stochastic rounding without a source has counter-based words.
    n, k, m : int
        Shape of the product.
    device : str
        Device of the matrices.

    Raises
    ------
    TypeError, ValueError
        If ``mac`` is no valid description, a size is no positive integer, or torch has no such device here.

    Notes
    -----
    Engines may refuse operands, such as infinities; the next one that accepts the product then computes it.
    """
    spec: Any = UnitSpec.parse(cast("UnitSpec | str", mac))
    if type(spec) not in KINDS:
        spec = MacSpec.parse(spec)
    spec.check_one_sum()
    for name, size in (("n", n), ("k", k), ("m", m)):
        check_int(name, size, 1)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device must be one of torch here, such as cpu, not {device!r}") from error
    title = f"{spec}, {n} x {k} x {m} on {device}"
    kind = KINDS[type(spec)]
    spec, a, b = kind.in_steps(spec, *kind.example(spec, n, k, m, device))
    words = Words(key=0) if spec.words and spec.random is None else Words()
    job = MatrixProduct(spec, a, b, None, (n, m), words)
    refusals: dict[str, str] = {}
    for engine in ENGINES:
        reason = engine.refuses(job)
        if reason is None:
            break
        refusals[engine.name] = reason
    kernel = ""
    if isinstance(engine, Compiled):
        name, source = engine.kernel(job)
        kernel = f"{name}, {'compiled' if build.is_compiled(name, source) else 'to be compiled at the first call'}"
    return Explanation(title, engine.name, refusals, kernel)
