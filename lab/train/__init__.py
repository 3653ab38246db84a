"""Training runs of networks in the arithmetic of a policy."""
