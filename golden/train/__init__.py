"""Training runs of networks in described arithmetic, from a command to a row of a table."""
