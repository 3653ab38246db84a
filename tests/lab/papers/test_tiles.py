"""`halfulp report tiles`: lookup tables of arrays compared with published ones."""

import pytest

from halfulp.boards.board import Resources
from halfulp.fpga.kernel.arrays import array
from halfulp.fpga.kernel.cost_model import SMALL, CostModel
from halfulp.fpga.synth.measure import Cost
from halfulp.hdl.specs import MacSpec
from halfulp.lab.papers import tiles
from halfulp.lab.papers.tiles import MAC, study, table

SPEC = MacSpec.parse(MAC)
SIZES = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))
KERNELS = CostModel(
    {(n, m): Resources(lut=1000 + 100 * n * m, ff=0, dsp=0, bram=0, uram=0) for n, m in SMALL}, "the test"
)


def test_tiles_table_matches_cost_model(monkeypatch):
    """The published shares give lookup tables per multiply-accumulate; Yosys does not run."""
    asked = []

    def measured(modules, target, progress, pool):
        asked.extend(module.top for module in modules)
        known = [
            Cost(lut=100 * n, luts=(), ff=n, carry=0, mux=0, dsp=0, bram=0, uram=0, memory=1, path=9)
            for n in (1, 2, 2, 4, 4)
        ]
        return known[: len(asked)]

    monkeypatch.setattr(tiles, "measure_modules", measured)
    monkeypatch.setattr("halfulp.fpga.synth.measure.verilog", lambda component, top, **options: "")
    found = study(4)
    assert asked == [array(SPEC, n, m).name for n, m in SIZES]
    frame = table(found, KERNELS).frame
    assert list(frame["LUT"]) == [108, 208, 208, 408, 408]
    assert list(frame["LUT/MAC"]) == [108, 104, 52, 51, 25.5]
    assert list(frame["kernel LUT/MAC"]) == [1100, 600, 350, 225, 162.5]
    # Share of 1,303,680 tables, for ten arrays.
    shares = (0.1412, 0.1480, 0.1510, 0.1806, 0.2130)
    published = [share * 130368 / (n * m) for share, (n, m) in zip(shares, SIZES, strict=True)]
    assert list(frame["published LUT/MAC"]) == pytest.approx(published)
    assert list(frame["ratio"]) == pytest.approx(
        [ours / one for ours, one in zip(frame["kernel LUT/MAC"], published, strict=True)]
    )
    with pytest.raises(ValueError, match="smallest has 1"):
        study(0)
