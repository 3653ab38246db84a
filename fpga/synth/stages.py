"""Numbers of register stages that meet a clock by the delay model."""

from halfulp.hdl.delay import MODELS
from halfulp.implementation import Implementation

NEAR = 0.8
"""Share of the clock that a unit with the fewest of `near_stages` meets by the delay model.

The model gives at least 0.87 of each measured clock in ``fpga/results/clocks-stages.csv``.
"""

BEYOND = 2
"""Stages of `near_stages` beyond those that meet the clock by the model: more stages may need fewer LUTs."""


def fewest_stages(unit: Implementation, mhz: float, family: str) -> int | None:
    """Return the smallest number of stages that meets a clock with the delays of a family; None if no number does."""
    try:
        stages: int = unit.with_build(clock=mhz, target=family).component().stages
    except ValueError:
        return None
    return stages


def near_stages(unit: Implementation, mhz: float, family: str, measured: float) -> list[int]:
    """Return the numbers of stages, from 1, with which a unit may meet a clock after place and route; may be empty.

    The first is that of the delay model for a share `NEAR` of the clock. ``measured`` is the clock of the unit without
    stages in MHz: if it exceeds that of the model, as for tables, the first is lower by the same ratio.
    """
    if unit.build.iterations:
        return []
    model = 1e6 / unit.component().dataflow(0, MODELS[family]).schedule()[1]
    first = fewest_stages(unit, NEAR * mhz * min(1, model / measured), family)
    if first is None:
        return []
    met = fewest_stages(unit, mhz, family)
    return list(range(max(1, first), (first if met is None else met) + BEYOND + 1))
