"""Rounding of the golden model against gfloat.

``StochasticFastest`` of gfloat is ``srN``: because R is an integer, the discarded fraction plus R/2^N reaches one if
and only if its first N bits plus R reach 2^N. Its other stochastic modes differ: they round the fraction to N bits
first, or add half a unit to R. gfloat has no rounding to odd; its ``StochasticOdd`` breaks ties toward odd. The test
derives ``ro`` from truncation, from which it differs by one code if the operand is between two codes and the lower one
is even. Formats with one significand bit are excluded: at a tie gfloat takes the even code, and IEEE 754-2019 (4.3.1)
the larger magnitude.
"""

import numpy as np
import pytest
import torch
from gfloat import RoundMode, decode_float, encode_ndarray, round_ndarray
from gfloat.formats import (
    format_info_bfloat16,
    format_info_binary16,
    format_info_ocp_e2m1,
    format_info_ocp_e2m3,
    format_info_ocp_e3m2,
    format_info_ocp_e4m3,
    format_info_ocp_e5m2,
    format_info_p3109,
)
from gfloat.types import Domain

from halfulp import golden
from halfulp.hdl.formats import (
    BF16,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3FN,
    E5M2,
    FP16,
    FP32,
    RN,
    RO,
    RZ,
    Rounding,
    parse,
    stochastic,
)
from halfulp.sim.ports import Ports
from halfulp.sim.vectors import make

PAIRS = {
    E4M3FN: format_info_ocp_e4m3,
    E5M2: format_info_ocp_e5m2,
    E3M2FN: format_info_ocp_e3m2,
    E2M3FN: format_info_ocp_e2m3,
    E2M1FN: format_info_ocp_e2m1,
    FP16: format_info_binary16,
    BF16: format_info_bfloat16,
    **{parse(f"binary8p{p}"): format_info_p3109(8, p) for p in (3, 4)},
    parse("binary6p3"): format_info_p3109(6, 3),
}

DOMAINS = {"": Domain.Extended, "se": Domain.Extended, "f": Domain.Finite}
"""Ends of the names of signed formats of IEEE P3109."""

MODES = {
    "rn": RoundMode.TiesToEven,
    "ra": RoundMode.TiesToAway,
    "rz": RoundMode.TowardZero,
    "ru": RoundMode.TowardPositive,
    "rd": RoundMode.TowardNegative,
}


def operands(target):
    """Return codes of numbers and infinities, their format and their values.

    Narrow targets get all of bf16, wide ones fp32 numbers at ties and boundaries. fp64 is excluded because gfloat adds
    R/2^N in float64, which rounds long fractions.
    """
    if target.width <= 8:
        codes, fmt = torch.arange(1 << 16), BF16
    else:
        vectors = make(Ports.of({"a": FP32}), [target], seed=5, limit=1 << 16)
        codes, fmt = torch.from_numpy(vectors.codes["a"].astype(np.int64)), FP32
    values = golden.decode(codes, fmt)
    numbers = ~values.isnan()
    return codes[numbers], fmt, values[numbers]


def by_gfloat(values, target, mode, **stochastic_words):
    """Round values by gfloat with saturation, which each of its formats allows; infinities saturate too."""
    info = PAIRS[target]
    rounded = round_ndarray(info, values.numpy(), mode, sat=True, **stochastic_words)
    return torch.from_numpy(encode_ndarray(info, rounded).astype(np.int64))


@pytest.mark.sampled(72, 3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", PAIRS, ids=str)
def test_encode_and_convert_match_gfloat_in_ieee_modes(target, mode, oracle):
    codes, fmt, values = operands(target)
    found = golden.encode(values, target, Rounding.parse(mode), saturate="satfinite")
    wanted, finite = by_gfloat(values, target, MODES[mode]), values.isfinite()
    assert len(values) > 30_000
    assert (~finite).sum() >= 2
    assert torch.nonzero(found != wanted).flatten().tolist() == []
    assert torch.equal(golden.convert(codes, a=fmt, o=target, rounding=mode, saturate="satfinite"), wanted)
    saturated = golden.convert(codes[finite], a=fmt, o=target, rounding=mode, saturate=True)
    assert torch.equal(saturated, wanted[finite])
    oracle("gfloat", "convert", len(values), fmt, target)


@pytest.mark.sampled(56, 3)
@pytest.mark.parametrize("bits", [1, 2, 3, 5])
@pytest.mark.parametrize("target", PAIRS, ids=str)
def test_encode_and_convert_match_gfloat_in_stochastic_modes(target, bits, oracle):
    codes, fmt, values = operands(target)
    more = {"rounding": stochastic(bits), "saturate": "satfinite"}
    for word in range(1 << bits):
        words = torch.full(values.shape, word)
        found = golden.encode(values, target, random=words, **more)
        wanted = by_gfloat(values, target, RoundMode.StochasticFastest, srbits=words.numpy(), srnumbits=bits)
        assert torch.nonzero(found != wanted).flatten().tolist() == []
        assert torch.equal(golden.convert(codes, a=fmt, o=target, random=words, **more), wanted)
    oracle("gfloat", "convert", len(values) << bits, fmt, target)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", PAIRS, ids=str)
def test_encode_to_odd_matches_gfloat_truncation(target):
    *_, values = operands(target)
    truncated = by_gfloat(values, target, RoundMode.TowardZero)
    exact = golden.decode(truncated, target)
    within = (values != exact) & (values.abs() < float(target.largest))
    # A negative number that is truncated to a zero without sign becomes odd with its own sign.
    above = torch.where((truncated == 0) & (values < 0), target.sign_code | 1, truncated + 1)
    wanted = torch.where(within & (truncated % 2 == 0), above, truncated)
    assert torch.equal(golden.encode(values, target, RO, saturate="satfinite"), wanted)
    assert within.sum() > 1000


@pytest.mark.parametrize("end", DOMAINS)
@pytest.mark.parametrize("width", [3, 5, 8])
def test_values_of_p3109_match_gfloat(width, end):
    for precision in range(1, width):
        fmt, info = parse(f"binary{width}p{precision}{end}"), format_info_p3109(width, precision, domain=DOMAINS[end])
        assert fmt == parse(f"p3109_k{width}p{precision}{end}") == parse(str(fmt))
        found = [str(float(fmt.decode(code))) for code in range(1 << width)]
        assert found == [str(float(decode_float(info, code).fval)) for code in range(1 << width)]
        assert (fmt.has_inf, fmt.nan_code) == (DOMAINS[end] is Domain.Extended, 1 << (width - 1))


@pytest.mark.slow
def test_gfloat_comparison_can_fail():
    *_, values = operands(E4M3FN)
    assert (golden.encode(values, E4M3FN, RZ, saturate=True) != by_gfloat(values, E4M3FN, MODES["rn"])).sum() > 1000
    assert (golden.encode(values, E4M3FN, RN) != by_gfloat(values, E4M3FN, MODES["rn"])).sum() > 1000
