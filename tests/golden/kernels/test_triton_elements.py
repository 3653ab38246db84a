"""Element-wise Triton kernels compute the bits of the CPU, and compile for a GPU."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton")

from triton.runtime import driver

from halfulp.golden.kernels import gpu, triton_elements
from halfulp.hdl.formats import FP32, OFF, RN, Rounding, parse
from tests.golden.kernels.test_triton_gemm import NoGpu
from tests.settings import ROOT

BF16 = parse("bf16"), RN, OFF


@pytest.mark.sampled(2, 2)
@pytest.mark.slow
@pytest.mark.parametrize("step", [(), ("31",)])
def test_triton_elements_match_cpu(step):
    """Triton runs on a GPU if there is one, and otherwise in its interpreter, in a separate process."""
    script = ROOT / "tests" / "triton_elements.py"
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})
    run = subprocess.run([sys.executable, str(script), *step], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("results agree\n")


class Compiling:
    """Kernel that is compiled when it is called, and does not run."""

    def __init__(self, kernel, made):
        self.kernel, self.made = kernel, made

    def __getitem__(self, grid):
        return lambda *given, **constants: self.made.append(self.kernel.warmup(*given, **constants, grid=grid))


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """List of the kernels that are compiled for compute capability 9.0."""
    made = []
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_active", NoGpu())
    for name in ("_convert", "_chain", "_sums"):
        monkeypatch.setattr(triton_elements, name, Compiling(getattr(triton_elements, name), made))
    return made


@pytest.mark.parametrize(
    ("fmt", "rounding"),
    [("e5m2", "sr5"), ("posit32", "rn"), ("fxp4.12-narrow", "ru"), ("takum16", "ro"), ("fp64", "rn")],
)
def test_triton_conversion_compiles_for_gpu(fmt, rounding, compiled):
    words = torch.zeros(300, dtype=torch.int64) if rounding.startswith("sr") else None
    given = (
        torch.randn(300),
        FP32,
        parse(fmt),
        Rounding.parse(rounding),
        OFF,
        words,
        torch.empty(300, dtype=torch.int64),
    )
    assert triton_elements.convert(*given)
    assert compiled[0].asm["cubin"]


def test_triton_chain_and_sum_compile_for_gpu(compiled):
    names = ("round", "add", "sub", "mul", "div", "sqrt", "table")
    table = torch.zeros(1 << 16, dtype=torch.float64)
    steps = [
        triton_elements.Step(name, 1 + place, 1, -1, table if name == "table" else None, *BF16)
        for place, name in enumerate(names)
    ]
    operands = torch.randn(300), torch.randn(300).to(torch.bfloat16)
    assert triton_elements.chain(operands, steps, [(8, torch.empty(300)), (4, torch.empty(300))])
    assert triton_elements.total(torch.randn(20, 30), BF16, BF16) is not None
    assert all(kernel.asm["cubin"] for kernel in compiled)


def test_triton_kernels_refuse_what_integers_do_not_hold():
    wide = Rounding.parse("sr30")
    one = torch.randn(300)
    for name in ("div", "sqrt"):
        step = triton_elements.Step(name, 0, 1, -1, None, FP32, wide, OFF)
        assert not triton_elements.chain([one, one], [step], [(2, torch.empty(300))])
    assert triton_elements.conversion(FP32, parse("nf4"), RN, OFF) is None


def test_gpu_takes_tensors_with_single_numbers_of_the_cpu(monkeypatch):
    number, here = torch.ones(()), torch.ones(3)
    assert not gpu.is_gpu(number, here)
    monkeypatch.setattr(gpu, "TYPE", "meta")
    assert gpu.is_gpu(number, here.to("meta"))
    assert not gpu.is_gpu(here, here.to("meta"))
    assert not gpu.is_gpu(number)
    monkeypatch.setattr(gpu.build, "level", lambda: "torch")
    assert gpu.elements(here.to("meta")) is None
    assert "disables kernels" in gpu.refusal()
