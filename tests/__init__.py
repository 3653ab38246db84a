"""Tests of all rooms; test modules may import each other as `tests.test_x`."""
