"""Tests of all rooms; a module is imported by its path, as `tests.hdl.test_shape`."""
