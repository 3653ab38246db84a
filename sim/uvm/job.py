"""Files between the simulation and the process that starts it, and lookup of test classes by name."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyuvm import ConfigDB, uvm_factory, uvm_test

from halfulp.tools.imports import imported

JOB, FOUND = "job.pickle", "findings.pickle"
"""Files of the job, and of the checks and notes from the simulation."""


@dataclass(frozen=True)
class Job:
    """Test that runs in the simulator.

    Attributes
    ----------
    test : str
        Python module or file, a colon, and the class.
    request
        Request for the `Dut`.
    limit : int, optional
        Maximum number of operations of a sequence.
    sequence : str
        Key of `SEQUENCES`.
    vector : mapping, optional
        Single vector to run instead.
    """

    test: str
    request: Any
    seed: int = 0
    limit: int | None = None
    sequence: str = "campaign"
    vector: Mapping[str, int] | None = None


def name_of(test: type | str) -> str:
    """Return the text of a test class, independent of the working folder.

    Raises ValueError for a class that is not at the top level of a file.
    """
    if isinstance(test, str):
        where, colon, name = test.rpartition(":")
        return f"{Path(where).resolve()}{colon}{name}" if where.endswith(".py") else test
    if "<locals>" in test.__qualname__:
        raise ValueError(f"{test.__qualname__} is defined in a function: expected a class at the top level of a file")
    own = test.__module__.startswith("halfulp.")
    return f"{test.__module__ if own else Path(inspect.getfile(test)).resolve()}:{test.__qualname__}"


def class_of(text: str) -> type:
    """Import the class of a test from ``package.module:Class`` or ``path/to/file.py:Class``.

    Raises ValueError if there is no such class, or it is not a `uvm_test`.
    """
    found = imported(text)
    if not isinstance(found, type) or not issubclass(found, uvm_test):
        raise ValueError(f"{text} is no test: expected a class derived from UnitTest")
    return found


def prepare(test: Any, request: Any) -> tuple[Any, Any]:
    """Return the factory's `Dut` with only the overrides of a test, and its unit."""
    uvm_factory().clear_overrides()
    ConfigDB().clear()
    ConfigDB().set(None, "*", "request", request)
    test.overrides()
    dut = test.DUT.create("dut")
    return dut, dut.make()
