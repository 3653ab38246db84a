"""Quotients and roots."""

from dataclasses import replace

from halfulp.hdl.formats import Float
from halfulp.hdl.specs import DivSpec, ReciprocalSpec, RsqrtSpec, SqrtSpec

from .codec import unpack
from .divide import divide, inverse_square_root, square_root
from .operation import operation
from .raw import Raw
from .values import encode

ONE = Float(2, 0, specials="finite")
"""A format that has the number 1."""


@operation(DivSpec)
def div(spec: DivSpec, x: Raw, y: Raw) -> Raw:
    """Divide x by y and round once; see `halfulp.golden` for parameters and errors of all operations."""
    return divide(x, y, spec.window)


@operation(ReciprocalSpec)
def reciprocal(spec: ReciprocalSpec, x: Raw) -> Raw:
    """Return 1 / x, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    dividend = unpack(encode(1.0, ONE).to(x.sign.device), ONE)
    return divide(replace(dividend, invalid=x.invalid), x, spec.window)


@operation(SqrtSpec)
def sqrt(spec: SqrtSpec, x: Raw) -> Raw:
    """Return the square root of x, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    return square_root(x, spec.window)


@operation(RsqrtSpec)
def rsqrt(spec: RsqrtSpec, x: Raw) -> Raw:
    """Return 1 / square root of x, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    return inverse_square_root(x, spec.window)
