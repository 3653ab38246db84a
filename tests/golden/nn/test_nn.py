"""Arguments that layers, policies and conversions refuse."""

import pytest
import torch
from torch import nn as tnn

from halfulp.golden import nn
from tests.layers_by_hand import E5M2, SR, network


def differentiated_twice():
    layer = nn.Linear(2, 2, policy=E5M2)
    x = torch.ones(1, 2, requires_grad=True)
    torch.autograd.grad(torch.autograd.grad(layer(x).sum(), x, create_graph=True)[0].sum(), x)


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (
            differentiated_twice,
            RuntimeError,
            "multiply-accumulate",
        ),
        (
            lambda: nn.Linear(2, 2, policy="e5m2*e5m2+e11m30.rn")(torch.ones(1, 2)),
            ValueError,
            "number",
        ),
        (
            lambda: nn.Linear(2, 2, policy="posit8*posit8+posit64.rn")(torch.ones(1, 2)),
            ValueError,
            "number",
        ),
        (
            lambda: nn.Linear(2, 2, policy="e5m2*ufxp0.8+e6m5.rn")(torch.ones(1, 2)),
            ValueError,
            "ufxp0.8",
        ),
        (lambda: nn.Linear(2, 2, policy=3), TypeError, "policy"),
        (lambda: nn.Linear(2, 2, policy=E5M2)(3), TypeError, "numbers"),
        (lambda: nn.Linear(2, 2, policy=SR)(torch.ones(1, 2).numpy()), TypeError, "ndarray"),
        (
            lambda: nn.Linear(2, 2, policy=E5M2)(torch.ones(1, 2, dtype=torch.int32)),
            TypeError,
            "input",
        ),
        (
            lambda: nn.Linear(2, 2, policy=E5M2)(torch.ones(1, 3)),
            ValueError,
            "input",
        ),
        (
            lambda: nn.Conv2d(2, 2, 3, policy=E5M2)(torch.ones(1, 3, 4, 4)),
            ValueError,
            "input",
        ),
        (
            lambda: nn.Conv2d(2, 2, 3, policy=E5M2)(torch.ones(1, 2, 4, 2)),
            ValueError,
            "padding",
        ),
        (
            lambda: nn.Bmm(policy=E5M2)(torch.ones(2, 3, 4), torch.ones(2, 3, 4)),
            ValueError,
            "shape",
        ),
        (
            lambda: nn.Bmm(policy=E5M2)(torch.ones(2, 3, 4), torch.ones(3, 4, 4)),
            ValueError,
            "broadcast",
        ),
        (
            lambda: nn.Bmm(policy=E5M2)(torch.ones(3, 4), torch.ones(4, 4).double()),
            TypeError,
            "torch.float32",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2, policy=E5M2)(
                *[torch.ones(3, 1, 4)] * 3, key_padding_mask=torch.ones(3, 1, dtype=torch.bool)
            ),
            ValueError,
            "key_padding_mask",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2, policy=E5M2)(*[torch.ones(3, 1, 4)] * 3, attn_mask=torch.ones(1, 3, 3)),
            ValueError,
            "attn_mask",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2, policy=E5M2)(*[torch.ones(3, 1, 4)] * 3, is_causal=True),
            ValueError,
            "is_causal",
        ),
        (lambda: nn.Linear(2, 2, policy=SR, seed=1.0), TypeError, "seed"),
        (lambda: nn.Linear(2, 2, policy=SR, seed=-1), ValueError, "seed"),
        (lambda: nn.Quantize("rn"), ValueError, "forward"),
        (lambda: nn.Cast.parse("e5m2.exact"), ValueError, "e5m2.exact"),
        (lambda: nn.Cast.parse("e1m2.rn"), ValueError, "e1m2.rn"),
        (lambda: nn.Cast.parse(3), TypeError, "e5m2.rn"),
        (lambda: nn.Cast("e5m2"), TypeError, "Format"),
        (lambda: nn.Policy.parse("e5m2"), ValueError, "mac: e5m2 is a format"),
        (lambda: nn.Policy.parse(f"{E5M2}, {E5M2}"), ValueError, "policy"),
        (lambda: nn.Policy.parse("sparsemac e4m3fn*e4m3fn+fp32"), ValueError, "no sparsemac"),
        (lambda: nn.Policy.parse(f"{E5M2}, mode=3"), ValueError, "mode"),
        (
            lambda: nn.Policy.of(E5M2, update="sr3"),
            ValueError,
            "update",
        ),
        (lambda: nn.Policy.of(E5M2, master=True), ValueError, "update"),
        (lambda: nn.Policy.of(E5M2, master="maybe"), TypeError, "master"),
        (lambda: nn.convert(3, E5M2), TypeError, "Module"),
        (lambda: nn.convert(network(), {3: E5M2}), TypeError, "pattern"),
        (
            lambda: nn.convert(network(), {"4": E5M2}),
            ValueError,
            "'4' matches no layer that can be swapped; the layers are '0' (Conv2d), '2' (Linear), '3' (Linear)",
        ),
        (
            lambda: nn.convert(network(), {tnn.LSTM: E5M2}),
            ValueError,
            "matches",
        ),
        (
            lambda: nn.convert(tnn.MultiheadAttention(4, 2), {"out_proj": E5M2}),
            ValueError,
            "out_proj",
        ),
        (lambda: nn.convert(tnn.ReLU(), E5M2), ValueError, "ReLU"),
        (lambda: nn.convert(network(), E5M2, evaluation="x"), ValueError, "evaluation"),
        (lambda: nn.WeightUpdate(3, "e5m2"), TypeError, "optimizer"),
        (
            lambda: nn.WeightUpdate(
                torch.optim.SGD(tnn.Linear(2, 2).parameters()), "e5m2", parameters=tnn.Linear(2, 2).parameters()
            ),
            ValueError,
            "parameter",
        ),
        (lambda: nn.LossScaler("256"), TypeError, "number"),
        (lambda: nn.LossScaler(0), ValueError, "finite"),
        (lambda: nn.LossScaler(interval=0), ValueError, "interval"),
        (lambda: nn.LossScaler(adaptive="no"), TypeError, "adaptive"),
    ],
)
def test_nn_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error) as caught:
        make()
    assert keyword in str(caught.value)
