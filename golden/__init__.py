"""The golden model: every unit's operation on torch tensors of codes, and on single codes in ``exact``."""
