# amaranth: UnusedElaboratable=no
"""Register stages of units, which are placed by a model of delays.

Stages are computed from modules that are not elaborated. The comment in the first line turns off Amaranth's warning
about them.
"""

import bisect
import functools
import math
from abc import abstractmethod
from typing import Any

from amaranth.hdl import Module, Value

from halfulp.hdl.dataflow import Dataflow
from halfulp.hdl.delay import MARGIN, MODELS, DelayModel
from halfulp.hdl.pipeline import Stages
from halfulp.hdl.rows import cycles_of
from halfulp.hdl.specs.build import LOOP, MAX_PIPELINE

from .builds import Choices
from .sources import is_source

_STAGES: dict[Any, int] = {}
"""Register stages of units with a clock that this process has computed."""


class Staged(Choices):
    """Component whose method ``logic`` describes it without register stages; its build adds them.

    Attributes
    ----------
    inputs, outputs : dict of str to shape
        Ports of operands, random words included, and of results.
    sources : dict of str to Stream
        Internal sources that replace ports of random words; the word of a cycle is sampled with its operands.
    stateful : bool
        True if results depend on earlier operands.
    """

    stateful = False
    _platform: object = None

    @property
    def has_valid(self) -> bool:
        """True if the unit has a ``valid`` port."""
        return self.stateful or bool(self.sources) or self.build.iterations > 0

    @property
    def _has_enable(self) -> bool:
        return self.build.has_stages or self.has_valid

    @property
    def clocked(self) -> bool:
        """True if the unit has registers."""
        return self.stages > 0 or self.has_valid

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result; 0 for a combinational unit."""
        return self._latency_of(self.stages)

    @property
    def initiation(self) -> int:
        """Clock cycles from operands to the next ones that the unit accepts."""
        return self.latency if self.build.iterations else 1

    @property
    def latency_varies(self) -> bool:
        """True if some operations take longer than ``latency``, so that the port ``o_valid`` marks the results."""
        return False

    def check_one_latency(self, what: str) -> None:
        """Raise ValueError if the latency varies: ``what`` needs a unit with one latency."""
        if self.latency_varies:
            raise ValueError(
                f"{what} needs a unit with one latency, and that of {self.name} depends on the operation; "
                "remove iterations, which change no result bit"
            )

    @property
    def accepts(self) -> Value:
        """Condition that operands are accepted in this cycle, for a unit with ``valid``."""
        accepts = self.en & self.valid
        return accepts & self.ready if self.build.iterations else accepts

    def _latency_of(self, stages: int) -> int:
        if self.build.iterations:
            # The cycle after the operands is the first one of the steps.
            return 1 + cycles_of(self.steps, self.build.iterations)
        return stages + (1 if self.stateful else 0)

    @property
    def stages(self) -> int:
        """Number of register stages: that of the build, or the smallest that meets its clock by the delay model.

        The first use with a clock takes seconds.

        Raises
        ------
        ValueError
            If no number of stages meets the clock.
        """
        if self.build.clock is None:
            return self.build.pipeline
        key = type(self), self.spec, self.build
        if key not in _STAGES:
            _STAGES[key] = self._fewest_stages(self.build.clock)
        return _STAGES[key]

    def _fewest_stages(self, clock: float) -> int:
        """Return the smallest number of stages that meets a clock with a margin."""
        limit = int(1e6 / (clock * MARGIN))
        delays: dict[int, int] = {}

        def meets(stages: int) -> bool:
            if stages not in delays:
                delays[stages] = self.dataflow(stages).schedule()[1]
            return delays[stages] <= limit

        latency, delay = self.dataflow(MAX_PIPELINE).earliest_result(limit)
        if latency is not None:
            stages = max(latency - self._latency_of(0), 0)
            while stages < MAX_PIPELINE and not meets(stages):
                stages += 1
            if meets(stages):
                # A binary search, because schedules take seconds; more stages hardly ever have a larger delay.
                return bisect.bisect_left(range(stages), True, key=meets)
            delay = min(delays.values())
        raise ValueError(
            f"{self.name} cannot run at {clock:g} MHz: by the delays of {self.build.family}, the best clock with up to "
            f"{MAX_PIPELINE} register stages is {math.floor(1e7 / (delay * MARGIN)) / 10:.1f} MHz{self.faster_sums}"
        )

    @property
    def faster_sums(self) -> str:
        """Ways to a higher clock of an accumulator, whose sum is finished before the next one; else empty."""
        ways = ["interleave=N, which gives each sum N cycles"] * hasattr(self.spec, "interleave")
        ways += ["--goal loop, which shortens them"] * (LOOP in self.goals and self.build.goal != LOOP)
        return f"; sums run faster with {', or '.join(ways)}" if self.stateful and ways else ""

    def check_clock(self) -> None:
        """Raise ValueError if no number of register stages meets the clock of the build."""
        _ = self.stages

    @functools.cached_property
    def model_mhz(self) -> float:
        """Clock in MHz by the delay model of the target, between registers at all ports."""
        return 1e6 / self.dataflow(self.stages).schedule()[1]

    @abstractmethod
    def logic(self, m: Module) -> None:
        """Add the unit without register stages to a module."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Register stages are placed inside parts too, so that parts that were equal differ.
        stages = self.stages
        self._platform = None if stages else platform
        self.logic(m)
        return self.staged(m) if stages else m

    def staged(self, m: Module, *, latency: int | None = None, enable: Value | None = None) -> Module:
        """Return a copy of a module with register stages."""
        flow = self._dataflow(m, self.stages, latency)
        slots, _ = flow.schedule()
        control = self.valid if self.has_valid else None
        enable = self.en if enable is None else enable
        return Stages(flow, slots, enable=enable, reset_less=self.build.reset_less, control=control).m

    def _dataflow(
        self, m: Module, stages: int, latency: int | None = None, model: DelayModel | None = None
    ) -> Dataflow:
        return Dataflow(
            m,
            outputs=[Value.cast(getattr(self, name)) for name in self.outputs],
            enable=self.en if self._has_enable else None,
            latency=self._latency_of(stages) if latency is None else latency,
            arrivals=self.arrivals(stages),
            is_result=lambda name: self.stateful and not is_source(name),
            interval=self.interval,
            model=model or MODELS[self.build.family],
            dsp=self.build.dsp,
        )

    def dataflow(self, stages: int, model: DelayModel | None = None) -> Dataflow:
        """Return the graph of operators of the unit, for a number of register stages and by default its target."""
        m = Module()
        self._platform = None
        self.logic(m)
        return self._dataflow(m, stages, model=model)

    def interval(self, register: str) -> int:
        """Return the number of operands from one use of a register of the state to the next."""
        return 1

    def arrivals(self, stages: int) -> dict[str, int]:
        """Return cycles after the operands at which some inputs arrive; 0 for all others."""
        return {}

    @functools.cached_property
    def slots(self) -> dict[str, int]:
        """Register stages between the operands and each register of the unit's state, by its name."""
        flow = self.dataflow(self.stages)
        slots, _ = flow.schedule()
        return flow.slots_of_registers(slots)
