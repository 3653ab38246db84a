"""Coverage: bins match their names, proofs match enumeration, and missing vectors leave bins open."""

import functools
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from halfulp.golden.codec import truncate, unpack
from halfulp.golden.raw import multiply
from halfulp.hdl.formats import Format, Rounding, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import UnitSpec, formula
from halfulp.hdl.specs.formula import Formula, Sum, term
from halfulp.sim import bench
from halfulp.sim.classes import Regimes, some_codes
from halfulp.sim.corner_cases import corner_cases
from halfulp.sim.coverage import proofs, reach
from halfulp.sim.coverage.cli import coverage as command
from halfulp.sim.coverage.collect import Coverage
from halfulp.sim.coverage.model import Model
from halfulp.sim.coverage.stages import rest_of
from halfulp.sim.coverage.sums import Sums
from halfulp.sim.coverage.verdicts import EXCLUDED, OPEN, REFUTED, Verdicts
from halfulp.sim.directed import Directed
from halfulp.sim.fields import Grid
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.reference import reference
from halfulp.sim.space import Space
from halfulp.sim.vectors import sampled
from halfulp.units.catalogue import CATALOGUE, component
from tests.settings import EXHAUSTIVE
from tests.short_form import build

FORMATS = ("e5m2", "e4m3fn", "posit8", "fxp4.4")
MODES = (*ROUNDING_MODES, "sr1", "sr4")


def made(name: str, fmt: str, **options: Any) -> Any:
    """Return a unit without simulating it."""
    return build(name, fmt, **options)


def covered(unit: Any, codes: dict[str, Codes]) -> Coverage:
    """Count the bins of some vectors with golden results."""
    coverage = Coverage(unit)
    coverage.sample(codes, reference(unit, codes))
    return coverage


def everything(unit: Any) -> dict[str, Codes]:
    """Return every vector of a small unit, with random words and controls."""
    space = Space.of(Ports.inputs_of(unit))
    count = 1 << (space.bits + space.random_bits)
    columns = space.codes(0, count, with_random=True)
    return {name: np.broadcast_to(column, count).copy() for name, column in columns.items()}


# Truncation ----------------------------------------------------------------------------------------------------

TARGETS = (
    *("e4m3fn", "e2m1fn", "e3m0", "e3m2-ftz", "e4m3fnuz", "fxp4.4", "ufxp3.2"),
    *("posit8", "posit6e0", "posit5e2", "takum8", "takum6"),
)


def truncated_products(o: Format, fmt: Format, places: int) -> Iterator[tuple[Any, ...]]:
    """Yield magnitude, sign, code, rest, ``seen`` and ``beyond`` of truncated products, except 0 and special ones."""
    x, y = torch.meshgrid(torch.arange(1 << fmt.width), torch.arange(1 << fmt.width), indexing="ij")
    x, y = x.flatten()[::3], y.flatten()[::3]
    exact = multiply(unpack(x, fmt), unpack(y, fmt))
    z = truncate(exact, o, places)
    columns = (x, y, exact.sign, z.code, rest_of(z), z.seen, z.beyond)
    for a, b, *row in zip(*(column.tolist() for column in columns), strict=True):
        factors = fmt.decode(a), fmt.decode(b)
        if all(isinstance(factor, Fraction) and factor for factor in factors):
            yield abs(factors[0] * factors[1]), *row  # type: ignore[operator]  # both are fractions


@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", TARGETS)
def test_truncation_matches_description(text: str) -> None:
    """Truncated products lie between neighbouring values of the format at the stated distance."""
    o, fmt = parse(text), parse("e4m2")
    grid, places = Grid.of(o), 3
    rests = set()
    for size, sign, code, rest, seen, beyond in truncated_products(o, fmt, places):
        end = o.lowest if sign else o.largest
        last = grid.code_of(end)
        after = abs(end) + Fraction(2) ** int(grid.last_place(np.array([grid.emax]))[0])
        if beyond:
            assert size > abs(end)
            assert size >= after or o.rounds == "string"
        elif o.flushes and code < grid.code_of(o.smallest):
            assert size < o.smallest
        else:
            low = grid.value(code, sign)
            high = grid.value(code + 1, sign) if code < last else after
            assert low <= size < high
            if o.rounds == "string" and code in (0, last):
                # No tie exists between zero and the smallest number, or above the largest.
                assert rest == (size > low)
                continue
            middle = o.middle(low, high)
            assert rest == (0 if size == low else 1 if size < middle else 2 if size == middle else 3)
            if o.rounds != "string" or high < 4 * low:
                assert seen == (size - low) * 2**places // (high - low)
            rests.add(rest)
    assert rests >= {0, 1, 2}


FUNCTIONS: dict[str, tuple[Callable[..., Fraction], int]] = {
    "div e3m2/e3m2=e2m2": (lambda x, y: x / y, 1),
    "div posit6/fxp2.3=takum6": (lambda x, y: x / y, 1),
    "reciprocal e4m3>e3m2": (lambda x: 1 / x, 1),
    "sqrt e4m3>e3m2": (lambda x: x, 2),
    "rsqrt fxp3.4>fxp2.4": (lambda x: 1 / x, 2),
    "scaleb e3m2,int4=e2m1": (lambda x, y: x * Fraction(2) ** int(y), 1),
    "logb e5m2>e3m1": (lambda x: Fraction(floor_log2(abs(x))), 1),
    "remainder e3m2,e3m2=e2m1": (lambda x, y: x - y * round(x / y), 1),
}
"""Powers of the exact results of units, with their exponents."""


def truncated_results(unit: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the operands of a unit, if neither the first nor the last is 0, and its truncated results."""
    codes = everything(unit)
    (stage,) = Model(unit).stages
    raw = stage.terms[0].make({name: torch.from_numpy(column.view(np.int64)) for name, column in codes.items()})
    where = truncate(raw, unit.spec.o, 1)
    numbers = [map(fmt.decode, codes[name].tolist()) for name, fmt in unit.spec.operands.items()]
    numbers += [column.tolist() for column in (raw.sign, raw.zero, where.code, where.beyond, rest_of(where))]
    for row in zip(*numbers, strict=True):
        operands = row[:-5]
        if all(isinstance(x, Fraction) for x in operands) and operands[0] and operands[-1]:
            yield operands, *row[-5:]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", FUNCTIONS)
def test_bins_of_functions_match_fractions(text: str) -> None:
    unit, (power_of, power) = component(text), FUNCTIONS[text]
    o, grid = unit.spec.o, Grid.of(unit.spec.o)
    rests = set()
    for operands, sign, zero, code, beyond, rest in truncated_results(unit):
        exact = power_of(*operands)
        if power == 2 and exact < 0:
            continue
        assert zero == (exact == 0)
        if zero:
            continue
        assert sign == (exact < 0)
        low, high = (grid.value(code + up, sign) for up in (0, 1)) if code < grid.max_code else (o.largest, None)
        if beyond or high is None or (o.rounds == "string" and not code):
            assert abs(exact) >= abs(o.lowest if sign else o.largest) ** power or not beyond
            continue
        size, middle = abs(exact), o.middle(low, high)
        assert low**power <= size < high**power
        tie = middle**power
        assert rest == (0 if size == low**power else 1 if size < tie else 2 if size == tie else 3)
        rests.add(rest)
    assert rests >= {0, 1}


def _significand(number: Fraction) -> Fraction:
    return abs(number) / Fraction(2) ** floor_log2(abs(number))


def _quotient_case(x: Fraction, y: Fraction) -> str:
    quotient = abs(x / y)
    far, whole = floor_log2(abs(x)) < floor_log2(abs(y)) - 1, quotient.denominator == 1
    tie = "tie, " if quotient.denominator == 2 else ""
    case = f"{tie}rounded {'up' if round(quotient) > quotient else 'down'}"
    return f"{'a, far below b' if far else 'zero' if whole else case}, {'-' if x < 0 else '+'}"


def _fraction_case(x: Fraction) -> str:
    fraction = abs(x) % 1
    rest = "exact" if not fraction else f"{'below' if fraction < 0.5 else 'at' if fraction == 0.5 else 'above'} the tie"
    return f"{('even', 'odd')[int(abs(x)) % 2]}, {rest}, {'-' if x < 0 else '+'}"


CASES_OF: dict[str, tuple[str, Callable[..., str | None]]] = {
    "div e3m2/e3m2": (
        "first digit of a / b",
        lambda x, y: "one or more" if _significand(x) >= _significand(y) else "below one",
    ),
    "sqrt fxp4.3": ("exponent of a", lambda x: ("even", "odd")[floor_log2(x) % 2] if x > 0 else None),
    "rsqrt posit8": ("exponent of a", lambda x: ("even", "odd")[floor_log2(x) % 2] if x > 0 else None),
    "remainder e3m2,e2m2": ("integer quotient", _quotient_case),
    "rint e4m3": ("fraction of a", _fraction_case),
    "rint fxp3.4.sr2": ("fraction of a", _fraction_case),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", CASES_OF)
def test_cases_of_functions_match_fractions(text: str) -> None:
    unit, (name, case_of) = component(text), CASES_OF[text]
    coverage = covered(unit, codes := everything(unit))
    expected: dict[str, int] = {}
    numbers = [map(fmt.decode, codes[port].tolist()) for port, fmt in unit.spec.operands.items()]
    for operands in zip(*numbers, strict=True):
        if all(isinstance(x, Fraction) and x for x in operands) and (case := case_of(*operands)):
            expected[case] = expected.get(case, 0) + 1
    group = coverage.groups[name]
    found = dict(zip(group.labels(), coverage.counts[name].tolist(), strict=True))
    assert {label: count for label, count in found.items() if count} == expected
    assert len(expected) > group.size / 2


# Proofs --------------------------------------------------------------------------------------------------------

SMALL: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("add", "e3m1", {}),
    ("add", "posit5", {"rounding": "sr2"}),
    ("mul", "e2m2", {"to": "e3m1", "rounding": "sr2"}),
    ("fma", "e2m1", {"to": "e2m0"}),
    ("fma", "e3m0", {"c": "e4m2", "to": "e3m1-ftz"}),
    ("mac", "e2m1", {"acc": "e3m2"}),
    ("mac", "posit3", {"acc": "posit6", "rounding": "ro"}),
    ("mac", "e2m1", {"acc": "e2m2", "product": "e2m0.sr1"}),
    ("mac", "fxp2.1", {"acc": "fxp3.1"}),
    ("quire", "e2m1", {"rounding": "rd"}),
    ("dot", "e2m0", {"k": 2, "to": "e3m1"}),
    ("dot", "fxp1.2", {"k": 3, "to": "fxp2.2"}),
    ("sparsedot", "e2m0", {"k": 1, "to": "e3m1", "sparsity": "1:3"}),
    ("sparsemac", "e2m0", {"acc": "e2m1", "sparsity": "1:2"}),
    ("dotmac", "e2m0", {"acc": "e2m1", "k": 2}),
    ("convert", "posit6", {"to": "e3m1"}),
    ("sru", "fxp2.4", {"to": "fxp2.2"}),
    ("compare", "e3m1", {"rounding": "sr2", "to": "e2m0"}),
    ("pwl", "e3m2", {"pieces": 2}),
    ("add", "e2m1", {"rounding": "port_sr1", "flags": "after"}),
    ("mac", "e2m1", {"acc": "e2m1-ftz", "product": "e2m0.rn", "flags": "before"}),
    ("mul", "fxp1.2", {"to": "fxp0.3", "rounding": "port", "flags": "after"}),
    ("compare", "e2m1", {"rounding": "port_ro", "to": "e2m0"}),
    ("div", "e2m1", {"to": "e2m0", "rounding": "sr2"}),
    ("remainder", "e2m1", {"rounding": "rd", "flags": "after"}),
    ("sqrt", "posit5", {}),
    ("rsqrt", "e3m1", {"rounding": "port", "flags": "before"}),
    ("reciprocal", "fxp2.2", {"rounding": "sr2"}),
    ("scaleb", "e2m1", {"b": "int4"}),
    ("requantize", "int4", {"multiplier": "fxp1.2", "shift": "uint2", "to": "int3"}),
    ("rint", "e3m2", {"to": "e2m2", "rounding": "sr2"}),
    ("logb", "takum5", {}),
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "fmt", "options"), SMALL)
def test_proofs_match_exhaustive_reach(name: str, fmt: str, options: dict[str, Any]) -> None:
    unit = made(name, fmt, **options)
    all_there_is = covered(unit, everything(unit))
    for known in (None, _few(unit).counts):
        found = reach.reach(Model(unit), known)
        for group in all_there_is.model.groups:
            reached = all_there_is.counts[group.name] > 0
            asked = ~reached if known is None else ~reached & (known[group.name] == 0)
            # Vectors with their own state leave the bins of an open load unreached.
            if group.name != "load x clear":
                assert (found[group.name].excluded & asked == asked).all(), group.name
                assert not (found[group.name].excluded & reached).any(), group.name


def _few(unit: Any) -> Coverage:
    return covered(unit, {name: column[::37] for name, column in everything(unit).items()})


@pytest.mark.parametrize("text", ["sqrt e3m2.sr2@lfsr4", "div e2m1/e2m1.port_sr2@lfsr4", "rint e3m2.port_sr2@lfsr4"])
def test_coverage_counts_functions_with_an_own_source(text: str) -> None:
    unit = component(text)
    coverage = covered(unit, everything(unit))
    groups = [name for name in coverage.groups if name.endswith("random words")]
    assert sum(int(coverage.counts[name].sum()) for name in groups) > 0


def test_enumerated_quotients_keep_digits_below_their_last_bit() -> None:
    (stage,) = Model(made("div", "e2m1")).stages
    values = reach._values(stage.terms[0])
    assert values is not None
    number = ~(values.zero | values.nan | values.inf)
    assert 0 < int((rest_of(truncate(values, stage.o, 1))[number] % 2).sum()) < int(number.sum())
    # 2/3 has the first digits 0.10101 and others below.
    assert values.sticky is not None
    assert set(values.sticky[number].tolist()) == {False, True}


def test_proofs_of_long_sums_exclude_other_zero_sign() -> None:
    unit = made("dot", "e2m1", k=3)
    rng = np.random.default_rng(0)
    codes = {port: rng.integers(0, 16, 1 << 12, dtype=np.uint64) for port in unit.inputs}
    coverage = covered(unit, codes)
    found = reach.reach(coverage.model, coverage.counts)["range"]
    labels = list(coverage.groups["range"].labels())
    excluded = [labels[index] for index in np.flatnonzero(found.excluded)]
    assert "-zero, exact" in excluded
    assert "+zero, exact" not in excluded
    assert coverage.counts["range"][labels.index("+zero, exact")] > 0


NARROW = "block(e2m1fn,2,e2m0fnu,floor)"
SCALED = "block(e2m0fn,3,e3m2,nearest)"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (f"blockdot2 {NARROW}*{NARROW}=e5m10.rn", ("alignment", "range", "rounding rn", "result")),
        (f"blockdot3 {SCALED}*{SCALED}=e5m4.sr2", ("alignment", "normalisation", "range")),
        (f"blockmac {NARROW}*{NARROW}+e5m4.rz", ("normalisation", "range", "rounding rz")),
        ("dot3 e2m1*e2m1=e5m6.sr2", ("range", "rounding sr2", "random words", "random edge", "result")),
        ("fma e2m1fn*e2m1fn+e5m2.rz", ("normalisation", "range", "rounding rz")),
        ("fma e4m1*e4m1+e4m3.ra", ("normalisation",)),
        ("sparsemac e2m1*e2m1+e3m2.rn", ("alignment", "normalisation")),
        ("sparsemac e3m1*e2m0+e3m3.rn", ("alignment", "normalisation")),
        ("accumulate uint4+e5m1.rn", ("normalisation",)),
        ("dot3 e2m1*e2m1=e3m1.ra", ()),
        ("dot3 e2m1*e2m1=e5m4.ra", ("range",)),
    ],
)
def test_bounds_exclude_no_reached_bin(text: str, groups: tuple[str, ...]) -> None:
    unit, rng = component(text), np.random.default_rng(0)
    ports = Ports.inputs_of(unit)
    codes = sampled(ports, bench.result_formats(unit), 1 << 17, rng, corners=corner_cases(unit))
    coverage = covered(unit, codes)
    (stage,) = coverage.model.stages
    waiting = {group.name: np.ones(group.size, dtype=bool) for group in stage.groups}
    found = reach.by_bounds(stage, waiting)
    assert {name for name, one in found.items() if one.excluded.any()} >= set(groups)
    for name, one in found.items():
        assert not (one.excluded & (coverage.counts[name] > 0)).any(), name


def test_proof_is_refuted_by_contradicting_vector(own_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = made("fma", "e2m1")
    right = reach._values

    def half(term: Any) -> Any:
        values = right(term)
        return None if values is None else reach._taken(values, torch.arange(len(values.sign) // 2))

    few = _few(unit)
    with monkeypatch.context() as wrong:
        wrong.setattr(reach, "_values", half)
        wrong.setattr(reach, "_by_exponent", functools.partial(_without_the_last, reach._by_exponent))
        claimed = Verdicts.of(few)
    assert not claimed.count(REFUTED)
    whole = covered(unit, everything(unit))
    report = Verdicts.of(whole)
    assert report.count(REFUTED) > 0
    assert not report.closed
    assert any(line.startswith(f"{REFUTED}: ") for line in report.lines())


def _without_the_last(by_exponent: Callable[[Any], dict[Any, Any]], raw: Any) -> dict[Any, Any]:
    found = by_exponent(raw)
    return {key: found[key] for key in list(found)[:-2]}


def test_proofs_are_cached(own_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = made("mul", "e2m2")
    first = Verdicts.of(covered(unit, everything(unit)))
    assert first.count(EXCLUDED) > 0
    monkeypatch.setattr(proofs, "reach", lambda *_: pytest.fail("the proofs were there"))
    assert Verdicts.of(covered(unit, everything(unit))).bins_table().csv() == first.bins_table().csv()


# Bins ----------------------------------------------------------------------------------------------------------


def test_bins_match_hand_worked_vectors() -> None:
    """Each vector hits the bins that were derived by hand."""
    unit = made("fma", "e5m2")
    one, tiny, inf, nan = 0x3C, 0x01, 0x7C, 0x7E
    cases = {
        # 1 * 1 + 1: carry into one higher place, exact.
        (one, one, one): {
            "alignment": "0, equal",
            "normalisation": "equal signs, 1 up",
            "rounding rn": "even, exact, +, normal",
        },
        # 1 * 1 - 1 cancels.
        (one, one, 0xBC): {"terms": "cancelled", "range": "+zero, exact"},
        # 1 + 2^-3 is halfway between 1 and 1.25.
        (one, one, 0x30): {"alignment": "3, equal", "rounding rn": "even, at the tie, +, normal"},
        # A product far below half of the smallest number, added to the smallest normal number.
        (tiny, 0x81, 0x04): {
            "range": "+the largest subnormal, above the tie",
            "normalisation": "opposite signs, 1 down",
        },
        (inf, 0, one): {"terms": "NaN", "a x b": "+infinite, +zero"},
        (inf, one, 0xFC): {"terms": "inf - inf", "result": "NaN"},
        (nan, one, one): {"a": "NaN", "a x b x c": "NaN, power of two, power of two"},
        # The largest number plus half a place overflows, beyond the numbers that round down.
        (0x7B, one, 0x6C): {"range": "+the largest, at the tie", "result": "+infinite"},
        (0x7B, 0x40, 0x00): {"range": "+beyond the largest"},
    }
    for codes, bins in cases.items():
        vector = {port: np.array([code], dtype=np.uint64) for port, code in zip("abc", codes, strict=True)}
        coverage = covered(unit, vector)
        for name, label in bins.items():
            hit = [coverage.groups[name].label(int(index)) for index in np.flatnonzero(coverage.counts[name])]
            assert hit == [label], (codes, name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", ["posit8", "takum8", "takum16", "takum32"])
def test_regimes_follow_exponents(text: str) -> None:
    fmt = parse(text)
    codes = some_codes(fmt)
    for code, place in zip(codes.tolist(), Regimes(fmt).places(codes).tolist(), strict=True):
        value = fmt.decode(code)
        if isinstance(value, Fraction) and value != 0:
            sign = "-" if value < 0 else "+"
            assert Regimes(fmt).signed[place] == f"{sign} regime {fmt.regime_at(floor_log2(abs(value)))}"
        else:
            assert place < 0


def test_chain_bins_start_from_held_value() -> None:
    unit = made("mac", "e2m1", acc="e3m2")
    steps = {"a": [2, 2, 2], "b": [2, 2, 10], "c": [0, 0, 0], "load": [1, 0, 0], "clear": [0, 0, 0]}
    codes = {port: np.array(column, dtype=np.uint64) for port, column in steps.items()}
    coverage = Coverage(unit)
    coverage.sample(codes, reference(unit, codes, chained=True), chained=True)
    classes = coverage.groups["c"]
    # 0, then 1, then 2, then 2 - 1.
    assert {classes.label(int(index)) for index in np.flatnonzero(coverage.counts["c"])} == {"+zero", "+power of two"}
    assert coverage.counts["load x clear"].tolist() == [2, 0, 1, 0]


def test_cycle_sequence_bins_are_distinguished() -> None:
    unit = made("mul", "e2m1", pipeline=1)
    coverage = Coverage(unit)
    # transfer, stall, stall, transfer, idle, idle, transfer
    coverage.stalls("input", {"valid": [1, 1, 1, 1, 0, 0, 1], "ready": [1, 0, 0, 1, 1, 0, 1]})
    assert coverage.counts["input stream: waits"].tolist() == [0, 1, 0, 0]
    assert coverage.counts["input stream: gaps"].tolist() == [1, 0, 1, 0, 0]
    pairs = coverage.groups["input stream: cycle after cycle"]
    assert sorted(pairs.label(int(index)) for index in np.flatnonzero(coverage.counts[pairs.name])) == [
        "nothing, then nothing",
        "nothing, then taken",
        "taken, then nothing",
        "taken, then waits",
        "waits, then taken",
        "waits, then waits",
    ]
    coverage.stalls("plain", {"en": [1, 0, 0, 0, 0, 0, 1, 0, 1], "valid": [1] * 9})
    assert coverage.counts["plain: clock enable low"].tolist() == [1, 0, 0, 1]
    with pytest.raises(ValueError, match=r"unknown side 'middle' .* plain, input, output"):
        coverage.stalls("middle", {})
    with pytest.raises(ValueError, match="expected valid and ready"):
        coverage.stalls("input", {"valid": [1]})
    with pytest.raises(ValueError, match=r"unknown side 'plain' .* input, output"):
        Coverage(made("mul", "e2m1")).stalls("plain", {"en": [1], "valid": [1]})


def test_iterative_unit_has_bins_of_its_interval_only() -> None:
    unit = made("div", "e2m1", iterations=2)
    assert unit.initiation == 3
    coverage = Coverage(unit)
    offered = {"valid": [0, 0, 1, 1, 0, 0, 1], "ready": [0, 1, 0, 1, 1, 0, 1]}
    coverage.stalls("output", offered)
    gaps, pairs = (coverage.groups[f"output stream: {name}"] for name in ("gaps", "cycle after cycle"))
    assert dict(zip(gaps.labels(), coverage.counts[gaps.name].tolist(), strict=True)) == {
        "2": 1,
        "3": 0,
        "4 or more": 0,
    }
    assert not {"taken, then taken", "taken, then waits"} & set(pairs.labels())
    inputs = set(coverage.groups["input stream: cycle after cycle"].labels())
    assert "taken, then waits" in inputs
    assert "taken, then taken" not in inputs


def test_counts_add_up() -> None:
    unit = made("add", "e2m1")
    codes = everything(unit)
    whole, halves = (
        covered(unit, codes),
        [covered(unit, {name: column[n::2] for name, column in codes.items()}) for n in (0, 1)],
    )
    halves[0].merge(halves[1])
    assert halves[0].vectors == whole.vectors == len(codes["a"])
    assert all((halves[0].counts[name] == counts).all() for name, counts in whole.counts.items())
    with pytest.raises(ValueError, match=r"cannot merge coverage of add_e3m1_.* into coverage of add_e2m1_"):
        whole.merge(Coverage(made("add", "e3m1")))
    with pytest.raises(ValueError, match="missing codes of b, subtract"):
        whole.sample({"a": codes["a"]}, {"o": codes["a"]})


# Closure -------------------------------------------------------------------------------------------------------


def test_removed_vector_class_leaves_bins_open(own_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = made("fma", "e4m3fn")
    run = functools.partial(bench.plan, unit, seed=0, limit=1 << 16)

    def open_bins() -> set[str]:
        report = Verdicts.of(covered(unit, run().vectors.codes))
        return {finding.group.name for finding in report.findings if finding.bins(OPEN)} - {
            name for name in (finding.group.name for finding in report.findings) if "stream" in name
        }

    assert open_bins() == set()
    everything_else = Directed.strategies

    def fewer(self: Directed) -> Any:
        return [(weight, maker) for weight, maker in everything_else(self) if maker != self.classes]

    monkeypatch.setattr(Directed, "strategies", fewer)
    assert "a x b x c" in open_bins()


@pytest.mark.slow
def test_coverage_command_closes_default_run(own_build: Path, tmp_path: Path) -> None:
    answer = CliRunner().invoke(command, ["mac", "e2m1", "--acc", "e3m1", "--code", "-o", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert "mac_e2m1_e2m1_e3m1_rn: CLOSED" in answer.output
    assert " 0 open, of " in answer.output
    assert "| line" in answer.output
    names = {path.name.removeprefix("coverage-mac_e2m1_e2m1_e3m1_rn") for path in tmp_path.glob("coverage-*")}
    assert names == {f"{part}.{end}" for part in ("", "-bins", "-code") for end in ("md", "csv", "tex")} | {
        ".svg",
        ".pdf",
    }


if EXHAUSTIVE:
    CASES = [(row.name, fmt) for row in CATALOGUE.values() for fmt in FORMATS if row.spec.takes(parse(fmt), None)]

    @pytest.mark.parametrize(("name", "fmt"), CASES)
    def test_coverage_default_runs_close(name: str, fmt: str, tmp_path: Path) -> None:
        answer = CliRunner().invoke(command, [name, fmt, "-o", str(tmp_path)])
        # Sums of two products of posits and a posit are too many to prove gaps between their exponents.
        assert answer.exit_code == ((name, fmt) == ("sparsemac", "posit8")), answer.output


def test_terms_that_share_operands_are_enumerated_together() -> None:
    """Terms of a + t * (b - a) depend on each other: with t = 1 no sum is beyond the format of b."""
    fmt, mode = parse("fxp2.1"), Rounding("rn")
    t = parse("ufxp1.0")
    difference = Sum("d", (term("b"), formula.Term(("a",), negative=True)), mode)
    steps = Formula((difference, Sum("o", (term("a"), term("t", "d")), mode, fmt)))
    operands = {"a": fmt, "b": fmt, "t": t}
    sums = Sums(UnitSpec.parse("add fxp2.1+fxp2.1"), operands, {name: own.width for name, own in operands.items()}, {})
    (stage,) = sums.stages(steps)
    found = reach.of_stage(stage, {group.name: np.ones(group.size, dtype=bool) for group in stage.groups})
    codes = np.arange(1 << 7)
    columns = {"a": codes & 7, "b": codes >> 3 & 7, "t": codes >> 6}
    raws = [one.make({name: torch.from_numpy(column) for name, column in columns.items()}) for one in stage.terms]
    result = np.where(columns["t"] == 1, columns["b"], columns["a"]).astype(np.uint64)
    for group, places in zip(stage.groups, stage.bins(raws, None, result), strict=True):
        assert (found[group.name].excluded == (group.count(places) == 0)).all(), group.name
