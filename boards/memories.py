"""Memories of the cards: DDR4 modules, and HBM2 stacks with the dies of their devices."""

from .board import Memory, Resources

DDR_NS = 73.3
"""Latency of a DDR4 read with a closed page, in ns (Wang et al., Shuhai, FCCM 2020, on an Alveo U280)."""


def ddr(slrs: tuple[int, ...] = ()) -> Memory:
    """Return four DDR4 modules of 16 GiB and 64 bits at 2400 MT/s, 19.2 GB/s each (AMD, UG1393: 77 GB/s in total).

    A bank serves 15 kernel ports: "Max Masters" in the output of platforminfo (AMD, UG1702).
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
"""Dies of the HBM devices: the one next to the HBM, and two that equal the dies of the U250.

A die of the U250 has a quarter of its resources (DS962). No source gives the resources of the die next to the HBM: it
has those of the device (DS963, DS978) that the other two dies do not have.
"""

HBM_NS = 106.7
"""Latency of an HBM2 read with a closed page, in ns (Wang et al., Shuhai, FCCM 2020, on an Alveo U280)."""


def hbm(bank_mib: int) -> Memory:
    """Return 32 HBM2 pseudo-channels of 14.375 GB/s with one port each, all next to the first die.

    Sizes, bandwidth and ports are from AMD, UG1393 (HBM Configuration and Use), the die from the floorplan of the
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
