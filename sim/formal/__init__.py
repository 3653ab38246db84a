"""Proofs about units, for all inputs: claims as circuits that detect when they do not hold, and a prover."""

LIMIT = 60.0
"""Default limit of one proof in seconds."""
