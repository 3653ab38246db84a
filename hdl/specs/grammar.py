"""Grammar of unit texts such as ``mac e5m2*e5m2+e6m5.sr10@lfsr16:5``: parses and writes them.

The form of a unit, such as ``mac a*b[=product]+acc[=o]``, consists of fields of its description and operators;
brackets enclose optional parts. The same form parses, writes and documents a text. `halfulp.hdl.formats` parses
formats, rounding modes and random sources.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property, partial
from typing import Any, NoReturn, get_args

from halfulp.hdl.formats.catalogue import BLOCK_NAMES, NAMED, is_block_text, is_format
from halfulp.hdl.formats.checks import did_you_mean, read_number
from halfulp.hdl.formats.rounding import ALL_MODES, Rounding
from halfulp.hdl.formats.saturation import SUFFIXES as SATURATIONS
from halfulp.hdl.formats.saturation import Saturation
from halfulp.hdl.formats.source import parse_source

BARE = "mac"
"""Unit of a text that starts with a formula instead of a name."""

BLOCK_BARE = "blockmac"
"""Unit of a formula whose first operand is a block."""

SUFFIXES = ("rounding", "saturate", "random", "seed")
"""Fields of every description that follow the formula."""

_OPERATORS = "*+/=>,()"
_FORMAT = re.compile(r"(?:\([^()]*\)|[\w:-]|\.(?=[-0-9]))+")
_NAME = re.compile(r"[\w:./-]+")
_SUFFIX = re.compile(r"\.\s*([A-Za-z]\w*)")
_SATURATE = re.compile(rf"\.\s*({'|'.join(SATURATIONS)})\b")
_SOURCE = re.compile(r"@\s*([\w-]+)")
_STATE = re.compile(r":\s*(\w+)")
_WORD = re.compile(r"([a-z_]+)(?:\s*=\s*([^\s=]+))?")
_HEAD = re.compile(r"([A-Za-z_]+)([0-9]*)(?=\s|$)")
_LAST = re.compile(rf"(.*?)([{re.escape(_OPERATORS)}.\s]?)([^{re.escape(_OPERATORS)}.\s]*)", re.DOTALL)
_PART = re.compile(r"\w+|[^\w\s]")


class TextError(ValueError):
    """Invalid text of a unit: the message is one sentence, then the text with a caret below the error.

    Attributes
    ----------
    text : str
    position : int
        Index of the first wrong character.
    sentence : str
    """

    def __init__(self, text: str, position: int, sentence: str) -> None:
        super().__init__(f"{sentence}\n  {text}\n  {' ' * position}^")
        self.text, self.position, self.sentence = text, position, sentence


@dataclass(frozen=True)
class Form:
    """Syntax of the text of a unit.

    Parameters
    ----------
    text : str
        Name of the unit, ``{field}`` if a number belongs to the name, then fields and operators.
    """

    text: str

    @property
    def unit(self) -> str:
        """Name of the unit."""
        return re.split(r"[ {]", self.text, maxsplit=1)[0]

    @property
    def count(self) -> str | None:
        """Field of the number in the name, or None."""
        match = re.search(r"\{(\w+)\}", self.text)
        return match[1] if match else None

    @property
    def formula(self) -> str:
        """Form without the name."""
        return self.text.partition(" ")[2]

    @property
    def groups(self) -> tuple[tuple[bool, tuple[str, ...]], ...]:
        """Parts of the formula in order; each begins with True if it is optional."""
        parts = re.findall(r"\[([^]]+)\]|([^[]+)", self.formula)
        return tuple((bool(optional), tuple(_PART.findall(optional or needed))) for optional, needed in parts)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Fields in the formula."""
        return tuple(part for _, parts in self.groups for part in parts if part not in _OPERATORS)

    def words(self, cls: type) -> dict[str, "Field[Any]"]:
        """Return the fields that follow the formula as options, such as ``carry=7``."""
        used = {*self.parts, *(f"{part}_rounding" for part in self.parts), *SUFFIXES, self.count}
        used |= set() if getattr(cls, "FLAGS", False) else {"flags"}
        return {item.name: item for item in fields(cls) if item.name not in used}

    def write(self, spec: Any, *, explicit: bool = False) -> str:
        """Return the text of a description; ``explicit`` includes default formats."""
        text = f"{self.unit}{getattr(spec, self.count) if self.count else ''} "
        for optional, parts in self.groups:
            if not optional or all(spec.writes(part, explicit) for part in parts if part not in _OPERATORS):
                text += "".join(part if part in _OPERATORS else self._part(spec, part) for part in parts)
        if spec.ROUNDS:
            text += f".{spec.rounding}{spec.saturate.suffix}"
        if spec.random is not None:
            text += f"@{spec.random}" + (f":{spec.seed}" if spec.seed != 1 else "")
        for name, item in self.words(type(spec)).items():
            if (value := getattr(spec, name)) != item.default:
                alone = item.metadata.get("values", {}).get(None) == value
                text += f" {name}" if alone else f" {name}={_word_text(value)}"
        return text

    @staticmethod
    def _part(spec: Any, part: str) -> str:
        rounding = getattr(spec, f"{part}_rounding", None)
        return f"{getattr(spec, part)}" + (f".{rounding}" if rounding is not None else "")


def read(text: str, units: Mapping[str, Any], bare: str = BARE) -> Any:
    """Parse the text of a unit, or its short form: a name and one format, with the defaults of `UnitSpec.filled`.

    Parameters
    ----------
    text : str
    units : mapping of str to type
        Description class of each unit by name.
    bare : str
        Unit of a formula without a name.

    Raises
    ------
    TypeError, ValueError
        If the text is not a string, is invalid (`TextError`), or describes a unit that cannot be built.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected the text of a unit, such as 'mac e5m2*e5m2+e6m5.rn', not {type(text).__name__}")
    if not text.strip():
        raise ValueError("the text of the unit is empty; expected for example 'mac e5m2*e5m2+e6m5.rn'")
    try:
        return _Reader(text, units, bare).read()
    except TextError:
        if (spec := _short(text, units)) is None:
            raise
        return spec


def _short(text: str, units: Mapping[str, Any]) -> Any:
    """Return the description of a short form such as ``mul e5m2``; None if the text is none, or has no description."""
    name, *words = text.split()
    if name not in units or len(words) != 1:
        return None
    cls = units[name]
    try:
        return cls.filled(cls.read_part("a", words[0]))
    except (TypeError, ValueError):
        return None


def continuations(text: str, units: Mapping[str, Any], first: Iterable[str]) -> Iterator[str]:
    """Yield an unfinished text of a unit with each word that may be its last one; ``first`` are those that begin it."""
    match = _LAST.fullmatch(text)
    assert match is not None
    begun, end, word = match.groups()
    name = _HEAD.match(text)
    form = (units.get(name[1] if name else "") or units[BARE]).form
    words: Iterable[str] = (*NAMED, *BLOCK_NAMES, *("exact",) * ("acc" in form.parts))
    if not end:
        words = first
    elif end == ".":
        words = (*(mode for mode in ALL_MODES if mode != "sr"), *SATURATIONS)
    elif end.isspace() and len(begun.split()) > 1:
        words = (f"{option}=" for option in form.words(units[form.unit]))
    yield from (f"{begun}{end}{other}" for other in words if other.startswith(word))


class _Reader:
    """Parser of one text."""

    def __init__(self, text: str, units: Mapping[str, Any], bare: str) -> None:
        self.text, self.units, self.bare = text, units, bare
        self.position = 0
        self.expected: list[str] = []
        self.given: dict[str, Any] = {}
        self.places: dict[str, int] = {}
        self.form = units[bare].form

    def read(self) -> Any:
        cls = self._head()
        self.form = cls.form
        for optional, parts in self.form.groups:
            if not optional or self._at(parts[0]):
                self._parts(cls, parts)
        self._suffixes()
        self._words(cls)
        try:
            return cls(**self.given)
        except (TypeError, ValueError) as error:
            # Point at the last word of the text that the message contains: it is the one that contradicts earlier ones.
            words = re.findall(r"[\w.:-]*\w", str(error))
            self._fail(str(error), max((at for word, at in self.places.items() if word in words), default=0))

    def _head(self) -> Any:
        """Parse the name and return the description class of the unit."""
        self._blanks()
        name = self.text.strip()
        if self.bare == BARE and is_format(name):
            like = f"{name}*{name}+fp32.rn"
            self._fail(f"{name} is a format; a multiply-accumulate has three, such as {like}")
        match = _HEAD.match(self.text, self.position)
        cls = self.units.get(match[1]) if match else None
        if match is not None and cls is not None and cls.form.count and not match[2]:
            self._fail(f"expected a number after {match[1]}, as in {match[1]}4", match.end())
        if match is None or cls is None or bool(match[2]) != bool(cls.form.count):
            after = self.text[match.end() :].strip() if match else "*"
            if match is not None and after[:1] not in [*_OPERATORS, "."]:
                hint = did_you_mean(match[1], self.units, f"the units are {', '.join(self.units)}")
                self._fail(f"unknown unit {match[0]!r}; {hint}")
            return self.units[self._bare()]
        self.position = match.end()
        if cls.form.count:
            self.given[cls.form.count] = int(match[2])
        return cls

    def _bare(self) -> str:
        """Return the unit of a formula without a name; blocks have their own multiply-accumulate."""
        first = _FORMAT.match(self.text, self.position)
        return BLOCK_BARE if self.bare == BARE and first and is_block_text(first[0]) else self.bare

    def _parts(self, cls: Any, parts: tuple[str, ...]) -> None:
        for index, part in enumerate(parts):
            if part in _OPERATORS:
                self._blanks()
                if not self._at(part):
                    self._fail()
                self.position += 1
                self.expected.clear()
                continue
            pattern = _NAME if parts[index + 1 : index + 2] == ("(",) else _FORMAT
            what = f"the format of {part}" if len(part) == 1 else f"the {part}"
            if (match := self._accept(pattern, what)) is None:
                self._fail()
            self.given[part] = self._value(match.start(), partial(cls.read_part, part), match[0])
            if f"{part}_rounding" in cls.__dataclass_fields__:
                suffix = self._accept(_SUFFIX, ".rounding")
                self.given[f"{part}_rounding"] = Rounding.parse("rn") if suffix is None else self._rounding(suffix)

    def _suffixes(self) -> None:
        if suffix := self._accept(_SUFFIX, ".rounding"):
            if suffix[1] not in SATURATIONS:
                self.given["rounding"] = rounding = self._rounding(suffix)
                self._check_one_rounding(rounding)
                suffix = self._accept(_SATURATE, " or ".join(f".{word}" for word in SATURATIONS))
            if suffix is not None:
                self.given["saturate"] = Saturation.of(suffix[1])
        if source := self._accept(_SOURCE, "@source"):
            self.given["random"] = self._value(source.start(1), parse_source, source[1])
            if state := self._accept(_STATE, ":state"):
                self.given["seed"] = self._value(state.start(1), _integer, state[1])

    def _check_one_rounding(self, first: Rounding) -> None:
        """Refuse a second rounding mode behind the first one."""
        self._blanks()
        if (suffix := _SUFFIX.match(self.text, self.position)) is None:
            return
        try:
            second = Rounding.parse(suffix[1], faithful=True)
        except ValueError:
            return
        sentence = f"{first} and {second} are two rounding modes; write one of them"
        if first.is_port or second.is_port:
            port, other = (first, second) if first.is_port else (second, first)
            mode = "port_ro" if "ro" in (other.mode, port.mode.removeprefix("port_")) else "port"
            sentence = f"{first} and {second} are two rounding modes; a port chooses between them as "
            sentence += f".{Rounding(mode, port.bits or other.bits)}"
        self._fail(sentence, suffix.start(1))

    def _words(self, cls: Any) -> None:
        words = self.form.words(cls)
        while True:
            match = self._accept(_WORD, ", ".join(f"{name}=" for name in words) or "the end")
            if match is None:
                break
            name, text = match[1], match[2]
            if name not in words or name in self.given:
                known = f"it has {', '.join(words)}" if words else "it has none"
                unknown = f"{self.form.unit} has no option {name!r}; {known}"
                unknown = cls.refusal_of_flags() if name == "flags" else unknown
                self._fail(f"{name} is given twice" if name in words else unknown, match.start())
            at = self.places[name] = match.start() if text is None else match.start(2)
            self.given[name] = self._value(at, partial(_word, words[name]), text)
        if self.position < len(self.text):
            self._fail()

    def _rounding(self, suffix: "re.Match[str]") -> Rounding:
        rounding: Rounding = self._value(suffix.start(1), partial(Rounding.parse, faithful=True), suffix[1])
        return rounding

    def _blanks(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def _at(self, operator: str) -> bool:
        """Return True if the next character is the operator."""
        self._blanks()
        self.expected.append(f"'{operator}'")
        return self.text[self.position : self.position + 1] == operator

    def _accept(self, pattern: "re.Pattern[str]", what: str) -> "re.Match[str] | None":
        self._blanks()
        match = pattern.match(self.text, self.position)
        if match is None:
            self.expected.append(what)
            return None
        self.position = match.end()
        self.expected.clear()
        return match

    def _value(self, position: int, convert: Callable[[Any], Any], word: str | None) -> Any:
        """Convert a word; errors point at the word."""
        self.places[word or ""] = position
        try:
            return convert(word)
        except (TypeError, ValueError) as error:
            self._fail(str(error), position)

    def _fail(self, sentence: str = "", position: int | None = None) -> NoReturn:
        expected = list(dict.fromkeys(self.expected))
        sentence = sentence or f"expected {' or '.join(expected)} here, as in {self.form.text}[.rounding]"
        raise TextError(self.text, self.position if position is None else position, sentence)


def page(units: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a Markdown page about the grammar."""
    yield from (
        "# The text of a unit",
        "",
        "A text contains all parameters that determine the result bits of a unit: its name, a formula of formats,",
        "suffixes, and options.",
        "",
        "    mac  e5m2*e5m2+e6m5  .sr10  .sat  @lfsr16:5  carry=7",
        "    name formula         rounding saturate source option",
        "",
        "| unit | text | options and their defaults |",
        "|---|---|---|",
    )
    for cls in units.values():
        form = cls.form
        words = ", ".join(
            f"`{name}`" if "values" in item.metadata else f"`{name}={_default(item)}`"
            for name, item in form.words(cls).items()
        )
        yield f"| {cls.SUMMARY} | `{form.text.replace('|', ' ')}` | {words} |"
    yield from (
        "",
        "- Brackets enclose optional parts. " + RESULT_RULE,
        "- A name and one format are the short form, with defaults: `mul e5m2` is `mul e5m2*e5m2.rn`, and `dot e5m2`",
        "  is `dot4 e5m2*e5m2.rn`.",
        f"- A formula without a name is read as `{BARE}`, or as `{BLOCK_BARE}` if its first operand is a block.",
        "- `.rn` and the other rounding modes follow the formula (default: `.rn`; `.sr3` for `sru`). A rounded product",
        "  has its own rounding: `mac fp16*fp16=fp16.rz+fp32.rn`.",
        "- `.port` reads the mode of each operation from an input; `.port_ro_sr8` also allows `ro` and `sr8`.",
        "- `.faithful` gives one of the two numbers next to the exact result of a `function` in a format of more than",
        "  16 bits.",
        "- `.sat` returns the largest finite number on overflow, `.satfinite` also in place of an infinity.",
        "- `@lfsr16` or `@plateau3-rep` is an internal source of random words, `:5` its state after reset (default:",
        "  1). Without a source, random words are an input.",
        "- `flags` adds exception flags, with tiny results detected after rounding; `flags=before`: before it.",
        "- `acc` is a format or `exact`.",
        "- `function` is the name of a function, or of a saved segment table, which ends with a digest.",
        "- Blanks around operators have no meaning.",
        "",
        "`halfulp list formats` lists the texts of formats and blocks.",
    )


RESULT_RULE = "The result format `o` defaults to that of `c`, of the accumulator, or of `a`."


def _default(item: "Field[Any]") -> str:
    return "..." if item.default is None or item.default is MISSING else _word_text(item.default)


def _word_text(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _word(item: "Field[Any]", text: str | None) -> Any:
    """Convert the text of an option to its value."""
    if values := item.metadata.get("values"):
        if text not in values:
            expected = " or ".join(f"{item.name}={value}" for value in values if value)
            raise ValueError(f"expected {item.name}, {expected}, not {item.name}={text}")
        return values[text]
    if text is not None and (read_text := item.metadata.get("read")):
        return read_text(text)
    kind: Any = next((kind for kind in get_args(item.type) if kind is not type(None)), item.type)
    if kind is bool:
        if text not in ("yes", "no", None):
            raise ValueError(f"expected {item.name}=yes or {item.name}=no, not {text!r}")
        return text != "no"
    if text is None:
        raise ValueError(f"expected a value after {item.name}, as in {item.name}={_default(item)}")
    if kind is str:
        return text
    try:
        return read_number(text, kind)
    except ValueError:
        raise ValueError(f"expected a number after {item.name}=, not {text!r}") from None


def _integer(text: str) -> int:
    try:
        return read_number(text, partial(int, base=0))
    except ValueError:
        raise ValueError(f"expected a number as the state of a source, not {text!r}") from None
