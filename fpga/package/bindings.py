"""Declarations of packaged units for hardware languages in Scala and Python: Chisel, SpinalHDL and LiteX."""

from collections.abc import Iterator
from keyword import iskeyword
from typing import TYPE_CHECKING

from .streams import Channel

if TYPE_CHECKING:
    from .contents import Package

_WORDS = """
abstract case catch class def do else extends false final finally for forSome given if implicit import lazy match
new null object override package private protected return sealed super this throw trait try true type val var
while with yield
"""

SCALA_KEYWORDS = frozenset(_WORDS.split())
"""Reserved words of Scala 2 and 3."""


def scala_name(name: str) -> str:
    """Return a name of Verilog as an identifier of Scala."""
    plain = name not in SCALA_KEYWORDS and not name.startswith("_")
    return name if plain else f"`{name}`"


def python_name(name: str) -> str:
    """Return a name of Verilog as an identifier of Python."""
    return f"{name}_" if iskeyword(name) else name


def endpoint(channel: Channel) -> str:
    """Return the name of the endpoint of a stream: ``sink``, ``sink_a`` for one of several, or ``source``."""
    return channel.prefix.replace("s_axis", "sink").replace("m_axis", "source")


def fields(channel: Channel) -> Iterator[str]:
    """Yield the names and bits of the fields of an endpoint, as pairs of Python."""
    bits = {field.port.name: field.port.width for field in channel.fields} | channel.beside
    return (f'("{name}", {count})' for name, count in bits.items() if name != "tlast")


def packed(channel: Channel) -> Iterator[str]:
    """Yield the parts of a payload from the lowest bit on, as expressions of Migen."""
    for field in channel.fields:
        yield f"{endpoint(channel)}.{field.port.name}"
        if field.padding:
            yield f"Constant(0, {field.padding})"


def binding_files(package: "Package") -> dict[str, str]:
    """Return the declarations of all units by path."""
    names = {"chisel": "scala", "spinal": "scala", "litex": "py"}
    functions = {function.__name__: function for function in (scala_name, python_name, endpoint, fields, packed)}
    return {
        f"bindings/{package.name}_{tool}.{suffix}": package.render(f"{tool}.{suffix}.j2", **functions)
        for tool, suffix in names.items()
    }
