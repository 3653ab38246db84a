"""The report on line segments: its figures are those of the units, and it is complete."""

import io

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from halfulp.fpga import cli
from halfulp.fpga.pwl import cases, leave, plot, study, table
from halfulp.fpga.synth import measure_modules, module_of
from halfulp.fpga.targets import TARGETS
from halfulp.hdl.formats import parse
from halfulp.sim.request import Request

VU9P = TARGETS["vu9p"]


@pytest.fixture(scope="module")
def found():
    """Of a format that is as small as one can be that is no table."""
    return study(cases(["tanh", "elu:0.5"], "fxp3.6", [2, 5]))


def test_errors_are_those_of_the_unit(found):
    """Of results that are looked up by code, beside tanh as numpy has it."""
    fmt = parse("fxp3.6")
    unit = Request("pwl", "fxp3.6", fn="tanh", pieces=5).build()
    codes = unit.table.codes(unit.rounding, False)
    numbers = np.array([float(fmt.decode(code)) for code in range(1 << fmt.width)])
    errors = np.abs(numbers[list(codes)] - np.tanh(numbers))
    (row,) = (row for _, row in table(found).frame.iterrows() if (row["function"], row["pieces"]) == ("tanh", 5))
    assert row["max"] == pytest.approx(errors.max(), rel=1e-9)
    assert row["mean"] == pytest.approx(errors.mean(), rel=1e-9)
    assert row["max ulp"] == pytest.approx(errors.max() * 64, rel=1e-9)
    assert errors[numbers == row["at"]] == pytest.approx(errors.max(), rel=1e-9)
    rounded = np.array([float(fmt.decode(fmt.encode(float(x)))) for x in np.tanh(numbers)])
    assert row["off"] == np.abs(numbers[list(codes)] - rounded).max() * 64


def test_costs_are_those_of_the_units(found):
    frame = table(found).frame
    requests = [Request("pwl", "fxp3.6", fn="elu:0.5", pieces=2, breakpoints=kind) for kind in (None, "uniform")]
    free, even = measure_modules([module_of(request) for request in requests], VU9P)
    row = frame[(frame["function"] == "elu:0.5") & (frame["pieces"] == 2)].iloc[0]
    assert (row["LUT"], row["path"]) == (free.lut, free.path)
    assert (row["uniform LUT"], row["uniform path"]) == (even.lut, even.path)


def test_more_pieces_leave_less(found):
    frame = table(found).frame
    for _, rows in frame.groupby("function"):
        assert rows["pieces"].tolist() == [2, 5]
        assert rows["max ulp"].is_monotonic_decreasing
        assert (rows["max ulp"] <= rows["uniform max ulp"]).all()


def test_what_is_left(found, tmp_path):
    paths = leave(found, tmp_path, "halfulp report pwl tanh")
    assert [path.name for path in paths] == ["pwl.md", "pwl.csv", "pwl.tex", "pwl.png", "pwl.pdf"]
    kept = pd.read_csv(io.StringIO((tmp_path / "pwl.csv").read_text()))
    assert kept["LUT"].tolist() == table(found).frame["LUT"].tolist()
    assert {"slope", "intercept", "uniform max ulp", "uniform at"} <= set(kept)
    again = leave(found, tmp_path / "again", "halfulp report pwl tanh")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert b"halfulp report pwl tanh" in (tmp_path / "pwl.png").read_bytes()


def test_the_plot_has_the_function_every_approximation_and_every_error(found):
    figure = plot(found)
    above, below = figure.axes[0], figure.axes[2]
    measured = next(one for case, one in found.found.items() if case.fn == "tanh")
    assert [len(above.lines), len(below.lines)] == [3, 2]
    assert above.lines[0].get_ydata().tolist() == measured.errors.value.tolist()
    assert above.lines[1].get_ydata().tolist() == measured.errors.got.tolist()
    drawn = np.array(below.lines[0].get_ydata())
    assert np.nanmax(drawn) == measured.errors.max_ulp
    assert [axis.get_title() for axis in figure.axes[:2]] == ["tanh", "elu:0.5"]


def test_the_command(found, tmp_path):
    words = ["pwl", "tanh", "--fmt", "fxp3.6", "--pieces", "5,2", "-o", str(tmp_path)]
    told = CliRunner().invoke(cli.report, words)
    assert told.exit_code == 0, told.output
    assert "| tanh       |        5 |" in told.output
    assert (tmp_path / "pwl.tex").read_text().startswith("% needs")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tan"], "unknown function 'tan'"),
        (["tanh", "--pieces", "2,x"], "numbers of pieces are written like 2,3,4, and not '2,x'"),
        (["tanh", "--pieces", "0", "--fmt", "fxp3.6"], "0 pieces are out of range; there are 1 to 1024"),
        (["tanh", "--fmt", "fp32"], "e8m23 has 32 bits; errors here are proved on every code"),
        (["tanh", "--to", "fp32"], "e8m23 has 32 bits; errors here are proved on every code"),
        (["tanh", "--slopes", "some", "--fmt", "fxp3.6"], "unknown slopes 'some'; there are any, pow2"),
        (["tanh", "--target", "none"], "none"),
    ],
)
def test_what_cannot_be_is_told(words, sentence, tmp_path):
    told = CliRunner().invoke(cli.report, ["pwl", *words, "-o", str(tmp_path)])
    assert told.exit_code == 2
    assert sentence in told.output
    assert "Traceback" not in told.output
