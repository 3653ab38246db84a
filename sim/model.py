"""Compiled models of Verilated designs."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halfulp.tools.errors import ToolError

from .build import Design, component_design, design, models
from .driver import CONSTANTS, DriverPorts
from .ports import Codes, Columns

if TYPE_CHECKING:
    from halfulp.units import Unit

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

ALWAYS = np.ones(1, dtype=np.uint8)
"""Ready pattern of a stream that transfers in every cycle."""

_HANDLE, _NUMBER = ctypes.c_void_p, ctypes.c_uint64

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "new": (_HANDLE, []),
    "free": (None, [_HANDLE]),
    "reset": (None, [_HANDLE]),
    "select": (None, [_HANDLE, _NUMBER]),
    "run": (None, [_HANDLE, _NUMBER, _HANDLE, _HANDLE, _NUMBER, _NUMBER]),
    "compare": (_NUMBER, [_HANDLE, _NUMBER, _HANDLE, _HANDLE, _HANDLE, ctypes.c_bool]),
    "record": (None, [_HANDLE, _NUMBER, _HANDLE, _HANDLE, _HANDLE, ctypes.c_bool]),
    "streams": (None, [_HANDLE, _HANDLE, _HANDLE, _NUMBER, _NUMBER, ctypes.c_bool]),
    "memory": (None, [_HANDLE, _HANDLE]),
    "faults": (_NUMBER, [_HANDLE]),
    "put": (ctypes.c_bool, [_HANDLE, _NUMBER, _NUMBER]),
    "get": (_NUMBER, [_HANDLE, _NUMBER]),
    "wait": (ctypes.c_bool, [_HANDLE, _NUMBER]),
    "coverage": (None, [_HANDLE, ctypes.c_char_p]),
}
"""Result and argument types of the functions in ``driver.cpp``; a design without memory ports lacks some."""


class _Lane(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_uint64)]


class _Traffic(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("go", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("period", "done", "faults", "last")),
    ]


class _Behaviour(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("base", "bytes", "read", "write", "stall", "seed")),
    ]


@dataclass(frozen=True)
class Passed:
    """Transfers on the streams of a component.

    Attributes
    ----------
    cycles : dict of str to int
        Number of cycles up to and including the last transfer of each stream.
    accepted : dict of str to int
        Number of transfers of each input.
    given : dict of str to int
        Number of transfers of each output; those beyond the requested number are not stored.
    faults : dict of str to int
        Number of payloads of each output that changed or were withdrawn before their transfer, or were unexpected.
    words : dict of str to array
        Payloads of each output: one row of 32-bit words per payload, lowest word first.
    """

    cycles: dict[str, int]
    accepted: dict[str, int]
    given: dict[str, int]
    faults: dict[str, int]
    words: dict[str, Words]


class CompiledModel:
    """A Verilated design with its driver, after a reset.

    Models may run in parallel threads: calls release the interpreter lock.

    Parameters
    ----------
    made : Design
    kind : str
        Kind of model, from `halfulp.sim.build.LIBRARIES`.

    Raises
    ------
    ToolError
        If the model cannot be built or loaded.
    """

    def __init__(self, made: Design, kind: str = "loop") -> None:
        path = models(made, (kind,))[kind]
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise ToolError(f"the compiled model {path} cannot be loaded: {error}") from error
        for name, (result, arguments) in _FUNCTIONS.items():
            if (function := getattr(self._library, f"halfulp_{name}", None)) is not None:
                function.restype, function.argtypes = result, arguments
        self.name = made.name
        self.ports = made.ports
        self.widths = made.widths
        self._model = self._library.halfulp_new()
        self._memory: Bytes | None = None
        self.reset()

    @classmethod
    def of_unit(cls, unit: "Unit", kind: str = "loop") -> "CompiledModel":
        """Build the model of a unit, which takes one vector per cycle."""
        return cls(design(unit), kind)

    @classmethod
    def of_component(cls, component: Any, latency: int = 0) -> "CompiledModel":
        """Build the model of any component with ports of up to 64 bits, which takes one vector per cycle."""
        members = [(name, member.flow.name) for name, member in component.signature.members.items()]
        inputs, outputs = (tuple(name for name, flow in members if flow == wanted) for wanted in ("In", "Out"))
        return cls(component_design(component, DriverPorts(inputs, outputs, tuple(CONSTANTS), latency)))

    @classmethod
    def of_streams(cls, component: Any) -> "CompiledModel":
        """Build the model of a component that has only streams."""
        return cls(component_design(component, DriverPorts.of_streams(component.signature)), "streams")

    @classmethod
    def of_core(cls, component: Any, ports: DriverPorts) -> "CompiledModel":
        """Build the model of a core with memory ports."""
        return cls(component_design(component, ports), "axi")

    def close(self) -> None:
        """Free the model."""
        if self._model:
            self._library.halfulp_free(self._model)
            self._model = None

    def __enter__(self) -> "CompiledModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> None:
        """Hold reset for two cycles."""
        self._library.halfulp_reset(self._model)

    def select(self, mutant: int) -> None:
        """Select a mutant, counted from 1; 0 selects the original design."""
        self._library.halfulp_select(self._model, mutant)

    # Vectors of codes ------------------------------------------------------------------------------------------------

    def run(self, vectors: Columns, count: int) -> dict[str, Codes]:
        """Run vectors, as fast as the unit accepts them, and return an array of ``count`` codes for each output.

        Parameters
        ----------
        vectors : mapping
            For each input, ``count`` codes or one code for all vectors.
        count : int
        """
        results = {name: np.empty(count, dtype=np.uint64) for name in self.ports.outputs}
        feeds, places = self._feeds(vectors, count), _pointers(results.values())
        self._library.halfulp_run(self._model, count, feeds.lanes, places, self.ports.latency, self.ports.initiation)
        return results

    def first_difference(
        self, inputs: Columns, expected: Columns, look: npt.NDArray[np.bool_], *, count: int, before: bool
    ) -> int | None:
        """Run cycles until an output differs from its expected code; return the index of that cycle, or None.

        Parameters
        ----------
        inputs, expected : mapping
            One code per cycle for each input and output.
        look : array of bool
            Cycles in which outputs are compared.
        count : int
            Maximum number of cycles.
        before : bool
            Sample outputs before the clock edge; default: after it.
        """
        feeds = self._feeds({name: inputs[name][:count] for name in self.ports.inputs}, count)
        wanted = _pointers([expected[name] for name in self.ports.outputs])
        seen = np.ascontiguousarray(look, dtype=np.uint8)
        found: int = self._library.halfulp_compare(self._model, count, feeds.lanes, wanted, seen.ctypes.data, before)
        return None if found == count else found

    def record(self, inputs: Columns, mutants: Codes, *, before: bool = False) -> dict[str, Codes]:
        """Run cycles with one mutant per cycle; return the outputs before or after each clock edge."""
        count = len(mutants)
        found = {name: np.empty(count, dtype=np.uint64) for name in self.ports.outputs}
        feeds, chosen = self._feeds(inputs, count), _Feeds([mutants], count)
        self._library.halfulp_record(self._model, count, feeds.lanes, _pointers(found.values()), chosen.lanes, before)
        return found

    def _feeds(self, vectors: Columns, count: int) -> "_Feeds":
        for name in self.ports.inputs:
            if np.size(vectors[name]) not in (1, count):
                raise ValueError(
                    f"input {name} has {np.size(vectors[name])} codes for {count} vectors; expected 1 or {count}"
                )
        return _Feeds([vectors[name] for name in self.ports.inputs], count)

    def write_coverage(self, path: Path) -> None:
        """Write the counters of a model of kind ``covered`` to a file."""
        self._library.halfulp_coverage(self._model, str(path).encode())

    # Streams ---------------------------------------------------------------------------------------------------------

    def stream(
        self,
        payloads: Mapping[str, Words],
        counts: Mapping[str, int],
        *,
        go: Mapping[str, Bytes] | None = None,
        limit: int,
        more: int = 0,
        expected: Mapping[str, Words] | None = None,
    ) -> Passed:
        """Send payloads and receive the requested numbers of payloads.

        Parameters
        ----------
        payloads : mapping
            Payloads of each input, packed by `pack`.
        counts : mapping
            Number of requested payloads of each output.
        go : mapping, optional
            Periodic pattern of each stream: cycles in which an input may start an offer, or an output is ready;
            default: all cycles.
        limit : int
            Maximum number of cycles.
        more : int
            Number of extra cycles after the last requested transfer.
        expected : mapping, optional
            Expected payloads of each output; the run ends at the first fault.
        """
        sources, sinks = self.ports.sources, self.ports.sinks
        go = {name: np.ascontiguousarray((go or {}).get(name, ALWAYS), dtype=np.uint8) for name in (*sources, *sinks)}
        given = (
            expected
            if expected is not None
            else {name: np.zeros((counts[name], self._words(name)), np.uint32) for name in sinks}
        )
        held = {name: np.ascontiguousarray(payloads[name], dtype=np.uint32) for name in sources}
        held |= {name: np.ascontiguousarray(given[name], dtype=np.uint32) for name in sinks}
        for name, words in held.items():
            if words.ndim != 2 or words.shape[1] != self._words(name):
                raise ValueError(f"payloads of {name} need rows of {self._words(name)} words, not shape {words.shape}")
        lanes = {
            name: _Traffic(words.ctypes.data, len(words), go[name].ctypes.data, len(go[name]))
            for name, words in held.items()
        }
        inputs, outputs = ((_Traffic * len(names))(*(lanes[name] for name in names)) for names in (sources, sinks))
        self._library.halfulp_streams(self._model, inputs, outputs, limit, more, expected is not None)
        return Passed(
            cycles={name: lane.last for name, lane in zip(held, (*inputs, *outputs), strict=True)},
            accepted={name: lane.done for name, lane in zip(sources, inputs, strict=True)},
            given={name: lane.done for name, lane in zip(sinks, outputs, strict=True)},
            faults={name: lane.faults for name, lane in zip(sinks, outputs, strict=True)},
            words={name: held[name] for name in sinks},
        )

    def _words(self, name: str) -> int:
        return -(-self.widths[f"{name}__payload"] // 32)

    # A memory and a host ---------------------------------------------------------------------------------------------

    def attach(
        self, memory: Bytes, base: int = 0, *, read: int = 1, write: int = 1, stall: float = 0.0, seed: int = 1
    ) -> None:
        """Attach a memory of whole beats to the AXI4 ports; other addresses are answered with DECERR.

        Parameters
        ----------
        memory : array of uint8
            Content, read and written in place.
        base : int
            First address of the memory.
        read : int
            Cycles from an address to the first beat, at least 1.
        write : int
            Cycles from the last beat of a write burst to its response, at least 1.
        stall : float
            Share of cycles in which a channel stalls, 0 <= stall < 1.
        seed : int
            Seed of the stalls.
        """
        self._memory = memory
        behaviour = _Behaviour(memory.ctypes.data, base, memory.nbytes, read, write, int(256 * stall), seed)
        self._library.halfulp_memory(self._model, ctypes.byref(behaviour))

    def put(self, address: int, word: int) -> None:
        """Write a register; raises ToolError if the core does not answer."""
        if not self._library.halfulp_put(self._model, address, word):
            raise ToolError(f"{self.name} does not answer a write of the register at {address:#x}")

    def get(self, address: int) -> int:
        """Read a register; raises ToolError if the core does not answer."""
        word = int(self._library.halfulp_get(self._model, address))
        if word >> 32:
            raise ToolError(f"{self.name} does not answer a read of the register at {address:#x}")
        return word

    def wait(self, limit: int) -> bool:
        """Run until the interrupt or for ``limit`` cycles; return True if the interrupt came."""
        return bool(self._library.halfulp_wait(self._model, limit))

    @property
    def faults(self) -> int:
        """Number of violations of AXI4.

        The memory checks that offers are stable, that bursts are whole ascending beats within a page, and that the last
        beat is marked.
        """
        return int(self._library.halfulp_faults(self._model))


class _Feeds:
    """Input arrays in the layout of the driver; they must live as long as the call."""

    def __init__(self, columns: Sequence[Codes], count: int) -> None:
        self._columns = [np.ascontiguousarray(column, dtype=np.uint64) for column in columns]
        rows = (_Lane(column.ctypes.data, 0 if column.size == 1 and count != 1 else 1) for column in self._columns)
        self.lanes = (_Lane * len(columns))(*rows)


def _pointers(arrays: Any) -> Any:
    for array in arrays:
        assert array.dtype == np.uint64
        assert array.flags.c_contiguous
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def pack(codes: Codes, widths: Sequence[int]) -> Words:
    """Pack codes into payloads; the first column is in the lowest bits."""
    bits = [
        (codes[:, column, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
        for column, width in enumerate(widths)
    ]
    joined = np.concatenate(bits, axis=1).astype(np.uint8)
    padded = np.pad(joined, ((0, 0), (0, -joined.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint32)


def unpack(words: Words, widths: Sequence[int]) -> Codes:
    """Unpack payloads into codes."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little").astype(np.uint64)
    columns = np.split(bits, np.cumsum(widths), axis=1)[:-1]
    return np.stack([(column << np.arange(column.shape[1], dtype=np.uint64)).sum(axis=1) for column in columns], axis=1)
