"""Engines of matrix products: the choice depends on description, shapes and device, and gives its reasons."""

import pytest
import torch

from halfulp import golden
from halfulp.golden.kernels import MatrixProduct, Refused, Words
from halfulp.golden.products import ENGINES, choice, compute, explain, slices
from halfulp.hdl.specs import MacSpec

SAME = ["e5m2*e5m2+fp32", "fxp4.4*fxp4.4+fxp8.8", "posit8*posit8+exact", "takum8*takum8+bf16.ru"]


@pytest.fixture(autouse=True)
def _kernels_of_this_machine(monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", "native")


@pytest.mark.parametrize(
    ("text", "engine", "refused"),
    [
        ("e4m3fn*e4m3fn+fp32", "lanes of floats of 32 bits", {"slices of binary64": "exact accumulators"}),
        ("fxp4.4*fxp4.4+fxp8.8", "lanes of integers of 32 bits", {}),
        ("fp64*fp64+fp64", "lanes of floats of 64 bits", {"lanes of floats of 32 bits": "fewer digits than fp64"}),
        ("posit16*posit16+exact", "slices of binary64", {}),
        ("takum16*takum16+takum16", "integers of 128 bits", {"lanes of floats of 64 bits": "not round to takum16"}),
        ("posit64*posit64+posit64", "torch", {"integers of 128 bits": "longer", "Triton": "on a GPU"}),
        ("mxfp8_e4m3*mxfp8_e4m3+fp32", "dot products in lanes of floats", {"integers of 128 bits": "several products"}),
        ("nvfp4*nvfp4+fxp8.8", "torch", {"dot products in lanes of floats": "does not round to fxp8.8"}),
        ("sparsemac e4m3fn*e4m3fn+fp32", "dot products in lanes of floats", {}),
        ("bf16x2*bf16x2+fp32.sr8", "lanes of floats of 64 bits", {}),
    ],
)
def test_explanation_names_the_engine_and_reasons(text, engine, refused):
    found = explain(text, 64, 64, 64)
    assert found.engine == engine
    for name, reason in refused.items():
        assert reason in found.refusals[name]
    assert engine in str(found).splitlines()[-1]
    assert len(str(found).splitlines()) == len(found.refusals) + 2


class Spy:
    """Engine that notes its runs."""

    def __init__(self, engine, ran):
        self.name, self.refuses, self.engine, self.ran = engine.name, engine.refuses, engine, ran

    def run(self, job):
        self.ran.append(self.name)
        return self.engine.run(job)


def test_explained_engine_computes_the_product(monkeypatch):
    """The engine of the explanation runs, none before it, and the next one if it refuses the operands."""
    ran = []
    monkeypatch.setattr(choice, "ENGINES", tuple(Spy(engine, ran) for engine in ENGINES))
    a = golden.encode(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)), "posit16")
    golden.gemm(a, a, "posit16*posit16+exact")
    assert ran == [explain("posit16*posit16+exact", 64, 64, 64).engine]
    ran.clear()
    # NaR.
    a[0, 0] = 1 << 15
    golden.gemm(a, a, "posit16*posit16+exact")
    assert ran == ["slices of binary64", "integers of 128 bits"]


@pytest.mark.slow
def test_every_engine_has_the_same_results(monkeypatch):
    """Each engine that accepts a product computes it alone."""
    monkeypatch.setattr(slices, "WORTHWHILE", 1)
    generator = torch.Generator().manual_seed(2)
    accepted = set()
    for text in SAME:
        spec = MacSpec.parse(text)
        a, b = (golden.encode(torch.randn(5, 5, generator=generator), fmt) for fmt in (spec.a, spec.b))
        job = MatrixProduct(spec, a, b, None, (5, 5), Words())
        expected = compute(job)
        for engine in ENGINES:
            if engine.refuses(job) is None:
                try:
                    assert torch.equal(engine.run(job), expected), (text, engine.name)
                except Refused:
                    continue
                accepted.add(engine.name)
    assert accepted >= {engine.name for engine in ENGINES} - {"Triton", "dot products in lanes of floats"}


@pytest.mark.slow
def test_explanation_says_what_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    monkeypatch.setenv("HALFULP_KERNEL", "auto")
    before = explain("e3m2*e3m2+bf16", 64, 64, 64)
    assert before.kernel == "gemm_e3m2_e3m2_bf16_rn, to be compiled at the first call"
    golden.gemm(*[torch.zeros(64, 64, dtype=torch.int64)] * 2, "e3m2*e3m2+bf16")
    assert explain("e3m2*e3m2+bf16", 64, 64, 64).kernel == "gemm_e3m2_e3m2_bf16_rn, compiled"
    small = explain("e3m2*e3m2+fp16", 2, 2, 2)
    assert "not worth its compilation" in small.refusals["lanes of floats of 32 bits"]
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    assert "HALFULP_KERNEL=torch" in explain("e3m2*e3m2+bf16", 64, 64, 64).refusals["integers of 128 bits"]


def test_small_products_are_not_worth_a_compilation(monkeypatch, tmp_path):
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    monkeypatch.setenv("HALFULP_KERNEL", "auto")
    assert explain("e3m2*e3m2+bf16", 64, 64, 64).kernel.endswith("to be compiled at the first call")
    small = explain("e3m2*e3m2+fp16", 2, 2, 2)
    assert "not worth its compilation" in small.refusals["lanes of floats of 32 bits"]


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="no exception flags"):
        explain("mac e5m2*e5m2+fp32 flags", 2, 2, 2)
    with pytest.raises(ValueError, match="k must be 1 or more, not 0"):
        explain("e5m2*e5m2+fp32", 2, 0, 2)
    with pytest.raises(TypeError, match="m must be an int"):
        explain("e5m2*e5m2+fp32", 2, 2, 2.0)
    with pytest.raises(ValueError, match="device must be one of torch here, such as cpu, not 'disk'"):
        explain("e5m2*e5m2+fp32", 2, 2, 2, device="disk")
