"""Descriptions of units: immutable data that determines all result bits, with a text form."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, signature
from typing import Any, ClassVar, Self

from halfulp.hdl.formats.base import Family, Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_int, check_one_of
from halfulp.hdl.formats.codebook import Codebook
from halfulp.hdl.formats.rounding import EXACT, MODE_BITS, NOT_FAITHFUL, RN, Rounding
from halfulp.hdl.formats.saturation import OFF, Saturation
from halfulp.hdl.formats.source import Source, Stream, check_source, lanes, parse_source
from halfulp.tools import html

from .formula import VALUES, Call, Formula, Port, Role, Sum, Term, term, vector
from .grammar import BARE, Form, read
from .ranges import ValueRange

AFTER, BEFORE = "after", "before"
"""When a result is tiny: after its rounding with unbounded exponent, or before."""

FLAG_WORDS = {None: AFTER, AFTER: AFTER, BEFORE: BEFORE}
"""Values of the option ``flags`` in a text; it may stand alone."""

FLAGS = ("inexact", "underflow", "overflow", "by_zero", "invalid")
"""Exception flags from bit 0 on, in the order of RISC-V (Unprivileged ISA, "F" extension, register ``fflags``)."""

UNEVALUATED = "IEEE 754 defines none for unevaluated sums"
"""Reason why units of compound numbers have no exception flags."""

UNITS: dict[str, type["UnitSpec"]] = {}
"""Description class of each unit by name; each subclass with a form adds itself."""

COMPOSED: dict[str, type["UnitSpec"]] = {}
"""The same of composed units, which take whole vectors."""

_NOT_OF_RESULTS = ("random", "seed", "k", "lanes", "sharing", "interleave", "every", "length")
"""Fields that functions of the golden model do not take, because they concern the random source, the shape of tensors,
or the order of steps."""


def verilog_name(text: str) -> str:
    """Return a text in the characters of a Verilog name; codebooks, which can be edited, have digests of values."""

    def with_digest(name: re.Match[str]) -> str:
        book = Codebook.from_text(name[0])
        return name[0] if book is None else f"{name[0]}_{book.digest}"

    return re.sub(r"\W", "_", re.sub(r"codebook:\w+", with_digest, text))


@dataclass(frozen=True, kw_only=True)
class UnitSpec:
    """Description of a unit.

    Parameters
    ----------
    rounding : Rounding
        Rounding of the result; default: ``rn``. ``sr`` modes need random words, and ``port`` the code of a mode.
    saturate : Saturation, bool or str
        Return the largest finite number on overflow; an infinite operand stays infinite. With ``satfinite``, infinities
        become the largest finite number too. Default: false.
    random : Source, optional
        Internal source of random words, such as ``lfsr16``; without it they are an input.
    seed : int
        State of the source after reset; default: 1.
    flags : bool or str
        Exception flags: ``after`` (or true) detects tiny results after rounding, ``before`` before it. Default: none.

    Raises
    ------
    TypeError, ValueError
        If a field has the wrong type or is out of range, ``rounding`` is ``exact`` and ``o`` cannot hold every result,
        or ``random`` cannot provide the words.

    Notes
    -----
    ``str()`` returns the text, and `UnitSpec.parse` parses it.
    """

    form: ClassVar[Form]
    registry: ClassVar[dict[str, type["UnitSpec"]]] = UNITS
    SUMMARY: ClassVar[str] = ""
    COMPOUND: ClassVar[tuple[str, ...]] = ()
    """Fields that may have a compound format."""
    BLOCKS: ClassVar[tuple[str, ...]] = ()
    """Fields that are blocks."""
    OWN_RESULTS: ClassVar[bool] = False
    """True if results have a kind of format that those of most units do not have, such as a block."""
    SCALES: ClassVar[bool] = False
    """True if operand and result may be scales of blocks."""
    PORT: ClassVar[bool] = True
    """True if a port may choose the rounding."""
    FAITHFUL: ClassVar[bool] = False
    """True if results may be rounded faithfully."""

    FLAGS: ClassVar[bool] = False
    """True if the unit can have exception flags."""
    NO_FLAGS: ClassVar[str] = "IEEE 754 defines none for its results"
    """Reason in errors why a unit has no exception flags."""
    ROUNDS: ClassVar[bool] = True
    """True if the unit rounds; the text of others has neither a rounding nor ``.sat``."""
    INTEGERS: ClassVar[tuple[str, ...]] = ()
    """Operands that are integers, in fixed point."""
    OPERANDS: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    """Fields that are formats of operands, in order; the ones without a value are absent."""
    CONTROLS: ClassVar[tuple[str, ...]] = ()
    """Ports of one bit that negate a term."""
    TERMS: ClassVar[tuple[Term, ...]] = ()
    """Terms of the rounded sum that is the formula of the unit; without them, it is the function of its name."""

    rounding: Rounding = RN
    saturate: Saturation = OFF
    random: Source | None = None
    seed: int = 1
    flags: bool | str = field(default=False, metadata={"values": FLAG_WORDS})

    def __init_subclass__(cls, form: str | None = None, summary: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if form is not None:
            cls.form, cls.SUMMARY = Form(form), summary
            cls.registry[cls.form.unit] = cls

    def __post_init__(self) -> None:
        self._check_types()
        self.check()
        if "o" in self.__dataclass_fields__ and getattr(self, "o", None) is None:
            object.__setattr__(self, "o", self.default_result)
        for item in fields(self):
            fmt = getattr(self, item.name)
            if not isinstance(fmt, Format):
                continue
            if fmt.parts > 1 and item.name not in self.COMPOUND:
                raise ValueError(
                    f"{item.name} of {self.form.unit} must not be the compound format {fmt}; split and join convert it"
                )
            if not fmt.has_zero and not self.SCALES:
                raise ValueError(f"{item.name} of {self.form.unit} must not be {fmt}, a scale of blocks; convert it")
        if not self.ROUNDS and (self.rounding != RN or self.saturate):
            option = "saturation" if self.saturate else f"rounding {self.rounding}"
            raise ValueError(f"{self.form.unit} rounds nothing, so that the {option} has no effect; omit it")
        if self.rounding.is_port and not self.PORT:
            raise ValueError(f"the rounding {self.rounding} is not possible for {self.form.unit}; choose one mode")
        if self.rounding.is_port and "o" in self.COMPOUND and self.result.parts > 1:
            raise ValueError(
                f"the rounding {self.rounding} is not possible for results in {self.result}; choose a mode"
            )
        self._check_flags()
        if self.random is not None:
            check_source(self.random, self.words.values()).check_seed(self.seed)
        elif self.seed != 1:
            raise ValueError(f"seed {self.seed} does nothing without a random source; add one, such as lfsr16")
        if self.rounding == EXACT and self.results is not None:
            values, what = self.results
            values.check_fits(self.result, what)

    def _check_types(self) -> None:
        # A description of a test or of a unit outside of the catalogue may have no text.
        form = getattr(self, "form", Form("unit"))
        needed = [part for optional, parts in form.groups if not optional for part in parts]
        for name in needed:
            if name in self.__dataclass_fields__ and getattr(self, name) is None:
                raise TypeError(f"{name} of {form.unit} is missing")
        for name in {**self.operands, "o": None, "product": None}:
            fmt = getattr(self, name, None)
            is_block = name in self.block_parts
            if fmt is not None and not (isinstance(fmt, Family) and fmt.shares_scale == is_block):
                kind = "Block" if is_block else "Format"
                raise TypeError(f"{name} of {form.unit} must be a {kind}, not {type(fmt).__name__}")
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name.endswith("rounding") and not isinstance(value, Rounding):
                raise TypeError(f"{item.name} of {form.unit} must be a Rounding, not {type(value).__name__}")
            if isinstance(value, Rounding) and value.faithful and not self.FAITHFUL:
                raise ValueError(NOT_FAITHFUL)
        object.__setattr__(self, "saturate", Saturation.of(self.saturate))
        check_int("seed", self.seed, form.unit)

    def _check_flags(self) -> None:
        if isinstance(self.flags, bool):
            object.__setattr__(self, "flags", AFTER if self.flags else False)
            if not self.flags:
                return
        if not isinstance(self.flags, str):
            kind = type(self.flags).__name__
            raise TypeError(f"flags of {self.form.unit} must be True, False, 'after' or 'before', not {kind}")
        check_one_of("flags", self.flags, (AFTER, BEFORE))
        if not self.FLAGS:
            raise ValueError(self.refusal_of_flags())
        formats = (value for item in fields(self) if isinstance(value := getattr(self, item.name), Format))
        for fmt in formats:
            if not fmt.has_flags:
                raise ValueError(f"{fmt} has no exception flags, which floats and fixed point have; omit flags")

    @property
    def block_parts(self) -> tuple[str, ...]:
        """Fields of this description that are blocks."""
        return self.BLOCKS

    @classmethod
    def refusal_of_flags(cls) -> str:
        """Return the error of a unit without exception flags."""
        return f"{cls.form.unit} has no exception flags: {cls.NO_FLAGS}; omit flags"

    def __str__(self) -> str:
        return self.text

    # The text --------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Text of the description, starting with the name of the unit."""
        return self.form.write(self)

    @property
    def expression(self) -> str:
        """Text without the name of the unit."""
        return self.text.partition(" ")[2]

    @property
    def name(self) -> str:
        """Text in the characters of a Verilog name, with all formats explicit."""
        return verilog_name(self.form.write(self, explicit=True))

    @classmethod
    def parse(cls, text: "str | UnitSpec") -> Self:
        """Parse the text of a description; a description is returned unchanged.

        A formula without the name of a unit is read as one of this class. If the class has no form, or its name has a
        number, it is read as a multiply-accumulate.

        Raises
        ------
        TypeError, ValueError
            If the text is invalid or describes another unit.
        """
        form = getattr(cls, "form", None)
        bare = BARE if form is None or form.count else form.unit
        names = (unit.named(text) for unit in UNITS.values()) if isinstance(text, str) else ()
        known = UNITS | COMPOSED
        spec = text if isinstance(text, UnitSpec) else next(filter(None, names), None) or read(text, known, bare)
        if not isinstance(spec, cls):
            raise ValueError(f"{spec.text} describes the unit {spec.form.unit}, expected {cls.form.text}")
        return spec

    @classmethod
    def named(cls, text: str) -> Self | None:
        """Return the description of a text that is a name and no formula; None for others."""
        return None

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Return the description of the given fields, some as texts; ``random`` may also be ``port``."""
        return cls(**{name: cls._read(name, value) for name, value in given.items()})

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name.endswith("rounding"):
            return None if value is None else Rounding.parse(value, faithful=True)
        if name == "saturate":
            return Saturation.of(value)
        if name == "random":
            return None if value is None or value == "port" else parse_source(value)
        if isinstance(value, str) and (read_text := cls._readers().get(name)):
            return read_text(value)
        is_part = value is not None and not isinstance(value, Format) and name in cls.form.parts
        return cls.read_part(name, value) if is_part else value

    @classmethod
    def is_text(cls, name: str) -> bool:
        """Return True if `of` takes a text for a field."""
        return (
            name.endswith("rounding")
            or name in ("random", "saturate")
            or name in cls.form.parts
            or name in cls._readers()
        )

    @classmethod
    def _readers(cls) -> dict[str, Callable[[str], Any]]:
        """Return the functions that parse the texts of options, by field."""
        return {item.name: item.metadata["read"] for item in fields(cls) if "read" in item.metadata}

    @classmethod
    def keywords(cls) -> dict[str, Parameter]:
        """Return the fields that have an effect, as keyword parameters of a function that takes them as for `of`."""
        return {
            parameter.name: cls._keyword(parameter)
            for parameter in signature(cls).parameters.values()
            if cls.has_effect(parameter.name)
        }

    @classmethod
    def _keyword(cls, field: Parameter) -> Parameter:
        default, annotation = field.default, field.annotation
        annotation = annotation | str if cls.is_text(field.name) else annotation
        annotation = annotation | None if default is None else annotation
        default = str(default) if isinstance(default, Rounding) else default
        return field.replace(kind=Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    @classmethod
    @functools.cache
    def operation_parameters(cls) -> dict[str, Parameter]:
        """Return the fields that the operation of the golden model takes, as for `keywords`."""
        return {name: parameter for name, parameter in cls.keywords().items() if name not in _NOT_OF_RESULTS}

    @classmethod
    def of_keywords(cls, given: Mapping[str, Any], known: Mapping[str, Parameter]) -> Self:
        """Return the description of the given fields; raise TypeError if one is missing or unknown; see `of`."""
        for name in given:
            if name not in cls.__dataclass_fields__ or (name in _NOT_OF_RESULTS and name not in known):
                raise TypeError(f"{cls.form.unit} has no parameter {name}; its parameters are {', '.join(known)}")
        for name, parameter in known.items():
            if name not in given and parameter.default is parameter.empty:
                raise TypeError(f"{name} of {cls.form.unit} is missing; its parameters are {', '.join(known)}")
        return cls.of(**given)

    @classmethod
    def has_effect(cls, name: str) -> bool:
        """Return True if a field may have another value than its default."""
        return cls.FLAGS if name == "flags" else cls.ROUNDS or name not in UnitSpec.__dataclass_fields__

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        """Parse one part of the formula."""
        return parse(text)

    def writes(self, part: str, explicit: bool) -> bool:
        """Return True if the text includes an optional part."""
        value = getattr(self, part)
        return value is not None and (part != "o" or explicit or value != self.default_result)

    # The short form --------------------------------------------------------------------------------------------

    @classmethod
    def filled(cls, a: Format, **given: Any) -> Self:
        """Return the description with the given fields and the defaults of the short form; see `of`."""
        defaults = {name: default for name, default in cls.defaults(a).items() if name not in given}
        return cls.of(a=a, **{name: default() for name, default in defaults.items()}, **given)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        """Return the optional fields of the short form, with functions that compute their values."""
        return {"b": lambda: a} if "b" in cls.__dataclass_fields__ else {}

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """Return True if the unit accepts operands of a format, and a rounding if one is given."""
        if not cls.takes_rounding(rounding):
            return False
        return not fmt.shares_scale and fmt.parts == 1 and (cls.SCALES or fmt.has_zero)

    @classmethod
    def takes_rounding(cls, rounding: Rounding | None) -> bool:
        """Return True if the unit rounds in a way, or if none is given."""
        if rounding is None or rounding.is_port or rounding.faithful:
            return rounding is None or (cls.PORT if rounding.is_port else cls.FAITHFUL)
        return cls.ROUNDS or rounding == RN

    @classmethod
    def gives(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """Return True if results may have a format and a rounding, or have a kind of format of their own."""
        return cls.OWN_RESULTS or (not fmt.shares_scale and (fmt.parts == 1 or "o" in cls.COMPOUND))

    # The computation -------------------------------------------------------------------------------------------

    @property
    def operands(self) -> dict[str, Format]:
        """Formats of the operands by name."""
        return {name: fmt for name in self.OPERANDS if (fmt := getattr(self, name, None)) is not None}

    @property
    def result(self) -> Format:
        """Format of the result."""
        fmt: Format = self.o  # type: ignore[attr-defined]  # a field of every subclass
        return fmt

    @property
    def first_format(self) -> Format:
        """Format of the first operand, or the first format of a unit with several."""
        return self.operands["a"]

    @property
    def default_result(self) -> Format:
        """Format of the result if none is given."""
        return self.first_format

    def check(self) -> None:
        """Check the fields of the subclass; raise TypeError or ValueError."""

    @property
    def results(self) -> tuple[ValueRange, str] | None:
        """Range of the exact results and their description in errors; None if the rounding is never exact."""
        return (self.exact_range, f"result of {self.text}") if self.TERMS else None

    @property
    def exact_range(self) -> ValueRange:
        """Range of the exact results of a formula whose sums are of products of operands and of earlier sums."""
        spans = {name: ValueRange.of(fmt) for name, fmt in self.operands.items()}
        for step in self.formula.sums:
            span = spans[step.name] = step.range(spans)
        return span

    @property
    def entries(self) -> dict[str, dict[str, Format]]:
        """Ports that take the entries of two matrices in a step of an array, with their formats, low bits first.

        There are none if arrays do not take the unit.
        """
        return {}

    def entry_bits(self, name: str) -> int:
        """Return the width of an entry of matrix ``a`` or ``b``."""
        return sum(fmt.width for fmt in self.entries[name].values())

    @property
    def formula(self) -> Formula:
        """Formula of the unit."""
        call = Call(self.form.unit, tuple(self.operands))
        return Formula((self.rounded(*(self.TERMS or (term(call),))),))

    def rounded(self, *terms: Term, name: str = "o", word: str = "random", **more: Any) -> Sum:
        """Return a sum that is rounded as the result."""
        return Sum(name, terms, self.rounding, self.result, word if self.rounding.bits else None, **more)

    @property
    def ports(self) -> tuple[Port, ...]:
        """Inputs in order, with the random words that an internal source replaces."""
        mode = (Port("mode", MODE_BITS, Role.MODE),) if self.rounding.is_port else ()
        return (*self.operand_ports, *self.control_ports, *mode, *self.word_ports)

    def _repr_html_(self) -> str:
        """Return the inputs as a table for notebooks."""
        rows = [(port.name, port.role.name.lower() if port.role else "", port.shape) for port in self.ports]
        return html.table(f"{self.text}: {self.SUMMARY}", rows, ("input", "role", "format or bits"))

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        """Ports of the numbers and their indices."""
        return tuple(Port(name, fmt, Role.OPERAND) for name, fmt in self.operands.items())

    @property
    def control_ports(self) -> tuple[Port, ...]:
        """Ports that follow the operands."""
        return tuple(Port(name, 1, Role.CONTROL) for name in self.CONTROLS)

    @property
    def word_ports(self) -> tuple[Port, ...]:
        """Ports of the random words of an operation, in source order."""
        return (Port("random", self.rounding.bits, Role.RANDOM),) if self.rounding.bits else ()

    def words_of(self, count: int) -> tuple[Port, ...]:
        """Return the ports of the random words of several roundings."""
        return vector("random", count, self.rounding.bits, Role.RANDOM) if self.rounding.bits else ()

    def arguments(self, *roles: Role) -> dict[str, str | list[str]]:
        """Return the ports with some roles by argument of the golden function: one, or a list for a vector."""
        ports: dict[str, Any] = {}
        for port in (port for port in self.ports if port.role in roles):
            if port.argument:
                ports.setdefault(port.argument, []).append(port.name)
            else:
                ports[port.name] = port.name
        return ports

    @property
    def vectors(self) -> list[str]:
        """Arguments of the golden function whose last dimension has the elements of one operation."""
        vectors = (name for name, ports in self.arguments(*VALUES).items() if isinstance(ports, list))
        return [name for name in vectors if name not in self.operands or self.operands[name].parts == 1]

    @property
    def words(self) -> dict[str, int]:
        """Widths of the random words of an operation, in source order."""
        return {port.name: port.width for port in self.word_ports}

    @property
    def unit_rounding(self) -> Rounding:
        """Rounding with the discarded bits that the flags need."""
        return self.flagged(self.rounding)

    def flagged(self, rounding: Rounding) -> Rounding:
        """Return a rounding with the discarded bits that the flags need: one more tells if the result is tiny."""
        return replace(rounding, guard=1) if self.flags == AFTER else rounding

    @property
    def streams(self) -> dict[str, Stream]:
        """Random words from the internal source, by port name."""
        if self.random is None:
            return {}
        count, sharing = len(self.words), getattr(self, "sharing", "own")
        seeds = self.random.seeds(getattr(self, "interleave", 1), self.seed)
        first, *others = (lanes(self.random, count, seed, sharing) for seed in seeds)
        dealt = (
            replace(own, others=tuple(stream.seed for stream in more))
            for own, *more in zip(first, *others, strict=True)
        )
        return dict(zip(self.words, dealt, strict=True))

    @property
    def without_source(self) -> Self:
        """Same computation with random words as inputs."""
        own: dict[str, Any] = {"sharing": "own"} if hasattr(self, "sharing") else {}
        return replace(self, random=None, seed=1, **own)

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the golden function."""
        unused = _NOT_OF_RESULTS if self.flags else (*_NOT_OF_RESULTS, "flags")
        unused = unused if self.ROUNDS else (*unused, "rounding", "saturate")
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in unused}
