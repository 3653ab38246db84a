"""Operations and conversions of posits in the golden model and in the formats against SoftPosit.

`tests/softposit_differences.py` has the cases in which its operations differ. An integer with only its first bit set
becomes NaR, and ``ui64_to_p32`` rounds up to 2^64 from 2^10 below the midpoint. A result equal to the least integer
becomes one more. NaR as a float64 is infinity, except from ``posit32``.
"""

import itertools
import math

import pytest
import softposit
import torch

from halfulp import golden
from halfulp.hdl.formats import RO, Fixed, Posit
from tests.softposit_differences import (
    COUNT,
    DEPARTURES,
    DIRECTED,
    OPERATIONS,
    TYPES,
    Strings,
    by_golden,
    by_softposit,
    call,
    classify,
    codes_of,
    codes_of_integers,
    every_code,
    every_type,
    operands,
    positions,
    sample,
    signed,
    with_sign,
)

# Operations ----------------------------------------------------------------------------------------------------------


def compare(operation, kind):
    """Compare vectors; return their number and the result of `classify`."""
    fmt = kind.fmt
    columns = operands(fmt, 3 if operation == "fma" else 2)
    if directed := DIRECTED.get((operation, str(kind))):
        columns = [torch.cat(pair) for pair in zip(columns, torch.tensor(directed).T, strict=True)]
    ours = signed(by_golden(operation, fmt, columns), fmt)
    theirs = signed(by_softposit(operation, kind, columns), fmt)
    results = Strings.of(by_golden(operation, fmt, columns, Posit(64, fmt.es), RO), fmt)
    departures = [departure(results, fmt, columns) for departure in DEPARTURES.get((operation, str(kind)), [])]
    return len(ours), *classify(ours, theirs, [with_sign(ours, departure) for departure in departures])


@pytest.mark.sampled(12)
@every_type
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_match_softposit(operation, kind, oracle):
    count, departed, wrong = compare(operation, kind)
    assert count >= min(COUNT, 1 << 16)
    assert all(departed)
    assert wrong == []
    oracle("softposit", {"sub": "add"}.get(operation, operation), count - sum(departed), kind.fmt)


@pytest.mark.sampled(3)
@every_type
def test_compare_matches_softposit(kind, oracle):
    """NaR of SoftPosit, too, is the least posit and equals itself."""
    fmt = kind.fmt
    first, second = operands(fmt, 2)
    columns = [torch.cat([first, first[::8]]), torch.cat([second, first[::8]])]
    ours = golden.compare(*columns, a=fmt, b=fmt, o=fmt)
    for name, wanted in {"lt": ours.less, "eq": ours.equal, "le": ours.less | ours.equal}.items():
        found = torch.tensor(list(call(getattr(softposit, f"{kind.name}_{name}"), kind, columns)))
        assert positions(found != wanted.to(torch.bool)) == []
    oracle("softposit", "compare", len(columns[0]), fmt)


# Conversions ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("source", "target"),
    [pair for pair in itertools.product(TYPES, TYPES) if pair[0] != pair[1] or pair[0].name == "pX2"],
    ids=str,
)
def test_convert_matches_softposit(source, target, oracle):
    codes = every_code(source.fmt)
    function = getattr(softposit, f"{source.name}_to_{target.name}")
    theirs = codes_of(call(function, source, [codes], *target.wide), target)
    assert positions(golden.convert(codes, a=source.fmt, o=target.fmt) != theirs) == []
    oracle("softposit", "convert", len(codes), source.fmt, target.fmt)


@every_type
def test_decode_matches_softposit_doubles(kind):
    codes = every_code(kind.fmt)
    function = getattr(softposit, f"convert{kind.name.upper()}ToDouble")
    theirs = torch.tensor(list(call(function, kind, [codes])), dtype=torch.float64)
    ours = golden.decode(codes, kind.fmt)
    nar = codes == kind.fmt.nan_code
    assert positions((ours.view(torch.int64) != theirs.view(torch.int64)) & ~nar) == []
    assert nar.sum() > 0
    assert ours[nar].isnan().all()
    assert theirs[nar].isnan().all() if kind.name == "p32" else (theirs[nar] == math.inf).all()


def reals(fmt, seed=1):
    """Return numbers of a format, midpoints, their neighbours in float64, and others, some out of range."""
    finer = Posit(fmt.width + 1, fmt.es)
    generator = torch.Generator().manual_seed(seed)
    values = golden.decode(sample(finer, generator, COUNT // 4), finer)
    infinity = torch.tensor(math.inf, dtype=torch.float64)
    others = torch.randn(COUNT // 4, dtype=torch.float64, generator=generator)
    scales = torch.randint(-fmt.max_scale - 8, fmt.max_scale + 8, others.shape, generator=generator)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2.0**-1022, 1.7e308, -1.7e308]
    return torch.cat(
        [
            values,
            values.nextafter(infinity),
            values.nextafter(-infinity),
            others * 2.0**scales,
            torch.tensor(special, dtype=torch.float64),
        ]
    )


@every_type
def test_encode_matches_softposit_doubles(kind):
    values = reals(kind.fmt)
    function = getattr(softposit, f"convertDoubleTo{kind.name.upper()}")
    theirs = codes_of((function(value, *kind.wide) for value in values.tolist()), kind)
    assert len(values) >= COUNT
    assert positions(golden.encode(values, kind.fmt) != theirs) == []


INTEGERS = {"i32": Fixed(32, 0), "ui32": Fixed(32, 0, False), "i64": Fixed(64, 0), "ui64": Fixed(64, 0, False)}


def integers(fmt, seed=1):
    """Return values of an integer type: of every length, sums of few powers of two, and neighbours of these."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return torch.randint(low, high, (COUNT // 4,), generator=generator)

    any_length = draw(-(2**63), 2**63 - 1) >> draw(0, 64)
    one = torch.ones_like(any_length)
    near_power = (one << draw(0, 64)) + draw(-2, 3)
    near_sum = near_power + (one << draw(0, 64))
    middle = 1 << (fmt.width - 1)
    values = torch.cat([any_length, near_power, near_sum, -near_sum]).tolist()
    return [(value + middle) % (2 * middle) - middle if fmt.signed else value % (2 * middle) for value in values]


@pytest.mark.sampled(6)
@every_type
@pytest.mark.parametrize("name", INTEGERS)
def test_convert_from_integers_matches_softposit(name, kind, oracle):
    fmt = INTEGERS[name]
    values = integers(fmt)
    codes = codes_of_integers(values, fmt)
    function = getattr(softposit, f"{name}_to_{kind.name}")
    theirs = codes_of((function(value, *kind.wide) for value in values), kind)
    ours = golden.convert(codes, a=fmt, o=kind.fmt)
    assert len(codes) >= COUNT
    to_nar = codes == codes_of_integers([1 << (fmt.width - 1)], fmt)
    assert to_nar.sum() > 0
    assert (theirs[to_nar] == kind.fmt.nan_code).all()
    assert (ours[to_nar] != kind.fmt.nan_code).all()
    too_early = torch.zeros_like(to_nar)
    if (name, kind.name) == ("ui64", "p32"):
        # SoftPosit rounds up to 2^64 from 2^10 below the midpoint to the previous posit.
        first, middle = codes_of_integers([(1 << 64) - (1 << 50) - (1 << 10), (1 << 64) - (1 << 50)], fmt)
        too_early = (codes >= first) & (codes < middle)
        assert too_early.sum() > 0
        assert (theirs[too_early] == kind.fmt.encode(1 << 64)).all()
        assert (ours[too_early] == kind.fmt.encode(1 << 64) - 1).all()
    departs = to_nar | too_early
    assert positions((ours != theirs) & ~departs) == []
    oracle("softposit", "convert", int((~departs).sum()), fmt, kind.fmt)


@pytest.mark.sampled(3)
@every_type
@pytest.mark.parametrize("name", INTEGERS)
def test_convert_to_integers_matches_softposit(name, kind, oracle):
    fmt = INTEGERS[name]
    codes = every_code(kind.fmt)
    function = getattr(softposit, f"{kind.name}_to_{name}")
    theirs = codes_of_integers(call(function, kind, [codes]), fmt)
    ours = golden.convert(codes, a=kind.fmt, o=fmt)
    least = codes_of_integers([int(fmt.lowest)], fmt)
    one_more = (ours == least) & fmt.signed
    assert positions(ours + one_more != theirs) == []
    assert (one_more.sum() > 0) == (fmt.signed and kind.fmt.lowest <= fmt.lowest)
    oracle("softposit", "convert", int((~one_more).sum()), fmt, kind.fmt)


# The comparison itself -----------------------------------------------------------------------------------------------


DAMAGES = {
    "lost sticky": lambda decision: decision | {"sticky": torch.zeros_like(decision["sticky"])},
    "ties up": lambda decision: decision | {"last": torch.ones_like(decision["last"])},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@every_type
def test_softposit_comparison_detects_wrong_decision(kind, damage, monkeypatch):
    right = golden.round.round_up
    monkeypatch.setattr(golden.round, "round_up", lambda mode, **decision: right(mode, **damage(decision)))
    assert len(compare("mul", kind)[-1]) > 10
