"""The Triton kernel of matrix products computes the bits of tensor operations, and compiles for a GPU."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from halfulp.hdl.specs import MacSpec
from tests import triton_kernel
from tests.settings import EXHAUSTIVE, ROOT


@pytest.mark.sampled(2, 2)
@pytest.mark.slow
# 5 divides neither the number of formats nor that of modes: one in five has all of them.
@pytest.mark.parametrize("step", [(), ("1" if EXHAUSTIVE else "5",)])
def test_triton_kernel_matches_tensors(step):
    """Triton runs on a GPU if there is one, and otherwise in its interpreter, in a separate process."""
    script = ROOT / "tests" / "triton_kernel.py"
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})
    run = subprocess.run([sys.executable, str(script), *step], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("products agree\n")


class NoGpu:
    """Driver of Triton without a GPU: kernels compile for compute capability 9.0, and do not run."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


@pytest.mark.parametrize(
    "text",
    [
        "e5m2*e5m2=posit8.sr5+e6m5.sr10@plateau3",
        *(pytest.param(text, marks=pytest.mark.slow) for text in triton_kernel.CASES | triton_kernel.SOURCES),
    ],
)
def test_triton_kernel_compiles_for_gpu(text, tmp_path, monkeypatch):
    """The compiler refuses programs that the interpreter runs, such as variables of changing shape in a loop."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    spec, shape = MacSpec.parse(text), (5, 9)
    counter = (triton_kernel.CASES | triton_kernel.SOURCES).get(text)
    a, b, start, words = triton_kernel.operands(spec, shape, 6, counter, "cpu")
    arguments = triton_kernel.triton_gemm.arguments(spec, a, b, start, shape, words)
    monkeypatch.setattr(driver, "_active", NoGpu())
    compiled = triton_kernel.triton_gemm._kernel.warmup(**arguments, grid=(1,))
    assert compiled.asm["cubin"]
