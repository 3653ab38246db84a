"""Mutants and faults of units: all changes in one netlist, with an input that selects one of them."""

SELECT, WIDTH = "mutant", 16
"""The input that selects a change, by a number from 1 on, and its bits."""
