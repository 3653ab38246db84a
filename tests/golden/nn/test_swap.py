"""Conversion of models: swapped layers, shared parameters, states and utilities of torch."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn as tnn
from torch.nn.utils import parametrizations, prune

from halfulp.golden import nn
from tests.layers_by_hand import E5M2, SR, Expected, network, normal, same


def test_convert_reports_swapped_layers():
    own = network()
    found = nn.convert(own, {tnn.Conv2d: E5M2, "2": SR, "3": "fp32"})
    assert [type(layer) for layer in own] == [tnn.Conv2d, tnn.Flatten, tnn.Linear, tnn.Linear]
    assert [type(layer) for layer in found.model] == [nn.Conv2d, tnn.Flatten, nn.Linear, tnn.Linear]
    assert [(swap.name, swap.kind, str(swap.policy)) for swap in found.swapped] == [
        ("0", "Conv2d", E5M2),
        ("2", "Linear", SR),
    ]
    assert [(swap.name, swap.why) for swap in found.left] == [("3", "its policy is fp32")]
    assert str(found).splitlines() == [
        "layer  type    computes in",
        "0      Conv2d  e5m2*e5m2+e6m5.rn",
        "2      Linear  e5m2*e5m2+e6m5.sr10",
        "3      Linear  not swapped: its policy is fp32",
    ]
    assert "policy='e5m2*e5m2+e6m5.rn'" in repr(found.model[0])
    assert nn.convert(own, E5M2, inplace=True).model is own
    # Convert again, to another policy and back.
    again = nn.convert(own, {"2": SR}, inplace=True)
    assert [str(swap.policy) for swap in again.swaps] == [E5M2, SR, E5M2]
    assert "rounding_state" in own[2].state_dict()
    plain = nn.convert(own, "fp32", inplace=True).model
    x = normal(2, 1, 4, 4)
    reference = network()
    reference.load_state_dict(plain.state_dict())
    assert same(plain(x).detach(), reference(x).detach())


def test_convert_in_place_replaces_layers_with_their_state():
    own = network()
    layer, calls, optimizer = own[2], [], torch.optim.SGD(own.parameters(), 0.1)
    layer.register_forward_hook(lambda module, *_: calls.append(type(module)))
    layer.note, layer.weight.requires_grad = "of the user", False
    nn.convert(own.eval(), E5M2, inplace=True)
    assert own[2] is not layer
    assert own[2].weight is layer.weight
    assert (own[2].note, own[2].training) == ("of the user", False)
    own(normal(2, 1, 4, 4)).sum().backward()
    assert calls == [nn.Linear]
    assert {id(one) for one in own.parameters()} == {id(one) for one in optimizer.param_groups[0]["params"]}
    replaced = own[2]
    nn.convert(own, SR, inplace=True)
    assert own[2] is replaced


def test_convert_refuses_to_replace_the_model_in_place():
    layer = tnn.Linear(3, 2)
    with pytest.raises(ValueError, match="itself a Linear"):
        nn.convert(layer, SR, inplace=True)
    assert set(layer.state_dict()) == {"weight", "bias"}
    assert nn.convert(layer, "fp32", inplace=True).model is layer
    found = nn.convert(layer, SR).model
    assert nn.convert(found, E5M2, inplace=True).model is found


def test_convert_accepts_single_layer():
    layer = tnn.Linear(3, 2)
    assert nn.convert(layer, SR).model(torch.ones(1, 3)).shape == (1, 2)
    assert type(layer) is tnn.Linear
    assert str(nn.convert(layer, SR)).splitlines()[1].startswith("(the model)  Linear  e5m2")


class Own(tnn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Named(tnn.Linear):
    pass


def test_convert_ignores_other_classes():
    model = tnn.Sequential(Own(2, 2), Named(2, 2), tnn.LazyLinear(2))
    with pytest.warns(RuntimeWarning, match=r"own arithmetic: '0' \(Linear\), '2' \(Linear\); golden.emulate"):
        found = nn.convert(model, E5M2)
    assert [swap.why for swap in found.left] == [
        "Own has its own forward function",
        "its sizes are unknown before its first use",
    ]
    assert isinstance(found.model[1], Named)
    assert isinstance(found.model[1], nn.Linear)
    # The classes are local, but can still be pickled and copied.
    for made in (pickle.loads(pickle.dumps(found.model[1])), copy.deepcopy(found.model[1])):
        assert type(made) is type(found.model[1])
        assert (made.policy, made.weight.tolist()) == (found.model[1].policy, found.model[1].weight.tolist())
        assert torch.equal(made(torch.ones(1, 2)), found.model[1](torch.ones(1, 2)))


def test_convert_reports_unknown_layers():
    layers = (tnn.LSTM(2, 2), tnn.Conv1d(2, 2, 1), tnn.GRUCell(2, 2), tnn.Embedding(3, 2), tnn.Linear(2, 2))
    model = tnn.ModuleList(layers)
    with pytest.warns(RuntimeWarning, match="does not swap") as warned:
        found = nn.convert(model, E5M2)
    assert str(warned[0].message) == (
        "halfulp: the policy covers layers that convert does not swap, and which stay in torch's own arithmetic: "
        "'0' (LSTM), '1' (Conv1d), '2' (GRUCell); golden.emulate computes them, and ' !0' behind a pattern excludes one"
    )
    assert [(swap.name, swap.kind) for swap in found.left] == [("0", "LSTM"), ("1", "Conv1d"), ("2", "GRUCell")]
    assert [swap.name for swap in found.swapped] == ["4"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = {"0": "fp32", tnn.Conv1d: "fp32", "2": "fp32", "*": E5M2}
        of_names = {lambda layer: {"4": True}[layer.names[0]]: E5M2}
        for policy in ({tnn.Linear: E5M2}, {"* !0 !1 !2": E5M2}, {"4": SR, "*": "fp32"}, "fp32", plain, of_names):
            assert [swap.name for swap in nn.convert(model, policy).left][-3:] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="'0' matches no layer that can be swapped"):
        nn.convert(model, {"0": E5M2, "*": E5M2})


def test_conversion_again_names_only_layers_that_are_new_to_the_policy():
    """As a `Schedule` converts a model in its place."""
    model = tnn.ModuleList([tnn.LSTM(2, 2), tnn.GRU(2, 2), tnn.Linear(2, 2)])
    with pytest.warns(RuntimeWarning, match=r"own arithmetic: '0' \(LSTM\);"):
        found = nn.convert(model, {"* !1": E5M2})
    for policy, named in (({"* !1": SR}, 0), (E5M2, 1), (SR, 0)):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            nn.convert(found.model, policy, inplace=True)
        assert ["'1' (GRU);" in str(each.message) for each in warned] == [True] * named
    with pytest.warns(RuntimeWarning, match=r"'0' \(LSTM\), '1' \(GRU\)"):
        nn.convert(model, E5M2)


def test_layer_with_two_names_is_excluded_by_either():
    model = tnn.ModuleList([tnn.LSTM(2, 2), tnn.Linear(2, 2)])
    model.alias = model[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nn.convert(model, {"* !alias": E5M2})
    assert [swap.name for swap in found.left] == ["0"]


def test_convert_names_the_class_of_a_type_that_is_given_by_its_name():
    with pytest.raises(ValueError, match=r"'Linear' matches no layer.*; for the type, give the class Linear"):
        nn.convert(torch.nn.Linear(2, 2), {"Linear": "fp32"})


def test_convert_swaps_layers_with_rounded_parameters():
    found = nn.convert(tnn.Linear(2, 2), "fp32, update=e6m5.sr10")
    assert [swap.policy.update for swap in found.swapped] == [nn.Cast.parse("e6m5.sr10")]
    x = torch.randn(3, 2)
    assert torch.equal(found.model(x), tnn.functional.linear(x, found.model.weight, found.model.bias))


def test_convert_preserves_shared_layers_and_parameters():
    shared = tnn.Linear(4, 4)
    model = tnn.ModuleDict({"a": shared, "b": shared, "c": tnn.Linear(4, 4), "e": tnn.Embedding(4, 4)})
    model["c"].weight = model["e"].weight
    found = nn.convert(model, {"b": E5M2, "c": E5M2})
    assert [swap.name for swap in found.swapped] == ["a", "c"]
    assert found.model["a"] is found.model["b"]
    assert found.model["c"].weight is found.model["e"].weight
    optimizer = torch.optim.SGD(found.model.parameters(), lr=1.0)
    nn.WeightUpdate(optimizer, "e5m2", parameters=[found.model["c"].weight, found.model["e"].weight])


def test_state_dicts_transfer_between_models():
    own = network()
    for policy in (E5M2, SR):
        made = nn.convert(own, policy).model
        extra = set(made.state_dict()) - set(own.state_dict())
        assert extra == ({f"{i}.rounding_state" for i in (0, 2, 3)} if policy == SR else set())
        made.load_state_dict(own.state_dict())
        x = normal(2, 1, 4, 4)
        made(x)
        other = nn.convert(network(), policy, seed=9).model
        other.load_state_dict(made.state_dict())
        assert same(made(x).detach(), other(x).detach())
        held = io.BytesIO()
        torch.save(made, held)
        held.seek(0)
        again = torch.load(held, weights_only=False)
        assert same(made(x).detach(), again(x).detach())
        twin = copy.deepcopy(made)
        assert same(made(x).detach(), twin(x).detach())


@pytest.mark.parametrize("first", ["convert", "utils"])
def test_torch_utilities_work_on_converted_models(first):
    """Weight norm, orthogonal weights, pruning and clipping, before or after conversion."""

    def utilities(model):
        parametrizations.weight_norm(model[2])
        parametrizations.orthogonal(model[3])
        prune.l1_unstructured(model[0], "weight", 0.5)
        return model

    torch.manual_seed(0)
    model = network()
    if first == "utils":
        with pytest.raises(ValueError, match="torch cannot copy the model"):
            nn.convert(utilities(model), E5M2)
        nn.convert(model, E5M2, inplace=True)
    else:
        model = utilities(nn.convert(model, E5M2).model)
    x = normal(2, 1, 4, 4)
    y = model(x)
    hand, rows = Expected(E5M2), x.unfold(2, 3, 1).unfold(3, 3, 1).reshape(2 * 4, 9)
    with torch.no_grad():
        conv = hand.forward(rows, model[0].weight.flatten(1), model[0].bias).reshape(2, 4, 2).mT.reshape(2, 8)
        inner = hand.forward(conv, model[2].weight, model[2].bias)
        assert same(y.detach(), hand.forward(inner, model[3].weight, model[3].bias))
    assert (model[0].weight == 0).sum() == 9
    y.sum().backward()
    norm = tnn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norm > 0
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    torch.nn.utils.parametrize.remove_parametrizations(model[2], "weight")
    assert isinstance(model[2], nn.Linear)
    assert same(model(x).detach(), y.detach())


@pytest.mark.parametrize("layer", [tnn.Conv1d(2, 2, 3), tnn.Tanh(), tnn.Sequential(tnn.LSTM(2, 2))])
def test_convert_rejects_model_without_layer_to_swap(layer):
    with pytest.raises(ValueError, match=f"{type(layer).__name__} has no layer that can be swapped: .*Linear"):
        nn.convert(layer, "e5m2*e5m2+e6m5.rn")
