"""Memories of the cards with modules of DDR4."""

from .board import Memory

DDR_NS = 73.3
"""Latency of DDR4 for reads page by page (Wang et al., Shuhai, FCCM 2020, on an Alveo U280)."""


def ddr(slrs: tuple[int, ...] = ()) -> Memory:
    """Four modules of 16 GiB and 64 bits at 2400 MT/s, each of 19.2 GB/s (AMD, UG1393: 77 GB/s on such cards).

    A bank serves 15 kernel ports, "Max Masters" in the output of platforminfo (AMD, UG1702).
    """
    return Memory(
        tag="DDR",
        kind="DDR4-2400",
        banks=4,
        bank_mib=16_384,
        bank_gbps=19.2,
        masters=15,
        latency_ns=DDR_NS,
        slrs=slrs,
    )
