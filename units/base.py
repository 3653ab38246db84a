# amaranth: UnusedElaboratable=no
"""Common base of units.

A unit of a description is often only looked at. Amaranth warns of a component that is never elaborated, but where the
file that constructs it, as this one does in `Unit.of`, says otherwise in its first line.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Self, TypedDict

from amaranth.hdl import Cat, Const, Module, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl import eager
from halfulp.hdl.formats import Rounding
from halfulp.hdl.formats.source import Source, Stream
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.number import Number, pack, truncate, unpack
from halfulp.hdl.pipeline import Pipeline
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.hdl.specs.build import EAGER, LAZY

Computed = tuple[Number, Value | None]
"""An exact result, with the random word that rounds it."""

SOURCE = "random"
"""Beginning of the names of registers of a unit's own sources; a number follows."""


class Options(TypedDict, total=False):
    """Parameters of every unit beside its own.

    Parameters
    ----------
    rounding : Rounding or str
        Rounding of the result; default: ``rn``. ``sr`` modes add the port ``random``.
    random : Lfsr, Plateau or str
        Source of random words in the unit, such as ``lfsr16``; default: ``port``.
    seed : int
        State of that source after reset; default: 1.
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite. Default: false.
    """

    rounding: Rounding | str
    random: Source | str | None
    seed: int
    saturate: bool


class Unit(wiring.Component):
    """A unit of the library.

    Parameters
    ----------
    spec : UnitSpec
        All that decides the result bits. A source of random words in it takes the place of the ports of random words,
        and steps with every operation that is accepted.
    inputs, outputs : dict of str to shape
        Ports besides the clock enable and those of random words.
    name : str, optional
        Module name but for the build; default: that of ``spec``.
    words : dict of str to int, optional
        Ports that take random words, and their widths; default: those of ``spec``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    multiplies : bool
        The unit has products, which DSP blocks can make.
    sums : sequence of eager.Sum
        Sums that the unit rounds, whose stochastic rounding can be lazy or eager.
    structure : str, optional
        Default of ``build.structure``; None where that has no effect.

    Members
    -------
    random : In(rounding.bits)
        Random word of stochastic rounding, sampled with the operands, where the unit has no source of its own.
    en : In(1, init=1)
        Clock enable of all registers, where the unit has any.
    valid : In(1, init=1)
        Presence of operands in this cycle, where the unit has a state or a source of random words.

    Attributes
    ----------
    inputs, outputs : dict of str to shape
        Ports that carry operands (random words included) and results.
    sources : dict of str to Stream
        Substitutes for ports of random words; a word is that of the same cycle.
    build : Build
        Without structures that are the unit's default.
    stochastic : str
        Structure of its stochastic rounding, ``lazy`` or ``eager``.
    stateful : bool
        Results depend on earlier operands.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, a rounding is ``exact`` and its format cannot hold every
        result, or a field of ``build`` has no effect on the unit.
    """

    SPEC: type[UnitSpec] = UnitSpec
    BOUNDARIES: Sequence[str] = ()
    spec: Any
    stateful = False

    def __new__(cls, *args: Any, **options: Any) -> Self:
        unit = super().__new__(cls)
        unit._made_of = (args, options)
        return unit

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the arguments that it was made of, and built anew from them."""
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
    ) -> None:
        name = spec.name if name is None else name
        self.spec, self.rounding, self.saturate = spec, spec.rounding, spec.saturate
        self.build = check_build(build, name, multiplies=multiplies, sums=sums, structure=structure)
        self.stochastic = self.build.stochastic or LAZY
        self.words = spec.words if words is None else words
        self._built: dict[tuple[Module, Source, int], Value] = {}
        self.sources = {port: stream for port, stream in spec.streams.items() if port in self.words}
        self.inputs = inputs | {port: unsigned(bits) for port, bits in self.words.items() if port not in self.sources}
        self.outputs = outputs
        self.name = module_name(name, self.build)
        members: dict[str, Any] = {port: In(shape) for port, shape in self.inputs.items()}
        members |= {port: Out(shape) for port, shape in outputs.items()}
        if self.clocked:
            members["en"] = In(1, init=1)
        if self.has_valid:
            members["valid"] = In(1, init=1)
        super().__init__(members)

    @classmethod
    def of(cls, spec: Any, build: Build = Build()) -> Self:
        """The unit of a description.

        Parameters
        ----------
        spec : UnitSpec or str
            Description of such a unit, or its text.
        build : Build

        Raises
        ------
        TypeError, ValueError
            If the text describes no such unit, or a field of ``build`` has no effect on it.
        """
        spec = cls.SPEC.parse(spec)
        return cls(**{item.name: getattr(spec, item.name) for item in fields(spec)}, build=build)

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
        """True if the unit needs to know the cycles without operands."""
        return self.stateful or bool(self.sources)

    @property
    def clocked(self) -> bool:
        """True if the unit has registers."""
        return self.build.pipeline > 0 or self.has_valid

    @property
    def arguments(self) -> list[str | list[str]]:
        """Operands as the golden function takes them: names of ports, or lists of them for one vector operand."""
        return list(self.inputs)

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result; 0 for a combinational unit."""
        return self.build.pipeline + (1 if self.stateful else 0)

    def start_pipeline(self, m: Module) -> Pipeline:
        """The unit's register stages, for ``elaborate``."""
        enable: Value = self.en if self.clocked else Signal(init=1)
        return Pipeline(
            m,
            stages=self.build.pipeline,
            boundaries=self.BOUNDARIES,
            enable=enable,
            reset_less=self.build.reset_less,
            control=self.valid if self.has_valid else None,
        )

    def rounded(self, m: Module, pipe: Pipeline, number: Number, random: Value | None) -> Value:
        """Code of a number, rounded to the result format, behind the boundaries ``normalised`` and ``packed``."""
        fmt, rounding = self.spec.o, self.rounding
        ready, random = pipe.stage("normalised", truncate(m, number, fmt, rounding), random)
        code: Value = pipe.stage("packed", pack(m, ready, fmt, rounding, self.saturate, random))
        return code

    def word(self, m: Module, name: str = "random") -> Value | None:
        """This cycle's random word: from the port of that name, or from the source that stands in for it."""
        if name not in self.words:
            return None
        if name not in self.sources:
            port: Value = getattr(self, name)
            return port
        stream = self.sources[name]
        word = self._shared_word(m, stream)
        zeros, places = stream.bits_of(self.words[name])
        picked = Cat(*(word[place] for place in places))
        return Cat(Const(0, zeros), ~picked if stream.complemented else picked)

    def _shared_word(self, m: Module, stream: Stream) -> Value:
        """The word of a source, which is built once for all streams of it."""
        key = (m, stream.source, stream.seed)
        if key not in self._built:
            number = len(self._built)
            self._built[key] = source_word(m, stream.source, stream.seed, self.en & self.valid, f"{SOURCE}{number}")
        return self._built[key]


def is_source(register: str) -> bool:
    """True for the name of a register of a unit's own source of random words."""
    return re.match(rf"{SOURCE}\d", register) is not None


def check_build(
    build: Build, name: str, *, multiplies: bool = False, sums: Sequence[eager.Sum] = (), structure: str | None = None
) -> Build:
    """A build without structures that are the default, refused if a field has no effect or cannot be; see `Unit`."""
    if not isinstance(build, Build):
        raise TypeError(f"build of {name} is a Build, not {type(build).__name__}")
    stochastic = [one for one in sums if one.has_structures]
    effects = {"dsp": multiplies, "stochastic": bool(stochastic), "structure": structure is not None}
    effects |= {"reset_less": build.pipeline > 0}
    build.check_effect(name, {field for field, has in effects.items() if has})
    if build.stochastic == EAGER:
        for refusal in filter(None, (one.refusal for one in stochastic)):
            raise ValueError(refusal)
    if build.stochastic == LAZY:
        build = replace(build, stochastic=None)
    return replace(build, structure=None) if build.structure == structure else build


def module_name(name: str, build: Build) -> str:
    """Name of a Verilog module, with the suffix of a build."""
    return re.sub(r"\W", "_", f"{name}_{build}" if str(build) else name)


class Arithmetic(Unit):
    """A unit with one rounded result: unpack, compute, round, pack.

    Subclasses compute the exact result in ``compute``.
    """

    def __init__(self, spec: UnitSpec, *, controls: Sequence[str] = (), **more: Any) -> None:
        self.operands, self.result = spec.operands, spec.result
        super().__init__(
            spec,
            inputs={**spec.operands, **{control: unsigned(1) for control in controls}},
            outputs={"o": spec.result},
            **more,
        )

    def compute(self, m: Module, pipe: Pipeline, random: Value | None, *operands: Number) -> Computed:
        """Exact result of unpacked operands, what lies below the places that rounding looks at merged into sticky.

        The random word travels beside them, and comes back as late as the result.
        """
        raise NotImplementedError

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = self.start_pipeline(m)
        operands = [unpack(m, getattr(self, name).as_value(), fmt, name) for name, fmt in self.operands.items()]
        result, random = self.compute(m, pipe, self.word(m), *operands)
        m.d.comb += self.o.as_value().eq(self.rounded(m, pipe, result, random))
        return m
