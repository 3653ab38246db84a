"""Memories and dies of the cards with two stacks of HBM2."""

from .board import Memory, Resources

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
