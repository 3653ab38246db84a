"""Coverage of a unit by vectors: bins that follow from its formats and stages, each of them hit, proved to be out of
reach, or open."""
