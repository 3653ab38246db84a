"""Sign-off records: complete, repeatable, and recognisable if they do not fit the sources."""

import pytest

from halfulp.hdl.formats.families import FAMILIES, Compound, Scale
from halfulp.sim import regressions, signoff
from halfulp.sim.implementation import Implementation
from halfulp.sim.ports import Ports
from halfulp.sim.signoff import COLUMNS, COUNTS, MIXED, cases, failed, measure, read, table, write, write_oracles
from halfulp.units.catalogue import CATALOGUE

RUN = "sim/results does not fit the catalogue: run `make signoff`"
TINY = Implementation.parse("convert nf4>nf4.rn")


def row(name, family, folder=signoff.RESULTS):
    """Cells of a row of the sign-off table."""
    (found,) = [line for line in table([name], folder) if line.startswith(f"| {name} | {family} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_signoff_has_rows_of_all_units_and_families():
    families = [family.family for family in FAMILIES if family not in (Compound, Scale)]
    found = cases()
    for name in CATALOGUE:
        own = [family for unit, family in found if unit == name]
        # Some units take one family alone, and one no codebook whose code 0 is not zero.
        taken = {"sru": ["fixed point"], **{unit: ["float"] for unit in ("split", "join", "partmac")}}
        taken |= {unit: ["block"] for unit in ("blockdot", "blockmac", "blockdequantize")}
        taken |= {unit: ["float"] for unit in ("sparsedot", "sparsemac", "blockquantize")}
        taken["classify"] = families
        every = [family for family in (*families, MIXED) if (name, family) != ("quire", "codebook")]
        assert own == taken.get(name, every)
        assert all(found[name, family] for family in own)


def test_signoff_records_cover_all_rows():
    records = read("signoff")
    assert [(record["unit"], record["family"], record["text"]) for record in records] == [
        (name, family, str(asked)) for (name, family), found in cases().items() for asked in found
    ], RUN
    for record in records:
        assert int(record["every input"] or record["sampled"]), RUN
        assert int(record["exact every input"] or record["exact sampled"]), RUN
    assert not any(map(failed, records))
    assert {"mul", "add", "fma", "convert", "compare", "quire", "dot"} <= {found["unit"] for found in read("oracles")}


@pytest.mark.slow
def test_signoff_record_is_repeatable(own_build):
    (kept,) = [record for record in read("signoff") if record["text"] == str(TINY)]
    now = measure(TINY, "codebook", bool(kept["mutants"]))
    # The solver's limit of time decides on a busy machine which proofs finish; the record has all of them.
    assert int(kept["not finished"]) == 0
    now["proved"], now["not finished"] = str(int(now["proved"]) + int(now["not finished"])), "0"
    assert {name: kept[name] for name in COUNTS} == {name: now[name] for name in COUNTS}, RUN


def test_signoff_checks_again_after_a_new_regression(monkeypatch, tmp_path):
    keys = []
    monkeypatch.setattr(signoff, "cached_value", lambda kind, parts, make, name: keys.append(parts) or {})
    monkeypatch.setenv("HALFULP_REGRESSIONS", str(tmp_path))
    unit = TINY.component()
    for _ in range(2):
        measure(TINY, "codebook", False)
        steps = regressions.parse_steps("0x1", Ports.of(unit.inputs))
        regressions.save(unit, regressions.with_results(unit, steps, "one"))
    half = len(keys) // 2
    assert half
    assert not set(keys[:half]) & set(keys[half:])


def test_signoff_shows_new_units_and_families_as_not_covered(monkeypatch, tmp_path):
    monkeypatch.delitem(signoff.FORMATS, "takum")
    assert row("mul", "takum", tmp_path)[2:] == ["0"] * 8 + ["never"]
    monkeypatch.setitem(CATALOGUE, "product", CATALOGUE["mul"])
    assert row("product", "float")[2:] == ["0"] * 8 + ["never"]


def kept_record(**changes):
    """Record of the tiny unit with some figures, and those of its sources."""
    about = {"unit": "convert", "family": "codebook", "operands": "nf4", "text": str(TINY), "date": "2026-01-01"}
    return dict.fromkeys(COLUMNS, "") | about | signoff.digests(TINY) | changes


@pytest.mark.parametrize(
    ("changes", "shown"),
    [({}, "2026-01-01"), *(({name: "0" * 8}, "2026-01-01, other sources") for name in ("verilog", "golden"))],
)
def test_signoff_marks_records_of_other_sources(changes, shown, monkeypatch, tmp_path):
    monkeypatch.setattr(signoff, "measure", lambda *_: kept_record(**changes))
    assert len(list(write(tmp_path, ["convert"]))) == len(
        [found for key in cases(["convert"]).values() for found in key]
    )
    assert row("convert", "codebook", tmp_path)[-1] == shown


def test_signoff_cells_count_what_is_open_and_wrong(monkeypatch, tmp_path):
    figures = {"every input": "16", "wrong": "2", "proved": "3", "not finished": "1", "hit": "5", "open": "4"}
    figures |= {"mutants": "9", "killed": "6", "equivalent": "2", "survived": "1"}
    monkeypatch.setattr(signoff, "measure", lambda *_: kept_record(**figures))
    monkeypatch.setattr(signoff, "cases", lambda *_: {("convert", "codebook"): [TINY]})
    (record,) = write(tmp_path, ["convert"])
    assert failed(record)
    assert row("convert", "codebook", tmp_path)[2:9] == [
        "16 (`nf4`); 2 wrong",
        "0",
        "0",
        "0",
        "3 of 4",
        "4 of 9 open",
        "6 of 7",
    ]


def test_signoff_keeps_records_when_interrupted(monkeypatch, tmp_path):
    done = []

    def stopped(asked, family, *_):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(str(asked))
        return kept_record(unit=asked.spec.form.unit, family=family, text=str(asked))

    monkeypatch.setattr(signoff, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        list(write(tmp_path, ["mul"]))
    assert [record["text"] for record in read("signoff", tmp_path)] == done
    done.clear()
    with pytest.raises(KeyboardInterrupt):
        list(write(tmp_path, ["add"]))
    assert [record["unit"] for record in read("signoff", tmp_path)] == ["mul", "mul", "add", "add"]


PASSED = '<testcase><properties><property name="oracle" value="SoftFloat,mul,float,{}"/></properties>{}</testcase>'


def test_oracles_count_passed_tests_alone(tmp_path):
    junit = tmp_path / "oracles.xml"
    tests = [
        PASSED.format(7, ""),
        PASSED.format(5, ""),
        PASSED.format(100, "<failure/>"),
        PASSED.format(100, "<skipped/>"),
    ]
    junit.write_text(f"<testsuites><testsuite>{''.join(tests)}</testsuite></testsuites>")
    expected = [{"unit": "mul", "family": "float", "library": "SoftFloat", "tests": "2", "vectors": "12"}]
    assert write_oracles(tmp_path, junit) == read("oracles", tmp_path) == expected
    assert row("mul", "float", tmp_path)[-2] == "SoftFloat 12"
    junit.write_text("<testsuites/>")
    with pytest.raises(ValueError, match="oracle"):
        write_oracles(tmp_path, junit)


def test_signoff_refuses_unknown_unit(halfulp, tmp_path):
    code, _, error = halfulp("signoff", "mull", "-o", tmp_path)
    assert code == 2
    assert "mull" in error
