"""Settings of every test run: threads, signals, tiers and the order of tests."""

import os
import signal
from collections import Counter

import pytest

# A worker has one processor. torch would take all of them, and its threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A runner that puts the tests in the background has them ignore Ctrl-C, and what they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of sampled tests that are slow, and run regressions before all other tests."""
    seen: Counter[str] = Counter()
    for item in items:
        function = item.nodeid.partition("[")[0]
        if (sampled := item.get_closest_marker("sampled")) and seen[function] % sampled.args[0]:
            item.add_marker(pytest.mark.slow)
        seen[function] += 1
    items.sort(key=lambda item: item.path.name != "test_regressions.py")
