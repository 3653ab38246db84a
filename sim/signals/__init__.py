"""Drivers, monitors and protocol rules of units, on the signals of a simulator.

The modules need cocotb and nothing else of this library, so that packages of units contain them.
"""
