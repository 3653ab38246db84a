"""`torch.func.vmap` in emulated programs has the bits of a loop."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

from halfulp import golden

POLICY = "e5m2*e5m2+e6m5.rn, elementwise=bf16.rn"
MODEL = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 3))


def _loop(run, *given):
    return torch.stack([run(*row) for row in zip(*given, strict=True)])


def _loss(parameters, x):
    return F.cross_entropy(functional_call(MODEL, parameters, (x[None],)), torch.tensor([1]))


def _gradients(x, mapped):
    parameters = {name: one.detach() for name, one in MODEL.named_parameters()}
    return mapped(lambda row: torch.cat([one.flatten() for one in grad(_loss)(parameters, row).values()]), x)


CASES = {
    "addmm": lambda x, mapped: mapped(MODEL[0], x),
    "model": lambda x, mapped: mapped(MODEL, x),
    "gradients by row": _gradients,
    "sums": lambda x, mapped: mapped(lambda row: (row.exp() / row.exp().sum()).cumsum(0), x),
    "two operands": lambda x, mapped: mapped(lambda row, other: torch.addcmul(row, other, row) @ other, x, x * 3),
    "nested": lambda x, mapped: mapped(lambda row: vmap(lambda a: a * row.sum() + a.sin())(row), x),
    "branches": lambda x, mapped: mapped(lambda row: row * 3 if row.sum() > 0 else row.exp(), x),
    "hessian": lambda x, mapped: mapped(hessian(lambda a: (a @ a).exp()), x),
}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", CASES)
def test_vmap_has_the_bits_of_a_loop(name):
    torch.manual_seed(3)
    x = torch.randn(6, 4)
    with golden.emulate(POLICY, strict=True):
        found = CASES[name](x, lambda run, *given: vmap(run)(*given))
    with golden.emulate(POLICY, strict=True):
        wanted = CASES[name](x, _loop)
    assert torch.equal(found, wanted)


def test_vmap_with_stochastic_rounding_has_the_words_of_a_loop():
    x = torch.randn(6, 4)
    found = []
    for mapped in (lambda run, x: vmap(run)(x), _loop):
        with golden.emulate("e5m2*e5m2+e6m5.sr6, elementwise=e6m5.sr6", seed=5):
            found.append(mapped(MODEL, x).detach())
    assert torch.equal(*found)


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians_have_the_bits_of_single_derivatives(jacobian):
    def run(x):
        return MODEL[3](MODEL[0](x).exp())

    x = torch.randn(4)
    with golden.emulate(POLICY, strict=True):
        found = jacobian(run)(x)
        if jacobian is jacrev:
            wanted = torch.stack([torch.func.vjp(run, x)[1](one)[0] for one in torch.eye(3)])
        else:
            wanted = torch.stack([torch.func.jvp(run, (x,), (one,))[1] for one in torch.eye(4)], 1)
    assert torch.equal(found, wanted)


@pytest.mark.slow
def test_batched_gradients_have_the_bits_of_single_ones():
    x, unused = torch.randn(5, 4, requires_grad=True), torch.ones(2, requires_grad=True)
    rows = torch.randn(3, 5, 3)
    with golden.emulate(POLICY, strict=True):
        y = MODEL(x)
        given = {"retain_graph": True, "allow_unused": True}
        found = torch.autograd.grad(y, (x, unused), rows, is_grads_batched=True, **given)
        wanted = torch.stack([torch.autograd.grad(y, x, row, **given)[0] for row in rows])
        whole = torch.autograd.functional.jacobian(MODEL[0], x.detach(), vectorize=True)
        single = torch.autograd.functional.jacobian(MODEL[0], x.detach())
    assert torch.equal(found[0], wanted)
    assert found[1] is None
    assert torch.equal(whole, single)


def test_vmap_has_the_dimensions_and_randomness_of_torch():
    x = torch.randn(3, 4)

    def run(row, pair):
        return {"one": row + pair["a"], "two": (pair["b"].sum(), torch.ones(2))}

    given = (x, {"a": torch.randn(4), "b": torch.randn(2, 3)})
    dims = {"in_dims": (0, {"a": None, "b": 1}), "out_dims": {"one": 1, "two": (0, None)}}
    wanted = vmap(run, **dims)(*given)
    with golden.emulate("fp32*fp32+fp32.rn, elementwise=fp32.rn"):
        found = vmap(run, **dims)(*given)
        chunks = vmap(lambda row: row * 2, chunk_size=2)(x)
        empty = vmap(lambda row: row * 2)(x[:0])
        same, other = (vmap(torch.rand_like, randomness=one)(x) for one in ("same", "different"))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert torch.equal(chunks, x * 2)
    assert empty.shape == (0, 4)
    assert torch.equal(same[0], same[2])
    assert not torch.equal(other[0], other[2])


REFUSED = {
    "randomness='error'": vmap(torch.rand_like),
    "has to return tensors": vmap(lambda row: 3),
    "out_dims=None": vmap(lambda row: row * 2, out_dims=None),
    "other structures": lambda x: vmap(lambda row: (row,) if row[0] > 0 else row)(torch.tensor([[1.0], [-1.0]])),
    "another structure": vmap(lambda row: row, out_dims=(0, 1)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_vmap_refuses_in_a_sentence(message):
    with golden.emulate(POLICY), pytest.raises((RuntimeError, ValueError), match=message):
        REFUSED[message](torch.randn(3, 4))


def test_vmap_outside_of_the_context_is_that_of_torch():
    from torch._functorch import vmap as module

    before = module._flat_vmap
    with golden.emulate(POLICY):
        assert module._flat_vmap is not before
    assert module._flat_vmap is before


def test_compiled_vmap_is_refused():
    torch._dynamo.reset()
    run = torch.compile(vmap(MODEL[0]), backend=golden.emulate.backend(POLICY))
    with pytest.raises(RuntimeError, match=r"no torch\.func\.vmap"):
        run(torch.randn(3, 4))


def test_own_generators_follow_randomness():
    def noise(row, generator):
        return row + torch.rand(4, generator=generator)

    def mapped(randomness):
        generator = torch.Generator().manual_seed(1)
        return vmap(lambda row: noise(row, generator), randomness=randomness)(torch.zeros(3, 4))

    with golden.emulate(POLICY):
        same, different = mapped("same"), mapped("different")
        with pytest.raises(RuntimeError, match="called a random operation"):
            mapped("error")
        first = noise(torch.zeros(4), torch.Generator().manual_seed(1))
    assert all(torch.equal(row, first) for row in same)
    assert torch.equal(different[0], first)
    assert not torch.equal(different[1], first)
