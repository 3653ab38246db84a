"""Layers with products on a Verilated kernel."""

import itertools

import pytest
import torch

from halfulp import golden
from halfulp.fpga.kernel import layers as rtl
from halfulp.fpga.match import networks
from halfulp.golden import nn
from halfulp.golden.nn import product
from halfulp.hdl.specs import BlockMacSpec, MacSpec
from halfulp.lab.train import data
from tests.settings import EXHAUSTIVE

PLAIN = "e5m2*e5m2+e6m5.rn, bias=e5m2.rn"
NOISY = "e5m2*e5m2+e6m5.sr10@lfsr16, bias=e5m2.rn"

SHORT = "block(e2m3fn,4,e8m0fnu,floor)"
BLOCKS = f"{SHORT}*{SHORT}+e6m9.rn, bias=e8m5.rn"
NOISY_BLOCKS = f"{SHORT}*{SHORT}+e6m9.sr10@lfsr16 step=2, bias=e8m5.rn"


def on(device, monkeypatch):
    """Build layers with ``device``, and record the operands of each product."""
    made = []

    def recorded(*given):
        made.append(given)
        return device(*given)

    monkeypatch.setitem(product.DEVICES, "rtl", recorded)
    return made


def backward(layer, x):
    """Return the result and all gradients."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    return [y.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda policy: nn.Linear(7, 5, policy=policy, seed=3), (2, 3, 7)),
        (lambda policy: nn.Conv2d(4, 6, 3, padding=1, groups=2, policy=policy, seed=3), (1, 4, 5, 4)),
    ],
)
@pytest.mark.parametrize("policy", [PLAIN, NOISY, BLOCKS, NOISY_BLOCKS])
def test_rtl_layers_match_golden(policy, make, shape, monkeypatch):
    """Forward and backward with bias, on the kernel; a second run uses other random words."""
    torch.manual_seed(6)
    x = torch.randn(shape)
    layers = [make(f"{policy}, device=rtl") for _ in range(2)] + [make(policy)]
    for layer in layers:
        layer.load_state_dict(layers[0].state_dict())
    made = on(rtl.product, monkeypatch)
    hardware = [backward(layers[0], x) for _ in range(2)]
    assert len(made) == 8
    on(rtl.expected, monkeypatch)
    twin = [backward(layers[1], x) for _ in range(2)]
    for found, wanted in zip(itertools.chain(*hardware), itertools.chain(*twin), strict=True):
        assert torch.equal(found, wanted)
        assert found.count_nonzero() > found.numel() / 2
    if policy in (PLAIN, BLOCKS):
        assert all(torch.equal(*pair) for pair in zip(hardware[0], backward(layers[2], x), strict=True))
    else:
        assert not torch.equal(hardware[0][0], hardware[1][0])


@pytest.mark.slow
def test_rtl_layers_with_zero_points_match_golden():
    torch.manual_seed(7)
    policy = "forward=uint8*int8+int32.rn, activations=rn scale=tensor.real.affine, weights=rn scale=channel.real"
    layer = nn.Linear(7, 5, bias=False, policy=f"{policy}, device=rtl")
    twin = nn.Linear(7, 5, bias=False, policy=policy)
    twin.load_state_dict(layer.state_dict())
    x = torch.randn(3, 7, dtype=torch.float64)
    assert layer.double()(x).equal(twin.double()(x))


@pytest.mark.slow
def test_rtl_words_match_tiled_words():
    """Words depend on the key, in a batch and after a row of start values."""
    mac = MacSpec.parse(NOISY.partition(",")[0])
    generator = torch.Generator().manual_seed(2)
    a = torch.randint(1, 100, (3, 5, 4), generator=generator)
    b = torch.randint(1, 100, (4, 3), generator=generator)
    for key in (0, 7, 7 + 2 * rtl.BEGINNINGS):
        wanted = golden.gemm(a, b, mac, tiling=rtl.TILING, first_step=key % rtl.BEGINNINGS)
        assert torch.equal(rtl.product(a, b, mac, None, key), wanted)
    bias = torch.tensor([1.5, -0.25, 64.0])
    row, start = golden.encode(bias, mac.b), golden.encode(bias, mac.o)
    wide = torch.cat([torch.full((3, 5, 1), mac.a.encode(1)), a], -1), torch.cat([row.unsqueeze(0), b])
    wanted = golden.gemm(*wide, mac, tiling=rtl.TILING, first_step=5)
    assert torch.equal(rtl.product(a, b, mac, start, 5), wanted)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4", "mxint8", "nvfp4", "msfp12"])
def test_block_holds_each_bias_as_sum_of_elements(name):
    mac = BlockMacSpec.parse(f"{name}*{name}+fp32.rn")
    codes = torch.arange(1 << 12)
    biases = golden.decode(codes, "e8m3")
    # nvfp4 has scales from 2^-9 to 448.
    biases = biases[(biases.abs() > 2.0**-4) & (biases.abs() < 2.0**9)]
    start = golden.encode(biases, "fp32").expand(2, -1)
    none = torch.zeros(2, 0), torch.zeros(0, len(biases))
    a, b = (golden.quantize_blocks(x, mac.a, dim=dim) for x, dim in zip(none, (-1, -2), strict=True))
    a, b, _ = rtl._simulated(mac).operands(a, b, start)
    assert torch.equal(golden.gemm(a, b, mac), start)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_rtl_empty_products_give_start():
    for policy in (PLAIN, NOISY):
        for sizes, shape in (((0, 3), (2, 0)), ((3, 2), (0, 3))):
            layers = [nn.Linear(*sizes, policy=f"{policy}{device}", seed=1) for device in ("", ", device=rtl")]
            layers[1].load_state_dict(layers[0].state_dict())
            assert torch.equal(*(layer(torch.zeros(shape)) for layer in layers))


def test_rtl_device_rejects_bad_policies(monkeypatch):
    x = torch.ones(1, 3)
    with pytest.raises(ValueError, match="unknown device 'fpga'"):
        nn.Policy.parse(f"{PLAIN}, device=fpga")
    noisy = nn.Linear(3, 2, policy="e5m2*e5m2+e6m5.sr10, device=rtl")
    with pytest.raises(ValueError, match="random source"):
        noisy(x)
    large = nn.Linear(1 << 11, 1 << 10, bias=False, policy="e5m2*e5m2+e6m5.rn, device=rtl")
    with pytest.raises(
        ValueError, match=r"^1 products of 99 x 2048 x 1024 are 52,428,800 steps of an array of 2 x 2; "
    ):
        large(torch.ones(99, 1 << 11))
    torch.manual_seed(1)
    fine = nn.Linear(3, 2, policy="e5m2*e5m2+e6m5.rn, device=rtl")
    with pytest.raises(ValueError, match="device rtl adds biases as products with 1"):
        fine(x)
    narrow = nn.Linear(3, 2, policy="mxfp4*mxfp4+fp32, device=rtl")
    with pytest.raises(ValueError, match=r"bias=e8m3\.rn"):
        narrow(x)
    monkeypatch.setitem(product.DEVICES, "rtl", None)
    with pytest.raises(ValueError, match="unknown device rtl; import"):
        fine(x)


def test_policy_text_names_device():
    policy = nn.Policy.parse(f"{PLAIN}, device=rtl")
    assert policy.device == "rtl"
    assert nn.Policy.parse(str(policy)) == policy
    assert str(policy) == f"{PLAIN}, device=rtl"


def a_network_runs_on_hardware(policy, monkeypatch):
    """Train LeNet-5 for a few steps in its arithmetic, and run one new image on the kernel."""
    torch.manual_seed(4)
    images = data.mnist(None)
    pixels, labels = (part[:64] for part in images.train)
    network = nn.convert(networks.lenet5(), policy, seed=1).model
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(pixels), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    image = images.test[0][:1]
    twins = [nn.convert(networks.lenet5(), f"{policy}{device}", seed=1).model for device in ("", *[", device=rtl"] * 2)]
    for twin in twins:
        twin.load_state_dict(network.state_dict())
    made = on(rtl.product, monkeypatch)
    with torch.no_grad():
        found = twins[1](image)
        assert len(made) == 5
        on(rtl.expected, monkeypatch)
        assert torch.equal(found, twins[2](image))
        if policy == PLAIN:
            assert torch.equal(found, twins[0](image))
    assert len(found.unique()) > 5


if EXHAUSTIVE:
    test_rtl_device_runs_network = pytest.mark.parametrize("policy", [PLAIN, NOISY])(a_network_runs_on_hardware)
