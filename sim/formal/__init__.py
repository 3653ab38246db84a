"""Proofs about units, for all inputs: claims as circuits that detect when they do not hold, and a prover."""
