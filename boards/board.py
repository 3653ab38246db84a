"""Boards: a device with memories around it, and the platform that kernels are linked for."""

import math
import pkgutil
import re
from dataclasses import dataclass
from typing import Any

from .targets import Target

KINDS = ("lut", "ff", "dsp", "bram", "uram")
"""Kinds of `Resources`."""

BUFG_MHZ = 775
"""Fastest clock of UltraScale+ at speed grade -2 and 0.85 V (AMD, DS923: global clock tree, and DSP48E2)."""

PORT_BITS = 512
"""Width of a kernel's port to memory."""

COMPUTE_UNITS = 31
"""Most instances of a kernel that the linker takes (AMD, Data Center Acceleration Using Vitis, UG1700)."""


@dataclass(frozen=True)
class Resources:
    """Resources of a die, or of a design, by the names that `Target` has for them."""

    lut: int
    ff: int
    dsp: int
    bram: int
    uram: int

    def share(self, target: Target, count: int = 1) -> dict[str, float]:
        """Percent of each resource of a device that ``count`` such designs take."""
        shares = {}
        for kind in KINDS:
            total, own = getattr(target, kind), count * getattr(self, kind)
            shares[kind.upper()] = 100 * own / total if total else (float("inf") if own else 0.0)
        return shares


def alike(target: Target, count: int) -> tuple[Resources, ...]:
    """The dies of a device of ``count`` equal ones; ValueError if ``count`` does not divide its resources."""
    totals = {kind: getattr(target, kind) for kind in KINDS}
    for kind, total in totals.items():
        if total % count:
            raise ValueError(f"{target.name} has {total:,} {kind.upper()}, which {count} equal dies cannot have")
    return (Resources(**{kind: total // count for kind, total in totals.items()}),) * count


@dataclass(frozen=True)
class Memory:
    """Banks of memory of one kind.

    Parameters
    ----------
    tag : str
        The linker's name: ``HBM`` or ``DDR``.
    kind : str
        Type, such as ``HBM2``.
    banks : int
        Channels of DDR, or pseudo-channels of HBM.
    bank_mib : int
        Size of a bank, in MiB.
    bank_gbps : float
        Bandwidth of a bank, in 10^9 bytes a second.
    masters : int
        Kernel ports that a bank can serve.
    latency_ns : float
        Time from a request to its first beat, without other traffic.
    slrs : tuple of int
        Index of the die beside each bank; empty where no source names it.
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
            raise ValueError(f"slrs has {len(self.slrs)} dies for {self.banks} banks of {self.tag}; it has one each")

    @property
    def ports(self) -> int:
        """Kernel ports that all banks can serve."""
        return self.banks * self.masters


@dataclass(frozen=True)
class Board:
    """A device on a board.

    Parameters
    ----------
    title : str
        Full name.
    target : Target
        The device, whose name is that of the board. The logic of a platform takes some of its resources.
    slrs : tuple of Resources
        Dies of the device, as the vendor's tools number them from 0.
    memories : tuple of Memory
        Kernels use the first one.
    sources : tuple of str
        Documents of these figures.
    platform : str, optional
        The vendor's development platform for kernels under XRT; None where it has none.
    kernel_mhz : int, optional
        Default clock of kernels.
    pcie_gbps : float
        Bandwidth to the host's memory, in 10^9 bytes a second.
    amaranth : str, optional
        The board's platform for Amaranth, as ``module:class``.

    Raises
    ------
    ValueError
        If the resources of the dies do not add up to those of the device.
    """

    title: str
    target: Target
    slrs: tuple[Resources, ...]
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
    def name(self) -> str:
        """Short name."""
        return self.target.name

    @property
    def memory(self) -> Memory:
        """The memory that kernels use."""
        return self.memories[0]

    def beats(self, mhz: float, readers: int) -> tuple[int, float]:
        """Latency in cycles from a request to its first beat, and beats a cycle, at each of ``readers`` ports.

        Each port has an equal share of the banks, of one bank at most.
        """
        memory = self.memory
        each = memory.bank_gbps * min(memory.banks / readers, 1)
        return math.ceil(memory.latency_ns * mhz / 1000), min(each * 8e3 / (PORT_BITS * mhz), 1.0)

    def cores(self, ports: int) -> int:
        """Most kernels of ``ports`` ports each that the memory can serve."""
        return min(self.memory.ports // ports, COMPUTE_UNITS)

    def build_platform(self) -> Any:
        """The board's platform for Amaranth; ValueError if there is none."""
        if self.amaranth is None:
            raise ValueError(f"{self.name} has no platform for Amaranth: its pins belong to the shell on the card")
        return pkgutil.resolve_name(self.amaranth)()


def fields_of(part: str) -> tuple[str, str, str]:
    """Device, package and speed grade of an UltraScale+ part, as Amaranth writes them; ValueError for other parts."""
    found = re.fullmatch(r"(xc[a-z]*\d+[a-z]?)-([a-z]+\d+)-(\d[A-Z]?-[a-z])", part)
    if found is None:
        raise ValueError(f"invalid UltraScale+ part {part}: expected a name such as xcvu9p-flga2104-2L-e")
    return found[1], found[2], found[3]
