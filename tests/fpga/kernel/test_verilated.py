"""Kernels at compiled speed on a slow memory with stalls: bits, cycles, and the rules of AXI4."""

import functools
import re
import time

import pytest
import torch

from halfulp import golden
from halfulp.fpga.kernel import axi
from halfulp.fpga.kernel.kernel import Kernel
from halfulp.fpga.kernel.timing import cycles
from halfulp.fpga.kernel.verilated import Verilated
from halfulp.hdl.specs import Build
from halfulp.sim.blocks import split_blocks
from halfulp.tools.errors import ToolError
from halfulp.units.catalogue import component
from halfulp.units.systolic import Chain
from halfulp.units.verilog import emit
from tests.settings import EXHAUSTIVE

MADE = [
    lambda: Kernel(array=Chain(mac="e5m2*e5m2+e6m5.sr10@lfsr16", n=2, m=2, depth=8)),
    lambda: Kernel(array=Chain(mac="bf16*int4+fp32.rn", n=3, m=4, depth=5, rows=2, build=Build(pipeline=2)), chunk=4),
    lambda: Kernel(array=Chain(mac="int3*int3+int9.rn", n=8, m=8, build=Build(pipeline=2))),
]
KERNELS = range(len(MADE) if EXHAUSTIVE else 1)

SHAPES = [(64, 64, 64), (100, 51, 16), (1, 400, 120), (9, 500, 33), (40, 26, 6)]
LATENCIES = (1, 2, 33, 100, 200)


@functools.cache
def verilated_kernel(number):
    return Verilated(MADE[number]())


def operands(mac, n, k, m, generator):
    return [
        torch.randint(1 << fmt.width, shape, generator=generator) for fmt, shape in ((mac.a, (n, k)), (mac.b, (k, m)))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", KERNELS)
def test_verilated_kernel_products_ignore_memory_timing(number):
    """Slow memories with stalls, and sources that continue."""
    verilated, generator, step = verilated_kernel(number), torch.Generator().manual_seed(3), 0
    mac, tiling = verilated.kernel.array.mac, verilated.kernel.array.tiling
    for turn in range(200 if EXHAUSTIVE else 30):
        sizes = torch.randint(1, 30, (3,), generator=generator).tolist()
        a, b = operands(mac, *sizes, generator)
        go_on = turn % 2 == 1
        step = step if go_on else 0
        behaviour = {"read": LATENCIES[turn % 5], "write": 1 + turn % 7, "stall": (0, 0.2, 0.8)[turn % 3]}
        found = verilated.product(a, b, go_on=go_on, seed=turn, **behaviour)
        dealt = {"tiling": tiling, "first_step": step} if mac.random else {}
        assert torch.equal(found, golden.gemm(a, b, mac, **dealt)), (sizes, behaviour)
        step += tiling.steps(*sizes)


@pytest.mark.slow
def test_host_adds_the_terms_of_zero_points():
    generator = torch.Generator().manual_seed(6)
    with Verilated(Kernel(array=Chain(mac="uint8*int4+int32.rn", n=2, m=2, depth=2))) as verilated:
        mac = verilated.kernel.array.mac
        a, b = operands(mac, 5, 9, 3, generator)
        zeros = {"a_zero": torch.tensor([[3], [0], [255], [128], [7]]), "b_zero": torch.tensor([8, 0, 15])}
        assert torch.equal(verilated.product(a, b, **zeros), golden.gemm(a, b, mac, **zeros))
        assert torch.equal(verilated.product(a, b), golden.gemm(a, b, mac))


@pytest.mark.slow
def test_verilated_array_of_1024_multiplies_large_matrices():
    """A kernel of 32 x 32 is built in at most three minutes; the product has 512 rows, columns and steps."""
    made = Kernel(array=Chain(mac="e5m2*e5m2+e6m5.sr10@lfsr16", n=32, m=32))
    mac, before = made.array.mac, time.monotonic()
    with Verilated(made) as verilated:
        assert time.monotonic() - before < 180
        a, b = operands(mac, 512, 512, 512, torch.Generator().manual_seed(5))
        assert torch.equal(verilated.product(a, b), golden.gemm(a, b, mac, tiling=made.array.tiling))


@pytest.mark.slow
def test_blocks_are_outermost_modules_with_parameters():
    chain = Chain(mac="e5m2*e5m2+e6m5.sr10@lfsr16", n=2, m=3)
    text, blocks = split_blocks(emit(chain, netlist=True))
    modules = re.findall(r"^module (\S+) \(", blocks["block0"], re.M)
    assert list(blocks) == ["block0"]
    assert [name.rpartition(".")[2].partition("_")[0] for name in modules] == ["block0", "words", "step"]
    assert len(re.findall(r"^  block0 element\d \(\n    \.row\(1'h[01]\), \.seeds\(48'h", text, re.M)) == 2
    assert "parameter" not in text + blocks["block0"]
    plain = emit(component("mac e5m2*e5m2+e6m5.sr10"), netlist=True)
    assert split_blocks(plain) == (plain, {})


@pytest.mark.slow
@pytest.mark.parametrize("number", KERNELS)
def test_verilated_kernel_cycles_match_model(number):
    """Within one in 300 if outstanding requests hide the latency, most of them exactly; otherwise within one in 30."""
    verilated, generator, exact = verilated_kernel(number), torch.Generator().manual_seed(4), 0
    kernel = verilated.kernel
    for sizes in SHAPES:
        # Four chunks of four columns do not hide more latency.
        for read in LATENCIES[: 3 if number == 1 else None]:
            a, b = operands(kernel.array.mac, *(min(size, 130) for size in sizes), generator)
            shape = (*a.shape, b.shape[1])
            verilated.product(a, b, read=read, write=3)
            expected = cycles(kernel, *shape, read=read, write=3)
            exact += verilated.cycles == expected
            assert abs(verilated.cycles - expected) <= verilated.cycles / (300 if read < 34 else 30), (shape, read)
    assert exact > len(SHAPES) * (3 if number == 1 else len(LATENCIES)) / 2


@pytest.mark.slow
def test_verilated_kernel_reports_errors_and_timeouts(monkeypatch):
    """Errors of the kernel, and a run that does not end; the next run succeeds."""
    verilated = verilated_kernel(0)
    kernel = verilated.kernel
    a = b = torch.ones(20, 20, dtype=torch.int64)
    with monkeypatch.context() as patch:
        patch.setattr("halfulp.fpga.kernel.verilated.cycles", lambda *_, **__: 0)
        with pytest.raises(ToolError, match=r"^kernel_chain\w+ failed: it is not done after 128 cycles; register er"):
            verilated.product(a, b, read=1, write=1)
        patch.setattr("halfulp.fpga.kernel.verilated.cycles", lambda *_, **__: 1000)
        with pytest.raises(ToolError, match=r"^kernel_chain\w+ failed: register error is 0x1, with 0 violations"):
            verilated.product(a[:, :0], b[:0])
    assert torch.equal(verilated.product(a, b), golden.gemm(a, b, kernel.array.mac, tiling=kernel.array.tiling))


def rules_that_are_broken(monkeypatch):
    """Check that a kernel whose bursts cross pages is reported."""
    monkeypatch.setattr(axi, "PAGE_BEATS", 128)
    kernel = Kernel(array=Chain(mac="int3*int3+int64.rn", n=1, m=8, depth=128), name="across_pages")
    zeros = torch.zeros(1, 1, dtype=torch.int64)
    with (
        Verilated(kernel) as verilated,
        pytest.raises(ToolError, match=r"^across_pages failed: .* [1-9]\d* violations of AXI4$"),
    ):
        verilated.product(zeros, zeros.expand(1, 1024))


if EXHAUSTIVE:
    test_verilated_kernel_detects_broken_axi_rules = rules_that_are_broken
