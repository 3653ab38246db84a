"""Conversion between formats."""

import functools
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding, Saturation
from halfulp.hdl.specs import ConvertSpec

from .check import check_devices, check_shapes, codes_of, random_of
from .chosen import by_mode
from .codec import round_and_pack, rounded, unpack, unpack_operand
from .kernels import elements
from .uncompiled import uncompiled

TABLE_WIDTH = 16
"""Largest width of a format whose codes are converted through a table, if a tensor has more elements than the table."""


@uncompiled
@by_mode
def convert(  # noqa: PLR0913 - tensors, and the fields of a description by name
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Any:
    """Convert codes to another format, rounded once; see `halfulp.golden` for parameters and errors."""
    spec = ConvertSpec.of(a=a, o=o, rounding=rounding, saturate=saturate, flags=flags)
    check_devices(x=x, random=random)
    check_shapes(x=x, random=random)
    codes, words = codes_of("x", x, spec.a), random_of("random", random, spec.rounding)
    if spec.flags:
        return rounded(spec, unpack_operand(spec, codes, spec.a), words)
    return converted(codes, spec, words)


def converted(x: Tensor, spec: ConvertSpec, random: Tensor | None) -> Tensor:
    """Convert as `convert`, without its checks: codes and random words are int64 and in range."""
    if random is None and spec.a.width <= TABLE_WIDTH and x.numel() > 1 << spec.a.width:
        return _table(spec, x.device)[x]
    codes = elements.convert(x, spec.a, spec.o, spec.rounding, spec.saturate, random)
    if codes is not None:
        return codes
    return round_and_pack(unpack(x, spec.a), spec.o, spec.rounding, spec.saturate, random)


@functools.lru_cache(maxsize=64)
def _table(spec: ConvertSpec, device: torch.device) -> Tensor:
    """Convert all codes of a narrow format."""
    codes = torch.arange(1 << spec.a.width, device=device)
    return round_and_pack(unpack(codes, spec.a), spec.o, spec.rounding, spec.saturate, None)
