"""Proofs about units, for all inputs: what is claimed, as hardware that says when it does not hold, and a prover."""
