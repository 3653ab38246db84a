"""Study of the kernels of a GPU, on the CPU in place of one."""

import os
import subprocess
import sys

import pytest
import torch

from halfulp.golden.kernels import gpu as kernels
from halfulp.lab.bench import gpu
from halfulp.tools.errors import ToolError
from tests.settings import ROOT

CPU = torch.device("cpu")


@pytest.fixture
def lines(monkeypatch):
    """Lines that the study shows; its tests do not run."""
    monkeypatch.setattr(gpu, "run_tests", lambda seconds: None)
    monkeypatch.setattr(gpu, "PRODUCTS", gpu.PRODUCTS[:1])
    return []


@pytest.mark.slow
def test_study_shows_bits_and_speed(lines):
    assert gpu.study(CPU, lambda text, data: lines.append(text), side=32)
    assert lines[0].startswith("32 x 32 numbers on cpu")
    assert lines[2].startswith(gpu.PRODUCTS[0])
    assert len(lines) == 5 + len(gpu.CASTS) + len(gpu.ELEMENTWISE)
    assert all(line.split()[-3] == "yes" and line.endswith("x") for line in lines[2:-1])
    assert lines[-1] == "tests: passed"


@pytest.mark.slow
def test_study_fails_for_wrong_bits(lines, monkeypatch):
    calls = []

    def wrong(cast, x, y):
        calls.append(x)
        # -0 and 0 have different bits.
        return torch.tensor([0.0 if len(calls) % 2 else -0.0])

    monkeypatch.setattr(gpu, "_encoded", wrong)
    assert not gpu.study(CPU, lambda text, data: lines.append(text), side=8)
    assert "encode bf16.sr16" in "".join(line for line in lines if " NO " in line)


def test_study_fails_for_failed_tests(lines, monkeypatch):
    monkeypatch.setattr(gpu, "run_tests", lambda seconds: "1 failed in 3 s")
    assert not gpu.study(CPU, lambda text, data: lines.append(text), side=8)
    assert lines[-1] == "tests: 1 failed in 3 s"


def test_tests_of_kernels_report_failure_and_end(monkeypatch):
    monkeypatch.setattr(gpu, "TESTS", ("test_none.py",))
    with pytest.raises(ToolError, match=r"runs tests, and there is no .*test_none\.py; run it in a checkout$"):
        gpu.run_tests(1)
    monkeypatch.undo()
    assert gpu.run_tests(0.01) == "the tests did not end in 0 seconds"
    monkeypatch.setattr(
        subprocess, "run", lambda *given, **more: subprocess.CompletedProcess(given, 1, "a\n1 failed", "")
    )
    assert gpu.run_tests(1) == "1 failed"


def test_bench_without_gpu_is_refused(halfulp, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, err = halfulp("bench", "--gpu")
    assert (code, out) == (2, "")
    assert err == "halfulp: halfulp bench --gpu needs a GPU that torch sees through CUDA, and there is none\n"
    assert halfulp("bench", "--gpu", "-o", "speed.csv")[0] == 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(kernels, "refusal", lambda: kernels.MISSING)
    assert halfulp("bench", "--gpu")[2].endswith("measures Triton kernels, but Triton is not installed\n")


def test_bench_exits_with_1_for_wrong_bits(halfulp, monkeypatch):
    monkeypatch.setattr(gpu, "device", lambda: CPU)
    for equal, wanted in ((True, 0), (False, 1)):
        monkeypatch.setattr(gpu, "study", lambda here, show, equal=equal: equal)
        assert halfulp("bench", "--gpu")[0] == wanted


@pytest.mark.slow
def test_study_runs_triton_kernels(tmp_path):
    """Triton's interpreter computes the table in a separate process, because it is chosen at import."""
    (tmp_path / "study.py").write_text(
        "import torch\n"
        "from halfulp.golden.kernels import elements, triton_elements, triton_gemm\n"
        "from halfulp.lab.bench import gpu\n"
        "from tests.triton_device import triton_device\n"
        "gpu.run_tests, gpu.PRODUCTS = lambda seconds: None, gpu.PRODUCTS[:1]\n"
        "elements.WORTHWHILE = 1\n"
        "lines = []\n"
        "with triton_device() as device:\n"
        "    assert gpu.study(device, lambda text, data: lines.append(text), side=8)\n"
        "print(len(lines))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment |= {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, tmp_path / "study.py"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) == 5 + len(gpu.CASTS) + len(gpu.ELEMENTWISE)
