"""Pyuvm environment for any unit, with the vectors, golden model, protocol rules and comparison of the test bench."""
