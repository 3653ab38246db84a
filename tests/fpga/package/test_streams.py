"""AXI4-Stream wrappers of packages with TLAST, TUSER, TKEEP, registered ready and a stream for each operand."""

import json
from pathlib import Path
from typing import Any

import pytest

from halfulp.fpga.package import files
from halfulp.hdl.specs import Build
from halfulp.units.catalogue import component
from tests.fpga.package.test_package import CONTROLS, SMALL, lint, make, needs_icarus, valid, write

OPTIONS: dict[str, Any] = {"tlast": True, "tuser": 40, "tkeep": True, "registered": True, "separate": True}
"""All options of streams."""


def package(texts: tuple[str, ...], streams: dict[str, Any], build: Build = Build(), **controls: Any) -> dict[str, str]:
    """Return the files of a package ``numbers`` with options of streams."""
    return files([component(text, build) for text in texts], "numbers", streams=streams, **controls)


def streams_of(texts: dict[str, str]) -> list[dict[str, Any]]:
    """Return the descriptions of the streams in the manifest."""
    return [unit["axi_stream"] for unit in json.loads(texts["manifest.json"])["units"]]


@pytest.fixture(scope="module")
def optional() -> dict[str, str]:
    return package(SMALL[:2], OPTIONS, **CONTROLS)


def test_package_streams_describe_options(optional: dict[str, str]) -> None:
    """An accumulator has no TKEEP; a unit has the options that have an effect on it, and their names."""
    assert valid(optional)
    mac, dot = streams_of(optional)
    assert mac["module"].endswith("_axis_tlast_tuser40_registered_separate")
    assert dot["module"].endswith("_axis_tlast_tuser40_tkeep_registered_separate")
    assert (mac["result_per_sum"], dot["result_per_sum"], mac["registered_ready"]) == (True, False, True)
    assert [stream["prefix"] for stream in mac["inputs"]] == ["s_axis_a", "s_axis_b", "s_axis_operation"]
    assert [stream["beside"] for stream in dot["inputs"]] == [{"tlast": 1, "tuser": 40, "tkeep": 2}, {}]
    assert [field["port"] for field in dot["inputs"][1]["fields"]] == ["b0", "b1"]
    assert f"component {dot['module']} is" in optional["rtl/numbers_components.vhd"]
    assert "s_axis_a_tuser : in std_logic_vector(39 downto 0)" in optional["rtl/numbers_components.vhd"]


@needs_icarus
@pytest.mark.sampled(4)
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize("number", range(2))
def test_package_streams_with_options_pass(
    optional: dict[str, str], number: int, simulator: str, tmp_path: Path
) -> None:
    write(tmp_path, optional)
    stream = streams_of(optional)[number]["module"]
    code, verdicts = make(tmp_path, f"{stream}_tb", f"SIM={simulator}")
    assert (code, [verdict.partition(":")[0] for verdict in verdicts]) == (0, [f"PASS {stream}"])
    lint(tmp_path, stream)


@needs_icarus
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("number", "old", "new"),
    [
        (0, ".clear(clear)", ".clear(1'b0)"),
        (0, "& operation_valid & a_payload[4];", "& operation_valid;"),
        (0, "if (~a_full)", "if (1'b1)"),
        (0, "a_ready = accept & b_valid", "a_ready = accept"),
        (1, "assign m_axis_tlast = ", "assign m_axis_tlast = ~"),
        (1, "assign m_axis_tkeep = ", "assign m_axis_tkeep = ~"),
        (1, "assign m_axis_tuser = ", "assign m_axis_tuser = ~"),
    ],
)
def test_package_streams_benches_detect_defects(
    optional: dict[str, str], number: int, old: str, new: str, tmp_path: Path
) -> None:
    """A sum that does not start anew, a result before the end, lost operands, and wrong signals of results."""
    write(tmp_path, optional)
    stream = streams_of(optional)[number]
    path = tmp_path / stream["file"]
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    code, verdicts = make(tmp_path, f"{stream['module']}_tb", "SIM=icarus")
    assert code
    assert verdicts[0].startswith("FAIL")


@pytest.mark.slow
@needs_icarus
@pytest.mark.sampled(6, 6)
@pytest.mark.parametrize("options", [OPTIONS, {"tlast": True, "tkeep": True}, {"registered": True, "tuser": 1}])
@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("mac e4m3*e4m3+fp16.port_sr4 interleave=2", Build(pipeline=3)),
        ("quire posit8*posit8=posit16", Build()),
        ("dotmac2 e5m2*e5m2+e6m5", Build(pipeline=1)),
        ("blockmac mxfp4*mxfp4+fp32 step=8", Build(pipeline=2)),
        ("convert bf16>e4m3fn.sr8@lfsr16", Build()),
        ("div e5m2/e5m2", Build(iterations=2)),
        ("fma e5m2*e5m2+e5m2.port flags", Build(pipeline=2)),
        ("sqrt e5m2", Build()),
    ],
)
def test_package_streams_of_each_kind_pass(text: str, build: Build, options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, texts := package((text, "mul e5m2*e5m2") if not build.iterations else (text,), options, build))
    assert valid(texts)
    for stream in streams_of(texts):
        code, verdicts = make(tmp_path, f"{stream['module']}_tb", "SIM=icarus")
        assert (code, [verdict.partition(":")[0] for verdict in verdicts]) == (0, [f"PASS {stream['module']}"])


def test_package_refuses_options_of_streams_without_effect() -> None:
    with pytest.raises(ValueError, match="tkeep"):
        package(("mac e2m1fn*e2m1fn+e3m2",), {"tkeep": True})
    with pytest.raises(ValueError, match="separate"):
        package(("sqrt e2m1fn",), {"separate": True})
