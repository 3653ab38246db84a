"""The compiled element-wise kernel: equal to torch in every format and rounding, for every layout of operands."""

import itertools
import math

import pytest
import torch

from halfulp.golden.kernels import build, elementwise
from halfulp.golden.nn.cast import DTYPES, Cast
from halfulp.golden.program import arithmetic, products
from halfulp.golden.program.arithmetic import compute
from halfulp.hdl.formats import Rounding, parse

FORMATS = (
    *("bf16", "fp16", "fp32", "tf32", "e5m2", "e4m3fn", "e4m3fnuz", "binary8p4", "e2m1fn", "e3m2-fn", "e6m5", "e8m1"),
    *("e5m2-ftz", "bf16-ftz", "e4m3b11fnuz", "e7m16"),
)
ROUNDINGS = ("rn", "ra", "rh", "rhu", "rhd", "rz", "ru", "rd", "ro", "sr1", "sr9", "rn.sat", "ru.sat", "sr4@lfsr16")
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 448.0, 2.0**-9, 0.1)


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Compile the kernel at once, and fail if a call does not use it."""
    monkeypatch.setenv(build.SETTING, "native")


def _numbers(count, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-20, 21, (count,), generator=generator).double()
    values = (torch.randn(count, generator=generator, dtype=torch.float64) * 2**exponents * scale).float()
    pairs = torch.tensor(list(itertools.product(SPECIAL, SPECIAL)))[:, seed]
    return torch.cat([pairs, values])


def _same(x, y):
    """Equality of bits; torch has several NaN in types of 16 bits."""
    if x.dtype.itemsize == 2:
        x, y = x.float().nan_to_num(1e5), y.float().nan_to_num(1e5)
    words = {8: torch.int64, 4: torch.int32}[x.dtype.itemsize]
    return x.dtype == y.dtype and torch.equal(x.contiguous().view(words), y.contiguous().view(words))


def _in_torch(name, operands, cast, key, dtype, monkeypatch):
    with monkeypatch.context() as change:
        change.setenv(build.SETTING, "torch")
        return compute(name, operands, cast, key, dtype)


def _check(name, operands, cast, dtype, monkeypatch):
    found = arithmetic._in_kernel(name, operands, cast, 7, dtype, None, ())
    assert found is not None
    wanted = _in_torch(name, operands, cast, 7, dtype, monkeypatch)
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    assert _same(found, wanted), (name, cast)


@pytest.mark.sampled(90, 4)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("text", FORMATS)
def test_elementwise_kernel_equals_torch_path(text, rounding, monkeypatch):
    cast = Cast.parse(f"{text}.{rounding}")
    narrow = 2.0 ** (cast.fmt.emin + cast.fmt.man // 2)
    for scale in (1.0, narrow):
        x, y = _numbers(300, 0, scale), _numbers(300, 1, scale)
        for name in arithmetic.ARITHMETIC:
            _check(name, (x, y)[: 1 + (name != "sqrt")], cast, torch.float32, monkeypatch)
    if cast.fmt.width <= 16:
        _check("exp", (x,), cast, torch.float32, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("text", ["e5m2.rn", "e4m3fn.ru", "e5m2.sr3"])
def test_elementwise_kernel_reads_and_writes_every_type(text, dtype, monkeypatch):
    cast = Cast.parse(text)
    x, y = _numbers(200, 0).to(dtype), _numbers(200, 1)
    for operands in ((x, x.flip(0)), (x, y), (y, x), (x, 0.3), (0.3, x), (x, torch.arange(len(x)))):
        for name in ("add", "div"):
            _check(name, operands, cast, dtype, monkeypatch)


LAYOUTS = {
    "empty": lambda x: (x[:0], x[:0]),
    "scalar": lambda x: (x[3], x[4]),
    "transposed": lambda x: (x[:48].reshape(6, 8).T, x[48:96].reshape(8, 6)),
    "strided": lambda x: (x[:200:3], x[1:201:3]),
    "rows": lambda x: (x[:96].reshape(4, 4, 6), x[:4].reshape(4, 1)),
    "columns": lambda x: (x[:5].reshape(5, 1), x[5:12]),
    "expanded": lambda x: (x[:5].expand(3, 5), x[5:6].expand(3, 5)),
    "scalar tensor": lambda x: (x[:100], x[3]),
    "channels last": lambda x: (
        x[:120].reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
        x[:3].reshape(1, 3, 1, 1),
    ),
    "many dimensions": lambda x: (x[:128].reshape([2] * 7).permute(6, 2, 0, 4, 1, 3, 5), x[128:130]),
    "flipped": lambda x: (x[:20].reshape(4, 5).flip(0), x[:20].reshape(5, 4).T),
}


@pytest.mark.parametrize("rounding", ["rn", "sr5"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_elementwise_kernel_has_layout_of_torch(layout, rounding, monkeypatch):
    cast = Cast.parse(f"bf16.{rounding}")
    x, y = LAYOUTS[layout](_numbers(2000, 0))
    for operands in ((x, y), (y, x)):
        _check("sub", operands, cast, torch.float32, monkeypatch)
        found = compute("sub", operands, cast, 7, torch.float32)
        assert found.stride() == torch.sub(*operands).stride()


def test_elementwise_kernel_ignores_flush_mode_of_thread(monkeypatch):
    cast, x = Cast.parse("bf16.rn"), torch.tensor([2.0**-130, 1e-45, -(2.0**-133), 3e-39] * 300)
    wanted = compute("add", (x, 0.0), cast, 0, torch.float32)
    torch.set_flush_denormal(True)
    try:
        found = compute("add", (x, 0.0), cast, 0, torch.float32)
    finally:
        torch.set_flush_denormal(False)
    assert _same(found, wanted)
    assert bool((wanted != 0).any())


def test_chain_of_steps_rounds_each_step():
    to = Cast.parse("bf16.rn").target
    x, y = _numbers(5000, 0), _numbers(5000, 1)
    chain = elementwise.KernelChain([x, y])
    product = chain.step("mul", to, chain.step("round", to, 0), chain.step("round", to, 1))
    total = chain.step("add", to, product, product)
    products, sums = torch.empty_like(x), torch.empty_like(y)
    assert chain.run((product, products), (total, sums))
    wanted = compute("mul", (x, y), Cast.parse("bf16.rn"), 0, torch.float32)
    assert _same(products, wanted)
    assert _same(sums, compute("add", (wanted, wanted), Cast.parse("bf16.rn"), 0, torch.float32))


def test_cancelled_sum_is_negative_zero_only_when_rounded_down():
    x = torch.tensor([1.0, -1.0, 0.0, -0.0, 0.0, -0.0])
    y = torch.tensor([-1.0, 1.0, -0.0, 0.0, 0.0, -0.0])
    for rounding, signs in (("rn", "+++++-"), ("rd", "----+-")):
        for kernel in ("native", "torch"):
            with pytest.MonkeyPatch.context() as change:
                change.setenv(build.SETTING, kernel)
                for name, second in (("add", y), ("sub", -y)):
                    found = compute(name, (x, second), Cast.parse(f"fp16.{rounding}"), 0, torch.float32)
                    assert "".join("-" if one else "+" for one in found.signbit().tolist()) == signs


@pytest.mark.parametrize("text", ["posit8.rn", "fxp4.4.rn", "fp64.rn", "e8m0-finite.rn", "e6m5.exact"])
def test_elementwise_kernel_refuses_what_it_cannot_round(text):
    fmt, _, rounding = text.rpartition(".")
    assert elementwise.target(parse(fmt), Rounding.parse(rounding), False) is None


@pytest.mark.sampled(30)
@pytest.mark.parametrize("accumulator", ["fp32.rn", "bf16.rn", "fp16.rd", "e4m3fn.rz.sat", "e5m2.ro", "e6m5-ftz.ra"])
@pytest.mark.parametrize("number", [None, "bf16.rn", "e5m2.ru"])
def test_sums_in_kernel_equal_products_with_one(number, accumulator, monkeypatch):
    kept, cast = Cast.parse(accumulator), number and Cast.parse(number)
    x = _numbers(300, 0, 2.0**-6)[-300:]
    # Cancels, overflows and has NaN in some rows.
    x[:30] = torch.tensor(SPECIAL).repeat(2)
    for values, dims in (
        (x, [0]),
        (x.reshape(10, 30), [1]),
        (x.reshape(30, 10).T, [1]),
        (x.reshape(30, 10), [0]),
        (x.reshape(5, 4, 5, 3), [0, 2]),
        (x.reshape(5, 4, 5, 3).permute(3, 1, 0, 2), [1, 2]),
        (x.reshape(5, 60)[:, ::2], [0, 1]),
        (x.reshape(60, 5), []),
        (x[7], []),
        (x.reshape(150, 2).bfloat16(), [0]),
        (x.reshape(150, 2).double(), [0]),
    ):
        if values.dtype == torch.bfloat16 and accumulator in ("fp32.rn", "fp16.rd"):
            continue
        found = products.total_in_kernel(values, dims, cast, kept)
        assert found is not None
        monkeypatch.setenv(build.SETTING, "torch")
        rest = [one for one in range(values.dim()) if one not in dims]
        shape = [values.shape[one] for one in rest]
        rows = values.permute([*rest, *dims]).reshape(*shape, math.prod(values.shape[one] for one in dims))
        fmt = cast.fmt if cast else DTYPES[values.dtype]
        wanted = products.total(cast.real(rows, 0) if cast else rows, fmt, kept, "sequential", 0)
        monkeypatch.setenv(build.SETTING, "native")
        assert found.dtype == values.dtype
        assert found.shape == wanted.shape
        assert _same(found, wanted)


@pytest.mark.parametrize("columns", [1, 7, 600])
@pytest.mark.parametrize("number", [None, "bf16.rn"])
def test_sums_at_places_in_kernel_equal_torch_path(number, columns, monkeypatch):
    cast, kept = number and Cast.parse(number), Cast.parse("e6m9.rn")
    places = torch.randint(5, (40,), generator=torch.Generator().manual_seed(0))
    into, x = _numbers(6 * columns, 0)[: 6 * columns].reshape(6, -1), _numbers(40 * columns, 1)[-40 * columns :]
    x = x.reshape(columns, 40).T
    found = products.scattered(into, places, x, cast, kept, "sequential", (0, 0))
    assert torch.equal(found[5], into[5])
    monkeypatch.setenv(build.SETTING, "torch")
    assert _same(found, products.scattered(into, places, x, cast, kept, "sequential", (0, 0)))


@pytest.mark.parametrize("text", ["bf16.rn", "tf32.rn", "e8m20.rn"])
def test_dense_sums_in_binary32_lanes_equal_those_in_binary64(text):
    """Dense operands in formats with the range of binary32 have lanes of their own; other layouts do not."""
    generator = torch.Generator().manual_seed(2)
    words, step = torch.randint(-(2**31), 2**31, (2, 30001), generator=generator).int(), 1 << 15
    near = torch.randn(30001, generator=generator)
    pairs = [
        words.view(torch.float32),
        (near, -(near.view(torch.int32) + words[0] % 70000).view(torch.float32)),
        (words // step * step).view(torch.float32),
        [one.reshape(-1) for one in torch.meshgrid(*[torch.tensor(SPECIAL)] * 2, indexing="ij")],
    ]
    for x, y in pairs:
        x, y = x.contiguous(), y.contiguous()
        found = compute("add", (x, y), Cast.parse(text), 0, torch.float32)
        apart = torch.stack([x, x], 1)[:, 0]
        assert _same(found, compute("add", (apart, y), Cast.parse(text), 0, torch.float32))
