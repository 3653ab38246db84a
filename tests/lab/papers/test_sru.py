"""Table of stochastic rounding units: its claims are measured, and it is complete."""

import io
import math
import re
import shutil
import subprocess

import pandas as pd
import pytest
from click.testing import CliRunner
from pandas.testing import assert_frame_equal

from halfulp import cli
from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import Cost, measure_modules
from halfulp.hdl.formats.source import parse_source
from halfulp.lab.papers import paper_tables, sru
from halfulp.lab.papers.sru import CROPPED, LANES, ROWS, UNITS, tables
from halfulp.units.verilog import verilog_ports

VU9P = TARGETS["vu9p"]

PUBLISHED = """
| 32-bit LFSR | 217,088 | 270,336 | 53 | 66 |
| 24-bit LFSR | 159,744 | 204,800 | 39 | 50 |
| 16-bit LFSR | 110,592 | 139,264 | 27 | 34 |
| 8-bit LFSR | 61,440 | 73,728 | 15 | 18 |
| 8-bit plateau | 61,440 | 73,728 | 15 | 18 |
| 3-bit plateau | 16,384 | 32,768 | 4 | 8 |
"""
"""Chang et al., DATE 2023, Table IV, where the two sources of 8 bits share a row."""


def published():
    """Return the rows of the published table: LUT and FF of 4096 units, and of one."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in PUBLISHED.strip().splitlines()]
    return {label: [int(cell.replace(",", "")) for cell in figures] for label, *figures in cells}


def cost(lut, ff=0, carry=0):
    return Cost(lut=lut, luts=(), ff=ff, carry=carry, mux=0, dsp=0, bram=0, uram=0, memory=0, path=1)


@pytest.fixture
def found():
    """Return a study with chosen figures instead of measured ones."""
    every = list(enumerate(dict.fromkeys((*ROWS, *CROPPED))))
    units = {(row, "decision"): cost(10 + n, n, 2) for n, row in every}
    whole = {(row, "whole"): cost(20 + n, n, 3) for n, row in every}
    banks = {(row, "bank"): cost(64 * n + 65, n + 1) for n, row in enumerate(ROWS)}
    only = {"whole bank": cost(192), "saturating": cost(14, 4, 2)}
    return units | whole | banks | {(row("plateau3"), kind): one for kind, one in only.items()}


# Claims ------------------------------------------------------------------------------------------------------------


def row(source, rows=ROWS):
    (only,) = (row for row in rows if row.source == source)
    return only


@pytest.mark.slow
def test_plateau3_sru_has_4_luts_and_4_flip_flops():
    (unit,) = measure_modules([row("plateau3").unit(increment=False)], VU9P)
    assert unit.lut <= 4
    assert unit.ff <= 4
    assert (unit.carry, unit.mux, unit.dsp, unit.bram, unit.memory) == (0, 0, 0, 0, 0)


@pytest.mark.slow
def test_plateau3_bank_beats_lfsr24_tenfold():
    modules = [row("plateau3").unit(increment=False, lanes=LANES), row("lfsr24").unit(increment=False)]
    bank, long = measure_modules(modules, VU9P)
    assert bank.lut / LANES <= 1.5
    assert bank.ff <= 4
    assert (bank.carry, bank.mux, bank.memory) == (0, 0, 0)
    assert long.lut / (bank.lut / LANES) >= 9.75
    # Every measured figure is in the table.
    assert long.ff == 24
    assert long.carry > 0


@pytest.mark.slow
def test_sru_units_have_named_ports():
    for a_row in (*ROWS, *CROPPED):
        module = a_row.unit(increment=False)
        assert {port.name: port.width for port in verilog_ports(module.verilog, module.top)} == {
            **dict.fromkeys(("clk", "rst", "en", "valid", "up0"), 1),
            "a0": 8 + a_row.discarded,
            "o0": 8,
        }
        width = parse_source(a_row.source).register
        assert re.search(rf"reg \[{width - 1}:0\] random0_lfsr ", module.verilog)


# Tables ------------------------------------------------------------------------------------------------------------


def test_sru_tables_have_every_published_row(found):
    own, many, cropped = (table.frame for table in tables(found).values())
    assert list(own["source"]) == list(many["source"]) == list(published())
    assert list(cropped["source"])[: len(own)] == list(published())
    for frame, columns in ((own, slice(2, 4)), (many, slice(0, 2)), (cropped[: len(own)], slice(2, 4))):
        for _, line in frame.iterrows():
            assert [line["published LUT"], line["published FF"]] == published()[line["source"]][columns]
    assert list(own["discarded"]) == [32, 24, 16, 8, 8, 8]
    assert set(cropped["discarded"]) == {8}
    # Levels that reach 1 are published as a table, with LUT only; other rows are not published.
    assert list(cropped["published LUT"])[len(own) :] == [15, 15, *[pytest.approx(math.nan, nan_ok=True)] * 2]
    for frame in (own, many, cropped.drop(columns=["published LUT", "published FF"])):
        assert not frame.isna().any().any()


def test_sru_table_has_published_shares(found):
    """Of 678,716 LUT of DarkFPGA, as printed in Table IV; the LUT of the VU9P are those of its data sheet."""
    frame = tables(found)["sru-4096"].frame
    assert [round(share, 1) for share in frame["published % of DarkFPGA"]] == [32.0, 23.5, 16.3, 9.1, 9.1, 2.4]
    assert list(frame["published % of VU9P"]) == [100 * lut / 1_182_240 for lut in frame["published LUT"]]
    assert list(frame["% of DarkFPGA"]) == [100 * lut / 678_716 for lut in frame["LUT"]]


def test_sru_errors_are_those_of_all_parts(found):
    """Repeated words have no mean error; words of 3 bits above zeros lose half of an eighth, less half a 256th."""
    frame = tables(found)["sru-cropped"].frame.set_index("source")
    assert frame["mean error"]["3-bit plateau"] == -(1 / 8 - 1 / 256) / 2
    assert frame["mean error"]["3-bit plateau, repeated to 8"] == 0
    assert frame["mean error"]["3-bit plateau, repeated to 6"] == -(1 / 64 - 1 / 256) / 2
    # An LFSR without zero rounds up 1/7 in place of 1/8 up to 7/7 in place of 7/8.
    assert frame["largest error"]["3-bit LFSR"] == 1 / 8
    # A naive word is at most 7/8: of 255/256, 14 of 15 words round up.
    assert frame["largest error"]["3 bits, naive"] == min(2 * k / 15 - (32 * k + 31) / 256 for k in range(8))


def test_sru_tables_have_measured_figures(found):
    own, many, cropped = (table.frame for table in tables(found).values())
    assert list(own["LUT"]) == [10, 11, 12, 13, 14, 15]
    assert list(own["LUT +1"]) == [20, 21, 22, 23, 24, 25]
    assert list(own["bank LUT"]) == [n + 65 / 64 for n in range(6)]
    assert list(own["bank FF"]) == [(n + 1) / 64 for n in range(6)]
    assert list(cropped["LUT"]) == [16, 17, 18, 13, 14, 15, 19, 20, 21, 22]
    assert set(cropped["CARRY8 +1"]) == {3}
    for name in ("LUT", "FF", "LUT +1"):
        assert list(many[name]) == [UNITS * figure for figure in own[name]]
    assert list(many["bank LUT"]) == [UNITS * figure for figure in own["bank LUT"]]
    assert list(many["bank FF"]) == [UNITS * figure for figure in own["bank FF"]]


def test_sru_notes_have_all_ratios(found):
    notes = "\n".join(tables(found)["sru"].notes)
    # 24 bits: 11, with the increment 21; cropped 17 and 27. Plateau: 15 and 25, in the bank 385 / 64 and 192 / 64.
    for text in (
        "published 39 / 4 = 9.75; own, over a unit of the bank 11 / 6.016 = 1.829, over a unit with a source of its "
        "own 11 / 15 = 0.7333.",
        "With +1: over a unit of the bank 21 / 3 = 7, over one with a source of its own 21 / 25 = 0.84.",
        "over a unit of the bank 17 / 6.016 = 2.826, over one with a source of its own 17 / 15 = 1.133; with +1 "
        "27 / 3 = 9 and 27 / 25 = 1.08.",
        "With a result that saturates, a unit of a 3-bit plateau with +1 has 14 LUT and 2 CARRY8.",
    ):
        assert text in notes


def test_sru_markdown_groups_digits(found):
    text = tables(found)["sru-4096"].markdown()
    cells = [cell.strip() for cell in text.splitlines()[4].strip("|").split("|")]
    shares = ["18.4", "32.0", "3.5", "6.0"]
    assert cells == ["32-bit LFSR", "32", "217,088", "270,336", "40,960", "0", "81,920", "4,160", "64", *shares]


def test_sru_csv_round_trips(found):
    for table in tables(found).values():
        assert_frame_equal(pd.read_csv(io.StringIO(table.csv())), table.frame, check_exact=True)


def test_sru_latex_is_balanced(found, tmp_path):
    for stem, table in tables(found).items():
        text = table.latex()
        assert text.count("{") == text.count("}")
        for environment in ("table", "tabular"):
            assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == 1
        top, body = text.split(r"\toprule")
        head, lines = body.split(r"\bottomrule")[0].split(r"\midrule")
        columns = len(table.frame.columns)
        assert re.search(r"\\begin\{tabular\}\{([lr]+)\}", top)[1] == "l" + "r" * (columns - 1)
        rows = [line for line in (head + lines).strip().splitlines() if line.strip()]
        assert len(rows) == len(table.frame) + 1
        assert all(row.count("&") == columns - 1 and row.endswith(r"\\") for row in rows)
        assert not re.search(r"(?<!\\)[%#]", text.partition("\n")[2])
        if shutil.which("pdflatex"):
            (tmp_path / f"{stem}.tex").write_text(
                "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\n"
                + text
                + "\\end{document}\n"
            )
            command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{stem}.tex"]
            assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0


# Command -----------------------------------------------------------------------------------------------------------


def test_sru_command_prints_and_writes(found, tmp_path, monkeypatch):
    monkeypatch.setattr(sru, "study", lambda progress, pool: found)
    answer = CliRunner().invoke(cli.report, ["sru", "-o", str(tmp_path / "new")])
    assert answer.exit_code == 0
    assert answer.stdout == "\n".join(table.markdown() for table in tables(found).values())
    files = [tmp_path / "new" / f"{stem}.{ending}" for stem in tables(found) for ending in ("md", "csv", "tex")]
    assert answer.stderr.splitlines() == [f"halfulp: wrote {path}" for path in files]
    assert sorted((tmp_path / "new").iterdir()) == sorted(files)
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    assert CliRunner().invoke(cli.report, ["sru"]).exit_code == 0
    assert (tmp_path / "build" / "reports" / "sru.md").read_text() == tables(found)["sru"].markdown()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sru", "-o", __file__], f"Directory '{__file__}' is a file."),
        (["sru", "e5m2"], "Got unexpected extra argument (e5m2)"),
        (["area"], "unknown report 'area'"),
    ],
)
def test_sru_command_rejects_bad_requests(words, sentence):
    answer = CliRunner().invoke(cli.report, words)
    assert answer.exit_code == 2
    assert sentence in answer.stderr


def test_page_has_published_shares_of_device_and_accelerator():
    """Chang et al., Table IV; it prints one digit after the point, in one row rounded down."""
    (head, _, *rows) = [line for line in paper_tables._sru() if line.startswith("|")][len(sru.CROPPED) + 2 :]
    place = [cell.strip() for cell in head.split("|")].index("published LUT, % of DarkFPGA")
    shares = [float(row.split("|")[place]) for row in rows]
    assert shares == pytest.approx([32.0, 23.5, 16.3, 9.0, 9.0, 2.4], abs=0.06)
    record = {row["source"]: row for row in paper_tables._record("sru")}
    ours = [cell.strip() for cell in head.split("|")].index("LUT, % of VU9P")
    for row, line in zip(sru.ROWS, rows, strict=True):
        share = 100 * int(record[row.label]["LUT"]) * 4096 / 1_182_240
        assert line.split("|")[ours].strip() == f"{share:.2f}"


def test_page_compares_16_bits_to_8_with_and_without_the_adder(monkeypatch, tmp_path):
    lines = list(paper_tables._sru())
    head, _, *rows = [line for line in lines if line.startswith("|")][: len(sru.CROPPED) + 2]
    columns = [cell.strip() for cell in head.split("|")]
    record = {row["source"]: row for row in paper_tables._record("sru-cropped")}
    for row, line in zip(sru.CROPPED, rows, strict=True):
        cells = dict(zip(columns, (cell.strip() for cell in line.split("|")), strict=True))
        own = record[row.label]
        shown = [cells[name] for name in ("LUT", "FF", "LUT, with adder")]
        assert shown == [own[name] for name in ("LUT", "FF", "LUT +1")]
        assert cells["published LUT"] == (str(row.published_lut // UNITS) if row.published_lut else "")
    text = " ".join(lines)
    assert "takes 9.75 times" in text
    assert "9/4 = 2.25 times" in text
    # The ratios follow the record.
    for name in ("sru", "sru-cropped"):
        source = (paper_tables.RECORDS / f"{name}.csv").read_text()
        (tmp_path / f"{name}.csv").write_text(source.replace("3-bit plateau,8,4,4", "3-bit plateau,8,3,4"))
    monkeypatch.setattr(paper_tables, "RECORDS", tmp_path)
    assert "9/3 = 3.00 times" in " ".join(paper_tables._sru())
