"""Descriptors as C++ types."""

from collections.abc import Callable
from typing import Any, NamedTuple

from halfulp.hdl.formats import Codebook, Fixed, Float, Format, Posit, Rounding, Takum
from halfulp.hdl.formats.source import Plateau
from halfulp.hdl.specs import MacSpec

from . import codebook

PHILOX = "philox"
"""Name of the counter-based source, for software only."""


def boolean(value: bool) -> str:
    """C++ literal of a bool."""
    return "true" if value else "false"


def _float(fmt: Float) -> str:
    return f"Float<{fmt.exp}, {fmt.man}, {fmt.bias}, {fmt.specials.upper()}, {boolean(fmt.subnormals)}>"


def _fixed(fmt: Fixed) -> str:
    return f"Fixed<{fmt.int_bits}, {fmt.frac_bits}, {boolean(fmt.signed)}, {boolean(fmt.wraps)}>"


def _posit(fmt: Posit) -> str:
    return f"Posit<{fmt.width}, {fmt.es}>"


class Cpp(NamedTuple):
    """C++ of a family of formats: header, type of a format, definitions for the type, and a test that 128-bit integers
    hold its numbers."""

    header: str
    type: Callable[[Any], str]
    define: Callable[[Any], str] = lambda fmt: ""
    fits: Callable[[Any], bool] = lambda fmt: True


TYPES: dict[type[Format], Cpp] = {
    Float: Cpp("number.h", _float),
    Fixed: Cpp("number.h", _fixed),
    Posit: Cpp("number.h", _posit),
    Takum: Cpp("takum.h", lambda fmt: f"Takum<{fmt.width}>"),
    Codebook: Cpp("codebook.h", codebook.type_of, codebook.define, codebook.holds),
}


def _cpp(fmt: Format) -> Cpp:
    if type(fmt) not in TYPES:
        raise TypeError(f"{fmt} has no compiled kernels")
    return TYPES[type(fmt)]


def format_text(fmt: Format) -> str:
    """Type of a format."""
    return _cpp(fmt).type(fmt)


def fits(*formats: Format | None) -> bool:
    """True if kernels take all of the formats."""
    return all(_cpp(fmt).fits(fmt) for fmt in formats if fmt is not None)


def definitions(*formats: Format | None) -> str:
    """Headers of the formats' families, and definitions of the formats."""
    known = dict.fromkeys(fmt for fmt in formats if fmt is not None)
    lines = sorted({f'#include "{_cpp(fmt).header}"' for fmt in known})
    return "\n".join(filter(None, [*lines, *(_cpp(fmt).define(fmt) for fmt in known)])) + "\n"


def rounding_text(rounding: Rounding) -> str:
    """Type of a rounding."""
    return f"Rounding<{rounding.mode.upper()}, {rounding.bits}, {rounding.places}>"


def words_text(spec: MacSpec, source: str | None, name: str) -> str:
    """Type of the source of random words for the sum or for the product."""
    bits = spec.words.get(name, 0)
    of_sum = boolean(name == "random")
    if not bits:
        return "NoWords"
    if source == PHILOX:
        return f"PhiloxWords<{of_sum}, {bits}>"
    if spec.random is None:
        return f"GivenWords<{of_sum}>"
    kind = "PlateauWords" if isinstance(spec.random, Plateau) else "LfsrWords"
    taps = sum(1 << (tap - 1) for tap in spec.random.taps)
    return f"{kind}<{of_sum}, {spec.random.width}, {taps}ull, {bits}>"


def spec_text(spec: MacSpec, source: str | None) -> str:
    """Body of the type of a description, as exact.h has it."""
    quire = spec.quire
    product = "ExactProduct"
    if spec.product is not None:
        rounded = f"{format_text(spec.product)}, {rounding_text(spec.product_rounding)}, {boolean(spec.saturate)}"
        product = f"RoundedProduct<{rounded}>"
    return "\n".join(
        [
            f"using A = {format_text(spec.a)};",
            f"using B = {format_text(spec.b)};",
            f"using O = {format_text(spec.o)};",
            f"using Product = {product};",
            f"using Round = {rounding_text(spec.rounding)};",
            f"using SumWords = {words_text(spec, source, 'random')};",
            f"using ProductWords = {words_text(spec, source, 'random_product')};",
            f"static constexpr int MODE = {spec.rounding.mode.upper()};",
            f"static constexpr bool SATURATE = {boolean(spec.saturate)};",
            f"static constexpr int QUIRE_WIDTH = {quire.width if quire else 0};",
            f"static constexpr int QUIRE_QUANTUM = {quire.quantum if quire else 0};",
        ]
    )
