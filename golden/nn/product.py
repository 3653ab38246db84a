"""Where layers meet the golden matrix product: the one call of it."""

from typing import Any

from torch import Tensor

from halfulp.golden.gemm import gemm
from halfulp.hdl.formats import MacSpec

from .draw import states


def product(a: Tensor, b: Tensor, mac: MacSpec, *, key: int, start: Tensor | None = None) -> Tensor:
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

    Returns
    -------
    Tensor of int64
        Codes in the result format.
    """
    given: dict[str, Any] = {}
    if mac.random is not None:
        given = {"seed": states(key, mac.random, (*a.shape[:-1], b.shape[-1]), a.device)}
    elif mac.words:
        given = {"source": "philox", "seed": key}
    return gemm(a, b, mac, start=start, **given)
