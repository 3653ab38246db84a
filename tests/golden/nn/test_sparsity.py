"""N:M sparsity of policies: masks by hand, products of pruned operands, gradients of dense tensors, updates."""

import math

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.sparsity import _SCORES

MAC = "e5m2*e4m3fn+e6m5.rn"
FP = "fp32*fp32+fp32.rn"


def _sixteenths(*shape):
    """Return random multiples of 1/16, whose sums of products are exact in float32."""
    return torch.randint(-64, 65, shape) / 16


@pytest.fixture
def scores():
    before = dict(_SCORES)
    yield
    _SCORES.clear()
    _SCORES.update(before)


def kept_by_hand(row, n, m):
    """Places of the numbers of a list that stay, in plain Python."""
    kept = []
    for first in range(0, len(row), m):
        group = range(first, min(first + m, len(row)))
        # NaN before all numbers; the first of equal magnitudes.
        ranked = sorted(group, key=lambda place: (not math.isnan(row[place]), -abs(row[place]), place))
        kept += ranked[:n]
    return kept


def pruned_by_hand(rows, n, m):
    found = torch.zeros_like(rows)
    for row, values in zip(found, rows, strict=True):
        for place in kept_by_hand(values.tolist(), n, m):
            row[place] = values[place]
    return found


@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 4), (4, 8), (3, 5), (1, 1), (2, 100)])
@pytest.mark.parametrize("length", [1, 4, 8, 11])
def test_mask_matches_groups_by_hand(n, m, length):
    rows = torch.randint(-3, 4, (20, length), generator=torch.Generator().manual_seed(length)).float()
    rows[0, 0] = math.nan
    rows[1, -1] = -math.inf
    mask = nn.Sparsity(n, m).mask(rows, (1,))
    assert torch.equal(torch.where(mask, rows, 0).nan_to_num(9), pruned_by_hand(rows, n, m).nan_to_num(9))
    # As many as possible stay in each group, though they are zero.
    assert mask.sum(1).tolist() == [sum(min(n, length - first, m) for first in range(0, length, m))] * 20


def test_mask_runs_along_dimensions_and_groups_of_channels():
    x = torch.randn(3, 10, 4, 5)
    by_group = nn.Sparsity(1, 4).mask(x, (1,), 2)
    for image in range(3):
        for group in range(2):
            part = x[image, 5 * group : 5 * group + 5].flatten(1).T
            wanted = pruned_by_hand(part, 1, 4) != 0
            assert torch.equal(by_group[image, 5 * group : 5 * group + 5].flatten(1).T, wanted)
    along = nn.Sparsity(2, 4).mask(x, (0, 2, 3))
    rows = x.transpose(0, 1).flatten(1)
    assert torch.equal(along.transpose(0, 1).flatten(1), pruned_by_hand(rows, 2, 4) != 0)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_mask_of_no_elements_is_empty(shape):
    assert nn.Sparsity(2, 4).mask(torch.zeros(shape), (1,)).shape == shape


def linear(policy, w, x, gradient, emulated):
    layer = tnn.Linear(*reversed(w.shape), bias=False)
    with torch.no_grad():
        layer.weight.copy_(w)
    x = x.clone().requires_grad_()
    if emulated:
        with golden.emulate(policy) as run:
            layer(x).backward(gradient)
            found = layer(x)
        report = run.report()
    else:
        layer = nn.convert(layer, policy).model
        found, report = layer(x), None
        found.backward(gradient)
    return [found.detach(), x.grad, layer.weight.grad], report


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("cast", ["2:4", "e3m2fn.rn 2:4"])
def test_products_equal_gemm_of_pruned_operands(cast, emulated):
    torch.manual_seed(1)
    w, x, gradient = torch.randn(6, 11), torch.randn(9, 11), torch.randn(9, 6)
    policy = f"{MAC}, weights={cast}, gradients=2:4"
    found, report = linear(policy, w, x, gradient, emulated)

    def gemm(a, b):
        return golden.decode(golden.gemm(a, b, MAC), "e6m5").float()

    sparse = pruned_by_hand(w, 2, 4)
    if "e3m2" in cast:
        sparse = golden.decode(golden.encode(sparse, "e3m2fn"), "e3m2fn").float()
    along_outputs, along_batch = pruned_by_hand(gradient, 2, 4), pruned_by_hand(gradient.T, 2, 4)
    assert torch.equal(found[0], gemm(x, sparse.T))
    assert torch.equal(found[1], gemm(along_outputs, sparse))
    # Masked weights have gradients as well.
    assert torch.equal(found[2], gemm(along_batch, x))
    assert (found[2][sparse == 0] != 0).any()
    if report is not None:
        rows = {row.phase: row for row in report.rows if row.kind == "product"}
        of_weights, of_gradient = int((sparse == 0).sum()), int((along_outputs == 0).sum())
        assert rows["forward"].pruned == of_weights
        assert rows["input_gradient"].pruned == of_weights + of_gradient
        assert rows["forward"].arithmetic == f"{MAC}, weights={nn.Cast.parse(cast)}"


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("emulated", [False, True])
def test_convolution_prunes_along_channels(emulated):
    torch.manual_seed(2)
    layer = tnn.Conv2d(10, 6, 3, padding=1, groups=2, bias=False)
    x, gradient = _sixteenths(2, 10, 5, 5), _sixteenths(2, 6, 5, 5)
    with torch.no_grad():
        layer.weight.copy_(_sixteenths(*layer.weight.shape))
    policy = f"{FP}, weights=1:4, activations=2:4, gradients=1:2"

    def step(model, x, gradient):
        x = x.clone().requires_grad_()
        model.zero_grad()
        y = model(x)
        y.backward(gradient)
        return y.detach(), x.grad, model.weight.grad

    def pruned(values, n, m):
        return values * nn.Sparsity(n, m).mask(values, (1,), 2 if len(values) == 2 else 1)

    if emulated:
        with golden.emulate(policy):
            found = step(layer, x, gradient)
    else:
        found = step(nn.convert(layer, policy).model, x, gradient)
    sparse = tnn.Conv2d(10, 6, 3, padding=1, groups=2, bias=False)
    with torch.no_grad():
        sparse.weight.copy_(pruned(layer.weight, 1, 4))
    sparse_x = pruned(x, 2, 4)
    by_batch = gradient * nn.Sparsity(1, 2).mask(gradient, (0, 2, 3))
    wanted = step(sparse, sparse_x, pruned(gradient, 1, 2))
    wanted = *wanted[:2], step(sparse, sparse_x, by_batch)[2]
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    assert (found[2] != 0).all()


def test_transposed_convolution_prunes_along_its_sums():
    torch.manual_seed(3)
    layer, x = tnn.ConvTranspose1d(4, 3, 2, bias=False), _sixteenths(2, 4, 5)
    with torch.no_grad():
        layer.weight.copy_(_sixteenths(4, 3, 2))
    with golden.emulate(f"{FP}, weights=1:4"):
        found = layer(x)
    # The first dimension is summed.
    mask = nn.Sparsity(1, 4).mask(layer.weight, (0,))
    assert torch.equal(found, torch.conv_transpose1d(x, layer.weight * mask))


def test_masks_follow_the_weights():
    layer = nn.Linear(4, 1, bias=False, policy=f"{FP}, weights=1:4")
    for largest in (0, 2):
        with torch.no_grad():
            layer.weight.fill_(1)
            layer.weight[0, largest] = 3
        assert layer(torch.eye(4)).flatten().nonzero().tolist() == [[largest]]
    assert layer.weight.count_nonzero() == 4


def test_products_in_torch_take_pruned_operands():
    w, x = _sixteenths(5, 8), _sixteenths(3, 8)
    for emulated in (False, True):
        found, _ = linear("fp32, weights=2:4", w, x, torch.ones(3, 5), emulated)
        assert torch.equal(found[0], x @ pruned_by_hand(w, 2, 4).T)


def test_registered_score_decides_the_mask(scores):
    nn.register_score("smallest", lambda values: -values.abs())
    layer = nn.Linear(4, 1, bias=False, policy=f"{FP}, weights=1:4.smallest")
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, -0.5, 1.0, 2.0]]))
    assert layer(torch.eye(4)).flatten().tolist() == [0, -0.5, 0, 0]
    # NaN scores stay, and a score of minus infinity is no worse than padding.
    nn.register_score("odd", lambda values: torch.where(values > 2, math.nan, -math.inf))
    mask = nn.Sparsity(2, 4, "odd").mask(torch.tensor([[1.0, 1, 3, 1, 1]]), (1,))
    assert mask.tolist() == [[True, False, True, False, True]]
    nn.register_score("rows", lambda values: values.sum(-1))
    with pytest.raises(ValueError, match="shape"):
        nn.Sparsity(2, 4, "rows").mask(torch.ones(2, 4), (1,))
    nn.register_score("number", lambda values: 3)
    with pytest.raises(TypeError, match="tensor"):
        nn.Sparsity(2, 4, "number").mask(torch.ones(2, 4), (1,))


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: nn.Cast.parse("0:4"), ValueError, "N of N:M"),
        (lambda: nn.Cast.parse("5:4"), ValueError, "1 to 4"),
        (lambda: nn.Cast.parse("2:0"), ValueError, "M of N:M"),
        (lambda: nn.Cast.parse("e5m2 2:4 1:2"), ValueError, "two"),
        (lambda: nn.Cast.parse("2:4:8"), ValueError, "2:4:8"),
        (lambda: nn.Cast.parse("-2:4"), ValueError, "-2:4"),
        (lambda: nn.Cast.parse("2:4.unknown"), ValueError, "unknown"),
        (lambda: nn.Sparsity(2.0, 4), TypeError, "int"),
        (lambda: nn.Cast(sparsity="2:4"), TypeError, "Sparsity"),
        (lambda: nn.Policy.parse(f"{MAC}, bias=2:4"), ValueError, "bias"),
        (lambda: nn.Policy.parse(f"{MAC}, elementwise=bf16.rn 2:4"), ValueError, "elementwise"),
        (lambda: nn.Policy.parse(f"{MAC}, reductions=bf16.rn 2:4 pairwise"), ValueError, "reductions"),
        (lambda: nn.Quantize("e5m2.rn 2:4"), ValueError, "sparsity"),
        (lambda: nn.register_score("magnitude", torch.abs), ValueError, "magnitude"),
        (lambda: nn.register_score("a b", torch.abs), ValueError, "identifier"),
        (lambda: nn.register_score("a", 3), TypeError, "function"),
    ],
)
def test_sparsity_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error, match=keyword):
        make()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2:4", "rn 2:4"),
        ("2 : 4", "rn 2:4"),
        ("2:4 e4m3fn", "e4m3fn.rn 2:4"),
        ("int8 . sr3 @ plateau3 . sat 1:2", "int8.sr3@plateau3.sat 1:2"),
        ("codebook:nf4.rn 2:4.magnitude", "codebook:nf4.rn 2:4"),
    ],
)
def test_cast_with_sparsity_parse_and_str_are_inverse(text, canonical):
    if "codebook" in text:
        text, canonical = text.replace("codebook:", ""), canonical.replace("codebook:", "")
    cast = nn.Cast.parse(text)
    assert str(cast) == canonical
    assert nn.Cast.parse(canonical) == cast
    policy = nn.Policy.parse(f"{MAC}, weights={text}")
    assert nn.Policy.parse(str(policy)) == policy
    assert policy.weights == cast


def test_update_changes_largest_changes_only():
    torch.manual_seed(4)
    layer = tnn.Linear(8, 3)
    before, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    nn.WeightUpdate(optimizer, "2:4")
    layer.weight.grad, layer.bias.grad = torch.randn(3, 8), torch.ones(3)
    optimizer.step()
    wanted = before - 0.5 * pruned_by_hand(layer.weight.grad, 2, 4)
    assert torch.equal(layer.weight, wanted)
    assert torch.equal(layer.bias, bias - 0.5)


def test_counts_tell_pruned_from_lost_numbers():
    layer = nn.convert(tnn.Linear(8, 2, bias=False), f"{MAC}, weights=2:4").model
    with nn.Counts() as counts:
        layer(torch.randn(3, 8))
    row = counts.rows["Linear", "forward", "w"]
    assert (row["numbers"], row["pruned"], row["underflow"]) == (16, 8, 0)
    assert nn.Counts(counts.record).rows == counts.rows


@pytest.mark.slow
def test_compiled_sparse_model_gives_same_bits():
    torch.manual_seed(5)
    model = nn.convert(tnn.Sequential(tnn.Linear(8, 8), tnn.ReLU(), tnn.Linear(8, 2)), f"{MAC}, weights=2:4").model
    x = torch.randn(3, 8)
    assert torch.equal(torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x))
