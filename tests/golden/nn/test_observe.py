"""Observation of converted models: layers that are not called, products and modules in torch."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn as tnn

from halfulp.golden import nn
from tests.layers_by_hand import E5M2, SR, network, normal


class Partly(tnn.Module):
    """Model with products in layers, by hand, and with the weight of a layer that is not called."""

    def __init__(self):
        super().__init__()
        self.first, self.read = tnn.Linear(4, 4), tnn.Linear(4, 4)
        self.norm = tnn.LayerNorm(4)

    def forward(self, x):
        y = F.linear(self.norm(self.first(x)), self.read.weight)
        return y @ y.mT


def test_uncalled_layers_are_reported():
    model = nn.convert(Partly(), E5M2).model
    with pytest.warns(RuntimeWarning, match="read"):
        model(normal(3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(normal(3, 4))
        nn.convert(network(), E5M2).model(normal(2, 1, 4, 4))


@pytest.mark.slow
def test_compiled_models_report_uncalled_layers():
    torch._dynamo.reset()
    model = nn.convert(Partly(), SR).model
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.warns(RuntimeWarning, match="layers read;"):
        compiled(normal(3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(normal(3, 4))
    model = nn.convert(Partly(), E5M2).model
    model.first.compile(backend="aot_eager")
    with pytest.warns(RuntimeWarning, match="layers read;"):
        model(normal(3, 4))


@pytest.mark.filterwarnings("ignore:halfulp")
def test_observe_reports_products_and_modules_in_torch():
    converted = nn.convert(Partly(), E5M2)
    found = converted.observe(lambda: converted.model(normal(3, 4)).sum().backward())
    assert found.uncalled == ("read",)
    assert found.products == {("(the model)", "mm"): 2 + 4}
    assert ("norm", "native_layer_norm") in found.others
    assert not any(name == "first" and one != "sum" for name, one in found.others)
    assert "never called" in str(found)
    whole = nn.convert(network(), E5M2)
    assert not whole.observe(lambda: whole.model(normal(2, 1, 4, 4)).sum().backward()).products
