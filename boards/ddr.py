"""What the cards with four modules of DDR4 have in common."""

from halfulp.fpga.board import Memory


def ddr(slrs: tuple[int, ...] = ()) -> Memory:
    """Four modules of 16 GiB and 64 bits at 2400 MT/s; a bank takes 15 ports of kernels (AMD, UG1702, platforminfo)."""
    return Memory(tag="DDR", kind="DDR4-2400", banks=4, bank_mib=16_384, bank_gbps=19.2, masters=15, slrs=slrs)
