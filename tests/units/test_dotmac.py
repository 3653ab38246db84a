"""Dot products added to an accumulator: steps and sequences against exact fractions, other units, and the RTL."""

import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import DotMacSpec, UnitSpec
from halfulp.sim.bench import run
from halfulp.units import DotMac
from halfulp.units.dotmac import sum_of_products


@pytest.mark.slow
def test_bench_detects_missing_product():
    class Short(DotMac):
        """Multiplies all pairs but the last one."""

        def term(self, m):
            pairs = [(a.as_value(), b.as_value()) for a, b in zip(self.a, self.b, strict=True)]
            return sum_of_products(self, m, pairs[:-1])

    assert run(Short(a="e2m1", b="e2m1", acc="e5m2", k=3), limit=1 << 10).failed


@pytest.mark.parametrize("k", [1, 2, 7])
def test_steps_are_dot_products_with_a_start_value(k):
    generator = torch.Generator().manual_seed(k)
    formats = {"a": "e4m3fn", "b": "e5m2"}
    x, y = (golden.encode(torch.randn(60, k, generator=generator), fmt) for fmt in formats.values())
    start = golden.encode(torch.randn(60, generator=generator), "fp32")
    steps = golden.dotmac(x, y, start, **formats, acc="fp32")
    assert torch.equal(steps, golden.dot(x, y, start, **formats, c="fp32", o="fp32"))
    if k == 1:
        assert torch.equal(steps, golden.mac(x[:, 0], y[:, 0], start, **formats, acc="fp32"))
    load = torch.arange(60) % 20 == 0
    sums, held = golden.dotmac_sequence(x, y, start, load, load & False, **formats, acc="fp32"), torch.tensor(0)
    for at in range(60):
        held = golden.dotmac(x[at], y[at], start[at] if load[at] else held, **formats, acc="fp32")
        assert int(sums[at]) == int(held)


def test_description_has_documented_defaults():
    spec = DotMacSpec.filled(parse("e5m2"))
    assert str(spec) == "dotmac4 e5m2*e5m2+e6m5.rn"
    assert UnitSpec.parse(spec.expression) == spec
    assert [spec.steps(k) for k in (0, 1, 4, 5)] == [0, 1, 1, 2]
    unit = DotMac.of(spec)
    assert list(unit.inputs) == [*(f"{name}{place}" for name in "ab" for place in range(4)), "c", "load", "clear"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("dotmac0 e4m3fn*e4m3fn+fp32", "1 to 256"),
        ("dotmac257 e4m3fn*e4m3fn+fp32", "1 to 256"),
        ("dotmac2 e4m3fn*e4m3fn+fp16.exact", "2 products"),
        ("dotmac2 e4m3fn*e4m3fn+fp16=fp32", "must be fp16"),
        ("dotmac2 bf16x2*e4m3fn+fp32", "compound"),
        ("dotmac e4m3fn*e4m3fn+fp32", "number after dotmac"),
    ],
)
def test_dotmac_rejects_description(text, word):
    with pytest.raises(ValueError, match=word):
        UnitSpec.parse(text)


def test_golden_dotmac_rejects_operands():
    x, start = torch.zeros(4, dtype=torch.int64), torch.tensor(0)
    how = {"a": "e4m3fn", "b": "e4m3fn", "acc": "fp16"}
    with pytest.raises(ValueError, match="one shape"):
        golden.dotmac(x, x[:3], start, **how)
    with pytest.raises(ValueError, match="last dimension"):
        golden.dotmac(start, start, start, **how)
    with pytest.raises(TypeError, match="tensor of codes"):
        golden.dotmac([0], x, start, **how)
    with pytest.raises(TypeError, match="not 2 operands"):
        golden.dotmac(x, x, **how)
