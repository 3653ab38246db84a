"""Mutation and fault injection of units: all changes are in one netlist, with an input that selects one of them."""

SELECT, WIDTH = "mutant", 16
"""Input that selects a change, counted from 1, and its width."""
