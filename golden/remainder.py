"""Remainder of a division."""

from halfulp.hdl.specs.remainder import RemainderSpec

from . import divide
from .operation import operation
from .raw import Raw


@operation(RemainderSpec)
def remainder(spec: RemainderSpec, x: Raw, y: Raw) -> Raw:
    """Return x - y * n for the integer n nearest to x / y, the even one of two, rounded once to ``o``.

    See `halfulp.golden` for parameters and errors of all operations. The time is proportional to the largest difference
    of the exponents of x and y.
    """
    return divide.remainder(x, y)
