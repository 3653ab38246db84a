"""Sign-off records: results of the checks of each unit in each format family, in files of the checkout."""

import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from halfulp.hdl.formats import Block, Rounding
from halfulp.hdl.formats.block import parse_operand
from halfulp.hdl.formats.families import FAMILIES
from halfulp.hdl.specs import UnitSpec
from halfulp.hdl.specs.mac import part_of
from halfulp.tools.cache import cached_value
from halfulp.tools.digests import code, digest, version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.paths import machine_errors, write_whole
from halfulp.tools.progress import Progress, silent
from halfulp.units.catalogue import CATALOGUE

from . import regressions
from .bench import result_formats, run
from .build import design
from .corner_cases import corner_cases
from .implementation import Implementation, short
from .ports import Ports
from .reference import reference
from .report import exact_codes
from .space import Space
from .sweep import sweep
from .vectors import make

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
    "block": ("block(e2m1fn,2,e3m0fnu,floor)", "block(e3m2fn,4,e4m0fnu,floor)"),
}
"""Representative operand formats of each family, in order of width; compound ones are sums of two floats.

Only `convert` takes scales of blocks; tests/test_scale.py sweeps it.
"""

ONLY = {"sparsedot": ("float",), "sparsemac": ("float",), "blockquantize": ("float",)}
"""Families of units whose arithmetic in other families is that of another unit: of ``dot``, and of ``convert``."""

_FAMILIES: tuple[Any, ...] = (*FAMILIES, Block)

MIXED = "mixed"
"""Name for units with formats of several families."""

MIXTURES = (("nf4", "posit4", "fxp4.4"), ("e5m2", "fxp4.4", "posit8"), ("takum16", "bf16", "posit16", "int16"))
"""Formats of operands and results of mixed units, assigned in turn."""

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
)
"""Counts of a record; those of checks that did not run are empty."""

COLUMNS = ("unit", "family", "operands", "text", *COUNTS, "version", "date", "verilog", "golden")
"""Columns of ``signoff.csv``; the last two are digests of the Verilog and of the code of the golden function."""

ORACLE_COLUMNS = ("unit", "family", "library", "tests", "vectors")
"""Columns of ``oracles.csv``."""

Record = dict[str, str]


# Implementations ----------------------------------------------------------------------------------------------------


def cases(names: Iterable[str] = CATALOGUE) -> dict[tuple[str, str], list[Implementation]]:
    """Return the checked implementations, by unit and family.

    A unit has no row for a family without a suitable format. A new family has rows without implementations.
    """
    found = {}
    for name in names:
        cls = CATALOGUE[name].spec
        taken = {
            family.family: [fmt for fmt in FORMATS.get(family.family, ()) if cls.takes(parse_operand(fmt), None)]
            for family in _FAMILIES
            if family.family in ONLY.get(name, (family.family,))
        }
        for family, formats in taken.items():
            if formats or family not in FORMATS:
                options = map(_pure, [cls] * len(formats), formats, _results(formats))
                found[name, family] = _without_toys(_built(name, options))
        if sum(map(bool, taken.values())) > 1 and len(_mixed_parts(cls)) > 1:
            found[name, MIXED] = _built(name, map(_mixture, [cls] * len(MIXTURES), MIXTURES))
    return found


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
    parts = [part for part in cls.form.parts if part in ("a", "b", "c", "acc", "o") and part not in cls.INTEGERS]
    return [part for part in parts if part != "o" or "acc" not in parts]


def _built(name: str, options: Iterable[Mapping[str, str]]) -> list[Implementation]:
    """Return the implementations that can be built; wide functions have no fit, and exact sums may be too wide."""
    found, stochastic = [], Rounding("sr", 8)
    for given in options:
        fmt = parse_operand(given["fmt"])
        with contextlib.suppress(ValueError):
            asked = short(name, **given)
            if fmt.width == STOCHASTIC_WIDTH and CATALOGUE[name].spec.takes(fmt, stochastic):
                asked = asked.with_spec(rounding=stochastic)
            asked = asked.buildable
            if _bits(asked) and _quire_width(asked) <= QUIRE_WIDTH:
                found.append(asked)
    return found


def _quire_width(asked: Implementation) -> int:
    """Return the width of a unit's exact sum, or 0 if it has none."""
    return getattr(getattr(asked.spec, "quire", None), "width", 0)


@cache
def _bits(asked: Implementation) -> int:
    """Return the width of all inputs without random words; raises ValueError if the component cannot be built."""
    return Space.of(Ports.of(asked.component().inputs)).bits


def _without_toys(implementations: list[Implementation]) -> list[Implementation]:
    """Omit the narrowest implementation if the next one is also compared exhaustively with exact arithmetic."""
    return implementations[any(_bits(asked) <= EXACT_BITS for asked in implementations[1:2]) :]


def _most_checked(implementations: list[Implementation]) -> Implementation | None:
    """Return the implementation for coverage, proofs and mutants, which need operands in every cycle."""
    flowing = [asked for asked in implementations if not asked.build.iterations]
    narrow = [asked for asked in flowing if part_of(asked.spec.operands["a"]).width <= CHECKED_WIDTH]
    short_sums = [asked for asked in narrow if _quire_width(asked) <= CHECKED_QUIRE]
    return next(iter((*short_sums[::-1], *narrow)), None)


# Checks -------------------------------------------------------------------------------------------------------------


def _swept(unit: Any, progress: Progress, pool: JobPool) -> dict[str, int]:
    """Compare the RTL with the golden model."""
    every = _bits(Implementation.of(unit)) <= SWEEP_BITS
    result = sweep(unit, limit=None if every else SAMPLES, progress=progress, pool=pool)
    return {"every input" if every else "sampled": result.checked, "wrong": result.failed}


def _exact(unit: Any, progress: Progress, pool: JobPool) -> dict[str, int]:
    """Compare the golden model with exact fractions."""
    limit = 1 << EXACT_BITS if _bits(Implementation.of(unit)) <= EXACT_BITS else EXACT_SAMPLES
    vectors = make(Ports.of(unit.inputs), result_formats(unit), seed=0, limit=limit, corners=corner_cases(unit))
    expected = reference(unit, vectors.codes)
    progress.total("comparing with exact arithmetic", vectors.count)
    wrong = 0
    for at in range(vectors.count):
        found = exact_codes(unit, {port: int(column[at]) for port, column in vectors.codes.items()})
        wrong += any(int(expected[port][at]) != result for port, result in found.items())
        progress.advance(1)
    return {f"exact {'every input' if vectors.exhaustive else 'sampled'}": vectors.count, "wrong": wrong}


def _covered(unit: Any, progress: Progress, pool: JobPool) -> dict[str, int]:
    """Simulate with stalls, and measure the functional coverage of the vectors."""
    from .coverage import verdicts
    from .coverage.collect import Coverage

    watched = Coverage(unit)
    result = run(unit, watch=watched, progress=progress)
    found = verdicts.Verdicts.of(watched, progress)
    return {
        "simulated": sum(check.checked for check in result.checks if check.tool == "cocotb"),
        "wrong": result.failed,
        "hit": found.count(verdicts.HIT),
        "unreachable": found.count(verdicts.EXCLUDED),
        "open": found.count(verdicts.OPEN) + found.count(verdicts.REFUTED),
    }


def _proved(unit: Any, progress: Progress, pool: JobPool) -> dict[str, int]:
    """Prove the formal claims."""
    from .formal.claims import claims, examine
    from .formal.prove import PROVED, REFUTED, UNFINISHED

    wanted = claims(str(Implementation.of(unit)))
    progress.total("proving", len(wanted))
    found = [finding.verdict.status for finding in examine(wanted, limit=PROOF_LIMIT, progress=progress, pool=pool)]
    return {status: found.count(status) for status in (PROVED, REFUTED, UNFINISHED)}


def _mutated(unit: Any, progress: Progress, pool: JobPool) -> dict[str, int]:
    """Run mutants of the netlist."""
    from .mutation import mutants

    campaign = mutants.mutate(unit, count=MUTANTS, progress=progress, pool=pool)
    fates = (mutants.KILLED, mutants.EQUIVALENT, mutants.SURVIVED, mutants.UNDECIDED)
    return {"mutants": len(campaign.mutants), **{fate: campaign.count(fate) for fate in fates}}


Check = Callable[[Any, Progress, JobPool], dict[str, int]]

OF_ALL: tuple[Check, ...] = (_swept, _exact)
OF_ONE: tuple[Check, ...] = (_covered, _proved, _mutated)


def measure(
    asked: Implementation, family: str, more: bool, progress: Progress = silent, pool: JobPool = LOCAL
) -> Record:
    """Return the record of an implementation; ``more`` adds coverage, proofs and mutants. Checks are cached."""
    unit, own = asked.component(), digests(asked)
    counts: dict[str, int] = {}
    saved = [row.text(unit) for row in regressions.of(unit)]
    for check in (*OF_ALL, *(OF_ONE if more else ())):
        parts = (check.__name__, asked, *own.values(), *saved, code(__name__))
        found = cached_value("signoff", parts, partial(check, unit, progress, pool), name=asked.spec.name)
        counts |= {name: count + (counts.get(name, 0) if name == "wrong" else 0) for name, count in found.items()}
    about = {"unit": asked.spec.form.unit, "family": family, "operands": _operands(asked, family), "text": str(asked)}
    figures = {name: str(counts.get(name, "")) for name in COUNTS}
    return about | figures | {"version": version("halfulp"), "date": date.today().isoformat()} | own


def _operands(asked: Implementation, family: str) -> str:
    return str(asked.spec.operands["a"]) if family != MIXED else asked.spec.formula


@cache
def digests(asked: Implementation) -> dict[str, str]:
    """Return digests of the Verilog of an implementation and of the code of its golden function."""
    from halfulp import golden

    module = getattr(golden, asked.spec.form.unit).__module__
    return {"verilog": digest(design(asked.component()).verilog)[:8], "golden": code(module)[:8]}


def failed(record: Record) -> bool:
    """Return True if a check of a record failed; unfinished and uncovered cases are no failures."""
    return any(int(record[name] or 0) for name in ("wrong", "refuted", "survived"))


# Files --------------------------------------------------------------------------------------------------------------


def read(stem: str, folder: Path = RESULTS) -> list[Record]:
    """Read ``signoff.csv`` or ``oracles.csv``; return no rows without the file."""
    path = folder / f"{stem}.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(
    folder: Path, names: Iterable[str] = CATALOGUE, progress: Progress = silent, pool: JobPool = LOCAL
) -> Iterator[Record]:
    """Check units, update ``signoff.csv`` after each record, and yield the new records.

    Parameters
    ----------
    folder : Path
    names : iterable of str
        Units of the catalogue.
    progress : Progress
    pool : JobPool
    """
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    wanted = {
        (str(asked), family): (asked, asked is _most_checked(implementations))
        for (_, family), implementations in cases(names).items()
        for asked in implementations
    }
    known = {(row["text"], row["family"]): row for row in read("signoff", folder)}
    every = [(str(asked), family) for (_, family), found in cases().items() for asked in found]
    # Those with the long checks come last, so that an interrupted run has figures for most rows.
    for (text, family), (asked, more) in sorted(wanted.items(), key=lambda item: item[1][1]):
        known[text, family] = measure(asked, family, more, progress, pool)
        _save(folder / "signoff.csv", COLUMNS, [known[key] for key in every if key in known])
        yield known[text, family]


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
                found = sums.setdefault((unit, family, library), [0, 0])
                found[:] = found[0] + 1, found[1] + int(vectors)
    if not sums:
        raise ValueError(
            f"{junit} has no passed tests with properties 'oracle'; expected the XML of tests/test_oracle_*"
        )
    rows = [dict(zip(ORACLE_COLUMNS, (*key, *map(str, counts)), strict=True)) for key, counts in sorted(sums.items())]
    _save(folder / "oracles.csv", ORACLE_COLUMNS, rows)
    return rows


def _save(path: Path, columns: Iterable[str], rows: Iterable[Record]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, list(columns), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_whole(path, text.getvalue())


# Table --------------------------------------------------------------------------------------------------------------

HEADS = (
    *("unit", "family", "every input", "sampled", "simulated", "golden against exact", "proved"),
    *("coverage", "mutants killed", "oracles", "measured"),
)
"""Headings of the sign-off table."""

PAGE = """# Sign-off

Checks that ran on each unit in each format family; a 0 is not covered. `make signoff` runs the checks and the oracle
tests, and writes the records in `sim/results`; this page shows them, and nothing in the table is written by hand.

- every input, sampled: vectors of the RTL that were compared with the golden model: all of a format, random words
  sampled, or directed and random ones. Simulated ones ran in cocotb, with stalls and back-pressure.
- golden against exact: vectors of the golden model that were compared with exact fractions.
- proved: claims that hold for all inputs; the others reached their time limit.
- coverage: a bin is open if it is neither hit nor proved to be unreachable.
- mutants killed: of the mutants of the netlist that are not proved to be equivalent.
- oracles: independent libraries with which the golden model agrees, and the number of vectors.
- measured: date of the records; "incomplete" if some are missing, "other sources" if the Verilog or the golden function
  has changed since.
"""


def page() -> Iterator[str]:
    """Yield the lines of the sign-off page in Markdown."""
    yield from (PAGE, *table())
    records = read("signoff")
    total = f"{sum(int(row['vectors']) for row in read('oracles')):,}"
    yield f"| all | {len(cases())} rows | {' | '.join((*_cells(records, False), total, ''))} |"


def table(names: Iterable[str] = CATALOGUE, folder: Path = RESULTS) -> Iterator[str]:
    """Yield the lines of the sign-off table in Markdown, with a row per unit and family."""
    records, oracles = read("signoff", folder), read("oracles", folder)
    yield f"| {' | '.join(HEADS)} |"
    yield "|---" * len(HEADS) + "|"
    for key, implementations in cases(names).items():
        own = [row for row in records if (row["unit"], row["family"]) == key]
        agree = [row for row in oracles if (row["unit"], row["family"]) == key]
        judges = ", ".join(f"{row['library']} {int(row['vectors']):,}" for row in agree) or "0"
        yield f"| {' | '.join((*key, *_cells(own), judges, _date(own, implementations)))} |"


def _cells(rows: list[Record], formats: bool = True) -> Iterator[str]:
    def total(*names: str) -> int:
        return sum(int(row[name] or 0) for row in rows for name in names)

    def vectors(name: str) -> str:
        listed = [f"`{row['operands']}`" for row in rows if formats and row[name]]
        return f"{total(name):,}" + f" ({', '.join(listed)})" * bool(listed)

    yield vectors("every input") + f"; {total('wrong'):,} wrong" * bool(total("wrong"))
    yield vectors("sampled")
    yield f"{total('simulated'):,}"
    yield f"{total('exact every input', 'exact sampled'):,}"
    claims, bins = total("proved", "refuted", "not finished"), total("hit", "unreachable", "open")
    yield f"{total('proved'):,} of {claims:,}" if claims else "0"
    yield (f"{total('open'):,} of {bins:,} open" if total("open") else f"closed ({bins:,})") if bins else "0"
    yield f"{total('killed'):,} of {total('mutants') - total('equivalent'):,}" if total("mutants") else "0"


def _date(rows: list[Record], implementations: list[Implementation]) -> str:
    """Return the date of the records, and a remark if some are missing or sources of the narrow one have changed."""
    if not rows:
        return "never"
    known, asked = {row["text"]: row for row in rows}, _most_checked(implementations)
    remark = "" if set(known) == set(map(str, implementations)) else ", incomplete"
    if (
        asked is not None
        and (row := known.get(str(asked)))
        and any(row[name] != own for name, own in digests(asked).items())
    ):
        remark += ", other sources"
    return min(row["date"] for row in rows) + remark
