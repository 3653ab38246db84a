"""Ports, registers and files of a kernel, as plain data.

The control registers are those of the protocol ap_ctrl_hs in the Vitis documentation (UG1399, S_AXILITE Control
Register Map). The arguments start at 0x10, as XRT requires.
"""

from dataclasses import dataclass
from typing import Any

HOST = "host.py"
"""Name of the host program in a folder of `halfulp tile`."""

CLOCK, RESET = "ap_clk", "ap_rst_n"
"""Clock, and synchronous reset, active low."""

INTERRUPT = "interrupt"

CONTROL = "s_axi_control"
"""Prefix of the AXI4-Lite port of the registers."""

MASTERS = ("m_axi_a", "m_axi_b", "m_axi_c")
"""Prefixes of the AXI4 memory ports: two read the operands, one writes the result."""

DATA_BITS, ADDRESS_BITS = 512, 64
"""Widths of the memory ports."""

CONTROL_DATA_BITS, CONTROL_ADDRESS_BITS = 32, 12
"""Widths of the register port."""

AP_CTRL, GIE, IER, ISR = 0x00, 0x04, 0x08, 0x0C
"""Addresses of the registers control, global interrupt enable, interrupt enable and interrupt status.

In the last two, bit 0 is done and bit 1 is ready."""

START, DONE, IDLE, READY, AUTO_RESTART = 0, 1, 2, 3, 7
"""Bits of the control register. A read clears done and ready; the end of a run clears start."""


@dataclass(frozen=True)
class Register:
    """Register of 32 bits, or of 64 bits in two words, the lower word first.

    Attributes
    ----------
    name : str
    offset : int
        Address in the register map.
    bits : int
    meaning : str
    port : str, optional
        Memory port of a register that holds an address.
    """

    name: str
    offset: int
    bits: int
    meaning: str
    port: str | None = None


ARGUMENTS = (
    Register("n", 0x10, 32, "rows of a and c"),
    Register("k", 0x18, 32, "columns of a, rows of b"),
    Register("m", 0x20, 32, "columns of b and c"),
    Register("a", 0x28, 64, "address of a", MASTERS[0]),
    Register("b", 0x30, 64, "address of b", MASTERS[1]),
    Register("c", 0x38, 64, "address of c", MASTERS[2]),
    Register("a_stride", 0x40, 32, "bytes from a row of a to the next"),
    Register("b_stride", 0x48, 32, "bytes from a row of b to the next"),
    Register("c_stride", 0x50, 32, "bytes from a row of c to the next"),
    Register("flags", 0x58, 32, "bit 0: continue the random words of the previous run"),
)
"""Arguments of a run, in the order of the host's call. They must not change during a run."""

CONTINUE = 0
"""Bit of ``flags`` that continues the random words of the previous run."""

RESULTS = (
    Register("error", 0x60, 32, "errors of the last run, a bit for each of ERRORS"),
    Register("cycles", 0x68, 32, "clock cycles of the last run, from start to done"),
)
"""Result registers of a run."""

ERRORS = ("size", "alignment", "read_a", "read_b", "write_c")
"""Bits of the error register, in order.

``size``: n, k or m is 0. ``alignment``: an address or stride is not a multiple of the largest power of two that divides
the bytes of an element or entry. The others: the memory responded to a read or
write with an error. After an error ``c`` is written in part or not at all."""


PATIENCE = 60_000
"""Timeout of a run, in milliseconds."""


def element_bytes(width: int) -> int:
    """Return the bytes of a code in memory, 1, 2, 4 or 8; the code is in the low bits."""
    return next(count for count in (1, 2, 4, 8) if width <= 8 * count)


def entry_bytes(mac: Any, name: str) -> int:
    """Return the bytes of an entry of matrix ``a`` or ``b`` in memory.

    A number has the bytes of `element_bytes`. The numbers that a step takes of a block or with structured sparsity have
    no gaps: elements, activations or weights from the low bits on, the scale or the indices above them, and zeros up to
    a whole byte.

    Raises
    ------
    ValueError
        If an entry is longer than a beat.
    """
    bits = mac.entry_bits(name)
    if len(mac.entries[name]) == 1:
        return element_bytes(bits)
    if bits > DATA_BITS:
        raise ValueError(
            f"a step of {mac.expression} takes {bits} bits of {name}, and a beat of memory has {DATA_BITS}; "
            "choose a smaller step="
        )
    return -(-bits // 8)


def xclbin_name(kernel: str, target: str) -> str:
    """Return the name of the bitstream of kernels for a target of ``v++``, such as ``hw``."""
    return f"{kernel}.{target}.xclbin"
