"""Operators of users: in matrix products against products of tabulated terms with 1, and in programs."""

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import emulate
from halfulp.golden.nn import Policy
from halfulp.golden.nn.elementwise import ARITHMETIC
from halfulp.golden.operators import operator
from halfulp.golden.products import approximate
from halfulp.golden.program.arithmetic import ARITHMETIC as KERNELS
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import MacSpec


def truncated(x, y):
    return (x - x % 2.0**-4) * (y - y % 2.0**-4)


def added(x, y):
    return x - x % 0.125 + y


@pytest.fixture(autouse=True)
def registered():
    golden.register_operator("truncated", truncated, "e4m3fn", "e4m3fn", o="bf16", values=True)
    golden.register_operator("wide", lambda x, y: x * y * 0.75, "bf16", "bf16", values=True)
    golden.register_operator("added", added, "bf16", "bf16", values=True)


def terms(a, b):
    """Products of all elements, of shape (n, m, k)."""
    x, y = (golden.decode(golden.encode(values, "e4m3fn"), "e4m3fn") for values in (a, b))
    return golden.encode(truncated(x[:, None, :], y.mT[None]), "bf16")


@pytest.mark.parametrize(
    ("mac", "options"),
    [
        ("{}+fp32.rn", {}),
        ("{}+exact=fp16", {}),
        ("{}+e6m5.sr10", {"source": "philox", "seed": 3, "first_step": 5}),
        ("{}+e6m5.sr10@lfsr16", {"seed": 77}),
        ("{}+fxp8.8.rd", {}),
    ],
)
@pytest.mark.parametrize("elements", [1 << 20, 40])
def test_product_with_a_multiplier_adds_its_results(mac, options, elements, monkeypatch):
    monkeypatch.setattr(approximate, "ELEMENTS", elements)
    torch.manual_seed(2)
    a, b = torch.randn(6, 9), torch.randn(9, 4)
    start = golden.encode(torch.randn(6, 4), MacSpec.parse(mac.format("bf16*bf16")).o)
    made = golden.gemm(a, b, mac.format("e4m3fn*e4m3fn"), multiplier="truncated", start=start, **options)
    ones = golden.encode(torch.ones(9, 1), "bf16")
    rows = terms(a, b).reshape(24, 9)
    assert torch.equal(
        made, golden.gemm(rows, ones, mac.format("bf16*bf16"), start=start.reshape(24, 1), **options).reshape(6, 4)
    )
    assert not torch.equal(made, golden.gemm(a, b, mac.format("e4m3fn*e4m3fn"), start=start, **options))


def test_product_with_an_adder_takes_each_step_by_it():
    torch.manual_seed(2)
    a, b = torch.randn(2, 6, 9), torch.randn(9, 4)
    made = golden.gemm(a, b, "e4m3fn*e4m3fn+bf16", multiplier="truncated", adder="added")
    for batch in range(2):
        products, total = golden.decode(terms(a[batch], b), "bf16"), torch.zeros(6, 4, dtype=torch.float64)
        for step in range(9):
            total = golden.decode(golden.encode(added(total, products[..., step]), "bf16"), "bf16")
        assert torch.equal(golden.decode(made[batch], "bf16"), total)
    rounded = golden.gemm(a, b, "e4m3fn*e4m3fn=bf16.rz+bf16", adder="added")
    x, y = (golden.decode(golden.encode(values, "e4m3fn"), "e4m3fn") for values in (a[0], b))
    total = torch.zeros(6, 4, dtype=torch.float64)
    for step in range(9):
        product = golden.decode(golden.encode(x[:, step, None] * y[step], "bf16", "rz"), "bf16")
        total = golden.decode(golden.encode(added(total, product), "bf16"), "bf16")
    assert torch.equal(golden.decode(rounded[0], "bf16"), total)


def test_empty_products_with_an_operator_are_their_start_values():
    start = golden.encode(torch.randn(2, 3), "fp32")
    for n, k, m in ((2, 0, 3), (0, 4, 3), (2, 4, 0)):
        made = golden.gemm(torch.ones(n, k), torch.ones(k, m), "e4m3fn*e4m3fn+fp32", multiplier="truncated")
        assert torch.equal(made, torch.zeros(n, m, dtype=torch.int64))
    given = {"multiplier": "truncated", "start": start}
    assert torch.equal(golden.gemm(torch.ones(2, 0), torch.ones(0, 3), "e4m3fn*e4m3fn+fp32", **given), start)


def test_operator_that_is_registered_again_is_checked_at_the_next_product():
    model = golden.nn.convert(torch.nn.Linear(4, 2), "e4m3fn*e4m3fn+fp32.rn, multiplier=truncated").model
    golden.register_operator("truncated", lambda x, y: x * y, "bf16", "bf16", values=True)
    with pytest.raises(ValueError, match="operands in bf16, bf16, and e4m3fn, e4m3fn are needed"):
        model(torch.ones(3, 4))


def test_operators_of_wide_formats_are_functions_without_tables():
    calls = []

    def counted(x, y):
        calls.append(x.numel())
        return x & y

    golden.register_operator("counted", counted, "fp16", "fp16")
    before = len(calls)
    golden.gemm(torch.ones(2, 3), torch.ones(3, 2), "fp16*fp16+fp32", multiplier="counted")
    assert calls[before:] == [12]
    golden.register_operator("counted", counted, "int8", "int8")
    for _ in range(2):
        golden.gemm(torch.ones(2, 3), torch.ones(3, 2), "int8*int8+int32", multiplier="counted")
    assert calls.count(1 << 16) == 1


def products(a, b, o):
    """Codes of the products of all pairs of codes, some of them changed as in an approximate multiplier."""
    x = torch.arange(1 << parse(a).width).unsqueeze(1)
    return golden.mul(x, torch.arange(1 << parse(b).width), a=a, b=b, o=o) & ~15


@pytest.mark.parametrize("kind", ["matrix", "row", "numpy", "own type"])
def test_ready_table_is_the_operator_of_its_function(kind):
    a, b, o = ("e4m3fn", "e5m2", "bf16") if kind == "own type" else ("int8", "e3m2", "int8")
    table = products(a, b, o)
    golden.register_operator("of_function", lambda x, y: products(a, b, o)[x, y], a, b, o=o)
    given = {
        "matrix": table,
        "row": table.reshape(-1),
        "numpy": table.numpy().astype(np.uint8),
        "own type": table.to(torch.int16).view(torch.bfloat16),
    }[kind]
    golden.register_operator("of_table", given, a, b, o=o)
    given[:] = 0
    torch.manual_seed(3)
    x, y = torch.randn(6, 9) * 9, torch.randn(9, 4)
    mac = f"{a}*{b}+fp32.rn"
    made = [golden.gemm(x, y, mac, multiplier=name) for name in ("of_table", "of_function")]
    assert torch.equal(*made)
    assert not torch.equal(made[0], golden.gemm(x, y, mac))
    layer = torch.nn.Linear(9, 4)
    layers = [golden.nn.convert(layer, f"{mac}, multiplier={name}").model(x) for name in ("of_table", "of_function")]
    assert torch.equal(*layers)
    with emulate(f"{mac}, multiplier=of_table"):
        assert torch.equal(layer(x), layers[0])


def test_table_of_one_operand_is_a_function_and_wide_tables_are_read():
    golden.register_operator("half", torch.arange(256) // 2, "e4m3fn")
    x = torch.randn(40)
    expected = golden.decode(golden.encode(x, "e4m3fn") // 2, "e4m3fn").float()
    with emulate("fp32, functions=tanh=half"):
        assert torch.equal(torch.tanh(x), expected)
    wide = golden.register_operator("wide_table", torch.arange(1 << 18) % 4096, "e4m3fn", "e4m5", o="fp16")
    codes = torch.tensor([0, 255]), torch.tensor([3, 1023])
    assert wide(*codes).tolist() == [3, 4095]


@pytest.mark.parametrize("kind", ["layer", "program"])
def test_policy_multiplies_by_an_operator_in_forward_and_gradients(kind):
    torch.manual_seed(4)
    model, x = torch.nn.Linear(8, 3, bias=False), torch.randn(5, 8)
    policy = "e4m3fn*e4m3fn+fp32.rn, multiplier=truncated"
    assert str(Policy.parse(policy)) == policy
    if kind == "layer":
        result = golden.nn.convert(model, policy).model(x)
        result.sum().backward()
    else:
        with emulate(policy):
            result = model(x)
            result.sum().backward()
            assert model.weight.grad is not None
    expected = golden.gemm(x, model.weight.detach().mT, "e4m3fn*e4m3fn+fp32.rn", multiplier="truncated")
    assert torch.equal(result.detach().double(), golden.decode(expected, "fp32"))


def test_functions_and_products_of_elements_are_replaced_everywhere():
    policy = "e4m3fn*e4m3fn+fp32.rn, elementwise=bf16.rn; mul=wide, functions=tanh=pwl tanh(fxp4.12).rn pieces=3"
    assert str(Policy.parse(policy)) == policy
    own = operator("pwl tanh(fxp4.12) pieces=3")
    torch.manual_seed(4)
    x = torch.randn(5, 8) * 3
    expected = golden.decode(own(golden.encode(x, "fxp4.12", saturate=True)), "fxp4.12").float()
    lstm = torch.nn.LSTM(8, 3)
    with emulate(policy, strict=True) as program:
        for tanh in (torch.tanh, torch.nn.Tanh(), torch.nn.functional.tanh):
            assert torch.equal(tanh(x), expected)
        product = x.to(torch.bfloat16).float() * 2
        result, _ = lstm(x)
        result.sum().backward()
    assert torch.equal(product, (x.to(torch.bfloat16).double() * 2 * 0.75).to(torch.bfloat16).float())
    rows = {row.operation: row.arithmetic for row in program.report().rows}
    assert rows["tanh"] == "tanh=pwl tanh(fxp4.12).rn pieces=3"
    assert rows["mul"] == "mul=wide"
    compiled = torch.compile(lambda given: torch.tanh(given) * given, backend=emulate.backend(policy))(x)
    with emulate(policy):
        assert torch.equal(compiled, torch.tanh(x) * x)


@pytest.mark.slow
def test_exponential_of_a_softmax_is_replaced():
    torch.manual_seed(4)
    x = torch.randn(5, 8)
    with emulate("fp32, elementwise=fp32.rn, reductions=fp32.rn, functions=exp=pwl exp(bf16) pieces=16"):
        own = torch.softmax(x, -1)
        powers = torch.exp(x - x.amax(-1, keepdim=True))
        assert torch.equal(own, powers / powers.sum(-1, keepdim=True))
    with emulate("fp32, elementwise=fp32.rn, reductions=fp32.rn"):
        assert not torch.equal(own, torch.softmax(x, -1))


def test_names_of_arithmetic_are_those_of_the_kernels():
    assert set(ARITHMETIC) == set(KERNELS)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("fp32, elementwise=bf16.rn; tanh=wide", "tanh is a function; give its operator in functions"),
        ("fp32, functions=mul=wide", "mul is an element-wise operation; give its operator in elementwise"),
        ("fp32, functions=tanh=nothing", "unknown operator 'nothing'.*, or give the text of a unit such as 'pwl tanh"),
        ("fp32, elementwise=mul=nothing", r"unknown operator of mul 'nothing'; register it with .* registered\)$"),
        ("bf16*bf16+bf16, multiplier=nothing", r"unknown multiplier 'nothing'; register it with .* registered\)$"),
        ("bf16*bf16+bf16, adder=nothing", r"unknown adder 'nothing'; register it with .* registered\)$"),
        ("fp32, functions=fold=pwl tanh(bf16)", "unknown function 'fold'"),
        ("fp32, functions=tanh=pwl tanh(bf16)>bf16.sr4", "takes no input"),
        ("fp32, functions=tanh=pwl tanh(bf16); tanh=wide", "has two operators"),
        ("fp32, functions=bf16.rn; fp16.rn", "two casts"),
        ("fp32, multiplier=wide", "torch's own arithmetic"),
        ("e4m3fn*e4m3fn+fp32, multiplier=wide", "operands in bf16, bf16, and e4m3fn, e4m3fn are needed"),
        ("e4m3fn*e4m3fn+fp32, multiplier=truncated, device=rtl", "not in the hardware"),
        ("mxfp4*mxfp4+fp32, multiplier=truncated", "products of numbers"),
        ("bf16*bf16+bf16, adder=added", "needs rounded products"),
        ("bf16*bf16=bf16+fp32, adder=added", "operands in bf16, bf16, and fp32, bf16"),
        ("bf16*bf16=bf16+bf16.rz, adder=added", "decides rounding and overflow"),
        ("bf16*bf16=bf16+bf16, multiplier=wide", "omit =bf16"),
    ],
)
def test_operators_without_effect_are_refused(policy, message):
    with pytest.raises((TypeError, ValueError), match=message), emulate(policy):
        pass


def test_function_in_place_of_the_name_of_an_operator_is_refused():
    a = torch.ones(2, 2)
    with pytest.raises(TypeError, match=r"register_operator registered a function, .* not an object of type function"):
        golden.gemm(a, a, "e4m3fn*e4m3fn+fp32.rn", multiplier=truncated)
    with pytest.raises(ValueError, match=r"unknown multiplier 'nothing'; .* registered\)$"):
        golden.gemm(a, a, "e4m3fn*e4m3fn+fp32.rn", multiplier="nothing")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two words", truncated, "bf16"), "one word"),
        (("none", truncated), "give one for each"),
        (("real", truncated, "bf16", "bf16"), "must return a tensor of integer codes"),
        (("beyond", lambda x: x + 300, "e4m3fn"), "codes of 8 bits"),
        (("short", torch.zeros(256), "int8", "int8"), r"shape \(256,\); all codes of int8 and int8 need"),
        (("beyond", torch.full((256,), 256), "e4m3fn"), "table of beyond contains 256; codes of 8 bits are 0 to 255"),
        (("below", np.full(256, -1), "int8"), "table of below contains -1; codes of 8 bits"),
        (("real", torch.zeros(256), "e4m3fn"), "table of real must be a tensor of integer codes"),
        (("number", 3, "e4m3fn"), "operator number must be a function or a table of codes, not int"),
    ],
)
def test_invalid_operators_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        golden.register_operator(*arguments)


def test_table_of_real_numbers_is_refused():
    with pytest.raises(ValueError, match="table of real holds codes; omit values=True"):
        golden.register_operator("real", torch.zeros(256), "e4m3fn", values=True)
