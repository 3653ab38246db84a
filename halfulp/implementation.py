"""Units with their builds: component, golden model and exact results; and the short form of the command line."""

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from halfulp.hdl.formats import Rounding
from halfulp.hdl.formats.block import parse_operand
from halfulp.hdl.formats.checks import did_you_mean
from halfulp.hdl.specs import COMPOSED, UNITS, Build, ComposedSpec, PwlSpec, RunningSumSpec, UnitSpec
from halfulp.hdl.specs.formula import VALUES, Role

if TYPE_CHECKING:
    from halfulp.hdl.specs.segments import Segments
    from halfulp.units import Unit

_OPTIONS = {"seed": "random_seed", "o": "to", "function": "fn"}
"""Options that are not called like their field."""

# The first operand has its format beside the unit's name, ``--product`` includes its rounding, and a step has no text.
_WITHOUT_OPTION = "a", "product_rounding", "step"

FIELDS = {
    _OPTIONS.get(item.name, item.name): item.name
    for cls in UNITS.values()
    for item in fields(cls)
    if item.name not in _WITHOUT_OPTION
}
"""Options of the short form, with the field of a description that each sets."""

BUILD = tuple(item.name for item in fields(Build))
"""Options that set fields of a build."""

STRUCTURES = ("dsp", "stochastic", "goal", "structure")
"""Those that have an effect on some units only."""

DEFAULT_FORMAT = "e5m2"
"""Default format of the short form."""


@dataclass(frozen=True)
class Implementation:
    """Unit and build, which together decide the hardware; `halfulp.unit` returns it.

    Parameters
    ----------
    spec : UnitSpec
        Description of the unit, which decides the result bits.
    build : Build
        Structure of the hardware, which changes no result bit.
    """

    spec: UnitSpec
    build: Build = Build()

    @classmethod
    def parse(cls, text: str, **build: Any) -> Self:
        """Parse the text of a unit; ``build`` sets fields of the build."""
        return cls(UnitSpec.parse(text), Build(**build))

    @classmethod
    def of(cls, unit: "Unit") -> Self:
        """Return the implementation of a component."""
        return cls(unit.spec, unit.build)

    @property
    def name(self) -> str:
        """Text of the description in characters of a Verilog name."""
        return self.spec.name

    @property
    def table(self) -> "Segments | None":
        """Segments of a piecewise linear function, fitted or read from a file; None for other units."""
        from halfulp.hdl.fit.store import table_of

        return table_of(self.spec) if isinstance(self.spec, PwlSpec) else None

    def component(self, build: Build | None = None) -> Any:
        """Create the Amaranth component; ``build`` replaces the own build.

        Raises ValueError or TypeError if a field of the build has no effect, a function cannot be fitted, or no number
        of register stages meets the clock.
        """
        from halfulp.units.catalogue import component

        unit = component(self.spec, build or self.build)
        unit.check_clock()
        return unit

    def check_every_cycle(self, what: str) -> None:
        """Raise ValueError if the unit is iterative: ``what`` needs one that accepts operands in every cycle."""
        if self.build.iterations:
            raise ValueError(f"{what} needs a unit that accepts operands in every cycle; remove --iterations")

    @property
    def buildable(self) -> Self:
        """The same unit, with its default build if that is iterative and this one is not: other forms are refused."""
        from halfulp.units.catalogue import CATALOGUE

        if isinstance(self.spec, ComposedSpec):
            return self
        default = CATALOGUE[self.spec.form.unit].unit.default_build(self.spec)
        return self if self.build.iterations or not default.iterations else replace(self, build=default)

    @property
    def without_stages(self) -> Self:
        """The same unit without register stages."""
        return replace(self, build=self.build.with_stages(0))

    def with_spec(self, **changes: Any) -> Self:
        """Return a copy with other fields of the description."""
        return replace(self, spec=replace(self.spec, **changes))

    def with_build(self, **changes: Any) -> Self:
        """Return a copy with other fields of the build."""
        return replace(self, build=replace(self.build, **changes))

    def __str__(self) -> str:
        """Return the text, or with options of the build, the arguments of a command."""
        options = self.build.options
        return shlex.join([self.spec.text, *options]) if options else self.spec.text

    def _repr_html_(self) -> str:
        """Return the inputs as a table for notebooks."""
        return self.spec._repr_html_()

    def command(self, verb: str, *more: str) -> str:
        """Return the command line that runs ``verb`` on this implementation."""
        return shlex.join(["halfulp", verb, self.spec.text, *self.build.options, *more])

    def reference(self, *operands: Any, **words: Any) -> Any:
        """Compute results in the golden model, on tensors of codes.

        Parameters
        ----------
        *operands : Tensor
            Codes in the order of the unit's golden function, such as `halfulp.golden.mac`.
        **words : Tensor
            Random words of stochastic rounding. Default for a unit with a source: the words of the source, where
            element i of the operands is operation i after reset. ``mode`` holds the codes of a rounding that a port
            chooses.

        Raises
        ------
        TypeError, ValueError
            As for the golden function.
        """
        from halfulp import golden

        function = getattr(golden, self.spec.form.unit)
        return function(*operands, **(self._own_words(operands) | words), **self._parameters)

    def exact(self, *codes: Any, **words: Any) -> Any:
        """Compute a result in rational arithmetic, on single codes: slow, and independent of the golden model.

        Parameters
        ----------
        *codes : int
            Codes in the order of the unit's golden function.
        **words : int
            Random words of stochastic rounding, also of a unit with a source, and the code ``mode`` of a rounding that
            a port chooses.

        Raises
        ------
        TypeError, ValueError
            If the number of codes is wrong, or a random word is missing.
        """
        from halfulp.golden import exact

        if self.spec.words and not self.spec.arguments(Role.RANDOM).keys() & words.keys():
            raise ValueError(f"{self} needs random words: {', '.join(self.spec.words)}")
        return getattr(exact, self.spec.form.unit)(*codes, **words, **self._parameters)

    @property
    def _parameters(self) -> dict[str, Any]:
        """Keyword arguments of the golden and the exact function."""
        parameters = self.spec.parameters
        if self.table is None:
            return parameters
        return {"table": self.table} | {name: parameters[name] for name in ("rounding", "saturate")}

    def _own_words(self, operands: tuple[Any, ...]) -> dict[str, Any]:
        """Return the random words of the unit's source for all elements of the operands."""
        if not self.spec.streams:
            return {}
        import torch

        from halfulp.golden.check import broadcast_shape
        from halfulp.golden.random import of_stream

        for operand in operands:
            if not isinstance(operand, torch.Tensor):
                raise TypeError(f"operands must be tensors of codes, not {type(operand).__name__}")
        arguments = zip(operands, self.spec.arguments(*VALUES), strict=False)
        shapes = [
            operand.shape[:-1] if name in self.spec.vectors and operand.dim() else operand.shape
            for operand, name in arguments
        ]
        shape = broadcast_shape(*shapes)
        words = {
            name: of_stream(stream, shape.numel(), self.spec.words[name]).reshape(shape)
            for name, stream in self.spec.streams.items()
        }
        return {
            name: words[ports] if isinstance(ports, str) else torch.stack([words[port] for port in ports], -1)
            for name, ports in self.spec.arguments(Role.RANDOM).items()
        }


def short(unit: str, fmt: str = DEFAULT_FORMAT, **options: Any) -> Implementation:
    """Create the implementation of the short form: a unit's name, a format, and options, of which None is the default.

    Raises TypeError or ValueError if the unit or an option is unknown, or the unit cannot be built.
    """
    known = UNITS | COMPOSED
    if unit not in known:
        hint = did_you_mean(unit, known, f"expected {', '.join(known)}, or a text such as e5m2*e5m2+e6m5.rn")
        raise ValueError(f"unknown unit {unit!r}; {hint}")
    cls = known[unit]
    _refuse_formula(cls, fmt)
    given = {name: value for name, value in options.items() if value is not None}
    build = Build(**{name: given.pop(name) for name in BUILD if name in given})
    taken = [option for option, field in FIELDS.items() if field in _names(cls)]
    for option in given:
        if option not in taken:
            raise ValueError(f"{unit} has no {_typed(option)}; it takes {', '.join(map(_typed, taken))}")
    values = _fields(given)
    if str(values.get("function", "")).endswith(".segments"):
        values |= _saved(values, fmt)
    return Implementation(cls.filled(cls.read_part("a", fmt), **values), build)


def _refuse_formula(cls: type[UnitSpec], fmt: str) -> None:
    """Raise ValueError if a format of the short form is a formula."""
    try:
        cls.read_part("a", fmt)
        return
    except (TypeError, ValueError):
        text = f"{cls.form.unit} {fmt}"
    try:
        UnitSpec.parse(text)
    except (TypeError, ValueError):
        return
    raise ValueError(f"{fmt!r} is a formula, not a format; write the unit and the formula as one text: {text!r}")


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a description that options of the short form set."""
    values = {FIELDS[option]: value for option, value in given.items()}
    if "product" in values:
        # A product format without a rounding mode rounds to nearest.
        text, dot, rounding = values["product"].rpartition(".")
        is_format = not dot or rounding[:1].isdigit()
        values |= {"product": values["product"] if is_format else text}
        values["product_rounding"] = "rn" if is_format else rounding
    return values


def _saved(given: dict[str, Any], fmt: str) -> dict[str, Any]:
    """Return the fields of a table of segments in a file, and add the table to the store."""
    from halfulp.hdl.fit.store import read, segments_of, write

    table = segments_of(read(Path(given["function"])), fmt=fmt, out=given.get("o"))
    write(table)
    return {"function": str(table), "o": table.out}


def implementations(
    unit: str, fmt: str | None = None, *, composed: bool = False, **options: Any
) -> list[Implementation]:
    """Return the implementation of a text or short form; for ``all``, that of each unit that takes the format.

    Raises the errors of `short`, and ValueError if options accompany a text that includes them, or if a unit is
    composed and the command does not take such units.
    """
    found = _implementations(unit, fmt, **options)
    if isinstance(found[0].spec, ComposedSpec) and not composed:
        raise ValueError(
            f"{found[0].spec.form.unit} is composed of units and takes vectors by streams; it has halfulp sim without "
            "--vector and --wave, halfulp synth without --explore and --power, and halfulp emit without wrappers, "
            "packages and flows"
        )
    return found


def _implementations(unit: str, fmt: str | None = None, **options: Any) -> list[Implementation]:
    if unit == "all":
        return _all(DEFAULT_FORMAT if fmt is None else fmt, options)
    if unit.isalnum() and unit.isascii():
        return [short(unit, DEFAULT_FORMAT if fmt is None else fmt, **options)]
    if fmt is not None:
        omitted = f"omit {fmt}" if " " not in fmt else "name one unit, or emit several with --package"
        raise ValueError(f"the text {unit!r} includes its formats; {omitted}")
    spec = UnitSpec.parse(unit)
    if beside := {option: options[option] for option in FIELDS if options.get(option) is not None}:
        raise ValueError(
            f"the text {unit!r} includes all options of results; omit {_typed(next(iter(beside)))}{_with(spec, beside)}"
        )
    given = {name: value for name, value in options.items() if name in BUILD and value is not None}
    return [Implementation(spec, Build(**given))]


def _with(spec: UnitSpec, options: dict[str, Any]) -> str:
    """Return the request to write the text of a description with options; empty if it has them or they do not fit."""
    values = {item.name: getattr(spec, item.name) for item in fields(spec)}
    try:
        text = type(spec).of(**values | _fields(options)).text
    except (TypeError, ValueError):
        return ""
    return "" if text == spec.text else f", and write {text!r}"


def implementation(unit: str, fmt: str | None = None, **options: Any) -> Implementation:
    """Return the implementation of a text or of the short form; see `implementations`."""
    if unit == "all":
        raise ValueError("expected one unit, not all")
    return implementations(unit, fmt, **options)[0]


def _typed(option: str) -> str:
    """Return an option as on the command line."""
    return "--" + {"rounding": "round"}.get(option, option.replace("_", "-"))


def _names(cls: type[UnitSpec]) -> list[str]:
    return [item.name for item in fields(cls) if cls.FLAGS or item.name != "flags"]


def _all(fmt: str, options: dict[str, Any]) -> list[Implementation]:
    rounding = None if (text := options.get("rounding")) is None else Rounding.parse(text, faithful=True)
    result = None if (text := options.get("to")) is None else parse_operand(text)
    built = []
    for unit, cls in UNITS.items():
        if not cls.takes(parse_operand(fmt), rounding) or (result is not None and not cls.gives(result, rounding)):
            continue
        own = {name: value for name, value in options.items() if FIELDS.get(name) in _names(cls)}
        if not cls.has_effect("saturate"):
            own.pop("saturate", None)
        if issubclass(cls, RunningSumSpec) and "acc" in _names(cls) and own.get("acc") != "exact":
            own |= {"to": None, "carry": None}
        if cls.OWN_RESULTS:
            # One format for the results of all units is neither a compound one, nor a block, nor that of a matrix unit.
            own |= {"to": None}
        built.append(_built(unit, fmt, own, {name: options.get(name) for name in BUILD}))
    if not built:
        raise ValueError(f"no unit takes operands in {fmt} with these options")
    return built


def _built(unit: str, fmt: str, own: dict[str, Any], build: dict[str, Any]) -> Implementation:
    """Create the implementation of a unit with only the fields of the build that have an effect.

    A unit without a combinational form has its default build, without register stages.
    """
    for name in STRUCTURES:
        if build[name] is not None:
            try:
                short(unit, fmt, **own, **{name: build[name]}).component()
            except ValueError:
                build[name] = None
    return short(unit, fmt, **own, **build).buildable
