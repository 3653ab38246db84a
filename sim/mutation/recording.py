"""Recordings of the test bench, cycle by cycle: inputs with stalls, gaps and resets, and expected outputs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from halfulp.sim.fields import words
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Codes, Columns, Ports
from halfulp.sim.reference import reference

if TYPE_CHECKING:
    from halfulp.units import Unit

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Recording:
    """Recorded cycles of a unit.

    Attributes
    ----------
    inputs : dict
        Code of each input in each cycle, including ``rst``, ``en`` and ``valid``.
    outputs : dict
        Expected codes of each output.
    look : array of bool
        Cycles in which outputs are compared.
    before : bool
        Sample outputs before the clock edge, for a unit without latency.
    """

    inputs: dict[str, Codes]
    outputs: dict[str, Codes]
    look: Bits
    before: bool

    def first_difference(self, model: CompiledModel, mutant: int, most: int | None = None) -> int | None:
        """Return the first of at most ``most`` cycles in which a mutant has a wrong output, or None."""
        model.select(mutant)
        count = len(self.look[:most])
        return model.first_difference(self.inputs, self.outputs, self.look, count=count, before=self.before)


def record(unit: "Unit", sets: list[tuple[Columns, bool]], seed: int) -> Recording:
    """Record sets of vectors in sequence.

    As in cocotb, a quarter of each set runs without stalls, inputs carry noise while the unit is stalled or its
    operands are invalid, and a reset clears earlier work.

    Parameters
    ----------
    unit : Unit
    sets : list
        Pairs of vectors and a flag that marks chained steps.
    seed : int
        Seed of stalls and noise.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for vectors, chained in sets:
        want = reference(unit, dict(vectors), chained=chained)
        if not unit.clocked:
            count = len(next(iter(want.values())))
            parts.append(Recording(dict(vectors), want, np.ones(count, dtype=bool), False))
        else:
            parts += [_reset(unit, rng), _clocked(unit, vectors, want, rng)]
    return Recording(
        {name: _joined([part.inputs[name] for part in parts]) for name in parts[0].inputs},
        {name: _joined([part.outputs[name] for part in parts]) for name in parts[0].outputs},
        np.concatenate([part.look for part in parts]),
        unit.clocked and unit.latency == 0,
    )


def _joined(columns: list[Codes]) -> Codes:
    return np.ascontiguousarray(np.concatenate(columns), dtype=np.uint64)


def _noise(unit: "Unit", count: int, rng: np.random.Generator) -> dict[str, Codes]:
    return {port.name: words(rng, count, port.width) for port in Ports.inputs_of(unit)}


def _reset(unit: "Unit", rng: np.random.Generator) -> Recording:
    """Record some cycles of operation and a reset."""
    count = 10
    ones = np.ones(count, dtype=np.uint64)
    rst = (np.arange(count) >= 8).astype(np.uint64)
    outputs = {name: np.zeros(count, dtype=np.uint64) for name in unit.outputs}
    inputs = {"rst": rst, "en": ones, "valid": ones} | _noise(unit, count, rng)
    return Recording(inputs, outputs, np.zeros(count, dtype=bool), False)


def _clocked(unit: "Unit", vectors: Columns, want: Columns, rng: np.random.Generator) -> Recording:
    count = len(next(iter(want.values())))
    enabled, valid = _willing(unit, count, rng)
    fresh = enabled & valid
    # Vector that a cycle accepts or offers.
    number = np.minimum(np.cumsum(fresh) - fresh, count - 1)
    taken = fresh & (np.cumsum(fresh) <= count)
    shown = number if unit.latency == 0 else _shown(unit, taken, enabled, number)
    if unit.latency == 0:
        # The result is valid as long as its operands are offered.
        taken = valid & (np.cumsum(fresh) - fresh < count)
        shown = np.where(taken, number, -1)
    noise = _noise(unit, len(enabled), rng)
    inputs = {name: np.where(taken, vectors[name][number], noise[name]) for name in unit.inputs}
    controls = {"rst": np.zeros(len(enabled)), "en": enabled, "valid": valid}
    inputs |= {name: column.astype(np.uint64) for name, column in controls.items()}
    return Recording(inputs, {name: codes[np.maximum(shown, 0)] for name, codes in want.items()}, shown >= 0, False)


def _willing(unit: "Unit", count: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Choose the cycles in which the unit is enabled and operands are valid; the last ones have no operands."""
    cycles = int(count * 1.7) + 64
    enabled, valid = rng.random(cycles) < 0.75, np.ones(cycles, dtype=bool)
    if unit.has_valid:
        valid = rng.random(cycles) >= 0.15
    enabled[: count // 4] = valid[: count // 4] = True
    end = int(np.searchsorted(np.cumsum(enabled & valid), count)) + 1
    flush = np.ones(unit.latency + 1, dtype=bool)
    return np.concatenate([enabled[:end], flush]), np.concatenate([valid[:end], flush & (not unit.has_valid)])


def _shown(unit: "Unit", taken: Bits, enabled: Bits, number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the vector of the result after each cycle, or -1 if it is unknown."""
    entered = np.where(taken, number, -1)[enabled]
    if unit.stateful:
        # A cycle without operands keeps the state, and so the result.
        entered = np.maximum.accumulate(entered)
    edges = np.cumsum(enabled) - unit.latency
    return np.where(edges >= 0, entered[np.maximum(edges, 0)], -1)
