"""Bits and speed of the kernels of a GPU, beside the CPU and `torch.matmul` in FP32 on the same GPU."""

import functools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.kernels import gpu
from halfulp.golden.nn.cast import Cast
from halfulp.golden.program import products
from halfulp.golden.program.arithmetic import compute
from halfulp.hdl.specs import UnitSpec
from halfulp.tools.errors import ToolError
from halfulp.tools.timing import in_turns

from .speed import PRODUCTS, SIDE

Computation = Callable[[Tensor, Tensor], Tensor]
"""Function of two matrices."""

SECONDS = 480
"""Time of all tests and measurements."""

CASTS = ("e4m3fn.rn", "e5m2.sr8", "bf16.sr16", "fxp4.12.rn", "int8-narrow.rn.sat", "posit16.rn", "takum16.rn")
"""Measured conversions of real numbers."""

ELEMENTWISE = ("add", "mul", "div", "sqrt", "tanh")
"""Measured operations, in `FORMAT`."""

FORMAT = "bf16.rn"

TESTS = ("test_triton_gemm.py", "test_triton_elements.py")
"""Tests of kernels, which run interpreted without a GPU."""


@dataclass(frozen=True)
class Row:
    """Comparison of a computation on a GPU with the CPU, and its time in seconds beside that of `torch.matmul`."""

    subject: str
    equal: bool
    seconds: float
    matmul: float

    def __str__(self) -> str:
        bits = "yes" if self.equal else "NO"
        return f"{self.subject:40}{bits:>6}{self.seconds * 1e3:10.2f}{self.seconds / self.matmul:9.1f}x"


HEADER = f"{'':40}{'bits':>6}{'ms':>10}{'matmul':>10}"


def device() -> torch.device:
    """Return the GPU; ValueError if there is none, or Triton is not installed."""
    if not torch.cuda.is_available():
        raise ValueError("halfulp bench --gpu needs a GPU that torch sees through CUDA, and there is none")
    if gpu.refusal() is not None:
        raise ValueError(f"halfulp bench --gpu measures Triton kernels, but {gpu.refusal()}")
    return torch.device("cuda")


def rows(here: torch.device, side: int = SIDE) -> Iterator[Row]:
    """Compare and measure products, conversions, operations and sums of matrices of ``side`` x ``side`` numbers."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(side, side, generator=generator) for _ in range(2))
    left, right = x.to(here), y.to(here)
    for subject, function in _cases(x, y):
        wanted = function(x, y)
        found = function(left, right)
        ours, matmul = in_turns(*(_ended(here, call, left, right) for call in (function, torch.matmul)))
        yield Row(subject, _same(found.cpu(), wanted), ours, matmul)


def _cases(x: Tensor, y: Tensor) -> Iterator[tuple[str, Computation]]:
    """Yield names of computations and their functions of two matrices."""
    for text in PRODUCTS:
        spec: Any = UnitSpec.parse(text.removesuffix("@philox"))
        if not spec.a.shares_scale:
            yield text, functools.partial(_product, spec, "philox" if text.endswith("@philox") else None)
    for text in CASTS:
        cast = Cast.parse(text)
        yield f"encode {text}", functools.partial(_encoded, cast)
    cast = Cast.parse(FORMAT)
    for name in ELEMENTWISE:
        yield f"{name} {FORMAT}", functools.partial(_operation, name, cast)
    yield f"sum {FORMAT}", functools.partial(_sum, cast)


def _product(spec: Any, source: str | None, x: Tensor, y: Tensor) -> Tensor:
    return golden.gemm(golden.encode(x, spec.a), golden.encode(y, spec.b), spec, source=source)


def _encoded(cast: Cast, x: Tensor, y: Tensor) -> Tensor:
    assert cast.fmt is not None
    return cast.codes(x, cast.fmt, 1)


def _operation(name: str, cast: Cast, x: Tensor, y: Tensor) -> Tensor:
    given = (x, y) if name in ("add", "mul", "div") else (x.abs(),)
    return compute(name, given, cast, 1, torch.float32)


def _sum(cast: Cast, x: Tensor, y: Tensor) -> Tensor:
    total = products.total_in_kernel(x, [1], cast, cast)
    if total is None:
        # Few elements are not worth the compilation of a kernel on a CPU.
        assert cast.fmt is not None
        numbers = golden.decode(cast.codes(x, cast.fmt, 1), cast.fmt)
        total = products.total(numbers, cast.fmt, cast, "sequential", 1).to(x.dtype)
    return total


def _same(found: Tensor, wanted: Tensor) -> bool:
    """Return True if numbers have the same bits."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    return torch.equal(*(x.view(torch.int32) if x.dtype == torch.float32 else x for x in (found, wanted)))


def _ended(here: torch.device, function: Computation, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a function of no arguments that waits for the end of the computation on a GPU."""

    def run() -> None:
        function(x, y)
        if here.type == "cuda":
            torch.cuda.synchronize()

    return run


def run_tests(seconds: float) -> str | None:
    """Run the tests of the kernels; return None, or the last line of their failure.

    ToolError if they are not there, because halfulp is not a checkout.
    """
    folder = Path(__file__).resolve().parents[2] / "tests" / "golden" / "kernels"
    files = [folder / name for name in TESTS]
    if missing := next((file for file in files if not file.is_file()), None):
        raise ToolError(f"halfulp bench --gpu runs tests, and there is no {missing}; run it in a checkout")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-k", "match", *map(str, files)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=folder.parents[2])
    except subprocess.TimeoutExpired:
        return f"the tests did not end in {seconds:.0f} seconds"
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip().splitlines()[-1]


def study(here: torch.device, show: Callable[[str, Any], None], side: int = SIDE) -> bool:
    """Show the table and the result of the tests; return True if all bits are those of the CPU.

    ``show`` takes a line and its data, or None.
    """
    began = time.monotonic()
    show(f"{side} x {side} numbers on {_name(here)}; bits as on the CPU, time relative to torch.matmul in FP32", None)
    show(HEADER, None)
    equal = True
    for row in rows(here, side):
        show(str(row), asdict(row))
        equal = equal and row.equal
    failure = run_tests(max(SECONDS - (time.monotonic() - began), 1))
    show(f"tests: {failure or 'passed'}", {"tests": failure or "passed"})
    return equal and failure is None


def _name(here: torch.device) -> str:
    return torch.cuda.get_device_name(here) if here.type == "cuda" else str(here)
