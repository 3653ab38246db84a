"""Memories of the cards: modules of DDR4, and stacks of HBM2 with the dies beside them."""

from .board import Memory, Resources

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


HBM_SLRS = (
    Resources(lut=439_680, ff=879_360, dsp=2_880, bram=672, uram=320),
    *(Resources(lut=432_000, ff=864_000, dsp=3_072, bram=672, uram=320),) * 2,
)
"""Dies of the device: the one beside the HBM, and two like the four of the VU13P of a U250.

A die of the latter is a quarter of that device (DS962); the first one is the rest of this device (DS963, DS978). No
source counts it by itself.
"""

HBM_NS = 106.7
"""Latency of HBM2 for reads page by page (Wang et al., Shuhai, FCCM 2020, on an Alveo U280)."""


def hbm(bank_mib: int) -> Memory:
    """32 pseudo-channels of 14.375 GB/s with a port each, all beside the first die.

    Sizes, bandwidth and ports are from AMD, UG1393 (HBM Configuration and Use); the die is from the floorplan of the
    smaller U50 in UG1120.
    """
    return Memory(
        tag="HBM",
        kind="HBM2",
        banks=32,
        bank_mib=bank_mib,
        bank_gbps=14.375,
        masters=1,
        latency_ns=HBM_NS,
        slrs=(0,) * 32,
    )
