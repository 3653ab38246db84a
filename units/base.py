"""What all units have in common."""

import gc
import re
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Const, Fragment, Module, Signal, UnusedElaboratable, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.source import Source, Stream, check_source, lanes, parse_source
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.number import Number, pack, truncate, unpack
from halfulp.hdl.pipeline import Pipeline

Computed = tuple[Number, Value | None]
"""An exact result, with the random word that rounds it."""

LAZY, EAGER = "lazy", "eager"
"""Structures of stochastic rounding in a floating-point adder: the random word is added after or before the sum is
normalised."""

EAGER_IS_SMALLER = frozenset(
    {
        "add_e5m10_e5m10_e5m10_sr4",
        "add_e5m2_e5m2_e5m2_sr4",
        "mac_e3m2fn_e3m2fn_e6m5_sr4",
        "mac_e4m3fn_e4m3fn_e5m10_sr4",
        "mac_e5m2_e5m2_e6m5_sr4",
        "mac_e5m2_e5m2_e8m7_sr4",
        "mac_e5m2_e5m2_e8m7_sr8",
    }
)
"""Units of fewer lookup tables with the eager structure, which is their default. All others that `halfulp report
adders` measures have as many or more."""

MAX_PIPELINE = 64
"""Most register stages of a unit; more only costs registers."""


class Unit(wiring.Component):
    """A unit of the library.

    Parameters
    ----------
    inputs, outputs : dict of str to shape
        Ports besides the clock enable and those of random words.
    words : dict of str to int
        Ports that take random words, and their widths.
    name : str
        Module name: the unit and the parameters that tell it from others.
    random : Lfsr, Plateau or str
        Where random words come from: ``port``, or a source of the unit's own.
    seed : int
        State of that source after reset.
    pipeline : int
        Register stages, 0 to 64; they change `latency` and no result bit.
    stochastic : str
        Structure of stochastic rounding in a floating-point adder, ``lazy`` or ``eager``; by default the smaller one.
        Changes no result bit.
    dsp : bool
        Whether products are left to DSP blocks. Changes no result bit.
    stateful : bool
        Whether results depend on earlier operands.

    Members
    -------
    en : In(1, init=1)
        Clock enable of all registers, where the unit has any.
    valid : In(1, init=1)
        Whether there are operands in this cycle, where the unit has a state or a source of random words.

    Attributes
    ----------
    inputs, outputs : dict of str to shape
        Ports that carry operands (random words included) and results.
    sources : dict of str to Stream
        What stands in for ports of random words. A source steps with every operation that is accepted, and its word
        is that of the same cycle.
    parameters : dict
        What the golden function of the unit takes by keyword.
    """

    BOUNDARIES: Sequence[str] = ()
    stateful = False

    def __init__(
        self,
        *,
        inputs: dict[str, Any],
        words: dict[str, int],
        outputs: dict[str, Any],
        name: str,
        pipeline: int,
        parameters: dict[str, Any],
        random: Source | str = "port",
        seed: int = 1,
        sharing: str = "own",
        stochastic: str | None = None,
        dsp: bool = False,
    ) -> None:
        if not isinstance(dsp, bool):
            raise TypeError(f"dsp is True or False, not of {type(dsp).__name__}")
        if not isinstance(pipeline, int) or isinstance(pipeline, bool):
            raise TypeError(f"pipeline is an int, not {type(pipeline).__name__}")
        if not 0 <= pipeline <= MAX_PIPELINE:
            raise ValueError(f"pipeline {pipeline} is out of range; a unit has 0 to {MAX_PIPELINE} register stages")
        smaller = EAGER if name in EAGER_IS_SMALLER else LAZY
        self.stochastic = smaller if stochastic is None else check_stochastic(stochastic)
        name += f"_{self.stochastic}" if self.stochastic != smaller else ""
        self.dsp = dsp
        name += "_dsp" if dsp else ""
        self.words = words
        self._built: dict[tuple[Module, Source, int], Value] = {}
        self.source, self.seed = _source(random, seed, words)
        self.sources: dict[str, Stream] = {}
        if self.source is not None:
            self.sources = dict(zip(words, lanes(self.source, len(words), seed, sharing), strict=True))
            name += f"_{self.source}" + (f"_s{seed}" if seed != 1 else "")
        self.inputs = inputs | {port: unsigned(bits) for port, bits in words.items() if port not in self.sources}
        self.outputs = outputs
        self.pipeline = pipeline
        self.parameters = parameters
        self.name = re.sub(r"\W", "_", name) + (f"_p{pipeline}" if pipeline else "")
        members: dict[str, Any] = {port: In(shape) for port, shape in self.inputs.items()}
        members |= {port: Out(shape) for port, shape in outputs.items()}
        if self.clocked:
            members["en"] = In(1, init=1)
        if self.has_valid:
            members["valid"] = In(1, init=1)
        super().__init__(members)
        if self.stochastic == EAGER:
            self._try_to_elaborate()

    def _try_to_elaborate(self) -> None:
        """Have the hardware refused now that some stage of it would refuse when it is made."""
        try:
            Fragment.get(self, None)
        except ValueError as refusal:
            sentence = str(refusal)
            with warnings.catch_warnings():
                # What was begun goes unused, of which Amaranth would warn.
                warnings.simplefilter("ignore", UnusedElaboratable)
                traceback.clear_frames(refusal.__traceback__)
                gc.collect()
            raise ValueError(sentence) from None
        self._built.clear()

    @property
    def has_valid(self) -> bool:
        """Whether a cycle without operands has to be told from others."""
        return self.stateful or bool(self.sources)

    @property
    def clocked(self) -> bool:
        """Whether the unit has registers."""
        return self.pipeline > 0 or self.has_valid

    @property
    def arguments(self) -> list[str | list[str]]:
        """Operands as the golden function takes them: names of ports, or lists of them for one vector operand."""
        return list(self.inputs)

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result; 0 for a combinational unit."""
        return self.pipeline + (1 if self.stateful else 0)

    def start_pipeline(self, m: Module) -> Pipeline:
        """The unit's register stages, for ``elaborate``."""
        enable: Value = self.en if self.clocked else Signal(init=1)
        return Pipeline(m, stages=self.pipeline, boundaries=self.BOUNDARIES, enable=enable)

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
            self._built[key] = source_word(m, stream.source, stream.seed, self.en & self.valid, f"random{number}")
        return self._built[key]


def _source(random: Source | str, seed: int, words: dict[str, int]) -> tuple[Source | None, int]:
    """A unit's own source, or None, refused unless it can give the words that the unit takes."""
    if random == "port":
        if seed != 1:
            raise ValueError(
                f"seed {seed} does nothing where random words come from a port; name a source, such as lfsr16"
            )
        return None, seed
    source = check_source(parse_source(random), words.values())
    return source, source.check_seed(seed)


def random_input(rounding: Rounding) -> dict[str, int]:
    """The port of a rounding's random word and its width, where it takes one."""
    return {"random": rounding.bits} if rounding.bits else {}


def check_stochastic(stochastic: str) -> str:
    """``stochastic`` of a unit, refused unless it is one of the two structures."""
    if not isinstance(stochastic, str):
        raise TypeError(f"stochastic is 'lazy' or 'eager', not of {type(stochastic).__name__}")
    if stochastic not in (LAZY, EAGER):
        raise ValueError(f"unknown structure {stochastic!r} of stochastic rounding; there are lazy and eager")
    return stochastic


def check_adder(stochastic: str | None, rounding: Rounding, *, rounds_sums: bool = True) -> None:
    """Refuse an eager structure where no stochastic rounding is behind an adder."""
    if stochastic is None or check_stochastic(stochastic) == LAZY:
        return
    if rounding.mode != "sr":
        raise ValueError(f"stochastic eager does nothing, for rounding {rounding} is not stochastic; only sr is")
    if not rounds_sums:
        raise ValueError("stochastic eager does nothing, for exact sums are rounded when they are read; make it lazy")


def check_saturate(saturate: bool) -> bool:
    """``saturate`` of a unit, refused unless it is a bool."""
    if not isinstance(saturate, bool):
        raise TypeError(f"saturate is a bool, not {type(saturate).__name__}")
    return saturate


class Arithmetic(Unit):
    """A unit with one rounded result: unpack, compute, round, pack.

    Subclasses list their ``operands`` and say in ``compute`` what the exact result is.
    """

    def __init__(
        self,
        *,
        kind: str,
        operands: dict[str, Format],
        o: Format,
        rounding: Rounding,
        saturate: bool,
        pipeline: int,
        random: Source | str,
        seed: int,
        controls: Sequence[str] = (),
        stochastic: str | None = None,
        dsp: bool = False,
    ) -> None:
        check_adder(stochastic, rounding)
        self.operands = operands
        self.result = o
        self.rounding = rounding
        self.saturate = check_saturate(saturate)
        super().__init__(
            inputs={**operands, **{control: unsigned(1) for control in controls}},
            words=random_input(rounding),
            outputs={"o": o},
            name="_".join([kind, *map(str, operands.values()), str(o), str(rounding)]) + ("_sat" if saturate else ""),
            pipeline=pipeline,
            parameters={**operands, "o": o, "rounding": rounding, "saturate": saturate},
            random=random,
            seed=seed,
            stochastic=stochastic,
            dsp=dsp,
        )

    def compute(
        self, m: Module, pipe: Pipeline, random: Value | None, *operands: Number
    ) -> tuple[Number, Value | None]:
        """Exact result of unpacked operands, what lies below the places that rounding looks at merged into sticky.

        The random word travels beside them, and comes back as late as the result.
        """
        raise NotImplementedError

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = self.start_pipeline(m)
        operands = [unpack(m, getattr(self, name).as_value(), fmt, name) for name, fmt in self.operands.items()]
        result, random = self.compute(m, pipe, self.word(m), *operands)
        ready, random = pipe.stage("normalised", truncate(m, result, self.result, self.rounding), random)
        code = pack(m, ready, self.result, self.rounding, self.saturate, random)
        m.d.comb += self.o.as_value().eq(pipe.stage("packed", code))
        return m
