"""What every test runs in."""

import os
import signal

import pytest

# A worker has one processor. torch would take all of them, and its threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A runner that puts the tests in the background has them ignore Ctrl-C, and what they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What once was wrong is looked at first."""
    items.sort(key=lambda item: item.path.name != "test_regressions.py")
