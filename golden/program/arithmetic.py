"""Element-wise operations and functions: operands in their format, and one rounding of the exact result.

Exact results go through binary64, rounded to odd there: a truncated number whose last bit is set if it is inexact.
Operands are numbers of binary32, or integers, so that sums, products, quotients and square roots have errors that
binary64 holds.
"""

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import broadcast_shape
from halfulp.golden.errorfree import halves, product_error, sum_and_error, to_odd
from halfulp.golden.function_table import FUNCTIONS, TABLE_WIDTH, function, table
from halfulp.golden.kernels import elementwise
from halfulp.golden.nn.cast import DTYPES, Cast, check_holds, check_holds_results
from halfulp.golden.nn.draw import mix
from halfulp.hdl.formats import FP32, RN, Format


def _add(x: Tensor, y: Tensor) -> Tensor:
    return to_odd(*sum_and_error(x, y))


def _signed_zero(total: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Make sums of zero -0 unless both terms are +0, which is right if they are rounded down."""
    return torch.where((total == 0) & (x.signbit() | y.signbit()), -0.0, total)


def _mul(x: Tensor, y: Tensor) -> Tensor:
    product = x * y
    return to_odd(product, product_error(x, y, product))


def _div(x: Tensor, y: Tensor) -> Tensor:
    quotient = x / y
    product = quotient * y
    remainder = (x - product) - product_error(quotient, y, product)
    return to_odd(quotient, torch.where(y < 0, -remainder, remainder))


def _sqrt(x: Tensor) -> Tensor:
    root = x.sqrt()
    high, low = halves(root)
    return to_odd(root, ((x - high * high) - 2 * high * low) - low * low)


ARITHMETIC: dict[str, Callable[..., Tensor]] = {
    "add": _add,
    "sub": lambda x, y: _add(x, -y),
    "mul": _mul,
    "div": _div,
    "sqrt": _sqrt,
}
"""Operations on numbers of binary32 and integers in binary64, whose results are rounded to odd."""


def operand(value: Any, cast: Cast, key: int) -> Tensor:
    """Round an operand, a tensor or a number, to the format of its operation, as float64."""
    return rounded(in_binary64(value), cast, key)


def rounded(values: Tensor, cast: Cast, key: int) -> Tensor:
    """Round numbers of binary64 to the format of an operation; sums of parts are then rounded to binary32.

    A number that is rounded to odd has these sums: its parts differ from those of the exact result below 2^-40 of it
    only, where the sum keeps nothing but the sign.
    """
    assert cast.fmt is not None
    numbers = cast.real(values, key)
    return numbers.to(torch.float32).to(torch.float64) if cast.fmt.parts > 1 else numbers


def in_binary64(value: Any) -> Tensor:
    """Return a tensor or a number as a tensor of float64."""
    given = value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
    return given.to(torch.float64)


def compute(
    name: str,
    operands: tuple[Any, ...],
    cast: Cast,
    key: int,
    dtype: torch.dtype,
    into: Tensor | None = None,
    exact: Collection[int] = (),
) -> Tensor:
    """Compute an element-wise operation or a function on real operands that broadcast.

    Parameters
    ----------
    name : str
        Of `ARITHMETIC` or of `functions.FUNCTIONS`, or of a function of torch.
    operands : tuple of Tensor or number
    cast : Cast
        Format of operands and result, and rounding of both.
    key : int
        Key of the random words of stochastic rounding.
    dtype : torch.dtype
        Type of the result's tensor.
    into : Tensor, optional
        Contiguous tensor for the result; it may be an operand.
    exact : collection of int
        Places of operands of products and quotients that are not rounded: numbers of binary32 or integers.
    """
    assert cast.fmt is not None
    # The error terms need operands of binary32, and a narrower result type would round a second time.
    for needed in (torch.float32, dtype):
        check_holds_results(needed, cast.fmt)
    in_kernel = _in_kernel(name, operands, cast, key, dtype, into, exact)
    if in_kernel is not None:
        return in_kernel
    given = [
        in_binary64(value) if place in exact else operand(value, cast, mix(key, 1 + place))
        for place, value in enumerate(operands)
    ]
    if name in FUNCTIONS:
        odd = function(name, given[0], cast.fmt)
    else:
        # Functions of two numbers have errors of a few ulp of binary64.
        odd = ARITHMETIC[name](*given) if name in ARITHMETIC else getattr(torch, name)(*given)
        if cast.rounding.mode == "rd" and name in ("add", "sub"):
            odd = _signed_zero(odd, given[0], given[1] if name == "add" else -given[1])
    result = rounded(odd, cast, key).to(dtype)
    if into is not None:
        return into.copy_(result)
    return result if result.stride() == odd.stride() else torch.empty_like(odd, dtype=dtype).copy_(result)


def _in_kernel(
    name: str,
    operands: tuple[Any, ...],
    cast: Cast,
    key: int,
    dtype: torch.dtype,
    into: Tensor | None,
    exact: Collection[int],
) -> Tensor | None:
    """Compute in a compiled kernel; None if it does not support the operation or its operands."""
    # The products of the kernel have at most 53 bits.
    if cast.target is None or not (is_tabled(name, cast) or name in ARITHMETIC) or (exact and name == "mul"):
        return None
    keys = [mix(key, 1 + place) for place in range(len(operands))]
    given = [
        in_binary64(value) if place in exact and not isinstance(value, Tensor) else _tensor(value, cast, own_key)
        for place, (value, own_key) in enumerate(zip(operands, keys, strict=True))
    ]
    if not elementwise.takes(*given):
        return None
    shape = broadcast_shape(*(tensor.shape for tensor in given))
    out = elementwise.empty_result(shape, given, dtype) if into is None else into
    numbers = {place for place, value in enumerate(operands) if not isinstance(value, Tensor)}
    # Random words of the operands, and of the result.
    drawn = zip([*keys, key], [*(tensor.shape for tensor in given), shape], strict=True)
    words = [cast.words(*key_and_shape, out.device) for key_and_shape in drawn if cast.rounding.bits]
    return out if _run(name, cast, given, words, numbers.union(exact), out) else None


def is_tabled(name: str, cast: Cast) -> bool:
    """Return True for a function with a table of its results by the codes of the format."""
    assert cast.fmt is not None
    return name in FUNCTIONS and cast.fmt.width <= TABLE_WIDTH and cast.fmt.parts == 1


def _run(name: str, cast: Cast, given: list[Tensor], words: list[Tensor], ready: Collection[int], out: Tensor) -> bool:
    """Run the kernel of an operation, which rounds the operands that are not ready; False if it refuses."""
    to = cast.target
    assert to is not None
    chain = elementwise.KernelChain([*given, *words])
    registers = []
    for place, tensor in enumerate(given):
        word = len(given) + place if words else None
        is_ready = place in ready or DTYPES[tensor.dtype] == cast.fmt
        registers.append(place if is_ready else chain.step("round", to, place, words=word))
    tabled = is_tabled(name, cast)
    result = chain.step(
        "table" if tabled else name,
        to,
        registers[0],
        registers[-1],
        len(chain.operands) - 1 if words else None,
        table(name, cast.fmt, out.device) if tabled else None,
    )
    return chain.run((result, out))


CHAINS = {
    "sigmoid_backward": (("sub", "1", "y"), ("mul", "y", 0), ("mul", "gradient", 1)),
    "tanh_backward": (("mul", "y", "y"), ("sub", "1", 0), ("mul", "gradient", 1)),
}
"""Compositions of a gradient and a result y: operations with operands, or the indices of earlier operations."""


class RoundingChain:
    """Chain of operations in one call of the kernel, with roundings of operands to the formats of the operations.

    Parameters
    ----------
    operands : sequence of Tensor
        Operands of the chain, which are its first registers.
    formats : mapping of int to Format
        Formats of the numbers of some operands, by place; default: the format of the tensor's type.
    """

    def __init__(self, operands: Sequence[Tensor], formats: Mapping[int, Format | None]) -> None:
        self.chain = elementwise.KernelChain(operands)
        self._formats = [formats.get(place, DTYPES[tensor.dtype]) for place, tensor in enumerate(operands)]
        self._rounded: dict[tuple[int, Cast], int] = {}

    def add(self, name: str, cast: Cast, *registers: int, known: Collection[int] = ()) -> int:
        """Add an operation and return the register of its result.

        Parameters
        ----------
        name : str
            One of `ARITHMETIC` or of the functions with tables.
        cast : Cast
            Format and rounding of the operation, which the kernel supports.
        registers : int
            Registers of the operands.
        known : collection of int
            Registers whose numbers need no rounding to the format.
        """
        assert cast.fmt is not None
        assert cast.target is not None
        given = []
        for register in registers:
            if self._formats[register] != cast.fmt and register not in known:
                if (register, cast) not in self._rounded:
                    self._rounded[register, cast] = self.chain.step("round", cast.target, register)
                    self._formats.append(cast.fmt)
                register = self._rounded[register, cast]
            given.append(register)
        tabled = None if name in ARITHMETIC else table(name, cast.fmt, torch.device("cpu"))
        self._formats.append(cast.fmt)
        return self.chain.step(name if tabled is None else "table", cast.target, given[0], given[-1], None, tabled)


def chained(name: str, gradient: Tensor, y: Tensor, cast: Cast) -> Tensor | None:
    """Compute one of `CHAINS` in a single call of the kernel; None if it does not support the operands."""
    to, dtypes = cast.target, (gradient.dtype, y.dtype)
    # Torch computes FP32 itself.
    if to is None or cast.rounding.bits or cast.fmt == FP32 or dtypes != (torch.float32, torch.float32):
        return None
    if gradient.shape != y.shape or not elementwise.takes(gradient, y):
        return None
    assert cast.fmt is not None
    check_holds(torch.float32, cast.fmt)
    steps = RoundingChain([gradient, y, number((1.0).hex(), cast)], {2: cast.fmt})
    registers: dict[Any, int] = {"gradient": 0, "y": 1, "1": 2}
    for place, (operation, *operands) in enumerate(CHAINS[name]):
        registers[place] = steps.add(operation, cast, *(registers[operand] for operand in operands))
    out = elementwise.empty_result(y.shape, (gradient, y), torch.float32)
    return out if steps.chain.run((registers[len(CHAINS[name]) - 1], out)) else None


def _tensor(value: Any, cast: Cast, key: int) -> Tensor:
    """Return an operand as a tensor; numbers are rounded to the format."""
    if isinstance(value, Tensor):
        return value if value.dtype in DTYPES else value.to(torch.float64)
    return operand(value, cast, key) if cast.rounding.bits else number(float(value).hex(), cast)


@functools.lru_cache(maxsize=4096)
def number(text: str, cast: Cast) -> Tensor:
    """Round a number, given in hexadecimal digits so that -0 is not 0."""
    return operand(float.fromhex(text), cast, 0)


@functools.lru_cache(maxsize=4096)
def became(text: str, cast: Cast) -> float | None:
    """Return 0, 1, -1, an infinity or NaN if a format replaces another finite number by it, else None.

    Stochastic rounding counts as rounding to nearest.
    """
    value = float.fromhex(text)
    nearest = replace(cast, rounding=RN, source=None) if cast.rounding.bits else cast
    rounded = float(operand(value, nearest, 0))
    lost = rounded in (0, 1, -1) or not math.isfinite(rounded)
    return rounded if lost and math.isfinite(value) and rounded != value else None


@functools.lru_cache(maxsize=4096)
def is_held(value: int, fmt: Format) -> bool:
    """Return True for an integer that is a number of a format."""
    return float(operand(value, Cast(fmt, RN), 0)) == value
