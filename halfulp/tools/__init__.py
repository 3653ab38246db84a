"""Helpers that know nothing of arithmetic."""
