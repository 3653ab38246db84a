"""Compiled matrix products have the bits of tensor operations for every description and operand."""

import itertools
import math
import random

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact, kernels
from halfulp.golden.kernels import build, first, plan
from halfulp.golden.kernels import exact as exact_kernel
from halfulp.golden.kernels.launch import Words, call
from halfulp.hdl.specs import MacSpec
from tests.kernel_products import (
    LISTED,
    MODES,
    TEXTS,
    _kernels,  # noqa: F401  # a fixture for every test
    case,
    codes,
    compare,
    in_torch,
    kernels_of,
    sources_of,
)
from tests.settings import EXHAUSTIVE

PRODUCTS = 10_000_000 if EXHAUSTIVE else 30_000
FORMATS = {
    "float": [
        "e5m2",
        "e4m3fn",
        "e4m3fnuz",
        "binary8p3",
        "e3m2fn",
        "bf16",
        "fp16-ftz",
        "tf32",
        "e6m5",
        "fp32",
        "e5m10fn",
        "e4m0",
    ],
    "fixed": ["fxp4.4", "fxp8.8", "uint8", "fxp4.4-wrap", "fxp16.16", "ufxp4.2-wrap", "int32"],
    "posit": ["posit8", "posit16", "posit8e0", "posit16e1", "posit6", "posit32", "posit10e3"],
}


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
        text += chosen.choice([".sat", ".satfinite"]) if chosen.random() < 0.25 else ""
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


SATURATED = [
    f"{text}.satfinite"
    for text in (
        "e4m3*e4m3+fp16.rn",
        "e5m2*e5m2+e6m5.ru",
        "e5m2*e5m2+e4m3fn.ro",
        "e4m3*e4m3+fp16-ftz.ra",
        "e5m2*e5m2+posit16.rn",
        "e5m2*e5m2+fp32.rn",
        "e4m3*e5m2=e5m4.rz+e4m3fnuz.sr3",
        "e5m2*e5m2+takum12.rn",
        "e5m2*fp16=e8m10.rn+fp16.rd",
        "e5m2*e5m2+exact=e6m5.rz",
    )
]


@pytest.mark.slow
@pytest.mark.sampled(10, 3)
@pytest.mark.parametrize("text", SATURATED)
def test_kernels_saturate_infinities(text):
    spec = MacSpec.parse(text)
    assert compare(text, PRODUCTS // 3)[-1] > 0
    ends = golden.encode([math.inf, -math.inf, 1.0], spec.a)
    words = {"random": torch.zeros(3, 1, 1, dtype=torch.int64)} if spec.rounding.bits else {}
    found = golden.decode(golden.gemm(ends[:, None], golden.encode([[1.0]], spec.b), spec, **words), spec.o)
    assert found.flatten().tolist() == [float(spec.o.largest), -float(spec.o.largest), 1.0]


@pytest.mark.sampled(21, 3)
@pytest.mark.parametrize("text", [*LISTED, *SAMPLED])
def test_kernels_match_tensors(text):
    given = compare(text, PRODUCTS)
    # The last kernel, in 128-bit integers, supports everything.
    assert given[-1] == max(given) > 0


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ["e5m2*e5m2+e6m5.sr10@plateau4-rep", "fxp4.4*fxp4.4+fxp8.4.sr4@naive3"])
def test_kernels_take_the_words_of_every_source(text):
    given = compare(text, 2000)
    assert given[-1] == max(given) > 0
    assert given[0] > 0


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
