"""Emulation of whole programs: products as layers compute them, other operations against exact results."""

import dataclasses
import functools
import itertools
import json
import math
import threading
from collections import Counter
from fractions import Fraction

import mpmath
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halfulp import golden
from halfulp.golden.nn import Cast, Policy, convert
from halfulp.golden.nn.draw import mix, words
from halfulp.golden.program import dispatch, products
from halfulp.golden.program.arithmetic import chained, compute
from halfulp.golden.program.functions import ABOVE_LIMIT, BELOW_LIMIT, FUNCTIONS
from halfulp.golden.program.operations import EXACT as EXACT_OVERLOADS
from halfulp.hdl.formats import parse

BF16 = "bf16*bf16+fp32.rn, elementwise=bf16.rn, functions=e5m2.rn, optimizer=bf16.rn"
FP32 = "fp32*fp32+fp32.rn, elementwise=fp32.rn, optimizer=fp32.rn"

LIMITS = BELOW_LIMIT | ABOVE_LIMIT


def _numbers(fmt, count, seed=0):
    """Finite numbers of a format, as float64."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(1 << fmt.width, (4 * count,), generator=generator)
    values = golden.decode(codes, fmt)
    return values[values.isfinite()][:count]


EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rounding", ["rn", "ra", "rz", "ru", "rd", "ro", "sr4"])
@pytest.mark.parametrize("text", ["e5m2", "e4m3fn", "bf16", "fp16", "fp32", "tf32", "posit8", "fxp4.4"])
def test_elementwise_rounds_exact_result_once(text, rounding):
    fmt = parse(text)
    cast = Cast.parse(f"{text}.{rounding}")
    x, y = _numbers(fmt, 150), _numbers(fmt, 150, 1)
    for name, exact in EXACT.items():
        found = compute(name, (x, y), cast, 5, torch.float64)
        random = words(5, 4, tuple(x.shape), x.device) if cast.rounding.bits else torch.zeros(len(x), dtype=torch.int64)
        for a, b, z, word in zip(x.tolist(), y.tolist(), found.tolist(), random.tolist(), strict=True):
            if name == "div" and b == 0:
                continue
            value = exact(Fraction(a), Fraction(b))
            wanted = fmt.decode(fmt.encode(value, cast.rounding, random=word))
            assert z == wanted or (math.isnan(z) and str(wanted) == "nan"), (name, a, b, z, wanted)


@pytest.mark.parametrize("rounding", ["rn", "rz", "ru", "ro"])
@pytest.mark.parametrize("text", ["e5m2", "bf16", "fp32", "posit16e1"])
def test_square_root_rounds_exact_result_once(text, rounding):
    fmt, cast = parse(text), Cast.parse(f"{text}.{rounding}")
    x = _numbers(fmt, 200).abs()
    for a, z in zip(x.tolist(), compute("sqrt", (x,), cast, 5, torch.float64).tolist(), strict=True):
        # Truncated far below the last place, with a bit for the rest.
        scaled = Fraction(a) * 4**300
        root = math.isqrt(int(scaled))
        value = Fraction(2 * root + (root * root != scaled), 2**301)
        assert z == fmt.decode(fmt.encode(value, cast.rounding))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("text", [pytest.param("e4m3fn", marks=pytest.mark.slow), "e5m2"])
def test_function_rounds_correctly_for_all_codes(text, name):
    fmt = parse(text)
    x = _numbers(fmt, 1 << 12).unique()
    roundings = ["rn", "rz", "ru", "ro"]
    found = [compute(name, (x,), Cast.parse(f"{text}.{one}"), 0, torch.float64).tolist() for one in roundings]
    for place, a in enumerate(x.tolist()):
        with mpmath.workprec(1500):
            try:
                value = FUNCTIONS[name][0](mpmath.mpf(a))
            except (ValueError, ZeroDivisionError):
                continue
            if isinstance(value, mpmath.mpc) or mpmath.isnan(value) or mpmath.isinf(value) or a == 0:
                continue
            significand, exponent = value.man_exp
            # Far beyond the range of the formats, whose results do not depend on the number.
            exponent = max(min(exponent, 1000), -10000)
            exact = int(mpmath.sign(value)) * significand * Fraction(2) ** exponent
        if name in LIMITS and exact.numerator.bit_length() < 60:
            # As close to its limit as 1,500 bits show; the next test is about these.
            continue
        for rounding, results in zip(roundings, found, strict=True):
            wanted, z = fmt.decode(fmt.encode(exact, rounding)), results[place]
            assert z == wanted or (math.isnan(z) and str(wanted) == "nan"), (name, a, rounding)


def test_function_does_not_reach_its_limit():
    x = torch.tensor([60000.0, 3e38], dtype=torch.float64)
    below = torch.tensor([1 - 2.0**-8] * 2, dtype=torch.float64)
    assert torch.equal(compute("tanh", (x,), Cast.parse("bf16.rz"), 0, torch.float64), below)
    assert torch.equal(
        compute("tanh", (x,), Cast.parse("bf16.rn"), 0, torch.float64), torch.ones(2, dtype=torch.float64)
    )


def _step(model, x, gradient):
    x = x.clone().requires_grad_()
    y = model(x)
    y.backward(gradient)
    return [y.detach(), x.grad, *(one.grad for one in model.parameters())]


@pytest.mark.parametrize("mac", ["bf16*bf16+fp32.rn", "e5m2*e4m3fn+e6m5.ro", "posit8*posit8+posit16.rn"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(9, 5, bias=False), (3, 9)),
        (lambda: nn.Conv2d(4, 6, 3, 2, 1, 1, 2, bias=False), (2, 4, 9, 8)),
    ],
)
def test_emulated_products_equal_those_of_layers(layer, shape, mac):
    torch.manual_seed(0)
    model = layer()
    x = torch.randn(shape)
    gradient = torch.randn_like(model(x))
    wanted = _step(convert(model, mac).model, x, gradient)
    with golden.emulate(mac):
        found = _step(model, x, gradient)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    ("kind", "shape", "parts"),
    [
        (nn.Conv1d, (2, 4, 11), {"kernel_size": 3, "stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
        (nn.Conv2d, (2, 2, 7, 6), {"kernel_size": (3, 2), "stride": (1, 2), "padding": (2, 0)}),
        (nn.Conv3d, (1, 2, 4, 5, 3), {"kernel_size": 2, "padding": 1}),
        (nn.ConvTranspose1d, (2, 4, 5), {"kernel_size": 4, "stride": 3, "padding": 2, "output_padding": 1}),
        (nn.ConvTranspose2d, (2, 4, 4, 5), {"kernel_size": 3, "stride": 2, "padding": 3, "groups": 2}),
        (nn.ConvTranspose3d, (1, 2, 3, 2, 3), {"kernel_size": 2, "stride": 2, "dilation": 2}),
    ],
)
def test_convolutions_of_integers_equal_torch(kind, shape, parts):
    generator = torch.Generator().manual_seed(0)
    layer = kind(shape[1], 6, **parts)
    with torch.no_grad():
        for one in layer.parameters():
            one.copy_(torch.randint(-8, 9, one.shape, generator=generator))
    x = torch.randint(-8, 9, shape, generator=generator).float()
    gradient = torch.randint(-8, 9, layer(x).shape, generator=generator).float()
    wanted = _step(layer, x, gradient)
    layer.zero_grad()
    with golden.emulate(FP32, strict=True):
        found = _step(layer, x, gradient)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("parts", list(itertools.product([2, (4, 2)], [None, 1, 3], [0, 1], [False, True])))
def test_average_pooling_of_integers_equals_torch(parts):
    kernel, stride, padding, ceil = parts
    x = torch.randint(-8, 9, (2, 3, 9, 7), generator=torch.Generator().manual_seed(0)).float().mul(64)

    def run():
        given = x.clone().requires_grad_()
        y = F.avg_pool2d(given, kernel, stride, padding, ceil, divisor_override=8)
        y.backward(torch.arange(float(y.numel())).reshape(y.shape))
        return y.detach(), given.grad, F.avg_pool2d(x, kernel, stride, padding, ceil, False)

    wanted = run()
    with golden.emulate(FP32, strict=True):
        found = run()
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("order", ["sequential", "pairwise", "exact"])
def test_sum_has_order_of_policy(order):
    fmt = parse("e5m2")
    x = _numbers(fmt, 37)
    with golden.emulate(f"e5m2*e5m2+e6m5.rz, elementwise=e5m2.rn, reductions={order}"):
        found = float(x.float().sum())
    acc = parse("e6m5")

    def add(a, b):
        return acc.decode(acc.encode(Fraction(a) + Fraction(b), "rz"))

    values = x.tolist()
    if order == "exact":
        wanted = acc.decode(acc.encode(sum(map(Fraction, values)), "rz"))
    elif order == "sequential":
        wanted = 0
        for value in values:
            wanted = add(wanted, value)
    else:
        while len(values) > 1:
            odd = values[len(values) // 2 * 2 :]
            values = [add(a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + odd
        wanted = values[0]
    assert found == wanted


def test_attention_products_equal_gemm_of_their_operands(monkeypatch):
    compared = []
    multiply = products.matmul

    def checked(call, phase, a, b, roles, start=None):
        found = multiply(call, phase, a, b, roles, start)
        mac = getattr(call.policy, phase)
        codes = golden.encode(a, mac.a), golden.encode(b, mac.b)
        begin = None if start is None else golden.encode(start, mac.o)
        wanted = golden.decode(golden.gemm(*codes, mac, start=begin), mac.o)
        compared.append(torch.equal(found[0].double(), wanted))
        return found

    monkeypatch.setattr(products, "matmul", checked)
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    with golden.emulate(BF16, strict=True):
        model(torch.randn(2, 4, 8), torch.randn(2, 3, 8)).square().mean().backward()
    assert len(compared) > 40
    assert all(compared)


class Mixed(nn.Module):
    """Functional and einsum products, and many operations."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5))
        self.bilinear = nn.Bilinear(3, 3, 2)
        self.linear = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        y = self.norm(torch.einsum("bi,ij->bj", x, self.weight))
        y = F.silu(y) * torch.sigmoid(y) + y**3
        z = self.linear(y).tanh()
        parts = [self.bilinear(z, z).mean(), y.std(), torch.logsumexp(y, -1).sum(), F.softplus(y).prod(1).sum()]
        parts += [y.cumsum(0).var(), F.mse_loss(z, z * 0.5), F.hardswish(y).sum(), torch.outer(z[0], z[1]).norm()]
        parts += [F.max_pool1d(y.unsqueeze(0), 3, 1).sum(), F.embedding(torch.tensor([1, 1, 0]), self.weight).sum()]
        return torch.stack(parts).sum()


PROGRAMS = {
    "lstm": lambda: (nn.LSTM(4, 6, bidirectional=True), lambda m: m(torch.randn(3, 2, 4))[0].square().sum()),
    "gru": lambda: (nn.GRU(4, 6, 2), lambda m: m(torch.randn(3, 2, 4))[0].square().sum()),
    "mixed": lambda: (Mixed(), lambda m: m(torch.randn(6, 4))),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda m: m(torch.randn(2, 4, 8)).square().mean(),
    ),
}


OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "Adam with lists": functools.partial(torch.optim.Adam, foreach=True),
    "SGD": functools.partial(torch.optim.SGD, momentum=0.9),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program_runs_strictly_to_the_same_bits(name, optimizer):
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        model, loss = PROGRAMS[name]()
        steps = OPTIMIZERS[optimizer](model.parameters(), lr=0.01)
        with golden.emulate(BF16, strict=True, values=True) as run:
            loss(model).backward()
            steps.step()
        found.append([one.detach().clone() for one in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    # Parameters after a step in bf16 are numbers of bf16.
    assert all(torch.equal(one, one.bfloat16().float()) for one in found[0])
    report = run.report()
    assert report.share == 1
    assert not report.in_torch
    assert {"forward", "input_gradient", "weight_gradient", "update"} <= {row.phase for row in report.rows}


def test_report_names_operations_in_torch():
    with golden.emulate("bf16*bf16+fp32.rn") as run:
        torch.fft.rfft(torch.randn(8)).abs()
        torch.randn(2, 3) @ torch.randn(3, 4)
        torch.randn(3).exp()
    report = run.report()
    assert {row.operation for row in report.in_torch} >= {"_fft_r2c", "exp"}
    assert next(row.macs for row in report.rows if row.operation == "mm") == 24
    assert report.share == 1
    assert json.loads(report.json())["share"] == 1
    assert "test_emulate.py" in str(report)


def test_report_plots_its_rows(tmp_path):
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with golden.emulate({"linear1": BF16, "self_attn*": BF16}) as run:
        model(torch.randn(2, 4, 8)).sum().backward()
    run.report().plot(tmp_path / "operations.svg")
    drawn = (tmp_path / "operations.svg").read_text()
    assert "of the multiply-accumulates are in the arithmetic" in drawn
    with pytest.raises(ValueError, match="ending"):
        run.report().plot(tmp_path / "operations.txt")


@pytest.mark.parametrize("policy", ["fp32", "bf16*bf16+fp32.rn"])
def test_strict_refuses_torch_arithmetic(policy):
    with pytest.raises(RuntimeError, match=r"elementwise|forward"), golden.emulate(policy, strict=True):
        (torch.randn(2, 3) @ torch.randn(3, 4)).exp()


def test_policy_by_module_and_operation():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    rules = {"aten.mm": "fp32", "1": "e5m2*e5m2+e6m5.rn", "*": "bf16*bf16+fp32.rn"}
    with golden.emulate(rules) as run:
        model(torch.randn(2, 4)) @ torch.randn(4, 2)
    found = {(row.module, row.operation): row.arithmetic for row in run.report().rows}
    assert found["0", "addmm"] == "bf16*bf16+fp32.rn"
    assert found["1", "addmm"] == "e5m2*e5m2+e6m5.rn"
    assert found["", "mm"] == "fp32"


def test_stochastic_rounding_follows_seed():
    x = torch.rand(64)

    def run(seed):
        with golden.emulate("e5m2*e5m2+e6m5.sr8, elementwise=e5m2.sr4", seed=seed):
            return torch.stack([x + x, x * x, x.reshape(8, 8) @ x.reshape(8, 8)[:, :1].expand(8, 8)][:2])

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    with golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=e5m2.sr4"):
        x = golden.decode(golden.encode(x, "e5m2"), "e5m2").float()
        assert not torch.equal(x * x, x * x)


def test_report_has_a_row_for_each_gradient_of_a_convolution():
    layer, x = nn.Conv2d(2, 3, 3), torch.randn(1, 2, 5, 5, requires_grad=True)
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=bf16.rn", values=True) as run:
        layer(x).sum().backward()
    rows = {row.phase: row.macs for row in run.report().rows if row.kind == "product"}
    assert rows == dict.fromkeys(["forward", "input_gradient", "weight_gradient"], 3 * 9 * 2 * 9)
    policy = Policy.of("bf16*bf16+fp32.rn", input_gradient="fp32", elementwise="bf16.rn")
    with pytest.raises(RuntimeError, match="input_gradient"), golden.emulate(policy, strict=True):
        layer(x).sum().backward()


def test_passes_round_an_operand_with_the_same_words():
    layer, x = nn.Linear(8, 6, bias=False), torch.eye(8, requires_grad=True)
    gradient = torch.randn(8, 6)
    with golden.emulate("e5m2*e5m2+fp32.rn, weights=e5m2.sr4, gradients=e5m2.sr4"):
        y = layer(x)
        y.backward(torch.eye(8, 6))
        rounded = y.detach().clone()
        assert torch.equal(x.grad[:6], rounded.T)
    weight, x = nn.Parameter(torch.eye(6, 8)), torch.eye(8, requires_grad=True)
    with golden.emulate("e5m2*e5m2+fp32.rn, gradients=e5m2.sr4"):
        (x @ weight.T).backward(gradient)
    assert torch.equal(x.grad[:, :6], weight.grad.T)


def test_slices_of_a_tensor_have_gradients_in_two_phases():
    x = torch.randn(4, 6, requires_grad=True)
    with golden.emulate(BF16) as run:
        q, k = x.chunk(2, -1)
        (q @ k.mT).sum().backward()
    phases = Counter(row.phase for row in run.report().rows if row.macs)
    assert phases == dict.fromkeys(["forward", "input_gradient", "weight_gradient"], 1)


def test_weight_first_and_bias_give_the_same_sums():
    torch.manual_seed(0)
    weight, x, bias = nn.Parameter(torch.randn(3, 4)), torch.randn(4, 5), torch.randn(5)
    policy = "e5m2*e4m3fn+e6m5.rn, elementwise=bf16.rn"
    with golden.emulate(policy):
        found = torch.addmm(bias, weight, x), torch.addmm(bias, weight.detach().clone(), x)
    # A parameter is operand b, wherever it stands.
    codes = golden.encode(x.T, "e5m2"), golden.encode(weight.detach().T, "e4m3fn")
    start = golden.encode(bias.detach().unsqueeze(1), "e6m5")
    wanted = golden.decode(golden.gemm(*codes, "e5m2*e4m3fn+e6m5.rn", start=start), "e6m5")
    assert torch.equal(found[0].detach().T.double(), wanted)
    assert not torch.equal(found[0], found[1])


def test_emulation_ends_after_exception():
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    with pytest.raises(ZeroDivisionError), golden.emulate(BF16):
        1 / 0  # noqa: B018  # raises
    x = torch.full((3,), 1 + 2.0**-20)
    assert torch.equal(x * x, x.double().square().float())
    assert (torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()) == (fast, onednn)
    found = []
    with golden.emulate(BF16):
        thread = threading.Thread(target=lambda: found.append(x * x))
        thread.start()
        thread.join()
    assert torch.equal(found[0], x.double().square().float())


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_emulate_sees_compiled_and_inference_code(backend):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.randn(2, 4)
    compiled = torch.compile(model, backend=backend)
    compiled(x)
    with golden.emulate(BF16, strict=True) as run, torch.inference_mode():
        wanted = model(x)
        assert torch.equal(compiled(x), wanted)
    assert sum(row.calls for row in run.report().rows if row.operation == "addmm") == 2


def test_emulate_nests():
    x = torch.full((3,), 1 + 2.0**-7)
    rounded = (x * x).bfloat16().float()
    with golden.emulate(BF16) as run:
        with run:
            assert torch.equal(x * x, rounded)
        assert torch.equal(x * x, rounded)
    assert not torch.equal(x * x, rounded)


def test_inner_context_decides(monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    x = torch.full((3,), 1 + 2.0**-7)
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=e5m2.rn") as outer, golden.emulate(BF16) as inner:
        found = x * x
    assert torch.equal(found, (x * x).bfloat16().float())
    assert (len(outer.report().rows), len(inner.report().rows)) == (0, 1)


def test_contexts_of_threads_are_separate():
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4)
    with golden.emulate(BF16):
        wanted = model(x)
    found, run = [], golden.emulate(BF16)
    started = threading.Barrier(2)

    def thread():
        started.wait()
        with run:
            found.extend(model(x) for _ in range(20))

    threads = [threading.Thread(target=thread) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 40
    assert all(torch.equal(one, wanted) for one in found)
    assert sum(row.calls for row in run.report().rows if row.operation == "addmm") == 40
    assert (torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()) == (fast, onednn)


def test_products_without_a_policy_count_against_the_share():
    layers = nn.ModuleList([nn.Linear(4, 3), nn.Conv2d(2, 3, 3, groups=1)])
    with golden.emulate({"1": "bf16*bf16+fp32.rn"}) as run:
        layers[0](torch.ones(2, 4)).sum().backward()
        layers[1](torch.ones(1, 2, 5, 5)).sum().backward()
    macs = Counter()
    for row in run.report().rows:
        macs[row.operation, row.arithmetic == "fp32"] += row.macs
    assert macs["addmm", True] == macs["mm", True] == 2 * 4 * 3
    assert sum(macs.values()) == 2 * 2 * 4 * 3 + 2 * 9 * 3 * 2 * 9
    assert run.report().share < 1


def test_product_with_a_parameter_on_the_left_is_contiguous():
    weight = nn.Parameter(torch.randn(3, 4))
    with golden.emulate(BF16, strict=True):
        assert torch.equal((weight @ torch.ones(4, 2)).view(-1), (weight @ torch.ones(4, 2)).flatten())


def test_interpolation_finds_places_in_narrow_formats():
    x = torch.zeros(1, 1, 40, requires_grad=True)
    x.data[0, 0, 33] = 1
    wanted = F.interpolate(x, 100, mode="linear")
    with golden.emulate("e5m2*e5m2+fp32.rn, elementwise=e5m2.rn", strict=True):
        found = F.interpolate(x, 100, mode="linear")
        found.sum().backward()
    assert torch.equal(found != 0, wanted != 0)
    assert (x.grad > 0).all()


def test_gradient_of_weight_norm_has_the_value_of_torch():
    layer, x = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), torch.randn(5, 4)
    layer(x).square().sum().backward()
    wanted = [one.grad.clone() for one in layer.parameters()]
    layer.zero_grad()
    with golden.emulate("fp32*fp32+fp32.rn, elementwise=fp32.rn", strict=True):
        layer(x).square().sum().backward()
    for found, gradient in zip(layer.parameters(), wanted, strict=True):
        torch.testing.assert_close(found.grad, gradient)


def test_optimizer_with_lists_has_the_bits_of_one_by_one():
    found = []
    for foreach in (False, True):
        weight = nn.Parameter(torch.linspace(-1, 1, 6))
        optimizer = torch.optim.AdamW([weight], amsgrad=True, foreach=foreach)
        with golden.emulate(BF16, strict=True):
            for _ in range(2):
                weight.square().sum().backward()
                optimizer.step()
        found.append(weight.detach())
    assert torch.equal(*found)


def test_remainder_has_the_sign_of_the_divisor():
    x = torch.tensor([-5.0, -0.5, 0.0, 0.5, 5.0])
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=bf16.rn", strict=True):
        assert torch.equal(x % 3, torch.remainder(x, 3))
        assert torch.equal(torch.remainder(x, -3.0), torch.tensor([-2, -0.5, 0, -2.5, -1]))


def test_random_words_continue_when_a_context_is_entered_again():
    x, run = torch.rand(64), golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=e5m2.sr4")
    found = []
    for _ in range(2):
        with run:
            found.append(x * x)
    assert not torch.equal(*found)


def test_step_that_raises_ends_the_update():
    class Failing(torch.optim.SGD):
        @torch.no_grad()
        def step(self):
            self.param_groups[0]["params"][0].mul_(2)
            raise ZeroDivisionError

    weight = nn.Parameter(torch.ones(3))
    with golden.emulate(BF16) as run:
        with pytest.raises(ZeroDivisionError):
            Failing([weight]).step()
        (weight + 1).sum()
    phases = {row.operation: row.phase for row in run.report().rows}
    assert phases == {"mul": "update", "add": "forward", "sum": "forward"}


def test_closure_of_optimizer_is_no_update():
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(x).sigmoid().square().mean()
        loss.backward()
        return loss

    with golden.emulate(BF16, strict=True) as run:
        optimizer.step(closure)
    phases = {(row.operation, row.phase) for row in run.report().rows}
    assert {("addmm", "forward"), ("sigmoid", "forward"), ("mm", "weight_gradient")} <= phases
    assert "update" in {phase for _, phase in phases}
    assert ("sigmoid", "update") not in phases


def test_emulate_refuses_to_decorate_generators_and_coroutines():
    def generator():
        yield

    async def coroutine():
        pass

    for one in (generator, coroutine):
        with pytest.raises(TypeError, match="decorates no"):
            golden.emulate(BF16)(one)


def test_policy_of_composition_reaches_its_parts():
    x = torch.randn(3, 5)
    with golden.emulate({"aten._softmax": BF16}) as run:
        x.softmax(-1)
        x.exp()
    found = {(row.operation, row.arithmetic) for row in run.report().rows}
    assert found >= {("sub", "bf16.rn"), ("exp", "e5m2.rn"), ("exp", "fp32"), ("div", "bf16.rn")}


def test_emulate_decorates_function():
    @golden.emulate(BF16)
    def square(x):
        return x * x

    x = torch.full((3,), 1 + 2.0**-7)
    assert torch.equal(square(x), (x * x).bfloat16().float())
    assert not torch.equal(square(x), x * x)


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
        torch.empty(0, 3),
        torch.tensor(1.3),
        torch.randn(4, 6)[::2, ::3].T,
        torch.randn(5, dtype=torch.float64),
        torch.randn(5, dtype=torch.bfloat16),
    ],
)
def test_elementwise_takes_tensors_of_all_kinds(x):
    # The exact result in binary64, rounded once; torch gives it for numbers of bf16.
    rounded = x.bfloat16()
    with golden.emulate(BF16, strict=True):
        product, total = x * x, x.clone().add_(1)
    assert product.dtype == x.dtype
    assert product.stride() == (x * x).stride()
    torch.testing.assert_close(product, (rounded * rounded).to(x.dtype), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(total, (rounded + 1).to(x.dtype), rtol=0, atol=0, equal_nan=True)


def test_real_results_of_integers_are_rounded():
    x = torch.arange(1, 5)
    with golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=e5m2.rn", strict=True) as run:
        found = x / 3, x * 0.3
        assert (x + x).tolist() == [2, 4, 6, 8]
    for numbers, exact in zip(
        found, (x.double() / 3, x * float(golden.decode(golden.encode(0.3, "e5m2"), "e5m2"))), strict=True
    ):
        assert torch.equal(numbers.double(), golden.decode(golden.encode(exact, "e5m2"), "e5m2"))
    assert len(run.report().rows) == 2


@pytest.mark.parametrize(
    ("dtype", "policy"),
    [
        (torch.float16, BF16),
        (torch.float64, "bf16*bf16+fp64.rn, elementwise=bf16.rn, reductions=fp64.rn pairwise"),
    ],
)
def test_emulate_rejects_formats_that_would_round_twice(dtype, policy):
    x = torch.ones(3, dtype=dtype)
    with pytest.raises(ValueError, match="hold"), golden.emulate(policy):
        (x + x).sum()


def test_emulate_differentiates_twice():
    x = torch.randn(4, 3, requires_grad=True)
    with golden.emulate(BF16, strict=True):
        (first,) = torch.autograd.grad((x @ x.T).square().sum(), x, create_graph=True)
        first.square().sum().backward()
    assert x.grad.isfinite().all()


EDGES = {
    "product of no terms": lambda: torch.ones(2, 0) @ torch.ones(0, 3),
    "product of no rows": lambda: torch.bmm(torch.empty(0, 2, 3), torch.empty(0, 3, 2)),
    "start values of no terms": lambda: torch.addmm(torch.ones(3), torch.ones(2, 0), torch.ones(0, 3)),
    "convolution of no images": lambda: F.conv2d(torch.empty(0, 3, 5, 5), torch.ones(2, 3, 3, 3)),
    "gradient of no rows": lambda: torch.func.grad(lambda w: F.linear(torch.empty(0, 3), w, torch.ones(2)).sum())(
        torch.ones(2, 3)
    ),
    "sums of nothing": lambda: torch.cat(
        [torch.empty(0, 3).sum(0), torch.empty(3, 0).sum(1), torch.empty(0, 2).mean(0)]
    ),
    "products of nothing": lambda: torch.cat([torch.empty(0, 3).prod(0), torch.empty(0).cumsum(0)]),
    "0 dimensions": lambda: torch.stack(
        [one(torch.tensor(2.0), 0) for one in (torch.sum, torch.prod, torch.cumsum, torch.cumprod, torch.softmax)]
    ),
    "NaN and infinities": lambda: (
        torch.tensor([[math.nan, math.inf], [math.inf, 0]]) @ torch.tensor([[1, 0], [0, math.inf]])
    ),
    "transposition in place": lambda: torch.arange(4.0).reshape(2, 2).mul(2).t_().add_(1).unsqueeze_(0),
    "forward derivative": lambda: torch.stack(
        torch.func.jvp(lambda x: (x @ x).square(), (torch.ones(3),), (torch.ones(3),))
    ),
    "jacobian": lambda: torch.func.jacfwd(lambda x: (x @ x).square())(torch.ones(3)),
    "vmap": lambda: torch.func.vmap(lambda a, b: (a @ b) * 2)(torch.ones(2, 3), torch.ones(2, 3)),
}


@pytest.mark.parametrize("name", EDGES)
def test_emulate_takes_edge_cases_of_torch(name):
    with golden.emulate(BF16, strict=True):
        found = EDGES[name]()
    torch.testing.assert_close(found, EDGES[name](), rtol=0, atol=0, equal_nan=True)


def test_converted_layers_report_their_own_arithmetic():
    model = convert(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), "e5m2*e5m2+e6m5.sr4").model
    with golden.emulate(BF16, strict=True) as run:
        model(torch.randn(2, 4, requires_grad=True)).sum().backward()
    rows = {row.operation: (row.arithmetic, row.macs) for row in run.report().rows if row.macs}
    assert rows == {
        "matmul": ("e5m2*e5m2+e6m5.sr4", 2 * 4 * 3),
        "matmul_gradients": ("e5m2*e5m2+e6m5.sr4", 2 * 2 * 4 * 3),
    }


def test_emulate_takes_long_sums():
    x = torch.ones(1, 65536)
    with golden.emulate("bf16*bf16+bf16.rn, elementwise=bf16.rn", strict=True):
        # Sums of ones end at 2^8, at which the last place is 2.
        assert float(x @ x.T) == 256
        assert float(x.sum()) == 256


def test_views_and_operations_in_place_share_memory():
    with golden.emulate(BF16, strict=True):
        x = torch.ones(2, 3)
        x[0].mul_(3)
        x.T[1].add_(1)
        out = torch.empty(2, 3)
        torch.add(x, 1, out=out)
    assert x.tolist() == [[3, 4, 3], [1, 2, 1]]
    assert torch.equal(out, x + 1)


def test_checkpoint_repeats_forward_arithmetic():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    with golden.emulate("e5m2*e5m2+e6m5.rn, elementwise=bf16.rn") as run:
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    calls = Counter()
    for row in run.report().rows:
        calls[row.phase, row.operation] += row.calls
    # The last product need not run again.
    assert calls["forward", "addmm"] == 3
    assert calls["input_gradient", "mm"] == calls["weight_gradient", "mm"] == 2


class _Energy(nn.Module):
    """Model whose result is the gradient of a product with itself, as that of a force field."""

    def __init__(self, reentrant=None):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), reentrant

    def energy(self, x):
        return self.inner(x.exp()) * x

    def forward(self, x):
        if self.reentrant is None:
            return self.energy(x)
        return torch.utils.checkpoint.checkpoint(self.energy, x, use_reentrant=self.reentrant)


OUTER = {
    "name": {"0": "fp32*fp32+fp32.rn, elementwise=fp32.rn", "*": "e5m2*e5m2+e6m5.rn, elementwise=e6m5.rn"},
    "class": {_Energy: "fp32*fp32+fp32.rn, elementwise=fp32.rn", "*": "e5m2*e5m2+e6m5.rn, elementwise=e6m5.rn"},
}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("policy", OUTER)
def test_recomputed_region_has_the_modules_around_it(policy, reentrant):
    model = nn.Sequential(_Energy(), nn.Linear(4, 3))
    found = []
    for model[0].reentrant in (None, reentrant):
        x = torch.linspace(-2, 2, 8).reshape(2, 4).requires_grad_()
        model.zero_grad()
        with golden.emulate(OUTER[policy]) as run:
            model(x).sum().backward()
        found.append([x.grad, *(one.grad for one in model.parameters())])
        where = {(row.module, row.operation, row.arithmetic) for row in run.report().rows}
        found[-1].append(where)
    assert found[0][-1] == found[1][-1]
    assert all(torch.equal(one, other) for one, other in zip(found[0][:-1], found[1][:-1], strict=True))


def test_backward_pass_inside_a_module_is_the_phase_backward():
    class Force(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 1)

        def forward(self, x):
            return torch.autograd.grad(self.inner(x).square().sum(), x)[0]

    x = torch.randn(2, 4, requires_grad=True)
    with golden.emulate({"@backward": "bf16*bf16+fp32.rn, elementwise=bf16.rn"}) as run:
        Force()(x)
    found = {row.operation for row in run.report().rows if row.arithmetic.startswith("bf16")}
    assert found == {"pow", "mul", "mm"}


@pytest.mark.parametrize(
    "policy",
    [
        "bf16*bf16+fp32.rn, elementwise=rn",
        "bf16*bf16+fp32.rn, elementwise=posit32",
        "bf16*bf16+fp32.rn, reductions=backwards",
    ],
)
def test_emulate_refuses_invalid_policy(policy):
    with pytest.raises(ValueError, match=r"elementwise|reduction"):
        golden.emulate(policy)


def test_layers_refuse_arithmetic_of_programs():
    with pytest.raises(ValueError, match=r"golden\.emulate"):
        convert(nn.Linear(2, 2), BF16)


def test_policy_of_program_prints_and_parses():
    text = "bf16*bf16+fp32.rn, elementwise=bf16.rn, functions=fp16.rn, reductions=fp32.rn pairwise, optimizer=fp32.rn"
    assert str(Policy.parse(text)) == text
    assert mix(1) != mix(2)


def test_emulate_refuses_export():
    """The process stays alive, and a module that is exported before runs in the arithmetic of the policy."""
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    with golden.emulate("bf16*bf16+bf16.rn"):
        with pytest.raises(RuntimeError, match="export"):
            torch.export.export(model, (x,))
        expected = model(x)
    exported = torch.export.export(model, (x,)).module()
    with golden.emulate("bf16*bf16+bf16.rn"):
        assert torch.equal(exported(x), expected)


@pytest.mark.parametrize("part", ["elementwise=bf16.rn", "elementwise=fp32.rn"])
def test_emulate_in_place_operands_share_memory(part):
    """Operations in place whose other operand is the changed tensor, or that have several parts."""
    changes = {
        "sub_": (lambda x: (x,), {"alpha": 0.3}),
        "div_": (lambda x: (torch.arange(1.0, 6),), {}),
        "pow_": (lambda x: (3,), {}),
    }
    for name, (operands, named) in changes.items():
        x = torch.randn(5, 5)
        with golden.emulate(f"bf16*bf16+fp32.rn, {part}"):
            expected = getattr(x, name.removesuffix("_"))(*operands(x), **named)
            found = getattr(x, name)(*operands(x), **named)
        assert found is x
        assert torch.equal(x, expected)


REFUSED_WRITES = {
    "overlapping view": lambda t: t[1:].add_(t[:-1]),
    "transposed view": lambda t: t.reshape(2, 2).mul_(t.reshape(2, 2).t()),
    "broadcast view": lambda t: t.reshape(2, 2).mul_(t[:2]),
    "expanded tensor": lambda t: t[:1].expand(4).add_(torch.ones(4)),
    "integers in place": lambda t: t.long().add_(t),
    "integers for results": lambda t: torch.add(t, 1, out=t.long()),
    "results in an operand": lambda t: torch.add(t[1:], 1, out=t[:-1]),
    "larger result": lambda t: t[:1].add_(t.clone()),
}


@pytest.mark.parametrize("name", REFUSED_WRITES)
def test_emulate_refuses_writes_that_torch_refuses(name):
    with pytest.raises(RuntimeError) as wanted:
        REFUSED_WRITES[name](torch.ones(4))
    with golden.emulate(BF16, strict=True), pytest.raises(RuntimeError) as found:
        REFUSED_WRITES[name](torch.ones(4))
    assert str(found.value) == str(wanted.value)


REFUSED_ARGUMENTS = {
    "vectors of other lengths": lambda t: torch.dot(t, t[:2]),
    "dilation of zero": lambda t: F.conv1d(t.reshape(1, 1, 4), t[:2].reshape(1, 1, 2), dilation=0),
    "rows of another shape": lambda t: t.reshape(2, 2).index_add(0, torch.tensor([0]), t[:2]),
    "index out of bounds": lambda t: t.scatter_add(0, torch.tensor([4]), t[:1]),
    "row out of bounds": lambda t: t.index_add(0, torch.tensor([7]), t[:1]),
    "divisor of zero": lambda t: F.avg_pool2d(t.reshape(1, 2, 2), 2, divisor_override=0),
    "approximation without a name": lambda t: F.gelu(t, approximate="exact"),
}


@pytest.mark.parametrize("name", REFUSED_ARGUMENTS)
def test_emulate_raises_errors_of_torch(name):
    with pytest.raises((RuntimeError, IndexError)) as wanted:
        REFUSED_ARGUMENTS[name](torch.ones(4))
    with golden.emulate(BF16, strict=True), pytest.raises(type(wanted.value)) as found:
        REFUSED_ARGUMENTS[name](torch.ones(4))
    assert str(found.value) == str(wanted.value)


NUMBERS = {
    "decimals": lambda: torch.tensor([0.123, -2.345, 7.0]).round(decimals=2),
    "decimals in place": lambda: torch.tensor([0.123, -2.345, 7.0]).round_(decimals=2),
    "real steps": lambda: torch.arange(0, 1, 0.1),
    "points": lambda: torch.linspace(0, 1, 7),
    "largest numbers": lambda: torch.tensor([math.nan, math.inf, -math.inf, 0.3]).nan_to_num(),
    "sums at places": lambda: torch.full((2,), 0.3).scatter_(0, torch.tensor([0]), torch.tensor([0.3]), reduce="add"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_new_numbers_are_rounded_and_reported(name):
    policy = "bf16*bf16+bf16.rn, elementwise=bf16.rn"
    with golden.emulate(policy, strict=True) as run:
        found = NUMBERS[name]()
    rows = [row for row in run.report().rows if row.arithmetic.startswith("bf16")]
    assert rows
    # Numbers at which nothing was added stay as they are.
    numbers = found[:1] if name == "sums at places" else found
    assert torch.equal(numbers, numbers.bfloat16().float())
    torch.testing.assert_close(found.clamp(-3e38, 3e38), NUMBERS[name]().clamp(-3e38, 3e38), rtol=3 * 2**-8, atol=0)
    with pytest.raises(RuntimeError, match=r"elementwise|forward"), golden.emulate("fp32", strict=True):
        NUMBERS[name]()


def test_sequences_of_integers_are_constants():
    with golden.emulate("fp32", strict=True) as run:
        assert torch.arange(0, 4, dtype=torch.float32).tolist() == torch.linspace(0, 3, 4).tolist() == [0, 1, 2, 3]
    assert not run.report().rows


OTHER_OVERLOADS = {
    "round.decimals": "multiplies and divides by a power of ten",
    "scatter.reduce": "adds or multiplies",
    "scatter.value_reduce": "adds or multiplies",
    "index.list_Tensor": "selects from a list in TorchScript, and no tensor reaches it",
}
"""Overloads without a place in the table of operations that round nothing, and the reasons."""


def test_every_overload_of_exact_operations_is_classified():
    """A new overload in torch, or a new operation of the table without its overloads, needs a decision."""
    exact = {name for names in EXACT_OVERLOADS.values() for name in names.split()}
    packets = {name.partition(".")[0] for name in exact}
    found = set()
    for name, namespace in itertools.product(sorted(packets | {f"{one}_" for one in packets}), ("aten", "prims")):
        packet = getattr(getattr(torch.ops, namespace), name, None)
        for overload in () if packet is None else packet.overloads():
            func = getattr(packet, overload)
            tensors = [one for one in (*func._schema.arguments, *func._schema.returns) if str(one.type) == "Tensor"]
            # Overloads without tensors, and those of lists and dictionaries, belong to TorchScript.
            if tensors and not any(str(one.type).startswith("Dict") for one in func._schema.arguments):
                key = str(dispatch.functional(func)).removeprefix(f"{namespace}.").removesuffix(".default")
                if not dispatch.is_exact(func):
                    found.add(key)
    assert found == set(OTHER_OVERLOADS)


@pytest.mark.slow
@pytest.mark.parametrize("number", ["bf16.rn", "fp16-ftz.rz", "bf16.sr8", "fp32.rn"])
def test_gradients_of_gates_in_one_call_have_bits_and_rows_of_their_parts(number, monkeypatch):
    def step():
        torch.manual_seed(3)
        cells, x = nn.LSTMCell(6, 8), torch.randn(2, 3, 6)
        cells.weight_hh.data[0] *= 1e30
        with golden.emulate(f"bf16*bf16+fp32.rn, elementwise={number}") as run:
            cells(x[1], cells(x[0]))[0].square().sum().backward()
        rows = [dataclasses.replace(row, seconds=0.0) for row in run.report().rows]
        return [one.grad for one in cells.parameters()], sorted(rows, key=str)

    monkeypatch.setenv("HALFULP_KERNEL", "native")
    calls = []
    monkeypatch.setattr(dispatch, "chained", lambda *given: calls.append(chained(*given)) or calls[-1])
    found, rows = step()
    assert all((one is not None) == (number in ("bf16.rn", "fp16-ftz.rz")) for one in calls)
    assert calls
    monkeypatch.setattr(dispatch, "CHAINS", {})
    wanted, wanted_rows = step()
    assert all(
        torch.equal(one.view(torch.int32), other.view(torch.int32)) for one, other in zip(found, wanted, strict=True)
    )
    assert rows == wanted_rows


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_emulate_refuses_nested_tensors(layout):
    x = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)
    with golden.emulate(BF16), pytest.raises(ValueError, match="nested"):
        _ = x * 2
