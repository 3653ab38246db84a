"""Claims about units, with verdicts: proved, refuted with a counterexample, or not finished."""

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from halfulp.hdl.formats import parse
from halfulp.hdl.formats.rounding import MODES as ROUNDINGS
from halfulp.hdl.specs.build import LOOP
from halfulp.implementation import Implementation, implementation, short
from halfulp.sim.exact_text import line
from halfulp.sim.ports import Ports
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

from . import LIMIT, properties, sources, structures
from .miters import Miter
from .prove import PROVED, REFUTED, UNFINISHED, Question, Verdict, versions

SMALL = ("e5m2", "e4m3fn", "posit8", "fxp4.4")
"""Formats with all claims by default."""

LARGE = ("fp16", "bf16")
"""Larger formats, for which some claims may not finish within the time limit."""

UNITS = ("mul", "add", "fma", "mac", "convert")

MODES = (*ROUNDINGS, "sr4")

STREAMS = ("stream waits", "stream order", "stream reset")
"""Kinds of claims about stream wrappers."""


class Kind(NamedTuple):
    """Kind of claim: its text, and the function that builds a circuit whose output is high for a violation."""

    text: str
    miter: Callable[[Implementation], Miter]


KINDS = {
    "commutes": Kind("a and b are interchangeable", properties.commutes),
    "monotone": Kind("rounding preserves the order of numbers", properties.monotone),
    "rz below rn": Kind("rounding toward zero gives no larger magnitude than to nearest", properties.toward_zero),
    "valid": Kind("results are valid codes", properties.valid),
    "symmetric": Kind("negated operands give the negated result", properties.symmetric),
    "lazy is eager": Kind(
        "lazy and eager stochastic rounding agree", partial(structures.equal, stochastic=("lazy", "eager"))
    ),
    "DSP is LUT": Kind("products for DSP blocks and for LUTs agree", partial(structures.equal, dsp=(False, True))),
    "speed is area": Kind("structures for speed and for area agree", partial(structures.equal, goal=("area", "speed"))),
    "loop is area": Kind("two steps of the structures for loop and for area agree", structures.equal_from_start),
    "pipelined": Kind("register stages change no result", structures.pipelined),
    "stalls": Kind("no register changes while the clock enable is low", structures.held),
    "reset": Kind("after a reset, outputs are +0 until the first result is due", structures.after_reset),
    "period": Kind("the random source repeats after its period and not before, from any state", sources.period),
    "chance": Kind("in a period, each discarded part rounds up as often as its chance says", sources.chance),
    "stream waits": Kind("a waiting result holds, and no operand is lost meanwhile", structures.stream_waits),
    "stream order": Kind("results are one per vector, in order, without others", structures.stream_is_in_order),
    "stream reset": Kind("after a reset, there is no result before the first is due", structures.stream_starts_empty),
}


@dataclass(frozen=True)
class Claim:
    """Claim about a unit.

    Parameters
    ----------
    kind : str
        Key of `KINDS`.
    """

    kind: str
    asked: Implementation

    @property
    def unit(self) -> str:
        """Text of the unit."""
        return str(self.asked)

    def miter(self) -> Miter:
        """Build the circuit whose output is high if the claim is violated."""
        return KINDS[self.kind].miter(self.asked)


@dataclass(frozen=True)
class Finding:
    """Claim with its verdict.

    Attributes
    ----------
    lines : tuple of str
        Report of the counterexample of a refuted claim.
    """

    claim: Claim
    verdict: Verdict
    lines: tuple[str, ...] = ()


def claims(unit: str = "all", fmt: str | None = None, **options: Any) -> list[Claim]:
    """Return the claims about a unit, in text or short form, about a unit of the catalogue, or about all units.

    Without a format, the claims are about all formats of `SMALL` and `LARGE`. Raises ValueError if there are no claims
    about the unit, or the format is unknown.
    """
    if options or not unit.isalnum():
        return _of_text(implementation(unit, fmt, **options))
    if unit not in ("all", *UNITS):
        raise ValueError(f"there are no claims about {unit}: expected all, {', '.join(UNITS)}, or the text of a unit")
    formats = (*SMALL, *LARGE) if fmt is None else (fmt,)
    candidates = [claim for text in formats for claim in _claims(text)]
    return [claim for claim in candidates if unit in ("all", claim.asked.spec.form.unit)]


def _of_text(asked: Implementation) -> list[Claim]:
    """Return the claims about a unit: those of the catalogue, and those about structures, which hold for all."""
    asked.check_every_cycle("halfulp formal")
    a = asked.spec.first_format
    known = [claim for claim in ([] if a.parts > 1 else _claims(str(a))) if claim.asked.spec == asked.spec]
    # Different structures have different register stages, so only units without stages are comparable.
    plain = asked.without_stages
    claims_of_text = [Claim("DSP is LUT", plain)] if _exists(plain.with_build(dsp=True)) else []
    claims_of_text += [Claim("lazy is eager", plain)] if _exists(plain.with_build(stochastic="eager")) else []
    if plain.build.goal == LOOP:
        claims_of_text += [Claim("loop is area", plain)]
    elif _exists(plain.with_build(goal="speed")):
        claims_of_text += [Claim("speed is area", plain)]
    registered = asked if asked.component().stages else plain.with_build(pipeline=1)
    of_state = ("reset",) if registered.component().stateful else ()
    claims_of_text += [Claim(kind, registered) for kind in ("pipelined", "stalls", *of_state, *STREAMS)]
    claims_of_text += [Claim(kind, plain) for kind in sources.provable(plain)]
    return list(dict.fromkeys([*known, *claims_of_text]))


def _claims(fmt: str) -> Iterator[Claim]:
    yield from _properties(fmt)
    yield from _structures(fmt)
    streamed = [short(unit, fmt, pipeline=stages) for unit, stages in (("mul", 1), ("mul", 3), ("mac", 1))]
    yield from (Claim(kind, asked) for asked in streamed for kind in STREAMS)


def _properties(fmt: str) -> Iterator[Claim]:
    parsed = parse(fmt)
    sums = [short(unit, fmt) for unit in ("mul", "add", "fma")]
    yield from (Claim("commutes", asked) for asked in sums)
    yield from (Claim("rz below rn", asked) for asked in sums)
    if not parsed.wraps:
        yield from (Claim("valid", asked) for asked in [*sums, short("mac", fmt)])
    if parsed.is_symmetric:
        yield from (Claim("symmetric", asked) for asked in sums)
    if parsed.width <= 12:
        yield from (Claim("monotone", properties.conversion(fmt, mode)) for mode in MODES)


def _structures(fmt: str) -> Iterator[Claim]:
    eager = [short(unit, fmt, rounding="sr4", stochastic="eager") for unit in ("add", "mac")]
    yield from (Claim("lazy is eager", asked.with_build(stochastic=None)) for asked in eager if _exists(asked))
    yield from (Claim("DSP is LUT", short(unit, fmt)) for unit in ("mul", "fma", "mac"))
    plain = [short(unit, fmt) for unit in ("mul", "add", "fma")]
    yield from (Claim("speed is area", asked) for asked in plain if _exists(asked.with_build(goal="speed")))
    for unit in ("mul", "add", "fma", "convert", "mac"):
        to = None if unit != "convert" else "e4m3fn" if fmt == "e5m2" else "e5m2"
        for stages in (1, 3):
            asked = short(unit, fmt, to=to, pipeline=stages, rounding="sr4" if stages == 3 else None)
            yield from (Claim(kind, asked) for kind in ("pipelined", "stalls"))
    yield Claim("reset", short("mac", fmt, pipeline=2))
    if parse(fmt).decode(0) == 0:  # Sums of a quire start from code 0.
        yield Claim("reset", short("quire", fmt, pipeline=3))


def _exists(asked: Implementation) -> bool:
    """Return True if the unit exists."""
    try:
        asked.component()
    except ValueError:
        return False
    return True


def examine(
    wanted: Iterable[Claim], *, limit: float = LIMIT, progress: Progress = silent, pool: JobPool = LOCAL
) -> Iterator[Finding]:
    """Prove claims in parallel and yield their findings in order; cached verdicts are not proved again.

    Parameters
    ----------
    wanted : iterable of Claim
    limit : float
        Time limit of each proof in seconds.
    progress : Progress
        Advances with each finding.
    pool : JobPool
        Pool that runs the proofs.

    Raises
    ------
    ToolError
        If a tool fails; earlier verdicts are cached.
    """
    waiting: collections.deque[tuple[Claim, Question]] = collections.deque()
    verdicts: dict[Question, Verdict] = {}

    def jobs() -> Iterator[Job]:
        for claim in wanted:
            question = claim.miter().question(f"{claim.kind} {claim.unit}")
            waiting.append((claim, question))
            if (known := question.known(limit)) is not None:
                verdicts[question] = known
            else:
                yield Job(question.name, Question.answer, (question, limit))

    def ended() -> Iterator[Finding]:
        while waiting and waiting[0][1] in verdicts:
            claim, question = waiting.popleft()
            progress.advance(1)
            verdict = verdicts.pop(question)
            lines = tuple(witness_lines(claim, verdict)) if verdict.status == REFUTED else ()
            yield Finding(claim, verdict, lines)

    with contextlib.closing(pool.run(jobs(), versions=versions)) as running:
        for job, verdict in running:
            question, _ = job.arguments
            question.save(verdict)
            verdicts[question] = verdict
            yield from ended()
        yield from ended()


def witness_lines(claim: Claim, verdict: Verdict) -> Iterator[str]:
    """Format a counterexample: codes and numbers at the ports of each unit, with the commands that save these vectors.

    For a claim about registers, format the values of registers and inputs.
    """
    assert verdict.witness is not None
    miter = claim.miter()
    if miter.steps:
        # The registers may have values that do not occur after a reset, so there is no vector to save.
        yield from (f"  {name} = {verdict.witness.get(name, 0):#x}" for name in sorted(miter.free))
        return
    for unit, codes in simulated(miter, verdict.witness):
        yield unit.name
        inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
        yield from (f"  {line(port, codes[port.name])}" for port in (*inputs, *outputs))
        yield f"  save:  {Implementation.of(unit).command('save', '--vector', inputs.stateless.write(codes))}"


def table(findings: Sequence[Finding]) -> Table:
    """Return the table of claims and verdicts."""
    # pandas takes long to load.
    import pandas as pd

    rows = [
        (finding.claim.kind, finding.claim.unit, finding.verdict.status, finding.verdict.seconds)
        for finding in findings
    ]
    counts = collections.Counter(finding.verdict.status for finding in findings)
    kinds = dict.fromkeys(finding.claim.kind for finding in findings)
    return Table(
        "Proofs over all inputs",
        pd.DataFrame(rows, columns=["claim", "unit", "verdict", "seconds"]),
        {"seconds": ".1f"},
        [
            ", ".join(f"{counts[status]} {status}" for status in (PROVED, REFUTED, UNFINISHED))
            + f", in {sum(finding.verdict.seconds for finding in findings):.0f} seconds of ABC, with cached proofs.",
            *(f"{kind}: {KINDS[kind].text}." for kind in kinds),
        ],
    )


def simulated(miter: Miter, witness: dict[str, int]) -> list[tuple[Any, dict[str, int]]]:
    """Simulate a circuit without registers in Amaranth; return its units with the codes at their ports.

    Raises ToolError if the claim holds in the simulation.
    """
    from amaranth.hdl import Module, Value
    from amaranth.sim import Simulator

    runs: list[tuple[Any, dict[str, int]]] = []
    bad = []
    m = Module()
    m.submodules += miter

    async def drive(context: Any) -> None:
        for name in miter.free:
            context.set(miter[name], witness.get(name, 0))
        await context.delay(1e-9)
        bad.append(context.get(miter.bad))
        for unit in miter.applied:
            ports = [*unit.inputs, *unit.outputs]
            codes = {name: context.get(Value.cast(getattr(unit, name)).as_unsigned()) for name in ports}
            runs.append((unit, codes))

    simulator = Simulator(m)
    simulator.add_testbench(drive)
    simulator.run()
    if bad != [1]:
        raise ToolError("ABC and Amaranth's simulator disagree about the counterexample")
    return runs
