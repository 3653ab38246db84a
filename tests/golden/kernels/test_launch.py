"""Operands of compiled kernels: packed, transposed, real numbers, and patches of images."""

import math

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import kernels
from halfulp.golden.kernels import MatrixProduct, plan
from halfulp.golden.kernels.launch import Words
from halfulp.golden.nn import convolution
from halfulp.golden.nn.product import product
from halfulp.golden.products import compute
from halfulp.golden.products.words import states_of_sums
from halfulp.hdl.specs import MacSpec
from tests.kernel_products import (
    TEXTS,
    _kernels,  # noqa: F401  # a fixture for every test
    codes,
    in_torch,
)

SPECIALS = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38])


def computed(*job):
    """Return the result of a job."""
    return compute(MatrixProduct(*job))


@pytest.mark.sampled(4)
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
