"""The catalogue of units: bench, command line, sweeps and reports iterate over it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from halfulp.hdl.formats import EXACT, FAMILIES, RN, Fixed, Format, Rounding, parse
from halfulp.hdl.formats.source import Source
from halfulp.hdl.specs import Build

from .accumulate import Accumulate
from .accumulating import accumulator_format
from .activation import PiecewiseLinear
from .add import Add
from .base import Unit
from .compare import Compare
from .convert import Convert
from .dot import Dot
from .fma import Fma
from .mac import Mac
from .mul import Mul
from .quire import Quire
from .stochastic import StochasticRounder

DEFAULT_TARGET = "e4m3fn"
"""What Convert converts to unless told otherwise."""

DEFAULT_K = 4
"""Pairs of a dot product unless told otherwise."""

DEFAULT_FUNCTION = "tanh"
"""What a piecewise-linear function is of unless told otherwise."""


@dataclass(frozen=True)
class Row:
    """One unit of the library.

    Attributes
    ----------
    name : str
        What the unit is called on the command line.
    unit : type
        Its class.
    golden : str
        Name of its twin in ``halfulp.golden``.
    summary : str
        What it computes, in a line.
    options : tuple of str
        What `build` takes for it besides the operand format, and besides what every unit takes.
    parameters : callable
        Makes the class's parameters from the operand format and the given options.
    families : tuple of type
        What kinds of format the operand may have.
    rounding : str
        How it rounds unless told otherwise.
    """

    name: str
    unit: type[Unit]
    golden: str
    summary: str
    options: tuple[str, ...]
    parameters: Callable[[Format, dict[str, Any]], dict[str, Any]]
    families: tuple[type[Format], ...] = FAMILIES
    rounding: str = "rn"

    def takes(self, fmt: Format, rounding: Rounding) -> bool:
        """Whether the unit is for such operands and such a rounding."""
        default = Rounding.parse(self.rounding)
        return isinstance(fmt, self.families) and (default.mode != "sr" or rounding.mode == "sr")

    def meant(self, given: dict[str, Any]) -> dict[str, Any]:
        """Those of some options that mean something for the unit, beside each other."""
        exact_only = ("to", "carry") if "acc" in self.options and given.get("acc") != "exact" else ()
        return {option: value for option, value in given.items() if option in self.options and option not in exact_only}

    @property
    def stateful(self) -> bool:
        """Whether results depend on earlier operands."""
        return self.unit.stateful


def _binary(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    return {"a": fmt, "b": given.get("b", fmt), "o": given.get("to", fmt)}


def _fma(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    c = given.get("c", fmt)
    return {"a": fmt, "b": given.get("b", fmt), "c": c, "o": given.get("to", c)}


def _mac(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    product, product_rounding = given.get("product", (None, EXACT))
    return {
        "a": fmt,
        "b": given.get("b", fmt),
        "product": product,
        "product_rounding": product_rounding,
        **_accumulator(fmt, given),
    }


def _sum(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    return {"a": fmt, **_accumulator(fmt, {"acc": fmt.default_sum()} | given)}


def _accumulator(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    acc = given["acc"] if "acc" in given else fmt.default_accumulator()
    if acc != "exact":
        for option in ("to", "carry"):
            if option in given:
                raise ValueError(f"an accumulator in {acc} has no {option}; only the accumulator exact has one")
        return {"acc": acc}
    return {"acc": acc, "o": given.get("to", fmt), **_some(given, "carry")}


def _quire(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    return _binary(fmt, given) | _some(given, "carry")


def _dot(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    return _binary(fmt, given) | {"k": given.get("k", DEFAULT_K)} | _some(given, "c", "order")


def _sru(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    """Eight bits unless told otherwise, as many before the point as the wide format has; they wrap where they must."""
    if "to" in given:
        to = given["to"]
    elif isinstance(fmt, Fixed):
        to = replace(fmt, int_bits=min(fmt.int_bits, fmt.width), frac_bits=8 - min(fmt.int_bits, fmt.width))
        if given.get("increment") is False:
            to = replace(to, overflow="wrap")
    else:
        to = fmt
    return {"a": fmt, "o": to} | _some(given, "lanes", "sharing", "increment")


def _some(given: dict[str, Any], *options: str) -> dict[str, Any]:
    return {option: given[option] for option in options if option in given}


def _convert(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    return {"a": fmt, "o": given.get("to", parse(DEFAULT_TARGET))}


def _pwl(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    options = _some(given, "pieces", "error", "breakpoints", "slopes", "terms")
    return {"fn": given.get("fn", DEFAULT_FUNCTION), "fmt": fmt, "out": given.get("to", fmt)} | options


CATALOGUE: dict[str, Row] = {
    row.name: row
    for row in (
        Row("mul", Mul, "mul", "a * b", ("b", "to", "dsp"), _binary),
        Row("add", Add, "add", "a + b, a - b", ("b", "to", "stochastic"), _binary),
        Row("fma", Fma, "fma", "a * b + c, rounded once", ("b", "c", "to", "stochastic", "dsp"), _fma),
        Row(
            "mac",
            Mac,
            "mac",
            "accumulator <- accumulator + a * b",
            ("b", "acc", "product", "to", "carry", "stochastic", "dsp"),
            _mac,
        ),
        Row(
            "accumulate",
            Accumulate,
            "accumulate",
            "accumulator <- accumulator + a",
            ("acc", "to", "carry", "stochastic"),
            _sum,
        ),
        Row("quire", Quire, "quire", "exact sum of products", ("b", "to", "carry", "dsp"), _quire),
        Row(
            "dot",
            Dot,
            "dot",
            "c + a0 * b0 + a1 * b1 + ...",
            ("k", "b", "c", "to", "order", "stochastic", "dsp"),
            _dot,
        ),
        Row(
            name="sru",
            unit=StochasticRounder,
            golden="sru",
            summary="fixed point, cropped at random",
            options=("to", "lanes", "sharing", "increment"),
            parameters=_sru,
            families=(Fixed,),
            rounding="sr3",
        ),
        Row("convert", Convert, "convert", "any format to any format", ("to",), _convert),
        Row(
            "pwl",
            PiecewiseLinear,
            "pwl",
            "a function as line segments",
            ("fn", "to", "pieces", "error", "breakpoints", "slopes", "terms", "structure", "dsp"),
            _pwl,
        ),
        Row("compare", Compare, "compare", "less, equal, minimum, maximum", ("b", "to"), _binary),
    )
}


def row(name: str) -> Row:
    """Row of a unit; ValueError if there is none of that name."""
    if name not in CATALOGUE:
        raise ValueError(f"unknown unit {name!r}; the units are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def build(
    name: str,
    fmt: Format | str,
    *,
    b: Format | str | None = None,
    c: Format | str | None = None,
    acc: Format | str | None = None,
    to: Format | str | None = None,
    product: str | None = None,
    k: int | None = None,
    order: str | None = None,
    carry: int | None = None,
    lanes: int | None = None,
    sharing: str | None = None,
    increment: bool | None = None,
    stochastic: str | None = None,
    dsp: bool | None = None,
    fn: Any = None,
    pieces: int | None = None,
    error: float | None = None,
    breakpoints: str | None = None,
    slopes: str | None = None,
    terms: int | None = None,
    structure: str | None = None,
    rounding: Rounding | str | None = None,
    random: Source | str = "port",
    seed: int = 1,
    saturate: bool = False,
    pipeline: int = 0,
) -> Unit:
    """Unit of the catalogue, from what a user gives on the command line.

    Parameters
    ----------
    name : str
        Name of the unit.
    fmt : Format or str
        Operand format.
    b, c : Format or str, optional
        Formats of the second and third operand; by default ``fmt``, and no start value of ``dot``.
    acc : Format or str, optional
        Accumulator format, or ``exact``; default: `Format.default_accumulator`.
    to : Format or str, optional
        Result format; by default that of the operands (of ``c`` for ``fma``), and e4m3fn for ``convert``. Of an
        accumulator only where it is exact.
    product : str, optional
        Format and rounding of the product, such as ``e5m2.rz``; nearest where no rounding is named.
    k : int, optional
        Pairs of ``dot``, 4 by default.
    order : str, optional
        ``exact`` or ``sequential``, of ``dot``.
    carry : int, optional
        Carry guard of an exact accumulator, in bits.
    lanes : int, optional
        Of ``sru``, 1 by default.
    sharing : str, optional
        Whether the lanes of ``sru`` have sources of their ``own`` or share one ``rotated``.
    increment : bool, optional
        Whether ``sru`` adds its carries, which it does by default.
    stochastic : str, optional
        Whether stochastic rounding behind a floating-point adder is ``lazy`` or ``eager``; the smaller one by default.
    dsp : bool, optional
        Whether products are left to DSP blocks, which they are not by default.
    fn : str, callable or Segments, optional
        Function of ``pwl``, tanh by default.
    pieces, error, breakpoints, slopes, terms, structure : optional
        As `PiecewiseLinear` takes them.
    rounding : Rounding or str, optional
        Nearest by default, and sr3 for ``sru``.
    random, seed, saturate, pipeline
        As the units take them.

    Raises
    ------
    ValueError
        If an option means nothing for the unit, or the unit refuses its parameters.
    """
    entry = row(name)
    options = {
        "b": b,
        "c": c,
        "acc": acc,
        "to": to,
        "product": product,
        "k": k,
        "order": order,
        "carry": carry,
        "lanes": lanes,
        "sharing": sharing,
        "increment": increment,
        "stochastic": stochastic,
        "dsp": dsp,
        "fn": fn,
        "pieces": pieces,
        "error": error,
        "breakpoints": breakpoints,
        "slopes": slopes,
        "terms": terms,
        "structure": structure,
    }
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in entry.options:
            raise ValueError(f"{name} has no {option}; it takes {', '.join(entry.options)}")
    make: Callable[..., Unit] = entry.unit
    how = Build(pipeline, **{field: given.pop(field) for field in ("dsp", "stochastic", "structure") if field in given})
    return make(
        **entry.parameters(parse(fmt), {option: _read(option, value) for option, value in given.items()}),
        rounding=Rounding.parse(entry.rounding if rounding is None else rounding),
        random=random,
        seed=seed,
        saturate=saturate,
        build=how,
    )


def _read(option: str, value: Any) -> Any:
    """What an option stands for."""
    readers: dict[str, Callable[[Any], Any]] = {
        "product": _parse_product,
        "acc": accumulator_format,
        "b": parse,
        "c": parse,
        "to": parse,
    }
    return readers[option](value) if option in readers else value


def _parse_product(text: str) -> tuple[Format, Rounding]:
    """Format and rounding of a product; a format alone is rounded to nearest."""
    fmt, dot, rounding = text.rpartition(".")
    if not dot:
        return parse(text), RN
    return parse(fmt), Rounding.parse(rounding)
