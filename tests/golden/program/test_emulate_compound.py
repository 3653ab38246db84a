"""Compound results in emulated programs: exact results split into parts, whose sums tensors hold in binary32."""

import contextlib
import copy
import math
import random
from fractions import Fraction

import pytest
import torch
from torch import nn

from halfulp import golden
from halfulp.golden.kernels import plan
from halfulp.golden.nn import Policy, WeightUpdate, convert
from halfulp.golden.products import in_torch
from halfulp.hdl.formats import FP32, Rounding, parse
from halfulp.hdl.specs import MacSpec

POLICY = "bf16x2*bf16+bf16x2.rn, elementwise=bf16x2.rn, reductions=bf16x2.rn, optimizer=bf16x2.rn"
OPERATIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


def sparse_number(rng):
    """Return a number of binary32 with few bits, so that parts of sums are far apart."""
    mantissa = Fraction(rng.getrandbits(rng.choice((1, 7, 8, 16, 23))), 1 << 23)
    return float((1 + mantissa) * Fraction(2) ** -rng.choice((0, 0, 0, 3, 8, 9, 17, 30, 60, 100)) * rng.choice((1, -1)))


def in_binary32(value):
    """Return the number of binary32 next to an exact number."""
    return FP32.decode(FP32.encode(value)) if isinstance(value, Fraction) else value


@pytest.mark.parametrize(
    "text",
    ["bf16x2.rn", *(pytest.param(f"{fmt}.{mode}", marks=pytest.mark.slow)
      for fmt in ("bf16x2", "bf16x3", "fp16x2", "e3m2x2") for mode in ("ra", "rz", "ru", "rd", "ro"))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elementwise_result_is_split_exact_result(text, dtype):
    fmt, mode = parse(text.split(".")[0]), Rounding(text.split(".")[1])
    rng = random.Random(text)
    x, y = torch.tensor([[sparse_number(rng) for _ in range(40)] for _ in range(2)], dtype=dtype)

    def split(value):
        return in_binary32(fmt.decode(fmt.encode(value, mode)))

    checks = 0
    for name, operation in OPERATIONS.items():
        with golden.emulate(f"fp32, elementwise={text}", strict=False):
            found = getattr(torch, name)(x, y)
        for given, other, result in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
            a, b = split(Fraction(given)), split(Fraction(other))
            if math.isinf(a) or math.isinf(b) or (name == "div" and b == 0):
                continue
            assert result == split(operation(a, b)), (name, given, other)
            checks += 1
    assert checks > 80


def _operands(generator):
    """Return numbers of binary32: any, near one, near minus each other, and all pairs of special ones."""
    count = 2000
    edges = [0.0, 1.0, 2.0**-149, 2.0**-133, 2.0**-126, 28.0, 480.0, 65504.0, float(FP32.largest), math.inf]
    special = torch.tensor([math.nan, *edges, *(-edge for edge in edges)])
    pairs = torch.cartesian_prod(special, special)
    any_number = torch.randint(-(1 << 31), 1 << 31, (2, count), generator=generator).to(torch.int32).view(torch.float32)
    scale = 2.0 ** torch.randint(-20, 5, (2, count), generator=generator)
    near_one = torch.randn((2, count), generator=generator) * scale
    x, y = torch.cat([any_number, near_one, pairs.T], -1)
    apart = torch.randn(count, generator=generator) * 2.0 ** torch.randint(-40, 0, (count,), generator=generator)
    return torch.cat([x, near_one[0]]), torch.cat([y, -near_one[0] * (1 + apart)])


FORMATS = ["bf16x3", "fp16x2", "e3m2x2", "e3m2-ftzx2", "e4m3fnx2", "e4m3fnuzx2", "e2m1x3", "e5m2x4"]


@pytest.mark.slow
@pytest.mark.sampled(9, 9)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fmt", ["bf16x2", *FORMATS])
def test_compiled_results_in_parts_have_bits_of_torch_operations(fmt, dtype, monkeypatch):
    x, y = (one.to(dtype) for one in _operands(torch.Generator().manual_seed(len(fmt))))
    word = torch.int32 if dtype == torch.float32 else torch.int64
    for mode in ("rn", "ra", "rh", "rhu", "rhd", "rz", "ru", "rd", "ro"):
        found = []
        for level in ("native", "torch"):
            monkeypatch.setenv("HALFULP_KERNEL", level)
            with golden.emulate(f"fp32, elementwise={fmt}.{mode}", strict=False):
                results = [operation(x, y) for operation in OPERATIONS.values()]
                found.append(torch.cat([*results, x.abs().sqrt(), x.tanh(), x * 0.1, 0.1 / y]))
        kernel, wanted = found
        assert torch.equal(kernel.isnan(), wanted.isnan())
        assert torch.equal(kernel.nan_to_num(nan=0).view(word), wanted.nan_to_num(nan=0).view(word)), mode


def test_float32_holds_no_part_below_its_last_place():
    """1 + 2^-30 has the parts 1 and 2^-30, whose sum in binary32 is 1; codes of the golden model have both."""
    one, small = torch.ones(1), torch.full((1,), 2.0**-30)
    with golden.emulate("fp32, elementwise=bf16x2.rn", strict=False):
        assert (one + small).item() == 1
    codes = golden.add(*(golden.encode(x, "bf16x2") for x in (one, small)), a="bf16x2", b="bf16x2")
    assert golden.decode(codes, "bf16x2").item() == 1 + 2.0**-30


def _trained(run, model, x, context):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        with context:
            value = run(model, x)
            value.backward()
        with golden.emulate(POLICY):
            optimizer.step()
        found += [value.detach(), *(one.grad.clone() for one in model.parameters())]
    states = [state["momentum_buffer"] for state in optimizer.state.values()]
    return [*found, *states, *(one.detach() for one in model.parameters())]


def test_compiled_step_has_bits_of_eager_step_and_two_parts_in_state(monkeypatch):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2, bias=False))
    x = torch.randn(4, 6)

    def loss(model, x):
        return (model(x) * x[:, :2]).square().sum()

    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    wanted = _trained(loss, copy.deepcopy(model), x, golden.emulate(POLICY, strict=True))
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    backend = golden.emulate.backend(POLICY, strict=True)
    found = _trained(torch.compile(loss, backend=backend, fullgraph=True), model, x, contextlib.nullcontext())
    assert backend.report().share == 1
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    numbers = torch.cat([one.flatten() for one in wanted[-3:]])
    assert torch.equal(golden.decode(golden.encode(numbers, "bf16x2"), "bf16x2").float(), numbers)
    assert (golden.decode(golden.encode(numbers, "bf16"), "bf16").float() != numbers).any()


def test_layer_with_compound_accumulator_has_results_of_gemm():
    torch.manual_seed(0)
    x, layer = torch.randn(5, 16), nn.Linear(16, 7)
    for text in ("bf16*bf16+bf16x2.rn", "bf16x2*bf16+bf16x3.rz", "bf16*bf16=bf16.rn+fp16x2.rn"):
        spec = MacSpec.parse(text)
        start = golden.encode(layer.bias.detach(), spec.o)
        expected = golden.decode(golden.gemm(x, layer.weight.detach().T, spec, start=start), spec.o).float()
        assert torch.equal(convert(layer, text).model(x), expected)
        with golden.emulate(text, strict=False):
            assert torch.equal(layer(x), expected)
        assert Policy.parse(str(Policy.parse(text))) == Policy.parse(text)


def test_sum_in_two_parts_keeps_what_one_part_loses():
    """256 times 1/256 added to 1 is lost in bf16 and kept by its second part."""
    x = torch.cat([torch.ones(1), torch.full((256,), 2.0**-8)])
    for text, expected in (("bf16.rn", 1), ("bf16x2.rn", 2), ("bf16x2.rn pairwise", 2), ("bf16x2.rn exact", 2)):
        with golden.emulate(f"fp32, elementwise=fp32.rn, reductions={text}"):
            assert x.sum().item() == expected, text


def test_weight_update_in_two_parts_keeps_small_changes():
    weights = {}
    for text in ("bf16.rn", "bf16x2.rn"):
        parameter = nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=2.0**-10)
        WeightUpdate(optimizer, text)
        for _ in range(8):
            parameter.grad = torch.ones(1)
            optimizer.step()
        weights[text] = parameter.item()
    assert weights == {"bf16.rn": 1, "bf16x2.rn": 1 - 2.0**-7}


@pytest.mark.parametrize(
    ("policy", "dtype", "word"),
    [
        ("fp32, elementwise=bf16x2.rn.sat", torch.float32, "omit .sat"),
        ("fp32, elementwise=bf16x2.rn", torch.bfloat16, "sums of parts in bf16x2"),
        ("bf16*bf16+bf16x2.rn, elementwise=bf16.rn", torch.bfloat16, "sums of parts in bf16x2"),
        ("bf16*bf16=bf16x2.rn+fp32.rn, elementwise=bf16.rn", torch.float32, "product of mac"),
        ("mxfp8_e4m3*mxfp8_e4m3+bf16x2.rn", torch.float32, "must not be the compound format"),
    ],
)
def test_emulation_refuses_in_one_sentence(policy, dtype, word):
    x = torch.ones(2, 2, dtype=dtype)
    with pytest.raises(ValueError, match=word), golden.emulate(policy):
        (x @ x) * x


TEXTS = ["bf16*bf16+bf16x2", "bf16x2*bf16x2=bf16.rn+bf16x3", "e3m2-ftz*e3m2+e3m2-ftzx2", "fp32*fxp4.4+fp16x3"]
TEXTS += ["e4m3fn*e4m3fn+e4m3fnuzx2", "e2m1x2*e2m1+e2m1x2", "posit8*posit8+bf16x2"]


@pytest.mark.sampled(3, 8)
@pytest.mark.parametrize("rounding", ["rn", "ra", "rz", "ru.sat", "rd", "ro", "rn.sat", "sr3"])
@pytest.mark.parametrize("text", [TEXTS[0], *(pytest.param(text, marks=pytest.mark.slow) for text in TEXTS[1:])])
def test_sums_in_binary64_have_bits_of_single_steps(text, rounding, monkeypatch):
    spec = MacSpec.parse(f"{text}.{rounding}")
    assert plan.fits_compound(spec.of_parts)
    generator = torch.Generator().manual_seed(len(text))

    def codes(shape, fmt):
        """Choose codes of numbers near one, and any code of each part in one of four."""
        numbers = golden.encode(torch.randn(shape, generator=generator), fmt)
        any_code = torch.randint(0, 1 << min(fmt.width, 62), shape, generator=generator)
        return torch.where(torch.rand(shape, generator=generator) < 0.25, any_code, numbers)

    a, b, start = codes((5, 4), spec.a), codes((4, 21), spec.b), codes((5, 21), spec.o)
    steps = 4 * len(spec.pairs)
    words = {"random": torch.randint(0, 8, (5, 21, steps), generator=generator)} if spec.rounding.bits else {}
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    found = [golden.gemm(a, b, spec, start=start, **words)]
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    found.append(golden.gemm(a, b, spec, start=start, **words))
    monkeypatch.setattr(in_torch, "fits_compound", lambda _: False)
    found.append(golden.gemm(a, b, spec, start=start, **words))
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[2])


@pytest.mark.parametrize("rounding", ["rn", "rd"])
def test_remainder_far_below_a_cancelled_sum_stays(rounding):
    """1 + 2^-60 - 1 is 2^-60, also where binary64 holds no sum of both parts; 1 - 1 is +0, and -0 under rd."""
    for fmt, start, expected in (
        ("bf16x2", 0x3F80_2180, 0x2180_0000),
        ("bf16x3", 0x3F80_2180_0080, 0x2180_0080_0000),
        ("bf16x2", 0x3F80_0000, 0x8000_8000 if rounding == "rd" else 0),
    ):
        one, start = torch.tensor([[0x3F80]]), torch.tensor([[start]])
        found = golden.gemm(one, one ^ 0x8000, f"bf16*bf16+{fmt}.{rounding}", start=start)
        expected |= 0x8000 if rounding == "rd" and fmt != "bf16x2" else 0
        expected |= 0x8000 if rounding == "rd" and expected == 0x2180_0000 else 0
        assert found.item() == expected, hex(found.item())
