"""Boards: a device with memories around it, and the platform that a kernel is linked for."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .targets import Target

KINDS = ("lut", "ff", "dsp", "bram", "uram")
"""Resources of a device, by the names that `Target` has for them."""

BUFG_MHZ = 775
"""No clock of UltraScale+ at speed grade -2 and 0.85 V is faster (AMD, DS923: global clock tree, and DSP48E2)."""

COMPUTE_UNITS = 31
"""Instances of a kernel that the linker takes (AMD, Data Center Acceleration Using Vitis, UG1700)."""


@dataclass(frozen=True)
class Slr:
    """A die of a device that is made of several, as the vendor's tools number them from 0.

    Parameters
    ----------
    lut, ff, dsp, bram, uram : int
        As `Target` has them of the whole device.
    """

    lut: int
    ff: int
    dsp: int
    bram: int
    uram: int


def alike(target: Target, count: int) -> tuple[Slr, ...]:
    """So many dies of the same kind, of which a device is made.

    Raises
    ------
    ValueError
        If its resources do not come in so many equal parts.
    """
    totals = {kind: getattr(target, kind) for kind in KINDS}
    for kind, total in totals.items():
        if total % count:
            raise ValueError(f"{target.name} has {total:,} {kind.upper()}, which are not {count} equal parts")
    return (Slr(**{kind: total // count for kind, total in totals.items()}),) * count


@dataclass(frozen=True)
class Memory:
    """Banks of memory of one kind.

    Parameters
    ----------
    tag : str
        What the linker calls them: ``HBM`` or ``DDR``.
    kind : str
        Of the memory, such as ``HBM2``.
    banks : int
        Channels of DDR, or pseudo-channels of HBM.
    bank_mib : int
        Size of each, in MiB.
    bank_gbps : float
        Bandwidth of each, in 10^9 bytes a second.
    masters : int
        Ports of kernels that can be connected to each.
    latency_ns : float
        From a request to its first beat, where it is not loaded.
    slrs : tuple of int
        The die that each bank is next to; empty where no source says so.
    """

    tag: str
    kind: str
    banks: int
    bank_mib: int
    bank_gbps: float
    masters: int
    latency_ns: float
    slrs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.slrs) not in (0, self.banks):
            raise ValueError(f"{self.banks} banks of {self.tag} are next to as many dies, not to {len(self.slrs)}")

    @property
    def ports(self) -> int:
        """Ports of kernels that can be connected in all."""
        return self.banks * self.masters


@dataclass(frozen=True)
class Board:
    """A device on a board.

    Parameters
    ----------
    name, title : str
        In a word, and in full.
    target : Target
        The device and what it has. What a platform's own logic takes of it is not for the user.
    slrs : tuple of Slr
        The dies that it is made of.
    memories : tuple of Memory
        The first is where kernels are connected.
    sources : tuple of str
        Where these figures are from.
    platform : str, optional
        Development platform of the vendor's that kernels are linked for with XRT; None where there is none.
    kernel_mhz : int, optional
        Default clock of kernels on it.
    pcie_gbps : float
        Bandwidth to the host's memory, in 10^9 bytes a second.
    amaranth : str, optional
        The board's platform for Amaranth, as ``module:class``.

    Raises
    ------
    ValueError
        If the dies together are not the device.
    """

    name: str
    title: str
    target: Target
    slrs: tuple[Slr, ...]
    memories: tuple[Memory, ...]
    sources: tuple[str, ...]
    platform: str | None = None
    kernel_mhz: int | None = None
    pcie_gbps: float = 15.75
    amaranth: str | None = None

    def __post_init__(self) -> None:
        for kind in KINDS:
            total, parts = getattr(self.target, kind), sum(getattr(slr, kind) for slr in self.slrs)
            if parts != total:
                raise ValueError(f"the dies of {self.name} have {parts:,} {kind.upper()}, and the device {total:,}")

    @property
    def memory(self) -> Memory:
        """The memory that kernels are connected to."""
        return self.memories[0]

    def beats(self, mhz: float, readers: int, bits: int = 512) -> tuple[int, float]:
        """The memory as so many ports that read see it at a clock: cycles from a request to its first beat, and beats
        in a cycle, where each has an equal share of the banks and no more than one of them."""
        memory = self.memory
        each = memory.bank_gbps * min(memory.banks / readers, 1)
        return math.ceil(memory.latency_ns * mhz / 1000), min(each * 8e3 / (bits * mhz), 1.0)

    def cores(self, ports: int) -> int:
        """Most kernels of so many ports each whose ports can all be connected."""
        return min(self.memory.ports // ports, COMPUTE_UNITS)

    def build_platform(self) -> Any:
        """The board's platform for Amaranth.

        Raises
        ------
        ValueError
            If it has none.
        """
        if self.amaranth is None:
            raise ValueError(f"{self.name} has no platform for Amaranth: its pins belong to the shell on the card")
        import importlib

        module, _, name = self.amaranth.partition(":")
        return getattr(importlib.import_module(module), name)()


def fields_of(part: str) -> tuple[str, str, str]:
    """Device, package and speed grade of a part of UltraScale+, as Amaranth has them.

    Raises
    ------
    ValueError
        If it is none.
    """
    found = re.fullmatch(r"(xc[a-z]*\d+[a-z]?)-([a-z]+\d+)-(\d[A-Z]?-[a-z])", part)
    if found is None:
        raise ValueError(f"{part} is no part of UltraScale+; one is written like xcvu9p-flga2104-2L-e")
    return found[1], found[2], found[3]


def lines(boards: Sequence[Board]) -> list[str]:
    """Boards as lines: what they are made of, and where that is said."""
    head = f"{'board':9}{'part':22}{'SLRs':>5}{'LUT':>11}  {'memory':34}{'ports':>6}{'GB/s':>7}{'MHz':>5}  platform"
    shown = [head]
    for board in boards:
        for place, memory in enumerate(board.memories):
            size = f"{memory.banks} x {_size(memory.bank_mib)} {memory.kind}"
            own = (board.name, board.target.part, str(len(board.slrs)), f"{board.target.lut:,}")
            first = own if place == 0 else ("",) * 4
            clock, platform = (str(board.kernel_mhz or ""), board.platform or "") if place == 0 else ("", "")
            shown.append(
                f"{first[0]:9}{first[1]:22}{first[2]:>5}{first[3]:>11}  {size:34}{memory.ports:6}"
                f"{memory.banks * memory.bank_gbps:7.0f}{clock:>5}  {platform}".rstrip()
            )
    sources = [f"  {board.name}: {'; '.join((board.target.source, *board.sources))}" for board in boards]
    return [
        *shown,
        "",
        "Ports: of kernels, that the memory takes. MHz: of kernels, unless the linker is told otherwise.",
        "Platform: of XRT, that kernels are linked for. LUT: of the device; the platform takes some of them.",
        "Sources:",
        *sources,
    ]


def _size(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"
