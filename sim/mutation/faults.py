"""Fault injection: errors of results in ulp under bit flips of registers and stuck-at faults of nets."""

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from halfulp.hdl.formats import Format
from halfulp.hdl.specs.formula import Role
from halfulp.sim.fields import Grid, words
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Codes, Columns, Ports
from halfulp.tools.jobs import LOCAL, JobPool, shared
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from .model import Change, Made, make, run_changes, unit_ports

if TYPE_CHECKING:
    from halfulp.units import Unit

STEPS = 16
"""Number of steps of a sum, or of operations of a unit without accumulator, between two resets."""


def _steps(unit: "Unit") -> int:
    """Return the number of operations between two resets: all steps of the sums that take turns."""
    return STEPS * (unit.spec.interleave if unit.stateful else 1)


CHUNK = 1 << 17
"""Number of cycles per call of the model."""

BATCH = 8
"""Number of faults per job."""

BIT_FLIP, LOW, HIGH = "bit flip", "stuck at 0", "stuck at 1"

_KINDS = {"inv": BIT_FLIP, "const0": LOW, "const1": HIGH}


@dataclass(frozen=True)
class Effect:
    """Effect of one fault.

    Attributes
    ----------
    change : Change
        Net and kind of the fault.
    trials : int
        Number of results.
    wrong : int
        Number of wrong results: those with a changed bit in any output.
    special : int
        Number of results in which a number became NaN or infinite, or vice versa.
    errors : array of float
        Distances of the other wrong results from the right ones, in ulp of the right ones. Results with the right
        value have none: only flags, the sign of zero or an output that is no number differ.
    """

    change: Change
    trials: int
    wrong: int
    special: int
    errors: npt.NDArray[np.float64]

    @property
    def kind(self) -> str:
        """Kind of the fault: bit flip, stuck at 0 or stuck at 1."""
        return _KINDS[self.change.mode]


@dataclass(frozen=True)
class Faults:
    """Effects of a fault campaign.

    Attributes
    ----------
    effects : list of Effect
        One effect per bit and kind of fault.
    """

    unit: "Unit"
    effects: list[Effect]


def campaign(
    unit: "Unit",
    *,
    flips: int | None,
    stuck: int | None,
    seed: int = 0,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> Faults:
    """Inject faults into a unit and measure the errors of its results.

    Operands are numbers around one. The result of a unit with an accumulator is a sum of 16 steps, with a bit flip in
    one of them, or the worst of the sums that take turns; that of another unit is the worst result from the cycle of
    the bit flip on.

    Parameters
    ----------
    unit : Unit
    flips : int, optional
        Total number of bit flips, distributed over register bits and cycles.
    stuck : int, optional
        Number of results per net and stuck level.
    seed : int
        Seed of operands and of the cycles of bit flips.
    progress : Progress
        Advances with each fault.
    pool : JobPool
        Pool that runs the faults.

    Raises
    ------
    ValueError
        If `check` rejects the unit.
    ToolError
        If a tool or the machine fails.
    """
    check(unit, flips)
    progress.total("building")
    key = uuid.uuid4().hex
    made = shared(key, partial(_made, unit))
    bit_flips = [number for number, change in enumerate(made.changes, 1) if change.mode == "inv"]
    others = [number for number, change in enumerate(made.changes, 1) if change.mode != "inv"]
    total, count = flips or 0, max(len(bit_flips), 1)
    sizes = [total * (part + 1) // count - total * part // count for part in range(len(bit_flips))]
    todo = [(number, size) for number, size in zip(bit_flips, sizes, strict=True) if size]
    todo += [(number, stuck) for number in others if stuck]
    return Faults(unit, run_changes(unit.name, run_faults, (key, unit, seed), todo, BATCH, progress, pool))


def run_faults(key: str, unit: "Unit", seed: int, todo: Sequence[tuple[int, int]]) -> list[Effect]:
    """Run faults, each given by its number and number of results."""
    made = shared(key, partial(_made, unit))
    with threads(1), CompiledModel(made.design) as model:
        return [
            _effect(unit, model, number, made.changes[number - 1], size, np.random.default_rng([seed, number]))
            for number, size in todo
        ]


def _made(unit: "Unit") -> Made:
    return make(unit, unit_ports(unit), mutants=None)


def check(unit: "Unit", flips: int | None) -> None:
    """Raise ValueError if there are no registers for bit flips, or no results in a number format."""
    if flips and not unit.clocked:
        raise ValueError(f"{unit.name} has no registers for bit flips; add --pipeline 1, or give only --stuck-at")
    if not any(isinstance(shape, Format) for shape in unit.outputs.values()):
        raise ValueError(f"{unit.name} has no results in a number format, so its errors in ulp are undefined")


def _effect(
    unit: "Unit", model: CompiledModel, number: int, change: Change, size: int, rng: np.random.Generator
) -> Effect:
    length = _length(unit)
    each = 1 if unit.stateful or change.mode == "inv" else STEPS
    sequences = -(-size // each)
    wrong = special = trials = 0
    errors = []
    for begin in range(0, sequences, CHUNK // length):
        count = min(CHUNK // length, sequences - begin)
        feeds = operands(unit, count, rng)
        beside = unit.clocked and not unit.latency
        right = model.record(feeds, np.zeros(count * length, dtype=np.uint64), before=beside)
        at = np.full(count * length, number, dtype=np.uint64)
        if change.mode == "inv":
            at = _moments(unit, count, number, rng)
        bad = model.record(feeds, at, before=beside)
        changed, lost, ulps = _worst(unit, right, bad, count, each == 1)
        trials += len(ulps)
        wrong += int(changed.sum())
        special += int(lost.sum())
        errors.append(ulps[~lost & (ulps != 0)])
    return Effect(change, trials, wrong, special, np.concatenate(errors))


def _length(unit: "Unit") -> int:
    """Return the number of cycles between two resets: the reset, the steps, and the latency."""
    return 1 + _steps(unit) + int(unit.latency)


def operands(unit: "Unit", count: int, rng: np.random.Generator) -> dict[str, Codes]:
    """Choose inputs of ``count`` sequences: numbers around one, which an accumulator sums from +0."""
    length = _length(unit)
    total = count * length
    place = np.arange(total) % length
    feeds: dict[str, Codes] = {}
    for port in Ports.inputs_of(unit):
        if port.fmt is not None:
            feeds[port.name] = np.ascontiguousarray(Grid.of(port.fmt).middling(rng, total), dtype=np.uint64)
        elif port.role in (Role.RANDOM, Role.MODE):
            feeds[port.name] = words(rng, total, port.width)
        else:
            feeds[port.name] = np.zeros(total, dtype=np.uint64)
    working = (place >= 1) & (place <= _steps(unit))
    levels = {"rst": place == 0, "en": np.ones(total), "valid": working, "clear": place == 1}
    return feeds | {name: np.ascontiguousarray(level, dtype=np.uint64) for name, level in levels.items()}


def _moments(unit: "Unit", count: int, number: int, rng: np.random.Generator) -> Codes:
    """Return the fault number of each cycle: one bit flip per sequence, while registers hold data."""
    at = np.zeros((count, _length(unit)), dtype=np.uint64)
    at[np.arange(count), rng.integers(2, 1 + _steps(unit), count)] = number
    return at.reshape(-1)


def _worst(
    unit: "Unit", right: Columns, bad: Columns, count: int, once: bool
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return which results changed, which of them are lost, and the errors of the others: per sequence or per step."""
    length, latency, steps = _length(unit), int(unit.latency), _steps(unit)
    changed, lost = np.zeros((2, count, steps), dtype=bool)
    ulps = np.zeros((count, steps))
    # The result of the step in cycle n appears after edge n + latency - 1, or in cycle n without latency.
    low = max(latency, 1)
    for name, shape in unit.outputs.items():
        x, y = (codes[name].reshape(count, length)[:, low : low + steps] for codes in (right, bad))
        changed |= x != y
        if isinstance(shape, Format):
            more, distance = distances(shape, x, y)
            lost |= more
            ulps = np.maximum(ulps, distance)
    if unit.stateful:
        sums = steps // STEPS
        changed, lost, ulps = changed[:, -sums:], lost[:, -sums:], ulps[:, -sums:]
    if unit.stateful or once:
        return np.asarray(changed.any(axis=1)), np.asarray(lost.any(axis=1)), np.asarray(ulps.max(axis=1))
    return changed.reshape(-1), lost.reshape(-1), ulps.reshape(-1)


def distances(
    fmt: Format, right: npt.NDArray[np.uint64], wrong: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return which results are lost, and the distances of the others in ulp of the right results.

    A result is lost if only one of the two is a number.
    """
    x, y = values(fmt, right), values(fmt, wrong)
    finite_x, finite_y = np.isfinite(x), np.isfinite(y)
    # Two different codes without a number are also lost: an infinity became NaN, or changed its sign.
    lost: npt.NDArray[np.bool_] = (finite_x != finite_y) | (~finite_x & (right != wrong))
    both = finite_x & finite_y
    with np.errstate(invalid="ignore"):
        ulps = np.where(both, np.abs(np.where(both, y - x, 0.0)) / last_place(fmt, right), 0.0)
    return lost, ulps


def values(fmt: Format, codes: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Decode codes."""
    import torch

    from halfulp import golden

    flat = torch.from_numpy(np.ascontiguousarray(codes).view(np.int64))
    return np.asarray(golden.decode(flat, fmt).numpy())


def last_place(fmt: Format, codes: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return the distance from a number to the next one away from zero, or toward zero at the end of the range."""
    grid, up = Grid.of(fmt), np.ones(codes.shape, dtype=np.int64)
    own = values(fmt, codes)
    with np.errstate(invalid="ignore"):
        out, back = (np.abs(values(fmt, grid.neighbour(codes, steps)) - own) for steps in (up, -up))
    # Beyond the last number there is none, or the same one; two zeros are not neighbours.
    step = np.where(np.isfinite(out) & (out > 0), out, back)
    return np.where(np.isfinite(own), np.where(step > 0, step, float(fmt.smallest)), 1.0)


SHARES = ("wrong", "special", "same value")
"""Columns with percentages of results."""


def _summed(effects: Sequence[Effect], bits: bool) -> Iterator[dict[str, object]]:
    """Yield a row per net and kind of fault, or per bit of a net."""
    groups: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        net = effect.change.net if bits else re.sub(r"\[\d+\]$", "", effect.change.net)
        groups.setdefault((net, effect.kind), []).append(effect)
    for (net, kind), members in groups.items():
        trials = sum(effect.trials for effect in members)
        errors = np.concatenate([effect.errors for effect in members])
        wrong, special = (sum(getattr(effect, name) for effect in members) for name in ("wrong", "special"))
        yield {
            "net": net,
            "fault": kind,
            "trials": trials,
            "wrong": 100 * wrong / trials,
            "special": 100 * special / trials,
            "same value": 100 * (wrong - special - len(errors)) / trials,
            "median ulp": float(np.median(errors)) if len(errors) else float("nan"),
            "largest ulp": float(errors.max()) if len(errors) else float("nan"),
            "source": ", ".join(dict.fromkeys(effect.change.place for effect in members)),
        }


def table(faults: Faults, *, bits: bool = False) -> Table:
    """Return the table with one row per net and kind of fault, most harmful first."""
    rows = list(_summed(faults.effects, bits))
    frame = pd.DataFrame(rows, columns=["net", "fault", "trials", *SHARES, "median ulp", "largest ulp", "source"])
    frame = frame.sort_values(["wrong", "special", "net", "fault"], ascending=[False, False, True, True])
    return Table(
        f"Faults in {faults.unit.name}",
        frame.reset_index(drop=True),
        {"trials": ",.0f", **dict.fromkeys(SHARES, ".2f"), "median ulp": ".3g", "largest ulp": ".3g"},
        [
            "A bit flip inverts a bit of a register once; a stuck net has a constant level.",
            "wrong: percentage of results that changed. special: percentage of results in which a number became NaN or "
            "infinite, or vice versa. same value: percentage of results in which only flags, the sign of zero or "
            "outputs without a number changed. Errors of the other wrong results are in ulp of the right result.",
            "Operands are numbers around one." + f" A result is a sum of {STEPS} steps from +0." * faults.unit.stateful,
        ],
        only_csv=["source"],
    )


def report(faults: Faults) -> Report:
    """Report with the tables by net and by bit, and a plot."""

    def plot() -> Any:
        # matplotlib takes long to load.
        from halfulp.tools.plots import plot_harms

        return plot_harms(harm_of(faults), title=f"Faults in {faults.unit.title}: share and error of wrong results")

    stem = f"faults-{faults.unit.name}"
    tables = {stem: table(faults), f"{stem}-bits": table(faults, bits=True)}
    return Report(tables, {stem: plot}, hidden=[f"{stem}-bits"])


def harm_of(faults: Faults) -> dict[str, list[tuple[str, float, float]]]:
    """Return the name, percentage of wrong results and median error of each bit, by kind of fault."""
    harm: dict[str, list[tuple[str, float, float]]] = {}
    for effect in faults.effects:
        median = float(np.median(effect.errors)) if len(effect.errors) else 0.0
        harm.setdefault(effect.kind, []).append((effect.change.net, 100 * effect.wrong / effect.trials, median))
    return harm
