"""The compiled loop seen from Python."""

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halfulp.tools.errors import ToolError

from .ports import Ports

Codes = npt.NDArray[np.uint64]


class Lane(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_uint64)]


class Loop:
    """One Verilated model. Several may run at once, each in a thread of its own: the call drops the interpreter lock.

    Parameters
    ----------
    library : Path
        The ``loop.so`` of `build.models`.
    inputs, outputs : Ports
        Of the unit.
    latency : int
        Of the unit.
    """

    def __init__(self, library: Path, inputs: Ports, outputs: Ports, latency: int) -> None:
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise ToolError(f"the compiled loop {library} cannot be loaded: {error}") from error
        self._library.halfulp_new.restype = ctypes.c_void_p
        self._library.halfulp_run.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint64,
            *(ctypes.c_void_p,) * 2,
            ctypes.c_uint64,
        ]
        for name in ("halfulp_free", "halfulp_reset"):
            getattr(self._library, name).argtypes = [ctypes.c_void_p]
        self.inputs, self.outputs, self.latency = inputs, outputs, latency
        self._model = self._library.halfulp_new()

    def close(self) -> None:
        """Give the model back."""
        if self._model:
            self._library.halfulp_free(self._model)
            self._model = None

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> None:
        """Hold reset for two cycles."""
        self._library.halfulp_reset(self._model)

    def run(self, vectors: Mapping[str, Codes], count: int) -> dict[str, Codes]:
        """Feed vectors, one a cycle, and return the results.

        Parameters
        ----------
        vectors : mapping
            For each input an array of ``count`` codes, or of one that every vector shares.
        count : int

        Returns
        -------
        dict
            For each output an array of ``count`` codes.
        """
        feeds = [np.ascontiguousarray(vectors[port.name], dtype=np.uint64) for port in self.inputs]
        lanes = (Lane * len(feeds))(
            *(Lane(feed.ctypes.data, 0 if feed.size == 1 and count != 1 else 1) for feed in feeds)
        )
        for port, feed in zip(self.inputs, feeds, strict=True):
            if feed.size not in (1, count):
                raise ValueError(f"input {port.name} has {feed.size} codes for {count} vectors")
        results = {port.name: np.empty(count, dtype=np.uint64) for port in self.outputs}
        pointers = (ctypes.c_void_p * len(results))(*(result.ctypes.data for result in results.values()))
        self._library.halfulp_run(self._model, count, ctypes.byref(lanes), ctypes.byref(pointers), self.latency)
        return results

    def write_coverage(self, path: Path) -> None:
        """Leave what a model of the kind ``covered`` has counted in a file."""
        self._library.halfulp_coverage.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self._library.halfulp_coverage(self._model, str(path).encode())
