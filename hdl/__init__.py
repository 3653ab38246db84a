"""Number formats, descriptions of computations, and building blocks of hardware.

Formats are plain Python, and Amaranth shapes wherever Amaranth is: this package imports `halfulp.hdl.shape` if Amaranth
is imported already, and else right after it is.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _AfterAmaranth(MetaPathFinder):
    """Import hook that makes formats Amaranth shapes when ``amaranth.hdl`` has been imported."""

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

            spec.loader.exec_module = execute_and_shape  # type: ignore[method-assign]
        return spec


if "amaranth.hdl" in sys.modules:
    importlib.import_module("halfulp.hdl.shape")
else:
    sys.meta_path.insert(0, _AfterAmaranth())
