"""Catalogue of all boards."""

from .aws_f1 import AWS_F1
from .board import Board
from .u55c import U55C
from .u200 import U200
from .u250 import U250
from .u280 import U280
from .vcu118 import VCU118
from .vcu1525 import VCU1525

BOARDS: dict[str, Board] = {board.name: board for board in (U55C, U250, U280, U200, VCU1525, VCU118, AWS_F1)}


def board_of(name: str) -> Board:
    """Return the board of a name; ValueError if there is none."""
    if name not in BOARDS:
        raise ValueError(f"unknown board {name!r}; the boards are {', '.join(BOARDS)}")
    return BOARDS[name]


def listing() -> list[str]:
    """Return the lines of a table of all boards, followed by their sources."""
    head = f"{'board':9}{'part':22}{'SLRs':>5}{'LUT':>11}  {'memory':34}{'ports':>6}{'GB/s':>7}{'MHz':>5}  platform"
    shown = [head]
    for board in BOARDS.values():
        for place, memory in enumerate(board.memories):
            bank = f"{memory.bank_mib} MiB" if memory.bank_mib % 1024 else f"{memory.bank_mib // 1024} GiB"
            size = f"{memory.banks} x {bank} {memory.kind}"
            own = (board.name, board.target.part, str(len(board.slrs)), f"{board.target.lut:,}")
            first = own if place == 0 else ("",) * 4
            clock, platform = (str(board.kernel_mhz or ""), board.platform or "") if place == 0 else ("", "")
            shown.append(
                f"{first[0]:9}{first[1]:22}{first[2]:>5}{first[3]:>11}  {size:34}{memory.ports:6}"
                f"{memory.banks * memory.bank_gbps:7.0f}{clock:>5}  {platform}".rstrip()
            )
    sources = [f"  {board.name}: {'; '.join((board.target.source, *board.sources))}" for board in BOARDS.values()]
    return [
        *shown,
        "",
        "Ports: number of kernel ports that the memory can serve. MHz: default clock of kernels.",
        "Platform: XRT platform of kernels. LUT: number on the device; the platform uses some of them.",
        "Sources:",
        *sources,
    ]
