"""Costs of units and arrays on devices, and input files of vendor tools."""
