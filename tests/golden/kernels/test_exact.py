"""The general kernel: counters of random words, codebooks, and conversions of every format."""

import itertools
import math

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.codec import round_and_pack, unpack
from halfulp.golden.kernels import build, elements, engines, plan
from halfulp.golden.kernels import exact as exact_kernel
from halfulp.golden.kernels.launch import call
from halfulp.hdl.formats import Rounding, Saturation, parse
from halfulp.hdl.specs import MacSpec
from tests.kernel_products import (
    _kernels,  # noqa: F401  # a fixture for every test
    codes,
)

SPECIAL_NUMBERS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 5e-324, 1e308]


@pytest.mark.parametrize("text", ["e4m3*e5m2=e5m2.sr3+e6m5.sr18", "nf4*takum16+posit16.sr3", "nf4*nf4+exact=fp32"])
def test_generic_kernel_accepts_counters_and_codebooks(text, monkeypatch):
    """Counter words for products and sums from within a block, and tables of codebooks."""
    spec = MacSpec.parse(text)
    rng = np.random.default_rng(3)
    a, b = codes(rng, spec.a, (3, 21), "any"), codes(rng, spec.b, (21, 5), "any")
    more = {"source": "philox", "seed": 9, "first_step": 5} if spec.words else {}
    monkeypatch.setattr(plan, "lane", lambda *given: plan.Lane(None, "no lanes"))
    used = []
    monkeypatch.setattr(engines, "call", lambda *given, **more: used.append(given[-1]) or call(*given, **more))
    found = golden.gemm(a, b, spec, **more)
    assert isinstance(used[0], exact_kernel.MacStep)
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    assert torch.equal(found, golden.gemm(a, b, spec, **more))


ELEMENTS = ["e5m2", "e4m3fn", "e4m3fnuz", "e2m1fn", "fp16-ftz", "e4m0", "fxp4.4", "fxp4.4-wrap", "ufxp0.8", "posit8"]
ELEMENTS += ["posit16e1", "posit5", "takum8", "takum16", "nf4"]


@pytest.mark.parametrize("mode", ["rn", "ra", "rh", "rhu", "rhd", "rz", "ru", "rd", "ro", "sr3"])
def test_generic_kernel_encodes_and_decodes_like_tensors(mode, monkeypatch):
    """Every format encodes real numbers of all scales and special values with the generic kernel."""
    rounding = Rounding.parse(mode)
    generator = torch.Generator().manual_seed(1)
    scale = torch.exp2(torch.randint(-30, 30, (4000,), generator=generator).double())
    x = torch.cat([torch.randn(4000, generator=generator).double() * scale, torch.tensor(SPECIAL_NUMBERS)])
    random_words = torch.randint(0, 8, x.shape, generator=generator) if rounding.bits else None
    monkeypatch.setenv("HALFULP_KERNEL", "auto")
    monkeypatch.setattr(build, "WORTH", math.inf)
    assert exact_kernel.library(math.inf) is not None
    for name, saturate in itertools.product(ELEMENTS, Saturation):

        def both(given, a, o, name=name, saturate=saturate):
            fmt, made = parse(a), parse(o)
            monkeypatch.setattr(elements, "WORTHWHILE", 1)
            found = elements.convert(given, fmt, made, rounding, saturate, random_words)
            expected = round_and_pack(unpack(given.view(torch.int64), fmt), made, rounding, saturate, random_words)
            assert torch.equal(found, expected), (name, saturate)
            return found

        codes = both(x, "fp64", name)
        both(codes, name, "bf16")
