"""Report of the error of matrix units: exact sums, order of the numbers of bits, and its files."""

import pytest

from halfulp.lab.papers import matrix_units
from tests.lab.papers.test_matrix_trainings import ROWS


@pytest.fixture(scope="module")
def rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_units, "LENGTHS", (64, 512))
        return list(matrix_units.errors())


def error(rows, text, length=512, distribution="positive"):
    (row,) = (row for row in rows if (row["text"], row["length"], row["distribution"]) == (text, length, distribution))
    return row["error"]


@pytest.mark.slow
def test_errors_follow_bits_and_length(rows):
    by_bits = [error(rows, matrix_units.aligned(bits)) for bits in matrix_units.BITS]
    assert by_bits[:8] == sorted(by_bits[:8], reverse=True)
    assert error(rows, "e4m3fn*e4m3fn+exact=fp32", 64) <= 2.0**-24
    assert error(rows, "h100.wgmma.e4m3") > 2 * error(rows, "h100.wgmma.e4m3", 64)
    assert error(rows, "h100.wgmma.e4m3 every=128") < error(rows, "h100.wgmma.e4m3") / 2
    assert error(rows, "b200.tcgen05.e4m3") < 1e-6 < error(rows, "h100.wgmma.e4m3")
    assert all(row["error"] == row["error"] for row in rows)


@pytest.mark.slow
def test_report_has_tables_and_a_plot(rows, tmp_path):
    report = matrix_units.report(rows, ROWS)
    assert len(report.tables["bits"].frame) == len(matrix_units.BITS)
    assert len(report.tables["units"].frame) == len(matrix_units.UNITS)
    names = {path.name for path in report.write(tmp_path)}
    plots = {"matrix-units.svg", "matrix-trainings.svg"}
    assert plots | {"matrix-units.csv", "matrix-trainings.csv", "bits.csv", "matrix-losses.csv"} <= names
