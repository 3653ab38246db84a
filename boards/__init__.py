"""Data of devices and boards: parts, memories, clocks and limits."""
