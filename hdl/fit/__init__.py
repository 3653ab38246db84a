"""Fitting of segment tables to functions, for given formats and a budget."""
