"""Import of users' functions and classes by texts such as ``package.module:name`` or ``path/to/file.py:name``."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


def imported(text: str) -> Any:
    """Import an object; ValueError if the text is invalid, or the module or the object does not exist."""
    where, _, name = text.rpartition(":")
    if not (where and name.isidentifier()):
        raise ValueError(f"invalid name {text!r}: expected module:name or path/to/file.py:name")
    module = module_of(where)
    if not hasattr(module, name):
        raise ValueError(f"{where} has no attribute {name!r}")
    return getattr(module, name)


def module_of(where: str) -> Any:
    """Import a module by name, also from the current folder, or from a file; ValueError if that fails."""
    path = Path(where).resolve()
    of_file = where.endswith(".py")
    if of_file and not path.is_file():
        raise ValueError(f"there is no file {where}")
    folder = str(path.parent if of_file else Path.cwd())
    if folder not in sys.path:
        # The folder stays, because functions of the module may import more when they run.
        sys.path.insert(0, folder)
    try:
        return _of_file(path) if of_file else importlib.import_module(where)
    except Exception as error:  # the user's module may raise anything
        raise ValueError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error


def _of_file(path: Path) -> Any:
    """Import a file; a later ``import`` of its name by user code gives the same module."""
    name = f"halfulp_of_user_{path.stem}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    free = sys.modules.get(path.stem) is sys.modules.get(name)
    names = [name, path.stem] if free else [name]
    sys.modules.update(dict.fromkeys(names, module))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for made in names:
            del sys.modules[made]
        raise
    return module
