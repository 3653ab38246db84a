"""The catalogue of units: bench, command line, sweeps and reports iterate over it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, default_accumulator, parse

from .add import Add
from .base import Unit
from .compare import Compare
from .convert import Convert
from .fma import Fma
from .mac import Mac
from .mul import Mul

DEFAULT_TARGET = "e4m3fn"
"""What Convert converts to unless told otherwise."""


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
        Formats that `build` takes for it besides the operand format.
    parameters : callable
        Makes the formats of the class's parameters from the operand format and the given options.
    """

    name: str
    unit: type[Unit]
    golden: str
    summary: str
    options: tuple[str, ...]
    parameters: Callable[[Format, dict[str, Any]], dict[str, Any]]

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
        "acc": given["acc"] if "acc" in given else default_accumulator(fmt),
        "product": product,
        "product_rounding": product_rounding,
    }


def _convert(fmt: Format, given: dict[str, Any]) -> dict[str, Any]:
    return {"a": fmt, "o": given.get("to", parse(DEFAULT_TARGET))}


CATALOGUE: dict[str, Row] = {
    row.name: row
    for row in (
        Row("mul", Mul, "mul", "a * b", ("b", "to"), _binary),
        Row("add", Add, "add", "a + b, a - b", ("b", "to"), _binary),
        Row("fma", Fma, "fma", "a * b + c, rounded once", ("b", "c", "to"), _fma),
        Row("mac", Mac, "mac", "accumulator <- accumulator + a * b", ("b", "acc", "product"), _mac),
        Row("convert", Convert, "convert", "any format to any format", ("to",), _convert),
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
    rounding: Rounding | str = RN,
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
        Formats of the second and third operand; by default ``fmt``.
    acc : Format or str, optional
        Accumulator format; by default one exponent bit and three mantissa bits more than ``fmt``.
    to : Format or str, optional
        Result format; by default that of the operands (of ``c`` for ``fma``), and e4m3fn for ``convert``.
    product : str, optional
        Format and rounding of the product, such as ``e5m2.rz``; nearest where no rounding is named.
    rounding, saturate, pipeline
        As the units take them.

    Raises
    ------
    ValueError
        If an option means nothing for the unit, or the unit refuses its parameters.
    """
    entry = row(name)
    given: dict[str, Any] = {
        option: value
        for option, value in (("b", b), ("c", c), ("acc", acc), ("to", to), ("product", product))
        if value is not None
    }
    for option in given:
        if option not in entry.options:
            raise ValueError(f"{name} has no {option}; it takes {', '.join(entry.options)}")
    formats = {option: _parse_product(text) if option == "product" else parse(text) for option, text in given.items()}
    make: Callable[..., Unit] = entry.unit
    return make(
        **entry.parameters(parse(fmt), formats),
        rounding=Rounding.parse(rounding),
        saturate=saturate,
        pipeline=pipeline,
    )


def _parse_product(text: str) -> tuple[Format, Rounding]:
    """Format and rounding of a product; a format alone is rounded to nearest."""
    fmt, dot, rounding = text.rpartition(".")
    if not dot:
        return parse(text), RN
    return parse(fmt), Rounding.parse(rounding)
