"""Registers of a floating-point unit with operands that are hard to round."""

from typing import Any

import numpy as np

from halfulp.hdl.formats import Float

from .directed import Directed
from .fields import Codes

OPERANDS = ("rs1", "rs2", "rs3")


def registers(spec: Any, count: int, seed: int = 0) -> dict[str, Codes]:
    """Return registers by port: for each format, scalars and lanes whose product and sum are hard to round."""
    rng = np.random.default_rng(seed)
    parts = [of_format(fmt, spec.width, count, rng) for fmt in spec.formats]
    return {name: np.concatenate([part[name] for part in parts]) for name in OPERANDS}


def of_format(fmt: Float, width: int, count: int, rng: np.random.Generator) -> dict[str, Codes]:
    """Return registers with numbers of one format: half of them boxed scalars, the others full of lanes."""
    lanes = width // fmt.width
    operands = Directed(dict.fromkeys(OPERANDS, fmt), [OPERANDS[:2]], [fmt], rng, count // 8).rows(count * lanes)
    scalar = rng.random(count) < 0.5
    ones = np.uint64((1 << width) - (1 << fmt.width))
    packed = {}
    for name, codes in operands.items():
        columns = codes.reshape(lanes, count)
        full = np.zeros(count, dtype=np.uint64)
        for lane, column in enumerate(columns):
            full |= column << np.uint64(lane * fmt.width)
        packed[name] = np.where(scalar, columns[0] | ones, full)
    return packed
