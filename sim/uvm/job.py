"""Files between the simulation and the process that starts it, and lookup of test classes by name."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyuvm import ConfigDB, uvm_factory, uvm_test

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
    where, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise ValueError(f"invalid test {text!r}: expected my_tests.py:MyTest or package.module:MyTest")
    module = module_of(where)
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, uvm_test):
        raise ValueError(f"{where} has no test {name}: expected a class derived from UnitTest")
    return found


def module_of(where: str) -> Any:
    """Import a module by name or from a file; raises ValueError if there is none."""
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ImportError as error:
            raise ValueError(f"cannot import the module {where} of the test: {error}") from None
    path = Path(where).resolve()
    if not path.is_file():
        raise ValueError(f"there is no test file {where}")
    name = f"halfulp_test_{path.stem}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def prepare(test: Any, request: Any) -> tuple[Any, Any]:
    """Return the factory's `Dut` with only the overrides of a test, and its unit."""
    uvm_factory().clear_overrides()
    ConfigDB().clear()
    ConfigDB().set(None, "*", "request", request)
    test.overrides()
    dut = test.DUT.create("dut")
    return dut, dut.make()
