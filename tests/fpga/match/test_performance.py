"""Performance models: traced products, the published table, and the cycles of the kernel."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from halfulp.boards.catalogue import BOARDS
from halfulp.fpga.match.networks import lenet5, resnet20, smallgpt
from halfulp.fpga.match.performance import Exact, Published, best, cycles_of, total
from halfulp.fpga.match.products import Gemm, trace
from halfulp.fpga.match.published import TABLE_III, TABLE_IV, clock_of, clocks
from halfulp.fpga.match.search import fastest, published
from halfulp.fpga.match.workload import workload
from halfulp.golden import nn as halfulp_nn
from halfulp.hdl.specs import Build, MacSpec
from halfulp.units.systolic import Chain, Grid

# Products of torch models --------------------------------------------------------------------------------------------


def shapes(model, *inputs, **options):
    return [(gemm.n, gemm.k, gemm.m) for gemm in trace(model, *inputs, **options)]


def test_trace_of_lenet5_training_step():
    """The products by im2col, without the gradient of the images."""
    forward = [(50_176, 25, 6), (6_400, 150, 16), (64, 400, 120), (64, 120, 84), (64, 84, 10)]
    gradients = [(25, 50_176, 6)]
    for n, k, m in forward[1:]:
        gradients += [(n, m, k), (k, n, m)]
    found = trace(lenet5(), torch.zeros(64, 1, 28, 28))
    assert [(gemm.n, gemm.k, gemm.m) for gemm in found if gemm.phase == "forward"] == forward
    # The same product or its transpose.
    backward = [gemm for gemm in found if gemm.phase == "backward"]
    assert sorted((gemm.k, *sorted((gemm.n, gemm.m))) for gemm in backward) == sorted(
        (k, *sorted((n, m))) for n, k, m in gradients
    )
    assert shapes(lenet5(), torch.zeros(64, 1, 28, 28), training=False) == forward


def test_trace_does_not_change_model():
    model = resnet20().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert len(trace(model, torch.zeros(2, 3, 32, 32))) == 3 * 20 - 1
    assert not any(module.training for module in model.modules())
    assert all(parameter.grad is None and parameter.device.type == "cpu" for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_trace_counts_attention_products():
    found = Counter(trace(smallgpt(65), torch.zeros(32, 64, dtype=torch.long)))
    # Scores and weighted sums: batches of 32 examples and 4 heads in 3 layers; the backward pass has two gradients.
    heads = {"phase": "forward", "batch": 32 * 4}
    assert found[Gemm(64, 16, 64, **heads)] == found[Gemm(64, 64, 16, **heads)] == 3
    forward = {gemm: count for gemm, count in found.items() if gemm.phase == "forward"}
    assert sum(count * gemm.batch for gemm, count in forward.items()) == 3 * (4 + 2 * 32 * 4) + 1


@pytest.mark.parametrize(
    ("layer", "shape", "forward", "groups"),
    [
        (nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=2), (5, 4, 9, 8), (5 * 4 * 4, 24, 6), 1),
        (nn.Conv2d(4, 6, 3, groups=2), (5, 4, 6, 6), (5 * 16, 18, 3), 2),
        (nn.Conv1d(3, 7, 3), (2, 3, 10), (2 * 8, 9, 7), 1),
        (nn.ConvTranspose2d(4, 6, 3, stride=2), (5, 4, 7, 6), (5 * 42, 4, 54), 1),
        (nn.Linear(9, 4), (5, 3, 9), (15, 9, 4), 1),
    ],
)
def test_trace_counts_macs_of_layers(layer, shape, forward, groups):
    """Forward products have the defined number of multiply-accumulates, and each gradient has the same number."""
    x = torch.zeros(shape)
    found = trace(nn.Sequential(layer), x)
    n, k, m = forward
    assert [(g.n, g.k, g.m, g.batch) for g in found if g.phase == "forward"] == [(*forward, groups)]
    assert [(g.n, g.k, g.m, g.batch) for g in found if g.phase == "backward"] in ([(k, n, m, groups)], [(m, n, k, 1)])
    # The second layer also needs the gradient of its input.
    found = trace(nn.Sequential(Scale(), layer), x)
    assert sum(g.macs for g in found if g.phase == "backward") == 2 * groups * math.prod(forward)


class Scale(nn.Module):
    """Learned scale before a layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * x


def test_trace_follows_shared_parameters():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    # Each of the two uses has a gradient of the weights, and the second also one of its input.
    assert shapes(model, torch.zeros(3, 4)) == [(3, 4, 4), (3, 4, 4), (4, 3, 4), (3, 4, 4), (4, 3, 4)]


class Asks(nn.Module):
    """Model that raises an exception."""

    def forward(self, x):
        return x.missing @ x


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.ReLU(), "no parameter with a gradient"),
        (nn.BatchNorm1d(4), "BatchNorm1d computes no matrix product"),
        (Asks(), "Asks cannot be traced"),
        (nn.Linear(5, 4), "Linear cannot be traced"),
    ],
)
def test_trace_rejects_unsupported_models(model, sentence):
    with pytest.raises(ValueError, match=sentence):
        trace(model, torch.ones(3, 4))


# The published model -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "places", "otherwise"),
    [("lenet5", 4, {4}), ("vgg16", 2, {2, 3, 8}), ("resnet20", 2, {10}), ("resnet50", 2, set())],
)
def test_published_model_matches_table_iv(name, places, otherwise):
    """Traced models give the printed digits of Table IV, with printed clocks or clocks within 0.2 % of them."""
    products = workload(name).gemms
    for row in TABLE_IV:
        printed = getattr(row, name)
        seconds = total(Published(8, 8, row.cores, row.mhz), products).seconds
        assert (f"{seconds:.{places}f}" != printed) == (row.cores in otherwise)
        # The nearest time that is printed so.
        half = 0.5 * 10**-places
        nearest = min(max(seconds, float(printed) - half), float(printed) + half)
        assert abs(nearest / seconds - 1) < 0.002


FASTEST = {
    "lenet5": (8, 8, 5),
    "vgg16": (32, 32, 2),
    "resnet20": (32, 32, 2),
    "resnet50": (32, 32, 2),
    "nanogpt": (32, 16, 4),
}
"""Fastest published arrays of each network; those of Nano-GPT are published."""


@pytest.mark.parametrize("name", FASTEST)
def test_published_search_takes_the_fastest_of_all_sizes(name):
    load = workload(name)
    options, _ = published(BOARDS["u55c"], load, MacSpec.parse("e5m2*e5m2+e6m5.sr10"))
    chosen = fastest(options)
    assert (chosen.n, chosen.m, chosen.cores) == FASTEST[name]
    assert len(options) == len(clocks())


def test_published_model_pads_to_packs():
    model = Published(8, 8, 10, 200.0)
    assert model.pack == 64
    assert model.padded(Gemm(1, 1, 1), 3) == Gemm(192, 64, 64)
    assert model.padded(Gemm(65, 65, 65), 1) == Gemm(128, 128, 128)
    assert Published(32, 32, 1, 200.0).padded(Gemm(1, 1, 65), 1).m == 1024
    assert Published(8, 8, 1, 200.0, bits=16).pack == 32
    run = model.run(Gemm(64, 64, 64), 1)
    assert run.seconds == pytest.approx(64 * 64 * 127 / (2 * 64 * 200e6))
    assert run.transfer == pytest.approx((64 * 128 + 64 * 64) / 15.75e9)
    assert Published(8, 8, 1, 200.0, bits=32).run(Gemm(16, 16, 64), 1).transfer == pytest.approx(
        (16 * 80 + 16 * 64) * 4 / 15.75e9
    )


def test_published_model_takes_faster_of_product_and_transpose():
    model = Published(8, 8, 4, 100.0)
    # 400 rows are 7 packs, two per core; 120 columns are two tiles: 4 units of time. The transpose takes 7.
    for gemm in (Gemm(400, 64, 120), Gemm(120, 64, 400)):
        assert (best(model, gemm).gemm.n, best(model, gemm).cores) == (400, 4)
    # Cores do not share a product of a batch.
    assert (
        best(model, Gemm(256, 64, 256, batch=2)).seconds
        == best(replace(model, cores=2), Gemm(256, 64, 256, batch=2)).seconds
    )
    # More cores than packs give no speedup.
    assert best(model, Gemm(64, 64, 64)).cores == 1
    both = total(model, [Gemm(400, 64, 120), Gemm(64, 64, 64), Gemm(64, 64, 64)])
    assert both.macs == 400 * 64 * 120 + 2 * 64**3
    assert both.seconds == pytest.approx(
        best(model, Gemm(400, 64, 120)).seconds + 2 * best(model, Gemm(64, 64, 64)).seconds
    )
    assert both.gmacs == pytest.approx(both.macs / both.seconds / 1e9)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ((0, 8, 1, 100.0), "n is 0"),
        ((8, 8, 0, 100.0), "cores is 0"),
        ((8, 8, 1, 100.0, 12), "elements of 12 bits"),
    ],
)
def test_published_model_rejects_bad_parameters(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        Published(*parameters)


def test_published_clocks_match_tables():
    assert clocks()[8, 8, 10] == 196.2
    assert len(clocks()) == len(TABLE_III) + len(TABLE_IV) - 1
    assert clock_of(1) == clock_of(14.12) == 320.9
    assert clock_of(100) is None
    found = [clock_of(lut / 10) for lut in range(10, 733)]
    assert found == sorted(found, reverse=True)
    for row in TABLE_III:
        # A design never has a higher clock than a smaller one.
        assert clock_of(row.lut) == min(other.mhz for other in TABLE_III if other.lut <= row.lut)


# The kernel's own cycles ---------------------------------------------------------------------------------------------

CORES = {
    "chain": Chain(mac="e5m2*e5m2+e6m5.sr10@lfsr16", n=3, m=2, depth=5, build=Build(pipeline=2)),
    "deep": Chain(mac="e5m2*e5m2+e6m5.rn", n=2, m=2),
    "exact": Chain(mac="posit8*posit8+exact=posit8.rn", n=2, m=1, depth=3),
    "grid": Grid(mac="e5m2*e5m2+e6m5.rn", n=3, m=4, build=Build(pipeline=1)),
    "deep grid": Grid(mac="e5m2*e5m2+e6m5.rn", n=3, m=2, depth=4, build=Build(pipeline=3)),
}


@pytest.mark.parametrize("name", CORES)
def test_exact_model_extrapolates_large_products(name):
    core = CORES[name]
    dice = random.Random(name)
    for _ in range(40):
        n, k = dice.randint(1, 15 * core.n), dice.choice([1, 2, 3, 17, 64])
        m = dice.randint(1, 9 * core.tiling.columns)
        assert cycles_of(core, n, k, m) == core.cycles(n, k, m), (n, k, m)


def test_exact_model_shares_rows_in_whole_tiles():
    core = CORES["chain"]
    model = Exact(core, 4, 200.0, (8, 16, 32))
    # 20 rows are 7 tiles; one core gets two.
    assert [model.share(20, cores) for cores in (1, 2, 3, 4)] == [20, 12, 9, 6]
    run = model.run(Gemm(20, 30, 40), 4)
    assert run.seconds == pytest.approx(core.cycles(6, 30, 40) / 200e6)
    assert run.transfer == pytest.approx((20 * 30 + 30 * 40 * 2 + 20 * 40 * 4) / 15.75e9)
    with pytest.raises(ValueError, match="cores is 0"):
        Exact(core, 0, 200.0)


@pytest.mark.parametrize("model", [Published(8, 8, 10, 200.0), Exact(CORES["chain"], 10, 200.0)])
def test_models_deal_products_of_a_batch_to_cores(model):
    one, batch = Gemm(64, 64, 64), Gemm(64, 64, 64, batch=24)
    whole = model.run(one, 1).seconds
    # Ten products at once take three turns; five at once, each on two cores, take five.
    shared = isinstance(model, Exact)
    expected = min(
        -(-24 // at_once) * best(replace(model, cores=10 // at_once if shared else 1), one).seconds
        for at_once in range(1, 11)
    )
    assert best(model, batch).seconds == pytest.approx(expected)
    assert best(model, batch).seconds <= 3 * whole
    assert best(model, batch).seconds < 24 * best(model, one).seconds
    assert best(model, batch).transfer == pytest.approx(24 * best(model, one).transfer)
    assert best(model, replace(batch, batch=1)) == best(model, one)
    assert batch.macs == 24 * one.macs


def test_exact_model_tries_the_best_number_of_cores():
    model = Exact(CORES["chain"], 10, 100.0)
    for n in range(1, 80):
        gemm = Gemm(n, 9, 25)
        (cores,) = model.counts(gemm, 10)
        every = {count: model.run(gemm, count).seconds for count in range(1, 11)}
        assert every[cores] == min(every.values())
        assert all(every[count] > every[cores] for count in range(1, cores))


class Masked(nn.Module):
    """Attention with an unused mask of ones, as in models of HuggingFace; the input is passed by name."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, *, x, attention_mask):
        if attention_mask.all():
            attention_mask = None
        mask = None if attention_mask is None else attention_mask == 0
        return {"out": self.layer(x, src_key_padding_mask=mask)}


@pytest.mark.parametrize("training", [True, False])
def test_trace_supports_models_with_control_flow_by_values(training):
    model, x = Masked(), torch.randn(3, 5, 8)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = Counter(trace(nn.Sequential(model.layer), x, training=training))
    for mask in (torch.ones(3, 5), torch.ones(3, 5).triu()):
        assert Counter(trace(model, x=x, attention_mask=mask, training=training)) == expected
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("policy", ["e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10@lfsr16, weights=e5m2.sr3"])
def test_trace_of_converted_model_matches_original(policy):
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 8), nn.Tanh()),
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0),
    )
    x = torch.randn(2, 3, 8, 8)
    found = halfulp_nn.convert(model, policy).model
    rounded = nn.Sequential(halfulp_nn.Quantize("e5m2.sr3", seed=1), found)
    before = str(rounded), {name: tensor.clone() for name, tensor in rounded.state_dict().items()}
    for training in (True, False):
        assert Counter(trace(rounded, x, training=training)) == Counter(trace(model, x, training=training))
    assert str(rounded) == before[0]
    assert all(torch.equal(tensor, before[1][name]) for name, tensor in rounded.state_dict().items())
    assert rounded(x).requires_grad
