"""Functional coverage of a unit: bins derived from its formats and stages, each hit, proved unreachable, or open."""
