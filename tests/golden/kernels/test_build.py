"""Compilation and choice of kernels: threads, instruction sets, compilers, and sources that do not compile."""

import math
import os
import re
import shutil
import signal
import subprocess
import warnings
from pathlib import Path

import pytest
import torch

from halfulp import golden
from halfulp.golden import kernels
from halfulp.golden.kernels import build, engines
from halfulp.golden.kernels import exact as exact_kernel
from halfulp.golden.kernels.launch import call
from halfulp.golden.products.in_torch import InTorch
from halfulp.hdl.specs import MacSpec
from tests.kernel_products import (
    TEXTS,
    _kernels,  # noqa: F401  # a fixture for every test
    case,
    compare,
)
from tests.settings import EXHAUSTIVE


@pytest.mark.slow
def test_kernels_take_own_threads_in_forked_processes():
    """A forked process has none of the threads of torch, and a product that waits for them never ends."""
    spec = MacSpec.parse(TEXTS[0])
    a, b, start, _ = case(spec, 21, 40, 70, 3)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = golden.gemm(a, b, spec, start=start)
        if not (child := os.fork()):
            signal.alarm(20)
            try:
                os._exit(0 if torch.equal(golden.gemm(a, b, spec, start=start), expected) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_kernels_ignore_threads_and_instruction_sets(text, monkeypatch):
    """Numbers of threads, instruction sets and flushing of subnormal numbers change no bit."""
    spec = MacSpec.parse(text)
    a, b, start, _ = case(spec, 21, 40, 70, 3)
    expected = golden.gemm(a, b, spec, start=start)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(golden.gemm(a, b, spec, start=start), expected)
    finally:
        torch.set_num_threads(before)
    assert torch.set_flush_denormal(True)
    try:
        assert torch.equal(golden.gemm(a, b, spec, start=start), expected)
    finally:
        torch.set_flush_denormal(False)
    for level in ("avx2", "portable", "scalar", "torch") if EXHAUSTIVE or text == TEXTS[0] else ("portable", "torch"):
        monkeypatch.setenv(build.SETTING, level)
        assert torch.equal(golden.gemm(a, b, spec, start=start), expected), level


@pytest.mark.slow
def test_kernels_match_tensors_without_fma(monkeypatch):
    monkeypatch.setenv(build.SETTING, "portable")
    assert not build.has_fma()
    for text in ("bf16*bf16+fp32.rn", "bf16*bf16+bf16.sr10"):
        compare(text, 10_000)


def test_gemm_without_compiler_uses_torch_and_warns(monkeypatch, tmp_path):
    """Without a compiler torch computes the product, with one warning."""
    a, b, _, _ = case(MacSpec.parse(TEXTS[0]), 3, 4, 5, 1)
    expected = golden.gemm(a, b, TEXTS[0])
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler for kernels"):
        assert torch.equal(golden.gemm(a, b, TEXTS[0]), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(golden.gemm(a, b, TEXTS[0]), expected)
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\ncase "$*" in *-shared*) echo "error: it broke" >&2; exit 1;; esac\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.warns(RuntimeWarning, match="does not compile .*it broke"):
        assert torch.equal(golden.gemm(a, b, TEXTS[0]), expected)
    monkeypatch.setenv(build.SETTING, "fast")
    with pytest.raises(ValueError, match="invalid HALFULP_KERNEL 'fast': expected auto"):
        golden.gemm(a, b, TEXTS[0])


@pytest.mark.slow
def test_kernel_is_chosen_by_the_call_and_not_by_earlier_ones(monkeypatch, tmp_path, capfd):
    """Small products use torch, larger ones the general kernel, and large ones one of their own, with the same bits."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    monkeypatch.setenv("HALFULP_KERNEL", "auto")
    a = torch.arange(32).reshape(4, 8)
    seconds = {"exact": 4 * 8 * 4 * engines.IN_TORCH + 8 * engines.STEP_IN_TORCH, "gemm": 4 * 8 * 4 * engines.IN_EXACT}
    used, found = [], []
    monkeypatch.setattr(engines, "call", lambda *given, **more: used.append(given[-1]) or call(*given, **more))

    def compiled(worth, name):
        monkeypatch.setattr(build, "WORTH", worth)
        build._is_cached.cache_clear()
        for _ in range(3):
            found.append(golden.gemm(a, a.mT, "e5m2*e5m2+e6m5.rn"))
        return len(list(tmp_path.glob(f"cache/kernels/{name}*/kernel.so")))

    # However often it is called, a product that is not worth it compiles no kernel.
    assert compiled(2 * seconds["exact"], "") == 0
    assert not used
    assert compiled(seconds["exact"], "exact") == 1
    assert compiled(2 * seconds["gemm"], "gemm") == 0
    assert [type(one) for one in used] == [exact_kernel.MacStep] * 6
    used.clear()
    # A compilation that takes long says so.
    monkeypatch.setattr(build, "SILENT", 0.01)
    monkeypatch.setenv("HALFULP_QUIET", "5")
    assert compiled(seconds["gemm"], "gemm") == 1
    assert used == [None] * 3
    assert "compiling the kernel gemm_e5m2_e5m2_e6m5_rn" in capfd.readouterr().err
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.slow
def test_long_sums_do_not_run_in_torch(monkeypatch):
    """Two rows of 65536 products have many sequential steps, and torch would need a call for each."""
    monkeypatch.setenv("HALFULP_KERNEL", "auto")
    exact_kernel.library(math.inf)
    monkeypatch.setattr(InTorch, "run", lambda *given: pytest.fail("torch computed it"))
    a, b = torch.full((2, 65536), 0x3C), torch.full((65536, 4), 0x3C)
    assert (golden.gemm(a, b, "e5m2*e5m2+fp32.rn") == golden.encode(torch.tensor(65536.0), "fp32")).all()


def test_kernel_setting_is_documented():
    assert kernels.__doc__ is not None
    assert all(f"``{level}``" in kernels.__doc__ for level in build.LEVELS)


USES = """
using namespace halfulp;
template VectorU64 halfulp::increment_of_floor<RD, VectorU64>(VectorU64, VectorU64, VectorU64, VectorU64);
template Word<64>::U halfulp::increment<64, RD>(Word<64>::U, Word<64>::U, Word<64>::U, Word<64>::U);
"""


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("header", ["lanes", "number", "floats", "elementwise"])
def test_switch_without_a_mode_does_not_compile(header, tmp_path):
    folder = Path(build.__file__).parent
    for file in folder.glob("*.h"):
        shutil.copy(file, tmp_path)
    program = tmp_path / "switch.cpp"
    program.write_text(f'#include "elementwise.h"{USES}')
    command = ["g++", *build.FLAGS, "-o", tmp_path / "switch.so", program]
    assert subprocess.run(command, capture_output=True).returncode == 0
    text = (tmp_path / f"{header}.h").read_text()
    (tmp_path / f"{header}.h").write_text(re.sub(r" case RHD: .*", "", text, count=1))
    done = subprocess.run(command, capture_output=True, text=True)
    assert "'RHD' not handled in switch" in done.stderr.replace("\u2018", "'").replace("\u2019", "'")
