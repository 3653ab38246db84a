"""Random Hadamard rotation of the operands of a product, which spreads outliers before a rounding to few bits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfulp.golden.check import check_int
from halfulp.hdl.formats.checks import check_one_of

from .draw import words
from .product import PRODUCTS


@dataclass(frozen=True)
class Rotation:
    """Random Hadamard rotation of both operands along the sums of products.

    A group of n consecutive elements x becomes H D x / sqrt(n), with the Hadamard matrix H of Sylvester and a diagonal
    matrix D of random signs that are equal for both operands and all groups. H D / sqrt(n) is orthogonal, so the exact
    product does not change, but an outlier is spread over n elements.

    Parameters
    ----------
    length : int
        Number n of elements in a group, a power of two from 2 to 1024. The rest of a sum is split into groups of
        smaller powers of two.
    products : tuple of str
        The products whose operands are rotated: ``forward``, ``input_gradient``, ``weight_gradient``.

    Raises
    ------
    TypeError, ValueError
        If the length is no such power, or a product is unknown or given twice.

    Notes
    -----
    ``str()`` returns a text such as ``16``, or ``16 weight_gradient`` for one product, and `Rotation.parse` reads it.
    NVIDIA, "Pretraining Large Language Models with NVFP4" (arXiv 2509.25149, 2025), rotates 16 elements in the weight
    gradient.
    """

    length: int = 16
    products: tuple[str, ...] = PRODUCTS

    def __post_init__(self) -> None:
        check_int("length of a rotation", self.length, 2, 1024)
        if self.length & (self.length - 1):
            raise ValueError(f"length of a rotation must be a power of two, not {self.length}")
        if not isinstance(self.products, tuple) or not self.products:
            raise TypeError(f"products of a rotation must be a tuple of {', '.join(PRODUCTS)}, not {self.products!r}")
        for place, name in enumerate(self.products):
            check_one_of("product of a rotation", name, PRODUCTS)
            if name in self.products[:place]:
                raise ValueError(f"a rotation has the product {name} twice")

    def __str__(self) -> str:
        names = () if set(self.products) == set(PRODUCTS) else self.products
        return " ".join([str(self.length), *names])

    @classmethod
    def parse(cls, text: "str | int | Rotation") -> "Rotation":
        """Parse the text of a rotation, or a length; a `Rotation` is returned unchanged."""
        if isinstance(text, cls):
            return text
        if isinstance(text, int):
            return cls(text)
        if not isinstance(text, str):
            raise TypeError(f"expected a length such as 16, or a text such as '16 weight_gradient', not {text!r}")
        first, *names = text.split() or [""]
        if not first.isdecimal():
            raise ValueError(f"invalid rotation {text!r}: expected 16 or 16 weight_gradient, for example")
        return cls(int(first), tuple(names) or PRODUCTS)

    def of(self, values: Tensor, dim: int, groups: int, key: int) -> Tensor:
        """Rotate values along a dimension with the signs of a key.

        Parameters
        ----------
        values : Tensor
            Real numbers of any shape. Sums of dtypes below float32 are computed in float32.
        dim : int
            Dimension of the sums of a product, which consists of sums of ``groups`` separate products.
        groups, key : int
            Number of groups of a convolution, and key of the random signs.

        Returns
        -------
        Tensor
            The rotated values, in the shape and dtype of ``values``.
        """
        if not values.numel():
            return values
        wide = torch.promote_types(values.dtype, torch.float32)
        sums = values.to(wide).movedim(dim, -1).unflatten(-1, (groups, -1))
        signs = 1 - 2 * words(key, 1, (self.length,), values.device).to(wide)
        parts, start, length = [], 0, self.length
        while start < sums.shape[-1]:
            count = (sums.shape[-1] - start) // length
            part = sums[..., start : start + count * length].unflatten(-1, (count, length))
            parts.append((_transformed(part * signs[:length]) * length**-0.5).flatten(-2))
            start, length = start + count * length, length // 2
        return torch.cat(parts, -1).flatten(-2).movedim(-1, dim).to(values.dtype)


def _transformed(x: Tensor) -> Tensor:
    """Multiply the last dimension by the Hadamard matrix of Sylvester, by sums and differences of halves."""
    length, half = x.shape[-1], 1
    while half < length:
        low, high = x.unflatten(-1, (-1, 2, half)).unbind(-2)
        x = torch.stack((low + high, low - high), -2).flatten(-3)
        half *= 2
    return x
