"""Multiply-accumulates with structured sparsity: steps and sequences against exact fractions, and the RTL."""

import pytest
import torch

from halfulp import golden
from halfulp.golden.nn import Sparsity
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import SparseMacSpec, UnitSpec, parse_cell
from halfulp.sim.bench import run
from halfulp.units import SparseMac


@pytest.mark.slow
def test_bench_detects_wrong_multiplexer():
    class Swapped(SparseMac):
        """Selects the neighbour where the index of the second weight is 3."""

        def term(self, m):
            self.i = [self.i[0], self.i[1] ^ (self.i[1] == 3)]
            return super().term(m)

    assert run(Swapped(a="e2m1", b="e2m1", acc="e5m2"), limit=1 << 10).failed


@pytest.mark.parametrize(("n", "m", "step"), [(2, 4, 0), (1, 2, 0), (4, 8, 8), (3, 5, 6)])
def test_steps_are_dot_products_with_pruned_weights(n, m, step):
    """A step adds the dot product of the dense weights, of which all but N of each M are zero."""
    generator = torch.Generator().manual_seed(n * m)
    formats, k = {"a": "e4m3fn", "b": "e5m2"}, (step or n) // n * m
    weights = torch.randn(50, k, generator=generator)
    mask = Sparsity(n, m).mask(weights, (1,))
    w, x = golden.encode(weights, "e5m2"), golden.encode(torch.randn(50, k, generator=generator), "e4m3fn")
    start = golden.encode(torch.randn(50, generator=generator), "fp32")
    dense = golden.dot(x, torch.where(mask, w, 0), start, **formats, c="fp32", o="fp32")
    places = mask.nonzero()[:, 1].reshape(50, -1)
    kept = torch.take_along_dim(w, places, 1)
    how = {"acc": "fp32", "sparsity": f"{n}:{m}", "step": step}
    assert torch.equal(golden.sparsemac(x, kept, places % m, start, **formats, **how), dense)


def test_description_has_documented_defaults_and_entries():
    spec = UnitSpec.parse("sparsemac e4m3fn*e5m2+fp32 sparsity=2:5 step=4")
    assert (spec.k, spec.activations, spec.index_bits, spec.group) == (4, 10, 3, (2, 5))
    assert list(spec.entries["a"]) == [f"a{place}" for place in range(10)]
    assert list(spec.entries["b"]) == [f"{name}{place}" for name in "bi" for place in range(4)]
    assert spec.entries["b"]["i3"] == parse("ufxp3.0")
    assert (spec.entry_bits("a"), spec.entry_bits("b")) == (80, 44)
    assert [spec.steps(k) for k in (0, 1, 10, 11)] == [0, 1, 1, 2]
    assert parse_cell(spec.expression) == spec
    assert SparseMacSpec.filled(parse("e5m2")) == UnitSpec.parse("sparsemac e5m2*e5m2+e6m5.rn")
    unit = SparseMac.of(spec)
    assert spec.picks[2].choices == ("a5", "a6", "a7", "a8", "a9")
    assert list(unit.inputs)[-3:] == ["c", "load", "clear"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("sparsemac e4m3fn*e4m3fn+fp32 sparsity=4:4", "4:4"),
        ("sparsemac e4m3fn*e4m3fn+fp32 step=3", "multiple of 2"),
        ("sparsemac e4m3fn*e4m3fn+fp32 step=257", "0 to 256"),
        ("sparsemac e4m3fn*e4m3fn+fp32 sparsity=1:32 step=64", "2048"),
        ("sparsemac e4m3fn*e4m3fn+fp16.exact", "2 products"),
        ("sparsemac e4m3fn*e4m3fn+fp16=fp32", "must be fp16"),
        ("sparsemac bf16x2*e4m3fn+fp32", "compound"),
    ],
)
def test_sparsemac_rejects_description(text, word):
    with pytest.raises(ValueError, match=word):
        UnitSpec.parse(text)


def test_golden_sparsemac_rejects_shapes_and_indices():
    x, y, start = torch.zeros(4, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), torch.tensor(0)
    how = {"a": "e4m3fn", "b": "e4m3fn", "acc": "fp16"}
    with pytest.raises(ValueError, match="x has shape"):
        golden.sparsemac(x[:3], y, y, start, **how)
    with pytest.raises(ValueError, match="weights of a step"):
        golden.sparsemac(x, y[:1], y[:1], start, **how)
    with pytest.raises(ValueError, match="index"):
        golden.sparsemac(x, y, y + 4, start, **how)
    with pytest.raises(TypeError, match="index"):
        golden.sparsemac(x, y, [0, 1], start, **how)
