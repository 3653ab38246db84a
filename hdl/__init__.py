"""How numbers look in hardware. Importing this package makes every format an Amaranth shape."""

from .shape import FormatView, connect

__all__ = ["FormatView", "connect"]
