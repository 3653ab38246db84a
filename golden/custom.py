"""Formats of users, given by two functions on tensors."""

from collections.abc import Callable

import torch
from torch import Tensor

from halfulp.hdl.formats import FP32, FP64, OFF, RO, Custom, Rounding, Saturation, parse

from . import floating
from .check import codes_of
from .raw import Raw
from .round import Truncated

_FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {}
"""Functions of the formats on tensors, by name."""


def register_format(
    name: str, width: int, from_real: Callable[[Tensor], Tensor], to_real: Callable[[Tensor], Tensor]
) -> Custom:
    """Register a number format ``custom:NAME`` that is given by two functions, for this process.

    Parameters
    ----------
    name : str
    width : int
        Width of codes in bits, 1 to 32.
    from_real : callable
        Codes (integers) of a tensor of float64, element by element: the exact results of operations, rounded to odd
        there, so that rounding them to up to 51 bits is as if they were exact. Infinities and NaN have codes too.
    to_real : callable
        Numbers of a tensor of codes in int64, as float32, or as float64 with values of float32.

    Returns
    -------
    Custom
        Format, which `golden.gemm`, policies, `golden.emulate` and the operations of the golden model accept.

    Raises
    ------
    TypeError, ValueError
        If ``width`` is invalid, a function gives results of a wrong type, shape or range for 0, 1, infinity and NaN, or
        another format has the name: formats are kept in caches, so a name has one meaning in a process.
    """

    def code_of(value: float) -> int:
        return int(from_real(torch.tensor([value], dtype=torch.float64))[0])

    def number_of(code: int) -> float:
        return float(to_real(torch.tensor([code]))[0])

    functions = from_real, to_real
    if name in _FUNCTIONS:
        if _FUNCTIONS[name] != functions or parse(f"custom:{name}").width != width:
            raise ValueError(f"custom:{name} is registered with other functions; choose another name")
        return parse(f"custom:{name}")
    fmt = Custom(name, width, code_of, number_of)
    _FUNCTIONS[name] = functions
    try:
        encoded(torch.tensor([0.0, 1.0, torch.inf, torch.nan], dtype=torch.float64), fmt)
        decoded(torch.arange(min(1 << width, 1 << 16)), fmt)
    except BaseException:
        del _FUNCTIONS[name]
        raise
    return fmt.register()


def encoded(values: Tensor, fmt: Custom) -> Tensor:
    """Return the codes of numbers in float64."""
    codes = _FUNCTIONS[fmt.name][0](values)
    if not isinstance(codes, Tensor) or codes.shape != values.shape:
        raise ValueError(f"from_real of {fmt} must return a tensor of codes in the shape of its argument")
    return codes_of(f"result of from_real of {fmt}", codes, fmt)


def decoded(codes: Tensor, fmt: Custom) -> Tensor:
    """Return the numbers of codes in float32."""
    numbers = _FUNCTIONS[fmt.name][1](codes)
    if not isinstance(numbers, Tensor) or numbers.shape != codes.shape or not numbers.is_floating_point():
        raise ValueError(f"to_real of {fmt} must return a tensor of real numbers in the shape of its argument")
    single = numbers.to(torch.float32)
    if numbers.dtype == torch.float64 and not torch.equal(single.double().nan_to_num(), numbers.nan_to_num()):
        raise ValueError(f"to_real of {fmt} must return numbers that float32 holds")
    return single


def in_binary32(codes: Tensor, fmt: Custom) -> Tensor:
    """Return codes of FP32 with the same numbers."""
    return decoded(codes, fmt).view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def unpack(codes: Tensor, fmt: Custom) -> Raw:
    """Unpack codes to raw numbers."""
    return floating.unpack(in_binary32(codes, fmt), FP32)


def truncate(x: Raw, o: Custom, places: int) -> Truncated:
    """Refuse to truncate: the function of the format rounds."""
    raise ValueError(f"the function of {o} rounds results as a whole; use a float for this operation")


def pack(x: Raw, o: Custom, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers by the function of the format, which gets them rounded to odd in binary64."""
    o.check_rounding(rounding, saturate)
    odd = floating.pack(x, FP64, RO, OFF, None)
    return encoded(odd.view(torch.float64), o)
