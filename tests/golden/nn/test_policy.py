"""Policies: texts and defaults."""

import math

import pytest
import torch

from halfulp.golden import nn
from halfulp.hdl.specs import MacSpec
from tests.layers_by_hand import E5M2, POLICIES


@pytest.mark.parametrize("text", [*POLICIES, "fp32", "e5m2*e5m2+e6m5.rn, update=fxp4.4.sr3, master=true"])
def test_policy_parse_and_str_are_inverse(text):
    policy = nn.Policy.parse(text)
    assert str(policy) == text
    assert nn.Policy.parse(policy) is policy
    assert nn.Policy.parse(str(policy)) == policy
    hash(policy)


def test_policy_parts_have_defaults():
    assert nn.Policy.of(E5M2) == nn.Policy.parse(MacSpec.parse(E5M2)) == nn.Policy(E5M2, E5M2, E5M2)
    assert nn.Policy.parse(f"{E5M2}, forward=fp32").macs == (None, MacSpec.parse(E5M2), MacSpec.parse(E5M2))
    assert [str(nn.Cast.parse(text)) for text in ("rn", "e5m2", "fxp4.4", "fxp4.4.sr3.sat", "rn.satfinite", "sr1")] == (
        ["rn", "e5m2.rn", "fxp4.4.rn", "fxp4.4.sr3.sat", "rn.satfinite", "sr1"]
    )


@pytest.mark.parametrize(
    ("spaced", "text"),
    [
        ("e5m2 * e5m2 + e6m5.sr10 , weights = e5m2 . sr3 . sat", "e5m2*e5m2+e6m5.sr10, weights=e5m2.sr3.sat"),
        ("e5m2 *e5m2 = e6m5.rn + e6m5.rn", "e5m2*e5m2=e6m5.rn+e6m5.rn"),
        ("forward = e5m2* e5m2+e6m5.rn", "forward=e5m2*e5m2+e6m5.rn, input_gradient=fp32, weight_gradient=fp32"),
        ("FP32, activations = FP8.rn", "fp32, activations=e4m3fn.rn"),
        ("BF16*BF16+FP32.rn", "bf16*bf16+fp32.rn"),
    ],
)
def test_policy_ignores_blanks_and_case_of_formats(spaced, text):
    assert str(nn.Policy.parse(spaced)) == text


def test_cast_that_saturates_infinities_changes_numbers_of_its_own_format():
    casts = [nn.Cast.parse(text) for text in ("e5m2.rn", "e5m2.rn.sat", "e5m2.rn.satfinite", "e4m3fn.rn.satfinite")]
    assert [cast.keeps(cast.fmt) for cast in casts] == [True, True, False, True]
    assert not casts[0].keeps(None)
    infinity = torch.tensor([math.inf, -math.inf, math.nan])
    assert [str(cast.real(infinity, 0).tolist()) for cast in casts[1:3]] == [
        "[inf, -inf, nan]",
        "[57344.0, -57344.0, nan]",
    ]
