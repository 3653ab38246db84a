"""Kernel around a systolic array, on the memories of cocotbext-axi, byte by byte."""

import json
import sys

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.fpga.kernel import layout as kernelmap
from halfulp.fpga.kernel.kernel import Kernel
from halfulp.fpga.kernel.layout import ERRORS
from halfulp.fpga.kernel.timing import LATENCY, cycles
from halfulp.fpga.kernel.verilated import Verilated
from halfulp.fpga.match import networks
from halfulp.golden.entries import entries
from halfulp.golden.nn import operands as of_layers
from halfulp.hdl.specs import Build
from halfulp.lab.train import data
from halfulp.sim.build import component_design, models
from halfulp.sim.simulate import Simulation
from halfulp.units.systolic import Chain, Grid
from tests.settings import EXHAUSTIVE, ROOT
from tests.units.systolic.test_systolic import expected, operands

RUNS = 40 if EXHAUSTIVE else 10
BIGGEST = 40 if EXHAUSTIVE else 14
PATIENCE = 500_000 if EXHAUSTIVE else 20_000
"""Clock cycles after which a run counts as stuck, far more than a product with back-pressure takes."""

TESTS = ("runs", "registers", "again")

GUARD = 200
"""Checked bytes before and after a matrix."""

KERNELS = [
    lambda: Kernel(array=Chain(mac="e5m2*e5m2+e6m5.sr10@lfsr16:9", n=3, m=4, depth=2), chunk=8),
    lambda: Kernel(array=Chain(mac="bf16*int4+fp32.rn", n=2, m=3, depth=3, rows=2, build=Build(pipeline=2)), chunk=4),
]
MORE = [
    lambda: Kernel(array=Grid(mac="fxp4.4*fxp4.4+fxp8.8.rn", n=2, m=4, depth=2, build=Build(pipeline=1)), chunk=8),
    lambda: Kernel(
        array=Chain(mac="posit8*posit8+exact=posit8.rn", n=1, m=1, depth=4, build=Build(pipeline=1)), chunk=2
    ),
    lambda: Kernel(array=Chain(mac="e5m2*e5m2+e6m5.rn", n=8, m=8)),
    lambda: Kernel(array=Chain(mac="fp64*int3+fp64.rn", n=1, m=16, depth=2), chunk=1),
]


TOY = "block(e2m1fn,4,e8m0fnu,floor)"
BLOCKS = [
    # Entries of 3 and 5 bytes.
    lambda: Kernel(array=Chain(mac=f"{TOY}*block(e4m3fn,4,e8m0fnu,floor)+e6m5.sr5@lfsr16", n=2, m=3, depth=2), chunk=2),
    lambda: Kernel(array=Grid(mac="nvfp4*nvfp4+bf16.rn", n=2, m=4, build=Build(pipeline=3)), chunk=4),
    lambda: Kernel(
        array=Chain(mac="mxfp8_e4m3*mxfp8_e4m3+fp32.rn", n=2, m=2, depth=3, build=Build(pipeline=3)), chunk=4
    ),
]

SPARSE = [
    # Entries of 4 and 3 bytes: four activations, and two weights with indices of two bits.
    lambda: Kernel(array=Chain(mac="sparsemac e4m3fn*e4m3fn+e6m5.sr5@lfsr16", n=2, m=3, depth=2), chunk=2),
    lambda: Kernel(
        array=Chain(mac="sparsemac int8*int4+int32.rn sparsity=1:3 step=2", n=2, m=2, depth=3, build=Build(pipeline=3)),
        chunk=4,
    ),
    lambda: Kernel(array=Grid(mac="sparsemac e5m2*e5m2+fp16.rn step=8", n=2, m=4, build=Build(pipeline=2)), chunk=4),
]


class Matrix:
    """Matrix in memory, with the bytes around it."""

    def __init__(self, rng, codes, size, *, width):
        rows, columns = codes.shape
        self.size, self.codes = size, codes
        self.stride = (columns + int(rng.choice([0, 0, 1, rng.integers(0, 70)]))) * size
        span = (rows - 1) * self.stride + columns * size
        # Often near the end of a page, and with address bits above 32.
        page = int(rng.integers(1, 1 << 49)) << 12
        self.base = page + size * int(rng.choice([rng.integers(0, 4096 // size), -min(span, 4096) // (2 * size)]))
        self.memory = rng.integers(0, 256, span + 2 * GUARD, dtype=np.uint8)
        self.width = width

    def place(self, codes, rng=None):
        """Return all bytes, with codes in the matrix; bits above a code are zero, or random if ``rng`` is given."""
        memory = self.memory.copy()
        for row, line in enumerate(codes.tolist()):
            for column, code in enumerate(line):
                code %= 1 << self.width
                if rng is not None and self.width < 8 * self.size:
                    code |= int.from_bytes(rng.bytes(self.size), "little") >> self.width << self.width
                at = GUARD + row * self.stride + column * self.size
                memory[at : at + self.size] = np.frombuffer(code.to_bytes(self.size, "little"), np.uint8)
        return memory

    @property
    def window(self):
        return str(self.base - GUARD)


def words_of(operand, mac, name):
    """Return the entries of a matrix as integers, first field in the low bits."""
    fields, widths = entries(operand, mac, name), [fmt.width for fmt in mac.entries[name].values()]
    found = np.zeros(fields.shape[:2], dtype=object)
    for place, codes in enumerate(fields.unbind(-1)):
        masked = np.array(codes.tolist(), dtype=object) % (1 << widths[place])
        found += masked << sum(widths[:place])
    return found


def written(rng, kernel, name, codes_a, codes_b, product, *, flags=0, press=0.0):
    """Return a run that multiplies two matrices at random addresses, and the three matrices."""
    mac, (a_size, b_size, c_size) = kernel.array.mac, kernel.bytes
    codes_a, codes_b = words_of(codes_a, mac, "a"), words_of(codes_b, mac, "b")
    a = Matrix(rng, codes_a, a_size, width=mac.entry_bits("a"))
    b = Matrix(rng, codes_b, b_size, width=mac.entry_bits("b"))
    c = Matrix(rng, product, c_size, width=mac.o.width)
    in_a, in_b = a.place(codes_a, rng), b.place(codes_b, rng)
    (n, k), m = codes_a.shape, codes_b.shape[1]
    arguments = {"n": n, "k": k, "m": m, "flags": flags}
    for operand, matrix in (("a", a), ("b", b), ("c", c)):
        arguments |= {operand: matrix.base, f"{operand}_stride": matrix.stride}
    untouched = {a.window: in_a.tobytes().hex(), b.window: in_b.tobytes().hex()}
    run = {
        "name": f"{name}, n, k, m = {n, k, m}",
        "arguments": arguments,
        "before": untouched | {c.window: c.memory.tobytes().hex()},
        "after": untouched | {c.window: c.place(product).tobytes().hex()},
        "faults": {},
        "answers": "SLVERR",
        "error": 0,
        "press": press,
        "reset": 0,
    }
    return run, (a, b, c)


def run_of(rng, kernel, name, steps):
    """Return a run of any sizes, its matrices, and the steps of the sources after it."""
    mac = kernel.array.mac
    n, k, m = (int(size) for size in rng.integers(1, BIGGEST + 1, 3))
    codes_a, codes_b = operands(rng, mac, n, k, m)
    goes_on = steps is not None and bool(rng.integers(0, 2))
    product = expected(codes_a, codes_b, kernel.array, steps if goes_on else 0)
    flags = int(goes_on) << kernelmap.CONTINUE
    press = float(rng.uniform(0.1, 0.7)) if rng.integers(0, 2) else 0.0
    run, matrices = written(rng, kernel, name, codes_a, codes_b, product, flags=flags, press=press)
    return run, matrices, kernel.array.tiling.steps(n, mac.steps(k), m) + (steps if goes_on else 0)


def error(*names):
    return sum(1 << ERRORS.index(name) for name in names)


def broken(run, **changes):
    """Return a failing run; the test checks the memory around c only."""
    return run | {"after": dict(list(run["after"].items())[:2])} | changes


def job(kernel, seed):
    """Return runs of all kinds, with correct runs between failing ones."""
    rng = np.random.default_rng(seed)
    runs, steps = [], None
    for number in range(RUNS):
        run, _, steps = run_of(rng, kernel, f"run {number}", steps)
        runs.append(run)
        kind, turn = number % 5, number // 5 + seed
        # A failure or a reset resets the sources to their seeds.
        other, (a, b, c), _ = run_of(rng, kernel, f"after run {number}", None)
        if kind == 0:
            name, matrix = [("a", a), ("b", b), ("c", c)][turn % 3]
            rows, columns = matrix.codes.shape
            bad = matrix.base + int(rng.integers(rows)) * matrix.stride + int(rng.integers(columns)) * matrix.size
            wrong = {"a": "read_a", "b": "read_b", "c": "write_c"}[name]
            answers = ("SLVERR", "DECERR")[turn % 2]
            runs.append(broken(other, faults={name: bad}, answers=answers, error=error(wrong)))
            steps = None
        elif kind == 1:
            size = "nkm"[turn % 3]
            runs.append(
                other | {"arguments": other["arguments"] | {size: 0}, "after": other["before"], "error": error("size")}
            )
        elif kind == 2:
            runs.append(broken(other, reset=int(rng.integers(1, 25))))
            steps = None
        elif kind == 3 and kernel.bytes[2] > 1:
            name = ("c", "c_stride")[turn % 2]
            off = other["arguments"] | {name: other["arguments"][name] + 1}
            runs.append(other | {"arguments": off, "after": other["before"], "error": error("alignment")})
    return {"seed": seed, "patience": PATIENCE, "runs": runs}


def simulate(kernel, jobs, folder, tests=TESTS):
    (folder / "job.json").write_text(json.dumps(jobs))
    design = component_design(kernel)
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        with Simulation(models(design, ["cocotb"])["cocotb"], design.top, "kernel_bench", tests, folder) as simulation:
            return simulation.finish()
    finally:
        sys.path.pop(0)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(len(KERNELS + MORE) if EXHAUSTIVE else len(KERNELS)))
def test_kernel_multiplies_matrices_in_memory(number, tmp_path):
    """Random sizes, strides and addresses, with back-pressure, errors and resets."""
    kernel = (KERNELS + MORE)[number]()
    jobs = job(kernel, number)
    assert simulate(kernel, jobs, tmp_path) == dict.fromkeys(TESTS, "")
    assert len(json.loads((tmp_path / "cycles.json").read_text())) == sum(not run["reset"] for run in jobs["runs"])


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_kernel_multiplies_blocks_in_memory(number, tmp_path):
    kernel = BLOCKS[number]()
    assert simulate(kernel, job(kernel, number), tmp_path) == dict.fromkeys(TESTS, "")


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize("number", range(len(SPARSE)))
def test_kernel_multiplies_sparse_weights_in_memory(number, tmp_path):
    kernel = SPARSE[number]()
    assert simulate(kernel, job(kernel, number), tmp_path) == dict.fromkeys(TESTS, "")


@pytest.mark.parametrize(
    ("mac", "sizes"),
    [
        ("mxfp8_e4m3*mxfp8_e5m2+fp32.rn", (33, 33, 4)),
        ("mxfp4*mxfp6_e2m3+bf16.rn step=8", (5, 7, 2)),
        ("sparsemac e4m3fn*e4m3fn+fp32.rn", (4, 3, 4)),
        ("sparsemac e4m3fn*e4m3fn+fp32.rn step=8", (16, 10, 4)),
        ("sparsemac fp16*int4+fp32.rn sparsity=1:16", (32, 1, 4)),
    ],
)
def test_kernel_entries_of_several_numbers_have_no_gaps(mac, sizes):
    assert Kernel(array=Chain(mac=mac, n=1, m=1)).bytes == sizes


def test_kernel_rejects_entries_longer_than_a_beat():
    with pytest.raises(ValueError, match="1032 bits of a, and a beat of memory has 512"):
        Kernel(array=Chain(mac="block(e5m2,128,e8m0fnu,floor)*block(e5m2,128,e8m0fnu,floor)+fp32.rn", n=1, m=1))


def a_network_runs_on_the_kernel(monkeypatch):
    """Run one image through LeNet-5, with each product and its transpose: exact bits, cycles within 1 % of `cycles`.

    A bias that is an operand becomes a row of b, multiplied by a column of ones.
    """
    policy = golden.nn.Policy.parse("e5m2*e5m2+e6m5.rn, bias=e5m2.rn")
    products = []

    def recorded(a, b, mac, *, key, start=None, device=None):
        found = golden.gemm(a, b, mac, start=start)
        products.append((a, b, start, found))
        return found

    monkeypatch.setattr(of_layers, "product", recorded)
    torch.manual_seed(4)
    network = golden.nn.convert(networks.lenet5(), policy).model.eval()
    with torch.no_grad():
        network(data.mnist(None).test[0][:1])
    assert len(products) == 5
    kernel = Kernel(array=Chain(mac=policy.forward, n=8, m=8, build=Build(pipeline=2)))
    with Verilated(kernel) as verilated:
        for a, b, start, found in products:
            a, b, found = (codes.reshape(codes.shape[-2:]) for codes in (a, b, found))
            one, bias = policy.forward.a.encode(1), golden.decode(start, policy.forward.o)
            row = golden.encode(bias.reshape(1, -1), policy.forward.b)
            assert torch.equal(golden.decode(row, policy.forward.b), bias.reshape(1, -1))
            wide = torch.cat([torch.full((len(a), 1), one), a], 1), torch.cat([row, b])
            for x, y, z in ((*wide, found), (wide[1].mT, wide[0].mT, found.mT)):
                assert torch.equal(verilated.product(x, y, read=LATENCY, write=LATENCY), z)
                expected = cycles(kernel, *x.shape, y.shape[1], read=LATENCY, write=LATENCY)
                assert abs(verilated.cycles - expected) <= 0.01 * expected


if EXHAUSTIVE:
    test_kernel_runs_network = a_network_runs_on_the_kernel
