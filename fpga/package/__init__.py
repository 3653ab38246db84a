"""Packages of units for people who do not write Python: RTL, wrappers, test benches, vectors and a manifest."""

from .folder import files

__all__ = ["files"]
