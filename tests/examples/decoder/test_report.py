"""Figures of the decoder: the record is current, and operations and Verilog are counted as they are."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Fragment

from examples.decoder import record, report
from examples.decoder.arithmetic import Arithmetic
from examples.decoder.engine import Engine
from examples.decoder.measure import netlist, operations
from examples.decoder.model import Shape
from examples.decoder.record import Record, stale
from examples.decoder.run import POLICY

TINY = Shape(layers=1, width=4, heads=2, context=2, vocabulary=8)


def tiny():
    """Return a small elaborated engine."""
    engine = Engine(TINY, Arithmetic.read(POLICY, lanes=2))
    Fragment.get(engine, None)
    return engine


def test_record_is_current():
    assert stale(Record.load()) == [], "run `python -m examples.decoder.report` and `make figures`"


@pytest.mark.parametrize("part", ["sources", "policies", "logits", "engines", "netlist", "results"])
def test_record_is_stale_after_a_change(part, monkeypatch):
    recorded = Record.load()
    now = copy.deepcopy(recorded.digests)
    name = next(iter(now[part] if part in now else now["units"]))
    if part == "sources":
        now[part] = ""
    elif part == "engines":
        now[part][name] = now[part][name] | {"netlist": ""}
    elif part in now:
        now[part][name] = ""
    else:
        now["units"][name][part] = ""
    monkeypatch.setattr(record, "digests", lambda *_: now)
    (line,) = stale(recorded)
    assert ("modules of the example" if part == "sources" else name) in line


def test_record_without_a_policy_or_a_unit_is_stale(monkeypatch):
    recorded = Record.load()
    monkeypatch.setattr(record, "digests", lambda *_: recorded.digests)
    unit = next(iter(recorded.digests["units"]))
    units = {name: own for name, own in recorded.digests["units"].items() if name != unit}
    assert stale(replace(recorded, digests=recorded.digests | {"units": units})) == [f"unit {unit}"]
    (line,) = stale(replace(recorded, rows=[replace(recorded.rows[0], policy="other")]))
    assert "other.toml" in line


def test_operations_of_a_token_are_those_counted_by_hand():
    counted = operations(tiny())
    # Linear layers 4 * 16 + 2 * 64 + 32; in each head 4 for the scores, and 2 or 4 for the mixed values.
    assert counted["mac0"] == 224 + 2 * (4 + 3)
    # Vectors of 4 in four places and of 16 in one; in each head query, key and value of 2, and 1 or 2 scores.
    assert counted["operand0_0"] == 4 * 4 + 16 + 2 * (3 * 2 + 1.5)
    assert {name: counted[name] for name in ("rsqrt", "mean", "gelu", "exp")} == {
        "rsqrt": 3,
        "mean": 3,
        "gelu": 16,
        "exp": 3,
    }
    assert "" not in counted


@pytest.mark.slow
def test_netlist_keeps_the_program_and_drops_zeros():
    text = netlist(tiny()).verilog
    assert "for (" not in text
    assert "program [0] = " in text


def test_report_of_the_record_has_a_row_for_each_policy(tmp_path):
    recorded = Record.load()
    made = report.report_of(recorded)
    assert list(made.tables["decoder"].frame["policy"]) == ["bf16", "e4m3fn", "e5m2_sr", "mxfp4"]
    assert set(made.plots) == {"decoder-lut", "decoder-energy"}
    assert Record(**(vars(recorded))) == recorded


def test_figures_are_told_as_soon_as_they_are_there(capsys):
    report._tell([Path("a.toml"), Path("b.toml")], "{:,} LUT, loss {:.2f}", [12345, 7], [1.376, 2])
    assert capsys.readouterr().err == "a: 12,345 LUT, loss 1.38\nb: 7 LUT, loss 2.00\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--lanes", "4"], "--policies"),
        (["--policies", "missing.toml"], "missing.toml"),
        (["--check", "--recorded"], "not allowed"),
        (["--liberty", "missing.lib"], "missing.lib"),
    ],
)
def test_report_refuses(arguments, word, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["report", *arguments])
    with pytest.raises(SystemExit) as stopped:
        report.main()
    assert stopped.value.code == 2
    assert word in capsys.readouterr().err.splitlines()[-1]
