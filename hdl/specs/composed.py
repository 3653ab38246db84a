"""Descriptions of composed units: a function of a whole vector as steps of other units, each with its own rounding."""

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.formats.fixed import Fixed
from halfulp.hdl.formats.rounding import EXACT, MODES, RN, Rounding
from halfulp.hdl.formats.saturation import OFF, SATFINITE, Saturation

from .accumulate import AccumulateSpec
from .arithmetic import AddSpec, MulSpec
from .compare import CompareSpec
from .convert import ConvertSpec
from .division import DivSpec, RsqrtSpec
from .formula import Call, Formula, Function, Sum, Term, term
from .function import MAX_WIDTH, FunctionSpec
from .pwl import PwlSpec
from .ranges import ValueRange
from .unit import COMPOSED, UnitSpec

MAX_LENGTH = 1 << 16
"""Maximum number of elements of a vector."""

LENGTH = 64
"""Default of the maximum number of elements."""

EPS = 1e-5
"""Default of the number that normalisations add to a mean of squares."""

COUNT = "n"
"""Name of the number of elements of a vector."""

_CAST = re.compile(
    rf"(?P<fmt>.+?)(?:\.(?P<rounding>{'|'.join(MODES)}|exact|sr[0-9]+))?(?:\.(?P<saturate>sat|satfinite))?"
)


@dataclass(frozen=True)
class StepCast:
    """Format and rounding of the operands and of the results of steps; its text is, for example, ``bf16.rn.sat``."""

    fmt: Format
    rounding: Rounding = RN
    saturate: Saturation = OFF

    def __str__(self) -> str:
        return f"{self.fmt}.{self.rounding}{self.saturate.suffix}"

    @classmethod
    def parse(cls, text: "str | StepCast") -> "StepCast":
        """Parse a text; a `StepCast` is returned unchanged."""
        if isinstance(text, cls):
            return text
        match = _CAST.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise TypeError(f"expected the format of steps, such as bf16.rn, not {text!r}")
        rounding = Rounding.parse(match["rounding"] or "rn")
        return cls(parse(match["fmt"]), rounding, Saturation.of(match["saturate"] or False))

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of a unit that rounds its result so."""
        return {"o": self.fmt, "rounding": self.rounding, "saturate": self.saturate}


@dataclass(frozen=True)
class Step:
    """One step of a composed unit.

    Attributes
    ----------
    name : str
        Name of its result.
    spec : UnitSpec
        Unit that computes it. A comparison is the maximum of a vector, and an accumulator its sum.
    operands : tuple of str
        Names of inputs, of earlier results, of constants, or `COUNT`.
    controls : tuple of int
        Values of the unit's control ports.
    """

    name: str
    spec: UnitSpec
    operands: tuple[str, ...]
    controls: tuple[int, ...] = ()

    @property
    def reduces(self) -> bool:
        """True if the step makes one number from a vector."""
        return isinstance(self.spec, (AccumulateSpec, CompareSpec))

    @property
    def formula(self) -> Sum | Function:
        """Formula of the step."""
        spec, names = self.spec, self.operands
        if self.reduces:
            return Function((self.name,), Call("max" if isinstance(spec, CompareSpec) else "sum", names))
        terms: tuple[Term, ...]
        if isinstance(spec, AddSpec):
            second = term(names[1])
            terms = term(names[0]), -second if self.controls else second
        elif isinstance(spec, (MulSpec, ConvertSpec)):
            terms = (term(*names),)
        else:
            terms = (term(Call(getattr(spec, "function", spec.form.unit), names)),)
        return Sum(self.name, terms, spec.rounding, spec.result)


class Steps:
    """Steps of a composed unit in the making: each rounds its operands to its format, then its result.

    Parameters
    ----------
    spec : ComposedSpec
    formats : mapping of str to Format
        Formats of the inputs, constants and the count.
    """

    def __init__(self, spec: "ComposedSpec", formats: Mapping[str, Format]) -> None:
        self.spec, self.formats, self.steps = spec, dict(formats), list[Step]()

    def _add(self, name: str, spec: UnitSpec, *operands: str, controls: tuple[int, ...] = ()) -> str:
        self.steps.append(Step(name, spec, operands, controls))
        self.formats[name] = spec.result
        return name

    def cast(self, value: str, to: StepCast, name: str) -> str:
        """Return the name of a value in a format: a conversion that rounds, unless the format holds the value."""
        fmt = self.formats[value]
        if _keeps(to, fmt):
            return value
        name = f"{value}_{name}"
        spec = ConvertSpec(a=fmt, **to.fields)
        if (known := Step(name, spec, (value,))) in self.steps:
            return known.name
        return self._add(name, spec, value)

    def _element(self, value: str) -> str:
        return self.cast(value, self.spec.element, "element")

    def element(self, name: str, cls: type[UnitSpec], *operands: str, subtract: bool = False) -> str:
        """Add an operation on two numbers."""
        x, y = map(self._element, operands)
        spec = cls.of(a=self.formats[x], b=self.formats[y], **self.spec.element.fields)
        return self._add(name, spec, x, y, controls=(1,) if subtract else ())

    def mean(self, name: str, total: str) -> str:
        """Divide a sum by the number of elements; neither is rounded before."""
        spec = DivSpec(a=self.formats[total], b=self.formats[COUNT], **self.spec.element.fields)
        return self._add(name, spec, total, COUNT)

    def reciprocal_root(self, name: str, operand: str) -> str:
        """Add the reciprocal of a square root."""
        x = self.cast(operand, self.spec.function, "function")
        return self._add(name, RsqrtSpec(a=self.formats[x], **self.spec.function.fields), x)

    def exponential(self, name: str, operand: str, argument: Format | None, pieces: int | None) -> str:
        """Add the exponential, correctly rounded or by line segments over a format of arguments."""
        to = self.spec.function
        if argument is None:
            x = self.cast(operand, to, "function")
            return self._add(name, FunctionSpec(function="exp", a=self.formats[x], **to.fields), x)
        x = self.cast(operand, StepCast(argument, to.rounding, Saturation.of(True)), "argument")
        return self._add(name, PwlSpec(function="exp", a=self.formats[x], pieces=pieces, **to.fields), x)

    def maximum(self, name: str, operand: str) -> str:
        """Add the maximum of a vector."""
        x = self._element(operand)
        fmt = self.formats[x]
        return self._add(name, CompareSpec(a=fmt, b=fmt, o=fmt), x)

    def sum(self, name: str, operand: str) -> str:
        """Add the sum of a vector, in order and from +0."""
        x, to = self._element(operand), self.spec.total
        spec = AccumulateSpec(a=self.formats[x], acc=to.fmt, rounding=to.rounding, saturate=to.saturate)
        return self._add(name, spec, x)


def _keeps(to: StepCast, fmt: Format) -> bool:
    """Return True if a conversion changes no number of a format."""
    if fmt == to.fmt:
        return not (to.saturate == SATFINITE and fmt.has_inf)
    if to.fmt.flushes or to.saturate == SATFINITE or (fmt.has_negative_zero and not to.fmt.has_negative_zero):
        return False
    try:
        ValueRange.of(fmt).check_fits(to.fmt, "number")
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class ComposedSpec(UnitSpec):
    """Base class of composed units.

    Their steps round as the operations of a policy: each rounds its operands to its format, and its exact result once.

    Parameters
    ----------
    a : Format
        Format of the elements.
    o : Format
        Format of the results; default: ``a``. Results of the last step are rounded to it by ``rounding``.
    elementwise : StepCast, optional
        Format and rounding of sums and products of elements, of quotients and means, such as ``bf16.rn``; default:
        those of the results.
    functions : StepCast, optional
        Those of the exponential and of the reciprocal square root; default: those of ``elementwise``.
    reductions : StepCast, optional
        Those of the accumulator of sums, whose elements have the format of ``elementwise``; default: ``elementwise``.
    length : int
        Maximum number of elements of a vector, 1 to 65536; default: 64.

    Raises
    ------
    TypeError, ValueError
        As `UnitSpec`; also if a rounding is stochastic, ``exact`` or chosen by a port, or a step refuses its formats.
    """

    registry = COMPOSED
    OPERANDS = ("a", "gain", "bias")
    PORT = False
    NO_FLAGS = "it rounds several times"
    CASTS: ClassVar[tuple[str, ...]] = ("elementwise", "functions", "reductions")

    a: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    elementwise: StepCast | None = field(default=None, metadata={"read": StepCast.parse})
    functions: StepCast | None = field(default=None, metadata={"read": StepCast.parse})
    reductions: StepCast | None = field(default=None, metadata={"read": StepCast.parse})
    length: int = LENGTH

    def check(self) -> None:
        name = self.form.unit
        check_int("length", self.length, name, 1, MAX_LENGTH)
        if self.random is not None:
            raise ValueError(f"{name} takes no random words; omit the source {self.random}")
        casts = {cast: value for cast in self.CASTS if (value := getattr(self, cast)) is not None}
        for cast, value in casts.items():
            if not isinstance(value, StepCast):
                raise TypeError(f"{cast} of {name} must be a StepCast, not {type(value).__name__}")
        for rounding in (self.rounding, *(value.rounding for value in casts.values())):
            if rounding.bits or rounding == EXACT:
                raise ValueError(f"{name} rounds in several steps without random words; choose a mode, not {rounding}")

    def __post_init__(self) -> None:
        super().__post_init__()
        # Descriptions with the same bits are equal: a cast that is the default is not written.
        defaults = {"elementwise": StepCast(self.o, self.rounding, self.saturate), "functions": self.element}
        defaults["reductions"] = self.element
        for name, default in defaults.items():
            if getattr(self, name) == default:
                object.__setattr__(self, name, None)
        for cast in (self.element, self.function, self.total):
            if cast.fmt.parts > 1 or not cast.fmt.has_zero:
                raise ValueError(f"steps of {self.form.unit} have no format {cast.fmt}; choose one such as bf16")
        if self.element.fmt.lowest >= 0:
            raise ValueError(f"steps of {self.form.unit} have negative numbers, and {self.element.fmt} has none")
        assert self.steps

    @property
    def element(self) -> StepCast:
        """Format and rounding of operations on elements."""
        return self.elementwise or StepCast(self.o, self.rounding, self.saturate)

    @property
    def function(self) -> StepCast:
        """Format and rounding of functions."""
        return self.functions or self.element

    @property
    def total(self) -> StepCast:
        """Format and rounding of sums."""
        return self.reductions or self.element

    @property
    def constants(self) -> dict[str, tuple[int, Format]]:
        """Codes and formats of constants by name."""
        return {}

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """Steps in order; the last one gives the results."""
        formats = self.operands | {name: fmt for name, (_, fmt) in self.constants.items()}
        made = Steps(self, formats | {COUNT: Fixed(self.length.bit_length(), 0, signed=False)})
        last = self.compose(made)
        made.cast(last, StepCast(self.o, self.rounding, self.saturate), "result")
        return tuple(made.steps)

    @property
    def result_name(self) -> str:
        """Name of the results: that of the last step."""
        return self.steps[-1].name

    @property
    def widths(self) -> dict[str, int]:
        """Bits of the elements of all vectors."""
        widths = {name: fmt.width for name, fmt in self.operands.items()}
        return widths | {step.name: step.spec.result.width for step in self.steps}

    def compose(self, steps: Steps) -> str:
        """Add the steps of the unit, and return the name of the last one."""
        raise NotImplementedError

    @property
    def formula(self) -> Formula:
        """Formulas of all steps."""
        return Formula(tuple(step.formula for step in self.steps))


@dataclass(frozen=True)
class SoftmaxSpec(ComposedSpec, form="softmax a[>o]", summary="exp(a - max(a)) / sum(exp(a - max(a)))"):
    """Softmax of a vector; fields as in `ComposedSpec`.

    Parameters
    ----------
    argument : Format, optional
        Format of the argument of ``pieces``, such as ``fxp5.8``; arguments beyond its range become its ends.
    pieces : int, optional
        Line segments that approximate the exponential; default: it is correctly rounded, in up to 16 bits.
    """

    argument: Format | None = field(default=None, metadata={"read": parse})
    pieces: int | None = None

    def check(self) -> None:
        super().check()
        if (self.pieces is None) != (self.argument is None):
            raise ValueError("line segments of softmax need pieces and argument, such as pieces=16 argument=fxp5.8")

    def compose(self, steps: Steps) -> str:
        if self.pieces is None and self.function.fmt.width > MAX_WIDTH:
            raise ValueError(
                f"the exponential of softmax has at most {MAX_WIDTH} bits, and {self.function.fmt} has "
                f"{self.function.fmt.width}; add functions=bf16 or another format, or line segments by pieces="
            )
        d = steps.element("d", AddSpec, "a", steps.maximum("m", "a"), subtract=True)
        e = steps.exponential("e", d, self.argument, self.pieces)
        return steps.element("q", DivSpec, e, steps.sum("s", e))


@dataclass(frozen=True)
class NormSpec(ComposedSpec):
    """Base class of normalisations.

    Parameters
    ----------
    gain : Format, optional
        Format of a factor of each element, which arrives with it; default: none.
    eps : float
        Number that is added to the mean of squares, rounded to the format of ``elementwise``; default: 1e-5.
    """

    gain: Format | None = None
    eps: float = EPS

    def check(self) -> None:
        super().check()
        if not isinstance(self.eps, (int, float)) or not 0 <= self.eps < math.inf:
            raise ValueError(f"eps of {self.form.unit} must be a number of at least 0, not {self.eps}")

    @property
    def constants(self) -> dict[str, tuple[int, Format]]:
        to = self.element
        code = to.fmt.encode(Fraction(self.eps), to.rounding)
        if self.eps and not to.fmt.decode(code):
            raise ValueError(f"eps={self.eps} becomes zero in {to.fmt}; choose a larger one, or another elementwise=")
        return {"eps": (code, to.fmt)}

    def normalised(self, steps: Steps, x: str) -> str:
        """Add ``x * rsqrt(mean(x * x) + eps) * gain``."""
        square = steps.element("q", MulSpec, x, x)
        mean = steps.mean("v", steps.sum("s", square))
        root = steps.reciprocal_root("r", steps.element("w", AddSpec, mean, "eps"))
        y = steps.element("y", MulSpec, x, root)
        return y if self.gain is None else steps.element("z", MulSpec, y, "gain")


@dataclass(frozen=True)
class RmsnormSpec(NormSpec, form="rmsnorm a[*gain][>o]", summary="a / sqrt(mean(a * a) + eps) * gain"):
    """Division of a vector by its root mean square; fields as in `ComposedSpec` and `NormSpec`."""

    def compose(self, steps: Steps) -> str:
        return self.normalised(steps, "a")


@dataclass(frozen=True)
class LayernormSpec(
    NormSpec, form="layernorm a[*gain][+bias][>o]", summary="(a - mean) / sqrt(variance + eps) * gain + bias"
):
    """Normalisation of a vector to mean 0 and variance 1; other fields as in `ComposedSpec` and `NormSpec`.

    Parameters
    ----------
    bias : Format, optional
        Format of a term of each element, which arrives with it; default: none.
    """

    bias: Format | None = None

    def compose(self, steps: Steps) -> str:
        d = steps.element("d", AddSpec, "a", steps.mean("m", steps.sum("t", "a")), subtract=True)
        z = self.normalised(steps, d)
        return z if self.bias is None else steps.element("b", AddSpec, z, "bias")
