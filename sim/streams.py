"""Components whose ports are streams, at compiled speed."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Value

from halfulp.tools.errors import ToolError

from .build import component_design, models
from .harness import stream_ports, streams_of

Words = npt.NDArray[np.uint32]
Codes = npt.NDArray[np.uint64]

ALWAYS = np.ones(1, dtype=np.uint8)
"""Offers, or takes, in every cycle."""


class _Traffic(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("go", ctypes.c_void_p),
        ("period", ctypes.c_uint64),
        ("done", ctypes.c_uint64),
        ("faults", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class Passed:
    """What went through the streams of a component.

    Attributes
    ----------
    cycles : dict of str to int
        Up to the last transfer of each stream, that one counted.
    accepted : dict of str to int
        Transfers of each input.
    given : dict of str to int
        Transfers of each output, of which those that were not asked for are not kept.
    faults : dict of str to int
        How often a payload of each output changed, or was withdrawn, while it waited.
    words : dict of str to array
        Payloads of each output, a row of words of 32 bits each, the lowest first.
    """

    cycles: dict[str, int]
    accepted: dict[str, int]
    given: dict[str, int]
    faults: dict[str, int]
    words: dict[str, Words]


class Streams:
    """The Verilated model of a component, all of whose ports are streams.

    Parameters
    ----------
    component : wiring.Component

    Raises
    ------
    ToolError
        If it cannot be built.
    """

    def __init__(self, component: Any) -> None:
        self.inputs, self.outputs = streams_of(component.signature)
        payloads = {name: getattr(component, name).payload for name in (*self.inputs, *self.outputs)}
        self.widths = {name: len(Value.cast(payload)) for name, payload in payloads.items()}
        path = models(component_design(component, compiled=partial(stream_ports, component.signature)), ["streams"])[
            "streams"
        ]
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise ToolError(f"the compiled loop {path} cannot be loaded: {error}") from error
        self._library.halfulp_new.restype = ctypes.c_void_p
        self._library.halfulp_streams.restype = None
        self._library.halfulp_streams.argtypes = [ctypes.c_void_p, *(ctypes.c_void_p,) * 2, *(ctypes.c_uint64,) * 2]
        for name in ("halfulp_free", "halfulp_reset"):
            getattr(self._library, name).argtypes = [ctypes.c_void_p]
        self._model = self._library.halfulp_new()
        self.reset()

    def close(self) -> None:
        """Give the model back."""
        if self._model:
            self._library.halfulp_free(self._model)
            self._model = None

    def __enter__(self) -> "Streams":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> None:
        """Hold reset for two cycles."""
        self._library.halfulp_reset(self._model)

    def run(
        self,
        payloads: Mapping[str, Words],
        counts: Mapping[str, int],
        *,
        go: Mapping[str, npt.NDArray[np.uint8]] | None = None,
        limit: int,
        more: int = 0,
    ) -> Passed:
        """Send payloads and take as many as are counted.

        Parameters
        ----------
        payloads : mapping
            For each input its payloads, as `pack` makes them.
        counts : mapping
            For each output how many payloads are waited for.
        go : mapping, optional
            For each stream in which cycles, over and over, a payload may begin to be offered, or is taken; always
            without.
        limit : int
            Cycles after which it ends, whatever has gone through.
        more : int
            Cycles that it goes on when all has.
        """
        go = {name: np.ascontiguousarray((go or {}).get(name, ALWAYS), dtype=np.uint8) for name in self.widths}
        held = {name: np.ascontiguousarray(payloads[name], dtype=np.uint32) for name in self.inputs}
        held |= {name: np.zeros((counts[name], self._words(name)), np.uint32) for name in self.outputs}
        for name in self.inputs:
            if held[name].ndim != 2 or held[name].shape[1] != self._words(name):
                raise ValueError(f"payloads of {name} are rows of {self._words(name)} words, not {held[name].shape}")
        traffic = {
            name: _Traffic(held[name].ctypes.data, len(held[name]), go[name].ctypes.data, len(go[name]), 0, 0, 0)
            for name in held
        }
        inputs, outputs = (
            (_Traffic * len(names))(*(traffic[name] for name in names)) for names in (self.inputs, self.outputs)
        )
        self._library.halfulp_streams(self._model, ctypes.byref(inputs), ctypes.byref(outputs), limit, more)
        return Passed(
            cycles={name: lane.last for name, lane in zip(held, (*inputs, *outputs), strict=True)},
            accepted={name: lane.done for name, lane in zip(self.inputs, inputs, strict=True)},
            given={name: lane.done for name, lane in zip(self.outputs, outputs, strict=True)},
            faults={name: lane.faults for name, lane in zip(self.outputs, outputs, strict=True)},
            words={name: held[name] for name in self.outputs},
        )

    def _words(self, name: str) -> int:
        return -(-self.widths[name] // 32)


def pack(codes: Codes, widths: Sequence[int]) -> Words:
    """Payloads of codes: the first column in the lowest bits, each as wide as is said."""
    bits = [
        (codes[:, column, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
        for column, width in enumerate(widths)
    ]
    joined = np.concatenate(bits, axis=1).astype(np.uint8)
    padded = np.pad(joined, ((0, 0), (0, -joined.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint32)


def unpack(words: Words, widths: Sequence[int]) -> Codes:
    """The codes of payloads."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little").astype(np.uint64)
    codes = np.zeros((len(words), len(widths)), dtype=np.uint64)
    low = 0
    for column, width in enumerate(widths):
        codes[:, column] = (bits[:, low : low + width] << np.arange(width, dtype=np.uint64)).sum(axis=1)
        low += width
    return codes
