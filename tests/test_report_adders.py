"""What stochastic rounding adds to adders: what is claimed is measured, and the default is the smaller structure."""

import pytest

from halfulp.boards.targets import TARGETS
from halfulp.fpga.report.adders import CASES, study, table
from halfulp.fpga.synth.measure import measure_modules, module_of
from halfulp.sim.request import Request
from halfulp.units.base import EAGER_IS_SMALLER

VU9P = TARGETS["vu9p"]


@pytest.fixture(scope="module")
def found():
    """Of the accumulator that trains networks, and of units that are smaller eager."""
    chosen = {"mac_e5m2_e5m2_e6m5_sr10", "mac_e3m2fn_e3m2fn_e6m5_sr4"}
    return study(tuple(unit for unit in CASES if unit.build().name in chosen))


@pytest.mark.slow
def test_stochastic_mac_costs_at_most_an_eighth_more_than_nearest(found):
    (cost,) = (cost for unit, cost in found.items() if unit.fmt == "e5m2")
    assert cost.lazy.lut <= 1.12 * cost.nearest.lut
    assert cost.with_source.ff == cost.lazy.ff + 16


@pytest.mark.slow
def test_default_structure_is_the_smaller(found):
    frame = table(found).frame
    assert set(frame["default"]) == {"lazy", "eager"}
    for _, row in frame.iterrows():
        assert row[row["default"]] == min(row["lazy"], row["eager"])
        assert row["default / rn"] == row[row["default"]] / row["rn"]
        # The eager structure is there for this.
        assert row["eager path"] < row["lazy path"]


def test_eager_defaults_are_measured():
    assert {unit.build().name for unit in CASES} >= EAGER_IS_SMALLER


def test_default_structure_is_not_in_name():
    eager = Request("mac", "e3m2fn", acc="e6m5", rounding="sr4")
    assert module_of(eager).top == "mac_e3m2fn_e3m2fn_e6m5_sr4"
    lazy = Request("mac", "e3m2fn", acc="e6m5", rounding="sr4", stochastic="lazy")
    assert module_of(lazy).top == "mac_e3m2fn_e3m2fn_e6m5_sr4_lazy"
    costs = measure_modules([module_of(eager), module_of(lazy)], VU9P)
    assert costs[0].lut < costs[1].lut
