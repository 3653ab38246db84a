"""Timing model of a kernel against the simulated kernel on the memories of cocotbext-axi."""

import json
import random
from fractions import Fraction

import pytest

from halfulp.fpga.kernel.arrays import kernel, timing
from halfulp.fpga.kernel.kernel import Kernel
from halfulp.fpga.kernel.timing import Memory, Timing
from halfulp.fpga.match.performance import cycles_of
from halfulp.hdl.specs import Build, MacSpec, Tiling, parse_cell
from halfulp.units.systolic import Chain, Grid
from tests.fpga.kernel.test_kernel import BLOCKS, KERNELS, SPARSE, simulate

RAM = Memory(read=2, write=2)
"""Memory timing of the test bench."""

SHAPES = (
    *((1, 1, 1), (3, 10, 8), (5, 3, 17), (9, 40, 8), (2, 64, 30), (12, 17, 5)),
    *((20, 30, 40), (6, 100, 9), (30, 9, 9), (7, 33, 16), (13, 1, 4)),
)

MORE = (
    lambda: Kernel(array=Chain(mac="e5m2*e5m2+e6m5.rn", n=8, m=8)),
    lambda: Kernel(array=Chain(mac="e5m2*e5m2+e6m5.rn", n=4, m=2, depth=3, build=Build(pipeline=3)), chunk=16),
    BLOCKS[-1],
    lambda: Kernel(array=Chain(mac="mxfp4*mxfp4+fp32.rn step=16", n=2, m=4, depth=3, rows=2), chunk=8),
    lambda: Kernel(array=Chain(mac="bf16*int4+fp32.rn", n=2, m=3, depth=3, build=Build(pipeline=2)), chunk=4),
    lambda: Kernel(array=Chain(mac="sparsemac int4*int4+int16.rn", n=2, m=4, depth=3), chunk=8),
    SPARSE[1],
)
"""Additional cases of slow tests: the usual array with shapes four times as large, one with register stages, blocks
whose entries lie in two beats, vectors that arrive in parts, and sparse weights."""


def run_of(made, n, k, m):
    """Return a run of the test bench with random data; rows begin at whole beats."""
    strides = (-(-columns * size // 64) * 64 for columns, size in zip((k, m, m), made.bytes, strict=True))
    arguments = {"n": n, "k": k, "m": m, "a": 1 << 20, "b": 2 << 20, "c": 3 << 20, "flags": 0}
    arguments |= dict(zip(("a_stride", "b_stride", "c_stride"), strides, strict=True))
    rest = {"before": {}, "after": {}, "faults": {}, "answers": "SLVERR", "error": 0, "press": 0.0, "reset": 0}
    return {"name": f"{n} x {k} x {m}", "arguments": arguments} | rest


@pytest.mark.slow
@pytest.mark.sampled(6, 6)
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number + 1, marks=pytest.mark.slow) for number in range(len(MORE)))]
)
def test_kernel_model_cycles_match_simulation(number, tmp_path):
    """Cycles match exactly for more than ten shapes."""
    made = (KERNELS[0], *MORE)[number]()
    scale = 4 if number == 1 else 1
    shapes = [tuple(scale * size for size in shape) for shape in SHAPES]
    runs = [run_of(made, *shape) for shape in shapes]
    assert simulate(made, {"seed": 1, "patience": 100_000, "runs": runs}, tmp_path, ("runs",)) == {"runs": ""}
    counted = json.loads((tmp_path / "cycles.json").read_text())
    model = Timing.of(made, RAM)
    assert [model.cycles(*shape) for shape in shapes] == counted


@pytest.mark.parametrize("text", ["e5m2*e5m2+e6m5.sr10@lfsr16", "posit8*posit8+exact=posit8.rn", "bf16*bf16+fp32.rn"])
def test_kernel_timing_needs_no_kernel_object(text):
    mac = MacSpec.parse(text)
    for n, m, depth, pipeline in ((1, 1, 32, 0), (3, 2, 4, 2), (8, 8, 32, 0)):
        build = Build(pipeline)
        assert timing(mac, n, m, RAM, depth, build) == Timing.of(kernel(mac, n, m, depth, build), RAM)


def test_kernel_model_extrapolates_large_products():
    dice = random.Random(5)
    mac = MacSpec.parse("e5m2*e5m2+e6m5.sr10@lfsr16")
    for _ in range(60):
        memory = Memory(dice.choice([2, 33]), 2, dice.choice([1.0, 0.75]))
        core = timing(mac, dice.choice([1, 2, 3, 8]), dice.choice([1, 2, 3, 8, 64]), memory, dice.choice([1, 5, 32]))
        n, k = dice.randint(1, 9 * core.tiling.n), dice.choice([1, 2, 64, 65, 300, 500, 511, 700])
        m = dice.randint(1, 8 * core.tiling.columns)
        assert cycles_of(core, n, k, m) == core.cycles(n, k, m), (core, n, k, m)


@pytest.mark.parametrize(
    "mac",
    [
        "mxfp8_e4m3*mxfp4+fp32.rn",
        "nvfp4*mxfp6_e2m3+fp32.rn step=4",
        "sparsemac e4m3fn*e4m3fn+fp32.rn",
        "sparsemac e4m3fn*e2m1fn+fp32.rn sparsity=1:5",
    ],
)
def test_kernel_model_extrapolates_products_of_blocks(mac):
    """Entries of 33, 17, 3 and 4, 5 and 1 bytes; tiles begin anywhere in a beat."""
    dice, mac = random.Random(6), parse_cell(mac.replace("nvfp4", "block(e2m1fn,32,e4m3fn,nearest)"))
    for _ in range(3):
        core = timing(mac, dice.choice([1, 2, 8]), dice.choice([1, 3, 4]), RAM, dice.choice([8, 32]))
        n, k, m = dice.randint(1, 9 * core.tiling.n), dice.choice([1, 65, 400]), dice.randint(1, 300)
        assert cycles_of(core, n, k, m) == core.cycles(n, k, m), (core, n, k, m)


def test_kernel_model_step_is_slowest_of_its_limits():
    """The limits: vectors, elements of a, spacing of the accumulator, beats, and outstanding requests."""

    def step(n, m, vectors, memory=RAM, pipeline=0, mac="e5m2*e5m2+e6m5.rn"):
        return timing(MacSpec.parse(mac), n, m, memory, 32, Build(pipeline)).step(vectors)

    assert step(1, 1, 32) == 32
    assert step(8, 1, 4) == 8
    assert (
        step(1, 1, 1, pipeline=5) == kernel(MacSpec.parse("e5m2*e5m2+e6m5.rn"), 1, 1, 32, Build(5)).array.spacing == 5
    )
    # A vector of three elements arrives in three parts; 64 elements of four bytes are four beats.
    assert step(1, 3, 4) == 12
    assert step(1, 64, 32, mac="fp32*fp32+fp32.rn") == 128
    assert step(1, 64, 30, Memory(2, 2, 0.5)) == 60
    # Sixteen requests of one beat each, divided by their round-trip time.
    assert step(1, 1, 1, Memory(126, 2)) == 8
    assert step(1, 1, 1, Memory(127, 2)) == Fraction(129, 16)


def test_kernel_model_rejects_other_arrays():
    with pytest.raises(TypeError, match="not a Grid"):
        Timing.of(Kernel(array=Grid(mac="e5m2*e5m2+e6m5.rn", n=2, m=2)), RAM)
    core = timing(MacSpec.parse("e5m2*e5m2+e6m5.rn"), 2, 2, RAM)
    assert core.resized(Tiling(2, 2, 32)) == core
    with pytest.raises(ValueError, match="1 x 0 x 1"):
        core.cycles(1, 0, 1)
