# amaranth: UnusedElaboratable=no
"""Composed units: a function of a whole vector, by passes of its elements through other units and a memory.

The steps of the description are in passes. The first pass takes the elements from the input; each other one reads the
values that it needs from memories, once the maximum or the sum of the pass before is complete. Units are constructed to
look at their ports; the comment in the first line turns off Amaranth's warning about them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from halfulp.hdl.specs import (
    AccumulateSpec,
    Build,
    CompareSpec,
    ComposedSpec,
    LayernormSpec,
    RmsnormSpec,
    SoftmaxSpec,
)
from halfulp.hdl.specs.composed import COUNT, Step

from .accumulate import Accumulate
from .arithmetic import Add, Mul
from .base import Unit
from .builds import module_name
from .compare import Compare
from .convert import Convert
from .described import spec_of
from .division import Div, Rsqrt
from .docstrings import docstring_of, signature_of
from .function import Function
from .pwl import Pwl

_UNITS: dict[type, Any] = {
    unit.SPEC: unit for unit in (Accumulate, Add, Compare, Convert, Div, Function, Mul, Pwl, Rsqrt)
}
"""Units of steps, by the classes of their descriptions."""


@dataclass(frozen=True)
class Timed:
    """Value of a composed unit: pass and clock cycle in which it is there.

    Attributes
    ----------
    when : int
        Pass that computes it.
    delay : int
        Clock cycles from an element to its value, or from the last element to a number of the whole vector.
    whole : bool
        It is one number of the whole vector, which stays until the next vector.
    """

    when: int
    delay: int
    whole: bool = False


class Composed(wiring.Component):
    """Base class of composed units, which take the elements of a vector one by one.

    A vector of 1 to ``length`` elements ends with the element whose ``last`` is 1, or with element number ``length``.
    The unit takes the next vector after the last result of the one before.

    Parameters
    ----------
    build : Build
        Register stages of each step, by number or for a clock, with one more register behind each step, so that no path
        has parts of two; and DSP blocks. Changes ``latency`` and no result bit.
    **fields
        Fields of ``SPEC``; formats and roundings may be texts.

    Members
    -------
    i : In(stream.Signature(StructLayout(fields)))
        Elements: ``a``, then ``gain`` and ``bias`` if they have formats, and ``last``.
    o : Out(stream.Signature(StructLayout(fields)))
        Results ``o`` in order, with ``last``. Stable while ``valid`` is 1 and ``ready`` is 0.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range, or a field of ``build`` has no effect.

    Latency
    -------
    ``cycles(n)`` clock cycles from the first of n elements to the last result, without gaps and back-pressure.
    """

    SPEC: type[ComposedSpec]
    clocked = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__signature__ = signature_of(cls.SPEC)
        cls.__doc__ = docstring_of(cls)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        # Called from this file, whose first line turns off the warning about components that are not elaborated.
        return super().__new__(cls)

    def __init__(self, spec: Any = None, /, *more: object, build: Build = Build(), **given: Any) -> None:
        self.spec: Any = spec_of(self, (spec, *more), given)
        if not isinstance(build, Build):
            raise TypeError(f"build of {self.spec.name} must be a Build, not {type(build).__name__}")
        build.check_effect(self.spec.form.unit, ["dsp", *["target", "reset_less"] * build.has_stages])
        self.build, self.name = build, module_name(self.spec.name, build)
        self.steps = {step.name: self._unit(step) for step in self.spec.steps}
        if build.dsp and not any(unit.build.dsp for unit in self.steps.values()):
            raise ValueError(f"dsp has no effect on {self.spec.text}, which multiplies nothing; omit it")
        self.timed = self._schedule()
        self.passes = self.timed[self.spec.result_name].when + 1
        beside = {"last": unsigned(1)}
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout({**self.spec.operands, **beside}))),
                "o": Out(stream.Signature(data.StructLayout({"o": self.spec.o, **beside}))),
            }
        )

    @classmethod
    def of(cls, spec: Any, build: Build = Build()) -> Self:
        """Return the unit of a description or of its text."""
        return cls(spec, build=build)

    @property
    def title(self) -> str:
        """The unit's text."""
        return str(self.spec.text)

    def _unit(self, step: Step) -> Any:
        """Return the unit of a step; the maximum has a register of its own, and no stages."""
        cls = _UNITS[type(step.spec)]
        if cls is Compare:
            return cls.of(step.spec)
        build = replace(self.build, dsp=False)
        unit: Unit = cls.of(step.spec, build)
        uses_dsp = self.build.dsp and cls is not Accumulate and unit.multiplies
        return cls.of(step.spec, replace(build, dsp=True)) if uses_dsp else unit

    def check_clock(self) -> None:
        """Raise ValueError if no number of register stages meets the clock of the build."""
        for unit in self.steps.values():
            unit.check_clock()

    @property
    def stages(self) -> int:
        """Register stages of the step that has most."""
        return max(unit.stages for unit in self.steps.values())

    @property
    def model_mhz(self) -> float:
        """Clock in MHz of the slowest step by the delay model of the target, between registers at all ports."""
        return min(unit.model_mhz for unit in self.steps.values())

    # The schedule ----------------------------------------------------------------------------------------------------

    def _schedule(self) -> dict[str, Timed]:
        """Return pass and delay of all values."""
        timed = {name: Timed(0, 0) for name in self.spec.operands}
        timed |= {name: Timed(0, 0, whole=True) for name in (*self.spec.constants, COUNT)}
        for step in self.spec.steps:
            operands = [timed[name] for name in step.operands]
            whole = all(operand.whole for operand in operands)
            # Numbers of whole vectors are there in the next pass, except for others of their kind.
            when = max(operand.when + (operand.whole and not whole and operand.delay > 0) for operand in operands)
            delay = max(
                (operand.delay for operand in operands if operand.when == when and operand.whole == whole), default=0
            )
            timed[step.name] = Timed(when, delay + self._latency_of(step), whole or step.reduces)
        return timed

    def _latency_of(self, step: Step) -> int:
        """Return the clock cycles of a step; behind stages is a register, because a clock is that between registers."""
        return 1 if isinstance(step.spec, CompareSpec) else self.steps[step.name].latency + self.build.has_stages

    @property
    def _stored(self) -> dict[str, int]:
        """Values that memories hold, with the last pass that reads each."""
        stored: dict[str, int] = {}
        for step in self.spec.steps:
            for name in step.operands:
                value, when = self.timed[name], self._pass_of(step)
                if not value.whole and value.when < when:
                    stored[name] = max(when, stored.get(name, 0))
        return dict(sorted(stored.items(), key=lambda item: self.timed[item[0]].when))

    def _pass_of(self, step: Step) -> int:
        return self.timed[step.name].when

    def _drain(self, when: int) -> int:
        """Return the clock cycles from the last element of a pass until its values are complete."""
        return max(value.delay for value in self.timed.values() if value.when == when)

    @property
    def latency(self) -> int:
        """Clock cycles from the first element to the last result of a vector of ``length`` elements, as `cycles`."""
        return self.cycles(self.spec.length)

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the unit's golden function."""
        return dict(self.spec.parameters)

    def cycles(self, count: int) -> int:
        """Return the clock cycles from the first of some elements to the last result, without gaps."""
        between = sum(self._drain(when) + 1 for when in range(self.passes - 1))
        return self.passes * count + between + self.timed[self.spec.result_name].delay

    # The circuit -----------------------------------------------------------------------------------------------------

    def elaborate(self, platform: object) -> Module:
        m = self.m = Module()
        self.when, self.advance = Signal(range(self.passes), name="pass_number"), Signal()
        self._control()
        self._memories()
        self.values: dict[str, Value] = {name: Value.cast(self.i.payload[name]) for name in self.spec.operands}
        self.values |= {name: Const(code, fmt.width) for name, (code, fmt) in self.spec.constants.items()}
        self.values[COUNT] = self.count
        for step in self.spec.steps:
            self._add(step)
        for name, (port, _) in self.memories.items():
            value = self.timed[name]
            enabled, address = self._there("valid", value) & self.advance, self._beside("index", value.delay)
            with m.If(enabled):
                m.d.comb += [port.en.eq(1), port.addr.eq(address), port.data.eq(self.values[name])]
        last = self.timed[self.spec.result_name]
        m.d.comb += [
            self.o.valid.eq(self._there("valid", last)),
            Value.cast(self.o.payload.o).eq(self.values[self.spec.result_name]),
            self.o.payload.last.eq(self._beside("last", last.delay)),
        ]
        return m

    def _control(self) -> None:
        """Add the counter of elements and the passes."""
        m, length = self.m, self.spec.length
        self.count, index, ended = Signal(length.bit_length()), Signal(range(max(length, 2))), Signal()
        taking = Signal()
        m.d.comb += [
            self.advance.eq(self.o.ready | ~self.o.valid),
            taking.eq((self.when == 0) & ~ended),
            self.i.ready.eq(taking),
        ]
        arrives, issues = Signal(), Signal()
        m.d.comb += [arrives.eq(taking & self.i.valid), issues.eq((self.when != 0) & ~ended)]
        last = Signal()
        m.d.comb += last.eq(Mux(taking, self.i.payload.last | (index == length - 1), index + 1 == self.count))
        with m.If((arrives | issues) & self.advance):
            m.d.sync += [index.eq(Mux(last, 0, index + 1)), ended.eq(last)]
            with m.If(taking):
                m.d.sync += self.count.eq(index + 1)
        self.issued = index
        # Elements of later passes come one cycle after their addresses.
        beside = {"valid": (arrives, issues), "first": (index == 0, index == 0), "last": (last, last)}
        self.beside: dict[str, list[Value]] = {}
        self.ends = Signal()
        for name, (now, address) in {**beside, "index": (index, index)}.items():
            read = Signal(len(address), name=f"{name}_read")
            with m.If(self.advance):
                m.d.sync += read.eq(address)
            here = Signal(len(address), name=f"{name}_stage0")
            m.d.comb += here.eq(Mux(self.when == 0, now, read))
            self.beside[name] = [here]
        for when in range(self.passes):
            value = Timed(when, self._drain(when)) if when < self.passes - 1 else self.timed[self.spec.result_name]
            following = when + 1 if when < self.passes - 1 else 0
            with m.If(self._there("valid", value) & self._beside("last", value.delay) & self.advance):
                m.d.comb += self.ends.eq(1)
                m.d.sync += [self.when.eq(following), ended.eq(0)]

    def _beside(self, name: str, delay: int) -> Value:
        """Return a signal that travels beside the elements of a pass, after some cycles."""
        return self._delayed(self.beside[name], name, delay)

    def _delayed(self, stages: list[Value], name: str, delay: int) -> Value:
        while len(stages) <= delay:
            later = Signal(len(stages[-1]), name=f"{name}_stage{len(stages)}")
            with self.m.If(self.advance):
                # The last element of a pass is valid in no later pass, which may have more stages.
                self.m.d.sync += later.eq(stages[-1] & ~self.ends if name == "valid" else stages[-1])
            stages.append(later)
        return stages[delay]

    def _there(self, name: str, value: Timed) -> Value:
        """Return a signal that travels beside the elements, in the cycle and the pass of a value."""
        return self._beside(name, value.delay) & (self.when == value.when)

    def _memories(self) -> None:
        """Add the memories; a value takes the place of another one that no later pass reads."""
        m, free = self.m, list[tuple[int, list[str]]]()
        widths = self.spec.widths
        for name, until in self._stored.items():
            place = next((place for place, (end, _) in enumerate(free) if end <= self.timed[name].when), None)
            if place is None:
                free.append((until, [name]))
            else:
                free[place] = (until, [*free[place][1], name])
        self.memories: dict[str, tuple[Any, Value]] = {}
        for place, (_, names) in enumerate(free):
            memory = Memory(
                shape=unsigned(max(widths[name] for name in names)), depth=max(self.spec.length, 2), init=[]
            )
            m.submodules[f"memory{place}"] = memory
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [read.addr.eq(self.issued), read.en.eq(self.advance)]
            self.memories |= {name: (write, read.data[: widths[name]]) for name in names}
        self.read: dict[str, list[Value]] = {name: [value] for name, (_, value) in self.memories.items()}
        self.here: dict[str, list[Value]] = {}

    def _operand(self, name: str, when: int, delay: int) -> Value:
        """Return a value in a pass, after some cycles."""
        value = self.timed[name]
        if value.whole:
            return self.values[name]
        if value.when < when:
            return self._delayed(self.read[name], f"{name}_read", delay)
        stages = self.here.setdefault(name, [self.values[name]])
        return self._delayed(stages, name, delay - value.delay)

    def _add(self, step: Step) -> None:
        """Add the unit of a step, and the maximum's register."""
        m, unit, value = self.m, self.steps[step.name], self.timed[step.name]
        m.submodules[step.name] = unit
        delay = value.delay - self._latency_of(step)
        codes = [self._operand(name, value.when, delay) for name in step.operands]
        at = Timed(value.when, delay)
        if isinstance(step.spec, CompareSpec):
            best = Signal(step.spec.result.width, name=f"{step.name}_best")
            m.d.comb += [Value.cast(unit.a).eq(best), Value.cast(unit.b).eq(codes[0])]
            first = self._beside("first", delay)
            with m.If(self._there("valid", at) & self.advance):
                m.d.sync += best.eq(Mux(first, codes[0], Value.cast(unit.maximum)))
            self.values[step.name] = best
            return
        ports = [*step.spec.operands, *step.spec.CONTROLS]
        for port, code in zip(ports, _with(codes, step.controls), strict=False):
            m.d.comb += Value.cast(getattr(unit, port)).eq(code)
        if isinstance(step.spec, AccumulateSpec):
            m.d.comb += [unit.valid.eq(self._there("valid", at)), unit.clear.eq(self._beside("first", delay))]
        if "en" in unit.signature.members:
            m.d.comb += unit.en.eq(self.advance)
        self.values[step.name] = Value.cast(unit.o)
        if self.build.has_stages:
            self.values[step.name] = held = Signal(step.spec.result.width, name=f"{step.name}_held")
            with m.If(self.advance):
                m.d.sync += held.eq(Value.cast(unit.o))


def _with(codes: Iterable[Value], controls: Iterable[int]) -> list[Value]:
    """Return codes, and the values of controls."""
    return [*codes, *(Const(control, 1) for control in controls)]


class SoftMax(Composed):
    """Softmax of a vector, rounded in each step.

    Formula
    -------
    ``m = max(a)``, ``d = round(a - m)``, ``e = round(exp(d))``, ``s = sum(e)``, ``o = round(e / s)``

    Notes
    -----
    Three passes. A vector with NaN or +inf, or of -inf only, gives NaN, as in torch; -inf beside numbers gives 0.

    Source
    ------
    Subtraction of the maximum: Milakov and Gimelshein, arXiv:1805.02867, 2018.
    """

    SPEC = SoftmaxSpec


class RmsNorm(Composed):
    """Vector divided by its root mean square, rounded in each step.

    Formula
    -------
    ``q = round(a * a)``, ``v = round(sum(q) / n)``, ``r = round(1 / sqrt(round(v + eps)))``, ``y = round(a * r)``,
    ``o = round(y * gain)``

    Notes
    -----
    Two passes. NaN and infinities give NaN in all results, except that finite elements beside an infinity give 0.

    Source
    ------
    Zhang and Sennrich, NeurIPS 2019.
    """

    SPEC = RmsnormSpec


class LayerNorm(Composed):
    """Vector normalised to mean 0 and variance 1, rounded in each step.

    Formula
    -------
    ``m = round(sum(a) / n)``, ``d = round(a - m)``, ``q = round(d * d)``, ``v = round(sum(q) / n)``,
    ``r = round(1 / sqrt(round(v + eps)))``, ``y = round(d * r)``, ``z = round(y * gain)``, ``o = round(z + bias)``

    Notes
    -----
    Three passes. NaN and infinities give NaN in all results.

    Source
    ------
    Ba, Kiros and Hinton, arXiv:1607.06450, 2016.
    """

    SPEC = LayernormSpec
