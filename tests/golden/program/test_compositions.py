"""Right values of operations whose types, indices, windows or checks a composition may lose, in emulated programs."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halfulp import golden
from halfulp.golden.nn import LossScaler, convert
from halfulp.golden.program.dispatch import overlaps

FP32 = "fp32*fp32+fp32.rn, elementwise=fp32.rn"
BF16 = "bf16*bf16+bf16.rn, elementwise=bf16.rn"
ROLES = "forward=e5m2*e5m2+e6m5.rn, input_gradient=e4m3fn*e5m2+bf16.rn, weight_gradient=e5m2*e4m3fn+fp16.rn"


def _int32(run):
    # Rows of int32 at an odd place of a longer tensor, so that wider reads would give other numbers.
    index = torch.tensor([9, 1, 0, 2, 0, 3, 0, 1, 0, *[3, 0] * 8], dtype=torch.int32)[1:9]
    return run(index)


EQUAL = {
    "int32 index_add": lambda: _int32(lambda index: torch.zeros(4).index_add(0, index, torch.ones(8))),
    "int32 embedding": lambda: _int32(
        lambda index: torch.autograd.grad(F.embedding(index, w := torch.ones(4, 2, requires_grad=True)).sum(), w)[0]
    ),
    "labels before -1": lambda: F.multilabel_margin_loss(
        torch.tensor([[0.1, 0.2, 0.4, 0.8]]), torch.tensor([[1, 2, -1, 0]])
    ),
    "labels of one row": lambda: F.multilabel_margin_loss(
        torch.tensor([0.5, 0.25, 1.0, 0.75]), torch.tensor([3, -1, 0, 2]), reduction="none"
    ),
    "power of uint8": lambda: torch.tensor([200], dtype=torch.uint8) ** 2.0,
    "power of int8": lambda: torch.tensor([100], dtype=torch.int8) ** 3.0,
    "power of bool": lambda: torch.tensor([True, False]) ** 2.0,
    "product in float": lambda: torch.prod(torch.arange(1, 12), dtype=torch.float32),
    "norm in float": lambda: torch.linalg.vector_norm(torch.ones(4, dtype=torch.bfloat16), dtype=torch.float32),
    "norms in float": lambda: torch._foreach_norm([torch.ones(4, dtype=torch.bfloat16)], 2, torch.float32)[0],
    "uint8 targets": lambda: F.nll_loss(torch.eye(3), torch.tensor([0, 2, 1], dtype=torch.uint8)),
    "adaptive pooling": lambda: F.adaptive_avg_pool2d(torch.arange(70.0).reshape(1, 2, 5, 7), (3, 4)),
    "adaptive pooling in 3 dimensions": lambda: F.adaptive_avg_pool3d(
        torch.arange(60.0).reshape(1, 3, 4, 5), (2, 3, 2)
    ),
    "larger adaptive pooling": lambda: F.adaptive_avg_pool1d(torch.arange(6.0).reshape(1, 2, 3), 5),
    "gradient of adaptive pooling": lambda: torch.autograd.grad(
        (F.adaptive_avg_pool2d(x := torch.arange(35.0).reshape(1, 1, 5, 7).requires_grad_(), (2, 4)) * 8).sum(), x
    )[0],
}


@pytest.mark.parametrize("name", EQUAL)
def test_edge_of_an_operation_is_that_of_torch(name):
    with golden.emulate(FP32, strict=True):
        found = EQUAL[name]()
    torch.testing.assert_close(found, EQUAL[name](), rtol=1e-6, atol=0)


def test_operands_of_remainders_are_rounded():
    x = torch.tensor([5.3, -5.3])
    with golden.emulate(BF16, strict=True):
        found = torch.fmod(x, 0.7), torch.remainder(x, 0.7)
    a, b = x.bfloat16().double(), torch.tensor(0.7).bfloat16().double()
    assert torch.equal(found[0].double(), torch.fmod(a, b))
    assert torch.equal(found[1].double(), torch.remainder(a, b).bfloat16().double())


def test_windows_of_adaptive_pooling_are_summed_in_the_accumulator():
    with golden.emulate("fp16*fp16+fp32.rn, elementwise=e4m3fn.rn, reductions=fp32.rn", strict=True):
        found = F.adaptive_avg_pool1d(torch.ones(1, 1, 300), 7)
    assert torch.equal(found, torch.ones(1, 1, 7))


REFUSED = {
    "target should be between 0 and 1": lambda: F.binary_cross_entropy(torch.ones(4), torch.full((4,), 1.5)),
    "negative values for beta": lambda: F.smooth_l1_loss(torch.ones(4), torch.zeros(4), beta=-1.0),
    "type Long or Byte": lambda: F.nll_loss(torch.eye(3), torch.tensor([0, 2, 1], dtype=torch.int32)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_values_that_torch_refuses_are_refused(message):
    with golden.emulate(FP32), pytest.raises(RuntimeError, match=message):
        REFUSED[message]()


@pytest.mark.parametrize("scale", [1.3, 2.0, 2.7])
def test_nearest_pixels_of_a_graph_are_those_of_torch(scale):
    def run(x):
        return F.interpolate(x, scale_factor=scale, mode="nearest")

    x = torch.arange(6.0).reshape(1, 1, 2, 3)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(run, backend=golden.emulate.backend(FP32))(x), run(x))


@pytest.mark.parametrize("method", ["forward", "_conv_forward"])
def test_layer_with_a_method_of_its_own_is_not_swapped(method):
    layer = nn.Conv2d(1, 2, 3)
    setattr(layer, method, functools.partial(getattr(layer, method)))
    with pytest.warns(RuntimeWarning, match=r"own arithmetic: '0' \(Conv2d\); golden.emulate"):
        assert "Conv2d has its own forward function" in str(convert(nn.Sequential(layer), "bf16*bf16+bf16.rn"))


def test_gradients_of_transforms_have_modules_and_roles():
    layer, x = nn.Linear(4, 3), torch.randn(5, 4)
    with golden.emulate(ROLES):
        found = torch.func.grad(lambda p: torch.func.functional_call(layer, p, (x,)).sum())(
            dict(layer.named_parameters())
        )
        layer(x).sum().backward()
    assert torch.equal(found["weight"], layer.weight.grad)
    assert torch.equal(found["bias"], layer.bias.grad)


@pytest.mark.parametrize("shape", [(6,), (2, 6), (2, 3, 6), (2, 2, 3, 6)])
def test_sums_under_transforms_start_from_the_bias(shape):
    layer, x = nn.Linear(6, 3), torch.randn(shape)
    with golden.emulate("e5m2*e5m2+e6m5.rn", strict=True):
        found, derivative = torch.func.vjp(layer, x)
        wanted = layer(given := x.clone().requires_grad_())
        wanted.backward(torch.ones_like(wanted))
        (gradient,) = derivative(torch.ones_like(found))
    assert torch.equal(found, wanted)
    assert torch.equal(gradient, given.grad)


def test_scaler_takes_transforms():
    def loss(x):
        return LossScaler(8.0).scale(x @ x)

    x = torch.tensor([1.0, 2.0])
    assert torch.equal(torch.func.grad(loss)(x), 16 * x)
    assert torch.equal(torch.func.hessian(loss)(x), 16 * torch.eye(2))
    assert torch.equal(torch.func.vmap(loss)(x.unsqueeze(1)), 8 * x * x)


def test_context_inside_of_vmap_is_refused():
    run = golden.emulate(FP32)(lambda x: x * 2)
    with pytest.raises(RuntimeError, match="enter it around vmap"):
        torch.func.vmap(run)(torch.ones(2, 3))


def test_batched_gradients_free_the_graph():
    x = torch.randn(4, requires_grad=True)
    with golden.emulate(FP32):
        y = x * x
        torch.autograd.grad(y, x, torch.eye(4), is_grads_batched=True)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y, x, torch.eye(4), is_grads_batched=True)


def test_recurrent_layers_take_transforms():
    layer, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    with golden.emulate(FP32):
        found = torch.func.grad(lambda x: layer(x)[0].sum())(x)
        given = x.clone().requires_grad_()
        layer(given)[0].sum().backward()
    assert torch.equal(found, given.grad)


def test_scaler_is_no_part_of_the_program():
    layer = nn.Linear(2, 1, bias=False)
    optimizer, scaler = torch.optim.SGD(layer.parameters(), 0.1), LossScaler(1024.0)
    layer.weight.grad = torch.full((1, 2), 1.0)
    with golden.emulate("e4m3fn*e4m3fn+fp32.rn, elementwise=e4m3fn.rn"):
        assert scaler.scale(torch.tensor(1.0)) == 1024
        scaler.unscale_(optimizer)
    assert torch.equal(layer.weight.grad, torch.full((1, 2), 2.0**-10))


def test_lists_of_tensors_share_no_memory():
    assert not overlaps(([torch.ones(2)], [torch.ones(2)]))


def test_operations_that_are_recorded_are_refused():
    with golden.emulate(BF16), pytest.raises(RuntimeError, match="linearize cannot record"):
        torch.func.linearize(torch.tanh, torch.ones(4))


def test_tensors_without_values_have_shapes():
    x = torch.empty(4, 8, device="meta")
    with golden.emulate(BF16, strict=True):
        assert torch.tanh(x @ x.T).sum(0).shape == (4,)
