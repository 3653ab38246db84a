"""Units with their builds, and the short form of the command line for them."""

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from halfulp.hdl.formats import Rounding, parse
from halfulp.hdl.specs import UNITS, AccumulatorSpec, Build, UnitSpec

FIELDS = {
    name: name
    for name in (
        *("acc", "product", "rounding", "random", "saturate", "b", "c", "k", "order", "carry", "lanes", "sharing"),
        *("increment", "pieces", "error", "breakpoints", "slopes", "terms"),
    )
} | {"random_seed": "seed", "to": "o", "fn": "function"}
"""Options of the short form, and the fields of a description that they give."""

BUILD = tuple(item.name for item in fields(Build))
"""Options that give fields of a build."""

DEFAULT_FORMAT = "e5m2"
"""Format of the short form where none is given."""


@dataclass(frozen=True)
class Implementation:
    """A unit and its build: all that decides its hardware.

    Parameters
    ----------
    spec : UnitSpec
        All that decides the result bits.
    build : Build
        Structure of the hardware; changes no result bit.
    """

    spec: UnitSpec
    build: Build = Build()

    @classmethod
    def parse(cls, text: str, **build: Any) -> Self:
        """Implementation of a unit's text, with fields of the build."""
        return cls(UnitSpec.parse(text), Build(**build))

    @classmethod
    def of(cls, unit: Any) -> Self:
        """Implementation of a component."""
        return cls(unit.spec, unit.build)

    def component(self) -> Any:
        """The component.

        It raises ValueError or TypeError if a field of the build has no effect, or a function has no such fit.
        """
        from halfulp.units.catalogue import component

        return component(self.spec, self.build)

    def with_spec(self, **changes: Any) -> Self:
        """This implementation with other fields of the description."""
        return replace(self, spec=replace(self.spec, **changes))

    def with_build(self, **changes: Any) -> Self:
        """This implementation with other fields of the build."""
        return replace(self, build=replace(self.build, **changes))

    def __str__(self) -> str:
        """The text; with options of the build behind it, the arguments of a command."""
        options = self.build.options
        return shlex.join([self.spec.text, *options]) if options else self.spec.text

    def command(self, verb: str, *more: str) -> str:
        """Command line for this implementation."""
        return shlex.join(["halfulp", verb, self.spec.text, *self.build.options, *more])


def short(unit: str, fmt: str = DEFAULT_FORMAT, **options: Any) -> Implementation:
    """Implementation of the short form: the name of a unit, a format, and options, None where not given.

    It raises TypeError or ValueError if there is no such unit, it has no such option, or it cannot be built.
    """
    if unit not in UNITS:
        raise ValueError(
            f"unknown unit {unit!r}; the units are {', '.join(UNITS)}, and texts such as e5m2*e5m2+e6m5.rn"
        )
    cls = UNITS[unit]
    given = {name: value for name, value in options.items() if value is not None}
    build = Build(**{name: given.pop(name) for name in BUILD if name in given})
    taken = [option for option, field in FIELDS.items() if field in _names(cls)]
    for option in given:
        if option not in taken:
            raise ValueError(f"{unit} has no {_typed(option)}; it takes {', '.join(map(_typed, taken))}")
    found = {FIELDS[option]: value for option, value in given.items()}
    if "product" in found:
        # A format alone is rounded to nearest.
        text, dot, rounding = found["product"].rpartition(".")
        is_format = not dot or rounding[:1].isdigit()
        found |= {"product": found["product"] if is_format else text}
        found["product_rounding"] = "rn" if is_format else rounding
    if str(found.get("function", "")).endswith(".segments"):
        found |= _saved(found, fmt)
    return Implementation(cls.filled(parse(fmt), **found), build)


def _saved(given: dict[str, Any], fmt: str) -> dict[str, Any]:
    """Fields of a table of segments in a file, which is copied to the store of tables."""
    from halfulp.hdl.fit.store import read, segments_of, write

    table = segments_of(read(Path(given["function"])), fmt=fmt, out=given.get("o"))
    write(table)
    return {"function": str(table), "o": table.out}


def implementations(unit: str, fmt: str | None = None, **options: Any) -> list[Implementation]:
    """Implementations of a unit's text, of the short form, or for ``all`` of each unit that takes operands of the
    format, with those of the options that it has.

    It raises errors as `short` does, and ValueError if options stand beside a text that has them.
    """
    if unit == "all":
        return _all(DEFAULT_FORMAT if fmt is None else fmt, options)
    if unit.isalnum() and unit.isascii():
        return [short(unit, DEFAULT_FORMAT if fmt is None else fmt, **options)]
    if fmt is not None:
        raise ValueError(f"the text {unit!r} includes its formats; {fmt} cannot stand beside it")
    if beside := [_typed(option) for option in FIELDS if options.get(option) is not None]:
        raise ValueError(f"the text {unit!r} includes all options of results; {beside[0]} cannot stand beside it")
    given = {name: value for name, value in options.items() if name in BUILD and value is not None}
    return [Implementation.parse(unit, **given)]


def implementation(unit: str, fmt: str | None = None, **options: Any) -> Implementation:
    """The one implementation of a text or of the short form; see `implementations`."""
    if unit == "all":
        raise ValueError("this command takes one unit, and not all")
    return implementations(unit, fmt, **options)[0]


def _typed(option: str) -> str:
    """An option as it is typed."""
    return "--" + {"rounding": "round"}.get(option, option.replace("_", "-"))


def _names(cls: type[UnitSpec]) -> list[str]:
    return [item.name for item in fields(cls)]


def _all(fmt: str, options: dict[str, Any]) -> list[Implementation]:
    rounding = options.get("rounding")
    found = []
    for unit, cls in UNITS.items():
        if not cls.takes(parse(fmt), None if rounding is None else Rounding.parse(rounding)):
            continue
        own = {name: value for name, value in options.items() if FIELDS.get(name) in _names(cls)}
        if issubclass(cls, AccumulatorSpec) and "acc" in _names(cls) and own.get("acc") != "exact":
            own |= {"to": None, "carry": None}
        found.append(_built(unit, fmt, own, {name: options.get(name) for name in BUILD}))
    return found


def _built(unit: str, fmt: str, own: dict[str, Any], build: dict[str, Any]) -> Implementation:
    """The implementation of a unit with those fields of the build that have an effect on it."""
    for name in BUILD[1:]:
        if build[name] is not None:
            try:
                short(unit, fmt, **own, **{name: build[name]}).component()
            except ValueError:
                build[name] = None
    return short(unit, fmt, **own, **build)
