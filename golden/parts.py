"""Codes of compound numbers and of their parts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from halfulp.hdl.formats import Format


def parts_of(codes: Tensor, fmt: Format, places: Sequence[int] | None = None) -> Tensor:
    """Return the codes of parts in a new last dimension; default: all of them, part 0 first.

    Part 0 is the largest. A code of another format is its own part 0.
    """
    if fmt.parts == 1:
        return codes.unsqueeze(-1).expand(*codes.shape, 1 if places is None else len(places))
    return codes.unsqueeze(-1) >> _shifts(fmt, places, codes.device) & (1 << fmt.part_format.width) - 1


def code_of(parts: Tensor, fmt: Format) -> Tensor:
    """Return the codes of numbers from those of all their parts."""
    return (parts << _shifts(fmt, None, parts.device)).sum(-1)


def _shifts(fmt: Format, places: Sequence[int] | None, device: torch.device) -> Tensor:
    """Return the positions of parts in a code."""
    wanted = range(fmt.parts) if places is None else places
    return torch.tensor([(fmt.parts - 1 - place) * fmt.part_format.width for place in wanted], device=device)
