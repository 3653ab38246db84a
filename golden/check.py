"""Checks of the arguments of operations."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import Format, Rounding, parse
from halfulp.hdl.formats.saturation import SUFFIXES

TORCH_TYPES = {
    getattr(torch, name): name
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if hasattr(torch, name)
}
"""Types of real numbers of torch, with the names of their formats."""

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types of integers by their bytes."""


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


def check_devices(**tensors: object) -> None:
    """Check that the tensors of a call are on one device; ValueError otherwise."""
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
    """Check that the shapes of the tensors of a call broadcast; ValueError otherwise."""
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

    Any int64 is a 64-bit code: it has the same bits. A tensor of torch's own type for the format, such as
    ``torch.float8_e5m2`` for e5m2, has the codes of its numbers. Arrays of numpy and ml_dtypes are taken as tensors
    are.
    """
    width = kind if isinstance(kind, int) else kind.width
    if isinstance(codes, np.ndarray):
        codes = tensor_of(codes)
    if not isinstance(codes, Tensor):
        raise TypeError(f"{name} must be a tensor of codes, not {type(codes).__name__}")
    if codes.dtype in TORCH_TYPES:
        own = parse(TORCH_TYPES[codes.dtype])
        if own == kind:
            return codes.view(WORDS[codes.dtype.itemsize]).to(torch.int64) & ((1 << width) - 1 if width < 64 else -1)
        if codes.dtype.itemsize == 1 and isinstance(kind, Format):
            raise TypeError(
                f"{name} has dtype {codes.dtype} with codes of {own}, not of {kind}: name the format {own}, or give "
                "codes by .view(torch.uint8)"
            )
    if codes.dtype.is_floating_point or codes.dtype.is_complex or codes.dtype == torch.bool:
        raise TypeError(f"{name} must be a tensor of integer codes, not {codes.dtype}; encode() converts real numbers")
    codes = codes.to(torch.int64)
    if width < 64 and codes.numel():
        least, most = (int(bound) for bound in torch.aminmax(codes))
        if least < 0 or most >= 1 << width:
            raise ValueError(
                f"{name} contains {least if least < 0 else most}; codes of {width} bits are 0 to {(1 << width) - 1}"
            )
    return codes


def is_of_ml_dtypes(array: "np.ndarray[Any, Any]") -> bool:
    """Return True for an array of a type of ml_dtypes."""
    return array.dtype.type.__module__.split(".")[0] == "ml_dtypes"


def tensor_of(array: "np.ndarray[Any, Any]") -> Tensor:
    """Return an array of numpy or ml_dtypes as a tensor with the same numbers."""
    if is_of_ml_dtypes(array):
        bits = array.view(f"u{array.dtype.itemsize}")
        dtype = next((dtype for dtype, name in TORCH_TYPES.items() if name == array.dtype.name), None)
        if dtype is not None:
            return torch.tensor(bits.astype(np.int64)).to(WORDS[array.dtype.itemsize]).view(dtype)
        return torch.tensor(array.astype(np.int64 if "int" in array.dtype.name else np.float32))
    # torch supports the native byte order only.
    return torch.tensor(array.astype(array.dtype.newbyteorder("=")))


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
