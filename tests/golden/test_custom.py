"""Formats given by two functions, against the built-in format that they copy."""

from fractions import Fraction

import pytest
import torch
from amaranth.back import rtlil

from halfulp import golden
from halfulp.golden import emulate, exact
from halfulp.hdl.formats import E5M2, parse
from halfulp.units import Mul


def from_real(x):
    return golden.encode(x, "e5m2")


def to_real(codes):
    return golden.decode(codes, "e5m2")


@pytest.fixture(scope="module")
def copy():
    """Format with the numbers and the rounding of e5m2."""
    return golden.register_format("copy", 8, from_real, to_real)


CODES = torch.arange(256)
NAN = golden.decode(CODES, "e5m2").isnan()


def test_custom_format_has_its_text(copy):
    assert parse("custom:copy") is copy
    assert str(copy) == "custom:copy"
    with pytest.raises(ValueError, match="unknown custom:nothing; register it"):
        parse("custom:nothing")


@pytest.mark.parametrize("operation", ["mul", "add"])
def test_operations_match_the_format_that_is_copied(copy, operation):
    x, y = torch.meshgrid(CODES, CODES, indexing="ij")
    run = getattr(golden, operation)
    assert torch.equal(run(x, y, a=copy, b=copy), run(x, y, a="e5m2", b="e5m2"))
    assert torch.equal(golden.sqrt(CODES, a=copy), golden.sqrt(CODES, a="e5m2"))


@pytest.mark.slow
def test_exact_results_match_the_format_that_is_copied(copy):
    for x in range(0, 256, 7):
        for y in range(0, 256, 5):
            assert exact.mul(x, y, a=copy, b=copy) == exact.mul(x, y, a=E5M2, b=E5M2)


@pytest.mark.parametrize("mac", ["{0}*{0}+fp32.rn", "{0}*bf16+{0}.rn", "bf16*{0}=fp16.rz+e6m5.rn", "{0}*{0}+exact={0}"])
def test_products_match_the_format_that_is_copied(copy, mac):
    torch.manual_seed(5)
    a, b = torch.randn(6, 17), torch.randn(17, 9) * 8
    assert torch.equal(golden.gemm(a, b, mac.format("custom:copy")), golden.gemm(a, b, mac.format("e5m2")))


def test_emulation_and_gradients_match_the_format_that_is_copied(copy):
    def run(fmt):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
        with emulate(f"{fmt}*{fmt}+fp32.rn, elementwise={fmt}.rn, weights={fmt}.rn", strict=True):
            result = torch.softmax(model(torch.randn(5, 8)), -1)
            result.square().sum().backward()
        return [result.detach(), *(parameter.grad for parameter in model.parameters())]

    for own, built_in in zip(run("custom:copy"), run("e5m2"), strict=True):
        assert torch.equal(own, built_in)


def test_scalar_results_are_rounded_once():
    fmt = golden.register_format(
        "coarse", 16, lambda x: (x.abs() * 4).round().nan_to_num(0, 9999).long(), lambda c: c / 4
    )
    # Rounded to 53 bits first, the number would be a tie.
    assert fmt.decode(fmt.encode(Fraction(1, 8) + Fraction(1, 1 << 80))) == Fraction(1, 4)
    assert fmt.decode(fmt.encode(Fraction(1, 8))) == 0


def test_casts_of_torch_are_functions_of_a_format():
    casts = (
        lambda x: x.to(torch.float8_e5m2).view(torch.uint8),
        lambda codes: codes.to(torch.uint8).view(torch.float8_e5m2),
    )
    fmt = golden.register_format("casts", 8, *casts)
    x = torch.randn(50)
    assert torch.equal(golden.encode(x, fmt), golden.encode(x, "e5m2"))
    assert torch.equal(golden.decode(CODES, fmt).nan_to_num(7), golden.decode(CODES, "e5m2").nan_to_num(7))


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((lambda x: x, to_real), "contains|integer codes"),
        ((lambda x: x.to(torch.float8_e5m2), to_real), r"codes by \.view\(torch\.uint8\)"),
        ((from_real, lambda codes: codes), "real numbers in the shape"),
        ((lambda x: from_real(x)[:1], to_real), "codes in the shape"),
        ((from_real, lambda codes: codes.double() + 2.0**-40), "float32 holds"),
        ((lambda x: from_real(x) + 256, to_real), "codes of 8 bits are 0 to 255"),
    ],
)
def test_functions_with_wrong_results_are_refused(functions, message):
    with pytest.raises((TypeError, ValueError), match=message):
        golden.register_format("wrong", 8, *functions)


def test_name_of_a_custom_format_has_one_meaning(copy):
    assert golden.register_format("copy", 8, from_real, to_real) is copy
    for width, functions in ((8, (from_real, torch.abs)), (9, (from_real, to_real))):
        with pytest.raises(ValueError, match="registered with other functions"):
            golden.register_format("copy", width, *functions)


def test_custom_format_refuses_what_its_function_decides(copy):
    with pytest.raises(ValueError, match="decides its rounding"):
        golden.encode(torch.tensor([1.1]), copy, "rz")
    with pytest.raises(ValueError, match="width"):
        golden.register_format("wide", 33, from_real, to_real)
    with pytest.raises(TypeError, match="custom:copy has no RTL"):
        rtlil.convert(Mul(a=copy, b=copy))
