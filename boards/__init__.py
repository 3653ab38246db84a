"""Boards: the part, memories, clocks and limits of each."""
