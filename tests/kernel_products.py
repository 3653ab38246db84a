"""Matrix products of compiled kernels and of tensor operations, and operands for them."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.kernels import MatrixProduct, build, plan
from halfulp.golden.kernels import exact as exact_kernel
from halfulp.golden.kernels.launch import Words, call
from halfulp.golden.products.in_torch import InTorch
from halfulp.golden.products.words import split_states, states_of_sums
from halfulp.hdl.formats import Fixed
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import MacSpec
from tests.settings import EXHAUSTIVE

LISTED = [
    "e5m2*e5m2+e6m5.rn",
    "e5m2*e5m2+e6m5.rz",
    "e5m2*e5m2+e6m5.ro",
    "e5m2*e5m2+e6m5.sr10",
    "e5m2*e5m2+e6m5.sr10@lfsr16",
    "e5m2*e5m2+e6m5.sr10@plateau4-rep",
    "fxp4.4*fxp4.4+fxp8.4.sr4@naive3",
    "e4m3fn*e4m3fn+fp16.rn",
    "bf16*bf16+fp32.rn",
    "bf16*bf16+bf16.rn",
    "fp16*fp16=fp16.rn+fp16.rn",
    "fxp4.4*fxp4.4+fxp8.8.rn",
    "fxp4.4*fxp4.4+fxp8.4.sr3@plateau3",
    "posit8*posit8+posit16.rn",
    "posit8*posit8+exact=posit8.rn",
    "e5m2*e5m2+exact=e6m5.rz carry=1",
]
MODES = [*ROUNDING_MODES, "sr3", "sr10", "sr24"]


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Use kernels even for little work."""
    monkeypatch.setenv("HALFULP_KERNEL", "native")


def codes(rng, fmt, shape, way):
    """Return random codes: any, near one, short (for ties), tiny, or of moderate numbers."""
    width = min(fmt.width, 62)
    top = (1 << width) - 1
    if way == "real":
        return golden.encode(torch.from_numpy(rng.normal(size=shape)), fmt)
    drawn = rng.integers(0, top, shape, endpoint=True)
    if way == "near":
        one = 1 << (width // 2) if isinstance(fmt, Fixed) else int(golden.encode(torch.ones(1), fmt))
        spread = max(1 << width >> 4, 1)
        drawn = (one + rng.integers(-spread, spread, shape) + (rng.integers(0, 2, shape) << (width - 1))) & top
    elif way == "short":
        cut = rng.integers(0, max(width - 3, 1), shape)
        drawn = drawn >> cut << cut
    elif way == "tiny":
        drawn = rng.integers(0, min(top, 15), shape, endpoint=True) | (rng.integers(0, 2, shape) << (width - 1))
    return torch.from_numpy(np.asarray(drawn, dtype=np.int64))


WAYS = ["any", "near", "short", "tiny", "real"]


def specials(fmt):
    """Return the codes of zeros, ends of the range, infinities and NaN."""
    found = [0, 1, fmt.nan_code, fmt.infinity(False), fmt.infinity(True)]
    found += [fmt.encode(value, saturate=True) for value in (fmt.largest, fmt.lowest, fmt.smallest, -0.0)]
    return torch.tensor([golden.raw.int64(code) for code in found])


def case(spec, n, k, m, seed):
    """Return operands, start values and words, with special codes at some places."""
    rng = np.random.default_rng(seed)
    a, b = codes(rng, spec.a, (n, k), rng.choice(WAYS)), codes(rng, spec.b, (k, m), rng.choice(WAYS))
    start = codes(rng, spec.o, (n, m), rng.choice(WAYS))
    if seed % 3 == 0:
        for fmt, operand in ((spec.a, a), (spec.b, b), (spec.o, start)):
            kinds = specials(fmt)
            places = torch.from_numpy(rng.integers(0, operand.numel(), max(operand.numel() // 40, 2)))
            operand.view(-1)[places] = kinds[torch.from_numpy(rng.integers(0, len(kinds), len(places)))]
    if spec.random is not None:
        states = states_of_sums(spec.random, 1, (n, m), torch.device("cpu"))
        return a, b, start, Words(states=split_states(spec, spec.random, states))
    given = tuple(
        torch.from_numpy(rng.integers(0, 1 << spec.words[name], (n, m, k))) if name in spec.words else None
        for name in ("random", "random_product")
    )
    return a, b, start, Words(given=given)


def in_torch(spec, a, b, start, words):
    shape = (a.shape[-2], b.shape[-1])
    return InTorch().run(MatrixProduct(spec, a, b, start, shape, words))


def sources_of(spec):
    """Return the sources of the kernels of a description in vector lanes, fastest first."""
    kinds = itertools.product(("Fixed", "Float"), (32, 64))
    lanes = [plan.lane(spec, None, build.has_fma(), *kind) for kind in kinds]
    return [lane.source for lane in lanes if lane.source is not None]


def kernels_of(spec):
    """Return all kernels of a description as functions; the last one supports all operands."""
    sources = sources_of(spec)
    # By default only the first kernel in vector lanes, because each takes seconds to compile.
    libraries = [build.library("test", source) for source in (sources if EXHAUSTIVE else sources[:1])]
    assert None not in libraries
    found = [functools.partial(call, library) for library in libraries]
    return [*found, functools.partial(call, exact_kernel.library(math.inf), step=exact_kernel.step(spec, None))]


def compare(text, products, seed=0):
    """Compare every kernel of a description with tensor operations; return the number of results of each."""
    spec = MacSpec.parse(text)
    runs = kernels_of(spec)
    given = [0] * len(runs)
    done = 0
    sizes = [(5, 40, 67), (1, 90, 33), (9, 7, 16), (2, 200, 31)]
    sizes = [(40, 100, 150), *sizes] if products > 10**6 else sizes
    for n, k, m in itertools.cycle(sizes):
        seed += 1
        a, b, start, words = case(spec, n, k, m, seed)
        expected = in_torch(spec, a, b, start, words)
        for index, run in enumerate(runs):
            found = run(a, b, start, (n, m), words)
            if found is not None:
                given[index] += found.numel()
                assert torch.equal(found, expected), f"{text}: kernel {index}, case {seed}"
        done += n * k * m
        if done >= products:
            break
    return given


TEXTS = ["e5m2*e5m2+e6m5.rn", "fxp4.4*fxp4.4+fxp8.8.rn", "posit8*posit8+exact=posit8.rn", "e5m2*e5m2+e6m5.sr10@lfsr16"]
