"""Units whose parameters are the fields of a description."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

from amaranth.hdl import unsigned

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.hdl.specs.unit import FLAGS

from .base import Unit
from .docstrings import docstring_of, signature_of


class Described(Unit):
    """Base class of units whose parameters are the fields of a description, and a build.

    Subclasses have the class of the descriptions as ``SPEC``. Their signature and docstring have all parameters and
    members: the fields with their documentation in ``SPEC``, and the sections of their base classes.

    Parameters
    ----------
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **fields
        Fields of ``SPEC``; formats, roundings and random sources may be texts.

    Members
    -------
    flags : Out(5)
        Exception flags, from bit 0 on those of `halfulp.hdl.specs.unit.FLAGS`. Absent without ``flags``.

    Latency
    -------
    ``stages`` cycles.
    """

    SPEC: type[UnitSpec]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        if "SPEC" in own:
            cls.__doc__ = docstring_of(cls)
        if "__init__" in own:
            # Without a signature of the class, its constructor has it.
            cls.__signature__ = None
        elif "SPEC" in own:
            cls.__signature__ = signature_of(cls.SPEC)

    def __init__(
        self, spec: UnitSpec | str | None = None, /, *more: object, build: Build = Build(), **given: Any
    ) -> None:
        self.spec = spec_of(self, (spec, *more), given)
        super().__init__(self.spec, inputs=_inputs_of(self.spec), outputs=self.results, build=build)

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
        return cls(spec, build=build)

    @classmethod
    def default_build(cls, spec: Any) -> Build:
        """Return the build of a unit of a list: the default one, unless the unit refuses it for its formats."""
        return Build()

    @property
    def results(self) -> dict[str, Any]:
        """Shapes of the outputs; see ``outputs`` of `Unit`."""
        return {"o": self.result, **self.flag_port}

    @property
    def result(self) -> Any:
        """Format of the result."""
        return self.spec.result

    @property
    def flag_port(self) -> dict[str, Any]:
        """Port of the exception flags, if the unit has any."""
        return {"flags": unsigned(len(FLAGS))} if self.spec.flags else {}


def spec_of(unit: Any, positional: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
    """Return the description of a unit from the arguments of its constructor.

    Raises TypeError if they are neither a description nor the fields of one by name.
    """
    name, cls = type(unit).__name__, unit.SPEC
    spec, *more = positional
    if more or isinstance(spec, Format):
        words = ", ".join(f"{part}={value!s}" for part, value in zip(cls.form.parts, positional, strict=False))
        raise TypeError(f"{name} takes its fields by name, such as {name}({words})")
    if spec is not None and given:
        raise TypeError(f"{name} takes a description or its fields, not both")
    if wrong := next((field for field in given if field in _BUILD and field not in cls.__dataclass_fields__), None):
        raise TypeError(f"{wrong} of {name} is a field of its build; write build=Build({wrong}={given[wrong]!r})")
    return cls.of_keywords(given, cls.keywords()) if spec is None else cls.parse(spec)


_BUILD = {field.name for field in fields(Build)}


def _inputs_of(spec: UnitSpec) -> dict[str, Any]:
    """Return the shapes of operands and controls by argument of the golden function; see ``inputs`` of `Unit`."""
    shapes: dict[str, Any] = {}
    for port in (*spec.operand_ports, *spec.control_ports):
        shape = unsigned(port.width) if port.fmt is None else port.fmt
        (shapes.setdefault(port.argument, {}) if port.argument else shapes)[port.name] = shape
    return shapes


def vector(name: str, count: int, shape: Any) -> dict[str, Any]:
    """Return the ports of a vector, whose names end with a number."""
    return {f"{name}{index}": shape for index in range(count)}
