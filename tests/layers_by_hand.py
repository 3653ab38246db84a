"""Reference results of layers, as products written out by hand."""

import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.draw import mix, states, words

E5M2 = "e5m2*e5m2+e6m5.rn"
SR = "e5m2*e5m2+e6m5.sr10"
MIXED = (
    "forward=e4m3fn*e4m3fn+fp16.rz, input_gradient=e5m2*e4m3fn+e6m5.ro, weight_gradient=e5m2*fxp4.4+bf16.sr4, "
    "weights=e4m3fn.sr3, activations=rz, gradients=sr5.sat, bias=e5m2.ra"
)
POLICIES = [
    E5M2,
    SR,
    f"{SR}@lfsr16",
    "e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat@plateau3",
    "fxp4.4*fxp4.4=fxp4.4.rn+fxp8.8.rn",
    "posit8*posit8+exact=posit16.rn",
    MIXED,
    "forward=fp32, input_gradient=e5m2*e5m2+e6m5.rn, weight_gradient=fp32, weights=e5m2.rn",
]
ROLES = ("x", "w", "bias", "gradient", "forward", "input_gradient", "weight_gradient", "bias_gradient")
SEED = 7


def rounded(values, cast, fmt, key):
    """Return the codes of values as a cast makes them, or the values if there is no format."""
    cast = nn.Cast.parse(cast)

    def once(values, fmt, cast):
        random = words(key, cast.rounding.bits, tuple(values.shape), values.device) if cast.rounding.bits else None
        return golden.encode(values, fmt, cast.rounding, random, cast.saturate)

    if cast.fmt is not None:
        codes = once(values, cast.fmt, cast)
        values, cast = golden.decode(codes, cast.fmt).float(), nn.Cast(saturate=cast.saturate)
    return values if fmt is None else once(values, fmt, cast)


def multiplied(mac, a, b, key, start=None):
    """Multiply operands, which are decoded first if they are codes."""
    if mac is None:
        return a @ b if start is None else a @ b + start
    given = {}
    if mac.random is not None:
        given["seed"] = states(key, mac.random, (*a.shape[:-1], b.shape[-1]), a.device)
    elif mac.words:
        given = {"source": "philox", "seed": key}
    return golden.decode(golden.gemm(a, b, mac, start=start, **given), mac.o).float()


class Expected:
    """Reference results of a layer with a policy, a seed and a number of uses, for matrices."""

    def __init__(self, policy, used=0, seed=SEED, activations=False):
        self.policy = nn.Policy.parse(policy)
        key = mix(seed, used) if self.policy.stochastic else 0
        self.key = {role: mix(key, place) for place, role in enumerate(ROLES)}
        self.second = self.policy.activations if activations else self.policy.weights

    def operand(self, role, side, values):
        casts = {"x": self.policy.activations, "w": self.second, "gradient": self.policy.gradients}
        mac = getattr(self.policy, side[0])
        fmt = None if mac is None else getattr(mac, side[1])
        return rounded(values, casts[role], fmt, self.key[role])

    def start(self, bias):
        mac = self.policy.forward
        return None if bias is None else rounded(bias, self.policy.bias, mac and mac.o, self.key["bias"])

    def forward(self, x, w, bias=None):
        a, b = self.operand("x", ("forward", "a"), x), self.operand("w", ("forward", "b"), w)
        return multiplied(self.policy.forward, a, b.mT, self.key["forward"], self.start(bias))

    def input_gradient(self, g, w):
        a, b = self.operand("gradient", ("input_gradient", "a"), g), self.operand("w", ("input_gradient", "b"), w)
        return multiplied(self.policy.input_gradient, a, b, self.key["input_gradient"])

    def weight_gradient(self, g, x):
        a, b = self.operand("gradient", ("weight_gradient", "a"), g), self.operand("x", ("weight_gradient", "b"), x)
        return multiplied(self.policy.weight_gradient, a.mT, b, self.key["weight_gradient"])

    def bias_gradient(self, g):
        mac = self.policy.weight_gradient
        a = self.operand("gradient", ("weight_gradient", "a"), g)
        one = torch.ones(len(g), 1) if mac is None else torch.full((len(g), 1), mac.b.encode(1))
        return multiplied(mac, a.mT, one, self.key["bias_gradient"]).squeeze(-1)


def same(x, y):
    """Return True if two tensors have the same bits, counting NaN as equal."""
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    nan = x.isnan() & y.isnan()
    return bool((nan | (x.view(torch.int32) == y.view(torch.int32))).all())


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def network():
    return tnn.Sequential(tnn.Conv2d(1, 2, 3), tnn.Flatten(), tnn.Linear(8, 4), tnn.Linear(4, 3))


RANDOM = f"{SR}, weights=e5m2.sr3"
