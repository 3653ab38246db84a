"""Signatures and docstrings of units, from their descriptions and their base classes."""

import re
from collections.abc import Iterator
from inspect import Parameter, Signature, cleandoc
from typing import Any

from halfulp.hdl.specs import Build, UnitSpec

from .base import Unit

_TITLES = ("Formula", "Parameters", "Members", "Raises", "Notes", "Latency", "Source")
"""Sections of the docstring of a unit, in order."""


def signature_of(spec: type[UnitSpec]) -> Signature:
    """Return the signature of the units of a class of descriptions: their fields that have an effect, and a build."""
    build = Parameter("build", Parameter.KEYWORD_ONLY, default=Build(), annotation=Build)
    return Signature([*spec.keywords().values(), build])


def docstring_of(unit: Any) -> str:
    """Return the docstring of a class of units, with the sections of its bases and the fields of its description."""
    sections = {title: text for base in reversed(unit.__mro__) for title, text in _sections(base).items()}
    sections["Members"] = "\n".join(_members(unit))
    if "Parameters" not in _sections(unit):
        sections["Parameters"] = "\n".join(_parameters(unit))
    parts = [f"{title}\n{'-' * len(title)}\n{sections[title]}" for title in _TITLES if title in sections]
    return "\n\n".join([sections[""], *parts]) + "\n"


def _parameters(unit: Any) -> Iterator[str]:
    """Yield the entries of the parameters of a unit: those of its description, and that of its build."""
    spec: type[UnitSpec] = unit.SPEC
    by_name = {**_entries(unit, "Parameters"), **_entries(spec, "Parameters")}
    entries = dict.fromkeys(by_name[name] for name in signature_of(spec).parameters if name in by_name)
    for entry in entries:
        head, *text = entry.splitlines()
        if any(map(spec.is_text, _names(entry))):
            head = re.sub(r" : [^,]+", r"\g<0> or str", head)
        yield "\n".join([head, *text])


def _members(unit: Any) -> Iterator[str]:
    """Yield the entries of the members of a unit: operands, its own ones, and those of its bases."""
    spec: type[UnitSpec] = unit.SPEC
    by_name = _entries(unit, "Members")
    ports = "abc" if issubclass(unit, Unit) else ""
    yield from (f"{name} : In({name})" for name in ports if name in spec.__dataclass_fields__ and name not in by_name)
    absent = {"flags": not spec.FLAGS, "mode": not spec.PORT, "random": not spec.ROUNDS}
    yield from dict.fromkeys(entry for name, entry in by_name.items() if not absent.get(name))


def _entries(cls: type, title: str) -> dict[str, str]:
    """Return the entries of a section of a class and its bases by name; those of the nearest class come first."""
    entries = [re.split(r"\n(?=\S)", _sections(base).get(title, "")) for base in cls.__mro__]
    by_name: dict[str, str] = {}
    for entry in (entry for of_class in entries for entry in of_class if entry):
        for name in _names(entry):
            by_name.setdefault(name, entry)
    return by_name


def _names(entry: str) -> list[str]:
    """Return the names of an entry; those of the ports of a vector, such as ``a0, a1, ...``, have no number."""
    return re.findall(r"[a-z_]+(?=\d*(?:,| :|$))", entry.splitlines()[0].partition(" : ")[0])


def _sections(cls: type) -> dict[str, str]:
    """Return the sections of a docstring by title; the title of the text before them is empty."""
    head, *rest = re.split(r"^([A-Z]\w+)\n-+\n", cleandoc(vars(cls).get("__doc__") or ""), flags=re.M)
    return {"": head.strip(), **{title: text.strip() for title, text in zip(rest[::2], rest[1::2], strict=True)}}
