"""Layers with products on a card: the host program and a stub of XRT, whose kernels are simulated."""

import functools
import itertools
import os
import sys

import pytest
import torch

from halfulp import golden
from halfulp.fpga.kernel import card
from halfulp.fpga.kernel.host import Tile
from halfulp.fpga.kernel.kernel import Kernel
from halfulp.fpga.kernel.layout import HOST
from halfulp.fpga.kernel.verilated import Verilated
from halfulp.golden import nn
from halfulp.golden.nn import product
from halfulp.hdl.specs import Tiling
from halfulp.tools.errors import ToolError
from halfulp.units.systolic import Chain
from tests.fpga.kernel.test_host import pyxrt
from tests.fpga.kernel.test_layers import backward

PLAIN = Tile("gemm", 2, "e5m2*e5m2+e6m5.rn", Tiling(2, 2, 2))
NOISY = Tile("gemm", 2, "e5m2*e5m2+e6m5.sr10@lfsr16:7", Tiling(2, 2, 2))
BLOCKS = Tile("gemm", 2, "mxfp8_e4m3*mxfp8_e4m3+e6m9.rn", Tiling(2, 2, 2))


def install(monkeypatch, root, *tiles, xclbin="gemm.hw.xclbin", **options):
    """Write the folders of tiles, set the environment variable, and return a stub of XRT."""
    folders = [root / str(number) for number in range(len(tiles))]
    for folder, tile in zip(folders, tiles, strict=True):
        folder.mkdir()
        (folder / xclbin).touch()
        lines = ["from halfulp.fpga.kernel.host import Tile", "from halfulp.hdl.specs import Tiling", f"TILE = {tile}"]
        (folder / HOST).write_text("\n".join(lines))
    monkeypatch.setenv(card.SETTING, os.pathsep.join(map(str, folders)))
    stub = pyxrt(tiles[0], **options)
    monkeypatch.setitem(sys.modules, "pyxrt", stub)
    return stub


@pytest.fixture
def on_card(monkeypatch, tmp_path):
    """Return `install` for the folder of a test."""
    return functools.partial(install, monkeypatch, tmp_path)


def simulated(tile):
    """Return simulated kernels for the cores of a tile."""
    sizes = {"n": tile.tiling.n, "m": tile.tiling.m, "depth": tile.tiling.depth}
    return [Verilated(Kernel(array=Chain(mac=tile.spec, **sizes))) for _ in range(tile.cores)]


def compare_with_twin(policy, make, shape, monkeypatch):
    """Run a layer forward and backward on the card, and one on the golden model with the words of the card."""
    x = torch.linspace(-2, 2, torch.Size(shape).numel()).reshape(shape)
    torch.manual_seed(6)
    layers = [make(f"{policy}, device=card") for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    hardware = [backward(layers[0], x) for _ in range(2)]
    monkeypatch.setitem(product.DEVICES, card.DEVICE, card.expected)
    twin = [backward(layers[1], x) for _ in range(2)]
    for found, wanted in zip(itertools.chain(*hardware), itertools.chain(*twin), strict=True):
        assert torch.equal(found, wanted)
        assert found.count_nonzero() > found.numel() / 2
    return hardware[0]


def linear(policy):
    return nn.Linear(7, 5, policy=policy, seed=3)


def grouped(policy):
    return nn.Conv2d(4, 6, 3, padding=1, groups=2, policy=policy, seed=3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("tile", "policy"),
    [
        (PLAIN, "e5m2*e5m2+e6m5.rn, bias=e5m2.rn"),
        (NOISY, "e5m2*e5m2+e6m5.sr10@lfsr16:7, bias=e5m2.rn"),
        (BLOCKS, "mxfp8_e4m3*mxfp8_e4m3+e6m9.rn, bias=e8m3.rn"),
    ],
    ids=["plain", "noisy", "blocks"],
)
def test_layers_on_card_match_golden(tile, policy, on_card, monkeypatch):
    """Products of a group of channels are a batch, which the cores share."""
    runs = on_card(tile).runs
    found = compare_with_twin(policy, grouped, (1, 4, 5, 4), monkeypatch)
    assert {run[0] for run in runs} == {"gemm:{gemm_1}", "gemm:{gemm_2}"}
    if not tile.spec.words:
        torch.manual_seed(6)
        wanted = backward(grouped(policy), torch.linspace(-2, 2, 80).reshape(1, 4, 5, 4))
        assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("make", [linear, grouped])
def test_layers_on_simulated_kernels_match_golden(make, on_card, monkeypatch):
    """The whole path but for XRT: buffers, arguments, batches, cores, ports, arrays and sources of random words."""
    runs = on_card(NOISY, models=simulated(NOISY)).runs
    shape = (2, 3, 7) if make is linear else (1, 4, 5, 4)
    compare_with_twin(f"{NOISY.mac}, bias=e5m2.rn", make, shape, monkeypatch)
    assert {run[0] for run in runs} == {"gemm:{gemm_1}", "gemm:{gemm_2}"}


def test_second_card_computes_gradients(on_card):
    """Each folder programs the card of its number; the stub has card 0 only."""
    on_card(PLAIN, Tile("gemm", 1, "e4m3*e5m2+e6m5.rn", Tiling(2, 2, 2)))
    layer = nn.Linear(7, 5, bias=False, policy=f"{PLAIN.mac}, input_gradient=e4m3*e5m2+e6m5.rn, device=card")
    y = layer(torch.ones(2, 7).requires_grad_())
    with pytest.raises(ToolError, match="XRT did not open card 1"):
        y.sum().backward()


def test_card_rejects_bad_requests(on_card, monkeypatch, tmp_path):
    x, layer = torch.ones(2, 7), nn.Linear(7, 5, bias=False, policy="e5m2*e5m2+e6m5.rn, device=card")
    monkeypatch.delenv(card.SETTING, raising=False)
    with pytest.raises(ValueError, match=r"^device card needs kernels: set HALFULP_CARD to the folder"):
        layer(x)
    monkeypatch.setenv(card.SETTING, str(tmp_path))
    with pytest.raises(ValueError, match=r"has no host\.py; expected a folder that halfulp tile wrote$"):
        layer(x)
    for text, said in (("1 +", "invalid syntax"), ("", "it has no TILE")):
        (tmp_path / HOST).write_text(text)
        with pytest.raises(ValueError, match=f"not the host program of halfulp tile: {said}"):
            layer(x)
    on_card(NOISY, xclbin="other.xclbin")
    with pytest.raises(
        ValueError,
        match=r"^the kernels of HALFULP_CARD compute e5m2\*e5m2\+e6m5\.sr10@lfsr16:7, not e5m2\*e5m2\+e6m5\.rn; ",
    ):
        layer(x)
    noisy = nn.Linear(7, 5, bias=False, policy=f"{NOISY.mac}, device=card")
    with pytest.raises(ValueError, match=r"has no bitstream gemm\.hw\.xclbin; link it there with make$"):
        noisy(x)
    monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
    with pytest.raises(ValueError, match=r"bitstream gemm\.hw_emu\.xclbin"):
        noisy(x)


def test_card_reports_missing_xrt_and_unknown_device(on_card, monkeypatch):
    on_card(PLAIN)
    layer = nn.Linear(7, 5, bias=False, policy=f"{PLAIN.mac}, device=card")
    monkeypatch.setitem(sys.modules, "pyxrt", None)
    with pytest.raises(ToolError, match="no Python module pyxrt: install XRT"):
        layer(torch.ones(2, 7))
    monkeypatch.setitem(product.DEVICES, card.DEVICE, None)
    with pytest.raises(ValueError, match=r"^unknown device card; import halfulp\.fpga\.kernel\.card first$"):
        layer(torch.ones(2, 7))


def test_empty_products_on_card_give_start(on_card):
    on_card(PLAIN)
    codes = golden.encode(torch.tensor([[1.5, -0.25]]), "e6m5")
    none = torch.zeros(3, 0, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64)
    assert torch.equal(card.product(*none, PLAIN.spec, codes, 0), codes.expand(3, 2))
    assert card.product(none[0].T, none[1].T, PLAIN.spec, None, 0).shape == (0, 0)
