"""Checks of the arguments of operations."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import Block, Format, Rounding, parse
from halfulp.hdl.formats.saturation import SUFFIXES

from .dtypes import INTEGERS, PACKED, format_of, integer_bits, stored_codes, tensor_of


def check_bool(name: str, value: object) -> None:
    """Check that a parameter is a bool; TypeError otherwise."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")


def check_int(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return the value of a parameter; TypeError or ValueError unless it is an int from ``low`` to ``high``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be {low} {'or more' if high is None else f'to {high}'}, not {value}")
    return value


def check_dense(name: str, x: object) -> None:
    """Check that a tensor is dense, with strides and not nested; TypeError otherwise."""
    if isinstance(x, Tensor) and (x.layout != torch.strided or x.is_nested):
        kind, dense = ("nested", "to_padded_tensor(0.0)") if x.is_nested else (f"of {x.layout}", "to_dense()")
        raise TypeError(f"{name} is a tensor {kind}, and the golden model computes dense ones: give {name}.{dense}")


def check_devices(**tensors: object) -> None:
    """Check that the tensors of a call are dense and on one device; TypeError or ValueError otherwise."""
    for name, x in tensors.items():
        check_dense(name, x)
    devices = {name: tensor.device for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
    if len(set(devices.values())) > 1:
        places = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"the tensors of a call must be on one device: {places}")


def broadcast_shape(*shapes: torch.Size) -> torch.Size:
    """Return the shape to which shapes broadcast; RuntimeError if they do not."""
    longest = max(shapes, key=lambda shape: (len(shape), shape.numel()), default=torch.Size())
    # torch.broadcast_shapes imports sympy at its first call, which takes a second.
    usual = all(shape.numel() == 1 or shape == longest[len(longest) - len(shape) :] for shape in shapes)
    return longest if usual else torch.broadcast_shapes(*shapes)


def product_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Return the shape of a product of batches of matrices; RuntimeError if the batches do not broadcast."""
    return *broadcast_shape(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]


def check_shapes(**tensors: object) -> None:
    """Check that the tensors of a call are dense and broadcast; TypeError or ValueError otherwise."""
    for name, x in tensors.items():
        check_dense(name, x)
    shapes = {name: tensor.shape for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
    try:
        broadcast_shape(*shapes.values())
    except RuntimeError:
        given = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"the shapes of the tensors of a call must broadcast: {given}") from None


def rounding_apart(name: str, rounding: Rounding | str, saturate: str) -> Rounding:
    """Return the rounding of a parameter; ValueError for a text with the saturation, which is another parameter."""
    mode, _, word = rounding.partition(".") if isinstance(rounding, str) else ("", "", "")
    if word in SUFFIXES:
        Rounding.parse(mode)
        raise ValueError(
            f"{name} {rounding!r} has a rounding mode and a saturation; give {name}={mode!r} and {saturate}={word!r}"
        )
    return Rounding.parse(rounding)


def one_mode(rounding: Rounding | str, function: str) -> Rounding:
    """Return the rounding of a function that rounds in one mode; ValueError if a port chooses it."""
    rounding = Rounding.parse(rounding)
    if rounding.is_port:
        raise ValueError(f"the rounding {rounding} is not possible for {function}; choose one mode")
    return rounding


def codes_of(name: str, codes: object, kind: Format | int) -> Tensor:
    """Return codes of a format, or integers of a number of bits, as int64; TypeError or ValueError for others.

    A tensor or an array of a type that names the format, such as ``torch.float8_e5m2`` for e5m2, has the codes of its
    numbers. One of integers as wide as the format has their bits as codes, so that negative ones are in two's
    complement; in particular any int64 is a 64-bit code.
    """
    check_dense(name, codes)
    width = kind if isinstance(kind, int) else kind.width
    if not isinstance(codes, (Tensor, np.ndarray)):
        raise TypeError(f"{name} must be a tensor of codes, not {type(codes).__name__}")
    own = format_of(codes)
    if own is not None and own == kind:
        return stored_codes(codes)
    if own is not None and codes.dtype.itemsize == 1 and isinstance(kind, Format):
        raise TypeError(
            f"{name} has dtype {codes.dtype} with codes of {own}, not of {kind}: name the format {own}, or give "
            f"codes by .view({'torch.uint8' if isinstance(codes, Tensor) else 'np.uint8'})"
        )
    bits = integer_bits(codes)
    codes = tensor_of(codes)
    if codes.dtype not in INTEGERS:
        raise TypeError(f"{name} must be a tensor of integer codes, not {codes.dtype}; encode() converts real numbers")
    codes = codes.to(torch.int64)
    if bits == width < 64:
        return codes & ((1 << width) - 1)
    if width < 64 and codes.numel():
        least, most = (int(bound) for bound in torch.aminmax(codes))
        if least < 0 or most >= 1 << width:
            raise ValueError(
                f"{name} contains {least if least < 0 else most}; codes of {width} bits are 0 to {(1 << width) - 1}"
            )
    return codes


def operand_of(name: str, x: Any, kind: Format | Block) -> Any:
    """Return an operand of a product as a tensor of codes or of real numbers; one that is in parts as it is.

    A type of one byte is a format to store numbers in, so that it must be that of the operand; TypeError otherwise.
    """
    if not isinstance(x, (Tensor, np.ndarray)):
        return x
    own = format_of(x)
    if own is None:
        return codes_of(name, x, kind) if isinstance(x, np.ndarray) and isinstance(kind, Format) else x
    if x.dtype.itemsize == 1 and own != kind:
        real = f"{name}.float()" if isinstance(x, Tensor) and x.dtype != PACKED else f"golden.decode({name})"
        raise TypeError(
            f"{name} has dtype {x.dtype} with codes of {own}, and the operand is {kind}; {real} gives real numbers, "
            "which are rounded to it"
        )
    return tensor_of(x)


def format_given(function: str, x: object, fmt: Format | str | None) -> Format:
    """Return a format, by default the one that the type of a tensor or an array names; TypeError if it names none."""
    if fmt is not None:
        return parse(fmt)
    own = format_of(x) if isinstance(x, (Tensor, np.ndarray)) else None
    if own is None:
        given = f"{x.dtype} names no format" if isinstance(x, (Tensor, np.ndarray)) else f"it is a {type(x).__name__}"
        raise TypeError(f"{function} needs the format of its codes as fmt, such as 'e4m3fn', because {given}")
    return own


def flags_of(name: str, flags: Tensor | int, device: torch.device | None = None) -> Tensor:
    """Convert a tensor of bools or of 0 and 1, or a single 0 or 1, to a tensor of bools."""
    if isinstance(flags, int):
        flags = torch.tensor(flags, device=device)
    if isinstance(flags, Tensor) and flags.dtype == torch.bool:
        return flags
    return codes_of(name, flags, 1) != 0


def random_of(name: str, random: Tensor | None, rounding: Rounding) -> Tensor | None:
    """Return random words as int64; ValueError if the rounding needs them and they are missing, or the reverse."""
    if rounding.bits == 0:
        if random is not None:
            raise ValueError(f"{name} has no effect, because {rounding} takes no random words; only sr does")
        return None
    if random is None:
        raise ValueError(f"{rounding} needs random words of {rounding.bits} bits; pass them as {name}")
    return codes_of(name, random, rounding.bits)


def broadcast(name: str, given: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor expanded to a shape; ValueError if it does not broadcast to it."""
    try:
        return given.expand(shape)
    except RuntimeError as error:
        raise ValueError(f"{name} has shape {tuple(given.shape)}, which does not broadcast to {shape}") from error
