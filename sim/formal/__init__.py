"""Formal proofs about units: claims as circuits that detect a violation, and a prover."""

LIMIT = 60.0
"""Default time limit of a proof in seconds."""
