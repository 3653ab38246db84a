"""The grammar of units: reads and writes a text such as ``mac e5m2*e5m2+e6m5.sr10@lfsr16:5``.

A unit's form, such as ``mac a*b[=product]+acc[=o]``, names the fields of its description between operators; brackets
enclose parts that may be left out. The same form reads, writes and documents the text. Formats, rounding modes and
random sources are read by `halfulp.hdl.formats`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property, partial
from typing import Any, NoReturn, get_args

from halfulp.hdl.formats.checks import read_number
from halfulp.hdl.formats.rounding import Rounding
from halfulp.hdl.formats.source import parse_source

BARE = "mac"
"""Unit of a text that begins with a formula instead of the name of a unit."""

SUFFIXES = ("rounding", "saturate", "random", "seed")
"""Fields of every description, which follow the formula."""

_OPERATORS = "*+/=>,()"
_FORMAT = re.compile(r"(?:\([^()]*\)|[\w:-]|\.(?=[-0-9]))+")
_NAME = re.compile(r"[\w:./-]+")
_SUFFIX = re.compile(r"\.\s*([A-Za-z]\w*)")
_SATURATE = re.compile(r"\.\s*(sat)\b")
_SOURCE = re.compile(r"@\s*(\w+)")
_STATE = re.compile(r":\s*(\w+)")
_WORD = re.compile(r"([a-z_]+)(?:\s*=\s*([^\s=]+))?")
_HEAD = re.compile(r"([A-Za-z_]+)([0-9]*)(?=\s|$)")
_PART = re.compile(r"\w+|[^\w\s]")


class TextError(ValueError):
    """Text that names no unit: one sentence, then the text with a caret below the place.

    Attributes
    ----------
    text : str
    position : int
        Index of the first character that is wrong.
    """

    def __init__(self, text: str, position: int, sentence: str) -> None:
        super().__init__(f"{sentence}\n  {text}\n  {' ' * position}^")
        self.text, self.position = text, position


@dataclass(frozen=True)
class Form:
    """Syntax of the text of one unit.

    Parameters
    ----------
    text : str
        Name of the unit, ``{field}`` behind it where a number belongs to the name, then fields and operators.
    """

    text: str

    @property
    def unit(self) -> str:
        """Name of the unit."""
        return re.split(r"[ {]", self.text, maxsplit=1)[0]

    @property
    def count(self) -> str | None:
        """Field whose number is part of the name."""
        match = re.search(r"\{(\w+)\}", self.text)
        return match[1] if match else None

    @property
    def formula(self) -> str:
        """The form without the name."""
        return self.text.partition(" ")[2]

    @property
    def groups(self) -> tuple[tuple[bool, tuple[str, ...]], ...]:
        """Parts of the formula in order, each with whether it may be left out."""
        parts = re.findall(r"\[([^]]+)\]|([^[]+)", self.formula)
        return tuple((bool(optional), tuple(_PART.findall(optional or needed))) for optional, needed in parts)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Fields that stand in the formula."""
        return tuple(part for _, parts in self.groups for part in parts if part not in _OPERATORS)

    def words(self, cls: type) -> dict[str, "Field[Any]"]:
        """Fields that follow the formula as words, such as ``carry=7``."""
        used = {*self.parts, *(f"{part}_rounding" for part in self.parts), *SUFFIXES, self.count}
        return {item.name: item for item in fields(cls) if item.name not in used}

    def write(self, spec: Any, *, explicit: bool = False) -> str:
        """Text of a description; ``explicit`` writes formats that are as by default."""
        text = f"{self.unit}{getattr(spec, self.count) if self.count else ''} "
        for optional, parts in self.groups:
            if not optional or all(spec.writes(part, explicit) for part in parts if part not in _OPERATORS):
                text += "".join(part if part in _OPERATORS else self._part(spec, part) for part in parts)
        text += f".{spec.rounding}" + (".sat" if spec.saturate else "")
        if spec.random is not None:
            text += f"@{spec.random}" + (f":{spec.seed}" if spec.seed != 1 else "")
        for name, item in self.words(type(spec)).items():
            if (value := getattr(spec, name)) != item.default:
                text += f" {name}={_word_text(value)}"
        return text

    @staticmethod
    def _part(spec: Any, part: str) -> str:
        rounding = getattr(spec, f"{part}_rounding", None)
        return f"{getattr(spec, part)}" + (f".{rounding}" if rounding is not None else "")


def read(text: str, units: Mapping[str, Any], bare: str = BARE) -> Any:
    """Description of a unit from its text.

    Parameters
    ----------
    text : str
    units : mapping of str to type
        Class of the description of each unit, by name.
    bare : str
        Unit of a formula without a name.

    Raises
    ------
    TypeError, ValueError
        If the text is not a str, is not of the grammar (`TextError`), or describes a unit that cannot be built.
    """
    if not isinstance(text, str):
        raise TypeError(f"a unit is described by a text such as 'mac e5m2*e5m2+e6m5.rn', not {type(text).__name__}")
    if not text.strip():
        raise ValueError("the unit is missing; expected a text such as 'mac e5m2*e5m2+e6m5.rn'")
    return _Reader(text, units, bare).read()


class _Reader:
    """One pass over a text."""

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
            # The last word of the text that the sentence names is the one that does not go with the others.
            words = re.findall(r"[\w.:-]*\w", str(error))
            self._fail(str(error), max((at for word, at in self.places.items() if word in words), default=0))

    def _head(self) -> Any:
        """Class of the unit's description."""
        self._blanks()
        match = _HEAD.match(self.text, self.position)
        cls = self.units.get(match[1]) if match else None
        if match is not None and cls is not None and cls.form.count and not match[2]:
            self._fail(f"expected a number behind {match[1]}, as in {match[1]}4", match.end())
        if match is None or cls is None or bool(match[2]) != bool(cls.form.count):
            after = self.text[match.end() :].strip() if match else "*"
            if match is not None and after[:1] not in [*_OPERATORS, "."]:
                self._fail(f"unknown unit {match[0]!r}; the units are {', '.join(self.units)}")
            return self.units[self.bare]
        self.position = match.end()
        if cls.form.count:
            self.given[cls.form.count] = int(match[2])
        return cls

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
            if suffix[1] != "sat":
                self.given["rounding"] = self._rounding(suffix)
                suffix = self._accept(_SATURATE, ".sat")
            self.given["saturate"] = suffix is not None
        if source := self._accept(_SOURCE, "@source"):
            self.given["random"] = self._value(source.start(1), parse_source, source[1])
            if state := self._accept(_STATE, ":state"):
                self.given["seed"] = self._value(state.start(1), _integer, state[1])

    def _words(self, cls: Any) -> None:
        words = self.form.words(cls)
        while True:
            match = self._accept(_WORD, ", ".join(f"{name}=" for name in words) or "the end")
            if match is None:
                break
            name, text = match[1], match[2]
            if name not in words or name in self.given:
                known = f"it has {', '.join(words)}" if words else "it has none"
                twice = f"{name} stands twice" if name in words else f"{self.form.unit} has no word {name!r}; {known}"
                self._fail(twice, match.start())
            at = self.places[name] = match.start() if text is None else match.start(2)
            self.given[name] = self._value(at, partial(_word, words[name]), text)
        if self.position < len(self.text):
            self._fail()

    def _rounding(self, suffix: "re.Match[str]") -> Rounding:
        rounding: Rounding = self._value(suffix.start(1), Rounding.parse, suffix[1])
        return rounding

    def _blanks(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def _at(self, operator: str) -> bool:
        """True if an operator is next."""
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
        """Value of a word; an error points at the word."""
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
    """Lines of a page of Markdown about the grammar."""
    yield from (
        "# The text of a unit",
        "",
        "A text has all that decides the result bits of a unit. It is the name of the unit, a formula of formats,",
        "suffixes, and words.",
        "",
        "    mac  e5m2*e5m2+e6m5  .sr10  .sat  @lfsr16:5  carry=7",
        "    name formula         rounding saturate source words",
        "",
        "| unit | text | words and their defaults |",
        "|---|---|---|",
    )
    for cls in units.values():
        form = cls.form
        words = ", ".join(f"`{name}={_default(item)}`" for name, item in form.words(cls).items())
        yield f"| {cls.SUMMARY} | `{form.text.replace('|', ' ')}` | {words} |"
    yield from (
        "",
        "- Brackets enclose parts that may be left out. " + RESULT_RULE,
        f"- A formula without a name is that of `{BARE}`.",
        "- `.rn` and the other rounding modes follow the formula (default: `.rn`; `.sr3` for `sru`). A rounded product",
        "  has a rounding of its own: `mac fp16*fp16=fp16.rz+fp32.rn`.",
        "- `.sat` gives the largest finite number on overflow.",
        "- `@lfsr16` or `@plateau3` is a source of random words in the unit, `:5` its state after reset (default: 1).",
        "  Without a source the words are an input.",
        "- `acc` is a format or `exact`.",
        "- `function` is the name of a function, or of a saved table of segments with the digest of its content.",
        "- Blanks around operators do not matter.",
        "",
        "`halfulp list formats` has the texts of formats.",
    )


RESULT_RULE = "The result `o` has the format of `c`, or of the accumulator, or of `a`, where it is left out."


def _default(item: "Field[Any]") -> str:
    return "..." if item.default is None or item.default is MISSING else _word_text(item.default)


def _word_text(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _word(item: "Field[Any]", text: str | None) -> Any:
    """Value of a word of a text."""
    kind: Any = next((kind for kind in get_args(item.type) if kind is not type(None)), item.type)
    if kind is bool:
        if text not in ("yes", "no", None):
            raise ValueError(f"expected {item.name}=yes or {item.name}=no, not {text!r}")
        return text != "no"
    if text is None:
        raise ValueError(f"expected a value behind {item.name}, as in {item.name}={_default(item)}")
    if kind is str:
        return text
    try:
        return read_number(text, kind)
    except ValueError:
        raise ValueError(f"expected a number behind {item.name}=, not {text!r}") from None


def _integer(text: str) -> int:
    try:
        return read_number(text, partial(int, base=0))
    except ValueError:
        raise ValueError(f"expected a number as the state of a source, not {text!r}") from None
