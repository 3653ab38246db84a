"""Descriptors as C++ types."""

from collections.abc import Callable
from typing import Any, NamedTuple

from halfulp.hdl.formats import Codebook, Fixed, Float, Format, Posit, Takum
from halfulp.hdl.formats.source import Plateau
from halfulp.hdl.specs import MacSpec

from . import codebook

SPECIALS = ("ieee", "fn", "fnuz", "finite")
"""Specials of floats, in the order of number.h."""

PHILOX = "philox"
"""Name of the counter-based source, for software only."""


def boolean(value: bool) -> str:
    """C++ literal of a bool."""
    return "true" if value else "false"


class Cpp(NamedTuple):
    """C++ of a family of formats: header, members of the object of a format, definitions for it, and a test that
    128-bit integers hold its numbers."""

    header: str
    members: Callable[[Any], tuple[int, ...]]
    define: Callable[[Any], str] = lambda fmt: ""
    fits: Callable[[Any], bool] = lambda fmt: True


TYPES: dict[type[Format], Cpp] = {
    Float: Cpp("number.h", lambda fmt: (fmt.exp, fmt.man, fmt.bias, SPECIALS.index(fmt.specials), int(fmt.subnormals))),
    Fixed: Cpp("number.h", lambda fmt: (fmt.int_bits, fmt.frac_bits, int(fmt.signed), int(fmt.wraps))),
    Posit: Cpp("number.h", lambda fmt: (fmt.width, fmt.es)),
    Takum: Cpp("takum.h", lambda fmt: (fmt.width,)),
    Codebook: Cpp("codebook.h", lambda fmt: (), codebook.define, codebook.holds),
}
"""Families, in the order of ``Format`` in exact.h."""


def _cpp(fmt: Format) -> Cpp:
    if type(fmt) not in TYPES:
        raise TypeError(f"{fmt} has no compiled kernels")
    return TYPES[type(fmt)]


def format_text(fmt: Format) -> str:
    """Object of a format."""
    if isinstance(fmt, Codebook):
        return codebook.name_of(fmt)
    return f"{type(fmt).__name__}{{{', '.join(map(str, _cpp(fmt).members(fmt)))}}}"


def fits(*formats: Format | None) -> bool:
    """True if kernels take all of the formats."""
    return all(_cpp(fmt).fits(fmt) for fmt in formats if fmt is not None)


def definitions(*formats: Format | None) -> str:
    """Headers of the formats' families, and definitions of the formats."""
    known = dict.fromkeys(fmt for fmt in formats if fmt is not None)
    lines = sorted({f'#include "{_cpp(fmt).header}"' for fmt in known})
    return "\n".join(filter(None, [*lines, *(_cpp(fmt).define(fmt) for fmt in known)])) + "\n"


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
    plateau = boolean(isinstance(spec.random, Plateau))
    taps = sum(1 << (tap - 1) for tap in spec.random.taps)
    return f"RegisterWords<{plateau}, {of_sum}, {spec.random.width}, {taps}ull, {bits}>"


def spec_text(spec: MacSpec, source: str | None) -> str:
    """Formats and random words of a description, as lanes have them."""
    return "\n".join(
        [
            f"static constexpr auto a = {format_text(spec.a)};",
            f"static constexpr auto b = {format_text(spec.b)};",
            f"static constexpr auto o = {format_text(spec.o)};",
            f"using SumWords = {words_text(spec, source, 'random')};",
            f"using ProductWords = {words_text(spec, source, 'random_product')};",
        ]
    )
