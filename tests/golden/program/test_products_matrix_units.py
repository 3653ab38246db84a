"""GPT-2 in matrix units of three generations: forward and backward pass and update, eager and compiled."""

import contextlib
import copy
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from halfulp import golden
from halfulp.golden.program import products
from halfulp.hdl.specs.mma import MmaSpec

REST = "elementwise=bf16.rn, optimizer=fp32.rn"

POLICIES = (
    "forward=h100.wgmma: e4m3fn*e4m3fn+fp32 every=128, input_gradient=h100.wgmma: e5m2*e4m3fn+fp32 every=128, "
    f"weight_gradient=h100.wgmma: e5m2*e4m3fn+fp32 every=128, {REST}",
    "forward=b200.tcgen05: mxfp8_e4m3*mxfp4+fp32, input_gradient=b200.tcgen05: mxfp8_e5m2*mxfp4+fp32, "
    f"weight_gradient=b200.tcgen05.mxfp8_e5m2, {REST}",
    f"b200.tcgen05.mxfp4, {REST}",
    f"mi300.mfma.e4m3, {REST}",
)


def _gpt2() -> nn.Module:
    """Return a model whose sums are longer than steps, and no multiples of them."""
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 144, "n_inner": 40, "vocab_size": 50, "n_positions": 8}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(**sizes, **dropout, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    # Without it the model logs a warning, which breaks graphs of torch.compile.
    model.loss_type = "ForCausalLM"
    return model


def _loss(model: nn.Module) -> torch.Tensor:
    tokens = torch.arange(16).reshape(2, 8) * 7 % 50
    loss: torch.Tensor = model(tokens, labels=tokens).loss
    return loss


def _trained(run: Any, model: nn.Module, context: Any, policy: str) -> list[torch.Tensor]:
    """Return losses, gradients and parameters of two training steps."""
    optimizer, results = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(2):
        optimizer.zero_grad()
        with context:
            loss = run(model)
            loss.backward()
        results += [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
        with golden.emulate(policy, strict=True):
            optimizer.step()
    return [*results, *(parameter.detach() for parameter in model.parameters())]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_gpt2_is_equal_eager_and_compiled(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = _gpt2()
    phases, multiply = set(), products.matmul

    def matmul(call: Any, phase: str, a: Any, b: Any, roles: Any, start: Any = None) -> tuple[torch.Tensor, int]:
        made = multiply(call, phase, a, b, roles, start)
        mac = getattr(call.policy, phase)
        assert isinstance(mac, MmaSpec)
        begin = None if start is None else golden.encode(start, mac.o)
        wanted = golden.decode(golden.gemm(a, b, mac, start=begin), mac.o)
        torch.testing.assert_close(made[0].double(), wanted, rtol=0, atol=0)
        phases.add(phase)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(products, "matmul", matmul)
        context = golden.emulate(policy, strict=True)
        eager = _trained(_loss, copy.deepcopy(model), context, policy)
    assert phases == {"forward", "input_gradient", "weight_gradient"}
    backend = golden.emulate.backend(policy, strict=True)
    run = torch.compile(_loss, backend=backend, fullgraph=True)
    compiled = _trained(run, model, contextlib.nullcontext(), policy)
    assert all(torch.equal(one, other) for one, other in zip(eager, compiled, strict=True))
    assert backend.report().share == 1
    # A loss is followed by the gradients.
    assert eager[1 + len(list(model.parameters()))] < eager[0]
