"""Sign-off records: results of the checks of each unit in each format family, in files of the checkout."""

import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import date
from fractions import Fraction
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from halfulp.hdl.formats import FAMILIES, Rounding
from halfulp.hdl.formats.block import parse_operand
from halfulp.hdl.formats.source import SOURCES, Source
from halfulp.hdl.specs import FunctionSpec, SruSpec, UnitSpec
from halfulp.hdl.specs.function import TABLE_WIDTH
from halfulp.implementation import Implementation, short
from halfulp.tools.cache import cached_value
from halfulp.tools.digests import code, commit, version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.paths import machine_errors, write_whole
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import threads
from halfulp.units.catalogue import CATALOGUE

from . import behaviour, regressions
from .bench import result_formats, run, run_and_compare
from .corner_cases import corner_cases
from .model import CompiledModel
from .ports import Ports
from .reference import own_words, reference
from .report import exact_codes
from .space import Space
from .sweep import sweep
from .vectors import make

if TYPE_CHECKING:
    from halfulp.units import Unit

RESULTS = Path(__file__).resolve().parent / "results"
"""Folder of the records of the project."""

FORMATS = {
    "float": ("e2m1", "e5m2", "fp16", "fp32"),
    "fixed point": ("fxp2.2", "fxp4.4", "int16", "fxp16.16"),
    "posit": ("posit4", "posit8", "posit16", "posit32"),
    "takum": ("takum4", "takum8", "takum16", "takum32"),
    "codebook": ("nf4",),
    "compound": (),
    "block scale": (),
    "custom": (),
    "block": ("block(e2m1fn,2,e3m0fnu,floor)", "block(e3m2fn,4,e4m0fnu,floor)"),
}
"""Representative operand formats of each family, in order of width; compound ones are sums of two floats, and
custom ones have no RTL.

Only `convert` takes scales of blocks; tests/hdl/formats/test_scale.py sweeps it.
"""

ONLY = dict.fromkeys(("sparsedot", "sparsemac", "dotmac", "blockquantize"), ("float",))
"""Families of units whose arithmetic in other families is that of another unit: of ``dot``, and of ``convert``."""

MIXED = "mixed"
"""Name for units with formats of several families."""

MIXTURES = (("nf4", "posit4", "fxp4.4"), ("e5m2", "fxp4.4", "posit8"), ("takum16", "bf16", "posit16", "int16"))
"""Formats of operands and results of mixed units, assigned in turn."""

SOURCE_WIDTHS = (3, 16)
"""Widths of the random sources of stochastic rounders, which have rows of their own."""

CHECKED_WIDTH = 8
"""Largest operand width with coverage, proofs and mutants."""

STOCHASTIC_WIDTH = 16
"""Operand width at which results are rounded stochastically, if the unit supports it; others round to nearest."""

QUIRE_WIDTH, CHECKED_QUIRE = 512, 128
"""Largest widths of exact sums: in records, because wider Verilog takes minutes, and with coverage and proofs."""

SWEEP_BITS, SAMPLES = 24, 1 << 17
"""Largest input width of an exhaustive sweep, and number of vectors of other sweeps."""

EXACT_BITS, EXACT_SAMPLES = 17, 1 << 12
"""Largest input width and number of vectors for the comparison of the golden model with exact arithmetic."""

MUTANTS, PROOF_LIMIT = 24, 3.0
"""Number of mutants per unit, and time limit of a proof in seconds."""

COUNTS = (
    *("every input", "sampled", "simulated", "exact every input", "exact sampled", "wrong"),
    *("proved", "refuted", "not finished", "hit", "unreachable", "open"),
    *("mutants", "killed", "equivalent", "survived", "undecided"),
    "words",
)
"""Counts of a record; those of checks that did not run are empty."""

COLUMNS = ("unit", "family", "operands", "text", *COUNTS, "date", "commit", "version", *behaviour.DIGESTS)
"""Columns of ``signoff.csv``: date and commit of the checks, and the last version that had the behaviour."""

CURRENT, STALE, UNKNOWN = "current", "stale", "not compared"
"""States of a record: of the present behaviour, of another one, or of one that was not compared with the present."""

BIN, MUTANT, CLAIM = "bin", "mutant", "claim"

OPEN_COLUMNS = ("unit", "family", "text", "kind", "number", "group", "names")
"""Columns of ``open.csv``: open bins of a group, an undecided mutant, or a claim that is not finished."""

OPEN_COUNTS = {BIN: "open", MUTANT: "undecided", CLAIM: "not finished"}
"""Counts of records whose cases are named in ``open.csv``."""

ORACLE_COLUMNS = ("unit", "family", "library", "tests", "vectors")
"""Columns of ``oracles.csv``."""

Record = dict[str, str]
"""Row of a file, by column."""

Key = tuple[str, str]
"""Text and family of a record."""


# Implementations ----------------------------------------------------------------------------------------------------


def cases(names: Iterable[str] = CATALOGUE) -> dict[tuple[str, str], list[Implementation]]:
    """Return the checked implementations, by unit and family.

    A unit has no row for a family without a suitable format. A new family has rows without implementations.
    """
    implementations = {}
    for name in names:
        cls = CATALOGUE[name].spec
        taken = {
            family.family: [fmt for fmt in FORMATS.get(family.family, ()) if cls.takes(parse_operand(fmt), None)]
            for family in FAMILIES
            if family.family in ONLY.get(name, (family.family,))
        }
        for family, formats in taken.items():
            if formats or family not in FORMATS:
                options = map(_pure, [cls] * len(formats), formats, _results(formats))
                implementations[name, family] = _without_toys(_built(name, options))
        if sum(map(bool, taken.values())) > 1 and len(_mixed_parts(cls)) > 1:
            implementations[name, MIXED] = _built(name, map(_mixture, [cls] * len(MIXTURES), MIXTURES))
        if cls is SruSpec:
            implementations |= {(name, _kind(kind)): [*map(_rounder, map(kind, SOURCE_WIDTHS))] for kind in SOURCES}
    return implementations


def _kind(source: type[Source]) -> str:
    """Return the name of a kind of random sources, which is the family of its rows."""
    return source.KIND + source.SUFFIX


def _rounder(source: Source) -> Implementation:
    """Return the stochastic rounder that uses all of a source's words; its results are carries alone."""
    bits = source.full_bits
    return Implementation.parse(f"sru fxp2.{bits}>fxp2.0-wrap.sr{bits}@{source} increment=no")


def _results(formats: list[str]) -> list[str]:
    """Return the result formats of conversions: the next narrower format, or the next wider one for the narrowest."""
    return [*formats[1:2], *formats[:-1]] or formats


def _pure(cls: type[UnitSpec], operand: str, result: str) -> dict[str, str]:
    """Return the short form's options for one family; only conversions and blocks need a result format."""
    if "o" in cls.BLOCKS:
        return {"fmt": operand, "to": FORMATS["block"][-1]}
    return {"fmt": operand} | ({"to": result} if cls is CATALOGUE["convert"].spec else {})


def _mixture(cls: type[UnitSpec], formats: Iterable[str]) -> dict[str, str]:
    """Return the short form's options for operands and results in several formats."""
    parts = _mixed_parts(cls)
    options = dict(zip(("to" if part == "o" else part for part in parts), cycle(formats), strict=False))
    return {"fmt": options.pop("a"), **options}


def _mixed_parts(cls: type[UnitSpec]) -> list[str]:
    """Return the parts of a unit that may have formats of several families."""
    if "o" in cls.BLOCKS:
        return []
    types = {field.name: field.type for field in fields(cls)}
    # A part with a rounding of its own is an intermediate result, and a name is that of a function.
    parts = [part for part in cls.form.parts if part not in cls.INTEGERS and f"{part}_rounding" not in types]
    parts = [part for part in parts if types[part] is not str]
    return [part for part in parts if part != "o" or "acc" not in parts]


def _built(name: str, options: Iterable[Mapping[str, str]]) -> list[Implementation]:
    """Return the implementations that can be built; wide functions have no fit, and exact sums may be too wide.

    A ``function`` of a wide format has polynomials, whose fits take minutes; tests compare them for all codes.
    """
    built, stochastic = [], Rounding("sr", 8)
    for given in options:
        fmt = parse_operand(given["fmt"])
        if name == FunctionSpec.form.unit and fmt.width > TABLE_WIDTH:
            continue
        with contextlib.suppress(ValueError):
            asked = short(name, **given)
            if fmt.width == STOCHASTIC_WIDTH and CATALOGUE[name].spec.takes(fmt, stochastic):
                asked = asked.with_spec(rounding=stochastic)
            asked = asked.buildable
            if _bits(asked) and _quire_width(asked) <= QUIRE_WIDTH:
                built.append(asked)
    return built


def _quire_width(asked: Implementation) -> int:
    """Return the width of a unit's exact sum, or 0 if it has none."""
    return getattr(getattr(asked.spec, "quire", None), "width", 0)


@cache
def _bits(asked: Implementation) -> int:
    """Return the width of all inputs without random words; raises ValueError if the component cannot be built."""
    return Space.of(Ports.inputs_of(asked.component())).bits


def _without_toys(implementations: list[Implementation]) -> list[Implementation]:
    """Omit the narrowest implementation if the next one is also compared exhaustively with exact arithmetic."""
    return implementations[any(_bits(asked) <= EXACT_BITS for asked in implementations[1:2]) :]


def _most_checked(implementations: list[Implementation]) -> Implementation | None:
    """Return the implementation for coverage, proofs and mutants, which need operands in every cycle."""
    flowing = [asked for asked in implementations if not asked.build.iterations]
    narrow = [asked for asked in flowing if asked.spec.first_format.part_format.width <= CHECKED_WIDTH]
    short_sums = [asked for asked in narrow if _quire_width(asked) <= CHECKED_QUIRE]
    return next(iter((*short_sums[::-1], *narrow)), None)


# Checks -------------------------------------------------------------------------------------------------------------


Found = tuple[dict[str, int], list[Record]]
"""Result of a check: its counts, and what it leaves open, with the columns from ``kind`` on."""


def _swept(unit: "Unit", progress: Progress, pool: JobPool) -> Found:
    """Compare the RTL with the golden model."""
    every = _bits(Implementation.of(unit)) <= SWEEP_BITS
    result = sweep(unit, limit=None if every else SAMPLES, progress=progress, pool=pool)
    return {"every input" if every else "sampled": result.checked, "wrong": result.failed}, []


def _exact(unit: "Unit", progress: Progress, pool: JobPool) -> Found:
    """Compare the golden model with exact fractions."""
    limit = 1 << EXACT_BITS if _bits(Implementation.of(unit)) <= EXACT_BITS else EXACT_SAMPLES
    vectors = make(Ports.inputs_of(unit), result_formats(unit), seed=0, limit=limit, corners=corner_cases(unit))
    expected = reference(unit, vectors.codes)
    columns = vectors.codes | own_words(unit, vectors.count)
    progress.total("comparing with exact arithmetic", vectors.count)
    wrong = 0
    for at in range(vectors.count):
        codes, want = ({port: int(column[at]) for port, column in part.items()} for part in (columns, expected))
        wrong += any(want[port] != result for port, result in exact_codes(unit, codes, want).items())
        progress.advance(1)
    return {f"exact {'every input' if vectors.exhaustive else 'sampled'}": vectors.count, "wrong": wrong}, []


def _covered(unit: "Unit", progress: Progress, pool: JobPool) -> Found:
    """Simulate with stalls, and measure the functional coverage of the vectors."""
    from .coverage import verdicts
    from .coverage.collect import Coverage

    watched = Coverage(unit)
    result = run(unit, watch=watched, progress=progress)
    verdict = verdicts.Verdicts.of(watched, progress)
    names = {
        finding.group.name: finding.bins(verdicts.OPEN) + finding.bins(verdicts.REFUTED) for finding in verdict.findings
    }
    counts = {
        "simulated": sum(check.checked for check in result.checks if check.tool == "cocotb"),
        "wrong": result.failed,
        "hit": verdict.count(verdicts.HIT),
        "unreachable": verdict.count(verdicts.EXCLUDED),
        "open": sum(map(len, names.values())),
    }
    return counts, [_open(BIN, len(bins), group, "; ".join(bins)) for group, bins in names.items() if bins]


def _proved(unit: "Unit", progress: Progress, pool: JobPool) -> Found:
    """Prove the formal claims."""
    from .formal.claims import claims, examine
    from .formal.prove import PROVED, REFUTED, UNFINISHED

    wanted = claims(str(Implementation.of(unit)))
    progress.total("proving", len(wanted))
    proofs = [
        (finding.claim, finding.verdict.status)
        for finding in examine(wanted, limit=PROOF_LIMIT, progress=progress, pool=pool)
    ]
    every = [status for _, status in proofs]
    counts = {status: every.count(status) for status in (PROVED, REFUTED, UNFINISHED)}
    return counts, [_open(CLAIM, 1, claim.kind, claim.unit) for claim, status in proofs if status == UNFINISHED]


def _mutated(unit: "Unit", progress: Progress, pool: JobPool) -> Found:
    """Run mutants of the netlist."""
    from .mutation import mutants

    campaign = mutants.mutate(unit, count=MUTANTS, progress=progress, pool=pool)
    fates = (mutants.KILLED, mutants.EQUIVALENT, mutants.SURVIVED, mutants.UNDECIDED)
    undecided = [mutant.change for mutant in campaign.mutants if mutant.status == mutants.UNDECIDED]
    counts = {"mutants": len(campaign.mutants), **{fate: campaign.count(fate) for fate in fates}}
    return counts, [_open(MUTANT, 1, change.place, str(change)) for change in undecided]


def _words(unit: "Unit", progress: Progress, pool: JobPool) -> Found:
    """Compare the words of a random source over its period, in RTL and golden model, and count them.

    With the word R of N bits, the discarded part 2^N - R rounds up and the next lower one does not, so that both
    results determine R. The parts of the second period are those of the first, so that the words must repeat.
    """
    ((port, stream),) = unit.sources.items()
    bits, period = unit.words[port], stream.source.period
    least = (1 << bits) - own_words(unit, period)[port].astype(np.int64)
    # A word of zero never rounds up.
    parts = np.concatenate([np.minimum(least, (1 << bits) - 1), least - 1])
    progress.total("comparing words", len(parts))
    (operand,) = unit.inputs
    with threads(1), CompiledModel.of_unit(unit) as loop:
        wrong, _ = run_and_compare(unit, loop, {operand: parts.astype(np.uint64)}, 0)
    first, ups = np.unique(least, return_counts=True)
    chances = (stream.chance_of_up(Fraction(int(part), 1 << bits), bits) if part >> bits == 0 else 1 for part in first)
    wrong += sum(chance * period != up for chance, up in zip(chances, ups.cumsum().tolist(), strict=True))
    return {"words": period, "wrong": wrong}, []


def _open(kind: str, number: int, group: str, names: str) -> Record:
    return {"kind": kind, "number": str(number), "group": group, "names": names}


Check = Callable[[Any, Progress, JobPool], Found]

OF_ALL: tuple[Check, ...] = (_swept, _exact)
OF_ONE: tuple[Check, ...] = (_covered, _proved, _mutated)


def measure(
    asked: Implementation, family: str, more: bool, progress: Progress = silent, pool: JobPool = LOCAL
) -> tuple[Record, list[Record]]:
    """Return the record of an implementation, and those of what is open.

    ``more`` adds coverage, proofs and mutants. Checks are cached.
    """
    unit, own = asked.component(), behaviour.digests(asked)
    counts: dict[str, int] = {}
    about = {"unit": asked.spec.form.unit, "family": family, "operands": _operands(asked, family), "text": str(asked)}
    left = []
    saved = [row.text(unit) for row in regressions.of(unit)]
    for check in (*OF_ALL, *(OF_ONE if more else ()), *((_words,) if unit.sources else ())):
        parts = (check.__name__, asked, *own.values(), *saved, code(__name__))
        counted, still = cached_value("signoff", parts, partial(check, unit, progress, pool), name=asked.spec.name)
        counts |= {name: count + (counts.get(name, 0) if name == "wrong" else 0) for name, count in counted.items()}
        left += [{name: about[name] for name in OPEN_COLUMNS[:3]} | row for row in still]
    figures = {name: str(counts.get(name, "")) for name in COUNTS}
    when = {"date": date.today().isoformat(), "commit": commit(), "version": version("halfulp")}
    return about | figures | when | own, left


def _operands(asked: Implementation, family: str) -> str:
    if (source := getattr(asked.spec, "random", None)) is not None:
        return str(source)
    return str(asked.spec.first_format) if family != MIXED else asked.spec.expression


def failed(record: Record) -> bool:
    """Return True if a check of a record failed; unfinished and uncovered cases are no failures."""
    return any(int(record[name] or 0) for name in ("wrong", "refuted", "survived"))


# Files --------------------------------------------------------------------------------------------------------------


def read(stem: str, folder: Path = RESULTS) -> list[Record]:
    """Read ``signoff.csv``, ``open.csv`` or ``oracles.csv``; return no rows without the file."""
    path = folder / f"{stem}.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def key_of(record: Record) -> Key:
    """Return the key of a record."""
    return record["text"], record["family"]


def states(
    records: Iterable[Record], progress: Progress = silent, pool: JobPool = LOCAL, *, compare: bool = True
) -> dict[Key, str]:
    """Return the states of records; without ``compare``, those whose sources have changed are not compared."""
    known = _known(records, _asked())
    if compare:
        current = set(behaviour.current(known, progress, pool))
    else:
        current = {asked for asked, row in known.items() if row["sources"] == behaviour.sources(asked)}
    other = STALE if compare else UNKNOWN
    return {key_of(row): CURRENT if asked in current else other for asked, row in known.items()}


def _asked(names: Iterable[str] = CATALOGUE) -> dict[Key, Implementation]:
    return {
        (str(implementation), family): implementation
        for (_, family), implementations in cases(names).items()
        for implementation in implementations
    }


def _known(records: Iterable[Record], asked: Mapping[Key, Implementation]) -> dict[Implementation, Record]:
    return {asked[key]: row for row in records if (key := key_of(row)) in asked}


def overdue(records: Iterable[Record], now: str, released: bool, pool: JobPool = LOCAL) -> list[Record]:
    """Return the records that are stale although they may not be.

    A record may be stale only in the version that had its behaviour last, until this version is released.

    Parameters
    ----------
    records : iterable of dict
    now : str
        Version of the sources.
    released : bool
        True if the sources are those of a release.
    pool : JobPool
    """
    asked = [row for row in records if released or row["version"] != now]
    state = states(asked, pool=pool)
    return [row for row in asked if state.get(key_of(row)) == STALE]


def renew(
    folder: Path, names: Iterable[str] = CATALOGUE, progress: Progress = silent, pool: JobPool = LOCAL
) -> dict[Key, Record]:
    """Give records of the present behaviour the present version and digests, in the file, too, and return them."""
    records, asked = read("signoff", folder), _asked(names)
    current = behaviour.current(_known(records, asked), progress, pool)
    renewed = {key_of(row): row for row in records if asked.get(key_of(row)) in current}
    for key, row in renewed.items():
        row |= {"version": version("halfulp")} | current[asked[key]]
    if renewed:
        _save(folder / "signoff.csv", COLUMNS, records)
    return renewed


def write(
    folder: Path,
    names: Iterable[str] = CATALOGUE,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    *,
    every: bool = False,
) -> Iterator[Record]:
    """Check units whose records are stale or missing, and yield the new records.

    The files are updated after each record. Other records are renewed as by `renew`.

    Parameters
    ----------
    folder : Path
    names : iterable of str
        Units of the catalogue.
    progress : Progress
    pool : JobPool
    every : bool
        Check units whose records are current, too.
    """
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    current = {} if every else renew(folder, names, progress, pool)
    wanted = {
        key: (asked, asked is _most_checked(implementations))
        for (_, family), implementations in cases(names).items()
        for asked in implementations
        if (key := (str(asked), family)) not in current
    }
    order = list(_asked())
    known = {key_of(row): row for row in read("signoff", folder)}
    left = [row for row in read("open", folder) if key_of(row) in order]
    # Those with the long checks come last, so that an interrupted run has figures for most rows.
    for key, (asked, more) in sorted(wanted.items(), key=lambda item: item[1][1]):
        known[key], still = measure(asked, key[1], more, progress, pool)
        left = sorted([row for row in left if key_of(row) != key] + still, key=lambda row: order.index(key_of(row)))
        _save(folder / "signoff.csv", COLUMNS, [known[key] for key in order if key in known])
        _save(folder / "open.csv", OPEN_COLUMNS, left)
        yield known[key]


def write_oracles(folder: Path, junit: Path) -> list[Record]:
    """Write ``oracles.csv`` from the JUnit XML of a run of the oracle tests.

    The fixture ``oracle`` adds the properties ``library,unit,family,vectors`` to passed tests. Raises ValueError if
    there are none.
    """
    sums: dict[tuple[str, ...], list[int]] = {}
    for test in ElementTree.parse(junit).iter("testcase"):
        if all(test.find(kind) is None for kind in ("failure", "error", "skipped")):
            for item in test.iterfind("properties/property[@name='oracle']"):
                library, unit, family, vectors = item.attrib["value"].split(",")
                totals = sums.setdefault((unit, family, library), [0, 0])
                totals[:] = totals[0] + 1, totals[1] + int(vectors)
    if not sums:
        raise ValueError(f"{junit} has no passed tests with properties 'oracle'; expected the XML of tests/oracles")
    rows = [dict(zip(ORACLE_COLUMNS, (*key, *map(str, counts)), strict=True)) for key, counts in sorted(sums.items())]
    _save(folder / "oracles.csv", ORACLE_COLUMNS, rows)
    return rows


def _save(path: Path, columns: Iterable[str], rows: Iterable[Record]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, list(columns), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_whole(path, text.getvalue())
