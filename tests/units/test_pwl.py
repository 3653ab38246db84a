"""Line segments: hardware, golden model and oracle agree on every input, and tables are consistent."""

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from amaranth.hdl import Module, Value
from amaranth.sim import Simulator
from torch._subclasses import FakeTensorMode

from halfulp.golden import exact, pwl
from halfulp.golden.nn import PiecewiseLinear as Segmented
from halfulp.golden.nn import activation, swap_activations
from halfulp.golden.nn.activation import _LINE_SEGMENTS, slopes
from halfulp.hdl import lines
from halfulp.hdl.fit.store import segments_of, write
from halfulp.hdl.formats import Fixed, Posit, Rounding, parse
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import Build
from halfulp.hdl.specs.pieces import Piece, PowerSum
from halfulp.hdl.specs.segments import Segments
from halfulp.implementation import Implementation, short
from halfulp.sim.bench import plan, run
from halfulp.sim.build import verilog
from halfulp.sim.corner_segments import corner_arguments_of
from halfulp.sim.sweep import sweep
from halfulp.units import Pwl
from halfulp.units.stream import Streamed
from tests.settings import EXHAUSTIVE

F = Fraction

PIECES: dict[str, list[tuple[str, str, str]]] = {
    "odd": [("0", "7/8", "1/64"), ("5/8", "1/2", "1/4"), ("5/4", "1/8", "11/16"), ("17/8", "0", "63/64")],
    "point": [("0", "1/4", "1/2"), ("5/4", "1/8", "5/8"), ("19/8", "1/32", "27/32"), ("33/8", "0", "1")],
    "linear": [("0", "1/2", "0"), ("1/2", "7/8", "-1/8"), ("2", "9/8", "-3/8"), ("4", "1", "0")],
    "even": [("0", "-1/8", "1"), ("1/2", "-5/8", "5/4"), ("3/2", "-1/4", "9/16"), ("9/4", "0", "0")],
    "none": [("-4", "1/32", "-7/8"), ("-2", "1/4", "-1/2"), ("-3/4", "5/8", "-1/16"), ("0", "1", "0")],
    "exp2": [("0", "3/4", "1"), ("3/8", "7/8", "61/64"), ("5/8", "9/8", "51/64")],
    "reciprocal": [("1", "-3/4", "7/4"), ("5/4", "-1/2", "23/16"), ("13/8", "-3/8", "5/4")],
    "rsqrt": [("1", "-3/8", "11/8"), ("3/2", "-3/16", "9/8"), ("5/2", "-1/8", "31/32")],
    "log2": [("1", "5/4", "-5/4"), ("5/4", "17/16", "-1"), ("13/8", "13/16", "-5/8")],
}
"""Coarse segments of tanh, sigmoid, SiLU, a bell, ELU and the reduced functions; accuracy does not matter here."""

POLES: dict[str, dict[str, Any]] = {
    "exp2": {"factor": F(23, 16), "fraction": 8, "minus_inf": F(0), "inf": "inf"},
    "reciprocal": {"symmetry": "odd", "zero": "inf", "minus_zero": "-inf", "inf": F(0), "minus_inf": "-0"},
    "rsqrt": {"zero": "inf", "minus_zero": "-inf", "negative": "nan", "inf": F(0), "minus_inf": "nan"},
    "log2": {"zero": "-inf", "minus_zero": "-inf", "negative": "nan", "inf": "inf", "minus_inf": "nan"},
}


ROUNDINGS = (*ROUNDING_MODES, "sr3")


def made(shape: str, fmt: str, out: str, slope: Any = None, **more: Any) -> Segments:
    """Return a table of one of the shapes in `PIECES`."""
    pieces = tuple(Piece(*map(F, piece)) for piece in PIECES[shape])
    kind = {} if shape == "none" else POLES[shape] | {"reduction": shape} if shape in POLES else {"symmetry": shape}
    return Segments(shape, parse(fmt), parse(out), slope or Fixed(4, 5), Fixed(4, 8), pieces, **(kind | more))


def codes_of(fmt: Any, rng: np.random.Generator, count: int) -> list[int]:
    """Return all codes of a short format, or a sample of a long one."""
    if fmt.width <= 8:
        return list(range(1 << fmt.width))
    return [int(code) for code in rng.integers(0, 1 << fmt.width, count, dtype=np.uint64)]


def int64(codes: list[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(codes, dtype=np.uint64).view(np.int64))


def check_golden(table: Segments, rounding: str, saturate: bool, count: int = 64) -> None:
    """Compare the golden model with the oracle."""
    mode, rng = Rounding.parse(rounding), np.random.default_rng(1)
    codes = codes_of(table.fmt, rng, count)
    words = rng.integers(0, 1 << mode.bits, len(codes)).tolist() if mode.bits else [0] * len(codes)
    random = torch.tensor(words) if mode.bits else None
    found = pwl(int64(codes), table=table, rounding=mode, saturate=saturate, random=random)
    wanted = [
        exact.pwl(code, table=table, rounding=mode, saturate=saturate, random=word)
        for code, word in zip(codes, words, strict=True)
    ]
    assert torch.equal(found, int64(wanted)), (str(table.fmt), str(table.out), table.text, rounding)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", PIECES)
def test_golden_pwl_matches_exact_on_all_codes_of_short_formats(shape: str) -> None:
    formats = ("fxp4.4", "fxp2.4", "ufxp3.5", "e4m3fn", "e5m2", "e3m4-ftz", "e4m3fnuz", "posit8", "posit8e0")
    outs = ("fxp2.6", "e4m3fn", "posit8", "e5m2", "ufxp4.4")
    for place, fmt in enumerate(formats):
        for turn, rounding in enumerate(ROUNDINGS):
            if (place + turn) % (1 if EXHAUSTIVE else 6):
                continue
            out = outs[(place + turn) % len(outs)]
            check_golden(made(shape, fmt, out), rounding, saturate=bool(turn % 2))


@pytest.mark.parametrize("shape", PIECES)
def test_golden_pwl_matches_exact_in_wide_formats(shape: str) -> None:
    for fmt, out in (("fp64", "fp32"), ("posit64", "fp64"), ("fxp32.32", "fxp8.56"), ("ufxp64.0", "bf16")):
        for rounding in ("rn", "sr9"):
            check_golden(made(shape, fmt, out), rounding, saturate=False)


def test_pwl_wraps_where_output_wraps() -> None:
    for shape in ("linear", "none", "reciprocal", "log2"):
        check_golden(made(shape, "fxp4.4", "fxp1.5-wrap"), "rn", saturate=False)
    with pytest.raises(ValueError, match=r"fxp1\.5-wrap wraps"):
        made("exp2", "fxp4.4", "fxp1.5-wrap")


def test_folded_table_matches_function_on_both_sides() -> None:
    for shape in ("odd", "point", "linear", "even"):
        table = made(shape, "fxp4.4", "fxp4.4")
        for code in range(256):
            x = table.fmt.decode(code)
            assert isinstance(x, Fraction)
            index = max(sum(piece.start <= abs(x) for piece in table.pieces) - 1, 0)
            assert table.unfolded(x < 0)[index].at(x) == table.value(x)


CHECKS = [
    ("odd", "fxp4.4", "fxp2.6", "rn"),
    ("odd", "posit8", "posit8", "sr3"),
    ("odd", "e4m3fnuz", "e5m2", "ro"),
    ("point", "e4m3fn", "e4m3fn", "ra"),
    ("linear", "e5m2", "fxp4.4", "sr3"),
    ("even", "fxp2.4", "e3m4", "rd"),
    ("none", "posit8e0", "e4m3", "ru"),
    ("exp2", "e4m3", "e4m3", "rn"),
    ("reciprocal", "posit8", "e5m2", "rz"),
    ("rsqrt", "e5m2-ftz", "posit8", "rn"),
    ("log2", "ufxp4.4", "fxp4.4", "rd"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("shape", "fmt", "out", "rounding"), CHECKS)
def test_pwl_structures_give_equal_bits(shape: str, fmt: str, out: str, rounding: str) -> None:
    table = made(shape, fmt, out)
    structures = ["comparators", "address"] + ([] if rounding.startswith("sr") else ["table"])
    place = [row[0] for row in CHECKS].index(shape) + len(fmt)
    for structure in structures if EXHAUSTIVE else structures[place % 2 : place % 2 + 1]:
        check_in_simulation(Pwl(table=table, build=Build(structure=structure), rounding=rounding))


@pytest.mark.parametrize("structure", ["comparators", "address"])
def test_pwl_short_breakpoints_are_exact_on_both_sides_of_zero(structure: str) -> None:
    """A segment includes its breakpoint for negative numbers; fewer breakpoint bits must not move it."""
    pieces = tuple(Piece(F(start), F(n, 4), F(n * n, 8)) for n, start in enumerate(("0", "1/2", "1", "5/2")))
    table = Segments("steps", parse("fxp4.4"), parse("fxp3.5"), Fixed(4, 4), Fixed(4, 4), pieces, "odd")
    check_in_simulation(Pwl(table=table, build=Build(structure=structure)))


@pytest.mark.parametrize("dsp", [False, True])
@pytest.mark.parametrize("intercept", [F(1, 512), F(-1, 512), F(3, 64), F(-12), F(0)])
def test_pwl_adds_intercepts_finer_and_coarser_than_the_product(intercept: Fraction, dsp: bool) -> None:
    pieces = (Piece(F(0), F(5, 4), intercept), Piece(F(1), F(-3, 4), intercept / 2))
    table = Segments("steps", parse("fxp4.4"), parse("fxp6.10"), Fixed(4, 4), Fixed(8, 10), pieces, None)
    check_in_simulation(Pwl(table=table, build=Build(structure="comparators", dsp=dsp)))


@pytest.mark.parametrize(("fmt", "out"), [("fxp4.4", "fxp3.5"), ("ufxp4.4", "ufxp3.5"), ("fxp4.4", "ufxp4.5")])
def test_pwl_saturates_values_of_one_bit_more_than_the_result(fmt: str, out: str) -> None:
    check_in_simulation(Pwl(table=made("linear", fmt, out), build=Build(structure="comparators")))


@pytest.mark.parametrize("fmt", ["e3m2", "e5m2"])
def test_pwl_multiplies_the_smallest_subnormals_exactly(fmt: str) -> None:
    for slope in (F(3), F(7, 4)):
        table = Segments("line", parse(fmt), parse("e5m2"), Fixed(4, 4), Fixed(4, 4), (Piece(F(0), slope, F(0)),))
        check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))


def test_pwl_multiplies_the_smallest_subnormals_by_the_factor_of_exp2() -> None:
    line = (Piece(F(0), F(1), F(1)),)
    formats = parse("e5m2"), parse("fxp4.4"), Fixed(8, 5), Fixed(8, 8)
    table = Segments("exp2", *formats, line, reduction="exp2", factor=F(3, 8), fraction=1)
    check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))


def test_pwl_rounds_ties_of_a_floor_of_one_bit() -> None:
    pieces = (Piece(F(-1), F(0), F(-3, 8)), Piece(F(1, 4), F(0), F(0)))
    table = Segments("steps", parse("fxp1.2"), parse("fxp2.2"), Fixed(40, 22), Fixed(36, 28), pieces)
    check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))


def test_pwl_adds_no_power_to_special_values_of_zero() -> None:
    table = made("log2", "fxp4.4", "fxp4.4", zero=F(0), minus_zero=F(0), negative=F(0))
    check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))


@pytest.mark.parametrize("structure", ["comparators", "address"])
def test_pwl_gives_minus_zero_value_at_zero(structure: str) -> None:
    """The table of negative numbers has another value at zero."""
    check_in_simulation(Pwl(table=made("odd", "e3m2", "e5m2"), build=Build(structure=structure)))


def test_pwl_of_codebook_selects_pieces_by_code() -> None:
    """Codebooks without opposite numbers have different pieces for a magnitude below and above zero."""
    for shape in ("odd", "none", "reciprocal"):
        table = made(shape, "nf4", "fxp2.6")
        check_golden(table, "rn", saturate=False)
        check_in_simulation(Pwl(table=table, build=Build(structure="address")))
        if shape != "reciprocal":
            with pytest.raises(ValueError, match="comparators"):
                Pwl(table=table, build=Build(structure="comparators"))


def check_in_simulation(unit: Pwl) -> None:
    """Compare a combinational unit with the oracle, on all operands and some random words."""
    mode, rng = unit.rounding, np.random.default_rng(2)
    vectors = [
        (code, int(rng.integers(0, 1 << mode.bits)) if mode.bits else 0) for code in range(1 << unit.table.fmt.width)
    ]
    found = []

    async def drive(context: Any) -> None:
        for code, word in vectors:
            context.set(unit.a.as_value(), code)
            if mode.bits:
                context.set(unit.random, word)
            await context.delay(1e-9)
            found.append(context.get(unit.o.as_value()))

    simulator = Simulator(unit)
    simulator.add_testbench(drive)
    simulator.run()
    wanted = [
        exact.pwl(code, table=unit.table, rounding=mode, saturate=unit.spec.saturate, random=word)
        for code, word in vectors
    ]
    assert found == wanted, (unit.name, unit.structure)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("terms", [3, 1])
def test_pwl_power_of_two_slopes_are_shifts(terms: int) -> None:
    # 1/2 + 1/8 - 1/32 and similar slopes have three powers, 3/4 has two.
    slopes = {1: ("1/2", "-1/4", "1", "0"), 3: ("19/32", "-3/4", "1", "0")}[terms]
    pieces = tuple(Piece(F(place), F(slope), F(1, 4)) for place, slope in enumerate(slopes))
    for symmetry in ("odd", "linear"):
        table = Segments("steps", parse("fxp3.3"), parse("fxp3.5"), PowerSum(terms), Fixed(2, 4), pieces, symmetry)
        check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))
        unit = Pwl(table=table, build=Build(structure="comparators"))
        assert "partial_product" not in verilog(unit)
    with pytest.raises(ValueError, match="slope 5/8 needs 2 powers of two"):
        replace(table, slope=PowerSum(1), pieces=(Piece(F(0), F(5, 8), F(0)),))


@pytest.mark.slow
@pytest.mark.parametrize("stages", [0, 4])
@pytest.mark.parametrize(("function", "fmt"), [("odd", "fxp4.12"), ("none", "fxp4.12"), ("exp2", "bf16")])
def test_pwl_sweep_passes_all_16_bit_codes(function: str, fmt: str, stages: int) -> None:
    result = sweep(Pwl(table=made(function, fmt, fmt), build=Build(pipeline=stages)), seed=0)
    assert result.passed
    assert sum(check.checked for check in result.checks) == 1 << 16


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "fmt", "out"),
    [
        ("odd", "fxp8.24", "fxp2.30"),
        ("point", "fp32", "fxp2.30"),
        ("linear", "posit32", "fp32"),
        ("even", "fp32", "posit32"),
        ("none", "fxp8.24", "fp32"),
        ("exp2", "fp32", "fp32"),
        ("reciprocal", "fp32", "fp32"),
        ("rsqrt", "posit32", "fp32"),
        ("log2", "ufxp8.24", "fxp8.24"),
    ],
)
def test_pwl_vectors_cover_both_sides_of_every_breakpoint(shape: str, fmt: str, out: str) -> None:
    """A breakpoint that is off by one code in a wide format changes a result of some vector."""
    table = made(shape, fmt, out)
    # Where segments meet, moving the breakpoint by a code changes nothing; these do not meet.
    apart = [replace(piece, intercept=piece.intercept + F(n, 64)) for n, piece in enumerate(table.pieces)]
    table = replace(table, pieces=tuple(apart))
    unit = Pwl(table=table)
    codes = plan(unit, seed=0, limit=1 << 13).vectors.codes["a"].view(np.int64)
    results = pwl(torch.from_numpy(codes), table=table)
    step = F(1, 1 << 23) if table.reduction in ("reciprocal", "rsqrt", "log2") else F(1, 1 << 8)
    for index, piece in enumerate(table.pieces[1:], 1):
        code = table.fmt.encode(piece.start)
        beside = F(table.fmt.decode(code + 1)) if table.reduction is None else piece.start + step
        start = beside if beside > piece.start else F(table.fmt.decode(code - 1))
        pieces = (*table.pieces[:index], replace(piece, start=start), *table.pieces[index + 1 :])
        assert not torch.equal(pwl(torch.from_numpy(codes), table=replace(table, pieces=pieces)), results)


def test_pwl_corner_arguments_cover_zeros_and_range_ends() -> None:
    # A line of slope 3/4 in place of tanh saturates from 4/3 on; the other table is zero at -3/2.
    through = Segments(
        "line", parse("fxp8.24"), parse("fxp1.30"), Fixed(2, 4), Fixed(3, 4), (Piece(F(0), F(3, 4), F(0)),), "odd"
    )
    met = set(corner_arguments_of(through).tolist())
    edge = int(F(4, 3) * (1 << 24))
    assert {edge, edge + 1, (1 << 32) - edge, (1 << 32) - edge - 1, 0, 1, (1 << 32) - 1} <= met
    beside = replace(through, symmetry=None, out=parse("fp32"), pieces=(Piece(F(-8), F(1, 2), F(3, 4)),))
    root = (1 << 32) - (3 << 23)
    assert {root - 1, root, root + 1} <= set(corner_arguments_of(beside).tolist())
    assert {root - 1, root, root + 1} <= set(plan(Pwl(table=beside), seed=0, limit=1 << 12).vectors.codes["a"])


@pytest.mark.slow
def test_pwl_registers_streams_and_sources_change_no_bit() -> None:
    unit = Pwl(table=made("linear", "e4m3", "e5m2"), rounding="sr4", random="lfsr16", build=Build(pipeline=4))
    assert unit.latency == 4
    assert run(unit, limit=1 << 10).passed
    assert Streamed(unit).latency == 4


def test_bench_catches_wrong_threshold_and_intercept(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("odd", "fxp4.4", "fxp2.6")
    check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))
    search = lines.search

    def late(m: Module, key: Value, thresholds: list[int], name: str, **options: Any) -> Value:
        return search(m, key, [threshold + 1 for threshold in thresholds], name, **options)

    monkeypatch.setattr("halfulp.units.pwl.search", late)
    with pytest.raises(AssertionError):
        check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))
    monkeypatch.undo()
    as_fixed_raw = lines.as_fixed_raw

    def off(m: Module, index: Value, values: Any, name: str, **options: Any) -> Any:
        return as_fixed_raw(m, index, [value + (name == "intercept") * F(1, 64) for value in values], name, **options)

    monkeypatch.setattr(lines, "as_fixed_raw", off)
    with pytest.raises(AssertionError):
        check_in_simulation(Pwl(table=table, build=Build(structure="comparators")))


def test_segments_text_round_trips() -> None:
    for shape in PIECES:
        table = made(shape, "bf16", "fxp4.12")
        again = Segments.read(table.text)
        assert (again, hash(again), str(again)) == (table, hash(table), str(table))
    other = replace(table, fmt=parse("fp16"))
    assert other != table
    assert other.digest != table.digest


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the table has no name, fmt, out, slope, intercept"),
        ("name f\ngarbage 3", "line 2 has the unknown field 'garbage'; expected piece, name"),
        ("pieces 1", "line 1 has the unknown field 'pieces'"),
        ("piece 1 2", "line 1: a piece has a start, a slope and an intercept, not 2 numbers"),
        ("piece 1 2 3/0", "line 1: "),
        ("fraction x", "line 1: "),
        ("fmt e5", "line 1: unknown format 'e5'"),
    ],
)
def test_segments_text_is_refused_by_line(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Segments.read(text)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "two words"}, "name 'two words'"),
    ({"pieces": ()}, "1 to 4096 pieces"),
    ({"pieces": (Piece(F(0), F(9), F(0)),)}, "fxp4.5 cannot hold the slope 9 (9)"),
    ({"pieces": (Piece(F(1), F(1), F(0)),) * 2}, "ascending"),
    ({"symmetry": "round"}, "symmetry 'round'"),
    ({"centre": F(2)}, "centre 2"),
    ({"factor": F(3)}, "factor and fraction"),
    ({"negative": "nan"}, "omit negative"),
    ({"inf": "large"}, "'large'"),
    ({"reduction": "log2"}, "log2 has no value at zero"),
    ({"reduction": "exp2", "symmetry": None}, "above zero"),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=lambda value: next(iter(value), "") if value else "")
def test_segments_reject_inconsistent_fields(changes: dict[str, Any], sentence: str) -> None:
    table = made("odd", "fxp4.4", "fxp4.4")
    if "reduction" in changes and "symmetry" in changes:
        changes = changes | {"pieces": (Piece(F(0), F(-1), F(1)),)}
    with pytest.raises(ValueError) as refusal:
        replace(table, **changes)
    assert sentence in str(refusal.value)


def test_pwl_table_structure_matches_segments() -> None:
    table = made("odd", "e4m3", "fxp2.6")
    unit = Pwl(table=table, rounding="rz", build=Build(structure="table"))
    assert (unit.structure, unit.build) == ("table", Build())
    check_in_simulation(unit)


def test_pwl_of_description_preserves_text() -> None:
    unit = Pwl.of("pwl relu(fxp3.2) pieces=1")
    assert str(unit.spec) == "pwl relu(fxp3.2).rn pieces=1"
    assert str(Pwl(table=unit.table).spec) == f"pwl {unit.table}(fxp3.2).rn"


def test_pwl_constructor_fits_nothing() -> None:
    """A component gets a table; only the resolution of a description imports the fit."""
    script = (
        "import sys, halfulp.units\n"
        "from halfulp.hdl.specs.segments import Segments\n"
        f"table = Segments.read({made('odd', 'e4m3', 'fxp2.6').text!r})\n"
        "halfulp.units.Pwl(table=table)\n"
        "assert not {'mpmath', 'halfulp.hdl.fit.fit', 'halfulp.hdl.fit.store'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pwl_rejects_invalid_parameters() -> None:
    for fmt, rounding, keyword in (("fxp4.12", "rn", "up to 8 bits"), ("fxp4.4", "sr3", "stochastically")):
        with pytest.raises(ValueError, match=keyword):
            Pwl(table=made("odd", fmt, "fxp4.4"), rounding=rounding, build=Build(structure="table"))
    with pytest.raises(ValueError, match=r"exact .*fxp4\.4 cannot hold every value of odd4-"):
        Pwl(table=made("odd", "fxp4.12", "fxp4.4"), rounding="exact")
    with pytest.raises(ValueError, match=r"exact .* log2"):
        Pwl(table=made("log2", "e4m3", "e4m3"), rounding="exact")


def test_pwl_exact_rounding_gives_every_value() -> None:
    check_in_simulation(Pwl(table=made("odd", "fxp4.4", "fxp4.12"), rounding="exact"))


def test_pwl_request_round_trips() -> None:
    table = made("odd", "fxp4.4", "fxp2.6")
    request = Implementation.of(Pwl(table=table, build=Build(structure="address"), saturate=True))
    assert request == short("pwl", "fxp4.4", to="fxp2.6", fn=str(write(table)), structure="address", saturate=True)
    assert request.component().table == table


def segmented(**parameters: Any) -> Segmented:
    return Segmented(made("odd", "fxp4.4", "fxp2.6"), cast="sr3", seed=3, **parameters)


@pytest.mark.parametrize(
    ("backend", "parameters"),
    [
        ("aot_eager", {"rounding": "sr2"}),
        # A compiler may change the bits of functions of torch.
        ("aot_eager", {"derivative": torch.tanh}),
        pytest.param("inductor", {"rounding": "sr2"}, marks=pytest.mark.slow),
    ],
)
def test_segmented_module_gives_same_bits_in_compiled_model(backend: str, parameters: dict[str, Any]) -> None:
    torch._dynamo.reset()  # type: ignore[no-untyped-call]  # torch has no types of it
    found = []
    for compiled in (False, True):
        model = segmented(**parameters)
        run = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
        x = torch.linspace(-2, 2, 500, requires_grad=True)
        for _ in range(2):
            run(x).sum().backward()  # type: ignore[no-untyped-call]  # torch has no types of it
        assert x.grad is not None
        found += [run(x).detach(), x.grad]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])


def test_segmented_module_is_an_operator_of_torch() -> None:
    x = torch.linspace(-2, 2, 60).reshape(3, 20)
    exported = torch.export.export(segmented(rounding="sr2"), (x,)).module()
    model = segmented(rounding="sr2")
    assert all(torch.equal(exported(x), model(x)) for _ in range(2))
    assert segmented().to("meta")(x.to("meta")).shape == x.shape
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert segmented()(x).shape == x.shape
    for parameters in ({}, {"derivative": "true"}):
        layer = Segmented(replace(made("odd", "fxp4.4", "fxp2.6"), name="tanh"), **parameters)
        mapped = torch.func.vmap(torch.func.grad(lambda row, layer=layer: layer(row).square().sum()))(x)
        wanted = x.clone().requires_grad_()
        layer(wanted).square().sum().backward()
        assert torch.equal(mapped, wanted.grad)
    key, table = torch.tensor(5), made("odd", "fxp4.4", "fxp2.6").text
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    for given in (x, x.mT):
        arguments = (given.detach().requires_grad_(), key, key, table, "sr2", "off", "sr3.sat", "piece", True)
        torch.library.opcheck(_LINE_SEGMENTS.operator, arguments, test_utils=checks)


def test_segmented_module_with_user_function_is_pickled() -> None:
    x = torch.linspace(-2, 2, 60, requires_grad=True)
    text = pickle.dumps(Segmented(made("odd", "fxp4.4", "fxp2.6"), derivative=torch.tanh))
    activation._DERIVATIVES.pop(str(id(torch.tanh)))
    pickle.loads(text)(x).sum().backward()
    assert x.grad is not None
    assert (x.grad > 0).all()


def test_segmented_module_matches_unit_and_has_gradient() -> None:
    table = made("odd", "fxp4.4", "fxp2.6")
    x = torch.linspace(-9, 9, 101, requires_grad=True)
    found = Segmented(table)(x)
    codes = [table.fmt.encode(value, saturate=True) for value in x.tolist()]
    wanted = [float(table.out.decode(exact.pwl(code, table=table))) for code in codes]
    assert found.tolist() == wanted
    found.sum().backward()  # type: ignore[no-untyped-call]  # torch has no types of it
    own = [float(table.pieces[table_index(table, code)].slope) for code in codes]
    assert x.grad is not None
    assert x.grad.tolist() == own
    x.grad = None
    Segmented(replace(table, name="tanh"), derivative="true")(x).sum().backward()
    # The square doubles the error of tanh, one last place of 2^-23; the difference is rounded too.
    true = 1 - torch.tanh(x.detach().double()) ** 2
    assert (x.grad - true).abs().max() <= 3 * 2.0**-23


def table_index(table: Segments, code: int) -> int:
    return sum(piece.start <= abs(table.fmt.decode(code)) for piece in table.pieces) - 1


@pytest.mark.parametrize("shape", ["exp2", "reciprocal", "rsqrt", "log2", "point", "linear", "even", "none"])
def test_segmented_gradient_is_difference_of_neighbours(shape: str) -> None:
    """The function is linear between breakpoints, also with a reduction; that of exp2 has steps."""
    table = made(shape, "fp32", "fp32")
    # A step of exp2 is one last place of its argument, 2^-8 of 23/16 of the number.
    step = F(16, 23) / 256 if shape == "exp2" else F(1, 1 << 20)
    for x in (F(7, 16), F(11, 16), F(19, 16), F(29, 16), F(27, 8), F(45, 8)):
        for point in [x, -x] if shape in ("point", "linear", "even", "none", "reciprocal") else [x]:
            slope = (table.value(point + step) - table.value(point)) / step
            assert slopes(torch.tensor([float(point)], dtype=torch.float64), table).tolist() == [float(slope)]


def test_segmented_gradient_of_exp2_uses_floored_argument() -> None:
    """The second of two steps of the argument crosses a breakpoint that lies between them."""
    table = made("exp2", "fp32", "fp32")
    first, second, *_ = table.pieces
    table = replace(table, pieces=(first, replace(second, start=F(3, 8) + F(1, 1 << 10))))
    inside = torch.tensor([float((F(3, 8) + F(places, 1 << 11)) * 16 / 23) for places in (4, 9)], dtype=torch.float64)
    assert slopes(inside, table).tolist() == [float(piece.slope * table.factor) for piece in table.pieces]


def test_swap_activations_replaces_modules() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Sequential(torch.nn.Sigmoid()))
    tanh, sigmoid = (Segmented(made(shape, "fxp4.4", "fxp4.4")) for shape in ("odd", "point"))
    swapped = swap_activations(model, {torch.nn.Tanh: tanh, "2.*": sigmoid})
    kinds = [type(module).__name__ for module in swapped.modules()]
    assert kinds == ["Sequential", "Linear", "PiecewiseLinear", "Sequential", "PiecewiseLinear"]
    assert isinstance(model[1], torch.nn.Tanh)
    with pytest.raises(ValueError, match="ReLU"):
        swap_activations(model, {torch.nn.ReLU: tanh})


def test_segments_of_fits_once_and_caches(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    table = segments_of("relu", fmt="fxp3.3", pieces=1)
    (kept,) = tmp_path.glob("cache/fits/relu-*/value.json")
    assert Segments.read(json.loads(kept.read_text())) == table
    assert Pwl.of("pwl relu(fxp3.3) pieces=1").table == table
    with pytest.raises(ValueError, match="unknown function 'tanhh'"):
        segments_of("tanhh", fmt="fxp3.3")
    with pytest.raises(ValueError, match=r"none\.segments cannot be read: No such file or directory"):
        segments_of("none.segments")


def test_pwl_posit_table_maps_nar_to_nar() -> None:
    table = made("odd", "posit8", "posit8")
    assert isinstance(table.fmt, Posit)
    assert table.code(table.fmt.nan_code, Rounding.parse("rn"), False) == table.out.nan_code


@pytest.mark.parametrize("name", ["table", "rounding", "saturate", "cast", "derivative"])
def test_layer_of_segments_rejects_changes(name: str) -> None:
    layer = segmented()
    with pytest.raises(AttributeError, match=name):
        setattr(layer, name, getattr(layer, name))
