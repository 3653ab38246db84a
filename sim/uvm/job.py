"""Files between the simulation and the process that starts it, and classes of tests by name."""

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
"""Files of the job, and of the checks and notes that the simulation found."""


@dataclass(frozen=True)
class Job:
    """A test that runs in the simulator.

    Attributes
    ----------
    test : str
        A module or a file of Python and, after a colon, the class.
    request
        Unit, for the `Dut`.
    limit : int, optional
        Most operations of a sequence.
    sequence : str
        One of `SEQUENCES`.
    vector : mapping, optional
        One vector to run instead of all others.
    """

    test: str
    request: Any
    seed: int = 0
    limit: int | None = None
    sequence: str = "campaign"
    vector: Mapping[str, int] | None = None


def name_of(test: type | str) -> str:
    """Text of a class, or of one that `class_of` takes, that does not depend on the folder.

    It raises ValueError for a class that is not at the top of a file.
    """
    if isinstance(test, str):
        where, colon, name = test.rpartition(":")
        return f"{Path(where).resolve()}{colon}{name}" if where.endswith(".py") else test
    if "<locals>" in test.__qualname__:
        raise ValueError(f"{test.__qualname__} is defined in a function; a test has to be at the top of a file")
    own = test.__module__.startswith("halfulp.")
    return f"{test.__module__ if own else Path(inspect.getfile(test)).resolve()}:{test.__qualname__}"


def class_of(text: str) -> type:
    """The class of a test, from ``package.module:Class`` or ``path/to/file.py:Class``.

    It raises ValueError if there is none of that name, or it is no `uvm_test`.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise ValueError(f"invalid test {text!r}: expected my_tests.py:MyTest or package.module:MyTest")
    module = module_of(where)
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, uvm_test):
        raise ValueError(f"{where} has no test {name}")
    return found


def module_of(where: str) -> Any:
    """A module, or a file as one; raises as `class_of` does."""
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ImportError as error:
            raise ValueError(f"there is no module {where} with tests: {error}") from None
    path = Path(where).resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {where} with tests")
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
    """The `Dut` of the factory with the overrides of a test, and no others, and its unit."""
    uvm_factory().clear_overrides()
    ConfigDB().clear()
    ConfigDB().set(None, "*", "request", request)
    test.overrides()
    dut = test.DUT.create("dut")
    return dut, dut.make()
