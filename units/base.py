# amaranth: UnusedElaboratable=no
"""Common base of units.

Units are often constructed without being elaborated, to look at their ports. The comment in the first line turns off
Amaranth's warning about them.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

from amaranth.hdl import Module, Shape, Value, unsigned
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.rounding import MODE_BITS
from halfulp.hdl.formats.source import Source, Stream
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.number import Number, pack, pack_with_flags, signalling, truncate, unpack
from halfulp.hdl.round import chosen_by
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.hdl.specs.build import AREA, EAGER, LAZY
from halfulp.tools import html

from .builds import module_name
from .shared import Logic, Sharing, add_part
from .sources import SOURCE, word_of
from .staged import Staged


class Unit(Staged):
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
    stochastic : str
        Structure of stochastic rounding, ``lazy`` or ``eager``.
    fast : bool
        True for the structures of the goals ``speed`` and ``loop``.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range, a rounding is ``exact`` and its format cannot hold every
        result, or a field of ``build`` has no effect on the unit.
    """

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
        self.choose(spec, build, name)
        self.saturate = spec.saturate
        self.stochastic = self.build.stochastic or LAZY
        if spec.flags and self.stochastic == EAGER:
            raise ValueError(f"eager stochastic rounding of {name} has no flags; use lazy")
        self.fast = self.build.goal != AREA
        self.words = spec.words if words is None else words
        self._built: dict[tuple[Module, Source, int], Value] = {}
        self._parts: dict[tuple[Module, str], Logic] = {}
        self.sources = {port: stream for port, stream in spec.streams.items() if port in self.words}
        modes = {"mode": unsigned(MODE_BITS)} if spec.rounding.is_port else {}
        words = {port: unsigned(bits) for port, bits in self.words.items() if port not in self.sources}
        self.inputs, self.outputs = _flat(inputs) | modes | words, _flat(outputs)
        self.name = module_name(name, self.build)
        super().__init__(self._members)
        for vector, ports in (inputs | outputs).items():
            if isinstance(ports, dict):
                setattr(self, vector, [getattr(self, port) for port in ports])
        if "mode" not in self.inputs:
            self.mode = None
        # Inside the unit, the rounding comes with the signal that chooses its mode.
        self.rounding = chosen_by(spec.unit_rounding, self.mode if modes else None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' '.join([self.spec.text, *self.build.options])}>"

    def _repr_html_(self) -> str:
        """Return the ports as a table for notebooks."""
        rows = [
            (
                name,
                member.flow.name.lower(),
                str(shape) if isinstance(shape := member.shape, Format) else Shape.cast(shape).width,
            )
            for name, member in self.signature.members.items()
        ]
        caption = f"{self.name}: {self.spec.text}, latency {self.latency}"
        return html.table(caption, rows, ("port", "direction", "format or bits"))

    @property
    def _members(self) -> dict[str, Any]:
        """Members of the signature."""
        members: dict[str, Any] = {port: In(shape) for port, shape in self.inputs.items()}
        members |= {port: Out(shape) for port, shape in self.outputs.items()}
        if self._has_enable:
            members["en"] = In(1, init=1)
        if self.has_valid:
            members["valid"] = In(1, init=1)
        if self.build.iterations:
            members["ready"] = Out(1)
        return members

    @property
    def title(self) -> str:
        """The unit's text."""
        return self.spec.text

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the unit's golden function."""
        return self.spec.parameters

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
        port: port_shape
        for name, shape in ports.items()
        for port, port_shape in (shape if isinstance(shape, dict) else {name: shape}).items()
    }
