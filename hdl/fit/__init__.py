"""Fitting of segment tables: a function, a format and a budget become a table."""
