"""Family of formats with a description and no stages: derived features work, and others are refused.

Properties of `Format` answer all questions about formats, so that no other code tests for families.
"""

import ast
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from amaranth.hdl import Fragment, Module, Signal
from amaranth.sim import Simulator

from halfulp import golden
from halfulp.hdl.fit.rounding_table import rounding_table_of
from halfulp.hdl.formats import FAMILIES, NAMED, Format, Rounding, catalogue, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.formula import Port
from halfulp.sim import exact_text, listing, vectors
from halfulp.sim.classes import NONE, Classes
from halfulp.sim.coverage.model import Alone, Model
from halfulp.sim.coverage.reach import reach
from halfulp.sim.directed import Directed
from halfulp.sim.fields import Grid, Staged, Tabulated
from halfulp.sim.formal import codes as formal_codes
from halfulp.sim.formal.claims import claims
from halfulp.units import Mul
from tests.hdl import test_shape
from tests.settings import ROOT
from tests.sim import test_vectors

STEP, START, COUNT = 37, 5, 31


@dataclass(frozen=True)
class Shuffled(Format):
    """Format of 6 bits in an unusual code order: 31 magnitudes in ratios of 3/2 and 4/3, zero, and one NaN."""

    family = "shuffled"
    syntax = "shuffled6, the only one"
    width = 6
    code_order = "table"
    rounds = "magnitude"
    has_nan, has_inf, has_negative_zero = True, False, False
    precision, quantum = 2, -8
    # NaN has the place of -0.
    nan_code = (32 * STEP + START) % 64

    @classmethod
    def from_text(cls, text: str) -> "Shuffled | None":
        return cls() if text == "shuffled6" else None

    def __str__(self) -> str:
        return "shuffled6"

    def describe(self) -> str:
        return "shuffled codes of 31 magnitudes"

    def default_accumulator(self) -> Format:
        return parse("fp16")

    @property
    def largest(self) -> Fraction:
        return self._magnitude(COUNT)

    @property
    def lowest(self) -> Fraction:
        return -self.largest

    @property
    def smallest(self) -> Fraction:
        return self._magnitude(1)

    @staticmethod
    def _magnitude(place: int) -> Fraction:
        octave, half = divmod(place - 1, 2)
        return (1 + Fraction(half, 2)) * Fraction(2) ** (octave - 7) if place else Fraction(0)

    def decode(self, code: int) -> Fraction | float:
        self.check_code(code)
        negative, place = divmod((code - START) * pow(STEP, -1, 64) % 64, 32)
        if code == self.nan_code:
            return math.nan
        return -self._magnitude(place) if negative else self._magnitude(place)

    def infinity(self, negative: bool) -> int:
        return self.nan_code

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: bool = False
    ) -> int:
        low = max(place for place in range(COUNT + 1) if self._magnitude(place) <= magnitude)
        rest = magnitude - self._magnitude(low)
        # Ties go to the even code; the code of place 0 is odd.
        place = rounding.round(1 + low + rest / (self._magnitude(low + 1) - self._magnitude(low)), negative, random) - 1
        if place > COUNT or magnitude >= self._magnitude(COUNT + 1):
            to_largest = saturate or rounding.overflows_to_largest[negative]
            place = COUNT if to_largest else 0
            if not to_largest:
                return self.nan_code
        return ((32 * (negative and place > 0) + place) * STEP + START) % 64

    def fields(self) -> dict[str, int]:
        return {"place": 6}


ROOMS = ("boards", "fpga", "golden", "halfulp", "hdl", "lab", "sim", "units")

TESTS_OF_FAMILIES = {
    "hdl/number.py": "registry of the stages in RTL",
    "golden/codec.py": "registry of the stages on tensors",
    "golden/exact.py": "flags and classes on fractions, from the fields of a float",
    "golden/kernels/elements.py": "encode.h takes the C++ type of a float",
    "golden/kernels/elementwise.py": "elementwise.h takes the fields of a float",
    "golden/kernels/triton_number.py": "constants of each family in Triton",
    "golden/exact_matrix_unit.py": "significands and blocks of the units of accelerators, whose formats are floats",
    "golden/matrix_unit.py": "significands and blocks of the units of accelerators, whose formats are floats",
    "golden/nn/policy.py": "zero points are of fixed-point numbers, and groups of floats",
    "golden/onnx/export.py": "ONNX has operators of its own for integers and for floats",
    "golden/onnx/graph.py": "ONNX has operators of its own for integers and for floats",
    "golden/onnx/values.py": "ONNX has operators of its own for integers and for floats",
    "golden/zeros.py": "zero points are of fixed-point numbers",
    "hdl/specs/fpu.py": "registers of a floating-point unit hold floats",
    "hdl/specs/mma.py": "significands and blocks of the units of accelerators, whose formats are floats",
    "hdl/specs/requantize.py": "requantization is of fixed-point numbers",
    "hdl/specs/sru.py": "fields of a fixed-point format of the stochastic rounder",
    "sim/causes.py": "suspects are units with another field of a format",
}
"""Modules outside of ``hdl/formats`` that may test for a family, with the reason."""

FMT = Shuffled()
CODES = np.arange(64, dtype=np.uint64)
NUMBERS = [FMT.decode(code) for code in range(64)]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the family."""
    monkeypatch.setattr(catalogue, "FORMATS", (*catalogue.FORMATS, Shuffled))
    monkeypatch.setattr(listing, "FAMILIES", (*FAMILIES, Shuffled))
    monkeypatch.setitem(NAMED, "shuffled6", FMT)


def family_tests(source: str) -> list[int]:
    """Return the lines that test if an object is of a family; assertions, which narrow a type, do not count."""
    names = {family.__name__ for family in FAMILIES} | {"Tapered"}

    def names_family(node: ast.AST) -> bool:
        return any({getattr(part, "id", ""), getattr(part, "attr", "")} & names for part in ast.walk(node))

    tree = ast.parse(source)
    asserted = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Assert) for part in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, kind]):
                if names_family(kind) and id(node) not in asserted:
                    found.append(node.lineno)
            case ast.Compare(left=ast.Call(func=ast.Name("type")), comparators=[kind]):
                if names_family(kind):
                    found.append(node.lineno)
            case ast.MatchClass(cls=kind):
                if names_family(kind):
                    found.append(node.lineno)
    return found


def test_only_listed_modules_test_for_families() -> None:
    files = {path.relative_to(ROOT).as_posix(): path for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    found = {
        f"{name}:{line}"
        for name, path in files.items()
        if name not in TESTS_OF_FAMILIES and not name.startswith("hdl/formats/")
        for line in family_tests(path.read_text())
    }
    assert not found, "use a property of Format, or a registry"
    stale = {name for name in TESTS_OF_FAMILIES if name not in files or not family_tests(files[name].read_text())}
    assert not stale, "these modules test for no family any more"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("if isinstance(fmt, Float | Posit): pass", [1]),
        ("x = not isinstance(fmt, (formats.Fixed, int))", [1]),
        ("if type(fmt) is Compound: pass", [1]),
        ("match fmt:\n    case Takum(): pass", [2]),
        ("assert isinstance(fmt, Float)", []),
        ("isinstance(spec, BlockMacSpec) or isinstance(fmt, Format)", []),
    ],
)
def test_tests_for_families_are_found(source: str, lines: list[int]) -> None:
    assert family_tests(source) == lines


def test_own_family_parses_and_is_listed() -> None:
    assert parse("shuffled6") == FMT
    assert parse(str(FMT)) == FMT
    lines = "\n".join(listing.formats())
    assert "shuffled codes of 31 magnitudes" in lines
    assert Shuffled.syntax in lines


def test_own_family_is_converted_by_its_rule() -> None:
    for code, number in enumerate(NUMBERS):
        if isinstance(number, Fraction):
            assert FMT.encode(number, "exact") == code


def test_classes_follow_from_values() -> None:
    classes = Classes(FMT)
    names = [classes.signed[place] for place in classes.signed_places(CODES)]
    for number, name in zip(NUMBERS, names, strict=True):
        if isinstance(number, float):
            assert name == "NaN"
            continue
        sign, size = "-" if number < 0 else "+", abs(number)
        power = size and size == Fraction(2) ** floor_log2(size)
        kind = "power of two" if power else "other"
        kind = {FMT.smallest: "smallest", FMT.largest: "largest"}.get(size, kind)
        assert name == (sign + kind if size else "zero")
    assert sorted(np.concatenate(classes.examples()).tolist()) == CODES.tolist()
    assert set(classes.signed) == set(names)


def test_grid_of_own_family_orders_numbers() -> None:
    test_vectors.test_grid_composes_codes_of_given_numbers("shuffled6")
    test_vectors.test_grid_parts_round_trip("shuffled6")
    test_vectors.test_grid_neighbours_stop_at_ends("shuffled6")
    assert {0, *range(1, 4)} <= set(Grid.of(FMT).unsigned(Grid.of(FMT).corner_codes())[1].tolist())


@pytest.mark.parametrize(
    "text", ["e5m2", "e4m3fn", "e2m1fn", "e3m0", "e3m2-ftz", "posit8", "posit6e0", "fxp4.4", "ufxp3.2"]
)
def test_table_and_stages_order_codes_alike(text: str) -> None:
    fmt = parse(text)
    table, stages, codes = Tabulated(fmt), Staged(fmt), np.arange(1 << fmt.width, dtype=np.uint64)
    number = ~table.parts(codes).nan
    for one, other in zip(table.unsigned(codes), stages.unsigned(codes), strict=True):
        assert np.array_equal(one[number], other[number])
    zero = table.parts(codes).zero
    for name, one, other in zip(table.parts(codes)._fields, table.parts(codes), stages.parts(codes), strict=True):
        # The exponent of zero is only required to be below all others.
        counted = number & ~zero if name in ("exponent", "mantissa") else number
        assert np.array_equal(one[counted], other[counted]), name
    exponent, mantissa = np.meshgrid(np.arange(fmt.quantum - 1, Grid.of(fmt).emax + 1), np.arange(1 << table.man))
    exponent, mantissa = exponent.ravel(), mantissa.ravel().astype(np.uint64)
    for sign in range(1 + (fmt.lowest < 0)):
        signs = np.full_like(exponent, sign)
        assert np.array_equal(table.compose(signs, exponent, mantissa), stages.compose(signs, exponent, mantissa))


@pytest.mark.slow
def test_directed_vectors_of_own_family_reach_ties_and_ends() -> None:
    found = Directed({"a": FMT, "c": FMT}, (), [FMT], np.random.default_rng(0), 128).rows(4000)
    ties = ends = 0
    for x, y in zip(found["a"].tolist(), found["c"].tolist(), strict=True):
        if isinstance(NUMBERS[x], Fraction) and isinstance(NUMBERS[y], Fraction):
            total = abs(NUMBERS[x] + NUMBERS[y])  # type: ignore[operator]  # both are fractions
            ties += 0 < total < FMT.largest and test_vectors.is_tie(FMT, total)
            ends += total > FMT.largest
    assert ties > 80
    assert ends > 80
    test_vectors.test_targets_are_ties_and_exceed_both_ends("shuffled6")
    test_vectors.test_chains_fit_every_format("shuffled6")


def test_vectors_of_own_family_are_exhaustive() -> None:
    made = vectors.make(test_vectors.ports(a=FMT, b=FMT), [FMT], seed=0)
    assert made.exhaustive
    assert made.count == 1 << 12


def test_vector_of_own_family_prints_code_and_number() -> None:
    code = FMT.encode(Fraction(3, 2))
    assert exact_text.line(Port("a", FMT), code).split() == ["a", f"0x{code:02x}", f"{code:06b}", "1.5"]


def test_waveform_of_own_family_shows_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert test_shape.printed(FMT, range(64), capsys) == [FMT.text(code) for code in range(64)]


def product_in(text: str) -> Any:
    """Return a unit without simulating it."""
    return Mul(a=text, b="e5m2", o=text)


def test_coverage_bins_follow_from_description() -> None:
    model = Model(product_in("shuffled6"))
    groups = {group.name: group for group in model.groups}
    assert groups["a"].axes[0].labels == Classes(FMT).signed
    labels = set(groups["range"].labels())
    assert {
        "+the smallest, at the tie",
        "+the largest, exact",
        "-beyond the largest",
        "+just below one, exact",
    } <= labels
    for part in model.ports:
        if isinstance(part, Alone) and part.group.name == "a":
            assert set(np.concatenate(list(part.bins({"a": CODES}, {})))) == set(range(part.group.size))


def test_proofs_of_operand_bins_follow_from_all_codes() -> None:
    model = Model(product_in("shuffled6"))
    model.stages = []
    model.ports = [part for part in model.ports if part.group.name == "a"]
    assert not reach(model)["a"].excluded.any()


def hardware(make: Any) -> Iterator[int]:
    """Evaluate an expression of a code for all codes."""
    m, bits = Module(), Signal(6)
    made = make(FMT, bits)
    value = Signal(made.shape())
    m.d.comb += value.eq(made)
    found = []

    async def drive(context: Any) -> None:
        for code in range(64):
            context.set(bits, code)
            found.append(context.get(value))

    simulator = Simulator(m)
    simulator.add_testbench(drive)
    simulator.run()
    return iter(found)


def test_formal_order_and_sign_follow_from_description() -> None:
    nan, rank, size, negated, negative, zero = (
        list(hardware(getattr(formal_codes, name)))
        for name in ("is_nan", "rank", "magnitude", "negated", "is_negative", "is_zero")
    )
    numbers = [(code, number) for code, number in enumerate(NUMBERS) if isinstance(number, Fraction)]
    assert [code for code in range(64) if nan[code]] == [FMT.nan_code]
    for (x, p), (y, q) in itertools.combinations(numbers, 2):
        assert (rank[x] < rank[y]) == (p < q)
        assert (size[x] < size[y]) == (abs(p) < abs(q))
    for code, number in numbers:
        assert NUMBERS[negated[code]] == -number
        assert (bool(negative[code]), bool(zero[code])) == (number < 0, number == 0)
    assert negated[FMT.nan_code] == FMT.nan_code


def test_claims_of_own_family_follow_from_description() -> None:
    kinds = {claim.kind for claim in claims("mul", "shuffled6")}
    assert {"commutes", "valid", "symmetric"} <= kinds


@pytest.mark.parametrize("mode", ["rn", "ra", "rz", "ru", "rd", "ro"])
def test_rounding_table_of_own_family_matches_encode(mode: str) -> None:
    table = rounding_table_of(FMT, Rounding(mode))
    numbers = sorted(number for number in NUMBERS if isinstance(number, Fraction))
    middles = [(low + high) / 2 for low, high in itertools.pairwise(numbers)]
    small = FMT.smallest / 1000
    for place in [*numbers, *middles, 2 * FMT.largest, -2 * FMT.largest, FMT.largest * Fraction(5, 4)]:
        for x in (place - small, place, place + small):
            got = float(table.values[table.round(np.array([float(x)]))[0]])
            want = FMT.decode(FMT.encode(Fraction(float(x)), mode))
            assert got == want or (math.isinf(got) and isinstance(want, float)), (mode, x)


def test_missing_stages_are_refused() -> None:
    with pytest.raises(TypeError, match="shuffled6 has no golden model"):
        golden.decode(torch.zeros(1, dtype=torch.int64), FMT)
    with pytest.raises(TypeError, match="shuffled6 has no RTL"):
        Fragment.get(product_in("shuffled6"), None)
    assert NONE not in Classes(FMT).places(CODES)
