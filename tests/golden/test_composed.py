"""Composed units in the golden model: bits of torch's composition under a policy, exact results, and special values."""

import math
import random

import pytest
import torch
import torch.nn.functional as F

import halfulp
from halfulp import golden

COUNT = 17
"""Elements of the vectors that torch computes."""


def rows(fmt):
    """Return vectors of codes: random ones of different size, and zeros and special values."""
    noise = torch.Generator().manual_seed(1)
    x = torch.randn(24, COUNT, generator=noise) * torch.exp(torch.randn(24, 1, generator=noise))
    x[0], x[1], x[2, 3:] = -0.0, 0.0, -0.0
    if not fmt.startswith("posit"):
        x[3, 4], x[4, 5], x[5, 6], x[6] = torch.nan, -torch.inf, torch.inf, -torch.inf
    return golden.encode(x, fmt)


def same(codes, real, fmt):
    """Return True if codes are those of real numbers; NaN equals NaN."""
    want = golden.encode(real, fmt)
    both_nan = golden.decode(codes, fmt).isnan() & real.isnan()
    return bool(((codes == want) | both_nan).all())


@pytest.mark.parametrize(
    ("fmt", "reductions"), [("bf16", "fp32.rn"), ("bf16", "bf16.rz"), ("e4m3", "fp32.rd"), ("posit16", "posit16.rn")]
)
def test_units_have_the_bits_of_a_policy(fmt, reductions):
    x = rows(fmt)
    noise = torch.Generator().manual_seed(2)
    gain, bias = (golden.encode(torch.randn(COUNT, generator=noise), fmt) for _ in range(2))
    reals = [golden.decode(codes, fmt).float() for codes in (x, gain, bias)]
    with golden.emulate(f"{fmt}*{fmt}+fp32, elementwise={fmt}.rn, reductions={reductions} sequential", strict=True):
        softmax = torch.softmax(reals[0], -1)
        rms = F.rms_norm(reals[0], [COUNT], reals[1], 0.01)
        layer = F.layer_norm(*reals[:1], [COUNT], *reals[1:], 0.01)
        plain = F.layer_norm(reals[0], [COUNT], None, None, 0.01)
    formats = {"a": fmt, "reductions": reductions}
    assert same(golden.softmax(x, **formats), softmax, fmt)
    assert same(golden.rmsnorm(x, gain, gain=fmt, eps=0.01, **formats), rms, fmt)
    assert same(golden.layernorm(x, gain, bias, gain=fmt, bias=fmt, eps=0.01, **formats), layer, fmt)
    assert same(golden.layernorm(x, eps=0.01, **formats), plain, fmt)


def test_functions_of_a_policy_have_their_own_format():
    x = rows("bf16")
    policy = "bf16*bf16+fp32, elementwise=bf16.rn, functions=e5m4.rz, reductions=e6m9.rn sequential"
    with golden.emulate(policy, strict=True):
        want = torch.softmax(golden.decode(x, "bf16").float(), -1)
    assert same(golden.softmax(x, a="bf16", functions="e5m4.rz", reductions="e6m9"), want, "bf16")


TEXTS = [
    "softmax e4m3",
    "softmax e4m3fn>e5m2.ru elementwise=e5m5.rz functions=e5m3 reductions=e6m9.rd",
    "softmax e3m2>e4m3 elementwise=e4m3.rn.satfinite functions=e4m3.rn.sat",
    "softmax posit8",
    "softmax fxp4.4",
    "softmax takum8>posit8",
    "softmax e4m3 argument=fxp4.3 pieces=4",
    "rmsnorm e4m3*e5m2>e5m2 eps=0.01",
    "rmsnorm e4m3-ftz*e2m1fn eps=0.5 reductions=e6m9.rz",
    "rmsnorm e2m1fn eps=0",
    "rmsnorm int8*posit8>bf16 elementwise=bf16",
    "layernorm e4m3*e4m3+e4m3 eps=0.01",
    "layernorm e4m3fn+e5m2>e3m2.ra elementwise=e5m5.ru functions=e5m7 reductions=fp32",
    "layernorm posit8 eps=0.01",
    "layernorm fxp4.4 eps=0.5",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", TEXTS)
def test_golden_model_equals_exact_fractions(text):
    unit, noise = halfulp.unit(text), random.Random(text)
    for length in (1, 2, 3, 7):
        widths = [fmt.width for fmt in unit.spec.operands.values()]
        batch = [[[noise.getrandbits(width) for _ in range(length)] for width in widths] for _ in range(12)]
        batch.append([[unit.spec.a.encode(0.0)] * length, *batch[0][1:]])
        given = torch.tensor(batch).unbind(1)
        exact = [unit.exact(*vectors) for vectors in batch]
        assert unit.reference(*given).tolist() == exact


def real(unit, *vectors):
    """Return the results of a unit for vectors of real numbers."""
    spec = unit.spec
    codes = [golden.encode(vector, fmt) for vector, fmt in zip(vectors, spec.operands.values(), strict=True)]
    return golden.decode(unit.reference(*codes), spec.o).tolist()


def test_values_by_hand():
    softmax = halfulp.unit("softmax bf16")
    assert real(softmax, [3.0]) == [1.0]
    assert real(softmax, [-2.0, -2.0]) == [0.5, 0.5]
    assert real(softmax, [1.0, -math.inf, 1.0]) == [0.5, 0.0, 0.5]
    for special in ([-math.inf, -math.inf], [1.0, math.inf], [math.nan, 0.0]):
        assert all(map(math.isnan, real(softmax, special)))
    # exp(-1) is 0.3671875 in bf16, the sum 1.3671875, and the quotients round to these.
    assert real(softmax, [0.0, -1.0]) == [0.73046875, 0.26953125]
    rms = halfulp.unit("rmsnorm bf16*bf16 eps=0")
    assert real(rms, [2.0, -2.0], [1.0, 3.0]) == [1.0, -3.0]
    assert all(map(math.isnan, real(rms, [0.0, 0.0], [1.0, 1.0])))
    assert real(halfulp.unit("rmsnorm bf16"), [0.0, -0.0]) == [0.0, 0.0]
    layer = halfulp.unit("layernorm bf16*bf16+bf16 eps=0")
    assert real(layer, [1.0, 5.0], [1.0, 2.0], [0.0, 10.0]) == [-1.0, 12.0]
    assert real(halfulp.unit("layernorm bf16+bf16"), [7.0], [3.0]) == [3.0]


def test_vectors_of_a_batch_are_independent_and_operands_broadcast():
    x = torch.randint(0, 256, (2, 3, 5), generator=torch.Generator().manual_seed(3))
    gain = torch.randint(0, 256, (5,), generator=torch.Generator().manual_seed(4))
    given = {"a": "e4m3", "gain": "e4m3", "eps": 0.01}
    batch = golden.rmsnorm(x, gain, **given)
    assert batch.shape == (2, 3, 5)
    assert batch[1, 2].tolist() == golden.rmsnorm(x[1, 2], gain, **given).tolist()


@pytest.mark.parametrize(
    ("operands", "given", "sentence"),
    [
        ([[1]], {"gain": "bf16"}, r"rmsnorm bf16\*bf16.rn takes a, gain, not 1 operands"),
        ([[1], [1]], {}, r"rmsnorm bf16.rn takes a, not 2 operands"),
        ([[]], {}, "vectors of rmsnorm have 1 to 65536 elements in the last dimension"),
        ([1], {}, "vectors of rmsnorm have 1 to 65536 elements in the last dimension"),
        ([[1, 2]], {"lengths": 3}, "rmsnorm has no parameter lengths"),
        ([[1 << 16]], {}, "a contains 65536; codes of 16 bits are 0 to 65535"),
    ],
)
def test_operation_refuses(operands, given, sentence):
    tensors = [torch.tensor(codes, dtype=torch.int64) for codes in operands]
    with pytest.raises((TypeError, ValueError), match=sentence):
        golden.rmsnorm(*tensors, a="bf16", **given)


def test_exact_function_refuses_vectors_of_different_lengths():
    with pytest.raises(ValueError, match=r"rmsnorm bf16\*bf16.rn length=2 takes vectors a, gain of one length"):
        halfulp.unit("rmsnorm bf16*bf16").exact([1, 2], [1])
