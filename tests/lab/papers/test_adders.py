"""Table of stochastic rounding in adders, compared with measurements of some of its units."""

import pytest

from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import measure_modules, module_of
from halfulp.implementation import short
from halfulp.lab.papers.adders import CASES, study, table

VU9P = TARGETS["vu9p"]


@pytest.fixture(scope="module")
def found():
    """Measure the accumulator for training, and a unit that is smaller with the eager structure."""
    chosen = {"mac_e5m2_e5m2_e6m5_sr10", "mac_e3m2fn_e3m2fn_e6m5_sr4"}
    return study(tuple(unit for unit in CASES if unit.component().name in chosen))


@pytest.mark.slow
def test_stochastic_mac_costs_at_most_an_eighth_more_than_nearest(found):
    (cost,) = (cost for unit, cost in found.items() if str(unit.spec.a) == "e5m2")
    assert cost.lazy.lut <= 1.12 * cost.nearest.lut
    assert cost.with_source.ff == cost.lazy.ff + 16


@pytest.mark.slow
def test_adder_table_shows_default_and_shorter_eager_path(found):
    frame = table(found).frame
    for _, row in frame.iterrows():
        assert row["default"] == "lazy"
        assert row["default / rn"] == row[row["default"]] / row["rn"]
        assert row["eager path"] < row["lazy path"]


@pytest.mark.slow
def test_adder_with_short_words_is_faster_and_no_larger_eager():
    lazy, eager = (short("mac", "e3m2fn", acc="e6m5", rounding="sr4", stochastic=how) for how in ("lazy", "eager"))
    assert module_of(lazy).top == "mac_e3m2fn_e3m2fn_e6m5_sr4"
    assert module_of(eager).top == "mac_e3m2fn_e3m2fn_e6m5_sr4_eager"
    costs = measure_modules([module_of(lazy), module_of(eager)], VU9P)
    assert costs[1].lut <= costs[0].lut
    assert costs[1].path < costs[0].path
