# amaranth: UnusedElaboratable=no
"""Common base of units.

Units are often constructed without being elaborated, to look at their ports. The comment in the first line turns off
Amaranth's warning about them.
"""

import bisect
import functools
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from amaranth.hdl import Cat, Const, Module, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl import eager, late
from halfulp.hdl.dataflow import Dataflow
from halfulp.hdl.delay import MARGIN, MODELS, DelayModel
from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.formats.rounding import MODE_BITS
from halfulp.hdl.formats.source import Source, Stream
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.number import Number, pack, pack_with_flags, signalling, truncate, unpack
from halfulp.hdl.pipeline import Stages
from halfulp.hdl.round import chosen_by
from halfulp.hdl.rows import cycles_of
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.hdl.specs.build import EAGER, FAST, LAZY, MAX_PIPELINE, SPEED
from halfulp.hdl.specs.unit import verilog_name

from .shared import Logic, Sharing, add_part

_STAGES: dict[Any, int] = {}
"""Register stages of units with a clock that this process has computed."""

SOURCE = "random"
"""Prefix of the names of registers of internal random sources; a number follows."""


class Unit(wiring.Component):
    """Base class of all units.

    Parameters
    ----------
    spec : UnitSpec
        Description that determines the result bits. A random source in it replaces the ports of random words and
        advances once per accepted operation.
    inputs, outputs : dict of str to shape
        Ports except the clock enable and the random words. A dict in place of a shape holds the ports of a vector,
        which are also members as a list.
    name : str, optional
        Module name without the suffix of the build; default: the name of ``spec``.
    words : dict of str to int, optional
        Widths of the ports of random words; default: those of ``spec``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.

    Members
    -------
    random : In(rounding.bits)
        Random word of stochastic rounding, sampled with the operands. Absent if the unit has an internal source.
    mode : In(3)
        Code of the rounding mode, sampled with the operands; see `Rounding.choices`. Absent if the description has one
        mode.
    en : In(1, init=1)
        Clock enable of all registers. Absent without registers, unless ``build`` has a clock.
    valid : In(1, init=1)
        Operands are present in this cycle. Absent without state, internal random source and iterations.
    ready : Out(1)
        Operands are accepted in this cycle if ``valid`` and ``en`` are 1. Present in an iterative form, whose result
        holds from ``latency`` cycles after its operands until the next ones are accepted.

    Attributes
    ----------
    inputs, outputs : dict of str to shape
        Ports of operands, random words included, and of results.
    sources : dict of str to Stream
        Internal sources that replace ports of random words; the word of a cycle is sampled with its operands.
    build : Build
        Register stages and structure; fields that name a default structure are None.
    stochastic : str
        Structure of stochastic rounding, ``lazy`` or ``eager``.
    fast : bool
        True for the structures of the goal ``speed``.
    stateful : bool
        True if results depend on earlier operands.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range, a rounding is ``exact`` and its format cannot hold every
        result, or a field of ``build`` has no effect on the unit.
    """

    spec: Any
    stateful = False
    _platform: object = None

    def __new__(cls, *args: Any, **options: Any) -> Self:
        unit = super().__new__(cls)
        unit._made_of = (args, options)
        return unit

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor arguments."""
        args, options = self._made_of
        return functools.partial(type(self), *args, **options), ()

    def __init__(
        self,
        spec: UnitSpec,
        *,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        name: str | None = None,
        words: dict[str, int] | None = None,
        build: Build = Build(),
    ) -> None:
        name = spec.name if name is None else name
        check_is_build(build, name)
        self.spec, self.saturate, self.build = spec, spec.saturate, build
        self.check()
        structures = self.structures
        effects = {"dsp": self.multiplies, "structure": bool(structures), "goal": self.goals}
        effects["iterations"] = self.steps > 0
        self.build = check_build(
            build, name, spec, effects, sums=self.sums, structure=self.default_structure, structures=structures
        )
        if self.build.iterations > self.steps:
            raise ValueError(
                f"iterations of {name} are {self.build.iterations} in a cycle; it has only {self.steps} in all"
            )
        self.stochastic = self.build.stochastic or LAZY
        if spec.flags and self.stochastic == EAGER:
            raise ValueError(f"eager stochastic rounding of {name} has no flags; use lazy")
        self.fast = self.build.goal == SPEED or self.build.structure == FAST
        self.words = spec.words if words is None else words
        self._built: dict[tuple[Module, Source, int], Value] = {}
        self._parts: dict[tuple[Module, str], Logic] = {}
        self.sources = {port: stream for port, stream in spec.streams.items() if port in self.words}
        modes = {"mode": unsigned(MODE_BITS)} if spec.rounding.is_port else {}
        words = {port: unsigned(bits) for port, bits in self.words.items() if port not in self.sources}
        self.inputs, self.outputs = _flat(inputs) | modes | words, _flat(outputs)
        self._arguments = [list(shape) if isinstance(shape, dict) else port for port, shape in inputs.items()]
        self._arguments += [*modes, *words]
        self.name = module_name(name, self.build)
        members: dict[str, Any] = {port: In(shape) for port, shape in self.inputs.items()}
        members |= {port: Out(shape) for port, shape in self.outputs.items()}
        if self._has_enable:
            members["en"] = In(1, init=1)
        if self.has_valid:
            members["valid"] = In(1, init=1)
        if self.build.iterations:
            members["ready"] = Out(1)
        super().__init__(members)
        for vector, ports in (inputs | outputs).items():
            if isinstance(ports, dict):
                setattr(self, vector, [getattr(self, port) for port in ports])
        if "mode" not in members:
            self.mode = None
        # Inside the unit, the rounding comes with the signal that chooses its mode.
        self.rounding = chosen_by(spec.unit_rounding, self.mode if modes else None)

    # Structures that a build chooses -----------------------------------------------------------------------------

    @property
    def multiplies(self) -> bool:
        """True if the unit has multipliers, which can use DSP blocks."""
        return False

    @property
    def sums(self) -> Sequence[eager.Sum]:
        """Sums that the unit rounds; each may have lazy and eager stochastic rounding."""
        return ()

    @property
    def goals(self) -> bool:
        """True if the unit has structures for speed."""
        return False

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

    # Ports and timing --------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The unit's text."""
        return self.spec.text

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the unit's golden function."""
        return self.spec.parameters

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
    def arguments(self) -> list[str | list[str]]:
        """Operands in the order of the golden function: a list of port names for each vector, then other ports."""
        return self._arguments

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result; 0 for a combinational unit."""
        return self._latency_of(self.stages)

    @property
    def initiation(self) -> int:
        """Clock cycles from operands to the next ones that the unit accepts."""
        return self.latency if self.build.iterations else 1

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
            f"{MAX_PIPELINE} register stages is {math.floor(1e7 / (delay * MARGIN)) / 10:.1f} MHz"
        )

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

    def rounded(
        self,
        m: Module,
        number: Number,
        random: Value | None,
        rounding: Rounding | None = None,
        o: Format | None = None,
    ) -> Value:
        """Round a number to a code; default: with the unit's rounding, to its result format."""
        fmt, rounding = o or self.spec.o, self.rounding if rounding is None else rounding
        return pack(m, truncate(m, number, fmt, rounding), fmt, rounding, self.saturate, random)

    def rounded_with_flags(
        self,
        m: Module,
        number: Number,
        random: Value | None,
        rounding: Rounding | None = None,
        o: Format | None = None,
    ) -> tuple[Value, Value | None]:
        """Round a number as `rounded`, and return the code and its exception flags; None if the unit has none."""
        if not self.spec.flags:
            return self.rounded(m, number, random, rounding, o), None
        rounding = self.rounding if rounding is None else rounding
        return pack_with_flags(m, number, o or self.spec.o, rounding, self.saturate, random)

    def part(
        self, m: Module, name: str, kind: str, function: Callable[..., Mapping[str, Value]], **operands: Value
    ) -> dict[str, Value]:
        """Add combinational logic that the unit contains several times, and return its results.

        Parameters
        ----------
        m : Module
        name : str
            Name of this part.
        kind : str
            Name of all parts of this logic, which are one module in Verilog.
        function, **operands
            See `Logic`.
        """
        known = self._parts.get((m, kind)) if isinstance(self._platform, Sharing) else None
        logic = Logic(kind, function, operands) if known is None else known.again()
        self._parts[m, kind] = logic
        add_part(m, self._platform, name, logic, self.spec, self.build, kind)
        m.d.comb += [getattr(logic, port).eq(value) for port, value in operands.items()]
        return logic.results

    def unpacked(self, m: Module, name: str) -> Number:
        """Return the number of an operand; see `number_of`."""
        return self.number_of(m, getattr(self, name).as_value(), self.spec.operands[name], name)

    def number_of(self, m: Module, bits: Value, fmt: Format, name: str) -> Number:
        """Return the number of a code; with flags, a signalling NaN is invalid."""
        number = unpack(m, bits, fmt, name)
        return signalling(number, bits, fmt) if self.spec.flags else number

    def word(self, m: Module, name: str = "random") -> Value | None:
        """Return the random word of this cycle, from the port ``name`` or from the source that replaces it."""
        if name not in self.words:
            return None
        if name not in self.sources:
            port: Value = getattr(self, name)
            return port
        stream = self.sources[name]
        return word_of(stream, self._shared_word(m, stream), self.words[name])

    def _shared_word(self, m: Module, stream: Stream) -> Value:
        """Return the word of a random source; all streams of one source share its registers."""
        key = (m, stream.source, stream.seed)
        if key not in self._built:
            number = sum(module is m for module, _, _ in self._built)
            seeds = [stream.seed, *stream.others]
            self._built[key] = source_word(m, stream.source, seeds, self.accepts, f"{SOURCE}{number}")
        return self._built[key]


def _flat(ports: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shapes of ports by name, with those of vectors in their place."""
    return {
        port: one
        for name, shape in ports.items()
        for port, one in (shape if isinstance(shape, dict) else {name: shape}).items()
    }


def word_of(stream: Stream, word: Value, bits: int) -> Value:
    """Return the random word of a stream, in ``bits`` bits, from the word of its source."""
    zeros, places = stream.bits_of(bits)
    picked = Cat(*(word[place] for place in places))
    return Cat(Const(0, zeros), ~picked if stream.complemented else picked)


def is_source(register: str) -> bool:
    """Return True for the register name of an internal random source."""
    return re.match(rf"{SOURCE}\d", register) is not None


def check_is_build(build: object, name: str) -> None:
    """Raise TypeError unless the build of a unit, which is called ``name``, is one."""
    if not isinstance(build, Build):
        raise TypeError(f"build of {name} must be a Build, not {type(build).__name__}")


def check_build(
    build: Build,
    name: str,
    spec: UnitSpec,
    effects: Mapping[str, bool],
    *,
    sums: Sequence[eager.Sum] = (),
    structure: str | None = None,
    structures: Sequence[str] = (),
) -> Build:
    """Return ``build`` without fields that name a default structure; raise an error if a field has no effect.

    Fields of ``effects`` have an effect if the unit, which is called ``name`` and is or contains one of the description
    ``spec``, has what they choose. ``structure`` is the default of ``structures``.
    """
    stochastic = [one for one in sums if one.has_structures]
    effects = {**effects, "stochastic": bool(stochastic)}
    effects |= {"reset_less": build.has_stages, "target": build.has_stages}
    build.check_effect(name, {field for field, has in effects.items() if has})
    if build.stochastic == EAGER:
        for refusal in filter(None, (one.refusal for one in stochastic)):
            raise ValueError(refusal)
    if build.structure is not None:
        check_one_of(f"structure of {name}", build.structure, structures)
    if build.structure == FAST:
        for refusal in filter(None, map(late.refusal, sums)):
            raise ValueError(refusal)
        if spec.flags or spec.saturate:
            raise ValueError(f"structure fast of {name} has no flags and does not saturate; leave the structure out")
        for field in ("goal", "stochastic"):
            if getattr(build, field) != getattr(Build, field):
                raise ValueError(f"structure fast of {name} has no {field}; leave out one of them")
    if build.stochastic == LAZY:
        build = replace(build, stochastic=None)
    return replace(build, structure=None) if build.structure == structure else build


def module_name(name: str, build: Build) -> str:
    """Return the name of a Verilog module with the suffix of its build."""
    return verilog_name(f"{name}_{build}" if str(build) else name)
