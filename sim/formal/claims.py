"""Claims about units, and their verdicts: proved, refuted with a witness, or not finished."""

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from halfulp.hdl.formats import parse
from halfulp.hdl.formats.rounding import MODES as ROUNDINGS
from halfulp.sim.exact_text import line
from halfulp.sim.implementation import Implementation, implementation, short
from halfulp.sim.ports import Ports
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

from . import LIMIT, properties, structures
from .miters import Miter
from .prove import PROVED, REFUTED, UNFINISHED, Question, Verdict, versions

SMALL = ("e5m2", "e4m3fn", "posit8", "fxp4.4")
"""Formats for which all is claimed by default."""

LARGE = ("fp16", "bf16")
"""Larger formats, with the claims that are known to finish, and some that are not."""

UNITS = ("mul", "add", "fma", "mac", "convert")

MODES = (*ROUNDINGS, "sr4")

STREAMS = ("stream waits", "stream order", "stream reset")
"""Kinds of claims about stream wrappers."""


class Kind(NamedTuple):
    """A kind of claim: a line about it, and the circuit for a unit whose output is high where it does not hold."""

    says: str
    miter: Callable[[Implementation], Miter]


KINDS = {
    "commutes": Kind("a and b change places", properties.commutes),
    "monotone": Kind("what is ordered stays ordered when it is rounded", properties.monotone),
    "rz below rn": Kind("rounded toward zero it is no larger than to nearest", properties.toward_zero),
    "valid": Kind("results are valid codes", properties.valid),
    "symmetric": Kind("other signs give the other sign", properties.symmetric),
    "lazy is eager": Kind(
        "both structures of stochastic rounding", partial(structures.equal, stochastic=("lazy", "eager"))
    ),
    "DSP is LUT": Kind("products for DSP blocks and for tables", partial(structures.equal, dsp=(False, True))),
    "pipelined": Kind("register stages change no result", structures.pipelined),
    "stalls": Kind("nothing moves while the clock enable is low", structures.held),
    "reset": Kind("results are +0 until the first are due", structures.after_reset),
    "stream waits": Kind("a waiting result holds, and nothing is lost meanwhile", structures.stream_waits),
    "stream order": Kind("every result once, in order, and no other", structures.stream_is_in_order),
    "stream reset": Kind("no result before the first is due", structures.stream_starts_empty),
}


@dataclass(frozen=True)
class Claim:
    """One claim about one unit.

    Parameters
    ----------
    kind : str
        Of `KINDS`.
    """

    kind: str
    asked: Implementation

    @property
    def unit(self) -> str:
        """Text of the unit."""
        return str(self.asked)

    def miter(self) -> Miter:
        """Circuit whose output is high where the claim does not hold."""
        return KINDS[self.kind].miter(self.asked)


@dataclass(frozen=True)
class Finding:
    """A claim and its verdict.

    Attributes
    ----------
    lines : tuple of str
        Of a refuted claim the witness, for people.
    """

    claim: Claim
    verdict: Verdict
    lines: tuple[str, ...] = ()


def claims(unit: str = "all", fmt: str | None = None, **options: Any) -> list[Claim]:
    """Claims about a unit by its text or by the short form with options; or about a unit of the catalogue, or all, in a
    format, or in all of `SMALL` and `LARGE`.

    It raises ValueError if nothing is claimed of the unit, or there is no such format.
    """
    if options or not unit.isalnum():
        return _of_text(implementation(unit, fmt, **options))
    if unit not in ("all", *UNITS):
        raise ValueError(f"nothing is claimed of {unit}; there are claims about {', '.join(UNITS)}, and all of them")
    formats = (*SMALL, *LARGE) if fmt is None else (fmt,)
    found = [claim for text in formats for claim in _claims(text)]
    return [claim for claim in found if unit in ("all", claim.asked.spec.form.unit)]


def _of_text(asked: Implementation) -> list[Claim]:
    """Claims about one unit: those that the catalogue has of it, and those about structures, which hold for all."""
    known = [claim for claim in _claims(str(asked.spec.operands["a"])) if claim.asked.spec == asked.spec]
    # Register stages are at other places in another structure, so their contents cannot be compared.
    plain = asked.with_build(pipeline=0)
    found = [Claim("DSP is LUT", plain)] if _is_granted(plain.with_build(dsp=True)) else []
    found += [Claim("lazy is eager", plain)] if _is_granted(plain.with_build(stochastic="eager")) else []
    registered = asked.with_build(pipeline=asked.build.pipeline or 1)
    found += [Claim(kind, registered) for kind in ("pipelined", "stalls", *STREAMS)]
    return list(dict.fromkeys([*known, *found]))


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
    yield from (Claim("lazy is eager", one.with_build(stochastic=None)) for one in eager if _is_granted(one))
    yield from (Claim("DSP is LUT", short(unit, fmt)) for unit in ("mul", "fma", "mac"))
    for unit in ("mul", "add", "fma", "convert", "mac"):
        to = None if unit != "convert" else "e4m3fn" if fmt == "e5m2" else "e5m2"
        for stages in (1, 3):
            asked = short(unit, fmt, to=to, pipeline=stages, rounding="sr4" if stages == 3 else None)
            yield from (Claim(kind, asked) for kind in ("pipelined", "stalls"))
        if unit == "mac":
            yield Claim("reset", short(unit, fmt, pipeline=2))


def _is_granted(asked: Implementation) -> bool:
    """True if there is such a unit."""
    try:
        asked.component()
    except ValueError:
        return False
    return True


def examine(
    wanted: Iterable[Claim], *, limit: float = LIMIT, progress: Progress = silent, pool: JobPool = LOCAL
) -> Iterator[Finding]:
    """Verdicts on claims in their order, several side by side; stored ones are not proved again.

    Parameters
    ----------
    wanted : iterable of Claim
    limit : float
        Seconds that one may take.
    progress : Progress
        Advances with each that is through.
    pool : JobPool
        Runs the proofs.

    Raises
    ------
    ToolError
        If a tool fails. Findings until then are saved.
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
    """A witness as text: codes and numbers at the ports of its units, with the commands that save these vectors; of a
    claim about registers, all register values and inputs."""
    assert verdict.witness is not None
    miter = claim.miter()
    if miter.steps:
        # Registers are given values that may not occur after a reset, so that there is no vector to save.
        yield from (f"  {name} = {verdict.witness.get(name, 0):#x}" for name in sorted(miter.free))
        return
    for unit, codes in simulated(miter, verdict.witness):
        yield unit.name
        inputs, outputs = Ports.of(unit.inputs), Ports.of(unit.outputs)
        yield from (f"  {line(port, codes[port.name])}" for port in (*inputs, *outputs))
        yield f"  save:  {Implementation.of(unit).command('save', '--vector', inputs.stateless.write(codes))}"


def table(findings: Sequence[Finding]) -> Table:
    """Table of claims and verdicts, in their order."""
    # pandas takes long to load.
    import pandas as pd

    rows = [(one.claim.kind, one.claim.unit, one.verdict.status, one.verdict.seconds) for one in findings]
    counts = collections.Counter(finding.verdict.status for finding in findings)
    kinds = dict.fromkeys(finding.claim.kind for finding in findings)
    return Table(
        "Proofs over all inputs",
        pd.DataFrame(rows, columns=["claim", "unit", "verdict", "seconds"]),
        {"seconds": ".1f"},
        [
            ", ".join(f"{counts[status]} {status}" for status in (PROVED, REFUTED, UNFINISHED))
            + f", in {sum(finding.verdict.seconds for finding in findings):.0f} seconds of ABC, cached ones included.",
            *(f"{kind}: {KINDS[kind].says}." for kind in kinds),
        ],
    )


def simulated(miter: Miter, witness: dict[str, int]) -> list[tuple[Any, dict[str, int]]]:
    """The units of a circuit without registers, with the codes at their ports, in Amaranth's own simulator.

    It raises ToolError if the claim holds there.
    """
    from amaranth.hdl import Module, Value
    from amaranth.sim import Simulator

    found: list[tuple[Any, dict[str, int]]] = []
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
            found.append((unit, codes))

    simulator = Simulator(m)
    simulator.add_testbench(drive)
    simulator.run()
    if bad != [1]:
        raise ToolError("the witness that ABC gives is none in Amaranth's simulator; one of them is wrong")
    return found
