"""C++ source of formats and descriptions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from halfulp.hdl.formats import Codebook, Fixed, Float, Format, Posit, Saturation, Scale, Takum
from halfulp.hdl.formats.floating import SPECIALS
from halfulp.hdl.specs import MacSpec, RunningSumSpec

from . import codebook

PHILOX = "philox"
"""Name of the counter-based source, which exists in software only."""


def boolean(value: bool) -> str:
    """Return the C++ literal of a bool."""
    return "true" if value else "false"


class Cpp(NamedTuple):
    """C++ of a family: header, members and definitions of a format's object, and test if 128 bits hold its numbers.

    An object with tables has a ``name``, and ``tables`` makes their ctypes structure.
    """

    header: str
    members: Callable[[Any], tuple[int, ...]]
    define: Callable[[Any], str] = lambda fmt: ""
    fits: Callable[[Any], bool] = lambda fmt: True
    name: Callable[[Any], str] = lambda fmt: ""
    tables: Callable[[Any], Any] = lambda fmt: None


TYPES: dict[type[Format], Cpp] = {
    Float: Cpp("number.h", lambda fmt: (fmt.exp, fmt.man, fmt.bias, SPECIALS.index(fmt.specials), int(fmt.subnormals))),
    Fixed: Cpp(
        "number.h",
        lambda fmt: (
            fmt.int_bits,
            fmt.frac_bits,
            int(fmt.signed),
            *(int(fmt.overflow == name) for name in ("wrap", "narrow")),
        ),
    ),
    Posit: Cpp("number.h", lambda fmt: (fmt.width, fmt.es)),
    Takum: Cpp("takum.h", lambda fmt: (fmt.width,)),
    Codebook: Cpp("codebook.h", lambda fmt: (), codebook.define, codebook.holds, codebook.name_of, codebook.structure),
    Scale: Cpp("scale.h", lambda fmt: (fmt.width,)),
}
"""C++ of the families, in the order of ``Format`` in exact.h."""


def _cpp(fmt: Format) -> Cpp:
    if type(fmt) not in TYPES:
        raise TypeError(f"{fmt} has no compiled kernels")
    return TYPES[type(fmt)]


def saturation_text(saturate: Saturation) -> str:
    """Return the C++ enumerator of a saturation."""
    return f"Saturation::{Saturation.of(saturate).name}"


def format_text(fmt: Format) -> str:
    """Return the C++ expression of a format's object."""
    cpp = _cpp(fmt)
    return cpp.name(fmt) or f"{type(fmt).__name__}{{{', '.join(map(str, cpp.members(fmt)))}}}"


def fits(*formats: Format | None) -> bool:
    """Return True if kernels support all of the formats."""
    return all(type(fmt) in TYPES and _cpp(fmt).fits(fmt) for fmt in formats if fmt is not None)


def definitions(*formats: Format | None) -> str:
    """Return the include lines and definitions that the formats need."""
    known = dict.fromkeys(fmt for fmt in formats if fmt is not None)
    lines = sorted({f'#include "{_cpp(fmt).header}"' for fmt in known})
    return "\n".join(filter(None, [*lines, *(_cpp(fmt).define(fmt) for fmt in known)])) + "\n"


def words_text(spec: RunningSumSpec, source: str | None, name: str) -> str:
    """Return the C++ type of the random words of ``name``: ``random`` for the sum, ``random_product``."""
    bits = spec.words.get(name, 0)
    of_sum = boolean(name == "random")
    if not bits:
        return "NoWords"
    if source == PHILOX:
        return f"PhiloxWords<{of_sum}, {bits}>"
    if spec.random is None:
        return f"GivenWords<{of_sum}>"
    part = spec.random.part(bits)
    taps = sum(1 << (tap - 1) for tap in spec.random.taps)
    register = f"{boolean(spec.random.inverting)}, {of_sum}, {spec.random.register}, {taps}ull"
    return f"RegisterWords<{register}, {part.dropped}, {part.taken}, {boolean(part.repeated)}, {bits}>"


def spec_text(spec: MacSpec, source: str | None) -> str:
    """Return the C++ members of a description that all vector kernels have: formats and random words."""
    return "\n".join(
        [
            f"static constexpr auto a = {format_text(spec.a)};",
            f"static constexpr auto b = {format_text(spec.b)};",
            f"static constexpr auto o = {format_text(spec.o)};",
            f"using SumWords = {words_text(spec, source, 'random')};",
            f"using ProductWords = {words_text(spec, source, 'random_product')};",
        ]
    )
