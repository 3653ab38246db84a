"""Systolic arrays: matrix products as items, a driver and a monitor for each stream, and tiles as what is compared."""
