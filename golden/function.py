"""Functions of one number, from tables of their results for all codes, and of wide formats from polynomials."""

from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.formats import parse
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.function import TABLE_WIDTH

from . import polynomials
from .check import codes_of
from .codec import unpack
from .operation import operation
from .raw import Raw

BINARY64 = parse("fp64")


@operation(FunctionSpec)
def function(spec: FunctionSpec, number: Raw, *, x: Tensor) -> Raw:
    """Return a function of x, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    return value_of(spec, number, codes_of("x", x, spec.a))


def value_of(spec: FunctionSpec, x: Raw, codes: Tensor) -> Raw:
    """Return the values of a function at codes and their numbers, rounded to odd in binary64, or near them."""
    if spec.rounding.faithful and spec.a.width > TABLE_WIDTH:
        return polynomials.value_of(spec, x)
    # mpmath, which computes the tables, loads slowly.
    from .function_table import table

    values = table(spec.function, spec.a, codes.device)[codes]
    if spec.function in ("gelu", "silu"):
        # Values at large negative numbers are negative, and so is the zero of their limit.
        values = torch.where(x.inf & x.sign & ~x.nan, -0.0, values)
    number = unpack(values.view(torch.int64), BINARY64)
    invalid = None if x.invalid is None else x.invalid | (number.nan & ~x.nan)
    return replace(number, nan=number.nan | x.nan, invalid=invalid, by_zero=number.inf & ~x.inf)
