"""Products and convolutions in fp16 against numpy.float16, one operation at a time (Arbitor, USENIX ATC 2023)."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from halfulp import golden
from halfulp.hdl.formats import FP16

MAC = "fp16*fp16=fp16.rn+fp16.rn"
PLACES = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(over="ignore", invalid="ignore"):
        yield


def numbers(rng, shape, low=1e-6, high=1e-2):
    """Return numbers of fp16 of both signs; those of the publication are in [1e-6, 1e-2]."""
    found = rng.uniform(low, high, shape) * rng.choice([-1, 1], shape)
    return torch.from_numpy(found.astype(np.float16)).float()


def scalar_dot(a, b, start=0.0):
    """Sum products in fp16, in steps of a scalar machine."""
    total = np.float16(start)
    for x, y in zip(a, b, strict=True):
        product = np.float16(x) * np.float16(y)
        total = total + product
    return total


def scalar_matmul(a, b):
    """Multiply matrices by `scalar_dot`."""
    return np.array([[scalar_dot(row, column) for column in b.T] for row in a], dtype=np.float16)


def vector_matmul(a, b):
    """Compute the steps of `scalar_matmul` for all results at once."""
    a, b = a.astype(np.float16), b.astype(np.float16)
    total = np.zeros((len(a), b.shape[1]), np.float16)
    for place in range(a.shape[1]):
        total = total + a[:, place, None] * b[place]
    return total


def scalar_convolution(x, w, bias, *, stride, padding, dilation, groups):
    """Convolve images in steps of a scalar machine; zeros of the padding are operands too."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    per_group, kernel = w.shape[1], w.shape[2]
    size = (x.shape[2] - dilation * (kernel - 1) - 1) // stride + 1
    found = np.zeros((len(x), len(w), size, size), np.float16)
    for n, out, i, j in itertools.product(*map(range, found.shape)):
        first = out // (len(w) // groups) * per_group
        rows, columns = ([stride * one + dilation * place for place in range(kernel)] for one in (i, j))
        image = x[n, first : first + per_group][:, rows][:, :, columns]
        found[n, out, i, j] = scalar_dot(image.ravel(), w[out].ravel(), bias[out])
    return found


def same(found, expected):
    codes = golden.encode(torch.as_tensor(found).double(), FP16)
    return torch.equal(codes, golden.encode(torch.from_numpy(expected.astype(np.float64)), FP16))


@pytest.mark.parametrize("high", [1e-2, 300.0])
def test_gemm_equals_scalar_fp16_steps(high):
    rng = np.random.default_rng(1)
    a, b = numbers(rng, (5, 40), high=high), numbers(rng, (40, 4), high=high)
    expected = scalar_matmul(a.numpy(), b.numpy())
    assert np.array_equal(expected, vector_matmul(a.numpy(), b.numpy()), equal_nan=True)
    assert np.isinf(expected).any() == (high > 256)
    codes = golden.gemm(golden.encode(a, FP16), golden.encode(b, FP16), MAC)
    assert same(golden.decode(codes, FP16), expected)


@pytest.mark.slow
@pytest.mark.parametrize("size", [32, 128, 256])
def test_emulated_products_equal_scalar_fp16_steps(size):
    """Forward and backward products of a layer are those steps, in the published setting at 128 x 128."""
    rng = np.random.default_rng(2)
    x, w = numbers(rng, (size, size)), numbers(rng, (size, size))
    gradient = numbers(rng, (size, size))
    x.requires_grad_()
    w = torch.nn.Parameter(w)
    with golden.emulate(MAC, strict=True):
        found = F.linear(x, w)
        found.backward(gradient)
    left, right, up = (one.detach().numpy() for one in (x, w, gradient))
    assert same(found.detach(), vector_matmul(left, right.T))
    assert same(x.grad, vector_matmul(up, right))
    assert same(w.grad, vector_matmul(up.T, left))


CONVOLUTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": 2, "dilation": 2, "groups": 2},
    {"padding": 1, "groups": 4},
]


@pytest.mark.parametrize("given", CONVOLUTIONS)
@pytest.mark.parametrize("size", [5, pytest.param(13, marks=pytest.mark.slow)])
def test_convolution_equals_scalar_fp16_steps(given, size):
    rng = np.random.default_rng(3)
    places = PLACES | given
    x = numbers(rng, (2, 4, size, size))
    w, bias = numbers(rng, (4, 4 // places["groups"], 3, 3)), numbers(rng, (4,))
    with golden.emulate(MAC, strict=True):
        found = F.conv2d(x, w, bias, **places)
    assert same(found, scalar_convolution(x.numpy(), w.numpy(), bias.numpy(), **places))


def test_convolution_gradients_equal_scalar_fp16_steps():
    """Sums of the gradient of the kernels run over images, then places; those of the images over output channels."""
    rng = np.random.default_rng(4)
    x = numbers(rng, (2, 3, 5, 5)).requires_grad_()
    w = torch.nn.Parameter(numbers(rng, (4, 3, 3, 3)))
    up = numbers(rng, (2, 4, 3, 3))
    with golden.emulate(MAC, strict=True):
        F.conv2d(x, w).backward(up)
    images, kernels, gradient = x.detach().numpy(), w.detach().numpy(), up.numpy()
    expected = np.zeros(kernels.shape, np.float16)
    for out, c, i, j in itertools.product(*map(range, kernels.shape)):
        expected[out, c, i, j] = scalar_dot(gradient[:, out].ravel(), images[:, c, i : i + 3, j : j + 3].ravel())
    assert same(w.grad, expected)
    # The gradient of the images is a convolution of the padded gradient with turned kernels.
    turned = np.flip(kernels, (2, 3)).swapaxes(0, 1)
    expected = scalar_convolution(gradient, turned, np.zeros(3), stride=1, padding=2, dilation=1, groups=1)
    assert same(x.grad, expected)
