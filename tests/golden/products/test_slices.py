"""Products in slices against the general kernel."""

import math

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import kernels
from halfulp.golden.kernels import MatrixProduct, first
from halfulp.golden.kernels.launch import Words
from halfulp.golden.products import slices
from halfulp.golden.products.words import states_of_sums
from halfulp.hdl.specs import MacSpec
from tests.kernel_products import (
    _kernels,  # noqa: F401  # a fixture for every test
    codes,
    in_torch,
)


def in_slices(*job):
    """Return the result of a job in slices; None if they refuse it."""
    return first([slices.Slices()], MatrixProduct(*job))


@pytest.mark.parametrize(
    ("text", "k"),
    [
        ("posit8*posit8+exact=posit16.rn", 70),
        ("posit8*e5m2+exact=posit8.sr7", 33),
        ("fp16*int8+exact=fp32.sr9@lfsr16", 33),
        ("fp16*e4m3fn+exact=bf16.rd", 3),
        ("nf4*takum8+exact=e6m5.ro.sat", 1),
        ("e5m2*e5m2+exact=fxp8.8.rn", 65536),
    ],
)
def test_slices_match_general_kernel(text, k, monkeypatch):
    """Exact sums by slices, of all finite operands, from start values, batched, and with the last random words."""
    spec, rng = MacSpec.parse(text), np.random.default_rng(k)
    monkeypatch.setattr(slices, "WORTHWHILE", 1)
    for way, n, m in (("any", 5, 7), ("real", 1, 9), ("tiny", 3, 1)):
        a, b = codes(rng, spec.a, (2, 1, n, k), way), codes(rng, spec.b, (3, k, m), way)
        start = codes(rng, spec.o, (n, m), "real")
        for fmt, operand in ((spec.a, a), (spec.b, b)):
            operand[~golden.decode(operand, fmt).isfinite()] = 0
        shape = (2, 3, n, m)
        given = [Words()]
        if spec.random is not None:
            given = [Words(states=(states_of_sums(spec.random, 1, shape, torch.device("cpu")), None))]
        elif spec.words:
            given = [
                Words(given=(torch.from_numpy(rng.integers(0, 128, (*shape, k))), None)),
                Words(key=3, first_step=5),
            ]
        for words in given:
            found = in_slices(spec, a, b, start.expand(shape), shape, words)
            assert found is not None
            assert torch.equal(found, kernels.gemm(spec, a, b, start.expand(shape), shape, words)), way


def test_slices_delegate_special_and_large_operands(monkeypatch):
    monkeypatch.setattr(slices, "WORTHWHILE", 1)
    cases = ("fp64*fp64+exact", math.nan), ("fp64*fp64+exact", 5e-324), ("e5m2*e5m2+exact=e6m5 carry=1", 57344.0)
    for text, value in cases:
        spec = MacSpec.parse(text)
        one = golden.encode(torch.ones(4, 4), spec.a)
        a = golden.encode(torch.full((4, 4), value, dtype=torch.float64), spec.a)
        assert in_slices(spec, one, one, None, (4, 4), Words()) is not None
        assert in_slices(spec, a, a, None, (4, 4), Words()) is None
        assert torch.equal(golden.gemm(a, a, spec), in_torch(spec, a, a, None, Words()))


def test_slices_of_long_sums_are_narrow():
    """4096 products of 62 ones exceed binary64 unless operands are split."""
    spec, largest = MacSpec.parse("int32*int32+exact=fp64.rz"), torch.full((4, 4096), (1 << 31) - 1)
    found = in_slices(spec, largest, largest.mT, None, (4, 4), Words())
    exact_sum = ((1 << 31) - 1) ** 2 << 12
    assert (golden.decode(found, "fp64") == float(exact_sum >> 21 << 21)).all()
