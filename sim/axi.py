"""Cores with AXI4 ports to memory and an AXI4-Lite port for registers, at compiled speed."""

import ctypes
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from halfulp.tools.errors import ToolError

from .build import component_design, models
from .harness import axi_ports

Bytes = npt.NDArray[np.uint8]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("base", "bytes", "read", "write", "stall", "seed")),
    ]


@dataclass(frozen=True)
class Ports:
    """The ports of a core, by the beginning of the names of their signals.

    Attributes
    ----------
    clock, reset, interrupt : str
        Signals; the reset is active low, and synchronous.
    host : str
        AXI4-Lite, with 32 bits of data and 9 to 16 of address.
    reads, writes : tuple of str
        AXI4, with 512 bits of data and 64 of address.
    """

    clock: str
    reset: str
    interrupt: str
    host: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class Axi:
    """The Verilated model of a core, behind whose ports there is one memory.

    Parameters
    ----------
    component : wiring.Component
    ports : Ports

    Raises
    ------
    ToolError
        If it cannot be built.
    """

    def __init__(self, component: Any, ports: Ports) -> None:
        self.name = component.name
        design = component_design(component, compiled=partial(axi_ports, ports))
        path = models(design, ["axi"])["axi"]
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise ToolError(f"the compiled loop {path} cannot be loaded: {error}") from error
        handle, number = ctypes.c_void_p, ctypes.c_uint64
        for name, result, arguments in (
            ("new", handle, []),
            ("free", None, [handle]),
            ("memory", None, [handle, handle]),
            ("reset", None, [handle]),
            ("put", ctypes.c_bool, [handle, number, number]),
            ("get", number, [handle, number]),
            ("wait", ctypes.c_bool, [handle, number]),
            ("faults", number, [handle]),
        ):
            function = getattr(self._library, f"halfulp_{name}")
            function.restype, function.argtypes = result, arguments
        self._model = self._library.halfulp_new()
        self._held: Bytes | None = None
        self.reset()

    def close(self) -> None:
        """Give the model back."""
        if self._model:
            self._library.halfulp_free(self._model)
            self._model = None

    def __enter__(self) -> "Axi":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> None:
        """Hold reset for two cycles."""
        self._library.halfulp_reset(self._model)

    def remember(
        self, memory: Bytes, base: int = 0, *, read: int = 1, write: int = 1, stall: float = 0.0, seed: int = 1
    ) -> None:
        """Put a memory behind the ports, of whole beats; an address outside of it is answered with DECERR.

        Parameters
        ----------
        memory : array of uint8
            Is read and written in place.
        base : int
            Its first address.
        read : int
            Cycles from an address that it takes to the first beat, 1 or more.
        write : int
            Cycles from the last beat of a burst that is written to the answer, 1 or more.
        stall : float
            How often each channel waits, from 0 to less than 1.
        seed : int
            Of the cycles in which they do.
        """
        self._held = memory
        behaviour = (read, write, int(256 * stall), seed)
        given = _Memory(memory.ctypes.data, base, memory.nbytes, *behaviour)
        self._library.halfulp_memory(self._model, ctypes.byref(given))

    def put(self, address: int, word: int) -> None:
        """Write a register.

        Raises
        ------
        ToolError
            If the core does not answer; also of `get`.
        """
        if not self._library.halfulp_put(self._model, address, word):
            raise ToolError(f"{self.name} does not answer a write of the register at {address:#x}")

    def get(self, address: int) -> int:
        """Read a register."""
        word = int(self._library.halfulp_get(self._model, address))
        if word >> 32:
            raise ToolError(f"{self.name} does not answer a read of the register at {address:#x}")
        return word

    def wait(self, limit: int) -> bool:
        """Go on until there is an interrupt, but no longer than so many cycles; whether there is one."""
        return bool(self._library.halfulp_wait(self._model, limit))

    @property
    def faults(self) -> int:
        """How often the core has broken a rule of AXI4.

        What is offered stays, bursts are whole beats in ascending order within a page, and the last beat is marked.
        """
        return int(self._library.halfulp_faults(self._model))
