"""What the simulation is told by the process that starts it, and tells it back."""

import importlib
import importlib.util
import inspect
import json
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyuvm import ConfigDB, uvm_factory, uvm_test

from halfulp.sim.report import Check, Failure


@dataclass(frozen=True)
class Job:
    """A test to be run in the simulator.

    Attributes
    ----------
    test : str
        A module or a file of Python and, after a colon, the class.
    request
        What is tested, for the `Dut`.
    seed : int
    limit : int, optional
        Most operations of a sequence.
    sequence : str
        One of `SEQUENCES`.
    vector : mapping, optional
        The one vector to run.
    """

    test: str
    request: Any
    seed: int = 0
    limit: int | None = None
    sequence: str = "campaign"
    vector: Mapping[str, int] | None = None

    def write_files(self, folder: Path) -> None:
        """Write it where the simulation finds it."""
        (folder / "job.pickle").write_bytes(pickle.dumps(self))

    @classmethod
    def find(cls, folder: Path) -> "Job":
        """Read what `leave` wrote."""
        job: Job = pickle.loads((folder / "job.pickle").read_bytes())
        return job


def write_findings(folder: Path, checks: Sequence[Check], notes: Sequence[str]) -> None:
    """Write what was found, for the process that started the simulation."""
    found = {"checks": [asdict(check) for check in checks], "notes": list(notes)}
    (folder / "findings.json").write_text(json.dumps(found))


def find_findings(folder: Path) -> tuple[list[Check], list[str]] | None:
    """Read what `leave_findings` wrote, if it did."""
    path = folder / "findings.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text())
    checks = [
        Check(**{**row, "failures": [Failure(**failure) for failure in row["failures"]]}) for row in found["checks"]
    ]
    return checks, found["notes"]


def name_of(test: type | str) -> str:
    """Text by which the simulation, which runs in another folder, finds a class, or one that `class_of` takes.

    Raises
    ------
    ValueError
        If it is not at the top of a file.
    """
    if isinstance(test, str):
        where, colon, name = test.rpartition(":")
        return f"{Path(where).resolve()}{colon}{name}" if where.endswith(".py") else test
    if "<locals>" in test.__qualname__:
        raise ValueError(f"{test.__qualname__} is defined in a function, where the simulation does not find it")
    own = test.__module__.startswith("halfulp.")
    return f"{test.__module__ if own else Path(inspect.getfile(test)).resolve()}:{test.__qualname__}"


def class_of(text: str) -> type:
    """The class of a test, from ``package.module:Class`` or ``path/to/file.py:Class``.

    Raises
    ------
    ValueError
        If there is none of that name, or it is no `uvm_test`.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise ValueError(f"{text!r} names no test; one is written like my_tests.py:MyTest or package.module:MyTest")
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
    """The `Dut` that the factory makes with the overrides of a test, the only ones from then on, and its unit."""
    uvm_factory().clear_overrides()
    ConfigDB().clear()
    ConfigDB().set(None, "*", "request", request)
    test.overrides()
    dut = test.DUT.create("dut")
    return dut, dut.make()
