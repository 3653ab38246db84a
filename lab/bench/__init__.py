"""Benchmarks and cost records."""
