"""Sign-off records: complete, repeatable, and recognisable if they do not fit the sources."""

import re

import pytest

from halfulp import __version__, golden, hdl
from halfulp.hdl.formats import FAMILIES, Block, Compound, Custom, Scale
from halfulp.hdl.formats.source import SOURCES, TAPS, Lfsr
from halfulp.hdl.lfsr import source_word
from halfulp.implementation import Implementation
from halfulp.sim import behaviour, regressions, signoff, signoff_page
from halfulp.sim.ports import Ports
from halfulp.sim.signoff import (
    CLAIM,
    COLUMNS,
    COUNTS,
    CURRENT,
    MIXED,
    OPEN_COUNTS,
    STALE,
    UNKNOWN,
    cases,
    failed,
    key_of,
    measure,
    overdue,
    read,
    states,
    write,
    write_oracles,
)
from halfulp.sim.signoff_page import page, table
from halfulp.units import Sru
from halfulp.units.catalogue import CATALOGUE
from tests.settings import ROOT

RUN = "sim/results does not fit the catalogue: run `make signoff`"
TINY = Implementation.parse("convert nf4>nf4.rn")
ROUNDED = Implementation.parse("mul e2m1*e2m1.rn")


def row(name, family, folder=signoff.RESULTS):
    """Cells of a row of the sign-off table."""
    (found,) = [line for line in table([name], folder) if line.startswith(f"| {name} | {family} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


@pytest.mark.slow
def test_signoff_has_rows_of_all_units_and_families():
    families = [family.family for family in FAMILIES if family not in (Block, Compound, Custom, Scale)]
    found = cases()
    for name in CATALOGUE:
        own = [family for unit, family in found if unit == name]
        # Some units take one family alone, and one no codebook whose code 0 is not zero.
        taken = {
            **{unit: ["fixed point"] for unit in ("sru", "requantize")},
            **{unit: ["float"] for unit in ("split", "join", "partmac")},
        }
        taken["sru"] += [f"{kind.KIND}{kind.SUFFIX}" for kind in SOURCES]
        taken |= {unit: ["block"] for unit in ("blockdot", "blockmac", "blockdequantize")}
        taken |= {unit: ["float"] for unit in ("mma", "sparsedot", "sparsemac", "dotmac", "blockquantize", "fpu")}
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
        assert all(record[name] for name in ("date", "commit", "version", *behaviour.DIGESTS)), RUN
    assert not any(map(failed, records))
    assert {"mul", "add", "fma", "convert", "compare", "quire", "dot"} <= {found["unit"] for found in read("oracles")}


def test_signoff_names_what_is_open():
    left = read("open")
    for record in read("signoff"):
        own = [row for row in left if (row["text"], row["family"]) == (record["text"], record["family"])]
        for kind, count in OPEN_COUNTS.items():
            number = sum(int(row["number"]) for row in own if row["kind"] == kind)
            assert number == int(record[count] or 0), f"{record['text']}: {count}; {RUN}"


@pytest.mark.slow
def test_signoff_record_is_repeatable(own_build):
    (kept,) = [record for record in read("signoff") if record["text"] == str(TINY)]
    now, left = measure(TINY, "codebook", bool(kept["mutants"]))
    assert not [row for row in left if row["kind"] != CLAIM]
    assert {name: kept[name] for name in ("netlist", "results")} == {name: now[name] for name in ("netlist", "results")}
    # The solver's limit of time decides on a busy machine which proofs finish; the record has all of them.
    assert int(kept["not finished"]) == 0
    now["proved"], now["not finished"] = str(int(now["proved"]) + int(now["not finished"])), "0"
    assert {name: kept[name] for name in COUNTS} == {name: now[name] for name in COUNTS}, RUN


def test_signoff_checks_again_after_a_new_regression(monkeypatch, tmp_path):
    keys = []
    monkeypatch.setattr(signoff, "cached_value", lambda kind, parts, make, name: keys.append(parts) or ({}, []))
    monkeypatch.setenv("HALFULP_REGRESSIONS", str(tmp_path))
    unit = TINY.component()
    for _ in range(2):
        measure(TINY, "codebook", False)
        steps = regressions.parse_steps("0x1", Ports.inputs_of(unit))
        regressions.save(unit, regressions.with_results(unit, steps, "one"))
    half = len(keys) // 2
    assert half
    assert not set(keys[:half]) & set(keys[half:])


def test_signoff_shows_new_units_and_families_as_not_covered(monkeypatch, tmp_path):
    monkeypatch.delitem(signoff.FORMATS, "takum")
    assert row("mul", "takum", tmp_path)[2:] == ["0"] * 8 + ["never"]
    monkeypatch.setitem(CATALOGUE, "product", CATALOGUE["mul"])
    assert row("product", "float")[2:] == ["0"] * 8 + ["never"]


@pytest.fixture(scope="module")
def digests():
    return behaviour.digests(TINY)


@pytest.fixture
def kept_record(digests):
    """Record of the tiny unit with some figures, and its present digests."""

    def record(**changes):
        about = {"unit": "convert", "family": "codebook", "operands": "nf4", "text": str(TINY)}
        about |= {"date": "2026-01-01", "commit": "1234567"}
        return dict.fromkeys(COLUMNS, "") | about | {"version": __version__} | digests | changes

    return record


@pytest.fixture
def measured(monkeypatch, kept_record):
    """Checks of the tiny unit alone, which give the kept record; return the texts that were checked."""
    done = []
    monkeypatch.setattr(signoff, "measure", lambda asked, *_: (done.append(str(asked)) or kept_record(), []))
    monkeypatch.setattr(signoff, "cases", lambda *_: {("convert", "codebook"): [TINY]})
    monkeypatch.setattr(signoff_page, "cases", signoff.cases)
    return done


OTHER = dict.fromkeys(behaviour.DIGESTS, "0")

CHANGES = [
    ({}, False),
    ({"sources": "0"}, False),
    ({"sources": "0", "rtlil": "0"}, False),
    ({"sources": "0", "rtlil": "0", "netlist": "0"}, True),
    ({"sources": "0", "results": "0"}, True),
]
"""Changes of digests, and if they are another behaviour: sources and RTLIL may change alone."""


@pytest.mark.parametrize(("changes", "other"), CHANGES)
def test_signoff_marks_and_renews_records_of_another_behaviour_alone(
    changes, other, measured, kept_record, digests, tmp_path
):
    kept = kept_record(**changes, date="2025-01-01", version="0.0.9")
    signoff._save(tmp_path / "signoff.csv", COLUMNS, [kept])
    assert row("convert", "codebook", tmp_path)[-1] == "2025-01-01" + ", not compared" * ("sources" in changes)
    assert states([kept], compare=False) == {key_of(kept): UNKNOWN if "sources" in changes else CURRENT}
    assert states([kept]) == {key_of(kept): STALE if other else CURRENT}
    assert len(list(write(tmp_path, ["convert"]))) == len(measured) == other
    (record,) = read("signoff", tmp_path)
    assert record["date"] == ("2026-01-01" if other else "2025-01-01")
    assert {name: record[name] for name in digests} == digests
    assert record["version"] == __version__


def test_signoff_checks_current_records_if_asked(measured, kept_record, tmp_path):
    signoff._save(tmp_path / "signoff.csv", COLUMNS, [kept_record()])
    assert len(list(write(tmp_path, ["convert"], every=True))) == len(measured) == 1


@pytest.mark.parametrize(
    ("changes", "released", "late"),
    [
        (OTHER, False, False),
        (OTHER, True, True),
        (OTHER | {"version": "0.0.9"}, False, True),
        ({"version": "0.0.9"}, True, False),
    ],
    ids=["this version", "release", "earlier version", "current"],
)
def test_signoff_record_is_overdue_in_a_release_and_after_its_version(changes, released, late, kept_record):
    assert bool(overdue([kept_record(**changes)], __version__, released)) == late


def released(changelog):
    """True if the present version is the first of the changelog, and released."""
    heading = re.search(r"^## ([^\s,]+)(, unreleased)?$", changelog, re.M)
    return heading[1] == __version__ and not heading[2]


def test_release_is_read_from_the_changelog():
    assert released(f"# Changelog\n\n## {__version__}\n\n- Text.\n\n## 0.0.1\n")
    assert not released(f"## {__version__}, unreleased\n\n## 0.0.1\n")
    assert not released("## 99.0\n")


def test_no_signoff_record_is_overdue():
    late = overdue(read("signoff"), __version__, released((ROOT / "CHANGELOG.md").read_text()))
    assert not late, f"run `make signoff`; these are stale: {[record['text'] for record in late]}"


@pytest.mark.parametrize(
    ("decision", "other"),
    [
        (lambda first, last, below: first & (below | last), False),
        (lambda first, last, below: ~(~first | ~(last | below)), False),
        (lambda first, last, below: first, True),
        (lambda first, last, below: first & below, True),
    ],
    ids=["as it is", "written otherwise", "ties away", "ties to zero"],
)
def test_signoff_record_is_stale_after_a_change_of_rounding(decision, other, monkeypatch):
    known = behaviour.digests(ROUNDED)
    monkeypatch.setattr(behaviour, "sources", lambda _: "0")
    monkeypatch.setattr(hdl.round, "_decision", lambda _, bits, first, below: decision(first, bits.last, below))
    assert bool(behaviour.current({ROUNDED: known})) != other


def test_signoff_record_is_stale_after_a_change_of_the_golden_model(monkeypatch):
    known = behaviour.digests(TINY)
    right = golden.convert
    monkeypatch.setattr(behaviour, "sources", lambda _: "0")
    assert behaviour.current({TINY: known})
    monkeypatch.setattr(golden, "convert", lambda codes, **options: right(codes, **options) ^ (codes == 9))
    assert not behaviour.current({TINY: known})


class Uncomplemented(Sru):
    """Rounder whose plateau source is an LFSR."""

    def word(self, m, name="random0"):
        stream = self.sources[name]
        return source_word(m, Lfsr(stream.source.width), [stream.seed], self.accepts, name)


def words(unit):
    return signoff._words(unit, signoff.silent, signoff.LOCAL)[0]


def narrow(kind):
    return cases(["sru"])["sru", kind][0].component()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("kind", "period"), [("plateau", 14), ("lfsr", 7), ("plateau-rep", 14), ("naive", 15)])
def test_signoff_compares_all_words_of_sources(kind, period):
    assert words(narrow(kind)) == {"words": period, "wrong": 0}


def test_signoff_row_of_a_source_fails_if_hardware_or_twin_is_broken(monkeypatch):
    right = narrow("plateau")
    assert words(Uncomplemented(**right.parameters, random=right.spec.random))["wrong"] > 0
    flags = golden.random._inversions
    monkeypatch.setattr(golden.random, "_inversions", lambda *given: flags(*given).roll(1, -1))
    assert words(right)["wrong"] > 0


def test_signoff_row_of_a_source_fails_if_words_have_other_frequencies(monkeypatch):
    """Wrong taps are those of hardware and twin, which agree."""
    monkeypatch.setitem(TAPS, 3, (3,))
    monkeypatch.setattr(signoff, "run_and_compare", lambda *_: (0, []))
    assert words(narrow("plateau"))["wrong"] > 0


def test_signoff_cells_count_what_is_open_and_wrong(monkeypatch, measured, kept_record, tmp_path):
    figures = {"every input": "16", "wrong": "2", "proved": "3", "not finished": "1", "hit": "5", "open": "4"}
    figures |= {"mutants": "9", "killed": "6", "equivalent": "2", "survived": "1"}
    monkeypatch.setattr(signoff, "measure", lambda *_: (kept_record(**figures), []))
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


def test_signoff_keeps_records_when_interrupted(monkeypatch, kept_record, tmp_path):
    done = []

    def stopped(asked, family, *_):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(str(asked))
        return kept_record(unit=asked.spec.form.unit, family=family, text=str(asked)), []

    monkeypatch.setattr(signoff, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        list(write(tmp_path, ["mul"]))
    assert [record["text"] for record in read("signoff", tmp_path)] == done
    done.clear()
    with pytest.raises(KeyboardInterrupt):
        list(write(tmp_path, ["add"]))
    assert [record["unit"] for record in read("signoff", tmp_path)] == ["add", "add", "mul", "mul"]


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


def test_signoff_page_has_a_summary_and_names_what_is_open(monkeypatch, measured, kept_record, tmp_path):
    bins = signoff._open("bin", 9, "exponents", "; ".join(f"bin {number}" for number in range(9)))
    rows = [{"unit": "convert", "family": "codebook", "text": str(TINY)} | bins]
    monkeypatch.setattr(signoff, "measure", lambda *_: (kept_record(open="9", hit="1"), rows))
    list(write(tmp_path, ["convert"]))
    files = {stem: read(stem, tmp_path) for stem in ("signoff", "oracles", "open")}
    monkeypatch.setattr(signoff_page, "read", lambda stem, *_: files[stem])
    key = str(TINY), "codebook"
    text = "\n".join(page({key: CURRENT}))
    assert "| bins open | 9 |" in text
    assert "| stale: the behaviour has changed since | 0 |" in text
    assert "Stale records" not in text
    assert f"| `{TINY}` | 9 | exponents | bin 0; bin 1; bin 2; bin 3; bin 4; bin 5; bin 6; bin 7; and 1 more |" in text
    files["signoff"] = [kept_record(**OTHER)]
    text = "\n".join(page({key: STALE}))
    assert "| stale: the behaviour has changed since | 1 |" in text
    assert f"- `{TINY}`, of 2026-01-01 at commit 1234567" in text


def test_signoff_compare_renews_current_records_and_lists_stale_ones(halfulp, kept_record, tmp_path):
    path = tmp_path / "signoff.csv"
    signoff._save(path, COLUMNS, [kept_record(sources="0", version="0.0.9")])
    assert halfulp("signoff", "--compare", "-o", tmp_path)[:2] == (0, "no record is stale\n")
    assert read("signoff", tmp_path) == [kept_record()]
    signoff._save(path, COLUMNS, [kept_record(**OTHER)])
    before = path.read_text()
    assert halfulp("signoff", "convert", "--compare", "-o", tmp_path)[:2] == (1, f"stale: {TINY}, of 2026-01-01\n")
    assert halfulp("signoff", "mul", "--compare", "-o", tmp_path)[0] == 0
    assert path.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["signoff.csv"]
