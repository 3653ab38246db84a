"""Descriptors as C++ types."""

from collections.abc import Callable
from typing import Any

from halfulp.hdl.formats import Fixed, Float, Format, Posit, Rounding, Takum
from halfulp.hdl.formats.source import Plateau
from halfulp.hdl.specs import MacSpec

PHILOX = "philox"
"""The counter-based source, which is no hardware."""


def boolean(value: bool) -> str:
    """As C++ writes it."""
    return "true" if value else "false"


def _float(fmt: Float) -> str:
    return f"Float<{fmt.exp}, {fmt.man}, {fmt.bias}, {fmt.specials.upper()}, {boolean(fmt.subnormals)}>"


def _fixed(fmt: Fixed) -> str:
    return f"Fixed<{fmt.int_bits}, {fmt.frac_bits}, {boolean(fmt.signed)}, {boolean(fmt.wraps)}>"


def _posit(fmt: Posit) -> str:
    return f"Posit<{fmt.width}, {fmt.es}>"


TYPES: dict[type[Format], tuple[str, Callable[[Any], str]]] = {
    Float: ("number.h", _float),
    Fixed: ("number.h", _fixed),
    Posit: ("number.h", _posit),
    Takum: ("takum.h", lambda fmt: f"Takum<{fmt.width}>"),
}
"""Header of a family of formats, and the C++ type of a format."""


def format_text(fmt: Format) -> str:
    """Type of a format."""
    if type(fmt) not in TYPES:
        raise TypeError(f"{fmt} has no compiled kernels")
    return TYPES[type(fmt)][1](fmt)


def includes(*formats: Format | None) -> str:
    """Lines that include the headers of the formats' families."""
    headers = {TYPES[type(fmt)][0] for fmt in formats if fmt is not None}
    return "".join(f'#include "{header}"\n' for header in sorted(headers))


def rounding_text(rounding: Rounding) -> str:
    """Type of a rounding."""
    return f"Rounding<{rounding.mode.upper()}, {rounding.bits}, {rounding.places}>"


def words_text(spec: MacSpec, source: str | None, name: str) -> str:
    """Type of what makes the random words of the sum or of the product."""
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
