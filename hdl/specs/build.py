"""Hardware structure of a unit, which changes no result bit."""

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

from halfulp.hdl.formats.checks import check_bool, check_int, check_one_of

MAX_PIPELINE = 64
"""Maximum number of register stages."""

MAX_ITERATIONS = 64
"""Maximum number of steps that an iterative form makes in a cycle."""

MAX_BESIDE = 4096
"""Maximum number of bits of a tag that travels with operands."""

LAZY, EAGER = STOCHASTIC = ("lazy", "eager")
"""Structures of stochastic rounding in a floating-point adder."""

AREA, SPEED, LOOP = GOALS = ("area", "speed", "loop")
"""Goals that choose structures of floating-point units."""

COMPARATORS, ADDRESS, TABLE = STRUCTURES = ("comparators", "address", "table")
"""Structures of a piecewise-linear function."""

ECP5, XC7, XCUP = TARGETS = ("ecp5", "xc7", "xcup")
"""Device families with a delay model."""

_NEEDS = {
    "dsp": "units with multipliers use DSP blocks",
    "stochastic": "floating-point adders with stochastic rounding have two structures",
    "structure": "piecewise-linear functions have structures",
    "goal": "sums and products of floats have structures for speed, except mul of few bits and sequential dot, and "
    "accumulators that round a sum of two numbers have those of a short loop",
    "reset_less": "units with register stages have data registers",
    "iterations": "quotients, remainders, roots and quantisation of blocks are made of equal steps",
    "target": "register stages are placed by its delays; add pipeline or clock",
}


@dataclass(frozen=True)
class Build:
    """Hardware structure of a unit. No field changes a result bit; a unit rejects a field that has no effect on it.

    Parameters
    ----------
    pipeline : int
        Register stages, 0 to 64; each adds a cycle of latency. They are placed by a model of delays, before and after
        an accumulator, and in its loop if several sums take turns on it. For all units and arrays.
    clock : float, optional
        Clock in MHz, in place of ``pipeline``: as few register stages as meet it by the model of delays, at most 64.
        The unit has the port ``en`` even if it needs no stage. For all units and arrays.
    target : str, optional
        Family of devices whose delays place the stages: ``ecp5``, ``xc7`` or ``xcup`` (UltraScale+). Default: ``xcup``
        for a clock, ``ecp5`` for a number of stages.
    dsp : bool
        Use DSP blocks instead of LUTs for products whose factors are long enough. For all units and arrays with
        multipliers; the structure ``table`` of ``pwl`` has none.
    stochastic : str, optional
        Structure of stochastic rounding after a floating-point adder. ``lazy`` adds the random word to the normalised
        sum; ``eager`` adds it before normalisation, on a shorter path. Default: ``lazy``, which usually needs fewer
        LUTs (`halfulp report adders` compares both). For units and arrays that round sums of two floats by ``sr``; a
        ``dot`` does in order ``sequential``.
    structure : str, optional
        Structure of a piecewise-linear function: ``comparators`` compares the operand with the starts of pieces;
        ``address`` selects the piece by the first bits of the operand; ``table`` stores all results, for formats of up
        to 8 bits without stochastic rounding. Default: the structure that is expected to be the smallest. With
        ``pipeline`` or ``clock``, the last step of a search with two or more steps has two comparators, one for each
        start that it may need.
    goal : str
        ``area`` chooses structures of few LUTs, ``speed`` those of a short path: leading zeros are anticipated beside
        the product or the sum, rows of products are added in a tree, and a compound adder gives both signs of a sum.
        An ``fma`` with ``pipeline`` or ``clock`` has the tree for both goals.
        For ``add``, ``fma``, ``mul``, and for accumulators and arrays with a rounded sum and exact products, of
        floats. A ``mul`` has one structure if its product is a table (up to 4 significand bits without DSP blocks), and
        also if the product can be subnormal and one factor has at most 7 significand bits or DSP blocks are used.
        For ``dot`` with a float as result, except in sequential order: the carry of the rounding is selected instead of
        propagated.
        ``loop`` has the structures of ``speed``, and an accumulator that holds its sum without normalising it, which
        shortens the loop and takes more LUTs and registers. For ``mac``, ``partmac``, ``accumulate`` and arrays; see
        `halfulp.hdl.late` for formats and roundings.
    reset_less : bool
        Data registers of the stages have no reset; registers of ``valid``, random sources, accumulators and values read
        from them keep theirs. For units and arrays with ``pipeline`` or ``clock``.
    iterations : int
        Equal steps in a cycle, 1 to 64. The unit then has hardware for that many steps, with registers, and the ports
        ``valid`` and ``ready``: it accepts operands only every ``latency`` cycles. 0 lays all steps out. In ``div``,
        ``reciprocal``, ``sqrt``, ``rsqrt`` and ``remainder``, a step gives one bit: 1 is radix 2, 2 is radix 4. In
        ``blockquantize``, it gives one element. Not with ``pipeline`` and ``clock``. An ``fpu`` with ``divide``
        iterates divisions and roots only, beside the stages of ``pipeline`` or ``clock``, and has the port ``o_valid``.

    Raises
    ------
    TypeError, ValueError
        If a field has the wrong type or is out of range, or both ``pipeline`` and ``clock`` are given.

    Notes
    -----
    ``str()`` is the suffix of module names, such as ``eager_p3`` or ``c300_xcup``; it is empty for the default build.
    """

    pipeline: int = 0
    dsp: bool = False
    stochastic: str | None = None
    structure: str | None = None
    goal: str = AREA
    reset_less: bool = False
    clock: float | None = None
    target: str | None = None
    iterations: int = 0

    def __post_init__(self) -> None:
        check_int("pipeline", self.pipeline, "build", 0, MAX_PIPELINE)
        check_int("iterations", self.iterations, "build", 0, MAX_ITERATIONS)
        check_bool("dsp", self.dsp, "build")
        check_bool("reset_less", self.reset_less, "build")
        texts = (("stochastic", STOCHASTIC), ("structure", STRUCTURES), ("target", TARGETS), ("goal", GOALS))
        for field, known in texts:
            value = getattr(self, field)
            if value is None and field != "goal":
                continue
            if not isinstance(value, str):
                raise TypeError(f"{field} of a build must be a string, not {type(value).__name__}")
            check_one_of(field, value, known)
        if self.clock is not None:
            self._check_clock(self.clock)
        if self.target == self._default_target:
            object.__setattr__(self, "target", None)

    def check_iterations(self, unit: str) -> None:
        """Raise ValueError if there are iterations and register stages, for a unit that has only one of them."""
        if self.iterations and self.has_stages:
            stages = f"pipeline {self.pipeline}" if self.pipeline else f"clock {self._mhz}"
            raise ValueError(
                f"{unit} has either iterations or register stages, not iterations {self.iterations} and {stages}"
            )

    def _check_clock(self, clock: float) -> None:
        if isinstance(clock, bool) or not isinstance(clock, (int, float)):
            raise TypeError(f"clock of a build must be a number of MHz, not {type(clock).__name__}")
        if not (math.isfinite(clock) and clock > 0):
            raise ValueError(f"clock of a build is {clock:g} MHz; expected a positive number")
        if self.pipeline:
            raise ValueError(
                f"a build has either pipeline or clock, not both pipeline {self.pipeline} and {self._mhz} MHz"
            )

    @property
    def has_stages(self) -> bool:
        """True if a unit may have register stages."""
        return self.pipeline > 0 or self.clock is not None

    @property
    def family(self) -> str:
        """Family of devices whose delays place the stages."""
        return self.target or self._default_target

    def with_stages(self, stages: int) -> "Build":
        """Return the build with a number of register stages in place of a clock."""
        reset_less = self.reset_less and stages > 0
        target = self.family if stages else None
        return replace(self, pipeline=stages, clock=None, target=target, reset_less=reset_less)

    @property
    def _default_target(self) -> str:
        return ECP5 if self.clock is None else XCUP

    @property
    def _mhz(self) -> str:
        return repr(self.clock).removesuffix(".0")

    def check_effect(self, unit: str, fields: Collection[str]) -> None:
        """Raise ValueError if a field is set that has no effect on a unit; ``fields`` are those with an effect."""
        for field, need in _NEEDS.items():
            value = getattr(self, field)
            if field not in fields and value != getattr(Build, field):
                given = f"{field} ({_option(field)})" if value is True else f"{field} {value}"
                raise ValueError(f"{given} has no effect on {unit}; only {need}")

    @property
    def options(self) -> list[str]:
        """Command-line options for this build; empty for the default build."""
        words = []
        for item in fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                option = _option(item.name)
                words += [option] if value is True else [option, self._mhz if item.name == "clock" else str(value)]
        return words

    def __str__(self) -> str:
        stages = f"p{self.pipeline}" if self.pipeline else self.clock and f"c{self._mhz}_{self.family}"
        target, goal = self.clock is None and self.target, self.goal != AREA and self.goal
        dsp, reset_less = self.dsp and "dsp", self.reset_less and "reset_less"
        iterations = f"i{self.iterations}" if self.iterations else ""
        parts = [self.structure, goal, self.stochastic, dsp, stages, target, reset_less, iterations]
        return "_".join(part for part in parts if part)


def _option(field: str) -> str:
    """Return the option of the command line for a field of a build."""
    return f"--{field.replace('_', '-')}"
