"""Boards: a device, its memories, and the vendor's platform for kernels."""

import math
import pkgutil
import re
from dataclasses import dataclass
from typing import Any

from .targets import Target

KINDS = ("lut", "ff", "dsp", "bram", "uram")
"""Names of the fields of `Resources`."""

PORT_BITS = 512
"""Width of a kernel's port to memory."""

COMPUTE_UNITS = 31
"""Largest number of kernel instances that the linker accepts (AMD, Data Center Acceleration Using Vitis, UG1700)."""


@dataclass(frozen=True)
class Resources:
    """Resources of a die or of a design; fields have the names of those of `Target`."""

    lut: int
    ff: int
    dsp: int
    bram: int
    uram: int

    def share(self, target: Target, count: int = 1) -> dict[str, float]:
        """Return the percentage of each resource of a device that ``count`` copies of the design use."""
        shares = {}
        for kind in KINDS:
            total, own = getattr(target, kind), count * getattr(self, kind)
            shares[kind.upper()] = 100 * own / total if total else (float("inf") if own else 0.0)
        return shares


def equal_dies(target: Target, count: int) -> tuple[Resources, ...]:
    """Return the dies of a device with ``count`` equal dies; ValueError if ``count`` does not divide its resources."""
    totals = {kind: getattr(target, kind) for kind in KINDS}
    for kind, total in totals.items():
        if total % count:
            raise ValueError(f"{total:,} {kind.upper()} of {target.name} do not divide into {count} equal dies")
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
        Index of the die next to each bank; empty if no source gives it.
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
            raise ValueError(
                f"slrs has {len(self.slrs)} dies; expected one for each of {self.banks} banks of {self.tag}"
            )

    @property
    def ports(self) -> int:
        """Number of kernel ports that all banks together can serve."""
        return self.banks * self.masters


@dataclass(frozen=True)
class Board:
    """Device, memories and limits of a board.

    Parameters
    ----------
    title : str
        Full name.
    target : Target
        Device; it has the name of the board. The vendor's platform uses some of its resources.
    slrs : tuple of Resources
        Dies of the device, in the vendor's order.
    memories : tuple of Memory
        Memories; kernels use the first one.
    sources : tuple of str
        Documents that give these numbers.
    platform : str, optional
        The vendor's XRT platform for kernels, if there is one.
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
                raise ValueError(f"the dies of {self.name} have {parts:,} {kind.upper()}, but the device has {total:,}")

    @property
    def name(self) -> str:
        """Short name."""
        return self.target.name

    @property
    def memory(self) -> Memory:
        """Memory that kernels use."""
        return self.memories[0]

    def beats(self, mhz: float, readers: int) -> tuple[int, float]:
        """Return the latency of a read in cycles, and the beats per cycle, of each of ``readers`` ports.

        The ports share the banks equally; a port uses at most one bank.
        """
        memory = self.memory
        each = memory.bank_gbps * min(memory.banks / readers, 1)
        return math.ceil(memory.latency_ns * mhz / 1000), min(each * 8e3 / (PORT_BITS * mhz), 1.0)

    def cores(self, ports: int) -> int:
        """Return the largest number of kernels with ``ports`` ports each that the memory can serve."""
        return min(self.memory.ports // ports, COMPUTE_UNITS)

    def build_platform(self) -> Any:
        """Build the board's platform for Amaranth; ValueError if it has none."""
        if self.amaranth is None:
            raise ValueError(f"{self.name} has no platform for Amaranth: the shell on the card uses its pins")
        return pkgutil.resolve_name(self.amaranth)()


def fields_of(part: str) -> tuple[str, str, str]:
    """Split the name of an UltraScale+ part into device, package and speed grade; ValueError for other parts."""
    match = re.fullmatch(r"(xc[a-z]*\d+[a-z]?)-([a-z]+\d+)-(\d[A-Z]?-[a-z])", part)
    if match is None:
        raise ValueError(f"invalid UltraScale+ part {part}: expected a name such as xcvu9p-flga2104-2L-e")
    return match[1], match[2], match[3]
