"""Memories and dies of the cards with two stacks of HBM2."""

from .board import Memory, Slr

HBM_SLRS = (
    Slr(lut=439_680, ff=879_360, dsp=2_880, bram=672, uram=320),
    *(Slr(lut=432_000, ff=864_000, dsp=3_072, bram=672, uram=320),) * 2,
)
"""Dies of the device: the one beside the HBM, and two of those of which the VU13P of a U250 has four.

The latter are a quarter of that device (DS962), and the former is what they leave of this one (DS963, DS978). No source
was found that counts it by itself.
"""

HBM_NS = 106.7
"""Latency of HBM2 that is read page by page (Wang et al., Shuhai, FCCM 2020, on an Alveo U280)."""


def hbm(bank_mib: int) -> Memory:
    """32 pseudo-channels of 14.375 GB/s with a port each, all of them beside the first die.

    Sizes, bandwidth and ports are from AMD, UG1393 (HBM Configuration and Use); the die is from UG1120, whose floorplan
    of the smaller U50 has them there.
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
