"""Studies: reading files, refusing bad ones, and the error of dot products against exact sums."""

import json
import math
from fractions import Fraction

import pytest

from halfulp import golden
from halfulp.fpga.report import dots as dots_module
from halfulp.fpga.report.dots import errors, exact_sum, last_place
from halfulp.fpga.report.study import Dots, Study, Trained, read
from halfulp.golden import exact
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import MacSpec

TOML = """
title = "All keys"
macs = ["posit8*posit8+exact=posit16.rn.sat"]
targets = ["vu9p", "ecp5-85k"]
route = true
clock = 30
pipelines = [2, 0]
accuracy = "runs.csv"

[grid]
operands = ["e5m2", "e4m3fn*e5m2=fp16.rz"]
accumulators = ["e6m5"]
roundings = ["rn", "sr4"]
sources = ["port", "lfsr16"]

[dots]
lengths = [32, 8]
distributions = ["uniform"]
count = 100
seed = 7
scale = 0.5
against = "drawn"
"""

RUNS = """epochs,mac,network,accuracy
9,e5m2*e5m2+e6m5.rn,lenet,0.9
9,fp16*fp16+fp32.rn,"a, b",91.5
"""


def test_study_reads_all_keys(tmp_path):
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "study.toml").write_text(TOML)
    study = read(tmp_path / "study.toml")
    assert study == Study(
        title="All keys",
        macs=tuple(
            map(
                MacSpec.parse,
                (
                    "posit8*posit8+exact=posit16.rn.sat",
                    "e5m2*e5m2+e6m5.rn",
                    "e5m2*e5m2+e6m5.sr4",
                    "e5m2*e5m2+e6m5.sr4@lfsr16",
                    "e4m3fn*e5m2=fp16.rz+e6m5.rn",
                    "e4m3fn*e5m2=fp16.rz+e6m5.sr4",
                    "e4m3fn*e5m2=fp16.rz+e6m5.sr4@lfsr16",
                ),
            )
        ),
        targets=("vu9p", "ecp5-85k"),
        route=True,
        clock=30.0,
        pipelines=(0, 2),
        dots=Dots(lengths=(32, 8), distributions=("uniform",), count=100, seed=7, scale=0.5, against="drawn"),
        trained=(
            Trained(MacSpec.parse("e5m2*e5m2+e6m5.rn"), "lenet", 0.9),
            Trained(MacSpec.parse("fp16*fp16+fp32.rn"), "a, b", 91.5),
        ),
    )
    assert study.routed == ("ecp5-85k",)


def test_study_counts_runs_of_other_units(tmp_path):
    others = ["h100.wgmma.e4m3", "mma4 fp16*fp16+fp32.rn", "mxfp4*mxfp4+fp32.rn", "custom:nothing*bf16+fp32.rn"]
    table = "".join(f"{mac},lenet,91\n" for mac in [*others, "e5m2*e5m2+e6m5.rn", "fp32"])
    (tmp_path / "runs.csv").write_text(f"mac,network,accuracy\n{table}")
    (tmp_path / "study.toml").write_text(LEAST + 'accuracy = "runs.csv"\n')
    study = read(tmp_path / "study.toml")
    assert [run.mac in study.macs for run in study.trained] == [False] * 4 + [True]


LEAST = 'title = "t"\nmacs = ["e5m2*e5m2+e6m5.rn"]\n'
GRID = 'title = "t"\n[grid]\noperands = ["e5m2"]\naccumulators = ["e6m5"]\nroundings = ["rn"]\n'


def test_study_has_defaults(tmp_path):
    (tmp_path / "least.toml").write_text(LEAST)
    study = read(tmp_path / "least.toml")
    assert study == Study("t", (MacSpec.parse("e5m2*e5m2+e6m5.rn"),), targets=("vu9p",))
    assert (study.routed, study.dots) == ((), Dots((64,), ("normal",), 1024, 0, 1.0))


@pytest.mark.parametrize(
    ("text", "kind", "keyword"),
    [
        ("title = ", ValueError, "document"),
        ('macs = ["e5m2*e5m2+e6m5.rn"]', ValueError, "missing"),
        ('title = "t"', ValueError, "missing"),
        (LEAST + "mac = 1", ValueError, "mac"),
        ("title = 3", TypeError, "title"),
        ('title = " "', ValueError, "title"),
        ('title = "t"\nmacs = "e5m2"', TypeError, "macs"),
        ('title = "t"\nmacs = []', ValueError, "length"),
        ('title = "t"\nmacs = [1]', TypeError, "macs[0]"),
        ('title = "t"\nmacs = ["e5m2"]', ValueError, "macs: e5m2 is a format"),
        ('title = "t"\nmacs = ["h100.wgmma.e4m3"]', ValueError, "h100.wgmma.e4m3 is of the unit mma"),
        ('title = "t"\nmacs = ["mxfp4*mxfp4+fp32.rn"]', ValueError, "is of the unit blockmac"),
        (
            'title = "t"\nmacs = ["bf16*bf16+fp32.rn", "e8m7*bf16+e8m23.rn"]',
            ValueError,
            "twice",
        ),
        (LEAST + GRID.partition("\n")[2], ValueError, "twice"),
        (LEAST + "targets = ['vu13p']", ValueError, "targets"),
        (LEAST + "targets = ['vu9p', 'vu9p']", ValueError, "targets"),
        (LEAST + "route = 1", TypeError, "route"),
        (LEAST + "route = true", ValueError, "route"),
        (LEAST + "clock = 30", ValueError, "route"),
        (LEAST + "clock = -1", ValueError, "clock"),
        (LEAST + "clock = nan", ValueError, "clock"),
        (LEAST + "clock = inf", ValueError, "clock"),
        (LEAST + "clock = '9'", TypeError, "number"),
        (
            LEAST + "route = true\ntargets=['ecp5-85k']\nclock=258",
            ValueError,
            "clock: a clock of 258 MHz is out of range; the clock network of ecp5-85k supports 1 to 257 MHz",
        ),
        (LEAST + "pipelines = [1]", ValueError, "pipelines"),
        (
            LEAST + "route = true\ntargets=['ecp5-85k']\nclock=1\npipelines=[-1]",
            ValueError,
            "pipelines",
        ),
        (LEAST + "grid = 3", TypeError, "table"),
        (
            GRID + "sources = ['lfsr16']",
            ValueError,
            "no effect",
        ),
        (
            GRID.replace('"rn"', '"sr20"') + "sources = ['lfsr16']",
            ValueError,
            "grid",
        ),
        (GRID.replace("operands", "operand"), ValueError, "operand"),
        (GRID.replace('operands = ["e5m2"]', ""), ValueError, "missing"),
        (LEAST + "dots.count = 0", ValueError, "dots.count"),
        (LEAST + "dots.count = true", TypeError, "number"),
        (LEAST + "dots.seed = -1", ValueError, "dots.seed"),
        (LEAST + "dots.seed = 0x8000000000000000", ValueError, "dots.seed"),
        (
            LEAST + "dots.count = 1048577\ndots.lengths = [16]",
            ValueError,
            "longest",
        ),
        (
            LEAST + "dots.distributions = ['gauss']",
            ValueError,
            "dots.distributions",
        ),
        (LEAST + "dots.against = 'all'", ValueError, "dots.against"),
        (LEAST + "accuracy = 'none.csv'", ValueError, "read"),
        (LEAST + "accuracy = 'bad.csv'", ValueError, "accuracy"),
        (LEAST + "accuracy = 'nan.csv'", ValueError, "accuracy"),
        (LEAST + "accuracy = 'who.csv'", ValueError, "accuracy"),
        (LEAST + "accuracy = 'short.csv'", ValueError, "accuracy"),
    ],
)
def test_study_rejects_bad_toml(tmp_path, text, kind, keyword):
    (tmp_path / "study.toml").write_text(text)
    (tmp_path / "bad.csv").write_text("mac,network\n")
    (tmp_path / "nan.csv").write_text("mac,network,accuracy\ne5m2*e5m2+e6m5.rn,x,nan\n")
    (tmp_path / "who.csv").write_text("mac,network,accuracy\ne5,x,1\n")
    (tmp_path / "short.csv").write_text("mac,network,accuracy\ne5m2*e5m2+e6m5.rn\n")
    with pytest.raises(kind) as caught:
        read(tmp_path / "study.toml")
    assert type(caught.value) is kind
    assert str(caught.value).startswith("study.toml: ")
    assert keyword in str(caught.value)


# Dot products ----------------------------------------------------------------------------------------------------


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return an empty build folder."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


def error_of(text, **settings):
    settings = {"lengths": (8,), "count": 16} | settings
    (((error,),)) = [errors([MacSpec.parse(text)], Dots(**settings))]
    return error[0]


def test_exact_sum_of_floats_is_exact():
    assert exact_sum([]) == 0
    values = [1e100, 1.0, -1e100, 2.0**-60, 3e-300, 0.1]
    assert exact_sum(values) == sum(map(Fraction, values))


@pytest.mark.parametrize(
    ("fmt", "value", "place"),
    [
        ("e5m2", Fraction(1), Fraction(1, 4)),
        ("e5m2", Fraction(-15, 8), Fraction(1, 4)),
        ("e5m2", Fraction(0), Fraction(1, 1 << 16)),
        ("e5m2", Fraction(10**9), Fraction(1 << 13)),
        ("e4m3fn", Fraction(448), Fraction(32)),
        ("e4m3fnuz", Fraction(240), Fraction(16)),
        ("fxp4.4", Fraction(99), Fraction(1, 16)),
        ("ufxp0.8", Fraction(99), Fraction(1, 256)),
        ("posit8", Fraction(1), Fraction(1, 8)),
        ("posit8", Fraction(1 << 24), Fraction((1 << 24) - (1 << 20))),
    ],
)
def test_last_place_of_values(fmt, value, place):
    assert last_place(parse(fmt), value) == place


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text", ["e5m2*e5m2+e6m5.rn", "fxp2.4*fxp2.4+fxp4.4.rz", "posit8*e4m3fn+posit8.rn", "e4m3*e4m3=e4m3.rn+e5m4.rd"]
)
def test_dot_errors_match_scalar_model(build, text):
    """Recompute everything in fractions of single codes."""
    mac, settings = MacSpec.parse(text), Dots(lengths=(5,), count=6, seed=3, scale=2.0, distributions=("uniform",))
    (((found,),)) = [errors([mac], settings)]
    x, y = (
        golden.encode(dots_module._drawn(settings, "uniform", 5, side), fmt, saturate=True).tolist()
        for side, fmt in ((0, mac.a), (1, mac.b))
    )
    parts = {
        name: getattr(mac, name) for name in ("a", "b", "acc", "product", "product_rounding", "rounding", "saturate")
    }
    squares, sizes = [], []
    for row_x, row_y in zip(x, y, strict=True):
        total, held = Fraction(0), mac.o.encode(0)
        for code_x, code_y in zip(row_x, row_y, strict=True):
            total += mac.a.decode(code_x) * mac.b.decode(code_y)
            held = exact.mac(code_x, code_y, held, **parts)
        squares.append(float(mac.o.decode(held) - total) ** 2)
        sizes.append(float(total) ** 2)
    error, size = math.sqrt(math.fsum(squares) / 6), math.sqrt(math.fsum(sizes) / 6)
    assert error > 0
    assert found[0].relative == pytest.approx(error / size, rel=1e-12)
    assert found[0].ulp == pytest.approx(error / float(last_place(mac.o, Fraction(size))), rel=1e-12)


@pytest.mark.slow
def test_dot_errors_by_floats_match_fractions(build, monkeypatch):
    by_floats = error_of("e5m2*e4m3fn+e6m5.rn", seed=2)
    monkeypatch.setattr(dots_module, "_in_float64", lambda mac: False)
    monkeypatch.setenv("HALFULP_BUILD", str(build / "other"))
    assert error_of("e5m2*e4m3fn+e6m5.rn", seed=2) == by_floats


@pytest.mark.slow
def test_dot_errors_depend_on_settings(build):
    text = "e5m2*e5m2+e6m5.sr4@lfsr16"
    plain = error_of(text)
    assert 0.001 < plain.relative < 0.5
    others = [
        error_of(text, **change)
        for change in (
            {"lengths": (9,)},
            {"distributions": ("uniform",)},
            {"count": 17},
            {"seed": 1},
            {"scale": 1.25},
            {"against": "drawn"},
        )
    ] + [error_of(other) for other in ("e5m2*e5m2+e6m5.sr4", "e5m2*e5m2+e6m5.sr4@lfsr15", "e5m2*e5m2+e6m5.rn")]
    assert len({error.relative for error in (plain, *others)}) == 10
    # Words from ports depend on the seed, as operands do.
    assert error_of("e5m2*e5m2=e5m2.sr2+e6m5.sr4") == error_of("e5m2*e5m2=e5m2.sr2+e6m5.sr4")


@pytest.mark.slow
def test_dot_error_of_wide_exact_accumulator_is_below_half_ulp(build):
    assert 0 < error_of("e5m2*e5m2+exact=bf16.rn", lengths=(64,)).ulp < 0.5
    # The accumulator loses nothing, so the error is zero.
    assert error_of("fxp4.4*fxp4.4+fxp12.8.rn").relative == 0


@pytest.mark.slow
def test_dot_error_against_drawn_includes_operand_rounding(build):
    """Products are added exactly and read in a format that holds their sums."""
    x, y = (dots_module._drawn(Dots(count=16), "normal", 8, side) for side in (0, 1))
    rounded_x, rounded_y = (golden.decode(golden.encode(values, "fxp4.4"), "fxp4.4") for values in (x, y))
    exact_sums, sums = (x * y).sum(1), (rounded_x * rounded_y).sum(1)
    off = ((sums - exact_sums).square().mean() / exact_sums.square().mean()).sqrt().item()
    found = error_of("fxp4.4*fxp4.4+fxp12.8.rn", against="drawn")
    assert found.relative == pytest.approx(off, rel=1e-9)
    assert off > 0.01


@pytest.mark.slow
def test_dot_error_of_overflow_is_none(build):
    error = error_of("e4m3*e4m3+e4m3.rn", scale=30.0)
    assert (error.relative, error.ulp) == (None, None)
    assert 0 < error.not_finite <= 16


@pytest.mark.slow
def test_dot_errors_reject_all_zero_operands(build):
    with pytest.raises(ValueError, match=r"dots\.scale is 0\.01, .* are zero"):
        error_of("int8*int8+int32.rn", scale=0.01)


@pytest.mark.slow
def test_dot_errors_are_cached(build, monkeypatch):
    first = error_of("e5m2*e5m2+e6m5.rn")
    (path,) = (build / "cache" / "dots").glob("*/value.json")
    assert json.loads(path.read_text())["relative"] == first.relative

    def refuse(*_):
        raise AssertionError("it was there")

    monkeypatch.setattr(dots_module, "measure_errors", refuse)
    assert error_of("e5m2*e5m2+e6m5.rn") == first
    with pytest.raises(AssertionError):
        error_of("e5m2*e5m2+e6m5.rn", seed=1)
