"""Dot products with structured sparsity: selected activations, vectors of the test bench, refused parameters."""

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.golden.nn import Sparsity
from halfulp.hdl.formats import E5M2, FP32, Rounding
from halfulp.hdl.specs import UnitSpec
from halfulp.sim.bench import result_formats, run
from halfulp.sim.ports import Ports
from halfulp.sim.vectors import sampled
from halfulp.units import SparseDot
from tests.every_unit import exact_mismatches, rtl_mismatches

TEXTS = (
    "sparsedot2 e2m1*e2m1+e3m3.rd",
    "sparsedot4 e3m2fn*fxp2.2=posit8.sr3 sparsity=1:2",
    "sparsedot3 e4m3fn*e4m3fn+bf16.rn sparsity=3:7 order=sequential",
    "sparsedot2 e4m3fn*e5m2+fp32.rn sparsity=1:5",
    "sparsedot2 e4m3fn*e5m2+fp16.rn sparsity=2:3 order=aligned13.trunc",
)


@pytest.mark.parametrize("text", TEXTS)
def test_golden_matches_exact_for_any_indices(text):
    checks, failed = exact_mismatches(UnitSpec.parse(text), most_bits=4, count=256)
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", TEXTS[::-1])
def test_rtl_matches_golden_for_any_indices(text):
    spec = UnitSpec.parse(text)
    checks, failed = rtl_mismatches({spec: spec}, most_bits=4, count=1 << 14)
    assert not failed
    assert checks


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 2), (4, 8), (3, 5)])
def test_sparse_product_is_dense_product_with_pruned_weights(n, m):
    """The weights that a mask keeps, with their places, give the dot product with all weights after pruning."""
    generator = torch.Generator().manual_seed(n * m)
    groups, formats = 3, {"a": "e4m3fn", "b": "e5m2", "c": "fp32", "o": "fp32"}
    weights = torch.randn(50, groups * m, generator=generator)
    mask = Sparsity(n, m).mask(weights, (1,))
    w, x = golden.encode(weights, "e5m2"), golden.encode(torch.randn(weights.shape, generator=generator), "e4m3fn")
    start = golden.encode(torch.randn(50, generator=generator), "fp32")
    dense = golden.dot(x, torch.where(mask, w, 0), start, **formats)
    places = mask.nonzero()[:, 1].reshape(50, groups * n)
    kept = torch.take_along_dim(w, places, 1)
    found = golden.sparsedot(x, kept, places % m, start, sparsity=f"{n}:{m}", **formats)
    assert torch.equal(found, dense)


@pytest.mark.parametrize("mode", ["rn", "rd"])
def test_sum_of_stored_products_of_minus_zero_is_minus_zero(mode):
    """The only difference to dense sums of finite numbers, whose omitted products of +0 make the sum +0."""
    formats = {"a": "e5m2", "b": "e5m2", "c": "fp32", "o": "fp32", "rounding": mode}
    one, start = golden.encode(torch.tensor([1.0, 1.0]), "e5m2"), torch.tensor(1 << 31)
    minus, index = golden.encode(torch.tensor([-0.0]), "e5m2"), torch.tensor([0])
    stored = golden.sparsedot(one, minus, index, start, sparsity="1:2", **formats)
    assert stored == golden.dot(one[:1], minus, start, **formats) == 1 << 31
    assert golden.dot(one, torch.cat([minus, minus * 0]), start, **formats) == (1 << 31) * (mode == "rd")
    parameters = {"a": E5M2, "b": E5M2, "acc": FP32, "sparsity": "1:2", "step": 1, "rounding": Rounding.parse(mode)}
    step = golden.sparsemac(one, minus, index, start, **parameters)
    assert step == exact.sparsemac(one.tolist(), minus.tolist(), [0], 1 << 31, **parameters) == 1 << 31


def test_index_beyond_group_selects_last_activation():
    one, codes = golden.encode([1.0], "e4m3fn"), golden.encode([1.0, 2.0, 4.0], "e4m3fn")
    for index, value in ((0, 1.0), (2, 4.0), (3, 4.0)):
        found = golden.sparsedot(codes, one, torch.tensor([index]), a="e4m3fn", b="e4m3fn", o="fp16", sparsity="1:3")
        assert golden.decode(found, "fp16") == value


@pytest.mark.slow
def test_bench_detects_wrong_selection():
    class Swapped(SparseDot):
        """Selects the neighbour where the index of the second weight is 3."""

        def factors(self, m):
            (first, one), (second, other) = super().factors(m)
            from amaranth.hdl import Mux

            return [(first, one), (Mux(self.i1 == 3, self.a2.as_value(), second), other)]

    assert run(Swapped(k=2, a="e2m1", b="e2m1", o="e5m2"), limit=1 << 10).failed


def test_place_of_vectors_is_reverse_of_select():
    unit = SparseDot(k=4, a="e4m3fn", b="e5m2", o="fp32", c="fp32", sparsity="2:5")
    inputs, rng = Ports.inputs_of(unit), np.random.default_rng(0)
    assert list(inputs.operands) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "c"]
    operands = {name: rng.integers(0, 256, 1000, dtype=np.uint64) for name in inputs.operands}
    found = inputs.place(operands, rng)
    assert list(found) != list(unit.inputs)
    assert found.keys() == unit.inputs.keys()
    seen = inputs.select(found)
    apart = np.minimum(found["i0"], 4) != np.minimum(found["i1"], 4)
    assert 0.5 < apart.mean() < 1
    for name in ("a0", "a1"):
        assert np.array_equal(seen[name][apart], operands[name][apart])
    assert np.array_equal(seen["a1"], operands["a1"])
    assert np.array_equal(seen["c"], operands["c"])


def test_directed_vectors_cancel_selected_products():
    """Sums of two selected products cancel to zero more often than random ones do."""
    unit = SparseDot(k=2, a="e5m2", b="e5m2", o="fp16")
    codes = sampled(Ports.inputs_of(unit), result_formats(unit), 1 << 12, np.random.default_rng(1))
    seen = {
        name: torch.from_numpy(column.view(np.int64)) for name, column in Ports.inputs_of(unit).select(codes).items()
    }
    values = {name: golden.decode(column, "e5m2") for name, column in seen.items()}
    products = [values[f"a{place}"] * values[f"b{place}"] for place in (0, 1)]
    cancelled = (products[0] == -products[1]) & (products[0] != 0)
    assert cancelled.sum() > 20


def test_ports_have_documented_shapes():
    unit = SparseDot(k=4, a="e4m3fn", b="e5m2", o="fp32", sparsity="2:4")
    assert [len(unit.a), len(unit.b), len(unit.i)] == [8, 4, 4]
    assert list(unit.inputs) == [
        *(f"a{place}" for place in range(8)),
        *(f"{n}{place}" for n in "bi" for place in range(4)),
    ]
    assert unit.spec.picks[2].choices == ("a4", "a5", "a6", "a7")
    assert unit.inputs["i2"].width == 2


@pytest.mark.parametrize(
    ("sparsity", "k", "kind", "word"),
    [
        ("4:4", 4, ValueError, "4:4"),
        ("0:4", 4, ValueError, "0:4"),
        ("2:64", 4, ValueError, "2:64"),
        ("2", 4, ValueError, "'2'"),
        ("2:4.own", 4, ValueError, "own"),
        (0.5, 4, TypeError, "float"),
        ("2:4", 3, ValueError, "multiple"),
        ("1:32", 64, ValueError, "2048"),
    ],
)
def test_sparsedot_rejects_parameter(sparsity, k, kind, word):
    with pytest.raises(kind, match=word):
        SparseDot(k=k, a="e4m3fn", b="e4m3fn", o="fp16", sparsity=sparsity)


def test_golden_sparsedot_rejects_shapes_and_indices():
    x, y = torch.zeros(4, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    formats = {"a": "e4m3fn", "b": "e4m3fn", "o": "fp16"}
    with pytest.raises(ValueError, match="shape"):
        golden.sparsedot(x[:3], y, y, **formats)
    with pytest.raises(ValueError, match="shape"):
        golden.sparsedot(x, y, y[:1], **formats)
    with pytest.raises(ValueError, match="index"):
        golden.sparsedot(x, y, y + 4, **formats)
    with pytest.raises(TypeError, match="index"):
        golden.sparsedot(x, y, [0, 1], **formats)
