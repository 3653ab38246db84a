"""Declarations of packaged units for hardware languages in Scala and Python: Chisel, SpinalHDL and LiteX."""

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


def binding_files(package: "Package") -> dict[str, str]:
    """Return the declarations of all units by path."""
    names = {"chisel": "scala", "spinal": "scala", "litex": "py"}
    functions = {"scala_name": scala_name, "python_name": python_name, "endpoint": endpoint}
    return {
        f"bindings/{package.name}_{tool}.{suffix}": package.render(f"{tool}.{suffix}.j2", **functions)
        for tool, suffix in names.items()
    }
