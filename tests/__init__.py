"""Tests, from formats up to networks; they may import each other as `tests.test_x`."""
