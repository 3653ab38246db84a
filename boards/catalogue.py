"""The boards that there are."""

from .aws_f1 import AWS_F1
from .board import Board, lines
from .u55c import U55C
from .u200 import U200
from .u250 import U250
from .u280 import U280
from .vcu118 import VCU118
from .vcu1525 import VCU1525

BOARDS: dict[str, Board] = {board.name: board for board in (U55C, U250, U280, U200, VCU1525, VCU118, AWS_F1)}


def board_of(name: str) -> Board:
    """The board of a name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in BOARDS:
        raise ValueError(f"unknown board {name!r}; the boards are {', '.join(BOARDS)}")
    return BOARDS[name]


def listing() -> list[str]:
    """The boards, as lines."""
    return lines(tuple(BOARDS.values()))
