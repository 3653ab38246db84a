"""Host program on a simulated card, with memory, the golden model and a stub of XRT's Python module."""

import enum
import itertools
import sys
import types

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.fpga.kernel.host import Card, Tile, drawn, from_memory, run, stride_of, to_memory
from halfulp.fpga.kernel.layout import ARGUMENTS, CONTINUE, element_bytes
from halfulp.golden.quantize import BlockTensor
from halfulp.hdl.specs import BlockMacSpec, SparseMacSpec, Tiling, parse_cell
from halfulp.tools.errors import ToolError

STOCHASTIC = Tile("gemm", 3, "e5m2*e5m2+e6m5.sr10@lfsr16:7", Tiling(2, 3, 4))
OTHERS = (
    Tile("gemm", 1, "bf16*e4m3fn+fp32.rn", Tiling(8, 8, 32)),
    Tile("gemm", 2, "posit8*posit8+exact=posit16.rn", Tiling(1, 2)),
    Tile("gemm", 10, "e5m2*e5m2+e6m5.sr3@plateau3", Tiling(3, 2, 2, 2)),
    Tile("gemm", 2, "mxfp8_e4m3*mxfp6_e2m3+fp32.rn step=8", Tiling(2, 2, 2)),
    Tile("gemm", 2, "sparsemac e4m3fn*e5m2+bf16.sr4@lfsr16 sparsity=2:5 step=4", Tiling(2, 2, 2)),
)


class Direction(enum.Enum):
    XCL_BO_SYNC_BO_TO_DEVICE = 0
    XCL_BO_SYNC_BO_FROM_DEVICE = 1


class State(enum.Enum):
    ERT_CMD_STATE_COMPLETED = 4
    ERT_CMD_STATE_TIMEOUT = 8


def pyxrt(tile, *, end=State.ERT_CMD_STATE_COMPLETED, flip=False, models=None):  # noqa: C901 - a module with its classes
    """Stub of XRT's module (src/python/pybind11 of XRT); its kernels access the memory of the card as bytes.

    Written data stays with the host until it is synchronised, and memory starts with nonzero bytes. There is one card.
    Kernels compute by the golden model, or by a simulated kernel for each core, ``models``.
    """
    module = types.ModuleType("pyxrt")
    module.xclBOSyncDirection, module.ert_cmd_state = Direction, State
    spec, runs = parse_cell(tile.mac), []

    class Bo:
        normal = object()

        def __init__(self, device, size, flags, group):
            assert isinstance(device, Device)
            assert flags is Bo.normal
            self.group, self.here, self.there = group, bytearray(b"\xa5" * size), bytearray(b"\x5a" * size)

        def write(self, data, seek):
            self.here[seek : seek + len(data)] = data

        def read(self, size, skip):
            # An array of char, as pybind11 returns it.
            return np.frombuffer(bytes(self.here[skip : skip + size]), np.int8)

        def sync(self, direction, size, offset):
            of, to = (
                (self.here, self.there) if direction is Direction.XCL_BO_SYNC_BO_TO_DEVICE else (self.there, self.here)
            )
            to[offset : offset + size] = of[offset : offset + size]

    class Device:
        def __init__(self, number):
            if number:
                raise RuntimeError(f"No such device with index '{number}'")

        def load_xclbin(self, path):
            assert isinstance(path, str)
            return f"uuid of {path}"

    class Run:
        def wait(self, milliseconds):
            assert milliseconds > 0
            return end

    class Kernel:
        exclusive = object()

        def __init__(self, device, uuid, name, access):
            assert uuid.startswith("uuid of ")
            assert access is Kernel.exclusive
            self.name, self.words = name, 0

        def group_id(self, place):
            assert ARGUMENTS[place].port
            return f"{self.name} {ARGUMENTS[place].port}"

        def __call__(self, *values):
            given = {argument.name: value for argument, value in zip(ARGUMENTS, values, strict=True)}
            assert all(type(given[argument.name]) is (Bo if argument.port else int) for argument in ARGUMENTS)
            n, k, m = (given[name] for name in "nkm")
            runs.append((self.name, n, k, m, given["flags"], [given[name].group for name in "abc"]))
            if models:
                images = [bytes(given[name].there) for name in "abc"]
                numbers = {name: value for name, value in given.items() if name not in "abc"}
                given["c"].there[:] = models[int(self.name[-2]) - 1].run(images, numbers)
                return Run()
            shapes = {"a": (n, k), "b": (k, m)}
            read = {BlockMacSpec: self.blocks, SparseMacSpec: self.steps}.get(type(spec), self.matrix)
            a, b = (read(given, name, *shape) for name, shape in shapes.items())
            if not given["flags"] >> CONTINUE & 1:
                self.words = 0
            words = {"tiling": tile.tiling, "first_step": self.words} if spec.words else {}
            c = golden.gemm(a, b, spec, **words)
            self.words += tile.tiling.steps(n, k, m)
            if flip:
                c[-1, -1] ^= 1
            stride, size = given["c_stride"], element_bytes(spec.o.width)
            for row in range(n):
                line = c[row].numpy().astype(f"<u{size}").tobytes()
                given["c"].there[row * stride : row * stride + len(line)] = line
            return Run()

        def matrix(self, given, name, rows, columns):
            fmt, stride = getattr(spec, name), given[f"{name}_stride"]
            size = element_bytes(fmt.width)
            lines = [given[name].there[row * stride : row * stride + columns * size] for row in range(rows)]
            codes = np.array([np.frombuffer(bytes(line), f"<u{size}") for line in lines]).astype(np.int64)
            return torch.from_numpy(codes)

        def steps(self, given, name, rows, columns):
            """Read packed activations, or weights and their indices, bit by bit."""
            widths = [spec.a.width] * spec.activations if name == "a" else [spec.b.width, spec.index_bits]
            widths = widths if name == "a" else [width for width in widths for _ in range(spec.k)]
            size, stride = -(-sum(widths) // 8), given[f"{name}_stride"]
            codes = torch.zeros(rows, columns, len(widths), dtype=torch.int64)
            for row, column in itertools.product(range(rows), range(columns)):
                at = row * stride + column * size
                entry = int.from_bytes(given[name].there[at : at + size], "little")
                for place, width in enumerate(widths):
                    codes[row, column, place] = entry & (1 << width) - 1
                    entry >>= width
                assert entry == 0
            if name == "a":
                return codes.flatten(1)
            return golden.SparseTensor(*(part.transpose(1, 2).flatten(0, 1) for part in codes.split(spec.k, -1)))

        def blocks(self, given, name, rows, columns):
            """Read packed elements and scales bit by bit."""
            block, stride, k = getattr(spec, name), given[f"{name}_stride"], spec.k
            width, bits = block.element.width, k * block.element.width + block.scale.width
            size = -(-bits // 8)
            codes = torch.zeros(rows, columns, k + 1, dtype=torch.int64)
            for row, column in itertools.product(range(rows), range(columns)):
                at = row * stride + column * size
                entry = int.from_bytes(given[name].there[at : at + size], "little")
                assert entry >> bits == 0
                codes[row, column] = torch.tensor(
                    [*(entry >> place * width & (1 << width) - 1 for place in range(k)), entry >> k * width]
                )
            if name == "b":
                codes = codes.transpose(0, 1)
            elements, scale = codes[..., :-1].flatten(1), codes[:, :: block.length // k, -1]
            found = BlockTensor(elements, scale)
            return found.mT if name == "b" else found

    module.bo, module.device, module.kernel, module.runs = Bo, Device, Kernel, runs
    return module


@pytest.fixture
def card(monkeypatch, tmp_path):
    """Return a function that opens a card of a tile with a configured stub."""

    def of(tile, **options):
        monkeypatch.setitem(sys.modules, "pyxrt", pyxrt(tile, **options))
        return Card(tile, tmp_path / "gemm.hw.xclbin")

    return of


def operands(tile, n, k, m, seed=0):
    return drawn(tile.spec, n, k, m, torch.Generator().manual_seed(seed))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tile", [STOCHASTIC, *OTHERS], ids=lambda tile: tile.mac)
def test_card_product_matches_golden_over_cores(tile, card):
    found = card(tile)
    for number, shape in enumerate(((1, 1, 1), (7, 5, 11), (40, 3, 2))):
        a, b = operands(tile, *shape, seed=number)
        go_on = number == 2
        want = found.expected(a, b, go_on=go_on)
        assert torch.equal(found.product(a, b, go_on=go_on), want)
        if not tile.spec.words:
            assert torch.equal(want, golden.gemm(a, b, tile.spec))
    runs = sys.modules["pyxrt"].runs
    assert runs[0] == (
        "gemm:{gemm_1}", 1, tile.spec.steps(1), 1, 0, [f"gemm:{{gemm_1}} m_axi_{name}" for name in "abc"],
    )  # fmt: skip
    assert {run[4] for run in runs} == {0, 1}
    last = [run for run in runs if run[3] == 2]
    assert sum(run[1] for run in last) == 40
    assert [run[0] for run in last] == [f"gemm:{{gemm_{core + 1}}}" for core in range(len(last))]
    # Whole tiles except for the last.
    assert all(run[1] % tile.tiling.n == 0 for run in last[:-1])


def test_tiling_shares_rows_between_cores():
    assert STOCHASTIC.shares(1, 3) == [slice(0, 1)]
    assert STOCHASTIC.shares(7, 3) == [slice(0, 4), slice(4, 7)]
    assert STOCHASTIC.shares(12, 3) == [slice(0, 4), slice(4, 8), slice(8, 12)]
    assert STOCHASTIC.shares(13, 3) == [slice(0, 6), slice(6, 12), slice(12, 13)]


def test_card_batch_matches_golden_with_products_at_once(card):
    """Seven products of two rows of tiles run three at once; sources continue from product to product."""
    found = card(STOCHASTIC)
    pairs = [operands(STOCHASTIC, 4, 5, 11, seed=seed) for seed in range(7)]
    a, b = (torch.stack(codes) for codes in zip(*pairs, strict=True))
    for go_on in (False, True):
        want = found.expected(a, b, go_on=go_on)
        assert torch.equal(found.product(a, b, go_on=go_on), want)
    runs = sys.modules["pyxrt"].runs
    assert [run[0][-2] for run in runs[:7]] == list("1231231")
    assert [run[4] for run in runs[:7]] == [0, 0, 0, 1, 1, 1, 1]
    # The first product of each core is that of a core of its own.
    assert torch.equal(found.expected(a, b)[1], golden.gemm(*pairs[1], STOCHASTIC.spec, tiling=STOCHASTIC.tiling))
    assert found.product(a.reshape(7, 1, 4, 5), b.reshape(7, 1, 5, 11)).shape == (7, 1, 4, 11)
    # One matrix serves all products of a batch.
    assert torch.equal(found.product(a, b[0])[2], golden.gemm(a[2], b[0], STOCHASTIC.spec, tiling=STOCHASTIC.tiling))


def test_tile_deals_products_where_cores_would_idle():
    # Products of one row of tiles run on a core each; six rows of tiles keep all three cores busy.
    rows = slice(0, 2)
    assert STOCHASTIC.turns(5, 2) == [[(0, 0, rows), (1, 1, rows), (2, 2, rows)], [(0, 3, rows), (1, 4, rows)]]
    assert [len(turn) for turn in STOCHASTIC.turns(2, 12)] == [3, 3]
    wide = Tile("gemm", 4, STOCHASTIC.mac, Tiling(2, 3, 4))
    halves = [slice(0, 2), slice(2, 4)]
    assert wide.turns(2, 4) == [[(0, 0, halves[0]), (1, 0, halves[1]), (2, 1, halves[0]), (3, 1, halves[1])]]


def test_matrices_in_memory_are_aligned_to_beats():
    codes = torch.tensor([[1, 0xABC], [0x7FF, 2]])
    # Each row starts at a beat.
    assert to_memory(codes, 12) == bytes.fromhex("0100bc0a") + bytes(60) + bytes.fromhex("ff070200") + bytes(60)
    assert torch.equal(from_memory(to_memory(codes, 12), 12, (2, 2)), codes)
    assert [stride_of(columns, 1) for columns in (1, 64, 65)] == [64, 64, 128]
    assert to_memory(torch.tensor([[-1]]), 64)[:9] == b"\xff" * 8 + b"\0"


def test_card_reports_core_that_does_not_finish(card):
    found = card(STOCHASTIC, end=State.ERT_CMD_STATE_TIMEOUT)
    with pytest.raises(ToolError, match="core 1 of gemm did not finish"):
        found.product(*operands(STOCHASTIC, 3, 2, 1))


def test_card_reports_errors_of_xrt(card, monkeypatch, tmp_path):
    found = card(STOCHASTIC)
    with pytest.raises(ToolError, match=r"^XRT did not open card 3: No such device with index '3'$"):
        Card(STOCHASTIC, tmp_path / "gemm.hw.xclbin", 3)

    def full(*_):
        raise RuntimeError("no memory")

    monkeypatch.setattr(sys.modules["pyxrt"].bo, "__init__", full)
    with pytest.raises(ToolError, match=r"^XRT did not run gemm: no memory$"):
        found.product(*operands(STOCHASTIC, 3, 2, 1))


def started(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["host.py", *map(str, words)])
    try:
        run(STOCHASTIC)
        code = 0
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.fixture
def xclbin(tmp_path):
    path = tmp_path / "gemm.hw.xclbin"
    path.write_text("")
    return path


def test_host_program_prints_results_and_exit_codes(monkeypatch, capsys, xclbin):
    monkeypatch.setitem(sys.modules, "pyxrt", pyxrt(STOCHASTIC))
    words = (xclbin, "--n", 5, "--k", 6, "--m", 7)
    code, said = started(monkeypatch, capsys, *words)
    assert code == 0
    assert [line.partition(" of ")[0] for line in said.splitlines()] == ["product 1, 5 x 6 x 7", "product 2, 5 x 6 x 7"]
    assert said.count("e5m2*e5m2+e6m5.sr10@lfsr16:7: all 35 elements") == 2
    monkeypatch.setitem(sys.modules, "pyxrt", pyxrt(STOCHASTIC, flip=True))
    code, said = started(monkeypatch, capsys, *words)
    assert code == 1
    assert said.endswith("3 of 35 elements are wrong, first [1, 6]\n")


def test_host_program_reports_missing_xrt_and_file(monkeypatch, capsys, xclbin):
    monkeypatch.setitem(sys.modules, "pyxrt", None)
    code, said = started(monkeypatch, capsys, xclbin)
    assert code == 3
    assert "pyxrt" in said
    code, said = started(monkeypatch, capsys, "nothing")
    assert code == 2
    assert said.startswith("halfulp: Invalid value for 'XCLBIN'")
