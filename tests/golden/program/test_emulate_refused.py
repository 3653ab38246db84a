"""Sparse and complex tensors and empty batches in emulated programs: computed as in torch, listed, or refused."""

import warnings

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn

POLICY = "mac=bf16*bf16+fp32.rn, elementwise=bf16.rn, reductions=bf16.rn"
SPARSE = {"coo": torch.Tensor.to_sparse, "csr": torch.Tensor.to_sparse_csr}

COMPLEX = {
    "mm": lambda x: x @ x,
    "mul": lambda x: x * x,
    "real times complex": lambda x: x.real * 1j,
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "norm": torch.linalg.vector_norm,
    "var": lambda x: x.var(),
    "cumsum": lambda x: x.cumsum(0),
    "prod": lambda x: x.prod(),
    "exp": lambda x: x.exp(),
    "fft": torch.fft.fft,
    "index_add": lambda x: x.index_add(0, torch.tensor([0, 1]), x[:2]),
    "convolution": lambda x: torch.nn.functional.conv1d(x[None], x[None]),
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
}


@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_products_run_in_torch_and_are_listed(layout, backward, values):
    """Integers, because the gradient of a sparse operand is a dense product, which is emulated."""
    torch.manual_seed(0)
    given, other = SPARSE[layout](torch.randint(-1, 3, (4, 3)).float()), torch.randint(-3, 3, (3, 2)).float()

    def run():
        x, y = given.detach().requires_grad_(backward), other.clone().requires_grad_(backward)
        found = x @ y
        if backward:
            found.backward(torch.ones(4, 2))
        return found.detach(), *((x.grad.to_dense(), y.grad) if backward else ())

    wanted = run()
    with golden.emulate(POLICY, values=values) as context:
        found = run()
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert "halfulp does not emulate sparse tensors" in {row.reason for row in context.report().in_torch}
    with golden.emulate(POLICY, strict=True), pytest.raises(RuntimeError, match="does not emulate sparse"):
        run()


def test_sparse_gradients_of_an_embedding_step_an_optimizer():
    torch.manual_seed(0)
    layer = tnn.Embedding(5, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(layer.parameters())
    with golden.emulate(f"{POLICY}, optimizer=fp32.rn") as run:
        layer(torch.tensor([0, 2, 2])).sum().backward()
        optimizer.step()
    assert layer.weight.grad.is_sparse
    assert run.report().in_torch


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_run_in_torch_and_are_listed(name):
    torch.manual_seed(0)
    # Integers, because torch computes a complex convolution as real ones, which are emulated. For the same reason there
    # is no "std", whose gradient is divided by a real number.
    given = torch.complex(*torch.randint(-3, 4, (2, 3, 3)).float())

    def run():
        x = given.clone().requires_grad_()
        found = COMPLEX[name](x)
        real = torch.view_as_real(found) if found.is_complex() else found
        real.backward(torch.ones_like(real))
        return found.detach(), x.grad

    wanted = run()
    with golden.emulate(POLICY) as context:
        found = run()
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    assert any("complex" in row.reason for row in context.report().in_torch)
    with golden.emulate(POLICY, strict=True), pytest.raises(RuntimeError, match="complex"):
        run()


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("products", ["", " weight_gradient"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [(tnn.Linear(32, 3), (0, 32)), (tnn.Linear(20, 3), (2, 0, 20)), (tnn.Conv2d(4, 6, 3, groups=2), (0, 4, 5, 5))],
)
def test_rotated_products_take_empty_batches(layer, shape, products, emulated):
    policy = f"mac=e4m3fn*e4m3fn+fp16.rn, hadamard=16{products}"
    x = torch.zeros(shape).requires_grad_()
    layer.zero_grad()
    if emulated:
        with golden.emulate(policy, strict=True):
            found = layer(x)
            found.backward(torch.ones_like(found))
        weight = layer.weight
    else:
        converted = nn.convert(layer, policy).model
        found = converted(x)
        found.backward(torch.ones_like(found))
        weight = converted.weight
    assert found.shape == layer(torch.zeros(shape)).shape
    assert x.grad.shape == shape
    assert weight.grad.shape == weight.shape
    assert not weight.grad.any()


def test_error_of_a_narrow_dtype_names_autocast():
    model = tnn.Linear(4, 3)
    with (
        golden.emulate(POLICY),
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ValueError, match=r"convert the module to torch\.float32, and run it outside of torch\.autocast"),
    ):
        model(torch.ones(2, 4))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("aten.nosuch*", r"'aten\.nosuch\*' in 'aten\.nosuch\*' matches no operation of torch"),
        (
            "fc1 !aten.sofmax",
            r"'aten\.sofmax' in .* matches no operation of torch: did you mean aten\.softmax\?",
        ),
        ("aten.add_", r"did you mean aten\.add\?"),
    ],
)
@pytest.mark.parametrize("make", [golden.emulate, golden.emulate.backend])
def test_pattern_of_no_operation_is_refused_at_once(make, pattern, message):
    with pytest.raises(ValueError, match=message):
        make({pattern: POLICY})


def test_pattern_of_no_module_warns_once():
    model = tnn.Sequential(tnn.Linear(4, 3))
    run = golden.emulate({"fc*": POLICY, "aten.exp": POLICY, "0 @update": POLICY, "0": POLICY})
    with run:
        torch.ones(2) * 2
    with (
        pytest.warns(RuntimeWarning, match=r"'fc\*' selects no operation of the modules that ran: .*, 0$"),
        run,
    ):
        model(torch.ones(2, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with run:
            model(torch.ones(2, 4))


@pytest.mark.parametrize(
    ("policy", "remedy"),
    [
        ("bf16*bf16+fp32.rn", "the policy has no key elementwise; add elementwise=bf16.rn"),
        ("bf16*bf16+fp32.rn, elementwise=bf16.rn", "the policy has no key optimizer; add optimizer=fp32.rn"),
        ("fp32, elementwise=bf16.rn", "the policy has fp32 for forward; add forward=bf16"),
        ({"nothing": POLICY}, 'no pattern of the policies names it; add a policy with the pattern "\\*"'),
    ],
)
def test_strict_error_names_the_missing_part(policy, remedy):
    model = tnn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        (model(torch.ones(2, 4)) * 2).sum().backward()
        optimizer.step()

    with golden.emulate(policy, strict=True), pytest.raises(RuntimeError, match=remedy):
        step()


def test_strict_error_of_an_operation_without_emulation_has_no_cure():
    with golden.emulate(POLICY, strict=True), pytest.raises(RuntimeError, match="without strict it runs"):
        torch.linalg.inv(torch.eye(2))
