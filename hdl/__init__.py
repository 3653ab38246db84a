"""Number formats, descriptions of computations, and building blocks of hardware.

Formats work without Amaranth. If Amaranth is imported, before or after this package, `halfulp.hdl.shape` is imported
too and makes formats Amaranth shapes.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _AfterAmaranth(MetaPathFinder):
    """Import hook that makes formats Amaranth shapes after the import of ``amaranth.hdl``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "amaranth.hdl":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_shape(module: ModuleType) -> None:
                execute(module)
                importlib.import_module("halfulp.hdl.shape")

            spec.loader.exec_module = execute_and_shape  # type: ignore[method-assign]  # the way to run code after an import
        return spec


if "amaranth.hdl" in sys.modules:
    importlib.import_module("halfulp.hdl.shape")
else:
    sys.meta_path.insert(0, _AfterAmaranth())
