"""Policies with an arithmetic of their own for normalisations."""

import pytest
import torch
from torch import nn

from halfulp import golden
from halfulp.golden.nn import Policy

REST = "e6m2*e6m2+fp32.rn, elementwise=e6m2.rn, reductions=fp32.rn"
POLICY = f"{REST}, normalisation=fp32.rn"

LAYERS = {
    "batch": lambda: nn.BatchNorm2d(3),
    "layer": lambda: nn.LayerNorm([4, 5]),
    "group": lambda: nn.GroupNorm(1, 3),
    "instance": lambda: nn.InstanceNorm2d(3, affine=True),
    "rms": lambda: nn.RMSNorm(5),
}


def gradients(policy, layer, *, train=True, compiled=False):
    """Return result and gradients of a product of a layer by 3, and the report."""
    torch.manual_seed(0)
    model, x = nn.Sequential(layer()).train(train), torch.randn(2, 3, 4, 5).requires_grad_()
    for parameter in model.parameters():
        nn.init.normal_(parameter)

    def run(x):
        return model(x) * 3

    if compiled:
        backend = golden.emulate.backend(policy)
        out = torch.compile(run, backend=backend)(x)
        out.square().sum().backward()
        return [out, x.grad, *(parameter.grad for parameter in model.parameters())], backend.report()
    with golden.emulate(policy) as emulated:
        out = run(x)
        out.square().sum().backward()
    return [out, x.grad, *(parameter.grad for parameter in model.parameters())], emulated.report()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("train", [True, False])
def test_normalisation_is_computed_in_its_own_arithmetic(name, train):
    found, report = gradients(POLICY, LAYERS[name], train=train)
    # Patterns of modules select the same operations.
    fp32 = "e6m2*e6m2+fp32.rn, elementwise=fp32.rn, reductions=fp32.rn"
    wanted, _ = gradients({"0": fp32, "*": REST}, LAYERS[name], train=train)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    plain, _ = gradients(REST, LAYERS[name], train=train)
    assert any(not torch.equal(one, other) for one, other in zip(found, plain, strict=True))
    inside = {row.arithmetic for row in report.rows if row.module}
    assert inside
    assert all(arithmetic.startswith("fp32.rn") for arithmetic in inside)
    assert {"e6m2.rn"} == {row.arithmetic for row in report.rows if not row.module and row.operation == "mul"}


@pytest.mark.parametrize("name", ["batch", "layer"])
def test_compiled_normalisation_has_the_bits_of_eager_ones(name):
    found, _ = gradients(POLICY, LAYERS[name], compiled=True)
    torch.compiler.reset()
    wanted, _ = gradients(POLICY, LAYERS[name])
    for one, other in zip(found[1:], wanted[1:], strict=True):
        assert torch.equal(one, other)


def test_sums_of_normalisations_keep_the_order_of_reductions():
    ordered = Policy.parse(f"{REST} pairwise, normalisation=bf16.rn")
    assert str(Policy.parse(str(ordered))) == str(ordered)
    inner = ordered.of_operation(["aten.mul", "aten.native_layer_norm_backward"], (nn.Linear,))
    assert ordered.of_operation(["aten.mul"], (nn.Linear, nn.RMSNorm)) == inner
    assert (str(inner.elementwise), inner.functions, str(inner.reductions)) == ("bf16.rn", None, "bf16.rn pairwise")
    assert ordered.of_operation(["aten.mul", "aten._softmax"]) is ordered


def test_normalisation_needs_a_format_and_a_program():
    with pytest.raises(ValueError, match="normalisation"):
        Policy.parse(f"{REST}, normalisation=rn")
    with pytest.raises(ValueError, match="layers have no normalisation; use"):
        golden.nn.convert(nn.Sequential(nn.Linear(2, 2)), "e6m2*e6m2+fp32.rn, normalisation=fp32.rn")
