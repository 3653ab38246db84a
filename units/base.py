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
from dataclasses import fields, replace
from typing import Any, Self, TypedDict, Unpack

from amaranth.hdl import Cat, Const, Module, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl import eager, late
from halfulp.hdl.dataflow import Dataflow
from halfulp.hdl.delay import MARGIN, MODELS, DelayModel
from halfulp.hdl.formats import Float, Format, Rounding
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
from halfulp.hdl.specs.unit import FLAGS, verilog_name

from .shared import Logic, Sharing, add_part

Computed = tuple[Number, Value | None]
"""An exact result and the random word that rounds it."""

_STAGES: dict[Any, int] = {}
"""Register stages of units with a clock that this process has computed."""

SOURCE = "random"
"""Prefix of the names of registers of internal random sources; a number follows."""


class Options(TypedDict, total=False):
    """Parameters that all units have in common.

    Parameters
    ----------
    rounding : Rounding or str
        Rounding of the result; default: ``rn``. ``sr`` modes add the port ``random``, and ``port`` the port ``mode``.
    random : Lfsr, Plateau or str
        Internal source of random words, such as ``lfsr16``; default: ``port``.
    seed : int
        State of that source after reset; default: 1.
    saturate : bool
        Return the largest finite number on overflow; an infinite operand stays infinite. Default: false.
    flags : bool or str
        Exception flags, with the port ``flags``: ``after`` (or true) detects tiny results after rounding, ``before``
        before it. Default: none.
    """

    rounding: Rounding | str
    random: Source | str | None
    seed: int
    saturate: bool
    flags: bool | str


class Unit(wiring.Component):
    """Base class of all units.

    Parameters
    ----------
    spec : UnitSpec
        Description that determines the result bits. A random source in it replaces the ports of random words and
        advances once per accepted operation.
    inputs, outputs : dict of str to shape
        Ports except the clock enable and the random words.
    name : str, optional
        Module name without the suffix of the build; default: the name of ``spec``.
    words : dict of str to int, optional
        Widths of the ports of random words; default: those of ``spec``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    multiplies : bool
        The unit has multipliers, which can use DSP blocks.
    sums : sequence of eager.Sum
        Sums that the unit rounds; each may have lazy and eager stochastic rounding.
    structure : str, optional
        Default of ``build.structure``; None if the unit has only one structure.
    goals : bool
        The unit has structures for speed.
    steps : int
        Number of equal steps that an iterative form makes; 0 if the unit has no such form.

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

    SPEC: type[UnitSpec]
    spec: Any
    stateful = False
    _vectors: Sequence[list[str]] = ()
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
        multiplies: bool = False,
        sums: Sequence[eager.Sum] = (),
        structure: str | None = None,
        structures: Sequence[str] = (),
        goals: bool = False,
        steps: int = 0,
    ) -> None:
        name = spec.name if name is None else name
        self.spec, self.saturate = spec, spec.saturate
        effects = {"dsp": multiplies, "structure": bool(structures), "goal": goals, "iterations": steps > 0}
        self.build = check_build(build, name, spec, effects, sums=sums, structure=structure, structures=structures)
        if self.build.iterations > steps:
            raise ValueError(f"iterations of {name} are {self.build.iterations} in a cycle; it has only {steps} in all")
        self._steps = steps
        self.stochastic = self.build.stochastic or LAZY
        if spec.flags and self.stochastic == EAGER:
            raise ValueError(f"eager stochastic rounding of {name} has no flags; use lazy")
        self.fast = self.build.goal == SPEED or self.build.structure == FAST
        self.words = spec.words if words is None else words
        self._built: dict[tuple[Module, Source, int], Value] = {}
        self._parts: dict[tuple[Module, str], Logic] = {}
        self.sources = {port: stream for port, stream in spec.streams.items() if port in self.words}
        modes = {"mode": unsigned(MODE_BITS)} if spec.rounding.is_port else {}
        self.inputs = (
            inputs | modes | {port: unsigned(bits) for port, bits in self.words.items() if port not in self.sources}
        )
        self.outputs = outputs
        self.name = module_name(name, self.build)
        members: dict[str, Any] = {port: In(shape) for port, shape in self.inputs.items()}
        members |= {port: Out(shape) for port, shape in outputs.items()}
        if self._has_enable:
            members["en"] = In(1, init=1)
        if self.has_valid:
            members["valid"] = In(1, init=1)
        if self.build.iterations:
            members["ready"] = Out(1)
        super().__init__(members)
        if "mode" not in members:
            self.mode = None
        # Inside the unit, the rounding comes with the signal that chooses its mode.
        self.rounding = chosen_by(spec.unit_rounding, self.mode if modes else None)

    @classmethod
    def of(cls, spec: Any, build: Build = Build()) -> Self:
        """Return the unit of a description.

        Parameters
        ----------
        spec : UnitSpec or str
            Description of a unit of this class, or its text.
        build : Build

        Raises
        ------
        TypeError, ValueError
            If the text describes another unit, or a field of ``build`` has no effect on it.
        """
        spec = cls.SPEC.parse(spec)
        return cls(**{item.name: getattr(spec, item.name) for item in fields(spec)}, build=build)

    @classmethod
    def default_build(cls, spec: Any) -> Build:
        """Return the build of a unit of a list: the default one, unless the unit refuses it for its formats."""
        return Build()

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
        in_vectors = {port for ports in self._vectors for port in ports}
        return [*self._vectors, *(name for name in self.inputs if name not in in_vectors)]

    def _add_vectors(self, **vectors: Sequence[str]) -> None:
        """Add members that are lists of ports; those of inputs are vectors of the golden function."""
        for name, ports in vectors.items():
            setattr(self, name, [getattr(self, port) for port in ports])
        self._vectors = [list(ports) for ports in vectors.values() if ports and ports[0] in self.inputs]

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
            return 1 + cycles_of(self._steps, self.build.iterations)
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


def numbered(name: str, count: int) -> list[str]:
    """Return the names of the ports of a vector."""
    return [f"{name}{index}" for index in range(count)]


def word_of(stream: Stream, word: Value, bits: int) -> Value:
    """Return the random word of a stream, in ``bits`` bits, from the word of its source."""
    zeros, places = stream.bits_of(bits)
    picked = Cat(*(word[place] for place in places))
    return Cat(Const(0, zeros), ~picked if stream.complemented else picked)


def is_source(register: str) -> bool:
    """Return True for the register name of an internal random source."""
    return re.match(rf"{SOURCE}\d", register) is not None


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
    if not isinstance(build, Build):
        raise TypeError(f"build of {name} must be a Build, not {type(build).__name__}")
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


def flag_port(spec: UnitSpec) -> dict[str, Any]:
    """Return the port of the exception flags, if the unit has any."""
    return {"flags": unsigned(len(FLAGS))} if spec.flags else {}


def has_only_floats(spec: UnitSpec) -> bool:
    """Return True if all operands and the result of a unit are floats."""
    return all(isinstance(fmt, Float) for fmt in (*spec.operands.values(), spec.result))


def module_name(name: str, build: Build) -> str:
    """Return the name of a Verilog module with the suffix of its build."""
    return verilog_name(f"{name}_{build}" if str(build) else name)


class Arithmetic(Unit):
    """Unit with one rounded result: unpack, compute, round, pack.

    Subclasses implement the exact computation in ``compute``.
    """

    def __init__(self, spec: UnitSpec, *, controls: Sequence[str] = (), **more: Any) -> None:
        self.operands, self.result = spec.operands, spec.result
        super().__init__(
            spec,
            inputs={**spec.operands, **{control: unsigned(1) for control in controls}},
            outputs={"o": spec.result, **flag_port(spec)},
            **more,
        )

    @abstractmethod
    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Compute the exact result of unpacked operands; bits below the rounding position may be merged into sticky.

        The random word is returned unless it is used.
        """

    def logic(self, m: Module) -> None:
        operands = [self.unpacked(m, name) for name in self.operands]
        result, random = self.compute(m, self.word(m), *operands)
        self.connect_results(m, result, random, self.rounding)

    def connect_results(self, m: Module, number: Number, random: Value | None, rounding: Rounding) -> None:
        """Round a number, and connect the ports of its code and its flags."""
        code, flags = self.rounded_with_flags(m, number, random, rounding)
        m.d.comb += self.o.as_value().eq(code)
        if flags is not None:
            m.d.comb += self.flags.eq(flags)


class Unary(Arithmetic):
    """Unit of one number, whose result has its format by default."""

    def __init__(
        self, *, a: Format | str, o: Format | str | None = None, build: Build = Build(), **options: Unpack[Options]
    ) -> None:
        super().__init__(self.SPEC.of(a=a, o=o, **options), build=build)
