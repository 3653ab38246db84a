"""Page of the sign-off records: a summary, a table with a row per unit and family, and what is open or stale."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from halfulp.implementation import Implementation
from halfulp.units.catalogue import CATALOGUE

from .signoff import (
    BIN,
    CLAIM,
    CURRENT,
    MUTANT,
    PROOF_LIMIT,
    RESULTS,
    STALE,
    UNKNOWN,
    Key,
    Record,
    cases,
    key_of,
    read,
    states,
)

HEADS = (
    *("unit", "family", "every input", "sampled", "simulated", "golden against exact", "proved"),
    *("coverage", "mutants killed", "oracles", "measured"),
)
"""Headings of the sign-off table."""

PAGE = """# Sign-off

Checks that ran on each unit in each format family. `make signoff` runs the checks and the oracle tests, and writes the
records in `sim/results`; this page shows them, and no figure is written by hand.

## Summary
"""

COLUMNS = """
## Checks

A 0 means that nothing was checked.

- every input, sampled: vectors of the RTL that were compared with the golden model: all of a format, random words
  sampled, or directed and random ones; and all random words of a period. Simulated ones ran in cocotb, with stalls and
  back-pressure.
- golden against exact: vectors of the golden model that were compared with exact fractions.
- proved: claims that hold for all inputs; the others reached their time limit.
- coverage: a bin is open if it is neither hit nor proved to be unreachable.
- mutants killed: of the mutants of the netlist that are not proved to be equivalent.
- oracles: independent libraries with which the golden model agrees, and the number of vectors.
- measured: date of the checks; "incomplete" if the record of an operand format is missing, "stale" if the behaviour of
  one has changed since, and "not compared" if its sources have changed and this build of the page did not compare it.
"""

OLD = """
## Stale records

The netlist (without its names) or the golden results on fixed vectors have changed since the checks of these units.
`halfulp signoff` checks them again. No record may be stale in a release, or longer than a release.
"""

KINDS = {
    BIN: """
## Open bins

No vector of the test bench hits these bins. Some of them may be unreachable, but there is no proof: it would enumerate
all codes of the ports, all pairs of terms or all sums, which are too many.
""",
    MUTANT: """
## Undecided mutants

No vector of the test bench detects these changes of one bit of the netlist, and ABC does not decide within a minute
if any input does. A mutant may be equivalent to the unit.
""",
    CLAIM: f"""
## Claims that are not finished

ABC finds neither a proof nor a counterexample of these claims within {PROOF_LIMIT:g} seconds. `halfulp formal` with the
unit's text gives each a minute, and more with `--seconds`.
""",
}
"""Sections of what is open, by kind."""

SHOWN = 8
"""Largest number of bins of a group that the page names; the record names all."""


def page(state: Mapping[Key, str]) -> Iterator[str]:
    """Yield the lines of the sign-off page in Markdown, from the states of records."""
    records, oracles, left = read("signoff"), read("oracles"), read("open")
    yield from (PAGE, *summary(records, state), COLUMNS, *table(state=state))
    total = f"{sum(int(row['vectors']) for row in oracles):,}"
    yield f"| all | {len(cases())} rows | {' | '.join((*_cells(records, False), total, ''))} |"
    if old := [row for row in records if state.get(key_of(row)) == STALE]:
        yield from (OLD, *(f"- `{row['text']}`, of {row['date']} at commit {row['commit']}" for row in old))
    for kind, section in KINDS.items():
        rows = [row for row in left if row["kind"] == kind]
        yield from (section, *_open_table(rows)) if rows else ()


def summary(records: list[Record], state: Mapping[Key, str]) -> Iterator[str]:
    """Yield the lines of the totals: of rows and records, their states, faults and open cases."""
    here = [row for row in records if key_of(row) in state]
    count = Counter(state.values())
    totals = {
        "rows: units in a format family": len(cases()),
        "records: units in an operand format": len(here),
        "current: the checks ran on the present behaviour": count[CURRENT],
        "stale: the behaviour has changed since": count[STALE],
        "not compared with the present sources": count[UNKNOWN],
        "missing": sum(map(len, cases().values())) - len(here),
        "wrong results": _total(here, "wrong"),
        "claims refuted": _total(here, "refuted"),
        "mutants survived": _total(here, "survived"),
        "bins open": _total(here, "open"),
        "mutants undecided": _total(here, "undecided"),
        "claims not finished": _total(here, "not finished"),
    }
    yield from ("| | number |", "|---|---:|")
    yield from (f"| {name} | {number:,} |" for name, number in totals.items())


def _open_table(rows: list[Record]) -> Iterator[str]:
    yield from ("| unit | number | group | names |", "|---|---:|---|---|")
    for row in rows:
        names = row["names"].split("; ")
        more = [f"and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
        yield f"| `{row['text']}` | {row['number']} | {row['group']} | {'; '.join(names[:SHOWN] + more)} |"


def table(
    names: Collection[str] = CATALOGUE, folder: Path = RESULTS, state: Mapping[Key, str] | None = None
) -> Iterator[str]:
    """Yield the lines of the sign-off table in Markdown, with a row per unit and family.

    ``state`` has the states of records; default: without comparisons.
    """
    records, oracles = [row for row in read("signoff", folder) if row["unit"] in names], read("oracles", folder)
    state = states(records, compare=False) if state is None else state
    yield f"| {' | '.join(HEADS)} |"
    yield "|---" * len(HEADS) + "|"
    for key, implementations in cases(names).items():
        own = [row for row in records if (row["unit"], row["family"]) == key]
        agree = [row for row in oracles if (row["unit"], row["family"]) == key]
        judges = ", ".join(f"{row['library']} {int(row['vectors']):,}" for row in agree) or "0"
        yield f"| {' | '.join((*key, *_cells(own), judges, _date(own, implementations, state)))} |"


def _cells(rows: list[Record], formats: bool = True) -> Iterator[str]:
    def total(*names: str) -> int:
        return _total(rows, *names)

    def vectors(name: str) -> str:
        listed = [f"`{row['operands']}`" for row in rows if formats and row[name]]
        return f"{total(name):,}" + f" ({', '.join(listed)})" * bool(listed)

    yield (
        vectors("every input")
        + f"; {total('words'):,} words" * bool(total("words"))
        + f"; {total('wrong'):,} wrong" * bool(total("wrong"))
    )
    yield vectors("sampled")
    yield f"{total('simulated'):,}"
    yield f"{total('exact every input', 'exact sampled'):,}"
    claims, bins = total("proved", "refuted", "not finished"), total("hit", "unreachable", "open")
    yield f"{total('proved'):,} of {claims:,}" if claims else "0"
    yield (f"{total('open'):,} of {bins:,} open" if total("open") else f"closed ({bins:,})") if bins else "0"
    yield f"{total('killed'):,} of {total('mutants') - total('equivalent'):,}" if total("mutants") else "0"


def _date(rows: list[Record], implementations: list[Implementation], state: Mapping[Key, str]) -> str:
    """Return the date of the oldest record, and remarks if some are missing or not current."""
    if not rows:
        return "never"
    incomplete = {row["text"] for row in rows} != set(map(str, implementations))
    remarks = [what for what in (STALE, UNKNOWN) if what in {state.get(key_of(row)) for row in rows}]
    return ", ".join([min(row["date"] for row in rows), *["incomplete"] * incomplete, *remarks])


def _total(rows: list[Record], *names: str) -> int:
    return sum(int(row[name] or 0) for row in rows for name in names)
