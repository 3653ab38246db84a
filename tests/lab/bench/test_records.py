"""Cost records: they are complete and match the current synthesis."""

from itertools import compress

import numpy as np
import pandas as pd
import pytest

from halfulp.boards.targets import FAMILIES
from halfulp.fpga.package.manifest import RECORDS as HERE
from halfulp.fpga.synth.liberty import OSU018, Library
from halfulp.hdl.formats import RN
from halfulp.hdl.specs import ComposedSpec
from halfulp.implementation import short
from halfulp.lab.bench import netlists, records
from halfulp.lab.bench.records import (
    ARRAYS_BY_MODULES,
    BLOCK_DOTS,
    BLOCKS,
    CELLS,
    DELAYS,
    DEVICES,
    DIVISIONS,
    FAST,
    FITS,
    FPUS,
    KERNELS,
    LENGTHS,
    LOOPS,
    MATRIX_STEPS,
    OTHERS,
    PORTS,
    ROUTED,
    ROUTED_ARRAYS,
    ROUTED_DOTS,
    ROUTED_STEPS,
    ROUTED_SUMS,
    SMALL,
    STAGED,
    TILES,
    TOOLS,
    UNITS,
    arrays,
    cells,
    lines,
    rows,
    write,
)
from halfulp.tools.digests import version
from halfulp.units.catalogue import CATALOGUE
from halfulp.units.systolic import Grid

RUN = "fpga/results is not what synthesis gives now: run `make cost`, and look at what changes"


def recorded(name):
    return pd.read_csv(HERE / f"{name}.csv")


def test_records_cover_all_requests():
    small, catalogue = recorded("small"), recorded("catalogue")
    named = {str(unit) for unit in SMALL}
    blocks = {str(unit) for unit in BLOCKS}
    fast = {str(unit) for unit in FAST}
    ports = {str(unit) for unit in PORTS}
    assert set(small["unit"]) == named | blocks | fast | ports, RUN
    assert {str(unit.with_build(dsp=False)) for unit in BLOCKS} <= named
    wanted = {(str(unit), target.name) for unit in UNITS for target in DEVICES}
    assert {unit.spec.form.unit for unit in UNITS} == set(CATALOGUE)
    assert {target.family for target in DEVICES} == set(FAMILIES.values())
    assert set(zip(catalogue["unit"], catalogue["target"], strict=True)) == wanted, RUN
    tools = recorded("tools")
    versions = dict(zip(tools["tool"], tools["version"], strict=True))
    assert bool(versions.pop("OpenSTA", "")) == ("OpenSTA ns" in recorded("cells")), RUN
    assert versions == {tool: version(tool) for tool in TOOLS}, RUN
    for frame in (small, catalogue):
        assert list(frame["unit"]) == sorted(frame["unit"])
        assert not frame.duplicated(["unit", "target"]).any()
        assert (frame[[f"LUT{inputs}" for inputs in range(1, 7)]].sum(axis=1) == frame["LUT"]).all()


def test_records_have_clock_for_routable_targets():
    catalogue = recorded("catalogue")
    routed = catalogue["target"] == "ecp5-85k"
    assert catalogue[routed]["MHz"].between(5, 500).all()
    assert catalogue[~routed]["MHz"].isna().all()
    stateful = {str(unit) for unit in UNITS if CATALOGUE[unit.spec.form.unit].stateful}
    assert set(catalogue[catalogue["FF"] > 0]["unit"]) == stateful


def test_records_rank_fused_units_and_dsp_blocks():
    small = recorded("small").set_index("unit")["LUT"]
    for fmt in ("e5m2", "e4m3", "fp16", "bf16"):
        fma, *parts = (
            small[f"{unit}.rn"] for unit in (f"fma {fmt}*{fmt}+{fmt}", f"mul {fmt}*{fmt}", f"add {fmt}+{fmt}")
        )
        assert max(parts) < fma < 2 * sum(parts)
    for unit in BLOCKS:
        assert small[str(unit)] < small[str(unit.with_build(dsp=False))], str(unit)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "request_", "target"),
    [
        ("small", short("mul", "fxp4.4"), DEVICES[0]),
        ("catalogue", short("convert", "e5m2"), DEVICES[0]),
        ("catalogue", short("sru", "int16"), DEVICES[1]),
    ],
)
def test_records_match_synthesis(name, request_, target):
    assert request_ in SMALL + UNITS
    (now,) = rows([request_], target)
    (kept,) = recorded(name).query("unit == @now['unit'] and target == @target.name").to_dict("records")
    assert {column: kept[column] for column in now if column != "MHz"} == {
        column: value for column, value in now.items() if column != "MHz"
    }, RUN


@pytest.mark.slow
def test_cells_have_area_delay_and_energy_of_small_units():
    kept = recorded("cells")
    assert list(kept["unit"]) == sorted(map(str, CELLS)), RUN
    # A gate equivalent is the area of NAND2X1. Both figures have six digits: each differs by at most 5e-6 of itself.
    assert np.allclose(kept["GE"], kept["um^2"] / 24, rtol=1e-5, atol=0)
    # OpenSTA adds times of flip-flops, which only accumulators have.
    extra = kept["OpenSTA ns"] - kept["ns"]
    assert extra[kept["FF"] == 0].abs().max() < 0.001
    assert extra[kept["FF"] > 0].between(0, 1).all()
    # Energy is roughly proportional to area.
    assert (kept["pJ"] / kept["GE"]).between(0.002, 0.05).all()
    assert (kept["leakage nW"] / kept["GE"]).between(0.01, 0.1).all()
    assert set(kept[kept["FF"] > 0]["unit"]) == {str(unit) for unit in CELLS if unit.spec.form.unit == "mac"}


@pytest.mark.slow
@pytest.mark.skipif(not OSU018.is_file(), reason="qflow-tech-osu018 is not installed")
def test_cells_match_synthesis():
    unit = short("mul", "e5m2")
    (now,) = cells([unit], Library.read()).to_dict("records")
    (kept,) = recorded("cells").query("unit == @now['unit']").to_dict("records")
    figures = [name for name in now if name != "unit"]
    assert [kept[name] for name in figures] == pytest.approx([now[name] for name in figures], rel=1e-5), RUN


@pytest.mark.slow
def test_records_confirm_default_pwl_structure():
    kept = recorded("structures").set_index("unit")
    assert list(kept.index) == [str(unit) for unit in FITS], RUN
    for unit in FITS:
        row = kept.loc[str(unit)]
        assert row[unit.component().structure] == row.min(), unit
    # Each of the structures is the smallest for some function.
    assert set(kept.idxmin(axis=1, skipna=True)) == {"comparators", "address", "table"}


@pytest.mark.slow
def test_records_are_written_file_by_file(tmp_path, monkeypatch):
    """Record a unit that is only wires; files with more units have the same form."""
    one = (short("convert", "e2m1fn", to="e2m1fn"),)
    for name, units in (("SMALL", one), ("BLOCKS", ()), ("FAST", ()), ("PORTS", ()), ("UNITS", one)):
        monkeypatch.setattr(records, name, units)
    monkeypatch.setattr(records, "DEVICES", DEVICES[:1])
    found = write(tmp_path / "new")
    assert [next(found).name for _ in range(2)] == ["small.csv", "catalogue.csv"]
    assert (tmp_path / "new" / "small.csv").read_text().splitlines() == [
        "unit,target,LUT1,LUT2,LUT3,LUT4,LUT5,LUT6,LUT,FF,carry,mux,DSP,BRAM,URAM,memory,path",
        "convert e2m1fn>e2m1fn.rn,vu9p,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0",
    ]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["catalogue.csv", "netlists.csv", "small.csv"]
    assert {(row["record"], row["unit"]) for row in netlists.read(tmp_path / "new")} == {
        (name, str(one[0])) for name in ("small", "catalogue")
    }


def test_structures_for_speed_have_shorter_paths_than_ieee_peers():
    """FloPoCo's own encoding has fewer codes to tell apart."""
    path = recorded("small").set_index("unit")["path"]
    peers = recorded("peers")
    ieee = peers[peers["design"].isin(["FPnew", "FloPoCo"]) & (peers["target"] == "vu9p")]
    checked = 0
    for asked in FAST:
        area = asked.with_build(goal="area")
        operand = str(asked.spec.operands["a"])
        rivals = ieee[ieee["unit"] == f"{asked.spec.form.unit} {operand}"]
        assert path[str(asked)] < min(path[str(area)], *rivals["path"]), asked
        checked += len(rivals)
    assert checked == 10


def test_iterative_divisions_are_smaller_or_faster():
    kept = recorded("divisions").set_index(["unit", "target"])
    assert set(kept.index) == {(str(unit), target.name) for unit in DIVISIONS for target in ROUTED}, RUN
    for unit in DIVISIONS:
        laid_out = unit.with_build(iterations=0)
        for target in ROUTED:
            row = kept.loc[str(unit), target.name]
            assert row["cycles"] == unit.component().initiation, RUN
            assert pd.notna(row["MHz"]) == bool(target.nextpnr)
            if unit.build.iterations and laid_out in DIVISIONS:
                other = kept.loc[str(laid_out), target.name]
                assert 0 < row["FF"] < row["LUT"]
                assert row["LUT"] < other["LUT"] or target.nextpnr
                assert not row["MHz"] < 2 * other["MHz"]


def test_dot_products_of_blocks_have_clocks_and_dsp_blocks():
    kept = recorded("block-dots").set_index(["unit", "target"])
    wanted = [(unit, target) for target in ROUTED for unit in (ROUTED_DOTS if target.nextpnr else BLOCK_DOTS)]
    assert set(kept.index) == {(str(unit), target.name) for unit, target in wanted}, RUN
    for unit, target in wanted:
        row = kept.loc[str(unit), target.name]
        assert pd.notna(row["MHz"]) == bool(target.nextpnr)
        assert row["DSP"] == (unit.spec.k if unit.build.dsp else 0), (str(unit), target.name)
        # Products of narrower elements save few LUTs, or none.
        if unit.build.dsp and str(unit.spec.a) == "mxint8":
            assert row["LUT"] < kept.loc[str(unit.with_build(dsp=False)), target.name]["LUT"]


def test_steps_of_matrix_units_have_records():
    kept = recorded("matrix-steps")
    wanted = {(str(unit), DEVICES[0].name) for units in MATRIX_STEPS.values() for unit in units}
    routed = {(str(unit), "ecp5-85k") for unit in ROUTED_STEPS}
    assert set(zip(kept["unit"], kept["target"], strict=True)) == wanted | routed, RUN
    assert list(kept["MHz"].notna()) == list(kept["target"] == "ecp5-85k"), RUN


def test_records_have_units_that_pages_compare():
    kept = recorded("others")
    wanted = {(str(unit), DEVICES[0].name) for unit in OTHERS} | {(str(unit), "ecp5-85k") for unit in ROUTED_SUMS}
    assert set(zip(kept["unit"], kept["target"], strict=True)) == wanted, RUN
    assert list(recorded("fpus")["fpu"]) == list(map(str, FPUS)), RUN
    assert set(recorded("stages")["unit"]) == {str(unit) for unit in STAGED}, RUN
    assert list(recorded("cell-delays")["target ns"]) == list(DELAYS), RUN
    arrays = {build().name for build in (*TILES, *ARRAYS_BY_MODULES, *KERNELS)}
    assert set(recorded("tiles")["unit"]) == arrays, RUN


def test_paths_of_composed_units_have_no_parts_of_two_steps():
    """A register is behind each step; without it, chains of units of a clock had paths of up to 273 cells."""
    kept = recorded("others").set_index("unit")
    units = [unit for unit in OTHERS if isinstance(unit.spec, ComposedSpec)]
    assert len(units) == 4
    assert max(kept.loc[str(unit)]["path"] for unit in units) < 60, RUN


def test_port_of_rounding_costs_less_than_a_quarter():
    small = recorded("small").set_index("unit")["LUT"]
    for unit in PORTS:
        fixed = small[str(unit.with_spec(rounding=RN))]
        assert fixed < small[str(unit)] < 1.25 * fixed


def test_loops_are_shortest_with_goal_loop():
    kept = recorded("loops").set_index(["unit", "target"])
    units = [unit for structures in LOOPS.values() for unit in structures]
    assert set(kept.index) == {(str(unit), target.name) for unit in units for target in ROUTED}, RUN
    for structures in LOOPS.values():
        clocks = [kept.loc[str(unit), "ecp5-85k"]["MHz"] for unit in structures]
        assert clocks[2] > max(clocks[:2]), structures


def test_arrays_are_faster_with_stages():
    kept = recorded("arrays")
    wanted = [(kind.__name__, depth, build.pipeline, build.goal) for kind, depth, build in ROUTED_ARRAYS]
    columns = kept[["array", "depth", "stages", "goal"]]
    assert list(columns.itertuples(index=False, name=None)) == wanted, RUN
    for _, same in kept.groupby("array"):
        assert same[same["stages"] == 4]["MHz"].min() > 1.5 * same[same["stages"] == 0]["MHz"].max()


@pytest.mark.slow
def test_verilog_has_its_recorded_length(monkeypatch):
    monkeypatch.setattr(records, "LENGTHS", LENGTHS[:1])
    pd.testing.assert_frame_equal(lines(), recorded("verilog")[:1])


@pytest.mark.slow
def test_record_of_arrays_is_repeatable(monkeypatch):
    chosen = [build.pipeline == 4 and kind is Grid for kind, _, build in ROUTED_ARRAYS]
    monkeypatch.setattr(records, "ROUTED_ARRAYS", list(compress(ROUTED_ARRAYS, chosen)))
    kept = recorded("arrays").fillna("")[chosen].reset_index(drop=True)
    # The record has six digits.
    pd.testing.assert_frame_equal(arrays(), kept, check_dtype=False, rtol=1e-5)
