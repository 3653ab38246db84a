"""Takums against the published definition, bit by bit, and all models of them against each other."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import Rounding, Takum, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.rounding import MODES
from tests.agreement.test_exhaustive import mismatches
from tests.kernel_products import compare


def published(bits: str) -> Fraction | None:
    """Return the number of a bit string by Definition 1 of the paper; None for NaR."""
    n = max(len(bits), 12)
    if set(bits[1:]) <= {"0"}:
        return None if bits[0] == "1" else Fraction(0)
    bits = bits.ljust(n, "0")
    s, d, regime = int(bits[0]), int(bits[1]), int(bits[2:5], 2)
    r = regime if d else 7 - regime
    characteristic = int(bits[5 : 5 + r] or "0", 2)
    p = n - r - 5
    mantissa = int(bits[5 + r :] or "0", 2)
    c = 2**r - 1 + characteristic if d else -(2 ** (r + 1)) + 1 + characteristic
    exponent = -(c + 1) if s else c
    return (1 - 3 * s + Fraction(mantissa, 2**p)) * Fraction(2) ** exponent


@pytest.mark.parametrize("width", [2, 3, 4, 5, 6, 8, 11, 12, 13, 14])
def test_takum_decodes_as_published(width):
    fmt = Takum(width)
    for code in range(1 << width):
        expected = published(f"{code:0{width}b}")
        found = fmt.decode(code)
        assert found == expected if expected is not None else found != found


@pytest.mark.parametrize("width", [16, 32, 64])
def test_wide_takum_decodes_as_published(width):
    fmt = Takum(width)
    codes = np.random.default_rng(1).integers(0, (1 << width) - 1, 20_000, dtype=np.uint64, endpoint=True).tolist()
    for code in [1, 2, fmt.max_code, fmt.nan_code + 1, *codes]:
        if code != fmt.nan_code:
            assert fmt.decode(code) == published(f"{code:0{width}b}")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [2, 3, 5, 8, 12, 13])
def test_takum_encodes_to_neighbours_of_the_string(width):
    """The takum of one more bit between two neighbours decides which is nearest."""
    fmt, finer = Takum(width), Takum(min(width + 1, 64))
    for code in range(1, fmt.max_code):
        low, high = (Fraction(fmt.decode(place)) for place in (code, code + 1))
        middle = Fraction(finer.decode(2 * code + 1))
        assert low < middle < high
        for number, nearest in (
            (low, code),
            ((low + middle) / 2, code),
            (middle, code + code % 2),
            ((middle + high) / 2, code + 1),
        ):
            assert fmt.encode(number) == nearest
            assert fmt.encode(-number) == (1 << width) - nearest
    for tiny in (fmt.smallest / 2, fmt.smallest / 2**600):
        assert fmt.encode(tiny) == 1
    assert fmt.encode(2 * fmt.largest) == fmt.max_code
    assert fmt.encode(0) == 0
    assert fmt.encode(float("inf")) == fmt.encode(float("nan")) == fmt.nan_code


@pytest.mark.sampled(6)
@pytest.mark.parametrize("fmt", [Takum(width) for width in (4, 6, 8, 12, 13)], ids=str)
def test_takum_precision_and_range_are_those_of_its_table(fmt):
    numbers = [value for value in fmt.values if isinstance(value, Fraction)]
    assert (fmt.lowest, fmt.largest) == (min(numbers), max(numbers))
    assert fmt.smallest == min(value for value in numbers if value > 0)
    assert all((value / Fraction(2) ** fmt.quantum).denominator == 1 for value in numbers)
    top = floor_log2(fmt.largest)
    for scale in range(-258, 258):
        table = super(Takum, fmt).precision_at(scale)
        assert fmt.precision_at(scale) == table or (scale == top and table <= fmt.precision_at(scale))


def columns(fmt, count):
    rng = np.random.default_rng(1)
    return [torch.from_numpy(rng.integers(0, 1 << fmt.width, count)) for _ in range(3)]


@pytest.mark.sampled(27, 2)
@pytest.mark.parametrize("mode", [*MODES, "sr4"])
@pytest.mark.parametrize("name", ["mul", "add"])
def test_takum8_matches_exact_on_all_inputs(name, mode):
    fmt, rounding = parse("takum8"), Rounding.parse(mode)
    index = torch.arange(1 << 16)
    x, y = index & 255, index >> 8
    words = torch.from_numpy(np.random.default_rng(2).integers(0, 16, 1 << 16)) if rounding.bits else None
    how = {"a": fmt, "b": fmt, "o": fmt, "rounding": rounding}
    found = getattr(golden, name)(x, y, **how, random=words).tolist()
    # The whole table takes minutes in fractions, so each mode tests another part.
    for at in range(len(name) + [*MODES, "sr4"].index(mode), 1 << 16, 7):
        word = 0 if words is None else int(words[at])
        expected = getattr(exact, name)(int(x[at]), int(y[at]), **how, random=word)
        assert found[at] == expected, f"{int(x[at]):#x} {int(y[at]):#x}"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("text", ["takum8", "takum5", "takum2", "takum13", "takum16", "takum32", "takum64"])
def test_takum_operations_match_exact(text):
    fmt = parse(text)
    rng = np.random.default_rng(3)
    codes = rng.integers(0, (1 << fmt.width) - 1, (3, 400), dtype=np.uint64, endpoint=True)
    codes[:, :8] = [0, 1, 2, fmt.max_code, fmt.max_code - 1, fmt.nan_code, fmt.nan_code + 1, (1 << fmt.width) - 1]
    rng.shuffle(codes[0])
    x, y, z = (torch.from_numpy(column.view(np.int64)) for column in codes)
    other = parse("e4m3")
    for mode in ("rn", "rh", "rd", "ro", "sr5"):
        rounding = Rounding.parse(mode)
        word = torch.from_numpy(rng.integers(0, 32, 400)) if rounding.bits else None
        wide = fmt.default_accumulator()
        calls = {
            "mul": ((x, y), {"a": fmt, "b": fmt, "o": fmt}),
            "add": ((x, y), {"a": fmt, "b": fmt, "o": wide}),
            "fma": ((x, y, z), {"a": fmt, "b": fmt, "c": fmt, "o": fmt}),
            "convert": ((x,), {"a": fmt, "o": other}),
            "quire": ((x, y, z), {"a": fmt, "b": fmt, "o": fmt}),
        }
        for name, (operands, formats) in calls.items():
            how = {**formats, "rounding": rounding}
            found = getattr(golden, name)(*operands, **how, random=word)
            for at, got in enumerate(found.tolist()):
                given = [int(operand[at]) & ((1 << fmt.width) - 1) for operand in operands]
                expected = getattr(exact, name)(*given, **how, random=0 if word is None else int(word[at]))
                assert got & ((1 << 64) - 1) == expected, f"{name} {mode} {given}"


MIXED = [
    ("convert", "takum8", {"targets": ["takum8", "takum5", "takum16", "e4m3", "posit8", "fxp4.4", "takum2"]}),
    ("convert", "e5m2", {"targets": ["takum8", "takum3", "takum16"]}),
    ("mul", "takum7", {"b": "e3m1", "targets": ["takum9", "fxp4.4", "takum13"]}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fmt", "options"), MIXED)
def test_takums_among_other_formats_match_golden(name, fmt, options):
    checks, failed = mismatches(name, fmt, modes=("rn", "rh", "ru", "ro", "sr3"), **options)
    assert not failed
    assert checks


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text",
    [
        "takum8*takum8+takum16.rn",
        "takum8*takum8+fp32.rz",
        "takum6*takum6=takum8.rh+takum12.sr3",
        "takum16*takum16+takum32.ro",
    ],
)
def test_takum_kernels_match_tensors(text):
    assert compare(text, 10**4)[-1] > 0


def test_takum_exact_is_accepted_for_longer_codes_only():
    codes = torch.arange(256)
    wide = golden.convert(codes, a="takum8", o="takum16", rounding="exact")
    assert torch.equal(golden.convert(wide, a="takum16", o="takum8", rounding="rz"), codes)
    with pytest.raises(ValueError, match="cannot hold"):
        golden.convert(codes, a="takum8", o="takum6", rounding="exact")
    assert [str(parse(text).default_accumulator()) for text in ("takum8", "takum33")] == ["takum16", "takum64"]
    for width in (1, 65):
        with pytest.raises(ValueError, match="2 to 64"):
            Takum(width)
    assert all(parse(str(Takum(width))) == Takum(width) for width in range(2, 65))
