"""Report of line segments: its figures match the units, and it is complete."""

import io
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from halfulp import cli
from halfulp.boards.targets import TARGETS
from halfulp.fpga.package.manifest import RECORDS
from halfulp.fpga.report.pwl import cases, plot, report, small, study, table
from halfulp.fpga.synth.measure import measure_modules, module_of
from halfulp.hdl.fit.error import errors
from halfulp.hdl.fit.functions import FUNCTIONS
from halfulp.hdl.formats import Fixed, parse
from halfulp.hdl.specs.pieces import Piece
from halfulp.hdl.specs.segments import Segments
from halfulp.implementation import short

VU9P, INT4 = TARGETS["vu9p"], parse("int4")


@pytest.fixture(scope="module")
def found():
    """Measure a format that is as small as possible without a lookup by code."""
    return study([*cases(["tanh"], "fxp3.6", [2, 5]), *cases(["elu:0.75"], "fxp3.6", [2])])


@pytest.mark.slow
def test_pwl_report_errors_match_unit(found):
    """Compare results by code with numpy's tanh."""
    fmt = parse("fxp3.6")
    unit = short("pwl", "fxp3.6", fn="tanh", pieces=5).component()
    codes = [unit.table.code(code, unit.rounding, False) for code in range(1 << unit.table.fmt.width)]
    numbers = np.array([float(fmt.decode(code)) for code in range(1 << fmt.width)])
    off = np.abs(numbers[list(codes)] - np.tanh(numbers))
    (row,) = (row for _, row in table(found, VU9P).frame.iterrows() if (row["function"], row["pieces"]) == ("tanh", 5))
    assert row["max"] == pytest.approx(off.max(), rel=1e-9)
    assert row["mean"] == pytest.approx(off.mean(), rel=1e-9)
    assert row["max ulp"] == pytest.approx(off.max() * 64, rel=1e-9)
    assert off[numbers == row["at"]] == pytest.approx(off.max(), rel=1e-9)
    rounded = np.array([float(fmt.decode(fmt.encode(float(x)))) for x in np.tanh(numbers)])
    assert row["off"] == np.abs(numbers[list(codes)] - rounded).max() * 64


@pytest.mark.slow
def test_pwl_report_costs_match_units(found):
    frame = table(found, VU9P).frame
    requests = [short("pwl", "fxp3.6", fn="elu:0.75", pieces=2, breakpoints=kind) for kind in (None, "uniform")]
    free, even = measure_modules([module_of(request) for request in requests], VU9P)
    row = frame[(frame["function"] == "elu:0.75") & (frame["pieces"] == 2)].iloc[0]
    assert (row["LUT"], row["path"]) == (free.lut, free.path)
    assert (row["uniform LUT"], row["uniform path"]) == (even.lut, even.path)


@pytest.mark.slow
def test_pwl_errors_fall_with_pieces(found):
    frame = table(found, VU9P).frame
    for _, rows in frame.groupby("function"):
        assert rows["pieces"].is_monotonic_increasing
        assert rows["max ulp"].is_monotonic_decreasing
        assert (rows["max ulp"] <= rows["uniform max ulp"]).all()


@pytest.mark.slow
def test_pwl_lean_units_lie_between_and_are_smaller(found):
    frame = table(found, VU9P).frame
    assert len(frame) == 3
    assert (frame["small max ulp"] <= (frame["max ulp"] + frame["uniform max ulp"]) / 2).all()
    assert (frame["small LUT"] < frame[["LUT", "uniform LUT"]].min(axis=1)).all()
    bounds = [case for case in found if case.error is not None]
    assert [case.implementation().component().table for case in bounds] == [found[case].table for case in bounds]


def recorded():
    return pd.read_csv(RECORDS / "pwl.csv")


def test_pwl_records_lean_beats_uniform():
    """Compare records of every function with 4, 8 and 16 pieces in fxp4.12; the page lists the exceptions."""
    frame = recorded()
    assert set(zip(frame["function"], frame["pieces"], strict=True)) == set(product(FUNCTIONS, (4, 8, 16)))
    assert (frame["small max ulp"] <= (frame["max ulp"] + frame["uniform max ulp"]) / 2 * (1 + 1e-5)).all()
    nearer = frame["small max ulp"] < frame["uniform max ulp"]
    smaller = frame["small LUT"] < frame["uniform LUT"]
    rest = frame[~(nearer & smaller)]
    lines = {("relu", 4), ("relu", 8), ("relu", 16), ("leaky_relu", 8), ("leaky_relu", 16)}
    lines |= {("hard_sigmoid", 4), ("hard_sigmoid", 8), ("hard_sigmoid", 16)}
    assert set(zip(rest["function"], rest["pieces"], strict=True)) == lines
    # For a piecewise linear function the error is that of rounding, and no unit is larger.
    assert (rest["small max ulp"] <= rest["uniform max ulp"]).all()
    assert (rest["small LUT"] <= rest["uniform LUT"]).all()


@pytest.mark.slow
def test_pwl_records_match_current_results():
    """Compare one row with small units."""
    (row,) = recorded().query("function == 'hard_swish' and pieces == 4").to_dict("records")
    both = cases(["hard_swish"], "fxp4.12", [4])
    tables = [case.table() for case in both]
    limited = small(both[0], *((segments, errors(segments, FUNCTIONS["hard_swish"])) for segments in tables))
    assert (str(limited.table().slope), str(limited.table().intercept)) == (row["small slope"], row["small intercept"])
    (cost,) = measure_modules([module_of(limited.implementation())], VU9P)
    assert (cost.lut, cost.path) == (row["small LUT"], row["small path"]), "run `make cost`, and look at what changes"


def test_pwl_segments_file_is_keyed_by_content(tmp_path):
    """A segments file with the same name and other content makes another unit."""
    path = tmp_path / "some.segments"
    made = []
    for slope in (Fraction(1), Fraction(1, 2)):
        line = Piece(Fraction(0), slope, Fraction(0))
        path.write_text(Segments("line", INT4, INT4, Fixed(2, 1), INT4, (line,), "odd").text)
        made.append(module_of(short("pwl", "int4", fn=str(path))).verilog)
    assert made[0] != made[1]
    path.unlink()
    with pytest.raises(ValueError, match=r"some\.segments cannot be read: No such file or directory"):
        module_of(short("pwl", "int4", fn=str(path)))


@pytest.mark.slow
def test_pwl_report_writes_files(found, tmp_path):
    paths = report(found, VU9P, "halfulp report pwl tanh").write(tmp_path)
    assert [path.name for path in paths] == ["pwl.md", "pwl.csv", "pwl.tex", "pwl.svg", "pwl.pdf"]
    kept = pd.read_csv(io.StringIO((tmp_path / "pwl.csv").read_text()))
    assert kept["LUT"].tolist() == table(found, VU9P).frame["LUT"].tolist()
    assert {"slope", "intercept", "uniform max ulp", "uniform at"} <= set(kept)
    again = report(found, VU9P, "halfulp report pwl tanh").write(tmp_path / "again")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert b"halfulp report pwl tanh" in (tmp_path / "pwl.svg").read_bytes()


@pytest.mark.slow
def test_pwl_plot_has_function_fits_and_errors(found):
    figure = plot(found)
    above, below = figure.axes[0], figure.axes[2]
    measured = next(one for case, one in found.items() if case.fn == "tanh")
    assert [len(above.lines), len(below.lines)] == [3, 2]
    assert above.lines[0].get_ydata().tolist() == measured.errors.value.tolist()
    assert above.lines[1].get_ydata().tolist() == measured.errors.got.tolist()
    drawn = np.array(below.lines[0].get_ydata())
    assert np.nanmax(drawn) == measured.errors.ulp.max()
    formats = {case.fn: case.fmt for case in found}
    titles = [f"{name}, {formats[name]}" for name in ("tanh", "elu:0.75")]
    assert [axis.get_title() for axis in figure.axes[:2]] == titles


@pytest.mark.slow
def test_pwl_command_prints_and_writes(found, tmp_path):
    words = ["pwl", "tanh", "--fmt", "fxp3.6", "--pieces", "5,2", "-o", str(tmp_path)]
    answer = CliRunner().invoke(cli.report, words)
    assert answer.exit_code == 0, answer.output
    assert "| tanh       |        5 |" in answer.output
    assert (tmp_path / "pwl.tex").read_text().startswith("% needs")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tan"], "unknown function 'tan'"),
        (["tanh", "--pieces", "2,x"], "--pieces '2,x'"),
        (["tanh", "--pieces", "0", "--fmt", "fxp3.6"], "pieces 0"),
        (["tanh", "--fmt", "fp32"], "fp32 has 32 bits"),
        (["tanh", "--to", "fp32"], "fp32 has 32 bits"),
        (["tanh", "--slopes", "some", "--fmt", "fxp3.6"], "unknown slopes 'some'"),
        (["tanh", "--target", "none"], "none"),
    ],
)
def test_pwl_command_rejects_bad_requests(words, sentence, tmp_path):
    answer = CliRunner().invoke(cli.report, ["pwl", *words, "-o", str(tmp_path)])
    assert answer.exit_code == 2
    assert sentence in answer.output
    assert "Traceback" not in answer.output
