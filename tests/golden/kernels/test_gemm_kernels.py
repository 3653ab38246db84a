"""Compiled matrix products have the bits of tensor operations for every description, operand and machine."""

import functools
import itertools
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact, kernels
from halfulp.golden.codec import round_and_pack, unpack
from halfulp.golden.kernels import Job, build, elements, engines, first, plan
from halfulp.golden.kernels import exact as exact_kernel
from halfulp.golden.kernels.lane import BINARY64
from halfulp.golden.kernels.launch import Words, call
from halfulp.golden.kernels.number_table import table_rounder
from halfulp.golden.nn import convolution
from halfulp.golden.nn.product import product
from halfulp.golden.philox import philox, philox_words
from halfulp.golden.products import compute, slices
from halfulp.golden.products.in_torch import InTorch
from halfulp.golden.products.words import split_states, states_of_sums
from halfulp.hdl.formats import FP32, FP64, Codebook, Fixed, Rounding, parse
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import MacSpec
from tests.settings import EXHAUSTIVE

PRODUCTS = 10_000_000 if EXHAUSTIVE else 30_000

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
FORMATS = {
    "float": ["e5m2", "e4m3fn", "e4m3fnuz", "e3m2fn", "bf16", "fp16-ftz", "tf32", "e6m5", "fp32", "e5m10fn", "e4m0"],
    "fixed": ["fxp4.4", "fxp8.8", "uint8", "fxp4.4-wrap", "fxp16.16", "ufxp4.2-wrap", "int32"],
    "posit": ["posit8", "posit16", "posit8e0", "posit16e1", "posit6", "posit32", "posit10e3"],
}
SPECIAL_NUMBERS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 5e-324, 1e308]
MODES = [*ROUNDING_MODES, "sr3", "sr10", "sr24"]


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Use kernels even for little work."""
    monkeypatch.setenv("HALFULP_KERNEL", "native")


def sample(count, seed):
    """Return random descriptions of all families, modes and sources that are narrow enough for kernels."""
    chosen, made = random.Random(seed), []
    every = [name for family in FORMATS.values() for name in family]
    while len(made) < count:
        names = chosen.choice([*FORMATS.values(), FORMATS["float"], every])
        a, b, product, acc = (chosen.choice(names) for _ in range(4))
        text = f"{a}*{b}"
        if chosen.random() < 0.35:
            text += f"={product}.{chosen.choice(MODES)}"
        text += f"+{'exact=' if chosen.random() < 0.1 else ''}{acc}.{chosen.choice(MODES)}"
        text += ".sat" if chosen.random() < 0.25 else ""
        if "sr" in text and chosen.random() < 0.5:
            text += chosen.choice(["@lfsr24", "@lfsr33", "@plateau3", "@plateau2-rep", "@naive3"])
        try:
            spec = MacSpec.parse(text)
        except ValueError:
            continue
        if plan.fits_exact(spec):
            made.append(str(spec))
    return made


SAMPLED = sample(60 if EXHAUSTIVE else 5, 6)

SPECIALS = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38])


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
    return InTorch().run(Job(spec, a, b, start, shape, words))


def sources_of(spec):
    """Return the sources of the kernels of a description in vector lanes, fastest first."""
    kinds = itertools.product(("Fixed", "Float"), (32, 64))
    lanes = [plan.lane(spec, None, build.has_fma(), *kind) for kind in kinds]
    return [lane.source for lane in lanes if lane.source is not None]


def computed(*job):
    """Return the result of a job."""
    return compute(Job(*job))


def in_slices(*job):
    """Return the result of a job in slices; None if they refuse it."""
    return first([slices.Slices()], Job(*job))


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


@pytest.mark.sampled(21, 3)
@pytest.mark.parametrize("text", [*LISTED, *SAMPLED])
def test_kernels_match_tensors(text):
    given = compare(text, PRODUCTS)
    # The last kernel, in 128-bit integers, supports everything.
    assert given[-1] == max(given) > 0


NEAREST = ("e5m2*e5m2+e6m5.rh", "e5m2*e5m2+e6m5.rhu", "posit8*posit8+posit16.rhd")


@pytest.mark.parametrize("text", [*NEAREST, "fxp4.4*fxp4.4=fxp4.4.rhd+fxp8.8.rhu"])
def test_lanes_have_every_mode_to_nearest(text):
    assert sources_of(MacSpec.parse(text))
    assert compare(text, 10**4)[0] > 0


CUBES = Codebook.register("cubes", [n**3 / 64 for n in (*range(16), *range(-16, 0))], order="two's complement")
_ENDS = [*((1 + n / 4) * 2.0**e for e in range(-3, 4) for n in range(4)), math.inf, math.nan]
OVERFLOWING = Codebook.register(
    "overflowing", [0.0, 0.03125, *_ENDS, -0.0, -0.03125, *(-one for one in _ENDS)], overflow="infinity", threshold=16.0
)
TABULATED = [mode for mode in ROUNDING_MODES if mode not in ("sr", "ro", "exact")]
"""Modes with a table: those that change their result once between neighbours, without random words."""


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("fmt", [CUBES, OVERFLOWING, parse("nf4"), parse("takum4")], ids=str)
@pytest.mark.parametrize("mode", TABULATED)
def test_tables_of_lanes_round_as_formats(mode, fmt, saturate):
    """Around each number and middle, the entry of a word of binary64 has the number that the format rounds to."""
    made = table_rounder("sum", fmt, Rounding.parse(mode), saturate, BINARY64)
    boundaries, values, specials = made.tables.values()
    shift, first, count = map(int, made.text.split(", ")[1:4])
    numbers = sorted({abs(value) for value in fmt.values if isinstance(value, Fraction)})
    middles = [fmt.middle(*pair) for pair in itertools.pairwise(numbers)]
    ends = [2 * numbers[-1], Fraction(16), Fraction(31, 2), Fraction(1, 2**300)]
    near = {word + step for word in map(BINARY64.word, (*numbers, *middles, *ends)) for step in (-1, 0, 1)}
    for negative, word in itertools.product((False, True), near - {-1}):
        magnitude = Fraction(struct.unpack("d", struct.pack("Q", word))[0])
        place = min(max((word >> shift) - first, 0), count - 1) + negative * count
        found = values[2 * place + (word >= boundaries[place])]
        if ", true, " in made.text and not word:
            found = specials[2 + negative]
        code = fmt.encode_magnitude(magnitude, negative, Rounding.parse(mode), saturate=saturate)
        expected = math.copysign(abs(float(fmt.decode(code))), -1 if fmt.negative(code) else 1)
        found = struct.unpack("d", struct.pack("Q", found))[0]
        assert repr(found) == repr(expected) or math.isnan(found) == math.isnan(expected) is True, (word, negative)


ROUNDED_BY_TABLES = [f"{fmt}*{fmt}+{fmt}.{mode}" for mode in TABULATED for fmt in (CUBES, OVERFLOWING)]
ROUNDED_BY_TABLES += [
    f"e4m3*e4m3={OVERFLOWING}.rd+fp32.rn",
    f"e5m2*e5m2+{OVERFLOWING}.rn.sat",
    "nf4*nf4=nf4.rn+fp32.rn",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ROUNDED_BY_TABLES)
def test_lanes_round_to_tables(text):
    spec = MacSpec.parse(text)
    assert sources_of(spec), plan.lane(spec, None, build.has_fma(), "Float", 64).refusal
    assert compare(text, 10**4)[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("text", [f"mxfp4*mxfp4+{OVERFLOWING}.rn", f"nvfp4*nvfp4+{OVERFLOWING}.ru"])
def test_lanes_of_blocks_round_to_tables(text, monkeypatch):
    a, b = torch.randn(33, 70, generator=torch.Generator().manual_seed(0)), torch.linspace(-3, 3, 630).reshape(70, 9)
    assert "lanes of floats" in golden.explain(text, 33, 70, 9).engine
    found = golden.gemm(a, b, text)
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    assert torch.equal(found, golden.gemm(a, b, text))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", LISTED[:-2])
def test_kernels_in_lanes_are_used(text):
    """For moderate operands the first kernel of a description, in vector lanes, does all the work."""
    spec = MacSpec.parse(text)
    fastest = sources_of(spec)[0]
    assert "Blocks<" in fastest
    rng = np.random.default_rng(1)
    a, b = codes(rng, spec.a, (4, 9), "real"), codes(rng, spec.b, (9, 5), "real")
    *_, words = case(spec, 4, 9, 5, 1)
    if text != "fp16*fp16=fp16.rn+fp16.rn":
        assert call(build.library("test", fastest), a, b, None, (4, 5), words) is not None


@pytest.mark.slow
def test_kernels_match_fractions():
    """Compare step by step with exact arithmetic that shares no code with the kernels."""
    for text in ("e5m2*e5m2+e6m5.rn", "bf16*bf16+bf16.rn", "posit8*posit8+posit16.rn", "fp16*fp16=fp16.rn+fp16.rn"):
        spec = MacSpec.parse(text)
        a, b, start, _ = case(spec, 3, 40, 4, 3)
        found = golden.gemm(a, b, spec, start=start)
        names = ("a", "b", "acc", "product", "product_rounding", "rounding", "saturate")
        parameters = {name: getattr(spec, name) for name in names}
        for i, j in itertools.product(range(3), range(4)):
            total = int(start[i, j])
            for step in range(40):
                total = exact.mac(int(a[i, step]), int(b[step, j]), total, **parameters)
            assert int(found[i, j]) == total, (text, i, j)


@pytest.mark.slow
def test_kernels_match_tensors_on_small_fp16_products():
    """Most products of a 128 x 128 product of values from 1e-6 to 1e-2 are subnormal."""
    generator = torch.Generator().manual_seed(0)
    a, b = (1e-6 + (1e-2 - 1e-6) * torch.rand(128, 128, generator=generator) for _ in range(2))
    spec = MacSpec.parse("fp16*fp16=fp16.rn+fp16.rn")
    found = golden.gemm(a, b, spec)
    x, y = golden.encode(a, "fp16"), golden.encode(b, "fp16")
    assert torch.equal(found, in_torch(spec, x, y, None, Words()))
    total = torch.zeros(128, 128, dtype=torch.float16)
    for step in range(128):
        total = total + a.half()[:, step, None] * b.half()[step]
    assert torch.equal(golden.decode(found, "fp16"), total.double())


TEXTS = ["e5m2*e5m2+e6m5.rn", "fxp4.4*fxp4.4+fxp8.8.rn", "posit8*posit8+exact=posit8.rn", "e5m2*e5m2+e6m5.sr10@lfsr16"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", TEXTS)
def test_kernels_match_tensors_on_odd_shapes(text, monkeypatch):
    """Sizes of zero, one, and around the numbers of lanes and rows; transposed, broadcast and batched."""
    spec = MacSpec.parse(text)
    rng = np.random.default_rng(2)

    def check(a, b, **more):
        found = golden.gemm(a, b, spec, **more)
        with monkeypatch.context() as patched:
            patched.setenv("HALFULP_KERNEL", "torch")
            assert torch.equal(found, golden.gemm(a, b, spec, **more))

    for n, k, m in [
        (0, 3, 4),
        (3, 0, 4),
        (3, 4, 0),
        (1, 1, 1),
        (4, 2, 32),
        (5, 3, 31),
        (3, 2, 33),
        (8, 33, 15),
        (1, 2, 65),
    ]:
        a, b = codes(rng, spec.a, (n, k), "any"), codes(rng, spec.b, (k, m), "any")
        check(a, b, start=codes(rng, spec.o, (m,), "any"))
    a, b = codes(rng, spec.a, (2, 1, 5, 9), "any"), codes(rng, spec.b, (3, 9, 7), "any")
    start = codes(rng, spec.o, (3, 1, 7), "any")
    check(a, b, start=start)
    check(a.mT.contiguous().mT, b[:, ::3].repeat(1, 3, 1)[:, :9, ::2], start=start[..., ::2])
    check(a[:, :, :1].expand(2, 3, 5, 9), b[:1, :, :1].expand(3, 9, 7).to(torch.int32), start=start.mT[:, :1])
    check(a.to(torch.uint8) if spec.a.width == 8 else a, b)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mT", [False, True])
@pytest.mark.parametrize("text", ["bf16*bf16+fp32.rn", "bf16*bf16+bf16.rn"])
def test_packed_operands_follow_changes_of_their_memory(text, mT):
    """Products that reuse packed weights see changes that version counters of torch do not count."""
    spec, memory = MacSpec.parse(text), np.random.default_rng(5).standard_normal((150, 150), np.float32)
    x, w = torch.randn(7, 150), torch.from_numpy(memory)
    w.requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.5)

    def update():
        w.grad = torch.ones_like(w)
        optimizer.step()

    def reallocate():
        nonlocal w
        memory[:] = memory.T.copy()
        w = torch.from_numpy(memory)

    changes = [
        lambda: w.detach().add_(0.25),
        lambda: w.detach().mul_(-1),
        lambda: w.data.__setitem__((149, 149), 3.0),
        lambda: w.detach().view(-1)[-9:].mul_(-1),
        lambda: memory.__setitem__((0, 0), -2.0),
        update,
        reallocate,
        lambda: w.data.mul_(2.0**-60),
        lambda: w.data.__setitem__((3, 3), math.nan),
    ]
    for change in changes:
        change()
        now = w.detach().mT if mT else w.detach()
        codes_of_both = golden.encode(x, spec.a), golden.encode(now, spec.b)
        wanted = golden.decode(product(*codes_of_both, spec, key=0), spec.o).float()
        for _ in range(4):
            assert torch.equal(
                product(x, now, spec, key=0, dtype=torch.float32).view(torch.int32), wanted.view(torch.int32)
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("e4m3fn*e5m2+e6m5.rn", None),
        ("e4m3*e5m2=e5m2.sr3+e6m5.sr10", None),
        ("e4m3*e5m2=e5m2.sr3+e6m5.sr10", "philox"),
        ("e5m2*e4m3=e5m2.sr3+e6m5.sr10@lfsr16", None),
        ("fxp4.4*fxp2.6+fxp8.8.sr3@plateau3", None),
        ("posit8*fxp4.4+exact=posit8.sr7", None),
    ],
)
def test_kernels_transpose_few_columns(text, source, monkeypatch):
    """A product with many rows and few columns is computed transposed, with unchanged random words per element."""
    spec = MacSpec.parse(text)
    rng = np.random.default_rng(4)
    for shape, k, m in (((40,), 5, 3), ((2, 65), 40, 1), ((3, 61), 40, 18)):
        assert plan.is_transposed(shape[-1], k, m)
        a, b = codes(rng, spec.a, (*shape, k), "any"), codes(rng, spec.b, (k, m), "any")
        more = {"start": codes(rng, spec.o, (shape[-1], 1), "any")}
        if source:
            more |= {"source": source, "seed": 5}
        elif spec.random is None:
            more |= {
                name: torch.from_numpy(rng.integers(0, 1 << bits, (*shape, m, k))) for name, bits in spec.words.items()
            }
        found = golden.gemm(a, b, spec, **more)
        with monkeypatch.context() as patched:
            patched.setenv("HALFULP_KERNEL", "torch")
            assert torch.equal(found, golden.gemm(a, b, spec, **more))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text", ["bf16*bf16+fp32.rn", "bf16*bf16+bf16.rn", "bf16*bf16+bf16.sr5@lfsr16", "e4m3fn*posit8+fp16.rn"]
)
def test_kernels_read_and_write_reals(text, monkeypatch):
    """Products of real numbers are those of their codes: ties, subnormals, NaN with payloads, infinities and -0."""
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    spec, generator = MacSpec.parse(text), torch.Generator().manual_seed(0)
    corners = torch.tensor([0x7FA00001, -1, 0x7F800000, 0x8000, 0x18000, 0x7F7FFFFF, -(1 << 31)], dtype=torch.int32)
    words = torch.randint(-(1 << 31), 1 << 31, (3, 21, 40), generator=generator).to(torch.int32)
    words.view(-1)[:7] = corners
    a, b, start = torch.randn(3, 21, 40), words.mT.view(torch.float32), torch.randn(40).expand(3, 21, 21 + 19)[..., :21]
    a[0, 0] = 0
    for x, y in ((a, a.mT), (a, b), (b.mT, b)):
        pairs = ((x, spec.a), (y, spec.b), (start, spec.o))
        encoded = [golden.encode(one, fmt) for one, fmt in pairs]
        # Other formats are read as codes.
        given = [one if kernels.reads(fmt, one) else word for (one, fmt), word in zip(pairs, encoded, strict=True)]
        shape = (3, 21, 21)
        states = spec.random and states_of_sums(spec.random, 1, shape, x.device)
        random = Words(states=(states, None))
        # Lanes refuse operands of very different magnitudes, which are then encoded.
        found = computed(spec, *given, shape, random, None, torch.float32)
        expected = golden.decode(computed(spec, *encoded, shape, random), spec.o)
        assert torch.equal(found.view(torch.int32), expected.to(torch.float32).view(torch.int32))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["fp16*e5m2+fp32.rn", "e4m3fnuz*e4m3fn+fp32.rn"])
def test_kernels_round_reals_to_narrow_floats(text, monkeypatch):
    """Numbers, midpoints of their neighbours, and the neighbours of both in FP32; beyond the range too; NaN and -0."""
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    spec = MacSpec.parse(text)
    zeros = torch.tensor([[-0.0]])
    for turned, fmt in ((False, spec.a), (True, spec.b)):
        numbers = golden.decode(torch.arange(1 << fmt.width), fmt)
        ordered = numbers[numbers.isfinite()].sort().values
        numbers = torch.cat([ordered, (ordered[1:] + ordered[:-1]) / 2, 3 * ordered, ordered / 256]).to(torch.float32)
        infinity = torch.tensor(math.inf)
        x = torch.cat([numbers.nextafter(-infinity), numbers, numbers.nextafter(infinity), SPECIALS]).unsqueeze(1)
        one = torch.ones(1, 1)
        operands = (one, x.mT) if turned else (x, one)
        assert kernels.reads(fmt, x)
        shape = (1, len(x)) if turned else (len(x), 1)
        # A product of -0 and a start of -0 keep their sign.
        found = kernels.gemm(spec, *operands, zeros.expand(shape), shape, Words(), None, torch.float32)
        expected = golden.decode(golden.encode(x, fmt), fmt).to(torch.float32)
        assert found is not None
        assert torch.equal(found.reshape(-1, 1).view(torch.int32), expected.view(torch.int32))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "stride"), [(34, 1), (10, 1), (7, 1), (36, 2)])
def test_kernels_read_and_write_patches(width, stride, monkeypatch):
    """Windows of images as either operand, from rows of 32, 8, 5 and 17 pixels, with the result as images."""
    spec, rng = MacSpec.parse(TEXTS[0]), np.random.default_rng(width)
    x = codes(rng, spec.a, (3, 4, 9, width), "real")
    windows, output = convolution._windows(x, [3, 3], [stride, stride], [1, 1], 2)
    pixels, k = windows.shape[1:]
    w, gradient = codes(rng, spec.b, (2, k, 21), "real"), codes(rng, spec.a, (2, 12, pixels), "real")
    for a, b in ((windows, w), (w.mT, windows.mT), (gradient, windows), (windows.mT, gradient.mT)):
        shape = (2, a.shape[1], b.shape[2])
        found = kernels.gemm(spec, a, b, None, shape, Words())
        tensors = kernels.gathered(a), kernels.gathered(b)
        assert torch.equal(found, kernels.gemm(spec, *tensors, None, shape, Words()))
        assert torch.equal(found, in_torch(spec, *tensors, None, Words()))
    images = convolution._images(torch.zeros(3, 42, *output, dtype=torch.int64), 2)
    rows = computed(spec, windows, w, None, (2, pixels, 21), Words())
    expected = rows.reshape(2, 3, *output, 21).permute(1, 0, 4, 2, 3).reshape(3, 42, *output)
    assert torch.equal(computed(spec, windows, w, None, rows.shape, Words(), images), expected)
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    images.data.zero_()
    assert torch.equal(computed(spec, windows, w, None, rows.shape, Words(), images), expected)


def test_kernels_take_own_threads_in_forked_processes():
    """A forked process has none of the threads of torch, and a product that waits for them never ends."""
    spec = MacSpec.parse(TEXTS[0])
    a, b, start, _ = case(spec, 21, 40, 70, 3)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = golden.gemm(a, b, spec, start=start)
        if not (child := os.fork()):
            signal.alarm(20)
            try:
                os._exit(0 if torch.equal(golden.gemm(a, b, spec, start=start), expected) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_kernels_ignore_threads_and_instruction_sets(text, monkeypatch):
    """Numbers of threads, instruction sets and flushing of subnormal numbers change no bit."""
    spec = MacSpec.parse(text)
    a, b, start, _ = case(spec, 21, 40, 70, 3)
    expected = golden.gemm(a, b, spec, start=start)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(golden.gemm(a, b, spec, start=start), expected)
    finally:
        torch.set_num_threads(before)
    assert torch.set_flush_denormal(True)
    try:
        assert torch.equal(golden.gemm(a, b, spec, start=start), expected)
    finally:
        torch.set_flush_denormal(False)
    for level in ("avx2", "portable", "torch") if EXHAUSTIVE or text == TEXTS[0] else ("portable", "torch"):
        monkeypatch.setenv(build.SETTING, level)
        assert torch.equal(golden.gemm(a, b, spec, start=start), expected), level


@pytest.mark.slow
def test_kernels_match_tensors_without_fma(monkeypatch):
    monkeypatch.setenv(build.SETTING, "portable")
    assert not build.has_fma()
    for text in ("bf16*bf16+fp32.rn", "bf16*bf16+bf16.sr10"):
        compare(text, 10_000)


def test_gemm_without_compiler_uses_torch_and_warns(monkeypatch, tmp_path):
    """Without a compiler torch computes the product, with one warning."""
    a, b, _, _ = case(MacSpec.parse(TEXTS[0]), 3, 4, 5, 1)
    expected = golden.gemm(a, b, TEXTS[0])
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler for kernels"):
        assert torch.equal(golden.gemm(a, b, TEXTS[0]), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(golden.gemm(a, b, TEXTS[0]), expected)
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\ncase "$*" in *-shared*) echo "error: it broke" >&2; exit 1;; esac\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.warns(RuntimeWarning, match="does not compile .*it broke"):
        assert torch.equal(golden.gemm(a, b, TEXTS[0]), expected)
    monkeypatch.setenv(build.SETTING, "fast")
    with pytest.raises(ValueError, match="invalid HALFULP_KERNEL 'fast': expected auto"):
        golden.gemm(a, b, TEXTS[0])


@pytest.mark.slow
def test_kernel_is_chosen_by_the_call_and_not_by_earlier_ones(monkeypatch, tmp_path, capfd):
    """Small products use torch, larger ones the general kernel, and large ones one of their own, with the same bits."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    monkeypatch.setenv("HALFULP_KERNEL", "auto")
    a = torch.arange(32).reshape(4, 8)
    seconds = {"exact": 4 * 8 * 4 * engines.IN_TORCH + 8 * engines.STEP_IN_TORCH, "gemm": 4 * 8 * 4 * engines.IN_EXACT}
    used, found = [], []
    monkeypatch.setattr(engines, "call", lambda *given, **more: used.append(given[-1]) or call(*given, **more))

    def compiled(worth, name):
        monkeypatch.setattr(build, "WORTH", worth)
        build._is_cached.cache_clear()
        for _ in range(3):
            found.append(golden.gemm(a, a.mT, "e5m2*e5m2+e6m5.rn"))
        return len(list(tmp_path.glob(f"cache/kernels/{name}*/kernel.so")))

    # However often it is called, a product that is not worth it compiles no kernel.
    assert compiled(2 * seconds["exact"], "") == 0
    assert not used
    assert compiled(seconds["exact"], "exact") == 1
    assert compiled(2 * seconds["gemm"], "gemm") == 0
    assert [type(one) for one in used] == [exact_kernel.Step] * 6
    used.clear()
    # A compilation that takes long says so.
    monkeypatch.setattr(build, "SILENT", 0.01)
    monkeypatch.setenv("HALFULP_QUIET", "5")
    assert compiled(seconds["gemm"], "gemm") == 1
    assert used == [None] * 3
    assert "compiling the kernel gemm_e5m2_e5m2_e6m5_rn" in capfd.readouterr().err
    assert all(torch.equal(one, found[0]) for one in found)


def test_long_sums_do_not_run_in_torch(monkeypatch):
    """Two rows of 65536 products have many sequential steps, and torch would need a call for each."""
    monkeypatch.setenv("HALFULP_KERNEL", "auto")
    exact_kernel.library(math.inf)
    monkeypatch.setattr(InTorch, "run", lambda *given: pytest.fail("torch computed it"))
    a, b = torch.full((2, 65536), 0x3C), torch.full((65536, 4), 0x3C)
    assert (golden.gemm(a, b, "e5m2*e5m2+fp32.rn") == golden.encode(torch.tensor(65536.0), "fp32")).all()


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
    assert isinstance(used[0], exact_kernel.Step)
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
    for name, saturate in itertools.product(ELEMENTS, (False, True)):

        def both(given, a, o, name=name, saturate=saturate):
            fmt, made = parse(a), parse(o)
            monkeypatch.setattr(elements, "WORTHWHILE", 1)
            found = elements.convert(given, fmt, made, rounding, saturate, random_words)
            expected = round_and_pack(unpack(given.view(torch.int64), fmt), made, rounding, saturate, random_words)
            assert torch.equal(found, expected), (name, saturate)
            return found

        codes = both(x, "fp64", name)
        both(codes, name, "bf16")


@pytest.mark.slow
def test_sums_overflow_by_rounding_up_alone():
    """Terms far below the last place make a sum overflow if each step rounds up."""
    a, b = torch.ones(2, 20, dtype=torch.int64), torch.ones(20, 3, dtype=torch.int64)
    for text in ("e5m2*e5m2+e2m1-fn.ru", "e5m2*e5m2=e2m1-fn.ru+e2m1-fn.rn", "e5m2*e5m2+e4m3fn.ru"):
        spec, words = MacSpec.parse(text), Words()
        for code in (0, 1):
            start = torch.full((2, 3), code)
            found = kernels.gemm(spec, a, b, start, (2, 3), words)
            assert found is not None
            assert torch.equal(found, in_torch(spec, a, b, start, words)), (text, first)


@pytest.mark.slow
def test_minus_zero_survives_sums():
    """-0 * 1 added to -0 is -0; a single +0 term makes the sum +0."""
    for text, expected in (("e5m2*e5m2+e6m5.rn", 0x800), ("e5m2*e5m2+e6m5.sr3", 0x800), ("e5m2*e5m2+e6m5.rd", 0x800)):
        spec = MacSpec.parse(text)
        a, b, start = torch.full((5, 3), 0x80), torch.full((3, 70), 0x3C), torch.full((5, 70), 0x800)
        words = Words(given=(torch.zeros(1, 1, 1, dtype=torch.int64) if spec.words else None, None))
        found = kernels.gemm(spec, a, b, start, (5, 70), words)
        assert found is not None
        assert (found == expected).all(), text
        found = kernels.gemm(spec, a, torch.full((3, 70), 0xBC), start, (5, 70), words)
        assert found is not None
        assert (found == (0x800 if "rd" in text else 0)).all(), text


@pytest.mark.slow
def test_nan_payloads_survive_sums():
    """Rounding adds to the payload of a NaN operand, from which a lane makes the NaN of the sum."""
    spec = MacSpec.parse("tf32*tf32+bf16.rn")
    library = build.library("test", sources_of(spec)[0])
    payloads = torch.arange(0x3FC01, 0x40000)
    every = torch.cat([payloads, payloads | 0x40000]).reshape(-1, 1)
    one = torch.full((1, 1), 0x1FC00)
    for a, b in ((every, one), (one, every.mT)):
        found = call(library, a, b, None, (len(a), b.shape[1]), Words())
        assert found is not None
        assert (found == spec.o.nan_code).all()


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


def test_overfull_quire_is_infinite():
    """With one guard bit, several largest products overflow in either direction, even if later ones cancel them."""
    largest = torch.full((1, 40), 0x7B)
    for signs in (torch.zeros(40), torch.ones(40), torch.arange(40) >= 20):
        b = (largest | (signs.to(torch.int64) << 7)).mT
        spec = MacSpec.parse("e5m2*e5m2+exact=e6m5.rn carry=1")
        found = kernels.gemm(spec, largest, b, None, (1, 1), Words())
        assert found is not None
        assert int(found) == (0xFE0 if signs.all() else 0x7E0)
        assert torch.equal(found, in_torch(spec, largest, b, None, Words()))


def test_midpoint_plus_tiny_addend_rounds_up():
    """9 * 29 = 261 is between 260 and 262 in bf16, and 2^-20 decides; binary32 would lose it."""
    spec = MacSpec.parse("bf16*bf16+bf16.rn")
    a, b, *start = (golden.encode(torch.tensor([[value]]), "bf16") for value in (9.0, 29.0, 2.0**-20, 0.0, -(2.0**-20)))
    for begin, expected in zip(start, (262, 260, 260), strict=True):
        for run in kernels_of(spec):
            found = run(a, b, begin, (1, 1), Words())
            assert found is not None
            assert int(golden.decode(found, "bf16")) == expected


@pytest.mark.parametrize("text", ["bf16*bf16+bf16.rn", pytest.param("fp16*fp16+fp16.rn", marks=pytest.mark.slow)])
def test_sums_rounded_twice_match_general_kernel(text):
    """Large terms that are often midpoints meet tiny and subnormal sums, of which the processor's flags tell."""
    spec = MacSpec.parse(text)
    fastest = next(one for one in sources_of(spec) if "ROUNDS_TWICE = true" in one)
    rng, man, bias, general = np.random.default_rng(3), spec.o.man, spec.o.bias, exact_kernel.library(math.inf)

    def draw(shape, exponents):
        signs, mantissas = rng.integers(0, 2, shape), rng.choice([0, 1, (1 << man) - 1, 1 << (man - 1)], shape)
        drawn = (signs << (spec.o.width - 1)) + (rng.choice(exponents, shape) << man) + mantissas
        return torch.from_numpy(np.where(rng.random(shape) < 0.6, drawn, 0))

    moderate = [max(bias - 20, 0), max(bias - 14, 1), bias, bias + 1]
    for start in (None, draw((9, 37), [0, 1, 2, bias]), torch.full((9, 37), 1 << (spec.o.width - 1))):
        a, b = draw((9, 150), moderate), draw((150, 37), moderate)
        found = call(build.library("test", fastest), a, b, start, (9, 37), Words())
        assert found is not None
        assert torch.equal(found, call(general, a, b, start, (9, 37), Words(), step=exact_kernel.step(spec, None)))


# Counter-based words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0, 0, 0, 0], 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (1 << 64) - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_matches_published_words(counter, key, words):
    """The published words are kat_vectors of the authors' library Random123."""
    assert philox(torch.tensor(counter), key).tolist() == words


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text",
    [
        "e5m2*e5m2+e6m5.sr10",
        "e4m3*e4m3=e5m2.sr3+e6m5.sr24",
        "posit8*posit8+exact=posit8.sr5",
        "bf16*bf16+fp32.sr10",
    ],
)
def test_counter_based_words_match_between_kernels_and_tensors(text):
    """Kernels and tensors use the words of `philox_words`, also for split sums."""
    spec = MacSpec.parse(text)
    rng = np.random.default_rng(1)
    a, b, start = (codes(rng, *of, "real") for of in ((spec.a, (3, 50)), (spec.b, (50, 37)), (spec.o, (3, 37))))
    key = 0xFEDCBA9876543210
    found = golden.gemm(a, b, spec, start=start, source="philox", seed=key)
    assert torch.equal(found, in_torch(spec, a, b, start, Words(key=key)))
    elements = torch.arange(3 * 37).reshape(3, 37)
    words = {
        name: philox_words(key, elements, 50, bits, stream=stream)
        for stream, name in enumerate(("random", "random_product"))
        if (bits := spec.words.get(name))
    }
    assert torch.equal(found, golden.gemm(a, b, spec, start=start, **words))
    assert not torch.equal(found, golden.gemm(a, b, spec, start=start, source="philox", seed=1))
    if not spec.quire:
        first = golden.gemm(a[:, :13], b[:13], spec, start=start, source="philox", seed=key)
        assert torch.equal(
            found, golden.gemm(a[:, 13:], b[13:], spec, start=first, source="philox", seed=key, first_step=13)
        )


def test_gemm_accepts_real_operands():
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(6, 20, generator=generator), 1e5 * torch.randn(20, 7, generator=generator, dtype=torch.float64)
    for rounding, saturate in (("rn", False), ("rz", True)):
        x, y = (golden.encode(values, "e5m2", rounding, saturate=saturate) for values in (a, b))
        found = golden.gemm(a, b, TEXTS[0], operand_rounding=rounding, operand_saturate=saturate)
        assert torch.equal(found, golden.gemm(x, y, TEXTS[0]))


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"source": "lfsr16"}, ValueError, "unknown source"),
        ({"source": "philox", "seed": -1}, ValueError, "seed"),
        ({"source": "philox", "seed": 1.5}, TypeError, "seed"),
        ({"source": "philox", "first_step": -1}, ValueError, "first_step"),
        ({"source": "philox", "random": torch.zeros(1, dtype=torch.int64)}, ValueError, "source philox"),
        ({"random": torch.zeros(1, dtype=torch.int64), "first_step": 2}, ValueError, "first_step"),
    ],
)
def test_gemm_rejects_bad_sources(options, error, sentence):
    a = torch.ones(2, 2, dtype=torch.int64)
    with pytest.raises(error, match=sentence):
        golden.gemm(a, a, "e5m2*e5m2+e6m5.sr10", **options)
    with pytest.raises(ValueError, match="source philox"):
        golden.gemm(a, a, "e5m2*e5m2+e6m5.rn", source="philox")
    with pytest.raises(ValueError, match="operand_rounding"):
        golden.gemm(a * 1.0, a * 1.0, "e5m2*e5m2+e6m5.rn", operand_rounding="sr3")
    for more in ({"operand_rounding": "rz"}, {"operand_saturate": True}):
        with pytest.raises(ValueError, match=f"{next(iter(more))} has no effect"):
            golden.gemm(a, a, "e5m2*e5m2+e6m5.rn", **more)


# Conversions ----------------------------------------------------------------------------------------------------------

TARGETS = [
    "e5m2",
    "fp16",
    "bf16",
    "e4m3fn",
    "e4m3fnuz",
    "e3m2fn",
    "e4m0",
    "fp16-ftz",
    "e8m23",
    "fxp4.4",
    "posit8",
    "posit16",
]


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("target", TARGETS if EXHAUSTIVE else TARGETS[:1] + TARGETS[4:5] + TARGETS[9:11])
@pytest.mark.parametrize("source", [torch.float32, torch.float64])
def test_encode_kernel_matches_tensors(target, source):
    """Arbitrary words, and numbers at and next to the codes and midpoints of the target format."""
    o, rng = parse(target), np.random.default_rng(3)
    integer = torch.int32 if source == torch.float32 else torch.int64
    bits = torch.iinfo(integer).bits
    words = torch.from_numpy(rng.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 3000)).to(integer).view(source)
    nearby = golden.decode(torch.from_numpy(rng.integers(0, 1 << o.width, 3000)), o)
    factors = [1, 1.5, 1 + 2.0**-o.precision, 1 + 2.0 ** -(o.precision + 1), 1 - 2.0**-20, 1 + 2.0**-20, 0.25, 2.0**-30]
    values = torch.cat([words, (nearby * torch.from_numpy(rng.choice(factors, 3000))).to(source)])
    raw = unpack(values.double().view(torch.int64), FP64)
    for mode in MODES if EXHAUSTIVE else ("rn", "ro", "sr10"):
        rounding = Rounding.parse(mode)
        noise = torch.from_numpy(rng.integers(0, 1 << rounding.bits, 6000)) if rounding.bits else None
        for saturate in (False, True):
            found = golden.encode(values, o, mode, noise, saturate)
            assert torch.equal(found, round_and_pack(raw, o, rounding, saturate, noise)), (target, mode, saturate)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["posit8", "e4m3fnuz", "e3m2fn-ftz"])
def test_encode_by_upper_half_matches_tensors(target):
    """Numbers at, next to and between the codes; infinities, NaN with any payload, and subnormal numbers."""
    o, rng = parse(target), np.random.default_rng(4)
    words = torch.from_numpy(rng.integers(-(1 << 31), 1 << 31, elements.LONG)).to(torch.int32)
    payloads = torch.tensor([1, 0x7F800000, 0x7F800001, -0x7FFFFF, -0x80000000, -0x7FFFFFFF], dtype=torch.int32)
    nearby = golden.decode(torch.arange(1 << o.width), o).float()
    nearby = [nearby * factor for factor in (1, 1.5, 1 + 2.0**-o.precision, 1 - 2.0**-20, 1 + 2.0**-20, 0.25)]
    values = torch.cat([words.view(torch.float32), payloads.view(torch.float32), *nearby])
    raw = unpack(values.double().view(torch.int64), FP64)
    for mode, saturate in (("rn", False), ("ra", True), ("ru", False), ("ro", False)):
        expected = round_and_pack(raw, o, Rounding.parse(mode), saturate, None)
        assert torch.equal(golden.encode(values, o, mode, None, saturate), expected), mode


def test_convert_tables_match_tensors():
    every = torch.arange(1 << 8).repeat(3)
    for a, o in (("e5m2", "fp32"), ("posit8", "fxp4.4"), ("e4m3fn", "posit16")):
        expected = round_and_pack(unpack(every, parse(a)), parse(o), Rounding.parse("rd"), False, None)
        assert torch.equal(golden.convert(every, a=a, o=o, rounding="rd"), expected)
    wide = torch.arange(1000) * 4_000_037
    expected = round_and_pack(unpack(wide, FP32), parse("e5m2"), Rounding.parse("ru"), True, None)
    assert torch.equal(golden.convert(wide, a="fp32", o="e5m2", rounding="ru", saturate=True), expected)


def test_kernel_setting_is_documented():
    assert kernels.__doc__ is not None
    assert all(f"``{level}``" in kernels.__doc__ for level in build.LEVELS)


USES = """
using namespace halfulp;
template VectorU64 halfulp::increment_of_floor<RD, VectorU64>(VectorU64, VectorU64, VectorU64, VectorU64);
template Word<64>::U halfulp::increment<64, RD>(Word<64>::U, Word<64>::U, Word<64>::U, Word<64>::U);
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("header", ["lanes", "number", "floats", "elementwise"])
def test_switch_without_a_mode_does_not_compile(header, tmp_path):
    folder = Path(build.__file__).parent
    for file in folder.glob("*.h"):
        shutil.copy(file, tmp_path)
    program = tmp_path / "switch.cpp"
    program.write_text(f'#include "elementwise.h"{USES}')
    command = ["g++", *build.FLAGS, "-o", tmp_path / "switch.so", program]
    assert subprocess.run(command, capture_output=True).returncode == 0
    text = (tmp_path / f"{header}.h").read_text()
    (tmp_path / f"{header}.h").write_text(re.sub(r" case RHD: .*", "", text, count=1))
    done = subprocess.run(command, capture_output=True, text=True)
    assert "'RHD' not handled in switch" in done.stderr.replace("\u2018", "'").replace("\u2019", "'")
