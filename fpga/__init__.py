"""Costs of units and arrays on devices, and the files that vendor tools need."""
