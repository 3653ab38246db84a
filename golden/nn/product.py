"""Where layers meet the golden matrix product: the one call of it."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from halfulp.golden.gemm import gemm
from halfulp.hdl.specs import MacSpec

from .draw import states

Device = Callable[[Tensor, Tensor, MacSpec, Tensor | None, int], Tensor]
"""What makes a product in place of the golden model, of operands, a description, what sums start from, and a key."""

_DEVICES: dict[str, Device] = {}


def register(name: str, device: Device) -> None:
    """Let policies name a device.

    Parameters
    ----------
    name : str
    device : callable
        Gives the bits of `golden.gemm`, with whatever random words the key stands for there, or refuses with a
        ValueError.
    """
    _DEVICES[name] = device


def product(
    a: Tensor, b: Tensor, mac: MacSpec, *, key: int, start: Tensor | None = None, device: str | None = None
) -> Tensor:
    """Matrix product of codes in the arithmetic of a multiply-accumulate.

    Parameters
    ----------
    a, b : Tensor
        Codes, of shapes (..., n, k) and (..., k, m).
    mac : MacSpec
    key : int
        Decides all random words. Where ``mac`` names a source, each sum has one whose state is drawn; otherwise it is
        the key of counter-based words.
    start : Tensor, optional
        Codes that the sums start from, of a shape that broadcasts to (..., n, m).
    device : str, optional
        What makes it in place of the golden model.

    Returns
    -------
    Tensor of int64
        Codes in the result format.

    Raises
    ------
    ValueError
        If there is no such device, or it cannot make the product.
    """
    if device is not None:
        if device not in _DEVICES:
            raise ValueError(f"there is no device {device} yet; import halfulp.fpga.kernel.layers first")
        return _DEVICES[device](a, b, mac, start, key)
    given: dict[str, Any] = {}
    if mac.random is not None:
        given = {"seed": states(key, mac.random, (*a.shape[:-1], b.shape[-1]), a.device)}
    elif mac.words:
        given = {"source": "philox", "seed": key}
    return gemm(a, b, mac, start=start, **given)
