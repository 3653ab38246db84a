"""Structures that a build chooses."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from amaranth.lib import wiring

from halfulp.hdl import eager, late
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.hdl.specs.build import EAGER, LAZY, LOOP
from halfulp.hdl.specs.unit import verilog_name


class Choices(wiring.Component):
    """Component with structures that a build chooses.

    Attributes
    ----------
    spec : UnitSpec
        Description of the unit that the component is or contains.
    build : Build
        Register stages and structure; fields that name a default structure are None.
    """

    spec: Any
    build: Build
    iterates_beside_stages = False
    """True if iterations are those of some operations, beside the register stages of all others."""

    @property
    def multiplies(self) -> bool:
        """True if the unit has multipliers, which can use DSP blocks."""
        return False

    @property
    def sums(self) -> Sequence[eager.Sum]:
        """Sums that the unit rounds; each may have lazy and eager stochastic rounding."""
        return ()

    @property
    def goals(self) -> Collection[str]:
        """Values of ``build.goal`` beside ``area``."""
        return ()

    @property
    def structures(self) -> Sequence[str]:
        """Values of ``build.structure``; none if the unit has only one structure."""
        return ()

    @property
    def default_structure(self) -> str | None:
        """Default of ``build.structure``."""
        return None

    @property
    def steps(self) -> int:
        """Number of equal steps that an iterative form makes; 0 if the unit has no such form."""
        return 0

    def check(self) -> None:
        """Raise TypeError or ValueError if the unit does not support its description or its build."""

    def choose(self, spec: UnitSpec, build: Build, name: str) -> None:
        """Set the description and the build of the component, which is called ``name``.

        Raises
        ------
        TypeError, ValueError
            If ``build`` is no build, one of its fields has no effect, or `check` refuses it.
        """
        if not isinstance(build, Build):
            raise TypeError(f"build of {name} must be a Build, not {type(build).__name__}")
        self.spec, self.build = spec, build
        self.check()
        sums, structures, steps = self.sums, self.structures, self.steps
        stochastic = [rounded_sum for rounded_sum in sums if rounded_sum.has_structures]
        effects = {"dsp": self.multiplies, "structure": bool(structures), "iterations": steps > 0}
        if not self.iterates_beside_stages:
            build.check_iterations(name)
        effects |= {"goal": build.goal in self.goals}
        effects |= {"stochastic": bool(stochastic), "reset_less": build.has_stages, "target": build.has_stages}
        build.check_effect(name, {field for field, has in effects.items() if has})
        if build.stochastic == EAGER:
            for refusal in filter(None, (rounded_sum.refusal for rounded_sum in stochastic)):
                raise ValueError(refusal)
        if build.structure is not None:
            check_one_of(f"structure of {name}", build.structure, structures)
        if build.goal == LOOP:
            for refusal in filter(None, map(late.refusal, sums)):
                raise ValueError(refusal)
            if spec.flags or spec.saturate:
                raise ValueError(f"goal loop of {name} has no flags and does not saturate; choose another goal")
            if build.stochastic is not None:
                raise ValueError(f"goal loop of {name} has no stochastic {build.stochastic}; leave out one of them")
        if build.stochastic == LAZY:
            build = replace(build, stochastic=None)
        self.build = replace(build, structure=None) if build.structure == self.default_structure else build
        if build.iterations > steps:
            raise ValueError(f"iterations of {name} are {build.iterations} in a cycle; it has only {steps} in all")


def module_name(name: str, build: Build) -> str:
    """Return the name of a Verilog module with the suffix of its build."""
    return verilog_name(f"{name}_{build}" if str(build) else name)
